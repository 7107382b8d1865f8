"""Whether the sites of an open job with full covariance differ by more than chance: from what the server has, without a message.

Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...algorithms.pvi import machine as pvi
from ...kernels.families import FAMILIES
from ...models.expfam import unpack
from ...results import heterogeneity, residuals
from ...results.verdict import Verdict
from .dispersion import Found
from .model import Model, Server

Array = NDArray[np.float64]


def _full_sites(model: Model, server: Server, own: Verdict) -> tuple[list[int], Array, Array] | None:
    """Clients that are still there, with h (M, d) and P (M, d, d) of their sites; None in private jobs, where noise looks like
    differences, of diagonal sites, and where sites have not come to their end, `own` says."""
    if model.privacy is not None or model.settings.variant != "pvi" or own.converged is False:
        return None
    if not isinstance(server, pvi.Server) or server.q.P.ndim != 2:
        return None
    there = [k for k in range(len(model.names)) if server.updates[k] and k not in server.lost and k not in server.refused]
    if len(there) < 2:
        return None
    return there, server.site_h[there], np.stack([unpack(server.site_P[k], model.encoding.size) for k in there])


def varying(model: Model, server: Server, own: Verdict, varied: Found) -> residuals.Residuals | None:
    """Whether the errors of a linear job vary otherwise at some clients; None where they don't, or nothing can be said."""
    sites = _full_sites(model, server, own) if model.family == "gaussian" else None
    if sites is None or any(k not in varied.told for k in sites[0]):
        return None
    there, h, P = sites
    names, prior, q = [model.names[k] for k in there], model.prior.P, pvi.released(server)
    told = [varied.told[k] for k in there]
    return residuals.compared(names, model.encoding.names, told, h, P, q.mean, prior if prior.ndim == 2 else np.diag(prior))


def compared(
    model: Model, server: Server, own: Verdict, varied: Found, errors: residuals.Residuals | None
) -> heterogeneity.Heterogeneity | None:
    """Of all clients that are still there; where their `errors` differ each has its own variance."""
    sites = _full_sites(model, server, own)
    if sites is None:
        return None
    _, h, P = sites
    by = np.ones(len(h)) if errors is None else errors.variance
    h, P = h / by[:, None], P / by[:, None, None]
    return heterogeneity.compared(model.encoding.names, model.encoding.intercept, h, P, varied.inflated)


def notes(model: Model, found: heterogeneity.Heterogeneity | None) -> list[str]:
    """What is said of it."""
    if found is None:
        return []
    sparse = "sparse" in FAMILIES[model.family].methods
    slopes = 'job.method = "sparse" has slopes that differ' if sparse else "fit those that differ in jobs of their own"
    return list(found.notes(INTERCEPTS, slopes))


SET = "model.site_intercepts = true"
INTERCEPTS = f"set {SET}, which gives each client an intercept of its own"


def first(found: heterogeneity.Heterogeneity | None) -> str:
    """What is to be set before counts are said to vary more: levels that differ make them do so."""
    differ = found is not None and found.intercept is not None and found.intercept.p < heterogeneity.ALPHA
    return SET if differ else ""
