"""The prior of a gaussian response's sigma has the response's scale, and priors that do not fit the unit let no result stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from fedkern.jobs.load import config_of
from fedkern.methods.vertical import keys
from fedkern.methods.vertical.model import VerticalModel
from fedkern.methods.vertical.widths import measure_pulls
from support.refusal import refusal

DATA = {"clients": ["a.csv", "b.csv"], "id": "id", "response": "y", "server": "y.csv"}


def model_of(n: int, algorithm: dict[str, Any] | None = None, **model: Any) -> VerticalModel:
    said = {"job": {"method": "vertical"}, "data": DATA, "model": {"rho": 0.5, **model}, "algorithm": algorithm or {}}
    return VerticalModel(config_of(keys, said), ("a", "b"), n)


def pressure(n: int = 1000, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two standardised columns, and a blood pressure in mmHg."""
    random = np.random.default_rng(1)
    X = random.standard_normal((n, 2))
    return X, unit * (130 + X @ [6, 4] + 16 * random.standard_normal(n))


def exact_log_sigma(left: np.ndarray, prior_sd: float) -> tuple[float, float]:
    """Mean and sd of log sigma, sigma ~ HalfNormal(prior_sd), of errors that are known; by a grid."""
    w = np.linspace(np.log(left.std()) - 1, np.log(left.std()) + 1, 40001)
    log_p = -len(left) * w - 0.5 * (left @ left) * np.exp(-2 * w) + w - 0.5 * np.exp(2 * w) / prior_sd**2
    p = np.exp(log_p - log_p.max())
    mean = float(p @ w / p.sum())
    return mean, float(np.sqrt(p @ (w - mean) ** 2 / p.sum()))


def test_sigma_has_the_prior_of_its_responses_scale() -> None:
    y = np.array([110.0, 130.0, 150.0])
    assert model_of(3, family="gaussian").centred(y, None).scale_sd == y.std()
    assert model_of(3, family="gaussian").centred(y / 100, None).scale_sd == 1.0
    assert model_of(3, family="gaussian", scale_sd=7.0).centred(y, None).scale_sd == 7.0
    assert model_of(3, family="gaussian", scale=2.0).centred(y, None).scale_sd == 1.0
    assert model_of(3, {"auxiliary": "mean-field"}, family="gaussian").centred(y, None).scale_sd == y.std()
    for wrong in ({"family": "poisson"}, {"family": "gaussian", "scale": 2.0}):
        with refusal(JobError, "model.scale_sd"):
            model_of(3, scale_sd=7.0, **wrong)
    with refusal(JobError, "model.scale_sd"):
        model_of(3, {"inference": "soul"}, family="gaussian", scale_sd=7.0)


@pytest.mark.parametrize("scale_sd", [1.0, 18.0])
def test_the_slope_of_sigmas_prior_is_that_of_its_density(scale_sd: float) -> None:
    """Where sigma / s ~ HalfNormal(1), log sigma has the density sqrt(2 / pi) sigma / s exp(-(sigma / s)^2 / 2)."""
    shared = model_of(3, family="gaussian", scale_sd=scale_sd).server
    assert shared.block.size == 2
    zero, eps = np.zeros(4), np.zeros(2)
    w = np.linspace(-1.0, 4.0, 7)

    def bound(at: float) -> float:
        return shared.bound(zero, eps, np.array([0.0, at]))

    log_density = np.log(2 / np.pi) / 2 + w - np.log(scale_sd) - 0.5 * (np.exp(w) / scale_sd) ** 2
    found = np.array([bound(at) for at in w])
    np.testing.assert_allclose(np.diff(found), np.diff(log_density), rtol=1e-10)
    slopes = [shared.gradient(zero, eps, np.array([0.0, at]), 0.0, 0.0)[1] for at in w]
    np.testing.assert_allclose(slopes, [(bound(at + 1e-5) - bound(at - 1e-5)) / 2e-5 for at in w], rtol=1e-6)


def pulls_of(scale_sd: float, prior_sd: float, n: int = 1000) -> Any:
    """What the server finds where q is the posterior under these priors, given the rest."""
    X, y = pressure(n)
    model = model_of(n, family="gaussian", scale_sd=scale_sd, prior={"sd": prior_sd})
    theta = np.linalg.solve(X.T @ X + 16**2 / prior_sd**2 * np.eye(2), X.T @ (y - 130))
    w, sd = exact_log_sigma(y - 130 - X @ theta, scale_sd)
    released = np.concatenate([[130.0, w], np.log([0.5, sd])])
    server: Any = SimpleNamespace(
        shared=model.centred(y, None), y=y, released=released, seen=SimpleNamespace(counts=np.full(n, 1000.0))
    )
    np.testing.assert_allclose(server.shared.block.moments(released), ([130.0, w], [0.5, sd]))
    return measure_pulls(server, model, (X * theta).T), w, sd, theta


def test_a_prior_of_another_unit_is_told_with_what_it_moves() -> None:
    pulls, w, sd, theta = pulls_of(1.0, 1.0)
    X, y = pressure()
    flat, _ = exact_log_sigma(y - 130 - X @ theta, 1e6)
    np.testing.assert_allclose(pulls.moved["sigma"][0], (flat - w) / sd, rtol=0.3)
    free = np.linalg.solve(X.T @ X, X.T @ (y - 130))
    np.testing.assert_allclose(pulls.moved["client a's coefficients"][0], (free - theta)[0] / (16 / np.sqrt(1000)), rtol=0.3)
    (check,) = pulls.checks
    assert (check.found.id, check.word, check.worst) == ("moved-by-the-prior", False, "sigma")
    assert {"model.scale_sd = 17", "model.prior = {sd = 17} (or sd of the client's own prior)"} <= {*check.found.values["keys"]}
    # The remedy, followed to its end, gives the right sigma, and nothing more is said.
    pulls, w, sd, theta = pulls_of(17.0, 17.0)
    assert abs(w - np.log((y - y.mean() - X @ free).std())) < 0.1 * sd
    assert pulls.checks == []


def test_priors_are_not_asked_of_responses_without_a_unit() -> None:
    server: Any = SimpleNamespace(shared=None, y=np.zeros(3))
    assert measure_pulls(server, model_of(3, family="poisson"), None) is None


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_job_in_mmhg_says_that_its_priors_do_not_fit_and_is_right_with_those_that_it_advises() -> None:
    X, y = pressure()
    ids = [f"p{i}" for i in range(len(y))]
    frames = {name: pd.DataFrame({"id": ids, name: X[:, k]}) for k, name in enumerate("ab")}
    job = {"job": {"method": "vertical", "seed": 1}, "data": {"id": "id", "response": "y"}}
    design = np.column_stack([np.ones(len(y)), X])
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    wrong, right = (
        fedkern.run(
            {**job, "model": {"family": "gaussian", **priors}}, data=frames, server=pd.DataFrame({"id": ids, "y": y})
        ).summary
        for priors in ({"scale_sd": 1.0}, {"scale_sd": 18.0, "prior": {"sd": 18.0}})
    )
    assert "sigma by" in wrong["verdict"]
    assert wrong["converged"] is False
    assert right["converged"] == "settled"
    assert np.exp(wrong["parameters"]["log_sigma"]["mean"]) < 0.95 * left.std()
    np.testing.assert_allclose(np.exp(right["parameters"]["log_sigma"]["mean"]), left.std(), rtol=0.02)
