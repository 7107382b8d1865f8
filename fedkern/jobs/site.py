"""Reads a holder's own file beside the job: where its data lie, how they are written, its policy, its threads.

It is no part of the job: other parties never see it, and the job's digest has nothing of it. For a client it is

1. the file that `--site` (or FEDKERN_SITE) names: a file, or a folder with NAME.toml for the client NAME; else
2. `sites/NAME.toml` beside the job; else
3. `site.toml` beside the job.

A fault of it is told to others without a path: they read its name and its key's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..data.dialect import Dialect
from ..errors import JobError, OwnFault
from .keys import Count, DialectSection, Section, key
from .load import tables_of, validate_file, written_once

GIVEN = "FEDKERN_SITE"
SHARED, EACH = "site.toml", "sites"


class Structure(Section):
    """What the rows of this client alone have, and the job says nothing of."""

    group: str | None = key(None, help="the column of their groups, which have an intercept each that is normal over them")
    weight: str | None = key(None, help="the column of their weights: each row counts as so many of itself")

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the file that only the client knows."""
        return frozenset(filter(None, (self.group, self.weight)))


class SiteFile(Section):
    """Declares the keys of a site file."""

    client: str | None = key(None, path=True, help="whose it is, where several clients would find it")
    path: str | None = key(
        None, path=True, help="of the client's data, in the place of data.clients; relative ones begin at this file"
    )
    policy: str | None = key(None, path=True, help="a policy file that binds these data too, wherever else policies lie")
    signing_key: str | None = key(
        None, path=True, help="a private key that signs this client's keys of secure sums, in jobs between organisations"
    )
    threads: Count | None = key(None, help="the most threads that the client's kernels may use")
    structure: Structure | None = key(None, help="likelihood: groups or weights of the client's own rows, which stay secret")
    dialect: DialectSection | None = key(None, help="how the client's text file is written, instead of the job's [data.dialect]")


@dataclass(frozen=True)
class Site:
    """Holds the content of a client's site file; by default nothing."""

    # path, policy, signing_key: absolute paths that exist
    path: Path | None = None
    policy: Path | None = None
    threads: int | None = None
    dialect: Dialect | None = None
    signing_key: Path | None = None
    structure: Structure | None = None  # of the client's rows alone

    @property
    def hidden(self) -> frozenset[str]:
        """The columns of the data that only the client knows."""
        return frozenset() if self.structure is None else self.structure.columns


@dataclass(frozen=True)
class Sites:
    """Finds the site files that a place can see."""

    folder: Path  # the folder of the job
    names: tuple[str, ...]  # the names of all clients

    @cached_property
    def given(self) -> Path | None:
        """The file or folder that the holder names, if it does."""
        text = os.environ.get(GIVEN)
        return Path(text).expanduser().absolute() if text else None

    def of(self, client: str) -> Site:
        """Returns a client's site. Raises OwnFault: it cannot be read, has a key that does not exist, or names a file that is not
        there."""
        path = self._file(client)
        if path is None:
            return Site()
        try:
            return self._read(path, client)
        except JobError as fault:
            text = str(fault).replace(f"{path.parent.absolute()}{os.sep}", "").replace(f"{path.parent}{os.sep}", "")
            raise OwnFault(f"client {client!r}: {text}", f"client {client!r}: {path}: {fault}") from None

    def whose(self) -> str:
        """Returns the client that the site file beside the job names: it is the one of this machine. Raises JobError: there is no
        such file, or it does not say whose it is."""
        path = self.folder / SHARED if self.given is None or self.given.is_dir() else self.given
        if not os.path.exists(path):
            what = f'{path} is not there: write client = "NAME" and path = "FILE" into it; the job\'s clients are'
            raise JobError(f"{what} {', '.join(self.names)}")
        client = self._said(path).client
        if client is None or client not in self.names:
            what = "client is missing" if client is None else f"client = {client!r} is not in this job"
            raise JobError(f"{path}: {what}; the job's clients are {', '.join(self.names)}")
        return client

    def own(self) -> SiteFile:
        """Returns what the site file beside the job says, whatever the job; paths in it begin at the file. Raises JobError: there
        is none, or it cannot be read."""
        path = self.folder / SHARED if self.given is None or self.given.is_dir() else self.given
        content = self._said(path)
        key = _there(path, "signing_key", content.signing_key)
        return content.model_copy(update={"signing_key": None if key is None else str(key)})

    def everyone(self) -> Iterator[Site]:
        """Yields the paths and policies of all site files that a client could find here, whatever the clients are called.

        What they name need not be there: they may be of another machine. A file that this user may not read is nobody's here.
        Raises JobError: a file is no site file.
        """
        if self.given is None:
            paths = [*sorted((self.folder / EACH).glob("*.toml")), self.folder / SHARED]
        else:
            paths = sorted(self.given.glob("*.toml")) if self.given.is_dir() else [self.given]
        for path in paths:
            if os.access(path, os.R_OK):
                content = self._said(path)
                data, policy = (None if text is None else _beside(path, text) for text in (content.path, content.policy))
                yield Site(data, policy)

    def _file(self, client: str) -> Path | None:
        """Returns the site file of a client; None where it has none."""
        places = list(self._places(client))
        if self.given is not None:
            if not os.path.exists(self.given):
                name = self.given.name
                what = f"--site ({GIVEN}): no such file or folder; correct it"
                raise OwnFault(f"client {client!r}: {name}: {what}", f"client {client!r}: {self.given}: {what}")
            places = [self.given / f"{client}.toml"] if self.given.is_dir() else [self.given]
        return next((path for path in places if os.path.exists(path)), None)

    def _places(self, client: str) -> Iterator[Path]:
        if Path(client).name == client:
            yield self.folder / EACH / f"{client}.toml"
        yield self.folder / SHARED

    def _said(self, path: Path) -> SiteFile:
        tables = written_once(tables_of(path, "site"), SiteFile, path.name)
        return validate_file(SiteFile, tables, lambda _: iter(()), path.name)

    def _read(self, path: Path, client: str) -> Site:
        content = self._said(path)
        is_its_file = path.stem == client and path.name != SHARED
        if content.client is not None and content.client != client:
            if is_its_file or content.client not in self.names:
                known = ", ".join(self.names)
                raise JobError(f"{path.name}: client = {content.client!r} is not {client!r}; the job's clients are {known}")
            return Site()
        if content.path is not None and not is_its_file and content.client is None and len(self.names) > 1:
            many = f"it names a path, and the job has {len(self.names)} clients"
            raise JobError(f"{path.name}: client is missing: {many}; say whose it is, or write {EACH}/NAME.toml for each")
        data, policy, signing_key = (_there(path, name, getattr(content, name)) for name in ("path", "policy", "signing_key"))
        dialect = None if content.dialect is None else content.dialect.dialect
        return Site(data, policy, content.threads, dialect, signing_key, content.structure)


def _there(site: Path, name: str, text: str | None) -> Path | None:
    """Returns the path that a key of a site file names."""
    if text is None:
        return None
    path = _beside(site, text)
    if not os.path.exists(path):  # False also where it may not be looked at
        raise JobError(f"{site.name}: {name}: {os.path.basename(text)} is not there; correct {name}")
    return path


def _beside(site: Path, text: str) -> Path:
    """Returns an absolute path; relative ones begin at the site file."""
    return (site.parent / os.path.expanduser(text)).absolute()
