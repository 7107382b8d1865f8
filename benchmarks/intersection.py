"""What it costs to find the rows that two parties have in common: `python benchmarks/intersection.py [--ids 100000]`.

Processor seconds of each party, and bytes that it sends and receives for each id. Writes `results/intersection.txt`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from fedkern.algorithms.exchanges import intersection
from fedkern.transports.codec import Codec

ROOT = Path(__file__).parents[1]
NAMES = ("a", "b")


def costs(n: int) -> tuple[list[float], list[int], int]:
    """Processor seconds and bytes by party, and how many ids both have. Nine ids of ten are the other's, too."""
    members: dict[int, Any] = {
        k: intersection.Member(name, tuple(str(i + k * n // 10) for i in range(n)), 1, n) for k, name in enumerate(NAMES)
    }
    codec, seconds, sizes = Codec(intersection.dims(n), len(NAMES)), [0.0] * len(NAMES), [0] * len(NAMES)
    server, waiting = intersection.start(NAMES, n, 1)
    while waiting:
        (k, question), *waiting = waiting
        began = time.process_time()
        members[k], answers = intersection.client_receive(members[k], question)
        seconds[k] += time.process_time() - began
        sizes[k] += len(codec.encode(k, question)) + sum(len(codec.encode(k, answer)) for answer in answers)
        for answer in answers:
            server, more = intersection.PROTOCOL.server_receive(server, k, answer)
            waiting += more
    return seconds, sizes, server.size


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ids", type=int, default=100_000)
    n = options.parse_args().ids
    seconds, sizes, common = costs(n)
    text = (
        f"two parties of {n:,} ids, {common:,} of both: {max(seconds):.1f} s of a core a party, {max(sizes) / n:.1f} bytes an id"
    )
    print(text)
    (ROOT / "benchmarks" / "results" / "intersection.txt").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
