"""What a data holder allows on each of its data sets: the file `policy.toml`, which it writes itself."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkern.errors import JobError

from .accountant import Mechanism, Unit


@dataclass(frozen=True)
class Policy:
    """What a data holder allows on one of its data sets."""

    epsilon: float
    delta: float
    units: tuple[Unit, ...] = ("example",)
    noise_sources: tuple[str, ...] = ("secure",)
    least_noise: float = 0.0
    fingerprint: str | None = None

    def refusal(self, mechanism: Mechanism) -> str | None:
        """Why a mechanism is not allowed; None if it is."""
        source = "secure" if mechanism.secure else "keyed"
        if mechanism.unit not in self.units:
            return f"privacy.unit = {mechanism.unit!r}, allowed: {', '.join(self.units)}"
        if source not in self.noise_sources:
            return f"privacy.noise_source = {source!r}, allowed: {', '.join(self.noise_sources)}"
        if mechanism.sigma < self.least_noise:
            return f"privacy.noise_multiplier = {mechanism.sigma:g}, the smallest allowed: {self.least_noise:g}"
        return None


def read_policy(path: Path, data: str) -> Policy | None:
    """The holder's policy for a data set; None if there is no file.

    The file: `unit`, `noise_source` (a text or a list of them) and `least_noise_multiplier` for all data sets, and a table
    for each, `[data.<name>]`, with `epsilon`, `delta` and, if wanted, `fingerprint`.

    Raises
    ------
    JobError
        The file can't be read, has a key that it should not have, or has no table for this data set.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise JobError(f"{path}: can't be read as a policy ({fault})") from None

    def refuse(what: str) -> JobError:
        return JobError(f"{path}: {what}")

    def number(table: Mapping[str, Any], where: str, name: str, below: float) -> float:
        value = table.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < below:
            raise refuse(f"{where}.{name} must be a number in (0, {below:g}), got {value!r}")
        return float(value)

    def texts(name: str, default: str, known: tuple[str, ...]) -> tuple[str, ...]:
        value = content.get(name, default)
        chosen = tuple(value) if isinstance(value, list) else (value,)
        if not chosen or any(v not in known for v in chosen):
            raise refuse(f"{name} must be one or several of {', '.join(known)}, got {value!r}")
        return chosen

    tables = content.get("data", {})
    for where, table, known in (
        ("the file", content, {"unit", "noise_source", "least_noise_multiplier", "data"}),
        *((f"[data.{name}]", table, {"epsilon", "delta", "fingerprint"}) for name, table in tables.items()),
    ):
        if unknown := set(table) - known:
            raise refuse(f"{where} has the unknown key {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    if data not in tables:
        raise refuse(f"allows nothing on the data set {data!r}; add a table [data.{data}] with epsilon and delta")
    table, where = tables[data], f"[data.{data}]"
    return Policy(
        epsilon=number(table, where, "epsilon", math.inf),
        delta=number(table, where, "delta", 1.0),
        units=texts("unit", "example", ("example", "client")),  # type: ignore[arg-type]
        noise_sources=texts("noise_source", "secure", ("secure", "keyed")),
        least_noise=number(content, "the file", "least_noise_multiplier", math.inf)
        if "least_noise_multiplier" in content
        else 0.0,
        fingerprint=table.get("fingerprint"),
    )
