"""With secure sums a server of partitioned inference that asks as it likes reads sums over clients, and nothing of one.

A federation and one whose clients stand in another order have the same sums, and so has, where answers are sums over rows, one
whose rows are dealt otherwise. The server has to get the same of both, whatever it asks, also where it ends the job. It looks
for its points: those at which one client's part of an answer outweighs the others', or is least beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import masked
from fedkern.algorithms.core.box import reach
from fedkern.algorithms.core.masked import Client, Hider, Sums
from fedkern.algorithms.core.messages import Message, Protocol
from fedkern.algorithms.exchanges.arrival import AskSlope
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import WIDER, BoxOfQ, Parameters, QUpdate, ScaledQUpdate, Settings, SiteApplied
from fedkern.arrays import Array
from fedkern.errors import JobError
from fedkern.jobs.holding.questions import Questions
from fedkern.kernels.families import FAMILIES
from fedkern.models.expfam import Gaussian, pack
from fedkern.models.glm import Rows, prior
from fedkern.privacy.masks import Pairs, public_key, total
from support import chosen

D = 3
NAMES = ("ada", "bo", "cy")
ORDERS = [(1, 2, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1)]
LONG = pytest.mark.timeout(3600)
SECRETS = [bytes([k + 1]) * 32 for k in range(3)]
PAIRS = [pytest.param(range(1), id="1"), pytest.param(range(1, 100), id="100", marks=[pytest.mark.nightly, LONG])]
TRIED = 10  # places, of which the server asks at one
EXACT: dict[str, Any] = {"optimiser": "exact", "covariance": "full"}
CASES: dict[str, dict[str, Any]] = {
    "logistic": EXACT | {"family": "bernoulli", "until": True},
    "counts": EXACT | {"family": "poisson", "until": True},
    "measured": EXACT | {"family": "gaussian", "learn_scale": True, "until": True},
    "dispersed": EXACT | {"family": "negative-binomial", "until": True},
    "diagonal": EXACT | {"family": "poisson", "covariance": "diagonal"},
    "steps": {"family": "poisson", "optimiser": "sgd", "learning_rate": 50.0, "covariance": "diagonal", "local_steps": 3},
    "full steps": {"family": "bernoulli", "optimiser": "adam", "learning_rate": 5.0, "covariance": "full", "local_steps": 3},
    "global": {"family": "poisson", "optimiser": "adagrad", "covariance": "diagonal", "variant": "global-vi"},
}


def settings(case: str) -> Settings:
    plain = {"schedule": "synchronous", "rounds": 50, "damping": 0.5, "bounded": True, "estimator": "analytic"}
    return chosen.pvi(**(plain | CASES[case]))


def federation(rng: np.random.Generator, family: str) -> list[Rows]:
    """Three clients of other sizes, of which one has a row far from all others."""
    parts = []
    for k in range(3):
        n = int(rng.integers(5, 80))
        X = np.column_stack([np.ones(n), rng.normal(k * 0.5, 1.0, (n, D - 1))])
        eta = X @ np.array([0.2, 0.7, -0.4])
        y = {"bernoulli": (rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0, "gaussian": eta + rng.normal(size=n)}.get(
            family, rng.poisson(np.exp(eta)) * 1.0
        )
        X[0, 1:] *= 10.0 ** rng.integers(0, 5)
        if FAMILIES[family].counted:
            y[-1] = np.rint(10.0 ** rng.integers(0, 9))
        parts.append(Rows(X, y))
    return parts


def box_of(own: Gaussian) -> BoxOfQ:
    return BoxOfQ.about(own.mean, reach(own.sd)).of(own.sd)


def place(rng: np.random.Generator, box: BoxOfQ) -> tuple[Array, Array]:
    """A mean and standard deviations in the box: in its middle, anywhere, or at an end of some unknowns."""
    high, widest = np.array(box.high), WIDER * np.array(box.sd)
    mean = [rng.normal(0, 0.5, D), rng.uniform(-1, 1, D) * high, rng.choice([-1.0, 0.0, 1.0], D) * high][rng.integers(3)]
    return mean, widest * 10.0 ** -rng.choice([0.0, 1.0, 4.0, 8.0], D)


def outside(rng: np.random.Generator, box: BoxOfQ) -> tuple[Array, Array]:
    """The same, with one number out of the box, by little or by much, or none."""
    mean, sd = place(rng, box)
    k, far = rng.integers(D), rng.choice([1 + 1e-6, 3.0, 1e9, 1e150, np.nan])
    if rng.random() < 0.5:
        mean[k] = box.high[k] * far
    else:
        sd[k] = WIDER * box.sd[k] * far
    return mean, sd


def question(s: Settings, round: int, at: tuple[Array, Array], rng: np.random.Generator) -> Message:
    mean, sd = at
    with np.errstate(all="ignore"):
        P = sd**-2.0 if s.covariance == "diagonal" else pack(np.diag(sd**-2.0))
        h = sd**-2.0 * mean
    if s.variant == "global-vi":
        return Parameters(round, mean, np.log(sd))
    if s.learn_scale:
        return ScaledQUpdate(round, 0, h, P, float(10.0 ** rng.integers(-6, 6)))
    return QUpdate(round, 0, h, P)


def searched(s: Settings, rng: np.random.Generator, parts: Sequence[Rows], own: Gaussian, box: BoxOfQ) -> tuple[Array, Array]:
    """Of several places that at which one client's part of the curvature is the largest part of the sum, or the least."""
    tried = [place(rng, box) for _ in range(TRIED)]
    shares = []
    for mean, sd in tried:
        q = Gaussian(sd**-2.0 * mean, sd**-2.0 if s.covariance == "diagonal" else np.diag(sd**-2.0))
        asked = AskSlope(0, q.h, pack(q.P))
        each = [np.abs(Local(part, s, k, box=box).slope(asked)[1]).max() for k, part in enumerate(parts)]
        shares.append(max(each) / max(sum(each), 1e-300))
    return tried[int(np.argmax(shares) if rng.random() < 0.5 else np.argmin(shares))]


def asked_of(s: Settings, rng: np.random.Generator, parts: Sequence[Rows], own: Gaussian, box: BoxOfQ) -> list[Message]:
    """What the server asks: places that it has looked for, answers that it applies in part, and one place too far."""
    said = list[Message]()
    for round in range(3):
        said.append(question(s, round, searched(s, rng, parts, own, box), rng))
        if s.variant == "global-vi":
            continue
        said.append(SiteApplied(round, float(rng.choice([0.0, 0.3, 1.0]))))
        if s.until:
            mean, sd = place(rng, box)
            q = round, sd**-2.0 * mean, pack(np.diag(sd**-2.0))
            said.append(AskSlope(*q))
    said.append(question(s, 3, outside(rng, box), rng))
    return said


def protocol(s: Settings) -> Protocol[Any, Any]:
    if s.variant == "global-vi":
        return global_vi.protocol(private=False)
    return pvi.protocol(private=False, until=s.until, learns=s.learn_scale)


def told(
    s: Settings, parts: Sequence[Rows], asked: Sequence[Message], books: Sequence[Questions] = (), more: int = 0
) -> list[Any]:
    """All that the server gets: the sum of each answer, or the words by which clients end the job."""
    dims = s.sizes(D) | {"t": D * (D + 1) // 2}
    own = prior(D, 1.0, s.covariance)
    keys = [public_key(secret) for secret in SECRETS]
    kinds = protocol(s)
    sums = Sums(kinds, pvi.SUMS, dims, dict.fromkeys(kinds.to_client, more or len(asked)))
    clients = []
    for k, part in enumerate(parts):
        local = Local(part, s, k, box=box_of(own), tells=True)
        hider = Hider(Pairs.agree(k, SECRETS[k], NAMES, keys, b"job"), NAMES[k], books[k] if books else None)
        if s.variant == "global-vi":
            clients.append(Client(global_vi.client(NAMES[k], local), hider))
        else:
            clients.append(Client(pvi.client(NAMES[k], local, own), hider))
    got = list[Any]()
    for one in asked:
        answers, ends = list[Any](), list[str]()
        for k, client in enumerate(clients):
            try:
                clients[k], sent = sums.masked.client_receive(client, one)
                answers += sent
            except Exception as fault:  # whatever may end a job
                ends.append(f"{type(fault).__name__}: {fault}")
        if ends:
            return [*got, len(ends), ends[0], len(set(ends))]
        if answers:
            form = next(each.form for each in pvi.SUMS if each.masked is type(answers[0]))
            words = total([np.frombuffer(answer.words, "<u8").reshape(form.limbs, -1) for answer in answers])
            got.append(masked.ENDED if words[:, -1].any() else words.tobytes())
    return got


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("case", CASES)
def test_federations_whose_sums_agree_tell_the_server_the_same(case: str, pairs: range) -> None:
    s, own = settings(case), prior(D, 1.0, settings(case).covariance)
    box = box_of(own)
    for pair in pairs:
        rng = np.random.default_rng([pair, len(case)])
        parts = federation(rng, s.family)
        asked = asked_of(s, rng, parts, own, box)
        with np.errstate(all="ignore"):
            first, second = told(s, parts, asked), told(s, [parts[k] for k in ORDERS[pair % len(ORDERS)]], asked)
        assert first == second
        *answers, n, why, different = first
        assert (n, different) == (3, 1), "all clients end it, in the same words"
        assert why.startswith("RemoteFault: server: "), why
        assert not any(repr(name) in why for name in NAMES)
        assert masked.ENDED not in answers
        assert len(answers) == {True: 6, False: 3}[s.until]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("case", ["logistic", "counts", "measured", "dispersed"])
def test_what_rows_add_does_not_hang_on_whose_they_are(case: str, pairs: range) -> None:
    """Gradient and curvature of rows that are dealt otherwise, and sites of a linear model: to rounding of the largest part."""
    s, own = settings(case), prior(D, 1.0, "full")
    box = box_of(own)
    for pair in pairs:
        rng = np.random.default_rng([pair, 50 + len(case)])
        parts = federation(rng, s.family)
        pooled = Rows(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]))
        dealt = rng.permutation(len(pooled))
        others = [pooled.take(np.sort(some)) for some in np.array_split(dealt, sorted(rng.integers(1, len(pooled), 2)))]
        mean, sd = searched(s, rng, parts, own, box)
        q = 0, sd**-2.0 * mean, pack(np.diag(sd**-2.0))
        one: Message = AskSlope(*q)
        if s.family == "gaussian":
            one = ScaledQUpdate(0, 0, *q[1:], 1.0)
        sums = []
        for some in (parts, others):
            each = [pvi.client(NAMES[k], Local(part, s, k, box=box, tells=True), own) for k, part in enumerate(some)]
            sums.append(np.sum([pvi.client_receive(client, one)[1][0].numbers() for client in each], axis=0))  # type: ignore[union-attr]
        assert np.isfinite(sums[0]).all()
        # A change of a site is a difference of numbers as large as those of the question.
        coarse = 1e-12 * np.abs(sums[0]).max() + 1e-14 * max(np.abs(number).max() for number in q[1:])
        np.testing.assert_allclose(sums[0], sums[1], rtol=1e-7, atol=coarse)


def test_twenty_jobs_in_a_row_end_alike(tmp_path: Path) -> None:
    """Also those of which too much was asked by then: what counts is what the server asks."""
    s, own = settings("steps"), prior(D, 1.0, "diagonal")
    rng = np.random.default_rng(3)
    parts = federation(rng, s.family)
    others = [parts[k] for k in ORDERS[0]]
    ended = list[str]()
    for number in range(20):
        asked, found = asked_of(s, rng, parts, own, box_of(own)), []
        for where, some in (("one", parts), ("two", others)):
            books = [Questions(tmp_path / where / name, bytes([number % 4])) for name in NAMES]
            with np.errstate(all="ignore"):
                found.append(told(s, some, asked, books, more=4))
        assert found[0] == found[1]
        ended.append(found[0][-2])
    assert sum(why.startswith(JobError.__name__) for why in ended) > 5
    assert sum("QUpdate asks" in why for why in ended) > 5
