"""Hierarchical sparse models (sparse.md): regressions y_k = X_k theta_k + e at sites k, theta_k = theta + deviation_k.

    deviation_kj ~ N(0, lambda_kj^2 tau_j^2),  lambda_kj ~ C+(0, scale_lambda),  tau_j ~ C+(0, scale_tau)

All arrays are float64; the first axis of a state is the chain, and several chains in one call give the bits of each alone. A
kernel changes none of its inputs; an input that is the same for all chains may be a broadcast view. Random numbers are named by
(seed, chain, client, step), so that results depend neither on `n_threads` nor on the other chains of a call.
"""

from __future__ import annotations

from . import local, rows, server
from .local import *
from .rows import *
from .server import *

__all__ = [*local.__all__, *rows.__all__, *server.__all__]
