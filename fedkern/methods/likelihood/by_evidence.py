"""Takes the family of counts by evidence: all rounds are run of each, on the same rows, and the job goes on with one.

Log evidences are those of the draws, so that their difference is exact but for its standard error. It depends on the priors: each
family has its own default ones, and evidences are compared beside the widest of these.
Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scipy.special import logsumexp

from ...algorithms.core import once
from ...algorithms.exchanges.answers import FamilyHeard, TellFamily, family_heard
from ...algorithms.importance import machine as importance
from ...jobs.run import Run
from ...jobs.stage import Stage
from ...results.plain import Record
from .keys import COUNTS, Config
from .model import Model
from .sampled_model import SampledModel
from .steps import Read

STAGE = Stage.asking(FamilyHeard)


class Drawn(NamedTuple):
    """Holds rows under one family, and the last states of server and clients after its rounds of draws."""

    read: Read
    server: importance.Server | None
    clients: Mapping[int, importance.Client]


def others(model: SampledModel) -> list[Model]:
    """Returns the models that a job tries beside its own; none where it names its family."""
    if not isinstance(model, Model) or not model.by_evidence:
        return []
    by_default = replace(model, widened=None)  # its default prior is none that another family's rows ask for
    return [by_default.with_family(name) for name in COUNTS if name != model.family]


def of_model(run: Run[Config], read: Read, model: Model) -> Read:
    """Returns the same rows under another model of them."""
    return read._replace(model=model, likelihoods={k: model.likelihood(rows, run.threads) for k, rows in read.rows.items()})


def evidence_at(server: importance.Server, number: int) -> tuple[float, float] | None:
    """Returns the log evidence beside one of the job's priors, whichever the draws have, and its standard error."""
    found = importance.read_result(server)
    if found.log_evidence is None or found.posterior is None or number == server.widened:
        return found.log_evidence
    priors, posterior = server.priors.each, found.posterior
    change = priors[number].values(posterior.draws) - priors[server.widened].values(posterior.draws)
    return found.log_evidence[0] + float(logsumexp(change, b=posterior.weights)), found.log_evidence[1]


def choose(run: Run[Config], tried: list[Drawn]) -> Drawn:
    """Tells all clients which family has the highest evidence; returns that one, with `families` and `chosen` of summary.json."""
    choice, content = None, dict[str, Record]()
    widest = max(drawn.server.widened for drawn in tried if drawn.server is not None) if run.place.is_server else 0
    for drawn in tried:
        if drawn.server is not None and (evidence := evidence_at(drawn.server, widest)) is not None:
            content[drawn.read.model.family] = dict(zip(("log_evidence", "error"), evidence))
    if run.place.is_server:
        values = [content[drawn.read.model.family]["log_evidence"] for drawn in tried]
        choice = TellFamily(0, values.index(max(values)))
    clients = {k: once.Client(partial(family_heard, tried=len(tried))) for k in tried[0].clients}
    _, heard = run.ask(STAGE, FamilyHeard.question, choice, clients)
    answer = choice or next(client.asked for client in heard.values())
    assert answer is not None
    chosen = tried[answer.number]
    if chosen.read.model.secure:
        run.know_alike(chosen.read.model.family.encode())
    job = {"model": {"family": chosen.read.model.family, "by_evidence": False}}  # as a job that names the family has it
    more: Record = {"families": content, "chosen": job} if content else {}
    return chosen._replace(read=chosen.read._replace(content={**chosen.read.content, **more}))
