"""Saves and loads states by their fields, as a message's schema is its annotations.

Every field is kept but those that are marked. A field marked `field(metadata=GIVEN)` comes, in a fresh state, from the job and
its rows, or is empty while no question is open. A field marked `field(metadata=only("rounds"))` is kept in these parts alone.
None is left out.

A state that computes further values from its kept fields has a method `restored`, which gets the saved values at the end. A state
with more to keep than its fields has a method `beside`, whose numbers are kept with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from functools import cache
from inspect import get_annotations
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from .messages import Saved, array, evolve, number, text

# Maps and sets of many versions --------------------
# Implements maps and sets of which every state has its own version, at a cost per change that does not depend on their size.
#
# Most machines make a new state and leave the one before as it was. With a plain dictionary they would copy, at every message,
# all they know of all clients: a round of n clients would copy n^2 entries. Here the newest version holds the dictionary, and an
# older one only its differences from it; whoever reads an older one turns that around (Baker, "Shallow binding makes functional
# arrays fast", 1991). So the common case is cheap: machines read only the newest version. The order of the keys is not defined.


K = TypeVar("K")
V = TypeVar("V")
ABSENT: Any = object()


class PersistentMap(Mapping[K, V]):
    """Is an immutable map.

    Parameters
    ----------
    content : its first entries
    """

    __slots__ = ("_newer", "_own")

    def __init__(self, content: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._own: dict[K, V] | None = dict(content)
        self._newer: tuple[PersistentMap[K, V], K, V] | None = None  # that version, and what stands here at one of its keys

    def plus(self, key: K, value: V) -> PersistentMap[K, V]:
        """Returns the map with this entry, new or in the place of another."""
        return self._changed(key, value)

    def minus(self, key: K) -> PersistentMap[K, V]:
        """Returns the map without this key, if it had it."""
        return self._changed(key, ABSENT) if key in self._entries() else self

    def __getitem__(self, key: K) -> V:
        return self._entries()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries()

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._entries()))  # a newer version may be made meanwhile

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._entries()!r})"

    def _entries(self) -> dict[K, V]:
        return self._reached() if self._own is None else self._own

    def _reached(self) -> dict[K, V]:
        """Returns the dictionary, brought here along the way that leads to the newest version."""
        way: list[PersistentMap[K, V]] = []
        version = self
        while version._newer is not None:
            way.append(version)
            version = version._newer[0]
        for older in reversed(way):
            assert older._newer is not None
            newer, key, value = older._newer
            entries = newer._own
            assert entries is not None
            newer._newer, newer._own = (older, key, _put(entries, key, value)), None
            older._newer, older._own = None, entries
        assert self._own is not None
        return self._own

    def _changed(self, key: K, value: V) -> PersistentMap[K, V]:
        """Returns the version with one changed entry, which takes the dictionary over."""
        entries = self._entries()
        new: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        new._newer, new._own = None, entries
        self._newer, self._own = (new, key, _put(entries, key, value)), None
        return new


def _put(entries: dict[K, V], key: K, value: V) -> V:
    """Puts an entry in, or takes it out if the value is ABSENT; returns the value before."""
    before: V = entries.get(key, ABSENT)
    if value is ABSENT:
        entries.pop(key, None)
    else:
        entries[key] = value
    return before


class PersistentSet(Set[K]):
    """Is an immutable set. `|` and `-` cost as much as their right side is large."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[K] = ()) -> None:
        self._members: PersistentMap[K, None] = PersistentMap((member, None) for member in members)

    def plus(self, member: K) -> PersistentSet[K]:
        """Returns the set with this member."""
        return self if member in self._members else self._with(self._members.plus(member, None))

    def minus(self, member: K) -> PersistentSet[K]:
        """Returns the set without this member."""
        return self._with(self._members.minus(member))

    def __or__(self, others: Iterable[K]) -> PersistentSet[K]:  # type: ignore[override]
        out = self
        for member in others:
            out = out.plus(member)
        return out

    def __sub__(self, others: Iterable[K]) -> PersistentSet[K]:
        out = self
        for member in others:
            out = out.minus(member)
        return out

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._members)!r})"

    def _with(self, members: PersistentMap[K, None]) -> PersistentSet[K]:
        new: PersistentSet[K] = PersistentSet.__new__(PersistentSet)
        new._members = members
        return new


# What is kept --------------------


State = TypeVar("State")
GIVEN: Mapping[str, bool] = MappingProxyType({"given": True})


def only(*parts: str) -> Mapping[str, tuple[str, ...]]:
    """Marks a field of which only these parts are kept; a fresh state has all others."""
    return MappingProxyType({"only": parts})


def save(state: object) -> Saved:
    """Returns a state's fields by their names, those of a part as "part.field". Rows are marked, and so never among them. Raises
    TypeError: a field is neither marked nor anything that can be kept."""
    saved = _parts(state, names(state), f"{type(state).__name__}.")
    return saved | state.beside() if hasattr(state, "beside") else saved


def _parts(state: object, kept: tuple[str, ...], of: str) -> Saved:
    """Returns the saved values of some fields of a state."""
    saved: Saved = {}
    partly = _only(state)
    for name in kept:
        value, some = getattr(state, name), partly.get(name)
        saved |= _under(name, _parts(value, some, f"{of}{name}.")) if some else _saved(name, value, of)
    return saved


def _saved(name: str, value: Any, of: str) -> Saved:
    """Returns the saved values of one field, in the form of its type."""
    form = _form(cast(Any, type(value)))  # as `messages.schema`
    if form == "value":
        return {name: value}
    if form == "none":
        return {}
    if form == "text":
        return {name: value.encode()}
    if form == "draws":
        return cast(Saved, value.save(f"{name}."))
    if form == "set":
        return {name: np.array(sorted(value), np.int64)}
    if form == "part":
        return _under(name, _parts(value, names(value), f"{of}{name}."))
    if form == "named":
        return _under(name, _of_each(value._asdict(), f"{of}{name}."))
    if form == "map":
        if value and all(isinstance(key, str) for key in value):
            return _under(name, _of_each(value, f"{of}{name}."))
        rows = [(key, *(entry if isinstance(entry, tuple) else (entry,))) for key, entry in sorted(value.items())]
        return {name: np.array(rows, np.float64)}  # of numbers: one array, however many clients there are
    if form == "tuple":
        if all(isinstance(entry, (int, float)) for entry in value):
            return {name: np.array(value, np.float64)}
        several = {str(i): entry for i, entry in enumerate(value)}
        return {f"{name}.many": len(value), **_under(name, _of_each(several, f"{of}{name}."))}
    what = f"{of}{name} is {type(value).__name__}"
    raise TypeError(f"{what}, which a checkpoint can't hold: mark it as GIVEN, or give it another type")


@cache
def _form(kind: Any) -> str:
    """Returns the form in which a value of this type is kept, or "" if it cannot be kept.

    A type with a `save` and a `load` of its own holds draws, which are many.
    """
    if issubclass(kind, (np.ndarray, np.number, int, float, bytes)):  # `pack` takes NumPy's numbers too
        return "value"
    if kind is NoneType:
        return "none"
    if {"save", "load"} <= set(dir(kind)):
        return "draws"
    if is_dataclass(kind):
        return "part"
    if issubclass(kind, tuple):
        return "named" if hasattr(kind, "_fields") else "tuple"
    return next((form for form, base in (("text", str), ("set", Set), ("map", Mapping)) if issubclass(kind, base)), "")


def _of_each(parts: Mapping[str, Any], of: str) -> Saved:
    """Returns the saved values of several named parts."""
    saved: Saved = {}
    for name, value in parts.items():
        saved |= _saved(name, value, of)
    return saved


def _under(name: str, parts: Saved) -> Saved:
    """Returns saved values with a part's name before theirs."""
    return {f"{name}.{inner}": part for inner, part in parts.items()}


def load(fresh: State, saved: Saved) -> State:
    """Returns a fresh state with the saved values in their places."""
    state = evolve(fresh, **_fields(fresh, names(fresh), saved))
    return state.restored(saved) if hasattr(state, "restored") else state


def _fields(before: object, kept: tuple[str, ...], saved: Saved) -> dict[str, object]:
    """Returns the values of some fields, loaded from the saved ones."""
    values = {}
    for name in kept:
        value, some = getattr(before, name), _only(before).get(name)
        # The other fields of this part follow from these and are made anew.
        if some:
            values[name] = replace(value, **_fields(value, some, _part(saved, name)))
        else:
            values[name] = _loaded(name, _type(before, name), value, saved)
    return values


def _part(saved: Saved, name: str) -> Saved:
    """Returns the saved values of one part, without its name before theirs."""
    of_part = f"{name}."
    return {inner.removeprefix(of_part): part for inner, part in saved.items() if inner.startswith(of_part)}


def _by_first(part: Saved) -> dict[str, Saved]:
    """Groups saved values by the first part of each name. So a part with one entry for each of many columns is read only once."""
    parts: dict[str, Saved] = {}
    for name, value in part.items():
        parts.setdefault(name.partition(".")[0], {})[name] = value
    return parts


def _loaded(name: str, kind: Any, before: Any, saved: Saved) -> object:
    """Returns a field of this type from the saved values; a fresh state has it as `before`."""
    # `X | None`: None was saved as nothing at all.
    if get_origin(kind) in (Union, UnionType):
        kinds = [member for member in get_args(kind) if member is not NoneType]
        if len(kinds) < len(get_args(kind)) and name not in saved and not any(key.startswith(f"{name}.") for key in saved):
            return None
        kind = kinds[0]
    # Stores of draws read themselves.
    if _form(cast(Any, type(before))) == "draws":
        return before.load(saved, f"{name}.")
    origin = _origin(kind)
    # Plain values have a key of their own.
    if origin is np.ndarray:
        return array(saved, name)
    if origin in (int, bool):
        return origin(number(saved, name))
    if origin is float:
        return float(cast(float, saved[name]))
    if origin is bytes:
        return text(saved, name)
    if origin in (str, Literal):
        return text(saved, name).decode()
    # Everything else has its parts under `name.`.
    part = _part(saved, name)
    if is_dataclass(origin):
        return _made(origin, part) if before is None else load(before, part)
    if hasattr(origin, "_fields"):
        return origin(**{inner: _loaded(inner, _type(origin, inner), None, part) for inner in origin._fields})
    # A set, and a mapping or tuple of numbers, was saved as one array; others were saved part by part.
    if issubclass(origin, Set):
        return origin(array(saved, name).tolist())
    if issubclass(origin, Mapping):
        origin = dict if origin is Mapping else origin
        if name in saved:
            return _mapped(origin, get_args(kind)[1], array(saved, name))
        return origin({key: _loaded(key, get_args(kind)[1], None, entries) for key, entries in _by_first(part).items()})
    if origin is tuple:
        inner = get_args(kind)
        if name in saved:
            return tuple(map(inner[0], array(saved, name).tolist()))
        each = inner[:1] * number(part, "many") if inner[1:] == (...,) else inner
        parts = _by_first(part)
        return tuple(_loaded(str(i), member, None, parts.get(str(i), {})) for i, member in enumerate(each))
    raise TypeError(f"{name} is {kind}, which no checkpoint holds")


def _origin(kind: Any) -> Any:
    """Returns the class of a type. An alias with a name, as NDArray is since NumPy 2.5, stands for another type."""
    origin = get_origin(kind) or kind
    return _origin(origin.__value__) if hasattr(origin, "__value__") else origin


def _mapped(origin: Any, kind: Any, rows: Any) -> object:
    """Returns a map of whole numbers to numbers, or to tuples of them, named or not."""
    if get_origin(kind) is tuple:
        each = get_args(kind)[0]
        return origin({int(key): tuple(map(each, numbers)) for key, *numbers in rows.tolist()})
    if not hasattr(kind, "_fields"):
        return origin({int(key): kind(number) for key, number in rows.tolist()})
    each = [_type(kind, name) for name in kind._fields]
    return origin({int(key): kind(*(of(n) for of, n in zip(each, numbers))) for key, *numbers in rows.tolist()})


def _made(kind: Any, part: Saved) -> Any:
    """Returns a part that a fresh state lacks, so that all of it was kept."""
    return kind(**{name: _loaded(name, _type(kind, name), None, part) for name in names(kind)})


def names(state: object) -> tuple[str, ...]:
    """Returns the names of the fields that are kept, of a state or of a class of states."""
    cls = state if isinstance(state, type) else type(state)
    return _names(cast(Any, cls))  # as `messages.schema`


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if not field.metadata.get("given"))


def _only(state: object) -> Mapping[str, tuple[str, ...]]:
    """Returns the fields of which only some parts are kept."""
    return _marked(cast(Any, type(state)))


@cache
def _marked(kind: Any) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({field.name: field.metadata["only"] for field in fields(kind) if "only" in field.metadata})


def _type(state: object, name: str) -> Any:
    """Returns the type that a field's annotation means in the module of its class."""
    cls = state if isinstance(state, type) else type(state)
    return _meant(cast(Any, cls), name)


@cache
def _meant(kind: Any, name: str) -> object:
    annotation, owner = next((annotations[name], c) for c in kind.__mro__ if name in (annotations := get_annotations(c)))
    annotation = getattr(annotation, "__forward_arg__", annotation)  # of a named tuple
    return eval(annotation, vars(sys.modules[owner.__module__])) if isinstance(annotation, str) else annotation
