"""A kernel's call for all rounds of a run: bound when it is first needed, and anew for another sampler or another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .settings import Settings

Call = TypeVar("Call")


class Bound(Generic[Call]):
    """One such call. It holds arrays of the kernel's sizes, and nothing that a result depends on."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._of: tuple[object, ...] = ()
        self._call: Call | None = None

    def of(self, settings: Settings, bind: Callable[[], Call], *of: object) -> Call:
        """The call; `bind` makes it. `of`: what beside the settings (which never change) it depends on."""
        if self._call is None or self._settings is not settings or self._of != of:
            self._settings, self._of, self._call = settings, of, bind()
        return self._call
