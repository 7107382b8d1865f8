"""Maps agreed columns to the coefficients of a sparse model: dummies without their reference level, spline columns, indicators.

No function here reads a row except `Coefficients.columns`, at the client. Source: docs/spec/sparse.md, sections 7 and 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..errors import JobError
from .encoding import Encoding


@dataclass(frozen=True)
class Spline:
    """Holds the natural cubic spline columns of one covariate, beside its linear one."""

    knots: tuple[float, ...]  # (K + 2,) increasing, on the data's scale
    # (K + 2, K) of the columns at the knots: an orthonormal basis of the functions that are neither constant nor linear there
    values: Array

    @classmethod
    def at(cls, knots: Sequence[float]) -> Spline:
        """Makes the spline with these knots."""
        x = np.asarray(knots, dtype=np.float64)
        linear = np.column_stack([np.ones_like(x), x - x.mean()])
        basis, _ = np.linalg.qr(np.column_stack([linear, np.vander(x / np.abs(x).max(), len(x), increasing=True)[:, 2:]]))
        return cls(tuple(x.tolist()), basis[:, 2:])

    def columns(self, x: Array) -> Array:
        """Returns (n, K) columns of the values x (n,); straight lines outside the knots; NaN stays."""
        from scipy.interpolate import make_interp_spline

        knots = np.asarray(self.knots)
        spline = make_interp_spline(knots, self.values, k=3, bc_type="natural")
        inside = np.clip(x, knots[0], knots[-1])
        slopes = spline.derivative()
        edge = np.where((x < knots[0])[:, None], slopes(knots[0]), slopes(knots[-1]))
        outside = (x - inside)[:, None]
        return np.asarray(spline(inside) + np.where(outside != 0, outside * edge, 0.0))


@dataclass(frozen=True)
class Coefficients:
    """Holds the columns of a sparse regression, the same at every client."""

    names: tuple[str, ...]  # of all w columns: "age", "sex=male", "age~1" (a spline column)
    source: tuple[int, ...]  # (w,) column of the encoding from which each is made
    splines: Mapping[str, Spline]  # name of a covariate -> its spline
    indicators: NDArray[np.int64]  # (1, w) see `kernels.shrinkage`: spline columns of one covariate share one
    scales: Array  # (w,) known scales (1 where the data decide)

    @classmethod
    def of(
        cls,
        encoding: Encoding,
        *,
        references: Mapping[str, str],
        always: Sequence[str] = (),
        splines: Mapping[str, Sequence[float]] | None = None,
        scales: Mapping[str, float] | None = None,
    ) -> Coefficients:
        """Makes the coefficients of an agreed encoding (without intercept, not standardised). Raises JobError: a name that is no
        column, or a reference that is no level.

        Parameters
        ----------
        references : categorical column -> the level without a coefficient; by default the first
        always : columns or coefficients that are always included
        splines : column -> knots
        scales : column -> its public scale
        """
        made_of: list[tuple[str, int, str]] = []  # coefficient, column of the encoding, its covariate
        place = 0
        for column in encoding.columns:
            if column.levels is None:
                made_of.append((column.name, place, column.name))
                place += 1
                continue
            reference = references.get(column.name, column.levels[0])
            if reference not in column.levels:
                what = f"none of the {len(column.levels)} levels that were found"
                raise JobError(f"data.columns.{column.name}.reference = {reference!r}: {what}")
            for level in column.levels:
                if level != reference:
                    made_of.append((f"{column.name}={level}", place, column.name))
                place += 1
        numbers = list(range(len(made_of)))
        made: dict[str, Spline] = {}
        for name, knots in (splines or {}).items():
            linear = next((column for coefficient, column, _ in made_of if coefficient == name), None)
            if linear is None:
                numeric = sum(column.levels is None for column in encoding.columns)
                raise JobError(f"model.splines.{name}: no such column among the {numeric} numeric ones")
            made[name] = Spline.at(knots)
            group = max(numbers) + 1
            for k in range(len(knots) - 2):
                made_of.append((f"{name}~{k + 1}", linear, name))
                numbers.append(group)
        names, source, owner = zip(*made_of) if made_of else ((), (), ())
        for wanted in always:
            chosen = [j for j, (name, column) in enumerate(zip(names, owner)) if wanted in (name, column)]
            if not chosen:
                raise JobError(f"model.always: {wanted!r} is none of the {len(encoding.columns)} covariates")
            for j in chosen:
                numbers[j] = -1
        known = np.array([(scales or {}).get(name, 1.0) for name in owner])
        return cls(names, source, made, _numbered(numbers)[None], known)

    @property
    def size(self) -> int:
        """The number w of columns."""
        return len(self.names)

    def columns(self, X: Array) -> Array:
        """Returns (n, w) columns of a client's encoded rows X."""
        out = X[:, list(self.source)]
        for name, spline in self.splines.items():
            first = self.names.index(f"{name}~1")
            out[:, first : first + len(spline.knots) - 2] = spline.columns(out[:, self.names.index(name)].copy())
        return out

    def orthogonal(self, X: Array, psi: Array) -> Array:
        """Makes every spline column orthogonal to its linear one, by pooled second moments psi (w, w)."""
        out = X.copy()
        for j, linear, slope, sd in self._made_orthogonal(psi):
            out[:, j] = (X[:, j] - slope * X[:, linear]) / sd
        return out

    def of_scaled(self, theta: Array, psi: Array) -> Array:
        """Returns (..., w) slopes of the scaled columns, from those of `orthogonal` ones."""
        out = theta.copy()
        for j, linear, slope, sd in self._made_orthogonal(psi):
            out[..., j] = theta[..., j] / sd
            out[..., linear] -= slope * out[..., j]
        return out

    def _made_orthogonal(self, psi: Array) -> Iterator[tuple[int, int, float, float]]:
        """Yields each spline column, its linear one, its slope on that, and the standard deviation that is left."""
        for name in self.splines:
            linear = self.names.index(name)
            for j in self._spline_columns(name):
                slope = float(psi[j, linear] / psi[linear, linear])
                yield j, linear, slope, float(np.sqrt(max(psi[j, j] - slope * psi[linear, j], 1e-12)))

    def _spline_columns(self, name: str) -> list[int]:
        return [j for j, other in enumerate(self.names) if other.startswith(f"{name}~")]


def _numbered(numbers: list[int]) -> NDArray[np.int64]:
    """Renumbers indicators 0, 1, ... without gaps; -1 stays."""
    order = {old: new for new, old in enumerate(sorted({n for n in numbers if n >= 0}))}
    return np.array([order.get(n, -1) for n in numbers], dtype=np.int64)


def graph(n_nodes: int, *, one_group: bool) -> NDArray[np.int64]:
    """Returns indicators of all edges of `n_nodes`: (n, n), a regression for each node; of `one_group` (1, n * n)."""
    numbers = np.arange(n_nodes * n_nodes).reshape(n_nodes, n_nodes)
    if not one_group:
        numbers = np.tile(np.arange(n_nodes), (n_nodes, 1))
    numbers[np.eye(n_nodes, dtype=bool)] = -2
    groups = numbers.reshape(1, -1) if one_group else numbers
    return _without_gaps(groups)


def _without_gaps(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumbers the indicators of each row 0, 1, ... without gaps."""
    out = numbers.copy()
    for row in out:
        known = row >= 0
        row[known] = np.arange(known.sum())
    return out


def edges(nodes: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of all edges, "from -> to", in the order of the flattened indicators: row by row of the target."""
    return tuple(f"{origin} -> {to}" for to in nodes for origin in nodes if to != origin)


def relative(encoding: Encoding) -> Encoding:
    """Returns the encoding without standardising: the sparse models scale columns by moments of their own."""
    return replace(
        encoding, columns=tuple(replace(c, center=0.0, scale=1.0) if c.levels is None else c for c in encoding.columns)
    )
