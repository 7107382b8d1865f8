"""Computes networks: products by cuBLAS, and between them kernels that fuse the work on each number."""
