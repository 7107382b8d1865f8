"""A run against the posterior of another library: what is planted is found, first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from fedkern.models.expfam import Gaussian
from fedkern.results import against
from fedkern.results.gaussian import Posterior
from fedkern.results.released import Drawing, Drawn, Group, Normal
from support.arviz_groups import inference_data
from support.command import OPEN

SHIFT, NARROW = 0.3, 0.8


@pytest.fixture
def run(fedkern: Any, finished: Any) -> dict[str, tuple[float, float]]:
    """Means and sds of a finished run in `out`."""
    import fedkern as package

    return {row["parameter"]: (row["mean"], row["sd"]) for row in package.load(finished(OPEN)).rows()}


def reference(run: dict[str, tuple[float, float]], seed: int, **names: str) -> dict[str, np.ndarray]:
    """Independent draws of the run's own marginals; `worst radius` is shifted, `mean area` is too narrow."""
    random = np.random.default_rng(seed)
    found = {}
    for name, (mean, sd) in run.items():
        shifted, factor = SHIFT * (name == "theta[worst radius]"), NARROW if name == "theta[mean area]" else 1.0
        found[name] = mean + sd * (shifted + factor * random.normal(size=(4, 2000)))
    return found


def netcdf(path: str, posterior: dict[str, Any]) -> None:
    """As ArviZ writes it."""
    inference_data({"posterior": posterior}).to_netcdf(path)


def test_a_planted_shift_is_the_first_line_and_a_narrow_one_the_second(
    fedkern: Any, run: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = reference(run, seed)
    slopes = [name for name in run if name.startswith("theta[")]
    labels = [name[6:-1] for name in slopes]
    data = xarray.Dataset(
        {"theta": (("chain", "draw", "column"), np.stack([theirs[name] for name in slopes], axis=-1))}, {"column": labels}
    )
    data["intercept"] = (("chain", "draw"), theirs["intercept"])
    data.to_netcdf("reference.nc", group="posterior", engine="h5netcdf")
    ended = fedkern("report", "out", "--reference", "reference.nc", "--table", "csv")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split(",") for line in ended.out.splitlines()]
    assert lines[0] == list(against.HEAD)
    assert [line[0] for line in lines[1:3]] == ["theta[worst radius]", "theta[mean area]"]
    values = {line[0]: dict(zip(lines[0][1:], map(float, line[1:]))) for line in lines[1:]}
    assert values.keys() == run.keys()
    first, second = values["theta[worst radius]"], values["theta[mean area]"]
    assert first["shift"] == pytest.approx(-SHIFT, abs=0.06)
    assert first["distance"] == pytest.approx(SHIFT, abs=0.06)
    assert second["sd_ratio"] == pytest.approx(1 / NARROW, abs=0.06)
    distances = [float(line[1]) for line in lines[1:]]
    assert distances == sorted(distances, reverse=True)
    assert distances[2] < 0.1
    for name in values.keys() - {"theta[worst radius]", "theta[mean area]"}:
        assert abs(values[name]["shift"]) < 5 * values[name]["error"]
        assert values[name]["error"] == pytest.approx(1 / np.sqrt(8000), rel=0.25)
    page = Path("out/reference.html").read_text()
    assert page.count("<svg") == len(run)
    assert page.index("theta[worst radius]") < page.index("theta[mean area]")
    monkeypatch.setattr(against, "document", lambda *arguments: "")  # the same page, whose figures were drawn before
    printed = fedkern("report", "out", "--reference", "reference.nc").out.splitlines()
    assert printed[0].split()[0] == "parameter"
    assert printed[1].startswith("theta[worst radius]")


@pytest.mark.nightly
def test_other_names_are_matched_by_a_file(fedkern: Any, run: Any, seed: int) -> None:
    theirs = reference(run, seed)
    netcdf("stan.nc", {"alpha": theirs["intercept"], "beta": np.stack([theirs[n] for n in run if n != "intercept"], axis=-1)})
    ended = fedkern("report", "out", "--reference", "stan.nc")
    assert (ended.code, ended.out) == (2, "")
    assert "no name is the same; give --names FILE" in ended.err
    assert len(ended.err.splitlines()) == 1
    Path("names.toml").write_text('intercept = "alpha"\ntheta = "beta"\n')
    ended = fedkern("report", "out", "--reference", "stan.nc", "--names", "names.toml")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[1].startswith("theta[worst radius]")
    Path("names.toml").write_text('"theta[mean radius]" = "beta[0]"\n"theta[worst radius]" = "beta[20]"\n')
    ended = fedkern("report", "out", "--reference", "stan.nc", "--names", "names.toml", "--table", "csv")
    assert [line.split(",")[0] for line in ended.out.splitlines()] == ["parameter", "theta[worst radius]", "theta[mean radius]"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ('intercept = "gamma"', "stan.nc: has no parameter 'gamma' (there are alpha, beta[0], beta[1]"),
        ('age = "alpha"', "the run: has no parameter 'age'"),
        ('theta = "beta"', "stan.nc: 'beta' has 3 elements, and 'theta' of the run 30"),
        ("intercept = 3", "intercept is no text"),
        ("intercept", "names.toml: is no TOML"),
    ],
)
def test_wrong_names_and_shapes_are_one_sentence(fedkern: Any, run: Any, names: str, text: str) -> None:
    random = np.random.default_rng(1)
    netcdf("stan.nc", {"alpha": random.normal(size=(2, 50)), "beta": random.normal(size=(2, 50, 3))})
    Path("names.toml").write_text(names)
    ended = fedkern("report", "out", "--reference", "stan.nc", "--names", "names.toml")
    assert ended.code == 2
    assert text in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_reference_of_the_same_name_and_another_length_is_refused(fedkern: Any, run: Any) -> None:
    netcdf("other.nc", {"theta": np.random.default_rng(1).normal(size=(2, 50, 3))})
    ended = fedkern("report", "out", "--reference", "other.nc")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "other.nc: theta has 3 elements there, 30 in the run" in ended.err
    Path("text.nc").write_text("no netCDF")
    for name in ("text.nc", "missing.nc"):
        ended = fedkern("report", "out", "--reference", name)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert f"{name}: not a netCDF file" in ended.err


def test_distances_are_those_of_the_marginals() -> None:
    """Known ones of normals: a shift, and a scale, whose W1 is |1 - s| E|z|."""
    random = np.random.default_rng(5)
    z = random.normal(size=(4, 50_000))
    posterior = Posterior(("a", "b"), Gaussian(np.zeros(2), np.ones(2)))
    group = Group({"theta": (("chain", "draw", "column"), np.stack([z + 0.25, 1.5 * z], -1))}, {"column": ["a", "b"]})
    first, second = against.compare(posterior, Drawing(1, 1, 10), group, None, "x.nc")
    assert (first.name, second.name) == ("theta[b]", "theta[a]")
    assert first.distance == pytest.approx(0.5 * np.sqrt(2 / np.pi) / 1.5, abs=0.01)
    assert second.distance == pytest.approx(0.25, abs=0.01)
    assert (first.sd_ratio, second.shift) == pytest.approx((1 / 1.5, -0.25), abs=0.01)
    assert isinstance(first.ours, Normal)
    assert isinstance(first.theirs, Drawn)
