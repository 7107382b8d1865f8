"""Whatever a person sets up: a first line that says "settled" or "converged" has the numbers of an analysis of all rows together
(a `pvi` job those of the nearest normal distribution).

Every mean within 0.1 sd and 4 Monte-Carlo errors, every sd within 10 % of the reference (`support.random_jobs`). Jobs that end
with a fault, or whose first line is another, are counted: where most were, nothing would have been shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from fedkern.arrays import Vector
from fedkern.errors import FedkernError
from fedkern.models.expfam import Gaussian
from fedkern.results.gaussian import Posterior
from support import random_jobs as jobs

pytestmark = pytest.mark.filterwarnings("ignore")
LONG = [pytest.mark.nightly, pytest.mark.timeout(900)]
SHARE = 0.5  # of a batch that must say that its numbers are right


def of(draw: Callable[[int], jobs.Drawn], seeds: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """How jobs ended, and what is wrong with those that say that they are right."""
    ended, wrong = Counter[str](), list[str]()
    for seed in seeds:
        job = draw(seed)
        try:
            fit = jobs.fitted(job)
        except FedkernError as error:
            ended["refused"] += 1
            wrong += [f"seed {seed}, {job.kind}: {error}"] if "cannot be computed" in str(error) else []
            continue
        if not fit.judged:
            ended[str(fit.converged)] += 1
            continue
        reference = job.reference()
        ended["judged" if reference.known else "without a reference"] += 1
        faults = jobs.faults(fit, reference, job.draws) if reference.known else []
        wrong += [f"seed {seed}, {job.kind}: {fault}; {fit.verdict}" for fault in faults]
    print(dict(ended))
    return ended, wrong


SMALL = partial(jobs.pvi, draws=4_000, most=80)
PUSHED = [(f"pvi {i}", SMALL, range(i, i + 9)) for i in range(0, 54, 9)]
# Vertical jobs of few rounds, since they must be quick here.
PUSHED += [("vertical", partial(jobs.vertical, draws=4_000), (3, 5, 7)), ("sparse", partial(jobs.sparse, sweeps=1_000), range(3))]
NIGHTLY = [(f"pvi {i}", jobs.pvi, range(i, i + 50)) for i in range(1000, 1400, 50)]
NIGHTLY += [(f"vertical {i}", jobs.vertical, range(i, i + 20)) for i in range(1000, 1060, 20)]
NIGHTLY += [(f"sparse {i}", jobs.sparse, range(i, i + 20)) for i in range(1000, 1040, 20)]


@pytest.mark.parametrize(
    ("draw", "seeds"),
    [
        *(pytest.param(draw, seeds, id=name) for name, draw, seeds in PUSHED),
        *(pytest.param(draw, seeds, id=name, marks=LONG) for name, draw, seeds in NIGHTLY),
    ],
)
def test_what_says_that_it_is_right_is_right(draw: Callable[[int], jobs.Drawn], seeds: Sequence[int]) -> None:
    ended, wrong = of(draw, seeds)
    assert not wrong, "\n".join(wrong)
    if len(seeds) >= 20:
        assert ended["judged"] >= SHARE * len(seeds), dict(ended)


MAPS = [("short", {"rounds": 120}, range(1), [], 0)]
MAPS += [("sfvi", {}, range(2000, 2004), LONG, 0), ("hmc", {"inference": "hmc", "rounds": 1200}, range(1, 2), LONG, 1)]


@pytest.mark.parametrize(
    ("options", "seeds", "least"),
    [pytest.param(more, seeds, least, id=name, marks=marks) for name, more, seeds, marks, least in MAPS],
)
def test_what_is_said_of_a_map_is_right(tmp_path: Path, options: dict[str, Any], seeds: Sequence[int], least: int) -> None:
    """Whose prior is exact inside each client: beside the posterior of the whole map under the exact prior. Optimised fits seldom
    say that they are right; chains do."""
    ended, wrong = of(lambda seed: jobs.sigma(seed, tmp_path / str(seed), **options), seeds)
    assert not wrong, "\n".join(wrong)
    assert ended["judged"] >= least, dict(ended)


def narrower(names: tuple[str, ...], q: Gaussian, affine: Vector | None) -> Posterior:
    """After all checks of q."""
    return Posterior(names, Gaussian(q.h * 1.3, q.P * 1.3), affine)


FAULTS = {
    "a precision": ("fedkern.methods.pvi.publish.Posterior", narrower),
    "the intercept's prior": ("fedkern.methods.pvi.response.Given.spread", property(lambda given: 0.02)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A q that is published with 1.3 times its precision; a prior that nobody asked for. No line of the result can see them."""
    monkeypatch.setattr(*FAULTS[name])
    _, wrong = of(SMALL, range(27, 36))
    assert wrong


def test_the_references_are_right_themselves() -> None:
    """Of a logistic model with one coefficient, and of a linear one, by quadrature."""
    rng = np.random.default_rng(0)
    X, y = np.ones((40, 1)), (rng.random(40) < 0.15) * 1.0

    def rows(eta: Vector) -> tuple[Vector, Vector, Vector]:
        return jobs.log_likelihood("bernoulli", y, eta, 1.0)

    theta, weights = jobs.importance(X, np.ones(40), rows, np.array([-1.0]), np.array([0.04]), 40_000, rng)
    grid = np.linspace(-8, 3, 20_001)
    log_p = y.sum() * grid - 40 * np.logaddexp(0, grid) - 0.02 * (grid + 1) ** 2
    p = np.exp(log_p - log_p.max())
    mean = p @ grid / p.sum()
    sd = np.sqrt(p @ (grid - mean) ** 2 / p.sum())
    found = weights @ theta[:, 0]
    assert found == pytest.approx(mean, abs=0.02 * sd)
    assert np.sqrt(weights @ (theta[:, 0] - found) ** 2) == pytest.approx(sd, rel=0.02)

    def loss(at: Vector) -> float:
        """KL(q || posterior), but for constants."""
        q = np.exp(-0.5 * ((grid - at[0]) / np.exp(at[1])) ** 2)
        return float(-at[1] - q @ log_p / q.sum())

    (nearest,), ((variance,),) = jobs.nearest(X, np.ones(40), rows, np.array([-1.0]), np.array([0.04]))
    best = minimize(loss, [mean, np.log(sd)], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x
    assert (nearest, 0.5 * np.log(variance)) == pytest.approx(tuple(best), abs=1e-4)
