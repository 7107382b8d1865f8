"""How many rows a curious server computes from the messages of open jobs: the attacks of `tests/support/curious.py`, by size.

    PYTHONPATH=tests python benchmarks/disclosure.py [--seconds 60] [--only NAME ..]
    PYTHONPATH=tests python benchmarks/disclosure.py --seconds 3600 --only least-2    # an hour on 20 rows of two columns

Every message is one that a real job sent; where a line says "full precision" the numbers are what clients sent before
log-likelihoods were rounded and asked for at fewer draws, by the function that computes them. Each case has a budget of CPU
seconds of one core (`--seconds`); an attack goes to larger clients until one fails. "Named": rows that all solutions which
explain the messages agree upon to .05 standard deviations, label and all; "right": those of them that are rows of the client.
"Known" asks no solver: rows whose every cell the messages determine to .05 standard deviations in the neighbourhood of the truth.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fedkern
from fedkern.algorithms.gibbs.settings import MoveTerms, SecondMoveTerms
from fedkern.algorithms.hmc import machine as server
from fedkern.disclosure.rules import COARSE_ROWS, LEAST_ROWS, LEVELS, told_by_values
from fedkern.jobs.run import Run
from support import curious, curious_jobs, curious_likelihood, curious_nested, curious_sums, curious_values

STRICT = LEVELS["strict"]

SIZES = (1, 3, 7, 10, 12, 15, 20, 25, 30)
COLUMNS = (2, 3, 6, 8)
FULL: dict[str, Any] = {"model": {"covariance": "full"}}
DIAGONAL: dict[str, Any] = {"model": {"covariance": "diagonal"}}
SYNCHRONOUS: dict[str, Any] = {"algorithm": {"schedule": "synchronous"}, "model": {"covariance": "full"}}


def processor() -> str:
    """Its name, and whether it has AVX-512."""
    text = Path("/proc/cpuinfo").read_text()
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), platform.machine())
    return f"{name}, AVX-512: {'yes' if 'avx512f' in text else 'no'}"


Told = Callable[[int, int, int], tuple[curious.Seen, np.ndarray, np.ndarray]]  # n, p, seed -> what is seen, x, y


def told(what: str) -> Told:
    """A job whose first client has n rows: a default one if that takes so many, else one that lowers
    `data.least_rows`. What is seen of it, and the truth."""

    def of(n: int, p: int, seed: int) -> tuple[curious.Seen, np.ndarray, np.ndarray]:
        sections = DIAGONAL if "diagonal" in what else SYNCHRONOUS if "synchronous" in what else {}
        enough = n >= curious_jobs.least(p, diagonal=sections is DIAGONAL)
        tape, rows = curious_jobs.logistic(n, p, seed, data={} if enough else curious_jobs.lowered(n), **sections)
        more: dict[str, Any] = {"damping": 1 / 3, "rounds": 60} if sections is SYNCHRONOUS else {}
        seen = curious.logistic(tape, 0, **more)
        if "full precision" in what:
            seen = curious.as_it_was(tape, 0, curious_jobs.encoded(rows, seen), seen)
        kinds = {"values": (curious.Values, curious.Sums), "sites": (curious.Sites, curious.Sums)}
        for name, only in kinds.items():
            if what.startswith(name):
                seen = seen.only(*only)
        return seen, *curious_jobs.standardised(rows, seen)

    return of


LOGISTIC = {
    "values, full precision": "400 log-likelihoods at full precision, as they were once sent, and SchemaReply's sums",
    "sites": "SiteDelta and Slope of the default (sequential, full covariance), and sums",
    "all, diagonal covariance": "all messages of a job with a diagonal covariance",
    "sites, synchronous": "SiteDelta, 60 synchronous rounds, full covariance, and sums",
    "all": "all messages of a default job",
}


def logistic(seconds: float, names: list[str]) -> Iterator[str]:
    """Sizes of a logistic client that are solved."""
    for name, title in LOGISTIC.items():
        if names and name not in names:
            continue
        yield f"\n{title}"
        for p in COLUMNS:
            for n in SIZES:
                line, right = tried(name, n, p, seconds)
                yield line
                if right < n and n > 7:
                    break


def tried(name: str, n: int, p: int, seconds: float) -> tuple[str, int]:
    """One attack on one client, and how many of its rows are right."""
    seen, x, y = told(name)(n, p, 0)
    guess = curious.solve(seen, seconds, np.random.default_rng(1), wanted=1)
    right = curious.recovered(guess, x, y)
    known = int((curious.known(seen, x, 2 * y - 1) < curious.WITHIN).sum())
    return (
        f"  p = {p}, n = {n:2}: named {guess.named.sum():2}, right {right:2}; known {known:2}; rms residual "
        f"{guess.misfit:8.2g} of the noise; {guess.starts:6} starts, {guess.seconds:6.1f} s"
    ), right


def least(seconds: float, columns: tuple[int, ...] = COLUMNS) -> Iterator[str]:
    """A client of the least number."""
    yield "\nA client with the fewest rows that a default job takes, all messages"
    for p in columns:
        yield tried("all", curious_jobs.least(p), p, seconds)[0]


LONGER = (("all", 20, 8), ("all", 20, 6), ("all", 20, 3), ("all", 25, 8), ("all, diagonal covariance", 20, 8))


def longer(seconds: float) -> Iterator[str]:
    """Clients of 20 rows and more, which jobs at the defaults do not take of so many columns."""
    yield "\nJobs that lower the least number, with as many rows as other jobs take of two columns"
    for name, n, p in LONGER:
        yield f"{tried(name, n, p, seconds)[0]}; {LOGISTIC[name]}"


def alone() -> Iterator[str]:
    """Rows that a column of yes or no has to itself."""
    yield "\nRows that a column of yes or no has to itself among 500, all messages: determined to .05 sd, and found by the solver"
    for yes in (1, 3, 5, 10):
        for measured in (1, 2, 4):
            random, data = np.random.default_rng(0), {}
            for name in "abc":
                X = np.column_stack([np.zeros(500), random.normal(size=(500, measured))])
                X[random.choice(500, yes if name == "a" else 50, replace=False), 0] = 1
                data[name] = (X, (random.random(500) < 1 / (1 + np.exp(0.3 - 0.8 * X[:, 0] - 0.7 * X[:, 1]))).astype(float))
            with curious.Tape() as tape:
                fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y", **curious_jobs.FEW}}, data=data)
            seen = curious.singled(curious.logistic(tape, 0), 0, 0.0, yes)
            X, y = (cells[data["a"][0][:, 0] == 1] for cells in data["a"])
            x = (X[:, 1:] - seen.centre) / seen.scale
            known = int((curious.known(seen, x, 2 * y - 1) < curious.WITHIN).sum())
            guess = curious.solve(seen, 10.0, np.random.default_rng(1), wanted=1)
            found = int(curious.matched(x, guess.x).sum())
            yield f"  {yes:2} rows, {measured} measurements: {known:2} determined, {found:2} found; {guess.seconds:.1f} s"


def eigenvectors() -> Iterator[str]:
    """Clients with no more rows than coefficients, of a full covariance."""
    yield "\nSiteDelta, full covariance, three rounds, n <= p + 1: two eigenvalue problems, without a start"
    for n, p in ((10, 9), (20, 19), (20, 30), (30, 30)):
        sections: dict[str, Any] = {"job": {"rounds": 3}, "data": curious_jobs.FEW, **FULL}
        tape, rows = curious_jobs.logistic(n, p, others=(100, 100), **sections)
        seen = curious.logistic(tape, 0)
        guess = curious.by_eigenvectors(seen)
        right = curious.recovered(guess, *curious_jobs.standardised(rows, seen))
        yield f"  p = {p}, n = {n}: right {right}; rms residual {guess.misfit:.1e} of the noise; {guess.seconds:.2f} s"


def determined() -> Iterator[str]:
    """What the messages determine, whoever solves them."""
    yield "\nShare of rows that all messages determine (every cell to .05 sd), by rows a coefficient: two federations"
    for name in ("all", "all, diagonal covariance"):
        for p in COLUMNS:
            line = []
            for times in (2, 3, 4, 5, 6, 8):
                n, shares = times * (p + 1), []
                for seed in range(2):
                    seen, x, y = told(name)(n, p, seed)
                    shares.append((curious.known(seen, x, 2 * y - 1) < curious.WITHIN).mean())
                line.append(f"{times}: {np.mean(shares):.2f}")
            yield f"  {name}, p = {p}: " + ", ".join(line)


def sparse(seconds: float) -> Iterator[str]:
    """Draws of a sparse job."""
    yield "\nLocals of a default sparse regression, 25 rounds of 4 chains: error of the second moments of [X y]"
    for n in (2, 3, 10, 50):
        for p in (2, 5):
            tape, rows = curious_jobs.sparse(n, p)
            began = time.process_time()
            found = curious.moments(tape, 0, seed=curious_jobs.SEED, rows=n, rounds=25, random=np.random.default_rng(0))
            Z = (rows - rows.mean(axis=0)) / curious.scales(tape, 0)
            error = np.abs(found.gram - Z.T @ Z).max()
            yield f"  p = {p}, n = {n:2}: {error:.1e} of {np.abs(Z.T @ Z).max():.3g}; {time.process_time() - began:.1f} s"
    yield "\nLoglik of tempered structural equations, 4 chains: rows up to the columns' means and each row's sign"
    for n, p, rounds in ((5, 3, 60), (10, 3, 200), (20, 3, 200), (30, 3, 400), (40, 3, 400)):
        tape, rows = curious_jobs.equations(n, p, rounds=rounds)
        Y, misfit, used = curious.loglik_rows(
            tape, 0, seed=curious_jobs.SEED, rows=n, p=p, random=np.random.default_rng(0), seconds=seconds
        )
        right = curious.matched_up_to_sign((rows - rows.mean(axis=0)) / curious.scales(tape, 0), Y)
        yield f"  p = {p}, n = {n:2}, {rounds} rounds: right {right:2}; rms residual {misfit:.1e}; {used:.1f} s"


def maps(seconds: float) -> Iterator[str]:
    """Counts of a map."""
    with TemporaryDirectory() as name:
        job = curious_jobs.spatial(Path(name), side=6)
        random = np.random.default_rng(0)
        yield "\nGradients of sigma, a map of 36 areas of four clients, Poisson counts, map and exposures known"
        began = time.process_time()
        found = [curious.told_counts(job.tape, job.map, [k], 2, random)[0] for k in range(4)]
        right = int((np.concatenate(found) == np.concatenate(job.counts)).sum())
        yield f"  each client's own, two rounds: {right} of 36; {time.process_time() - began:.1f} s"
        yield "\nLogTerms of sigma, a client of 9 areas: values at xi about its last value (sd .3), by the client's own function"
        last = curious.gradients(job.tape, 0, 12)[0][-1]
        for k in range(2):
            for what, digits in (("full precision", None), ("thousandths", 3)):
                xi = last + 0.3 * np.random.default_rng(k).standard_normal((400, len(last)))
                values = job.map.terms(k, job.counts[k], xi)
                values = values if digits is None else np.round(values, digits)
                began = time.process_time()
                y, left = curious.counts_of_terms(job.map, k, xi[:60], values[:60], random, seconds)
                right = int((y == job.counts[k]).sum())
                used = time.process_time() - began
                yield f"  client {k + 1}, {what}, 60 of the values: {right} of 9, left {left:.1e}; {used:.1f} s"
        for rounds in (6, 12):
            began = time.process_time()
            y, left = curious.told_counts(job.tape, job.map, range(4), rounds, random, starts=1)
            right = int((y == np.concatenate(job.counts)).sum())
            used = time.process_time() - began
            yield f"  gradients, only the sum of four clients', {rounds} rounds: {right} of 36, left {left:.1e}; {used:.1f} s"


def nested() -> Iterator[str]:
    """Counts of a map, from the first question of a nested Laplace approximation."""
    sections: dict[str, Any] = {"algorithm": {"inference": "nested"}}
    random = np.random.default_rng(0)
    yield "\nCurvatures of sigma, nested, a map of four clients, Poisson counts, map and exposures known: the first question"
    with TemporaryDirectory() as name:
        job = curious_jobs.spatial(Path(name), side=6, **sections)
        began = time.process_time()
        told = [curious_nested.Told.of(job, k) for k in range(4)]
        found = [curious_nested.counts(job, [k], told[k], random).y for k in range(4)]
        right = int((np.concatenate(found) == np.concatenate(job.counts)).sum())
        yield f"  each client's own, {told[0].answers.size} numbers: {right} of 36; {time.process_time() - began:.1f} s"
    with TemporaryDirectory() as name:
        job = curious_jobs.spatial(Path(name), **sections)
        began = time.process_time()
        together = curious_nested.Told.summed([curious_nested.Told.of(job, k) for k in range(4)])
        y = curious_nested.counts(job, [*range(4)], together, random).y
        right = int((y == np.concatenate(job.counts)).sum())
        yield f"  only the sum of four clients': {right} of 16; {time.process_time() - began:.1f} s"
    most = 4
    with TemporaryDirectory() as name:
        job = curious_jobs.spatial(Path(name), hidden=most, **sections)
        began, those, others, sent = time.process_time(), 0, 0, 0
        hidden = [truth <= most for truth in job.counts]
        for k, (truth, own) in enumerate(zip(job.counts, hidden)):
            one = curious_nested.suppressed(job, k, curious_nested.Told.of(job, k), most)
            those += int((one.interval == own).sum())
            others += int((one.y == truth)[~own & ~one.interval].sum())
            last = np.where(one.interval, float(most), one.y)
            sent += curious_nested.replayed(job, k, one.y, last if one.interval.any() else None)
        number, used = int(np.concatenate(hidden).sum()), time.process_time() - began
        yield f"  {number} of 16 counts suppressed: which are, {those} of 16 right; others' counts {others} of {16 - number};"
        yield f"  from these, and intervals, all {sent} messages of rows come out bit for bit; {used:.1f} s"
    right, same, sent, used = 0, 0, 0, 0.0
    for seed in range(3):
        with TemporaryDirectory() as name:
            job = curious_jobs.spatial(Path(name), seed=seed, **sections, privacy={"epsilon": 1.0})
            began = time.process_time()
            for k, truth in enumerate(job.counts):
                (path,) = (Path(name) / "run" / f"client-{job.map.model.names[k]}").glob("noisy-*.json")
                noisy = np.array(json.loads(path.read_text())["counts"], float)
                y = curious_nested.noisy(job, k, curious_nested.Told.of(job, k), random).y
                right, same = right + int((y == noisy).sum()), same + int((y == truth).sum())
                sent += curious_nested.replayed(job, k, y, curious_nested.noise(job))
            used += time.process_time() - began
    chance = float(np.tanh(curious_nested.noise(job).decay / 2))
    yield f"  unit = case, epsilon 1, three jobs: noisy counts {right} of 48 ({same} have noise of 0, a chance of {chance:.2f});"
    yield f"  from these all {sent} messages of rows come out bit for bit; {used:.1f} s"


def sums() -> Iterator[str]:
    """Messages that are sums: of a move."""
    yield "\nMoveTerms of the first round, 4 chains: error of X'X and X'y"
    for n in (2, LEAST_ROWS):
        tape, rows = curious_jobs.sparse(n, rounds=6, algorithm={"moves": ["translate", "interweave"]})
        centred = (rows - rows.mean(axis=0)) / curious.scales(tape, 0)
        for kind in (MoveTerms, SecondMoveTerms):
            error = np.abs(curious_sums.of_moves(tape, 0, kind) - (centred.T @ centred)[:, :-1]).max()
            yield f"  {kind.__name__}, n = {n}: {error:.1e}"


POSSIBLE = (  # whether of ages, columns of yes or no, sections of the job, rows
    (True, 0, {}, (20, 50, 100, 200, 300, 500, 700, 1000, COARSE_ROWS)),
    (True, 1, {}, (20, 100, 200, 300, 500, COARSE_ROWS)),
    (True, 2, {}, (20, 100, 200)),
    (False, 4, {}, (20, 1000, 5000)),
    (False, 6, {}, (20, 1000, 5000)),
    (True, 0, {"model": {"covariance": "diagonal"}}, (20, 100, 200, 500)),
    (True, 0, {"model": {"family": "poisson"}}, (20, 50, 100, 200)),
)


def combinations() -> Iterator[str]:
    """Covariates of few values: how often each combination of them occurs."""
    yield "\nSiteDelta, Slope and sums, covariates of few values: frequencies of all possible rows, by LLL and nearest plane"
    try:
        import flint  # noqa: F401
    except ImportError:
        yield f"  left out: {curious_values.NEEDS}"
        return
    for ages, yes_no, sections, sizes in POSSIBLE:
        model: dict[str, str] = sections.get("model", {})
        possible = curious_jobs.possible_values(ages, yes_no)
        words = " and ".join([*(["age"] if ages else []), *([f"{yes_no} of yes or no"] if yes_no else []), *model.values()])
        for n in sizes:
            right = []
            for seed in range(2):
                tape, rows = curious_jobs.few_values(n, ages, yes_no, seed, **sections)
                told = curious_values.told(tape, 0, possible, model.get("family", "bernoulli"))
                found = curious_values.frequencies(told)
                right.append(bool((found.frequencies == curious_values.of_rows(rows.X, possible)).all()))
            yield (
                f"  {words}, {len(possible)} possible, n = {n:4}: all rows in {sum(right)} of {len(right)}; {found.bits:.0f} "
                f"bits told, shortest {found.shortest:.3g} sds; {found.seconds:.1f} s"
            )


TRIED = ((10, 2), (15, 2), (20, 2), (20, 3), (25, 3), (30, 3), (20, 6))
GROUPS = ([8, 8, 8, 7, 6, 1], [9, 8, 8, 7, 6, 5, 5, 4, 1], [30, 25, 20, 12, 1], [100, 80, 50, 30, 1], [12] * 10 + [1, 1])


def likelihood(seconds: float) -> Iterator[str]:
    """Curvatures at Newton's points and log-likelihoods at 4,096 draws."""
    what = "Curvature, Values and SchemaReply's sums"
    yield f"\nlikelihood: share of rows that {what} determine (every cell to .05 sd), by rows a coefficient"
    for p in COLUMNS[:3]:
        line = []
        for times in (2, 4, 6, 8, 10, 12, told_by_values(1, STRICT) + 1):
            n = times * (p + 1)
            tape, rows = curious_likelihood.logistic(n, p, others=(2 * n, 2 * n))
            seen = curious_likelihood.seen(tape, 0, most=4096)
            x, y = curious_jobs.standardised(rows, seen)
            line.append(f"{times}: {(curious.known(seen, x, 2 * y - 1) < curious.WITHIN).mean():.2f}")
        yield f"  p = {p}: " + ", ".join(line)
    yield "\nlikelihood: the same solved, labels where there are 20 rows at most"
    for n, p in TRIED:
        tape, rows = curious_likelihood.logistic(n, p)
        seen = curious_likelihood.seen(tape, 0)
        x, y = curious_jobs.standardised(rows, seen)
        guess = curious.solve(seen, seconds, np.random.default_rng(1), wanted=1)
        cells, labelled = int(curious.matched(x, guess.x).sum()), curious.recovered(guess, x, y)
        yield (
            f"  p = {p}, n = {n:2}: cells of {cells:2} right, {labelled:2} named with label; rms residual {guess.misfit:8.2g} "
            f"of the noise; {guess.starts:6} starts, {guess.seconds:6.1f} s"
        )


def groups() -> Iterator[str]:
    """The same of a gaussian response with an intercept of each group."""
    yield "\nlikelihood, gaussian, an intercept of each group: groups of one row by least squares, sizes of groups not known"
    for sizes in GROUPS:
        tape, rows, group = curious_likelihood.groups(sizes, least_rows=LEAST_ROWS - 1)
        began = time.process_time()
        number, products = curious_likelihood.by_size(tape, 0, max(sizes) + 1)
        used = time.process_time() - began
        alone = rows[np.isin(group, np.flatnonzero(np.array(sizes) == 1))].sum(axis=0)
        error = np.abs(products[0, 0, 1:] - alone).max()
        yield f"  sizes {sizes}: of one row {number[0]:.3f}, their sum to {error:.2g}; {used:.2f} s"


def chains() -> Iterator[str]:
    """What chains are told, and sums of marginal effects, of the fewest rows that are taken."""
    yield "\nlikelihood, the fewest rows that are taken, three clients alike: share that is determined (every cell to .05 sd)"
    now = server.FAR
    for p in (1, 2, 3):
        n = told_by_values(p + 1, STRICT) + 1
        for sampler, words, far in (
            ("importance", "importance", now),
            ("hmc", "chains that go anywhere, as they did", np.inf),
            ("hmc", f"chains within {now:g} sds", now),
        ):
            server.FAR = far
            sections: dict[str, Any] = {"algorithm": {"sampler": sampler}, "output": {"marginal": True}}
            tape, rows = curious_likelihood.logistic(n, p, 0, (n, n), **sections)
            server.FAR = now
            seen = curious_likelihood.seen(tape, 0, most=4096)
            x, y = curious_jobs.standardised(rows, seen)
            effects = curious_likelihood.of_marginal(tape, 0, seen.scale)
            more = [*curious_likelihood.of_chains(tape, 0)] if sampler == "hmc" else []
            line = []
            for name, terms in (
                ("all", (*seen.terms, *more)),
                ("with marginal effects", (*seen.terms, *more, effects)),
                ("these alone", (effects,)),
            ):
                told = replace(seen, terms=terms)
                line.append(f"{name} {(curious.known(told, x, 2 * y - 1) < curious.WITHIN).mean():.2f}")
            residual, _ = replace(seen, terms=(effects,)).system(curious.z_of(x[None], (2 * y - 1)[None]), (2 * y - 1)[None])
            assert np.abs(residual).max() < 2  # the sums are these
            yield f"  p = {p}, n = {n}, {words}: " + ", ".join(line)


SLOPED: tuple[tuple[str, int, list[int]], ...] = (
    ("gaussian", 2, [8, 8, 8, 7, 7, 9, 10, 2, 2, 2]),
    ("gaussian", 2, [2] * 30),
    ("gaussian", 2, [2] * 60),
    ("gaussian", 2, [4] * 60 + [2] * 10),
    ("gaussian", 2, [4] * 60 + [1]),
    ("gaussian", 2, [4] * 5 + [3] * 10),
    ("bernoulli", 2, [2] * 30),
    ("bernoulli", 2, [4] * 23),
    ("bernoulli", 2, [4] * 32),
    ("bernoulli", 2, [4] * 49),
    ("bernoulli", 1, [4] * 32),
    ("bernoulli", 1, [4] * 45),
)


def sloped() -> Iterator[str]:
    """Random slopes, by sizes of groups."""
    yield "\nlikelihood, a random slope, three clients alike, least_rows lowered: rows that are determined, by size of group"
    for family, p, sizes in SLOPED:
        tape, X, y, group = curious_likelihood.sloped(sizes, sizes, p, family)
        known = curious_likelihood.known_of_slopes(tape, 0, X, y, group, family) < curious.WITHIN
        of = np.array(sizes)[group]
        words = ", ".join(f"{int(known[of == m].sum())} of {int((of == m).sum())} in groups of {m}" for m in np.unique(of))
        yield f"  {family}, p = {p}, n = {len(y)}: {words}"


def weighed() -> Iterator[str]:
    """Logistic clients of whose rows few have weight."""
    yield "\nlikelihood, logistic, three clients alike: share that is determined, by the effective number of rows"
    for p, n in ((1, 31), (2, 46), (2, 92), (3, 61), (3, 122)):
        for slope in (1.0, 2.0, 4.0, 1e3):
            tape, rows = curious_likelihood.logistic(n, p, 0, (n, n), slope, data={"response": "y", "least_rows": LEAST_ROWS - 1})
            seen = curious_likelihood.seen(tape, 0, most=4096)
            x, y = curious_jobs.standardised(rows, seen)
            at = curious_likelihood.Answers.of(tape, 0).places[-1]
            chance = 1 / (1 + np.exp(-at[0] - x @ at[1:]))
            w = chance * (1 - chance)
            share = (curious.known(seen, x, 2 * y - 1) < curious.WITHIN).mean()
            number = w.sum() ** 2 / (w * w).sum() / (p + 1)
            yield f"  p = {p}, n = {n:3}, slope {slope:4g}: {share:.2f}; {number:.1f} a coefficient"


def rounds() -> Iterator[str]:
    """Eight rounds of draws, which a job may ask for."""
    yield "\nlikelihood, the fewest rows that are taken, three clients alike, eight rounds of draws: share that is determined"
    for p in (2, 3):
        n = told_by_values(p + 1, STRICT) + 1
        tape, rows = curious_likelihood.logistic(n, p, 0, (n, n), algorithm={"effective": 1e9})
        seen = curious_likelihood.seen(tape, 0, most=32768)
        x, y = curious_jobs.standardised(rows, seen)
        values = [term for term in seen.terms if isinstance(term, curious.Values)]
        fine = tuple(replace(one, noise=min(one.noise, curious.ROUNDED)) for one in values)
        others = tuple(term for term in seen.terms if not isinstance(term, curious.Values))
        line = []
        for words, terms in (("all in thousandths, as it was", fine), ("later ones coarser", values), ("one round", values[:2])):
            told = replace(seen, terms=(*others, *terms))
            line.append(f"{words} {(curious.known(told, x, 2 * y - 1) < curious.WITHIN).mean():.2f}")
        yield f"  p = {p}, n = {n}: " + ", ".join(line)


def anew() -> Iterator[str]:
    """Responses that a client draws anew, by numbers of the seed, as they once were, and by its own."""
    yield "\nlikelihood, gaussian, an intercept of each group: covariates from Replicated alone, by least squares from zeros"
    own = Run.secret_key
    for n, p in ((20, 2), (31, 2), (60, 3), (100, 2)):
        for words, key in (("numbers of the seed, as it was", curious_likelihood.of_the_seed(0)), ("own numbers", None)):
            Run.secret_key = own if key is None else (lambda *about: curious_likelihood.of_the_seed(0))  # type: ignore[method-assign]
            tape, X = curious_likelihood.linear(n, p)
            Run.secret_key = own  # type: ignore[method-assign]
            began = time.process_time()
            found, misfit = curious_likelihood.drawn_anew(tape, 0, n, curious_likelihood.of_the_seed(0))
            used, off = time.process_time() - began, np.abs(found - X).max(axis=1)
            right = int((off < curious.WITHIN).sum())
            error = f"worst cell off {off.max():.1e}; residual {misfit:.1e}"
            yield f"  p = {p}, n = {n:3}, {words}: {right} right, {error}; {used:.1f} s"


def main() -> None:
    """All, or those that are named: one of LOGISTIC, sparse, maps, nested, least (least-2: of two columns), longer, alone,
    eigenvectors, determined, sums, combinations, likelihood, groups, anew, chains, rounds, sloped, weighed."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60.0, help="of CPU for each case")
    options.add_argument("--only", nargs="*", default=[])
    o = options.parse_args()
    print(
        f"{processor()}; at most {o.seconds:g} s of one core for each case; data.least_rows is {LEAST_ROWS} by default",
        flush=True,
    )
    parts: dict[str, Callable[[], Iterator[str]]] = {"sparse": lambda: sparse(o.seconds), "maps": lambda: maps(o.seconds)}
    parts |= {"nested": nested, "least": lambda: least(o.seconds), "longer": lambda: longer(o.seconds), "alone": alone}
    parts |= {"eigenvectors": eigenvectors, "determined": determined, "combinations": combinations, "sums": sums}
    parts |= {
        "likelihood": lambda: likelihood(o.seconds),
        "groups": groups,
        "anew": anew,
        "chains": chains,
        "rounds": rounds,
        "sloped": sloped,
        "weighed": weighed,
    }
    if one := [int(name.removeprefix("least-")) for name in o.only if name.startswith("least-")]:
        parts = {"least": lambda: least(o.seconds, tuple(one)), **{name: parts[name] for name in parts if name != "least"}}
        o.only.append("least")
    if not o.only or set(o.only) & set(LOGISTIC):
        for line in logistic(o.seconds, [name for name in o.only if name in LOGISTIC]):
            print(line, flush=True)
    for name, part in parts.items():
        if not o.only or name in o.only:
            for line in part():
                print(line, flush=True)


if __name__ == "__main__":
    main()
