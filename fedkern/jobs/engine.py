"""A whole job, of any method. The same code for one process and for every rank of an MPI job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from ..errors import JobError
from ..results.result import Result
from .files import RunFolder
from .hooks import RunHooks
from .identity import job_bytes
from .keys import Job
from .parties import Parties
from .publish import publish
from .run import Output, Part, Run

if TYPE_CHECKING:
    from .method import Method


def perform(method: Method, part: Part[Job], output: Output) -> Result | None:
    """The part of one place (a process, or an MPI rank) in a job.

    Returns
    -------
    the result at the server's place, None elsewhere
    """
    place, config = part.place, part.config
    place.signals.advice = " before the first round; nothing is lost"
    parties = method.rows.parties(config, part.folder)
    mine = place.mine(parties.n_clients)
    agree(part, parties)
    identity, folder = job_bytes(config, parties.names), output.folder
    files = None if folder is None else RunFolder(folder, parties.names, identity, config.output.own_folders(part.folder))
    # The bits of a BLAS product depend on its number of threads: a job uses one, and splits its own kernels instead.
    with RunHooks(config, parties.names, files) as hooks, threadpool_limits(1, user_api="blas"):
        hooks.clients = tuple(mine)
        hooks.permit(place, parties, quiet=output.quiet)
        if files is not None:
            files.close(mine, required=config.privacy is not None, there=output.resume)
            parties = hooks.begin(place, parties, resume=output.resume)
        place.hooks = hooks  # from here on they decide what others read of a fault
        hooks.note_use()
        run = Run(part, parties, tuple(method.stages.opening(config)), hooks, output, method.stages.stages)
        fit = method.run.fit(run)
        return None if fit is None else publish(run, fit)


def agree(part: Part[Job], parties: Parties) -> None:
    """JobError on a rank whose job or clients are others than rank 0's, or if there are too many ranks."""
    place = part.place
    place.names = parties.names
    place.agree(f"{part.config.digest} {' '.join(parties.names)}".encode())
    if place.size > 1 + parties.n_clients:
        most = 1 + parties.n_clients
        raise JobError(f"{place.size} ranks for a server and {parties.n_clients} clients; start at most {most}")
