"""Speed of the kernels, one file per family: `cd benchmarks; asv run -E existing:$(which python) --quick`.

`time_*` are seconds. `track_*` are ratios of medians that were measured side by side in one process, because the speed of a
machine drifts: to another tool ("times as fast": larger is better), or to a floor that the machine sets ("x floor": 1 is best).
"""

import os

# Where they are set, NumPy's matrix products run at half their rate, and every comparison with them would be unfair. But where
# our kernels are held to a lower level of instructions, so are the products, and the code that Numba and JAX make: peers and
# floors are those of a machine that has no more. (NumPy's own loops are not: it has no way to say so that all versions know.)
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
LEVEL = os.environ.get("FEDKERN_ISA", "")
if core := {"avx2": "Haswell", "baseline": "Prescott"}.get(LEVEL):
    os.environ["OPENBLAS_CORETYPE"] = core
    os.environ["NUMBA_CPU_NAME"] = {"avx2": "haswell", "baseline": "nehalem"}[LEVEL]  # there is none without SSE4
    os.environ["NUMBA_CPU_FEATURES"] = ""  # those of that name: otherwise Numba takes this machine's, AVX-512 included
    most = {"avx2": "AVX2", "baseline": "SSE4_2"}[LEVEL]
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={most}".strip()
