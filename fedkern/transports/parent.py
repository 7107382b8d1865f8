"""What a rank has to do with the process that started it: it ends when that is gone, and rank 0 tells it how the job goes.

mpirun, where it tolerates deaths, leaves its ranks alive when it is killed. Nobody would hear what they say, or could stop them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from contextlib import suppress

LAUNCHER = "FEDKERN_LAUNCHER"  # the name of the socket of `mpirun`
BEGUN, ENDED = b"begun", b"ended "
LOOK = 0.5  # seconds
PDEATHSIG = 1  # of prctl


def tell(word: bytes) -> bool:
    """Says something to `mpirun`, from rank 0; whether there is one on this machine to hear it."""
    name = os.environ.get(LAUNCHER)
    if not name:
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(word, f"\0{name}".encode())
        return True
    return False


def follow() -> None:
    """From now on this process ends, within a second and with code 3, when its parent does."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(3)

    # A rank that was stopped can't look. (To be killed by the kernel is no way: that is for the death of the parent's thread.)
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGCONT)
    threading.Thread(target=look, name="fedkern-parent", daemon=True).start()
