"""Speed of the kernels, one file per family: `cd benchmarks; asv run -E existing:$(which python) --quick`.

`time_*` are seconds. `track_*` are ratios of medians that were measured side by side in one process, because the speed of a
machine drifts: to another tool ("times as fast": larger is better), or to a floor that the machine sets ("x floor": 1 is best).
"""

import os

# Where they are set, NumPy's matrix products run at half their rate, and every comparison with them would be unfair. But where
# our kernels are held to a lower level of instructions, the products are, too: a floor is that of a machine that has no more.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
if core := {"avx2": "Haswell", "baseline": "Prescott"}.get(os.environ.get("FEDKERN_ISA", "")):
    os.environ["OPENBLAS_CORETYPE"] = core
