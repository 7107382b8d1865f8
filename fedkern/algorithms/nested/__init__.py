"""Nested Laplace approximation of all parties' posterior, with importance weights."""
