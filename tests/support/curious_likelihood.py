"""What a curious server makes of the messages of a job of method "likelihood": equations for `support.curious`, and of a gaussian
response with random intercepts the moments of the means of all groups of each size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

import fedkern
from fedkern.algorithms.exchanges.columns import Agreed, SchemaReply
from fedkern.algorithms.exchanges.level import Level
from fedkern.algorithms.exchanges.sums import DIGITS_OF_EFFECTS, MarginalSums, Replicated
from fedkern.algorithms.hmc.machine import Launch, LikelihoodChange, LikelihoodSlope, Move, Place
from fedkern.algorithms.importance.settings import (
    FIRST,
    OF_CHAINS,
    OF_VALUES,
    AskCurvature,
    AskValues,
    Curvature,
    Posterior,
    Settings,
    Values,
    net_of,
    of_derivatives,
    of_draws,
    power,
)
from fedkern.arrays import Array
from fedkern.kernels import rng
from fedkern.methods.likelihood.keys import MOST_ROUNDS
from fedkern.methods.likelihood.model import LOOKED
from fedkern.models.expfam import packed, unpack
from fedkern.models.glm import Rows
from fedkern.models.mixed import Layout, Prior, predictive
from fedkern.models.mixed import Rows as MixedRows
from fedkern.models.mixed.layout import INTERCEPT_SD, LESS_WIDE, PRIOR_SD, WIDER

from . import curious

LIKELY = 30.0  # groups of one size, and sums of squares of their means
CHOSEN = 400  # values of a round, about as many as say all: rows' functions span few of the directions that thousands have


def logistic(
    n: int, p: int, seed: int = 0, others: tuple[int, ...] = (60, 60), slope: float = 1.0, **sections: dict[str, Any]
) -> tuple[curious.Tape, Rows]:
    """A job without random effects: the first of its clients has n rows of p covariates. Default, if it takes so many."""
    random = np.random.default_rng(seed)

    def rows(n: int) -> tuple[Array, Array]:
        X = random.normal(size=(n, p))
        return X, (random.random(n) < scipy.special.expit(slope * X[:, 0] + 0.3)).astype(float)

    own = rows(n)
    more = {f"b{k}": rows(size) for k, size in enumerate(others)}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, **sections}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, **more})
    return tape, Rows(*own)


@dataclass(frozen=True)
class Answers:
    """Where a client was asked, (c, P) and (S, P), and what it said there."""

    places: Array
    value: Array
    gradient: Array
    curvature: Array
    points: Array
    values: Array
    units: Array  # of value, gradient and curvature at all places, one after the other
    of_values: Array  # (S,) units

    @classmethod
    def of(cls, tape: curious.Tape, client: int, layout: Layout) -> Answers:
        asked, said = tape.of(client, AskCurvature), tape.of(client, Curvature)
        places = np.concatenate([m.points for m in asked if isinstance(m, AskCurvature)])
        told = [m for m in said if isinstance(m, Curvature)]
        value, gradient = np.concatenate([m.value for m in told]), np.concatenate([m.gradient for m in told])
        curvature = np.stack([unpack(row, places.shape[1]) for m in told for row in m.hessian])
        points = np.concatenate([m.points for m in tape.of(client, AskValues) if isinstance(m, AskValues)])
        values = np.concatenate([m.values for m in tape.of(client, Values) if isinstance(m, Values)])
        settings = _settings(tape, client, layout)
        clients, needed = settings.clients, settings.needed()
        beside = [prior_of(m, layout) for m in asked if isinstance(m, AskCurvature) for _ in m.points]
        of = [of_derivatives(own, prior.curvature(xi)[2], clients) for own, xi, prior in zip(curvature, places, beside)]
        units = [
            np.full(len(value), power(needed)),
            np.ravel([one for one, _ in of]),
            packed(np.array([one for _, one in of])).ravel(),
        ]
        of_values = units_of_values(tape, client, layout, settings)
        return cls(places, value, gradient, curvature, points, values, np.concatenate(units), np.concatenate(of_values))


def _settings(tape: curious.Tape, client: int, layout: Layout) -> Settings:
    """Those of a job at the default numbers of draws, as far as units follow from them."""
    net = net_of(layout.size) if layout.most_nodes == 1 else FIRST
    points, rounds = (LOOKED, 1) if tape.of(client, Place) else (4096, MOST_ROUNDS)  # chains ask for few draws before
    clients = 1 + max(k for k, _ in tape.heard)
    return Settings(points, 1.0, rounds, starts=1, nodes=1, most_nodes=1, told=0, seed=0, clients=clients, net=net)


def prior_of(asked: AskCurvature, layout: Layout) -> Prior:
    """The default prior beside which a question is answered, of a job whose rows may widen it."""
    by = (WIDER if layout.measured else LESS_WIDE)[asked.prior]
    return Prior.usual(layout, prior_sd=PRIOR_SD * by, intercept_sd=INTERCEPT_SD * by)


def units_of_values(tape: curious.Tape, client: int, layout: Layout, settings: Settings) -> list[Array]:
    """The units of values of each question about draws: the first net's are its own, and the prior is that of the mode."""
    prior, units = Prior.usual(layout), list[Array]()
    rounds, answers = tape.of(client, AskCurvature, AskValues), iter(tape.of(client, Values))
    for asked in rounds:
        if isinstance(asked, AskCurvature):
            prior = prior_of(asked, layout)
        elif isinstance(asked, AskValues):
            said = next(answers)
            assert isinstance(said, Values)
            far = of_draws(asked.points, settings.clients * said.values + prior.values(asked.points))
            units.append(power(settings.needed_at_draws(len(units)) * far))
    return units


def seen(tape: curious.Tape, client: int, most: int = CHOSEN) -> curious.Seen:
    """All that such a job says of a client without random effects. `most`: of the values at draws, use so many: those that rows'
    functions differ most at."""
    centre, scale = _constants(tape, client)
    d = len(centre) + 1
    _, first, centred = tape.texts(client, SchemaReply)
    told = Answers.of(tape, client, Layout(("intercept", *(f"x{j}" for j in range(d - 1))), "bernoulli"))
    c, none = len(told.places), np.zeros((len(told.places), d, d))
    z = np.column_stack([np.ones(600), 1.3 * np.random.default_rng(0).standard_normal((600, d - 1))])
    functions = -np.logaddexp(0, -told.points @ z.T) / told.of_values[:, np.newaxis]
    at = scipy.linalg.qr(functions.T, mode="economic", pivoting=True)[2][:most]
    derivatives = curious.AtPoints(told.places, none, np.zeros((c, d)), none, 1.0)
    of_derivatives = np.concatenate([told.gradient.ravel(), packed(told.curvature).ravel()])
    terms = (
        curious.Sums(np.array(centred["sums"]) / scale, np.array(centred["squares"]) / scale**2, curious.EXACT),
        curious.InUnits(derivatives, of_derivatives, told.units[c:]),
        curious.InUnits(curious.Values(told.places, np.zeros(c), 1.0), told.value, told.units[:c]),
        curious.InUnits(curious.Values(told.points[at], np.zeros(len(at)), 1.0), told.values[at], told.of_values[at]),
    )
    return curious.Seen(first["rows"], d, terms, centre, scale)


@dataclass(frozen=True)
class Gradients:
    """Gradients of a logistic log-likelihood at known coefficients, (S, d) at `theta` (S, d)."""

    theta: Array
    values: Array
    noise: float

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        k = scipy.special.expit(-z @ self.theta.T).transpose(0, 2, 1)  # (B, S, n)
        slope = -np.einsum("bsn,sj,bna->bsanj", k * (1 - k), self.theta, z) + np.einsum("bsn,aj->bsanj", k, np.eye(z.shape[2]))
        told = np.einsum("bsn,bna->bsa", k, z) - self.values
        return told.reshape(len(z), -1), slope.reshape(len(z), -1, *z.shape[1:])

    def of_sums(self, d: int) -> Array:
        return np.tile(np.eye(d), (len(self.theta), 1))


@dataclass(frozen=True)
class Effects:
    """Sums over a logistic client's rows of the slope of its probability in each covariate, (S, p) at `theta` (S, d), each to a
    number of digits: in units of the noise of each."""

    theta: Array
    values: Array
    units: Array
    noise: float = 1.0

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        p = scipy.special.expit(sign[:, None] * (self.theta @ z.transpose(0, 2, 1)))  # (B, S, n)
        of_rows = p * (1 - p)
        told = (of_rows.sum(axis=2)[..., None] * self.theta[:, 1:] - self.values) / self.units
        slope = np.einsum("bsn,bn,sk,sj->bsknj", of_rows * (1 - 2 * p), sign, self.theta[:, 1:] / self.units, self.theta)
        return told.reshape(len(z), -1), slope.reshape(len(z), -1, *z.shape[1:])

    def of_sums(self, d: int) -> Array:
        return np.zeros((len(self.theta) * (d - 1), d))


def of_chains(tape: curious.Tape, client: int) -> tuple[Gradients, curious.Values]:
    """What chains are told beside: gradients, and values where trajectories end (changes, as if one were known)."""
    asked, places, gradients, ends = None, [], [], []
    for message in tape.of(client, Place, Launch, Move, LikelihoodSlope, LikelihoodChange):
        if isinstance(message, Place | Launch | Move):
            asked = message.xi
        elif isinstance(message, LikelihoodSlope | LikelihoodChange):
            assert asked is not None
            places.append(asked)
            gradients.append(message.gradient)
            if isinstance(message, LikelihoodChange):
                ends.append(asked)
    at, told = np.concatenate(ends), np.concatenate(places)
    noise = float(power(OF_CHAINS)) / np.sqrt(12)
    return Gradients(told, np.concatenate(gradients), noise), curious.Values(at, np.zeros(len(at)), _of_chains(tape) * np.sqrt(2))


def _of_chains(tape: curious.Tape) -> float:
    """The noise of a value of chains."""
    return float(power(OF_VALUES / np.sqrt(1 + max(k for k, _ in tape.heard)))) * curious.OF_ROUNDING


def of_marginal(tape: curious.Tape, client: int, scale: Array) -> Effects:
    """What `output.marginal` adds, of covariates that are no numbers of 0 and 1."""
    (said,), (told,) = tape.of(client, MarginalSums), tape.of(client, Posterior)
    assert isinstance(said, MarginalSums)
    assert isinstance(told, Posterior)
    p = len(scale)
    values = said.sums[:, 0 : 2 * p : 2] * scale  # a unit of each, and beside it from 0 to 1, of which nothing is sent
    last = np.floor(np.log10(np.abs(said.sums[:, 0 : 2 * p : 2]).clip(1e-12))) - DIGITS_OF_EFFECTS + 1
    return Effects(told.draws[:, : p + 1], values, 10.0**last * scale / np.sqrt(12))


def _constants(tape: curious.Tape, client: int) -> tuple[Array, Array]:
    numeric = [c for c in tape.texts(client, Agreed)[-1]["columns"] if c.get("kind", "numeric") == "numeric"]
    return np.array([c["center"] for c in numeric], dtype=float), np.array([c["scale"] for c in numeric], dtype=float)


# --- a gaussian response with an intercept of each group: the likelihood is linear in what is not known


def groups(sizes: list[int], p: int = 2, seed: int = 0, **sections: Any) -> tuple[curious.Tape, Array, NDArray[np.int64]]:
    """A gaussian job whose first client has groups of these sizes: its rows [x, y], and the group of each."""
    pandas = __import__("pandas")
    random = np.random.default_rng(seed)

    def rows(sizes: list[int]) -> tuple[Any, Array, NDArray[np.int64]]:
        group = np.repeat(np.arange(len(sizes)), sizes)
        X = random.normal(size=(len(group), p))
        y = 0.3 + X[:, 0] + random.normal(size=len(sizes))[group] + 0.7 * random.normal(size=len(group))
        cells = {f"x{j}": X[:, j] for j in range(p)}
        return pandas.DataFrame({**cells, "ward": [f"w{k}" for k in group], "y": y}), np.column_stack([X, y]), group

    own, truth, group = rows(sizes)
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, **sections}
    job["model"] = {"family": "gaussian", "random": {"group": "ward"}}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, **{k: rows([8] * 8)[0] for k in "bc"}})
    return tape, truth, group


def by_size(tape: curious.Tape, client: int, largest: int) -> tuple[Array, Array]:
    """Of groups of 1 to `largest` rows: how many there are (M,), and the sums of squares and products of their means of [1, x, y]
    (M, p + 2, p + 2), in the file's units, by least squares: no start, no solver.

    With s^2 of an error, t^2 of a group, and b = (-beta, 1), the log-likelihood of a group of m rows has the mean part
    -(b'z)^2 m / (2 (s^2 + m t^2)) - log(s^2 + m t^2) / 2, linear in the products of z, the mean row.
    """
    centre, scale = _constants(tape, client)
    d = len(centre) + 1
    told = Answers.of(tape, client, Layout(("intercept", *(f"x{j}" for j in range(d - 1))), "gaussian", ("intercept",)))
    (level,) = {(m.level, m.scale) for k, m in tape.heard if k == client and isinstance(m, Level)}
    P = told.places.shape[1]
    i, j = np.triu_indices(d + 1)
    both = np.where(i == j, 1.0, 2.0)

    def functions(xi: NDArray[Any]) -> NDArray[Any]:
        b = np.concatenate([-xi[:, :d], np.ones((len(xi), 1))], axis=1)
        quadratic = b[:, i] * b[:, j] * both
        t, s = np.exp(2 * xi[:, d : d + 1]), np.exp(2 * xi[:, d + 1 :])
        parts = []
        for m in (0, *range(1, largest + 1)):
            variance = s + m * t
            parts += [-quadratic / (2 * variance), -np.log(2 * np.pi * variance) / 2]
        return np.concatenate(parts, axis=1)

    def slopes(xi: NDArray[Any]) -> Array:  # (c, P, K), by a complex step
        return np.stack([functions(xi + 1e-30j * e).imag / 1e-30 for e in np.eye(P)], axis=1)

    h, low = 2e-4, np.tril_indices(P)

    def bend(e: Array) -> Array:  # (c, P, K), by differences of fourth order
        near, far = (slopes(told.places + k * h * e) - slopes(told.places - k * h * e) for k in (1, 2))
        return (8 * near - far) / (12 * h)

    unknown = (len(i) + 1) * (largest + 1)
    bends = -np.stack([bend(e) for e in np.eye(P)], axis=1)[:, low[0], low[1]]
    functions_of = [functions(told.places), slopes(told.places).reshape(-1, unknown), bends.reshape(-1, unknown)]
    answers = [told.value, told.gradient.ravel(), told.curvature[:, low[0], low[1]].ravel()]
    units = curious.OF_ROUNDING * np.concatenate([told.units, told.of_values])
    A = np.concatenate([*functions_of, functions(told.points)]) / units[:, np.newaxis]
    A, right = np.concatenate([A, np.eye(unknown) / LIKELY]), np.concatenate([*answers, told.values]) / units
    right = np.append(right, np.zeros(unknown))
    width = np.abs(A).max(axis=0)
    found = np.linalg.lstsq(A / width, right, rcond=1e-16)[0] / width
    found = found.reshape(largest + 1, -1)[1:]
    products = np.zeros((largest, d + 1, d + 1))
    products[:, i, j] = products[:, j, i] = found[:, :-1]
    products /= np.arange(1, largest + 1)[:, None, None]
    back = np.eye(d + 1)  # from standardised mean rows to the file's
    back[1:, 0], back[np.arange(1, d + 1), np.arange(1, d + 1)] = [*centre, level[0]], [*scale, level[1]]
    return found[:, -1], back @ products @ back.T


# --- responses drawn anew: where groups have effects, sums over rows with numbers for each row and group, which may be known

MATES = 5  # rows of each group, the last one's fewer


def linear(n: int, p: int, seed: int = 0) -> tuple[curious.Tape, Array]:
    """A gaussian job at the defaults with an intercept of each group: the first client's n rows of covariates are given back."""
    pandas = __import__("pandas")
    random = np.random.default_rng(seed)

    def rows(n: int) -> tuple[Any, Array]:
        X, group = random.normal(size=(n, p)), np.arange(n) // MATES
        y = 0.3 + X[:, 0] + random.normal(size=n)[group] + 0.7 * random.normal(size=n)
        cells = {f"x{j}": X[:, j] for j in range(p)}
        return pandas.DataFrame({**cells, "ward": [f"w{k:04}" for k in group], "y": y}), X

    own, truth = rows(n)
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
    job["model"] = {"family": "gaussian", "random": {"group": "ward"}}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, **{k: rows(n + 20)[0] for k in "bc"}})
    return tape, truth


def drawn_anew(tape: curious.Tape, client: int, n: int, key: int) -> tuple[Array, float]:
    """(n, p) Covariates, in the file's order and units, of a gaussian client whose responses were drawn by this key, and the rms
    residual: each sum of squares is linear in the rows' predictors, each times a number that is known, but for their squares.

    By least squares from zeros: nothing is searched.
    """
    (said,), (told,) = tape.of(client, Replicated), tape.of(client, Posterior)
    assert isinstance(said, Replicated)
    assert isinstance(told, Posterior)
    centre, scale = _constants(tape, client)
    p, group = len(centre), np.arange(n) // MATES
    beta, (of_groups, sd) = told.draws[:, : p + 1], np.exp(told.draws[:, p + 1 : p + 3].T)
    parts, many = [], max(1, predictive.CACHED // n)
    for begin in range(0, len(beta), many):  # draws whose responses are drawn by one call
        k, source = len(beta[begin : begin + many]), predictive.Keyed(key, begin)
        effects = source.normal(k * (group[-1] + 1)).reshape(k, -1)[:, group]
        errors = source.normal(k * n).reshape(k, n)
        parts.append(of_groups[begin : begin + k, None] * effects + sd[begin : begin + k, None] * errors)
    known = np.concatenate(parts)

    def responses(x: Array) -> Array:  # (S, n)
        return np.asarray(beta[:, :1] + beta[:, 1:] @ x.reshape(n, p).T + known)

    def off(x: Array) -> Array:
        y = responses(x)
        return np.concatenate([y.sum(axis=1) - said.replicated[:, 0], (y**2).sum(axis=1) - said.replicated[:, 1]])

    def slopes(x: Array) -> Array:
        squares = 2 * responses(x)[:, :, None] * beta[:, None, 1:]
        return np.concatenate([np.tile(beta[:, 1:], (1, n)), squares.reshape(len(beta), -1)])

    fit = scipy.optimize.least_squares(off, np.zeros(n * p), slopes, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=100)
    return centre + scale * fit.x.reshape(n, p), float(np.sqrt(np.mean(fit.fun**2)))


def of_the_seed(client: int, seed: int = 0) -> int:
    """The key by which clients once drew responses anew."""
    return rng.key(seed, "posterior", 3 + 3 * client)


# --- random slopes, and weights: what is determined, whoever solves it


def sloped(
    sizes: list[int], others: list[int], p: int, family: str, seed: int = 0
) -> tuple[curious.Tape, Array, Array, NDArray[np.int64]]:
    """A job with a random slope of the first column: the first client's covariates, response, groups."""
    pandas = __import__("pandas")
    random = np.random.default_rng(seed)

    def rows(sizes: list[int]) -> tuple[Any, Array, Array, NDArray[np.int64]]:
        group = np.repeat(np.arange(len(sizes)), sizes)
        X = random.normal(size=(len(group), p))
        effects = random.normal(size=(2, len(sizes)))[:, group]
        eta = 0.3 + X[:, 0] + effects[0] + 0.5 * effects[1] * X[:, 0]
        noise = 0.7 * random.normal(size=len(group)) if family == "gaussian" else random.logistic(size=len(group))
        y = eta + noise if family == "gaussian" else (eta + noise > 0).astype(float)
        cells = {f"x{j}": X[:, j] for j in range(p)}
        return pandas.DataFrame({**cells, "ward": [f"w{k:04}" for k in group], "y": y}), X, y, group

    own = rows(sizes)
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
    job["model"] = {"family": family, "random": {"group": "ward", "slopes": ["x0"]}}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own[0], "b": rows(others)[0], "c": rows(others)[0]})
    return tape, *own[1:]


def known_of_slopes(
    tape: curious.Tape, client: int, X: Array, y: Array, group: NDArray[np.int64], family: str, most: int = 1500
) -> Array:
    """(n,) as `curious.known`, by differences of the client's own likelihood: a gaussian response is a cell too."""
    centre, scale = _constants(tape, client)
    p, gaussian = X.shape[1], family == "gaussian"
    step = 1e-4 if gaussian else 2e-3
    layout = Layout(("intercept", *(f"x{j}" for j in range(p))), family, ("intercept", "x0"))
    told = Answers.of(tape, client, layout)
    x = (X - centre) / scale
    if gaussian:
        (level,) = {(m.level, m.scale) for k, m in tape.heard if k == client and isinstance(m, Level)}
        y = (y - level[0]) / level[1]
    at = np.random.default_rng(0).choice(len(told.points), min(most, len(told.points)), replace=False)
    i, j = np.tril_indices(layout.size)

    def answers(D: Array, y: Array) -> Array:
        rows = MixedRows(layout, np.ascontiguousarray(D), np.ascontiguousarray(y), np.array([0, len(y)]))
        value, gradient, hessian = rows.curvature(told.places, layout.nodes)
        slow = np.concatenate([value, gradient.ravel(), hessian[:, i, j].ravel()]) / told.units
        return np.concatenate([rows.values(told.points[at], layout.nodes) / told.of_values[at], slow]) / curious.OF_ROUNDING

    columns = []
    for k in range(len(y)):
        mates = np.flatnonzero(group == group[k])
        cells = np.column_stack([np.ones(len(mates)), x[mates], y[mates]])
        for c in range(1, p + 1 + gaussian):
            both = []
            for to in (step, -step):
                moved = cells.copy()
                moved[np.flatnonzero(mates == k), c] += to
                both.append(answers(moved[:, :-1], moved[:, -1]))
            columns.append((both[0] - both[1]) / (2 * step))
    _, s, V = np.linalg.svd(np.linalg.qr(np.array(columns).T, mode="r"))
    variance = np.einsum("ki,k->i", V * V, 1 / (1 + s * s))
    return np.asarray(np.sqrt(variance).reshape(len(y), -1).max(axis=1))
