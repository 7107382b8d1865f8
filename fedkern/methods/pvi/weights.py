"""Compares q with the pooled posterior, and scores rows without themselves, at draws that all parties make alike.

Both are for open jobs. The server sends the released q once; a client answers with its log-likelihood at draws from it, and where
the job asks, with sums of its leave-one-out densities. Source: docs/concepts/convergence.md, "Whether it is right".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.rounding import DIGITS
from ...algorithms.core.rounds import in_order, summed
from ...algorithms.exchanges import terms
from ...algorithms.exchanges.sums import NO_ROWS, LooSums
from ...algorithms.pvi import machine as pvi
from ...errors import owned
from ...jobs.run import Run
from ...models.expfam import Gaussian, pack, unpack
from ...models.glm import Rows, log_likelihood, total_log_likelihood
from ...models.saturated import LIMIT
from ...results import guard, lines, loo
from ...results.gaussian import Posterior, label
from ...results.reweighed import Reweighed, reweigh
from . import stages
from .keys import Config
from .model import Model, Server
from .publish import Checked

Array = NDArray[np.float64]

SHARED = 1001  # chain of the stream "posterior": released draws have the first 1,000


def exchange_terms(run: Run[Config], model: Model, server: Server | None, rows: Mapping[int, Rows]) -> Checked:
    """Asks the clients and compares, at the server's place; the result is empty elsewhere."""
    if not model.output.reweigh:
        return Checked()
    question = None
    if server is not None and not server.lost:
        q = pvi.released(server)
        question = terms.AskTermsOf(0, q.h, pack(q.P))
    clients = {k: once.Client(partial(_answer, model, own, k)) for k, own in rows.items()}
    told, clients = run.ask(stages.weighed(model), terms.QUESTION_OF, question, clients)
    weights, drawn, notes = None, None, list[str]()
    if told is not None:
        notes = [f"no k-hat: client {model.telling[k]!r} is not in it, for {why}" for k, why in sorted(told.dropped.items())]
    if server is not None and told is not None and told.complete and not model.answers:
        least = model.least_rows
        notes = [f"no k-hat: clients may have as few as {least} rows, of which so many numbers would tell too much"]
    elif server is not None and told is not None and told.complete:
        weights, drawn = _compared(model, pvi.released(server), in_order(told.replies))
    if not model.output.loo:
        # Leave-one-out sums are a second question, of clients that know q from the first.
        return Checked(weights, None, tuple(notes), lines=drawn)
    known, asks = {k: (k, client.asked) for k, client in clients.items()}, told is not None and told.asks
    left_out = lambda own: _left_out(model, rows[own[0]], own[1])  # noqa: E731
    asked = run.collect(stages.left_out(model), LooSums, known, left_out, asks=asks)
    if asked is None:
        return Checked(weights, None, tuple(notes), lines=drawn)
    if not asked.asks:
        return Checked(weights, None, (*notes, "no leave-one-out sums: a client was lost"), lines=drawn)
    content, said = loo.told(asked, model.telling)
    return Checked(weights, content, (*notes, *said), lines=drawn)


@guard.check("the weights of q", (None, None))
def _compared(model: Model, q: Gaussian, told: Sequence[terms.LogTermsOf]) -> tuple[Reweighed, lines.Lines | None]:
    """Compares q with the pooled posterior: clients' answers and the prior add up to its log density at each point."""
    points, likelihood = _shared(model, q), summed(reply.values for reply in told)
    theta, n = points[: model.weighed_draws], model.weighed_draws
    posterior = likelihood + model.prior.log_density(points)
    rounding = len(model.names) * 10.0**-DIGITS  # of the answers
    suffix = "_std" if model.encoding.standardised else ""
    labels = [label(name, suffix) for name in model.encoding.names]
    weights = reweigh(labels, theta, posterior[:n] - q.log_density(theta), rounding)
    return weights, lines.fit_lines([labels[j] for j in _lined(model, q)], posterior[n:]) if model.lined else None


def _q(model: Model, asked: terms.AskTermsOf) -> Gaussian:
    """Returns the released q, as a client was told it."""
    return Gaussian(asked.h, unpack(asked.P, model.encoding.size))


def _posterior(model: Model, q: Gaussian) -> Posterior:
    """Returns q as a posterior on the model's scale."""
    return Posterior(model.encoding.names, q)


def _shared(model: Model, q: Gaussian) -> Array:
    """Returns the (answers, d) points at which all clients are asked: draws from q, and points on lines through its mean."""
    drawn = _posterior(model, q).draws(model.weighed_draws, seed=model.seed, chain=SHARED)
    if not model.lined:
        return drawn
    return np.concatenate([drawn, lines.points(q.mean, q.covariance, _lined(model, q))])


def _lined(model: Model, q: Gaussian) -> list[int]:
    """Returns the coefficients whose lines are asked for: those of which rows tell least, where not all can be."""
    return sorted(np.argsort(-q.sd, kind="stable")[: model.lined].tolist())


def _answer(model: Model, rows: Rows, client: int, asked: terms.AskTermsOf) -> terms.LogTermsOf:
    """Computes a client's log-likelihoods at the shared points."""
    if model.box is not None:
        model.box.check_q(asked.h, asked.P, type(asked).__name__)
    if not model.answers:  # it is told q for its leave-one-out sums
        return terms.make_reply_of_q(asked, np.zeros(0))
    with owned(client):
        points = _shared(model, _q(model, asked))
        return terms.make_reply_of_q(asked, total_log_likelihood(rows, points, model.family, model.scale, _least(model)))


def _least(model: Model) -> float:
    """Returns what a row's log-likelihood is at least."""
    return -LIMIT if model.secure else -np.inf


def _left_out(model: Model, rows: Rows, asked: terms.AskTermsOf | None) -> LooSums:
    """Computes leave-one-out sums of a client's rows about the q that it was told, at the draws that posterior.nc has."""
    if asked is None:
        return NO_ROWS
    drawn, output = _posterior(model, _q(model, asked)), model.output
    theta = np.concatenate([drawn.draws(output.draws, seed=model.seed, chain=c) for c in range(output.chains)])
    family, scale = model.family, model.scale
    told = partial(log_likelihood, theta=theta, family=family, scale=scale, least=_least(model))
    return loo.sums(len(rows), lambda at: told(rows.take(np.arange(at.start, at.stop))))
