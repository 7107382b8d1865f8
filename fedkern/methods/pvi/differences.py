"""Tests whether the sites of an open job with full covariance differ by more than chance, from numbers that the server has.

No message is sent for it. Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...algorithms.pvi import machine as pvi
from ...kernels.families import FAMILIES
from ...models.expfam import unpack
from ...results import guard, heterogeneity, other_way, residuals, unseen
from ...results.verdict import Verdict
from .arrival import Arrived
from .dispersion import PearsonCheck
from .model import Model, Server

Array = NDArray[np.float64]


def _full_sites(model: Model, server: Server, own: Verdict) -> tuple[list[int], Array, Array] | None:
    """Returns the clients still in the job, with h (M, d) and P (M, d, d) of their sites; None where no test is possible.

    No test is possible in private jobs, where noise looks like differences; where sums are secure, of which the server has no
    site of a client; with diagonal sites; with fewer than two clients; and where `own`, the verdict on q, says that the sites
    have not converged.
    """
    if model.privacy is not None or model.secure or model.settings.variant != "pvi" or own.converged is False:
        return None
    if not isinstance(server, pvi.Server) or server.q.P.ndim != 2:
        return None
    there = [k for k in range(len(model.names)) if server.updates[k] and k not in server.lost and k not in server.refused]
    if len(there) < 2:
        return None
    return there, server.site_h[there], np.stack([unpack(server.site_P[k], model.encoding.size) for k in there])


@guard.check("the residuals' spread", None)
def compare_errors(model: Model, server: Server, own: Verdict, varied: PearsonCheck) -> residuals.Residuals | None:
    """Tests whether the error variance of a linear job differs between clients; None where it does not, or cannot be tested."""
    sites = _full_sites(model, server, own) if model.family == "gaussian" else None
    if sites is None or any(k not in varied.told for k in sites[0]):
        return None
    there, h, P = sites
    names, prior, q = [model.names[k] for k in there], model.prior.P, pvi.released(server)
    told = [varied.told[k] for k in there]
    return residuals.compare_clients(
        names, model.encoding.names, told, h, P, q.mean, prior if prior.ndim == 2 else np.diag(prior)
    )


@guard.figure("differences between sites", None)
def compare_sites(
    model: Model, server: Server, own: Verdict, varied: PearsonCheck, errors: residuals.Residuals | None
) -> heterogeneity.Heterogeneity | None:
    """Tests whether coefficients differ between the clients that are still in the job; None where that cannot be tested.

    Where `errors` says that error variances differ, each client's site is scaled by its own variance first.
    """
    sites = _full_sites(model, server, own)
    if sites is None:
        return None
    _, h, P = sites
    by = np.ones(len(h)) if errors is None else errors.variance
    h, P = h / by[:, None], P / by[:, None, None]
    names = model.encoding.names
    if (coding := model.coding) is not None:  # a row depends on the coefficients at reference levels alone
        kept = [*coding.kept]
        names, h, P = coding.spoken, h[:, kept], P[:, kept][:, :, kept]
    return heterogeneity.compare_sites(names, model.encoding.intercept, h, P, varied.inflated)


@guard.check("the coding of the response", None)
def find_reversed(model: Model, server: Server, own: Verdict, arrived: Arrived | None) -> other_way.Reversed | None:
    """Returns the words on a client whose outcome of 0 and 1 seems to be coded the other way round; None where none does.

    Each client has told its gradient and X'WX at the released q, with any covariance. Where a client was lost nobody was asked
    for them, and sites with full covariance that have converged say the same of those that are there.
    """
    if (
        model.privacy is not None
        or not FAMILIES[model.family].binary
        or model.secure
        or model.offset
        or not model.given.intercept
    ):
        return None
    mean, d = pvi.released(server).mean, model.encoding.size
    told = {} if arrived is None else arrived.told
    if len(told) > 1:
        there, g = list(told), np.stack([one.gradient for one in told.values()])
        P = np.stack([one.curvature[:, np.newaxis] if d == 1 else unpack(one.curvature, d) for one in told.values()])
    elif (sites := _full_sites(model, server, own)) is not None:
        there, h, P = sites
        g = h - P @ mean
    else:
        return None
    columns = range(1, d - len(model.encoding.clients))
    sums = other_way.where_slopes_are_0(mean, g, P, columns) if columns else None
    if sums is None:
        return None
    names, response = [model.names[k] for k in there], model.encoding.response
    return other_way.find(sums, names, response, effects=bool(model.encoding.clients))


@guard.figure("notes on differences between sites", [])
def notes(model: Model, server: Server, differ: heterogeneity.Heterogeneity | None) -> list[str]:
    """Returns the sentences for a reader about the coefficients that differ, or about why nobody has looked whether they do."""
    if differ is None:
        return _unseen(model, server)
    sparse = "sparse" in FAMILIES[model.family].methods
    return list(differ.notes("site-intercepts", "sparse-slopes" if sparse else "slopes-apart"))


def _unseen(model: Model, server: Server) -> list[str]:
    """The note on contradictions that this job hides; none where it has one client, or only its end forbids the test."""
    if len(model.names) < 2:
        return []
    if model.secure:
        return [unseen.describe("secure sums hide each client's own numbers")]
    if model.privacy is not None:
        return [unseen.describe("noise of privacy looks like differences")]
    if model.settings.variant != "pvi" or not isinstance(server, pvi.Server):
        return [unseen.describe(f"algorithm.variant = {model.settings.variant!r} compares no sites", all_of_it=False)]
    diagonal = model.encoding.size > 1 and server.q.P.ndim != 2
    return [unseen.describe("sites are diagonal", all_of_it=False)] if diagonal else []


SET = "model.site_intercepts = true"


def first(tested: heterogeneity.Heterogeneity | None) -> str:
    """Names the key to set before counts are judged to vary too much: intercepts that differ by client inflate their variance."""
    differ = tested is not None and tested.intercept is not None and tested.intercept.sure < heterogeneity.SAID
    return SET if differ else ""
