"""What a server that asks as it likes gets of clients that mask: sums, and the end, without what is uniform by its masks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.masked import Client, Hider, Sum, Sums
from fedkern.algorithms.core.messages import KINDS, Message, Protocol, RemoteFault
from fedkern.errors import FedkernError
from fedkern.privacy.masks import Pairs, public_key, total
from fedkern.transports.codec import HEADER
from fedkern.transports.driver import ServerSide

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


# Of keys, which are new at each start, and receipts.
RANDOM = {"SumKey", "SumCommitment", "SumSignature", "Received", "Keep", "Kept"}


@contextmanager
def of_run() -> Iterator[list[Line]]:
    """Inside `with`, all that the server of a run in this process gets: sums, bare messages with their senders, and the end."""
    lines, added, arrive = list[Line](), Sums._total, ServerSide.arrive

    def total_of(own: Sums, answers: Any, one: Sum, round: int) -> Message:
        message = added(own, answers, one, round)
        lines.append((one.masked.__name__, round, digest_of(message)))
        return message

    def arrives(own: ServerSide, frame: Any, here: Any) -> None:
        _, _, number, client, *_ = HEADER.unpack_from(frame)
        name = KINDS[number].__name__
        if not name.startswith("Masked") and name not in RANDOM:
            lines.append((client, name, bytes(frame[HEADER.size :])))
        arrive(own, frame, here)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sums, "_total", total_of)
        patch.setattr(ServerSide, "arrive", arrives)
        try:
            yield lines
        except (FedkernError, RemoteFault) as fault:
            lines.append(("ended", type(fault).__name__, str(fault)))


def digest_of(message: Any) -> bytes:
    """All numbers of the sum that the server's machine gets, to the bit."""
    return repr([np.asarray(getattr(message, one.name)).tobytes() for one in fields(message)]).encode()


def number_of(part: Any) -> int:
    """A number of a client's rows, by which it has the same random numbers wherever it stands."""
    state = hashlib.blake2b(digest_size=3)

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            state.update(value.tobytes())
        elif is_dataclass(value):
            for one in fields(value):
                add(getattr(value, one.name))

    add(part)
    return int.from_bytes(state.digest(), "little")
