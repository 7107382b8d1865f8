"""Keeps a run's files on disks while it goes (ledgers, metrics, checkpoints), and lets an interrupted run go on.

The server and every client keep their own checkpoints, under one number that the driver hands out when no question is open. A
run goes on from the newest number of which every party that is still needed can read its own. Number 0 is the start and needs no
file.
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms.core.messages import SERVER, Message, Protocol, Release, Released, RemoteFault, Saved, schema
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
from .draws import Draws, Reference
from .files import Lines, RunFolder, spare, write_atomically
from .holding.chain import Mark
from .ledger import Ledger
from .outbox import Outbox, pack_frames, unpack_frames
from .releases import Releases
from .stamp import Stamp, boot

OPEN = (JobError, LostPeer, BudgetSpent, DeviceError, RemoteFault, KeyboardInterrupt)  # faults whose text tells nothing of rows

TELLING = (NumericalError, DeviceMemoryError)  # and those of ours whose text does

LOG = logging.getLogger(__name__)


class Exchange(NamedTuple):
    """Holds an exchange for a transport. `start`: the server's first state and first effects; None where it does not live."""

    protocol: Protocol[Any, Any]
    start: Any
    clients: dict[int, Any]
    codec: Codec


class Keeper(Hooks):
    """Writes the files of a run while it goes. Without a folder it only counts the wire.

    Parameters
    ----------
    names
        Of all clients, by number.
    folder
        Where the run's files go.
    private
        Others learn of a fault only that one happened, and the server's releases are stored before they leave.
    every
        Seconds between checkpoints.
    remembers
        Answers are stored before they leave, and sent again in a resumed run.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        folder: RunFolder | None = None,
        *,
        private: bool = False,
        every: float = 60.0,
        remembers: bool = False,
    ) -> None:
        self.folder, self.private, self.every = folder, private, every
        self.wire = Wire(names)
        self.keeps, self.remembers = folder is not None, folder is not None and (private or remembers)
        self.notes: list[str] = []  # on checkpoints that could not be read
        self.protocol = ""
        self._since = time.monotonic()
        self._metrics_size = 0  # of a resumed run, at its checkpoint
        self._logs: dict[Path, Lines] = {}
        self.clients: tuple[int, ...] = ()  # that live here
        self.gone: dict[str, str] = {}  # clients that the job goes on without: why
        self._outboxes: dict[int, Outbox] = {}
        self._draws: dict[int, Draws] = {}  # party -> those of this protocol
        self._releases: Releases | None = None  # of the server
        self._lines: dict[tuple[str, type[Message]], str] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._boot = boot()
        self._layouts: dict[int, bytes] = {}  # party -> of its state in this protocol

    def run_exchange(self, place: Transport, exchange: Exchange, *, resume: bool | None = None) -> tuple[Any, dict[int, Any]]:
        """Runs `run_protocol` with this object as its hooks; with `resume` from the newest checkpoint that all parties have.

        All places must agree on `resume`. It is None for an exchange that has nothing to resume, before or after the rounds. Once
        the rounds have begun, signals are held.
        """
        protocol, start, clients, codec = exchange
        self.protocol, self.checkpoint_number, self._since = protocol.name, 0, time.monotonic()
        self.clients = tuple(clients)
        self._draws.clear()
        if self.folder:
            states = {**clients, SERVER: start[0]} if place.is_server else clients
            self._layouts = {party: state_layout(state, protocol.save(state)) for party, state in states.items()}
            # All parties go back to one number; later checkpoints are removed, for they belong to a past that is done again.
            if resume:
                parties = [*clients, *([SERVER] if place.is_server else [])]
                self.checkpoint_number = number = self._chosen(place, parties)
                for party in parties:
                    self.folder.forget_after(party, protocol.name, number)
                    saved = self._read(party, number)
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
        if resume is not None:
            place.signals.hold()
        try:
            return place.run_protocol(protocol, start, clients, codec, self)
        except RemoteFault as fault:  # machines know clients by their numbers
            fault.args = (re.sub(r"\bclient (\d+)(?=:)", self._named, str(fault), count=1),)
            raise

    def _named(self, match: re.Match[str]) -> str:
        number = int(match[1])
        return self.who(number) if number < len(self.wire.clients) else match[0]

    def budget(self, party: int) -> Mark:
        """Returns the mark of the party's account, where it has one."""
        return Mark()

    def stamp(self, party: int, *, sync: bool) -> Stamp:
        """Returns the stamp of everything that a party writes now; with `sync` all of its ledger is on the disk then."""
        assert self.folder
        of_state = self._layouts.get(party, bytes(16))
        stamp = self.folder.stamp(party)._replace(budget=self.budget(party), boot=self._boot, layout=of_state)
        if party == SERVER:
            return stamp
        ledger = self._ledger(party)
        return stamp._replace(ledger=ledger.mark, synced=ledger.synced(surely=sync))

    def forget(self, client: int, protocol: Protocol[Any, Any]) -> None:
        """Removes a client's stored answers in this protocol: they are given anew, and not as they were before a crash."""
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
        self._logs.clear()
        self._ledgers.clear()
        self._outboxes.clear()

    def sending(self, client: int, message: Message, n_bytes: int, charged: int) -> None:
        """Writes a message into its client's ledger, before it leaves."""
        if self.folder:
            line = self._lines.get((self.protocol, type(message))) or self._line(message)
            log = self._ledgers.get(client) or self._ledger(client)
            log.write(line % (getattr(message, "round", -1), n_bytes, charged))

    def _line(self, message: Message) -> str:
        """Returns a line of the ledger without its numbers: all messages of a kind have the same fields and shapes."""
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
            log = self._log(self.folder.path / "ledger" / f"rank-{rank}.jsonl")
            log.append({"protocol": None, "round": None, "kind": what, "fields": {}, "shapes": {}, "bytes": n_bytes, "charge": 0})

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
            more = {"frames": pack_frames(f for _, f in frames), "about": json.dumps(about).encode()}
            self._keep(SERVER, number, saved, more)
            LOG.info("checkpoint %d of %s", number, self.protocol)
            if self._releases and isinstance(done := saved.get("round"), int):
                self._releases.passed(done)
            self._since = time.monotonic()

    def _keep(self, party: int, number: int, saved: Saved, more: Record) -> None:
        """Writes a party's checkpoint, with its draws beside it."""
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
        """Notes that a client is lost, and why."""
        LOG.warning("client %r is lost: %s", self.wire.clients[client], printable(why))
        self.gone[self.wire.clients[client]] = why

    def public(self, error: BaseException) -> str:
        """Returns the text of a fault that others may read."""
        where = "; fault.txt in its own folder has all of it" if self.tell(error) and not isinstance(error, OwnFault) else ""
        if not self.private or (isinstance(error, OPEN) and not isinstance(error, TELLING)):
            return super().public(error) + where
        return f"a fault, which is not described here because it may tell something of the rows{where}"

    def tell(self, error: BaseException) -> bool:
        """Puts the hidden part of a fault into the folder of the party that it is about; returns whether it is there."""
        hidden = TELLING if self.private else ()
        foreseen = isinstance(error, (FedkernError, RemoteFault, KeyboardInterrupt)) and not isinstance(error, hidden)
        if self.folder is None or (foreseen and not isinstance(error, OwnFault)):
            return False
        whole = error.own if isinstance(error, OwnFault) else "".join(traceback.format_exception(error))
        party: int | None = getattr(error, "party", None)
        if party is None and len(self.clients) <= 1:
            party = self.clients[0] if self.clients else SERVER
        about = {party: whole} if party is not None else dict.fromkeys(self.clients, describe_origin(error))
        try:
            for home, text in about.items():
                self.keep_fault(home, text)
        except JobError:  # a full disk: the fault itself matters more
            return False
        if isinstance(error, OwnFault):
            error.kept = True
        return True

    def keep_fault(self, party: int, text: str) -> None:
        """Writes fault.txt, in the party's own folder."""
        if self.folder is not None:
            path = self.folder.home(party) / "fault.txt"
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
            self._logs[path] = Lines(path, None if self.folder is None else self.folder.ground(path))
            if at is not None:
                self._logs[path].cut(at)
        return self._logs[path]

    def _chosen(self, place: Any, parties: list[int]) -> int:
        """Returns the number from which the run goes on."""
        assert self.folder
        offers = {party: self._offered(party) for party in parties}
        lost = {n: self._lost(n) for n in offers.get(SERVER, [])}

        def rule(everybody: Offers) -> int | None:
            needed = {n: [p for p in everybody if p not in lost[n]] for n in everybody[SERVER]}
            return max((n for n, needs in needed.items() if all(n in everybody[p] for p in needs)), default=None)

        number: int | None = place.choose(offers, rule)
        if number is None:
            raise JobError(
                f"{self.folder.path}: the parties have no checkpoint of {self.protocol} in common, so the run can't go on; "
                "start it anew in another folder (--out)"
            )
        return number

    def _offered(self, party: int) -> list[int]:
        """Returns the numbers of the checkpoints that a party can read."""
        assert self.folder
        numbers, readable = self.folder.numbers(party, self.protocol), []
        for number in numbers:
            try:
                saved = self.folder.kept(party, self.protocol, number, self._layouts[party])
                if "draws" in saved:
                    self._draws_of(party).check(Reference.read(saved["draws"]))
                readable.append(number)
            except ValueError as error:
                self.notes.append(f"{error}; an older checkpoint is used")
        if max(numbers, default=0) <= spare(party):
            readable.append(0)
        if not readable:
            raise JobError(f"{'; '.join(self.notes)}: none can be read, so the run can't go on; start it anew (--out)")
        return readable

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
        self._metrics_size = about["metrics"]
        self.wire.restore(about["wire"])
        self.gone = dict(about["gone"])
        state = self._as_kept(SERVER, self.checkpoint_number, saved)
        return restart(protocol, start[0], state, unpack_frames(saved["frames"]), codec)
