"""The whole cuda backend on a machine with a card, in one command: conformance, equal bits, and each kernel beside its floor.

    pip install 'fedkern[cuda13]'          # or [cuda12]
    python benchmarks/gpu_check.py         # writes results/cuda-CARD.txt

`--emulate` runs the same checks on the host's emulator, at small sizes and without times, so that this script itself is tested.
The exit code is 1 where a kernel does not conform or has other bits at a second run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from fedkern import kernels, testing
from fedkern.kernels._cuda import device
from fedkern.kernels._record import KERNELS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from gpu_works import Ceilings, works  # noqa: E402

CASES = 40  # of random sizes, for each kernel
TIMES, SEVERAL = 12, 10  # runs that are timed, and calls in each
LONG = 0.02  # seconds: what takes longer is called once


# Sizes beyond the random ones: rows of several widths, several blocks.
SIZES = {"rng": ((1000, 4097),), "glm": ((100,), (200,), (300,), (20, 600))}


def checked(names: list[str], count: int, emulated: bool = False) -> Iterator[str]:
    """Conformance on fresh inputs of several sizes; a line for each kernel. The emulator, which is slow, gets no large ones."""
    for name in names:
        began, fault, done = time.perf_counter(), "", 0
        sizes = ((9, 33),) if emulated else SIZES.get(name.partition(".")[0], ((70, 600),))
        try:
            small = [testing.case(name, seed) for seed in range(count)]
            large = [testing.case(name, seed, some) for some in sizes for seed in range(count // 10 or 1)]
            for case, once in (*((one, False) for one in small), *((one, emulated) for one in large)):
                testing.assert_conforms(name, "cuda", case, once=once)
                done += 1
        except Exception as error:  # whatever one kernel does, the others are checked too
            fault = f"DOES NOT CONFORM: {type(error).__name__}: " + " ".join(str(error).split())[:150]
        yield f"{name:32} {fault or f'conforms, {done} cases'} ({time.perf_counter() - began:.1f} s)"


def digest(name: str, cases: int = 3) -> str:
    """Of what a kernel makes of some cases."""
    made = blake2b(digest_size=8)
    for seed in range(cases):
        for result in testing.results_of(name, _there(name, seed), backend="cuda"):
            made.update(np.asarray(testing.on_host(result)).tobytes())
    return made.hexdigest()


def _there(name: str, seed: int) -> testing.Case:
    case = testing.case(name, seed)
    return replace(case, arguments={key: testing.at_home("cuda", value) for key, value in case.arguments.items()})


def beside_another_process(names: list[str], only: str) -> str:
    """Two processes compute on the card at once, one of them on two streams in turn."""
    command = [sys.executable, __file__, "--digests", "--only", only]
    xp, other = device.current().xp, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    streams, mine = [xp.cuda.Stream(non_blocking=True) for _ in range(2)], dict[str, str]()
    for i, name in enumerate(names):
        with streams[i % 2]:
            mine[name] = digest(name)
    told = other.communicate()[0]
    theirs = dict(line.split() for line in told.splitlines())
    differ = [name for name in names if mine[name] != theirs.get(name)]
    return "two processes at once, one on streams of its own: " + (
        f"OTHER BITS of {', '.join(differ)}" if differ else "equal bits"
    )


def two_streams_at_once(names: list[str]) -> str:
    """Each kernel on two streams, before either is waited for."""
    xp, differ = device.current().xp, list[str]()
    for name in names:
        cases, streams, found = (
            [_there(name, seed) for seed in range(4)],
            [xp.cuda.Stream(non_blocking=True) for _ in range(2)],
            [],
        )
        xp.cuda.Device().synchronize()
        for i, case in enumerate(cases):
            with streams[i % 2]:
                found.append(testing.results_of(name, case, backend="cuda"))
        xp.cuda.Device().synchronize()
        again = [testing.results_of(name, case, backend="cuda") for case in cases]
        if _bits(found) != _bits(again):
            differ.append(name)
    return "two streams at once: " + (f"OTHER BITS of {', '.join(differ)}" if differ else "equal bits")


def _bits(found: list[testing.Results]) -> list[bytes]:
    return [np.asarray(testing.on_host(result)).tobytes() for results in found for result in results]


def captured(names: list[str]) -> Iterator[str]:
    """Which kernels a CUDA graph takes, in some of their forms, and whether it gives their bits."""
    good, bad, not_taken = list[str](), list[str](), dict[str, str]()
    for name in names:
        why = ""
        for case in map(partial(_there, name), range(CASES)):
            want = testing.results_of(name, case, backend="cuda")
            if not all(testing.on_host(result).size for result in want):
                continue
            found = _from_a_graph(name, case)
            if isinstance(found, str):
                why = why or found
                continue
            (good if _bits([found]) == _bits([want]) else bad).append(name)
            break
        else:
            not_taken[name] = why
    yield f"captured in a graph and launched from it: {len(good)} kernels with equal bits"
    if bad:
        yield f"OTHER BITS from a graph: {', '.join(bad)}"
    for reason in sorted({*not_taken.values()}):
        yield f"no graph takes {', '.join(name for name, why in not_taken.items() if why == reason)}: {reason}"


def _from_a_graph(name: str, case: testing.Case) -> testing.Results | str:
    """What a launch from a graph gives, or why there is none."""
    with device.current().xp.cuda.Stream(non_blocking=True) as stream:
        testing.results_of(name, case, backend="cuda")  # its memory is in the pool
        found: testing.Results | str
        stream.begin_capture()
        try:
            found = testing.results_of(name, case, backend="cuda")
        except Exception as error:
            found = str(error).splitlines()[0].partition(": ")[0][:60]
        try:
            graph = stream.end_capture()
        except Exception as error:
            return found if isinstance(found, str) else str(error).splitlines()[0].partition(": ")[0][:60]
        if isinstance(found, str):
            return found
        for result in found:
            result[...] = 77
        graph.launch()
        stream.synchronize()
    return found


def words_are_those_of_the_host(n: int) -> str:
    """Uniform words, bit for bit."""
    key = kernels.rng.key(7)
    ours = testing.on_host(kernels.rng.words(n, key=key, step=3, backend="cuda"))
    same = np.array_equal(ours, kernels.rng.words(n, key=key, step=3))
    return f"{n:,} blocks of words: " + ("the host's bits" if same else "OTHER BITS THAN THE HOST")


def timed(xp: Any) -> Iterator[str]:
    """Medians over runs that alternate with the copy, whose bandwidth is a floor, and with peers. A run is several calls, one
    after the other as programs ask for them, so that what the host needs for one passes while the card computes another."""
    found = [*works(xp, 2**27)]
    calls = [(i, name, call) for i, work in enumerate(found) for name, call in [("", work.call), *work.peers.items()]]
    seconds: dict[tuple[int, str], list[float]] = {(i, name): [] for i, name, _ in calls}
    for run in range(TIMES + 2):  # the first compiles, the second finds out how long it takes
        for i, name, call in calls:
            before = seconds[i, name]
            several = 1 if not run or min(before) > LONG else SEVERAL
            xp.cuda.Device().synchronize()
            begin, end, clock = xp.cuda.Event(), xp.cuda.Event(), time.perf_counter()
            begin.record()
            for _ in range(several):
                call()
            end.record()
            end.synchronize()
            own = name == "jax"  # a stream that events here do not see; each call has been waited for
            took = time.perf_counter() - clock if own else xp.cuda.get_elapsed_time(begin, end) / 1e3
            before.append(took / several)
    medians = {key: statistics.median(times[2:]) for key, times in seconds.items()}
    ceilings = Ceilings.of(xp, found[0].bytes / medians[0, ""])
    yield f"{'kernel':31}{'size':42}{'ms':>9}{'floor':>9} {'of':7}{'share':>6}  peers: ms (times ours)"
    for i, work in enumerate(found):
        median, (floor, which) = medians[i, ""], ceilings.floor(work)
        theirs = ", ".join(f"{name} {1e3 * medians[i, name]:.3f} ({medians[i, name] / median:.1f})" for name in work.peers)
        own = f"{1e3 * median:>9.3f}{1e3 * floor:>9.3f} {which:7}{floor / median:>6.2f}"
        yield f"{work.kernel:31}{work.words:42}{own}  {theirs}".rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", action="store_true", help="on the host's emulator, without times")
    parser.add_argument("--digests", action="store_true", help="of some results of each kernel: what a second process prints")
    parser.add_argument("--only", default="", help="kernels whose names have this in them; no results are written")
    parser.add_argument("--bare", action="store_true", help="a few cases, each array with memory of its own: for sanitizers")
    parser.add_argument("--times", action="store_true", help="times alone; no results are written")
    options = parser.parse_args()
    if options.emulate:
        sys.path.insert(0, str(HERE.parent / "tests"))
        from support import emulated

        device._CURRENT.append(emulated.Emulator(emulated.built(emulated.FOLDER)))
    here = device.current()
    names = sorted(name for name, kernel in KERNELS.items() if "cuda" in kernel.backends and options.only in name)
    if options.bare:
        here.xp.cuda.set_allocator(None)  # of a pool's block no sanitizer sees where an array ends
        found = [*checked(names, 2, True)]
        print("\n".join(found))
        return int(any("DOES NOT" in line for line in found))
    if options.digests:
        print("\n".join(f"{name} {digest(name)}" for name in names))
        return 0
    lines = ["on the emulator: nothing ran on a card" if options.emulate else _about(here.xp), ""]
    if not options.times:
        lines += checked(names, 2 if options.emulate else CASES, options.emulate)
        lines += [words_are_those_of_the_host(2**10 if options.emulate else 2**24)]
        if not options.emulate:
            lines += [beside_another_process(names, options.only), two_streams_at_once(names), *captured(names), ""]
    if options.emulate:
        lines += [f"called: {work.kernel}" for work in works(here.xp, 2**10) if work.call() is not work]
    elif not options.only:
        lines += timed(here.xp)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if not (options.emulate or options.only or options.times):
        card = re.sub(r"\W+", "-", here.xp.cuda.runtime.getDeviceProperties(0)["name"].decode()).strip("-").lower()
        (HERE / "results" / f"cuda-{card}.txt").write_text(text)
    return int("DOES NOT CONFORM" in text or "OTHER BITS" in text)


def _about(xp: Any) -> str:
    card = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = f"CUDA {xp.cuda.runtime.runtimeGetVersion()}, NVRTC {'.'.join(map(str, xp.cuda.nvrtc.getVersion()))}"
    return f"{card}, {versions}, CuPy {xp.__version__}"


if __name__ == "__main__":
    sys.exit(main())
