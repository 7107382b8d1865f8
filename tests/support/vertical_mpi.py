"""A vertical job on the ranks of `mpirun`: the digest of what every party ends with.

mpirun -n K python vertical_mpi.py '{"kind": "pl", "auxiliary": "amortised", "batch": 6}'
"""

import json
import sys
from hashlib import blake2b

import numpy as np

from fedkern.algorithms.split import machine as vertical
from fedkern.transports.codec import Codec
from fedkern.transports.launch import launch
from support import chosen
from support import vertical_cases as cases


def perform(place, *, kind="av", auxiliary="amortised", batch=None, response="server", rounds=15):
    """Name of each party that lives here -> digest of its parameters and of what it holds of others' messages."""
    c = cases.case(kind, auxiliary, True, ("linear", "multilevel", "network", "centred"), "dispersed", sizes=(2, 3, 2, 1))
    power = kind == "pl"
    s = chosen.split(
        seed=5, rounds=rounds, n_rows=c.n, n_clients=c.J, model="power" if power else "augmented", dispersed=True, bound=True,
        response="shared" if power else response, batch=batch, average="half",
    )  # fmt: skip
    held = (c.y, c.likelihood) if s.response == "shared" else (None, None)
    here = {k: vertical.client(f"c{k}", k, s, c.sites[k], *held) for k in place.mine(c.J)}
    names = tuple(f"c{k}" for k in range(c.J))
    start = vertical.start(s, c.shared, names, None if power else c.y, c.offset) if place.is_server else None
    server, clients = place.run_protocol(vertical.protocol(s), start, here, Codec(s.dims(), c.J))
    found = {f"c{k}": digest(client.parameters, client.residual, client.released) for k, client in clients.items()}
    return found | ({"server": digest(server.parameters, server.Z, [server.bound])} if place.is_server else {})


def digest(*arrays):
    return blake2b(b"".join(np.ascontiguousarray(a, dtype="<f8").tobytes() for a in arrays), digest_size=16).hexdigest()


def main(ranks, ask):
    ranks.agree(b"vertical")
    print(json.dumps(perform(ranks, **ask)), flush=True)
    return 0


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    sys.exit(launch(lambda ranks: main(ranks, asked)))
