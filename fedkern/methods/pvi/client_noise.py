"""Adds the noise of `unit = "client"` to the posterior, and judges it (docs/spec/pvi.md, section 11).

The server draws the noise of every round, so it knows its variance in h and P of q. To first order that of the mean m = h / P is
(var h + m^2 var P) / P^2: released numbers alone, which tell no coin and no client.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...algorithms.pvi import client_level
from ...algorithms.pvi import machine as pvi
from ...models.expfam import Gaussian
from ...results.verdict import Verdict, not_judged
from .model import Model

MOST = 1.0  # standard deviation of the noise in a mean, in posterior sds: beyond it the result is noise
MOVED, NARROWED = 0.1, 0.05  # what a settled mean moves, in sds, and what an sd does, as a part
GROWN = 3.0  # log of the precision's growth that the clip must leave room for, as clients add at most a clip each in a round
ERRORS = 3.0  # standard deviations of the noise by which q may move more


class Noise(NamedTuple):
    """Holds the standard deviation of the noise in each mean, in posterior sds, and in each precision, as a part of it."""

    mean: NDArray[np.float64]
    precision: NDArray[np.float64]


def noise_of(server: client_level.Server) -> Noise:
    """Returns the size of the noise in the released q."""
    q, d = pvi.released(server), server.prior.d
    variance = (server.noise[:d] + q.mean**2 * server.noise[d:]) / q.P  # of the mean, in posterior variances
    return Noise(np.sqrt(variance), np.sqrt(server.noise[d:]) / q.P)


def with_noise(server: client_level.Server) -> Gaussian:
    """Returns the released q with the variance of the noise added to that of the posterior."""
    q = pvi.released(server)
    P = q.P / (1 + noise_of(server).mean ** 2)
    return Gaussian(P * q.mean, P)


def judge(model: Model, server: client_level.Server) -> Verdict:
    """Judges q by the size of its noise, and by whether it moves more than noise does; it is never more than not judged."""
    noise, names = noise_of(server), model.encoding.names
    worst = int(np.argmax(noise.mean))
    by, name = float(noise.mean[worst]), names[worst]
    if not by <= MOST:
        clip, sigma = server.mechanism.clip, server.mechanism.sigma
        return Verdict.of(
            False,
            f"the noise in {name} has a standard deviation of about {by:.3g} posterior sds (wanted at most {MOST:g}), and no "
            f"interval is to be relied on: lower privacy.clip = {clip:g}, below about {clip / by:.2g}, with enough job.rounds "
            f"for steps as short; or privacy.noise_multiplier = {sigma:g}, below about {sigma / by:.2g}, which takes "
            "more epsilon; or have more clients, "
            'on whose number the noise does not depend. algorithm.posterior = "noise-aware" is not for unit = "client"',
            name,
        )
    if (room := server.n_clients * server.mechanism.clip * server.round) < GROWN:
        short = f"privacy.clip = {server.mechanism.clip:g}"
        return Verdict.of(
            False, f"{short} lets q go {room:.2g} in {server.round} rounds (wanted {GROWN:g}): raise job.rounds", name
        )
    moved = pvi.moved(server, server.round)
    if moved is None:
        return not_judged("a single round")
    excess = np.maximum(moved.mean / (MOVED + ERRORS * noise.mean), moved.sd / (NARROWED + ERRORS * noise.precision / 2))
    k = int(np.argmax(excess))
    if not excess[k] <= 1:
        return Verdict.of(
            False,
            f"{names[k]} moved by {moved.mean[k]:.2g} sd and its sd by {moved.sd[k]:.1%}, more than noise does: "
            f"raise job.rounds = {server.round}",
            names[k],
        )
    why = f"noise, whose standard deviation in {name} is about {by:.2g} posterior sds (wanted at most {MOST:g})"
    return Verdict.of("not judged", f"{why}; intervals contain it", name)
