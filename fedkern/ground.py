"""A folder in which files are written, and below which no link is followed.

The way to the folder may lead over links: it is gone once, and the folder kept open. From then on every name is looked up in an
opened folder (`dir_fd`), one component at a time, and none of them may be a link: whoever can write there could else have another
file overwritten, cut or opened to others. A file that is written in its place must be a plain one without a second name.
Temporary files have random names, and are made anew (O_EXCL).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

OWN, OWN_FOLDER = 0o600, 0o700  # what only its owner may read
OPEN, OPEN_FOLDER = 0o644, 0o755  # what others may read, and nobody else write
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe that somebody has put there makes nobody wait


class Foreign(OSError):
    """A name that is not the plain file or folder that it should be; `strerror` says what it is.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from fedkern.ground import Foreign, Ground
    >>> with tempfile.TemporaryDirectory() as folder, Ground(Path(folder)) as ground:
    ...     os.symlink("/etc/hosts", Path(folder) / "table.csv")
    ...     try:
    ...         ground.open(Path(folder) / "table.csv", os.O_RDONLY)
    ...     except Foreign as error:
    ...         print(error.strerror)
    ...
    it is a link
    """


class Ground:
    """See the head of this module.

    Parameters
    ----------
    path : of the folder, as errors name it; opened when it is first needed, and made where something is written

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedkern.ground import Ground
    >>> with tempfile.TemporaryDirectory() as folder, Ground(Path(folder)) as ground:
    ...     ground.put(Path(folder) / "notes" / "first.txt", b"kept")
    ...     ground.names(Path(folder) / "notes")
    ...
    ['first.txt']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Until it is needed again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def make(self, folder: Path, mode: int = OPEN_FOLDER) -> None:
        """A folder, with those above it; new ones have this mode, less what the umask takes from others."""
        with self._opened(folder, mode):
            pass

    def open(self, path: Path, flags: int, mode: int = OPEN, *, make: int | None = None) -> int:
        """As `os.open`. What is to be written is not cut: O_TRUNC comes after it is known to be the file that was meant.

        Parameters
        ----------
        make : the mode of folders that are made on the way; without it they must be there

        Raises
        ------
        Foreign
            It is a link, no plain file, or (where it is to be written) has a second name.
        OSError
        """
        with self._opened(path.parent, make) as folder:
            try:
                file = os.open(path.name, (flags & ~os.O_TRUNC) | _FILE, mode, dir_fd=folder)
            except OSError as error:
                raise _named(error, path, folder) from None
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode):
                raise Foreign(errno.EINVAL, "it is no plain file", str(path))
            if flags & (os.O_WRONLY | os.O_RDWR) and state.st_nlink > 1:
                raise Foreign(errno.EMLINK, "it has a second name (a hard link)", str(path))
            if flags & os.O_TRUNC:
                os.ftruncate(file, 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def put(self, path: Path, data: bytes | memoryview, *, secret: bool = False, sync: bool = True) -> None:
        """The file is the old one or the new one, whatever happens in between (without `sync`: to this process).

        `secret`: it is its owner's alone, whatever the umask, and so are folders that are made for it."""
        with self._opened(path.parent, OWN_FOLDER if secret else OPEN_FOLDER) as folder:
            with self._beside(folder, path, data, secret=secret, sync=sync) as beside:
                os.replace(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            if sync:
                os.fsync(folder)

    def first(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """As `put`, of a secret file, unless one of its name is there, or comes to be there meanwhile; it then stays."""
        with self._opened(path.parent, OWN_FOLDER) as folder:
            with self._beside(folder, path, data, secret=True, sync=True) as beside:
                try:
                    os.link(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                except FileExistsError:
                    pass
                except OSError:  # a disk without links
                    os.replace(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            if sync:
                os.fsync(folder)

    def unlink(self, path: Path) -> None:
        """Removes a name, if it is there."""
        with suppress(FileNotFoundError), self._opened(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def rename(self, path: Path, other: Path) -> None:
        """Both are in one folder."""
        with self._opened(path.parent) as folder:
            os.rename(path.name, other.name, src_dir_fd=folder, dst_dir_fd=folder)

    def sync(self, path: Path) -> None:
        """Makes the names in a folder survive a crash."""
        with self._opened(path) as folder:
            os.fsync(folder)

    def names(self, path: Path) -> list[str]:
        """What is in a folder; nothing where there is none."""
        with suppress(FileNotFoundError), self._opened(path) as folder:
            return sorted(os.listdir(folder))
        return []

    def close_to_others(self, path: Path) -> bool:
        """Whether a folder, which is made if need be, is its owner's alone with all that it holds, once that was tried.

        Links in it, and what they lead to, are left as they are; so is a file with a second name, which may be somebody else's.
        """
        with self._opened(path, OWN_FOLDER) as folder:
            return _closed(folder)

    def owner(self, path: Path) -> tuple[int, int]:
        """Whose a folder is, and as whom its disk knows this process (not always by its own number: on a server's, say)."""
        with self._opened(path) as folder:
            owner, own = os.fstat(folder).st_uid, os.geteuid()
            if owner != own:
                with suppress(OSError), self._beside(folder, path / "owner", b"", secret=True, sync=False) as beside:
                    own = os.stat(beside, dir_fd=folder, follow_symlinks=False).st_uid
            return owner, own

    @contextmanager
    def _beside(self, folder: int, path: Path, data: bytes | memoryview, *, secret: bool, sync: bool) -> Iterator[str]:
        """The name of a new file in a folder, with this content; removed if it has it still at the end."""
        while True:
            beside = f".{path.name}.{secrets.token_hex(4)}.part"
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(beside, flags, OWN if secret else OPEN, dir_fd=folder)
                break
        try:
            with open(file, "wb") as written:
                if secret:
                    _set_mode(file, OWN)
                written.write(data)
                written.flush()
                if sync:
                    os.fsync(file)
            yield beside
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)

    @contextmanager
    def _opened(self, path: Path, make: int | None = None) -> Iterator[int]:
        """A folder below this one, or this one itself."""
        at, way = self._root(make), self.path
        try:
            for name in path.relative_to(self.path).parts:
                way /= name
                if name == os.pardir:
                    raise Foreign(errno.EINVAL, "it leads out of the folder", str(way))
                below = _below(at, name, way, make)
                if at != self._file:
                    os.close(at)
                at = below
            yield at
        finally:
            if at != self._file:
                os.close(at)

    def _root(self, make: int | None) -> int:
        if self._file is None:
            if make is not None and not self.path.is_dir():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self.path.mkdir(make)
                    if make == OWN_FOLDER:
                        with suppress(OSError):
                            os.chmod(self.path, make)  # whatever the umask
                except FileExistsError:
                    if not self.path.is_dir():  # nor made by another meanwhile: a file, or a link to what is not there
                        raise
            self._file = os.open(self.path, _FOLDER)
        if not os.fstat(self._file).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return self._file


@contextmanager
def on(ground: Ground | None, folder: Path) -> Iterator[Ground]:
    """The ground that is given, or this folder as one for as long as it is used."""
    if ground is not None:
        yield ground
        return
    with Ground(folder) as own:
        yield own


def _below(folder: int, name: str, way: Path, make: int | None) -> int:
    """A folder in a folder."""
    new = False
    while True:
        try:
            file = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            break
        except FileNotFoundError as error:
            if make is None or new:
                raise _named(error, way, folder) from None
            with suppress(FileExistsError):
                os.mkdir(name, make, dir_fd=folder)
                new = True
        except OSError as error:
            raise _named(error, way, folder) from None
    if new and make == OWN_FOLDER:
        _set_mode(file, make)
    return file


def _named(error: OSError, path: Path, folder: int) -> OSError:
    """An error with the whole path; that of a link says that it is one."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
                return Foreign(error.errno, "it is a link", str(path))
    return OSError(error.errno, error.strerror, str(path))


def _set_mode(file: int, mode: int) -> bool:
    """Whether a file or folder is its owner's alone, once that was tried. (Some disks know no modes, and some do not say so.)"""
    state = os.fstat(file)
    if stat.S_IMODE(state.st_mode) != mode:
        with suppress(OSError):
            os.fchmod(file, mode)
            state = os.fstat(file)
    return not stat.S_IMODE(state.st_mode) & 0o077


def _closed(folder: int) -> bool:
    """As `close_to_others`, of an opened folder."""
    found = [_set_mode(folder, OWN_FOLDER)]
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    found.append(_closed(below))
                finally:
                    os.close(below)
            elif stat.S_ISREG(state.st_mode) and stat.S_IMODE(state.st_mode) != OWN:
                found.append(_closed_file(folder, name))
    return all(found)


def _closed_file(folder: int, name: str) -> bool:
    file = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    try:
        state = os.fstat(file)
        if stat.S_ISREG(state.st_mode) and state.st_nlink == 1:
            return _set_mode(file, OWN)
        return not stat.S_IMODE(state.st_mode) & 0o077
    finally:
        os.close(file)
