"""Defines the client's kernels of the augmented models in plain NumPy."""
