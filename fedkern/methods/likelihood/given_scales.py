"""Finds columns whose center and scale in the job file do not fit the rows, so that the prior keeps their coefficients near 0.

Priors are of standardised columns. With a scale that is far too large the standardised column hardly varies, its coefficient has
to be large, and the prior does not let it. The clients' curvatures at the mode tell the column's spread: of L, their sum, with
the intercept 0, L_jj / L_00 - (L_0j / L_00)^2 is the variance of column j as the rows weigh. With g, the sum of their gradients
there, L^-1 g is how far the prior holds the coefficients from where the rows alone have them.
"""

from __future__ import annotations

import numpy as np

from ...algorithms.importance.draws import Found
from ...finding import Finding
from ...results import guard
from .model import Model

OFF = 5.0  # times as large as the rows' standard deviation, or so many of these from their mean
MOVED = 0.5  # standard errors of the rows alone
LEAST = 1e-10  # of the largest eigenvalue: what rows tell less of has no standard error


@guard.check("the scales that the job gives", None)
def doubt(found: Found, model: Model) -> str:
    """Returns why the result cannot stand; "" where it can, or where no center and scale are given."""
    given = given_columns(model)
    names, at, intercept = model.compared
    if not given or not intercept or model.encoding.formula is not None:
        return ""
    L = found.own_hessian.sum(axis=0)[np.ix_(at, at)]
    g = found.own_gradient.sum(axis=0)[at]
    if not (np.isfinite(L).all() and np.isfinite(g).all() and L[0, 0] > 0):
        return ""
    mean = L[0] / L[0, 0]
    sd = np.sqrt(np.maximum(np.diag(L) / L[0, 0] - mean**2, 0.0))
    root = np.sqrt(np.maximum(np.diag(L), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(L / np.outer(root, root))
    if not values[0] > LEAST * values[-1]:
        return ""
    inverse = (vectors / values) @ vectors.T / np.outer(root, root)
    moved = np.abs(inverse @ g) / np.sqrt(np.diag(inverse))
    wide = (sd * OFF < 1) | (np.abs(mean) > OFF * np.maximum(sd, 1 / OFF))
    odd = [j for j, name in enumerate(names) if name in given and wide[j] and moved[j] > MOVED]
    if not odd:
        return ""
    said = [
        f"{names[j]!r} (the rows' mean is about {center + mean[j] * scale:.2g}, their standard deviation {sd[j] * scale:.2g}; "
        f"given are {center:g} and {scale:g})"
        for j, (center, scale) in ((j, given[names[j]]) for j in odd)
    ]
    return Finding.of("given-scales-do-not-fit", columns=said, errors=float(max(moved[j] for j in odd)))


def given_columns(model: Model) -> dict[str, tuple[float, float]]:
    """Returns the numeric columns whose constants the job file gives -> these."""
    given = model.given_constants
    return {one.name: one.constants for one in model.encoding.columns if one.levels is None and one.name in given}
