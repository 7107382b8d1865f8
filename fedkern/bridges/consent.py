"""Keeps the list of jobs that a holder has accepted: `consent.toml` in the folder of a site.

    open = "ask"                # a job that is not listed waits until somebody accepts it; by default it is refused

    [[job]]                     # written by `fedkern site accept JOB.toml`
    digest = "2f1c.."           # of all keys of the job but for the paths of files
    file = "job.toml"           # the site's own copy, in this folder
    name = "stroke registry"
    who = "ola"
    date = "2026-11-27T18:20:00Z"
    runs = 10                   # begins no more often, also where a run goes on after a stop; without it as often as is asked
    until = 2027-01-31          # and not after this day (UTC); without it for ever
    peers = {bo = "SHA256:.."}  # of secure sums: the fingerprints of the other clients' keys
    line = "5a80.."             # of the audit log, which says so; runs are counted after it

The list is a file of its own, and no part of site.toml: that one is written by hand once, and this one by a command. Commands
that change it at once wait for each other, by a locked file beside it; an editor does not.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from ..errors import JobError
from ..ground import OWN, Ground
from ..jobs.files import ACCEPTED
from ..jobs.keys import JobConfig, Section, key
from ..jobs.load import TOML_FAULTS, tables_of, validate_file
from ..jobs.opened import read
from ..jobs.record import NAME as RECORD
from ..methods import load
from ..plain import inline
from .audit import Audit, now
from .digest import as_asked, digest_of
from .identity import as_fingerprint

NAME = ACCEPTED
RUNS = "runs"  # the folder of all runs, in the site's
UNLIMITED = "unlimited"
MOST_RUNS = 10  # of a job, where its holder says no other number: each is a set of questions that the server may choose
LOCK = f".{NAME}.lock"  # by which those who change the file wait for each other
HEAD = "# Jobs in which this site takes part. `fedkern site accept JOB.toml` adds one, `fedkern site revoke` removes one.\n"


def _fingerprint(text: str) -> str:
    try:
        return as_fingerprint(text)
    except JobError:
        raise PydanticCustomError("fingerprint", "a fingerprint, SHA256: and 64 digits") from None


class AcceptedSection(Section):
    """Declares the keys of an accepted job."""

    digest: str = key(help="of the job that was accepted", pattern="^[0-9a-f]{64}$")
    file: str = key(path=True, help="the site's own copy of the job file, in this folder", min_length=1)
    name: str = key("", help="what people call the job")
    who: str = key("", help="who accepted it")
    date: str = key("", help="when")
    runs: int | None = key(None, ge=1, help="how often it may begin, runs that go on after a stop included")
    until: datetime.date | None = key(None, help="the last day on which it may begin, such as 2027-01-31 (UTC)")
    peers: dict[str, Annotated[str, AfterValidator(_fingerprint)]] = key({}, help="fingerprints of the other clients' keys")
    line: str = key("", help="hash of the line of the audit log that says so", pattern="^([0-9a-f]{32})?$")

    @property
    def limits(self) -> str:
        """How long and how often the job may begin, in words."""
        limits = [] if self.runs is None else [f"{self.runs} run{'s' * (self.runs > 1)}"]
        limits += [] if self.until is None else [f"until {self.until}"]
        return ", ".join(limits) or UNLIMITED

    def spent(self, audit: Audit) -> str:
        """Returns why the job begins no more; empty where it may begin. Raises JobError: its runs are limited, and the audit log
        of the site does not tell how often it has begun."""
        if self.until is not None and now()[:10] > self.until.isoformat():
            return f"it was accepted until {self.until}"
        if self.runs is not None and (begun := audit.starts(self.digest, self.line)) >= self.runs:
            return f"it was accepted for {self.limits}, and has begun {begun} time{'s' * (begun > 1)}"
        return ""


class ConsentFile(Section):
    """Declares the keys of a consent file."""

    open: Literal["ask", "refuse"] = key("refuse", help="what becomes of a request for a job that is not listed")
    job: list[AcceptedSection] = key([], help="the accepted jobs")


class Accepted(NamedTuple):
    """Holds an accepted job, whether a request asks to go on with it, and its own folder of a run that is to be replayed."""

    section: AcceptedSection
    resume: bool = False
    replays: Path | None = None


@dataclass(frozen=True)
class Consent:
    """Reads and writes the consent of a site."""

    folder: Path  # of the site

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / NAME

    def read(self) -> ConsentFile:
        """Reads the file; without one no job is accepted. Raises JobError: it cannot be read, has a key that does not exist,
        belongs to another user, or others may write to it."""
        if not os.path.lexists(self.path):
            return ConsentFile()
        if (state := self.path.stat()).st_uid not in (0, os.geteuid()):
            raise JobError(f"{self.path}: belongs to another user (number {state.st_uid}); accept the jobs anew as this one")
        if (mode := state.st_mode) & 0o022:
            raise JobError(f"{self.path}: other users may write to it (mode {mode & 0o777:o}); chmod go-w {self.path}")
        return validate_file(ConsentFile, tables_of(self.path, "consent"), lambda _: iter(()), NAME)

    def find(self, digest_asked: bytes) -> Accepted | None:
        """Returns the accepted job that the bytes of a request name; None where they name none."""
        for section in self.read().job:
            digest = bytes.fromhex(section.digest)
            for resume in (False, True):
                if digest_asked == as_asked(digest, resume=resume):
                    return Accepted(section, resume)
            for folder, run in self._runs():
                if digest_asked == as_asked(digest, replays=run):
                    return Accepted(section, replays=folder)
        return None

    def _runs(self) -> Iterator[tuple[Path, bytes]]:
        """Yields the holder's own folders of runs, each with the run's id."""
        for path in sorted(self.folder.glob(f"{RUNS}/*/client-*/{RECORD}")):
            with suppress(JobError, KeyError, TypeError, ValueError):  # one that was damaged is no run
                yield path.parent, bytes.fromhex(read(path)["run"]["id"])

    def load(self, section: AcceptedSection) -> tuple[JobConfig, Path]:
        """Reads the site's own copy of an accepted job. Raises JobError: it cannot be read, is another job than the one that was
        accepted, or the list has several copies of this job."""
        # Copies of one job differ in paths alone, and a request cannot say which of them it means.
        files = [accepted.file for accepted in self.read().job if accepted.digest == section.digest]
        if len(files) > 1:
            raise JobError(
                f"{self.path}: names this job more than once ({', '.join(files)}); `fedkern site accept` of the file that you "
                "mean leaves that one alone"
            )
        if os.path.isabs(section.file) or os.pardir in Path(section.file).parts:
            raise JobError(f"{self.path}: file = {section.file!r} is not in this folder; move the job file there")
        config, folder = load(self.folder / section.file)
        self.check_folder(config, folder)
        if digest_of(config).hex() != section.digest:
            raise JobError(f"{self.folder / section.file} has other keys than the job that was accepted; accept it anew")
        return config, folder

    def check_folder(self, config: JobConfig, folder: Path) -> None:
        """Raises JobError where a job has this holder's own folder written outside the site's: its text came from elsewhere.

        `folder` is the job file's. Paths are no part of what the holder and the server have compared.
        """
        own_folders = config.output.own_folders(folder)
        if own_folders is not None and not Path(os.path.realpath(own_folders)).is_relative_to(os.path.realpath(self.folder)):
            raise JobError(
                f"output.client_folder = {config.output.client_folder!r} is outside the site's folder ({self.folder}), and a job "
                "chooses no other place on this machine; remove the key from this copy of it: the folder then lies in the run's"
            )

    def text_with(self, section: AcceptedSection) -> str:
        """Returns the text of the file with one more accepted job, which takes the place of every earlier entry of this job.

        Where no entry is replaced, all else that stands in the file stays as it is.
        """
        before = self.read()
        kept = [accepted for accepted in before.job if accepted.digest != section.digest]
        if len(kept) < len(before.job):
            return self._text(before.open, [*kept, section])
        return self._text(before.open, [*kept, section], self._stored() or HEAD, [section])

    def check_addable(self, section: AcceptedSection) -> None:
        """Raises JobError where `add` could not write this job."""
        try:
            self.text_with(section).encode()
        except UnicodeEncodeError:
            raise JobError(
                f"{section.file!r}, {section.name!r}: a letter is none of UTF-8; rename the file, or give --name"
            ) from None

    def add(self, section: AcceptedSection) -> None:
        """Puts an accepted job into the file, as `text_with` says."""
        with self._alone():
            self._put(self.text_with(section))

    def remove(self, gone: Callable[[AcceptedSection], bool]) -> list[AcceptedSection]:
        """Removes accepted jobs from the file, each with all entries of its digest, and returns them. Raises JobError: the file
        could not be written, or still has one of them when it is read again."""
        with self._alone():
            before = self.read()
            digests = {section.digest for section in before.job if gone(section)}
            if digests:
                self._put(self._text(before.open, [section for section in before.job if section.digest not in digests]))
        if left := [section.file for section in self.read().job if section.digest in digests]:
            raise JobError(
                f"{self.path}: still accepts {', '.join(left)}: another program writes it; remove these entries by hand"
            )
        return [section for section in before.job if section.digest in digests]

    def _stored(self) -> str:
        """Returns the text of the file; empty without one. An editor may have put a byte order mark before it."""
        return self.path.read_text(encoding="utf-8-sig") if self.path.exists() else ""

    def _text(
        self,
        asking: str,
        jobs: Sequence[AcceptedSection],
        above: str | None = None,
        more: Sequence[AcceptedSection] | None = None,
    ) -> str:
        """Returns a text of the file that says exactly this when it is read.

        It is `above` with `more` jobs after it: by default all that stands above the first job, with all jobs. TOML has several
        ways to write jobs. Where somebody has written them otherwise than this module, only the lines of comments are kept.
        """
        stored, wanted = self._stored(), ConsentFile(open=asking, job=list(jobs))  # type: ignore[arg-type]
        if above is None:
            above = re.split(r"^\s*\[\[job\]\]", stored, maxsplit=1, flags=re.MULTILINE)[0]
        added = jobs if more is None else more
        text = f"{above.rstrip()}\n" + "".join(map(_written, added))
        if _says(text) == wanted:
            return text
        comments = [line for line in stored.splitlines() if line.lstrip().startswith("#")]
        head = "\n".join([*comments, f"open = {inline(asking)}"])
        return f"{head}\n" + "".join(map(_written, jobs))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets one process read the file and replace it while others wait: else what one of them writes would be lost."""
        with self._writing(), Ground(self.folder) as ground:
            file = ground.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, OWN)
        try:
            with self._writing():
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def _put(self, text: str) -> None:
        """Replaces the file in one step."""
        with self._writing(), Ground(self.folder) as ground:
            ground.put(self.path, text.encode(), secret=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns errors of the machine into one that says that the file stays as it was."""
        try:
            yield
        except OSError as error:
            raise JobError(f"{self.path}: cannot be written ({error.strerror or error}), and stays as it was") from None


def _says(text: str) -> ConsentFile | None:
    """Returns the content of a text as it would be read; None where it is no consent file."""
    try:
        return validate_file(ConsentFile, tomllib.loads(text), lambda _: iter(()), NAME)
    except (*TOML_FAULTS, JobError):
        return None


def _written(section: AcceptedSection) -> str:
    """Returns the table of an accepted job."""
    given = {name: value for name, value in section.model_dump().items() if value not in (None, {})}
    return "\n[[job]]\n" + "".join(f"{name} = {inline(value)}\n" for name, value in given.items())
