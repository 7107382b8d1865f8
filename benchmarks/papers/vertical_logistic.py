"""Columns of a logistic regression split over 2 and 10 clients: bounds, and posteriors against NUTS.

Simulated rows with 20 columns (docs/spec/vertical.md, section 9.1). The augmented-variable (AV) and the power-likelihood
(PL) model with rho = 0.5, 1, 2, each fitted with mean-field and with amortised auxiliary variables, and the true model; beside
them long NUTS runs of the same models. Bounds of AV, PL and the true model bound different numbers (section 2), so what counts
is how far the posterior of the coefficients is from that of the true model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from fedkern.data.columns import Columns

from . import vertical_examples as data
from .common import UNKNOWN, Array, Json, Value, append, stored, table, verdicts
from .vertical import AS_PUBLISHED, ran, references

CLIENTS, RHOS = (2, 10), (0.5, 1.0, 2.0)
ROUNDS, FAST, RATE = 10_000, 2_000, 0.01
MODELS = {"AV": "augmented", "PL": "power"}
FAMILIES = ("mean-field", "amortised")
SEED = 1  # of the data, of which the references of NUTS are
DRAWN = 3  # the coefficient whose density is drawn, as in the reference
POINTS = 200  # of a curve


@dataclass(frozen=True)
class Cell:
    """One job; the true model is PL of one client, whose auxiliary variables nothing depends on."""

    model: str
    clients: int
    rho: float = 1.0
    family: str = "amortised"

    @property
    def key(self) -> str:
        if self.model == "true":
            return "true model"
        return f"{self.model}, J = {self.clients}, rho = {self.rho:g}, {self.family}"

    @property
    def reference(self) -> str:
        """The NUTS run of the same model."""
        return "logistic" if self.model == "true" else self.key.rsplit(", ", 1)[0]


def cells(fast: bool) -> list[Cell]:
    """All fits; `fast`: two clients."""
    fits = [Cell("true", 1)]
    for clients in CLIENTS[:1] if fast else CLIENTS:
        fits += [Cell(model, clients, rho, family) for rho in RHOS for model in MODELS for family in FAMILIES]
    return fits


@cache
def example(clients: int) -> Columns:
    """The data."""
    return data.logistic(clients, SEED)


class Line(TypedDict):
    """What is kept of a job: the ELBO along the way; mean and sd of every coefficient, and of the intercept."""

    key: str
    rounds: int
    verdict: str
    elbo: list[float]
    mean: list[float]
    sd: list[float]
    intercept: list[float]


def run_cell(cell: Cell, rounds: int, seed: int = 1) -> Line:
    """One job."""
    rows = example(max(cell.clients, 2))
    if cell.model == "true":
        rows = replace(rows, X=(rows.pooled(),), names=(tuple(name for names in rows.names for name in names),))
    job = ran(
        rows,
        seed,
        rounds,
        model={"kind": "linear", "augmentation": MODELS.get(cell.model, "power"), "rho": cell.rho},
        algorithm={**AS_PUBLISHED, "auxiliary": cell.family, "learning_rate": RATE, "cool_down": 0.5, "average": "none"},
        output={"bound": True, "metrics_every": max(rounds // POINTS, 1)},
    )
    slopes = [client[f"theta[{name}]"] for client, names in zip(job.clients, rows.names) for name in names]
    return {
        "key": cell.key,
        "rounds": rounds,
        "verdict": job.verdict,
        "elbo": [round(bound, 3) for bound in job.bounds],
        "mean": [round(one["mean"], 5) for one in slopes],
        "sd": [round(one["sd"], 5) for one in slopes],
        "intercept": [job.server["intercept"][what] for what in ("mean", "sd")],
    }


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs all fits that `out` does not hold yet (an interrupted reproduction goes on), and writes the table and the figures.

    Parameters
    ----------
    out : folder for results.jsonl (results-fast.jsonl), table.md, elbo.png, density.png
    fast : two clients, fewer rounds
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    path, rounds = (out / "results-fast.jsonl", FAST) if fast else (out / "results.jsonl", ROUNDS)
    done = stored(path)
    for cell in cells(fast):
        if cell.key not in done:
            append(path, run_cell(cell, rounds, seed))
            print(cell.key, flush=True)
    done = stored(path)
    (out / "table.md").write_text(_text(done, cells(fast)), encoding="utf-8")
    _bounds(done, cells(fast), out / "elbo.png")
    _densities(done, cells(fast), out / "density.png")
    return out / "table.md"


def _row(name: str, mean: Sequence[float], sd: Sequence[float], bound: str, same: Json | None) -> list[Value]:
    """Against NUTS of the true model, and of the same model."""
    true = references()["logistic"]["theta"]
    cells: list[Value] = [name, bound]
    for other in (true, same["theta"] if same else None):
        if other is None:
            cells += ["", ""]
            continue
        shift = (np.array(mean) - np.array(other["mean"])) / np.array(other["sd"])
        cells += [float(np.sqrt(np.mean(shift**2))), float(np.mean(np.array(sd) / np.array(other["sd"])))]
    truth = np.array([value for name, value in example(2).truth.items() if name != "intercept"])
    half = 1.959963984540054 * np.array(sd)
    return [
        *cells,
        float(np.sqrt(np.mean((np.array(mean) - truth) ** 2))),
        f"{int((abs(np.array(mean) - truth) < half).sum())}/20",
    ]


def _text(done: Mapping[str, Line], wanted: Sequence[Cell]) -> str:
    heads = [
        "model and method",
        "ELBO",
        "error",
        "sd ratio",
        "error, same model",
        "sd ratio, same model",
        "RMSE, truth",
        "in 95 %",
    ]
    rows, seen = [], set()
    for cell in wanted:
        exact = references().get(cell.reference)
        if exact and cell.reference not in seen:
            seen.add(cell.reference)
            name = "true model" if cell.model == "true" else cell.reference
            rows.append(_row(f"{name}, NUTS", exact["theta"]["mean"], exact["theta"]["sd"], "", None))
        line = done[cell.key]
        tail = line["elbo"][-max(len(line["elbo"]) // 10, 1) :]
        name = "true model, mean-field" if cell.model == "true" else cell.key
        rows.append(_row(name, line["mean"], line["sd"], f"{np.mean(tail):.1f}", exact))
    note = (
        "error: root mean square over the 20 coefficients of (mean - NUTS mean of the true model) / its sd. sd ratio: mean over "
        "coefficients of the sd over that of NUTS. The same against NUTS of the same model shows what the variational family "
        "costs, the first two what the model costs too. RMSE and intervals: against the coefficients that made the data (whose "
        "noise no model has). ELBO: mean over the last tenth of the rounds; those of AV, PL and the true model bound different "
        "numbers (quadrature says the same as the table: for two clients the normaliser of PL is below that of AV, although its "
        f"posterior is nearer to the true one). {next(iter(done.values()))['rounds']:,} rounds of Adam at {RATE:g}, falling to "
        "zero over the second half.\n"
    )
    said = verdicts({cell.key: done[cell.key].get("verdict", UNKNOWN) for cell in wanted})
    return "\n".join([said, "## Coefficients against NUTS\n", table(heads, rows), note])


def _bounds(done: Mapping[str, Line], wanted: Sequence[Cell], path: Path) -> None:
    """ELBO against rounds: a column for each model, a row for each number of clients."""
    from fedkern.results.plots import BLUE, INK, ORANGE, canvas, tidy

    numbers = sorted({c.clients for c in wanted if c.model != "true"})
    figure = canvas(9.5, 3.2 * len(numbers))
    panels = figure.subplots(len(numbers), 2, squeeze=False, sharey="row")
    true = done["true model"]
    lowest = {n: min(done[c.key]["elbo"][-1] for c in wanted if c.clients == n) for n in numbers}
    for axes, (clients, model) in zip(panels.ravel(), ((n, m) for n in numbers for m in MODELS)):
        axes.plot(*_curve(true), color=INK, linewidth=1.4, label="true model, mean-field")
        for rho, colour in zip(RHOS, (BLUE, "#3aa6b9", ORANGE)):
            for family, style in zip(FAMILIES, ("--", "-")):
                line = done[Cell(model, clients, rho, family).key]
                axes.plot(*_curve(line), style, color=colour, linewidth=1.3, label=f"rho = {rho:g}, {family}")
        axes.set_title(f"{model}, {clients} clients", loc="left", fontsize=9.5, color=INK)
        axes.set_xlabel("rounds")
        axes.set_ylim(lowest[clients] - 60, true["elbo"][-1] + 40)
        tidy(axes, "y")
    panels[0, 0].set_ylabel("ELBO", fontsize=8.5)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), frameon=False, fontsize=7.5, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=150)


def _curve(line: Line) -> tuple[Array, Array]:
    elbo = np.array(line["elbo"])
    return np.linspace(line["rounds"] / len(elbo), line["rounds"], len(elbo)), elbo


def _densities(done: Mapping[str, Line], wanted: Sequence[Cell], path: Path) -> None:
    """Marginal densities of one coefficient: NUTS above, variational below; a column for each rho, a pair of rows for each J."""
    from fedkern.results.plots import BLUE, INK, MUTED, ORANGE, canvas, tidy

    numbers = sorted({c.clients for c in wanted if c.model != "true"})
    figure = canvas(9.5, 4.0 * len(numbers))
    panels = figure.subplots(2 * len(numbers), len(RHOS), squeeze=False, sharex=True)
    names = list(example(2).truth)[1:]
    truth = example(2).truth[names[DRAWN]]
    nuts = references()
    for i, clients in enumerate(numbers):
        for j, rho in enumerate(RHOS):
            above, below = panels[2 * i, j], panels[2 * i + 1, j]
            _known(above, nuts, "logistic", INK, "true model, NUTS")
            _known(below, nuts, "logistic", INK, "true model, NUTS")
            for model, colour in zip(MODELS, (ORANGE, BLUE)):
                _known(above, nuts, f"{model}, J = {clients}, rho = {rho:g}", colour, f"{model}, NUTS")
                for family, style in zip(FAMILIES, ("--", "-")):
                    line = done[Cell(model, clients, rho, family).key]
                    at = line["mean"][DRAWN] + line["sd"][DRAWN] * np.linspace(-4, 4, 81)
                    height = np.exp(-0.5 * np.linspace(-4, 4, 81) ** 2) / (line["sd"][DRAWN] * np.sqrt(2 * np.pi))
                    below.plot(at, height, style, color=colour, linewidth=1.3, label=f"{model}, {family}")
            for axes in (above, below):
                axes.axvline(truth, color=MUTED, linewidth=0.9, linestyle=":")
                axes.set_yticks([])
                tidy(axes, "x")
            above.set_title(f"{clients} clients, rho = {rho:g}", loc="left", fontsize=9.5, color=INK)
    for axes in (panels[0, 0], panels[1, 0]):
        axes.legend(frameon=False, fontsize=6.5, loc="upper right")
    for axes in panels[-1]:
        axes.set_xlabel(f"{names[DRAWN]} (dotted: the truth)", fontsize=8.5)
    figure.savefig(path, dpi=150)


def _known(axes: Any, nuts: Json, name: str, colour: str, label: str) -> None:
    if "drawn" in nuts.get(name, {}):
        axes.plot(nuts[name]["drawn"]["at"], nuts[name]["drawn"]["density"], color=colour, linewidth=1.3, label=label)
