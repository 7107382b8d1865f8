"""Keeps a client's own effects, so that `fedkern predict` foresees rows of its groups: effects.bin of its own folder.

For each draw that the server has told it holds coefficients with the client's own effect, drawn given its rows, and effects of
its groups, drawn given theirs. They have no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...jobs import own_posterior
from ...jobs.files import RunFolder
from ...kernels.families import one_trial
from ...models.encoding import INTERCEPT, Encoding
from ...models.mixed.effects import Effects
from ...models.survival_parametric import Baseline
from ...results.released import Drawing
from ...results.weighted import WeightedDraws
from .level_predictive import predictive_of
from .model import Model
from .predictive import BLOCK, Foreseen, Predictive, blocks

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

NAME = "effects.bin"
MAGIC = b"fedkern effects 1\n"
NEW = -1  # the number of a group that the client does not have


class About(NamedTuple):
    """Describes the numbers of the file.

    Attributes
    ----------
    run, client : the run, and the client's name
    converged : whether the server's checks passed
    encoding, family : of the columns, of one row's response
    group : the column of groups; None where the model has none
    terms : of a group's effect
    labels : of the groups
    cuts : between which a piecewise hazard is constant
    """

    run: str
    client: str
    converged: bool
    encoding: Any
    family: str
    group: str | None
    terms: Sequence[str]
    labels: Sequence[str]
    cuts: Sequence[float] = ()


@dataclass(frozen=True)
class Known:
    """Holds a client's posterior of its own rows' predictors.

    Attributes
    ----------
    about : the description beside it
    new : the posterior of rows of groups that the client does not have, with its own effect
    drawn : (m, R, G, d) of each draw R effects of each group, on the predictor's scale of the encoding's columns
    baseline : of survival times, in the data's unit, at each draw; None of other responses
    """

    about: About
    new: Predictive
    drawn: NDArray[np.float32]
    baseline: Baseline | None = None

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {text: number for number, text in enumerate(self.about.labels)}

    def numbers(self, labels: Sequence[str]) -> Indices:
        """Returns the number of each label's group (as `labels.label` writes it), `NEW` where the client has no such group."""
        return np.array([self._numbers.get(text, NEW) for text in labels], np.int64)

    def foreseen(
        self, X: Array, offset: Array | None, y: Array | None, groups: Indices, probabilities: Mapping[str, float]
    ) -> Foreseen:
        """Returns the prediction of rows X (n, p); those of the client's groups have the posterior of their effects."""
        n, parts, order = len(X), [], []
        for _, (some, drawn, shifts) in self.parts(X, offset, groups):
            parts.append(drawn.of_rows(X[some], shifts, None if y is None else y[some], probabilities))
            order.append(some)
        back = np.argsort(np.concatenate(order), kind="stable")  # to the order in which the rows came
        assert len(back) == n

        def joined(columns: Sequence[Array]) -> Array:
            return np.asarray(np.concatenate(columns, axis=-1)[..., back])

        return Foreseen(
            joined([part.mean for part in parts]),
            {name: joined([part.quantiles[name] for part in parts]) for name in probabilities},
            joined([part.linear_mean for part in parts]),
            joined([part.linear_sd for part in parts]),
            None if y is None else joined([part.log_density for part in parts if part.log_density is not None]),
        )

    def parts(
        self, X: Array, offset: Array | None, groups: Indices
    ) -> Iterator[tuple[bool, tuple[Indices, Predictive, Array | None]]]:
        """Yields rows that are foreseen in one way, with whether their groups are known: which they are, draws for them, and what
        is added to their predictors, (k,), or (draws, k) with the effects of their groups."""
        n, (m, several) = len(X), self.drawn.shape[:2]
        theta, scale = np.repeat(self.new.theta, several, axis=0), np.repeat(self.new.scale, several, axis=-1)
        inner = replace(self.new, theta=theta, covariances=(), scale=scale)
        # Rows of new groups average over the effect's distribution, those of known groups over its draws: each sort by itself.
        for of_known in (False, True):
            chosen = np.flatnonzero((groups != NEW) == of_known)
            if not len(chosen) and (of_known or n):
                continue
            for a, b in blocks(len(chosen), max(1, BLOCK // (m * several * max(1, len(self.about.terms))))):
                some = chosen[a:b]
                shift_of_rows = None if offset is None else offset[some]
                if of_known:
                    effects = self.drawn[:, :, groups[some]].reshape(m * several, len(some), -1).astype(np.float64)
                    shift = np.einsum("mnd,nd->mn", effects, self._columns(X[some]))
                    shift_of_rows = shift if shift_of_rows is None else shift + shift_of_rows
                yield of_known, (some, inner if of_known else self.new, shift_of_rows)

    def _columns(self, X: Array) -> Array:
        """(n, d) the factors of an effect's terms."""
        names = self.new.encoding.names
        return np.column_stack([np.ones(len(X)) if name == INTERCEPT else X[:, names.index(name)] for name in self.about.terms])


class Ended(NamedTuple):
    """Holds the draws and effects that a client has at the end.

    Attributes
    ----------
    told : (t, P) draws of the posterior
    inner : (t, ..) the same, each with the client's effect
    groups, labels : the effects of its groups, and their names; None and () where the model has none
    converged : whether the server's checks passed
    """

    told: Array
    inner: Array
    groups: Effects | None
    labels: Sequence[str]
    converged: bool


def write(folder: RunFolder, model: Model, client: int, ended: Ended) -> None:
    """Writes effects.bin into the client's own folder."""
    every_step = slice(None, None, 1 if ended.groups is None else ended.groups.step)
    theta, standard = model.coefficients(ended.inner[every_step])
    n = len(theta)
    equal, chosen = np.full(n, 1 / n), np.arange(n)[np.newaxis]
    others = model.others_at_client(ended.told[every_step], ended.inner[every_step])
    draws = WeightedDraws(model.layout.coefficients, theta, standard, others, equal, chosen, None)
    family, terms = one_trial(model.family), {"group": model.layout.group}
    new = predictive_of(family).of(draws.groups(Drawing(model.seed))["posterior"], model.encoding, family, terms, model.nu)
    drawn = np.zeros((n, 1, 0, 0), np.float32)
    if ended.groups is not None and ended.groups.drawn is not None:
        drawn = (model.units.scale * ended.groups.drawn).astype(np.float32)
    about = About(
        run=folder.run.hex(),
        client=model.names[client],
        converged=ended.converged,
        encoding=model.encoding.to_dict(),
        family=family,
        group=model.group,
        terms=model.layout.group,
        labels=ended.labels,
        cuts=model.cuts,
    )
    content: dict[str, Any] = {  # effects are float32
        "theta": new.theta,
        "scale": new.scale,
        "covariance": new.covariances[0][1] if new.covariances else np.zeros((n, 0, 0)),
        "drawn": drawn,
    }
    if (hazard := model.baseline_numbers(ended.told[every_step])) is not None:
        content["baseline"] = hazard
    own_posterior.write(folder, client, NAME, MAGIC, about._asdict(), content)


def read(folder: Path, run: str, client: str) -> Known:
    """Returns the effects in a client's own folder; `run`, `client`: the run's id and the client's name, as in the file.

    Raises
    ------
    JobError
        The run left none there, or none that can be read.
    """
    head, content = own_posterior.read(folder, NAME, MAGIC, run, client, "give a run that has ended")
    about = About(**head)
    covariances = [(tuple(about.terms), content["covariance"])] if about.terms else []
    encoding = Encoding.from_dict(about.encoding)
    new = predictive_of(about.family)(encoding, about.family, content["theta"], covariances, content["scale"])
    hazard = content.get("baseline")
    baseline = None if hazard is None else Baseline(about.family, hazard, np.array(about.cuts, np.float64))
    return Known(about, new, content["drawn"], baseline)
