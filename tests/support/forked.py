"""`fedkern ARGUMENTS` in a process of its own that need not import the package: a server process has, and forks for each command.

A fresh Python takes a second of a processor for its imports. Only tests of the start of a process need one: of what is imported,
of what the environment says to libraries that are loaded, of how Python finds this package. They have `command.python`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .command import Ended

# All methods, and what a run and its report load when they need it; nothing of any package beside this one.
IMPORTED = (
    "fedkern.cli.__main__",
    "fedkern.cli.job",
    "fedkern.cli.report",
    *(f"fedkern.methods.{name}.doors" for name in ("likelihood", "pvi", "sparse", "vertical", "sigma")),
    "h5py",
)
seconds = 0.0  # of the processor, in all commands: the server process waits for them, and not this one


@cache
def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    return context


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
    global seconds
    words, variables = [str(argument) for argument in arguments], {**os.environ, **(environment or {})}
    with tempfile.TemporaryDirectory() as said:
        place = Path(said)
        started = _context().Process(target=_run, args=(words, variables, str(folder), first and str(first), str(place)))
        started.start()
        started.join(timeout)
        if started.is_alive():
            started.kill()
            started.join()
            raise TimeoutError(f"fedkern {' '.join(words)} did not end within {timeout} s")
        if (used := place / "seconds").exists():
            seconds += json.loads(used.read_text())
        assert started.exitcode is not None
        return Ended(started.exitcode, (place / "out").read_text(), (place / "err").read_text())


def _run(words: list[str], environment: dict[str, str], folder: str, first: str | None, said: str) -> None:
    """In the fork: as `python -P -m fedkern` of that environment would."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{said}/{name}", os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [] if first is None else [first]
    sys.argv[:] = ["fedkern", *words]
    from fedkern.cli.__main__ import main

    try:
        sys.exit(main(words))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        Path(f"{said}/seconds").write_text(json.dumps(sum(one.ru_utime + one.ru_stime for one in used)))
