"""Every variant, schedule and sampling as a whole job: it runs, says of itself what is true, and sends what `check` lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import find_plans
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.wires import checked_and_run

# Less noise has losses of a wider range, which dp-accounting goes through in small steps.
TERMS = {"epsilon": 8.0, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 6.0, "sampling_rate": 0.2}
SHARDS = {"epsilon": 8.0, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 16.0}
CLIENTS = {"unit": "client", "epsilon": 4.0, "delta": 1e-2, "clip": 3.0, "noise_multiplier": 4.0}

OPEN: dict[str, dict[str, Any]] = {
    "sequential": {},
    "random": {"algorithm": {"schedule": "random", "client_weights": {"c1": 2.0}}},
    "synchronous": {"algorithm": {"schedule": "synchronous"}, "job": {"rounds": 30}},
    "asynchronous": {"algorithm": {"schedule": "asynchronous"}, "job": {"rounds": 10}},
    "full covariance": {"model": {"covariance": "full"}},
    "adam, full covariance": {"model": {"covariance": "full"}, "algorithm": {"optimiser": "adam"}, "job": {"rounds": 8}},
    "adam, stl": {
        "algorithm": {"optimiser": "adam", "estimator": "stl", "draws": 4, "batch": 0.5, "random_source": "keyed"},
        "job": {"rounds": 20},
    },
    "global vi": {"algorithm": {"variant": "global-vi"}, "job": {"rounds": 400}},
    "bcm split": {"algorithm": {"variant": "bcm-split"}, "job": {"rounds": 1}},
    "paper": {"model": {"preset": "paper"}, "job": {"rounds": 30}},
    "capped": {"algorithm": {"updates_per_client": 3}, "job": {"rounds": 50}},
}
PRIVATE: dict[str, dict[str, Any]] = {
    "poisson": {"privacy": TERMS},
    "without replacement": {
        "privacy": SHARDS | {"sampling": "without-replacement", "batch_size": 20, "dataset_size": 120, "noise_multiplier": 4.0}
    },
    "poisson, cut": {"privacy": TERMS | {"sampling": "poisson-truncated", "max_batch": 30, "dataset_size": 120}},
    "full": {"privacy": SHARDS | {"sampling": "full"}},
    "calibrated": {"privacy": SHARDS | {"sampling": "full", "calibrate": True, "accountant": "rdp", "noise_multiplier": None}},
    "paper": {"privacy": {"epsilon": 8.0, "delta": 1e-3, "sampling_rate": 0.1}, "model": {"preset": "paper"}},
    "weight-mc": {"privacy": TERMS, "algorithm": {"estimator": "weight-mc", "draws": 2}},
    "activation-mc": {"privacy": TERMS, "algorithm": {"estimator": "activation-mc", "draws": 2}},
    "asynchronous": {"privacy": TERMS, "algorithm": {"schedule": "asynchronous"}},
    "global vi": {"privacy": TERMS, "algorithm": {"variant": "global-vi"}},
    "local averaging": {"privacy": SHARDS, "algorithm": {"variant": "local-averaging", "shards": 5}},
    "virtual clients": {"privacy": SHARDS, "algorithm": {"variant": "virtual-clients", "shards": 5}},
    "own terms": {"privacy": TERMS | {"clients": {"c1": {"sampling_rate": 0.1, "clip": 1.0}}}},
    "clients": {"privacy": CLIENTS | {"client_rate": 0.5}},
    "clients, averaged sites": {"privacy": CLIENTS, "algorithm": {"sites": "averaged"}},
    "shorten": {
        "privacy": TERMS | {"epsilon": 2.0, "noise_multiplier": 2.0, "last_update": "shorten"},
        "job": {"rounds": "budget"},
    },
}
NEIGHBOURS = dict.fromkeys(("poisson, cut", "without replacement"), "replace one example by any other")
NEIGHBOURS |= dict.fromkeys(("local averaging", "virtual clients"), "add or remove one example, or replace its values under")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four clients with 120 rows each; the slopes are 1 and -0.5."""
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for k in range(4):
        x = generator.normal(size=(120, 2))
        y = generator.random(120) < 1 / (1 + np.exp(-(0.3 + x @ [1.0, -0.5])))
        lines = [f"{k}-{i},{a},{b},{int(c)}" for i, ((a, b), c) in enumerate(zip(x, y))]
        (folder / f"c{k}.csv").write_text("\n".join(["id,x,z,y", *lines]) + "\n")
    columns = {name: {"kind": "numeric"} for name in ("x", "z")}
    return {
        "clients": [str(Path(folder) / "*.csv")], "response": "y", "row_id": "id", "standardise": "none", "columns": columns
    }  # fmt: skip


@pytest.fixture(scope="module")
def optimum(data: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Of all rows together."""
    return fedkern.run({"data": data, "job": {"rounds": 30}, "model": {"covariance": "full"}}).parameters


@pytest.mark.parametrize("variant", OPEN)
def test_open_jobs_come_near_the_optimum(
    data: dict[str, Any], optimum: dict[str, dict[str, float]], tmp_path: Path, variant: str
) -> None:
    job = {"data": data, "job": {"rounds": 5}} | OPEN[variant]
    result = checked_and_run(job, tmp_path / "out")
    assert result.stop == ("updates" if variant == "capped" else "rounds")
    assert (result.summary["claim"], result.privacy) == ("federated", {})
    for name, value in optimum.items():
        assert abs(result.parameters[name]["mean"] - value["mean"]) < 1.5 * value["sd"], name


@pytest.mark.parametrize("variant", PRIVATE)
def test_private_jobs_keep_to_their_budgets(data: dict[str, Any], tmp_path: Path, variant: str) -> None:
    job = {"data": data, "job": {"rounds": 2}} | PRIVATE[variant]
    result = checked_and_run(job, tmp_path / "out", wanted=("Refused",) if variant == "shorten" else ())
    cap, unit = job["privacy"]["epsilon"], job["privacy"].get("unit", "example")
    assert result.summary["claim"] == "private"
    assert result.privacy.keys() == {"c0", "c1", "c2", "c3"}
    for certificate in result.privacy.values():
        assert 0 <= certificate["epsilon"] <= cap
        assert certificate["unit"] == unit
        assert certificate["neighbours"].startswith(NEIGHBOURS.get(variant, "add or remove one " + unit))
    assert max(certificate["steps"] for certificate in result.privacy.values()) > 0
    assert all(np.isfinite(list(value.values())).all() for value in result.parameters.values())
    assert result.stop == ("budget" if variant == "shorten" else "rounds")
    config, folder = load(job)
    for name, plan in find_plans(InProcess(), config, folder).items():  # as said before, the shortened update among them
        spent = [result.privacy[name]["steps"]] if name in result.privacy else [c["steps"] for c in result.privacy.values()]
        assert max(spent) <= plan.steps, name
        assert variant != "shorten" or (spent[0], plan.paid) == (plan.steps, 2)
