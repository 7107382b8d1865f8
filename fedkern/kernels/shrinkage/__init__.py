"""Hierarchical sparse models: the conditionals of clients and server (sparse-models.md)."""

from __future__ import annotations

__all__: list[str] = []
