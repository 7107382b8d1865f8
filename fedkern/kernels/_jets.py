"""Derives a row's slope and curvature from its declaration: numbers carry their first and second derivatives in others.

A declaration calls NumPy's functions, and others that take such numbers by `chain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Jet:
    """An array with its first derivatives (k, ..) and second ones (k, k, ..) in k others."""

    __array_priority__ = 1000

    def __init__(self, value: Any, first: Any, second: Any):
        self.value, self.first, self.second = value, first, second

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        if method == "__call__" and not options and ufunc in BINARY:
            return BINARY[ufunc](*map(_jet, given))
        if method == "__call__" and not options and ufunc in UNARY:
            return chain(given[0], *UNARY[ufunc](given[0].value))
        return NotImplemented

    def __neg__(self) -> Any:
        return chain(self, -self.value, -1.0, 0.0)

    def __add__(self, other: Any) -> Any:
        return BINARY[np.add](self, _jet(other))

    def __sub__(self, other: Any) -> Any:
        return BINARY[np.subtract](self, _jet(other))

    def __rsub__(self, other: Any) -> Any:
        return BINARY[np.subtract](_jet(other), self)

    def __mul__(self, other: Any) -> Any:
        return BINARY[np.multiply](self, _jet(other))

    def __truediv__(self, other: Any) -> Any:
        return BINARY[np.true_divide](self, _jet(other))

    def __rtruediv__(self, other: Any) -> Any:
        return BINARY[np.true_divide](_jet(other), self)

    __radd__, __rmul__ = __add__, __mul__


def variables(*values: Any) -> list[Jet]:
    """Returns numbers, or arrays of one shape, each the variable of its own."""
    arrays, unit = np.broadcast_arrays(*values), np.eye(len(values))
    like = (slice(None), *(np.newaxis,) * arrays[0].ndim)
    none = np.zeros((len(values), len(values), *arrays[0].shape))
    return [Jet(value, unit[k][like] + 0.0 * none[0], none) for k, value in enumerate(arrays)]


def chain(x: Any, value: Any, slope: Any, curve: Any) -> Any:
    """Returns f(x) by f with its two derivatives there."""
    if not isinstance(x, Jet):
        return value
    if np.ndim(x.first) == 0:
        return _jet(value)
    return Jet(value, slope * x.first, slope * x.second + curve * _outer(x.first, x.first))


def chain_two(x: Any, y: Any, value: Any, slopes: tuple[Any, Any], curves: tuple[Any, Any, Any]) -> Any:
    """Returns f(x, y) by f with its derivatives there, the second ones in x, in both, in y."""
    if not isinstance(x, Jet) and not isinstance(y, Jet):
        return value
    (a, b), across = (_jet(x), _jet(y)), curves[1]
    both = across * (_outer(a.first, b.first) + _outer(b.first, a.first))
    one, other = (
        slope * of.second + curve * _outer(of.first, of.first)
        for of, slope, curve in zip((a, b), slopes, curves[::2], strict=True)
    )
    return Jet(value, slopes[0] * a.first + slopes[1] * b.first, one + both + other)


def where(condition: Any, first: Any, other: Any) -> Any:
    """Returns the first where the condition holds, and the other elsewhere."""
    if not isinstance(first, Jet) and not isinstance(other, Jet):
        return np.where(condition, first, other)
    a, b = _jet(first), _jet(other)
    return Jet(*(np.where(condition, *parts) for parts in ((a.value, b.value), (a.first, b.first), (a.second, b.second))))


def number(x: Any) -> Any:
    """Returns the value alone."""
    return x.value if isinstance(x, Jet) else x


def _jet(x: Any) -> Jet:
    return x if isinstance(x, Jet) else Jet(x, 0.0, 0.0)


def _outer(a: Any, b: Any) -> Any:
    return a[:, np.newaxis] * b[np.newaxis] if np.ndim(a) and np.ndim(b) else 0.0


def _product(a: Jet, b: Jet) -> Jet:
    first = a.value * b.first + b.value * a.first
    second = a.value * b.second + b.value * a.second + _outer(a.first, b.first) + _outer(b.first, a.first)
    return Jet(a.value * b.value, first, second)


BINARY: dict[Any, Callable[[Jet, Jet], Jet]] = {
    np.add: lambda a, b: Jet(a.value + b.value, a.first + b.first, a.second + b.second),
    np.subtract: lambda a, b: Jet(a.value - b.value, a.first - b.first, a.second - b.second),
    np.multiply: _product,
    np.true_divide: lambda a, b: _product(a, chain(b, 1 / b.value, -1 / b.value**2, 2 / b.value**3)),
}
UNARY: dict[Any, Callable[[Any], tuple[Any, Any, Any]]] = {
    np.exp: lambda x: (np.exp(x),) * 3,
    np.expm1: lambda x: (np.expm1(x), np.exp(x), np.exp(x)),
    np.log: lambda x: (np.log(x), 1 / x, -1 / x**2),
    np.log1p: lambda x: (np.log1p(x), 1 / (1 + x), -1 / (1 + x) ** 2),
}


def declared(part: Callable[[Any, Any, Any, Any], Any]) -> dict[str, Any]:
    """Returns a record's `part`, and the slope and minus the curvature that follow from it."""

    def of_eta(y: Any, eta: Any, scale: Any, trials: Any) -> Jet:
        jet: Jet = part(y, variables(eta)[0], scale, trials)
        return jet

    return {
        "part": part,
        "slope": lambda y, eta, scale, trials: np.asarray(of_eta(y, eta, scale, trials).first[0]),
        "observed": lambda y, eta, scale, trials: np.asarray(-of_eta(y, eta, scale, trials).second[0, 0]),
    }
