"""Rounds of a job with client-level privacy, whose clients answer what a test wants; everything else is the driver's."""

from __future__ import annotations

import numpy as np

from fedkern.algorithms.pvi import client_level
from fedkern.algorithms.pvi.messages import QUpdate, SiteDelta
from fedkern.models.glm import prior
from fedkern.privacy.accountant import Mechanism
from fedkern.transports.codec import Codec
from fedkern.transports.driver import Hooks, Received, ServerSide
from support import chosen


class Rounds:
    """
    Parameters
    ----------
    changes : (n, d) what each client wants to add to h, in every round
    rate : with which a client is drawn
    """

    def __init__(self, changes, rate, source, *, clip=1.0, sigma=1.0, averaged=False):
        self.changes = changes
        n, d = changes.shape
        sampling = {"sampling": "poisson", "sampling_rate": rate} if rate < 1 else {"sampling": "full"}
        self.mechanism = Mechanism(**sampling, clip=clip, dimension=2 * d, noise_multiplier=sigma, unit="client")
        settings = chosen.pvi(rounds=10**6)
        self.codec = Codec(settings.sizes(d), n)
        started = client_level.start(settings, prior(d), n, self.mechanism, source, averaged)
        self.side = ServerSide(client_level.PROTOCOL, started, self.codec, Hooks())
        self.answers = [0] * n

    def play(self):
        """q before and after the next round."""
        q, number = self.side.state.q, self.side.state.round
        while self.side.state.round == number:
            for client, frame in self.side.outgoing():
                _, question = self.codec.decode(frame, client_level.PROTOCOL.to_client)
                self.side.arrive(self.codec.encode(client, self.answer(client, question)), range(len(self.answers)))
        assert self.side.state.round == number + 1
        return q, self.side.state.q

    def answer(self, client, question):
        if not isinstance(question, QUpdate):
            return Received()
        change = self.changes[client]
        self.answers[client] += 1
        return SiteDelta(question.round, question.version, self.answers[client] - 1, change, np.zeros(len(change)))
