"""Has clients come to a run that has ended, or one go: the rounds of a job with `job.extends`, and what is kept for them.

Who takes part says which stage it is. *Alone*: only newcomers are in the job, and answer at the run's points. *Together*: the
run's clients are, too, and all answer at new points. Without anybody (`job.drops`) the points are weighted anew, and nothing is
asked. Source: docs/spec/likelihood.md, section 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...algorithms.core.messages import ServerEffects
from ...algorithms.importance import extension
from ...algorithms.importance import machine as importance
from ...algorithms.importance.draws import weighted
from ...finding import NAMES, Finding, Value
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...printing import listed
from ...results.plain import Record
from ...results.verdict import Check, Verdict, against
from ...transports.codec import pack
from . import publish
from .earlier import ALL, ENTRY, POINTS, UNITS, Earlier
from .keys import Config
from .model import Model
from .stages import stage_of_draws, stage_of_points, stage_of_steps
from .steps import Read


def keep(run: Run[Config], model: Model, ended: publish.Ended, fit: Fit, before: Record | None = None) -> Fit:
    """Writes the points of a run that others may extend; returns its result, which says so, and what a newcomer is compared with.

    `before`: the same of the run that this one extends, whose clients' rows alone are counted.
    """
    state, folder = ended.mode, run.hooks.folder
    if state is None or folder is None:
        return fit
    values = np.concatenate([draws.values for draws in state.draws]) if ended.singly is None else ended.singly
    names = model.names
    if not model.output.without:
        values, names = values.sum(axis=1, keepdims=True), (ALL,)
    folder.write(folder.path / POINTS, pack(extension.kept(state, values)), secret=True)
    # What the parties have agreed on beside columns: the response's units or its levels' shares, and how wide the prior is.
    units = {name: getattr(model.units, name) for name in UNITS}
    facts = {"units": units, "shares": getattr(model, "shares", ()), "widened": state.widened}
    counts = {"total": sum(model.units.counts.values()), "rows": ended.n_rows, "events": fit.more.get("events", 0)}
    counts |= {} if before is None else {name: before[name] for name in counts}
    normal = extension.Normal.of(weighted(state)).content
    return replace(fit, more={**fit.more, ENTRY: {"values": [*names], **facts, **counts, "normal": normal}})


def fit(run: Run[Config], read: Read) -> Fit | None:
    """Returns the result with the newcomers, or without a client, at the server's place; None elsewhere."""
    model: Model = read.model
    earlier: Earlier = read.earlier
    newcomers = tuple(name for name in run.names if name not in earlier.clients)
    for k in range(len(newcomers)):
        if k in read.likelihoods:
            run.hooks.tell(k, Finding.of("newcomer-is-told-apart"))
    before = earlier.state(model) if run.place.is_server else None

    def clients() -> dict[int, importance.Client]:
        return {
            k: model.client(k, rows, run.requirement_of(k).rules) for k, rows in {**read.likelihoods, **read.structured}.items()
        }

    def points() -> importance.Server:
        assert before is not None
        return before

    if earlier.gone is not None:
        state: importance.Server | None = extension.without(points(), earlier.gone)
    elif len(newcomers) == len(run.names):
        state, _ = run.exchange(stage_of_points(model), lambda: extension.start(points(), newcomers), clients())
        state = None if state is None else extension.named(state, points().names)
    else:
        mode, _ = run.exchange(stage_of_steps(model), lambda: extension.climb(points(), model.settings, newcomers), clients())
        state, _ = run.exchange(stage_of_draws(model), lambda: _at(model, mode), clients())
    return None if state is None else _result(run, model, earlier, state, newcomers)


def _at(model: Model, mode: importance.Server | None) -> tuple[importance.Server, ServerEffects]:
    assert mode is not None
    return extension.go_on_at(model.start()[0], mode)


def _result(run: Run[Config], model: Model, earlier: Earlier, state: importance.Server, newcomers: Sequence[str]) -> Fit:
    """Returns what is published of the state after the last round."""
    together, sampled = len(newcomers) < len(run.names), importance.read_result(state)
    ended = publish.Ended(state, tuple(run.hooks.doubts))
    made = publish.bare(model, ended, None)
    if together:
        judged = publish.judge_draws(sampled, model.settings.counted, model.reason(sampled.reason))
    else:
        judged = _judged(state, sampled, newcomers)
    gone = earlier.gone
    what = f"without {gone!r}" if gone is not None else f"with {listed(newcomers, NAMES)}"
    entry = {"run": str(earlier.path), "stage": "without" if gone is not None else "together" if together else "alone"}
    counted = {name: {"updates": made.rounds, "status": "finished"} for name in run.names}
    counted |= {name: {"updates": 0, "status": "of the earlier run"} for name in earlier.clients if name not in {*counted, gone}}
    result = replace(
        made,
        verdict=against(ended.doubts, judged),
        clients=counted,
        notes=[Finding.of("extends-a-run", what=what)],
        more={**made.more, **publish.describe_draws(sampled, model.units.log_volume, levelled=False), "extends": entry},
    )
    run.hooks.columns += earlier.summary.get("columns", [])
    return keep(run, model, ended, result, earlier.summary[ENTRY]) if model.keeps_points else result


def _judged(state: importance.Server, sampled: importance.Found, newcomers: Sequence[str]) -> Verdict:
    """Returns the verdict on the points of an earlier run with other weights."""
    weights = sampled.posterior
    assert weights is not None
    of: dict[str, Value] = {
        "draws": len(weights.draws),
        "effective": weights.effective,
        "k_hat": weights.k_hat,
        "most": extension.K_HAT,
    }
    of |= {"error": max(sampled.error), "wanted": extension.OFF, "remedies": ("all-with-their-rows",) if newcomers else ()}
    if extension.settled(state):
        return Verdict((Check(Finding.of("points-reach", **of), True),))
    return Verdict((Check(Finding.of("points-do-not-reach", **of), False),))
