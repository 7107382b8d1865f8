"""Implements maps and sets of which every state has its own version, at a cost per change that does not depend on their size.

Most machines make a new state and leave the one before as it was. With a plain dictionary they would copy, at every message, all
they know of all clients: a round of n clients would copy n^2 entries. Here the newest version holds the dictionary, and an older
one only its differences from it; whoever reads an older one turns that around (Baker, "Shallow binding makes functional arrays
fast", 1991). So the common case is cheap: machines read only the newest version. The order of the keys is not defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

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
        at = self
        while at._newer is not None:
            way.append(at)
            at = at._newer[0]
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
