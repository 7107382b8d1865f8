"""Exchanges the result of each client's rows alone, to compare it with that of all rows together: two stages against one.

Each client finds the mode of its own posterior, with the job's prior (docs/spec/likelihood.md, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...algorithms.core import once
from ...algorithms.exchanges.answers import SiteMode
from ...arrays import Array
from ...finding import Finding
from ...jobs.run import Run
from ...models import frailty, levels, survival
from ...models.mixed import Rows
from ...models.mixed.learnt import BesidePrior
from ...models.mixed.rows import find_mode
from ...models.survival_parametric import Lifetimes
from ...results import guard
from ...results.gaussian import label
from ...results.plain import Record
from .keys import Config
from .model import Model
from .publish import Checked
from .sampled_model import SampledModel
from .stages import stages_of_sites


class Alone(NamedTuple):
    """Holds a client's likelihood without an effect of the client, draws of the posterior, and nodes of the quadrature.

    With these it looks for its own mode.
    """

    rows: Rows | survival.Causes | frailty.Rows | Lifetimes | levels.Rows
    told: Array
    nodes: int


def exchange_modes(run: Run[Config], model: Model, owns: Mapping[int, Alone]) -> Checked:
    """Returns `sites` of summary.json and notes, at the server's place; nothing elsewhere, or where the job asks for none."""
    for stage in stages_of_sites(model):
        server = run.collect(stage, SiteMode, owns, lambda alone: find_own_mode(model, alone))
        if server is not None:
            return of_coefficients(model, server, run.names)
    return Checked()


def count_rows(model: SampledModel, names: Sequence[str], told: Mapping[int, Record]) -> Record:
    """Returns `site_counts` of summary.json, where the job asks for what each client's rows say alone, and `uncounted`.

    Parameters
    ----------
    told : client number -> its rows and events, as its sums for the checks of the model have told the server. A client with
        fewer rows or events than such sums are of has told zeros, and is left out, or `uncounted`
    """
    counts = {names[k]: count for k, count in sorted(told.items()) if any(count.values())}
    uncounted = sum(not count.get("rows", count.get("events")) for count in told.values())
    return {
        **({"uncounted": uncounted} if uncounted else {}),
        **({"site_counts": counts} if model.output.sites and counts else {}),
    }


def find_own_mode(model: Model, alone: Alone) -> SiteMode:
    """Returns a client's own coefficients as they are published, on both scales; NaN where it has no mode."""
    all_names, layout = list(model.layout.names), replace(model.layout, client=())
    # The layout lacks the client's effect: the search begins at the means of the unknowns that are left.
    start = alone.told.mean(axis=0)[[all_names.index(name) for name in layout.names]]
    rows = alone.rows if alone.rows.size == layout.size else BesidePrior(alone.rows, layout.size)
    at_mode = find_mode(rows, model.prior_of_a_client(layout), start, alone.nodes)
    if at_mode is None:
        none = np.full((2, model.n_of_a_site), np.nan)
        return SiteMode(0, none, none)
    xi, covariance = at_mode
    theta, standard = model.coefficients(xi[np.newaxis])
    R = model.coding.matrix
    inner = model.units.scale**2 * model.covariance_of_coefficients(xi, covariance)
    sds = [np.sqrt(np.diagonal(A @ inner @ A.T)) for A in (R if standard is None else R @ model.affine, R)]
    return SiteMode(0, np.stack([R @ theta[0], R @ (theta if standard is None else standard)[0]]), np.stack(sds))


def of_parameters(parameters: Sequence[str], server: once.Server[SiteMode], names: tuple[str, ...]) -> Checked:
    """Returns client -> name of a parameter -> its value at the client's mode, and its standard deviation there.

    Both are on the first of the two scales.
    """
    return _content([(parameter, 0, j) for j, parameter in enumerate(parameters)], server, names)


def of_coefficients(model: Model, server: once.Server[SiteMode], names: tuple[str, ...]) -> Checked:
    """Returns the same for coefficients, on both scales; a level's is called by what it is compared with."""
    named = [*enumerate(zip(model.published, model.coding.spoken))]
    shown = [
        (label(name, scale) if name == spoken else spoken, k, j)
        for k, scale in enumerate(("", "_std"))
        for j, (name, spoken) in named
    ]
    return _content(shown, server, names)


@guard.figure("what each client's rows say alone", Checked())
def _content(shown: Sequence[tuple[str, int, int]], server: once.Server[SiteMode], names: tuple[str, ...]) -> Checked:
    """The result; `shown`: name, scale (0 or 1) and place of each number."""
    out = dict.fromkeys(server.lost, "it was lost") | dict(server.dropped)
    content: dict[str, object] = {}
    for k, reply in sorted(server.replies.items()):
        if not reply.sd.all():
            out[k] = "it found no mode of its own"
            continue
        content[names[k]] = {name: {"mode": float(reply.mode[i, j]), "sd": float(reply.sd[i, j])} for name, i, j in shown}
    notes = [Finding.of("not-among-sites", client=names[k], why=why) for k, why in sorted(out.items())]
    return Checked({"sites": content} if content else {}, tuple(notes))
