"""Counts in areas whose covariates two clients hold: simulated areas, and homicides in US counties.

Slopes vary by group (docs/spec/vertical.md, section 9.2). The augmented-variable model with amortised auxiliary variables,
for the published rho = 1 and 2 and for a rho that is small beside the noise of the counts; beside it a long NUTS run of the
true model. On simulated areas of five levels of remoteness, and on homicides in US counties with states as groups. Slopes are
in their centred form: the counts say so much of them that in the other form a Gaussian posterior of sigma would be too narrow
by far (of the areas: to 2 to 5 % of its sd, against 65 to 70 %).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

import numpy as np

from fedkern.data.columns import Columns
from fedkern.results.verdict import MARK

from . import county_homicide, vertical_examples
from .common import UNKNOWN, Value, append, stored, table, verdicts
from .vertical import AS_PUBLISHED, ran, references

ROUNDS, FAST = 15_000, 3_000
SEED = 1  # of the data, of which the references of NUTS are
RHOS = {"areas": (2.0, 1.0, 0.1, 0.02), "counties": (1.0, 0.3, 0.1, 0.03)}
TITLES = {"areas": "Simulated areas, five levels of remoteness", "counties": "Homicides in 3,085 US counties, 49 states"}
RATE = 0.005
NARROW = 0.9  # of the true sds: auxiliary variables only widen a posterior, so that slopes below it are not finished


@dataclass(frozen=True)
class Cell:
    """One job."""

    data: str
    rho: float

    @property
    def key(self) -> str:
        return f"{self.data}, rho = {self.rho:g}"


def cells(fast: bool) -> list[Cell]:
    """All fits; `fast`: without the counties."""
    return [Cell(name, rho) for name, rhos in RHOS.items() if not (fast and name == "counties") for rho in rhos]


@cache
def example(name: str) -> Columns:
    """The data."""
    return vertical_examples.areas(SEED) if name == "areas" else county_homicide.read()


def information(name: str, rho: float) -> float:
    """The share of a row's information that auxiliary variables of sd rho leave (section 11)."""
    rows = example(name)
    noise = 1 / float(rows.y.mean())
    return noise / (noise + len(rows.X) * rho**2)


Moments = Mapping[str, Sequence[Sequence[float]] | Sequence[float] | float]  # "mean" and "sd" of some coefficients


class Line(TypedDict):
    """What is kept of a job: mean and sd ("mean", "sd") of b, of mu and sigma of all covariates, and of their slopes by level."""

    key: str
    rounds: int
    verdict: str
    intercept: dict[str, float]
    mu: dict[str, list[float]]
    sigma: dict[str, list[float]]
    beta: dict[str, list[list[float]]]


def run_cell(cell: Cell, rounds: int, seed: int = 1) -> Line:
    """One job."""
    rows = example(cell.data)
    job = ran(
        rows,
        seed,
        rounds,
        model={"kind": "multilevel", "family": "poisson", "rho": cell.rho},
        algorithm={**AS_PUBLISHED, "learning_rate": RATE, "cool_down": 0.7, "average": "none"},
    )
    columns = [(client, name) for client, names in zip(job.clients, rows.names) for name in names]

    def of_columns(kind: str, level: str = "") -> dict[str, list[float]]:
        return {what: [round(client[f"{kind}[{name}{level}]"][what], 5) for client, name in columns] for what in ("mean", "sd")}

    slopes = [of_columns("theta", f",{level}") for level in rows.groups]
    return {
        "key": cell.key,
        "rounds": rounds,
        "verdict": job.verdict,
        "intercept": {what: job.server["intercept"][what] for what in ("mean", "sd")},
        "mu": of_columns("mu"),
        "sigma": of_columns("sigma"),
        "beta": {what: [of_level[what] for of_level in slopes] for what in ("mean", "sd")},
    }


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs all fits that `out` does not hold yet (an interrupted reproduction goes on), and writes the table and the figure.

    Parameters
    ----------
    out : folder for results.jsonl (results-fast.jsonl), table.md, slopes.png
    fast : the simulated areas alone, fewer rounds
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    if not fast:
        county_homicide.read()  # a missing folder is said before anything is started
    path, rounds = (out / "results-fast.jsonl", FAST) if fast else (out / "results.jsonl", ROUNDS)
    done = stored(path)
    for cell in cells(fast):
        if cell.key not in done:
            append(path, run_cell(cell, rounds, seed))
            print(cell.key, flush=True)
    done = stored(path)
    (out / "table.md").write_text(_text(done, cells(fast)), encoding="utf-8")
    _figure(done, cells(fast), out / "slopes.png")
    return out / "table.md"


def _against(moments: Moments, exact: Moments) -> tuple[float, float, float]:
    """Root mean square error of the means; the same in standard deviations of NUTS; mean ratio of the sds."""
    mean, sd = (np.array(moments[key]).ravel() for key in ("mean", "sd"))
    other, width = (np.array(exact[key]).ravel() for key in ("mean", "sd"))
    rms = [float(np.sqrt(np.mean(x**2))) for x in (mean - other, (mean - other) / width)]
    return rms[0], rms[1], float(np.mean(sd / width))


def _text(done: Mapping[str, Line], wanted: Sequence[Cell]) -> str:
    heads = ["rho", "information kept"]
    heads += [f"{name}: {what}" for name in ("slopes", "mu", "sigma") for what in ("RMS error", "in NUTS sds", "sd ratio")]
    heads += ["b", "b, NUTS"]
    parts = [verdicts({cell.key: done[cell.key].get("verdict", UNKNOWN) for cell in wanted})]
    for name in dict.fromkeys(cell.data for cell in wanted):
        exact, rows = references()[name], list[list[Value]]()
        for cell in (c for c in wanted if c.data == name):
            line = done[cell.key]
            pairs = ((line["beta"], exact["beta"]), (line["mu"], exact["mu"]), (line["sigma"], exact["sigma"]))
            numbers = [x for moments, true in pairs for x in _against(moments, true)]
            intercepts = (_pair(line["intercept"]), _pair(exact["intercept"]))
            unfinished = MARK if numbers[2] < NARROW else ""
            rows.append([f"{cell.rho:g}{unfinished}", f"{information(name, cell.rho):.1%}", *numbers, *intercepts])
        parts += [f"## {TITLES[name]}\n", table(heads, rows)]
    note = (
        "Against a long NUTS run of the true model (all columns in one place). Information kept: sigma_link^2 / (sigma_link^2 + "
        "J rho^2), with sigma_link^2 one over the mean count. Augmented-variable model, amortised auxiliary variables told the "
        f"average of the server's messages; {next(iter(done.values()))['rounds']:,} rounds of Adam at {RATE:g}, falling to 0. "
        "The augmented model's own posterior is wider than the true one by the square root of the information lost; where the "
        "table's sds are not, the amortised family has kept z near the clients' parts instead of reaching it.\n"
        f"\n{MARK} Slopes whose sds are below {NARROW:g} of the true model's: these rounds have not reached the optimum, and "
        "the row is no result of the method.\n"
    )
    real = (
        "\nThe counties' counts vary more than those of a Poisson model of these covariates (Pearson's chi-square is 2.3 a "
        "county under the NUTS means). Auxiliary variables take that up as a random effect of every county, so that with growing "
        "rho the slopes are those of another model.\n"
    )
    return "\n".join([*parts, note]) + (real if any(cell.data == "counties" for cell in wanted) else "")


def _pair(intercept: Moments) -> str:
    return f"{float(np.ravel(intercept['mean'])[0]):.4f} ± {float(np.ravel(intercept['sd'])[0]):.4f}"


def _figure(done: Mapping[str, Line], wanted: Sequence[Cell], path: Path) -> None:
    """Slopes of each group, federated against NUTS, with 95 % intervals; a panel for each rho."""
    from fedkern.results.plots import BLUE, INK, MUTED, canvas, tidy

    names = list(dict.fromkeys(cell.data for cell in wanted))
    most = max(sum(c.data == name for c in wanted) for name in names)
    figure = canvas(2.7 * most, 3.0 * len(names))
    panels = figure.subplots(len(names), most, squeeze=False)
    for axes in panels.ravel():
        axes.set_axis_off()
    for row, name in zip(panels, names):
        exact = references()[name]["beta"]
        at, width = (np.array(exact[key]).ravel() for key in ("mean", "sd"))
        for axes, cell in zip(row, (c for c in wanted if c.data == name)):
            mean, sd = (np.array(done[cell.key]["beta"][key]).ravel() for key in ("mean", "sd"))
            axes.set_axis_on()
            low, high = min(at.min(), -0.1), max(at.max(), 0.1)
            axes.plot([low, high], [low, high], color=MUTED, linewidth=0.8, linestyle=":")
            axes.errorbar(at, mean, yerr=1.96 * sd, xerr=1.96 * width, fmt="o", color=BLUE, markersize=2.5, linewidth=0.7)
            axes.set_title(f"{name}, rho = {cell.rho:g}", loc="left", fontsize=9, color=INK)
            axes.set_xlabel("slope, NUTS", fontsize=8)
            tidy(axes, "y")
        row[0].set_ylabel("slope, federated", fontsize=8)
    figure.savefig(path, dpi=150)
