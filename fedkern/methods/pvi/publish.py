"""What the server of a partitioned job publishes: the posterior, the certificates, and what a reader should know of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algorithms.pvi import machine as pvi
from ...errors import JobError
from ...jobs import machine
from ...jobs.hooks import RunHooks
from ...models.expfam import Gaussian
from ...models.glm import Rows, metrics
from ...results.digest import digest
from ...results.gaussian import Posterior
from ...results.inference_data import write
from ...results.result import Result
from ...results.summary import Outcome, summary
from .model import Model

FAR = 10.0  # standard deviations of the prior


def result(model: Model, server: Any, test: Rows | None, certified: Mapping[str, Any], hooks: RunHooks) -> Result:
    """Everything that the server publishes, in the run's folder if there is one."""
    config, files = model.config, hooks.folder
    q = model.algorithm.released(server)
    posterior = Posterior(model.encoding.names, q, model.encoding.affine() if model.encoding.standardised else None)
    draws = config.output
    notes = [*hooks.notes, *_remarks(model, server, q)]
    if files is not None:
        try:
            write(posterior, files.path / "posterior.nc", seed=config.job.seed, chains=draws.chains, draws=draws.draws)
        except JobError as error:
            notes.append(f"no posterior.nc: {error}")
    outcome = Outcome(
        stop="updates" if server.stop == "budget" and not server.refused else server.stop,
        rounds=server.round,
        clients={name: {"updates": int(server.updates[k]), "status": _status(server, k)} for k, name in enumerate(model.names)},
        lost=hooks.gone,
        metrics={} if test is None else metrics(q, test, config.model.family, config.model.scale),
        privacy=certified,
        wire=hooks.wire.as_dict(),
        digest=digest(_arrays(server, q)),
        encoding=model.encoding.to_dict(),
        versions=machine.of_a_run(),
        notes=notes,
    )
    content = summary(config.job.method, posterior, outcome)
    if files is not None:
        files.write_json("summary.json", content)
    return Result(content, posterior, None if files is None else files.path, config.job.seed, draws.chains, draws.draws)


def _remarks(model: Model, server: Any, q: Gaussian) -> list[str]:
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


def _arrays(server: Any, q: Gaussian) -> dict[str, Any]:
    """What the digest is of: the released h and P, and where there are sites those too."""
    sites = {"site_h": server.site_h, "site_P": server.site_P} if isinstance(server, pvi.Server) else {}
    return {"h": q.h, "P": q.P, **sites}


def _status(server: Any, client: int) -> str:
    """What became of a client."""
    return "lost" if client in server.lost else "budget spent" if client in server.refused else "finished"
