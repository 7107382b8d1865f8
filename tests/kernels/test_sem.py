"""The structural equation model: likelihood, moves, bookkeeping of the inverse, and an exact posterior.

(sem.sweeps and sem.log_density are also in the conformance test of all kernels.)
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.errors import NumericalError
from fedkern.kernels import sem
from fedkern.kernels._numba import sem as compiled
from fedkern.kernels._reference import sem as reference

BACKENDS, FAST = ("cpp", "numba", "reference"), ("cpp", "numba")
CLIPPED, ACCEPTED, PROPOSED, SWAPS, REFACTORISED, FAULT = range(6)


def off(p):
    return ~np.eye(p, dtype=bool)


def model(c=2, p=3, n=20, seed=0, spread=0.3, lambda_sq=1.0):
    """Arguments of sem.sweeps; every chain has rows of its own."""
    rng = np.random.default_rng(seed)
    theta = 0.3 * rng.standard_normal((c, p, p)) * off(p)
    deviation = spread * rng.standard_normal((c, p, p)) * off(p)
    e = rng.laplace(size=(c, p, n))
    return {
        "Y": np.linalg.solve(np.eye(p) - theta - deviation, e),
        "theta": theta,
        "tau_sq": np.full((c, p, p), 0.1),
        "deviation": deviation,
        "lambda_sq": np.full((c, p, p), lambda_sq),
        "b": np.exp(0.2 * rng.standard_normal((c, p))),
        "log_step": np.full((c, p, p), 0.5),
        "temperature": np.ones(c),
    }


def moved_on(arguments, results):
    return arguments | dict(zip(("deviation", "lambda_sq", "b", "log_step"), results))


def radius(theta):
    return np.abs(np.linalg.eigvals(theta)).max(axis=-1)


# --- log-density


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("p", "n"), [(1, 1), (2, 9), (5, 227), (33, 40)])
def test_log_density(backend, p, n):
    a = model(3, p, n, spread=1.0)
    coefficients = a["theta"] + a["deviation"]
    B = np.eye(p) - coefficients
    fit = np.log(2 * a["b"]) + np.abs(B @ a["Y"]).mean(axis=2) / a["b"]
    want = n * (np.linalg.slogdet(B)[1] - fit.sum(axis=1))
    np.testing.assert_allclose(sem.log_density(a["Y"], coefficients, a["b"], backend=backend), want, rtol=1e-12)
    shared = sem.log_density(a["Y"][1], coefficients, a["b"], backend=backend)
    np.testing.assert_allclose(shared[1], want[1], rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_log_density_without_determinant(backend):
    coefficients = np.array([[[0.0, 2.0], [0.5, 0.0]]])
    found = sem.log_density(np.ones((2, 5)), coefficients, np.ones((1, 2)), backend=backend)
    assert found == -np.inf


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_determinant_at_the_start_is_a_fault(backend):
    a = model(3, 2)
    a["theta"][1] = [[0, 2], [0.5, 0]]
    a["deviation"][1] = 0
    with pytest.raises(NumericalError, match=r"chain 8, client 4, sweep 11: det\(I - Theta\) is 0"):
        sem.sweeps(**a, seed=1, chain=7, client=4, step=11, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "what"), [("Y", "a coefficient"), ("tau_sq", "lambda"), ("deviation", "det")])
def test_what_is_not_finite_is_named(backend, name, what):
    a = model()
    a[name][1, 0, 1] = np.nan
    with pytest.raises(NumericalError, match=f"chain 1, client 0, sweep 0: {what}"):
        sem.sweeps(**a, seed=1, n_sweeps=3, backend=backend)


# --- what a move does


def test_a_move_to_no_determinant_is_refused():
    """theta_01 = 2, theta_10 -> 1/2: the ratio of the determinants is 0, which a likelihood without it would prefer."""
    a = model(1, 2, 40)
    state = [a[name][0] for name in ("Y", "theta", "tau_sq", "deviation", "lambda_sq", "b", "log_step")]
    chain = reference.Chain(*state, 1.0, 0, 0, 0, False, np.zeros(6, int))
    chain.theta[:], chain.d[:] = 0, [[0, 2.0], [0.1, 0]]
    chain.start()
    assert not chain.try_row(1, np.array([0.4, 0.0]), -1e300)
    assert chain.try_row(1, np.array([0.3, 0.0]), -1e300)


@pytest.mark.parametrize("update", sem.UPDATES)
@pytest.mark.parametrize("backend", FAST)
def test_the_likelihood_that_is_kept_is_that_of_the_state(backend, update):
    a = model(3, 5, 33)
    results = sem.sweeps(**a, seed=3, n_sweeps=7, update=update, backend=backend)
    d, _, b, _, loglik, events = results
    np.testing.assert_allclose(loglik, sem.log_density(a["Y"], a["theta"] + d, b), rtol=1e-12)
    assert (events[:, ACCEPTED] > 0).all()
    assert (events[:, FAULT] == -1).all()


@pytest.mark.parametrize("p", [16, pytest.param(50, marks=pytest.mark.nightly)])
def test_the_inverse_does_not_drift(p):
    """1e5 updates of rank one without a refactorisation."""
    rng = np.random.default_rng(p)
    theta = np.zeros((p, p))
    W = np.eye(p)
    done = 0
    while done < 100_000:
        j, h = rng.integers(p, size=2)
        new = 0.3 * rng.standard_normal() / np.sqrt(p)
        delta = new - theta[j, h]
        ratio = 1 - delta * W[h, j]
        if j == h or abs(ratio) < 1e-3:
            continue
        compiled.update_inverse(W, j, delta * W[h], ratio)
        theta[j, h] = new
        done += 1
    np.testing.assert_allclose(W, np.linalg.inv(np.eye(p) - theta), rtol=0, atol=1e-10)


@pytest.mark.parametrize("p", [16, 50])
def test_the_likelihood_does_not_drift(p):
    a = model(1, p, 60, spread=0.02)
    found = sem.sweeps(**a, seed=3, n_sweeps=120_000 // (p * p))
    assert found[5][0, ACCEPTED] > 30_000
    np.testing.assert_allclose(found[4], sem.log_density(a["Y"], a["theta"] + found[0], found[2]), rtol=1e-11)


@pytest.mark.parametrize("backend", FAST)
def test_a_small_determinant_is_made_anew(backend):
    """From a determinant of -1e4, wide proposals go to one of the size of 1."""
    a = model(4000, 2, 5, lambda_sq=1e6)
    a["deviation"][:] = 100 * off(2)
    a["log_step"][:] = 6.0
    *results, events = sem.sweeps(**a, seed=3, n_sweeps=3, update="element", backend=backend)
    assert events[:, REFACTORISED].sum() > 0
    np.testing.assert_allclose(results[4], sem.log_density(a["Y"], a["theta"] + results[0], results[2]), rtol=1e-10)


def test_a_swap_undoes_itself_and_leaves_the_likelihood():
    a = model(1, 4, 30)
    B, b = np.eye(4) - a["theta"][0] - a["deviation"][0], a["b"][0]

    def loglik(B, b):
        return sem.log_density(a["Y"], np.eye(4)[None] - B, b[None])[0]

    for j, h in ((0, 1), (1, 3), (0, 3)):
        new_B, new_b = reference.swapped(B, b, j, h)
        assert loglik(new_B, new_b) == pytest.approx(loglik(B, b), rel=1e-12)
        assert not np.allclose(new_B, B)
        for old, back in zip((B, b), reference.swapped(new_B, new_b, j, h)):
            np.testing.assert_allclose(back, old, rtol=1e-12)
        assert loglik(new_B, b) != pytest.approx(loglik(B, b), rel=1e-3)  # b must go along


def test_every_pair_is_chosen_alike():
    p = 5
    found = [reference.pair((k + 0.5) / 1000, p) for k in range(1000)]
    assert {pair: found.count(pair) for pair in set(found)} == dict.fromkeys(zip(*np.triu_indices(p, 1)), 100)


def test_swaps_find_the_other_mode():
    """A cycle of product -1: its equations can be exchanged. One row, wide scales: swaps are taken."""
    a = model(200, 2, 1, lambda_sq=10.0)
    options = {"seed": 2, "n_sweeps": 50, "update": "element"}
    assert sem.sweeps(**a, **options)[5][:, SWAPS].sum() > 20
    assert sem.sweeps(**a, **options, swap=False)[5][:, SWAPS].sum() == 0


@pytest.mark.parametrize("update", sem.UPDATES)
@pytest.mark.parametrize("backend", FAST)
def test_stable_refuses_what_is_not(backend, update):
    a = model(60, 3, 3, spread=0.05, lambda_sq=4.0)
    options = {"seed": 3, "n_sweeps": 60, "update": update, "backend": backend}
    free = sem.sweeps(**a, **options)
    kept = sem.sweeps(**a, **options, stable=True)
    assert (radius(a["theta"] + free[0]) > 1).any()
    assert (radius(a["theta"] + kept[0]) < 1).all()
    assert (kept[5][:, ACCEPTED] > 0).all()


@pytest.mark.parametrize("p", [1, 2, 3, 8, 11])
def test_the_spectral_radius_is_judged_by_powers(p):
    rng = np.random.default_rng(p)
    for _ in range(100):
        T = rng.standard_normal((p, p)) * off(p) * 10 ** rng.uniform(-2, 1, (p, 1))
        for r in (0.5, 0.999, 1 - 1e-9, 1 + 1e-9, 1.001, 3.0):
            size = radius(T)
            if size > 1e-6:
                scaled = T * (r / size)
                assert compiled.is_contraction(scaled) == (r < 1) == reference.spectral_radius_below_one(scaled)
    assert compiled.is_contraction(np.triu(100.0 * np.ones((p, p)), 1))
    assert not compiled.is_contraction(np.full((p, p), np.nan))


# --- calls


@pytest.mark.parametrize("update", sem.UPDATES)
@pytest.mark.parametrize("backend", FAST)
def test_sweeps_of_one_call_are_those_of_several(backend, update):
    a = model(2, 4, 20)
    options = {"seed": 9, "client": 3, "update": update, "adapt": True, "backend": backend}
    at_once = sem.sweeps(**a, **options, step=5, n_sweeps=4)
    state, events = a, 0
    for t in range(4):
        results = sem.sweeps(**state, **options, step=5 + t)
        state, events = moved_on(state, results), events + results[5]
    for one, several in zip(at_once[:5], results[:5]):
        np.testing.assert_array_equal(one, several)
    np.testing.assert_array_equal(at_once[5][:, :FAULT], events[:, :FAULT])


@pytest.mark.parametrize("update", sem.UPDATES)
@pytest.mark.parametrize("backend", FAST)
def test_chains_of_one_call_are_those_of_several(backend, update):
    a = model(3, 4, 20)
    options = {"seed": 9, "n_sweeps": 3, "update": update, "backend": backend}
    together = sem.sweeps(**a, **options, chain=5)
    for i in range(3):
        alone = sem.sweeps(**{name: value[i : i + 1] for name, value in a.items()}, **options, chain=5 + i)
        for all_, one in zip(together, alone):
            np.testing.assert_array_equal(all_[i], one[0])
    assert not np.array_equal(together[0], sem.sweeps(**a, **options, chain=6)[0])


def test_rows_that_all_chains_share():
    a = model(3, 4, 20)
    Y = a["Y"][0]
    want = sem.sweeps(**a | {"Y": np.repeat(Y[None], 3, axis=0)}, seed=1)
    for w, g in zip(want, sem.sweeps(**a | {"Y": Y}, seed=1)):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("update", ["element", "row"])
def test_a_power_of_the_likelihood_is_a_repetition_of_rows(update):
    """Temperature 2 is every row twice, random numbers and all."""
    a = model(3, 4, 20)
    twice = sem.sweeps(**a | {"temperature": np.full(3, 2.0)}, seed=1, n_sweeps=5, update=update)
    repeated = sem.sweeps(**a | {"Y": np.concatenate([a["Y"], a["Y"]], axis=2)}, seed=1, n_sweeps=5, update=update)
    for t, r in zip(twice[:4], repeated[:4]):
        np.testing.assert_allclose(t, r, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(2 * twice[4], repeated[4], rtol=1e-10)  # the likelihood itself is not tempered
    np.testing.assert_array_equal(twice[5], repeated[5])


@pytest.mark.parametrize(("update", "on"), [("element", off(4)), ("row-gibbs", off(4)), ("row", np.eye(4, dtype=bool))])
def test_steps_adapt_towards_their_acceptance(update, on):
    a = model(4, 4, 50)
    a["log_step"][:] = 3.0
    fixed = sem.sweeps(**a, seed=1, n_sweeps=5, update=update)
    np.testing.assert_array_equal(fixed[3], a["log_step"])
    adapted = sem.sweeps(**a, seed=1, n_sweeps=600, update=update, adapt=True)
    np.testing.assert_array_equal(adapted[3][:, ~on], 3.0)
    events = sem.sweeps(**moved_on(a, adapted), seed=2, n_sweeps=600, update=update)[5]
    rate = events[:, ACCEPTED] / events[:, PROPOSED]
    assert ((rate > 0.35) & (rate < 0.53)).all(), rate


def test_one_variable_has_no_coefficients():
    a = model(2, 1, 20)
    for update in sem.UPDATES:
        d, lambda_sq, b, *_ = sem.sweeps(**a, seed=1, update=update)
        np.testing.assert_array_equal(d, a["deviation"])
        np.testing.assert_array_equal(lambda_sq, a["lambda_sq"])
        assert (b != a["b"]).all()


def test_sizes_and_temperatures_outside_their_range_are_refused():
    with pytest.raises(ValueError, match=r"temperature must be > 0 and finite"):
        sem.sweeps(**model() | {"temperature": np.zeros(2)}, seed=1)
    with pytest.raises(ValueError, match="at least one variable and one row"):
        sem.sweeps(**model() | {"Y": np.zeros((2, 3, 0))}, seed=1)


# --- the posterior of p = 2, all that is global fixed, by quadrature


def half_cauchy_mixture(d, tau):
    """Density of d ~ N(0, lambda^2 tau^2), lambda half-Cauchy."""
    from scipy.special import exp1

    x = (d / tau) ** 2 / 2
    near = np.minimum(x, 300)
    scaled = np.where(x < 300, np.exp(near) * exp1(near), (1 - 1 / x + 2 / x**2) / x)
    return scaled / (np.sqrt(2 * np.pi**3) * tau)


def exact_means(y, theta, tau, power, shape, rate, functions, stable):
    """Expectations by quadrature over (theta_01, theta_10), b integrated out; nodes are dense where the prior has its poles."""
    n = y.shape[1]
    half = np.unique(np.concatenate([np.geomspace(1e-9, 0.05, 160), np.linspace(0.05, 4, 500), np.geomspace(4, 1e4, 400)]))
    d = np.concatenate([-half[::-1], half])
    w = np.gradient(d)
    prior = half_cauchy_mixture(d, tau) * w

    def log_rest(y_own, y_other, x):
        total = np.abs(y_own - x[:, None] * y_other).sum(axis=1)
        return -(shape + power * n) * np.log(rate + power * total)

    a, c = theta[0, 1] + d, theta[1, 0] + d
    log_f = log_rest(y[0], y[1], a)[:, None] + log_rest(y[1], y[0], c)[None, :]
    with np.errstate(divide="ignore"):
        log_f = log_f + power * n * np.log(np.abs(1 - a[:, None] * c[None, :]))
    f = np.exp(log_f - log_f.max()) * prior[:, None] * prior[None, :]
    if stable:
        f = f * (np.abs(a[:, None] * c[None, :]) < 1)
    f /= f.sum()
    return np.array([(f * g(a[:, None], c[None, :])).sum() for g in functions])


FUNCTIONS = [
    lambda a, c: np.tanh(a) + 0 * c,
    lambda a, c: np.tanh(c) + 0 * a,
    lambda a, c: np.tanh(a * c),
    lambda a, c: (np.abs(a) < 0.2) & (np.abs(c) < 9e9),
    lambda a, c: a * c > 1,
    lambda a, c: np.log1p(a**2 + c**2),
]


@pytest.mark.parametrize(
    ("update", "swap", "stable", "power"),
    [
        *(pytest.param(update, True, False, 1.0, marks=pytest.mark.nightly) for update in ("element", "row")),
        ("row-gibbs", True, False, 0.6),
        ("row-gibbs", True, True, 1.0),
    ],
)
def test_the_exact_posterior_of_two_variables(update, swap, stable, power):
    rng = np.random.default_rng(4)
    theta, tau, shape, rate = np.array([[0, 0.5], [-0.3, 0]]), 0.6, 4.0, 3.0
    y = np.linalg.solve(np.eye(2) - [[0, 0.9], [-0.4, 0]], rng.laplace(size=(2, 4)))
    want = exact_means(y, theta, tau, power, shape, rate, FUNCTIONS, stable)
    c = 800
    state = {
        "Y": y,
        "theta": np.repeat(theta[None], c, axis=0),
        "tau_sq": np.full((c, 2, 2), tau**2),
        "deviation": np.zeros((c, 2, 2)),
        "lambda_sq": np.ones((c, 2, 2)),
        "b": np.ones((c, 2)),
        "log_step": np.full((c, 2, 2), 0.8),
        "temperature": np.full(c, power),
    }
    options = {"seed": 6, "update": update, "swap": swap, "stable": stable, "shape": shape, "rate": rate}
    state = moved_on(state, sem.sweeps(**state, **options, n_sweeps=300))
    found, rounds = 0, 100
    for t in range(rounds):
        state = moved_on(state, sem.sweeps(**state, **options, step=300 + 4 * t, n_sweeps=4))
        x = state["theta"] + state["deviation"]
        found = found + np.stack([g(x[:, 0, 1], x[:, 1, 0]) for g in FUNCTIONS])
    found = found / rounds
    error = np.maximum(found.std(axis=1) / np.sqrt(c), 2e-4)
    z = (found.mean(axis=1) - want) / error
    assert np.abs(z).max() < 4, (z, found.mean(axis=1), want)
    wrong = exact_means(y, theta, tau, power, shape + 1, rate, FUNCTIONS, stable)
    assert (np.abs(found.mean(axis=1) - wrong) / error).max() > 4, "a negative control: another prior of b is noticed"
