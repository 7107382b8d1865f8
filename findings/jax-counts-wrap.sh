#!/usr/bin/env bash
# A good guess: whole numbers of 64 bits that are too large for JAX's default of 32 are refused, as a Python number is (OverflowError), or
# become floats, or a warning says it.
# What happens: an array of NumPy is cut to its low 32 bits in silence: 3,000,000,000 becomes -1,294,967,296 and 2^40 becomes 0. A Poisson
# log probability of numpyro of such a count is -inf with no word of the reason, and of 2^32 + 5 it is that of 5.
# Versions: jax 0.10.2, numpyro 0.22.0, numpy 2.4.6.
# Whom it hurts: who passes populations, nanoseconds, cents or ids as arrays of whole numbers to JAX without 64 bits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check numpyro==0.22.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > try.py <<'PY'
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Poisson

warnings.simplefilter("error")
print("jax", jax.__version__, "numpyro", numpyro.__version__, "numpy", np.__version__)
counts = np.array([3_000_000_000, 2**40, 2**32 + 5])
inside = jnp.asarray(counts)
print(counts.tolist(), "->", inside.tolist())
try:
    jnp.asarray(3_000_000_000)
    refused = False
except OverflowError:
    refused = True
print("a Python number is refused:", refused)
large, small = (float(Poisson(5.0).log_prob(np.array([n]))[0]) for n in (2**32 + 5, 5))
print(f"log probability of 4294967301 at mean 5: {large:.4f}; of 5: {small:.4f}")
assert inside.tolist() == [-1294967296, 0, 5] and refused and large == small
PY
env/bin/python try.py
