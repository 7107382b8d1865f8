"""What a rank of the tests' MPI jobs runs: the toy protocol twice on one transport, and a mishap if one is asked for.

mpirun -n K python mpi_job.py '{"mishap": "raise", "rank": 1}'
"""

import json
import struct
import sys
import time

import fedkern
from fedkern.algorithms.core.messages import SERVER
from fedkern.jobs.files import RunFolder
from fedkern.jobs.keeping import Keeper
from fedkern.transports import ranks as ranks_module
from fedkern.transports import tags
from fedkern.transports.driver import Timeouts
from fedkern.transports.launch import launch
from fedkern.transports.levels import LEVELS
from support.toy_job import DEFAULTS, N_CLIENTS, NAMES, protocols, result


class Counting:
    """A communicator that counts the bytes that leave."""

    def __init__(self, comm):
        self.comm, self.left = comm, 0

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def Isend(self, buffer, *rest):
        self.left += len(buffer[0])
        return self.comm.Isend(buffer, *rest)


class HelloWithoutVersion:
    """What the first versions said."""

    fields = struct.Struct("<B16s16sI32s")

    def pack(self, version, *rest):
        return self.fields.pack(*rest)


def main(ask, ranks):
    if ask["count"]:
        ranks.link.comm = Counting(ranks.link.comm)
    if ranks.rank == ask["rank"] and ask["mishap"] == "version":
        fedkern.__version__ = "0.0.9"
    if ranks.rank == ask["rank"] and ask["mishap"] == "older":
        tags.HELLO = HelloWithoutVersion()
    if ask["mishap"] == "level":
        ranks_module.usable_levels = lambda: 1 << LEVELS.index("avx512" if ranks.rank == ask["rank"] else "baseline")
    ranks.agree(b"another job" if ask["mishap"] == "configuration" and ranks.rank == ask["rank"] else b"job")
    folder = RunFolder(ask["folder"], NAMES) if ask["folder"] else None
    if folder:
        folder.claim([*ranks.mine(N_CLIENTS), *([SERVER] if ranks.is_server else [])], resume=ask["resume"])
    started, before = time.monotonic(), time.process_time()
    keeper = Keeper(NAMES, folder, every=0.0)
    servers = protocols(ranks, ask, keeper)
    keeper.close()
    if folder:
        report = {"cpu": time.process_time() - before, "left": getattr(ranks.link.comm, "left", None)}
        folder.write_json(f"rank-{ranks.rank}.json", report)
    if not ranks.is_server:
        return 0
    lost = sorted(servers[-1].lost)
    about = {"threads": ranks.n_threads, "seconds": time.monotonic() - started}
    print(json.dumps({"digest": result(*servers), "lost": lost, **about}), flush=True)
    return 4 if lost else 0


if __name__ == "__main__":
    asked = DEFAULTS | (json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    sys.exit(launch(lambda ranks: main(asked, ranks), Timeouts(start=asked["start"], lost=asked["lost"], grace=2.0)))
