"""What a signal does before the command has handlers of its own: it ends the process, with the code of a job that was stopped.

Python would raise KeyboardInterrupt wherever it is, and some code swallows that: an import that looks for what is optional goes
on without it, and the request is lost. Ranks keep what their launcher expects. Imports next to nothing, for it comes first.
"""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP")
STOPPED = 3


def _end(number: int, frame: object) -> None:
    try:
        os.write(2, f"fedkern: stopped by {signal.Signals(number).name}\n".encode())
    finally:
        os._exit(STOPPED)


def listen() -> None:
    """From now on, in the process of a command: not where somebody imports it."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = os.path.basename(getattr(main, "__file__", None) or "") if spec is None else spec.name.partition(".")[0]
    if name != "fedkern" or "--mpi" in sys.argv:
        return
    for number in (getattr(signal, name) for name in NAMES):
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, _end)


listen()
