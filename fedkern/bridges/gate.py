"""Lets processes of this user, or of one other, speak to the resident of a site through a Unix socket.

An engine's client runs what others send, so it is another user's process, which can read nothing of the site: `ask` takes a
request to the resident, and returns the reply. A frame is 8 bytes, its length (big-endian), and then its content; a connection
has any number of them, one after another. The content is a letter of the relay; before it may stand who asks, as the engine says
(`WHO`). Or it says that the engine's run is over (`END`). `Door` is the client's end of all this.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from ..errors import JobError
from ..printing import printable
from ..transports.relay_letters import run_of
from .site import LONGEST, LONGEST_FIRST, Resident

LENGTH = struct.Struct(">Q")
MOST = 8  # connections at a time
PATIENCE = 60.0  # seconds within which a frame that has begun must be whole
IDLE = 60.0  # seconds for which a connection may say nothing
LONGEST_PATH = 100  # bytes of a socket's path that systems take
LOCK = ".resident.lock"  # in the folder of a site
LONGEST_SAID = 8192  # bytes of what such a file says
SKIPPED = 4  # times LONGEST: the most that is read, and dropped, of a frame that is too long
WHO, END = b"\0who ", b"\0end "  # no letter begins with a zero
LONGEST_WHO = 200  # characters of who asks
RUN = 16  # bytes of the name of a run


class TooLong(OSError):
    """Tells that a frame has more bytes than one may have."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(f"a message of {length} bytes, at most {most} expected")
        self.length = length


def ask(path: str | Path, request: bytes, seconds: float = 120.0) -> bytes:
    """Returns the reply of the resident that listens at a socket. Raises OSError: nobody listens there, or the reply does not
    come within these seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(seconds)
        line.connect(str(path))
        line.sendall(LENGTH.pack(len(request)) + request)
        reply = _frame(line, seconds, seconds)
    if reply is None:
        raise ConnectionResetError(f"{path}: the resident has closed the connection without a reply")
    return reply


class Door:
    """Stands for a site's resident in a process of the engine, which knows its socket alone.

    Parameters
    ----------
    path : of the socket
    who : asks, as the engine says
    """

    def __init__(self, path: str | Path, who: str) -> None:
        self.path, self._who, self._run = path, who[:LONGEST_WHO].replace("\0", " ").encode(), b""

    def answer(self, request: bytes) -> bytes:
        """Returns the reply to a request. Raises OSError: nobody listens at the socket, or the reply does not come."""
        self._run = run_of(request)
        return ask(self.path, WHO + self._who + b"\0" + request)

    def end(self, why: str) -> None:
        """Says that the engine has ended its run; a resident that is gone needs not know."""
        with suppress(OSError):
            ask(self.path, END + self._run + why.encode())


def heeding(resident: Resident, identity: str | None = None) -> Callable[[bytes, str], bytes]:
    """Returns the function by which a resident answers what comes through its socket, from a user.

    `identity`: who asks, where a request does not say it; None: the user.
    """

    def answer(content: bytes, user: str) -> bytes:
        if content.startswith(END):
            ending = content[len(END) :]
            resident.end(printable(ending[RUN:].decode(errors="replace"))[:LONGEST_WHO], ending[:RUN])
            return b""
        if not content.startswith(WHO):
            return resident.answer(content, identity or user)
        who, _, letter = content[len(WHO) :].partition(b"\0")
        name = printable(who.decode(errors="replace"))[:LONGEST_WHO].replace('"', "'")
        return resident.answer(letter, f'"{name}", as the engine\'s client says ({user})')

    return answer


@contextmanager
def listening(
    path: Path,
    answer: Callable[[bytes, str], bytes],
    peer: int | None = None,
    refuse: Callable[[str, str], None] = lambda why, user: None,
    longest: Callable[[], int] = lambda: LONGEST,
) -> Iterator[None]:
    """Answers what comes through a socket, in threads, until the block ends. The socket and its folder are this user's alone.
    Raises JobError: somebody listens there already, the folder is open to others, or the path is too long.

    Parameters
    ----------
    path : of the socket
    answer : is given each request, and the user from whom it comes
    peer : the number of one other user who may ask: that of an engine's client which runs code that others bring. Others may
        enter the folder then, and root gives the socket to that user
    refuse : is given why a request, or the reply to one, does not pass, and the user from whom it came; the reply is empty then
    longest : the bytes that a letter may have now; of those that are longer than a first one, one is in memory at a time
    """
    mask = 0o077 if peer is None else 0o066
    with _bound(path, mask) as gate:
        places, large = threading.BoundedSemaphore(MOST), threading.Lock()

        def listen() -> None:
            while True:
                try:
                    line, _ = gate.accept()
                except OSError:  # it was closed
                    return
                if not ((_is_ours(line) or (peer is not None and _user(line) == peer)) and places.acquire(blocking=False)):
                    line.close()
                    continue
                threading.Thread(target=serve, args=(line,), name="fedkern-gate", daemon=True).start()

        def serve(line: socket.socket) -> None:
            user = f"user {_user(line)}"
            try:
                with line, suppress(OSError):  # who asked has gone
                    while (length := _announced(line, user, refuse, longest)) is not None:
                        with large if length > _frame_of(LONGEST_FIRST) else nullcontext():
                            request = _exactly(line, length, PATIENCE)
                            if request is None:
                                break
                            reply = answer(request, user)
                            del request
                        if len(reply) > _most():
                            refuse(f"a reply of {len(reply)} bytes, at most {_most()} expected", user)
                            reply = b""
                        line.settimeout(PATIENCE)
                        line.sendall(LENGTH.pack(len(reply)) + reply)
            finally:
                places.release()

        threading.Thread(target=listen, name="fedkern-gate", daemon=True).start()
        yield


@contextmanager
def _bound(path: Path, closed: int) -> Iterator[socket.socket]:
    """Yields a socket that listens at a path, and removes it afterwards; `closed` is what others may not do in its folder."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise JobError(f"{path}: the path of a socket has at most {LONGEST_PATH} bytes; give a shorter one (--socket)")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = path.parent.stat()
    if state.st_uid != os.geteuid() or state.st_mode & closed:
        raise JobError(
            f"{path.parent}: other users may enter it (mode {state.st_mode & 0o777:o}); chmod {0o777 & ~closed:o} {path.parent}"
        )
    with _alone(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gate:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise JobError(f"{path} is there and is no socket; give another path (--socket)")
            if _is_heard(path):
                raise JobError(_taken(path))
            path.unlink()
        gate.bind(str(path))  # into a folder that nobody else can enter, so that the mode may follow
        os.chmod(path, 0o600)
        gate.listen(MOST)
        try:
            yield gate
        finally:
            with suppress(OSError):
                gate.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
            with suppress(FileNotFoundError):
                path.unlink()


@contextmanager
def one_resident(folder: Path, path: Path) -> Iterator[None]:
    """Keeps the folder of a site for the resident of this process while the block runs: two would each begin a job, where a site
    takes part in one at a time. `folder`: of the site; `path`: of the socket, which a second resident is told. Raises JobError: a
    resident runs in this folder, whatever its socket."""
    with _locked(
        folder / LOCK,
        lambda holder: f"{folder}: a resident runs here already ({holder or 'it does not say which'}); end it first",
    ) as file:
        os.ftruncate(file, 0)
        os.pwrite(file, os.fsencode(f"process {os.getpid()}, socket {path}"), 0)
        yield


def _alone(path: Path) -> AbstractContextManager[int]:
    """Keeps a path for this process while the block runs: by a locked file beside it, as a socket that was given to another
    user cannot be asked whether somebody listens."""
    return _locked(Path(f"{path}.lock"), lambda _: _taken(path))


@contextmanager
def _locked(path: Path, taken: Callable[[str], str]) -> Iterator[int]:
    """Yields a locked file; JobError with the text of `taken`, which is given what the file says, if another process has it. The
    lock ends with the process, and the file stays."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JobError(f"{path}: cannot be opened ({error.strerror or error})") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(taken(os.fsdecode(os.pread(file, LONGEST_SAID, 0)))) from None
        yield file
    finally:
        os.close(file)


def _taken(path: Path) -> str:
    return f"{path}: a resident listens there already; end it first"


def _is_heard(path: Path) -> bool:
    """Tells whether a program listens at a path, of those whose sockets this user may open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        return line.connect_ex(str(path)) == 0


def _is_ours(line: socket.socket) -> bool:
    """Tells whether the other end is a process of this user, or of root, where the system says whose it is."""
    return _user(line) in (None, 0, os.geteuid())


def _user(line: socket.socket) -> int | None:
    """Returns the number of the other end's user; None where the system does not say it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    return int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1])


def _most() -> int:
    """Returns the bytes that a frame may have."""
    return _frame_of(LONGEST)


def _frame_of(letter: int) -> int:
    """Returns the bytes of a frame with a letter, and who asks."""
    return letter + len(WHO) + 4 * LONGEST_WHO + 1


def _announced(line: socket.socket, user: str, refuse: Callable[[str, str], None], longest: Callable[[], int]) -> int | None:
    """Returns the length of the next request that is not too long, of which nothing is read; None where the other end has
    closed."""
    while True:
        try:
            return _length(line, IDLE, _frame_of(longest()))
        except TooLong as fault:
            refuse(str(fault), user)
            # It is taken off the line and has a reply, or who asks would hear of a broken line, and would ask again.
            if fault.length > SKIPPED * LONGEST or not _skip(line, fault.length, PATIENCE):
                return None
            line.sendall(LENGTH.pack(0))


def _frame(line: socket.socket, idle: float, patience: float) -> bytes | None:
    """Returns the next frame; None where the other end has closed. TooLong where it announces more than a frame may have."""
    length = _length(line, idle, _most())
    return None if length is None else _exactly(line, length, patience)


def _length(line: socket.socket, idle: float, most: int) -> int | None:
    """Returns the length that the next frame announces; None where the other end has closed."""
    line.settimeout(idle)
    if (head := _exactly(line, LENGTH.size)) is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > most:
        raise TooLong(length, most)
    return int(length)


def _exactly(line: socket.socket, length: int, patience: float | None = None) -> bytes | None:
    """Returns so many bytes; None where the other end closes before. Memory is taken as they come, not as they are announced.

    All of them have to come within `patience`.
    """
    parts = list[bytes]()
    return b"".join(parts) if _take(line, length, patience, parts.append) else None


def _skip(line: socket.socket, length: int, patience: float) -> bool:
    """Drops so many bytes; returns whether they have come."""
    return _take(line, length, patience, lambda part: None)


def _take(line: socket.socket, left: int, patience: float | None, keep: Callable[[bytes], object]) -> bool:
    """Takes so many bytes as they come; returns whether all have come before the other end closed."""
    since = time.monotonic()
    while left:
        if patience is not None:
            line.settimeout(max(patience - (time.monotonic() - since), 1e-3))
        if not (part := line.recv(min(left, 1 << 20))):
            return False
        keep(part)
        left -= len(part)
    return True
