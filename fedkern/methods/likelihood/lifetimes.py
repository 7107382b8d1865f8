"""Completes a job of times whose baseline hazard all share: exchanges sums over clients' rows, and checks the hazard's shape by
them.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ...algorithms.core import once
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.sums import LifetimeSums
from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...finding import Finding
from ...jobs.run import Run
from ...kernels import rng
from ...models import survival, survival_parametric
from ...models.mixed import Layout
from ...models.mixed.conditional import MOST, predictor, with_effects
from ...models.mixed.effects import draw_effects, drawn_together
from ...models.mixed.joint import added, variance_of_new
from ...models.mixed.rows import alone
from ...models.survival_parametric import Baseline, Lifetimes
from ...models.survival_parametric import Timed as Rows
from ...results import guard
from . import sites
from .keys import Config
from .own import OF_GROUPS, Own, complete_draws, key_of_effects, write_effects
from .publish import Checked, join
from .time_models import LifetimeModel, Lived
from .times import middle

DRAWS = 50  # over which a row's predictive distribution is averaged
OFF, SURE = 0.15, 4.0  # logarithm of a shape, and its standard errors, from which on a constant hazard is no model of the times
UNLIKELY = 1e-4  # how often tenths are as uneven where the model is right
WALKING = 1e-8  # a time of which the probability to come later is smaller is no time


@dataclass(frozen=True)
class Ended:
    """Holds a client's draws (`own.Own`), its likelihood, and its times in the order of its rows, at the end."""

    own: Own
    lived: Lifetimes
    event: NDArray[np.bool_]
    entry: Array | None
    middle: Array


def complete(
    run: Run[Config], model: LifetimeModel, index: int, rows: Lived, lived: Lifetimes, machine: importance.Client
) -> Ended:
    """Completes a client's draws, and writes the effects of its groups, and its own, into its folder."""
    held, times = rows
    drawn = complete_draws(model, index, held, lived.rows, machine)
    write_effects(run, model, drawn)
    order = slice(None) if held.order is None else held.order
    entry = None if times.entry is None else np.maximum(times.entry[order], 0.0)
    return Ended(drawn, lived, times.event[order], entry, middle(times)[order])


def exchange_checks(run: Run[Config], model: LifetimeModel, ended: Mapping[int, Ended]) -> Checked:
    """Asks clients for sums over their rows; returns the findings on the model at the server's place, nothing elsewhere."""
    server = run.collect(model.sums_stage, LifetimeSums, ended, lambda client: sums(model, client))
    alone = {k: sites.Alone(client.lived.alone, client.own.told, client.own.nodes) for k, client in ended.items()}
    return join(Checked() if server is None else _of_times(model, server), sites.exchange_modes(run, model, alone))


@guard.check("the checks of times", Checked())
def _of_times(model: LifetimeModel, server: once.Server[LifetimeSums]) -> Checked:
    """Returns whether the model makes times like those that were seen, by the clients' sums."""
    notes = once.not_in("the checks of times", server, model.telling)
    none = [model.telling[k] for k, reply in sorted(server.replies.items()) if reply.rows and not reply.events]
    if none:
        notes.append(Finding.of("no-event-at-in-hazard", clients=none))
    content, findings, doubt = _content(model, in_order(server.replies))
    counts = {k: {"rows": reply.rows, "events": reply.events} for k, reply in server.replies.items()}
    notes += findings
    if not model.asks_level and len(model.names) > 1:
        notes.append(Finding.of("times-not-compared"))
    return Checked({**content, **sites.count_rows(model, model.telling, counts)}, tuple(notes), doubt, counts)


def sums(model: LifetimeModel, ended: Ended) -> LifetimeSums:
    """Returns the sums over a client's rows."""
    rows, drawn = ended.lived.rows, ended.own
    n, events = len(rows), ended.lived.events
    several = int(np.clip(MOST // max(31 * n, 1), 1, DRAWS))
    inner = drawn.inner[np.linspace(0, len(drawn.inner) - 1, several).round().astype(int)]
    unit = np.exp(model.log_unit)
    of_rows: _Whole | _Late
    if rows.entry is None:
        of_rows = _Whole.of(rows, inner, None if ended.entry is None else ended.entry / unit)
    else:
        of_rows = _Late.of(rows, inner, rows.entry, key_of_effects(model, drawn.index, OF_GROUPS))
    low = 1 - of_rows.seen(rows.y)
    end = np.where(np.isinf(rows.upper), 0.0, of_rows.seen(np.where(np.isinf(rows.upper), rows.y, rows.upper)))
    high = np.where(rows.upper == rows.y, low, 1 - end)
    low = np.clip(low, 0.0, 1 - 1e-12)
    high = np.clip(high, low + 1e-12, 1.0)
    edges = np.arange(11)[:, np.newaxis] / 10
    tenths = np.diff(np.clip((edges - low) / (high - low), 0, 1), axis=0).sum(axis=1)
    offset = None if rows.offset is None else -model.of_time * rows.offset  # a later event is a lower risk
    cox = survival.Rows.of(
        Layout(rows.layout.coefficients, "cox"),
        -model.of_time * rows.X,
        ended.middle,
        ended.event,
        ended.entry,
        None,
        None,
        offset,
    )
    pairs, right = survival.concordance(cox, drawn.told[:, : rows.layout.p].mean(axis=0))
    of_piece = np.searchsorted(np.array(model.cuts), ended.middle[ended.event])
    pieces = np.bincount(of_piece, minlength=1 + len(model.cuts)).astype(np.float64)
    exact = int((ended.event & (rows.upper == rows.y)).sum())
    scores = of_rows.scores(ended.event, ended.middle / unit)
    return LifetimeSums(0, n, events, exact, pairs, right, tenths, scores, pieces)


@dataclass(frozen=True)
class _Whole:
    """What rows are foreseen to do, with effects of new groups; or of groups that entered together."""

    # base, eta, variance: at draws: see `survival_parametric`
    base: Baseline
    eta: Array
    variance: Array
    before: Array  # (n,) probabilities to be without event until the entry

    @classmethod
    def of(cls, rows: Rows, inner: Array, entry: Array | None) -> _Whole:
        variance = variance_of_new(alone(rows), inner)
        foreseen = cls(rows.baseline(inner), predictor(rows, inner), variance, np.ones(len(rows)))
        return foreseen if entry is None else replace(foreseen, before=foreseen.mean(entry))

    def mean(self, time: Array) -> Array:
        """(n,) probabilities to be without event at a time of each row, averaged over draws."""
        foreseen = survival_parametric.survival(self.base, self.eta, self.variance, time[np.newaxis])[:, 0]
        return np.asarray(np.maximum(foreseen.mean(axis=0), np.finfo(float).tiny))

    def seen(self, time: Array) -> Array:
        """(n,) the same, given the entry."""
        return self.mean(time) / self.before

    def scores(self, event: NDArray[np.bool_], time: Array) -> Array:
        """(5,) see `_scores`; of rows whose times are these."""
        return _scores(event, -np.log(self.mean(time)), -np.log(self.before))


@dataclass(frozen=True)
class _Late:
    """The same of rows that came late, one by one, with effects of their own groups, drawn given all rows: who came later is
    more often of a group in which few have the event, so that a new group's effect would be none of theirs."""

    # base, eta: at draws
    base: Baseline
    eta: Array
    entry: Array  # (n,)

    @classmethod
    def of(cls, rows: Rows, inner: Array, entry: Array, key: int) -> _Late:
        eta = predictor(rows, inner)
        if rows.layout.outer:
            uniform = rng.uniform(len(inner), key=key)[:, np.newaxis]
            found = drawn_together(rows, inner, uniform, rows.layout.nodes, key)
            eta = added(alone(rows), eta, {name: effect[:, 0] for name, effect in found.items()})
        elif rows.layout.group:
            uniform = np.stack([rng.uniform(rows.n_groups, key=key, step=s) for s in range(len(inner))])
            eta = with_effects(rows, eta, rows.layout.factor(inner, "group"), draw_effects(rows, inner, uniform))
        return cls(rows.baseline(inner), eta, entry)

    def seen(self, time: Array) -> Array:
        """(n,) probabilities to be without event at a time of each row, given the entry, averaged over draws."""
        return np.asarray(np.exp(-self.base.between(self.entry, time, self.eta)).mean(axis=0))

    def scores(self, event: NDArray[np.bool_], time: Array) -> Array:
        """(5,) the same, averaged over draws: that is the score of the likelihood whose effects are integrated out (Louis 1982),
        and of averaged hazards it would be another number."""
        before = self.base.between(np.zeros_like(self.entry), self.entry, self.eta)
        return np.asarray(_scores(event, before + self.base.between(self.entry, time, self.eta), before).mean(axis=1))


def _scores(event: NDArray[np.bool_], e: Array, e0: Array) -> Array:
    """(5, ..) of cumulative hazards e (.., n) that are a e^k: derivatives in log a and log k at 1, and minus the second ones."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log, log0 = (np.where(hazard > WALKING, np.log(hazard), 0.0) for hazard in (e, e0))
    x, x0, d = e * log, e0 * log0, event.astype(np.float64)
    return np.array(
        [
            (d - e + e0).sum(axis=-1),
            (d * (1 + log) - x + x0).sum(axis=-1),
            (e - e0).sum(axis=-1),
            (x - x0).sum(axis=-1),
            (x + x * log - x0 - x0 * log0 - d * log).sum(axis=-1),
        ]
    )


def _content(model: LifetimeModel, replies: Sequence[LifetimeSums]) -> tuple[dict[str, Any], list[str], str]:
    """Events, concordance, tenths, and whether the hazard has the shape that it has in the model."""
    rows, events, pairs, right = (sum(getattr(reply, name) for reply in replies) for name in ("rows", "events", "pairs", "right"))
    if not rows:
        return {}, [], ""
    tenths = np.sum([reply.tenths for reply in replies], axis=0)
    shares = tenths / tenths.sum()
    content: dict[str, Any] = {
        "events": int(events),
        "exact_events": sum(reply.exact for reply in replies),
        "predictive": {"rows": int(rows), "tenths": [{"share": x} for x in shares.tolist()]},
    }
    if pairs:
        content["concordance"] = right / pairs
    first, second, of_level, across, of_shape = np.sum([reply.scores for reply in replies], axis=0).tolist()
    information = of_shape - across**2 / of_level if of_level > 0 else 0.0
    notes, doubt = list[str](), ""
    if information > 0:
        score = second - across / of_level * first
        log_shape, z = score / information, score / information**0.5
        content["shape_of_hazard"] = {"log_shape": log_shape, "z": z}
        if model.family == "exponential" and abs(z) > SURE and abs(log_shape) > OFF:
            doubt = Finding.of("hazard-not-constant", z=z)
    seen, begins = np.sum([reply.pieces for reply in replies], axis=0), [0.0, *model.cuts]
    if model.cuts and (empty := [_piece(begins, k) for k in np.flatnonzero(seen == 0).tolist()]):
        notes.append(Finding.of("piece-without-event", pieces=empty))
    chi2 = 10 * float(((shares - 0.1) ** 2).sum()) * events
    p = float(chdtrc(9, chi2))
    if not doubt and p < UNLIKELY:
        ways = ["more-cuts" if model.family == "piecewise" else "piecewise"]
        k = int(np.abs(shares - 0.1).argmax())
        tenth = {"share": float(100 * shares[k]), "low": k / 10, "high": (k + 1) / 10}
        together = model.entered_together
        notes.append(Finding.of("times-uneven-together" if together else "times-uneven", **tenth, remedies=ways))
    return content, notes, doubt


def _piece(begins: Sequence[float], k: int) -> str:
    """In words."""
    return f"from {begins[k]:g} on" if k == len(begins) - 1 else f"from {begins[k]:g} to {begins[k + 1]:g}"
