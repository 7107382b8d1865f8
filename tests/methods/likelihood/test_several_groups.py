"""Jobs with groups of several columns: what they publish, what holders get, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError

FAST = {"points": 1024, "effective": 400.0}
OPEN = {"level": "none"}


def frames(family: str, *, clients: int = 2, regions: int = 5, wards: int = 3, each: int = 6, seed: int = 0) -> dict[str, Any]:
    random, found = np.random.default_rng(seed), {}
    for name in ("ada", "bo", "cy")[:clients]:
        region = np.repeat(np.arange(regions), wards * each)
        ward = np.tile(np.repeat(np.arange(wards), each), regions)
        n, x, item = len(region), random.normal(size=len(region)) + 2, random.integers(0, 6, len(region))
        eta = -0.5 + 0.4 * x + random.normal(size=regions)[region] + 0.5 * random.normal(size=(regions, wards))[region, ward]
        eta += 0.4 * random.normal(size=6)[item]
        y = eta + random.normal(size=n) if family == "gaussian" else random.uniform(size=n) < expit(eta)
        columns = {"region": [f"r{k}" for k in region], "ward": [f"w{k}" for k in ward], "item": [f"i{k}" for k in item]}
        found[name] = pd.DataFrame({"y": y.astype(float), "x": x, **columns})
    return found


def fit(formula: str, data: dict[str, Any], out: Path, family: str = "gaussian", **keys: Any) -> fedkern.Result:
    return fedkern.fit(formula, data, family, out=out, disclosure=OPEN, algorithm=dict(FAST), **keys)


def test_wards_in_regions_and_rows_of_known_and_new_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = fit("y ~ x + (1 + x | region) + (1 | region:ward)", frames("gaussian"), tmp_path / "out")
    assert result.summary["converged"] is True
    names = [name for name in result.parameters if name.startswith("group_")]
    assert names == [
        "group_sd[region:intercept]", "group_sd[region:x]", "group_correlation[region:intercept,x]",
        "group_sd[region/ward:intercept]",
    ]  # fmt: skip
    groups = pd.read_csv(tmp_path / "out" / "client-ada" / "groups.csv", keep_default_na=False)
    assert groups.groupby("factor").size().to_dict() == {"region": 5, "region/ward": 15}
    assert groups.rows.tolist() == [18] * 5 + [6] * 15
    assert set(groups.loc[groups.factor == "region/ward", "x"]) == {""}
    rows = pd.DataFrame({"x": 2.0, "region": ["r0", "r0", "elsewhere"], "ward": ["w1", "new", "w1"], "item": "i0"})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = str(tmp_path / "predicted.csv")
    assert main(["predict", str(tmp_path / "out" / "client-ada"), str(tmp_path / "rows.csv"), "--out", out]) == 0
    told = pd.read_csv(out)
    assert told["group_effect[region]"].tolist() == ["known", "known", "new"]
    assert told["group_effect[region:ward]"].tolist() == ["known", "new", "new"]
    sd = told["linear_sd"]
    assert sd[0] < sd[1] < sd[2]
    both = groups.set_index("group")
    x = float(both.loc["r0", "x"]) * (2 - frames("gaussian")["ada"].x.mean())
    fixed = result.parameters["intercept"]["mean"] + 2 * result.parameters["theta[x]"]["mean"]
    wanted = fixed + float(both.loc["r0", "intercept"]) + x + float(both.loc["r0:w1", "intercept"])
    assert told["linear_mean"][0] == pytest.approx(wanted, abs=0.25)
    server = result.predict(rows)
    assert server.linear_sd[0] == pytest.approx(server.linear_sd[2])
    assert server.linear_sd[0] > sd[2] * 0.9


LONG = (pytest.mark.nightly, pytest.mark.timeout(1800))  # a hundred draws a point, each with its mode


@pytest.mark.parametrize("family", ["gaussian", pytest.param("bernoulli", marks=LONG)])
def test_crossed_groups_have_a_posterior(family: str, tmp_path: Path) -> None:
    data = frames(family, clients=1 if family == "bernoulli" else 2)
    result = fit("y ~ x + (1 | region) + (1 | item)", data, tmp_path / "out", family)
    assert result.summary["converged"] is True
    assert {"group_sd[region:intercept]", "group_sd[item:intercept]"} <= {*result.parameters}
    groups = pd.read_csv(tmp_path / "out" / "client-ada" / "groups.csv")
    assert groups.factor.tolist() == ["region"] * 5 + ["item"] * 6
    assert (groups.intercept_q05 < groups.intercept_q95).all()


def test_two_ways_to_write_a_group_are_one_job(tmp_path: Path) -> None:
    data = frames("gaussian")
    found = [
        fedkern.fit("y ~ x", data, "gaussian", out=tmp_path / str(k), disclosure=OPEN, algorithm=FAST, model={"random": random})
        for k, random in enumerate(({"group": "region", "slopes": ["x"]}, {"groups": [{"by": "region", "slopes": ["x"]}]}))
    ]
    assert found[0].parameters == found[1].parameters


def test_independent_slopes_have_no_correlation(tmp_path: Path) -> None:
    result = fit("y ~ x + (x || region)", frames("gaussian"), tmp_path / "out")
    names = [name for name in result.parameters if name.startswith("group_")]
    assert names == ["group_sd[intercept]", "group_sd[x]"]
    assert "(x || region)" in str(result)


def test_secure_sums_and_priors_of_several_groups(tmp_path: Path) -> None:
    data, formula = frames("gaussian", clients=3), "y ~ x + (1 | region/ward)"
    name = "group_sd[region/ward:intercept]"
    narrow = {"priors": {name: {"kind": "half-normal", "sd": 0.01}}}
    plain = fit(formula, data, tmp_path / "plain", model=narrow)
    assert plain.parameters[name]["mean"] < 0.03
    summed = fit(formula, data, tmp_path / "summed", model=narrow, job={"sums": "secure"})
    for number, told in plain.parameters.items():
        assert summed.parameters[number]["mean"] == pytest.approx(told["mean"], abs=0.2 * told["sd"])


@pytest.mark.parametrize(
    ("random", "more", "words"),
    [
        ({"group": "region", "groups": [{"by": "ward"}]}, {}, "too: write all as entries"),
        ({"groups": [{"by": "region"}, {"by": ["region"]}]}, {}, 'two entries are of "region"'),
        ({"groups": [{"by": []}]}, {}, "wanted a column, or several different ones"),
        ({"groups": [{"by": "region", "correlated": False}]}, {}, "correlated with nothing"),
        ({"groups": [{"by": "region"}, {"by": "item"}]}, {"output": {"loo": True}}, "which is not built"),
        ({"groups": [{"by": "region"}, {"by": "item"}]}, {"sampler": "hmc"}, "their integral has no gradient"),
        ({"groups": [{"by": "region"}, {"by": "item"}]}, {"family": "student"}, "leave one entry"),
        ({"groups": [{"by": "region"}, {"by": ["region", "ward"]}]}, {"intercept": False}, "deviate from an intercept"),
        ({"groups": [{"by": "region", "slopes": ["item"]}]}, {}, "slopes are of numeric covariates"),
    ],
)
def test_what_cannot_be_is_refused(random: Any, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    keys = {name: more[name] for name in ("family", "intercept") if name in more}
    job: dict[str, Any] = {
        "job": {"method": "likelihood"},
        "data": {"response": "y", "ignore": ["ward"]},
        "model": {"family": "gaussian", "random": random, **keys},
        "disclosure": OPEN,
    }
    job |= {"output": more["output"]} if "output" in more else {}
    job |= {"algorithm": {"sampler": "hmc"}} if "sampler" in more else {}
    with pytest.raises(FedkernError, match=words):
        fedkern.run(job, data=frames("gaussian"), out=tmp_path / "out")


def test_a_holder_is_told_of_labels_in_two_regions_and_of_groups_that_are_alike(tmp_path: Path) -> None:
    data = frames("gaussian", wards=1)
    fit("y ~ x + (1 | region) + (1 | region:ward)", data, tmp_path / "out")
    notes = (tmp_path / "out" / "client-ada" / "rows.json").read_text()
    assert "make the same groups of these rows" in notes
    assert "stand in several groups of 'region'" in notes


def test_columns_of_groups_are_no_covariates_and_few_groups_are_refused(tmp_path: Path) -> None:
    entries = [{"by": "region"}, {"by": ["region", "ward"]}]
    job: dict[str, Any] = {
        "job": {"method": "likelihood"},
        "data": {"response": "y", "ignore": ["item"]},
        "model": {"family": "gaussian", "random": {"groups": entries}},
        "algorithm": dict(FAST),
    }
    data = frames("gaussian", regions=4, wards=5, each=8)
    with pytest.raises(FedkernError, match=r"4 groups in column 'region'; 5 are asked for"):
        fedkern.run(job | {"disclosure": {"level": "standard"}}, data=data, out=tmp_path / "refused")
    result = fedkern.run(job | {"disclosure": OPEN}, data=data, out=tmp_path / "out")
    assert [column["name"] for column in result.summary["encoding"]["columns"]] == ["x"]
    assert "group_sd[region/ward:intercept]" in result.parameters


def test_check_says_how_effects_are_integrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, frame in frames("bernoulli").items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    text = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\n'
    text += '[disclosure]\nlevel = "none"\n[model]\nformula = "%s"\n'
    for formula, words in (
        ("(1 | region/ward)", "225 nodes a row"),
        ("(1 | region) + (1 | item)", "200 draws a row, up to 3,200"),
    ):
        (tmp_path / "job.toml").write_text(text % f"y ~ x + {formula}")
        assert main(["check", "--verbose", str(tmp_path / "job.toml")]) == 0
        assert words in capsys.readouterr().out
