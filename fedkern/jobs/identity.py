"""Binds the folders of a run's parties together, from its first moment to its last: one run, one job, one set of rows.

Every party keeps `job.json` in its own folder, which may be on another disk than the server's: the job as it was begun, the
clients, the run's id, and keyed digests of the data that the party was given. `--resume` compares all of it before anything else.
The server writes its own last: where it exists, all others do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..algorithms.core.messages import SERVER, reading
from ..data.table import Table
from ..errors import JobError
from ..ground import Ground
from ..results.plain import Record, plain
from ..transports.place import Place
from . import ledger, outbox
from .files import RunFolder
from .holding.chain import Mark
from .keys import JobConfig
from .locks import Locks
from .parties import Parties
from .record import NAME, SHARED, Reader, Shared
from .secret import fingerprint, mark_of, secret

# Of a record's table `run`; the other keys are digests of what the party was given.
ABOUT = ("id", "clients", "party", "ledger", "end", SHARED)
ID = 16  # bytes of a run's id
MOST_NAMED = 6  # keys that differ, with their values


def job_bytes(config: JobConfig, names: Sequence[str]) -> bytes:
    """Returns the bytes that bind a checkpoint: the job without the keys that may change, and its clients."""
    free = config.resumable
    kept = {key: value for key, value in flat(plain(config.model_dump())).items() if key not in free}
    return json.dumps([kept, list(names)], sort_keys=True, allow_nan=False).encode()


def flat(tables: Record, before: str = "") -> dict[str, Any]:
    """Returns dotted key -> value. A value of None is as good as absent."""
    out: dict[str, object] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{before}{name}.")
        elif value is not None:
            out[before + name] = value
    return out


class Identity:
    """Binds this place's parties to their run.

    Parameters
    ----------
    config : the configuration of the job
    folder : the run's folder; it learns its run's id and the parties' digests
    parties : those that live here
    home : party -> the folder of its secret, and the ground below which that lies

    Attributes
    ----------
    marks, paid : party -> of its budget, from all that a resumed run has left; steps that its ledger says were paid for
    notes : party -> on its ledger, which lost something without anybody's doing
    """

    def __init__(
        self, config: JobConfig, folder: RunFolder, parties: Iterable[int], home: Callable[[int], tuple[Path, Ground | None]]
    ) -> None:
        self.folder, self.parties, self.home = folder, tuple(parties), home
        self._ignored, self._free = config.data.ignore, config.resumable
        self.marks: dict[int, Collection[Mark]] = {}
        self.paid: dict[int, int] = {}
        self.notes: dict[int, str] = {}
        self._shared = Shared(plain(config.model_dump()), folder.names)
        self._about: dict[int, dict[str, Any]] = {}  # party -> the table `run` of its record
        self._reader = Reader()
        self._compared: dict[str, list[str]] = {}  # a file that records share -> what of the job it has otherwise
        self._locks = Locks()

    def begin(self, place: Place, *, resume: bool, begins: Callable[[str], None] = lambda run: None) -> None:
        """Locks the folders, and binds them to this run; with `resume` only if they are bound to it already. `begins`: is given
        the id that the server has given to a new run, before any party begins to work; it raises an error where that is the id of
        a run before. Raises JobError: another job is running in a folder, or has run there; no run can be resumed; or ranks
        differ in `resume`."""
        folder, before = self.folder, dict[int, dict[str, Any]]()
        server_parties, clients = [p for p in self.parties if p == SERVER], [p for p in self.parties if p != SERVER]
        if resume and server_parties and not self._path(SERVER).exists():
            left = f"{NAME} is missing, and without it there is" if folder.begun(self.parties) else "there is"
            raise JobError(f"{folder.path}: {left} no run to resume; give the --out of the run, or leave out --resume")
        before |= self._claimed(server_parties, resume=resume)
        new = before[SERVER]["run"]["id"] if before else uuid4().hex
        # The server locks first: of two jobs that start at once one goes on.
        settled = place.settle(b"with" if resume else b"without", lambda starts: _settled(starts, new))
        with reading("the server: the id of the run"):
            run = settled.decode("ascii")
            if len(bytes.fromhex(run)) != ID or run != run.lower().strip():
                raise ValueError
        # Every folder must be of the run that the server has.
        before |= self._claimed(clients, resume=resume)
        for party, record in before.items():
            if record["run"]["id"] != run:
                raise JobError(f"{self._path(party)}: {self._who(party)} took part in another run of this job than the server")
        folder.run = bytes.fromhex(run)
        if not resume:
            begins(run)
        # Files that are left are checked before any of them is overwritten.
        for party in before:
            try:
                self._look_at_what_is_left(party, before[party]["run"])
            except OSError as error:
                why = f"cannot be read ({error.strerror}); make it readable, or start anew (--out)"
                raise JobError(f"{error.filename}: {why}") from None
        for party in self.parties:
            began = before[party]["run"] if resume else {"ledger": self._ledger_size(party)}
            kept = {key: value for key, value in began.items() if key not in ("end", SHARED)}
            self._about[party] = {**kept, "id": run, "party": self._called(party)}
        for party in clients:
            self._write(party, sync=False)  # it is when rows are bound
        # The server's record is written when all others are: where it exists, all others do.
        place.settle(b"", lambda starts: b"")
        for party in server_parties:
            self._write(party)

    def _claimed(self, parties: Sequence[int], *, resume: bool) -> dict[int, dict[str, object]]:
        """Locks these parties' folders, and returns the records by which they were bound before."""
        for party in parties:
            if resume and not self._path(party).exists():
                raise JobError(
                    f"{self._path(party)} is missing: {self._who(party)} has nothing of this run here; put its folder back, or "
                    "start anew (--out)"
                )
            home = self.folder.home(party)
            self._locks.take(home, self._who(party), self.folder.ground(home))
        self.folder.claim(parties, resume=resume)
        before = {party: self._before(party) for party in parties} if resume else {}
        for party, record in before.items():
            self._compare(party, record)
        return before

    def bind(self, party: int, **given: tuple[str, str]) -> None:
        """Binds parts that the party must be given again at every resume.

        Each is a digest, and the text of a JobError if the digest is another.
        """
        bound = self._about[party]
        for what, (digest, fault) in given.items():
            if bound.setdefault(what, digest) != digest:
                raise JobError(f"{self._who(party)}: {fault}; give it again what the run began with, or start anew (--out)")
        self._write(party)
        self.folder.rows[party] = given_digest(bound)

    def end(self, client: int, **logs: Mark) -> None:
        """Notes how a client's logs ended when its part of the run is over, for whoever reads them later."""
        self._about[client]["end"] = {name: [mark.length, mark.head.hex()] for name, mark in logs.items()}
        self._write(client, sync=False)

    def rows(self, party: int, table: Table) -> Table:
        """Binds a table, and returns it."""
        home, ground = self.home(party)
        alone = home != self.folder.home(party)  # else `bind` writes beside it, and syncs the folder
        key = secret(home, sync=alone, ground=ground)
        rows = fingerprint(table, key, self._ignored)
        other = "the secret in its home is not the one with which this run began (or FEDKERN_CLIENT_HOME was another)"
        others = "its rows are not those with which this run began: some were added, removed, changed or put in another order"
        self.bind(party, secret=(mark_of(key), other), rows=(rows, others))
        return table

    def bound(self, parties: Parties) -> Parties:
        """Returns the same parties, whose rows are bound as they are read."""

        def server(read: Callable[[], Table | None]) -> Table | None:
            table = read()
            return None if table is None else self.rows(SERVER, table)

        return replace(
            parties,
            rows=lambda k: self.rows(k, parties.rows(k)),
            test=lambda: server(parties.test),
            server=lambda: server(parties.server),
        )

    def close(self) -> None:
        """Unlocks the folders."""
        self._locks.release()

    def _who(self, party: int) -> str:
        return "the server" if party == SERVER else f"client {self.folder.names[party]!r}"

    def _path(self, party: int) -> Path:
        return self.folder.home(party) / NAME

    def _called(self, party: int) -> str | None:
        return None if party == SERVER else self.folder.names[party]

    def _write(self, party: int, *, sync: bool = True) -> None:
        path = self._path(party)
        self._shared.write(path, self._about[party], self.folder.ground(path), client=party != SERVER, sync=sync)

    def _before(self, party: int) -> dict[str, Any]:
        """Reads the record by which a party's folder was bound before."""
        path = self._path(party)
        try:
            record = self._reader.read(path)
            if not isinstance(record, dict):
                raise ValueError("no table")
            if "run" not in record:
                raise JobError(
                    f"{path} is of an older version of fedkern, which did not say to which run a file belongs: go on with that "
                    "version, or start anew (--out)"
                )
            if len(bytes.fromhex(record["run"]["id"])) != ID:
                raise ValueError("no id")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JobError(f"{path} cannot be read ({error}); put it back as the run left it, or start anew (--out)") from None
        return record

    def _compare(self, party: int, record: Record) -> None:
        path, about = self._path(party), record["run"]
        if about.get("party") != self._called(party):
            whose = "the server" if about.get("party") is None else f"client {about['party']!r}"
            raise JobError(f"{path} is of {whose}, not of {self._who(party)}; put back the folder as the run left it")
        shared = about.get(SHARED)
        faults = self._otherwise(record) if shared not in self._compared else self._compared[shared]
        if shared is not None:
            self._compared[shared] = faults
        if faults:
            raise JobError(
                f"{path}: the run in this folder is of another job: {'; '.join(faults)}. Resume it with the job that it began "
                "with, or start anew (--out)"
            )

    def _otherwise(self, record: Record) -> list[str]:
        """Returns how a record differs from this job."""
        before = flat({key: value for key, value in record.items() if key != "run"})
        now = flat(self._shared.job)
        keys = [key for key in dict.fromkeys([*now, *before]) if before.get(key) != now.get(key) and key not in self._free]
        faults = [f"{key} was {_short(before.get(key))} and is now {_short(now.get(key))}" for key in keys[:MOST_NAMED]]
        faults += [f"also {', '.join(keys[MOST_NAMED:])}"] if len(keys) > MOST_NAMED else []
        clients = record["run"].get("clients")
        if clients != self._shared.clients:
            faults.append(f"the clients were {_short(clients)} and are now {_short(self._shared.clients)}")
        return faults

    def _ledger_size(self, party: int) -> int:
        """Returns the bytes of a ledger, in which an earlier start may have left lines."""
        path = None if party == SERVER else self.folder.ledger(party)
        return 0 if path is None else ledger.size(path)

    def _look_at_what_is_left(self, party: int, about: Record) -> None:
        """Checks the checkpoints, stored answers and logs of a run that goes on."""
        folder = self.folder
        left = [*folder.stamps(party), *outbox.stamps(folder.home(party) / "outbox")]
        for path, stamp in left:
            folder.check(path, party, stamp)
        stamps = list(dict.fromkeys(stamp for _, stamp in left))
        self.marks[party] = {stamp.budget for stamp in stamps}
        if party != SERVER:
            note = ledger.check(folder.ledger(party), stamps)
            self.notes |= {party: note} if note else {}
            began = about.get("ledger", 0)
            self.paid[party] = ledger.charged(folder.ledger(party), began if type(began) is int and began > 0 else 0)


def given_digest(about: Record) -> bytes:
    """Returns, for stamps, the digest of all that a party was given, from the table `run` of its record."""
    digests = json.dumps({key: digest for key, digest in about.items() if key not in ABOUT}, sort_keys=True)
    return hashlib.blake2b(digests.encode(), digest_size=32).digest()


def _settled(starts: Sequence[bytes], run: str) -> bytes:
    """Returns rank 0's answer to all: the run's id. JobError if not all ranks were started alike."""
    for rank, start in enumerate(starts):
        if start != starts[0]:
            raise JobError(f"rank {rank} was started {start.decode()} --resume, rank 0 {starts[0].decode()}; start all alike")
    return run.encode()


def _short(value: object) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 80 else text[:76] + " ..."
