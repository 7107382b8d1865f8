"""Stores the releases since the older checkpoint of a server that adds the noise itself: a noisy sum for each round.

Noise may not be drawn twice for one sum: the mean of two releases has less of it than was paid for. So each is on the disk before
any part of it leaves. A resumed run, which asks the clients again from its checkpoint on, gets the stored sums until they end,
and pays for none of them again. Beside each sum stands whose changes entered it, which only the server may know.
"""

from __future__ import annotations

from collections.abc import Callable

from ..algorithms.core.messages import SERVER, Release, Released
from ..errors import JobError
from .files import RunFolder
from .stamp import Stamp


class Releases:
    """Stores the noisy sums of a protocol: a file for each round, each with a stamp of its own time."""

    def __init__(self, folder: RunFolder, protocol: str, stamp: Callable[[], Stamp]) -> None:
        self.folder, self.name, self._stamp = folder, f"{protocol}-release", stamp
        self._stored = set(folder.numbers(SERVER, self.name))
        self._older, self._newest = 0, 0  # rounds of the two checkpoints from which a run may go on

    def __contains__(self, round: int) -> bool:
        return round in self._stored

    def settle(self, asked: Release) -> Released:
        """Returns the one release of a round: the stored one, or the one that is asked for, which is stored first."""
        if asked.round in self._stored:
            try:
                return Released(asked.round, self.folder.kept(SERVER, self.name, asked.round))
            except ValueError as error:
                raise self.lost(asked.round, str(error)) from None
        if any(round > asked.round for round in self._stored):
            raise self.lost(asked.round, "later ones are there")
        self.folder.keep(SERVER, self.name, asked.round, asked.content, self._stamp(), first=self._older)
        self._stored.add(asked.round)
        return Released(asked.round, asked.content)

    def passed(self, round: int) -> None:
        """Notes a checkpoint after so many rounds: releases before the older checkpoint are no longer needed."""
        self._older, self._newest = self._newest, round

    def lost(self, round: int, why: str) -> JobError:
        """Returns the error of a round whose release has left and cannot be sent again."""
        return JobError(
            f"{self.folder.path}: the noisy sum of round {round} was released before, and what was stored of it is gone ({why}). "
            "Released again it would have other noise, which is not paid for; start the job anew in another folder (--out)"
        )
