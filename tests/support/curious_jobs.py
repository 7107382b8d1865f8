"""Real jobs of small clients, with the messages that passed, for `support.curious`. The truth stays with the caller."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedkern
from fedkern.arrays import Array
from fedkern.data.artifact import WithinFile, read_own
from fedkern.data.graph import grid, make_map
from fedkern.disclosure.rules import COARSE_ROWS, LEAST_ROWS, LEVELS, told_up_to
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from fedkern.models.glm import Rows
from papers.sigma import write_map
from support import curious

STRICT = LEVELS["strict"]
# All rows are in one process: only jobs that name a level refuse clients.
AT_STRICT: dict[str, Any] = {"disclosure": {"level": "strict"}}
# Attacks on sites of fewer rows than a job takes.
OF_SITES: dict[str, Any] = {"disclosure": {"level": "strict", "rows_per_coefficient": 4}}
FIVE_GROUPS: dict[str, Any] = {"disclosure": {"level": "strict", "groups": 5}}
FEW: dict[str, Any] = {"disclosure": {"level": "none"}}

SEED = 5


def least(p: int, diagonal: bool = False) -> int:
    """Rows of p measurements that a default logistic job takes, and more than its messages tell by what `check` says of it."""
    return max(LEAST_ROWS, told_up_to(p + 1, STRICT, diagonal=diagonal) + 1)


def logistic(n: int, p: int, seed: int = 0, others: tuple[int, ...] = (60, 60), **sections: Any) -> tuple[curious.Tape, Rows]:
    """A strict job of method "pvi", but for rows a coefficient: the first of its clients has n rows of p covariates."""
    random = np.random.default_rng(seed)

    def rows(n: int) -> tuple[Array, Array]:
        X = random.normal(size=(n, p))
        return X, (random.random(n) < 1 / (1 + np.exp(-X[:, 0] - 0.3))).astype(float)

    own = rows(n)
    more = {f"b{k}": rows(size) for k, size in enumerate(others)}
    job = {**OF_SITES, "data": {"response": "y"}, **sections, "job": {"method": "pvi", **sections.get("job", {})}}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, **more})
    return tape, Rows(*own)


AGES = np.arange(18.0, 91.0)


def possible_values(ages: bool, yes_no: int) -> Array:
    """(N, p) All rows of an age, or of none, and so many columns of yes or no."""
    columns = [*([AGES] if ages else []), *(np.arange(2.0) for _ in range(yes_no))]
    return np.array([*itertools.product(*columns)])


def few_values(n: int, ages: bool, yes_no: int, seed: int = 0, **sections: Any) -> tuple[curious.Tape, Rows]:
    """A default job: the first client has n rows of an age in years, or of none, and yes or no."""
    random = np.random.default_rng(seed)

    def rows(n: int) -> tuple[Array, Array]:
        X = np.column_stack([random.normal(60, 15, n).round().clip(18, 90), random.random((n, yes_no)) < 0.4])[:, not ages :]
        return X, (random.random(n) < 1 / (1 + np.exp(-(X[:, 0] - X[:, 0].mean()) / 20 - 0.3))).astype(float)

    own, others = rows(n), {name: rows(COARSE_ROWS if ages else 100) for name in "bc"}
    data = {"response": "y"}
    with curious.Tape() as tape:
        fedkern.run({"job": {"method": "pvi"}, "data": data, **sections}, data={"a": own, **others})
    return tape, Rows(*own)


def standardised(rows: Rows, seen: curious.Seen) -> tuple[Array, Array]:
    """The covariates in the units that the parties agreed upon, and the response."""
    return (rows.X - seen.centre) / seen.scale, rows.y


def encoded(rows: Rows, seen: curious.Seen) -> Rows:
    """As the client's kernels see them: an intercept first."""
    x, y = standardised(rows, seen)
    return Rows(np.column_stack([np.ones(len(y)), x]), y)


def sparse(n: int, p: int = 2, seed: int = 0, rounds: int = 60, **sections: Any) -> tuple[curious.Tape, Array]:
    """A job of method "sparse": the first client's n rows [x, y] are given back."""
    random = np.random.default_rng(seed)
    binary = sections.get("model", {}).get("family") == "bernoulli"

    def rows(n: int) -> tuple[Array, Array]:
        X = random.normal(size=(n, p))
        y = X @ np.linspace(1, -0.5, p) + 0.5 * random.normal(size=n)
        return X, (y > 0).astype(float) if binary else y

    own = rows(n)
    job = {"job": {"method": "sparse", "rounds": rounds, "seed": SEED}, "data": {"response": "y"}, **sections}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, "b": rows(30), "c": rows(30)})
    return tape, np.column_stack(own)


def equations(n: int, p: int, seed: int = 0, rounds: int = 60, chains: int = 4) -> tuple[curious.Tape, Array]:
    """A job of structural equations whose chains exchange temperatures: the first client's n rows are given back."""
    random = np.random.default_rng(seed)
    own, *others = (random.normal(size=(size, p)) for size in (n, 30, 30))
    job = {
        "job": {"method": "sparse", "rounds": rounds, "seed": SEED},
        "model": {"kind": "sem"},
        "algorithm": {"tempering": 2, "chains": chains, "random_source": "keyed"},
        "data": {},
    }
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": own, **dict(zip("bc", others))})
    return tape, own


@dataclass(frozen=True)
class MapJob:
    """A spatial job: what passed, what the server knew before, and each client's counts (of suppressed ones what was hidden)."""

    tape: curious.Tape
    map: curious.Map
    counts: tuple[Array, ...]


def spatial(
    folder: Path, side: int = 4, seed: int = 0, rounds: int = 12, lone: bool = False, hidden: int = -1, **sections: Any
) -> MapJob:
    """Counts of a square map whose quarters are four clients; or, `lone`, of two, the first of which has one corner. Counts up to
    `hidden` stand in the file as "few". The run is left in `folder / "run"`."""
    number = np.arange(side * side)
    row, column = number // side, number % side
    quarter = (row >= side // 2) * 2 + (column >= side // 2)
    owner = [str(int(k > 0)) for k in number] if lone else [str(k) for k in quarter]
    data = write_map(folder / "map", make_map(grid(side, side), owner))
    build.perform(
        parse({"prior": {"kind": "car"}, "data": data, "within": {"latents": 6}}), folder, Output(folder / "prior", quiet=True)
    )
    random = np.random.default_rng(seed)
    names = tuple(f"client-{k + 1:02}" for k in range(len(set(owner))))
    (folder / "rows").mkdir()
    counts, offsets = [], []
    for name in names:
        file = read_own(folder / "prior", name)
        assert isinstance(file, WithinFile)
        expected = random.uniform(2, 20, len(file.areas)).round(3)
        y = random.poisson(expected * np.exp(0.5 * random.normal(size=len(expected))))
        lines = [f"{area},{'few' if k <= hidden else k},{e}" for area, k, e in zip(file.areas, y, expected)]
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["area,cases,expected", *lines]) + "\n")
        counts.append(y.astype(float))
        offsets.append(np.log(expected))
    tables: dict[str, dict[str, Any]] = {
        "job": {"method": "sigma", "rounds": rounds, "seed": 3},
        "data": {"clients": "rows/*.csv", "area": "area", "response": "cases", "exposure": "expected"},
        "model": {"prior": "prior"},
        "algorithm": {"inference": "sfvi"},
    }
    if hidden >= 0:
        tables["data.censored"] = {"few": [0, hidden]}
    for section, keys in sections.items():
        tables[section] = {**tables.get(section, {}), **keys}
    texts = (f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) for name, table in tables.items())
    (folder / "job.toml").write_text("\n".join(texts) + "\n")
    with curious.Tape() as tape:
        fedkern.run(folder / "job.toml", out=folder / "run")
    config: Any = load(folder / "job.toml")[0]
    X = [np.zeros((len(y), 0)) for y in counts]
    return MapJob(tape, curious.of_map(tape, config, names, folder / "prior", offsets, X), tuple(counts))
