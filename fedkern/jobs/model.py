"""What the model of every method knows of its job: the plain values that the rest of a method asks it for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .keys import ColumnSection, JobSection

O_co = TypeVar("O_co", covariant=True)


class _Data(Protocol):
    @property
    def ignore(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Mapping[str, ColumnSection]: ...


class _Model(Protocol):
    @property
    def intercept(self) -> bool: ...


class Sections(Protocol[O_co]):
    """The tables of a method's job file, with the keys that are read here."""

    @property
    def job(self) -> JobSection: ...
    @property
    def data(self) -> _Data: ...
    @property
    def model(self) -> _Model: ...
    @property
    def output(self) -> O_co: ...


@dataclass(frozen=True)
class JobModel(Generic[O_co]):
    """A job with its clients.

    Attributes
    ----------
    config, names : the job file, the clients' names in the order of their numbers
    """

    config: Sections[O_co]
    names: tuple[str, ...]

    @property
    def seed(self) -> int:
        """Of all keyed streams."""
        return self.config.job.seed

    @property
    def ignored(self) -> Sequence[str]:
        """Columns that the job leaves out."""
        return self.config.data.ignore

    @property
    def declared(self) -> Mapping[str, ColumnSection]:
        """What is publicly known of the columns."""
        return self.config.data.columns

    @property
    def references(self) -> dict[str, str | None]:
        """Of categorical columns: the level that others are compared with."""
        return {name: column.reference for name, column in self.declared.items()}

    @property
    def intercept(self) -> bool:
        """Whether there is one; in a sparse job each client has its own."""
        return self.config.model.intercept

    @property
    def output(self) -> O_co:
        """What is asked of the result."""
        return self.config.output
