"""Arrays that behave as CuPy's and lie in this process's memory: jobs run on the grid emulator with them.

What CuPy refuses they refuse: to become NumPy arrays without being asked, and NumPy arrays in one operation with them. So a test
that passes has moved every array where it had to be.

With FEDKERN_TEST_CARD=1 the same tests run on the card of the machine: there is none in CI.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from fedkern.kernels._cuda import device
from support import emulated


class Device:
    """As CuPy's: two of one card are equal, and neither has a hash."""

    __hash__ = None  # type: ignore[assignment]
    id = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)


MOVES = ("asarray", "array", "ascontiguousarray")  # functions that take arrays of the host


class Hosted(NDArrayOperatorsMixin):
    """An array "of a device"."""

    def __init__(self, array: Any) -> None:
        self.own = np.asarray(array)

    def get(self) -> Any:
        """A copy in memory."""
        return self.own.copy()

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.own.ctypes.data)

    @property
    def device(self) -> Device:
        return Device()

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return applied(getattr(function, method))(*inputs, **keywords)

    def __array_function__(self, function: Callable[..., Any], types: Any, inputs: Any, keywords: Any) -> Any:
        if keywords.get("shape") == ():  # CuPy's *_like take it for no shape
            del keywords["shape"]
        return applied(function)(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name == "ctypes" or name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.own, name)
        return applied(value) if callable(value) else wrapped(value) if isinstance(value, np.ndarray) else value

    def __getitem__(self, index: Any) -> Any:
        return wrapped(self.own[plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.own[plain(index)] = plain(value)

    def __len__(self) -> int:
        return len(self.own)

    def __float__(self) -> float:
        return float(self.own)

    def __int__(self) -> int:
        return int(self.own)

    def __bool__(self) -> bool:
        return bool(self.own)


Hosted.__module__, Hosted.__name__ = "cupy", "ndarray"


def plain(value: Any) -> Any:
    """What NumPy is given."""
    if isinstance(value, Hosted):
        return value.own
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value))
    return value


def wrapped(value: Any) -> Any:
    """What comes back: numbers are arrays without dimensions."""
    if isinstance(value, tuple):
        return tuple(map(wrapped, value))
    return Hosted(value) if isinstance(value, np.ndarray | np.generic) else value


def applied(function: Callable[..., Any]) -> Callable[..., Any]:
    def on_arrays(*arguments: Any, **keywords: Any) -> Any:
        for name in ("initial", "where"):  # of reductions
            if name in keywords and function is not np.copyto:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
        found = function(*map(plain, arguments), **{name: plain(value) for name, value in keywords.items()})
        out = keywords.get("out")
        return out if isinstance(out, Hosted) else wrapped(found)

    return on_arrays


class Namespace:
    """CuPy's, as far as NumPy has the same functions."""

    ndarray = Hosted

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in MOVES:

            def moved(array: Any, *more: Any, **keywords: Any) -> Hosted:
                own = array.own if isinstance(array, Hosted) else array.copy() if isinstance(array, np.ndarray) else array
                return Hosted(found(own, *more, **keywords))

            return moved
        return found if isinstance(found, type) or not callable(found) else applied(found)

    def may_share_memory(self, a: Hosted, b: Hosted) -> bool:
        return bool(np.may_share_memory(a.own, b.own))


class Card(emulated.Emulator):
    """The emulator as jobs see a card.

    Attributes
    ----------
    taken : (local rank, ranks) of each rank that asked
    """

    xp = Namespace()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.taken: list[tuple[int, int]] = []

    def take(self, local: int, ranks: int) -> None:
        self.taken.append((local, ranks))

    def about(self) -> dict[str, str]:
        return {"device": "emulator"}


class Real(device.Card):
    """The machine's own."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, int]] = []
        self.seen: dict[str, int] = {}

    def take(self, local: int, ranks: int) -> None:
        self.taken.append((local, ranks))
        super().take(local, ranks)

    def ready(self, module: str, kernel: str, *arguments: Any, **keywords: Any) -> Callable[[], object]:
        self.seen[kernel] = self.seen.get(kernel, 0) + 1
        return super().ready(module, kernel, *arguments, **keywords)


@contextmanager
def instead_of_a_card() -> Iterator[Card | Real]:
    """This process has a device."""
    card = Real() if os.environ.get("FEDKERN_TEST_CARD") == "1" else Card(emulated.built(emulated.FOLDER))
    device._CURRENT.append(card)
    try:
        yield card
    finally:
        device._CURRENT.remove(card)
