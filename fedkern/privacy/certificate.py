"""Writes the claims that a job can make about its privacy, and those that it cannot, and checks those of another party.

Every number is a function of public ones. A certificate that came from elsewhere has every field of its type and in its range,
and no other field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import get_args

from ..plain import Json
from .accountant import Mechanism, Parts, Sampling, Unit, largest_cases, neighbours_of
from .accountant import epsilon as composed

Certificate = Mapping[str, str | float]

HONEST = "the posterior describes the data as the noisy optimisation found them; it does not contain the privacy noise"
WITH_NOISE = (
    "the posterior contains the noise of privacy, of sampling and of the data; its intervals do not cover the bias of the clip "
    "where that cuts rows"
)
OF_CLIENTS = (
    "the posterior's intervals contain the privacy noise, to first order; they do not cover the bias of the clip where that cuts "
    "what clients send"
)
OF_COUNTS = (
    "all numbers contain the noise that the counts have; nothing else was computed of the counts, so that later jobs on the same "
    "noisy table spend nothing"
)
ALONE = {
    "example": "the job's alone: the holder has no policy.toml for these data",
    "case": "the job's alone: the holder has no policy.toml for these data; without FEDKERN_CLIENT_HOME another run spends anew",
    "client": "the job's alone: the server has no policy.toml for [data.federation]; clients' policies can only refuse",
}
KEYED = "none: the noise was keyed, hence predictable; a result for experiments"
LONGEST = 600  # characters of a text


def certificate(
    mechanism: Mechanism,
    *,
    steps: int,
    epsilon_cap: float,
    delta: float,
    policy: bool,
    before: Parts = (),
    rows_per_person: int = 1,
) -> dict[str, str | float]:
    """Returns the certificate of one client: a flat table of texts and numbers, in which an infinite epsilon is "inf". Another
    party checks its fields by `FIELDS`, where a new field needs its line.

    Parameters
    ----------
    steps : accounted steps of `mechanism` that were charged in this job
    before : this job's charges for other mechanisms. Epsilon is that of all together, infinite if any noise was keyed
    policy : whether a policy of the holder binds
    rows_per_person : how many rows one person may have: group privacy multiplies epsilon by it
    """
    # The claim is about every mechanism that was charged; one that took no step spends nothing.
    ran = list(dict.fromkeys(m for m, n in ((mechanism, steps), *before) if n)) or [mechanism]
    secure = all(m.secure for m in (mechanism, *ran))
    spent = composed(((mechanism, steps), *before), delta)
    neighbours = neighbours_of(ran)
    # Predictable noise protects nobody, however small the nominal epsilon is.
    promised = spent if secure else math.inf
    content: dict[str, str | float] = {
        "claim": describe_claim(spent, delta, neighbours, len(ran)) if secure else KEYED,
        "epsilon": promised,
        "delta": delta,
        "epsilon_cap": epsilon_cap,
        "unit": mechanism.unit,
        "neighbours": neighbours,
        "trust": describe_trust(next((m for m in ran if not m.secure), mechanism)),
        "sampling": mechanism.sampling,
        "sampling_rate": mechanism.rate,
        "steps": steps + sum(n for _, n in before),
        "mechanisms": len(ran),
        "noise_multiplier": mechanism.sigma,
        "clip": mechanism.clip,
        "noise_source": "secure" if secure else "keyed",
        "accountant": f"{mechanism.accountant}, dp-accounting {_version()}",
        "caps": "the holder's policy and the job's" if policy else ALONE[mechanism.unit],
        "rows_per_person": rows_per_person,
        "posterior": OF_CLIENTS if mechanism.unit == "client" else HONEST,
    }
    if cases := largest_cases(ran):
        content["cases_per_person"] = cases
    if mechanism.dataset_size is not None:
        content |= {"public": f"the number of rows, {mechanism.dataset_size}", "rows": mechanism.dataset_size}
    if rows_per_person > 1:
        content["person_epsilon"], content["person_delta"] = compute_group_privacy(promised, delta, rows_per_person)
    return {name: "inf" if value == math.inf else value for name, value in content.items()}


def describe_claim(epsilon: float, delta: float, neighbours: str, mechanisms: int) -> str:
    """Returns the claim in one line."""
    several = f", composition of {mechanisms} mechanisms" if mechanisms > 1 else ""
    return f"({epsilon:.4g}, {delta:g})-differential privacy, neighbours: {neighbours}{several}"


def describe_trust(mechanism: Mechanism) -> str:
    """Returns one line: whom the claim trusts, and which of the numbers and names beside the rows are public."""
    if not mechanism.secure:
        return "everybody who has the job file, for its seed predicts the noise"
    if mechanism.unit == "client":
        return "the server, which gets every client's change without noise; the number and the names of the clients are public"
    if mechanism.unit == "case":
        return "nobody, for each client adds its own noise"
    rows = "the number of rows is public" if mechanism.dataset_size is not None else "the number of rows is not public"
    ids = "row ids are public" if mechanism.sampling == "aligned" else "row ids are not public"
    more = "; the response is not protected" if mechanism.sampling == "aligned" else ""
    return f"nobody, for each client adds its own noise; {rows}, {ids}{more}"


def compute_group_privacy(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Returns (epsilon, delta) for `size` rows of one person together (Dwork and Roth 2014, Theorem 2.2 and its extension to
    delta > 0)."""
    return size * epsilon, min(1.0, size * math.exp(min((size - 1) * epsilon, 700.0)) * delta)


def format_certificate(client: str, content: Certificate) -> str:
    """Returns a few lines for a person to read."""
    spent = f"epsilon = {_short(content['epsilon'])} of {_short(content['epsilon_cap'])} at delta = {_short(content['delta'])}"
    lines = [
        f"{client}: {content['claim']}",
        f"  {spent}; {content['steps']} steps, sampling {content['sampling']} at rate {content['sampling_rate']:.4g}, noise "
        f"{content['noise_multiplier']:g} x clip {content['clip']:g} ({content['noise_source']}), {content['accountant']}",
        f"  trusts {content['trust']}",
        f"  caps: {content['caps']}",
    ]
    if content["unit"] == "case" and "public" in content:  # what is public of rows stands in `trust`
        lines.append(f"  public: {content['public']}")
    if "person_epsilon" in content:
        lines.append(
            f"  a person with {content['rows_per_person']} rows: epsilon = {_short(content['person_epsilon'])} at delta = "
            f"{_short(content['person_delta'])}"
        )
    if "progress" in content:
        lines.append(f"  updates have gone {content['progress']:.0%} of the way from the prior to where they lead, noise apart")
    return "\n".join([*lines, f"  {content['posterior']}"])


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _version() -> str:
    try:
        return version("dp-accounting")
    except PackageNotFoundError:
        return "(not installed)"


def format_certificates(of_clients: Mapping[str, Certificate]) -> Iterator[str]:
    """Yields the lines of one certificate where all clients have the same, else of each of them."""
    distinct: dict[str, list[str]] = {}
    for client, content in of_clients.items():
        distinct.setdefault(format_certificate("", content), []).append(client)
    yield "privacy certificate" + ("s" if len(distinct) > 1 else "")
    for certificate, clients in distinct.items():
        all_of_many = len(clients) == len(of_clients) > 5
        name = f"each of the {len(clients)} clients" if all_of_many else ", ".join(clients)
        first, *rest = certificate.split("\n")
        yield from (f"  {name}{first}", *(f"  {line}" for line in rest))


def _number(value: Json, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high  # NaN is in no range


def _text(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def _amount(value: Json) -> bool:
    return value == "inf" or _number(value, 0, 1e308)


def _share(value: Json) -> bool:
    return _number(value, 0, 1)


def _positive(value: Json) -> bool:
    return _number(value, 1e-308, 1e308)


def _one_of(*known: str) -> tuple[Callable[[Json], bool], str]:
    return lambda value: isinstance(value, str) and value in known, f"one of {', '.join(known)}"


def _count(least: int) -> tuple[Callable[[Json], bool], str]:
    return lambda value: isinstance(value, int) and _number(value, least, 2**53), f"a whole number of at least {least}"


Check = tuple[Callable[[Json], bool], str]  # whether a value can be, and in words what was wanted
TEXT: Check = (_text, f"a text of at most {LONGEST} printable characters")
AMOUNT: Check = (_amount, 'a number of at least 0, or "inf"')
SHARE: Check = (_share, "a number from 0 to 1")
POSITIVE: Check = (_positive, "a finite number above 0")

# What stands in the certificate of one job.
FIELDS: Mapping[str, Check] = {
    "claim": TEXT,
    "epsilon": AMOUNT,
    "delta": SHARE,
    "epsilon_cap": AMOUNT,
    "unit": _one_of(*get_args(Unit)),
    "neighbours": TEXT,
    "trust": TEXT,
    "sampling": _one_of(*get_args(Sampling)),
    "sampling_rate": SHARE,
    "steps": _count(0),
    "noise_multiplier": POSITIVE,
    "clip": POSITIVE,
    "noise_source": _one_of("secure", "keyed"),
    "accountant": TEXT,
    "caps": TEXT,
    "rows_per_person": _count(1),
    "posterior": TEXT,
}
OPTIONAL: Mapping[str, Check] = {
    "mechanisms": _count(1),
    "public": TEXT,
    "rows": _count(1),
    "cases_per_person": _count(1),
    "person_epsilon": AMOUNT,
    "person_delta": SHARE,
    "progress": SHARE,
}


def find_problem(content: Json) -> str | None:
    """Returns the fault of a certificate that came from elsewhere, beginning with the field; None if it has none."""
    if not isinstance(content, dict):
        return " must be a table"
    for name in (name for name in FIELDS if name not in content):
        return f".{name} is missing"
    for name, value in content.items():
        check = FIELDS.get(name) or OPTIONAL.get(name)
        if check is None:
            return f" has a field {name[:40]!r}, which no certificate has"
        good, wanted = check
        if not good(value):
            shown = repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"
            return f".{name} is {shown}, expected {wanted}"
    if content["noise_source"] == "keyed" and content["epsilon"] != "inf":
        return '.epsilon is finite with keyed noise, expected "inf"'
    return None
