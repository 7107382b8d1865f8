"""Asks whether the released q of an open job has reached the posterior of all rows, in place and in width.

A client answers with the gradient of its rows and their curvature X'WX. Let g be the gradient of sum E_q[l] - KL(q || prior) in
q's mean, and A = prior precision + X'WX its curvature. One Newton step A^-1 g is, to first order, the distance that q still has
to go. The roots of A^-1's diagonal are the standard deviations at the end; those of a diagonal q are 1 / sqrt(A_dd), however its
columns are correlated. Source: docs/concepts/convergence.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...algorithms.core import once
from ...algorithms.core.kept import PersistentMap
from ...algorithms.exchanges import arrival
from ...algorithms.exchanges.arrival import AWAY, WIDTH
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi.local import slope
from ...arrays import Array
from ...errors import owned
from ...finding import Finding
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...kernels.families import FAMILIES
from ...models.expfam import Gaussian, pack, unpack
from ...models.glm import Rows
from ...results import given_scales, guard, other_way
from ...results.verdict import Check, Verdict, not_judged
from . import keys
from .keys import Config
from .model import Model, Server


@dataclass(frozen=True)
class Arrived:
    """Holds the step from q to the posterior of all rows, or the reason (`why`) that it is not known."""

    step: arrival.Step | None
    why: str = ""
    # client -> its gradient and curvature at q, as far as they are known by client
    told: Mapping[int, arrival.Slope] = field(default_factory=dict)
    doubt: str = ""  # why center and scale of the job file do not fit the rows; "" where they do


def stage(model: Model) -> Stage | None:
    """Returns the exchange of gradients and curvatures; None in a private job, and with more than `MOST_FULL` coefficients."""
    d = model.encoding.size
    if model.privacy is not None or d > keys.MOST_FULL:
        return None
    return Stage.asking(arrival.Slope, {**model.settings.sizes(d), "t": d * (d + 1) // 2}, secure=model.secure)


def exchange_slopes(run: Run[Config], model: Model, server: Server | None, rows: Mapping[int, Rows]) -> Arrived | None:
    """Asks the clients for gradient and curvature at the released q. Returns at the server's place the step, or why it is not
    known; None elsewhere, and in a private job."""
    if model.privacy is not None:
        return None
    slope_stage = stage(model)
    if slope_stage is None:
        why = f"it has {model.encoding.size} coefficients, and X'WX is asked for up to {keys.MOST_FULL}"
        return Arrived(None, why)
    # After a loss q is not the posterior of all rows, so the server has no question.
    question = None
    if server is not None and not server.lost:
        q = pvi.released(server)
        question = arrival.AskSlope(0, q.h, pack(q.P))
    clients = {k: client(run, model, k, client_rows) for k, client_rows in rows.items()}
    answers, _ = run.ask(slope_stage, arrival.Slope.question, question, clients)
    if answers is None or server is None:
        return None
    by_client = {} if model.secure else {k: reply for k, reply in sorted(answers.replies.items()) if reply.told}
    answers = replace(answers, replies=PersistentMap({k: _in_data_units(model, answer) for k, answer in answers.replies.items()}))
    return replace(_judge_step(model, pvi.released(server), answers), told=by_client)


def client(run: Run[Config], model: Model, k: int, rows: Rows) -> once.Client[arrival.AskSlope, arrival.Slope]:
    """Makes the client that answers with its gradient and X'WX, or with nothing where it has too few rows."""

    unit = model.unit if model.secure else 1.0  # in which sums have room for what rows add, whatever the response's own

    def answer(query: arrival.AskSlope) -> tuple[Array, Array, int]:
        if model.box is not None:
            model.box.check_q(query.h, query.P, type(query).__name__)
        with owned(k):
            q = Gaussian(query.h, unpack(query.P, model.encoding.size))
            gradient, curvature, cut = slope(rows, model.settings, q, run.threads, unit)
            return gradient * unit, curvature * unit**2, cut

    compute = answer if tells(run, model, rows) else None
    return once.Client(lambda query: arrival.answer(query, compute))


def _in_data_units(model: Model, slope: arrival.Slope) -> arrival.Slope:
    """Returns an answer of all clients together, which is in the model's units, in the data's."""
    if not model.secure:
        return slope
    return replace(slope, gradient=slope.gradient / model.unit, curvature=slope.curvature / model.unit**2)


def tells(run: Run[Config], model: Model, rows: Rows) -> bool:
    """Returns whether a client may tell its X'WX: never in a private job, and only where it has enough rows.

    With a full covariance the messages of its sites tell X'WX already, and the rows were counted before. Where the server gets
    the sum alone, all clients tell: which have too few rows must not show.
    """
    if model.privacy is not None:
        return False
    if model.secure:
        return True
    counting = len(rows) if rows.weights is None else int((rows.weights != 0).sum())
    counting = counting if rows.units is None else rows.n_units  # a row of trials is two here, with the same columns
    return model.covariance == "full" or model.may_tell_curvature(counting)


@guard.check("the distance from the posterior of all rows", lambda *_: Arrived(None, "it could not be computed"))
def _judge_step(model: Model, q: Gaussian, replies: once.Server[arrival.Slope]) -> Arrived:
    """Returns the Newton step of all clients' answers, or the reason that an answer is missing."""
    names = model.telling
    if not replies.asks or replies.lost:
        return Arrived(None, "a client was lost before it was asked for its gradient")
    if replies.dropped:
        k, why = min(replies.dropped.items())
        return Arrived(None, f"client {names[k]!r} is not in it, for {why}")
    if silent := arrival.silent(replies):
        k = silent[0]
        if model.secure:
            n = 1 - replies.replies[k].told
            return Arrived(
                None,
                f"{n} rows of all clients add more at q than sums have room for (counts above 1e9, say, or large covariates that "
                "are not standardised); without job.sums the job takes them",
            )
        return Arrived(
            None,
            f"client {names[k]!r} has too few rows to tell X'WX of {model.encoding.size} coefficients (more than "
            f"{model.told_by_curvature} are wanted), without which nobody knows how wide the "
            "posterior of all rows is",
        )
    step = arrival.newton(model.prior, q, replies.replies)
    given = given_scales.given_columns(model.encoding, model.given_constants)
    doubt = ""
    if given and model.given.intercept:
        prior = np.diag(model.prior.P) if model.prior.diagonal else model.prior.P
        of_prior = model.prior.h - prior @ q.mean, prior
        of_rows = arrival.summed(replies.replies, q.d)
        doubt = given_scales.doubt(model.encoding.names, given, of_rows, of_prior, exact=not model.secure)
    return Arrived(step, "" if step else "the curvature of all rows is no precision of a posterior", doubt=doubt)


def judge_arrival(model: Model, arrived: Arrived | None) -> Verdict | None:
    """Returns the verdict on an open job's q by its distance from the posterior of all rows; None in a private job."""
    if arrived is None:
        return None
    step = arrived.step
    if step is None:
        return not_judged(arrived.why)
    names, away, width = model.encoding.names, step.away, step.width
    worst, narrow, wide = int(np.argmax(away)), int(np.argmin(width)), int(np.argmax(width))
    distance = Finding.of("q-from-posterior", name=names[worst], away=float(away[worst]), wanted=AWAY)
    checks = [Check(distance, "settled" if away[worst] <= AWAY else False, names[worst])]
    correlated = bool(width[narrow] < WIDTH and model.covariance == "diagonal")
    for k in sorted({narrow, wide}, key=lambda k: -abs(math.log(width[k]))):
        if k == narrow and correlated:
            found = Finding.of("narrow-by-correlation", name=names[k], factor=1 / float(width[k]))
            checks.append(Check(found, False, names[k]))
        elif not WIDTH <= width[k] <= 1 / WIDTH:
            found = Finding.of("sd-of-q", name=names[k], times=float(width[k]), least=WIDTH, most=1 / WIDTH)
            checks.append(Check(found, False, names[k]))
    if len(checks) == 1:
        found = Finding.of("sds-of-q", least=float(width[narrow]), most=float(width[wide]))
        checks.append(Check(found, "settled"))
    if any(check.word is False for check in checks):
        checks.append(Check(_remedy_of_width(model) if correlated else _remedy(model), False))
    return Verdict(tuple(checks))


def _remedy_of_width(model: Model) -> str:
    """Names the keys that let q have the width of the posterior."""
    full = 'take model.covariance = "full"'
    if model.one_posterior:
        return f'{full} with algorithm.variant = "pvi"'
    return full


def _remedy(model: Model) -> str:
    """Names the keys that bring q nearer to the posterior of all rows."""
    a = model.settings
    if a.variant == "bcm-split":
        return f'"{a.variant}" only combines posteriors: take algorithm.variant = "pvi"'
    if a.variant == "global-vi":
        return 'take algorithm.variant = "pvi" (with short steps thousands of job.rounds may be too few)'
    if a.optimiser != "exact":
        return 'give it more job.rounds, or algorithm.optimiser = "exact"'
    return "give it more job.rounds"


@guard.check("the coding of the response", None)
def find_reversed(model: Model, server: Server, arrived: Arrived | None) -> other_way.Reversed | None:
    """Returns the words on a client whose outcome of 0 and 1 seems to be coded the other way round; None where none does."""
    slopes, d = {} if arrived is None else arrived.told, model.encoding.size
    asks = FAMILIES[model.family].binary and model.given.intercept and not model.offset and d > 1
    if not asks or len(slopes) < 2:
        return None
    g = np.stack([slope.gradient for slope in slopes.values()])
    P = np.stack([unpack(slope.curvature, d) for slope in slopes.values()])
    sums = other_way.where_slopes_are_0(pvi.released(server).mean, g, P, range(1, d))
    return other_way.find(sums, [model.names[k] for k in slopes], model.encoding.response)
