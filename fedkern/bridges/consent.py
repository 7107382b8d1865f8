"""Keeps the list of jobs that a holder has accepted: `consent.toml` in the folder of a site.

    open = "ask"                # a job that is not listed waits until somebody accepts it; by default it is refused

    [[job]]                     # written by `fedkern site accept JOB.toml`
    digest = "2f1c.."           # of all keys of the job but for the paths of files
    file = "job.toml"           # the site's own copy, in this folder
    name = "stroke registry"
    who = "ola"
    date = "2026-11-27T18:20:00Z"

The list is a file of its own, and no part of site.toml: that one is written by hand once, and this one by a command.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import JobError
from ..ground import Ground
from ..jobs.keys import JobConfig, Section, key
from ..jobs.load import tables_of, validate_file
from ..methods import load
from .digest import as_asked, digest_of

NAME = "consent.toml"
HEAD = "# Jobs in which this site takes part. `fedkern site accept JOB.toml` adds one, `fedkern site revoke` removes one.\n"


class AcceptedSection(Section):
    """Declares the keys of an accepted job."""

    digest: str = key(help="of the job that was accepted", pattern="^[0-9a-f]{64}$")
    file: str = key(path=True, help="the site's own copy of the job file, in this folder", min_length=1)
    name: str = key("", help="what people call the job")
    who: str = key("", help="who accepted it")
    date: str = key("", help="when")


class ConsentFile(Section):
    """Declares the keys of a consent file."""

    open: Literal["ask", "refuse"] = key("refuse", help="what becomes of a request for a job that is not listed")
    job: list[AcceptedSection] = key([], help="the accepted jobs")


class Accepted(NamedTuple):
    """Holds an accepted job, and whether a request asks to go on with it."""

    said: AcceptedSection
    resume: bool


@dataclass(frozen=True)
class Consent:
    """Reads and writes the consent of a site.

    Attributes
    ----------
    folder : of the site
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / NAME

    def read(self) -> ConsentFile:
        """Reads the file; without one no job is accepted.

        Raises
        ------
        JobError
            It cannot be read, has a key that does not exist, belongs to another user, or others may write to it.
        """
        if not os.path.lexists(self.path):
            return ConsentFile()
        if (state := self.path.stat()).st_uid not in (0, os.geteuid()):
            raise JobError(f"{self.path}: belongs to another user (number {state.st_uid}); accept the jobs anew as this one")
        if (mode := state.st_mode) & 0o022:
            raise JobError(f"{self.path}: other users may write to it (mode {mode & 0o777:o}); chmod go-w {self.path}")
        return validate_file(ConsentFile, tables_of(self.path, "consent"), lambda _: iter(()), NAME)

    def find(self, asked: bytes) -> Accepted | None:
        """Returns the accepted job that the bytes of a request name; None where they name none."""
        for said in self.read().job:
            digest = bytes.fromhex(said.digest)
            for resume in (False, True):
                if asked == as_asked(digest, resume=resume):
                    return Accepted(said, resume)
        return None

    def load(self, said: AcceptedSection) -> tuple[JobConfig, Path]:
        """Reads the site's own copy of an accepted job.

        Raises
        ------
        JobError
            It cannot be read, or is another job than the one that was accepted.
        """
        if os.path.isabs(said.file) or os.pardir in Path(said.file).parts:
            raise JobError(f"{self.path}: file = {said.file!r} is not in this folder; move the job file there")
        config, folder = load(self.folder / said.file)
        if digest_of(config).hex() != said.digest:
            raise JobError(f"{self.folder / said.file} has other keys than the job that was accepted; accept it anew")
        return config, folder

    def add(self, said: AcceptedSection) -> None:
        """Appends an accepted job to the file; all that stands in it stays as it is."""
        before = self.path.read_text(encoding="utf-8") if self.path.exists() else HEAD
        self._put(f"{before.rstrip()}\n{_written(said)}")

    def remove(self, gone: Callable[[AcceptedSection], bool]) -> list[AcceptedSection]:
        """Removes accepted jobs from the file, and returns them. What stands above the first job stays as it is."""
        jobs = self.read().job
        removed = [said for said in jobs if gone(said)]
        if removed:
            head = re.split(r"^\s*\[\[job\]\]", self.path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
            self._put(f"{head.rstrip()}\n" + "".join(_written(said) for said in jobs if said not in removed))
        return removed

    def _put(self, text: str) -> None:
        """Replaces the file in one step, unless the new one could not be read."""
        try:
            tomllib.loads(text)
        except ValueError as error:
            raise JobError(f"{self.path}: cannot be added to ({error}); write jobs as [[job]] tables") from None
        with Ground(self.folder) as ground:
            ground.put(self.path, text.encode(), secret=True)


def _written(said: AcceptedSection) -> str:
    """Returns the table of an accepted job."""
    # A JSON text is a TOML text, but for the one character that JSON leaves as it is.
    texts = {name: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for name, value in said.model_dump().items()}
    return "\n[[job]]\n" + "".join(f"{name} = {text}\n" for name, text in texts.items())
