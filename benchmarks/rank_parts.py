"""Measures the CPU time of each part of a rank's life under `fedkern launch`: imports, arrival, accountant, and the run.

    FEDKERN_DATA=.. python benchmarks/rank_parts.py mpi/adult-dp.toml 11

A part ends where the first module of the next one is looked for, so that nothing in a rank is changed. The job must be private:
its clients import dp-accounting and then cryptography, and the server neither, whose arrival counts as its
run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ENDS = {
    "fedkern.transports.mpi": "interpreter and imports",
    "dp_accounting": "MPI_Init, arrival, reading",
    "dp_accounting.rdp": "import of dp-accounting",
    "cryptography": "plan",
    "exit": "the run, writing",
}
MARKS = f"""
import os, sys
if "OMPI_COMM_WORLD_RANK" in os.environ and "--mpi" in sys.orig_argv:
    import atexit, time
    marks = {{}}
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in {set(ENDS)!r}:
                marks.setdefault(name, time.process_time())
    sys.meta_path.insert(0, Finder)
    @atexit.register
    def write():
        marks["exit"] = time.process_time()
        with open(os.path.join(os.environ["RANK_PARTS"], os.environ["OMPI_COMM_WORLD_RANK"]), "w") as file:
            print(*(f"{{name}} {{seconds}}" for name, seconds in marks.items()), sep="\\n", file=file)
"""


def main(job: str, ranks: int) -> None:
    """Runs the job once and prints seconds of CPU: of the server, the mean of the clients, and of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(MARKS)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "fedkern", "launch", "-n", str(ranks), job, "--out", f"{folder}/run", "--quiet"]
        subprocess.run(command, env=os.environ | {"PYTHONPATH": path, "RANK_PARTS": folder}, check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        texts = [(Path(folder) / str(rank)).read_text() for rank in range(ranks)]
    marks = [dict(line.split() for line in text.splitlines()) for text in texts]
    print(f"{'part':<30}{'server':>8}{'client':>8}")
    before = [0.0] * ranks
    for name, part in ENDS.items():
        now = [float(m.get(name, last)) for m, last in zip(marks, before)]
        spent = [b - a for a, b in zip(before, now)]
        print(f"{part:<30}{spent[0]:>8.2f}{sum(spent[1:]) / (ranks - 1):>8.2f}")
        before = now
    total = used.ru_utime + used.ru_stime
    for what, seconds in (("all ranks", sum(before)), ("launcher, mpirun", total - sum(before)), ("together", total)):
        print(f"{what:<30}{seconds:>8.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
