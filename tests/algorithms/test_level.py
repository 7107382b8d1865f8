"""The units of a response: two sums of each client, and what all know of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import level
from fedkern.errors import JobError
from fedkern.models.spatial.site import Rows
from fedkern.models.spatial.units import Units
from fedkern.privacy.masks import ONCE, holds
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol
from support.refusal import refusal

NAMES = ("a", "b", "c")


def rows(y, offset=0.0, trials=None):
    y = np.array(y, float)
    offset = np.broadcast_to(np.array(offset, float), y.shape).copy()
    return Rows(y, np.zeros(len(y), np.int64), np.zeros((len(y), 0)), offset, None if trials is None else np.array(trials, float))


def agreed(family, *parts, **more):
    """Through the codec, as in a job; all parties must know the same."""
    settings = level.Settings(family, "cases", **more)
    clients = {k: level.Client(NAMES[k], settings, part) for k, part in enumerate(parts)}
    names = NAMES[: len(parts)]
    server, clients = run_protocol(level.PROTOCOL, level.start(settings, names), clients, Codec(level.DIMS, len(parts)))
    for client in clients.values():
        assert (client.units.level, client.units.scale) == (server.units.level, server.units.scale)
    return server.units


def test_the_level_of_counts_is_the_log_of_the_pooled_rate():
    found = agreed("poisson", rows([3, 5], np.log([10.0, 20.0])), rows([0], np.log(7.0)), rows([]))
    assert found.level == pytest.approx(np.log(8 / 37), rel=1e-15)
    assert found.scale == 1
    without = agreed("poisson", rows([3, 5]), intercept=False)
    assert (without.level, without.pooled) == (0.0, pytest.approx(np.log(4.0)))


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_the_level_of_successes_is_a_logit(offset):
    found = agreed("binomial", rows([3, 5], offset, [10, 20]), rows([1], offset, [4]))
    assert found.level == pytest.approx(logit(9 / 34) - offset, rel=1e-14)
    assert agreed("bernoulli", rows([1, 0, 0, 0], offset)).level == pytest.approx(logit(0.25) - offset, rel=1e-14)


def test_the_level_of_successes_is_consistent_where_offsets_differ(seed):
    rng = np.random.default_rng(seed)
    offset = rng.normal(0, 1.5, 200_000)
    y = rng.binomial(1, 1 / (1 + np.exp(1.0 - offset)))
    assert agreed("bernoulli", rows(y, offset)).level == pytest.approx(-1.0, abs=0.05)


def test_level_and_scale_of_a_gaussian_response_keep_their_digits():
    rng = np.random.default_rng(1)
    y, offset = 1e9 + rng.normal(0, 2.0, 300), rng.normal(size=300)
    found = agreed("gaussian", rows(y[:100], offset[:100]), rows([]), rows(y[100:], offset[100:]))
    assert found.level == pytest.approx(float(np.mean(y - offset)), rel=1e-15)
    assert found.scale == pytest.approx(float(np.std(y - offset)), rel=1e-9)
    without = agreed("gaussian", rows([3.0, 5.0]), intercept=False)
    assert (without.level, without.scale, without.pooled) == (0.0, pytest.approx(np.sqrt(17.0)), 4.0)


@pytest.mark.parametrize(
    ("family", "part", "want"),
    [
        ("poisson", rows([0, 0], np.log(2.0)), np.log(0.5 / 4)),
        ("bernoulli", rows([0, 0, 0]), np.log(0.5 / 3.5)),
        ("bernoulli", rows([1, 1]), np.log(2.5 / 0.5)),
        ("binomial", rows([4], 0.0, [4]), np.log(4.5 / 0.5)),
    ],
)
def test_where_all_responses_are_alike_the_level_is_finite(family, part, want):
    assert agreed(family, part).level == pytest.approx(want)


@pytest.mark.parametrize(
    ("family", "parts", "more", "text"),
    [
        ("poisson", [rows([]), rows([])], {}, "column 'cases': no client has a response"),
        ("gaussian", [rows([])], {}, "no client has a response"),
        ("binomial", [rows([], 0.0, [])], {}, "no client has a response"),
        ("gaussian", [rows([5.0]), rows([5.0, 5.0])], {}, "responses have one value"),
        ("gaussian", [rows(1e15 + np.array([0.0, 1.0, 2.0]))], {}, "or differ by less than their digits hold"),
        ("gaussian", [rows([1.0]), rows([1e300, 2.0])], {}, "client 'b': column 'cases': responses, exposures or"),
        ("poisson", [rows([1.2e308]), rows([1.2e308])], {}, "too large to be summed"),
        ("poisson", [rows([1.0]), rows([1.0], 800.0)], {}, "client 'b': column 'cases'"),
    ],
)
def test_responses_without_a_level_end_the_job(family, parts, more, text):
    with pytest.raises(JobError, match=text):
        agreed(family, *parts, **more)


def test_a_constant_response_has_the_scale_that_the_job_gives():
    assert agreed("gaussian", rows([5.0, 5.0]), sd=0.3) == Units(5.0, 0.3, 5.0)


def test_the_order_of_arrival_changes_no_bit():
    settings, parts = level.Settings("gaussian"), [rows([0.1, 7.3]), rows([1e8]), rows([3.3, -0.7, 1.0])]
    found = set()
    for order in ((0, 1, 2), (2, 0, 1)):
        clients = {k: level.Client(NAMES[k], settings, part) for k, part in enumerate(parts)}
        server, asked = level.start(settings, NAMES)
        while asked and not server.done:
            told = {k: level.client_receive(clients[k], question)[1][0] for k, question in asked}
            asked = []
            for k in order:
                server, more = level.PROTOCOL.server_receive(server, k, told[k])
                asked += more
        found.add((server.units.level, server.units.scale))
    assert len(found) == 1


@pytest.mark.parametrize("centre", [1e-70, 0.1, 1e30, 1e32, 1e60, np.inf, np.nan])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e25])
def test_with_masks_no_number_that_the_server_tells_ends_the_job_at_one_client(size, centre):
    s = level.Settings("gaussian", masked=True)
    state, _ = level.client_receive(level.Client("a", s, rows(size * np.array([1.0, -2.0, 3.5]))), level.AskLevel(0, 0.0))
    question = level.AskLevel(1, centre)
    if centre < 8e31:
        _, (told,) = level.client_receive(state, question)
        assert holds(told.numbers(), ONCE, 3).all()
        return
    with refusal(RemoteFault, "AskLevel"):
        level.client_receive(state, question)


@pytest.mark.parametrize(
    "wrong", [level.AskLevel(1, 0.0), level.AskLevel(0, 1.0), level.AskLevel(2, 0.0), level.Level(1, 0.0, 0.0)]
)
def test_with_masks_a_leg_comes_once_and_in_its_turn(wrong):
    state = level.Client("a", level.Settings("gaussian", masked=True), rows([1.0, 2.0]))
    with pytest.raises(RemoteFault, match="was not expected"):
        level.client_receive(state, wrong)
    state, _ = level.client_receive(state, level.AskLevel(0, 0.0))
    state, _ = level.client_receive(state, level.AskLevel(1, 1.5))
    with pytest.raises(RemoteFault, match="was not expected"):
        level.client_receive(state, level.AskLevel(1, 1.25))
