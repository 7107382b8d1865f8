"""Small federations of each kind of mixed model, as files of their clients: `tests/statistics/test_likelihood_posteriors.py` fits
them, and `tools/references/likelihood.py` has long NUTS runs of the same rows together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkern.arrays import Array


@dataclass(frozen=True)
class Kind:
    """A model, and what its rows are drawn from."""

    family: str  # of the response
    # clients, groups, rows: how many clients, groups of each (0: none), rows of each group (or client)
    clients: int
    groups: int
    rows: int
    # tau, slope, client: standard deviations of a group's intercept, of its slope in `x`, of a client's intercept
    tau: float = 0.0
    slope: float = 0.0
    client: float = 0.0
    random: str = ""  # the job's [model.random]
    scale: float = 1.0  # of the response: r of a negative binomial, sigma of a Gaussian
    intercept: float = -0.5  # of the linear predictor


# Of the stored chains, where effects are an intercept; with a slope these have the default.
OF_CHAINS = '[model.priors."{level}_sd[intercept]"]\nkind = "half-normal"\nsd = 1.0\nunit = "sd"\n'
BY_WARD = 'group = "ward"'
KINDS = {
    "many groups": Kind("bernoulli", 4, 20, 8, tau=1.0, random=BY_WARD),
    "few groups": Kind("bernoulli", 2, 5, 30, tau=0.8, random=BY_WARD),
    "no spread": Kind("bernoulli", 4, 12, 8, random=BY_WARD),
    "slopes": Kind("poisson", 4, 12, 8, tau=0.6, slope=0.4, random='group = "ward"\nslopes = ["x"]', intercept=0.5),
    "two levels": Kind("bernoulli", 5, 12, 8, tau=0.7, client=0.6, random='group = "ward"\nclient = true'),
    "three clients": Kind("bernoulli", 3, 0, 80, client=0.7, random="client = true"),
    "eight clients": Kind("poisson", 8, 0, 40, client=0.5, random="client = true", intercept=0.5),
    "negative binomial": Kind("negative-binomial", 4, 15, 8, tau=0.5, random=BY_WARD, scale=2.0, intercept=1.0),
    "gaussian": Kind("gaussian", 4, 15, 6, tau=8.0, random=BY_WARD, scale=12.0, intercept=130.0),
}


@dataclass(frozen=True)
class Client:
    """Columns of one client's file; `ward` is text there, the number of a group here (-1: none)."""

    x: Array
    exposed: Array
    ward: NDArray[np.int64]
    y: Array


def federation(name: str, seed: int = 1) -> list[Client]:
    """The clients' rows of a kind."""
    kind, clients = KINDS[name], []
    random = np.random.default_rng([seed, *name.encode()])
    for _ in range(kind.clients):
        n = max(kind.groups, 1) * kind.rows
        ward = np.repeat(np.arange(kind.groups), kind.rows) if kind.groups else np.full(n, -1)
        x, exposed = random.normal(50.0, 10.0, n).round(1), (random.uniform(size=n) < 0.4).astype(float)
        z = (x - 50.0) / 10.0
        own = random.normal(size=(max(kind.groups, 1), 2))
        unit = kind.scale if kind.family == "gaussian" else 1.0
        eta = kind.intercept + kind.client * random.normal() + unit * (0.5 * z - 0.4 * exposed)
        if kind.groups:
            eta = eta + kind.tau * own[ward, 0] + kind.slope * z * own[ward, 1]
        clients.append(Client(x, exposed, ward, _drawn(kind, eta, random)))
    return clients


def _drawn(kind: Kind, eta: Array, random: np.random.Generator) -> Array:
    if kind.family == "bernoulli":
        return (random.uniform(size=len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    if kind.family == "poisson":
        return random.poisson(np.exp(eta)).astype(float)
    if kind.family == "gaussian":
        return random.normal(eta, kind.scale).round(1)
    return random.poisson(random.gamma(kind.scale, np.exp(eta) / kind.scale)).astype(float)


def written(name: str, folder: Path, seed: int = 1, more: str = "") -> Path:
    """The job file of a kind, with its clients' files beside it."""
    kind = KINDS[name]
    names = []
    for k, client in enumerate(federation(name, seed)):
        rows = zip(client.x, client.exposed, client.ward, client.y)
        lines = [f"{x:g},{e:g},{'' if g < 0 else f'ward {g}'},{y:g}".replace(",,", ",") for x, e, g, y in rows]
        head = "x,exposed,y" if not kind.groups else "x,exposed,ward,y"
        (folder / f"site-{k + 1}.csv").write_text("\n".join([head, *lines]) + "\n")
        names.append(f"site-{k + 1}.csv")
    job, levels = folder / "job.toml", [level for level in ("group", "client") if level in kind.random and not kind.slope]
    more += "".join(OF_CHAINS.format(level=level) for level in levels)
    job.write_text(
        f'[job]\nmethod = "likelihood"\nseed = {seed}\n[data]\nclients = {names!r}\nresponse = "y"\nleast_rows = 1\n'
        f'[model]\nfamily = "{kind.family}"\n[model.random]\n{kind.random}\n{more}'.replace("'", '"')
    )
    return job
