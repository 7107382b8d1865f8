"""Defines models whose log-likelihood the holders' own packages compute, and adapters that make such models."""

from .adapters import from_jax, from_numpyro, from_stan
from .supplied import Supplied

__all__ = ["Supplied", "from_jax", "from_numpyro", "from_stan"]
