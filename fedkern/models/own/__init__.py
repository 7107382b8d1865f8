"""Defines models whose log-likelihood the holders' own packages compute, and adapters that make such models."""

from .from_jax import from_jax
from .from_numpyro import from_numpyro
from .from_stan import from_stan
from .supplied import Supplied

__all__ = ["Supplied", "from_jax", "from_numpyro", "from_stan"]
