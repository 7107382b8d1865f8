"""Turns a package's `os._exit` into an exception, which ends the job with an error that names its holder.

`os._exit` ends a process at once: with a status of 0 whoever waits for the job takes it for finished, and no other party hears
of it. What ends a process below Python (`exit` of C, a signal) cannot be caught here; docs/how-to/own-model.md says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class ProcessExit(SystemExit):
    """Is raised where a package asks for the end of the process; no `except Exception` of its own takes it for an error."""


@contextmanager
def refused() -> Iterator[None]:
    """Raises `ProcessExit` in the place of `os._exit`, in this process alone: processes that a package forks may end."""
    real, process = os._exit, os.getpid()

    def instead(status: int) -> NoReturn:
        if os.getpid() != process:
            real(status)
        raise ProcessExit(f"os._exit({status}) would have ended this party's process")

    os._exit = instead
    try:
        yield
    finally:
        os._exit = real
