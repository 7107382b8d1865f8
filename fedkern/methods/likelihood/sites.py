"""What each client's rows say alone, beside what they say together: one stage against two.

Each client finds the mode of its own posterior, with the job's prior (docs/methods/likelihood.md, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.exchanges import site_modes
from ...jobs.run import Run
from ...models import survival
from ...models.mixed import Rows, mode
from ...models.survival_parametric import Lifetimes, Walk
from ...results.gaussian import label
from .keys import Config
from .model import Model
from .own import answers
from .stages import own_modes

Array = NDArray[np.float64]


class Alone(NamedTuple):
    """What a client's own mode is looked for with: its likelihood without an effect of the client, draws of the posterior, and
    nodes of the quadrature."""

    rows: Rows | survival.Rows | Lifetimes
    told: Array
    nodes: int


def exchanged(
    run: Run[Config], model: Model, owns: Mapping[int, Alone], *, at_server: bool
) -> tuple[dict[str, object], list[str]]:
    """`sites` of summary.json and notes, at the server's place; nothing elsewhere, or where the job does not ask for it."""
    for stage in own_modes(model):
        asked = site_modes.AskSiteMode(0) if at_server else None
        server = answers(run, stage, site_modes.QUESTION, asked, owns, lambda own: told(model, own))
        if server is not None:
            return _content(model, server, run.names)
    return {}, []


def told(model: Model, own: Alone) -> site_modes.SiteMode:
    """A client's own coefficients on the data's scale, and of standardised columns."""
    rows = own.rows
    all_names, whole = list(model.layout.names), model.prior_of(rows.layout)
    prior = whole.held if isinstance(whole, Walk) else whole
    start = own.told.mean(axis=0)[[all_names.index(name) for name in rows.layout.names]]
    p = model.layout.p
    found = mode.found(rows, prior, start, own.nodes)
    if found is None:
        return site_modes.told(np.full((2, p), np.nan), np.full((2, p), np.nan))
    xi, covariance = found
    theta, standard = model.coefficients(xi[np.newaxis])
    A = model.units.scale * (model.encoding.affine() if standard is not None else np.eye(p))
    inner = covariance[:p, :p]
    if model.family == "weibull":  # on the data's scale of time the intercept is also of the shape
        J = np.eye(p, len(xi))
        J[0, -1] = -model.log_unit * np.exp(xi[-1])
        inner = J @ covariance @ J.T
    sds = [np.sqrt(np.diagonal(A @ inner @ A.T)), model.units.scale * np.sqrt(np.diagonal(inner))]
    return site_modes.told(np.stack([theta[0], (theta if standard is None else standard)[0]]), np.stack(sds))


def _content(
    model: Model, server: once.Server[site_modes.SiteMode], names: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """Client -> name of a coefficient, as in `parameters` -> where its posterior is largest, and the standard deviation there."""
    out = dict.fromkeys(server.lost, "it was lost") | dict(server.dropped)
    content: dict[str, object] = {}
    for k, one in sorted(server.replies.items()):
        if not one.sd.all():
            out[k] = "it found no mode of its own"
            continue
        content[names[k]] = {
            label(name, scale): {"mode": float(mode), "sd": float(sd)}
            for scale, modes, sds in zip(("", "_std"), one.mode, one.sd)
            for name, mode, sd in zip(model.encoding.names, modes, sds)
        }
    notes = [f"client {names[k]!r} is not among the sites, for {why}" for k, why in sorted(out.items())]
    return ({"sites": content} if content else {}), notes
