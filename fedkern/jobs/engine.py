"""Runs a whole job of any method, and checks it before. The same code serves one process and every rank of an MPI job.

| command | function |
|---|---|
| `fedkern run` | `perform` |
| `fedkern check` | `run_check`, by `looked_at` |
| `fedkern check --local FILE` | `local` |

They enter a method by its doors: `method.rows`, `method.stages` and `method.run`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from threadpoolctl import threadpool_limits

from ..algorithms.core.messages import SERVER
from ..algorithms.exchanges import column_notes
from ..algorithms.exchanges.compare import spelled
from ..data import far, table
from ..data.design import check_header, encode, with_event
from ..data.dialect import Dialect, stem
from ..data.faults import Refusals, Refused
from ..data.formula import of_file
from ..disclosure import describe as described
from ..disclosure import few
from ..errors import JobError, owned
from ..printing import printable, toml_key
from ..results import guard
from ..results.result import Result
from ..transports.place import carrier, signers
from . import admitted, devices, holders, incomplete, joining, secure
from .check import Check, OwnFile, Said, own_columns
from .files import RunFolder
from .formula import laid
from .holding.binding import bind
from .holding.policy import Policy
from .hooks import RunHooks
from .identity import job_bytes
from .keys import C
from .limits import instructions
from .machine import cores
from .method import Method
from .parties import Parties, fingerprint, hide, mark_of_rows
from .publish import publish
from .run import Output, Part, Run, spec_of_agreement
from .site import Site
from .stage import Stage

LOG = logging.getLogger(__name__)
Form = Literal["brief", "messages", "verbose"]  # of the text of a check


def perform(method: Method[C], part: Part[C], output: Output) -> Result | None:
    """Does the work of this place (a process, or an MPI rank) in a job. Returns the result at the server's place, None
    elsewhere."""
    place, config = part.place, part.config
    # Follows "stopped by SIGINT" where a signal ends the work at once: until the first exchange that can be resumed.
    place.signals.advice = " before the first round; nothing is lost"
    parties = there(method, part)
    mine = place.mine(parties.n_clients)
    # All ranks must mean the same job before any of them asks a policy.
    agree(part, parties)
    used = devices.used(config.job.device, place, mine)
    # A client's site file may limit the threads of its kernels. A place has one number for all its clients, so the least limit
    # binds; without a number (None) it has all cores.
    limits = [site.threads for k in mine if (site := parties.site(k)).threads is not None]
    if limits:
        place.n_threads = min(place.n_threads or cores(), *limits)
    files = _files(part, parties, output)
    # The bits of a BLAS product depend on its number of threads: BLAS gets one, and only the project's kernels use several.
    # Until `place.hooks` is set below, others read of a fault by the hooks that the place had.
    with RunHooks(config, parties.names, files) as hooks, threadpool_limits(1, user_api="blas"):
        hooks.clients, hooks.warn = tuple(mine), output.warn
        if files is not None:
            files.own_ground(mine, resume=output.resume)
        # Policies may refuse the job, so they are read before a row is: a refused job has learnt nothing.
        hooks.permit(place, parties, quiet=output.quiet)
        config = hooks.config = holders.alone(config, place, hooks.bindings)
        part = replace(part, config=config)
        parties = joining.laid(config, parties, hooks.bindings, hooks.between_holder_and_job)
        kept = admitted.kept(place, config, parties, hooks.bindings, hooks.between_holder_and_job)
        # Clients that are left out read why in their own folders; those that go on get new numbers.
        if len(kept.numbers) < parties.n_clients:
            hooks.tell_left_out(kept)
            mine = admitted.leave_out(place, kept)
            files = _files(part, kept.parties, output)
            hooks.leave_out(kept, mine, files)
            if not mine and not place.is_server:
                place.hooks = hooks
                place.stand_by()  # does not return: it ends with the job
        else:
            hooks.notes += kept.notes
        parties = kept.parties
        hooks.apart = kept.apart
        # Each warning comes with a word, which only `run_check` prints.
        warned = [*admitted.renamed(config), *(text for _, text in admitted.first(config))]
        hooks.notes += warned
        if files is not None:
            # The folders are closed to other users before the identity of this run is written into them. Without a folder nothing
            # is kept, and no run can be resumed.
            files.close(mine, required=config.privacy is not None, there=output.resume)
            parties = hooks.begin(place, parties, resume=output.resume)
        if output.replays is not None:
            parties = hooks.replay(output.replays, parties)
        if place.is_server and not output.quiet:
            for text in (*warned, *admitted.describe_apart(config, kept)):
                print(f"fedkern: {text}", file=sys.stderr, flush=True)
        place.hooks = hooks  # from here on they decide what others read of a fault
        hooks.say_lost()
        # The holders' accounts (of earlier jobs, and of spent budgets) are looked into before the first message leaves.
        hooks.note_use()
        parties = hooks.counting(parties)
        # `used` is the device on which the clients that live here compute.
        known = (*secure.opening(config, place, parties.n_clients), *secure.closing(config, parties.n_clients))
        known += (*method.stages.opening(config), *joining.stages(config))
        run = Run(part, parties, known, hooks, output, method.stages.stages, used, summaries=kept.summaries)
        LOG.info("%s: %d clients, rank %d of %d", config.job.method, parties.n_clients, place.rank, place.size)
        # From the last round on no diagnostic ends the job: the result is published without those that fail.
        with guard.collecting() as faults:
            with devices.guarded(used.home):
                run = secure.begin(run)
                fit = method.run.fit(run)
                secure.end(run)
            if fit is not None and hooks.kept_answers is not None:
                fit = replace(fit, more={**fit.more, "answers": hooks.kept_answers})
            with owned(SERVER):
                result = None if fit is None else publish(run, fit)
        for party in faults.parties:
            LOG.warning("failed and left out: %s", ", ".join(faults.names(party)))
            if party in mine or (party == SERVER and place.is_server):
                hooks.keep_fault(party, faults.text(party))
        LOG.info("finished%s", "" if result is None else f": {printable(result.summary['verdict'])}")
        return result


def _files(part: Part[C], parties: Parties, output: Output) -> RunFolder | None:
    """Returns the run's folder, with a folder for each of these parties; None where nothing is written."""
    if output.folder is None:
        return None
    own_folders = part.config.output.own_folders(part.folder)
    return RunFolder(output.folder, parties.names, job_bytes(part.config, parties.names), own_folders)


def there(method: Method[C], part: Part[C]) -> Parties:
    """Returns the parties of a job; tables that the caller holds in memory stand for their files."""
    instructions()  # refuses those that this processor does not have
    parties = method.rows.parties(part.config, part.folder)
    return incomplete.laid(part.config, parties if part.held is None else part.held.over(parties))


def agree(part: Part[C], parties: Parties) -> None:
    """Refuses a rank whose job or clients differ from rank 0's, and too many ranks (JobError).

    The place learns the clients' names here.
    """
    # A formula is compared by itself: ranks may read it differently although their job files are the same, and the text says how.
    place = part.place
    place.names = parties.names
    if (heed := getattr(place, "heed_deadline", None)) is not None:
        heed(part.config.job.deadline)
    place.agree(f"{part.config.keys_alone} {' '.join(parties.names)}".encode())
    if part.config.read_alike:
        place.settle(json.dumps(part.config.read_alike).encode(), laid.alike)
    if place.size > 1 + parties.n_clients:
        most = 1 + parties.n_clients
        raise JobError(f"{place.size} ranks for a server and {parties.n_clients} clients; start at most {most}")


def run_check(method: Method[C], part: Part[C], latency: float | None = None, form: Form = "verbose") -> list[str] | None:
    """Returns the lines that `fedkern check` prints, at the server's place; None elsewhere.

    Parameters
    ----------
    latency : seconds of a request and its reply over a relay, for which the time of the job is printed, too
    form : all that is known; ten lines (`jobs.brief`); or these with the table of messages

    Raises
    ------
    JobError
        Something would end the job: for example ranks differ, a policy or an account refuses, a column is missing.
    """
    from . import brief, trips, wire  # what a check prints, no run needs

    rows: dict[str, int] = {}
    found, kept, opening, part = looked_at(method, part, rows)
    if found is None:
        return None
    parties = kept.parties
    # Each policy must allow the noise of the method's plan.
    n, here = parties.n_clients, [*part.place.mine(parties.n_clients), SERVER]
    over = carrier(part.place), signers(part.place, n)
    for party, binding in holders.permit_all(part.config, parties, here, *over).items() if found.plans else ():
        # A party without a plan of its own is in a job that has one plan: for all clients, or for the server.
        plan = found.plans.get("" if party == SERVER else parties.names[party]) or next(iter(found.plans.values()))
        holders.check_mechanism(holders.who(parties.names, party), binding.policies, plan.mechanism)
    # The list comes from the same stages as a run's exchanges, so that neither can have a message that the other lacks.
    stages = (*opening, *method.stages.stages(found.model), *secure.closing(part.config, n))
    most = max((plan.paid for plan in found.plans.values()), default=None)
    agreed_spec = spec_of_agreement(part.config, parties.spec)
    sent = wire.describe_messages(part.config, n, stages, agreed_spec, device=found.load is not None)
    listed = [*sent, *wire.totals(n, stages, parties.spec, most), *secure.describe_questions(stages)]
    if form != "verbose":
        short = brief.lines(brief.Facts(part.config, found, kept, rows, stages, agreed_spec, most), latency)
        return short if form == "brief" else [*short, "", *listed]
    encoding = getattr(found.model, "encoding", None)
    relayed = trips.count_trips(part.config, n, stages, parties.spec, most, encoding) if latency is not None else None
    waits = [] if relayed is None or latency is None else trips.describe_trips(relayed, latency)
    load = [] if found.load is None else devices.describe_device(found.load, part.place.size, n)
    first = [f"RENAMED  {text}" for text in admitted.renamed(part.config)]
    first += [f"{word:<9}{text}" for word, text in admitted.first(part.config)]
    least = [
        *laid.describe_formula(part.config.read_alike),
        *described.describe_few(part.config.requirement),
        *joining.describe(part.config),
        *(f"note     {note}" for note in kept.notes),
    ]
    return [*first, *found.lines, *least, *load, "", *listed, *waits, *wire.unknown(found.unknown)]


def looked_at(
    method: Method[C], part: Part[C], sizes: dict[str, int] | None = None
) -> tuple[Said | None, admitted.Kept, tuple[Stage, ...], Part[C]]:
    """Returns a method's answer on a job, the clients that take part, and the opening stages.

    The answer is None at all places but the server's. The last is the part with the job's level of disclosure control. `sizes`
    learns the number of rows of each client that lives here and whose rows are read. Raises JobError: as `run_check`.
    """
    place, config = part.place, part.config
    parties = _sized(there(method, part), {} if sizes is None else sizes)
    agree(part, parties)
    server = [SERVER] if place.is_server else []
    # A check has no hooks: `holders.between` reports a refusal as `RunHooks.between_holder_and_job` does, and writes nothing.
    here, signed = [*place.mine(parties.n_clients), *server], signers(place, parties.n_clients)
    bindings = holders.permit_all(config, parties, here, carrier(place), signed)
    if not part.apart:
        config = holders.alone(config, place, bindings)
        part = replace(part, config=config)
    between = partial(holders.between, parties.names, alone=place.size == 1)
    parties = joining.laid(config, parties, bindings, between)
    kept = admitted.kept(place, config, parties, bindings, between)
    if len(kept.numbers) < parties.n_clients and not admitted.leave_out(place, kept) and not place.is_server:
        place.stand_by()  # does not return
    parties = kept.parties
    # Clients that stay have new numbers from here on.
    bindings = {now: bindings[k] for now, k in [*enumerate(kept.numbers), *((k, k) for k in server)] if k in bindings}
    holders.permit_accounts(config, parties, bindings, alone=place.size == 1)
    opening = (*secure.opening(config, place, parties.n_clients), *method.stages.opening(config), *joining.stages(config))
    # A check of an open job exchanges notes on columns too; in a run they are one of `method.stages.stages`.
    notes = (Stage.of(column_notes),) if config.privacy is None else ()
    check = Check(part, parties, (*opening, *notes), summaries=kept.summaries)
    return method.stages.check_job(check), kept, opening, part


def _sized(parties: Parties, sizes: dict[str, int]) -> Parties:
    """Returns the parties; numbers of rows are written down as tables are read."""

    def rows(k: int) -> table.Table:
        read = parties.rows(k)
        sizes[parties.names[k]] = read.n_rows
        return read

    return replace(parties, rows=rows)


def _site(parties: Parties, path: Path) -> Site:
    """Returns what a client's site file says of this path; an empty one where none does."""
    for k in range(parties.n_clients):
        site = parties.site(k)
        same = path.exists() and any(part.exists() and part.samefile(path) for part in parties.holding(k).paths)
        if (site.dialect is not None or site.hidden) and same:
            return site
    return Site()


def _table_name(path: Path) -> str:
    """Returns a file's name as policies have it, in quotes where TOML wants some."""
    return toml_key(stem(path))


def _policies(parties: Parties, path: Path, dialect: Dialect) -> Iterable[Policy]:
    """Returns the policies that bind a file; none where they cannot be read, which is said elsewhere."""
    try:
        return bind(*holders.of_file(parties, path, dialect)).policies
    except JobError:
        return ()


def local(method: Method[C], part: Part[C], path: Path) -> int:
    """Checks one's own file before a job, prints the result, and returns the exit code. Nothing leaves this process.

    It prints faults of rows, notes, fingerprints, and whether policies, their accounts and the job's limits allow the file.
    """
    config = part.config
    parties = method.rows.parties(config, part.folder)
    site = _site(parties, path)
    dialect = site.dialect or config.data.dialect.dialect
    rows = table.load(path, text=parties.spec.texts, response=parties.spec.response or "y", dialect=dialect)
    rows = hide(rows, site, parties.spec, stem(path))
    rows = incomplete.prepared(config, parties, rows)
    spec = with_event(parties.spec_of(rows.names), rows)
    check_header(rows.names, spec, rows.source)
    rows = joining.join_rare(config, rows, spec, _policies(parties, path, dialect) if config.joins_levels else ())
    # Where a job has a factory of its own, the factory alone knows which columns it reads, so no cell is looked at.
    encoding = of_file(spec, rows) if config.requirement.looks_at_values else spec.encoding(())
    # `private` here: a bad row becomes NaN, so that all faults are listed and none is raised.
    filled = encoding.columns if not spec.blank else tuple(column for column in encoding.columns if column.levels is None)
    design = encode(rows, replace(encoding, columns=filled), private=True, missing=spec.missing)
    faults = design.faults
    lines = [
        f"{path}: {rows.n_rows} rows, {faults.rows} with faults",
        *described.rotation(config.requirement, encoding.size, rows.n_rows),
    ]
    if mark := fingerprint(path):
        lines.append(f"  fingerprint {mark} (of the file)")
    if mark := mark_of_rows(path, dialect):
        lines.append(f"  fingerprint {mark} (of its rows: for [data.{_table_name(path)}] in policy.toml, if wanted)")
    own_file = OwnFile(config, part.folder, path, rows, spec, encoding)
    # No bad row ends a job whose `spec.private` is True. Other jobs end by them, but a private one (sigma's, whose covariates are
    # public) not by lines that cannot be read, which `faults.rows` counts too.
    stop = 0 if spec.private else faults.rows - len(rows.broken) * config.private
    unfit = f"{stop} rows have faults; correct them, or remove the rows" if stop else None

    def little(client: str, policies: Iterable[Policy]) -> str | None:
        signed = client in parties.names and parties.site(parties.names.index(client)).signing_key is not None
        requirement = holders.bound(config, policies, signed=signed)
        counts = config.counts_rows and not config.private
        found = admitted.faults_of(config, requirement, parties, rows, spec, client) if counts else Refusals()
        too_few = None
        with found.collecting():
            too_few = few.find_few(requirement, found.usable(rows), spec, client)
        reasons = [unfit] if unfit and found.errors else []
        reasons += Refused(found.errors).brief.splitlines()  # each faulty row stands on a line of its own below
        if too_few is not None and not too_few.by_summary:
            reasons += too_few.own.splitlines()
        return "\n    ".join(reasons) or None

    plan = lambda client: method.stages.own_plan(own_file, client, parties.names)  # noqa: E731
    allowed = holders.local(config, parties, path, rows, dialect, plan, little, unfit)
    lines += allowed.lines
    lines += [f"  {count:>6}  {reason}" for reason, count in faults.counts]
    lines += [f"  {fault}" for fault in faults.first]
    notes = (*design.notes, *incomplete.own_notes(config, rows))
    notes = (*notes, *(own_columns(spec, rows).describe_columns() if config.requirement.looks_at_values else ()))
    unusable = admitted.describe_unusable(config, rows.n_rows, faults)
    notes = (*notes, *admitted.private_notes(config, rows.n_rows), *([] if unusable is None else [unusable]))
    if not spec.private:
        notes = (*notes, *far.notes(rows, encoding, design.y, design.offset), *spelled(encoding.columns))
    lines += [f"  note: {note}" for note in notes]
    print("\n".join(map(printable, lines)))
    # A refused job reads nothing more.
    if not allowed.allowed:
        return JobError.exit_code
    for line in method.stages.look_through(own_file) or ():
        print(printable(line))
    return 0
