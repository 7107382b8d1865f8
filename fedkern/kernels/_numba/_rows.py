"""Compiles the text of a likelihood's row, `_rows.py` and the records of `families`, for numbers."""

from math import erfc, lgamma
from types import ModuleType

import numpy as np

from .. import _rows, families
from ._jit import compiled, scalar_ieee, with_meanings

__all__ = ["by_family", "of"]


def where(condition, first, other):
    return first if condition else other


def some(condition):
    return condition


def pick(condition, first_of, second_of, *rows):
    if condition:
        return first_of(*rows)
    return second_of(*rows)


def expit(x):
    t = np.exp(-abs(x))
    above = t if x < 0.0 else 1.0
    return above / (1.0 + t)


def softplus(x):
    return max(x, 0.0) + np.log1p(np.exp(-abs(x))) if x == x else x


def gammaln(x):
    return lgamma(x) if x == x else x


def normal_cdf(x):
    return 0.5 * erfc(-x * np.sqrt(0.5))


IN_OTHER_WORDS = {f.__name__: f for f in (where, some, pick, expit, softplus, gammaln, normal_cdf)}
of = ModuleType("of")  # the functions of `_rows`, compiled: nopython code reads attributes of modules alone
vars(of).update(compiled(_rows, **{name: scalar_ieee(function) for name, function in IN_OTHER_WORDS.items()}))
IN_RECORDS = {**vars(families), **vars(of), "of": of}
IN_RECORDS["_of_trials"] = scalar_ieee(with_meanings(families._of_trials, IN_RECORDS))


def by_family(records, field, arguments):
    """Returns the compiled function (family, arguments): that of the record at the place of the number; the last of others."""
    functions = [record.domain.has if field == "has" else getattr(record, field) for record in records]
    lines = [f"    if family == {number}: return f{number}({arguments})" for number in range(len(records) - 1)]
    known = {f"f{number}": scalar_ieee(with_meanings(function, IN_RECORDS)) for number, function in enumerate(functions)}
    exec("\n".join([f"def {field}(family, {arguments}):", *lines, f"    return f{len(records) - 1}({arguments})"]), known)
    return scalar_ieee(known[field])
