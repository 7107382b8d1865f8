"""Chooses the device on which a place of a job computes, and describes it for `fedkern check`.

A client's arrays are put there once, when they are loaded, and stay. Messages, checkpoints and all that people keep are bytes of
the host. The server has no card: its computations are small.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import NamedTuple

from ..algorithms.core.messages import reading
from ..errors import DeviceError
from ..kernels import homes
from ..kernels._cuda import device as cuda
from ..transports.place import Place
from . import memory


class Load(NamedTuple):
    """Holds the demands of a job on a card."""

    kernels: Sequence[str]  # those that its clients call on the card
    beside: Mapping[str, str]  # kernels that they call on the host, and why
    # fixed, a_row: bytes that stay on the card for each client, and for each of its rows
    fixed: float
    a_row: float
    notes: Sequence[str] = ()  # whether a card will pay, as far as the job file tells


LOWER = "algorithm.chains or algorithm.batch, or start fewer ranks a card"


class Used(NamedTuple):
    """Says where the clients of a place compute.

    `versions` are those on which the bits of all places depend, beside those of every job.
    """

    home: homes.Home = homes.HOST
    versions: Mapping[str, str] = MappingProxyType({})


ON_HOST = Used()


def used(kind: str, place: Place, clients: Sequence[int]) -> Used:
    """Chooses the device of a place: the ranks of a machine that have clients take its cards in turn. Raises DeviceError: a rank
    that has clients finds no card, or one that is too old."""
    if kind == "cpu":
        return ON_HOST
    machine = hashlib.blake2b(socket.gethostname().encode(), digest_size=16).hexdigest() if clients else ""  # names stay at home
    machines = place.settle(machine.encode(), lambda machines: json.dumps([name.decode() for name in machines]).encode())
    home, about = homes.HOST, dict[str, str]()
    if clients:
        home = homes.device_home()
        with reading("the server: which machines there are"):
            near = [rank for rank, name in enumerate(json.loads(machines)) if name == machine]
        cuda.current().take(near.index(place.rank), len(near))
        about = cuda.current().about()
    devices = place.settle(json.dumps(about).encode(), lambda machines: b"[%s]" % b", ".join(machines))
    with reading("the server: the cards of all"):
        names = dict.fromkeys(name for rank_devices in json.loads(devices) for name in rank_devices)
        return Used(
            home,
            {
                name: ", ".join(sorted({rank_devices[name] for rank_devices in json.loads(devices) if name in rank_devices}))
                for name in names
            },
        )


def guarded(home: homes.Home, lower: str = LOWER) -> AbstractContextManager[None]:
    """Has an error of a card's memory inside name the keys to lower."""
    return nullcontext() if home.kind == "cpu" else cuda.said_of_memory(lower)


def describe_device(load: Load, ranks: int, n_clients: int) -> Iterator[str]:
    """Yields the lines that `check` prints of a job with device = "cuda", of so many ranks."""
    where = dict.fromkeys(load.kernels, "on the card") | {name: f"on the host: {why}" for name, why in load.beside.items()}
    width = max(map(len, where))
    for number, (name, words) in enumerate(where.items()):
        yield f"{'device   ' if not number else ' ' * 9}{name:<{width}}  {words}"
    each = -(-n_clients // max(1, ranks - 1))
    needs = [memory.size(load.fixed * each)] if load.fixed else []
    needs += [f"{load.a_row:g} bytes for each row of its clients"] if load.a_row else []
    some = f"up to {each} clients" if each > 1 else "one client"
    yield f"         memory of a rank with {some}: {' and '.join(needs)}, and room for a call"
    yield from (f"         {note}" for note in load.notes)
    try:
        cuda.current()
    except DeviceError as error:
        yield f"         not on this machine: {error}"
