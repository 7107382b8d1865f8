"""Gives messages that a server only adds what a masked sum over clients needs of them (`core.masked`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.messages import schema
from .rounding import summable


class Added:
    """Is a message all of whose numbers are added, but its round.

    None of its numbers is ever out of range: a larger one than `rounding.ADDED`, of a model that cannot be, counts as that.
    """

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return sum(math.prod(shape) for shape in _shapes(cls, dims).values())

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers, field by field."""
        fields = schema(type(self))  # type: ignore[arg-type]
        return summable(np.concatenate([np.ravel(getattr(self, name)) for name in fields if name != "round"]))

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Any:
        """Returns the message of all clients together."""
        values, at = dict[str, Any](), 0
        for name, shape in _shapes(cls, dims).items():
            part = numbers[at : at + math.prod(shape)]
            at += len(part)
            kind = schema(cls)[name].type  # type: ignore[arg-type]
            values[name] = part.reshape(shape) if kind is np.ndarray else kind(part[0])
        return cls(round, **values)  # type: ignore[call-arg]


def _shapes(kind: Any, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each field that is added; of one number it is ()."""
    return {name: tuple(dims[s] for s in field.shape) for name, field in schema(kind).items() if name != "round"}
