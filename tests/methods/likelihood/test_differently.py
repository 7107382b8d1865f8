"""What a result says of other priors and of fewer clients, against jobs that are really run so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli import report
from fedkern.errors import JobError
from fedkern.results import heterogeneity, plots
from support.found import ids
from support.found import said as found_of

JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 5},
    "data": {"response": "y"},
    "model": {"family": "poisson"},
    "algorithm": {"points": 1024, "effective": 400.0},
}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(6), {}
    for name, shift in zip("abcd", (0.0, 0.1, -0.1, 0.3)):
        x = rng.normal(size=60).round(4)
        found[name] = pd.DataFrame({"x": x, "y": rng.poisson(np.exp(0.5 + (0.3 + shift) * x))})
    return found


def declared(prior_sd: float = 2.5, **more: Any) -> dict[str, Any]:
    """With constants and centre that do not depend on who takes part."""
    data = {"response": "y", "standardise": "public", "columns": {"x": {"center": 0.0, "scale": 1.0}}}
    return JOB | {"data": data, "model": JOB["model"] | {"intercept_centre": 0.5, "prior_sd": prior_sd}} | more


@pytest.mark.nightly
def test_without_a_client_is_the_job_that_is_run_without_it(frames: dict[str, pd.DataFrame]) -> None:
    many = {"algorithm": {"points": 4096, "effective": 2000.0}}
    found = fedkern.run(declared(output={"without": True}, **many), data=frames)
    known = {name: said for name, said in found.summary["without"].items() if said["known"]}
    assert len(known) >= 2
    for name, said in found.summary["without"].items():
        if name not in known:  # and then nothing is said but that
            assert "parameters" not in said
            assert said["why"]
            continue
        really = fedkern.run(declared(), data={other: frame for other, frame in frames.items() if other != name})
        for parameter, row in said["parameters"].items():
            own = really.parameters[parameter]
            error = 4 * own["sd"] / np.sqrt(said["ess"])
            assert row["mean"] == pytest.approx(own["mean"], abs=error), (name, parameter)
            assert row["sd"] == pytest.approx(own["sd"], rel=4 / np.sqrt(2 * said["ess"])), (name, parameter)
            shift = (own["mean"] - found.parameters[parameter]["mean"]) / found.parameters[parameter]["sd"]
            assert row["shift"] == pytest.approx(shift, abs=0.25)


def test_a_figure_shows_the_result_without_each_client(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    many = {"algorithm": {"points": 4096, "effective": 2000.0}}
    found = fedkern.run(declared(output={"without": True}, **many), data=frames, out=tmp_path / "out")
    left = {name: dict(one) for name, one in found.summary["without"].items()}
    left["c"] = {"known": False, "why": "its weights are not to be trusted"}
    drawn = plots.without(left, found.parameters)
    assert drawn is not None
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.get_visible()] == ["intercept", "theta[x]"]
    (first, second, *_) = drawn.axes
    assert [text.get_text() for text in first.get_yticklabels()] == [f"without {name}" for name in frames] + ["all"]
    assert [text.get_text() for text in second.texts] == ["not known"]
    lines = {tuple(line.get_ydata()): line.get_xdata() for line in second.lines if len(line.get_xdata()) == 2}
    assert tuple(lines[3, 3]) == tuple(left["d"]["parameters"]["theta[x]"][key] for key in ("q025", "q975"))
    assert tuple(lines[4, 4]) == tuple(found.parameters["theta[x]"][key] for key in ("q025", "q975"))
    assert plots.without({"a": left["c"]}, found.parameters) is None
    page = report.write(tmp_path / "out").read_text()
    section = page[page.index("Without a client") :]
    assert "<svg" in section[: section.index("</table>")]
    assert "whose mean is the dashed line" in section


def test_single_clients_are_in_no_result_that_did_not_ask(frames: dict[str, pd.DataFrame]) -> None:
    assert "without" not in fedkern.run(JOB, data=frames).summary


def test_a_narrow_prior_is_told_by_the_draws_that_it_made(frames: dict[str, pd.DataFrame]) -> None:
    narrow = fedkern.run(declared(prior_sd=0.03), data=frames).summary["sensitivity"]["theta[x]"]
    wide = fedkern.run(declared(), data=frames).summary["sensitivity"]["theta[x]"]
    assert narrow["mark"]
    assert narrow["prior"] > 0.05 > wide["prior"]
    assert wide["likelihood"] > 0.05
    assert not wide["mark"]


@pytest.mark.parametrize(("policy", "allowed"), [("values = true\n", True), ("", False)])
def test_a_policy_says_whether_single_clients_may_be_told(
    policy: str, allowed: bool, frames: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    for name, frame in frames.items():
        frame.to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    (tmp_path / "rows" / "fedkern-policy.toml").write_text(
        f'open = true\n[data.others]\nvalues = true\npaths = ["a.csv", "c.csv", "d.csv"]\n[data.b]\n{policy}paths = ["b.csv"]\n'
    )
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\n[model]\nfamily = "poisson"\n'
        "[algorithm]\npoints = 256\neffective = 100\n"
    )
    summary = fedkern.run(tmp_path / "job.toml").summary
    assert not {"without", "sites"} & summary.keys()  # whatever the policy says
    if allowed:
        summary = fedkern.run(tmp_path / "job.toml", output={"without": True, "sites": True}).summary
        assert "b" in summary["without"]
        assert "b" in summary["sites"]
        return
    for key in ("without", "sites"):
        with pytest.raises(JobError, match=rf"output\.{key} .* ask the holder to allow that on these data \(values = true\)"):
            fedkern.run(tmp_path / "job.toml", output={key: True})


def sites(*, levels: float = 0.0, flipped: bool = False) -> dict[str, pd.DataFrame]:
    """Four, of which those with more of `dose` have a lower level by `levels`, or of which one has its response the other way."""
    frames = {}
    for k, name in enumerate("abcd"):
        rng = np.random.default_rng([7, k])
        dose, age = rng.normal(k, 0.5, 200), rng.normal(60, 9, 200)
        y = (rng.random(200) < 1 / (1 + np.exp(-(dose - k) * 1.5 + levels * (k - 1.5)))).astype(int)
        frames[name] = pd.DataFrame({"dose": dose, "age": age, "y": 1 - y if flipped and k == 3 else y})
    return frames


def differing(result: fedkern.Result) -> str:
    return " ".join(note for note in result.summary["notes"] if "differ by more than chance" in note)


def test_sites_that_differ_are_said_and_the_advice_is_right() -> None:
    """Between sites the dose seems to harm, within each it does not."""
    few = {"points": 256, "effective": 100}  # what is said of sites follows from effects that are many of their sds
    job = {"job": {"method": "likelihood"}, "data": {"response": "y", "least_rows": 1}, "algorithm": few}
    wrong = fedkern.run(job, data=sites(levels=2.5))
    assert wrong.parameters["theta[dose]"]["mean"] < 0
    assert "in their intercepts" in differing(wrong)
    assert "set [model.random] client = true" in differing(wrong)
    right = fedkern.run(job, data=sites(levels=2.5), model={"random": {"client": True}})
    assert right.parameters["theta[dose]"]["q025"] > 0.3
    assert "intercepts" not in differing(right)
    more = {"points": 1024}  # of an sd of four effects that hardly differ, two rounds, to which 256 points double, are too few
    turned = fedkern.run(job, data=sites(flipped=True), model={"random": {"client": True}}, algorithm=more)
    assert turned.converged
    assert "in their slopes" in differing(turned)
    assert "theta[dose]" in differing(turned) or "dose" in differing(turned)
    own = fedkern.run(job, data=sites(flipped=True), model={"random": {"client": True, "client_slopes": ["dose"]}})
    assert differing(own) == ""


def test_levels_that_differ_are_no_slopes_of_clients() -> None:
    frames = {}
    for k, name in enumerate("abcd"):
        rng = np.random.default_rng([8, k])
        sex, age = rng.choice(["f", "m"], 200), rng.normal(60, 9, 200)
        frames[name] = pd.DataFrame({"sex": sex, "age": age, "y": 3.0 * (sex == "m") * (-1) ** k + rng.normal(size=200)})
    job = {
        "job": {"method": "likelihood"},
        "model": {"family": "gaussian", "random": {"client": True}},
        "data": {"response": "y"},
    }
    (found,) = found_of(fedkern.run(job, data=frames), "sites-differ")
    assert found["remedies"] == ["sites-apart"]


def test_a_slope_is_named_where_none_differs_by_itself() -> None:
    slopes, test = {"x": heterogeneity.Test(9.0, 3), "z": heterogeneity.Test(2.0, 3)}, heterogeneity.Test(90.0, 6)
    (note,) = heterogeneity.Heterogeneity(test, None, slopes, ()).notes("client-effects", ("x", "z"))
    assert "client_slopes = ['x']" in note


@pytest.mark.parametrize("effects", [{}, {"random": {"client": True}}])
def test_levels_of_clients_with_effects_are_the_models(effects: dict[str, Any]) -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(3, 60))
    clients = {name: {"x": x[k], "y": 60.0 + 10.0 * k + x[k] + random.normal(size=60)} for k, name in enumerate("abc")}
    job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian", **effects}, "data": {"response": "y"}}
    assert ("column-elsewhere" in ids(fedkern.run(job, data=clients))) is not bool(effects)


def test_sites_that_do_not_differ_are_not_slandered() -> None:
    job = {"job": {"method": "likelihood"}, "data": {"response": "y", "least_rows": 1}}
    result = fedkern.run(job, data={name: frame.assign(dose=frame.dose - k) for k, (name, frame) in enumerate(sites().items())})
    assert differing(result) == ""
    assert result.summary["heterogeneity"]["slopes"]["p"] > 0.01


def seem_to_differ(random: np.random.Generator, other: float = 0.0) -> bool:
    """Whether four sites seem to differ, whose errors vary with a column; one has a slope that is another by `other` errors."""
    h, P = [], []
    for k in range(4):
        x = random.lognormal(0, 0.3, 60)
        X = np.column_stack([np.ones(60), x])
        y = 1 + 0.5 * x + (0.4 * x if not other else 1.0) * random.normal(size=60)
        squares = X.T @ X
        b = np.linalg.solve(squares, X.T @ y)
        variance = ((y - X @ b) ** 2).sum() / 58
        b[1] += other * np.sqrt(variance * np.linalg.inv(squares)[1, 1]) * (k == 3)
        P.append(squares / variance)
        h.append(P[-1] @ b)
    found = heterogeneity.compare_sites(["intercept", "x"], True, np.array(h), np.array(P))
    assert found is not None
    return any(found.notes("client-effects"))


def test_sites_are_not_said_to_differ_where_errors_vary_with_a_column_and_are_where_a_slope_is_another() -> None:
    random = np.random.default_rng(4)
    assert sum(seem_to_differ(random) for _ in range(300)) <= 3
    assert sum(seem_to_differ(random, 10.0) for _ in range(100)) >= 95


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_column_far_from_0_makes_no_sites_differ(seed: int) -> None:
    """A year, a coordinate, as it is: about 0 the coefficients are lost in a column's centre, and p was 0."""
    rng = np.random.default_rng(seed)
    site, x, z = rng.integers(3, size=3000), 1e5 + 10 * rng.normal(size=3000), rng.normal(size=3000)
    whole = pd.DataFrame({"x": x, "z": z, "y": 0.05 * (x - 1e5) + 0.3 * z + rng.normal(size=3000)})
    job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}, "data": {"response": "y", "standardise": "none"}}
    found = fedkern.run(job, data={name: whole[site == k] for k, name in enumerate("abc")})
    assert found.converged
    assert found.summary["heterogeneity"]["slopes"]["p"] > 0.01
    assert "sites-differ" not in ids(found)
