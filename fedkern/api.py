"""Runs a job from Python, and loads its result again from its folder: `fedkern.run`, `fedkern.check`, `fedkern.load`,
`fedkern.ledger`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

from .data import memory
from .data.dialect import stem
from .data.table import Table
from .errors import BudgetSpent, HolderError, JobError, OwnFault
from .jobs import answers, engine, holders, opened
from .jobs.found_levels import with_levels
from .jobs.held import IN_MEMORY, Held, folder_of
from .jobs.keys import JobConfig, Raw
from .jobs.load import merged, table
from .jobs.method import Replay
from .jobs.progress import in_notebook
from .jobs.run import Output, Part
from .jobs.sent import SentByKind
from .methods import data_keys, installed, load_method, of_record, parse
from .methods import load as job_of
from .printing import Lines
from .privacy.plan import Plan
from .results import stored
from .results.inference_data import MADE
from .results.plots import Figure
from .results.prediction import Prediction
from .results.result import Result
from .transports.inprocess import InProcess
from .transports.place import Place


@overload
def run(
    job: str | Path | Mapping[str, object],
    /,
    *,
    data: Mapping[str, object] | None = None,
    test: object = None,
    server: object = None,
    prior: object = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    place: None = None,
    **sections: Mapping[str, object],
) -> Result: ...
@overload
def run(
    job: str | Path | Mapping[str, object],
    /,
    *,
    data: Mapping[str, object] | None = None,
    test: object = None,
    server: object = None,
    prior: object = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    place: Place | str,
    **sections: Mapping[str, object],
) -> Result | None: ...
def run(
    job: str | Path | Mapping[str, object],
    /,
    *,
    data: Mapping[str, object] | None = None,
    test: object = None,
    server: object = None,
    prior: object = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    place: Place | str | None = None,
    **sections: Mapping[str, object],
) -> Result | None:
    """Runs a job in this process, or its part at one place of several.

    Parameters
    ----------
    job : path of a job file, or its tables
    data : client -> its rows, in the place of the job's files. Rows are a data frame (pandas, polars, pyarrow), arrays (X, y) of
        (n, p) and (n,), whose columns are x1, x2, ... and the response (y, unless the job names it), or X alone. Arrays are
        NumPy's, or have `__dlpack__` on the CPU. Columns are matched by name, in any order; clients are taken in the order of
        their names, as files are. Instead of rows: keys of [data], such as `data={"response": "income"}`
    test, server : the server's test rows, and its rows of a vertical job; in the forms of a client's
    prior : for a spatial job the folder that `fedkern sigma build` or `fedkern sigma train` wrote
    out : folder for the run's files; by default nothing is written
    resume : whether to go on from the last checkpoint in `out`, to the result that the run would have had. Job and rows must be
        those with which it began. Of a job of several places all resume, or none
    progress : whether to show the progress; by default in a notebook alone
    place : where this process stands in a job of several (`fedkern.places`), or the name of a place that an installed package
        brings (entry points "fedkern.places"). By default the whole job runs here. No job file chooses it
    **sections : tables that override keys of the job, such as `algorithm={"damping": 0.2}`

    Returns
    -------
    Result; None at a place that is not the server's

    Raises
    ------
    JobError
        A bad job or bad data; the text names the key, client or row, and the remedy.
    BudgetSpent
        A privacy budget ended the job before `algorithm.min_updates`.

    Examples
    --------
    >>> import numpy as np
    >>> import fedkern
    >>> x = np.linspace(-1, 1, 60)
    >>> def rows(shift):
    ...     X = np.column_stack([x, np.sin(7 * x + shift)])
    ...     return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + shift)
    ...
    >>> data = {"north": rows(0), "south": rows(1)}  # two clients
    >>> job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    >>> result = fedkern.run(job, data=data)
    >>> result.converged
    True
    >>> round(result.parameters["theta[x1]"]["mean"], 1)
    2.0
    """
    if out == "":
        raise JobError("out = '' names no folder; give one, or None to write nothing")
    if not isinstance(resume, bool):
        raise JobError(f"resume = {resume!r}: wanted True or False; the run's folder is `out`")
    if resume and out is None:
        raise JobError(
            "resume = True goes on with a run whose files were kept, and out = None keeps none: give the folder of the run"
        )
    config, folder, held = _given(job, data, test, server, prior, sections, InProcess() if place is None else None)
    output = Output(
        None if out is None else Path(out), resume=resume, quiet=not (in_notebook() if progress is None else progress)
    )
    at = _place(place, config, folder)
    with _in_memory(held, config.private, alone=at.size == 1):
        result = perform(at, config, folder, output, held)
    if result is None:
        return None
    # Raised only now: the files of the run are written, with all that was spent.
    if problem := describe_too_few(result, config.least_updates):
        raise BudgetSpent(problem)
    return result


def _place(given: Place | str | None, config: JobConfig, folder: Path) -> Place:
    """Returns a place as it was given, by its name, or the one of a job in one process."""
    if given is None:
        return InProcess()
    return installed.place(given, config.model_dump(), folder) if isinstance(given, str) else given


def check(
    job: str | Path | Mapping[str, object],
    /,
    *,
    data: Mapping[str, object] | None = None,
    test: object = None,
    server: object = None,
    prior: object = None,
    apart: bool = False,
    verbose: bool = False,
    **sections: Mapping[str, object],
) -> Lines:
    """Says whether a job is sound, how much of a budget it will spend, and what each party will send. Nothing is spent; rows are
    not sent.

    Parameters
    ----------
    job, data, test, server, prior, **sections : as of `run`
    apart : whether clients' rows are asked for what is asked where parties are apart, as in the study that is prepared; by
        default nothing is asked, for all rows are in this process
    verbose : whether to say all that is known, with every message and its fields, instead of ten lines

    Returns
    -------
    the lines that `fedkern check` prints, first what must be read: a list of texts, which `print` and notebooks show one below
    the other

    Raises
    ------
    JobError
        Whatever would end the job before its first round.

    Examples
    --------
    >>> import numpy as np
    >>> import fedkern
    >>> x = np.linspace(-1, 1, 60)
    >>> def rows(shift):
    ...     X = np.column_stack([x, np.sin(7 * x + shift)])
    ...     return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + shift)
    ...
    >>> data = {"north": rows(0), "south": rows(1)}  # two clients
    >>> job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    >>> lines = fedkern.check(job, data=data)
    >>> lines[1]
    'clients  2 by likelihood: north (60 rows), south (60 rows)'
    """
    config, folder, held = _given(job, data, test, server, prior, sections, None if apart else InProcess())
    with _in_memory(held, config.private, alone=True):
        lines = check_job(InProcess(), config, folder, held, apart=apart, form="verbose" if verbose else "brief")
    assert lines is not None
    return Lines(lines)


def add(
    run: Result | str | Path,
    clients: Mapping[str, object] | Sequence[str | Path] | str | Path,
    /,
    *,
    data: Mapping[str, object] | None = None,
    folder: str | Path = ".",
    out: str | Path | None = None,
    **sections: Mapping[str, object],
) -> Result:
    """Has clients come to a run that has ended: alone, where its points reach the new posterior, and else together with all.

    Parameters
    ----------
    run : with `output.extendable = true`, and a folder: its result, or the folder
    clients : name -> rows, as `run` takes them, or the newcomer's file, or several
    data : of a run of tables in memory all its clients' rows; by default they are asked only where the run's job names files
    folder : that paths of the run's job are relative to
    out : folder for the files of this run; of the second stage NAME-together
    **sections : tables that override keys of the run's job, as far as it is the same job: `output={"extendable": True}`

    Returns
    -------
    Result; its verdict says whether it can be taken

    Raises
    ------
    JobError
        The run cannot be extended, a client is in it already, or its columns, levels or units are others.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fedkern
    >>> def rows(seed, n):
    ...     x = np.sin(np.arange(n) * (7 + seed))
    ...     return {"x": x, "y": 1 + 2 * x + 0.1 * np.cos(31 * np.arange(n) + seed)}
    ...
    >>> job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = {"north": rows(1, 300), "south": rows(2, 300)}
    ...     first = fedkern.run(job, data=data, output={"extendable": True}, out=f"{folder}/first")
    ...     result = fedkern.add(first, {"west": rows(3, 30)})
    ...
    >>> result.summary["extends"]["stage"], result.converged
    ('alone', True)
    """
    path, tables = _extendable(run, sections)
    before, in_memory = table(tables, "data"), isinstance(clients, Mapping)
    if isinstance(clients, str | Path):
        clients = [clients]
    if data is not None and not in_memory:
        raise JobError("data= has tables of the run's clients, and newcomers are files: give them as tables, too")
    held = Held.of(clients, None, None) if in_memory else Held()
    files = [] if in_memory else [str(Path(file).absolute()) for file in clients]
    job = {"extends": path, "sums": None, "sums_except": None}
    result = _extended(merged(tables, {"job": job, "data": {"clients": files, "names": []}}), held, Path(folder), out)
    if result.converged is True:
        return result
    keys: dict[str, object] = {}
    if data is not None:  # newcomers come first, as they are asked first
        held = Held({**held.clients, **Held.of(data, None, None).clients})
    elif in_memory or str(before["clients"][:1]).startswith(f"['{IN_MEMORY}"):
        return result
    else:
        names = [stem(Path(file)) for file in files] if before["names"] else []
        keys = {"clients": [*files, *before["clients"]], "names": [*names, *before["names"]]}
    together = merged(tables, {"job": {"extends": path}, "data": keys})
    return _extended(together, held, Path(folder), None if out is None else f"{out}-together")


def drop(run: Result | str | Path, client: str, /, *, out: str | Path | None = None) -> Result:
    """Makes a result of a run without one of its clients, by weights of its points; nobody is asked anything.

    Parameters
    ----------
    run : with `output.extendable = true`, `output.without = true` and a folder: its result, or the folder
    client : the name of the client that goes
    out : folder for the files of this run

    Returns
    -------
    Result; its verdict says whether it can be taken

    Raises
    ------
    JobError
        The run cannot be extended, or knows no values of this client alone.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fedkern
    >>> x, site = np.sin(8.0 * np.arange(630)), np.repeat(["north", "south", "west"], [300, 300, 30])
    >>> data = {"site": site, "x": x, "y": 1 + 2 * x + 0.1 * np.cos(31 * np.arange(630))}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     output = {"extendable": True, "without": True}
    ...     first = fedkern.fit("y ~ x", data, by="site", output=output, out=f"{folder}/first")
    ...     result = fedkern.drop(first, "west")
    ...
    >>> result.summary["extends"]["stage"], result.converged
    ('without', True)
    """
    path, tables = _extendable(run, {})
    job = {"extends": path, "drops": client, "sums": None, "sums_except": None}
    return _extended(merged(tables, {"job": job, "data": {"clients": [], "names": []}}), Held(), Path.cwd(), out)


def _extendable(run: Result | str | Path, sections: Mapping[str, Mapping[str, object]]) -> tuple[str, dict[str, Any]]:
    """Returns the folder of a run, and the tables of its job with nothing that is of all its clients' rows."""
    folder = run.folder if isinstance(run, Result) else Path(run)
    if folder is None:
        raise JobError("the run has no folder: run it with an `out`, and output.extendable = true")
    tables, summary = (_json(folder / name) for name in ("job.json", "summary.json"))
    tables.pop("run", None)
    whole = {name: type(value)() for name, value in table(tables, "output").items() if name in OF_ALL_ROWS and value}
    over = {"output": {**whole, "extendable": None}, "data": {"test": None}}
    return str(folder.absolute()), merged(merged(merged(tables, summary.get("chosen", {})), over), sections)


def _extended(tables: Mapping[str, Any], held: Held, folder: Path, out: str | Path | None) -> Result:
    """Runs a job that extends another in this process."""
    config = of_record(merged(tables, {"data": held.laid()}))
    if faults := [*load_method(config.job.method).keys.conflicts(config)]:
        raise JobError("; also ".join(faults))
    with _in_memory(held, config.private, alone=True):
        output = Output(None if out is None else Path(out), quiet=True)
        result = perform(InProcess(), config, folder.absolute(), output, held if held.clients else None)
    assert result is not None
    return result


def ledger(folder: str | Path) -> SentByKind:
    """Tells every message that has left each client of a run, by kind; its `rows()` make a data frame.

    Parameters
    ----------
    folder : the run's (`--out`), or a client's own in it

    Raises
    ------
    JobError
        The folder holds no run, or no ledger of it is here.

    Examples
    --------
    >>> import numpy as np
    >>> import fedkern
    >>> x = np.linspace(-1, 1, 60)
    >>> def rows(shift):
    ...     X = np.column_stack([x, np.sin(7 * x + shift)])
    ...     return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + shift)
    ...
    >>> data = {"north": rows(0), "south": rows(1)}  # two clients
    >>> job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fedkern.run(job, data=data, out=f"{folder}/first")
    ...     sent = fedkern.ledger(f"{folder}/first")
    ...
    >>> sorted({row["who"] for row in sent.rows()})
    ['north', 'south']
    """
    return SentByKind.of(opened.opened(Path(folder), of_record), folder)


def _given(
    job: str | Path | Mapping[str, Any],
    data: Any,
    test: Any,
    server: Any,
    prior: Any,
    sections: Mapping[str, Mapping[str, Any]],
    place: Place | None,
) -> tuple[JobConfig, Path, Held | None]:
    """Returns the job that the arguments describe: its configuration, the folder of its paths, and the tables in memory; `place`
    as `job_with_levels` takes it."""
    keys = data if _are_keys(data) else {}
    held = Held.of(None if _are_keys(data) else data, test, server)
    said: dict[str, dict[str, Any]] = {"data": {**keys, **held.laid()}}
    if prior is not None:
        said["model"] = {"prior": folder_of(prior)}
    laid = merged(sections, {name: table for name, table in said.items() if table})
    # Keys that are derived from tables in memory count as defaults: the job may say otherwise.
    with _as_keys(keys):
        config, folder = job_with_levels(place, job, held, sections=laid, defaults=held.defaults)
    return config, folder, held if held.clients or held.own else None


def job_with_levels(
    place: Place | None, job: str | Path | Raw, held: Held | None = None, sets: Sequence[str] = (), **laid: Any
) -> tuple[JobConfig, Path]:
    """Reads a job as `methods.load` does, with levels of its response as rows in this process have them, where it names none.

    Parameters
    ----------
    place : where the job is going to run, if levels are looked for in its files, too; None: in memory alone
    """

    def completed(tables: Raw, folder: Path) -> Raw:
        if held is not None and held.clients:
            return with_levels(tables, held.tables)
        if place is None or not holders.in_one_process(place):
            return tables
        return with_levels(tables, lambda response: _of_files(tables, folder))

    return job_of(job, sets, completed=completed, **laid)


def _of_files(tables: Raw, folder: Path) -> Iterator[Table]:
    """Yields the rows of a job's files; none where a policy binds some, which no job reads before it is allowed."""
    config = parse(merged(tables, {"data": {"levels": ["0", "1"]}}), folder=folder)  # as a job that names some
    parties = load_method(config.job.method).rows.parties(config, folder)
    here = range(parties.n_clients)
    if not any(binding.policies for binding in holders.permit_all(config, parties, here).values()):
        yield from map(parties.rows, here)


@contextmanager
def _as_keys(keys: Mapping[str, object]) -> Iterator[None]:
    """Says of each value of `data=` that was taken for a key of [data], and is none, how a client's rows are given."""
    try:
        yield
    except JobError as error:
        odd = [name for name in keys if f"data.{name}" in error.unknown]
        if not odd:
            raise
        files = 'files go by data={"clients": [their paths]}; ' if all(isinstance(keys[name], str) for name in odd) else ""
        names = " and ".join(map(repr, odd))
        no_rows = f"{memory.kind(keys[odd[0]])} is no table; {files}{memory.WANTED}"
        raise JobError(f"{error}; if {names} should be a client: {no_rows}") from None


@contextmanager
def _in_memory(held: Held | None, private: bool, *, alone: bool) -> Iterator[None]:
    """Tells the caller, who holds the rows in memory, which column, row and cell is wrong. The hint how to look into a holder's
    file is left out, and cells of a private job are told to nobody.

    At a place that is not `alone` the caller holds the rows of some, and others read what they read of a file.
    """
    try:
        yield
    except OwnFault as error:
        if held is None or not held.clients:
            raise
        if not alone:
            error.forget_look()
            raise HolderError(error.own, told=str(error)) from None
        error.forget_look()
        raise JobError(str(error) if private else error.brief) from None


def _are_keys(data: object) -> bool:
    """Tells whether `data=` holds keys of [data], and no clients' tables. A list counts as a value only of a known key."""
    if not isinstance(data, Mapping) or not data:
        return isinstance(data, Mapping)
    return all(isinstance(v, str | bool | int | float) or (_may_be_value(v) and k in data_keys()) for k, v in data.items())


def _may_be_value(given: object) -> bool:
    """Tells whether a list or a table can stand in a job file. One of arrays can't, and no method's keys are imported for it."""
    if isinstance(given, Mapping):
        return all(isinstance(value, str | bool | int | float | list | Mapping) for value in given.values())
    return isinstance(given, list)


def load(folder: str | Path) -> Result:
    """Returns the result of a finished run from its folder, as the run gave it.

    Parameters
    ----------
    folder : the run's (`--out`)

    Raises
    ------
    JobError
        The folder holds no finished run, or a file of it cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> import fedkern
    >>> x = np.linspace(-1, 1, 60)
    >>> def rows(shift):
    ...     X = np.column_stack([x, np.sin(7 * x + shift)])
    ...     return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + shift)
    ...
    >>> data = {"north": rows(0), "south": rows(1)}  # two clients
    >>> job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fedkern.run(job, data=data, out=f"{folder}/first")
    ...     again = fedkern.load(f"{folder}/first")
    ...
    >>> again.digest == result.digest
    True
    """
    return finished(folder)


def finished(folder: str | Path, files: Iterable[Path] = ()) -> Result:
    """Does the work of `load` for a caller that is going to read these files, too, such as rows to predict: their policies are
    asked before the method of another package is imported."""
    folder = Path(folder)
    job, summary = (_json(folder / name) for name in ("job.json", "summary.json"))
    job.pop("run", None)
    job = merged(job, summary.get("chosen", {}))  # what a job has left to its rows
    load_method(summary["method"], job, files)  # a record may be of anywhere: policies are asked before others' code is imported
    posterior = stored.read(folder, summary)
    made = {key: value for key, value in stored.attributes(folder).items() if key in MADE}
    output = job.get("output", {})
    chains, draws = stored.shape(posterior) or (int(output.get("chains", 4)), int(output.get("draws", 1000)))
    return _predicting(Result(summary, posterior, folder, int(job["job"]["seed"]), chains, draws, job, made))


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise JobError(f"{path.parent}: holds no finished run of fedkern (no {path.name}); give the --out of one that has ended")
    try:
        content: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: cannot be read ({error})") from None
    return content


def _predicting(result: Result) -> Result:
    """Returns the result with its method's functions that predict new rows and draw maps."""
    return replace(result, predictor=partial(_predicted, result), maps=partial(_mapped, result))


def _mapped(result: Result) -> Figure | None:
    """Returns the map of a result whose folder has areas; None of all others."""
    picture = getattr(load_method(result.summary["method"]).report, "picture", None)
    return None if picture is None or result.folder is None else picture(result.folder)


def _predicted(result: Result, rows: object) -> Prediction:
    """Returns a result's predictions, after the policies beside files of rows were asked for the method of another package."""
    prediction: Prediction = load_method(result.summary["method"], files=files_among(rows)).predict.predicted(result, rows)
    return prediction


def files_among(rows: object) -> list[Path]:
    """Returns the files that rows to predict are in: one, or one of each party; none of a table in memory."""
    return [Path(path) for path in (rows.values() if isinstance(rows, Mapping) else [rows]) if isinstance(path, str | Path)]


def perform(place: Place, config: JobConfig, folder: Path, output: Output, held: Held | None = None) -> Result | None:
    """Performs the part of one place in a job whose paths are relative to `folder`. Returns the result at the server's place,
    None elsewhere."""
    result = engine.perform(load_method(config.job.method), Part(place, config, folder, held), output)
    return None if result is None else _predicting(result)


def replays_of(run: opened.Opened) -> Replay:
    """Returns the door of a run's method by which its log is gone through (JobError: it has none)."""
    replays = load_method(run.config.job.method).replay
    if replays is None:
        raise JobError(f'{run.path}: replay wants a run with algorithm.schedule = "asynchronous"')
    return replays


def to_replay(folder: Path, *, server: bool) -> opened.Opened:
    """Opens a run whose answers are to be computed again from its clients' rows.

    Parameters
    ----------
    folder : of the run, or a client's own
    server : whether the log lies there, which is looked through first

    Raises
    ------
    JobError
        The log was altered or is of no finished run, or its answers are never computed again.
    """
    run = opened.opened(folder, of_record)
    replays_of(run).refuse_rows(run)
    if server:
        for _ in answers.read(run.path / answers.FILE, answers.of_summary(run)):
            pass
    return run


def check_job(
    place: Place,
    config: JobConfig,
    folder: Path,
    held: Held | None = None,
    latency: float | None = None,
    *,
    apart: bool = False,
    form: engine.Form = "verbose",
) -> list[str] | None:
    """Returns the lines that `fedkern check` prints of a job at the server's place, None elsewhere."""
    return engine.run_check(load_method(config.job.method), Part(place, config, folder, held, apart), latency, form)


def find_plans(place: Place, config: JobConfig, folder: Path) -> Mapping[str, Plan]:
    """Returns the plan of each client of a private job (or of all, by one name): how much it may spend, as `fedkern check` finds
    it. The plans of an open job are empty."""
    lines, *_ = engine.looked_at(load_method(config.job.method), Part(place, config, folder))
    return {} if lines is None else lines.plans


OF_ALL_ROWS = (
    "loo",
    "marginal",
    "sites",
    "without",
    "survival_at",
    "restricted_mean",
)  # of [output], which clients are asked for
APPROXIMATE = 6  # the exit code of a job whose result is approximate
BUDGET_SPENT = "budget spent"  # the status of a client that has refused a charge


def describe_too_few(result: Result, min_updates: int) -> str | None:
    """Returns a sentence where the budgets were spent before the job reached its smallest number of updates, else None."""
    updates = sum(client["updates"] for client in result.summary["clients"].values())
    if result.stop != "budget" or updates >= min_updates:
        return None
    wanted = f"algorithm.min_updates = {min_updates}" if updates else "so there is no result"
    begin = f"the privacy budgets were spent after {updates} updates, {wanted}"
    # The job's own epsilon pays for one update: whoever has made none was stopped by its holder's cap.
    none = [
        name for name, client in result.summary["clients"].items() if (client["updates"], client["status"]) == (0, BUDGET_SPENT)
    ]
    if capped := [repr(name) for name in none if name in result.privacy]:
        return (
            f"{begin}; at {', '.join(capped)} the job's own epsilon pays for an update, and what the holder allows over all jobs "
            "does not: ask the holder to allow more, or ask for less of it (more noise, or a lower sampling_rate or local_steps)"
        )
    return f"{begin}; raise epsilon or noise_multiplier, or lower sampling_rate or local_steps" + (
        "; where `fedkern check` says more updates, a holder's own cap has ended them, and only the holder can raise it"
    )


def find_ending(result: Result, min_updates: int) -> tuple[int, str | None]:
    """Returns the exit code of a job that has given a result, and the sentence for its user: 0 and none, 4 without some lost
    clients (named), 5 if a budget ended the job too early, 6 if the result is approximate."""
    if problem := describe_too_few(result, min_updates):
        return BudgetSpent.exit_code, problem
    if result.converged == "approximate":
        return APPROXIMATE, "the result is approximate, as its verdict says"
    clients = result.summary["clients"].items()
    lost = [
        f"client {name!r} ({client.get('lost', 'lost')}{', but its updates are in it' * client.get('in_result', False)})"
        for name, client in clients
        if client["status"] == "lost"
    ]
    return (4, f"finished without {', '.join(lost)}") if lost else (0, None)
