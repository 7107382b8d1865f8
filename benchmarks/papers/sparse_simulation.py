"""Sparse regression with a known truth: power and false discoveries against clients, differences and L.

Every data set is one whole federated run (docs/spec/sparse.md, section 16). Covariates and errors are standard normal, so that
nothing is scaled; each client's own coefficients differ from the common effects as the design says.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from fedkern.api import run as run_job
from fedkern.results import meta, selection
from fedkern.results.plain import real

from .common import Array, Value, table
from .sparse import job, write_sites

ROUNDS, FAST = 1000, 300
LEVEL = 0.1
MIXED = (1.0, -0.7, 0.5, 0.3)


@dataclass(frozen=True)
class Design:
    """One setting. `spread`: standard deviation of every client's coefficients about the common ones; `apart`: two at client 1
    are off by 0.6, one of an effect and one of none; `sweeps`: L, a client's sweeps in a round.
    """

    study: str
    clients: int = 4
    columns: int = 20
    rows: int = 60
    effects: tuple[float, ...] = MIXED
    spread: float = 0.0
    apart: bool = False
    sweeps: int = 1

    @property
    def theta(self) -> Array:
        """(p,) common coefficients."""
        return np.concatenate([self.effects, np.zeros(self.columns - len(self.effects))])


@dataclass(frozen=True)
class Outcome:
    """What one data set gave. RMSEs are of the clients' coefficients; `shares`: P(abs d > 0.2) of the two that are off, and the
    mean of all others.
    """

    design: Design
    seed: int
    pips: list[float]
    members: list[int]
    rmse: float
    rmse_site: float
    rmse_pooled: float
    coverage: float
    ess: float
    rhat: float
    shares: list[float] = field(default_factory=list)


def designs() -> list[tuple[Design, int]]:
    """All settings, each with its number of data sets."""
    power = [(Design("five effects of 0.5", columns=50, rows=150, effects=(0.5,) * 5), 200)]
    apart = [(Design("one client off", rows=n, apart=True), 20) for n in (30, 60, 120)]
    clients = [(Design("clients", clients=m, spread=0.1), 10) for m in (1, 2, 4, 8, 16)]
    spread = [(Design("differences", spread=s), 10) for s in (0.0, 0.2, 0.4)]
    sweeps = [(Design("local sweeps", spread=0.1, sweeps=n), 10) for n in (1, 5, 20)]
    return power + apart + clients + spread + sweeps


def data_set(design: Design, seed: int) -> tuple[list[tuple[Array, Array]], Array]:
    """(X, y) of each client, and their coefficients (M, p)."""
    random = np.random.default_rng([seed, design.clients, design.columns, design.rows, round(100 * design.spread)])
    p = design.columns
    thetas = design.theta + design.spread * random.normal(size=(design.clients, p))
    if design.apart:
        thetas[0, [0, p - 1]] += (-0.6, 0.6)
    rows = []
    for theta in thetas:
        x = random.normal(size=(design.rows, p))
        rows.append((x, x @ theta + random.normal(size=design.rows)))
    return rows, thetas


def run_one(task: tuple[Design, int, int]) -> Outcome:
    """One data set: the federated run, each client's least squares, and those of all rows together."""
    design, seed, rounds = task
    rows, thetas = data_set(design, seed)
    names = [f"x{j + 1}" for j in range(design.columns)]
    sites = {f"site-{k + 1:02}": dict(zip(names, x.T)) | {"y": y} for k, (x, y) in enumerate(rows)}
    with tempfile.TemporaryDirectory() as folder:
        data = {"clients": write_sites(Path(folder), sites), "response": "y"}
        algorithm = {"share_local": True, "local_sweeps": design.sweeps}
        asked = job("regression", data, rounds, model={"scale": "none"}, algorithm=algorithm, output={"fdr": LEVEL})
        summary = run_job(asked).summary
    parameters = summary["parameters"]
    pips = [real(parameters[f"theta[{name}]"]["pip"]) for name in names]
    local = [[parameters[f"theta[{name}]@{site}"] for name in names] for site in sites]
    keys = ("mean", "q05", "q95", "p_deviates")
    mean, low, high, off = (np.array([[real(row[key]) for row in those] for those in local]) for key in keys)
    alone = np.array([meta.least_squares(x, y)[0] for x, y in rows])
    together, _ = meta.least_squares(np.vstack([x for x, _ in rows]), np.concatenate([y - y.mean() for _, y in rows]))
    shares: list[float] = []
    if design.apart:
        special = np.zeros(thetas.shape, dtype=bool)
        special[0, [0, -1]] = True
        shares = [*off[special].tolist(), float(off[~special].mean())]
    mixed = summary["sampler"]
    return Outcome(
        design,
        seed,
        pips,
        np.flatnonzero(selection.fdr_set(pips, LEVEL)).tolist(),
        _rms(mean - thetas),
        _rms(alone - thetas),
        _rms(together - thetas),
        float(np.mean((low <= thetas) & (thetas <= high))),
        real(mixed.get("ess", np.nan)),
        real(mixed.get("rhat", np.nan)),
        shares,
    )


def _rms(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs all data sets that `out` does not hold yet (an interrupted study goes on), and writes the table and the figure.

    Parameters
    ----------
    out : folder for results.jsonl, table.md, power.png
    fast : one data set of each setting, fewer rounds
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    rounds = FAST if fast else ROUNDS
    path = out / ("results-fast.jsonl" if fast else "results.jsonl")
    wanted = [(design, k, rounds) for design, n in designs() for k in range(seed - 1, seed - 1 + (1 if fast else n))]
    done = {(o.design, o.seed): o for o in _read(path)}
    todo = [task for task in wanted if task[:2] not in done]
    workers = max(1, min(len(os.sched_getaffinity(0)), len(todo)))
    with path.open("a") as file, ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        for outcome in pool.map(run_one, todo):
            done[outcome.design, outcome.seed] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            d = outcome.design
            print(f"{d.study}: {d.clients} clients of {d.rows} rows, p {d.columns}, data set {outcome.seed}", flush=True)
    outcomes = [done[task[:2]] for task in wanted]
    (out / "table.md").write_text(_text(outcomes), encoding="utf-8")
    _figure(outcomes, out / "power.png")
    return out / "table.md"


def _read(path: Path) -> Iterator[Outcome]:
    if path.exists():
        for line in path.read_text().splitlines():
            plain = json.loads(line)
            design = plain.pop("design")
            yield Outcome(Design(**design | {"effects": tuple(design["effects"])}), **plain)


@dataclass(frozen=True)
class Setting:
    """Summary of one setting's data sets: `power` and `pip` by effect; `detected`: share of the effects in the FDR set."""

    design: Design
    n: int
    power: Array
    pip: Array
    nulls: Array
    false: float
    detected: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Setting:
        """From data sets of one design."""
        design = outcomes[0].design
        k = len(design.effects)
        pips = np.array([o.pips for o in outcomes])
        false = float(np.mean([sum(j >= k for j in o.members) / max(len(o.members), 1) for o in outcomes]))
        detected = float(np.mean([sum(j < k for j in o.members) / k for o in outcomes]))
        power, pip = (pips[:, :k] > 0.5).mean(axis=0), pips[:, :k].mean(axis=0)
        return cls(design, len(outcomes), power, pip, pips[:, k:], false, detected)


def settings(outcomes: Sequence[Outcome]) -> list[tuple[Setting, list[Outcome]]]:
    """Outcomes by design."""
    grouped = [(design, [o for o in outcomes if o.design == design]) for design in dict.fromkeys(o.design for o in outcomes)]
    return [(Setting.of(those), those) for _, those in grouped]


def _text(outcomes: Sequence[Outcome]) -> str:
    rows: list[list[Value]] = []
    errors: list[list[Value]] = []
    for s, those in settings(outcomes):
        d = s.design
        setting = f"{d.study}: {d.clients} x {d.rows}, p {d.columns}" + (f", spread {d.spread:g}" if d.spread else "")
        setting += f", L {d.sweeps}" if d.study == "local sweeps" else ""
        each = {e: np.mean([p for effect, p in zip(d.effects, s.power) if effect == e]) for e in d.effects}
        by_effect = ", ".join(f"{effect:g}: {power:.2f}" for effect, power in each.items())
        overall = float(s.power.mean())
        tail = [float(np.quantile(s.nulls, q)) for q in (0.95, 0.99)]
        rows.append([setting, s.n, overall, by_effect, *tail, s.detected, s.false])
        means = [float(np.mean([getattr(o, name) for o in those])) for name in ("rmse", "rmse_site", "rmse_pooled", "coverage")]
        shares = ", ".join(f"{x:.2f}" for x in np.mean([o.shares for o in those], axis=0)) if d.apart else ""
        mixed = [float(np.median([o.ess for o in those])), float(np.max([o.rhat for o in those]))]
        errors.append([setting, *means, shares, *mixed])
    heads = ["setting", "data sets", "power (PIP > 0.5)", "by effect", "null PIPs, 95 %", "99 %"]
    heads += [f"found at FDR {LEVEL:g}", "false share"]
    more = ["setting", "RMSE", "each site alone", "pooled rows", "coverage of 90 %", "P(abs d > 0.2): two that are off, others"]
    more += ["ESS of the slowest, median", "R-hat, largest"]
    note = (
        "\nRMSE: of the clients' own coefficients, by the federated posterior mean, by each site's least squares, and by those "
        "of all rows together. Coverage: of the clients' own coefficients by their 90 % intervals. With L local sweeps a round, "
        "the number of rounds is the same.\n"
    )
    return "\n".join(["## Selection\n", table(heads, rows), "## Estimates\n", table(more, errors), note])


def _figure(outcomes: Sequence[Outcome], path: Path) -> None:
    """Mean PIP of each effect against the number of clients, their spread, and L."""
    from fedkern.results.plots import BLUE, INK, MUTED, ORANGE, canvas, tidy

    of_studies = [s for s, _ in settings(outcomes)]
    panels: tuple[tuple[str, str, Callable[[Design], float]], ...] = (
        ("clients", "clients of 60 rows (spread 0.1)", lambda d: d.clients),
        ("differences", "spread between 4 clients", lambda d: d.spread),
        ("local sweeps", "local sweeps in a round, L", lambda d: d.sweeps),
    )
    figure = canvas(10.0, 3.2)
    for axes, (study, label, x) in zip(figure.subplots(1, 3, sharey=True), panels):
        of_study = sorted((s for s in of_studies if s.design.study == study), key=lambda s: float(x(s.design)))
        at = [x(s.design) for s in of_study]
        for j, (effect, colour) in enumerate(zip(MIXED, (INK, BLUE, "#3aa6b9", ORANGE))):
            pips = [s.pip[j] for s in of_study]
            axes.plot(at, pips, "o-", color=colour, linewidth=1.5, markersize=4, label=f"effect {effect:g}")
        nulls = [float(np.quantile(s.nulls, 0.95)) for s in of_study]
        axes.plot(at, nulls, "o--", color=MUTED, linewidth=1.2, markersize=3, label="nulls, 95 %")
        if study != "differences":
            axes.set_xscale("log", base=2)
            axes.set_xticks(at, [str(value) for value in at])
        axes.set_xlabel(label)
        axes.set_ylim(-0.02, 1.02)
        tidy(axes, "y")
    figure.axes[0].set_ylabel("mean PIP", fontsize=8.5, color=MUTED)
    figure.axes[-1].legend(frameon=False, fontsize=7.5, loc="center right")
    figure.savefig(path, dpi=150)
