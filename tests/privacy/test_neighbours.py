"""Neighbouring data sets through the private local step: what they may move, what they may not change, and planted faults.

Each check below passes on the package, and fails on the fault that it is there for.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.core.messages import Charge, Charged
from fedkern.algorithms.pvi import client_level, noise_aware
from fedkern.algorithms.pvi import local as local_steps
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local, gradient_of
from fedkern.algorithms.pvi.messages import SHARDED
from fedkern.kernels import glm
from fedkern.methods import load
from fedkern.methods.pvi import linearised, publish
from fedkern.methods.pvi.model import Model
from fedkern.models.encoding import Column, Encoding
from fedkern.models.expfam import Gaussian
from fedkern.models.glm import Rows, prior
from fedkern.privacy import noise
from fedkern.privacy.accountant import LEAST_CLIP, Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource
from support import chosen

D, CLIP, SIGMA = 5, 1.5, 3.0
MU, OMEGA = np.linspace(-0.5, 0.5, D), np.linspace(-1, 0.5, D)


def mechanism(sampling="full", **changes):
    parameters = {"sampling": sampling, "clip": CLIP, "dimension": 2 * D, "noise_multiplier": SIGMA}
    return Mechanism(**(parameters | changes))


class Silent(SecureSource):
    """No noise, so that sums can be compared."""

    def add_noise(self, total, sigma, step=0):
        return total.astype(float)


def gradient(rows, m=None, source=None, step=0, **settings):
    """What one private step releases, times 1/q_s: the likelihood's part, without the (public) gradient of the KL term."""
    s = chosen.pvi(**({"family": "bernoulli", "local_steps": 1} | settings))
    local = Local(rows, s, 0, m or mechanism(), source or Silent())
    return gradient_of(local, None)(MU, OMEGA, step)


def data(n, seed=0, scale=3.0):
    generator = np.random.default_rng(seed)
    return Rows(scale * generator.standard_normal((n, D)), (generator.random(n) < 0.4).astype(float))


def with_row(rows, x, y):
    return Rows(np.vstack([rows.X, np.broadcast_to(x, D)]), np.append(rows.y, y))


def strange_rows():
    """(x, y) that a data set may hold, and that may show nothing."""
    numbers = (0.0, 1.0, 30.0, np.nan, np.inf, -np.inf, 1e200, -1e200, 1e308, 5e-324)
    for number, y in itertools.product(numbers, (0.0, 1.0, np.nan)):
        yield np.full(D, number), y
    for number in numbers[1:]:
        x = np.ones(D)
        x[2] = number
        yield x, 1.0


def neighbours():
    """100 pairs: without and with one more row."""
    pairs = [(rows, with_row(rows, x, y)) for (x, y), rows in zip(strange_rows(), itertools.cycle([data(0), data(1), data(20)]))]
    same = Rows(np.repeat(data(1).X, 9, axis=0), np.zeros(9))  # one class, duplicates
    pairs += [(same, with_row(same, data(1).X[0], 0.0)), (same, with_row(same, 100 * data(1).X[0], 1.0))]
    for seed in range(100 - len(pairs)):
        row = data(1, seed + 500, scale=10.0 ** (seed % 5 - 1))
        rows = data(seed % 30, seed)
        pairs.append((rows, with_row(rows, row.X[0], row.y[0])))
    return pairs


# --- checks


def check_sensitivity():
    """The sum of any data set and of its neighbour are within the clip, exactly: it is an integer sum."""
    for a, b in neighbours():
        moved = gradient(a) - gradient(b)
        assert np.isfinite(moved).all()
        assert np.linalg.norm(moved) <= CLIP * mechanism().sensitivity_factor


def check_scale_knows_no_row_count():
    """Rows that all pull the same way: a factor that depends on their number would move the sum by much more than one of them."""
    x = np.full(D, 50.0)
    for n in (10, 11, 20, 21):
        a, b = (Rows(np.broadcast_to(x, (k, D)).copy(), np.ones(k)) for k in (n, n + 1))
        m = mechanism("poisson", sampling_rate=1.0)
        assert np.linalg.norm(gradient(a, m) - gradient(b, m)) <= CLIP * m.inverse_rate


def check_noise_scale(steps=1500):
    """One draw of standard deviation sigma C on the sum, then divided once: chi-square of each coordinate."""
    source, m = SecureSource(), mechanism("poisson", sampling_rate=0.25)
    rows = data(40, scale=0.0)
    z = np.array([gradient(rows, m, source, step) for step in range(steps)])
    statistic = (z**2).sum(axis=0) / (SIGMA * CLIP * m.inverse_rate) ** 2
    cdf = stats.chi2.cdf(statistic, steps)
    assert np.minimum(cdf, 1 - cdf).min() > 1e-6


def check_sampler(steps=1500, n=60, rate=0.2):
    """The number of rows in a batch is binomial, and a row may come in two steps that follow each other."""
    m, source = mechanism("poisson", sampling_rate=rate), SecureSource()
    batches = [m.draw(source, n, step) for step in range(steps)]
    sizes = np.array([len(b) for b in batches])
    variance = n * rate * (1 - rate)
    assert abs(sizes.var() - variance) < 6 * variance * math.sqrt(2 / steps)
    again = np.mean([len(np.intersect1d(a, b)) for a, b in itertools.pairwise(batches)])
    assert abs(again - n * rate**2) < 6 * math.sqrt(n * rate**2 / steps)


def check_transcript():
    """The same question in two updates: no release, and no difference of two coordinates' noise, comes twice."""
    source, rows, seen = SecureSource(), data(10), []
    wide = mechanism(noise_multiplier=2000.0)  # so that no number comes twice by chance
    for _update in range(4):
        source.rekey()
        seen += [gradient(rows, wide, source, step) for step in range(3)]
    released = np.array(seen)
    assert len(np.unique(released)) == released.size


def check_source():
    """Two runs of the same job release other numbers."""
    np.random.seed(1)  # noqa: NPY002 - a job's seed, which must not matter
    first = gradient(data(10), source=SecureSource())
    np.random.seed(1)  # noqa: NPY002
    assert (first != gradient(data(10), source=SecureSource())).all()


def transcript(rows, settings, m=None, *, updates=2):
    """Types and shapes of all that one client sends, and its count of steps; every number that it sends must be finite."""
    source = SecureSource() if m else None
    local = Local(rows, settings, 0, m, source, np.arange(len(rows), dtype=np.uint64))
    client, sent = pvi.client("c", local, prior(D)), []
    for k in range(updates):
        client, effects = client_level.client_receive(client, pvi.QUpdate(k, k, np.full(D, 0.1 * k), np.full(D, 1.0 + k)))
        if m:
            assert effects == [Charge(1 if client.shards else settings.local_steps, k)]
            client, effects = client_level.client_receive(client, Charged(effects[0].steps))
        assert all(np.isfinite(v).all() for e in effects for v in vars(e).values())
        sent += [(type(e), {name: np.shape(v) for name, v in vars(e).items()}) for e in effects]
        client, effects = client_level.client_receive(client, pvi.SiteApplied(k, 0.5))
        sent += effects
    return sent, client.step


def noise_aware_model(**columns):
    """A job whose posterior contains the noise, as all parties know it: from its file alone."""
    said = {f"x{k}": {"kind": "numeric", "center": 0.0, "scale": 1.0} for k in range(1, D)} | columns
    config, _ = load(
        {
            "job": {"method": "pvi", "rounds": 12},
            "data": {"clients": ["c.csv"], "response": "y", "standardise": "public", "columns": said},
            "privacy": {"epsilon": 4.0, "delta": 1e-4, "clip": 9.0, "noise_multiplier": SIGMA, "sampling_rate": 0.5},
            "algorithm": {"posterior": "noise-aware"},
        }
    )
    return Model(config, ("c",), Encoding(tuple(Column(name, "numeric", None, 0.0, 1.0) for name in said), "y"))


def judged(rows, settings, m, model, updates=8):
    """Shapes and counts of a client's noisy sums, and the verdict of the posterior that is made of them."""
    design = noise_aware.Design(settings.family, np.ones(D), updates)
    client = pvi.client("c", Local(rows, settings, 0, m, KeyedSource(7, 0), design=design), prior(D))
    for k in range(updates):
        client, effects = pvi.client_receive(client, pvi.QUpdate(k, k, np.full(D, 0.1 * k), np.full(D, 1.0 + k)))
        client, _ = pvi.client_receive(client, Charged(effects[0].steps))
        client, _ = pvi.client_receive(client, pvi.SiteApplied(k, 0.5))
    _, (sent,) = noise_aware.client_receive(noise_aware.Client(client.sums), noise_aware.AskSums(0))
    told = {0: (client.sums, noise_aware.Noise((m.sigma * m.clip / m.rate) ** 2, (1 - m.rate) / m.rate))}
    estimate, without = noise_aware.posterior_of(design, prior(D), told)
    assert without == {}
    assert all(np.isfinite(v).all() for v in vars(sent).values())
    verdict = publish._of_noise(model, estimate, estimate.q.mean)
    return {name: np.shape(v) for name, v in vars(sent).items()}, sent.early, sent.late, verdict


def check_nothing_visible_changes():
    """Control flow, kinds, shapes and counts of what a client sends, over all pairs: equal, finite, and no exception.

    So is the verdict of a noise-aware job whose file says that a column is skewed.
    """
    m, settings = mechanism("poisson", sampling_rate=0.5), chosen.pvi(family="bernoulli", optimiser="adagrad", local_steps=3)
    transcripts = [transcript(rows, settings, m) for pair in neighbours() for rows in pair]
    assert all(t == transcripts[0] for t in transcripts)
    model = noise_aware_model(x2={"kind": "numeric", "center": 0.0, "scale": 1.0, "shape": "skewed"})
    keyed = replace(m, secure=False)
    verdicts = [judged(rows, settings, keyed, model) for pair in neighbours()[::5] for rows in pair]
    assert verdicts[0][-1].converged == "not judged"
    assert all(v == verdicts[0] for v in verdicts)


def check_kl_is_outside():
    """Without rows the step is the gradient of -KL, whatever its size: neither clipped nor noisy in itself."""
    hc, Pc = np.full(D, 1e3), np.full(D, 7.0)
    local = Local(data(0), chosen.pvi(family="bernoulli"), 0, mechanism(), Silent())
    g = gradient_of(local, Gaussian(hc, Pc))(MU, OMEGA, 0)
    np.testing.assert_allclose(g, np.concatenate([hc - Pc * MU, 1 - Pc * np.exp(2 * OMEGA)]), rtol=1e-15)


CHECKS = [
    check_sensitivity,
    check_scale_knows_no_row_count,
    check_noise_scale,
    check_sampler,
    check_transcript,
    check_source,
    check_nothing_visible_changes,
    check_kl_is_outside,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_passes(check):
    check()


# --- forms whose optimiser sees rows without a clip: shards, and clients where whole ones are protected

OPTIMISERS = ("adagrad", "adam", "sgd", "exact")
ESTIMATORS = ("analytic", "weight-mc", "activation-mc", "stl", "total")
# Ordinary in a file, but no step can follow them: E exp(x'theta) overflows; x^2 drowns the prior's precision.
ORDINARY = [(10.0, 1.0), (40.0, 3.0), (1e10, 1.0), (-1e10, 0.0), (1e150, 2.0), (1.0, 1e300), (0.5, 1e12)]


def hard_rows():
    """A data set without and with each of the rows that may show nothing."""
    rows = data(12)
    yield rows
    for number, y in ORDINARY:
        yield with_row(rows, number, y)
        x = np.ones(D)
        x[3] = number
        yield with_row(rows, x, y)
    for x, y in strange_rows():
        yield with_row(rows, x, y)
    yield Rows(rows.X, rows.y, np.where(np.arange(12) == 5, 1e5, 0.0))
    yield Rows(rows.X, rows.y, None, np.where(np.arange(12) == 5, 1e300, 1.0))
    yield Rows(rows.X, rows.y, np.full(12, np.nan), np.full(12, np.inf))


def shown(family, optimiser, estimator, **changes):
    """The different transcripts over `hard_rows`."""
    settings = chosen.pvi(family=family, optimiser=optimiser, estimator=estimator, local_steps=3, **changes)
    m = mechanism("shards") if settings.variant in SHARDED else None
    found = []
    for rows in hard_rows():
        if (seen := transcript(rows, settings, m)) not in found:
            found.append(seen)
    return found


nightly = pytest.mark.nightly
PUSHED = {("adam", "stl"), *((optimiser, "analytic") for optimiser in OPTIMISERS)}
FORMS = [
    pytest.param(*form, marks=() if form[1:] in PUSHED and form[::2] != ("bernoulli", "analytic") else nightly)
    for form in itertools.product(("bernoulli", "poisson", "gaussian"), OPTIMISERS, ESTIMATORS)
    if form[1] != "exact" or form[2] == "analytic"  # the exact optimum has no estimator
]


@pytest.mark.parametrize(("family", "optimiser", "estimator"), FORMS)
@pytest.mark.parametrize("variant", SHARDED)
def test_no_row_shows_in_what_shards_send(variant, family, optimiser, estimator):
    assert len(shown(family, optimiser, estimator, variant=variant, shards=3)) == 1


@pytest.mark.parametrize(("family", "optimiser", "estimator"), FORMS)
def test_no_client_shows_in_what_it_sends_where_clients_are_protected(family, optimiser, estimator):
    assert len(shown(family, optimiser, estimator, by_client=True)) == 1


# --- planted faults


def wrapped(patch, change):
    """The clipped sum with other arguments or another result."""

    def bind(X, y, mu, omega, rows, **k):
        def sums(mu, omega, rows, step):
            total, skipped = change(glm.clipped_grad_sum, X, y, mu, omega, k | {"rows": rows, "step": step})
            return total, skipped

        return sums

    patch.setattr(local_steps.glm, "bind_clipped_grad_sum", bind)


def no_clip(patch):
    wrapped(patch, lambda real, X, y, mu, omega, k: real(X, y, mu, omega, **(k | {"clip": 100 * k["clip"]})))


def clip_on_blocks_separately(patch):
    def change(real, X, y, mu, omega, k):
        total = np.zeros(2 * D, np.int64)
        for i in range(len(X)):
            loose, _ = real(X[i : i + 1], y[i : i + 1], mu, omega, **(k | {"clip": 1e6, "rows": None}))
            for block in (slice(0, D), slice(D, 2 * D)):
                norm = np.linalg.norm(loose[block] * k["grid"])
                total[block] += np.trunc(loose[block] * min(1, k["clip"] / norm) if norm > 0 else loose[block]).astype(np.int64)
        return total, 0

    wrapped(patch, change)


def nan_passes(patch):
    def change(real, X, y, mu, omega, k):
        total, skipped = real(X, y, mu, omega, **k)
        return (total, skipped) if np.isfinite(X).all() else (np.full_like(total, np.iinfo(np.int64).min), skipped)

    wrapped(patch, change)


def scale_by_row_count(patch):
    seen, real = [1], Mechanism.draw

    def draw(self, source, n_rows, step):
        seen[0] = n_rows
        return real(self, source, n_rows, step)

    patch.setattr(Mechanism, "draw", draw)
    patch.setattr(
        Mechanism, "release", lambda self, s, total, step: s.add_noise(total, self.sigma, step) * self.grid * seen[0] / 10
    )


def half_noise(patch):
    real = SecureSource.add_noise
    patch.setattr(SecureSource, "add_noise", lambda self, total, sigma, step=0: real(self, total, sigma / 2, step))


def noise_per_chunk(patch):
    real = Mechanism.release

    def release(self, source, total, step):
        return real(self, source, total // 2, step) + real(self, source, total - total // 2, step)

    patch.setattr(Mechanism, "release", release)


def noise_divided_twice(patch):
    real = Mechanism.release
    patch.setattr(Mechanism, "release", lambda self, source, total, step: real(self, source, total, step) * self.rate)


def shuffle_for_poisson(patch):
    order = {}

    def draw(self, source, n_rows, step):
        size = round(self.rate * n_rows)
        passes, at = divmod(step * size, n_rows)
        if at == 0 or "now" not in order:
            order["now"] = np.random.default_rng(passes).permutation(n_rows)
        return np.sort(order["now"][at : at + size])

    patch.setattr(Mechanism, "draw", draw)


def reused_noise(patch):
    real, kept = noise._chacha20, {}

    def rekey(self):
        if id(self) not in kept:
            kept[id(self)] = noise.os.urandom(32)
        patch.setattr(noise.os, "urandom", lambda n: kept[id(self)])
        self._stream, self._at = real(), noise.CHUNK

    patch.setattr(SecureSource, "rekey", rekey)


def seed_from_the_job(patch):
    count = itertools.count()
    job = np.random.get_state

    def urandom(n):
        return sha256(job()[1].tobytes() + bytes(next(count) // 10**9)).digest()

    patch.setattr(noise.os, "urandom", urandom)


def kl_inside_the_clip(patch):
    real = local_steps._KlGradient.__call__

    def add(self, g, mu, omega):
        g0 = np.zeros_like(g)
        real(self, g0, mu, omega)
        g += g0 * min(1, CLIP / np.linalg.norm(g0))

    patch.setattr(local_steps._KlGradient, "__call__", add)


def verdict_of_rows(patch):
    """The server's sentence says something of the rows, which it must not have."""
    real, seen = pvi.client, [0]

    def client(name, local, prior):
        seen[0] = len(local.rows)
        return real(name, local, prior)

    patch.setattr(pvi, "client", client)
    patch.setattr(linearised, "of_columns", lambda model: f"{seen[0]} rows")


FAULTS = [
    (no_clip, check_sensitivity),
    (clip_on_blocks_separately, check_sensitivity),
    (nan_passes, check_sensitivity),
    (scale_by_row_count, check_scale_knows_no_row_count),
    (half_noise, check_noise_scale),
    (noise_per_chunk, check_noise_scale),
    (noise_divided_twice, check_noise_scale),
    (shuffle_for_poisson, check_sampler),
    (reused_noise, check_transcript),
    (seed_from_the_job, check_source),
    (kl_inside_the_clip, check_kl_is_outside),
    (verdict_of_rows, check_nothing_visible_changes),
]


@pytest.mark.parametrize(("fault", "check"), FAULTS)
def test_a_planted_fault_is_caught(fault, check):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            check()


# --- the same for the other samplers


@pytest.mark.parametrize(
    "scheme",
    [
        {"sampling": "without-replacement", "batch_size": 21},
        {"sampling": "poisson-truncated", "sampling_rate": 1.0, "max_batch": 21},
    ],
)
def test_replacing_a_row_moves_a_batch_by_at_most_two_clips(scheme):
    m = mechanism(**scheme, dataset_size=21)
    assert m.neighbours == "replace one example by any other"
    rows, largest = data(20), 0.0
    for (x, y), (u, v) in itertools.pairwise([*strange_rows(), (np.full(D, 30.0), 1.0), (np.full(D, 30.0), 0.0)]):
        moved = np.linalg.norm(gradient(with_row(rows, x, y), m) - gradient(with_row(rows, u, v), m))
        largest = max(largest, moved)
        assert moved <= m.sensitivity_factor * CLIP * m.inverse_rate
    assert largest > 1.5 * CLIP  # so 1 clip would not have been enough


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
@pytest.mark.parametrize("estimator", ["analytic", "weight-mc", "activation-mc"])
def test_every_family_and_estimator_is_clipped(family, estimator):
    largest = 0.0
    for a, b in neighbours():
        moved = gradient(a, family=family, estimator=estimator, draws=3) - gradient(
            b, family=family, estimator=estimator, draws=3
        )
        assert np.linalg.norm(moved) <= CLIP
        largest = max(largest, np.linalg.norm(moved))
    assert largest > CLIP * (1 - 1e-5)


def lifted(clip):
    """How far, in clips, a row goes whose covariates have squares that are not exact, and whose residual is huge."""
    rows = [Rows(np.full((1, D), 10.0**x), np.array([10.0**y])) for x in range(-168, -130) for y in (90, 99, 150, 154)]
    m = mechanism(clip=clip)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_steps, "LEAST_CLIP", 0.0)
        return max(np.linalg.norm(gradient(row, m, family="gaussian")) for row in rows) / clip


def test_a_clip_that_float64_cannot_keep_is_refused():
    assert max(lifted(clip) for clip in (1e-10, LEAST_CLIP, 1.0, 1e6)) <= 1
    assert 0.9 < lifted(1e-50) <= 1  # the least that the kernel takes: rows reach it, and none goes further
    with pytest.raises(ValueError, match=r"a clip of 1e-10 on rows cannot be kept; at least 0\.001"):
        gradient(data(1), mechanism(clip=1e-10))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_offsets_and_weights_are_inside_the_clip(dtype):
    """A row's weight, however large, is part of what is clipped."""
    rows = data(20)
    full = [
        Rows(rows.X.astype(dtype), rows.y, np.zeros(20), np.where(np.arange(20) == 7, weight, 1.0))
        for weight in (0.0, 1.0, 1e3, 1e300, np.inf, np.nan)
    ]
    released = [gradient(r) for r in full]
    for a, b in itertools.combinations(released, 2):
        assert np.linalg.norm(a - b) <= 2 * CLIP
    for a in released:  # weight 0 is the row's absence
        assert np.linalg.norm(a - released[0]) <= CLIP


def test_the_bound_is_reached():
    """Negative control of the sensitivity: it is not the test's data that are too tame."""
    assert max(np.linalg.norm(gradient(a) - gradient(b)) for a, b in neighbours()) > CLIP * (1 - 1e-5)


def test_a_step_depends_on_the_rate_and_never_on_the_number_of_rows():
    """D4: N and N + 1 rows around each multiple of a batch; the extra row is empty, so nothing at all may change."""
    for n in range(9, 42, 10):
        m = mechanism("poisson", sampling_rate=0.1)
        every = replace(m, sampling_rate=1.0)
        rows = data(n)
        np.testing.assert_array_equal(gradient(rows, every), gradient(with_row(rows, 0.0, 0.0), every))
        assert m.inverse_rate == pytest.approx(10.0)
