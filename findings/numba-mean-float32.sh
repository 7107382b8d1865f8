#!/usr/bin/env bash
# A good guess: numpy.mean of float32 gives the same in a function that Numba compiles as outside it, but for the last digits.
# What happens: the mean of 2^25 ones is 0.5, and of 4 million times 0.1 it is 0.096. Numba adds one number after the other in float32: a sum
# of ones stays at 2^24, where 1 is half the distance of two numbers. NumPy adds by pairs. No warning; the variance looks right.
# Versions: numba 0.68.1, numpy 2.4.6. Any processor: it is the order of additions that the language gives.
# Whom it hurts: who compiles a function of long float32 columns (likelihoods, gradients, standardising) with @njit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check numba==0.68.1 llvmlite==0.50.0 numpy==2.4.6
cat > try.py <<'PY'
import numba
import numpy as np


@numba.njit
def compiled(x):
    return np.mean(x), np.sum(x)


print("numba", numba.__version__, "numpy", np.__version__)
ones, tenths = np.ones(2**25, np.float32), np.full(2**22, 0.1, np.float32)
print("mean and sum of 33554432 ones: numpy", np.mean(ones), np.sum(ones), "compiled", *compiled(ones))
print("mean of 4194304 times 0.1: numpy %.4f compiled %.4f" % (np.mean(tenths), compiled(tenths)[0]))
assert np.mean(ones) == 1 and compiled(ones) == (0.5, 2.0**24)
assert abs(np.mean(tenths) - 0.1) < 1e-6 and abs(compiled(tenths)[0] - 0.1) > 0.003
PY
env/bin/python try.py
