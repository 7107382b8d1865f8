"""What only the client may see: the posterior of every area of its own, in a table and as draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.hmc import machine as hmc
from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import OwnFile
from ...jobs.run import Run
from ...kernels import rng
from ...models.spatial.site import Site
from ...models.spatial.within_site import WithinSite
from ...results.released import Drawing
from .keys import Config
from .model import SigmaModel
from .publish import global_draws
from .rows import AreaRows

Array = NDArray[np.float64]

DRAWS = 1000  # from a variational posterior
BEYOND = 50.0  # prior standard deviations of a decoder's output that are worth a warning


@dataclass(frozen=True)
class Own:
    """What a client has at the end: its machine's last state, what it computes, its rows, and its file of the prior."""

    client: hmc.Client | sfvi.Client
    site: Site | WithinSite
    rows: AreaRows
    file: OwnFile


@dataclass(frozen=True)
class Areas:
    """(m, d) draws of theta, and of the level (rate, probability, mean; without its exposure) in each area.

    Attributes
    ----------
    label : what the level is called
    threshold : above which it is high
    """

    theta: Array
    level: Array
    label: str
    threshold: float


def write(run: Run[Config], model: SigmaModel, own: Own) -> None:
    """areas.csv and areas.json in the client's own folder."""
    folder, client, file = run.hooks.folder, own.client, own.file
    if folder is None:
        return
    areas = drawn(model, own)
    folder.write_csv("areas.csv", table(own, areas), client=client.index)
    far = float(np.abs(areas.theta / np.sqrt(file.true_variance)).max())
    content: dict[str, Any] = {
        "client": file.name, "areas": file.d, "draws": len(areas.theta), "label": areas.label, "threshold": areas.threshold,
    }  # fmt: skip
    if far > BEYOND:
        content["warning"] = f"theta reaches {far:.0f} standard deviations of its prior: the decoder is far from its training"
    run.hooks.write_own(client.index, "areas.json", content)


def drawn(model: SigmaModel, own: Own) -> Areas:
    """Draws of what a client's areas have."""
    client, site, rows = own.client, own.site, own.rows
    if isinstance(client, hmc.Client):
        xi = client.trace["xi"].reshape(-1, site.n_global)
        u = client.trace["u"].reshape(len(xi), site.size)
    else:
        assert client.fitted is not None
        assert client.centre is not None
        block = client.settings.block(site.n_global)
        xi = global_draws(block, client.fitted, Drawing(model.config.job.seed, 1, DRAWS))[0]
        n = client.family.n_normals
        key = rng.key(model.config.job.seed, "posterior")
        eps = rng.normal(len(xi) * n, key=key, client=client.index).reshape(len(xi), n)
        u = np.array([client.family.sample(client.parameters, x, client.centre, e) for x, e in zip(xi, eps)])
    d = site.n_areas
    key = rng.key(model.config.job.seed, "posterior", 1)
    free = rng.normal(len(xi) * d, key=key, client=client.index).reshape(len(xi), d)
    if (
        isinstance(site, Site) and site.sampled and not isinstance(client, hmc.Client)
    ):  # areas without rows: theta has its prior about thetahat
        unseen = np.setdiff1d(np.arange(d), site.observed)
        u[:, site.decoder.n_local + unseen] = free[:, unseen]
    theta = site.theta_given(xi, u, free)
    parts = model.layout.parts
    counts = np.bincount(rows.area, minlength=d)
    mean_X = np.zeros((d, rows.X.shape[1]))
    np.add.at(mean_X, rows.area, rows.X)
    mean_X /= np.maximum(counts, 1)[:, np.newaxis]
    eta = xi[:, parts["beta"]] @ mean_X.T + model.layout.scale(xi)[:, np.newaxis] * theta
    if model.layout.intercept:
        eta += xi[:, parts["intercept"]]
    level = model.likelihood.mean(model.units.natural(eta))
    return Areas(theta, level, model.likelihood.record.level, model.config.output.threshold)


def table(own: Own, areas: Areas) -> dict[str, Sequence[Any]]:
    """The table, column by column: what was seen, theta, and the level with its interval and the probability that it is high."""
    rows, file, label = own.rows, own.file, areas.label
    d, observed = file.d, rows.observed
    names = list(file.areas) or [" ".join(f"{x:g}" for x in place) for place in _places(file)]
    seen = np.bincount(observed.area, minlength=d)
    total = np.bincount(observed.area, weights=observed.y, minlength=d)
    out: dict[str, Sequence[Any]] = {"area": names}
    for axis, place in zip(("x", "y"), _places(file).T):
        out[axis] = [f"{v:.10g}" for v in place]
    out["rows"] = seen.tolist()
    out["observed"] = [f"{value:g}" if n else "" for value, n in zip(total, seen)]
    if label == "rate":
        out["exposure"] = [f"{v:.10g}" for v in np.bincount(rows.area, weights=rows.exposure, minlength=d)]
    for name, values in (("theta", areas.theta), (label, areas.level)):
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        columns = {"mean": values.mean(axis=0), "sd": values.std(axis=0), "q05": low, "q95": high}
        out |= {f"{name}_{what}": [f"{v:.6g}" for v in column] for what, column in columns.items()}
    out[f"p_{label}_above_{areas.threshold:g}"] = [f"{v:.6g}" for v in (areas.level > areas.threshold).mean(axis=0)]
    return out


def _places(file: OwnFile) -> Array:
    """(d, p) grid points, or centres of areas; p = 0 where they are not known."""
    return np.zeros((file.d, 0)) if file.locations is None else file.locations
