"""Peers that an expert writes by hand in Numba: fused loops without temporaries, sums in any order (`fastmath`), and rows of
float32 that stay float32, whose sums are added up in float64 a block of rows at a time.

`agree()` compares those that draw nothing with NumPy, and exact draws with their moments. Each function compiles when it is
first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

BLOCK = 64  # rows whose sum stays in the type of the rows


@cache
def clip_sum() -> Any:
    """The sum of rows, each scaled to a norm of at most `bound`, added to `total`."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def by_hand(rows, bound, part, total):  # type: ignore[no-untyped-def]
        n, d = rows.shape
        zero = rows.dtype.type(0)
        limit = rows.dtype.type(bound)
        for first in range(0, n, BLOCK):
            for j in range(d):
                part[j] = zero
            for i in range(first, min(first + BLOCK, n)):
                row = rows[i]
                squared = zero
                for j in range(d):
                    squared += row[j] * row[j]
                norm = np.sqrt(squared)
                if norm > limit:
                    weight = limit / norm
                    for j in range(d):
                        part[j] += weight * row[j]
                else:
                    for j in range(d):
                        part[j] += row[j]
            for j in range(d):
                total[j] += part[j]

    return by_hand


@cache
def clipped_gradients() -> Any:
    """The sum of the clipped gradients of single rows of a logistic likelihood, added to `total`."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def by_hand(X, y, theta, scale, clip, part, total):  # type: ignore[no-untyped-def]
        n, d = X.shape
        zero, one, limit = X.dtype.type(0), X.dtype.type(1), X.dtype.type(clip)
        for first in range(0, n, BLOCK):
            for j in range(d):
                part[j] = zero
            for i in range(first, min(first + BLOCK, n)):
                row = X[i]
                a, squared = zero, zero
                for j in range(d):
                    x = row[j]
                    a += x * theta[j]
                    squared += x * x * scale[j]
                r = y[i] - one / (one + np.exp(-a))
                norm = abs(r) * np.sqrt(squared)
                weight = r * (limit / norm) if norm > limit else r
                for j in range(d):
                    part[j] += weight * row[j]
            for j in range(d):
                total[j] += part[j]

    return by_hand


@cache
def loglik_gradient(family: str) -> Any:
    """The log-likelihood of rows; its gradient is added to `total`."""
    from numba import njit

    poisson = family == "poisson"

    @njit(fastmath=True, error_model="numpy")
    def by_hand(X, y, theta, part, total):  # type: ignore[no-untyped-def]
        n, d = X.shape
        zero, one, value = X.dtype.type(0), X.dtype.type(1), 0.0
        for first in range(0, n, BLOCK):
            for j in range(d):
                part[j] = zero
            for i in range(first, min(first + BLOCK, n)):
                row = X[i]
                a = zero
                for j in range(d):
                    a += row[j] * theta[j]
                if poisson:
                    mean = np.exp(a)
                    value += y[i] * a - mean
                else:
                    t = np.exp(-abs(a))
                    value += y[i] * a - max(a, zero) - np.log(one + t)
                    mean = (one if a >= 0 else t) / (one + t)
                r = y[i] - mean
                for j in range(d):
                    part[j] += r * row[j]
            for j in range(d):
                total[j] += part[j]
        return value

    return by_hand


@cache
def fill(name: str) -> Any:
    """Fills an array with random numbers."""
    from numba import njit

    if name == "gamma":

        @njit(fastmath=True)
        def gamma(out, shape):  # type: ignore[no-untyped-def]
            for i in range(out.size):
                out[i] = np.random.standard_gamma(shape)  # noqa: NPY002

        return gamma
    if name == "inverse_gaussian":

        @njit(fastmath=True)
        def wald(out, mean, shape):  # type: ignore[no-untyped-def]
            for i in range(out.size):
                out[i] = np.random.wald(mean, shape)  # noqa: NPY002

        return wald
    draw = {"uniform": np.random.random, "normal": np.random.standard_normal, "exponential": np.random.standard_exponential}[name]

    @njit(fastmath=True)
    def plain(out):  # type: ignore[no-untyped-def]
        for i in range(out.size):
            out[i] = draw()

    return plain


@cache
def poisson_counts() -> Any:
    """Poisson counts by inversion of uniform numbers: probabilities are added up."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def by_hand(u, mean, first, counts):  # type: ignore[no-untyped-def]
        for i in range(len(u)):
            p, k = first[i], 0
            total = p
            while u[i] > total and k < 199:
                k += 1
                p *= mean[i] / k
                total += p
            counts[i] = k

    return by_hand


@cache
def discrete_gaussian() -> Any:
    """Exact draws of the discrete Gaussian from given words (Canonne, Kamath and Steinke 2020); returns how many words were used.

    A coin of d^2 / (2 sigma^2 k) is two coins, d / (sigma k) and d / (2 sigma), so that 64 bits are enough. Argument sigma is a
    `uint64` below 2^31, and there are words enough."""
    from numba import njit

    zero, one, two, limit = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(2**32)

    @njit(inline="always")
    def coin(words, at, a, b):  # type: ignore[no-untyped-def]
        while True:
            left, taken = a << np.uint64(32), b * np.uint64(words[at])
            at += one
            if left >= taken + b:
                return True, at
            if left <= taken:
                return False, at
            a = left - taken

    @njit(inline="always")
    def shared_coin(words, at, a, b, k):  # type: ignore[no-untyped-def]
        if b * k < limit:
            return coin(words, at, a, b * k)
        yes, at = coin(words, at, one, k)
        return coin(words, at, a, b) if yes else (False, at)

    @njit(inline="always")
    def exp_coin(words, at, a, b):  # type: ignore[no-untyped-def]
        k = one
        while True:
            yes, at = shared_coin(words, at, a, b, k)
            if not yes:
                return k & one == one, at
            k += one

    @njit(inline="always")
    def exp_one(words, at):  # type: ignore[no-untyped-def]
        k = two
        while True:
            yes, at = coin(words, at, one, k)
            if not yes:
                return k & one == one, at
            k += one

    @njit(inline="always")
    def square_coin(words, at, d, sigma):  # type: ignore[no-untyped-def]
        k = one
        while True:
            yes, at = shared_coin(words, at, d, sigma, k)
            if yes:
                yes, at = coin(words, at, d, two * sigma)
            if not yes:
                return k & one == one, at
            k += one

    @njit
    def by_hand(words, sigma, out):  # type: ignore[no-untyped-def]
        at, i, n = zero, 0, two * sigma
        uneven = limit % n
        while i < out.size:
            product = np.uint64(words[at]) * n
            at += one
            if product & np.uint64(0xFFFFFFFF) < uneven:
                continue
            signed = product >> np.uint64(32)
            part, negative = signed >> one, signed & one == one
            yes, at = exp_coin(words, at, part, sigma)
            if not yes:
                continue
            whole = zero
            while True:
                yes, at = exp_one(words, at)
                if not yes:
                    break
                whole += one
            if negative and part == zero and whole == zero:
                continue
            d, e = (part, whole - one) if whole > zero else (sigma - part, zero)
            accepted, left = True, e * e
            while accepted and left > zero:
                accepted, at = exp_coin(words, at, one, two)
                left -= one
            left = e
            while accepted and left > zero:
                accepted, at = exp_coin(words, at, d, sigma)
                left -= one
            if accepted:
                accepted, at = square_coin(words, at, d, sigma)
            if accepted:
                size = np.int64(part + sigma * whole)
                out[i] = -size if negative else size
                i += 1
        return at

    return by_hand


@cache
def sem_sweeps() -> Any:
    """Element sweeps of one chain: expanded scales, rank-one updates of the inverse, b. C-contiguous float64 arrays.

    Arguments Y (p, n), theta, tau_sq, d, lambda_sq (p, p), b (p,), step (p, p), n_sweeps; d, lambda_sq, b change in place.
    A proposal computes its sum alone and stores nothing; the residual changes only when it is accepted."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def sem_peer(Y, theta, tau_sq, d, lambda_sq, b, step, n_sweeps):  # type: ignore[no-untyped-def]
        p, n = Y.shape
        image = np.empty(p)
        column = np.empty(p)
        for _ in range(n_sweeps):
            for j in range(p):
                for h in range(p):
                    if h == j:  # d = 0 there: lambda^2 would wander to 0
                        continue
                    nu = (1 + 1 / lambda_sq[j, h]) / np.random.exponential()  # noqa: NPY002
                    lambda_sq[j, h] = (1 / nu + d[j, h] * d[j, h] / (2 * tau_sq[j, h])) / np.random.exponential()  # noqa: NPY002
            B = np.eye(p) - theta - d
            W, e = np.linalg.inv(B), B @ Y
            for j in range(p):
                ej = e[j]
                total = 0.0
                for i in range(n):
                    total += abs(ej[i])
                for h in range(p):
                    if h == j:
                        continue
                    delta = step[j, h] * np.random.normal()  # noqa: NPY002
                    ratio = 1 - delta * W[h, j]
                    yh = Y[h]
                    proposed = 0.0
                    for i in range(n):
                        proposed += abs(ej[i] - delta * yh[i])
                    gain = n * np.log(abs(ratio)) - (proposed - total) / b[j]
                    gain -= delta * (2 * d[j, h] + delta) / (2 * lambda_sq[j, h] * tau_sq[j, h])
                    if -np.random.exponential() < gain:  # noqa: NPY002
                        d[j, h] += delta
                        for i in range(n):
                            ej[i] -= delta * yh[i]
                        total = proposed
                        scale = delta / ratio
                        for k in range(p):
                            image[k] = scale * W[h, k]
                            column[k] = W[k, j]
                        for a in range(p):
                            factor = column[a]
                            for k in range(p):
                                W[a, k] += factor * image[k]
                b[j] = (1 + total) / np.random.gamma(2.0 + n)  # noqa: NPY002

    return sem_peer


@cache
def horseshoe_sweeps() -> Any:
    """Sweeps of one chain with the expanded scales, theta = 0, from the sufficient statistics, p small: a Cholesky by loops.

    Arguments gram = X'X (p, p), c = X'y, yy = y'y, n, tau_sq (p,), d, lambda_sq (p,), sigma_sq, n_sweeps. Returns sigma_sq."""
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def horseshoe_peer(gram, c, yy, n, tau_sq, d, lambda_sq, sigma_sq, n_sweeps):  # type: ignore[no-untyped-def]
        p = len(c)
        A = np.empty((p, p))
        s = np.empty(p)
        u = np.empty(p)
        inverse = np.empty(p)
        for _ in range(n_sweeps):
            for j in range(p):
                nu_inverse = np.random.exponential() / (1 + 1 / lambda_sq[j])  # noqa: NPY002
                lambda_sq[j] = (nu_inverse + d[j] * d[j] / (2 * tau_sq[j])) / np.random.exponential()  # noqa: NPY002
                s[j] = np.sqrt(lambda_sq[j] * tau_sq[j] / sigma_sq)
            sigma = np.sqrt(sigma_sq)
            # lower triangle of A = I + S G S, factorised as it is made (row by row), y = L^-1 rhs beside it
            for i in range(p):
                v = s[i] * c[i] / sigma
                for j in range(i):
                    x = s[i] * s[j] * gram[i, j]
                    for k in range(j):
                        x -= A[i, k] * A[j, k]
                    x *= inverse[j]
                    A[i, j] = x
                    v -= x * u[j]
                x = 1 + s[i] * s[i] * gram[i, i]
                for k in range(i):
                    x -= A[i, k] * A[i, k]
                inverse[i] = 1 / np.sqrt(x)
                u[i] = v * inverse[i]
            for j in range(p):
                u[j] += np.random.normal()  # noqa: NPY002
            for i in range(p - 1, -1, -1):
                x = u[i] * inverse[i]
                u[i] = x
                for j in range(i):
                    u[j] -= A[i, j] * x
                d[i] = sigma * s[i] * x
            rss = yy
            for i in range(p):
                g = 0.0
                for j in range(p):
                    g += gram[i, j] * d[j]
                rss += d[i] * (g - 2 * c[i])
            sigma_sq = (1 + 0.5 * max(rss, 0.0)) / np.random.gamma(2 + n / 2)  # noqa: NPY002
        return sigma_sq

    return horseshoe_peer


@cache
def global_sweep() -> Any:
    """The server's pass over chains, regressions and coefficients, with the expanded scales, which need no rejection.

    Arguments deviation, lambda_sq (m, c, g, p), theta, tau_sq, gamma, eta (c, g, p), rho (c, g). Changes all but lambda_sq.
    """
    from numba import njit

    @njit(fastmath=True, error_model="numpy")
    def server_peer(deviation, lambda_sq, theta, tau_sq, gamma, eta, rho):  # type: ignore[no-untyped-def]
        m, c, g, p = deviation.shape
        for a in range(c):
            for r in range(g):
                odds = np.log(rho[a, r] / (1 - rho[a, r]))
                included = 0
                for j in range(p):
                    s0 = s1 = s2 = 0.0
                    for k in range(m):
                        inverse, d = 1 / lambda_sq[k, a, r, j], deviation[k, a, r, j]
                        s0 += inverse
                        s1 += inverse * d
                        s2 += inverse * d * d
                    inverse = np.random.exponential() / (1 + 1 / tau_sq[a, r, j])  # noqa: NPY002
                    tau = (inverse + s2 / 2) / np.random.gamma((m + 1) / 2)  # noqa: NPY002
                    tau_sq[a, r, j] = tau
                    w, middle, wide = s0 / tau, theta[a, r, j] + s1 / s0, eta[a, r, j]
                    one, other = wide + 1 / w, 0.01 * wide + 1 / w
                    logit = odds + 0.5 * (np.log(other / one) + middle * middle * (1 / other - 1 / one))
                    u = np.random.random()  # noqa: NPY002
                    chosen = np.log(u / (1 - u)) < logit
                    included += chosen
                    gamma[a, r, j] = chosen
                    v = wide if chosen else 0.01 * wide
                    new = middle * (w * v / (1 + w * v)) + np.sqrt(v / (1 + w * v)) * np.random.normal()  # noqa: NPY002
                    for k in range(m):
                        deviation[k, a, r, j] += theta[a, r, j] - new
                    theta[a, r, j] = new
                rate = 1.0
                for j in range(p):
                    rate += 0.5 * theta[a, r, j] ** 2 * (1.0 if gamma[a, r, j] else 100.0)
                drawn = rate / np.random.gamma(2 + p / 2)  # noqa: NPY002
                for j in range(p):
                    eta[a, r, j] = drawn
                first = np.random.gamma(1.0 + included)  # noqa: NPY002
                rho[a, r] = first / (first + np.random.gamma(1.0 + p - included))  # noqa: NPY002

    return server_peer


CLEAN = {"contract", "nnan", "ninf", "nsz", "arcp"}  # flags that leave the order of sums, and the rounding by which 2^k is made


@cache
def quick_exp() -> Any:
    """e^x for |x| < 700 without branches, which LLVM makes into vectors: Numba's own is a call for each number without SVML."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    def cast(to: Any, given: Any, kind: Any) -> Any:
        @intrinsic
        def same_bits(context, x):  # type: ignore[no-untyped-def]
            return to(given), lambda _, builder, __, arguments: builder.bitcast(arguments[0], kind)

        return same_bits

    bits = cast(types.int64, types.float64, ir.IntType(64))
    number = cast(types.float64, types.int64, ir.DoubleType())

    @njit(inline="always")
    def exp(x):  # type: ignore[no-untyped-def]
        shifted = x * 1.4426950408889634 + 6755399441055744.0
        r = x - (shifted - 6755399441055744.0) * 0.69314718055994531
        q = 1 / 39916800 * r + 1 / 3628800
        q = q * r + 1 / 362880
        q = q * r + 1 / 40320
        q = q * r + 1 / 5040
        q = q * r + 1 / 720
        q = q * r + 1 / 120
        q = q * r + 1 / 24
        q = q * r + 1 / 6
        q = q * r + 0.5
        q = q * r + 1
        return number(bits(1 + r * q) + (bits(shifted) << 52))

    return exp


def by_blocks(
    points: Any, rows: int, width: int, X: Any, start: Callable[[int], Any], add: Callable[[Any, int, Any], None], done: Any
) -> Any:
    """Values at many points: a block of rows times coefficients of `width` points by BLAS, which stays in the cache for a loop.

    `points` is (S, K, p): K predictors of a row; `add(predictors, first row, state)`, `done(state)`."""
    S, K, p = points.shape
    n, out = len(X), np.empty(S)
    for s in range(0, S, width):
        B = np.ascontiguousarray(points[s : s + width].transpose(2, 1, 0)).reshape(p, -1)
        c = B.shape[1] // K
        eta, state = np.empty((rows, K * c)), start(c)
        for i in range(0, n, rows):
            part = np.matmul(X[i : i + rows], B, out=eta[: min(rows, n - i)])
            add(part.reshape(len(part), K, c), i, state)
        out[s : s + width] = done(state)
    return out


@cache
def logistic_block() -> Any:
    """Adds log-likelihoods of a block of rows at many points: one logarithm of the product of 1 + e^-|eta|."""
    from numba import njit

    exp = quick_exp()

    @njit(fastmath=CLEAN, error_model="numpy")
    def by_hand(eta, y, value, product):  # type: ignore[no-untyped-def]
        R, _, C = eta.shape
        for r in range(R):
            for s in range(C):
                e = eta[r, 0, s]
                value[s] += y[r] * e - max(e, 0.0)
                product[s] += product[s] * exp(-min(abs(e), 700.0))
        for s in range(C):
            value[s] -= np.log(product[s])
            product[s] = 1.0

    return by_hand


def logistic_values(points: Any, X: Any, y: Any, rows: int = 128, width: int = 128) -> Any:
    """Log-likelihoods of logistic rows at the points (S, p)."""
    add = logistic_block()
    return by_blocks(
        points[:, None],
        rows,
        width,
        X,
        lambda c: (np.zeros(c), np.ones(c)),
        lambda eta, i, state: add(eta, y[i : i + rows], *state),
        lambda state: state[0],
    )


@cache
def multinomial_block() -> Any:
    """The same of multinomial rows, relative to a row's largest predictor."""
    from numba import njit

    exp = quick_exp()

    @njit(fastmath=CLEAN, error_model="numpy")
    def by_hand(eta, level, value, product, top, total):  # type: ignore[no-untyped-def]
        R, K, C = eta.shape
        for r in range(R):
            for s in range(C):
                top[s] = 0.0
            for k in range(K):
                for s in range(C):
                    top[s] = max(top[s], eta[r, k, s])
            for s in range(C):
                total[s] = exp(-min(top[s], 700.0))
            for k in range(K):
                for s in range(C):
                    total[s] += exp(-min(top[s] - eta[r, k, s], 700.0))
            for s in range(C):
                value[s] -= top[s]
                product[s] *= total[s]
            if level[r] > 0:
                for s in range(C):
                    value[s] += eta[r, level[r] - 1, s]
            if r % 24 == 23 or r == R - 1:
                for s in range(C):
                    value[s] -= np.log(product[s])
                    product[s] = 1.0

    return by_hand


def multinomial_values(points: Any, X: Any, level: Any, levels: int, rows: int = 48, width: int = 64) -> Any:
    """Log-likelihoods of multinomial rows at the points (S, (levels - 1) p); `level` are integers."""
    add = multinomial_block()
    return by_blocks(
        points.reshape(len(points), levels - 1, -1),
        rows,
        width,
        X,
        lambda c: (np.zeros(c), np.ones(c), np.empty(c), np.empty(c)),
        lambda eta, i, state: add(eta, level[i : i + rows], *state),
        lambda state: state[0],
    )


@cache
def cox_block() -> Any:
    """The same of Cox's partial log-likelihood without ties, whose predictors are small: sums are relative to nothing."""
    from numba import njit

    exp = quick_exp()

    @njit(fastmath=CLEAN, error_model="numpy")
    def by_hand(eta, event, value, product, total):  # type: ignore[no-untyped-def]
        R, _, C = eta.shape
        for r in range(R):
            for s in range(C):
                total[s] += exp(eta[r, 0, s])
            if event[r]:
                for s in range(C):
                    product[s] *= total[s]
                    value[s] += eta[r, 0, s]
            if r % 8 == 7 or r == R - 1:
                for s in range(C):
                    value[s] -= np.log(product[s])
                    product[s] = 1.0

    return by_hand


def cox_values(points: Any, X: Any, event: Any, rows: int = 64, width: int = 64) -> Any:
    """Cox's partial log-likelihoods at the points (S, p) of rows from the last time to the first."""
    add = cox_block()
    return by_blocks(
        points[:, None],
        rows,
        width,
        X,
        lambda c: (np.zeros(c), np.ones(c), np.zeros(c)),
        lambda eta, i, state: add(eta, event[i : i + rows], *state),
        lambda state: state[0],
    )


@cache
def logistic_slopes() -> Any:
    """Values, slopes, weights and their roots of rows, of their predictors."""
    from numba import njit

    exp = quick_exp()

    @njit(fastmath=CLEAN, error_model="numpy")
    def by_hand(eta, y, slope, root, weight, decay):  # type: ignore[no-untyped-def]
        R = len(eta)
        whole = R // 8 * 8
        for r in range(R):
            e = eta[r]
            t = exp(-min(abs(e), 700.0))
            inverse = 1 / (1 + t)
            slope[r] = y[r] - (t if e < 0 else 1.0) * inverse
            weight[r] = t * inverse * inverse
            root[r] = np.sqrt(t) * inverse
            decay[r] = t
        sums, product, value = np.zeros(8), np.ones(8), 0.0
        for r in range(0, whole, 8):
            for k in range(8):
                product[k] += product[k] * decay[r + k]
                sums[k] += y[r + k] * eta[r + k] - max(eta[r + k], 0.0)
        for k in range(8):
            value += sums[k] - np.log(product[k])
        for r in range(whole, R):
            value += y[r] * eta[r] - max(eta[r], 0.0) - np.log1p(decay[r])
        return value

    return by_hand


@cache
def scaled_rows() -> Any:
    from numba import njit

    @njit(fastmath=True)
    def by_hand(X, root, out):  # type: ignore[no-untyped-def]
        R, p = X.shape
        for r in range(R):
            for j in range(p):
                out[r, j] = X[r, j] * root[r]

    return by_hand


def logistic_curvature_by_blas(point: Any, X: Any, y: Any) -> tuple[float, Any, Any]:
    """Value, gradient and minus Hessian (its lower triangle) of logistic rows: `dsyrk` of blocks that stay in the cache."""
    from scipy.linalg.blas import dsyrk

    n, p = X.shape
    R = max(128, min(1024, 32768 // p // 8 * 8))
    slopes, scale = logistic_slopes(), scaled_rows()
    (eta, *rest), scaled = (np.empty(R) for _ in range(5)), np.empty((R, p))
    gradient, H, value = np.zeros(p), np.zeros((p, p), order="F"), 0.0
    for i in range(0, n, R):
        x = X[i : i + R]
        k = len(x)
        np.dot(x, point, out=eta[:k])
        slope, root, weight, decay = (values[:k] for values in rest)
        value += slopes(eta[:k], y[i : i + k], slope, root, weight, decay)
        gradient += slope @ x
        scale(x, root, scaled[:k])
        H = dsyrk(1.0, scaled[:k].T, beta=1.0, c=H, overwrite_c=1)
    return value, gradient, H.T


@cache
def logistic_curvature() -> Any:
    """The same by hand: blocks are turned, so that each element is a sum along rows, four of them at a time."""
    from numba import njit

    slopes = logistic_slopes()

    @njit(fastmath=True, error_model="numpy")
    def turned(X, point, T, eta):  # type: ignore[no-untyped-def]
        R, p = X.shape
        for r in range(R):
            eta[r] = 0.0
            for j in range(p):
                T[j, r] = X[r, j]
        four = p // 4 * 4
        for j in range(0, four, 4):
            for r in range(R):
                first = point[j] * T[j, r] + point[j + 1] * T[j + 1, r]
                eta[r] += first + point[j + 2] * T[j + 2, r] + point[j + 3] * T[j + 3, r]
        for j in range(four, p):
            for r in range(R):
                eta[r] += point[j] * T[j, r]

    @njit(fastmath=True, error_model="numpy")
    def gram(T, slope, weight, wx, gradient, H, R):  # type: ignore[no-untyped-def]
        for i in range(len(gradient)):
            s = 0.0
            for r in range(R):
                wx[r] = weight[r] * T[i, r]
                s += slope[r] * T[i, r]
            gradient[i] += s
            four = (i + 1) // 4 * 4
            for j in range(0, four, 4):
                a, b, c, d = 0.0, 0.0, 0.0, 0.0
                for r in range(R):
                    w = wx[r]
                    a += w * T[j, r]
                    b += w * T[j + 1, r]
                    c += w * T[j + 2, r]
                    d += w * T[j + 3, r]
                H[i, j] += a
                H[i, j + 1] += b
                H[i, j + 2] += c
                H[i, j + 3] += d
            for j in range(four, i + 1):
                a = 0.0
                for r in range(R):
                    a += wx[r] * T[j, r]
                H[i, j] += a

    @njit(error_model="numpy")
    def by_hand(point, X, y, R, gradient, H):  # type: ignore[no-untyped-def]
        n, p = X.shape
        T, room, value = np.empty((p, R)), np.empty((6, R)), 0.0
        for i in range(0, n, R):
            k = min(R, n - i)
            eta, slope, root, weight, decay = room[0, :k], room[1, :k], room[2, :k], room[3, :k], room[4, :k]
            turned(X[i : i + k], point, T, eta)
            value += slopes(eta, y[i : i + k], slope, root, weight, decay)
            gram(T, slope, weight, room[5], gradient, H, k)
        return value

    return by_hand


def logistic_curvature_by_hand(point: Any, X: Any, y: Any) -> tuple[float, Any, Any]:
    p = len(point)
    gradient, H = np.zeros(p), np.zeros((p, p))
    return logistic_curvature()(point, X, y, 256, gradient, H), gradient, H


def agree_on_rows() -> None:
    """Compares the peers of whole rows with NumPy."""
    random = np.random.default_rng(1)
    n, p, levels = 333, 13, 4
    X, points = random.standard_normal((n, p)), 0.3 * random.standard_normal((70, p))
    eta = X @ points.T
    y, event = random.integers(0, 2, n).astype(float), random.random(n) < 0.5
    want = (y[:, None] * eta - np.logaddexp(0, eta)).sum(axis=0)
    np.testing.assert_allclose(logistic_values(points, X, y), want, rtol=1e-12)
    want = ((eta - np.logaddexp.accumulate(eta, axis=0)) * event[:, None]).sum(axis=0)
    np.testing.assert_allclose(cox_values(points, X, event), want, rtol=1e-12)
    level, many = random.integers(0, levels, n), 0.3 * random.standard_normal((70, levels - 1, p))
    all_ = np.concatenate([np.zeros((70, 1, n)), many @ X.T], axis=1)
    want = (np.take_along_axis(all_, level[None, None], 1)[:, 0] - np.logaddexp.reduce(all_, axis=1)).sum(axis=1)
    np.testing.assert_allclose(multinomial_values(many.reshape(70, -1), X, level, levels), want, rtol=1e-12)
    chance = 1 / (1 + np.exp(-eta[:, 0]))
    H = (X * (chance * (1 - chance))[:, None]).T @ X
    for peer in (logistic_curvature_by_blas, logistic_curvature_by_hand):
        value, gradient, lower = peer(points[0], X, y)
        np.testing.assert_allclose(value, (y * eta[:, 0] - np.logaddexp(0, eta[:, 0])).sum(), rtol=1e-12)
        np.testing.assert_allclose(gradient, X.T @ (y - chance), atol=1e-11)
        np.testing.assert_allclose(np.tril(lower), np.tril(H), atol=1e-11)


def agree() -> None:
    """Compares sums with NumPy's in float64, for both types of rows."""
    agree_on_rows()
    random = np.random.default_rng(0)
    for dtype, tolerance in (("f8", 1e-12), ("f4", 2e-5)):
        X = random.standard_normal((300, 37)).astype(dtype)
        y, theta = random.integers(0, 2, 300).astype(dtype), (0.1 * random.standard_normal(37)).astype(dtype)
        scale, wide = np.full(37, 1.3, dtype), X.astype("f8")
        norms = np.linalg.norm(wide, axis=1)
        part, total = np.empty(37, dtype), np.zeros(37)
        clip_sum()(X, 5.0, part, total)
        want = np.minimum(1, 5.0 / norms) @ wide
        np.testing.assert_allclose(total, want, atol=tolerance * abs(wide).sum(axis=0).max())
        a = wide @ theta.astype("f8")
        r = y - 1 / (1 + np.exp(-a))
        weight = np.minimum(1, 0.5 / (abs(r) * np.sqrt((wide**2) @ scale.astype("f8"))))
        total[:] = 0
        clipped_gradients()(X, y, theta, scale, 0.5, part, total)
        np.testing.assert_allclose(total, (weight * r) @ wide, atol=tolerance * abs(wide).sum(axis=0).max())
        for family, mean in (("bernoulli", 1 / (1 + np.exp(-a))), ("poisson", np.exp(a))):
            total[:] = 0
            value = loglik_gradient(family)(X, y, theta, part, total)
            np.testing.assert_allclose(total, (y - mean) @ wide, atol=tolerance * abs(wide).sum(axis=0).max())
            part_value = y * a - (np.exp(a) if family == "poisson" else np.logaddexp(0, a))
            np.testing.assert_allclose(value, part_value.sum(), rtol=10 * tolerance)
    words, draws = random.integers(0, 2**32, 600_000, dtype=np.uint32), np.empty(20_000, np.int64)
    for sigma in (2, 5 << 20, 2**31 - 1):
        discrete_gaussian()(words, np.uint64(sigma), draws)
        np.testing.assert_allclose(draws.mean() / sigma, 0, atol=0.03)
        np.testing.assert_allclose(draws.std() / sigma, 1, atol=0.03)
        np.testing.assert_allclose((draws.astype("f8") ** 4).mean() / sigma**4, 3, atol=0.25)
