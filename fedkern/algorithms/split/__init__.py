"""Variational inference for vertically split data."""
