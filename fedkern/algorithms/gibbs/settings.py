"""Holds the numbers of a sparse hierarchical model and of its sampler, known to every party. Source: sparse.md, sections 1-6."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ...privacy.masks import ONCE
from ..core import tells
from ..core.masked import Masked, Sum
from ..core.messages import Message

Move = Literal["translate", "interweave"]
NONE, ALWAYS = -2, -1  # in `Layout.indicators`: no coefficient here; one that is always included


@dataclass(frozen=True)
class Prior:
    """Holds hyperparameters. IG(a, b) has density proportional to x^(-a-1) exp(-b/x); slab = inf is the horseshoe without a slab.

    `spike_variance` > 0 fixes the spike instead of c0 eta. `eta_form`: one slab variance for all coefficients, or one each.
    """

    c0: float
    spike_variance: float
    eta_form: Literal["common", "coordinate"]
    shape_eta: float
    rate_eta: float
    rho_a: float
    rho_b: float
    shape_sigma: float
    rate_sigma: float
    scale_lambda: float
    scale_tau: float
    slab: float
    shared_rho: bool


@dataclass(frozen=True)
class Layout:
    """Says where the coefficients are: g regressions over p columns each.

    Attributes
    ----------
    indicators : (g, p) int64: number of each coefficient's inclusion indicator in its regression, `ALWAYS`, or `NONE`
    """

    indicators: NDArray[np.int64]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The pair (g, p)."""
        g, p = self.indicators.shape
        return g, p

    @cached_property
    def has_coefficient(self) -> NDArray[np.bool_]:
        """(g, p) Whether a place has a coefficient."""
        has: NDArray[np.bool_] = self.indicators != NONE
        return has

    @cached_property
    def size(self) -> int:
        """The number of coefficients."""
        return int(self.has_coefficient.sum())

    @cached_property
    def each(self) -> int:
        """The number of coefficients of a regression: the same for all, unless a job has none or one that is no regression."""
        return int(self.has_coefficient[0].sum())

    def places(self, coordinates: NDArray[np.int64], regression: int) -> NDArray[np.int64]:
        """Returns coordinates among one regression's coefficients (theta, then t) as those among all columns, in [0, 2p)."""
        columns = np.flatnonzero(self.has_coefficient[regression])
        return np.concatenate([columns, self.shape[1] + columns])[coordinates]

    @cached_property
    def whole(self) -> bool:
        """Whether every place has a coefficient: then both forms are the same numbers."""
        return bool(self.has_coefficient.all())

    @cached_property
    def off_diagonal(self) -> bool:
        """Whether a coefficient is everywhere but on the diagonal of a square: a graph."""
        g, p = self.shape
        return g == p > 1 and np.array_equal(self.has_coefficient, ~np.eye(p, dtype=bool))

    @cached_property
    def exchangeable(self) -> NDArray[np.bool_]:
        """(g, p) Whether a coefficient has an indicator of its own: not always included, and in no group."""
        ids = self.indicators
        able: NDArray[np.bool_] = (ids >= 0) & ((ids[:, :, None] == ids[:, None, :]).sum(axis=2) == 1)
        return able

    def flat(self, full: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients alone, row by row, (..., g, p) -> (..., size). This form travels and is kept."""
        if self.whole:
            return full.reshape((*full.shape[:-2], self.size))
        if self.off_diagonal:
            return np.ascontiguousarray(_after_diagonal(np.ascontiguousarray(full))).reshape(*full.shape[:-2], self.size)
        return np.ascontiguousarray(full[..., self.has_coefficient])

    def full(self, flat: NDArray[np.float64], inert: float) -> NDArray[np.float64]:
        """Returns (..., size) -> (..., g, p), with `inert` in places without a coefficient."""
        if self.whole:
            return flat.reshape(flat.shape[:-1] + self.shape)
        out = np.full((*flat.shape[:-1], *self.shape), inert)
        if self.off_diagonal:
            after = _after_diagonal(out)
            after[...] = flat.reshape(after.shape)
        else:
            out[..., self.has_coefficient] = flat
        return out

    def of_site(self, draws: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Returns the numbers that a client keeps of draws of theta and d_k (..., g, p): theta_k in the place of theta, others as
        they are.
        """
        theta, deviation = draws["theta"], draws["deviation"]
        return {**draws, "theta": self.flat(theta + deviation), "deviation": self.flat(deviation)}


def _after_diagonal(square: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a view (..., p, p) -> (..., p - 1, p): the p numbers that follow each number of the diagonal but the last, row by
    row.
    """
    *before, p, _ = square.shape
    return square.reshape(*before, p * p)[..., 1:].reshape(*before, p - 1, p + 1)[..., :-1]


@dataclass(frozen=True)
class Settings:
    """Holds the settings of the sampler.

    Attributes
    ----------
    layout, prior, seed, chains : the model, the seed of all streams, the number of chains
    rounds, burn_in, thin : rounds in all (at most, with a `judge`), those that are not kept, and every how many is kept
    local_sweeps, server_sweeps : of one round
    scales, draw, order : see `kernels.shrinkage`
    moves : none, one or two of "translate" and "interweave"
    block : how many coordinates each move draws at once; None, or beyond its end: all
    second_every : with two moves, the second takes one of `second_every` rounds, the first the others
    starts : of the indicators: all included in every chain, or in every second one none
    exchange : whether collinear pairs change places (`exchange`): only if all statistics are at the server
    participation : probability that a client takes part in a round
    aggregate : the clients' messages, "locals" or "sums"
    share_local : whether the server keeps the clients' coefficients
    on_loss : of a client, "stop" or "drop"
    tempering : chains of a ladder of temperatures; 1: none
    compares : whether the server adds up means and products of each client's draws, by which clients are compared
    masked : whether clients mask their sums: nothing that a draw comes to ends the job at its client alone
    n_threads : of the kernels at the server; no bit depends on it
    """

    layout: Layout
    prior: Prior
    seed: int
    chains: int
    rounds: int
    burn_in: int
    thin: int
    local_sweeps: int
    server_sweeps: int
    scales: Literal["exact", "expanded"]
    draw: Literal["auto", "gram", "data"]
    order: Literal["blocked", "printed"]
    moves: tuple[Move, ...]
    block: tuple[int | None, ...]
    second_every: int
    exchange: bool
    starts: Literal["included", "both"]
    participation: float
    aggregate: Literal["locals", "sums"]
    share_local: bool
    on_loss: Literal["stop", "drop"]
    tempering: int
    compares: bool = False
    masked: bool = False
    n_threads: int = 1

    @property
    def sums(self) -> int:
        """The number of sums that a client sends (section 11: with a slab, a fourth)."""
        return 3 if math.isinf(self.prior.slab) else 4

    def dims(self, p: int | None = None) -> dict[str, int]:
        """Returns the codec's symbols: chains, regressions, coefficients, sums, coordinates of moves, columns of a triangular
        factor.
        """
        g, columns = self.layout.shape
        width = columns if p is None else p
        sizes = {"c": self.chains, "g": g, "n": self.layout.size, "s": self.sums, "p": width}
        widths = [self.width(move) for move in range(len(self.moves))]
        return sizes | dict(zip(("w", "v"), [*widths, 0, 0]))

    def keeps(self, finished_rounds: int) -> bool:
        """Tells whether the draw of a round is kept: after the burn-in, every `thin`-th."""
        after = finished_rounds - self.burn_in
        return after > 0 and after % self.thin == 0

    def takes_part(self, round: int, n_clients: int) -> NDArray[np.bool_]:
        """Returns who takes part in a round (n_clients,): chosen without a look at any state.

        In the first round everybody does.
        """
        if round == 0 or self.participation >= 1:
            return np.ones(n_clients, dtype=bool)
        key = rng.key(self.seed, "participation")
        return rng.uniform(n_clients, key=key, step=round) < self.participation

    def move(self, round: int) -> int | None:
        """Returns which of the moves a round makes, by its place in `moves`; None if the job has no moves."""
        if len(self.moves) < 2:
            return 0 if self.moves else None
        return int((round + 1) % self.second_every == 0)

    def often(self, rounds: int) -> dict[int | None, int]:
        """Returns how many of the first rounds make each move."""
        if len(self.moves) < 2:
            return {self.move(0): rounds}
        second = rounds // self.second_every
        return {0: rounds - second, 1: second}

    def _ends(self, move: int) -> tuple[int, int]:
        """Returns how many coordinates a move has, and how many of them it draws at once."""
        of_each = 1 if self.moves[move] == "translate" else 2
        n_coordinates = self.layout.each * of_each
        block = self.block[move] if move < len(self.block) else None
        drawn = n_coordinates if block is None else min(block, n_coordinates)
        return n_coordinates, drawn

    def width(self, move: int) -> int:
        """Returns how many coordinates a move draws at once."""
        return self._ends(move)[1]

    def coordinates(self, round: int) -> NDArray[np.int64]:
        """Returns the coordinates (w,) of (theta, t), the regression's own coefficients in both, that a round's move draws.

        They are all coordinates, or a block from a stream that every party has.
        """
        move = self.move(round)
        if move is None:
            return np.arange(0)
        n_coordinates, width = self._ends(move)
        if width == n_coordinates:
            return np.arange(n_coordinates)
        order = np.argsort(rng.uniform(n_coordinates, key=rng.key(self.seed, "participation", 1), step=round), kind="stable")
        return np.sort(order[:width])


# Messages --------------------


Coefficients = Annotated[NDArray[np.float64], "c n"]


@dataclass(frozen=True)
class Globals(Message, kind=30):
    """Server to client: theta and tau^2 of all chains. `since`: the round in which this burn-in began."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class GlobalsMoved(Message, kind=31):
    """Server to client: the same after a move. The client's d becomes t w, and then follows theta from `moved` to `theta`."""

    round: int
    since: int
    moved: Coefficients
    t: Coefficients
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class Locals(Message, kind=32, tells=tells.Draw()):
    """Client to server: its deviations and lambda^2."""

    round: int
    deviation: Coefficients
    lambda_sq: Coefficients


@dataclass(frozen=True)
class MoveTerms(Message, kind=33, tells=tells.Products(tells.LIKELIHOOD)):
    """Client to server, with `Locals`, if the job has a move: its terms of the move's gradient and precision."""

    round: int
    gradient: Annotated[NDArray[np.float64], "c g w"]
    precision: Annotated[NDArray[np.float64], "c g w w"]


@dataclass(frozen=True)
class SecondMoveTerms(Message, kind=39, tells=tells.Products(tells.LIKELIHOOD)):
    """Client to server, in the place of `MoveTerms`, in the rounds of the job's second move."""

    round: int
    gradient: Annotated[NDArray[np.float64], "c g v"]
    precision: Annotated[NDArray[np.float64], "c g v v"]


@dataclass(frozen=True)
class GlobalsTempered(Message, kind=37):
    """Server to client: theta and tau^2, and the power of each chain's likelihood from now on."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients
    temperature: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Loglik(Message, kind=38, tells=tells.Points(computed="its centred rows, up to the sign of each", where="")):
    """Client to server, with `Locals`, if chains exchange temperatures: its log-likelihood, one number for each chain."""

    round: int
    loglik: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Sums(Message, kind=34, tells=tells.Draw()):
    """Client to server, instead of `Locals`: 1 / lambda^2, d / lambda^2, d^2 / lambda^2 (and d, with a slab), to be added."""

    round: int
    sums: Annotated[NDArray[np.float64], "s c n"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["c"] * dims["n"]

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return self.sums.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Sums:
        """Returns the sums of all clients together."""
        return cls(round, numbers.reshape(dims["s"], dims["c"], dims["n"]))


@dataclass(frozen=True)
class MaskedSums(Masked, Message, kind=267, tells=tells.Draw().masked):
    """Client to server: `Sums`, masked."""

    words: Annotated[bytes, "masked_sums"]


# 1 / lambda^2 is between 1e-60 and 1e60: the wide words hold it with all the digits of a float (spec, section 5).
SUMS = (Sum(Sums, MaskedSums, ONCE),)


@dataclass(frozen=True)
class AskStatistics(Message, kind=35):
    """Server to client: send them."""

    round: int


@dataclass(frozen=True)
class Statistics(Message, kind=36, tells=tells.Products()):
    """Client to server: R and q (with zeros below its rows), rss, its number of rows, its degrees of freedom."""

    round: int
    R: Annotated[NDArray[np.float64], "p p"]
    q: Annotated[NDArray[np.float64], "p"]
    rss: float
    rows: int
    n: float


MOVES = (MoveTerms, SecondMoveTerms)  # in the order of `Settings.moves`


def sent(settings: Settings) -> tuple[type[Message], ...]:
    """Returns all messages that a client may answer."""
    if settings.aggregate == "sums":
        return (Sums,)
    if settings.tempering > 1:
        return (Locals, Loglik)
    return (Locals, *MOVES[: len(settings.moves)])


def expected(settings: Settings, move: int | None) -> tuple[str, ...]:
    """Returns, by name, the messages of an answer in a round with this move (`Settings.move`)."""
    return _names(sent(settings), move)


@cache
def _names(kinds: tuple[type[Message], ...], move: int | None) -> tuple[str, ...]:
    others = [kind for number, kind in enumerate(MOVES) if number != move]
    return tuple(kind.__name__ for kind in kinds if kind not in others)
