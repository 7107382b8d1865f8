"""Whether the sites of an open job with full covariance differ by more than chance: from what the server has, without a message.

Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

import numpy as np

from ...algorithms.pvi import machine as pvi
from ...kernels.families import FAMILIES
from ...models.expfam import unpack
from ...results import heterogeneity
from ...results.verdict import Verdict
from .dispersion import Found
from .model import Model, Server


def compared(model: Model, server: Server, own: Verdict, varied: Found) -> heterogeneity.Heterogeneity | None:
    """Of all clients that are still there; None in private jobs, where noise looks like differences, of diagonal sites, and where
    sites have not come to their end, `own` says."""
    if model.privacy is not None or model.config.algorithm.variant != "pvi" or own.converged is False:
        return None
    if not isinstance(server, pvi.Server) or server.q.P.ndim != 2:
        return None
    there = [k for k in range(len(model.names)) if server.updates[k] and k not in server.lost and k not in server.refused]
    if len(there) < 2:
        return None
    encoding = model.encoding
    P = np.stack([unpack(server.site_P[k], encoding.size) for k in there])
    return heterogeneity.compared(encoding.names, encoding.intercept, server.site_h[there], P, varied.inflated)


def notes(model: Model, found: heterogeneity.Heterogeneity | None) -> list[str]:
    """What is said of it."""
    if found is None:
        return []
    sparse = "sparse" in FAMILIES[model.config.model.family].methods
    slopes = 'job.method = "sparse" has slopes that differ' if sparse else "fit those that differ in jobs of their own"
    return list(found.notes(INTERCEPTS, slopes))


SET = "model.site_intercepts = true"
INTERCEPTS = f"set {SET}, which gives each client an intercept of its own"


def first(found: heterogeneity.Heterogeneity | None) -> str:
    """What is to be set before counts are said to vary more: levels that differ make them do so."""
    differ = found is not None and found.intercept is not None and found.intercept.p < heterogeneity.ALPHA
    return SET if differ else ""
