"""Gives the words of a key to NumPy's `Generator`.

A module of its own, which `rng.bit_generator` imports when it is called: most jobs never load `numpy.random`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import index
from typing import Any, NoReturn

import numpy as np
from numpy.random import BitGenerator
from numpy.random.bit_generator import SeedlessSeedSequence

from fedkern import _core

from ._checks import describe

SIZES = {"key": 2**64, "client": 2**32, "step": 2**32}
PLACE = {"block": 2**64, "half": 2, "has_uint32": 2, "uinteger": 2**32}


class Philox4x32(BitGenerator):
    """Generates the words of one key, client and step in the order of `rng.words`; see `rng.bit_generator`."""

    def __init__(self, key: int, *, client: int = 0, step: int = 0) -> None:
        super().__init__(SeedlessSeedSequence())  # type: ignore[arg-type]  # NumPy takes it, its stub does not say so
        given = {"key": key, "client": client, "step": step}
        self._counter = {name: _within(name, value, SIZES[name]) for name, value in given.items()}
        _core.rng.bit_generator(self.capsule, **self._counter)

    @property
    def state(self) -> dict[str, Any]:
        """The key, the counter's client and step, and the place.

        The next number is half `half` of block `block`; where `has_uint32` is 1, the next 32-bit number is `uinteger`. A state
        with the same key, client and step may be set.
        """
        with self.lock:
            place = _core.rng.place(self.capsule)
        block, half, has_uint32, uinteger = place
        state = {**self._counter, "block": block, "half": half}
        return {"bit_generator": type(self).__name__, "state": state, "has_uint32": int(has_uint32), "uinteger": uinteger}

    @state.setter
    def state(self, value: Mapping[str, Any]) -> None:
        if not isinstance(value, Mapping) or value.get("bit_generator") != type(self).__name__:
            raise ValueError(f"rng.bit_generator: state must be one of a {type(self).__name__}, as `state` returns it")
        try:
            flat = {**value["state"], "has_uint32": value["has_uint32"], "uinteger": value["uinteger"]}
            counter = {name: _within(name, flat[name], size) for name, size in SIZES.items()}
            block, half, has_uint32, uinteger = (_within(name, flat[name], size) for name, size in PLACE.items())
        except KeyError as error:
            raise ValueError(f"rng.bit_generator: state lacks {error}") from None
        if counter != self._counter:
            raise ValueError(
                f"rng.bit_generator: the state is of {counter}, and this generator of {self._counter}; make one of its key"
            )
        with self.lock:
            _core.rng.go(self.capsule, block, half, bool(has_uint32), uinteger)

    def jumped(self, jumps: int = 1) -> Philox4x32:
        """Returns a generator at the same place of step + `jumps`, whose numbers this one never gives: its own repeat after 2^65.
        Raises ValueError: `jumps` is below 0, or the step would be 2^32 or more."""
        jumps = index(jumps)
        if not 0 <= jumps < 2**32 - self._counter["step"]:
            raise ValueError(f"rng.bit_generator: step {self._counter['step']} + jumps {jumps} must be below 2^32, jumps >= 0")
        state = self.state
        state["state"]["step"] += jumps
        return _restore(type(self), state)

    def spawn(self, n_children: int) -> NoReturn:
        """Refuses: a key has no children. Raises TypeError: Always, as NumPy's generators without a `SeedSequence`."""
        raise TypeError(
            "rng.bit_generator: a key has no children; make each its own key, by rng.key(seed, stream, chain) of another chain "
            "or of a child of a SeedSequence, or give another step or client"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:  # type: ignore[override]  # not NumPy's constructor
        return _restore, (type(self), self.state)


def _restore(kind: type[Philox4x32], state: Mapping[str, Any]) -> Philox4x32:
    """Returns a generator in a state."""
    made = kind(**{name: state["state"][name] for name in SIZES})
    made.state = state
    return made


def _within(name: str, value: object, size: int) -> int:
    """Returns an integer in [0, size). Raises TypeError: it is no integer. Raises ValueError: it is outside."""
    number: int | None = None
    if hasattr(value, "__index__") and not np.ndim(value):  # type: ignore[arg-type]  # of any object
        number = index(value)
    if number is None:
        raise TypeError(f"rng.bit_generator: {name} must be an integer, got {describe(value)}")
    if not 0 <= number < size:
        raise ValueError(f"rng.bit_generator: {name} must be in [0, {size}), got {number}")
    return number
