"""Handles signals before the command has its handlers: they end the process, with the code of a job that was stopped.

Python would raise KeyboardInterrupt wherever it is, and some code swallows that: an import of an optional package goes on without
it, and the request is lost. Ranks keep the handlers that their launcher expects. This module imports next to nothing, for it
comes first.
"""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP")
STOPPED = 3


def _end(number: int, frame: object) -> None:
    """Ends the process at once, with a line on stderr."""
    try:
        os.write(2, f"fedkern: stopped by {signal.Signals(number).name}\n".encode())
    finally:
        os._exit(STOPPED)


def listen() -> None:
    """Sets the handlers in the process of a command, but not where somebody imports this module."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = os.path.basename(getattr(main, "__file__", None) or "") if spec is None else spec.name.partition(".")[0]
    if name != "fedkern" or "--mpi" in sys.argv:
        return
    for number in (getattr(signal, name) for name in NAMES):
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, _end)


listen()
