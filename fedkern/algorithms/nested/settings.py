"""Holds the numbers of the nested Laplace approximation that every party knows. Source: docs/spec/sigma.md, section 6.8."""

from __future__ import annotations

from dataclasses import dataclass

PLACES = 16  # of a question for curvatures
POINTS = 1000  # draws of a question for their weights
QUESTIONS, MOST = 4, 16  # questions for weights, and how many where the error of the draws says that so many are enough
EFFECTIVE = 400.0  # draws of equal weight that the weighted ones must be worth
TOLD = 1000  # draws of the posterior that clients are told
ROUNDS = 1000  # some 20 to 150 are needed
INNER = 64  # draws of theta by which a client integrates it out
ERROR = 0.05  # posterior sds by which a mean may be off, and parts of it by which an sd may
SPREAD = 0.5  # nats, of all clients together, by which integrating theta out by draws may be off from one xi to another


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows.

    Attributes
    ----------
    seed : of all draws
    rounds : questions, at most
    places : of a question for curvatures
    points, questions : draws of a question for weights, and how many of these there are at most, but for
    most : questions for weights, where the error of the draws so far says that so many are enough
    effective : draws of equal weight that the weighted ones must be worth
    told : draws of the posterior that clients are told at the end
    inner : draws of theta by which a client integrates it out, where the response is not Gaussian; an even number
    """

    seed: int
    rounds: int = ROUNDS
    places: int = PLACES
    points: int = POINTS
    questions: int = QUESTIONS
    most: int = MOST
    effective: float = EFFECTIVE
    told: int = TOLD
    inner: int = INNER

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("places", 1), ("points", 16), ("questions", 1), ("told", 1), ("inner", 4)):
            if getattr(self, name) < least:
                raise ValueError(f"nested: {name} must be at least {least}, got {getattr(self, name)!r}")
        if self.most < self.questions:
            raise ValueError(f"nested: most must be at least questions, {self.questions}, got {self.most!r}")
        if self.inner % 4:
            raise ValueError(f"nested: inner must be a multiple of 4, got {self.inner!r}")

    def sizes(self, n_global: int, n_linear: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        lower = n_linear * (n_linear + 1) // 2
        return {"c": self.places, "xi": n_global, "u": n_linear, "tri": lower, "s": self.points, "t": self.told}
