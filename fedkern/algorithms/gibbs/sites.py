"""Turns a client's rows into a site of the sampler, and runs its local sweeps.

Rows stay in these objects; no message can carry them.

A site's state is a dictionary of arrays with the chain first: `deviation` and `lambda_sq` (c, g, p), and the unknowns that it
never sends (`sigma_sq`, `alpha`, `b`, ...). It is of the host, for most of it comes from messages and goes into them; arrays that
stay the same over a job lie where the site's kernels run (`home`). Source: docs/spec/sparse.md, sections 2, 3, 7-9, 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...kernels import homes, rng, sem, shrinkage
from ...kernels.bound import Bound
from ...kernels.homes import HOST, Home
from . import covariates as locations
from .covariates import Covariates
from .settings import Settings

State = dict[str, Array]
Events = NDArray[np.int64]  # counts of clipped scales, QR fall-backs, data-space draws


class Counter(TypedDict):
    """Says which random numbers a sweep uses."""

    seed: int
    client: int
    step: int


class Scales(TypedDict):
    """Holds the kernels' arguments for the local scales."""

    scales: str
    scale_lambda: float
    n_sweeps: int


class ErrorVariance(TypedDict):
    """Holds the prior IG(shape, rate) of an error variance."""

    shape: float
    rate: float


class Site(Protocol):
    """Is a client's model of its own rows."""

    @property
    def traced(self) -> tuple[str, ...]:
        """The names of the unknowns that the client keeps draws of, and never sends."""

    def start(self, settings: Settings) -> State:
        """Returns the first state; chains start from different places."""

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        """Runs `local_sweeps` sweeps given theta and tau^2 (c, g, p); returns the state and the events."""


@dataclass(frozen=True)
class Moving:
    """Describes a move in one regression: theta and tau^2 (c, p), its number, its coordinates of (theta, t) in [0, 2p), the
    slab.
    """

    theta: Array
    tau_sq: Array
    regression: int
    block: NDArray[np.int64]
    slab: float

    @property
    def columns(self) -> NDArray[np.int64]:
        """(w,) The column of each coordinate."""
        columns: NDArray[np.int64] = self.block % self.theta.shape[1]
        return columns

    def carried(self, curvature: Array, score: Array, deviation: Array) -> tuple[Array, Array]:
        """Returns Z'h and Z'HZ from H (c, w, w) and h (c, w) of theta_k in `columns`, and from d (c, p): sections 6 and 11."""
        of_tau, d = self.block >= self.theta.shape[1], deviation[:, self.columns]
        if not of_tau.any():
            return score, curvature
        factor = np.where(of_tau, d / np.sqrt(self.tau_sq[:, self.columns]), 1.0)
        gradient, precision = factor * score, factor[:, :, None] * factor[:, None, :]
        precision *= curvature
        of_slab = of_tau / self.slab**2
        diagonal = np.arange(len(self.block))
        precision[:, diagonal, diagonal] += of_slab * factor**2
        return gradient - of_slab * factor * d, precision


@runtime_checkable
class Movable(Protocol):
    """Is a site whose likelihood is quadratic in its coefficients, given all else: the server can move them along (section 6)."""

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns this client's part of a move's gradient (c, w) and precision (c, w, w)."""


@dataclass(frozen=True)
class Factor:
    """Holds the triangular factor of centred [X y], once per data set: R'R = X'X, q = Q'y, rss = |y|^2 - |q|^2.

    `n` counts the degrees of freedom of the error variance: rows less one if an intercept was integrated out.
    """

    R: Array
    q: Array
    rss: float
    n: float
    gram: Array = field(repr=False)
    _each: dict[int, tuple[Array, Array]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def each(self, chains: int) -> tuple[Array, Array]:
        """Returns q (c, r) and rss (c,), made once and not in every sweep if all chains have the same."""
        if self.q.ndim == 2:
            return self.q, np.full(chains, self.rss)
        if chains not in self._each:
            rss = homes.of(self.q).put(np.full(chains, self.rss))
            self._each[chains] = np.repeat(self.q[None], chains, axis=0), rss
        return self._each[chains]

    @classmethod
    def of(cls, X: Array, y: Array | None = None, *, intercept: bool = True) -> Factor:
        """Returns the factor of rows, centred at their means if the model has an intercept. Without y it is of X alone."""
        Z = X if y is None else np.column_stack([X, y])
        if intercept:
            Z = Z - Z.mean(axis=0)
        R = np.asarray(np.linalg.qr(Z, mode="r"), dtype=np.float64)
        p, n = X.shape[1], len(X) - int(intercept)
        r = min(len(X), p)
        left = np.array(R[:r, :p])
        q = np.array(R[:r, p]) if y is not None else np.zeros(r)
        rss = float(np.sum(R[r:, p] ** 2)) if y is not None else 0.0
        return cls(left, q, rss, float(n), left.T @ left)

    def at(self, home: Home) -> Factor:
        """Returns the same factor at another home."""
        return replace(self, **dict(zip(("R", "q", "gram"), home.all(self.R, self.q, self.gram))))

    def padded(self) -> tuple[Array, Array]:
        """Returns R (p, p) and q (p,), with zeros below the factor's rows: the arrays that travel with statistics = "pooled"."""
        r, p = self.R.shape
        R, q = np.zeros((p, p)), np.zeros(p)
        R[:r], q[:r] = self.R, self.q
        return R, q


def _ridge(gram: Array, xty: Array) -> Array:
    """Returns the coefficients under a prior of unit scale and unit error variance: the start of chains."""
    return np.asarray(np.linalg.solve(gram + np.eye(len(gram)), xty), dtype=np.float64)


def _off_zero(start: Array) -> Array:
    """Returns deviations that are not exactly 0: a sweep draws lambda first, which would be as small as it can be, and hardly
    come back.
    """
    return np.where(start == 0.0, 0.01, start)


def _apart(start: Array, chains: int) -> Array:
    """Returns starts (c, ...): the whole of `start` and a tenth of it in turn, so that R-hat sees whether they come together."""
    start = _off_zero(start)
    factors = np.where(np.arange(chains) % 2, 0.1, 1.0)
    return np.asarray(factors.reshape(-1, *[1] * start.ndim) * start)


def _horseshoe(settings: Settings) -> Scales:
    prior = settings.prior
    return {"scales": settings.scales, "scale_lambda": prior.scale_lambda, "n_sweeps": settings.local_sweeps}


def _error(settings: Settings) -> ErrorVariance:
    return {"shape": settings.prior.shape_sigma, "rate": settings.prior.rate_sigma}


@dataclass(frozen=True)
class Regression:
    """Models y = alpha + X theta_k + e, alpha integrated out (section 7)."""

    factor: Factor
    n_threads: int = 1
    home: Home = HOST
    traced: tuple[str, ...] = ("sigma_sq",)
    _bound: Bound[shrinkage.Sweeps] = field(default_factory=Bound, init=False, repr=False, compare=False)

    @cached_property
    def _there(self) -> Factor:
        return self.factor.at(self.home)

    def start(self, settings: Settings) -> State:
        c, f = settings.chains, self.factor
        d = _apart(_ridge(f.gram, f.R.T @ f.q), c)[:, None, :]
        return {"deviation": d, "lambda_sq": np.ones_like(d), "sigma_sq": np.ones((c, 1))}

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        f, d, lambda_sq, sigma_sq = self._there, state["deviation"][:, 0], state["lambda_sq"][:, 0], state["sigma_sq"][:, 0]
        now = self.home.all(theta[:, 0], tau_sq[:, 0], d, lambda_sq, sigma_sq)
        seed, client, step = counter["seed"], counter["client"], counter["step"]
        sweeps = self._bound.of(settings, lambda: shrinkage.bind_local_sweeps(
            f.R, *f.each(len(theta)), f.n, *now, gram=f.gram, draw=settings.draw, slab=settings.prior.slab, seed=seed,
            client=client, n_threads=self.n_threads, **_horseshoe(settings), **_error(settings),
        ), seed, client, theta.shape)  # fmt: skip
        d, lambda_sq, sigma_sq, events = self.home.back(sweeps(*now, step))
        return {"deviation": d[:, None], "lambda_sq": lambda_sq[:, None], "sigma_sq": sigma_sq[:, None]}, events

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms from the triangular factor, which keeps the digits of h."""
        f, d, sigma_sq = self.factor, state["deviation"][:, 0], state["sigma_sq"][:, 0]
        return shrinkage.move_terms(f.R, f.q, move.block, move.theta, d, move.tau_sq, sigma_sq, slab=move.slab)


@dataclass(frozen=True)
class Student:
    """Models a regression with Student's t for errors: e = sigma z / sqrt(w), z normal, w ~ Gamma(nu/2, nu/2) (section 11).

    Given the rows' weights w it is the normal regression of weighted rows. Each sweep draws them anew from the residuals: nobody
    keeps them.

    Attributes
    ----------
    X, y : (n, p), (n,) rows, about the site's means where there is an intercept
    degrees : nu
    """

    X: Array
    y: Array
    degrees: float
    intercept: bool = True
    n_threads: int = 1
    traced: tuple[str, ...] = ("sigma_sq", "alpha")

    def start(self, settings: Settings) -> State:
        c = settings.chains
        d = _apart(_ridge(self.X.T @ self.X, self.X.T @ self.y), c)[:, None, :]
        return {"deviation": d, "lambda_sq": np.ones_like(d), "sigma_sq": np.ones((c, 1)), "alpha": np.zeros((c, 1))}

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        new, events = {name: value.copy() for name, value in state.items()}, np.zeros((len(theta), 4), np.int64)
        once: Scales = {**_horseshoe(settings), "n_sweeps": 1}
        each_y = np.broadcast_to(self.y, (len(theta), len(self.X)))
        for step in range(counter["step"], counter["step"] + settings.local_sweeps):
            of_step: Counter = {**counter, "step": step}
            for c, (weights, y) in enumerate(zip(self.weights(new, theta, **of_step), each_y)):
                share = weights / weights.sum() if self.intercept else np.zeros_like(weights)
                middle, centre, root = share @ self.X, float(share @ y), np.sqrt(weights)
                f = Factor.of(root[:, None] * (self.X - middle), root * (y - centre), intercept=False)
                d, lambda_sq, sigma_sq, happened = shrinkage.local_sweeps(
                    f.R, f.q, f.rss, f.n - self.intercept, theta[c], tau_sq[c], new["deviation"][c], new["lambda_sq"][c],
                    new["sigma_sq"][c], draw=settings.draw, slab=settings.prior.slab, gram=f.gram, chain=c,
                    n_threads=self.n_threads, **once, **_error(settings), **of_step,
                )  # fmt: skip
                new["deviation"][c], new["lambda_sq"][c], new["sigma_sq"][c] = d, lambda_sq, sigma_sq
                events[c] += happened[0]
                if self.intercept:  # integrated out above, but the next weights are drawn given it
                    key = rng.key(of_step["seed"], "augmentation", (1 << 32) + c)
                    z = float(rng.normal(1, key=key, client=of_step["client"], step=step)[0])
                    sd = np.sqrt(float(sigma_sq[0]) / weights.sum())
                    new["alpha"][c] = centre - middle @ (theta[c, 0] + d[0]) + sd * z
        return new, events

    def weights(self, state: Mapping[str, Array], theta: Array, **counter: Unpack[Counter]) -> Array:
        """Draws weights (c, n) of rows given their residuals r: Gamma((nu + 1)/2, rate (nu + r^2/sigma^2)/2)."""
        slopes, nu = (theta + state["deviation"])[:, 0], self.degrees
        square = (self.y - state["alpha"] - slopes @ self.X.T) ** 2 / state["sigma_sq"]
        keys = [rng.key(counter["seed"], "augmentation", c) for c in range(len(theta))]
        client, step = counter["client"], counter["step"]
        drawn = [rng.gamma((nu + 1) / 2, size=len(self.X), key=key, client=client, step=step) for key in keys]
        return np.stack(drawn) / ((nu + square) / 2)


@dataclass(frozen=True)
class MarkovRandomField:
    """Models p regressions, each column on all others, from one triangular factor of centred Y (section 8)."""

    factor: Factor
    n_threads: int = 1
    home: Home = HOST
    traced: tuple[str, ...] = ("sigma_sq",)
    _bound: Bound[shrinkage.Sweeps] = field(default_factory=Bound, init=False, repr=False, compare=False)

    @cached_property
    def _there(self) -> Factor:
        return self.factor.at(self.home)

    def start(self, settings: Settings) -> State:
        g, p = settings.layout.shape
        precision = np.asarray(np.linalg.inv(self.factor.gram + np.eye(p)), dtype=np.float64)
        d: Array = -precision / np.diag(precision)[:, None]  # each column's ridge regression on the others
        d = _apart(d, settings.chains) * ~np.eye(p, dtype=bool)
        return {"deviation": d, "lambda_sq": np.ones_like(d), "sigma_sq": np.ones((settings.chains, g))}

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        f, now = self._there, self.home.all(theta, tau_sq, state["deviation"], state["lambda_sq"], state["sigma_sq"])
        seed, client, step = counter["seed"], counter["client"], counter["step"]
        sweeps = self._bound.of(settings, lambda: shrinkage.bind_local_sweeps_batched(
            f.R, f.n, *now, gram=f.gram, draw=settings.draw, slab=settings.prior.slab, seed=seed, client=client,
            n_threads=self.n_threads, **_horseshoe(settings), **_error(settings),
        ), seed, client, theta.shape)  # fmt: skip
        d, lambda_sq, sigma_sq, events = self.home.back(sweeps(*now, step))
        return {"deviation": d, "lambda_sq": lambda_sq, "sigma_sq": sigma_sq}, events

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms of one regression."""
        gram, precision = self.factor.gram[np.ix_(move.columns, move.columns)], self.precision(move, state)
        return move.carried(precision[:, None, None] * gram, self.score(move, state), state["deviation"][:, move.regression])

    def precision(self, move: Moving, state: Mapping[str, Array]) -> Array:
        """Returns 1 / sigma^2 (c,) of a regression."""
        precision: Array = 1 / state["sigma_sq"][:, move.regression]
        return precision

    def score(self, move: Moving, state: Mapping[str, Array]) -> Array:
        """Returns h = R'(R e_j - R theta_k) / sigma^2 (c, w) of a regression, from the factor, which keeps its digits."""
        f, j = self.factor, move.regression
        rest = f.R[:, j] - (move.theta + state["deviation"][:, j]) @ f.R.T
        score: Array = rest @ f.R[:, move.columns] * self.precision(move, state)[:, None]
        return score


def translation(
    sites: Sequence[MarkovRandomField], each: Sequence[Moving], states: Sequence[Mapping[str, Array]]
) -> tuple[Array, Array]:
    """Returns several sites' part of a translation in one regression: the sums of their `move_terms`, bit for bit.

    Gram matrices are added as they lie in memory, one chain after the other, and columns taken out of the sum: to copy every
    site's is most of a round's time.
    """
    first = each[0]
    gradient = sum((site.score(move, state) for site, move, state in zip(sites, each, states)), np.zeros(()))
    precisions = np.stack([site.precision(move, state) for site, move, state in zip(sites, each, states)], axis=1)
    c, w = gradient.shape
    out, inside = np.empty((c, w, w)), np.ix_(first.columns, first.columns)
    total, part = (np.empty_like(sites[0].factor.gram) for _ in range(2))
    for chain in range(c):
        np.multiply(sites[0].factor.gram, precisions[chain, 0], out=total)
        for site, precision in zip(sites[1:], precisions[chain, 1:]):
            total += np.multiply(site.factor.gram, precision, out=part)
        out[chain] = total[inside]
    return gradient, out


@dataclass(frozen=True)
class StructuralEquations:
    """Models y = Theta_k y + e with Laplace errors (section 9). `Y` (p, n): one contiguous row for each column.

    `locate`: whether the columns' locations are drawn, and not known: `Y` is about any centre then, and they are relative to it.
    """

    Y: Array
    update: str = "auto"
    swap: bool = True
    stable: bool = False
    locate: bool = False
    n_threads: int = 1
    home: Home = HOST

    @cached_property
    def _there(self) -> Array:
        rows: Array = self.home.put(self.Y)
        return rows

    @property
    def traced(self) -> tuple[str, ...]:
        return ("b", "loglik", "location") if self.locate else ("b", "loglik")

    def start(self, settings: Settings) -> State:
        c, p = settings.chains, len(self.Y)
        gram = self.Y @ self.Y.T
        precision = np.asarray(np.linalg.inv(gram + np.eye(p)), dtype=np.float64)
        ridge: Array = -precision / np.diag(precision)[:, None]
        np.fill_diagonal(ridge, 0.0)
        if self.stable:
            ridge *= 0.5 / max(0.5, float(np.abs(ridge).sum(axis=1).max()))
        d = np.full((c, p, p), 0.1 / p)  # section 10: chains start at (nearly) 0 and at the sites' own regressions in turn
        d[1::2] = _off_zero(ridge)
        d *= ~np.eye(p, dtype=bool)
        shape = (c, 1, p * p)
        b = np.repeat(np.mean(np.abs(self.Y), axis=1)[None], c, axis=0)
        located = {"location": np.zeros((c, p))} if self.locate else {}
        return located | {
            "deviation": d.reshape(shape), "lambda_sq": np.ones(shape), "b": b, "loglik": np.zeros(c),
            "log_step": np.zeros((c, p, p)), "temperature": np.ones(c),
        }  # fmt: skip

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        c, p = len(theta), len(self.Y)
        adapt = counter["step"] < settings.burn_in * settings.local_sweeps
        square = (theta, tau_sq, state["deviation"], state["lambda_sq"])
        common, scale, deviation, local_scale = (a.reshape(c, p, p) for a in square)
        located: State = {}
        rows = self._there
        if self.locate:  # before the sweeps, so that their log-likelihood is that of the state
            located = {"location": self._located(settings, state, common + deviation, **counter)}
            rows = rows - self.home.put(located["location"])[:, :, None]
        adapted = (state["b"], state["log_step"], state["temperature"])
        d, lambda_sq, b, log_step, loglik, events = self.home.back(sem.sweeps(
            rows, *self.home.all(common, scale, deviation, local_scale, *adapted), update=self.update, swap=self.swap,
            stable=self.stable, adapt=adapt, n_threads=self.n_threads, **_horseshoe(settings), **_error(settings), **counter,
        ))  # fmt: skip
        shape, counts = (c, 1, p * p), np.zeros((c, 3), np.int64)
        counts[:, 0] = events[:, 0]  # scales clipped; moves proposed and accepted are no failures, and nobody's business
        return state | located | {
            "deviation": d.reshape(shape), "lambda_sq": lambda_sq.reshape(shape), "b": b, "log_step": log_step,
            "loglik": loglik,
        }, counts  # fmt: skip

    def _located(self, settings: Settings, state: State, coefficients: Array, **counter: Unpack[Counter]) -> Array:
        """Draws new locations (c, p), given everything else."""
        p, off = len(self.Y), ~np.eye(len(self.Y), dtype=bool)
        client, step = counter["client"], counter["step"]
        keys = [rng.key(counter["seed"], "posterior", chain) for chain in range(settings.chains)]
        uniforms = np.stack([rng.uniform(2 * p, key=key, client=client, step=step).reshape(p, 2) for key in keys])
        return locations.drawn(self.Y, coefficients * off, state["temperature"][:, None] / state["b"], uniforms)


@dataclass(frozen=True)
class Logistic:
    """Models P(y = 1) = 1 / (1 + exp(-alpha - x theta_k)), by Polya-Gamma draws (section 11). Rows are touched in every sweep."""

    X: Array
    y: Array
    intercept: bool = True
    n_threads: int = 1
    traced: tuple[str, ...] = ("alpha",)

    def start(self, settings: Settings) -> State:
        d = _off_zero(np.zeros((settings.chains, 1, self.X.shape[1])))
        return {"deviation": d, "lambda_sq": np.ones_like(d), "alpha": np.zeros((settings.chains, 1))}

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        d, lambda_sq, alpha, events = shrinkage.logistic_sweeps(
            self.X, self.y, theta[:, 0], tau_sq[:, 0], state["deviation"][:, 0], state["lambda_sq"][:, 0], state["alpha"][:, 0],
            intercept=self.intercept, slab=settings.prior.slab, n_threads=self.n_threads, **_horseshoe(settings), **counter,
        )  # fmt: skip
        return {"deviation": d[:, None], "lambda_sq": lambda_sq[:, None], "alpha": alpha[:, None]}, events

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms given alpha and omega, which is drawn anew from the coefficients: H = X' Omega X, h = X'(y - 1/2 -
        omega z).
        """
        d, alpha = state["deviation"][:, 0], state["alpha"][:, 0]
        z = (move.theta + d) @ self.X.T + alpha[:, None]
        omega = _omega(z, OF_MOVES, **counter)
        X = self.X[:, move.columns]
        score = (self.y - 0.5 - omega * z) @ X
        return move.carried(np.matmul(X.T, omega[:, :, None] * X), score, d)


@dataclass(frozen=True)
class LogisticImputed:
    """Models a logistic regression whose rows lack covariates (section 11): (y - 1/2) / omega is N(alpha + x theta_k, 1/omega).

    Attributes are those of `Imputed`, but y is 0 or 1.
    """

    covariates: Covariates
    y: Array
    mean: Array | None = None
    intercept: bool = True
    n_threads: int = 1
    traced: tuple[str, ...] = ("alpha",)

    def start(self, settings: Settings) -> State:
        c, p = settings.chains, self.covariates.X.shape[1]
        d = _off_zero(np.zeros((c, 1, p)))
        first = {"deviation": d, "lambda_sq": np.ones_like(d), "alpha": np.zeros((c, 1))}
        return first | self.covariates.start(c, self.mean)

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        c, n = len(theta), self.covariates.X.shape[0]
        new, events = {name: value.copy() for name, value in state.items()}, np.zeros((c, 4), np.int64)
        once: Scales = {**_horseshoe(settings), "n_sweeps": 1}
        y = np.broadcast_to(self.y, (c, n))
        for step in range(counter["step"], counter["step"] + settings.local_sweeps):
            of_step: Counter = {**counter, "step": step}
            for k in range(c):  # each chain has rows of its own
                d, lambda_sq, alpha, happened = shrinkage.logistic_sweeps(
                    new["completed"][k], y[k], theta[k], tau_sq[k], new["deviation"][k], new["lambda_sq"][k], new["alpha"][k],
                    intercept=self.intercept, slab=settings.prior.slab, chain=k, n_threads=self.n_threads, **once, **of_step,
                )  # fmt: skip
                new["deviation"][k], new["lambda_sq"][k], new["alpha"][k] = d, lambda_sq, alpha
                events[k] += happened[0]
            slopes = (theta + new["deviation"])[:, 0]
            omega = _omega(self._predictor(new, slopes), OF_VALUES, **of_step)
            new |= self.covariates.drawn(new, slopes, (y - 0.5) / omega - new["alpha"], 1 / omega, **of_step)
        return new, events

    def _predictor(self, state: Mapping[str, Array], slopes: Array) -> Array:
        """Returns the linear predictor (c, n)."""
        fitted: Array = np.matmul(state["completed"], slopes[:, :, None])[:, :, 0]
        return fitted + state["alpha"]

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms given the completed rows, and omega as a logistic site draws it."""
        d = state["deviation"][:, 0]
        z = self._predictor(state, move.theta + d)
        omega, X = _omega(z, OF_MOVES, **counter), state["completed"][:, :, move.columns]
        score = np.matmul((self.y - 0.5 - omega * z)[:, None, :], X)[:, 0]
        return move.carried(np.matmul(X.swapaxes(1, 2), omega[:, :, None] * X), score, d)


# Added to a chain's number: streams of omega beside those of the sweeps' own, which are those of the chains' numbers.
OF_MOVES, OF_VALUES = 1 << 32, 2 << 32


def _omega(z: Array, first: int, **counter: Unpack[Counter]) -> Array:
    """Draws Polya-Gamma variables (c, n) given the predictor z."""
    keys = [rng.key(counter["seed"], "augmentation", first + c) for c in range(len(z))]
    client, step = counter["client"], counter["step"]
    return np.stack([rng.polya_gamma(row, key=key, client=client, step=step) for row, key in zip(z, keys)])


UNSEEN = 1e300  # the variance of a response that is not there: what it says moves no value
OF_REGRESSION = 1 << 34  # times a regression's number, added to a chain's: its streams, and those of its law (`OF_LAW`)


@dataclass(frozen=True)
class Imputed:
    """Models a regression whose rows lack covariates (section 11).

    Attributes
    ----------
    covariates, y : rows, and (n,) the response, about the site's centre where there is an intercept; NaN: a row without one,
        which tells of the law of rows alone
    mean : (p,) where the mean of rows starts; None is 0
    chain : number of the first chain, which selects random numbers
    """

    covariates: Covariates
    y: Array
    mean: Array | None = None
    intercept: bool = True
    n_threads: int = 1
    chain: int = 0
    traced: tuple[str, ...] = ("sigma_sq", "alpha")

    @cached_property
    def _seen(self) -> NDArray[np.bool_] | None:
        """(n,) The rows with a response; None: all."""
        seen = ~np.isnan(np.atleast_2d(self.y)[0])
        return None if seen.all() else seen

    @cached_property
    def _none(self) -> shrinkage.Patterns:
        """A pattern without a gap: the kernel draws everything but values."""
        return shrinkage.missing_patterns(np.zeros_like(self._with_response(self.covariates.X)), self.covariates.common)

    def _with_response(self, rows: Array, axis: int = 0) -> Array:
        """Returns the rows that have a response."""
        return rows if self._seen is None else np.ascontiguousarray(np.compress(self._seen, rows, axis=axis))

    def start(self, settings: Settings) -> State:
        c = settings.chains
        rows = self.covariates.start(c, self.mean)
        filled, y = self._with_response(rows["completed"][0]), self._with_response(self.y)
        d = _apart(_ridge(filled.T @ filled, filled.T @ y), c)[:, None, :]
        return rows | {
            "deviation": d, "lambda_sq": np.ones_like(d), "sigma_sq": np.ones((c, 1)), "alpha": np.zeros((c, 1)),
        }  # fmt: skip

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        state, events = dict(state), np.zeros((len(theta), 4), np.int64)
        for step in range(counter["step"], counter["step"] + settings.local_sweeps):
            of_step: Counter = {**counter, "step": step}
            given_rows, happened = self._given_rows(settings, state, theta[:, 0], tau_sq[:, 0], **of_step)
            state |= {name: value[:, None] for name, value in given_rows.items()}
            residual = self.y - state["alpha"]
            variance = np.broadcast_to(state["sigma_sq"], (len(theta), len(self.covariates.X)))
            if self._seen is not None:
                residual, variance = np.where(self._seen, residual, 0.0), np.where(self._seen, variance, UNSEEN)
            state |= self.covariates.drawn(
                state, theta[:, 0] + given_rows["deviation"], residual, variance, chain=self.chain, **of_step
            )
            events += happened
        return state, events

    def _given_rows(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        """Draws everything but values and their law, given theta and tau^2 (c, p)."""
        once: Scales = {**_horseshoe(settings), "n_sweeps": 1}
        now = theta, tau_sq, state["deviation"][:, 0], state["lambda_sq"][:, 0], state["sigma_sq"][:, 0]
        names = ("deviation", "lambda_sq", "sigma_sq")
        X, slab = self._with_response(self.covariates.X), settings.prior.slab
        # Without a response only the prior is left: there are no rows to estimate an intercept from.
        if not len(X):
            q, rss = np.zeros((len(theta), 1)), np.zeros(len(theta))
            *drawn, happened = shrinkage.local_sweeps(
                np.zeros((1, X.shape[1])), q, rss, 0.0, *now, slab=slab, chain=self.chain, n_threads=self.n_threads,
                **once, **_error(settings), **counter,
            )  # fmt: skip
            return dict(zip(names, drawn)) | {"alpha": state["alpha"][:, 0]}, happened
        *drawn, alpha, _, happened = shrinkage.imputed_sweeps(
            X, self._with_response(self.y, axis=-1), self.covariates.common, *now, state["alpha"][:, 0],
            self._with_response(state["completed"], axis=1), slab=slab, patterns=self._none, intercept=self.intercept,
            chain=self.chain, n_threads=self.n_threads, **once, **_error(settings), **counter,
        )  # fmt: skip
        return dict(zip(names, drawn)) | {"alpha": alpha}, happened

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms given the completed rows and alpha."""
        d, precision = state["deviation"][:, 0], 1 / state["sigma_sq"]
        completed, y = self._with_response(state["completed"], axis=1), self._with_response(self.y, axis=-1)
        fitted = np.matmul(completed, (move.theta + d)[:, :, None])[:, :, 0]
        X = completed[:, :, move.columns]
        score = np.matmul((y - state["alpha"] - fitted)[:, None, :], X)[:, 0] * precision
        return move.carried(precision[:, :, None] * np.matmul(X.swapaxes(1, 2), X), score, d)


@dataclass(frozen=True)
class ImputedField:
    """Models a random field whose rows lack values: each column's regression on the others completes the rows for itself (section
    11).

    The product of p likelihoods is no law of a row. As a function of a missing cell it counts the others' information on it p
    times: its values would be drawn too close together. Each regression with the law of its covariates is one, and together they
    are the model that is sampled if nothing is missing.

    Attributes
    ----------
    regressions : of each column, with a `chain` of its own
    """

    regressions: tuple[Imputed, ...]
    traced: tuple[str, ...] = ("sigma_sq", "alpha")

    def start(self, settings: Settings) -> State:
        p = len(self.regressions)
        none = np.zeros((settings.chains, p, p))
        parts = [regression.start(settings) for regression in self.regressions]
        laws = {name: np.stack([part[name] for part in parts], axis=1) for name in ("completed", "mean", "precision")}
        numbers = {name: np.concatenate([part[name] for part in parts], axis=1) for name in ("sigma_sq", "alpha")}
        return self._with(laws | numbers | {"deviation": none, "lambda_sq": none + 1.0}, parts)

    def sweeps(
        self, settings: Settings, state: State, theta: Array, tau_sq: Array, **counter: Unpack[Counter]
    ) -> tuple[State, Events]:
        parts, events = list[State](), np.zeros((len(theta), 4), np.int64)
        for j, regression in enumerate(self.regressions):
            now = (np.delete(a[:, j : j + 1], j, axis=2) for a in (theta, tau_sq))
            part, happened = regression.sweeps(settings, self._of(state, j), *now, **counter)
            parts.append(part)
            events += happened
        return self._with(state, parts), events

    def move_terms(self, move: Moving, state: Mapping[str, Array], **counter: Unpack[Counter]) -> tuple[Array, Array]:
        """Returns the terms of one regression, given its completed rows."""
        j, p = move.regression, len(self.regressions)
        theta, tau_sq = (np.delete(a, j, axis=1) for a in (move.theta, move.tau_sq))
        block = move.block - (move.columns > j) - (move.block >= p)
        return self.regressions[j].move_terms(Moving(theta, tau_sq, 0, block, move.slab), self._of(state, j), **counter)

    def _of(self, state: Mapping[str, Array], j: int) -> State:
        """Returns the state of one regression."""
        part = {name: state[name][:, j] for name in ("completed", "mean", "precision")}
        part |= {name: state[name][:, j : j + 1] for name in ("sigma_sq", "alpha")}
        return part | {name: np.delete(state[name][:, j : j + 1], j, axis=2) for name in ("deviation", "lambda_sq")}

    def _with(self, state: Mapping[str, Array], parts: Sequence[State]) -> State:
        """Returns the state with those of all regressions in it."""
        new = {name: value.copy() for name, value in state.items()}
        for j, part in enumerate(parts):
            others = np.arange(len(parts)) != j
            for name in ("completed", "mean", "precision"):
                new[name][:, j] = part[name]
            for name in ("sigma_sq", "alpha"):
                new[name][:, j] = part[name][:, 0]
            for name in ("deviation", "lambda_sq"):
                new[name][:, j, others] = part[name][:, 0]
        return new


def moved(state: Mapping[str, Array], change: Array) -> State:
    """Returns the state with every deviation shifted by old theta - new theta (c, g, p): theta_k stays."""
    return {**state, "deviation": state["deviation"] + change}
