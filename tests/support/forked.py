"""`fedkern ARGUMENTS` in a process of its own that need not import the package: the server of `rank.py` has, and forks.

A fresh Python takes a second of a processor for its imports. Only tests of the start of a process need one: of what is imported,
of what the environment says to libraries that are loaded, of how Python finds this package. They have `command.python`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.command import Ended, forking

# All methods, and what a run and its report load when they need it; nothing of any package beside this one.
IMPORTED = (
    "fedkern.cli.__main__",
    "fedkern.cli.job",
    "fedkern.cli.report",
    *(f"fedkern.methods.{name}.doors" for name in ("likelihood", "pvi", "sparse", "vertical", "sigma", "describe")),
    "h5py",
)


def fedkern(
    *arguments: str | Path,
    folder: Path,
    first: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> Ended:
    """Exit code, standard output and standard error of the command.

    Parameters
    ----------
    folder : where it runs
    first : a folder in which modules and packages are found before all others, as if it led PYTHONPATH
    environment : variables beside those of this process
    """
    words = [*forking(), __file__, str(first or ""), *map(str, arguments)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=timeout, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


if __name__ == "__main__":  # in the fork: as `python -P -m fedkern` of that environment would
    sys.path[:0] = [sys.argv[1]] if sys.argv[1] else []
    sys.argv[:] = ["fedkern", *sys.argv[2:]]
    from fedkern.cli.__main__ import main

    sys.exit(main(sys.argv[1:]))
