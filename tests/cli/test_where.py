"""Each line of "where is my function" is tried: its code runs, or it says that fedkern has no such function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')
pytest.importorskip("matplotlib")

import fedkern
from support import built_priors
from support import sigma_artifacts as artifacts

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "where.md"
FIRST = 'fedkern.fit("died ~ age * sex + (1 | ward)", frames)'


def lines() -> list[tuple[str, str]]:
    """The lines of all tables but their heads: another program's function, and what stands beside it."""
    cells = [re.split(r"(?<!\\) \| ", line.strip().strip("|")) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = [(first.strip(), second.strip().replace("\\|", "|")) for first, second in cells]
    return [(first, second) for first, second in found if second not in ("fedkern", "---")]


CODES = {re.fullmatch(r"`(.*)`", second)[1] for _, second in lines() if not second.startswith("not there")}  # type: ignore[index]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rng, frames = np.random.default_rng(8), dict[str, pd.DataFrame]()
    for name in ("north", "south"):
        age, sex, ward = rng.normal(60, 12, 300), rng.choice(["f", "m"], 300), rng.integers(0, 12, 300)
        eta = 0.05 * (age - 60) + 0.4 * (sex == "m") + rng.normal(0, 0.4, 12)[ward]
        frames[name] = pd.DataFrame(
            {
                "age": age,
                "sex": sex,
                "ward": np.char.add("w", ward.astype(str)),
                "died": (rng.random(300) < 1 / (1 + np.exp(-eta))).astype(int),
                "visits": rng.poisson(rng.gamma(2.0, 0.5, 300) * np.exp(0.3 * eta)),
                "pressure": 120 + 5 * eta + rng.normal(0, 8, 300),
                "time": rng.weibull(1.3, 300) * np.exp(-0.5 * eta) * 8 + 0.01,
                "stage": pd.Categorical(np.array(["I", "II", "III"])[rng.integers(0, 3, 300)], ["I", "II", "III"], ordered=True),
            }
        )
    folder = tmp_path_factory.mktemp("map")
    built_priors.written(folder)
    artifacts.counts(folder / "rows")
    files = sorted((folder / "rows").glob("*.csv"))
    new = frames["north"].head(3)
    spaces: dict[str, Any] = {"fedkern": fedkern, "frames": frames, "new": new, "files": files, "prior": str(folder / "prior")}
    return {**spaces, "fit": eval(FIRST, spaces)}


def test_each_line_has_code_or_says_that_it_is_not_there() -> None:
    assert len(lines()) > 50
    assert all(second.startswith("not there") or re.fullmatch(r"`[^`]+`", second) for _, second in lines())
    assert f"fit = {FIRST}" in CODES


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("code", sorted(CODES))
def test_a_line_runs(code: str, known: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert eval(code.removeprefix("fit = "), known) is not None or code == "print(fit)"
