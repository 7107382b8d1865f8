"""DP-PVI on UCI Adult: accuracy, log-likelihood and epsilon on three splits, and the learning curves.

Ten clients, three privacy budgets (docs/spec/pvi.md, section 13). Every cell is one whole job in this process: Poisson
sampling, exact noise from the secure source, the accountant's own limit on the number of steps. Beside accuracy and
log-likelihood the table says how honest the released posterior is: in how many coordinates its central 95 % interval holds the
mean of the non-private optimum, and KL(optimum || released) per coordinate.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedkern.algorithms.pvi.local import exact
from fedkern.api import run as run_job
from fedkern.data.design import Encoding, encode
from fedkern.data.sets import adult, builtin
from fedkern.data.table import Table
from fedkern.methods import parse
from fedkern.methods.pvi.keys import Config
from fedkern.methods.pvi.model import Model
from fedkern.models.expfam import Gaussian, kl
from fedkern.models.glm import Rows, prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.moments import moments_epsilon, moments_max_steps
from fedkern.results.gaussian import Posterior

from .common import UNKNOWN, Json, Tables, verdicts

SPLITS = {"homogeneous": (0.0, 0.0), "A": (0.9, 0.95), "B": (0.7, -3.0)}  # (rho, kappa)
CAPS = (0.5, 0.75, 1.0)
CLIENTS, SEEDS, SIGMA, STEPS = 10, 5, 5.0, 25
POINTS = 120  # of a learning curve

DIMENSION = 216  # numbers that get noise at each step: means and precisions of 108 coefficients


@dataclass(frozen=True)
class Method:
    """Keys of a job's [algorithm], its rounds, the clipping norm (None: not private), and how the caps are accounted for."""

    algorithm: Json
    rounds: int | str
    clip: float | None = None
    accounting: str = ""


DP: Json = {
    "schedule": "sequential",
    "local_steps": STEPS,
    "optimiser": "adagrad",
    "learning_rate": 0.5,
    "damping": 0.1,
    "damping_form": "moment",
    "average": "half",
}
GLOBAL: Json = {
    "variant": "global-vi",
    "optimiser": "adagrad",
    "learning_rate": 0.05,
    "local_steps": 1,
    "damping": 1.0,
    "damping_form": "natural",
    "average": "none",
}
METHODS = {
    "PVI": Method({"optimiser": "exact"}, 25),
    "PVI, Adagrad": Method(DP | {"learning_rate": 2.0, "local_steps": 20}, 100),
    "global VI": Method(GLOBAL, 1000),
    "DP-PVI": Method(DP, "budget", 2.0, "pld"),
    "DP-PVI, paper's accounting": Method(DP, "budget", 2.0, "moments"),
    "DP-PVI, poster's settings": Method(DP | {"schedule": "random", "average": "none"}, "budget", 1.5, "rdp"),
    "DP global VI": Method(GLOBAL, 5000, 2.0, "pld"),
}


@dataclass(frozen=True)
class Cell:
    """One run: a split, a method, a cap on epsilon (None: not private) and a seed."""

    split: str
    method: str
    cap: float | None
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What one run gave. Epsilons are the largest over clients; `curve` holds (client updates, accuracy, log-likelihood)."""

    cell: Cell
    accuracy: float
    log_likelihood: float
    coverage: float
    kl: float
    updates: int
    epsilon: float | None = None
    epsilon_paper: float | None = None
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    verdict: str = UNKNOWN


@dataclass(frozen=True)
class Experiment:
    """The data of one split, and the optimum that a non-private party holding all dealt rows would find.

    Attributes
    ----------
    sizes : client -> its number of rows
    test : what the server keeps
    """

    sizes: Mapping[str, int]
    test: Rows
    optimum: Gaussian


@cache
def experiment(name: str) -> Experiment:
    """The published preprocessing and split, as the jobs have them."""
    rho, kappa = SPLITS[name]
    dealt = builtin.load("adult", n_clients=CLIENTS, rho=rho, kappa=kappa, preprocess="paper")
    columns = dealt.columns
    encoding = Encoding(tuple(columns[c] for c in adult.COVARIATES), adult.RESPONSE, positive=adult.POSITIVE, intercept=False)

    def encoded(table: Table | None) -> Rows:
        assert table is not None
        design = encode(table, encoding)
        return Rows(design.X, design.y)

    clients = [encoded(dealt.client(k)) for k in range(CLIENTS)]
    pooled = Rows(np.concatenate([c.X for c in clients]), np.concatenate([c.y for c in clients]))
    p = prior(pooled.X.shape[1])
    sizes = {client: len(rows) for client, rows in zip(dealt.clients, clients)}
    one = parse({"job": {"method": "pvi"}, "data": {"builtin": "adult"}, "model": {"covariance": "diagonal"}})
    assert isinstance(one, Config)
    settings = Model(one, ("all",), encoding).settings
    return Experiment(sizes, encoded(dealt.test()), exact(pooled, settings, p, p))


def sampling_rate(n_rows: int) -> float:
    """The published batch size over the rows."""
    return max(20, math.ceil(0.02 * n_rows)) / n_rows


def terms(n_rows: int, cell: Cell) -> dict[str, float]:
    """What protects one client, with the published batch size and delta (which publish its number of rows)."""
    method, rate = METHODS[cell.method], sampling_rate(n_rows)
    assert method.clip is not None
    assert cell.cap is not None
    # the authors' code clips N / L times the gradient at 75
    clip = max(method.clip, 75 * rate) if cell.method == "DP-PVI, poster's settings" else method.clip
    delta, epsilon = 10.0 ** math.floor(math.log10(1 / n_rows)), cell.cap
    if method.accounting == "moments":  # as many steps as that accountant would allow; what they cost says the job's own
        noise = Mechanism(sampling="poisson", sampling_rate=rate, noise_multiplier=SIGMA, clip=clip, dimension=DIMENSION)
        epsilon = noise.epsilon(moments_max_steps(noise.rate, SIGMA, epsilon, delta), delta)
    return {"epsilon": epsilon, "delta": delta, "clip": clip, "sampling_rate": rate}


def job(cell: Cell) -> Tables:
    """One run: Poisson sampling, exact noise from the secure source, and each client's own budget."""
    method, sizes = METHODS[cell.method], experiment(cell.split).sizes
    rho, kappa = SPLITS[cell.split]
    algorithm = dict(method.algorithm)
    clients = {client: terms(n, cell) for client, n in sizes.items()} if method.clip else {}
    if algorithm.get("schedule") == "random":
        algorithm["client_weights"] = {client: 1 / n for client, n in sizes.items()}
    if not clients and algorithm["optimiser"] != "exact":
        algorithm["batch"] = sampling_rate(max(sizes.values()))
    tables: dict[str, Json] = {
        "job": {"method": "pvi", "seed": cell.seed, "rounds": method.rounds},
        "data": {"builtin": "adult", "preprocess": "paper", "split": {"clients": CLIENTS, "rho": rho, "kappa": kappa}},
        "model": {"covariance": "diagonal"},
        "algorithm": algorithm,
    }
    if clients:
        accountant = "rdp" if method.accounting == "rdp" else "pld"
        tables["privacy"] = {"noise_multiplier": SIGMA, "accountant": accountant, "clients": clients}
    # whole rounds: within one, q swings towards the client that came last
    length = _rounds(method, clients.values())
    return tables | {"output": {"metrics_every": max(1, length // POINTS)}}


def _rounds(method: Method, clients: Collection[Mapping[str, float]]) -> int:
    """About how many rounds a job will have."""
    if not clients or method.rounds != "budget":
        return int(method.rounds)
    steps = []
    for one in clients:
        rate, clip = one["sampling_rate"], one["clip"]
        noise = Mechanism(sampling="poisson", sampling_rate=rate, noise_multiplier=SIGMA, clip=clip, dimension=DIMENSION)
        steps.append(noise.max_steps(one["epsilon"], one["delta"]))
    return sum(steps) // int(method.algorithm["local_steps"]) // CLIENTS


def run_cell(cell: Cell) -> Outcome:
    """One whole federated run."""
    data = experiment(cell.split)
    with TemporaryDirectory() as folder:
        result = run_job(job(cell), out=folder)
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert isinstance(result.posterior, Posterior)
    q = result.posterior.q
    held = np.abs(data.optimum.mean - q.mean) < 1.959963984540054 * q.sd
    spent = result.summary["privacy"]
    paper = [moments_epsilon(one["sampling_rate"], SIGMA, one["steps"], one["delta"]) for one in spent.values()]
    measured = [(line["updates"], line["metrics"]) for line in lines if "metrics" in line]
    return Outcome(
        cell,
        result.summary["metrics"]["accuracy"],
        result.summary["metrics"]["log_likelihood"],
        float(held.mean()),
        kl(data.optimum, q) / q.d,
        sum(client["updates"] for client in result.summary["clients"].values()),
        max((one["epsilon"] for one in spent.values()), default=None),
        max(paper, default=None),
        [(updates, of["accuracy"], of["log_likelihood"]) for updates, of in measured],
        result.summary["verdict"],
    )


def cells(fast: bool, first: int = 0) -> list[Cell]:
    """All runs; `fast` takes one seed, and of the caps the largest."""
    chosen = []
    for name in SPLITS:
        for method, how in METHODS.items():
            n = 1 if fast or how.algorithm["optimiser"] == "exact" else SEEDS
            caps: Sequence[float | None] = CAPS if how.clip and method != "DP global VI" else (1.0,) if how.clip else (None,)
            chosen += [Cell(name, method, cap, seed) for cap in (caps[-1:] if fast else caps) for seed in range(first, first + n)]
    return chosen


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs all cells that `out` does not hold yet (an interrupted reproduction goes on), and writes the table and the figures.

    Parameters
    ----------
    out : folder for results.jsonl, summary.json, table.md, curves.png
    fast : one seed, and epsilon <= 1 alone
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    adult.read()  # a missing folder is said before anything is started
    done = {o.cell: o for o in _read(out / "results.jsonl")}
    todo = [cell for cell in cells(fast, seed - 1) if cell not in done]
    with (out / "results.jsonl").open("a") as file, ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        for outcome in pool.map(run_cell, todo):
            done[outcome.cell] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            c = outcome.cell
            scores = f"{outcome.accuracy:.4f} / {outcome.log_likelihood:.4f}"
            print(f"{c.split}, {c.method}, cap {c.cap}, seed {c.seed}: {scores}", flush=True)
    outcomes = [done[cell] for cell in cells(fast, seed - 1)]
    rows = list(_summary(outcomes))
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(_verdicts(outcomes) + "\n" + _table(rows))
    _figure(outcomes, out / "curves.png")
    return out / "table.md"


def _read(path: Path) -> Iterator[Outcome]:
    if path.exists():
        for line in path.read_text().splitlines():
            plain = json.loads(line)
            yield Outcome(Cell(**plain.pop("cell")), **plain)


def _summary(outcomes: Sequence[Outcome]) -> Iterator[Json]:
    """A row for each (split, method, cap): means over seeds, and the standard deviation of the first two."""
    for key in dict.fromkeys((o.cell.split, o.cell.method, o.cell.cap) for o in outcomes):
        of_key = [o for o in outcomes if (o.cell.split, o.cell.method, o.cell.cap) == key]
        row: Json = {"split": key[0], "method": key[1], "cap": key[2], "seeds": len(of_key)}
        for name in ("accuracy", "log_likelihood", "coverage", "kl", "updates", "epsilon", "epsilon_paper"):
            values = [getattr(o, name) for o in of_key if getattr(o, name) is not None]
            row[name] = float(np.mean(values)) if values else None
            if name in ("accuracy", "log_likelihood"):
                row[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        yield row


def _verdicts(outcomes: Sequence[Outcome]) -> str:
    """How many of the runs of each method have what verdict, of which the numbers are left out."""
    words = Counter((o.cell.method, o.verdict.partition(":")[0]) for o in outcomes)
    methods = dict.fromkeys(method for method, _ in words)
    of = {m: ", ".join(f"{count} runs {word}" for (name, word), count in words.items() if name == m) for m in methods}
    return verdicts(of)


def _table(rows: Sequence[Json]) -> str:
    def cell(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    def pair(row: Json, name: str) -> str:
        return cell(row[name], 4) + (f" ± {row[f'{name}_sd']:.4f}" if row[f"{name}_sd"] is not None else "")

    heads = (
        "split | method | cap | accuracy | mean log-likelihood | epsilon (tight) | epsilon (paper's) | updates | coverage | KL"
    )
    lines = [f"| {heads} |", "|" + " --- |" * 10]
    for r in rows:
        parts = [r["split"], r["method"], cell(r["cap"], 2), pair(r, "accuracy"), pair(r, "log_likelihood")]
        parts += [
            cell(r["epsilon"], 3),
            cell(r["epsilon_paper"], 3),
            cell(r["updates"], 0),
            cell(r["coverage"], 2),
            cell(r["kl"], 2),
        ]
        lines.append("| " + " | ".join(parts) + " |")
    note = (
        "\nMeans over seeds ± their standard deviation. Epsilon is the largest of the ten clients', by the PLD accountant for\n"
        "the Poisson sampler that ran, and as the moments accountant of the original experiment would have said. Updates: of\n"
        "all clients. Coverage: share of coordinates whose central 95 % interval holds the non-private optimum's mean. KL:\n"
        "KL(non-private optimum || released) per coordinate, in nats. The released q does not contain the privacy noise.\n"
    )
    return "\n".join(lines) + "\n" + note


def _figure(outcomes: Sequence[Outcome], path: Path) -> None:
    """Accuracy and log-likelihood against client updates, one column a split; means over seeds, of what would be released."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    styles: dict[tuple[str, float | None], tuple[str, str, str]] = {
        ("PVI, Adagrad", None): ("black", "-", "PVI"),
        ("global VI", None): ("0.6", "--", "global VI"),
        ("DP-PVI", 0.5): ("#c6311f", "-", r"DP-PVI, $\varepsilon\leq0.5$"),
        ("DP-PVI", 0.75): ("#e08a1e", "-", r"DP-PVI, $\varepsilon\leq0.75$"),
        ("DP-PVI", 1.0): ("#2b6cb0", "-", r"DP-PVI, $\varepsilon\leq1$"),
        ("DP global VI", 1.0): ("#2b6cb0", ":", r"DP global VI, $\varepsilon\leq1$"),
    }
    figure, axes = plt.subplots(2, 3, figsize=(11, 5.6), sharex="col", sharey="row", constrained_layout=True)
    for column, name in enumerate(SPLITS):
        for (method, cap), (colour, line, label) in styles.items():
            of_line = [o for o in outcomes if (o.cell.split, o.cell.method, o.cell.cap) == (name, method, cap)]
            if not of_line:
                continue
            curves = [np.array(o.curve) for o in of_line]
            shortest = min(map(len, curves))
            mean = np.mean([c[:shortest] for c in curves], axis=0)
            for row in (0, 1):
                axes[row, column].plot(mean[:, 0] + 1, mean[:, row + 1], color=colour, linestyle=line, linewidth=1.4, label=label)
        axes[0, column].set_title(f"split {name}" if len(name) == 1 else name)
        axes[1, column].set_xlabel("client updates")
        axes[1, column].set_xscale("log")
    axes[0, 0].set_ylabel("test accuracy")
    axes[1, 0].set_ylabel("mean test log-likelihood")
    axes[0, 0].set_ylim(0.74, 0.86)
    axes[1, 0].set_ylim(-0.60, -0.30)
    for ax in axes.flat:
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.spines[["top", "right"]].set_visible(False)
    axes[1, 2].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
