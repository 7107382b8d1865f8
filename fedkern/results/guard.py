"""Lets no diagnostic end a finished job.

Once the rounds are done the answer is known. What is computed of it afterwards is of two kinds, and says which where it is
defined:

    @figure("Moran's I", None)         # a number, a note, a table or a picture beside the answer
    @check("the sites' coding", None)  # what the verdict hangs on

If one of them raises, its caller gets what stands in its place, and the result says which has failed; after a check that has
failed the verdict is "not judged", or what it was if it was `false`. A name says nothing of rows; the whole fault goes into the
folder of the party at which it was raised. Faults are caught while a job collects them (`collecting`): elsewhere they are raised,
and so are those of essential work, which bears no mark: rounds, exchanges, and the writing of the posterior.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from ..algorithms.core.messages import SERVER, RemoteFault
from ..errors import LostPeer, _owner, describe_origin
from ..finding import Finding
from .verdict import Check, Verdict

P = ParamSpec("P")
R = TypeVar("R")


class Fault(NamedTuple):
    """Holds a diagnostic that failed: at which party, its name, whether the verdict hangs on it, and the error."""

    party: int
    name: str
    judges: bool
    error: Exception


@dataclass
class Faults:
    """Collects the diagnostics that failed at one place of a job."""

    found: list[Fault] = field(default_factory=list)

    def names(self, party: int = SERVER) -> list[str]:
        """Returns the names of those that failed at a party, each once."""
        return list(dict.fromkeys(fault.name for fault in self.found if fault.party == party))

    def text(self, party: int) -> str:
        """Returns the whole faults of a party, for its own folder alone."""
        # A client's fault that nobody marked as its own may be here: what the server finds is told without its words.
        whole = describe_origin if party == SERVER else lambda error: "".join(traceback.format_exception(error))
        return "\n".join(f"{fault.name} failed:\n{whole(fault.error)}" for fault in self.found if fault.party == party)

    @property
    def parties(self) -> list[int]:
        """Those at which something failed."""
        return list(dict.fromkeys(fault.party for fault in self.found))


@dataclass
class Diagnostic:
    """Holds one diagnostic."""

    name: str  # as a reader knows it
    compute: Callable[..., Any]  # the function that computes it
    judges: bool  # whether the verdict hangs on it
    instead: Any  # what stands in its place if that fails: a value, or a function of its arguments

    def attempt(self, *arguments: Any, **options: Any) -> Any:
        """Computes it; the notes of a generator are all made here."""
        with np.errstate(invalid="log" if self.judges else "warn", call=_NoNumber()):
            found = self.compute(*arguments, **options)
            return [*found] if isinstance(found, Generator) else found

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        faults = _COLLECTED.get()
        if faults is None:
            return self.attempt(*arguments, **options)
        try:
            return self.attempt(*arguments, **options)
        except (LostPeer, RemoteFault):  # of an exchange: they concern the job
            raise
        except Exception as error:
            faults.found.append(Fault(_owner(SERVER), self.name, self.judges, error))
            return self.instead(*arguments, **options) if callable(self.instead) else copy(self.instead)


class _NoNumber:
    """Ends a check as soon as NumPy logs that a number has become NaN: no comparison with that finds anything."""

    def write(self, message: str) -> None:
        if "matmul" not in message:  # of which some processors' BLAS says so of finite numbers
            raise FloatingPointError(message.strip())


FAILED = "failed-checks"
DIAGNOSTICS: dict[str, Diagnostic] = {}  # module.function -> all that bear a mark
_COLLECTED: ContextVar[Faults | None] = ContextVar("fedkern_faults", default=None)


def figure(name: str, instead: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a function as a diagnostic that the verdict does not hang on; `name`: as a reader knows it."""
    return functools.partial(_marked, name, instead, False)


def check(name: str, instead: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a function as a diagnostic that the verdict hangs on."""
    return functools.partial(_marked, name, instead, True)


def _marked(name: str, instead: Any, judges: bool, compute: Callable[P, R]) -> Callable[P, R]:
    diagnostic = Diagnostic(name, compute, judges, instead)
    DIAGNOSTICS[f"{compute.__module__}.{compute.__qualname__}"] = diagnostic

    @functools.wraps(compute)
    def guarded(*arguments: P.args, **options: P.kwargs) -> R:
        found: R = diagnostic(*arguments, **options)
        return found

    return guarded


@contextmanager
def collecting() -> Iterator[Faults]:
    """Collects the diagnostics that fail in the block, and lets it go on."""
    faults = Faults()
    before = _COLLECTED.set(faults)
    try:
        yield faults
    finally:
        _COLLECTED.reset(before)


def fail(name: str) -> None:
    """Says at the server that a check is not to be had."""
    if (faults := _COLLECTED.get()) is not None:
        faults.found.append(Fault(SERVER, name, True, LookupError("an answer that cannot be was dropped")))


def judged(verdict: Verdict) -> Verdict:
    """Returns a verdict after the checks that failed so far at the server: it is not judged, or as it was if it was `false`."""
    faults = _COLLECTED.get()
    names = [] if faults is None else list(dict.fromkeys(f.name for f in faults.found if f.judges and f.party == SERVER))
    if not names:
        return verdict
    # It is judged twice: before a client is told, and before it is published, when more may have failed.
    others = (check for check in verdict.checks if not (isinstance(check.found, Finding) and check.found.id == FAILED))
    return Verdict((*others, Check(Finding.of(FAILED, names=names), "not judged")))


def notes() -> list[str]:
    """Returns the note on the diagnostics that failed so far at the server."""
    faults = _COLLECTED.get()
    names = [] if faults is None else faults.names()
    return [Finding.of("failed-diagnostics", names=names)] if names else []
