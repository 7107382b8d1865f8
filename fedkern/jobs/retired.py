"""Names the keys that job files of earlier versions had, each with what to do instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .keys import METHODS, Raw

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "sparse": {"algorithm.topology": "remove it: every job has a server"},
}


def faults(raw: Raw) -> Iterator[str]:
    """Yields a sentence for each key of the job file that its method no longer has."""
    job = raw.get("job")
    method = job.get("method", METHODS[0]) if isinstance(job, Mapping) else METHODS[0]
    for key, instead in KEYS.get(str(method), {}).items():
        inside: object = raw
        for name in key.split("."):
            inside = inside.get(name) if isinstance(inside, Mapping) else None
        if inside is not None:
            yield f"{key} is no longer a key of {method}; {instead}"
