"""How many rows of a client open jobs determine at the numbers of the level "standard", and a solver that looks for them.

    PYTHONPATH=tests python benchmarks/disclosure_standard.py [--only PART ..] [--seconds 180] [--jobs 4]

Of `likelihood` the machines of server and clients run a job, with what clients tell rounded; `support.curious_rounded` says what
is given to whoever solves the equations (labels and counts are), and what counts as determined: every cell of a row to .05
standard deviations, by derivatives at the truth. Columns have many values: normal, lognormal, t with 4 degrees of freedom, or
correlated. Rows are counted by their effective number as the fit weighs them; a client with a row whose leverage is above .9 is
refused, and drawn anew. `pvi` jobs are run whole, without rounding. The solver begins from random rows with the known sums, again
and again, until rows explain the messages, for at most `--seconds` of one core a case: rows of these that it would name, for the
messages determine them, and those of them that are right.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import ASKED_OF_ALL, OF_QUADRATICS
from fedkern.algorithms.importance.summaries import CELLS, CELLS_OF_ALL, CELLS_OF_ONE
from fedkern.algorithms.importance.summaries import told as told_by
from fedkern.arrays import Array
from fedkern.disclosure.few import OF_A_SUMMARY
from fedkern.disclosure.rules import LEVELS, told_by_values
from fedkern.kernels.families import FAMILIES as FAMILIES_OF
from fedkern.methods import parse
from fedkern.methods.likelihood import scales
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.mixed.layout import LESS_WIDE
from support import curious, curious_rounded, curious_sigma, curious_survey
from support.rounded_jobs import Played, drawn
from support.rounded_jobs import played as played_by

# Default priors may widen, as in jobs. One round of all its draws tells the most: of several the units of values are coarser.
played = partial(played_by, wider=LESS_WIDE, effective=1e9)

RULES = LEVELS["standard"]
LEVERAGE, KINDS = 0.9, ("normal", "lognormal", "t4", "correlated")
FAMILIES = (
    "poisson",
    "negative-binomial",
    "student",
    "gamma",
    "beta",
    "zero-inflated-poisson",
    "zero-inflated-negative-binomial",
    "bernoulli-probit",
    "bernoulli-cloglog",
    "beta-binomial",
    "lognormal",
    "inverse-gaussian",
    "hurdle-poisson",
    "hurdle-negative-binomial",
    "poisson-lognormal",
)
LINKED = {"bernoulli-probit": ("bernoulli", "probit"), "bernoulli-cloglog": ("bernoulli", "cloglog")}
VALUES = (
    *((many, 1.0, "clients alike") for many in (12, 15, 18)),
    *((many, 5.0, "others ten times") for many in (8, 12)),
)


def columns(random: np.random.Generator, n: int, p: int, kind: str) -> Array:
    """(n, p) cells."""
    if kind == "lognormal":
        return np.exp(0.8 * random.standard_normal((n, p)))
    if kind == "t4":
        return random.standard_t(4, (n, p))
    return random.standard_normal((n, p)) + (2 * random.standard_normal((n, 1)) if kind == "correlated" else 0.0)


def federation(
    random: np.random.Generator, family: str, sizes: list[int], p: int, kind: str = "normal", slope: float = 1.0,
    groups: list[list[int]] | None = None, rare: int = 0,
) -> tuple[Layout, list[Rows]]:  # fmt: skip
    """Clients of these sizes; `rare`: so many rows of each have 1 in a first column of 0 and 1."""
    cells = [columns(random, n, p, kind) for n in sizes]
    if rare:
        cells = [np.column_stack([np.arange(len(X)) < rare, X]) for X in cells]
    every = np.concatenate(cells)
    names = ("intercept", *(f"x{k}" for k in range(every.shape[1])))
    layout, rows = Layout(names, family, ("intercept",) if groups else ()), []
    for k, X in enumerate(cells):
        X = np.column_stack([np.ones(len(X)), (X - every.mean(axis=0)) / every.std(axis=0)])
        sizes_of_groups = groups[k] if groups else [len(X)]
        effect = np.repeat(random.standard_normal(len(sizes_of_groups)), sizes_of_groups) if groups else 0.0
        trials = np.full(len(X), 5.0) if FAMILIES_OF[family].trials else None
        y = drawn(random, family, slope * X[:, 1 + bool(rare)] + 0.3 + effect, trials)
        rows.append(Rows(layout, X, y, np.append(0, np.cumsum(sizes_of_groups)), trials))
    return layout, rows


def weights(job: Played, rows: Rows) -> Array:
    """(n,) of a logistic fit's rows, at the mode."""
    chance = scipy.special.expit(rows.X @ job.at[-1])
    return np.asarray(chance * (1 - chance))


def logistic(
    random: np.random.Generator, a_coefficient: float, others: float, p: int, kind: str, slope: float = 1.0, **more: int
):
    """A job whose first client has so many effective rows a coefficient, and the client."""
    size = p + 1 + bool(more)
    n = max(int(np.ceil(1.1 * a_coefficient * size)), 16 if p == 1 else 10)
    for _ in range(60):
        layout, rows = federation(random, "bernoulli", [n, int(others * n), int(others * n)], p, kind, slope, **more)
        job = played(layout, rows, rounds=0)
        w, X = weights(job, rows[0]), rows[0].X
        has = w.sum() ** 2 / (w @ w) / size
        leverage = w * np.einsum("ni,ij,nj->n", X, np.linalg.pinv((X * w[:, np.newaxis]).T @ X), X)
        if abs(has - a_coefficient) < max(0.5, 0.05 * a_coefficient) and leverage.max() <= LEVERAGE:
            break
        n += int(np.clip(np.round((a_coefficient - has) * size / 2), -3, 3))
    return played(layout, rows), rows[0]


def told(job: Played, own: Rows, *, summary: bool = False) -> Array:
    """(n,) whether each row is determined."""
    equations = curious_rounded.seen(job, own, summary=summary)
    return np.asarray(curious.known(equations, own.X[:, 1:], 2 * own.y - 1) < curious.WITHIN)


def values(jobs: int) -> Iterator[str]:
    """Logistic clients that answer at draws."""
    yield "\nlikelihood, logistic, values at 4,096 draws: share of rows that is determined, by effective rows a coefficient"
    for kind in KINDS:
        for p in (1, 2, 3):
            line = []
            for a_coefficient, others, words in VALUES:
                for slope in (1.0, 3.0):
                    made = [
                        logistic(np.random.default_rng([p, job]), a_coefficient, others, p, kind, slope) for job in range(jobs)
                    ]
                    line.append(f"{np.mean([told(*one).mean() for one in made]):.3f}")
                line[-2:] = [f"{a_coefficient} ({words}) {line[-2]} and {line[-1]}"]
            yield f"  {kind}, p = {p}, slope 1 and 3: " + "; ".join(line)


def families(jobs: int) -> Iterator[str]:
    """Other families: the fewest rows, of a coefficient and number of the family, and the same beside larger clients."""
    yield "\nlikelihood, other families, values at 4,096 draws: share determined of the fewest rows"
    for family in FAMILIES:
        for p in (1, 2, 3):
            name, line = dict(zip(("family", "link"), LINKED.get(family, (family,)))), []
            data = {"clients": ["a.csv"], "response": "y"} | ({"trials": "n"} if family == "beta-binomial" else {})
            config = parse({"job": {"method": "likelihood"}, "data": data, "model": name})
            n = config.requirement.told_up_to(p + 1) + 1
            for others, words in ((1.0, "clients alike"), (5.0, "others ten times")):
                shares = []
                for job in range(jobs):
                    sizes = [n, int(2 * others * n) if others > 1 else n, int(2 * others * n) if others > 1 else n]
                    layout, rows = federation(np.random.default_rng([p, job]), family, sizes, p)
                    shares.append((curious_rounded.known(played(layout, rows), rows[0]) < curious.WITHIN).mean())
                line.append(f"{words} {np.mean(shares):.3f}")
            yield f"  {family}, p = {p}, {n} rows: " + "; ".join(line)


def scaled(jobs: int) -> Iterator[str]:
    """Errors whose standard deviation depends on all columns."""
    yield "\nlikelihood, sigma by all columns, values at 4,096 draws: share determined of a fifth, a half, all of the fewest rows"
    for family in scales.FAMILIES:
        for p in (1, 2, 3):
            config = parse(
                {
                    "job": {"method": "likelihood"},
                    "data": {"clients": ["a.csv"], "response": "y"},
                    "model": {"family": family, "sigma": "~ " + " + ".join(f"x{k}" for k in range(p))},
                }
            )
            fewest, line = config.requirement.told_up_to(p + 1) + 1, []
            for n in (fewest // 5, fewest // 2, fewest):
                found = (curious_sigma.known(family, n, p, job).mean() for job in range(jobs))
                line.append(f"{n} rows {np.mean([*found]):.3f}")
            yield f"  {family}, p = {p}: " + "; ".join(line)


def clusters(jobs: int) -> Iterator[str]:
    """Scores of a survey's clusters: all of one row but one, with the rows that values ask for."""
    yield "\nlikelihood, scores of clusters of one row, and one of all other rows: share determined of the first, and of all"
    for family in ("poisson", "bernoulli"):
        for p in (1, 2, 3):
            line, n = [], told_by_values(p + 1, RULES) + 1
            for most in (2 * (p + 1), 2 * (p + 2)):
                own = curious_survey.singles(n, most)
                found = [curious_survey.known(*curious_survey.client(family, n, p, job), own) for job in range(jobs)]
                each = [(one[:most].mean(), one.mean()) for one in found]
                line.append("{} clusters {:.2f}, {:.3f}".format(most + 1, *np.mean(each, axis=0)))
            yield f"  {family}, p = {p}, {n} rows: " + "; ".join(line)


def fewest(
    random: np.random.Generator, wanted: float, others: int, p: int, kind: str, slope: float = 1.0, rare: int = 0
) -> tuple[Played, Rows]:
    """A job whose first client has so many effective rows, no row with most of a sum, and others so many times as large."""
    n = int(np.ceil(wanted))
    for _ in range(60):
        layout, rows = federation(random, "bernoulli", [n, others * n, others * n], p, kind, slope, rare=rare)
        job = played(layout, rows, rounds=0)
        w, X = weights(job, rows[0]), rows[0].X
        leverage = w * np.einsum("ni,ij,nj->n", X, np.linalg.pinv((X * w[:, np.newaxis]).T @ X), X)
        lacks = wanted - w.sum() ** 2 / (w @ w)
        if lacks <= 0 and leverage.max() <= LEVERAGE:
            break
        n += max(1, int(lacks / 2))
    return job, rows[0]


def summaries(jobs: int) -> Iterator[str]:
    """Gradient and curvature at the joint mode, and averaged over the joint normal."""
    yield "\nlikelihood, logistic, summaries of the fewest effective rows: share of rows that is determined, slope 1 and 3"
    for kind in KINDS:
        for p in (1, 2, 3, 5, 9):
            wanted = max(RULES.summary * (p + 1), told_by(p + 1) / (CELLS * p), RULES.rows_of_one_column if p == 1 else 12)
            line = []
            for slope in (1.0, 3.0):
                cases = [([p, job, others], others) for others in (4, 30) for job in range(jobs)]
                made = [fewest(np.random.default_rng(key), wanted, others, p, kind, slope) for key, others in cases]
                line.append(f"{np.mean([told(*one, summary=True).mean() for one in made]):.3f}")
            yield f"  {kind}, p = {p}, {wanted:.1f} rows, {wanted / (p + 1):.1f} a coefficient: {line[0]} and {line[1]}"


@dataclass(frozen=True)
class Beside:
    """Is a prior, and the log-likelihood of clients that answer at draws, as what a summary is added to."""

    prior: Prior
    others: tuple[Rows, ...]

    def curvature(self, xi: Array) -> tuple[Any, ...]:
        """Returns its value, gradient and minus its Hessian."""
        of_prior = self.prior.curvature(xi)
        more = [[own[0] for own in rows.curvature(xi[np.newaxis], 1)[:3]] for rows in self.others]
        return tuple(one + sum(own[k] for own in more) for k, one in enumerate(of_prior[:3]))


def beside(jobs: int) -> Iterator[str]:
    """A summary of as many questions as rows allow, in a job whose other clients answer at draws."""
    yield "\nlikelihood, logistic, summaries asked five times beside others by values: share of rows that is determined, rows"
    for kind in KINDS:
        line = []
        for p in (2, 3, 5):
            wanted, shares = max(RULES.summary * (p + 1), told_by(p + 1, ASKED_OF_ALL) / (CELLS_OF_ALL * p), OF_A_SUMMARY), []
            for job, others in product(range(jobs), (2, 4, 30)):
                random = np.random.default_rng([p, job, others])
                n = len(fewest(random, wanted, others, p, kind)[1])
                layout, rows = federation(random, "bernoulli", [n, others * n, others * n], p, kind)
                asked = curious_rounded.Averaged.of(rows[0], ASKED_OF_ALL, Beside(Prior.usual(layout), tuple(rows[1:])))
                shares.append((curious_rounded.known(asked, rows[0]) < curious.WITHIN).mean())
            line.append(f"p = {p}: {np.mean(shares):.3f} of {n}")
        yield f"  {kind}, " + "; ".join(line)


@dataclass(frozen=True)
class Summary:
    """What a client by a summary is asked, as `curious_rounded.Averaged`, in the units in which it tells it."""

    at: Array
    covariance: Array
    units: tuple[Any, ...]

    @classmethod
    def of(cls, job: Played, rows: Rows) -> Summary:
        """Of the client with these rows."""
        found, own = importance.read_result(job.server), curious_rounded.Numbers.of(job, rows)
        return cls(found.mode, np.linalg.inv(found.precision), (own.of_value, own.of_gradient[-1], own.of_hessian[-1]))

    def told(self, rows: Rows, nodes: int) -> Array:
        """(m,) All numbers."""
        both = [curious_rounded.asked_of(rows, self.at, self.covariance, point=point) for point in (True, False)]
        parts = [np.ravel(number / unit) for one in both for number, unit in zip(one, self.units, strict=True)]
        return np.concatenate(parts) / (OF_QUADRATICS * curious_rounded.OF_ROUNDING)


def summary_levels(jobs: int) -> Iterator[str]:
    """A summary of rows of which some have a value of a column of two to themselves."""
    yield "\nlikelihood, logistic, summaries: share determined of the rows of a level, and of all rows"
    for kind in KINDS:
        for p in (1, 2, 3, 4):
            fewest_rows = RULES.rows_of_one_column if p == 1 else OF_A_SUMMARY
            wanted, line = max(RULES.summary * (p + 2), told_by(p + 2) / (CELLS * (p + 1)), fewest_rows), list[str]()
            for rare in (3, 4, 5):
                shares = []
                for job, others in product(range(jobs), (4, 30)):
                    made, rows = fewest(np.random.default_rng([p, job, others]), wanted, others, p, kind, rare=rare)
                    own = curious_rounded.known(Summary.of(made, rows), rows, [*range(2, rows.X.shape[1])]) < curious.WITHIN
                    shares.append((own[:rare].mean(), own.mean()))
                line.append("{} rows {:.2f}, {:.3f}".format(rare, *np.mean(shares, axis=0)))
            yield f"  {kind}, {p} measurements, {wanted:.1f} effective rows: " + "; ".join(line)


def of_sums(random: np.random.Generator, family: str, p: int, kind: str, share: float, rare: int = 0) -> Array:
    """(n,) Whether each row is determined by masked summaries, whose numbers are that share of the cells of effective rows."""
    d = p + bool(rare) + 1 + len(Layout(("intercept",), family).shapes)
    wanted = told_by(d, ASKED_OF_ALL) / (share * (p + bool(rare)))
    n = int(np.ceil(wanted))
    for _ in range(100):
        _, (rows,) = federation(random, family, [n], p, kind, 1.0 if family == "bernoulli" else 0.5, rare=rare)
        try:
            asked = curious_rounded.Averaged.of(rows, ASKED_OF_ALL)
        except (np.linalg.LinAlgError, RemoteFault):  # of a step too far: a job ends there
            continue
        mean = FAMILIES_OF[family].mean(rows.X @ asked.at[-1][: rows.X.shape[1]])
        w = mean * (1 - mean) if family == "bernoulli" else mean
        X = rows.X
        leverage = w * np.einsum("ni,ij,nj->n", X, np.linalg.pinv((X * w[:, np.newaxis]).T @ X), X)
        if w.sum() ** 2 / (w @ w) >= wanted and leverage.max() <= LEVERAGE:
            break
        n += int(w.sum() ** 2 / (w @ w) < wanted)
    return np.asarray(curious_rounded.known(asked, rows, [*range(1 + bool(rare), rows.X.shape[1])]) < curious.WITHIN)


def summed(jobs: int) -> Iterator[str]:
    """All clients' derivatives, masked: at one point and averaged over normals, of the rows of all but one."""
    yield "\nlikelihood, masked summaries: share of all but one's rows that is determined, by numbers over effective rows' cells"
    for family in ("bernoulli", "poisson", "gamma"):
        for kind in KINDS[:3]:
            for p in (1, 2, 3):
                line = []
                for share in (CELLS, CELLS_OF_ALL, *([CELLS_OF_ONE] if p == 1 else [])):
                    shares = [of_sums(np.random.default_rng([p, job]), family, p, kind, share) for job in range(jobs)]
                    line.append(f"{share}: {np.mean([one.mean() for one in shares]):.3f} of {shares[0].size} rows")
                yield f"  {family}, {kind}, p = {p}: " + "; ".join(line)


def summed_levels(jobs: int) -> Iterator[str]:
    """The same of rows that have a value of a column of two to themselves."""
    yield "\nlikelihood, masked summaries: share determined of the rows of a level, and of all rows"
    for p in (1, 2, 4):
        line = []
        for rare in (2, 3, 4, 5):
            made = [of_sums(np.random.default_rng([p, job]), "bernoulli", p, "normal", CELLS_OF_ALL, rare) for job in range(jobs)]
            line.append(
                "{} rows {:.2f}, {:.3f}".format(rare, *np.mean([(one[:rare].mean(), one.mean()) for one in made], axis=0))
            )
        yield f"  {p} measurements: " + "; ".join(line)


def single(jobs: int) -> Iterator[str]:
    """One column: more rows, until what is determined is a hundredth."""
    yield "\nlikelihood, logistic, one column: values by effective rows a coefficient (alike; others ten times); summaries"
    for kind in ("normal", "lognormal", "t4"):
        line = []
        for a_coefficient in (20, 25, 30, 40):
            made = [
                [logistic(np.random.default_rng([1, job]), a_coefficient, many, 1, kind) for job in range(jobs)]
                for many in (1.0, 5.0)
            ]
            line.append(
                "{}: {:.3f} and {:.3f}".format(a_coefficient, *(np.mean([told(*one).mean() for one in some]) for some in made))
            )
        for n in (16, 20, 24, 32):
            shares = []
            for job in range(2 * jobs):
                layout, rows = federation(np.random.default_rng([1, n, job]), "bernoulli", [n, 4 * n, 4 * n], 1, kind)
                shares.append(told(played(layout, rows, rounds=0), rows[0], summary=True).mean())
            line.append(f"summary of {n} rows: {np.mean(shares):.3f}")
        yield f"  {kind}: " + "; ".join(line)


def levels(jobs: int) -> Iterator[str]:
    """Rows that have a value of a column of two to themselves."""
    yield "\nlikelihood, logistic, the fewest effective rows: share determined of the rows of a level, and of all rows"
    for p in (1, 2, 4):
        many, line = int(RULES.values_of_two_columns if p == 1 else RULES.values), []
        for rare in (1, 2, 3, 5, 7, 10):
            shares = []
            for job in range(jobs):
                made, own = logistic(np.random.default_rng([p, job]), many, 1.0, p, "normal", rare=rare)
                known = curious_rounded.known(made, own, [*range(2, own.X.shape[1])]) < curious.WITHIN
                shares.append((known[:rare].mean(), known.mean()))
            line.append("{} rows {:.2f}, {:.3f}".format(rare, *np.mean(shares, axis=0)))
        yield f"  {p} measurements, {many} rows a coefficient: " + "; ".join(line)


def crossed(jobs: int) -> Iterator[str]:
    """Five rows that have a value of a column of two to themselves, beside a second such column: all cells but a measurement's
    are given."""
    yield "\nlikelihood, logistic, one measurement and two columns of two values: share of the five rows of a value, of all rows"
    layout = Layout(("intercept", "five", "half", "x"), "bernoulli")
    for kind in KINDS[:2]:
        line = []
        for n in (int(RULES.values * len(layout.names)) + 2, 76, 100):
            shares = []
            for job in range(jobs):
                random, clients = np.random.default_rng([7, job, n]), []
                cells = [columns(random, n, 1, kind) for _ in range(3)]
                every = np.concatenate(cells)
                for X in cells:
                    half = random.permutation(n) % 2
                    X = np.column_stack([np.ones(n), np.arange(n) < 5, half, (X - every.mean()) / every.std()]).astype(float)
                    clients.append(Rows(layout, X, drawn(random, "bernoulli", X[:, 3] + 0.3, None), np.array([0, n]), None))
                known = curious_rounded.known(played(layout, clients), clients[0], [3]) < curious.WITHIN
                shares.append((known[:5].mean(), known.mean()))
            line.append("{} rows {:.2f}, {:.3f}".format(n, *np.mean(shares, axis=0)))
        yield f"  {kind}: " + "; ".join(line)


OF_TWO_A_COEFFICIENT = ((2, [3, 4]), (3, [3, 3, 3]), (4, [3, 4, 5]), (5, [3, 3, 3, 4]), (5, [5, 8]))  # columns, groups
GROUPS = ([3] * 5, [3] * 12, [3, 4, 5, 6, 7], [3, *[5] * 6], [1, *[5] * 6], [2] * 15, [1] * 12 + [5] * 5)


def groups(jobs: int) -> Iterator[str]:
    """An intercept of each group."""
    yield "\nlikelihood, an intercept of each group: share of the rows of the smallest groups, and of all, that is determined"
    cases = [("gaussian", p, own) for p, own in OF_TWO_A_COEFFICIENT]
    cases += [(family, p, own) for family in ("gaussian", "bernoulli", "poisson") for p in (1, 2) for own in GROUPS]
    for family, p, own in cases:
        shares = []
        for job in range(max(2, jobs // 2)):
            random = np.random.default_rng([p, job])
            layout, rows = federation(random, family, [sum(own), 120, 120], p, groups=[own, [6] * 20, [6] * 20])
            known = curious_rounded.known(played(layout, rows), rows[0]) < curious.WITHIN
            shares.append((known[np.repeat(own, own) == min(own)].mean(), known.mean()))
        yield f"  {family}, p = {p}, groups of {own}: " + "{:.2f}, {:.3f}".format(*np.mean(shares, axis=0))


def of_sites(
    random: np.random.Generator, n: int, p: int, kind: str, **sections: dict[str, str]
) -> tuple[curious.Seen, Array, Array]:
    """What the first client of a `pvi` job tells, its cells in the parties' units, and its labels."""

    def rows(n: int) -> tuple[Array, Array]:
        X = columns(random, n, p, kind)
        first = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
        return X, (random.random(n) < scipy.special.expit(first + 0.3)).astype(float)

    data = {name: rows(max(n, least)) for name, least in (("a", 0), ("b", 60), ("c", 60))}
    job = {"job": {"method": "pvi"}, "data": {"response": "y"}, "disclosure": {"level": "none"}, **sections}
    with curious.Tape() as tape:
        fedkern.run(job, data=data)
    seen = curious.logistic(tape, 0)
    return seen, (data["a"][0] - seen.centre) / seen.scale, data["a"][1]


SITES = {1: (6, 16, 60, 120), 2: (6, 16, 24, 40), 3: (6, 10, 16, 24), 4: (6, 10, 16), 6: (6, 10, 16)}


def sites(jobs: int) -> Iterator[str]:
    """All messages of `pvi` jobs, which are not rounded."""
    yield "\npvi, logistic, all messages: share of rows that is determined, by rows a coefficient; columns " + ", ".join(KINDS)
    for words, sections in (("full covariance", {}), ("diagonal", {"model": {"covariance": "diagonal"}})):
        for p, several in SITES.items():
            line = []
            for many in several:
                shares = []
                for kind in KINDS:
                    made = [
                        of_sites(np.random.default_rng(job), max(many * (p + 1) + 1, 10), p, kind, **sections)
                        for job in range(jobs)
                    ]
                    shares.append(np.mean([(curious.known(seen, x, 2 * y - 1) < curious.WITHIN).mean() for seen, x, y in made]))
                line.append(f"{many}: " + ", ".join(f"{one:.3f}" for one in shares))
            yield f"  {words}, p = {p}: " + "; ".join(line)


def solver(seconds: float) -> Iterator[str]:
    """Searches."""
    yield f"\nsolved, {seconds:g} s of one core for each case (at draws, by 1,000 of the values)"
    cases = (
        ("values", 12, 1.0, 2),
        ("summary", 10, 4.0, 2),
        ("values", 12, 1.0, 3),
        ("values", 8, 5.0, 2),
        ("summary", 12, 4.0, 3),
    )
    for what, many, others, p in cases:
        random = np.random.default_rng([p, many])
        if what == "values":
            job, own = logistic(random, many, others, p, "normal")
        else:
            layout, rows = federation(random, "bernoulli", [many, int(others * many), int(others * many)], p)
            job, own = played(layout, rows, rounds=0), rows[0]
        seen = curious_rounded.seen(job, own, summary=what == "summary", most=1000)
        began = time.process_time()
        guess = curious.solve(seen, seconds, random, wanted=1)
        named = curious.known(seen, guess.x, guess.sign) < curious.WITHIN if guess.claimed else np.zeros(len(own), bool)
        right = int(curious.matched(own.X[:, 1:], guess.x[named]).sum()) if named.any() else 0
        yield (
            f"  {what}, p = {p}, {len(own)} rows: would name {int(named.sum())}, right {right}; rms residual {guess.misfit:.2g} "
            f"of the noise; {guess.starts} starts, {time.process_time() - began:.0f} s"
        )


def main() -> None:
    """All parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=4, help="federations of a case")
    parser.add_argument("--seconds", type=float, default=180.0, help="of the solver, for each case")
    asked = parser.parse_args()
    parts = {
        one.__name__: one
        for one in (
            values,
            single,
            clusters,
            families,
            scaled,
            summaries,
            beside,
            summary_levels,
            summed,
            summed_levels,
            levels,
            crossed,
            groups,
            sites,
        )
    }
    for name, part in parts.items():
        if not asked.only or name in asked.only:
            for line in part(asked.jobs):
                print(line, flush=True)
    if not asked.only or "solver" in asked.only:
        for line in solver(asked.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
