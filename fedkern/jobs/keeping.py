"""Keeps a run's files on disks while it goes (ledgers, metrics, checkpoints), and lets an interrupted run go on.

The server and every client keep their own checkpoints, under one number that the driver hands out when no question is open. A
run goes on from the newest number of which every party that is still needed can read its own. Number 0 is the start and needs no
file.

Every checkpoint and stored answer begins with a `Stamp`: whose it is, how the state is laid out (`layout`), since which start of
the machine it was written (`boot`), and how far the party's ledger and budget were written then (a `Mark` of each). A party's
files lie in its `home`, a folder of the run's folder; a file's `ground` (`fedkern/ground.py`) is the folder below which no link
is followed on the way to it.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms.core.messages import SERVER, Event, Message, Protocol, Release, Released, RemoteFault, Saved, schema
from ..data.faults import Refused
from ..errors import (
    BudgetSpent,
    DeviceError,
    DeviceMemoryError,
    FedkernError,
    JobError,
    LostPeer,
    NumericalError,
    OwnFault,
    describe_origin,
)
from ..printing import printable
from ..results.plain import Record
from ..results.summary import Wire
from ..transports.codec import Codec, Frame, pack, state_layout, unpack
from ..transports.driver import Hooks, Offers, restart
from ..transports.place import Transport
from .answers import FILE, Answers
from .draws import Draws, Reference
from .files import Lines, RunFolder, spare, write_atomically
from .holding.chain import Mark
from .ledger import Ledger, control_line
from .logged import digest
from .opened import Opened
from .outbox import Outbox, pack_frames, unpack_frames
from .releases import Releases
from .replaying import Replaying
from .stamp import Stamp, boot

# Faults whose text tells nothing of rows, so that others may read it in a private job too.
SHARED_TEXT = (JobError, LostPeer, BudgetSpent, DeviceError, RemoteFault, KeyboardInterrupt)

# Errors of fedkern whose text may tell something of rows; DeviceMemoryError is one, though it is a DeviceError.
PRIVATE_TEXT = (NumericalError, DeviceMemoryError)

NO_LAYOUT = bytes(16)  # in stamps that are made before a protocol has begun

LOG = logging.getLogger(__name__)


class Exchange(NamedTuple):
    """Holds an exchange for a transport. `start`: the server's first state and first effects; None where it does not live."""

    protocol: Protocol[Any, Any]
    start: Any
    clients: dict[int, Any]
    codec: Codec


class Keeper(Hooks):
    """Serves as the hooks that write the files of a run while it goes. Without a folder it only counts the wire's bytes.

    Parameters
    ----------
    names
        The names of all clients, by number.
    folder
        Where the run's files go.
    private
        Others learn of a fault only that one happened. Answers, and the server's releases, are stored before they are sent.
    every
        Seconds between checkpoints.
    stores_answers
        Answers are stored before they are sent, and sent again in a resumed run, although the job is not private.

    Attributes
    ----------
    notes : for the reader of the result, from the whole job
    remembers : whether answers are stored: in a private job and with `stores_answers`, where there is a folder
    clients : the numbers of those that live here
    gone : name -> why, of clients that the job goes on without; the numbers of those lost in this protocol are the driver's
    replays : an earlier run, whose answers are computed again in the order of its log
    answers, kept_answers : of a stage whose answers are kept, at the server; once it has ended, what summary.json says of them
    """

    def __init__(
        self,
        names: tuple[str, ...],
        folder: RunFolder | None = None,
        *,
        private: bool = False,
        every: float = 60.0,
        stores_answers: bool = False,
    ) -> None:
        self.folder, self.private, self.every = folder, private, every
        self.wire = Wire(names)
        self.keeps, self.remembers = folder is not None, folder is not None and (private or stores_answers)
        self.notes: list[str] = []
        self.protocol = ""
        self._since = time.monotonic()  # when the last checkpoint was taken; only the server's place decides when one is due
        self._metrics_size, self._answers_size = 0, 0  # of a resumed run, at its checkpoint
        self.answers: Answers | None = None
        self.kept_answers: Record | None = None
        self.replays: Opened | None = None
        self._replaying: Replaying | None = None
        self._logs: dict[Path, Lines] = {}
        self.clients: tuple[int, ...] = ()
        self.gone: dict[str, str] = {}
        self._outboxes: dict[int, Outbox] = {}
        self._draws: dict[int, Draws] = {}  # party -> those of this protocol
        self._releases: Releases | None = None  # of the server
        self._lines: dict[tuple[str, type[Message]], str] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._boot = boot()
        self._layouts: dict[int, bytes] = {}  # party -> of its state in this protocol

    def run_exchange(
        self, place: Transport, exchange: Exchange, *, resume: bool | None = None, agreed: Record | None = None
    ) -> tuple[Any, dict[int, Any]]:
        """Runs `run_protocol` with this object as its hooks; with `resume` from the newest checkpoint that all parties have.

        All places must agree on `resume`.

        Parameters
        ----------
        resume
            None: an exchange before or after the rounds, which has no checkpoint to go on from. False: rounds from their start.
            True: rounds from the newest checkpoint.
        agreed
            What parties have agreed on before, where the server's answers are kept.

        Notes
        -----
        With False or True, signals no longer raise `Stopped` wherever the code is, from here to the end of the job: a checkpoint
        is worth more than an end at once. A transport may also hold them for the time of one exchange.
        """
        protocol, start, clients, codec = exchange
        self.protocol, self.checkpoint_number, self._since = protocol.name, 0, time.monotonic()
        self.clients = tuple(clients)
        self._draws.clear()
        # `clients` is the exchange's own mapping: restored states take the place of first ones in it.
        if self.folder:
            states = {**clients, SERVER: start[0]} if place.is_server else clients
            self._layouts = {party: state_layout(state, protocol.save(state)) for party, state in states.items()}
            # All parties go back to one number; later checkpoints are removed, for they belong to a past that is done again.
            if resume:
                parties = [*clients, *([SERVER] if place.is_server else [])]
                self.checkpoint_number = number = self._choose(place, parties, readmits=protocol.readmits is not None)
                for party in parties:
                    self.folder.forget_after(party, protocol.name, number)
                    saved = self._read(party, number)
                    # One that was lost before has an older state, which the server compares with its own.
                    if protocol.readmits and not saved and (older := self.folder.numbers(party, protocol.name)):
                        saved = self._read(party, max(older))
                    if saved and party == SERVER:
                        start = self._restart(protocol, start, saved, codec)
                    elif saved:
                        clients[party] = protocol.load(clients[party], self._as_kept(party, number, saved))
            # Outboxes begin after the states are restored: a stored answer fits only the state before it.
            if self.remembers:
                for outbox in self._outboxes.values():
                    outbox.close()
                self._outboxes.clear()
                for client in clients:
                    self._outboxes[client] = self._outbox(client, protocol.save(clients[client]))
                if place.is_server and self.private:
                    self._releases = Releases(self.folder, protocol.name, lambda: self.stamp(SERVER, sync=True))
        if self.replays is not None and place.is_server and agreed is not None:
            self._replaying = Replaying(self.replays, agreed, codec, protocol.to_server)
        elif self.folder and place.is_server and agreed is not None:
            path = self.folder.path / FILE
            self.answers = Answers(path, self.folder.ground(path), self._answers_size)
            self.answers.append({"began": self.checkpoint_number} if self.answers.number else dict(agreed))
        if resume is not None:
            place.signals.hold()
        try:
            ended = place.run_protocol(protocol, start, clients, codec, self)
            self._replaying = None
            if self.answers is not None:
                self.answers.close()
                self.kept_answers, self.answers = {**self.answers.content, "state": digest(protocol.save(ended[0]))}, None
            return ended
        except RemoteFault as fault:
            # Machines know clients by their numbers, people by their names.
            if isinstance(fault.client, int) and fault.client < len(self.wire.clients):
                fault.client = self.wire.clients[fault.client]
            raise

    def budget(self, party: int) -> Mark:
        """Returns the mark of the party's account, where it has one."""
        return Mark()

    def stamp(self, party: int, *, sync: bool) -> Stamp:
        """Returns the stamp of everything that a party writes now; with `sync` all of its ledger is on the disk then."""
        assert self.folder
        of_state = self._layouts.get(party, NO_LAYOUT)
        stamp = self.folder.stamp(party)._replace(budget=self.budget(party), boot=self._boot, layout=of_state)
        if party == SERVER:
            return stamp
        ledger = self._ledger(party)
        return stamp._replace(ledger=ledger.mark, synced=ledger.synced(surely=sync))

    def forget(self, client: int, protocol: Protocol[Any, Any]) -> None:
        """Deletes a client's stored answers in this protocol, so that a resumed run computes them anew."""
        if self.folder:
            for path in (self.folder.home(client) / "outbox").glob(f"{protocol.name}-*.log"):
                self.folder.remove(path)

    def metric(self, record: Record) -> None:
        """Writes a line of metrics.jsonl."""
        if self.folder:
            self._log(self.folder.path / "metrics.jsonl", at=self._metrics_size).append(record)

    def close(self) -> None:
        """Closes all files."""
        for log in self._logs.values():
            log.close()
        for outbox in self._outboxes.values():
            outbox.close()
        if self.answers is not None:
            self.answers.close()
        self._logs.clear()
        self._ledgers.clear()
        self._outboxes.clear()

    def sending(self, client: int, message: Message, n_bytes: int, charged: int) -> None:
        """Writes a message into its client's ledger, before it leaves. `charged`: local steps that the budget paid for it."""
        if self.folder:
            line = self._lines.get((self.protocol, type(message))) or self._line(message)
            log = self._ledgers.get(client) or self._ledger(client)
            log.write(line % (getattr(message, "round", -1), n_bytes, charged))

    def _line(self, message: Message) -> str:
        """Returns a line of the ledger without its numbers: all messages of a kind have the same fields and shapes.

        `format` fills in the parts here, and `%` round, bytes and charge for each message; "%.0s" swallows the round of a message
        that has none. A brace of the JSON is written four times, since the f-string and `format` each halve their number.
        """
        kind = type(message)
        fields = {name: " ".join(f.shape) or f.type.__name__ for name, f in schema(kind).items()}
        shapes = {name: value.shape for name, value in vars(message).items() if hasattr(value, "shape")}
        parts = [json.dumps(part).replace("%", "%%") for part in (self.protocol, kind.__name__, fields, shapes)]
        round = "%d" if "round" in fields else "null%.0s"
        line = (
            f'{{{{"protocol": {{}}, "round": {round}, "kind": {{}}, "fields": {{}}, "shapes": {{}}, "bytes": %d, "charge": %d}}}}'
        )
        self._lines[self.protocol, kind] = line = line.format(*parts)
        return line

    def control(self, rank: int, what: str, n_bytes: int) -> None:
        """Writes a message between ranks into the rank's ledger."""
        if self.folder:
            self._log(self.folder.ledger_of_rank(rank)).append(control_line(what, n_bytes))

    def heard(self, client: int, frame: Frame) -> None:
        """Keeps an answer, where a result hangs on the order in which they came."""
        if self.answers is not None:
            self.answers.frame(self.wire.clients[client], bytes(frame))

    def turns(self, client: int, frame: Frame, message: Message) -> Iterable[tuple[int, Event | None]]:
        """Gives answers to the machine as they come, or in the order of a log."""
        if self._replaying is not None:
            return self._replaying.turns(client, bytes(frame))
        return super().turns(client, frame, message)

    def delivered(self, direction: str, client: int, n_bytes: int) -> None:
        """Counts the bytes of a message that has arrived."""
        self.wire.add(direction, client, n_bytes)

    def recall(self, client: int, question: Frame) -> tuple[list[Frame], Saved] | None:
        """Returns a stored answer to this question; None where none is stored."""
        return self._outboxes[client].recall(question) if self.remembers else None

    def remember(self, client: int, question: Frame, answers: list[Frame], saved: Saved) -> None:
        """Stores an answer, with the client's state after it."""
        self._outboxes[client].remember(question, answers, saved)

    def release(self, asked: Release) -> Released:
        """Stores a noisy sum before it leaves, or returns the one that was stored."""
        return self._releases.settle(asked) if self._releases else super().release(asked)

    def checkpoint_due(self) -> bool:
        """Tells whether it is time for the next checkpoint."""
        return self.keeps and time.monotonic() - self._since >= self.every

    def keep_client(self, client: int, number: int, saved: Saved) -> None:
        """Writes a client's checkpoint."""
        if self.folder:
            self._keep(client, number, saved, {})
            if self.remembers:
                self._outboxes[client].next(number)

    def keep_server(self, number: int, saved: Saved, frames: list[tuple[int, Frame]], lost: frozenset[int]) -> None:
        """Writes the server's checkpoint, with its open messages and all that a resumed run needs beside them."""
        if self.folder:
            metrics = self._logs.get(self.folder.path / "metrics.jsonl")
            about = {"metrics": metrics.size if metrics else self._metrics_size, "wire": self.wire.listed(), "lost": sorted(lost)}
            about["gone"] = self.gone
            about["answers"] = 0 if self.answers is None else self.answers.size
            more = {"frames": pack_frames(f for _, f in frames), "about": json.dumps(about).encode()}
            self._keep(SERVER, number, saved, more)
            LOG.info("checkpoint %d of %s", number, self.protocol)
            # A run that goes on from here asks for the releases of this round and later ones only.
            if self._releases and isinstance(round := saved.get("round"), int):
                self._releases.passed(round)
            self._since = time.monotonic()

    def _keep(self, party: int, number: int, saved: Saved, more: Record) -> None:
        """Writes a party's checkpoint, and the sampler's new draws to their own file, to which the checkpoint refers."""
        assert self.folder
        if party not in self._draws:
            self._draws[party] = self._draws_of(party)
        draws = self._draws[party]
        rest, reference = draws.appended(number, saved)
        where = {} if reference is None else {"draws": reference.pack()}
        content = {"state": pack(rest), **where, **more}
        self.folder.keep(party, self.protocol, number, content, self.stamp(party, sync=True))
        draws.clean(self.folder.numbers(party, self.protocol))

    def _as_kept(self, party: int, number: int, saved: Record) -> Saved:
        """Returns the state of a party's checkpoint, from which it goes on."""
        assert self.folder
        self._draws[party] = draws = self._draws_of(party)
        kept = draws.restored(number, Reference.read(saved["draws"])) if "draws" in saved else {}
        return unpack(saved["state"]) | kept

    def _draws_of(self, party: int) -> Draws:
        assert self.folder
        folder = self.folder.home(party) / "checkpoint"
        return Draws(folder, self.protocol, self.folder.ground(folder))

    def who(self, client: int) -> str:
        """Returns a client's name, as errors have it."""
        return f"client {self.wire.clients[client]!r}"

    def lost(self, client: int, why: str) -> None:
        """Notes, for the result and for checkpoints, that the job goes on without a client, and why."""
        LOG.warning("client %r is lost: %s", self.wire.clients[client], printable(why))
        self.gone[self.wire.clients[client]] = why
        if self.answers is not None:
            self.answers.append({"lost": self.wire.clients[client]})

    def back(self, client: int) -> None:
        """Notes, for the result, that a client takes part again; the log of answers has it."""
        name = self.wire.clients[client]
        LOG.info("client %r is back", name)
        self._is_back(name)
        if self.answers is not None:
            self.answers.append({"back": name})

    def _is_back(self, name: str) -> None:
        if self.gone.pop(name, None) is not None:
            self.notes.append(f"client {name!r}, which had been lost, is back")

    def public(self, error: BaseException) -> str:
        """Returns the text of a fault that others may read."""
        is_written = self.write_fault(error)
        # The text of an OwnFault says this itself once it is written.
        where = "; holder.txt in its own folder has all of it" if is_written and not isinstance(error, OwnFault) else ""
        if not self.private or (isinstance(error, SHARED_TEXT) and not isinstance(error, PRIVATE_TEXT)):
            return super().public(error) + where
        return f"a fault, which is not described here because it may tell something of the rows{where}"

    def write_fault(self, error: BaseException) -> bool:
        """Writes the part of a fault that others do not read into the folder of the party that it is about.

        | error | written |
        |---|---|
        | OwnFault | its `own` |
        | a `PRIVATE_TEXT` in a private job; one that nobody foresaw | its traceback |
        | all others, whose text is for all | nothing |

        Returns
        -------
        whether it has been written
        """
        hidden = PRIVATE_TEXT if self.private else ()
        foreseen = isinstance(error, (FedkernError, RemoteFault, KeyboardInterrupt)) and not isinstance(error, hidden)
        if isinstance(error, Refused) and not hasattr(error, "party"):  # of several clients that live here
            written = [self.write_fault(part) for part in error.errors]
            error.kept = any(written)
            return error.kept
        if self.folder is None or (foreseen and not isinstance(error, OwnFault)):
            return False
        whole = error.own if isinstance(error, OwnFault) else "".join(traceback.format_exception(error))
        party: int | None = getattr(error, "party", None)
        # Where at most one party lives, the fault is that party's.
        if party is None and len(self.clients) <= 1:
            party = self.clients[0] if self.clients else SERVER
        # With several clients nobody knows whose rows the text quotes: each gets only the place in the code.
        about = {party: whole} if party is not None else dict.fromkeys(self.clients, describe_origin(error))
        # A server may find the fault of a client that lives elsewhere: into its folder only it writes.
        if party is not None and party != SERVER and party not in self.clients:
            return False
        try:
            for home, text in about.items():
                self.keep_fault(home, text)
        except JobError:  # what a full disk becomes; the fault itself matters more
            return False
        if isinstance(error, OwnFault):
            error.kept = True  # its text says from now on where the rest is
        return True

    def keep_fault(self, party: int, text: str) -> None:
        """Writes holder.txt, in the party's own folder: all that its holder reads, and nobody else, of why a job ended or may."""
        if self.folder is not None:
            path = self.folder.home(party) / "holder.txt"
            content = text.encode("utf-8", "backslashreplace") + b"\n"
            write_atomically(path, content, secret=True, ground=self.folder.ground(path))

    def _ledger(self, client: int) -> Ledger:
        if client not in self._ledgers:
            assert self.folder
            path = self.folder.ledger(client)
            self._logs[path] = self._ledgers[client] = Ledger(path, self.folder.ground(path))
        return self._ledgers[client]

    def _outbox(self, client: int, saved: Saved) -> Outbox:
        assert self.folder
        folder = self.folder
        return Outbox(
            folder.home(client) / "outbox",
            self.protocol,
            self.checkpoint_number,
            lambda: self.stamp(client, sync=False),
            lambda path, stamp: folder.check(path, client, stamp, self._layouts[client]),
            folder.ground(folder.home(client)),
            saved,
        )

    def _log(self, path: Path, *, at: int | None = None) -> Lines:
        if path not in self._logs:
            secret = path.parent.name == "ledger"  # as those of clients are
            self._logs[path] = Lines(path, None if self.folder is None else self.folder.ground(path), secret=secret)
            if at is not None:
                self._logs[path].cut(at)
        return self._logs[path]

    def _choose(self, place: Any, parties: list[int], *, readmits: bool) -> int:
        """Returns the number from which the run goes on, and notes the checkpoints here that can't be read."""
        assert self.folder
        readable, faults = self._find_readable(parties, readmits=readmits)
        lost = {n: self._lost(n) for n in readable.get(SERVER, [])}

        def rule(offers: Offers) -> int | None:
            """Chooses the newest number of the server's that every client which was not lost by then can read."""
            needed = {n: [party for party in offers if party not in lost[n]] for n in offers[SERVER]}
            return max((n for n, those in needed.items() if all(n in offers[party] for party in those)), default=None)

        number: int | None = place.choose(readable, rule)
        if number is None:
            why = "".join(f"; {fault}" for _, fault in faults)
            raise JobError(
                f"{self.folder.path}: the parties have no checkpoint of {self.protocol} in common, so the run can't go on; "
                f"start it anew in another folder (--out){why}"
            )
        instead = "an older checkpoint is used" if number else "the rounds start anew"
        self.notes += [f"{fault}; {instead}" if n > number else fault for n, fault in faults]
        return number

    def _find_readable(self, parties: list[int], *, readmits: bool) -> tuple[dict[int, list[int]], list[tuple[int, str]]]:
        """Reads the checkpoints of parties.

        Returns
        -------
        readable : party -> the numbers that it can go on from
        faults : the numbers of all others, each with the reason

        Raises
        ------
        JobError
            A party has checkpoints and can read none of them; if lost clients come back, it may be one of those.
        """
        assert self.folder
        readable: dict[int, list[int]] = {}
        faults: list[tuple[int, str]] = []
        for party in parties:
            numbers, own_faults = self.folder.numbers(party, self.protocol), []
            readable[party] = []
            for number in numbers:
                try:
                    saved = self.folder.kept(party, self.protocol, number, self._layouts[party])
                    if "draws" in saved:
                        self._draws_of(party).check(Reference.read(saved["draws"]))
                    readable[party].append(number)
                except ValueError as error:
                    own_faults.append((number, str(error)))
            # The start counts as one of the older checkpoints that a party keeps, until later ones take its place.
            if max(numbers, default=0) <= spare(party):
                readable[party].append(0)
            if not readable[party] and not (readmits and party != SERVER):
                why = "; ".join(fault for _, fault in own_faults)
                raise JobError(f"{why}: none can be read, so the run can't go on; start it anew (--out)")
            faults += own_faults
        return readable, faults

    def _lost(self, number: int) -> set[int]:
        saved = self._read(SERVER, number)
        return set(json.loads(saved["about"])["lost"]) if saved else set()

    def _read(self, party: int, number: int) -> dict[str, Any] | None:
        """Reads a party's checkpoint; None for the start, and for a client that was lost before."""
        assert self.folder
        try:
            return self.folder.kept(party, self.protocol, number) if number else None
        except ValueError:
            return None

    def _restart(self, protocol: Protocol[Any, Any], start: Any, saved: dict[str, Any], codec: Codec) -> Any:
        about = json.loads(saved["about"])
        self._metrics_size, self._answers_size = about["metrics"], about.get("answers", 0)
        self.wire.restore(about["wire"])
        self.gone = dict(about["gone"])
        state = self._as_kept(SERVER, self.checkpoint_number, saved)
        again = restart(protocol, start[0], state, unpack_frames(saved["frames"]), codec)
        still = getattr(again[0], "lost", None)  # of a machine that may go on without clients
        if still is None:
            return again
        for k, name in enumerate(self.wire.clients):
            if k not in still:
                self._is_back(name)
        return again
