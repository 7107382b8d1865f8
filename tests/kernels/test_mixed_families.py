"""Families of rows of mixed models: where each stands at its limits, bad responses, and integrands with several modes."""

from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedkern.kernels import mixed
from fedkern.kernels._record import KERNELS
from oracles.mixed_rows import CUTS, differences, example, of_rows, own

FAMILIES = [family for family in mixed.CODES if mixed.CODES[family] > mixed.CODES["negative-binomial"]]
BACKENDS = [b for b in ("cpp", "reference") if "student" not in KERNELS["mixed.values"].lacks.get(b, ())]


def rows(family, y, upper=None, d=0, groups=1, trials=None):
    """Rows with one coefficient, whose predictor is what a point says."""
    y = np.asarray(y, float)
    n = len(y)
    return {
        "X": np.ones((n, 1)), "Z": np.ones((n, d)), "y": y, "trials": trials, "offset": None,
        "starts": np.linspace(0, n, groups + 1).astype(np.int64), "upper": None if upper is None else np.asarray(upper, float),
        "cuts": CUTS if family == "piecewise" else None, "family": family,
    }  # fmt: skip


DIGITS, STEP = 200, mpmath.mpf("1e-15")


def lognormal_mixture(y, eta, log_sd):
    """The integral over a row's effect: by equal steps about the mode, whose error falls as fast as exp(-1 / step)."""
    with mpmath.workdps(60):
        square = mpmath.exp(2 * log_sd)
        v = mpmath.lambertw(mpmath.exp(eta + square * y) * square).real
        mode, width = eta + square * y - v, mpmath.sqrt(square / (1 + v))
        total, step = mpmath.mpf(0), min(width / 4, mpmath.mpf("0.06"))
        top = y * mode - mpmath.exp(mode) - (mode - eta) ** 2 / (2 * square)
        for sign in (1, -1):
            k = 0 if sign == 1 else 1
            while True:
                t = mode + sign * k * step
                term = mpmath.exp(y * t - mpmath.exp(t) - (t - eta) ** 2 / (2 * square) - top)
                total, k = total + term, k + 1
                if term < mpmath.mpf("1e-50"):
                    break
        return top + mpmath.log(total * step) - log_sd - mpmath.log(2 * mpmath.pi) / 2 - mpmath.loggamma(y + 1)


def of_standard(family, y, eta, w, upper, entry):
    """The row of a time whose logarithm is eta + sd e."""
    sd = mpmath.exp(w[0])

    def beyond(t, sign=1):  # P(time > t), or that it is before
        if not t:
            return mpmath.mpf(sign == 1)
        z = sign * (mpmath.log(t) - eta) / sd
        return mpmath.erfc(z / mpmath.sqrt(2)) / 2 if family.startswith("lognormal") else 1 / (1 + mpmath.exp(z))

    before, upper = mpmath.log(beyond(entry)), y if upper is None else mpmath.mpf(float(upper))
    if upper == mpmath.inf:
        return mpmath.log(beyond(y)) - before
    if upper > y:
        sign = 1 if y and mpmath.log(y) > eta else -1  # of the tail, where nothing is taken from 1
        return mpmath.log(sign * (beyond(y, sign) - beyond(upper, sign))) - before
    z = (mpmath.log(y) - eta) / sd
    normal = -(z**2) / 2 - mpmath.log(2 * mpmath.pi) / 2
    return (normal if family.startswith("lognormal") else -z - 2 * mpmath.log1p(mpmath.exp(-z))) - w[0] - mpmath.log(y) - before


# One row far from its middle --------------------


@cache  # for each backend
def exact(family, y, eta, w, upper=None, entry=0.0):
    """log p(y | eta, w) with 200 digits, by the definition of each family; of a time given no event until `entry`."""
    with mpmath.workdps(DIGITS):
        m = mpmath.mpf
        y, eta, w = m(float(y)), m(eta), [m(one) for one in w]
        mean = mpmath.exp(eta)
        if family == "student":
            sd, nu = mpmath.exp(w[0]), mpmath.exp(w[1])
            z = ((y - eta) / sd) ** 2
            gamma = mpmath.loggamma((nu + 1) / 2) - mpmath.loggamma(nu / 2)
            return gamma - mpmath.log(nu * mpmath.pi) / 2 - w[0] - (nu + 1) / 2 * mpmath.log1p(z / nu)
        if family == "gamma":
            s = mpmath.exp(w[0])
            return s * (w[0] - eta) + (s - 1) * mpmath.log(y) - s * y / mean - mpmath.loggamma(s)
        if family == "beta":
            mu, precision = 1 / (1 + 1 / mean), mpmath.exp(w[0])
            a, b = mu * precision, precision / (1 + mean)
            gamma = mpmath.loggamma(precision) - mpmath.loggamma(a) - mpmath.loggamma(b)
            return gamma + (a - 1) * mpmath.log(y) + (b - 1) * mpmath.log1p(-y)
        if family == "beta-binomial":  # of one trial, or of so many that the first half of them are successes
            n, precision = max(2 * y, m(1)), mpmath.exp(w[0])
            a, b = precision * mean / (1 + mean), precision / (1 + mean)
            ways = mpmath.loggamma(n + 1) - mpmath.loggamma(y + 1) - mpmath.loggamma(n - y + 1)
            gamma = mpmath.loggamma(y + a) - mpmath.loggamma(a) + mpmath.loggamma(n - y + b) - mpmath.loggamma(b)
            return ways + gamma - mpmath.loggamma(n + precision) + mpmath.loggamma(precision)
        if family == "lognormal":
            return -mpmath.log(y) - mpmath.log(2 * mpmath.pi) / 2 - w[0] - ((mpmath.log(y) - eta) * mpmath.exp(-w[0])) ** 2 / 2
        if family == "inverse-gaussian":
            shape = mpmath.exp(w[0])
            return (w[0] - mpmath.log(2 * mpmath.pi * y**3) - shape * (y / mean - 1) ** 2 / y) / 2
        if family == "poisson-lognormal":
            return lognormal_mixture(y, eta, w[0])
        if family.startswith(("zero", "hurdle")):
            a, pi = w[0] ** 2 if len(w) == 2 else m(0), 1 / (1 + mpmath.exp(-w[-1]))
            count = y * eta - mpmath.loggamma(y + 1)
            if a == 0:
                count -= mean
            else:
                count += (
                    mpmath.loggamma(y + 1 / a) - mpmath.loggamma(1 / a) + y * mpmath.log(a) - (y + 1 / a) * mpmath.log1p(a * mean)
                )
            if family.startswith("hurdle"):
                none = -mean if a == 0 else -mpmath.log1p(a * mean) / a
                return mpmath.log(pi) if y == 0 else count - mpmath.log1p(mpmath.exp(w[-1])) - mpmath.log(-mpmath.expm1(none))
            return mpmath.log(pi * (y == 0) + (1 - pi) * mpmath.exp(count))
        if family in mixed.ORDERED:
            F = (lambda x: 1 / (1 + mpmath.exp(-x))) if family == "ordinal" else (lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
            c, total = [-m("inf"), w[0]], w[0]
            for one in w[1:]:
                total += mpmath.exp(one)
                c.append(total)
            c.append(m("inf"))
            low, high = c[int(y)] - eta, c[int(y) + 1] - eta
            turned = low + high > 0  # to the tail, where nothing is taken from 1
            low, high = (-high, -low) if turned else (low, high)
            return mpmath.log(F(high) - (F(low) if low > -m("inf") else 0))
        if family.endswith("probit"):
            return mpmath.log(mpmath.erfc((1 - 2 * y) * eta / mpmath.sqrt(2)) / 2)
        if family.endswith("cloglog"):
            return mpmath.log(-mpmath.expm1(-mean)) if y else -mean
        if family.endswith("aft"):
            return of_standard(family, y, eta, w, upper, m(float(entry)))
        edges = [m(0), *map(m, CUTS.tolist()), m("inf")]
        k = mpmath.exp(w[0]) if family == "weibull" else m(1)

        def until(t):
            if family != "piecewise":
                return mean * t**k
            return mean * sum(mpmath.exp(a) * max(min(t, high) - low, 0) for a, low, high in zip(w, edges, edges[1:]))

        upper, before = y if upper is None else m(float(upper)), until(m(float(entry)))
        if upper == m("inf"):
            return before - until(y)
        if upper > y:
            return before - until(y) + mpmath.log(-mpmath.expm1(until(y) - until(upper)))
        rate = w[sum(y > cut for cut in edges[1:-1])] if family == "piecewise" else mpmath.log(k) + (k - 1) * mpmath.log(y)
        return eta + rate + before - until(y)


@cache
def by_digits(family, y, xi, upper, h=STEP, entry=0.0):
    """The gradient and minus the Hessian (lower triangle) by differences, whose error is h^2."""

    def f(*steps):
        at = [mpmath.mpf(one) for one in xi]
        for j, step in steps:
            at[j] += step
        return exact.__wrapped__(family, y, at[0], at[1:], upper, entry)

    with mpmath.workdps(DIGITS):
        slopes = [(f((j, h)) - f((j, -h))) / (2 * h) for j in range(len(xi))]
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        curves = [
            -sum(a * b * f((i, a * h), (j, b * h)) for a, b in signs) / (4 * h * h) for i in range(len(xi)) for j in range(i + 1)
        ]
    return np.array(slopes, float), np.array(curves, float)


def far(ys, uppers, others):
    """Rows (y, upper, eta, w): each response with each of the others."""
    return [(y, upper, eta, w) for y, upper in zip(ys, uppers or [None] * len(ys)) for eta, *w in others]


SHARP, WIDE = (-1.0, 0.3, 0.1), (2.0, -30.0, 3.0)  # shape numbers of four levels
FAR = {
    "student": far([0.3], None, [(0.1, 0.2, 1.0), (0.1, -5.0, 40.0), (0.1, -30.0, 0.3), (0.1, 3.0, 300.0), (0.1, 0.0, -8.0)])
    + far([1e3, 1e8], None, [(-5.0, 0.1, 2.0), (0.0, -8.0, 5.0)]),
    "gamma": far([2.0], None, [(0.5, 0.3), (0.69, 18.0)]) + far([3.0], None, [(40.0, 0.5), (-30.0, 0.5)])
    + far([1e-200], None, [(-450.0, -6.0)]) + far([1e100], None, [(230.0, 1.0)]),
    "beta": far([0.3], None, [(0.4, 1.0), (-0.8473, 16.0)]) + far([0.5], None, [(600.0, 3.0), (-600.0, -12.0)])
    + far([1e-200, 0.999], None, [(-400.0, 2.0), (30.0, -4.0)]),
    "zero-inflated-poisson": far([0, 5], None, [(0.3, -0.4), (-40.0, 30.0), (5.5, -200.0), (3.0, 200.0)]),
    "zero-inflated-negative-binomial": far([0, 9], None, [(0.3, 0.7, -0.4), (-30.0, 1e-9, 3.0), (20.0, 2.0, -300.0)]),
    "hurdle-poisson": far([0, 1, 5], None, [(0.3, -0.4), (-40.0, 30.0), (5.5, -200.0), (-300.0, 0.2)]),
    "hurdle-negative-binomial": far([0, 1, 9], None, [(0.3, 0.7, -0.4), (-30.0, 1e-9, 3.0), (20.0, 2.0, -300.0)]),
    "poisson-lognormal": far([0, 7], None, [(0.3, -0.4), (-30.0, 0.2), (6.0, -3.0), (2.0, -30.0), (3.0, 1.5)]),
    "beta-binomial": far([0, 1, 20], None, [(0.3, 1.0), (-5.0, 3.0), (30.0, -4.0), (-600.0, 2.0), (0.1, 30.0), (2.0, 12.0)]),
    "lognormal": far([2.0, 1e-200], None, [(0.5, 0.3), (-450.0, -6.0), (40.0, 0.5)]),
    "inverse-gaussian": far([0.3, 2.0], None, [(0.5, 0.3), (-2.0, 4.0), (40.0, 0.5), (0.7, 12.0)]),
    "ordinal": far([0, 1, 2, 3], None, [(0.2, *SHARP), (60.0, *SHARP), (-90.0, *WIDE)]),
    "ordinal-probit": far([0, 1, 2, 3], None, [(0.2, *SHARP), (36.0, *SHARP), (-28.5, *WIDE), (0.1, -7.0, 2.7, -9.0)])
    + far([0, 1, 2, 3], None, [(-45.0, 0.0, -1.0, 1.0)]),
    "weibull": far([1.3, 1.3, 1.3, 0.0, 0.5], [1.3, np.inf, 1.3001, 2.0, 1e6], [(0.2, 0.1), (-40.0, 1.5), (5.0, -3.0)]),
    "exponential": far([1.3, 0.2, 1.0, 0.0], [1.3, np.inf, 1.0 + 1e-9, 3.0], [(0.2,), (-60.0,), (6.0,)]),
    **{
        family: far([1.3, 1.3, 1.3, 0.0, 0.5], [1.3, np.inf, 1.3001, 2.0, 1e6], [(0.2, 0.1), (-4.0, 1.5), (5.0, -1.0)])
        + far([1.3, 0.0], [1.3001, 2.0], [(-40.0, 0.5), (0.3, -3.0), (60.0, 0.5)])
        for family in ("lognormal-aft", "loglogistic-aft")
    },
    "piecewise": far([0.3, 0.4, 1.5, 9.0, 9.0], [0.3, 0.4, 1.5, 9.0, np.inf], [(eta, -0.3, 2.0, -20.0) for eta in (0.2, -50.0)])
    + far([0.0, 0.39, 1.6], [0.1, 1.6, 7.0], [(eta, -0.3, 2.0, -20.0) for eta in (0.2, -50.0, 3.0)]),
    "bernoulli-probit": far([0, 1], None, [(eta,) for eta in (-40.0, -29.9, -7.99, 0.3, 8.01, 30.1, 40.0)]),
    "bernoulli-cloglog": far([0, 1], None, [(eta,) for eta in (-700.0, -27.7, -0.7, 0.3, 5.0, 30.0)]),
}  # fmt: skip
FAR |= {f"binomial-{link}": FAR[f"bernoulli-{link}"] for link in ("probit", "cloglog")}  # of one trial


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_right_far_from_its_middle(family, backend):
    """Value to 1e-12 of its terms, gradient and Hessian to 1e-8, against 60 digits and their own differences."""
    for y, upper, eta, w in FAR[family]:
        case = rows(family, [y], None if upper is None else [upper])
        case["trials"] = np.array([max(2.0 * y, 1.0)]) if family == "beta-binomial" else None
        value, gradient, minus_hessian = mixed.curvature(np.array([[eta, *w]]), **case, nodes=1, backend=backend)
        want = float(exact(family, y, eta, (*w,), upper))
        slopes, curves = by_digits(family, y, (eta, *w), upper)
        at = f"{y, upper, eta, w}"
        terms = 1 + (np.exp(w[0]) if family in ("beta", "gamma") else 0)  # which cancel: of so many rows' information
        np.testing.assert_allclose(value[0], want, rtol=1e-12, atol=2e-12 + 1e-16 * terms, err_msg=at)
        np.testing.assert_allclose(gradient[0], slopes, rtol=1e-9, atol=1e-9, err_msg=f"gradient of {at}")
        np.testing.assert_allclose(minus_hessian[0], curves, rtol=1e-8, atol=1e-9, err_msg=f"curvature of {at}")


LATE = (0.6, 1.3 * (1 - 1e-3), 1.3 * (1 - 1e-12), 1e-30)  # of a row that ends at 1.3, or begins to be unknown there
FAR_LATE = {
    "weibull": [(0.2, 0.1), (-40.0, 1.5), (5.0, -3.0), (2.0, 3.5), (0.1, -20.0)],
    "exponential": [(0.2,), (-60.0,), (6.0,)],
    "piecewise": [(0.2, -0.3, 2.0, -20.0), (-50.0, 3.0, -40.0, 0.1)],
    **{family: [(0.2, 0.1), (4.0, 0.5), (-3.0, 0.6)] for family in ("lognormal-aft", "loglogistic-aft")},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", list(FAR_LATE))
def test_a_row_that_is_seen_late_is_right_however_short_it_was_seen(family, backend):
    """A difference of cumulative hazards, of which nothing cancels: also 1e-12 of its time before the end."""
    cases = [(upper, entry) for upper in (1.3, np.inf, 1.30001, 9.0) for entry in LATE] + [(1.5, 1.3)]
    for (upper, entry), (eta, *w) in product(cases, FAR_LATE[family]):
        case = rows(family, [1.3], [upper]) | {"entry": np.array([entry])}
        value, gradient, minus_hessian = mixed.curvature(np.array([[eta, *w]]), **case, nodes=1, backend=backend)
        slopes, curves = by_digits(family, 1.3, (eta, *w), upper, entry=entry)
        at = f"{upper, entry, eta, w}"
        np.testing.assert_allclose(
            value[0], float(exact(family, 1.3, eta, (*w,), upper, entry)), rtol=1e-12, atol=2e-12, err_msg=at
        )
        np.testing.assert_allclose(gradient[0], slopes, rtol=1e-9, atol=1e-9, err_msg=f"gradient of {at}")
        np.testing.assert_allclose(minus_hessian[0], curves, rtol=1e-8, atol=1e-9, err_msg=f"curvature of {at}")


# Bad responses --------------------

BAD = {
    "student": [np.nan, np.inf],
    "gamma": [0.0, -1.0, np.inf, np.nan],
    "beta": [0.0, 1.0, -0.1, 1.1, np.nan],
    "zero-inflated-poisson": [-1.0, 0.5, np.inf, np.nan],
    "zero-inflated-negative-binomial": [-1.0, 0.5, np.inf, np.nan],
    **{family: [-1.0, 0.5, np.inf, np.nan] for family in ("hurdle-poisson", "hurdle-negative-binomial", "poisson-lognormal")},
    **{family: [0.0, -1.0, np.inf, np.nan] for family in ("lognormal", "inverse-gaussian")},
    "beta-binomial": [-1.0, 6.0, 0.5, np.nan],
    "ordinal": [-1.0, 4.0, 0.5, np.nan],
    "ordinal-probit": [-1.0, 4.0, 0.5, np.nan],
    **{f"bernoulli-{link}": [-1.0, 2.0, 0.5, np.nan] for link in ("probit", "cloglog")},
    **{f"binomial-{link}": [-1.0, 6.0, 0.5, np.nan] for link in ("probit", "cloglog")},
    **{
        family: [(0.0, 0.0), (-1.0, -1.0), (-1.0, 2.0), (2.0, 1.0), (np.nan, 1.0), (1.0, np.nan), (np.inf, np.inf)]
        for family in mixed.TIMES
    },
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("family", "bad"), [(family, bad) for family, values in BAD.items() for bad in values])
@pytest.mark.parametrize("d", [0, 1])
def test_a_response_that_the_family_does_not_have_makes_all_results_nan(family, bad, d, backend):
    case = example(family, d, points=2)
    assert all(np.isfinite(r).all() for r in mixed.curvature(**case, nodes=3, backend=backend))
    case["y"] = case["y"].copy()
    if isinstance(bad, tuple):
        case["upper"] = case["upper"].copy()
        case["y"][-2], case["upper"][-2] = bad
    else:
        case["y"][-2] = bad
    assert np.isnan(mixed.values(**case, nodes=3, backend=backend)).all()
    assert all(np.isnan(r).all() for r in mixed.curvature(**case, nodes=3, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_censored_at_0_says_nothing(backend):
    for family in mixed.TIMES:
        case = rows(family, [0.0, 0.0], [np.inf, np.inf])
        for result in mixed.curvature(np.array([[0.3, *own(family)]]), **case, nodes=1, backend=backend):
            np.testing.assert_array_equal(np.abs(result), 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_upper_all_times_are_events(backend):
    case = example("weibull", 1)
    case["y"], case["upper"] = case["y"] + 0.1, None
    both = [mixed.values(**case | {"upper": upper}, nodes=9, backend=backend) for upper in (None, case["y"].copy())]
    np.testing.assert_array_equal(*both)


ERRORS = [
    ("student", {"Z": np.ones((24, 2))}, "student rows: Z must have at most 1 column, got 2"),
    ("gamma", {"upper": np.ones(24)}, "upper is of times .*, and gamma rows have none"),
    ("loglogistic-aft", {"entry": np.zeros(24)}, "entry of loglogistic-aft rows is taken where Z has no column"),
    ("gamma", {"entry": np.ones(24)}, "entry is of times .*, and gamma rows have none"),
    ("weibull", {"cuts": CUTS}, "cuts must be given of piecewise rows, and of no others"),
    ("piecewise", {"cuts": None}, "cuts must be given of piecewise rows, and of no others; got None"),
    ("piecewise", {"cuts": np.array([2.0, 1.0])}, "cuts must rise from above 0"),
    ("piecewise", {"cuts": np.array([0.0, 1.0])}, "cuts must rise from above 0"),
    (
        "piecewise",
        {"cuts": np.array([1.0])},
        "points must have 5 columns .2 coefficients, 1 of T and 2 of the piecewise rows' own",
    ),
    ("ordinal", {"points": np.zeros((1, 3))}, "points must have at least 4 columns"),
    ("student", {"points": np.zeros((1, 6))}, "points must have 5 columns"),
]


@pytest.mark.parametrize(("family", "change", "message"), ERRORS)
def test_refuses_by_name(family, change, message):
    case = example(family, 1) | change
    with pytest.raises(ValueError, match=f"mixed.values: {message}"):
        mixed.values(**case, nodes=3)


@pytest.mark.parametrize("family", ["student", "weibull"])
def test_a_backend_that_lacks_a_family_says_which_have_it(family):
    with pytest.raises(ValueError, match=f"mixed.values: backend 'numba' has no family '{family}'; .*reference have it"):
        mixed.values(**example(family, 1), nodes=3, backend="numba")


# Families meet each other --------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_families_that_are_the_same_at_their_limits(backend):
    """Other code, same number: exponential is weibull of k = 1, one piece is exponential, and so on."""

    def value(family, own, **change):
        case = example(of, 1, points=1) | {"family": family} | change
        case["points"] = np.concatenate([case["points"][:, :3], [own]], axis=1)
        return mixed.curvature(**case, nodes=40, backend=backend)

    of = "exponential"
    first = value("exponential", [])
    for other in (
        value("weibull", [0.0]),
        value("piecewise", [0.0, 0.0, 0.0], cuts=CUTS),
        value("piecewise", [0.0], cuts=CUTS[:0]),
    ):
        np.testing.assert_allclose(other[0], first[0], rtol=1e-12)
        np.testing.assert_allclose(other[1][:, :3], first[1], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(other[2][:, :6], first[2], rtol=1e-10, atol=1e-10)
    of = "student"
    np.testing.assert_allclose(value("student", [-0.3, 34.0])[0], value("gaussian", [-0.3])[0], rtol=1e-10)
    of = "zero-inflated-poisson"
    np.testing.assert_allclose(value(of, [-80.0])[0], value("poisson", [])[0], rtol=1e-9)
    np.testing.assert_allclose(value("zero-inflated-negative-binomial", [0.0, -0.4])[0], value(of, [-0.4])[0], rtol=1e-12)
    of = "bernoulli"
    np.testing.assert_allclose(value("ordinal", [0.0])[0], value("bernoulli", [])[0], rtol=1e-9)
    np.testing.assert_allclose(value("ordinal-probit", [0.0])[0], value("bernoulli-probit", [])[0], rtol=1e-9)


# Several modes --------------------


def by_line(case, centres):
    """The integrals of groups over one effect: Gauss and Legendre on intervals that shrink towards each of the centres."""
    (xi,), total = case["points"], 0.0
    scale = np.exp(xi[1])
    some = np.unique(np.quantile((centres - xi[0]) / scale, np.linspace(0, 1, 12), method="nearest"))
    offsets = np.geomspace(1e-6, 80, 70)
    edges = np.unique(np.concatenate([[0.0], *(c + s * offsets for c in (0.0, *some) for s in (-1, 1)), some]))
    t, w = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    u, weight = (edges[:-1, None] + half * (1 + t)).ravel(), np.log(half * w).ravel()
    level = stats.norm.logpdf(u) + weight
    with np.errstate(over="ignore"):
        for y, many in zip(*np.unique(case["y"], return_counts=True)):
            like = case | {"y": np.array([y])}
            of_y = of_rows(xi, (xi[0] + scale * u)[None], slice(0, 1), like)[0]
            level += many * np.where(np.isnan(of_y), -np.inf, of_y)  # SciPy's beta where a shape is 0
    total += level.max() + np.log(np.exp(level - level.max()).sum())
    return np.array([total])


MODES = {
    "two of one row": ("student", [12.0], [0.0, np.log(5.0), np.log(0.05), np.log(1.5)]),
    "two as high": ("student", [9.0, 9.1, -9.0, -9.2], [0.0, np.log(8.0), np.log(0.1), 0.4]),
    "a narrow one between": ("student", [0.3, 3.7, -5.2, 14.0], [0.2, np.log(10.0), np.log(1e-3), 0.2]),
    "many rows": ("student", np.linspace(-1, 1, 150) ** 3 + 20 * (np.arange(150) % 9 == 0), [0.0, 0.0, np.log(0.05), 0.7]),
    "rows on the prior's mode, and more elsewhere": ("student", [0.0] * 4 + [7.77] * 10, [0.0, np.log(10.0), np.log(1e-3), 1.0]),
    "little effect": ("student", [5.0, 5.1, 4.9] * 30, [0.0, np.log(0.05), np.log(0.1), 1.5]),
    "of shares": ("beta", [0.001, 0.999, 0.98], [0.0, np.log(10.0), 5.0]),
    "of many shares": ("beta", np.linspace(0.01, 0.99, 200), [0.4, np.log(3.0), 2.0]),
    "one zero": ("zero-inflated-poisson", [0.0], [-2.04, 1.6, -0.05]),
    "zeros": ("zero-inflated-poisson", [0.0] * 12, [5.0, np.log(4.0), -1.0]),
    "zeros and counts": ("zero-inflated-poisson", [0.0] * 9 + [40.0], [1.0, np.log(6.0), -3.0]),
    "hurdles": ("hurdle-negative-binomial", [0.0, 1.0, 1.0, 30.0] * 8, [1.0, np.log(3.0), 2.5, -1.0]),
    "of a tail": ("inverse-gaussian", [0.02, 5.0, 80.0], [0.0, np.log(4.0), 0.5]),
    "all of the trials": ("beta-binomial", [1.0, 1.0, 0.0] * 9, [0.3, np.log(5.0), 1.0]),
    "many counts": ("zero-inflated-negative-binomial", [0.0, 90.0, 3.0, 0.0] * 50, [2.0, np.log(2.0), 0.3, -2.0]),
}


LINKS = {"student": lambda y: y, "beta": lambda y: np.log(y / (1 - y))}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("which", MODES)
def test_an_integrand_with_several_modes(which, backend):
    """15 nodes a panel are within 1e-6, fewer tell their own error, and gradient and Hessian are those of the value."""
    family, y, xi = MODES[which]
    case = rows(family, y, d=1) | {"Z": np.ones((len(y), 1)), "points": np.array([xi])}
    want = by_line(case, LINKS.get(family, lambda y: np.log(y + 0.1))(case["y"]))
    values = {nodes: mixed.values(**case, nodes=nodes, backend=backend) for nodes in (5, 11, 15, 21, 30)}
    np.testing.assert_allclose(values[15], want, atol=1e-6)
    np.testing.assert_allclose(values[30], want, atol=1e-8)
    assert np.abs(values[5] - want) <= 1.5 * np.abs(values[5] - values[11]) + 1e-7
    if backend == "reference":  # slow, and its derivatives are one formula for all integrands
        return
    _, gradient, minus_hessian = mixed.curvature(**case, nodes=30, backend=backend)
    slopes, hessian = differences(case, 30, backend, h=4e-4)
    np.testing.assert_allclose(gradient[0], slopes, rtol=1e-6, atol=5e-6)
    np.testing.assert_allclose(minus_hessian[0], -hessian[np.tril_indices(len(slopes))], rtol=1e-3, atol=5e-3)
