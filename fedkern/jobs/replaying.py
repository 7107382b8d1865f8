"""Runs a job once more from its holders' rows, with the answers in the order of an earlier run's log, and compares each with it.

The server keeps answers back until their turn. A client that was lost in the run is lost to the machine at the same place, and
comes back where the run was resumed; of what it had stored then, which nobody has any more, the log's word is taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ..algorithms.core.messages import SERVER, Event, Message
from ..data.table import Table
from ..errors import HolderError, JobError
from ..ground import Ground
from ..results.plain import Record
from ..transports.codec import Codec, Frame
from . import answers
from .logged import EVENTS
from .opened import Opened
from .parties import Parties
from .secret import SECRET, fingerprint, mark_of, secret

# An event of the server's machine, and whose it is; None: the run went on from a checkpoint.
Turn = tuple[int, Event | None]


def bound(run: Opened, parties: Parties, home: Callable[[int], tuple[Path, Ground | None]]) -> Parties:
    """Returns the parties, whose rows are compared as they are read: by a digest that never left their holder. Raises
    HolderError: when rows are read: they are not those of the run, or nothing here says whether they are."""

    def rows(party: int) -> Table:
        table, about = parties.rows(party), run.records.get(party, {}).get("run", {})
        # The secret lies with the run, or in an account beside a policy.
        kept = run.files.home(party)
        folder, ground = (kept, run.files.ground(kept)) if (kept / SECRET).exists() else home(party)
        key, who = secret(folder, ground=ground), f"client {parties.names[party]!r}"
        if mark_of(key) != about.get("secret"):
            raise HolderError(
                f"{who}: its own folder of {run.path}, which says of which rows the log is, is not here",
                f"{who} has nothing of that run here",
            )
        if fingerprint(table, key, run.config.data.ignore) != about["rows"]:
            raise HolderError(
                f"{who}: {run.path / answers.FILE} is a log of other rows than it has now", f"{who}: the log is of other rows"
            )
        return table

    return replace(parties, rows=rows)


class Replaying:
    """Gives a server the events of a log, as soon as its clients have sent them again.

    Parameters
    ----------
    run : whose log it is
    agreed : what the parties have agreed on now
    """

    def __init__(self, run: Opened, agreed: Mapping[str, object], codec: Codec, kinds: tuple[type[Message], ...]) -> None:
        self.path, self.codec, self.kinds = run.path / answers.FILE, codec, kinds
        self.numbers = {name: k for k, name in enumerate(run.names)}
        first, *lines = answers.read(self.path, answers.of_summary(run))
        if first != dict(agreed):
            raise JobError(f"{self.path}: line 1 says that clients agreed otherwise on their columns")
        self.lines = deque(enumerate(lines, 2))
        self.came: dict[int, deque[Frame]] = defaultdict(deque)
        self.lost: set[int] = set()

    def turns(self, client: int, frame: Frame) -> Iterator[Turn]:
        """Yields what the server takes now that this answer has come."""
        if not self.lines:
            raise JobError(f"{self.path}: ends, and the job computed again does not")
        self.came[client].append(frame)
        while self.lines and (turn := self._turn(*self.lines[0])) is not None:
            self.lines.popleft()
            yield turn

    def _turn(self, number: int, line: Record) -> Turn | None:
        """Returns the event of a line; None while its answer has not come."""
        if "began" in line:
            return SERVER, None
        if "frame" not in line:
            ((word, name),) = line.items()
            client = self.numbers[name]
            if word == "lost":
                self.came[client].clear()
                self.lost.add(client)
            return client, EVENTS[word](client)
        client, message = self.codec.decode(line["frame"], self.kinds)
        came = self.came[client]
        # Before a client that was lost is told its site, it may still answer an older question.
        while client in self.lost and came and not isinstance(self.codec.decode(came[0], self.kinds)[1], type(message)):
            came.popleft()
        if not came:
            return None
        if came.popleft() != line["frame"] and client not in self.lost:
            why = "its rows or the job are not those of the run, or this is another kind of processor or library"
            raise JobError(
                f"{self.path}: line {number}: computed again, the answer of client {line['client']!r} is another: {why}"
            )
        self.lost.discard(client)
        return client, message
