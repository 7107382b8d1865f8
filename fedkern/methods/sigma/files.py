"""Reads the files of a prior: every party has its file, and all were made together."""

from __future__ import annotations

from dataclasses import dataclass

from ...algorithms.core.messages import SERVER, ServerEffects
from ...algorithms.exchanges import prior as prior_agreement
from ...data.artifact import Common, OwnFile, ServerFile, read_own, read_server
from ...errors import JobError
from ...jobs.run import At
from ...jobs.stage import Stage
from .keys import Config
from .rows import prior_of


@dataclass(frozen=True)
class Files:
    """Holds the files of one place: its clients', and the server's where it lives."""

    clients: dict[int, OwnFile]
    server: ServerFile | None

    @property
    def common(self) -> Common:
        """The part that all files of the prior share."""
        return self.server.common if self.server is not None else next(iter(self.clients.values())).common

    @property
    def digests(self) -> dict[int, str]:
        """Party -> the digest of its file."""
        server = {} if self.server is None else {SERVER: self.server.common.id}
        return {k: file.digest for k, file in self.clients.items()} | server


def read(job: At[Config]) -> Files:
    """Reads the file of every party at this place. Raises JobError: a file is missing, altered or of another client; or the
    clients are not those of the prior."""
    names, path = job.names, prior_of(job.config, job.part.folder)
    clients = {k: read_own(path, names[k]) for k in job.mine}
    server = read_server(path) if job.place.is_server else None
    if server is not None and server.clients != names:
        unknown = sorted(set(names) ^ set(server.clients))
        what = f"{', '.join(unknown[:6])} on one side only" if unknown else "the same clients in another order"
        raise JobError(
            f"{path}: this prior was built or trained for {len(server.clients)} clients, the job has {len(names)} ({what}); name "
            "the files as the prior's clients, or give data.names; a client without data needs a file with its areas, and "
            "empty responses"
        )
    return Files(clients, server)


def agree(job: At[Config], files: Files) -> None:
    """Raises JobError unless all files were made together."""
    names, path = job.names, str(prior_of(job.config, job.part.folder))
    clients = {k: prior_agreement.Client(names[k], file.common.id, file.digest, path) for k, file in files.clients.items()}

    def start() -> tuple[prior_agreement.Server, ServerEffects]:
        assert files.server is not None
        return prior_agreement.start(names, files.server.common.id, files.server.digests)

    job.exchange(Stage.of(prior_agreement), start, clients)
