"""Trains the networks that stand in for a prior: central, on draws of the prior alone (sigma.md, sections 2, 3 and 10).

A run is a sequence of chunks of `mlp.vae_step`. Its state is the parameters, the moments of Adam, the number of steps, gamma and
the curve; going on from a kept state gives the bits of the uninterrupted run. Draws are named by (seed, step): a run neither
repeats nor depends on how it is cut into chunks, except that learnt gamma changes at the end of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...arrays import Array
from ...errors import NumericalError
from ...kernels import homes, mlp
from ...kernels.homes import HOST, Home, on_host
from ...kernels.spatial import DrawTable
from ..core import kept
from ..core.messages import Saved

Tables = Callable[[int], DrawTable]  # number of the table -> what is drawn from, in the networks' condition

COLUMNS = ("step", "elbo", "squares", "kl_global", "kl_local", "gradient_norm")  # of the curve
LAST = 0.01  # the learning rate at the end of the decay, over that at its beginning
GAMMA_MEMORY = 0.9  # of learnt gamma^2, a chunk


@dataclass(frozen=True)
class Settings:
    """Holds the settings of a training."""

    # steps, batch: iterations, and draws in each
    steps: int
    batch: int
    learning_rate: float  # of Adam
    decay: float  # over this last share of the steps the rate falls linearly to a hundredth
    warmup: float  # over this first share of the steps the weight of the KLs rises linearly to 1
    clip: float  # bound on the norm of the gradient; 0: none
    gamma: float  # standard deviation of theta about the decoder, standardised; if it is learnt, at the start
    learn_gamma: bool  # gamma^2 becomes the mean squared residual (docs/spec/sigma.md, section 9)
    seed: int  # of all draws, and of the first parameters
    precision: Literal["float32", "float64"]  # of the networks; draws are always made in float64
    refresh: int  # steps after which another table of draws is made; 0: never
    chunk: int  # steps of one call
    threads: int  # of one call; the result does not depend on them

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "chunk", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"training: {name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "gamma"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"training: {name} must be > 0 and finite, got {getattr(self, name)}")
        if not (0 <= self.decay <= 1 and 0 <= self.warmup <= 1 and self.clip >= 0 and self.refresh >= 0):
            raise ValueError("training: decay and warmup are shares in [0, 1], clip and refresh at least 0")

    def rates(self, first: int, n: int) -> Array:
        """Returns learning rates (n,) of steps first, first + 1, .."""
        t = np.arange(first, first + n, dtype=np.float64)
        length = self.decay * self.steps
        if length == 0:
            return np.full(n, self.learning_rate)
        share = np.clip((t - (self.steps - length)) / length, 0.0, 1.0)
        return np.asarray(self.learning_rate * (1 - (1 - LAST) * share))

    def kl_weights(self, first: int, n: int) -> Array:
        """Returns weights (n,) of the KLs."""
        t = np.arange(first, first + n, dtype=np.float64)
        length = self.warmup * self.steps
        return np.ones(n) if length == 0 else np.asarray(np.minimum((t + 1) / length, 1.0))


@dataclass(frozen=True, eq=False)
class State:
    """Is the state of a training between two chunks."""

    # parameters, moments: (k,), (2, k) in the training's precision; between two chunks at the home of its kernel
    parameters: np.ndarray
    moments: np.ndarray
    step: int  # how many have been taken
    gamma: float  # standard deviation of theta about the decoder
    curve: Array  # (rows, 6) means over each chunk, columns as in `COLUMNS`; "step" is the number of steps at its end

    def save(self) -> Saved:
        """Returns the state for `load`; float64 holds every float32."""
        return kept.save(self.back().of("float64"))

    @classmethod
    def load(cls, saved: Saved, precision: str) -> State:
        """Returns the state that `save` wrote."""
        none = np.zeros(0)
        return kept.load(cls(none, none, 0, 0.0, none), saved).of(precision)

    def of(self, precision: str) -> State:
        """Returns the same state with numbers of this type."""
        return replace(self, parameters=self.parameters.astype(precision), moments=self.moments.astype(precision))

    def back(self) -> State:
        """Returns the same state on the host."""
        return replace(self, parameters=on_host(self.parameters), moments=on_host(self.moments))

    def at(self, home: Home) -> State:
        """Returns the same state at another home."""
        parameters, moments = home.all(self.parameters, self.moments)
        return replace(self, parameters=parameters, moments=moments)


def start(architecture: mlp.Architecture, settings: Settings) -> State:
    """Returns the state before the first step."""
    parameters = architecture.initial(settings.seed).astype(settings.precision)
    return State(parameters, np.zeros((2, len(parameters)), parameters.dtype), 0, settings.gamma, np.zeros((0, len(COLUMNS))))


def advance(architecture: mlp.Architecture, state: State, table: DrawTable, settings: Settings) -> State:
    """Runs one chunk: to the next multiple of `settings.chunk`, or to the end. Raises Diverged: the objective or its gradient
    left the finite numbers."""
    n = min(settings.chunk - state.step % settings.chunk, settings.steps - state.step)
    after, taken = _stepped(architecture, state, table, settings, n)
    # The step before led to parameters without a finite objective: it is undone.
    if taken < n:
        good = _stepped(architecture, state, table, settings, taken - 1)[0] if taken else None
        raise Diverged(state.step + taken + 1, good)
    if settings.learn_gamma:
        residual = float(after.curve[-1, COLUMNS.index("squares")]) / architecture.n_values
        return replace(after, gamma=math.sqrt(GAMMA_MEMORY * state.gamma**2 + (1 - GAMMA_MEMORY) * residual))
    return after


def _stepped(architecture: mlp.Architecture, state: State, table: DrawTable, settings: Settings, n: int) -> tuple[State, int]:
    """Returns the state after n steps, or after those before one that is not finite, and how many were taken."""
    if n == 0:
        return state, 0
    rates, kl_weights = homes.of(state.parameters).all(settings.rates(state.step, n), settings.kl_weights(state.step, n))
    parameters, moments, rows = mlp.vae_step(
        state.parameters,
        state.moments,
        table.values,
        table.phi,
        table.scale,
        table.indptr,
        table.indices,
        table.order,
        rates=rates,
        kl_weights=kl_weights,
        architecture=architecture,
        n_threads=settings.threads,
        kind=table.kind,
        rank=table.rank,
        group=table.group,
        batch=settings.batch,
        gamma=state.gamma,
        clip=settings.clip,
        seed=settings.seed,
        first=state.step,
    )
    trace = on_host(rows)
    # Steps after the first one that is not finite are worthless, and count as not taken.
    good = np.isfinite(trace).all(axis=1)
    taken = n if good.all() else int(np.argmin(good))
    curve = state.curve
    if taken:
        curve = np.vstack([curve, np.concatenate([[state.step + taken], trace[:taken].mean(axis=0)])])
    return State(parameters, moments, state.step + taken, state.gamma, curve), taken


class Diverged(NumericalError):
    """Tells that the objective or its gradient is not finite; `state` is the last one with a finite objective, if known."""

    def __init__(self, iteration: int, state: State | None) -> None:
        super().__init__(
            f"training: iteration {iteration} has an objective or a gradient that is not finite; the last good parameters are "
            "kept. Train with a lower training.learning_rate or training.clip, or end the range of phi further from 1"
        )
        self.iteration, self.state = iteration, state


def train(
    architecture: mlp.Architecture,
    tables: Tables,
    settings: Settings,
    *,
    state: State | None = None,
    report: Callable[[State], bool] | None = None,
    home: Home = HOST,
) -> State:
    """Trains to the end. Raises Diverged: the objective or its gradient left the finite numbers.

    Parameters
    ----------
    architecture : of the networks
    tables : number of a table -> the table; 0, and more with `settings.refresh`
    settings : see there
    state : to go on from; by default the start
    report : is given the state after each chunk; True stops the training there
    home : where the steps run; parameters, moments and tables are put there once

    Returns
    -------
    the last state, on the host
    """
    state = start(architecture, settings) if state is None else state
    if len(state.parameters) != architecture.n_parameters or state.parameters.dtype != settings.precision:
        raise ValueError("training: the state to go on from is of another architecture or precision")
    state = state.at(home)
    number, table = -1, None
    before: tuple[State, DrawTable] | None = None
    while state.step < settings.steps:
        wanted = state.step // settings.refresh if settings.refresh else 0
        if table is None or wanted != number:
            number, table = wanted, tables(wanted).at(home)
        try:
            after = advance(architecture, state, table, settings)
        except Diverged as error:
            if error.state is None and before is not None:  # the last step of the chunk before is undone
                error.state = _stepped(architecture, *before, settings, state.step - before[0].step - 1)[0]
            raise
        before, state = (state, table), after
        if report is not None and report(state):
            break
    return state.back()


def stored(table: DrawTable, n: int, seed: int) -> DrawTable:
    """Returns a table of n finished draws, as in the paper: its 10,000 are used again and again."""
    theta, phi = table.sample(seed, 0, n, chain=1)
    return replace(DrawTable.stored(theta, phi), group=1)


def objective(
    architecture: mlp.Architecture, state: State, table: DrawTable, *, draws: int = 2000, seed: int = 0, threads: int = 1
) -> dict[str, float]:
    """Returns means of the ELBO's terms over fresh draws that no step has seen (chain 2): comparable between trainings on one
    table. Returns "elbo", "squares", "kl_global", "kl_local"."""
    from ...kernels import rng

    theta, t = table.sample(seed, 0, draws, chain=2)
    noise = rng.normal(draws * architecture.n_latents, key=rng.key(seed, "latents", 2)).reshape(draws, -1)
    means = mlp.vae_gradient(
        state.parameters.astype(np.float64), theta, t, noise, architecture=architecture, gamma=state.gamma, n_threads=threads
    )[1]
    return dict(zip(COLUMNS[1:5], means.tolist()))
