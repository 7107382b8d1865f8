"""Sweeps that touch rows: from a draw of everything, data included, a sweep must lead to another draw of the same law."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from fedkern.errors import NumericalError
from fedkern.kernels import shrinkage

BACKENDS = ("cpp", "numba", "reference")
FALSE_ALARM = 1e-6
C, N, P = 12_000, 6, 2
THETA, TAU = np.array([0.4, -0.8]), np.array([0.5, 1.5])


def site(random, slab):
    """theta and tau as they are; lambda and d from their prior, with a slab by rejection."""
    draws = C if slab == np.inf else 8 * C
    scales = abs(random.standard_cauchy((draws, P)))
    d = scales * TAU * random.standard_normal((draws, P))
    kept = np.flatnonzero(random.random(draws) < np.exp(-0.5 * (d**2).sum(axis=1) / slab**2))[:C]
    return d[kept], scales[kept] ** 2


def of_prior(d, lambda_sq, before, slab):
    """p-values of lambda and d against their prior, or against the draws that it began with."""
    if slab < np.inf:
        half, pairs = len(d) // 2, zip((d, lambda_sq), before)
        return [stats.ks_2samp(a[:half, j], b[half:, j]).pvalue for a, b in pairs for j in range(P)]
    uniform = 2 / np.pi * np.arctan(np.sqrt(lambda_sq))
    normal = d / np.sqrt(lambda_sq) / TAU
    return [
        p for j in range(P) for p in (stats.kstest(uniform[:, j], "uniform").pvalue, stats.kstest(normal[:, j], "norm").pvalue)
    ]


def globals_of(c):
    return {"theta": np.broadcast_to(THETA, (c, P)), "tau_sq": np.broadcast_to(TAU**2, (c, P))}


@pytest.mark.parametrize("slab", [np.inf, 0.8])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("fault", ["none", "the other class", "another's response"])
def test_logistic_sweeps_keep_the_joint_law(intercept, slab, fault, seed):
    random = np.random.default_rng(seed)
    X = random.standard_normal((N, P))
    d, lambda_sq = site(random, slab)
    c = len(d)
    alpha = 1.5 * random.standard_normal(c) * intercept
    y = (random.random((c, N)) < expit(alpha[:, None] + (THETA + d) @ X.T)).astype(float)
    seen = {"none": y, "the other class": 1 - y, "another's response": np.roll(y, 1, axis=0)}[fault]
    new_d, new_lambda_sq, new_alpha, events = shrinkage.logistic_sweeps(
        X, seen, **globals_of(c), deviation=d, lambda_sq=lambda_sq, alpha=alpha, seed=seed, n_sweeps=2, scale_intercept=1.5,
        intercept=intercept, slab=slab, n_threads=2,
    )  # fmt: skip
    assert (events[:, 1:] == [0, 0, -1]).all()
    tests = of_prior(new_d, new_lambda_sq, (d, lambda_sq), slab)
    if intercept:
        tests.append(stats.kstest(new_alpha / 1.5, "norm").pvalue)
    else:
        assert (new_alpha == 0).all()
    predictor = new_alpha[:, None] + (THETA + new_d) @ X.T
    residual = y - expit(predictor)  # of the responses that were drawn, whatever the sweeps saw
    for weight in (np.ones(N), *X.T, np.clip(predictor, -3, 3)):
        sums = (residual * weight).sum(axis=1)
        tests.append(2 * stats.norm.sf(abs(sums.mean()) / sums.std() * np.sqrt(c)))
    assert (min(tests) > FALSE_ALARM) == (fault == "none")


PSI = np.array([[1.0, 0.6, -0.3], [0.6, 1.5, 0.2], [-0.3, 0.2, 0.8]])
GAPS = np.array([[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]], bool)


@pytest.mark.parametrize("slab", [np.inf, 0.8])
@pytest.mark.parametrize("fault", ["none", "another's response", "another psi"])
def test_imputed_sweeps_keep_the_joint_law(slab, fault, seed, monkeypatch):
    for name, value in (("P", 3), ("THETA", np.array([0.4, -0.8, 0.9])), ("TAU", np.array([0.5, 1.5, 0.3]))):
        monkeypatch.setitem(globals(), name, value)
    random, n = np.random.default_rng(seed), len(GAPS)
    X = random.multivariate_normal(np.zeros(P), PSI, n)
    d, lambda_sq = site(random, slab)
    c = len(d)
    completed, standard = np.tile(X, (c, 1, 1)), {}
    for i in np.flatnonzero(GAPS.any(axis=1)):
        u, o = GAPS[i], ~GAPS[i]
        K = PSI[np.ix_(u, o)] @ np.linalg.inv(PSI[np.ix_(o, o)])
        L = np.linalg.cholesky(PSI[np.ix_(u, u)] - K @ PSI[np.ix_(o, u)])
        completed[:, i, u] = K @ X[i, o] + random.standard_normal((c, u.sum())) @ L.T
        standard[i] = lambda rows, u=u, m=K @ X[i, o], L=L: np.linalg.solve(L, (rows[:, u] - m).T)
    sigma_sq, alpha = 1 / random.gamma(3.0, 1 / 2.0, c), 100 * random.standard_normal(c)  # as good as flat
    e = np.sqrt(sigma_sq)[:, None] * random.standard_normal((c, n))
    y = alpha[:, None] + np.einsum("cip,cp->ci", completed, THETA + d) + e
    seen = y if fault != "another's response" else alpha[:, None] + np.roll(y - alpha[:, None], 1, axis=0)
    new_d, new_lambda_sq, new_sigma_sq, new_alpha, filled, events = shrinkage.imputed_sweeps(
        np.where(GAPS, np.nan, X), seen, PSI if fault != "another psi" else 1.5 * PSI, **globals_of(c), deviation=d,
        lambda_sq=lambda_sq, sigma_sq=sigma_sq, alpha=alpha, completed=completed, seed=seed, n_sweeps=2, shape=3.0, rate=2.0,
        slab=slab, n_threads=2,
    )  # fmt: skip
    assert (events[:, 1:] == [0, 0, -1]).all()
    np.testing.assert_array_equal(filled[:, ~GAPS], completed[:, ~GAPS])
    tests = of_prior(new_d, new_lambda_sq, (d, lambda_sq), slab)
    tests.append(stats.kstest(stats.gamma(3.0, scale=1 / 2.0).cdf(1 / new_sigma_sq), "uniform").pvalue)
    residual = (y - new_alpha[:, None] - np.einsum("cip,cp->ci", filled, THETA + new_d)) / np.sqrt(new_sigma_sq)[:, None]
    tests += [stats.kstest(residual[:, i], "norm").pvalue for i in range(n)]
    tests += [stats.kstest(values, "norm").pvalue for i, f in standard.items() for values in f(filled[:, i])]
    assert (min(tests) > FALSE_ALARM) == (fault == "none")


def logistic_arguments(c=3, n=5):
    random = np.random.default_rng(0)
    X, y = random.standard_normal((n, P)), random.integers(0, 2, n).astype(float)
    state = {"deviation": random.standard_normal((c, P)), "lambda_sq": np.ones((c, P)), "alpha": np.zeros(c)}
    return {"X": X, "y": y, **globals_of(c), **state}


def imputed_arguments(c=3):
    X = np.array([[0.3, np.nan], [1.0, -0.5], [np.nan, np.nan], [0.1, 0.2]])
    more = {"psi": PSI[:2, :2], "sigma_sq": np.ones(c), "completed": np.tile(np.nan_to_num(X), (c, 1, 1))}
    return logistic_arguments(c) | {"X": X, "y": np.array([0.4, 2.0, -1.0, 0.7])} | more


SWEEPS = {"logistic_sweeps": logistic_arguments, "imputed_sweeps": imputed_arguments}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_of_one_call_are_those_of_several(name, backend):
    function, arguments = getattr(shrinkage, name), SWEEPS[name]()
    *once, _ = function(**arguments, seed=3, step=5, n_sweeps=3, backend=backend)
    state = ["deviation", "lambda_sq", *(["sigma_sq", "alpha", "completed"] if "psi" in arguments else ["alpha"])]
    for i in range(3):
        *new, _ = function(**arguments, seed=3, step=5 + i, backend=backend)
        arguments |= dict(zip(state, new))
    for a, b in zip(once, new):
        np.testing.assert_array_equal(a, b)
    alone = {k: v[2:] if k in (*state, "theta", "tau_sq") else v for k, v in SWEEPS[name]().items()}
    np.testing.assert_array_equal(function(**alone, seed=3, step=5, chain=2, n_sweeps=3, backend=backend)[0], once[0][2:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SWEEPS)
def test_where_cholesky_fails_qr_draws_and_is_counted(name, backend):
    """Two equal columns with nothing to hold them apart but the prior."""
    arguments = SWEEPS[name](c=20) | {"tau_sq": np.full((20, P), 1e32)}
    X = np.repeat(np.array([[0.3], [1.0], [-0.4], [0.1]]), P, axis=1)
    arguments |= {"X": X, "y": np.array([1.0, 0.0, 1.0, 0.0]), "deviation": np.ones((20, P)) * 1e3}
    if "psi" in arguments:
        arguments["completed"] = np.tile(X, (20, 1, 1))
    deviation, *_, events = getattr(shrinkage, name)(**arguments, seed=1, backend=backend)
    assert events[:, 1].sum() > 0
    assert np.isfinite(deviation).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize(("spoiled", "quantity"), [("deviation", r"lambda\^2"), ("theta", "the coefficients")])
def test_what_is_not_finite_is_named(name, spoiled, quantity, backend):
    arguments = SWEEPS[name]()
    arguments[spoiled] = np.array(arguments[spoiled])
    arguments[spoiled][1, 0] = np.nan
    with pytest.raises(NumericalError, match=rf"shrinkage\.{name}: chain 5, client 8, sweep 7: {quantity} is not finite"):
        getattr(shrinkage, name)(**arguments, seed=1, chain=4, client=8, step=7, n_sweeps=2, backend=backend)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("logistic_sweeps", {"y": np.full(5, 0.5)}, "y must be 0 or 1"),
        ("logistic_sweeps", {"scale_intercept": np.inf}, "scale_intercept must be > 0 and finite"),
        ("imputed_sweeps", {"psi": np.ones((2, 2))}, "psi must be symmetric and positive definite"),
        ("imputed_sweeps", {"psi": np.array([[1.0, 0.9], [0.0, 1.0]])}, "psi must be symmetric and positive definite"),
        ("imputed_sweeps", {"completed": np.zeros((3, 4, 2))}, "completed must be X where X is known"),
        ("imputed_sweeps", {"rate": 0.0}, "rate must be > 0"),
        ("imputed_sweeps", {"shape": -1.0}, "shape must be > 0"),
        ("imputed_sweeps", {"X": np.empty((0, 2)), "y": np.empty(0), "completed": np.empty((3, 0, 2))}, "X must have rows"),
    ],
)
def test_what_one_of_them_refuses(name, change, message):
    with pytest.raises(ValueError, match=rf"shrinkage\.{name}: {message}"):
        getattr(shrinkage, name)(**(SWEEPS[name]() | {"seed": 1} | change))


def test_without_rows_the_prior_is_drawn(seed):
    d, lambda_sq = site(np.random.default_rng(seed), np.inf)
    none = {"X": np.empty((0, P)), "y": np.empty(0), **globals_of(C), "alpha": np.zeros(C)}
    d, lambda_sq, alpha, _ = shrinkage.logistic_sweeps(**none, deviation=d, lambda_sq=lambda_sq, seed=seed, scale_intercept=2.0)
    tests = [*of_prior(d, lambda_sq, None, np.inf), stats.kstest(alpha / 2, "norm").pvalue]
    assert min(tests) > FALSE_ALARM
