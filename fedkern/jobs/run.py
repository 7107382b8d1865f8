"""Holds one place of a job: the things that every method is given, and the work that all of them do the same."""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ..algorithms.core import masked, once
from ..algorithms.core.exchange import Ask
from ..algorithms.core.exchange import Exchange as Declared
from ..algorithms.core.kept import PersistentMap
from ..algorithms.core.messages import Message, RemoteFault, ServerEffects, evolve
from ..algorithms.exchanges import column_sums, counted, rare_levels, sum_keys
from ..algorithms.exchanges import columns as agreement
from ..algorithms.exchanges.answers import Certificate
from ..algorithms.exchanges.columns import Summary
from ..algorithms.exchanges.compare import compare, find_twins, table_of
from ..arrays import Array
from ..data.design import describe
from ..data.faults import Faults
from ..data.header import naming_rows
from ..data.joined import as_agreed
from ..data.table import Table
from ..disclosure import few, totals
from ..disclosure.requirement import Requirement
from ..errors import owned
from ..models.encoding import Column, Encoding, Spec
from ..printing import printable
from ..results import guard
from ..results.plain import Record
from ..transports.codec import Codec
from ..transports.place import Place, signers
from . import admitted, holders, joining, machine
from .devices import ON_HOST, Used
from .held import Held
from .holding.policy import Policy
from .hooks import RunHooks
from .keeping import Exchange
from .keys import C, JobConfig
from .opened import Opened
from .parties import Parties
from .progress import Progress
from .stage import Stage, column_sums_stage, counts_stage, rare_levels_stage
from .watch import Lines, Watch

LOG = logging.getLogger(__name__)

S = TypeVar("S")
K = TypeVar("K")
Ended = tuple[S | None, dict[int, K]]  # the server's last state, where it lives, and the clients' that live here
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
R = TypeVar("R", bound=Declared)
T = TypeVar("T")
Answering = Mapping[int, once.Client[Q, A]]
Answered = Ended[once.Server[A], once.Client[Q, A]]


@dataclass(frozen=True)
class Output:
    """Says where a run writes, and how much it prints."""

    folder: Path | None = None  # the folder of the run's files; None writes nothing
    resume: bool = False  # go on from the last checkpoint in it
    quiet: bool = False  # no progress
    # is given each warning for the holder of this place, where that is another organisation's and has no terminal here
    warn: Callable[[str], None] | None = None
    # an earlier run of the same job, whose answers are computed again; no checkpoint and no log of them is written
    replays: Opened | None = None


@dataclass(frozen=True)
class Part(Generic[C]):
    """Holds the part of one place in a job."""

    place: Place  # a process, or an MPI rank
    config: C  # the job file with all its defaults
    folder: Path  # to which the job's paths are relative
    held: Held | None = None  # tables in memory that stand in the place of the job's files
    apart: bool = False  # whether a check in one process asks of clients' rows what is asked where parties are apart


@dataclass(frozen=True)
class At(Generic[C]):
    """Holds the state of one place, in a run and in a check."""

    # part, parties: the work, and who does it
    part: Part[C]
    parties: Parties
    # all that may be exchanged: as far as the job file tells them, and those of the model once it is known
    stages: tuple[Stage, ...]
    # the clients that take part by a summary, and how many numbers each may tell
    summaries: Mapping[int, int] = field(default_factory=dict, kw_only=True)

    @property
    def place(self) -> Place:
        """The process, or the MPI rank."""
        return self.part.place

    @property
    def config(self) -> C:
        """The job file with all its defaults."""
        return self.part.config

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names, in the order of their numbers."""
        return self.parties.names

    @property
    def sizes(self) -> tuple[int, ...]:
        """The clients' numbers of rows, where the server was told them."""
        return ()

    def is_small(self, client: int) -> bool:
        """Tells whether rules hold for all clients' rows together alone: then facts of a client's own rows leave it least."""
        return False

    @property
    def mine(self) -> list[int]:
        """The clients that live here."""
        return self.place.mine(len(self.names))

    def exchange(self, stage: Stage, start: Callable[[], tuple[S, ServerEffects]], clients: Mapping[int, K]) -> Ended[S, K]:
        """Runs one stage; returns the last states of the server (None where it does not live) and of the clients that live here.
        `start`: makes the server's first state, where the server lives. Raises RuntimeError: `fedkern check` does not say that
        this stage is part of the job."""
        if all(stage.words != listed.words for listed in self.stages):
            raise RuntimeError(f"{stage.protocol.name}: `fedkern check` does not list this exchange, or not with these messages")
        started = start() if self.place.is_server else None
        codec = Codec(stage.dims, len(self.names))
        return self._performed(stage, Exchange(stage.named_protocol, started, dict(clients), codec))

    def ask(self, stage: Stage, question: once.Question[Q, A], asked: Q | None, clients: Answering[Q, A]) -> Answered[A, Q]:
        """Runs a stage of one question to all clients, or to nobody; the answers are one where the server gets only their sum.

        Where the job goes on without an answer that cannot be, a client that fails to compute its own gives such a one (and zeros
        into a sum, which are nobody's).
        """
        answering = len(self.names) if stage.sums is None else 1
        if question.drops:
            instead = partial(once.impossible, question.reply, stage.dims, zeros=stage.sums is not None)
            diagnostic = guard.Diagnostic(_name_answer(question), once.Client.make, question.judges, lambda *_: instead())
            clients = {k: replace(client, answer=partial(_answered, k, diagnostic, client)) for k, client in clients.items()}
        server, clients = self.exchange(stage, lambda: question.start(answering, asked), clients)
        if server is not None and server.dropped and question.judges:
            guard.fail(_name_answer(question))
        return server, clients

    def collect(
        self,
        stage: Stage,
        answer: type[R],
        owns: Mapping[int, T],
        told: Callable[[T], R],
        asked: Ask | None = None,
        *,
        asks: bool = True,
        before: bool = False,
    ) -> once.Server[R] | None:
        """Collects one answer of each client; returns them at the server's place, None elsewhere.

        Parameters
        ----------
        owns : of each client that lives here, whatever it answers from
        told : one of these -> the answer; a fault of it belongs to that client
        asked, asks : the question, if it says more than that it is one; False asks nobody
        before : whether that is before the rounds, where those who take part by a summary answer, too
        """
        clients = {k: once.Client(partial(_told, k, told, own)) for k, own in owns.items()}
        # Of those that take part by a summary nothing more leaves: they answer as clients without rows do, which counts nowhere.
        summaries: Mapping[int, int] = {} if before else self.summaries
        for k in summaries.keys() & owns.keys():
            clients[k] = once.ready_client(once.impossible(answer, stage.dims, zeros=True))
        server = self.ask(stage, answer.question, (asked or answer.ask(0)) if asks else None, clients)[0]
        if server is None or not summaries:
            return server
        replies = {k: reply for k, reply in server.replies.items() if k not in summaries}
        return evolve(server, replies=PersistentMap(replies))

    def _performed(self, stage: Stage, exchange: Exchange) -> tuple[Any, dict[int, Any]]:
        return self.place.run_protocol(*exchange)


@dataclass(frozen=True)
class Run(At[C]):
    """Holds one place in a job that runs."""

    hooks: RunHooks  # its work beside computing
    output: Output  # where it writes
    stages_of: Callable[[Any], Sequence[Stage]]  # model -> the stages that a job of this method has once its model is known
    used: Used = ON_HOST  # the device on which the clients that live here compute
    lines: Lines[Any] | None = None  # makes the lines of the server's rounds; None prints none
    # client -> what masks its answers at this start, in a job with secure sums; it counts them, through all stages
    hiders: Mapping[int, masked.Hider] = field(default_factory=dict)
    # client -> the keys and identities of this start, by which its masks are made
    verified: Mapping[int, sum_keys.Client] = field(default_factory=dict)
    judges: bool = False  # whether rules on sums are judged on all clients' rows together

    def with_model(self, model: object) -> Run[C]:
        """Returns the run once its model is known: the stages of the model may be exchanged."""
        summaries = self.hooks.summarised or self.summaries
        return replace(self, stages=(*self.stages, *self.stages_of(model)), summaries=summaries)

    def with_lines(self, lines: Lines[S]) -> Run[C]:
        """Returns the run that writes lines of metrics, and shows its progress."""
        return replace(self, lines=lines)

    def _performed(self, stage: Stage, exchange: Exchange) -> tuple[Any, dict[int, Any]]:
        LOG.info("stage %s%s", stage.protocol.name, ", resumed" if self.output.resume and stage.resumable else "")
        resume = (self.output.resume and not stage.alias) if stage.resumable else None
        if stage.sums is not None:
            exchange = self._hidden(stage.sums, exchange)
        server, clients = self._performed_at(stage, exchange, resume)
        if stage.sums is not None:
            return server and server.inner, {k: client.inner for k, client in clients.items()}
        return server, clients

    def _hidden(self, sums: masked.Sums, exchange: Exchange) -> Exchange:
        """Returns an exchange whose clients mask their answers."""
        for hider in self.hiders.values():
            hider.begin(exchange.protocol.name, of_rows=sums.of_rows)
        start = None if exchange.start is None else sums.start(exchange.start, self.names)
        clients = {k: masked.Client(state, self.hiders[k]) for k, state in exchange.clients.items()}
        return exchange._replace(start=start, clients=clients)

    def _performed_at(self, stage: Stage, exchange: Exchange, resume: bool | None) -> tuple[Any, dict[int, Any]]:
        if self.lines is None:
            return self.hooks.run_exchange(self.place, exchange, resume=resume, agreed=stage.agreed)
        hooks, config = self.hooks, self.hooks.config
        with Progress(stage.rounds, quiet=self.output.quiet or not self.place.is_server) as progress:
            lines = self.lines if stage.sums is None else _of_inner(self.lines)
            hooks.watch = Watch(lines, config.output.metrics_every, hooks.metric, progress, timed=not config.private)
            began = time.monotonic()
            ended = hooks.run_exchange(self.place, exchange, resume=resume, agreed=stage.agreed)
            hooks.seconds += time.monotonic() - began
            hooks.watch = None
        return ended

    @property
    def sizes(self) -> tuple[int, ...]:
        """The clients' numbers of rows, where the server was told them."""
        return self.hooks.sizes

    def is_small(self, client: int) -> bool:
        """Tells whether some client, which may be this one, has too few rows by itself."""
        return client in self.hiders and self.hiders[client].small

    @property
    def threads(self) -> int:
        """The number of threads that a client's kernels may use."""
        return self.place.n_threads or machine.cores()

    def tables(self) -> dict[int, Table]:
        """Reads the rows of the clients that live here."""
        return {k: self.parties.rows(k) for k in self.mine}

    def agreed(self, tables: Mapping[int, Table], spec: Spec | None = None, alias: str = "") -> Encoding:
        """Agrees on the columns' encoding, the same at every place; `spec`, `alias`: of other columns, in a second exchange."""
        spec, summaries = spec or self.parties.spec, {}
        for k, table in tables.items():
            with owned(k):
                judged = self.judges and self.requirement_of(k).summed
                least = 0 if judged else self.config.least_of_level
                summaries[k] = describe(table, spec, self.names[k], least_of_level=least)
                if judged:
                    summaries[k] = totals.told_of(summaries[k], table)
        agreed_spec = spec_of_agreement(self.config, spec)
        clients = {k: agreement.Client(agreed_spec, summary, name=self.names[k]) for k, summary in summaries.items()}
        server, clients = self.exchange(
            Stage.of(agreement).with_alias(alias), lambda: agreement.start(agreed_spec, self.names), clients
        )
        if server is not None:
            self.hooks.columns += table_of(server.facts)
            self.hooks.find(compare(server.facts))
            self.hooks.note_twins(find_twins(server.facts))
        self.hooks.sizes = self.hooks.sizes if server is None else server.sizes or self.hooks.sizes
        encoding = anyone(server, clients).encoding
        assert isinstance(encoding, Encoding)
        if server is not None:
            self.hooks.notes += naming_rows(column.name for column in encoding.columns if column.name not in spec.columns)
        self.know_alike(encoding.to_json())
        categories = {column.name for column in encoding.columns if column.levels is not None}
        for k, summary in summaries.items():
            summaries[k] = summary.with_categories(categories)
            if summaries[k] is not summary:
                with owned(k):
                    self._look_again(k, tables[k], spec, categories)
        if self.config.joins_levels and categories:
            encoding = self._joined(encoding, tables, spec, categories)
        if self.judges and not alias:  # columns that a formula makes have been judged before
            self._judge_sums(encoding, tables, spec, categories)
        if agreed_spec is not spec:
            encoding = self._scaled(encoding, spec, summaries, alias)
            self.know_alike(encoding.to_json())
        return encoding

    def _look_again(self, k: int, table: Table, spec: Spec, categories: Collection[str]) -> None:
        """Refuses rows that columns single out which are of numbers here, and of categories at all clients (OwnFault)."""
        self.refuse_few(k, table, _with_categories(spec, categories))

    def _judge_sums(self, encoding: Encoding, tables: Mapping[int, Table], spec: Spec, categories: Collection[str]) -> None:
        """Judges rules on sums on all clients' rows together, which each adds up itself, before any sum leaves. Raises OwnFault:
        a sum would be one over few rows."""
        requirement, facts, numbers_of, n = (
            self.config.requirement,
            totals.agreed(spec, encoding),
            dict[int, Any](),
            len(self.names),
        )
        flags = dict[int, dict[str, bool]]()
        for k, table in tables.items():
            with owned(k):
                totals.check_levels(table := as_agreed(table, encoding), encoding, self.names[k])
                alone = replace(self.requirement_of(k), summed=False)
                small = few.find_few(alone, table, _with_categories(spec, categories), self.names[k]) is not None
                flags[k] = {"small": small, "lax": not holders.refuses_near(self._policies(k))}
                numbers_of[k] = totals.counts(requirement, table, facts, n)
        few_of = dict.fromkeys(numbers_of, False)  # clients that know of too few rows for values
        for round in range(counted.ROUNDS - 1):
            sums_of_round = {k: totals.numbers(both[round], **flags[k]) for k, both in numbers_of.items()}
            _, added = self._counted(round, sums_of_round)
            for k, (total, others) in added.items():
                with owned(k):
                    judged = totals.judge(numbers_of[k][round], total, others, self.names[k], tables[k].source)
                self.hiders[k].small, few_of[k] = judged.small, few_of[k] or judged.summary
        if requirement.summaries:
            by_summary = {k: np.array([float(flag)]) for k, flag in few_of.items()}
            total, added = self._counted(counted.ROUNDS - 1, by_summary)
            if next((numbers_of for numbers_of, _ in added.values()), total)[0]:
                self.hooks.summarised = dict.fromkeys(range(n), 0)
        for hider in self.hiders.values():
            hider.waits = False

    def _counted(self, round: int, numbers: Mapping[int, Array]) -> tuple[Array, dict[int, tuple[Array, Array]]]:
        """Returns the sum of all clients' numbers at the server's place, and at each client that, and of all but its own."""
        clients = {k: counted.Client(round, self.verified[k], self.hiders[k], mine) for k, mine in numbers.items()}
        stage = counts_stage().with_alias(f"counts-{round}")
        server, clients = self.exchange(stage, partial(counted.start, round, self.names), clients)
        added = dict[int, tuple[Array, Array]]()
        for k, client in clients.items():
            with owned(k):
                if client.total is None or client.others is None:
                    raise RemoteFault("server: it ends the exchange of counts before they are added")
                added[k] = client.total, client.others
        return np.zeros(1) if server is None else counted.total_of(server), added

    def say_first(self, text: str) -> None:
        """Says at once, at the server's place, what stands as the first note of the result."""
        self.hooks.notes.insert(0, text)
        if not self.output.quiet:
            print(f"fedkern: {printable(text)}", file=sys.stderr, flush=True)

    def _joined(self, encoding: Encoding, tables: Mapping[int, Table], spec: Spec, categories: Collection[str]) -> Encoding:
        """Returns the encoding once levels have joined that any client cannot keep."""
        levels = len(rare_levels.levels_asked(encoding.columns))
        clients = {k: rare_levels.Client(joining.told(table, encoding.columns)) for k, table in tables.items()}
        stage = rare_levels_stage(secure=self.config.secure, runs=rare_levels.blocks(levels))
        answering = self.names if stage.sums is None else (masked.ALL,)
        server, clients = self.exchange(stage, lambda: rare_levels.start(levels, answering), clients)
        joined = rare_levels.joined_columns(encoding.columns, anyone(server, clients))
        encoding = joining.agreed(self.config, encoding, dict(joined))
        self.know_alike(encoding.to_json())
        for k, table in tables.items() if encoding.joined else ():
            with owned(k):  # levels that join here because of others make other products and sums
                self._look_again(k, as_agreed(table, encoding), spec, categories)
        return encoding

    def requirement_of(self, client: int) -> Requirement:
        """Returns what is asked of the rows of a client that lives here, by the job and by its holder."""
        return holders.bound(self.config, self._policies(client), signed=client in signers(self.place, len(self.names)))

    def _policies(self, client: int) -> tuple[Policy, ...]:
        """Returns the policies that bind the data of a client that lives here."""
        binding = self.hooks.bindings.get(client)
        return () if binding is None else binding.policies

    def refuse_few(self, k: int, table: Table, spec: Spec, remedies: Sequence[str] = ()) -> None:
        """Refuses a client whose rows break rules of the job or of its holder (Refused); `remedies`: ids of others.

        Rules for which a summary is enough are no faults of a client that takes part by one.
        """
        found = few.find_few(self.requirement_of(k), table, spec, self.names[k], remedies)
        if found is not None and not (found.by_summary and k in self.summaries):
            admitted.refuse(self.place, self.config, self.hooks.bindings.get(k), found.errors)

    def secret_key(self, client: int, exchange: str) -> int:
        """Returns the seed of random numbers that a client alone has; with secure sums the same at all starts of the job."""
        return self.hiders[client].key(exchange) if client in self.hiders else secrets.randbits(64)

    def know_alike(self, known: bytes) -> None:
        """Has masks cancel from here on only where all clients know this alike, too, which the server has told them.

        With columns in another unit, say, the answers of all clients but one could be made such as are known without their rows.
        """
        for hider in self.hiders.values():
            hider.know(known)

    def _scaled(self, encoding: Encoding, spec: Spec, summaries: Mapping[int, Summary], alias: str) -> Encoding:
        """Returns the encoding with centres and scales, of the job file or of sums over all clients together."""
        known = tuple(spec.columns.get(c.name, c) if c.kind == "numeric" else c for c in encoding.columns)
        lacking = tuple(c.name for c in known if c.kind == "numeric" and not spec.complete(c.name))
        n = len(self.names)
        clients = {k: column_sums.Client(self.names[k], spec, n, lacking, summary) for k, summary in summaries.items()}
        stage = column_sums_stage(column_sums.blocks(lacking)).with_alias(alias and f"column-sums-{alias}")
        server, clients = self.exchange(stage, lambda: column_sums.start(lacking, n), clients)
        if server is not None:
            self.hooks.find(server.found)
        for k, client in clients.items():
            self.hooks.own_notes.setdefault(k, []).extend(client.notes)
        return replace(encoding, columns=column_sums.with_constants(known, anyone(server, clients)))

    def note_rows(self, client: int, notes: Sequence[str], faults: Faults, n_rows: int) -> None:
        """Writes rows.json, for the client alone: remarkable facts of its `n_rows` rows, and their faults.

        A private job goes on without a row that can be used, and pays for it. Its holder reads so at the terminal before anything
        is paid, where all parties are this process; nobody else does, for whether a row counts must not be seen from outside.
        """
        if unusable := admitted.describe_unusable(self.hooks.config, n_rows, faults):
            self.hooks.say(client, unusable)
        content = {"notes": [*self.hooks.own_notes.get(client, ()), *notes], "faults": asdict(faults)}
        self.hooks.write_own(client, "rows.json", content, sync=False)  # nothing depends on it, and a resumed run writes it anew

    def certified(self) -> dict[str, Record]:
        """Collects every client's certificate of its spent privacy; returns client -> certificate, at the server only."""
        certificates = {k: Certificate.of(self.hooks.settled(k)) for k in self.mine}
        server = self.collect(Stage.asking(Certificate), Certificate, certificates, lambda record: record)
        if server is not None:
            why = sorted(server.dropped.items())
            self.hooks.notes += [f"client {self.names[k]!r} has no certificate in this result, for {text}" for k, text in why]
        replies = {} if server is None else server.replies
        return {self.names[k]: {**replies[k].content} for k in sorted(replies)}


def _name_answer(question: once.Question[Any, Any]) -> str:
    """Names the answers to a question as a diagnostic."""
    return f"the answer to {question.name}"


def _told(k: int, told: Callable[[T], R], own: T, asked: Message) -> R:
    """Returns a client's answer as it leaves."""
    with owned(k):
        return told(own).leaving()


def _answered(k: int, diagnostic: guard.Diagnostic, client: once.Client[Q, A], question: Q) -> A:
    """Returns a client's answer; if it cannot be computed, what stands in its place, and the fault is the client's."""
    with owned(k):
        answer: A = diagnostic(client, question)
        return answer


def _of_inner(lines: Lines[Any]) -> Lines[masked.Server[Any]]:
    """Returns lines of the state of the machine that gets sums."""
    return lambda state, due: lines(state.inner, due)


def _with_categories(spec: Spec, names: Collection[str]) -> Spec:
    """Returns the facts of the columns where these are of categories."""
    return replace(spec, columns={**{name: Column(name, "categorical") for name in names}, **spec.columns})


def spec_of_agreement(config: JobConfig, spec: Spec) -> Spec:
    """Returns the facts of the columns by which parties agree on names and levels.

    Where the server gets sums over all clients alone, columns' sums come after these, in an exchange of their own.
    """
    return replace(spec, standardise="none") if config.secure and spec.standardise == "exchange" else spec


def anyone(server: S | None, clients: Mapping[int, K]) -> S | K:
    """Returns the last state of a party that lives here, where all have learnt the same."""
    return server if server is not None else next(iter(clients.values()))
