#!/usr/bin/env bash
# A good guess: after Allreduce(MAX) all ranks have the same number, whatever ranks gave: NaN if one gave NaN (numpy.max), or the largest other.
# What happens with MPICH: of two ranks with NaN and 2, rank 0 gets 2 and rank 1 gets NaN, from one call; with 1 and NaN, rank 0 gets NaN and
# rank 1 gets 1. Each compares what it has with what came, and NaN loses or wins by the order. MIN does the same.
# Versions: mpi4py 4.1.2, mpich 5.0.2 (wheel), numpy 2.4.6. Open MPI 5.0.11 gives all ranks one number: NaN if rank 0 of two had it, else 1.
# Whom it hurts: who ends an iteration when Allreduce(MAX) of the change is small: one rank stops, the other waits for it in the next call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6
cat > try.py <<'PY'
import mpi4py
import numpy as np
from mpi4py import MPI

world, found = MPI.COMM_WORLD, []
for bad in range(2):
    given, largest = np.array([float(world.rank + 1)]), np.zeros(1)
    if world.rank == bad:
        given[0] = np.nan
    world.Allreduce(given, largest, MPI.MAX)
    found.append(str(world.allgather(float(largest[0]))))
if world.rank == 0:
    print("mpi4py", mpi4py.__version__, *MPI.Get_library_version().split()[:3], "numpy", np.__version__)
    print("NaN on rank 0, 2 on rank 1: ranks get", found[0])
    print("1 on rank 0, NaN on rank 1: ranks get", found[1])
assert found == ["[2.0, nan]", "[nan, 1.0]"], found
PY
env/bin/mpiexec -n 2 env/bin/python try.py
