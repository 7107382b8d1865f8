"""Tells what has left each client of a run, as its ledger has it: for a terminal, a notebook, or as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..algorithms.core.tells import HIDES
from ..errors import JobError
from ..printing import Lines, align_columns
from .opened import Kind, Opened, kinds, ledgers

MASKED = "Masked"  # begins the names of messages of which the server gets only the sum
HEAD = ("who", "to", "message", "of it", "bytes", "rounds", "steps paid", "what it holds")


@dataclass(frozen=True, repr=False)
class SentByKind:
    """Holds the totals of all messages that left each client, or rank, by kind.

    Attributes
    ----------
    kinds : sender, receiver, kind, fields, messages, bytes, rounds (first, last) and paid steps of each

    Examples
    --------
    >>> from fedkern.jobs.opened import Kind
    >>> from fedkern.jobs.sent import SentByKind
    >>> SentByKind((Kind("north", "server", "Curvature", "round, value (1)", 7, 2352, (0, 6), 0),))
    who    to      message    of it  bytes  rounds  steps paid  what it holds
    north  server  Curvature  7      2,352  0 to 6              round, value (1)
    """

    kinds: tuple[Kind, ...]

    @classmethod
    def of(cls, run: Opened, folder: str | Path) -> SentByKind:
        """Reads the ledgers of an opened run; JobError, which names the folder that was asked for, where none is here."""
        if not (paths := ledgers(run)):
            raise JobError(f"{folder}: no ledger is here; a client's lies in ledger/ of the run's folder, at its own place")
        return cls(tuple(kinds(paths)))

    def rows(self) -> list[dict[str, Any]]:
        """Returns a dictionary for each kind: for example a data frame's rows."""
        return [kind._asdict() for kind in self.kinds]

    def lines(self) -> Lines:
        """Returns the lines that `fedkern ledger` prints."""
        body = []
        for k in self.kinds:
            paid = f"{k.charge:,}" if k.charge else ""
            body.append((k.who, k.to, k.what, f"{k.messages:,}", f"{k.bytes:,}", _between(k.rounds), paid, k.fields))
        masked = [f"Masked ..: {HIDES}"] if any(k.what.startswith(MASKED) for k in self.kinds) else []
        return Lines([*align_columns([HEAD, *body]), *masked])

    def __repr__(self) -> str:
        return str(self.lines())

    def _repr_html_(self) -> str:
        return self.lines()._repr_html_()


def _between(rounds: tuple[int, int] | None) -> str:
    """Formats the first and the last round."""
    if rounds is None:
        return ""
    return f"{rounds[0]}" if rounds[0] == rounds[1] else f"{rounds[0]} to {rounds[1]}"
