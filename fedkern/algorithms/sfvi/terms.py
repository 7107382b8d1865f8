"""Estimates a client's log-likelihood with its own unknowns integrated out, at given global ones.

It samples from q(u | xi): the mean of p(y, u | xi) / q(u | xi) over draws of u is an unbiased estimate of p(y | xi), whatever q
is. So weights of xi that are made of it have the exact posterior as their target; a poor q(u | xi) makes them uneven, which their
k-hat shows. Source: docs/concepts/convergence.md, "Whether it is right".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ...kernels import rng
from ...models.spatial.within_site import WithinSite
from .client import Client

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

INNER = 16  # draws of theta for each xi, where clients' areas are integrated out
TOGETHER = 50  # xi whose priors are known at once
SAMPLED = 4  # of u elsewhere, each of which takes as long as a step


def log_terms(state: Client, xi: Matrix, key: int, first: int = 0) -> Vector:
    """Returns estimates (m,) of log p(y | xi) at xi (m, P).

    Parameters
    ----------
    key : of the draws of u, a stream of the client's own number
    first : number of the first of xi among all that are asked about
    """
    family, model = state.family, state.model
    if isinstance(model, WithinSite) and model.integrated and model.likelihood.record.link == "identity":  # exactly
        parts = np.split(xi, range(TOGETHER, len(xi), TOGETHER))
        return np.concatenate([model.log_joint_grads(part, np.zeros((len(part), 0)))[0] for part in parts])
    if isinstance(model, WithinSite) and model.integrated:
        d = model.n_areas
        return np.array([model.log_marginal(x, _normals(key, state.index, first + k, INNER, d)) for k, x in enumerate(xi)])
    assert state.centre is not None
    out = np.empty(len(xi))
    for k, x in enumerate(xi):
        eps = _normals(key, state.index, first + k, SAMPLED, family.n_normals)
        ratios = [family.gradient(model, state.parameters, x, state.centre, e, bound=True)[0] for e in eps]
        out[k] = logsumexp(ratios) - np.log(SAMPLED)
    return out


def _normals(key: int, client: int, step: int, inner: int, size: int) -> Matrix:
    return rng.normal(inner * size, key=key, client=client, step=step).reshape(inner, size)
