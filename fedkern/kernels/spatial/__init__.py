"""Spatial priors (docs/spec/sigma.md, sections 3 and 9): conditional autoregressive models of areas, and Gaussian processes.

A map of n areas is a graph: a symmetric adjacency matrix W of zeros and ones without a diagonal, as compressed rows `indptr`
(n + 1,) and `indices`, rising in every row; D = diag(row sums), but 1 for an area without neighbours, which is then independent
N(0, 1) in every form. All arrays are float64 or int64.

======== ============================= ================================================
form     precision Q                   eigenvalues of
======== ============================= ================================================
"car"    D - phi W                     D^-1/2 W D^-1/2
"leroux" (1 - phi) I + phi (D - W)     D - W
"icar"   D - W, singular               D - W; with `icar_scale` the u* of BYM2
======== ============================= ================================================
"""

from __future__ import annotations

from . import car, eigen, gp, graph, table
from .car import *
from .eigen import *
from .gp import *
from .graph import *
from .table import *

__all__ = [*car.__all__, *eigen.__all__, *gp.__all__, *graph.__all__, *table.__all__]
