"""How a state is kept: by its fields, as a message's schema is its annotations.

Every field is kept but those that are marked: `field(metadata=GIVEN)` is what a fresh state has from the job and its rows, or is
empty while no question is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from .messages import Saved, array, evolve
from .trace import Trace

State = TypeVar("State")
GIVEN: Mapping[str, bool] = MappingProxyType({"given": True})


def save(state: Any) -> Saved:
    """A state's fields by their names, those of a part as "part.field"; rows are marked, and so never among them.

    Raises
    ------
    TypeError
        A field is neither marked nor anything that can be kept.
    """
    saved: Saved = {}
    for name in names(state):
        value = getattr(state, name)
        if isinstance(value, (np.ndarray, np.number, int, float, bytes)):
            saved[name] = value  # type: ignore[assignment]  # `pack` takes NumPy's numbers too
        elif isinstance(value, Trace):
            saved |= value.save(f"{name}.")
        elif isinstance(value, Set):
            saved[name] = np.array(sorted(value), np.int64)
        elif is_dataclass(value):
            saved |= {f"{name}.{inner}": part for inner, part in save(value).items()}
        else:
            what = f"{type(state).__name__}.{name} is {type(value).__name__}"
            raise TypeError(f"{what}, which a checkpoint can't hold: mark it as GIVEN, or give it another type")
    return saved


def load(fresh: State, saved: Saved) -> State:
    """A fresh state as it was when it was saved."""
    return evolve(fresh, **{name: _loaded(name, getattr(fresh, name), saved) for name in names(fresh)})


def _loaded(name: str, before: Any, saved: Saved) -> Any:
    """A field, which is of the type that it has in a fresh state."""
    if isinstance(before, np.ndarray):
        return array(saved, name)
    if isinstance(before, Trace):
        return Trace.load(saved, f"{name}.")
    if isinstance(before, Set):
        return type(before)(array(saved, name).tolist())  # type: ignore[call-arg]
    if is_dataclass(before):
        of_part = f"{name}."
        return load(before, {inner.removeprefix(of_part): part for inner, part in saved.items() if inner.startswith(of_part)})
    return type(before)(saved[name])


def names(state: object) -> tuple[str, ...]:
    """Of the fields that are kept, of a state or of a class of states."""
    return _names(cast(Any, state if isinstance(state, type) else type(state)))  # as `messages.schema`


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if not one.metadata.get("given"))
