"""Fully connected networks, and the variational autoencoder that is made of them (docs/spec/sigma.md, sections 1 and 2).

All arrays of a call have one type, float32 or float64, but where said otherwise; results do not depend on `n_threads`.
"""

from __future__ import annotations

from .architecture import *
from .networks import *
from .vae import *
