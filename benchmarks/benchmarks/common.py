"""Peers, times measured side by side, and what the classes of asv and the printed tables share."""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

Call = Callable[[], Any]


class Brief:
    """Has each `time_*` of a class take a second or two.

    asv's own are up to 40 s a case. A case is read beside its peers of the same run, and what must not slow down is in `gate`.
    """

    timeout = 300
    rounds, repeat, warmup_time = 1, (3, 7, 0.5), 0.0


class Timed(Brief):
    """What asv times: a subclass has `params`, `param_names`, `make`, and a `time_*` that calls `self.call`."""

    one_thread = True  # of BLAS

    def make(self, *case: Any) -> Call:
        """What is timed, in one case."""
        raise NotImplementedError

    def setup(self, *case: Any) -> None:
        if self.one_thread:
            self.limits = alone()
        self.call = self.make(*case)
        self.call()


def alone() -> Any:
    """One thread of BLAS from here on; as a context, up to its end."""
    import scipy.linalg  # noqa: F401  # the BLAS of our kernels and of Numba: what is not loaded yet is not limited

    return ThreadpoolController().limit(limits=1, user_api="blas")


def absent(peer: str) -> Exception:
    """What asv takes as "n/a": to be raised in `setup`."""
    return NotImplementedError(f"there is no {peer} here")


def need(module: str) -> Any:
    """An optional peer's module."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise absent(module) from None


def jax() -> Any:
    """JAX in float64, as it must be for a fair comparison."""
    module = need("jax")
    module.config.update("jax_enable_x64", True)
    return module


def available(makers: Mapping[str, Callable[..., Any]], *case: Any) -> dict[str, Any]:
    """What the peers that are installed make of a case."""
    made = {}
    for peer, make in makers.items():
        try:
            made[peer] = make(*case)
        except NotImplementedError:
            continue
    return made


def machine() -> str:
    """Returns a line that says which processor this is, and whether others were working on it when the line was made."""
    model, cpus = "a processor without a name", os.cpu_count() or 1
    if (table := Path("/proc/cpuinfo")).exists():
        facts: dict[str, str] = {}
        for line in table.read_text().splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
        model = facts.get("model name", model)
        if "cpu family" in facts:
            model += f" (family {facts['cpu family']}, model {facts['model']})"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"{model}, {cpus} cores, {'quiet' if load < 1.5 else 'busy'} (load average {load:.1f})"


def medians(*calls: Call, seconds: float = 0.3, rounds: int = 15, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Median time of each call. They take turns, so that a drift of the machine's speed meets all of them."""
    inner = []
    for call in calls:
        call()
        start = clock()
        call()
        once = clock() - start
        inner.append(max(1, int(seconds / rounds / len(calls) / max(once, 1e-7))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeat, measured in zip(calls, inner, times):
            start = clock()
            for _ in range(repeat):
                call()
            measured.append((clock() - start) / repeat)
    return [statistics.median(measured) for measured in times]


def ratio(call: Call, other: Call) -> float:
    """How many times as long the other takes."""
    mine, theirs = medians(call, other)
    return theirs / mine


def share(call: Call, other: Call, seconds: float = 1.0) -> tuple[float, float]:
    """Seconds of CPU of this thread that a call takes, and their share of the other's."""
    mine, theirs = medians(call, other, seconds=seconds, clock=time.thread_time)
    return mine, mine / theirs


def times(calls: Mapping[str, Call], **how: Any) -> dict[str, float]:
    """Median times by name."""
    return dict(zip(calls, medians(*calls.values(), **how)))


def cells(seconds: Mapping[str, float], form: str, scale: float, unit: str = "") -> str:
    """A line's numbers: "fedkern 3.4  numpy 12.5"."""
    return "  ".join(f"{peer} {t * scale:{form}}{unit}" for peer, t in seconds.items())


def against(seconds: Mapping[str, float], floor: float, what: str) -> str:
    """Ours over a floor, and the best peer over ours."""
    ours = seconds["fedkern"]
    peers = {peer: t for peer, t in seconds.items() if not peer.startswith("fedkern") and not peer.endswith("threads")}
    best = min(peers, key=lambda peer: peers[peer])
    return f"    ours / {what} {ours / floor:.2f}; {best} / ours {peers[best] / ours:.2f}"


def row(name: str, calls: Mapping[str, Call], bound: float) -> None:
    """Prints times in microseconds, ours over the bound, and the best peer over ours."""
    seconds = times(calls, seconds=2)
    print(f"{name}, us: bound {1e6 * bound:.1f}  {cells(seconds, '.1f', 1e6)}")
    print(against(seconds, bound, "bound"), flush=True)
