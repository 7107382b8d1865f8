"""What the result would be with another prior, or without a client, by weights of the draws there are; and whether clients
differ by more than chance, by what they said at the mode. None of it has a message.

Sources: Kallioinen, Paananen, Buerkner and Vehtari (2023), Detecting and diagnosing prior and likelihood sensitivity with
power-scaling; docs/methods/likelihood.md, section 5; docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...algorithms.importance.server import Found
from ...models import weighted
from ...models.encoding import INTERCEPT
from ...models.weighted import SENSITIVE, Weighted
from ...results import heterogeneity
from .model import Model

Array = NDArray[np.float64]
Row = dict[str, object]  # of a table

CONFLICT = "prior and rows say different things"
STRONG = "the prior says much, or the rows little"
INTERCEPTS = "set [model.random] client = true, by which each client has an intercept of its own"
OF_A_COLUMN = "give each site's rows a level of a column (site = ..) as a covariate, by which each has an intercept of its own"
ALONE = "fit the sites that differ in jobs of their own"
SLOPES = "name numeric ones in [model.random] client_slopes with client = true, or fit the sites that differ in jobs of their own"
UNKNOWN = f"without it k-hat is above {weighted.WITHOUT_K:g}, or fewer than {weighted.WITHOUT_ESS:g} draws count"


def sensitivity(found: Weighted, prior: Array, likelihood: Array, values: Mapping[str, Array]) -> dict[str, Row]:
    """Name -> how far its posterior moves with the power of the prior, and of the likelihood, and what that says.

    Parameters
    ----------
    prior, likelihood : (N,) log-densities at the draws; that of the prior without Jacobians
    values : name -> (N,)
    """
    stacked = np.column_stack([*values.values()])
    by_prior, _ = weighted.sensitivity(found, prior, stacked)
    by_rows, _ = weighted.sensitivity(found, likelihood, stacked)
    return {
        name: {"prior": float(one), "likelihood": float(other), "mark": _mark(float(one), float(other))}
        for name, one, other in zip(values, by_prior, by_rows)
    }


def _mark(prior: float, likelihood: float) -> str:
    if not prior >= SENSITIVE:
        return ""
    return CONFLICT if likelihood >= SENSITIVE else STRONG


def without(found: Weighted, told: Array, values: Mapping[str, Array], names: Sequence[str]) -> dict[str, Row]:
    """Client -> the result without it: mean, sd, 95 % interval and shift, in the sds with it, of each of `values`; where its
    weights are not to be trusted why it is not known.

    Parameters
    ----------
    told : (N, J) the clients' log-likelihoods at the draws
    """
    out: dict[str, Row] = {}
    for name, one in zip(names, weighted.without(found, told)):
        own = one.posterior
        content: Row = {"k_hat": own.k_hat, "ess": own.effective, "known": bool(one.known)}
        out[name] = content
        if not one.known:
            content["why"] = UNKNOWN
            continue
        content["parameters"] = {label: _shifted(column, own.weights, found.weights) for label, column in values.items()}
    return out


def _shifted(column: Array, weights: Array, before: Array) -> dict[str, float]:
    mean, sd = _moments(column, weights)
    mean_before, sd_before = _moments(column, before)
    low, high = weighted.quantiles(column[:, np.newaxis], weights, (0.025, 0.975))[:, 0]
    shift = (mean - mean_before) / sd_before if sd_before > 0 else 0.0
    return {"mean": mean, "sd": sd, "q025": float(low), "q975": float(high), "shift": shift}


def _moments(column: Array, weights: Array) -> tuple[float, float]:
    mean = float(weights @ column)
    return mean, float(np.sqrt(weights @ (column - mean) ** 2))


def compared(found: Found, model: Model) -> heterogeneity.Heterogeneity | None:
    """Cochran's Q of the clients' coefficients, at the mode of all else; None of one client. Of ordered levels the first
    threshold is the intercept."""
    names, at = model.layout.coefficients, list(range(model.layout.p))
    intercept = model.encoding.intercept and not model.nominal
    if model.layout.ordered:
        names, at, intercept = (INTERCEPT, *names), [model.layout.shapes_at.start, *at], True
    P = found.own_hessian[:, at][:, :, at]
    return heterogeneity.compare_sites(names, intercept, P @ found.mode[at] + found.own_gradient[:, at], P)


def notes(sensitive: Mapping[str, Row], alone: Mapping[str, Row]) -> list[str]:
    """For the reader of the result: what priors decide, and which clients' absence would move it."""
    said = []
    for why in (CONFLICT, STRONG):
        if names := [name for name, row in sensitive.items() if row["mark"] == why]:
            said.append(f"sensitive to the prior ({why}): {', '.join(names)}")
    if unknown := [repr(name) for name, one in alone.items() if not one["known"]]:
        said.append(f"not known by weights, without client {' or '.join(unknown)}: run the job without it")
    return said
