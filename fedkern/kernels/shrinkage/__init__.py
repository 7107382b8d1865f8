"""Hierarchical sparse models: the conditionals of clients and server (sparse-models.md)."""

from __future__ import annotations

from .moves import move, move_terms
from .server import global_sweep, global_sweep_sums, local_sums

__all__ = ["global_sweep", "global_sweep_sums", "local_sums", "move", "move_terms"]
