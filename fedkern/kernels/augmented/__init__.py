"""The client's side of the augmented models: draws of its auxiliary variables, and gradients from the messages of the others.

One client has a design H (n, p), coefficients w, its part g = H w of the linear predictor, and auxiliary variables
z_i ~ N(g_i, sd rho). Variational families of z given w:

* mean-field: N(mean_i, sd exp(log_sd_i)), whatever w is;
* amortised: N(m, sd s) with m = g + o1, log s = log rho + o2 clamped to [-8, 4], where (o1, o2) are the values of one network
  (1 + e, *hidden, 2) with tanh at (g_i, extra_i). Its derivative is 0 where o2 is clamped. Parameters psi: see `mlp`.

A draw is z = m + s tau with standard normal tau that the caller gives, and keeps for the gradient: w, tau, z must be of one
draw. Gradients are of the evidence lower bound at that draw; the terms of the prior of w and of its own distribution are the
caller's. `message` is the derivative of the log-likelihood in z that comes from outside, `own` the one that enters through g.

* path=True, "sticking the landing": log q(z | w) with its own parameters held fixed; its variance goes to 0 where q is exact.
* path=False: the closed-form entropy sum log s.

`mean_field_iteration`, `amortised_iteration` and `network_iteration` are all that a client does between two messages, where its
coefficients are theta itself: a gradient, a step of Adam, the next draw. In the last the design is the values of another network.

All arrays are float64. Sums over rows are taken in an order that depends on n alone: results do not depend on `n_threads`.
"""

from __future__ import annotations

from . import gradients, iterations
from .gradients import *
from .iterations import *

__all__ = [*gradients.__all__, *iterations.__all__]
