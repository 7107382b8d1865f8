"""Makes the result that the server publishes: the posterior, its verdict, each client's state, and notes for a reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.pvi import client_level, noise_aware
from ...algorithms.pvi import machine as pvi
from ...finding import Finding
from ...jobs.publish import Fit
from ...models.expfam import Gaussian
from ...models.glm import Rows, averaged, metrics, tested
from ...results import guard, unseen
from ...results.gaussian import Posterior
from ...results.plain import Record
from ...results.verdict import Check, Verdict, against, not_judged
from . import client_noise, linear, linearised, pull, response
from .arrival import Arrived, find_reversed, judge_arrival
from .model import Model, Server

MEAN, SD = 0.1, 0.05  # by how many sds a mean may move that has settled, and by what part an sd
FAR_ENOUGH = 0.95  # of the way that updates lead q
ASTRAY = 3.0  # sds from where the last steps were: beyond it a line is not trusted
# A clip that cuts about 1 % of a logistic job's rows, in lengths of a row whose columns have standard deviation 1 (measured.md).
SPARING_CLIP = 1.1


@dataclass(frozen=True)
class Ended:
    """Holds the server's knowledge after the last round."""

    server: Server  # its machine's last state
    # the sums of each client's noisy gradients, where the posterior is made of them; None elsewhere
    noisy_sums: noise_aware.Server | None
    arrived: Arrived | None = None  # how far q is from the posterior of all rows; None in a private job
    doubts: tuple[str, ...] = ()  # reasons why no result of these files can stand


def _released(model: Model, ended: Ended, estimate: noise_aware.Estimate | None) -> Gaussian:
    """Returns the q that is published."""
    if isinstance(ended.server, client_level.Server):
        return client_noise.with_noise(ended.server)
    return pvi.released(ended.server) if estimate is None else estimate.q


def _on_data_scale(model: Model, q: Gaussian) -> Posterior:
    """Returns q with coefficients of all levels."""
    return Posterior(model.encoding.names, q, model.encoding.affine() if model.encoding.standardised else None)


def bare(model: Model, ended: Ended, test: Rows | None) -> Fit:
    """Makes the result without anything that is judged or said of it."""
    output, encoding, server, updates = model.output, model.encoding, ended.server, model.updates(ended.server)
    dropped = model.dropped(server)
    estimate, without = _estimate(model, ended)
    q = _released(model, ended, estimate)
    return Fit(
        posterior=replace(_on_data_scale(model, q), coding=model.coding),
        arrays=arrays(model, server, q),
        stop="updates" if server.stop == "budget" and not server.refused else str(server.stop),
        rounds=server.round,
        clients={name: _client(model, server, k, int(updates[k]), dropped.get(name, 0)) for k, name in enumerate(model.names)},
        chains=output.chains,
        draws=output.draws,
        encoding=encoding.to_dict(),
        notes=_of_estimate(model, estimate, without),
    )


@guard.check("the judging of the result", bare)
def fit(model: Model, ended: Ended, test: Rows | None) -> Fit:
    """Makes the published result, apart from the certificates. `ended`: the server's last state, and the answers that came after
    the rounds; `test`: rows of the server, by which the result is scored."""
    made, encoding, server = bare(model, ended, test), model.encoding, ended.server
    estimate = _estimate(model, ended)[0]
    q = _released(model, ended, estimate)
    # A verdict of the posterior itself comes first; doubts of the files are stronger.
    verdict = (
        _of_noise(model, estimate, pvi.released(server).mean) if model.with_noise else _verdict(model, server, ended.arrived)
    )
    turned = find_reversed(model, server, ended.arrived)
    found = [turned.doubt if turned else "", ended.arrived.doubt if ended.arrived else ""]
    verdict = against([*ended.doubts, *filter(None, found)], verdict)
    scores, scored = _scores(model, q, test)
    return replace(
        made,
        verdict=verdict,
        metrics=scores,
        notes=[
            *([turned.note] if turned else []),
            *_remarks(model, server, q),
            *_of_dropped(model, server),
            *_of_behind(model, server),
            *([TRIALS] if model.trials else []),
            *response.notes(model.response, encoding),
            *made.notes,
            *_unseen(model),
        ],
        more=scored,
    )


def _unseen(model: Model) -> list[str]:
    """Returns the note on contradictions between the clients of a private job, which noise hides."""
    hidden = model.privacy is not None and len(model.names) > 1
    return [unseen.describe("noise of privacy looks like differences")] if hidden else []


@guard.figure("scores of the test rows", ({}, {}))
def _scores(model: Model, q: Gaussian, test: Rows | None) -> tuple[Mapping[str, float], dict[str, object]]:
    """Returns metrics on the server's test rows, and the entries of summary.json beside them."""
    if test is None:
        return {}, {}
    method = averaged(private=model.privacy is not None)
    scored = tested(q, test, model.family, model.scale, method)
    return metrics(q, test, model.family, model.scale, method), {"test": scored}


@guard.check("the verdict", not_judged("no check is known"))
def _verdict(model: Model, server: Server, arrived: Arrived | None) -> Verdict:
    """Judges q. In an open job the distance from the posterior of all rows decides, and whether a learnt scale has settled.

    Without that distance it is judged by whether q still moves, and whether its updates have gone far enough, from released
    numbers alone.
    """
    if (of_scale := _of_learning(model, server)) is not None:
        return of_scale
    judged = judge_arrival(model, arrived)
    if judged is None or judged.converged == "not judged":
        moved = _of_movement(model, server)
        return moved if judged is None or moved.converged is False else judged
    return judged.also(*_assumed(model))


def _assumed(model: Model) -> list[Check]:
    """Says which standard deviation of the errors intervals of a linear job assume, where it has not been learnt."""
    assumed = linear.assumed(model)
    return [Check(assumed, "settled")] if assumed else []


def _of_movement(model: Model, server: Server) -> Verdict:
    """Judges a q by its movement; in a private linear job it adds what the intervals assume, and any doubt of it."""
    judged = _of_course(model, server)
    if not linear.is_private(model):
        return judged
    doubts = [*linear.of_file(model), *filter(None, [linear.of_level(model, pvi.released(server).mean)])]
    return judged.also(*(Check(doubt, "not judged") for doubt in doubts), *_assumed(model))


def _of_course(model: Model, server: Server) -> Verdict:
    """Judges by q's last movement, and in a private job by how far its updates have gone from the prior."""
    if isinstance(server, client_level.Server):  # whole clients: q has all of the noise of each round
        return client_noise.judge(model, server)
    moved = None if model.settings.variant == "bcm-split" else pvi.moved(server, server.round)
    if moved is None:
        return not_judged("a single round")
    worst = int(np.argmax(np.maximum(moved.mean / MEAN, moved.sd / SD)))
    name = model.encoding.names[worst]
    mean, sd = float(moved.mean[worst]), float(moved.sd[worst])
    judged = Verdict((
        Check(Finding.of("q-moved", name=name, moved=mean, wanted=MEAN), "settled" if mean <= MEAN else False, name),
        Check(Finding.of("sd-of-q-moved", name=name, moved=sd, wanted=SD), "settled" if sd <= SD else False, name),
    ))  # fmt: skip
    gone = None if model.privacy is None else model.progress(int(min(server.updates)))
    if gone is not None:
        found = Finding.of("updates-have-gone", gone=gone, wanted=FAR_ENOUGH)
        judged = judged.also(Check(found, "settled" if gone >= FAR_ENOUGH else False, name))
    return judged


def _of_learning(model: Model, server: Server) -> Verdict | None:
    """Judges a learnt scale: while it still moves, it takes all intervals with it. None where it has settled, or none is
    learnt."""
    if model.response.variance is None or not isinstance(server, pvi.Server) or response.is_exact(model.response):
        return None
    by = abs(server.rescaled - 1) / model.settings.damping
    if server.round > 1 and by <= SD:
        return None
    moved = f"moved by {by:.1%} (wanted {SD:.0%})" if server.round > 1 else "is learnt from the second round on"
    return Verdict.of(False, f"the standard deviation of the errors {moved}: raise job.rounds = {server.round}")


TRIALS = (
    "successes of trials: intervals are those of trials that are independent given the columns; where trials of one row are "
    "alike, as patients of one ward, they are too narrow, and nothing here tells"
)
LACKING = "no client's noisy sums are enough for a posterior that contains the noise: this one does not"


@guard.check("the noise in the posterior", not_judged("no check is known"))
def _of_noise(model: Model, estimate: noise_aware.Estimate | None, mean: NDArray[np.float64]) -> Verdict:
    """Judges a noise-aware posterior: whether the last steps were near enough to it, and its curvature is known well enough.

    Parameters
    ----------
    estimate : the posterior that contains the noise; None where no client's sums are enough
    mean : (d,) of q after the last round
    """
    if estimate is None:
        return Verdict.of(False, LACKING)
    if doubts := list(filter(None, (_cutting(model), linearised.doubt(model, estimate, mean)))):
        return Verdict(tuple(Check(doubt, "not judged") for doubt in doubts))
    ask = np.maximum(estimate.moved / ASTRAY, estimate.curvature_error / linearised.DOUBTFUL)
    worst = int(np.argmax(ask))
    away, error = float(estimate.moved[worst]), float(estimate.curvature_error[worst])
    name = model.encoding.names[worst]
    wanted = {"wanted": ASTRAY, "wanted_error": linearised.DOUBTFUL}
    found = Finding.of("from-the-last-steps", name=name, away=away, error=error, **wanted)
    if float(ask[worst]) <= 1:
        return Verdict((Check(found, "settled", name), *_assumed(model)))
    remedy = linear.late(model, worst) if away > ASTRAY else linear.of_long_clips(model)
    return Verdict((Check(found, False, name), *([Check(remedy, False)] if remedy else [])))


def _cutting(model: Model) -> str:
    """Says that a clip is likely to cut rows of a logistic job, from public numbers; "" where it is not.

    In a linear job residuals are cut on both sides, and no bias was seen.
    """
    if model.family != "bernoulli" or model.privacy is None:
        return ""
    longer = sum(max(share, 1 - share) / min(share, 1 - share) - 1 for share in model.declared_binary.values())
    length = math.sqrt(float(model.encoding.spread.sum()) + longer)
    clips = {model.privacy.of(name).clip: name for name in model.names}
    clip, name = min((clip, name) for clip, name in clips.items() if clip is not None)
    if clip >= SPARING_CLIP * length:
        return ""
    return (
        f"clip = {clip:g} of client {name!r} cuts rows, which are about {length:.2g} long where columns have standard deviation "
        f"1{' and binary ones their rarer value' if longer else ''}; that shifts means, is in no interval, and more rows do not "
        f"mend it (wanted at least {_up(SPARING_CLIP * length):.2g})"
    )


def _up(value: float) -> float:
    """Rounds up to two digits: somebody who gives the printed number has given enough."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digit * (1 - 1e-12)) * digit


LITTLE = "too little is known of their noisy sums"


def _estimate(model: Model, ended: Ended) -> tuple[noise_aware.Estimate | None, dict[int, str]]:
    """Returns the posterior that contains the noise, and for each client that is not in it the reason.

    The posterior is None where the job asks for none, or no client's sums are enough.
    """
    design, answers = model.design_of_sums(model.names[0]), ended.noisy_sums
    if design is None or answers is None:
        return None, {}
    used = {k: (sums, model.noise(model.names[k])) for k, sums in answers.replies.items() if sums.late}
    without = {k: LITTLE for k in range(len(model.names)) if k not in used} | dict(answers.dropped)
    estimate, improper = noise_aware.posterior_of(design, model.prior, used)
    return estimate, without | improper


@guard.figure("notes on the noise", [])
def _of_estimate(model: Model, estimate: noise_aware.Estimate | None, without: Mapping[int, str]) -> list[str]:
    """Returns the notes for a reader of a noise-aware posterior."""
    if not model.with_noise:
        return []
    few = [model.names[k] for k, why in sorted(without.items()) if why == LITTLE]
    notes = [f"{', '.join(few)}: not in the result, for {LITTLE}"] if few and (estimate or len(few) < len(model.names)) else []
    notes += [f"{model.names[k]}: not in the result, for {why}" for k, why in sorted(without.items()) if why != LITTLE]
    if estimate is None:
        return [*notes, LACKING]
    worst = int(np.argmax(estimate.curvature_error))
    error, name = float(estimate.curvature_error[worst]), model.encoding.names[worst]
    if error > linearised.DOUBTFUL:
        remedy = linear.of_long_clips(model) or "raise epsilon"
        notes.append(f"the noise hides by how much intervals should narrow: {error:.0%} standard error for {name}; {remedy}")
    return notes


@guard.figure("notes on clients and on the prior's pull", [])
def _remarks(model: Model, server: Server, q: Gaussian) -> list[str]:
    """Returns notes for a reader of the result: clients that are not in it, and coefficients at which the prior pulls."""
    updates = model.updates(server)
    without = [name for k, name in enumerate(model.names) if k in server.refused and not updates[k]]
    notes = [f"{', '.join(without)}: not in the result, for no update of theirs fits their budgets"] if without else []
    for k, name in enumerate(model.names):
        if k in server.lost and updates[k]:
            certificate = "" if model.privacy is None else ", and it has told no certificate"
            notes.append(f"client {name!r} was lost after {updates[k]} updates: they are in this result{certificate}")
    if model.privacy is not None:  # there noise alone can carry them away
        return [*notes, *linearised.of_clip(model), *linear.notes(model)]
    return notes + pull.notes(model.published, q, model.prior, model.given, model.encoding.intercept)


def arrays(model: Model, server: Server, q: Gaussian) -> dict[str, NDArray[np.float64]]:
    """Returns the arrays of which the digest is made: the released h and P, and the sites where the server has each client's."""
    by_client = isinstance(server, pvi.Server) and not model.secure
    sites = {"site_h": server.site_h, "site_P": server.site_P} if by_client and isinstance(server, pvi.Server) else {}
    return {"h": q.h, "P": q.P, **sites}


def _client(model: Model, server: Server, client: int, updates: int, dropped: int) -> dict[str, Any]:
    """Returns how a client ended ("lost", "budget spent" or "finished"), of a lost one whether its updates are in q, and how many
    of its answers are not, if any."""
    more: dict[str, Any] = {"dropped": dropped} if dropped else {}
    if isinstance(server, pvi.Server) and model.settings.schedule == "asynchronous":
        course = server.schedule.course(client)
        more |= {"mean_age": course.ages / max(course.answers, 1), "oldest": course.oldest, "waits": course.waits}
    if isinstance(server, pvi.Server) and (stored := server.back.get(client, 0)) > pvi.TOLD:
        more["came_back"] = "with its site" if stored == pvi.SAME else "with another site; the server's stands"
    if client in server.lost:
        return {"updates": updates, "status": "lost", "in_result": updates > 0, **more}
    return {"updates": updates, "status": "budget spent" if client in server.refused else "finished", **more}


def so_far(model: Model, server: pvi.Server, without: Sequence[str]) -> Record:
    """Returns the posterior of a job that goes on, of all clients but these."""
    q = response.to_data_units(pvi.released(server), model)
    parameters = replace(_on_data_scale(model, q), coding=model.coding).parameters()
    return {"updates": server.schedule.version, "without": list(without), "parameters": parameters}


def _of_behind(model: Model, server: Server) -> list[Finding]:
    """Returns a note of the clients that answered far less often than others."""
    behind = server.behind if isinstance(server, pvi.Server) else {}
    return [Finding.of("client-far-behind", clients=[(model.names[k], n) for k, n in behind.items()])] if behind else []


def _of_dropped(model: Model, server: Server) -> list[str]:
    """Returns a note of the answers that are in no result, with their numbers by client."""
    dropped = model.dropped(server)
    if not dropped:
        return []
    n = sum(dropped.values())
    came = n + int(model.updates(server).sum())
    why, remedy = "they left no proper posterior", "damp the updates more (algorithm.damping)"
    paid = "" if model.privacy is None else "; their privacy is spent all the same"
    by_client = ", ".join(f"{name} {count}" for name, count in dropped.items())
    return [f"{n} of {came} answers are not in the result ({by_client}), for {why}{paid}: {remedy}"]
