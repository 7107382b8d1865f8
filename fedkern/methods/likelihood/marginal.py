"""Computes average marginal effects on the mean of the response, or on the probability of each of its levels, over all clients'
rows: average derivatives in numeric columns, and differences between values of others.

Each client sends sums over its rows, at the draws that the server has told (docs/spec/likelihood.md, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...algorithms.core import once
from ...algorithms.core.exchange import LEAST, digits
from ...algorithms.core.masked import ALL, describe_few
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.sums import DIGITS_OF_LEVELS, MarginalSums
from ...arrays import Array
from ...jobs.run import Run
from ...models import levels
from ...models.mixed import Rows
from ...models.mixed.marginal import Contrast, Moved, Slope, sums
from ...results import guard
from ...results.weighted import summarised
from . import changes
from .keys import Config
from .model import Model
from .moved import Of, is_binary, move_rows
from .own import Own
from .publish import Checked

EFFECTS = "the marginal effects"
NEAR = 1e-6  # so near to 0 or 1 is a cell that is one, once it was standardised


def exchange_effects(run: Run[Config], model: Model, owns: Mapping[int, Own]) -> Checked:
    """Returns `marginal` of summary.json and notes, at the server's place; nothing elsewhere, or where the job asks for none."""
    for stage in changes.stages(model):
        server = run.collect(stage, MarginalSums, owns, lambda drawn: sum_effects(model, drawn))
        if server is not None:
            return _averaged(model, server)
    return Checked()


@guard.figure("marginal effects", Checked())
def _averaged(model: Model, server: once.Server[MarginalSums]) -> Checked:
    """Returns the effects of all clients' rows, and notes."""
    return Checked(_content(model, server), tuple(_notes(server, model.telling)))


def sum_effects(model: Model, drawn: Own) -> MarginalSums:
    """Returns a client's sums.

    From 0 to 1 no column is moved whose values are others: the mean of the response there may be far from any row's.
    """
    of = changes.changes(model)
    binaries = np.array([_is_binary(drawn, change.effect) for change in of if change.binary is not None], np.float64)
    sent = [k for k, change in enumerate(of) if change.binary is None or binaries[change.binary]]
    columns = np.zeros((len(drawn.told), len(of), changes.numbers(model)))
    if model.encoding.formula is None:
        columns[:, sent] = _sums(model, drawn, [_effect(model, drawn, of[k].effect) for k in sent])
    for k in sent if model.encoding.formula is not None else ():  # whose rows are there twice: one change after the other
        columns[:, [k]] = _sums(model, drawn, [_effect(model, drawn, of[k].effect)])
    flat = columns.reshape(len(columns), -1)
    return MarginalSums(0, len(drawn.held), binaries, digits(DIGITS_OF_LEVELS)(flat) if model.levels else flat)


def _sums(model: Model, drawn: Own, effects: Sequence[Slope | Contrast | Moved]) -> Array:
    """(S, E, numbers) sums over rows of the response's mean, or of the probability of each of its levels."""
    if model.levels:
        totals = levels.effect_sums(drawn.rows, drawn.told, effects, len(model.levels))
    else:
        assert isinstance(drawn.rows, Rows)
        totals = sums(drawn.rows, drawn.told, effects)
    return totals.reshape(len(drawn.told), len(effects), -1)


def _effect(model: Model, drawn: Own, effect: Slope | Contrast | Of) -> Slope | Contrast | Moved:
    """A change as the model computes it; with a formula, of this client's rows."""
    if not isinstance(effect, Of):
        return effect
    formula, held = model.encoding.formula, drawn.held
    assert formula is not None
    assert held.table is not None
    order = np.arange(len(held)) if held.order is None else held.order
    return move_rows(model.encoding, formula, held.table, order, effect)


def _is_binary(drawn: Own, effect: Slope | Contrast | Of) -> bool:
    if isinstance(effect, Of):
        assert drawn.held.table is not None
        return is_binary(drawn.held.table, effect.name)
    return isinstance(effect, Contrast) and _binary(drawn.held.X[:, effect.columns[0]], effect)


def _binary(cells: Array, effect: Contrast) -> bool:
    """Whether all cells of a standardised column are 0 or 1 in its own unit, which a contrast has as `low` and `high`."""
    low, high = effect.low[0], effect.high[0]
    return bool((np.minimum(np.abs(cells - low), np.abs(cells - high)) <= NEAR * (high - low)).all())


def _content(model: Model, server: once.Server[MarginalSums]) -> dict[str, Any]:
    """`marginal` of summary.json: means over all rows, by draws of equal weight."""
    replies = [reply for reply in in_order(server.replies) if reply.rows]
    n = sum(reply.rows for reply in replies)
    if not n:
        return {}
    at_draws = model.units.scale * np.sum([reply.sums for reply in replies], axis=0) / n
    binary = np.min([reply.binary for reply in replies], axis=0)
    equal, effects = np.full(len(at_draws), 1 / len(at_draws)), {}
    each = at_draws.T.reshape(-1, changes.numbers(model), len(at_draws))
    for change, numbers in zip(changes.changes(model), each):
        if (change.numeric is not None and binary[change.numeric]) or (change.binary is not None and not binary[change.binary]):
            continue
        for level, values in zip(model.levels or [""], numbers):
            row = {key: number for key, number in summarised(values, equal).items() if key in changes.SHOWN}
            name = f"{level}:{change.name}" if level else change.name
            effects[name] = {"change": change.words, **({"level": level} if level else {}), **row}
    return {"marginal": {"rows": n, "effects": effects}}


def _notes(server: once.Server[MarginalSums], names: tuple[str, ...]) -> list[str]:
    """Notes on clients that are not in the effects."""
    if names == (ALL,):
        return [describe_few(f"{LEAST} rows", EFFECTS)]
    out = {k: f"it has fewer than {LEAST} rows" for k, reply in server.replies.items() if not reply.rows}
    out |= dict.fromkeys(server.lost, "it was lost") | dict(server.dropped)
    return once.left_out(EFFECTS, out, names)
