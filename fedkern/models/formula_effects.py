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
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..arrays import Array
from ..errors import JobError
from .encoding import Encoding
from .formula.expansion import Formula, Labels, Monomial, Powers

Family = tuple[frozenset[str], Powers]  # columns of labels, and what is beside them
NOTHING: Monomial = (frozenset(), frozenset())  # the constant's
NONE = -1  # the place of a constant without a coefficient
MOST_CELLS = 300  # combinations of levels
DIGITS = 12  # of the coding of levels


def coefficients_of_effects(encoding: Encoding, *, of_constant: bool, most: float = math.inf) -> Array | None:
    """Returns K (d, q) from effects to coefficients of standardised columns; None where these are the same.

    The first effect is the intercept, where there is one. A column whose product does not expand into the model's columns, as of
    `x:z` alone, is its own effect.

    Parameters
    ----------
    of_constant : whether products of numbers with levels may leave a constant: to an intercept, or to numbers without a prior
    most : the largest standardised coefficient that an effect of 1 may make

    Raises
    ------
    JobError
        One is larger: rows of numbers far from 0 tell such coefficients where no question reaches them.

    Examples
    --------
    >>> from fedkern.models.formula_effects import coefficients_of_effects
    >>> from fedkern.models.encoding import Column, Encoding
    >>> from fedkern.models.formula.expansion import Formula, Known
    >>> formula = Formula((("g",),)).knowing({"g": Known(levels=("a", "b"))})
    >>> encoding = Encoding((Column("g[T.b]", center=0.0, scale=1.0),), "y", formula=formula)
    >>> coefficients_of_effects(encoding, of_constant=True)  # of the intercept, a and b
    array([[ 1.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    return None if encoding.formula is None else _coefficients(encoding.to_json(), of_constant, most)


@lru_cache(maxsize=16)
def _coefficients(encoding_as_json: bytes, of_constant: bool, most: float) -> Array | None:
    """Returns the same of an encoding with a formula; models of a job ask for it many times."""
    encoding = Encoding.from_json(encoding_as_json)
    formula, first = encoding.formula, int(encoding.intercept)
    assert formula is not None
    found, constants = [formula.monomial(made) for made in formula.made], _constants(encoding)
    families: dict[Family, list[int]] = {(frozenset(), frozenset()): [0] if first else []}
    for j, (labels, powers) in enumerate(found, first):
        families.setdefault((_factors(formula, labels), powers), []).append(j)
    whole_columns = tuple(replace(column, flat=False) for column in encoding.columns)  # in a product it has a part
    A, columns = (
        replace(encoding, columns=whole_columns).affine(),
        dict(enumerate(found, first)) | {0 if first else NONE: NOTHING},
    )
    effects = list[Array]()
    for (factors, powers), places in families.items():
        several = len(factors) + sum(k for _, k in powers) > (1 if powers else 0)
        kept = several and (of_constant or not (factors and powers))
        of_family = _expanded(formula, columns, constants, (factors, powers), len(A)) if kept else None
        standard = None if of_family is None else np.linalg.solve(A, of_family)
        if standard is None or standard.shape[1] < len(places):
            standard = np.eye(len(A))[:, places]
        if np.abs(standard).max(initial=0.0) > most:
            about = ", ".join(f"{name} {float(format(constants[name][0], '.3g')):g}" for name, _ in sorted(powers))
            raise JobError(
                f"{', '.join(repr(encoding.columns[j - first].name) for j in places)}: with secure sums no question reaches the "
                "coefficients of such powers and products of numbers far from 0; take these about their mean in each term "
                f"({about}), as I(year - 2008), or run the job without job.sums"
            )
        effects.append(np.asarray(standard, np.float64))
    K = np.hstack(effects)
    return None if K.shape == A.shape and (K == np.eye(len(A))).all() else K


def units_of_effects(encoding: Encoding) -> Array:
    """Returns (d,) the standard deviations that are multiplied in each coefficient's column, over its own scale.

    Of a year times another column it is small: nearly all of the product is the other column, and yet it is no multiple of that.
    """
    units = np.ones(encoding.size)
    if (formula := encoding.formula) is None:
        return units
    constants = _constants(encoding)
    for j, (made, column) in enumerate(zip(formula.made, encoding.columns), int(encoding.intercept)):
        powers = formula.monomial(made)[1]
        if powers and all(name in constants for name, _ in powers):
            units[j] = math.prod(constants[name][1] ** k for name, k in powers) / column.constants[1]
    return units


def _constants(encoding: Encoding) -> dict[str, tuple[float, float]]:
    """Returns the centres and scales of numbers that stand alone, or of which each level has a slope: the sum of such columns."""
    if (formula := encoding.formula) is None:
        return {}
    found, parts = dict[str, tuple[float, float]](), dict[tuple[str, frozenset[str]], list[tuple[float, float]]]()
    for made, column in zip(formula.made, encoding.columns):
        labels, powers = formula.monomial(made)
        if len(powers) == 1 and all(k == 1 for _, k in powers) and not any(reduced for _, reduced, _ in labels):
            ((name, _),) = powers
            if not labels:
                found[name] = column.constants
            elif column.constants[0]:  # no rescaled column alone
                parts.setdefault((name, _factors(formula, labels)), []).append(column.constants)
    for (name, factors), slopes in parts.items():
        mean = sum(center for center, _ in slopes)
        variance = sum(center**2 + scale**2 for center, scale in slopes) - mean**2
        if len(slopes) == math.prod(len(formula.known[factor].levels or ()) for factor in factors) and variance > 0:
            found.setdefault(name, (mean, math.sqrt(variance)))
    return found


def _expanded(
    formula: Formula, columns: Mapping[int, Monomial], constants: Mapping[str, tuple[float, float]], family: Family, d: int
) -> Array | None:
    """Returns (d, cells) the effects of a family as coefficients on the data's scale, one of each combination of levels.

    None where the model lacks a column for them.
    """
    factors, powers = family
    ones = {name: np.ones(len(formula.known[name].levels or ())) for name in sorted(factors)}
    cells = math.prod(map(len, ones.values()))
    if not all(name in constants for name, _ in powers) or cells > MOST_CELLS:
        return None
    out = np.zeros((d, cells))
    for dropped in itertools.product(*(range(k + 1) for _, k in powers)):
        weight, left = 1.0, frozenset((name, k - e) for (name, k), e in zip(powers, dropped) if k > e)
        for (name, k), e in zip(powers, dropped):
            weight *= math.comb(k, e) * (-constants[name][0]) ** e / constants[name][1] ** k
        if not weight:
            continue
        values = dict[int, Array]()  # of each column in each combination of levels
        for j, (labels, powers_of) in columns.items():
            if powers_of == left and _factors(formula, labels) <= factors:
                coded = {name: factor.copy() for name, factor in ones.items()}
                for text, reduced, level in labels:
                    coded[formula.factors[text].node.text] *= formula.coding(text, reduced)[1][:, level]
                product: Array = np.ones(1)
                for factor in coded.values():
                    product = np.asarray(np.kron(product, factor), np.float64)
                values[j] = product
        matrix = np.array([*values.values()]).reshape(-1, cells).T
        if np.linalg.matrix_rank(matrix) < cells:
            return None
        for j, row in zip(values, np.linalg.lstsq(matrix, np.eye(cells), rcond=None)[0].round(DIGITS)):
            if j != NONE:
                out[j] += weight * row
    return out


def _factors(formula: Formula, labels: Labels) -> frozenset[str]:
    """Returns the columns of labels of which columns of the model are made, whatever their contrasts."""
    return frozenset(formula.factors[text].node.text for text, *_ in labels)
