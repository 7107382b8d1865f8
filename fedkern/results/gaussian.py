"""Defines a Gaussian posterior on the two scales that people need: the model's standardised one, and the data's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from ..algorithms.core.messages import SERVER
from ..arrays import Vector
from ..kernels import rng
from ..models.expfam import Gaussian
from ..models.reference import Coding
from .released import Drawing, Group, Normal

INTERCEPT = "intercept"
PLAIN = (INTERCEPT, "log_sigma")  # parameters that are not slopes


@dataclass(frozen=True)
class Posterior:
    """Holds a released Gaussian posterior."""

    of: tuple[str, ...]  # of the d coefficients of q, such as "age", "workclass=Private", "intercept"
    q: Gaussian  # on the standardised scale
    affine: Vector | None = None  # (d, d) A with theta = A theta_std; None where the two scales are the same
    # from these to the coefficients that are published, at reference levels; None where they are the same
    coding: Coding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the published coefficients."""
        return self.of if self.coding is None else tuple(self.of[j] for j in self.coding.kept)

    @property
    def mean(self) -> Vector:
        """The means on the data's scale."""
        return self._scales[""] @ self.q.mean

    @property
    def sd(self) -> Vector:
        """The standard deviations on the data's scale."""
        return self._sd("")

    @cached_property
    def _scales(self) -> dict[str, Vector]:
        """From q's coefficients to the published ones: on the data's scale, and where it differs on the standardised one."""
        R = np.eye(len(self.of)) if self.coding is None else self.coding.matrix
        return {"": R} if self.affine is None else {"": R @ self.affine, "_std": R}

    def _sd(self, scale: str) -> Vector:
        if len(self._scales) == 1 and self.coding is None:
            return self.q.sd
        T = self._scales[scale]
        half = T * self.q.sd if self.q.diagonal else T @ self.q.scale_tril
        variance: Vector = np.einsum("ij,ij->i", half, half)
        return np.sqrt(variance)

    def parameters(self) -> dict[str, dict[str, float]]:
        """Returns name -> mean, sd, q05 and q95: `theta[age]` on the data's scale, `theta_std[age]` where that differs."""
        out = summarised(map(label, self.names), self.mean, self.sd)
        if (R := self._scales.get("_std")) is not None:
            scaled = np.any(self._scales[""] != R, axis=1)
            standard = summarised((label(name, "_std") for name in self.names), R @ self.q.mean, self._sd("_std"))
            out |= {name: values for (name, values), differs in zip(standard.items(), scaled) if differs}
        return out

    @property
    def sampled(self) -> bool:
        """Always false: draws of a Gaussian are independent, and no states of a sampler."""
        return False

    def marginal(self, name: str, site: str = "") -> Normal | None:
        """Returns a coefficient on the data's scale, exact, and jointly with all others; None if it does not exist."""
        index = self._index.get(name)
        if site or index is None:
            return None
        mean = self._moments[0]
        row = self._scales[""][index]
        sd = row * self._moments[1] if self.q.diagonal else row @ self._moments[1]
        return Normal(float(mean[index]), sd)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label(name): j for j, name in enumerate(self.names)}

    @cached_property
    def _moments(self) -> tuple[Vector, Vector]:
        """The means on the data's scale, and the factor of q's draws from standard normals: (d,) where q is diagonal, else (d,
        d)."""
        factor = self.q.sd if self.q.diagonal else self.q.scale_tril
        return self.mean, factor

    def draws(self, n: int, *, seed: int, chain: int = 0) -> Vector:
        """Returns (n, d) independent draws of q, from the server's part of the keyed stream "posterior"."""
        d = len(self.of)
        z = rng.normal(n * d, key=rng.key(seed, "posterior", chain), client=SERVER).reshape(n, d)
        deviations = z * self.q.sd if self.q.diagonal else z @ self.q.scale_tril.T
        return self.q.mean + deviations

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns theta, intercept and, where they differ, theta_std and intercept_std; lp of each draw; and the moments."""
        standard = np.stack([self.draws(drawing.draws, seed=drawing.seed, chain=c) for c in range(drawing.chains)])
        posterior = grouped(self.names, {suffix: standard @ T.T for suffix, T in self._scales.items()})
        sampled = {axis: posterior.coordinates[axis] for axis in ("chain", "draw")}
        moments: dict[str, tuple[object, Vector]] = {
            "mean_std": ("coefficient", self.q.mean),
            "sd_std": ("coefficient", self.q.sd),
        }
        square = "coefficient" if self.q.diagonal else ("coefficient", "coefficient_")
        moments |= {"shift": ("coefficient", self.q.h), "precision": (square, self.q.P)}  # q itself, for `fedkern.load`
        return {
            "posterior": posterior,
            "sample_stats": Group({"lp": (tuple(sampled), self.q.log_density(standard))}, sampled),
            "constant_data": Group(moments, {"coefficient": list(self.of)}),
        }


def label(name: str, suffix: str = "") -> str:
    """Returns the name of a coefficient in all results: "intercept", or "theta[age]"."""
    return name + suffix if name in PLAIN else f"theta{suffix}[{name}]"


def comparable(parameters: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Returns those of `parameters` that can be compared with each other: on the standardised scale where a job has one."""

    def standardised(name: str) -> str:
        return f"{INTERCEPT}_std" if name == INTERCEPT else name.replace("theta[", "theta_std[", 1)

    replaced = {name for name in parameters if standardised(name) != name and standardised(name) in parameters}
    return {name: value for name, value in parameters.items() if name not in replaced}


def summarised(labels: Iterable[str], mean: Vector, sd: Vector) -> dict[str, dict[str, float]]:
    """Returns mean, sd, q05 and q95 of normal distributions by label."""
    z = float(scipy.special.ndtri(0.95))
    rows = zip(labels, mean.tolist(), sd.tolist())
    return {label: {"mean": m, "sd": s, "q05": m - z * s, "q95": m + z * s} for label, m, s in rows}


def grouped(names: Sequence[str], drawn: Mapping[str, Vector]) -> Group:
    """Returns draws of coefficients as ArviZ's group posterior: theta with an axis of slopes, and beside it what is no slope.
    `drawn`: "" or "_std" -> (c, t, d) draws on that scale."""
    axes, slopes = ("chain", "draw"), [j for j, name in enumerate(names) if name not in PLAIN]
    variables: dict[str, tuple[tuple[str, ...], Vector]] = {}
    for suffix, values in drawn.items():
        if slopes:
            variables[f"theta{suffix}"] = ((*axes, "slope"), values[..., slopes])
        variables |= {f"{name}{suffix}": (axes, values[..., j]) for j, name in enumerate(names) if name in PLAIN}
    sampled: dict[str, object] = {axis: np.arange(size) for axis, size in zip(axes, drawn[""].shape)}
    if slopes:
        sampled["slope"] = [names[j] for j in slopes]
    return Group(variables, sampled)
