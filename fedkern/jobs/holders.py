"""Asks the data holders' policies about a job: where each holder's data are, before a header or a row of theirs is read.

Who runs the job learns which permission to ask the holder for, and nothing else of the holder's files: paths and numbers go to
the client's own folder, and to `fedkern check JOB --local FILE`. Other parties read only that a policy refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Literal, NamedTuple

from ..algorithms.core.messages import SERVER
from ..data.dialect import Dialect
from ..data.table import Table
from ..disclosure.requirement import Requirement
from ..disclosure.rules import NEAR_ROWS, Rules
from ..errors import HolderError, JobError, owned
from ..ground import Ground
from ..models.encoding import Spec
from ..privacy.accountant import Mechanism
from ..privacy.plan import Plan
from ..results.plain import Record
from ..transports.place import Place, carrier
from . import sketched
from .holding.binding import Account, Binding, account, bind, client_home
from .holding.budget import Books, Many, Near, Total, allowed_by
from .holding.columns import Rows
from .holding.policy import DataSet, Policy, Refusal, Use
from .keys import METHODS, C, JobConfig
from .parties import Parties, data_set, mark_of_rows
from .secret import SECRET, secret
from .site import Site

FIND = "the holder sees its policies with: fedkern check JOB --local FILE"
ACCOUNT = "federation"  # at the server, of jobs that protect clients


def use_of(config: JobConfig) -> Use:
    """Returns the kind of job, as a data holder sees it."""
    if not config.private:
        return "open"
    return "client-level" if config.unit == "client" else "private"


def source_of(config: JobConfig) -> str:
    """Returns the source of a job's noise; a job without noise counts as safe."""
    return "secure" if config.privacy is None else config.privacy.noise_source


def who(names: tuple[str, ...], party: int) -> str:
    """Returns a party's name, as an error begins."""
    return "the server" if party == SERVER else f"client {names[party]!r}"


def permit(config: JobConfig, parties: Parties, party: int, carrier: str | None = None, signed: Container[int] = ()) -> Binding:
    """Returns the policies that bind a client's data, or the server's own account, once every policy allows the job.

    `carrier` is the place of another package that carries the messages (`place.carrier`), if one does; `signed`: the clients that
    sign their keys of secure sums (`place.signers`). Raises HolderError: one does not, or cannot be read, or a policy is required
    and none binds.
    """
    use, source = use_of(config), source_of(config)
    if party != SERVER:
        name = who(parties.names, party)
        binding = _allowed(name, parties.names[party], parties.holding(party), use, source)
        if refusal := _refusals(config, binding, parties.site(party), carrier, signed=party in signed):
            raise refused(name, *refusal)
        return binding
    for data in parties.own:  # the rows of a server's file get no noise in any job
        _allowed("the server", "server", data, "open", source, must="asked")
    if use != "client-level":
        return Binding("server", DataSet(()))
    return _allowed("the server", ACCOUNT, DataSet((ACCOUNT,)), "private", source, must="never")


def permit_all(
    config: JobConfig, parties: Parties, here: Iterable[int], carrier: str | None = None, signed: Container[int] = ()
) -> dict[int, Binding]:
    """Returns the policies that bind each party that lives here, once all of them allow the job; nothing is kept."""
    return {party: permit(config, parties, party, carrier, signed) for party in here}


def in_one_process(place: Place) -> bool:
    """Whether all parties are this process, and no other package carries their messages."""
    return place.size == 1 and carrier(place) is None


def alone(config: C, place: Place, bindings: Mapping[int, Binding]) -> C:
    """Returns the job as it is at this place: where all rows are in one process, and no policy binds them, nothing leaves it.
    Raises JobError: the job's level is "none", and its rows are not in one process, or a policy binds them."""
    bound_by_policy = any(binding.policies for binding in bindings.values())
    if in_one_process(place) and not bound_by_policy:
        return config.in_one_process()
    if config.disclosure.level == "none":
        why = "a policy binds some of them" if bound_by_policy else "parties are apart"
        raise JobError(
            f'disclosure.level = "none" is for jobs whose rows are all in one process, bound by no policy, and here {why}: '
            'remove it, or take "standard"'
        )
    return config


def bound(config: JobConfig, policies: Iterable[Policy], *, signed: bool = False) -> Requirement:
    """Returns what is asked of a client's rows, with the rules of the policies that bind them: the stricter one of each.

    Where the client signs (`place.signers`), and its holder refuses jobs that differ by little, the job's rules on sums are
    judged on all clients' rows together. What a policy asks is asked of the client's own.
    """
    policies, rules = tuple(policies), Rules()
    for policy in policies:
        rules = rules.with_strictest(policy.rules)
    requirement = config.requirement.bound_by(rules)
    summed = signed and config.secure and requirement.additive and rules == Rules() and refuses_near(policies)
    return replace(requirement, summed=summed)


def refuses_near(policies: Iterable[Policy]) -> bool:
    """Tells whether a holder forbids jobs that differ by little from an earlier one: of two sums over all clients but for one the
    difference is that client's own."""
    return _strict(policies) is not None


def _refusals(config: JobConfig, binding: Binding, site: Site, place: str | None, *, signed: bool) -> Refusal | None:
    """Returns all for which a job of an allowed kind is refused, at once; None if it is not.

    `place` is that of another package which carries the messages.
    """

    def found(policy: Policy) -> Iterator[Refusal | None]:
        yield policy.refuses_less(config.disclosure.model_dump(exclude_none=True))
        if config.singles_out:
            yield policy.refuses_values()
            yield policy.refuses_single_values() if config.singly else None
        if config.factory is not None:
            yield policy.refuses_factory(config.factory)
        if config.most_ids is not None:
            yield policy.refuses_ids(config.most_ids)
        if config.extendable or config.extends:
            yield policy.refuses_extension(now=not config.extendable)
        if use_of(config) == "open" and config.data.dialect.missing and site.dialect is None:
            yield policy.refuses_empty_words()
        if use_of(config) != "private":
            yield policy.refuses_sums(secure=config.secure, signed=signed)
        if config.job.method not in METHODS:
            yield policy.refuses_method(config.job.method)
        if place is not None:
            yield policy.refuses_place(place)

    return binding.refused_by(found)


def _strict(policies: Iterable[Policy]) -> Policy | None:
    """Returns the first of a holder's policies that forbids jobs which differ by little from an earlier one."""
    return next((policy for policy in policies if policy.differencing == "refuse"), None)


def asked(config: JobConfig, parties: Parties, party: int, binding: Binding, rows: Table, spec: Spec) -> list[str] | None:
    """Notes which rows an open job asks for, before the job learns anything of them.

    It does so where a policy forbids jobs that differ by little.

    Returns
    -------
    why the policy refuses them, for the holder alone; None where none forbids such jobs
    """
    where = standing(binding, parties.names[party]) if use_of(config) == "open" and _strict(binding.policies) else None
    if where is None:
        return None
    books, key = Books(where), secret(where.folder, ground=where.ground)
    mine = sketched.rows_of(config, rows, spec, key)
    near, many = books.ask(_asking(config, party), mine), books.many(mine, config.disclosure.jobs)
    return [*_said(near), *([_many(many)] if many.refused else [])]


def _asking(config: JobConfig, party: int) -> str:
    """Returns the name of a job that has no run yet."""
    return f"{config.digest[:32]}-{party}"


def differing(name: str, policies: Iterable[Policy], near: Iterable[Near], many: Many | None = None) -> list[str]:
    """Returns warnings for a holder about earlier jobs on its data that differ by little from this one, or that are many.

    Their clients were the same but for one or two, or their rows, or a column, were the same but for a few. Raises HolderError: a
    policy forbids such a job. Others read one sentence, whichever it was: how its rows are read must not show.
    """
    texts, policies = _said(near), tuple(policies)
    too_many = [_many(many)] if many is not None and many.told else []
    if why := [*texts, *(too_many if many is not None and many.refused else [])]:
        refuse(name, policies, why)
    return [*texts, *too_many]


def refuse(name: str, policies: Iterable[Policy], why: list[str]) -> None:
    """Refuses a job (HolderError) where a policy forbids jobs that differ by little from an earlier one.

    `why` is for the holder alone. All others read the same, whether rows are few or differ by few, or columns do: each answer
    that depends on them would be a count, one bit a job.
    """
    if strict := _strict(policies):
        ask = (
            "the clients are those of an earlier job on its data but for one or two, or the rows that count are the same but "
            "for a few, or a column is, or fewer or more alike than are asked for, or many jobs were run on them; take the same "
            "clients, read their rows as before, or ask the holder which it is, and to allow it ([disclosure] differencing)"
        )
        raise refused(name, ask, f"{strict.file}: {'; '.join(why)}")


def _said(near: Iterable[Near]) -> list[str]:
    """Returns the texts for a holder about earlier jobs that differ by little from this one."""
    clients, rows = dict[frozenset[str], list[str]](), dict[bool, list[str]]()  # when each of one kind was
    columns = dict[tuple[str, str], list[str]]()
    for job in near:
        for pair in job.columns:
            columns.setdefault(pair, []).append(job.when)
        if job.clients:
            clients.setdefault(job.clients, []).append(job.when)
        if job.rows:
            rows.setdefault(job.begun, []).append(job.when)
    return [
        *starmap(_few_clients, clients.items()),
        *starmap(_few_rows, rows.items()),
        *starmap(_few_of_column, columns.items()),
    ]


TELLS = "what was told once in both tells, subtracted, what is theirs alone"


def _few_clients(names: frozenset[str], when: list[str]) -> str:
    """Says by which clients earlier jobs differ from this one."""
    but = " and ".join(map(repr, sorted(names)))
    return f"the clients of {_earlier(when)} were those of this one but for {but}: {TELLS}"


def _few_rows(begun: bool, when: list[str]) -> str:
    """Says that earlier jobs differ from this one by few rows."""
    earlier, tells = _earlier(when), TELLS
    if not begun:
        earlier, tells = f"{earlier}, begun or refused,", "whether each has enough rows tells what is theirs alone"
    return f"the rows that counted in {earlier} were those of this one but for fewer than {NEAR_ROWS}: {tells}"


def _few_of_column(pair: tuple[str, str], when: list[str]) -> str:
    """Says that a column of earlier jobs differs from one of this job in few rows."""
    column, before = pair
    same = f"column {column!r} was" if column == before else f"column {column!r} is column {before!r}"
    return f"{same} of {_earlier(when)} but in fewer than {NEAR_ROWS} rows: {TELLS}"


def _many(many: Many) -> str:
    """Says how many jobs with other columns were run on the same rows."""
    return (
        f"with this one {many.jobs} open jobs make other columns of the same rows ([disclosure] jobs = {many.most}): sums of "
        "several can tell a row that no two of them tell"
    )


def _earlier(when: list[str]) -> str:
    """Names one earlier job by its time, and counts several."""
    if len(when) == 1:
        return f"an earlier job on these data ({when[0]})"
    return f"{len(when)} earlier jobs on these data ({min(when)} to {max(when)})"


def permit_accounts(config: JobConfig, parties: Parties, bindings: Mapping[int, Binding], *, alone: bool) -> None:
    """Refuses a job (HolderError) as its run would: by the account of a party's data, or by a too similar earlier job.

    Nothing is kept. `alone`: whether all parties are this process, so that its terminal is the holder's.
    """
    use = use_of(config)
    for party, binding in bindings.items():
        if not (use == "client-level" if party == SERVER else needed(use, binding)):
            continue
        name = who(parties.names, party)
        with between(parties.names, party, alone=alone):
            where = standing(binding, ACCOUNT if party == SERVER else parties.names[party])
            if where is None:
                continue
            books = Books(where)
            books.look(own=True)
        if use == "open" and _strict(binding.policies):
            others = {*parties.names} - {parties.names[party]}
            # Names alone are compared first: rows are read only where these do not refuse the job.
            differing(name, binding.policies, books.near("", others))
            if config.most_ids is not None:  # which rows count is known once the parties have met
                continue
            with owned(party):
                rows = parties.rows(party)
            if (known := known_rows(config, books, rows, parties.spec_of(rows.names))) is not None:
                many = books.many(known, config.disclosure.jobs)
                differing(name, binding.policies, books.near("", others, known), many)


@contextmanager
def between(names: tuple[str, ...], party: int, *, alone: bool) -> Iterator[None]:
    """Reports the fault of an account to others, in a check, as `unusable` has it."""
    try:
        yield
    except HolderError:
        raise
    except JobError as fault:
        error = unusable(who(names, party), fault, None)
        raise error if alone else HolderError(f"{error.told}. ({FIND})", error.told, error.detail) from None


def standing(binding: Binding, name: str) -> Account | None:
    """Returns where a party's account outlives the run: with a policy that binds, else in its own folder, if it has one."""
    if (place := account(binding)) is not None or (home := client_home()) is None:
        return place
    return Account(home / name, (*binding.data.names, name)[0], ground=Ground(home), files=binding.data.paths)


def needed(use: Use, binding: Binding) -> bool:
    """Tells whether a run looks into a client's account in such a job."""
    return use == "private" or binding.bound != () or (use == "open" and client_home() is not None)


def known_rows(config: JobConfig, books: Books, rows: Table, spec: Spec) -> Rows | None:
    """Returns the sketches of a client's rows; None where its holder has no secret yet, so that no earlier job can have any."""
    home = books.account.folder
    if not (home / SECRET).exists():
        return None
    return sketched.rows_of(config, rows, spec, secret(home, ground=books.account.ground))


def joined_before(config: JobConfig, binding: Binding, name: str, rows: Table, spec: Spec) -> dict[str, frozenset[str]]:
    """Returns the levels of a client's columns that joined in the first open job on nearly these rows."""
    if (where := standing(binding, name)) is None:
        return {}
    books = Books(where)
    books.look(own=True)
    known = known_rows(config, books, rows, spec)
    return {} if known is None else books.joined(known)


def _allowed(
    name: str, client: str, data: DataSet, use: Use, source: str, must: Literal["named", "asked", "never"] = "named"
) -> Binding:
    try:
        binding = bind(client, data, must=must)
    except JobError as fault:
        raise refused(name, "one of its policy files cannot be used; ask the holder to mend it", str(fault)) from None
    if refusal := binding.refusal(use, source):
        raise refused(name, *refusal)
    return binding


def refused(name: str, ask: str, detail: str) -> HolderError:
    """Returns the error of a policy's refusal."""
    public = f"{name}: refused by the holder's policy"
    return HolderError(f"{public}: {ask}. ({FIND})", public, detail)


def check_mechanism(name: str, policies: Iterable[Policy], mechanism: Mechanism) -> None:
    """Refuses noise that a policy does not allow (HolderError)."""
    for policy in policies:
        if refusal := policy.refuses(mechanism):
            raise refused(name, refusal.ask, f"{policy.file}: does not allow {refusal.detail}")


def check_table(name: str, drawn: Mechanism, plan: Plan) -> None:
    """Refuses an existing noisy table that the job may not use, by public numbers alone (HolderError)."""
    spent = drawn.nominal_epsilon(1, plan.delta)
    least, why = f"{spent:.6g}", ""
    if drawn.clip != plan.mechanism.clip:
        why = f"for cases_per_person = {drawn.clip:g}, and the job has {plan.mechanism.clip:g}"
    elif spent > plan.epsilon:
        why = f"at epsilon = {least}, which is more than the job's, {plan.epsilon:g}"
    if why:
        text = f"{name}: its noisy table of this name was drawn {why}; take that, or another privacy.table, which is paid for"
        raise HolderError(text, text, text)


def unpaid(name: str, plan: Plan) -> HolderError:
    """Returns the error for others where a budget does not pay for a noisy table."""
    text = f"{name}: its budget does not pay for a noisy table at epsilon = {plan.epsilon:g}"
    ask = "take one that it has (privacy.table), or a smaller epsilon, or ask the holder"
    return HolderError(f"{text}; {ask}. ({FIND})", text, f"{text}: what its policy allows over all jobs is nearly spent")


def unusable(name: str, fault: JobError, where: Path | None) -> HolderError:
    """Returns the error of an account for others, without its paths and lines; `where`: the holder reads these there."""
    public = f"{name}: the account of its data cannot be used"
    return HolderError(f"{public}: {fault}" if where is None else f"{public}; why: {where}", public, str(fault))


def warnings(binding: Binding, fingerprint: Callable[[], str | None]) -> list[str]:
    """Returns where the data's fingerprint and a policy's disagree. It is computed only where a policy has one."""
    out: list[str] = []
    marked = [policy for _, file in binding.files for policy in file.policies if policy.fingerprint]
    changed = "the data are not those for which [data.{}] of the policy was written"
    out += [changed.format(p.data) for p in marked if p.of_rows and p in binding.policies and not p.marks(binding.data)]
    marked = [policy for policy in marked if not policy.of_rows]
    mark = fingerprint() if marked else None
    for policy in marked if mark else ():
        binds, same = policy in binding.policies, policy.fingerprint == mark
        if binds and not same:
            out.append(changed.format(policy.data))
        elif same and not binds:
            out.append(f"the data are those for which [data.{policy.data}] of a policy was written, but it does not name them")
    return out


def lost(binding: Binding) -> Iterator[str]:
    """Yields paths of this holder's policies at which no file exists: such a policy may bind no data, unnoticed."""
    for where, file in binding.files:
        for policy in file.policies if where != "other" else ():
            for path in policy.lost:
                yield f"{file.path}, [data.{policy.data}]: {path} is not there, so it binds nothing; correct the path"


SPENT = (
    "the budget that the policy allows on these data over all jobs does not pay for what this job asks next, though the job's "
    "own epsilon would: it takes no further part; fedkern budget lists what was spent"
)

ANY_FACTORY = (
    "without a policy a job may have any function of any installed package run on these rows (model.factory); require = true in "
    'a policy refuses that, and factories = ["package.module:function"] lists what may be run'
)


class Standing(NamedTuple):
    """Describes the state of a holder's account.

    `total`: of all jobs, None where this one needs no account; `new`: whether it is the first; `goes_on`: whether it has lines of
    this run from an earlier start; `table`: the budgets' name of the noisy table that the job uses.
    """

    books: Books
    total: Total | None = None
    new: bool = False
    goes_on: bool = False
    table: str = ""


def statement(account: Standing, warnings: list[str]) -> Record:
    """Returns the statement of an account for the client's own folder."""
    books = account.books
    return {
        "data": books.account.data,
        "budget": str(books.ledger.path),
        "policies": [described(policy) for policy in books.account.policies],
        "new": account.new,
        "looked_in": [str(ledger.path) for ledger, _ in books.all],
        "total": None if account.total is None else asdict(account.total),
        "warnings": warnings,
        **({"table": account.table} if account.table else {}),
    }


def described(policy: Policy) -> str:
    """Returns a policy in one line."""
    cap = "no cap" if policy.delta is None else f"epsilon {policy.epsilon:g} at delta {policy.delta:g}"
    noise = f", noise multiplier at least {policy.least_noise:g}" if policy.least_noise else ""
    kinds = f"open jobs {'yes' if policy.open else 'no'}, client-level jobs {'yes' if 'client' in policy.units else 'no'}"
    rules = ", ".join(f"{name} {value:g}" for name, value in policy.disclosure.items() if name != "level")
    few = f', at level "{policy.disclosure["level"]}" or a stricter one' if "level" in policy.disclosure else ""
    few += f", with at least {rules}" if rules else ""
    few += "" if policy.lower else ", none with smaller numbers of its own"
    strict = ", none with nearly the clients, rows or a column of an earlier one, nor with its own words for empty cells"
    few += strict if policy.differencing == "refuse" else ""
    few += ", others read the names of rules that refuse rows" if policy.tell == "rules" else ""
    few += f", at most {policy.jobs} on the same rows" if policy.jobs is not None and strict in few else ""
    few += {"any": "", "secure": ", secure sums", "signed": ", secure sums with signed keys"}[policy.sums]
    few += ", but for single values of output.without" if policy.sums_except else ""
    few += f", own models of {', '.join(policy.factories)}" if policy.factories else ""
    return f"{policy.file}, [data.{policy.data}]: {cap}; noise {' or '.join(policy.noise_sources)}{noise}; {kinds}{few}"


def of_file(parties: Parties, path: Path, dialect: Dialect) -> tuple[str, DataSet]:
    """Returns which client a file is, and the names that policies may give it."""
    data = replace(data_set(path), mark=partial(mark_of_rows, path, dialect))
    for k in range(parties.n_clients):
        if path.exists() and any(known.exists() and known.samefile(path) for known in parties.holding(k).paths):
            return parties.names[k], replace(data, policy=parties.site(k).policy)
    return data.names[0], data


class Verdict(NamedTuple):
    """Tells a holder about a job and its own file: lines, and whether the job would take the file."""

    lines: list[str]
    allowed: bool


def local(
    config: JobConfig,
    parties: Parties,
    path: Path,
    rows: Table,
    dialect: Dialect,
    plan: Callable[[str], Plan | None],
    few: Callable[[str, Iterable[Policy]], str | None],
    faults: str | None = None,
) -> Verdict:
    """Tells the holder of a file which policies bind it, whether the job takes it, where its budget lies, and how much is spent.

    Parameters
    ----------
    rows : the rows of the file
    plan : client -> the plan by which the job may spend its budget; None where it takes nothing of it
    few : client, its policies -> why its rows are too few, if they are
    faults : other reasons that would end the job
    """
    # A policy that cannot be read refuses everything, so nothing else is looked at.
    client, data = of_file(parties, path, dialect)
    try:
        binding = bind(client, data)
    except JobError as fault:
        return Verdict([f"  policy  {fault}; until this is mended every job is refused"], False)
    lines = [f"  policy  {described(policy)}" for policy in binding.policies]
    lines += [f"  policy  {text}" for text in lost(binding)]
    if not binding.bound:
        files = ", ".join(str(file.path) for _, file in binding.files)
        lines.append("  policy  none names this file" + (f" ({files})" if files else ""))
        lines += [f"  note: {ANY_FACTORY}"] if config.factory is not None else []
    site = parties.site(parties.names.index(client)) if client in parties.names else Site()
    refusal = binding.refusal(use_of(config), source_of(config))
    refusal = refusal or _refusals(config, binding, site, None, signed=site.signing_key is not None)  # as between organisations
    # An account that cannot be used would end the run: it is a refusal here too.
    books, budget, broken = None, "", ""
    try:
        where = standing(binding, client)
        if where is not None and (binding.bound or needed(use_of(config), binding)):
            books = Books(where)
            books.look(own=True)
            budget = f"{books.ledger.path}: {books.total(1e-5).text() if books.known() else 'no job yet'}"
    except (JobError, ValueError) as fault:
        budget, broken = str(fault), "the account of these data cannot be used"
    # The policy's reason comes first: it holds whatever the rows are.
    no = (refusal.detail if refusal else None) or few(client, binding.policies) or broken
    try:
        if not no and books is not None and use_of(config) == "open":
            others = {*parties.names} - {client}
            known, near = known_rows(config, books, rows, parties.spec_of(rows.names)), list[Near]()
            if known is not None and _strict(binding.policies) and client in parties.names:
                near = books.near_rows(_asking(config, parties.names.index(client)), known)
            near = books.near("", others, known) or near
            many = None if known is None else books.many(known, config.disclosure.jobs)
            lines += [f"  note: {text}" for text in differing(client, binding.policies, near, many)]
        planned = plan(client) if not no and client in parties.names else None
        no = no or _denial(binding, planned)
        answer = "" if no else _answer(binding, books, planned)
    except HolderError as fault:
        no = fault.detail
    except (JobError, ValueError) as fault:
        no = str(fault)
    no = no or faults or ""  # of cells: they would end an allowed job too
    lines.append(f"  this job, as client {client!r}, is {f'refused: {no}' if no else answer}")
    lines += [f"  budget  {budget}"] if budget else []
    return Verdict(lines, not no)


def _denial(binding: Binding, plan: Plan | None) -> str:
    """Returns why a policy does not allow the plan's mechanism; "" where all do."""
    if plan is None:
        return ""
    for policy in binding.policies:
        if refusal := policy.refuses(plan.mechanism):
            return f"{policy.file}: does not allow {refusal.detail}"
    return ""


def _answer(binding: Binding, books: Books | None, plan: Plan | None) -> str:
    """Returns the answer of policies that allow this job, and how many updates their budget still pays for."""
    if plan is None:
        return "allowed"
    others = () if books is None else books.parts()
    left = min((allowed_by(policy, plan.mechanism, others, plan.planned) for policy in binding.policies), default=plan.max_steps)
    fits = replace(plan, max_steps=min(plan.max_steps, left))
    if not fits.paid:
        need = plan.first + plan.update
        return f"allowed, but not one update fits what is left of the budget: the first takes {need} steps, and {left} are left"
    if fits.paid < plan.paid:
        return f"allowed, and what is left of the budget pays for {fits.paid} of the {plan.paid} updates"
    return "allowed"
