"""Counts that are a code for a missing value, or vary otherwise at one client, are said before any other family is advised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.data.isolated import find_codes

NAMES = ("ada", "bo", "cy", "di")
CODED = "column 'y' has counts that look like a code for a missing value (99, 999) at 'bo': see rows.json there"
CODES = np.arange(5) * 7  # rows


def sites(m: int = 4, *, level: float = 0.0, spread: float = np.inf) -> dict[str, pd.DataFrame]:
    """Columns x and years; counts by exposure, Poisson or with a negative binomial's `spread`; levels differ by an sd."""
    found = {}
    for k, name in enumerate(NAMES[:m]):
        rng = np.random.default_rng([7, k])
        x, years = rng.normal(size=200).round(3), rng.uniform(0.5, 3, 200).round(3)
        mean = np.exp(1.0 + 0.3 * x + level * rng.normal()) * years
        y = rng.poisson(mean if np.isinf(spread) else rng.gamma(spread, mean / spread))
        found[name] = pd.DataFrame({"x": x, "exposure": np.log(years), "y": y})
    return found


def with_cells(clients: dict[str, pd.DataFrame], value: float, rows: Any = CODES) -> dict[str, pd.DataFrame]:
    """The same, with this count in some rows of bo."""
    return {**clients, "bo": clients["bo"].assign(y=clients["bo"]["y"].where(~clients["bo"].index.isin(rows), value))}


def ran(clients: dict[str, pd.DataFrame], family: str = "poisson", *, method: str = "likelihood", **more: Any) -> Any:
    job = {"job": {"method": method, "seed": 3}, "data": {"response": "y", "offset": "exposure"}, "model": {"family": family}}
    if method == "likelihood":
        job["algorithm"] = {"points": 512, "effective": 150.0}
    job["model"] |= more.pop("model", {})
    return fedkern.run(job, data=clients, **more)


@pytest.mark.parametrize("value", [99, 999])
def test_codes_among_counts_let_no_result_stand_in_any_family_and_the_remedy_ends_it(value: float, tmp_path: Path) -> None:
    wrong = ran(with_cells(sites(), value), out=tmp_path / "out")
    assert wrong.converged is False
    assert CODED in wrong.summary["verdict"]
    assert "negative-binomial" not in wrong.summary["verdict"], "another family would take them up"
    own = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())["notes"]
    assert any(f"column 'y': {value:g} stands in 5 rows, far from all other cells" in note for note in own)
    assert any("leave these rows out of the file" in note for note in own)
    assert CODED in ran(with_cells(sites(), value), "negative-binomial").summary["verdict"]
    clients = sites()
    right = ran({**clients, "bo": clients["bo"].drop(index=CODES)})
    assert right.converged is True
    slope = right.parameters["theta[x]"]
    assert abs(slope["mean"] - 0.3) < 3 * slope["sd"]


def test_a_pvi_job_says_the_same() -> None:
    wrong = ran(with_cells(sites(), 99), method="pvi").summary
    assert CODED in wrong["verdict"]
    assert "negative-binomial" not in str([wrong["verdict"], wrong["notes"]])
    assert ran(sites(), method="pvi").converged == "settled"


def test_wrong_counts_that_are_no_code_are_named_with_their_client() -> None:
    clients = sites()
    tenfold = clients["bo"]["y"].where(~clients["bo"].index.isin(np.arange(20) * 9), 10 * clients["bo"]["y"])
    said = ran({**clients, "bo": clients["bo"].assign(y=tenfold)}).summary["verdict"]
    assert "most at 'bo' (" in said
    assert "look at its counts and exposures first" in said
    assert "where its counts are right set model.family" in said
    dispersed = ran(sites(spread=1.5)).summary["verdict"]
    assert "most at" not in dispersed
    assert 'set model.family = "negative-binomial"' in dispersed
    assert ran(sites(spread=1.5), "negative-binomial").converged is True


def test_levels_that_differ_are_an_effect_of_clients_before_another_family() -> None:
    found = ran(sites(level=0.8)).summary
    (at_mode,) = [note for note in found["notes"] if "model says, at the mode" in note]
    for said in (found["verdict"], at_mode):  # one remedy, wherever it is read
        assert "most of it is that clients' levels differ" in said
        assert "set [model.random] client = true, and where it is still so" in said
    assert ran(sites(level=0.8), model={"random": {"client": True}}).converged is True


def test_months_among_years_advise_no_other_family() -> None:
    clients = sites()
    said = ran({**clients, "bo": clients["bo"].assign(exposure=clients["bo"]["exposure"] + np.log(12))}).summary["verdict"]
    assert "column 'y' is in another unit at bo" in said
    assert "look at it again once the file is mended" in said
    assert "negative-binomial" not in said


def honest(rng: np.random.Generator, n: int, shape: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Counts without a code."""
    mean = rng.choice([0.5, 2.0, 8.0, 30.0, 60.0, 90.0])
    size = np.exp(rng.normal(0, 1.5 if shape == "wide" else 0.4, n))
    if shape == "map":
        expected = rng.lognormal(2, 1.3, n)
        return rng.poisson(expected * np.exp(rng.normal(0, 0.8, n))).astype(float), np.log(expected)
    if shape == "dispersed":
        size = size * rng.gamma(0.5, 2, n)
    if shape == "pareto":
        return np.floor(rng.pareto(1.2, n) * 3).clip(0, 1e6), None
    return rng.poisson(mean * size).astype(float), None


@pytest.mark.parametrize("n", [20, 60, 300, 2000])
@pytest.mark.parametrize("shape", ["poisson", "wide", "dispersed", "pareto", "map"])
def test_honest_counts_have_no_code(shape: str, n: int) -> None:
    rng = np.random.default_rng([1, n])
    assert sum(find_codes(*honest(rng, n, shape)).any() for _ in range(200)) <= 1


def test_a_large_area_may_have_999_cases() -> None:
    rng = np.random.default_rng(2)
    expected = np.append(rng.uniform(5, 50, 40), 980.0)
    y = np.append(rng.poisson(expected[:40]), 999.0).astype(float)
    assert not find_codes(y, np.log(expected)).any()
    y[3] = 999.0
    assert np.flatnonzero(find_codes(y, np.log(expected))).tolist() == [3]
    y[5], expected[6] = np.nan, np.nan
    assert np.flatnonzero(find_codes(y, np.log(expected))).tolist() == [3]
