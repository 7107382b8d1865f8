"""Cases of the spatial kernels."""

from __future__ import annotations

from .table import table_sample

__all__ = ["table_sample"]
