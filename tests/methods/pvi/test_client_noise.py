"""Whole clients protected: the noise is in the published intervals, and the verdict says where it is all that there is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.pvi import client_level
from fedkern.privacy.noise import SecureSource
from support.client_rounds import Rounds

M = 30
COLUMNS = {name: {"center": 0.0, "scale": 1.0} for name in ("x", "z")}


@pytest.fixture(scope="module")
def files() -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(22)
    x, z = generator.normal(size=(2, 900))
    y = (generator.random(900) < 1 / (1 + np.exp(-(-0.5 + 0.5 * x + 0.8 * z)))).astype(int)
    table = pd.DataFrame({"x": x, "z": z, "y": y})
    return {f"s{k:02}": table.iloc[k::M].reset_index(drop=True) for k in range(M)}


def run(files: dict[str, pd.DataFrame], seed: int = 1, rounds: int = 15, **privacy: Any) -> fedkern.Result:
    terms = {"unit": "client", "epsilon": float("inf"), "delta": 1e-5, "noise_source": "keyed", "noise_multiplier": 1.0}
    job = {
        "job": {"method": "pvi", "rounds": rounds, "seed": seed},
        "data": {"response": "y", "columns": COLUMNS},
        "algorithm": {"damping": 0.5, "local_steps": 10},
        "privacy": terms | privacy,
    }
    return fedkern.run(job, data=files)


def test_too_much_noise_is_told_first_and_its_remedy_leads_to_the_truth(files: dict[str, pd.DataFrame]) -> None:
    noisy = run(files, clip=20.0, noise_multiplier=4.0, rounds=10)
    assert noisy.converged is False
    assert "posterior sds (wanted at most 1)" in noisy.summary["verdict"]
    result = run(files, clip=0.2, rounds=30)
    asked = re.search(r"noise_multiplier = 1, below about ([\d.e+-]+)", result.summary["verdict"])
    assert asked
    assert result.converged is False
    result = run(files, clip=0.2, rounds=30, noise_multiplier=0.9 * float(asked[1]))
    assert result.converged == "not judged"
    assert "intervals contain it" in result.summary["verdict"]
    rows = pd.concat(files.values(), ignore_index=True)
    exact = fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y"}}, data={"all": rows})
    for name in ("theta[x]", "theta[z]"):
        near, true = result.summary["parameters"][name], exact.summary["parameters"][name]
        assert abs(near["mean"] - true["mean"]) < 2 * near["sd"] < 6 * true["sd"]


def test_steps_too_short_to_arrive_are_told(files: dict[str, pd.DataFrame]) -> None:
    held = run(files, clip=0.002)
    assert held.converged is False
    assert "raise job.rounds" in held.summary["verdict"]


@pytest.mark.parametrize("averaged", [False, True])
def test_the_noise_that_the_server_adds_up_is_that_of_its_sums(averaged: bool) -> None:
    """Clients that want nothing: all that q's h has is noise (with own sites; averaged ones would answer to it)."""
    ends, said = [], None
    for _ in range(150):
        rounds = Rounds(np.zeros((2, 1)), 1.0, SecureSource(), clip=0.01, averaged=averaged)
        for _ in range(5):
            rounds.play()
        state = rounds.side.state
        assert isinstance(state, client_level.Server)
        ends.append(state.q.h[0] - state.prior.h[0])
        said = float(np.sqrt(state.noise[0]))
        if averaged:
            kept = (1 - state.settings.damping) ** 2
            assert said == pytest.approx(0.01 * np.sqrt(sum(kept**k for k in range(5))), rel=0.1)
    assert averaged or np.std(ends) == pytest.approx(said, rel=0.15)
