"""Synthetic federations for `fedkern simulate KIND`: one file per client, test rows, the truth, and a job that fits it.

A kind is one function from `Settings` to `Simulated`, listed in `KINDS`. Files depend on the settings alone, and client
k's rows not on how many clients there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..kernels import rng

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """`fedkern simulate KIND --clients M --rows N --columns P --seed S`: N rows at each of M clients, P covariates."""

    clients: int = 4
    rows: int = 200
    columns: int = 5
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least, value in (("clients", 1, self.clients), ("rows", 1, self.rows), ("columns", 1, self.columns)):
            if value < least:
                raise JobError(f"--{name}: needs at least {least}, got {value}")
        if not 0 <= self.seed < 2**64:
            raise JobError(f"--seed: needs a number of 64 bits, got {self.seed}")


@dataclass(frozen=True)
class Simulated:
    """A federation in memory. `truth` has the names of `summary.json`; `job` is the text of job.toml."""

    names: tuple[str, ...]
    clients: tuple[Array, ...]  # (rows, columns + 1) each
    test: Array
    truth: Mapping[str, float]
    job: str


class Draws:
    """One party's own stream of the job's seed."""

    def __init__(self, seed: int, party: int) -> None:
        self._key, self._party, self._draw = rng.key(seed, "simulate"), party, -1

    def normal(self, *shape: int) -> Array:
        """Independent standard normals."""
        self._draw += 1
        return rng.normal(math.prod(shape), key=self._key, client=self._party, draw=self._draw).reshape(shape)

    def uniform(self, n: int) -> Array:
        """Uniform numbers (n,) in (0, 1)."""
        self._draw += 1
        return rng.uniform(n, key=self._key, client=self._party, draw=self._draw)


def logistic(settings: Settings) -> Simulated:
    """y = 1 with probability 1 / (1 + exp(-a)), a = intercept + x theta."""

    def respond(a: Array, draws: Draws) -> Array:
        return (draws.uniform(len(a)) < 1 / (1 + np.exp(-a))).astype(np.float64)

    return _glm(settings, "bernoulli", respond, intercept=-0.5, effect=0.8)


def poisson(settings: Settings) -> Simulated:
    """y a Poisson count with mean exp(a), a = intercept + x theta."""

    def respond(a: Array, draws: Draws) -> Array:
        return poisson_counts(np.exp(a), draws)

    return _glm(settings, "poisson", respond, intercept=0.7, effect=0.3)


def poisson_counts(mean: Array, draws: Draws) -> Array:
    """Counts (n,) with these means (n,): the smallest ones whose distribution function reaches a uniform number."""
    from scipy.special import pdtr, pdtrik

    u = draws.uniform(len(mean))
    y = np.ceil(np.nan_to_num(np.maximum(pdtrik(u, mean), 0.0)))  # nan where u is below the probability of 0
    return np.asarray(y - ((y > 0) & (pdtr(np.maximum(y - 1, 0), mean) >= u)), dtype=np.float64)


def regression(settings: Settings) -> Simulated:
    """y = a + noise of standard deviation 1, a = intercept + x theta."""
    return _glm(settings, "gaussian", lambda a, draws: a + draws.normal(len(a)), intercept=1.0, effect=1.0)


KINDS: dict[str, Callable[[Settings], Simulated]] = {"logistic": logistic, "poisson": poisson, "regression": regression}


def simulate(kind: str, out: str | Path, settings: Settings | None = None) -> Path:
    """Writes `clients/*.csv`, `test.csv`, `truth.json` and `job.toml` into a folder.

    Returns
    -------
    the path of job.toml

    Raises
    ------
    JobError
        An unknown kind, or a folder that already holds clients (the job would take them for its own).
    """
    if kind not in KINDS:
        raise JobError(f"simulate {kind}: no such kind; there are {', '.join(KINDS)}")
    settings, out = settings or Settings(), Path(out)
    folder = out / "clients"
    if folder.exists() and any(folder.iterdir()):
        raise JobError(f"{folder}: already holds files; choose another --out, or remove them")
    made = KINDS[kind](settings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(client_names(settings.clients), made.clients):
        _write(folder / f"{name}.csv", made.names, rows)
    _write(out / "test.csv", made.names, made.test)
    shown = {"kind": kind, "clients": settings.clients, "rows": settings.rows, "columns": settings.columns, "seed": settings.seed}
    (out / "truth.json").write_text(json.dumps({"simulated": shown, "parameters": dict(made.truth)}, indent=2) + "\n", "utf-8")
    (out / "job.toml").write_text(made.job, "utf-8")
    return out / "job.toml"


def client_names(n: int) -> tuple[str, ...]:
    """client-01, client-02, ...: in the order of their numbers also when sorted as texts."""
    return tuple(f"client-{k + 1:0{max(2, len(str(n)))}}" for k in range(n))


def _glm(
    settings: Settings, family: str, respond: Callable[[Array, Draws], Array], *, intercept: float, effect: float
) -> Simulated:
    """Covariates with different means and spreads, and a little different from client to client, as real ones have."""
    p = settings.columns
    shared = Draws(settings.seed, 2**32 - 1)
    theta = effect * shared.normal(p) / np.sqrt(max(p / 5, 1.0))
    center, scale = np.arange(p) % 7 - 3.0, 2.0 ** (np.arange(p) % 4 - 1.0)

    def rows_of(party: int, n: int) -> Array:
        draws = Draws(settings.seed, party)
        x = np.round(center + scale * (draws.normal(n, p) + 0.3 * draws.normal(p)), 4)
        y = respond(intercept + ((x - center) / scale) @ theta, draws)
        return np.column_stack([x, np.round(y, 4)])

    names = (*(f"x{j + 1}" for j in range(p)), "y")
    slopes = theta / scale
    truth = {"intercept": intercept - float(slopes @ center)} | {f"theta[x{j + 1}]": float(slopes[j]) for j in range(p)}
    clients = tuple(rows_of(k, settings.rows) for k in range(settings.clients))
    return Simulated(names, clients, rows_of(2**32 - 2, max(settings.rows, 100)), truth, _job(settings, family))


def _job(settings: Settings, family: str) -> str:
    lines = ["[job]", 'method = "pvi"', f"seed = {settings.seed}", "rounds = 20", ""]
    lines += ["[data]", 'clients = ["clients/*.csv"]', 'response = "y"', 'standardise = "exchange"', 'test = "test.csv"', ""]
    lines += ["[model]", f'family = "{family}"', 'covariance = "full"']
    lines += ["scale = 1.0  # standard deviation of the response's noise"] if family == "gaussian" else []
    return "\n".join(lines) + "\n"


def _write(path: Path, names: tuple[str, ...], rows: Array) -> None:
    """Values are written so that what is read back is equal."""
    lines = [",".join(names)]
    lines += [",".join(_shown(value) for value in row) for row in rows.tolist()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _shown(value: Any) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
