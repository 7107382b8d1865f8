"""A whole job, of any method. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from ..errors import JobError
from ..results.result import Result
from ..transports.place import Place
from .files import RunFolder
from .hooks import RunHooks
from .identity import job_bytes
from .keys import JobConfig
from .parties import Parties
from .run import Output, Run

if TYPE_CHECKING:
    from .method import Method


def perform(method: Method, place: Place, config: JobConfig, folder: Path, output: Output) -> Result | None:
    """The part of one place (a process, or an MPI rank) in a job whose paths are relative to `folder`.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    place.signals.advice = " before the first round; nothing is lost"
    found = method.rows.parties(config, folder)
    mine = place.mine(found.n_clients)
    agree(place, config, found)
    identity = job_bytes(config, found.names)
    files = None if output.folder is None else RunFolder(output.folder, found.names, identity, config.output.own_folders(folder))
    # The bits of a BLAS product depend on its number of threads: a job uses one, and splits its own kernels instead.
    with RunHooks(config, found.names, files) as hooks, threadpool_limits(1, user_api="blas"):
        hooks.clients = tuple(mine)
        hooks.permit(place, found, quiet=output.quiet)
        if files is not None:
            files.close(mine, required=config.privacy is not None, there=output.resume)
            found = hooks.begin(place, found, resume=output.resume)
        place.hooks = hooks  # from here on they decide what others read of a fault
        hooks.note_use()
        return method.run.perform(Run(place, config, folder, found, hooks, output))


def agree(place: Place, config: JobConfig, found: Parties) -> None:
    """JobError on a rank whose job or clients are others than rank 0's, or if there are too many ranks."""
    place.names = found.names
    place.agree(f"{config.digest} {' '.join(found.names)}".encode())
    if place.size > 1 + found.n_clients:
        raise JobError(f"{place.size} ranks for a server and {found.n_clients} clients; start at most {1 + found.n_clients}")
