"""Tests whether responses vary as the model of an open job says, by the clients' Pearson sums at the released q's mean.

Source: docs/concepts/convergence.md, "Counts that vary more".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.sums import AskPearson, PearsonSums
from ...algorithms.pvi import machine as pvi
from ...errors import owned
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...kernels.families import FAMILIES
from ...models.expfam import Gaussian
from ...models.glm import Rows
from ...results import case_weights, dispersion, guard
from .keys import Config
from .model import Model, Server

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PearsonCheck:
    """Holds the result of this test.

    Attributes
    ----------
    ratio : of the pooled Pearson statistic to its expectation; None where the family has none, or nobody was asked
    notes : sentences about clients and weights
    weight : the mean of all rows' weights; 1 where they are counts
    told : the sums of each client that sent some
    """

    ratio: dispersion.Dispersion | None = None
    notes: tuple[str, ...] = ()
    weight: float = 1.0
    told: Mapping[int, PearsonSums] = field(default_factory=dict)

    @property
    def inflated(self) -> float:
        """The factor by which differences between sites look larger than they are: from counts that vary more, and from heavy
        weights."""
        ratio = self.ratio.ratio if self.ratio is not None and self.ratio.off else 1.0
        return max(ratio, 1.0) * (self.weight if self.weight > case_weights.HEAVY else 1.0)


def asks(model: Model) -> bool:
    """Returns whether clients are asked: in open jobs whose family has a variance, or whose rows have weights or trials."""
    judged = FAMILIES[model.family].noise is not None or model.trials is not None
    return model.privacy is None and (judged or model.weight is not None)


def stages(model: Model) -> list[Stage]:
    """Returns the stage after the rounds in which the sums are sent."""
    return [Stage.asking(PearsonSums, {"d": model.encoding.size}, secure=model.secure)] if asks(model) else []


def exchange_pearson(run: Run[Config], model: Model, server: Server | None, rows: Mapping[int, Rows]) -> PearsonCheck:
    """Asks the clients for their Pearson sums and pools them, at the server's place; elsewhere the result is empty."""
    if not asks(model):
        return PearsonCheck()
    q = None if server is None or server.lost else pvi.released(server)
    clients = {k: once.Client(partial(_told, model, own, k)) for k, own in rows.items()}
    question = None if q is None else AskPearson(0, q.mean)
    told, _ = run.ask(stages(model)[0], PearsonSums.question, question, clients)
    if told is None or q is None:
        return PearsonCheck()
    return _pooled(run, model, q, told)


@guard.check("the dispersion", lambda *_: PearsonCheck())
def _pooled(run: Run[Config], model: Model, q: Gaussian, told: once.Server[PearsonSums]) -> PearsonCheck:
    """Pools the clients' sums."""
    notes = [f"client {model.telling[k]!r} is not in the dispersion, for {why}" for k, why in sorted(told.dropped.items())]
    named = {model.telling[k]: told.replies[k] for k in sorted(told.replies)}
    weight = 1.0
    if model.weight is not None:
        counts = model.counted_weights is not None
        weighed = {name: case_weights.Weighed(one.rows, one.weight) for name, one in named.items()}
        # Precisions of measurements are about 1 over all, not at each client.
        said = case_weights.compare(model.weight, weighed, counts=counts, precisions=model.family == "gaussian")
        notes += said.notes
        run.hooks.doubts += said.doubts
        weight = 1.0 if counts else case_weights.mean(weighed)
    family = model.family if model.trials is None else "binomial"
    if model.trials is None and FAMILIES[family].noise is None:
        return PearsonCheck(None, tuple(notes), weight)
    P = model.prior.P
    # The prior accounts for a part of each coefficient; the rest is a degree of freedom that the fit uses up.
    used = float(np.clip(1 - (P if P.ndim == 1 else np.diag(P)) * q.sd**2, 0, 1).sum())
    learns = _learns(model)
    ratio = dispersion.pool(family, scale_of(model), in_order(told.replies), used, learns)
    return PearsonCheck(ratio, tuple(notes), weight, told.replies)


def _learns(model: Model) -> Literal["", "can", "has"]:
    """Returns whether this job can learn a scale (the r of a negative binomial), or has learnt it."""
    if model.given.learnt:
        return "has"
    return "can" if model.privacy is None and model.settings.variant == "pvi" else ""


def scale_of(model: Model) -> float:
    """Returns the scale of the response in the units of its column."""
    return model.scale


def _told(model: Model, rows: Rows, client: int, asked: AskPearson) -> PearsonSums:
    """Computes a client's Pearson sums at the mean that it was told."""
    if model.box is not None:
        model.box.check(asked.mean, type(asked).__name__)
    with owned(client):
        return PearsonSums.at(asked.mean, rows, model.family, scale_of(model), masked=model.secure)
