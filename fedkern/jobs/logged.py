"""Computes the last state of a server again, from the answers that it has kept (`answers`), whatever the method."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ..algorithms.core.kept import save
from ..algorithms.core.messages import ClientBack, ClientLost, RemoteFault, Saved
from ..errors import JobError, NumericalError
from ..results.plain import Record
from ..transports.codec import Codec, pack
from . import answers
from .opened import Opened
from .stage import Stage

SIZE = 16  # bytes of a state's digest
EVENTS: dict[str, type[ClientLost] | type[ClientBack]] = {"lost": ClientLost, "back": ClientBack}  # of a client that a line names


def digest(saved: Saved) -> str:
    """Returns the digest of a saved state, which `answers` of summary.json has of the server's last one."""
    return hashlib.blake2b(pack(saved), digest_size=SIZE).hexdigest()


def refuse_rows(run: Opened) -> None:
    """Raises JobError where the answers of a run may not be computed again from rows."""
    if run.privacy is not None:
        why = "noise on rows that have changed would be a second release, for which nobody has paid"
        raise JobError(f"{run.path}: the job is private, and its answers are never computed again: {why}. Leave out --rows")


def last_state(run: Opened, begun: Callable[[Record], tuple[Stage, Any]]) -> Any:
    """Returns the state of the server to which the answers lead. `begun`: what the parties had agreed on before the rounds -> the
    stage of these, and the server's state before the first answer. Raises JobError: the run has kept no answers, they were
    altered, or they are of another job."""
    path = run.path / answers.FILE
    first, *lines = answers.read(path, answers.of_summary(run))
    stage, fresh = begun(first)
    protocol, state = stage.protocol, fresh
    codec, numbers = Codec(stage.dims, len(run.names)), {name: k for k, name in enumerate(run.names)}
    for number, line in enumerate(lines, 2):
        try:
            if "frame" in line:
                client, event = codec.decode(line["frame"], protocol.to_server)
                state, _ = protocol.server_receive(state, client, event)
            elif "began" in line:
                state = protocol.load(fresh, protocol.save(state))
            else:
                ((word, name),) = line.items()
                state, _ = protocol.server_receive(state, numbers[name], EVENTS[word](numbers[name]))
        except (RemoteFault, NumericalError, KeyError) as error:
            raise JobError(f"{path}: line {number} is no answer of this run: {error}") from None
    return state


def digests(run: Opened, begun: Callable[[Record], tuple[Stage, Any]]) -> tuple[str, str]:
    """Returns the digest of the server's last state, by the answers and of the run."""
    state = last_state(run, begun)
    return digest(save(state)), str(answers.of_summary(run)["state"])
