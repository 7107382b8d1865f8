"""ArviZ's containers and its leave-one-out, in both of its generations (0.x, and 1.x of Python 3.12 and newer)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np


def inference_data(groups: Mapping[str, Mapping[str, Any]]) -> Any:
    """Returns ArviZ's container of groups of arrays (chains, draws, ..)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

    return arviz.from_dict(**groups) if OLDER else arviz.from_dict(groups)


OLDER = version("arviz").startswith("0.")
NEAR = 2e-3 if OLDER else 0.03  # of sums of densities: 1.x takes one draw more or less for a tail


def loo(log_likelihoods: np.ndarray) -> tuple[float, float, float, np.ndarray]:
    """Returns elpd, its standard error, p_loo and k-hats (n,) of log-likelihoods (chains, draws, n)."""
    data = inference_data({"posterior": {"x": np.zeros(log_likelihoods.shape[:2])}, "log_likelihood": {"y": log_likelihoods}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

        found = arviz.loo(data, reff=1.0, pointwise=True)
    elpd, p = (found.elpd_loo, found.p_loo) if OLDER else (found.elpd, found.p)
    return float(elpd), float(found.se), float(p), np.asarray(found.pareto_k.values)
