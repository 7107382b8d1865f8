"""What a run keeps on disks while it goes: ledgers, metrics, checkpoints; and how an interrupted run goes on.

The server and every client keep their own checkpoints, under one number that the driver hands out when no question is open. A
run goes on from the newest number of which every party that is still needed can read its own. Number 0 is the start and needs no
file.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..algorithms.messages import SERVER, Message, Protocol, RemoteFault, Saved, schema
from ..errors import BudgetSpent, JobError, LostPeer
from ..results.summary import Wire
from ..transports.codec import Codec, Frame, pack, unpack
from ..transports.driver import Hooks, Offers, restart
from .files import Lines, RunFolder, spare
from .outbox import Outbox, pack_frames, unpack_frames

if TYPE_CHECKING:
    from ..transports.gathering import Gathering
    from ..transports.inprocess import InProcess
    from ..transports.mpi import Ranks

OPEN = (JobError, LostPeer, BudgetSpent, RemoteFault, KeyboardInterrupt)  # faults whose text tells nothing of rows


class Keeper(Hooks):
    """The part of a run's surroundings that writes files. Without a folder it only counts the wire.

    Parameters
    ----------
    names
        Of all clients, by number.
    folder
        Where the run's files go.
    private
        Answers are stored before they leave, and others learn of a fault only that there was one.
    every
        Seconds between checkpoints.
    """

    def __init__(
        self, names: tuple[str, ...], folder: RunFolder | None = None, *, private: bool = False, every: float = 60.0
    ) -> None:
        self.folder, self.private, self.every = folder, private, every
        self.wire = Wire(names)
        self.keeps, self.remembers = folder is not None, folder is not None and private
        self.notes: list[str] = []  # on checkpoints that could not be read
        self.protocol = ""
        self._since = time.monotonic()
        self._metrics_size = 0  # of a resumed run, at its checkpoint
        self._logs: dict[Path, Lines] = {}
        self.clients: tuple[int, ...] = ()  # that live here
        self._outboxes: dict[int, Outbox] = {}
        self._lines: dict[tuple[str, type[Message]], str] = {}
        self._ledgers: dict[int, Lines] = {}

    def run(
        self,
        place: InProcess | Ranks | Gathering,
        protocol: Protocol,
        start: Any,
        clients: Mapping[int, Any],
        codec: Codec,
        *,
        resume: bool = False,
    ) -> tuple[Any, dict[int, Any]]:
        """`place.run` with this as its hooks; with `resume` from the newest checkpoint that all have (all places must say so)."""
        self.protocol, self.checkpoint_number, self._since = protocol.name, 0, time.monotonic()
        clients = dict(clients)
        self.clients = tuple(clients)
        if self.folder:
            if resume:
                parties = [*clients, *([SERVER] if place.is_server else [])]
                self.checkpoint_number = number = self._chosen(place, parties)
                for party in parties:
                    self.folder.forget_after(party, protocol.name, number)
                    saved = self._read(party, number)
                    if saved and party == SERVER:
                        start = self._restart(protocol, start, saved, codec)
                    elif saved:
                        clients[party] = protocol.load(clients[party], unpack(saved["state"]))
            if self.remembers:
                for outbox in self._outboxes.values():
                    outbox.close()
                homes = {client: self.folder.home(client) / "outbox" for client in clients}
                self._outboxes = {client: Outbox(homes[client], protocol.name, self.checkpoint_number) for client in clients}
        return place.run(protocol, start, clients, codec, self)

    def metric(self, record: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
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
        if self.folder:
            kind = type(message)
            line = self._lines.get((self.protocol, kind)) or self._line(message)
            log = self._ledgers.get(client)
            if log is None:
                log = self._ledgers[client] = self._log(self.folder.ledger(client))
            log.write(line % (getattr(message, "round", -1), n_bytes, charged))

    def _line(self, message: Message) -> str:
        """A line of the ledger without its numbers: all messages of a kind have the same fields and shapes."""
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
        if self.folder:
            log = self._log(self.folder.path / "ledger" / f"rank-{rank}.jsonl")
            log.append({"protocol": None, "round": None, "kind": what, "fields": {}, "shapes": {}, "bytes": n_bytes, "charge": 0})

    def delivered(self, direction: str, client: int, n_bytes: int) -> None:
        self.wire.add(direction, client, n_bytes)

    def recall(self, client: int, question: Frame) -> tuple[list[Frame], Saved] | None:
        return self._outboxes[client].recall(question) if self.remembers else None

    def remember(self, client: int, question: Frame, answers: list[Frame], saved: Saved) -> None:
        self._outboxes[client].remember(question, answers, saved)

    def checkpoint_due(self) -> bool:
        return self.keeps and time.monotonic() - self._since >= self.every

    def keep_client(self, client: int, number: int, saved: Saved) -> None:
        if self.folder:
            self.folder.keep(client, self.protocol, number, {"state": pack(saved)})
            if self.remembers:
                self._outboxes[client].next(number)

    def keep_server(self, number: int, saved: Saved, frames: list[tuple[int, Frame]], lost: frozenset[int]) -> None:
        if self.folder:
            metrics = self._logs.get(self.folder.path / "metrics.jsonl")
            counts = [[*key, count] for key, count in self.wire.counts.items()]
            about = {"metrics": metrics.size if metrics else self._metrics_size, "wire": counts, "lost": sorted(lost)}
            content = {"state": pack(saved), "frames": pack_frames(f for _, f in frames), "about": json.dumps(about).encode()}
            self.folder.keep(SERVER, self.protocol, number, content)
            self._since = time.monotonic()

    def public(self, error: BaseException) -> str:
        if not self.private or isinstance(error, OPEN):
            return super().public(error)
        if self.folder and self.clients:
            for client in self.clients:
                path = self.folder.home(client) / "fault.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(traceback.format_exception(error)))
            return f"a fault, which only the data holder may read: {path}"
        return "a fault, which is not described here because it may tell something of the rows"

    def _log(self, path: Path, *, at: int | None = None) -> Lines:
        if path not in self._logs:
            self._logs[path] = Lines(path)
            if at is not None:
                self._logs[path].cut(at)
        return self._logs[path]

    def _chosen(self, place: Any, parties: list[int]) -> int:
        """The number from which the run goes on."""
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
        """Numbers of which a party can read its checkpoint."""
        assert self.folder
        numbers, readable = self.folder.numbers(party, self.protocol), []
        for number in numbers:
            try:
                self.folder.kept(party, self.protocol, number)
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
        """A party's checkpoint; None for the start, and for a client that was lost before."""
        assert self.folder
        try:
            return self.folder.kept(party, self.protocol, number) if number else None
        except ValueError:
            return None

    def _restart(self, protocol: Protocol, start: Any, saved: dict[str, Any], codec: Codec) -> Any:
        about = json.loads(saved["about"])
        self._metrics_size = about["metrics"]
        self.wire.counts = {(name, way): count for name, way, count in about["wire"]}
        return restart(protocol, start[0], unpack(saved["state"]), unpack_frames(saved["frames"]), codec)
