"""Turns coefficients of all levels into those at reference levels, as tables of regressions have them.

A model with an intercept has a coefficient for each level of a categorical column. A constant that is added to all of them and
taken from the intercept changes no row, so that rows tell neither the intercept nor a level alone, and their posterior is the
prior's. Rows tell the predictor at the reference levels, which is the intercept here, and how far each other level is from its
column's reference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..arrays import Array
from .encoding import INTERCEPT, Encoding

# Numbers beside the coefficients that a constant in the predictor moves: how their names begin, and which way they go.
MOVED = {"threshold[": -1.0, "log_hazard[": 1.0}


@dataclass(frozen=True)
class Coding:
    """Holds the map from the p coefficients of a model to the q at reference levels."""

    kept: tuple[int, ...]  # the q coefficients that are left: all but those of reference levels
    matrix: Array  # (q, p)
    spoken: tuple[str, ...]  # (q,) their names for people: a level's says what it is compared with, "sex[M vs F]"

    @property
    def bases(self) -> Array:
        """(p,) 1 where a coefficient is of a reference level."""
        mask = np.ones(self.matrix.shape[1])
        mask[[*self.kept]] = 0.0
        return mask

    def blockwise(self, blocks: tuple[str, ...]) -> Coding:
        """Returns the same map of several blocks of coefficients, whose names begin so."""
        p, n = self.matrix.shape[1], len(blocks)
        kept = tuple(p * k + j for k in range(n) for j in self.kept)
        matrix = np.asarray(np.kron(np.eye(n), self.matrix), np.float64)
        return Coding(kept, matrix, tuple(f"{block}{name}" for block in blocks for name in self.spoken))


def coding_of(encoding: Encoding, references: Mapping[str, str | None], *, absorbs: bool) -> Coding:
    """Returns the map to coefficients at reference levels.

    Parameters
    ----------
    references : column -> the level that its others are compared with; by default the first
    absorbs : whether the model takes up a constant, in an intercept, thresholds or baseline hazards; else a level alone has a
        meaning, and coefficients stay as they are

    Examples
    --------
    >>> from fedkern.models.encoding import Column, Encoding
    >>> from fedkern.models.reference import coding_of
    >>> encoding = Encoding((Column("sex", "categorical", ("F", "M")),), "y")
    >>> coding = coding_of(encoding, {}, absorbs=True)
    >>> coding.spoken
    ('intercept', 'sex[M vs F]')
    >>> coding.matrix @ [0.2, 0.1, 0.5]  # the intercept, and the two levels
    array([0.3, 0.4])
    """
    names, matrix = [*encoding.names], np.eye(encoding.size)
    spoken, bases = {name: name for name in names}, list[int]()
    for column in encoding.columns if absorbs else ():
        if column.levels is None:
            continue
        base = references.get(column.name) or column.levels[0]
        place = names.index(f"{column.name}={base}")
        for level in column.levels:
            name = f"{column.name}={level}"
            spoken[name] = f"{column.name}[{level} vs {base}]"
            matrix[names.index(name), place] -= 1.0
        if encoding.intercept:
            matrix[names.index(INTERCEPT), place] = 1.0
        bases.append(place)
    kept = tuple(j for j in range(len(names)) if j not in bases)
    return Coding(kept, matrix[[*kept]], tuple(spoken[names[j]] for j in kept))


def references_of(encoding: Encoding, levels_of: Collection[str]) -> dict[str, str] | None:
    """Returns the reference of each categorical column of a result; None where it has coefficients of all levels. `told`: the
    names of the result's coefficients."""
    found = dict[str, str]()
    for column in encoding.columns:
        lacking = [level for level in column.levels or () if f"{column.name}={level}" not in levels_of]
        if column.levels is not None and len(lacking) != 1:
            return None
        found.update((column.name, level) for level in lacking)
    return found


def with_references(encoding: Encoding, given: Mapping[str, Array], m: int) -> list[Array]:
    """Returns m draws of each coefficient of the encoding; those of reference levels, which a result does not have, are 0."""
    levels = {f"{column.name}={level}" for column in encoding.columns for level in column.levels or ()}
    return [np.zeros(m) if name in levels and name not in given else given[name] for name in encoding.names]
