"""A bound call that its owner keeps: made when it is first needed, and anew where it would be another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Call = TypeVar("Call")


class Bound(Generic[Call]):
    """One such call. It holds arrays of the kernel's sizes, and nothing that a result depends on.

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
        """The call; `bind` makes it.

        Parameters
        ----------
        settings : what never changes: another object is another call
        of : what else the call depends on, compared by value
        """
        if self._call is None or self._settings is not settings or self._of != of:
            self._settings, self._of, self._call = settings, of, bind()
        return self._call
