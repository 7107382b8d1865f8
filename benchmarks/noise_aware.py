"""How often intervals of private partitioned jobs hold the truth: q, and the posterior that contains the noise.

    python benchmarks/noise_aware.py [--federations 100] [--epsilon 0.5 1 4] [--updates 10 27 100 400] [--family ...]
                                  [--clips] [--columns] [--errors] [--intercept-sd 1]

Each federation has four clients of 2,000 rows with the same true coefficients, two of whose five columns have correlation .5; an
update has 25 steps at a sampling rate of .05, delta is 1e-5. Noise is keyed, and as large as the epsilon wants. A line for each
cell: the share of 90 % intervals that hold the truth, root-mean-square errors of the means, and the mean standard deviation over
that error. `--clips` prints instead what a clip does that cuts rows, `--columns` what columns do that are not normal, and rare
outcomes, `--errors` linear jobs whose errors are not as large as model.scale says. Source: docs/spec/pvi.md, section 16.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from fedkern.algorithms.core.messages import Charge, Charged
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi import noise_aware
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.noise_aware import TwoPoints
from fedkern.arrays import Vector
from fedkern.methods.pvi import linear
from fedkern.models.expfam import Gaussian
from fedkern.models.glm import Rows
from fedkern.privacy.accountant import Mechanism, calibrate
from fedkern.privacy.noise import KeyedSource

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chosen

TRUTH = np.array([-1.0, 0.8, -0.5, 0.3, 0.5])  # the first is the intercept's
CLIP = {"bernoulli": 2.5, "gaussian": 7.0}  # cuts fewer than 2 % of the rows at the end
STEPS, RATE, DELTA = 25, 0.05, 1e-5
INSIDE = float(ndtri(0.95))


Columns = Literal[
    "normal", "binary-50", "binary-30", "binary-10", "exponential", "mixed", "uniform-bounds", "normal-bounds", "two binary-10"
]
# Of ones in binary columns.
SHARES = {
    "binary-50": {1: 0.5},
    "binary-30": {1: 0.3},
    "binary-10": {1: 0.1},
    "mixed": {1: 0.1},
    "two binary-10": {1: 0.1, 3: 0.9},
}


@dataclass(frozen=True)
class Cell:
    """A kind of federation.

    Attributes
    ----------
    family, epsilon, updates, clip : of the job
    noise_multiplier : that spends the epsilon
    clients, rows : of a federation, and of each client
    columns : what the first column is, standardised exactly in the population; "mixed": a rare binary and an exponential one;
        "two binary-10": the third one too, with 90 % of ones
    declared : whether binary columns have shape = "binary"
    intercept_sd : of the intercept's prior; that of the others is 1
    errors : standard deviation of a linear job's, whose scale is 1
    events : the share of ones that the intercept is set for; 0 for the truth's own
    """

    family: str
    epsilon: float
    updates: int
    clip: float
    noise_multiplier: float = 0.0
    clients: int = 4
    rows: int = 2000
    columns: Columns = "normal"
    events: float = 0.0
    declared: bool = False
    intercept_sd: float = 1.0
    errors: float = 1.0

    def calibrated(self) -> Cell:
        """With the noise that spends the epsilon."""
        noise = calibrate(self._mechanism(secure=True), self.epsilon, DELTA, self.updates * STEPS)
        return replace(self, noise_multiplier=noise)

    def _mechanism(self, *, secure: bool) -> Mechanism:
        noise = self.noise_multiplier or None
        size = {"dimension": 2 * len(TRUTH), "clip": self.clip}
        return Mechanism(sampling="poisson", noise_multiplier=noise, sampling_rate=RATE, secure=secure, **size)

    @property
    def truth(self) -> Vector:
        """The coefficients; the intercept is that for which a normal predictor has so many events."""
        if not self.events:
            return TRUTH
        slopes = TRUTH[1:]
        variance = float(slopes @ slopes + slopes[0] * slopes[1])  # two columns have correlation .5
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)

        def excess(intercept: float) -> float:
            mean = weights @ expit(intercept + np.sqrt(variance) * nodes) / weights.sum()
            return float(mean - self.events)

        return np.append(brentq(excess, -20, 20), slopes)

    @property
    def prior(self) -> Gaussian:
        """Of the coefficients."""
        P = np.ones(len(TRUTH))
        P[0] = 1 / self.intercept_sd**2
        return Gaussian(np.zeros(len(P)), P)

    @property
    def mechanism(self) -> Mechanism:
        """With keyed noise."""
        return self._mechanism(secure=False)


def rows(cell: Cell, rng: np.random.Generator) -> Rows:
    """Those of one client."""
    X = rng.standard_normal((cell.rows, len(TRUTH)))
    X[:, 0] = 1
    X[:, 2] = 0.5 * X[:, 1] + np.sqrt(0.75) * X[:, 2]
    if cell.columns != "normal":
        _other_columns(cell.columns, X, rng)
    activation = X @ cell.truth
    if cell.family == "gaussian":
        return Rows(X, activation + cell.errors * rng.standard_normal(cell.rows))
    return Rows(X, (rng.random(cell.rows) < expit(activation)).astype(float))


def _other_columns(columns: Columns, X: Vector, rng: np.random.Generator) -> None:
    """Puts what is not normal into X; bounds map a column to [-1, 1], as `lower` and `upper` of a job file do."""
    if columns in SHARES:
        for at, share in SHARES[columns].items():
            X[:, at] = ((rng.random(len(X)) < share) - share) / np.sqrt(share * (1 - share))
    if columns in ("exponential", "mixed"):
        X[:, 1 if columns == "exponential" else 3] = rng.exponential(size=len(X)) - 1
    if columns == "uniform-bounds":
        X[:, 1] = rng.uniform(-1, 1, len(X))
    if columns == "normal-bounds":  # bounds three standard deviations away
        X[:, 1] = np.clip(X[:, 1] / 3, -1, 1)


@dataclass(frozen=True)
class Fitted:
    """Of one federation: q as it is released today, the estimate with the noise, and the share of rows that the clip cuts."""

    q: Gaussian
    estimate: noise_aware.Estimate
    cut: float


def fitted(cell: Cell, seed: int) -> Fitted:
    """One federation from its rows to both posteriors."""
    rng, d, mechanism = np.random.default_rng([seed, cell.updates]), len(TRUTH), cell.mechanism
    parts = [rows(cell, rng) for _ in range(cell.clients)]
    settings = chosen.pvi(
        family=cell.family, rounds=cell.updates, local_steps=STEPS, damping=0.1, damping_form="moment", average="half", seed=seed
    )
    early = int(np.ceil(noise_aware.EARLY * cell.updates * STEPS))
    binary = TwoPoints.of(np.ones(d), SHARES[cell.columns], intercept=True) if cell.declared else None
    design = noise_aware.Design(cell.family, np.ones(d), early, binary)
    clients = {
        k: pvi.client(str(k), Local(part, settings, k, mechanism, KeyedSource(seed, k), design=design), cell.prior)
        for k, part in enumerate(parts)
    }
    server, effects = pvi.start(settings, cell.prior, cell.clients)
    inbox = deque(effects)
    while inbox:
        k, message = inbox.popleft()
        clients[k], answers = pvi.client_receive(clients[k], message)
        if answers and isinstance(answers[0], Charge):
            clients[k], answers = pvi.client_receive(clients[k], Charged(STEPS))
        for answer in answers:
            server, more = pvi.server_receive(server, k, answer)
            inbox.extend(more)
    noise = noise_aware.Noise((mechanism.sigma * mechanism.clip / mechanism.rate) ** 2, (1 - mechanism.rate) / mechanism.rate)
    told = [(client.sums, noise) for client in clients.values() if client.sums is not None]
    q = pvi.released(server)
    return Fitted(
        q, noise_aware.solve_posterior(design, cell.prior, told), float(np.mean([_cut(cell, part, q.mean) for part in parts]))
    )


def _cut(cell: Cell, part: Rows, mean: Vector) -> float:
    activation = part.X @ mean
    residual = part.y - (expit(activation) if cell.family == "bernoulli" else activation)
    return float((np.abs(residual) * np.linalg.norm(part.X, axis=1) > cell.clip).mean())


@dataclass(frozen=True)
class Measured:
    """Of a cell: coverage of 90 % intervals, rms error of the means, mean sd over it, of q and of the noise-aware posterior.

    Attributes
    ----------
    cut : the share of rows that the clip cuts at q's mean
    each : coverage of each coefficient by the noise-aware posterior
    told : the share of federations in which the clip tells that errors are larger
    """

    coverage: tuple[float, float]
    error: tuple[float, float]
    ratio: tuple[float, float]
    cut: float
    each: list[float]
    told: float


def measured(cell: Cell, federations: int) -> Measured:
    """Over so many federations."""
    all_fitted = [fitted(cell, seed) for seed in range(federations)]
    coverage, error, ratio = [], [], []
    for posteriors in ([one.q for one in all_fitted], [one.estimate.q for one in all_fitted]):
        off = np.array([q.mean - cell.truth for q in posteriors])
        sd = np.array([q.sd for q in posteriors])
        rms = float(np.sqrt((off**2).mean()))
        inside = (np.abs(off) <= INSIDE * sd).mean(axis=0)
        coverage.append(float(inside.mean()))
        error.append(rms)
        ratio.append(float(sd.mean()) / rms)
    cut = float(np.mean([one.cut for one in all_fitted]))
    clips, spread = [cell.clip / math.sqrt(len(TRUTH))], np.ones(len(TRUTH))
    told = float(np.mean([linear.larger(one.estimate, clips, spread) is not None for one in all_fitted]))
    return Measured((coverage[0], coverage[1]), (error[0], error[1]), (ratio[0], ratio[1]), cut, inside.tolist(), told)


def line(cell: Cell, found: Measured) -> str:
    """A row of the table."""
    (q_covers, covers), (q_error, error), (q_ratio, ratio) = found.coverage, found.error, found.ratio
    job = f"| {cell.family} | {cell.epsilon:g} | {cell.updates} | {cell.clip:g} | {found.cut:.1%} "
    errors = f"{q_error:.4f} | {error:.4f} | {error / q_error:.2f}"
    return f"{job}| {q_covers:.2f} | {covers:.2f} | {errors} | {q_ratio:.2f} | {ratio:.2f} |"


COLUMNS = ("family", "epsilon", "updates", "clip", "rows cut", "coverage, q", "noise-aware")
COLUMNS += ("rms error, q", "noise-aware", "ratio", "sd / rms error, q", "noise-aware")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"


COLUMNS_TOO = (
    "family",
    "epsilon",
    "updates",
    "clip",
    "columns",
    "events",
    "rows cut",
    "coverage",
    "of each coefficient",
    "sd / rms error",
)
HEAD_OF_COLUMNS = f"| {' | '.join(COLUMNS_TOO)} |\n|{' --- |' * len(COLUMNS_TOO)}"


def unlike_normal() -> list[Cell]:
    """Cells whose columns are not normal, or whose outcomes are rare, at epsilon 1 and 27 updates; the first is the reference."""
    kinds = get_args(Columns)
    logistic = [Cell("bernoulli", 1.0, 27, CLIP["bernoulli"], columns=kind) for kind in kinds]
    wide = [Cell("bernoulli", 1.0, 27, 2 * CLIP["bernoulli"], columns=kind) for kind in ("binary-10", "exponential", "mixed")]
    rare = [Cell("bernoulli", 1.0, 27, CLIP["bernoulli"], events=share) for share in (0.5, 0.2, 0.1, 0.05, 0.025)]
    linear = [Cell("gaussian", 1.0, 27, CLIP["gaussian"], columns=kind) for kind in ("binary-10", "exponential", "mixed")]
    declared = [
        Cell("bernoulli", epsilon, updates, clip, columns=columns, declared=True)
        for columns, clip in (("binary-10", 4.0), ("two binary-10", 5.0), ("mixed", 5.0))
        for epsilon, updates in ((0.5, 27), (1.0, 27), (4.0, 27), (1.0, 10), (4.0, 100))
    ]
    return [*logistic, *rare, *wide, *linear, *declared]


def line_of_columns(cell: Cell, found: Measured) -> str:
    """A row of the table of columns that are not normal; coverage is that of the noise-aware posterior."""
    each = " ".join(f"{share:.2f}" for share in found.each)
    columns = f"{cell.columns}, declared" if cell.declared else cell.columns
    job = f"| {cell.family} | {cell.epsilon:g} | {cell.updates} | {cell.clip:g} | {columns} "
    job += f"| {f'{cell.events:.1%}' if cell.events else ''} | {found.cut:.1%} "
    return f"{job}| {found.coverage[1]:.2f} | {each} | {found.ratio[1]:.2f} |"


HEAD_OF_ERRORS = "| errors over scale | epsilon | clip | rows cut | coverage | sd / rms error | told |\n|" + " --- |" * 7


def line_of_errors(cell: Cell, found: Measured) -> str:
    """A row of the table of linear jobs whose errors are not as said; of the noise-aware posterior."""
    job = f"| {cell.errors:g} | {cell.epsilon:g} | {cell.clip:g} | {found.cut:.1%} "
    return f"{job}| {found.coverage[1]:.2f} | {found.ratio[1]:.2f} | {found.told:.2f} |"


def main() -> None:
    """Prints the table, a row when it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--federations", type=int, default=100)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    parser.add_argument("--updates", type=int, nargs="+", default=[10, 27, 100, 400])
    parser.add_argument("--family", nargs="+", default=["bernoulli", "gaussian"])
    parser.add_argument("--clips", action="store_true")
    parser.add_argument("--columns", action="store_true", help="binary, exponential and bounded columns, and rare outcomes")
    parser.add_argument("--errors", action="store_true", help="linear jobs whose errors are not as large as the scale")
    parser.add_argument("--intercept-sd", type=float, default=1.0, help="of the intercept's prior")
    given = parser.parse_args()
    if given.columns:
        print(HEAD_OF_COLUMNS, flush=True)
        for cell in map(Cell.calibrated, unlike_normal()):
            print(line_of_columns(cell, measured(cell, given.federations)), flush=True)
        return
    if given.errors:
        print(HEAD_OF_ERRORS, flush=True)
        sizes = [(errors, epsilon) for epsilon in (1.0, 4.0) for errors in (0.3, 1.0, 1.5, 2.0, 3.0, 5.0)]
        clip = linear.ENOUGH * math.sqrt(len(TRUTH))
        for cell in [Cell("gaussian", epsilon, 27, clip, errors=errors).calibrated() for errors, epsilon in sizes]:
            print(line_of_errors(cell, measured(cell, given.federations)), flush=True)
        return
    print(HEAD, flush=True)
    if given.clips:
        cells = [Cell("bernoulli", 1.0, 27, clip) for clip in (2.5, 2.0, 1.5, 1.0, 0.7)]
    else:
        cells = [Cell(f, e, n, CLIP[f]) for n in given.updates for f in given.family for e in given.epsilon]
    for cell in map(Cell.calibrated, (replace(cell, intercept_sd=given.intercept_sd) for cell in cells)):
        print(line(cell, measured(cell, given.federations)), flush=True)


if __name__ == "__main__":
    main()
