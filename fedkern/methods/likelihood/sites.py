"""What each client's rows say alone, beside what they say together: one stage against two.

Each client finds the mode of its own posterior, with the job's prior (docs/methods/likelihood.md, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import once
from ...algorithms.exchanges import site_modes
from ...jobs.run import Run
from ...models import levels, survival
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

    rows: Rows | survival.Rows | Lifetimes | levels.Rows
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
            return of_coefficients(model, server, run.names)
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
        return site_modes.make_reply(np.full((2, p), np.nan), np.full((2, p), np.nan))
    xi, covariance = found
    theta, standard = model.coefficients(xi[np.newaxis])
    A = model.units.scale * (model.affine if standard is not None else np.eye(p))
    inner = covariance[:p, :p]
    if model.family == "weibull":  # on the data's scale of time the intercept is also of the shape
        J = np.eye(p, len(xi))
        J[0, -1] = -model.log_unit * np.exp(xi[-1])
        inner = J @ covariance @ J.T
    sds = [np.sqrt(np.diagonal(A @ inner @ A.T)), model.units.scale * np.sqrt(np.diagonal(inner))]
    return site_modes.make_reply(np.stack([theta[0], (theta if standard is None else standard)[0]]), np.stack(sds))


def of_parameters(
    parameters: Sequence[str], server: once.Server[site_modes.SiteMode], names: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """Client -> name of a parameter -> where its posterior is largest, and the standard deviation there, on the first of the two
    scales."""
    return _content([(parameter, 0, j) for j, parameter in enumerate(parameters)], server, names)


def of_coefficients(
    model: Model, server: once.Server[site_modes.SiteMode], names: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """The same of coefficients, on both scales."""
    scales = enumerate(("", "_std"))
    return _content(
        [(label(n, scale), k, j) for k, scale in scales for j, n in enumerate(model.layout.coefficients)], server, names
    )


def _content(
    shown: Sequence[tuple[str, int, int]], server: once.Server[site_modes.SiteMode], names: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """Of what is shown: its name, its scale (0 or 1) and where it stands."""
    out = dict.fromkeys(server.lost, "it was lost") | dict(server.dropped)
    content: dict[str, object] = {}
    for k, one in sorted(server.replies.items()):
        if not one.sd.all():
            out[k] = "it found no mode of its own"
            continue
        content[names[k]] = {name: {"mode": float(one.mode[i, j]), "sd": float(one.sd[i, j])} for name, i, j in shown}
    notes = [f"client {names[k]!r} is not among the sites, for {why}" for k, why in sorted(out.items())]
    return ({"sites": content} if content else {}), notes
