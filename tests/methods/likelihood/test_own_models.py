"""Jobs whose log-likelihoods are computed by packages of the holders: against quadrature and the built-in families, what is sent
again after a crash, and what a run over MPI says. What is refused is in `test_own_refused`."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedkern
from fedkern.algorithms.importance.settings import FIRST
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs import progress
from fedkern.methods.likelihood import show
from support.command import mpirun
from support.interrupted import Crash, run
from support.own_package import JOB, MODULE, PRIORS, SCHOOLS, SMALL, job, package  # noqa: F401  # a fixture


@cache
def quadrature() -> dict[str, tuple[float, float]]:
    """Mean and sd of mu, tau and log tau, on a grid that leaves 1e-3 of nothing out."""
    y, s = np.array([*SCHOOLS.values()]).T
    mu, t = np.linspace(-35, 35, 1401)[:, np.newaxis], np.linspace(-16, 8, 2401)
    tau = np.exp(t)
    log = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, scale=5) + t
    for one, error in zip(y, s):
        log = log + stats.norm.logpdf(one, mu, np.sqrt(error**2 + tau**2))
    w = np.exp(log - log.max())
    w /= w.sum()
    found = {}
    for name, x in {"mu": mu + 0 * t, "tau": tau + 0 * mu, "log tau": t + 0 * mu}.items():
        mean = float((w * x).sum())
        found[name] = (mean, float(np.sqrt((w * (x - mean) ** 2).sum())))
    return found


def test_the_quadrature_is_that_of_the_specification() -> None:
    wanted = {"mu": (4.397, 3.318), "tau": (3.598, 3.220), "log tau": (0.802, 1.171)}
    for name, both in quadrature().items():
        assert both == pytest.approx(wanted[name], abs=1.5e-3), name


def test_the_plainest_program_runs(tmp_path: Path) -> None:
    assert fedkern.run(job(tmp_path, "of_logits", "", 2)).converged is True


@pytest.mark.parametrize("factory", ["in_jax", "in_stan", "in_numpyro", "plain"])
def test_eight_schools_are_as_by_quadrature(factory: str, tmp_path: Path) -> None:
    """One school a client, where that takes no time; the model in NumPyro has its own prior."""
    result = fedkern.run(job(tmp_path, factory, "" if factory == "in_numpyro" else PRIORS, 2 if factory == "in_numpyro" else 8))
    assert result.converged is True
    effective = float(result.summary["ess"])
    for name, (mean, sd) in quadrature().items():
        if name == "log tau":
            continue
        found = result.parameters[name]
        error = sd / effective**0.5
        assert abs(found["mean"] - mean) < 4 * error, name
        assert abs(found["sd"] - sd) < 4 * error * (1.5 if name == "tau" else 1), name  # tau has a heavy tail
    assert result.summary["own"]["coordinates"]["mu"] == "mu"
    assert any(note.startswith("one mode from 4 starts") for note in result.summary["notes"])


def test_all_ways_to_write_a_model_are_one_model(tmp_path: Path) -> None:
    """The same points, the same values: what is left are differences in rounding and of derivatives."""
    found = [fedkern.run(job(tmp_path / name, name)).parameters for name in ("in_jax", "in_stan", "plain")]
    for other in found[1:]:
        for name in ("mu", "tau"):
            assert other[name]["mean"] == pytest.approx(found[0][name]["mean"], abs=2e-3)
            assert other[name]["sd"] == pytest.approx(found[0][name]["sd"], abs=2e-3)


CHAINS = '[algorithm]\nsampler = "hmc"\n'


@pytest.mark.parametrize(
    "factory", ["plain", *(pytest.param(f, marks=pytest.mark.nightly) for f in ("in_jax", "with_local", "by_hand"))]
)
def test_chains_are_as_by_quadrature(factory: str, tmp_path: Path) -> None:
    """From the mode; and with a number of each school's own, which is sampled with all else and stays at its client."""
    local = factory in ("with_local", "by_hand")
    more = ("local = true\n" if local else "") + ("" if factory == "with_local" else PRIORS)
    path = job(tmp_path, factory, f"{more}\n{CHAINS}", 2)
    rounds = 4000 if local else 400 if factory == "plain" else 1000
    result = fedkern.run(path, out=tmp_path / "out", job={"rounds": rounds})
    assert result.converged is True or factory == "plain", result.summary["verdict"]
    for name, (mean, sd) in quadrature().items():
        if name != "log tau":
            found = result.parameters[name]
            assert abs(found["mean"] - mean) < 4 * sd / found["ess"] ** 0.5, name
    kept = tmp_path / "out" / "client-a" / "local.csv"
    assert kept.exists() == local
    if local:
        assert list(pd.read_csv(kept).columns) == ["unknown", "mean", "sd", "q025", "q500", "q975"]


def test_local_unknowns_go_on_for_a_while(tmp_path: Path) -> None:
    path = job(tmp_path, "with_local", f"local = true\n{CHAINS}burn_in = 5\n[output]\nchains = 2\n")
    result = fedkern.run(path, out=tmp_path / "out", job={"rounds": 12})
    assert result.converged is False
    assert set(result.parameters) == {"mu", "tau"}
    assert len(pd.read_csv(tmp_path / "out" / "client-b" / "local.csv")) == 4
    assert "eta" not in (tmp_path / "out" / "summary.json").read_text()
    assert "tau" in str(result)
    assert "rounds to the mode" not in "\n".join(show.describe_run(result.summary, "over"))  # there is none


COX = """
[job]
method = "likelihood"
seed = 5
[data]
clients = ["rows/*.csv"]
standardise = "none"
time = "months"
event = "died"
[model]
family = "cox"
[algorithm]
points = 1024
effective = 400
"""
OWN_COX = """
[job]
method = "likelihood"
seed = 5
[data]
clients = ["rows/*.csv"]
[model]
kind = "own"
factory = "own_models_of_tests:cox"
options = {kernel = KERNEL}
[model.priors]
age = {kind = "normal", sd = 2.5}
dose = {kind = "normal", sd = 2.5}
[algorithm]
points = 1024
effective = 400
starts = 1
"""


def patients(folder: Path) -> None:
    """Of two hospitals, whose months are tied."""
    (folder / "rows").mkdir(parents=True)
    rng = np.random.default_rng(2)
    for name in ("ada", "bo"):
        x = rng.standard_normal((120, 2))
        life, seen = rng.exponential(size=120) / (0.03 * np.exp(x @ [0.6, -0.5])), rng.exponential(60, 120)
        months = np.ceil(np.minimum(life, seen))
        frame = pd.DataFrame({"age": x[:, 0], "dose": x[:, 1], "months": months, "died": (life <= seen).astype(int)})
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)


@pytest.mark.parametrize("kernel", [True, False])
def test_cox_as_an_own_model_is_the_built_in_family(kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same kernel the points and the posterior are the same; by its definition, from values alone, up to differences.

    An own model's first round of draws is one question; of a regression it is asked net by net, but for here.
    """
    monkeypatch.setattr("fedkern.methods.likelihood.model.net_of", lambda size: FIRST)
    patients(tmp_path)
    (tmp_path / "cox.toml").write_text(COX)
    (tmp_path / "own.toml").write_text(OWN_COX.replace("KERNEL", str(kernel).lower()))
    built_in, own = fedkern.run(tmp_path / "cox.toml"), fedkern.run(tmp_path / "own.toml")
    assert own.converged is built_in.converged is True
    for name in ("age", "dose"):
        mine, theirs = own.parameters[name], built_in.parameters[f"theta[{name}]"]
        for number in ("mean", "sd", "q025", "q975"):
            assert mine[number] == pytest.approx(theirs[number], abs=1e-12 if kernel else 1e-3 * theirs["sd"]), (name, number)
    with pytest.raises(JobError, match="same_rows=True"):
        own.compare(own)
    assert own.compare(own, same_rows=True)["log_bayes_factor"] == 0
    mine, theirs = (one.summary["log_evidence"]["value"] for one in (own, built_in))
    assert mine == pytest.approx(theirs, abs=1e-9 if kernel else 1e-3)


def test_two_modes_are_both_found_from_draws_of_the_prior(tmp_path: Path) -> None:
    """Hills at 8 and -8, the second half as high: 1/3 of the posterior, but for the prior, which is flat there. From one start
    only one is found: k-hat says nothing then, and the note does."""
    priors = '[model.priors]\na = {kind = "normal", sd = 30.0}\n'
    path = job(tmp_path, "two_hills", priors)
    both = fedkern.run(path, algorithm={"starts": 8})
    assert (both.summary["modes"], both.summary["starts"]) == (2, 8)
    assert any("2 modes from 8 starts" in note for note in both.summary["notes"])
    # each of two clients has both hills: the product has them, with a quarter, and nothing between
    weight = 1 / (1 + 0.25)
    assert both.parameters["a"]["mean"] == pytest.approx(8 * weight - 8 * (1 - weight), abs=0.15)
    assert both.parameters["a"]["sd"] == pytest.approx(16 * (weight * (1 - weight)) ** 0.5, rel=0.03)
    one = fedkern.run(path, algorithm={"starts": 1}, job={"seed": 1})
    assert one.summary["modes"] == 1
    assert any("one mode from 1 start" in note for note in one.summary["notes"])


@pytest.mark.parametrize("d", [2, 3])
def test_correlations_have_the_posterior_of_quadrature(d: int, tmp_path: Path) -> None:
    """Of standard normal columns, with det(R)^(eta - 1) as the prior: on a grid of the correlations themselves."""
    true = np.array([[1.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 1.0]])[:d, :d]
    x = np.random.default_rng(3).multivariate_normal(np.zeros(d), true, 60)
    job(tmp_path, "correlated")
    for file in (tmp_path / "rows").glob("*.csv"):
        file.unlink()
    for name, rows in (("a", x[:25]), ("b", x[25:])):
        pd.DataFrame(rows, columns=[f"x{k}" for k in range(d)]).to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    prior = f'[model.priors]\nR = {{kind = "lkj", eta = 2.0, size = {d}}}\n'
    (tmp_path / "job.toml").write_text(JOB.format("correlated") + prior)
    result = fedkern.run(tmp_path / "job.toml")
    assert result.converged is True
    pairs = [(i, k) for i in range(d) for k in range(i)]
    grid = np.stack(np.meshgrid(*[np.linspace(-0.99, 0.99, 199 if d == 2 else 100)] * len(pairs), indexing="ij"), axis=-1)
    grid = grid.reshape(-1, len(pairs))
    R = np.tile(np.eye(d), (len(grid), 1, 1))
    for e, (i, k) in enumerate(pairs):
        R[:, i, k] = R[:, k, i] = grid[:, e]
    good = np.linalg.eigvalsh(R)[:, 0] > 1e-6
    grid, R = grid[good], R[good]
    log = (2.0 - 1 - 0.5 * len(x)) * np.linalg.slogdet(R)[1] - 0.5 * np.einsum("sij,ji->s", np.linalg.inv(R), x.T @ x)
    w = np.exp(log - log.max())
    w /= w.sum()
    for e, (i, k) in enumerate(pairs):
        found, mean = result.parameters[f"R[{i + 1},{k + 1}]"], float(w @ grid[:, e])
        sd = float(np.sqrt(w @ (grid[:, e] - mean) ** 2))
        assert found["mean"] == pytest.approx(mean, abs=0.05 * sd)
        assert found["sd"] == pytest.approx(sd, rel=0.03)


@pytest.mark.parametrize("kept", [True, False])
def test_answers_are_sent_again_and_never_computed_anew(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends after its seventh message, and goes on. (Without the outbox questions are asked twice: the control.)"""
    from fedkern.methods.likelihood.keys import Config

    counted = import_module(MODULE).Counted
    counted.ASKED.clear()
    if not kept:
        monkeypatch.setattr(Config, "answers_once", False)
    path = job(tmp_path, "counted")
    with pytest.raises(Crash):
        run(path, tmp_path / "out", crash=7)
    before = len(counted.ASKED)
    result = run(path, tmp_path / "out", resume=True)
    assert before > 4
    assert len(counted.ASKED) > before
    assert result.converged is True
    assert (len(set(counted.ASKED)) == len(counted.ASKED)) == kept


@pytest.mark.parametrize("every", [60.0, 1e-3])
def test_chains_that_go_on_are_the_same_chains(every: float, tmp_path: Path) -> None:
    """Of answers that are sent again each has its draws since the one before, from the start or from a checkpoint on."""
    path = job(tmp_path, "by_hand", f"local = true\n{PRIORS}\n{CHAINS}checkpoint_every = {every}\n[output]\nchains = 2\n")
    path.write_text(path.read_text().replace("seed = 3", "seed = 3\nrounds = 30"))
    whole = run(path, tmp_path / "whole")
    counts = []
    for k, crash in enumerate((60, 101)):
        with pytest.raises(Crash):
            run(path, tmp_path / f"out-{k}", crash=crash)
        outbox = tmp_path / f"out-{k}" / "client-a" / "outbox"
        counts.append(sum(file.stat().st_size for file in outbox.glob("hmc-*.log")))
        assert run(path, tmp_path / f"out-{k}", resume=True).summary["digest"] == whole.summary["digest"]
        own = [(tmp_path / out / "client-a" / "local.csv").read_text() for out in (f"out-{k}", "whole")]
        assert own[0] == own[1]
    assert every < 1 or counts[1] < 2.5 * counts[0]


def test_a_resumed_run_has_the_same_package(tmp_path: Path, package: Path) -> None:  # noqa: F811
    path = job(tmp_path, "plain")
    with pytest.raises(Crash):
        run(path, tmp_path / "out", crash=5)
    metadata = package / f"{MODULE}-1.2.dist-info" / "METADATA"
    text = metadata.read_text()
    metadata.write_text(text.replace("1.2", "1.3"))
    try:
        with pytest.raises(JobError, match=r"the package of own_models_of_tests:plain is now own-models-of-tests 1\.3"):
            run(path, tmp_path / "out", resume=True)
    finally:
        metadata.write_text(text)
    assert run(path, tmp_path / "out", resume=True).converged is True


def test_sites_and_without_need_values_alone(tmp_path: Path) -> None:
    path = job(tmp_path, "plain", PRIORS + "[output]\nsites = true\nwithout = true\n")
    result = fedkern.run(path)
    assert set(result.summary["sites"]) == {"a", "b"}
    own = result.summary["sites"]["a"]
    assert set(own) == {"mu", "tau"}
    y, s = np.array([*SCHOOLS.values()])[::2].T
    # its mode in the coordinates: mu and log tau
    grid = np.stack(np.meshgrid(np.linspace(0, 12, 601), np.linspace(-8, 4, 601)), axis=-1).reshape(-1, 2)
    log = stats.norm.logpdf(grid[:, 0], 0, 5) + stats.halfcauchy.logpdf(np.exp(grid[:, 1]), scale=5) + grid[:, 1]
    for one, error in zip(y, s):
        log = log + stats.norm.logpdf(one, grid[:, 0], np.sqrt(error**2 + np.exp(2 * grid[:, 1])))
    mu, log_tau = grid[np.argmax(log)]
    assert own["mu"]["mode"] == pytest.approx(mu, abs=0.05)
    assert own["tau"]["mode"] == pytest.approx(np.exp(log_tau), rel=0.05)
    assert set(result.summary["without"]) == {"a", "b"}


@pytest.mark.parametrize("ranks", [3])
@pytest.mark.nightly
def test_over_mpi_it_is_the_same_to_the_last_bit(ranks: int, tmp_path: Path, package: Path) -> None:  # noqa: F811
    path = job(tmp_path, "plain")
    alone = fedkern.run(path)
    ended = mpirun(ranks, "run", path, "--out", tmp_path / "out", before=package)
    assert ended.code == 0, ended.err
    assert fedkern.load(tmp_path / "out").summary["digest"] == alone.summary["digest"]


@pytest.mark.usefixtures("undrawn")
def test_a_holder_sees_what_is_said_and_looks_through_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(tmp_path, "plain")
    assert main(["check", "--verbose", str(path)]) == 0
    said = capsys.readouterr().out
    assert 'the log-likelihood that "own_models_of_tests:plain" computes' in said
    assert "points travel as log tau" in said
    assert "nobody but the holder can judge" in said
    assert "tell was not tried, and may be all rows, of whatever number of rows" in said
    assert "no more in any way that was tried" not in said
    assert main(["check", str(path), "--local", str(tmp_path / "rows" / "a.csv")]) == 0
    assert "(own-models-of-tests 1.2) has the parameters mu, tau" in capsys.readouterr().out
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 0
    assert re.search(r"tau +\d", capsys.readouterr().out)
    assert main(["report", str(tmp_path / "out")]) == 0
    assert "Parameters" in (tmp_path / "out" / "report.html").read_text()
    assert main(["predict", str(tmp_path / "out"), str(tmp_path / "rows" / "a.csv")]) == 2
    assert "foresee rows by the package itself" in capsys.readouterr().err


def test_progress_says_who_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.2)
    more = PRIORS.replace("[model.priors]", "options = {seconds = 0.05}\n[model.priors]") + SMALL
    fedkern.run(job(tmp_path, "slow", more), progress=True)
    said = capsys.readouterr().err
    assert "fedkern: waits for 'a' (" in said
    assert "waits for 'b'" not in said
