#!/usr/bin/env bash
# A good guess: the imaginary part of a conjugate, handed to NumPy by DLPack, has the values that torch prints; or it is refused, as Tensor.numpy()
# refuses it, and as DLPack refuses the conjugate itself.
# What happens: the sign is wrong, without a word. The part is lazy: the memory holds 2, a bit of the tensor says "negated", and the export looks
# at the bit of conjugates alone. torch.from_dlpack of it is wrong likewise.
# Versions: torch 2.13.0 (CPU), numpy 2.4.6.
# Whom it hurts: who takes phases, spectra or characteristic functions from torch to NumPy, CuPy or JAX by the way that copies nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat > try.py <<'PY'
import numpy as np
import torch

print("torch", torch.__version__.split("+")[0], "numpy", np.__version__)
z = torch.tensor([1 + 2j, 3 - 4j])
part = z.conj().imag
try:
    z.conj().__dlpack__()
    refused = False
except BufferError:
    refused = True
by_numpy, by_torch = np.from_dlpack(part), torch.from_dlpack(part)
print("torch says", part.tolist(), "NumPy gets", by_numpy.tolist(), "torch gets", by_torch.tolist(), "; a conjugate is refused:", refused)
assert part.tolist() == [-2.0, 4.0] and by_numpy.tolist() == by_torch.tolist() == [2.0, -4.0] and refused
PY
env/bin/python try.py
