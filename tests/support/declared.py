"""All modules of algorithms, and the exchanges that the classes of their answers declare."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import fedkern.algorithms
from fedkern.algorithms.core.exchange import Exchange
from fedkern.algorithms.core.messages import KINDS

MODULES = [import_module(found.name) for found in pkgutil.walk_packages(fedkern.algorithms.__path__, "fedkern.algorithms.")]
DECLARED = [kind for kind in KINDS.values() if issubclass(kind, Exchange) and kind.__module__.startswith("fedkern.")]
QUESTIONS = [kind for kind in DECLARED if kind.question.name]
