"""What the data holders' policies say to a job: asked where each holder's data are, before a header or a row of theirs is read.

Who runs the job is told what to ask the holder for, and nothing of what the holder's files say: paths and numbers go to the
client's own folder, and to `fedkern check JOB --local FILE`. Other parties read only that a policy refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from ..algorithms.core.messages import SERVER
from ..data.dialect import Dialect
from ..errors import HolderError, JobError
from ..privacy.accountant import Mechanism
from ..privacy.binding import Binding, account, bind
from ..privacy.budget import Books, Total
from ..privacy.policy import DataSet, Policy, Use
from ..results.plain import Record
from .keys import JobConfig
from .parties import Parties, data_set, mark_of_rows

FIND = "the holder sees its policies with: fedkern check JOB --local FILE"
ACCOUNT = "federation"  # at the server, of jobs that protect clients


def use_of(config: JobConfig) -> Use:
    """What kind of job it is to a data holder."""
    if not config.private:
        return "open"
    return "client-level" if config.unit == "client" else "private"


def source_of(config: JobConfig) -> str:
    """Where its noise comes from; of a job without noise, as if it were safe."""
    return "secure" if config.privacy is None else config.privacy.noise_source


def who(names: tuple[str, ...], party: int) -> str:
    """A party, as an error begins."""
    return "the server" if party == SERVER else f"client {names[party]!r}"


def permit(config: JobConfig, parties: Parties, party: int) -> Binding:
    """What binds a client's data, or the server's own account; every policy allows the job.

    Raises
    ------
    HolderError
        One does not, or cannot be read, or there has to be one.
    """
    use, source = use_of(config), source_of(config)
    if party != SERVER:
        return _allowed(who(parties.names, party), parties.names[party], parties.holding(party), use, source)
    for data in parties.own:  # the rows of a server's file get no noise in any job
        _allowed("the server", "server", data, "open", source, must="asked")
    if use != "client-level":
        return Binding("server", DataSet(()))
    return _allowed("the server", ACCOUNT, DataSet((ACCOUNT,)), "private", source, must="never")


def permit_all(config: JobConfig, parties: Parties, here: Iterable[int]) -> None:
    """Asks all policies of the parties that live here, and keeps nothing."""
    for party in here:
        permit(config, parties, party)


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
    """A policy's no."""
    public = f"{name}: refused by the holder's policy"
    return HolderError(f"{public}: {ask}. ({FIND})", public, detail)


def check_mechanism(name: str, policies: Iterable[Policy], mechanism: Mechanism) -> None:
    """HolderError if a policy does not allow this noise."""
    for policy in policies:
        if refusal := policy.refuses(mechanism):
            raise refused(name, refusal.ask, f"{policy.file}: does not allow {refusal.detail}")


def unusable(name: str, fault: JobError, where: Path | None) -> HolderError:
    """What is wrong with an account is told to others without its paths and lines; `where` the holder reads it, if not here."""
    public = f"{name}: the account of its data cannot be used"
    return HolderError(f"{public}: {fault}" if where is None else f"{public}; why: {where}", public, str(fault))


def warnings(binding: Binding, fingerprint: Callable[[], str | None]) -> list[str]:
    """Where the data's fingerprint and a policy's disagree. It is computed only where a policy has one."""
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
    """Paths of this holder's policies at which there is nothing: such a policy may bind no data without anybody's knowing."""
    for where, file in binding.files:
        for policy in file.policies if where != "other" else ():
            for path in policy.lost:
                yield f"{file.path}, [data.{policy.data}]: {path} is not there, so it binds nothing; correct the path"


class Standing(NamedTuple):
    """How a holder's account stands: `total` of all jobs, None where this one needs no account; `new` if it is the first."""

    books: Books
    total: Total | None = None
    new: bool = False


def statement(account: Standing, warnings: list[str]) -> Record:
    """What is said of an account in the client's own folder."""
    books = account.books
    return {
        "data": books.account.data,
        "budget": str(books.ledger.path),
        "policies": [described(policy) for policy in books.account.policies],
        "new": account.new,
        "looked_in": [str(ledger.path) for ledger, _ in books.all],
        "total": None if account.total is None else asdict(account.total),
        "warnings": warnings,
    }


def described(policy: Policy) -> str:
    """A policy in one line."""
    cap = "no cap" if policy.delta is None else f"epsilon {policy.epsilon:g} at delta {policy.delta:g}"
    least = f", noise multiplier at least {policy.least_noise:g}" if policy.least_noise else ""
    kinds = f"open jobs {'yes' if policy.open else 'no'}, client-level jobs {'yes' if 'client' in policy.units else 'no'}"
    return f"{policy.file}, [data.{policy.data}]: {cap}; noise {' or '.join(policy.noise_sources)}{least}; {kinds}"


def local(config: JobConfig, parties: Parties, path: Path, dialect: Dialect) -> Iterator[str]:
    """For the holder of a file: the policies that bind it, whether they allow the job, where its budget lies, what is spent."""
    data = replace(data_set(path), mark=partial(mark_of_rows, path, dialect))
    held = {k: parties.holding(k).paths for k in range(parties.n_clients)}
    mine = [parties.names[k] for k, paths in held.items() if any(one.exists() and one.samefile(path) for one in paths)]
    client = mine[0] if mine else data.names[0]
    try:
        binding = bind(client, data)
    except JobError as fault:
        yield f"  policy  {fault}; until this is mended every job is refused"
        return
    for policy in binding.policies:
        yield f"  policy  {described(policy)}"
    yield from (f"  policy  {text}" for text in lost(binding))
    if not binding.bound:
        files = ", ".join(str(file.path) for _, file in binding.files)
        yield "  policy  none names this file" + (f" ({files})" if files else "")
    refusal = binding.refusal(use_of(config), source_of(config))
    yield f"  this job, as client {client!r}, is " + (f"refused: {refusal.detail}" if refusal else "allowed")
    try:
        where = account(binding)
        if where is not None:
            books = Books(where)
            books.look(own=True)
            yield f"  budget  {books.ledger.path}: {books.total(1e-5).text() if books.known() else 'no job yet'}"
    except (JobError, ValueError) as fault:
        yield f"  budget  {fault}"
