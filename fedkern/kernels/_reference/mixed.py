"""Defines the kernels of mixed models in plain NumPy: all nodes of all groups, written down. float64 and slow; points in pieces.

A group is (l, u): l(u) = sum_i log p(y_i | eta_i) - u'u / 2, with the terms that do not depend on u left out until the end.
"""

from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from .._rows import HALF_LOG_TAU
from .mixed_families import (
    Beta,
    BetaBinomial,
    Binomial,
    Cloglog,
    Exponential,
    Gamma,
    Gaussian,
    HurdleNegativeBinomial,
    HurdlePoisson,
    InverseGaussian,
    LogLogisticTime,
    LogNormal,
    LogNormalTime,
    NegativeBinomial,
    Ordinal,
    OrdinalProbit,
    Piecewise,
    Poisson,
    PoissonLognormal,
    Probit,
    Student,
    Weibull,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

FAMILIES = (
    Binomial, Poisson, Gaussian, NegativeBinomial, Student, Gamma, Beta, ZeroInflatedPoisson, ZeroInflatedNegativeBinomial,
    Ordinal, OrdinalProbit, Weibull, Exponential, Piecewise, Probit, Cloglog, BetaBinomial, LogNormal, InverseGaussian,
    HurdlePoisson, HurdleNegativeBinomial, PoissonLognormal, LogNormalTime, LogLogisticTime,
)  # fmt: skip

MOST_CURVE = 1e8  # of a row in the search, beside its size
STEP, STEPS, HALVINGS = 1e-9, 600, 60  # of the search for a mode, from far away in steps of one
PIECE = 200_000  # rows times points at a time


class Rows:
    def __init__(self, X, Z, y, trials, offset, starts, upper, cuts, entry, family):
        self.X, self.Z = np.array(X), np.array(Z)
        (self.n, self.p), self.d = X.shape, Z.shape[1]
        trials = np.ones(self.n) if trials is None else np.array(trials)
        upper, cuts, entry = (None if values is None else np.array(values) for values in (upper, cuts, entry))
        self.family = FAMILIES[family](np.array(y), trials, upper, cuts, entry)
        self.offset = np.zeros(self.n) if offset is None else np.array(offset)
        sizes = np.diff(starts) if self.d else np.array([self.n])
        begins = starts[:-1] if self.d else np.zeros(1, np.int64)
        self.starts = begins[sizes > 0]  # the integral of an empty group is 1
        self.group = np.repeat(np.arange(len(self.starts)), sizes[sizes > 0])

    @property
    def shapes_at(self):
        """Returns where the shape numbers of a point begin."""
        return self.p + self.d * (self.d + 1) // 2

    @property
    def quadratic(self):
        return isinstance(self.family, Gaussian)

    def good(self, m):
        return self.family.good(m).all()

    def sums(self, values):
        """Returns sums over the rows of each group, of (S, n, ..)."""
        if not len(self.starts):
            return np.zeros((len(values), 0, *values.shape[2:]))
        return np.add.reduceat(values, self.starts, axis=1)

    def eta(self, fixed, T, u):
        """Returns the predictor (S, n) of u (S, G, d)."""
        effects = np.einsum("sab,sgb->sga", T, u)
        return fixed + np.einsum("na,sna->sn", self.Z, effects[:, self.group])


def rule(nodes, d):
    """Returns nodes (K, d) of the standard normal in d dimensions, and the logarithms of weights that add up to 1."""
    t, w = hermegauss(nodes)
    log_w = np.log(w / w.sum())
    places = np.array(list(product(range(nodes), repeat=d)), dtype=int).reshape(nodes**d, d)
    return t[places], log_w[places].sum(axis=1)


def factor_of(xi, p, d):
    """Returns T (S, d, d) of each point."""
    T = np.zeros((len(xi), d, d))
    for j, (a, b) in enumerate(lower(d)):
        T[:, a, b] = np.exp(xi[:, p + j]) if a == b else xi[:, p + j]
    return T


def lower(d):
    return [(a, b) for a in range(d) for b in range(a + 1)]


def cholesky(H):
    """Returns C of H = C C', for each of many; NaN where no factor exists."""
    C = np.zeros_like(H)
    for a in range(H.shape[-1]):
        for b in range(a + 1):
            left = H[..., a, b] - (C[..., a, :b] * C[..., b, :b]).sum(axis=-1)
            C[..., a, b] = np.sqrt(left) if a == b else left / C[..., b, b]
    return C


def inverse(C):
    """Returns C^-1 of lower triangles."""
    back = np.zeros_like(C)
    for a in range(C.shape[-1]):
        for b in range(a + 1):
            left = (a == b) - (C[..., a, b:a] * back[..., b:a, b]).sum(axis=-1)
            back[..., a, b] = left / C[..., a, a]
    return back


def solved(H, g, good):
    """Returns H^-1 g of each group; 0 where it is not good."""
    back = inverse(cholesky(np.where(good[..., None, None], H, np.eye(H.shape[-1]))))
    return np.einsum("sgba,sgbc,sgc->sga", back, back, np.where(good[..., None], g, 0.0))


def modes(rows, fixed, T, w):
    """Returns the modes u (S, G, d) and -l'' there; NaN where a mode is not found. Newton steps are halved until l does not fall.

    From 0, or for counts and times from weighted least squares: a mean that is far too large is left by one in each step.
    """
    S, G, d = len(fixed), len(rows.starts), rows.d
    ZZ = np.einsum("na,nb->nab", rows.Z, rows.Z)
    parts, counted = rows.family.parts(w), rows.family.counted
    weight, target, size = rows.family.start(w) if counted else (None, None, None)

    def at(u, second=True):
        value, slope, curve = rows.family.row(rows.eta(fixed, T, u), *parts)
        if counted:  # a step is the same, and the others' part is not lost in rounding
            less = np.minimum(1, MOST_CURVE * (1 + size) / curve)
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
    if counted:
        right = np.einsum("sab,sga->sgb", T, rows.sums((weight * (target - fixed))[:, :, None] * rows.Z))
        H = np.einsum("sac,sgab,sbd->sgcd", T, rows.sums(weight[:, :, None, None] * ZZ), T) + np.eye(d)
        u = solved(H, right, np.isfinite(right).all(axis=2) & np.isfinite(H).all(axis=(2, 3)))
    done = np.zeros((S, G), bool)
    for _ in range(STEPS):
        level, g, H = at(u)
        good = np.isfinite(level) & np.isfinite(g).all(axis=2) & np.isfinite(H).all(axis=(2, 3))
        step = solved(H, g, good)
        for _ in range(HALVINGS):
            # A step that lowers l, but for rounding, is halved; groups that are done stay.
            worse = ~(at(u + step, False) >= level - 1e-10 * (1 + np.abs(level))) & good & ~done
            if not worse.any():
                break
            step[worse] /= 2
        u = np.where((good & ~done)[:, :, None], u + step, u)
        done |= good & (np.abs(step).max(axis=2) < STEP)
        if (done | ~good).all():
            break
    _, _, H = at(u)
    return np.where(done[:, :, None], u, np.nan), H


def integrals(rows, xi, nodes):
    """Returns, for some points, logarithms (S, G, K) of terms that add up to each group's integral, and their effects u (S, G, K,
    d)."""
    fixed = xi[:, : rows.p] @ rows.X.T + rows.offset
    T, w = factor_of(xi, rows.p, rows.d), xi[:, rows.shapes_at :]
    if rows.d and not rows.family.concave:
        return of_panels(rows, fixed, T, w, nodes)
    u, H = modes(rows, fixed, T, w)
    bad = ~np.isfinite(H).all(axis=(2, 3)) | np.isnan(u).any(axis=2)
    C = cholesky(np.where(bad[..., None, None], np.eye(rows.d), H))
    back = np.swapaxes(inverse(C), 2, 3)
    log_det = np.where(bad, np.nan, np.log(np.diagonal(C, axis1=2, axis2=3)).sum(axis=2))
    t, log_w = rule(nodes, rows.d)
    terms, places, parts = np.empty((*u.shape[:2], len(t))), np.empty((*u.shape[:2], len(t), rows.d)), rows.family.parts(w)
    for k, t_k in enumerate(t):
        places[:, :, k] = u_k = u + back @ t_k
        value = rows.family.row(rows.eta(fixed, T, u_k), *parts)[0]
        terms[:, :, k] = log_w[k] + rows.sums(value) - 0.5 * (u_k**2).sum(axis=2) + 0.5 * t_k @ t_k - log_det
    return terms, places


def of_panels(rows, fixed, T, w, nodes):
    """Returns the numbers of `integrals` where no mode leads; a place that an integral does not need has weight 0."""
    S, G, parts = len(fixed), len(rows.starts), rows.family.parts(w)
    if not G or not S:
        return np.zeros((S, G, 1)), np.zeros((S, G, 1, 1))
    tops = rows.family.row(rows.family.mode(w), *parts)[0]
    s, g, u, logs, bad = nodes_of(Integrands(rows, fixed, T[:, 0], parts), tops, nodes)
    count = np.bincount(s * G + g, minlength=S * G)
    number = np.arange(len(s)) - np.repeat(np.cumsum(count) - count, count)
    terms, places = np.full((S, G, count.max(initial=1)), -np.inf), np.zeros((S, G, count.max(initial=1), 1))
    terms[s, g, number], places[s, g, number, 0] = logs - HALF_LOG_TAU, u
    terms[bad] = np.nan
    return terms, places


def log_sum(terms):
    most = np.where(np.isfinite(most := terms.max(axis=2)), most, 0.0)
    return most + np.log(np.exp(terms - most[:, :, None]).sum(axis=2))


def pieces(points, n):
    step = max(1, PIECE // max(n, 1))
    return [slice(i, i + step) for i in range(0, len(points), step)]


def values(points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes, value, n_threads):
    rows = Rows(X, Z, y, trials, offset, starts, upper, cuts, entry, family)
    with np.errstate(all="ignore"):
        if not rows.good(points.shape[1] - rows.shapes_at):
            value[:] = np.nan
            return
        for part in pieces(points, rows.n):
            xi = np.array(points[part])
            n_nodes = 1 if rows.quadratic else nodes
            terms, _ = integrals(rows, xi, n_nodes)
            value[part] = finite(log_sum(terms).sum(axis=1) + rows.family.constant(xi[:, rows.shapes_at :]), xi)


def finite(value, xi):
    """Returns the array with NaN where it, or its point, is not finite."""
    return np.where(np.isfinite(value) & np.isfinite(xi).all(axis=1), value, np.nan)


def curvature(
    points, X, Z, y, trials, offset, starts, upper, cuts, entry, family, nodes, value, gradient, minus_hessian, n_threads
):
    rows = Rows(X, Z, y, trials, offset, starts, upper, cuts, entry, family)
    good = rows.good(points.shape[1] - rows.shapes_at)
    with np.errstate(all="ignore"):
        for i in range(len(points)):
            xi, P = np.array(points[i : i + 1]), points.shape[1]
            results = np.array([np.nan])
            if good and np.isfinite(xi).all():
                n_nodes = 3 if rows.quadratic else nodes
                results = of_point(rows, xi, n_nodes)
            if not np.isfinite(results).all():
                results = np.full(1 + P + P * (P + 1) // 2, np.nan)
            value[i], gradient[i], minus_hessian[i] = results[0], results[1 : 1 + P], results[1 + P :]


def of_point(rows, xi, nodes):
    """Computes gradient and minus Hessian by Louis (1982): grad = E d, minus the Hessian = E[-d'] - cov(d), of each group and
    added up; d = d log p(y, u | xi) / dxi."""
    p, d, P, G, shapes = rows.p, rows.d, xi.shape[1], len(rows.starts), slice(rows.shapes_at, None)
    w = xi[:, shapes]
    fixed, T, parts = xi[:, :p] @ rows.X.T + rows.offset, factor_of(xi, p, d), rows.family.parts(w)
    terms, places = integrals(rows, xi, nodes)
    total = log_sum(terms)
    weight = np.exp(terms - total[:, :, None])[0]  # (G, K)
    F = np.hstack([rows.X, rows.Z])
    FF = np.einsum("na,nb->nab", F, F)
    first_of, mean, second = [], np.zeros((G, P)), np.zeros((G, P, P))
    for k in range(terms.shape[2]):
        u_k = places[:, :, k]
        eta = rows.eta(fixed, T, u_k)
        _, slope, curve = rows.family.row(eta, *parts)
        first = rows.sums(slope[:, :, None] * F)[0]
        inner = rows.sums(curve[:, :, None, None] * FF)[0]
        J = np.zeros((G, P, p + d))  # of the fixed and the group's part of eta
        J[:, range(p), range(p)] = 1
        for j, (a, b) in enumerate(lower(d)):
            diagonal = T[0, a, a] if a == b else 1.0
            J[:, p + j, p + a] = u_k[0, :, b] * diagonal
        D = np.einsum("gij,gj->gi", J, first)
        M = np.einsum("gia,gab,gjb->gij", J, inner, J)
        for j, (a, b) in enumerate(lower(d)):
            if a == b:
                M[:, p + j, p + j] -= D[:, p + j]
        slope_of_shapes, cross, constant_curvature = rows.family.own(eta[0], w[0])
        D[:, shapes] = rows.sums(slope_of_shapes.T[None])[0]
        mixed = -np.einsum("gij,gjw->giw", J, rows.sums(np.einsum("wn,nj->njw", cross, F)[None])[0])
        M[:, :, shapes] += mixed
        M[:, shapes] += mixed.swapaxes(1, 2)
        M[:, shapes, shapes] -= rows.sums(np.moveaxis(constant_curvature, 2, 0)[None])[0]
        first_of.append(D)
        mean += weight[:, k, None] * D
        second += weight[:, k, None, None] * M
    off = [D - mean for D in first_of]
    information = second.sum(axis=0) - sum(np.einsum("g,gi,gj->ij", weight[:, k], D, D) for k, D in enumerate(off))
    slope = mean.sum(axis=0)
    slope_of_shapes, constant_curvature = rows.family.constant_slopes(w[0])  # of what does not depend on u
    slope[shapes] += slope_of_shapes
    information[shapes, shapes] -= constant_curvature
    return np.concatenate([total.sum(axis=1) + rows.family.constant(w), slope, information[np.tril_indices(P)]])


# The rule for integrands that may have several modes, of one effect a group --------------------
#
# l(u) = sum_i l_i(eta_i(u)) - u^2 / 2, where each l_i rises to one mode and falls beyond it. So on a panel l is at most `bound`:
# of each row its mode's value if that is inside, else the larger of the ends', less the least u^2 / 2. Beyond |u| = `reach` l is
# 50 below l(0). Panels of Gauss and Legendre are halved until l is smooth on each (`rough`) and a row's mode stands out nowhere
# unseen at the ends or in the middle; those whose bound is 50 below the largest value seen are left out: less than e^-50 of the
# integrand's top is there.

FIRST = 8  # panels
DEPTH, MOST = 50, 4096  # halvings; panels of one integral: with more it is NaN
BELOW = 50.0
BENT, TILTED, MISFIT, HIDDEN = 3.0, 8.0, 0.03, 0.3


class Integrands:
    """Lays out the rows of all groups at all points one after the other, for any list of (point, group, u)."""

    def __init__(self, rows, fixed, T, parts):
        S, n = fixed.shape
        self.sizes = np.diff(np.append(rows.starts, n))
        self.rows, self.fixed, self.by = rows, fixed, T * rows.Z[:, 0]
        self.parts = [np.broadcast_to(part, (S, n)) for part in parts]

    def layout(self, s, g):
        """Returns for each row of each integrand which it is, the point, the row; and where each begins."""
        sizes = self.sizes[g]
        first = np.cumsum(sizes) - sizes
        integrand = np.repeat(np.arange(len(g)), sizes)
        return integrand, s[integrand], self.rows.starts[g][integrand] + np.arange(len(integrand)) - first[integrand], first

    def at(self, layout, u):
        """Returns values and slopes in u of the rows."""
        integrand, s, i, _ = layout
        by = self.by[s, i]
        value, slope, _ = self.rows.family.row(self.fixed[s, i] + by * u[integrand], *(part[s, i] for part in self.parts))
        return value, slope * by


def panels(integrands, tops):
    """Returns points, groups, lower and upper ends of all panels, and whether each integral (S, G) has too many or is not finite.

    `tops` (S, n) are the rows' largest values.
    """
    S, G = len(tops), len(integrands.sizes)
    s, g = (index.ravel() for index in np.indices((S, G)))
    layout = integrands.layout(s, g)
    # No likelihood can be above that at 0 by more than `gain`: beyond `reach` the integrand is at most e^-50 of its value at 0.
    gain = np.add.reduceat(tops[layout[1], layout[2]] - integrands.at(layout, np.zeros(S * G))[0], layout[3])
    bad = ~np.isfinite(gain)
    reach = np.sqrt(2 * (np.maximum(np.where(bad, 0, gain), 0) + BELOW))
    edges = np.linspace(-1, 1, FIRST + 1)
    s, g, reach = (np.repeat(numbers, FIRST) for numbers in (s, g, reach))
    low, high = reach * np.tile(edges[:-1], S * G), reach * np.tile(edges[1:], S * G)
    best, count = np.full(S * G, -np.inf), np.zeros(S * G, int)
    done = []
    for depth in range(DEPTH + 1):
        keep = ~bad[s * G + g]
        s, g, low, high = s[keep], g[keep], low[keep], high[keep]
        if not len(s):
            break
        owner, middle = s * G + g, 0.5 * (low + high)
        layout = integrands.layout(s, g)
        first, top = layout[3], tops[layout[1], layout[2]]
        (a, slope_a), (m, _), (b, slope_b) = (integrands.at(layout, u) for u in (low, middle, high))
        seen = np.maximum(np.maximum(a, m), b)
        # A row rises at the left end and falls at the right one: its top, which was not seen, is inside.
        inside = (slope_a > 0) & (slope_b < 0)
        hidden = np.maximum.reduceat(np.where(inside, top - seen, 0.0), first)
        bound = np.add.reduceat(np.where(inside, np.maximum(top, seen), seen), first)
        bound -= np.where(low * high < 0, 0, 0.5 * np.minimum(low**2, high**2))
        at_low, at_middle, at_high = (np.add.reduceat(x, first) - 0.5 * u**2 for x, u in ((a, low), (m, middle), (b, high)))
        tilt = np.add.reduceat(slope_a, first) - low - np.add.reduceat(slope_b, first) + high
        np.maximum.at(best, owner, np.maximum(np.maximum(at_low, at_middle), at_high))
        bend = at_middle - 0.5 * (at_low + at_high)
        # Panels on which the logarithm is not nearly a parabola are halved, but for the last depth.
        rough = (np.abs(2 * bend) > BENT) | (np.abs(at_high - at_low) > TILTED) | (hidden > HIDDEN)
        rough |= np.abs(bend - 0.125 * (high - low) * tilt) > MISFIT
        bad[owner[~np.isfinite(bound + bend)]] = True
        # A panel whose bound is far below the best value adds nothing.
        left = bound > best[owner] - BELOW
        ready = left & (~rough | (depth == DEPTH))
        done.append([numbers[ready] for numbers in (s, g, low, high)])
        np.add.at(count, owner[ready], 1)
        again = left & ~ready
        np.add.at(count, owner[again], 2)
        bad |= count > MOST
        count -= np.bincount(owner[again], minlength=S * G) * 2
        s, g = np.repeat(s[again], 2), np.repeat(g[again], 2)
        low, high = (np.column_stack([low[again], middle[again]]).ravel(), np.column_stack([middle[again], high[again]]).ravel())
    none = np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0)
    return *(np.concatenate(numbers) for numbers in zip(none, *done)), bad.reshape(S, G)


def nodes_of(integrands, tops, nodes):
    """Returns points, groups, places u and logarithms of the terms that add up to the integrals of exp(l); and which are bad (S,
    G).

    Nodes are sorted by integral.
    """
    s, g, low, high, bad = panels(integrands, tops)
    t, w = np.polynomial.legendre.leggauss(nodes)
    order = np.lexsort((low, g, s))
    s, g, low, high = s[order], g[order], low[order], high[order]
    u = (0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * t).ravel()
    weight = (np.log(0.5 * (high - low))[:, None] + np.log(w)).ravel()
    s, g = np.repeat(s, nodes), np.repeat(g, nodes)
    layout = integrands.layout(s, g)
    value = np.add.reduceat(integrands.at(layout, u)[0], layout[3]) if len(s) else np.zeros(0)
    return s, g, u, weight + value - 0.5 * u**2, bad
