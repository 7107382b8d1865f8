"""No random number of what is published is drawn twice, in jobs of every method (`docs/concepts/bits.md`)."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.kernels import rng
from support import sigma_artifacts as artifacts

FEW = Settings(clients=2, rows=40, columns=2, seed=2)


def logistic(folder: Path) -> Any:
    return fedkern.run(simulate("logistic", folder, FEW), out=folder / "out", job={"rounds": 2})


def sparse(folder: Path) -> Any:
    return fedkern.run(simulate("sparse", folder, FEW), out=folder / "out", job={"rounds": 60}, algorithm={"burn_in": 20})


def multilevel(folder: Path) -> Any:
    """Slopes by ward: a client draws for its own table, and for the predictions of rows that are kept for testing."""
    path = simulate("vertical", folder, FEW)
    for k, file in enumerate(sorted((folder / "clients").glob("*.csv"))):
        head, *lines = file.read_text().splitlines()
        wards = ["ward", *(f"w{(i + k) % 3}" for i in range(len(lines)))]
        file.write_text("".join(f"{line},{ward}\n" for line, ward in zip([head, *lines], wards)))
    model = {"kind": "multilevel", "rho": 0.5}
    data = {"group": "ward", "holdout": 0.2}
    return fedkern.run(path, out=folder / "out", job={"rounds": 20}, model=model, data=data)


def areas(folder: Path) -> Any:
    artifacts.written(folder / "prior")
    artifacts.counts(folder / "rows")
    data = {"clients": str(folder / "rows" / "*.csv"), "area": "district", "response": "cases", "exposure": "expected"}
    job = {"job": {"method": "sigma", "rounds": 20}, "data": data, "model": {"prior": str(folder / "prior")}}
    return fedkern.run(job, out=folder / "out")


@pytest.mark.parametrize("job", [logistic, sparse, multilevel, areas])
def test_no_counter_of_a_published_draw_is_used_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Any) -> None:
    """(key, client, step, draw) belongs to one place of the code; all parties may compute what it draws, which is one thing."""
    used: dict[Any, set[str]] = defaultdict(set)
    keys = {rng.key(seed, "posterior", chain) for seed in (0, 1, 2) for chain in range(16)}
    normal = rng.normal

    def recorded(n: int, *, key: int, client: int = 0, step: int = 0, draw: int = 0, **rest: Any) -> Any:
        if key in keys:
            caller = sys._getframe(1).f_code
            used[key, client, step, draw].add(f"{caller.co_filename}: {caller.co_qualname}")
        return normal(n, key=key, client=client, step=step, draw=draw, **rest)

    monkeypatch.setattr(rng, "normal", recorded)
    result = job(tmp_path)
    result.to_arviz()
    assert used
    assert {counter: places for counter, places in used.items() if len(places) > 1} == {}


def test_the_servers_draws_of_a_map_are_no_clients(tmp_path: Path) -> None:
    """Draws of xi, standardised, against the normals of client 0's latents: the same numbers, where the counters are the same."""
    result = areas(tmp_path)
    b = np.asarray(result.posterior.values["intercept"])[0]
    n, size = len(b), 7  # x_phi, 3 global latents, intercept, a coefficient, log sigma_theta
    z = rng.normal(n * size, key=rng.key(0, "posterior"), client=0).reshape(n, size)
    assert np.abs(np.linalg.lstsq(np.c_[np.ones(n), z], b, rcond=None)[1] / (n * b.var()) - 1) < 0.1
