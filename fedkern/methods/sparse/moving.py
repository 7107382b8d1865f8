"""Chooses the moves of a sparse job, and says which would pay where it makes none, and which numbers they send.

Source: docs/spec/sparse.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...algorithms.gibbs.settings import Move, MoveTerms
from ...kernels.families import FAMILIES
from ...transports.codec import Codec
from .keys import AlgorithmSection, ModelSection

MANY_SITES, MANY_COVARIATES = 8, 50  # from either on, chains without a move are slow
WHOLE = 128  # coordinates up to which one draw of all is sent
CUBES = 1e8  # their third power, over all regressions, up to which the server draws all at once from pooled statistics
OF_EACH: Mapping[Move, int] = {"translate": 1, "interweave": 2}  # unknowns that a move draws, for each coefficient
BLOCK = 96  # coordinates of an interweaving beyond
LARGEST = 4 * 2**20  # bytes of a move's terms in a message, as `auto` chooses it
SECOND_EVERY = 2


@dataclass(frozen=True)
class Size:
    """Holds the sizes of a job's model: clients, regressions, coefficients of each, chains."""

    clients: int
    regressions: int
    each: int
    chains: int

    @property
    def is_slow(self) -> bool:
        """Whether chains without a move need very many rounds."""
        return self.clients >= MANY_SITES or self.each >= MANY_COVARIATES

    def bytes(self, width: int) -> int:
        """Returns the bytes of the terms of `width` coordinates."""
        return 8 * self.chains * self.regressions * width * (width + 1)

    def fitting(self, width: int) -> int:
        """Returns the most coordinates, up to `width`, whose terms are no larger than `LARGEST`; at least one."""
        while width > 1 and self.bytes(width) > LARGEST:
            width -= 1
        return width


@dataclass(frozen=True)
class Moves:
    """Holds moves as `algorithms.gibbs.settings.Settings` has them."""

    moves: tuple[Move, ...] = ()
    block: tuple[int | None, ...] = ()
    second_every: int = SECOND_EVERY
    exchange: bool = False

    def words(self, size: Size) -> str:
        """Says the moves in the words of `check` and of a result."""
        parts = []
        for number, move in enumerate(self.moves):
            unknowns = size.each * OF_EACH[move]
            block = self.block[number] if number < len(self.block) else None
            in_blocks = f" ({block} of {unknowns})" if block is not None and block < unknowns else ""
            parts.append(move + in_blocks)
        if len(parts) == 2:
            parts[1] += f" in every {ordinal(self.second_every)} round"
        if self.exchange:
            parts.append("exchange of collinear pairs")
        return ", ".join(parts)

    def largest(self, size: Size) -> int:
        """Returns the bytes of the largest message with their terms."""
        blocks = self.block or (None,) * len(self.moves)
        unknowns = [size.each * OF_EACH[move] for move in self.moves]
        width = max(min(block or n, n) for n, block in zip(unknowns, blocks))
        return Codec({"c": size.chains, "g": size.regressions, "w": width}, size.clients).layout(MoveTerms).total


def ordinal(number: int) -> str:
    """Returns 2nd, 3rd, 4th .."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    if number % 100 in (11, 12, 13):
        ending = "th"
    return f"{number}{ending}"


def of(a: AlgorithmSection, size: Size) -> Moves:
    """Returns the moves of a job: as written, chosen with "auto", or chosen by themselves where they send nothing more."""
    pooled = a.statistics == "pooled"
    if a.moves == "auto" or (a.moves is None and pooled):
        return chosen(size, pooled=pooled)
    written = a.moves or ()
    moves = tuple(move for move in written if move != "exchange")
    block = tuple(a.block) if isinstance(a.block, list) else (a.block,) * len(moves)
    second_every = SECOND_EVERY if a.second_every is None else a.second_every
    return Moves(moves, block, second_every, "exchange" in written)


def chosen(size: Size, *, pooled: bool) -> Moves:
    """Chooses one draw of everything where that is small; else a translation, and interweaving blocks in turn."""
    unknowns = 2 * size.each
    if size.regressions * unknowns**3 <= CUBES if pooled else unknowns <= size.fitting(WHOLE):
        return Moves(("interweave",), (None,), exchange=pooled)
    blocks = size.each, min(BLOCK, unknowns)
    if not pooled:
        blocks = size.fitting(blocks[0]), size.fitting(blocks[1])
    return Moves(("translate", "interweave"), blocks, exchange=pooled)


def sentence(m: ModelSection) -> str:
    """Names the numbers of a client that moves show the server."""
    if FAMILIES[m.family].binary:
        return "X' Omega X and X'(y - 1/2 - Omega z) of every client, which tell its second moments nearly"
    if m.missing == "impute":
        return "X'y / sigma^2 and X'X / sigma^2 of every client's completed rows, from which its second moments follow"
    return "X'y / sigma^2 and X'X / sigma^2 of every client, from which its sufficient statistics follow"


def recommend(m: ModelSection, a: AlgorithmSection, size: Size) -> str | None:
    """Says which moves would make the chains of a large job mix, and what they would send; None where nothing is advised."""
    movable = m.kind != "sem" and m.errors != "student"
    able = movable and a.participation == 1 and a.aggregate == "locals"
    if a.moves is not None or a.statistics == "pooled" or not able or not size.is_slow:
        return None
    moves = chosen(size, pooled=False)
    text = (
        f"chains mix slowly with {size.clients} clients and {size.each} coefficients; "
        f'algorithm.moves = "auto" would take {moves.words(size)}, and send {sentence(m)} '
        f"({moves.largest(size):,} bytes a round)"
    )
    if m.missing == "refuse" and not FAMILIES[m.family].binary:
        text += '; algorithm.statistics = "pooled" sends those statistics once, and takes moves by itself'
    return text
