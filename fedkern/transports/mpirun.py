"""Starts mpirun, stays beside it, and says how the job ended. mpi/run.sh and mpi/slurm.sbatch run this module.

    python -P -m fedkern.transports.mpirun RANKS MPIRUN [OPTIONS] PROGRAM [ARGUMENTS]

RANKS is the number of ranks on this machine, as far as it is known; the ranks say it themselves later.

mpirun by itself kills its ranks a quarter of a second after TERM or INT. Where it tolerates deaths its exit code tells nothing,
it waits for ever for a rank that died while MPI started, and ranks outlive it. So

* it gets a session of its own, where no terminal reaches it, and neither TERM nor INT. They come to this process; those that were
  sent to mpirun are seen waiting there. Once the job has begun they go on to all ranks as USR1, and become a checkpoint; before
  that no state has to be kept, and mpirun is ended;
* every rank says hello to this process as soon as it runs, on a line that ends when it dies: before the job has begun a death is
  known by that, and by nothing that a slow machine could feign (`rollcall`);
* rank 0 tells this process that the job has begun, and with which code it ends: that is the exit code, and none but that is 0;
* processes that the job leaves behind are killed when mpirun has ended, and mpirun is killed if this process dies. Ranks look
  after their parent themselves (`parent`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from .cores import usable_cores
from .parent import BEGUN, ENDED, HELLO, JOINS, LAUNCHERS, LEFT, LONGEST, NAME, new_name
from .rollcall import LOST, Fault, RollCall

SH = "FEDKERN_SH"  # the process id of the script that runs us: when it is gone the job stops
INTERNAL = 1
LOOK = 0.2  # seconds between two looks at mpirun
AGAIN = 1.0  # between two requests to stop: a rank may have been deaf
LEAVING = 10.0  # what mpirun gets to end after rank 0 has said how the job ends
PDEATHSIG, SUBREAPER = 1, 36  # of prctl

# Where it tolerates deaths Open MPI says nothing of them, but with this a line of each: the only way to know of a rank that died
# before it was seen.
TOLD = {"PRTE_MCA_errmgr_base_verbose": "1"}
FOLDER = "PRTE_MCA_prte_local_tmpdir_base"  # where Open MPI keeps its files of a job, under mpirun's process id

Signal = signal.Signals
ASKS = (Signal.SIGTERM, Signal.SIGUSR1, Signal.SIGINT, Signal.SIGHUP)
KEPT = (Signal.SIGTERM, Signal.SIGINT)  # from mpirun; HUP is left, by which we end it
PRCTL = ctypes.CDLL(None).prctl


class Screen:
    """Filters mpirun's standard error, line by line.

    Left out are the texts that mpirun prints at every abort, and those of deaths that it prints because we ask it to (`TOLD`).
    Open MPI frames its words by lines of dashes. Until the job has begun everything is held back: if a rank dies, or the job is
    stopped, the others complain of errors that only follow from it.
    """

    EDGE = re.compile(rb"-{70,}\n")
    STATE = re.compile(rb"\[[^\n]*\] errmgr:\S+ for proc \[[^\n]*,(\d+)\] state ([^\n]*)\n")
    DEATHS = (b"ABORTED BY SIGNAL", b"EXITED WITH NON-ZERO STATUS")
    KNOWN = (b"MPI_ABORT was invoked", b"non-zero", b"noticed that process rank", b"MPI_ERRORS_ARE_FATAL")

    def __init__(self) -> None:
        self.begun = False
        self.ended = False  # from now on only fedkern's own lines
        self.heard = False  # a rank has said something of its own
        self._line = b""  # that has not ended, of what was looked through for deaths
        self._rest = b""  # what waits for the job to begin, or for the end of its line
        self._frame: list[bytes] = []

    def more(self, data: bytes) -> bytes:
        """Takes the next bytes and returns those to show."""
        self._rest += data
        self.heard = self.heard or b"fedkern: " in data
        if not self.begun:
            return b""
        *lines, self._rest = self._rest.replace(b"\0", b"").splitlines(keepends=True) or [b""]
        if self._rest.endswith(b"\n"):
            lines, self._rest = [*lines, self._rest], b""
        shown = _ours(lines) if self.ended else map(self._shown, lines)
        return b"".join(shown)

    def deaths(self, data: bytes) -> list[int]:
        """Returns the ranks of whose death mpirun tells in the next bytes."""
        whole, end, self._line = (self._line + data).rpartition(b"\n")
        return [int(match[1]) for match in self.STATE.finditer(whole + end) if match[2] in self.DEATHS]

    def begin(self) -> bytes:
        """Returns the bytes that were held back, since the job has begun."""
        self.begun = True
        return self.more(b"")

    def cut(self) -> bytes:
        """Returns the bytes that were held back, which may give the reason, and shows no later ones: the job will not begin."""
        shown, self.ended = self.begin(), True
        return shown

    def end(self, *, ours: bool) -> bytes:
        """Returns the rest. With `ours` the held bytes have been explained, and only fedkern's own lines of them are shown."""
        if self.ended or (ours and not self.begun):
            return b"".join(_ours(self._rest.splitlines(keepends=True)))
        return self.begin() + b"".join([*self._frame, self._rest])

    def _shown(self, line: bytes) -> bytes:
        """Returns the part of a line that is shown; a frame of dashes is held until it is complete."""
        if self.EDGE.fullmatch(line):
            rest = [] if self._frame else [line]
            frame, self._frame = b"".join([*self._frame, line]), rest
            return b"" if self._frame or any(words in frame for words in self.KNOWN) else frame
        if self._frame:
            self._frame.append(line)
            return b""
        return b"" if line.startswith(b"[warn] Epoll") or self.STATE.fullmatch(line) else line


def _ours(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yields fedkern's own lines."""
    return (line for line in lines if line.startswith(b"fedkern: "))


class Job:
    """Runs one mpirun, from its start to its end."""

    def __init__(self, ranks: int, command: Sequence[str]) -> None:
        self.screen = Screen()
        self.begun = False
        self.code: int | None = None  # that rank 0 has said
        self.asked: str | None = None  # the signal that asks us to stop
        self.hurry = False  # twice by hand: now
        self.why: Fault | None = None  # we have ended mpirun
        self.roll = RollCall(ranks)
        self._told = self._ended = self._hanged = 0.0
        for number in ASKS:
            signal.signal(number, self._ask)
        PRCTL(SUBREAPER, 1)  # ranks that lose mpirun become our children
        self.words, name = _words()
        self._lines: dict[socket.socket, int | None] = {}  # of ranks, and which rank, where it has said hello
        self._selector = selectors.DefaultSelector()
        # Process ids come again: what an mpirun of this one's number has left, when it was killed, would end ours as it starts.
        self.folder = tempfile.TemporaryDirectory(prefix="fedkern-mpirun-", ignore_cleanup_errors=True)
        self.mpirun = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**TOLD, FOLDER: self.folder.name, **os.environ, NAME: name},
            start_new_session=True,
            preexec_fn=_alone,
        )
        assert self.mpirun.stdout is not None
        assert self.mpirun.stderr is not None
        self.out, self.err = self.mpirun.stdout, self.mpirun.stderr
        self.deaf = 0  # error number of a standard output that takes nothing

    def run_ranks(self) -> int:
        """Waits until mpirun and all processes that it started have ended; returns the exit code of the job."""
        selector = self._selector
        for pipe, take in ((self.out, self._print), (self.err, self._show)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, take)
        selector.register(self.words, selectors.EVENT_READ, self._hear)
        looked = 0.0
        while self.mpirun.poll() is None:
            for key, _ in selector.select(LOOK):
                heard: Callable[[], bool] = key.data
                if not heard():
                    selector.unregister(key.fileobj)
            if time.monotonic() - looked > LOOK / 2:
                looked = time.monotonic()
                self._look(looked)
        # Ranks may outlive mpirun. Their last words are read only when none is left to write more.
        _end_children()
        self.folder.cleanup()
        self._hear()
        while self._print() or self._show():
            pass
        code, text = self._verdict()
        if code == LOST and not (text or self.begun or self.screen.heard):  # what a rank says may be lost with mpirun
            text = f"{self._stopped}; start it again"
        _show(self.screen.end(ours=bool(text or self.code is not None or (code == LOST and self.screen.heard))))
        if text:
            _show(f"fedkern: {text}\n".encode())
        return code

    def _verdict(self) -> tuple[int, str]:
        """Returns the exit code of the job, and a text for whatever no rank has said of it."""
        if self.code == 0 and self.deaf not in (0, errno.EPIPE):
            return 2, f"cannot write standard output: {os.strerror(self.deaf)}; what is in files is written"
        # Rank 0 has said why, too. But of a job that begins while it is ended, mpirun passes no more on.
        if self.code is not None and not (self.why and self.why.code == self.code and not self.screen.heard):
            return self.code, ""
        if self.why:
            return self.why.code, self.why.text
        if self.asked and not self.begun:
            return LOST, f"{self._stopped} before the job had begun; start it again"
        # From here on rank 0 has not said how the job ended: mpirun's code and the roll call have to do.
        code = self.mpirun.returncode
        if not self.begun and code >= 0:
            if fault := self.roll.refused():
                return fault.code, ""
            if fault := self.roll.died():
                if fault.words and code:
                    _show(self.screen.cut())
                return fault.code, fault.text
        if code in range(1, 6):  # the ranks have said why
            return code, ""
        if code <= 0 or 128 < code <= 192 or code in (9, 15):
            who = f"mpirun was ended by {Signal(-code).name}" if code < 0 else "rank 0 (the server) did not say how the job ended"
            if code > 0 and not self.begun:
                who = f"a rank died before it had said which it is (mpirun ended with code {code})"
                _show(self.screen.cut())  # it may have said why
            remedy = "--resume goes on from the last checkpoint" if self.begun else "start it again"
            return LOST, f"{who}; {remedy}"
        if not self.begun and (self.roll.here or self.screen.heard):
            return LOST, f"mpirun ended with code {code} before the job had begun; start it again"
        return INTERNAL, f"mpirun ended with code {code}"

    @property
    def _stopped(self) -> str:
        """Names the signal where it is the one that was sent: the script passes Ctrl-C, USR1 and HUP on as TERM."""
        is_passed_on = SH in os.environ and self.asked == Signal.SIGTERM.name
        return f"stopped by {self.asked}" if self.asked and not is_passed_on else "stopped"

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """Remembers the request to stop; a second Ctrl-C ends at once."""
        self.hurry = self.hurry or (number == Signal.SIGINT and self.asked is not None)
        if self.asked is None and number == Signal.SIGINT and self.begun and sys.stderr.isatty():
            _show(b"fedkern: stopping at the next checkpoint; Ctrl-C again ends at once\n")
        self.asked = self.asked or Signal(number).name

    def _look(self, now: float) -> None:
        """Does whatever is due now: passes on a request to stop, or ends an mpirun that hangs."""
        if not self.asked:
            request = _waiting(self.mpirun.pid)
            self.asked = self.asked or request  # a signal for us may have come while we looked
        if self.hurry:
            self._end(now, Fault(LOST, "interrupted; --resume goes on from the last checkpoint"))
        elif self.code is not None:
            self._ended = self._ended or now
            if now - self._ended > LEAVING:
                self._end(now, None)
        elif self.asked and not self.begun:
            self._end(now, Fault(LOST, f"{self._stopped} before the job had begun; start it again"))
        elif self.asked and now - self._told > AGAIN:
            self._told = now
            self.mpirun.send_signal(Signal.SIGUSR1)
        elif self._hanged:
            self._end(now, self.why)
        elif not self.begun:
            if not self.roll.complete:
                self.roll.look(_ranks(self.mpirun.pid), now)
            if fault := self.roll.fault(now, crowd()):
                if fault.words:
                    _show(self.screen.cut())
                self._end(now, fault)

    def _end(self, now: float, why: Fault | None) -> None:
        """Ends mpirun by a signal, and kills it if it takes too long."""
        if not self._hanged:
            self.why, self._hanged = why, now
            self.mpirun.send_signal(Signal.SIGHUP)
        elif now - self._hanged > 1.5:
            self.mpirun.kill()

    def _hear(self) -> bool:
        """Reads the words of ranks. Others of this machine may speak here too, so the kernel is asked who speaks."""
        with suppress(BlockingIOError):
            while True:
                line, _ = self.words.accept()
                _, uid, _ = struct.unpack("iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if uid != os.getuid():
                    line.close()
                    continue
                line.setblocking(False)
                self._lines[line] = None
                self._selector.register(line, selectors.EVENT_READ, self._hear)
        for line in list(self._lines):
            with suppress(BlockingIOError):
                while self._word(line):
                    pass
        return True

    def _word(self, line: socket.socket) -> bool:
        """Takes the next word on this line; returns False at its end."""
        rank, now = self._lines[line], time.monotonic()
        try:
            # A reset line means the same as a closed one: its rank has ended.
            word = line.recv(LONGEST)
        except ConnectionError:
            word = b""
        if not word:
            self._selector.unregister(line)
            del self._lines[line]
            line.close()
            if rank is not None:
                self.roll.cut(rank, now)
        elif word == BEGUN:
            self.begun = True
            _show(self.screen.begin())
        elif word.startswith(ENDED):
            self.code = int(word.removeprefix(ENDED))
        elif word.startswith(HELLO):
            rank, near, size = map(int, word.removeprefix(HELLO).split())
            self._lines[line] = rank
            self.roll.hello(rank, near, size, now)
        elif rank is not None and word == JOINS:
            self.roll.joins(rank, now)
        elif rank is not None and word.startswith(LEFT):
            code, _, why = word.removeprefix(LEFT).partition(b" ")
            self.roll.leaves(rank, int(code), now, why.decode(errors="replace"))
        return bool(word)

    def _show(self) -> bool:
        """Passes on mpirun's standard error; returns False at its end."""
        data = self.err.read(1 << 16) or b""
        for rank in self.screen.deaths(data):
            self.roll.cut(rank, time.monotonic())
        _show(self.screen.more(data))
        return bool(data)

    def _print(self) -> bool:
        """Passes on mpirun's standard output; returns False at its end."""
        data = self.out.read(1 << 16) or b""
        try:
            _write(1, data)
        except OSError as error:
            self.deaf = self.deaf or error.errno or errno.EIO
        return bool(data)


def _alone() -> None:
    """Sets the signals of mpirun's process before it begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, KEPT)
    for number in KEPT:  # what is ignored would not be seen waiting
        signal.signal(number, signal.SIG_DFL)
    PRCTL(PDEATHSIG, Signal.SIGKILL)


def _words() -> tuple[socket.socket, str]:
    """Opens the socket, which has no file, where ranks speak to this process; returns it with its name."""
    words, name = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), new_name()
    words.setblocking(False)
    words.bind(f"\0{name}".encode())
    words.listen(4096)
    return words, name


def crowd() -> float:
    """Returns how many processes wanted one core during the last minute, at least 1."""
    return max(1.0, os.getloadavg()[0] / len(usable_cores()))


def _write(file: int, data: bytes) -> None:
    """Writes all bytes to a file descriptor."""
    while data:
        data = data[os.write(file, data) :]


def _show(data: bytes) -> None:
    """Writes bytes to standard error."""
    with suppress(OSError):  # the terminal may be gone
        _write(2, data)


def _waiting(pid: int) -> str | None:
    """Returns the name of a signal that was sent to mpirun and waits there, or None."""
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{pid}/status").read_text()
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
        for number in KEPT:
            if any(mask >> (number - 1) & 1 for mask in masks):
                return number.name
    return None


def _parents() -> Iterator[tuple[int, int]]:
    """Yields process id and parent of every living process."""
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if path.name.isdigit():
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    yield int(path.name), int(parent)


def children(pid: int) -> list[int]:
    """Returns the processes that this one has started."""
    return [child for child, parent in _parents() if parent == pid]


def _ranks(mpirun: int) -> dict[int, tuple[int, int, int]]:
    """Returns the processes below mpirun that are ranks by their variables, each with its rank, the number of ranks on this
    machine, and of all (0: not told)."""
    parents = dict(_parents())
    ranks = {}
    for pid in parents:
        above, steps = pid, 0
        while above in parents and above != mpirun and steps < 16:
            above, steps = parents[above], steps + 1
        if above != mpirun or pid == mpirun:
            continue
        with suppress(OSError, ValueError):
            pairs = (item.partition(b"=") for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            variables = {name.decode(errors="replace"): value for name, _, value in pairs}
            for launcher in LAUNCHERS:  # what this process has too is not of this mpirun
                if launcher.rank in variables and launcher.rank not in os.environ:
                    ranks[pid] = (
                        int(variables[launcher.rank]),
                        int(variables.get(launcher.near, 0)),
                        int(variables.get(launcher.size, 0)),
                    )
                    break
    return ranks


def _end_children() -> None:
    """Kills the processes that mpirun has left behind: with the tolerance of deaths an abort leaves ranks alive."""
    until = time.monotonic() + 5.0
    while (left := children(os.getpid())) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, Signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.01)


def main(ranks: str, *command: str, env: Mapping[str, str] = os.environ) -> int:
    """Runs one job and returns its exit code."""
    with suppress(OSError):
        os.setsid()  # what a terminal says comes through the script
    PRCTL(PDEATHSIG, Signal.SIGTERM)
    if env.get(SH, str(os.getppid())) != str(os.getppid()):  # it was gone before we looked
        return LOST
    try:
        return Job(int(ranks), command).run_ranks()
    except OSError as error:
        _show(f"fedkern: cannot start {command[0]}: {error.strerror}\n".encode())
        return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
