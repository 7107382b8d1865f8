"""What the reproductions of trained priors share: trainings that are kept, and federated fits in this process (sigma.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..algorithms.core.messages import SERVER
from ..algorithms.sfvi import machine as sfvi
from ..algorithms.sfvi.families import Family
from ..algorithms.sfvi.nested import NestedFamily
from ..algorithms.sfvi.settings import Settings as Variational
from ..algorithms.training import training as training
from ..algorithms.training.fit import Federation, Tau
from ..kernels import mlp, rng
from ..models.likelihood import Likelihood
from ..models.spatial.car import CarModel
from ..models.spatial.prior import Prior
from ..models.spatial.site import Auxiliary, Layout, Rows, SigmaPrior, Site
from ..models.spatial.start import condition_nodes, multiplicative_start
from ..models.variational import Block
from ..transports import inprocess
from ..transports.codec import Codec

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Start = Literal["analytic", "random"]

DRAWS = 2000  # from a fitted posterior


@dataclass(frozen=True, eq=False)
class Trained:
    """Networks, and how they were reached.

    Attributes
    ----------
    federation : all clients' decoders
    state : of the training at its end
    seconds : for the start and the table of draws, and for the steps
    """

    federation: Federation
    state: training.State
    seconds: tuple[float, float]


def trained(
    folder: Path,
    architecture: mlp.Architecture,
    prior: Prior,
    sd: Array,
    settings: training.Settings,
    *,
    entries: int = 512,
    nodes: int = 24,
    start: Start = "random",
    draws: int | None = None,
) -> Trained:
    """A training, or what an earlier run of the reproduction has kept of the same one.

    Parameters
    ----------
    folder : where it is kept
    sd : (n,) what standardises theta
    entries : values of phi in the table of priors
    nodes : values of phi of an analytic start
    draws : number of stored draws; None: fresh ones in every step
    """
    told = repr((architecture, prior.condition, prior.kind, settings, entries, nodes, start, draws)).encode() + sd.tobytes()
    path = folder / f"trained-{blake2b(told, digest_size=8).hexdigest()}.npz"
    if path.exists():
        with np.load(path) as kept:
            state = training.State.load({name: kept[name] for name in kept.files}, settings.precision)
            seconds = kept["seconds"]
    else:
        began = time.perf_counter()
        state = training.start(architecture, settings)
        if start == "analytic":
            first = multiplicative_start(
                architecture,
                lambda phi: prior.covariance(phi) / np.outer(sd, sd),
                *condition_nodes(prior.condition, nodes),
                gamma=settings.gamma,
                seed=settings.seed,
            )
            state = replace(state, parameters=first.astype(settings.precision))
        table = prior.table(entries, settings.seed)
        if draws is not None:
            table = training.stored(table, draws, settings.seed)
        table = replace(table, phi=prior.condition.network(table.phi), scale=table.scale / sd)
        ready = time.perf_counter()
        state = training.train(architecture, lambda _: table, settings, state=state)
        seconds = np.array([ready - began, time.perf_counter() - ready])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, **state.save(), seconds=seconds)
    federation = Federation(architecture, state.parameters.astype(np.float64), prior.condition, sd)
    return Trained(federation, state, (float(seconds[0]), float(seconds[1])))


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws from a federated fit.

    Attributes
    ----------
    xi : (m, P) of the global unknowns
    theta : (m, n) of all clients' areas, which no party of a federation holds together
    eta : (m, n) b + x' beta + sigma_theta theta, without offsets
    phi : (m,)
    seconds : of the fit
    """

    xi: Array
    theta: Array
    eta: Array
    phi: Array
    seconds: float

    @property
    def mean(self) -> Array:
        return np.asarray(self.theta.mean(axis=0))

    @property
    def sd(self) -> Array:
        return np.asarray(self.theta.std(axis=0))


def sites(federation: Federation, layout: Layout, likelihood: Likelihood, rows: Sequence[Rows], tau: Tau | None) -> list[Site]:
    """The clients' terms; `tau` None is the deterministic model. A Gaussian response has theta integrated out."""
    found = []
    for j, own in enumerate(rows):
        where = slice(int(federation.ends[j]), int(federation.ends[j + 1]))
        auxiliary = None if tau is None else Auxiliary(tau.tau2[:, where], tau.grid)
        exact = tau is not None and likelihood.record.link == "identity"
        found.append(Site(federation.decoders[j], federation.condition, layout, likelihood, own, auxiliary, integrated=exact))
    return found


def split(federation: Federation, y: Array, area: Index, X: Array | None = None, offset: Array | None = None) -> list[Rows]:
    """Each client's rows, `area` counted over all clients before and within the client after."""
    X = np.zeros((len(y), 0)) if X is None else X
    offset = np.zeros(len(y)) if offset is None else offset
    found = []
    for begin, end in zip(federation.ends[:-1], federation.ends[1:]):
        own = np.flatnonzero((area >= begin) & (area < end))
        found.append(Rows(y[own], area[own] - begin, X[own], offset[own]))
    return found


def fit(models: Sequence[Site], settings: Variational, covariates: Array | None = None) -> Posterior:
    """A federated run of structured variational inference, every message through the codec, and draws of what it found.

    Parameters
    ----------
    models : of the clients, in their order
    settings : see `algorithms.sfvi_family`
    covariates : (n, p) of all areas, for eta
    """
    began, layout = time.perf_counter(), models[0].layout
    prior = SigmaPrior(layout, models[0].condition)
    clients: dict[int, Any] = {}
    for k, site in enumerate(models):
        family = NestedFamily(Family(Block(site.decoder.n_local, True), site.n_global), site) if site.sampled else None
        clients[k] = sfvi.client(f"client-{k + 1}", k, settings, site, len(models), family=family)
    started = sfvi.start(settings, prior, tuple(c.name for c in clients.values()))
    with threadpool_limits(1, user_api="blas"):
        server, clients = inprocess.run(
            sfvi.protocol(settings), started, clients, Codec(settings.sizes(layout.size), len(models))
        )
    seconds = time.perf_counter() - began
    key = rng.key(settings.seed, "posterior")
    e = rng.normal(DRAWS * layout.size, key=key, client=SERVER).reshape(DRAWS, -1)
    scale = server.block.scale(server.parameters)
    xi = server.parameters[: layout.size] + (e @ scale.T if server.block.full else e * scale)
    theta = np.concatenate([_theta(clients[k], site, xi, settings.seed) for k, site in enumerate(models)], axis=1)
    eta = layout.scale(xi)[:, None] * theta
    if layout.intercept:
        eta = eta + xi[:, layout.parts["intercept"]]
    if covariates is not None:
        eta = eta + xi[:, layout.parts["beta"]] @ covariates.T
    phi = models[0].condition.at(xi[:, 0])[0] if layout.free else np.zeros(DRAWS)
    return Posterior(xi, theta, eta, np.asarray(phi), seconds)


def mean_field(model: CarModel, settings: Variational) -> Posterior:
    """Variational inference with independent normals for theta and the global unknowns, by one party that holds all rows."""
    settings = replace(settings, covariance="diagonal", local_covariance="diagonal", coupled=False)
    began, layout = time.perf_counter(), model.layout
    clients: dict[int, Any] = {0: sfvi.client("all", 0, settings, model, 1)}
    started = sfvi.start(settings, SigmaPrior(layout, model.condition), ("all",))
    server, clients = inprocess.run(sfvi.protocol(settings), started, clients, Codec(settings.sizes(layout.size), 1))
    seconds = time.perf_counter() - began
    mean, sd = sfvi.posterior(server)
    e = rng.normal(DRAWS * layout.size, key=rng.key(settings.seed, "posterior"), client=SERVER).reshape(DRAWS, -1)
    xi, family = mean + sd * e, clients[0].family
    eps = rng.normal(DRAWS * model.size, key=rng.key(settings.seed, "posterior", 1)).reshape(DRAWS, -1)
    theta = np.array([family.sample(clients[0].parameters, x, clients[0].centre, one) for x, one in zip(xi, eps)])
    phi = np.array([model.condition.at(float(x))[0] for x in xi[:, 0]])
    return Posterior(xi, theta, theta, phi, seconds)


def _theta(client: Any, site: Site, xi: Array, seed: int) -> Array:
    """Draws of one client's theta."""
    n, d = client.family.n_normals, site.decoder.size
    eps = rng.normal(len(xi) * n, key=rng.key(seed, "posterior", 1), client=client.index).reshape(len(xi), n)
    u = np.array([client.family.sample(client.parameters, x, client.centre, e) for x, e in zip(xi, eps)])
    free = rng.normal(len(xi) * d, key=rng.key(seed, "posterior", 2), client=client.index).reshape(len(xi), d)
    if site.sampled:  # without rows theta has its prior about thetahat
        unseen = np.setdiff1d(np.arange(d), site.observed)
        u[:, site.decoder.n_local + unseen] = free[:, unseen]
    return site.theta_given(xi, u, free)


@cache
def references() -> dict[str, Any]:
    """Summaries of long NUTS runs of the true models, which tests/references/sigma.py has made."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("sigma_nuts.json").read_text(encoding="utf-8"))
    return found
