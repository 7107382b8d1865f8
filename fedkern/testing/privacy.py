"""Cases of the privacy kernels."""

from __future__ import annotations

import numpy as np

from fedkern.kernels import privacy

from . import Case, Source


def clip_sum(source: Source) -> Case:
    n, p = source.size(), source.size()
    rows = source.normal(
        n, p, dtype=source.choose(["f8", "f4"]), extremes=(1.0, 0.0, 1e-200, 1e150, 1e308, -np.inf, np.inf, np.nan)
    )
    bound = source.choose([1e-3, 1.0, 5.0, 1e300])
    magnitude = privacy.clip_sum(np.abs(rows), bound, backend="reference")
    return Case({"rows": rows, "bound": bound}, magnitude=[magnitude])
