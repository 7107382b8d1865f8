"""Lists the exchanges of a sparse job, and makes the text of `fedkern check`: the model, and every message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ...algorithms.core.exchange import LEAST
from ...algorithms.exchanges import column_notes
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import scales as scaling
from ...algorithms.exchanges.answers import SiteFit
from ...algorithms.exchanges.scales import ColumnMeans, ColumnValues
from ...algorithms.exchanges.sums import Counts, ErrorShape, LooSums
from ...algorithms.exchanges.verdicts import VerdictHeard
from ...algorithms.gibbs import machine as gibbs
from ...algorithms.gibbs import pooled as gibbs_pooled
from ...algorithms.gibbs.settings import MOVES, SUMS, Globals, GlobalsMoved, Locals, Loglik, Sums, expected
from ...data.design import describe
from ...disclosure import describe as described
from ...jobs import joining, memory, secure
from ...jobs.check import Check, OwnFile, Said
from ...jobs.said import Line
from ...jobs.stage import Stage
from ...models.sparse import relative
from ...privacy.plan import Plan
from . import moving
from .keys import Config, ModelSection
from .model import OTHER_PRIORS, SparseModel

LEFT_OUT = "without one of the clients (output.leave_one_out)"
STREAMED = 500, 120  # numbers for each chain and coefficient of a graph, at the server and at a client: what its streams keep
# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *joining.MAY_SEND,
    *column_notes.PROTOCOL.to_server,
    *ColumnValues.may_send,
    *scaling.protocol(second=True).to_server,
    *scaling.imputing_protocol(known=True).to_server,
    *ColumnMeans.protocol.to_server,
    *SiteFit.may_send,
    Locals,
    Sums,
    *secure.MAY_SEND,
    *(sums.masked for sums in SUMS),
    *MOVES,
    Loglik,
    *gibbs_pooled.PROTOCOL.to_server,
    *LooSums.may_send,
    *Counts.may_send,
    *ErrorShape.may_send,
    *VerdictHeard.may_send,
)


def opening(config: Config) -> list[Stage]:
    """Returns the exchange before the model is known, in which parties agree on columns."""
    return [Stage.of(agreement)]


def stages(model: SparseModel) -> list[Stage]:
    """Returns the exchanges once the columns are agreed."""
    scales = [scaled(model)] if model.exchanges_scales else []
    fits = [fitted(model)] if model.output.site_fits else []
    counted = [Stage.asking(Counts)] if not (model.pooled or model.secure) else []
    sums = [left_out(model)] if model.output.loo else []
    shape = [shaped(model)] if model.kind == "sem" else []
    means = [located(model)] if model.measured.size else []
    after = [*sums, *counted, *shape, Stage.asking(VerdictHeard)]
    return [Stage.of(column_notes), valued(model), *scales, *means, *fits, sampled(model), *after]


def left_out(model: SparseModel) -> Stage:
    """Returns the stage in which clients tell sums of their rows' leave-one-out densities."""
    return Stage.asking(LooSums, secure=model.secure)


def valued(model: SparseModel) -> Stage:
    """Returns the stage in which clients tell how many different values their columns have."""
    return Stage.asking(ColumnValues, {"w": len(model.scaled)})


def shaped(model: SparseModel) -> Stage:
    """Returns the stage in which clients tell the shape of the residuals of structural equations."""
    return Stage.asking(ErrorShape, {"w": len(model.nodes)}, secure=model.secure)


def scaled(model: SparseModel) -> Stage:
    """Returns the stage in which the scales of the columns over all clients are found, with their common moments."""
    known = model.scale != "pooled"
    protocol = scaling.imputing_protocol(known=known) if model.imputes else scaling.protocol(second=model.second_moments)
    again = _further_runs(model).get(LEFT_OUT, 0)
    return Stage(protocol, {"w": len(model.scaled)}, runs=1 + again)


def located(model: SparseModel) -> Stage:
    """Returns the stage in which clients tell the centres of their columns."""
    return Stage.asking(ColumnMeans, {"u": len(model.measured)})


def fitted(model: SparseModel) -> Stage:
    """Returns the stage in which clients tell their least-squares fits."""
    return Stage.asking(SiteFit, {"w": model.coefficients.size})


def sampled(model: SparseModel) -> Stage:
    """Returns the stage of the sampler: with the clients, or at the server alone."""
    settings = model.settings
    runs = 1 + sum(_further_runs(model).values())
    if model.pooled:
        pooled = gibbs_pooled.PROTOCOL
        once = dict.fromkeys((*pooled.to_client, *pooled.to_server), 1)
        return Stage(pooled, settings.dims(), settings.rounds, times=once, runs=runs)
    in_all = runs
    runs -= model.output.leave_one_out and len(model.names) > 1  # of which one is without this client
    protocol, rounds = gibbs.protocol(settings), settings.rounds * _starts(model)
    often = Counter[str]()
    for move, count in settings.often(rounds).items():
        often.update(dict.fromkeys(expected(settings, move), count))
    times = {kind: often[kind.__name__] for kind in protocol.to_server}
    times |= {Globals: 1, GlobalsMoved: rounds - 1} if settings.moves else dict.fromkeys(protocol.to_client, rounds)
    stage = Stage(
        protocol, settings.dims(), settings.rounds, resumable=True, times=times, runs=runs, trips=settings.rounds * in_all
    )
    return stage.with_sums(SUMS, secure=model.secure)


def check_job(check: Check[Config]) -> Said | None:
    """Returns the text of `check`, at the server's place; None elsewhere."""
    encoding = check.agreed()
    notes = check.notes()
    if encoding is None:
        return None
    model = SparseModel(check.config, check.names, relative(encoding))
    unknown = [] if model.is_graph or check.config.data.builtin else check.unknown(encoding)
    sums = [*secure.describe(check.place, check.names, units=True)] if model.secure else []
    lines = [*_lines(model), *sums, *memory.describe_memory(*_memory(model)), *notes]
    load = model.load if check.config.job.device == "cuda" else None
    return Said(model, lines, unknown, load=load)


def look_through(file: OwnFile[Config]) -> None:
    """Raises JobError for anything else in this file that would end a run."""
    describe(file.table, file.spec)


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns None: no job of this method has a budget."""
    return None


def _lines(model: SparseModel) -> Iterator[str]:
    """Yields job, model, sampler, and the numbers that are disclosed."""
    config, s = model.config, model.settings
    m, a = config.model, config.algorithm
    yield f"job      sparse, {m.kind}, rounds = {model.rounds} ({a.burn_in} of them burn-in), seed {model.seed}"
    spike = f"spike sd {m.negligible / 2:g}" if m.negligible else f"c0 {s.prior.c0:g} (of variances)"
    slab = f", slab {m.slab:g}" if np.isfinite(s.prior.slab) else ""
    yield f"model    {m.family}, {spike}, eta {m.eta}, scale {m.scale}{_centre(m)}{slab}"
    if model.is_student:
        yield f"errors   Student's t with {model.degrees:g} degrees of freedom: rows have weights, which no client sends"
    yield f"sampler  {s.chains} chains, {s.local_sweeps} local and {s.server_sweeps} server sweeps a round"
    moves = f"moves: {model.moves.words(model.size)}" if s.moves or s.exchange else "no moves"
    yield f"         {s.scales} scales, {s.order} sweep, {moves}"
    if (most := _starts(model)) > 1:
        yield f"         begins anew without a client that is lost (on_loss): at most {most * s.rounds} rounds in all"
    if again := _further_runs(model):
        words = " and ".join(f"{times} times {why}" for why, times in again.items())
        yield f"         runs again {words}, with all its messages"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    response = "" if model.is_graph else f"; response {model.encoding.response}"
    yield f"columns  {_coefficients(model)} coefficients{response}"
    width = len(model.nodes) if model.is_graph else model.coefficients.size
    yield from described.rotation(config.requirement, width)
    yield ""
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield f"disclosure  {disclosure(model)}"
    if (advice := model.advice) is not None:
        yield Line("advice", advice)


def _centre(model: ModelSection) -> str:
    """Says where columns are centred, if it is not at their means."""
    if not model.intercept:
        return ", no intercept"
    if model.centre == "sample":
        return ", locations drawn at clients"
    return ""


def _starts(model: SparseModel) -> int:
    """Returns how often the sampler begins at most: anew after each loss that leaves a client."""
    return len(model.names) if model.settings.on_loss == "drop" else 1


def _further_runs(model: SparseModel) -> dict[str, int]:
    """Returns reason -> number of the sampler's further runs."""
    output, n = model.output, len(model.names)
    runs = {"under other priors (output.sensitivity)": len(OTHER_PRIORS)} if output.sensitivity else {}
    if output.leave_one_out and n > 1:
        runs[LEFT_OUT] = n
    return runs


def _coefficients(model: SparseModel) -> int:
    """Returns the number of coefficients, without making a graph's names: these may be more than memory holds."""
    return len(model.nodes) * (len(model.nodes) - 1) if model.is_graph else len(model.effects)


def disclosure(model: SparseModel) -> str:
    """Says in words which numbers of a client the others learn (docs/spec/sparse.md, section 5)."""
    a = model.config.algorithm
    if a.statistics == "pooled":
        times = 1 + sum(_further_runs(model).values())
        text = "every client's sufficient statistics (Gram matrix, X'y, y'y, number of rows) go to the server, "
        text += "once" if times == 1 else f"{times} times, once for each run of the sampler"
    elif model.secure:
        text = "sums over all clients of their deviations and scales, three or four a coefficient and round, go to the server, "
        text += "made with random numbers that no other party has; a server that chooses what it asks can tell the clients' "
        text += "coefficients apart by them, but not whose they are"
    elif a.aggregate == "sums":
        text = (
            "sums of a client's deviations and scales (which tell both), three or four a coefficient and round, go to the server"
        )
    else:
        text = "draws of every client's coefficients in every round go to the server"
        if model.secret:
            text += ", made with random numbers that no other party has"
        else:
            text += ", which can make the same random numbers (job.seed): "
            text += "each is a function of its rows" if model.config.draws_rows else "they tell X'X and X'y"
        if a.tempering > 1:
            text += "; the log-likelihood at each draw, which tells this client's rows about their means, up to the sign of each"
        if a.moves:
            text += f"; with moves also {moving.sentence(model.config.model)}"
    if model.imputes:
        text += "; covariances of every two columns, completed by EM, how many rows have both, and how many lack a value, once "
        text += "(what is drawn for missing cells stays at the client)"
    elif model.scale == "pooled":
        moments = "cross-products of every two columns about their means" if model.second_moments else "every column's variance"
        moments += " (of the response its scale by Student's t)" if model.is_student else ""
        text += f"; {moments} and the numbers of rows, once"
    if model.exchanges_scales and _further_runs(model).get(LEFT_OUT):
        what = "scales and the pooled second moments" if model.second_moments else "scales"
        text += f"; all clients are told the {what} without each of them, from which one client's own can be bounded"
    if model.measured.size:
        text += "; of every column with 20 values or more its mean, to a quarter of its standard deviation, once"
    text += "; whether each column has one value, two or more, once"
    if a.statistics == "local" and not model.secure:
        text += "; how often every client clipped a scale, had no Cholesky factor, and drew in data space, once"
    if model.kind == "sem":
        whose, its = ("all clients'", "the") if model.secure else ("a client's", "its")
        text += f"; of every equation the mean size of {whose} residuals over their root mean square, "
        text += f"and {its} number of rows, once"
    if model.output.site_fits:
        text += "; least-squares estimates of every client and their errors, once"
    if model.output.loo:
        text += f"; sums over each client's rows, if it has at least {LEAST}, of their leave-one-out log densities, the "
        text += "squares of those and the effective numbers of parameters, with counts of k-hat, once"
    return text


def _memory(model: SparseModel) -> tuple[float, float]:
    """Returns bytes at the server and at a client: a graph's coefficients, second moments of columns, terms of moves."""
    a, n = model.config.algorithm, len(model.names)
    p = len(model.nodes) if model.is_graph else model.coefficients.size
    server, client = 0.0, 6.0
    if model.is_graph:
        draws = (model.rounds - a.burn_in) // a.thin
        most = float("inf") if p * (p - 1) > model.output.largest else 40 + 8 * draws
        server, client = (a.chains * min(bytes_of_chain, most) for bytes_of_chain in STREAMED)
        server += 2 * n * a.chains * 8
    if model.second_moments:
        server += 4 * n
    if model.imputes:
        numbers = 10 * p if model.is_graph else 3
        client += a.chains * numbers  # the law of rows, and what becomes of it; of each node, with rows
    if model.pooled:
        server, client = server + 4 * n, client + 4
    moves = model.moves
    terms = moves.largest(model.size) if moves.moves else 0
    if model.pooled:  # of one regression at a time, and none at a client
        return memory.NUMBER * p * p * server + 2 * terms / model.size.regressions, memory.NUMBER * p * p * client
    return memory.NUMBER * p * p * server + n * terms, memory.NUMBER * p * p * client + 2 * terms
