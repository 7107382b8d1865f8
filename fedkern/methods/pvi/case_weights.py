"""Asks the clients of an open job with case weights for the sums of these, and says where they are none of rows.

Source: docs/concepts/convergence.md, "Weights that make many rows of each".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...algorithms.core import once
from ...algorithms.exchanges.sums import AskPearson, PearsonSums
from ...algorithms.pvi import machine as pvi
from ...errors import owned
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models.glm import Rows
from ...results import case_weights, guard
from ...results.verdict import Said
from .keys import Config
from .model import Model, Server


def stages(model: Model) -> list[Stage]:
    """Returns the stage after the rounds in which the sums are sent."""
    if model.privacy is not None or model.weight is None:
        return []
    return [Stage.asking(PearsonSums, {"d": model.encoding.size}, secure=model.secure)]


def exchange_weights(run: Run[Config], model: Model, server: Server | None, rows: Mapping[int, Rows]) -> None:
    """Asks the clients for the sums of their weights, and notes what is to be said of these."""
    question = None if server is None or server.lost else AskPearson(0, pvi.released(server).mean)
    clients = {k: once.Client(partial(_told, model, client_rows, k)) for k, client_rows in rows.items()}
    for stage in stages(model):
        answers, _ = run.ask(stage, PearsonSums.question, question, clients)
        if answers is not None and question is not None:
            report = _said(model, answers)
            run.hooks.notes += report.notes
            run.hooks.doubts += report.doubts


@guard.check("the case weights", lambda *_: Said())
def _said(model: Model, replies: once.Server[PearsonSums]) -> Said:
    """Compares the clients' weights; precisions of measurements are about 1 over all, not at each client."""
    weighed = {model.telling[k]: case_weights.Weighed(reply.rows, reply.weight) for k, reply in sorted(replies.replies.items())}
    counts = model.counted_weights is not None
    precisions = model.family == "gaussian" and not counts
    return case_weights.compare(str(model.weight), weighed, counts=counts, precisions=precisions)


def _told(model: Model, rows: Rows, client: int, question: AskPearson) -> PearsonSums:
    """Computes a client's sums at the mean that it was told."""
    if model.box is not None:
        model.box.check(question.mean, type(question).__name__)
    with owned(client):
        return PearsonSums.at(question.mean, rows, model.family, model.scale, masked=model.secure)
