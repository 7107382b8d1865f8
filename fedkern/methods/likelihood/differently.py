"""Computes the result with another prior, or without a client, and whether clients differ by more than chance.

The first two are by weights of the draws, the last by the clients' answers at the mode. None of it has a message.

Sources: Kallioinen, Paananen, Buerkner and Vehtari (2023), Detecting and diagnosing prior and likelihood sensitivity with
power-scaling; docs/spec/likelihood.md, section 5; docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from scipy.special import expit

from ...algorithms.importance.draws import ENDLESS, FARTHER, RIGHT, Found
from ...algorithms.importance.newton import PULL
from ...arrays import Array
from ...finding import Finding
from ...models import weighted
from ...models.weighted import SENSITIVE, Weighted
from ...results import given_scales, guard, heterogeneity, other_way
from ...results.gaussian import label
from ...results.other_way import REWRITE, Reversed
from .model import Model
from .named_priors import by_name, key_of

Row = dict[str, object]  # of a table

CONFLICT = "prior and rows say different things"
OF_BOX = "; with secure sums no wider one is tried beyond 50 in units of the columns: take a column about its mean, I(x - 50)"
BY = "; it moves the mode by up to {:.2g} sd and stays, as a mean of so few rows lies beyond their mode; model.prior_sd ends that"
STRONG = "the prior says much, or the rows little"
HALF = 0.5  # of the information: the prior has more than the rows
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
    (by_prior, by_rows), _ = weighted.sensitivity(weights, (prior, likelihood), stacked)
    return {
        name: {"prior": float(prior), "likelihood": float(other), "mark": _mark(float(prior), float(other))}
        for name, prior, other in zip(values, by_prior, by_rows)
    }


def _mark(prior: float, likelihood: float) -> str:
    if not prior >= SENSITIVE:
        return ""
    return CONFLICT if likelihood >= SENSITIVE else STRONG


@guard.figure("the result without each client", {})
def leave_out_clients(weights: Weighted, draws: Array, values: Mapping[str, Array], names: Sequence[str]) -> dict[str, Row]:
    """Returns client -> the result without it: mean, sd, 95 % interval and shift of each of `values`.

    Shifts are in the standard deviations with the client. Where its weights cannot be trusted, the reason stands in their place.
    `draws`: (N, J) the clients' log-likelihoods at the draws.
    """
    out: dict[str, Row] = {}
    for name, without in zip(names, weighted.without(weights, draws)):
        posterior = without.posterior
        content: Row = {"k_hat": posterior.k_hat, "ess": posterior.effective, "known": bool(without.known)}
        out[name] = content
        if not without.known:
            content["why"] = UNKNOWN
            continue
        content["parameters"] = {label: _shifted(column, posterior.weights, weights.weights) for label, column in values.items()}
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
    names, places, intercept = model.compared
    coding, before = model.coding, len(names) - model.layout.p  # a threshold, which stands before the coefficients
    # A row depends on the coefficients at reference levels alone: what it says of these is what it says of those that are kept.
    kept = [*range(before), *(before + j for j in coding.kept)]
    # About the mode, from which sites differ by their gradients: about 0 these would be lost beside a column's large centre.
    h, P = at_mode.own_gradient[:, places], at_mode.own_hessian[:, places][:, :, places]
    spoken = (*names[:before], *coding.spoken)
    return heterogeneity.compare_sites(spoken, intercept, h[:, kept], P[:, kept][:, :, kept])


@guard.check("the coding of the response", None)
def find_reversed(at_mode: Found, model: Model, events: Mapping[int, Mapping[str, int]]) -> Reversed | None:
    """Returns the words on a client whose outcome seems to be coded the other way round; None where none does.

    That is an outcome of 0 and 1, a share, a scale of ordered levels, or the event of survival times. `events`: of survival
    times, number of a client -> its `rows` and `events`.
    """
    if events:
        return reversed_events(at_mode, model, events)
    if at_mode.first is None:
        return None
    column = model.encoding.response
    with_values = [k for k in range(len(model.names)) if k not in model.summaries]  # others were not asked where it began
    if len(with_values) < 2:
        return None
    names, first = [model.names[k] for k in with_values], (at_mode.first[0][with_values], at_mode.first[1][with_values])
    if model.slopes_alone:
        return find_opposed(model, names, *first)
    return other_way.find(other_way.Sums(float(expit(model.start_at[0])), *first), names, column)


def find_opposed(model: Model, names: Sequence[str], g: Array, P: Array) -> Reversed | None:
    """Returns the words on a client whose slopes are minus those of the others, from gradients and curvatures of each."""
    places, thresholds = model.of_slopes
    left = heterogeneity.LEFT if model.of_two else heterogeneity.LEFT_OF_OTHERS
    found = heterogeneity.find_opposed(g[:, places], P[:, places][:, :, places], thresholds, left)
    return other_way.describe([names[k] for k in found], model.encoding.response, *model.other_way) if found else None


class AtMode(Protocol):
    """Has the clients' gradients and curvatures at a mode, as `Found` has them."""

    @property
    def mode(self) -> Array: ...
    @property
    def own_gradient(self) -> Array: ...
    @property
    def own_hessian(self) -> Array: ...


def reversed_events(
    at_mode: AtMode, model: Model, counts: Mapping[int, Mapping[str, int]], names: Sequence[str] = (), *, right: int = 0
) -> Reversed | None:
    """Returns the words on a client whose share of events is that of rows without one at all others together.

    It is a doubt where the client's rows at higher risk, by the others' slopes, do not have the event earlier.

    Parameters
    ----------
    names : of the clients; default those of the model
    right : how many of the first clients are no newcomers, and not looked at
    """
    with_rows = [k for k, count in sorted(counts.items()) if count["rows"]]
    if len(with_rows) < 2:
        return None
    rows, events = (np.array([counts[k][name] for k in with_rows], np.float64) for name in ("rows", "events"))
    shares = (events + 0.5) / (rows + 1)
    _, places, intercept = model.compared
    P = at_mode.own_hessian[with_rows][:, places][:, :, places]
    h = P @ at_mode.mode[places] + at_mode.own_gradient[with_rows][:, places]
    found = heterogeneity.find_reversed_events(rows, shares, h, P, int(intercept), right)
    mirrored = found or heterogeneity.mirrored_rates(rows, shares, OF_EVENTS)
    if not mirrored:
        return None
    names = names or model.telling
    whose = {"clients": [names[with_rows[k]] for k in mirrored], "column": model.encoding.response}
    note = Finding.of("events-reversed-by-risk" if found else "events-reversed", **whose, remedies=[REWRITE])
    return Reversed(note, Finding.of("event-reversed", **whose) if found else "")


@guard.figure("columns that follow from others", [])
def decided_by_prior(model: Model, at_mode: Found, columns: Sequence[str]) -> list[str]:
    """Returns those of the columns of which the prior has more than half of the information, beside all others."""
    decided = [name for name, share in zip(model.published, _share_of_prior(model, at_mode)) if share > HALF]
    return [column for column in columns if any(model.published[j] in decided for j in model.numbers_of([column]))]


@guard.figure("coefficients of which rows say nothing", [])
def untold(model: Model, at_mode: Found) -> list[str]:
    """Returns the published coefficients of which rows say nothing: R has NA there."""
    return [label(model.published[j]) for j in at_mode.untold]


def _share_of_prior(model: Model, at_mode: Found) -> Array:
    """Returns the part of each published coefficient's information that its prior has, beside all others."""
    p, R = model.layout.p, model.coding.matrix
    RC = R @ np.linalg.inv(at_mode.precision)[:p]
    prior = model.prior.curvature(at_mode.mode)[2][:p, :p]
    return np.asarray((RC[:, :p] @ prior * RC[:, :p]).sum(axis=1) / (RC[:, :p] * R).sum(axis=1))


@guard.figure("notes on the sensitivity", [])
def describe_sensitivity(
    sensitive: Mapping[str, Row], alone: Mapping[str, Row], model: Model | None = None, at_mode: Found | None = None
) -> list[str]:
    """Returns notes for the reader of the result: which parameters priors decide, and without which clients it is not known.

    `model`: None of an own model, whose priors are its own.
    """
    marked = {why: [name for name, row in sensitive.items() if row["mark"] == why] for why in (CONFLICT, STRONG)}
    findings = list[str]()
    if model is not None and at_mode is not None:
        given, marked = _of_named(model, marked)
        findings, remedy, judged = _of_coefficients(model, at_mode, [*marked[CONFLICT], *marked[STRONG]])
        hardly = {label(n) for n, share in zip(model.published, _share_of_prior(model, at_mode)) if share > HALF}
        # Other numbers' default priors are not made wider, so that there is none to leave out.
        conflict = [name for name in marked[CONFLICT] if _is_coefficient(name) and not judged]
        strong = [name for name in marked[STRONG] if not (_is_coefficient(name) and judged) or (name in hardly and not findings)]
        keys = [key_of(name) for name in strong if name in by_name(model) and not _is_coefficient(name)]
        another = f"; another prior is {' and '.join(keys)}" if keys else ""
        marked, findings = {CONFLICT + remedy: conflict, STRONG + another: strong}, [*given, *findings]
    findings += [Finding.of("sensitive-to-the-prior", why=why, names=names) for why, names in marked.items() if names]
    if unknown := [name for name, row in alone.items() if not row["known"]]:
        findings.append(Finding.of("unknown-without-a-client", clients=unknown))
    return findings


def _of_named(model: Model, marked: Mapping[str, list[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """Returns notes on numbers with priors of their own, which name the keys, and all other names."""
    keys, notes = model.named.keys, list[str]()
    for why, names in marked.items():
        if with_keys := [name for name in names if name in keys]:
            by = f"{why}; given by {' and '.join(dict.fromkeys(keys[name] for name in with_keys))}"
            notes.append(Finding.of("sensitive-to-the-prior", why=by, names=with_keys))
    return notes, {why: [name for name in names if name not in keys] for why, names in marked.items()}


def _of_coefficients(model: Model, at_mode: Found, marked: Sequence[str]) -> tuple[list[str], str, bool]:
    """Returns a note on coefficients that rows set no end to, what to do of others, and whether these need no note."""
    given, moved = model.given_priors, _moved(model, at_mode)
    names = [name for name in marked if _is_coefficient(name)]
    if given:
        return [], f"; leave {' and '.join(given)} out: a default prior is made as wide as rows ask", moved <= PULL
    if at_mode.decided == ENDLESS and not model.measured:
        of_units = {
            f"theta[{name}]" for name in given_scales.given_columns(model.encoding, model.given_constants)
        }  # whose unit may be why, which the verdict says
        names = [name for name in names if name not in of_units]
        return [Finding.of("columns-separate", names=names)] if names else [], "", True
    if at_mode.decided == RIGHT and len(model.wider) > 1:
        return [], BY.format(moved), moved <= PULL
    return [], OF_BOX if model.secure else "", False


@guard.check("the scales that the job gives", None)
def doubt_scales(found: Found, model: Model) -> str:
    """Returns why the center and scale that the job gives do not fit the rows; "" where they do, or none are given."""
    given = given_scales.given_columns(model.encoding, model.given_constants)
    names, places, intercept = model.compared
    if not given or not intercept:
        return ""
    _, slope, prior = model.prior.curvature(found.mode)
    rows = found.own_gradient.sum(axis=0)[places], found.own_hessian.sum(axis=0)[np.ix_(places, places)]
    return given_scales.doubt(names, given, rows, (slope[places], prior[np.ix_(places, places)]))


@guard.check("whether the mode is reached", None)
def not_reached(model: Model, at_mode: Found) -> str:
    """Returns why a default prior decides the result: what rows say is beyond the box of secure sums, or farther than steps go.

    A response without a unit may set no end at all, which is noted.
    """
    if model.given_priors or at_mode.decided != FARTHER or _moved(model, at_mode) <= PULL:
        return ""
    return Finding.of("beyond-the-box" if model.secure else "mode-too-far")


def _moved(model: Model, at_mode: Found) -> float:
    """Returns by how many posterior sds, at most, the prior of coefficients moves one at the mode, to first order."""
    read, p = model.priors.read[:, : model.layout.p], model.layout.p
    covariance = np.linalg.inv(at_mode.precision)[:p, :p]
    moved = read @ covariance @ model.prior.curvature(at_mode.mode)[1][:p]
    return float(np.sqrt((moved**2 / (read @ covariance * read).sum(axis=1)).max(initial=0.0)))


def _is_coefficient(name: str) -> bool:
    """Whether a number has the prior of coefficients or intercept."""
    return name.startswith(("theta[", "intercept")) or " vs " in name
