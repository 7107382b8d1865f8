"""Judges an ended nested Laplace approximation: its result, and reasons to doubt it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...models.psis import UNRELIABLE
from ...models.weighted import Weighted
from .server import Server, border, errors, needed, weighted
from .settings import ERROR, SPREAD

REMEDY = 'take algorithm.inference = "hmc", or "sfvi"'  # draws are asked as long as they can mend it


@dataclass(frozen=True)
class Found:
    """Holds the result of a job.

    Attributes
    ----------
    posterior : draws of xi with their weights
    places : values of the hyperparameters whose conditional posterior is known
    unfinished : how many of these searches did not end
    border : by how many nats the density of the hyperparameters is below its mode where the lattice ends, at least
    wanted : by how many it has to be
    questions : for weights
    error : by how many posterior sds any mean may be off, and any sd
    spread : nats, of all clients together, by which integrating areas out is off from one draw to another
    converged, reason : the verdict, and in a sentence why not
    """

    posterior: Weighted
    places: int
    unfinished: int
    border: float
    wanted: float
    questions: int
    error: tuple[float, float]
    spread: float
    converged: bool
    reason: str


def read_result(state: Server) -> Found:
    """Returns the result of an ended state."""
    if state.stop is None:
        raise ValueError("nested: the job has not ended")
    posterior, s = weighted(state), state.settings
    unfinished, edge, error = int((state.good == 0).sum()), border(state), errors(state, posterior)
    spread, wanted = float(np.sqrt((state.spread**2).sum())), state.lattice.negligible
    against, n, most = [], len(posterior.draws), s.points * s.most
    beyond = f"about {s.points * needed(state, posterior):,.0f} draws would do, and at most {most:,} are asked"
    # Every ground against the result is named, not the first alone.
    if unfinished:
        against.append(f"{unfinished} of {len(state.v)} searches for a mode did not end")
    if edge < wanted:
        against.append(
            f"the density of the hyperparameters is only {edge:.1f} nats below its mode where their lattice ends (wanted "
            f"{wanted:g})"
        )
    if not posterior.reliable:
        against.append(
            f"{n} draws are worth {posterior.effective:.0f} of equal weight (wanted {s.effective:g}), with k-hat "
            f"{posterior.k_hat:.2f} (wanted at most {UNRELIABLE:g}): more draws do not mend it"
        )
    elif posterior.effective < s.effective:
        against.append(f"{n} draws are worth {posterior.effective:.0f} of equal weight (wanted {s.effective:g}): {beyond}")
    elif max(error) > ERROR:
        against.append(
            f"with {n} draws a mean may be {error[0]:.2g} posterior sds off, and an sd {100 * error[1]:.2g} % (wanted {ERROR:g} "
            f"and {100 * ERROR:g} %): {beyond}"
        )
    if spread > SPREAD:
        against.append(
            f"integrating areas out by {s.inner} draws is {spread:.2g} nats off from one value of the unknowns to another "
            f"(wanted at most {SPREAD:g})"
        )
    reason = "; ".join(against)
    if reason:
        reason += f"; {REMEDY}"
    return Found(
        posterior, len(state.v), unfinished, edge, wanted, state.drawn, error, spread, not against, reason
    )  # fmt: skip
