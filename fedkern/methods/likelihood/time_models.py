"""Holds the models of survival times: of a hazard that all clients share, and Cox models, where each client has its own.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...algorithms.exchanges import level, odd_response
from ...algorithms.exchanges.answers import CumulativeHazards
from ...algorithms.exchanges.sums import LifetimeSums, PearsonSums, SurvivalSums
from ...algorithms.importance import machine as importance
from ...arrays import Array
from ...data.design import Design
from ...data.table import Table
from ...disclosure.look import LEAST_AT_RISK
from ...finding import Finding
from ...jobs.stage import Stage
from ...kernels.families import ACCELERATED
from ...models import frailty, survival, survival_parametric
from ...models.encoding import INTERCEPT
from ...models.mixed import Layout, Prior
from ...models.mixed.layout import Shape
from ...models.mixed.learnt import Learnt
from ...models.spatial import units
from ...models.survival_parametric import Baseline, Lifetimes, Walk
from ...results.weighted import summarised
from .clusters import clusters_of
from .model import TOLD, Model
from .patient import Patient, notes_of, patient_of
from .rows import Held, check_number, codes_of, sort_by_group, times_of
from .time_units import of_client, of_rates
from .times import Columns, Timed, describe_times, exposure, read_timed_rows

NO_EVENT = (
    "rows say nothing, for no client has an event while others are at risk, and the posterior is the prior: look at column {!r}, "
    "and at what counts as an event there (data.positive)"
)


class Lived(NamedTuple):
    """Holds a client's rows whose hazard all clients share: their columns by group, and their times in the file's order."""

    held: Held
    times: Timed


@dataclass(frozen=True)
class TimeModel(Model):
    """Holds a job whose rows have survival times."""

    @property
    def times(self) -> Columns:
        """The columns of the times."""
        columns = times_of(self.config)
        assert columns is not None
        return columns

    @property
    def survival_at(self) -> tuple[float, ...]:
        """The times at which the probability to be without event is asked for."""
        return tuple(self.output.survival_at or ())

    @cached_property
    def patient(self) -> Patient:
        """The patient whose curves the result has."""
        return patient_of(self.encoding, self.declared, self.bases, self.config.data.standardise)

    def check_columns(self) -> list[str]:
        curves = self.survival_at or (self.config.lifetimes and self.output.restricted_mean is not None)
        return [*super().check_columns(), *(notes_of(self.patient) if curves else [])]

    @property
    def of_patient(self) -> dict[str, Any]:
        """The entry of summary.json beside curves that says whose they are."""
        return {"patient": dict(self.patient.values)}

    @property
    def kind_in_summary(self) -> dict[str, object]:
        return {"hazards": self.family}  # the encoding has the family of a response

    def describe_response(self) -> str:
        entry = f" from {self.times.entry}" if self.times.entry else ""
        return f"{self.times.time}{entry}, event {self.encoding.response}"


@dataclass(frozen=True)
class CoxModel(TimeModel):
    """Holds a job of a Cox model, in which each client has baseline hazards of its own."""

    def read(self, design: Design, table: Table, client: str) -> Timed:
        rows = read_timed_rows(self.times, design, table, client, positive=False)
        for grouping in self.config.random.every:
            codes, labels = codes_of(table, grouping.column, np.arange(table.n_rows))
            rows = replace(rows, codes=codes, groups=labels, key=self.key_of_integral(client))
        return rows

    def check_rows(self, rows: Timed, client: str, source: str) -> None:
        """Refuses more groups than are integrated together."""
        check_number(len(rows.groups), client, source)

    def describe_rows(self, rows: Timed) -> list[str]:
        return describe_times(rows, exposed=False)

    def likelihood(self, rows: Timed, n_threads: int) -> survival.Causes | frailty.Rows:
        given = (rows.entry, rows.strata, rows.weights, rows.offset)
        layout = Layout(self.encoding.names, self.family)
        parts = tuple(
            survival.Rows.of(layout, rows.X, rows.time, rows.cause == k, *given, n_threads=n_threads)
            for k in range(1, len(self.blocks) + 1)
        )
        if rows.codes is not None:
            return frailty.Rows.of(self.layout, parts[0], rows.codes, rows.weights, rows.key)
        return survival.Causes(self.layout, parts)

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes of events, each with coefficients of its own; an empty name of events of one kind."""
        return self.config.causes or ("",)

    @property
    def has_causes(self) -> bool:
        """Whether events have causes."""
        return bool(self.config.causes)

    @property
    def levels(self) -> tuple[str, ...]:
        return self.config.levels

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(f"{cause}:" for cause in self.config.causes) or ("",)

    @property
    def kind_in_summary(self) -> dict[str, object]:
        causes = {"causes": list(self.config.causes)} if self.has_causes else {}
        return {**super().kind_in_summary, **causes}

    @property
    def absorbs_constants(self) -> bool:
        return True  # baseline hazards do

    @property
    def free_slopes(self) -> tuple[str, ...]:
        return ()

    def data_in_summary(self, log_likelihood_at_start: float) -> dict[str, float]:
        """Returns the partial log-likelihood where coefficients are 0, which depends on nothing but who is at risk at whose
        event."""
        return {} if self.layout.group else {"null_log_likelihood": round(log_likelihood_at_start, 1)}

    def doubts(self, log_likelihood_at_start: float) -> list[str]:
        """Returns the doubt of rows that say nothing: each term of their likelihood is 1."""
        values = len(self.summaries) < len(self.names)  # of summaries nothing is known there
        return [NO_EVENT.format(self.encoding.response)] if values and log_likelihood_at_start == 0 else []

    @property
    def sums_stage(self) -> Stage:
        """The question for proportional hazards and concordance, once a cause: responses cannot be drawn without baseline
        hazards."""
        stage = replace(Stage.asking(SurvivalSums, {"d": self.encoding.size}), runs=len(self.causes))
        return stage.with_sums(SurvivalSums.hidden, secure=self.secure)

    @property
    def curve_stages(self) -> list[Stage]:
        """The question for cumulative hazards at the job's times, once a cause."""
        n_times = len(self.survival_at)
        stage = Stage.asking(CumulativeHazards, {"t": TOLD, "times": n_times})
        return [replace(stage, runs=len(self.causes))] if n_times else []

    @property
    def weight_stages(self) -> list[Stage]:
        """The question for the mean weight, where rows have weights."""
        if self.config.data.weight is None:
            return []
        return [Stage.asking(PearsonSums, {"d": 0}, secure=self.secure)]  # of sums at no coefficients

    def describe_kind(self) -> Iterator[str]:
        data, wanted = self.config.data, self.config.requirement.told_up_to(self.encoding.size)
        times = ", ".join(f"{t:g}" for t in self.survival_at)
        curves = f"of which it tells the cumulative hazard at {times}" if times else "which stays with it"
        yield f"hazards  each client's own baseline{f', by {data.strata!r}' if data.strata else ''}, {curves}"
        if self.has_causes:
            each = f"each with {self.encoding.size} coefficients; a row without event has {self.levels[0]!r}"
            yield f"causes   {', '.join(self.causes)}, {each}"
        yield "curvature what a client sends tells, at each time of an event, means and squares of the columns of who is at risk:"
        yield f"         each client needs more than {wanted} events while {LEAST_AT_RISK} rows or more are at risk, or no event"
        of_causes = ", of each cause by itself" if self.has_causes else ""
        yield f"         at all: it takes part then, and tells that it has none{of_causes}"


@dataclass(frozen=True)
class LifetimeModel(TimeModel):
    """Holds a job whose baseline hazard all clients share."""

    @property
    def cuts(self) -> tuple[float, ...]:
        """The times between which a piecewise hazard is constant."""
        return tuple(self.config.model.cuts or ())

    @property
    def entered_together(self) -> bool:
        """Whether each group is there because all of its rows were without event until their entries."""
        return self.config.random.entered_together

    def baseline_numbers(self, points: Array) -> Array:
        return Baseline.of(self.layout, points, np.array(self.cuts)).own  # without a unit: the coefficients have it

    @property
    def log_unit(self) -> float:
        """The logarithm of the model's unit of time, in the data's: how long rows were seen for one event, or the time that the
        job file gives. With it neither prior nor result depend on days or years."""
        given = self.config.model.intercept_centre
        return -self.units.level if given is None else self.of_time * given

    @property
    def of_time(self) -> float:
        """The power of a unit of time that a row's predictor is the logarithm of."""
        return 1.0 if self.family in ACCELERATED else -1.0

    @property
    def level_family(self) -> str:
        return "poisson"  # events by the time that rows were seen

    def read(self, design: Design, table: Table, client: str) -> Lived:
        times = read_timed_rows(self.times, design, table, client, positive=True)
        held = replace(sort_by_group(design, table, self.config.random), key=self.key_of_integral(client))
        return Lived(replace(held, clusters=clusters_of(table, *self.clusters)) if self.survey else held, times)

    def check_rows(self, rows: Lived, client: str, source: str) -> None:
        super().check_rows(rows.held, client, source)

    def describe_rows(self, rows: Lived) -> list[str]:
        return describe_times(rows.times, exposed=True)

    def exposure(self, rows: Lived) -> Array:
        return exposure(rows.times)

    def likelihood(self, rows: Lived, n_threads: int) -> importance.Model:
        design, times = rows
        order = slice(None) if design.order is None else design.order
        entry = None if times.entry is None else times.entry[order]
        return Lifetimes.of(
            self.layout,
            design.X,
            times.time[order],
            times.upper[order],
            design.starts,
            entry,
            design.offset if self.offset else None,
            np.array(self.cuts),
            n_threads,
            math.exp(self.log_unit),
            together=self.entered_together,
            codes=design.codes,
            key=design.key,
        )

    @property
    def _shapes(self) -> tuple[Shape, ...] | None:
        return survival_parametric.shapes_of(self.family, self.cuts)

    @property
    def centre(self) -> float:
        """The centre of the intercept's prior: 0, in the model's own unit of time."""
        return 0.0

    @property
    def zero_of_intercept(self) -> float | None:
        return None if self.family == "weibull" else self.of_time * self.log_unit

    def prior_of(self, layout: Layout) -> Prior | Learnt:
        usual = super().prior_of(layout)
        return Walk(usual) if isinstance(usual, Prior) and self.family == "piecewise" else usual

    def compare_levels(self, answers: Sequence[tuple[float, float]]) -> Sequence[Finding]:
        return of_rates(self.telling, answers, client=bool(self.layout.client), exact=self.times.upper is None)

    @property
    def compares_alone(self) -> bool:
        return self.secure

    def compare_alone(self, client: level.Client, numbers: tuple[float, float, float]) -> odd_response.Compared:
        own_sums = units.sums(self.level_family, client.rows, weights=client.weights)
        return of_client(own_sums, *numbers[:2], client=bool(self.layout.client), several=len(self.names) > 2)

    @property
    def found_alone(self) -> tuple[str, str]:
        return "times-odd-somewhere", "times-in-another-unit-somewhere"

    @property
    def takes_client(self) -> bool:
        return not self.entered_together and super().takes_client

    @property
    def _start_of_intercept(self) -> float:
        return self.centre

    @property
    def _learnt_scale(self) -> int | None:
        return self.layout.size - 1 if self.family == "piecewise" else super()._learnt_scale

    def _of_columns(self, points: Array) -> Array:
        standard = super()._of_columns(points).copy()
        log_shape = points[:, points.shape[1] - len(self.layout.shapes)] if self.family == "weibull" else np.zeros(len(points))
        standard[:, 0] += self.of_time * self.log_unit * np.exp(log_shape)
        return standard

    def covariance_of_coefficients(self, xi: Array, covariance: Array) -> Array:
        if self.family != "weibull":
            return super().covariance_of_coefficients(xi, covariance)
        J = np.eye(self.layout.p, len(xi))  # on the data's scale of time the intercept depends on the shape
        first = self.layout.shapes_at.start
        J[0, first] = -self.log_unit * np.exp(xi[first])
        return np.asarray(J @ covariance @ J.T)

    def _family_numbers(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) the numbers of a hazard beside its coefficients.

        "piecewise" has the logarithm of each later piece's hazard, for a row whose covariates are 0; the intercept is that of the
        first piece.
        """
        if self.family != "piecewise":
            return super()._family_numbers(points)
        shapes, cuts = points[:, self.layout.shapes_at].T, self.cuts
        first = self.coefficients(points)[0][:, 0]
        ends = [*(f"to {cut:g}" for cut in cuts[1:]), "on"]
        hazards = {f"log_hazard[{begin:g} {end}]": first + b for begin, end, b in zip(cuts, ends, shapes)}
        return hazards | ({"walk_sd": np.exp(shapes[len(cuts)])} if len(shapes) > len(cuts) else {})

    def summarise_draws(self, points: Array) -> dict[str, Any]:
        """Returns `survival` and `restricted_mean` of summary.json, where the job asks for them.

        They are those of `patient`, as a row of a new group and a new client.
        """
        times, tau = self.survival_at, self.output.restricted_mean
        if not (times or tau):
            return {}
        unit, layout = float(np.exp(self.log_unit)), self.layout
        base = Baseline.of(layout, points, np.array(self.cuts) / unit)
        variance = np.zeros(len(points))
        for of in layout.levels:
            if terms := layout.terms(of):
                variance += (layout.factor(points, of)[:, terms.index(INTERCEPT)] ** 2).sum(axis=1)
        variance += np.exp(2 * points[:, -1]) if layout.shared else 0.0
        eta, variance = (points[:, : layout.p] @ self.patient.row)[:, np.newaxis], variance[:, np.newaxis]
        content: dict[str, Any] = self.of_patient
        equal = np.full(len(points), 1 / len(points))
        if times:
            values = survival_parametric.survival(base, eta, variance, np.array(times) / unit)[:, :, 0]
            content["survival"] = [{"time": t, **summarised(curve, equal)} for t, curve in zip(times, values.T)]
        if tau is not None:
            mean = unit * survival_parametric.restricted_mean(base, eta, variance, tau / unit)[:, 0]
            content["restricted_mean"] = {"until": tau, **summarised(mean, equal)}
        return content

    def data_in_summary(self, log_likelihood_at_start: float) -> dict[str, float]:
        """Returns how long rows were seen for one event."""
        return {"time_per_event": float(f"{math.exp(self.log_unit):.6g}")} if self.asks_level else {}

    @property
    def sums_stage(self) -> Stage:
        """The question where times are in their predictive distributions, and for concordance."""
        return Stage.asking(LifetimeSums, {"pieces": 1 + len(self.cuts)}, secure=self.secure)

    def describe_kind(self) -> Iterator[str]:
        wanted = self.config.requirement.told_up_to(self.encoding.size)
        given = self.config.model.intercept_centre is not None
        pieces = f", constant between {', '.join(f'{cut:g}' for cut in self.cuts)}: logarithms walk, sd ~ HalfNormal(1)"
        scale = "sigma ~ half-Student(3, 1), and exp(theta) is a ratio of times: above 1 the event comes later"
        yield {
            "weibull": "hazards  one baseline for all clients, 1 / sqrt(shape) ~ HalfCauchy(1)",
            "exponential": "hazards  one baseline for all clients, constant",
            "piecewise": f"hazards  one baseline for all clients{pieces}",
            "lognormal-aft": f"times    logarithms are normal about the predictor; {scale}",
            "loglogistic-aft": f"times    logarithms are logistic about the predictor; {scale}",
        }[self.family]
        if self.config.data.entry is not None and self.config.model.random is not None:
            one_by_one = "of rows that came one by one, each given no event until its own; it takes groups of twenty rows or more"
            together = "of groups that are there because all of their rows were without event until these"
            yield f"entries  {together if self.entered_together else one_by_one}"
        if not given:
            consequence = "each client tells its events, and how long it saw rows"
            yield f"unit     of time: how long rows were seen for one event; {consequence}"
        consequence = (
            "the sums tell X'WX of all clients' rows, and which had events"
            if self.secure
            else ("what a client sends tells X'WX of its rows, and whose events they are")
        )
        yield f"curvature {consequence}:"
        yield f"         each client needs more than {wanted} events while {LEAST_AT_RISK} rows or more are at risk, or no event"
        yield "         at all: it takes part then, and adds how long its rows were seen"
