"""The glm kernels against independent mathematics: differences, complex steps, fine quadrature, unbiasedness, neighbours."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import fedkern
from fedkern.kernels import glm, privacy, rng
from fedkern.kernels._reference import glm as reference
from fedkern.kernels.families import CODES
from fedkern.kernels.families import FAMILIES as RECORDS
from oracles.differences import four_point, relative

FAMILIES = tuple(CODES)
SEED = 3
KEY = rng.key(SEED, "draws")
DIFFERENCES = 5e-6  # of four-point central differences
COMPLEX_STEP = 1e-12
SENSITIVITY = 1e-12  # rounding of a float64 sum
Z = 4.5


def problem(family, n=23, d=5, seed=0, dtype="f8"):
    r = np.random.default_rng(seed)
    X = (0.7 * r.standard_normal((n, d))).astype(dtype)
    responses = {"bernoulli": r.integers(0, 2, n), "poisson": r.poisson(1.5, n), "gaussian": r.standard_normal(n)}
    y = responses["poisson" if RECORDS[family].counted else family].astype(float)
    data = {"X": X, "y": y, "family": family, "offset": 0.3 * r.standard_normal(n), "weights": r.uniform(0.5, 2, n)}
    if RECORDS[family].dispersion is not None:
        data["scale"] = 0.8
    return data


def posterior(d=5, seed=1):
    r = np.random.default_rng(seed)
    return 0.3 * r.standard_normal(d), 0.3 * r.standard_normal(d) - 0.7


def factor(d=5, seed=2):
    r = np.random.default_rng(seed)
    return np.tril(0.2 * r.standard_normal((d, d))) + 0.6 * np.eye(d)


def assert_gradient(f, x, gradient, where=...):
    want = four_point(f, x)[where]
    assert np.linalg.norm(gradient[where] - want) <= DIFFERENCES * np.linalg.norm(want)


# Gradients ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_the_log_likelihood(family):
    data, (theta, _) = problem(family), posterior()
    assert_gradient(lambda t: glm.loglik_grad(theta=t, **data)[0], theta, glm.loglik_grad(theta=theta, **data)[1])


PRIOR = {"prior_shift": 0.4, "prior_precision": 1.7}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("estimator", ["analytic", "total"])
@pytest.mark.parametrize("draws", [1, 3, 11])
def test_the_gradient_of_the_elbo(family, estimator, draws):
    """At fixed draws the total gradient is the gradient of the estimate itself."""
    data, (mu, omega) = problem(family) | PRIOR, posterior()
    f = lambda m, o: glm.elbo_grad(mu=m, log_sigma=o, estimator=estimator, draws=draws, seed=SEED, **data)  # noqa: E731
    _, grad_mu, grad_omega = f(mu, omega)
    assert_gradient(lambda m: f(m, omega)[0], mu, grad_mu)
    assert_gradient(lambda o: f(mu, o)[0], omega, grad_omega)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("estimator", ["analytic", "total"])
def test_the_gradient_of_the_full_rank_elbo(family, estimator):
    data, mu, L = problem(family), posterior()[0], factor()
    P = np.cov(np.random.default_rng(5).standard_normal((5, 20))) + np.eye(5)
    data |= {"prior_shift": np.arange(5.0), "prior_precision": P}
    f = lambda m, L: glm.elbo_grad(mu=m, log_sigma=L, estimator=estimator, draws=2, seed=SEED, **data)  # noqa: E731
    _, grad_mu, grad_L = f(mu, L)
    assert_gradient(lambda m: f(m, L)[0], mu, grad_mu)
    assert_gradient(lambda M: f(mu, M)[0], L, grad_L, np.tril_indices(5))
    assert (np.triu(grad_L, 1) == 0).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spread", [0.1, 2.0, 9.0])
def test_slope_and_curvature_are_derivatives_of_the_value(family, spread):
    data, (mu, omega) = problem(family), posterior()
    if family != "poisson":
        omega = omega + np.log(spread)
    at = lambda shift: glm.expectations(mu=mu, log_sigma=omega, **data | {"offset": data["offset"] + shift})  # noqa: E731
    _, slope, curvature = at(0.0)
    for k, derivative in ((0, slope), (1, curvature)):
        want = (8 * (at(1e-2)[k] - at(-1e-2)[k]) - (at(2e-2)[k] - at(-2e-2)[k])) / 12e-2
        assert np.linalg.norm(derivative - want) <= DIFFERENCES * np.linalg.norm(want)


def test_negative_control_a_gradient_that_is_off_by_a_hundred_thousandth_is_noticed():
    data, (theta, _) = problem("bernoulli"), posterior()
    gradient = glm.loglik_grad(theta=theta, **data)[1] * (1 + 1e-5)
    with pytest.raises(AssertionError):
        assert_gradient(lambda t: glm.loglik_grad(theta=t, **data)[0], theta, gradient)


# One example's vector, its norm, and what is summed ----------------------------------------------------------------------------


def complex_log_likelihood(a, y, family, scale=1.0):
    """log p(y | a) but for a constant, of a complex a."""
    if family == "bernoulli":
        return y * a - np.log(1 + np.exp(a))
    if family == "poisson":
        return y * a - np.exp(a)
    if family == "gaussian":
        return -((y - a) ** 2) / (2 * scale**2)
    if family == "negative-binomial":
        return y * a - (y + scale) * np.log(scale + np.exp(a))
    raise NotImplementedError(family)


def estimate(kind, data, i, mu, omega, draws):
    """The estimate of w_i E l_i whose gradient the kernel sums, as a function of complex parameters."""
    x, sigma = data["X"][i], np.exp(omega)
    if kind == "weight-mc":
        e = np.array([rng.normal(len(x), key=KEY, step=4, draw=s) for s in range(draws)])
        a = (mu + sigma * e) @ x
    else:
        a = x @ mu + np.sqrt(((x * sigma) ** 2).sum()) * rng.normal(draws, key=KEY, step=4)
    values = complex_log_likelihood(a + data["offset"][i], data["y"][i], data["family"], data.get("scale", 1.0))
    return data["weights"][i] * values.mean()


def complex_step(f, x):
    steps = 1e-30j * np.eye(len(x))
    return np.array([f(x + step).imag / 1e-30 for step in steps])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["weight-mc", "activation-mc"])
@pytest.mark.parametrize("draws", [1, 4, 16])
def test_examples_and_norms_against_complex_steps(family, kind, draws):
    data, (mu, omega) = problem(family, n=6, d=11), posterior(11)
    call = {"estimator": kind, "draws": draws, "seed": SEED, "step": 4, "mu": mu, "log_sigma": omega} | data
    for i in range(6):
        row = np.array([i])
        v, _ = glm.clipped_grad_sum(clip=np.inf, rows=row, **call)
        want = complex_step(lambda q, i=i: estimate(kind, data, i, q[:11], q[11:], draws), np.concatenate([mu, omega]))
        assert relative(v, want) <= COMPLEX_STEP
        clip = 0.5 * np.linalg.norm(want)
        clipped, _ = glm.clipped_grad_sum(clip=clip, rows=row, **call)
        assert relative(clipped, want * 0.5 * (1 - 1e-9)) <= COMPLEX_STEP


@pytest.mark.parametrize("backend", ["cpp", "numba"])
@pytest.mark.parametrize("full", [False, True])
def test_the_fused_sum_is_the_plain_clip_of_written_out_vectors(backend, full):
    data, (mu, omega) = problem("bernoulli", n=200, d=13), posterior(13)
    spread = factor(13) if full else omega
    v, _ = reference.example_vectors(
        data["X"], data["y"], mu, spread, None, data["offset"], data["weights"], 0, 1.0, reference.ANALYTIC, 1, 0, 0, 0
    )
    norms = np.linalg.norm(v, axis=1)
    clip = np.median(norms)
    fused, skipped = glm.clipped_grad_sum(mu=mu, log_sigma=spread, clip=clip, backend=backend, **data)
    assert skipped == 0
    assert relative(fused, privacy.clip_sum(v, clip)) <= 2e-9  # the fused margin
    assert relative(fused, privacy.clip_sum(v, clip * 1.01)) > 1e-4  # negative control


def test_full_rank_vectors_of_a_diagonal_factor_are_the_mean_field_ones():
    """k tril(x u') with L = diag(sigma) has the diagonal k x^2 sigma: the mean-field gradient in log sigma over sigma."""
    data, (mu, omega) = problem("poisson"), posterior()
    call = {"mu": mu, "clip": np.inf} | data
    full, _ = glm.clipped_grad_sum(log_sigma=np.diag(np.exp(omega)), **call)
    diagonal, _ = glm.clipped_grad_sum(log_sigma=omega, **call)
    i, j = np.tril_indices(5)
    assert relative(full[:5], diagonal[:5]) <= COMPLEX_STEP
    assert relative(full[5:][i == j] * np.exp(omega), diagonal[5:]) <= COMPLEX_STEP


def test_without_a_bound_the_sum_is_the_likelihood_part_of_the_elbo():
    data, (mu, omega) = problem("bernoulli"), posterior()
    total, _ = glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=np.inf, **data)
    _, grad_mu, grad_omega = glm.elbo_grad(mu=mu, log_sigma=omega, estimator="analytic", prior_precision=2.0, **data)
    assert relative(total, np.concatenate([grad_mu + 2 * mu, grad_omega - 1 + 2 * np.exp(2 * omega)])) <= COMPLEX_STEP


def test_weights_multiply():
    data, (mu, omega) = problem("poisson"), posterior()
    twice = data | {name: np.concatenate([data[name]] * 2) for name in ("X", "y", "offset", "weights")}
    doubled = data | {"weights": 2 * data["weights"]}
    for call in (
        lambda kw: glm.loglik_grad(theta=mu, **kw),
        lambda kw: glm.elbo_grad(mu=mu, log_sigma=omega, seed=SEED, draws=9, **kw),
        lambda kw: glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=np.inf, **kw)[:1],
    ):
        for a, b in zip(call(twice), call(doubled)):
            assert relative(np.asarray(a), np.asarray(b)) <= COMPLEX_STEP


# Quadrature --------------------------------------------------------------------------------------------------------------------

# Largest errors of (value, slope, curvature) with the 64-node rule at s (pvi.md, section 3.1, with the digits that it rounds
# away), and with the mixture, whose normalised weights make the specified 2e-9 and 2e-10 smaller.
TABLE = {1.0: (1.5e-10, 2.5e-11, 1e-11), 3.0: (3.5e-10, 2.5e-11, 1e-11), 5.0: (2.5e-9, 6.5e-9, 4.5e-8)}
WIDE = (1e-9, 2e-10, 5e-11)


def fine(m, s):
    """E l, E l', E l'' for y = 1 by 4,001 nodes on [-12, 12]."""
    t = np.linspace(-12, 12, 4001)
    w = np.exp(-(t**2) / 2)
    a = m[:, None] + s * t
    return [f @ w / w.sum() for f in (-np.logaddexp(0, -a), expit(-a), -expit(a) * expit(-a))]


def at(m, s):
    one = np.ones((len(m), 1))
    return glm.expectations(one, np.ones(len(m)), np.zeros(1), np.log([s]), family="bernoulli", offset=m)


@pytest.mark.parametrize("s", TABLE)
def test_the_trapezoid_rule_has_the_errors_of_the_table(s):
    m = np.linspace(-40, 40, 801)
    for got, want, error in zip(at(m, s), fine(m, s), TABLE[s]):
        assert abs(got - want).max() <= error
    assert abs(at(m, s)[1] - fine(m, s * (1 + 1e-6))[1]).max() > 1e-8  # negative control


@pytest.mark.parametrize("s", [0.0, 1e-8, 0.3, 2.0, 4.9, 5.0])
def test_expectations_against_a_fine_rule(s):
    m = np.linspace(-60, 60, 601)
    for got, want in zip(at(m, max(s, 1e-300)), fine(m, s)):
        assert abs(got - want).max() <= 1e-7


@pytest.mark.parametrize("s", [5.0000001, 7.0, 14.5, 30.0, 50.0])
def test_the_mixture_rule_for_wide_activations(s):
    m = np.linspace(-150, 150, 601)
    for got, want, error in zip(at(m, s), fine(m, s), WIDE):
        assert abs(got - want).max() <= error


def test_far_out_the_log_likelihood_is_linear_and_never_overflows():
    m = np.array([-1e300, -1e5, -700.0, 700.0, 1e5, 1e300])
    for s in (1e-3, 4.0, 20.0):
        value, slope, curvature = at(m, s)
        np.testing.assert_allclose(value, np.minimum(m, 0), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(slope, m < 0, atol=1e-8)
        assert (abs(curvature) <= 1e-9).all()


# Draws -------------------------------------------------------------------------------------------------------------------------


def z_scores(samples, mean):
    return (samples.mean(axis=0) - mean) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


@pytest.mark.parametrize(("kind", "draws"), [("weight-mc", 1), ("weight-mc", 3), ("activation-mc", 2)])
def test_private_estimators_are_unbiased(kind, draws):
    data, (mu, omega) = problem("bernoulli"), posterior()
    call = {"mu": mu, "log_sigma": omega, "clip": np.inf} | data
    exact, _ = glm.clipped_grad_sum(**call)
    samples = np.array([glm.clipped_grad_sum(estimator=kind, draws=draws, seed=SEED, step=t, **call)[0] for t in range(20_000)])
    assert abs(z_scores(samples, exact)).max() < Z
    assert abs(z_scores(samples, exact * 1.1)).max() > Z  # negative control


@pytest.mark.parametrize("estimator", ["stl", "total"])
@pytest.mark.parametrize("full", [False, True])
def test_elbo_estimators_are_unbiased(estimator, full):
    data, (mu, omega) = problem("bernoulli") | PRIOR, posterior()
    call = {"mu": mu, "log_sigma": factor() if full else omega} | data
    flat = lambda result: np.concatenate([np.ravel(r) for r in result])  # noqa: E731
    exact = flat(glm.elbo_grad(estimator="analytic", **call))
    samples = np.array([flat(glm.elbo_grad(estimator=estimator, seed=SEED, step=t, **call)) for t in range(10_000)])
    moving = samples.std(axis=0) > 0  # zeros above the diagonal
    assert abs(z_scores(samples[:, moving], exact[moving])).max() < Z
    assert abs(z_scores(samples[:, moving], exact[moving] * 1.2)).max() > Z  # negative control


def test_the_path_gradient_has_no_variance_where_q_is_exact():
    """Gaussian model with orthogonal columns: the mean-field posterior is exact."""
    X, y = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 3)))[0], np.arange(9.0)
    mu, omega = X.T @ y / 2, np.full(3, -0.5 * np.log(2))
    call = {"X": X, "y": y, "mu": mu, "log_sigma": omega, "family": "gaussian", "seed": SEED}
    for step in range(5):
        elbo, grad_mu, grad_omega = glm.elbo_grad(estimator="stl", step=step, **call)
        assert elbo == pytest.approx(glm.elbo_grad(estimator="analytic", **call)[0], rel=1e-12)
        assert max(abs(grad_mu).max(), abs(grad_omega).max()) < 1e-12
    assert abs(glm.elbo_grad(estimator="total", **call)[1]).max() > 1e-2  # negative control


def test_noise_is_the_documented_draw():
    data, (mu, omega) = problem("bernoulli"), posterior()
    call = {"mu": mu, "log_sigma": omega, "clip": 0.7, "seed": SEED, "client": 4, "step": 9} | data
    noisy, plain = (glm.clipped_grad_sum(noise_multiplier=s, **call)[0] for s in (1.5, 0.0))
    noise = rng.normal(10, key=KEY, client=4, step=9, draw=2**32 - 1)
    np.testing.assert_allclose(noisy - plain, 1.5 * 0.7 * noise, rtol=1e-12)


# Evidence ----------------------------------------------------------------------------------------------------------------------


def log_evidence(data, mu, L, nodes):
    """log of the integral of prod_i p(y_i | x_i'theta) N(theta; 0, I) over R^4: tensor Gauss-Hermite around N(mu, L L')."""
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    e = np.stack(np.meshgrid(t, t, t, t, indexing="ij"), axis=-1).reshape(-1, 4)
    log_w = np.log(np.einsum("a,b,c,d->abcd", w, w, w, w).ravel() / (2 * np.pi) ** 2)
    theta = mu + e @ L.T
    a = theta @ data["X"].T
    log_w += (data["y"] * a - np.logaddexp(0, a)).sum(axis=1) + (e**2 - theta**2).sum(axis=1) / 2 + np.log(np.diag(L)).sum()
    return log_w.max() + np.log(np.exp(log_w - log_w.max()).sum())


def test_the_elbo_is_below_the_log_evidence_by_a_fixed_gap():
    r = np.random.default_rng(8)
    X = r.standard_normal((30, 4)) @ np.array([[1, 0.8, 0, 0], [0, 0.6, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    data = {"X": X, "y": (r.random(30) < expit(X @ [1.0, -1.0, 0.5, 0.0])).astype(float), "family": "bernoulli"}
    i, j = np.tril_indices(4)

    def factor_of(q):  # the diagonal through its logarithm
        L = np.zeros((4, 4))
        L[i, j] = np.where(i == j, np.exp(q), q)
        return L

    def negative(q):
        full = len(q) > 8
        spread = factor_of(q[4:]) if full else q[4:]
        elbo, g_mu, g = glm.elbo_grad(mu=q[:4], log_sigma=spread, estimator="analytic", **data)
        return -elbo, -np.concatenate([g_mu, g[i, j] * np.where(i == j, spread[i, j], 1) if full else g])

    diagonal, full = (minimize(negative, np.zeros(n), jac=True, tol=1e-12) for n in (8, 14))
    evidence, again = (log_evidence(data, full.x[:4], factor_of(full.x[4:]), nodes) for nodes in (14, 16))
    assert evidence == pytest.approx(again, abs=1e-7)
    assert -diagonal.fun < -full.fun < evidence
    assert evidence + diagonal.fun == pytest.approx(GAPS[0], abs=1e-5)
    assert evidence + full.fun == pytest.approx(GAPS[1], abs=1e-5)


GAPS = (0.410218, 0.009533)  # nats, mean-field and full rank


@pytest.mark.parametrize("backend", ["cpp", "numba", "reference"])
@pytest.mark.parametrize(
    ("dtype", "scale", "beyond"), [("f8", 1e-150, 0.99), ("f8", 1e150, 1.01), ("f4", 1e-15, 0.99), ("f4", 1e15, 1.01)]
)
def test_a_standard_deviation_whose_square_is_no_number_is_refused(dtype, scale, beyond, backend):
    """At the ends of its range a value is that of residuals in units of the scale, but for the constant of each row."""
    data, (mu, omega) = problem("gaussian", dtype=dtype) | {"scale": scale, "backend": backend}, posterior()
    nothing = {"X": np.zeros_like(data["X"]), "y": scale * data["y"], "offset": None, "weights": None}
    value, slope = glm.loglik_grad(theta=mu, **data | nothing)
    constant = len(data["y"]) * (np.log(scale) + 0.5 * np.log(2 * np.pi))
    assert value + constant == pytest.approx(-0.5 * (data["y"] ** 2).sum(), rel=1e-5)
    assert (slope == 0).all()
    data["scale"] *= beyond
    for call in (
        lambda: glm.loglik_grad(theta=mu, **data),
        lambda: glm.elbo_grad(mu=mu, log_sigma=omega, estimator="analytic", **data),
        lambda: glm.expectations(mu=mu, log_sigma=omega, **data),
        lambda: glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=CLIP, **data),
    ):
        with pytest.raises(ValueError, match=r"scale of gaussian.* must be in \[1e-1"):
            call()


# Privacy -----------------------------------------------------------------------------------------------------------------------

CLIP, GRID = 0.8, 0.8 * 2.0**-20
BAD = {"ordinary": 1.0, "zero": 0.0, "tiny": 1e-160, "nan": np.nan, "inf": np.inf, "1e77": 1e77, "1e200": 1e200, "-1e308": -1e308}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["analytic", "weight-mc", "activation-mc", "full"])
@pytest.mark.parametrize("backend", ["cpp", "numba", "reference"])
def test_one_row_less_moves_the_sum_by_at_most_the_bound(name, kind, backend):
    full = kind == "full"
    mu, omega = posterior(7)
    call = {"clip": CLIP, "family": "bernoulli", "backend": backend, "seed": SEED, "draws": 2, "mu": mu}
    call |= {"log_sigma": factor(7) if full else omega, "estimator": "analytic" if full else kind}
    for seed in range(4):
        r = np.random.default_rng(seed)
        X, y = r.standard_normal((20, 7)), r.integers(0, 2, 20).astype(float)
        X[3] = np.clip(X[3], -1, 1) * BAD[name]
        if seed == 1:
            X[3, 1:] = 0
        if seed == 2:
            X[4] = X[3]
        others = np.delete(np.arange(20), 3)
        (a, skipped), (b, fewer) = (glm.clipped_grad_sum(X, y, rows=k, grid=GRID, **call) for k in (None, others))
        moved = (a - b).astype(object)
        assert sum(m * m for m in moved) * GRID**2 <= CLIP**2  # integers of any size: no rounding
        assert skipped - fewer in (0, 1)
        (a, _), (b, _) = (glm.clipped_grad_sum(X, y, rows=k, **call) for k in (None, others))
        assert np.isfinite(a).all()
        assert np.linalg.norm(a - b) <= CLIP * (1 + SENSITIVITY) + 1e-12 * np.linalg.norm(a)


@pytest.mark.parametrize("where", ["y", "offset", "weights"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_bad_number_beside_X_counts_as_nothing(where, value):
    data, (mu, omega) = problem("gaussian"), posterior()
    data[where][2] = value
    total, skipped = glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=CLIP, **data)
    kept = np.delete(np.arange(len(data["y"])), 2)
    assert skipped == 1
    assert relative(total, glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=CLIP, rows=kept, **data)[0]) <= COMPLEX_STEP


@pytest.mark.parametrize(
    ("family", "label"), [("bernoulli", 0.5), ("bernoulli", -1.0), ("bernoulli", 2.0), ("poisson", -1.0), ("poisson", 1.5)]
)
def test_a_response_that_the_family_has_not(family, label):
    data, (mu, omega) = problem(family), posterior()
    data["y"][0] = label
    assert glm.clipped_grad_sum(mu=mu, log_sigma=omega, clip=CLIP, **data)[1] == 1
    assert np.isnan(glm.loglik_grad(theta=mu, **data)[0])
    assert np.isnan(glm.expectations(mu=mu, log_sigma=omega, **data)[0]).tolist() == [True] + [False] * 22


def test_negative_control_a_sum_without_clipping_exceeds_the_bound():
    data, (mu, omega) = problem("bernoulli"), posterior()
    call = {"mu": mu, "log_sigma": omega} | data
    a, b = (glm.clipped_grad_sum(clip=np.inf, rows=rows, **call)[0] for rows in (None, np.arange(1, 23)))
    assert np.linalg.norm(a - b) > 0.1
    a, b = (glm.clipped_grad_sum(clip=0.1, rows=rows, **call)[0] for rows in (None, np.arange(1, 23)))
    assert np.linalg.norm(a - b) <= 0.1 * (1 + SENSITIVITY)


@pytest.mark.parametrize("kind", ["analytic", "weight-mc", "activation-mc", "full"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_with_a_grid_the_order_of_rows_does_not_matter(kind, dtype):
    data, (mu, omega) = problem("bernoulli", n=300, d=29, dtype=dtype), posterior(29)
    full = kind == "full"
    call = {"mu": mu, "log_sigma": factor(29) if full else omega, "clip": CLIP, "grid": GRID, "seed": SEED, "draws": 3}
    call |= {"estimator": "analytic" if full else kind} | data
    order = np.random.default_rng(0).permutation(300)
    sums = [glm.clipped_grad_sum(rows=rows, **call)[0] for rows in (None, order, order[::-1].copy())]
    assert (sums[0] == sums[1]).all()
    assert (sums[0] == sums[2]).all()


# Layouts, types, errors --------------------------------------------------------------------------------------------------------


def test_the_layout_of_X_does_not_change_a_bit(tmp_path):
    data, (mu, omega) = problem("bernoulli", n=500, d=37), posterior(37)
    X = data.pop("X")
    wide = np.zeros((500, 80))
    wide[:, ::2][:, :37] = X
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=X.shape)
    mapped[:] = X
    padded = np.zeros((500, 50))
    padded[:, :37] = X
    layouts = {
        "fortran": np.asfortranarray(X),
        "strided": wide[:, ::2][:, :37],
        "mapped": np.memmap(tmp_path / "x", np.float64, "r", shape=X.shape),
        "reversed": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
        "padded": padded[:, :37],
    }
    for call in (
        lambda X: glm.loglik_grad(X, theta=mu, **data),
        lambda X: glm.elbo_grad(X, mu=mu, log_sigma=omega, seed=SEED, draws=11, n_threads=2, **data),
        lambda X: glm.clipped_grad_sum(X, mu=mu, log_sigma=omega, clip=1.0, **data),
        lambda X: glm.clipped_grad_sum(X, mu=mu, log_sigma=omega, clip=1.0, estimator="weight-mc", seed=SEED, **data),
        lambda X: glm.expectations(X, mu=mu, log_sigma=factor(37), **data),
    ):
        want = call(X)
        for name, other in layouts.items():
            assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(call(other), want)), name


@pytest.mark.parametrize(("n", "d", "draws"), [(20_000, 100, 1), (3000, 3000, 1), (5000, 700, 8)])
def test_float32_is_right_to_a_millionth(n, d, draws):
    r = np.random.default_rng(n)
    X = (r.standard_normal((n, d)) / np.sqrt(d)).astype("f4")
    y, mu, omega = r.integers(0, 2, n), r.standard_normal(d), np.full(d, -1.0)
    call = {"y": y, "mu": mu, "log_sigma": omega, "family": "bernoulli", "seed": SEED, "draws": draws}
    for single, double in zip(glm.elbo_grad(X, **call), glm.elbo_grad(X.astype("f8"), **call)):
        assert relative(np.asarray(single), np.asarray(double)) <= 1e-6


ERRORS = [
    ({"family": "probit"}, ValueError, f"family must be {' or '.join(map(repr, FAMILIES))}, got 'probit'"),
    ({"scale": 2.0}, ValueError, "bernoulli has none, got 2.0"),
    ({"family": "gaussian", "scale": 0.0}, ValueError, "scale must be positive and finite, got 0.0"),
    ({"noise_multiplier": 1.0}, ValueError, "noise_multiplier needs a seed"),
    ({"noise_multiplier": 1.0, "seed": 1, "grid": GRID}, ValueError, "no grid"),
    ({"clip": 0.0}, ValueError, "clip must be at least 1e-50"),
    ({"grid": 0.0}, ValueError, "grid must be > 0"),
    ({"grid": 1e-15}, ValueError, "at least clip / 2"),
    ({"clip": np.inf, "grid": GRID}, ValueError, "grid must be > 0 and at least clip"),
    ({"grid": GRID, "out": np.zeros(10)}, TypeError, "total must be int64 with a grid, got float64"),
    ({"out": np.zeros(10, int)}, TypeError, "total must be float64 without a grid, got int64"),
    ({"log_sigma": np.eye(5), "estimator": "weight-mc", "seed": 1}, ValueError, "'analytic' for a full-rank posterior"),
    ({"rows": np.array([0, 23])}, IndexError, r"rows\[1\] = 23 is no row of X, which has 23"),
    ({"rows": np.array([-1])}, IndexError, r"rows\[0\] = -1 is no row"),
]


@pytest.mark.parametrize(("change", "error", "text"), ERRORS)
def test_errors_say_what_was_wanted_and_what_came(change, error, text):
    data, (mu, omega) = problem("bernoulli"), posterior()
    with pytest.raises(error, match=text):
        glm.clipped_grad_sum(**{"mu": mu, "log_sigma": omega, "clip": CLIP} | data | change)


def test_a_factor_without_a_positive_diagonal_is_refused():
    data, L = problem("bernoulli"), factor()
    L[2, 2] = -0.1
    with pytest.raises(ValueError, match="positive diagonal"):
        glm.elbo_grad(mu=np.zeros(5), log_sigma=L, estimator="analytic", **data)


def test_a_prior_that_is_no_density_has_no_constant():
    data, (mu, omega) = problem("bernoulli"), posterior()
    f = lambda P: glm.elbo_grad(mu=mu, log_sigma=omega, estimator="analytic", prior_precision=P, **data)[0]  # noqa: E731
    P = np.array([1.0, 1, 1, 1, -0.1])
    change = -0.5 * ((P - 1) @ (np.exp(2 * omega) + mu**2))
    assert f(P) == pytest.approx(f(1.0) + 2.5 * np.log(2 * np.pi) + change, rel=1e-12)


def test_the_tables_of_the_headers_are_what_they_say():
    text = (Path(fedkern.get_include()) / "fedkern" / "glm" / "tables.hpp").read_text()
    found = {
        name: np.array(body.split(","), dtype=object)
        for name, body in re.findall(r"FEDKERN_TABLE\(double, (\w+), \d+\) = \{\s*([^}]*?),?\s*\};", text)
    }
    t, u = (np.arange(32) + 0.5) * 13 / 63, 0.8 * (np.arange(96) - 47.5)
    trapezoid, mixture = np.exp(-(t**2) / 2), expit(u) * expit(-u)
    want = {
        "trapezoid_weight": trapezoid / trapezoid.sum() / 2,
        "mixture_weight": mixture / mixture.sum(),
        "log_factorials": gammaln(np.arange(256) + 1.0),
    }
    assert found.keys() == want.keys()
    for name, values in want.items():
        np.testing.assert_allclose(found[name].astype(float), values, rtol=1e-14, atol=0, err_msg=name)


@pytest.mark.parametrize("backend", ["cpp", "numba", "reference"])
@pytest.mark.parametrize("r", [1e-3, 30.0, 1e4, 1e8, 1e12, 1e15, 1e50, 1e100, 1e300])
def test_a_negative_binomial_loses_no_digits_to_a_large_r(backend, r):
    """Beside mpmath: the value, its slope and its curvature, of a point and averaged over a narrow posterior."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(60 + 2 * int(abs(np.log10(r)))):
        for y, m in ((0.0, 0.5), (3.0, 1.0), (300.0, 6.0), (690.0, 6.5)):
            ways = mp.loggamma(y + mp.mpf(r)) - mp.loggamma(mp.mpf(r)) - mp.loggamma(y + 1)
            x = mp.e ** mp.mpf(m) / r
            value = ways + y * mp.log(x) - (y + mp.mpf(r)) * mp.log1p(x)
            slope, curvature = y - (y + mp.mpf(r)) * x / (1 + x), -(y + mp.mpf(r)) * x / (1 + x) ** 2
            size = float(abs(ways + y * mp.log(1 / mp.mpf(r))) + y * m + (y + mp.mpf(r)) * mp.log1p(x) + mp.loggamma(y + 1))
            one = {"X": np.ones((1, 1)), "y": np.array([y]), "family": "negative-binomial", "scale": r, "backend": backend}
            found = glm.loglik_grad(theta=np.array([m]), **one)
            assert abs(found[0] - float(value)) <= 1e-12 * size
            assert abs(found[1][0] - float(slope)) <= 1e-12 * (y + np.exp(m))
            averaged = glm.expectations(mu=np.array([m]), log_sigma=np.array([-300.0]), **one)
            assert abs(averaged[0][0] - float(value)) <= 1e-12 * size
            assert abs(averaged[1][0] - float(slope)) <= 1e-12 * (y + np.exp(m))
            assert averaged[2][0] == pytest.approx(float(curvature), rel=1e-12)
            if r < 1e6:
                continue
            # sum over k of (-1)^(k+1) E x^k / k, with what it becomes of a Poisson response
            rates = [mp.e ** (k * mp.mpf(m) + mp.mpf(k * k) / 2) / mp.mpf(r) ** k for k in range(1, 6)]
            whole = ways - y * mp.log(mp.mpf(r)) + y * m
            value = whole - (y + mp.mpf(r)) * sum((-1) ** k * rate / (k + 1) for k, rate in enumerate(rates))
            slope = y - (y + mp.mpf(r)) * sum((-1) ** k * rate for k, rate in enumerate(rates))
            wide = glm.expectations(mu=np.array([m]), log_sigma=np.zeros(1), **one)
            assert abs(wide[0][0] - float(value)) <= 1e-12 * 2 * size
            assert wide[1][0] == pytest.approx(float(slope), rel=1e-12)


def test_the_record_of_a_negative_binomial_loses_no_digits_to_a_large_r():
    """The value, and the derivative in log r, which is of the order of 1 / r."""
    mp = pytest.importorskip("mpmath")
    record = RECORDS["negative-binomial"]
    slope_by_r = record.dispersion.unknown.slope
    for r in (1e-6, 0.3, 3.0, 1e4, 1e8, 1e12, 1e50, 1e100):
        for y, eta in ((0.0, 3.0), (2.0, 0.5), (7.0, 9.0), (300.0, 5.0), (1e5, 11.0)):
            with mp.workdps(60 + 2 * int(abs(np.log10(r)))):
                x = mp.e ** mp.mpf(eta) / r
                ways = mp.loggamma(y + mp.mpf(r)) - mp.loggamma(mp.mpf(r)) - y * mp.log(mp.mpf(r))
                p, less = x / (1 + x), y - r * (mp.digamma(y + mp.mpf(r)) - mp.digamma(mp.mpf(r)))
                terms = [ways, -mp.loggamma(y + 1), mp.mpf(y) * eta, -(y + mp.mpf(r)) * mp.log1p(x)]
                of_r = [y * p, -less, -r * (mp.log1p(x) - p)]
                value, slope = float(sum(terms)), float(sum(of_r))
                sizes = [float(sum(map(abs, one))) for one in (terms, of_r)]
            found = record.value(np.array([y]), np.array([eta]), r, None)[0]
            assert abs(found - value) <= 1e-12 * sizes[0]
            assert abs(slope_by_r(np.array([y]), np.array([eta]), r)[0] - slope) <= 1e-12 * sizes[1]


@pytest.mark.parametrize(
    ("family", "scale"), [("bernoulli", 1.0), ("poisson", 1.0), ("gaussian", 0.7), ("negative-binomial", 2.5)]
)
def test_the_value_alone_is_that_beside_the_gradient(family, scale):
    random = np.random.default_rng(4)
    X, theta, offset, weights = random.normal(size=(50, 3)), np.array([0.3, -0.2, 0.1]), random.normal(size=50), random.random(50)
    y = (random.random(50) < 0.5).astype(float) if family == "bernoulli" else random.poisson(2.0, 50).astype(float)
    arguments = {"family": family, "scale": scale, "offset": offset, "weights": weights}
    value = glm.loglik(X, y, theta, **arguments)
    assert value == glm.loglik_grad(X, y, theta, **arguments)[0]
    rows = RECORDS[family].value(y, X @ theta + offset, scale, None)  # by NumPy
    np.testing.assert_allclose(value, rows @ weights, rtol=1e-12)
    single = glm.loglik(X.astype(np.float32), y.astype(np.int64), theta.tolist(), **arguments)  # computed in float64, too
    np.testing.assert_allclose(single, value, rtol=1e-6)


def test_the_value_alone_is_there_for_families_of_jobs_that_have_no_kernel():
    random = np.random.default_rng(5)
    X, theta = random.normal(size=(40, 2)), np.array([0.4, -0.3])
    y, eta = random.gamma(2.0, 1.0, 40), X @ np.array([0.4, -0.3])
    student = glm.loglik(X, y, theta, family="student", scale=np.array([1.5, 4.0]))
    np.testing.assert_allclose(student, scipy.stats.t.logpdf(y, 4.0, eta, 1.5).sum(), rtol=1e-12)
    lognormal = glm.loglik(X, y, theta, family="lognormal", scale=0.8)
    np.testing.assert_allclose(lognormal, scipy.stats.lognorm.logpdf(y, 0.8, scale=np.exp(eta)).sum(), rtol=1e-12)
    trials = np.full(40, 6.0)
    hits = random.binomial(6, 0.4, 40)
    binomial = glm.loglik(X, hits, theta, family="binomial", trials=trials)
    np.testing.assert_allclose(binomial, scipy.stats.binom.logpmf(hits, 6, 1 / (1 + np.exp(-eta))).sum(), rtol=1e-12)
    for family, named in (
        ("normal", "do you mean 'gaussian'"),
        ("binomial", "needs trials"),
        ("weibull", "mixed.values"),
        ("cox", "survival.cox_values"),
        ("multinomial", "multinomial.values"),
    ):
        with pytest.raises(ValueError, match=rf"glm\.loglik: .*{named}"):
            glm.loglik(X, y, theta, family=family)
