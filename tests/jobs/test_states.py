"""A state is used once: no transport, hook or method reads one that a machine was given, so machines may change it in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedkern.algorithms.core.messages import Protocol, evolve
from fedkern.cli.__main__ import main
from fedkern.transports import driver, inprocess
from support import toy
from support.golden_jobs import golden_jobs

USED = "a state that was used is used again"
# Of each kind of machine one job at least
JOBS = (
    "pvi-random-full",
    "pvi-one-shot",
    "pvi-global-vi",
    "pvi-private-virtual-clients",
    "pvi-private-clients",
    "sparse-sums",
    "sparse-mrf",
    "vertical-amortised",
    "vertical-soul",
    "vertical-private",
    "sigma-sfvi",
    "sigma-hmc",
)
MACHINES = {
    *("agreement", "alignment", "arrival", "certificates", "columns", "gibbs", "global-vi", "hmc", "pvi"),
    *("pvi-client-level", "scaling", "sfvi", "soul", "values", "vertical"),
}


def _refused(self: object, name: str) -> Any:
    if name in ("__class__", "__dict__"):
        return object.__getattribute__(self, name)
    raise AssertionError(f"{USED}: {name}")


@cache
def dead(kind: type) -> type:
    """A class of the same layout, whose instances refuse to be read."""
    return type(f"Used{kind.__name__}", (kind,), {"__slots__": (), "__getattribute__": _refused})


def poisoned(protocol: Protocol[Any, Any], calls: Counter[str]) -> Protocol[Any, Any]:
    """The same machines; whatever state they are given can't be read after the call."""

    def once(receive: Callable[..., Any]) -> Callable[..., Any]:
        def called(state: Any, *event: Any) -> Any:
            own = evolve(state)
            after = receive(own, *event)
            state.__dict__.clear()
            object.__setattr__(state, "__class__", dead(type(state)))
            calls[protocol.name] += 1
            return after

        return called

    return replace(protocol, server_receive=once(protocol.server_receive), client_receive=once(protocol.client_receive))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Machine -> its transitions, after each of which the state before it is poisoned."""
    found: Counter[str] = Counter()

    def guarded(side: type) -> None:
        begin = side.__init__  # type: ignore[misc]

        def begun(self: object, protocol: Protocol[Any, Any], *more: Any) -> None:
            begin(self, poisoned(protocol, found), *more)

        monkeypatch.setattr(side, "__init__", begun)

    guarded(driver.ServerSide)
    guarded(driver.ClientSide)
    return found


def test_no_method_reads_a_state_that_a_machine_was_given(
    calls: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = golden_jobs()
    golden.write(tmp_path)

    def done(method: str, *arguments: str, sets: tuple[str, ...]) -> None:
        monkeypatch.chdir(tmp_path / method)
        code = main([*arguments, *(word for one in sets for word in ("--set", one))])
        assert code == 0, f"{arguments}: {capsys.readouterr().err}"

    done("sigma", "sigma", "train", "prior-car.toml", "--out", "trained/car", "--quiet", sets=golden.TRAININGS["car"][2])
    for name in JOBS:
        base, *sets = golden.JOBS[name]
        method, _, file = base.partition("/")
        done(method, "run", f"{file}.toml", "--out", f"out-{name}", "--quiet", sets=tuple(sets))
    assert calls.keys() >= MACHINES


def test_negative_control_a_hook_that_keeps_a_state_is_found(calls: Counter[str]) -> None:
    class Keeps(driver.Hooks):
        first: Any = None

        def observe(self, state: Any, event: Any) -> None:
            self.first = self.first or state
            assert self.first.round >= 0

    clients = {k: toy.client(k) for k in range(3)}
    inprocess.run_protocol(toy.PROTOCOL, toy.start(3, 2), clients, toy.codec(3))
    assert calls["toy"] > 6
    with pytest.raises(AssertionError, match=f"{USED}: round"):
        inprocess.run_protocol(toy.PROTOCOL, toy.start(3, 2), {k: toy.client(k) for k in range(3)}, toy.codec(3), Keeps())
