"""`mpirun -n N python many_jobs.py FILE`: runs the commands that FILE lists, one after the other: MPI starts slowly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpi4py import MPI

from fedkern.cli.__main__ import main


def run(path: Path) -> None:
    """A line on standard output after each command: its name and exit code."""
    for name, arguments in json.loads(path.read_text()):
        code = main([*arguments, "--mpi"])
        sys.stderr.flush()
        MPI.COMM_WORLD.Barrier()
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps([name, code]), flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
