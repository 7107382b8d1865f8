"""With secure sums nothing that one client makes hangs on its rows: a server that asks as it likes reads sums, and no more.

Two federations have the same clients in another order, each with its own random numbers: the sums of all answers agree, and which
client has which rows does not. Whatever the server asks, inside the bounds of a job and outside, it has to get the same bytes and
the same end. Clients differ as far as they can: in rows, in their number, in size, in the prior's networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core import masked
from fedkern.algorithms.core.box import LOG_RESIDUAL, LOG_SCALE, LOGIT, REACH, Box
from fedkern.algorithms.core.messages import Message
from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import sites
from fedkern.algorithms.gibbs.settings import SUMS as OF_GIBBS
from fedkern.algorithms.gibbs.settings import Layout as Coefficients
from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.families import NestedFamily
from fedkern.models import sparse
from fedkern.models.likelihood import Likelihood
from fedkern.models.overdispersed import Overdispersed, bounded
from fedkern.models.spatial import factors
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior
from fedkern.models.spatial.site import Layout, Rows, Site, cut
from fedkern.models.spatial.within_site import WithinSite
from fedkern.models.variational import Block
from fedkern.privacy.masks import WIDE, from_words
from support import chosen, sigma_cases
from support.maps import grid, rows_of
from support.transcripts import Line, transcript

Array = np.ndarray[Any, np.dtype[np.float64]]
Asked = list[Message]
# Of federations, for each kind of question: a few by day.
MANY = pytest.param(range(5, 105), marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])
PAIRS = pytest.mark.parametrize("pairs", [range(5), MANY])
ORDERS = [(1, 2, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1)]
ROOM = 2.0**-30  # of what a sum of three has room for: rows of a real client are more, and of other priors


@pytest.fixture(autouse=True)
def never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number of a client comes near what its word holds: none is clipped, whatever is asked."""
    clip = masked.saturated

    def watched(numbers: Array, limit: float) -> Array:
        assert (np.abs(numbers) <= ROOM * limit).all(), f"{np.abs(numbers).max()} of {limit}"
        return clip(numbers, limit)

    monkeypatch.setattr(masked, "saturated", watched)


def both(told: Callable[[Sequence[int]], list[Line]], pair: int) -> list[Line]:
    """The transcript of three clients, which is that of the same in another order."""
    first, second = told((0, 1, 2)), told(ORDERS[pair % len(ORDERS)])
    assert first == second
    assert all(line[1] == 0 for line in first if line[0] == "failed")
    return first


def ends_alike(lines: list[Line], text: str) -> None:
    """All clients have ended the job, in the same words."""
    _, *faults = lines[-1]
    assert len({fault[1:] for fault in faults}) == 1
    assert len(faults) == 3
    assert text in faults[0][2]


# Spatial models --------------------


def box_of(layout: Layout) -> Box:
    reach = np.full(layout.size, REACH)
    each = {"phi": LOGIT, "rho": LOGIT, "intercept": 50.0, "beta": 50.0, "log_scale": LOG_SCALE, "log_sd": LOG_RESIDUAL}
    for name, most in each.items():
        reach[layout.parts[name]] = most
    return Box(tuple(-reach), tuple(reach))


def place(rng: np.random.Generator, box: Box) -> Array:
    """A place of the box: as of an honest job, anywhere, a corner, or an end of some unknowns alone."""
    reach = np.array(box.high)
    corner = rng.choice([-1.0, 1.0], reach.size) * reach
    kind = rng.integers(4)
    if kind < 2:
        return np.asarray([rng.normal(0, 0.5, reach.size), rng.uniform(-1, 1, reach.size) * reach][kind])
    return corner if kind == 2 else np.where(rng.random(reach.size) < 0.3, corner, 0.0)


def outside(rng: np.random.Generator, box: Box) -> Array:
    """A place at which one unknown is out of the box, by much or by little."""
    xi, k = place(rng, box), rng.integers(len(box.high))
    xi[k] = rng.choice([1 + 1e-9, 2.0, 1e6, 1e300, np.inf, np.nan]) * box.high[k] * rng.choice([-1, 1])
    return xi


def wild(rng: np.random.Generator, rows: Rows, family: str) -> Rows:
    """The same rows, of which one is far from all others, and one covariate too."""
    y, X = rows.y.copy(), rows.X.copy()
    if family == "gaussian":
        y[0] *= 10.0 ** rng.choice([0, 3, 12, 150])
    elif family != "binomial":
        y[0] = np.rint(y[0] * 10.0 ** rng.integers(0, 12) + 1)
    X[1] *= 10.0 ** rng.integers(0, 5)
    return cut(replace(rows, y=y, X=X), measured=family == "gaussian")


def trained(rng: np.random.Generator) -> list[Site]:
    variant, family = rng.choice(["amended", "printed", "multiplicative"]), rng.choice(["poisson", "binomial", "gaussian"])
    scale = None if family == "gaussian" and rng.random() < 0.5 else 1.0
    mixing, made = rng.random() < 0.3, list[Site]()
    for _ in range(3):
        one = sigma_cases.site(rng, variant, family, "constant", mixing=mixing, scale=scale, integrated=family == "gaussian")
        made.append(replace(one, likelihood=bounded(one.likelihood), rows=wild(rng, one.rows, family)))
    return made


PHI = Condition("phi", 0.0, 0.99, "log-rest", Hyperprior("logit-normal"))
PRIORS = factors.tie(AreaPrior(*grid(6, 6), PHI), (15, 12, 9), ("a", "b", "c"), n_latents=4, nodes=9).clients


def built(rng: np.random.Generator) -> list[WithinSite]:
    family = rng.choice(["poisson", "binomial", "gaussian", "overdispersed"])
    known = None if family == "gaussian" and rng.random() < 0.5 else 1.0
    likelihood = bounded(Overdispersed("poisson") if family == "overdispersed" else Likelihood(str(family), known))
    made = list[WithinSite]()
    for prior in PRIORS:
        n = int(rng.integers(4, 30))
        y = rng.normal(size=n) if family == "gaussian" else rng.integers(0, 5, n).astype(float)
        trials = np.full(n, 5.0) if family == "binomial" else None
        rows = Rows(y, rng.integers(0, prior.size - 2, n), rng.normal(size=(n, 2)), rng.normal(0, 0.3, n), trials)
        layout = Layout(True, prior.n_latents, n_beta=2, dispersed=likelihood.dispersed)
        made.append(WithinSite(prior, PHI, layout, likelihood, wild(rng, rows, str(family)), integrated=True))
    return made


KINDS: dict[str, Callable[[np.random.Generator], Sequence[Site | WithinSite]]] = {"trained": trained, "built": built}


@PAIRS
@pytest.mark.parametrize("kind", KINDS)
def test_fits_of_the_same_sums_give_the_server_the_same(kind: str, pairs: range) -> None:
    for pair in pairs:
        rng = np.random.default_rng([pair, 1])
        own = KINDS[kind](rng)
        layout = own[0].layout
        box = box_of(layout)
        settings = chosen.sfvi(rounds=100, bound=True, box=box, learning_rate=float(rng.choice([0.01, 1.0, 50.0])))
        asked: Asked = [sfvi.Global(round, place(rng, box)[None]) for round in range(6)]
        asked.append(sfvi.Global(6, outside(rng, box)[None]))

        def told(order: Sequence[int], own: Any = own, settings: Any = settings, asked: Asked = asked) -> list[Line]:
            clients = []
            for slot, k in enumerate(order):
                nested = isinstance(own[k], Site) and own[k].sampled
                outer = sfvi.Family(Block(own[k].decoder.n_local, True), own[k].n_global) if nested else None
                family = NestedFamily(outer, own[k]) if nested else None
                clients.append(sfvi.client(f"client-{slot}", 10 + k, settings, own[k], 3, family=family, seed=70 + k))
            return transcript(sfvi.protocol(settings), sfvi.SUMS, settings.sizes(own[0].n_global), clients, asked)

        lines = both(told, pair)
        assert len(lines) == 2 * 6 + 1
        ends_alike(lines, "for unknowns out of this job's bounds")


@PAIRS
@pytest.mark.parametrize("kind", KINDS)
def test_chains_of_the_same_sums_give_the_server_the_same(kind: str, pairs: range) -> None:
    for pair in pairs:
        rng = np.random.default_rng([pair, 2])
        own = KINDS[kind](rng)
        if kind == "built" and own[0].likelihood.record.link != "identity":
            own = [replace(site, integrated=False) for site in own]
        box = box_of(own[0].layout)
        settings = chosen.hmc(draws=5, warmup=0, chains=2, leapfrog=3, box=box)

        def places(rng: np.random.Generator = rng, box: Box = box) -> Array:
            return np.stack([place(rng, box), place(rng, box)])

        asked: Asked = [hmc.Place(places())]
        for round in range(3):
            steps = rng.choice([1e-6, 0.1, 2.0, 8.0], 2)
            asked.append(hmc.Launch(round, rng.integers(0, 2, 2).astype(float), steps, places()))
            asked += [hmc.Move(places()) for _ in range(2)]
        wrong = np.stack([outside(rng, box), place(rng, box)])
        step = np.array([0.1, rng.choice([9.0, -1.0, 0.0, np.nan, np.inf])])
        last = rng.random() < 0.5
        asked.append(hmc.Launch(3, np.ones(2), np.full(2, 0.1) if last else step, wrong if last else places()))

        def told(order: Sequence[int], own: Any = own, settings: Any = settings, asked: Asked = asked) -> list[Line]:
            made = [hmc.client(f"client-{slot}", 10 + k, settings, own[k], 0.1, 70 + k) for slot, k in enumerate(order)]
            return transcript(hmc.protocol(settings), hmc.SUMS, settings.sizes(own[0].n_global), made, asked)

        lines = both(told, pair)
        assert len(lines) == 2 * len(asked) - 1
        ends_alike(lines, "it asks for unknowns, or steps, out of this job's bounds")


# Twelve pairs of neighbours, apart from all others: each client has four, and no two clients touch.
PIECES = factors.tie(AreaPrior(*rows_of(24, np.arange(24).reshape(12, 2)), PHI), (8, 8, 8), ("a", "b", "c"), nodes=9).clients


@PAIRS
@pytest.mark.parametrize("family", ["poisson", "gaussian"])
def test_whose_areas_they_are_is_in_no_sum(family: str, pairs: range) -> None:
    """Where areas are independent a sum over clients is one over areas: but for rounding it is the same however they are dealt.

    Of counts it is so as far as the search for q(theta | xi) goes, and not in all corners.
    """
    exact = family == "gaussian"
    likelihood = bounded(Likelihood(family, None if exact else 1.0))
    layout = Layout(True, PIECES[0].n_latents, n_beta=1, dispersed=likelihood.dispersed)
    for pair in pairs:
        rng = np.random.default_rng([pair, 4])
        y = rng.normal(size=36) if exact else rng.integers(0, 5, 36).astype(float)
        area = np.repeat(np.arange(24), rng.permutation(np.repeat([1, 2], 12)))
        rows = Rows(y, area, rng.normal(size=(36, 1)), np.zeros(36))
        rows = wild(rng, rows, family) if exact else rows
        box = box_of(layout)
        settings = chosen.sfvi(rounds=100, bound=True, box=box)
        places = [place(rng, box) if exact else rng.normal(0, 0.3, layout.size) for _ in range(6)]
        asked: Asked = [sfvi.Global(round, xi[None]) for round, xi in enumerate(places)]

        def told(pieces: Array, rows: Rows = rows, settings: Any = settings, asked: Asked = asked) -> list[Line]:
            """The transcript where the k-th piece of the map has the rows of another."""
            clients = []
            for k, prior in enumerate(PIECES):
                order = [2 * piece + side for piece in pieces[4 * k : 4 * k + 4] for side in (0, 1)]
                at = np.concatenate([np.flatnonzero(rows.area == one) for one in order])
                where = np.concatenate([np.full((rows.area == one).sum(), place) for place, one in enumerate(order)])
                own = Rows(rows.y[at], where, rows.X[at], rows.offset[at])
                site = WithinSite(prior, PHI, layout, likelihood, own, integrated=True)
                clients.append(sfvi.client(f"client-{k}", k, settings, site, 3, seed=1))
            return transcript(sfvi.protocol(settings), sfvi.SUMS, settings.sizes(layout.size), clients, asked)

        first, second = told(np.arange(12)), told(rng.permutation(12))
        for one, other in zip(first, second, strict=True):
            assert one[:2] == other[:2]
            if one[0] != "failed":
                numbers, others = (
                    from_words(np.frombuffer(line[2], "<u8").reshape(WIDE.limbs, -1), WIDE) for line in (one, other)
                )
                tolerance = 1e-7 if exact else 1e-4
                np.testing.assert_allclose(numbers, others, rtol=tolerance, atol=tolerance * np.abs(numbers).max())


# Sparse models --------------------


def sparse_sites(rng: np.random.Generator, kind: str, p: int) -> list[sites.Site]:
    made = list[sites.Site]()
    for _ in range(3):
        n = int(rng.integers(5, 60))
        X = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-2, 3, p)
        X[0, 0] *= 10.0 ** rng.integers(0, 6)
        y = X @ rng.normal(size=p) + rng.normal(size=n)
        X -= X.mean(axis=0)
        if kind == "regression":
            made.append(sites.Regression(sites.Factor.of(X, y)))
        elif kind == "student":
            made.append(sites.Student(X, y - y.mean(), 4.0))
        elif kind == "logistic":
            made.append(sites.Logistic(X, (y > 0).astype(float)))
        elif kind == "mrf":
            made.append(sites.MarkovRandomField(sites.Factor.of(X)))
        else:
            made.append(sites.StructuralEquations(np.ascontiguousarray(X.T)))
    return made


@PAIRS
@pytest.mark.parametrize("kind", ["regression", "student", "logistic", "mrf", "sem"])
def test_samplers_of_the_same_sums_give_the_server_the_same(kind: str, pairs: range) -> None:
    for pair in pairs:
        rng = np.random.default_rng([pair, 3])
        p = int(rng.integers(2, 5))
        own = sparse_sites(rng, kind, p)
        layout = Coefficients(
            np.arange(p)[None] if kind in ("regression", "student", "logistic") else sparse.graph(p, one_group=kind == "sem")
        )
        prior = chosen.prior(slab=float(rng.choice([np.inf, 1.5])))
        settings = chosen.gibbs(layout=layout, prior=prior, chains=2, rounds=40, burn_in=1, aggregate="sums", masked=True)
        asked, shape = Asked(), (2, layout.size)
        for round in range(12):
            theta = rng.normal(size=shape) * 10.0 ** rng.choice([-3, 0, 3, 12], shape)
            tau_sq = 10.0 ** rng.choice([-40, -20, -2, 0, 5, 40], shape)
            asked.append(gibbs.Globals(round, 0, np.clip(theta, -1e12, 1e12), tau_sq))
        theta, tau_sq, round = np.zeros(shape), np.ones(shape), 12
        fault = rng.integers(3)
        if fault == 0:
            theta[0, 0] = rng.choice([2e12, 1e300, np.inf, np.nan])
        elif fault == 1:
            tau_sq[1, -1] = rng.choice([0.0, -1.0, 1e-41, 1e41, np.nan])
        else:
            round = int(rng.choice([11, 13, 40]))
        asked.append(gibbs.Globals(round, 0, theta, tau_sq))

        def told(order: Sequence[int], own: Any = own, settings: Any = settings, asked: Asked = asked) -> list[Line]:
            made = [gibbs.client(f"client-{slot}", 10 + k, settings, own[k], None, 70 + k) for slot, k in enumerate(order)]
            return transcript(gibbs.protocol(settings), OF_GIBBS, settings.dims(), made, asked)

        lines = both(told, pair)
        assert len(lines) == 2 * 12 + 1
        ends_alike(lines, "coefficients or scales out of this job's bounds")
