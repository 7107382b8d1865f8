"""Random federations whose clients do not wait for one another, by their distance from the synchronous optimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedkern.algorithms.sfvi import machine as of_sfvi
from fedkern.algorithms.split import machine as split
from fedkern.models.split import site as split_site
from support import chosen, clocks, federations, hierarchical, vertical_cases

LAWS = (clocks.exponential, clocks.pareto)
QUESTIONS = (of_sfvi.Global, of_sfvi.Start, split.Begin, split.Residual, split.PredictorSum)
Moments = tuple[np.ndarray, np.ndarray]  # means and sds


class Away(NamedTuple):
    """mean, sd: the largest distance from the optimum, in sds and as a share; `other_mean`, `other_sd`: of a synchronous fit.

    `slower`: the time that the synchronous rounds take on these clocks, over that of the asynchronous ones.
    """

    mean: float
    sd: float
    settled: bool
    slower: float
    other_mean: float
    other_sd: float


def distance(one: Moments, other: Moments) -> tuple[float, float]:
    return float((np.abs(one[0] - other[0]) / other[1]).max()), float(np.abs(one[1] / other[1] - 1).max())


def played(machine: Any, started: Any, clients: dict[int, Any], seed: int) -> tuple[Any, dict[int, Any], float]:
    """The last states, and how much longer synchronous rounds would have taken."""
    n = len(clients)
    means = np.random.default_rng(seed).uniform(1.0, 3.0, n)
    law = LAWS[seed % 2]
    *_, (now, server) = clocks.play(started, clients, law(means, seed), machine=machine, works=QUESTIONS)
    seconds = law(means, seed + 1)
    waited = sum(max(seconds(k) for k in range(n)) for _ in range(server.round))
    return server, clients, waited / now


def linear(seed: int) -> list[Any]:
    """Three or four clients with one unknown each; the first of every second pair of federations has many more rows."""
    n = int(np.random.default_rng(seed).integers(3, 5))
    models = hierarchical.linear([1] * n, n_global=2, n=12, seed=seed)
    if seed % 4 >= 2:
        models[0] = hierarchical.linear([1], n_global=2, n=40, seed=seed + 1000)[0]
    return models


def stands(server: Any, clients: dict[int, Any]) -> bool:
    """Whether nothing moved any more before the rate fell, as the verdict of a job judges at whichever length it ended."""
    return all(one.windows.movement.settled for one in (server, *clients.values()))


def of_joint(moments: Moments) -> Moments:
    return moments[0], np.sqrt(np.diag(moments[1]))


def sfvi(seed: int, *, beside: bool = True) -> Away:
    models = linear(seed)
    s = chosen.sfvi(rounds=1525, most=10_000, learning_rate=0.02, seed=seed)
    optimum = of_joint(hierarchical.exact(models))
    alike = (float("nan"),) * 2
    if beside:
        alike = distance(of_joint(hierarchical.joint(*hierarchical.run(models, s)[:2])), optimum)
    server, clients, slower = played(of_sfvi, *hierarchical.machines(models, replace(s, lead=8)), seed)
    found = distance(of_joint(hierarchical.joint(server, clients)), optimum)
    return Away(*found, stands(server, clients), slower, *alike)


def averaged(seed: int, rounds: int = 10_000, of_optimum: int = 20_000) -> Away:
    models = linear(seed)[:3]
    s = chosen.sfvi(rounds=rounds, learning_rate=0.02, local_steps=2, seed=seed)
    optimum = of_sfvi.posterior_moments(hierarchical.run(models, replace(s, rounds=of_optimum))[0])
    alike = of_sfvi.posterior_moments(hierarchical.run(models, s)[0])
    server, _, slower = played(of_sfvi, *hierarchical.machines(models, replace(s, lead=8)), seed)
    found, other = (distance(of_joint(one), of_joint(optimum)) for one in (of_sfvi.posterior_moments(server), alike))
    return Away(*found, False, slower, *other)


def columns(seed: int, s: Any, n: int = 60) -> tuple[Any, dict[int, Any]]:
    """Logistic rows of which three clients have the columns."""
    random = np.random.default_rng(seed)
    X = [random.standard_normal((n, p)) for p in (2, 1, 2)]
    y = (random.random(n) < 1 / (1 + np.exp(-np.hstack(X) @ random.standard_normal(5)))).astype(float)
    likelihood = vertical_cases.LIKELIHOODS["bernoulli"]
    auxiliary = split_site.Auxiliary("amortised", 0.5, (8,), ("centre", "residual"))
    sites = [split_site.Site(split_site.Linear(x), auxiliary, full=True) for x in X]
    shared = split_site.Shared(likelihood, n, len(X))
    clients = {k: split.client(f"c{k}", k, s, site) for k, site in enumerate(sites)}
    return split.start(s, shared, ("c0", "c1", "c2"), y), clients


def of_columns(server: Any, clients: dict[int, Any]) -> Moments:
    """Of the intercept and all coefficients."""
    blocks = [(server.shared.block, server.released)]
    blocks += [(one.site.block, one.released[one.site.parts["theta"]]) for one in clients.values()]
    means, sds = zip(*((p[: block.size], block.sd(p)) for block, p in blocks))
    return np.concatenate(means), np.concatenate(sds)


def vertical(seed: int, rounds: int = 10_000, of_optimum: int = 60_000) -> Away:
    s = chosen.split(
        rounds=rounds, n_rows=60, n_clients=3, seed=seed, average="half", cool_down=0.5, memory="rising", learning_rate=0.01
    )
    optimum = of_columns(*federations.play(split, *columns(seed, replace(s, rounds=of_optimum)))[:2])
    alike = of_columns(*federations.play(split, *columns(seed, s))[:2])
    server, clients, slower = played(split, *columns(seed, replace(s, lead=8)), seed)
    return Away(*distance(of_columns(server, clients), optimum), False, slower, *distance(alike, optimum))
