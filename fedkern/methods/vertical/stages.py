"""Lists the exchanges of a vertical job, and makes the text of `fedkern check`: model, disclosure, and every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ...algorithms import soul
from ...algorithms.core import until
from ...algorithms.core.messages import Refused
from ...algorithms.exchanges import column_notes, intersection, missing, predictions, response
from ...algorithms.exchanges import rows as alignment
from ...algorithms.exchanges.answers import Certificate, Settled
from ...algorithms.exchanges.response import AuxiliarySd, Narrow
from ...algorithms.exchanges.sums import Incomplete
from ...algorithms.exchanges.verdicts import VerdictHeard
from ...algorithms.soul import Moved, Predicted, Slopes
from ...algorithms.split import machine as vertical
from ...algorithms.split.messages import BoundShare, LikelihoodShare, ZShare
from ...data.design import check_header
from ...data.faults import who
from ...jobs import incomplete, memory
from ...jobs.check import Check, OwnFile, Said
from ...jobs.said import Line
from ...jobs.stage import Stage
from ...plain import Record
from ...privacy.certificate import describe_trust
from ...privacy.plan import Plan
from . import budget, normal
from .common import as_compared, compared, in_common, intersected
from .keys import Config
from .model import FULL, VerticalModel
from .rows import (
    Reading,
    aligned,
    alignment_of,
    check_common,
    check_counts,
    check_declared,
    columns,
    held_out,
    needed,
    no_response,
    server_rows,
    spec_of,
    unknown,
)
from .undivided import KEPT, LEAST, MOST

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *intersection.PROTOCOL.to_server,
    *alignment.PROTOCOL.to_server,
    alignment.Places,
    *column_notes.PROTOCOL.to_server,
    Incomplete,
    *response.PROTOCOL.to_server,
    ZShare,
    LikelihoodShare,
    BoundShare,
    Predicted,
    Moved,
    Slopes,
    *until.UP,
    Settled,
    *predictions.protocol(with_z=True).to_server,
    *missing.PROTOCOL.to_server,
    *VerdictHeard.may_send,
    Refused,
    *Certificate.may_send,
)


# The facts about the response that can be computed from a rho that was worked out.
RHO_TELLS = {
    "log": "tells the mean of the response",
    "identity": "tells the variance of the response where model.scale is not given",
    "logit": "follows from their number, and a factor, which tells the mean of the response",
}


def opening(config: Config) -> list[Stage]:
    """Returns the exchanges before the model is known: which rows all have, and digests of the rows' ids."""
    return [*([intersected(config)] if config.data.most_ids else []), compared(config)]


def stages(model: VerticalModel) -> list[Stage]:
    """Returns the exchanges once all know which rows the job has."""
    responses = [responded(model)] if model.told_by_client else []
    notes = [Stage.of(column_notes)] if model.open else []
    spent = [] if model.open else [Stage.asking(Certificate)]
    bits = [tell_widths(model), Stage.asking(Settled)] if model.watched else []
    filled = [filled_in(model)] if by_columns(model) else []
    sd = [Stage(AuxiliarySd.protocol)] if model.works_out else []
    before = [*incomplete.stages(model.config), *responses, *notes, *sd]
    parts = [predicted(model)] if model.n_test else []
    return [*before, trained(model), *bits, *spent, *parts, *filled, Stage.asking(VerdictHeard)]


def tell_widths(model: VerticalModel) -> Stage:
    """Returns the stage that tells clients by how much sds are too small, and numbers that show whether their posterior is q."""
    n = model.n_rows if normal.is_asked(model) else 0
    return Stage(Narrow.protocol, {"n": n})


def responded(model: VerticalModel) -> Stage:
    """Returns the stage in which the first client that has the response tells it, for all rows."""
    return Stage(response.PROTOCOL, {"n": model.n_rows + model.n_test})


def trained(model: VerticalModel, agreed: Record | None = None) -> Stage:
    """Returns the stage of the rounds. `agreed`: where clients do not wait for one another, all that the server begins with."""
    if model.inference == "soul":
        return Stage(soul.protocol(model.soul), model.soul.dims(), rounds=model.soul.rounds, resumable=True)
    s, rounds = model.settings, model.rounds
    times = dict.fromkeys((*until.UP, *until.DOWN), until.looks(rounds)) | {vertical.Begin: 1}
    times[vertical.BoundShare] = -(-rounds // s.bound_every)
    protocol = vertical.protocol(s)
    legs = sum(kind in (ZShare, LikelihoodShare) for kind in protocol.to_server)  # of a round
    fixed = None if model.until_settled or s.lead else legs * rounds
    return Stage(protocol, s.dims(), rounds=rounds, resumable=True, times=times, trips=fixed, agreed=agreed)


def predicted(model: VerticalModel) -> Stage:
    """Returns the stage of the clients' parts at rows that are predicted."""
    with_z = bool(model.output.missing_party)
    return Stage(predictions.protocol(with_z), {"t": model.n_test, "n": model.n_rows}, trips=1)  # one reply has all


def by_columns(model: VerticalModel) -> bool:
    """Returns whether the parts of a missing party are regressed on the others' columns."""
    return model.n_test > 0 and model.output.missing_party == "columns"


def filled_in(model: VerticalModel) -> Stage:
    """Returns the stage in which each party's columns predict the others' parts."""
    sizes, passes = {"n": model.n_rows, "t": model.n_test, "others": len(model.names) - 1}, missing.most_passes(len(model.names))
    times = {missing.AskPart: 2, missing.Unexplained: passes, missing.Explained: passes}
    return Stage(missing.PROTOCOL, sizes, times=times)


def check_job(check: Check[Config]) -> Said | None:
    """Returns the text of `check`, at the server's place; None elsewhere.

    Headers are read at every party, then digests of ids are compared, so that the number of rows is known. No other cell of a
    client is used; the server's file is read as the run will read it.
    """
    rows = _counted(check)
    notes = check.notes(split=True)
    if rows is None:
        return None
    train, test = held_out(check.config, *rows)
    check_counts(check.config, len(train), len(rows[1]))
    model = VerticalModel(check.config, check.names, len(train), len(test) + len(rows[1]))
    lines = [*_lines(model), *incomplete.describe_missing(check.config), *_memory(check.config.algorithm.covariance), *notes]
    plans = {} if model.open else {"each client": budget.plan(model, "each", 1)}
    return Said(model, lines, plans=plans)


def look_through(file: OwnFile[Config]) -> None:
    """Raises JobError for anything else in this file that would end a run."""
    table, config = file.table, file.config
    rows, _ = aligned(table, config, "the file")
    if file.spec.covariates(table.names):
        columns(Reading(rows, config, file.path.stem), np.arange(table.n_rows))


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns the plan of one client's budget; None where the job takes nothing of it."""
    if not file.config.private:
        return None
    train, test = held_out(file.config, file.table.n_rows)
    model = VerticalModel(file.config, tuple(names), len(train), len(test))
    return budget.plan(model, client, len(file.spec.covariates(file.table.names)))


def _counted(check: Check[Config]) -> tuple[int, tuple[int, ...]] | None:
    """Returns, at the server, the number of rows and those without a response, once headers are right and ids agree."""
    config, names, by = check.config, check.names, alignment_of(check.config)
    # Refuse wrong headers before ids are compared, as the run does.
    held, clients, seed, counted, common = {}, {}, by.seed, by.counted, by.common
    check_declared(config, check.parties, check.mine)
    for k in check.mine:
        source, header = check.parties.header(k)
        spec = spec_of(config, response=by.shared, names=header)
        check_header(header, spec, source, names[k])
        needed(config, header, who(names[k], source))
        held[k] = aligned(check.parties.rows(k), config, f"client {names[k]!r}")
    table = check.parties.server() if check.place.is_server else None
    held, own = in_common(check, held, None if table is None else aligned(table, config, "data.server"), {})
    for k, (rows, ids) in held.items():
        has = by.response in rows.names
        labels = as_compared(config, ids)
        clients[k] = alignment.Client(names[k], labels, seed, has, counted=counted, common=common, placed=by.placed)
    server_ids, new = None, tuple[int, ...]()
    if own is not None:
        table, server_ids = own[0], as_compared(config, own[1])
        new = unknown(table, config)
        server_rows(table, config)
    start = partial(alignment.start, names, seed, server_ids, new, counted=counted, common=common)
    server, _ = check.exchange(compared(config), start, clients)
    if server is None:
        return None
    check_common(config, server.n_rows, {})
    if table is None and by.from_client and not server.holders:
        raise no_response(config)
    return int(server.n_rows), server.new


def _lines(model: VerticalModel) -> Iterator[str]:
    """Yields job, model, inference, and the numbers that are disclosed."""
    m, a = model.config.model, model.config.algorithm
    rounds = until.words(model.rounds) if model.until_settled else f"rounds = {model.rounds}"
    yield f"job      vertical, {m.kind}, {rounds}, seed {model.seed}"
    if model.network:
        yield f"model    {m.family}, split network {'-'.join(map(str, m.hidden))}-{m.features}, point estimates"
    else:
        intercept = "an intercept at the server" if m.intercept else "no intercept"
        rho = "rho worked out from the response" if model.works_out else f"rho {model.rho:g}"
        yield f"model    {m.family}, {m.augmentation} model, {rho}, {intercept}"
        covariance = f"full covariance up to {FULL} coefficients" if a.covariance == "auto" else f"{a.covariance} covariance"
        q = f"{a.auxiliary} auxiliary variables, {covariance}" if a.inference == "sfvi" else "Langevin, a mode of z"
        yield f"fit      {a.inference}: {q}, {a.optimiser}, learning rate {a.learning_rate:g}{a.said}"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield f"rows     {model.n_rows} train, {model.n_test} are predicted (kept for testing, or without a response)"
    users = "used at every client" if model.shared else "used at the server alone"
    yield f"response {model.response}, " + users
    if model.works_out:
        yield (
            f"rho      the server works it out so that a row keeps {KEPT:.0%} of its information ({LEAST:g} to {MOST:g}) and "
            "tells it before the first round"
        )
    elif not model.network:
        J = len(model.names)
        family = model.likelihood.record
        factor = f"{(J - 1) ** 2 / J:g}" if model.power else f"{J}"
        yield (
            f"information  of a row that is kept: v / (v + {factor} rho^2) = v / (v + {float(factor) * model.rho**2:.4g}), "
            f"v = {family.variance_words}"
        )
        if family.least_variance:
            yield f"             at least {family.least_variance / (family.least_variance + float(factor) * model.rho**2):.1%}"
    yield ""
    yield from _privacy(model)
    yield f"disclosure  {disclosure(model)}"
    if model.unpredicted is not None:
        yield Line("advice", model.unpredicted)


def _privacy(model: VerticalModel) -> Iterator[str]:
    """Yields the plan of each client's noise, or that none is claimed."""
    if model.open:
        yield "privacy  none is claimed: the job is federated, and rho is no protection (z is drawn anew in every round, so its"
        yield "         average shows the client's part of the predictor)"
        return
    plan = budget.plan(model, "each", 1)
    m = plan.mechanism
    epsilon = f"{plan.spent:.4g}" if m.secure else f"inf (secure: {plan.spent:.4g})"
    yield f"privacy  each client, for its own columns: epsilon {epsilon} after {plan.steps} releases, delta {plan.delta:g},"
    if plan.steps < (plan.planned or 0):
        yield f"         which is after {plan.paid} of {plan.updates} rounds: the budget ends the job"
    yield f"         noise {m.sigma:.4g} times the clip; neighbours: {m.neighbours}"
    yield f"         trusts {describe_trust(m)}"


def disclosure(model: VerticalModel) -> str:
    """Says in words which numbers the parties learn of each other (docs/spec/vertical.md, section 11)."""
    ids = "digests of row ids" if model.config.most_ids is None else "how many row ids any parties have in common, and no id"
    draw = "" if model.network else "a draw of "
    texts = [f"{ids}, {draw}each client's part of every training row's predictor in every round"]
    if model.told_by_client:
        texts.append(f"{model.response} of all rows from the first client that has it, once")
    if model.output.bound:
        often = "a round" if model.bound_every == 1 else f"in {model.bound_every} rounds"
        texts.append(f"each client's terms of the ELBO, one number {often}")
    if model.watched:
        normal_too = ", or have no normal posterior" if normal.is_asked(model) else ""
        normal_too += ", or are a text column's levels beside the intercept" if model.ties else ""
        texts.append(f"at the end one bit of each client, whether its own coefficients still move{normal_too}")
    if model.until_settled and (looks := until.looks(model.rounds)):
        texts.append(f"the same bit up to {looks} times before, for rounds end when all has settled")
    if model.n_test:
        texts.append("mean and variance of each client's part at the rows that are predicted, once")
    if by_columns(model):
        texts.append("each client's fitted part of every training row, and what its columns explain of the others' parts")
    down = "" if model.shared else f"; clients see slopes {model.likelihood.record.slope_words}"
    if model.open:
        down += "; each client can compute the sum of the others' parts of every row, of two clients the other's part"
    if model.watched:
        down += "; at the end each client is told, in one number, by how much its standard deviations are too small"
        down += ", and once more the means of all slopes" if normal.is_asked(model) else ""
    if model.works_out:
        down += f"; clients are told rho, which {RHO_TELLS[model.likelihood.record.link]}"
    if model.drops:
        down += (
            "; each client learns which of its rows are left out because another party, it is not said which, lacks a cell of "
            "them, or the whole row: an incomplete row looks like an absent one"
        )
    if by_columns(model):
        down += '; each client learns the others\' fitted part of every training row (output.missing_party = "columns")'
    return f"the server sees {', '.join(texts)}" + down


def _memory(covariance: str) -> Iterator[str]:
    """Yields the memory of full covariances by their size: only a client knows how many columns it has."""
    if covariance == "full":
        about = memory.size(memory.NUMBER * 8 * 1000**2)
        yield f"memory   each client: about {about} for every (1,000 coefficients)^2, for their covariances"
