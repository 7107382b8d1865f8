"""Networks: products by cuBLAS, and between them kernels that fuse what is done to each number."""
