"""Jobs whose response is one of several levels: against pooled rows, two levels and NUTS; what is refused, noted and foreseen."""

from __future__ import annotations

import json
import runpy
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

import fedkern
from fedkern.cli.__main__ import main
from fedkern.data.faults import own_text
from fedkern.errors import FedkernError, JobError
from fedkern.methods import load
from fedkern.models import levels as of_levels
from fedkern.models.mixed import Layout
from support.found import said
from support.refusal import refusal

ROOT = Path(__file__).parents[3]
LEVELS = ("none", "mild", "severe")
JOB = """
[job]
method = "likelihood"
seed = 4
[data]
clients = ["rows/*.csv"]
response = "state"
levels = ["none", "mild", "severe"]
[model]
family = "{family}"
"""
SMALL = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"
STRICT = SMALL + '[disclosure]\nlevel = "strict"\n'
BOTH = pytest.mark.parametrize("family", ["ordinal", "multinomial"])


def federation(rows: int = 150, seed: int = 1, levels: Sequence[str] = LEVELS, slopes: float = 0.0) -> dict[str, pd.DataFrame]:
    """Patients of three hospitals; `slopes`: by how much the coefficient of age differs from threshold to threshold."""
    rng, found = np.random.default_rng(seed), {}
    for k, name in enumerate(("ada", "bo", "cy")):
        z = rng.standard_normal((rows, 2))
        latent, cuts = 0.8 * z[:, 0] - 0.5 * z[:, 1] + rng.logistic(size=rows), np.linspace(-0.8, 1.2, len(levels) - 1)
        above = latent[:, np.newaxis] > cuts - slopes * z[:, :1] * np.arange(len(cuts))
        y = above.sum(axis=1) if not slopes else above.cumprod(axis=1).sum(axis=1)
        found[name] = pd.DataFrame(
            {"age": np.round(60 + 10 * z[:, 0] + k, 1), "dose": np.round(z[:, 1], 3), "state": np.array(levels)[y]}
        )
    return found


def written(folder: Path, frames: Mapping[str, pd.DataFrame], family: str = "ordinal", more: str = SMALL, **changes: str) -> Path:
    """`changes`: texts of the job -> what stands there instead; those of a key by its name."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    text = JOB.format(family=family) + more
    for before, after in changes.items():
        text = text.replace({"levels": 'levels = ["none", "mild", "severe"]', "model": f'family = "{family}"'}[before], after)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def test_clients_of_a_multinomial_model_add_up_to_the_pooled_rows() -> None:
    rng, p = np.random.default_rng(0), 3
    X, y = rng.standard_normal((300, p)), rng.integers(0, 4, 300).astype(float)
    layout = Layout(of_levels.block_names("abcd", ("intercept", "x", "z")), "multinomial")
    points, parts = 0.5 * rng.standard_normal((20, layout.size)), np.split(np.arange(300), [70, 190])
    alone = [of_levels.Rows(layout, np.ascontiguousarray(X[part]), y[part], 4) for part in parts]
    whole = of_levels.Rows(layout, X, y, 4)
    for one, each in zip(whole.curvature(points, 1), zip(*(own.curvature(points, 1) for own in alone))):
        np.testing.assert_allclose(sum(each), one, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sum(own.values(points, 1) for own in alone), whole.values(points, 1), rtol=1e-12)
    for k in range(4):
        np.testing.assert_allclose(
            of_levels.Rows(layout, X, np.full(300, float(k)), 4).density(points, slice(0, 300)),
            whole.log_chances(points)[:, k],
        )
    np.testing.assert_allclose(np.exp(whole.log_chances(points)).sum(axis=1), 1.0)
    np.testing.assert_allclose(whole.density(points, slice(0, 300)).sum(axis=1), whole.values(points, 1))


@BOTH
def test_two_levels_are_a_logistic_regression(family: str, tmp_path: Path) -> None:
    frames = federation(levels=("no", "yes"))
    found = fedkern.run(written(tmp_path / "levels", frames, family, levels='levels = ["no", "yes"]')).parameters
    binary = written(tmp_path / "binary", frames, "bernoulli", levels='positive = "yes"')
    other = fedkern.run(binary).parameters
    names = {"intercept": "threshold[no|yes]", "theta[age]": "theta[age]", "theta_std[dose]": "theta_std[dose]"}
    if family == "multinomial":
        names = {"intercept": "theta[yes:intercept]", "theta[age]": "theta[yes:age]", "theta_std[dose]": "theta_std[yes:dose]"}
    for theirs, mine in names.items():
        sign = -1 if mine.startswith("threshold") else 1
        # of an ordinal model the threshold stands behind the coefficients, so that other points are drawn
        near, ratio = (1e-9, 1e-9) if family == "multinomial" else (0.06, 0.06)
        assert sign * found[mine]["mean"] == pytest.approx(other[theirs]["mean"], abs=near * other[theirs]["sd"])
        assert found[mine]["sd"] == pytest.approx(other[theirs]["sd"], rel=ratio)


REFERENCE = runpy.run_path(str(ROOT / "benchmarks" / "levels_reference.py"))
STORED: dict[str, dict[str, Any]] = json.loads(REFERENCE["STORED"].read_text()) if REFERENCE["STORED"].exists() else {}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k in ("ordinal 1", "multinomial 1") else pytest.mark.nightly) for k in STORED]
)
def test_the_posterior_is_that_of_nuts_on_the_pooled_rows(kind: str, tmp_path: Path) -> None:
    """Within .03 sd and 3 %, and three Monte-Carlo errors of what NUTS says."""
    stored = STORED[kind]
    result, *_ = REFERENCE["compared"](kind, stored, tmp_path)
    assert result.summary["converged"] is True
    assert {name for name in result.parameters if "_std" not in name.partition("[")[0]} == stored.keys()
    for name, one in stored.items():
        error = 3 * one["ess"] ** -0.5
        assert result.parameters[name]["mean"] == pytest.approx(one["mean"], abs=(0.03 + error) * one["sd"]), name
        assert result.parameters[name]["sd"] == pytest.approx(one["sd"], rel=0.03 + error), name


# What is read --------------------


@BOTH
@pytest.mark.parametrize("cells", [["1", "2", "3"], [1, 2, 3], [1.0, 2.0, 3.0]])
def test_levels_may_be_numbers_however_they_are_written(family: str, cells: list[Any], tmp_path: Path) -> None:
    frames = federation()
    plain = fedkern.run(written(tmp_path / "texts", frames, family))
    for frame in frames.values():
        frame["state"] = [cells[LEVELS.index(one)] for one in frame.state]
    found = fedkern.run(written(tmp_path / "numbers", frames, family, levels="levels = [1, 2, 3]"))
    for (mine, a), (theirs, b) in zip(found.parameters.items(), plain.parameters.items(), strict=True):
        assert a == b, (mine, theirs)
    assert "threshold[1|2]" in found.parameters or "theta[2:age]" in found.parameters


@BOTH
def test_a_level_that_the_job_lacks_is_told_to_its_holder_alone(family: str, tmp_path: Path) -> None:
    frames = federation()
    frames["bo"].loc[7, "state"] = "morbid"
    with pytest.raises(FedkernError, match="state") as fault:
        fedkern.run(written(tmp_path, frames, family), out=tmp_path / "out")
    assert "morbid" not in str(fault.value)
    own = (tmp_path / "out" / "client-bo" / "holder.txt").read_text()
    assert "'morbid'" in own
    assert "is none of the job's levels; the levels are none, mild, severe" in own.replace("\n", " ")


@BOTH
def test_a_level_in_one_row_is_refused_before_anything_leaves(family: str, tmp_path: Path) -> None:
    frames = federation()
    frames["bo"]["state"] = np.where(frames["bo"].state == "severe", "mild", frames["bo"].state)
    fedkern.run(written(tmp_path / "none", frames, family, STRICT))  # a client may lack a level
    frames["bo"].loc[3, "state"] = "severe"
    with refusal(FedkernError, "bo", "disclosure.rows_per_value") as refused:
        fedkern.run(written(tmp_path / "one", frames, family, STRICT))
    assert "'state'" in own_text(refused.value)


@BOTH
def test_a_level_that_nobody_has_is_named(family: str, tmp_path: Path) -> None:
    result = fedkern.run(written(tmp_path, federation(), family, levels='levels = ["none", "mild", "severe", "fatal"]'))
    assert [one["level"] for one in said(result, "level-unseen")] == ["fatal"]
    assert result.summary["converged"] is True
    assert result.summary["predictive"]["response"]["levels"]["fatal"] == 0


def test_levels_in_the_other_order_have_the_same_posterior(tmp_path: Path) -> None:
    """The threshold beside a level that no row has hangs on the prior most."""
    frames = {name: frame.drop(columns="age") for name, frame in federation(rows=80).items()}
    several = [*LEVELS, "fatal"]
    found = list[dict[str, dict[str, float]]]()
    for ordered in (several, several[::-1]):
        job = written(tmp_path / ordered[0], frames, more="", levels=f"levels = {json.dumps(ordered)}")
        found.append(fedkern.run(job).parameters)
    pairs = {f"threshold[{low}|{high}]": f"threshold[{high}|{low}]" for low, high in pairwise(several)}
    for here, there in {"theta[dose]": "theta[dose]", **pairs}.items():
        one, other = found[0][here], found[1][there]
        assert one["mean"] == pytest.approx(-other["mean"], abs=0.04 * one["sd"]), here
        assert one["sd"] == pytest.approx(other["sd"], rel=0.04), here


def unseen_threshold(whole: pd.DataFrame, points: int = 1500) -> tuple[float, float]:
    """Mean and sd of the threshold below a fourth level that no row has: its log gap by a grid, given draws of the rest."""
    y, x = whole.state.map({name: k for k, name in enumerate(LEVELS)}).to_numpy(), whole.dose.to_numpy()
    centre, scale = x.mean(), x.std()
    z, below = (x - centre) / scale, np.cumsum(np.bincount(y, minlength=3)) / (len(y) + 0.5)
    level = np.log(below / (1 - below)).mean()
    log_gap = np.linspace(-6.0, 9.0, 301)

    def between(high: Any, low: Any) -> Any:
        return np.log(np.maximum(expit(high) - expit(low), 1e-300))

    def density(b: float, first: float, gap: float) -> Any:
        eta, second = b * z, first + np.exp(gap)
        plain = np.log(expit(first - eta[y == 0])).sum() + between(second - eta[y == 1], first - eta[y == 1]).sum()
        plain -= b**2 / 2 / 2.5**2 + gap**2 / 4.5
        top = (second + np.exp(log_gap))[:, np.newaxis]
        plain -= ((first + second + top[:, 0]) / 3 - level) ** 2 / 50
        return plain + between(top - eta[y == 2], second - eta[y == 2]).sum(axis=1) - log_gap**2 / 4.5

    mode = minimize(lambda t: -logsumexp(density(*t)), [0.0, -0.8, 0.5], method="BFGS")
    rng = np.random.default_rng(0)
    u, chi = rng.standard_normal((points, 3)), rng.chisquare(9, points) / 9
    drawn = mode.x + (u / np.sqrt(chi)[:, np.newaxis]) @ np.linalg.cholesky(mode.hess_inv).T
    each = np.array([density(*t) for t in drawn])
    log_w = logsumexp(each, axis=1) + 6 * np.log1p((u**2).sum(axis=1) / chi / 9)
    joint = np.exp(each - logsumexp(each, axis=1, keepdims=True)) * np.exp(log_w - logsumexp(log_w))[:, np.newaxis]
    value = (drawn[:, 1] + np.exp(drawn[:, 2]) + drawn[:, 0] * centre / scale)[:, np.newaxis] + np.exp(log_gap)
    mean = (joint * value).sum()
    return float(mean), float(np.sqrt((joint * (value - mean) ** 2).sum()))


@pytest.mark.parametrize("seed", [2, pytest.param(0, marks=pytest.mark.nightly), pytest.param(1, marks=pytest.mark.nightly)])
def test_the_threshold_below_a_level_that_nobody_has(seed: int, tmp_path: Path) -> None:
    """Its posterior is nearly a log-normal, whose sd draws of the posterior miss: 24.9 where 21.3 was right, and "converged"."""
    frames = {name: frame.drop(columns="age") for name, frame in federation(rows=80).items()}
    mean, sd = unseen_threshold(pd.concat([*frames.values()], ignore_index=True))
    levels = 'levels = ["none", "mild", "severe", "fatal"]'
    job = written(tmp_path, frames, more="", levels=levels)
    job.write_text(job.read_text().replace("seed = 4", f"seed = {seed}"))
    result = fedkern.run(job)
    assert result.summary["converged"] is True
    found = result.parameters["threshold[severe|fatal]"]
    assert found["sd"] == pytest.approx(sd, rel=0.04)
    assert found["mean"] == pytest.approx(mean, abs=0.04 * sd)


@pytest.mark.parametrize(
    ("family", "told", "fewest"),
    [
        ("multinomial", r"3 coefficients by its columns and levels, each for 3 levels beside the first; more than 135 rows", 135),
        ("ordinal", r"2 coefficients by its columns and levels, and 3 thresholds; more than 75 rows", 75),
    ],
)
def test_what_rows_are_counted_by_is_said_and_a_level_less_is_enough(family: str, told: str, fewest: int, tmp_path: Path) -> None:
    frames = federation(rows=fewest)
    levels = 'levels = ["none", "mild", "severe", "fatal"]'
    remedy = r"levels \(one that nobody has need not be in data\.levels\)"
    with pytest.raises(JobError, match=f"{told}.*{remedy}"):
        fedkern.run(config(frames, family, levels, tmp_path / "refused"), data=dict(frames))
    assert fedkern.run(written(tmp_path / "less", frames, family, STRICT)).parameters


def test_ordered_levels_with_marginal_effects_are_of_twenty_rows_a_number(tmp_path: Path) -> None:
    """Sums of each level's probability tell more beside the values (likelihood.md, section 10)."""
    frames = federation(rows=75)
    levels = 'levels = ["none", "mild", "severe"]'
    tables = config(frames, "ordinal", levels, tmp_path / "few")
    assert fedkern.run(tables, data=dict(frames)).parameters
    tables["output"]["marginal"] = True
    told = "2 coefficients by its columns and levels, and 2 thresholds, twenty rows each with output.marginal; more than 80 rows"
    with pytest.raises(JobError, match=told):
        fedkern.run(tables, data=dict(frames))
    more = federation(rows=81)
    found = fedkern.run(tables, data=dict(more)).summary["marginal"]["effects"]
    assert list(found) == [f"{level}:{name}" for name in ("age", "dose") for level in LEVELS]


def config(frames: Mapping[str, pd.DataFrame], family: str, levels: str, folder: Path) -> dict[str, Any]:
    """The tables of a job, of rows in memory: their holder reads all."""
    tables = tomllib.loads(written(folder, frames, family, STRICT, levels=levels).read_text())
    del tables["data"]["clients"]
    return tables


FAULTS = {
    ('family = "ordinal"', "data.levels is missing: all levels"): {"levels": ""},
    ("twice", "data.levels: 'true' is there twice"): {"levels": 'levels = ["TRUE", "1", "true"]'},
    ("one", "wanted at least two levels"): {"levels": 'levels = ["none"]'},
    ("positive", "data.positive"): {"levels": 'levels = ["none", "mild"]\npositive = "mild"'},
    ("intercept", "an ordinal model has thresholds in its place"): {"model": 'family = "ordinal"\nintercept = true'},
    ("link", "model.link"): {"model": 'family = "multinomial"\nlink = "probit"'},
    ("other", "data.levels: of a response with several levels"): {"model": 'family = "poisson"'},
    ("other link", 'model.link = "probit": of model.family = "binomial" or "bernoulli" or "ordinal", and this is "poisson"'): {
        "levels": "",
        "model": 'family = "poisson"\nlink = "probit"',
    },
    ("no link of levels", 'model.link = "cloglog": of model.family = "binomial" or "bernoulli", and this is "ordinal"'): {
        "levels": 'levels = ["none", "mild"]',
        "model": 'family = "ordinal"\nlink = "cloglog"',
    },
    ("offset", "a multinomial model has a predictor for each level"): {
        "levels": 'levels = ["none", "mild"]\noffset = "dose"',
        "model": 'family = "multinomial"',
    },
    ("random", "fit each level against the first with "): {"model": 'family = "multinomial"\n[model.random]\nclient = true'},
}


@pytest.mark.parametrize(("which", "changes"), FAULTS.items(), ids=[which[0] for which in FAULTS])
def test_job_files_that_cannot_be_meant_are_refused(which: tuple[str, str], changes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(JobError) as fault:
        load(written(tmp_path, federation(), more="", **changes))
    assert which[1] in str(fault.value)


# What is said --------------------


@pytest.fixture(scope="module")
def multinomial(tmp_path_factory: pytest.TempPathFactory) -> fedkern.Result:
    folder = tmp_path_factory.mktemp("multinomial")
    frames = federation(170)
    for frame in frames.values():
        frame["sex"] = np.where(np.arange(len(frame)) % 2, "f", "m")
    more = SMALL.replace("draws = 100", "draws = 1000\nloo = true\nsites = true\nwithout = true")
    return fedkern.run(written(folder, frames, "multinomial", more), out=folder / "out")


def test_names_tables_and_what_the_terminal_says_of_levels_without_an_order(multinomial: fedkern.Result) -> None:
    assert "theta[severe:age]" in multinomial.parameters
    table = multinomial.table(exp=True)
    names = list(table.parameter)
    assert "mild:sex[m vs f]" in names
    assert not [name for name in names if "intercept" in name or "sex=" in name]
    assert list(table.columns)[2] == "odds_ratio"
    lines = str(multinomial)
    assert "theta[severe:intercept]" in lines
    ratios = [line for line in lines.splitlines() if line.startswith("theta[") and line.endswith(")")]
    assert {line.split()[0] for line in ratios} == {f"theta[{level}:{name}]" for level in LEVELS[1:] for name in ("age", "dose")}
    assert set(multinomial.summary["sites"]) == {"ada", "bo", "cy"}
    counts = multinomial.summary["site_counts"]
    assert sum(one["rows"] for one in counts.values()) == multinomial.summary["predictive"]["rows"]
    assert "theta[mild:age]" in multinomial.summary["sites"]["ada"]
    assert multinomial.summary["loo"]["rows"] == 510
    assert set(multinomial.summary["without"]) == {"ada", "bo", "cy"}


def test_chances_of_levels_without_an_order_are_averages_of_the_softmax(multinomial: fedkern.Result) -> None:
    rows = federation(12, seed=8)["ada"].assign(sex="f")
    found = multinomial.prediction(rows)
    table = found.columns
    chances = np.column_stack([table[f"probability[{level}]"] for level in LEVELS])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    means = {name: one["mean"] for name, one in multinomial.parameters.items()}
    eta = np.column_stack(
        [
            np.zeros(len(rows)),
            *(
                means[f"theta[{k}:intercept]"] + rows.age * means[f"theta[{k}:age]"]
                + rows.dose * means[f"theta[{k}:dose]"]
                for k in LEVELS[1:]
            ),
        ]
    )  # fmt: skip
    at_mean = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, at_mean, atol=0.02)
    assert {"accuracy", "log_likelihood"} <= found.scores.keys()
    y = np.array([LEVELS.index(one) for one in rows.state])
    assert found.scores["log_likelihood"] == pytest.approx(np.log(chances[np.arange(12), y]).mean(), abs=1e-12)
    assert found.scores["accuracy"] == pytest.approx((chances.argmax(axis=1) == y).mean())


def with_effects(folder: Path, random: str, wards: int = 8) -> tuple[fedkern.Result, dict[str, pd.DataFrame]]:
    """A job of rows whose levels are higher in some wards, and from hospital to hospital."""
    rng, frames = np.random.default_rng(3), federation(120, seed=5)
    for k, frame in enumerate(frames.values()):
        ward = rng.integers(0, wards, len(frame))
        shift = (rng.standard_normal(wards)[ward] if "group" in random else 0.0) + 0.9 * (k - 1) * ("client" in random)
        latent = (frame.age - 60) / 12 - 0.5 * frame.dose + shift + rng.logistic(size=len(frame))
        frame["state"] = np.array(LEVELS)[(latent.to_numpy()[:, np.newaxis] > [-0.8, 1.2]).sum(axis=1)]
        frame["ward"] = [f"w{one}" for one in ward]
    more = f"[model.random]\n{random}\n" + SMALL.replace("draws = 100", "draws = 1000\nloo = true")
    ignore = 'levels = ["none", "mild", "severe"]' + ("" if "group" in random else '\nignore = ["ward"]')
    return fedkern.run(written(folder, frames, "ordinal", more, levels=ignore), out=folder / "out"), frames


def chances_of(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack([table[f"probability[{level}]"] for level in LEVELS])


@pytest.mark.parametrize("random", ['group = "ward"', "client = true"])
@pytest.mark.nightly
def test_chances_of_ordered_levels_are_averages_over_thresholds_and_effects(random: str, tmp_path: Path) -> None:
    result, frames = with_effects(tmp_path, random)
    level, out = ("client" if "client" in random else "group"), tmp_path / "out"
    rows = frames["ada"]
    chances = chances_of(result.predict(rows))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    means = {name: one["mean"] for name, one in result.parameters.items()}
    eta = rows.age.to_numpy() * means["theta[age]"] + rows.dose.to_numpy() * means["theta[dose]"]
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    at = eta[:, np.newaxis] + means[f"{level}_sd[intercept]"] * nodes
    cuts = [means["threshold[none|mild]"], means["threshold[mild|severe]"]]
    below = np.stack([(weights / weights.sum() / (1 + np.exp(at - cut))).sum(axis=1) for cut in cuts], axis=1)
    np.testing.assert_allclose(np.cumsum(chances, axis=1)[:, :2], below, atol=0.05)
    assert result.summary["loo"]["rows"] == 360
    # A holder foresees its rows by what they say themselves.
    rows.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(out / "client-ada"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "known.csv")]) == 0
    known = chances_of(pd.read_csv(tmp_path / "known.csv"))
    y = np.array([LEVELS.index(one) for one in rows.state])
    scores = [np.log(one[np.arange(len(y)), y]).mean() for one in (known, chances)]
    assert scores[0] > scores[1] + 0.02
    if level == "group":
        effects = pd.read_csv(out / "client-ada" / "groups.csv").set_index("group").intercept
        seen = rows.assign(code=y - rows.age / 12).groupby("ward").code.mean()
        assert np.corrcoef(effects.loc[seen.index], seen)[0, 1] > 0.9  # higher levels, higher effect
    else:
        own = [pd.read_csv(out / f"client-{name}" / "client.csv").intercept[0] for name in ("ada", "bo", "cy")]
        assert own[0] < own[1] < own[2]


def test_odds_that_are_not_proportional_are_named(tmp_path: Path) -> None:
    result = fedkern.run(written(tmp_path / "not", federation(300, slopes=1.0)))
    (note,) = [note for note in result.summary["notes"] if "not proportional" in note]
    assert "age (rows of" in note
    assert "dose" not in note
    right = fedkern.run(written(tmp_path / "right", federation(300)))
    assert not [note for note in right.summary["notes"] if "not proportional" in note]


def test_only_jobs_on_the_same_numbers_of_levels_are_compared(tmp_path: Path) -> None:
    frames = federation()
    one = fedkern.run(written(tmp_path / "one", frames))
    other = fedkern.run(written(tmp_path / "other", frames, "multinomial"))
    assert abs(one.compare(other)["log_bayes_factor"]) < 30
    frames["ada"].loc[:, "state"] = frames["ada"].state[::-1].to_numpy()
    fedkern.run(written(tmp_path / "turned", frames)).compare(one)
    frames["ada"].loc[frames["ada"].index[frames["ada"].state == "mild"][0], "state"] = "severe"
    with pytest.raises(JobError, match="'state' has other numbers of rows of its levels"):
        fedkern.run(written(tmp_path / "changed", frames)).compare(one)
