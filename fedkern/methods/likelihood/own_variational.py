"""Fits an own model whose clients have unknowns of their own by structured variational inference, and weights draws about it.

`algorithms.sfvi` finds q(xi) and at each client q(u | xi). Then all parties draw xi from a distribution that is wider than q(xi).
Each client says what its rows' log-likelihood is there, its own unknowns integrated out: the mean of
p(rows, u | xi) / q(u | xi) over draws of u is unbiased whatever q is. So the weights of xi have the exact posterior as their
target. Their k-hat and their effective number say whether they have found it.

Source: docs/how-to/own-model.md; docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ...algorithms.core.messages import SERVER, ServerEffects
from ...algorithms.core.rounds import in_order, summed
from ...algorithms.exchanges.answers import PIECE, LogTerms
from ...algorithms.sfvi import families as wide
from ...algorithms.sfvi import machine as sfvi
from ...arrays import Array
from ...errors import owned
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...kernels import rng
from ...kernels.families import HALF_LOG_TAU
from ...models.weighted import Weighted
from ...results import guard
from ...results.verdict import Check, Verdict, not_judged, of_weights
from . import own_publish
from .keys import Config
from .own_model import Joint, OwnModel
from .steps import Read

# Of all parties; the share of the rounds in which the rate falls; the sd of q(xi) at first.
LEARNING_RATE, FALLING, START_SD = 0.02, 0.5, 0.1
PIECES = 10  # questions at most, of 1,000 draws each
INNER = 16  # draws of a client's unknowns for each of these
GLOBAL, LOCAL = 1001, 1002  # numbers of the stream "posterior"
QUANTILES = (0.025, 0.5, 0.975)
NORMAL = (-1.959963984540054, 0.0, 1.959963984540054)  # these quantiles of a standard normal


class Weighing(NamedTuple):
    """Draws with their weights, and how many questions they took; None of clients that had no answer."""

    weights: Weighted | None
    asked: int


def settings(model: OwnModel) -> sfvi.Settings:
    """Returns what all parties know of the fit."""
    return sfvi.Settings(
        rounds=model.rounds_of_fit,
        most=0,
        covariance="full",
        local_covariance="auto",
        coupled=True,
        draws=1,
        path=True,
        optimiser="adam",
        learning_rate=LEARNING_RATE,
        decay=FALLING,
        initial_sd=START_SD,
        bound=False,
        sheared=False,
        local_steps=0,
        seed=model.seed,
        lead=model.lead,
    )


def stages(model: OwnModel) -> list[Stage]:
    """Returns what the parties exchange: the rounds of the fit, and log-likelihoods at draws."""
    return [fitted(model), weighed()]


def fitted(model: OwnModel) -> Stage:
    """Returns the rounds of the fit."""
    chosen = settings(model)
    sizes, agreed = {**chosen.sizes(model.size), "d": model.size}, model.agreed if chosen.lead else None
    return Stage(sfvi.protocol(chosen), sizes, rounds=chosen.rounds, resumable=True, agreed=agreed)


def weighed() -> Stage:
    """Returns a question about log-likelihoods, which comes up to so many times."""
    return replace(Stage.asking(LogTerms), runs=PIECES)


def fit(run: Run[Config], read: Read) -> Fit | None:
    """Fits q, draws about it and weights the draws.

    Returns the result at the server's place, None elsewhere; clients find local.csv in their folders.
    """
    model: OwnModel = read.model
    chosen, owns = settings(model), read.likelihoods

    machines = {k: sfvi.client(model.names[k], k, chosen, Joint(likelihood), len(model.names)) for k, likelihood in owns.items()}
    server, clients = run.exchange(fitted(model), lambda: start(model), machines)
    weighing = _weigh(run, model, server, clients)
    for k, client in clients.items():
        with owned(k):
            _write(run, k, client)
    if server is None:
        return None
    assert weighing is not None
    judged = _verdict(weighing, model.settings.effective, server.round)
    return own_publish.of_variational(model, server.round, weighing.weights, judged, run.hooks.doubts)


def start(model: OwnModel) -> tuple[sfvi.Server, ServerEffects]:
    """Returns the server of the fit before the first answer, with its first questions."""
    return sfvi.start(settings(model), model.prior, model.names, model.starts(1)[0])


def _weigh(run: Run[Config], model: OwnModel, server: sfvi.Server | None, clients: Mapping[int, sfvi.Client]) -> Weighing | None:
    """Returns weighted draws at the server's place. All parties go through as many questions as there may be."""
    drawn: list[tuple[Array, Array]] = []
    weighing, asks = Weighing(None, 0), server is not None
    for piece in range(PIECES):
        stage = weighed().with_alias(f"terms-{piece + 1}")
        replies = run.collect(stage, LogTerms, clients, partial(_answer, model, piece), LogTerms.ask(piece), asks=asks)
        if replies is None or server is None or not asks:
            continue
        run.hooks.notes += [
            f"no weights: client {run.names[k]!r} has none, for {why}" for k, why in sorted(replies.dropped.items())
        ]
        if not replies.complete:
            asks = False
            continue
        made = _draws(model, server.parameters, piece)
        values = summed(reply.values for reply in in_order(replies.replies))
        prior = np.asarray(model.prior.values(made.inner), np.float64)
        drawn.append((made.inner, values + prior - (made.log_q - made.beside)))
        all_draws = Weighted(*(np.concatenate(part) for part in zip(*drawn)))
        weighing = Weighing(all_draws, piece + 1)
        asks = not (all_draws.reliable and all_draws.effective >= model.settings.effective)
    return None if server is None else weighing


def _draws(model: OwnModel, parameters: Array, piece: int) -> wide.Wide:
    """Returns the draws of a question, the same at all parties: wider than q in all unknowns."""
    block = settings(model).block(model.size)
    count = PIECE * wide.normals(block.size)
    e = rng.normal(count, key=rng.key(model.seed, "posterior", GLOBAL), client=SERVER, step=piece).reshape(PIECE, -1)
    return wide.draws(block, parameters, range(block.size), e)


def _answer(model: OwnModel, piece: int, client: sfvi.Client) -> LogTerms:
    """Returns a client's log-likelihoods, its own unknowns integrated out."""
    assert client.fitted is not None
    xi = _draws(model, client.fitted, piece).inner
    return LogTerms(piece, log_likelihoods(client, xi, rng.key(model.seed, "posterior", LOCAL), piece * len(xi)))


def log_likelihoods(client: sfvi.Client, xi: Array, key: int, first: int = 0) -> Array:
    """Returns (m,) estimates of log p(rows | xi), whose exponentials are unbiased. `xi`: (m, P); `key`, `first`: of the draws of
    u, and the number of the first xi among all that are asked about."""
    own_model, family = client.model, client.family
    assert isinstance(own_model, Joint)
    assert isinstance(family, sfvi.Family)
    assert client.centre is not None
    out, d = np.empty(len(xi)), family.n_normals
    for k, x in enumerate(xi):
        eps = rng.normal(INNER * d, key=key, client=client.index, step=first + k).reshape(INNER, d)
        given = family.given(client.parameters, x - client.centre)
        scale = family.block.scale(given)
        L = scale if family.block.full else np.diag(scale)
        log_q = -0.5 * (eps**2).sum(axis=1) - np.log(np.diag(L)).sum() - d * HALF_LOG_TAU
        value = own_model.log_joint_grads(np.tile(x, (INNER, 1)), given[:d] + eps @ L.T)[0]
        out[k] = logsumexp(np.where(np.isnan(value), -np.inf, value - log_q)) - np.log(INNER)
    return out


@guard.check("the weights", not_judged("no check is known"))
def _verdict(weighing: Weighing, wanted: float, rounds: int) -> Verdict:
    """Returns whether the weights say that the draws are right, with what to do where they do not."""
    weights = weighing.weights
    chains = 'take algorithm.sampler = "hmc"'
    if weights is None:
        return Verdict.of(False, f"no client's log-likelihoods say whether q is near the posterior: {chains}")
    judged = of_weights(weights, wanted)
    if judged.converged:
        return judged
    return judged.also(
        Check(
            f"after {rounds} rounds and {len(weights.draws)} draws q(xi), or a client's q(u | xi), is not near the posterior: "
            f"{chains}, or more rounds (job.rounds)",
            False,
        )
    )


def _write(run: Run[Config], client: int, ended: sfvi.Client) -> None:
    """Writes local.csv into the client's own folder: mean, sd and quantiles of q, which is a normal distribution."""
    folder = run.hooks.folder
    if folder is None:
        return
    mean, covariance = sfvi.local_posterior(ended)
    sd = np.sqrt(np.diag(covariance))
    columns = {"unknown": list(range(1, len(mean) + 1)), "mean": mean.tolist(), "sd": sd.tolist()}
    columns |= {f"q{round(1000 * q):03d}": (mean + z * sd).tolist() for q, z in zip(QUANTILES, NORMAL)}
    folder.write_csv("local.csv", columns, client=client)
