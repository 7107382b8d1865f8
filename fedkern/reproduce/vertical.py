"""What the reproductions of the vertical models share: federated fits in this process, and numbers that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..algorithms.split import machine as vertical
from ..data.columns import Columns
from ..models.split.site import Shared, Site
from ..transports import inprocess
from ..transports.codec import Codec
from ..transports.driver import Hooks

Array = NDArray[np.float64]
Clients = dict[int, vertical.Client]


class Trace(Hooks):
    """The ELBO estimates of all rounds, where clients send their terms."""

    def __init__(self) -> None:
        self.bounds: list[float] = []

    def observe(self, state: Any, event: Any) -> None:
        if state.round > len(self.bounds):
            self.bounds.append(state.bound)


def fit(
    data: Columns,
    sites: Sequence[Site],
    shared: Shared,
    settings: vertical.Settings,
    marks: Sequence[int] = (),
    hooks: Hooks | None = None,
) -> Iterator[tuple[vertical.Server, Clients]]:
    """A federated run in this process, looked at after certain rounds; stopping there and going on changes no bit of it.

    Parameters
    ----------
    data : y, and the offset if there is one; the covariates are in `sites`
    sites, shared, settings : see `models.vertical` and `algorithms.vertical`; `settings.rounds` is the last mark
    marks : rounds after which the states are yielded; by default only the last
    hooks : watches

    Returns
    -------
    server and clients at each mark
    """
    if marks and settings.cool_down:
        raise ValueError("a cooling learning rate depends on the last round: no marks before it")
    told = settings.model == "power" or settings.response == "shared"
    names = tuple(f"client-{k + 1}" for k in range(len(sites)))

    def client(k: int) -> vertical.Client:
        if told or "response" in sites[k].auxiliary.inputs:
            return vertical.client(names[k], k, settings, sites[k], data.y, shared.likelihood)
        return vertical.client(names[k], k, settings, sites[k])

    clients = {k: client(k) for k in range(len(sites))}
    server, _ = vertical.start(settings, shared, names, data.y, data.offset)
    codec = Codec(settings.dims(), len(sites))
    for mark in (*(m for m in marks if m < settings.rounds), settings.rounds):
        until = replace(settings, rounds=mark)
        clients = {k: replace(one, settings=until, drawn=()) for k, one in clients.items()}
        begin: list[Any] = [(k, vertical.Begin(server.round)) for k in clients]
        with threadpool_limits(1, user_api="blas"):  # fits run side by side
            server, clients = inprocess.run(
                vertical.protocol(until), (replace(server, settings=until), begin), clients, codec, hooks
            )
        yield server, clients


def last(*arguments: Any, **more: Any) -> tuple[vertical.Server, Clients]:
    """`fit` without marks."""
    (found,) = fit(*arguments, **more)
    return found


@cache
def references() -> dict[str, Any]:
    """Summaries of long NUTS runs on the simulated data and on the counties, which tests/references/vertical.py has made."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("vertical_nuts.json").read_text(encoding="utf-8"))
    return found


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """Lines of a file of results, by their key."""
    if not path.exists():
        return {}
    return {line["key"]: line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One more line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def shown(values: Iterable[float], digits: int) -> str:
    """Mean ± standard deviation."""
    found = np.fromiter(values, dtype=np.float64)
    if not len(found):
        return ""
    spread = f" ± {found.std(ddof=1):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{spread}"
