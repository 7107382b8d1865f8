"""New rows that lack a cell have no prediction, as in R, and all others have theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern

SPEED = (
    "4 4 7 7 8 9 10 10 10 11 11 12 12 12 12 13 13 13 13 14 14 14 14 15 15 15 16 16 17 17 17 18 18 18 18 19 19 19 20 20 20 20 20 "
    "22 23 24 24 24 24 25"
)
DIST = (
    "2 10 4 22 16 10 18 26 34 17 28 14 20 24 28 26 34 34 46 26 36 60 80 20 26 54 32 40 32 40 50 42 56 76 84 36 46 68 32 48 52 56 "
    "64 66 54 70 92 93 120 85"
)
IN_R = (21.74499, np.nan, 61.06908)  # predict(lm(dist ~ speed, cars), data.frame(speed = c(10, NA, 20))) of R 4.2.2


def cars() -> pd.DataFrame:
    frame = pd.DataFrame({"speed": list(map(float, SPEED.split())), "dist": list(map(float, DIST.split()))})
    return frame.assign(brakes=np.where(np.arange(50) % 3, "drum", "disc"))


def of(method: str, formula: str) -> fedkern.Result:
    scale: dict[str, Any] = {"scale": 15.4} if method == "pvi" else {}
    job = {"job": {"method": method}, "model": {"formula": formula, "family": "gaussian", **scale}}
    return fedkern.run(job, data={name: cars().iloc[k::2] for k, name in enumerate("ab")})


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_row_that_lacks_a_cell_has_no_prediction(method: str) -> None:
    result, rows = of(method, "dist ~ speed"), pd.DataFrame({"speed": [10.0, np.nan, 20.0]})
    with pytest.warns(UserWarning, match="1 of 3 rows lack a cell that the model needs, and have no prediction") as warned:
        found = result.predict(rows)
    assert len(warned) == 1
    np.testing.assert_allclose(found["mean"], IN_R, atol=0.6)
    np.testing.assert_array_equal(found.isna(), np.isnan(np.array(IN_R))[:, np.newaxis] * np.ones(found.shape[1], bool))
    none = result.prediction(rows.assign(speed=np.nan))
    assert np.isnan(none.mean).all()


def test_labels_and_files_that_lack_a_cell(tmp_path: Path) -> None:
    result = of("likelihood", "dist ~ log(speed) + brakes")
    rows = pd.DataFrame(
        {"speed": [10.0, 12.0, 20.0, np.nan], "brakes": ["drum", None, "disc", "drum"], "dist": [20.0, 20, 60, 30]}
    )
    rows.to_csv(tmp_path / "rows.csv", index=False, na_rep="NA")
    for own in (rows, tmp_path / "rows.csv"):
        found = result.prediction(own)
        assert np.isnan(found.mean).tolist() == [False, True, False, True]
        assert found.scored == 2
        whole = result.prediction(rows.dropna())
        np.testing.assert_allclose(found.mean[[0, 2]], whole.mean)
        assert found.scores == pytest.approx(whole.scores)
