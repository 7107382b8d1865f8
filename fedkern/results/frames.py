"""Types of the tables that a result gives: a list of rows, and for type checkers a pandas DataFrame whose columns are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, TypedDict, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import page

SHOWN = 50  # rows in notebooks

TextColumn = Literal["parameter", "site"]
NumberColumn = Literal[
    "mean",
    "sd",
    "q025",
    "q05",
    "q95",
    "q975",
    "rhat",
    "ess",
    "pip",
    "odds_ratio",
    "rate_ratio",
    "mean_ratio",
    "hazard_ratio",
    "time_ratio",
]
PredictedColumn = Literal["mean", "linear_mean", "linear_sd", "q025", "q05", "q95", "q975"]


class TableRow(TypedDict, total=False):
    """Describes a row of `Result.rows()`: the parameter, the client whose coefficient it is ("" for a common one), numbers.

    `rhat`, `ess` and `pip` are there where any row has one; with `exp` a ratio stands in the place of `mean` and `sd`.
    """

    parameter: str
    site: str
    mean: float
    sd: float
    q025: float
    q05: float
    q95: float
    q975: float
    rhat: float
    ess: float
    pip: float
    odds_ratio: float
    rate_ratio: float
    mean_ratio: float
    hazard_ratio: float
    time_ratio: float


R = TypeVar("R", bound=Mapping[str, Any])
T = TypeVar("T")


class Rows(list[R], Generic[R]):
    """Holds the rows of a table, each a dictionary, all with the same columns.

    A list, of which a text gives a column: `rows["mean"]` is an array.

    Examples
    --------
    >>> from fedkern.results.frames import Rows
    >>> rows = Rows([{"parameter": "theta[age]", "mean": 0.5}, {"parameter": "theta[dose]", "mean": -1.0}])
    >>> rows["mean"]
    array([ 0.5, -1. ])
    >>> rows[0]["parameter"], rows.columns
    ('theta[age]', ['parameter', 'mean'])
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns; none where there is no row."""
        return list(self[0]) if self else []

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> R: ...
    @overload
    def __getitem__(self, key: slice, /) -> Rows[R]: ...
    @overload
    def __getitem__(self, key: str, /) -> NDArray[Any]: ...
    def __getitem__(self, key: Any, /) -> Any:
        if isinstance(key, str):
            values = [row[key] for row in self]
            kind = object if any(isinstance(value, str) for value in values) else None
            return np.array(values, kind)
        found = super().__getitem__(key)
        return Rows(found) if isinstance(key, slice) else found

    def to_pandas(self) -> DataFrame:
        """Returns a pandas DataFrame.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        from pandas import DataFrame

        return DataFrame(list(self))

    def _repr_html_(self) -> str:
        """Returns the first rows, for notebooks."""
        more = page.paragraph(f"{SHOWN} of {len(self)} rows", "") if len(self) > SHOWN else ""
        return first_rows(self) + more


if TYPE_CHECKING:
    from pandas import DataFrame, Series

    # At run time these are pandas' own. pandas has no types of its own: without pandas-stubs its classes are `Any`, from which
    # mypy warns to inherit, and with them other keys than columns are theirs.
    class Column(Series, Generic[T]):  # type: ignore[misc]
        """Describes a column."""

        def __iter__(self) -> Iterator[T]: ...
        def tolist(self) -> list[T]: ...
        def to_numpy(self, *arguments: Any, **more: Any) -> NDArray[Any]: ...

        # Where pandas is `Any`, mypy takes those of numbers for these.
        def __lt__(self, other: Any, /) -> Any: ...
        def __le__(self, other: Any, /) -> Any: ...
        def __gt__(self, other: Any, /) -> Any: ...
        def __ge__(self, other: Any, /) -> Any: ...
        def __eq__(self, other: Any, /) -> Any: ...
        def __ne__(self, other: Any, /) -> Any: ...
        def __add__(self, other: Any, /) -> Any: ...
        def __radd__(self, other: Any, /) -> Any: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __rsub__(self, other: Any, /) -> Any: ...
        def __mul__(self, other: Any, /) -> Any: ...
        def __rmul__(self, other: Any, /) -> Any: ...
        def __truediv__(self, other: Any, /) -> Any: ...
        def __rtruediv__(self, other: Any, /) -> Any: ...
        def __pow__(self, other: Any, /) -> Any: ...
        def __and__(self, other: Any, /) -> Any: ...
        def __or__(self, other: Any, /) -> Any: ...

    Several = list[str] | list[bool] | Column[Any] | NDArray[Any] | slice

    class TableFrame(DataFrame):  # type: ignore[misc]
        """Describes the DataFrame of `Result.table()`."""

        @overload
        def __getitem__(self, key: TextColumn, /) -> Column[str]: ...
        @overload
        def __getitem__(self, key: NumberColumn, /) -> Column[float]: ...
        @overload
        def __getitem__(self, key: Several, /) -> DataFrame: ...
        def __getitem__(self, key: Any, /) -> Any: ...

    class PredictionFrame(DataFrame):  # type: ignore[misc]
        """Describes the DataFrame of `Result.predict()`, which has columns named by the data, too."""

        @overload
        def __getitem__(self, key: PredictedColumn, /) -> Column[float]: ...
        @overload
        def __getitem__(self, key: str, /) -> Column[Any]: ...
        @overload
        def __getitem__(self, key: Several, /) -> DataFrame: ...
        def __getitem__(self, key: Any, /) -> Any: ...


def first_rows(rows: Rows[Any]) -> str:
    """Returns the table of the first rows, for notebooks."""
    return page.table(rows.columns, [page.numbers_of(row) for row in rows[:SHOWN]])


def to_frame(rows: Rows[Any]) -> Any:
    """Returns a pandas DataFrame; the rows themselves where pandas is not installed."""
    try:
        return rows.to_pandas()
    except ImportError:
        return rows
