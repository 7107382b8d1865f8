"""The scripts of the gallery: each runs, ends with a figure, shows what it says, and its results may be read."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("plot_*.py"))


def results_of(value: object) -> list[fedkern.Result]:
    """Every result among the names of a script, and in lists and tables of them."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return [result for one in value for result in results_of(one)]
    return [value] if isinstance(value, fedkern.Result) else []


def shown(name: str, monkeypatch: pytest.MonkeyPatch, misfit: str = "") -> dict[str, Any]:
    """What a script has defined, once it has shown its figure. `misfit`: the result that it shows because it may not be read."""
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    plt.close("all")  # what a test before may have left
    figures: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: figures.extend(plt.get_fignums()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other libraries
            names = runpy.run_path(str(FOLDER / f"{name}.py"))
    finally:
        plt.close("all")
    assert len(figures) == 1
    results = results_of([value for key, value in names.items() if key != misfit])
    assert results
    for result in results:
        assert result.converged is not False, result.summary["verdict"]
    return names


def test_all_scripts_are_here() -> None:
    names = ("against_numpyro", "heart", "hospitals", "map", "own_model", "private_budget", "survival", "wheeze")
    assert SCRIPTS == [f"plot_{name}" for name in names]


def test_hospitals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown("plot_hospitals", monkeypatch)["difference"] < 1e-6


@pytest.mark.nightly
def test_private_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    results = shown("plot_private_budget", monkeypatch)["results"]
    assert not results.pop("no noise").privacy
    for name, result in results.items():
        cap = float(name.split()[1])
        assert all(0.99 * cap <= one["epsilon"] <= cap for one in result.privacy.values())


@pytest.mark.nightly
def test_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    names = shown("plot_heart", monkeypatch)
    assert list(names["found"]["parameter"])[-2:] == ["theta[depression]", "theta[age]"]
    assert names["result"].summary["converged"] is True


@pytest.mark.nightly
def test_map(monkeypatch: pytest.MonkeyPatch) -> None:
    names = shown("plot_map", monkeypatch)
    assert names["result"].summary["converged"] in (True, "settled")
    areas = names["areas"]
    assert len(areas) == 36
    few = areas["exposure"] < areas["exposure"].median()  # areas of few cases are drawn to their neighbours most
    pull = abs(np.log(areas["rate_mean"] / areas["crude"].clip(lower=0.1)))
    assert pull[few].mean() > pull[~few].mean()


@pytest.mark.nightly
def test_against_numpyro(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpyro")
    shown("plot_against_numpyro", monkeypatch)
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("theta[", "intercept"))][-3:]
    assert {row[0] for row in table} == {"theta[x]", "theta[z]", "intercept"}
    assert all(float(row[1]) < 0.15 for row in table)  # Wasserstein distance, in sds


def test_wheeze(monkeypatch: pytest.MonkeyPatch) -> None:
    """The federated posterior is the pooled one; its sd of effects is that of quadrature, 2.14, weighted to the default prior."""
    names = shown("plot_wheeze", monkeypatch)
    assert names["difference"] < 0.02
    assert names["together"].summary["converged"] is True
    assert names["together"].parameters["group_sd[intercept]"]["mean"] == pytest.approx(2.19, abs=0.05)  # glmer 2.17


@pytest.mark.nightly
def test_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in JAX, over five hospitals of which none knows the answer: the pooled posterior, which holds the truth."""
    pytest.importorskip("jax")
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = shown("plot_own_model", monkeypatch, misfit="alone")
    assert [name for name, one in names["alone"].items() if one.converged is False] == ["b", "c"]
    sys.modules.pop("emax_model", None)
    assert names["difference"] < 0.02
    assert names["together"].summary["converged"] is True
    for name, value in names["truth"].items():
        row = names["together"].parameters[name]
        assert row["q025"] < value < row["q975"], name
    widths = {name: row["q975"] - row["q025"] for name, row in names["halves"].items()}
    assert 2 * widths["federated"] < min(widths[name] for name in names["frames"])


def test_survival(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant hazard is seen to be none; the truth is in the intervals of the two other curves."""
    names = shown("plot_survival", monkeypatch, misfit="constant")
    assert names["constant"].summary["converged"] is False
    for result in (names["weibull"], names["pieces"]):
        assert result.summary["converged"] is True
        inside = [row["q025"] < np.exp(-((row["time"] / 12) ** 1.8)) < row["q975"] for row in result.summary["survival"][1:]]
        assert np.mean(inside) > 0.8
    assert names["weibull"].parameters["shape"]["mean"] == pytest.approx(1.8, abs=0.2)
