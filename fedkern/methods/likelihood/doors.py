"""Gathers the files of this method that the engine asks."""

from __future__ import annotations

from ...jobs.method import Method
from . import keys, predict, replay, report, rows, run, show, stages

METHOD: Method[keys.Config] = Method(keys, rows, run, stages, show, report, predict, replay)
