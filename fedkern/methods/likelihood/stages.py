"""Lists the exchanges of a job, and the lines of `fedkern check` on its model, rounds and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...algorithms.core.messages import Message
from ...algorithms.exchanges import column_notes, column_sums, counted, level, odd_response
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges.answers import CumulativeHazards, FamilyHeard, LogTerms, SiteMode
from ...algorithms.exchanges.answers import OwnModel as OwnPackage
from ...algorithms.exchanges.level_sums import LevelNumbers
from ...algorithms.exchanges.sums import Incomplete, LifetimeSums, LooSums, MarginalSums, PearsonSums, Replicated, SurvivalSums
from ...algorithms.exchanges.survey import PROTOCOL as PROTOCOL_OF_WEIGHTS
from ...algorithms.exchanges.survey import ClusterScores
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import extension, single_values, telling
from ...algorithms.importance import machine as importance
from ...algorithms.sfvi import machine as sfvi
from ...data.design import check_header
from ...jobs import incomplete, joining, secure
from ...jobs.check import Check, OwnFile, Said
from ...jobs.formula import agreeing
from ...jobs.stage import Stage
from ...models.encoding import INTERCEPT
from ...models.mixed.layout import EFFECT_DF, EFFECT_SCALE, EFFECT_SCALE_IN_SDS, NODES
from ...privacy.plan import Plan
from . import by_evidence, changes, dispersion, durations, named_priors, own_check, own_variational, summaries, survey
from .keys import Config
from .model import TOLD, Model
from .models import check_summaries, model_of
from .own_model import OwnModel, terms_of
from .sampled_model import SampledModel

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *joining.MAY_SEND,
    *counted.PROTOCOL.to_server,
    *column_notes.PROTOCOL.to_server,
    *level.PROTOCOL.to_server,
    *(declared.masked for declared in column_sums.SUMS),
    level.MaskedLevelSums,
    odd_response.MaskedOddResponse,
    importance.Curvature,
    importance.Values,
    *secure.MAY_SEND,
    *single_values.PROTOCOL.to_server,
    importance.MaskedCurvature,
    importance.MaskedValues,
    hmc.MaskedSlope,
    hmc.MaskedChange,
    hmc.LikelihoodSlope,
    hmc.LikelihoodChange,
    sfvi.GlobalGradient,
    LogTerms,
    *Incomplete.may_send,
    *Replicated.may_send,
    *LooSums.may_send,
    *MarginalSums.may_send,
    *PearsonSums.may_send,
    *SurvivalSums.may_send,
    *CumulativeHazards.may_send,
    *LifetimeSums.may_send,
    *LevelNumbers.may_send,
    *SiteMode.may_send,
    *OwnPackage.may_send,
    *PROTOCOL_OF_WEIGHTS.to_server,
    *ClusterScores.may_send,
    *FamilyHeard.may_send,
)


MODE = "importance-mode"  # the name of the stage that ends there
USUAL = 8  # trips to the mode and for two rounds of draws, the first of which is asked in two parts, in most jobs
SEVERAL = 2  # times as many draws as a first round has, in most jobs
OF_SUMMARIES = 6  # more: two questions for summaries, and two of the others after each
DOUBLED = 2  # rounds that are asked once more, with more nodes


def opening(config: Config) -> list[Stage]:
    """Returns the exchanges before the model is known: of columns, or of the packages that compute; none of an earlier run's."""
    if config.extends:
        return []
    return agreeing.opening(config.formula) if terms_of(config) is None else [Stage.asking(OwnPackage)]


def stages(model: SampledModel) -> list[Stage]:
    """Returns the exchanges once the columns are agreed, in their order."""
    if not (others := by_evidence.others(model)):
        return _stages(model)
    listed_stages = [stage for of_model in (model, *others) for stage in _stages(of_model)]
    return [*{str(stage.words): stage for stage in listed_stages}.values(), by_evidence.STAGE]


def _stages(model: SampledModel) -> list[Stage]:
    """Returns the same of one family."""
    rounds = [*([stage_of_draws(model)] if model.has_mode else []), *([stage_of_chains(model)] if model.chains else [])]
    if not isinstance(model, Model):  # whose columns only the factory reads
        if isinstance(model, OwnModel) and model.variational:
            return own_variational.stages(model)
        return [*rounds, *stages_of_sites(model)]
    if model.newcomers is not None:
        together = 0 < model.newcomers < len(model.names)
        return [stage_of_steps(model), stage_of_draws(model)] if together else [stage_of_points(model)]
    before = [*incomplete.stages(model.config), Stage.of(column_notes), *survey.stages(model), *model.response_stages]
    if model.survey:
        return [*before, *rounds, survey.stage_of_scores(model)]
    if model.asks_dispersion:
        before += [stage_of_mode(model), *dispersion.stages(model)]
    draws = [stage_of_telling(model)] if model.chains else []
    loo = [stage_of_loo(model)] if model.output.loo else []
    after = [model.sums_stage, *model.weight_stages, *model.curve_stages, *loo, *changes.stages(model), *stages_of_sites(model)]
    singly = [stage_of_single_values(model)] if model.settings.singly else []
    return [*before, *rounds, *draws, *singly, *after]


def stage_of_draws(model: SampledModel) -> Stage:
    """Returns the stage of the way to the mode and the rounds of draws."""
    settings = model.settings
    to_mode, of_draws = settings.newton + DOUBLED, settings.most_questions + DOUBLED * (settings.first // settings.per_question)
    times = {importance.AskCurvature: to_mode, importance.Curvature: to_mode, importance.Posterior: 1}
    times |= {importance.AskValues: of_draws, importance.Values: of_draws, importance.AskNormal: settings.questions - 1}
    dims = {**settings.sizes(model.size), "d": model.n_coefficients}  # by which `check` counts rows
    rounds, ahead = to_mode + of_draws, model.asks_dispersion  # whose mode is known before
    # The way to the mode is a dozen rounds: chains go on from their own checkpoint, and not from another's.
    # One coordinate's mode is found in four questions, that of many with a few more; the first draws are asked with the last.
    stage = Stage(
        model.protocol,
        dims,
        rounds=rounds,
        resumable=not model.chains,
        times=times,
        trips=(3 if ahead else USUAL) + bool(model.chains) + OF_SUMMARIES * bool(settings.summaries),
        usually=True,
    )
    return stage.with_sums(importance.SUMS, secure=model.secure)


def stage_of_mode(model: Model) -> Stage:
    """Returns the stage of the way to the mode alone."""
    whole = stage_of_draws(model)
    protocol, rounds = importance.protocol(model.mode_alone), model.settings.newton + DOUBLED
    stage = Stage(protocol, whole.dims, rounds=rounds, alias=MODE, trips=USUAL - 3, usually=True)
    return stage.with_sums(importance.SUMS, secure=model.secure)


def stage_of_points(model: SampledModel) -> Stage:
    """Returns the stage in which clients that come to an earlier run answer at its points."""
    whole = stage_of_draws(model)
    return replace(whole, protocol=extension.protocol(), rounds=model.settings.most_questions, times={}, trips=1, usually=False)


def stage_of_steps(model: SampledModel) -> Stage:
    """Returns the stage in which these clients alone are asked for steps, before all answer at draws."""
    protocol = importance.protocol(replace(model.settings, rounds=0))
    return replace(stage_of_draws(model), protocol=protocol, rounds=model.settings.newton, times={}, alias="importance-steps")


def stage_of_single_values(model: SampledModel) -> Stage:
    """Returns the stage in which clients tell their own values at the draws, in a job with secure sums that names it."""
    settings = model.settings
    return Stage(single_values.PROTOCOL, single_values.dims(settings.most_questions, settings.per_question))


def stage_of_chains(model: SampledModel) -> Stage:
    """Returns the stage of the chains."""
    s = model.walks
    steps = s.rounds * (s.leapfrog - 1)
    times: dict[type[Message], int] = {hmc.Place: 1, hmc.LikelihoodSlope: 1 + steps, hmc.Move: steps, hmc.Decided: 1}
    dims = {**s.sizes(model.size), "d": model.n_coefficients}
    stage = Stage(hmc.protocol(s), dims, rounds=s.rounds, resumable=True, times=times, trips=1 + steps)
    return stage.with_sums(hmc.SUMS, secure=model.secure)


def stage_of_telling(model: SampledModel) -> Stage:
    """Returns the stage that tells clients draws of the chains, and whether they can be trusted."""
    return Stage(telling.PROTOCOL, {"t": TOLD, "xi": model.size})


def stage_of_loo(model: SampledModel) -> Stage:
    """Returns the stage of sums of the rows' leave-one-out densities."""
    return Stage.asking(LooSums, secure=model.secure)


def stages_of_sites(model: SampledModel) -> list[Stage]:
    """Returns the stage of the clients' own modes, where the job asks for it."""
    return [Stage.asking(SiteMode, {"d": model.n_of_a_site})] if model.output.sites else []


def check_job(check: Check[Config]) -> Said | None:
    """Returns the words on the job, at the server's place; None elsewhere."""
    if (terms := terms_of(check.config)) is not None:
        return own_check.checked(check, terms)
    if check.config.extends:
        from . import earlier

        model = earlier.agree(check, {}).model
        return Said(model, [*_lines_of_extension(model), "", *_privacy(model)], [])
    check_summaries(check.config, check.names, check.summaries)
    encoding = check.agreed()
    notes = check.notes(intercept=check.config.model.intercept or check.config.hazards)
    if encoding is None:
        return None
    if (test := check.parties.test()) is not None:
        check_header(test.names, encoding, test.source)
    model, unknown = model_of(check.config, check.names, encoding, check.summaries), check.unknown(encoding)
    named_priors.check(model, levels_known=not unknown)
    singly = "log-likelihoods at the draws (SingleValues)" if check.config.singly else ""
    response = ("times" if model.config.hazards else "response") if model.compares_alone else ""
    additive = check.config.requirement.additive
    sums = list[str]()
    if model.secure:
        sums = [*secure.describe(check.place, check.names, singly=singly, response=response, additive=additive)]
    lines = [*_lines(model, bool(unknown)), *sums, *incomplete.describe_missing(check.config), *notes, "", *_privacy(model)]
    return Said(model, lines, unknown)


def look_through(file: OwnFile[Config]) -> list[str]:
    """Returns more lines on a holder's own file; JobError where it would end a run."""
    if (terms := terms_of(file.config)) is not None:
        return own_check.look_through(file, terms)
    return durations.describe_duration(file, file.config.job.deadline)


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns None: no job of this method has a budget."""
    return None


def _lines(model: Model, unknown: bool) -> Iterator[str]:
    """Lines on job, model, clients and columns; `unknown`: whether some columns may turn out to be categorical."""
    config = model.config
    d, size = model.encoding.size, model.layout.size
    how = f"{model.walks.chains} chains of {model.walks.rounds} rounds of draws" if model.chains else "rounds of draws"
    yield f"job      {config.job.method}, the mode and {how}, seed {model.seed}"
    others = "".join(f" or {other.family}, by evidence" for other in by_evidence.others(model))
    yield f"model    {model.family}{others}, {model.describe_priors()}{model.named_in_words}"
    scale = EFFECT_SCALE_IN_SDS if model.measured else EFFECT_SCALE
    groupings = config.random.every
    kinds = [(f"groups   of column {grouping.column!r}", grouping.terms, grouping.correlated) for grouping in groupings]
    kinds += [("effects  of clients", model.layout.client, True)]
    for what, terms, correlated in kinds:
        if terms:
            of = f"{_effects(terms)}{'' if correlated else ', not correlated where columns are 0'}"
            yield f"{what}: {of}; sd ~ half-student({EFFECT_DF:g}, {scale:g}){model.unit_in_words}"
    if groupings[1:] or model.layout.joint:
        yield f"         {_integrated(model)}"
    if groupings:
        least = config.rules.groups
        groups_asked = f"{least} groups of each client at least; " if least else ""
        yield f"         {groups_asked}their labels stay with it, and what is sent can tell their sizes"
        if (groupings[1:] and model.layout.joint) or (config.random.all_slopes and model.row.linear):
            yield f"         and the squares and products of each group's rows: of up to {d + 1} rows these, up to a rotation"
    if (shared := config.random.shared) is not None:
        sd = f"sd ~ half-student({EFFECT_DF:g}, {scale:g}){model.unit_in_words}"
        yield f"groups   of column {shared.column!r}, which clients have in common: {len(shared.levels)} intercepts; {sd}"
        yield "         the job file tells their labels; what a client sends tells how many of its rows each has, if any"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    more = "; more if columns turn out to be categorical" if unknown else ""
    yield f"columns  {d} coefficients, {size} unknowns in all{more}; response {model.describe_response()}"
    yield from survey.describe(model)
    yield from model.describe_kind()
    yield from summaries.describe(model.names, model.summaries)
    yield from _rounds(model)


def _lines_of_extension(model: Model) -> Iterator[str]:
    """Lines on a job whose clients come to an earlier run, or go."""
    job = model.config.job
    what = "with more clients" if model.newcomers else f"without {job.drops}"
    yield f"job      {job.method}, an earlier run ({job.extends}) {what}"
    yield f"clients  {', '.join(model.names)}, of whom {model.newcomers} come to it"
    yield f"columns  {model.encoding.size} coefficients, {model.layout.size} unknowns in all, as agreed on there"
    if model.newcomers == len(model.names):
        yield "points   their values are asked at all points of that run, and nothing else; the others are not asked"
    elif model.newcomers:
        yield from _rounds(model)


def _integrated(model: Model) -> str:
    """How effects of groups of several columns are integrated, and what a point costs a client."""
    layout = model.layout
    if layout.within:
        d, around = len(layout.group), len(layout.outer[0].terms)
        nodes = layout.nodes**d * NODES[around] ** around
        return (
            f"one lies in the other: a point takes a client {nodes:,} nodes a row (quadrature in quadrature), and more if needed"
        )
    if layout.nodes == 1:
        return "all effects of a client are integrated together, which is exact of this family"
    draws = f"{layout.nodes} draws a row, up to {layout.most_nodes:,} where their halves differ"
    less = "; less where one lies in the other" if layout.outer else ""
    return f"all effects of a client are integrated together: a point takes it {draws}{less}"


def _effects(terms: Sequence[str]) -> str:
    slopes = [term for term in terms if term != INTERCEPT]
    return "an intercept" + (f" and slopes of {', '.join(slopes)}" if slopes else "")


def _rounds(model: Model) -> Iterator[str]:
    """Lines on the number of rounds and their bytes."""
    settings, P = model.settings, model.layout.size
    if model.chains:
        s = model.walks
        exchanges = s.rounds * s.leapfrog
        each = s.chains * P * 8 * exchanges
        yield (
            f"rounds   about 10 to the mode (at most {settings.newton}), then {exchanges:,} exchanges ({s.rounds} rounds of "
            f"{s.leapfrog} steps, {s.warmup} of them burn-in):"
        )
        yield f"         about {_size(each)} to each client and {_size(each)} from it"
        return
    newton, of_draws = P * 8, settings.per_question * P * importance.WIDTH
    answer, values = (1 + P + P * (P + 1) // 2) * 8, settings.per_question * importance.WIDTH
    usual = min(SEVERAL * settings.first // settings.per_question, settings.most_questions)
    usual_in, usual_out = 10 * newton + usual * of_draws, 10 * answer + usual * values
    most, steps = settings.most_questions, settings.newton
    most_in, most_out = steps * newton + most * of_draws, steps * answer + most * values
    yield (
        f"rounds   about 10 to the mode (at most {steps}) and {usual * settings.per_question:,} draws (at most "
        f"{most * settings.per_question:,}), {settings.per_question:,} a question:"
    )
    to, back = f"{_size(usual_in)} (at most {_size(most_in)})", f"{_size(usual_out)} ({_size(most_out)})"
    yield f"         about {to} to each client and {back} from it"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _privacy(model: Model) -> Iterator[str]:
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    rows = "of all rows together" if model.secure else "of its rows"
    yield f"         log-likelihoods, or gradients, at thousands of points say {rows} all that a summary says, and more"
