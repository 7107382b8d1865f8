"""Whether any kernel is slower at a level of instructions than at the level below it.

    python benchmarks/isa.py [--only glm.] [--rounds 7] [--write]

A process has one level, so each level has its worker. The workers take turns: a round measures one case in all of them, one after
the other, in seconds of CPU. Cases are those of `fedkern.testing`, of sizes for which a call takes at least 20 us, and those of
the printed tables. A case is slower where its time over that of the level below, in the same round, has a median above
1 + `TOLERANCE`. It is then measured once more with three times as many rounds, and when all others have been measured, with nine
times as many: other work on the machine lasts for seconds. Cases that are slower each time are named, and the script ends with 1;
so it does where a kernel has no case that takes long enough. `--write` writes `benchmarks/results/isa.txt`. All levels have the
BLAS of the processor itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

LEVELS = ("baseline", "avx2", "avx512")
TOLERANCE = 0.08
LEAST, MOST = 20e-6, 20e-3  # seconds of a call
SLICE = 3e-3  # seconds that are measured at a time
SEEDS, KEPT = 10, 3
RESULTS = Path(__file__).parent / "results"

# Sizes of the cases by the beginning of a kernel's name: the first that fits. Rows and columns are both of that size in `glm`.
SIZES = {
    "rng.uniform": 50_000,
    "rng.": 30_000,
    "optim.": 60_000,
    "mlp.vae": 200,
    "mlp.": 5_000,
    "privacy.add_noise": 100_000,
    "privacy.discrete_gaussian": 3_000,
    "augmented.coefficients": 400,
    "augmented.": 10_000,
    "glm.clipped_grad_sum_full": 200,
    "glm.": 300,
    "multinomial.": 2_000,
    "survival.": 3_000,
    "shrinkage.global": 300,
    "shrinkage.local_sums": 20_000,
    "": 400,
}
# What stands in the place of a list of sizes of `fedkern.testing`, for the kernels whose names begin so. 3 sweeps become 20.
LARGER: dict[str, dict[tuple[int, ...], int]] = {
    "spatial.": {(1, 2, 3, 8, 17, 40): 150, (0, 1, 2, 7, 8, 9, 17): 32, (0, 1, 3): 8, (0, 1, 2, 3, 9, 33): 100},
    "sem.log_density": {(1, 2, 3, 5, 8, 9): 40, (1, 2, 7, 8, 9, 33, 65): 1000},
    "sem.": {(1, 2, 3): 1, (1, 3): 20},
    "shrinkage.global": {},
    "shrinkage.": {(1, 2, 3): 20, (1, 3): 20},
}


def largest(kernel: str, random: Any) -> Callable[[Sequence[Any]], Any]:
    """Returns how a case chooses: the largest of several sizes, and any of several forms."""
    more = next((table for begin, table in LARGER.items() if kernel.startswith(begin)), {})

    def choose(options: Sequence[Any]) -> Any:
        whole = all(isinstance(option, int) and not isinstance(option, bool) for option in options)
        if whole and tuple(options) in more:
            return more[tuple(options)]
        if whole:
            return max((option for option in options if option <= 64), default=min(options))  # seeds and counters stay small
        return options[int(random.integers(len(options)))]

    return choose


# A worker: one level --------------------


def named_cases() -> dict[str, Callable[[], Callable[[], Any]]]:
    """Returns the cases of the printed tables, by the kernel's name and the case's."""
    from benchmarks import bench_glm, bench_privacy, bench_sem, bench_shrinkage, bench_shrinkage_server, gate

    cases: dict[str, Callable[[], Callable[[], Any]]] = {}
    for p in bench_sem.SIZES:
        cases[f"sem.sweeps: p = {p}"] = lambda p=p: bench_sem.fedkern(bench_sem.Case(p), scales="expanded")  # type: ignore[misc]
    for name, case in bench_shrinkage.CASES.items():
        cases[f"shrinkage.local_sweeps: {name}"] = lambda case=case: bench_shrinkage.by_fedkern(case)  # type: ignore[misc]
    for p in (11, 217):
        moves = bench_shrinkage_server.Moves()

        def terms(p: int = p, moves: Any = moves) -> Callable[[], Any]:
            moves.setup(p)
            return lambda: moves.time_terms(p)

        def draw(p: int = p, moves: Any = moves) -> Callable[[], Any]:
            moves.setup(p)
            return lambda: moves.time_draw(p)

        cases |= {f"shrinkage.move_terms: p = {p}": terms, f"shrinkage.move: p = {p}": draw}
    for name, glm_case in gate.CLIPPED.items():
        cases[f"glm.clipped_grad_sum: {name}"] = lambda case=glm_case: bench_glm.clipped_by_fedkern(case)  # type: ignore[misc]
    for name, glm_case in gate.ELBO.items():
        cases[f"glm.elbo_grad: {name}"] = lambda case=glm_case: bench_glm.elbo_by_fedkern(case)  # type: ignore[misc]
    for sigma in (1, 1000, bench_privacy.GRID_SIGMA):
        cases[f"privacy.discrete_gaussian: sigma {sigma}"] = lambda sigma=sigma: bench_privacy.gaussian(5_000, sigma=sigma)  # type: ignore[misc]
    for shape in bench_privacy.SHAPES:
        for dtype in ("f4", "f8"):
            maker = lambda shape=shape, dtype=dtype: bench_privacy.CLIPPERS["fedkern"](bench_privacy.rows(shape, dtype))  # noqa: E731
            cases[f"privacy.clip_sum: {shape[0]} x {shape[1]} {dtype}"] = maker
    return cases


def generic_call(kernel: str, seed: int) -> Callable[[], Any] | None:
    """Returns a call of the case of a seed, or None where it holds numbers that are not finite."""
    import numpy as np

    from fedkern import testing
    from fedkern.kernels import KERNELS

    size = next(size for begin, size in SIZES.items() if kernel.startswith(begin))
    random = np.random.default_rng(seed)
    arguments = testing.maker(kernel)(testing.Source(largest(kernel, random), random, (size,), ("C",))).arguments
    arrays = (value for value in arguments.values() if isinstance(value, np.ndarray) and value.dtype.kind == "f")
    if not all(np.isfinite(array).all() for array in arrays):
        return None
    function = testing.public_function(KERNELS[kernel])
    return lambda: function(**arguments, backend="cpp", n_threads=1)


def once(call: Callable[[], Any], inner: int) -> float:
    """Returns seconds of CPU of a call, the mean of `inner`."""
    start = time.thread_time()
    for _ in range(inner):
        call()
    return (time.thread_time() - start) / inner


def work() -> None:
    """Answers a parent's questions, a line of JSON each: which cases a kernel has, and how long one takes."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    import numpy as np
    import scipy.linalg  # noqa: F401  # before `benchmarks`, which chooses a BLAS for the level

    from fedkern import _core
    from fedkern.kernels import KERNELS

    np.seterr(all="ignore")
    named = named_cases()
    current: tuple[str, Callable[[], Any]] = ("", lambda: None)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing but answers is written there
    print(json.dumps(_core.isa()), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer: Any
        if question["ask"] == "cases":
            answer = {"kernels": list(KERNELS), "named": list(named)}
        else:
            name = question["case"]
            if current[0] != name:
                kernel, _, seed = name.partition(": seed ")
                made = generic_call(kernel, int(seed)) if seed else named[name]()
                current = (name, made) if made else ("", lambda: None)
                if made:
                    made()
            answer = once(current[1], question["inner"]) if current[0] == name else None
        print(json.dumps(answer), file=answers, flush=True)


# The parent --------------------


class Worker:
    """One level's process."""

    def __init__(self, level: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        environment |= {"FEDKERN_ISA": level, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.level = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("a worker ended: see above")
        return json.loads(line)

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.read()

    def seconds(self, case: str, inner: int) -> float | None:
        value: float | None = self.ask(ask="seconds", case=case, inner=inner)
        return value


def measure(workers: Sequence[Worker], case: str, inner: int, rounds: int) -> list[list[float]]:
    """Returns each level's seconds, a number for each round; levels take turns, in both orders."""
    measured: list[list[float]] = [[] for _ in workers]
    for i in range(rounds):
        order = list(zip(workers, measured))
        for worker, values in order if i % 2 else reversed(order):
            values.append(worker.seconds(case, inner) or 1e-9)
    return measured


def ratios(measured: Sequence[Sequence[float]]) -> list[float]:
    """Returns the medians over the rounds of each level's time over that of the level below, in the same round."""
    return [statistics.median(a / b for a, b in zip(above, below)) for below, above in pairwise(measured)]


def is_slower(measured: Sequence[Sequence[float]]) -> bool:
    return any(ratio > 1 + TOLERANCE for ratio in ratios(measured))


def describe(case: str, measured: Sequence[Sequence[float]]) -> str:
    """Returns the line of a case: each level's median in us, and each level over the one below."""
    seconds = "".join(f"{1e6 * statistics.median(values):11.1f}" for values in measured)
    mark = "  SLOWER" if is_slower(measured) else ""
    return f"{case:58}{seconds}   " + "".join(f"{ratio:7.2f}" for ratio in ratios(measured)) + mark


def lasts(workers: Sequence[Worker], case: str) -> bool:
    """Returns whether a call takes long enough to be compared, and not too long, at the highest level.

    All workers make the same calls, so that their heaps are alike: where an array lies in a page changes a time by up to a half.
    """
    if [worker.seconds(case, 1) for worker in workers][-1] is None:  # makes the call once before, too
        return False
    return LEAST <= min([worker.seconds(case, 3) or 0.0 for worker in workers][-1] for _ in range(3)) <= MOST


def choose_cases(workers: Sequence[Worker], only: str) -> tuple[list[str], list[str]]:
    """Returns the cases that are measured, and the kernels of which none takes long enough."""
    told = workers[-1].ask(ask="cases")
    chosen, short = [], []
    for kernel in (kernel for kernel in told["kernels"] if kernel.startswith(only)):
        drawn = (f"{kernel}: seed {seed}" for seed in range(SEEDS))
        cases = [case for case in told["named"] if case.startswith(kernel + ":") and lasts(workers, case)]
        cases += list(islice((case for case in drawn if lasts(workers, case)), KEPT))
        chosen += cases
        if not cases:
            short.append(kernel)
    return chosen, short


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", default="", help="kernels whose names begin so")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/isa.txt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    sys.path.insert(0, str(Path(__file__).parent))
    from benchmarks import common

    workers = [Worker(level) for level in LEVELS]
    workers = [worker for i, worker in enumerate(workers) if worker.level == LEVELS[i]]  # those that the processor has
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    command = "python benchmarks/isa.py" + (f" --only {given.only}" if given.only else "")
    tell(f"{command}; medians of {given.rounds} turns, us of CPU of a call; SLOWER: above {1 + TOLERANCE:.2f} of the level below")
    tell(common.machine())
    tell(f"{'':58}" + "".join(f"{worker.level:>11}" for worker in workers) + "   each level over the one below")
    suspects: dict[str, int] = {}
    cases, short = choose_cases(workers, given.only)
    for case in cases:
        inner = max(1, int(SLICE / max([worker.seconds(case, 1) or SLICE for worker in workers][-1], 1e-6)))
        measured = measure(workers, case, inner, given.rounds)
        if is_slower(measured):
            measured = measure(workers, case, inner, 3 * given.rounds)
        if is_slower(measured):
            suspects[case] = inner
        tell(describe(case, measured))
    found: list[str] = []
    if suspects:
        tell(f"those once more, {9 * given.rounds} turns:")
    for case, inner in suspects.items():
        measured = measure(workers, case, inner, 9 * given.rounds)
        tell(describe(case, measured))
        if is_slower(measured):
            found.append(case)
    tell(f"{len(cases)} cases, {len(found)} slower than the level below: {'; '.join(found) or 'none'}")
    if short:
        tell(f"no case of at least {1e6 * LEAST:.0f} us: {', '.join(short)}; give them sizes in SIZES or LARGER")
    tell(common.machine())
    if given.write:
        (RESULTS / "isa.txt").write_text("\n".join(lines) + "\n")
    for worker in workers:
        worker.process.stdin.close()  # type: ignore[union-attr]
        worker.process.wait()
    return 1 if found or short else 0


if __name__ == "__main__":
    sys.exit(main())
