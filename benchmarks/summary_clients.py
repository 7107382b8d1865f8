"""How near the posterior is where small clients take part by a summary, and whether the verdict says so.

    python benchmarks/summary_clients.py [--synthetic 200] [--deals 5] [--out benchmarks/results/summary_clients.txt]

A client that takes part by a summary answers its gradient and its curvature at one point, and averaged over one normal
distribution (docs/spec/likelihood.md, section 1). Here this is done in NumPy alone, beside the posterior of all rows: both by
importance sampling from the same draws, so that their differences have next to no error of their own. The averages are taken
exactly, by quadrature over each row's predictor, and once more over points, as the package takes them.

Federations: rows of 49, 106 and 216 (of smaller data sets in these proportions) of logistic and Poisson regressions with 4 to 15
covariates, drawn; and data sets of R's packages, dealt by lot. Rscript writes these. By a summary: the smallest client, the next
one, both, or all three (which are asked one after another: the first where the way to a mode begins). "averaged" is what enters
the posterior. Beside it: the quadratic at the point that was asked (`point`), at the client's own mode (`own mode`), at the mode
of all rows, and averaged over the normal there (`joint mode`, `joint normal`), which no client that answers one point can be
asked for.
"""

from __future__ import annotations

import argparse
import io
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtri, expit, gammaln, log_expit, ndtri
from scipy.stats import qmc

from fedkern.arrays import Array

SIZES = (49, 106, 216)
WHO = {"the smallest": (0,), "the middle one": (1,), "both of them": (0, 1), "all": (0, 1, 2)}
MEAN = 0.1  # of the verdict: sds by which no mean moves
OFF_MEAN, OFF_SD = 0.1, 0.05  # of a right result
PRIOR_SD, INTERCEPT_SD, DRAWS, POINTS, DF = 2.5, 5.0, 1 << 14, 1 << 10, 7.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

REAL = """
MASS::birthwt | bernoulli | low | age lwt smoke ptl ht ui ftv
rbind(MASS::Pima.tr, MASS::Pima.te) | bernoulli | type | npreg glu bp skin bmi ped age
datasets::infert | bernoulli | case | age parity induced spontaneous
MASS::bacteria | bernoulli | y | week ap hilo
survival::lung | bernoulli | status | age sex ph.ecog ph.karno wt.loss
survival::pbc | bernoulli | status | age edema bili albumin protime
survival::colon | bernoulli | status | age sex obstruct adhere nodes extent surg
boot::melanoma | bernoulli | ulcer | time age thickness sex
survival::rotterdam | bernoulli | death | age meno nodes pgr er
MASS::epil | poisson | y | lbase lage V4 trt
MASS::quine | poisson | Days | Eth Sex Lrn
MASS::Boston | bernoulli | chas | zn indus nox rm age dis tax
"""


class Client(NamedTuple):
    """Is a client's rows."""

    family: str
    X: Array
    y: Array

    def value(self, points: Array) -> Array:
        """Returns log-likelihoods (s,) at points (s, p)."""
        eta = points @ self.X.T
        if self.family == "bernoulli":
            return np.asarray((self.y * log_expit(eta) + (1 - self.y) * log_expit(-eta)).sum(axis=1))
        return np.asarray((self.y * eta - np.exp(eta) - gammaln(self.y + 1)).sum(axis=1))

    def slopes(self, eta: Array) -> tuple[Array, Array]:
        """Returns the derivative in the predictor and minus the second one."""
        mean = expit(eta) if self.family == "bernoulli" else np.exp(eta)
        return self.y - mean, mean * (1 - mean) if self.family == "bernoulli" else mean

    def point(self, at: Array) -> tuple[Array, Array]:
        """Returns the gradient and minus the Hessian at a point."""
        slope, weight = self.slopes(self.X @ at)
        return self.X.T @ slope, (self.X.T * weight) @ self.X

    def averaged(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Returns both averaged over a normal distribution, exactly: each row's predictor is normal under it."""
        sd = np.sqrt(np.einsum("ij,jk,ik->i", self.X, covariance, self.X))
        slope, weight = self.slopes((self.X @ mean) + NODES[:, np.newaxis] * sd)
        return self.X.T @ (WEIGHTS @ slope), (self.X.T * (WEIGHTS @ weight)) @ self.X

    def over_points(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Returns the same over points: Sobol's and their mirror images."""
        p = len(mean)
        z = ndtri(qmc.Sobol(p, scramble=True, rng=1).random(POINTS // 2))
        z = np.concatenate([z, -z])
        slope, weight = self.slopes((mean + z @ np.linalg.cholesky(covariance).T) @ self.X.T)
        return self.X.T @ slope.mean(axis=0), (self.X.T * weight.mean(axis=0)) @ self.X


class Quadratic(NamedTuple):
    """Is what stands in the place of a client's log-likelihood, but for a constant."""

    at: Array
    gradient: Array
    hessian: Array

    def value(self, points: Array) -> Array:
        """Returns its values (s,)."""
        off = points - self.at
        return np.asarray(off @ self.gradient - 0.5 * np.einsum("si,ij,sj->s", off, self.hessian, off))

    def point(self, at: Array) -> tuple[Array, Array]:
        """Returns its gradient and minus its Hessian."""
        return self.gradient - self.hessian @ (at - self.at), self.hessian


Term = Client | Quadratic


def climb(terms: Sequence[Term], start: Array) -> tuple[Array, Array]:
    """Returns the mode of a sum of terms, and minus the Hessian there: Newton steps, halved until the value does not fall."""
    at = start.copy()
    value = lambda x: float(sum(one.value(x[np.newaxis])[0] for one in terms))  # noqa: E731
    for _ in range(200):
        g, H = (sum(several) for several in zip(*(one.point(at) for one in terms), strict=True))
        step = np.linalg.solve(H, g)
        if np.abs(step / np.sqrt(np.diag(np.linalg.inv(H)))).max() < 1e-8:
            break
        while value(at + step) < value(at) - 1e-9 and np.abs(step).max() > 1e-12:
            step = step / 2
        at = at + step
    return at, sum(one.point(at)[1] for one in terms)


Asked = Callable[[Client, Array, Array], tuple[Array, Array]]


def asked(
    exact: Sequence[Term], mine: Sequence[Client], at: Array, ask: Asked, before: Sequence[Quadratic] = ()
) -> tuple[list[Quadratic], Array]:
    """Returns clients' quadratics, of what they are asked at a mode, and the mode with them.

    All are asked at once where others answer at draws, else one after another, each at the mode with what is known by then.
    """
    terms = list(before)
    for part in [range(len(mine))] if len(exact) > 1 else [[k] for k in range(len(mine))]:
        precision = sum(one.point(at)[1] for one in [*exact, *terms])
        answers = [Quadratic(at, *ask(mine[k], at, np.linalg.inv(precision))) for k in part]
        for k, answer in zip(part, answers, strict=True):
            terms[k : k + 1] = [answer]
        at = climb([*exact, *terms], at)[0]
    return terms, at


def moments(terms: Sequence[Term], draws: Array, log_q: Array) -> tuple[Array, Array, float]:
    """Returns means and sds of a posterior, and what the draws are worth."""
    log_w = sum(one.value(draws) for one in terms) - log_q
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = w @ draws
    return mean, np.sqrt(w @ (draws - mean) ** 2), 1 / float((w**2).sum())


class Row(NamedTuple):
    """Is one federation: by how many sds the worst mean is off, and the worst sd, of each way; and what makes the verdict."""

    name: str
    who: str
    off: dict[str, tuple[float, float]]
    moved: float
    share: float
    of_one: float
    points: float

    @property
    def converged(self) -> bool:
        """The verdict."""
        return self.moved <= MEAN


def tried(name: str, clients: Sequence[Client]) -> Iterator[Row]:
    """Yields a federation with each set of summaries."""
    p = clients[0].X.shape[1]
    prior = Quadratic(np.zeros(p), np.zeros(p), np.diag([INTERCEPT_SD**-2.0, *[PRIOR_SD**-2.0] * (p - 1)]))
    y = np.concatenate([one.y for one in clients])
    level = y.mean() if clients[0].family == "poisson" else y.mean() / (1 - y.mean())
    start = np.concatenate([[np.log(level)], np.zeros(p - 1)])
    prior = prior._replace(at=np.concatenate([[start[0]], np.zeros(p - 1)]))
    mode, H = climb([prior, *clients], start)
    # Draws of a t distribution that is somewhat wide.
    u = qmc.Sobol(p + 1, scramble=True, rng=7).random(DRAWS)
    B = np.linalg.cholesky(1.1 * np.linalg.inv(H))
    draws = mode + (ndtri(u[:, :p]) / np.sqrt(chdtri(DF, u[:, p]) / DF)[:, np.newaxis]) @ B.T
    r = np.linalg.solve(B, (draws - mode).T)
    log_q = -0.5 * (DF + p) * np.log1p((r**2).sum(axis=0) / DF)
    mean, sd, worth = moments([prior, *clients], draws, log_q)
    assert worth > 2000, (name, worth)
    for who, small in WHO.items():
        exact = [prior, *(one for k, one in enumerate(clients) if k not in small)]
        mine = [clients[k] for k in small]
        first = climb(exact, start)[0] if len(exact) > 1 else start
        at_point, centre = asked(exact, mine, first, lambda one, at, _: one.point(at))
        averaged, last = asked(exact, mine, centre, Client.averaged, at_point)
        _, other = asked(exact, mine, centre, Client.over_points, at_point)
        covariance = np.linalg.inv(sum(one.point(last)[1] for one in [*exact, *averaged]))
        each_sd = np.sqrt(np.diag(covariance))
        information = sum(one.hessian for one in averaged)
        shares = np.diag(covariance @ information @ covariance) / np.diag(covariance)
        own = [climb([prior, one], start)[0] for one in mine]
        ways = {
            "averaged": averaged,
            "point": at_point,
            "own mode": [Quadratic(at, *one.point(at)) for at, one in zip(own, mine, strict=True)],
            "joint mode": [Quadratic(mode, *one.point(mode)) for one in mine],
            "joint normal": [Quadratic(mode, *one.averaged(mode, np.linalg.inv(H))) for one in mine],
        }
        off = {}
        for way, terms in ways.items():
            m, s, _ = moments([*exact, *terms], draws, log_q)
            off[way] = float(np.abs((m - mean) / sd).max()), float(np.abs(s / sd - 1).max())
        yield Row(
            name, who, off, float(np.abs((last - centre) / each_sd).max()), float(np.trace(covariance @ information)) / p,
            float(shares.max()), float(np.abs((other - last) / each_sd).max()),
        )  # fmt: skip


def drawn(seed: int) -> tuple[str, list[Client]]:
    """Returns a federation of drawn rows: clients' covariates have other means and spreads."""
    rng = np.random.default_rng(seed)
    d = (4, 4, 8, 15)[seed % 4]
    family = "poisson" if seed % 5 == 4 else "bernoulli"
    slopes = rng.normal(0, (0.5 if family == "bernoulli" else 0.25), d)
    level = rng.uniform(-1.8, 0.5) if family == "bernoulli" else rng.uniform(-0.5, 1.0)
    mixed = np.linalg.cholesky(0.3 + 0.7 * np.eye(d))
    clients = []
    for n in SIZES:
        X = rng.normal(0, 0.3, d) + rng.uniform(0.8, 1.2, d) * (rng.normal(size=(n, d)) @ mixed.T)
        binary = np.arange(d) % 4 == 3
        X[:, binary] = X[:, binary] > 0.8
        eta = level + X @ slopes
        y = rng.random(n) < expit(eta) if family == "bernoulli" else rng.poisson(np.exp(eta))
        clients.append((X, y.astype(float)))
    return f"{family}, {d} covariates", _standardised(family, clients)


def _standardised(family: str, clients: Sequence[tuple[Array, Array]]) -> list[Client]:
    whole = np.concatenate([X for X, _ in clients])
    centre, scale = whole.mean(axis=0), whole.std(axis=0)
    return [Client(family, np.column_stack([np.ones(len(X)), (X - centre) / scale]), y) for X, y in clients]


def read(line: str) -> tuple[str, str, pd.DataFrame]:
    """Returns a data set's name, its family, and its response with its covariates as numbers."""
    source, family, response, covariates = (part.strip() for part in line.split("|"))
    text = subprocess.run(
        ["Rscript", "-e", f"write.csv({source}, row.names = FALSE)"], check=True, capture_output=True, text=True
    )
    frame = pd.read_csv(io.StringIO(text.stdout))[[response, *covariates.split()]].dropna()
    frame = frame.apply(lambda c: c if c.dtype.kind in "if" else pd.Series(pd.factorize(c, sort=True)[0], c.index))
    if family == "bernoulli":
        frame[response] = (frame[response] == frame[response].max()).astype(int)
    return source, family, frame.astype(float)


def dealt(family: str, frame: pd.DataFrame, seed: int) -> list[Client]:
    """Returns a data set dealt by lot to three clients."""
    n = min(len(frame), sum(SIZES))
    order = np.random.default_rng(seed).permutation(len(frame))[:n]
    ends = np.round(np.cumsum(SIZES) / sum(SIZES) * n).astype(int)
    table = frame.to_numpy()
    parts = [table[one] for one in np.split(order, ends[:-1])]
    return _standardised(family, [(part[:, 1:], part[:, 0]) for part in parts])


def said(rows: Sequence[Row], title: str) -> Iterator[str]:
    """Yields the lines on some federations."""
    yield f"\n{title}: {len({(one.name, i // len(WHO)) for i, one in enumerate(rows)})} federations"
    yield f"{'by a summary':16}{'way':12}{'right':>8}{'mean off':>18}{'sd off':>18}"
    for who in WHO:
        some = [one for one in rows if one.who == who]
        for way in some[0].off:
            off = np.array([one.off[way] for one in some])
            right = ((off[:, 0] < OFF_MEAN) & (off[:, 1] < OFF_SD)).mean()
            of = "".join(f"{np.median(col):9.3f}{col.max():9.3f}" for col in off.T)
            yield f"{who:16}{way:12}{100 * right:6.0f} %{of}"
    yield f"{'':16}{'verdict':16}{'federations':>12}{'right':>8}{'worst mean':>12}{'worst sd':>10}"
    for who in WHO:
        for word in (True, False):
            some = [one for one in rows if one.who == who and one.converged is word]
            if not some:
                continue
            off = np.array([one.off["averaged"] for one in some])
            right = ((off[:, 0] < OFF_MEAN) & (off[:, 1] < OFF_SD)).mean()
            text = "converged" if word else "approximate"
            yield f"{who:16}{text:16}{len(some):12}{100 * right:6.0f} %{off[:, 0].max():12.3f}{off[:, 1].max():10.3f}"
    yield f"points in the place of quadrature move a mean by at most {max(one.points for one in rows):.4f} sd"
    shares = {who: np.array([(one.share, one.of_one) for one in rows if one.who == who]) for who in WHO}
    for who, of in shares.items():
        yield f"{who:16}share of the information {np.median(of[:, 0]):.2f} (to {of[:, 0].max():.2f})"
        yield f"{'':16}on the one coefficient where it is most {np.median(of[:, 1]):.2f} (to {of[:, 1].max():.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--synthetic", type=int, default=200)
    parser.add_argument("--deals", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines: list[str] = []
    say: Callable[[str], None] = lambda text: (lines.append(text), print(text, flush=True))[0]  # noqa: E731
    say(f"{DRAWS} draws; right: means within {OFF_MEAN} sd and sds within {100 * OFF_SD:.0f} %; median and worst of each")
    made = [row for seed in range(options.synthetic) for row in tried(*drawn(seed))]
    for d in (4, 8, 15):
        for text in said([one for one in made if one.name.endswith(f" {d} covariates")], f"drawn, {d} covariates"):
            say(text)
    real = []
    for line in REAL.strip().splitlines():
        name, family, frame = read(line)
        own = [row for seed in range(options.deals) for row in tried(name, dealt(family, frame, seed))]
        off = [one.off["averaged"] for one in own if one.who == "the smallest"]
        right = np.mean([mean < OFF_MEAN and sd < OFF_SD for mean, sd in off])
        say(f"{name}: {len(frame)} rows, {frame.shape[1] - 1} covariates, the smallest right in {100 * right:.0f} %")
        real += own
    for text in said(real, "data sets"):
        say(text)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
