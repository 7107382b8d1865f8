"""Lists the exchanges of a partitioned job, and makes the text of `fedkern check`: model, spending, and every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...algorithms.exchanges import arrival as arrivals
from ...algorithms.exchanges import column_notes, column_sums, level
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges.answers import Certificate
from ...algorithms.exchanges.sums import Incomplete, PearsonSums
from ...algorithms.pvi import global_vi, noise_aware
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi.messages import Readmitted, Stored, looks
from ...data.design import check_header, describe, encode
from ...data.dialect import stem
from ...disclosure import describe as described
from ...finding import Finding
from ...jobs import incomplete, joining, memory, secure, wire
from ...jobs.check import Check, OwnFile, Said
from ...jobs.formula import agreeing
from ...jobs.said import Line
from ...jobs.stage import Stage
from ...privacy.certificate import describe_trust
from ...privacy.plan import Plan
from . import arrival, budget, case_weights, linear, linearised, response
from .keys import Config
from .model import Model

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *joining.MAY_SEND,
    *column_notes.PROTOCOL.to_server,
    *Incomplete.may_send,
    *level.PROTOCOL.to_server,
    *pvi.PROTOCOL.to_server,
    *pvi.SCALED.to_server,
    Stored,
    *global_vi.protocol(private=False).to_server,
    *arrivals.Slope.may_send,
    *PearsonSums.may_send,
    *noise_aware.PROTOCOL.to_server,
    *Certificate.may_send,
    *secure.MAY_SEND,
    *(declared.masked for declared in (*column_sums.SUMS, *level.SUMS, *pvi.SUMS)),
)


def has_secret_batches(config: object) -> bool:
    """Tells whether clients alone know which rows were in the batches of a job."""
    return isinstance(config, Config) and config.secret_batches


def opening(config: Config) -> list[Stage]:
    """Returns the exchanges before the model is known, in which parties agree on columns."""
    return agreeing.opening(config.formula)


def stages(model: Model) -> list[Stage]:
    """Returns the exchanges once the columns are agreed."""
    open_job = model.privacy is None
    notes = [Stage.of(column_notes)] if open_job else []
    sums = [noisy_sums(model)] if model.with_noise else []
    before = [*incomplete.stages(model.config), *notes, *response.stages(model)]
    of_response, judged = response.after(model.given), arrival.stage(model)
    after = [] if judged is None else [judged]
    after += case_weights.stages(model)
    return [
        *before,
        trained(model),
        *of_response,
        *sums,
        *after,
        *([] if open_job or model.by_client else [Stage.asking(Certificate)]),
    ]


def trained(model: Model) -> Stage:
    """Returns the stage of the rounds."""
    settings = model.settings
    by_chance = settings.schedule in ("random", "asynchronous") and not model.by_client
    in_turn = settings.schedule in ("random", "sequential") and not (model.by_client or model.one_posterior)
    d = model.encoding.size
    sizes = settings.sizes(d) | ({"t": d * (d + 1) // 2} if settings.until else {})
    of_slopes = (arrivals.AskSlope, arrivals.Slope)
    late = dict.fromkeys(of_slopes, len(looks(settings.rounds or 0))) if settings.until else {}
    if settings.lead and settings.rounds:  # nobody is further ahead of the slowest, who has the rounds
        by_chance = False
        most = dict.fromkeys((*model.protocol.to_client, *model.protocol.to_server), settings.rounds + settings.lead)
        late = most | late
    late |= dict.fromkeys((Readmitted, Stored), 0)  # but in a run that goes on
    # Nothing ends these rounds but their number; budgets and what has settled end others.
    kept = settings.schedule == "asynchronous" and not model.by_client
    fixed = not (settings.until or by_chance or model.privacy or kept)
    stage = Stage(
        model.protocol, sizes, rounds=settings.rounds, resumable=True, times=late, by_chance=by_chance, in_turn=in_turn,
        trips=settings.rounds if fixed else None, agreed=model.agreed if kept else None,
    )  # fmt: skip
    return stage.with_sums(pvi.SUMS, secure=model.secure)


def noisy_sums(model: Model) -> Stage:
    """Returns the stage after the rounds in which clients tell the sums of their noisy gradients."""
    return Stage(noise_aware.PROTOCOL, {"d": model.encoding.size})


def check_job(check: Check[Config]) -> Said | None:
    """Returns the text of `check` and the numbers behind it, at the server's place; None elsewhere."""
    encoding = check.agreed()
    notes = check.notes(intercept=check.config.model.intercept)
    if encoding is None:
        return None
    if (test := check.parties.test()) is not None:
        check_header(test.names, encoding, test.source)
    model, unknown = Model(check.config, check.names, encoding), check.unknown(encoding)
    missing, bytes_needed = incomplete.describe_missing(check.config), memory.describe_memory(*_memory(model))
    notes = [*notes, *(Line("note", note) for note in (*linear.of_file(model), *linear.notes(model)))]
    sums = [*secure.describe(check.place, check.names)] if model.secure else []
    lines = [*_lines(model, bool(unknown)), *sums, *missing, *bytes_needed, *notes, "", *_privacy(model)]
    plans = {} if model.privacy is None else {name: model.plan(name) for name in spenders(model)}
    return Said(model, lines, unknown, plans, model.load if check.config.job.device == "cuda" else None)


def spenders(model: Model) -> Sequence[str]:
    """Returns the names of the budgets: each client's, or the federation's."""
    return ["the federation"] if model.by_client else model.names


def look_through(file: OwnFile[Config]) -> list[str]:
    """Raises JobError for anything else in this file that would end a run; returns what a private job would say of its rows.

    There rows.json says it only once epsilon is spent.
    """
    if not file.spec.private:
        describe(file.table, file.spec)
        return []
    client = stem(file.path)
    model = Model(file.config, (client,), agreeing.centred(file.config, file.encoding))
    X = encode(file.table, model.encoding, private=True, client=client).X
    return [f"  note: {note}" for note in linearised.describe_rows(model, client, X)]


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns the plan of one client's budget; None where the job takes nothing of it."""
    if file.config.privacy is None or file.config.unit == "client":
        return None
    return budget.plan(file.config.spending, client, budget.Sizes(file.encoding.size, len(names)))


def _lines(model: Model, unknown: bool) -> Iterator[str]:
    """Yields job, model, clients and columns, some of which may turn out to be categorical."""
    config = model.config
    a, d = config.algorithm, model.encoding.size
    schedule = "synchronous" if model.by_client else a.schedule
    yield f"job      {config.job.method}, variant {a.variant}, {schedule}, {_rounds(model)}, seed {model.seed}"
    if model.privacy is None:
        yield f"advice   {Finding.of('likelihood-asks-more')}"
    yield f"model    {model.family}, {model.covariance} covariance, {model.given.words}"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    more = "; more if columns turn out to be categorical" if unknown else ""
    trials = f", successes of {model.trials} trials" if model.trials else ""
    yield f"columns  {d} coefficients{more}; response {model.encoding.response}{trials}"
    yield from described.curvature(config.requirement, d)
    if a.variant == "pvi" and (clip := linear.of_clip(model)):
        yield Line("clip", clip)
    yield from (Line("clip", note) for note in linearised.of_clip(model))


def _rounds(model: Model) -> str:
    """Says how many rounds the job has, and what ends them."""
    s, rounds = model.settings, model.rounds
    if not s.until:
        return f"rounds = {rounds}"
    rounds_of_looks = ", ".join(map(str, looks(s.rounds or 0)))
    return f"rounds until q is where the posterior of all rows is, at most {rounds} (asked after {rounds_of_looks})"


def _memory(model: Model) -> tuple[float, float]:
    """Returns the bytes of a model's precision matrices, at the server and at a client."""
    if model.covariance != "full":
        return 0.0, 0.0
    d2 = float(model.encoding.size) ** 2
    return memory.NUMBER * d2 * (8 + 2 * len(model.names)), memory.NUMBER * d2 * 8


def _privacy(model: Model) -> Iterator[str]:
    """Yields a table of the budgets: mechanism, cap, and planned steps of each."""
    if model.privacy is None:
        yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
        return
    source = model.privacy.noise_source
    yield f"privacy  plan, {source} noise" + ("" if source == "secure" else ": for experiments, epsilon is infinite")
    head = ("client", "sampling", "noise/clip", "clip", "delta", "cap", "updates", "steps", "epsilon")
    rows = []
    for name in spenders(model):
        plan = model.plan(name)
        m = plan.mechanism
        rate = f"{m.sampling} {m.rate:.4g}" if m.rate < 1 else m.sampling
        epsilon = f"{plan.spent:.4g}" if m.secure else f"inf (secure: {plan.spent:.4g})"
        steps = plan.steps
        values = (
            "(all)" if model.by_client else name,
            rate,
            f"{m.sigma:.4g}",
            f"{m.clip:g}",
            f"{plan.delta:g}",
            f"{plan.epsilon:g}",
            plan.paid,
            steps,
            epsilon,
        )
        rows.append([str(v) for v in values])
    yield from wire.laid_out(head, rows)
    yield f"         neighbours: {plan.mechanism.neighbours}; by the {plan.mechanism.accountant} accountant"
    yield f"         trusts {describe_trust(plan.mechanism)}"
    if model.by_client and plan.mechanism.rate < 1:
        more = f"{1 / plan.mechanism.rate:.3g}"
        yield f"         every client works in every round, so that nobody sees whose work counts: {more} times the work"
