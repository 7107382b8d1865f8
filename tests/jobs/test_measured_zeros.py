"""A dose of 0 is measured where all sites have some; a 0 that stands for a missing value is where others have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import column_notes
from fedkern.algorithms.exchanges.column_notes import in_tenths, lacking_zeros
from fedkern.data.isolated import FEWER, judge

SIZES = ((400, 300, 200), (120, 80, 60, 40), (1000, 30, 300), (60, 50, 40), (25,) * 8)
NOTE = "column 'dose' has zeros far from all its other cells at "
DOUBT = "column 'dose' has a cell, or several with one value, far from all others at 'b'"


def sites(shares: dict[str, float], sd: float = 12.0) -> dict[str, Any]:
    pd = pytest.importorskip("pandas")
    found = {}
    for k, (name, share) in enumerate(shares.items()):
        random, n = np.random.default_rng([3, k]), (400, 300, 200)[k]
        dose = np.where(random.random(n) < share, 0.0, random.normal(100, sd, n))
        found[name] = pd.DataFrame({"dose": dose, "x": random.normal(size=n), "y": random.normal(size=n)})
    return found


def ran(clients: dict[str, Any]) -> Any:
    return fedkern.run(
        {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}, data=clients
    )


def test_zeros_of_all_sites_are_measured_and_those_of_one_a_doubt() -> None:
    said = ran(sites({"a": 0.3, "b": 0.4, "c": 0.25})).summary
    assert said["converged"] is True, said["verdict"]
    assert not any(note.startswith(NOTE) for note in said["notes"])
    wrong = ran(sites({"a": 0.0, "b": 0.4, "c": 0.0})).summary
    assert wrong["converged"] is False
    assert DOUBT in wrong["verdict"]
    few = sites({"a": 0.0, "b": 0.0, "c": 0.0}, sd=3.0)
    few["b"].loc[:1, "dose"] = 0.0
    assert DOUBT in ran(few).summary["verdict"]


def found(random: np.random.Generator, sizes: tuple[int, ...], shares: Any, sd: float) -> bool:
    told = {}
    for k, (n, share) in enumerate(zip(sizes, shares)):
        values = np.where(random.random(n) < share, 0.0, random.normal(100, sd, n))
        far, zeros = judge({"dose": values})
        if far:
            return True
        if zeros:
            told[k] = zeros["dose"]
    return bool(lacking_zeros(told, sizes))


@pytest.mark.parametrize("sizes", SIZES)
def test_a_dose_of_comparable_shares_makes_nearly_no_result_fall(sizes: tuple[int, ...]) -> None:
    """Shares of 5 to 50 %, in half of the federations half to twice these at each site; narrow and wide spreads."""
    random, fallen = np.random.default_rng(1), 0
    for i in range(200):
        share, sd = (0.05, 0.1, 0.25, 0.5)[i % 4], (3.0, 10.0, 25.0)[i // 4 % 3]
        own = share * 2 ** random.uniform(-1, 1, len(sizes)) if i % 2 else np.full(len(sizes), share)
        fallen += found(random, sizes, np.minimum(own, 0.9), sd)
    assert fallen <= 3


def test_zeros_of_one_site_are_found() -> None:
    random = np.random.default_rng(2)
    assert sum(found(random, (400, 300, 200), (0, 0.1, 0), 15.0) for _ in range(50)) >= 48
    assert sum(found(random, (120, 80, 60), (0, 0.25, 0), 15.0) for _ in range(50)) >= 45


def test_a_usual_code_needs_no_comparison_and_few_zeros_only_that_others_have_none() -> None:
    random = np.random.default_rng(3)
    values = random.normal(50, 2, 200)
    coded = np.where(np.arange(200) % 10 == 0, 999.0, values)
    assert judge({"x": coded}) == (["x"], {})
    slip = values.copy()
    slip[:2] = 0.0
    _, zeros = judge({"x": slip})
    assert zeros["x"][1] == FEWER
    assert lacking_zeros({0: zeros["x"]}, (200, 100)) == [0]
    assert lacking_zeros({0: zeros["x"], 1: (2, 0)}, (200, 100)) == []
    assert judge({"x": (values > 50).astype(float)}) == ([], {})


@pytest.mark.parametrize("zeros", [3, {"x": 4}, {"x": [1]}, {"x": [0, 1]}, {"x": [101, 0]}, {"x": [5, 3]}, {"x": [5, True]}])
def test_a_share_that_is_none_is_refused(zeros: Any) -> None:
    content = {"constant": [], "coarse": [], "judged": [1, 1], "collinear": {}, "zeros": zeros}
    with pytest.raises(RemoteFault, match="zeros"):
        column_notes._checked("client a", content)


def test_with_secure_sums_a_client_tells_no_more_than_whether_its_zeros_are_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(column_notes, "Client", lambda found, make=column_notes.Client: told.append(found.zeros) or make(found))
    job = {"job": {"method": "likelihood", "sums": "secure"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
    said = fedkern.run(job, data=sites({"a": 0.3, "b": 0.4, "c": 0.25})).summary
    assert [one["dose"][0] for one in told] == [10, 10, 10]
    assert not any(note.startswith(NOTE) for note in said["notes"])
    wrong = fedkern.run(job, data=sites({"a": 0.0, "b": 0.4, "c": 0.0})).summary
    assert DOUBT in wrong["verdict"]
    assert in_tenths({"x": (9, 2), "y": (10, 1), "z": (55, 0)}) == {"x": (1, 2), "y": (10, 1), "z": (10, 0)}
