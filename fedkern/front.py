"""Fits a model, or describes columns, in one line from tables in memory: `fedkern.fit`, `fedkern.describe`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from . import api
from .data import incomplete, memory, table
from .data.cells import Text
from .data.design import UNITS
from .data.dialect import Dialect, stem
from .data.table import Table
from .errors import JobError
from .jobs.formula import reading
from .jobs.keys import DialectSection
from .kernels.families import taken_by
from .methods import data_keys
from .methods.seen import coded_apart, codes_beside_two, look_at
from .printing import listed
from .results.result import Result

RUN = ("test", "server", "prior", "out", "resume", "progress")  # arguments of `run`; all else are tables of the job
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
STARTS = {"clip": 2.5, "sampling_rate": 0.1, "noise_multiplier": 5.0}  # of [privacy], until every client has spent its epsilon


def fit(
    formula: str,
    data: object,
    family: str | None = None,
    *,
    link: str | None = None,
    sigma: str | None = None,
    by: str | None = None,
    priors: Mapping[str, object] | None = None,
    privacy: Mapping[str, object] | None = None,
    method: str | None = None,
    map: Mapping[str, object] | None = None,
    **job: Any,
) -> Result:
    """Fits a model to the rows of several clients, as `run` does with the job that the arguments describe.

    Parameters
    ----------
    formula : the model as R writes it, such as "died ~ age * sex + (1 | ward)"
    data : client -> its rows, each in a form that `run` takes; or one table of all rows, which has a column of the clients; or a
        list of files, each of which is a client
    family : of the response, a key of `model.family`. By default the plain one: bernoulli of two labels, multinomial of several
        (ordinal of an ordered category), of whole numbers from 0, or with `offset(log(..))`, poisson or negative-binomial by
        evidence, gaussian of other numbers, binomial of `cbind(..)`, cox of `Surv(..)`. The first line of the result says it
    link : a key of `model.link`: probit or cloglog of a probability; default the family's own
    sigma : a key of `model.sigma`: terms of the formula on which the errors' standard deviation depends, such as "~ age"
    by : the column of one table that names each row's client; it is no covariate
    priors : keys of [model] that are priors, such as `{"prior_sd": 1.0}`, and priors of single numbers by the names that a result
        has for them, such as `{"age": {"kind": "normal", "sd": 0.1}}`
    privacy : keys of [privacy], among them `epsilon` and `delta`; the method is then `pvi`, whose columns have bounds
        (`columns={"age": {"center": 60, "scale": 12}}`)
    method : by default `likelihood`, with `privacy` `pvi`, with `map` `sigma`. The first line of the result says it
    map : `prior`, the folder that `fedkern sigma build` wrote, and keys of [data] that say which area a row is of, such as
        `{"prior": "prior", "area": "county"}`. Terms are then columns; `offset(log(expected))` is an exposure
    **job : arguments of `run` (`test`, `out`, ..), keys of [data] by their names (`columns`, `levels`, `positive`, ..), and
        tables of the job, such as `output={"loo": True}`

    Returns
    -------
    Result

    Raises
    ------
    JobError
        `data` are no clients' rows, or whatever ends the job.

    Examples
    --------
    >>> import numpy as np
    >>> import fedkern
    >>> x = np.linspace(-1, 1, 120)
    >>> rows = {"x": x, "y": 1 + 2 * x + 0.1 * np.cos(31 * x), "site": np.array(["north", "south"])[np.arange(120) % 2]}
    >>> result = fedkern.fit("y ~ x", rows, by="site")
    >>> round(result.parameters["theta[x]"]["mean"], 1)
    2.0
    """
    clients = _clients(data, by)
    model = reading.read(formula)
    if by is not None and by in (*model.formula.variables, *model.data.values(), *model.groups):
        raise JobError(
            f"fit: {by!r} (by) is the clients' column, and no column of theirs: leave it out of the formula, and give "
            "model = {'random': {'client': True}} for an effect of each client"
        )
    keys = {name: job.pop(name) for name in sorted(job.keys() & data_keys() - {*RUN})}
    dialect = DialectSection.model_validate(keys.get("dialect") or {}).dialect
    names = list(dict.fromkeys(name for held in clients.values() for name in _header(held, dialect)))
    _check_names(model, names)
    tables: dict[str, Any] = {name: content for name, content in job.items() if name not in RUN}
    method = method or _method(private=privacy is not None, mapped=map is not None)
    if family is None:
        family = _family(model.data, clients, dialect, private=privacy is not None)
        if family == "binomial" and method == "pvi":
            family = "bernoulli"  # of which pvi takes trials
    laid: dict[str, Any] = {"job": {"method": method}, "data": {}}
    named = {name: prior for name, prior in (priors or {}).items() if isinstance(prior, Mapping)}
    laid["model"] = {"formula": formula, "family": family, **{k: v for k, v in (priors or {}).items() if k not in named}}
    laid["model"] |= {name: text for name, text in (("link", link), ("sigma", sigma)) if text is not None}
    if named:
        laid["model"]["priors"] = named
    if map is not None:
        _lay_map(model, map, names, laid)
    laid["data"] |= keys
    if privacy is not None:
        laid["privacy"] = dict(privacy)
        if map is None:
            laid["job"]["rounds"] = "budget"
            laid["privacy"] = {**STARTS, **privacy}
            _check_public(model, names, laid)
    return _run("fit", laid, clients, tables, {name: value for name, value in job.items() if name in RUN})


def describe(
    data: object,
    *,
    by: str | None = None,
    group: str | None = None,
    cross: Sequence[tuple[str, str]] = (),
    time: str | None = None,
    event: str | None = None,
    entry: str | None = None,
    positive: str | int | None = None,
    privacy: Mapping[str, object] | None = None,
    **job: Any,
) -> Result:
    """Describes the columns of several clients, as `run` does with the job that the arguments describe (`method = "describe"`).

    Parameters
    ----------
    data, by : as `fit` takes them; one table without `by` is one client
    group : a column of few levels, in the rows of each of which all is described, too: a Table 1
    cross : pairs of columns of levels that are counted together
    time, event : when each row has its event or was seen for the last time, and which of the two it is: Kaplan-Meier curves
    entry : from when on each row was seen, if not from 0 on (left truncation)
    positive : the label of an event; by default 1, or the one of two labels that says yes
    privacy : keys of [privacy], such as `{"epsilon": 1.0}`; `columns` then has the levels, or lower and upper, of each column
    **job : as `fit` takes it, such as `ignore=["id"]`, or `disclosure={"level": "standard"}` to see what others would

    Returns
    -------
    Result
        Its `table()` has all numbers, `print` a Table 1, `plot("histograms")` and `plot("survival")` the pictures.

    Raises
    ------
    JobError
        `data` are no clients' rows, or whatever ends the job.

    Examples
    --------
    >>> import fedkern
    >>> rows = {"age": [61, 48, 55, 70], "sex": ["F", "M", "M", "F"]}
    >>> print(fedkern.describe({"north": rows}))
    describe: age, sex
    1 clients, federated
                             all
    rows                     4
    age, mean (sd)           58.5 (9.327)
    age, median [quartiles]  58 [53.25, 63.25]
    age = 48, n (%)          1 (25.0)
    age = 55, n (%)          1 (25.0)
    age = 61, n (%)          1 (25.0)
    age = 70, n (%)          1 (25.0)
    sex = F, n (%)           2 (50.0)
    sex = M, n (%)           2 (50.0)
    """
    clients = {"data": data} if by is None and _is_table(data) else _clients(data, by, "describe")
    keys = {name: job.pop(name) for name in sorted(job.keys() & data_keys() - {*RUN})}
    model = {"group": group, "cross": [[*pair] for pair in cross], "time": time, "event": event, "entry": entry}
    laid: dict[str, Any] = {"job": {"method": "describe"}, "data": keys}
    laid["model"] = {name: value for name, value in model.items() if value}
    laid["model"] |= {} if positive is None else {"positive": str(positive)}
    laid |= {} if privacy is None else {"privacy": dict(privacy)}
    options = {name: job.pop(name) for name in RUN if name in job}
    return _run("describe", laid, clients, job, options)


def _run(who: str, laid: dict[str, Any], clients: Mapping[str, object], tables: Mapping[str, Any], options: Any) -> Result:
    """Runs a job, with further tables of it, on the rows or the files of clients."""
    for name, content in tables.items():
        if not isinstance(content, Mapping):
            raise JobError(f"{who}: {name} = {memory.kind(content)}: wanted a table of the job, such as output = {{'loo': True}}")
        laid[name] = {**laid.get(name, {}), **content}
    if _are_files(clients):
        laid["data"]["clients"] = [escape(str(Path(str(file)).absolute())) for file in clients.values()]
        result: Result = api.run(laid, **options)
    else:
        result = api.run(laid, data=clients, **options)
    return result


def _is_table(data: object) -> bool:
    """Tells whether it is one table, and neither tables nor files of clients."""
    return all(map(_is_column, data.values())) if isinstance(data, Mapping) else not isinstance(data, list | tuple)


def _method(*, private: bool, mapped: bool) -> str:
    """Returns the method of a job that names none."""
    if mapped:
        return "sigma"
    return "pvi" if private else "likelihood"


def _clients(data: object, by: str | None, who: str = "fit") -> Mapping[str, object]:
    """Returns client -> its rows, or its file, of one table by its column `by`, or as they were given."""
    if isinstance(data, list | tuple) and data and all(isinstance(file, str | Path) for file in data):
        files, data = data, {stem(Path(file)): file for file in data}
        if len(data) < len(files):
            raise JobError(f"{who}: a client is called as its file, and two files have one name; rename one")
    if isinstance(data, Mapping) and data and not all(_is_column(value) for value in data.values()):
        if by is not None:
            raise JobError(f"{who}: by = {by!r} names a column of one table, and data has a table for each client: leave by out")
        return data
    names = memory.header(data, "data")
    if by is None:
        columns = ", ".join(map(repr, names[:6]))
        raise JobError(f"{who}: data is one table: by = names its column of clients ({columns}, ..), or give {{client: rows}}")
    if by not in names:
        raise JobError(f"{who}: by = {by!r} is no column of data")
    cells = memory.table(data, "data", text=frozenset({by}), used=by.__eq__).cells(by)
    if empty := [str(k) for k, cell in enumerate(cells, 1) if not cell.strip()]:
        raise JobError(f"{who}: column {by!r} (by) has no client in row {listed(empty, 5)}: name it, or leave the row out")
    if not cells:
        raise JobError(f"{who}: data has no rows")
    if isinstance(data, Mapping):
        arrays = {name: np.asarray(values) for name, values in data.items()}
        rest = {name: values for name, values in arrays.items() if name != by}
        return {
            str(label): {name: values[arrays[by] == label] for name, values in rest.items()} for label in np.unique(arrays[by])
        }
    import narwhals as nw

    frame: Any = nw.from_native(data, eager_only=True)  # `header` has taken it
    return {str(label): frame.filter(nw.col(by) == label).drop(by).to_native() for label in frame[by].unique().sort().to_list()}


def _is_column(value: object) -> bool:
    """Tells whether it is one column: a list of cells, or an array or series of one dimension."""
    return isinstance(value, list | range) or len(getattr(value, "shape", ())) == 1


def _are_files(clients: Mapping[str, object]) -> bool:
    return all(isinstance(held, str | Path) for held in clients.values())


def _header(held: object, dialect: Dialect) -> tuple[str, ...]:
    """Returns the names of the columns of a client's rows."""
    return table.header(held, dialect=dialect) if isinstance(held, str | Path) else memory.header(held, "data")


def _check_names(model: reading.Said, names: Sequence[str]) -> None:
    """Refuses a formula of whose names some are columns of no client, all of them in one sentence."""
    plain = [name for key, name in model.data.items() if key not in ("offset", "trials")]  # which may be calculated
    plain += [name for name in str(model.data.get("trials", "")).split(" + ") if name]
    plain = [part for name in plain for part in ([name] if name in names else name.split(" - "))]  # a time since another
    groups = [name for group in model.groups for name in ([group] if group in names else group.split(":"))]
    if gone := [repr(name) for name in dict.fromkeys((*plain, *model.formula.variables, *groups)) if name not in names]:
        are = f"{listed(gone, 9)} of the formula {'is no column' if len(gone) == 1 else 'are no columns'} of any client"
        raise JobError(f"fit: {are}; there are {listed(names, 12)}")


def _lay_map(model: reading.Said, map: Mapping[str, object], names: Sequence[str], laid: dict[str, Any]) -> None:
    """Lays the keys of a map over a job: sigma takes columns and no formula, and all that are not in data.ignore."""
    terms = model.formula.terms
    odd = ["*".join(term) for term in terms if len(term) > 1 or not model.formula.factors[term[0]].plain]
    odd += ["effects of groups"] if model.random else []
    if odd:
        raise JobError(f"fit: with map a term is a column, and {', '.join(odd)} is none: make a column of it, or leave it out")
    keys = {name: value for name, value in map.items() if name != "prior"} | model.data
    offset = str(keys.get("offset", ""))
    if offset.startswith("log(") and offset.endswith(")"):
        del keys["offset"]
        keys["exposure"] = offset[4:-1]
    used = {*model.formula.variables, *(str(value) for value in keys.values())}
    used |= {str(name) for value in keys.values() if isinstance(value, list) for name in value}
    laid["data"] = {**keys, "ignore": [name for name in names if name not in used]}
    del laid["model"]["formula"]
    laid["model"] |= {"prior": map.get("prior"), "intercept": model.formula.intercept}
    if laid["model"]["family"] == "auto":
        laid["model"]["family"] = "poisson"


def _family(left: Mapping[str, str], clients: Mapping[str, object], dialect: Dialect, *, private: bool) -> str:
    """Returns the plain family of a formula's left side and of the clients' cells; of a private job no cell decides."""
    if "time" in left:
        return "cox"
    if "trials" in left:
        return "binomial"
    if private:
        raise JobError(f"fit: a private job looks at no cell to choose a family: give one of {', '.join(taken_by('pvi'))}")
    response = left["response"]
    used = response.__eq__  # cells of other columns may be anything
    read = [
        table.load(held, dialect=dialect)
        if isinstance(held, str | Path)
        else memory.table(held, f"data[{name!r}]", response=response, used=used)
        for name, held in clients.items()
    ]
    here = [incomplete.with_empty(rows, dialect, {}) for rows in read if response in rows.names]
    seen = look_at([Table(rows.source, (response,), {response: rows.columns[response]}, rows.n_rows) for rows in here])
    if any(isinstance(column := rows.columns[response], Text) and column.marked for rows in here):
        raise JobError(f"fit: {response!r} {UNITS}")
    if seen.kinds[response] == "text" and any(getattr(rows.columns[response], "ordered", False) for rows in here):
        return "ordinal" if response in seen.several else "bernoulli"
    exposed = seen.kinds[response] == "count" and left.get("offset", "").startswith("log(")  # then whole numbers are counts
    if seen.kinds[response] != "text" and not exposed and coded_apart(here, response):
        raise JobError(
            f"fit: {response!r} has two values at each client, and not the same two at all: write the same two at all clients, "
            "or, if they are numbers, give family ('poisson', 'gaussian')"
        )
    if seen.kinds[response] != "text" and not exposed and (codes := codes_beside_two(here, response)):
        named = [f"{code:g}" for code in codes]
        raise JobError(
            f"fit: {response!r} has two values beside {', '.join(named)}: if that stands for a missing value, give dialect = "
            f"{{'missing': {named}}}, and if not, family ('poisson', 'gaussian')"
        )
    chosen = seen.family(response, levels=True)
    return "auto" if chosen == "poisson" or exposed else chosen


def _check_public(model: reading.Said, names: Sequence[str], laid: Mapping[str, Any]) -> None:
    """Refuses a private job some columns of which have no public constants, with all that is lacking in one list."""
    if model.random:
        raise JobError("fit: effects of groups are not private: leave them out, or leave privacy out (method = 'likelihood')")
    covariates = {*names} - {model.data.get("response")}
    lacking = sorted(covariates & set(model.formula.variables) - set(laid["data"].get("columns", {})))
    missing = [f"{key} in privacy, such as {value}" for key, value in BUDGET.items() if key not in laid["privacy"]]
    if lacking:
        columns = json.dumps({name: {"center": 0, "scale": 1} for name in lacking})
        missing.append(f"columns = {columns}, with a public guess of each centre and scale")
    if missing:
        raise JobError(f"fit: a private job asks no row, so give {'; '.join(missing)}")
