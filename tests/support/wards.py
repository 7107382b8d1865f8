"""Rows of counts by ward, for jobs of several clients with a random intercept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_wards(folder: Path, clients: Sequence[str]) -> None:
    """Writes rows/NAME.csv of each client, with eight wards of seven rows."""
    rng = np.random.default_rng(3)
    (folder / "rows").mkdir()
    for name in clients:
        lines = ["time,ward,y"]
        for g in range(8):
            effect = 0.5 * rng.normal()
            for time in rng.normal(4, 2, 7):
                lines.append(f"{time:.4f},w{g},{rng.poisson(np.exp(0.5 + 0.1 * time + effect))}")
        (folder / "rows" / f"{name}.csv").write_text("\n".join(lines) + "\n")
