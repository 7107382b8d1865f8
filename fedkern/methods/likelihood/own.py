"""What only the client may see: the effects of its groups, and its own, with their intervals.

Source: docs/methods/likelihood.md, section 2. Its draws of the posterior are completed by its own effect at each; the sums that
it tells of them are `checks`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.messages import Message
from ...algorithms.importance import machine as importance
from ...errors import owned
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...kernels import rng
from ...models import levels
from ...models.mixed import Rows, effects
from ...models.mixed.effects import QUANTILES, Effects
from . import known
from .keys import Config
from .model import Model
from .rows import Held

Array = NDArray[np.float64]
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
T = TypeVar("T")

OF_CLIENT, OF_GROUPS = range(2)  # what a client draws


@dataclass(frozen=True)
class Own:
    """What a client has at the end.

    Attributes
    ----------
    index, held, rows : its number, its rows, and their likelihood
    told : (t, P) draws of the posterior
    inner : (t, ..) the same, each with the client's effect drawn given it and the rows
    effect : the client's; None where the model has none
    nodes : of its quadrature
    converged : whether the server's checks found nothing
    """

    index: int
    held: Held
    rows: Rows | levels.Rows
    told: Array
    inner: Array
    effect: Effects | None
    nodes: int
    converged: bool


def answers(
    run: Run[Config],
    stage: Stage,
    question: once.Question[Q, A],
    asked: Q | None,
    owns: Mapping[int, T],
    told: Callable[[T], A],
) -> once.Server[A] | None:
    """What all clients tell of what they have, at the server's place; what goes wrong while one makes it ready is its own."""
    clients = {}
    for k, own in owns.items():
        with owned(k):
            clients[k] = once.telling(told(own))
    return run.ask(stage, question, asked, clients)[0]


def key(model: Model, client: int, what: int) -> int:
    """Of what a client draws."""
    return rng.key(model.seed, "posterior", 1 + 3 * client + what)


def anew() -> int:
    """Key of the responses that a client draws anew, sums of which it sends: its own, and not of the seed. Sums over rows with a
    known number for each row are equations that have one solution, the rows."""
    return secrets.randbits(64)


def completed(
    model: Model, index: int, held: Held, rows: Rows | levels.Rows, client: importance.Client, draws: Array | None = None
) -> Own:
    """Once the server has told its draws; `draws`: as the rows see them, where these know less."""
    assert client.told is not None
    if isinstance(rows, levels.Rows):  # without effects
        return Own(index, held, rows, client.told, client.told, None, client.nodes, client.converged)
    inner, effect = effects.completed(rows, client.told if draws is None else draws, client.nodes, key(model, index, OF_CLIENT))
    return Own(index, held, rows, client.told, inner, effect, client.nodes, client.converged)


def write(run: Run[Config], model: Model, own: Own) -> None:
    """groups.csv in the client's own folder, client.csv where the model has an effect of clients, and what `fedkern predict`
    needs there."""
    folder, layout, found = run.hooks.folder, model.layout, None
    if folder is None:
        return
    if layout.group and isinstance(own.rows, Rows):
        found = effects.of_groups(own.rows, own.inner, key(model, own.index, OF_GROUPS))
        columns: dict[str, Sequence[Any]] = {
            "converged": [own.converged] * len(own.held.labels),
            "group": list(own.held.labels),
            "rows": np.diff(own.held.starts).tolist(),
            **_columns(model, layout.group, found),
            "rank": found.rank.round(2).tolist(),
        }
        folder.write_csv("groups.csv", columns, client=own.index)
    if own.effect is not None:
        columns = {"converged": [own.converged], "rows": [len(own.held)], **_columns(model, layout.client, own.effect)}
        folder.write_csv("client.csv", columns, client=own.index)
    known.write(folder, model, own.index, known.Ended(own.told, own.inner, found, own.held.labels, own.converged))


def _columns(model: Model, terms: Sequence[str], found: Effects) -> dict[str, list[float]]:
    """Each term's mean, sd and quantiles: a slope a unit of its column, the intercept at the columns' means."""
    out: dict[str, list[float]] = {}
    for i, (name, unit) in enumerate(zip(terms, model.units_of(terms))):
        out |= {name: (found.mean[:, i] * unit).tolist(), f"{name}_sd": (found.sd[:, i] * unit).tolist()}
        for level, values in zip(QUANTILES, found.quantiles):
            out[f"{name}_q{round(100 * level):02d}"] = (values[:, i] * unit).tolist()
    return out
