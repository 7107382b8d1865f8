"""Says whom a server asks next, and what a round is: clients one by one, by chance, all together, or each as soon as it has
answered.

A server tells its schedule of each answer (`counted`), refusal and loss (`without`), and asks it who is `next`. What is in a
question or an answer, and what an answer does to the model, is the machine's.

Asynchronous clients wait for nobody. Their round has ended once the slowest that is there has answered again, however often the
others have. Who is `lead` answers ahead of that waits. Before clients are asked how far the model is from where it should be,
nobody is asked anything else until all have answered: it stands still.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from operator import attrgetter
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from .kept import GIVEN, PersistentMap, PersistentSet
from .messages import SERVER, evolve
from .rounds import active

BEHIND = 3  # times as often as a client that is behind the median client has answered


@dataclass(frozen=True)
class Rules:
    """Holds what every party knows of a schedule."""

    n_clients: int  # of the job
    rounds: int | None = None  # after how many the server stops; None goes on while a client may be asked
    looks: tuple[int, ...] = ()  # rounds after which clients are asked how far the model is
    cap: int | None = None  # answers of one client that may be in the model; None for any number
    lead: int | None = None  # answers by which an asynchronous client may be ahead of the slowest; None for any number
    # weights, seed: of chance: public weights, one a client, or empty for equal ones; of the keyed stream
    weights: tuple[float, ...] = ()
    seed: int = 0
    # answers of each asynchronous client after which the model stands still until all have given so many; None for none
    halt: int | None = None
    needs_all: bool = False  # the server stops where one client may not be asked any more


class Course(NamedTuple):
    """Holds the course of one client."""

    # applied, dropped: its answers that are in the model, and those that are in none
    applied: int = 0
    dropped: int = 0
    # ages, oldest: answers of others that came between question and answer, of all its answers together, and at most
    ages: int = 0
    oldest: int = 0
    waits: int = 0  # how often it was so far ahead that it waited for the slowest

    @property
    def answers(self) -> int:
        """How often the client has answered."""
        return self.applied + self.dropped


@dataclass(frozen=True)
class Schedule:
    """Is the state of a schedule.

    The cost of a message does not grow with the number of clients (`core.kept`).
    """

    at_once: ClassVar[bool] = False  # a client's next question waits for no answer of another
    rules: Rules = field(metadata=GIVEN)
    n_active: int = field(metadata=GIVEN)  # all others
    # round, version: rounds finished (asynchronous: answers of the slowest client); answers in the model
    round: int = 0
    version: int = 0
    in_round: int = 0  # answers since the round began (asynchronous: clients that have answered in it)
    waiting: PersistentMap[int, int] = field(default_factory=PersistentMap)  # client -> version of the model at its question
    courses: PersistentMap[int, Course] = field(default_factory=PersistentMap)  # client -> its answers
    # refused, capped, lost: clients that will not be asked again, and why
    refused: PersistentSet[int] = field(default_factory=PersistentSet)
    capped: PersistentSet[int] = field(default_factory=PersistentSet)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    looked: int = 0  # rounds after which clients were last asked how far the model is
    owing: PersistentSet[int] = field(default_factory=PersistentSet)  # those that have not answered that yet
    arrived: bool = field(default=False, metadata=GIVEN)  # whether it is where it should be

    @classmethod
    def of(cls, rules: Rules) -> Self:
        """Returns the schedule before the first question."""
        return cls(rules, rules.n_clients).resumed()

    def resumed(self, returns: Collection[int] = ()) -> Self:
        """Returns the schedule of a run that goes on; `returns`: those of the lost clients that are here again."""
        new = evolve(self, lost=PersistentSet(k for k in self.lost if k not in returns))
        return evolve(new, n_active=len(new.active))

    def is_active(self, client: int) -> bool:
        """Tells whether a client may be asked again."""
        return not (client in self.refused or client in self.capped or client in self.lost)

    @property
    def active(self) -> list[int]:
        """The clients that may be asked again."""
        return active(self.rules.n_clients, self.refused, self.capped, self.lost)

    def course(self, client: int) -> Course:
        """Returns the course of a client."""
        return self.courses.get(client, Course())

    @property
    def turns(self) -> int:
        """The rounds that a watcher sees."""
        return self.round

    @property
    def behind(self) -> dict[int, int]:
        """The clients that hold the others up, and how often each has answered."""
        return {}

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked: the model is where it should be, all rounds are done, or nobody is left to ask."""
        if self.arrived:
            return "settled"
        if self.rules.rounds is not None and self.round >= self.rules.rounds:
            return "rounds"
        if self.n_active == self.rules.n_clients or (self.n_active and not self.rules.needs_all):
            return None
        return "budget" if self.refused or self.capped else "lost"

    @property
    def finished(self) -> bool:
        """Whether no more is asked, and no answer is waited for."""
        return self.stop is not None and not self.waiting and not self.owing

    @property
    def looks(self) -> bool:
        """Whether clients are to be asked how far the model is, before any other question."""
        return self.looked < self.round in self.rules.looks

    @property
    def updates(self) -> NDArray[np.int64]:
        """(M,) The number of answers of each client that are in the model."""
        return np.array([self.course(k).applied for k in range(self.rules.n_clients)], np.int64)

    @property
    def dropped(self) -> dict[int, int]:
        """Client -> its answers that are in no model, of those that have any."""
        return {k: course.dropped for k, course in sorted(self.courses.items()) if course.dropped}

    def counted(self, clients: Collection[int], *, applied: bool) -> Self:
        """Counts an answer of each of these clients, which is in the model or in none."""
        # The newest version is read alone: to read one before it would turn all changes since around.
        new, courses = sum(map(self._begins, clients)), self.courses
        for k in clients:
            was, age = courses.get(k, Course()), self.version - self.waiting.get(k, self.version)
            now = (was.applied + applied, was.dropped + (not applied), was.ages + age, max(was.oldest, age), was.waits)
            courses = courses.plus(k, Course(*now))
        version = self.version + len(clients) * applied
        state = evolve(self, courses=courses, version=version, in_round=self.in_round + new)
        cap = self.rules.cap
        for k in clients:
            if cap is not None and applied and courses[k].applied >= cap:
                state = state.without(k, "capped")
        return state

    def without(self, client: int, why: str) -> Self:
        """Marks a client that is not asked again: it is one more of those that have "refused", or are "capped" or "lost"."""
        gone = {why: getattr(self, why).plus(client)}
        return evolve(self, n_active=self.n_active - self.is_active(client), **gone)

    def heard(self, client: int) -> Self:
        """Waits for this client no more."""
        return evolve(self, waiting=self.waiting.minus(client))

    def next(self) -> tuple[Self, list[int]]:
        """Returns whom to ask; nobody while answers are waited for, or at the end.

        If some are `owing` now, they are to be asked how far the model is.
        """
        if self.owing or (self.waiting and not self.at_once):
            return self, []
        state = self._advanced()
        if state.stop or (state.looks and state.waiting):
            return state, []
        if state.looks:
            those = active(state.rules.n_clients, state.lost)
            return evolve(state, looked=state.round, owing=PersistentSet(those)), those
        state, clients = state._chosen()
        waiting = state.waiting
        for k in clients:
            waiting = waiting.plus(k, state.version)
        return evolve(state, waiting=waiting), clients

    def _begins(self, client: int) -> bool:
        """Tells whether a client's answer counts in the round."""
        return True

    def _advanced(self) -> Self:
        """Ends the round, if its last answer has come."""
        raise NotImplementedError

    def _chosen(self) -> tuple[Self, list[int]]:
        """Returns whom to ask now that nothing forbids it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Synchronous(Schedule):
    """Asks all clients together."""

    def _advanced(self) -> Self:
        return evolve(self, round=self.round + (self.in_round > 0), in_round=0)

    def _chosen(self) -> tuple[Self, list[int]]:
        return self, self.active


@dataclass(frozen=True)
class Sequential(Schedule):
    """Asks one client after the other, in client order. `place`: the first that this round has not come to."""

    place: int = 0

    def _advanced(self) -> Self:
        n = self.rules.n_clients
        place = self._from(self.place)
        if place < n:
            return evolve(self, place=place)
        return evolve(self, place=self._from(0), round=self.round + (self.in_round > 0), in_round=0)

    def _chosen(self) -> tuple[Self, list[int]]:
        return evolve(self, place=self.place + 1), [self.place]

    def _from(self, first: int) -> int:
        """Returns the first active client from `first` on; the number of clients if there is none."""
        n = self.rules.n_clients
        return next((k for k in range(first, n) if self.is_active(k)), n)


@dataclass(frozen=True)
class Random(Schedule):
    """Draws one client after the other; as many answers as there are clients are a round."""

    drawn: int = 0  # clients drawn since the job began
    # weights, edges: of the clients, 0 of those that are gone; these summed up
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), metadata=GIVEN)
    edges: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), metadata=GIVEN)

    def resumed(self, returns: Collection[int] = ()) -> Self:
        new, weights = super().resumed(returns), np.zeros(self.rules.n_clients)
        weights[new.active] = np.asarray(self.rules.weights or np.ones(len(weights)))[new.active]
        return evolve(new, weights=weights, edges=np.cumsum(weights))

    def without(self, client: int, why: str) -> Self:
        weights = self.weights.copy()
        weights[client] = 0.0
        return evolve(super().without(client, why), weights=weights, edges=np.cumsum(weights))

    def _advanced(self) -> Self:
        if self.in_round < self.rules.n_clients:
            return self
        return evolve(self, round=self.round + 1, in_round=0)

    def _chosen(self) -> tuple[Self, list[int]]:
        u = rng.uniform(1, key=rng.key(self.rules.seed, "schedule"), client=SERVER, step=self.drawn)[0]
        total = self.edges[-1]
        # A product that is rounded up to the total is of the last client that is there.
        place = min(np.searchsorted(self.edges, u * total, side="right"), np.searchsorted(self.edges, total))
        return evolve(self, drawn=self.drawn + 1), [int(place)]


@dataclass(frozen=True)
class Asynchronous(Schedule):
    """Asks each client again as soon as it has answered. `idle`: those that have, and were not asked again yet."""

    at_once: ClassVar[bool] = True
    idle: PersistentSet[int] = field(default_factory=PersistentSet, metadata=GIVEN)

    def resumed(self, returns: Collection[int] = ()) -> Self:
        return super().resumed(returns)._in_round()

    @property
    def turns(self) -> int:
        """As many answers as there are clients are one."""
        return self.version // self.rules.n_clients

    @property
    def behind(self) -> dict[int, int]:
        """Those that will have answered less than a third as often as the median client, with the answer that they owe."""
        answers = {k: self.course(k).answers for k in self.active}
        middle = np.median(list(answers.values())) if answers else 0
        return {k: n for k, n in answers.items() if BEHIND * (n + 1) <= middle}

    def without(self, client: int, why: str) -> Self:
        # A client at its cap has had its rounds; one that is lost, or out of budget, has none that others wait for.
        ahead = self.is_active(client) and why != "capped" and self.course(client).answers > self.round
        return evolve(super().without(client, why), in_round=self.in_round - ahead)

    def heard(self, client: int) -> Self:
        return evolve(super().heard(client), idle=self.idle.plus(client))

    def _begins(self, client: int) -> bool:
        return self.course(client).answers == self.round

    def _advanced(self) -> Self:
        state = self
        present = self.rules.n_clients - len(self.lost) - len(self.refused)
        while 0 < present <= state.in_round and not (state.looks or state.stop == "rounds"):
            state = evolve(state, round=state.round + 1)._in_round()
        return state

    def _in_round(self) -> Self:
        """Returns the state at the beginning of a round, in which all that wait for nothing may be asked."""
        taking_part = active(self.rules.n_clients, self.lost, self.refused)
        n = sum(self.course(k).answers > self.round for k in taking_part)
        return evolve(self, in_round=n, idle=PersistentSet(k for k in taking_part if k not in self.waiting))

    def _chosen(self) -> tuple[Self, list[int]]:
        rules, courses, free = self.rules, self.courses, [k for k in sorted(self.idle) if self.is_active(k)]
        ends = [end for end in (rules.halt, None if rules.lead is None else self.round + rules.lead) if end is not None]
        held = {k for k in free if ends and self.course(k).answers >= min(ends)}
        for k in held if self.round != rules.halt else ():
            courses = courses.plus(k, courses[k]._replace(waits=courses[k].waits + 1))
        return evolve(self, courses=courses, idle=PersistentSet()), [k for k in free if k not in held]


KINDS: dict[str, type[Schedule]] = {
    "sequential": Sequential,
    "synchronous": Synchronous,
    "random": Random,
    "asynchronous": Asynchronous,
}


class Scheduled:
    """Adds to a server what its `schedule` says."""

    schedule: Schedule
    n_clients = property(attrgetter("schedule.rules.n_clients"))
    round, turns, stop, behind, updates, dropped, refused, lost = (
        property(attrgetter(f"schedule.{name}"))
        for name in ("round", "turns", "stop", "behind", "updates", "dropped", "refused", "lost")
    )
