"""All clients together against the specification in JAX: values, gradients, and what a federation adds up to."""

import numpy as np
import pytest

from oracles import sigma_jax as oracle
from support import sigma_cases as cases

SIZES = (cases.HIDDEN, cases.LOCAL, cases.WIDTH, cases.RANK, cases.P_G, cases.P_L)
CASES = [
    ("printed", "poisson", None),
    ("amended", "poisson", "constant"),
    ("amended", "binomial", "constant"),
    ("multiplicative", "bernoulli", None),
    ("multiplicative", "gaussian", "constant"),
]


def federation(variant, family, tau, seed=3, J=3):
    rng = np.random.default_rng(seed)
    scale = None if family == "gaussian" else 1.0
    sites = [cases.site(rng, variant, family, tau, scale=scale) for _ in range(J)]
    xi = rng.normal(0, 0.6, sites[0].n_global)
    return sites, xi, [rng.normal(0, 0.8, site.size) for site in sites]


def parts_of(site):
    decoder = site.decoder
    if decoder.variant == "multiplicative":
        flat = [np.concatenate([layer.W.ravel(), layer.b]) for layer in decoder._weights]
        return {"decoder_weights": np.concatenate(flat), "decoder": decoder._matrix.ravel()}

    def joined(layers):
        return np.concatenate([np.concatenate([layer.W.ravel(), layer.b]) for layer in layers])

    return {"global_decoder": joined(decoder._global), "prior": joined(decoder._prior), "decoder": joined(decoder._local)}


def in_jax(sites, xi, us, family):
    clients = []
    for site in sites:
        r, tau2 = site.rows, None if site.auxiliary is None else site.auxiliary.tau2[0]
        clients.append(
            (site.decoder.scale, parts_of(site), site.decoder.variant, SIZES, tau2, r.area, r.y, r.X, r.offset, r.trials)
        )
    known = None if family == "gaussian" else 1.0

    def value(xi, us):
        return oracle.log_joint(clients, cases.LO, cases.HI, family, known, 2, xi, us)

    return oracle.jax.value_and_grad(value, argnums=(0, 1))(xi, us)


@pytest.mark.parametrize(("variant", "family", "tau"), CASES)
def test_the_sum_over_clients_is_the_specification(variant, family, tau):
    sites, xi, us = federation(variant, family, tau)
    found = [site.log_joint_grad(xi, u) for site, u in zip(sites, us)]
    want, (g_xi, g_us) = in_jax(sites, xi, us, family)
    np.testing.assert_allclose(sum(value for value, _, _ in found), want, rtol=1e-10)
    np.testing.assert_allclose(sum(g for _, g, _ in found), g_xi, rtol=1e-10, atol=1e-10)
    for (_, _, g_u), wanted in zip(found, g_us):
        np.testing.assert_allclose(g_u, wanted, rtol=1e-10, atol=1e-10)


def test_negative_control_theta_for_the_latents_is_noticed(monkeypatch):
    """The published "theta_Lj" where z_Lj is meant."""
    sites, xi, us = federation("amended", "poisson", None)
    want, _ = in_jax(sites, xi, us, "poisson")
    right = type(sites[0].decoder).hat

    def wrong(self, z, u, t):
        return right(self, z, right(self, z, u, t).theta[:, : self.n_local], t)

    monkeypatch.setattr(type(sites[0].decoder), "hat", wrong)
    assert abs(sum(site.log_joint_grad(xi, u)[0] for site, u in zip(sites, us)) - want) > 1e-3
