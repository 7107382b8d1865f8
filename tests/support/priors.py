"""Keys of [model] with which an open regression has the prior N(0, 1), in the data's units: of tests of something else."""

from __future__ import annotations

from typing import Any

import numpy as np

PLAIN = {"intercept_sd": 1.0, "intercept_centre": 0.0}


def plain(family: str, y: Any, scale: float = 1.0) -> dict[str, Any]:
    """Of a gaussian response (all clients'), whose prior is in its standard deviations, with a known scale too."""
    if family != "gaussian":
        return dict(PLAIN)
    sd = float(np.std(np.asarray(y, float)))
    return {"prior_sd": 1 / sd, "intercept_sd": 1 / sd, "intercept_centre": 0.0, "scale": scale}
