"""Completes a job of a Cox model: writes each client's baseline hazards into its own folder, and exchanges sums and curves.

Of events of several causes each has hazards, sums and a curve of its own; a curve is then of the chance to have had its event.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from ...algorithms.core import once
from ...algorithms.core.exchange import LEAST
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.answers import CumulativeHazards
from ...algorithms.exchanges.sums import AskPearson, PearsonSums, SurvivalSums
from ...algorithms.importance import machine as importance
from ...arrays import Array
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

NAIVE = (
    "intervals are of the likelihood of rows that count by column {!r}: where weights are no counts (data.weight_kind), R's "
    "coxph has robust ones, often wider"
)
KEPT, MEANS, CHANCES = "baseline.csv", "restricted_mean.csv", "incidence.csv"
TELLS = 0.1  # information of a score that is near normal: that of some five events, with time in -1/2 .. 1/2
UNLIKELY = 0.01  # of the least p of all coefficients, where hazards are proportional
LEAST_FREE = 1e-9  # as which a chance to be without event counts at least


class Ended(NamedTuple):
    """Holds a client's rows and draws at the end.

    Attributes
    ----------
    rows, labels : its rows, effects of groups among the coefficients, and the labels of its strata
    told : (t, ..) draws of these coefficients
    nodes : draws by which effects of groups are integrated
    converged : whether the server's checks passed
    key : secret, of the hazards that are told: with random numbers of the seed they would be equations for the rows
    alone : its likelihood, for the mode of its rows alone
    checked, fixed : the rows with the mean of groups' effects in the offset, and draws of their coefficients
    """

    rows: survival.Causes
    labels: tuple[str, ...]
    told: Array
    nodes: int
    converged: bool
    key: int
    alone: sites.Alone
    checked: survival.Causes
    fixed: Array

    def uniforms(self, key: int) -> list[Array]:
        """Returns (t, k) numbers by which the baseline hazards of each cause are drawn."""
        return self.rows.uniforms(lambda n: rng.uniform(n, key=key), len(self.told))

    @property
    def of_causes(self) -> Iterator[tuple[survival.Rows, Array]]:
        """The likelihood of each cause, and (t, p) draws of its coefficients."""
        return zip(self.rows.parts, self.rows.blocks(self.told), strict=True)


def complete(
    run: Run[Config],
    model: CoxModel,
    index: int,
    rows: Timed,
    likelihood: survival.Causes | frailty.Rows,
    machine: importance.Client,
) -> Ended:
    """Completes a client's draws, and writes its baseline hazards and its groups' effects into its folder."""
    assert machine.told is not None
    told = machine.told
    alone = sites.Alone(likelihood, told, machine.nodes)
    if isinstance(likelihood, frailty.Rows):
        key, t = key_of_effects(model, index, OF_GROUPS), len(told)
        completed = likelihood.completed(told, rng.uniform(t * DRAWN, key=key).reshape(t, DRAWN))
        if run.hooks.folder is not None:
            (grouping,), sizes = model.groupings, np.bincount(likelihood.codes, minlength=len(rows.groups))
            kind = of_kind(model, grouping, rows.groups, sizes, completed.effects, converged=machine.converged)
            run.hooks.folder.write_csv("groups.csv", kind, client=index)
        causes, points = survival.Causes(completed.rows.layout, (completed.rows,)), completed.points
        checked = survival.Causes(completed.fixed.layout, (completed.fixed,))
    else:
        causes, points, checked = likelihood, told, likelihood
    fixed = told[:, : checked.size]
    known = (machine.nodes, machine.converged, draw_secret_key(), alone, checked, fixed)
    ended = Ended(causes, rows.labels, points, *known)
    _write(run, model, index, ended)
    return ended


def _write(run: Run[Config], model: CoxModel, client: int, ended: Ended) -> None:
    """baseline.csv, the chances of causes, and restricted_mean.csv where the job asks for it, into the client's own folder."""
    folder = run.hooks.folder
    if folder is None:
        return
    uniforms = ended.uniforms(rng.key(model.seed, "posterior", 1 + 3 * client))
    pieces = list[dict[str, list[Any]]]()
    for cause, (rows, draws), uniform in zip(model.causes, ended.of_causes, uniforms, strict=True):
        hazards = survival.baseline(rows, draws, uniform)
        columns = _described(ended, hazards.stratum.tolist(), cause)
        columns |= {"time": hazards.time.tolist(), "events": hazards.events.tolist(), "at_risk": hazards.at_risk.tolist()}
        # Beside other causes exp(-H) is nobody's chance.
        of_survival = {} if cause else _named("survival", hazards.survival)
        pieces.append(columns | _named("cumulative_hazard", hazards.hazard) | of_survival)
    folder.write_csv(KEPT, _joined(pieces), client=client)
    if model.has_causes:
        pieces = [
            {
                **_described(ended, [stratum] * len(found.times), cause),
                "time": found.times.tolist(),
                **_named("incidence", chances),
            }
            for stratum, found in survival.incidences(ended.rows, ended.told, uniforms).items()
            for cause, chances in zip(model.causes, found.summaries, strict=True)
        ]
        folder.write_csv(CHANCES, _joined(pieces), client=client)
    if (tau := model.output.restricted_mean) is not None:
        of_each = survival.restricted_means(ended.rows.parts[0], ended.told, uniforms[0], tau)
        columns = {**_described(ended, [*of_each]), "until": [tau] * len(of_each)}
        columns |= _named("restricted_mean", np.array([*of_each.values()]).reshape(-1, 3).T)
        folder.write_csv(MEANS, columns, client=client)


def _described(ended: Ended, strata: Sequence[int], cause: str = "") -> dict[str, list[Any]]:
    """The first columns of a client's own table: of which cause and stratum each line is."""
    columns: dict[str, list[Any]] = {"converged": [ended.converged] * len(strata)}
    columns |= {"cause": [cause] * len(strata)} if cause else {}
    return columns | ({"stratum": [ended.labels[stratum] for stratum in strata]} if ended.labels else {})


def _named(name: str, summary: Array) -> dict[str, list[Any]]:
    """The columns of mean and quantiles (3, k)."""
    return dict(zip((name, f"{name}_q025", f"{name}_q975"), summary.tolist(), strict=True))


def _joined(pieces: Sequence[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Tables of the same columns, one below the other."""
    return {name: [value for piece in pieces for value in piece[name]] for name in (pieces[0] if pieces else ())}


def exchange_checks(run: Run[Config], model: CoxModel, ended: Mapping[int, Ended]) -> Checked:
    """Asks clients for sums over their rows; returns the findings on the model at the server's place, nothing elsewhere.

    Responses that the model makes are not drawn: their times need baseline hazards, which the server does not have.
    """
    parts: list[Checked] = []
    sums = [
        run.collect(model.sums_stage.with_alias(_alias("survival-sums", cause, k)), SurvivalSums, ended, partial(_sums, k))
        for k, cause in enumerate(model.causes)
    ]
    if answered := [server for server in sums if server is not None]:
        parts.append(_of_hazards(model, answered, run.hooks.sizes))
    for stage in model.weight_stages:
        weighed = run.collect(stage, PearsonSums, ended, _weight, AskPearson(0, np.zeros(0)))
        if weighed is not None:
            of_weights = _compare_weights(model, weighed.replies)
            parts.append(Checked({}, tuple(of_weights.notes), "; ".join(of_weights.doubts)))
    for stage in model.curve_stages:
        curves = [
            run.collect(stage.with_alias(_alias("hazard-curves", cause, k)), CumulativeHazards, ended, partial(_drawn, model, k))
            for k, cause in enumerate(model.causes)
        ]
        if drawn := [server for server in curves if server is not None]:
            parts.append(_of_curves(model, drawn, run.names))
    alone = {k: client_end.alone for k, client_end in ended.items()}
    doubts = "; ".join(filter(None, [part.doubt for part in parts]))
    return join(replace(join(*parts), doubt=doubts), sites.exchange_modes(run, model, alone))


def _alias(name: str, cause: str, k: int) -> str:
    """The name of a question that is asked of each cause."""
    return f"{name}-{k + 1}" if cause else ""


@guard.check("the checks of hazards", Checked())
def _of_hazards(model: CoxModel, servers: Sequence[once.Server[SurvivalSums]], sizes: Sequence[int]) -> Checked:
    """Returns what clients' sums of each cause say of the model; `sizes`: their rows, which they tell with numeric columns."""
    notes, events, of_causes = list[str](), dict[int, int](), dict[str, Any]()
    content: dict[str, Any] = {"events": 0, "proportional_hazards": {}}
    for cause, begin, server in zip(model.causes, model.blocks, servers, strict=True):
        notes += once.not_in("the checks of hazards", server, model.telling)
        if nothing := [model.telling[k] for k, sums in sorted(server.replies.items()) if not sums.events]:
            of = f" of cause {cause!r}" if cause else ""
            notes.append(Finding.of("next-to-no-events", clients=nothing, least=LEAST, of=of))
        slopes, of_cause, more = _content(model, begin, in_order(server.replies))
        notes += more
        content["events"] += of_cause["events"]
        content["proportional_hazards"] |= slopes
        of_causes[cause] = of_cause
        for k, sums in server.replies.items():
            events[k] = events.get(k, 0) + sums.events
    content |= {"of_causes": of_causes} if model.has_causes else of_causes[""]
    counts = sites.count_rows(model, model.telling, {k: {"events": n} for k, n in events.items()})
    compared: dict[int, dict[str, int]] = {}
    if not (model.secure or model.has_causes) and sizes:  # causes have names, which are not turned round
        compared = {k: {"rows": sizes[k], "events": n} for k, n in events.items() if n}
    return Checked({**content, **counts}, tuple(dict.fromkeys(notes)), events=compared)


@guard.check("the common curve", Checked())
def _of_curves(model: CoxModel, servers: Sequence[once.Server[CumulativeHazards]], names: tuple[str, ...]) -> Checked:
    """Returns the curves of all clients, of each cause, and whether their units of time are one."""
    notes = [*dict.fromkeys(note for server in servers for note in once.not_in("the common curve", server, names))]
    replies = {
        k: [server.replies[k] for server in servers]
        for k in sorted(servers[0].replies)
        if all(k in server.replies for server in servers)
    }
    of_any = {k: _of_any(of_client) for k, of_client in replies.items()}
    telling = {k: reply for k, reply in of_any.items() if reply.hazards.any()}
    notes += _left_out({names[k]: reply.rows for k, reply in of_any.items() if k not in telling})
    found = time_units.of_curves([names[k] for k in telling], [*telling.values()], model.survival_at)
    notes += [reply for reply in found if not reply.doubt]
    content = _average_curves(model, [*telling.values()])
    if content and model.has_causes:
        of_each = zip(*(replies[k] for k in telling), strict=True)
        content["incidence"] = {
            cause: _averaged(model, of, of_event=True) for cause, of in zip(model.causes, of_each, strict=True)
        }
    return Checked(content, tuple(notes), "; ".join(reply for reply in found if reply.doubt))


def _of_any(replies: Sequence[CumulativeHazards]) -> CumulativeHazards:
    """Returns a client's cumulative hazards of an event of any cause."""
    if len(replies) == 1:
        return replies[0]
    free = 1 + np.sum([np.expm1(-reply.hazards) for reply in replies], axis=0)
    return replace(replies[0], hazards=-np.log(np.maximum(free, LEAST_FREE)))


def _sums(k: int, ended: Ended) -> SurvivalSums:
    rows, beta = ended.checked.parts[k], ended.checked.blocks(ended.fixed)[k].mean(axis=0)
    return SurvivalSums(0, rows.events, *survival.concordance(rows, beta), *survival.schoenfeld(rows, beta))


def _weight(ended: Ended) -> PearsonSums:
    """Returns a client's number of rows that have a weight, and their mean weight."""
    n, weights = len(ended.rows), ended.rows.parts[0].weights  # rows that weigh nothing are left out before; None: each weighs 1
    mean = 1.0 if weights is None else float(weights.mean()) if n else 0.0
    return PearsonSums(0, n, mean if n else 0.0, 0.0, 0.0, 0.0, 0.0)


def _compare_weights(model: CoxModel, replies: Mapping[int, PearsonSums]) -> Said:
    """Returns what is to be said of the clients' weights."""
    assert model.weight is not None
    counts = model.counted_weights is not None
    weighed = {model.telling[k]: case_weights.Weighed(sums.rows, sums.weight) for k, sums in sorted(replies.items())}
    compared = case_weights.compare(model.weight, weighed, counts=counts)
    return compared if counts else compared._replace(notes=(*compared.notes, NAIVE.format(model.weight)))


def _drawn(model: CoxModel, k: int, ended: Ended) -> CumulativeHazards:
    """Returns a client's cumulative hazards at the job's times, of the model's patient.

    Of several causes they are H of the chance 1 - exp(-H) to have had an event of this one.
    """
    times, uniforms = np.array(model.survival_at), ended.uniforms(ended.key)
    if not any(uniform.size for uniform in uniforms):
        return CumulativeHazards(0, len(ended.rows), np.zeros((len(ended.told), len(times))))
    if not model.has_causes:
        moved = np.exp(ended.told @ model.patient.row)[:, np.newaxis]
        return CumulativeHazards(
            0, len(ended.rows), moved * survival.cumulative(ended.rows.parts[0], ended.told, uniforms[0], times)
        )
    found = survival.incidences(ended.rows, ended.told, uniforms, model.patient.row)
    strata = ended.rows.parts[0].strata
    chances = np.sum([(strata == stratum).mean() * of.chances_by(times)[k] for stratum, of in found.items()], axis=0)
    return CumulativeHazards(0, len(ended.rows), -np.log1p(-np.minimum(chances, 1 - LEAST_FREE)))


def _left_out(rows: Mapping[str, int]) -> list[str]:
    """Returns the note on clients that have no baseline hazard; `rows`: name of such a client -> number of its rows."""
    return [Finding.of("not-in-curve", clients=[*rows.items()])] if rows else []


def _average_curves(model: CoxModel, replies: Sequence[CumulativeHazards]) -> dict[str, Any]:
    """`survival` of summary.json: the average over the clients' rows, each with its own client's baseline hazard, of the model's
    patient."""
    if not sum(reply.rows for reply in replies):
        return {}
    return {"survival": _averaged(model, replies, of_event=False), **model.of_patient}


def _averaged(model: CoxModel, replies: Sequence[CumulativeHazards], *, of_event: bool) -> list[dict[str, float]]:
    """Of each of the job's times the average over the clients' rows of the chance to have had the event, or not."""
    rows = np.array([reply.rows for reply in replies], np.float64)
    chances = [-np.expm1(-reply.hazards) if of_event else np.exp(-reply.hazards) for reply in replies]
    values = np.einsum("j,jst->st", rows / rows.sum(), chances)
    equal = np.full(len(values), 1 / len(values))
    return [{"time": t, **summarised(reply, equal)} for t, reply in zip(model.survival_at, values.T)]


def _content(model: CoxModel, begin: str, replies: Sequence[SurvivalSums]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Returns z and p of each coefficient's slope in time, events and concordance, and notes; `begin`: of the names of the
    cause's coefficients.

    A slope is looked at in all clients together, and in each client, where it may have another sign; not so with secure sums.
    """
    pairs, right = (sum(getattr(reply, name) for reply in replies) for name in ("pairs", "right"))
    slopes, notes = {}, list[str]()
    for j, name in enumerate(f"{begin}{column}" for column in model.encoding.names):
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
    content: dict[str, Any] = {"events": sum(reply.events for reply in replies)}
    return slopes, content | ({"concordance": right / pairs} if pairs else {}), notes
