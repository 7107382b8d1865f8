"""Adapters of own models: JAX in float64 whatever it is set to, what BridgeStan has, NumPyro's sites; and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedkern.errors import JobError
from fedkern.models.own import from_jax, from_numpyro, from_stan
from support.refusal import refusal

Array = np.ndarray

Y = np.array([1.0, 2.5, -0.7, 3.1])


def loglik(theta: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sum(-0.5 * ((y - theta[0]) / jnp.exp(theta[1])) ** 2 - theta[1])


def test_jax_computes_in_float64_and_leaves_jax_as_it_was() -> None:
    """Many points at once, of which the last batch is filled up; against NumPy to the last digits."""
    jnp = pytest.importorskip("jax.numpy")
    before = jnp.asarray(1.0).dtype
    model = from_jax(loglik, ["mu", "s"], Y, batch=64)
    points = np.random.default_rng(0).standard_normal((131, 2))
    d = (Y - points[:, :1]) / np.exp(points[:, 1:])
    values = model.values(points)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, -0.5 * (d**2).sum(axis=1) - 4 * points[:, 1], rtol=1e-14)
    gradient = np.column_stack([(d / np.exp(points[:, 1:])).sum(axis=1), (d**2).sum(axis=1) - 4])
    np.testing.assert_allclose(model.gradient(points), gradient, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.curvature(points[:3])[:, 1, 1], 2 * (d[:3] ** 2).sum(axis=1), rtol=1e-12)
    assert jnp.asarray(1.0).dtype == before
    assert model.values(points[:1])[0] == values[0]


def test_local_unknowns_in_jax() -> None:
    pytest.importorskip("jax")
    model = from_jax(lambda theta, u, y: loglik(theta, y - u) - 0.5 * u @ u, ["mu", "s"], Y, local_size=4)
    xi, u = np.array([0.3, -0.2]), np.array([0.1, -0.4, 0.2, 0.0])
    value, of_xi, of_u = model.log_joint_grad(xi, u)
    h = 1e-6
    for k, e in enumerate(np.eye(2)):
        assert of_xi[k] == pytest.approx(
            (model.log_joint_grad(xi + h * e, u)[0] - model.log_joint_grad(xi - h * e, u)[0]) / (2 * h)
        )
    for k, e in enumerate(np.eye(4)):
        assert of_u[k] == pytest.approx(
            (model.log_joint_grad(xi, u + h * e)[0] - model.log_joint_grad(xi, u - h * e)[0]) / (2 * h)
        )
    together = model.log_joint_grads(np.stack([xi, 2 * xi]), np.stack([u, u]))
    assert together[0][0] == pytest.approx(value, rel=1e-14)
    assert [part.shape for part in together] == [(2,), (2, 2), (2, 4)]


class Stan:
    def param_unc_num(self) -> int:
        return 1

    def log_density_gradient(self, theta_unc: Array, propto: bool = True, jacobian: bool = True) -> tuple[float, Array]:
        if theta_unc[0] > 5:
            raise RuntimeError("Exception: normal_lpdf: Scale parameter is inf")
        return -0.5 * float(theta_unc[0]) ** 2, -theta_unc

    def param_constrain(self, theta_unc: Array) -> Array:
        return np.asarray(theta_unc)


def test_stan_models() -> None:
    model = from_stan(Stan(), ["a"])
    np.testing.assert_array_equal(model.values(np.array([[2.0], [6.0]])), [-2.0, -np.inf])
    np.testing.assert_array_equal(model.gradient(np.array([[2.0]])), [[-2.0]])
    assert model.unconstrained
    with pytest.raises(JobError, match="does not name its parameters"):
        from_stan(Stan())
    with pytest.raises(JobError, match="2 names for 1 parameters"):
        from_stan(Stan(), ["a", "b"])
    with pytest.raises(JobError, match="has no param_unc_num; wanted what bridgestan"):
        from_stan(object())  # type: ignore[arg-type]


def program(y: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    s = numpyro.sample("s", dist.Gamma(2.0, 0.5))
    w = numpyro.sample("w", dist.Uniform(-1.0, 3.0).expand([2]).to_event(1))
    e = numpyro.sample("e", dist.HalfNormal(mu**2 + 1))
    with numpyro.plate("rows", 4):
        numpyro.sample("y", dist.Normal(mu + w.sum() * e, s), obs=y)


def test_numpyro_sites_are_split_into_shared_and_own() -> None:
    """Against the densities of scipy, in the coordinates of NumPyro's bijections."""
    pytest.importorskip("numpyro")
    model = from_numpyro(program, ["mu", "s", "w"], Y)
    assert model.names == ("mu", "s", "w[1]", "w[2]")
    assert model.local_size == 1
    xi, u = np.array([0.4, -0.3, 0.2, 1.1]), np.array([-0.5])
    natural = model.natural(xi[np.newaxis])[0]
    p = 1 / (1 + np.exp(-xi[2:]))
    np.testing.assert_allclose(natural, [0.4, np.exp(-0.3), *(-1 + 4 * p)], rtol=1e-12)
    mu, s, *w = natural
    prior = (
        stats.norm.logpdf(mu, 1, 2) + stats.gamma.logpdf(s, 2, scale=2) - 0.3 + 2 * np.log(0.25) + np.log(4 * p * (1 - p)).sum()
    )
    assert model.log_prior(xi[np.newaxis])[0] == pytest.approx(prior, rel=1e-12)
    e = np.exp(-0.5)
    value = stats.halfnorm.logpdf(e, scale=mu**2 + 1) - 0.5 + stats.norm.logpdf(Y, mu + sum(w) * e, s).sum()
    found, of_xi, _ = model.log_joint_grad(xi, u)
    assert found == pytest.approx(value, rel=1e-12)
    slope = [(model.log_joint_grad(xi + h, u)[0] - model.log_joint_grad(xi - h, u)[0]) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(of_xi, slope, rtol=1e-6)
    prior_slope = [(model.log_prior((xi + h)[None])[0] - model.log_prior((xi - h)[None])[0]) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(model.log_prior_gradient(xi[None])[0], prior_slope, rtol=1e-6)


def test_numpyro_programs_that_have_no_place_here() -> None:
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    with pytest.raises(JobError, match="'nothing' is no latent site; there are mu, s, w, e"):
        from_numpyro(program, ["nothing"], Y)
    with pytest.raises(JobError, match="the latent site 'k' is discrete; sum it out"):
        from_numpyro(lambda: numpyro.sample("k", dist.Poisson(2.0)), ["k"])
    with refusal(JobError, "p", "3"):
        from_numpyro(lambda: numpyro.sample("p", dist.Dirichlet(np.ones(3))), ["p"])
    with pytest.raises(JobError, match="'q' is a param, which has no prior"):
        from_numpyro(lambda: (numpyro.param("q", 1.0), numpyro.sample("a", dist.Normal())), ["a"])
