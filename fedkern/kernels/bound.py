"""Binds calls of kernels, and keeps a bound call for its owner: made when first needed, and anew where another is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Generic, TypeVar

import numpy as np

from .._deprecate import take_names
from ._record import ASK, Array, Asked, Kernel, names

__all__ = ["Bound"]

Call = TypeVar("Call")


class Bound(Generic[Call]):
    """Keeps one bound call. It holds arrays of the kernel's sizes, and no value that a result depends on.

    Examples
    --------
    >>> from fedkern.kernels import rng
    >>> from fedkern.kernels.bound import Bound
    >>> bound = Bound()
    >>> draw = bound.of(None, lambda: rng.bind_words(2, key=7), 7)
    >>> bound.of(None, lambda: rng.bind_words(2, key=7), 7) is draw  # the same key: the same call
    True
    >>> bound.of(None, lambda: rng.bind_words(2, key=8), 8) is draw
    False
    """

    def __init__(self) -> None:
        self._settings: object = None
        self._of: tuple[object, ...] = ()
        self._call: Call | None = None

    def of(self, settings: object, bind: Callable[[], Call], *of: object) -> Call:
        """Returns the call; `bind` makes it.

        Parameters
        ----------
        settings : an object that never changes; another object asks for another call
        of : the other values that the call depends on, compared by value
        """
        if self._call is None or self._settings is not settings or self._of != of:
            self._settings, self._of, self._call = settings, of, bind()
        return self._call


# Binds calls of a kernel by the public function's arguments, for `kernels.bind` --------------------
#
# The public function itself checks the arguments: it is called with `ASK` in the place of a backend, and says what it would
# give to one. A bound call takes the compiled way where that can't change with the arguments that vary; else it is the public
# function.

Results = tuple[Any, ...]
COUNTS = ("n_sweeps", "n_passes")  # how many numbers of `step` a call takes


def bind_kernel(
    record: Kernel, arrays: Mapping[str, Any], varying: Sequence[str], n_threads: int, scalars: Mapping[str, Any]
) -> Callable[..., Results]:
    """Returns a bound call; see `kernels.bind`."""
    public = getattr(import_module(record.module), record.public.partition(".")[2])
    given = _all_arguments(record, public, arrays, scalars)
    record.check_varying(varying, tuple(given))
    call = _ask(record, public, given, n_threads)
    sizes = record.sizes_of(call.inputs, varying, call.symbols)
    # Arrays that go to the kernel as they came are compared with the sizes of all; others the public function makes anew.
    same = {a.name: a for a, value in zip(record.inputs, call.inputs) if value is not None and value is given[a.name]}

    shapes = {name: given[name].shape for name in varying if name in same}

    def slowly(*now: Any) -> Results:
        changed = record.now(varying, now)
        for name, shape in shapes.items():
            if getattr(changed[name], "shape", None) != shape:
                same[name].check(record.public, changed[name], dict(sizes))
        return _in_order(record, public(**given | changed, n_threads=n_threads))

    if not call.last or any(name in record.tied or not _goes_on(record, name, same) for name in varying):
        return slowly
    numbers = dict(zip(names(*record.scalars), call.numbers))
    if "step" in varying and any(count in varying for count in COUNTS):
        return slowly
    last = 2**32 - max((int(numbers[count]) for count in COUNTS if count in numbers), default=1)  # type: ignore[call-overload]
    bound = record.bind_checked(call.inputs, call.numbers, varying, n_threads, None, call.symbols, slowly, last)
    if record.outputs[-1].name != "events":
        return bound

    def checked(*now: Any) -> Results:
        found = bound(*now)
        # Its last column tells a number that is not finite: the public function says which.
        return slowly(*now) if (np.asarray(found[-1])[..., -1] >= 0).any() else found

    return checked


def _all_arguments(
    record: Kernel, public: Callable[..., Any], arrays: Mapping[str, Any], scalars: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of the public function by name, with its defaults; refuses others, and missing ones."""
    taken = {p.name: p for p in signature(public).parameters.values() if p.name not in ("out", "n_threads", "backend")}
    scalars = dict(scalars)
    take_names(public, scalars, stacklevel=4)
    for name in (*arrays, *scalars):
        if name not in taken:
            near = get_close_matches(name, taken, 1)
            meant = f"; do you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{record.public}: no argument {name!r}{meant or '; there are ' + ', '.join(taken)}")
        if name in arrays and name in scalars:
            raise TypeError(f"{record.public}: {name} is given twice")
    defaults = {name: p.default for name, p in taken.items() if p.default is not Parameter.empty}
    given = {**defaults, **arrays, **scalars}
    if missing := [name for name in taken if name not in given]:
        raise TypeError(f"{record.public}: {missing[0]} is missing")
    return {name: given[name] for name in taken}


def _ask(record: Kernel, public: Callable[..., Any], given: Mapping[str, Any], n_threads: int) -> Asked:
    """Returns what the public function would give to a backend; raises its errors."""
    try:
        public(**given, n_threads=n_threads, backend=ASK)
    except Asked as asked:
        if asked.kernel is not record:  # two records may share a function
            raise ValueError(
                f"kernels.bind: with arrays of these shapes {record.public} is the kernel {asked.kernel.name}, not {record.name}"
            ) from None
        return asked
    raise RuntimeError(f"{record.public} computes without a backend")


def _goes_on(record: Kernel, name: str, same: Mapping[str, Array]) -> bool:
    """Tells whether an argument goes to the kernel as it came."""
    return name in same or sum(s.keyword == name for s in record.scalars) == 1


def _in_order(record: Kernel, results: Any) -> Results:
    """Returns the public function's results, with a value that the kernel returns before the arrays."""
    found: Results = results if isinstance(results, tuple) else (results,)
    if not record.returns:
        return found
    after = [" : " not in result for result in record.results]
    return tuple(found[i] for i in sorted(range(len(found)), key=after.__getitem__))
