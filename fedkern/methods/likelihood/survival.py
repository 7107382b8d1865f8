"""After the draws of a job of survival times: what only a client gets of its baseline hazards, and what clients tell.

Source: docs/methods/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.importance import machine as importance
from ...jobs.run import Run
from ...kernels import rng
from ...models import survival
from .keys import Config
from .model import Model
from .publish import Checked

Array = NDArray[np.float64]

KEPT = "baseline.csv"


def write(
    run: Run[Config], model: Model, client: int, rows: survival.Rows, labels: tuple[str, ...], told: Array, right: bool
) -> None:
    """baseline.csv into the client's own folder."""
    folder = run.hooks.folder
    if folder is None:
        return
    k, key = len(rows.sets.ends), rng.key(model.seed, "posterior", 1 + 3 * client)
    uniform = rng.uniform(len(told) * k, key=key).reshape(len(told), k)
    found = survival.baseline(rows, told[:, : model.layout.p], uniform)
    columns: dict[str, Any] = {"converged": [right] * k}
    if labels:
        columns["stratum"] = [labels[one] for one in found.stratum.tolist()]
    columns |= {"time": found.time.tolist(), "events": found.events.tolist(), "at_risk": found.at_risk.tolist()}
    for name, (mean, low, high) in (("cumulative_hazard", found.hazard), ("survival", found.survival)):
        columns |= {name: mean.tolist(), f"{name}_q025": low.tolist(), f"{name}_q975": high.tolist()}
    folder.write_csv(KEPT, columns, client=client)


def exchanged(
    run: Run[Config],
    model: Model,
    clients: Mapping[int, importance.Client],
    rows: Mapping[int, survival.Rows],
    *,
    at_server: bool,
) -> Checked:
    """What is found, at the server's place; nothing elsewhere."""
    return Checked()
