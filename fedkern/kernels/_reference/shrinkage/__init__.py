"""Defines the kernels of the sparse models in plain NumPy."""
