"""Simulates federations for `fedkern simulate KIND`: one file per client, test rows, the truth, and a job that fits it.

A kind is one function from `Settings` to `Simulated`, listed in `KINDS`. Files depend on the settings alone, and client k's rows
not on how many clients take part (but for "sigma", whose field is one draw over the map of all clients).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import JobError
from ...kernels import ordered, rng
from ...kernels.families import BERNOULLI, FAMILIES, POISSON

# Of a job whose rows are nobody's, wherever its parties are.
NOBODYS = "\n[disclosure]  # the rows are nobody's\nrows = 0\nrows_per_coefficient = 0\nrows_per_value = 0\nleverage = 1.0\n"
# Rows of a client, and rows a coefficient of some kinds, that do for each rule of disclosure control.
ENOUGH, OF_EACH, COUNTED = 20, 25, ("logistic", "poisson", "ordinal", "survival")
CLIENTS, TEST = 'clients = ["clients/*.csv"]', 'test = "test.csv"'
SHAPES = {"cox": 1.0, "weibull": 1.5}  # of the hazards of survival times: a power of the time, plus 1


@dataclass(frozen=True)
class Settings:
    """Holds the options of `fedkern simulate KIND --clients M --rows N --columns P --seed S`.

    M clients have N rows each of P covariates; "survival" also has `--family`, that of the job.
    """

    clients: int = 4
    rows: int = 200
    columns: int = 5
    seed: int = 1
    family: str = "cox"

    def __post_init__(self) -> None:
        if self.family not in SHAPES:
            raise JobError(f"--family: needs one of {', '.join(SHAPES)}, got {self.family!r}")
        for name, least, value in (("clients", 1, self.clients), ("rows", 1, self.rows), ("columns", 1, self.columns)):
            if value < least:
                raise JobError(f"--{name}: needs at least {least}, got {value}")
        if not 0 <= self.seed < 2**64:
            raise JobError(f"--seed: needs a number of 64 bits, got {self.seed}")


@dataclass(frozen=True)
class Simulated:
    """Holds a federation in memory. `truth` has the names of `summary.json`; `job` is the text of job.toml.

    `headers`: of each client's file, if they differ; `server`: header and rows of the server's own file; `more`: other files of
    the folder, name -> text.
    """

    names: tuple[str, ...]
    clients: tuple[Array, ...]  # (rows, number of names) each
    test: Array | None
    truth: Mapping[str, float]
    job: str
    headers: tuple[tuple[str, ...], ...] = ()
    server: tuple[tuple[str, ...], Array] | None = None
    more: Mapping[str, str] = field(default_factory=dict)


class Draws:
    """Draws one party's stream of the job's seed."""

    def __init__(self, seed: int, party: int) -> None:
        self._key, self._party, self._draw = rng.key(seed, "simulate"), party, -1

    def normal(self, *shape: int) -> Array:
        """Returns independent standard normals."""
        self._draw += 1
        return rng.normal(math.prod(shape), key=self._key, client=self._party, draw=self._draw).reshape(shape)

    def uniform(self, n: int) -> Array:
        """Returns uniform numbers (n,) in (0, 1)."""
        self._draw += 1
        return rng.uniform(n, key=self._key, client=self._party, draw=self._draw)


def logistic(settings: Settings) -> Simulated:
    """Simulates y = 1 with probability 1 / (1 + exp(-a)), a = intercept + x theta."""

    return _glm(settings, "bernoulli", intercept=-0.5, effect=0.8)


def poisson(settings: Settings) -> Simulated:
    """Simulates a Poisson count y with mean exp(a), a = intercept + x theta."""

    return _glm(settings, "poisson", intercept=0.7, effect=0.3)


def regression(settings: Settings) -> Simulated:
    """Simulates y = a + noise of standard deviation 1, a = intercept + x theta."""
    return _glm(settings, "gaussian", intercept=1.0, effect=1.0)


def ordinal(settings: Settings) -> Simulated:
    """Simulates a scale of pain from 1 to 5, whose levels are cut from a logistic number about x theta.

    The odds of a higher level are proportional.
    """
    p, cuts = settings.columns, np.array([-1.5, -0.5, 0.6, 1.8])
    shared = Draws(settings.seed, 2**32 - 1)
    theta, center, scale = 0.8 * shared.normal(p) / np.sqrt(max(p / 5, 1.0)), _center(p), _scale(p)

    def rows_of(party: int, n: int) -> Array:
        draws = Draws(settings.seed, party)
        x = np.round(center + scale * (draws.normal(n, p) + 0.3 * draws.normal(p)), 4)
        latent = ((x - center) / scale) @ theta + ordered.logistic(draws.uniform(n))
        return np.column_stack([x, 1 + ordered.level_of(latent, np.diff(cuts, prepend=0.0))])

    slopes = theta / scale
    truth = {f"theta[x{j + 1}]": float(slopes[j]) for j in range(p)}
    truth |= {f"threshold[{k + 1}|{k + 2}]": float(cut + slopes @ center) for k, cut in enumerate(cuts)}
    clients = tuple(rows_of(k, settings.rows) for k in range(settings.clients))
    names = (*(f"x{j + 1}" for j in range(p)), "pain")
    data = [CLIENTS, 'response = "pain"', "levels = [1, 2, 3, 4, 5]", TEST]
    job = _text(settings, "likelihood", data=data, model=['family = "ordinal"'])
    return Simulated(names, clients, rows_of(2**32 - 2, max(settings.rows, 100)), truth, job)


def survival(settings: Settings) -> Simulated:
    """Simulates months to death or to the end of the study, tied, of hazards that are proportional.

    As in a study of lung cancer, the median is about a year, and another one at each client; x1 is an age, x2 a sex, all others
    numbers. With family "weibull" hazards rise with the root of the time.
    """
    p, shape = settings.columns, SHAPES[settings.family]
    shared = Draws(settings.seed, 2**32 - 1)
    theta = 0.5 * shared.normal(p)

    def rows_of(party: int, n: int) -> Array:
        draws = Draws(settings.seed, party)
        z = draws.normal(n, p)
        x = np.round(_center(p) + _scale(p) * z, 4)
        x[:, 0] = np.round(63 + 9 * z[:, 0], 4)
        x[:, 1:2] = z[:, 1:2] > 0.3
        standardised = x.copy()
        standardised[:, 0] = (x[:, 0] - 63) / 9
        standardised[:, 2:] = (x[:, 2:] - _center(p)[2:]) / _scale(p)[2:]
        rate = 0.06 * np.exp(0.4 * draws.normal(1)[0])
        life, seen = (-np.log(draws.uniform(n)) for _ in range(2))
        life = life / (rate * np.exp(standardised @ theta))
        life, seen = life if shape == 1 else 12 * (life / 12) ** (1 / shape), 24 * seen + 6
        months = np.ceil(4 * np.minimum(life, seen)) / 4
        return np.column_stack([x, months, life <= seen])

    names = (*(["age", "sex", *(f"x{j + 1}" for j in range(2, p))][:p]), "months", "died")
    scale = np.concatenate([[9.0, 1.0], _scale(p)[2:]])[:p]
    truth = {f"theta[{name}]": float(slope) for name, slope in zip(names, theta / scale)}
    clients = tuple(rows_of(k, settings.rows) for k in range(settings.clients))
    truth |= {} if shape == 1 else {"shape": shape}
    return Simulated(names, clients, None, truth, _survival_job(settings))


def sparse(settings: Settings) -> Simulated:
    """Simulates a regression with few effects, the same at all clients but for two at the first: for the sparse model.

    On standardised covariates the effects are 1, -0.7, 0.5, 0.3 and 0; client 1 has 0.5 less of the first, 0.6 more of the last.
    """
    p = settings.columns
    theta = np.concatenate([[1.0, -0.7, 0.5, 0.3], np.zeros(p)])[:p]
    center, scale = _center(p), _scale(p)

    def effects(k: int) -> Array:
        change = np.zeros(p)
        change[0], change[-1] = -0.5, 0.6
        return theta + change * (k == 0 and p > 1)

    def rows_of(k: int) -> Array:
        draws = Draws(settings.seed, k)
        x = np.round(center + scale * (draws.normal(settings.rows, p) + 0.3 * draws.normal(p)), 4)
        y = 1.0 + 0.5 * draws.normal(1) + ((x - center) / scale) @ effects(k) + draws.normal(settings.rows)
        return np.column_stack([x, np.round(y, 4)])

    names = tuple(f"x{j + 1}" for j in range(p))
    truth = {f"theta[{name}]": float(t) for name, t in zip(names, theta / scale)}
    if p > 1:
        first = client_names(settings.clients)[0]
        truth |= {f"theta[{name}]@{first}": float(t) for name, t in zip(names, effects(0) / scale)}
    clients = tuple(rows_of(k) for k in range(settings.clients))
    return Simulated((*names, "y"), clients, None, truth, _sparse_job(settings, "regression", 'response = "y"'))


def mrf(settings: Settings) -> Simulated:
    """Simulates a Gaussian Markov random field: a ring, partial correlations 0.35 and -0.35 in turn, the same at all clients."""
    p = _nodes(settings, "mrf")
    omega = np.eye(p)
    for j in range(p if p > 2 else 1):
        h = (j + 1) % p
        omega[j, h] = omega[h, j] = -0.35 * (-1) ** j
    upper = np.linalg.cholesky(omega).T  # omega = U'U, and U^-1 z has precision omega

    def rows_of(draws: Draws, n: int) -> Array:
        return np.asarray(np.linalg.solve(upper, draws.normal(n, p).T).T)

    return _graph(settings, "mrf", rows_of, -omega / np.diag(omega)[:, None])


def sem(settings: Settings) -> Simulated:
    """Simulates y = Theta y + e with Laplace errors of scale 1.

    Theta is a chain of effects 0.5 and -0.5 in turn, its first two nodes a cycle.
    """
    p = _nodes(settings, "sem")
    effects = np.zeros((p, p))
    for j in range(1, p):
        effects[j, j - 1] = 0.5 * (-1) ** (j + 1)
    effects[1, 0], effects[0, 1] = 0.6, 0.4
    solved = np.linalg.inv(np.eye(p) - effects)

    def rows_of(draws: Draws, n: int) -> Array:
        u = draws.uniform(n * p).reshape(n, p) - 0.5
        return np.asarray((-np.sign(u) * np.log1p(-2 * np.abs(u))) @ solved.T)

    return _graph(settings, "sem", rows_of, effects)


def vertical(settings: Settings) -> Simulated:
    """Simulates a logistic regression whose columns are split: all clients have the same rows, and only the server has y.

    Files share nothing but the column `id`, and each has its own order of rows. Client k has its own columns xk_1 to xk_p. The
    intercept is that at the covariates' means, since only clients know their scales.
    """
    n, p, m = settings.rows, settings.columns, settings.clients
    shared = Draws(settings.seed, 2**32 - 1)
    ids = 10_001.0 + np.argsort(shared.uniform(n))
    center, scale = _center(p), _scale(p)
    server = Draws(settings.seed, 2**32 - 2)
    names: list[tuple[str, ...]] = []
    files: list[Array] = []
    truth: dict[str, float] = {}
    a = np.zeros(n)
    for k in range(m):
        draws = Draws(settings.seed, k)
        x = np.round(center + scale * draws.normal(n, p), 4)
        slopes = 1.5 / math.sqrt(m * p) * draws.normal(p) / scale
        a += (x - center) @ slopes
        names.append(("id", *(f"x{k + 1}_{j + 1}" for j in range(p))))
        truth |= {f"theta[{name}]": float(slope) for name, slope in zip(names[-1][1:], slopes)}
        files.append(np.column_stack([ids, x])[np.argsort(draws.uniform(n))])
    y = BERNOULLI.draw(server, BERNOULLI.mean(a - 0.5), 1.0, None)
    outcome = np.column_stack([ids, y])[np.argsort(server.uniform(n))]
    truth = {"intercept": float(a.mean()) - 0.5} | truth
    data = [CLIENTS, 'id = "id"', 'response = "y"', 'server = "server.csv"', "holdout = 0.2"]
    model = ['kind = "linear"', 'augmentation = "augmented"', 'family = "bernoulli"']
    job = _text(settings, "vertical", data=data, model=model, algorithm=['auxiliary = "amortised"'])
    return Simulated(names[0], tuple(files), None, truth, job, tuple(names), (("id", "y"), outcome))


def sigma(settings: Settings) -> Simulated:
    """Simulates counts in the cells of a square map, whose vertical strips are the clients.

    A CAR field, phi = 0.95, crosses their borders. N cells and P covariates at each client; log mean = log expected + b + x beta
    + sigma_theta theta, where theta ~ N(0, (D - phi W)^-1) is named `field` in the truth.
    """
    m, n, p = settings.clients, settings.rows, settings.columns
    total, height = m * n, max(1, round(math.sqrt(m * n)))
    if total < 2:
        raise JobError("simulate sigma: a map needs at least two areas; raise --rows or --clients")
    number = np.arange(total)
    row, column = number % height, number // height
    pairs = [(k, k + 1) for k in range(total - 1) if row[k] < height - 1]
    pairs += [(k, k + height) for k in range(total - height)]
    shared = Draws(settings.seed, 2**32 - 1)
    phi, intercept, scale = 0.95, 0.2, 0.8
    # The precision D - phi W of the field, from pairs of neighbouring cells.
    Q = np.zeros((total, total))
    for i, k in pairs:
        Q[i, k] = Q[k, i] = -phi
    Q[number, number] = -Q.sum(axis=1) / phi
    theta = np.linalg.solve(np.linalg.cholesky(Q).T, shared.normal(total))
    beta = 0.3 * shared.normal(p) / math.sqrt(max(p, 1))
    names = ("area", "expected", *(f"x{j + 1}" for j in range(p)), "cases")
    files = []
    for k in range(m):
        # Each client draws its rows from a stream of its own.
        draws, rows = Draws(settings.seed, k), slice(k * n, (k + 1) * n)
        expected = np.round(np.exp(2.0 + 0.8 * draws.normal(n)) + 0.5, 2)
        x = np.round(draws.normal(n, p), 4)
        counts = POISSON.draw(draws, expected * np.exp(intercept + x @ beta + scale * theta[rows]), 1.0, None)
        files.append(np.column_stack([10_001.0 + number[rows], expected, x, counts]))
    truth = {"intercept": intercept, "phi": phi, "sigma_theta": scale}
    truth |= {f"theta[x{j + 1}]": float(beta[j]) for j in range(p)}
    truth |= {f"field[{10_001 + k}]": float(theta[k]) for k in range(total)}
    clients = client_names(m)
    areas = ["area,client,x,y", *(f"{10_001 + k},{clients[k // n]},{column[k]},{row[k]}" for k in range(total))]
    edges = ["area,neighbour", *(f"{10_001 + i},{10_001 + k}" for i, k in pairs)]
    more = {"areas.csv": "\n".join(areas) + "\n", "edges.csv": "\n".join(edges) + "\n", "prior.toml": _prior(settings)}
    more["map.geojson"] = _squares([str(10_001 + k) for k in range(total)], column, row)
    data = [CLIENTS, 'area = "area"', 'response = "cases"', 'exposure = "expected"']
    data += ['polygons = "map.geojson"  # for maps in the report']
    model = ['prior = "prior"  # the --out of `fedkern sigma build prior.toml`', 'family = "poisson"']
    return Simulated(names, tuple(files), None, truth, _text(settings, "sigma", data=data, model=model), more=more)


KINDS: dict[str, Callable[[Settings], Simulated]] = {
    "logistic": logistic,
    "poisson": poisson,
    "regression": regression,
    "ordinal": ordinal,
    "survival": survival,
    "sparse": sparse,
    "mrf": mrf,
    "sem": sem,
    "vertical": vertical,
    "sigma": sigma,
}


def simulate(kind: str, out: str | Path, settings: Settings | None = None) -> Path:
    """Writes `clients/*.csv`, `truth.json`, `job.toml` and the kind's other files into a folder.

    These are `test.csv` or `server.csv`, and for "sigma" the map and `prior.toml`.

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
    federation = KINDS[kind](settings)
    folder.mkdir(parents=True, exist_ok=True)
    headers = federation.headers or (federation.names,) * len(federation.clients)
    for name, header, rows in zip(client_names(settings.clients), headers, federation.clients):
        _write(folder / f"{name}.csv", header, rows)
    if federation.test is not None:
        _write(out / "test.csv", federation.names, federation.test)
    if federation.server is not None:
        _write(out / "server.csv", *federation.server)
    for name, text in federation.more.items():
        (out / name).write_text(text, "utf-8")
    shown = {"kind": kind, "clients": settings.clients, "rows": settings.rows, "columns": settings.columns, "seed": settings.seed}
    (out / "truth.json").write_text(
        json.dumps({"simulated": shown, "parameters": dict(federation.truth)}, indent=2) + "\n", "utf-8"
    )
    few = kind != "sigma" and settings.rows < (OF_EACH * (settings.columns + 3) if kind in COUNTED else ENOUGH)
    job = f"{federation.job}{NOBODYS}" if few else federation.job
    (out / "job.toml").write_text(job, "utf-8")
    return out / "job.toml"


def client_names(n: int) -> tuple[str, ...]:
    """Returns client-01, client-02, ...: in the order of their numbers also when sorted as texts."""
    return tuple(f"client-{k + 1:0{max(2, len(str(n)))}}" for k in range(n))


def _glm(settings: Settings, family: str, *, intercept: float, effect: float) -> Simulated:
    """Simulates covariates with different means and spreads, and a little different from client to client, as real ones have."""
    p, record = settings.columns, FAMILIES[family]
    shared = Draws(settings.seed, 2**32 - 1)
    theta = effect * shared.normal(p) / np.sqrt(max(p / 5, 1.0))
    center, scale = _center(p), _scale(p)

    def rows_of(party: int, n: int) -> Array:
        draws = Draws(settings.seed, party)
        x = np.round(center + scale * (draws.normal(n, p) + 0.3 * draws.normal(p)), 4)
        y = record.draw(draws, record.mean(intercept + ((x - center) / scale) @ theta), 1.0, None)
        return np.column_stack([x, np.round(y, 4)])

    names = (*(f"x{j + 1}" for j in range(p)), "y")
    slopes = theta / scale
    truth = {"intercept": intercept - float(slopes @ center)} | {f"theta[x{j + 1}]": float(slopes[j]) for j in range(p)}
    clients = tuple(rows_of(k, settings.rows) for k in range(settings.clients))
    data = [CLIENTS, 'response = "y"', 'standardise = "exchange"', TEST]
    model = [f'family = "{family}"', 'covariance = "full"']
    if record.dispersion is not None:
        model.append("scale = 1.0  # standard deviation of the response's noise")
    job = _text(settings, "pvi", "rounds = 20", data=data, model=model)
    return Simulated(names, clients, rows_of(2**32 - 2, max(settings.rows, 100)), truth, job)


def _center(p: int) -> Array:
    return np.asarray(np.arange(p) % 7 - 3.0, dtype=np.float64)


def _scale(p: int) -> Array:
    return np.asarray(2.0 ** (np.arange(p) % 4 - 1.0))


def _nodes(settings: Settings, kind: str) -> int:
    if settings.columns < 2:
        raise JobError(f"simulate {kind}: a graph needs --columns of at least 2, got {settings.columns}")
    return settings.columns


def _graph(settings: Settings, kind: str, rows_of: Callable[[Draws, int], Array], effects: Array) -> Simulated:
    """Simulates columns with centers and scales of their own; the truth is on the data's scale, off the diagonal."""
    p = settings.columns
    center, scale = _center(p), _scale(p)
    clients = []
    for k in range(settings.clients):
        draws = Draws(settings.seed, k)
        clients.append(np.round(center + scale * (rows_of(draws, settings.rows) + 0.5 * draws.normal(p)), 6))
    names = tuple(f"x{j + 1}" for j in range(p))
    slopes = effects * scale[:, None] / scale
    truth = {f"theta[{names[h]} -> {names[j]}]": float(slopes[j, h]) for j in range(p) for h in range(p) if h != j}
    return Simulated(names, tuple(clients), None, truth, _sparse_job(settings, kind))


def _text(settings: Settings, method: str, *job: str, **sections: Sequence[str]) -> str:
    """Returns a job file: further keys of [job], and the lines of its other sections."""
    lines = ["[job]", f'method = "{method}"', f"seed = {settings.seed}", *job]
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *keys]
    return "\n".join(lines) + "\n"


def _sparse_job(settings: Settings, kind: str, *data: str) -> str:
    model = [f'kind = "{kind}"']
    return _text(settings, "sparse", "rounds = 2500", data=[CLIENTS, *data], model=model, algorithm=["chains = 4"])


def _survival_job(settings: Settings) -> str:
    sections = {"data": [CLIENTS, 'time = "months"', 'event = "died"'], "model": [f'family = "{settings.family}"']}
    if settings.family != "cox":
        sections |= {"model.random": ["client = true"]} if settings.clients > 1 else {}
        sections["output"] = ["survival_at = [6, 12, 24]", "restricted_mean = 24"]
    return _text(settings, "likelihood", **sections)


def _squares(names: Sequence[str], column: NDArray[np.int64], row: NDArray[np.int64]) -> str:
    """Returns GeoJSON of cells, a degree wide if the map has room for that."""
    side = min(1.0, 170.0 / (float(column.max()) + 1), 80.0 / (float(row.max()) + 1))
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    features = []
    for name, cell in zip(names, np.column_stack([column, row])):
        ring = np.round(side * (cell + corners), 9).tolist()
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append(json.dumps({"type": "Feature", "properties": {"area": name}, "geometry": geometry}))
    return '{"type": "FeatureCollection", "features": [\n' + ",\n".join(features) + "\n]}\n"


def _prior(settings: Settings) -> str:
    return f"""[prior]
kind = "car"
phi = [0.0, 0.99]

[data]
areas = "areas.csv"
area = "area"
client = "client"
x = "x"
y = "y"
adjacency = "edges.csv"

[training]
seed = {settings.seed}
"""


def _write(path: Path, names: tuple[str, ...], rows: Array) -> None:
    """Writes values so that they are read back equal."""
    lines = [",".join(names)]
    lines += [",".join(_shown(value) for value in row) for row in rows.tolist()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _shown(value: Any) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
