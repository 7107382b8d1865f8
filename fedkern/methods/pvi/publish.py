"""What the server of a partitioned job publishes: the posterior, what became of each client, and notes for a reader of it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...algorithms.pvi import machine as pvi
from ...jobs.publish import Fit
from ...models.expfam import Gaussian
from ...models.glm import Rows, metrics
from ...results.gaussian import Posterior
from ...results.verdict import not_judged
from .model import Model, Server

FAR = 10.0  # standard deviations of the prior


def fit(model: Model, server: Server, test: Rows | None) -> Fit:
    """What the server has at the end, but for the certificates."""
    config, encoding = model.config, model.encoding
    q = pvi.released(server)
    return Fit(
        posterior=Posterior(encoding.names, q, encoding.affine() if encoding.standardised else None),
        arrays=_arrays(server, q),
        stop="updates" if server.stop == "budget" and not server.refused else str(server.stop),
        rounds=server.round,
        verdict=not_judged("variational"),
        clients={name: {"updates": int(server.updates[k]), "status": _status(server, k)} for k, name in enumerate(model.names)},
        chains=config.output.chains,
        draws=config.output.draws,
        encoding=encoding.to_dict(),
        metrics={} if test is None else metrics(q, test, config.model.family, config.model.scale),
        notes=_remarks(model, server, q),
    )


def _remarks(model: Model, server: Server, q: Gaussian) -> list[str]:
    """What a reader of the result should know of it: clients that are not in it, and coefficients at which the prior pulls."""
    without = [name for k, name in enumerate(model.names) if k in server.refused and not server.updates[k]]
    notes = [f"{', '.join(without)}: not in the result, for no update of theirs fits their budgets"] if without else []
    if model.privacy is not None:  # there noise alone can carry them away
        return notes
    precision = model.config.model.prior_precision
    away = np.abs(q.mean) * math.sqrt(precision)
    if far := [f"{name} ({by:.3g})" for name, by in zip(model.encoding.names, away) if by > FAR]:
        notes.append(
            f"so many standard deviations of their prior from zero: {', '.join(far)}. The prior pulls at them; lower "
            f"model.prior_precision = {precision:g}, or give the columns or the response in larger units"
        )
    return notes


def _arrays(server: Server, q: Gaussian) -> dict[str, NDArray[np.float64]]:
    """What the digest is of: the released h and P, and where there are sites those too."""
    sites = {"site_h": server.site_h, "site_P": server.site_P} if isinstance(server, pvi.Server) else {}
    return {"h": q.h, "P": q.P, **sites}


def _status(server: Server, client: int) -> str:
    """What became of a client."""
    return "lost" if client in server.lost else "budget spent" if client in server.refused else "finished"
