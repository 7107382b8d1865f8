"""Lists the constants that a private job lacks, all at once and from the job file alone, before anybody can check it.

A header may be a row (`data.header`), so that no name of a file's column is printed here: only those that the job file has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from ..errors import JobError
from ..models.encoding import Column, Spec
from .keys import ColumnSection


def undeclared(
    columns: Mapping[str, ColumnSection], standardise: Literal["public", "exchange", "none"], roles: Collection[str | None]
) -> Iterator[str]:
    """Yields a sentence where [data.columns] lacks every covariate, or some keys of one.

    Parameters
    ----------
    columns : those of the job file
    standardise : by it or not; "exchange" is a fault of its own
    roles : columns that are no covariates
    """
    encoded = {name: section.encoded for name, section in columns.items()}
    try:
        declared = {name: Column.declared(name, keys) for name, keys in encoded.items() if name not in roles}
    except JobError as fault:
        yield str(fault)
        return
    spec = Spec(None, standardise="none" if standardise == "none" else "public", columns=declared)
    if not declared or not all(map(spec.complete, declared)):
        yield spec.undeclared
