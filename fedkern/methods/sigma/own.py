"""What only the client may see: the posterior of every area of its own, in a table and as draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.hmc import machine as hmc
from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import ClientFile
from ...jobs.hooks import RunHooks
from ...kernels import rng
from ...models.spatial.site import Site
from .model import SigmaModel
from .publish import global_draws
from .rows import AreaRows

Array = NDArray[np.float64]

DRAWS = 1000  # from a variational posterior
BEYOND = 50.0  # prior standard deviations of a decoder's output that are worth a warning


def write(model: SigmaModel, client: Any, site: Site, rows: AreaRows, file: ClientFile, hooks: RunHooks) -> None:
    """areas.csv and areas.json in the client's own folder."""
    if hooks.folder is None:
        return
    theta, level = draws(model, client, site, rows)
    label, threshold = model.likelihood.record.level, model.config.output.threshold
    hooks.folder.write_csv("areas.csv", areas(theta, level, rows, file, label, threshold), client=client.index)
    far = float(np.abs(theta / np.sqrt(file.true_variance)).max())
    content: dict[str, Any] = {
        "client": file.name, "areas": file.d, "draws": len(theta), "label": label, "threshold": threshold,
    }  # fmt: skip
    if far > BEYOND:
        content["warning"] = f"theta reaches {far:.0f} standard deviations of its prior: the decoder is far from its training"
    hooks.write_own(client.index, "areas.json", content)


def draws(model: SigmaModel, client: Any, site: Site, rows: AreaRows) -> tuple[Array, Array]:
    """(m, d) draws of theta, and of the rate (probability, mean) in each area, without its exposure."""
    if isinstance(client, hmc.Client):
        xi = client.trace["xi"].reshape(-1, site.n_global)
        u = client.trace["u"].reshape(len(xi), site.size)
    else:
        assert isinstance(client, sfvi.Client)
        assert client.fitted is not None
        assert client.centre is not None
        block = client.settings.block(site.n_global)
        xi = global_draws(model, block, client.fitted, 1, DRAWS)[0]
        n = client.family.n_normals
        key = rng.key(model.config.job.seed, "posterior")
        eps = rng.normal(len(xi) * n, key=key, client=client.index).reshape(len(xi), n)
        u = np.array([client.family.sample(client.parameters, x, client.centre, e) for x, e in zip(xi, eps)])
    d = site.decoder.size
    key = rng.key(model.config.job.seed, "posterior", 1)
    free = rng.normal(len(xi) * d, key=key, client=client.index).reshape(len(xi), d)
    if site.sampled and not isinstance(client, hmc.Client):  # areas without rows: theta has its prior about thetahat
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
    return theta, model.likelihood.mean(model.units.natural(eta))


def areas(theta: Array, level: Array, rows: AreaRows, file: ClientFile, label: str, threshold: float) -> dict[str, Sequence[Any]]:
    """The table, column by column: what was seen, theta, and the rate with its interval and the probability that it is high."""
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
    for name, values in (("theta", theta), (label, level)):
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        columns = {"mean": values.mean(axis=0), "sd": values.std(axis=0), "q05": low, "q95": high}
        out |= {f"{name}_{what}": [f"{v:.6g}" for v in column] for what, column in columns.items()}
    out[f"p_{label}_above_{threshold:g}"] = [f"{v:.6g}" for v in (level > threshold).mean(axis=0)]
    return out


def _places(file: ClientFile) -> Array:
    """(d, p) grid points, or centres of areas; p = 0 where they are not known."""
    return np.zeros((file.d, 0)) if file.locations is None else file.locations
