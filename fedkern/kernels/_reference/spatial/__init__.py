"""What the spatial kernels mean."""

from .table import table_sample

__all__ = ["table_sample"]
