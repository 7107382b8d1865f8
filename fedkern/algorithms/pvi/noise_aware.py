"""Computes a posterior that contains the privacy noise, from the noisy sums that the optimisers have paid for already.

A step's noisy sum is the gradient of the client's log-likelihood at a point that is known exactly, plus noise whose variance is
known. Over the *early* steps, whose points are far from each other, a client keeps how gradients fall with points (the
curvature); over the *late* ones the mean point and the mean gradient (the score). Nothing else is kept, nothing new is drawn, and
all of it leaves once, after the last round: post-processing of the sums that epsilon covers. The server adds the sums of all
clients, and solves for the estimate and its covariance: of the data, of the noise, and of the sampling of rows. By then budgets
are spent: sums that cannot be are left out, with a note, and end no job. Source: docs/spec/pvi.md, section 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Vector
from ...errors import NumericalError
from ...models.expfam import Gaussian
from ..core import once, tells
from ..core.kept import PersistentMap, PersistentSet
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects

# Two points --------------------
# Computes means of logistic gradients over columns of which some are declared as binary, and the others count as normal.
#
# A binary column has two points, whose chances the job file tells; m are the mean squares of columns. Over all combinations c of
# these points (columns count as independent), with chances w_c, values x_c and, for a q with means mu and variances s^2,
#
#     eta_c = x_c'mu,  V_c = sum of m_d (s_d^2 + mu_d^2) over normal columns + sum of x_cd^2 s_d^2 over the others,
#     k_c = 1 / sqrt(1 + pi V_c / 8),  p_c = logistic(k_c eta_c),
#
# the mean of logistic(x'theta) x_d is sum w_c x_cd p_c; for a normal column m_d mu_d sum w_c k_c p_c (1 - p_c) (Stein). Less that
# at 0, and over m_d / 4, these are points in which gradients are lines. Source: docs/spec/pvi.md, section 16.


PROBIT = np.pi / 8  # E logistic(a) of a Gaussian a is about logistic(mean / sqrt(1 + PROBIT x variance))
MOST = 8  # binary columns, of which all combinations are formed
STEPS, REST = 100, 1e-12  # of Newton


@dataclass(frozen=True)
class TwoPoints:
    """Holds the columns of a design."""

    spread: Vector  # (d,) mean squares
    # weights, values: (c,) chances of the combinations, and (c, d) the values that columns which are no normal ones have in each
    weights: Vector
    values: Vector
    discrete: NDArray[np.bool_]  # (d,) which are none: the intercept, and binary columns

    @classmethod
    def of(cls, spread: Vector, shares: Mapping[int, float], intercept: bool) -> TwoPoints:
        """Returns the design of these binary columns.

        `shares`: coefficient of a standardised binary column -> the share of ones.
        """
        points = [
            ((share, math.sqrt((1 - share) / share)), (1 - share, -math.sqrt(share / (1 - share)))) for share in shares.values()
        ]
        weights, values = np.ones(2 ** len(points)), np.zeros((2 ** len(points), len(spread)))
        if intercept:
            values[:, 0] = 1.0
        for c, combination in enumerate(product(*points)):
            for column, (chance, value) in zip(shares, combination):
                weights[c] *= chance
                values[c, column] = value
        return cls(spread, weights, values, (values != 0).any(axis=0))

    def points(self, mu: Vector, variances: Vector) -> tuple[Vector, Vector]:
        """Returns points (n, d), and how much a row's curvature counts in the gradient in omega: variances x d point / d mu."""
        point, (k, p, eta) = self._point(mu, variances)
        X, w, m, continuous = self.values, self.weights, self.spread, ~self.discrete
        bend = p * (1 - p)
        factor = (w * k * bend) @ (X * X) * 4 / m
        by_k = bend + k * eta * bend * (1 - 2 * p)
        of_normal = (w * k * bend).sum(axis=1)[:, None] - PROBIT * m * mu * mu * (w * k**3 * by_k).sum(axis=1)[:, None]
        factor[:, continuous] = 4 * of_normal[:, continuous]
        return point, variances * factor

    def _point(self, mu: Vector, variances: Vector) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
        """Returns points; and k, p and eta of each combination."""
        X, w, m, continuous = self.values, self.weights, self.spread, ~self.discrete
        V = ((mu * mu + variances) * m)[:, continuous].sum(axis=1)[:, None] + variances @ (X * X).T
        eta = mu @ X.T
        k = 1 / np.sqrt(1 + PROBIT * V)
        p = expit(k * eta)
        point = ((p - 0.5) * w) @ X * 4 / m
        point[:, continuous] = 4 * mu[:, continuous] * (w * k * p * (1 - p)).sum(axis=1)[:, None]
        return point, (k, p, eta)

    @property
    def farthest(self) -> Vector:
        """(d,) How large a point can be."""
        of_discrete = 2 * (self.weights @ np.abs(self.values)) / self.spread
        return np.where(self.discrete, of_discrete, 1 / np.sqrt(PROBIT * self.spread))

    def at(self, point: Vector) -> tuple[Vector, Vector]:
        """Returns the coefficients of a point without spread, by Newton, and d point / d coefficients there.

        Raises ArithmeticError if no coefficients have these points.
        """
        theta, none = np.zeros(len(point)), np.zeros((1, len(point)))
        for _ in range(STEPS):
            here, parts = self._point(theta[None], none)
            slope = self._slope(theta, *(part[0] for part in parts))
            step = np.linalg.solve(slope, point - here[0])
            length = float(np.linalg.norm(step))
            if length < REST:
                return theta, slope
            theta = theta + step * min(1.0, 1.0 / length)
        raise ArithmeticError("no coefficients have these points")

    def _slope(self, mu: Vector, k: Vector, p: Vector, eta: Vector) -> Vector:
        """Returns d point / d mu (d, d), if q has no spread."""
        X, w, m, continuous = self.values, self.weights, self.spread, ~self.discrete
        bend = p * (1 - p)
        by_k = bend + k * eta * bend * (1 - 2 * p)
        dk = np.where(continuous, -PROBIT * m * mu, 0.0) * (k**3)[:, None]  # (c, d)
        dp = bend[:, None] * (k[:, None] * X + eta[:, None] * dk)
        slope: Vector = (X.T * w) @ dp * 4 / m[:, None]
        of_k = w @ (k[:, None] ** 2 * (bend * (1 - 2 * p))[:, None] * X + by_k[:, None] * dk)
        of_normal = np.diag(np.full(len(mu), float((w * k * bend).sum()))) + np.outer(mu, of_k)
        slope[continuous] = 4 * of_normal[continuous]
        return slope


# Noise aware --------------------


Column = Annotated[Vector, "d"]
Square = Annotated[Vector, "d d"]

EARLY = 1 / 3  # of all steps: from them the curvature, from the others the score
SHRINK = 2.0  # times what noise alone puts into the square of a correlation of curvatures, is taken off it
DOUBT = 3.0  # standard errors: no eigenvalue of a correlation of curvatures below so many of its entries' own
ROUNDING = 1e-9  # of sums of squares, by which they may be below what they must be
NEARLY = 1e-150  # a point whose square is lost
FARTHEST = 1e30  # of a point of a linear model; of a logistic one points are bounded by themselves
LARGEST_FACTOR = 2.5e17  # of the variance, exp(2 x 20): see `local.OMEGA_BOUND`
MOST_ROWS = 1e12  # of a client


class ImproperError(NumericalError):
    """Tells that sums make no posterior."""


@dataclass(frozen=True)
class Sums:
    """Holds the sums that a client keeps of its steps.

    "Point" is `Design.points`, "gradient" the likelihood's part of a noisy gradient in mu.
    """

    # early, late: counts of steps
    early: int
    late: int
    # early_point, early_gradient, late_point, late_gradient: (d,) their sums
    early_point: Vector
    early_gradient: Vector
    late_point: Vector
    late_gradient: Vector
    points: Vector  # (d, d) sum of point point' over the early steps
    cross: Vector  # (d, d) sum of gradient point' over the early steps
    # squares, products: (d,) sums of f^2 and of f x gradient in omega over all steps, where that gradient is -f x curvature
    squares: Vector
    products: Vector

    @classmethod
    def zero(cls, d: int) -> Sums:
        """Returns sums before the first step."""
        vector, square = np.zeros(d), np.zeros((d, d))
        return cls(0, 0, vector, vector, vector, vector, square, square, vector, vector)


@dataclass(frozen=True)
class Design:
    """Says, in public numbers, which measurement a step's noisy gradient is."""

    family: str  # of the response
    spread: Vector  # (d,) the mean square that each column is expected to have; of a logistic model only
    early_steps: int  # the first steps of a client, from which its curvature is taken
    binary: TwoPoints | None = None  # of a logistic model with columns that are declared as binary; None: all count as normal

    def points(self, mu: Vector, variances: Vector) -> tuple[Vector, Vector]:
        """Returns points (n, d) in which the gradient in mu is a line, and weights (n, d) of a row's curvature in that of
        omega."""
        if self.family == "gaussian":
            return mu, variances
        if self.binary is not None:
            return self.binary.points(mu, variances)
        squared = self.spread * mu * mu
        shrunk = 1 / np.sqrt(1 + PROBIT * (squared + self.spread * variances).sum(axis=1, keepdims=True))
        return mu * shrunk, variances * (shrunk - PROBIT * shrunk**3 * squared)

    def add(self, sums: Sums, seen: Sequence[Vector], first: int) -> Sums:
        """Returns the sums with the steps of one update. `seen`: of each step (mu, omega, noisy gradient of the likelihood in
        both), (4d,); `first`: the client's count of steps before them."""
        mu, omega, in_mu, in_omega = np.split(np.stack(seen), 4, axis=1)
        point, factor = self.points(mu, np.exp(2 * omega))
        cut = min(max(self.early_steps - first, 0), len(seen))
        x, g = point[:cut], in_mu[:cut]
        return Sums(
            sums.early + cut,
            sums.late + len(seen) - cut,
            sums.early_point + x.sum(axis=0),
            sums.early_gradient + g.sum(axis=0),
            sums.late_point + point[cut:].sum(axis=0),
            sums.late_gradient + in_mu[cut:].sum(axis=0),
            sums.points + x.T @ x,
            sums.cross + g.T @ x,
            sums.squares + (factor * factor).sum(axis=0),
            sums.products + (factor * in_omega).sum(axis=0),
        )

    @property
    def farthest(self) -> Vector:
        """(d,) How large a point can be."""
        if self.family == "gaussian":
            return np.full(len(self.spread), FARTHEST)
        if self.binary is not None:
            return self.binary.farthest
        return 1 / np.sqrt(PROBIT * self.spread)

    def at(self, point: Vector) -> tuple[Vector, Vector]:
        """Returns the coefficients of a point without spread, and d point / d coefficients there."""
        if self.family == "gaussian":
            return point, np.eye(len(point))
        if self.binary is not None:
            return self.binary.at(point)
        length = PROBIT * float(self.spread @ (point * point))  # below 1 for every mean of points
        theta = point * np.sqrt(1 / (1 - length))
        shrunk = np.sqrt(1 - length)
        return theta, shrunk * np.eye(len(point)) - PROBIT * shrunk**3 * np.outer(theta, self.spread * theta)


# What leaves -----------------------


@dataclass(frozen=True)
class AskSums(Message, kind=15):
    """Server to client, after the last round: which are the sums of your noisy gradients?"""

    round: int


@dataclass(frozen=True)
class NoisySums(Message, kind=16, tells=tells.Public(private="sums of noised sums that were charged before")):
    """Client to server: its `Sums`, functions of noisy sums and of points that follow from them."""

    round: int
    early: int
    late: int
    early_point: Column
    early_gradient: Column
    late_point: Column
    late_gradient: Column
    points: Square
    cross: Square
    squares: Column
    products: Column


@dataclass(frozen=True)
class Known:
    """Holds all that the server knows of a client's steps without its sums."""

    design: Design  # of its job
    # least, most: steps of the updates that came: the last may have been shortened, and a dropped one counts at the client
    least: int
    most: int
    gradient: float  # the largest size that a number of one noisy gradient can have

    @classmethod
    def of(cls, design: Design, updates: int, dropped: int, local_steps: int, gradient: float) -> Known:
        """Returns the knowledge after `updates` applied updates, and `dropped` ones that the client has made beside them."""
        least = (updates - 1) * local_steps + 1 if updates else 0
        return cls(design, least, (updates + dropped) * local_steps, gradient)

    def wrong(self, sums: Sums) -> str:
        """Returns the reason why these are not the client's sums, or "". Gradients have noise in them: only sizes are known."""
        steps = sums.early + sums.late
        if min(sums.early, sums.late) < 0 or not self.least <= steps <= self.most:
            return f"its NoisySums are of {sums.early} and {sums.late} steps, wanted {self.least} to {self.most} in all"
        if sums.early != min(steps, self.design.early_steps):
            return f"its NoisySums have {sums.early} early steps of {steps}, wanted {min(steps, self.design.early_steps)}"
        with np.errstate(over="ignore", invalid="ignore"):
            for name, largest in self._largest(sums).items():
                if not (np.abs(getattr(sums, name)) <= largest * (1 + ROUNDING)).all():
                    return f"its NoisySums have {name.replace('_', ' ')} too large to be any"
            if not (sums.squares >= 0).all():
                return "its NoisySums have a negative sum of squares"
            if not (sums.products**2 <= sums.squares * steps * self.gradient**2 * (1 + ROUNDING)).all():
                return "its NoisySums have products that are too large for their squares"
            return "" if self._can_be_points(sums) else "its NoisySums have points that can be nowhere"

    def _largest(self, sums: Sums) -> dict[str, Vector | float]:
        """Returns sizes, by name, that sums cannot exceed."""
        farthest, steps = self.design.farthest, sums.early + sums.late
        return {
            "early_point": sums.early * farthest,
            "late_point": sums.late * farthest,
            "points": sums.early * np.outer(farthest, farthest),
            "early_gradient": sums.early * self.gradient,
            "late_gradient": sums.late * self.gradient,
            "cross": sums.early * self.gradient * farthest[np.newaxis, :],
            "squares": steps * LARGEST_FACTOR**2,
        }

    def _can_be_points(self, sums: Sums) -> bool:
        """Tells whether Cauchy-Schwarz holds: n sum x x' - (sum x)(sum x)' has no negative eigenvalue, on the scale of each
        coefficient."""
        squares = np.diag(sums.points)
        if not (squares >= 0).all():
            return False
        length = np.sqrt(squares)
        if not (np.abs(sums.early_point) <= np.sqrt(sums.early) * length * (1 + ROUNDING) + sums.early * NEARLY).all():
            return False
        varies = length > NEARLY
        scale = np.where(varies, length, 1.0)
        moments = sums.points / scale / scale[:, np.newaxis]
        if not (np.abs(moments - moments.T) <= ROUNDING).all() or (np.abs(moments[~varies]) > ROUNDING).any():
            return False
        mean = np.where(varies, sums.early_point, 0.0) / scale / np.sqrt(max(sums.early, 1))
        spread = (moments + moments.T) / 2 - np.outer(mean, mean)
        return bool(np.linalg.eigvalsh(spread).min(initial=0.0) >= -ROUNDING * len(squares))


@dataclass(frozen=True)
class Server:
    """Holds the sums that have come, and clients that will send none.

    `dropped`: client -> the reason why its sums are left out.
    """

    known: tuple[Known, ...]
    replies: PersistentMap[int, Sums] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)

    @property
    def n_clients(self) -> int:
        return len(self.known)


@dataclass(frozen=True)
class Client:
    """Holds the sums of a client's answer."""

    sums: Sums


def start(known: Sequence[Known]) -> tuple[Server, ServerEffects]:
    """Asks everybody. `known`: of each client."""
    return Server(tuple(known)), once.ask(len(known), AskSums(0))


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's sums, or its loss; of impossible sums only the reason."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, NoisySums) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    sums = Sums(**{field.name: getattr(event, field.name) for field in fields(Sums)})
    if why := state.known[sender].wrong(sums):
        return replace(state, dropped=state.dropped.plus(sender, why)), []
    return once.with_reply(state, sender, sums), []


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers the question."""
    if not isinstance(event, AskSums):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    sums = {field.name: getattr(state.sums, field.name) for field in fields(Sums)}
    return state, [NoisySums(event.round, **sums)]


def finished(state: Server) -> bool:
    """Tells whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)


PROTOCOL = once.protocol("noisy-sums", (AskSums,), (NoisySums,), server_receive, client_receive, finished)


# What follows from it --------------------


@dataclass(frozen=True)
class Noise:
    """Describes the noise of one number of one step's gradient."""

    variance: float  # that of the privacy noise
    odds: float  # (1 - rate) / rate of the sampling of rows, which adds odds x curvature


@dataclass(frozen=True)
class Estimate:
    """Holds the posterior, and how well it is founded."""

    q: Gaussian  # Gaussian with a full precision matrix
    moved: Vector  # (d,) how far the estimate is from where the late steps were, in its standard deviations
    curvature_error: Vector  # (d,) relative standard error of the curvature of each coefficient
    # smallest eigenvalue of the correlations of the curvature, over that which noise explains: below 1 it was lifted
    clear: float
    correlations: Vector  # (d, d) these, less the part that noise explains
    # the curvature in mu over that in omega: 1 without a clip; a cut row keeps the second in part, and nothing of the first
    uncut: float = 1.0
    uncut_error: float = np.inf  # its standard error, of the noise and of the sampling of rows
    roamed: Vector | float = 0.0  # (d,) mean square distance of the early points, of which the curvature is, from the late ones


@dataclass(frozen=True)
class _Fall:
    """Says how one client's gradients fall with the point, about the mean of its late steps."""

    # gram, fall: (d, d) second moments of the early points; of minus the early gradients with them. fall / gram is the curvature
    gram: Vector
    fall: Vector
    noisy: Vector  # (d, d) the factor of noise of variance 1 in every gradient, in a row of `fall`
    # squares, products: (d,) the same of omega: products / squares is the diagonal of the curvature
    squares: Vector
    products: Vector
    late: int  # how many steps
    # point, gradient: (d,) means over them
    point: Vector
    gradient: Vector
    noise: Noise  # in one gradient

    @classmethod
    def of(cls, sums: Sums, noise: Noise) -> _Fall:
        """Returns the moments of a client's sums; it must have late steps."""
        point, gradient = sums.late_point / sums.late, sums.late_gradient / sums.late
        away = sums.early_point - sums.early * point
        gram = sums.points - np.outer(sums.early_point, point) - np.outer(point, away)
        fall = np.outer(sums.early_gradient, point) + np.outer(gradient, away) - sums.cross
        noisy = gram + np.outer(away, away) / sums.late
        return cls(gram, fall, noisy, sums.squares, -sums.products, sums.late, point, gradient, noise)


class _Proper(NamedTuple):
    """Holds a curvature that is positive definite, and `clear` and `correlations` of an `Estimate`."""

    curvature: Vector
    clear: float
    correlations: Vector


def posterior_of(
    design: Design, prior: Gaussian, of_clients: Mapping[int, tuple[Sums, Noise]]
) -> tuple[Estimate | None, dict[int, str]]:
    """Returns the posterior of all clients whose sums make one, and why the others are not in it; None if no sums do.

    If all sums together make none, those are left out that make none alone.
    """
    without: dict[int, str] = {}
    for _ in range(2):
        kept = [of_clients[k] for k in sorted(of_clients) if k not in without]
        if not kept:
            break
        try:
            return solve_posterior(design, prior, kept), without
        except ImproperError:
            without |= {
                k: "no posterior can be made of its NoisySums" for k in of_clients if not _alone(design, prior, of_clients[k])
            }
    return None, without


def _alone(design: Design, prior: Gaussian, of_client: tuple[Sums, Noise]) -> bool:
    """Tells whether one client's sums make a posterior."""
    try:
        solve_posterior(design, prior, [of_client])
    except ImproperError:
        return False
    return True


def solve_posterior(design: Design, prior: Gaussian, of_clients: Sequence[tuple[Sums, Noise]]) -> Estimate:
    """Returns the posterior from the prior and all clients' sums, by generalised least squares. `prior`: with independent
    coefficients; `told`: each client's sums, all with late steps, and the noise in them. Raises ImproperError: linear algebra
    ends beyond the finite numbers, or without a proper Gaussian."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            estimate = _solve(design, prior, of_clients)
            proper = bool(np.isfinite(estimate.q.mean).all() and np.isfinite(estimate.q.P).all() and (estimate.q.sd > 0).all())
            known = not (np.isnan(estimate.moved).any() or np.isnan(estimate.curvature_error).any())
    except (np.linalg.LinAlgError, ArithmeticError, ValueError) as error:  # ValueError: numbers that are not finite
        raise ImproperError(f"noisy sums: {error}") from None
    if not (proper and known):
        raise ImproperError("noisy sums: no proper Gaussian comes of them")
    return estimate


def _solve(design: Design, prior: Gaussian, of_clients: Sequence[tuple[Sums, Noise]]) -> Estimate:
    clients = [_Fall.of(sums, noise) for sums, noise in of_clients]
    shares = _shares(clients)
    proper, errors, uncut = _curvature(clients, shares)
    curvature = proper.curvature
    score = np.sum([client.gradient for client in clients], axis=0)
    theta, slope = design.at(np.sum([share * client.point for share, client in zip(shares, clients)], axis=0))
    information = curvature @ slope
    information = (information + information.T) / 2
    covariance = np.linalg.inv(information + np.diag(prior.P))
    step = covariance @ (score + prior.h - prior.P * theta)
    of_score = np.diag(errors @ (step * step))  # a curvature that is wrong, times the way that it was used for
    for share, client in zip(shares, clients):
        of_score += (client.noise.variance * np.eye(prior.d) + client.noise.odds * share * information) / client.late
    covariance = covariance + covariance @ of_score @ covariance
    q = Gaussian.from_moments(theta + step, (covariance + covariance.T) / 2)
    moved = np.abs(step) / np.sqrt(np.diag(covariance))
    roamed = np.mean([np.diag(client.gram) / max(sums.early, 1) for client, (sums, _) in zip(clients, of_clients)], axis=0)
    return Estimate(q, moved, np.sqrt(np.diag(errors)) / np.diag(curvature), *proper[1:], *uncut, roamed)


def _shares(clients: Sequence[_Fall]) -> Vector:
    """Returns the part of the curvature that each client has.

    It is its mean over coefficients, shrunk to that of all as far as noise explains the differences.
    """
    known = np.array([np.trace(client.gram) + client.squares.sum() for client in clients])
    levels = np.array([np.trace(client.fall) + client.products.sum() for client in clients]) / known
    mean = max(float(levels.mean()), 0.0)
    errors = (np.array([client.noise.variance for client in clients]) + [client.noise.odds * mean for client in clients]) / known
    differences = float(((levels - mean) ** 2).sum())
    real = max(0.0, 1 - float(errors.sum()) / differences) if differences else 0.0
    shares = np.maximum(mean + real * (levels - mean), 0.05 * mean)
    return shares / shares.sum() if mean > 0 else np.full(len(clients), 1 / len(clients))


def _curvature(clients: Sequence[_Fall], shares: Vector) -> tuple[_Proper, Vector, tuple[float, float]]:
    """Returns how much the gradients of all clients together fall with a point (d, d), as `_proper` has it, with errors.

    The errors are the variances of its entries, and `uncut` of an `Estimate` with its error. Clients' moments are added before
    they are divided: points answer to the noise before them, which biases a quotient, and many quotients many times.
    """
    d = len(clients[0].squares)
    gram = np.sum([share * client.gram for share, client in zip(shares, clients)], axis=0)
    inverse = np.linalg.inv(gram + 1e-9 * np.trace(gram) / d * np.eye(d))
    of_mu = np.sum([client.fall for client in clients], axis=0) @ inverse
    squares = np.sum([share * client.squares for share, client in zip(shares, clients)], axis=0)
    # Two estimates of the diagonal, from mu and from omega, are weighted by their precision.
    of_omega = np.sum([client.products for client in clients], axis=0) / squares
    variance_of_omega = np.sum([client.noise.variance * client.squares for client in clients], axis=0) / squares**2
    variance_of_mu = np.zeros((d, d))
    for share, client in zip(shares, clients):
        of_gradient = client.noise.variance + client.noise.odds * share * np.maximum(of_omega, 0)
        variance_of_mu += np.outer(of_gradient, np.diag(inverse @ client.noisy @ inverse))
    weight = 1 / variance_of_mu
    # The matrix is symmetric: both estimates of an entry are combined.
    errors = 1 / (weight + weight.T)
    entries = errors * (weight * of_mu + (weight * of_mu).T)
    on = np.diag_indices(d)
    errors[on] = 1 / (np.diag(weight) + 1 / variance_of_omega)
    diagonal = errors[on] * (np.diag(weight * of_mu) + of_omega / variance_of_omega)
    both = np.diag(variance_of_mu).sum() + variance_of_omega.sum(), of_omega.sum()
    uncut = (float(np.trace(of_mu) / both[1]), float(np.sqrt(both[0]) / both[1])) if both[1] > 0 else (1.0, np.inf)
    return _proper(entries, errors, np.sqrt(np.maximum(diagonal, np.sqrt(errors[on])))), errors, uncut


def _proper(entries: Vector, errors: Vector, scale: Vector) -> _Proper:
    """Returns a positive definite curvature, whose diagonal is scale^2.

    Entries that their noise explains are shrunk to zero, each by its own standard error; eigenvalues that it explains are lifted.
    """
    d = len(scale)
    off = ~np.eye(d, dtype=bool)
    correlation, doubt = entries / np.outer(scale, scale), errors / np.outer(scale, scale) ** 2
    kept = np.maximum(0, 1 - SHRINK * doubt / np.maximum(correlation**2, 1e-12))
    correlation = np.where(off, kept * correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    least = min(0.5, DOUBT * float(np.sqrt(doubt[off].mean()))) if d > 1 else 0.0
    lifted = (vectors * np.maximum(values, max(least, 0.01))) @ vectors.T
    back = scale / np.sqrt(np.diag(lifted))
    return _Proper(lifted * np.outer(back, back), float(values[0]) / max(least, 0.01), correlation)
