"""What clients of method "likelihood" tell in rounded numbers: how well each of their rows is determined, by derivatives.

The machines of server and clients run a job; the questions are those that its first client was asked, and the noise of each
number of its answers is that of its unit. A cell is moved a little, and the answers with it. Counts and labels are given to
whoever solves the equations. A row counts as told where all of its cells are known to `curious.WITHIN` standard deviations. Of
logistic rows the answers are equations for `curious.solve`, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import OF_QUADRATICS, OF_VALUES, AskNormal, of_derivatives, of_draws, power, told
from fedkern.algorithms.importance.summaries import average
from fedkern.arrays import Array
from fedkern.models.expfam import packed
from fedkern.models.mixed import Prior, Rows

from .curious import OF_ROUNDING, AtPoints, InUnits, Seen, Sites, Sums, Values, z_of
from .rounded_jobs import Played

STEP, EXACT = 1e-4, 1e-8  # of a cell; of a sum that travels whole
RESPONSE = -1  # in the place of a column
BACK: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {  # responses that are cells, and their scale
    "gaussian": (lambda y: y, lambda t: t),
    "student": (lambda y: y, lambda t: t),
    "gamma": (np.log, np.exp),
    "lognormal": (np.log, np.exp),
    "inverse-gaussian": (np.log, np.exp),
    "beta": (lambda y: np.log(y / (1 - y)), lambda t: 1 / (1 + np.exp(-t))),
}


@dataclass(frozen=True)
class Numbers:
    """The answers of a client as functions of its rows, each over the noise of its unit."""

    # at, of_value, of_gradient, of_hessian: points at which derivatives are told, and their units
    at: Array
    of_value: float
    of_gradient: Array
    of_hessian: Array
    # draws, of_draws: and at which values are, with theirs
    draws: Array
    of_draws: Array

    @classmethod
    def of(cls, job: Played, rows: Rows) -> Numbers:
        """Those of the client with these rows."""
        s = job.settings
        _, _, hessian = rows.curvature(job.at, s.nodes)
        each = zip(hessian, job.at, job.priors, strict=True)
        units = [of_derivatives(own, prior.curvature(xi)[2], s.clients) for own, xi, prior in each]
        of_gradient, of_hessian = (np.array(one) for one in zip(*units, strict=True))
        alike = s.clients * rows.values(job.draws, s.nodes) + job.priors[-1].values(job.draws)
        at_draws = np.split(np.arange(len(job.draws)), max(1, len(job.draws) // s.per_question))
        far = [s.needed_at_draws(k) * of_draws(job.draws[some], alike[some]) for k, some in enumerate(at_draws) if len(some)]
        of_values = power(np.concatenate([*far, np.zeros(0)]))
        return cls(job.at, float(power(s.needed())), of_gradient, of_hessian, job.draws, of_values)

    def told(self, rows: Rows, nodes: int) -> Array:
        """(m,) All numbers, of rows that may be some of the client's: answers are sums over groups."""
        value, gradient, hessian = rows.curvature(self.at, nodes)
        parts = [
            value / self.of_value,
            (gradient / self.of_gradient).ravel(),
            packed(hessian / self.of_hessian).ravel(),
            rows.values(self.draws, nodes) / self.of_draws,
        ]
        return np.concatenate(parts) / OF_ROUNDING


class Curved(Protocol):
    """Is what a summary is added to."""

    def curvature(self, xi: Array) -> tuple[Any, ...]:
        """Returns its value, gradient and minus its Hessian."""


@dataclass(frozen=True)
class Averaged:
    """The same of rows that take part by derivatives alone: where nothing is known, and then each averaged over the normal that
    those before it say, as `importance.summaries` does it of sums. Units are those of the question's own normal."""

    # at, covariances: of these questions; of the first the covariance is the prior's, and a point is asked
    at: Array
    covariances: Array

    @classmethod
    def of(cls, rows: Rows, questions: int, beside: Curved | None = None) -> Averaged:
        """Those that rows are asked; `beside`: what is known beside their answers, by default the prior alone."""
        prior, mode = Prior.usual(rows.layout) if beside is None else beside, rows.layout.start
        for _ in range(50 if beside is not None else 0):
            _, slope, curved = prior.curvature(mode)
            mode = mode + np.linalg.solve(curved, slope)
        at, covariances = [mode], [np.linalg.inv(prior.curvature(mode)[2])]
        while len(at) < questions:
            _, gradient, hessian = asked_of(rows, at[-1], covariances[-1], point=len(at) == 1)
            for _ in range(50):  # of the quadratic and the prior
                _, of_prior, more = prior.curvature(mode)
                mode = mode + np.linalg.solve(hessian + more, gradient - hessian @ (mode - at[-1]) + of_prior)
            at.append(mode)
            covariances.append(np.linalg.inv(hessian + prior.curvature(mode)[2]))
        return cls(np.array(at), np.array(covariances))

    def told(self, rows: Rows, nodes: int) -> Array:
        """(m,) All numbers."""
        every = []
        for k, (at, covariance) in enumerate(zip(self.at, self.covariances, strict=True)):
            value, gradient, hessian = asked_of(rows, at, covariance, point=k == 0)
            of_gradient, of_hessian = of_derivatives(np.linalg.inv(covariance), np.zeros_like(covariance), 1)
            every += [[value / float(power(OF_VALUES))], gradient / of_gradient, packed((hessian / of_hessian)[np.newaxis])[0]]
        return np.concatenate(every) / (OF_QUADRATICS * OF_ROUNDING)


def asked_of(rows: Rows, at: Array, covariance: Array, *, point: bool) -> tuple[float, Array, Array]:
    """Value, gradient and minus the Hessian at a point, or averaged over a normal."""
    if point:
        value, gradient, hessian = rows.curvature(at[np.newaxis], 1)
    else:
        value, gradient, hessian, _ = average(
            lambda xi: rows.curvature(xi, 1), AskNormal(1, 1, at, packed(covariance[np.newaxis])[0]), 0
        )
    return float(value[0]), gradient[0], hessian[0]


class Asked(Protocol):
    """Is questions that a client is asked."""

    def told(self, rows: Rows, nodes: int) -> Array:
        """Returns (m,) all numbers, of rows that may be some of the client's."""


def known(job: Played | Asked, rows: Rows, columns: list[int] | None = None) -> Array:
    """(n,) as `curious.known`: the largest standard deviation of a row's cells in these columns of X, and of its response if
    that is a cell, given all answers and the sums and squares of the columns, and of the response."""
    n, family = len(rows), rows.layout.family
    numbers, nodes = (Numbers.of(job, rows), job.settings.nodes) if isinstance(job, Played) else (job, 1)
    columns = [*range(1, rows.X.shape[1])] if columns is None else columns
    as_cell = BACK.get(family)
    J, ends = [], rows.starts if rows.n_groups > 1 else np.arange(n + 1)
    for first, last in pairwise(ends):
        for row in range(last - first):
            for column in columns if as_cell is None else [*columns, RESPONSE]:
                both = []
                for step in (STEP, -STEP):
                    X, y = rows.X[first:last].copy(), rows.y[first:last].copy()
                    if as_cell is not None and column == RESPONSE:
                        there, back = as_cell
                        y[row] = back(there(y[row]) + step)
                    else:
                        X[row, column] += step
                    mates = replace(rows.take(np.arange(first, last), np.array([0, last - first])), X=X, y=y)
                    of_y = [] if as_cell is None else [y.sum(), y @ y]
                    sums = [X[:, columns].sum(axis=0), (X[:, columns] ** 2).sum(axis=0), np.array(of_y)]
                    both.append(np.concatenate([numbers.told(mates, nodes), np.concatenate(sums) / EXACT]))
                J.append((both[0] - both[1]) / (2 * STEP))
    _, s, V = np.linalg.svd(np.linalg.qr(np.array(J).T, mode="r"), full_matrices=False)
    left = 1 - np.einsum("ki,k,ki->i", V, s**2 / (1 + s**2), V)
    return np.asarray(np.sqrt(np.maximum(left, 0)).reshape(n, -1).max(axis=1))


# --- logistic rows without groups: equations, which a solver takes


def told_by(term: AtPoints | Sites | Values, rows: Rows, units: Array) -> InUnits:
    """The equations of numbers that a client with these rows tells in units; those of `term` itself are 0."""
    sign = 2 * rows.y - 1
    return InUnits(term, told(term.residuals(z_of(rows.X[None, :, 1:], sign[None]), sign[None])[0][0], units), units)


def seen(job: Played, rows: Rows, *, summary: bool = False, most: int = 4096) -> Seen:
    """All that a logistic client tells in its rounds: at points and draws (at `most` of these), or by a summary at the mode and
    about it."""
    numbers, (n, d) = Numbers.of(job, rows), rows.X.shape
    sums = Sums(rows.X[:, 1:].sum(axis=0), (rows.X[:, 1:] ** 2).sum(axis=0), EXACT)
    found = importance.read_result(job.server)
    of_gradient, of_hessian = numbers.of_gradient, numbers.of_hessian
    at, covariance = numbers.at, np.asarray(np.linalg.inv(found.precision))[np.newaxis]
    if summary:
        at, of_gradient, of_hessian = found.mode[np.newaxis], OF_QUADRATICS * of_gradient[-1:], OF_QUADRATICS * of_hessian[-1:]

    def term(kind: type[Sites], covariance: Array) -> InUnits:
        none = np.zeros((len(at), d)), np.zeros((len(at), d, d))
        units = np.concatenate([of_gradient.ravel(), packed(of_hessian).ravel()])
        return told_by(kind(at, covariance, *none, 1.0), rows, units)

    terms: list[Sums | InUnits] = [sums, term(AtPoints, np.zeros((len(at), d, d)))]
    if summary:
        terms.append(term(Sites, covariance))
    else:
        terms.append(told_by(Values(at, np.zeros(len(at)), 1.0), rows, np.full(len(at), numbers.of_value)))
        some = np.linspace(0, len(numbers.draws) - 1, min(most, len(numbers.draws))).round().astype(int)
        terms.append(told_by(Values(numbers.draws[some], np.zeros(len(some)), 1.0), rows, numbers.of_draws[some]))
    return Seen(n, d, tuple(terms), np.zeros(d - 1), np.ones(d - 1))
