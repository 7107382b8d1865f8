"""Small jobs of three clients, of each method that has secure sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedkern.data.simulate.federations import Settings, simulate

from . import input_cases


def job(folder: Path, method: str) -> Path:
    """A small job of three clients."""
    if method == "sparse":
        return simulate("sparse", folder / "sparse", Settings(clients=3, rows=60, columns=4, seed=2))
    if method == "sigma":
        return folder / input_cases.METHODS[method](folder).job
    for k, name in enumerate("abc"):
        random = np.random.default_rng(k)
        cells = zip(
            random.normal(size=300), random.exponential(size=300) + 0.01, random.poisson(2, 300), random.integers(0, 2, 300)
        )
        rows = "\n".join(f"{x:.3f},{t:.3f},{n},{y}" for x, t, n, y in cells)
        (folder / f"{name}.csv").write_text(f"x,t,n,y\n{rows}\n")
    path = folder / "job.toml"
    response = "" if method == "describe" else 'response = "y"\n'
    path.write_text(f'[job]\nmethod = "{method}"\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\n{response}')
    return path
