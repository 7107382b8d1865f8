"""What a machine refuses, and what to do about it: full and read-only disks, too many open files, output that nobody takes,
instructions that its processor lacks."""

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
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def refusal(error: BaseException, writing: object = "standard output") -> BaseException:
    """An error that is the machine's, as one that names the remedy; any other as it is. `writing`: where that names no file."""
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
        return error
    what, said = str(error.filename or writing), error.strerror or str(error)
    if error.errno in MANY:
        return JobError(too_many(what, error))
    if error.errno in FULL:
        return JobError(f"cannot write {what}: {said}; free some space there, or choose another folder")
    if error.errno in CLOSED:
        return JobError(f"cannot open {what}: {said}; change its permissions, or choose another folder")
    return error


def too_many(what: object, error: OSError) -> str:
    """What to say if a process has all the open files that it may have."""
    return f"{what}: {error.strerror}; raise the limit of this process (ulimit -n), or give each rank fewer clients by more ranks"


@contextmanager
def refusals(writing: object = "standard output") -> Iterator[None]:
    """Turns what the machine refuses inside into JobErrors; see `refusal`."""
    try:
        yield
    except OSError as error:
        other = refusal(error, writing)
        raise other from (error if other is error else None)


def instructions() -> None:
    """JobError where FEDKERN_ISA asks for instructions that this processor does not have."""
    if os.environ.get("FEDKERN_ISA"):
        from .._core import isa

        try:
            isa()
        except RuntimeError as error:
            raise JobError(f"{error}; unset FEDKERN_ISA, or give it one of these that the processor has") from None


def open_more_files() -> None:
    """As many as the system lets this process have: a rank has several for each of its clients."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def flush_output() -> None:
    """What was printed goes out now, while an error can still be said; nothing more is written there if it can't."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
