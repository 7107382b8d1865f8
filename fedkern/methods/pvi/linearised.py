"""Finds noise-aware logistic posteriors that cannot be judged: the method takes gradients for lines about a normal predictor.

Everything follows from the job file, and from an estimate that is made of charged sums: no row is asked anything.
Source: docs/spec/pvi.md, section 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...algorithms.pvi import noise_aware
from ...jobs import incomplete
from ...printing import listed
from . import linear
from .keys import ColumnSection
from .model import Model

FEWEST = 0.075  # share of the rarer outcome, below which intervals do not hold what they say (docs/develop/measured.md)
RAREST = 0.095  # of the rarer value of a column that is declared as binary: below it nothing was measured (likewise)
BALANCED = 0.3  # share of the rarer value of a 0/1 column, from which it does no harm (likewise)
DOUBTFUL = 0.5  # relative standard error of a curvature: beyond it nothing is known of columns that are alike
ALIKE = 0.6  # a correlation of curvatures from which its eigenvalues are asked for; noise alone seldom makes one
NAMED = 3  # columns that a sentence names
CUT = 0.02  # of a client's rows, that may be twice as long as the clip; of normal ones at 1.1 lengths it is none


def doubt(model: Model, estimate: noise_aware.Estimate, mean: NDArray[np.float64]) -> str:
    """Says why intervals may be too narrow or off; "" where nothing indicates it.

    The gradients of a linear job are lines, whatever its columns are; of such a job the response's unit is examined instead.
    `mean`: (d,) of q after the last round.
    """
    if model.family != "bernoulli":
        level = linear.of_level(model, mean, estimate.moved * estimate.q.sd)
        unit = [*linear.of_file(model), level or linear.of_errors(model, estimate)]
        return "; ".join(filter(None, unit)) or of_correlation(model, estimate)
    return of_columns(model) or of_events(model, estimate) or of_correlation(model, estimate)


def of_correlation(model: Model, estimate: noise_aware.Estimate) -> str:
    """Says that columns are correlated by more than the noise lets be known, from the released curvature; "" where they are not.

    Where an eigenvalue of its correlations is no larger than noise makes one, it was lifted, and effects of correlated columns
    are drawn together.
    """
    first = int(model.encoding.intercept)  # a binary column is correlated with it by itself
    sizes = np.abs(np.triu(estimate.correlations[first:, first:], 1))
    if estimate.clear >= 1 or sizes.max(initial=0) < ALIKE or estimate.curvature_error.max() > DOUBTFUL:
        return ""
    both = " and ".join(model.encoding.names[first + j] for j in np.unravel_index(sizes.argmax(), sizes.shape))
    return (
        f"columns are correlated ({both} most) by more than this noise lets be known: effects of such columns are drawn "
        "together, and intervals are too narrow; in another job leave one of two such columns out, or combine them, or raise "
        "epsilon; or is their center in [data.columns] far from the rows' own?"
    )


def describe_rows(model: Model, client: str, X: NDArray[np.float64]) -> Iterator[str]:
    """Yields warnings for the holder alone: rows that are not as the job file says of them."""
    yield from not_binary(model, X)
    if model.privacy is not None and of_rows(model):
        yield from describe_long_rows(X, model.privacy.of(client).clip)


def of_rows(model: Model) -> bool:
    """Tells whether a holder is told how many of its rows the clip cuts: of a logistic job, where a gradient is no longer than
    its row."""
    return model.privacy is not None and not model.by_client and model.family == "bernoulli"


def of_clip(model: Model) -> list[str]:
    """Returns the note on what the clip may do that no noisy sum tells; [] in an open job."""
    if model.privacy is None or linear.is_private(model):
        return []
    cut = "the clip pulls the answer toward zero where it cuts many gradients, which no interval has in it; "
    if not of_rows(model):
        return [f"{cut}nobody is told how many it has cut: see that center and scale in [data.columns] are those of the rows"]
    return [
        f"{cut}how many, each holder alone can see: `fedkern check JOB --local FILE` says it before any epsilon is spent, and "
        f"rows.json in its own folder after that. Ask all: from {CUT:.0%} of rows that are over twice as long as the clip this "
        "answer is off, and another job needs center and scale in [data.columns] that are those of the rows, or a wider clip"
    ]


def describe_long_rows(X: NDArray[np.float64], clip: float | None) -> Iterator[str]:
    """Yields a warning where rows are longer than the job file says, so that the clip cuts many of them."""
    share = 0.0 if clip is None or not len(X) else float((np.linalg.norm(X, axis=1) > 2 * clip).mean())
    if share > CUT:
        yield (
            f"the job's constants do not fit your data: {share:.0%} of the rows are over twice as long as clip = {clip:g}, which "
            f"cuts their gradients (up to {CUT:.0%} does no harm): the result is then pulled toward zero, and nobody else can "
            "see it; are center and scale in [data.columns] those of these rows? Spend no epsilon on it before they are"
        )


def not_binary(model: Model, X: NDArray[np.float64]) -> Iterator[str]:
    """Yields a note for each column that is declared as binary and has other values."""
    for j, share in model.declared_binary.items():
        # Columns are standardised: a 0 has become -share / sd, and a 1 (1 - share) / sd.
        sd = math.sqrt(share * (1 - share))
        other = int(np.abs(X[:, j] * sd - np.where(X[:, j] > 0, 1 - share, -share) > 0.05).sum())
        if other:
            name = model.encoding.names[j]
            yield f'column {name!r} is declared with shape = "binary" and has other values in {other} rows: remove the shape'


def of_columns(model: Model) -> str:
    """Names columns that may not be near normal and standard, from the job file alone: the sentence does not depend on the
    rows."""
    marks = incomplete.marks(model.config)
    reasons = {
        column.name: _unlike(model.declared, column.name, categorical=column.levels is not None, mark=column.name in marks)
        for column in model.encoding.columns
    }
    columns = [f"{name} ({why})" for name, why in reasons.items() if why]
    if (several := len(model.declared_binary)) > noise_aware.MOST:
        columns.append(f"{several} binary ones (at most {noise_aware.MOST})")
    if model.offset is not None:
        columns.append(f"{model.offset} (an offset)")
    if not columns:
        return ""
    return (
        "the noise-aware posterior of a logistic job is made for columns that are near normal, with mean 0 and standard "
        f"deviation 1 by their center and scale, and these may not be: {listed(columns, NAMED)}; its "
        "intervals may be too narrow, and off"
    )


def of_events(model: Model, estimate: noise_aware.Estimate) -> str:
    """Says that the rarer outcome may be too rare, by the released intercept and, for standard columns, the slopes.

    The end of its 90 % interval that is farther from 0 decides, for the noise may hide a rare outcome.
    """
    if not model.encoding.intercept:
        return ""
    mean, sd = abs(float(estimate.q.mean[0])), float(estimate.q.sd[0])
    slopes = float(model.encoding.spread[1:] @ estimate.q.mean[1:] ** 2)
    share = float(expit(-(mean + 1.645 * sd) / math.sqrt(1 + noise_aware.PROBIT * slopes)))
    if share >= FEWEST:
        return ""
    return (
        f"by the intercept's interval as few as {share:.2g} of the outcomes may be the rarer one (wanted {FEWEST:g}): "
        "there the noise-aware posterior of a logistic job may have intervals that are too narrow, and off"
    )


def _unlike(declared: Mapping[str, ColumnSection], name: str, *, categorical: bool, mark: bool) -> str:
    """Says why, by the job file, a column is not near normal and standard; "" where the job file indicates nothing of the
    kind."""
    if mark:
        return "it marks missing cells"
    if categorical:
        return "categorical"
    section = declared.get(name, ColumnSection())
    if section.shape == "skewed":
        return 'shape = "skewed"'
    if section.lower is not None:
        return "by lower and upper, which tell neither"
    share = None if section.share is None else min(section.share, 1 - section.share)
    if share is None or share >= (RAREST if section.shape == "binary" else BALANCED):
        return ""
    if section.shape == "binary":
        return f"binary with {share:.1%} of one value; tried from {RAREST:.1%}"
    return f'center and scale are those of a 0/1 column with {share:.0%} of one value; if it is one, say shape = "binary"'
