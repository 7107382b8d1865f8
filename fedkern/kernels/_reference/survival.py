"""What the kernels of survival models mean: at every event's time, sums over all rows that are at risk, written down."""

import numpy as np


def at_risk(k, n, first, ends, until):
    """Rows at risk at set k."""
    i = np.arange(first[k], ends[k])
    return i if until is None else i[until[i] > k]


def of_point(beta, X, weights, offset, first, ends, deaths, until):
    """Value, gradient and minus Hessian at one point; NaN where something is not finite."""
    n, p = X.shape
    shift = 0.0 if offset is None else offset
    eta = X @ beta + shift
    w = np.ones(n) if weights is None else weights
    value, gradient, curved = 0 * beta.sum(), np.zeros(p), np.zeros((p, p))
    for k, d in enumerate(deaths):
        value += 0 * eta[first[k] : ends[k]].sum()
        risk, dying = at_risk(k, n, first, ends, until), np.arange(ends[k] - d, ends[k])
        value += w[dying] @ eta[dying]
        gradient += w[dying] @ X[dying]
        each, top = w[dying].mean(), eta[risk].max(initial=-np.inf)
        e = w[risk] * np.exp(eta[risk] - top)
        dies = risk >= ends[k] - d
        for m in range(d):
            share = np.where(dies, e * ((d - m) / d), e)
            total = share.sum()
            mean = share @ X[risk] / total
            value -= each * (np.log(total) + top)
            gradient -= each * mean
            around = X[risk] - mean
            curved += each * (around.T * (share / total)) @ around
    found = np.concatenate([[value], gradient, curved[np.tril_indices(p)]])
    return found if np.isfinite(found).all() else np.full(len(found), np.nan)


def cox_values(points, X, weights, offset, first, ends, deaths, until, value, n_threads):
    rows = [None if values is None else np.array(values) for values in (X, weights, offset, first, ends, deaths, until)]
    with np.errstate(all="ignore"):
        value[...] = [of_value(beta, *rows) for beta in np.array(points)]


def of_value(beta, X, weights, offset, first, ends, deaths, until):
    n = len(X)
    shift = 0.0 if offset is None else offset
    eta = X @ beta + shift
    w = np.ones(n) if weights is None else weights
    value = 0 * beta.sum()
    for k, d in enumerate(deaths):
        value += 0 * eta[first[k] : ends[k]].sum()
        risk, dying = at_risk(k, n, first, ends, until), np.arange(ends[k] - d, ends[k])
        top = eta[risk].max(initial=-np.inf)
        e = w[risk] * np.exp(eta[risk] - top)
        dies = risk >= ends[k] - d
        value += w[dying] @ eta[dying]
        value -= w[dying].mean() * sum(np.log((e * np.where(dies, (d - m) / d, 1.0)).sum()) + top for m in range(d))
    return value if np.isfinite(value) else np.nan


def cox_curvature(points, X, weights, offset, first, ends, deaths, until, value, gradient, minus_hessian, n_threads):
    rows = [None if values is None else np.array(values) for values in (X, weights, offset, first, ends, deaths, until)]
    p = X.shape[1]
    with np.errstate(all="ignore"):
        for i, beta in enumerate(np.array(points)):
            found = of_point(beta, *rows)
            value[i], gradient[i], minus_hessian[i] = found[0], found[1 : 1 + p], found[1 + p :]
