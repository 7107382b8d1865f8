"""Says before any draw that counts vary more than Poisson's, by the clients' Pearson sums at the mode.

Source: docs/concepts/convergence.md, "Responses whose model is another". The draws then say it with their own errors (`varying`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...algorithms.core import once
from ...algorithms.core.rounds import in_order
from ...algorithms.exchanges.sums import AskPearson, PearsonSums
from ...algorithms.importance import machine as importance
from ...errors import owned
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...models import glm
from ...results import dispersion, guard
from . import varying
from .keys import Config
from .model import Model
from .rows import Held


def stages(model: Model) -> list[Stage]:
    """Returns the stage between the mode and the draws; none of models whose counts vary by their effects, or of no counts."""
    return [Stage.asking(PearsonSums, {"d": model.layout.size}, secure=model.secure)] if model.asks_dispersion else []


def say(run: Run[Config], model: Model, mode: importance.Server | None, rows: Mapping[int, Held]) -> None:
    """Asks the clients for their Pearson sums; where counts vary more it is the first note, and stands at the terminal now."""
    (stage,) = stages(model)
    question = None if mode is None else AskPearson(0, importance.read_result(mode).mode)
    clients = {k: once.Client(partial(_told, model, k, held)) for k, held in rows.items()}
    replies, _ = run.ask(stage, PearsonSums.question, question, clients)
    if replies is not None and (text := _describe(model, replies)):
        run.say_first(text)


@guard.figure("the dispersion at the mode", "")
def _describe(model: Model, replies: once.Server[PearsonSums]) -> str:
    """Returns the sentence; "" where counts vary as the model says, or the family is taken by evidence."""
    ratio = dispersion.pool(model.family, 1.0, in_order(replies.replies), model.layout.size)
    if ratio is None or not ratio.off or ratio.ratio < 1 or model.by_evidence:
        return ""
    of_clients = model.takes_client and not model.secure and varying.levels_differ_at_mode(replies.replies)
    first = varying.CLIENTS_FIRST if of_clients else "set "
    return f'{ratio.words}, at the mode: {ratio.narrow}; {first}model.family = "auto", which takes the family by evidence'


def _told(model: Model, client: int, rows: Held, question: AskPearson) -> PearsonSums:
    """Computes a client's Pearson sums at the mode that it was told."""
    if model.box is not None:
        model.box.check(question.mean, type(question).__name__)
    with owned(client):
        return PearsonSums.at(question.mean, glm.Rows(rows.X, rows.y, rows.offset), model.family, masked=model.secure)
