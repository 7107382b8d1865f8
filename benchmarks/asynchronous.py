"""How long asynchronous clients take, beside those that wait for one another:
`python benchmarks/asynchronous.py [--clients 8 | --ranks]`.

One process, simulated clocks: an update takes a client a time of its own, messages take none. The time until q is within .1 sd of
the posterior of all rows (and its sds within 5 %), over seeds, of logistic federations with exact full sites; private ones are
compared at the same number of paid updates. Writes `results/asynchronous-N.txt`. `--ranks`: real time, of a server and eight
clients that are ranks of MPI, one of which is slow; `results/asynchronous-ranks.txt`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fedkern.algorithms.core.messages import Charge, Charged, ChargeFailed  # noqa: E402
from fedkern.algorithms.pvi import machine as pvi  # noqa: E402
from fedkern.algorithms.pvi.local import Local  # noqa: E402
from fedkern.algorithms.pvi.messages import QUpdate  # noqa: E402
from fedkern.methods.pvi.model import LEAD  # noqa: E402
from fedkern.models.expfam import Gaussian  # noqa: E402
from fedkern.models.glm import Rows, prior  # noqa: E402
from fedkern.privacy.accountant import Mechanism  # noqa: E402
from fedkern.privacy.noise import KeyedSource  # noqa: E402
from fedkern.transports.codec import Codec  # noqa: E402
from fedkern.transports.launch import launch  # noqa: E402
from fedkern.transports.place import Place  # noqa: E402
from support import clocks  # noqa: E402
from support.federations import make_rows, run, settings  # noqa: E402
from support.mpirun import MPIRUN, environment  # noqa: E402

D, ROWS, SLOWER = 4, 60, 30.0
FEW = 8  # clients; more need a smaller damping, and more updates than they pay for here
AWAY, WIDTH = 0.1, 0.05
SCHEDULES = ("synchronous", "sequential", "asynchronous")
CLOCKS = {
    "equal": (lambda n, rng: np.ones(n), clocks.constant),
    "unequal": (lambda n, rng: rng.uniform(0.5, 2.0, n), clocks.constant),
    "log-normal": (lambda n, rng: np.ones(n), clocks.log_normal),
    "exponential": (lambda n, rng: np.ones(n), clocks.exponential),
    "Pareto": (lambda n, rng: np.ones(n), clocks.pareto),
    "one 30 x slower": (lambda n, rng: np.concatenate([[SLOWER], np.ones(n - 1)]), clocks.log_normal),
    "a tenth leaves": (lambda n, rng: np.ones(n), lambda means, seed: leaving(means, seed)),
}


def leaving(means: Any, seed: int) -> clocks.Seconds:
    """Log-normal times; one update in ten takes twenty more, as of a client that is away for a while."""
    rng = np.random.default_rng(seed)
    return lambda k: float(means[k] * rng.lognormal(-0.5) + 20 * (rng.random() < 0.1))


def near(q: Gaussian, other: Gaussian) -> bool:
    return bool((np.abs(q.mean - other.mean) <= AWAY * other.sd).all() and (np.abs(q.sd / other.sd - 1) <= WIDTH).all())


def federation(n: int, seed: int, rows_each: int = ROWS) -> list[Rows]:
    """The first client, which is the slow one, has as many rows as five others."""
    rows, rng = make_rows("bernoulli", n=rows_each * (n + 4), d=D, seed=seed), np.random.default_rng(seed)
    edges = rows_each * np.arange(5, n + 4)
    return [rows.take(part) for part in np.split(rng.permutation(len(rows)), edges)]


def machines(parts: list[Rows], s: Any, private: bool, **local: Any) -> tuple[Any, dict[int, Any]]:
    p = prior(D, 1.0, s.covariance)
    clients = {k: Local(part, s, k, **{name: make(k) for name, make in local.items()}) for k, part in enumerate(parts)}
    return pvi.start(s, p, len(parts), private=private), {k: pvi.client(f"c{k}", one, p) for k, one in clients.items()}


def until_near(parts: list[Rows], schedule: str, seconds: clocks.Seconds, *targets: Gaussian) -> list[float]:
    """The first time at which q is near each target."""
    started, clients = machines(parts, settings(covariance="full", schedule=schedule, rounds=60), False)
    times = [np.inf] * len(targets)
    for now, server in clocks.play(started, clients, seconds):
        times = [min(time, now) if near(server.q, q) else time for time, q in zip(times, targets)]
        if max(times) < np.inf or now > max(times[:1]) * 1.0001 < np.inf:
            break
    return times


def first_two(seconds: clocks.Seconds) -> float:
    """What the slow client's own first two answers take."""
    return seconds(0) + seconds(0)


def open_jobs(n: int, seeds: int) -> Iterator[str]:
    yield f"{n} clients, exact full sites, {seeds} seeds; medians (worst) of times over asynchronous"
    yield f"{'clocks':<18}{'synchronous':>20}{'sequential':>20}   asynchronous itself"
    for name, (means, law) in CLOCKS.items():
        over: dict[str, list[float]] = {schedule: [] for schedule in SCHEDULES}
        slow, early = [], []
        for seed in range(seeds):
            parts, own = federation(n, seed), means(n, np.random.default_rng(seed))
            q = run(parts, settings(covariance="full", rounds=12))[0].q
            others = run(parts[1:], settings(covariance="full", rounds=12))[0].q
            for schedule in SCHEDULES:
                times = until_near(parts, schedule, law(own, seed), q, *([others] if schedule == "asynchronous" else []))
                over[schedule].append(times[0])
                if schedule == "asynchronous":
                    slow.append(times[0] / first_two(law(own, seed)))
                    early.append(over["synchronous"][-1] / times[1])
        ratios = {schedule: np.array(over[schedule]) / over["asynchronous"] for schedule in SCHEDULES}
        cells = "".join(f"{np.median(ratios[s]):>11.2f} ({ratios[s].min():.2f})" for s in SCHEDULES[:2])
        line = f"{name:<18}{cells}   {np.median(over['asynchronous']):.1f} s"
        if name == "one 30 x slower":
            line += (
                f"; {np.median(slow):.2f} ({max(slow):.2f}) x the slow client's first two answers; the posterior of the others "
            )
            line += f"{np.median(early):.1f} ({min(early):.1f}) x earlier"
        yield line


def settled_jobs(federations: int = 50) -> Iterator[str]:
    """How far q is from the synchronous fixed point where a job ends by itself, among clients of 3 to 400 rows."""
    away, width, ended = [], [], 0
    for seed in range(federations):
        rng = np.random.default_rng(seed)
        n, law = int(rng.integers(3, 9)), (clocks.exponential, clocks.pareto)[seed % 2]
        sizes = rng.choice([3, 20, 100, 400], n)
        rows = make_rows(("bernoulli", "poisson")[seed % 3 > 0], n=int(sizes.sum()), d=D, seed=seed)
        parts = [rows.take(part) for part in np.split(np.arange(len(rows)), np.cumsum(sizes)[:-1])]
        family = ("bernoulli", "poisson")[seed % 3 > 0]
        q = run(parts, settings(family=family, covariance="full", rounds=40))[0].q
        s = settings(family=family, covariance="full", schedule="asynchronous", rounds=200, until=True)
        started, clients = machines(parts, s, False, tells=lambda k: True)
        *_, (_, server) = clocks.play(started, clients, law(rng.choice([1.0, 3.0, 20.0], n), seed))
        ended += server.stop == "settled"
        away.append(float((np.abs(server.q.mean - q.mean) / q.sd).max()))
        width.append(float(np.abs(server.q.sd / q.sd - 1).max()))
    yield f"{federations} federations that end by themselves: {ended} settled"
    yield f"  at most {max(away):.1g} sd away, sds {max(width):.1%}"


def private_jobs(n: int, seeds: int, updates: int = 80) -> Iterator[str]:
    """Errors of q in sds of the posterior of all rows, each client having paid for the same number of updates."""
    mechanism = Mechanism(sampling="poisson", sampling_rate=0.2, noise_multiplier=3.0, clip=3.0, dimension=2 * D, secure=False)
    yield f"{n} clients, private, {updates} paid updates of 5 steps each, first client {SLOWER:g} x slower, {seeds} seeds"
    for schedule in ("synchronous", "asynchronous"):
        errors: dict[str, list[float]] = {}
        lost = 0
        for seed in range(seeds):
            parts = federation(n, seed, 5 * ROWS)
            q = run(parts, settings(rounds=30))[0].q
            paid = dict.fromkeys(range(n), 0)

            def charge(k: int, asked: Charge, paid: dict[int, int] = paid) -> Charged | ChargeFailed:
                if paid[k] == updates:
                    return ChargeFailed(asked.steps, 1, 1)
                paid[k] += 1
                return Charged(asked.steps)

            s = settings(
                schedule=schedule, rounds=None, optimiser="adagrad", local_steps=5, damping=0.25, damping_form="moment",
                average="half", lead=8 if schedule == "asynchronous" else None, learning_rate=0.5,
            )  # fmt: skip
            source = {"mechanism": lambda k: mechanism, "source": lambda k, seed=seed: KeyedSource(seed, k)}
            started, clients = machines(parts, s, True, **source)
            *_, (_, server) = clocks.play(
                started, clients, clocks.log_normal(CLOCKS["one 30 x slower"][0](n, None), seed), charge
            )
            found = {"average": pvi.released(server), "last q": server.q}
            if schedule == "asynchronous":
                found["average over all updates"] = pvi.of_point(server.trajectory.half_mean())
            for name, one in found.items():
                errors.setdefault(name, []).append(float(np.sqrt(np.mean(((one.mean - q.mean) / q.sd) ** 2))))
            lost += sum(paid.values()) - int(server.updates.sum())
        said = ", ".join(f"{name} {np.median(own):.3f} sd (worst {max(own):.3f})" for name, own in errors.items())
        yield f"  {schedule}: {said}; paid and not used {lost}"


def paid_jobs(jobs: int = 20) -> Iterator[str]:
    """How many of the updates that private clients pay for are in no q, among jobs that end by rounds and by budgets."""
    mechanism = Mechanism(sampling="poisson", sampling_rate=0.2, noise_multiplier=2.0, clip=1.0, dimension=2 * D, secure=False)
    paid, used = 0, 0
    for seed in range(jobs):
        rng, law = np.random.default_rng(seed), (clocks.exponential, clocks.pareto)[seed % 2]
        n, rounds = int(rng.integers(3, 9)), (None, 20)[seed % 3 == 0]
        left = dict(enumerate(rng.integers(20, 60, n).tolist()))

        def charge(k: int, asked: Charge, left: dict[int, int] = left) -> Charged | ChargeFailed:
            if not left[k]:
                return ChargeFailed(asked.steps, 1, 1)
            left[k] -= 1
            return Charged(asked.steps)

        before = sum(left.values())
        s = settings(
            schedule="asynchronous", rounds=rounds, optimiser="adagrad", local_steps=2, damping=1 / n, damping_form="moment",
            average="half", lead=LEAD,
        )  # fmt: skip
        source = {"mechanism": lambda k: mechanism, "source": lambda k, seed=seed: KeyedSource(seed, k)}
        started, clients = machines(federation(n, seed), s, True, **source)
        *_, (_, server) = clocks.play(started, clients, law(rng.choice([1.0, 3.0, 30.0], n), seed), charge)
        paid, used = paid + before - sum(left.values()), used + int(server.updates.sum())
    yield f"{jobs} private jobs with exponential and Pareto delays: {paid} updates paid for, {paid - used} not used"


# Ranks --------------------

SECONDS = 0.1  # of an update, in the mean
MANY, BESIDE = 300_000, 400  # rows of a slow client, and of each other


def sleeping(seed: int) -> tuple[list[Rows], clocks.Seconds]:
    """Clients whose updates take log-normal times; the first is 30 times slower."""
    return federation(FEW, seed), clocks.log_normal(SECONDS * CLOCKS["one 30 x slower"][0](FEW, None), seed)


def with_many_rows(seed: int) -> tuple[list[Rows], clocks.Seconds]:
    """Clients that take the time that they need for their rows, of which the first has most."""
    rows = make_rows("bernoulli", n=MANY + (FEW - 1) * BESIDE, d=D, seed=seed)
    edges = MANY + BESIDE * np.arange(FEW - 1)
    return [rows.take(part) for part in np.split(np.arange(len(rows)), edges)], lambda k: 0.0


RANKS: dict[str, Callable[[int], tuple[list[Rows], clocks.Seconds]]] = {
    f"one sleeps {SLOWER:g} x as long": sleeping,
    f"{MANY:,} rows beside {FEW - 1} x {BESIDE}": with_many_rows,
}


def timed(place: Place, parts: list[Rows], schedule: str, seconds: clocks.Seconds, target: Gaussian | None) -> float:
    """Seconds until q is near the target, at the server; infinite elsewhere."""
    lead = LEAD if schedule == "asynchronous" else None
    s, reached = settings(covariance="full", schedule=schedule, rounds=60, lead=lead), list[float]()
    first, clients = machines(parts, s, False)

    def take(state: Any, sender: int, event: Any) -> Any:
        state, effects = pvi.server_receive(state, sender, event)
        if target is not None and not reached and near(state.q, target):
            reached.append(time.monotonic())
        return state, [] if reached else effects  # the open questions are answered, and that is all

    def work(state: Any, event: Any) -> Any:
        if isinstance(event, QUpdate):
            time.sleep(seconds(state.local.index))
        return pvi.client_receive(state, event)

    ended = lambda state: bool(reached) or pvi.finished(state)  # noqa: E731
    protocol = replace(pvi.protocol(private=False), server_receive=take, client_receive=work, finished=ended)
    place.settle(b"", lambda told: b"")  # all begin together
    began = time.monotonic()
    here = {k: clients[k] for k in place.mine(FEW)}
    place.run_protocol(protocol, first if place.is_server else None, here, Codec(s.sizes(D), FEW))
    return reached[0] - began if reached else np.inf


def on_a_rank(place: Place, seeds: int) -> int:
    """The part of one rank; the server's prints."""
    place.agree(b"asynchronous")
    for name, made in RANKS.items():
        times: dict[str, list[float]] = {schedule: [] for schedule in SCHEDULES}
        for seed in range(seeds):
            parts, _ = made(seed)
            target = run(parts, settings(covariance="full", rounds=12))[0].q if place.is_server else None
            for schedule in SCHEDULES:
                times[schedule].append(timed(place, parts, schedule, made(seed)[1], target))
        if place.is_server:
            ratios = {one: np.array(times[one]) / times["asynchronous"] for one in SCHEDULES}
            cells = "".join(f"{np.median(ratios[one]):>11.2f} ({ratios[one].min():.2f})" for one in SCHEDULES[:2])
            print(f"{name:<28}{cells}   {np.median(times['asynchronous']):.2f} s", flush=True)
    return 0


def ranks(seeds: int) -> Iterator[str]:
    yield f"a server and {FEW} clients, each a rank of MPI, {seeds} seeds; medians (worst) of times over asynchronous"
    load = os.getloadavg()[0]
    yield f"{os.cpu_count()} cores, on which {load:.1f} other processes ran in the minute before"
    yield f"{'the slow client':<28}{'synchronous':>18}{'sequential':>18}   asynchronous itself"
    words = [str(MPIRUN), "--oversubscribe", "-n", str(1 + FEW), sys.executable, __file__, "--rank", "--seeds", str(seeds)]
    yield from subprocess.run(words, env=environment(), capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--ranks", action="store_true")
    options.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.rank:
        sys.exit(launch(lambda place: on_a_rank(place, given.seeds)))
    name = "ranks" if given.ranks else str(given.clients)
    path = ROOT / "benchmarks" / "results" / f"asynchronous-{name}.txt"
    with path.open("w", encoding="utf-8") as file:
        private = private_jobs(given.clients, given.seeds) if given.clients <= FEW else ()
        simulated = chain(open_jobs(given.clients, given.seeds), private, paid_jobs(), settled_jobs())
        for line in ranks(given.seeds) if given.ranks else simulated:
            print(line, flush=True)
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
