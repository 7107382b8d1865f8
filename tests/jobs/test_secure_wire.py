"""What leaves a client of a job with secure sums without a mask: of all methods, no message that the page does not name."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedkern.algorithms.core.masked import Masked, Sum
from fedkern.algorithms.core.messages import KINDS, Message
from fedkern.api import check_job
from fedkern.data.faults import own_text
from fedkern.errors import JobError
from fedkern.methods import METHODS, load, load_method
from fedkern.transports.inprocess import InProcess
from support.declared import DECLARED, MODULES
from support.refusal import refusal
from support.secure_jobs import job
from support.wires import listed

PAGE = (Path(__file__).parents[2] / "docs/concepts/secure-sums.md").read_text("utf-8")
(UNMASKED,) = re.findall(r"^## What is not masked\n(.*?)^## ", PAGE, flags=re.MULTILINE | re.DOTALL)
NAMED = {name for row in UNMASKED.splitlines() if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
WITH_SUMS = [method for method in METHODS if method != "vertical"]

# Messages that no job with secure sums has, each with keys by which a job would have it: such a job is refused.
Keys = dict[str, dict[str, Any]]
TIMES: dict[str, Any] = {"response": None, "time": "t", "event": "y", "ignore": ["n"]}
NOISE = {"epsilon": 100.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 0.5}
NUMERIC = {"kind": "numeric", "center": 0.0, "scale": 1.0}
SURVEY: Keys = {"data": {"weight": "n", "weight_kind": "survey"}}
PRIVATE: Keys = {"data": {"columns": dict.fromkeys(("x", "t", "n"), NUMERIC)}, "privacy": NOISE}
REFUSED: dict[tuple[str, str], Keys] = {
    ("describe", "Certificate"): {
        "data": {"columns": {name: {"lower": 0.0, "upper": 9.0} for name in ("x", "t", "n", "y")}},
        "privacy": {"epsilon": 1.0},
    },
    ("pvi", "Certificate"): PRIVATE,
    ("pvi", "NoisySums"): PRIVATE,
    ("pvi", "Refused"): PRIVATE,
    ("likelihood", "WeightSums"): SURVEY,
    ("likelihood", "ClusterScores"): SURVEY,
    ("likelihood", "SiteMode"): {"output": {"sites": True}},
    ("likelihood", "CumulativeHazards"): {"data": TIMES, "model": {"family": "cox"}, "output": {"survival_at": [1.0]}},
    ("likelihood", "OwnModel"): {
        "data": {"response": None},
        "model": {"kind": "own", "factory": "a:b", "priors": {"b": {"kind": "normal", "sd": 1.0}}},
    },
    ("sigma", "Certificate"): {"privacy": {"unit": "case", "epsilon": 1.0, "delta": 1e-5}},
    ("sigma", "Reached"): {"algorithm": {"inference": "sfvi-avg"}},
    ("sigma", "Curvatures"): {"algorithm": {"inference": "nested"}},
    ("sigma", "Marginals"): {"algorithm": {"inference": "nested"}},
    ("sparse", "SecondMoments"): {"model": {"splines": {"x1": [-1.0, 0.0, 1.0]}}},
    ("sparse", "CompletedMoments"): {"model": {"missing": "impute"}},
    ("sparse", "SiteFit"): {"output": {"site_fits": True}},
    ("sparse", "Locals"): {"algorithm": {"aggregate": "locals"}},
    ("sparse", "MoveTerms"): {"algorithm": {"aggregate": "locals", "moves": ["translate"]}},
    ("sparse", "SecondMoveTerms"): {"algorithm": {"aggregate": "locals", "moves": ["translate", "interweave"]}},
    ("sparse", "Loglik"): {
        "model": {"kind": "sem"},
        "data": {"response": None},
        "algorithm": {"aggregate": "locals", "chains": 2, "tempering": 2},
    },
    ("sparse", "Statistics"): {"algorithm": {"statistics": "pooled"}},
}
NOT_ASKED = {("sparse", "Counts"), ("pvi", "Stored")}  # with secure sums
# Jobs whose exchanges are listed by `fedkern check`, as many kinds of them as there are exchanges.
ALLOWED: dict[str, list[Keys]] = {
    "pvi": [
        {},
        {"model": {"missing": "drop"}},
        {"model": {"family": "gaussian"}},
        {"model": {"family": "poisson"}},
        {"algorithm": {"variant": "global-vi"}},
    ],
    "likelihood": [
        {},
        {"model": {"missing": "drop"}, "output": {"loo": True, "marginal": True}},
        {"job": {"sums_except": "without"}, "output": {"without": True}},
        {"algorithm": {"sampler": "hmc"}},
        {"model": {"family": "gaussian"}},
        {"data": TIMES, "model": {"family": "cox"}},
        {"data": TIMES, "model": {"family": "weibull"}, "output": {"survival_at": [1.0], "restricted_mean": 2.0}},
    ],
    "sigma": [
        {"algorithm": {"inference": "sfvi"}},
        {"algorithm": {"inference": "hmc"}},
        {"algorithm": {"inference": "sfvi"}, "output": {"fit": True, "reweigh": True}},
    ],
    "describe": [{}],
    "sparse": [
        {},
        {"output": {"loo": True}},
        {"model": {"scale": "none"}},
        {"model": {"kind": "mrf"}, "data": {"response": None}},
        {"model": {"kind": "sem"}, "data": {"response": None}},
    ],
}


def sums(module: ModuleType) -> list[Sum]:
    """The masked kinds of a module."""
    found = (value for value in vars(module).values())
    return [one for value in found for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Sum)]


# Where clients of an open job round, or cut off, what they send, another class holds the numbers that are masked.
TWINS = {one.kind.__name__.removeprefix("Summed") for module in MODULES for one in sums(module)}
TWINS |= {kind.__name__ for kind in DECLARED if kind.hidden}


def test_the_page_names_messages_of_the_registry() -> None:
    assert NAMED >= {"ColumnMoments", "SingleValues"}
    assert NAMED <= {kind.__name__ for kind in KINDS.values()}


@pytest.mark.parametrize("method", WITH_SUMS)
def test_a_message_of_a_method_is_masked_or_named_or_its_jobs_are_refused(method: str) -> None:
    sent: set[type[Message]] = {*load_method(method).stages.MAY_SEND}
    bare = {kind.__name__ for kind in sent if not issubclass(kind, Masked)} - TWINS
    refused = {kind for of, kind in REFUSED if of == method}
    assert not bare & refused & NAMED
    bare -= {kind for of, kind in NOT_ASKED if of == method}
    assert bare - NAMED == refused, "a client could send it of itself: mask it, refuse such jobs, or name it on the page"


def with_sums(keys: Keys) -> Keys:
    return keys | {"job": {"sums": "secure"} | keys.get("job", {})}


@pytest.mark.parametrize(("method", "kind"), REFUSED)
def test_a_job_that_would_have_it_is_refused(method: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = job(tmp_path, method)
    load(path, sections=REFUSED[method, kind])  # as it is allowed without masks
    with pytest.raises(JobError, match=r"job\.sums|secure sums|aggregate"):
        load(path, sections=with_sums(REFUSED[method, kind]))


@pytest.mark.parametrize(("method", "keys"), [(method, keys) for method in WITH_SUMS for keys in ALLOWED[method]])
def test_a_check_lists_no_message_that_is_neither_masked_nor_named(
    method: str, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, folder = load(job(tmp_path, method), sections=with_sums(keys))
    sizes, _ = listed("\n".join(check_job(InProcess(), config, folder) or []))
    kinds = {kind for way, kind in sizes if way == "to_server"}
    assert {kind for kind in kinds if kind.startswith("Masked")}
    assert {kind for kind in kinds if not kind.startswith("Masked")} - {"Received", "Kept"} <= NAMED


@pytest.mark.parametrize("secure", [True, False])
def test_a_client_with_few_rows_is_advised_what_the_job_may_have(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = job(tmp_path, "likelihood")
    (tmp_path / "b.csv").write_text("\n".join((tmp_path / "b.csv").read_text().splitlines()[:9]) + "\n")
    config, folder = load(path, sections=with_sums({}) if secure else {})
    with refusal(JobError, "disclosure.rows") as fault:
        check_job(InProcess(), config, folder, apart=True)
    assert ("leave-out" in own_text(fault.value)) != secure
