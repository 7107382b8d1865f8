"""Completes a job of a Cox model: writes each client's baseline hazards into its own folder, and exchanges sums and curves.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from ...algorithms.core import once
from ...algorithms.core.exchange import LEAST
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.answers import CumulativeHazards
from ...algorithms.exchanges.sums import AskPearson, PearsonSums, SurvivalSums
from ...algorithms.importance import machine as importance
from ...finding import Finding
from ...jobs.run import Run
from ...kernels import rng
from ...models import frailty, survival
from ...models.mixed.effects import DRAWN
from ...results import case_weights, guard
from ...results.verdict import Said
from ...results.weighted import summarised
from . import sites, time_units
from .keys import Config
from .own import OF_GROUPS, draw_secret_key, key_of_effects, of_kind
from .publish import Checked, join
from .time_models import CoxModel
from .times import Timed

Array = NDArray[np.float64]

NAIVE = (
    "intervals are of the likelihood of rows that count by column {!r}: where weights are no counts (data.weight_kind), R's "
    "coxph has robust ones, often wider"
)
KEPT, MEANS = "baseline.csv", "restricted_mean.csv"
TELLS = 0.1  # information of a score that is near normal: that of some five events, with time in -1/2 .. 1/2
UNLIKELY = 0.01  # of the least p of all coefficients, where hazards are proportional


class Ended(NamedTuple):
    """Holds a client's rows and draws at the end.

    Attributes
    ----------
    likelihood, labels : of its rows, and the labels of its strata
    told : (t, P) draws of the posterior
    nodes : draws by which effects of groups are integrated
    converged : whether the server's checks passed
    rows, points : the rows, and their coefficients at the draws, effects of groups among these
    fixed : the rows with the mean of these effects in the offset
    """

    likelihood: survival.Rows | frailty.Rows
    labels: tuple[str, ...]
    told: Array
    nodes: int
    converged: bool
    rows: survival.Rows
    points: Array
    fixed: survival.Rows


def complete(
    run: Run[Config],
    model: CoxModel,
    index: int,
    rows: Timed,
    likelihood: survival.Rows | frailty.Rows,
    machine: importance.Client,
) -> Ended:
    """Completes a client's draws, and writes its baseline hazards and its groups' effects into its folder."""
    assert machine.told is not None
    known = (likelihood, rows.labels, machine.told, machine.nodes, machine.converged)
    if isinstance(likelihood, frailty.Rows):
        key, t = key_of_effects(model, index, OF_GROUPS), len(machine.told)
        completed = likelihood.completed(machine.told, rng.uniform(t * DRAWN, key=key).reshape(t, DRAWN))
        if run.hooks.folder is not None:
            (grouping,), sizes = model.groupings, np.bincount(likelihood.codes, minlength=len(rows.groups))
            kind = of_kind(model, grouping, rows.groups, sizes, completed.effects, converged=machine.converged)
            run.hooks.folder.write_csv("groups.csv", kind, client=index)
        ended = Ended(*known, completed.rows, completed.points, completed.fixed)
    else:
        ended = Ended(*known, likelihood, machine.told[:, : likelihood.size], likelihood)
    _write(run, model, index, ended)
    return ended


def _write(run: Run[Config], model: CoxModel, client: int, ended: Ended) -> None:
    """baseline.csv, and restricted_mean.csv where the job asks for it, into the client's own folder."""
    folder = run.hooks.folder
    if folder is None:
        return
    k, key = len(ended.rows.sets.ends), rng.key(model.seed, "posterior", 1 + 3 * client)
    uniform = rng.uniform(len(ended.told) * k, key=key).reshape(len(ended.told), k)
    hazards = survival.baseline(ended.rows, ended.points, uniform)
    columns: dict[str, Any] = {"converged": [ended.converged] * k}
    if ended.labels:
        columns["stratum"] = [ended.labels[stratum] for stratum in hazards.stratum.tolist()]
    columns |= {"time": hazards.time.tolist(), "events": hazards.events.tolist(), "at_risk": hazards.at_risk.tolist()}
    for name, (mean, low, high) in (("cumulative_hazard", hazards.hazard), ("survival", hazards.survival)):
        columns |= {name: mean.tolist(), f"{name}_q025": low.tolist(), f"{name}_q975": high.tolist()}
    folder.write_csv(KEPT, columns, client=client)
    if (tau := model.output.restricted_mean) is not None:
        of_each = survival.restricted_means(ended.rows, ended.points, uniform, tau)
        columns = {"converged": [ended.converged] * len(of_each)}
        if ended.labels:
            columns["stratum"] = [ended.labels[stratum] for stratum in of_each]
        columns["until"] = [tau] * len(of_each)
        for k, name in enumerate(("restricted_mean", "restricted_mean_q025", "restricted_mean_q975")):
            columns[name] = [float(values[k]) for values in of_each.values()]
        folder.write_csv(MEANS, columns, client=client)


def exchange_checks(run: Run[Config], model: CoxModel, ended: Mapping[int, Ended]) -> Checked:
    """Asks clients for sums over their rows; returns the findings on the model at the server's place, nothing elsewhere.

    Responses that the model makes are not drawn: their times need baseline hazards, which the server does not have.
    """
    parts: list[Checked] = []
    server = run.collect(model.sums_stage, SurvivalSums, ended, _sums)
    if server is not None:
        parts.append(_of_hazards(model, server, run.hooks.sizes))
    for stage in model.weight_stages:
        weighed = run.collect(stage, PearsonSums, ended, _weight, AskPearson(0, np.zeros(0)))
        if weighed is not None:
            of_weights = _compare_weights(model, weighed.replies)
            parts.append(Checked({}, tuple(of_weights.notes), "; ".join(of_weights.doubts)))
    for stage in model.curve_stages:
        curves = run.collect(stage, CumulativeHazards, ended, _drawn(model))
        if curves is not None:
            parts.append(_of_curves(model, curves, run.names))
    alone = {k: sites.Alone(client_end.likelihood, client_end.told, client_end.nodes) for k, client_end in ended.items()}
    doubts = "; ".join(filter(None, [part.doubt for part in parts]))
    return join(replace(join(*parts), doubt=doubts), sites.exchange_modes(run, model, alone))


@guard.check("the checks of hazards", Checked())
def _of_hazards(model: CoxModel, server: once.Server[SurvivalSums], sizes: Sequence[int]) -> Checked:
    """Returns what the clients' sums say of the model; `sizes`: their rows, which they tell with numeric columns."""
    notes = once.not_in("the checks of hazards", server, model.telling)
    if nothing := [model.telling[k] for k, sums in sorted(server.replies.items()) if not sums.events]:
        notes.append(Finding.of("next-to-no-events", clients=nothing, least=LEAST))
    content, more = _content(model, in_order(server.replies))
    counts = sites.count_rows(model, model.telling, {k: {"events": sums.events} for k, sums in server.replies.items()})
    notes += more
    events: dict[int, dict[str, int]] = {}
    if not model.secure and sizes:
        events = {k: {"rows": sizes[k], "events": sums.events} for k, sums in server.replies.items() if sums.events}
    return Checked({**content, **counts}, tuple(notes), events=events)


@guard.check("the common curve", Checked())
def _of_curves(model: CoxModel, server: once.Server[CumulativeHazards], names: tuple[str, ...]) -> Checked:
    """Returns the curve of all clients, and whether their units of time are one."""
    notes = once.not_in("the common curve", server, names)
    telling = {k: reply for k, reply in sorted(server.replies.items()) if reply.hazards.any()}
    notes += _left_out({names[k]: reply.rows for k, reply in sorted(server.replies.items()) if k not in telling})
    found = time_units.of_curves([names[k] for k in telling], [*telling.values()], model.survival_at)
    notes += [reply for reply in found if not reply.doubt]
    return Checked(_average_curves(model, [*telling.values()]), tuple(notes), "; ".join(reply for reply in found if reply.doubt))


def _sums(ended: Ended) -> SurvivalSums:
    rows, beta = ended.fixed, ended.told[:, : ended.fixed.size].mean(axis=0)
    return SurvivalSums(0, rows.events, *survival.concordance(rows, beta), *survival.schoenfeld(rows, beta))


def _weight(ended: Ended) -> PearsonSums:
    """Returns a client's number of rows that have a weight, and their mean weight."""
    n, weights = len(ended.rows.X), ended.rows.weights  # rows that weigh nothing are left out before; None: each weighs 1
    mean = 1.0 if weights is None else float(weights.mean()) if n else 0.0
    return PearsonSums(0, n, mean if n else 0.0, 0.0, 0.0, 0.0, 0.0)


def _compare_weights(model: CoxModel, replies: Mapping[int, PearsonSums]) -> Said:
    """Returns what is to be said of the clients' weights."""
    assert model.weight is not None
    counts = model.counted_weights is not None
    weighed = {model.telling[k]: case_weights.Weighed(sums.rows, sums.weight) for k, sums in sorted(replies.items())}
    compared = case_weights.compare(model.weight, weighed, counts=counts)
    return compared if counts else compared._replace(notes=(*compared.notes, NAIVE.format(model.weight)))


def _drawn(model: CoxModel) -> Callable[[Ended], CumulativeHazards]:
    """The function that makes a client's cumulative hazards at the job's times, of the model's patient.

    Its random numbers are secret: with those of the seed the hazards would be equations for the rows.
    """
    times_wanted = np.array(model.survival_at)

    def hazards_of(ended: Ended) -> CumulativeHazards:
        k, beta = len(ended.rows.sets.ends), ended.points
        if not k:
            return CumulativeHazards(0, len(ended.rows), np.zeros((len(beta), len(times_wanted))))
        uniform = rng.uniform(len(beta) * k, key=draw_secret_key()).reshape(len(beta), k)
        times = np.exp(beta @ model.patient.row)[:, np.newaxis]
        return CumulativeHazards(0, len(ended.rows), times * survival.cumulative(ended.rows, beta, uniform, times_wanted))

    return hazards_of


def _left_out(rows: Mapping[str, int]) -> list[str]:
    """Returns the note on clients that have no baseline hazard; `rows`: name of such a client -> number of its rows."""
    return [Finding.of("not-in-curve", clients=[*rows.items()])] if rows else []


def _average_curves(model: CoxModel, replies: Sequence[CumulativeHazards]) -> dict[str, Any]:
    """`survival` of summary.json: the average over the clients' rows, each with its own client's baseline hazard, of the model's
    patient."""
    rows = np.array([reply.rows for reply in replies], np.float64)
    if not rows.sum():
        return {}
    share = rows / rows.sum()
    values = np.einsum("j,jst->st", share, [np.exp(-reply.hazards) for reply in replies])
    equal = np.full(len(values), 1 / len(values))
    rows_at = [{"time": t, **summarised(reply, equal)} for t, reply in zip(model.survival_at, values.T)]
    return {"survival": rows_at, **model.of_patient}


def _content(model: CoxModel, replies: Sequence[SurvivalSums]) -> tuple[dict[str, Any], list[str]]:
    """Entries of summary.json and notes: events, concordance, and z and p of each coefficient's slope in time.

    A slope is looked at in all clients together, and in each client, where it may have another sign; not so with secure sums.
    """
    pairs, right = (sum(getattr(reply, name) for reply in replies) for name in ("pairs", "right"))
    slopes, notes = {}, list[str]()
    for j, name in enumerate(model.encoding.names):
        score, information = (np.array([getattr(reply, what)[j] for reply in replies]) for what in ("score", "information"))
        of = information >= TELLS
        if information.sum() >= TELLS:
            z = float(score.sum() / information.sum() ** 0.5)
            slopes[name] = {"z": z, "p": float(2 * ndtr(-abs(z)))}
            if of.any() and not model.secure:  # where the server has no client's own score
                slopes[name]["p_of_clients"] = float(chdtrc(of.sum(), (score[of] ** 2 / information[of]).sum()))
    if apart := [
        (name, reply["p_of_clients"])
        for name, reply in slopes.items()
        if reply.get("p_of_clients", 1.0) < UNLIKELY / len(slopes) <= reply["p"]
    ]:
        notes.append(Finding.of("hazards-not-proportional-within", columns=apart))
    if changing := [(name, reply["p"]) for name, reply in slopes.items() if reply["p"] < UNLIKELY / len(slopes)]:
        notes.append(Finding.of("hazards-not-proportional", columns=changing))
    content: dict[str, Any] = {"events": sum(reply.events for reply in replies), "proportional_hazards": slopes}
    return content | ({"concordance": right / pairs} if pairs else {}), notes
