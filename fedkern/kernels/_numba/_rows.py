"""Compiles the text of a likelihood's row, `_rows.py` and the records of `families`, for numbers."""

from math import erfc, lgamma
from types import FunctionType, ModuleType

import numpy as np

from .. import _rows, families
from ._jit import scalar_ieee

__all__ = ["by_family", "of"]


def where(condition, one, other):
    return one if condition else other


def some(condition):
    return condition


def pick(condition, one, other, *rows):
    if condition:
        return one(*rows)
    return other(*rows)


def expit(x):
    t = np.exp(-abs(x))
    return (t if x < 0.0 else 1.0) / (1.0 + t)


def softplus(x):
    return max(x, 0.0) + np.log1p(np.exp(-abs(x))) if x == x else x


def gammaln(x):
    return lgamma(x) if x == x else x


def normal_cdf(x):
    return 0.5 * erfc(-x * np.sqrt(0.5))


IN_OTHER_WORDS = {f.__name__: f for f in (where, some, pick, expit, softplus, gammaln, normal_cdf)}
of = ModuleType("of")  # the functions of `_rows`, compiled: they call each other here
vars(of).update(vars(_rows))
vars(of).update({name: scalar_ieee(function) for name, function in IN_OTHER_WORDS.items()})
IN_RECORDS = {**vars(families), **vars(of), "of": of}


def compiled(function, known):
    """Returns a function compiled with other meanings of the names in it."""
    return scalar_ieee(FunctionType(function.__code__, known, function.__name__, function.__defaults__))


for _name, _function in vars(_rows).items():
    if isinstance(_function, FunctionType) and _function.__module__ == _rows.__name__ and _name not in IN_OTHER_WORDS:
        setattr(of, _name, compiled(_function, vars(of)))
IN_RECORDS |= {**vars(of), "_of_trials": compiled(families._of_trials, IN_RECORDS)}


def by_family(records, field, arguments):
    """Returns the compiled function (family, arguments): that of the record at the place of the number; the last of others."""
    functions = [record.domain.has if field == "has" else getattr(record, field) for record in records]
    lines = [f"    if family == {number}: return f{number}({arguments})" for number in range(len(records) - 1)]
    known = {f"f{number}": compiled(function, IN_RECORDS) for number, function in enumerate(functions)}
    exec("\n".join([f"def {field}(family, {arguments}):", *lines, f"    return f{len(records) - 1}({arguments})"]), known)
    return scalar_ieee(known[field])
