"""A coefficient of which rows say nothing is not estimated, wherever it is shown: R has NA there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from support.found import ids

pd = pytest.importorskip("pandas")

FITS = {  # R 4.2.2 (survival 3.5.3): lm, glm, and coxph with strata(site); NA for the second coefficient
    "gaussian": ("y ~ x + k", "theta[k]", (1.090289, 0.065684)),
    "bernoulli": ("e ~ x + k", "theta[k]", (0.189431, 0.139277)),
    "cox": ("Surv(t, e) ~ x + sx", "theta[sx[T.v]]", (0.550902, 0.085863)),
}


def rows() -> pd.DataFrame:
    """Returns rows of three sites: `k` is constant, and `sx` at each site."""
    rng, n = np.random.default_rng(0), 240
    frame = pd.DataFrame({"x": rng.normal(size=n), "k": np.full(n, 3.0), "site": np.array(list("abc"))[np.arange(n) % 3]})
    frame["y"] = frame.x + rng.normal(size=n)
    frame["sx"] = np.where(frame.site == "a", "u", "v")
    frame["t"] = np.exp(rng.normal(size=n) - 0.5 * frame.x)
    frame["e"] = (rng.random(n) < 0.7).astype(int)
    return frame


@pytest.mark.parametrize("family", FITS)
def test_what_rows_say_nothing_of_is_not_estimated(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formula, name, (mean, sd) = FITS[family]
    clients = {name: one.drop(columns="site") for name, one in rows().groupby("site")}
    job = {"job": {"method": "likelihood"}, "model": {"formula": formula, "family": family}}
    result = fedkern.run(job, data=clients, out=tmp_path / "run")
    assert result.converged
    assert result.parameters["theta[x]"]["mean"] == pytest.approx(mean, abs=0.1 * sd)
    assert result.parameters["theta[x]"]["sd"] == pytest.approx(sd, rel=0.03)
    assert result.summary["not_estimated"] == [name]
    assert "not-estimated" in ids(result)
    assert math.isnan(result.parameters[name]["mean"])
    table = result.table().set_index("parameter")
    assert table.loc[name, ["mean", "sd", "q025", "q975"]].isna().all()
    assert table.loc["theta[x]", "mean"] == pytest.approx(mean, abs=0.1 * sd)
    (line,) = (one for one in repr(result).splitlines() if one.startswith(name))
    assert line.split(None, 1)[1] == "not estimated"
    assert "not estimated" in result._repr_html_()
    drawn = result.to_arviz()["posterior"]["theta"]
    assert np.isnan(drawn.sel(slope=name.removeprefix("theta[").removesuffix("]"))).all()
    assert not np.isnan(drawn.sel(slope="x")).any()
    with pytest.raises(JobError, match="no draws of"):
        result.hypothesis(f"{name} > 0")
    assert main(["report", str(tmp_path / "run"), "--table", "csv"]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if name in one)
    assert set(line.split(name)[1].strip('"').split(",")) <= {"", "nan"}
    assert result.plot("forest") is not None
    assert main(["report", str(tmp_path / "run")]) == 0
    assert ">not estimated<" in (tmp_path / "run" / "report.html").read_text()
    if family == "cox":
        return
    without = fedkern.fit(formula.removesuffix(" + k"), rows(), family, by="site")
    new = pd.DataFrame({"x": [0.0, 1.0], "k": [3.0, 3.0]})
    assert result.predict(new)["mean"].to_numpy() == pytest.approx(without.predict(new)["mean"].to_numpy(), abs=0.02)


def test_a_prior_that_the_job_gives_is_the_posterior_of_what_rows_say_nothing_of() -> None:
    result = fedkern.fit("y ~ x + k", rows(), "gaussian", by="site", priors={"prior_sd": 2.0})
    assert "not_estimated" not in result.summary
    assert result.parameters["theta[k]"]["sd"] > 1


SITES = {"u": (1.0, 2.0, 5.0), "v": (0.0, 7.0, 1.0), "w": (3.0, 3.0, 9.0)}  # a value each, so that no client sees what follows


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("y ~ x + u + v + w", ["w"]),
        ("e ~ x + u + v + w", ["w"]),
        ("y ~ x + site + u", ["u"]),
        ("y ~ x + z + total + u", ["total"]),
        ("Surv(t, e) ~ x + u + z + total", ["u", "total"]),
    ],
)
def test_columns_that_follow_from_others_are_those_of_r(formula: str, named: list[str]) -> None:
    """R has NA for the last of them, and the others as without it; predictions are those of the model without it."""
    frame = rows().assign(z=np.random.default_rng(2).normal(size=240))
    frame = frame.assign(total=frame.x + 2 * frame.z, hospital=frame.site)
    frame = frame.assign(**{name: frame.site.map(dict(zip("abc", own))) for name, own in SITES.items()})
    result = fedkern.fit(formula, frame, by="hospital")
    assert result.summary["not_estimated"] == [f"theta[{name}]" for name in named]
    terms = [term for term in formula.split(" + ") if term not in named]
    plain = fedkern.fit(" + ".join(terms), frame, by="hospital")
    assert "not_estimated" not in plain.summary
    assert "sensitive-to-the-prior" not in ids(result)
    for name, own in plain.parameters.items():
        assert result.parameters[name]["mean"] == pytest.approx(own["mean"], abs=0.1 * own["sd"])
        assert result.parameters[name]["sd"] == pytest.approx(own["sd"], rel=0.05)
    found, wanted = (one.summary["log_evidence"] for one in (result, plain))
    assert found["value"] == pytest.approx(wanted["value"], abs=0.02 + 4 * (found["error"] + wanted["error"]))
    if "Surv" not in formula:
        means = [one.predict(frame[:5])["mean"].to_numpy() for one in (result, plain)]
        assert means[0] == pytest.approx(means[1], abs=0.03)


LEN = """
4.2 11.5 7.3 5.8 6.4 10 11.2 11.2 5.2 7 16.5 16.5 15.2 17.3 22.5 17.3 13.6 14.5 18.8 15.5 23.6 18.5 33.9 25.5 26.4 32.5 26.7 21.5
23.3 29.5 15.2 21.5 17.6 9.7 14.5 10 8.2 9.4 16.5 9.7 19.7 23.3 23.6 26.4 20 25.2 25.8 21.2 14.5 27.3 25.5 26.4 22.4 24.5 24.8
30.9 26.4 27.3 29.4 23
"""
TEETH_IN_R = {  # R 4.2.2, lm(len ~ supp * (dose + I(dose^2)), ToothGrowth)
    "theta[supp[T.VC]]": (-2.1133333, 5.4403880),
    "theta[dose]": (34.52, 7.4421786),
    "theta[supp[T.VC]:dose]": (-8.73, 10.5248299),
    "theta[supp[T.VC]:I(dose ** 2)]": (4.9133333, 4.0510089),
}


def test_a_column_that_follows_from_others_by_another_rule_at_each_client_is_estimated() -> None:
    """Each client has two of three doses of vitamin C, by which the square is a line there."""
    dose, supp = np.tile(np.repeat([0.5, 1.0, 2.0], 10), 2), np.repeat(["VC", "OJ"], 30)
    who = {("VC", 0.5): "ab", ("VC", 1.0): "ac", ("VC", 2.0): "bc"}
    sites = [who.get(one, "abc") for one in zip(supp, dose)]
    frame = pd.DataFrame({"len": [float(x) for x in LEN.split()], "supp": supp, "dose": dose})
    frame["site"] = [own[k % len(own)] for k, own in enumerate(sites)]
    result = fedkern.fit("len ~ supp * (dose + I(dose^2))", frame, by="site")
    assert "not_estimated" not in result.summary
    for name, (mean, sd) in TEETH_IN_R.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.1 * sd)
        assert result.parameters[name]["sd"] == pytest.approx(sd, rel=0.1)


PEAS = """
011 49.5 110 62.8 000 46.8 101 57.0 100 59.8 111 58.5 001 55.5 010 56.0 010 62.8 111 55.8 100 69.5 001 55.0
100 62.0 111 48.8 001 45.5 010 44.2 110 52.0 000 51.5 101 49.8 011 48.8 101 57.2 110 59.0 011 53.2 000 56.0
"""
PEAS_IN_R = {  # R 4.2.2, lm(yield ~ block + N * P * K, npk), NA for N1:P1:K1
    "theta[N[T.n1]]": (9.85, 2.7785388),
    "theta[P[T.p1]]": (0.41666667, 2.7785388),
    "theta[N[T.n1]:K[T.k1]]": (-4.7, 3.2083802),
}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_product_that_some_clients_lack_is_not_estimated_however_rows_are_dealt(seed: int) -> None:
    """By lot a product has one value at a client, and follows from blocks at another."""
    cells, yields = PEAS.split()[::2], [float(x) for x in PEAS.split()[1::2]]
    frame = pd.DataFrame({name: [name.lower() + cell[k] for cell in cells] for k, name in enumerate("NPK")})
    frame = frame.assign(block=[f"b{k // 4}" for k in range(24)], y=yields)
    frame["site"] = np.random.default_rng(seed).permutation(np.arange(24) % 2)
    result = fedkern.fit("y ~ block + N * P * K", frame, by="site")
    assert result.summary["not_estimated"] == ["theta[N[T.n1]:P[T.p1]:K[T.k1]]"]
    for name, (mean, sd) in PEAS_IN_R.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.1 * sd)
        assert sd < result.parameters[name]["sd"] < 1.2 * sd  # of 12 degrees of freedom


def test_columns_that_are_nearly_the_same_are_estimated() -> None:
    rng = np.random.default_rng(5)
    x, d = rng.normal(size=(2, 600))
    frame = pd.DataFrame({"x": x, "z": x + 1e-3 * d, "y": d + 0.3 * rng.normal(size=600), "site": np.arange(600) % 3})
    result = fedkern.fit("y ~ x + z", frame, by="site")
    assert "not_estimated" not in result.summary
    assert abs(result.parameters["theta[z]"]["mean"]) > 500


def test_a_column_with_one_value_hides_no_prior_that_decides() -> None:
    """Without it the default prior is made wider; a coefficient of which rows say nothing has no part in that."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + 0.02 * x[:, 1], "one": 1.0, "site": np.arange(300) % 3})
    frame["y"] = 40 * (frame.b - frame.a) + 0.1 * rng.normal(size=300)
    with_it, without = (fedkern.fit(f"y ~ a + b{more}", frame, by="site") for more in (" + one", ""))
    assert "priors" in without.summary
    assert with_it.parameters["theta[b]"]["mean"] == pytest.approx(without.parameters["theta[b]"]["mean"], rel=0.01)


@pytest.mark.parametrize("job", [{}, {"disclosure": {"level": "standard"}}])
def test_a_column_that_follows_at_each_client_by_another_relation_is_estimated(job: dict[str, Any]) -> None:
    """Each site has two values of x, so that its x^2 follows from x there; of all rows it does not."""
    rng = np.random.default_rng(0)
    x, site = np.r_[np.tile([0, 1], 30), np.tile([0, 2], 30)], np.repeat(["a", "b"], 60)
    frame = pd.DataFrame({"x": x, "y": 1 + x - 0.5 * x**2 + rng.normal(size=120), "site": site})
    result = fedkern.fit("y ~ x + I(x^2)", frame, by="site", **job)
    # R 4.2.2
    of_lm = {"intercept": (0.998048, 0.123986), "theta[x]": (1.515892, 0.406515), "theta[I(x ** 2)]": (-0.743002, 0.205607)}
    assert "not_estimated" not in result.summary
    for name, (mean, se) in of_lm.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.1 * se)
        assert result.parameters[name]["sd"] == pytest.approx(se, rel=0.1)


def test_what_follows_in_all_rows_is_found_where_one_client_has_one_value_of_it() -> None:
    """At p both columns are 0, so that nothing follows from anything there; R has NA for the second."""
    rng = np.random.default_rng(0)
    site = np.repeat(["p", "q"], 60)
    u = np.where(site == "p", 0, rng.choice([0, 1], 120))
    frame = pd.DataFrame({"u": u, "w": u, "y": u + rng.normal(size=120), "site": site})
    result, plain = (fedkern.fit(formula, frame, by="site") for formula in ("y ~ u + w", "y ~ u"))
    assert result.summary["not_estimated"] == ["theta[w]"]
    assert result.parameters["theta[u]"]["mean"] == pytest.approx(plain.parameters["theta[u]"]["mean"], abs=0.01)


NPK = """
1 0 1 1 49.5, 1 1 1 0 62.8, 1 0 0 0 46.8, 1 1 0 1 57.0, 2 1 0 0 59.8, 2 1 1 1 58.5, 2 0 0 1 55.5, 2 0 1 0 56.0, 3 0 1 0 62.8,
3 1 1 1 55.8, 3 1 0 0 69.5, 3 0 0 1 55.0, 4 1 0 0 62.0, 4 1 1 1 48.8, 4 0 0 1 45.5, 4 0 1 0 44.2, 5 1 1 0 52.0, 5 0 0 0 51.5,
5 1 0 1 49.8, 5 0 1 1 48.8, 6 1 0 1 57.2, 6 1 1 0 59.0, 6 0 1 1 53.2, 6 0 0 0 56.0
"""  # block, N, P, K, yield of R's npk


def test_clients_of_fewer_rows_than_columns_have_the_rank_of_all_rows() -> None:
    """Neither client can say what follows from what; R has NA for the interaction of three, which blocks confound."""
    rows = [[float(cell) for cell in row.split()] for row in NPK.split(",")]
    frame = pd.DataFrame(rows, columns=["block", "N", "P", "K", "y"])
    frame["block"] = "b" + frame.block.astype(int).astype(str)
    frame["site"] = np.array(["p", "q"])[np.random.default_rng(1).permutation(np.arange(24) % 2)]
    result = fedkern.fit("y ~ block + N * P * K", frame, by="site")
    assert result.summary["not_estimated"] == ["theta[N:P:K]"]
    of_lm = {"theta[block[T.b2]]": (3.425, 2.7785), "theta[N]": (9.85, 2.7785), "theta[N:K]": (-4.7, 3.2084)}  # R 4.2.2
    for name, (mean, se) in of_lm.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.1 * se)
        assert 1 < result.parameters[name]["sd"] / se < 1.2  # 12 degrees of freedom are left


@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_columns_of_unlike_size_are_estimated(unit: float) -> None:
    """A concentration beside its square, whose standard deviations differ by 1e15 from the others': R estimates all."""
    random = np.random.default_rng(52)
    x, age = random.uniform(80, 250, 190), random.normal(23, 5, 190)
    rows = pd.DataFrame({"x": x * unit, "age": age, "y": 2000 + 8 * x + 7 * age + random.normal(0, 700, 190)})
    formula = "y ~ age + x + I(x^2)"
    result = fedkern.fit(formula, {"a": rows})
    other = fedkern.fit(formula, {"a": rows.assign(x=x)})
    assert "not_estimated" not in result.summary
    for name, power in (("theta[age]", 0), ("theta[x]", 1), ("theta[I(x ** 2)]", 2)):
        row, same = result.parameters[name], other.parameters[name]
        assert row["mean"] * unit**power == pytest.approx(same["mean"], abs=0.02 * same["sd"])


def test_a_slope_of_years_in_each_level_is_estimated() -> None:
    """Of `arm / year` the year is no term: its products with all levels are nearly these, and add up to it."""
    i = np.arange(240)
    year, arm = 2010 + (7 * i + i // 5) % 3, np.array(["u", "v"])[(i + i // 3) % 2]
    y = (year - 2011) * np.where(arm == "u", 0.5, -0.2) + (arm == "v") + np.sin(12.9898 * i * i)
    rows = pd.DataFrame({"year": year, "arm": arm, "y": y, "site": np.array(["p", "q"])[(i // 2) % 2]})
    result = fedkern.fit("y ~ arm / year", rows, "gaussian", by="site")
    assert "not_estimated" not in result.summary
    of_lm = {"theta[arm[u]:year]": (0.56810585, 0.074535257), "theta[arm[v]:year]": (-0.095479812, 0.105408771)}  # R 4.2.2
    for name, (mean, se) in of_lm.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.1 * se)
        assert result.parameters[name]["sd"] == pytest.approx(se, rel=0.06)
