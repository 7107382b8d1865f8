"""A state is kept by its fields: each, but those that are marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from fedkern.algorithms import soul
from fedkern.algorithms.core import kept
from fedkern.algorithms.core.kept import GIVEN, PersistentMap, PersistentSet, only
from fedkern.algorithms.core.messages import Saved, evolve
from fedkern.algorithms.core.trace import Trace
from fedkern.algorithms.hmc import machine as hmc
from fedkern.arrays import Array
from fedkern.models.encoding import Column
from fedkern.transports.codec import pack, unpack
from support.refusal import refusal


@dataclass(frozen=True)
class Part:
    at: np.ndarray
    lost: np.ndarray
    count: int = 0


@dataclass(frozen=True)
class State:
    rows: object = field(metadata=GIVEN)
    part: Part
    theta: np.ndarray
    b: float = 0.0
    round: int = 0
    refused: bool = False
    note: bytes = b""
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    gone: frozenset[int] = frozenset()
    trace: Trace = field(default_factory=Trace)
    answers: PersistentMap[int, Any] = field(default_factory=PersistentMap, metadata=GIVEN)


def moved() -> State:
    """A state after some rounds."""
    trace = Trace()
    for t in range(3):
        trace.add({"theta": np.full((1, 2), float(t))})
    part = Part(np.eye(2), np.array([True, False]), 4)
    waiting, gone = PersistentSet([4, 2]), frozenset({1})
    return State("its rows", part, np.arange(3.0), np.float64(0.5), 7, True, b"seen", waiting, gone, trace)


def test_every_field_comes_back_but_the_marked_ones() -> None:
    state = moved()
    saved = kept.save(state)
    assert saved.keys() == {
        *("part.at", "part.lost", "part.count", "theta", "b", "round", "refused", "note", "waiting", "gone", "trace.theta")
    }
    fresh = State("the same rows", Part(np.zeros((2, 2)), np.zeros(2, bool)), np.zeros(3))
    back = kept.load(fresh, unpack(pack(saved)))
    assert (back.rows, len(back.answers)) == ("the same rows", 0)
    assert (back.b, back.round, back.refused, back.note) == (0.5, 7, True, b"seen")
    assert type(back.refused) is bool
    assert (set(back.waiting), type(back.waiting), back.gone) == ({2, 4}, PersistentSet, {1})
    assert np.array_equal(back.trace["theta"], state.trace["theta"])
    assert pack(kept.save(back)) == pack(saved)


class Told(NamedTuple):
    at: float
    slope: float


@dataclass(frozen=True)
class Settings:
    seed: int
    rounds: int


@dataclass(frozen=True)
class Many:
    settings: Settings = field(metadata=only("rounds"))
    phase: str = "z"
    kind: Literal["one", "two"] = "one"
    columns: tuple[Column, ...] = ()
    order: PersistentMap[int, tuple[int, ...]] = field(default_factory=PersistentMap)
    sums: Part | None = None
    ladder: Told | None = None
    waiting: PersistentMap[int, int] = field(default_factory=PersistentMap)
    told: PersistentMap[int, Told] = field(default_factory=PersistentMap)
    local: dict[str, Array] = field(default_factory=dict)
    own: tuple[Array, ...] = ()
    bounds: tuple[float, ...] = ()
    states: tuple[Array | None, ...] = ()
    outstanding: tuple[Array, Array, Array | None] | None = None
    drawn: tuple[Array, ...] = field(default=(), metadata=GIVEN)
    total: float = field(default=0.0, metadata=GIVEN)

    def beside(self) -> Saved:
        return {"begun": int(bool(self.drawn))}

    def restored(self, saved: Saved) -> Many:
        return evolve(self, total=sum(self.bounds), drawn=(np.zeros(1),) if saved["begun"] else ())


FULL: dict[str, Any] = {
    "phase": "moving",
    "kind": "two",
    "columns": (Column("age", center=40.0, scale=10.0), Column("job", "categorical", ("clerk", "smith"))),
    "order": PersistentMap({0: (1, 0, 2), 3: (2, 1, 0)}),
    "sums": Part(np.eye(2), np.arange(2), 3),
    "ladder": Told(0.5, 2.0),
    "waiting": PersistentMap({1: 2, 3: 7}),
    "told": PersistentMap({2: Told(-1.0, 0.5), 4: Told(1.0, 2.0)}),
    "local": {"scale": np.zeros(1), "theta": np.ones((2, 3))},
    "own": (np.ones(2), np.zeros(3)),
    "bounds": (1.5, -2.0),
    "states": (None, np.arange(3.0), None),
    "outstanding": (np.ones(1), np.zeros(2), None),
    "drawn": (np.full(1, 9.0),),
}


@pytest.mark.parametrize("name", ["nothing", "all", *FULL])
def test_every_kind_of_field_comes_back(name: str) -> None:
    state = Many(Settings(1, 40), **(FULL if name == "all" else {name: FULL[name]} if name in FULL else {}))
    saved = kept.save(state)
    back = kept.load(Many(Settings(1, 10)), unpack(pack(saved)))
    assert back.settings == Settings(1, 40)
    assert back.total == sum(state.bounds)
    assert len(back.drawn) == len(state.drawn)
    assert pack(kept.save(back)) == pack(saved)
    for one in (name,) if name in FULL else FULL:
        if one not in ("drawn", "sums"):
            assert type(getattr(back, one)) is type(getattr(state, one))
            assert repr(getattr(back, one)) == repr(getattr(state, one))


def test_what_a_checkpoint_cannot_hold_is_named() -> None:
    state = State("its rows", Part(np.eye(2), np.zeros(2, bool)), object())  # type: ignore[arg-type]
    with refusal(TypeError, "State"):
        kept.save(state)


def test_what_was_not_saved_is_missed_by_name() -> None:
    saved = kept.save(moved())
    del saved["part.count"]
    with pytest.raises(KeyError, match="count"):
        kept.load(moved(), saved)


@pytest.mark.parametrize(
    ("state", "rows"), [(hmc.Client, {"model"}), (soul.Client, {"predictor", "y", "gram"}), (soul.Server, {"y", "offset"})]
)
def test_rows_are_marked(state: type, rows: set[str]) -> None:
    assert not rows & set(kept.names(state))
    assert rows <= set(state.__dataclass_fields__)  # type: ignore[attr-defined]
