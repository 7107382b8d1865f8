"""A run's folder: everything that a run leaves on a disk, so that a crash at any instant leaves something that can be read.

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
from ..printing import printable
from ..results.plain import Record, plain
from ..transports.codec import pack, unpack
from . import stamp as stamping
from .handles import Handle
from .limits import FULL, MANY, too_many
from .stamp import Stamp

MAGIC = b"fedkern checkpoint 2\n"
DIGEST = 32
OWN, OWN_FOLDER = 0o600, 0o700  # what only its owner may read


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what an operating system says about a file that cannot be written into a JobError with a remedy."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> JobError:
    """What to say of a file that cannot be written."""
    if error.errno in MANY:
        return JobError(too_many(path, error))
    if reason := no_folder(path if error.errno == errno.EEXIST else path.parent, error):
        return JobError(f"cannot write {path}: {reason}; choose another folder with --out")
    remedy = "free some space there" if error.errno in FULL else "make it writable"
    if error.errno == errno.EFBIG:
        remedy = "raise this process's limit of a file's size (ulimit -f)"
    return JobError(
        f"cannot write {path}: {error.strerror or error}; {remedy} or choose another folder with --out. "
        "Files written before are whole; --resume goes on from the last checkpoint"
    )


def no_folder(path: Path, error: OSError) -> str | None:
    """Why something is no folder where files can be: the first of the names on its way that is something else."""
    if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOENT, errno.EPERM, errno.EACCES):
        return None
    path, there = path.absolute(), Path("/")
    for one in (*reversed(path.parents), path):
        try:
            if not stat.S_ISDIR(one.stat().st_mode):
                return f"{one} is {'a file' if one.is_file() else 'a device, a pipe or a socket'}, and no folder"
            there = one
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                return f"{one} is a link that leads back to itself"
            if fault.errno == errno.ENOENT and one.is_symlink():
                return f"{one} is a link to {os.readlink(one)}, which is not there"
            break
    with suppress(OSError):
        if not os.statvfs(there).f_blocks:
            return f"{there} shows what the system is doing, and keeps no files"
    return None


def deleted(path: Path) -> JobError:
    """What to say of a file or folder that is gone while a job writes there."""
    return JobError(f"{path} was deleted while the job ran and needed it; start the job again, in another folder (--out)")


def write_atomically(path: Path, data: bytes | memoryview, *, secret: bool = False, sync: bool = True) -> None:
    """The file is the old one or the new one, whatever happens in between (without `sync`: to this process).

    `secret`: it is its owner's alone, whatever the umask."""
    beside = os.path.join(path.parent, f".{path.name}.{os.getpid()}.part")
    with writing(path):
        _make(path.parent, secret)
        fresh = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWN if secret else 0o666)
        try:
            with open(fresh, "wb") as file:
                if secret:
                    _set_mode(beside, OWN)
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(fresh)
            os.replace(beside, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise
        if sync:
            sync_folder(path.parent)


def _make(folder: Path, secret: bool) -> None:
    if not secret:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        _make(folder.parent, secret)
        folder.mkdir(mode=OWN_FOLDER, exist_ok=True)
        _set_mode(folder, OWN_FOLDER)


def _set_mode(path: str | Path, mode: int) -> bool:
    """Whether a file or folder is its owner's alone, once that was tried. (Some disks know no modes, and some do not say so.)"""
    with suppress(OSError):
        if stat.S_IMODE(os.stat(path).st_mode) != mode:
            os.chmod(path, mode)
    try:
        return not stat.S_IMODE(os.stat(path).st_mode) & 0o077
    except FileNotFoundError:
        return True


def _closed(folder: Path) -> bool:
    """Whether a folder is its owner's alone with all that it holds, once that was tried; what it links to is left as it is."""
    with writing(folder):
        _make(folder, secret=True)
        found = [_set_mode(folder, OWN_FOLDER)]
        for place, folders, files in os.walk(folder):
            paths = [(os.path.join(place, name), OWN_FOLDER) for name in folders]
            paths += [(os.path.join(place, name), OWN) for name in files]
            found += [_set_mode(path, mode) for path, mode in paths if not os.path.islink(path)]
    return all(found)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive a crash."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Lines:
    """A log of JSON lines. A line is with the operating system when `append` returns: a crash of the process can't lose it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self._opened()
            end = os.fstat(self._handle.file).st_size
            if end and os.pread(self._handle.file, 1, end - 1) != b"\n":  # a crash cut the last line
                self._write(b"\n")

    def append(self, record: Record) -> None:
        self.write(json.dumps(plain(record), allow_nan=False))

    def write(self, line: str) -> None:
        """A line that is JSON already."""
        try:  # `writing`, which takes longer than the writing
            self._write(line.encode() + b"\n")
        except FileNotFoundError:
            raise deleted(self.path) from None
        except OSError as error:
            raise unwritable(self.path, error) from None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._handle.file).st_size

    def cut(self, size: int) -> None:
        """Forgets what was written after the first `size` bytes."""
        with writing(self.path):
            os.ftruncate(self._handle.file, min(size, self.size))

    def sync(self) -> None:
        """What was written stays whatever happens to the machine."""
        with writing(self.path):
            os.fsync(self._handle.file)

    def close(self) -> None:
        self._handle.close()

    def _opened(self) -> Handle:
        return Handle(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def _write(self, data: bytes) -> None:
        self._handle.append(data)


_KEPT: set[Path] = set()  # folders of which was said that old files stay there


def remove_old(path: Path) -> None:
    """Removes what nobody needs any more. Where a disk refuses, that is said once for a folder, and the job goes on."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if path.parent not in _KEPT:
            _KEPT.add(path.parent)
            text = f"{path} is no longer needed and cannot be removed ({error.strerror or error}); the job goes on without that"
            print(f"fedkern: {printable(text)}; remove what is left there once it has ended", file=sys.stderr, flush=True)


def spare(party: int) -> int:
    """How many older checkpoints a party keeps: the server one. A client two, for the server may not have reached its newest."""
    return 1 if party == SERVER else 2


class RunFolder:
    """The files of one run, as one party or several in the same place see them.

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

    Attributes
    ----------
    run, rows
        The run's id, and party -> digest of what it was given, as soon as they are known. With the job and the party they are the
        `stamp` of every checkpoint; those with another are refused.
    """

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str], job: bytes = b"", own: Path | None = None) -> None:
        self.path, self.names, self.own = Path(path), tuple(names), own
        self.job = hashlib.blake2b(job, digest_size=DIGEST).digest()
        self.run, self.rows = bytes(16), dict[int, bytes]()
        safe = [re.sub(r"[^\w.-]", "_", name) or "_" for name in self.names]
        count = Counter(safe)
        self._safe = [name if count[name] == 1 else f"{name}-{k}" for k, name in enumerate(safe)]
        self._written: set[Path] = set()  # folders in which something was written

    def home(self, party: int) -> Path:
        """Where a party's own files lie: the run's folder for the server, `client-<name>` in it (or in `own`) for a client."""
        return self.path if party == SERVER else (self.own or self.path) / f"client-{self._safe[party]}"

    def close(self, clients: Iterable[int], *, required: bool, there: bool = False) -> None:
        """Makes these clients' own folders the owner's alone, with all that they hold; `there`: none is made anew.

        Raises
        ------
        HolderError
            One cannot be closed, and it is `required`; else that is only said.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        for client in clients:
            home, who = self.home(client), f"client {self.names[client]!r}"
            if (there and not home.exists()) or _closed(home):
                continue
            told = f"{who}: its own folder cannot be closed to other users; give it another place (output.client_folder = PATH)"
            text = (
                f"{who}: {home} cannot be closed to other users of this machine, and what lies there is the client's alone; give "
                "it a place on a disk that keeps permissions: output.client_folder = PATH"
            )
            if required:
                raise HolderError(text, told)
            print(f"fedkern: {text}", file=sys.stderr, flush=True)

    def ledger(self, client: int) -> Path:
        """What left a client."""
        return self.path / "ledger" / f"{self._safe[client]}.jsonl"

    def begun(self, parties: Iterable[int]) -> list[Path]:
        """What a run of these parties has left so far."""
        folders = [self.home(party) / name for party in parties for name in ("checkpoint", "outbox")]
        return [path for path in folders if path.is_dir() and any(file.stat().st_size for file in path.iterdir())]

    def claim(self, parties: Iterable[int], *, resume: bool) -> None:
        """JobError if another run's files of these parties would be overwritten, or if there is nothing to resume."""
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
        """A whole file. JobError if somebody has deleted its folder meanwhile: a new one would lack all the rest."""
        for folder in (self.path, path.parent):
            if folder in self._written and not folder.is_dir():
                raise deleted(folder)
        write_atomically(path, data, secret=secret, sync=sync)
        self._written |= {self.path, path.parent}

    def write_json(self, name: str, content: Record, *, client: int | None = None, sync: bool = True) -> Path:
        """A file of the run's folder, or of a client's own."""
        path = (self.path if client is None else self.home(client)) / name
        text = json.dumps(plain(content), indent=1, allow_nan=False)
        self.write(path, text.encode() + b"\n", secret=client is not None, sync=sync)
        return path

    def write_csv(self, name: str, columns: Mapping[str, Sequence[Any]], *, client: int | None = None) -> Path:
        """A table of the run's folder, or of a client's own."""
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values()))
        path = (self.path if client is None else self.home(client)) / name
        self.write(path, text.getvalue().encode(), secret=client is not None)
        return path

    def stamp(self, party: int) -> Stamp:
        """Of what this party writes, without marks of its logs."""
        name = None if party == SERVER else self.names[party]
        return Stamp(self.job, self.run, stamping.name_digest(name), self.rows.get(party, bytes(32)))

    def check(self, path: Path, party: int, found: Stamp) -> None:
        """JobError unless a stamp that was found there is this party's."""
        own = self.stamp(party).at(path)
        who = "the server" if party == SERVER else f"client {self.names[party]!r}"
        faults = []
        if found.job != own.job:
            faults.append("belongs to another job, whose job file, options or clients were others")
        if found.party != own.party:
            others = {stamping.name_digest(None): "the server"}
            others |= {stamping.name_digest(name): f"client {name!r}" for name in self.names}
            faults.append(f"is of {others.get(found.party, 'another party')}, not of {who}")
        if found.run != own.run:
            faults.append("belongs to another run of this job" if found.job == own.job else "to another run")
        if not faults and found.place != own.place:
            faults.append("is a copy of another of its own files")
        if not faults and found.rows != own.rows and any(own.rows) and any(found.rows):
            faults.append(f"was made from other rows than {who} has now")
        if faults:
            raise JobError(f"{path} {', and '.join(faults)}; put back what the run left there, or start anew (--out)")

    def stamps(self, party: int) -> Iterator[tuple[Path, Stamp]]:
        """Those of a party's checkpoints, as far as they can be read."""
        folder = self.home(party) / "checkpoint"
        for path in sorted(folder.glob("*.ckpt")):
            with suppress(OSError, ValueError), path.open("rb") as file:
                head = file.read(len(MAGIC) + DIGEST + stamping.LENGTH)
                _known(path, head)
                yield path, Stamp.read(head[len(MAGIC) + DIGEST :])

    def keep(
        self,
        party: int,
        protocol: str,
        number: int,
        content: Record,
        stamp: Stamp | None = None,
        *,
        first: int | None = None,
    ) -> None:
        """Writes a checkpoint, and removes those that are no longer needed: before `first`, by default as `spare` has it."""
        path = self._checkpoint(party, protocol, number)
        body = (stamp or self.stamp(party)).at(path).pack() + pack(content)
        self.write(path, MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest() + body, secret=True)
        for other in self.numbers(party, protocol):
            if not (number - spare(party) if first is None else first) <= other <= number:
                remove_old(self._checkpoint(party, protocol, other))

    def numbers(self, party: int, protocol: str) -> list[int]:
        """Of the checkpoints that are there, readable or not."""
        folder = self.home(party) / "checkpoint"
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        found = [re.fullmatch(re.escape(protocol) + r"-(\d+)\.ckpt", name) for name in names]
        return sorted(int(match[1]) for match in found if match)

    def kept(self, party: int, protocol: str, number: int) -> dict[str, Any]:
        """A checkpoint's content. ValueError if it is not whole; JobError if its stamp is another."""
        path = self._checkpoint(party, protocol, number)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        _known(path, data)
        body = data[len(MAGIC) + DIGEST :]
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) :][:DIGEST] != hashlib.blake2b(body, digest_size=DIGEST).digest():
            raise ValueError(f"{path} was cut short or altered")
        self.check(path, party, Stamp.read(body))
        return unpack(body[stamping.LENGTH :])

    def forget_after(self, party: int, protocol: str, number: int) -> None:
        """Removes checkpoints that came after the one from which a run goes on."""
        for other in self.numbers(party, protocol):
            if other > number:
                path = self._checkpoint(party, protocol, other)
                with writing(path):
                    path.unlink(missing_ok=True)

    def _checkpoint(self, party: int, protocol: str, number: int) -> Path:
        return self.home(party) / "checkpoint" / f"{protocol}-{number:06d}.ckpt"


def _known(path: Path, data: bytes) -> None:
    """JobError for a checkpoint of another version of fedkern."""
    magic = MAGIC.rpartition(b" ")[0]
    if data.startswith(magic) and not data.startswith(MAGIC) and b"\n" in data[: 2 * len(MAGIC)]:
        number = data[len(magic) : data.index(b"\n")].decode(errors="replace").strip()
        raise JobError(
            f"{path} was written by another version of fedkern (its format is {number}): go on with that version, or start anew "
            "(--out)"
        )
