"""Private runs of the machines: what is charged, what moves by how much when a row or a client changes, and when it ends."""

from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import SERVER, Charge, Charged, ChargeFailed, Released
from fedkern.algorithms.pvi import client_level, global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi import scale as shards
from fedkern.algorithms.pvi.local import Local
from fedkern.kernels import rng
from fedkern.kernels._record import Kernel
from fedkern.models.expfam import Gaussian, kl
from fedkern.models.glm import Rows, prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource
from support.federations import client_of, deal, make_rows, play, settings

D = 4
DP = {"optimiser": "adagrad", "learning_rate": 0.5, "damping": 0.1, "damping_form": "moment", "average": "half", "rounds": 150}


def mechanism(**changes):
    default = {
        "sampling": "poisson",
        "sampling_rate": 0.2,
        "noise_multiplier": 2.0,
        "clip": 1.0,
        "dimension": 2 * D,
        "secure": False,
    }
    return Mechanism(**(default | changes))


def keyed(k=0, seed=1):
    return KeyedSource(rng.key(seed, "noise"), k)


def private_run(s, m, n=4000, algorithm=pvi, secure=False, ids=False, charge=None):
    """All clients' charges are granted, or answered by `charge`."""
    p = prior(D)
    parts = deal(make_rows("bernoulli", n=n), 3)
    clients = {}
    for k, part in enumerate(parts):
        row_ids = np.random.default_rng(k).integers(2**63, size=len(part)).astype(np.uint64) if ids else None
        source = SecureSource() if secure else keyed(k)
        clients[k] = client_of(algorithm, f"c{k}", Local(part, s, k, m, source, row_ids), p)
    server, _ = play(algorithm, algorithm.start(s, p, 3), clients, charge=charge)
    return server


def optimum(n=4000):
    server, _ = play(
        pvi, pvi.start(settings(), prior(D), 1), {0: pvi.client("c", Local(make_rows("bernoulli", n=n), settings(), 0), prior(D))}
    )
    return server.q


@pytest.mark.parametrize("secure", [True, False])
def test_a_private_run_comes_near_the_optimum(secure):
    server = private_run(settings(**DP), mechanism(secure=secure, clip=2.0), secure=secure)
    q, best = pvi.released(server), optimum()
    assert np.abs(q.mean - best.mean).max() < 0.2
    assert kl(best, q) / D < 3


def test_keyed_runs_repeat_and_secure_runs_do_not():
    s = settings(**(DP | {"rounds": 3}))
    a, b = (private_run(s, mechanism(), n=300) for _ in range(2))
    assert (a.q.h == b.q.h).all()
    a, b = (private_run(s, mechanism(secure=True), n=300, secure=True) for _ in range(2))
    assert (a.q.h != b.q.h).any()


@pytest.mark.parametrize(
    "changes", [{"optimiser": "exact"}, {"estimator": "stl"}, {"estimator": "total"}, {"covariance": "full"}]
)
def test_what_has_no_private_form_is_refused(changes):
    """Each of these would read rows without clip and noise while steps are charged."""
    with pytest.raises(ValueError, match="no private form"):
        Local(make_rows("bernoulli"), settings(**(DP | changes)), 0, mechanism(), keyed())


def test_a_mechanism_without_a_source_never_runs_in_the_open():
    with pytest.raises(ValueError, match="go together"):
        Local(make_rows("bernoulli"), settings(**DP), 0, mechanism())


def test_a_run_ends_when_every_budget_is_spent_and_not_one_step_later():
    spent = [0, 0, 0]

    def charge(client, asked):
        if spent[client] + asked.steps > 60:
            return ChargeFailed(asked.steps, spent[client], 60)
        spent[client] += asked.steps
        return Charged(asked.steps)

    server = private_run(settings(**(DP | {"rounds": None, "local_steps": 25})), mechanism(), n=300, charge=charge)
    assert server.stop == "budget"
    assert spent == [50, 50, 50]
    assert server.updates.tolist() == [2, 2, 2]


def test_a_shortened_last_update_runs_the_steps_that_were_charged():
    s = settings(**(DP | {"local_steps": 25}))
    c = pvi.client("c", Local(make_rows("bernoulli"), s, 0, mechanism(), keyed()), prior(D))
    c, _ = pvi.client_receive(c, pvi.QUpdate(0, 0, np.zeros(D), np.ones(D)))
    c, _ = pvi.client_receive(c, Charged(7))
    assert c.step == 7


def test_global_vi_charges_one_step_a_round():
    charges = []

    def charge(client, asked):
        charges.append(asked.steps)
        return Charged(asked.steps)

    s = settings(variant="global-vi", optimiser="adagrad", learning_rate=0.1, rounds=5)
    private_run(s, mechanism(), n=300, algorithm=global_vi, charge=charge)
    assert charges == [1] * 15


def test_no_counter_is_used_twice_by_a_client_that_is_drawn_often_in_one_round(monkeypatch):
    """Keyed noise, batches and draws have the counters (client, step), and a step is the client's own count, never reset."""
    used = []

    def recording(module, name):
        original = getattr(module, name)

        def record(*arguments, **words):
            used.append((name, words["key"], words["client"], words["step"]))
            return original(*arguments, **words)

        monkeypatch.setattr(module, name, record)

    recording(rng, "words")  # coins
    recording(rng, "uniform")  # batches, and the schedule

    real = Kernel.bind

    def bind(kernel, inputs, varying, *others, **scalars):
        call = real(kernel, inputs, varying, *others, **scalars)

        def record(*given):
            used.append((kernel.name, scalars["key"], scalars["client"], given[-1]))
            return call(*given)

        return record if varying[-1] == "step" else call

    monkeypatch.setattr(Kernel, "bind", bind)  # coins, noise and draws of private steps
    drawn = []
    s = settings(
        **(DP | {"rounds": 2, "schedule": "random", "local_steps": 5, "estimator": "weight-mc"}), client_weights=(8.0, 1.0, 1.0)
    )
    private_run(s, mechanism(), n=300, charge=lambda client, asked: drawn.append((asked.round, client)) or Charged(asked.steps))
    assert max(drawn.count(one) for one in set(drawn)) == 3
    assert len(used) == len(set(used))
    assert {name for name, *_ in used} >= {"uniform", "rng.words", "privacy.add_noise", "glm.clipped_grad_sum"}


# Local averaging and virtual clients


def shard_mechanism(**changes):
    return Mechanism(
        **({"sampling": "shards", "clip": 3.0, "noise_multiplier": 1.0, "dimension": 2 * D, "secure": False} | changes)
    )


@pytest.mark.parametrize("variant", ["local-averaging", "virtual-clients"])
def test_shards_answer_once_an_update_and_come_near_the_optimum(variant):
    charges = []

    def charge(client, asked):
        charges.append(asked.steps)
        return Charged(asked.steps)

    s = settings(
        variant=variant, shards=5, optimiser="adagrad", learning_rate=0.1, local_steps=20, damping=0.3, rounds=40, average="half"
    )
    server = private_run(s, shard_mechanism(clip=60.0, noise_multiplier=0.5), ids=True, charge=charge)
    assert set(charges) == {1}
    q, best = pvi.released(server), optimum()
    assert np.abs(q.mean - best.mean).max() < 0.35


@pytest.mark.parametrize("variant", ["local-averaging", "virtual-clients"])
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, 1e200, 1e308, 30.0])
def test_one_row_moves_the_clipped_sum_by_at_most_two_clips(variant, bad):
    """Neighbours: the same row ids, one row with other numbers. Shards that don't hold it must not move at all."""
    s = settings(variant=variant, shards=6, optimiser="adagrad", learning_rate=0.3, local_steps=10, damping=1.0)
    m = shard_mechanism(clip=2.0)
    rows = make_rows("bernoulli", n=60)
    X = rows.X.copy()
    X[7] = bad
    ids = np.arange(60, dtype=np.uint64)
    totals = []
    for neighbour in (rows, Rows(X, rows.y)):
        local = Local(neighbour, s, 0, m, Silent(), ids)
        dh, dP, _ = shards.update(
            local, shards.start(local, D), Gaussian(np.zeros(D), np.ones(D)), np.zeros(D), np.zeros(D), np.ones(D), 0
        )
        totals.append(np.concatenate([dh, dP]) * (6 if variant == "local-averaging" else 1))
    assert np.linalg.norm(totals[0] - totals[1]) <= 2 * m.clip * (1 + 1e-12)
    assert np.isfinite(totals[1]).all()


class Silent(KeyedSource):
    """No noise, so that the sums themselves can be compared."""

    def __init__(self):
        super().__init__(rng.key(0, "noise"), 0)

    def add_noise(self, total, sigma, step):
        return total.astype(float)


def test_negative_control_a_weight_by_row_count_moves_more_than_one_shard():
    """The published weight N couples all shards: with one row less every shard's problem changes (pvi.md, section 12 b)."""
    rows, ids = make_rows("bernoulli", n=60), np.arange(60, dtype=np.uint64)
    s = settings(shards=6, optimiser="exact")
    moved = 0
    for i, members in enumerate(shards.partition(ids, 6)):
        changed = []
        for n_rows in (60, 59):
            kept = members if n_rows == 60 else members[members != 7]
            part = rows.take(kept)
            weighted = replace(part, weights=np.full(len(part), n_rows / max(len(kept), 1)))
            from fedkern.algorithms.pvi.local import exact

            changed.append(exact(weighted, s, prior(D), prior(D)).h)
        moved += bool(np.abs(changed[0] - changed[1]).max() > 1e-9)
        assert i < 6
    assert moved == 6


# Client-level privacy


def client_level_run(averaged, rounds=30, secure=False, charge=None, sigma=0.01):
    s = settings(optimiser="exact", damping=0.3, rounds=rounds)
    m = Mechanism(
        sampling="poisson", sampling_rate=0.5, clip=3.0, noise_multiplier=sigma, dimension=2 * D, unit="client", secure=secure
    )
    parts = deal(make_rows("bernoulli", n=600), 6)
    clients = {k: pvi.client(f"c{k}", Local(part, s, k), prior(D)) for k, part in enumerate(parts)}
    source = SecureSource() if secure else keyed()
    started = client_level.start(s, prior(D), 6, m, source, averaged_sites=averaged)
    return play(client_level, started, clients, charge=charge)


@pytest.mark.parametrize("averaged", [False, True])
def test_client_level_runs_come_near_the_optimum(averaged):
    server, clients = client_level_run(averaged, rounds=60)
    best = optimum(600)
    assert np.abs(client_level.released(server).mean - best.mean).max() < 0.3
    if averaged:  # every client's site is the M-th part of what q has gained
        np.testing.assert_allclose(sum(c.site_h for c in clients.values()), server.q.h - server.prior.h, atol=1e-9)


def test_client_level_charges_the_federations_own_budget_once_a_round():
    charges = []

    def charge(client, asked):
        charges.append((client, asked))
        return Charged(asked.steps) if len(charges) <= 4 else ChargeFailed(1, 4, 4)

    server, _ = client_level_run(False, rounds=None, charge=charge)
    assert charges == [(SERVER, Charge(1, r)) for r in range(5)]
    assert server.stop == "budget"
    assert server.round == 4


def test_one_client_moves_the_released_sum_by_at_most_the_clip():
    """A client whose answer is huge, and the same round without it."""
    s = settings(rounds=1)
    m = Mechanism(sampling="full", clip=2.0, noise_multiplier=1.0, dimension=2 * D, unit="client", secure=False)
    released = []
    for answers in ([0.1, 1e150], [0.1, 0.0]):
        server, _ = client_level.start(s, prior(D), 2, m, Silent())
        server, _ = client_level.server_receive(server, SERVER, Charged(1))
        for k, size in enumerate(answers):
            delta = pvi.SiteDelta(0, 0, 0, np.full(D, size), np.full(D, size))
            server, effects = client_level.server_receive(server, k, delta)
        server, _ = client_level.server_receive(server, SERVER, Released(0, effects[0][1].content))
        released.append(np.concatenate([server.q.h, server.q.P]))  # the prior's precision is 1, so both scales are 1
    assert np.linalg.norm(released[0] - released[1]) <= m.clip * (1 + 1e-12)
    assert np.linalg.norm(released[0] - released[1]) > 0.9 * m.clip
