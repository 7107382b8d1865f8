"""Connects a run to the data holders' budgets and to the server's view of it; `Keeper` keeps its files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any
from uuid import uuid4

from ..algorithms.core.messages import SERVER, Charge, Charged, ChargeFailed, Message, Release, Released, RemoteFault
from ..algorithms.exchanges import compare
from ..algorithms.exchanges.answers import Certificate
from ..algorithms.exchanges.intersection import Blinded, Marked
from ..algorithms.exchanges.sum_keys import SumCommitment, SumKey, SumSignature
from ..data.table import Table
from ..errors import HolderError, JobError
from ..finding import Finding, Value
from ..ground import Ground
from ..printing import printable
from ..privacy.noise import SecureSource
from ..privacy.plan import Plan
from ..results.plain import Record
from ..results.summary import Wire
from ..transports.driver import Kept, Received
from ..transports.place import Place, carrier, signers
from . import admitted, holders, replaying, sketched, tables
from .files import RunFolder
from .holders import Standing
from .holding.binding import Account, Binding
from .holding.budget import Books, Holder, Near, run_of
from .holding.chain import Mark
from .holding.columns import Rows
from .holding.questions import Questions
from .identity import Identity
from .keeping import Keeper
from .keys import JobConfig
from .ledger import Ledger, mark_of
from .opened import Opened
from .parties import Parties
from .secret import secret
from .watch import Watch, turns_of

NEW = (
    "no earlier job has an account of these data; if there were jobs on them, a budget.jsonl is lost or lies where it was not "
    "looked for (see account.json in its own folder)"
)

# Messages that may leave before it is known which rows count.
OF_NO_ROW = (Received, Kept, SumCommitment, SumKey, SumSignature, Blinded, Marked)


class RunHooks(Keeper):
    """Does the work of one place of a run beside computing; used as a context manager.

    Attributes
    ----------
    watch : called at the server with its state after every event, while it is set
    seconds : the time that the rounds took, since this start of the run
    doubts : at the server, why no result of these files can stand: a column in another unit, or with a wrong cell
    warn : `Output.warn`
    """

    def __init__(self, config: JobConfig, names: tuple[str, ...], folder: RunFolder | None) -> None:
        private, once = config.privacy is not None, config.answers_once
        super().__init__(names, folder, private=private, every=config.algorithm.checkpoint_every, stores_answers=once)
        self.config, self.names = config, names
        self.bindings: dict[int, Binding] = {}
        self._asking: tuple[Place, Parties]  # by which policies are asked
        self.holders: dict[int, Holder] = {}
        self.alone, self.quiet = True, True  # whether all parties are this process; whether only warnings are said
        self.watch: Watch[Any] | None = None
        self.seconds = 0.0
        self.doubts: list[str] = []
        self.columns: list[dict[str, Value]] = []  # the table of columns by client, at the server
        self.apart: Mapping[str, str] = {}  # clients that would be refused if parties were apart, and why
        self.left_out = 0  # clients that have too few rows, without whom the job goes on
        self._twins: list[tuple[int, ...]] = []  # clients that have the same covariates
        self.sizes: tuple[int, ...] = ()  # each client's number of rows, where the server was told them with numeric columns
        self.summarised = dict[int, int]()  # all clients, where they take part by a summary of all their rows together
        self.warn: Callable[[str], None] | None = None
        self.own_notes: dict[int, list[str]] = {}  # of clients that live here, for their holders alone
        self._warnings: dict[int, list[str]] = {}
        self._told = set[tuple[int, str]]()  # warnings that were said
        self._tables: dict[int, str] = {}  # clients whose counts have noise, and what budgets call their tables
        self._unnoted: dict[int, Books] = {}  # of open jobs of which nothing has left
        self._questions: list[Questions] = []  # of jobs with secure sums
        self._rows: dict[int, Rows] = {}  # that count, where they are kept and were read
        self._elsewhere: TemporaryDirectory[str] | None = None
        self._identity: Identity | None = None

    def note_twins(self, groups: Iterable[tuple[int, ...]]) -> None:
        """Doubts a result of clients that may have one file, at the server."""
        for group in groups:
            if group not in self._twins:
                self._twins.append(group)
                self.doubts.append(self._one_file(group))

    def compare_twins(self, answers: Sequence[tuple[float, float]]) -> None:
        """Takes the doubt back where such clients have responses of their own; `answers`: sums of each client's (`level`)."""
        before, self._twins = self._twins, []
        for group in before:
            self.doubts.remove(self._one_file(group))
            self.note_twins(compare.with_one_response(group, answers))

    def _one_file(self, group: Sequence[int]) -> Finding:
        return Finding.of("one-file-twice", clients=[self.names[k] for k in group])

    def find(self, findings: Iterable[Finding]) -> None:
        """Notes findings at the server, or doubts the result where it cannot stand with one."""
        for finding in findings:
            (self.doubts if finding.doubt else self.notes).append(finding)

    def __enter__(self) -> RunHooks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if isinstance(error, Exception):
                self.write_fault(error)
            # Only a run that has ended well is sealed: an interrupted one goes on.
            if error is None and self._identity is not None:
                for log in self._logs.values():
                    log.sync()  # before it is sealed: what the seal says is on the disk then
                ranks = {path.stem: mark_of(path) for path, log in self._logs.items() if not isinstance(log, Ledger)}
                ranks.pop("metrics", None)
                for client, log in self._ledgers.items():
                    self._identity.end(client, ledger=log.mark, budget=self.budget(client), **ranks)
            self.close()
        finally:
            for counted in self._questions:
                counted.close()
            if self._identity is not None:
                self._identity.close()
            if self._elsewhere is not None:
                self._elsewhere.cleanup()

    def begin(self, place: Place, parties: Parties, *, resume: bool) -> Parties:
        """Binds the folders of this place's parties to this run; returns the parties, whose rows are bound when they are read."""
        assert self.folder is not None
        here = [*([SERVER] if place.is_server else []), *place.mine(len(self.names))]
        self._identity = Identity(self.config, self.folder, here, self._home)
        self._identity.begin(place, resume=resume, begins=self._refuse_known)
        for party, note in self._identity.notes.items():
            self.write_own(party, "ledger.json", {"note": note})
            self.notes.append(note)
        return self._identity.bound(parties)

    def _refuse_known(self, run: str) -> None:
        """Raises a RemoteFault where the server gives a new run the id of an earlier one, for which an account would take it.

        Only a run that a client's own folder knows goes on under its id: there the job, its clients and its rows are the same.
        """
        for party in self.bindings:
            with self.between_holder_and_job(party):
                where = holders.standing(self.bindings[party], self._account_name(party))
                if where is None:
                    continue
                books = Books(where)
                books.look(own=True)
            if run in map(run_of, books.known()):
                who = holders.who(self.names, party)
                raise RemoteFault(f"{who}: the server gives this run the id of an earlier run on its data; start it anew there")

    def replay(self, run: Opened, parties: Parties) -> Parties:
        """Has the answers of an earlier run computed again; returns the parties, whose rows are compared when they are read."""
        self.replays, self.keeps = run, False
        return replaying.bound(run, parties, self._home)

    def bind(self, party: int, **parts: tuple[str, str]) -> None:
        """Binds other parts beside rows, which a resumed run must be given again: `Identity.bind`."""
        if self._identity is not None:
            self._identity.bind(party, **parts)

    def budget(self, party: int) -> Mark:
        """Returns the mark of the party's account, where it has one."""
        return self.holders[party].ledger.mark if party in self.holders else Mark()

    def permit(self, place: Place, parties: Parties, *, quiet: bool) -> None:
        """Asks the policies of all who live here whether they allow this job, before any of their data is read.

        A job that a policy allows without an account (an open one, or one that protects clients) is noted there. Raises
        HolderError: a policy does not allow the job, or cannot be read, or one is required and none binds.
        """
        self.alone, self.quiet = place.size == 1, quiet
        self._asking = place, parties
        for party in [*self.clients, *([SERVER] if place.is_server else [])]:
            binding = self.bindings[party] = self._permitted(party)
            if self.folder is not None:
                self.folder.remove(self.folder.home(party) / "holder.txt")  # of a start that was refused
            if party != SERVER:
                self._warnings[party] = holders.warnings(binding, partial(parties.fingerprint, party))

    def readmitted(self, client: int) -> None:
        """Asks the policies of a client that was lost again, before it takes part again (HolderError)."""
        self._permitted(client)

    def _permitted(self, party: int) -> Binding:
        place, parties = self._asking
        with self.between_holder_and_job(party):
            return holders.permit(self.config, parties, party, carrier(place), signers(place, parties.n_clients))

    def tell_left_out(self, kept: admitted.Kept) -> None:
        """Tells the holders of clients that have too few rows why the job goes on without them.

        They read it in their own folders, as any fault of their rows, and at their terminal.
        """
        for client, text in kept.own.items():
            self.keep_fault(client, f"left out: {text}")
            self.say(client, f"left out: {text}")

    def leave_out(self, kept: admitted.Kept, mine: Iterable[int], folder: RunFolder | None) -> None:
        """Goes on without clients that have too few rows; so far only policies have been asked.

        Parameters
        ----------
        kept : who goes on
        mine : of these, who lives here
        folder : the run's folder, for those that go on
        """
        self.notes += kept.notes
        self.left_out = len(self.names) - len(kept.numbers)
        now = {before: number for number, before in enumerate(kept.numbers)}
        self.names, self.folder, self.wire = kept.parties.names, folder, Wire(kept.parties.names)
        self.bindings = {now.get(k, k): binding for k, binding in self.bindings.items() if k == SERVER or k in now}
        self._warnings = {now[k]: warnings for k, warnings in self._warnings.items() if k in now}
        self.clients, self._asking = tuple(mine), (self._asking[0], kept.parties)

    def say_lost(self) -> None:
        """Tells holders at every run which paths in their policies do not exist, at their terminal and in their folders."""
        printed = set[str]()
        for party in self.clients:
            texts = [*holders.lost(self.bindings[party])]
            if texts:
                self.keep_fault(party, "\n".join(texts))
            for text in texts:
                if self.alone and text not in printed:
                    print(f"fedkern: {printable(text)}", file=sys.stderr, flush=True)
                printed.add(text)

    def note_use(self) -> None:
        """Looks into the account of every client whose policy allows this job without one, and for an open job into every home.

        A job that protects clients gets its line there at once; an open one when something is about to leave (`sending`). Raises
        HolderError: a policy forbids an open job with clients so near those of an earlier one.
        """
        use = holders.use_of(self.config)
        for party in self.clients:
            binding = self.bindings[party]
            if use == "private" or not holders.needed(use, binding):
                continue
            with self.between_holder_and_job(party):
                books = Books(self._account(party))
                if use == "open":
                    books.look(own=True)
                    # The line itself is written when the first message leaves: a job that ends before has told nothing.
                    self._near(party, books.near(self._job_name(party), self._others(party)))
                    self._unnoted[party] = books
                else:
                    books.note(self._job_name(party), use)
            self._state(party, Standing(books))

    def counting(self, parties: Parties) -> Parties:
        """Returns the same parties; where the holder's account lists an open job, its rows are sketched when they are read.

        Where parties find out which rows all have (`most_ids`), `count` is called with these. Raises HolderError: when rows are
        read: a policy forbids an open job whose rows are so near those of an earlier one.
        """

        def rows(party: int) -> Table:
            table = parties.rows(party)
            self._count(party, parties, table)
            return table

        return replace(parties, rows=rows) if self._unnoted and self.config.most_ids is None else parties

    def count(self, party: int, parties: Parties, table: Table) -> None:
        """Notes the rows that all parties have, which alone count, before anything else of them leaves. Raises HolderError: a
        policy forbids an open job whose rows are so near those of an earlier one, begun or refused."""
        with self.between_holder_and_job(party):
            binding, spec = self.bindings[party], parties.spec_of(table.names)
            if why := holders.asked(self.config, parties, party, binding, table, spec):
                holders.refuse(holders.who(self.names, party), binding.policies, why)
        self._count(party, parties, table)

    def _count(self, party: int, parties: Parties, table: Table) -> None:
        """Sketches the rows that count, once, and compares them with those of earlier jobs."""
        if party not in self._unnoted or party in self._rows:
            return
        with self.between_holder_and_job(party):
            books = self._unnoted[party]
            key = secret(books.account.folder, ground=books.account.ground)
            self._rows[party] = rows = sketched.rows_of(self.config, table, parties.spec_of(table.names), key)
            self._near(party, books.near(self._job_name(party), self._others(party), rows))
        self._state(party, Standing(books))

    def sending(self, client: int, message: Message, n_bytes: int, charged: int) -> None:
        """Notes an open job in the holder's account before its first message leaves, and writes the ledger."""
        if client in self._unnoted and type(message) not in OF_NO_ROW:
            with self.between_holder_and_job(client):
                job, others, allow = self._job_name(client), self._others(client), partial(self._near, client)
                self._unnoted[client].note(job, "open", others, self._rows.get(client), allow)  # on the disk before a byte leaves
            self._state(client, Standing(self._unnoted.pop(client)))
        super().sending(client, message, n_bytes, charged)

    def _others(self, party: int) -> list[str]:
        return [name for k, name in enumerate(self.names) if k != party]

    def _near(self, party: int, near: list[Near]) -> None:
        """Warns the holder of earlier jobs from which this one differs by little, or that are many, or refuses it."""
        warnings, rows = self._warnings.setdefault(party, []), self._rows.get(party)
        many = self._unnoted[party].many(rows, self.config.disclosure.jobs) if rows is not None else None
        differences = holders.differing(holders.who(self.names, party), self.bindings[party].policies, near, many)
        warnings.extend(text for text in differences if text not in warnings)

    def open_budget(self, party: int, plan: Plan, table: str = "", *, drawn: bool = False) -> None:
        """Opens the account of a data holder for this job (for unit "client", of the federation at the server).

        With a noisy `table` it is opened for the table, which is one job whoever uses it; `drawn`: its charge must stand there.
        """
        assert self.config.privacy is not None
        with self.between_holder_and_job(party):
            where = self._account(party)
            # A mechanism that a policy forbids is refused before its account is opened.
            holders.check_mechanism(holders.who(self.names, party), where.policies, plan.mechanism)
            self.holders[party] = holder = Holder(
                "the federation" if party == SERVER else self.names[party],
                where,
                job=table or self._job_name(party),
                mechanism=plan.mechanism,
                epsilon=plan.epsilon,
                delta=plan.delta,
                planned=plan.planned,
                last_update=self.config.privacy.last_update,
                marks=() if self._identity is None else self._identity.marks.get(party, ()),
                paid=int(drawn) if table or self._identity is None else self._identity.paid.get(party, 0),
            )
            total = holder.total()
        if holder.ledger.adopted:
            adopted = f"{holder.ledger.adopted} lines of {holder.ledger.path} count because the holder says so"
            self._warnings.setdefault(party, []).append(adopted)
        if holder.ledger.unmarked:
            unmarked = f"no mark of {holder.ledger.path} can be kept elsewhere ({holder.ledger.unmarked})"
            limit = "that an older copy was put back is found only by runs that saw more"
            self._warnings.setdefault(party, []).append(f"{unmarked}: {limit}")
        self._tables |= {party: table} if table else {}
        self._state(party, Standing(holder.books, total, holder.new, holder.goes_on, table))

    def noisy_table(
        self, party: int, plan: Plan, key: tables.Key, counts: tables.Counts, unread: Iterable[int] = ()
    ) -> tables.NoisyTable:
        """Returns a client's counts with noise: as they were drawn once, or drawn now and charged.

        `unread`: the places that have no count, but a 0 in its stead. Raises HolderError: a policy does not allow the noise, its
        budget does not pay for it, or the table was drawn with less noise than the job may spend.
        """
        where, name = self._account(party), holders.who(self.names, party)
        with self.between_holder_and_job(party), tables.alone(where):
            mark = tables.mark_of(counts, secret(where.folder, ground=where.ground))
            earlier = tables.find(where, key)
            if earlier is not None:
                holders.check_table(name, earlier.mechanism, plan)
                if earlier.mark != mark:
                    self._warnings.setdefault(party, []).append(
                        f"the counts are not those to which noise was added ({earlier.drawn}): the job is about the counts of "
                        f"then; another privacy.table has noise drawn, and charged, for those of now; {earlier.path}"
                    )
                self.open_budget(party, replace(plan, mechanism=earlier.mechanism), earlier.job, drawn=True)
                return earlier
            table = f"table-{uuid4().hex}"
            self.open_budget(party, plan, table)
            if isinstance(self.charge(party, Charge(1, 0)), ChargeFailed):
                raise holders.unpaid(name, plan)
            noisy = plan.mechanism.count(SecureSource(), counts)
            drawn = tables.NoisyTable(table, plan.mechanism, tuple(map(int, noisy)), tables.now(), mark, tuple(unread))
            return replace(drawn, path=tables.keep(where, key, drawn))

    def allow(self, clients: Iterable[int], plan: Plan) -> None:
        """Checks that the policies of these clients allow the noise of a mechanism that the server runs."""
        for k in clients:
            with self.between_holder_and_job(k):
                holders.check_mechanism(holders.who(self.names, k), self.bindings[k].policies, plan.mechanism)

    def questions(self, client: int, job: bytes, parties: Parties) -> Questions:
        """Returns the counts of questions with secure sums, which lie in the account of a client's data.

        `job`: digest of the job. Of other rows the answers are others, and questions are counted anew.
        """
        account, rows = self._account(client), parties.fingerprint(client) or parties.holding(client).mark() or ""
        counted = Questions(account.folder, job + rows.encode(), partial(self.keep_fault, client), account.ground)
        self._questions.append(counted)
        return counted

    def secret_of(self, client: int, job: bytes) -> bytes:
        """Returns 32 bytes that nobody else has, the same for a job at all its starts: of the secret beside the account."""
        home, ground = self._home(client)
        return blake2b(job + client.to_bytes(4, "little"), key=secret(home, ground=ground), digest_size=32).digest()

    def certificate(self, party: int) -> Record:
        """Returns the certificate of a holder in this job."""
        assert self.config.privacy is not None
        content = self.holders[party].certificate(rows_per_person=self.config.privacy.rows_per_person)
        return content | self.config.of_posterior(int(content["steps"]))

    def settled(self, client: int) -> Record:
        """Returns the certificate of a client that spends no more; the client learns how much all jobs have spent on its data."""
        certificate = self.certificate(client)
        self.write_own(client, "certificate.json", certificate)
        self._settle(client)
        self.forget(client, Certificate.protocol)  # one from before a crash may say less than was spent since
        return certificate

    def write_own(self, client: int, name: str, content: Record, *, sync: bool = True) -> None:
        """Writes a file that only the client may see, in its own folder. `sync`: it stays whatever happens to the machine."""
        if self.folder is not None:
            self.folder.write_json(name, content, client=client, sync=sync)

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        """Asks the holder to pay for steps; a release that was paid for before a crash is not paid again."""
        if client == SERVER and self._releases and charge.round in self._releases:
            return Charged(charge.steps)  # paid before a crash; what it paid for is sent again
        with self.between_holder_and_job(client):
            answer = self.holders[client].charge(charge)
            capped = not answer.granted and self.holders[client].is_capped_by_policy
        if capped and client != SERVER and holders.SPENT not in (warnings := self._warnings.setdefault(client, [])):
            warnings.append(holders.SPENT)
            self._tell_warnings(client)
        return Charged(answer.granted) if answer.granted else ChargeFailed(charge.steps, answer.spent, answer.allowed)

    def release(self, asked: Release) -> Released:
        """Releases as `Keeper` does. A charge of a later round shows that this release left before: it may only be sent again."""
        ledger = self.holders[SERVER].ledger
        if self._releases and asked.round not in self._releases and ledger.rounds.get(self.holders[SERVER].job, -1) > asked.round:
            raise self._releases.lost(asked.round, "later rounds are charged")
        return super().release(asked)

    def observe(self, state: object, event: object) -> None:
        """Shows the server's state to `watch`."""
        if self.watch is not None:
            self.watch(state)

    def waiting(self, clients: Sequence[int]) -> None:
        """Shows for whom the server waits."""
        if self.watch is not None:
            self.watch.progress.waiting([repr(self.names[k]) for k in clients])

    def _restart(self, *arguments: Any) -> Any:
        """Restarts as `Keeper` does; rounds that were measured before are not measured again."""
        start = super()._restart(*arguments)
        if self.watch is not None:
            self.watch.turns = turns_of(start[0])
        return start

    def _settle(self, client: int) -> None:
        """Tells the holder how much all jobs have spent on its data: in its own folder, and at its terminal if a policy binds."""
        holder = self.holders[client]
        with self.between_holder_and_job(client):
            total = holder.total()
        self._state(client, Standing(holder.books, total, holder.new, table=self._tables.get(client, "")), again=True)
        if holder.policies and not self.quiet:
            self.say(client, total.text())

    def _state(self, party: int, account: Standing, *, again: bool = False) -> None:
        """Writes account.json, and prints once, at the holder's terminal, the facts that the holder should look into."""
        if party == SERVER:
            return
        warnings = self._warnings.get(party, [])
        self.write_own(party, "account.json", holders.statement(account, warnings))
        if again:
            return
        if account.new and not account.goes_on and account.books.account.policies:
            self.say(party, NEW)
        self._tell_warnings(party)

    def _tell_warnings(self, party: int) -> None:
        """Tells the holder each warning once: at its terminal, or where its resident writes what it should know."""
        for warning in self._warnings.get(party, []):
            if (party, warning) not in self._told:
                self._told.add((party, warning))
                self.say(party, warning)
                if self.warn is not None:
                    self.warn(warning)

    def tell(self, party: int, warning: str) -> None:
        """Tells the holder a warning that a method has, before anything of the rows leaves."""
        self._warnings.setdefault(party, []).append(warning)
        self._tell_warnings(party)

    def say(self, client: int, text: str) -> None:
        """Prints to the holder, at its terminal.

        The output of ranks comes together where the job was started, so they print nothing.
        """
        if self.alone:
            print(f"fedkern: client {self.names[client]!r}: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def between_holder_and_job(self, party: int) -> Iterator[None]:
        """Writes the details of a policy's or an account's refusal where the holder looks, and nowhere else."""
        path = None if self.folder is None else self.folder.home(party) / "holder.txt"
        try:
            yield
        except JobError as fault:
            name = holders.who(self.names, party)
            error = fault if isinstance(fault, HolderError) else holders.unusable(name, fault, None if self.alone else path)
            self.keep_fault(party, f"{error}\n{error.detail}")
            raise error from None

    def _account(self, party: int) -> Account:
        """Returns the place of the holder's budget.

        It lies with a policy that binds, else in the holder's own folder where it has one, else in the run's, else nowhere that
        lasts.
        """
        name = self._account_name(party)
        if (lasting := holders.standing(self.bindings[party], name)) is not None:
            return lasting
        if self.folder is not None:
            folder = self.folder.home(party)
            ground = self.folder.ground(folder)
        else:
            self._elsewhere = self._elsewhere or TemporaryDirectory(prefix="fedkern-")
            folder, ground = Path(self._elsewhere.name) / name, Ground(Path(self._elsewhere.name))
        data = self.bindings[party].data
        return Account(folder, (*data.names, name)[0], ground=ground, files=data.paths)

    def _account_name(self, party: int) -> str:
        return holders.ACCOUNT if party == SERVER else self.names[party]

    def _home(self, party: int) -> tuple[Path, Ground | None]:
        """Returns the folder of a party's secret, and the ground below which it lies."""
        where = self._account(party)
        return where.folder, where.ground

    def _job_name(self, party: int) -> str:
        """Returns a name that no other run has, nor another party of this one, and that a resumed run keeps."""
        run = uuid4().hex if self.folder is None else self.folder.run.hex()
        return f"{run}-{'server' if party == SERVER else party}"
