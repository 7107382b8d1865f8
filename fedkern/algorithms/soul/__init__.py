"""Samples by unadjusted Langevin steps with stochastic optimisation, for vertically split data."""
