"""Tests whether a settled spatial fit is right, by importance weights of draws of the global unknowns.

Source: docs/concepts/convergence.md, "Whether it is right".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from scipy.special import expit

from ...algorithms.core.exchange import LARGEST
from ...algorithms.core.messages import SERVER
from ...algorithms.core.rounds import in_order, summed
from ...algorithms.exchanges.answers import PIECE, LogTerms
from ...algorithms.sfvi import families as wide
from ...algorithms.sfvi import machine as sfvi
from ...algorithms.sfvi.machine import log_terms
from ...arrays import Array
from ...errors import NumericalError
from ...jobs.run import Run
from ...kernels import rng
from ...results import guard
from ...results.reweighed import Reweighed, reweigh
from . import publish, stages
from .keys import Config
from .model import SigmaModel

GLOBAL, LOCAL = 1001, 1002  # chains of the stream "posterior": released draws have the first 1,000
EFFECTIVE = 1000.0  # draws of equal weight that the weights must be worth


def exchange_terms(
    run: Run[Config],
    model: SigmaModel,
    server: sfvi.Server | None,
    clients: Mapping[int, sfvi.Client],
    settled: Mapping[str, bool | None],
) -> Reweighed | None:
    """Asks for log-likelihoods and returns the comparison by weights, at the server's place.

    It is None elsewhere, where something still moves, and in jobs that do not ask. All parties go through as many questions as
    there may be; the server asks as long as its weights do not tell enough.
    """
    if not model.output.reweigh:
        return None
    asks = server is not None and publish.settled(model, server, settled).converged == "settled"
    weights: Reweighed | None = None
    drawn: list[tuple[Array, Array, Array]] = []
    for piece in range(model.pieces):
        stage = stages.weighed(model).with_alias(f"terms-{piece + 1}")
        terms = run.collect(stage, LogTerms, clients, partial(_answer, model, piece), LogTerms.ask(piece), asks=asks)
        if terms is None or server is None or not asks:
            continue
        run.hooks.notes += [
            f"no weights: client {model.telling[k]!r} has none, for {why}" for k, why in sorted(terms.dropped.items())
        ]
        if not terms.complete:
            weights, asks = None, False
            continue
        weights = _compared(model, server, drawn, piece, summed(reply.values for reply in in_order(terms.replies)))
        asks = weights is not None and not weights.enough and weights.promising(model.pieces * PIECE)
    return weights


@guard.check("the weights of q", None)
def _compared(
    model: SigmaModel, server: sfvi.Server, drawn: list[tuple[Array, Array, Array]], piece: int, values: Array
) -> Reweighed | None:
    """Returns weights of the draws of all questions so far; adds those of this one to `drawn`."""
    drawn.append(_weighed(model, server, piece, values))
    xi, ratios, beside = (np.concatenate(part) for part in zip(*drawn))
    return reweigh(publish.unknowns(model), _natural(model, xi), ratios, beside=beside, wanted=EFFECTIVE)


def _weighed(model: SigmaModel, server: sfvi.Server, piece: int, values: Array) -> tuple[Array, Array, Array]:
    """Returns the draws of a question (S, P), log p less the log density from which they are drawn, and log q less that."""
    made, prior = _draws(model, server.parameters, piece), model.prior
    xi = model.shear(server.ridge_numbers).out(made.inner)
    if model.box is not None:  # its sides are far outside of any posterior: there is no mass beyond
        values = np.where(model.box.holds(xi), values, -LARGEST)
    ratios = values + np.array([prior.log_prior_grad(x)[0] for x in xi]) - (made.log_q - made.beside)
    return xi, ratios, made.beside


def _answer(model: SigmaModel, piece: int, client: sfvi.Client) -> LogTerms:
    """Computes a client's log-likelihoods."""
    assert client.fitted is not None
    assert client.ridge is not None
    xi = model.shear(client.ridge).out(_draws(model, client.fitted, piece).inner)
    if model.box is not None:
        xi = model.box.nearest(xi)
    try:
        values = log_terms(client, xi, rng.key(client.seed, "posterior", LOCAL), piece * PIECE)
    except NumericalError:
        if not model.secure:
            raise
        values = np.full(len(xi), np.nan)  # which ends the job at all clients
    return LogTerms(piece, values)


def _draws(model: SigmaModel, parameters: Array, piece: int) -> wide.Wide:
    """Returns the draws of a question, the same at all parties: wide in phi, rho and the scales, and from q given these."""
    block, parts = model.sfvi.block(model.layout.size), model.layout.parts
    count = PIECE * wide.normals(block.size)
    e = rng.normal(count, key=rng.key(model.seed, "posterior", GLOBAL), client=SERVER, step=piece).reshape(PIECE, -1)
    places = [k for name in ("phi", "rho", "log_scale", "log_sd") for k in range(parts[name].start, parts[name].stop)]
    return wide.draws(block, parameters, places, e)


def _natural(model: SigmaModel, xi: Array) -> Array:
    """Replaces the coordinates of phi, rho and the scales by their published values."""
    parts, out = model.layout.parts, xi.copy()
    out[:, parts["phi"]] = model.condition.at(xi[:, parts["phi"]])[0]
    out[:, parts["rho"]] = expit(xi[:, parts["rho"]])
    for name in ("log_scale", "log_sd"):
        out[:, parts[name]] = np.exp(xi[:, parts[name]])
    return out
