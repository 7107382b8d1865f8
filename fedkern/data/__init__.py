"""Turns files, built-in sets and simulations into the arrays that kernels read."""
