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

from ...arrays import Array, Indices
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

NAME = "effects.bin"
MAGIC = b"fedkern effects 1\n"
NEW = -1  # the number of a group that the client does not have


class About(NamedTuple):
    """Describes the numbers of the file."""

    # run, client: the run, and the client's name
    run: str
    client: str
    converged: bool  # whether the server's checks passed
    # encoding, family: of the columns, of one row's response
    encoding: Any
    family: str
    group: str | None  # the column of groups; None where the model has none
    terms: Sequence[str]  # of a group's effect
    labels: Sequence[str]  # of the groups
    cuts: Sequence[float] = ()  # between which a piecewise hazard is constant
    outer: Sequence[tuple[str, Sequence[str], Sequence[str]]] = ()  # the same three of each other kind of groups of the same rows

    @property
    def kinds(self) -> list[tuple[str, Sequence[str], Sequence[str]]]:
        """Column, terms and labels of each kind of groups, `group` the first."""
        return [] if self.group is None else [(self.group, self.terms, self.labels), *self.outer]

    @property
    def columns(self) -> list[str]:
        """The columns of groups."""
        return [column for column, _, _ in self.kinds]


@dataclass(frozen=True)
class Known:
    """Holds a client's posterior of its own rows' predictors."""

    about: About  # the description beside it
    new: Predictive  # the posterior of rows of groups that the client does not have, with its own effect
    # (m, R, G, d) of each draw R effects of each group of each kind, on the predictor's scale of the encoding's columns
    drawn: Sequence[NDArray[np.float32]]
    baseline: Baseline | None = None  # of survival times, in the data's unit, at each draw; None of other responses

    @cached_property
    def _numbers(self) -> Sequence[Mapping[str, int]]:
        return [{text: number for number, text in enumerate(labels)} for _, _, labels in self.about.kinds]

    def numbers(self, labels: Sequence[Sequence[str]], n: int) -> Indices:
        """Returns (n, kinds) the numbers of n rows' groups, by the labels of each kind (as `labels.label` writes them); `NEW`
        where the client has no such group."""
        found = [[numbers.get(text, NEW) for text in of_kind] for numbers, of_kind in zip(self._numbers, labels, strict=True)]
        return np.array(found, np.int64).reshape(len(found), n).T

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
        (m, several), kinds = self.drawn[0].shape[:2] if self.drawn else (len(self.new.theta), 1), self.about.kinds
        theta, scale = np.repeat(self.new.theta, several, axis=0), np.repeat(self.new.scale, several, axis=-1)
        several_draws = replace(self.new, theta=theta, scale=scale)
        # Rows of new groups average over the effect's distribution, those of known groups over its draws: each sort by itself.
        sorts, sort = np.unique(groups != NEW, axis=0, return_inverse=True)
        for k, known in enumerate(sorts if len(groups) else np.zeros((1, len(kinds)), bool)):
            chosen, any_known = np.flatnonzero(sort.ravel() == k), bool(known.any())
            size = m * several * max(1, *(len(terms) for _, terms, _ in kinds), 1)
            left = [
                (terms, np.repeat(covariance, several, axis=0) if any_known else covariance)
                for (terms, covariance), is_known in zip(self.new.covariances, known)
                if not is_known
            ]
            drawn = replace(several_draws if any_known else self.new, covariances=left)
            for a, b in blocks(len(chosen), max(1, BLOCK // size)):
                some = chosen[a:b]
                shift = None if offset is None else offset[some]
                for (_, terms, _), effects, numbers in (
                    kind for kind, is_known in zip(zip(kinds, self.drawn, groups.T), known) if is_known
                ):
                    of_rows = effects[:, :, numbers[some]].reshape(m * several, len(some), -1).astype(np.float64)
                    more = np.einsum("mnd,nd->mn", of_rows, self._columns(X[some], terms))
                    shift = more if shift is None else shift + more
                yield any_known, (some, drawn, shift)

    def _columns(self, X: Array, terms: Sequence[str]) -> Array:
        """(n, d) the factors of an effect's terms."""
        names = self.new.encoding.names
        return np.column_stack([np.ones(len(X)) if name == INTERCEPT else X[:, names.index(name)] for name in terms])


class Ended(NamedTuple):
    """Holds the draws and effects that a client has at the end."""

    told: Array  # (t, P) draws of the posterior
    inner: Array  # (t, ..) the same, each with the client's effect
    groups: Sequence[Effects]  # the effects of each kind of its groups, the last of the job first, as `Layout.effects` has them
    labels: Sequence[Sequence[str]]  # the names of these groups
    converged: bool  # whether the server's checks passed


def write(folder: RunFolder, model: Model, client: int, ended: Ended) -> None:
    """Writes effects.bin into the client's own folder."""
    every_step = slice(None, None, ended.groups[0].step if ended.groups else 1)
    theta, standard = model.coefficients(ended.inner[every_step])
    n = len(theta)
    equal, chosen = np.full(n, 1 / n), np.arange(n)[np.newaxis]
    others = model.others_at_client(ended.told[every_step], ended.inner[every_step])
    draws = WeightedDraws(model.layout.coefficients, theta, standard, others, equal, chosen, None)
    family = one_trial(model.family)
    terms = {level: effect.terms for level, effect in [*model.layout.effects.items()][:-1]} | model.terms_of_shared
    new = predictive_of(family).of(draws.groups(Drawing(model.seed))["posterior"], model.encoding, family, terms, model.nu)
    kinds = [(grouping.column, grouping.terms, named) for grouping, named in zip(model.groupings, ended.labels)]
    drawn = [effects.drawn for effects in ended.groups]
    if (shared := model.shared) is not None:  # whose effects are in the draws that all are told
        kinds.append((shared.column, shared.terms, shared.levels))
        several = 1 if not drawn or drawn[0] is None else drawn[0].shape[1]
        of_shared = ended.told[every_step, model.layout.shared_at].astype(np.float32)
        drawn.append(np.repeat(of_shared[:, np.newaxis, :, np.newaxis], several, axis=1))
    column, terms_of_group, labels = kinds[0] if kinds else (None, (), ())
    about = About(
        run=folder.run.hex(),
        client=model.names[client],
        converged=ended.converged,
        encoding=model.encoding.to_dict(),
        family=family,
        group=column,
        terms=terms_of_group,
        labels=labels,
        cuts=model.cuts,
        outer=kinds[1:],
    )
    content: dict[str, Any] = {  # effects are float32
        "theta": new.theta,
        "scale": new.scale,
        "covariance": np.zeros((n, 0, 0)),
        "drawn": np.zeros((n, 1, 0, 0), np.float32),
    }
    for k, ((_, covariance), effects) in enumerate(zip(new.covariances, drawn)):
        assert effects is not None
        content[f"covariance{k or ''}"] = covariance
        content[f"drawn{k or ''}"] = (model.units.scale * effects).astype(np.float32)
    if (hazard := model.baseline_numbers(ended.told[every_step])) is not None:
        content["baseline"] = hazard
    own_posterior.write(folder, client, NAME, MAGIC, about._asdict(), content)


def read(folder: Path, run: str, client: str) -> Known:
    """Returns the effects in a client's own folder; `run`, `client`: the run's id and the client's name, as in the file. Raises
    JobError: the run left none there, or none that can be read."""
    head, content = own_posterior.read(folder, NAME, MAGIC, run, client, "give a run that has ended")
    about = About(**head)
    kinds = [(tuple(terms), str(k or "")) for k, (_, terms, _) in enumerate(about.kinds)]
    covariances = [(terms, content[f"covariance{k}"]) for terms, k in kinds]
    encoding = Encoding.from_dict(about.encoding)
    new = predictive_of(about.family)(encoding, about.family, content["theta"], covariances, content["scale"])
    hazard = content.get("baseline")
    baseline = None if hazard is None else Baseline.of_family(about.family, hazard, np.array(about.cuts, np.float64))
    return Known(about, new, [content[f"drawn{k}"] for _, k in kinds], baseline)
