"""Says of which patient a job's curves are, and makes that patient's row of the model's columns.

Numeric columns are at their declared centres; where none is declared, at their means over all clients' rows, which the parties
exchange to standardise columns. Columns of labels are at their reference. A formula's columns are computed from these values, so
that all its terms are of one patient.

Source: docs/spec/likelihood.md, section 9, "Of which patient curves are".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...data.incomplete import MARK
from ...errors import JobError
from ...finding import Finding
from ...jobs.keys import ColumnSection
from ...models.encoding import Column, Encoding
from ...models.formula.expansion import Formula
from ...results.plain import Record

Values = Mapping[str, float | str]

KEYS = "output.survival_at and output.restricted_mean are of a patient at the average of each column"
SHOWN = 8  # columns of a patient that are named on one line


class Patient(NamedTuple):
    """Holds the patient whose curves a job gives."""

    values: Values  # column of the file -> a number, or a label
    row: Array  # (p,) the columns of the coefficients
    # numeric columns at 0, because neither the job file nor the parties' sums say anything of their average
    assumed: tuple[str, ...] = ()


def patient_of(
    encoding: Encoding, declared: Mapping[str, ColumnSection], references: Mapping[str, str], standardise: str
) -> Patient:
    """Returns the patient whose curves a job gives. Raises JobError: a formula has no number for such a patient, or nothing says
    what the average of one of its columns is.

    Parameters
    ----------
    declared : `data.columns` of the job file
    references : column of labels -> its reference
    standardise : `data.standardise`
    """
    centers = {name: _center(name, section) for name, section in declared.items()}
    if encoding.formula is not None:
        return _of_formula(encoding, encoding.formula, centers, references, standardise)
    values, assumed = dict[str, float | str](), list[str]()
    row = [1.0] if encoding.intercept else []
    for column in encoding.columns:
        if column.levels is not None:
            values[column.name] = references[column.name]
            row += [float(level == references[column.name]) for level in column.levels]
            continue
        center, scale = column.constants
        value = centers.get(column.name)
        if value is None:
            value = center
            if standardise == "none" and not column.name.endswith(MARK):
                assumed.append(column.name)
        row.append((value - center) / scale)
        if not column.name.endswith(MARK):  # 0 in the column of a mark: the cell is there
            values[column.name] = value
    return Patient(values, np.array(row), tuple(assumed))


def describe_values(values: Record, most: int = SHOWN) -> str:
    """Returns the patient in words, such as "age 61.2, sex F"; "" where a model has no columns."""
    written = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()]
    more = f" and {len(written) - most} more (summary.json)" if len(written) > most else ""
    return ", ".join(written[:most]) + more


def notes_of(patient: Patient) -> list[str]:
    """Returns the note on columns at 0."""
    if not patient.assumed:
        return []
    return [Finding.of("patient-at-0", columns=[f"{name} 0" for name in patient.assumed])]


def _center(name: str, section: ColumnSection) -> float | None:
    """The centre that the job file declares of a column; None where it declares none."""
    return Column.declared(name, section.encoded).center


def _of_formula(
    encoding: Encoding, formula: Formula, centers: Mapping[str, float | None], references: Mapping[str, str], standardise: str
) -> Patient:
    """The patient of a formula's columns of the file."""
    effects = {
        formula.factors[made.of[0][0]].variables[0]: column
        for made, column in zip(formula.made, encoding.columns, strict=True)
        if len(made.of) == 1 and formula.factors[made.of[0][0]].plain
    }
    # Means of the file's columns are exchanged where a term needs a constant of one, else of the columns that terms make.
    exchanged = any(centers.get(text) is None for text in formula.arguments)
    values, assumed, unknown = dict[str, float | str](), list[str](), list[str]()
    for name in formula.variables:
        known, center = formula.known[name], centers.get(name)
        if known.levels is not None:
            values[name] = references[name]
        elif center is not None:
            values[name] = center
        elif standardise == "none":
            values[name] = 0.0
            assumed.append(name)
        elif exchanged and known.center is not None:
            values[name] = known.center
        elif formula.intercept and name in effects:  # without an intercept columns are not centred
            values[name] = effects[name].constants[0]
        else:
            unknown.append(name)
    if unknown:
        raise JobError(
            f"{KEYS}, and no party knows that of {unknown[0]!r}: {_remedy(unknown[0])}, or take it as a term by itself"
        )
    rows = _One(values)
    made = formula.matrix(rows, 1)[0]
    bad = {
        **rows.faults,
        **{column.of[0][0]: "has no number there" for column, x in zip(formula.made, made) if not np.isfinite(x)},
    }
    if bad:
        what, why = next(iter(bad.items()))
        name = what if what in formula.variables else formula.factors[what].variables[0]
        begin = f"{KEYS} ({describe_values(values)}), for whom model.formula is no model"
        raise JobError(f"{begin}: {what!r} {why}: {_remedy(name)}")
    centre, scale = np.array([column.constants for column in encoding.columns]).reshape(-1, 2).T
    return Patient(values, np.concatenate([np.ones(int(encoding.intercept)), (made - centre) / scale]), tuple(assumed))


def _remedy(name: str) -> str:
    return f"say a value by center and scale in [data.columns.{name}]"


@dataclass(frozen=True)
class _One:
    """Reads the patient as a formula reads rows (`formula.expansion.Reading`)."""

    values: Values
    faults: dict[str, str] = field(default_factory=dict)

    def numbers(self, name: str) -> Array:
        return np.array([float(self.values[name])])

    def codes(self, name: str, levels: tuple[str, ...]) -> NDArray[np.int64]:
        return np.array([levels.index(str(self.values[name]))])

    def fault(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str) -> None:
        if bad.any():
            self.faults[column] = reason
