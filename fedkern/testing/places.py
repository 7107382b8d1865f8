"""Checks a place of a job, or a wire, by jobs over it: their bits are those of one process, and a fault ends them everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedkern.api import run
from fedkern.errors import JobError
from fedkern.places import Place

Main: TypeAlias = Callable[[Place], int]
Over: TypeAlias = Callable[[Main, Sequence[str]], Sequence[int]]

NAMES = ("ada", "bo", "cy")


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
    for job in JOBS:
        results: list[Any] = []

        def main(place: Place, job: Mapping[str, Mapping[str, Any]] = job, results: list[Any] = results) -> int:
            assert list(place.mine(len(NAMES))) == [k for k in range(len(NAMES)) if place.size == 1 or place.rank == 1 + k]
            told = place.settle(str(place.rank).encode(), b" ".join)
            assert told == b" ".join(str(rank).encode() for rank in range(place.size)), f"settle gave {told!r}"
            result = run(job, data=DATA, place=place)
            assert (result is not None) == place.is_server, "the result is the server's"
            assert place.names == NAMES, f"the place calls the clients {place.names}"
            if result is not None:
                results.append(result)
            return 0

        codes = list(over(main, NAMES))
        assert set(codes) == {0}, f"exit codes {codes} of a job that is in order"
        want = run(job, data=DATA).digest
        assert [result.digest for result in results] == [want], "the bits of the result are not those of one process"

    def faulty(place: Place) -> int:
        if place.mine(len(NAMES))[:1] != [] or place.size == 1:
            raise JobError("a client's fault")
        run(JOBS[0], data=DATA, place=place)
        return 0

    codes = list(over(faulty, NAMES))
    assert set(codes) == {JobError.exit_code}, f"exit codes {codes} of a job with a fault of all clients"
