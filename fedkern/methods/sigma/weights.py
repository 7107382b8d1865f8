"""Whether a spatial fit that has settled is right: importance weights of draws of the global unknowns from q.

Source: docs/concepts/convergence.md, "Whether it is right".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.messages import SERVER
from ...algorithms.core.rounds import in_order, summed
from ...algorithms.exchanges import terms
from ...algorithms.sfvi import machine as sfvi
from ...algorithms.sfvi.terms import log_terms
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...kernels import rng
from ...results.reweighed import Reweighed, reweighed
from . import publish
from .keys import Config
from .model import SigmaModel

Array = NDArray[np.float64]

GLOBAL, LOCAL = 1001, 1002  # chains of the stream "posterior": released draws have the first 1,000


def exchanged(
    run: Run[Config],
    model: SigmaModel,
    server: sfvi.Server | None,
    clients: Mapping[int, sfvi.Client],
    settled: Mapping[str, bool | None],
) -> Reweighed | None:
    """What the weights say, at the server's place; None elsewhere, where something still moves, and in jobs that do not ask."""
    if not model.output.reweigh:
        return None
    own = {k: once.Client(partial(_answer, model, client)) for k, client in clients.items()}
    asks = server is not None and publish.settled(model, server, settled).converged == "settled"
    told, _ = run.ask(Stage.of(terms), terms.QUESTION, terms.AskTerms(0) if asks else None, own)
    if told is not None:
        run.hooks.notes += [f"no weights: client {run.names[k]!r} has none, for {why}" for k, why in sorted(told.dropped.items())]
    if told is None or server is None or not told.complete:
        return None
    (block, parameters), prior = server.q, model.prior
    xi, e = _draws(model, parameters)
    ratios = summed(reply.values for reply in in_order(told.replies))
    ratios += [prior.log_prior_grad(x)[0] - block.log_density(parameters, row) for x, row in zip(xi, e)]
    return reweighed(publish.unknowns(model), xi, ratios)


def _answer(model: SigmaModel, client: sfvi.Client, asked: terms.AskTerms) -> terms.LogTerms:
    """A client's log-likelihoods."""
    assert client.fitted is not None
    key = rng.key(model.seed, "posterior", LOCAL)
    return terms.told(asked, log_terms(client, _draws(model, client.fitted)[0], key))


def _draws(model: SigmaModel, parameters: Array) -> tuple[Array, Array]:
    """(S, P) draws of xi from q, the same at all parties, and the normals that they are made of."""
    block, seed = model.sfvi.released(model.layout.size), model.seed
    e = rng.normal(terms.DRAWS * block.size, key=rng.key(seed, "posterior", GLOBAL), client=SERVER).reshape(-1, block.size)
    return np.array([block.sample(parameters, row) for row in e]), e
