"""Defines the errors of a job, and the exit code of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from traceback import extract_tb, print_exception

from .printing import printable_lines


class FedkernError(Exception):
    """Is the base of all errors. The text names the thing, the value that was wanted, the value that came, and the remedy.

    Examples
    --------
    >>> from fedkern.errors import FedkernError, JobError
    >>> issubclass(JobError, FedkernError), FedkernError.exit_code
    (True, 1)
    """

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython and notebooks print of the error: its text alone, which names the remedy."""
        text = printable_lines(str(self))
        return [f"{type(self).__name__}: {text}", "(the lines of code: fedkern.errors.print_traceback())"]


def print_traceback() -> None:
    """Prints where the last error of this prompt or notebook came from, with its causes.

    Examples
    --------
    >>> import fedkern
    >>> fedkern.errors.print_traceback()  # doctest: +SKIP
    """
    error = getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        print_exception(error)
    else:
        print("no error has reached the prompt so far", file=sys.stderr)


class JobError(FedkernError):
    """Reports a bad job, bad data, or a machine that cannot run the job. `unknown` has the keys of a file that there are not.

    Examples
    --------
    >>> import fedkern
    >>> from fedkern.errors import JobError
    >>> try:
    ...     fedkern.check({"job": {"method": "likelyhood"}})
    ... except JobError as error:
    ...     print(str(error).rpartition("; ")[2])
    ...
    did you mean "likelihood"?
    """

    exit_code = 2
    unknown: tuple[str, ...] = ()


class HolderError(JobError):
    """Reports a matter between a job and a data holder. The whole text is shown where the holder is; others read `told`.

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
    """Reports a fault of one party's own file or rows.

    The text is for every party: it names only names of the job file and, in an open job, counts the others. `own` has the names
    and cells themselves. It goes to that party's folder alone (`kept`: it is written there) and to its `fedkern check --local`.
    `brief` is the same without single `rows`. `look` says to all how the holder sees it, where that holds rows in a file.

    Examples
    --------
    >>> from fedkern.errors import OwnFault
    >>> error = OwnFault("north: 2 cells of age are no numbers", own="age of row 7 is 'unknown'")
    >>> str(error), error.own
    ('north: 2 cells of age are no numbers', "age of row 7 is 'unknown'")
    """

    def __init__(self, text: str, own: str, rows: Sequence[str] = (), look: str = "") -> None:
        super().__init__(text)
        self._brief, self.rows, self.look, self.kept = own, rows, look, False

    def __str__(self) -> str:
        look = f"; {self.look}" if self.look else ""
        return super().__str__() + look + ("; holder.txt in its own folder has all of it" if self.kept else "")

    @property
    def brief(self) -> str:
        """The text for the holder, without single rows."""
        return self._brief

    @property
    def own(self) -> str:
        """The whole text for the holder."""
        return "\n  ".join([self.brief, *self.rows])

    def forget_look(self) -> None:
        """Leaves out how the holder looks into its file: there is none."""
        self.look = ""


def describe_no_memory(error: MemoryError) -> str:
    """Returns the sentence for a job whose memory is not enough."""
    text = " ".join(str(error).split()) or "no memory is left"
    return f"{text}; `fedkern check` says what a job needs: take a larger machine, or fewer columns, chains or draws"


def mark_party(error: Exception, party: int) -> None:
    """Marks an error as one about this party (a client's number, or SERVER), whose own folder gets the whole of it. The first
    mark stays."""
    error.__dict__.setdefault("party", party)


@contextmanager
def owned(party: int) -> Iterator[None]:
    """Marks every error that is raised inside the block as one about this party."""
    before = _OWNER.set(party)
    try:
        yield
    except Exception as error:
        mark_party(error, party)
        raise
    finally:
        _OWNER.reset(before)


_OWNER: ContextVar[int | None] = ContextVar("fedkern_owner", default=None)


def _owner(nobody: int) -> int:
    """Returns the party whose block (`owned`) this is; `nobody` outside of any."""
    party = _OWNER.get()
    return nobody if party is None else party


def describe_origin(error: BaseException) -> str:
    """Returns where an error came from and its type, without its text, which may quote a cell."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    lines = []
    # The first cause first, as Python prints them.
    for one in reversed(causes):
        lines.append("Traceback (most recent call last):")
        lines += [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in extract_tb(one.__traceback__)]
        lines.append(type(one).__name__)
    return "\n".join(lines)


@contextmanager
def show_own_faults() -> Iterator[None]:
    """Shows the whole of a party's fault: for places where only the owner of the files reads the text."""
    try:
        yield
    except OwnFault as error:
        raise JobError(error.own) from None


class LostPeer(FedkernError):
    """Reports that a signal or a lost peer stopped the job; there is a checkpoint.

    Examples
    --------
    >>> from fedkern.errors import LostPeer
    >>> LostPeer.exit_code
    3
    """

    exit_code = 3


class BudgetSpent(FedkernError):
    """Reports that a privacy budget ended the job before `min_updates`.

    Examples
    --------
    >>> from fedkern.errors import BudgetSpent
    >>> BudgetSpent.exit_code
    5
    """

    exit_code = 5


class NumericalError(FedkernError):
    """Reports that a computation left the finite numbers because of the job or its data. The text names client, step and row or
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
    """Reports that the cuda backend cannot run here; the text says what to install, or which number to lower.

    Examples
    --------
    >>> from fedkern.errors import DeviceError, FedkernError
    >>> issubclass(DeviceError, FedkernError), DeviceError.exit_code
    (True, 2)
    """

    exit_code = 2


class DeviceMemoryError(DeviceError):
    """Reports that a card's memory does not suffice. The amount that was asked for tells the number of rows.

    Examples
    --------
    >>> from fedkern.errors import DeviceError, DeviceMemoryError
    >>> issubclass(DeviceMemoryError, DeviceError)
    True
    """
