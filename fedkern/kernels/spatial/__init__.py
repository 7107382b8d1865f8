"""Spatial priors (sigma.md, sections 3 and 9): conditional autoregressive models of areas, and Gaussian processes.

A map of n areas is a graph: a symmetric adjacency matrix W of zeros and ones without a diagonal, as compressed rows `indptr`
(n + 1,) and `indices`, rising in every row; D = diag(row sums). All arrays are float64 or int64.
"""

from __future__ import annotations

from .table import DrawTable, table_sample

__all__ = ["DrawTable", "table_sample"]
