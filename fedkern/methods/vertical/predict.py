"""Predicts new rows from a finished run: each party's part, from its folder, and their sum with the server's intercept.

All parts may be computed in one place, by somebody who holds all parties' columns and folders; or each party makes a file of its
part at home (`part`), and the server adds the files. A part tells the same about its rows as a run's `Prediction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from ...arrays import Array
from ...data import incomplete, memory, table
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError
from ...jobs import incomplete as missing
from ...jobs import new_rows
from ...jobs.opened import Opened, opened, read
from ...kernels import rng
from ...models.encoding import Encoding
from ...models.split import predictive
from ...results.gaussian import INTERCEPT
from ...results.plain import real
from ...results.prediction import ANEW, Prediction, anew, within, without_lacking
from ...results.result import Result
from ...results.table import ENDS
from .. import of_record
from .keys import Config
from .model import Asked
from .parts import Part
from .rows import server_spec, unknown

SERVER = "server"  # which no client may be called
HEAD = ("client", "run", "mean", "variance")  # of a file with a part, beside the id
SHOWN = 5  # ids in an error
DRAWS = 1000  # of the posterior

PRIVATE = (
    "parts of new rows would leave the clients of a private vertical job without noise, so none are kept: each client has its "
    "own coefficients in posterior.json, and the server the intercept"
)
NOT_AUGMENTED = (
    'output.rule = "augmented" is a rule of the run\'s own test rows; predictions of new rows are for "posterior" and "plug-in"'
)


@dataclass(frozen=True)
class Given:
    """Holds one party's part of the rows: mean and variance, and their ids; ids are () where rows have none.

    The mean of a row that lacks a cell is no number.

    `notes`: about rows that are far from the job's. `drawn`: (key, number of the client) -> (m, n) the part in draws of the
    posterior, of a party whose folder is here.
    """

    mean: Array
    variance: Array
    ids: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()
    drawn: Callable[[int, int], Array] | None = field(default=None, compare=False, repr=False)


def predicted(result: Result, rows: object) -> Prediction:
    """Predicts the rows of one table with the columns of all parties, or of a mapping from parties to their rows. `rows`: a path
    or a data frame; or client, or "server", -> its table, or the path of a file with its part. Raises JobError: a party, its
    folder or a column is missing, ids differ, or a fault of the rows."""
    if result.folder is None:
        raise JobError(
            "a vertical run keeps each client's coefficients in the client's own folder, and this one has written none: run the "
            "job with out=DIR"
        )
    run = opened(result.folder, of_record)
    job = _asked(run)
    if job.rule == "augmented":
        raise JobError(NOT_AUGMENTED)
    if isinstance(rows, Mapping):
        given, of_server = _apart(run, job, dict(rows))
    else:
        given, of_server = _together(run, job, rows)
    ids = given[run.names[0]].ids
    mean, variance = (np.sum([getattr(parts, what) for parts in given.values()], axis=0) for what in ("mean", "variance"))
    made = _added(result, job, ids, of_server, mean, variance)
    drawn = [parts.drawn for parts in given.values() if parts.drawn is not None]
    if len(drawn) == len(given) and job.rule == "posterior":
        made = replace(made, sampler=partial(_sampled, result, job, of_server, drawn))
    return replace(made, notes=(*made.notes, *(note for parts in given.values() for note in parts.notes)))


def part(run: Opened, client: str, rows: object) -> tuple[tuple[str, ...], list[tuple[Any, ...]], tuple[str, ...]]:
    """Returns head and lines of a file with one client's part of its rows, for whoever adds the parts, and notes for the client.
    Raises JobError: the job has no such client, its posterior is not here, or a fault of the rows."""
    job = _asked(run)
    if client not in run.names:
        raise JobError(f"the run has no client {client!r}; its clients are {', '.join(run.names)}")
    given = _of_rows(_part(run, job, client), job, _table(rows, job, client, _texts(job, run, client)))
    if not given.ids:
        raise JobError(f"{given.source}: column {job.id!r} (data.id) is missing; parts are added by it")
    origin = [(client, run.files.run.hex())] * len(given.ids)
    lines = [(id_, *who, *numbers) for id_, who, *numbers in zip(given.ids, origin, given.mean.tolist(), given.variance.tolist())]
    return (job.id, *HEAD), lines, given.notes


def _asked(run: Opened) -> Asked:
    """Returns the run's job for predictions; JobError if it can have none."""
    if not isinstance(run.config, Config):
        raise JobError(f'{run.path}: a part of each party is asked of runs with method = "vertical", not "{run.method}"')
    job = Asked.of(run.config)
    if job.private:
        raise JobError(PRIVATE)
    return job


# --- who has which rows


def _apart(run: Opened, job: Asked, rows: dict[str, Any]) -> tuple[dict[str, Given], Table | None]:
    """Returns every party's rows, in the order of the server's where it has some, else of the first client's."""
    lacking = [name for name in run.names if name not in rows]
    unknown = [name for name in rows if name not in (*run.names, SERVER)]
    if lacking or unknown:
        what = f"no rows of {_some(lacking)}" if lacking else f"{_some(unknown)} took no part"
        raise JobError(
            f"{what}: the predictor is the sum of the parts of {', '.join(run.names)}; give each of them its rows, or part"
        )
    given = {}
    for name in run.names:
        read_ = _table(rows[name], job, name, _texts(job, run, name))
        given[name] = _given(run, job, name, read_) if _is_part(read_, job) else _of_rows(_part(run, job, name), job, read_)
    of_server = _table(rows[SERVER], job, SERVER, job.server_texts) if SERVER in rows else None
    ids = {name: parts.ids for name, parts in given.items()}
    if of_server is not None:
        ids[SERVER] = _ids(of_server, job)
    first = SERVER if of_server is not None else run.names[0]
    orders = {name: _order(name, ids_here, first, ids[first], job) for name, ids_here in ids.items()}
    return {
        name: replace(
            parts,
            mean=parts.mean[orders[name]],
            variance=parts.variance[orders[name]],
            ids=ids[first],
            drawn=None if parts.drawn is None else partial(_reordered, parts.drawn, orders[name]),
        )
        for name, parts in given.items()
    }, of_server


def _together(run: Opened, job: Asked, rows: object) -> tuple[dict[str, Given], Table]:
    """Returns every party's part of one table with the columns of all."""
    by_client = {name: _part(run, job, name) for name in run.names}
    owners: dict[str, str] = {}
    for name, part in by_client.items():
        for column in part.encoding.columns:
            if owners.setdefault(column.name, name) != name:
                raise JobError(
                    f"column {column.name!r} is {owners[column.name]}'s and {name}'s, and one table has one of that name: give "
                    "each client its own rows (--party NAME=FILE, or a mapping)"
                )
    texts = frozenset().union(job.server_texts, *(_texts(job, run, name) for name in run.names))
    whole = _table(rows, job, "rows", texts)
    return {name: _of_rows(part, job, whole) for name, part in by_client.items()}, whole


def _order(name: str, ids: tuple[str, ...], first: str, wanted: tuple[str, ...], job: Asked) -> list[int]:
    """Returns the places of the wanted rows among a party's."""
    if not ids:
        raise JobError(f"{name}: column {job.id!r} (data.id) is missing, and rows of several parties are joined by it")
    place = {id_: k for k, id_ in enumerate(ids)}
    if len(place) < len(ids):
        twice = [id_ for k, id_ in enumerate(ids) if place[id_] != k]
        raise JobError(f"{name}: {job.id} {_some(twice)} stands in more than one row; an id names one row")
    for who, other, those in ((name, first, set(wanted) - set(ids)), (first, name, set(ids) - set(wanted))):
        if those:
            raise JobError(
                f"{who} has no row {_some(sorted(those))}, which {other} has; all parties need the same rows, by {job.id}"
            )
    return [place[id_] for id_ in wanted]


# --- one party's rows


def _part(run: Opened, job: Asked, client: str) -> Part:
    """Reads a client's part from its folder."""
    home = run.files.home(run.names.index(client))
    content = read(home / "posterior.json")
    if content is None or "part" not in content:
        raise JobError(
            f"{home}: has no posterior of client {client!r}; let the client make a file of its part where its folder is (fedkern "
            f"predict DIR ROWS --client {client} --out FILE), and give that file in the place of its rows"
        )
    encoding = replace(Encoding.from_dict(content["encoding"]), response=None, positive=None, labels=(), row_id=None)
    return Part(client, encoding, content["part"], job.group)


def _of_rows(part: Part, job: Asked, rows: Table) -> Given:
    """Computes a client's part of its rows."""
    filled, lacking = new_rows.completed(incomplete.fill_cells(rows, missing.centers(job.config)), part.encoding)
    with new_rows.own():
        X = part.encoded(filled)
        mean, variance = part.of(filled, X)
    mean = np.where(lacking, np.nan, mean)
    notes = tuple(f"client {part.client!r}: {note}" for note in new_rows.notes(job.columns, part.encoding, X))
    return Given(mean, variance, _ids(rows, job), rows.source, notes, partial(part.drawn, filled, X, DRAWS))


def _given(run: Opened, job: Asked, client: str, rows: Table) -> Given:
    """Reads a file with a client's part."""
    whose, runs = set(rows.cells("client")), set(rows.cells("run"))
    if whose != {client}:
        raise JobError(f"{rows.source}: is the part of {_some(sorted(whose))}, not of {client!r}")
    if runs != {run.files.run.hex()}:
        raise JobError(f"{rows.source}: the part of {client!r} was made from another run; make it from this one's folder")
    mean, variance = (
        np.array([_number(rows, column, k, lacks=column == "mean") for k in range(rows.n_rows)])
        for column in ("mean", "variance")
    )
    if variance.min(initial=0) < 0:
        raise JobError(f"{rows.source}: a variance is below 0; make the file anew")
    return Given(mean, variance, _ids(rows, job), rows.source)


def _number(rows: Table, column: str, row: int, *, lacks: bool) -> float:
    """Reads a finite number of such a file, or, with `lacks`, nothing of a row that lacks a cell."""
    text = rows.text(column, row)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) or (lacks and text in ("", "nan"))):
        raise JobError(f"{rows.source}, {rows.place(row)}: {column} is not a finite number; make the file anew")
    return value


def _is_part(rows: Table, job: Asked) -> bool:
    """Returns whether a table is a file with a part."""
    return set(rows.names) == {job.id, *HEAD}


def _texts(job: Asked, run: Opened, client: str) -> frozenset[str]:
    """Returns a client's columns that are read as text."""
    content = read(run.files.home(run.names.index(client)) / "posterior.json") or {}
    texts = Encoding.from_dict(content["encoding"]).texts if "encoding" in content else frozenset()
    return texts | {job.id, job.group or job.id, "client", "run"}


def _table(rows: object, job: Asked, name: str, texts: frozenset[str]) -> Table:
    """Reads a path, or takes a data frame."""
    new_rows.check_there(rows)
    if isinstance(rows, str | Path):
        return table.load(rows, text=texts, response=job.response, dialect=job.dialect)
    return memory.table(rows, name, text=texts, response=job.response)


def _ids(rows: Table, job: Asked) -> tuple[str, ...]:
    """Returns the rows' ids; () where they have none."""
    return tuple(rows.cells(job.id)) if job.id in rows.names else ()


def _some(texts: Sequence[str]) -> str:
    """Lists the first few texts, and how many they are."""
    more = f", .. ({len(texts)} in all)" if len(texts) > SHOWN else ""
    return ", ".join(map(repr, texts[:SHOWN])) + more


# --- their sum


def _added(result: Result, job: Asked, ids: tuple[str, ...], of_server: Table | None, mean: Array, variance: Array) -> Prediction:
    """Adds the server's numbers: the intercept, an offset, a dispersion; and scores, where rows have the response."""
    b, spread, log_scale = _shared(result, job)
    offset, y = _server(of_server, job, len(mean))
    mean, variance = mean + (b + offset), variance + spread
    likelihood = job.likelihood
    used = predictive.spread(job.rule, variance, len(result.summary["clients"]), 0.0)
    sd, of = np.sqrt(variance), likelihood.mean
    quantiles = {name: np.asarray(of(mean + float(ndtri(p)) * sd), np.float64) for name, p in ENDS.items()}
    known = np.isfinite(y) & np.isfinite(mean)
    scores = predictive.scores(likelihood, y[known], mean[known], used[known], log_scale) if known.any() else {}
    named = {job.id: ids} if ids else {}
    whole = Prediction(predictive.predicted(likelihood, mean, used), quantiles, mean, sd, scores, named, int(known.sum()))
    return without_lacking(within(whole, likelihood.family), np.isnan(mean))


def _reordered(drawn: Callable[[int, int], Array], order: list[int], key: int, number: int) -> Array:
    return drawn(key, number)[:, order]


def _sampled(
    result: Result, job: Asked, of_server: Table | None, parts: Sequence[Callable[[int, int], Array]]
) -> tuple[Array, Array]:
    """Returns (m, n) means of the response in each draw of all parties' coefficients, and new responses."""
    b, spread, log_scale = _shared(result, job)
    key = rng.key(result.seed, "posterior", ANEW)
    eta = sum((drawn(key, number) for number, drawn in enumerate(parts)), np.zeros(1))
    eta = eta + b + math.sqrt(spread) * rng.normal(DRAWS, key=key, client=len(parts))[:, np.newaxis]
    eta = np.nan_to_num(eta + _server(of_server, job, eta.shape[1])[0])  # what lacks an offset has no prediction
    return np.asarray(job.likelihood.mean(eta)), anew(job.likelihood.family, eta, math.exp(log_scale), result.seed)


def _shared(result: Result, job: Asked) -> tuple[float, float, float]:
    """Returns mean and variance of the intercept, and the logarithm of the dispersion, as the run published them."""
    if job.langevin:
        mode = result.summary["mode"]
        return real(mode.get(INTERCEPT, 0.0)), 0.0, math.log(real(mode.get("sigma", 1.0)))
    nothing = {"mean": 0.0, "sd": 0.0}
    b, log_scale = (result.parameters.get(name, nothing) for name in (INTERCEPT, "log_sigma"))
    sd = real(result.summary.get("sd_of_q", {}).get(INTERCEPT, b["sd"]))  # predictors are those of q
    variance = 0.0 if job.network else sd**2
    return b["mean"], variance, log_scale["mean"]


def _server(of_server: Table | None, job: Asked, n_rows: int) -> tuple[Array | float, Array]:
    """Returns the rows' offset, and their response where they have it, else nan."""
    names = () if of_server is None else of_server.names
    if job.offset is not None and job.offset not in names:
        raise JobError(f"column {job.offset!r} (data.offset) is missing; give the server's rows, too (--party server=FILE)")
    y = np.full(n_rows, np.nan)
    if of_server is None:
        return 0.0, y
    spec = replace(server_spec(job.config), row_id=None)
    plain, known = replace(spec, response=None, positive=None).encoding(()), np.empty(0, np.int64)
    filled, lacking = new_rows.completed(of_server, plain)
    with new_rows.own():
        offset = encode(filled, plain).offset
        if job.response in names:
            known = np.setdiff1d(np.arange(n_rows), np.array(unknown(of_server, job.config), np.int64))
        if len(known):
            y[known] = encode(of_server.select(known), replace(spec, offset=None).encoding(())).y
    offsets = 0.0 if offset is None else np.where(lacking, np.nan, offset)
    return offsets, y
