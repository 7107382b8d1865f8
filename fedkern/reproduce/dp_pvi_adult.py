"""DP-PVI on UCI Adult: ten clients, three splits, three privacy budgets (docs/methods/pvi.md, section 13).

Every cell is one whole federated run in this process: Poisson sampling, exact noise from the secure source, the accountant's own
limit on the number of steps. Beside accuracy and log-likelihood the table says how honest the released posterior is: in how many
coordinates its central 95 % interval holds the mean of the non-private optimum, and KL(optimum || released) per coordinate.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..algorithms.core.messages import Charge, Charged, ChargeFailed
from ..algorithms.pvi import global_vi
from ..algorithms.pvi import machine as pvi
from ..algorithms.pvi.local import Local, exact
from ..algorithms.pvi.settings import Settings
from ..data import split
from ..data.design import Encoding, encode
from ..data.sets import adult
from ..models.expfam import Gaussian, kl
from ..models.glm import Rows, metrics, prior
from ..privacy.accountant import Mechanism
from ..privacy.moments import moments_epsilon, moments_max_steps
from ..privacy.noise import SecureSource
from ..transports import inprocess
from ..transports.codec import Codec
from ..transports.driver import Hooks

SPLITS = {"homogeneous": (0.0, 0.0), "A": (0.9, 0.95), "B": (0.7, -3.0)}  # (rho, kappa)
CAPS = (0.5, 0.75, 1.0)
CLIENTS, SEEDS, SIGMA, STEPS = 10, 5, 5.0, 25
POINTS = 120  # of a learning curve

DP = Settings(
    schedule="sequential", rounds=None, local_steps=STEPS, learning_rate=0.5, damping=0.1, damping_form="moment", average="half"
)
# name -> settings, clipping norm (None: not private), accounting of the caps
METHODS: dict[str, tuple[Settings, float | None, str]] = {
    "PVI": (Settings(optimiser="exact", rounds=25), None, ""),
    "PVI, Adagrad": (replace(DP, learning_rate=2.0, local_steps=20, rounds=100), None, ""),
    "global VI": (Settings(variant="global-vi", learning_rate=0.05, local_steps=1, rounds=1000), None, ""),
    "DP-PVI": (DP, 2.0, "pld"),
    "DP-PVI, paper's accounting": (DP, 2.0, "moments"),
    "DP-PVI, poster's settings": (replace(DP, schedule="random", average="none"), 1.5, "rdp"),
    "DP global VI": (Settings(variant="global-vi", learning_rate=0.05, local_steps=1, rounds=5000), 2.0, "pld"),
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


@dataclass(frozen=True)
class Experiment:
    """The data of one split, and the optimum that a non-private party holding all dealt rows would find."""

    clients: list[Rows]
    test: Rows
    optimum: Gaussian


@cache
def experiment(name: str) -> Experiment:
    """The published preprocessing and split."""
    rows = adult.read()
    columns = adult.columns("paper")
    encoding = Encoding(tuple(columns[c] for c in adult.COVARIATES), adult.RESPONSE, positive=adult.POSITIVE, intercept=False)
    train, held_out = split.train_test(rows.n_rows, 0.2)
    rho, kappa = SPLITS[name]
    parts = split.imbalanced(rows.positive()[train], CLIENTS, rho=rho, kappa=kappa)

    def load(index: Any) -> Rows:
        design = encode(rows.table(index), encoding)
        return Rows(design.X, design.y)

    clients = [load(train[part]) for part in parts]
    pooled = Rows(np.concatenate([c.X for c in clients]), np.concatenate([c.y for c in clients]))
    p = prior(pooled.X.shape[1])
    return Experiment(clients, load(held_out), exact(pooled, Settings(), p, p))


def mechanism(n_rows: int, cell: Cell, clip: float) -> tuple[Mechanism, float]:
    """A client's mechanism and delta, with the published batch size and delta (which publish its number of rows)."""
    rate = max(20, math.ceil(0.02 * n_rows)) / n_rows
    if cell.method == "DP-PVI, poster's settings":
        clip = max(clip, 75 * rate)  # the authors' code clips N / L times the gradient at 75
    accountant = METHODS[cell.method][2]
    found = Mechanism(
        sampling="poisson",
        sampling_rate=rate,
        noise_multiplier=SIGMA,
        clip=clip,
        dimension=216,
        accountant="rdp" if accountant == "rdp" else "pld",
    )
    return found, 10.0 ** math.floor(math.log10(1 / n_rows))


class Watch(Hooks):
    """Stops every client at its number of allowed steps, and follows q."""

    def __init__(self, allowed: Sequence[int] | None, every: int, test: Rows) -> None:
        self.allowed, self.every, self.test = allowed, every, test
        self.spent = [0] * CLIENTS
        self.curve: list[tuple[int, float, float]] = []

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        assert self.allowed is not None
        if self.spent[client] + charge.steps > self.allowed[client]:
            return ChargeFailed(charge.steps, self.spent[client], self.allowed[client])
        self.spent[client] += charge.steps
        return Charged(charge.steps)

    def observe(self, state: Any, event: Any) -> None:
        updates = int(state.updates.sum())
        if updates >= len(self.curve) * self.every:
            found = metrics(state.q, self.test, "bernoulli")
            self.curve.append((updates, found["accuracy"], found["log_likelihood"]))


def run_cell(cell: Cell) -> Outcome:
    """One whole federated run."""
    settings, clip, accounting = METHODS[cell.method]
    algorithm = global_vi if settings.variant == "global-vi" else pvi
    data = experiment(cell.split)
    settings = replace(settings, seed=cell.seed)
    rates = [max(20, math.ceil(0.02 * len(rows))) / len(rows) for rows in data.clients]
    if settings.schedule == "random":
        settings = replace(settings, client_weights=tuple(1 / len(rows) for rows in data.clients))
    plans = [mechanism(len(rows), cell, clip) for rows in data.clients] if clip else []
    allowed = [_allowed(m, delta, cell.cap or 0.0, accounting) for m, delta in plans]

    p = prior(data.test.X.shape[1])
    clients = {}
    for k, rows in enumerate(data.clients):
        own = settings if clip or settings.optimiser == "exact" else replace(settings, batch_rate=rates[k])
        local = Local(rows, own, k, plans[k][0], SecureSource()) if clip else Local(rows, own, k)
        clients[k] = algorithm.client(f"client-{k}", local, p)
    length = sum(allowed) // settings.local_steps if allowed else (settings.rounds or 1) * CLIENTS
    rounds = max(1, length // (POINTS * CLIENTS))  # whole rounds: within one, q swings towards the client that came last
    watch = Watch(allowed or None, rounds * CLIENTS, data.test)
    codec = Codec(settings.sizes(p.d), CLIENTS)
    with threadpool_limits(1, user_api="blas"):  # cells run side by side
        server, _ = inprocess.run(algorithm.PROTOCOL, algorithm.start(settings, p, CLIENTS), clients, codec, watch)

    q = algorithm.released(server)
    found = metrics(q, data.test, "bernoulli")
    held = np.abs(data.optimum.mean - q.mean) < 1.959963984540054 * q.sd
    tight = [m.epsilon(steps, delta) for (m, delta), steps in zip(plans, watch.spent)]
    paper = [moments_epsilon(m.rate, SIGMA, steps, delta) for (m, delta), steps in zip(plans, watch.spent)]
    return Outcome(
        cell,
        found["accuracy"],
        found["log_likelihood"],
        float(held.mean()),
        kl(data.optimum, q) / q.d,
        int(server.updates.sum()),
        max(tight, default=None),
        max(paper, default=None),
        watch.curve,
    )


def _allowed(m: Mechanism, delta: float, cap: float, accounting: str) -> int:
    if accounting == "moments":
        return moments_max_steps(m.rate, SIGMA, cap, delta)
    return m.max_steps(cap, delta)


def cells(fast: bool) -> list[Cell]:
    """All runs; `fast` takes one seed, and of the caps the largest."""
    chosen = []
    for name in SPLITS:
        for method, (settings, clip, _) in METHODS.items():
            seeds = range(1 if fast or settings.optimiser == "exact" else SEEDS)
            caps: Sequence[float | None] = CAPS if clip and method != "DP global VI" else (1.0,) if clip else (None,)
            chosen += [Cell(name, method, cap, seed) for cap in (caps[-1:] if fast else caps) for seed in seeds]
    return chosen


def run(out: Path, fast: bool = False) -> Path:
    """Runs all cells that `out` does not hold yet (an interrupted reproduction goes on), and writes the table and the figures.

    Parameters
    ----------
    out : folder for results.jsonl, summary.json, table.md, curves.png
    fast : one seed, and epsilon <= 1 alone

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    adult.read()  # a missing folder is said before anything is started
    done = {o.cell: o for o in _read(out / "results.jsonl")}
    todo = [cell for cell in cells(fast) if cell not in done]
    with (out / "results.jsonl").open("a") as file, ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        for outcome in pool.map(run_cell, todo):
            done[outcome.cell] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            c = outcome.cell
            scores = f"{outcome.accuracy:.4f} / {outcome.log_likelihood:.4f}"
            print(f"{c.split}, {c.method}, cap {c.cap}, seed {c.seed}: {scores}", flush=True)
    outcomes = [done[cell] for cell in cells(fast)]
    rows = list(_summary(outcomes))
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(_table(rows))
    _figure(outcomes, out / "curves.png")
    return out / "table.md"


def _read(path: Path) -> Iterator[Outcome]:
    if path.exists():
        for line in path.read_text().splitlines():
            plain = json.loads(line)
            yield Outcome(Cell(**plain.pop("cell")), **plain)


def _summary(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """A row for each (split, method, cap): means over seeds, and the standard deviation of the first two."""
    for key in dict.fromkeys((o.cell.split, o.cell.method, o.cell.cap) for o in outcomes):
        of_key = [o for o in outcomes if (o.cell.split, o.cell.method, o.cell.cap) == key]
        row: dict[str, Any] = {"split": key[0], "method": key[1], "cap": key[2], "seeds": len(of_key)}
        for name in ("accuracy", "log_likelihood", "coverage", "kl", "updates", "epsilon", "epsilon_paper"):
            values = [getattr(o, name) for o in of_key if getattr(o, name) is not None]
            row[name] = float(np.mean(values)) if values else None
            if name in ("accuracy", "log_likelihood"):
                row[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        yield row


def _table(rows: Sequence[dict[str, Any]]) -> str:
    def cell(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    def pair(row: dict[str, Any], name: str) -> str:
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
    """Accuracy and log-likelihood against client updates, one column a split; lines are means over seeds of the last iterate."""
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
