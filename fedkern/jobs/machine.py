"""What a run says of the machine and the versions that it had, and how many cores it may use."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    *("numpy", "scipy", "numba", "pydantic", "mpi4py", "dp-accounting", "cryptography"),
    *("arviz-stats", "arviz", "matplotlib"),
)
SHORT = ("fedkern", "python", "numpy", "scipy", "isa")


def versions() -> dict[str, str | None]:
    """Package -> version, None where it is not installed."""
    from .. import __version__

    found: dict[str, str | None] = {"fedkern": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def of_a_run() -> dict[str, str]:
    """What summary.json records: promised bits hold at equal versions and an equal instruction-set level."""
    from .. import _core

    known = {name: text for name, text in versions().items() if text is not None} | {"isa": _core.isa()}
    return {name: known[name] for name in SHORT}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
