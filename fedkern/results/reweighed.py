"""Compares a fitted q with the posterior that it stands for, by importance weights of its draws, or of wider ones.

With weights w = p / q of draws from q, smoothed (`models.psis`), means and standard deviations under p are weighted ones. They
are compared with those of the same draws without weights, so that the draws' scatter cancels; a standard error says how well
the difference is known. Draws may be of another distribution g, which has mass where q is too narrow: weights are then p / g, and
the same draws with weights q / g stand for q. Source: Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..arrays import Array
from ..models import psis

MEAN, SD = 0.1, 0.05  # sds by which a mean, and parts by which an sd may be off
EQUAL = 1e-6  # nats within which all ratios are one: q is then the posterior
CLOSE = 0.01  # nats, at most, where ratios are rounded: they move no mean by more sds
EVEN, UNEVEN = 0.99, 0.9  # of draws, how many equal weights these are worth: beyond the one q is near, below the other it is not
SIGHT = 0.5  # of these, the largest standard error with which that can be seen
NARROW, ERRORS = 0.1, 3.0  # parts by which an sd of q may be too small, and standard errors beyond which that is seen


@dataclass(frozen=True)
class Reweighed:
    """Holds the comparison of P unknowns."""

    names: tuple[str, ...]  # of the unknowns
    k_hat: float  # shape of the weights' tail
    # mean, sd: (P,) the posterior's mean less q's, in sds of q; its sd over q's, less 1
    mean: Array
    sd: Array
    # mean_error, sd_error: (P,) their standard errors
    mean_error: Array
    sd_error: Array
    draws: int  # that have weights
    effective: float = 0.0  # number of draws of equal weights that these are worth, (sum w)^2 / sum w^2
    exact: bool = False  # whether all weights are equal, but for rounding: q is then the posterior, and no tail has a shape
    wanted: float = 0.0  # of `effective`, for weights that can be used

    @property
    def limit(self) -> float:
        """The k-hat below which weights of this number of draws can be trusted."""
        return psis.limit(self.draws)

    @property
    def excess(self) -> Array:
        """The (P,) largest ratio of an unknown's differences and errors to their limits: at most 1 where q agrees."""
        ratios = [np.abs(self.mean) / MEAN, np.abs(self.sd) / SD, self.mean_error / (SIGHT * MEAN), self.sd_error / (SIGHT * SD)]
        largest: Array = np.nan_to_num(np.max(ratios, axis=0), nan=np.inf)
        return largest

    @property
    def reliable(self) -> bool:
        """Whether weighted means can be trusted: weights that hardly differ have no tail to speak of, whatever k-hat is."""
        return self.exact or self.even or bool(self.k_hat < self.limit and self.effective >= self.wanted)

    @property
    def enough(self) -> bool:
        """Whether more draws would tell no more than these: errors are small enough."""
        seen = max(self.mean_error.max(initial=0.0) / MEAN, self.sd_error.max(initial=0.0) / SD) <= SIGHT
        return self.exact or (self.reliable and bool(seen))

    def promising(self, most: int) -> bool:
        """Returns whether `most` times as many draws may come near to the wanted effective number."""
        return bool(self.effective * most >= 0.5 * self.wanted * self.draws)

    @property
    def narrow(self) -> list[int]:
        """The unknowns whose sd is seen to be too small, the worst first."""
        if not self.reliable:
            return []
        least = np.nan_to_num(self.sd - ERRORS * self.sd_error, nan=-np.inf)
        return [int(k) for k in np.argsort(-least, kind="stable") if least[k] > NARROW / (1 - NARROW)]

    @property
    def even(self) -> bool:
        """Whether weights hardly differ: a mean that is off by 0.15 sds, or an sd by a tenth, makes them less even."""
        return self.effective >= EVEN * self.draws

    @property
    def agrees(self) -> bool:
        """Whether q is the posterior, as far as its means and sds tell."""
        return self.reliable and bool((self.excess <= 1).all())

    @property
    def worst(self) -> int:
        """The unknown that is farthest off."""
        return int(np.argmax(self.excess))

    @property
    def content(self) -> dict[str, Any]:
        """The entry of summary.json."""
        columns = {"mean": self.mean, "mean_error": self.mean_error, "sd": self.sd, "sd_error": self.sd_error}
        rows = {name: {key: float(x[k]) for key, x in columns.items()} for k, name in enumerate(self.names)}
        worth: dict[str, object] = {"k_hat": self.k_hat, "draws": self.draws, "limit": self.limit, "effective": self.effective}
        worth |= {"exact": True} if self.exact else {}
        worth |= {"wanted": self.wanted} if self.wanted else {}
        moves = rows if self.reliable else {}
        return {**worth, "agrees": self.agrees, "moves": moves}

    @property
    def words(self) -> str:
        """The words of the verdict."""
        if self.exact:
            return f"weights of {self.draws:,} draws are all equal"
        worth = f"weights of {self.draws:,} draws are worth {self.effective:,.0f} equal ones"
        if not self.reliable and self.effective < self.wanted:
            return f"{worth} (wanted {self.wanted:,.0f}), too few to say by how much q is off: it is not near"
        if not self.reliable:
            return f"its weights have k-hat {self.k_hat:.2f} (wanted below {self.limit:.2g} with {self.draws} draws)"
        return f"{worth}, by which {self.names[self.worst]} is off most, {self.moved(self.worst)}"

    def moved(self, k: int) -> str:
        """Says by how much the weights move mean and sd of an unknown, each with its Monte-Carlo error."""
        mean = f"mean {self.mean[k]:+.2f} ± {self.mean_error[k]:.2f} sd (wanted within {MEAN:g})"
        return f"{mean}, sd {100 * self.sd[k]:+.1f} ± {100 * self.sd_error[k]:.1f} % (wanted within {100 * SD:g})"


def reweigh(
    names: Sequence[str],
    draws: Array,
    log_ratios: Array,
    rounding: float = 0.0,
    *,
    beside: Array | None = None,
    wanted: float = 0.0,
) -> Reweighed:
    """Computes the comparison from draws (S, P) of q and log p - log q (S,) at them, known up to a constant.

    A ratio that is not finite makes k-hat infinite.

    Parameters
    ----------
    names : of the P unknowns
    draws, log_ratios : (S, P) and (S,)
    rounding : by how much rounding alone may let ratios differ
    beside : log q - log g (S,), where draws are of another g and the ratios are log p - log g
    wanted : number of draws of equal weight that the weights must be worth
    """
    log_own = np.zeros(len(draws)) if beside is None else beside
    base_weights = np.exp(log_own - logsumexp(log_own))[:, np.newaxis]
    m = (base_weights * draws).sum(axis=0) if beside is not None else draws.mean(axis=0)
    sd = np.sqrt((base_weights * (draws - m) ** 2).sum(axis=0)) if beside is not None else draws.std(axis=0)
    nothing = np.full(draws.shape[1], np.inf)
    if not np.isfinite(log_ratios).all():
        return Reweighed(tuple(names), np.inf, nothing, nothing, nothing, nothing, len(draws), wanted=wanted)
    # Equal weights have no tail: q is the posterior.
    if np.ptp(log_ratios - log_own) <= max(EQUAL, min(rounding, CLOSE)):
        zero = np.zeros(draws.shape[1])
        return Reweighed(tuple(names), 0.0, zero, zero, zero, zero, len(draws), len(draws), exact=True, wanted=wanted)
    log_weights, k_hat = psis.smoothed(log_ratios)
    ratios = np.exp(log_ratios - log_ratios.max())
    effective = float(ratios.sum() ** 2 / (ratios**2).sum())
    S, w, z = len(draws), np.exp(log_weights)[:, np.newaxis], (draws - m) / sd
    mean = (w * z).sum(axis=0)
    spread = np.sqrt((w * (z - mean) ** 2).sum(axis=0))
    # The contribution of a draw to each difference, by the delta method: of the weighted moments less those of q.
    share = base_weights if beside is not None else 1 / S
    width = (z**2 - 1) * share / 2
    of_mean = w * (z - mean) - z * share - mean * width
    with np.errstate(divide="ignore", invalid="ignore"):  # where one draw has all the weight there is no spread
        of_sd = w * ((z - mean) ** 2 - spread**2) / (2 * spread) - spread * width
    mean_error, sd_error = (np.sqrt((contribution**2).sum(axis=0)) for contribution in (of_mean, of_sd))
    moved = mean, spread - 1, mean_error, sd_error
    return Reweighed(tuple(names), k_hat, *moved, S, effective, wanted=wanted)
