"""Cases of the augmented models' kernels."""
