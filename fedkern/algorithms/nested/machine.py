"""Defines a nested Laplace approximation of the unknowns that clients share, deterministic, with weights that say whether it is
right.

xi = (h, u): h the few hyperparameters on which linear predictors depend in another way (phi, sigma_theta, sigma), u all else
(z_G, b, beta), whose prior is Gaussian. A client integrates its areas out given xi; F_j(xi) is its log-likelihood. The server
works in v, coordinates of h in which their prior is standard normal.

1. At several values of v at once it takes Newton steps to the mode u*(v) of p(u | v, y): each client answers with F_j, its
   gradient in u and minus its Hessian. Then log p(v | y) = log p(v) + log p(u*) + sum F_j - log|H| / 2 but for a constant, H
   minus the Hessian of all terms (Laplace).
2. Central differences of that, on stencils, lead to its mode.
3. From there a lattice grows along the axes of the Hessian, until the density all around it is negligible (`design`).
4. Draws of (v, u) come from the values at these points, as functions between the points (`proposals`). Each client answers with
   log p(y_j | xi), and a draw's weight is the posterior's density over that of the draws: Laplace's error is gone, and k-hat, the
   draws of equal weight and the differences between scrambled nets say how well all means and standard deviations are known.

It takes 20 to 150 questions where steps of an optimiser take thousands, and has no learning rate. Source: docs/spec/sigma.md,
section 6.8; Rue, Martino and Chopin (2009).
"""

from __future__ import annotations

from ..core.kept import load, save
from ..core.messages import Protocol
from .client import Client, Model, client, client_receive
from .messages import AskCurvatures, AskMarginals, Curvatures, Marginals, Mixture
from .server import Prior, Server, finished, offset, server_receive, start, weighted
from .settings import Settings
from .verdicts import Found, read_result

__all__ = [
    "PROTOCOL", "AskCurvatures", "AskMarginals", "Client", "Curvatures", "Found", "Marginals", "Mixture", "Model", "Prior",
    "Server", "Settings", "client", "client_receive", "finished", "load", "offset", "read_result", "save",
    "server_receive", "start",
    "weighted",
]  # fmt: skip

PROTOCOL: Protocol[Server, Client] = Protocol(
    "nested",
    (AskCurvatures, AskMarginals, Mixture),
    (Curvatures, Marginals),
    server_receive,
    client_receive,
    finished,
    save,
    load,
)
