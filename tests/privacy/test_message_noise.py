"""The noise in what each machine sends has the standard deviation that is accounted for, no less and no more.

Rows, shards and clients without any pull send noise alone; it is taken back out of the messages.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.core.messages import Charged
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.split import private as private_split
from fedkern.algorithms.split.messages import Begin, Residual
from fedkern.models.glm import Rows, prior
from fedkern.models.split.site import Auxiliary, Linear, Site
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import SecureSource
from support import chosen
from support.client_rounds import Rounds
from support.federations import client_of

D, N, CLIP, SIGMA, RATE = 4, 30, 1.5, 2.0, 0.25
TINY = 1e-7
ZERO, ONE = np.zeros(D), np.ones(D)


def mechanism(sampling, **own):
    return Mechanism(**({"sampling": sampling, "clip": CLIP, "dimension": 2 * D, "noise_multiplier": SIGMA} | own))


def empty_client(m, algorithm=pvi, **settings):
    """A client whose rows are zeros, so that all their gradients are zero."""
    s = chosen.pvi(**({"family": "gaussian", "optimiser": "sgd", "learning_rate": TINY, "local_steps": 1} | settings))
    local = Local(Rows(np.zeros((N, D)), np.zeros(N)), s, 0, m, SecureSource(), np.arange(N, dtype=np.uint64))
    return client_of(algorithm, "c", local, prior(D))


def asked(client, question, algorithm=pvi):
    client, (charge,) = algorithm.client_receive(client, question)
    client, (answer,) = algorithm.client_receive(client, Charged(charge.steps))
    return client, answer


def steps(n_steps, m):
    """A row's step, or the sum of several: N(0, I) moves by the noise, times the learning rate and 1 / sampling rate."""
    client = empty_client(m, local_steps=n_steps)
    while True:
        client, answer = asked(client, pvi.QUpdate(0, 0, ZERO, ONE))
        client, _ = pvi.client_receive(client, pvi.SiteApplied(client.updates - 1, 0.0))
        P = 1 + answer.dP
        yield np.concatenate([answer.dh / P, -np.log(P) / 2]) / TINY * m.rate / np.sqrt(n_steps)


def shards(variant):
    client = empty_client(mechanism("shards"), variant=variant, shards=5, damping=0.5)
    n = 5 if variant == "local-averaging" else 1
    while True:
        client, answer = asked(client, pvi.QUpdate(0, 0, ZERO, ONE))
        client, _ = pvi.client_receive(client, pvi.SiteApplied(client.updates - 1, 0.0))
        yield np.concatenate([answer.dh, answer.dP]) * n / 0.5


def gradients():
    client = empty_client(mechanism("poisson", sampling_rate=RATE), global_vi)
    while True:
        client, answer = asked(client, global_vi.Parameters(0, ZERO, ZERO), global_vi)
        yield np.concatenate([answer.mu, answer.omega]) * RATE


def columns():
    """z of a vertical client, less its own z."""
    settings = chosen.split(5, 10**6, 2 * D, 1, private=True, learning_rate=1e-3, optimiser="sgd")
    release = private_split.Release(private_split.mechanism(2 * D, D, SIGMA), CLIP, 1.0, SecureSource())
    site = Site(Linear(np.zeros((2 * D, D))), Auxiliary("mean-field", 0.5))
    client, question = private_split.client("c", 0, settings, site, release), Begin(0)
    while True:
        client, answer = asked(client, question, private_split)
        yield answer.z[0] - np.clip(client.drawn[0].z, -CLIP, CLIP)
        question = Residual(client.round, np.zeros((1, 2 * D)))


def rounds(rate):
    """Of clients that send zeros, to the server that adds the noise; in units of the scale that the release is made in."""
    job = Rounds(np.zeros((60, D)), rate, SecureSource(), clip=1e-3, sigma=SIGMA)
    while True:
        before, after = job.play()
        noise = np.concatenate([(after.h - before.h) / np.sqrt(before.P), (after.P - before.P) / before.P])
        yield noise * CLIP / job.mechanism.clip


MACHINES = {
    "one step": lambda: steps(1, mechanism("poisson", sampling_rate=RATE)),
    "several steps": lambda: steps(4, mechanism("full")),
    "without replacement": lambda: steps(1, mechanism("without-replacement", batch_size=6, dataset_size=N)),
    "cut batches": lambda: steps(1, mechanism("poisson-truncated", sampling_rate=RATE, max_batch=7, dataset_size=N)),
    "local averaging": lambda: shards("local-averaging"),
    "virtual clients": lambda: shards("virtual-clients"),
    "global": gradients,
    "columns": columns,
    "clients": lambda: rounds(1.0),
    "sampled clients": lambda: rounds(RATE),
}


def check_noise(name, n=300):
    """Chi-square over all messages, of all numbers and of each."""
    z = np.array([noise for noise, _ in zip(MACHINES[name](), range(n))]) / (SIGMA * CLIP)
    for squares, degrees in (((z**2).sum(), z.size), ((z**2).sum(axis=0), n)):
        cdf = stats.chi2.cdf(squares, degrees)
        assert np.minimum(cdf, 1 - cdf).min() > 1e-7
    correlations = np.corrcoef(z.T) - np.eye(z.shape[1])
    assert np.abs(correlations).max() < 6 / np.sqrt(n)
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 6 / np.sqrt(n)


@pytest.mark.parametrize("name", MACHINES)
def test_the_noise_is_what_is_accounted_for(name):
    check_noise(name)


@pytest.mark.parametrize("name", MACHINES)
def test_negative_control_a_fifth_less_is_noticed(name, monkeypatch):
    real = SecureSource.add_noise
    monkeypatch.setattr(SecureSource, "add_noise", lambda self, total, sigma, step=0: real(self, total, 0.8 * sigma, step))
    with pytest.raises(AssertionError):
        check_noise(name)
