"""Checks whether the model makes responses like those that were seen, and how well it foresees rows without themselves.

Clients draw responses anew at the draws that the server has told, and send sums over their rows (docs/spec/likelihood.md,
section 5): posterior predictive p of the responses' mean, variance and zeros, and a calibration in tenths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import chdtrc

from ...algorithms.core import once
from ...algorithms.core.exchange import LEAST
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.sums import LooSums, Replicated
from ...algorithms.importance import machine as importance
from ...finding import Finding
from ...jobs.run import Run
from ...kernels.families import FAMILIES
from ...models import levels
from ...models.mixed import Rows, effects, predictive
from ...models.mixed.rows import alone
from ...results import guard, loo
from ...results.plain import Record
from . import marginal, sites, varying
from .few_events import describe_events
from .keys import Config
from .model import TOLD, Model
from .own import Own, complete_draws, write_effects
from .publish import Checked, join
from .rows import Held
from .stages import stage_of_loo

EXTREME = 0.005  # a posterior predictive p nearer to 0 or 1 than this is said
UNLIKELY = 1e-4  # how often tenths are as uneven where the model is right
UNEVEN = 0.05  # what the share of a tenth is off by at least, where that is said
ENOUGH = 10  # rows for each unknown
MISFIT = "a covariate, or a curve of one, may be missing, or another family do better"
ADAPTS = (
    "sigma is that of all errors together, so that their spread fits by itself and their shape does not: look for another unit "
    "or a wrong cell at a site, a covariate or a curve that is missing, errors that vary more at some sites, "
)
MISFITS = {  # how such a model is mended
    "gaussian": f'{ADAPTS}a long tail on one side (take logarithms in all files), or on both (model.family = "student")',
    "student": f"{ADAPTS}or a long tail on one side (take logarithms in all files)",
}
CHECKS = "the predictive checks"
STATISTICS = ("mean", "variance", "zeros")


def complete(
    run: Run[Config], model: Model, index: int, rows: Held, likelihood: Rows | levels.Rows, machine: importance.Client
) -> Own:
    """Completes a client's draws, and writes the effects of its groups, and its own, into its folder."""
    drawn = complete_draws(model, index, rows, likelihood, machine)
    write_effects(run, model, drawn)
    return drawn


def exchange_checks(run: Run[Config], model: Model, owns: Mapping[int, Own]) -> Checked:
    """Asks clients for sums over their rows; returns the findings on the model at the server's place, nothing elsewhere."""
    chances = model.row.chances
    replicate = lambda drawn: _replicated(drawn, run.secret_key(drawn.index, "replicated"), of_rows=chances)  # noqa: E731
    replies = run.collect(model.sums_stage, Replicated, owns, replicate)
    return join(
        Checked() if replies is None else _predictive(model, replies, mend_first=bool(run.hooks.doubts)),
        exchange_loo(run, model, owns),
        marginal.exchange_effects(run, model, owns),
        exchange_sites(run, model, owns),
    )


@guard.check("the predictive checks", Checked())
def _predictive(model: Model, replies: once.Server[Replicated], *, mend_first: bool) -> Checked:
    """Returns whether the model makes responses like those that were seen, by the clients' sums."""
    content: dict[str, Any] = {}
    notes: list[str] = once.not_in(CHECKS, replies, model.telling)
    doubt, chances = "", model.row.chances
    content |= sites.count_rows(
        model, model.telling, {k: {"rows": int(reply.observed[0])} for k, reply in replies.replies.items()}
    )
    if sum(reply.observed[0] for reply in in_order(replies.replies)):
        whole = varying.pool(replies.replies)
        content["predictive"] = _content(whole, model, chances=chances)
        doubt = varying.describe(replies.replies, model, mend_first=mend_first)
        notes += describe_events(model.family, model.encoding, model.telling, replies.replies)
        zeros = varying.ZEROS.get(model.family, "") if model.one_intercept and not doubt else ""
        notes += _said(content["predictive"], zeros)
        notes += [] if doubt or chances else uneven(whole, model, len(model.names))
    if model.has_multiples and not model.asks_level and len(model.names) > 1:
        notes.append(Finding.of("responses-not-compared"))
    return Checked(content, tuple(notes), doubt)


def exchange_loo(run: Run[Config], model: Model, owns: Mapping[int, Own]) -> Checked:
    """Asks clients for leave-one-out sums, where the job asks for them; returns `loo` of summary.json."""
    if not model.output.loo:
        return Checked()
    replies = run.collect(stage_of_loo(model), LooSums, owns, _left_out)
    if replies is None:
        return Checked()
    summary, notes = loo.told(replies, model.telling, unit=model.units.scale, draws=TOLD)
    return Checked({"loo": summary}, tuple(notes))


def exchange_sites(run: Run[Config], model: Model, owns: Mapping[int, Own]) -> Checked:
    """Asks clients for the modes of their rows alone, where the job asks for them; returns `sites` of summary.json."""
    alone = {k: sites.Alone(_alone(drawn.rows), drawn.told, drawn.nodes) for k, drawn in owns.items()}
    return sites.exchange_modes(run, model, alone)


def _replicated(drawn: Own, key: int, *, of_rows: bool) -> Replicated:
    assert isinstance(drawn.rows, Rows)
    return Replicated.made(*predictive.sums(drawn.rows, drawn.inner, key).arrays, of_rows=of_rows)


def _left_out(drawn: Own) -> LooSums:
    rows, n = drawn.rows, len(drawn.held)
    if isinstance(rows, levels.Rows):
        return loo.sums(n, lambda part: rows.density(drawn.inner, part))
    return loo.sums_of(n, effects.row_densities(rows, drawn.inner, drawn.nodes))


def _alone(rows: Rows | levels.Rows) -> Rows | levels.Rows:
    """A client's likelihood without an effect of its own."""
    return rows if isinstance(rows, levels.Rows) else alone(rows)


def _content(whole: predictive.Sums, model: Model, *, chances: bool) -> Record:
    """`predictive` of summary.json, over all clients: p-values and tenths. Responses of 0 and 1 have one p, their mean's."""
    p = dict(zip(STATISTICS, whole.p_values.tolist()))
    if FAMILIES[model.family].binary:  # 0 and 1: all else follows from the mean
        p = {"mean": p["mean"]}
    elif not FAMILIES[model.family].counted:
        del p["zeros"]
    rows, predictions, responses = whole.tenths.T
    count = int(whole.observed[0])
    n = max(float(rows.sum()), 1.0)
    about = _response(whole, model)
    if not chances:  # where responses stand in their predictive distributions
        return {"rows": count, **about, "p": p, "tenths": [{"share": float(count) / n} for count in rows]}
    tenths = [
        {"rows": float(count), "probability": float(two / count), "frequency": float(three / count)}
        for count, two, three in zip(rows, predictions, responses)
        if count
    ]
    return {"rows": count, **about, "p": p, "tenths": tenths}


def _response(whole: predictive.Sums, model: Model) -> Record:
    """Mean and standard deviation of all clients' responses (less its offset where the response is measured), and how many counts
    are 0. By these `compare` sees that two jobs have other responses."""
    n, total, squares, zeros = whole.observed.tolist()
    mean, sd = total / n, max(squares / n - (total / n) ** 2, 0.0) ** 0.5
    if model.measured:
        return {"response": {"mean": model.units.level + model.units.scale * mean, "sd": model.units.scale * sd}}
    return {"response": {"mean": mean, "sd": sd, "zeros": int(zeros)}}


def _said(content: Record, with_zeros: str) -> list[str]:
    """Notes on p-values near 0 or 1; `with_zeros`: a family that has more zeros, where that may be taken."""
    far = {name: value for name, value in content["p"].items() if min(value, 1 - value) < EXTREME}
    words = [f"the {name} of the responses (p = {value:.3g})" for name, value in far.items()]
    if not words:
        return []
    seen = " and ".join(words)
    if with_zeros and far.get("zeros", 1.0) < EXTREME:
        return [Finding.of("responses-unlike", of=seen, remedies=["more-zeros"], family=with_zeros)]
    return [Finding.of("responses-unlike", of=seen, remedies=["random-effects"])]


def uneven(whole: predictive.Sums, model: Model, n_clients: int) -> list[str]:
    """Returns the note on responses that are not evenly in the tenths of their predictive distributions.

    Rows of one group stand in like tenths, and those of a client with few rows a coefficient in the middle ones, for the
    coefficients follow them: of such models nothing is said. Each client's numbers are rounded to fives.
    """
    rows, n = whole.tenths[:, 0], float(whole.observed[0])
    total = float(rows.sum())
    if model.coarse or model.layout.group or not total or n < ENOUGH * model.layout.size:
        return []
    shares, rounded = rows / total, n_clients * (LEAST / 2) ** 2  # the variance of a rounded number is that at most
    p = float(chdtrc(len(rows) - 1, float(((rows - total / 10) ** 2).sum()) / (n / 10 + rounded)))
    k = int(np.abs(shares - 0.1).argmax())
    if p >= UNLIKELY or abs(shares[k] - 0.1) < UNEVEN:
        return []
    misfit = MISFITS.get(model.family, MISFIT)
    return [Finding.of("responses-uneven", share=float(100 * shares[k]), low=k / 10, high=(k + 1) / 10, misfit=misfit)]
