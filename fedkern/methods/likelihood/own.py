"""Completes a client's draws by its own effects, and writes the effects with their intervals, which only the client may see.

Source: docs/spec/likelihood.md, section 2. `checks` has the sums that a client tells of its completed draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...jobs.run import Run
from ...kernels import rng
from ...models import levels
from ...models.mixed import Rows, effects
from ...models.mixed.effects import QUANTILES, Effects
from ...models.mixed.grouping import Grouping
from . import known
from .keys import Config
from .model import Model
from .rows import Held

OF_CLIENT, OF_GROUPS = range(2)  # effects that a client draws


@dataclass(frozen=True)
class Own:
    """Holds a client's rows and draws at the end."""

    # index, held, rows: its number, its rows, and their likelihood
    index: int
    held: Held
    rows: Rows | levels.Rows
    told: Array  # (t, P) draws of the posterior
    inner: Array  # (t, ..) the same, each with the client's effect drawn given it and the rows
    effect: Effects | None  # the client's; None where the model has none
    nodes: int  # of its quadrature
    converged: bool  # whether the server's checks passed


def key_of_effects(model: Model, client: int, effect: int) -> int:
    """Returns the key of the effects that a client draws; `effect`: `OF_CLIENT` or `OF_GROUPS`."""
    return rng.key(model.seed, "posterior", 1 + 3 * client + effect)


def draw_secret_key() -> int:
    """Returns a secret key for what a client draws anew, sums of which it sends (`Run.secret_key` where sums are secure).

    A key of the job's seed would tell rows: sums over rows with a known number for each row are equations whose one solution is
    the rows.
    """
    return secrets.randbits(64)


def complete_draws(model: Model, index: int, held: Held, rows: Rows | levels.Rows, client: importance.Client) -> Own:
    """Returns a client's rows and completed draws, once the server has told its draws."""
    assert client.told is not None
    if isinstance(rows, levels.Rows):  # without effects
        return Own(index, held, rows, client.told, client.told, None, client.nodes, client.converged)
    seen = client.told[:, : rows.size]  # without numbers of a prior alone
    inner, effect = effects.complete_draws(rows, seen, client.nodes, key_of_effects(model, index, OF_CLIENT))
    return Own(index, held, rows, client.told, inner, effect, client.nodes, client.converged)


def write_effects(run: Run[Config], model: Model, drawn: Own) -> None:
    """Writes groups.csv and client.csv into the client's own folder, and the draws that `fedkern predict` needs there."""
    folder, layout, held = run.hooks.folder, model.layout, drawn.held
    if folder is None:
        return
    groups, labels = list[effects.Effects](), (held.labels, *held.outer)
    if layout.group and isinstance(drawn.rows, Rows):
        groups = effects.of_all_groups(drawn.rows, drawn.inner, drawn.nodes, key_of_effects(model, drawn.index, OF_GROUPS))
        sizes = [np.diff(held.starts), *(np.bincount(codes, minlength=len(of)) for codes, of in zip(held.codes, held.outer))]
        parts = [
            of_kind(model, *of_each, converged=drawn.converged)
            for of_each in zip(model.groupings, labels, sizes, groups, strict=True)
        ]
        parts = [*parts[1:], parts[0]]  # as results list them
        names = dict.fromkeys(name for part in parts for name in [*part][:-1])
        columns: dict[str, Sequence[Any]] = {
            name: [value for part in parts for value in part.get(name, [""] * len(part["group"]))] for name in (*names, "rank")
        }
        folder.write_csv("groups.csv", columns, client=drawn.index)
    if drawn.effect is not None:
        columns = {"converged": [drawn.converged], "rows": [len(drawn.held)], **_columns(model, layout.client, drawn.effect)}
        folder.write_csv("client.csv", columns, client=drawn.index)
    if not model.sigma_terms:  # the released posterior then says as much
        known.write(folder, model, drawn.index, known.Ended(drawn.told, drawn.inner, groups, labels, drawn.converged))


def of_kind(
    model: Model, grouping: Grouping, labels: Sequence[str], sizes: NDArray[np.int64], found: Effects, *, converged: bool
) -> dict[str, list[Any]]:
    """Returns the columns of groups.csv for one kind of groups, with the number of rows of each."""
    return {
        "converged": [converged] * len(labels),
        "factor": [grouping.label] * len(labels),
        "group": [*labels],
        "rows": sizes.tolist(),
        **_columns(model, grouping.terms, found),
        "rank": found.rank.round(2).tolist(),
    }


def _columns(model: Model, terms: Sequence[str], drawn: Effects) -> dict[str, list[float]]:
    """Columns of a table: each term's mean, sd and quantiles; slopes a unit of a column, the intercept at the columns' means."""
    out: dict[str, list[float]] = {}
    for i, (name, unit) in enumerate(zip(terms, model.units_of(terms))):
        out |= {name: (drawn.mean[:, i] * unit).tolist(), f"{name}_sd": (drawn.sd[:, i] * unit).tolist()}
        for level, values in zip(QUANTILES, drawn.quantiles):
            out[f"{name}_q{round(100 * level):02d}"] = (values[:, i] * unit).tolist()
    return out
