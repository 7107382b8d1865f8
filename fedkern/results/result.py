"""Defines the result of a finished job."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import JobError
from ..finding import Finding
from ..kernels.families import FAMILIES, linked
from ..models.encoding import Encoding
from ..plain import to_toml
from ..printing import align_columns, printable
from . import described, head, loo, page, plain, shown, table
from .frames import Rows, TableRow, to_frame
from .plain import Record
from .prediction import Prediction
from .released import Drawing, Group, Released
from .verdict import Word

if TYPE_CHECKING:
    from .frames import PredictionFrame, TableFrame
    from .plots import Figure

SAME = 1e-7  # of their size: numbers of responses that differ by less are one


@dataclass(frozen=True)
class Result:
    """Holds a finished job.

    Attributes
    ----------
    summary : the content of `summary.json`; see the properties
    posterior : means, deviations and draws; of a sampler its kept draws (or streaming summaries)
    folder : where the run's files are; None if nothing was written
    seed, chains, n_draws : of `to_arviz`
    job : the job's tables with all defaults
    made : when, and how long it took, as ArviZ has it
    predictor : rows -> their predictions; see `predict`
    maps : draws the maps of areas that are in `folder`; None where the method has none
    given : the job's tables as they were given, for clients' files; empty of a result that was loaded

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
    >>> isinstance(result, fedkern.Result), result.stop
    (True, 'enough')
    >>> [row["parameter"] for row in result.rows()]
    ['intercept', 'theta[x1]', 'theta[x2]', 'sigma']
    """

    summary: Record
    posterior: Released
    folder: Path | None = None
    seed: int = 0
    chains: int = 4
    n_draws: int = 1000
    job: Record = field(default_factory=dict)
    made: Record = field(default_factory=dict)
    predictor: Callable[[Any], Prediction] | None = field(default=None, compare=False)
    maps: Callable[[], Figure | None] | None = field(default=None, compare=False)
    given: Record = field(default_factory=dict, compare=False)

    @property
    def parameters(self) -> dict[str, dict[str, float]]:
        """Name -> mean, sd, q05, q95; of a sampler also rhat, ess, pip, as far as they apply.

        All are numbers, while `summary` has texts for those that are not finite. Where chains of a sem disagree, all but rhat and
        ess are nan; `summary["by_mode"]` has those of each mode.
        """
        return {
            name: {key: plain.number(value) for key, value in row.items()} for name, row in self.summary["parameters"].items()
        }

    @property
    def metrics(self) -> dict[str, float]:
        """The scores of the released posterior on the test rows; empty without a test file."""
        return dict(self.summary["metrics"])

    @property
    def privacy(self) -> dict[str, dict[str, Any]]:
        """Client -> its certificate; empty where nothing is claimed."""
        return dict(self.summary["privacy"])

    @property
    def digest(self) -> str:
        """The digest of the posterior arrays: equal for equal bits, whatever the ranks, threads and transport."""
        return str(self.summary["digest"])

    @property
    def converged(self) -> Word:
        """True, False, "settled" (a fit that moves no more), "not judged" or "approximate"; `summary["verdict"]` says why."""
        word: Word = self.summary["converged"]
        return word

    @property
    def stop(self) -> str:
        """The reason why the rounds ended: "rounds", "updates", "converged", "enough" (draws), "settled", "budget" or "lost"."""
        return str(self.summary["stop"])

    @property
    def notes(self) -> list[str]:
        """What a reader has to know of data, model and run: sites that differ, a column that may be in another unit somewhere.

        Those on data and model come first. `print(result)` shows the first of them.
        """
        return shown.notes(self.summary)

    @property
    def findings(self) -> list[Finding]:
        """Doubts and notes by their ids, with the values that stand in them: each is a text, too."""
        return shown.findings(self.summary)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The table of columns by client: each client's rows, mean and sd of each numeric column, and `flag`, the ids of findings
        on it. Empty where the server has no client's own numbers, as of a private job and with secure sums.
        """
        return [*self.summary.get("columns", [])]

    def rows(self, *, exp: bool = False, reference: Mapping[str, str] | None = None, levels: bool = True) -> Rows[TableRow]:
        """Returns the rows of `table`, each a dictionary."""
        if "describe" in self.summary:
            return Rows(self.summary["describe"]["rows"])
        columns = self.job.get("data", {}).get("columns") or {}
        categorical = {column["name"] for column in self.summary["encoding"].get("columns", ()) if "levels" in column}
        declared = {name: columns[name]["reference"] for name in categorical & columns.keys() if columns[name].get("reference")}
        query = table.Asked(exp, self._family, {**declared, **(reference or {})}, levels)
        rows: Rows[Any] = Rows(table.rows(self.summary, self.posterior, query))
        return rows

    @property
    def _family(self) -> str:
        """The family of the response, by which coefficients are ratios or not."""
        model = self.job.get("model", {})
        family = linked(str(model.get("family") or ""), model.get("link"))
        return {"mrf": "", "sem": "", table.OWN: table.OWN}.get(str(model.get("kind")), family)

    def table(self, exp: bool = False, reference: Mapping[str, str] | None = None, *, levels: bool = True) -> TableFrame:
        """Returns all parameters on the data's scale, of each site where the server has them, and levels against their reference.

        Parameters
        ----------
        exp : odds ratios (logistic) or rate ratios (counts) instead of coefficients: posterior medians and intervals, of slopes
            and of contrasts
        reference : categorical column -> the level that others are compared with; by default `[data.columns.NAME] reference`,
            else the first in sorted order
        levels : whether coefficients of all levels, where a result has these, stand beside contrasts; they have no meaning alone,
            and `print(result)`, the terminal and pages leave them out

        Returns
        -------
        a pandas DataFrame with columns `parameter`, `site`, `mean`, `sd`, `q025`, `q05`, `q95`, `q975` and, where they are known,
        `rhat`, `ess`, `pip`; the `rows` where pandas is not installed. Of a description a row for each column, level, client ("":
        all together) and group, with `n`, `missing`, `count`, `share`, `mean`, `sd` and quantiles

        Raises
        ------
        JobError
            A reference is no level of the result, or coefficients are no logarithms of ratios.
        """
        frame: TableFrame = to_frame(self.rows(exp=exp, reference=reference, levels=levels))
        return frame

    def predict(self, rows: object) -> PredictionFrame:
        """Predicts new rows from the posterior, without any client.

        Parameters
        ----------
        rows : path of a file as the clients have theirs (csv, parquet, npz), a data frame (pandas, polars, pyarrow), or arrays
            (X, y) or X, whose columns are x1, x2, ... For a vertical run a table with the columns of all clients, or a mapping of
            clients' names (and "server") to their tables, joined by id, or to files with their parts (`fedkern predict --client`)

        Returns
        -------
        a pandas DataFrame (a list of dictionaries where pandas is not installed) with a row for each: `mean`, the predictive mean
        of the response; quantiles of its mean over the posterior; `linear_mean` and `linear_sd` of the linear predictor; first
        the ids, where a vertical run's rows have them

        Raises
        ------
        JobError
            The method cannot predict at the server, and why; or a fault of the rows.

        Warns
        -----
        UserWarning
            Rows are far from all rows of the job, have labels that it does not know, or lack a cell: these have no prediction.
        """
        prediction = self.prediction(rows)
        for note in prediction.notes:
            warnings.warn(note, stacklevel=2)
        return prediction.table()

    def scores(self, rows: object) -> dict[str, float]:
        """Scores predictions of rows with the response, as `metrics` scores the test rows; other rows are left out.

        Raises
        ------
        JobError
            As `predict`; or the rows lack the response.
        """
        result = self.prediction(rows).scores
        if not result:
            response = self.summary["encoding"].get("response")
            if self.job.get("data", {}).get("time"):
                raise JobError("predictions of survival times have no scores, for rows may be censored: use predict")
            lacking = f"the rows have no column {response!r} to compare predictions with, or it is empty in all of them"
            raise JobError(f"{lacking}; add it, or use predict")
        return dict(result)

    def prediction(self, rows: object) -> Prediction:
        """Returns predictions and scores as arrays."""
        if self.predictor is None:
            raise JobError("this result has lost its job: load it with fedkern.load(DIR)")
        return self.predictor(rows)

    def compare(self, other: Result, *, same_rows: bool = False) -> dict[str, float]:
        """Compares this model with another one of the same rows, both of method = "likelihood", by the evidence.

        Parameters
        ----------
        other : the other model's result
        same_rows : whether you know that both are of the same rows in the same units. It is asked for where nothing that clients
            told shows it: own models, other offsets of a gaussian response, survival times with `model.intercept_centre`

        Returns
        -------
        `log_bayes_factor`, above 0 where the rows are more probable under this model and its priors, and its standard `error`;
        where both jobs have output.loo also `elpd_difference` of leave-one-out densities, with as many digits as it has, and
        `elpd_error`, its Monte Carlo error: with other draws the difference would be another by about as much. How far it
        depends on the rows, its standard error over rows, is not known: that needs each row's difference, and rows' densities
        stay with the clients

        Raises
        ------
        JobError
            One has no evidence, they are of other partial likelihoods, or they are not of the same response, clients and number
            of rows, or rows have widened the default priors of one, or all clients' responses have another mean, standard
            deviation or number of zeros. The same responses in another order of rows are not seen, nor other covariates: whether
            rows are the same is for the caller to know.
        """
        evidences, summaries = [], (self.summary, other.summary)
        for summary in summaries:
            if "power_likelihood" in summary:
                raise JobError("compare: a power likelihood (algorithm.client_weights) has no evidence; leave that key out")
            if "log_evidence" not in summary:
                own_method = summary["method"] == "likelihood"
                remedy = 'algorithm.sampler = "importance", and no groups that cross' if own_method else 'method = "likelihood"'
                if "survey" in summary:
                    raise JobError('compare: a pseudo-posterior (data.weight_kind = "survey") has no evidence of rows')
                raise JobError(f'compare: a result of method = "{summary["method"]}" has no evidence; take {remedy}')
            evidence = summary["log_evidence"]
            evidences.append((plain.real(evidence["value"]), plain.real(evidence["error"])))
        for what, (mine, theirs) in {
            "response": [summary["encoding"].get("response") for summary in summaries],
            "clients": [sorted(summary["clients"]) for summary in summaries],
            "kind of response (a time, the order of times, or a number)": [_kind(summary) for summary in summaries],
            "rows": [summary.get("predictive", {}).get("rows") for summary in summaries],
        }.items():
            if mine != theirs:
                raise JobError(f"compare: the two results have other {what}, and evidence compares models of the same rows")
        used = [head.used_priors(result.summary, result.job.get("model", {})) for result in (self, other)]
        if used[0] != used[1] and any("priors" in summary for summary in summaries):
            sds = " and ".join(", ".join(f"{name} = {sd:g}" for name, sd in priors.items()) for priors in used)
            raise JobError(
                f"compare: evidence depends on the priors, and rows have widened those of one result ({sds}): give both jobs "
                "the same model.prior_sd and model.intercept_sd"
            )
        # Evidence compares models of the same rows: refuse whatever shows that these are not.
        if unlike := _other_times(*summaries):
            raise JobError(f"compare: {unlike}")
        if not same_rows and (unknown := _unknown(self, other)):
            raise JobError(
                f"compare: {unknown}; if you know that both are of the same rows in the same units, say same_rows=True"
            )
        if unlike := _unlike(*summaries):
            raise JobError(
                f"compare: {unlike}: the responses are not the same, and evidence compares models of the same rows; run both "
                "jobs on the same files"
            )
        (value, error), (value_2, error_2) = evidences
        out = {"log_bayes_factor": value - value_2, "error": (error**2 + error_2**2) ** 0.5}
        return out | _elpd_difference(*(summary.get("loo") for summary in summaries))

    def to_job(self, path: str | Path) -> Path:
        """Writes a job file of the keys that were given, for clients who hold their own rows.

        Parameters
        ----------
        path : of the file, which must not be there. Its `clients = ["FILES"]` is to be filled in, and rows that lay in memory
            (`test`, `server`) come from files, too. Where parties are apart rows are asked what [disclosure] says: its `level`
            is there

        Raises
        ------
        JobError
            The file is there already, or the result was loaded from a folder, which has its `job.json`.

        Examples
        --------
        >>> import tempfile
        >>> import fedkern
        >>> data = {"north": {"x": [1.0, 2.0, 4.0, 3.0], "y": [2.0, 4.1, 8.2, 5.9]}}
        >>> result = fedkern.fit("y ~ x", data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(result.to_job(f"{folder}/job.toml").read_text(), end="")
        ...
        [job]
        method = "likelihood"
        [data]
        clients = ["FILES"]
        [model]
        formula = "y ~ x"
        family = "gaussian"
        [disclosure]
        level = "standard"
        """
        if not self.given:
            raise JobError("to_job: a loaded result does not know which keys were given; job.json in its folder has all")
        path = Path(path)
        if path.exists():
            raise JobError(f"{path} is there already; give another path")
        tables = dict(self.given)
        if "disclosure" in self.summary:  # of a job whose rows are asked for something
            tables["disclosure"] = {"level": "standard", **tables.get("disclosure", {})}
        path.write_text(to_toml(tables) + "\n", encoding="utf-8")
        return path

    @property
    def _groups(self) -> dict[str, Group]:
        """The groups of the posterior's draws; with contrasts of levels in the group posterior."""
        from . import questions  # which a job that ends without any does not need

        groups = self.posterior.groups(Drawing(self.seed, self.chains, self.n_draws))
        if "posterior" not in groups:
            return groups
        named = {str(row["parameter"]) for row in self.rows() if " vs " in row["parameter"] and not row["site"]}
        contrasts = {name: draws for name in sorted(named) if (draws := questions.drawn(groups, name)) is not None}
        variables = {**groups["posterior"].variables, **{name: (("chain", "draw"), values) for name, values in contrasts.items()}}
        return {**groups, "posterior": groups["posterior"]._replace(variables=variables)}

    def to_arviz(self, rows: object = None) -> Any:
        """Returns posterior draws as ArviZ's InferenceData (0.x) or DataTree (1.x); needs `pip install fedkern[results]`.

        Contrasts of levels stand beside coefficients. A result of `likelihood` that this process has computed has a group
        `log_likelihood` where clients were asked for it: each client's sum over its rows at each draw. A job that ends after one
        net of draws has approximated them and has no such group, nor has one with secure sums; a client that takes part by a
        summary is not in it. Terms of single rows stay with the clients.

        Parameters
        ----------
        rows : new ones, as `predict` takes them: the group `posterior_predictive` then has a new response of each
        """
        from .inference_data import inference_data

        groups = self._groups
        if sums := getattr(self.posterior, "by_client", {}):
            values = np.stack([*sums.values()], axis=-1)
            groups["log_likelihood"] = Group({"client_rows": (("chain", "draw", "client"), values)}, {"client": [*sums]})
        if rows is not None:
            drawn, name = self.prediction(rows).responses, self.summary["encoding"].get("response") or "response"
            groups["posterior_predictive"] = Group({name: (("chain", "draw", "row"), drawn[np.newaxis])}, {})
        return inference_data(self.posterior, seed=self.seed, made=self.made, own=groups)

    def plot(self, kind: str = "forest", **options: object) -> Any:
        """Draws the result with the figures of the report.

        Parameters
        ----------
        kind : "forest" (coefficients; of a graph its edges), "sites" (what each client's rows say alone), "predictive" (whether
            the model fits), "calibration" (of test rows), "survival" (curves that the job asks for), "histograms" (of a
            description), "map" (areas in `folder`), "trace" (of chains), "effects"
        **options : of "effects", as `effects` takes them: the first value is along the axis

        Returns
        -------
        Matplotlib's axes: one, or an array of several; `.figure` has `savefig`

        Raises
        ------
        JobError
            The result has nothing to draw of this kind, and why, or Matplotlib is not installed.

        Examples
        --------
        >>> import fedkern
        >>> rows = {"x": [1.0, 2.0, 4.0, 3.0], "y": [2.0, 4.1, 8.2, 5.9]}
        >>> result = fedkern.fit("y ~ x", {"north": rows})
        >>> result.plot("effects", x=[1, 2, 3]).get_xlabel()
        'x'
        """
        from . import pictures

        return pictures.plot(self, kind, options)

    def hypothesis(self, text: str) -> dict[str, float]:
        """Returns how probable a statement on parameters is, by the posterior's draws.

        Parameters
        ----------
        text : two sides with < or > between them, of parameters as `table` names them (`theta[..]` may be left out), numbers,
            + - * / **, log, exp and sqrt: "age > 0", "exp(dose) > 1.1", "stage[II vs I] > stage[III vs I]"

        Returns
        -------
        `probability`; and mean, sd and 95 % interval (q025, q975) of the left side less the right

        Raises
        ------
        JobError
            It is no such statement, or the result has no draws.

        Examples
        --------
        >>> import fedkern
        >>> rows = {"x": [1.0, 2.0, 4.0, 3.0], "y": [2.0, 4.1, 8.2, 5.9]}
        >>> result = fedkern.fit("y ~ x", {"north": rows})
        >>> result.hypothesis("x > 1")["probability"] > 0.9
        True
        """
        from . import questions

        rows: Rows[Any] = self.rows()
        return questions.hypothesis(text, self._groups, [str(row["parameter"]) for row in rows if not row["site"]])

    def effects(self, by: str | Sequence[str] = (), **at: object) -> PredictionFrame:
        """Returns the mean of the response at chosen values of columns, as R's emmeans does with `regrid = "response"`.

        Parameters
        ----------
        by : columns of levels, all of whose levels are asked for
        **at : column -> its values. Of other columns numbers are at the centre of the job's rows, and over levels is averaged,
            each of which counts alike: over means of the response, where emmeans by itself averages predictors. Of an
            offset `log(days)` give `days`; effects of groups and clients are those of new ones

        Returns
        -------
        a row for each combination: its values, `mean`, `sd` and 95 % interval (`q025`, `q975`); of a response of levels a row for
        each level

        Raises
        ------
        JobError
            A name is no column of the model, a value is lacking, or the method's predictions have no draws.

        Examples
        --------
        >>> import fedkern
        >>> rows = {"x": [1.0, 2.0, 4.0, 3.0], "y": [2.0, 4.1, 8.2, 5.9]}
        >>> result = fedkern.fit("y ~ x", {"north": rows})
        >>> [round(float(mean)) for mean in result.effects(x=[1, 4])["mean"]]
        [2, 8]
        """
        frame: PredictionFrame = to_frame(self._effects(by, at))
        return frame

    def _effects(self, by: str | Sequence[str], at: Mapping[str, object]) -> Rows[Any]:
        from . import questions

        encoding = Encoding.from_dict(self.summary["encoding"])
        cells, rows = questions.grid(encoding, at, [by] if isinstance(by, str) else by)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return Rows(questions.effects(cells, self.prediction(columns)))

    def __repr__(self) -> str:
        """Returns the model, rows and clients, priors, whether it has converged, the clearest rows of the table, and notes."""
        return "\n".join(map(printable, self._lines()))

    def _lines(self, notes: str = ".notes", table: str = ".table()") -> list[str]:
        """Returns what `print` and the terminal show.

        Parameters
        ----------
        notes, table : where the reader finds all notes, and all rows of the table
        """
        if "describe" in self.summary:
            lines = [*self._head(), *align_columns(described.table_one(self.summary["describe"]))]
            return [*lines, *head.notes(self.notes, shown.PRINTED, notes)]
        rows, count = self._shown()
        word, ratios = self._ratios()
        table_lines = shown.table_lines(rows, ratios, word) if rows else []
        lines = [*head.lines(self.summary, self.job), *table_lines]
        if len(rows) < count:
            lines.append(f"({len(rows)} of {count} rows: {table})")
        return [*lines, *head.notes(self.notes, shown.PRINTED, notes)]

    def _head(self) -> list[str]:
        """Returns the lines above a description, with the verdict only where something has failed."""
        lines = [*head.lines(self.summary, self.job)]
        return lines[:-1] if self.converged is True else lines

    def _shown(self) -> tuple[Rows[Any], int]:
        """Returns the rows that are shown, and how many there are; without numbers where chains disagree, none is."""
        rows: Rows[Any] = self.rows(levels=False)
        estimated = [row for row in rows if not math.isnan(plain.real(row["mean"])) or shown.not_estimated(self.summary, row)]
        return Rows(shown.choose(estimated, self.summary)), len(rows)

    def _ratios(self) -> tuple[str, dict[tuple[str, str], list[float]]]:
        """Returns what the ratio of a slope is called, and parameter and site -> it with its 95 % interval; empty without one."""
        if not (name := table.ratio_of(self._family)):
            return "", {}
        rows: Rows[Any] = self.rows(exp=True)
        each = {(row["parameter"], row["site"]): [row[name], row["q025"], row["q975"]] for row in rows}
        return name.replace("_", " "), {key: ends for key, ends in each.items() if not math.isnan(ends[0])}

    def _repr_html_(self) -> str:
        """Returns the same, for notebooks."""
        if "describe" in self.summary:
            first, *body = described.table_one(self.summary["describe"])
            notes = head.notes(self.notes, shown.PRINTED, ".notes")
            verdict = page.piece("notebook", *_first([*reversed(self._head())]))
            return verdict + page.table(first, body) + (page.piece("bullets", notes) if notes else "")
        rows, count = self._shown()
        word, ratios = self._ratios()
        text = page.piece("notebook", *_first([*head.lines(self.summary, self.job)]))
        if rows:
            cells, columns = [], ["", "mean", "sd", "2.5 %", "97.5 %"]
            if ratios:
                columns.append(f"{word} (95 %)")
            for row in rows:
                interval = {key: row[key] for key in shown.INTERVAL}
                name = (row["parameter"], row["site"])
                numbers = [shown.NOT_ESTIMATED] if shown.not_estimated(self.summary, row) else page.numbers_of(interval)
                cells.append(["@".join(filter(None, name)), *numbers])
                if name in ratios:
                    ratio = page.numbers_of(dict(zip(("ratio", "q025", "q975"), ratios[name])))
                    cells[-1].append("{} ({}, {})".format(*ratio))
                elif ratios:
                    cells[-1].append("")
            text += page.table(columns, cells)
        if len(rows) < count:
            text += page.paragraph(f"{len(rows)} of {count} rows: .table()", "")
        notes = head.notes(self.notes, shown.PRINTED, ".notes")
        bullets = page.piece("bullets", notes) if notes else ""
        return text + bullets


def _elpd_difference(mine: Record | None, theirs: Record | None) -> dict[str, float]:
    """Returns the difference of two sums of leave-one-out densities, with two digits of its Monte Carlo error."""
    if not mine or not theirs:
        return {}
    difference = plain.real(mine["elpd"]) - plain.real(theirs["elpd"])
    error = loo.error_of_difference(mine, theirs)
    if not (math.isfinite(error) and error > 0):
        return {"elpd_difference": difference, "elpd_error": error}
    digits = 1 - math.floor(math.log10(error))
    return {"elpd_difference": round(difference, digits), "elpd_error": round(error, digits)}


def _other_times(*summaries: plain.Record) -> str:
    """Says why the evidence of two results of survival times cannot be compared; "" where it can."""
    hazards = [summary.get("hazards") for summary in summaries]
    if None not in hazards and "cox" not in hazards:
        events, times, exact = (
            [summary.get(name) for summary in summaries] for name in ("events", "time_per_event", "exact_events")
        )
        if exact[0] != exact[1]:
            return (
                f"the two results are of other times: {exact[0]} and {exact[1]} events have a time, and all others an interval; "
                "give both the same data.time and data.time_upper"
            )
        if None not in times and (events[0], times[0]) != (events[1], times[1]):
            seen = " and ".join(f"{plain.real(time):g} for each of {count} events" for time, count in zip(times, events))
            return (
                f"the two results are of other times: rows were seen for {seen}; give both the same rows, data.time in one unit, "
                "data.event, data.entry and data.time_upper"
            )
    if "cox" not in hazards:
        return ""
    if hazards[0] != hazards[1]:
        return "a partial likelihood is of who has an event, and not of when: compare its evidence with that of another cox job"
    events, nulls = ([summary.get(name) for summary in summaries] for name in ("events", "null_log_likelihood"))
    if events[0] != events[1] or None in nulls or nulls[0] != nulls[1]:
        return (
            "the two results are of other partial likelihoods: rows, data.time, data.event, data.entry, data.strata, data.weight "
            "and data.offset decide who is at risk at whose event, and evidence compares models of the same events among the "
            "same rows; change nothing but covariates and priors between two cox jobs, and give both the rows with all covariates"
        )
    return ""


def _unknown(*results: Result) -> str:
    """Why nothing tells whether two results are of the same response; "" where something does."""
    data, model = ([result.job.get(section) or {} for result in results] for section in ("data", "model"))
    if any(section.get("kind") == "own" for section in model):
        return "of models of holders' own packages fedkern knows neither rows nor units"
    hazards = [result.summary.get("hazards") for result in results]
    if None not in hazards and "cox" not in hazards:
        if any("time_per_event" not in result.summary for result in results):
            return "where model.intercept_centre is given clients tell no unit of time, so that days could be held against months"
        if (data[0].get("time_upper") is None) != (data[1].get("time_upper") is None):
            return (
                "one has data.time_upper and the other has not, and the probability of an interval is no density of a time: give "
                "both the same columns of times"
            )
    records = [FAMILIES.get(str(result.summary["encoding"].get("family"))) for result in results]
    offsets = [section.get("offset") for section in data]
    if any(record is not None and record.measured for record in records) and offsets[0] != offsets[1]:
        return "a gaussian or student response is told less its offset, and the two jobs have other offsets"
    return ""


def _kind(summary: plain.Record) -> str:
    """Returns the kind of response whose likelihood a result has: "times", "cox" (their order), or "" for a number."""
    hazards = summary.get("hazards", "")
    return "times" if hazards and hazards != "cox" else str(hazards)


def _unlike(*summaries: plain.Record) -> str:
    """Says which number shows that two results have other responses; "" where none does."""
    responses = [summary.get("predictive", {}).get("response") for summary in summaries]
    records = [FAMILIES.get(str(summary["encoding"].get("family"))) for summary in summaries]
    measured = [record is not None and record.measured for record in records]
    offsets = [summary["encoding"]["offset"] if less else None for summary, less in zip(summaries, measured)]
    if None in responses or offsets[0] != offsets[1]:
        return ""  # a gaussian or student response is less its offset
    (mine, theirs), name = responses, summaries[0]["encoding"]["response"]
    if "levels" in mine or "levels" in theirs:
        numbers = [
            [count for count in response.get("levels", {}).values() if count] for response in responses
        ]  # by whatever names
        same = numbers[0] == numbers[1]
        return "" if same else f"{name!r} has other numbers of rows of its levels in one than in the other"
    near = SAME * (
        max(plain.real(response["sd"]) for response in responses)
        + max(abs(plain.real(response["mean"])) for response in responses)
    )
    for key, words in {"mean": "mean", "sd": "standard deviation"}.items():
        values = [plain.real(response[key]) for response in responses]
        if abs(values[0] - values[1]) > near:
            return f"{name!r} has a {words} of {values[0]:.9g} in one and of {values[1]:.9g} in the other"
    if mine.get("zeros") != theirs.get("zeros") and not any(measured):
        return f"{name!r} has {mine['zeros']:,} zeros in one and {theirs['zeros']:,} in the other"
    return ""


def _first(lines: list[str]) -> tuple[str, list[str]]:
    """Returns the last line, which is the verdict, and those before it."""
    return lines[-1], lines[:-1]
