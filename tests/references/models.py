"""What the jobs of models.toml compute: the log-likelihood of all clients at published numbers, and the mode of the posterior.

A job goes as far as its rows are read and its columns agreed; the clients' log-likelihoods and the prior are then those of the
job itself. A point is given by the numbers that a result publishes, on the data's scale; the unknowns that make them are found by
Newton's steps with the job's own map from unknowns to published numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import fedkern
from fedkern.arrays import Array
from fedkern.kernels import glm
from fedkern.methods.likelihood import run as likelihood_run
from fedkern.methods.likelihood.steps import Read
from fedkern.methods.pvi import run as pvi_run
from fedkern.models.glm import Rows
from fedkern.models.mixed.rows import find_mode

from .record import FACTORS, MODELS, file_of

Numbers = dict[str, float]
VAGUE = 1e3  # standard deviation of a prior that does not move a mode
STEP = 1e-4  # of differences of the map, whose numbers are of the size of 1


class _Read(BaseException):
    """Ends a job whose rows have been read."""

    def __init__(self, read: tuple[Any, ...]) -> None:
        self.read = read


def frame_of(row: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row's data set with the columns that it makes."""
    frame = pd.read_csv(file_of(row), keep_default_na=False)
    for name, expression in row.get("make", {}).items():
        frame[name] = frame.eval(expression)
    return frame


def points_of(row: Mapping[str, Any]) -> Iterator[Numbers]:
    """Yields the three points of a row, as published numbers."""
    for factor in FACTORS:
        yield {name: factor * number for name, number in row["at"].items()}


def tables_of(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the job of a row."""
    of_prior = {"prior_sd": VAGUE} if row["family"] in WITHOUT_INTERCEPT else {"prior_sd": VAGUE, "intercept_sd": VAGUE}
    model = {"family": row["family"], "formula": row["formula"], **of_prior, **row.get("model", {})}
    return {"job": {"method": row.get("method", "likelihood")}, "data": row.get("columns", {}), "model": model}


WITHOUT_INTERCEPT = ("cox",)


@dataclass(frozen=True)
class Flat:
    """Is no prior of what rows depend on: numbers of a prior alone are held about where they begin."""

    start: Array
    held: Array

    @classmethod
    def of(cls, model: Any) -> Flat:
        held = np.zeros(model.size)
        held[model.layout.shapes_at] = [shape.of_prior for shape in model.layout.shapes]
        return cls(model.start_at, held)

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        off = self.held * (xi - self.start)
        return -0.5 * float(off @ off), -off, np.diag(self.held)


@dataclass(frozen=True)
class PviJob:
    """Holds the rows of a job of `pvi`, as they were read; its posterior is that of the whole job."""

    model: Any
    rows: Mapping[int, Any]
    tables: Mapping[str, Any]
    data: Mapping[str, pd.DataFrame]

    def log_likelihood(self, numbers: Numbers) -> float:
        """Returns the log-likelihood at a point of published numbers."""
        encoding = self.model.encoding
        theta = np.linalg.solve(encoding.affine(), np.array([*numbers.values()]))
        given = {"family": encoding.family, "scale": self.model.scale}
        return sum(
            glm.loglik_grad(own.X, own.y, theta, offset=own.offset, weights=own.weights, **given)[0] for own in self.rows.values()
        )

    def mode(self, start: Numbers) -> dict[str, tuple[float, float]]:
        """Returns name -> mean and standard deviation of the posterior, which is normal where the response is."""
        found = fedkern.run(self.tables, data=self.data).parameters
        named = {name.removeprefix("theta[").removesuffix("]") if name.startswith("theta[") else name: name for name in found}
        return {name: (found[named[name]]["mean"], found[named[name]]["sd"]) for name in start}


@dataclass(frozen=True)
class Job:
    """Holds the rows of a job, as they were read."""

    read: Read
    nodes: int
    flat: bool

    @property
    def model(self) -> Any:
        return self.read.model

    @property
    def log_unit(self) -> float:
        """What makes the log-likelihood one of the response in the data's unit."""
        if not self.model.measured:
            return 0.0
        return float(np.log(self.model.units.scale)) * sum(len(rows) for rows in self.read.rows.values())

    def curvature(self, points: Array, nodes: int) -> tuple[Array, Array, Array]:
        """Returns the sum over clients of log-likelihoods at points, with gradients and minus Hessians."""
        told = [rows.curvature(points, nodes) for rows in self.read.likelihoods.values()]
        value, gradient, curved = (sum(part) for part in zip(*told, strict=True))
        return value - self.log_unit, gradient, curved

    def published(self, points: Array) -> dict[str, Array]:
        """Returns name -> (N,) the numbers that a result has, at points (N, P)."""
        theta, _, others = self.model.at_references(points)
        return {**{name: theta[:, k] for k, name in enumerate(self.model.published)}, **others}

    def matrix(self, xi: Array, names: list[str]) -> tuple[Array, Array]:
        """Returns the published numbers (k,) at unknowns (P,), and their derivatives (k, P)."""
        steps = np.concatenate([np.zeros((1, len(xi))), STEP * np.eye(len(xi)), -STEP * np.eye(len(xi))])
        told = self.published(xi + steps)
        values = np.array([told[name] for name in names])
        return values[:, 0], (values[:, 1 : len(xi) + 1] - values[:, len(xi) + 1 :]) / (2 * STEP)

    def unknowns(self, numbers: Numbers) -> Array:
        """Returns unknowns whose published numbers are these."""
        names, wanted = [*numbers], np.array([*numbers.values()])
        xi = self.model.start_at.copy()
        for _ in range(100):
            value, slope = self.matrix(xi, names)
            off = wanted - value
            if np.abs(off).max() <= 1e-13 * np.abs(wanted).max():
                break
            step = np.linalg.lstsq(slope, off, rcond=None)[0]
            xi = xi + step * min(1.0, 1.0 / np.abs(step).max())
        np.testing.assert_allclose(self.matrix(xi, names)[0], wanted, rtol=1e-10)
        return xi

    def log_likelihood(self, numbers: Numbers) -> float:
        """Returns the log-likelihood at a point of published numbers."""
        return float(self.curvature(self.unknowns(numbers)[np.newaxis], self.nodes)[0][0])

    def mode(self, start: Numbers) -> dict[str, tuple[float, float]]:
        """Returns name -> the published number at the mode of the posterior, and its standard deviation there."""
        prior = Flat.of(self.model) if self.flat else self.model.prior
        found = find_mode(self, prior, self.unknowns(start), self.nodes)
        assert found is not None
        value, slope = self.matrix(found[0], [*start])
        sds = np.sqrt(np.einsum("kp,pq,kq->k", slope, found[1], slope))
        return {name: (float(value[k]), float(sds[k])) for k, name in enumerate(start)}


def job_of(name: str) -> Job | PviJob:
    """Returns the job of a row of models.toml, once its rows are read."""
    row = MODELS[name]
    tables, frame = tables_of(row), frame_of(row)
    clients = {str(site): own for site, own in frame.groupby(row.get("clients", "site"))}

    def stop(run: object, *read: Any) -> None:
        raise _Read(read)

    at = (pvi_run, "_clients") if tables["job"]["method"] == "pvi" else (likelihood_run, "_find_mode_and_draw")
    with mock.patch.object(*at, stop):
        try:
            fedkern.run(tables, data=clients)
        except _Read as ended:
            if at[0] is likelihood_run:
                return Job(ended.read[0], row.get("nodes", 25), row.get("mode") == "flat")
            model, designs = ended.read
            rows = {k: Rows(one.X, one.y, one.offset, one.weights, one.units) for k, one in designs.items()}
            return PviJob(model, rows, tables, clients)
    raise AssertionError("the job ended before its mode")
