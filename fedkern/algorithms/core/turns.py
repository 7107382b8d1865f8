"""Says whom a server asks where clients do not wait for one another: each as soon as it has answered.

A client that is `lead` answers ahead of the slowest waits for it, so that no answer in use is older than so many of the slowest's
own. All stop at one number of answers of each, the goal: there the state stands still, and can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .kept import GIVEN, PersistentMap
from .messages import evolve


class Course(NamedTuple):
    """Holds the course of one asynchronous client.

    Attributes
    ----------
    ages, oldest : answers of others that came between its questions and its answers, of all together, and at most
    waits : how often it was so far ahead that it waited for the slowest
    """

    ages: int = 0
    oldest: int = 0
    waits: int = 0


@dataclass(frozen=True)
class Turns:
    """Counts the answers of each client.

    Attributes
    ----------
    lead : answers by which a client may be ahead of the slowest
    answers : of each client
    asked : client -> how many answers of all had come when it was asked
    courses : of each client
    """

    lead: int = field(metadata=GIVEN)
    answers: tuple[int, ...]
    asked: PersistentMap[int, int] = field(default_factory=PersistentMap)
    courses: PersistentMap[int, Course] = field(default_factory=PersistentMap)

    @property
    def total(self) -> int:
        """The answers of all clients together."""
        return sum(self.answers)

    @property
    def slowest(self) -> int:
        """The answers of the slowest client."""
        return min(self.answers)

    def free(self, goal: int) -> list[int]:
        """Returns the clients that are to be asked now."""
        most = min(goal, self.slowest + self.lead)
        return [k for k, count in enumerate(self.answers) if count < most and k not in self.asked]

    def ask(self, clients: Iterable[int]) -> Turns:
        """Returns the turns once these are asked."""
        asked, total = self.asked, self.total
        for k in clients:
            asked = asked.plus(k, total)
        return evolve(self, asked=asked)

    def answered(self, client: int, goal: int) -> Turns:
        """Returns the turns once a client has answered."""
        answers = (*self.answers[:client], self.answers[client] + 1, *self.answers[client + 1 :])
        before, age = self.courses.get(client, Course()), self.total - self.asked[client]
        waits = before.waits + (min(answers) + self.lead <= answers[client] < goal)
        course = Course(before.ages + age, max(before.oldest, age), waits)
        return evolve(self, answers=answers, asked=self.asked.minus(client), courses=self.courses.plus(client, course))
