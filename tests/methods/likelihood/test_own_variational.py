"""Own models with unknowns of each client, by a variational fit and weighted draws: against quadrature, or not converged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import fedkern
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.methods.likelihood import own_variational
from fedkern.methods.likelihood.own_model import Joint
from fedkern.models.own.supplied import Own
from methods.likelihood.test_own_models import quadrature
from support.command import mpirun
from support.interrupted import Crash, run
from support.own_package import PRIORS, job
from support.own_package import package as package  # a fixture


def local(folder: Path, rounds: int, clients: int = 8, more: str = "") -> Path:
    path = job(folder, "by_hand", PRIORS + f'[algorithm]\nsampler = "sfvi"\n{more}', clients)
    text = path.read_text().replace('kind = "own"\n', 'kind = "own"\nlocal = true\n')
    path.write_text(text.replace("seed = 3", f"seed = 3\nrounds = {rounds}"))
    return path


def test_estimates_of_a_clients_likelihood_are_unbiased() -> None:
    """y ~ N(mu + tau u, s^2): integrated over u it is N(mu, s^2 + tau^2), whatever q(u | xi) is."""
    y, s = np.array([28.0]), np.array([15.0])

    class Local:
        names, local_size = ("mu", "tau"), 1

        def log_joint_grad(self, xi: np.ndarray, u: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            mu, tau = xi
            value = norm.logpdf(y, mu + tau * u, s).sum() + norm.logpdf(u).sum()
            return float(value), np.zeros(2), np.zeros(1)

    own = Own(Local(), "client 'a'", np.arange(2))  # type: ignore[arg-type]
    model = Joint(own)
    settings = sfvi.Settings(
        rounds=5, most=0, covariance="full", local_covariance="auto", coupled=True, draws=1, path=True, optimiser="adam",
        learning_rate=0.01, decay=0.5, initial_sd=0.1, bound=False, sheared=False, local_steps=0, seed=1, lead=0,
    )  # fmt: skip
    client = sfvi.client("a", 0, settings, model, 1)
    object.__setattr__(client, "centre", np.zeros(2))
    xi = np.tile([5.0, 10.0], (400, 1))
    found = np.exp(own_variational.log_likelihoods(client, xi, 7))
    exact = norm.pdf(28.0, 5.0, np.hypot(15.0, 10.0))
    assert found.mean() == pytest.approx(exact, abs=4 * found.std() / 20)
    assert found.std() < 0.5 * exact


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_eight_schools_are_as_by_quadrature(tmp_path: Path) -> None:
    result = fedkern.run(local(tmp_path, 2000), out=tmp_path / "out")
    assert result.converged is True, result.summary["verdict"]
    effective = float(result.summary["ess"])
    for name, (mean, sd) in quadrature().items():
        if name != "log tau":
            found, error = result.parameters[name], sd / effective**0.5
            assert abs(found["mean"] - mean) < 4 * error, name
            assert abs(found["sd"] - sd) < 6 * error, name
    own = pd.read_csv(tmp_path / "out" / "client-a" / "local.csv")
    assert own.unknown.tolist() == [1]
    assert 0.1 < own["mean"][0] < 1.0  # the school with an effect of 28
    assert 0.6 < own.sd[0] < 1.1


def test_a_fit_that_has_not_arrived_is_not_converged_and_names_hmc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_variational, "PIECES", 1)
    path = local(tmp_path, 30, clients=2, more="effective = 9000\n")
    result = fedkern.run(path)
    assert result.converged is False
    assert 'take algorithm.sampler = "hmc", or more rounds' in result.summary["verdict"]


@pytest.mark.nightly
def test_ranks_and_a_run_that_goes_on_have_the_bits_of_one_process(tmp_path: Path, package: Path) -> None:
    path = local(tmp_path, 60, clients=2, more="effective = 200\n")
    whole = fedkern.run(path)
    ended = mpirun(3, "run", path, "--out", tmp_path / "out", before=package)
    assert ended.code == 0, ended.err
    assert fedkern.load(tmp_path / "out").summary["digest"] == whole.summary["digest"]
    with pytest.raises(Crash):
        run(path, tmp_path / "again", crash=40)
    assert run(path, tmp_path / "again", resume=True).summary["digest"] == whole.summary["digest"]
