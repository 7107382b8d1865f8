"""Keeps the roll of the ranks before a job over MPI begins, for the process beside mpirun: who has come, and who has died.

Ranks say hello on a line of their own, which the kernel cuts when they die. A rank that has not come so far is known by its
process alone, through the variables that the launcher gave it. A rank without a process may still come: a busy machine takes its
time. This module reads no clock; callers pass the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

GRACE = 1.0  # seconds that mpirun gets to end by itself after a death, and others to say what they know
FIRST = 10.0  # that a rank may be later than the one before it, at least
EACH = 0.1  # and more for each rank and each process that waits for the same core
BEHIND = 30.0  # that a rank may be behind the others, at least,
SLOWER = 4  # or so many times what the others have taken: they tell best how busy the machine is
ALONE = 300.0  # that all may wait for each other while nothing is heard; then something hangs
LOST = 3


@dataclass(frozen=True)
class Fault:
    """Says why a job cannot begin: an exit code, and a text for the case that no rank prints one.

    With `words` the held output may give the reason.
    """

    code: int
    text: str
    words: bool = True


@dataclass
class RollCall:
    """Knows the ranks of one machine: `ranks` of them, as far as is known before they say so themselves."""

    ranks: int
    here: set[int] = field(default_factory=set)  # have said hello
    joined: set[int] = field(default_factory=set)  # MPI starts in them
    left: dict[int, int] = field(default_factory=dict)  # rank -> its exit code
    why: dict[int, str] = field(default_factory=dict)  # the reason, where the rank has not printed it
    dead: dict[int, float] = field(default_factory=dict)  # rank -> when that was noticed
    told: bool = False  # a rank has said how many there are
    whole: bool = False  # and that these are all: none is on another machine
    _pids: dict[int, set[int]] = field(default_factory=dict)  # processes of ranks, as seen in the latest look
    _first: float = 0.0
    _news: float | None = None  # when a rank was last seen or heard for the first time, or came further
    _gone: float | None = None  # when the first has left with a fault

    def hello(self, rank: int, near: int, size: int, now: float) -> None:
        """Records that a rank has come, with the number of ranks on its machine and of all (0: it was not told)."""
        self._expect(near, size)
        self.dead.pop(rank, None)
        if rank not in self.here:
            self.here.add(rank)
            self._heard(now)

    def joins(self, rank: int, now: float) -> None:
        """Records that a rank starts MPI, where it waits for all others."""
        self.joined.add(rank)
        self._heard(now)

    def cut(self, rank: int, now: float) -> None:
        """Records that the line of a rank has ended."""
        if rank not in self.left:
            self.dead.setdefault(rank, now)

    def leaves(self, rank: int, code: int, now: float, why: str = "") -> None:
        """Records that a rank ends by itself."""
        if rank in self.left:
            return
        self.left[rank] = code
        if why:
            self.why[rank] = why
        self.dead.pop(rank, None)
        if code and self._gone is None:
            self._gone = now

    def look(self, seen: Mapping[int, tuple[int, int, int]], now: float) -> None:
        """Records all living processes that a launcher has started as a rank: process -> (rank, number of ranks near it, and of
        all)."""
        pids: dict[int, set[int]] = {}
        for pid, (rank, near, size) in seen.items():
            pids.setdefault(rank, set()).add(pid)
            self._expect(near, size)
            if rank not in self._pids and rank not in self.here:
                self._heard(now)
        for rank in self._pids.keys() - pids.keys() - self.here - self.left.keys():
            self.dead.setdefault(rank, now)
        for rank in pids.keys() - self.here:
            self.dead.pop(rank, None)
        self._pids = pids

    def _expect(self, near: int, size: int) -> None:
        if near:
            self.ranks, self.told, self.whole = near, True, near == size

    def _heard(self, now: float) -> None:
        if self._news is None:
            self._first = now
        self._news = now

    @property
    def complete(self) -> bool:
        """Whether all ranks of this machine have come, or are known not to come."""
        return len(self.here | self.left.keys() | self.dead.keys()) >= self.ranks

    def refused(self) -> Fault | None:
        """Returns the exit code of the ranks that left with a fault, and a text if only some did; None if none did."""
        codes = {rank: code for rank, code in self.left.items() if code and not (code == LOST and self.dead)}  # of a death, then
        if not codes:
            return None
        code, who = next(iter(codes.values())), sorted(codes)
        if len(who) >= self.ranks:  # all have the same reason, and one has said it
            return Fault(code, "")
        why = next((f": {self.why[rank]}" for rank in who if rank in self.why), "")
        return Fault(code, f"{name_ranks(who)} ended before the job had begun{why}")

    def died(self) -> Fault | None:
        """Returns a fault that names the ranks that died, or None."""
        if not self.dead:
            return None
        first = min(self.dead.values())
        who = sorted(rank for rank, when in self.dead.items() if when == first)
        # survivors of a death in MPI complain of what follows
        words = len(self.dead) >= self.ranks or not self.joined.issuperset(who)
        return Fault(LOST, f"{name_ranks(who)} died while the job was starting; start it again", words)

    def fault(self, now: float, crowd: float) -> Fault | None:
        """Returns the fault that keeps the job from beginning, or None.

        `crowd`: the number of processes that want one core, at least 1.
        """
        grace = GRACE * min(1 + crowd / 10, 5)
        if self._gone is not None and now - self._gone > grace and (refused := self.refused()):
            return refused
        if self.dead and now - min(self.dead.values()) > grace:
            return self.died()
        if self._news is None:
            return None
        quiet = now - self._news
        known = self._pids.keys() | self.here | self.dead.keys() | self.left.keys()
        # Some have not even a process: they get longer the more ranks share a core.
        if self.told and len(known) < self.ranks and quiet > min(FIRST + EACH * self.ranks * crowd, ALONE):
            lacking = (
                name_ranks(sorted(set(range(self.ranks)) - known))
                if self.whole
                else f"{self.ranks - len(known)} of {self.ranks} ranks"
            )
            return Fault(LOST, f"{lacking} did not start within {quiet:.0f} s of the others; start it again")
        # All have come, but some have not reached MPI, where the others wait for them.
        behind = sorted(known - self.joined)
        if self.joined and behind and quiet > min(max(BEHIND, SLOWER * (self._news - self._first)), ALONE):
            return Fault(
                LOST, f"{name_ranks(behind)} did not come as far as MPI within {quiet:.0f} s of the others; start it again"
            )
        if quiet > ALONE:
            return Fault(LOST, f"the ranks did not find each other within {quiet:.0f} s; start it again")
        return None


def name_ranks(ranks: Collection[int]) -> str:
    """Ranks, in words."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
