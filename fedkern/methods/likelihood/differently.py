"""Computes the result with another prior, or without a client, and whether clients differ by more than chance.

The first two are by weights of the draws, the last by the clients' answers at the mode. None of it has a message.

Sources: Kallioinen, Paananen, Buerkner and Vehtari (2023), Detecting and diagnosing prior and likelihood sensitivity with
power-scaling; docs/spec/likelihood.md, section 5; docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...algorithms.importance.server import Found
from ...models import weighted
from ...models.weighted import SENSITIVE, Weighted
from ...results import guard, heterogeneity, other_way
from ...results.other_way import ALONE, REWRITE, Reversed
from .model import Model

Array = NDArray[np.float64]
Row = dict[str, object]  # of a table

CONFLICT = "prior and rows say different things"
STRONG = "the prior says much, or the rows little"
INTERCEPTS = "set [model.random] client = true, by which each client has an intercept of its own"
OF_A_COLUMN = "give each site's rows a level of a column (site = ..) as a covariate, by which each has an intercept of its own"
SLOPES = "name numeric ones in [model.random] client_slopes with client = true, or fit the sites that differ in jobs of their own"
OF_EVENTS = 2.0  # log odds by which shares of events are apart where that is noted: slopes cannot say it
UNKNOWN = f"without it k-hat is above {weighted.WITHOUT_K:g}, or fewer than {weighted.WITHOUT_ESS:g} draws count"


@guard.figure("the sensitivity to prior and rows", {})
def sensitivity(weights: Weighted, prior: Array, likelihood: Array, values: Mapping[str, Array]) -> dict[str, Row]:
    """Returns name -> how far its posterior moves with the power of the prior and of the likelihood; a mark where that matters.

    Parameters
    ----------
    prior, likelihood : (N,) log-densities at the draws; that of the prior without Jacobians
    values : name -> (N,)
    """
    stacked = np.column_stack([*values.values()])
    by_prior, _ = weighted.sensitivity(weights, prior, stacked)
    by_rows, _ = weighted.sensitivity(weights, likelihood, stacked)
    return {
        name: {"prior": float(one), "likelihood": float(other), "mark": _mark(float(one), float(other))}
        for name, one, other in zip(values, by_prior, by_rows)
    }


def _mark(prior: float, likelihood: float) -> str:
    if not prior >= SENSITIVE:
        return ""
    return CONFLICT if likelihood >= SENSITIVE else STRONG


@guard.figure("the result without each client", {})
def leave_out_clients(weights: Weighted, told: Array, values: Mapping[str, Array], names: Sequence[str]) -> dict[str, Row]:
    """Returns client -> the result without it: mean, sd, 95 % interval and shift of each of `values`.

    Shifts are in the standard deviations with the client. Where its weights cannot be trusted, the reason stands in their place.

    Parameters
    ----------
    told : (N, J) the clients' log-likelihoods at the draws
    """
    out: dict[str, Row] = {}
    for name, one in zip(names, weighted.without(weights, told)):
        own = one.posterior
        content: Row = {"k_hat": own.k_hat, "ess": own.effective, "known": bool(one.known)}
        out[name] = content
        if not one.known:
            content["why"] = UNKNOWN
            continue
        content["parameters"] = {label: _shifted(column, own.weights, weights.weights) for label, column in values.items()}
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


@guard.figure("differences between sites", None)
def compare_clients(at_mode: Found, model: Model) -> heterogeneity.Heterogeneity | None:
    """Returns Cochran's Q of the clients' coefficients, at the mode of all else; None of one client."""
    names, at, intercept = model.compared
    P = at_mode.own_hessian[:, at][:, :, at]
    return heterogeneity.compare_sites(names, intercept, P @ at_mode.mode[at] + at_mode.own_gradient[:, at], P)


@guard.check("the coding of the response", None)
def find_reversed(at_mode: Found, model: Model) -> Reversed | None:
    """Returns the words on a client whose outcome seems to be coded the other way round; None where none does.

    That is an outcome of 0 and 1, a share, or a scale of ordered levels.
    """
    if at_mode.first is None:
        return None
    column = model.encoding.response
    if not model.of_two or model.layout.group or model.layout.client:
        at, own = model.of_slopes
        told_at = at_mode.first[0][:, at], at_mode.first[1][:, at][:, :, at]
        found = heterogeneity.find_opposed(*told_at, own, heterogeneity.LEFT if model.of_two else heterogeneity.LEFT_OF_OTHERS)
        mirrored: tuple[int, ...] = ()
    else:
        told = (float(expit(model.start_at[0])), *at_mode.first)
        found, mirrored = heterogeneity.find_reversed(*told), heterogeneity.mirrored(*told)
    if found:
        return other_way.describe([model.names[k] for k in found], column, model.other_way)
    return other_way.describe_rates([model.names[k] for k in mirrored], column) if mirrored else None


def mirrored_events(model: Model, told: Mapping[int, Mapping[str, int]]) -> list[str]:
    """Returns the note on a client whose share of events is that of rows without one at all others together.

    Slopes say nothing of it: rows without event were seen longest, whichever way events are coded.

    Parameters
    ----------
    told : number of a client -> its `rows` and `events`
    """
    there = {k: one for k, one in sorted(told.items()) if one["rows"]}
    if len(there) < 2:
        return []
    rows, events = (np.array([one[name] for one in there.values()], np.float64) for name in ("rows", "events"))
    names = [model.telling[k] for k in there]
    found = heterogeneity.mirrored_rates(rows, (events + 0.5) / (rows + 1), OF_EVENTS)
    who = " or ".join(repr(names[k]) for k in found)
    column = repr(model.encoding.response)
    return [
        f"{who}: events (column {column}) are about as frequent there as rows without event are at all others together: does an "
        f"event mean there what its absence means elsewhere? {REWRITE}; where it is right so, {ALONE}"
    ] * bool(found)


@guard.figure("notes on the sensitivity", [])
def describe_sensitivity(sensitive: Mapping[str, Row], alone: Mapping[str, Row]) -> list[str]:
    """Returns notes for the reader of the result: which parameters priors decide, and without which clients it is not known."""
    said = []
    for why in (CONFLICT, STRONG):
        if names := [name for name, row in sensitive.items() if row["mark"] == why]:
            said.append(f"sensitive to the prior ({why}): {', '.join(names)}")
    if unknown := [repr(name) for name, one in alone.items() if not one["known"]]:
        said.append(f"not known by weights, without client {' or '.join(unknown)}: run the job without it")
    return said
