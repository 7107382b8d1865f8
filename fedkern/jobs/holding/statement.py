"""States how much has been spent on a holder's data, and how much is left: for the holder alone. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import JobError
from ...privacy.accountant import Mechanism, Parts, epsilon, max_steps
from .binding import LEDGER, POLICY, Account, account, bind, client_home, known_policies
from .budget import Books, Total
from .policy import DataSet, Policy, PolicyFile, read_policies

ALONE = 1e-5  # delta, where no policy and no job says one
RECORD = "job.json"  # in the folder of a run, and in each client's own
FURTHER = 10  # times the steps of all jobs so far: further nobody looks


class Job(NamedTuple):
    """Holds one job of a budget."""

    job: str  # the run's id and the client's number
    begun: str  # date and time
    kind: str  # the kind of noise, in words; "open" and "client-level" are without an account
    steps: int
    # epsilon, delta: those of this job alone, at the delta of its own claim (of the statement, where its line has none); None
    # without an account
    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class Statement:
    """Holds the statement of one data set."""

    data: str  # its id
    budget: Path  # the file
    policies: tuple[Path, ...]  # the files of the policies that bind it
    total: Total  # the sum of all jobs
    whose: str  # who says the delta at which that sum is
    jobs: tuple[Job, ...]
    left: int | None  # steps that all caps would still pay for, if they were like the last job's; None without a cap or a job
    more: bool  # whether it may be more than that
    like: str  # the noise of those steps, in words

    def describe(self) -> Iterator[str]:
        """Yields the statement in words, line by line."""
        yield f"{self.data}: {self.total.text()}"
        yield f"  delta    {self.whose}"
        yield f"  policy   {', '.join(map(str, self.policies)) or 'none binds these data'}"
        yield f"  budget   {self.budget}; its chain is whole"
        if self.left is not None:
            number = f"at least {self.left}" if self.more else self.left
            yield f"  left     {number} more steps like the last job's ({self.like})"
        elif self.jobs and self.total.cap is None:
            yield "  left     no cap is set: a policy with epsilon and delta sets one"


def statements(paths: Sequence[Path], of_sites: Sequence[Path] = ()) -> list[Statement]:
    """Returns the statements of data files or budgets; without any, of all data that policies in the usual places name. Raises
    JobError: a policy or a budget cannot be read, or was altered; nothing is known of a path.

    Parameters
    ----------
    paths : data files, budgets, or folders of budgets
    of_sites : policies that a holder's site files name; they need not be there
    """
    of_sites = [file for file in of_sites if os.path.lexists(file)]
    if paths:
        return _once(statement for path in paths for statement in _of(path, of_sites))
    files: list[tuple[PolicyFile, Path | None]] = [(read_policies(path), path) for path in of_sites]
    files += [(file, None) for file in known_policies()]
    bindings = [bind(_client(file, p), DataSet((p.data,), p.paths, policy=site)) for file, site in files for p in file.policies]
    accounts = [(binding.policies, place) for binding in bindings if (place := account(binding)) is not None]
    if not accounts:
        raise JobError(
            "no policy is in the usual places, and no site file here names one, so no account is kept here; give a data file, a "
            "budget.jsonl, the client's folder of a run, or --site FILE (docs/how-to/console.md)"
        )
    return _once(_statement(policies, place) for policies, place in accounts)


def _once(all_statements: Iterable[Statement]) -> list[Statement]:
    """Returns the first statement of each account."""
    first: dict[tuple[Path, str], Statement] = {}
    for statement in all_statements:
        first.setdefault((statement.budget, statement.data), statement)
    return list(first.values())


def _client(file: PolicyFile, policy: Policy) -> str:
    """Returns the client whose policies a file has: policies in a client's own folder hold for that name alone."""
    folder = file.path.parent
    return folder.name if folder.parent == client_home() else policy.data


def _of(path: Path, of_sites: Sequence[Path]) -> Iterator[Statement]:
    folder = path.parent if path.name == LEDGER else path
    if (folder / LEDGER).is_file():
        books = Books(Account(folder, ""))
        books.look(own=True)
        names = dict.fromkeys(data for data, _ in books.ledger.jobs.values())
        names |= dict.fromkeys(data for data, _ in books.ledger.unaccounted)
        beside = folder / POLICY
        policies = read_policies(beside).policies if beside.is_file() else ()
        for name in names:
            bound = tuple(policy for policy in policies if policy.data == name)
            yield _statement(bound, Account(folder, name, bound))
        return
    if not path.exists():
        raise JobError(f"{path}: is not there; give a data file, a budget.jsonl, or the folder that holds one")
    if (path / RECORD).is_file():
        raise JobError(
            f"{path}: has no account. These lie with policies, in $FEDKERN_CLIENT_HOME/NAME, or without both in the run's "
            "folders of clients (fedkern budget RUN/client-NAME), and "
            "only a run with [privacy] has them: of another one nothing is counted, and fedkern ledger RUN has what left"
        )
    # A policy of a site file binds beside those of the usual places, as in a job of that site.
    bindings = [bind(path.stem, DataSet((path.stem,), (Path(os.path.abspath(path)),), policy=site)) for site in (None, *of_sites)]
    several = max(len(binding.bound) for binding in bindings)
    accounts = [
        (binding.policies, place)
        for binding in bindings
        if len(binding.bound) == several and (place := account(binding)) is not None
    ]
    if not accounts:
        raise JobError(
            f"{path}: no policy names it and no budget lies there; a policy that a site file names is found from that file's "
            "folder, or by --site FILE; without a policy it lies in $FEDKERN_CLIENT_HOME/NAME, or where that is not set each "
            "run keeps its own, in the client's folder (fedkern budget RUN/client-NAME)"
        )
    for policies, place in accounts:
        yield _statement(policies, place)


def _statement(policies: tuple[Policy, ...], place: Account) -> Statement:
    books = Books(place)
    books.look(own=True)
    caps = [(policy.epsilon, policy.delta) for policy in policies if policy.delta is not None]
    deltas = {delta for ledger, names in books.all for job, delta in ledger.deltas.items() if ledger.jobs[job][0] in names}
    delta = caps[0][1] if caps else min(deltas, default=ALONE)
    if caps:
        whose = "the policy's; that of a job stands beside the job's epsilon"
    elif deltas:
        whose = "the job's" if len(deltas) == 1 else "the smallest of the jobs'"
    else:
        whose = f"{ALONE:g}, since no policy and no job here says one"
    last, parts = _latest(books), books.parts()
    further = FURTHER * sum(steps for _, steps in parts)
    left = None if last is None or not caps else min(_left(parts, last, cap, delta, further) for cap, delta in caps)
    like = "" if last is None else words(last)
    return Statement(
        data=place.data,
        budget=books.ledger.path,
        policies=tuple(policy.file for policy in policies),
        total=books.total(delta),
        whose=whose,
        jobs=tuple(sorted(_jobs(books, delta), key=lambda job: job.begun)),
        left=left,
        more=left == further,
        like=like,
    )


def _jobs(books: Books, delta: float) -> Iterator[Job]:
    for ledger, names in books.all:
        for job, (data, mechanism) in ledger.jobs.items():
            if data in names:
                parts, delta_of_job = ledger.of_job(job), ledger.deltas.get(job, delta)
                steps = sum(n for _, n in parts)
                spent = epsilon(parts, delta_of_job) if steps else 0.0
                yield Job(job, ledger.begun[job], words(mechanism), steps, spent, delta_of_job)
        for (data, job), use in ledger.unaccounted.items():
            if data in names:
                yield Job(job, ledger.begun[job], use, 0, None, None)


def _latest(books: Books) -> Mechanism | None:
    """Returns the mechanism of the job that began last."""
    mechanisms = [
        (ledger.begun[job], mechanism)
        for ledger, names in books.all
        for job, (data, mechanism) in ledger.jobs.items()
        if data in names
    ]
    return max(mechanisms, key=lambda dated: dated[0])[1] if mechanisms else None


def _left(parts: Parts, mechanism: Mechanism, cap: float, delta: float, further: int) -> int:
    """Returns how many more steps of a mechanism fit within a cap, at most `further`."""
    if not all(m.secure for m, steps in parts if steps):
        return 0
    same = sum(steps for m, steps in parts if m == mechanism)
    others = tuple((m, steps) for m, steps in parts if m != mechanism and steps)
    enough = same + further
    return max(0, min(enough, max_steps(mechanism, cap, delta, others, enough=enough)) - same)


def words(mechanism: Mechanism) -> str:
    """Returns a kind of noise in words."""
    rate = f", rate {mechanism.rate:.4g}" if mechanism.rate < 1 else ""
    unit = {"example": "", "client": ", of whole clients", "case": ", of cases"}[mechanism.unit]
    noise = f"noise {mechanism.sigma:g}"
    if not mechanism.secure:
        noise += " that can be predicted"
    return f"{mechanism.sampling}{rate}, {noise}{unit}"
