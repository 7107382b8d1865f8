"""Declares exchanges in which each client answers one question, once: the class of the answer says all of it.

Its keywords name the messages, how fields are rounded, and what becomes of an answer that cannot be; its method `honest` has what
honest ones satisfy. From these come the question, the answer under masks (`masked`), the protocol, and all that may be sent.

Log-likelihoods and their sums are rounded before they leave a client: importance weights need no more digits, and the digits that
are left out tell nothing of rows. Their bounds hold for their sums too. Source: docs/concepts/convergence.md, "What weights are
worth".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy.masks import ONCE, Form
from . import once
from .masked import Masked, Sum
from .messages import Message, Protocol, schema
from .tells import Tells

DIGITS = 3  # after the point: thousandths of a nat
ADDED = 1e70  # of a number in a masked sum over clients (`privacy.masks.ONCE`)
LARGEST = 1e100  # of such a number: the log-likelihood of a draw that cannot be, with the other sign
LEAST = 5  # rows of a sum
MOST_ROWS = 10**15  # counted exactly, with those of other clients

Conditions = Iterator[tuple[bool | np.bool, str]]
NOTHING: Mapping[str, Any] = MappingProxyType({})


def rounded(values: ArrayLike) -> NDArray[np.float64]:
    """Returns the numbers as a client sends them. A draw that cannot be is not its fault, and no number is NaN."""
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST)
    return np.asarray(np.round(np.clip(finite, -LARGEST, LARGEST), DIGITS) + 0.0, np.float64)  # and none is -0


def summable(values: ArrayLike) -> NDArray[np.float64]:
    """Returns the numbers as a masked sum over clients takes them: a larger one, of a model that cannot be, counts as `ADDED`."""
    return np.clip(np.asarray(values, np.float64), -ADDED, ADDED)


def thousandths(value: float) -> float:
    """Rounds one number as `rounded` does."""
    return float(rounded(value))


def digits(n: int) -> Callable[[Any], Any]:
    """Returns the rounding of numbers, or of one, to n significant digits."""

    def shorten(values: Any) -> Any:
        each = np.array([float(f"{value:.{n}g}") for value in np.ravel(values)]).reshape(np.shape(values))
        return each if each.ndim else each.item()

    return shorten


def bounded(values: ArrayLike, largest: float = LARGEST) -> bool:
    """Tells whether `rounded` can have returned these."""
    return bool((np.abs(np.asarray(values, np.float64)) <= largest * (1 + 1e-9)).all())


@dataclass(frozen=True)
class Ask(Message):
    """Is the base of questions."""

    round: int


class Exchange(Message):
    """Makes, of the keywords of an answer's class, the exchange of that answer.

    Parameters
    ----------
    name : in ledgers and folders
    ask : name and number of the question, or its class
    masked, form : symbol and number of the masked answer, or its class; the form of its words
    dims : the sizes that are the same in all jobs
    rounding : field -> how it is rounded before it leaves
    number, least : the field that says of how many rows the sums are, and of how many at least: of fewer zeros leave
    means : field that is averaged by rows -> its value where no client has any
    every : fields of 0 and 1 that are 1 of all clients together where they are 1 at each that has rows
    drops, judges, needs : as a `Question` has them
    """

    ask: ClassVar[type[Ask]]
    question: ClassVar[once.Question[Any, Any]]
    protocol: ClassVar[Protocol[Any, Any]]
    hidden: ClassVar[tuple[Sum, ...]]
    may_send: ClassVar[tuple[type[Message], ...]]
    dims: ClassVar[Mapping[str, int]]
    rounding: ClassVar[Mapping[str, Callable[[Any], Any]]]
    number: ClassVar[str]
    least: ClassVar[int]
    means: ClassVar[Mapping[str, float]]
    every: ClassVar[tuple[str, ...]]

    def __init_subclass__(
        cls,
        *,
        kind: int | None = None,
        tells: Tells | None = None,
        name: str = "",
        ask: tuple[str, int] | type[Ask] = Ask,
        masked: tuple[str, int] | type[Masked] | None = None,
        form: Form = ONCE,
        dims: Mapping[str, int] = NOTHING,
        rounding: Mapping[str, Callable[[Any], Any]] = NOTHING,
        number: str = "rows",
        least: int = LEAST,
        means: Mapping[str, float] = NOTHING,
        every: tuple[str, ...] = (),
        drops: bool = False,
        judges: bool = False,
        needs: str = "",
    ) -> None:
        super().__init_subclass__(kind=kind, tells=tells)
        if kind is None:
            return
        cls.dims, cls.rounding, cls.number, cls.least, cls.means, cls.every = dims, rounding, number, least, means, every
        cls.ask = ask if isinstance(ask, type) else _message(ask[0], (Ask,), "Server to client.", {}, kind=ask[1])
        cls.question = once.Question(name, cls.ask, cls, cls.wrong, drops, judges, needs)
        cls.protocol, cls.hidden, cls.may_send = cls.question.protocol, (), (cls,)
        if masked is not None and tells is not None:
            cover: Any = masked if isinstance(masked, type) else cls._masked(*masked, tells.masked)
            cls.hidden, cls.may_send = (Sum(cls, cover, form),), (cls, cover)

    @classmethod
    def _masked(cls, symbol: str, kind: int, tells: Tells) -> Any:
        """Makes the class of the masked answer."""
        about, words = f"Client to server: `{cls.__name__}`, masked.", {"words": Annotated[bytes, symbol]}
        return _message(f"Masked{cls.__name__}", (Masked, Message), about, words, kind=kind, tells=tells)

    def honest(self) -> Conditions:
        """Yields what honest answers satisfy, each with the end of the sentence on one that does not."""
        yield from ()

    def wrong(self) -> str:
        """Returns the reason why it is no client's answer, or "" if it can be."""
        return next((f"its {type(self).__name__} {why}" for good, why in self.honest() if not good), "")

    def leaving(self) -> Self:
        """Returns it as it leaves."""
        return replace(self, **{name: how(getattr(self, name)) for name, how in self.rounding.items()})


@dataclass(frozen=True)
class Answer(Exchange):
    """Is the base of answers."""

    round: int


@dataclass(frozen=True)
class Added(Answer):
    """Is the base of answers all of whose numbers are added, for which a masked sum can stand (`core.masked`).

    A larger number than `ADDED`, of a model that cannot be, counts as that.
    """

    def leaving(self) -> Self:
        """Returns it as it leaves: zeros if it is of too few rows."""
        if getattr(self, self.number, 0) < self.least:
            return replace(self, **{name: _zero(getattr(self, name)) for name in schema(type(self))})
        return super().leaving()

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return sum(math.prod(shape) for shape in cls._shapes(dims).values())

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers, field by field."""
        rows = getattr(self, self.number, 0)
        each = {name: getattr(self, name) for name in schema(type(self)) if name != "round"}
        each |= {name: rows * each[name] for name in self.means}
        each |= {name: (1 - each[name]) * (rows > 0) for name in self.every}
        return summable(np.concatenate([np.ravel(values) for values in each.values()]))

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Self:
        """Returns the message of all clients together."""
        values, begin = dict[str, Any](), 0
        for name, shape in cls._shapes(dims).items():
            part = numbers[begin : begin + math.prod(shape)]
            begin += len(part)
            kind = schema(cls)[name].type
            values[name] = part.reshape(shape) if kind is np.ndarray else kind(part[0])
        rows = values.get(cls.number, 0)
        for name, none in cls.means.items():
            values[name] = values[name] / rows if rows else values[name] * 0 + none
        values |= {name: (values[name] == 0).astype(np.float64) for name in cls.every}
        return cls(round, **values)

    @classmethod
    def total(cls, replies: Mapping[int, Self]) -> Self:
        """Returns the sums over all clients, added in their order."""
        replies_in_order = [replies[k] for k in sorted(replies)]
        return cls(
            **{
                name: sum((getattr(reply, name) for reply in replies_in_order), field.type(0))
                for name, field in schema(cls).items()
            }
        )

    @classmethod
    def _shapes(cls, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each field that is added; of one number it is ()."""
        return {name: tuple(dims[s] for s in field.shape) for name, field in schema(cls).items() if name != "round"}


def enough(rows: int) -> bool:
    """Tells whether sums are of no rows, or of at least `LEAST`."""
    return rows == 0 or LEAST <= rows <= MOST_ROWS


def small(*values: ArrayLike, largest: float = LARGEST) -> bool:
    """Tells whether numbers are within bounds that hold for their sums too; NaN is not."""
    return all(bounded(value, largest) for value in values)


def _message(name: str, bases: tuple[type, ...], about: str, fields: Mapping[str, Any], **options: Any) -> Any:
    """Makes a class of messages."""
    content = {"__annotations__": dict(fields), "__doc__": about, "__module__": __name__}
    return dataclass(frozen=True)(type(name, bases, content, **options))


def _zero(value: Any) -> Any:
    return np.zeros_like(value) if isinstance(value, np.ndarray) else type(value)(0)
