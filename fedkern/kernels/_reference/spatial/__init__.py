"""Defines the spatial kernels in plain NumPy."""
