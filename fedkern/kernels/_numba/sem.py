"""Computes the cyclic structural equation model for Numba: the text of the reference, compiled."""

from .._reference import sem as _text
from . import rng
from ._jit import compiled, copied
from .shrinkage.server import local_variances

_compiled = compiled(_text, rng=rng, copied=copied, local_variance=local_variances)
log_density, sweeps = _compiled["log_density"], _compiled["sweeps"]
invert, is_contraction, update_inverse = (_compiled[name] for name in ("invert", "is_contraction", "update_inverse"))
