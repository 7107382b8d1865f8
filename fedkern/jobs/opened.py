"""Opens a run's folder after the run, or while it goes, for whoever may read its files. Nothing is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..algorithms.core.messages import SERVER
from ..errors import JobError
from ..results.plain import Record
from . import ledger
from .files import RunFolder
from .holders import ACCOUNT
from .holding.binding import account, bind, client_home
from .holding.budget import Ledger
from .holding.chain import SIZE
from .holding.policy import DataSet
from .identity import given_digest, job_bytes
from .keys import JobConfig, Privacy
from .record import NAME, Reader


@dataclass(frozen=True)
class Opened:
    """Holds the files of a run's folder."""

    config: JobConfig  # the configuration of the job
    files: RunFolder  # the folder; it knows the run's id, and the digests of its readable parties' data
    records: Mapping[int, Record]  # party -> the record in its own folder (job.json), of those that can be read here
    summary: Record | None  # the summary of a run that has ended; None before, and where the server's folder is not readable

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.files.path

    @property
    def method(self) -> str:
        """The name of the job's method."""
        return self.config.job.method

    @property
    def rounds(self) -> int | str:
        """The rounds as the job file has them: a number, or "budget"."""
        return self.config.job.rounds

    @property
    def privacy(self) -> Privacy | None:
        """The keys of [privacy], by which a private job makes its promise; None of an open job."""
        return self.config.privacy

    @property
    def by_client(self) -> bool:
        """Whether a private job protects whole clients, by one account for all of them."""
        return self.config.unit == "client"

    def of_posterior(self, steps: int) -> dict[str, str | float]:
        """Returns the statements of a certificate on the posterior, after so many accounted steps."""
        return self.config.of_posterior(steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all clients, by number."""
        return self.files.names

    def who(self, party: int) -> str:
        """Returns a party's name, as summary.json has it."""
        return "the federation" if party == SERVER else self.names[party]

    def job(self, party: int) -> str:
        """Returns the name that budgets have for this run of a party, or for the noisy table that it has used."""
        if table := self.account(party).get("table"):
            return str(table)
        return f"{self.files.run.hex()}-{'server' if party == SERVER else party}"

    def budget(self, party: int) -> Ledger | None:
        """Returns the budget that holds a party's charges of this run; None where it is not here. Raises JobError: it was
        altered."""
        path_here = self.files.home(party) / "budget.jsonl"
        account = self.account(party)
        was_here = path_here.is_file() or Path(account.get("budget", "")).parent.name == path_here.parent.name
        for path in [path_here] if was_here else dict.fromkeys(self._elsewhere(party)):
            if path.is_file():
                ledger = Ledger(path)
                ledger.look()
                if self.job(party) in ledger.jobs:
                    return ledger
        if was_here and self.ended(party, "budget"):
            raise JobError(f"{path_here}: has no line of this run; put it back as the run left it")
        return None

    def account(self, party: int) -> Record:
        """Returns the account and policies that a party's own folder records; empty where it has no record."""
        return read(self.files.home(party) / "account.json") or {}

    def ended(self, party: int, log: str) -> bool:
        """Tells whether a party's part of the run is over, and left such a log."""
        return party in self.records and log in self.records[party]["run"].get("end", {})

    def _elsewhere(self, party: int) -> Iterator[Path]:
        """Yields the files that may be the budget, if it is not in the party's own folder."""
        home = self.files.home(party)
        if party == SERVER:
            place, clients = account(bind("server", DataSet((ACCOUNT,)), must="never")), client_home()
            if place is not None:
                yield place.folder / "budget.jsonl"
            if clients is not None:
                yield clients / ACCOUNT / "budget.jsonl"
        elif record := read(home / "account.json"):
            yield from map(Path, [record["budget"], *record["looked_in"]])


def opened(folder: Path, config_of: Callable[[Record], JobConfig]) -> Opened:
    """Opens the folder of a run, or one client's own. `config_of`: the tables of a job, as job.json has them -> its
    configuration. Raises JobError: it is none, or cannot be read."""
    reader = Reader()
    record = read(folder / NAME, reader)
    about = record.get("run") if isinstance(record, dict) else None
    if not isinstance(about, dict) or not about.keys() >= {"id", "clients", "party"}:
        raise JobError(f"{folder}: holds no run of fedkern (no {NAME} that says which); give the --out of one")
    config = config_of({key: value for key, value in record.items() if key != "run"})
    # A client's own folder lies in the run's, unless output.client_folder has another.
    path = folder if about["party"] is None else folder.resolve().parent
    own_folders = config.output.own_folders(Path.cwd()) if about["party"] is None else None
    files = RunFolder(path, about["clients"], job_bytes(config, about["clients"]), own_folders)
    try:
        files.run = bytes.fromhex(about["id"])
    except (ValueError, TypeError):
        raise JobError(f"{folder / NAME}: run.id is none; put the file back as the run left it") from None
    contents = {party: read(files.home(party) / NAME, reader) for party in (SERVER, *range(len(files.names)))}
    records = {party: content for party, content in contents.items() if content and "id" in content.get("run", {})}
    files.rows |= {
        party: given_digest(content["run"]) for party, content in records.items() if content["run"]["id"] == about["id"]
    }
    return Opened(config, files, records, read(path / "summary.json"))


def read(path: Path, reader: Reader | None = None) -> Any:
    """Reads a file of JSON (a record by a reader of such); None where it does not exist, or may not be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if reader is None else reader.read(path)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise JobError(f"{path}: cannot be read ({error}); put it back as the run left it") from None


class Sent(NamedTuple):
    """Holds one line of a ledger: a message that left a client, or a rank."""

    protocol: str | None
    round: int | None  # the message's round; None where it has none
    kind: str
    to: str  # the receiver
    bytes: int
    charge: int  # steps that were paid for it
    fields: str  # their names; of arrays also how many numbers
    digest: str  # that of the ledger up to this line (BLAKE2b-128), which stamps and job.json keep


def sent(path: Path) -> Iterator[Sent]:
    """Yields all lines of a ledger, except those that a crash has cut (`torn`). Raises JobError: one cannot be read."""
    state = hashlib.blake2b(digest_size=SIZE)
    for number, line in enumerate(_lines(path), 1):
        state.update(line)
        try:
            entry = json.loads(line)
            protocol, counts = entry["protocol"], (entry["bytes"], entry["charge"])
            if any(type(n) is not int or n < 0 for n in (*counts, entry["round"] or 0)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            if ledger.torn(line):
                continue
            raise JobError(f"{path}: line {number} is none that a run writes; put the file back as the run left it") from None
        to = "other ranks" if protocol is None else "server"
        yield Sent(protocol, entry["round"], entry["kind"], to, *counts, _fields(entry), state.hexdigest())


def torn(path: Path) -> str | None:
    """Returns a sentence on the lines of a ledger that a crash has cut; None where it has none.

    When a process dies its message had not left, and is logged again when it does. When a machine goes down it may have: lines
    are not synced one by one (see `ledger`).
    """
    numbers = [str(number) for number, line in enumerate(_lines(path), 1) if ledger.torn(line)]
    if not numbers:
        return None
    which = f"line {numbers[0]} was" if len(numbers) == 1 else f"lines {', '.join(numbers)} were"
    return (
        f"{path}: {which} cut when a process or a machine went down, and {'is' if len(numbers) == 1 else 'are'} not counted; "
        "messages that left just before may be missing"
    )


def _lines(path: Path) -> Iterator[bytes]:
    try:
        yield from ledger.read_lines(path)
    except OSError as error:
        raise JobError(f"{error.filename or path}: cannot be read ({error.strerror})") from None


def _fields(entry: Record) -> str:
    """Returns the names of a message's fields."""
    shapes = entry.get("shapes", {})
    sizes = {name: " x ".join(map(str, shape)) for name, shape in shapes.items()}
    return ", ".join(f"{name} ({sizes[name]})" if name in sizes else name for name in entry.get("fields", ()))


def ledgers(run: Opened) -> dict[str, Path]:
    """Returns the ledgers that are here, each by its owner: clients by their names, then ranks."""
    paths = {run.names[k]: run.files.ledger(k) for k in range(len(run.names))}
    known = set(paths.values())
    ranks = {name: path for name, path in _ledgers_of_ranks(run.path).items() if path not in known}
    try:
        return {name: path for name, path in {**paths, **ranks}.items() if ledger.parts(path)}
    except PermissionError:  # another user's, whose alone they are
        return {}


def early_ledgers(folder: Path) -> dict[str, Path]:
    """Returns the ledgers of a job that ended before its run began, which has no record (job.json); none of any other folder.
    `folder`: where the run would be, or a client's own folder in it."""
    for path in (folder, folder.resolve().parent):
        if (path / NAME).exists():
            return {}
        if found := _ledgers_of_ranks(path):
            return found
    return {}


def _ledgers_of_ranks(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((folder / "ledger").glob("rank-*.jsonl"))}


class Kind(NamedTuple):
    """Holds the totals of all messages of one kind that left a client, or a rank."""

    who: str  # the sender
    to: str  # the receiver
    what: str  # the kind, as the code names it
    fields: str  # the fields of such a message; of arrays how many numbers
    messages: int
    bytes: int
    rounds: tuple[int, int] | None  # the first and the last; None without any
    charge: int  # steps that were paid for them


def kinds(paths: Mapping[str, Path]) -> Iterator[Kind]:
    """Yields the kinds of messages that have left each owner of these ledgers, in the order in which each first did. Raises
    JobError: a ledger cannot be read."""
    for who, path in paths.items():
        by_kind: dict[tuple[str, str], list[Sent]] = {}
        for line in sent(path):
            by_kind.setdefault((line.to, line.kind), []).append(line)
        for (to, kind), lines in by_kind.items():
            rounds = [line.round for line in lines if line.round is not None]
            yield Kind(
                who=who,
                to=to,
                what=kind,
                fields=max((line.fields for line in lines), key=len),
                messages=len(lines),
                bytes=sum(line.bytes for line in lines),
                rounds=(min(rounds), max(rounds)) if rounds else None,
                charge=sum(line.charge for line in lines),
            )
