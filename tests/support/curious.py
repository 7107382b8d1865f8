"""The curious server: what it makes of the messages that it was sent, of the job file, and of nothing else.

It computes the clients' rows. No function here reads a row to choose between starts: that is done by how well the messages are
explained, as a server would have to. `found` compares with the truth afterwards, for whoever holds it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fedkern.algorithms.core.messages import SERVER, Message
from fedkern.algorithms.exchanges.arrival import AskSlope, Slope
from fedkern.algorithms.exchanges.columns import Agreed, SchemaReply
from fedkern.algorithms.exchanges.level import Level
from fedkern.algorithms.exchanges.scales import ColumnMoments, Scaling
from fedkern.algorithms.gibbs.settings import Globals, GlobalsTempered, Locals, Loglik
from fedkern.algorithms.pvi.messages import QUpdate, SiteApplied, SiteDelta
from fedkern.algorithms.sfvi.machine import INNER, Global, GlobalGradient, GlobalGradientBound
from fedkern.arrays import Array
from fedkern.data.artifact import WithinFile, read_own, read_server
from fedkern.errors import NumericalError
from fedkern.kernels import rng, shrinkage
from fedkern.methods.sigma.keys import Config
from fedkern.methods.sigma.model import SigmaModel
from fedkern.models.encoding import Encoding
from fedkern.models.expfam import Gaussian, unpack
from fedkern.models.glm import Rows
from fedkern.models.likelihood import Last
from fedkern.models.spatial import within_site
from fedkern.models.spatial.site import Rows as AreaRows
from fedkern.models.spatial.units import Units
from fedkern.models.spatial.within_site import WithinSite
from fedkern.transports.codec import Frame
from fedkern.transports.driver import ServerSide

M = TypeVar("M", bound=Message)

DRAWS, SHARED = 400, 1001  # of the stream "posterior", its chain from which all parties drew the points of log-likelihoods


# --- what the server sees


class Tape:
    """Inside `with`, every message between the server and its clients in this process, decoded from its frame, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Message]] = []  # (client, message), questions and answers

    def __enter__(self) -> Tape:
        self._ask, self._arrive = ask, arrive = ServerSide._ask, ServerSide.arrive

        def _ask(server: ServerSide[Any, Any], client: int, frame: Frame) -> tuple[int, Frame]:
            self.heard.append(server.codec.decode(frame, server.protocol.to_client))
            return ask(server, client, frame)

        def _arrive(server: ServerSide[Any, Any], frame: Frame, here: Any) -> None:
            self.heard.append(server.codec.decode(frame, server.expected))
            arrive(server, frame, here)

        ServerSide._ask, ServerSide.arrive = _ask, _arrive  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *error: object) -> None:
        ServerSide._ask, ServerSide.arrive = self._ask, self._arrive  # type: ignore[method-assign]

    def of(self, client: int, *kinds: type[Message]) -> list[Message]:
        """One client's messages of these kinds, in order."""
        return [message for k, message in self.heard if k == client and isinstance(message, kinds)]

    def texts(self, client: int, kind: type[SchemaReply | Agreed]) -> list[dict[str, Any]]:
        """What messages that hold JSON said (in one piece each)."""
        return [json.loads(bytes(m.text)) for m in self.of(client, kind) if isinstance(m, SchemaReply | Agreed)]


# --- a regression's rows, as equations in z_i = +-(1, x_i): log p(y_i | x_i) = log sigmoid(z_i' theta)

NODES = np.linspace(-6.5, 6.5, 64)
OF_ROUNDING = 12**-0.5  # the sd of what rounding leaves, in its unit
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


@dataclass(frozen=True)
class Values:
    """Log-likelihoods at known coefficients, (S,) at `theta` (S, d)."""

    theta: Array
    values: Array
    noise: float

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        """(B, m) residuals of (B, n, d) rows, and their Jacobian (B, m, n, d), both in units of the noise."""
        at = z @ self.theta.T  # (B, n, S)
        residual = -np.logaddexp(0, -at).sum(axis=1) - self.values
        slope = scipy.special.expit(-at)
        return residual, np.einsum("bns,sd->bsnd", slope, self.theta)

    def of_sums(self, d: int) -> Array:
        """(m, d) slopes in [sum y, X'y], of labels of 1 in place of -1."""
        return self.theta


@dataclass(frozen=True)
class Sites:
    """A client's local optima at known q: gradients (T, d) and curvatures (T, d) or (T, d, d) of its expected log-likelihood."""

    mean: Array
    cov: Array  # (T, d), or (T, d, d)
    gradient: Array
    curvature: Array
    noise: float
    rule: ClassVar[tuple[Array, Array]] = (NODES, WEIGHTS)  # by which expectations are taken

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        nodes, weights = self.rule
        full = self.cov.ndim == 3
        b, n, d = z.shape
        Sz = np.einsum("tde,bne->btnd", self.cov, z) if full else self.cov[None, :, None] * z[:, None]
        m = np.einsum("td,bnd->btn", self.mean, z)
        s = np.sqrt(np.maximum(np.einsum("btnd,bnd->btn", Sz, z), 1e-300))
        at = m[..., None] + s[..., None] * nodes
        p = scipy.special.expit(-at)
        g = p * (1 - p)
        turn = 2 * p - 1  # 1 - 2 sigmoid(at)
        k0, k1, k2, k3 = (f @ weights for f in (p, g, g * turn, g * (1 - 6 * g)))
        of_k0 = -k1[..., None] * self.mean[None, :, None] - k2[..., None] * Sz  # (b, t, n, d)
        of_k1 = k2[..., None] * self.mean[None, :, None] + k3[..., None] * Sz
        first = np.einsum("btn,bnd->btd", k0, z) - self.gradient
        eye = np.eye(d)
        J1 = np.einsum("bni,btnj->btinj", z, of_k0) + np.einsum("btn,ij->btinj", k0, eye)
        if full:
            i, j = np.tril_indices(d)
            pairs = z[..., i] * z[..., j]  # (b, n, q)
            second = np.einsum("btn,bnq->btq", k1, pairs) - self.curvature[:, i, j]
            of_pairs = z[..., i, None] * eye[j] + z[..., j, None] * eye[i]  # (b, n, q, d)
            J2 = np.einsum("bnq,btnd->btqnd", pairs, of_k1) + np.einsum("btn,bnqd->btqnd", k1, of_pairs)
        else:
            second = np.einsum("btn,bnd->btd", k1, z * z) - self.curvature
            J2 = np.einsum("bni,btnj->btinj", z * z, of_k1) + np.einsum("btn,ij,bnj->btinj", k1, eye, 2 * z)
        return (
            np.concatenate([first.reshape(b, -1), second.reshape(b, -1)], axis=1),
            np.concatenate([J1.reshape(b, -1, n, d), J2.reshape(b, -1, n, d)], axis=1),
        )

    def of_sums(self, d: int) -> Array:
        t, second = len(self.mean), d if self.curvature.ndim == 2 else d * (d + 1) // 2
        return np.concatenate([np.tile(np.eye(d), (t, 1)), np.zeros((t * second, d))])


class AtTheEnd(Sites):
    """The same of the q that is released (`Slope`): X'WX in full, whatever q's covariance."""


class AtPoints(Sites):
    """The same at coefficients, and not over a distribution of them."""

    rule: ClassVar[tuple[Array, Array]] = (np.zeros(1), np.ones(1))


@dataclass(frozen=True)
class Sums:
    """Sums of the columns and of their squares, (p,) each."""

    first: Array
    second: Array
    noise: float

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        x = z[..., 1:] * sign[..., None]
        p = x.shape[-1]
        eye = np.eye(p, p + 1, 1)
        one = np.einsum("bn,pd->bpnd", sign, eye)
        two = np.einsum("bnp,bn,pd->bpnd", 2 * x, sign, eye)
        residual = np.concatenate([x.sum(axis=1) - self.first, (x * x).sum(axis=1) - self.second], axis=1)
        return residual, np.concatenate([one, two], axis=1)

    def of_sums(self, d: int) -> Array:
        return np.zeros((2 * len(self.first), d))


@dataclass(frozen=True)
class Singled:
    """What sites tell of the rows alone in which one column is not 0, but `value` in units of the agreed scale: that column's own
    entries in gradients and curvatures, less what all other rows have. Rows are (1, x) without it."""

    sites: Sites
    column: int  # of z, from 1
    value: float
    flag: Array  # (d,) of z: flag'z is 1 in these rows, 0 in all others
    noise: float

    def _told(self, residual: Array) -> Array:
        """(B, m, ..) flag's products with gradients and curvatures: (T,) and (T, d) less the column itself."""
        t, d = self.sites.mean.shape
        rest = residual.shape[2:]
        first = residual[:, : t * d].reshape(len(residual), t, d, -1)
        packed = residual[:, t * d :].reshape(len(residual), t, d * (d + 1) // 2, -1)
        i, j = np.tril_indices(d)
        second = np.zeros((*first.shape[:2], d, d, first.shape[-1]))
        second[:, :, i, j] = second[:, :, j, i] = packed
        one, two = np.einsum("btik,i->btk", first, self.flag), np.einsum("btijk,i->btjk", second, self.flag)
        two = np.delete(two, self.column, axis=2)
        return np.concatenate([one, two.reshape(len(one), -1, one.shape[-1])], axis=1).reshape(len(one), -1, *rest)

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        residual, J = self.sites.residuals(np.insert(z, self.column, self.value * sign, axis=2), sign)
        return self._told(residual), np.delete(self._told(J), self.column, axis=3)

    def of_sums(self, d: int) -> Array:
        t = len(self.sites.mean)
        out = np.zeros((t * (d + 1), d))
        out[:t, 0] = 1
        return out


@dataclass(frozen=True)
class InUnits:
    """Equations of `term`, less these numbers, each rounded to a unit of its own: residuals are in sds of that."""

    term: Values | Sites
    told: Array
    units: Array
    noise: float = 1.0

    def residuals(self, z: Array, sign: Array) -> tuple[Array, Array]:
        r, J = self.term.residuals(z, sign)
        sd = OF_ROUNDING * self.units
        return (r - self.told) / sd, J / sd[:, np.newaxis, np.newaxis]

    def of_sums(self, d: int) -> Array:
        return self.term.of_sums(d) / (OF_ROUNDING * self.units[:, np.newaxis])


Term = Values | Sites | Sums | Singled | InUnits


@dataclass(frozen=True)
class Seen:
    """What a server knows of one client of a logistic regression: its number of rows, and equations."""

    n: int
    d: int
    terms: tuple[Term, ...]
    centre: Array = field(default_factory=lambda: np.zeros(0))
    scale: Array = field(default_factory=lambda: np.ones(0))

    def only(self, *kinds: type) -> Seen:
        return Seen(self.n, self.d, tuple(t for t in self.terms if isinstance(t, kinds)), self.centre, self.scale)

    def system(self, z: Array, sign: Array, level: float = 0.0) -> tuple[Array, Array]:
        """Residuals (B, m) and their slopes in x (B, m, n p), in units of the noise, which is at least `level`."""
        parts = []
        for term in self.terms:
            r, J = term.residuals(z, sign)
            w = 1 / max(term.noise, level)
            parts.append((w * r, w * J[..., 1:] * sign[:, None, :, None]))
        b = len(z)
        return np.concatenate([r for r, _ in parts], axis=1), np.concatenate([J for _, J in parts], axis=1).reshape(
            b, -1, self.n * (self.d - 1)
        )

    @property
    def equations(self) -> int:
        return sum(len(term.of_sums(self.d)) for term in self.terms)

    def unlabelled(self, x: Array, sums: Array, level: float = 0.0) -> tuple[Array, Array]:
        """The same of rows (B, n, p) whose labels are in `sums` (B, d) alone, [sum y, X'y]; slopes in x and in these."""
        no = -np.ones(x.shape[:2])
        r, J = self.system(z_of(x, no), no, level)
        add = np.concatenate([term.of_sums(self.d) / max(term.noise, level) for term in self.terms])
        return r + sums @ add.T, np.concatenate([J, np.broadcast_to(add, (len(x), *add.shape))], axis=2)


def z_of(x: Array, sign: Array) -> Array:
    """(B, n, d) signed rows with the intercept's column."""
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1) * sign[..., None]


EXACT, ROUNDED = 1e-12, 1e-3 / np.sqrt(12)
COMPUTED = 1e-12  # how far from each other are two computations of the same sum over few rows
AT_OPTIMUM = 1e-10  # how far from its optimum a site is, in the units of a gradient


def logistic(tape: Tape, client: int, *, seed: int = 0, rounds: int = 15, damping: float = 1.0) -> Seen:
    """All that the messages of a default `pvi` job say of a client. `rounds`: of the sites use so many; `damping`: of an update,
    which the job file says."""
    agreed = tape.texts(client, Agreed)[-1]
    told = tape.texts(client, SchemaReply)
    numeric = [c for c in agreed["columns"] if c.get("kind", "numeric") == "numeric"]
    centre, scale = (np.array([c[name] for c in numeric], dtype=float) for name in ("center", "scale"))
    p = len(centre)
    d = p + 1
    terms: list[Term] = []
    n = 0
    if len(told) > 2:  # sums about the pooled means
        n = told[1]["rows"]
        terms.append(Sums(np.array(told[2]["sums"]) / scale, np.array(told[2]["squares"]) / scale**2, 1e-12))
    if sites := sites_of(tape, client, d, rounds, damping):
        terms.append(sites)
    for asked, said in zip(tape.of(client, AskSlope), tape.of(client, Slope)):
        assert isinstance(asked, AskSlope)
        assert isinstance(said, Slope)
        if said.told:
            q = Gaussian(asked.h, unpack(asked.P, d))
            at = q.mean[None], q.covariance[None]
            terms.append(AtTheEnd(*at, said.gradient[None], unpack(said.curvature, d)[None], COMPUTED))
    return Seen(n, d, tuple(terms), centre, scale)


def singled(seen: Seen, column: int, zero: float, rows: int) -> Seen:
    """What is seen of the so many rows in which a covariate of two values, 0-based, is not `zero`, as of a client of their own.
    `zero`: value of all other rows, one less than these have."""
    flag = np.zeros(seen.d)
    flag[0], flag[column + 1] = seen.centre[column] - zero, seen.scale[column]
    value = (zero + 1 - seen.centre[column]) / seen.scale[column]
    parts = tuple(Singled(t, column + 1, value, flag, AT_OPTIMUM) for t in seen.terms if isinstance(t, Sites) and t.cov.ndim == 3)
    return Seen(rows, seen.d - 1, parts, np.delete(seen.centre, column), np.delete(seen.scale, column))


def as_it_was(tape: Tape, client: int, rows: Rows, seen: Seen, *, draws: int = DRAWS, seed: int = 0) -> Seen:
    """`seen` with 400 log-likelihoods at full precision at draws from the last q, as clients of open jobs once sent. For
    controls."""
    q = last_q(tape, seen.d)
    e = rng.normal(DRAWS * seen.d, key=rng.key(seed, "posterior", SHARED), client=SERVER).reshape(DRAWS, seen.d)[:draws]
    theta = q.mean + (e * q.sd if q.diagonal else e @ q.scale_tril.T)
    told = -np.logaddexp(0, (1 - 2 * rows.y)[:, None] * (rows.X @ theta.T)).sum(axis=0)
    return replace(seen, terms=(*seen.terms, Values(theta, told, EXACT)))


def last_q(tape: Tape, d: int) -> Gaussian:
    """The prior of a default job, N(0, 1), times all sites."""
    h: Array = np.zeros(d)
    P: Array | float = 0.0
    waiting: dict[int, SiteDelta] = {}
    for client, message in tape.heard:
        if isinstance(message, SiteDelta):
            waiting[client] = message
        elif isinstance(message, SiteApplied):
            h, P = h + message.alpha * waiting[client].dh, P + message.alpha * waiting[client].dP
    own = unpack(np.asarray(P), d)
    return Gaussian(h, own + (1.0 if own.ndim == 1 else np.eye(d)))


def sites_of(tape: Tape, client: int, d: int, rounds: int, damping: float) -> Sites | None:
    """Where a client's updates have led q: there its own part of the gradient is minus the cavity's (pvi.md, section 2)."""
    site_h: Array = np.zeros(d)
    site_P: Array | float = 0.0
    q = delta = None
    found = []
    for message in tape.of(client, QUpdate, SiteDelta, SiteApplied):
        if isinstance(message, QUpdate):
            q = message
        elif isinstance(message, SiteDelta):
            delta = message
        elif isinstance(message, SiteApplied) and q is not None and delta is not None:
            found.append((q, delta, site_h, site_P))
            site_h, site_P = site_h + message.alpha * delta.dh, site_P + message.alpha * delta.dP
    if not found:
        return None
    means, covs, gradients, curvatures = [], [], [], []
    for q, delta, site_h, site_P in found[:rounds]:
        h, P = q.h + delta.dh / damping, unpack(q.P + delta.dP / damping, d)
        Pc = unpack(q.P - site_P, d)
        hc = q.h - site_h
        mean = h / P if P.ndim == 1 else np.linalg.solve(P, h)
        means.append(mean)
        covs.append(1 / P if P.ndim == 1 else np.linalg.inv(P))
        gradients.append((Pc * mean if P.ndim == 1 else Pc @ mean) - hc)
        curvatures.append(P - Pc)
    return Sites(np.array(means), np.array(covs), np.array(gradients), np.array(curvatures), AT_OPTIMUM)


# --- solving them


@dataclass(frozen=True)
class Guess:
    """Rows that explain what was seen: (n, p) in units of the agreed scale, labels of +-1, and which of them the server would
    name; the rms residual in units of the noise; `seconds` of CPU and `starts` that it took."""

    x: Array
    sign: Array
    named: NDArray[np.bool_]
    misfit: float
    seconds: float
    starts: int

    @property
    def claimed(self) -> bool:
        """Whether the server would believe it."""
        return self.misfit < BELIEVED


BELIEVED = 30.0  # rms residual, in units of the noise
WITHIN = 0.05  # standard deviations that every cell of a row that is named may be off


@dataclass(frozen=True)
class Tries:
    """Several guesses, (B, n, p) rows and (B, d) sums [sum y, X'y], by their costs (B,), the least first.

    Labels are in every message through these sums alone: so rows are looked for without their labels, which come last.
    """

    x: Array
    sums: Array
    cost: Array

    def first(self, count: int) -> Tries:
        order = np.argsort(self.cost, kind="stable")[:count]
        return Tries(self.x[order], self.sums[order], self.cost[order])

    def with_(self, other: Tries) -> Tries:
        """Both, each local optimum once."""
        both = Tries(*(np.concatenate([getattr(one, name) for one in (self, other)]) for name in ("x", "sums", "cost")))
        both = both.first(len(both.cost))
        new = np.append(True, np.diff(np.log(both.cost + 1e-300)) > 1e-3)
        return Tries(both.x[new], both.sums[new], both.cost[new])


def _starts(seen: Seen, count: int, random: np.random.Generator) -> Tries:
    """Normal rows with the sums that are known."""
    n, p = seen.n, seen.d - 1
    x = random.standard_normal((count, n, p))
    for term in seen.terms:
        if isinstance(term, Sums):
            mean, spread = term.first / n, np.sqrt(np.maximum(term.second / n - (term.first / n) ** 2, 1e-12))
            x -= x.mean(axis=1, keepdims=True)
            x = mean + x * spread / np.maximum(x.std(axis=1, keepdims=True), 1e-12)
    return Tries(x, np.tile(np.append(n / 2, np.zeros(p)), (count, 1)), np.zeros(count))


def _moved(tries: Tries, count: int, random: np.random.Generator) -> Tries:
    """So many neighbours of the better ones: cells change places, rows are drawn anew or move apart, or all change a little."""
    parent = np.minimum(random.geometric(0.3, count) - 1, len(tries.cost) - 1)
    x = tries.x[parent].copy()
    _, n, p = x.shape
    for one in x:
        kind = random.integers(4)
        if kind == 0 and n > 1:
            for _ in range(random.integers(1, 4)):
                pair, j = random.choice(n, 2, replace=False), random.integers(p)
                one[pair, j] = one[pair[::-1], j]
        elif kind == 1 and n > 1:
            first, second = random.choice(n, 2, replace=False)
            away = random.standard_normal(p) * random.choice([0.3, 1.0])
            one[first] += away
            one[second] -= away
        elif kind == 2:
            some = random.choice(n, min(n, random.integers(1, 4)), replace=False)
            one[some] = 1.2 * random.standard_normal((len(some), p))
        else:
            one += random.choice([0.03, 0.1, 0.3]) * random.standard_normal((n, p))
    return Tries(x, tries.sums[parent], np.zeros(count))


BY_SQUARES = 1e-4  # noise down to which normal equations are good enough


def _descend(seen: Seen, tries: Tries, level: float, steps: int, ridge: float = 1e-6) -> Tries:
    """Levenberg-Marquardt of all at once, with noise of at least `level`: through QR where that is little."""
    b, n, p = tries.x.shape
    u = np.concatenate([tries.x.reshape(b, -1), tries.sums], axis=1)
    k = u.shape[1]
    prior = np.append(np.full(n * p, ridge), np.full(seen.d, ridge / 100))
    damp = np.full(b, 1e-2)

    def at(u: Array) -> tuple[Array, Array, Array]:
        r, J = seen.unlabelled(u[:, : n * p].reshape(b, n, p), u[:, n * p :], level)
        return (r * r).sum(axis=1) + (prior * u * u).sum(axis=1), r, J

    def step_of(r: Array, J: Array, u: Array, damp: Array) -> Array:
        width = np.sqrt((J * J).sum(axis=1) + prior) + 1e-300  # (b, k)
        if level >= BY_SQUARES:
            A = np.matmul(J.transpose(0, 2, 1), J)
            at = np.arange(k)
            A[:, at, at] += prior + damp[:, None] * width**2
            return np.linalg.solve(A, (np.einsum("bmk,bm->bk", J, r) + prior * u)[..., None])[..., 0]
        out = np.empty_like(u)
        for i in range(b):
            A = np.concatenate([J[i] / width[i], np.diag(np.sqrt(prior) / width[i]), np.sqrt(damp[i]) * np.eye(k)])
            Q, R = np.linalg.qr(A)
            out[i] = scipy.linalg.solve_triangular(R, Q.T @ np.concatenate([r[i], np.sqrt(prior) * u[i], np.zeros(k)])) / width[i]
        return out

    cost, r, J = at(u)
    for _ in range(steps):
        step = step_of(r, J, u, damp)
        longest = np.abs(step[:, : n * p]).max(axis=1, keepdims=True)
        new = u - step * np.minimum(1.0, 1.0 / np.maximum(longest, 1e-300))
        new_cost, new_r, new_J = at(new)
        better = new_cost < cost
        gained = np.where(better, 1 - new_cost / np.maximum(cost, 1e-300), 0.0)
        damp = np.clip(np.where(better, damp / 5, damp * 4), 1e-20, 1e8)
        u, r = np.where(better[:, None], new, u), np.where(better[:, None], new_r, r)
        J, cost = np.where(better[:, None, None], new_J, J), np.where(better, new_cost, cost)
        if (better & (gained < 1e-5)).all() or (damp >= 1e8).all():
            break
    return Tries(u[:, : n * p].reshape(b, n, p), u[:, n * p :], cost)


COARSE, MIDDLE, FINE = 1e-3, 3e-5, 1e-6  # noise that a search goes through
# noise, steps, how many go on
FIRST = ((3e-2, 60, 8), (3e-3, 40, 6), (COARSE, 40, 4), (1e-4, 40, 4), (1e-5, 40, 4), (FINE, 40, 4))
PATIENCE = 12  # times that it may try the neighbours of what it has, and gain nothing
KEPT = 8


def solve(seen: Seen, seconds: float, random: np.random.Generator, batch: int = 24, wanted: int = 3) -> Guess:
    """Rows by searches from many starts, and from neighbours of the best, with less and less noise, until `wanted` of them
    explain what was seen, or time is up. Only rows in which all that do agree are named: where the equations leave something
    open, solutions differ."""
    began, starts = time.process_time(), 0
    found: list[tuple[float, Array, Array]] = []
    finest = min(term.noise for term in seen.terms)

    def over() -> bool:
        return time.process_time() - began > seconds

    while True:
        best = _starts(seen, batch, random)
        for level, steps, keep in FIRST:
            best = _descend(seen, best, level, steps, 1e-3 if level > COARSE else 1e-6).first(keep)
        starts += batch
        level, stale = FINE, 0
        enough = float(seen.equations)  # a cost: rms residuals of one
        while True:
            while best.cost[0] < enough and level > finest:  # as good as can be told with so much noise
                level, stale = level / 10, 0
                best = _descend(seen, best, level, 40).first(KEPT)
            if stale == PATIENCE or level <= finest or over():
                break
            least = best.cost[0]
            near = _moved(best, 24, random)
            for noise, steps, keep in ((COARSE, 12, 12), (MIDDLE, 15, 6), (level, 25, 6)):
                near = _descend(seen, near, noise, steps).first(keep)
            starts += 24
            best = best.with_(near).first(KEPT)
            stale = 0 if best.cost[0] < 0.97 * least else stale + 1
        last = _descend(seen, best.first(2), 0.0, 200, 1e-8)
        r, _ = seen.unlabelled(last.x, last.sums)
        misfits = np.sqrt(np.mean(r * r, axis=1))
        found += [(float(misfit), x, sums) for misfit, x, sums in zip(misfits, last.x, last.sums)][: 1 + (not found)]
        found.sort(key=lambda one: one[0])
        del found[wanted:]
        believed = [one for one in found if one[0] < BELIEVED]
        if len(believed) >= wanted or over():
            break
    misfit, rows, sums = found[0]
    sign, sure = labels(rows, sums)
    sure &= any(term.of_sums(seen.d).any() for term in seen.terms)  # or nothing is said of labels
    named = (known(seen, rows, sign) < WITHIN) & sure if believed else np.zeros(seen.n, bool)
    for _, other, of_other in believed[1:]:
        named &= matched(np.column_stack([rows, sign]), np.column_stack([other, labels(other, of_other)[0]]))
    return Guess(rows, sign, named, misfit, time.process_time() - began, starts)


SAME_SUMS = 1e-4  # of labels
MOST_LABELS = 20  # rows whose labels are all tried


def labels(x: Array, sums: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Labels of +-1 whose [sum y, X'y] is nearest to `sums`, and which of them all labels share that are near: all are tried."""
    n = len(x)
    if n > MOST_LABELS:
        return -np.ones(n), np.zeros(n, bool)
    z = np.column_stack([np.ones(n), x])
    half = n // 2
    one, two = (((np.arange(2**m)[:, None] >> np.arange(m)) & 1).astype(float) for m in (half, n - half))
    away = np.zeros((len(one), len(two)))
    for first, second, told in zip((one @ z[:half]).T, (two @ z[half:]).T, sums):
        np.maximum(away, np.abs(first[:, None] + second - told), out=away)
    near = np.argwhere(away <= max(SAME_SUMS, away.min()))
    every = np.hstack([one[near[:, 0]], two[near[:, 1]]])
    i, j = np.unravel_index(away.argmin(), away.shape)
    return 2 * np.append(one[i], two[j]) - 1, (every == every[0]).all(axis=0)


def matched(one: Array, other: Array) -> NDArray[np.bool_]:
    """Which rows of `one` the other has too, one for one."""
    away = np.abs(one[:, None] - other[None]).max(axis=2)
    rows, columns = scipy.optimize.linear_sum_assignment(np.minimum(away, 2 * WITHIN))
    out = np.zeros(len(one), bool)
    out[rows] = away[rows, columns] <= WITHIN
    return out


def recovered(guess: Guess, x: Array, y: Array) -> int:
    """Rows of the truth (n, p) that are named, label and all."""
    told = np.column_stack([guess.x, guess.sign])[guess.named]
    return int(matched(np.column_stack([x, 2 * y - 1]), told).sum()) if len(told) else 0


def known(seen: Seen, x: Array, sign: Array) -> Array:
    """(n,) how well each row is determined, by whoever solves the equations: the largest standard deviation of its cells given
    all messages, at these rows and labels of +-1, where N(0, 1) is all that is known of a cell beforehand."""
    _, J = seen.system(z_of(x[None], sign[None]), sign[None])
    J = J[0]
    _, s, V = np.linalg.svd(J, full_matrices=False)
    left = 1 - np.einsum("ki,ki->i", V, V)  # directions of which nothing is said
    variance = np.maximum(left, 0) + np.einsum("ki,k->i", V * V, 1 / (1 + s * s))
    return np.sqrt(variance).reshape(x.shape).max(axis=1)


def by_eigenvectors(seen: Seen) -> Guess:
    """Rows of a client with no more of them than coefficients, of a job with a full covariance: no start, no solver.

    Curvatures are sums of k_i z_i z_i' with other k_i at each q: what makes two of them diagonal makes rows of one (Jennrich).
    """
    began = time.process_time()
    (sites,) = (term for term in seen.terms if type(term) is Sites)
    one, other = sites.curvature[0], sites.curvature[1:].mean(axis=0)
    value, vector = np.linalg.eigh(one)
    half = vector[:, -seen.n :] * np.sqrt(value[-seen.n :])  # (d, n), half half' = one
    inverse = np.linalg.pinv(half)
    _, turn = np.linalg.eigh(inverse @ other @ inverse.T)
    directions = half @ turn  # each +-sqrt(k_i) z_i
    weight = np.linalg.lstsq(directions, sites.gradient[0], rcond=None)[0]  # the gradient is a sum of z_i with weights above 0
    z = directions * np.sign(weight)
    sign = np.sign(z[0])
    x = (z[1:] / z[0]).T
    r, _ = seen.only(Sites).system(z_of(x[None], sign[None]), sign[None])
    misfit = float(np.sqrt(np.mean(r * r)))
    return Guess(x, sign, np.full(seen.n, misfit < 1e6), misfit, time.process_time() - began, 1)


# --- a map's counts


@dataclass(frozen=True)
class Map:
    """What a server knows of a spatial job before it starts: the prior, which is made of the map alone, and the exposures."""

    model: SigmaModel  # of the job, with the units that `Level` has told
    # files, offsets, X: of each client its part of the map; log exposures and covariates of its areas, in the map's order
    files: tuple[WithinFile, ...]
    offsets: tuple[Array, ...]
    X: tuple[Array, ...]

    def site(self, client: int, y: Array, last: Last = None) -> WithinSite:
        """What the client would compute of these counts; `last` beside them where they are intervals, or have noise."""
        rows = AreaRows(y, np.arange(len(y)), self.X[client], self.offsets[client], last=last)
        site = self.model.site(self.files[client], rows)
        assert isinstance(site, WithinSite)
        return site

    def slopes(self, client: int, y: Array, xi: Array) -> Array:
        """(m, P) what the client would answer at xi (m, P)."""
        return self.site(client, y).log_joint_grads(xi, np.zeros((len(xi), 0)))[1]

    def terms(self, client: int, y: Array, xi: Array) -> Array:
        """(m,) its log-likelihoods, as `LogTerms` has them."""
        site, key = self.site(client, y), rng.key(self.model.config.job.seed, "posterior", LOCAL)
        normals = (rng.normal(INNER * len(y), key=key, client=client, step=k).reshape(INNER, len(y)) for k in range(len(xi)))
        return np.array([site.log_marginal(x, e) for x, e in zip(xi, normals)])


LOCAL = 1002  # chain of the stream "posterior", from which a client draws its own unknowns for `LogTerms`


def of_map(tape: Tape, config: Config, names: Sequence[str], folder: Path, offsets: Sequence[Array], X: Sequence[Array]) -> Map:
    """From the job file, the prior's files, public exposures and covariates, and the level that all parties were told."""
    told = [m for _, m in tape.heard if isinstance(m, Level)][-1]
    encoding = Encoding.from_dict(tape.texts(0, Agreed)[-1])
    model = SigmaModel(config, tuple(names), encoding, read_server(folder).common, Units(told.level, told.scale))
    files = tuple(read_own(folder, name) for name in names)
    assert all(isinstance(file, WithinFile) for file in files)
    return Map(model, tuple(f for f in files if isinstance(f, WithinFile)), tuple(offsets), tuple(X))


def told_counts(
    tape: Tape, known: Map, clients: Sequence[int], rounds: int, random: np.random.Generator, starts: int = 8
) -> tuple[Array, float]:
    """Counts of these clients from the sum of their gradients of the first rounds, and what they leave of it."""
    xi = gradients(tape, clients[0], rounds)[0]
    told = np.sum([gradients(tape, k, rounds)[1].ravel() for k in clients], axis=0)

    def of(client: int) -> Predicted:
        return lambda y: known.slopes(client, y, xi).ravel()

    start = [np.exp(known.offsets[k] + known.model.units.level) for k in clients]
    return counts([of(k) for k in clients], told, start, random=random, starts=starts)


def gradients(tape: Tape, client: int, rounds: int) -> tuple[Array, Array]:
    """xi (m, P) of the first rounds, and what this client answered."""
    xi = [m.xi for m in tape.of(client, Global) if isinstance(m, Global)][:rounds]
    g = [m.gradient for m in tape.of(client, GlobalGradientBound, GlobalGradient) if hasattr(m, "gradient")][:rounds]
    return np.concatenate(xi), np.concatenate(g)


STEP = 1e-4


@contextmanager
def to_the_end() -> Iterator[None]:
    """Inside, fixed points of a client's own unknowns are followed further than clients do: slopes by differences need it."""
    before, within_site.CLOSE = within_site.CLOSE, 1e-9
    try:
        yield
    finally:
        within_site.CLOSE = before


Predicted = Callable[[Array], Array]  # what would have been told, of any counts of one client


def counts(
    predicted: Sequence[Predicted],
    told: Array,
    start: Sequence[Array],
    *,
    random: np.random.Generator,
    starts: int = 8,
    steps: int = 30,
) -> tuple[Array, float]:
    """Whole numbers of several clients that explain the sum of what they told, and how much they leave (largest residual).

    Plain Gauss-Newton in their logarithms, which may climb on its way, from `start` and from places about it; rounded, and mended
    by ones. The best of all by what is left.
    """
    sizes = np.cumsum([len(one) for one in start])[:-1]
    begin = np.concatenate(start)
    best, left = np.round(begin), np.inf

    def of(y: Array) -> Array:
        parts = [one(own) for one, own in zip(predicted, np.split(y, sizes))]
        return np.sum(parts, axis=0) - told

    for attempt in range(starts):
        y = begin * np.exp(0.4 * random.standard_normal(len(begin)) * (attempt > 0))
        near, off = y, np.inf
        with to_the_end():
            for _ in range(steps):
                r = of(y)
                if (size := float(np.linalg.norm(r))) < off:
                    near, off = y, size
                columns = [
                    (one(own * np.exp(e)) - one(own * np.exp(-e))) / (2 * STEP)
                    for one, own in zip(predicted, np.split(y, sizes))
                    for e in STEP * np.eye(len(own))
                ]
                step = np.linalg.lstsq(np.stack(columns, axis=1), r, rcond=1e-12)[0]
                y = np.clip(y * np.exp(-np.clip(step, -1, 1)), 0.05, 1e6)
                if np.abs(step).max() < 1e-4:
                    break
        whole, off = _by_ones(of, np.round(near))
        if off < left:
            best, left = whole, off
        if left < SAME:
            break
    return best, left


SAME = 1e-9  # what is left where counts are those that were used: two computations of the same numbers


def _by_ones(of: Predicted, y: Array) -> tuple[Array, float]:
    """Changes one count after the other by one while that leaves less."""
    off = float(np.abs(of(y)).max())
    while off > SAME:
        tries = [np.maximum(y + change, 0) for e in np.eye(len(y)) for change in (e, -e)]
        left = [float(np.abs(of(one)).max()) for one in tries]
        if min(left) >= off:
            break
        y, off = tries[int(np.argmin(left))], min(left)
    return y, off


# --- a site of a sparse model: its second moments from its draws, whose random numbers are functions of the job's seed


@dataclass(frozen=True)
class Moments:
    """Second moments (p + 1, p + 1) of a site's centred [X y] in the job's units, and the largest residual of its draws."""

    gram: Array
    misfit: float
    rounds: int

    @property
    def difference(self) -> Array:
        """Of two rows, all that there is of them: (p + 1,) up to its sign."""
        value, vector = np.linalg.eigh(self.gram)
        return np.asarray(np.sqrt(2 * max(value[-1], 0.0)) * vector[:, -1])


def moments(
    tape: Tape, client: int, *, seed: int, rows: int, rounds: int, random: np.random.Generator, starts: int = 20
) -> Moments:
    """A site's second moments that make its draws of the first rounds what they were: each is a function of them and of random
    numbers that the job's seed gives everybody (docs/concepts/bits.md).

    The draws leave one factor f open (f G and f X'y, and f y'y + 2 (f - 1) rate), which `ColumnMoments` tells.
    """
    (squared,) = (m for m in tape.of(client, ColumnMoments) if isinstance(m, ColumnMoments))
    (scaling,) = (m for m in tape.of(client, Scaling) if isinstance(m, Scaling))
    asked = [m for m in tape.of(client, Globals) if isinstance(m, Globals)][: rounds + 1]
    told = [m for m in tape.of(client, Locals) if isinstance(m, Locals)][: rounds + 1]
    c, p = told[0].deviation.shape
    upper = np.triu_indices(p + 1)
    cells = len(upper[0])
    n = float(rows - 1)

    def residuals(x: Array) -> Array:
        T = np.zeros((p + 1, p + 1))
        T[upper] = x[:cells]
        sigma_sq = np.exp(np.clip(x[cells:], -20, 20))
        out = []
        for k in range(1, len(told)):
            before = told[k - 1].deviation + asked[k - 1].theta - asked[k].theta
            d, _, sigma_sq, _ = shrinkage.local_sweeps(
                T[:p, :p], T[:p, p], float(T[p, p] ** 2), n, asked[k].theta, asked[k].tau_sq, before, told[k - 1].lambda_sq,
                sigma_sq, seed=seed, client=client, step=k, draw="gram",
            )  # fmt: skip
            out.append((d - told[k].deviation).ravel())
        return np.concatenate(out)

    best, least = np.zeros((p + 1, p + 1)), np.inf
    for _ in range(starts):
        T = np.linalg.qr(random.standard_normal((max(rows - 1, p + 1), p + 1)) * np.sqrt(rows / max(rows - 1, p + 1)), mode="r")
        try:
            fit = scipy.optimize.least_squares(
                residuals,
                np.concatenate([T[upper], np.zeros(c)]),
                x_scale="jac",
                ftol=1e-15,
                xtol=1e-15,
                gtol=1e-15,
                max_nfev=100,
            )
        except (NumericalError, ValueError, np.linalg.LinAlgError):
            continue
        if (left := float(np.abs(fit.fun).max())) < least:
            T = np.zeros((p + 1, p + 1))
            T[upper] = fit.x[:cells]
            best, least = T.T @ T, left
        if least < 1e-11:
            break
    f = float(best[0, 0] / (squared.squares[0] / scaling.scales[0] ** 2))
    best[p, p] -= 2 * (f - 1)
    return Moments(best / f, least, rounds)


def logistic_draws(tape: Tape, client: int, X: Array, y: Array, *, seed: int, rounds: int) -> Array:
    """What is left of a logistic site's draws (T, c, p) by those that rows X, centred and scaled, and y would have led to: all of
    its random numbers are functions of the job's seed, too."""
    asked = [m for m in tape.of(client, Globals) if isinstance(m, Globals)]
    told = [m for m in tape.of(client, Locals) if isinstance(m, Locals)]
    c, p = told[0].deviation.shape
    before, scale, alpha, out = np.full((c, p), 0.01), np.ones((c, p)), np.zeros(c), []
    for k in range(rounds):
        d, scale, alpha, _ = shrinkage.logistic_sweeps(
            X, y, asked[k].theta, asked[k].tau_sq, before, scale, alpha, seed=seed, client=client, step=k
        )
        out.append(d - told[k].deviation)
        before = told[k].deviation + asked[k].theta - asked[k + 1].theta
    return np.array(out)


# --- structural equations: log-likelihoods of chains at coefficients that are sent beside them


def loglik_rows(
    tape: Tape, client: int, *, seed: int, rows: int, p: int, random: np.random.Generator, seconds: float, shape: float = 2.0,
    rate: float = 1.0, most: int = 400,
) -> tuple[Array, float, float]:  # fmt: skip
    """Centred rows (n, p) up to the sign of each, which explain the log-likelihoods of tempered chains; the rms residual; CPU.

    b_j = (rate + power S_j) / gamma_j with S_j the sum of the equation's absolute residuals, and gamma_j from the job's seed.
    """
    asked = [m for m in tape.of(client, GlobalsTempered) if isinstance(m, GlobalsTempered)][:most]
    local = [m for m in tape.of(client, Locals) if isinstance(m, Locals)][:most]
    told = np.stack([m.loglik for m in tape.of(client, Loglik) if isinstance(m, Loglik)][:most])  # (T, c)
    t, c = told.shape
    off = ~np.eye(p, dtype=bool)
    B = np.broadcast_to(np.eye(p), (t, c, p, p)).copy()
    B[..., off] -= np.stack([a.theta + m.deviation for a, m in zip(asked, local)]).reshape(t, c, -1)
    power = np.stack([a.temperature for a in asked])
    gamma = np.empty((t, c, p))
    for chain in range(c):
        key = rng.key(seed, "variances", chain)
        for k in range(t):
            gamma[k, chain] = rng.gamma(np.full(p, shape + power[k, chain] * rows), key=key, client=client, step=k)
    log_det = np.linalg.slogdet(B)[1]

    def at(Y: Array) -> tuple[Array, Array]:
        e = np.einsum("tcjk,ik->tcij", B, Y)
        S = np.abs(e).sum(axis=2)
        b = (rate + power[..., None] * S) / gamma
        value = rows * (log_det - np.log(2 * b).sum(axis=-1)) - (S / b).sum(axis=-1)
        slope = -rows * power[..., None] / (gamma * b) - rate / (gamma * b * b)
        J = np.einsum("tcj,tcij,tcjk->tcik", slope, np.sign(e), B)
        return (value - told).ravel(), J.reshape(t * c, rows * p)

    began, best, least = time.process_time(), np.zeros((rows, p)), np.inf
    while time.process_time() - began < seconds:
        Y = random.standard_normal((rows, p))
        damp = 1e-2
        r, J = at(Y)
        for _ in range(80):
            A, g = J.T @ J, J.T @ r
            step = np.linalg.solve(A + damp * np.diag(np.diag(A) + 1e-9), g).reshape(Y.shape)
            new_r, new_J = at(Y - step)
            if new_r @ new_r < r @ r:
                Y, r, J, damp = Y - step, new_r, new_J, max(damp / 5, 1e-12)
            else:
                damp *= 4
                if damp > 1e9:
                    break
        if (left := float(np.sqrt(np.mean(r * r)))) < least:
            best, least = Y, left
        if least < 1e-7:
            break
    return best, least, time.process_time() - began


def scales(tape: Tape, client: int) -> Array:
    """What the columns of a sparse job are divided by."""
    (message,) = (m for m in tape.of(client, Scaling) if isinstance(m, Scaling))
    return message.scales


def matched_up_to_sign(truth: Array, told: Array) -> int:
    """How many rows (n, p) were told, each up to its sign."""
    away = np.minimum(*(np.abs(truth[:, None] - sign * told[None]).max(axis=2) for sign in (1, -1)))
    rows, columns = scipy.optimize.linear_sum_assignment(np.minimum(away, 2 * WITHIN))
    return int((away[rows, columns] <= WITHIN).sum())


def counts_of_terms(
    known: Map, client: int, xi: Array, told: Array, random: np.random.Generator, seconds: float
) -> tuple[Array, float]:
    """Counts of a client from its log-likelihoods at xi (m, P); `seconds` of CPU."""
    began, best, left = time.process_time(), np.zeros(0), np.inf
    start = np.exp(known.offsets[client] + known.model.units.level)
    while time.process_time() - began < seconds and left > SAME:
        begin = start if not len(best) else start * np.exp(0.4 * random.standard_normal(len(start)))
        y, off = counts([lambda y: known.terms(client, y, xi)], told, [begin], random=random, starts=1, steps=12)
        if off < left:
            best, left = y, off
        if left < 1e-3:
            break
    return best, left
