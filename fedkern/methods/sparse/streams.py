"""Summarises draws while they come, where they are too many coefficients to keep (docs/spec/sparse.md, section 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...algorithms.core.messages import Saved
from ...algorithms.core.trace import Draws, Kept
from ...arrays import Array
from ...errors import JobError
from ...results.mixing import Stream

Derived = Mapping[str, Callable[[Mapping[str, Array]], Any]]


class Streams:
    """Has the methods of `algorithms.core.trace.Trace` as far as machines need them; memory does not grow with the rounds.

    Parameters
    ----------
    derived : name -> function of a round's draws (c, ...), summarised beside them
    thinned : names of which thinned draws are kept
    unused : names of draws that only `derived` needs
    """

    def __init__(self, derived: Derived, thinned: tuple[str, ...] = ("theta",), unused: tuple[str, ...] = ()) -> None:
        self.derived, self.thinned, self.unused = derived, thinned, unused
        self.count = 0
        self.streams: dict[str, Stream] = {}

    def add(self, draws: Draws, kept: Kept | None = None) -> None:
        """Adds the draws of one round, or the part of them that is `kept`."""
        if kept is not None:
            several = kept({name: value[np.newaxis] for name, value in draws.items()})
            draws = {name: values[0] for name, values in several.items()}
        numbers = {**draws, **{name: compute(draws) for name, compute in self.derived.items()}}
        for name, value in numbers.items():
            if name in self.unused:
                continue
            flat = value.reshape(len(value), -1)
            if name not in self.streams:
                self.streams[name] = Stream(len(flat), flat.shape[1], keep=name in self.thinned)
            self.streams[name].add(flat)
        self.count += 1

    def clear(self) -> None:
        """Forgets everything."""
        self.streams, self.count = {}, 0

    def save(self, prefix: str) -> Saved:
        """Returns all streams as named arrays and numbers."""
        saved: Saved = {f"{prefix}count": self.count}
        for name, stream in self.streams.items():
            saved |= {f"{prefix}{name}.{key}": value for key, value in stream.save().items()}
        return saved

    def load(self, saved: Mapping[str, Any], prefix: str) -> Streams:
        """Makes new streams of the saved ones."""
        fresh = Streams(self.derived, self.thinned, self.unused)
        entries = {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}
        fresh.count = entries["count"]
        if fresh.count and (lacking := [name for name in self.derived if f"{name}.n" not in entries]):
            raise JobError(
                f"the checkpoint is of an older version of fedkern, which did not keep {', '.join(lacking)}: go on with that "
                "version, or start anew (--out)"
            )
        for name in {key.split(".")[0] for key in entries if "." in key}:
            part = {key.split(".")[1]: value for key, value in entries.items() if key.startswith(f"{name}.")}
            fresh.streams[name] = Stream(len(part["centre"]), part["centre"].shape[1], keep=name in self.thinned).load(part)
        return fresh
