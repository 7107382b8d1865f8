"""Calls of kernels that may end badly: with extreme arguments, and where memory ends.

python kernel_calls.py extremes|memory BACKEND SEEDS PART KERNEL ..: a JSON line of how many calls there were, and of those that
ended the interpreter or never ended. PART: "all", or every n-th call.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedkern import kernels, testing
from fedkern.kernels._record import KERNELS, Kernel
from support import apart

FLOATS = (0.0, -1.0, 5e-324, 1e-308, 1e-200, 1e200, 1e308, np.inf, -np.inf, np.nan)
WHOLE = (-1, 0, 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64)  # what is no more than 2^32 - 1 can be meant, and takes its time
INDICES = (-(2**63), -1, 0, 2**62)
SECONDS = 20  # for one call: none takes one; Numba may compile another type
ROOM = 2 << 30  # bytes that a call may ask for


def given_to_run(kernel: Kernel, call: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """What the public function gives to `compute` while `call` is made, and what it gets back."""
    compute, seen = kernel.compute, []

    def watched(inputs, out, n_threads, backend, symbols=None, **scalars):
        found = compute(inputs, out, n_threads, backend, symbols, **scalars)
        seen.append((inputs, n_threads, symbols, scalars, found))
        return found

    kernel.__dict__["compute"] = watched
    try:
        call()
    finally:
        kernel.__dict__["compute"] = compute
    return seen


# --- Extreme arguments.


def extremes(value: Any) -> Iterator[tuple[str, Any]]:
    """Words and values in the place of an argument."""
    if isinstance(value, np.ndarray):
        for axis in range(value.ndim):
            yield f"empty in dimension {axis}", np.delete(value, np.s_[:], axis)
        numbers = FLOATS if value.dtype.kind == "f" else INDICES if value.dtype.kind == "i" else (0,)
        for x in numbers:
            full = np.full_like(value, np.clip(x, np.iinfo(value.dtype).min, None) if value.dtype.kind == "i" else x)
            yield f"all {x}", full
            if value.size > 1:
                one = value.copy()
                one.flat[-1] = full.flat[-1]
                yield f"one {x}", one
    elif isinstance(value, bool | str):
        return
    elif isinstance(value, int):
        yield from ((f"{x}", x) for x in WHOLE)
    elif isinstance(value, tuple):
        yield from ((f"({x}, ..)", (x,) * max(1, len(value))) for x in WHOLE)
    elif isinstance(value, float) or value is None:
        yield from ((f"{x}", x) for x in FLOATS)


def changed(arguments: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One argument changed, and all numbers at once."""
    for name, value in arguments.items():
        yield from ((f"{name} {words}", {**arguments, name: x}) for words, x in extremes(value))
    for x in FLOATS:
        whole = {
            name: np.full_like(value, x) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else x
            for name, value in arguments.items()
            if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
        }
        yield f"all {x}", {**arguments, **whole}


def extreme_calls(name: str, backend: str, seed: int) -> Iterator[apart.Call]:
    """Of the public function and, in C++, of bound calls: which take what the record allows."""
    kernel, case = KERNELS[name], testing.case(name, seed, (3, 5), ("C",))
    results = testing.results_of(name, case, backend=backend)  # compiles what has to be
    scalars = {s.keyword: s.default for s in kernel.scalars if s.default is not ... and s.domain.words}
    arguments = {**scalars, **case.arguments} if not {"patterns"} & set(scalars) else dict(case.arguments)
    del results

    def public(arguments: dict[str, Any], **options: Any) -> None:
        testing.results_of(name, replace(case, arguments=arguments), backend=backend, **options)

    for words, other in changed(arguments):
        yield f"{name} on {backend}, case {seed}: {words}", partial(public, other)
    for n_threads in (-1, 0, 2**31 - 1, 2**62):
        yield f"{name} on {backend}, case {seed}: n_threads {n_threads}", partial(public, arguments, n_threads=n_threads)
    if backend != "cpp":
        return

    def bound(inputs: dict[str, Any], scalars: dict[str, Any], symbols: Any) -> None:
        kernel.bind([inputs[a.name] for a in kernel.inputs], (), 1, None, symbols, **scalars)()

    for inputs, _, symbols, given, _ in given_to_run(kernel, lambda: public(dict(case.arguments))):
        arrays = dict(zip((a.name for a in kernel.inputs), inputs))
        for words, other in changed({**arrays, **given}):
            here = {a: other[a] for a in arrays}, {s: other[s] for s in given}, symbols
            yield f"{name} bound, case {seed}: {words}", partial(bound, *here)


def with_little_room() -> None:
    """What asks for far too much gets no memory, instead of all that the machine has."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    most = apart.address_space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


# --- Memory that ends.

MARGINS = [int(2 ** (12 + 0.75 * k)) for k in range(20)]  # bytes that are left: 4 KiB to 80 MiB


def hoarded() -> list[bytearray]:
    """All memory that there is: what was freed, too, which the system does not get back."""
    hoard, size = [], 1 << 20
    while size >= 1 << 10:
        try:
            hoard.append(bytearray(size))
        except MemoryError:
            size >>= 1
    return hoard


def bits(results: Any) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results]


def little_memory(name: str, call: Callable[[int], Any]) -> str:
    """The same call with little memory, 20 sizes, on two threads: first where the pool has none yet."""
    want, ends = bits(call(1)), Counter[str]()
    with suppress(MemoryError):  # NumPy, too, keeps something of its first
        np.empty(2**50)
    for _ in range(2):
        for margin in MARGINS:
            before, now, got = resource.getrlimit(resource.RLIMIT_AS), apart.address_space(), None
            resource.setrlimit(resource.RLIMIT_AS, (now, before[1]))
            try:
                hoard = hoarded()
                resource.setrlimit(resource.RLIMIT_AS, (now + margin, before[1]))
                got = call(2)
            except MemoryError:
                pass
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
                hoard = []  # noqa: F841
            ends["refused" if got is None else "same" if bits(got) == want else "other bits"] += 1
        ends["other bits"] += bits(call(2)) != want
    return json.dumps({**ends, "threads": apart.threads()})


LARGER = ((200, 333), (1000,), (4097,), (40_000,), (400_000,))
AT_MOST = 0.02  # seconds of a case of which a larger one is tried


def threaded_case(name: str, backend: str, seed: int) -> testing.Case:
    """A case whose work is split, if the largest that does not take long is. This process's own pool tells it: it grows."""
    for sizes in LARGER:
        for other in range(seed, seed + 60, 20):
            case = testing.case(name, other, sizes, ("C",))
            before, began = apart.threads(), time.perf_counter()
            testing.results_of(name, case, backend=backend, n_threads=before + 1)
            took = time.perf_counter() - began
            if apart.threads() > before or took > AT_MOST:
                return case
    return case


def memory_calls(name: str, backend: str, seed: int) -> Iterator[apart.Call]:
    """The public function, and a bound call."""
    kernel, case = KERNELS[name], threaded_case(name, backend, seed)

    def public(n_threads: int) -> Any:
        return testing.results_of(name, case, backend=backend, n_threads=n_threads)

    yield f"{name}, case {seed}", partial(little_memory, name, public)
    for inputs, _, symbols, given, _ in given_to_run(kernel, lambda: public(1)):
        bound = {n: kernel.bind(inputs, (), n, None, symbols, **given) for n in (1, 2)}
        yield f"{name} bound, case {seed}", partial(little_memory, name, lambda n, bound=bound: bound[n]())


def main(what: str, backend: str, seeds: str, part: str, *names: str) -> None:
    kinds = {"extremes": (extreme_calls, SECONDS, with_little_room), "memory": (memory_calls, 120, lambda: None)}
    calls_of, seconds, before = kinds[what]
    with_quiet = np.errstate(all="ignore")
    with with_quiet, warnings.catch_warnings(action="ignore"):
        for name in names or [n for n, k in sorted(KERNELS.items()) if backend in k.backends]:
            calls = [call for seed in range(int(seeds)) for call in calls_of(name, backend, seed)]
            if part != "all":
                calls = calls[:: int(part)]
            ended = list(apart.each_apart(calls, seconds, before))
            kinds_of = Counter(e.how.split(":")[0].split(" ")[0 if e.how.startswith("returned") else 1] for e in ended if e.well)
            line = {"kernel": name, "calls": len(ended), "ends": kinds_of, "bad": [[e.what, e.how] for e in ended if not e.well]}
            if what == "memory":
                line["found"] = [[e.what, e.how] for e in ended if e.well]
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    assert kernels
    main(*sys.argv[1:])
