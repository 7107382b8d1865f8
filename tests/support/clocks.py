"""Clients of partitioned variational inference with clocks of their own, simulated: who takes how long, and what q was when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from fedkern.algorithms.core.messages import SERVER, Charge, Charged, ChargeFailed
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.messages import QUpdate

Seconds = Callable[[int], float]  # client -> how long its next update takes


def exponential(means: Any, seed: int) -> Seconds:
    rng = np.random.default_rng(seed)
    return lambda k: float(means[k] * rng.exponential())


def pareto(means: Any, seed: int) -> Seconds:
    """Heavy tails: of exponent 1.5, whose variance is infinite."""
    rng = np.random.default_rng(seed)
    return lambda k: float(means[k] * (1 + rng.pareto(1.5)) / 3)


def log_normal(means: Any, seed: int) -> Seconds:
    rng = np.random.default_rng(seed)
    return lambda k: float(means[k] * rng.lognormal(-0.5))


def constant(means: Any, seed: int) -> Seconds:
    return lambda k: float(means[k])


def play(
    started: Any,
    clients: dict[int, Any],
    seconds: Seconds,
    charge: Callable[[int, Charge], Charged | ChargeFailed] | None = None,
    machine: Any = pvi,
    works: tuple[Any, ...] = (QUpdate,),
) -> Iterator[tuple[float, Any]]:
    """Yields the time and the server's state after each answer, until it has finished. `clients` has their last states then.

    `works`: the questions whose answers take time.
    """
    server, effects = started
    flying: list[tuple[float, int, bool, int, Any]] = []
    free, number = dict.fromkeys(clients, 0.0), count()
    pay = charge or (lambda k, asked: Charged(asked.steps))

    def send(now: float, effects: Any) -> None:
        for k, message in effects:
            heappush(flying, (now, next(number), True, k, message))

    send(0.0, effects)
    while flying:
        now, _, to_client, k, message = heappop(flying)
        if not to_client:
            server, effects = machine.server_receive(server, k, message)
            send(now, effects)
            yield now, server
            continue
        begins = max(now, free[k])
        free[k] = begins + seconds(k) if isinstance(message, works) else begins
        clients[k], answers = machine.client_receive(clients[k], message)
        while answers:
            answer, *answers = answers
            if isinstance(answer, Charge):
                clients[k], more = machine.client_receive(clients[k], pay(k, answer))
                answers = [*answers, *more]
            else:
                heappush(flying, (free[k], next(number), False, k, answer))
    assert machine.finished(server)
    assert SERVER not in clients
