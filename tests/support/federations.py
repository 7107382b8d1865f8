"""Small federations for the protocol tests: made data, clients, and a run without any transport."""

from __future__ import annotations

from collections import deque

import numpy as np

from fedkern.algorithms.core.messages import SERVER, Charge, Charged, Release, Released
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.models.glm import Rows, prior
from support import chosen


def make_rows(family, n=120, d=4, seed=0):
    """Rows of a generalised linear model with moderate effects; spread in every column."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(0.6, 1.2, d)
    X[:, 0] = 1
    eta = X @ np.linspace(-0.5, 0.6, d)
    if family == "bernoulli":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    elif family == "poisson":
        y = rng.poisson(np.exp(0.5 * eta)).astype(float)
    else:
        y = eta + 0.7 * rng.standard_normal(n)
    return Rows(X, y)


def deal(rows, n_clients, seed=1):
    """A random partition of the rows, clients of any size from zero."""
    owner = np.random.default_rng(seed).integers(n_clients, size=len(rows))
    return [rows.take(np.flatnonzero(owner == k)) for k in range(n_clients)]


def settings(**changes):
    default = {"optimiser": "exact", "rounds": 1, "schedule": "sequential", "damping": 1.0}
    return chosen.pvi(**(default | changes))


def client_of(algorithm, name, local, p):
    """A client that has seen nothing yet; of one variational posterior the prior is the server's alone."""
    return algorithm.client(name, local) if algorithm is global_vi else algorithm.client(name, local, p)


def run(parts, s, precision=1.0, order=None, algorithm=pvi, **local):
    """The server's last state and the clients'. `order`: a random.Random that shuffles arrivals."""
    p = prior(parts[0].X.shape[1], precision, s.covariance)
    clients = {k: client_of(algorithm, f"c{k}", Local(part, s, k, **local), p) for k, part in enumerate(parts)}
    return play(algorithm, algorithm.start(s, p, len(parts)), clients, order)


def play(algorithm, started, clients, order=None, pause=lambda server: False, charge=None):
    """Carries messages between the machines until the server has finished, or `pause` says so: then its open messages come
    third."""
    charge = charge or (lambda client, asked: Charged(asked.steps))
    server, effects = started
    inbox = deque(effects)
    while inbox:
        if order:
            waiting = list(inbox)
            order.shuffle(waiting)
            inbox = deque(keep_per_client_order(waiting, inbox))
        k, message = inbox.popleft()
        if k == SERVER:
            stored = Released(message.round, message.content) if isinstance(message, Release) else charge(SERVER, message)
            server, effects = algorithm.server_receive(server, SERVER, stored)
            inbox.extend(effects)
            continue
        clients[k], answers = algorithm.client_receive(clients[k], message)
        while answers:
            answer, *answers = answers
            if isinstance(answer, Charge):
                clients[k], more = algorithm.client_receive(clients[k], charge(k, answer))
                answers = [*answers, *more]
                continue
            server, effects = algorithm.server_receive(server, k, answer)
            inbox.extend(effects)
            if pause(server):
                return server, clients, list(inbox)
    assert algorithm.finished(server)
    return server, clients


def keep_per_client_order(shuffled, original):
    """A transport never swaps two messages to the same client."""
    queues = {k: deque(m for j, m in original if j == k) for k, _ in original}
    return [(k, queues[k].popleft()) for k, _ in shuffled]
