"""Launches of the kernels of csrc/cuda: which instance, on which grid, with which workspace."""
