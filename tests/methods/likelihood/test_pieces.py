"""Pieces of a hazard tell no row: what is read off a client's first message, and that such a client is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.arrays import Array
from fedkern.errors import FedkernError
from fedkern.finding import RuleRefusal
from fedkern.methods.likelihood.pieces import check_pieces
from fedkern.methods.likelihood.times import Times
from fedkern.models.mixed import Layout
from fedkern.models.survival_parametric import Lifetimes, shapes_of

CUTS = (1.0, 2.0, 3.0, 12.0)


def rows(n: int = 200, seed: int = 5) -> pd.DataFrame:
    """Nobody ends before 3."""
    rng = np.random.default_rng(seed)
    age, time, end = rng.normal(0, 1, n), 3 + rng.exponential(12, n), rng.uniform(8, 30, n)
    months, died = np.minimum(time, end), time <= end
    return pd.DataFrame({"age": age, "months": months, "until": np.where(died, months, np.inf), "since": 0.0})


def hessian(frame: pd.DataFrame, cuts: tuple[float, ...] = CUTS) -> Array:
    """Minus the Hessian that the client tells where all unknowns are 0: of the intercept, of age, and of each later piece."""
    layout = Layout(("intercept", "age"), "piecewise", (), (), shapes_of("piecewise", cuts))
    X = np.column_stack([np.ones(len(frame)), frame.age])
    time, upper, entry = (frame[name].to_numpy() for name in ("months", "until", "since"))
    own = Lifetimes.of(layout, X, time, upper, np.array([0, len(X)]), entry, None, np.array(cuts))
    return own.curvature(np.zeros((1, layout.size)), 1)[2][0]


def check(frame: pd.DataFrame, cuts: tuple[float, ...] = CUTS) -> None:
    time, entry, upper = (frame[name].to_numpy() for name in ("months", "since", "until"))
    check_pieces(cuts, Times(time, entry, None, (), upper), "a", "a.csv")


def refused(frame: pd.DataFrame, cuts: tuple[float, ...] = CUTS) -> str:
    """What the holder reads."""
    with pytest.raises(RuleRefusal) as caught:
        check(frame, cuts)
    assert str(caught.value).startswith("client 'a': refused by a disclosure rule; ")
    return caught.value.own.removeprefix("client 'a', a.csv: ").partition("; none or 10")[0]


def read_off(difference: Array) -> float:
    """The age of the one row that a difference of two pieces' sums is about."""
    return float(difference[1] / difference[0])


def nearest(frame: pd.DataFrame, age: float) -> float:
    return float(np.abs(frame.age - age).min())


def test_one_row_that_is_seen_late_is_read_off_a_message_and_its_holder_is_refused() -> None:
    frame = rows()
    frame.loc[17, "since"] = 1.5
    told = hessian(frame)
    assert read_off(told[3] - told[2]) == pytest.approx(frame.age[17], abs=1e-9)
    assert refused(frame).startswith("few rows begin")
    frame.loc[17:26, "since"] = 1.5
    check(frame)
    told = hessian(frame)
    assert read_off(told[3] - told[2]) == pytest.approx(frame.age[17:27].mean(), abs=1e-9)


def test_one_interval_that_spans_pieces_is_read_off_a_message_and_its_holder_is_refused() -> None:
    frame = rows()
    one = int(np.flatnonzero(np.isfinite(frame.until))[3])
    frame.loc[one, ["months", "until"]] = 1.5, 6.0
    told = hessian(frame)
    assert read_off(told[3] - told[2]) == pytest.approx(frame.age[one], abs=1e-9)
    assert refused(frame) == "few rows have their event in an interval: 'from 1 to 2 to from 3 to 12' (1 rows)"
    ten = np.flatnonzero(np.isfinite(frame.until))[3:13]
    frame.loc[ten, ["months", "until"]] = 1.5, 6.0
    check(frame)
    told = hessian(frame)
    assert nearest(frame.loc[ten], read_off(told[3] - told[2])) > 1e-4


def test_a_pair_of_pieces_that_one_interval_spans_among_many_rows_is_refused() -> None:
    """The cell of the Hessian of two pieces is 0 for each row but those whose interval reaches into both."""
    rng = np.random.default_rng(3)
    frame = rows().assign(months=rng.uniform(0.1, 12, 200))
    frame["until"] = np.where(np.isfinite(frame.until), frame.months, np.inf)
    cuts = (3.0, 6.0, 9.0)
    check(frame, cuts)
    assert hessian(frame, cuts)[2, 4] == 0
    one = int(np.flatnonzero(np.isfinite(frame.until) & (frame.months > 4) & (frame.months < 5))[0])
    frame.loc[one, "until"] = 9.7
    told = hessian(frame, cuts)
    assert told[2, 4] != 0
    assert refused(frame, cuts).startswith("few rows have their event")


def test_rows_that_come_and_go_in_one_piece_hide_no_other() -> None:
    """Ten rows are seen in the second piece alone; one more ends there, in which the pieces on both sides differ."""
    frame = rows()
    frame.loc[30:39, ["since", "months", "until"]] = 1.2, 1.8, np.inf
    check(frame)
    frame.loc[17, ["months", "until"]] = 1.5, np.inf
    told = hessian(frame, (1.0, 2.0, 3.0, 12.0))
    whole = told[0] - told[2:].sum(axis=0)  # the first piece has no number of its own
    assert read_off(whole - told[3]) == pytest.approx(frame.age[17], abs=1e-9)
    assert refused(frame).startswith("few rows are seen for other parts")


def test_few_rows_that_end_at_another_time_than_all_others_of_a_piece_are_refused() -> None:
    """Who ends at a cut was seen for the whole piece."""
    frame = rows()
    frame.loc[30:40, ["months", "until"]] = 2.0, np.inf
    check(frame)
    frame.loc[30, "months"] = 1.5
    told = hessian(frame)
    whole = told[0] - told[2:].sum(axis=0)
    assert read_off(whole - told[2]) == pytest.approx(frame.age[30], abs=1e-9)
    assert refused(frame).startswith("few rows are seen for other parts")


def test_three_pieces_isolate_no_row_that_ends_beside_a_time_that_many_share() -> None:
    """Taken 1, -1 and 3/4 times, three pieces cancel who ends at 6, and after 20."""
    frame = rows().assign(months=25.0, until=np.inf)
    frame.loc[:99, "months"] = np.linspace(21, 40, 100)
    frame.loc[100:139, "months"] = 6.0
    cuts = (3.0, 12.0, 20.0)
    check(frame, cuts)
    frame.loc[100, "months"] = 8.0
    told = hessian(frame, cuts)
    first = told[0] - told[2:].sum(axis=0)
    assert read_off(first - told[2] + told[3] * 6 / 8) == pytest.approx(frame.age[100], abs=1e-9)
    assert refused(frame, cuts).startswith("few rows end at another")


def test_few_rows_at_risk_between_those_that_left_and_those_that_came_are_refused() -> None:
    frame = rows()
    frame.loc[3:, ["months", "until"]] = 0.5, np.inf
    frame.loc[100:, ["since", "months"]] = 2.5, 40.0
    assert refused(frame, (1.0, 2.0)).startswith("few rows are seen: ")


def test_a_job_with_few_intervals_over_two_pieces_sends_nothing(tmp_path: Path) -> None:
    frames = {name: rows(seed=k).assign(died=1) for k, name in enumerate("abc")}
    for frame in frames.values():
        frame["died"] = np.isfinite(frame.until).astype(int)
        frame["until"] = np.where(frame.died, frame.until, np.nan)
        frame["months"] = np.where(frame.died, frame.until, frame.months)
    one = int(np.flatnonzero(frames["a"].died)[0])
    frames["a"].loc[one, ["months", "until"]] = 1.5, 6.0
    job = {
        "job": {"method": "likelihood"},
        "data": {"time": "months", "event": "died", "time_upper": "until", "ignore": ["since"]},
        "model": {"family": "piecewise", "cuts": list(CUTS)},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(FedkernError, match=r"client .a.*few rows have their event in an interval"):
        fedkern.run(job, data=frames, out=tmp_path / "out")
    assert not [*(tmp_path / "out").glob("ledger/*")]
