"""Computes leave-one-out predictive densities of rows by PSIS, where the rows are, and words for their sums over clients.

The tails have the length for independent draws (a relative efficiency of 1), whatever the sampler. Source: Vehtari, Gelman and
Gabry (2017), Practical Bayesian model evaluation. The Monte Carlo error, and how the server makes it smaller:
docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..algorithms.core.exchange import LARGEST, LEAST
from ..algorithms.core.masked import ALL, describe_few
from ..algorithms.core.once import Server, not_in
from ..algorithms.exchanges.sums import BINS, LooSums
from ..arrays import Array
from ..finding import Finding
from ..models import psis
from . import guard, page
from .plain import Record, real

EDGES = (psis.GOOD, psis.UNRELIABLE, 1.0)  # of the bins of k-hat
BLOCK = 256  # rows at once: memory is that of the draws times this
REMAINS = 0.4  # of the Monte Carlo error once it is corrected, by benchmarks/loo_error.py
SUMS = "the leave-one-out sums"
SMOOTHED = 0.015  # of p_loo: so much is elpd too low there, by smoothing the tails of 200 draws


def sums(n_rows: int, log_likelihood: Callable[[slice], Array]) -> LooSums:
    """Sums the leave-one-out densities of a client's rows.

    Parameters
    ----------
    n_rows : of the client
    log_likelihood : rows -> (m, rows) of each row at m draws of the posterior

    Returns
    -------
    the sums that the server may get
    """
    blocks = (slice(start, min(start + BLOCK, n_rows)) for start in range(0, n_rows, BLOCK))
    return sums_of(n_rows, map(log_likelihood, blocks))


def sums_of(n_rows: int, blocks: Iterable[Array]) -> LooSums:
    """Sums the leave-one-out densities of rows whose log-likelihoods at m draws come block by block, (m, rows of the block)."""
    density, squares, effective = 0.0, 0.0, 0.0
    bins = np.zeros(BINS)
    for values in blocks:
        left_out = psis.left_out(np.nan_to_num(values, nan=-LARGEST, neginf=-LARGEST))
        density += float(left_out.elpd.sum())
        squares += float((left_out.elpd**2).sum())
        effective += float(left_out.effective.sum())
        bins += np.bincount(np.searchsorted(EDGES, left_out.k_hat), minlength=BINS)
    return LooSums(0, n_rows, density, squares, effective, bins)


def summary(replies: Sequence[LooSums], unit: float = 1.0, draws: int | None = None) -> dict[str, Any]:
    """Returns the entry of summary.json from clients' sums in their order; empty without rows.

    It has `elpd`, its standard error over rows, `p_loo`, `rows`, and `k_hat`: how many rows have one of at most 0.5, 0.7, 1, and
    more. With `draws` also `monte_carlo_error`, that of `elpd`.

    Parameters
    ----------
    unit : of the model's response in the data's, by which densities are smaller there
    draws : how many independent draws the densities are of; None where they are not known to be independent
    """
    n = sum(reply.rows for reply in replies)
    if not n:
        return {}
    density, squares, effective = (
        float(sum(getattr(reply, name) for reply in replies)) for name in ("density", "squares", "effective")
    )
    spread = max(squares - density**2 / n, 0.0)  # n times the variance over rows, as ArviZ has it
    bins = [int(count) for count in np.sum([reply.bins for reply in replies], axis=0)]
    labels = [*(f"<= {edge:g}" for edge in EDGES), f"> {EDGES[-1]:g}"]
    density -= n * math.log(unit)
    error = {} if draws is None else {"monte_carlo_error": _error((2 * max(effective, 0.0) / draws) ** 0.5, effective)}
    return {"elpd": density, "se": spread**0.5, **error, "p_loo": effective, "rows": n, "k_hat": dict(zip(labels, bins))}


@guard.figure("leave-one-out sums", ({}, ()))
def told(query: Server[LooSums], names: Sequence[str], **options: Any) -> tuple[dict[str, Any], Sequence[str]]:
    """Returns `summary` of all clients' sums, and its notes; `options`: as of `summary`."""
    content = summary([query.replies[k] for k in sorted(query.replies)], **options)
    return content, notes(content, query, names)


def corrected(content: dict[str, Any], at_draws: float, mean: float, variance: float) -> dict[str, Any]:
    """Returns the entry with what chance has put into its draws taken back, as far as the log-likelihood shows it.

    Near its mode the log-likelihood of all rows is a constant less half a chi-square, and the sum of the rows' squared deviations
    is p_loo / (2 variance) times that chi-square: by both, elpd follows the log-likelihood's mean over the draws. `at_draws`: the
    mean of the log-likelihood of all rows over the draws that the densities are of; `mean`, `variance`: of the log-likelihood in
    the posterior, known from many more draws.
    """
    if not content or not variance > 0:
        return content
    chance, ratio = at_draws - mean, max(content["p_loo"], 0.0) / (2 * variance)
    p_loo = content["p_loo"] + 2 * ratio * chance
    error = _error(REMAINS * _of_draws(content), p_loo)
    return content | {"elpd": content["elpd"] - (1 + ratio) * chance, "p_loo": p_loo, "monte_carlo_error": error}


def error_of_difference(mine: Record, theirs: Record) -> float:
    """Returns the Monte Carlo error of a difference of two elpd of the same rows; nan where one has none.

    What smoothing takes away is taken from both.
    """
    if not all("monte_carlo_error" in content for content in (mine, theirs)):
        return math.nan
    return math.hypot(_of_draws(mine), _of_draws(theirs), SMOOTHED * (real(mine["p_loo"]) - real(theirs["p_loo"])))


def _error(of_draws: float, p_loo: float) -> float:
    """Returns the Monte Carlo error of an elpd: that of its draws, and what smoothing takes away."""
    return math.hypot(of_draws, SMOOTHED * p_loo)


def _of_draws(content: Record) -> float:
    """Returns the part of the error that is of draws."""
    return math.sqrt(max(real(content["monte_carlo_error"]) ** 2 - (SMOOTHED * real(content["p_loo"])) ** 2, 0.0))


def line(sums: Record) -> str:
    """Returns the line that a finished job prints."""
    of_draws = f", of draws {real(sums['monte_carlo_error']):.2g}" if "monte_carlo_error" in sums else ""
    errors = f"standard error over rows {sums['se']:.1f}{of_draws}"
    return f"rows without themselves: elpd {sums['elpd']:.1f} ({errors}), p_loo {sums['p_loo']:.1f}"


def piece(summary: Record) -> str:
    """Returns the report's section; "" where the job has no such sums."""
    sums = summary.get("loo", {})
    if not sums:
        return ""
    of_draws = f", Monte Carlo error {real(sums['monte_carlo_error']):.2g}" if "monte_carlo_error" in sums else ""
    text = (
        f"The log predictive density of each of {sums['rows']:,} rows by the other rows, summed (PSIS-LOO): elpd "
        f"{sums['elpd']:.1f}, standard error over rows {sums['se']:.1f}{of_draws}; p_loo {sums['p_loo']:.1f}, as many free "
        "parameters have such an effect. Of two models of the same rows the larger elpd foresees better. Rows with a k-hat above "
        f"{psis.UNRELIABLE:g} are not reliable."
    )
    counts = [[label, f"{rows:,}"] for label, rows in sums["k_hat"].items()]
    return page.section("Rows without themselves", page.paragraph(text, ""), page.table(["k-hat", "rows"], counts))


def notes(content: dict[str, Any], query: Server[LooSums], names: Sequence[str]) -> list[str]:
    """Returns notes for a reader: rows whose densities are not reliable, and clients that are not in the sums."""
    if tuple(names) == (ALL,):
        return [describe_few(f"{LEAST} rows", SUMS), *not_in(SUMS, query, names), *_unreliable(content)]
    silent, lost = sum(reply.rows == 0 for reply in query.replies.values()), len(query.lost)
    findings = [Finding.of("few-rows-not-in-loo", n=silent, least=LEAST)] if silent else []
    findings += [Finding.of("lost-not-in-loo", n=lost)] if lost else []
    return [*findings, *not_in(SUMS, query, names), *_unreliable(content)]


def _unreliable(content: dict[str, Any]) -> list[str]:
    """Returns a note on rows whose densities are not reliable."""
    far = content["k_hat"][f"<= {EDGES[-1]:g}"] + content["k_hat"][f"> {EDGES[-1]:g}"] if content else 0
    return [Finding.of("unreliable-loo", rows=far, limit=psis.UNRELIABLE)] if far else []
