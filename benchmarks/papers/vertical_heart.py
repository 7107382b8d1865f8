"""Split networks on heart patients, two clients: cross-validated scores against pooled logistic regression.

Table 3 of the vertical paper (docs/spec/vertical.md, section 9.3), 918 patients. Ten-fold cross-validation by five fold
seeds. Every fit is a whole federated run of 50,000 rounds of Adam at 1e-3 with all rows, and is looked at on the way: test rows
are predicted after certain rounds, by both rules. So the table can say beside the published setting what a number of rounds
would have given that was chosen without the fold it is scored on. Beside each model with one whose weights below the last layer
have a normal prior too, of variance 1 / inputs, and are at the mode.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedkern.data import split
from fedkern.data.sets import heart_failure
from fedkern.errors import JobError
from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys
from fedkern.methods.vertical.model import VerticalModel
from fedkern.methods.vertical.rows import Reading, columns
from fedkern.models.likelihood import Likelihood
from fedkern.models.split.predictive import log_density, predicted, spread

from .common import Array, Index, Json, append, shown, stored, table
from .vertical import AS_PUBLISHED, fit

PRIOR = ", prior of all weights"
MODELS: dict[str, float | None] = {  # rho; None: point estimates
    "split network": None,
    "rho = 1": 1.0,
    f"rho = 1{PRIOR}": 1.0,
    "rho = 5": 5.0,
    f"rho = 5{PRIOR}": 5.0,
    "rho = 10": 10.0,
    f"rho = 10{PRIOR}": 10.0,
}
PUBLISHED = {  # accuracy in %, log-likelihood of all and of wrong predictions
    "split network": ("80.73 ± 3.65", "-2.21 ± 4.41", "-10.95 ± 1.99"),
    "rho = 1": ("86.39 ± 4.20", "-0.36 ± 0.84", "-1.99 ± 1.42"),
    "rho = 5": ("84.98 ± 4.92", "-0.59 ± 1.71", "-3.53 ± 3.01"),
    "rho = 10": ("84.10 ± 5.23", "-0.67 ± 1.99", "-3.89 ± 3.53"),
}
POOLED = "pooled logistic regression"
RULES = ("plug-in", "posterior", "augmented")
FOLDS, SEEDS, PROCESSES = 10, 5, 2
LEAST = 1e-5
RATE, HIDDEN, FEATURES, WEIGHT_SD = 1e-3, (8, 8), 2, 1.0
MARKS = (*(100, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000), *(10_000, 15_000, 20_000, 30_000, 40_000, 50_000))
FAST = 2_000
BERNOULLI = Likelihood("bernoulli")


@dataclass(frozen=True)
class Cell:
    """One fit."""

    model: str
    seed: int
    fold: int

    @property
    def key(self) -> str:
        return f"{self.model} / {self.seed} / {self.fold}"


@dataclass(frozen=True)
class Scores:
    """Of the test rows of one fold, one rule and one number of rounds."""

    density: Array
    right: NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        return 100 * float(self.right.mean())


def rules(model: str) -> tuple[str, ...]:
    """How a model predicts: a point estimate has one way."""
    return RULES[:1] if MODELS[model] is None else RULES


def folds(seed: int) -> list[Index]:
    """Test rows of every fold."""
    return split.folds(heart_failure.N_ROWS, FOLDS, seed)


def train_of(fold: Index) -> Index:
    """All other rows."""
    return np.setdiff1d(np.arange(heart_failure.N_ROWS), fold)


def model_of(cell: Cell, rounds: int, n_rows: int) -> VerticalModel:
    """What all parties of a cell's job know."""
    rho = MODELS[cell.model]
    model: Json = {"kind": "network" if rho is None else "bayes-network", "hidden": [*HIDDEN], "features": FEATURES}
    model |= {} if rho is None else {"rho": rho}
    model |= {"weight_sd": WEIGHT_SD if cell.model.endswith(PRIOR) else math.inf}
    job = {"method": "vertical", "seed": 1000 * cell.seed + cell.fold, "rounds": rounds}
    algorithm = {**AS_PUBLISHED, "learning_rate": RATE, "average": "none"}
    as_it_is = {name: {"center": 0.0, "scale": 1.0} for name in heart_failure.BINARY}
    data = {"builtin": "heart-failure", "columns": as_it_is}
    config = config_of(keys, {"job": job, "data": data, "model": model, "algorithm": algorithm})
    return VerticalModel(config, tuple(heart_failure.CLIENTS), n_rows)


class Line(TypedDict):
    """What is kept of a fit: mean and variance of the test rows' predictor after each mark."""

    key: str
    marks: list[int]
    mean: list[list[float]]
    variance: list[list[float]]


def run_cell(task: tuple[Cell, int]) -> Line:
    """One fit."""
    cell, rounds = task
    fold = folds(cell.seed)[cell.fold]
    train = train_of(fold)
    model = model_of(cell, rounds, len(train))
    tables = [heart_failure.read().table(name) for name in model.names]
    each = [columns(Reading(rows, model.config, name), train) for rows, name in zip(tables, model.names)]
    sites = [model.site(k, of_client, train) for k, of_client in enumerate(each)]
    new = [model.predictor(k, of_client, fold) for k, of_client in enumerate(each)]
    marks, means, variances = [m for m in MARKS if m <= rounds], [], []
    for _, clients in fit(model, sites, heart_failure.read().response()[train], marks):
        parts = [c.site.predicted(c.parameters, new[k], np.empty((0, FEATURES))) for k, c in clients.items()]
        means.append(np.round(sum(mean for mean, _ in parts), 5).tolist())
        variances.append(np.round(sum(variance for _, variance in parts), 6).tolist())
    return {"key": cell.key, "marks": marks, "mean": means, "variance": variances}


def cells(first: int = 0) -> list[Cell]:
    """All fits, one fold seed after the other."""
    return [Cell(model, seed, fold) for seed in range(first, first + SEEDS) for fold in range(FOLDS) for model in MODELS]


def run(out: Path, fast: bool = False, seed: int = 1) -> Path:
    """Runs all fits that `out` does not hold yet (an interrupted reproduction goes on), and writes the table and the figure.

    Parameters
    ----------
    out : folder for results.jsonl (results-fast.jsonl), table.md, rounds.png
    fast : 2,000 rounds
    seed : of the jobs; of several, the first

    Returns
    -------
    the table's path
    """
    out.mkdir(parents=True, exist_ok=True)
    heart_failure.read()  # a missing folder is said before anything is started
    path, rounds = (out / "results-fast.jsonl", FAST) if fast else (out / "results.jsonl", MARKS[-1])
    done = stored(path)
    todo = [(cell, rounds) for cell in cells(seed - 1) if cell.key not in done]
    workers = max(1, min(PROCESSES, len(os.sched_getaffinity(0)), len(todo)))
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        for line in pool.map(run_cell, todo):
            append(path, line)
            print(line["key"], flush=True)
    return write(out, stored(path), cells(seed - 1))


def write(out: Path, done: Mapping[str, Line], wanted: Sequence[Cell]) -> Path:
    """Table and figure of the fold seeds whose fits are all there."""
    # of a run that was stopped, the seeds that are complete
    seeds = [s for s in dict.fromkeys(c.seed for c in wanted) if all(c.key in done for c in wanted if c.seed == s)]
    if not seeds:
        raise JobError(f"{out}: no fold seed is complete")
    fits = Fits.of(done, seeds)
    (out / "table.md").write_text(_text(fits), encoding="utf-8")
    _figure(fits, out / "rounds.png")
    return out / "table.md"


@dataclass(frozen=True)
class Fits:
    """Scores by model, rule, fold seed, fold and mark; those of the pooled regression by fold seed and fold."""

    seeds: tuple[int, ...]
    marks: tuple[int, ...]
    scores: Mapping[tuple[str, str, int, int, int], Scores]
    pooled: Mapping[tuple[int, int], Scores]

    @classmethod
    def of(cls, done: Mapping[str, Line], seeds: Sequence[int]) -> Fits:
        """From stored fits."""
        scores, y = {}, heart_failure.read().response()
        marks: tuple[int, ...] = ()
        for seed in seeds:
            for k, fold in enumerate(folds(seed)):
                for model in MODELS:
                    line = done[Cell(model, seed, k).key]
                    marks = tuple(line["marks"])
                    for mark, mean, variance in zip(marks, np.array(line["mean"]), np.array(line["variance"])):
                        for rule in rules(model):
                            width = spread(rule, variance, len(heart_failure.CLIENTS), MODELS[model] or 0.0)
                            scores[model, rule, seed, k, mark] = _scores(y[fold], mean, width)
        pooled = {(seed, k): _pooled(seed, k) for seed in seeds for k in range(FOLDS)}
        return cls(tuple(seeds), marks, scores, pooled)

    def at(self, model: str, rule: str, mark: int) -> list[Scores]:
        """All folds of all seeds after these rounds."""
        return [self.scores[model, rule, seed, k, mark] for seed in self.seeds for k in range(FOLDS)]

    def chosen(self, model: str, rule: str) -> tuple[list[Scores], list[int]]:
        """Each fold after the rounds that were best, by log-likelihood, for the other folds of its seed; and these rounds."""
        out, rounds = [], []
        for seed in self.seeds:
            sums = np.array([[self.scores[model, rule, seed, k, m].density.sum() for m in self.marks] for k in range(FOLDS)])
            for k in range(FOLDS):
                mark = self.marks[int((sums.sum(axis=0) - sums[k]).argmax())]
                rounds.append(mark)
                out.append(self.scores[model, rule, seed, k, mark])
        return out, rounds

    def of_seed(self, those: Sequence[Scores]) -> Iterator[float]:
        """Mean accuracy of each fold seed."""
        for i in range(len(self.seeds)):
            yield float(np.mean([one.accuracy for one in those[i * FOLDS : (i + 1) * FOLDS]]))


def _scores(y: Array, mean: Array, variance: Array) -> Scores:
    p = predicted(BERNOULLI, mean, variance)
    return Scores(log_density(BERNOULLI, y, mean, variance), (p > 0.5) == (y > 0.5))


@cache
def _pooled(seed: int, k: int) -> Scores:
    """All columns in one place, which no party has."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise JobError("reproduce vertical-heart: needs scikit-learn; pip install 'fedkern[demo]'") from error
    fold = folds(seed)[k]
    train = train_of(fold)
    data = heart_failure.read().columns(train)
    eta = LogisticRegression(max_iter=1000).fit(data.pooled()[train], data.y[train]).decision_function(data.pooled()[fold])
    return _scores(data.y[fold], eta, np.zeros(len(fold)))


def _row(fits: Fits, name: str, rule: str, rounds: str, those: Sequence[Scores]) -> list[str]:
    density = np.concatenate([one.density for one in those])
    right = np.concatenate([one.right for one in those])
    accuracy = shown((one.accuracy for one in those), 2)
    above = np.maximum(density, np.log(LEAST))
    logs = [shown(density, 3), shown(density[~right], 2), shown(above, 3), shown(above[~right], 2)]
    return [name, rule, rounds, accuracy, shown(fits.of_seed(those), 2), *logs]


def _text(fits: Fits) -> str:
    heads = (
        "model",
        "rule",
        "rounds",
        "accuracy %, ± over folds",
        "± over fold seeds",
        "log-likelihood, all",
        "wrong predictions",
        f"all, p >= {LEAST:g}",
        f"wrong, p >= {LEAST:g}",
    )
    most = fits.marks[-1]
    pooled = _row(fits, POOLED, "", "", [fits.pooled[seed, k] for seed in fits.seeds for k in range(FOLDS)])
    fixed, chosen = [pooled], [pooled]
    for model in MODELS:
        for rule in rules(model):
            fixed.append(_row(fits, model, rule, f"{most:,}", fits.at(model, rule, most)))
            those, rounds = fits.chosen(model, rule)
            low, high = min(rounds), max(rounds)
            chosen.append(_row(fits, model, rule, f"{low:,}" if low == high else f"{low:,} to {high:,}", those))
        if MODELS[model] is None or model.endswith(PRIOR):
            name = model.removesuffix(PRIOR)
            fixed.append([f"{name}, published", "", "50,000", PUBLISHED[name][0], "", *PUBLISHED[name][1:], "", ""])
    sizes = f"{HIDDEN[0]} and {HIDDEN[1]} units and {FEATURES} outputs"
    note = (
        f"Ten folds by {len(fits.seeds)} fold seeds (published: one); all rows, Adam at {RATE:g}; a client's network has "
        f"{sizes}, ReLU. "
        "rho: hierarchical Bayes split networks, amortised auxiliary variables told the average of the server's messages. "
        "Fits are of given numbers of rounds, and not judged to have converged. ± is a standard deviation: of accuracies over "
        "folds and over fold seeds, of log-likelihoods over predictions. plug-in: the predictor's mean; posterior: the inverse "
        "link averaged over the posterior of the last layers; augmented: over the auxiliary variables too, as the model says. "
        f"The last columns keep probabilities above {LEAST:g}: the published -10.95 ± 1.99 of wrong predictions, so near to log "
        f"{LEAST:g} = {np.log(LEAST):.1f} and to one another, suggests that theirs were kept above some such number.\n"
    )
    rule = (
        "Each fold is scored after the number of rounds that was best, by log-likelihood, for the other nine folds of its seed. "
        "Without a prior, a network's weights below the last layer are maximised, so that nothing but the number of rounds keeps "
        f"them from learning the training rows by heart, whatever rho is; a normal prior (variance {WEIGHT_SD**2:g} / "
        "inputs of the layer) does.\n"
    )
    parts = [
        f"## After {most:,} rounds\n",
        table(heads, fixed),
        note,
        "## Rounds chosen by the other folds\n",
        table(heads, chosen),
    ]
    return "\n".join([*parts, rule])


def _figure(fits: Fits, path: Path) -> None:
    """Accuracy and log-likelihood on test rows against rounds."""
    from fedkern.results.plots import BLUE, INK, MUTED, ORANGE, canvas, tidy

    figure = canvas(10.0, 6.6)
    pooled = list(fits.pooled.values())
    for (left, right), prior in zip(figure.subplots(2, 2, sharex=True, sharey="col"), (False, True)):
        left.axhline(float(np.mean([one.accuracy for one in pooled])), color=MUTED, linewidth=1.0, label=POOLED)
        right.axhline(float(np.mean(np.concatenate([one.density for one in pooled]))), color=MUTED, linewidth=1.0)
        shown_here = [m for m in MODELS if MODELS[m] is not None and m.endswith(PRIOR) == prior]
        for model, colour in zip(["split network", *shown_here], (INK, BLUE, "#3aa6b9", ORANGE)):
            for rule, style in zip(rules(model), ("-", "--", ":")):
                those = [fits.at(model, rule, mark) for mark in fits.marks]
                if rule == RULES[0]:  # the others are right where it is right
                    accuracy = [float(np.mean([one.accuracy for one in each])) for each in those]
                    left.plot(fits.marks, accuracy, color=colour, linewidth=1.5, label=model)
                density = [float(np.mean(np.concatenate([one.density for one in each]))) for each in those]
                label = rule if MODELS[model] == 1 else None
                right.plot(fits.marks, density, style, color=colour, linewidth=1.5, label=label)
        for axes, title in ((left, "test accuracy, %"), (right, "mean test log-likelihood")):
            axes.set_xscale("log")
            axes.set_title(title + (", weights with a prior" if prior else ""), loc="left", fontsize=9.5, color=INK)
            tidy(axes, "y")
        left.legend(frameon=False, fontsize=7.0, loc="lower center")
        right.legend(frameon=False, fontsize=7.0, loc="lower left")
        if prior:
            left.set_xlabel("rounds")
            right.set_xlabel("rounds")
    left.set_ylim(bottom=max(left.get_ylim()[0], 70.0))
    right.set_ylim(max(right.get_ylim()[0], -2.5), -0.25)
    figure.savefig(path, dpi=150)
