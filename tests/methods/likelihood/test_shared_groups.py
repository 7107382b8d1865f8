"""Jobs with groups that clients have in common: their posterior, what is published of them, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError

OPEN = {"level": "none"}
SD = "group_sd[item:intercept]"
ITEMS = 8


def frames(family: str = "gaussian", *, clients: int = 3, each: int = 12, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Rows whose items are those of all clients; the last client has none of the first item."""
    random, found = np.random.default_rng(seed), {}
    effect = 0.8 * random.normal(size=ITEMS)
    for k in range(clients):
        item = np.repeat(np.arange(int(k == clients - 1 > 0), ITEMS), each)
        n, x = len(item), random.normal(size=len(item)) + 2
        eta = -0.5 + 0.4 * x + effect[item]
        columns: dict[str, Any] = {"x": x, "item": [f"i{j}" for j in item], "ward": [f"w{j}" for j in random.integers(0, 6, n)]}
        if family == "weibull":
            time, end = random.weibull(1.5, n) * np.exp(-eta / 1.5), random.exponential(2.0, n)
            columns |= {"time": np.minimum(time, end), "died": (time <= end).astype(int)}
        else:
            y = eta + random.normal(size=n) if family == "gaussian" else random.uniform(size=n) < expit(eta)
            columns["y"] = np.asarray(y, float)
        found["abc"[k]] = pd.DataFrame(columns)
    return found


def shared(**more: Any) -> dict[str, Any]:
    return {"random": {"groups": [{"by": "item", "shared": True, **more}]}}


def fit(
    data: dict[str, pd.DataFrame], out: Path, family: str = "gaussian", formula: str = "y ~ x", **keys: Any
) -> fedkern.Result:
    return fedkern.fit(formula, data, family, out=out, **{"disclosure": OPEN, "model": shared(), **keys})


def exact(y: np.ndarray, item: np.ndarray) -> dict[str, tuple[float, float]]:
    """Mean and sd of sigma, of the items' sd and of the first item's effect, by quadrature over both sds.

    y has mean 0 and sd 1, and as many rows of each item: their means and the squares about these are sufficient.
    """
    items, m = np.unique(item), int((item == item[0]).sum())
    means = np.array([y[item == one].mean() for one in items])
    within, L = sum(((y[item == one] - y[item == one].mean()) ** 2).sum() for one in items), len(items)
    grid_s, grid_sigma = np.exp(np.linspace(-6, 2.5, 160)), np.exp(np.linspace(-1.5, 1.0, 120))
    s, sigma = (numbers.ravel() for numbers in np.meshgrid(grid_s, grid_sigma))
    prior = stats.t.logpdf(s, 3) + stats.norm.logpdf(sigma) + np.log(s) + np.log(sigma)
    log, first, second = np.empty(len(s)), np.empty(len(s)), np.empty(len(s))
    for k in range(len(s)):
        of_effects = s[k] ** 2 * np.eye(L)
        V = of_effects + sigma[k] ** 2 / m * np.eye(L) + 25.0
        gain = of_effects[0] @ np.linalg.inv(V)
        log[k] = (
            stats.multivariate_normal.logpdf(means, np.zeros(L), V) - (len(y) - L) * np.log(sigma[k]) - within / sigma[k] ** 2 / 2
        )
        first[k], second[k] = gain @ means, of_effects[0, 0] - gain @ of_effects[0]
    w = np.exp(log + prior - logsumexp(log + prior))
    found = {"sigma": (w @ sigma, w @ sigma**2), SD: (w @ s, w @ s**2)}
    found["group_effect[item=i0]"] = (w @ first, w @ (first**2 + second))
    return {name: (float(mean), float(np.sqrt(square - mean**2))) for name, (mean, square) in found.items()}


@pytest.mark.digits
@pytest.mark.parametrize("size", [0.8, 0.0])
def test_the_posterior_is_that_of_quadrature_over_both_sds(size: float, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    item = np.tile(np.repeat(np.arange(6), 10), 3)
    y = size * random.normal(size=6)[item] + random.normal(size=len(item))
    y = (y - y.mean()) / y.std()
    table = pd.DataFrame({"y": y, "item": [f"i{k}" for k in item], "site": np.repeat([0, 1, 2], 60)})
    result = fedkern.fit("y ~ 1", table, "gaussian", by="site", out=tmp_path / "out", disclosure=OPEN, model=shared())
    assert result.summary["converged"] is True
    for name, (mean, sd) in exact(y, item).items():
        told = result.parameters[name]
        assert told["mean"] == pytest.approx(mean, abs=0.05 * sd), name
        assert told["sd"] == pytest.approx(sd, rel=0.05), name


def test_effects_that_vary_much_have_a_mode_where_their_sd_is(tmp_path: Path) -> None:
    """About the mode at an sd of .5 the job does not converge."""
    random = np.random.default_rng(1)
    item, effect = np.tile(np.repeat(np.arange(30), 10), 2), 2.5 * random.normal(size=30)
    y = random.poisson(np.exp(effect[item]))
    table = pd.DataFrame({"y": y, "item": [f"i{k:02d}" for k in item], "site": np.repeat([0, 1], 300)})
    result = fedkern.fit("y ~ 1", table, "poisson", by="site", out=tmp_path / "out", disclosure=OPEN, model=shared())
    assert result.summary["converged"] is True
    assert result.parameters[SD]["mean"] == pytest.approx(effect.std(), rel=0.2)


@pytest.mark.parametrize(("family", "formula"), [("bernoulli", "y ~ x"), ("weibull", "Surv(time, died) ~ x")])
def test_groups_of_one_client_are_the_same_integrated_at_home_or_as_unknowns(family: str, formula: str, tmp_path: Path) -> None:
    """Beside quadrature over each group's effect, which is another way to the same posterior."""
    data = frames(family, clients=1, each=20)
    unknowns = fit(data, tmp_path / "shared", family, formula)
    at_home = fit(data, tmp_path / "own", family, formula, model={"random": {"group": "item"}})
    assert unknowns.summary["converged"] is True
    of_both = [(SD, "group_sd[intercept]"), ("theta[x]", "theta[x]"), ("intercept", "intercept")]
    for name, other in [*of_both, *([("shape", "shape")] if family == "weibull" else [])]:
        told, wanted = unknowns.parameters[name], at_home.parameters[other]
        assert told["mean"] == pytest.approx(wanted["mean"], abs=0.15 * wanted["sd"]), name
        assert told["sd"] == pytest.approx(wanted["sd"], rel=0.15), name
    groups = pd.read_csv(tmp_path / "own" / "client-a" / "groups.csv").set_index("group")
    for label, row in groups.iterrows():
        assert unknowns.parameters[f"group_effect[item={label}]"]["mean"] == pytest.approx(
            row["intercept"], abs=0.2 * row["intercept_sd"]
        )


def test_beside_groups_of_each_client_and_rows_of_known_and_new_groups(tmp_path: Path) -> None:
    both = {"random": {"groups": [{"by": "ward"}, {"by": "item", "shared": True}]}}
    result = fit(frames(), tmp_path / "out", model=both)
    assert result.summary["converged"] is True
    assert {"group_sd[intercept]", SD, "group_effect[item=i7]"} <= {*result.parameters}
    assert "y ~ x + (1 | item), ward within clients" in str(result)
    assert set(pd.read_csv(tmp_path / "out" / "client-a" / "groups.csv").factor) == {"ward"}
    rows = pd.DataFrame({"x": 2.0, "item": ["i3", "elsewhere"], "ward": "w0"})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert (
        main(["predict", str(tmp_path / "out" / "client-c"), str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    )
    told = pd.read_csv(tmp_path / "p.csv")
    assert told["group_effect[item]"].tolist() == ["known", "new"]
    assert told["linear_sd"][0] < told["linear_sd"][1]
    moved = told["linear_mean"][0] - told["linear_mean"][1]
    assert moved == pytest.approx(result.parameters["group_effect[item=i3]"]["mean"], abs=0.1)
    assert result.predict(rows).linear_sd[0] > told["linear_sd"][1]


def test_secure_sums_powers_of_priors_and_results_of_sites(tmp_path: Path) -> None:
    plain = fit(frames(), tmp_path / "plain", output={"sites": True, "without": True, "loo": True})
    assert plain.summary["converged"] is True
    assert {*plain.summary["sites"]} == {"a", "b", "c"} == {*plain.summary["without"]}
    summed = fit(frames(), tmp_path / "summed", job={"sums": "secure"})
    for number, told in plain.parameters.items():
        assert summed.parameters[number]["mean"] == pytest.approx(told["mean"], abs=0.15 * told["sd"])
    in_cents = {name: frame.assign(y=100 * frame.y) for name, frame in frames().items()}  # a prior is in the response's unit
    narrow = fit(in_cents, tmp_path / "narrow", model={**shared(), "priors": {SD: {"kind": "half-normal", "sd": 0.01}}})
    assert narrow.parameters[SD]["mean"] < 0.03


def test_weibull_curves_are_of_a_new_group(tmp_path: Path) -> None:
    wide, held = (
        fit(frames("weibull"), tmp_path / str(k), "weibull", "Surv(time, died) ~ x", output={"survival_at": [0.2]}, model=model)
        for k, model in enumerate((shared(), {**shared(), "priors": {SD: {"kind": "half-normal", "sd": 0.01}}}))
    )
    sds = [result.summary["survival"][0]["sd"] for result in (wide, held)]
    assert wide.parameters[SD]["mean"] > 0.4
    assert all(0 < result.summary["survival"][0]["mean"] < 1 for result in (wide, held))
    assert sds[0] != pytest.approx(sds[1], rel=0.05)


def test_few_rows_of_a_shared_group_are_refused(tmp_path: Path) -> None:
    data = frames(each=20)
    data["b"] = data["b"].drop(index=range(11))
    with pytest.raises(FedkernError, match=r"column 'item' has groups of few rows: 'i0' \(9 rows\); none or 10"):
        fit(data, tmp_path / "out", disclosure={"level": "standard"})
    data["b"] = data["b"].drop(index=range(11, 20))
    assert fit(data, tmp_path / "again", disclosure={"level": "standard"}).summary["converged"] is True


def test_a_client_of_two_shared_groups_has_enough_of_them(tmp_path: Path) -> None:
    data = frames(each=30)
    data["b"] = data["b"][data["b"]["item"].isin(["i0", "i1"])]
    both = {"random": {"groups": [{"by": "ward"}, {"by": "item", "shared": True}]}}
    assert fit(data, tmp_path / "out", disclosure={"level": "standard"}, model=both).summary["converged"] is True


def test_a_job_of_files_lists_the_labels_and_check_says_what_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, frame in frames().items():
        frame.drop(columns="ward").to_csv(tmp_path / f"{name}.csv", index=False)
    text = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[model]\nfamily = "gaussian"\n'
    text += '[[model.random.groups]]\nby = "item"\nshared = true\n'
    (tmp_path / "job.toml").write_text(text)
    assert main(["check", str(tmp_path / "job.toml")]) != 0
    assert "needs levels = [..]" in capsys.readouterr().err
    (tmp_path / "job.toml").write_text(text + f"levels = {[f'i{k}' for k in range(ITEMS)]}\n")
    assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
    said = capsys.readouterr().out
    assert "which clients have in common: 8 intercepts" in said
    assert "columns  2 coefficients, 12 unknowns" in said


def test_a_label_that_the_job_does_not_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedkernError, match=r"labels that are none of levels \('i0'\)"):
        fit(frames(), tmp_path / "out", model=shared(levels=[f"i{k}" for k in range(1, ITEMS)]))


def test_groups_of_one_client_are_noted(tmp_path: Path) -> None:
    data = frames()
    assert "shared-groups-of-one-client" not in {found.id for found in fit(data, tmp_path / "out").findings}
    data["a"].loc[data["a"].item == "i7", "item"] = "elsewhere"
    found = {found.id: found for found in fit(data, tmp_path / "again").findings}
    assert found["shared-groups-of-one-client"].values["groups"] == 1


@pytest.mark.parametrize(
    ("entries", "more", "words"),
    [
        ([{"by": "item", "shared": True, "levels": ["i0"]}], {}, "there are 1; name them"),
        ([{"by": "item", "shared": True, "levels": [*range(201)]}], {}, "2 to 200"),
        ([{"by": ["item", "ward"], "shared": True}], {}, "needs levels"),
        ([{"by": "item", "shared": True, "slopes": ["x"]}], {}, "is of intercepts"),
        ([{"by": "item", "levels": ["i0", "i1"]}], {}, "add shared = true"),
        ([{"by": "item", "shared": True}, {"by": "ward", "shared": True}], {}, "is of one entry"),
        ([{"by": "item", "shared": True}, {"by": "item"}], {}, 'two entries are of "item"'),
        ([{"by": "item", "shared": True}], {"algorithm": {"sampler": "hmc"}}, "nearly equal"),
        ([{"by": "item", "shared": True}], {"output": {"marginal": True}}, "it is not built"),
    ],
)
def test_jobs_that_are_refused(entries: list[dict[str, Any]], more: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(FedkernError, match=words):
        fit(frames(), tmp_path / "out", model={"random": {"groups": entries}}, **more)
