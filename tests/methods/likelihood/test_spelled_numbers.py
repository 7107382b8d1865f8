"""Labels that are one number in two spellings are one stratum, one group and one level, as R reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern

# R 4.2.2, survival 3.5-3, lme4 1.1-31, on read.csv of both files, which gives numbers; factor() keeps 15 significant digits:
COX = (1.34419617, 0.13215633)  # coxph(Surv(time, event) ~ x + strata(site, v))
MIXED = {"intercept": (0.99780618, 0.131898518), "theta[x]": (0.80570315, 0.031616296)}  # lmer(y ~ x + (1 | v)), v within site
SIGMA = 0.44372445  # of the same
LINEAR = {  # lm(y ~ x + factor(dose))
    "intercept": (1.044536737, 0.124237742),
    "theta[x]": (0.837022340, 0.084003194),
    "theta[C(dose)[T.0.2]]": (-0.145597092, 0.175675616),
    "theta[C(dose)[T.0.3]]": (-0.021687483, 0.152156528),
}


def frames() -> dict[str, pd.DataFrame]:
    i = np.arange(400)
    stratum = 1 + (i * 7) % 40
    x = np.round(np.cos(1.7 * i) + 0.3 * np.sin(stratum), 3)
    u, noise = np.sin(2.3 * stratum), np.sin(5.1 * i) + np.cos(3.3 * i)
    plain, tenths = stratum * 1000, stratum / 10
    power = [f"{v:.2e}" if v < 10_000 else f"{v:.3e}" for v in plain]
    ones = np.where(i % 2 == 0, "0.1", "1e-01")
    cells = {
        "x": x,
        "y": np.round(1 + 0.8 * x + u + noise, 4),
        "time": np.round(np.exp(-0.5 * x + u + noise), 5),
        "event": (i % 5 > 0).astype(int),
        "plain": plain.astype(str),
        "power": np.where(i % 2 == 0, power, plain.astype(str)),
        "tenth": np.where(i % 3 == 0, [f"{v * (1 + 2**-51):.17g}" for v in tenths], [f"{v:.15g}" for v in tenths]),
    }
    cells["dose"] = np.where(stratum % 4 == 1, ones, np.array(["0.3", "", "0.2", "0.30000000000000004"])[stratum % 4])
    client = i % 2 + (i // 40) % 2 == 1
    return {name: pd.DataFrame(cells)[client == (name == "q")] for name in "pq"}


def fit(formula: str, family: str, folder: Path) -> Any:
    for name, frame in frames().items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return fedkern.run(
        {
            "job": {"method": "likelihood", "seed": 3},
            "data": {"clients": [str(folder / "*.csv")], "least_rows": 1, "least_groups": 1},
            "model": {"family": family, "formula": formula, "prior_sd": 30.0},
            "algorithm": {"points": 1024, "effective": 400.0},
        }
    )


def compare(found: Any, wanted: dict[str, tuple[float, float]]) -> None:
    for name, (mean, sd) in wanted.items():
        own = found.parameters[name]
        assert own["mean"] == pytest.approx(mean, abs=0.15 * sd), name
        assert own["sd"] == pytest.approx(sd, rel=0.12), name


@pytest.mark.parametrize("strata", ["plain", "power", "tenth"])
def test_a_stratum_is_one_number(strata: str, tmp_path: Path) -> None:
    compare(fit(f"Surv(time, event) ~ x + strata({strata})", "cox", tmp_path), {"theta[x]": COX})


@pytest.mark.parametrize("group", ["plain", "power", "tenth"])
def test_a_group_is_one_number(group: str, tmp_path: Path) -> None:
    found = fit(f"y ~ x + (1 | {group})", "gaussian", tmp_path)
    compare(found, MIXED)
    assert found.parameters["sigma"]["mean"] == pytest.approx(SIGMA, rel=0.02)


def test_a_level_is_one_number(tmp_path: Path) -> None:
    found = fit("y ~ x + factor(dose)", "gaussian", tmp_path)
    assert {name for name in found.parameters if name.startswith("theta[C(dose)")} == {*LINEAR} - {"intercept", "theta[x]"}
    compare(found, LINEAR)
