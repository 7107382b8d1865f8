"""Unadjusted Langevin sampling with stochastic optimisation, for vertically split data."""
