"""Whether a job that says "converged" has the posterior of its rows: random posteriors of many families beside a long run.

    python benchmarks/random_posteriors.py [--out benchmarks/results/random_posteriors.txt] [--only FAMILY] [--sets 2]

Each job is one of `likelihood` with three clients, as it is by default. The long run has 2^16 points, of another seed, about the
moments that the job ends with, and every digit of every client's log-likelihood there; 2^13 where clients have 10,000 rows
("many"), of which jobs may end after one net of 128 points ("net": worth and claim are then those of the corrected quadratics).
Numbers are compared in the coordinates in
which the server draws: the largest difference of a mean, in posterior sds, and of an sd, in percent; beside them what the job
says of its own error, and what the long run does. Ends are quantiles at 2.5 and 97.5 %, in posterior sds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

import fedkern
from fedkern.algorithms.core.nets import NETS, largest
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.draws import weighted
from fedkern.algorithms.importance.proposals import folded
from fedkern.methods.likelihood import publish
from fedkern.models.weighted import Weighted

LONG, BLOCK = 2**16, 512  # points; of many rows an eighth
MANY = 10_000  # rows a client, of which the log-likelihood is nearly quadratic
NAMES = ("a", "b", "c")
GOAL, MOST = (0.03, 3.0), (0.1, 5.0)  # posterior sds of a mean, percent of an sd
ROWS = {"logistic": 12, "rare": 60, "poisson": 10, "negative-binomial": 12, "gamma": 10, "ordinal": 14, "weibull": 12, "cox": 14,
        "random-intercept": 12, "gaussian": 6}  # a coefficient and client  # fmt: skip
SIZES = {"logistic": (2, 5, 12, 20, 40, 80), "rare": (2, 5, 12, 25), "poisson": (2, 6, 20, 60), "random-intercept": (2, 4, 8)}


class Case(NamedTuple):
    """A random set: its kind, covariates, number, and whether it has many rows."""

    kind: str
    columns: int
    number: int
    many: bool = False


def cases(sets: int) -> Iterator[Case]:
    """All of them."""
    for kind in ROWS:
        for columns in SIZES.get(kind, (2, 5, 12, 30)):
            yield from (Case(kind, columns, k) for k in range(sets))
        if kind not in (
            "random-intercept",
            "negative-binomial",
        ):  # whose posteriors are no quadratics, or in coordinates that fold
            yield from (Case(kind, columns, k, many=True) for columns in (2, 8, 18) for k in range(sets))


def made(case: Case) -> tuple[dict[str, Any], pandas.DataFrame]:
    """The job, and the rows of all clients."""
    kind, p = case.kind, case.columns
    random = np.random.default_rng([sum(map(ord, kind)), p, case.number])
    n = 3 * MANY if case.many else 3 * max(40, ROWS[kind] * (p + 1))
    root = random.normal(size=(p, p)) / np.sqrt(p) * random.choice([0.0, 0.7]) + np.eye(p)
    X = random.normal(size=(n, p)) @ root
    if case.number % 2:
        X[:, 0] = np.exp(0.8 * X[:, 0] / X[:, 0].std())
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = X @ (random.normal(size=p) / np.sqrt(p)) * 0.7
    frame = pandas.DataFrame(X, columns=[f"x{k}" for k in range(p)])
    model: dict[str, Any] = {"family": kind}
    data: dict[str, Any] = {"response": "y"}
    if kind in ("logistic", "rare", "random-intercept"):
        model = {"family": "bernoulli"}
        if kind == "random-intercept":
            model["random"] = {"group": "g"}
            g = np.arange(n) // 6
            frame["g"] = [f"g{k}" for k in g]
            eta = eta + random.choice([0.3, 1.0]) * random.normal(size=g.max() + 1)[g]
        frame["y"] = (random.random(n) < 1 / (1 + np.exp(-(eta - 3.2 * (kind == "rare"))))).astype(int)
    elif kind == "poisson":
        frame["y"] = random.poisson(np.exp(eta + random.choice([-0.7, 1.0])))
    elif kind == "negative-binomial":
        frame["y"] = random.poisson(np.exp(eta + 0.7) * random.gamma(2.0, 0.5, n))
    elif kind == "gamma":
        frame["y"] = np.exp(eta) * random.gamma(3.0, 1 / 3, n) + 1e-6
    elif kind == "gaussian":
        frame["y"] = eta + random.normal(size=n)
    elif kind == "ordinal":
        cut = np.searchsorted([-1.2, 0.0, 1.5], eta + random.logistic(size=n))
        frame["y"] = np.array(["none", "mild", "severe", "worst"])[cut]
        data["levels"] = ["none", "mild", "severe", "worst"]
    else:
        times, late = np.exp(-eta / 1.4) * random.weibull(1.4, n) * 10, random.uniform(2, 25, n)
        frame["t"], frame["d"] = np.minimum(times, late), (times <= late).astype(int)
        data = {"time": "t", "event": "d"}
    given = {"job": {"method": "likelihood"}, "data": data, "model": model, "disclosure": {"level": "none"}}
    return given, frame


class Seen(NamedTuple):
    """What a job leaves: the server's last state, the clients' log-likelihoods, the result, and seconds of processor."""

    server: importance.Server
    models: list[importance.Model]
    result: fedkern.Result
    seconds: float


def played(given: dict[str, Any], frame: pandas.DataFrame) -> Seen:
    """Runs a job."""
    kept: dict[str, Any] = {"models": {}}
    client, fit = importance.client, publish.bare

    def watched(name: str, index: int, settings: Any, model: Any, *more: Any) -> Any:
        kept["models"][index] = model
        return client(name, index, settings, model, *more)

    def ended(model: Any, ended: Any, test: Any) -> Any:
        kept["server"] = ended.mode
        return fit(model, ended, test)

    unit = frame["g"].str[1:].astype(int).to_numpy() if "g" in frame else np.arange(len(frame))
    importance.client, publish.bare = watched, ended  # type: ignore[assignment]
    began = time.process_time()
    try:
        result = fedkern.run(given, data={name: frame[unit % 3 == k].reset_index(drop=True) for k, name in enumerate(NAMES)})
    finally:
        importance.client, publish.bare = client, fit  # type: ignore[assignment]
    models = [kept["models"][k] for k in sorted(kept["models"])]
    return Seen(kept["server"], models, result, time.process_time() - began)


def long_run(seen: Seen, points: int) -> tuple[Weighted, tuple[float, float]]:
    """The posterior by 2^16 points, and its own errors."""
    server, c = seen.server, seen.server.coordinates
    every, short = np.concatenate([draw.z for draw in server.draws]), weighted(server)
    source = server.sources[-1].adapted(every, short.smoothed, c.wide).sized(points)
    z = source.points(c.mirrored, 987_654_321, 99)
    xi = c.drawn(z, server.units)
    log_p = server.prior.values(xi) + c.log_jacobian(xi)
    for at in range(0, points, BLOCK):
        some = slice(at, at + BLOCK)
        log_p[some] += sum(model.values(xi[some], server.nodes) for model in seen.models)
    z = folded(c.of(xi), c.mirrored)
    whole = Weighted(z, np.where(np.isfinite(log_p), log_p, -np.inf) - source.log_density(z, c.mirrored))
    return whole, largest(z, whole.weights, source.nets % NETS)


def compared(case: Case) -> str:
    """The line of a case."""
    seen = played(*made(case))
    server, found = seen.server, importance.read_result(seen.server)
    whole, error = long_run(seen, LONG // 8 if case.many else LONG)
    z = np.concatenate([draw.z for draw in server.draws])
    short = Weighted(z, weighted(server).log_ratios)
    of_mean = np.abs(short.mean - whole.mean) / whole.sd
    of_sd = 100 * np.abs(short.sd / whole.sd - 1)
    ends = np.abs(short.quantiles((0.025, 0.975)) - whole.quantiles((0.025, 0.975))) / whole.sd
    name, how = case.kind + " many" * case.many, "net" if server.unsure else str(len(z))
    bad = found.converged and (of_mean.max() > MOST[0] or of_sd.max() > MOST[1])
    return (
        f"{name:21} {case.columns:3} {case.number} {server.coordinates.size:3} {how:>6} {short.effective:6.0f} "
        f"{short.k_hat:5.2f} {'yes' if found.converged else 'no':3}  {of_mean.max():.3f} {of_sd.max():5.2f}   "
        f"{found.error[0]:.3f} {100 * found.error[1]:5.2f}   {error[0]:.3f} {100 * error[1]:5.2f}  {ends.max():.3f}  "
        f"{whole.k_hat:5.2f} {seen.seconds:5.1f}{'  WRONG' if bad else ''}"
    )


def main() -> None:
    """A line of each posterior."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--sets", type=int, default=2)
    asked = parser.parse_args()
    head = f"{'kind':21} columns set P  points   worth k-hat ok   mean   sd %   claim  sd %   long  sd %   ends  k-hat  CPU s"
    lines = [head]
    print(head)
    for case in cases(asked.sets):
        if asked.only in f"{case.kind}{' many' * case.many}":
            lines.append(compared(case))
            print(lines[-1], flush=True)
            if asked.out:
                asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
