"""Holds the models of a response that is one of several levels, with an order and without one.

Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...algorithms.exchanges import level_sums
from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...disclosure import look
from ...jobs.stage import Stage
from ...models import levels
from ...models.encoding import INTERCEPT
from ...models.levels import GAP_SD
from ...models.mixed import Layout, Prior
from ...models.mixed.layout import Shape
from .model import TOLD, Model
from .rows import Held

OF_TOLD = 2  # draws that were told, of which one is taken where responses are levels


@dataclass(frozen=True)
class LevelModel(Model):
    """Holds a job whose response is one of several levels."""

    shares: tuple[float, ...] = ()  # of all rows, that have each level of the response, once they are known
    unseen: tuple[str, ...] = ()  # at the server, levels that no row has

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the response: ordered ones from the lowest, of others the reference first."""
        return self.config.levels

    @property
    def pooled_shares(self) -> Array:
        """(K,) the shares of the levels; equal ones until they are known."""
        return np.array(self.shares or [1 / len(self.levels)] * len(self.levels))

    @property
    def asks_level(self) -> bool:
        return False  # shares of the levels are asked for in its place

    def reason(self, why: str) -> str:
        """Names the levels that no row has: what is beside them is the prior's, and wide, and no number of draws mends that."""
        if not (why and self.unseen):
            return why
        those = f"level {self.unseen[0]!r} is" if len(self.unseen) == 1 else f"levels {', '.join(map(repr, self.unseen))} are"
        return (
            f"{those} in no client's rows, and draws do not reach what the prior alone makes of it: leave it out of data.levels"
        )

    def with_shares(self, shares: tuple[float, ...]) -> LevelModel:
        """Returns the model once the shares of the levels are known."""
        return replace(self, shares=shares)

    @property
    def told(self) -> bytes:
        return super().told + repr(self.shares).encode()

    @property
    def unknown_of_a_level(self) -> str:
        """The numbers that only the prior tells where nobody has a level."""
        raise NotImplementedError

    @property
    def summed_columns(self) -> int:
        """The number of columns whose sums over a level's rows are told."""
        raise NotImplementedError

    @property
    def ordered(self) -> bool:
        """Whether the levels have an order."""
        return False

    @property
    def response_stages(self) -> list[Stage]:
        stage = Stage(level_sums.PROTOCOL, level_sums.dims(len(self.levels)), times={level_sums.AskLevels: 2})
        return [stage.with_sums(level_sums.LevelNumbers.hidden, secure=self.secure)]

    @property
    def sums_stage(self) -> Stage:
        dims = level_sums.dims(len(self.levels), self.summed_columns, TOLD // OF_TOLD)
        return Stage.asking(level_sums.LevelNumbers, dims, secure=self.secure)

    def describe_kind(self) -> Iterator[str]:
        yield self._listed
        requirement = self.config.requirement
        least = look.of_a_level(requirement, look.of_a_value(requirement, self.config.row.name))
        few = f"; one that occurs there must be in {least} rows or more" if least > 1 else ""
        yield f"         each client tells how many of its rows have each{few}"
        yield from super().describe_kind()

    @property
    def _listed(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class OrderedModel(LevelModel):
    """Holds a job of ordered levels: thresholds, and one coefficient of each column."""

    @property
    def link(self) -> str:
        """The link of cumulative probabilities."""
        return self.config.model.link or "logit"

    @property
    def _shapes(self) -> tuple[Shape, ...] | None:
        given = (self.centre, self.prior_sds[1])
        return levels.prior_of_thresholds(self.levels, self.pooled_shares, self.link, *given)

    @property
    def centre(self) -> float:
        """The centre of the prior of the thresholds' mean."""
        given = self.config.model.intercept_centre
        return levels.level_of(self.pooled_shares, self.link) if given is None else given

    @property
    def coordinates(self) -> importance.Coordinates:
        seen = next((k for k, level in enumerate(self.levels[:-2]) if level not in self.unseen), len(self.levels) - 2)
        if self.chains or self.summaries or not seen:
            return super().coordinates
        first = self.layout.shapes_at.start
        return replace(super().coordinates, anchored=tuple(range(first, first + seen + 1)))

    @property
    def compared(self) -> tuple[tuple[str, ...], list[int], bool]:
        names, places, _ = super().compared
        return (INTERCEPT, *names), [self.layout.shapes_at.start, *places], True  # the first threshold is the intercept

    @property
    def absorbs_constants(self) -> bool:
        return True  # thresholds do

    @property
    def ordered(self) -> bool:
        return True

    @property
    def may_be_reversed(self) -> bool:
        return not (self.offset or self.secure)

    @property
    def of_slopes(self) -> tuple[list[int], int]:
        thresholds = range(self.layout.size)[self.layout.shapes_at]
        return [*thresholds, *range(self.layout.p)], len(thresholds)

    @property
    def other_way(self) -> tuple[str, Mapping[str, str]]:
        return "slopes-reversed-of-levels", {"last": self.levels[-1], "first": self.levels[0]}

    def others_at_client(self, draws: Array, inner: Array) -> dict[str, Array]:
        return self.others(draws) | self._family_numbers(inner)  # a client's effect shifts its thresholds

    def _family_numbers(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) thresholds on the data's scale, at points whose last numbers are theirs: c - x'b of standardised columns
        is that of the columns themselves where c is by b'(centre / scale) larger."""
        shift = points[:, : self.layout.p] @ levels.centres(self.encoding)
        thresholds = levels.thresholds(points, len(self.levels)) + shift[:, np.newaxis]
        return dict(zip(levels.threshold_names(self.levels), thresholds.T))

    @property
    def unknown_of_a_level(self) -> str:
        return "thresholds beside it"

    @property
    def summed_columns(self) -> int:
        return self.layout.p

    @property
    def _listed(self) -> str:
        return f"levels   {' < '.join(self.levels)}"

    def describe_priors(self) -> str:
        m = self.config.model
        centre = "its pooled level" if m.intercept_centre is None else f"{m.intercept_centre:g}"
        thresholds = f"mean of thresholds ~ N({centre}, {self.prior_sds[1]:g}^2), log gaps ~ N(0, {GAP_SD:g}^2)"
        return f"{self._prior_of_coefficients}, {thresholds}"


@dataclass(frozen=True)
class NominalModel(LevelModel):
    """Holds a job of levels without an order: each but the first has coefficients of its own."""

    def prior_of(self, layout: Layout) -> Prior:
        facts = self.encoding.names, self.pooled_shares, self.config.model.intercept_centre
        usual = levels.prior_of_blocks(layout, *facts, *self.prior_sds)
        return self.named.over(usual if self.effects is None else usual.of_effects(self.effects, len(self.blocks)), self)

    @property
    def takes_client(self) -> bool:
        return False

    @property
    def free_slopes(self) -> tuple[str, ...]:
        return ()

    @property
    def start_at(self) -> Array:
        """(P,) where the way to the mode begins: the prior's mean."""
        return np.array(self.prior_of(self.layout).mean)

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(f"{level}:" for level in self.levels[1:])

    @property
    def compared(self) -> tuple[tuple[str, ...], list[int], bool]:
        names, places, _ = super().compared
        return names, places, False  # no one of the blocks' intercepts is that of all

    def likelihood(self, rows: Held, n_threads: int) -> importance.Model:
        return levels.Rows(self.layout, rows.X, rows.y, len(self.levels), n_threads)

    @property
    def kind_in_summary(self) -> dict[str, object]:
        return {"nominal": list(self.levels[1:])}

    @property
    def unknown_of_a_level(self) -> str:
        return "coefficients"

    @property
    def summed_columns(self) -> int:
        return 0

    @property
    def _listed(self) -> str:
        against = f"; each but {self.levels[0]!r} has {self.encoding.size} coefficients"
        return f"levels   {', '.join(self.levels)}{against}"

    def describe_priors(self) -> str:
        m = self.config.model
        if m.intercept and m.intercept_centre is None:
            shares = f"intercepts ~ N(log of pooled shares over the first's, {self.prior_sds[1]:g}^2)"
            return f"{self._prior_of_coefficients}, {shares}"
        return super().describe_priors()
