"""The rows, shards and clients whose vectors are summed are those that the mechanism drew, each once, at every machine.

Without noise, a sum of one-hot vectors whose lengths are powers of two spells out who is in it. What the mechanism draws is
computed here a second time, from the words of the key stream.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedkern.algorithms.core.messages import Charged
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi import scale as shards
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.split import private as private_split
from fedkern.algorithms.split.messages import Begin, Residual
from fedkern.models.expfam import Gaussian
from fedkern.models.glm import Rows, prior
from fedkern.models.split.site import Auxiliary, Linear, Site
from fedkern.privacy.accountant import GRID, Mechanism
from fedkern.privacy.noise import CHUNK
from support import chosen
from support.client_rounds import Rounds
from support.sources import Silent, plant_words

D = 64
BITS = 20  # one-hot vectors of 2^0 .. 2^19 grid steps: the longest is half a clip, so none is clipped
BLOCK = BITS * D  # that one sum can name
AROUND = (2**14, 2**14 + 1, 2**15 - 1, 2**15, 2**15 + 1)


def mechanism(sampling, n, **changes):
    own = {
        "poisson": {"sampling_rate": 0.3},
        "poisson-truncated": {"sampling_rate": 0.75, "max_batch": max(1, 2 * n // 3), "dataset_size": n},  # nearly always cut
        "without-replacement": {"batch_size": n // 50 + 1, "dataset_size": n},
        "full": {},
    }[sampling]
    return Mechanism(**({"sampling": sampling, "clip": 1.0, "dimension": 2 * D, "noise_multiplier": 1.0} | own | changes))


def drawn(m, n, words):
    """The rows of the first step: a coin is heads if its word is below the rate, a subset has the smallest pairs of words."""
    if m.sampling == "without-replacement":
        return smallest(words[: 2 * n], m.batch_size)
    if m.sampling == "full":
        return np.arange(n)
    rows = np.flatnonzero(words[:n] < math.ceil(m.sampling_rate * 2**32))
    if m.max_batch is not None and len(rows) > m.max_batch:
        return rows[smallest(words[n : n + 2 * len(rows)], m.max_batch)]
    return rows


def smallest(words, size):
    return np.sort(np.argsort(np.ascontiguousarray(words).view(np.uint64), kind="stable")[:size])


def spelt(sums, n):
    """Which of n vectors are in a sum, in units of the grid, a column for each BITS of them; None if it is no plain sum."""
    numbers = np.rint(sums).astype(np.int64)
    if np.abs(sums - numbers).max() > 1e-3 or numbers.min() < 0 or numbers.max() >= 2**BITS:
        return None
    inside = (numbers[:, np.newaxis] >> np.arange(BITS) & 1).astype(bool).ravel()
    return None if inside[n:].any() else np.flatnonzero(inside[:n])


# --- rows


def answer_of_pvi(local):
    """The step that one update took from q = N(0, I), which is the prior as well, by gradient ascent of rate 1."""
    client = pvi.client("c", local, prior(D))
    client, (charge,) = pvi.client_receive(client, pvi.QUpdate(0, 0, np.zeros(D), np.ones(D)))
    _, (delta,) = pvi.client_receive(client, Charged(charge.steps))
    return delta.dh / (1 + delta.dP)


def answer_of_global_vi(local):
    client = global_vi.client("c", local)
    client, (charge,) = global_vi.client_receive(client, global_vi.Parameters(0, np.zeros(D), np.zeros(D)))
    _, (gradient,) = global_vi.client_receive(client, Charged(charge.steps))
    return gradient.mu


def summed(m, n, answer):
    """The rows whose gradients are in what one step releases."""
    settings = chosen.pvi(family="gaussian", optimiser="sgd", learning_rate=1.0, local_steps=1)
    X, y, inside = np.zeros((n, D), np.float32), np.ones(n), []
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        at = rows, (rows - start) // BITS
        # y = 1 and q has mean 0: so is the gradient, whose norm is below the clip
        X[at] = m.grid * 2.0 ** ((rows - start) % BITS)
        sums = answer(Local(Rows(X, y), settings, 0, m, Silent())) * m.rate / m.grid
        block = spelt(sums, len(rows))
        assert block is not None, "a sum of other multiples than one of each row"
        inside.append(start + block)
        X[at] = 0
    return np.concatenate(inside)


def check_rows(sampling, n, answer=answer_of_pvi):
    """What is summed is what is drawn, and of the size that the mechanism says."""
    words = np.random.default_rng([n, len(sampling)]).integers(0, 2**32, 8 * CHUNK, dtype=np.uint32)
    m = mechanism(sampling, n)
    with pytest.MonkeyPatch.context() as patch:
        plant_words(patch, words)
        found = summed(m, n, answer)
    want = drawn(m, n, words)
    assert len(found) == len(want), f"{len(found)} rows are summed, {len(want)} are drawn"
    np.testing.assert_array_equal(found, want)
    assert len(want) in {"without-replacement": [m.batch_size], "poisson-truncated": [m.max_batch], "full": [n]}.get(
        sampling, range(n)
    )


SAMPLINGS = ("poisson", "poisson-truncated", "without-replacement", "full")


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("n", [1, 63, *AROUND])
def test_the_rows_that_are_summed_are_those_that_were_drawn(sampling, n):
    check_rows(sampling, n)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_same_in_global_inference(sampling):
    check_rows(sampling, 2**14 + 1, answer_of_global_vi)


# --- shards


def shards_by_hand(X, ids, n_shards, weight, rate, grid):
    """The sum over shards of the change of (h, P) of N(0, I) by one step of gradient ascent on a shard's weighted rows; y = 1."""
    total = np.zeros(2 * X.shape[1])
    for s in range(n_shards):
        own = weight * X[[i for i, number in enumerate(ids.tolist()) if number % n_shards == s]]
        mean, omega = rate * own.sum(axis=0), -rate * (own * own).sum(axis=0) / weight
        P = np.exp(-2 * omega)
        total += np.trunc(np.concatenate([P * mean, P - 1]) / grid)
    return total


@pytest.mark.parametrize("variant", ["local-averaging", "virtual-clients"])
@pytest.mark.parametrize("n", AROUND)
def test_every_row_is_in_one_shard_and_every_shard_is_summed_once(variant, n):
    n_shards, rate = 5, 2.0**-9
    weight = n_shards if variant == "local-averaging" else 1
    generator = np.random.default_rng(n)
    ids = generator.integers(2**64, size=n, dtype=np.uint64)
    X = np.zeros((n, D))
    X[np.arange(n), np.arange(n) % D] = generator.uniform(0.5, 1.0, n)
    settings = chosen.pvi(
        family="gaussian", variant=variant, shards=n_shards, optimiser="sgd", learning_rate=rate, local_steps=1, damping=1.0
    )
    m = Mechanism(sampling="shards", clip=2.0**6, dimension=2 * D, noise_multiplier=1.0)
    local = Local(Rows(X, np.ones(n)), settings, 0, m, Silent(), ids)
    zero, one = np.zeros(D), np.ones(D)
    dh, dP, _ = shards.update(local, shards.start(local, D), Gaussian(zero, one), zero, zero, one, 0)
    found = np.concatenate([dh, dP]) * weight / m.grid
    assert np.abs(found - shards_by_hand(X, ids, n_shards, weight, rate, m.grid)).max() <= n_shards
    assert rate * 0.5 / m.grid > 3 * n_shards  # so one row more or less would show


# --- one row of columns


@pytest.mark.parametrize("n", [63, *AROUND])
def test_every_row_of_a_vertical_client_is_released_once(n):
    """z as it is, and the sum of all rows' gradients, whole."""
    rho, clip_z, clip_g = 0.5, 4.0, 2.0**6
    generator, source = np.random.default_rng(n), Silent()
    X = np.zeros((n, D))
    X[np.arange(n), np.arange(n) % D] = generator.uniform(0.5, 1.0, n)
    settings = chosen.split(5, 2, n, 1, private=True, learning_rate=0.3, optimiser="sgd")
    release = private_split.Release(private_split.mechanism(n, D, 1.0), clip_z, clip_g, source)
    client = private_split.client("c", 0, settings, Site(Linear(X), Auxiliary("mean-field", rho)), release)
    for event in (Begin(0), Residual(0, np.zeros((1, n)))):
        before = client.drawn
        client, (charge,) = private_split.client_receive(client, event)
        client, (sent,) = private_split.client_receive(client, Charged(charge.steps))
    (draw,) = before
    first, total, _ = source.sums
    np.testing.assert_array_equal(first, np.trunc(np.clip(draw.z, -clip_z, clip_z) * (1 - 1e-9) / (GRID * clip_z)))
    rows = X * ((draw.z - X @ draw.theta) / rho**2)[:, np.newaxis]
    assert np.linalg.norm(rows, axis=1).max() < clip_g
    assert np.abs(total - np.trunc(rows * (1 - 1e-9) / (GRID * clip_g)).sum(axis=0)).max() < 20
    assert sent.z.shape == (1, n)


# --- clients


def one_hot(n):
    """Vectors that spell out who is in a sum of them, in units of the grid."""
    vectors = np.zeros((n, -(-n // BITS)), np.int64)
    vectors[np.arange(n), np.arange(n) // BITS] = 2 ** (np.arange(n) % BITS)
    return vectors


def random_vectors(n, d=16):
    """Vectors no two sums of which are alike, but by a chance of 2^-256; for more clients than can be spelt out."""
    return np.random.default_rng(n).integers(0, 2**16, (n, d))


CLIENTS = [(60, one_hot), (500, one_hot)]
CLIENTS += [pytest.param(n, random_vectors, marks=pytest.mark.nightly) for n in (2**14 + 1, 2**15)]


@pytest.mark.parametrize(("n", "vectors"), CLIENTS)
@pytest.mark.parametrize(("rate", "averaged"), [(0.25, False), (0.25, True), (1.0, False)])
def test_the_clients_that_are_summed_are_those_that_were_drawn(monkeypatch, n, vectors, rate, averaged):
    words = np.random.default_rng(n).integers(0, 2**32, 8 * CHUNK, dtype=np.uint32)
    plant_words(monkeypatch, words)
    numbers = vectors(n)
    before, after = Rounds(numbers * GRID, rate, Silent(), averaged=averaged).play()
    np.testing.assert_array_equal((after.h - before.h) / GRID, numbers[words[:n] < rate * 2**32].sum(axis=0))


def check_clients_are_drawn_anew(n=400, rate=0.25, rounds=6):
    """Clients that come in two rounds that follow each other are about n rate^2."""
    job, inside = Rounds(one_hot(n) * GRID, rate, Silent()), []
    for _ in range(rounds):
        before, after = job.play()
        inside.append(set(spelt((after.h - before.h) / GRID, n).tolist()))
    again = np.mean([len(a & b) for a, b in itertools.pairwise(inside)])
    assert abs(again - n * rate**2) < 6 * math.sqrt(n * rate**2 / (rounds - 1))
    assert abs(np.mean([len(one) for one in inside]) - n * rate) < 6 * math.sqrt(n * rate * (1 - rate) / rounds)


def test_the_clients_of_every_round_are_drawn_anew():
    check_clients_are_drawn_anew()
