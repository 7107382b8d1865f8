"""Jobs of 0 and 1, and of successes of trials, whose link is no logit: from `fit` to its predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

import fedkern
from fedkern.arrays import Array
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.kernels.families import FAMILIES, QUANTILES
from fedkern.methods import load
from fedkern.methods.likelihood.keys import Config
from fedkern.models.mixed import Layout
from fedkern.models.mixed.conditional import density, slopes
from fedkern.models.mixed.marginal import average_mean
from fedkern.models.spatial.site import Rows
from fedkern.models.spatial.units import pooled_level, sums
from fedkern.results.released import Drawing
from oracles.mixed_rows import chance
from support.mixed_rows import point, rows

LINKS = ("probit", "cloglog")
OTHERS = [f"{family}-{link}" for family in ("bernoulli", "binomial") for link in LINKS]
JOB = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[model]\nlink = "probit"\n'
FAST: dict[str, Any] = {"standardise": "none", "algorithm": {"points": 1024, "effective": 400.0}}


def trials(link: str) -> pd.DataFrame:
    """Successes of trials at four values of a column, at three sites."""
    rng = np.random.default_rng(8)
    x, site = np.tile([-1.0, 0.0, 0.5, 2.0], 15), np.repeat(["a", "b", "c"], 20)
    frame = pd.DataFrame({"x": x, "n": rng.integers(3, 9, 60), "site": site})
    frame["k"] = rng.binomial(frame.n, chance(link, 0.7 * frame.x.to_numpy() - 0.4))
    return frame


def one_by_one(frame: pd.DataFrame) -> pd.DataFrame:
    """The same as rows of 0 and 1."""
    again = frame.loc[frame.index.repeat(frame.n)]
    return again.assign(y=(again.groupby(level=0).cumcount() < again.k).astype(int)).drop(columns=["n", "k"])


@pytest.mark.parametrize("link", LINKS)
def test_successes_of_trials_are_as_many_rows_of_0_and_1(link: str, capsys: pytest.CaptureFixture[str]) -> None:
    frame = trials(link)
    together = fedkern.fit("cbind(k, n - k) ~ x", frame, by="site", link=link, **FAST)
    apart = fedkern.fit("y ~ x", one_by_one(frame), "bernoulli", link=link, by="site", output={"loo": True}, **FAST)
    assert together.converged
    assert apart.converged
    for name, row in apart.parameters.items():
        assert abs(together.parameters[name]["mean"] - row["mean"]) < 0.15 * row["sd"], name
    choices = binom.logpmf(frame.k, frame.n, 0.5).sum() + frame.n.sum() * np.log(2)
    assert together.summary["log_evidence"]["value"] == pytest.approx(apart.summary["log_evidence"]["value"] + choices, abs=0.05)
    print(apart)
    assert f"bernoulli ({link}): y ~ x" in capsys.readouterr().out
    assert 0.01 < apart.summary["predictive"]["p"]["mean"] < 0.99
    assert sum(one["rows"] for one in apart.summary["predictive"]["tenths"]) == frame.n.sum()


@pytest.mark.parametrize("link", LINKS)
def test_predictions_are_chances_by_the_link(link: str) -> None:
    frame = one_by_one(trials(link))
    few = {"draws": 100, "chains": 2}  # all of which predict
    result = fedkern.fit("y ~ x", frame, "bernoulli", link=link, by="site", output=few, **FAST)
    draws = result.posterior.groups(Drawing(0))["posterior"].variables
    theta, intercept = (draws[name][1].reshape(-1, 1) for name in ("theta", "intercept"))
    new = pd.DataFrame({"x": [-3.0, 0.2, 4.0]})
    wanted = chance(link, intercept + theta * new.x.to_numpy()).mean(axis=0)
    np.testing.assert_allclose(result.prediction(new).mean, wanted, rtol=1e-5)
    scores = fedkern.fit("y ~ x", frame, "bernoulli", link=link, by="site", test=frame, **FAST).metrics
    assert 0.5 < scores["accuracy"] < 1
    if link == "cloglog":
        (row,) = result.rows(exp=True)
        assert row["hazard_ratio"] == pytest.approx(np.exp(result.parameters["theta[x]"]["q50"]))
    else:
        with pytest.raises(JobError, match="coefficients of a bernoulli-probit response are differences"):
            result.rows(exp=True)


@pytest.mark.parametrize("link", LINKS)
def test_sums_that_are_masked_have_the_same_posterior(link: str) -> None:
    frame = one_by_one(trials(link))
    open_, masked = (
        fedkern.fit("y ~ x", frame, "bernoulli", link=link, by="site", job=more, **FAST) for more in ({}, {"sums": "secure"})
    )
    assert masked.converged
    for name, row in open_.parameters.items():
        assert abs(masked.parameters[name]["mean"] - row["mean"]) < 0.15 * row["sd"], name


def test_check_names_the_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for site, own in one_by_one(trials("probit")).groupby("site"):
        own.drop(columns="site").to_csv(tmp_path / f"{site}.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB)
    assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
    assert "model    bernoulli-probit, coefficients ~ N(0, 2.5^2)" in capsys.readouterr().out


@pytest.mark.parametrize(("link", "numbers"), [("logit", 0), ("probit", 0), ("cloglog", 2)])
def test_a_cloglog_counts_as_two_coefficients_more(link: str, numbers: int, tmp_path: Path) -> None:
    """Its rows weigh less evenly, and more of them were determined (docs/spec/likelihood.md, section 6)."""
    (tmp_path / "job.toml").write_text(JOB.replace("probit", link))
    config, _ = load(tmp_path / "job.toml")
    asked = cast(Config, config).requirement
    assert (asked.shapes, asked.of_family) == (numbers, numbers)


@pytest.mark.parametrize("link", LINKS)
def test_a_link_in_the_family_s_place_names_both_keys(link: str) -> None:
    with pytest.raises(JobError, match=rf'did you mean "bernoulli" with model\.link = "{link}"\?'):
        fedkern.fit("k ~ x", trials(link), link, by="site")


def test_a_family_without_the_link_refuses_it() -> None:
    with pytest.raises(JobError, match=r'model\.link = "probit": of model\.family = "binomial" or "bernoulli" or'):
        fedkern.fit("k ~ x", trials("probit"), "poisson", link="probit", by="site")


# The parts --------------------


def derivative(f: Callable[[Array], Array], x: Array, h: float = 1e-3) -> Array:
    """By four points, element by element."""
    return np.asarray((8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h))


@pytest.mark.parametrize("family", OTHERS)
def test_slopes_of_rows_and_of_average_means_are_derivatives(family: str) -> None:
    some = rows(family)
    eta, xi = np.linspace(-3, 3, len(some))[np.newaxis], point(some.layout)[np.newaxis]
    slope, curve = slopes(some, eta, xi)
    np.testing.assert_allclose(slope, derivative(lambda e: density(some, e, xi), eta), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(curve, -derivative(lambda e: slopes(some, e, xi)[0], eta), rtol=1e-8, atol=1e-8)
    layout, variance = Layout(("intercept",), family), np.full_like(eta, 0.6)
    for order in (0, 1):
        next_ = average_mean(layout, eta, variance, order + 1)
        found = derivative(partial(average_mean, layout, variance=variance, order=order), eta)
        np.testing.assert_allclose(next_, found, rtol=1e-7, atol=1e-9)
    if family.endswith("probit"):  # in closed form
        np.testing.assert_allclose(average_mean(layout, eta, variance, 0), norm.cdf(eta / np.sqrt(1.6)), rtol=1e-9)


@pytest.mark.parametrize("family", OTHERS)
def test_the_level_of_all_is_that_at_which_their_mean_is_expected(family: str) -> None:
    y, link = np.array([1.0, 0.0, 1.0, 1.0, 0.0]), FAMILIES[family].link
    tried = np.full(5, 4.0) if family.startswith("binomial") else None
    level = pooled_level(family, [sums(family, Rows(y, np.zeros(5, np.int64), np.ones((5, 1)), np.zeros(5), tried))])
    assert level == pytest.approx(QUANTILES[link](y.sum() / (5 if tried is None else 20)))
    assert FAMILIES[family].mean(np.array([level])) == pytest.approx(y.sum() / (5 if tried is None else 20))
