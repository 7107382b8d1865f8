"""Sites that tell nothing of a covariate, or are far away from the others: what averages, contrasts and graphs make of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges import scales
from fedkern.algorithms.exchanges import scales as values
from fedkern.algorithms.exchanges.sums import LAPLACE, SPREAD, ErrorShape, departures, laplace_ratio
from fedkern.data import far
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.methods.sparse import run
from fedkern.results.samples import Samples
from support.found import said
from support.refusal import refusal
from support.wires import checked_and_run

SHORT: dict[str, Any] = {"job": {"rounds": 400, "seed": 3}, "algorithm": {"burn_in": 100, "chains": 2}}


def written(folder: Path, names: str, sites: list[Any]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"s{k + 1}.csv" for k in range(len(sites))]
    for path, rows in zip(paths, sites):
        path.write_text("\n".join([names, *(",".join(repr(float(x)) for x in row) for row in rows)]) + "\n")
    return [str(path) for path in paths]


def job(folder: Path, names: str, sites: list[Any], **sections: Any) -> dict[str, Any]:
    data = {"clients": written(folder, names, sites), "least_rows": 1}
    data |= {"response": "y"} if "y" in names.split(",") else {}
    out: dict[str, Any] = {"job": {"method": "sparse", **SHORT["job"]}, "data": data, "model": {}}
    out["algorithm"] = SHORT["algorithm"]
    return {**out, **{name: out.get(name, {}) | keys for name, keys in sections.items()}}


def federation(*, silent: tuple[int, ...] = (3,), rows: int = 80, effect: float = 0.5) -> list[Any]:
    random, sites = np.random.default_rng(11), []
    for k in range(4):
        X = random.normal(size=(rows + 10 * k, 2))
        X[:, 0] = 7.0 if k in silent else X[:, 0]
        sites.append(np.column_stack([X, effect * (X[:, 0] - 7.0 * (k in silent)) + random.normal(size=len(X))]))
    return sites


def row(result: Any, name: str, standard: bool = True) -> Any:
    every, stem = result.parameters, name.replace("[", "_std[", 1)
    return every[stem] if standard and stem in every else every[name]


VARIANTS: dict[str, dict[str, Any]] = {
    "pooled": {},
    "none": {"model": {"scale": "none"}},
    "statistics": {"algorithm": {"statistics": "pooled"}},
    "imputed": {"model": {"missing": "impute"}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_average_is_over_the_sites_that_have_the_covariate(tmp_path: Path, variant: str) -> None:
    found = checked_and_run(job(tmp_path, "a,b,y", federation(), **_with(VARIANTS[variant])), tmp_path / "out")
    for name in ("average[a]", "between_sd[a]"):
        one = row(found, name)
        assert one["sites"] == 3
        assert one["sd"] < 0.5
        assert one["q05"] < one["mean"] < one["q95"]
    average = row(found, "average[a]")
    assert abs(average["mean"] - 0.5) < 0.25
    assert average["p_positive"] > 0.99
    assert "sites" not in row(found, "average[b]")
    assert found.summary["tells_nothing"] == {"s4": ["a"]}
    (note,) = (text for text in found.summary["notes"] if text.startswith("s4 has one value"))
    assert "of a:" in note
    weighted = row(found, "average_by_rows[a]") if "average_by_rows[a]" in found.parameters else average
    assert weighted["sites"] == 3
    if variant != "statistics":
        own = json.loads((tmp_path / "out" / "client-s4" / "posterior.json").read_text())
        assert own["parameters"]["theta[a]"].keys() == {"q05", "q50", "q95", "p_deviates"}
        assert "mean" in own["parameters"]["theta[b]"]
        assert "mean" not in own["parameters"]["intercept"]
        assert "rows tell nothing of a" in own["notes"][0]


def _with(sections: dict[str, Any]) -> dict[str, Any]:
    return {name: keys if name != "algorithm" else SHORT["algorithm"] | keys for name, keys in sections.items()}


def test_what_only_one_site_has(tmp_path: Path) -> None:
    shared = {"algorithm": SHORT["algorithm"] | {"share_local": True}}
    found = fedkern.run(job(tmp_path, "a,b,y", federation(silent=(1, 2, 3)), **shared))
    assert row(found, "average[a]")["sites"] == 1
    assert row(found, "average[a]")["mean"] == pytest.approx(row(found, "theta[a]@s1")["mean"])
    assert not [name for name in found.parameters if name.startswith("between_sd") and "[a]" in name]
    assert not [name for name in found.parameters if "[a]@s" in name and not name.endswith("@s1")]
    assert "p_differs" not in row(found, "theta[a]@s1")
    assert "p_differs" in row(found, "theta[b]@s1")
    assert all(isinstance(value, float | int) for one in found.parameters.values() for value in one.values())


def test_a_graph_s_edges_of_a_column_that_is_constant_somewhere(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    sites = [random.normal(size=(60, 3)) @ [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]] for _ in range(3)]
    sites[2][:, 2] = 1.0
    found = fedkern.run(job(tmp_path, "a,b,c", sites, model={"kind": "mrf"}))
    assert row(found, "average[c -> a]")["sites"] == row(found, "average[a -> c]")["sites"] == 2
    assert "sites" not in row(found, "average[a -> b]")
    assert row(found, "average[c -> a]")["sd"] < 0.5
    with refusal(JobError, "s3", "c"):
        fedkern.run(job(tmp_path, "a,b,c", sites, model={"kind": "sem"}))


def test_a_site_is_compared_with_the_median_of_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    for n in (3, 4, 5):
        sites = {f"s{k}": random.normal(size=(2, 50, 1)) for k in range(n)}
        sites["s0"] = sites["s0"] + 100.0
        one = np.zeros((2, 50, 1))
        kept = Samples(("a",), one, one + 1, one, one, one + 1, one + 0.5, scale=np.ones(1), sites=sites)
        own = kept.parameters()
        for name, draws in sites.items():
            contrast = draws - np.median([other for label, other in sites.items() if label != name], axis=0)
            assert own[f"theta[a]@{name}"]["contrast"] == pytest.approx(contrast.mean())
            assert own[f"theta[a]@{name}"]["p_differs"] == np.mean(np.abs(contrast) > 0.2)


LEFT: dict[str, dict[str, Any]] = {
    "scales": {},
    "psi": {"model": {"missing": "impute"}, "algorithm": {"random_source": "keyed"}},
    "splines": {"model": {"splines": {"b": [-1.0, 0.0, 1.0]}}},
    "statistics": {"algorithm": {"statistics": "pooled", "moves": []}},
    "given": {"model": {"scale": "none"}},
}


@pytest.mark.parametrize("variant", LEFT)
def test_without_a_site_is_the_model_without_it_to_the_last_bit(tmp_path: Path, variant: str) -> None:
    """Scales and Psi too: what is to show a site that spoils them may not hold it. The last one, for streams go by number."""
    sites, short = federation(silent=()), {**LEFT[variant], "job": {"method": "sparse", "rounds": 60, "seed": 3}}
    sites[3] = sites[3] * [1.0, 3.0, 10.0]
    if variant == "psi":
        sites[1][:9, 0] = np.nan
    short["algorithm"] = {"burn_in": 20, "chains": 2} | short.get("algorithm", {})
    every = checked_and_run(job(tmp_path, "a,b,y", sites, **short, output={"leave_one_out": True}), tmp_path / "out")
    removed = job(tmp_path, "a,b,y", sites, **short)
    del removed["data"]["clients"][3]
    alone = fedkern.run(removed)
    left = every.summary["leave_one_out"]["s4"]
    for name, pip in left["pip"].items():
        assert pip == row(alone, f"theta[{name}]")["pip"]
        assert left["theta"][name] == pytest.approx(row(alone, f"theta[{name}]", standard=False)["mean"], rel=1e-12)
    assert left["pip"] != every.summary["leave_one_out"]["s1"]["pip"]


def test_a_column_that_only_the_left_out_site_has_keeps_its_scale(tmp_path: Path) -> None:
    short = {
        "job": {"method": "sparse", "rounds": 60},
        "algorithm": {"burn_in": 20, "chains": 2},
        "output": {"leave_one_out": True},
    }
    found = fedkern.run(job(tmp_path, "a,b,y", federation(silent=(1, 2, 3)), **short))
    left = found.summary["leave_one_out"]
    assert left["s1"]["scales_of_all"] == ["column 'a'"]
    assert "scales_of_all" not in left["s2"]


def test_one_cell_of_one_hospital_does_not_empty_the_results(tmp_path: Path) -> None:
    sites = federation(silent=())
    clean = fedkern.run(job(tmp_path / "clean", "a,b,y", sites), out=tmp_path / "clean" / "out")
    sites[1][4, 2] = 10_000.0
    spoilt = fedkern.run(job(tmp_path / "spoilt", "a,b,y", sites), out=tmp_path / "spoilt" / "out")
    assert row(clean, "theta[a]")["pip"] > 0.8
    assert row(spoilt, "theta[a]")["pip"] > row(clean, "theta[a]")["pip"] - 0.2
    sigma = [
        own(tmp_path / which / "out", "s1", "posterior.json")["parameters"]["sigma"]["mean"] for which in ("clean", "spoilt")
    ]
    assert sigma[1] == pytest.approx(sigma[0], rel=0.1)
    assert [one.values["clients"] for one in spoilt.findings if one.id == "column-in-another-unit"] == [["s2"]]
    assert not [text for text in clean.summary["notes"] if "standard deviation" in text]
    lines = {client: own(tmp_path / "spoilt" / "out", client, "rows.json")["notes"] for client in ("s1", "s2")}
    assert not [line for line in lines["s1"] if "robust" in line]
    (line,) = (line for line in lines["s2"] if "robust" in line)
    assert line.startswith("line 6, column 'y': 10000 is ")
    assert "10000" not in (tmp_path / "spoilt" / "out" / "summary.json").read_text()


def own(out: Path, client: str, name: str) -> Any:
    return json.loads((out / f"client-{client}" / name).read_text())


def test_another_unit_at_one_site_is_named(tmp_path: Path) -> None:
    sites = federation(silent=())
    sites[2][:, 1] *= 18.0
    for site in sites:
        site[:, 0] = site[:, 0] > 0.0
    sites[0][:, 0] = np.arange(len(sites[0])) == 1  # a rare level varies less, and is in no other unit
    found = fedkern.run(
        job(tmp_path, "a,b,y", sites, job={"method": "sparse", "rounds": 20}, algorithm={"burn_in": 5, "chains": 1})
    )
    said = [one for one in found.findings if one.id.startswith("column-")]
    assert [(one.values["column"], one.values["clients"]) for one in said] == [("column 'b'", ["s3"])]
    assert not [text for text in found.summary["notes"] if "s1" in text]


def test_one_common_change_of_units_changes_nothing(tmp_path: Path) -> None:
    """By powers of two to the last bit; by others but for the rounding of the cells, which chains make grow."""
    sites, short = federation(silent=()), {"job": {"method": "sparse", "rounds": 60, "seed": 3}}
    short["algorithm"] = {"burn_in": 20, "chains": 2}
    at = [
        fedkern.run(job(tmp_path, "a,b,y", [s * units for s in sites], **short))
        for units in ([1, 1, 1], [32, 0.5, 8], [10, 3, 7])
    ]
    assert at[0].digest == at[1].digest
    assert row(at[1], "average[a]", standard=False)["mean"] == row(at[0], "average[a]", standard=False)["mean"] * 8 / 32
    known = [one.summary["encoding"]["scales"] for one in at]
    assert known[2] == pytest.approx({"a": 10 * known[0]["a"], "b": 3 * known[0]["b"], "y": 7 * known[0]["y"]}, rel=1e-12)


def test_the_scale_is_the_median_of_the_sites_variances_by_degrees_of_freedom() -> None:
    def common(variances: list[float], degrees: list[float]) -> float:
        own, weight = np.array(variances), np.array(degrees)
        return scales.common_variance(own * weight, weight)

    assert common([1.0, 2.0, 50.0], [10, 10, 10]) == 2.0
    assert common([1.0, 2.0, 50.0], [40, 10, 10]) == 1.0
    assert common([1.0, 2.0, 3.0, 50.0], [10, 10, 10, 10]) == 2.5
    assert common([0.0, 3.0, 0.0, 3.0], [10, 10, 0, 30]) == pytest.approx(3.0)  # where it varies
    assert common([1.0, 4.0], [10, 30]) == pytest.approx(3.25)
    assert common([1.0, 25.1], [10, 30]) == 1.0
    assert common([1.0, 2.0, 9_000.0], [200, 100, 300]) == pytest.approx(4 / 3)  # half of all rows are no majority of sites
    assert common([9_000.0, 1.0, 9_000.0, 1.0], [300, 200, 300, 100]) == 1.0  # nobody knows: the smaller ones, as of two


@pytest.mark.parametrize("k", [1, 64])
def test_a_wrong_cell_at_the_site_with_half_of_all_rows_blames_no_other_site(k: int, tmp_path: Path) -> None:
    """Whatever the common unit is."""
    random, sites = np.random.default_rng(2), []
    for n in (90, 150, 60):
        x = random.normal(60, 12, n)
        sites.append(np.column_stack([x, random.normal(size=n), 0.05 * x + random.normal(size=n)]))
    sites[1][7, 0] = 6012.0
    small = {"job": {"method": "sparse", "rounds": 20}, "algorithm": {"burn_in": 5, "chains": 1}}
    found = fedkern.run(job(tmp_path, "a,b,y", [site * [k, 1, 1] for site in sites], **small)).summary
    assert [one["values"]["clients"] for one in found["findings"] if one["id"] == "column-in-another-unit"] == [["s2"]]
    assert found["encoding"]["scales"]["a"] == pytest.approx(12 * k, rel=0.15)


def test_of_two_sites_nothing_says_which_is_in_another_unit(tmp_path: Path) -> None:
    sites = [site[:40].copy() for site in federation(silent=())[:2]]
    sites[1][:, 1] *= 18.0
    small = {"job": {"method": "sparse", "rounds": 20}, "algorithm": {"burn_in": 5, "chains": 1}}
    (values,) = said(fedkern.run(job(tmp_path, "a,b,y", sites, **small)), "column-in-another-unit")
    assert (values["column"], list(values["clients"])) == ("column 'b'", ["s2"])
    assert "s1" in values["others"]


def test_chains_that_have_not_mixed_are_told_what_helps_first(tmp_path: Path) -> None:
    """Without a slab and with one."""
    for k, prior in enumerate(({}, {"slab": 2.5})):
        sites = federation(silent=())
        short = job(tmp_path / str(k), "a,b,y", sites, job={"rounds": 150}, algorithm={"burn_in": 20, "chains": 4}, model=prior)
        first = fedkern.run(short).summary
        (note,) = (text for text in first["notes"] if "have not mixed" in text)
        assert first["converged"] is False
        assert note.startswith('chains have not mixed yet: set job.rounds = "until"')
        assert ("set model.slab (2.5)" in note) <= (not prior)


@pytest.mark.nightly
def test_more_rounds_end_in_chains_that_have_mixed(tmp_path: Path) -> None:
    short = job(tmp_path, "a,b,y", federation(silent=()), model={"slab": 2.5})
    del short["algorithm"]
    short["job"]["rounds"] = "until"
    again = fedkern.run(short).summary
    assert again["converged"] is True
    assert not [text for text in again["notes"] if "have not mixed" in text]


def test_a_cell_is_far_beside_the_spread_that_it_does_not_make() -> None:
    zeros = np.zeros(100)
    zeros[:30] = np.arange(1, 31)
    assert far.robust(zeros)[1] == pytest.approx(1.4826 * 7.5, rel=1e-3)  # where more than half are one value: of the others
    assert far.robust(np.array([0.0, 1.0] * 20)) == (0.0, 0.0)
    normal = np.random.default_rng(0).normal(3.0, 2.0, size=10_001)
    normal[0] = 1e6
    assert far.robust(normal) == pytest.approx((3.0, 2.0), abs=0.1)


def test_different_values_are_counted_and_no_more_is_told() -> None:
    columns = np.array(
        [[1.0, 0.1, 5.0, np.nan, 1e15 + 0.3], [1.0, 0.1, 6.0, np.nan, 1e15 + 0.3], [2.0, 0.1, 7.0, np.nan, np.nan]]
    )
    assert values.count_values(columns).tolist() == [2, 1, 3, 0, 1]


def chains(names: tuple[str, ...], slow: str = "") -> dict[str, Any]:
    """Draws of four chains that agree about all but one quantity."""
    random, shape = np.random.default_rng(5), (4, 300, 2)
    out = {name: random.normal(size=shape) for name in names}
    out |= {"inclusion": random.uniform(size=shape), "tau_sq": np.exp(out["tau_sq"]), "rho": random.uniform(size=shape)[..., :1]}
    out |= {"eta": np.exp(random.normal(size=shape)[..., :1])}
    if slow:
        out[slow] = out[slow] + np.arange(4.0)[:, None, None] * [0.0, 1.0]
    return out


SITES = ("theta", "tau_sq", "average", "by_rows", "between", "s1", "s2")


@pytest.mark.parametrize("slow", ["", "theta", "average", "by_rows", "between", "s2"])
def test_all_that_is_printed_is_judged(slow: str) -> None:
    draws = chains(SITES, slow)
    sites = {name: draws.pop(name) for name in ("s1", "s2")}
    kept = Samples(("a", "b"), **draws, scale=np.ones(2), sites=sites)
    slowest = kept.slowest()
    assert slowest is not None
    assert (slowest[0] > 1.1) == bool(slow)
    names = {"": slowest[2], "theta": "theta[b]", "average": "average[b]", "by_rows": "average_by_rows[b]", "s2": "theta[b]@s2"}
    assert slowest[2] == names.get(slow, "between_sd[b]")
    told = np.array([[True, True], [True, False]])  # b's average is that of s1 alone, and s2's own has no mean
    printed = Samples(("a", "b"), **draws, scale=np.ones(2), sites=sites, told=told).slowest()
    assert printed is not None
    assert (printed[0] > 1.1) == (slow in ("theta", "average", "by_rows"))
    config = parse({"job": {"method": "sparse", "rounds": "until"}, "data": {"clients": ["x"], "response": "y"}})
    trace = _Trace(draws | {"sites": np.stack(list(sites.values()), axis=2)})
    for mask, agreed in ((None, slowest), (told, printed)):
        model = SimpleNamespace(until=config.algorithm.until, told_by=lambda values: values)
        judge = run._judge(run.Data(model, {}, {}, scales=None, imputed={}, values=mask))  # type: ignore[arg-type]
        assert judge is not None
        assert judge(trace) == (agreed[0] <= 1.01 and agreed[1] >= 1000)


class _Trace(dict[str, Any]):
    def names(self) -> list[str]:
        return list(self)


def test_a_binary_response_has_a_slab_unless_a_job_says_no() -> None:
    def slab(**model: Any) -> Any:
        data = {"clients": ["x"], **({"response": "y"} if "kind" not in model else {})}
        return parse({"job": {"method": "sparse"}, "data": data, "model": model}).model.slab

    assert slab(family="bernoulli") == 2.5
    assert slab(family="bernoulli", slab=1.0) == 1.0
    assert slab(family="bernoulli", slab=np.inf) == np.inf
    assert slab() is None
    assert slab(kind="mrf") is None
    with refusal(JobError, "model.slab", "0"):
        slab(slab=0.0)


@pytest.mark.parametrize("slab", [None, np.inf])
def test_separation_at_one_site(tmp_path: Path, slab: float | None) -> None:
    sites = federation(silent=(), effect=1.0)
    for site in sites:
        site[:, 2] = site[:, 2] > 0
    sites[3][:, 2] = sites[3][:, 0] > 0
    model = {"family": "bernoulli"} | ({} if slab is None else {"slab": slab})
    found = fedkern.run(job(tmp_path, "a,b,y", sites, model=model))
    average, named = row(found, "average[a]"), [text for text in found.summary["notes"] if "set model.slab (2.5)" in text]
    if slab is None:
        assert average["mean"] < 4
        assert average["sd"] < 2
        assert not named
    else:
        assert average["rhat"] > 1.01
        assert found.converged is False
        assert named


@pytest.mark.parametrize("kind", ["regression", "mrf"])
def test_two_values_under_a_gaussian_model_are_named(tmp_path: Path, kind: str) -> None:
    short = {"job": {"method": "sparse", "rounds": 20}, "algorithm": {"burn_in": 5, "chains": 1}}
    sites = federation(silent=())
    for site in sites:
        site[:, 2] = 3.0 * (site[:, 2] > 0) - 1.0
    words = "no more than two different values at any client"
    if kind == "mrf":
        named = fedkern.run(job(tmp_path, "a,b,c", sites, model={"kind": "mrf"}, **short)).summary["notes"]
        assert [text for text in named if text.startswith("c: " + words)]
    else:
        named = fedkern.run(job(tmp_path, "a,b,y", sites, **short)).summary["notes"]
        (note,) = (text for text in named if words in text)
        assert note.startswith("y has ")
        assert 'family = "bernoulli"' in note
    sites[0][0, 2] = 0.5
    assert words not in str(fedkern.run(job(tmp_path, "a,b,y", sites, **short)).summary["notes"])


@pytest.mark.parametrize("law", ["laplace", "uniform", "normal"])
@pytest.mark.parametrize(
    "sections", [{}, {"model": {"centre": "sample"}}, {"output": {"largest": 3}}], ids=["mean", "drawn", "streams"]
)
def test_errors_that_are_not_laplace_are_named(tmp_path: Path, law: str, sections: dict[str, Any]) -> None:
    random, B = np.random.default_rng(6), np.array([[1.0, 0.0, 0.0], [-0.6, 1.0, 0.0], [0.0, 0.4, 1.0]])
    sites = [getattr(random, law)(size=(300, 3)) @ np.linalg.inv(B).T + 5.0 for _ in range(2)]
    short: dict[str, Any] = {"job": {"method": "sparse", "rounds": 150}, "algorithm": {"burn_in": 50, "chains": 2}, **sections}
    short["model"] = {"kind": "sem"} | sections.get("model", {})
    found = checked_and_run(job(tmp_path, "a,b,c", sites, **short), tmp_path / "out", wanted=("ErrorShape",))
    notes = [text for text in found.summary["notes"] if "not Laplace" in text]
    assert len(notes) == (law != "laplace")


def test_the_ratio_of_laplace_errors_and_its_error() -> None:
    random = np.random.default_rng(0)
    ratios = laplace_ratio(random.laplace(size=(4000, 400)))
    assert ratios.mean() == pytest.approx(LAPLACE, abs=0.002)
    assert ratios.std() * 20 == pytest.approx(SPREAD, rel=0.1)
    assert laplace_ratio(random.uniform(-1, 1, size=100_000)) == pytest.approx(np.sqrt(3) / 2, rel=1e-2)
    told = [ErrorShape(0, n, np.array(both)) for n, both in ((1000, [0.70, 0.8]), (10, [0.9, 0.3]))]
    assert [j for j, _ in departures(told)] == [1]


def test_a_cell_that_is_out_of_all_proportion_is_refused_by_client_and_column(tmp_path: Path) -> None:
    sites = federation(silent=())
    sites[1][4, 0] = 1e100
    with refusal(JobError, "s2", "a", "1e+10") as caught:
        fedkern.run(job(tmp_path, "a,b,y", sites), out=tmp_path / "out")
    assert "1e+100" not in str(caught.value)
    (line,) = (line for line in own(tmp_path / "out", "s2", "rows.json")["notes"] if "robust" in line)
    assert line.startswith("line 6, column 'a': 1e+100 is ")
