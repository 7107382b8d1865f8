"""Turns refusals of the machine into errors with a remedy.

These are: full and read-only disks, too many open files, output that nobody takes, instructions that its processor lacks.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import JobError

FULL = (errno.ENOSPC, errno.EDQUOT)
MANY = (errno.EMFILE, errno.ENFILE)
OPEN_MAX = 10240  # files that macOS lets a process have
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def refusal(error: BaseException, writing: object = "standard output") -> BaseException:
    """Returns an error of the machine as one that names the remedy; any other error unchanged.

    `writing` says where it was written, where the error names no file.
    """
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
        return error
    what, reason = str(error.filename or writing), error.strerror or str(error)
    if error.errno in MANY:
        return JobError(too_many(what, error))
    if error.errno in FULL:
        return JobError(f"cannot write {what}: {reason}; free some space there, or choose another folder")
    if error.errno in CLOSED:
        return JobError(f"cannot open {what}: {reason}; change its permissions, or choose another folder")
    return error


def too_many(what: object, error: OSError) -> str:
    """Returns the words for a process that has all the open files that it may have."""
    return f"{what}: {error.strerror}; raise the limit of this process (ulimit -n), or give each rank fewer clients by more ranks"


@contextmanager
def refusals(writing: object = "standard output") -> Iterator[None]:
    """Turns the machine's refusals inside into JobErrors; see `refusal`."""
    try:
        yield
    except OSError as error:
        other = refusal(error, writing)
        raise other from (error if other is error else None)


def instructions() -> None:
    """Refuses a FEDKERN_ISA, or a build of fedkern, whose instructions this processor does not have (JobError)."""
    from .._core import isa

    try:
        isa()
    except RuntimeError as error:
        raise JobError(str(error)) from None


def open_more_files() -> None:
    """Lets this process open as many files as the system allows: a rank has several for each of its clients."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says that there is no limit, and refuses more than so many.
    for wanted in (most, OPEN_MAX):
        with suppress(OSError, ValueError):
            if wanted == most or now < wanted:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            return


def flush_output() -> None:
    """Flushes the printed text now, while an error can still be reported; if that fails, nothing more is written there."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
