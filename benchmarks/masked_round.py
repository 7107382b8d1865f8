"""What secure sums add to a round of a job: CPU time of all parties in one process, with masks and without.

    python benchmarks/masked_round.py JOB.toml [--rounds 200] [--repeats 3]
    FEDKERN_DATA=.. python benchmarks/masked_round.py --make FOLDER

Each job is run with 1 x and 2 x the rounds, so that reading, keys and the end of a run drop out of the difference. Runs take
turns; medians are printed. `--parts` prints instead, of one run, the CPU time of masks beside that of the machines that they are
around: on a busy machine two runs differ by more than masks cost.

`--make` writes the job of which docs/concepts/secure-sums.md has the figures, `FOLDER/job.toml`: homicides in 3,085 US counties
with 49 states as clients, method `sigma`, `inference = "sfvi"`, a prior that is exact inside each state with 40 numbers that tie
the states. It takes about a minute, and wants the counties in `$FEDKERN_DATA` (`papers/county_homicide.py` says which files).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import fedkern
from fedkern.algorithms.core import masked
from fedkern.privacy import masks

LATENTS = 40  # numbers that tie the states
JOB = """[job]
method = "sigma"
seed = 1
rounds = 60

[data]
clients = [{files}]
response = "y"
area = "county"
offset = "offset"
standardise = "none"

[model]
family = "poisson"
prior = "prior"

[algorithm]
inference = "sfvi"
"""


def make(folder: Path) -> None:
    """Writes the map of counties, its prior, a file for each state, and a job of these."""
    from papers import sigma_homicide
    from papers.common import write_csv

    folder.mkdir(parents=True, exist_ok=True)
    areas, data = sigma_homicide.counties()
    prior = sigma_homicide.built(folder, LATENTS)
    columns = {"county": areas.graph.names, "y": data.y, "offset": data.offset, **sigma_homicide.covariates()}
    for k, name in enumerate(prior.clients):
        write_csv(folder / f"{name}.csv", {column: np.asarray(of)[areas.client == k].tolist() for column, of in columns.items()})
    files = ", ".join(f'"{name}.csv"' for name in prior.clients)
    (folder / "job.toml").write_text(JOB.format(files=files), encoding="utf-8")


def seconds(job: Path, rounds: int, *, secure: bool) -> float:
    """Returns the CPU time of a run."""
    keys: dict[str, object] = {"rounds": rounds} | ({"sums": "secure"} if secure else {})
    began = time.process_time()
    fedkern.run(job, progress=False, job=keys)
    return time.process_time() - began


class Clock:
    """Adds up the CPU time that calls take, less that of calls within them that are timed, too."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.within = [0.0]

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a call whose own time is added to this name's."""

        def with_clock(*given: Any, **keys: Any) -> Any:
            self.within.append(0.0)
            began = time.thread_time()
            try:
                return call(*given, **keys)
            finally:
                taken = time.thread_time() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + taken - self.within.pop()
                self.within[-1] += taken

        return with_clock


def parts(job: Path, rounds: int) -> None:
    """Prints which share of a run's rounds is masks, by a clock around all that they do, and the bytes of their streams."""
    clock, streams = Clock(), [0]
    hide = masks.Pairs.hide

    def counted(own: masks.Pairs, words: masks.Words, *about: Any) -> None:
        streams[0] += words.nbytes * len(own.shared)
        hide(own, words, *about)

    # Of a wrapped protocol: all that the wrapper does, less what the machines beneath it do.
    made = masked.Sums.masked.fget
    assert made is not None

    def machines(own: masked.Sums) -> Any:
        bare = own.protocol
        receive = [clock.timed("machines", one) for one in (bare.server_receive, bare.client_receive)]
        return made(replace(own, protocol=replace(bare, server_receive=receive[0], client_receive=receive[1])))

    patches = [
        patch.object(masked.Sums, "masked", property(machines)),
        patch.object(masked.Sums, "_client_receive", clock.timed("masks, clients", masked.Sums._client_receive)),
        patch.object(masked.Sums, "_server_receive", clock.timed("masks, server", masked.Sums._server_receive)),
        patch.object(masks.Pairs, "hide", clock.timed("streams", counted)),
    ]
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        seconds(job, rounds, secure=True)
    for name, taken in clock.seconds.items():
        print(f"{name:16} {1e3 * taken / rounds:8.2f} ms a round")
    cipher, block = masks._encryptor(bytes(32)), bytes(1 << 16)
    began = time.thread_time()
    for _ in range(500):
        cipher.update_into(block, bytearray(len(block)))
    rate = 500 * len(block) / (time.thread_time() - began)
    bound = 1e3 * streams[0] / rounds / rate
    print(f"{'bound':16} {bound:8.2f} ms a round: {streams[0] / rounds / 1e6:.2f} MB of streams at {rate / 1e9:.2f} GB/s")
    extra = sum(taken for name, taken in clock.seconds.items() if name != "machines")
    print(f"masks are {100 * extra / clock.seconds['machines']:.0f} % of the time of the machines that they are around")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.make is not None:
        make(options.make)
        return
    if options.job is None:
        parser.error("JOB.toml is missing; --make FOLDER writes one")
    if options.parts:
        parts(options.job, options.rounds)
        return
    a_round: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.repeats):
        for secure, taken in a_round.items():
            once, twice = (seconds(options.job, k * options.rounds, secure=secure) for k in (1, 2))
            taken.append(1e3 * (twice - once) / options.rounds)
    plain, hidden = (statistics.median(taken) for taken in a_round.values())
    more = 100 * (hidden / plain - 1)
    print(f"ms of CPU a round, all parties together: {plain:.2f}, with masks {hidden:.2f}: {more:.0f} % more")


if __name__ == "__main__":
    main()
