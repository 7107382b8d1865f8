"""Writes the file that only a client may see: how often its optimisers failed, where no message may show it."""

from __future__ import annotations

from dataclasses import dataclass

from ...algorithms.pvi import global_vi
from ...algorithms.pvi.messages import SHARDED
from ...jobs.run import Run
from .keys import Config
from .model import Client, Model


@dataclass(frozen=True)
class Own:
    """Holds a client's number and its machine's last state."""

    index: int
    client: Client


def write(run: Run[Config], model: Model, rows: Own) -> None:
    """Writes optimiser.json to the client's folder, in jobs whose messages must not tell of a failure."""
    client, silent = rows.client, model.by_client or (model.privacy is not None and model.settings.variant in SHARDED)
    if not silent or isinstance(client, global_vi.Client):
        return
    content = {"updates": client.updates, "optimisers": model.settings.shards * client.updates, "failed": client.failed}
    run.hooks.write_own(rows.index, "optimiser.json", content)
