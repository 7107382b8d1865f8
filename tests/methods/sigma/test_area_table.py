"""What a client reads of its areas, column by column, against other computations; coefficients as ratios; priors beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

import fedkern
from fedkern.cli import report
from fedkern.errors import JobError
from fedkern.kernels.families import FAMILIES as RECORDS
from fedkern.methods import parse
from fedkern.methods.sigma import maps, own
from fedkern.methods.sigma.areas import Areas, Threshold, cells
from fedkern.models.likelihood import Likelihood
from methods.sigma.test_areas import areas, change, job

COUNTS = np.array([0.0, 1.0, 4.0, 37.0, 512.0])


def test_intervals_of_counts_are_garwoods() -> None:
    exposure = np.array([2.0, 0.4, 7.5, 40.0, 300.0])
    low, high = RECORDS["poisson"].exact(COUNTS, exposure, 1.0)
    np.testing.assert_allclose(low[1:], stats.chi2.ppf(0.025, 2 * COUNTS[1:]) / 2 / exposure[1:], rtol=1e-12)
    np.testing.assert_allclose(high, stats.chi2.ppf(0.975, 2 * COUNTS + 2) / 2 / exposure, rtol=1e-12)
    assert low[0] == 0
    # what makes them exact: each end is where the tail has 2.5 %
    np.testing.assert_allclose(stats.poisson.sf(COUNTS[1:] - 1, low[1:] * exposure[1:]), 0.025, rtol=1e-9)
    np.testing.assert_allclose(stats.poisson.cdf(COUNTS, high * exposure), 0.025, rtol=1e-9)


@pytest.mark.parametrize("family", ["binomial", "bernoulli"])
def test_intervals_of_proportions_are_clopper_and_pearsons(family: str) -> None:
    trials = np.array([5.0, 9.0, 4.0, 40.0, 2000.0])
    low, high = RECORDS[family].exact(COUNTS, trials, 1.0)
    for y, m, ends in zip(COUNTS.astype(int), trials.astype(int), zip(low, high)):
        np.testing.assert_allclose(ends, stats.binomtest(y, m).proportion_ci(0.95, "exact"), rtol=1e-9)
    assert high[2] == 1
    assert low[0] == 0


def test_intervals_of_overdispersed_counts_have_the_same_tails() -> None:
    exposure, r = np.array([2.0, 0.4, 7.5, 40.0, 300.0]), 1.7
    low, high = RECORDS["negative-binomial"].exact(COUNTS, exposure, r)
    for y, e, a, b in zip(COUNTS, exposure, low, high):
        above = brentq(lambda rate, y=y, e=e: stats.nbinom.cdf(y, r, r / (r + rate * e)) - 0.025, 1e-9, 1e6, xtol=1e-12)
        assert b == pytest.approx(above, rel=1e-6)
        if y:
            below = brentq(lambda rate, y=y, e=e: stats.nbinom.sf(y - 1, r, r / (r + rate * e)) - 0.025, 1e-9, 1e6, xtol=1e-12)
            assert a == pytest.approx(below, rel=1e-6)
    assert low[0] == 0
    poisson = RECORDS["poisson"].exact(COUNTS, exposure, 1.0)
    np.testing.assert_allclose(RECORDS["negative-binomial"].exact(COUNTS, exposure, 1e9), poisson, rtol=1e-5)


CASES = {"poisson": {}, "binomial": {}, "bernoulli": {}, "gaussian": {"threshold": 3.0}}


@pytest.mark.parametrize("family", CASES)
def test_every_column_is_what_another_computation_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    kept: dict[str, Any] = {}

    def table(file: Any, rows: Any, drawn: Areas, *fit: Any, **more: Any) -> Any:
        kept[file.name] = (file, rows, drawn)
        return original(file, rows, drawn, *fit, **more)

    original = own.table
    monkeypatch.setattr(own, "table", table)
    output = {"chains": 2} | CASES[family]
    algorithm = {"inference": "hmc", "leapfrog_steps": 2, "burn_in": 4}
    result = fedkern.run(job(tmp_path, family, rounds=24, output=output, algorithm=algorithm), out=tmp_path / "out")
    names = [name for name in result.posterior.values if "_std" not in name]
    draws = {name: result.posterior.values[name].ravel() for name in names}
    link = RECORDS[family].link
    for client, (file, _rows, drawn) in kept.items():
        given = list(csv.DictReader((tmp_path / "rows" / f"{client}.csv").read_text().splitlines()))
        found = {name: [row[name] for row in areas(tmp_path / "out", client)] for name in areas(tmp_path / "out", client)[0]}
        poverty = np.array([float(row["poverty"]) for row in given])
        # on the data's scale, of what the server publishes
        fixed = draws["intercept"][:, None] + draws["theta[poverty]"][:, None] * poverty
        spatial = draws["sigma_theta"][:, None] * drawn.theta
        eta = fixed + spatial
        level = {"log": np.exp, "logit": lambda e: 1 / (1 + np.exp(-e)), "identity": np.asarray}[link](eta)
        natural = np.asarray if link == "identity" else np.exp
        label = RECORDS[family].level
        for name, values in (("theta", drawn.theta), (label, level), ("fixed", natural(fixed)), ("spatial", natural(spatial))):
            quantiles = {"q025": 2.5, "q05": 5, "q50": 50, "q95": 95, "q975": 97.5}
            want = {what: np.percentile(values, q, axis=0) for what, q in quantiles.items()}
            want |= {"mean": values.mean(axis=0), "sd": values.std(axis=0)}
            for column in (c for c in found if c.startswith(f"{name}_") and c != "theta_prior_sd"):
                got = np.array(found[column], float)
                np.testing.assert_allclose(got, want[column.removeprefix(f"{name}_")], rtol=2e-5, atol=1e-6, err_msg=column)
        assert {f"{name}_{what}" for name in ("theta", label) for what in quantiles} <= found.keys()
        assert {f"{name}_{what}" for name in ("fixed", "spatial") for what in ("q025", "q50", "q975")} <= found.keys()
        y, e = ([float(row[c]) if row[c] else np.nan for row in given] for c in ("cases", "expected"))
        for i, row in enumerate(given):
            crude, ends = found["crude"][i], [found[c][i] for c in ("crude_low", "crude_high") if c in found]
            if not row["cases"]:
                assert not any([crude, *ends])
                continue
            base = {"poisson": e[i], "binomial": e[i]}.get(family, 1.0)
            assert float(crude) == pytest.approx(y[i] / base, rel=1e-5)
            if family == "poisson":
                low = stats.chi2.ppf(0.025, 2 * y[i]) if y[i] else 0.0
                want_ends = [low / 2 / base, stats.chi2.ppf(0.975, 2 * y[i] + 2) / 2 / base]
            elif family == "gaussian":
                want_ends = []
            else:
                want_ends = list(stats.binomtest(int(y[i]), int(base)).proportion_ci(0.95, "exact"))
            np.testing.assert_allclose(np.array(ends, float), want_ends, rtol=1e-5)
        overall = pooled(tmp_path, "expected" if family == "binomial" else None)
        threshold = {"poisson": 1.0, "gaussian": 3.0}.get(family, overall)
        high = (level > threshold).sum(axis=0)
        column = f"p_{label}_above_{ {'poisson': '1', 'gaussian': '3'}.get(family, 'overall') }"
        np.testing.assert_allclose(np.array(found[column], float), (high + 0.5) / (len(level) + 1), rtol=1e-5)
        said = json.loads((tmp_path / "out" / f"client-{client}" / "areas.json").read_text())
        assert said["threshold"] == pytest.approx(threshold)
        np.testing.assert_allclose(np.array(found["theta_prior_sd"], float) ** 2, file.true_variance, rtol=1e-4)


def pooled(folder: Path, base: str | None) -> float:
    """All clients' cases over all of another column (None: over their number)."""
    paths = sorted((folder / "rows").glob("*.csv"))
    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines()) if row["cases"]]
    return sum(float(row["cases"]) for row in rows) / sum(1.0 if base is None else float(row[base]) for row in rows)


def test_draws_that_all_agree_are_not_certain() -> None:
    eta = np.full((200, 3), [-9.0, 0.0, 9.0]) + np.linspace(-0.1, 0.1, 200)[:, None]
    above = Areas(eta, eta, np.zeros_like(eta), Likelihood("poisson"), Threshold("1", 1.0)).above
    np.testing.assert_allclose(above, [0.5 / 201, 0.5, 200.5 / 201])


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("output", [{"threshold": "overall"}, {}], ids=str)
def test_the_overall_threshold_is_the_pooled_rate(tmp_path: Path, output: dict[str, str]) -> None:
    """Which rates of persons have by default: their level is far from 1, and pages do not call what they are of expected."""
    path = job(tmp_path, output=output)
    for name in ("east", "north", "west"):  # person-years: a rate of 1 means nothing
        change(tmp_path, name, "expected", lambda row, cell: str(1000 * float(cell)))
    fedkern.run(path, out=tmp_path / "out")
    said = json.loads((tmp_path / "out" / "client-east" / "areas.json").read_text())
    assert said["threshold"] == pytest.approx(pooled(tmp_path, "expected"))
    found = [float(row["p_rate_above_overall"]) for name in ("east", "north", "west") for row in areas(tmp_path / "out", name)]
    assert 0.1 < np.mean(found) < 0.9
    page = report.write(tmp_path / "out").read_text(encoding="utf-8")
    assert "observed / exposure" in page
    assert "P(rate &gt; overall)" in page
    assert "expected cases" not in page
    assert "as many cases as expected" not in page


def test_a_map_of_rates_diverges_about_its_threshold() -> None:
    """No colour of a rate of persons is at the end of the scale; about 1 all areas would be."""
    rates = 0.002 * np.array([0.55, 0.8, 1.0, 1.3, 1.9])
    more = {"p_rate_above_overall": "0.5", "spatial_mean": "1"}
    rows = [{"rate_mean": f"{r}", "rate_q025": f"{r / 2}", "rate_q975": f"{2 * r}", **more} for r in rates]
    shapes = [[[np.array([[k, 0.0], [k + 1, 0], [k + 1, 1], [k, 0]])]] for k in range(5)]

    def coloured(middle: float) -> np.ndarray:
        one = next(iter(maps._maps(rows, middle)))
        assert f"{middle:.3g}" in one.words
        drawn = maps._figure(one, rows, shapes, "").axes[0].collections
        return np.asarray(next(c for c in drawn if c.get_array() is not None).norm(rates))

    at = coloured(0.002)
    assert at[2] == pytest.approx(0.5)
    assert 0 < at[0] < at[1] < 0.5 < at[3] < at[4] < 1
    assert (coloured(1.0) < 0).all()


@pytest.mark.parametrize("value", ["everywhere", float("inf"), True])
def test_other_thresholds_are_refused(value: Any) -> None:
    data = {"clients": "r/*.csv", "area": "a", "response": "y"}
    tables = {"job": {"method": "sigma"}, "data": data, "model": {"prior": "p"}, "output": {"threshold": value}}
    with pytest.raises(JobError, match='a number, or "overall"'):
        parse(tables)
    tables |= {"model": {"prior": "p", "intercept": False}, "output": {"threshold": "overall"}}
    with pytest.raises(JobError, match="a model without intercept does not ask for the pooled level"):
        parse(tables)


def test_coefficients_are_ratios_and_stand_beside_their_priors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedkern.cli.__main__ import main

    path = job(tmp_path, output={"chains": 2})
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "rate ratio" in printed
    result = fedkern.run(path)
    about, values = result.summary["sigma"], result.posterior.values
    assert about["ratios"]["is"] == "rate ratio"
    for title, name in (("a unit", "theta[poverty]"), ("an sd", "theta_std[poverty]")):
        want = np.percentile(np.exp(values[name]), [2.5, 50, 97.5])
        np.testing.assert_allclose([about["ratios"][title]["poverty"][q] for q in ("q025", "q50", "q975")], want, rtol=1e-12)
    assert "a level" not in about["ratios"]
    prior, level = about["prior_of"], about["response"]["level"]
    assert prior.keys() == result.parameters.keys()
    rng = np.random.default_rng(1)
    column = result.summary["encoding"]["columns"][0]
    b, beta = level + 5 * rng.normal(size=400_000), 5 * rng.normal(size=400_000)
    logit = np.sqrt(2) * rng.normal(size=400_000)
    phi = 1 / (1 + np.exp(-logit))
    draws = {
        "phi": phi[phi < 0.99],
        "sigma_theta": np.abs(rng.normal(size=400_000)),
        "intercept": b - beta * column["center"] / column["scale"],
        "theta[poverty]": beta / column["scale"],
        "intercept_std": b,
        "theta_std[poverty]": beta,
    }
    for name, row in prior.items():
        want = np.percentile(draws[name], [5, 50, 95])
        np.testing.assert_allclose([row["q05"], row["q50"], row["q95"]], want, atol=0.01 * draws[name].std(), err_msg=name)


def test_a_column_with_one_value_has_no_ratio_of_an_sd(tmp_path: Path) -> None:
    """Its sd is 0, for which 1 stands: the ratio of an sd would be that of a unit."""
    file = job(tmp_path, output={"chains": 2})
    for path in (tmp_path / "rows").glob("*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{head},same", *(f"{row},7" for row in rows)]) + "\n")
    ratios = fedkern.run(file).summary["sigma"]["ratios"]
    assert (set(ratios["a unit"]), set(ratios["an sd"])) == ({"poverty", "same"}, {"poverty"})


def test_levels_are_compared_with_the_reference(tmp_path: Path) -> None:
    """Of a coefficient of each beside the intercept rows say nothing: what they say of is the difference, and the reference."""
    file = job(tmp_path, output={"chains": 2})
    file.write_text(f'{file.read_text()}\n[data.columns.kind]\nreference = "b"\n')
    for k, path in enumerate(sorted((tmp_path / "rows").glob("*.csv"))):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{head},kind", *(f"{row},{'ab'[(i + k) % 2]}" for i, row in enumerate(rows))]) + "\n")
    result = fedkern.run(file)
    of_level, values = result.summary["sigma"]["ratios"], result.posterior.values
    assert "theta[kind=b]" not in values
    want = np.percentile(np.exp(values["theta[kind=a]"]), [2.5, 50, 97.5])
    np.testing.assert_allclose([of_level["a level"]["kind a against b"][q] for q in ("q025", "q50", "q975")], want, rtol=1e-12)
    assert "kind=a" not in of_level["a unit"]
    prior = result.summary["sigma"]["prior_of"]  # of a difference of two levels, and of the intercept and one of them
    for name in ("theta[kind=a]", "intercept_std"):
        assert prior[name]["q975"] - prior[name]["q50"] == pytest.approx(1.959964 * 5 * 2**0.5, rel=1e-6)


def test_counts_of_millions_stay_what_they_are() -> None:
    assert cells(np.array([2_312_652.0, 0.1 + 0.2, np.nan])) == ["2312652", "0.3", ""]
