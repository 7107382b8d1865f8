"""The page of own models: its package, installed, and its job give the answer of all rows together."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkern
from support.own_package import found_first, installed

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "own-model.md").read_text(encoding="utf-8")
TRUTH = {"base": 2.0, "gain": 8.0, "half": 40.0, "sigma": 1.5}


def block(language: str) -> str:
    """The first of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)[0]


def trial(folder: Path) -> None:
    random = np.random.default_rng(4)
    (folder / "trial").mkdir()
    for name, low, high in (("a", 0, 40), ("b", 20, 100), ("c", 60, 400)):
        dose = random.uniform(low, high, 60).round()
        effect = random.normal(TRUTH["base"] + TRUTH["gain"] * dose / (TRUTH["half"] + dose), TRUTH["sigma"])
        pd.DataFrame({"dose": dose, "effect": effect}).to_csv(folder / "trial" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(block("toml"))


def ends_well(folder: Path) -> None:
    result = fedkern.run(folder / "job.toml")
    assert result.converged is True, result.summary["verdict"]
    for name, value in TRUTH.items():
        row = result.parameters[name]
        assert abs(row["mean"] - value) < 3 * row["sd"], name


def test_the_package_and_the_job_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    trial(tmp_path)
    found_first(monkeypatch, installed(tmp_path / "site", "emax_model", block("python")), "emax_model")
    ends_well(tmp_path)
    sys.modules.pop("emax_model", None)


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="nothing to build a package with")
def test_pip_installs_the_package_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its pyproject.toml says, without a network."""
    pytest.importorskip("jax")
    trial(tmp_path)
    project, site = tmp_path / "emax", tmp_path / "site"
    project.mkdir()
    (project / "emax_model.py").write_text(block("python"))
    (project / "pyproject.toml").write_text(block("ini"))
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site), str(project)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, capture_output=True, timeout=120)
    found_first(monkeypatch, site, "emax_model")
    ends_well(tmp_path)
    sys.modules.pop("emax_model", None)


def test_the_table_of_priors_is_that_of_the_keys() -> None:
    from fedkern.methods.likelihood.own_keys import WANTED

    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows} == {
        name: {*needed, *may} for name, (needed, may) in WANTED.items()
    }
