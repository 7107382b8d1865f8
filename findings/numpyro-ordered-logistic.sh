#!/usr/bin/env bash
# A good guess: the log probability of the highest level at linear predictor -20 is about -20, as that of the lowest level at 20 is: the model
# is the same when levels are turned round.
# What happens: the lowest level has -20, the highest -inf, with gradient 0, from about -17 on (float32, JAX's default; with 64 bits from -37);
# at -15 it is -14.84. The probability is a difference of cumulative ones, which rounds to 0.
# Versions: numpyro 0.22.0, jax 0.10.2.
# Whom it hurts: ordinal models with an outlier or a bad start: chains that cannot begin, or reject on one side alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check numpyro==0.22.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > try.py <<'PY'
import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions import OrderedLogistic

print("numpyro", numpyro.__version__, "jax", jax.__version__)


def highest(eta):
    return OrderedLogistic(eta, jnp.array([0.0])).log_prob(1)


for eta in (-5.0, -10.0, -15.0, -20.0):
    lowest = OrderedLogistic(-eta, jnp.array([0.0])).log_prob(0)
    print(f"at {eta}: highest {highest(eta):.3f}, gradient {jax.grad(highest)(eta):.3f}; lowest of the turned model {lowest:.3f}")
assert jnp.isneginf(highest(-20.0)) and jax.grad(highest)(-20.0) == 0 and abs(lowest + 20) < 1e-4
assert abs(highest(-15.0) + 15) > 0.1
PY
env/bin/python try.py
