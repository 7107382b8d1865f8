"""What can go wrong with a job, and the exit code of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb


class FedkernError(Exception):
    """Base of all. A text names the thing, what was wanted, what came, and the remedy.

    Examples
    --------
    >>> from fedkern.errors import FedkernError, JobError
    >>> issubclass(JobError, FedkernError), FedkernError.exit_code
    (True, 1)
    """

    exit_code = 1


class JobError(FedkernError):
    """A bad job, bad data, or a machine that cannot run it.

    Examples
    --------
    >>> import fedkern
    >>> from fedkern.errors import JobError
    >>> try:
    ...     fedkern.check({"job": {"method": "likelyhood"}})
    ... except JobError as error:
    ...     print(error)
    ...
    job: job.method = "likelyhood": wanted "pvi", "likelihood", "vertical", "sigma" or "sparse"; did you mean "likelihood"?
    """

    exit_code = 2


class HolderError(JobError):
    """Something between a job and a data holder, whose whole text is said where the holder is; others read `told`.

    `detail` is for the holder's own folder: paths and numbers of its policies and accounts.

    Examples
    --------
    >>> from fedkern.errors import HolderError
    >>> error = HolderError("the account of clinic-7 is spent", told="a data holder refuses")
    >>> str(error), error.told
    ('the account of clinic-7 is spent', 'a data holder refuses')
    """

    def __init__(self, text: str, told: str, detail: str = "") -> None:
        super().__init__(text)
        self.told, self.detail = told, detail


class OwnFault(JobError):
    """What is wrong with one party's own file or rows.

    The text is for every party: it names what the job file names and, in an open job, counts the rest. `own` has the names and
    cells that were found; it is for that party's own folder (`kept`: it is there) and for its own `fedkern check --local`.

    Examples
    --------
    >>> from fedkern.errors import OwnFault
    >>> error = OwnFault("north: 2 cells of age are no numbers", own="age of row 7 is 'unknown'")
    >>> str(error), error.own
    ('north: 2 cells of age are no numbers', "age of row 7 is 'unknown'")
    """

    def __init__(self, text: str, own: str) -> None:
        super().__init__(text)
        self.own, self.kept = own, False

    def __str__(self) -> str:
        return super().__str__() + ("; fault.txt in its own folder has all of it" if self.kept else "")


def no_memory(error: MemoryError) -> str:
    """What to say where memory is not enough."""
    said = " ".join(str(error).split()) or "no memory is left"
    return f"{said}; `fedkern check` says what a job needs: take a larger machine, or fewer columns, chains or draws"


def belongs(error: Exception, party: int) -> None:
    """The error is about this party (a client's number, or SERVER), whose own folder gets the whole of it. The first to say so
    is right."""
    error.__dict__.setdefault("party", party)


@contextmanager
def owned(party: int) -> Iterator[None]:
    """What goes wrong inside `belongs` to this party."""
    try:
        yield
    except Exception as error:
        belongs(error, party)
        raise


def outline(error: BaseException) -> str:
    """Where an error came from and of which type it is, without what it says: that may quote a cell."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    lines = []
    for one in reversed(causes):
        lines.append("Traceback (most recent call last):")
        lines += [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in extract_tb(one.__traceback__)]
        lines.append(type(one).__name__)
    return "\n".join(lines)


@contextmanager
def plainly() -> Iterator[None]:
    """Where nobody but the owner of the files reads what is said: the whole of it."""
    try:
        yield
    except OwnFault as error:
        raise JobError(error.own) from None


class LostPeer(FedkernError):
    """Stopped by a signal or a lost peer; there is a checkpoint.

    Examples
    --------
    >>> from fedkern.errors import LostPeer
    >>> LostPeer.exit_code
    3
    """

    exit_code = 3


class BudgetSpent(FedkernError):
    """A privacy budget ended the job before `min_updates`.

    Examples
    --------
    >>> from fedkern.errors import BudgetSpent
    >>> BudgetSpent.exit_code
    5
    """

    exit_code = 5


class NumericalError(FedkernError):
    """A computation left the finite numbers, for what the job or its data ask of it; the text names client, step and row or
    coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.errors import NumericalError
    >>> from fedkern.kernels import spatial
    >>> try:
    ...     spatial.gp_sample(np.zeros((2, 1)), np.array([1.0]), jitter=0.0, seed=7)  # one place, twice
    ... except NumericalError as error:
    ...     print(error)
    ...
    spatial.gp_sample: the covariance of draw 0 (lengthscale 1.0) is not positive definite; take a larger jitter than 0.0
    """

    exit_code = 2


class DeviceError(FedkernError):
    """The cuda backend cannot run here; the text says what to install, or what to lower.

    Examples
    --------
    >>> from fedkern.errors import DeviceError, FedkernError
    >>> issubclass(DeviceError, FedkernError), DeviceError.exit_code
    (True, 2)
    """

    exit_code = 2


class DeviceMemoryError(DeviceError):
    """A card's memory does not suffice. How much was asked for tells how many rows there are.

    Examples
    --------
    >>> from fedkern.errors import DeviceError, DeviceMemoryError
    >>> issubclass(DeviceMemoryError, DeviceError)
    True
    """
