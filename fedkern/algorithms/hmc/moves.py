"""Moves one party along a trajectory of Hamiltonian Monte Carlo, for all chains at once, and adapts the steps.

A party holds some coordinates q of the state, their gradient, and the standard deviations s by which they are measured: with
momenta p = v / s of variance 1 / s^2, v ~ N(0, I), a step of the leapfrog is

    v += (h/2) s grad,   q += h s v,   v += (h/2) s grad   (grad anew),

and the kinetic energy v'v / 2. All parties take it together, each with its own coordinates. Sources: sigma.md, section 7; Neal
(2011); Hoffman and Gelman (2014) for the step; the windows are those of Stan's reference manual.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...arrays import Matrix, Vector
from ...errors import NumericalError
from ...kernels import rng
from ...models.hierarchical import LocalModel
from ..core.box import Box
from ..core.kept import GIVEN
from ..core.messages import SERVER, evolve

STREAM = "momenta"
ACCEPT, JITTER, START = 1, 2, 3  # draws of the stream beside the momenta, which are draw 0
REACH, LONGEST = 2.0**20, 8.0  # of masked chains: no posterior comes near the first, no chain is stable with half of the second


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows."""

    draws: int  # kept of each chain, one a trajectory
    warmup: int  # trajectories before them, in which step and standard deviations adapt; 0: `step` and ones
    chains: int  # they run side by side, in the same messages; a chain's numbers do not depend on the number of chains
    leapfrog: int  # steps of a trajectory, each of them one exchange; 1 is MALA
    step: float  # h, at the start
    seed: int  # of the keyed random streams
    jitter: float = 0.2  # h of a trajectory is uniform on step (1 - jitter, 1 + jitter), against periodic orbits
    # whether the clients' messages are of the log-likelihood of rows, and not of areas with effects of their own
    whole: bool = False
    # of xi, where clients mask their answers: a trajectory that leaves it is rejected, their own coordinates stay within bounds
    # (`reach`), and no step is longer than `LONGEST`
    box: Box | None = None

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"hmc: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("draws", 1), ("warmup", 0), ("chains", 1), ("leapfrog", 1)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        if not 0 < self.step < np.inf:
            refuse("step", "positive and finite")
        if not 0 <= self.jitter < 1:
            refuse("jitter", "in [0, 1)")

    @property
    def rounds(self) -> int:
        """The number of trajectories of each chain."""
        return self.warmup + self.draws

    @property
    def wanted(self) -> float:
        """The acceptance rate that the step is adapted to."""
        return 0.57 if self.leapfrog == 1 else 0.8

    @property
    def reach(self) -> float:
        """The bound of a client's own coordinates, and of its velocity."""
        return np.inf if self.box is None else REACH

    def keeps(self, round: int) -> bool:
        """Tells whether the state after this trajectory is a draw."""
        return round >= self.warmup

    def windows(self) -> tuple[int, tuple[int, ...]]:
        """Returns the first trajectory whose draws count for the standard deviations, and those after which they change."""
        if self.warmup < 20:
            return self.warmup, ()
        first, width, last = (75, 25, 50) if self.warmup >= 150 else (0, 0, 0)
        if not width:
            first, last = int(0.15 * self.warmup), int(0.1 * self.warmup)
            return first, (self.warmup - last - 1,)
        end, begin, ends = self.warmup - last, first, []
        while begin < end:
            begin += width if begin + 3 * width <= end else end - begin  # what is left is no window of its own
            ends.append(begin - 1)
            width *= 2
        return first, tuple(ends)

    def sizes(self, n_global: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        return {"s": self.chains, "xi": n_global}

    def normals(self, party: int, round: int, size: int, draw: int = 0, seed: int | None = None) -> Matrix:
        """Returns the momenta (chains, size), before scaling, of a party's coordinates; `seed`: of a party that has its own."""
        seed = self.seed if seed is None else seed
        out = np.empty((self.chains, size))
        for chain, row in enumerate(out):
            rng.normal(size, key=rng.key(seed, STREAM, chain), client=party, step=round, draw=draw, out=row)
        return out

    def uniforms(self, round: int, draw: int) -> Vector:
        """Returns the server's uniform numbers (chains,) of a trajectory."""
        keys = (rng.key(self.seed, STREAM, chain) for chain in range(self.chains))
        return np.array([rng.uniform(1, key=key, client=SERVER, step=round, draw=draw)[0] for key in keys])

    def starts(self, party: int, size: int, mean: Vector | float = 0.0, sd: Vector | float = 1.0) -> Matrix:
        """Returns start values (chains, size) scattered about `mean`; `party` is a client's number or SERVER."""
        return np.asarray(mean + sd * self.normals(party, 0, size, draw=START), np.float64)


# Trajectories --------------------


LOST = -1e300  # the change of log-density of a trajectory that left the finite numbers; never accepted
DIVERGENT = -1000.0  # a change below this one is counted as a divergence
SHRINK, FLOOR = 5.0, 1e-3  # an adapted variance counts as much as its draws, and the floor as five draws


def placed(values: Vector | float, chains: int, size: int, what: str) -> Matrix:
    """Returns start values (chains, size); one row or one number may have been given for all chains."""
    values = np.asarray(values, np.float64)
    if values.shape not in ((), (size,), (chains, size)):
        raise ValueError(f"hmc: start values of {what} must have the shape ({size},) or ({chains}, {size}), got {values.shape}")
    return np.broadcast_to(values, (chains, size)).copy()


def evaluate(model: LocalModel, xi: Matrix, u: Matrix) -> tuple[Vector, Matrix, Matrix]:
    """Returns log p(y, u | xi) and its gradients, for each chain; NaN if the model can't compute it.

    A model may have `log_joint_grads`, which does so for all chains in one call.
    """
    with np.errstate(all="ignore"):
        together = getattr(model, "log_joint_grads", None)
        if together is not None:
            with suppress(NumericalError):  # of one chain: which, is seen one by one
                value, g_xi, g_u = together(xi, u)
                return np.asarray(value), np.asarray(g_xi), np.asarray(g_u)
        value, g_xi, g_u = np.full(len(xi), np.nan), np.zeros(xi.shape), np.zeros(u.shape)
        for c in range(len(xi)):
            try:
                value[c], g_xi[c], g_u[c] = model.log_joint_grad(xi[c], u[c])
            except NumericalError:
                value[c] = np.nan
    return value, g_xi, g_u


def finite(value: Vector, *gradients: Matrix) -> NDArray[np.bool_]:
    """Tells whether a chain's numbers (chains,) are all finite."""
    good = np.isfinite(value)
    for gradient in gradients:
        good &= np.isfinite(gradient).all(axis=1)
    return np.asarray(good)


@dataclass(frozen=True)
class Walk:
    """Holds one party's coordinates of all chains, d in number."""

    # at, value, slope: (c, d), (c,), (c, d) the state, this party's share of the log-density there, its gradient
    at: Matrix
    value: Vector
    slope: Matrix
    scale: Matrix  # (c, d) s
    # trial, trial_value, trial_slope: the same at the trajectory's present end
    trial: Matrix
    trial_value: Vector
    trial_slope: Matrix
    # velocity, start: (c, d), (c,) v, and value - v'v / 2 when the trajectory began
    velocity: Matrix
    start: Vector
    lost: NDArray[np.bool_]  # (c,) whether the trajectory left the finite numbers
    # mean, square, count: (c, d), (c, d), draws of this window: means, and sums of squares about them
    mean: Matrix
    square: Matrix
    count: int = 0
    # the bound of coordinates and velocity. A trajectory that comes up to it is not reversible, and has lost so much of its
    # log-density that it is rejected
    reach: float = field(default=np.inf, metadata=GIVEN)

    @classmethod
    def begin(cls, place: Matrix, value: Vector, slope: Matrix, reach: float = np.inf) -> Walk:
        """Returns a walk at rest, with unit standard deviations."""
        zeros, none, ones, lost = np.zeros(place.shape), np.zeros(len(place)), np.ones(place.shape), np.zeros(len(place), bool)
        return cls(place, value, slope, ones, place, value, slope, zeros, none, lost, zeros, zeros, reach=reach)

    def launched(self, normals: Matrix, step: Vector) -> Walk:
        """Takes the first half kick and drift of a new trajectory."""
        start = self.value - 0.5 * (normals**2).sum(axis=1)
        velocity = normals + 0.5 * step[:, None] * self.scale * self.slope
        return evolve(
            self, start=start, velocity=self._bounded(velocity), trial=self.at, lost=np.zeros(len(step), bool)
        )._drifted(step)

    def _drifted(self, step: Vector) -> Walk:
        """Moves the coordinates along the velocity."""
        with np.errstate(all="ignore"):
            trial = self._bounded(self.trial + step[:, None] * self.scale * self.velocity)
        return evolve(self, trial=trial).guarded(np.asarray(np.isfinite(trial).all(axis=1)))

    def guarded(self, good: NDArray[np.bool_]) -> Walk:
        """Puts chains that left the finite numbers, or went too far, back to their state, where they wait for the certain
        rejection."""
        lost = self.lost | ~good
        if not lost.any():
            return self
        trial, velocity = np.where(lost[:, None], self.at, self.trial), np.where(lost[:, None], 0.0, self.velocity)
        return evolve(self, lost=lost, trial=trial, velocity=velocity)

    def visited(self, value: Vector, slope: Matrix) -> Walk:
        """Takes value and gradient at `trial`."""
        good = finite(value, slope)
        slope = np.where(good[:, None], slope, 0.0)
        return evolve(self, trial_value=value, trial_slope=slope).guarded(good)

    def moved(self, step: Vector) -> Walk:
        """Takes a whole kick, and the next drift."""
        return self._kicked(step)._drifted(step)

    def _kicked(self, step: Vector) -> Walk:
        """Changes the velocity along the gradient."""
        with np.errstate(all="ignore"):
            return evolve(self, velocity=self._bounded(self.velocity + step[:, None] * self.scale * self.trial_slope))

    def _bounded(self, values: Matrix) -> Matrix:
        """Returns coordinates, or velocities, within reach."""
        return values if self.reach == np.inf else np.clip(values, -self.reach, self.reach)

    def landed(self, step: Vector) -> tuple[Walk, Vector]:
        """Takes the last half kick; returns this party's change of (log-density - kinetic energy) over the trajectory."""
        walk = self._kicked(0.5 * step)
        with np.errstate(all="ignore"):
            change = walk.trial_value - 0.5 * (walk.velocity**2).sum(axis=1) - walk.start
        return walk, np.where(walk.lost | ~np.isfinite(change), LOST, np.maximum(change, LOST))

    def settled(self, accepted: NDArray[np.bool_]) -> Walk:
        """Returns the state after the decision."""
        which = accepted[:, None]
        return evolve(
            self,
            at=np.where(which, self.trial, self.at),
            value=np.where(accepted, self.trial_value, self.value),
            slope=np.where(which, self.trial_slope, self.slope),
        )

    def learned(self, settings: Settings, round: int) -> Walk:
        """Adds this trajectory of the warm-up to the standard deviations, which change at the end of a window."""
        first, ends = settings.windows()
        if not ends or not first <= round <= ends[-1]:
            return self
        count, off = self.count + 1, self.at - self.mean
        mean = self.mean + off / count
        square = self.square + off * (self.at - mean)
        if round not in ends:
            return evolve(self, mean=mean, square=square, count=count)
        variance = (square / max(count - 1, 1) * count + FLOOR * SHRINK) / (count + SHRINK)
        return evolve(self, scale=np.sqrt(variance), mean=np.zeros_like(mean), square=np.zeros_like(mean), count=0)


@dataclass(frozen=True)
class Step:
    """Adapts h of each chain, by dual averaging of its logarithm."""

    # log_step, log_mean: (c,) in use, and averaged
    log_step: Vector
    log_mean: Vector
    # centre, error, count: (c,), (c,) the value that it is drawn to, mean error of the acceptance rate, updates
    centre: Vector
    error: Vector
    count: int = 0

    @classmethod
    def at(cls, log_step: Vector) -> Step:
        """Returns a step that begins anew from this one."""
        zeros = np.zeros(len(log_step))
        return cls(log_step, zeros, log_step + np.log(10.0), zeros)

    def learned(self, rate: Vector, target: float) -> Step:
        """Returns the step after a trajectory with this probability of acceptance."""
        t = self.count + 1
        error = self.error + (target - rate - self.error) / (t + 10)
        log_step = self.centre - np.sqrt(t) / 0.05 * error
        weight = t**-0.75
        return Step(log_step, weight * log_step + (1 - weight) * self.log_mean, self.centre, error, t)
