"""Defines the network kernels in plain NumPy."""
