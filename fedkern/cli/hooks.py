"""The surroundings of a run: what is kept (`Keeper`), and here the data holders' budgets and what the server sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any
from uuid import uuid4

from ..algorithms import certificates
from ..algorithms.messages import SERVER, Charge, Charged, ChargeFailed
from ..privacy.budget import POLICY, Holder
from ..transports.codec import Codec
from .config import AnyConfig
from .files import RunFolder, write_atomically
from .keeping import Keeper
from .sparse.watch import SamplerWatch
from .terms import Plan
from .watch import MeasuredWatch, Watch

HOME = "FEDKERN_CLIENT_HOME"


class RunHooks(Keeper):
    """What one place of a run does beside computing; used as a context manager.

    Attributes
    ----------
    watch : called at the server with its state after every event, while it is set
    """

    def __init__(self, config: AnyConfig, names: tuple[str, ...], folder: RunFolder | None) -> None:
        super().__init__(names, folder, private=config.privacy is not None, every=config.algorithm.checkpoint_every)
        self.config, self.names = config, names
        self.holders: dict[int, Holder] = {}
        self.watch: Watch | SamplerWatch | MeasuredWatch | None = None
        self._elsewhere: TemporaryDirectory[str] | None = None

    def __enter__(self) -> RunHooks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    def open_budget(self, party: int, data: str, plan: Plan, fingerprint: Callable[[int], str | None] | None = None) -> None:
        """Opens the account of a data holder (or, for unit "client", of the federation at the server) for this job.

        `fingerprint` of a client's file is computed only where a policy may ask for it.
        """
        assert self.config.privacy is not None
        home = self._account(party)
        self.holders[party] = Holder(
            "the federation" if party == SERVER else self.names[party],
            home,
            job=self._job_name(party),
            data=data,
            mechanism=plan.mechanism,
            epsilon=plan.epsilon,
            delta=plan.delta,
            last_update=self.config.privacy.last_update,
            fingerprint=fingerprint(party) if fingerprint is not None and (home / POLICY).exists() else None,
        )

    def certificate(self, party: int, *, total: bool) -> dict[str, Any]:
        """What a holder has spent in this job and, for its own eyes, in total."""
        assert self.config.privacy is not None
        holder = self.holders[party]
        content = holder.certificate(rows_per_person=self.config.privacy.rows_per_person, total=total)
        return content | ({"warnings": "; ".join(holder.warnings)} if total and holder.warnings else {})

    def certified(self, place: Any) -> dict[str, Mapping[str, Any]]:
        """Every client tells what it has spent: client -> certificate; at the server only."""
        n = len(self.names)
        mine = place.mine(n)
        for k in mine:
            self.write_own(k, "certificate.json", self.certificate(k, total=True))
        clients = {k: certificates.Client(self.certificate(k, total=False)) for k in mine}
        start = certificates.start(n) if place.is_server else None
        server, _ = self.run(place, certificates.PROTOCOL, start, clients, Codec(certificates.DIMS, n))
        return {} if server is None else {self.names[k]: server.replies[k] for k in sorted(server.replies)}

    def write_own(self, client: int, name: str, content: Any) -> None:
        """A file that only the client may see, in its own folder."""
        if self.folder is not None:
            self.folder.write_json(str((self.folder.home(client) / name).relative_to(self.folder.path)), content)

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        answer = self.holders[client].charge(charge)
        return Charged(answer.granted) if answer.granted else ChargeFailed(charge.steps, answer.spent, answer.allowed)

    def observe(self, state: Any, event: Any) -> None:
        if self.watch is not None:
            self.watch(state)

    def _restart(self, *arguments: Any) -> Any:
        """As in `Keeper`; what was measured before is not measured again."""
        start = super()._restart(*arguments)
        if self.watch is not None:
            self.watch.round = start[0].round
        return start

    def _account(self, party: int) -> Path:
        """The folder with the holder's policy and budget: its own where it has one, else the run's, else nowhere that lasts."""
        name = "federation" if party == SERVER else self.names[party]
        if home := os.environ.get(HOME):
            return Path(home) / name
        if self.folder is not None:
            return self.folder.home(party)
        self._elsewhere = self._elsewhere or TemporaryDirectory(prefix="fedkern-")
        return Path(self._elsewhere.name) / name

    def _job_name(self, party: int) -> str:
        """A name that no other run has, and that a resumed run keeps."""
        if self.folder is None:
            return uuid4().hex
        path = self.folder.home(party) / "run-id"
        if not path.exists():
            write_atomically(path, uuid4().hex.encode() + b"\n")
        return path.read_text(encoding="ascii").strip()
