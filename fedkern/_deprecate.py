"""Lets an old name or argument go on to work, with a warning: the rule is in docs/reference/versions.md.

The warning is a `DeprecationWarning` at the line that uses the old one. Python shows it in scripts and notebooks, and pytest
everywhere.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Renamed(NamedTuple):
    """Names what to write now, and the version in which the old name ends.

    `made` makes the new value of the old one, where it is another.

    Examples
    --------
    >>> from fedkern._deprecate import Renamed
    >>> Renamed("digest", until="0.3").new
    'digest'
    """

    new: str
    until: str
    made: Callable[[Any], object] | None = None


def warn(old: str, new: str, *, until: str, stacklevel: int = 2) -> None:
    """Warns that a name is an old one.

    Parameters
    ----------
    old, new : as the caller has them, and what to write now
    until : version in which the old one ends
    stacklevel : 2 for the line that calls the function that calls this one, as `warnings.warn`

    Examples
    --------
    >>> import warnings
    >>> from fedkern._deprecate import warn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("fedkern.fit", "fedkern.run", until="0.3")
    ...
    >>> print(caught[0].message)
    fedkern.fit is now fedkern.run: write that; the old name ends in version 0.3
    """
    text = f"{old} is now {new}: write that; the old name ends in version {until}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)


def names(module: str, **old: Renamed) -> Callable[[str], object]:
    """Returns a module's `__getattr__` for its old names.

    Parameters
    ----------
    module : `__name__`
    **old : old name -> the name in the same module that has taken its place

    Examples
    --------
    >>> import sys
    >>> from types import ModuleType
    >>> from fedkern._deprecate import Renamed, names
    >>> module = sys.modules["mine"] = ModuleType("mine")
    >>> module.draw = lambda: 7
    >>> module.__getattr__ = names("mine", sample=Renamed("draw", until="0.3"))
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     module.sample()
    ...
    7
    >>> print(caught[0].message)
    mine.sample is now mine.draw: write that; the old name ends in version 0.3
    """

    def find_old(name: str) -> object:
        if name not in old:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, until, _ = old[name]
        warn(f"{module}.{name}", f"{module}.{new}", until=until)
        return getattr(sys.modules[module], new)

    return find_old


def arguments(**old: Renamed) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Lets a function take old names of keyword arguments. Its signature and documentation have the new ones alone.

    Parameters
    ----------
    **old : old name -> the argument that has taken its place

    Raises
    ------
    TypeError
        At a call: both the old and the new one were given.

    Examples
    --------
    >>> import warnings
    >>> from fedkern._deprecate import Renamed, arguments
    >>> @arguments(size=Renamed("n", until="0.3"))
    ... def draw(*, n):
    ...     return n
    ...
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     draw(size=3)
    ...
    3
    >>> print(caught[0].message)
    draw: size= is now n=: write that; the old name ends in version 0.3
    """

    def take_old(function: Callable[P, T]) -> Callable[P, T]:
        no_old = frozenset(old).isdisjoint  # the quickest: kernels take a few microseconds

        @functools.wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> T:
            if not no_old(given):
                take_names(call, given, stacklevel=2)
            return function(*args, **given)

        call.old_names = old  # type: ignore[attr-defined]  # for whoever binds its calls
        return call

    return take_old


def take_names(function: Callable[..., Any], given: dict[str, Any], *, stacklevel: int) -> None:
    """Gives arguments of a function their new names, and warns of old ones.

    Parameters
    ----------
    given : argument -> value; it is changed
    stacklevel : 1 for the line that calls this function, as of `warn`
    """
    old: Mapping[str, Renamed] = getattr(function, "old_names", {})
    for name in old.keys() & given.keys():
        new, until, made = old[name]
        if new in given:
            raise TypeError(f"{function.__qualname__}: {name}= is the old name of {new}=; give one of them")
        follows = f"{new}=" if made is None else f"{new}=, from which it follows"
        warn(f"{function.__qualname__}: {name}=", follows, until=until, stacklevel=stacklevel + 1)
        value = given.pop(name)
        given[new] = value if made is None else made(value)
