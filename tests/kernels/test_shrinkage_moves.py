"""The moves of the sparse models: their terms against the likelihood itself, their draws by leaving the joint law as it is."""

import numpy as np
import pytest
from scipy import stats

from fedkern.errors import NumericalError
from fedkern.kernels import shrinkage

BACKENDS = ("cpp", "numba", "reference")
FALSE_ALARM = 1e-6
P = 2


def log_density(X, y, theta, t, w, sigma_sq, slab):
    """log-likelihood and slab of one client at (theta, t), w fixed."""
    d = t * w
    return -0.5 * ((y - X @ (theta + d)) ** 2).sum() / sigma_sq - 0.5 * (d**2).sum() / slab**2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slab", [np.inf, 0.4])
@pytest.mark.parametrize("rows", [3, 9])
def test_terms_are_the_differences_of_the_log_density(backend, slab, rows, seed):
    random, p = np.random.default_rng(seed), 5
    X, y, block = random.standard_normal((rows, p)), random.standard_normal(rows), np.array([7, 0, 9, 4, 5])
    Q, R = np.linalg.qr(X)
    theta, d, tau = random.standard_normal(p), random.standard_normal(p), random.exponential(size=p)
    state = {"theta": theta[None], "deviation": d[None], "tau_sq": tau[None] ** 2, "sigma_sq": np.array([0.7])}
    (g,), (H,) = shrinkage.move_terms(R, Q.T @ y, block, **state, slab=slab, backend=backend)

    def f(change):
        x = np.concatenate([theta, tau])
        x[block] += change
        return log_density(X, y, x[:p], x[p:], d / tau, 0.7, slab)

    for _ in range(5):
        change = random.standard_normal(len(block))
        np.testing.assert_allclose(f(change) - f(0), g @ change - 0.5 * change @ H @ change, rtol=1e-9)


def federation(random, c, m, slab, spike=0.3):
    """c draws of everything from the model: globals, local deviations and, in (R, q), data of m clients."""
    draws = 6 * c if slab < np.inf else c
    gamma = random.integers(0, 2, (draws, P)).astype(float)
    theta = random.standard_normal((draws, P)) * np.where(gamma == 1, 1.0, np.sqrt(spike))
    tau, scales = 0.5 * abs(random.standard_cauchy((draws, P))), abs(random.standard_cauchy((m, draws, P)))
    d = scales * tau * random.standard_normal((m, draws, P))
    weight = np.exp(-0.5 * (d**2).sum(axis=(0, 2)) / slab**2)
    kept = np.flatnonzero(random.random(draws) < weight)[:c]
    state = {"theta": theta, "tau_sq": tau**2, "gamma": gamma, "eta": np.ones((draws, P))}
    R = [np.triu(random.standard_normal((P, P))) for _ in range(m)]
    d = d[:, kept]
    q = [(theta[kept] + d[k]) @ R[k].T + np.sqrt(0.5) * random.standard_normal((len(kept), P)) for k in range(m)]
    return {name: a[kept] for name, a in state.items()}, d, R, q


def terms(state, d, R, q, block, slab):
    here = {"theta": state["theta"], "tau_sq": state["tau_sq"], "sigma_sq": np.full(len(state["theta"]), 0.5)}
    each = [shrinkage.move_terms(*one, block, deviation=deviation, **here, slab=slab) for *one, deviation in zip(R, q, d)]
    return [sum(parts) for parts in zip(*each)]


BLOCKS = {"translate": [0, 1], "interweave": [0, 1, 2, 3], "one of each": [1, 2], "t alone": [3, 2]}
FAULTS = {"none": (1, 1), "downhill": (-1, 1), "more spread": (1, 0.2), "no data": (0, 0)}  # factors of gradient and precision


@pytest.mark.parametrize("slab", [np.inf, 0.8])
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_joint_law_stays(kind, slab, fault, seed):
    random, block = np.random.default_rng(seed), np.array(BLOCKS[kind])
    state, d, R, q = federation(random, 20_000, 3, slab)
    c = len(state["theta"])
    gradient, precision = terms(state, d, R, q, block, slab)
    slope, curvature = FAULTS[fault]
    gradient, precision = slope * gradient, curvature * precision
    theta, t = shrinkage.move(gradient, precision, block, **state, seed=seed, scale_tau=0.5, spike_variance=0.3)
    moved = t / np.sqrt(state["tau_sq"]) * d
    residual = [(q[k] - (theta + moved[k]) @ R[k].T) / np.sqrt(0.5) for k in range(3)]
    tests = [stats.kstest(r[:, j], "norm").pvalue for r in residual for j in range(P)]
    v = np.where(state["gamma"] == 1, 1.0, 0.3)
    tests += [stats.kstest(theta[:, j] / np.sqrt(v[:, j]), "norm").pvalue for j in range(P)]
    if slab == np.inf:
        tests += [stats.kstest(2 / np.pi * np.arctan(abs(t[:, j]) / 0.5), "uniform").pvalue for j in range(P)]
    else:  # before and after are one law
        tests += [stats.ks_2samp(abs(t[: c // 2, j]), np.sqrt(state["tau_sq"][c // 2 :, j])).pvalue for j in range(P)]
    assert (min(tests) > FALSE_ALARM) == (fault == "none")


def test_outside_the_block_nothing_moves(seed):
    state, d, R, q = federation(np.random.default_rng(seed), 5, 2, np.inf)
    block = np.array([1, 2])
    theta, t = shrinkage.move(*terms(state, d, R, q, block, np.inf), block, **state, seed=seed)
    np.testing.assert_array_equal(theta[:, 0], state["theta"][:, 0])
    np.testing.assert_array_equal(t[:, 1], np.sqrt(state["tau_sq"][:, 1]))
    assert (theta[:, 1] != state["theta"][:, 1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spoil", ["nan", "negative"])
def test_terms_without_a_draw_are_named(backend, spoil, seed):
    state, d, R, q = federation(np.random.default_rng(seed), 4, 2, np.inf)
    block = np.arange(4)
    gradient, precision = terms(state, d, R, q, block, np.inf)
    if spoil == "nan":
        gradient[2, 0] = np.nan
    else:
        precision[2] = [[1, 5, 0, 0], [5, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        precision[2] *= 1e6
    with pytest.raises(NumericalError, match=r"shrinkage\.move: chain 12, move 3: the draw is not finite"):
        shrinkage.move(gradient, precision, block, **state, seed=seed, chain=10, step=3, backend=backend)


@pytest.mark.parametrize("block", [[0, 0], [4], [-1]])
def test_a_block_that_is_none_is_refused(block, seed):
    state, d, R, q = federation(np.random.default_rng(seed), 3, 1, np.inf)
    with pytest.raises(ValueError, match=r"move_terms: block must hold different numbers in \[0, 2p\) with p = 2"):
        terms(state, d, R, q, np.array(block), np.inf)
    one = np.ones((3, len(block)))
    with pytest.raises(ValueError, match=r"shrinkage.move: block must hold different numbers"):
        shrinkage.move(one, one[:, :, None] * one[:, None], np.array(block), **state, seed=1)
