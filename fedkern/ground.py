"""Reads and writes files in a folder, below which no link is followed.

The path of the folder may lead over links: it is followed once, and the folder is kept open. From then on every name is looked
up in an opened folder (`dir_fd`), one component at a time, and none of them may be a link. Else whoever can write in the folder
could have another file overwritten, cut or opened to others. A file that is written in place must be a plain one without a
second name.
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

OWN, OWN_FOLDER = 0o600, 0o700  # only the owner may read
OPEN, OPEN_FOLDER = 0o644, 0o755  # others may read, and only the owner may write
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe that somebody has put there makes nobody wait


class Foreign(OSError):
    """Reports a name that is not the plain file or folder that it should be; `strerror` says what stands there instead.

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
    """Reads and writes below one folder without following a link, as the head of this module says.

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
        """Closes the folder; it is opened again when it is next needed."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def make(self, folder: Path, mode: int = OPEN_FOLDER) -> None:
        """Makes a folder, with those above it. New ones get this mode, less the bits that the umask takes away."""
        with self._opened(folder, mode):
            pass

    def open(self, path: Path, flags: int, mode: int = OPEN, *, make: int | None = None) -> int:
        """Opens a file as `os.open` does. A file that is to be written is cut (O_TRUNC) only after it is known to be the one that
        was meant. `make`: the mode of folders that are made on the way; without it they must be there. Raises Foreign: it is a
        link, no plain file, or (where it is to be written) has a second name. Raises OSError."""
        with self._opened(path.parent, make) as folder:
            # O_NOFOLLOW in `_FILE`: a link in the last place fails here.
            try:
                file = os.open(path.name, (flags & ~os.O_TRUNC) | _FILE, mode, dir_fd=folder)
            except OSError as error:
                raise _with_path(error, path, folder) from None
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode):
                raise Foreign(errno.EINVAL, "it is no plain file", str(path))
            # A second name may belong to a file elsewhere, which would be overwritten through it.
            if flags & (os.O_WRONLY | os.O_RDWR) and state.st_nlink > 1:
                raise Foreign(errno.EMLINK, "it has a second name (a hard link)", str(path))
            if flags & os.O_TRUNC:
                os.ftruncate(file, 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def put(self, path: Path, data: bytes | memoryview, *, secret: bool = False, sync: bool = True) -> None:
        """Replaces a file in one step: whatever happens in between, the old or the new content is there. Without `sync` this
        holds for this process only.

        `secret`: it is its owner's alone, whatever the umask, and so are folders that are made for it."""
        with self._opened(path.parent, OWN_FOLDER if secret else OPEN_FOLDER) as folder:
            # The whole content stands in a file beside it, on the disk, before the name is moved to it.
            with self._beside(folder, path, data, secret=secret, sync=sync) as beside:
                os.replace(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            # The new name survives a crash only after its folder is synced.
            if sync:
                os.fsync(folder)

    def first(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Writes a secret file as `put` does, unless a file of that name exists or appears meanwhile; that one then stays."""
        with self._opened(path.parent, OWN_FOLDER) as folder:
            with self._beside(folder, path, data, secret=True, sync=True) as beside:
                # A link, unlike a rename, never replaces a file that another process has made meanwhile.
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
        """Renames a file within one folder."""
        with self._opened(path.parent) as folder:
            os.rename(path.name, other.name, src_dir_fd=folder, dst_dir_fd=folder)

    def sync(self, path: Path) -> None:
        """Makes the names in a folder survive a crash."""
        with self._opened(path) as folder:
            os.fsync(folder)

    def names(self, path: Path) -> list[str]:
        """Returns the sorted names in a folder; an empty list where the folder does not exist."""
        with suppress(FileNotFoundError), self._opened(path) as folder:
            return sorted(os.listdir(folder))
        return []

    def close_to_others(self, path: Path) -> bool:
        """Tries to make a folder, and all that it holds, readable by its owner alone. Returns whether it is so now. A folder that
        does not exist is made.

        Links in it, and their targets, are left unchanged; so is a file with a second name, which may be somebody else's.
        """
        with self._opened(path, OWN_FOLDER) as folder:
            return _close_all(folder)

    def owner(self, path: Path) -> tuple[int, int]:
        """Returns the owner of a folder, and the user as whom its disk knows this process. On a server's disk that need not be
        the process's own number."""
        with self._opened(path) as folder:
            owner, own = os.fstat(folder).st_uid, os.geteuid()
            if owner != own:
                with suppress(OSError), self._beside(folder, path / "owner", b"", secret=True, sync=False) as beside:
                    own = os.stat(beside, dir_fd=folder, follow_symlinks=False).st_uid
            return owner, own

    @contextmanager
    def _beside(self, folder: int, path: Path, data: bytes | memoryview, *, secret: bool, sync: bool) -> Iterator[str]:
        """Yields the name of a new file in a folder, with this content. The file is removed if it still has that name at the
        end."""
        while True:
            beside = f".{path.name}.{secrets.token_hex(4)}.part"
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(beside, flags, OWN if secret else OPEN, dir_fd=folder)
                break
        try:
            with open(file, "wb") as written:
                # Before the first byte is written: a disk may give a file another mode than was asked for.
                if secret:
                    _set_mode(file, OWN)
                written.write(data)
                written.flush()
                # Before the name is given away: a rename must not reach the disk before the content.
                if sync:
                    os.fsync(file)
            yield beside
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)

    @contextmanager
    def _opened(self, path: Path, make: int | None = None) -> Iterator[int]:
        """Opens a folder below this one, or this one itself."""
        folder, way = self._root(make), self.path
        try:
            for name in path.relative_to(self.path).parts:
                way /= name
                # A folder of that name is no link, and leads out all the same.
                if name == os.pardir:
                    raise Foreign(errno.EINVAL, "it leads out of the folder", str(way))
                below = _below(folder, name, way, make)
                if folder != self._file:
                    os.close(folder)
                folder = below
            yield folder
        finally:
            if folder != self._file:
                os.close(folder)

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
    """Yields the ground that is given, or one of this folder for as long as the block lasts."""
    if ground is not None:
        yield ground
        return
    with Ground(folder) as opened:
        yield opened


def _below(folder: int, name: str, way: Path, make: int | None) -> int:
    """Opens a folder in a folder."""
    new = False
    while True:
        try:
            file = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            break
        except FileNotFoundError as error:
            if make is None or new:
                raise _with_path(error, way, folder) from None
            with suppress(FileExistsError):
                os.mkdir(name, make, dir_fd=folder)
                new = True
        except OSError as error:
            raise _with_path(error, way, folder) from None
    if new and make == OWN_FOLDER:
        _set_mode(file, make)
    return file


def _with_path(error: OSError, path: Path, folder: int) -> OSError:
    """Returns an error with the whole path; the error of a link says that it is a link."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
                return Foreign(error.errno, "it is a link", str(path))
    return OSError(error.errno, error.strerror, str(path))


def _set_mode(file: int, mode: int) -> bool:
    """Tries to set the mode of a file or folder. Returns whether it is its owner's alone now: some disks know no modes, and some
    do not say so."""
    state = os.fstat(file)
    if stat.S_IMODE(state.st_mode) != mode:
        with suppress(OSError):
            os.fchmod(file, mode)
            state = os.fstat(file)
    return not stat.S_IMODE(state.st_mode) & 0o077


def _close_all(folder: int) -> bool:
    """Does the work of `close_to_others` for an opened folder."""
    are_closed = [_set_mode(folder, OWN_FOLDER)]
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    are_closed.append(_close_all(below))
                finally:
                    os.close(below)
            elif stat.S_ISREG(state.st_mode) and stat.S_IMODE(state.st_mode) != OWN:
                are_closed.append(_close_file(folder, name))
    return all(are_closed)


def _close_file(folder: int, name: str) -> bool:
    file = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    try:
        state = os.fstat(file)
        if stat.S_ISREG(state.st_mode) and state.st_nlink == 1:
            return _set_mode(file, OWN)
        return not stat.S_IMODE(state.st_mode) & 0o077
    finally:
        os.close(file)
