"""A Hamiltonian job on the ranks of `mpirun`: the digest of what every party ends with.

mpirun -n K python hmc_mpi.py '{"leapfrog": 1}'
"""

import json
import sys
from hashlib import blake2b

import numpy as np

from fedkern.algorithms.hmc import machine as hmc
from fedkern.transports.codec import Codec
from fedkern.transports.launch import launch
from support import chosen
from support import hamiltonian as ham
from support import hierarchical as h


def perform(place, *, leapfrog=3, warmup=40):
    """Name of each party that lives here -> digest of its state."""
    models = h.mixed("poisson", clients=4)
    s = chosen.hmc(draws=5, warmup=warmup, chains=2, leapfrog=leapfrog, seed=5)
    started, clients = ham.machines(models, s)
    here = {k: clients[k] for k in place.mine(len(models))}
    start = started if place.is_server else None
    server, clients = place.run_protocol(hmc.protocol(s), start, here, Codec(s.sizes(models[0].n_global), len(models)))
    found = {client.name: digest(client) for client in clients.values()}
    return found | ({"server": digest(server)} if place.is_server else {})


def digest(state):
    saved = hmc.save(state)
    return blake2b(b"".join(np.asarray(saved[name]).tobytes() for name in sorted(saved)), digest_size=16).hexdigest()


def main(ranks, ask):
    ranks.agree(b"hmc")
    print(json.dumps(perform(ranks, **ask)), flush=True)
    return 0


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    sys.exit(launch(lambda ranks: main(ranks, asked)))
