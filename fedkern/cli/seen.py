"""Shows a job of several organisations as one of them can see it, from its own file alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..api import check_job
from ..bridges.digest import names_of
from ..bridges.identity import Identity
from ..data.cells import Cells, Text
from ..data.table import Table
from ..errors import FedkernError, JobError, show_own_faults
from ..jobs.engine import local, there
from ..jobs.held import Held
from ..jobs.holders import permit
from ..jobs.keys import JobConfig
from ..jobs.parties import Parties
from ..jobs.run import Part
from ..jobs.site import Sites
from ..methods import load_method
from ..printing import align_columns, printable
from ..transports.inprocess import InProcess
from ..transports.place import RELAYED

UNSEEN = "the model, each kind of message, and what can be told of rows"


class Seen(NamedTuple):
    """Holds a job as one of its clients can look at it."""

    config: JobConfig  # the job, in which every client has this one's file, and the server only files that are here
    # client, path: this client, and its file
    client: str
    path: Path
    held: Held | None  # stands for the response of a vertical job, where another party has it; None where none is needed


class Here(InProcess):
    """Is the place in which a job is shown: a site that signs is one that signs here, too."""

    def __init__(self, identity: Identity | None = None) -> None:
        super().__init__()
        self.identity = identity

    def signer(self, client: int) -> Identity | None:
        """Returns the identity of this site."""
        return self.identity


@dataclass(frozen=True)
class MadeUp(Held):
    """Stands for the response of a vertical job: this client's ids with zeros and ones, at the server or at another client."""

    config: JobConfig | None = None  # the job
    other: int | None = None  # the number of the client that tells it; None for the server

    def over(self, parties: Parties) -> Parties:
        """Returns the parties, one of which has the response. The server's own files that are not here are not asked about."""
        data: Any = None if self.config is None else self.config.data
        data_sets = tuple(data for data in parties.own if data.paths and all(path.exists() for path in data.paths))

        def response(n: int) -> Cells:
            codes = np.arange(n) % 2
            return codes.astype(float) if data.positive is None else Text(codes, (data.positive, f"not {data.positive}"))

        def server() -> Table:
            table = parties.rows(0)
            columns = {data.id: table.columns[data.id], data.response: response(table.n_rows)} if data.id in table.columns else {}
            offset = {} if data.offset is None else {data.offset: np.zeros(table.n_rows)}
            return Table("the server's file", (*columns, *offset), {**columns, **offset}, table.n_rows)

        def rows(k: int) -> Table:
            table = parties.rows(k)
            if k != self.other:
                return table
            columns = {**table.columns, data.response: response(table.n_rows)}
            return replace(table, names=tuple(columns), columns=columns, matrix=None, matrix_names=())

        def header(k: int) -> tuple[str, tuple[str, ...]]:
            source, names = parties.header(k)
            return source, (*names, data.response) if k == self.other else names

        if self.other is None:
            return replace(parties, server=server, own=data_sets)
        return replace(parties, rows=rows, header=header, own=data_sets)


def as_seen_here(config: JobConfig, folder: Path, *, signs: bool = False) -> Seen:
    """Returns a job of several organisations as one of them can look at it. Raises JobError: no site file says which client this
    is, or its policy does not allow the job over a relay."""
    names = names_of(config)
    client = Sites(folder, names).whose()
    number = names.index(client)
    parties = there(load_method(config.job.method), Part(InProcess(), config, folder))
    signing = (number,) if signs else ()
    binding = permit(config, parties, number, RELAYED, signing)
    # To show the job would be to run this code on the rows, before anybody has said yes to it.
    if config.factory is not None and not binding.bound:
        raise JobError(
            f'this job has a function of your packages run on your rows (model.factory = "{config.factory}"), and no policy '
            "names these data: nothing of it was run; look at that code, and if it may run write "
            f'factories = ["{config.factory}"] into a policy that names them (docs/how-to/policy.md)'
        )
    (path, *_) = parties.holding(number).paths
    held = _made_up(config, folder, parties, number)
    seen = _alone(config, folder, names, path, keep=held is not None)
    # Another site's file may have the columns that this one lacks.
    there_are = parties.header(number)[1]
    data: Any = seen.data
    ignored = [name for name in data.ignore if name in there_are]
    return Seen(seen.model_copy(update={"data": data.model_copy(update={"ignore": ignored})}), client, path, held)


def _alone(config: JobConfig, folder: Path, names: tuple[str, ...], path: Path, *, keep: bool) -> JobConfig:
    """Returns a job in which every client has this site's file, and the server has only files that are here.

    `keep`: a table stands for data.server.
    """
    given: dict[str, Any] = {"clients": [str(path)] * len(names), "names": list(names)}
    for name in ("test", "server"):
        file = getattr(config.data, name, None)
        if file is not None and not (folder / file).exists() and not (keep and name == "server"):
            given[name] = None
    data: Any = config.data
    return config.model_copy(update={"data": data.model_copy(update=given)})


def _made_up(config: JobConfig, folder: Path, parties: Parties, number: int) -> Held | None:
    """Returns what stands for the response of a vertical job that is not here; None where it is, or the method has none apart."""
    if config.job.method != "vertical":
        return None
    data: Any = config.data
    if data.server is not None:
        return None if (folder / data.server).exists() else MadeUp(config=config)
    others = [k for k in range(parties.n_clients) if k != number]
    if not others or data.response in parties.header(number)[1]:
        return None
    return MadeUp(config=config, other=others[0])


def show(config: JobConfig, folder: Path, identity: Identity | None) -> tuple[bool, str]:
    """Prints what `check` and `check --local` say of a job at this site. Returns whether it could run here, and why the first of
    the two is not shown; empty where it is."""
    seen, why = as_seen_here(config, folder, signs=identity is not None), ""
    try:
        lines = check_job(Here(identity), seen.config, folder, seen.held) or []
    except FedkernError as error:
        why = str(error)
        print(printable(f"Not shown: {UNSEEN}. They cannot be had without the other parties ({why})."))
        print("Ask the coordinator for what `fedkern check` prints at its place.")
    else:
        print(printable(f"The job, as if all its clients ({', '.join(names_of(config))}) had the columns of {seen.client}:"))
        print()
        print("\n".join(map(printable, lines)))
        if seen.held is not None:
            print("\nThe response is not here: zeros and ones stand for it, and no line above tells of it.")
    if identity is not None:
        print(f"\nThis site signs by the key  {identity.fingerprint}\nand accepts these keys of the others alone:\n")
        print("\n".join(map(printable, align_columns([*identity.peers.items()]))))
    elif config.secure:
        print(
            "\nThis site signs no key, as its site.toml names no signing_key: a server that was changed could read its numbers."
        )
    print("\nIts own file:\n")
    with show_own_faults():
        return local(load_method(config.job.method), Part(InProcess(), config, folder), seen.path) == 0, why


def check_shown(job: str, why: str, *, yes: bool) -> None:
    """Raises JobError where somebody is about to be asked about a job of which nothing could be shown."""
    if why and not yes:
        raise JobError(f"{job} is not accepted: {UNSEEN} could not be shown, see above; --yes accepts it all the same")
