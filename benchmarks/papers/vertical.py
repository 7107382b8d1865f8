"""What the reproductions of the vertical models share: jobs on columns of clients, and fits seen on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from threadpoolctl import threadpool_limits

from fedkern.algorithms.core.messages import ServerEffects
from fedkern.algorithms.split import machine as vertical
from fedkern.api import run as run_job
from fedkern.data.columns import Columns
from fedkern.methods.vertical.model import VerticalModel
from fedkern.models.split.site import Site
from fedkern.transports import inprocess
from fedkern.transports.codec import Codec

from . import common
from .common import Array, Column, Json, Tables, write_csv

Clients = dict[int, vertical.Client]
Parameters = Mapping[str, Mapping[str, float]]
# Nearer to the paper's algorithm than the defaults of a job, which have been found to end nearer to the posterior.
PRIOR: Json = {"intercept_sd": 1.0, "intercept_centre": 0.0}  # of the intercept, as published
AS_PUBLISHED: Json = {"inputs": "recommended", "covariance": "diagonal", "cool_down": 0.0, "memory": 0.9}


def names(data: Columns) -> list[str]:
    """Of the clients."""
    return [f"client-{k + 1}" for k in range(len(data.X))]


def job(folder: Path, data: Columns, seed: int, rounds: int, **sections: Json) -> Tables:
    """Tables of a vertical job, whose files are written into `folder`: y at the server, and where it is shared at all clients."""
    ids: dict[str, Column] = {"id": [str(row) for row in range(data.n_rows)]}
    y: dict[str, Column] = {"y": data.y}
    group: dict[str, Column] = {} if data.group is None else {"group": [data.groups[level] for level in data.group]}
    offset: dict[str, Column] = {} if data.offset is None else {"offset": data.offset}
    shared = y if sections["model"].get("augmentation") == "power" else {}
    clients = [
        write_csv(folder / f"{name}.csv", ids | dict(zip(covariates, X.T)) | group | shared)
        for name, covariates, X in zip(names(data), data.names, data.X)
    ]
    tables: Json = {
        "clients": clients,
        "server": write_csv(folder / "server.csv", ids | y | offset),
        "id": "id",
        "response": "y",
        "standardise": "none",
    }
    tables |= ({"offset": "offset"} if offset else {}) | ({"group": "group"} if group else {})
    model = PRIOR | sections["model"] if sections["model"].get("intercept", True) else sections["model"]
    return {"job": {"method": "vertical", "seed": seed, "rounds": rounds}, "data": tables, **sections, "model": model}


class Ran:
    """What a job has left in its folder.

    Attributes
    ----------
    server : name -> numbers of the server's parameters
    clients : of each client, in their order: name -> numbers of its own parameters, which only it sees
    verdict : whether it has converged
    bounds : the ELBO where it was measured, each the mean over the rounds since the one before
    """

    def __init__(self, folder: Path, clients: Sequence[str]) -> None:
        def read(name: str) -> Json:
            content: Json = json.loads((folder / name).read_text(encoding="utf-8"))
            return content

        summary = read("summary.json")
        self.server: Parameters = summary["parameters"]
        self.verdict: str = summary["verdict"]
        self.clients: list[Parameters] = [read(f"client-{name}/posterior.json")["parameters"] for name in clients]
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        metrics = [json.loads(line)["metrics"] for line in lines]
        self.bounds: list[float] = [line["elbo"] for line in metrics if "elbo" in line]


def ran(data: Columns, seed: int, rounds: int, **sections: Json) -> Ran:
    """A job in a folder that is not kept: the ledgers of thousands of rounds are large."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run_job(job(Path(folder), data, seed, rounds, **sections), out=out)
        return Ran(out, names(data))


def fit(
    model: VerticalModel, sites: Sequence[Site], y: Array, marks: Sequence[int] = ()
) -> Iterator[tuple[vertical.Server, Clients]]:
    """A job's rounds in this process, looked at after certain ones; stopping there and going on changes no bit of them.

    Parameters
    ----------
    model : of the job; `job.rounds` is the last mark
    sites : of its clients, see `VerticalModel.site`
    y : of the rows that are learnt from
    marks : rounds after which the states are yielded; by default only the last

    Returns
    -------
    server and clients at each mark
    """
    settings, sd = model.settings, model.start_sd
    if marks and settings.cool_down:
        raise ValueError("a cooling learning rate depends on the last round: no marks before it")
    response, likelihood = (y, model.likelihood) if model.shared else (None, None)
    clients = {k: vertical.client(model.names[k], k, settings, site, response, likelihood, sd) for k, site in enumerate(sites)}
    server, _ = vertical.start(settings, model.server, model.names, y, None, sd)
    codec = Codec(settings.dims(), len(sites))
    for mark in (*(m for m in marks if m < settings.rounds), settings.rounds):
        until = replace(settings, rounds=mark)
        clients = {k: replace(one, settings=until, drawn=()) for k, one in clients.items()}
        begin: ServerEffects = [(k, vertical.Begin(server.round)) for k in clients]
        with threadpool_limits(1, user_api="blas"):  # fits run side by side
            server, clients = inprocess.run_protocol(
                vertical.protocol(until), (replace(server, settings=until), begin), clients, codec
            )
        yield server, clients


@cache
def references() -> Json:
    """NUTS runs on the simulated data and on the counties: the posterior of each, and the density of one coefficient."""
    runs = common.references("vertical")
    return {name: run["posterior"] | ({"drawn": run["drawn"]} if "drawn" in run else {}) for name, run in runs.items()}
