"""At a place of several, a fault of rows in memory is told to their holder alone: others read what they read of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.places import Hub, Spoke, Timeouts
from support.outside import threads

NAMES = ("ada", "bo")
SECRET = "Mrs Jones"
OPEN: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
TERMS = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 5.0, "sampling_rate": 0.5}
PRIVATE: dict[str, Any] = {
    "job": {"method": "pvi", "rounds": 2},
    "data": {"response": "y", "columns": {"x": {"center": 0, "scale": 1}}},
    "model": {"family": "gaussian", "scale": 1.0},
    "privacy": TERMS,
}


class Hostile:
    """Offers an array, and fails with a row's name."""

    def __dlpack__(self, **_: object) -> object:
        raise ValueError(f"row 7 {SECRET}")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def rows(n: int, cell: object = None) -> pd.DataFrame:
    x = np.linspace(-1, 1, n)
    y: list[Any] = [*(1 + 2 * x + 0.1 * np.cos(31 * x))]
    if cell is not None:
        y[41] = cell
    return pd.DataFrame({"x": x, "y": y})


def arrays(n: int) -> tuple[np.ndarray, np.ndarray]:
    frame = rows(n)
    return frame[["x"]].to_numpy(), frame["y"].to_numpy()


@pytest.mark.parametrize(
    ("job", "bad", "hidden", "own"),
    [
        (OPEN, rows(57, f"{SECRET}, HIV+"), (SECRET, "42", "57"), SECRET),
        (OPEN, rows(57).assign(x=[f"{SECRET}", *[1.0] * 56]), (SECRET, "57"), SECRET),
        (OPEN, rows(57).head(13), ("13",), "13 rows"),
        ({**OPEN, "data": {}}, (arrays(57)[0], arrays(58)[1]), ("57", "58"), "(58,)"),
        ({**OPEN, "data": {}}, (Hostile(), arrays(57)[1]), (SECRET,), SECRET),
        (
            {**PRIVATE, "data": {"columns": {"x1": {"center": 0, "scale": 1}}}},
            (arrays(57)[0], arrays(58)[1]),
            ("57", "58"),
            "(58,)",
        ),
    ],
    ids=["cell", "object", "few", "length", "array", "private"],
)
def test_others_read_no_cell_and_no_number_of_rows(job: dict[str, Any], bad: Any, hidden: tuple[str, ...], own: str) -> None:
    good = arrays(90) if isinstance(bad, tuple) else rows(90)
    told: dict[str | None, list[str]] = {name: [] for name in (None, *NAMES)}
    spokes = {name: Spoke(k, len(NAMES), Timeouts(lost=30.0, grace=3.0)) for k, name in enumerate(NAMES)}
    hub = Hub(threads.Threads(spokes), NAMES, Timeouts(lost=30.0, grace=3.0))

    def main(place: Any) -> int:
        fedkern.run(job, data={"ada": good, "bo": bad}, place=place)
        return 0

    sites = {name: lambda name=name: spokes[name].run(main, told[name].append) for name in NAMES}
    codes = threads.run_all(lambda: hub.run(main, told[None].append), sites)
    assert set(codes.values()) == {2}
    others = " ".join([*told[None], *told["ada"]])
    assert "bo" in others
    assert not [text for text in hidden if text in others], others
    assert own in " ".join(told["bo"])
