"""A spatial fit that has settled is `true` where importance weights say that q is the posterior, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import evolve
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.api import check_job, perform
from fedkern.errors import JobError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.sigma import publish, weights
from fedkern.methods.sigma import run as sigma_run
from fedkern.results.verdict import with_weights
from fedkern.transports.inprocess import InProcess
from oracles.differences import four_point
from support import built_priors
from support import sigma_artifacts as artifacts
from support.refusal import refusal
from support.wires import compare, ledgers

KNOWN = {"phi": 0.8, "scale": 0.5, "spatial_scale": 1.0}
JOB = """
[job]
method = "sigma"
seed = 3
rounds = "until"
[data]
clients = ["rows/*.csv"]
area = "district"
response = "y"
[model]
prior = "prior"
family = "gaussian"
phi = 0.8
scale = 0.5
spatial_scale = 1.0
"""


def job(folder: Path) -> Path:
    """A Gaussian response on a small map, all scales known: the posterior of the global unknowns is Gaussian."""
    built_priors.written(folder)
    random = np.random.default_rng(4)
    (folder / "rows").mkdir()
    for name, d in zip(artifacts.NAMES, artifacts.SIZES):
        rows = [f"{name}-{i},{2 + 0.5 * x + random.normal():.4f},{x:.4f}" for i in range(d) for x in [random.normal()]]
        (folder / "rows" / f"{name}.csv").write_text("district,y,x\n" + "\n".join(rows) + "\n")
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


class Ran:
    """A job that has run, with the states of its parties."""

    def __init__(self, path: Path, patched: pytest.MonkeyPatch, *sets: str, out: Path | None = None) -> None:
        fitted = sigma_run._fitted

        def kept(run: Any, model: Any, sites: Any, ridge: Any) -> Any:
            self.run, self.model, self.sites = run, model, sites
            self.server, self.clients, self.settled = ended = fitted(run, model, sites, ridge)
            return ended

        patched.setattr(sigma_run, "_fitted", kept)
        config, folder = load(path, sets)
        self.result = perform(InProcess(), config, folder, Output(out, quiet=True))

    def again(self, parameters: np.ndarray) -> Any:
        """What the weights say of another q."""
        server = evolve(self.server, parameters=parameters)
        clients = {k: evolve(one, fitted=parameters) for k, one in self.clients.items()}
        return weights.exchange_terms(self.run, self.model, server, clients, self.settled)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("gaussian")
    path = job(folder)
    with pytest.MonkeyPatch.context() as patched:
        return path, Ran(path, patched, out=folder / "run")


def test_a_gaussian_posterior_is_reached_and_said_to_be_right(ran):
    path, found = ran
    assert found.result.converged is True
    assert [check["id"] for check in found.result.summary["checks"]] == ["weights-agree"]
    compare("\n".join(check_job(InProcess(), *load(path)) or []), ledgers(path.parent / "run"))
    sent = [json.loads(line)["kind"] for line in (path.parent / "run" / "ledger" / "east.jsonl").read_text().splitlines()]
    assert sent.count("LogTerms") == 1
    assert found.result.summary["sigma"]["weights"]["agrees"] is True


def test_it_is_the_exact_posterior(ran):
    """log p(xi, y) is quadratic: its top and curvature by differences of its slopes."""
    found = ran[1]
    sites, prior = found.sites.values(), found.model.prior

    def slope(xi: np.ndarray) -> np.ndarray:
        return prior.log_prior_grad(xi)[1] + sum(site.log_joint_grad(xi, np.zeros(0))[1] for site in sites)

    P = prior.size
    H = np.array([four_point(lambda x, i=i: slope(x)[i], np.zeros(P)) for i in range(P)])
    mean, sd = np.linalg.solve(-H, slope(np.zeros(P))), np.sqrt(np.diag(np.linalg.inv(-H)))
    got, cov = sfvi.posterior_moments(found.server)
    assert np.abs((got - mean) / sd).max() < 0.02
    assert np.abs(np.sqrt(np.diag(cov)) / sd - 1).max() < 0.01


@pytest.mark.parametrize("which", ["all", "slope"])
def test_negative_control_a_q_that_is_too_narrow_is_not_right(ran, which):
    """By 30 % in all unknowns, where the weights' tail says so; by 20 % in one, where k-hat is below its limit and sds say so."""
    found = ran[1]
    block, q = found.server.q
    mean, cov = block.moments(q)
    factor = np.full(len(mean), 0.7 if which == "all" else 1.0)
    factor[-1] = 0.7 if which == "all" else 0.8
    said = found.again(block.at(mean, cov * np.outer(factor, factor)))
    assert not said.agrees
    if which == "all":
        assert not said.reliable
    else:
        assert said.k_hat < 0.7
        assert said.sd[-1] > 0.15
        judged = with_weights(publish.settled(found.model, found.server, found.settled), said)
        assert judged.converged is False
        (narrow,) = (check.found for check in judged.checks if check.word is False)
        assert (narrow.id, narrow.values["names"]) == ("narrow-by-weights", [said.names[-1]])
        assert 'algorithm.inference = "nested"' in judged.why


def test_negative_control_a_q_that_is_beside_it_is_not_right(ran):
    found = ran[1]
    block, q = found.server.q
    mean, cov = block.moments(q)
    at = publish.unknowns(found.model).index("intercept")
    mean[at] += 0.5 * np.sqrt(cov[at, at])
    said = found.again(block.at(mean, cov))
    assert not said.agrees
    assert said.mean[at] < -0.2


@pytest.mark.nightly
def test_nobody_is_asked_where_something_moves_or_the_job_does_not_want_it(ran, tmp_path):
    path = ran[0]
    fitted = "algorithm.inference=sfvi"  # with neither key of it a nested fit would be the default
    for sets, word in ((["job.rounds=60"], False), (["output.bound=false"], "settled"), (["output.reweigh=false"], "settled")):
        config, folder = load(path, [*sets, fitted])
        out = tmp_path / sets[0]
        result = perform(InProcess(), config, folder, Output(out, quiet=True))
        assert result.converged == word
        assert '"LogTerms"' not in (out / "ledger" / "east.jsonl").read_text()
        assert "weights" not in result.summary["sigma"]
    with refusal(JobError, "output.reweigh"):
        load(path, ["output.bound=false", "output.reweigh=true", fitted])


@pytest.mark.nightly  # on every push: that a q which is too narrow, or beside it, is not said to be right
def test_counts_with_an_unknown_scale_are_not_said_to_be_right(tmp_path):
    """A skewed posterior: q settles at a normal distribution, and weights see the difference."""
    built_priors.written(tmp_path)
    rows = artifacts.counts(tmp_path / "rows", covariate=False)
    tables = {"data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"}}
    model, steps = {"prior": str(tmp_path / "prior"), "phi": 0.8}, {"algorithm": {"inference": "sfvi"}}
    result = fedkern.run({"job": {"method": "sigma", "seed": 3, "rounds": 2000}, "model": model, **steps, **tables})
    assert result.converged in ("settled", False)
    if result.converged == "settled":
        assert result.summary["checks"][0]["id"] == "weights-do-not-tell"
