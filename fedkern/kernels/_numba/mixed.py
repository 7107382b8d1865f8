"""Computes mixed models for Numba: a point and a group at a time, every row at every node.

Callable from nopython code: `row`, `dispersion`, `rising`. The functions that bear a kernel's name prepare arrays for the loops.
Matrices of a group's effects have room for three, of which the first d are used.
"""

from itertools import product
from math import lgamma

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from ._jit import loop_ieee, scalar_ieee
from ._rows import of

BINOMIAL, POISSON, GAUSSIAN, NEGATIVE_BINOMIAL = range(4)
EFFECTS = 3
MOST_ETA = 690.0  # of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
MOST_TERMS = 1e8  # of a negative binomial's count, whose curvature is a sum of so many
MOST_CURVE = 1e8  # of a row of counts in the search, beside y
LEAST_SQUARE = 1e-100  # a negative binomial whose phi^2 is smaller is Poisson
LEAST_LARGE = 64.0  # of the counts whose sum of logarithms is Euler's and Maclaurin's from there on
STEPS, NEAR, SLACK = 600, 1e-6, 1e-10  # of the search: the last step leaves an error of its square


@scalar_ieee
def row(eta, y, trials, family, square):
    """Returns the part of log p(y | eta) that depends on eta, its slope and minus its curvature. `square`: phi^2 or the
    precision."""
    if family == BINOMIAL:
        decay = np.exp(-abs(eta))
        inverse = 1.0 / (1.0 + decay)
        numerator = decay if eta < 0.0 else 1.0
        p = numerator * inverse
        softplus = max(eta, 0.0) + np.log1p(decay) if eta == eta else np.nan
        return y * eta - trials * softplus, y - trials * p, trials * decay * inverse * inverse
    if family == GAUSSIAN:
        r = y - eta
        return -0.5 * square * r * r, square * r, square
    eta = MOST_ETA if eta > MOST_ETA else eta
    mean = np.exp(eta)
    if family == POISSON:
        return y * eta - mean, y - mean, mean
    if family == NEGATIVE_BINOMIAL:
        x = min(square * mean, 1e300)
        inverse = 1.0 / (1.0 + x)
        whole = (y + 1.0 / square) * np.log1p(x) if square > LEAST_SQUARE else mean
        return y * eta - whole, (y - mean) * inverse, mean * inverse * ((1.0 + square * y) * inverse)
    return np.nan, np.nan, np.nan


@scalar_ieee
def dispersion(eta, y, w, family, square):
    """Returns a row's derivatives in the last coordinate w, without those of `rising`: dl / dw, d2l / dw deta, d2l / dw2."""
    if family == GAUSSIAN:
        r = y - eta
        return square * r * r - 1.0, -2.0 * square * r, -2.0 * square * r * r
    return of.negative_by_phi(y, min(eta, MOST_ETA), w)


@scalar_ieee
def antiderivative(x, a):
    """Returns the antiderivative of the sum over k < x of log(1 + a k), up to a constant; the next term is below 1e-15."""
    z = a * x
    f = np.log1p(z)
    if z < 0.1:
        integral = 0.0
        for j in range(16, -1, -1):
            sign = -1.0 if j % 2 else 1.0
            integral = sign / ((j + 1.0) * (j + 2.0)) + integral * z
        integral *= z * x
    else:
        integral = ((1.0 + z) * f - z) / a
    s = a / (1.0 + z)
    return integral - 0.5 * f + s * (1.0 / 12.0 + s * s * (-2.0 / 720.0 + s * s * (24.0 / 30240.0)))


@scalar_ieee
def rising(y, a):
    """Returns the sum over rows, whose counts y rise, of sum_{k < y} log(1 + k a)."""
    total, n, below, k = 0.0, y.size, 0, 0.0
    while k < LEAST_LARGE:
        while below < n and y[below] <= k:
            below += 1
        if below == n:
            return total
        total += (n - below) * np.log1p(k * a)
        k += 1.0
    for i in range(below, n):
        if y[i] > LEAST_LARGE:
            total += antiderivative(y[i], a) - antiderivative(LEAST_LARGE, a)
    return total


@scalar_ieee
def rising_slopes(y, a):
    """Returns the derivatives of `rising`, term by term; NaN for counts with too many terms."""
    first, second, n, below, k = 0.0, 0.0, y.size, 0, 0.0
    if n and not y[n - 1] <= MOST_TERMS:
        return np.nan, np.nan
    while True:
        while below < n and y[below] <= k:
            below += 1
        if below == n:
            return first, second
        s = k / (1.0 + k * a)
        first += (n - below) * s
        second -= (n - below) * s * s
        k += 1.0


@scalar_ieee
def constant_of(y, trials, family):
    """Returns the part of all rows that depends on no point. It is NaN if a response is not of the family, and an error where no
    family has the number."""
    if family not in (BINOMIAL, POISSON, GAUSSIAN, NEGATIVE_BINOMIAL):
        raise ValueError("family: no likelihood of the Numba kernels has this number")
    total = 0.0
    for i in range(y.size):
        if family == GAUSSIAN:
            total += 0.0 * y[i] - 0.5 * np.log(2.0 * np.pi)
            continue
        good = y[i] >= 0.0 and y[i] == np.floor(y[i]) and y[i] < np.inf
        if family == BINOMIAL:
            good = good and y[i] <= trials[i] and trials[i] == np.floor(trials[i]) and trials[i] < np.inf
        if not good:
            return np.nan
        total -= lgamma(y[i] + 1.0)
        if family == BINOMIAL:
            total += lgamma(trials[i] + 1.0) - lgamma(trials[i] - y[i] + 1.0)
    return total


@scalar_ieee
def place(xi, p, d, family, T):
    """Fills T of a point; returns phi^2 or the precision, and the number that it is made of (1 and 0 of other families)."""
    number = p
    for a in range(d):
        for b in range(a + 1):
            T[a, b] = np.exp(xi[number]) if a == b else xi[number]
            number += 1
    if family == GAUSSIAN:
        return np.exp(-2.0 * xi[number]), xi[number]
    if family == NEGATIVE_BINOMIAL:
        return xi[number] * xi[number], xi[number]
    return 1.0, 0.0


@scalar_ieee
def level(rows, begin, end, base, family, square, T, d, u, g, H):
    """Returns l at u. g is its gradient, H minus its Hessian (the lower triangle), a row of counts cut off. NaN: not all
    finite."""
    Z, y, trials = rows
    v, G, M = np.zeros(EFFECTS), np.zeros(EFFECTS), np.zeros((EFFECTS, EFFECTS))
    value = 0.0
    for a in range(d):
        for b in range(a + 1):
            v[a] += T[a, b] * u[b]
        value -= 0.5 * u[a] * u[a]
    counted = family in (POISSON, NEGATIVE_BINOMIAL)
    for i in range(begin, end):
        eta = base[i]
        for a in range(d):
            eta += Z[i, a] * v[a]
        part, slope, curve = row(eta, y[i], trials[i], family, square)
        value += part
        most = MOST_CURVE * (1.0 + y[i])
        if counted and curve > most:
            slope *= most / curve
            curve = most
        for a in range(d):
            G[a] += slope * Z[i, a]
            for b in range(a + 1):
                M[a, b] += curve * Z[i, a] * Z[i, b]
    return value + turned(T, d, u, G, M, g, H)


@scalar_ieee
def turned(T, d, u, G, M, g, H):
    """Turns into coordinates of u: g = T'G - u, H = T'M T + I of lower triangles. Returns 0, or NaN where they are not finite."""
    bad = 0.0
    for c in range(d):
        g[c] = -u[c]
        for a in range(c, d):
            g[c] += T[a, c] * G[a]
        bad += 0.0 * g[c]
        for e in range(c + 1):
            H[c, e] = 1.0 if c == e else 0.0
            for a in range(c, d):
                for b in range(e, d):
                    H[c, e] += T[a, c] * M[max(a, b), min(a, b)] * T[b, e]
            bad += 0.0 * H[c, e]
    return bad


@scalar_ieee
def factorise(H, d, C):
    """Fills C of H = C C', lower triangles."""
    for a in range(d):
        for b in range(a + 1):
            left = H[a, b]
            for c in range(b):
                left -= C[a, c] * C[b, c]
            C[a, b] = np.sqrt(left) if a == b else left / C[b, b]


@scalar_ieee
def solve(H, d, C, x):
    """Solves x = H^-1 x; C becomes the factor."""
    factorise(H, d, C)
    for a in range(d):
        for b in range(a):
            x[a] -= C[a, b] * x[b]
        x[a] /= C[a, a]
    for a in range(d - 1, -1, -1):
        for b in range(a + 1, d):
            x[a] -= C[b, a] * x[b]
        x[a] /= C[a, a]


@scalar_ieee
def least_squares(rows, begin, end, base, family, square, T, d, u):
    """Starts a search of counts: the weighted least squares of log(y + 1/2)."""
    Z, y, _ = rows
    G, M, H, C = np.zeros(EFFECTS), np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS))
    for i in range(begin, end):
        count = y[i] + 0.5
        weight = count if family == POISSON else count / (1.0 + square * count)
        for a in range(d):
            G[a] += weight * (np.log(count) - base[i]) * Z[i, a]
            for b in range(a + 1):
                M[a, b] += weight * Z[i, a] * Z[i, b]
    bad = turned(T, d, np.zeros(EFFECTS), G, M, u, H)
    solve(H, d, C, u)
    for a in range(d):
        bad += 0.0 * u[a]
    if bad != 0.0:
        u[:] = 0.0


@scalar_ieee
def mode(rows, begin, end, base, family, square, T, d, u, C):
    """Searches the mode by Newton's steps from 0 or `least_squares`, halved until l does not fall. u becomes the mode, C C' minus
    the Hessian there. Returns l; NaN if no mode is found."""
    u[:] = 0.0
    if family in (POISSON, NEGATIVE_BINOMIAL):
        least_squares(rows, begin, end, base, family, square, T, d, u)
    g, H = np.zeros(EFFECTS), np.zeros((EFFECTS, EFFECTS))
    next_g, next_H, step, tried = np.zeros(EFFECTS), np.zeros((EFFECTS, EFFECTS)), np.zeros(EFFECTS), np.zeros(EFFECTS)
    here = level(rows, begin, end, base, family, square, T, d, u, g, H)
    if not abs(here) < np.inf:
        return np.nan
    step[:] = g
    solve(H, d, C, step)
    for _ in range(STEPS):
        most = 0.0
        for a in range(d):
            tried[a] = u[a] + step[a]
            most = max(most, abs(step[a]))
        beyond = level(rows, begin, end, base, family, square, T, d, tried, next_g, next_H)
        # A step that lowers l, but for rounding, is halved: far from the mode Newton overshoots.
        if beyond >= here - SLACK * (1.0 + abs(here)) and abs(beyond) < np.inf:
            here = beyond
            u[:], g[:], H[:] = tried, next_g, next_H
            if most < NEAR:
                factorise(H, d, C)
                return here
            step[:] = g
            solve(H, d, C, step)
        else:
            for a in range(d):
                step[a] *= 0.5
    return np.nan


@scalar_ieee
def invert(C, d, inverse):
    """Inverts a lower triangle."""
    for a in range(d):
        for b in range(a + 1):
            left = 1.0 if a == b else 0.0
            for c in range(b, a):
                left -= C[a, c] * inverse[c, b]
            inverse[a, b] = left / C[a, a]


@scalar_ieee
def terms_of(rows, begin, end, base, family, square, T, d, t, weight, u, inverse, effects, terms):
    """Returns the logarithm of the sum of a group's terms at all nodes. The logarithms of the terms are filled in, and the
    effects are put into `at` (K, d)."""
    Z, y, trials = rows
    most = -np.inf
    v = np.zeros(EFFECTS)
    for k in range(len(t)):
        term = weight[k]
        for a in range(d):
            effects[k, a] = u[a]
            for b in range(a, d):
                effects[k, a] += inverse[b, a] * t[k, b]
            term -= 0.5 * effects[k, a] * effects[k, a]
        for a in range(d):
            v[a] = 0.0
            for b in range(a + 1):
                v[a] += T[a, b] * effects[k, b]
        for i in range(begin, end):
            eta = base[i]
            for a in range(d):
                eta += Z[i, a] * v[a]
            value, _, _ = row(eta, y[i], trials[i], family, square)
            term += value
        terms[k] = term
        most = max(most, term) if term == term else np.nan
    # The largest term is taken out before the exponentials: they would overflow, or all vanish.
    if not abs(most) < np.inf:
        return np.nan
    total = 0.0
    for k in range(len(t)):
        total += np.exp(terms[k] - most)
    return most + np.log(total)


@scalar_ieee
def predictors(X, offset, xi, base):
    for i in range(len(X)):
        base[i] = offset[i]
        for j in range(X.shape[1]):
            base[i] += X[i, j] * xi[j]


@loop_ieee
def values_of(points, X, Z, y, trials, offset, starts, counts, family, t, weight, value):
    p, d, K = X.shape[1], Z.shape[1], len(t)
    rows, constant = (Z, y, trials), constant_of(y, trials, family)
    base, effects, terms = np.empty(len(y)), np.empty((K, EFFECTS)), np.empty(K)
    T, C, inverse, u = np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS)), np.zeros(EFFECTS)
    for s in range(len(points)):
        value[s] = np.nan
        if not np.isfinite(points[s]).all() or constant != constant:
            continue
        square, last = place(points[s], p, d, family, T)
        predictors(X, offset, points[s], base)
        total = constant
        if family == GAUSSIAN:
            total -= len(y) * last
        if family == NEGATIVE_BINOMIAL:
            total += rising(counts, square)
        for g in range(len(starts) - 1):
            begin, end = starts[g], starts[g + 1]
            if begin == end:
                continue  # the integral of an empty group is 1
            total += 0.0 * mode(rows, begin, end, base, family, square, T, d, u, C)  # NaN: not found
            invert(C, d, inverse)
            total += terms_of(rows, begin, end, base, family, square, T, d, t, weight, u, inverse, effects, terms)
            for a in range(d):
                total -= np.log(C[a, a])
        value[s] = total if abs(total) < np.inf else np.nan


@scalar_ieee
def derivative(Z_row, X_row, T, p, d, u, q):
    """Computes d eta / d xi of a row at fixed u."""
    for j in range(p):
        q[j] = X_row[j]
    number = p
    for a in range(d):
        for b in range(a + 1):
            factor = T[a, a] if a == b else 1.0
            q[number] = Z_row[a] * u[b] * factor
            number += 1


@loop_ieee
def curvature_of(points, X, Z, y, trials, offset, starts, counts, family, t, weight, value, gradient, minus_hessian):
    """Computes gradient and minus Hessian of each group by Louis (1982): gradient = E D, minus the Hessian = E[-D'] - cov(D); D =
    d log p(y, u | xi) / d xi."""
    p, d, K, P = X.shape[1], Z.shape[1], len(t), points.shape[1]
    rows, constant, dispersed = (Z, y, trials), constant_of(y, trials, family), family in (GAUSSIAN, NEGATIVE_BINOMIAL)
    base, effects, terms, D, mean = np.empty(len(y)), np.empty((K, EFFECTS)), np.empty(K), np.empty((K, P)), np.empty(P)
    T, C, inverse, u = np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS)), np.zeros((EFFECTS, EFFECTS)), np.zeros(EFFECTS)
    q, slope, information = np.zeros(P), np.empty(P), np.empty((P, P))
    for s in range(len(points)):
        value[s], gradient[s], minus_hessian[s] = np.nan, np.nan, np.nan
        if not np.isfinite(points[s]).all() or constant != constant:
            continue
        square, last = place(points[s], p, d, family, T)
        predictors(X, offset, points[s], base)
        total = constant
        slope[:], information[:] = 0.0, 0.0
        if family == GAUSSIAN:
            total -= len(y) * last
        if family == NEGATIVE_BINOMIAL:
            total += rising(counts, square)
            first_r, second_r = rising_slopes(counts, square)
            slope[P - 1] += 2.0 * last * first_r
            information[P - 1, P - 1] -= 2.0 * first_r + 4.0 * square * second_r
        for g in range(len(starts) - 1):
            begin, end = starts[g], starts[g + 1]
            if begin == end:
                continue
            total += 0.0 * mode(rows, begin, end, base, family, square, T, d, u, C)  # NaN: not found
            invert(C, d, inverse)
            log_sum = terms_of(rows, begin, end, base, family, square, T, d, t, weight, u, inverse, effects, terms)
            total += log_sum
            for a in range(d):
                total -= np.log(C[a, a])
            D[:], mean[:] = 0.0, 0.0
            for k in range(K):
                share = np.exp(terms[k] - log_sum)
                terms[k] = share
                for i in range(begin, end):
                    derivative(Z[i], X[i], T, p, d, effects[k], q)
                    eta = base[i]
                    for a in range(d):
                        for b in range(a + 1):
                            eta += Z[i, a] * T[a, b] * effects[k, b]
                    _, first, curve = row(eta, y[i], trials[i], family, square)
                    for j in range(P - dispersed):
                        D[k, j] += first * q[j]
                        for h in range(j + 1):
                            information[j, h] += share * curve * q[j] * q[h]
                    if dispersed:
                        of_shape, cross, second = dispersion(eta, y[i], last, family, square)
                        D[k, P - 1] += of_shape
                        for j in range(P - 1):
                            information[P - 1, j] -= share * cross * q[j]
                        information[P - 1, P - 1] -= share * second
                for a in range(d):  # logarithms: T_aa is its own derivative
                    j = p + a * (a + 1) // 2 + a
                    information[j, j] -= share * D[k, j]
                for j in range(P):
                    mean[j] += share * D[k, j]
            for j in range(P):
                slope[j] += mean[j]
                for k in range(K):
                    D[k, j] -= mean[j]
                for h in range(j + 1):
                    for k in range(K):
                        information[j, h] -= terms[k] * D[k, j] * D[k, h]
        good = abs(total) < np.inf and np.isfinite(slope).all()
        for j in range(P):
            good = good and np.isfinite(information[j, : j + 1]).all()
        if good:
            value[s], gradient[s] = total, slope
            for j in range(P):
                minus_hessian[s, j * (j + 1) // 2 : (j + 1) * (j + 2) // 2] = information[j, : j + 1]


def rule(nodes, d):
    """Returns nodes (K, d) of the standard normal, and log w + t't / 2 with weights that add up to 1."""
    t, w = hermegauss(nodes)
    places = np.array(list(product(range(nodes), repeat=d)), dtype=int).reshape(nodes**d, d)
    return t[places], (np.log(w / w.sum()) + 0.5 * t * t)[places].sum(axis=1)


def prepared(points, X, Z, y, trials, offset, starts, nodes):
    """Returns contiguous copies: one compilation for every layout. Without effects all rows are one group."""
    n, d = Z.shape
    trials = np.ones(n) if trials is None else trials
    offset = np.zeros(n) if offset is None else offset
    starts = starts if d else np.array([0, n])
    arrays = [np.array(a, dtype=np.float64, order="C") for a in (points, X, Z, y, trials, offset)]
    return *arrays, np.array(starts, dtype=np.int64), np.sort(arrays[3]), *rule(nodes, d)


def values(points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes, value, n_threads):
    n_nodes = 1 if family == GAUSSIAN else nodes
    *arrays, t, weight = prepared(points, X, Z, y, trials, offset, starts, n_nodes)
    of_points = np.empty(len(points))
    values_of(*arrays, family, t, weight, of_points)
    value[:] = of_points


def curvature(
    points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes, value, gradient, minus_hessian, n_threads
):  # fmt: skip
    n_nodes = 3 if family == GAUSSIAN else nodes
    *arrays, t, weight = prepared(points, X, Z, y, trials, offset, starts, n_nodes)
    results = [np.empty(out.shape) for out in (value, gradient, minus_hessian)]
    curvature_of(*arrays, family, t, weight, *results)
    for out, result in zip((value, gradient, minus_hessian), results):
        out[...] = result
