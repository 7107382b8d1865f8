"""Says of which effects the default prior of a formula's coefficients is, whatever columns the formula has for them.

Of x * z the coefficient of x is its effect where z is 0: of a year, two thousand years ago. Of a factor with contrasts all
coefficients are differences from one level, and all are large where that has few events. Rows tell such numbers badly and large,
so that a normal prior of each by itself decides. So the prior is of the effects that the same model has with ((x - m) / s)
((z - n) / t) in the place of x z, and with a column for each level: as without a formula. They are more than there are
coefficients, of which they make a linear map, and so a normal prior.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .encoding import Encoding
from .formula.expansion import Formula, Labels, Monomial, Powers

Array = NDArray[np.float64]
Family = tuple[frozenset[str], Powers]  # the factors of labels, by their texts, and what is beside them
NOTHING: Monomial = (frozenset(), frozenset())  # the constant's
NONE = -1  # the place of a constant without a coefficient
MOST_CELLS = 1000  # combinations of levels
EXACT = 1e-9


def coefficients_of_effects(encoding: Encoding, *, of_constant: bool) -> Array | None:
    """Returns K (d, q) from effects to coefficients of standardised columns; None where these are the same.

    The first effect is the intercept, where there is one. A column whose product does not expand into the model's columns, as of
    `x:z` alone, is its own effect.

    Parameters
    ----------
    of_constant : whether products of numbers with levels may leave a constant: to an intercept, or to numbers without a prior

    Examples
    --------
    >>> from fedkern.models.effects import coefficients_of_effects
    >>> from fedkern.models.encoding import Column, Encoding
    >>> from fedkern.models.formula.expansion import Formula, Known
    >>> formula = Formula((("g",),)).knowing({"g": Known(levels=("a", "b"))})
    >>> encoding = Encoding((Column("g[T.b]", center=0.0, scale=1.0),), "y", formula=formula)
    >>> coefficients_of_effects(encoding, of_constant=True)  # of the intercept, a and b
    array([[ 1.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    formula, first = encoding.formula, int(encoding.intercept)
    if formula is None:
        return None
    found = [formula.monomial(one) for one in formula.made]
    constants = {name: encoding.columns[j].constants for j, (labels, powers) in enumerate(found) for name in _alone(labels, powers)}
    families: dict[Family, list[int]] = {(frozenset(), frozenset()): [0] if first else []}
    for j, (labels, powers) in enumerate(found, first):
        families.setdefault((frozenset(text for text, *_ in labels), powers), []).append(j)
    A = encoding.affine()
    effects = list[Array]()  # as coefficients on the data's scale
    for (texts, powers), places in families.items():
        kept = of_constant or not (texts and powers)
        columns = dict(enumerate(found, first)) | ({0: NOTHING} if first else {NONE: NOTHING})
        own = _expanded(formula, columns, constants, (texts, powers), len(A)) if kept else None
        effects += [A[:, [*places]] if own is None else own]
    K = np.asarray(np.linalg.solve(A, np.hstack(effects)))
    return None if K.shape == A.shape and (K == np.eye(len(A))).all() else K


def _alone(labels: Labels, powers: Powers) -> list[str]:
    """Returns the name of a numeric column that stands alone, in a list."""
    return [name for name, k in powers if k == 1 and len(powers) == 1 and not labels]


def _expanded(
    formula: Formula, columns: Mapping[int, Monomial], constants: Mapping[str, tuple[float, float]], family: Family, d: int
) -> Array | None:
    """Returns (d, cells) the effects of a family as coefficients: one of each combination of levels; None where the model lacks a
    column for it, or effects are coefficients."""
    texts, powers = sorted(family[0]), family[1]
    cells = [*itertools.product(*(range(len(formula.coding(text, False)[0])) for text in texts))]
    if not all(name in constants for name, _ in powers) or len(cells) > MOST_CELLS:
        return None
    out = np.zeros((d, len(cells)))
    for dropped in itertools.product(*(range(k + 1) for _, k in powers)):
        weight, left = 1.0, frozenset((name, k - e) for (name, k), e in zip(powers, dropped) if k > e)
        for (name, k), e in zip(powers, dropped):
            weight *= math.comb(k, e) * (-constants[name][0]) ** e / constants[name][1] ** k
        if not weight:
            continue
        used = [j for j, (labels, own) in columns.items() if own == left and {text for text, *_ in labels} <= family[0]]
        values = np.array([[_value(formula, columns[j][0], dict(zip(texts, cell))) for j in used] for cell in cells])
        if not used or np.linalg.matrix_rank(values) < len(cells):
            return None
        solved = np.linalg.lstsq(values, np.eye(len(cells)), rcond=None)[0]
        for j, row in zip(used, np.where(np.abs(solved) < EXACT, 0.0, solved)):
            if j != NONE:
                out[j] += weight * row
    return out


def _value(formula: Formula, labels: Labels, cell: Mapping[str, int]) -> float:
    """Returns a product of columns of labels where these have the levels of a cell."""
    return math.prod(float(formula.coding(text, reduced)[1][cell[text], at]) for text, reduced, at in labels)
