"""Clients whose times are in another unit are named, with the factor, from what is exchanged anyway; others are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.algorithms.exchanges import apart
from fedkern.data.isolated import find_codes_of_times
from fedkern.errors import JobError
from fedkern.methods.likelihood import differently, time_units
from fedkern.results import heterogeneity
from methods.likelihood.test_lifetimes import SMALL, text, written
from support import found
from support.refusal import refusal

PLAIN = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"


def studies(seed: int = 1, harder: float = 1.0, rows: int = 150) -> dict[str, pd.DataFrame]:
    """Three hospitals; `harder`: the hazard of the last one over the others'; `rows` of the first one."""
    rng, found = np.random.default_rng(seed), {}
    for k, name in enumerate(("ada", "bo", "cy")):
        n = rows if k == 0 else 150
        age = rng.normal(60, 10, n)
        rate = 0.03 * np.exp(0.04 * (age - 60)) * (harder if k == 2 else 1.0)
        time, end = rng.exponential(1 / rate), rng.uniform(20, 60, n)
        frame = {"age": age.round(1), "months": np.minimum(time, end).round(4) + 1e-3, "died": (time < end).astype(int)}
        found[name] = pd.DataFrame(frame)
    return found


def scaled(frames: dict[str, pd.DataFrame], client: str, factor: float) -> dict[str, pd.DataFrame]:
    return {name: frame.assign(months=frame.months * factor) if name == client else frame for name, frame in frames.items()}


def said(result: fedkern.Result) -> list[str]:
    return [note for note in result.summary["notes"] if "another unit there" in note]


@pytest.mark.parametrize(
    ("client", "factor", "words"),
    [
        ("ada", 30.4, "days for months"),
        ("cy", 1 / 12, "years for months"),
        ("bo", 7.0, "days for weeks"),
        ("bo", 4.345, "weeks for months"),
        ("ada", 24.0, "hours for days"),
    ],
)
def test_a_client_in_another_unit_is_named_with_the_factor(client: str, factor: float, words: str, tmp_path: Path) -> None:
    frames = scaled(studies(), client, factor)
    result = fedkern.run(written(tmp_path, frames, text("weibull", PLAIN, data="", model="")))
    (note,) = said(result)
    assert note.startswith(f"{client}: the time per event is ")
    assert words in note
    if max(factor, 1 / factor) > 1.2 * apart.FACTOR:
        assert result.converged is False
        assert [list(one["where"]) for one in found.said(result, "times-in-another-unit")] == [[client]]


@pytest.mark.parametrize("harder", [1.0, 3.0])
def test_hospitals_whose_hazards_differ_are_not(harder: float, tmp_path: Path) -> None:
    result = fedkern.run(written(tmp_path, studies(harder=harder), text("weibull", PLAIN, data="", model="")))
    assert not said(result)
    assert result.converged is True


def test_an_effect_of_clients_does_not_hide_another_unit(tmp_path: Path) -> None:
    """It takes up the factor, and hazard ratios are right; curves are those of a mixture of units."""
    frames = scaled(studies(), "bo", 30.4)
    model = "[model.random]\nclient = true"
    result = fedkern.run(written(tmp_path, frames, text("weibull", PLAIN, data="", model=model)))
    assert result.converged is False
    assert [list(one["where"]) for one in found.said(result, "times-in-another-unit")] == [["bo"]]
    (note,) = said(result)
    assert "client = true" not in note  # which the job has
    assert "hides another unit from ratios, and not from curves" in note
    given = fedkern.run(written(tmp_path, frames, text("weibull", PLAIN, data="", model=f"intercept_centre = -3.5\n{model}")))
    assert "times-not-compared" in found.ids(given)


def test_of_two_clients_either_may_be_wrong(tmp_path: Path) -> None:
    frames = scaled({name: frame for name, frame in studies().items() if name != "cy"}, "ada", 30.4)
    result = fedkern.run(written(tmp_path, frames, text("exponential", PLAIN, data="", model="")))
    (note,) = said(result)
    assert "or at 'bo'" in note
    assert result.converged is False


def test_ratios_of_a_cox_model_do_not_depend_on_it_and_its_common_curve_says_it(tmp_path: Path) -> None:
    """Each hospital's rows are compared with its own alone."""
    months, days = (
        fedkern.run(written(tmp_path / name, frames, text("cox", SMALL)))
        for name, frames in (("months", studies()), ("days", scaled(studies(), "ada", 30.4)))
    )
    assert days.parameters == months.parameters
    assert days.converged is True
    assert not said(days)
    asked = SMALL + "survival_at = [24]\n"
    curve = fedkern.run(written(tmp_path / "curve", scaled(studies(rows=700), "ada", 30.4), text("cox", asked)))
    (note,) = said(curve)
    assert note.startswith("ada: the cumulative hazard at 24 is ")
    plain = fedkern.run(written(tmp_path / "plain", studies(), text("cox", asked)))
    assert not said(plain)
    assert plain.converged is True


def censored(turned: str = "", frailer: float = 1.0) -> dict[str, pd.DataFrame]:
    """Three hospitals where one patient in six has the event; at one of them events and their absence may be exchanged."""
    found = {}
    for k, name in enumerate(("ada", "bo", "cy")):
        rng = np.random.default_rng([2, k])
        age = rng.normal(60, 10, 320)
        time = rng.exponential(1 / (0.03 * np.exp(0.04 * (age - 60)) * (frailer if k == 1 else 1.0)))
        end = rng.uniform(3, 8, 320)
        died = time < end
        months = np.minimum(time, end).round(4) + 1e-3
        found[name] = pd.DataFrame({"age": age.round(3), "months": months, "died": (died != (name == turned)).astype(int)})
    return found


@pytest.mark.parametrize("effects", ["", "[model.random]\nclient = true"])
@pytest.mark.parametrize("family", ["weibull", "cox"])
def test_events_the_other_way_round_at_one_client_are_noted(family: str, effects: str, tmp_path: Path) -> None:
    if family == "cox" and effects:
        return  # whose clients have hazards of their own
    job = text(family, PLAIN, data="", model=effects)
    mirrored = "'bo': events (column 'died') are about as frequent there as rows without event are at all others together"
    for name, frames, said_so in (
        ("turned", censored("bo"), True),
        ("clean", censored(), False),
        ("frail", censored("", 2.5), False),
    ):
        result = fedkern.run(written(tmp_path / name, frames, job))
        assert any(note.startswith(mirrored) for note in result.summary["notes"]) == said_so, name


@pytest.mark.parametrize("m", [2, 3, 6])
@pytest.mark.parametrize("level", [-2.5, -1.5, -0.8, 0.0, 2.0])
def test_hospitals_with_more_events_are_not_noted(m: int, level: float) -> None:
    """Log odds of an event differ by an sd of .4."""
    rng, noted = np.random.default_rng(3), 0
    for _ in range(300):
        rows = rng.integers(60, 300, m)
        events = rng.binomial(rows, expit(level + 0.4 * rng.normal(size=m)))
        noted += bool(heterogeneity.mirrored_rates(rows * 1.0, (events + 0.5) / (rows + 1), differently.OF_EVENTS))
    assert noted <= 1


def test_few_events_between_two_times_ask_for_the_unit_first(tmp_path: Path) -> None:
    """In years among months all events are before the first of the times, and leaving times out mends nothing."""
    job = text("cox", SMALL + "survival_at = [12, 24]\n") + '\n[disclosure]\nlevel = "standard"\n'
    with refusal(JobError, "ada", "output.survival_at"):
        fedkern.run(written(tmp_path, scaled(studies(rows=700), "ada", 1 / 12), job), out=tmp_path / "out")
    own = (tmp_path / "out" / "client-ada" / "holder.txt").read_text()
    assert "look first whether this file has times in the unit of" in own


CODED = "column 'months' has times that look like a code for a missing value (99, 999) at 'bo': see rows.json there"


@pytest.mark.parametrize("family", ["weibull", "cox"])
@pytest.mark.parametrize("event", [0, 1])
def test_times_that_are_a_code_let_no_result_stand_and_the_remedy_ends_it(family: str, event: int, tmp_path: Path) -> None:
    frames = studies()
    coded = frames["bo"].index < 4
    bo = frames["bo"].assign(months=frames["bo"].months.where(~coded, 999.0), died=frames["bo"].died.where(~coded, event))
    result = fedkern.run(written(tmp_path, {**frames, "bo": bo}, text(family, PLAIN, data="", model="")), out=tmp_path / "out")
    assert result.converged is False
    assert CODED in result.summary["verdict"]
    own = (tmp_path / "out" / "client-bo" / "rows.json").read_text()
    assert "column 'months': 999 stands in 4 rows, far from all other cells" in own
    right = fedkern.run(written(tmp_path, {**frames, "bo": bo[~coded]}, text(family, PLAIN, data="", model="")))
    assert right.converged is True
    slope = right.parameters["theta[age]"]
    assert abs(slope["mean"] - 0.04) < 3 * slope["sd"]


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_honest_times_have_no_code(n: int) -> None:
    rng, found = np.random.default_rng(n), 0
    for _ in range(200):
        scale, shape = rng.choice([2.0, 14.0, 60.0, 400.0]), rng.choice([0.5, 1.0, 2.0])
        time = np.minimum(scale * rng.weibull(shape, n), rng.choice([3.0, 30.0]) * scale).round(int(rng.choice([0, 3])))
        found += bool(find_codes_of_times(np.maximum(time, 1e-3)).any())
    late = np.where(rng.random(n) < 0.3, rng.exponential(8, n), 365.0)  # deaths of the first days, and a year's end
    assert found == 0
    assert not find_codes_of_times(late).any()


def rounded(how: str, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Times of a Weibull model: of bo "exact", "rounded" up, or in an "interval" of which `up` is the end."""
    found = {}
    for k, name in enumerate(("ada", "bo", "cy")):
        rng = np.random.default_rng([seed, k])
        x, end = rng.normal(size=300).round(3), rng.uniform(4, 20, 300)
        life = 5 * np.exp(-0.4 * x) * rng.weibull(1.4, 300)
        died, time = (life <= end).astype(int), np.minimum(life, end).round(4) + 1e-3
        up = np.ceil(time)
        if name == "bo" and how == "interval":
            time, up = np.where(died, up - 1, np.maximum(up - 1, 0.5)), np.where(died, up, np.nan)
        elif name == "bo" and how == "rounded":
            time = up
        else:
            up = np.where(died, time, np.nan)
        found[name] = pd.DataFrame({"x": x, "months": time, "died": died, "up": up})
    return found


def test_times_that_one_client_rounds_up_are_noted_and_intervals_end_it() -> None:
    def ran(how: str, **data: str) -> fedkern.Result:
        columns = {"time": "months", "event": "died", "least_rows": 1, **(data or {"ignore": ["up"]})}
        algorithm = {"points": 1024, "effective": 300.0}
        job = {"job": {"method": "likelihood"}, "data": columns, "model": {"family": "weibull"}, "algorithm": algorithm}
        return fedkern.run(job, data=rounded(how))

    exact, wrong, right = ran("exact"), ran("rounded"), ran("interval", time_upper="up")
    noted = [[note for note in one.summary["notes"] if "times are whole numbers there" in note] for one in (exact, wrong, right)]
    assert [len(notes) for notes in noted] == [0, 1, 0]
    assert noted[1][0].startswith("bo: ")
    assert "data.time_upper" in noted[1][0]
    shapes = [one.parameters["shape"] for one in (exact, wrong, right)]
    assert shapes[1]["mean"] - shapes[0]["mean"] > 1.5 * shapes[0]["sd"]
    assert abs(shapes[2]["mean"] - shapes[0]["mean"]) < 0.3 * shapes[0]["sd"]


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 4])
def test_times_of_the_same_fineness_are_not_rounded(digits: int) -> None:
    """Sums of thousandths are whole once in a thousand clients."""
    rng, found = np.random.default_rng(digits), 0
    for _ in range(400):
        m = int(rng.integers(2, 7))
        sums = [np.exp(np.log(rng.exponential(5, 100).round(digits).clip(0.1**digits))).sum() for _ in range(m)]
        found += any("whole numbers" in note for note in time_units.of_rates("abcdefg"[:m], [(60.0, s) for s in sums]))
    assert found <= 4


def test_entries_in_a_larger_unit_are_told_to_their_holder(tmp_path: Path) -> None:
    rng, frames = np.random.default_rng(3), studies()
    for name, frame in frames.items():
        begin = np.where(rng.random(150) < 0.5, 0.0, frame.months * rng.uniform(0, 0.9, 150))
        frames[name] = frame.assign(since=(begin / (365.0 if name == "bo" else 1.0)).round(6))
    data = 'entry = "since"'
    fedkern.run(written(tmp_path, frames, text("cox", PLAIN, data=data, model="")), out=tmp_path / "out")
    told = {name: (tmp_path / "out" / f"client-{name}" / "rows.json").read_text() for name in frames}
    assert "are entries in a larger unit (years beside days)?" in told["bo"]
    assert not any("larger unit" in told[name] for name in ("ada", "cy"))
