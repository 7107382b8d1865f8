"""What the reproductions of maps share: kept trainings, priors that are built, and jobs with them (docs/spec/sigma.md)."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np

from fedkern.algorithms.core.messages import SERVER
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.algorithms.sfvi.machine import Settings as Variational
from fedkern.algorithms.training.fit import Federation
from fedkern.algorithms.training.training import State
from fedkern.api import run as run_job
from fedkern.data.artifact import ClientFile, read_client
from fedkern.data.graph import Map
from fedkern.data.simulate.federations import client_names
from fedkern.jobs.run import Output
from fedkern.kernels import rng
from fedkern.kernels.mlp import Architecture
from fedkern.methods.sigma.prior import build, keys, train
from fedkern.models.spatial.site import SigmaPrior
from fedkern.results.weighted import Draws
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec, pack, unpack

from .car import CarModel
from .common import Array, Column, Index, Json, Tables, write_csv

DRAWS = 2000  # from a mean-field fit


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained prior.

    Attributes
    ----------
    folder : its artifact
    federation : all clients' decoders
    state : of the training at its end
    seconds : of `fedkern sigma train`, with its report
    """

    folder: Path
    federation: Federation
    state: State
    seconds: float

    @property
    def clients(self) -> tuple[str, ...]:
        """Their names."""
        return client_names(len(self.federation.architecture.groups))


def trained(folder: Path, tables: Tables) -> Trained:
    """A training, or what an earlier run of the reproduction has kept of the same one.

    Parameters
    ----------
    folder : where it is kept
    tables : of the prior file, with absolute paths; its clients are called client-01, client-02, ..
    """
    config = keys.parse(tables)
    digest = blake2b(json.dumps(config.model_dump(), sort_keys=True).encode(), digest_size=8).hexdigest()
    out = folder / f"trained-{digest}"
    path = out / "state"
    if not path.exists():
        shutil.rmtree(out, ignore_errors=True)  # an interrupted one
        began = time.perf_counter()
        state = train.perform(config, folder, Output(out, quiet=True)).state
        path.write_bytes(pack(state.save() | {"seconds": time.perf_counter() - began}))
    saved = unpack(path.read_bytes())
    state, seconds = State.load(saved, config.training.precision), float(cast(float, saved["seconds"]))
    n = len(list((out / "clients").glob("*.npz")))
    files = [read_client(out, name) for name in client_names(n)]
    return Trained(out, federation(files, state), state, seconds)


@dataclass(frozen=True, eq=False)
class Built:
    """A prior that is exact inside each client.

    Attributes
    ----------
    folder, clients : its artifact, and the names in it
    latents : numbers that tie the clients
    seconds : of `fedkern sigma build`
    """

    folder: Path
    clients: tuple[str, ...]
    latents: int
    seconds: float


def built(folder: Path, tables: Tables) -> Built:
    """A prior of the tables of its file, with absolute paths."""
    out = folder / "prior"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    found = build.perform(keys.parse(tables), folder, Output(out, quiet=True))
    return Built(out, found.source.clients, found.latents, time.perf_counter() - began)


def federation(files: Sequence[ClientFile], state: State) -> Federation:
    """All decoders side by side, of the clients' files and the networks that they are parts of."""
    c = files[0].common
    sizes, local = (tuple(f.d for f in files), tuple(f.n_local for f in files))
    architecture = Architecture(c.variant, sizes, 1, c.n_global, local, c.hidden, c.local_hidden, c.width, c.rank)
    sd = np.concatenate([f.scale for f in files])
    return Federation(architecture, state.parameters.astype(np.float64), c.condition, sd)


def write_map(folder: Path, areas: Map) -> dict[str, str]:
    """The section [data] of a prior file for a map whose islands are linked."""
    names, graph = client_names(len(areas.clients)), areas.graph
    columns = {"area": graph.names, "client": [names[k] for k in areas.client]}
    once = graph.rows < graph.indices
    ends = {"one": graph.rows[once], "other": graph.indices[once]}
    pairs = {end: [graph.names[k] for k in at] for end, at in ends.items()}
    table, edges = write_csv(folder / "areas.csv", columns), write_csv(folder / "edges.csv", pairs)
    return {"areas": table, "adjacency": edges, "area": "area", "client": "client"}


@dataclass(frozen=True, eq=False)
class Areas:
    """What clients know of their areas after a job, side by side, which no party of a federation holds.

    Attributes
    ----------
    mean, sd, low, high : (n,) of theta; its 5 % and 95 % points
    rate_mean, rate_sd : (n,) of the rate, or of the mean of a Gaussian response
    above : (n,) the probability that this is above 1
    summary : what the server publishes
    draws : name -> draws of the server's unknowns
    seconds : of the job
    """

    mean: Array
    sd: Array
    low: Array
    high: Array
    rate_mean: Array
    rate_sd: Array
    above: Array
    summary: Json
    draws: Mapping[str, Array]
    seconds: float

    @property
    def log_rate(self) -> tuple[Array, Array]:
        """(n,), (n,) mean and sd of the log rate, by the moments of the rate, as if it were log-normal."""
        variance = np.log1p((self.rate_sd / self.rate_mean) ** 2)
        return np.log(self.rate_mean) - variance / 2, np.sqrt(variance)


def fit(prior: Trained | Built, columns: Mapping[str, Column], owner: Index, tables: Tables, seed: int = 1) -> Areas:
    """A federated job.

    Parameters
    ----------
    columns : of all clients' files
    owner : number of the client of each row
    tables : of the job, without the files and the prior
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for k, client in enumerate(prior.clients):
            cells = {column: np.asarray(values)[owner == k].tolist() for column, values in columns.items()}
            files.append(write_csv(folder / f"{client}.csv", cells))
        job = {name: dict(keys) for name, keys in tables.items()}
        job["data"] |= {"clients": files, "response": "y"}
        job["model"] |= {"prior": str(prior.folder)}
        began = time.perf_counter()
        result = run_job(job, job={"method": "sigma", "seed": seed}, out=folder / "run")
        seconds = time.perf_counter() - began
        of_areas: dict[str, list[float]] = {}
        for client in prior.clients:
            with (folder / "run" / f"client-{client}" / "areas.csv").open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    for column, cell in row.items():
                        if column.startswith(("theta_", "rate_", "mean_", "p_")):
                            of_areas.setdefault(column, []).append(float(cell))
    label = "rate" if "rate_mean" in of_areas else "mean"
    wanted = [*(f"theta_{what}" for what in ("mean", "sd", "q05", "q95")), f"{label}_mean", f"{label}_sd", f"p_{label}_above_1"]
    assert isinstance(result.posterior, Draws)
    draws = {name: np.asarray(values).ravel() for name, values in result.posterior.values.items()}
    mean, sd, low, high, rate_mean, rate_sd, above = (np.array(of_areas[column]) for column in wanted)
    return Areas(mean, sd, low, high, rate_mean, rate_sd, above, dict(result.summary), draws, seconds)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Of a competitor: draws of theta (m, n) and phi (m,)."""

    theta: Array
    phi: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.theta.mean(axis=0))

    @property
    def sd(self) -> Array:
        return np.asarray(self.theta.std(axis=0))


def mean_field(model: CarModel, settings: Variational) -> Posterior:
    """Variational inference with independent normals for theta and the global unknowns, by one party that holds all rows."""
    settings = replace(settings, covariance="diagonal", local_covariance="diagonal", coupled=False)
    layout = model.layout
    clients = {0: sfvi.client("all", 0, settings, model, 1)}
    started = sfvi.start(settings, SigmaPrior(layout, model.condition), ("all",))
    server, clients = inprocess.run_protocol(sfvi.protocol(settings), started, clients, Codec(settings.sizes(layout.size), 1))
    mean, sd = sfvi.posterior_moments(server)
    e = rng.normal(DRAWS * layout.size, key=rng.key(settings.seed, "posterior"), client=SERVER).reshape(DRAWS, -1)
    client, xi, family = clients[0], mean + sd * e, clients[0].family
    assert client.centre is not None
    eps = rng.normal(DRAWS * model.size, key=rng.key(settings.seed, "posterior", 1)).reshape(DRAWS, -1)
    theta = np.array([family.sample(client.parameters, x, client.centre, one) for x, one in zip(xi, eps)])
    phi = np.array([model.condition.at(float(x))[0] for x in xi[:, 0]])
    return Posterior(theta, phi)
