"""Describes a run's machine and versions, and how many cores it may use."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ..transports.cores import usable_cores

PACKAGES = (
    *("numpy", "scipy", "numba", "pydantic", "mpi4py", "dp-accounting", "cryptography"),
    *("arviz-stats", "arviz", "matplotlib"),
)
SHORT = ("numpy", "scipy")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str | None]:
    """Returns the version of each package; None where it is not installed."""
    from .. import __version__

    known: dict[str, str | None] = {"fedkern": __version__, "python": platform.python_version()}
    return known | {package: _installed(package) for package in packages}


@cache  # a file is read and parsed for each, and a job asks for all
def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def of_a_run() -> dict[str, str]:
    """Returns the versions that summary.json records: promised bits hold at equal versions and an equal instruction-set level."""
    from .. import _core

    return {name: text for name, text in versions(SHORT).items() if text is not None} | {"isa": _core.isa()}


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(usable_cores())
