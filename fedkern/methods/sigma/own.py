"""Writes the files that only the client may see: the posterior of every area of its, in a table and as draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...algorithms.exchanges.sums import FitSums
from ...algorithms.hmc import machine as hmc
from ...algorithms.nested import machine as nested
from ...algorithms.sfvi import machine as sfvi
from ...arrays import Array
from ...data.artifact import OwnFile
from ...data.polygons import Polygons, geopackage
from ...jobs import convergence
from ...jobs.run import Run
from ...kernels import rng
from ...models.spatial import within_site
from ...models.spatial.site import Site
from ...models.spatial.within_site import WithinSite
from ...results import guard
from ...results.plain import Record
from ...results.released import Drawing
from . import borders, kept, periods
from .areas import Areas, names_of, table, unknown
from .fitness import Drawn
from .fitness import of as fitness_of
from .keys import Config
from .model import SigmaModel
from .publish import global_draws, said_of, told_of
from .rows import AreaRows

DRAWS = 1000  # from a variational posterior
SUPPRESSED = {
    True: "areas with a count that is an interval have no numbers of the posterior here, which can tell what was suppressed; "
    'output.suppressed = "show" writes them',
    False: "what is written of areas with a count that is an interval can tell what was suppressed: it is not for print",
}
GIVEN_THE_REST = {
    True: "draws of each area follow its own likelihood, given the other areas and the global unknowns (one sweep of quadrature)",
    False: "areas are normal given the global unknowns: with a Gaussian response that is exact",
}
NOISY = "observed counts have noise, and all numbers are computed of these: nothing here tells more than the noisy table does"
BEYOND = 50.0  # prior standard deviations of a decoder's output that are worth a warning


@dataclass(frozen=True)
class Own:
    """Holds a client's state at the end."""

    # client, site: its machine's last state, and its computation
    client: hmc.Client | sfvi.Client | nested.Client
    site: Site | WithinSite
    # rows, file: its rows, and its file of the prior
    rows: AreaRows
    file: OwnFile
    # verdict, figures: the server's verdict of the whole fit, and its figures of the unknowns that all share
    verdict: Record
    figures: Array | None
    shapes: Polygons | None = None  # its areas' borders, where the job has them


def write(run: Run[Config], model: SigmaModel, record: Own) -> FitSums | None:
    """Writes the client's files, headed by the server's verdict, and returns its sums where the job asks.

    The files are areas.csv, areas.json, fit.json and perhaps area_periods.csv, areas.geojson and areas.gpkg.
    """
    folder, client, file = run.hooks.folder, record.client, record.file
    summed = model.output.fit
    if folder is None and not summed:
        return None
    areas, drawn = of_areas(model, record)
    suppressed, hidden = int(record.rows.observed.censored.sum()), model.output.suppressed == "hide"
    fitness = fitness_of(record.site, drawn, file.pairs, model.units.scale)
    concealed = unknown(record.rows, file.d) if hidden else np.zeros(file.d, bool)
    if concealed.any():
        fitness = fitness.without(concealed)
    sums = fitness.sums if summed else None
    if sums is not None and record.rows.unread:  # how many areas have a count is public, and which line can be read is not
        sums = replace(sums, areas=sums.areas + len(record.rows.unread))
    if folder is None:
        return sums
    heading = {"converged": [record.verdict["converged"]] * file.d}
    columns = {**heading, **table(file, record.rows, areas, fitness.columns, hidden=hidden)}
    folder.write_csv("areas.csv", columns, client=client.index)
    if model.periods:
        pairs = periods.of_pairs(model, file, record.rows, areas, drawn, hidden=hidden)
        if pairs is not None:
            pairs = {"converged": [record.verdict["converged"]] * len(pairs["area"]), **pairs}
            folder.write_csv("area_periods.csv", pairs, client=client.index)
    drawn_areas, packed = _drawn(model, record, columns)
    if drawn_areas is not None:
        folder.write_json("areas.geojson", drawn_areas, client=client.index)
    if packed is not None:
        folder.write(folder.home(client.index) / "areas.gpkg", packed, secret=True)
    far = float(np.abs(areas.theta / np.sqrt(file.true_variance)).max())
    parameters = said_of(model, drawn.xi) if record.figures is None else told_of(model, record.figures)
    content: dict[str, object] = {
        **record.verdict, "client": file.name, "areas": file.d, "draws": len(areas.theta), "label": areas.label,
        "threshold": areas.threshold.value, "threshold_is": areas.threshold.name,
        "prior": file.common.kind, "parameters": parameters,
    }  # fmt: skip
    if isinstance(record.site, WithinSite) and record.site.integrated:
        content["given_the_rest"] = GIVEN_THE_REST[record.site.tilted]
    if suppressed:
        content["suppressed"] = suppressed
        content["note"] = SUPPRESSED[hidden]
    if model.privacy is not None:
        content["note"] = NOISY
    if record.rows.unread:
        content["unread"] = [names_of(file)[i] for i in record.rows.unread]
    if far > BEYOND:
        content["warning"] = f"theta reaches {far:.0f} standard deviations of its prior: the decoder is far from its training"
    if isinstance(client, sfvi.Client) and (unknowns := _unknowns(record)):
        content["own"] = convergence.own(client, unknowns).content
    if file.areas:
        kept.write(folder, model, client.index, file, areas.without(concealed), drawn.xi, record.verdict)
    run.hooks.write_own(client.index, "areas.json", content)
    run.hooks.write_own(client.index, "fit.json", {**record.verdict, **fitness.content})
    return sums


@guard.figure("areas with their borders", (None, None))
def _drawn(model: SigmaModel, record: Own, columns: Mapping[str, Sequence[Any]]) -> tuple[Record | None, bytes | None]:
    """Returns the contents of areas.geojson and areas.gpkg, as far as the job has them."""
    if record.shapes is None:
        return None, None
    areas = borders.collection(record.shapes, columns)
    if model.output.polygons == "gpkg":
        return areas, geopackage(areas)
    return areas, None


def _unknowns(record: Own) -> list[str]:
    """Returns the names of unknowns that only the client fits: its latents, and where theta is fitted too, areas with rows."""
    if isinstance(record.site, WithinSite):
        return [f"area {name}" for name in names_of(record.file)][: record.site.size]
    latents = [f"latent {i + 1}" for i in range(record.site.decoder.n_local)]
    if record.site.sampled:
        return latents + [f"area {names_of(record.file)[i]}" for i in record.site.observed]
    return latents


def of_areas(model: SigmaModel, record: Own) -> tuple[Areas, Drawn]:
    """Draws a client's areas, and all unknowns from which they are made."""
    client, site, rows = record.client, record.site, record.rows
    if isinstance(client, hmc.Client):
        xi = client.trace["xi"].reshape(-1, site.n_global)
        u = client.trace["u"].reshape(len(xi), site.size)
    elif isinstance(client, nested.Client):
        assert client.told is not None
        xi, u = client.told, np.zeros((len(client.told), 0))
    else:
        assert client.fitted is not None
        assert client.centre is not None
        assert client.ridge is not None
        xi = global_draws(model, client.fitted, client.ridge, Drawing(model.seed, 1, DRAWS))[0]
        if model.box is not None:
            xi = model.box.nearest(xi)
        n = client.family.n_normals
        key = rng.key(model.seed, "posterior")
        eps = _normals(key, client.index, len(xi), n)
        u = np.array([client.family.sample(client.parameters, x, client.centre, e) for x, e in zip(xi, eps)])
    d = site.n_areas
    key = rng.key(model.seed, "posterior", 1)
    free = _normals(key, client.index, len(xi), d)
    # areas without rows: theta has its prior about thetahat
    if isinstance(site, Site) and site.sampled and not isinstance(client, hmc.Client):
        unseen = np.setdiff1d(np.arange(d), site.observed)
        u[:, site.decoder.n_local + unseen] = free[:, unseen]
    if isinstance(site, WithinSite):
        theta = site.theta_given(xi, u, free, _uniforms(model, client.index, (within_site.SWEEPS, len(xi), d), site.tilted))
    else:
        theta = site.theta_given(xi, u, free)
    parts, units = model.layout.parts, model.units
    counts = np.bincount(rows.area, minlength=d)
    mean_X = np.zeros((d, rows.X.shape[1]))
    np.add.at(mean_X, rows.area, rows.X)
    mean_X /= np.maximum(counts, 1)[:, np.newaxis]
    fixed = xi[:, parts["beta"]] @ mean_X.T
    if model.layout.intercept:
        fixed += xi[:, parts["intercept"]]
    spatial = units.scale * model.layout.scale(xi)[:, np.newaxis] * theta
    key = rng.key(model.seed, "posterior", 2)
    normals = rng.normal(len(xi) * d, key=key, client=client.index).reshape(len(xi), d)
    return Areas(theta, units.natural(fixed), spatial, model.likelihood, model.threshold), Drawn(xi, u, theta, normals)


def _uniforms(model: SigmaModel, client: int, shape: tuple[int, int, int], wanted: bool) -> Array | None:
    """Returns (s, m, d) uniforms of the sweeps that draw areas anew; None where there are none.

    In each m-th part of the range an area has one of them.
    """
    if not wanted:
        return None
    u = rng.uniform(int(np.prod(shape)), key=rng.key(model.seed, "posterior", 3), client=client).reshape(shape)
    return np.asarray((np.argsort(np.argsort(u, axis=1), axis=1) + 0.5) / shape[1])


def _normals(key: int, client: int, m: int, n: int) -> Array:
    """Returns (m, n) standard normals whose mean over the m draws is exactly 0, so that areas' means have little sampling
    error."""
    z = rng.normal(m * n, key=key, client=client).reshape(m, n)
    return np.asarray(z - z.mean(axis=0))
