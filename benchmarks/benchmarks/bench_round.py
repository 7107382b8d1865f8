"""What a round of each method costs, and where: kernels, machines, codec, ledger, hooks, transport.

    python benchmarks/benchmarks/bench_round.py [JOB ..]        # prints the table of benchmarks/results/round.txt
    python benchmarks/benchmarks/bench_round.py --mpi [JOB ..]  # whole rounds under mpirun with 2 and 4 ranks, too

A whole round is timed on a job that is only watched. Its causes are those of a second job of the same process, in which every
function at a border is wrapped: own times, medians over blocks of rounds. The wrapping costs about half a microsecond a call, so
the causes add up to a little more than the whole.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, ClassVar

import fedkern
from fedkern import _core
from fedkern.cli.__main__ import main as command
from fedkern.jobs.hooks import RunHooks
from fedkern.transports.codec import Codec
from fedkern.transports.driver import ClientSide, ServerSide

# Job -> what `fedkern simulate` makes, the changes of its job file, and rounds.
JOBS: dict[str, tuple[list[str], dict[str, Any], int]] = {
    "sparse": (["sparse", "--columns", "11", "--rows", "130"], {}, 3000),
    "sparse mrf": (["mrf", "--columns", "11", "--rows", "130"], {}, 1000),
    "pvi": (["logistic", "--columns", "5"], {}, 100),
    "vertical": (["vertical", "--clients", "10", "--rows", "500", "--columns", "2"], {}, 2000),
    "vertical amortised": (
        ["vertical", "--clients", "10", "--rows", "500", "--columns", "2"], {"algorithm": {"auxiliary": "amortised"}}, 1000,
    ),
}  # fmt: skip
BLOCKS = 20
CAUSES = ("kernels", "machines", "codec", "ledger", "hooks", "transport")
FAMILIES = ("augmented", "glm", "mlp", "optim", "privacy", "rng", "sem", "shrinkage", "spatial")
HOOKS = ("charge", "recall", "remember", "delivered", "observe", "checkpoint_due", "should_stop", "keep_client", "keep_server")


class Clock:
    """Own times of causes, and the seconds at which the server finished its rounds."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.rounds: list[tuple[float, Counter[str]]] = []
        self._inside = ["transport"]
        self._since = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.own[self._inside[-1]] += now - self._since  # type: ignore[assignment]
        self._since = now

    def timed(self, cause: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is this cause's."""

        def call(*arguments: Any, **options: Any) -> Any:
            self._turn()
            self._inside.append(cause)
            try:
                return function(*arguments, **options)
            finally:
                self._turn()
                self._inside.pop()

        return call

    def watched(self, feed: Callable[..., Any]) -> Callable[..., Any]:
        """`ServerSide.feed`, after which the time is noted where a round has ended."""

        def call(side: Any, *arguments: Any) -> None:
            before = getattr(side.state, "round", None)
            feed(side, *arguments)
            if getattr(side.state, "round", None) != before:
                self._turn()
                self.rounds.append((self._since, self.own.copy()))

        return call

    def blocks(self) -> Iterator[tuple[float, dict[str, float]]]:
        """Microseconds of a round, and of each cause: the mean of every block."""
        marks = self.rounds[len(self.rounds) // 10 :: max(1, len(self.rounds) // BLOCKS)]
        for (began, before), (ended, after) in pairwise(marks):
            n = max(1, len(self.rounds) // BLOCKS)
            yield 1e6 * (ended - began) / n, {cause: 1e6 * (after[cause] - before[cause]) / n for cause in CAUSES}


@contextmanager
def wrapped(clock: Clock, *, causes: bool) -> Iterator[None]:
    """Notes rounds; with `causes` everything else, too."""
    changed: list[tuple[Any, str, Any]] = []

    def change(owner: Any, name: str, new: Any) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    if causes:
        for name in ("encode", "decode", "readdress"):
            change(Codec, name, clock.timed("codec", getattr(Codec, name)))
        change(RunHooks, "sending", clock.timed("ledger", RunHooks.sending))
        for name in HOOKS:
            change(RunHooks, name, clock.timed("hooks", getattr(RunHooks, name)))
        change(ClientSide, "_ask", clock.timed("machines", ClientSide._ask))
        machine = ServerSide.feed
        change(ServerSide, "feed", clock.timed("machines", machine))
        for family in FAMILIES:
            module = getattr(_core, family)
            for name, function in vars(module).copy().items():
                if isinstance(function, BuiltinFunctionType):
                    change(module, name, clock.timed("kernels", function))
    change(ServerSide, "feed", clock.watched(ServerSide.feed))
    try:
        yield
    finally:
        for owner, name, old in reversed(changed):
            setattr(owner, name, old)


def job(name: str, folder: Path) -> Path:
    """The job file."""
    with redirect_stdout(io.StringIO()):
        command(["simulate", *JOBS[name][0], "--out", str(folder / "job")])
    return folder / "job" / "job.toml"


def run(name: str, *, causes: bool) -> Clock:
    """A job, with its ledgers."""
    clock, (_, changes, rounds) = Clock(), JOBS[name]
    with tempfile.TemporaryDirectory() as made:
        path = job(name, Path(made))
        with wrapped(clock, causes=causes):
            fedkern.run(path, job={"rounds": rounds}, **changes, out=Path(made) / "run")
    return clock


def forget_compiled() -> None:
    """Kernels look their functions up again."""
    from fedkern.kernels._record import KERNELS

    for kernel in KERNELS.values():
        kernel._loaded.pop("cpp", None)
        kernel.__dict__.pop("run", None)


def whole(name: str) -> float:
    """Microseconds of a round."""
    return statistics.median(us for us, _ in run(name, causes=False).blocks())


def split(name: str) -> dict[str, float]:
    """Microseconds of a round, by cause."""
    forget_compiled()
    blocks = [causes for _, causes in run(name, causes=True).blocks()]
    forget_compiled()
    return {cause: statistics.median(block[cause] for block in blocks) for cause in CAUSES}


class Round:
    """A whole round of each job, in this process (asv)."""

    params: ClassVar = [list(JOBS)]
    param_names: ClassVar = ["job"]
    unit = "us"

    def track_round(self, name: str) -> float:
        return whole(name)


def under_mpi(name: str, ranks: int) -> float:
    """Microseconds of a round under mpirun: by the seconds of metrics.jsonl."""
    _, changes, rounds = JOBS[name]
    sets = [f"job.rounds={rounds}", f"output.metrics_every={rounds // BLOCKS}"]
    sets += [f"{section}.{key}={value}" for section, keys in changes.items() for key, value in keys.items()]
    with tempfile.TemporaryDirectory() as made:
        path = job(name, Path(made))
        out = Path(made) / "out"
        mpirun = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "-n", str(ranks)]
        own = [sys.executable, "-P", "-m", "fedkern", "run", str(path), "--mpi", "--quiet", "--out", str(out)]
        more = [word for change in sets for word in ("--set", change)]
        subprocess.run([*mpirun, *own, *more], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    times = [(line["round"], line["seconds"]) for line in lines if "seconds" in line]
    return statistics.median(1e6 * (t - s) / (b - a) for (a, s), (b, t) in pairwise(times[2:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", default=list(JOBS), metavar="JOB")
    parser.add_argument("--mpi", action="store_true")
    options = parser.parse_args()
    head = ["round", *CAUSES, *(("2 ranks", "4 ranks") if options.mpi else ())]
    print("us a round; medians of blocks" + " " * 1 + "".join(f"{title:>11}" for title in head))
    for name in options.jobs or JOBS:
        causes = split(name)
        row = [whole(name), *causes.values(), *((under_mpi(name, n) for n in (2, 4)) if options.mpi else ())]
        print(f"{name:30}" + "".join(f"{us:11.0f}" for us in row), flush=True)


if __name__ == "__main__":
    main()
