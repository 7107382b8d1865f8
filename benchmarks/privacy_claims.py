"""True against claimed epsilon, for every sampler, unit and release.

    python benchmarks/privacy_claims.py

Claimed: what `fedkern check` plans and the certificate says. True: of the two neighbours that differ most, from the definition of
the mechanism alone, by `fedkern.privacy.losses`, which has nothing of dp-accounting: both bounds are printed. (Without sampling
the claim is the closed form; there the upper bound may exceed it by its own rounding, 1e-8.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedkern.algorithms.split import private as vertical_private
from fedkern.jobs.keys import CountsPrivacySection
from fedkern.methods import parse
from fedkern.methods.pvi import budget as terms
from fedkern.methods.pvi.keys import Config
from fedkern.methods.sigma import budget as sigma_private
from fedkern.privacy.accountant import Mechanism, Parts, epsilon
from fedkern.privacy.certificate import compute_group_privacy
from fedkern.privacy.losses import CELLS, POINTS, Pair, added, both_ways, bounds, neighbours, replaced
from fedkern.privacy.noise import GRID

# --- the cases


@dataclass(frozen=True)
class Case:
    """A claim, and all pairs of neighbours that it is about.

    Attributes
    ----------
    name : of the sampler, the unit and the release
    parts : of the claim; the first one's steps are `steps`
    delta : of the claim
    pairs : for each choice of neighbours, the pair of each part
    tight : whether at least .97 of the claim is wanted
    people : rows of one person
    """

    name: str
    parts: Parts
    delta: float
    pairs: Sequence[Sequence[Pair]]
    tight: bool = False
    people: int = 1

    @property
    def claimed(self) -> tuple[float, float]:
        """(epsilon, delta) of the certificate."""
        claim = epsilon(self.parts, self.delta)
        return compute_group_privacy(claim, self.delta, self.people) if self.people > 1 else (claim, self.delta)

    def true(self, points: int = POINTS, n_cells: int = CELLS) -> tuple[float, float]:
        """The largest epsilon over the pairs: from below and from above."""
        delta = self.claimed[1]
        ends = [
            bounds([(pair, m.sigma, steps) for pair, (m, steps) in zip(choice, self.parts)], delta, points, n_cells)
            for choice in self.pairs
        ]
        return max(low for low, _ in ends), max(high for _, high in ends)


def planned(rounds: int, variant: str = "pvi", local_steps: int = 1, **privacy: Any) -> tuple[Mechanism, int]:
    """The mechanism and the number of steps that a job's plan has, for 5 coefficients and 200 clients."""
    shards = {"shards": 50} if variant in ("local-averaging", "virtual-clients") else {}
    config = parse(
        {
            "job": {"rounds": rounds},
            "data": {"clients": ["*.csv"], "response": "y", "row_id": "id"},
            "algorithm": {"variant": variant, "local_steps": local_steps, "schedule": "sequential", **shards},
            "privacy": {"epsilon": math.inf, "delta": 1e-5, "clip": 1.5, **privacy},
        }
    )
    assert isinstance(config, Config)
    plan = terms.plan(config.spending, "a", terms.Sizes(5, 200))
    return plan.mechanism, plan.steps


def single(name: str, part: tuple[Mechanism, int], delta: float = 1e-5, people: int = 1) -> Case:
    """One mechanism, its neighbours those of the certificate."""
    m, _ = part
    if m.relation == "ADD_OR_REMOVE_ONE":
        pairs = both_ways(added(m, people))
    elif people > 1:
        pairs = [({people: 1.0}, {-people: 1.0})]
    else:
        pairs = replaced(m)
    tight = m.accountant == "pld" and m.relation == "ADD_OR_REMOVE_ONE" and people == 1
    return Case(name, (part,), delta, [[pair] for pair in pairs], tight, people)


@dataclass(frozen=True)
class Counts(Case):
    """Noisy tables of counts, one step each: epsilon is the hockey stick's root over the noise itself, of a person who has as
    many cases in every table as any of them is for."""

    def true(self, points: int = POINTS, n_cells: int = CELLS) -> tuple[float, float]:
        near, far, decays = np.ones(1), np.ones(1), [m.decay * GRID for m, _ in self.parts]
        cases = max(int(m.clip) for m, _ in self.parts)
        for decay in decays:
            k = np.arange(-math.ceil(40 / decay), math.ceil(40 / decay) + cases + 1)
            one, other = (np.tanh(decay / 2) * np.exp(-decay * np.abs(k - moved)) for moved in (0, cases))
            near, far = np.outer(near, one).ravel(), np.outer(far, other).ravel()
        low, high = 0.0, 2 * cases * sum(decays)
        for _ in range(60):
            middle = (low + high) / 2
            spent = np.maximum(near - math.exp(middle) * far, 0.0).sum() > self.delta + 1e-15
            low, high = (middle, high) if spent else (low, middle)
        return low, high


def counted(name: str, *tables: tuple[float, int], delta: float = 0.0) -> Counts:
    """Of spatial jobs' plans, each of (epsilon, cases of a person)."""
    sections = [CountsPrivacySection(epsilon=epsilon, cases_per_person=cases, delta=delta) for epsilon, cases in tables]
    plans = [sigma_private.plan(section) for section in sections]
    return Counts(name, tuple((plan.mechanism, plan.steps) for plan in plans), delta, (), tight=True)


FIXED: dict[str, Any] = {"sampling": "without-replacement", "dataset_size": 1000, "noise_multiplier": 4.0}
CUT: dict[str, Any] = {"sampling": "poisson-truncated", "dataset_size": 1000, "noise_multiplier": 4.0}
CLIENTS: dict[str, Any] = {"unit": "client", "delta": 1e-4}


def small() -> Iterator[Case]:
    """At least one case of every sampler, unit and release, none of them with many steps."""
    yield single("rows, poisson", planned(40, local_steps=5, sampling_rate=0.02, noise_multiplier=2.0))
    yield single("rows, poisson at rate 1", planned(5, sampling_rate=1.0, noise_multiplier=5.0))
    yield single("rows, poisson, much of the data", planned(20, sampling_rate=0.4, noise_multiplier=3.0))
    yield single("rows, poisson, little noise", planned(3, sampling_rate=0.01, noise_multiplier=0.6))
    yield single("rows, poisson, rdp", planned(40, local_steps=5, sampling_rate=0.02, noise_multiplier=2.0, accountant="rdp"))
    yield single("rows, global VI", planned(100, "global-vi", 7, sampling_rate=0.05, noise_multiplier=2.0))
    yield single("rows, full", planned(10, sampling="full", noise_multiplier=10.0))
    yield single("rows, full, rdp", planned(10, sampling="full", noise_multiplier=10.0, accountant="rdp"))
    yield single("rows, without replacement", planned(100, batch_size=20, **FIXED))
    yield single("rows, poisson, cut often", planned(100, sampling_rate=0.02, max_batch=20, **CUT))
    yield single("rows, poisson, cut almost always", planned(20, sampling_rate=0.2, max_batch=50, **CUT))
    yield single("rows, poisson, cut hardly ever", planned(100, sampling_rate=0.02, max_batch=60, **CUT))
    yield single("shards, local averaging", planned(10, "local-averaging", 25, noise_multiplier=16.0))
    yield single("shards, virtual clients, rdp", planned(10, "virtual-clients", 25, noise_multiplier=16.0, accountant="rdp"))
    yield single("clients, all", planned(10, noise_multiplier=4.0, **CLIENTS), 1e-4)
    yield single("clients, client_rate 0.1", planned(100, client_rate=0.1, noise_multiplier=1.0, **CLIENTS), 1e-4)
    columns = vertical_private.mechanism(500, 10, 40.0)
    yield single("columns, vertical", (columns, vertical_private.releases(50)))
    yield single("columns, vertical, rdp", (replace(columns, accountant="rdp"), vertical_private.releases(50)))
    yield single("3 rows a person, poisson", planned(20, sampling_rate=0.02, noise_multiplier=2.0), 1e-7, 3)
    yield single("3 rows a person, full", planned(2, sampling="full", noise_multiplier=12.0), 1e-7, 3)
    yield single("3 rows a person, shards", planned(2, "local-averaging", noise_multiplier=24.0), 1e-7, 3)
    yield counted("counts of areas", (1.0, 1))
    yield counted("counts of areas, 3 cases a person", (1.0, 3))
    yield counted("counts of areas, 1 case + 3 cases a person", (1.0, 1), (1.0, 3))
    yield counted("counts of areas, 3 cases + 1 case a person, delta", (0.5, 3), (1.0, 1), delta=1e-3)
    yield counted("counts of areas, 2 cases + 5 cases a person", (1.0, 2), (2.0, 5))
    yield from together()


def together() -> Iterator[Case]:
    """Two mechanisms on the same rows: each pair of kinds that one account can hold."""
    columns = vertical_private.mechanism(1000, 10, 40.0)
    kinds = {
        "poisson": planned(50, sampling_rate=0.02, noise_multiplier=2.0),
        "full": planned(4, sampling="full", noise_multiplier=9.0),
        "shards": planned(4, "local-averaging", noise_multiplier=16.0),
        "vertical": (columns, vertical_private.releases(10)),
        "without replacement": planned(50, batch_size=20, **FIXED),
        "cut": planned(50, sampling_rate=0.02, max_batch=20, **CUT),
    }
    kinds |= {f"{name}, rdp": (replace(kinds[name][0], accountant="rdp"), kinds[name][1]) for name in [*kinds][:4]}
    for (name, one), (more, other) in itertools.combinations_with_replacement(kinds.items(), 2):
        parts = (one, other)
        sums_of_rows = all(m.relation == "ADD_OR_REMOVE_ONE" for m, _ in parts)
        tight = sums_of_rows and all(m.accountant == "pld" for m, _ in parts)
        yield Case(f"rows, {name} + {more}", parts, 1e-5, neighbours([m for m, _ in parts]), tight)


def large() -> Iterator[Case]:
    """Whole jobs."""
    yield single("rows, poisson, Adult", planned(234, local_steps=25, sampling_rate=79 / 3907, noise_multiplier=5.0), 1e-4)
    yield single("rows, poisson, 10,000 steps", planned(400, local_steps=25, sampling_rate=0.001, noise_multiplier=0.8), 1e-6)
    yield single("rows, without replacement, 1,000 steps", planned(40, local_steps=25, batch_size=20, **FIXED))
    yield single("rows, poisson, cut, 1,000 steps", planned(40, local_steps=25, sampling_rate=0.02, max_batch=25, **CUT))
    clients = planned(1000, client_rate=0.01, noise_multiplier=1.0, **CLIENTS)
    yield single("clients, client_rate 0.01, 1,000 rounds", clients, 1e-4)


def main() -> None:
    print(f"{'':42} {'steps':>6} {'delta':>8} {'claimed':>9} {'true, from':>11} {'to':>9}  true / claimed")
    for case in (*small(), *large()):
        claimed, delta = case.claimed
        low, high = case.true()
        steps = "+".join(str(steps) for _, steps in case.parts)
        numbers = f"{case.name:42} {steps:>6} {delta:8.1e} {claimed:9.5f} {low:11.5f} {high:9.5f}"
        print(f"{numbers}  {low / claimed:.4f} to {high / claimed:.4f}")


if __name__ == "__main__":
    main()
