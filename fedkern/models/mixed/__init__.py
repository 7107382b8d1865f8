"""Regressions whose random effects stay at home.

eta_i = o_i + x_i' beta + z_i' T u_g + s_i' T_c v_j, with u_g ~ N(0, I) of each group and v_j ~ N(0, I) of each client; T and T_c
are lower triangular, so that the effects b_g = T u_g have the covariance T T'. Given xi the clients are independent: a client is
its log-likelihood of points xi, u_g and v_j integrated out (`Rows`).

xi, one layout for all, as it is sent:

    beta (p) | T by rows, (0,0), (1,0), (1,1), .., its diagonal as logarithms | T_c likewise | the dispersion, where there is one

The dispersion of "gaussian" is the logarithm of the standard deviation; of "negative-binomial" phi, with 1 / r = phi^2: near 0
the responses are nearly Poisson, and log r would have a long flat tail there. The likelihood is an even and smooth function of
phi, so who draws points of both signs folds them (`Layout.fold`).

Source: docs/spec/likelihood.md, sections 2 and 3.
"""

from __future__ import annotations

from .layout import Layout, Prior
from .rows import Rows

__all__ = ["Layout", "Prior", "Rows"]
