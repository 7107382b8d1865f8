"""Keeps a bound call for its owner: made when it is first needed, and made anew where another one is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

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
