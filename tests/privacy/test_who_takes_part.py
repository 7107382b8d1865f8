"""Client-level privacy with sampled clients: the coins are the secret on which the amplification rests, and show nowhere.

Two runs of one federation with the same data and other coins have the same `visible()`: kinds, counts, sizes and order of
messages, and every integer and text in them and in what is published. Only floats differ: they are functions of the noisy sums,
but for the weight of `SiteApplied`, which its client alone reads.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import ClientLost, Message, RemoteFault
from fedkern.algorithms.pvi import client_level
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.kernels import rng
from fedkern.models.glm import prior
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource
from support.federations import deal, make_rows, play, settings

D, M, ROUNDS = 3, 5, 4


class Coins(KeyedSource):
    """Coins that fall as they are told, round after round."""

    def __init__(self, rounds):
        super().__init__(rng.key(1, "noise"), 0)
        self.rounds = rounds

    def coins(self, n_rows, threshold, step=0):
        return np.array(self.rounds[step], np.int64)


COINS = [[[0], [1, 2], [], [4]], [[], [], [0, 1, 2, 3, 4], []], [[3, 4], [3, 4], [3, 4], [3, 4]], [[]] * ROUNDS]


def machine(coins, averaged):
    """Server and clients, before the first message."""
    s = settings(optimiser="exact", damping=0.3, rounds=ROUNDS)
    m = Mechanism(
        sampling="poisson", sampling_rate=0.3, clip=3.0, noise_multiplier=1.0, dimension=2 * D, unit="client", secure=False
    )
    parts = deal(make_rows("bernoulli", n=100, d=D), M)
    clients = {k: pvi.client(f"c{k}", Local(part, s, k), prior(D)) for k, part in enumerate(parts)}
    return client_level.start(s, prior(D), M, m, Coins(coins), averaged_sites=averaged), clients


def shown(value):
    """What two runs must have in common of a value: of floats only that they are there."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.shape
    return "float" if isinstance(value, float) else value


def said(target, message):
    return target, type(message).__name__, {name: shown(value) for name, value in vars(message).items()}


class Recorded:
    """The module under test, with everything that a wire carries written down; a client may be lost in round 1."""

    def __init__(self, lost=None):
        self.seen, self.lost = [], lost

    def server_receive(self, state, sender, event):
        if sender == self.lost and event.round == 1:
            event = ClientLost(sender)
        if isinstance(event, Message):
            self.seen.append(said(f"from {sender}", event))
        state, effects = client_level.server_receive(state, sender, event)
        self.seen += [said(target, effect) for target, effect in effects if isinstance(effect, Message)]
        return state, effects

    def client_receive(self, state, event):
        return client_level.client_receive(state, event)

    def finished(self, state):
        return client_level.finished(state)


def visible(coins, averaged, lost):
    """All that anybody but the server could see of a run, but for floats."""
    recorded, (started, clients) = Recorded(lost), machine(coins, averaged)
    server, clients = play(recorded, started, clients)
    published = {"updates": server.updates.tolist(), "round": server.round, "stop": server.stop, "refused": server.refused}
    asked = [(c.step, c.updates, c.outstanding is None) for c in clients.values()]  # the work of each
    return recorded.seen, published, asked


def check_coins_show_nothing(averaged=False, lost=None):
    first, *others = [visible(coins, averaged, lost) for coins in COINS]
    for other in others:
        assert other == first


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("lost", [None, 0, 2, 4])
def test_the_coins_show_nothing(averaged, lost):
    check_coins_show_nothing(averaged, lost)


def test_the_coins_decide_what_is_summed():
    """The other half: they are not just ignored. Without anybody q is the prior and noise, the same for all data."""
    moved = [play(client_level, *machine(coins, False))[0].q.h for coins in COINS]
    for a, b in itertools.combinations(moved, 2):
        assert np.abs(a - b).max() > 1e-3
    started, clients = machine([[]] * ROUNDS, False)
    rows = {k: make_rows("bernoulli", n=30, d=D, seed=k + 7) for k in clients}
    strange = {k: replace(c, local=replace(c.local, rows=rows[k])) for k, c in clients.items()}
    np.testing.assert_array_equal(play(client_level, started, strange)[0].q.h, moved[3])


def test_an_own_site_moves_only_where_its_client_took_part():
    """Of all parties the client alone learns of its coin, by what its site does."""
    _, clients = play(client_level, *machine([[1], [1], [3], [1]], False))
    assert [bool(np.any(c.site_h)) for c in clients.values()] == [False, True, False, True, False]


# --- planted faults


def _wrapped(patch, change):
    real = client_level.server_receive
    patch.setattr(client_level, "server_receive", lambda state, sender, event: change(*real(state, sender, event)))


def only_the_included_are_told(patch):
    """An answer more for those whose change was summed."""
    _wrapped(patch, lambda s, effects: (s, [e for e in effects if not isinstance(e[1], pvi.SiteApplied) or e[1].alpha]))


def included_first(patch):
    """The order of the answers tells."""

    def key(effect):
        return not getattr(effect[1], "alpha", 0), effect[0]

    _wrapped(patch, lambda s, effects: (s, sorted(effects, key=key)))


def updates_count_the_included(patch):
    def change(state, effects):
        summed = [k for k, e in effects if isinstance(e, pvi.SiteApplied) and not e.alpha]
        updates = state.updates.copy()
        updates[summed] -= 1
        return replace(state, updates=updates), effects

    _wrapped(patch, change)


@pytest.mark.parametrize("fault", [only_the_included_are_told, included_first, updates_count_the_included])
def test_a_planted_fault_is_caught(fault):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises((AssertionError, RemoteFault)):
            check_coins_show_nothing()
