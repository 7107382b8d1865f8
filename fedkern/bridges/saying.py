"""Says a line to the person, or a state to the service manager, at whose place a process of a job between organisations runs."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress

from ..printing import printable_lines


def say(text: str) -> None:
    """Prints a line to the standard error."""
    print(f"fedkern: {printable_lines(text)}", file=sys.stderr, flush=True)


def tell_manager(state: str) -> None:
    """Tells a service manager that waits for it (systemd's `Type=notify`) a state, such as READY=1; without one does nothing."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    # The process is what it is, whether or not its manager hears of it.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        address = "\0" + path[1:] if path[0] == "@" else path
        line.connect(address)
        line.send(state.encode())
