"""Writes and reads a run's folder, so that a crash at any instant leaves files that can be read.

Whole files are written beside their place, synced and renamed; logs grow by whole lines. A full disk, or one that cannot be
written, is a JobError that names the file and the remedy.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..algorithms.core.messages import SERVER
from ..errors import HolderError, JobError
from ..ground import OPEN, OPEN_FOLDER, OWN, OWN_FOLDER, Foreign, Ground, on
from ..printing import printable
from ..results.plain import Record, plain
from ..transports.codec import pack, unpack
from . import stamp as stamping
from .handles import Handle
from .limits import FULL, MANY, too_many
from .stamp import Stamp

MAGIC = b"fedkern checkpoint 3\n"
DIGEST = 32
RECORD = "job.json"  # in the folder of a run, and in each client's own, once a run has begun there
ACCEPTED = "consent.toml"  # in the folder of a site, below which runs lie that a server elsewhere has started
DEEP, DEEPEST = 3, 6  # folders above a file of a run, of which one is one of these; of which one is a site's
EARLY = {".lock", "holder.txt"}  # what a client's own folder may hold before it is bound to a run


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an operating system's refusal to write a file into a JobError with a remedy."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> JobError:
    """Returns the error of a file that cannot be written."""
    if isinstance(error, Foreign):
        return JobError(
            f"cannot write {error.filename}: {error.strerror}, and a run writes into plain files and folders of its own alone; "
            "remove it, or choose another folder with --out"
        )
    if error.errno in MANY:
        return JobError(too_many(path, error))
    if reason := no_folder(path if error.errno == errno.EEXIST else path.parent, error):
        return JobError(f"cannot write {path}: {reason}; choose another folder with --out")
    remedy = "free some space there" if error.errno in FULL else "make it writable"
    if error.errno == errno.EFBIG:
        remedy = "raise this process's limit of a file's size (ulimit -f)"
    begun = any(os.path.exists(folder / RECORD) for folder in [*path.absolute().parents][:DEEP])
    before = ". Files written before are whole; --resume goes on from the last checkpoint" if begun else ""
    # The holder of a site has not started the run, and gives no --out.
    resident = any(os.path.exists(folder / ACCEPTED) for folder in [*path.absolute().parents][:DEEPEST])
    other = "" if resident else " or choose another folder with --out"
    return JobError(f"cannot write {path}: {error.strerror or error}; {remedy}{other}{before}")


def no_folder(path: Path, error: OSError) -> str | None:
    """Returns why a path is no folder where files can be: the first of the names on its way that is something else."""
    if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOENT, errno.EPERM, errno.EACCES):
        return None
    path, deepest = path.absolute(), Path("/")
    for part in (*reversed(path.parents), path):
        try:
            if not stat.S_ISDIR(part.stat().st_mode):
                return f"{part} is {'a file' if part.is_file() else 'a device, a pipe or a socket'}, and no folder"
            deepest = part
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                return f"{part} is a link that leads back to itself"
            if fault.errno == errno.ENOENT and part.is_symlink():
                return f"{part} is a link to {os.readlink(part)}, which is not there"
            break
    with suppress(OSError):
        if not os.statvfs(deepest).f_blocks:
            return f"{deepest} shows what the system is doing, and keeps no files"
    return None


def deleted(path: Path) -> JobError:
    """Returns the error of a file or folder that is gone while a job writes there."""
    return JobError(f"{path} was deleted while the job ran and needed it; start the job again, in another folder (--out)")


def write_atomically(
    path: Path, data: bytes | memoryview, *, secret: bool = False, sync: bool = True, ground: Ground | None = None
) -> None:
    """Writes a file that is the old one or the new one, whatever happens in between (without `sync`: to this process).

    `secret`: it is its owner's alone, whatever the umask. `ground`: below which it lies, if not only below its own folder.
    """
    with writing(path), on(ground, path.parent) as lower_ground:
        lower_ground.put(path, data, secret=secret, sync=sync)


class Lines:
    """Writes a log of JSON lines.

    A line is with the operating system when `append` returns: a crash of the process can't lose it. `secret`: a new file, and
    its folder, are their owner's alone.
    """

    def __init__(self, path: Path, ground: Ground | None = None, *, secret: bool = False) -> None:
        self.path, self.ground, self.secret = path, ground or Ground(path.parent), secret
        with writing(path):
            self._handle = self._opened()
            end = os.fstat(self._handle.file).st_size
            if end and os.pread(self._handle.file, 1, end - 1) != b"\n":  # a crash cut the last line
                self._write(b"\n")

    def append(self, record: Record) -> None:
        """Writes a record as one line."""
        self.write(json.dumps(plain(record), allow_nan=False))

    def write(self, line: str) -> None:
        """Writes a line that is JSON already."""
        try:  # `writing`, which takes longer than the writing
            self._write(line.encode() + b"\n")
        except FileNotFoundError:
            raise deleted(self.path) from None
        except OSError as error:
            raise unwritable(self.path, error) from None

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return os.fstat(self._handle.file).st_size

    def cut(self, size: int) -> None:
        """Removes all that was written after the first `size` bytes."""
        with writing(self.path):
            os.ftruncate(self._handle.file, min(size, self.size))

    def sync(self) -> None:
        """Syncs the file: the lines so far stay whatever happens to the machine."""
        with writing(self.path):
            os.fsync(self._handle.file)

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()

    def _opened(self) -> Handle:
        mode, folders = (OWN, OWN_FOLDER) if self.secret else (OPEN, OPEN_FOLDER)
        return Handle(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, self.ground, mode, folders)

    def _write(self, data: bytes) -> None:
        self._handle.append(data)


_KEPT: set[Path] = set()  # folders of which was said that old files stay there


def remove_old(path: Path, ground: Ground) -> None:
    """Removes a file that nobody needs any more. A disk's refusal is printed once for a folder, and the job goes on."""
    try:
        ground.unlink(path)
    except OSError as error:
        if path.parent not in _KEPT:
            _KEPT.add(path.parent)
            text = f"{path} is no longer needed and cannot be removed ({error.strerror or error}); the job goes on without that"
            print(f"fedkern: {printable(text)}; remove what is left there once it has ended", file=sys.stderr, flush=True)


def spare(party: int) -> int:
    """Returns how many older checkpoints a party keeps: the server one.

    A client keeps two, for the server may not have reached its newest.
    """
    return 1 if party == SERVER else 2


class RunFolder:
    """Holds the files of one run, as one party or several in the same place see them.

    Parameters
    ----------
    path
        The folder; made when something is written.
    names
        Of all clients, by number.
    job
        Bytes that identify the job.
    own
        Where the clients' own folders lie, if not there.
    ground
        A folder above it, from which on no link is followed, if it is not itself where that begins.

    Attributes
    ----------
    run, rows
        The run's id, and party -> digest of its data, as soon as they are known. With the job and the party they are the
        `stamp` of every checkpoint; those with another are refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str],
        job: bytes = b"",
        own: Path | None = None,
        ground: Ground | None = None,
    ) -> None:
        self.path, self.names, self.own = Path(path), tuple(names), own
        self._ground = ground or Ground(self.path)
        within = None if own is None else os.path.relpath(own, self.path)
        if within is not None and within.split(os.sep)[0] != os.pardir:
            self.own, own = self.path / within, None
        self._own_ground = self._ground if own is None else Ground(own)
        self.job = hashlib.blake2b(job, digest_size=DIGEST).digest()
        self.run, self.rows = bytes(16), dict[int, bytes]()
        safe = [re.sub(r"[^\w.-]", "_", name) or "_" for name in self.names]
        count = Counter(safe)
        self._safe = [name if count[name] == 1 else f"{name}-{k}" for k, name in enumerate(safe)]
        self._written: set[Path] = set()  # folders in which something was written

    def home(self, party: int) -> Path:
        """Returns the folder of a party's files: the run's for the server, `client-<name>` in it (or in `own`) for clients."""
        return self.path if party == SERVER else (self.own or self.path) / f"client-{self._safe[party]}"

    def ground(self, path: Path) -> Ground:
        """Returns the ground below which one of the run's files lies."""
        return self._own_ground if self.own is not None and path.is_relative_to(self.own) else self._ground

    def own_ground(self, clients: Iterable[int], *, resume: bool) -> None:
        """Checks that these clients' own folders are this user's, and new or of a run of fedkern; nothing is changed. Raises
        HolderError: one is not. Raises JobError: one is a link."""
        remedy = "choose another --out, or give it a place of its own (output.client_folder = PATH)"
        for client in clients:
            home, who = self.home(client), f"client {self.names[client]!r}"
            with writing(home):
                ground = self.ground(home)
                names = ground.names(home) if os.path.lexists(home) else None
                if names is None:
                    continue
                owner, user = ground.owner(home)
            if owner != user:
                text = f"belongs to another user of this machine, and what lies there is to be the client's alone; {remedy}"
                raise HolderError(f"{who}: {home} {text}", f"{who}: its own folder {text}")
            early = all(name in EARLY or (name.startswith(".") and name.endswith(".part")) for name in names)
            if not early and not (resume or _of_a_run(home / RECORD)):
                text = f"was there before, and no run of fedkern has left it (its job.json would say so); {remedy}"
                raise HolderError(f"{who}: {home} {text}", f"{who}: its own folder {text}")

    def close(self, clients: Iterable[int], *, required: bool, there: bool = False) -> None:
        """Makes these clients' own folders the owner's alone, with all that they hold; `there`: none is made anew. Raises
        HolderError: one cannot be closed, and it is `required`; otherwise a line is printed."""
        with writing(self.path):
            self._ground.make(self.path)
        for client in clients:
            home, who = self.home(client), f"client {self.names[client]!r}"
            if there and not os.path.lexists(home):
                continue
            with writing(home):
                if self.ground(home).close_to_others(home):
                    continue
            shown = f"{who}: its own folder cannot be closed to other users; give it another place (output.client_folder = PATH)"
            text = (
                f"{who}: {home} cannot be closed to other users of this machine, and what lies there is the client's alone; give "
                "it a place on a disk that keeps permissions: output.client_folder = PATH"
            )
            if required:
                raise HolderError(text, shown)
            print(f"fedkern: {text}", file=sys.stderr, flush=True)

    def ledger(self, client: int) -> Path:
        """Returns the file that lists the messages which left a client."""
        return self.path / "ledger" / f"{self._safe[client]}.jsonl"

    def ledger_of_rank(self, rank: int) -> Path:
        """Returns the file that lists the control messages which left a rank, or a site of an engine."""
        return self.path / "ledger" / f"rank-{rank}.jsonl"

    def begun(self, parties: Iterable[int]) -> list[Path]:
        """Returns the folders that a run of these parties has filled so far."""
        folders = [self.home(party) / name for party in parties for name in ("checkpoint", "outbox")]
        return [path for path in folders if path.is_dir() and any(file.lstat().st_size for file in path.iterdir())]

    def claim(self, parties: Iterable[int], *, resume: bool) -> None:
        """Refuses to overwrite another run's files of these parties, and to resume a run that has finished (JobError)."""
        finished = self.path / "summary.json"
        for party in parties:
            begun = self.begun([party])
            if finished.exists() and (party == SERVER or begun):  # begun: it ended before it could clear its checkpoints away
                what = "has nothing to resume" if resume else "would be overwritten"
                raise JobError(f"{finished} is there: the run in this folder has finished and {what}; choose another --out")
            if begun and not resume:
                other = "--out" if self.own is None else "--out and output.client_folder"
                raise JobError(
                    f"{begun[0]} holds an interrupted run: --resume goes on with it; to start anew choose another {other}"
                )

    def write(self, path: Path, data: bytes | memoryview, *, secret: bool = False, sync: bool = True) -> None:
        """Writes a whole file. JobError if somebody has deleted its folder meanwhile: a new one would lack all the rest."""
        for folder in (self.path, path.parent):
            if folder in self._written and not folder.is_dir():
                raise deleted(folder)
        write_atomically(path, data, secret=secret, sync=sync, ground=self.ground(path))
        self._written |= {self.path, path.parent}

    def remove(self, path: Path) -> None:
        """Removes one of the run's files, if it exists."""
        with writing(path):
            self.ground(path).unlink(path)

    def write_json(self, name: str, content: Record, *, client: int | None = None, sync: bool = True) -> Path:
        """Writes a file of the run's folder, or of a client's own."""
        path = (self.path if client is None else self.home(client)) / name
        text = json.dumps(plain(content), indent=1, allow_nan=False)
        self.write(path, text.encode() + b"\n", secret=client is not None, sync=sync)
        return path

    def write_csv(self, name: str, columns: Mapping[str, Sequence[object]], *, client: int | None = None) -> Path:
        """Writes a table of the run's folder, or of a client's own."""
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values()))
        path = (self.path if client is None else self.home(client)) / name
        self.write(path, text.getvalue().encode(), secret=client is not None)
        return path

    def stamp(self, party: int) -> Stamp:
        """Returns the stamp of a party's files, without marks of its logs."""
        name = None if party == SERVER else self.names[party]
        return Stamp(self.job, self.run, stamping.name_digest(name), self.rows.get(party, bytes(32)))

    def check(self, path: Path, party: int, stamp: Stamp, layout: bytes | None = None) -> None:
        """Refuses a file's stamp that is not this party's, or not of this layout of its state, where that is known (JobError)."""
        expected = self.stamp(party).at(path)
        who = "the server" if party == SERVER else f"client {self.names[party]!r}"
        faults = []
        if stamp.job != expected.job:
            faults.append("belongs to another job, whose job file, options or clients were others")
        if stamp.party != expected.party:
            others = {stamping.name_digest(None): "the server"}
            others |= {stamping.name_digest(name): f"client {name!r}" for name in self.names}
            faults.append(f"is of {others.get(stamp.party, 'another party')}, not of {who}")
        if stamp.run != expected.run:
            faults.append("belongs to another run of this job" if stamp.job == expected.job else "to another run")
        if not faults and stamp.place != expected.place:
            faults.append("is a copy of another of its own files")
        if not faults and stamp.rows != expected.rows and any(expected.rows) and any(stamp.rows):
            faults.append(f"was made from other rows than {who} has now")
        if faults:
            raise JobError(f"{path} {', and '.join(faults)}; put back what the run left there, or start anew (--out)")
        if layout is not None and stamp.layout != layout:
            raise JobError(
                f"{path} keeps the state of {who} in another layout than this version of fedkern (other fields, types, shapes): "
                "go on with the version that wrote it, or start anew (--out)"
            )

    def stamps(self, party: int) -> Iterator[tuple[Path, Stamp]]:
        """Yields the stamps of a party's checkpoints, as far as they can be read."""
        folder = self.home(party) / "checkpoint"
        for path in sorted(folder.glob("*.ckpt")):
            with suppress(OSError, ValueError), path.open("rb") as file:
                head = file.read(len(MAGIC) + DIGEST + stamping.LENGTH)
                _known(path, head)
                yield path, Stamp.read(head[len(MAGIC) + DIGEST :])

    def keep(
        self, party: int, protocol: str, number: int, content: Record, stamp: Stamp | None = None, *, first: int | None = None
    ) -> None:
        """Writes a checkpoint, and removes older ones that are no longer needed: before `first`, by default as `spare` has it."""
        path = self._checkpoint(party, protocol, number)
        body = (stamp or self.stamp(party)).at(path).pack() + pack(content)
        self.write(path, MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest() + body, secret=True)
        for other in self.numbers(party, protocol):
            if not (number - spare(party) if first is None else first) <= other <= number:
                old = self._checkpoint(party, protocol, other)
                remove_old(old, self.ground(old))

    def numbers(self, party: int, protocol: str) -> list[int]:
        """Returns the numbers of the checkpoints that exist, readable or not."""
        folder = self.home(party) / "checkpoint"
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        matches = [re.fullmatch(re.escape(protocol) + r"-(\d+)\.ckpt", name) for name in names]
        return sorted(int(match[1]) for match in matches if match)

    def kept(self, party: int, protocol: str, number: int, layout: bytes | None = None) -> dict[str, Any]:
        """Reads a checkpoint's content. ValueError if it is not whole; JobError if its stamp is another."""
        path = self._checkpoint(party, protocol, number)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        _known(path, data)
        body = data[len(MAGIC) + DIGEST :]
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) :][:DIGEST] != hashlib.blake2b(body, digest_size=DIGEST).digest():
            raise ValueError(f"{path} was cut short or altered")
        self.check(path, party, Stamp.read(body), layout)
        return unpack(body[stamping.LENGTH :])

    def forget_after(self, party: int, protocol: str, number: int) -> None:
        """Removes checkpoints that came after the one from which a run goes on."""
        for other in self.numbers(party, protocol):
            if other > number:
                self.remove(self._checkpoint(party, protocol, other))

    def _checkpoint(self, party: int, protocol: str, number: int) -> Path:
        return self.home(party) / "checkpoint" / f"{protocol}-{number:06d}.ckpt"


def _of_a_run(path: Path) -> bool:
    """Tells whether a file is a record of a run (`record`), of this version or an older one."""
    try:
        record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and bool(record.keys() & {"run", "job"})


def _known(path: Path, data: bytes) -> None:
    """Refuses a checkpoint of another version of fedkern (JobError)."""
    magic = MAGIC.rpartition(b" ")[0]
    if data.startswith(magic) and not data.startswith(MAGIC) and b"\n" in data[: 2 * len(MAGIC)]:
        number = data[len(magic) : data.index(b"\n")].decode(errors="replace").strip()
        raise JobError(
            f"{path} was written by another version of fedkern (its format is {number}): go on with that version, or start anew "
            "(--out)"
        )
