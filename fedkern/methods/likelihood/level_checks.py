"""Exchanges the shares of a response's levels before the rounds, and checks the model by them after the draws.

Clients draw responses anew at draws that the server has told. For each level they send how many rows have it; where levels are
ordered, also the sums of the columns over these rows. Where one slope for all thresholds is wrong, the rows of a level have
another mean of that column than the model makes.

Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from ...algorithms.core import once
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges import compare, level_sums
from ...algorithms.exchanges.level_sums import LevelNumbers
from ...arrays import Array
from ...data.design import Design
from ...finding import Finding
from ...jobs.run import Run
from ...kernels import rng
from ...kernels.families import FAMILIES
from ...models import levels
from ...models.mixed import Rows
from ...models.mixed.conditional import predictor, with_effects
from ...models.mixed.joint import added, anew
from ...models.mixed.rows import alone
from ...results import guard
from . import marginal, sites
from .checks import CHECKS, exchange_loo, exchange_sites
from .keys import Config
from .level_models import OF_TOLD, LevelModel
from .own import Own
from .publish import Checked, join
from .rows import Held

UNLIKELY = 0.01  # of the least p of all levels, or of all their columns' means, where the model is right


# Before the rounds --------------------


def exchange_shares(run: Run[Config], model: LevelModel, designs: Mapping[int, Design], rows: Mapping[int, Held]) -> LevelModel:
    """Returns the model with the shares of the levels among all clients' rows, the same at every place."""
    (stage,), k = model.response_stages, len(model.levels)
    machines = {i: level_sums.Client(_numbers(design.y, k)) for i, design in designs.items()}
    server, clients = run.exchange(stage, lambda: level_sums.start(model.telling, k), machines)
    if server is not None:
        assert server.numbers is not None
        unseen = tuple(level for level, n in zip(model.levels, server.numbers.tolist()) if not n)
        model = replace(model, unseen=unseen)
        run.hooks.notes += _unseen(model)
        if model.ordered and not model.secure and server.of_each is not None:
            column = model.encoding.response or "y"
            run.hooks.find(compare.of_ends(column, model.levels, model.telling, server.of_each))
    shares = next(design.shares for design in (server, *clients.values()) if design is not None and design.shares is not None)
    return model.with_shares(tuple(shares.tolist()))


def _numbers(y: Array, k: int) -> Array:
    return np.bincount(y.astype(np.int64), minlength=k).astype(np.float64)


def _unseen(model: LevelModel) -> list[str]:
    """Notes on levels that nobody has."""
    name, nobody, unknown = model.encoding.response, [*model.unseen], model.unknown_of_a_level
    if not nobody:
        return []
    if len(nobody) == len(model.levels) - 1:
        return [Finding.of("one-level", column=name)]
    if len(nobody) == 1:
        return [Finding.of("level-unseen", column=name, level=nobody[0], unknown=unknown)]
    return [Finding.of("levels-unseen", column=name, level=nobody, unknown=unknown)]


# After the draws --------------------


def exchange_checks(run: Run[Config], model: LevelModel, owns: Mapping[int, Own]) -> Checked:
    """Asks clients for sums over their rows; returns the findings on the model at the server's place, nothing elsewhere."""
    return join(
        _exchange_levels(run, model, owns),
        exchange_loo(run, model, owns),
        marginal.exchange_effects(run, model, owns),
        exchange_sites(run, model, owns),
    )


def _exchange_levels(run: Run[Config], model: LevelModel, owns: Mapping[int, Own]) -> Checked:
    """`predictive` of summary.json and notes, at the server's place; nothing elsewhere."""
    question = level_sums.AskLevels(0, np.zeros(len(model.levels)))
    count = lambda ended: count_levels(model, ended, run.secret_key(ended.index, "levels"))  # noqa: E731
    server = run.collect(model.sums_stage, LevelNumbers, owns, count, question)
    return Checked() if server is None else _predictive(model, server)


@guard.figure("the predictive checks", Checked())
def _predictive(model: LevelModel, server: once.Server[LevelNumbers]) -> Checked:
    """Returns how often levels were seen, and how often the model makes them, by the clients' sums."""
    notes = once.not_in(CHECKS, server, model.telling)
    replies = in_order(server.replies)
    counts = sites.count_rows(
        model, model.telling, {k: {"rows": int(reply.seen[:, 0].sum())} for k, reply in server.replies.items()}
    )
    if not sum(reply.seen[:, 0].sum() for reply in replies):
        return Checked(counts, tuple(notes))
    seen, again = sum(reply.seen for reply in replies), np.sum([reply.again for reply in replies], axis=0)
    assert not isinstance(seen, int)
    content = _content(model, seen, again)
    return Checked({"predictive": content, **counts}, (*notes, *_said(model, content)))


def count_levels(model: LevelModel, ended: Own, key: int) -> LevelNumbers:
    """Returns a client's sums; `key`: of its own random numbers."""
    rows, draws, k = ended.rows, ended.inner[::OF_TOLD], len(model.levels)
    X = ended.held.X[:, : model.summed_columns]
    again = [_sums(_drawn(rows, draws[s : s + 1], key, s), X, k) for s in range(len(draws))]
    return LevelNumbers(0, _sums(ended.held.y, X, k), np.stack(again))


def _sums(y: Array, X: Array, k: int) -> Array:
    """(K, 1 + p) the number of rows of each level, and sums of their columns."""
    which = y.astype(np.int64)
    return np.column_stack([_numbers(y, k), *(np.bincount(which, weights=x, minlength=k) for x in X.T)])


def _drawn(rows: Rows | levels.Rows, draw: Array, key: int, s: int) -> Array:
    """(n,) levels of responses that are drawn anew at one draw (1, P), with new effects of groups."""
    u = rng.uniform(len(rows), key=key, draw=s, step=1)
    if isinstance(rows, levels.Rows):
        return np.asarray((u > np.cumsum(np.exp(rows.log_chances(draw)[0]), axis=0)[:-1]).sum(axis=0), np.float64)
    eta, d = predictor(rows, draw), len(rows.layout.group)
    if rows.layout.outer:
        eta = added(alone(rows), eta, anew(alone(rows), draw, lambda n: rng.normal(n, key=key, draw=s, step=2)))
    elif d:
        effects = rng.normal(rows.n_groups * d, key=key, draw=s, step=2).reshape(1, rows.n_groups, d)
        eta = with_effects(rows, eta, rows.layout.factor(draw, "group"), effects)
    record, cuts = FAMILIES[rows.layout.family], np.arange(len(rows.layout.shapes), dtype=np.float64)
    scale = rows.layout.scale(draw)
    below = [record.cdf(np.full(len(rows), cut), eta[0], scale, None) for cut in cuts]
    return np.asarray(np.sum([u > edge for edge in below], axis=0), np.float64)


def _content(model: LevelModel, seen: Array, again: Array) -> dict[str, Any]:
    """`predictive` of summary.json, over all clients.

    It has the rows of each level, their shares as seen and as the model makes them, and how often a drawn share is larger. For
    each column it has by how many sds of the drawn sums the sum over a level's rows is larger than these.
    """
    n, numbers = float(seen[:, 0].sum()), seen[:, 0]
    larger = ((again[..., 0] > numbers) + 0.5 * (again[..., 0] == numbers)).mean(axis=0)
    shares = {
        level: {"seen": float(number / n), "model": float(made / n), "p": float(p)}
        for level, number, made, p in zip(model.levels, numbers, again[..., 0].mean(axis=0), larger)
    }
    content: dict[str, Any] = {
        "rows": int(n),
        "response": {"levels": {level: int(number) for level, number in zip(model.levels, numbers)}},
        "p": {level: share["p"] for level, share in shares.items()},
        "shares": shares,
    }
    if seen.shape[1] > 1:
        sd = again[..., 1:].std(axis=0, ddof=1)
        z = np.where(sd > 0, (seen[:, 1:] - again[..., 1:].mean(axis=0)) / np.where(sd > 0, sd, 1.0), 0.0)
        columns = zip(model.encoding.names, z.T.tolist())
        content["columns"] = {name: dict(zip(model.levels, number)) for name, number in columns}
    return content


def _said(model: LevelModel, content: Mapping[str, Any]) -> list[str]:
    """Notes for the reader of the result."""
    k, notes = len(model.levels), list[str]()
    if far := [(level, p) for level, p in content["p"].items() if min(p, 1 - p) < UNLIKELY / (2 * k)]:
        notes.append(Finding.of("levels-unlike", levels=far))
    columns, least = content.get("columns", {}), UNLIKELY / max(k * len(content.get("columns", {})), 1)
    against = []
    for name, of_levels in columns.items():
        level = max(of_levels, key=lambda level_of: abs(of_levels[level_of]))
        if 2 * ndtr(-abs(of_levels[level])) < least:
            which = "larger" if of_levels[level] > 0 else "smaller"
            against.append(f"{name} (rows of {level!r} have it {which}, z = {of_levels[level]:.1f})")
    if against and k > 2:
        plain = not (model.offset or model.layout.group or model.layout.client)  # as multinomial responses are
        ways = [*(["multinomial"] if plain else []), "join-levels"]
        notes.append(Finding.of("odds-not-proportional", columns=against, remedies=ways))
    return notes
