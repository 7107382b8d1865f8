#!/usr/bin/env bash
# A good guess: a JAX array never changes; device_put copies NumPy's array to the device, as jnp.array and jnp.asarray do.
# What happens: on the CPU, device_put keeps NumPy's memory where its address is a multiple of 64, and copies it elsewhere: writing to the NumPy
# array later changes the JAX array in one case and not in the other. Which it is depends on where NumPy's memory happens to lie.
# Versions: jax 0.10.2, numpy 2.4.6.
# Whom it hurts: who fills one buffer with batch after batch and puts each on the device: some runs compute with the next batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > try.py <<'PY'
import jax
import jax.numpy as jnp
import numpy as np

print("jax", jax.__version__, "numpy", np.__version__)
memory = np.zeros(300, np.float32)
start = (-memory.ctypes.data % 64) // 4
found = {}
for shift in (0, 4):
    for name, put in (("device_put", jax.device_put), ("asarray", jnp.asarray), ("array", jnp.array)):
        batch = memory[start + shift : start + shift + 64]
        batch[:] = 1
        inside = jax.block_until_ready(put(batch))
        batch[:] = 2
        found[name, 4 * shift] = float(inside[0])
        print(name, "at an address of 64 k +", 4 * shift, ": put 1, then NumPy's became 2; JAX has", found[name, 4 * shift])
assert found == {(name, s): 2.0 if (name, s) == ("device_put", 0) else 1.0 for name, s in found}
PY
env/bin/python try.py
