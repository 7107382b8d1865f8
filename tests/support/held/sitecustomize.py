"""Python's own module of its start, for jobs that tests kill: rank 0 waits inside a write until the test lets it go on.

FEDKERN_TEST_HOLD=N:FOLDER: in the N-th write of a checkpoint, or of summary.json if that comes first. The file FOLDER/held says
that it waits, FOLDER/go ends that. So a job can't end before it was killed, however fast the machine is.
"""

import os
import sys
import time
from pathlib import Path

N, _, NAME = os.environ.get("FEDKERN_TEST_HOLD", "").partition(":")
FOLDER, LONGEST = Path(NAME), 120.0  # seconds
written = 0


def hold(event: str, arguments: tuple[object, ...]) -> None:
    """Of each `os.replace`, before it is done."""
    global written
    if event != "os.rename":
        return
    target = str(arguments[1])
    written += target.endswith(".ckpt")
    if written == int(N) or target.endswith("summary.json"):
        (FOLDER / "held").touch()
        until = time.monotonic() + LONGEST
        while not (FOLDER / "go").exists() and time.monotonic() < until:
            time.sleep(0.005)


if N and os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    sys.addaudithook(hold)
