"""Fits a small federated model with the installed package, and prints its level, its time and a digest of the result.

python -P packaging/first_posterior.py [FOLDER]. The same digest on two machines of one level (FEDKERN_ISA) says that their
results have the same bits. Needs no extra and no compiler.
"""

import hashlib
import sys
import tempfile
import time

began, used = time.perf_counter(), time.process_time()

import numpy as np  # noqa: E402

import fedkern  # noqa: E402
from fedkern import _core  # noqa: E402

random = np.random.default_rng(7)
beta = np.array([0.8, -0.5, 0.0, 0.3])
clients = {}
for name in ("north", "south", "west"):
    X = random.normal(size=(200, 4))
    y = (random.random(200) < 1 / (1 + np.exp(-X @ beta))).astype(float)
    clients[name] = X, y
job = {"job": {"method": "pvi", "rounds": 10}, "model": {"covariance": "full"}}
with tempfile.TemporaryDirectory() as folder:
    result = fedkern.run(job, data=clients, out=sys.argv[1] if len(sys.argv) > 1 else f"{folder}/run")
digest = hashlib.sha256(repr(sorted((name, repr(value)) for name, value in result.parameters.items())).encode()).hexdigest()
print(f"level {_core.isa()}, digest {digest[:16]}")
print(f"from import to posterior: {time.perf_counter() - began:.1f} s, {time.process_time() - used:.1f} s of CPU")
