"""What ArviZ makes of every method's result: summaries and plots of the generation that is installed, and of arviz-plots."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

import fedkern
from fedkern.cli.__main__ import main

# What `fedkern simulate` calls it -> keys of a short run
KINDS: dict[str, dict[str, Any]] = {
    "logistic": {"job": {"rounds": 2}},
    "mrf": {"job": {"rounds": 30}, "algorithm": {"burn_in": 10}},
    "vertical": {"job": {"rounds": 12}},
    "sigma": {"job": {"rounds": 12}},
}


SMALL = ("--clients", "2", "--rows", "40", "--columns", "3")


@pytest.fixture(params=KINDS)
def run(request: Any, tmp_path: Path) -> Path:
    """The folder of a finished run."""
    job = tmp_path / "job"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["simulate", request.param, "--out", str(job), *SMALL]) == 0
        if request.param == "sigma":
            assert main(["sigma", "build", str(job / "prior.toml"), "--out", str(job / "prior")]) == 0
    fedkern.run(job / "job.toml", out=tmp_path / "run", **KINDS[request.param])
    return tmp_path / "run"


@pytest.mark.filterwarnings("ignore")  # theirs
def test_arviz_summarises_and_plots_it(run: Path) -> None:
    matplotlib.use("agg")
    import arviz
    import arviz_plots
    import xarray

    draws = fedkern.load(run).to_arviz()
    posterior = draws["posterior"]
    names = list(posterior.data_vars)
    assert len(arviz.summary(draws)) == sum(posterior[name][0, 0].size for name in names)
    with xarray.open_datatree(run / "posterior.nc", engine="h5netcdf") as stored:
        assert list(stored.posterior.data_vars) == names
        for plots, of in ((arviz, draws), (arviz_plots, stored)):
            plots.plot_forest(of, var_names=names[:3])
        arviz_plots.plot_dist(stored, var_names=names[:1])
        if arviz.__version__.startswith("0."):
            arviz.plot_dist(posterior[names[0]].values)
        else:
            arviz.plot_dist(draws, var_names=names[:1])
    plt.close("all")
    assert "log_likelihood" not in draws  # no row's own number reaches the server, so that `loo` is the job's, not ArviZ's
