"""Makes the content of summary.json: names and shapes that other people's scripts depend on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .plain import Record, plain
from .released import Released
from .verdict import Verdict

WAYS = ("to_client", "to_server")


@dataclass
class Wire:
    """Holds messages and bytes for each direction and client, as the server counts them."""

    clients: tuple[str, ...]
    counts: dict[str, dict[int, list[int]]] = field(default_factory=lambda: {way: {} for way in WAYS})

    def add(self, direction: str, client: int, n_bytes: int) -> None:
        """Counts one message of `n_bytes`; direction is "to_client" or "to_server"."""
        counts = self.counts[direction]
        count = counts.get(client) or counts.setdefault(client, [0, 0])
        count[0] += 1
        count[1] += n_bytes

    def listed(self) -> list[tuple[str, str, list[int]]]:
        """Returns rows for a checkpoint: client, direction, messages and bytes."""
        return [(self.clients[client], way, count) for way, counts in self.counts.items() for client, count in counts.items()]

    def restore(self, listed: Iterable[tuple[str, str, list[int]]]) -> None:
        """Restores the result of `listed`."""
        places = {name: client for client, name in enumerate(self.clients)}
        for name, way, count in listed:
            self.counts[way][places[name]] = count

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Returns client -> direction -> messages, bytes."""

        def count(client: int, way: str) -> dict[str, int]:
            messages, n_bytes = self.counts[way].get(client, (0, 0))
            return {"messages": messages, "bytes": n_bytes}

        return {name: {way: count(client, way) for way in WAYS} for client, name in enumerate(self.clients)}


@dataclass(frozen=True)
class Outcome:
    """Holds how a job ended, as its server knows it.

    Attributes
    ----------
    stop : a word of `STOPS` in `fedkern/results/verdict.py`
    rounds : that were finished
    verdict : whether the result has converged
    clients : name -> {"updates": applied updates, "status": "finished", "budget spent" or "lost"}, and "dropped": how many of
        its answers are in no result, if any are; where whole clients are protected all answers count as updates, for which of
        them were applied is secret
    metrics : of the released posterior on the test rows
    privacy : client -> its certificate
    digest : of the posterior arrays
    lost : clients without which the job went on -> how their rank ended
    """

    stop: str
    rounds: int
    verdict: Verdict
    clients: Mapping[str, Record]
    metrics: Mapping[str, float]
    privacy: Mapping[str, Record]
    wire: Record
    digest: str
    encoding: Record
    versions: Mapping[str, str]
    notes: Iterable[str] = ()
    lost: Mapping[str, str] = field(default_factory=dict)


def summary(method: str, posterior: Released, outcome: Outcome, more: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Returns all of summary.json.

    Parameters
    ----------
    more : entries that only this method has

    Returns
    -------
    a dictionary that JSON can hold: infinite and undefined numbers are texts ("inf", "nan")
    """
    content = {
        "method": method,
        "claim": claim_of(outcome.privacy),
        "stop": outcome.stop,
        "rounds": outcome.rounds,
        **outcome.verdict.content,
        "clients": {k: {**v, "lost": outcome.lost[k]} if k in outcome.lost else v for k, v in outcome.clients.items()},
        "parameters": posterior.parameters(),
        "metrics": outcome.metrics,
        "privacy": outcome.privacy,
        "wire": outcome.wire,
        "encoding": outcome.encoding,
        "versions": outcome.versions,
        "digest": outcome.digest,
        "notes": list(outcome.notes),
        **(more or {}),
    }
    return {key: plain(value) for key, value in content.items()}


def claim_of(privacy: Mapping[str, Mapping[str, object]]) -> str:
    """Returns "private" or "federated" by a job's certificates: without secure noise everywhere it is never called private."""
    return "private" if privacy and all(_finite(one.get("epsilon")) for one in privacy.values()) else "federated"


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
