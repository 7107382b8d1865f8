"""Collects the modules that the engine asks of this method."""

from __future__ import annotations

from ...jobs.method import Method
from . import keys, predict, report, rows, run, show, stages

METHOD: Method[keys.Config] = Method(keys, rows, run, stages, show, report, predict)
