"""The sampler against summaries of long NUTS runs of the same posteriors (tools/references/sparse.py)."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.sparse_joint import Regression
from papers.common import references
from support.sparse_chains import posterior

REFERENCES = references("sparse")
DEFAULTS = {"shape_eta": 2.0, "rate_eta": 1.0, "rho_a": 1.0, "rho_b": 1.0, "shape": 2.0, "rate": 1.0}


def summaries(model, data, *, chains, rounds, burn_in, seed):
    """name -> mean, sd and their errors, like the stored ones."""

    def functions(s):
        values = {
            "theta": s.theta, "site": s.coefficients().transpose(1, 0, 2), "log_tau_sq": np.log(s.tau_sq),
            "log_eta": np.log(s.eta[:, 0]), "rho": s.rho[:, 0], "log_sigma_sq": np.log(s.local[0]).T,
        }  # fmt: skip
        return values | {f"{name}^2": value**2 for name, value in values.items()} | {"inclusion": s.inclusion}

    found = posterior(model, data, functions, chains=chains, rounds=rounds, burn_in=burn_in, seed=seed)
    out = {"inclusion": {"mean": found["inclusion"][0], "mean_error": found["inclusion"][1]}}
    for name in found:
        if f"{name}^2" in found:
            (mean, error), (square, _) = found[name], found[f"{name}^2"]
            out[name] = {"mean": mean, "mean_error": error, "sd": np.sqrt(square - mean**2)}
    return out


@pytest.mark.parametrize("name", REFERENCES)
def test_summaries_of_long_nuts_runs(name, seed):
    stored = REFERENCES[name]
    X, y = ([np.array(a) for a in stored[key]] for key in ("X", "y"))
    model = Regression(X=X, c0=stored["c0"], n_passes=5, **DEFAULTS)
    own = summaries(model, model.given(y), chains=100, rounds=600, burn_in=100, seed=seed)
    for quantity, their in stored["posterior"].items():
        mean, sd, error, sd_error = (np.array(their[key]) for key in ("mean", "sd", "mean_error", "sd_error"))
        allowed = 4 * np.hypot(error, own[quantity]["mean_error"])
        if quantity == "inclusion":
            assert (np.abs(own[quantity]["mean"] - mean) < 0.02 + allowed).all(), (quantity, own[quantity], their)
            continue
        assert (np.abs(own[quantity]["mean"] - mean) < 0.05 * sd + allowed).all(), (quantity, own[quantity], their)
        assert (np.abs(own[quantity]["sd"] - sd) < 0.05 * sd + 4 * sd_error).all(), (quantity, own[quantity], their)


def test_negative_control_another_spike_is_seen(seed):
    """Twice the spike's standard deviation."""
    stored = REFERENCES["few rows"]
    X, y = ([np.array(a) for a in stored[key]] for key in ("X", "y"))
    model = Regression(X=X, c0=4 * stored["c0"], n_passes=5, **DEFAULTS)
    own = summaries(model, model.given(y), chains=50, rounds=200, burn_in=50, seed=seed)["inclusion"]["mean"]
    their = stored["posterior"]["inclusion"]
    assert (np.abs(own - their["mean"]) > 0.02 + 4 * np.array(their["mean_error"])).any()
