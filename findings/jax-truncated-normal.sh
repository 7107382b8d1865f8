#!/usr/bin/env bash
# A good guess: draws of a normal distribution cut to [10, 11] lie near 10, mean 10.1, as its density falls by e^-10 over the interval; in
# float32 some digits may lack.
# What happens: every draw is the same number, and it is the wrong end: 10.999999, the least likely point. From -11 to -10 it is -10.999999 too.
# At [5, 6], two of five draws are the far end. The error function is 1 at both ends in float32. No word is said.
# Versions: jax 0.10.2, numpy 2.4.6, scipy 1.17.1.
# Whom it hurts: probit and Tobit models by data augmentation, and starts of chains, with rows far in the tail.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy==1.17.1
cat > try.py <<'PY'
import jax
import numpy as np
import scipy
from scipy import stats

print("jax", jax.__version__, "scipy", scipy.__version__)
key, found = jax.random.key(0), {}
for low, high in ((1.0, 2.0), (10.0, 11.0), (-11.0, -10.0)):
    draws = np.asarray(jax.random.truncated_normal(key, low, high, (1000,)))
    found[low] = (draws.mean(), len(set(draws.tolist())))
    exact = stats.truncnorm(low, high).mean()
    print(f"[{low}, {high}]: mean of 1000 draws {found[low][0]:.4f}, exact {exact:.4f}, different numbers {min(found[low][1], 100)}")
assert found[10.0][1] == found[-11.0][1] == 1 and found[10.0][0] > 10.99 and found[1.0][1] > 100
PY
env/bin/python try.py
