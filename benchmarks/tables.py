"""Writes the tables of all levels of instructions of this processor: kernels beside their peers, levels beside each other.

    python benchmarks/tables.py [--only speed|isa]

`benchmarks/results/speed-LEVEL.txt` is the output of `python -m benchmarks.gate` with `FEDKERN_ISA=LEVEL`, `isa.txt` that of
`benchmarks/isa.py`. About 4 minutes. A table says which processor it is of, and whether others were working on it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LEVELS = ("baseline", "avx2", "avx512")


def write_speed(level: str) -> None:
    """Writes the table of one level, if the processor has it."""
    environment = os.environ | {"FEDKERN_ISA": level}
    ask = [sys.executable, "-c", "from fedkern import _core; print(_core.isa())"]
    if subprocess.run(ask, env=environment, capture_output=True, text=True, check=True).stdout.strip() != level:
        print(f"{level}: not of this processor", flush=True)
        return
    command = [sys.executable, "-m", "benchmarks.gate"]
    output = subprocess.run(command, env=environment, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout
    (HERE / "results" / f"speed-{level}.txt").write_text(output)
    print(output, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["speed", "isa"])
    only = parser.parse_args().only
    if only != "isa":
        for level in LEVELS:
            write_speed(level)
    return subprocess.run([sys.executable, HERE / "isa.py", "--write"]).returncode if only != "speed" else 0


if __name__ == "__main__":
    sys.exit(main())
