"""Other rows of a client's areas: in periods that the fit had and after them, with effects of their own, with a learnt r; against
dense algebra and distributions that are written out here, with random numbers that drew nothing else."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.kernels import rng
from fedkern.methods.sigma import kept
from fedkern.methods.sigma import predict as foreseen
from support import built_priors
from support import sigma_artifacts as artifacts

PHI, SCALE, YEARS = 0.8, 0.7, [2019, 2020, 2021, 2022]
M = 40_000  # draws, so that what is foreseen is known well


# --- new counts, of draws that are known


def own(family: str, spatial: np.ndarray, *, effects: bool = False, log_scale: np.ndarray | None = None) -> kept.Kept:
    """An intercept of log 8 (0.4 on a logit), and one area."""
    base = 0.4 if family == "binomial" else np.log(8.0)
    about = kept.About("run", "east", True, None, family, 1.0, ["a"], [], effects)
    none, m = np.zeros(0), len(spatial)
    scale = none if log_scale is None else log_scale
    return kept.Kept(about, np.full((m, 1), base), spatial.astype(np.float32)[:, np.newaxis], np.zeros((m, 0)), none, scale)


def foretold(of: kept.Kept, offset: float = 0.0, trials: float | None = None, rows: int = 1) -> dict[str, np.ndarray]:
    every = None if trials is None else np.full(rows, trials)
    new = foreseen.New(np.ones((rows, 1)), np.full(rows, offset), every, np.zeros(rows, np.int64), None)
    return {name: np.array(values, float) for name, values in foreseen.of(of, new, {}, 5)[0].columns.items()}


SPREAD = 0.3


def _poisson(eta: np.ndarray, tau: np.ndarray) -> Callable[[float], np.ndarray]:
    return lambda k: stats.poisson.cdf(k, np.exp(eta))


def _binomial(eta: np.ndarray, tau: np.ndarray) -> Callable[[float], np.ndarray]:
    return lambda k: stats.binom.cdf(k, 30, 1 / (1 + np.exp(-eta)))


@pytest.mark.parametrize(("family", "trials", "cdf"), [("poisson", None, _poisson), ("binomial", 30.0, _binomial)])
def test_a_new_row_has_an_effect_of_its_own(
    family: str, trials: float | None, cdf: Callable[[np.ndarray, np.ndarray], Callable[[float], np.ndarray]]
) -> None:
    """Against draws of the effect by NumPy's numbers."""
    random = np.random.default_rng(1)
    spatial, log_tau = SPREAD * random.normal(size=M), np.log(0.6) + 0.2 * random.normal(size=M)
    offset = 0.0 if trials else np.log(2.0)
    found = foretold(own(family, spatial, effects=True, log_scale=log_tau), offset, trials)
    level = (0.4 if trials else np.log(8.0)) + spatial
    tau = np.exp(log_tau)
    drawn = level + offset + tau * random.normal(size=M)
    if trials:
        at = stats.norm.ppf((np.arange(400)[:, np.newaxis] + 0.5) / 400)
        wanted = (1 / (1 + np.exp(-(level + tau * at)))).mean()
        name, rate = "probability", 1 / (1 + np.exp(-level))
        assert found["mean"][0] == pytest.approx(wanted, abs=1e-4)
    else:
        name, rate = "rate", np.exp(level)
        wanted = np.exp(level + offset + tau**2 / 2)
        assert found["mean"][0] == pytest.approx(wanted.mean(), rel=1e-6)
        np.testing.assert_allclose(found["q975"][0], np.quantile(wanted, 0.975), rtol=1e-6)
    assert found[name][0] == pytest.approx(rate.mean(), rel=1e-6)  # the level is without it
    assert found["linear_sd"][0] == pytest.approx(SPREAD, rel=0.02)
    _are_ends(cdf(drawn, tau), found)
    with pytest.raises(AssertionError):  # without the rows' effects
        _are_ends(cdf(level + offset, tau), found)


def _are_ends(cdf: Callable[[float], np.ndarray], found: dict[str, np.ndarray]) -> None:
    """Of the middle 95 %, but for what a thousand draws more or less would change."""
    sure = 5 * np.sqrt(0.025 / M)
    for name, share in (("new_q025", 0.025), ("new_q975", 0.975)):
        end = found[name][0]
        assert cdf(end - 1).mean() - sure < share < cdf(end).mean() + sure, (name, end)


def test_each_draw_of_a_negative_binomial_count_has_its_own_r() -> None:
    random = np.random.default_rng(2)
    spatial, log_r = SPREAD * random.normal(size=M), np.log(3.0) + 0.7 * random.normal(size=M)
    found, mean, r = foretold(own("negative-binomial", spatial, log_scale=log_r)), np.exp(np.log(8.0) + spatial), np.exp(log_r)
    assert found["mean"][0] == pytest.approx(mean.mean(), rel=1e-6)
    _are_ends(lambda k: stats.nbinom.cdf(k, r, r / (r + mean)), found)
    with pytest.raises(AssertionError):  # one r for all
        _are_ends(lambda k: stats.nbinom.cdf(k, 9.0, 9 / (9 + mean)), found)


@pytest.mark.parametrize("chain", [0, 1, 2, 3])
def test_new_counts_do_not_go_with_what_drew_the_areas(chain: int) -> None:
    """Areas from each chain of numbers of the first client: variances are those of independent effects, level and counts."""
    z = rng.normal(M, key=rng.key(5, "posterior", chain), client=0)
    if chain == 3:
        z = stats.norm.ppf(rng.uniform(M, key=rng.key(5, "posterior", chain), client=0))
    spatial, tau = SPREAD * z, 0.5
    mean = np.exp(np.log(8.0) + spatial)
    own_draws = own("poisson", spatial, effects=True, log_scale=np.full(M, np.log(tau)))
    drawn = foreseen._drawn(own_draws, foreseen.Overdispersed("poisson"), np.log(mean)[:, np.newaxis], None, 5, 0)[:, 0]
    rate = mean * np.exp(tau**2 / 2)
    within = rate + mean**2 * np.exp(tau**2) * (np.exp(tau**2) - 1)
    assert drawn.mean() == pytest.approx(rate.mean(), rel=0.02)
    assert drawn.var() == pytest.approx(within.mean() + rate.var(), rel=0.06)
    assert abs(np.corrcoef(z, (drawn - rate) / np.sqrt(within))[0, 1]) < 0.02
    assert abs(np.corrcoef(np.abs(z), (drawn - rate) / np.sqrt(within))[0, 1]) < 0.02


# --- jobs


def job(folder: Path, cells: Callable[[int, int], str], head: str, **more: Any) -> dict[str, Any]:
    """Three clients' areas in every year; of the last year the first client has no row."""
    built_priors.written(folder, "leroux", error=0.002)
    (folder / "rows").mkdir()
    start = dict(zip(artifacts.NAMES, np.cumsum([0, *artifacts.SIZES])))
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        every = [(i, t) for i in range(size) for t in range(len(YEARS)) if name != artifacts.NAMES[0] or t < 3]
        lines = [f"{name}-{i},{YEARS[t]},{cells(int(start[name]) + i, t)}" for i, t in every]
        (folder / "rows" / f"{name}.csv").write_text("\n".join([f"area,year,{head}", *lines]) + "\n")
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "seed": 3},
        "data": {"clients": [str(folder / "rows" / "*.csv")], "area": "area", "period": "year", "periods": YEARS},
        "model": {"prior": str(folder / "prior")},
    }
    for section, keys in more.items():
        tables[section] = {**tables.get(section, {}), **keys}
    return tables


def predict(folder: Path, head: str, rows: list[str], client: str = "east") -> list[dict[str, str]]:
    (folder / "new.csv").write_text("\n".join([head, *rows]) + "\n")
    out = folder / "predicted.csv"
    assert main(["predict", str(folder / "run" / f"client-{client}"), str(folder / "new.csv"), "--out", str(out)]) == 0
    return list(csv.DictReader(out.read_text().splitlines()))


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


AFTER = [2021, 2022, 2023, 2025]  # one that the client has rows of, one that others have, and steps after them


def exact(folder: Path, level: float, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the mean response of east's first two areas in the years AFTER, of responses with known variances: dense
    algebra of all areas and years for each of many values of sigma_period, weighted by their evidence."""
    names = [line.split(",")[0] for line in (folder / "areas.csv").read_text().splitlines()[1:]]
    d, T, more = len(names), len(YEARS), 3
    W = np.zeros((d, d))
    for line in (folder / "edges.csv").read_text().splitlines()[1:]:
        i, j = (names.index(name) for name in line.split(","))
        W[i, j] = W[j, i] = 1
    theta = np.linalg.inv((1 - PHI) * np.eye(d) + PHI * (np.diag(W.sum(axis=1)) - W))
    D = np.diff(np.eye(T), axis=0)
    S = np.linalg.pinv(D.T @ D)
    s = np.exp(np.log(S.diagonal()).mean())
    on = np.vstack(
        [np.hstack([np.eye(T), np.zeros((T, more))]), np.hstack([np.eye(T)[[-1] * more], np.tril(np.ones((more, more)))])]
    )
    walk = on @ np.block([[S, np.zeros((T, more))], [np.zeros((more, T)), np.eye(more)]]) @ on.T / s
    texts = [(folder / "rows" / f"{name}.csv").read_text().splitlines() for name in artifacts.NAMES]
    rows = [row for lines in texts for row in csv.DictReader(lines)]
    y, variance = np.array([[float(row["rate"]), float(row["var"])] for row in rows]).T
    area = [names.index(row["area"]) for row in rows] + [names.index(f"east-{i}") for i in (0, 1) for _ in AFTER]
    year = [int(row["year"]) - YEARS[0] for row in rows] + [year - YEARS[0] for _ in (0, 1) for year in AFTER]
    n, log_weight, means, variances = len(y), [], [], []
    for sd in np.linspace(0.005, 4, 300):
        every = (5 * unit) ** 2 + (SCALE**2 * theta)[np.ix_(area, area)] + (unit * sd) ** 2 * walk[np.ix_(year, year)]
        own = every[:n, :n] + np.diag(variance)
        gain = np.linalg.solve(own, every[:n, n:]).T
        log_weight.append(stats.multivariate_normal.logpdf(y, np.full(n, level), own) - 0.5 * sd**2)
        means.append(level + gain @ (y - level))
        variances.append(np.diag(every[n:, n:] - gain @ every[:n, n:]))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    return mean, np.sqrt(weight @ (np.array(variances) + (np.array(means) - mean) ** 2))


@pytest.mark.digits
def test_periods_and_what_follows_them_are_those_of_the_exact_posterior(tmp_path: Path) -> None:
    random = np.random.default_rng(4)

    def cells(area: int, t: int) -> str:
        sd = random.choice([0.2, 0.6])
        return f"{100 + 0.5 * np.sin(area) + [0, 0.6, 0.5, 1.4][t] + sd * random.normal():.6f},{sd**2:.6f}"

    data = {"response": "rate", "variance": "var"}
    known = {"family": "gaussian", "phi": PHI, "spatial_scale": SCALE}
    result = fedkern.run(job(tmp_path, cells, "rate,var", data=data, model=known), out=tmp_path / "run")
    about = result.summary["sigma"]["response"]
    mean, sd = exact(tmp_path, about["level"], about["scale"])
    found = predict(tmp_path, "area,year", [f"east-{i},{year}" for i in (0, 1) for year in AFTER])
    assert [row["year"] for row in found] == [str(year) for _ in (0, 1) for year in AFTER]
    apart = (column(found, "mean") - mean) / sd
    assert np.abs(apart).max() < 0.12, apart
    np.testing.assert_allclose(column(found, "linear_sd"), sd, rtol=0.1)
    assert (np.diff(sd.reshape(2, -1), axis=1)[:, 1:] > 0.1 * sd[:1]).all()  # each step is seen in it


def test_rows_with_effects_of_their_own_in_periods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's rows have the rates of its table; what predicts draws with numbers that nothing of the run had."""
    monkeypatch.setattr("fedkern.methods.sigma.own.DRAWS", 60)
    monkeypatch.setattr(foreseen, "BLOCK", 60 * 4)  # four rows at once
    used: list[tuple[int, int, int]] = []
    for name in ("normal", "uniform"):
        draw = getattr(rng, name)

        def noted(n: int, *, key: int, client: int = 0, step: int = 0, draw: Callable[..., Any] = draw, **more: int) -> Any:
            used.append((key, client, step))
            return draw(n, key=key, client=client, step=step, **more)

        monkeypatch.setattr(rng, name, noted)
    random = np.random.default_rng(4)
    data = {"response": "cases", "exposure": "expected"}
    chosen = {"model": {"overdispersion": True}, "algorithm": {"inference": "sfvi"}, "job": {"rounds": 20}}
    tables = job(tmp_path, lambda area, t: f"{random.poisson(9 * np.exp(0.5 * random.normal()))},10", "cases,expected", data=data)
    fedkern.run({**tables, **{name: {**tables.get(name, {}), **keys} for name, keys in chosen.items()}}, out=tmp_path / "run")
    of_the_run, before = set(used), len(used)
    rows = (tmp_path / "rows" / "east.csv").read_text().splitlines()
    found = predict(tmp_path, rows[0], [*rows[1:], "east-0,2024,,10"])
    of_these = used[before:]
    assert len(of_these) == len(set(of_these)) == 1 + 2 * 4  # steps of the walk; effects and counts of four blocks
    assert not of_the_run & set(of_these)
    assert len(of_the_run) > 3  # own ones were noted too
    table = list(csv.DictReader((tmp_path / "run" / "client-east" / "area_periods.csv").read_text().splitlines()))
    for ours, theirs in (("rate", "rate_mean"), ("rate_q025", "rate_q025"), ("rate_q975", "rate_q975")):
        np.testing.assert_allclose(column(found[:-1], ours), column(table, theirs), rtol=1e-5)
    assert (column(found[:-1], "mean") > 10 * column(found[:-1], "rate")).all()  # by e^(tau^2 / 2)
    later = found[-1]  # a step whose scale is half-normal: E exp is infinite, and quantiles are not
    assert later["mean"] == later["rate"] == ""
    assert 0 < float(later["rate_q025"]) < float(later["rate_q50"]) < float(later["rate_q975"])
    assert float(later["new_q50"]).is_integer()
    assert at_holder(tmp_path)[0].notes == (foreseen.INFINITE,)
    again = predict(tmp_path, rows[0], [*rows[1:], "east-0,2024,,10"])
    assert again == found
    faults = {
        "2027": "is none of the job's periods, nor one of the 4 after the last",
        "": "is none of the job's periods",
        "2018": "is none",
    }
    for year, text in faults.items():
        (tmp_path / "new.csv").write_text(f"area,year,expected\neast-0,{year},10\n")
        with pytest.raises(JobError, match=f"column 'year': .*{text}"):
            at_holder(tmp_path)
    (tmp_path / "new.csv").write_text("area,expected\neast-0,10\n")
    with pytest.raises(JobError, match="column 'year' is missing; give it"):
        at_holder(tmp_path)


def at_holder(folder: Path) -> Any:
    home = folder / "run" / "client-east"
    return foreseen.at_holder(home, json.loads((home / "job.json").read_text()), folder / "new.csv")


@pytest.mark.parametrize(
    ("periods", "follow"),
    [
        (["2019", "2020"], ["2021", "2022"]),
        (["2010", "2015", "2020"], ["2025", "2030", "2035"]),
        (["2010", "2012", "2013"], []),
        (["2020-01-01", "2021-01-01"], []),
        (["q1", "q2"], []),
        (["01", "02"], []),
        (["2", "1"], ["0", "-1"]),
    ],
    ids=str,
)
def test_which_periods_come_after_the_last(periods: list[str], follow: list[str]) -> None:
    assert foreseen._following(periods) == follow
