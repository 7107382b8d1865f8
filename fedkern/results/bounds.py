"""Says the bound of the evidence that a variational job ends with."""

from __future__ import annotations

import math

from .plain import Record, real


def elbo_line(content: Record) -> str:
    """Returns the line of a bound, with its standard error where there were rounds enough to know one."""
    error = real(content["elbo_error"])
    known = "" if math.isnan(error) else f" ± {error:.2g}"
    return f"ELBO {content['elbo']:.2f}{known} (mean of the last fifth of the rounds)"
