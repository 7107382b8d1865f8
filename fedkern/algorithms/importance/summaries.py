"""Puts quadratics in the place of clients that are too small for values at draws: each takes part by a summary.

Such a client answers two questions, each once: its log-likelihood L, gradient and curvature at the mode that is known without it,
and then the averages of these over the normal approximation N(m, V) of the posterior, its first quadratic included. Over the
normal, the quadratic with gradient E[L'] and Hessian E[L''] at m, and the mean E[L], is the nearest to L of all quadratics in
mean square: by Stein's lemma these are the coefficients of its expansion in Hermite polynomials. That at the mode alone follows
the tangent. Averages are over Sobol's points and their mirror images, which any log-likelihood can be asked for.

By how far the mode moves from the quadratics before to the last ones is seen whether more questions would change it, and by how
much log-likelihoods differ from their quadratics over the normal whether the posterior is normal: where r nats remain in the
direction of one number, r a cubic Hermite polynomial, its variance is larger by 3 r^2.

Where sums are masked all clients together take part by a summary, or none does. Nobody else knows their mode, nor that of clients
who all take part by summaries: from the prior's on they are asked for averages over one normal after the other, until the mode
moves no more, as often as their rows allow. Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ...arrays import Array
from ...models.expfam import factor, packed, unpacked
from ..core.messages import RemoteFault, evolve
from ..core.nets import sobol
from .newton import Metric
from .settings import ASKED_OF_ALL, QUESTIONS, AskNormal, Curvature

AVERAGED, BLOCK = 2048, 64  # points of an average, and of them at once
MOVED, FAR = 0.1, 1.0  # posterior sds by which no mean moves where that is the posterior, or near it
REMAINS = 0.25  # nats, at most, by which log-likelihoods differ from their quadratics there: an sd is 10 % off
CELLS = 0.8  # of a client's cells, numbers that it may tell
CELLS_OF_ALL, CELLS_OF_ONE = 0.6, 0.4  # by more questions, and of all clients' but one's by sums; of a single column


@dataclass(frozen=True)
class Quadratics:
    """Holds a quadratic of each of s clients; before its first answer it is 0."""

    answered: Array  # (s,) questions that each has answered
    # at, value, gradient, hessian: (s, P), (s,), (s, P), (s, P, P) of each about its centre; minus the Hessian
    at: Array
    value: Array
    gradient: Array
    hessian: Array
    remains: Array  # (s,) nats by which each log-likelihood differs from it over the normal, by their standard deviation
    before: Array  # (P,) the mode by the quadratics of points

    @classmethod
    def none(cls, s: int, P: int) -> Quadratics:
        """Returns those of s clients that have not been asked."""
        return cls(np.zeros(s), np.zeros((s, P)), np.zeros(s), np.zeros((s, P)), np.zeros((s, P, P)), np.zeros(s), np.zeros(P))

    def due(self, most: int) -> list[int]:
        """Returns those that have answered least; none where all have answered so many."""
        least = self.answered.min(initial=most)
        return [] if least == most else np.flatnonzero(self.answered == least).tolist()

    def with_answer(self, i: int, point: Array, answer: Curvature) -> Quadratics:
        """Returns them with the next answer of the i-th, about `point`."""
        hessian = unpacked(answer.hessian, len(point))[0]
        parts = {
            "at": point,
            "value": answer.value[0],
            "gradient": answer.gradient[0],
            "hessian": hessian,
            "remains": answer.rule[0],
        }
        new = {name: getattr(self, name).copy() for name in (*parts, "answered")}
        for name, part in parts.items():
            new[name][i] = part
        new["answered"][i] += 1
        return evolve(self, **new)

    def curvatures(self, round: int, points: Array) -> list[Curvature]:
        """Returns the answers at points (c, P) that follow from them."""
        sloped = self._sloped(points)
        c, none = len(points), np.zeros(len(points))
        return [
            Curvature(round, value, gradient, np.tile(packed(hessian[np.newaxis]), (c, 1)), none)
            for value, gradient, hessian in zip(self.values(points), sloped, self.hessian, strict=True)
        ]

    def values(self, points: Array) -> Array:
        """Returns log-likelihoods (s, n) at points (n, P)."""
        off = points - self.at[:, np.newaxis]
        mean_slope = (self.gradient[:, np.newaxis] + self._sloped(points)) / 2
        return np.asarray(self.value[:, np.newaxis] + (mean_slope * off).sum(axis=2))

    def _sloped(self, points: Array) -> Array:
        """(s, n, P) gradients at points (n, P)."""
        off = points - self.at[:, np.newaxis]
        return np.asarray(self.gradient[:, np.newaxis] - off @ self.hessian)

    def judged(self, mode: Array, hessian: Array) -> tuple[float, float, float]:
        """Returns by how many posterior sds averages have moved any number of the mode; the summaries' share of the information,
        in the mean of all directions that the posterior takes apart; and the nats that remain, at most.

        `hessian`: minus that of the log-posterior at the mode.
        """
        B = Metric.of(hessian).factor
        moved = np.abs((mode - self.before) / np.sqrt((B**2).sum(axis=1))).max()
        return float(moved), float(np.trace(B.T @ self.hessian.sum(axis=0) @ B)) / len(mode), float(self.remains.sum())


def average(curved: Callable[[Array], tuple[Array, ...]], query: AskNormal, seed: int) -> tuple[Array, ...]:
    """Returns a log-likelihood's quadratic over a normal distribution, as `curved` at its mean has it. Raises RemoteFault: the
    question has no covariance matrix.

    Parameters
    ----------
    curved : points (c, P) -> the log-likelihood (c,), its gradients (c, P), minus its Hessians (c, P, P), and what else there is

    Returns
    -------
    value (1,), gradient (1, P) and minus the Hessian (1, P, P), and of all else the mean; then the nats (1,) by which it differs
    from this quadratic
    """
    P = len(query.mean)
    covariance = unpacked(query.covariance[np.newaxis], P)[0]
    try:
        L = np.tril(factor(covariance))
    except np.linalg.LinAlgError:
        raise RemoteFault("server: AskNormal.covariance is no covariance matrix") from None
    z = ndtri(sobol(AVERAGED // 2, P, (seed,)))
    steps = np.concatenate([z, -z]) @ L.T
    points = query.mean + steps
    several = [curved(points[begin : begin + BLOCK]) for begin in range(0, AVERAGED, BLOCK)]
    value, *more = (np.asarray(sum(block.sum(axis=0) for block in blocks))[np.newaxis] / AVERAGED for blocks in zip(*several))
    # At the mean the quadratic is above its own average.
    quadratic = steps @ more[0][0] - ((steps @ more[1][0]) * steps).sum(axis=1) / 2
    remains = np.std(np.concatenate([blocks[0] for blocks in several]) - quadratic)
    return value + (more[1] * covariance).sum() / 2, *more, remains[np.newaxis]


def told(P: int, questions: int = QUESTIONS) -> int:
    """Returns how many numbers a client with a summary of P unknowns tells in all, or all clients by their masked sums."""
    return questions * (1 + P + P * (P + 1) // 2)


def allowed(P: int, rows: float, columns: int) -> int:
    """Returns how many questions about P unknowns a client's rows of so many columns may answer; 0: not even those of a summary.

    Of each normal it also tells what remains.

    Examples
    --------
    >>> from fedkern.algorithms.importance.summaries import allowed
    >>> [allowed(4, rows, 3) for rows in (12, 13, 36, 44)]
    [0, 2, 4, 5]
    """
    if told(P) + QUESTIONS - 1 > CELLS * rows * columns:
        return 0
    share = CELLS_OF_ONE if columns == 1 else CELLS_OF_ALL
    return min(max(int((share * rows * columns + 1) / (told(P, 1) + 1)), QUESTIONS), ASKED_OF_ALL)


def merged(answers: list[Curvature], summed: list[Curvature], summaries: tuple[int, ...]) -> list[Curvature]:
    """Returns answers of clients and of summaries in client order."""
    of_summaries, others = dict(zip(summaries, summed, strict=True)), iter(answers)
    return [of_summaries[k] if k in of_summaries else next(others) for k in range(len(answers) + len(summed))]
