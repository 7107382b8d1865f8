"""From files, built-in sets and simulations to the arrays that kernels read."""
