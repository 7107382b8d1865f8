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
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedkern import kernels, testing
from fedkern.kernels._cuda import device
from fedkern.kernels._record import KERNELS

HERE = Path(__file__).parent
CASES = 40  # of random sizes, for each kernel
TIMES = 20


class Work(NamedTuple):
    """A call that is timed: its bytes, read and written, set its floor."""

    kernel: str
    words: str
    call: Callable[[], Any]
    bytes: float


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


def words_are_those_of_the_host(n: int) -> str:
    """Uniform words, bit for bit."""
    key = kernels.rng.key(7)
    ours = testing.on_host(kernels.rng.words(n, key=key, step=3, backend="cuda"))
    same = np.array_equal(ours, kernels.rng.words(n, key=key, step=3))
    return f"{n:,} blocks of words: " + ("the host's bits" if same else "OTHER BITS THAN THE HOST")


def works(xp: Any, n: int) -> Iterator[Work]:
    """At sizes where memory binds."""
    key, out, other = kernels.rng.key(1), xp.empty(n), xp.empty(n)
    yield Work("copy", "floor of all", lambda: xp.copyto(other, out), 16.0 * n)
    for name in ("uniform", "normal", "exponential"):
        draw = getattr(kernels.rng, name)
        yield Work(f"rng.{name}", f"n = {n:,}", lambda draw=draw: draw(n, key=key, out=out, backend="cuda"), 8.0 * n)
    for dtype in ("float64", "float32"):
        rows = xp.ones((n // 100, 100), dtype)
        words = f"{n // 100:,} x 100, {dtype}"
        yield Work("privacy.clip_sum", words, lambda rows=rows: kernels.privacy.clip_sum(rows, 3.0), float(rows.nbytes))
    yield Work("privacy.add_noise", f"d = {n:,}", lambda: kernels.privacy.add_noise(out, sigma=1.0, key=key, out=other), 16.0 * n)
    k = n // 8
    state, gradient = xp.zeros((3, k)), xp.ones(k)
    new = (xp.empty((3, k)), xp.empty(k))
    yield Work("optim.adam", f"k = {k:,}", lambda: kernels.optim.adam(state, gradient, learning_rate=0.1, out=new), 64.0 * k)
    yield of_groups(xp, *((4096, 537) if n >= 2**20 else (9, 3)))
    yield training(xp, *((2221, 1500) if n >= 2**20 else (9, 8)))


def of_groups(xp: Any, points: int, groups: int) -> Work:
    """Logistic intercepts of groups of four rows, by 15 nodes: arithmetic. Predictors are written and read once."""
    n = 4 * groups
    rows = xp.ones((n, 1)), xp.ones((n, 1)), (xp.arange(n) % 3 == 0).astype("f8"), None, None, xp.arange(0, n + 1, 4)
    at = xp.asarray(np.random.default_rng(1).standard_normal((points, 2)))
    words, options = f"{points:,} points, {groups:,} groups", {"family": "bernoulli", "nodes": 15, "backend": "cuda"}
    return Work("mixed.values", words, lambda: kernels.mixed.values(at, *rows, **options), 16.0 * n * points)


def training(xp: Any, d: int, hidden: int) -> Work:
    """Steps of the autoencoder at the size of the paper's maps. Parameters are read twice for the gradient, which is written once
    and read twice; then they and Adam's moments are read and written."""
    a, steps = kernels.mlp.Architecture("amended", (d,), n_local=(5,), hidden=hidden, local_hidden=hidden), 10
    k = a.n_parameters
    parameters, moments = xp.asarray(a.initial(1).astype("f4")), xp.zeros((2, k), "f4")
    table = xp.ones((4, d)), xp.ones((4, 1)), xp.ones(d)
    rates = {"rates": xp.full(steps, 1e-3), "kl_weights": xp.ones(steps)}
    options = {"architecture": a, "kind": "stored", "batch": 128, "gamma": 0.5, "seed": 1, "backend": "cuda"}
    words = f"{k:,} parameters, {steps} steps"
    return Work(
        "mlp.vae_step", words, lambda: kernels.mlp.vae_step(parameters, moments, *table, **rates, **options), 44.0 * k * steps
    )


def timed(xp: Any) -> Iterator[str]:
    """Medians over runs that alternate with the copy, whose bandwidth is the floor."""
    found = list(works(xp, 2**27))
    seconds: dict[int, list[float]] = {i: [] for i in range(len(found))}
    for _ in range(TIMES):
        for i, work in enumerate(found):
            begin, end = xp.cuda.Event(), xp.cuda.Event()
            begin.record()
            work.call()
            end.record()
            end.synchronize()
            seconds[i].append(xp.cuda.get_elapsed_time(begin, end) / 1e3)
    bandwidth = found[0].bytes / statistics.median(seconds[0])
    yield f"{'kernel':24}{'size':30}{'ms':>10}{'GB/s':>10}{'of copy':>10}"
    for i, work in enumerate(found):
        median = statistics.median(seconds[i])
        rate = work.bytes / median
        yield f"{work.kernel:24}{work.words:30}{1e3 * median:>10.3f}{rate / 1e9:>10.0f}{rate / bandwidth:>10.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", action="store_true", help="on the host's emulator, without times")
    options = parser.parse_args()
    if options.emulate:
        sys.path.insert(0, str(HERE.parent / "tests"))
        from support import emulated

        device._CURRENT.append(emulated.Emulator(emulated.built(emulated.FOLDER)))
    here = device.current()
    names = sorted(name for name, kernel in KERNELS.items() if "cuda" in kernel.backends)
    lines = ["on the emulator: nothing ran on a card" if options.emulate else _about(here.xp), ""]
    lines += checked(names, 2 if options.emulate else CASES, options.emulate)
    lines += [words_are_those_of_the_host(2**10 if options.emulate else 2**24)]
    if not options.emulate:
        lines += ["", *timed(here.xp)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if not options.emulate:
        card = re.sub(r"\W+", "-", here.xp.cuda.runtime.getDeviceProperties(0)["name"].decode()).strip("-").lower()
        (HERE / "results" / f"cuda-{card}.txt").write_text(text)
    return int("DOES NOT CONFORM" in text or "OTHER BITS" in text)


def _about(xp: Any) -> str:
    card = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = f"CUDA {xp.cuda.runtime.runtimeGetVersion()}, NVRTC {'.'.join(map(str, xp.cuda.nvrtc.getVersion()))}"
    return f"{card}, {versions}, CuPy {xp.__version__}"


if __name__ == "__main__":
    sys.exit(main())
