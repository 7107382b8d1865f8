"""Lists the exchanges of a spatial job, and makes the text of `fedkern check`: model, disclosure, and every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...algorithms.core import masked, until
from ...algorithms.core.exchange import LEAST
from ...algorithms.core.messages import Message
from ...algorithms.exchanges import column_notes, column_sums, level
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import prior as prior_agreement
from ...algorithms.exchanges.answers import PIECE, Certificate, LogTerms, Settled
from ...algorithms.exchanges.sums import FitSums
from ...algorithms.exchanges.verdicts import FIGURES, figures_dims
from ...algorithms.hmc import machine as hmc
from ...algorithms.hmc.machine import Slope, SlopeChange
from ...algorithms.nested import machine as nested
from ...algorithms.sfvi import machine as sfvi
from ...algorithms.sfvi.machine import GlobalGradient, GlobalGradientBound, Reached
from ...data.artifact import ServerFile, read_own
from ...data.design import describe
from ...errors import JobError
from ...jobs import holders, memory, secure, tables
from ...jobs.check import Check, OwnFile, Said
from ...jobs.holding.binding import bind
from ...jobs.parties import data_set
from ...jobs.said import Line
from ...jobs.stage import Stage
from ...printing import printable
from ...privacy.certificate import describe_trust
from ...privacy.plan import Plan
from . import borders, budget, files, publish
from .areas import names_of
from .keys import Config
from .model import SigmaModel
from .rows import Reading, needed, prior_of, rows

USUAL = 22  # questions of a nested approximation in most jobs: 19 to 25 in benchmarks/results/sigma_nested.txt

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *prior_agreement.PROTOCOL.to_server,
    *column_notes.PROTOCOL.to_server,
    *level.PROTOCOL.to_server,
    *(sums.masked for sums in column_sums.SUMS),
    level.MaskedLevelSums,
    GlobalGradient,
    GlobalGradientBound,
    Reached,
    Slope,
    SlopeChange,
    *secure.MAY_SEND,
    masked.MaskedGradient,
    masked.MaskedGradientMore,
    masked.MaskedMoving,
    *nested.PROTOCOL.to_server,
    *until.UP,
    *Settled.may_send,
    *LogTerms.may_send,
    *FIGURES.protocol.to_server,
    *FitSums.may_send,
    *Certificate.may_send,
)


def opening(config: Config) -> list[Stage]:
    """Returns the exchanges before the model is known: parties agree on columns, and on whose prior they have."""
    return [Stage.of(agreement), Stage.of(prior_agreement)]


def stages(model: SigmaModel) -> list[Stage]:
    """Returns the exchanges once the columns are agreed."""
    fit_sums = [summed(model)] if model.output.fit else []
    steps = not (model.chains or model.is_nested)
    bits = [Stage.asking(Settled, secure=model.secure)] if steps else []
    weights = [weighed(model)] if model.output.reweigh and not model.is_nested else []
    spent = [Stage.asking(Certificate)] if model.config.private else []
    return [Stage.of(column_notes), levelled(model), fitted(model), *bits, *weights, judged(model), *fit_sums, *spent]


def fitted(model: SigmaModel) -> Stage:
    """Returns the stage of the rounds."""
    times: dict[type[Message], int]
    if model.chains:
        steps = model.hmc.rounds * (model.hmc.leapfrog - 1)
        times = {hmc.Place: 1, hmc.Slope: 1 + steps, hmc.Move: steps, hmc.Decided: 1}
        sizes, rounds = model.hmc.sizes(model.layout.size), model.hmc.rounds
        stage = Stage(hmc.protocol(model.hmc), sizes, rounds=rounds, resumable=True, times=times, trips=1 + steps)
        return stage.with_sums(hmc.SUMS, secure=model.secure)
    if model.is_nested:
        s, standard = model.nested, model.standard
        times = {nested.AskMarginals: s.most, nested.Marginals: s.most, nested.Mixture: 1}
        searched = max(s.rounds - s.questions, 1)
        times |= {nested.AskCurvatures: searched, nested.Curvatures: searched}
        return Stage(
            nested.PROTOCOL,
            s.sizes(standard.size, standard.n_linear),
            rounds=s.rounds,
            resumable=True,
            times=times,
            trips=USUAL,
            usually=True,
        )
    sizes, rounds = model.sfvi.sizes(model.layout.size, model.n_told), model.rounds
    times = dict.fromkeys((*until.UP, *until.DOWN), until.looks(rounds)) | {sfvi.Fitted: 1}
    at_once = model.sfvi.lead > 0
    fixed = None if model.until_settled or at_once else rounds
    agreed = model.agreed if at_once else None
    stage = Stage(sfvi.protocol(model.sfvi), sizes, rounds=rounds, resumable=True, times=times, trips=fixed, agreed=agreed)
    return stage.with_sums(sfvi.SUMS, secure=model.secure)


def weighed(model: SigmaModel) -> Stage:
    """Returns the stage of a question about log-likelihoods, which comes at most `pieces` times."""
    return replace(Stage.asking(LogTerms, secure=model.secure), runs=model.pieces, trips=1, usually=True)


def judged(model: SigmaModel) -> Stage:
    """Returns the stage of the verdict, with figures of the unknowns that all share."""
    return Stage(FIGURES.protocol, figures_dims(len(publish.shared(model))))


def summed(model: SigmaModel) -> Stage:
    """Returns the stage of sums over areas by which the fit is judged."""
    return Stage.asking(FitSums, secure=model.secure)


def levelled(model: SigmaModel) -> Stage:
    """Returns the stage in which the units of the response are found."""
    stage = Stage(level.PROTOCOL, level.DIMS, times=model.level.times)
    return stage.with_sums(level.SUMS, secure=model.secure)


def check_job(check: Check[Config]) -> Said | None:
    """Returns the text of `check` and the numbers behind it, at the server's place; None elsewhere."""
    encoding = check.agreed(partial(needed, check.config))
    prior = files.read(check)
    files.agree(check, prior)
    borders.read(check, prior.clients)
    notes = check.notes()
    if encoding is None:
        return None
    model = SigmaModel(check.config, check.names, encoding, prior.common)
    used = memory.describe_memory(*_memory(model))
    plans = {name: budget.plan(check.config.privacy) for name in check.names} if check.config.privacy is not None else {}
    sums = [*secure.describe(check.place, check.names)] if model.secure else []
    return Said(model, [*_lines(model), *_of_map(prior.server), *sums, *used, *notes], check.unknown(encoding), plans)


def look_through(file: OwnFile[Config]) -> None:
    """Raises JobError for anything else in this file that would end a run; prints it where the prior's file is not here."""
    name = file.path.stem
    try:
        prior = read_own(prior_of(file.config, file.folder), name)
    except JobError as error:
        describe(Reading.of(file.table, file.config, name, ()).table, file.spec)
        print(printable(f"  note: not compared with the prior: {error}"))
        return
    borders.of(file.config, file.folder, prior)
    read = Reading.of(file.table, file.config, name, prior.areas)
    describe(read.table, file.spec)
    rows(read, file.encoding, prior)
    if file.config.privacy is not None:
        for line in read.unread.describe_lost(file.config.privacy.table):
            print(printable(f"  note: {line}"))


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns the plan of one client's budget; None where its noisy table exists already, and costs nothing."""
    privacy = file.config.privacy
    if privacy is None:
        return None
    where = holders.standing(bind(client, data_set(file.path)), client)
    try:
        prior = read_own(prior_of(file.config, file.folder), client)
    except JobError:
        prior = None  # said by `look_through`
    key = None if prior is None else budget.key(privacy, client, file.config.data.response, names_of(prior))
    if where is not None and key is not None and tables.find(where, key) is not None:
        print(printable(f"  noisy table {privacy.table!r} is there: this job spends nothing more"))
        return None
    return budget.plan(privacy)


def _lines(model: SigmaModel) -> Iterator[str]:
    """Yields job, model, inference, and the numbers that are disclosed."""
    a, common = model.config.algorithm, model.common
    rounds = until.words(model.rounds) if model.until_settled else f"rounds = {model.rounds}"
    if model.is_nested:
        rounds = f"as many rounds as it needs, some 20 to 150 (at most {model.nested.rounds}; job.rounds is for the others)"
    yield f"job      sigma, {model.kind} model, {rounds}, seed {model.seed}"
    name = common.condition.name
    about = f"{name} in [{model.condition.lo:g}, {model.condition.hi:g}]" if model.layout.free else "no free hyperparameter"
    made = "exact inside each client" if common.within else f"{common.variant} networks"
    yield f"prior    {common.kind}, {made}, {common.n_global} global latents, {about}; id {common.id[:12]}"
    intercept = "an intercept about the pooled level" if model.intercept else "no intercept"
    yield f"model    {model.family_of_y}, {intercept}, {model.encoding.size - 1} coefficients"
    if model.known_variances:
        yield f"errors   normal, with the variance that each row has in {model.config.data.variance!r}"
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
        yield f"fit      {model.inference}: {s.chains} chains, {s.leapfrog} leapfrog steps a round, {s.warmup} rounds of warm-up"
    elif model.is_nested:
        settings, n, h = model.nested, model.nested.points, model.standard.n_hyper
        yield f"fit      nested{_why(model)}: Laplace approximations at a lattice of {h} hyperparameters, clients' areas"
        draws = f"{n:,} to {n * settings.questions:,} draws (up to {n * settings.most:,} where they suffice)"
        yield f"         integrated out, then importance weights of {draws}, which say whether it is right"
    else:
        q = f"{a.covariance} covariance, "
        if model.sfvi.sheared:
            q += "intercept sheared against the map's level, "
        if model.kind == "within":
            q += "clients' areas integrated out, given the global unknowns"
        elif a.structured:
            q += "clients' latents given the global ones"
        else:
            q += "clients' latents independent of the global ones"
        yield f"fit      {model.inference}{_why(model)}: {q}, {a.optimiser}, learning rate {a.learning_rate:g}{a.said}"
    yield from (Line("warning", words) for words in model.warnings)
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield ""
    yield from _privacy(model)
    yield f"disclosure  {disclosure(model)}"


def _of_map(prior: ServerFile | None) -> Iterator[str]:
    """Yields what is to be known of the list of neighbours that a prior was made of."""
    if prior is None:
        return
    if prior.by_position:
        yield "map      its list of neighbours has positions, which count the lines of the table of areas (see neighbours.csv)"
    yield from (Line("doubt", doubt) for doubt in prior.doubts)


def _why(model: SigmaModel) -> str:
    """Says why the posterior is found in this way, where the job does not give it."""
    return f" ({model.by_default})" if model.by_default else ""


def _privacy(model: SigmaModel) -> Iterator[str]:
    """Yields the plan of each client's noise, or that none is claimed."""
    privacy = model.config.privacy
    if privacy is None:
        yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
        return
    plan = budget.plan(privacy)
    m = plan.mechanism
    yield f"privacy  each client, for its own counts: epsilon {plan.spent:.4g} at delta {plan.delta:g}, spent once, when noise is"
    yield f"         added to its table {privacy.table!r}; a job that uses a table that is there spends nothing more"
    yield "         a holder without a policy and without FEDKERN_CLIENT_HOME keeps its table in the run's own folder:"
    yield "         another run draws noise, and spends, anew"
    yield f"         noise two-sided geometric, sd {m.sigma * m.clip:.4g} cases; neighbours: {m.neighbours}"
    yield f"         trusts {describe_trust(m)}"


def disclosure(model: SigmaModel) -> str:
    """Says in words which numbers the server learns (docs/spec/sigma.md, section 6)."""
    text = "the server sees two sums of each client's responses and offsets (gaussian: and two of their deviations), once, and "
    text += "the gradient of each client's log-likelihood in the global unknowns, in every round"
    if model.is_nested:
        s, U = model.nested, model.standard.n_linear
        text = "the server sees two sums of each client's responses and offsets (gaussian: and two of their deviations), once, "
        text += f"and at up to {s.places} values of the global unknowns a round each client's log-likelihood, its gradient and "
        text += f"its curvature in {U} of them ({U * (U + 1) // 2} numbers), and at the end its log-likelihood at {s.points} to "
        text += f"{s.points * s.most} draws of them"
    if model.chains:
        text += ", and one change of log-density a trajectory"
    if model.output.bound and not model.is_nested:
        text += ", and each client's term of the ELBO"
    if not (model.chains or model.is_nested):
        text += ", and at the end one bit of each client: whether its own unknowns still move"
    if model.until_settled and until.looks(model.rounds):
        text += f", and the same bit up to {until.looks(model.rounds)} times before: rounds end when all has settled"
    if model.output.reweigh and not model.is_nested:
        text += f", and if all has settled each client's log-likelihood at up to {PIECE * model.pieces:,} draws of the "
        text += "global unknowns, as many equations for its rows beside those that its gradients are"
    if model.output.fit:
        text += f", and at the end sums over each client's areas with rows, if it has at least {LEAST}: of their "
        text += "leave-one-out log densities, the squares of those and the effective numbers of parameters, the two sums of "
        text += "WAIC, and two counts"
    if model.config.private:
        return text + (
            "; all of it is computed of the noisy counts and of what is public: areas, exposures or trials, offsets and "
            "covariates have no noise, and the noisy counts can be computed from what is sent"
        )
    text += (
        "; responses, areas' effects, rates and local latents have no message of their own, and where the map and the offsets "
    )
    return text + "are known the responses can be computed from what is sent"


def _memory(model: SigmaModel) -> tuple[float, float]:
    """Returns bytes at the server and at a client, of squares of the global unknowns: covariances, or curvatures of a
    question."""
    if model.is_nested:
        return model.answered, 2 * model.answered / len(model.names)
    square = memory.NUMBER * float(model.layout.size) ** 2
    full = model.config.algorithm.covariance == "full" and not model.chains
    return (8 * square, 4 * square) if full else (0.0, 0.0)
