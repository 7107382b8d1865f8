"""Kernels over the best peer, before a change and now, at AVX2 and AVX-512.

    python benchmarks/kernel_ratios.py --before TREE [--only mixed. multinomial.] [--write]

TREE is a checkout in which the extension was compiled in place. Each table is of `python -m benchmarks.gate` in a process of
its own: pairs take turns there, in seconds of CPU. Both checkouts have the peers of this one, which have no more instructions
than the level at hand: BLAS and Numba are told of a Haswell at AVX2, and NumPy to leave AVX-512 alone. `--write` writes
`benchmarks/results/kernel-ratios.txt`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "kernel-ratios.txt"
PEERS = {
    "avx512": {},
    "avx2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NPY_DISABLE_CPU_FEATURES": "AVX512_SPR AVX512_ICL X86_V4",
    },
}
LINE = re.compile(r"(.+?)\s{2,}([\d.]+)\s+([\d.]+)  (\w+)")


def gate(tree: Path, level: str, only: list[str]) -> tuple[dict[str, tuple[float, float, str]], str]:
    """Returns microseconds, the peer's time over ours and the peer's name, by kernel; and the line about the machine."""
    fixed = {"PYTHONPATH": str(tree), "FEDKERN_ISA": level, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gate", *only]
    done = subprocess.run(command, cwd=HERE, env=os.environ | PEERS[level] | fixed, capture_output=True, text=True, check=True)
    rows = [match for line in done.stdout.splitlines() if (match := LINE.fullmatch(line))]
    return {m[1]: (float(m[2]), float(m[3]), m[4]) for m in rows}, done.stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["mixed.", "multinomial.", "survival."])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = [
        "python benchmarks/kernel_ratios.py: our seconds of CPU over the best peer's (smaller is better; wanted: 1.1 at most)"
    ]
    for level in PEERS:
        before, _ = gate(given.before.resolve(), level, given.only)
        now, machine = gate(HERE.parent, level, given.only)
        lines += ["", f"{level}; {machine}", f"{'':42}{'us before':>12}{'us now':>10}{'before':>10}{'now':>8}  peer"]
        for name, (us, ratio, peer) in now.items():
            lines.append(f"{name:42}{before[name][0]:12.1f}{us:10.1f}{1 / before[name][1]:10.2f}{1 / ratio:8.2f}  {peer}")
    print("\n".join(lines))
    if given.write:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
