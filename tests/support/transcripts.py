"""What a server that asks as it likes gets of clients that mask: sums, and the end, without what is uniform by its masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedkern.algorithms.core.masked import Client, Hider, Sum, Sums
from fedkern.algorithms.core.messages import Message, Protocol
from fedkern.privacy.masks import Pairs, public_key, total

Line = tuple[Any, ...]


def hiders(n: int) -> list[Hider]:
    """What masks the answers of n clients, whose keys are the same each time: no transcript has a bit of them."""
    secrets = [bytes([k + 1]) * 32 for k in range(n)]
    names, keys = [f"client-{k}" for k in range(n)], [public_key(secret) for secret in secrets]
    return [Hider(Pairs.agree(k, secret, names, keys, bytes(32)), names[k]) for k, secret in enumerate(secrets)]


def transcript(
    protocol: Protocol[Any, Any], sums: tuple[Sum, ...], dims: Mapping[str, int], states: Sequence[Any], asked: Sequence[Message]
) -> list[Line]:
    """What the server gets of clients in these states, in their order, that are asked these questions, up to an end."""
    masked = Sums(protocol, sums, dims)
    clients = [Client(state, hider) for state, hider in zip(states, hiders(len(states)))]
    lines = list[Line]()
    for question in asked:
        answers, faults = list[list[Any]](), list[Line]()
        for k, client in enumerate(clients):
            try:
                clients[k], sent = masked.masked.client_receive(client, question)
                answers.append(sent)
            except Exception as fault:  # all that could end a job
                faults.append((k, type(fault).__name__, str(fault)))
        if faults:
            return [*lines, ("ended", *faults)]
        for together in zip(*answers, strict=True):
            (kind,) = {type(one) for one in together}
            limbs = next(one.form.limbs for one in sums if one.masked is kind)
            words = total([np.frombuffer(one.words, "<u8").reshape(limbs, -1) for one in together])
            lines.append((kind.__name__, together[0].round, words.tobytes()))
        lines.append(("failed", sum(client.hider.failed for client in clients)))
    return lines
