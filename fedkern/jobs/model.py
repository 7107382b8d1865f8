"""Holds the facts of a job that the model of every method knows: the plain values that the rest of a method asks it for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..algorithms.core.masked import ALL
from .keys import ColumnSection, JobSection

O_co = TypeVar("O_co", covariant=True)
C = TypeVar("C")
T = TypeVar("T")


class _Data(Protocol):
    @property
    def ignore(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Mapping[str, ColumnSection]: ...


class _Model(Protocol):
    @property
    def intercept(self) -> bool: ...


class _WeighedData(_Data, Protocol):
    @property
    def weight(self) -> str | None: ...
    @property
    def weight_kind(self) -> str | None: ...


class Sections(Protocol[O_co]):
    """Names the tables of a method's job file, with the keys that are read here."""

    @property
    def job(self) -> JobSection: ...
    @property
    def data(self) -> _Data: ...
    @property
    def model(self) -> _Model: ...
    @property
    def output(self) -> O_co: ...
    @property
    def secure(self) -> bool: ...


class Value(Generic[T]):
    """Is a property of a model that returns a plain value of its job file."""

    def __init__(self, of: Callable[[Any], T], about: str) -> None:
        self._of, self.__doc__ = of, about

    def __get__(self, model: Any, owner: type) -> T:
        return self._of(model.config)


class Values(Generic[C]):
    """Makes such properties of models whose job files are `C`."""

    def __call__(self, of: Callable[[C], T], about: str) -> Value[T]:
        return Value(of, about)


value = Values[Sections[Any]]()


@dataclass(frozen=True)
class JobModel(Generic[O_co]):
    """Holds a job with its clients."""

    # config, names: the job file, the clients' names in the order of their numbers
    config: Sections[O_co]
    names: tuple[str, ...]

    seed = value(lambda config: config.job.seed, "The seed of all keyed streams.")
    ignored = value(lambda config: config.data.ignore, "The columns that the job leaves out.")
    intercept = value(
        lambda config: config.model.intercept, "Whether the model has an intercept; in a sparse job each client has its own."
    )

    @property
    def secure(self) -> bool:
        """Whether the server gets sums over clients alone of what the rounds ask."""
        return self.config.secure

    @property
    def declared(self) -> Mapping[str, ColumnSection]:
        """The public facts of the columns."""
        return self.config.data.columns

    @property
    def given_constants(self) -> tuple[str, ...]:
        """The columns whose center and scale, or bounds, the job file gives."""
        return tuple(name for name, column in self.declared.items() if column.center is not None or column.lower is not None)

    @property
    def telling(self) -> tuple[str, ...]:
        """The names of those whose numbers the server gets in the rounds: the clients, or where sums are secure all as one."""
        return (ALL,) if self.secure else self.names

    @property
    def references(self) -> dict[str, str | None]:
        """The level of each categorical column that others are compared with."""
        return {name: column.reference for name, column in self.declared.items()}

    @property
    def output(self) -> O_co:
        """The keys of [output]: the result that is asked for."""
        return self.config.output


class WeighedSections(Sections[O_co], Protocol[O_co]):
    """Names the same, with the keys on case weights."""

    @property
    def data(self) -> _WeighedData: ...


@dataclass(frozen=True)
class WeighedModel(JobModel[O_co]):
    """Holds a job whose rows may have case weights."""

    config: WeighedSections[O_co]

    @property
    def weight(self) -> str | None:
        """The column of case weights."""
        return self.config.data.weight

    @property
    def counted_weights(self) -> str | None:
        """The column of case weights, where these are numbers of equal rows."""
        return self.weight if self.config.data.weight_kind == "frequency" else None
