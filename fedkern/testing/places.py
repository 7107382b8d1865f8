"""Checks a place of a job, or a wire, by jobs over it: their bits are those of one process, and a fault ends them everywhere.

Beside whole jobs it calls `mine`, `settle`, `choose`, `leave_out` (with `stand_by`) and `agree` of a `fedkern.places.Place`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedkern.api import run
from fedkern.errors import JobError
from fedkern.places import SERVER, Place

Main: TypeAlias = Callable[[Place], int]
Over: TypeAlias = Callable[[Main, Sequence[str]], Sequence[int]]

NAMES = ("ada", "bo", "cy")
LONG = 100_000  # bytes that each place tells at once, a tenth of what it may


def _rows(client: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1, 1, 60)
    X = np.column_stack([x, np.sin(7 * x + client)])
    return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + client)


DATA = {name: _rows(client) for client, name in enumerate(NAMES)}
JOBS: tuple[Mapping[str, Mapping[str, Any]], ...] = (
    {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}},
    {"job": {"method": "pvi", "rounds": 4}, "model": {"family": "gaussian"}, "algorithm": {"local_steps": 3}},
    {"job": {"method": "pvi", "rounds": 3}, "model": {"family": "gaussian"}, "algorithm": {"schedule": "synchronous"}},
)

# One client has fewer rows than the job asks for: it takes no part, and its place listens until the end.
SMALL: Mapping[str, Mapping[str, Any]] = {**JOBS[0], "disclosure": {"level": "standard", "small": "leave-out", "rows": 50}}
FEW = {name: (X[: 10 + 50 * (name != "bo")], y[: 10 + 50 * (name != "bo")]) for name, (X, y) in DATA.items()}


def check_place(over: Over) -> None:
    """Checks places of a job, or the wire below them.

    Parameters
    ----------
    over : function of (main, names) that runs `main(place)` at the server's place and at the places of the clients with these
        names, in this order, ends all of them, and returns their exit codes, the server's first. What `main` raises at one place
        must end the job at all of them, with the code of `fedkern.places.exit_code`

    Raises
    ------
    AssertionError
        Which says what a job over the place did otherwise than in one process.

    Examples
    --------
    >>> from fedkern.places import InProcess
    >>> from fedkern.testing.places import check_place
    >>> def over(main, names):  # all places are one
    ...     try:
    ...         return [main(InProcess())]
    ...     except Exception:
    ...         return [2]
    ...
    >>> check_place(over)
    """
    for job, data in (*((job, DATA) for job in JOBS), (SMALL, FEW)):
        _check_bits(over, job, data)

    def faulty(place: Place) -> int:
        if place.mine(len(NAMES))[:1] != [] or place.size == 1:
            raise JobError("a client's fault")
        run(JOBS[0], data=DATA, place=place)
        return 0

    def refusing(place: Place) -> int:
        def rule(facts: object) -> Any:
            raise JobError("the server's rule refuses")

        place.settle(b"", rule)
        return 0

    def disagreeing(place: Place) -> int:
        if place.size == 1:
            raise JobError("one place agrees with itself")
        place.agree(b"this" if place.rank != place.size - 1 else b"that")
        return 0

    def late(place: Place) -> int:
        # The last client's place fails when it has said all that the job wants of it, and the server's has a result.
        run(JOBS[0], data=DATA, place=place)
        if place.size == 1 or place.rank == place.size - 1:
            raise JobError("a fault after the last answer")
        return 0

    def unpublished(place: Place) -> int:
        run(JOBS[0], data=DATA, place=place)
        if place.is_server:
            raise JobError("a fault of the server after the result")
        return 0

    for what, main in (
        ("a fault of all clients", faulty),
        ("a fault of one client after its last answer", late),
        ("a fault of the server after the result", unpublished),
        ("a rule of `settle` that refuses", refusing),
        ("a place that has another configuration", disagreeing),
    ):
        codes = list(over(main, NAMES))
        assert set(codes) == {JobError.exit_code}, f"exit codes {codes} of a job with {what}"


def _check_bits(over: Over, job: Mapping[str, Mapping[str, Any]], data: Mapping[str, Any]) -> None:
    """Runs a job over the place and in one process."""
    results: list[Any] = []
    names = tuple(NAMES if job is not SMALL else (name for name in NAMES if name != "bo"))

    def main(place: Place) -> int:
        mine = list(place.mine(len(NAMES)))
        assert mine == [k for k in range(len(NAMES)) if place.size == 1 or place.rank == 1 + k], f"`mine` gave {mine}"
        settled = place.settle(str(place.rank).encode(), b" ".join)
        assert settled == b" ".join(str(rank).encode() for rank in range(place.size)), f"settle gave {settled!r}"
        # Every party has a number of its own, and one that all have.
        offers = {party: {7, 100 + party} for party in (*mine, *([SERVER] if place.is_server else []))}
        all_offers_made = {party: {7, 100 + party} for party in (*range(len(NAMES)), SERVER)}
        chosen = place.choose(offers, lambda all_offers: 7 if {k: {*v} for k, v in all_offers.items()} == all_offers_made else 8)
        assert chosen == 7, "choose: the rule was not given the numbers of all parties"
        assert place.choose(offers, lambda all_offers: None) is None, "choose: the rule chose None"
        result = run(job, data=data, place=place)
        assert (result is not None) == place.is_server, "the result is the server's"
        assert place.names == names, f"the place calls the clients {place.names}"
        if result is not None:
            results.append(result)
        # A place whose client has answered the last question may be ahead of the others; one that stands by is not back here.
        if job is not SMALL:
            content = bytes([place.rank]) * LONG
            settled = place.settle(content, b"".join)
            assert settled == b"".join(bytes([rank]) * LONG for rank in range(place.size)), (
                "settle changed what was told after a job"
            )
        return 0

    codes = list(over(main, NAMES))
    assert set(codes) == {0}, f"exit codes {codes} of a job that is in order"
    want = run(job, data=data).digest
    assert [result.digest for result in results] == [want], "the bits of the result are not those of one process"
