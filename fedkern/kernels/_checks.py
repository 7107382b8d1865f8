"""Describes which values the scalar arguments of kernels may have, and refuses others in one sentence."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

# The names that the expressions of a domain may use, beside builtins and its `codes`.
NAMES: Mapping[str, object] = MappingProxyType({"inf": math.inf, "index": operator.index, "uint64": np.uint64})


@dataclass(frozen=True)
class Domain:
    """Describes which values a scalar may have, by expressions in `x` from which the call of a kernel is compiled."""

    words: str = ""  # the part of an error's text between the name and the value
    test: str = ""  # an expression that holds where x is allowed; "": the caller checks
    passed: str = "x"  # an expression for the value that backends get
    codes: Mapping[str, int] | None = None  # for a choice: name -> the value that backends get
    # the first and the last of whole numbers that are in the domain and are passed on as they are: a bound call compares with
    # these alone
    whole: tuple[int, int] | None = None

    @cached_property
    def may_be(self) -> str:
        """The words, as documents have them."""
        return self.words.removeprefix("must be ").replace("'", '"')

    @property
    def kind(self) -> str:
        """The kind of value, for the text of a TypeError."""
        if re.search(r"\b(index|int)\(", self.passed):
            return "an integer"
        return "a number" if "float(" in self.passed else self.may_be

    def check(self, kernel: str, name: str, value: object) -> None:
        """Raises an error for a value that backends may not get; the text names the argument, the domain and the value. Raises
        TypeError: the value can't be compared with the domain, or can't be passed on: a word or an array in the place of a
        number, a fraction in that of an integer. Raises ValueError: a value outside the domain."""
        self.check_kind(kernel, name, value)
        require(kernel, self.has(value), name, self.words, describe(value))

    def check_kind(self, kernel: str, name: str, value: object) -> None:
        """Raises TypeError, which names the argument, for a value that is of no kind that this domain knows."""
        try:
            if not self.has(value):
                return  # a value outside
            self._pass(value)
            return
        except Exception:  # of any object: what it raises may hold its contents
            pass
        raise TypeError(f"{kernel}: {name} must be {self.kind}, got {describe(value)}")

    @cached_property
    def has(self) -> Callable[[Any], bool]:
        """A function that tells whether a value is allowed."""
        has: Callable[[Any], bool] = eval(f"lambda x: {self.test or True}", {**NAMES, "codes": self.codes})
        return has

    @cached_property
    def _pass(self) -> Callable[[Any], object]:
        passed: Callable[[Any], object] = eval(f"lambda x: {self.passed}", {**NAMES, "codes": self.codes})
        return passed


def describe(value: object) -> str:
    """Returns a value as an error may show it: numbers and words themselves, but only the shape of an array, which may hold data.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import _checks
    >>> _checks.describe(1.5), _checks.describe("a"), _checks.describe(np.ones((2, 3)))
    ('1.5', "'a'", 'an array of shape (2, 3)')
    """
    if value is None or isinstance(value, (bool, int, float, np.number, np.bool_)):
        return str(value)
    if isinstance(value, str):
        return repr(value)
    if type(value) is tuple and len(value) < 10:  # sizes
        return f"({', '.join(map(describe, value))})"
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if isinstance(shape, tuple) else type(value).__name__


def whole(kernel: str, name: str, numbers: Iterable[Any]) -> tuple[int, ...]:
    """Returns whole numbers as a tuple; raises TypeError, which names the argument, for anything else."""
    try:
        return tuple(map(operator.index, numbers))
    except TypeError:
        pass
    raise TypeError(f"{kernel}: {name} must be integers, got {describe(numbers)}")


def check_threads(kernel: str, n_threads: object) -> int:
    """Returns a number of threads as the bindings take it: their own error for another value would show all arguments."""
    N_THREADS.check(kernel, "n_threads", n_threads)
    return operator.index(n_threads)  # type: ignore[arg-type]  # it was asked


def choice_of(codes: Mapping[str, int], words: str = "") -> Domain:
    """Returns the domain of one of several names; backends get the name's code."""
    return Domain(words or f"must be {' or '.join(map(repr, codes))}", "x in codes", "codes[x]", codes)


POSITIVE = Domain("must be > 0 and finite", "0 < x < inf", "float(x)")
GAMMA_SHAPE = Domain("must be > 0 and at most 1e300", "0 < x <= 1e300", "float(x)")  # beyond it no attempt at a draw is taken
NOT_NEGATIVE = Domain("must be >= 0 and finite", "0 <= x < inf", "float(x)")
FRACTION = Domain("must be in (0, 1)", "0 < x < 1", "float(x)")
ABOVE_0 = Domain("must be > 0", "x > 0", "float(x)")  # inf, too
FINITE = Domain("must be finite", "-inf < x < inf", "float(x)")
NUMBER = Domain("a number", "", "float(x)")
SWITCH = Domain("must be True or False", "x == 0 or x == 1", "bool(x)")
AT_LEAST_0 = Domain("must be >= 0 and below 2^32", "0 <= x < 2**32", "index(x)")
AT_LEAST_1 = Domain("must be >= 1 and below 2^32", "1 <= x < 2**32", "index(x)")
# Compiled calls compare with signed numbers of 64 bits.
SEED = Domain("must be in [0, 2^64)", "0 <= x < 2**64", "uint64(index(x))", whole=(0, 2**63 - 1))
KEY = Domain("must be in [0, 2^64)", "0 <= x < 2**64", "index(x)", whole=(0, 2**63 - 1))
N_THREADS = Domain("must be in [1, 2^31)", "1 <= x < 2**31", "index(x)")
WORD = Domain("must be in [0, 2^32)", "0 <= x < 2**32", "index(x)", whole=(0, 2**32 - 1))
MADE = Domain()  # no argument of the public function, but made of others


@dataclass(frozen=True)
class Together:
    """Groups scalars that are refused in one sentence."""

    names: tuple[str, ...]  # the scalars, in the order in which the sentence tells their values
    words: str  # the condition, as the sentence has it
    test: str = ""  # an expression in their names that must hold beside their domains


def refuse(kernel: str, domains: Mapping[str, Domain], together: Iterable[Together], values: Mapping[str, object]) -> None:
    """Raises an error for the first of the values that is of a wrong type, or else for the first that is not in its domain."""
    sentences = {name: t for t in together for name in t.names}
    for name, domain in domains.items():
        domain.check_kind(kernel, name, values[name])
    for name, domain in domains.items():
        if name not in sentences:
            domain.check(kernel, name, values[name])
        elif not domain.has(values[name]):
            _refuse_together(kernel, sentences[name], values)
    for sentence in together:
        if sentence.test and not eval(sentence.test, dict(values)):
            _refuse_together(kernel, sentence, values)


def _refuse_together(kernel: str, sentence: Together, values: Mapping[str, object]) -> NoReturn:
    came = ", ".join(f"{name} = {describe(values[name])}" for name in sentence.names)
    raise ValueError(f"{kernel}: needs {sentence.words}; got {came}")


def require(kernel: str, holds: object, name: str, what: str, value: object) -> None:
    """Raises ValueError unless a condition holds: "kernel: name what, got value"."""
    if not holds:
        raise ValueError(f"{kernel}: {name} {what}, got {value}")


def choice(kernel: str, name: str, value: Any, codes: Mapping[str, int]) -> int:
    """Returns the code of a choice."""
    choice_of(codes).check(kernel, name, value)
    return codes[value]


# --------------------
# Takes arrays of other libraries (torch, JAX, ..) in this machine's memory, by the DLPack protocol and without a copy.

CPU, CUDA = 1, 2  # numbers of the DLPack protocol; of memory that the host reaches all others are refused


def exports(value: object) -> bool:
    """Tells whether an object hands out its memory by the protocol."""
    return hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")


def device_of(value: Any, who: str) -> int:
    """Returns the kind of device on which an array lies; TypeError, which begins with `who`, where it does not say so."""
    try:
        return int(value.__dlpack_device__()[0])
    except Exception as error:
        raise TypeError(f"{who}: {_kind(value)} does not tell its device ({_why(error)}); give a NumPy array") from error


def as_numpy(value: Any, who: str) -> np.ndarray:
    """Returns a NumPy array in the memory of another library's array. `value`: an object with `__dlpack__` and
    `__dlpack_device__`; `who`: the beginning of an error's text. Raises TypeError: it lies on a device, or NumPy can't take it:
    it has a type that NumPy has not, or asks for a gradient."""
    device = device_of(value, who)
    if device != CPU:
        remedy = "kernels.from_dlpack makes a CuPy array of it, or copy it to this machine's memory first"
        remedy = remedy if device == CUDA else "copy it to this machine's memory first"
        raise TypeError(f"{who} lies on another device than the CPU (DLPack's number {device}): {remedy}")
    if hasattr(value, "is_neg") and value.is_neg():  # torch 2.13 exports the memory, which holds minus the values
        raise TypeError(f"{who}: {_kind(value)} holds minus its values; give its resolve_neg()")
    try:
        return np.from_dlpack(value)
    except Exception as error:
        raise TypeError(f"{who}: {_kind(value)} gives no array ({_why(error)}); give a NumPy array") from error


def _kind(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
