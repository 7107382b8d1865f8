"""Mixed models by `method = "likelihood"` against long NUTS runs of all rows together (tools/references/likelihood.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedkern
from papers.common import references
from support.mixed_federations import KINDS, written

MODELS: dict[str, Any] = references("likelihood")["models"]
MEAN, SD = 0.03, 0.03  # in standard deviations, and as a part of one
ERRORS = 4  # Monte-Carlo errors beside


def off(found: dict[str, dict[str, float]], reference: dict[str, list[float]]) -> list[str]:
    """What is too far from the reference."""
    said = []
    for name, (mean, sd, of_mean, of_sd) in reference.items():
        own = found[name]
        moved, wider = abs(own["mean"] - mean) / sd, abs(own["sd"] / sd - 1)
        if moved > MEAN + ERRORS * of_mean / sd or wider > SD + ERRORS * of_sd / sd:
            said.append(f"{name}: mean {moved:.3f} sds off, sd {own['sd'] / sd:.3f} times the right one")
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_is_that_of_all_rows_together(kind: str, tmp_path: Path) -> None:
    result = fedkern.run(written(kind, tmp_path))
    assert result.summary["converged"] is True, result.summary["verdict"]
    assert off(result.summary["parameters"], MODELS[kind]["1"]) == []


def test_negative_control_a_prior_half_as_wide_is_seen(tmp_path: Path) -> None:
    result = fedkern.run(written("few groups", tmp_path), model={"prior_sd": 0.5})
    assert off(result.summary["parameters"], MODELS["few groups"]["1"])
