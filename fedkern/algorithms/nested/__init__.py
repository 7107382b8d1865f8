"""Approximates all parties' posterior by nested Laplace approximation, with importance weights."""
