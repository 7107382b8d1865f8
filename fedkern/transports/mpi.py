"""Carries a job over MPI: only buffer calls are used, on a duplicated communicator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from mpi4py import MPI

from .._core.wire import room
from ..algorithms.core.messages import Protocol, RemoteFault, Start
from ..errors import JobError, LostPeer
from . import tags
from .codec import Codec, Frame
from .driver import Hooks, Signals, Timeouts
from .link import CONTROL, DRAINED, Bell, Patience
from .ranks import Ranks

S = TypeVar("S")
C = TypeVar("C")
OPEN = 64  # messages that may be on their way before it is asked which have left
LONGEST = 2**31 - 1  # bytes of a message: Open MPI 5 counts them by 32 bits, and names neither the message nor the limit


def duplicate(comm: MPI.Intracomm) -> MPI.Intracomm:
    """Returns a new communicator with the ranks of `comm`."""
    copy, request = comm.Idup()
    wait = Patience(2e-4)
    try:
        while not request.Test():
            wait.pause()
    except MPI.Exception:
        raise LostPeer("a rank died while the job was starting; start it again") from None
    copy.Set_name("fedkern")
    return copy


class MpiLink:
    """Sends and receives the messages of one MPI rank, by upper-case buffer calls, each with a tag of `tags`."""

    def __init__(self, comm: MPI.Intracomm, spin: float = 1e-3) -> None:
        self.comm = comm
        self.patience: Patience = Patience(spin)
        self.rank, self.size = comm.rank, comm.size
        self.run = 0
        self.gone: set[int] = set()
        self.leaves = False  # whether rank 0 has said that everybody is at the end
        self.near: frozenset[int] = frozenset()  # ranks that can be woken
        self.clock = [time.monotonic()] * self.size  # when each rank was last spoken to or heard
        self._sending: list[tuple[int, MPI.Request, Frame]] = []  # rank, request, content: kept until it has left
        self._status = MPI.Status()

    def wake(self, job: str, near: Iterable[int]) -> bool:
        """Lets this rank be woken, and wakes the ranks `near` that may be asleep.

        Returns False where the machine does not allow it.
        """
        with suppress(OSError):
            self.patience.bell, self.near = Bell(job, self.rank), frozenset(near)
        return self.patience.bell is not None

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Starts a message; it leaves while this rank goes on."""
        if rank in self.gone:
            return
        if len(data) > LONGEST:
            raise JobError(
                f"a message of {len(data):,} bytes to rank {rank}: MPI carries at most {LONGEST:,} in one; take fewer columns, "
                "draws or latents, or run the job in one process (fedkern run, without mpirun)"
            )
        number = tags.numbered(tag, self.run)
        try:
            # Whether it has left is asked when there is nothing else to do: to ask may give the core away.
            self._sending.append((rank, self.comm.Isend([data, MPI.BYTE], rank, number), data))
            if len(self._sending) > OPEN:
                self._progress()
        except MPI.Exception as error:
            self._notice(error)
        if tag == tags.PING:
            return
        before, self.clock[rank] = self.clock[rank], self.patience.reset()
        if rank in self.near and self.patience.bell and self.patience.since - before > self.patience.spin / 2:
            self.patience.bell.ring(rank)

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (rank, tag, content), or None if none has come.

        Frames longer than `longest` are refused unread.
        """
        status = self._status
        try:
            wanted = MPI.ANY_TAG if only is None else only
            if not self.comm.Iprobe(MPI.ANY_SOURCE, wanted, status):
                if self._sending:
                    self._progress()
                return None
            source, number, size = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
            tag = number % tags.RUN
            allowed = longest if tag == tags.FRAME else CONTROL
            if size > allowed:
                raise RemoteFault(f"rank {source}: a message of {size} bytes, at most {allowed} expected")
            data = room(size)  # all of it is received, or the frame refused
            request = self.comm.Irecv([data, MPI.BYTE], source, number)
            if not request.Test():
                wait = Patience(self.patience.spin)
                while not request.Test():
                    wait.pause()
        except MPI.Exception as error:
            self._notice(error)
            return None
        self.clock[source] = self.patience.reset()
        self.leaves = self.leaves or tag == tags.LEAVE
        if tag == tags.FRAME and number // tags.RUN != self.run:
            return self.receive(longest, only)  # late, for a protocol that has ended
        return source, tag, data

    def drain(self) -> None:
        """Takes and drops the messages that others sent before they ended.

        A long message leaves its sender only when it is taken.
        """
        while self.receive(DRAINED) is not None:
            pass

    def flush(self, seconds: float) -> bool:
        """Waits until every message has left; returns False if that takes longer than `seconds`."""
        wait = Patience(self.patience.spin)
        while self._progress():
            if wait.waited > seconds:
                return False
            wait.pause()
        return True

    def _progress(self) -> bool:
        """Forgets the messages that have left; returns whether some have not."""
        left = []
        for item in self._sending:
            try:
                if item[0] not in self.gone and not item[1].Test():
                    left.append(item)
            except MPI.Exception as error:
                self._notice(error)
        self._sending = left
        return bool(left)

    def _notice(self, error: MPI.Exception) -> None:
        """Records a peer's death, where the MPI library tells of it (`mpirun --with-ft ulfm`), and raises any other error."""
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
            raise error
        self.comm.Ack_failed()
        failed = self.comm.Get_failed()
        self.gone |= set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), self.comm.group))

    def leave_together(self, seconds: float) -> bool:
        """Waits, without using a core, until rank 0 says that everybody is at the end; rank 0 says so, and waits for nobody.

        Returns False where rank 0 has died, or says nothing within this time.

        `MPI.Finalize` waits for all ranks, too, and looks without a pause: for one that was stopped, until rank 0 ends them all.
        """
        if self.rank == 0:
            for rank in range(1, self.size):
                self.send(rank, tags.LEAVE)
            return True
        self.patience.reset()
        while not self.leaves and 0 not in self.gone and self.patience.waited < seconds:
            if self.receive(0, tags.LEAVE) is None:
                self.patience.pause()
        return self.leaves

    def abort(self, code: int) -> None:
        """Ends all ranks at once."""
        self.comm.Abort(code)


def ranks_of(comm: MPI.Intracomm, timeouts: Timeouts | None = None, signals: Signals | None = None) -> Ranks:
    """Returns this rank of a communicator, which is its own from now on; see `launch`."""
    if comm.size < 2:
        raise JobError("an MPI job needs a server and at least one client rank, and the communicator has one rank")
    return Ranks(MpiLink(comm), timeouts, signals)


def run_protocol(
    comm: MPI.Intracomm,
    protocol: Protocol[S, C],
    start: Start[S] | None,
    clients: Mapping[int, C],
    codec: Codec,
    hooks: Hooks | None = None,
) -> tuple[S | None, dict[int, C]]:
    """Runs one protocol on a duplicate of `comm`, for callers who end their job themselves.

    See `ranks.Ranks.run_protocol`; for a whole job, `launch`.
    """
    private = duplicate(comm)
    try:
        return ranks_of(private).run_protocol(protocol, start, clients, codec, hooks)
    finally:
        private.Free()
