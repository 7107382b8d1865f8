"""Where a noise-aware logistic posterior cannot be judged: its gradients count as lines, as about a normal predictor.

All of it follows from the job file, and from an estimate that was made of sums which had been charged: no row is asked anything.
Source: docs/methods/pvi.md, section 16.
"""

from __future__ import annotations

import math

from scipy.special import expit

from ...algorithms.pvi import noise_aware
from ...jobs import incomplete
from .keys import ColumnSection, Config
from .model import Model

FEWEST = 0.075  # share of the rarer outcome, below which intervals do not hold what they say (docs/develop/measured.md)
BALANCED = 0.3  # share of the rarer value of a 0/1 column, from which it does no harm (likewise)
ALIKE = 0.02  # relative difference between a declared scale and that of a 0/1 column with this mean
NAMED = 3  # columns that a sentence names


def doubt(model: Model, estimate: noise_aware.Estimate) -> str:
    """Why the intervals of a logistic job may not hold what they say; "" where nothing says so. Of a linear job the gradients are
    lines, whatever its columns are."""
    if model.config.model.family != "bernoulli":
        return ""
    return of_columns(model) or of_events(model, estimate)


def of_columns(model: Model) -> str:
    """From the job file alone: the same sentence whatever the rows are."""
    config, marks = model.config, incomplete.marks(model.config)
    told = {
        column.name: _unlike(config, column.name, categorical=column.levels is not None, mark=column.name in marks)
        for column in model.encoding.columns
    }
    said = [f"{name} ({why})" for name, why in told.items() if why]
    if config.data.offset is not None:
        said.append(f"{config.data.offset} (an offset)")
    if not said:
        return ""
    named = ", ".join(said[:NAMED]) + (f" and {len(said) - NAMED} more" if len(said) > NAMED else "")
    return (
        "the noise-aware posterior of a logistic job is made for columns that are near normal, with mean 0 and standard "
        f"deviation 1 by their center and scale, and these may not be: {named}; its intervals may be too narrow, and off"
    )


def of_events(model: Model, estimate: noise_aware.Estimate) -> str:
    """From the released estimate: its intercept says what share of the outcomes is the rarer one, where columns are standard.

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


def _unlike(config: Config, name: str, *, categorical: bool, mark: bool) -> str:
    """What the job file says of a column that is not near normal and standard; "" where it says nothing of the kind."""
    if mark:
        return "it marks missing cells"
    if categorical:
        return "categorical"
    said = config.data.columns.get(name, ColumnSection())
    if said.shape == "skewed":
        return 'shape = "skewed"'
    if said.lower is not None:
        return "by lower and upper, which tell neither"
    if said.center is not None and said.scale is not None and 0 < said.center < 1:
        share = min(said.center, 1 - said.center)
        if share < BALANCED and abs(said.scale / math.sqrt(share * (1 - share)) - 1) < ALIKE:
            return f"center and scale are those of a 0/1 column with {share:.0%} of one value"
    return ""
