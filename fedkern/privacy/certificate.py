"""What a job can say about its privacy, and what it can't. Every number is a function of public ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .accountant import Mechanism

HONEST = "q describes the data as the noisy optimisation found them; it does not contain the privacy noise"
KEYED = "none: the noise was keyed, hence predictable; a result for experiments"


@dataclass(frozen=True)
class Total:
    """What all jobs together have spent on one data set; `cap` is the holder's own, None without a policy."""

    epsilon: float
    delta: float
    jobs: int
    cap: float | None


def certificate(
    mechanism: Mechanism,
    *,
    steps: int,
    epsilon_cap: float,
    delta: float,
    policy: bool,
    total: Total | None = None,
    rows_per_person: int = 1,
) -> dict[str, Any]:
    """The certificate of one client: a flat table of texts and numbers; an infinite epsilon is "inf".

    Parameters
    ----------
    steps : accounted steps that were charged in this job
    policy : whether the holder has caps of its own
    total : over all jobs on the same data; the holder may keep it to itself
    rows_per_person : how many rows one person may have: group privacy multiplies epsilon by it
    """
    spent = mechanism.epsilon(steps, delta) if steps else 0.0
    content: dict[str, Any] = {
        "claim": f"({spent:.4g}, {delta:g})-differential privacy, neighbours: {mechanism.neighbours}"
        if mechanism.secure
        else KEYED,
        "epsilon": spent if mechanism.secure else math.inf,
        "delta": delta,
        "epsilon_cap": epsilon_cap,
        "unit": mechanism.unit,
        "neighbours": mechanism.neighbours,
        "sampling": mechanism.sampling,
        "sampling_rate": mechanism.rate,
        "steps": steps,
        "noise_multiplier": mechanism.sigma,
        "clip": mechanism.clip,
        "noise_source": "secure" if mechanism.secure else "keyed",
        "accountant": f"{mechanism.accountant}, dp-accounting {_version()}",
        "caps": "the holder's policy and the job's" if policy else "the job's alone: the holder has no policy.toml",
        "rows_per_person": rows_per_person,
        "posterior": HONEST,
    }
    if mechanism.dataset_size is not None:
        content["public"] = f"the number of rows, {mechanism.dataset_size}"
    if rows_per_person > 1:
        content["person_epsilon"], content["person_delta"] = of_group(content["epsilon"], delta, rows_per_person)
    if total is not None:
        content |= {"total_epsilon": total.epsilon, "total_delta": total.delta, "total_jobs": total.jobs}
    return {name: "inf" if value == math.inf else value for name, value in content.items()}


def of_group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """(epsilon, delta) for `size` rows of one person together (Dwork and Roth 2014, Theorem 2.2 and its extension to delta
    > 0)."""
    return size * epsilon, min(1.0, size * math.exp(min((size - 1) * epsilon, 700.0)) * delta)


def text(client: str, content: Mapping[str, Any]) -> str:
    """A few lines for a person to read."""
    spent = f"epsilon = {_short(content['epsilon'])} of {_short(content['epsilon_cap'])} at delta = {_short(content['delta'])}"
    lines = [
        f"{client}: {content['claim']}",
        f"  {spent}; {content['steps']} steps, sampling {content['sampling']} at rate {content['sampling_rate']:.4g}, noise "
        f"{content['noise_multiplier']:g} x clip {content['clip']:g} ({content['noise_source']}), {content['accountant']}",
        f"  caps: {content['caps']}",
    ]
    if "person_epsilon" in content:
        lines.append(
            f"  a person with {content['rows_per_person']} rows: epsilon = {_short(content['person_epsilon'])} at delta = "
            f"{_short(content['person_delta'])}"
        )
    if "total_epsilon" in content:
        lines.append(
            f"  all {content['total_jobs']} jobs on these data: epsilon = {_short(content['total_epsilon'])} at delta = "
            f"{_short(content['total_delta'])}"
        )
    return "\n".join([*lines, f"  {content['posterior']}"])


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _version() -> str:
    try:
        return version("dp-accounting")
    except PackageNotFoundError:
        return "(not installed)"
