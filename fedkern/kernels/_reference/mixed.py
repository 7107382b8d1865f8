"""What the kernels of mixed models mean: all nodes of all groups, written down. float64, plain and slow; points in pieces.

A group is (l, u): l(u) = sum_i log p(y_i | eta_i) - u'u / 2, what does not depend on u left out until the end.
"""

from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, gammaln

BINOMIAL, POISSON, GAUSSIAN, NEGATIVE_BINOMIAL = range(4)
MOST_ETA = 690.0  # of a logarithm of a mean: beyond it a value is as bad as it gets, and finite
MOST_TERMS = 1e8  # of a negative binomial's count, whose curvature is a sum of so many
MOST_CURVE = 1e8  # of a row in the search, beside y
STEP, STEPS, HALVINGS = 1e-9, 400, 60  # of the search for a mode
PIECE = 200_000  # rows times points at a time


class Rows:
    def __init__(self, X, Z, y, trials, offset, starts, family):
        self.X, self.Z, self.family = np.array(X), np.array(Z), family
        (self.n, self.p), self.d = X.shape, Z.shape[1]
        self.y = np.array(y)
        self.trials = np.ones(self.n) if trials is None else np.array(trials)
        self.offset = np.zeros(self.n) if offset is None else np.array(offset)
        sizes = np.diff(starts) if self.d else np.array([self.n])
        self.starts = (starts[:-1] if self.d else np.zeros(1, np.int64))[sizes > 0]  # the integral of an empty group is 1
        self.group = np.repeat(np.arange(len(self.starts)), sizes[sizes > 0])

    def sums(self, values):
        """(S, n, ..) -> sums over the rows of each group."""
        if not len(self.starts):
            return np.zeros((len(values), 0, *values.shape[2:]))
        return np.add.reduceat(values, self.starts, axis=1)

    def eta(self, fixed, T, u):
        """u (S, G, d) -> the predictor (S, n)."""
        effects = np.einsum("sab,sgb->sga", T, u)
        return fixed + np.einsum("na,sna->sn", self.Z, effects[:, self.group])

    def rows(self, eta, scale):
        """l without normalisers, dl / deta and -d2l / deta2 of each row; scale (S, 1) is phi^2 or the precision."""
        y = self.y
        if self.family == BINOMIAL:
            p = expit(eta)
            return y * eta - self.trials * np.logaddexp(0, eta), y - self.trials * p, self.trials * p * expit(-eta)
        if self.family == GAUSSIAN:
            return -0.5 * scale * (y - eta) ** 2, scale * (y - eta), scale + 0 * eta
        eta = np.minimum(eta, MOST_ETA)
        mean = np.exp(eta)
        if self.family == POISSON:
            return y * eta - mean, y - mean, mean
        x = scale * mean
        value = y * eta - y * np.log1p(x) - mean * log1p_ratio(x)[0]
        return value, (y - mean) / (1 + x), mean / (1 + x) * ((1 + scale * y) / (1 + x))

    def constant(self, xi):
        """What does not depend on u: the sum over all rows, for each point. NaN if a response is not of the family."""
        y, trials = self.y, self.trials
        if self.family == GAUSSIAN:
            return -self.n * (xi[:, -1] + 0.5 * np.log(2 * np.pi)) + 0 * y.sum()
        good = (y >= 0) & (y == np.floor(y)) & np.isfinite(y)
        if self.family == BINOMIAL:
            good &= (y <= trials) & (trials == np.floor(trials)) & np.isfinite(trials)
        if not good.all():
            return np.full(len(xi), np.nan)
        if self.family == BINOMIAL:
            return np.full(len(xi), (gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)).sum())
        constant = np.full(len(xi), -gammaln(y + 1).sum())
        if self.family == NEGATIVE_BINOMIAL:
            constant += [rising(y, phi**2)[0] for phi in xi[:, -1]]
        return constant


def log1p_ratio(x):
    """log(1 + x) / x and its first two derivatives, x >= 0."""
    small = np.minimum(x, 0.1)
    series = [np.zeros_like(x) for _ in range(3)]
    for j in reversed(range(18)):  # sum (-x)^j / (j + 1)
        c = (-1) ** j / (j + 1)
        series[0] = series[0] * small + c
        if j >= 1:
            series[1] = series[1] * small + j * c
        if j >= 2:
            series[2] = series[2] * small + j * (j - 1) * c
    large = np.maximum(x, 0.1)
    zeroth = np.log1p(large) / large
    first = (1 / (1 + large) - zeroth) / large
    second = (-1 / (1 + large) / (1 + large) - 2 * first) / large
    return [np.where(x < 0.1, s, closed) for s, closed in zip(series, (zeroth, first, second))]


def rising(y, a):
    """sum over rows of sum_{k < y} log(1 + k a) = log Gamma(y + 1/a) - log Gamma(1/a) + y log a, and two derivatives in a."""
    if y.max(initial=0) > MOST_TERMS:
        return (gammaln(y + 1 / a) - gammaln(1 / a) + y * np.log(a)).sum(), np.nan, np.nan
    k = np.arange(int(y.max(initial=0)))
    count = len(y) - np.searchsorted(np.sort(y), k, side="right")  # rows with y > k
    slope = k / (1 + k * a)
    return (count * np.log1p(k * a)).sum(), (count * slope).sum(), -(count * slope**2).sum()


def rule(nodes, d):
    """Nodes (K, d) of the standard normal in d dimensions, and the logarithms of weights that add up to 1."""
    t, w = hermegauss(nodes)
    log_w = np.log(w / w.sum())
    at = np.array(list(product(range(nodes), repeat=d)), dtype=int).reshape(nodes**d, d)
    return t[at], log_w[at].sum(axis=1)


def factor_of(xi, p, d):
    """T (S, d, d) of each point."""
    T = np.zeros((len(xi), d, d))
    for j, (a, b) in enumerate(lower(d)):
        T[:, a, b] = np.exp(xi[:, p + j]) if a == b else xi[:, p + j]
    return T


def lower(d):
    return [(a, b) for a in range(d) for b in range(a + 1)]


def cholesky(H):
    """C of H = C C', for each of many; NaN where there is none."""
    C = np.zeros_like(H)
    for a in range(H.shape[-1]):
        for b in range(a + 1):
            left = H[..., a, b] - (C[..., a, :b] * C[..., b, :b]).sum(axis=-1)
            C[..., a, b] = np.sqrt(left) if a == b else left / C[..., b, b]
    return C


def inverse(C):
    """C^-1 of lower triangles."""
    back = np.zeros_like(C)
    for a in range(C.shape[-1]):
        for b in range(a + 1):
            left = (a == b) - (C[..., a, b:a] * back[..., b:a, b]).sum(axis=-1)
            back[..., a, b] = left / C[..., a, a]
    return back


def solved(H, g, good):
    """H^-1 g of each group; 0 where it is not good."""
    back = inverse(cholesky(np.where(good[..., None, None], H, np.eye(H.shape[-1]))))
    return np.einsum("sgba,sgbc,sgc->sga", back, back, np.where(good[..., None], g, 0.0))


def modes(rows, fixed, T, scale):
    """u (S, G, d) and -l'' there; NaN where it is not found. Newton steps, halved until l does not fall.

    From 0, or for counts from weighted least squares of log(y + 1/2): a mean that is far too large is left by one in each step.
    """
    S, G, d = len(fixed), len(rows.starts), rows.d
    ZZ = np.einsum("na,nb->nab", rows.Z, rows.Z)

    def at(u, second=True):
        value, slope, curve = rows.rows(rows.eta(fixed, T, u), scale)
        if rows.family in (POISSON, NEGATIVE_BINOMIAL):  # a step is the same, and the others' part is not lost in rounding
            less = np.minimum(1, MOST_CURVE * (1 + rows.y) / curve)
            slope, curve = slope * less, curve * less
        level = rows.sums(value) - 0.5 * (u**2).sum(axis=2)
        if not second:
            return level
        g = np.einsum("sab,sga->sgb", T, rows.sums(slope[:, :, None] * rows.Z)) - u
        H = np.einsum("sac,sgab,sbd->sgcd", T, rows.sums(curve[:, :, None, None] * ZZ), T) + np.eye(d)
        return level, g, H

    u = np.zeros((S, G, d))
    if d == 0:
        return u, np.zeros((S, G, 0, 0))
    if rows.family in (POISSON, NEGATIVE_BINOMIAL):
        count = rows.y + 0.5
        weight = count / (1 + scale * count) if rows.family == NEGATIVE_BINOMIAL else count + 0 * scale
        right = np.einsum("sab,sga->sgb", T, rows.sums((weight * (np.log(count) - fixed))[:, :, None] * rows.Z))
        H = np.einsum("sac,sgab,sbd->sgcd", T, rows.sums(weight[:, :, None, None] * ZZ), T) + np.eye(d)
        u = solved(H, right, np.isfinite(right).all(axis=2) & np.isfinite(H).all(axis=(2, 3)))
    found = np.zeros((S, G), bool)
    for _ in range(STEPS):
        level, g, H = at(u)
        good = np.isfinite(level) & np.isfinite(g).all(axis=2) & np.isfinite(H).all(axis=(2, 3))
        step = solved(H, g, good)
        for _ in range(HALVINGS):
            worse = ~(at(u + step, False) >= level - 1e-10 * (1 + np.abs(level))) & good & ~found
            if not worse.any():
                break
            step[worse] /= 2
        u = np.where((good & ~found)[:, :, None], u + step, u)
        found |= good & (np.abs(step).max(axis=2) < STEP)
        if (found | ~good).all():
            break
    _, _, H = at(u)
    return np.where(found[:, :, None], u, np.nan), H


def integrals(rows, xi, nodes):
    """Of some points: the logarithms of the terms of each group (S, G, K), log|C|, and the modes, C^-T and nodes for them."""
    fixed = xi[:, : rows.p] @ rows.X.T + rows.offset
    T = factor_of(xi, rows.p, rows.d)
    scale = np.ones((len(xi), 1))
    if rows.family == GAUSSIAN:
        scale = np.exp(-2 * xi[:, -1:])
    if rows.family == NEGATIVE_BINOMIAL:
        scale = xi[:, -1:] ** 2
    u, H = modes(rows, fixed, T, scale)
    bad = ~np.isfinite(H).all(axis=(2, 3)) | np.isnan(u).any(axis=2)
    C = cholesky(np.where(bad[..., None, None], np.eye(rows.d), H))
    back = np.swapaxes(inverse(C), 2, 3)
    log_det = np.where(bad, np.nan, np.log(np.diagonal(C, axis1=2, axis2=3)).sum(axis=2))
    t, log_w = rule(nodes, rows.d)
    terms = np.empty((*u.shape[:2], len(t)))
    for k, t_k in enumerate(t):
        u_k = u + back @ t_k
        value = rows.rows(rows.eta(fixed, T, u_k), scale)[0]
        terms[:, :, k] = log_w[k] + rows.sums(value) - 0.5 * (u_k**2).sum(axis=2) + 0.5 * t_k @ t_k
    return terms, log_det, (fixed, T, scale, u, back, t)


def log_sum(terms):
    most = np.where(np.isfinite(most := terms.max(axis=2)), most, 0.0)
    return most + np.log(np.exp(terms - most[:, :, None]).sum(axis=2))


def pieces(points, n):
    step = max(1, PIECE // max(n, 1))
    return [slice(i, i + step) for i in range(0, len(points), step)]


def values(points, X, Z, y, trials, offset, starts, family, nodes, value, n_threads):
    rows = Rows(X, Z, y, trials, offset, starts, family)
    with np.errstate(all="ignore"):
        for part in pieces(points, rows.n):
            xi = np.array(points[part])
            terms, log_det, _ = integrals(rows, xi, 1 if family == GAUSSIAN else nodes)
            value[part] = finite((log_sum(terms) - log_det).sum(axis=1) + rows.constant(xi), xi)


def finite(value, xi):
    """NaN where it is not finite, or its point is not."""
    return np.where(np.isfinite(value) & np.isfinite(xi).all(axis=1), value, np.nan)


def curvature(points, X, Z, y, trials, offset, starts, family, nodes, value, gradient, minus_hessian, n_threads):
    rows = Rows(X, Z, y, trials, offset, starts, family)
    with np.errstate(all="ignore"):
        for i in range(len(points)):
            of_point(rows, np.array(points[i : i + 1]), 3 if family == GAUSSIAN else nodes, i, value, gradient, minus_hessian)


def of_point(rows, xi, nodes, i, value, gradient, minus_hessian):
    """Louis (1982): grad = E d, minus the Hessian = E[-d'] - cov(d), of each group and added up; d = d log p(y, u | xi) / dxi."""
    p, d, P, G = rows.p, rows.d, xi.shape[1], len(rows.starts)
    terms, log_det, (fixed, T, scale, u, back, t) = integrals(rows, xi, nodes)
    total = log_sum(terms)
    weight = np.exp(terms - total[:, :, None])[0]  # (G, K)
    F = np.hstack([rows.X, rows.Z])
    FF = np.einsum("na,nb->nab", F, F)
    first_of, mean, second = [], np.zeros((G, P)), np.zeros((G, P, P))
    for k, t_k in enumerate(t):
        u_k = u + back @ t_k
        eta = rows.eta(fixed, T, u_k)
        _, slope, curve = rows.rows(eta, scale)
        first = rows.sums(slope[:, :, None] * F)[0]
        inner = rows.sums(curve[:, :, None, None] * FF)[0]
        J = np.zeros((G, P, p + d))  # of the fixed and the group's part of eta
        J[:, range(p), range(p)] = 1
        for j, (a, b) in enumerate(lower(d)):
            J[:, p + j, p + a] = u_k[0, :, b] * (T[0, a, a] if a == b else 1.0)
        D = np.einsum("gij,gj->gi", J, first)
        M = np.einsum("gia,gab,gjb->gij", J, inner, J)
        for j, (a, b) in enumerate(lower(d)):
            if a == b:
                M[:, p + j, p + j] -= D[:, p + j]
        if P > p + d * (d + 1) // 2:
            own, cross, own_second = dispersion(rows, eta, xi[0, -1])
            D[:, -1] = rows.sums(own)[0]
            mixed = -np.einsum("gij,gj->gi", J, rows.sums(cross[:, :, None] * F)[0])[:, :-1]
            M[:, -1, :-1], M[:, :-1, -1], M[:, -1, -1] = mixed, mixed, -rows.sums(own_second)[0]
        first_of.append(D)
        mean += weight[:, k, None] * D
        second += weight[:, k, None, None] * M
    off = [D - mean for D in first_of]
    information = second.sum(axis=0) - sum(np.einsum("g,gi,gj->ij", weight[:, k], D, D) for k, D in enumerate(off))
    slope = mean.sum(axis=0)
    constant = rows.constant(xi)
    if rows.family == NEGATIVE_BINOMIAL and np.isfinite(constant).all():  # what does not depend on u
        phi = xi[0, -1]
        _, one, two = rising(rows.y, phi**2)
        slope[-1] += 2 * phi * one
        information[-1, -1] -= 2 * one + 4 * phi**2 * two
    results = [*finite((total - log_det).sum(axis=1) + constant, xi), *slope, *information[np.tril_indices(P)]]
    if not np.isfinite(results).all():
        results = np.full(len(results), np.nan)
    value[i], gradient[i], minus_hessian[i] = results[0], results[1 : 1 + P], results[1 + P :]


def dispersion(rows, eta, w):
    """Of each row, in its last coordinate: dl / dw, d2l / dw deta, d2l / dw2, without what `rising` has."""
    y = rows.y
    if rows.family == GAUSSIAN:
        r, tau = y - eta, np.exp(-2 * w)
        return tau * r**2 - 1, -2 * tau * r, -2 * tau * r**2
    a, mean = w**2, np.exp(np.minimum(eta, MOST_ETA))
    x, m = a * mean, mean / (1 + a * mean)
    _, one, two = log1p_ratio(x)  # of h = log(1 + a mean) / a
    near = x < 0.1
    h_a = np.where(near, mean**2 * one, (m - mean * log1p_ratio(x)[0]) / a)
    h_aa = np.where(near, mean**3 * two, (-(m**2) - 2 * h_a) / a)
    l_a, l_aa, l_ae = -y * m - h_a, y * m**2 - h_aa, -(y - mean) / (1 + x) * m
    return 2 * w * l_a, 2 * w * l_ae, 2 * l_a + 4 * a * l_aa
