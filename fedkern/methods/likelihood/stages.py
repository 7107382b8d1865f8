"""What may be exchanged in a job, and what `fedkern check` prints: the model, its rounds and bytes, every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...algorithms.core.messages import Message
from ...algorithms.exchanges import (
    column_notes,
    hazard_curves,
    level,
    level_sums,
    lifetime_sums,
    loo_sums,
    marginal_sums,
    own_models,
    replicated,
    site_modes,
    survival_sums,
)
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import incomplete as exchange
from ...algorithms.exchanges import terms as log_terms
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance import telling
from ...algorithms.sfvi import machine as sfvi
from ...data.design import check_header, describe
from ...errors import owned
from ...jobs import alike, few, incomplete
from ...jobs.check import Check, OwnFile, Said
from ...jobs.counting import LEAST_AT_RISK
from ...jobs.formula import agreeing
from ...jobs.stage import Stage
from ...models.encoding import INTERCEPT
from ...models.levels import GAP_SD
from ...privacy.plan import Plan
from . import changes, durations, own_check, own_variational, response
from .keys import Config
from .model import TOLD, Model
from .own_model import OwnModel
from .own_model import terms as own_terms
from .rows import check_file

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *column_notes.PROTOCOL.to_server,
    *exchange.PROTOCOL.to_server,
    *level.PROTOCOL.to_server,
    importance.Curvature,
    importance.Values,
    hmc.LikelihoodSlope,
    hmc.LikelihoodChange,
    sfvi.GlobalGradient,
    *log_terms.PROTOCOL.to_server,
    *replicated.PROTOCOL.to_server,
    *loo_sums.PROTOCOL.to_server,
    *marginal_sums.PROTOCOL.to_server,
    *site_modes.PROTOCOL.to_server,
    *survival_sums.PROTOCOL.to_server,
    *hazard_curves.PROTOCOL.to_server,
    *lifetime_sums.PROTOCOL.to_server,
    *level_sums.PROTOCOL.to_server,
    *own_models.PROTOCOL.to_server,
)


OF_TOLD = 2  # draws that were told, of which one is taken where responses are levels
DOUBLED = 2  # rounds that are asked once more, with more nodes


def opening(config: Config) -> list[Stage]:
    """What the parties exchange before the model is known: their columns, or whose package computes."""
    return agreeing.opening(config.formula) if own_terms(config) is None else [Stage.of(own_models)]


def stages(model: Model | OwnModel) -> list[Stage]:
    """What the parties exchange once the columns are agreed."""
    if isinstance(model, OwnModel):
        if model.variational:
            return own_variational.stages(model)
        return [*([] if model.local else [sampled(model)]), *([walked(model)] if model.chains else []), *own_modes(model)]
    before = [*incomplete.stages(model.config), Stage.of(column_notes), *response.stages(model), *shares_of_levels(model)]
    return [*before, sampled(model), *_after(model)]


def shares_of_levels(model: Model) -> list[Stage]:
    """How many rows have each level of the response, where it has some."""
    k = len(model.levels)
    return [Stage(level_sums.PROTOCOL, level_sums.dims(k), times={level_sums.AskLevels: 2})] if model.leveled else []


def sampled(model: Model | OwnModel) -> Stage:
    """The way to the mode, and the rounds of draws."""
    settings, (size, coefficients) = model.settings, _sizes(model)
    to_mode, of_draws = settings.newton + DOUBLED, settings.rounds + DOUBLED
    times = {importance.AskCurvature: to_mode, importance.Curvature: to_mode, importance.Posterior: 1}
    times |= {importance.AskValues: of_draws, importance.Values: of_draws}
    dims = {**settings.sizes(size), "d": coefficients}  # by which `check` counts rows
    rounds = to_mode + of_draws
    # The way to the mode is a dozen rounds: chains go on from their own checkpoint, and not from another's.
    return Stage(model.protocol, dims, rounds=rounds, resumable=not model.chains, times=times)


def _sizes(model: Model | OwnModel) -> tuple[int, int]:
    """How many unknowns all share, and how many columns have coefficients."""
    return (model.size, model.size) if isinstance(model, OwnModel) else (model.layout.size, model.encoding.size)


def walked(model: Model | OwnModel) -> Stage:
    """The chains, from the mode where there is one."""
    s, (size, coefficients) = model.walks, _sizes(model)
    steps = s.rounds * (s.leapfrog - 1)
    times: dict[type[Message], int] = {hmc.Place: 1, hmc.LikelihoodSlope: 1 + steps, hmc.Move: steps, hmc.Decided: 1}
    dims = {**s.sizes(size), "d": coefficients}
    return Stage(hmc.protocol(s), dims, rounds=s.rounds, resumable=True, times=times)


def told(model: Model) -> Stage:
    """Draws of the chains, and whether they can be trusted."""
    return Stage(telling.PROTOCOL, {"t": TOLD, "xi": model.layout.size})


def _after(model: Model) -> list[Stage]:
    """After the rounds, or the way to the mode."""
    chains = [walked(model), told(model)] if model.chains else []
    loo = [left_out_sums()] if model.output.loo else []
    if model.lifetimes:
        return [*chains, lifetime_sums_of(model), *own_modes(model)]
    if model.hazards:  # a row has no density of its own, and responses cannot be drawn without baseline hazards
        return [*chains, timed_sums(model), *curves(model), *own_modes(model)]
    again = levels_anew(model) if model.leveled else drawn_anew()
    return [*chains, again, *loo, *changes.stages(model), *own_modes(model)]


def drawn_anew() -> Stage:
    """Sums of responses that clients draw from the model."""
    return Stage(replicated.PROTOCOL, replicated.dims(TOLD))


def levels_anew(model: Model) -> Stage:
    """The same where a response is one of several levels: of ordered ones also sums of columns."""
    columns = 0 if model.nominal else model.layout.p
    return Stage(level_sums.QUESTION.protocol, level_sums.dims(len(model.levels), columns, TOLD // OF_TOLD))


def timed_sums(model: Model) -> Stage:
    """Of survival times whether hazards are proportional, and concordance."""
    return Stage(survival_sums.PROTOCOL, survival_sums.dims(model.layout.p))


def lifetime_sums_of(model: Model) -> Stage:
    """Of survival times whose hazard all share: where they are in their predictive distributions, and concordance."""
    return Stage(lifetime_sums.PROTOCOL, lifetime_sums.dims(1 + len(model.cuts)))


def curves(model: Model) -> list[Stage]:
    """Cumulative hazards of a Cox model at the times that the job asks for."""
    at = len(model.survival_at)
    return [Stage(hazard_curves.PROTOCOL, hazard_curves.dims(TOLD, at))] if at and not model.lifetimes else []


def left_out_sums() -> Stage:
    """Sums of the rows' leave-one-out densities."""
    return Stage.of(loo_sums)


def own_modes(model: Model | OwnModel) -> list[Stage]:
    """What each client's rows say alone, where the job asks for it."""
    size = model.size if isinstance(model, OwnModel) else model.layout.p
    return [Stage(site_modes.PROTOCOL, site_modes.dims(size))] if model.output.sites else []


def checked(at: Check[Config]) -> Said | None:
    """What is said of the job, at the server's place; None elsewhere."""
    if (own := own_terms(at.config)) is not None:
        return own_check.checked(at, own)
    for k in at.mine:
        rows = at.parties.rows(k)
        with owned(k):
            check_file(at.config, rows, at.parties.spec, at.names[k])
    encoding = at.agreed()
    notes = at.notes(intercept=at.config.model.intercept or at.config.hazards)
    if encoding is None:
        return None
    if (test := at.parties.test()) is not None:
        check_header(test.names, encoding, test.source)
    model, unknown = Model(at.config, at.names, encoding), at.unknown(encoding)
    lines = [*_lines(model, bool(unknown)), *incomplete.lines(at.config), *notes, "", *_privacy()]
    return Said(model, lines, unknown)


def look_through(file: OwnFile[Config]) -> list[str]:
    """What else is to be said of this file; JobError where it would end a run."""
    if (own := own_terms(file.config)) is not None:
        return own_check.look_through(file, own)
    check_file(file.config, file.table, file.spec)
    describe(file.table, file.spec)
    return durations.lines(file, file.config.job.deadline)


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """None: no job of this method has a budget."""
    return None


def _lines(model: Model, unknown: bool) -> Iterator[str]:
    """Job, model, clients and columns, of which some may turn out to be categorical."""
    config, settings = model.config, model.settings
    d, size = model.encoding.size, model.layout.size
    how = f"{model.walks.chains} chains of {model.walks.rounds}" if model.chains else f"at most {settings.rounds}"
    yield f"job      {config.job.method}, the mode and {how} rounds of draws, seed {model.seed}"
    yield f"model    {model.family}, {_priors(model)}"
    for what, terms in (
        (f"groups   of column {model.group!r}", model.layout.group),
        ("effects  of clients", model.layout.client),
    ):
        if terms:
            yield f"{what}: {_effects(terms)}; sd ~ HalfNormal(1){_of_response(model)}"
    if model.group is not None:
        least = config.data.least_groups
        yield f"         {least} groups of each client at least; their labels stay with it, and what is sent can tell their sizes"
        if config.random.slopes and model.row.linear:
            yield f"         and the squares and products of each group's rows: of up to {d + 1} rows these, up to a rotation"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    more = "; more if columns turn out to be categorical" if unknown else ""
    trials = f", successes of {config.data.trials} trials" if config.data.trials else ""
    response = model.encoding.response
    if model.times is not None:
        entry = f" from {model.times.entry}" if model.times.entry else ""
        response = f"{model.times.time}{entry}, event {response}"
    yield f"columns  {d} coefficients, {size} unknowns in all{more}; response {response}{trials}"
    if model.leveled:
        yield from _levels(model)
    if model.hazards:
        yield from _exposed(model) if model.lifetimes else _events(model)
        yield from _rounds(model)
        return
    yield (
        f"curvature what a client sends tells X'WX of its rows, and their labels; one with at most {config.told_up_to(d)} rows "
        "is none of this job"
    )
    yield from few.rotation(config, d)
    yield from _rounds(model)


def _events(model: Model) -> Iterator[str]:
    """Of a job of survival times: whose baseline hazards there are, and what events tell."""
    data, wanted = model.config.data, model.config.told_up_to(model.encoding.size)
    at = ", ".join(f"{t:g}" for t in model.survival_at)
    what = f"of which it tells the cumulative hazard at {at}" if at else "which stays with it"
    yield f"hazards  each client's own baseline{f', by {data.strata!r}' if data.strata else ''}, {what}"
    yield "curvature what a client sends tells, at each time of an event, means and squares of the columns of who is at risk:"
    yield f"         one with at most {wanted} events, while {LEAST_AT_RISK} rows are at risk, is none of this job; one without"
    yield "         any may be, and tells that it has none"


def _exposed(model: Model) -> Iterator[str]:
    """Of a job whose baseline hazard all share."""
    wanted = model.config.told_up_to(model.encoding.size)
    given = model.config.model.intercept_centre is not None
    pieces = f", constant between {', '.join(f'{cut:g}' for cut in model.cuts)}: logarithms walk, sd ~ HalfNormal(1)"
    of_family = {"weibull": ", log shape ~ N(0, 1)", "exponential": ", constant", "piecewise": pieces}[model.family]
    yield f"hazards  one baseline for all clients{of_family}"
    if not given:
        yield "unit     of time: how long rows were seen for one event; each client tells its events, and how long it saw rows"
    yield "curvature what a client sends tells X'WX of its rows, and whose events they are: one with at most"
    yield f"         {wanted} events, while {LEAST_AT_RISK} rows are at risk, is none of this job; one without any may be, and"
    yield "         adds how long its rows were seen"


def _levels(model: Model) -> Iterator[str]:
    """Of the response's levels, and what is told of them."""
    listed = (", " if model.nominal else " < ").join(model.levels)
    against = f"; each but {model.levels[0]!r} has {model.encoding.size} coefficients" if model.nominal else ""
    yield f"levels   {listed}{against}"
    config = model.config
    least = alike.of_a_level(config, alike.asked(config, config.row.name, config.data.least_rows or 0))
    few = f"; one that has a level in some rows, and in fewer than {least}, is none of this job" if least > 1 else ""
    yield f"         each client tells how many of its rows have each{few}"


def _priors(model: Model) -> str:
    m = model.config.model
    said = f"coefficients ~ N(0, {m.prior_sd:g}^2) in standard deviations of their columns{_of_response(model)}"
    if model.layout.ordered:
        centre = "its pooled level" if m.intercept_centre is None else f"{m.intercept_centre:g}"
        return f"{said}, first threshold ~ N({centre}, {m.intercept_sd:g}^2), log gaps ~ N(0, {GAP_SD:g}^2)"
    if model.nominal and m.intercept and m.intercept_centre is None:
        return f"{said}, intercepts ~ N(log of pooled shares over the first's, {m.intercept_sd:g}^2)"
    if not m.intercept:
        return f"{said}, no intercept"
    centre = "the response's pooled level" if m.intercept_centre is None else f"{m.intercept_centre:g}"
    return f"{said}, intercept ~ N({centre}, {m.intercept_sd:g}^2)"


def _of_response(model: Model) -> str:
    return " x the response's" if model.measured else ""


def _effects(terms: Sequence[str]) -> str:
    slopes = [term for term in terms if term != INTERCEPT]
    return "an intercept" + (f" and slopes of {', '.join(slopes)}" if slopes else "")


def _rounds(model: Model) -> Iterator[str]:
    """How often each client is asked, and how much that is."""
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
    newton, of_draws = P * 8, settings.points * P * importance.WIDTH
    answer, values = (1 + P + P * (P + 1) // 2) * 8, settings.points * importance.WIDTH
    usual_in, usual_out = 10 * newton + of_draws, 10 * answer + values
    most_in, most_out = settings.newton * newton + settings.rounds * of_draws, settings.newton * answer + settings.rounds * values
    yield (
        f"rounds   about 10 to the mode (at most {settings.newton}) and 1 to 4 of draws (at most {settings.rounds}): about "
        f"{_size(usual_in)} to each client"
    )
    yield f"         and {_size(usual_out)} from it (at most {_size(most_in)} and {_size(most_out)})"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _privacy() -> Iterator[str]:
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield "         log-likelihoods, or gradients, at thousands of points say of its rows all that a summary says, and more"
