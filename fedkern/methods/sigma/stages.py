"""What may be exchanged in a spatial job, and what `fedkern check` prints: model, disclosure, every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...algorithms.core import until
from ...algorithms.core.messages import Message
from ...algorithms.exchanges import column_notes, fit_sums, level, settled, terms, verdicts
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import prior as prior_agreement
from ...algorithms.exchanges.terms import LogTerms
from ...algorithms.hmc import machine as hmc
from ...algorithms.hmc.messages import Slope, SlopeChange
from ...algorithms.sfvi import machine as sfvi
from ...algorithms.sfvi.messages import GlobalGradient, GlobalGradientBound, Reached
from ...data.artifact import read_own
from ...data.design import describe
from ...errors import JobError
from ...jobs import memory
from ...jobs.check import Check, OwnFile, Said
from ...jobs.stage import Stage
from ...printing import printable
from ...privacy.plan import Plan
from . import borders, files
from .keys import Config
from .model import SigmaModel
from .points import extended
from .rows import Reading, needed, prior_of, rows

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *prior_agreement.PROTOCOL.to_server,
    *column_notes.PROTOCOL.to_server,
    *level.PROTOCOL.to_server,
    GlobalGradient,
    GlobalGradientBound,
    Reached,
    Slope,
    SlopeChange,
    *until.UP,
    *settled.PROTOCOL.to_server,
    LogTerms,
    *verdicts.PROTOCOL.to_server,
    *fit_sums.PROTOCOL.to_server,
)


def opening(config: Config) -> list[Stage]:
    """What the parties exchange before the model is known: their columns, and whose prior they have."""
    return [Stage.of(agreement), Stage.of(prior_agreement)]


def stages(model: SigmaModel) -> list[Stage]:
    """What the parties exchange once the columns are agreed."""
    asked = [Stage.of(fit_sums)] if model.output.fit else []
    bits = [] if model.chains else [Stage.of(settled)]
    weights = [Stage.of(terms)] if model.output.reweigh else []
    return [Stage.of(column_notes), levelled(model), fitted(model), *bits, *weights, Stage.of(verdicts), *asked]


def fitted(model: SigmaModel) -> Stage:
    """The rounds."""
    if model.chains:
        steps = model.hmc.rounds * (model.hmc.leapfrog - 1)
        times: dict[type[Message], int] = {hmc.Place: 1, hmc.Slope: 1 + steps, hmc.Move: steps, hmc.Decided: 1}
        sizes, rounds = model.hmc.sizes(model.layout.size), model.hmc.rounds
        return Stage(hmc.protocol(model.hmc), sizes, rounds=rounds, resumable=True, times=times)
    sizes, rounds = model.sfvi.sizes(model.layout.size), model.rounds
    times = dict.fromkeys((*until.UP, *until.DOWN), until.looks(rounds)) | {sfvi.Fitted: 1}
    return Stage(sfvi.protocol(model.sfvi), sizes, rounds=rounds, resumable=True, times=times)


def levelled(model: SigmaModel) -> Stage:
    """The units of the response."""
    return Stage(level.PROTOCOL, level.DIMS, times=model.level.times)


def checked(at: Check[Config]) -> Said | None:
    """What is said of the job, at the server's place; None elsewhere."""
    encoding = at.agreed(partial(needed, at.config))
    prior = files.read(at)
    files.agree(at, prior)
    borders.read(at, prior.clients)
    notes = at.notes()
    if encoding is None:
        return None
    model = SigmaModel(at.config, at.names, encoding, prior.common)
    used = memory.lines(*_memory(model.layout.size, "diagonal" if model.chains else at.config.algorithm.covariance))
    return Said(model, [*_lines(model), *used, *notes], at.unknown(encoding))


def look_through(file: OwnFile[Config]) -> None:
    """What else would end a run with this file; JobError. Where the prior's file is not here, that is said."""
    describe(file.table, file.spec)
    name = file.path.stem
    try:
        prior = read_own(prior_of(file.config, file.folder), name)
    except JobError as error:
        print(printable(f"  note: not compared with the prior: {error}"))
        return
    borders.of(file.config, file.folder, prior)
    read = Reading(file.table, file.config, name)
    rows(read, file.encoding, extended(prior, read, "the file"))


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """None: no job of this method has a budget."""
    return None


def _lines(model: SigmaModel) -> Iterator[str]:
    """Job, model, inference, and what is disclosed."""
    a, common = model.config.algorithm, model.common
    rounds = until.words(model.rounds) if model.until_settled else f"rounds = {model.rounds}"
    yield f"job      sigma, {model.kind} model, {rounds}, seed {model.seed}"
    name = common.condition.name
    about = f"{name} in [{model.condition.lo:g}, {model.condition.hi:g}]" if model.layout.free else "no free hyperparameter"
    made = "exact inside each client" if common.within else f"{common.variant} networks"
    yield f"prior    {common.kind}, {made}, {common.n_global} global latents, {about}; id {common.id[:12]}"
    intercept = "an intercept about the pooled level" if model.intercept else "no intercept"
    yield f"model    {model.family_of_y}, {intercept}, {model.encoding.size - 1} coefficients"
    if model.periods:
        yield f"periods  {len(model.periods)}, from {model.periods[0]} to {model.periods[-1]}: a random walk that sums to 0"
    if model.config.model.overdispersion:
        yield "rows     each has a further effect of its own, N(0, sigma_extra^2), which is integrated out"
    if model.learns_r:
        yield "rows     their dispersion 1 / r is learnt"
    if model.config.data.censored:
        cells = ", ".join(f'"{cell}" is {low} to {high}' for cell, (low, high) in model.config.data.censored.items())
        yield f"counts   some may be known by an interval: {cells}; the likelihood is that of the interval"
    if model.chains:
        s = model.hmc
        yield f"fit      {a.inference}: {s.chains} chains, {s.leapfrog} leapfrog steps a round, {s.warmup} rounds of warm-up"
    else:
        q = f"{a.covariance} covariance, " + ("intercept sheared against the map's level, " if model.sfvi.sheared else "")
        if model.kind == "within":
            q += "clients' areas integrated out, given the global unknowns"
        else:
            q += f"clients' latents {'given' if a.structured else 'independent of'} the global ones"
        yield f"fit      {a.inference}: {q}, {a.optimiser}, learning rate {a.learning_rate:g}"
    yield from (f"warning  {words}" for words in model.warnings)
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield ""
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield f"disclosure  {disclosure(model)}"


def disclosure(model: SigmaModel) -> str:
    """In words, what the server learns (docs/methods/sigma.md, section 6)."""
    text = "the server sees two sums of each client's responses and offsets (gaussian: and two of their deviations), once, and "
    text += "the gradient of each client's log-likelihood in the global unknowns, in every round"
    if model.chains:
        text += ", and one change of log-density a trajectory"
    if model.output.bound:
        text += ", and each client's term of the ELBO"
    if not model.chains:
        text += ", and at the end one bit of each client: whether its own unknowns still move"
    if model.until_settled and until.looks(model.rounds):
        text += f", and the same bit up to {until.looks(model.rounds)} times before: rounds end when all has settled"
    if model.output.reweigh:
        text += f", and if all has settled each client's log-likelihood at {terms.DRAWS} draws of the global unknowns"
    if model.output.fit:
        text += f", and at the end sums over each client's areas with rows, if it has at least {fit_sums.LEAST}: of their "
        text += "leave-one-out log densities, the squares of those and the effective numbers of parameters, with two counts"
    text += (
        "; responses, areas' effects, rates and local latents have no message of their own, and where the map and the offsets "
    )
    return text + "are known the responses can be computed from what is sent"


def _memory(d: int, covariance: str) -> tuple[float, float]:
    """Bytes at the server and at a client, of the global unknowns' covariance."""
    return (memory.NUMBER * 8.0 * d * d, memory.NUMBER * 4.0 * d * d) if covariance == "full" else (0.0, 0.0)
