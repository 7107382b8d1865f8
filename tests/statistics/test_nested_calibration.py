"""Truths drawn from the prior, maps from these, nested Laplace posteriors: where the truth stands in them is uniform.

    python tests/statistics/test_nested_calibration.py KIND MAPS [FIRST]   (with the checkout, tests and benchmarks in PYTHONPATH)

KIND is car, bym2 or gp. Poisson counts of 36 areas of CAR and BYM2, Gaussian responses of a process at 36 points, four clients.
"""

import json
import sys

import numpy as np
import pytest
from scipy.stats import chisquare

from fedkern.algorithms.nested import machine as nested
from support import nested_cases as cases

LEVEL = 1e-3
BINS = 10
FAMILY = {"car": "poisson", "bym2": "poisson", "gp": "gaussian"}
INTERCEPT = 1.0  # sd of the intercept's prior: counts of exp(15) are nobody's


def run(kind, maps, first=0, widen=1.0):
    """Ranks in [0, 1] of (intercept, phi, sigma_theta), whether a run says that it has converged, areas inside of their 90 %
    intervals, and how many there are; `widen`: a factor of all posterior spreads, for a control."""
    sizes = (9, 9, 9, 9)
    made = cases.tied(kind, 6, sizes)
    ranks, inside, areas, converged = [], 0, 0, 0
    for seed in range(first, first + maps):
        sd = 0.5 if kind == "gp" else None
        case, truth = cases.simulated(kind, 6, sizes, FAMILY[kind], seed, sd=sd, made=made, level_sd=INTERCEPT)
        server, clients = cases.fitted(case)
        found = nested.read_result(server)
        converged += found.converged
        w = found.posterior.weights
        row = []
        for name, x in cases.named(case, found.posterior.draws).items():
            mean = w @ x
            row.append(float(w @ (mean + widen * (x - mean) < truth[name])))
        ranks.append(row)
        at = 0
        for k, client in clients.items():
            xi = client.told  # all of them: quantiles of n draws cover .9 (n - 1) / (n + 1), of 200 one part in a hundred too few
            normals = np.random.default_rng((seed, k)).standard_normal((len(xi), client.model.n_areas))
            theta = client.model.theta_given(xi, np.zeros((len(xi), 0)), normals)
            low, high = np.quantile(theta, (0.05, 0.95), axis=0)
            own = truth["theta"][at : at + client.model.n_areas]
            inside, areas, at = inside + int(((low < own) & (own < high)).sum()), areas + len(own), at + len(own)
    return np.array(ranks), converged, inside, areas


def p_values(ranks):
    """(3,) of uniform ranks."""
    return [float(chisquare(np.histogram(column, BINS, (0, 1))[0]).pvalue) for column in ranks.T]


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", FAMILY)
def test_truths_stand_anywhere_in_their_posteriors(kind):
    ranks, converged, inside, areas = run(kind, 200)
    assert min(p_values(ranks)) > LEVEL
    assert 0.88 <= inside / areas <= 0.92
    assert converged >= 190


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_negative_control_posteriors_that_are_too_narrow_are_found():
    ranks, *_ = run("gp", 200, widen=0.5)
    assert min(p_values(ranks)) < LEVEL


if __name__ == "__main__":
    kind, maps = sys.argv[1], int(sys.argv[2])
    several = run(kind, maps, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(json.dumps({"kind": kind, "maps": maps, "p": p_values(several[0]), "converged": several[1],
        "coverage": several[2] / several[3], "mean_rank": several[0].mean(axis=0).tolist()}))  # fmt: skip
