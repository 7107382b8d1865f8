"""Computes the posterior of an asynchronous run again, from the answers that its server has kept (`jobs/answers.py`)."""

from __future__ import annotations

from dataclasses import replace

from ...algorithms.core import kept
from ...algorithms.core.messages import ClientLost, RemoteFault
from ...algorithms.pvi import machine as pvi
from ...errors import JobError, NumericalError
from ...jobs import answers
from ...jobs.opened import Opened
from ...models.encoding import Encoding
from ...models.spatial.units import Units
from ...results.summary import digest
from ...transports.codec import Codec
from . import publish, response
from .keys import Config
from .model import Model
from .stages import trained


def replay(run: Opened) -> tuple[str, str]:
    """Returns the digest of the posterior that follows from the answers, and that of the run's own.

    Raises
    ------
    JobError
        The run has kept no answers, they were altered, or they are of another job.
    """
    config, path = run.config, run.path / answers.FILE
    if not isinstance(config, Config) or run.summary is None:
        raise JobError(f'{run.path}: replay wants a finished run of method = "pvi" with schedule = "asynchronous"')
    first, *lines = answers.read(path, run.summary.get("answers"))
    known = response.Response(Units(first["level"], first["scale"]))
    model = replace(Model.of(config, run.names, Encoding.from_dict(first["encoding"])), response=known)
    codec, numbers = Codec(trained(model).dims, len(run.names)), {name: k for k, name in enumerate(run.names)}
    fresh, _ = model.start()
    assert isinstance(fresh, pvi.Server)
    state = fresh
    for number, line in enumerate(lines, 2):
        try:
            if "frame" in line:
                client, event = codec.decode(line["frame"], model.protocol.to_server)
                state, _ = pvi.server_receive(state, client, event)
            elif "lost" in line:
                state, _ = pvi.server_receive(state, numbers[line["lost"]], ClientLost(numbers[line["lost"]]))
            else:
                state = kept.load(fresh, kept.save(state))
        except (RemoteFault, NumericalError, KeyError) as error:
            raise JobError(f"{path}: line {number} is no answer of this run: {error}") from None
    ended = response.in_data_units(state, model) if model.given.measured else state
    return digest(publish.arrays(model, ended, pvi.released(ended))), str(run.summary["digest"])
