"""Computes a client's part of new rows' predictors, from the posterior in its folder (`part` in posterior.json).

It equals the run's message about predicted rows (`Prediction`): mean and variance of g_j under q(theta_j), exact where
g is linear in theta, over draws where it is not. Parts are independent under the fitted posterior, which is a product over
clients, so their means and variances add. Source: docs/spec/vertical.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...algorithms import soul
from ...algorithms.split import machine as vertical
from ...arrays import Array
from ...data.design import Encoding, encode
from ...data.table import Table
from ...errors import JobError
from ...kernels import rng
from ...models.split.predictors import Linear, Multilevel, Network, Predictor
from ...models.split.site import Auxiliary, Site
from ...results.plain import Record
from .levels import Levels
from .model import VerticalModel
from .rows import Columns

DRAWS = 400  # of coefficients, for predictions whose moments are not known exactly


def normals(seed: int, client: int, n_theta: int) -> Array:
    """Returns the (DRAWS, n_theta) normals with which every prediction of a client's part is made."""
    return rng.normal(DRAWS * n_theta, key=rng.key(seed, "posterior"), client=client).reshape(DRAWS, n_theta)


def moments(model: VerticalModel, number: int, client: vertical.Client, predictor: Predictor) -> tuple[Array, Array]:
    """Returns mean and variance of the client's part at the rows of a predictor, as they are published."""
    drawn = normals(model.seed, number, predictor.n_theta)
    mean, variance = client.site.predicted(client.released, predictor, drawn)
    return model.factor * mean, model.factor**2 * variance


def of_draws(mean: Array, covariance: Array, H: Array) -> tuple[Array, Array]:
    """Returns the same for Langevin draws of a linear predictor's coefficients."""
    return H @ mean, np.einsum("ij,jk,ik->i", H, covariance, H)


def kept(model: VerticalModel, client: vertical.Client | soul.Client, columns: Columns) -> Record:
    """Returns the numbers that such a prediction needs, apart from the encoding of the columns."""
    shares = {} if columns.contrasts is None else {"shares": columns.contrasts.shares.tolist()}
    if isinstance(client, soul.Client):
        theta = soul.conditional(client)
        return {"kind": "conditional", "mean": theta.mean.tolist(), "covariance": theta.covariance.tolist(), **shares}
    site = client.site
    head = client.released[: site.parts["phi"].stop]
    numbers = {"kind": model.kind, "factor": model.factor, "full": site.full, "point": site.point, "parameters": head.tolist()}
    numbers |= shares
    if isinstance(site.predictor, Network):
        numbers |= {"hidden": list(site.predictor.hidden), "features": site.predictor.features}
    if isinstance(site.predictor, Multilevel):
        seed = {"seed": model.seed, "number": client.index}
        numbers |= {"levels": list(columns.levels), "centred": site.predictor.centred, **seed}
    return numbers


@dataclass(frozen=True)
class Part:
    """Holds a client's part, from its folder."""

    client: str
    encoding: Encoding
    numbers: Record  # the result of `kept`
    group: str | None = None  # the column of its levels, where it has some

    def encoded(self, table: Table) -> Array:
        """Returns (n, d) the rows of a table as the encoding has them. Raises JobError: a fault of the rows."""
        return np.ascontiguousarray(encode(table, self.encoding, client=self.client).X, np.float64)

    def of(self, table: Table, X: Array) -> tuple[Array, Array]:
        """Returns (n,) mean and variance at the rows of a table, of which `X` is the encoding. Raises JobError: a row's group is
        not the model's."""
        numbers, X = self.numbers, self._design(X)
        if numbers["kind"] == "conditional":
            return of_draws(np.array(numbers["mean"]), np.array(numbers["covariance"]), X)
        predictor, site = self._site(X, table)
        drawn = (
            normals(numbers["seed"], numbers["number"], predictor.n_theta)
            if "seed" in numbers
            else np.empty((0, predictor.n_theta))
        )
        mean, variance = site.predicted(np.array(numbers["parameters"]), predictor, drawn)
        return numbers["factor"] * mean, numbers["factor"] ** 2 * variance

    def drawn(self, table: Table, X: Array, m: int, key: int, number: int) -> Array:
        """Returns (m, n) values at the rows in m draws of the coefficients; `number`: of the client, which names the draws."""
        numbers, X = self.numbers, self._design(X)
        if numbers["kind"] == "conditional":
            mean, root = np.array(numbers["mean"]), np.linalg.cholesky(np.array(numbers["covariance"]))
            return (mean + rng.normal(m * len(mean), key=key, client=number).reshape(m, -1) @ root.T) @ X.T
        predictor, site = self._site(X, table)
        normals = rng.normal(m * predictor.n_theta, key=key, client=number).reshape(m, -1)
        values: Array = numbers["factor"] * site.sampled(np.array(numbers["parameters"]), predictor, normals).T
        return values

    def _design(self, X: Array) -> Array:
        """Returns the columns that have coefficients."""
        return Levels.of(self.encoding, np.array(self.numbers["shares"])).design(X) if "shares" in self.numbers else X

    def _site(self, X: Array, table: Table) -> tuple[Predictor, Site]:
        predictor = self._predictor(X, table)
        return predictor, Site(predictor, Auxiliary("none" if self.numbers["point"] else "mean-field"), self.numbers["full"])

    def _predictor(self, X: Array, table: Table) -> Predictor:
        """Returns the predictor at these rows."""
        if "hidden" in self.numbers:
            return Network(X, tuple(self.numbers["hidden"]), self.numbers["features"])
        if "levels" not in self.numbers:
            return Linear(X)
        assert self.group is not None
        place = {level: k for k, level in enumerate(self.numbers["levels"])}
        cells = table.cells(self.group)
        unknown = [row for row, cell in enumerate(cells) if cell not in place]
        if unknown:
            raise JobError(
                f"client {self.client!r}, {table.source}, {table.place(unknown[0])}: column {self.group!r} has a level that no "
                "training row had, and so no slopes; leave the row out"
            )
        return Multilevel(X, np.array([place[cell] for cell in cells]), len(place), self.numbers["centred"])
