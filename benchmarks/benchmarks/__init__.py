"""Speed of the kernels, one file per family: `cd benchmarks; asv run -E existing:$(which python) --quick`.

`time_*` are seconds. `track_*` are ratios of medians that were measured side by side in one process, because the speed of a
machine drifts: to another tool ("times as fast": larger is better), or to a floor that the machine sets ("x floor": 1 is best).
"""

import os

# Where they are set, NumPy's matrix products run at half their rate, and every comparison with them would be unfair.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
