"""Kernels of survival models: against the partial likelihood in complex numbers, in many digits, and differences."""

from functools import reduce
from operator import mul

import mpmath
import numpy as np
import pytest

from fedkern import _core
from fedkern.kernels import survival

BACKENDS = ["cpp", "reference"]
TIME = np.array([1, 1, 2, 2, 2, 3, 4, 4, 5, 6.0])
EVENT = np.array([1, 0, 1, 1, 0, 1, 1, 1, 0, 1]) > 0
COLUMNS = np.array([[0.5, -0.3, 1.2, 0.1, -0.7, 0.4, -1.1, 0.9, 0.2, -0.5], [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]]).T


def arguments(time, event, X, entry=None, strata=None, weights=None, offset=None):
    order, first, ends, deaths, until = survival.arranged(time, event, entry, strata)
    weights, offset = (None if one is None else one[order] for one in (weights, offset))
    return {"X": X[order], "weights": weights, "offset": offset, "first": first, "ends": ends, "deaths": deaths, "until": until}


def written_down(beta, time, event, X, entry=None, strata=None, weights=None, offset=None):
    """Row by row from times, events and entries, and in no order: beta may be complex, or of mpmath."""
    n = len(time)
    entry = np.full(n, -np.inf) if entry is None else entry
    strata, weights = np.zeros(n) if strata is None else strata, np.ones(n) if weights is None else weights
    offset = np.zeros(n) if offset is None else offset
    eta = [offset[i] + sum(x * b for x, b in zip(X[i], beta)) for i in range(n)]
    exp, log = (mpmath.exp, mpmath.log) if isinstance(beta[0], (mpmath.mpf, mpmath.mpc)) else (np.exp, np.log)
    total = 0 * beta[0]
    for s in np.unique(strata):
        for t in np.unique(time[event & (strata == s)]):
            dying = [i for i in range(n) if strata[i] == s and event[i] and time[i] == t]
            risk = [i for i in range(n) if strata[i] == s and time[i] >= t and entry[i] < t]
            all_of, own = (sum(weights[i] * exp(eta[i]) for i in some) for some in (risk, dying))
            each = sum(weights[i] for i in dying) / len(dying)
            total += sum(weights[i] * eta[i] for i in dying)
            total -= sum(each * log(all_of - (m / len(dying)) * own) for m in range(len(dying)))
    return total


def rows(n=60, p=3, seed=0, entry=True, **more):
    """Ties, strata, late entry, weights and an offset."""
    rng = np.random.default_rng(seed)
    time = 1.0 + np.floor(8 * rng.exponential(size=n))
    found = {"time": time, "event": rng.random(n) < 0.6, "X": rng.standard_normal((n, p)), "strata": rng.integers(0, 3, n)}
    found |= {"weights": rng.uniform(0.3, 2.0, n), "offset": 0.5 * rng.standard_normal(n)}
    return found | ({"entry": time * rng.random(n) - 0.5} if entry else {}) | more


@pytest.mark.parametrize("backend", BACKENDS)
def test_ten_rows_of_the_specification(backend):
    beta = np.array([[0.3, -0.2]])
    value, gradient, curved = survival.cox_curvature(beta, **arguments(TIME, EVENT, COLUMNS), backend=backend)
    np.testing.assert_allclose(value, -9.990402984, atol=6e-10)
    np.testing.assert_allclose(gradient[0], [1.17157103, 0.56234838], atol=6e-9)
    np.testing.assert_allclose(curved[0], [2.84658591, -0.49770883, 1.43408762], atol=6e-9)
    np.testing.assert_allclose(survival.cox_values(beta, **arguments(TIME, EVENT, COLUMNS), backend=backend), value, rtol=1e-15)


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_value_and_gradient_by_a_complex_step(backend, entry):
    data = rows(entry=entry)
    for beta in np.random.default_rng(1).standard_normal((3, 3)):
        value, gradient, _ = survival.cox_curvature(beta[np.newaxis], **arguments(**data), backend=backend)
        np.testing.assert_allclose(value[0], written_down(beta, **data), rtol=1e-12)
        steps = [written_down(beta + 1e-30j * np.eye(3)[j], **data).imag / 1e-30 for j in range(3)]
        np.testing.assert_allclose(gradient[0], steps, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_minus_hessian_by_four_point_differences_of_the_gradient(backend, entry):
    given = arguments(**rows(entry=entry))
    beta, h = np.array([0.4, -0.7, 0.2]), 1e-3
    _, _, curved = survival.cox_curvature(beta[np.newaxis], **given, backend=backend)
    steps = np.concatenate([beta + k * h * np.eye(3) for k in (-2, -1, 1, 2)])
    _, gradient, _ = survival.cox_curvature(steps, **given, backend=backend)
    two_down, down, up, two_up = gradient.reshape(4, 3, 3)
    slope = (two_down - 8 * down + 8 * up - two_up) / (12 * h)
    np.testing.assert_allclose(curved[0], -slope[np.tril_indices(3)], rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_predictors_that_differ_by_a_thousand_have_all_digits(backend):
    """e^1000 is no number: sums are relative to the largest predictor so far. Held against 50 digits."""
    data = rows(n=24, strata=np.repeat([0, 1], 12), offset=np.linspace(-800.0, 700.0, 24))
    with mpmath.workdps(50):
        beta = [mpmath.mpf(one) for one in (0.5, -1.0, 2.0)]
        exact = float(written_down(beta, **data))
    given = arguments(**data)
    (value,) = survival.cox_values(np.array([[0.5, -1.0, 2.0]]), **given, backend=backend)
    assert abs(value - exact) <= 1e-12 * abs(exact)
    assert abs(survival.cox_curvature(np.array([[0.5, -1.0, 2.0]]), **given, backend=backend)[0][0] - exact) <= 1e-12 * abs(exact)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_large_sum_leaves_behind_is_made_anew(backend):
    """At early times few are at risk, and those who enter late have a risk 7e10 times as high: differences would be rounding."""
    rng = np.random.default_rng(3)
    n = 80
    time, late = rng.exponential(size=n), np.arange(n) >= 40
    time[late] += 5
    data = {
        "time": time, "event": np.ones(n, bool), "X": rng.standard_normal((n, 2)), "entry": np.where(late, 4.9, -1.0),
        "offset": np.where(late, 25.0, 0.0),
    }  # fmt: skip
    beta = np.array([0.3, -0.4])
    value, gradient, curved = survival.cox_curvature(beta[np.newaxis], **arguments(**data), backend=backend)
    assert abs(value[0] - written_down(beta, **data)) <= 1e-12 * abs(value[0])
    apart = [{name: one[some] for name, one in data.items()} for some in (late, ~late)]
    parts = [survival.cox_curvature(beta[np.newaxis], **arguments(**one), backend="reference") for one in apart]
    np.testing.assert_allclose(gradient, parts[0][1] + parts[1][1], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(curved, parts[0][2] + parts[1][2], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(survival.cox_values(beta[np.newaxis], **arguments(**data), backend=backend), value, rtol=1e-12)


def waves(rng, n, alone):
    """Groups that are never at risk together, whose hazards differ by e^1400; unless `alone` some rows outlive all."""
    group = np.arange(n) % 6
    time, entry = 10.0 * group + np.round(rng.uniform(0, 5, n), 1), 10.0 * group - 1
    offset = np.array([-700.0, 0.0, 25.0, -30.0, 700.0, -700.0])[group]
    if not alone:
        time[:5], entry[:5], offset[:5] = 70.0 + np.arange(5), -2.0, -710.0 + np.arange(5)
    return {"time": time, "entry": entry, "offset": offset, "event": rng.random(n) < 0.7}


def one_by_one(rng, n):
    """Each row is at risk alone, or with the next one."""
    begin = np.arange(n) + np.where(rng.random(n) < 0.5, 0.0, -0.4)
    return {"time": np.arange(n) + 0.7, "entry": begin, "offset": 300.0 * rng.standard_normal(n), "event": np.ones(n, bool)}


def briefly(rng, n):
    """Few of many are at risk at a time, so that sums over sets are long beside what a row has of them."""
    entry = np.sort(rng.uniform(0, 100, n))
    return {
        "time": entry + rng.uniform(0.01, 3, n),
        "entry": entry,
        "offset": 2 * rng.standard_normal(n),
        "event": rng.random(n) < 0.8,
    }


def at_once(rng, n):
    """More rows than a block have their event at one time, with predictors that rise by 900, and leave. As many join before the
    next event, and have lower ones: sums are made anew from before that block on."""
    high = np.arange(n) < n // 2
    time = np.where(high, 5.0, 1.0 + rng.integers(0, 3, n))
    offset = np.where(high, np.linspace(-450.0, 450.0, n), -600.0 + rng.standard_normal(n))
    event = np.where(time == 3, np.arange(n) == np.argmax(time == 3), rng.random(n) < 0.9)
    return {"time": time, "entry": np.where(high, 4.5, 0.0), "offset": offset, "event": event}


HOSTILE = {
    "waves": lambda rng: waves(rng, 500, alone=True),
    "waves above others": lambda rng: waves(rng, 500, alone=False),
    "one by one": lambda rng: one_by_one(rng, 300),
    "briefly": lambda rng: briefly(rng, 900),
    "at once": lambda rng: at_once(rng, 1200),
}


@pytest.mark.parametrize("strata", [1, 3])
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_digits_are_lost_where_rows_leave(kind, strata):
    """The sum of hazards while a row is at risk is no difference of two that are larger by many orders of magnitude."""
    rng = np.random.default_rng(7)
    data = HOSTILE[kind](rng)
    n, p = len(data["time"]), 3
    data |= {"X": rng.standard_normal((n, p)), "weights": rng.uniform(0.3, 2.0, n), "strata": rng.integers(0, strata, n)}
    given, points = arguments(**data), np.array([[0.3, -0.2, 0.5], [0.0, 0.0, 0.0]])
    found, exact = (survival.cox_curvature(points, **given, backend=backend) for backend in ("cpp", "reference"))
    assert np.isfinite(exact[2]).all()
    events = data["event"].sum()
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], exact[1], rtol=0, atol=2e-13 * events)
    np.testing.assert_allclose(found[2], exact[2], rtol=0, atol=2e-13 * events)
    np.testing.assert_allclose(survival.cox_values(points, **given), found[0], rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_point_does_not_depend_on_its_neighbours_and_one_that_is_not_finite_is_nan(backend):
    given, points = arguments(**rows()), np.random.default_rng(2).standard_normal((40, 3))
    alone = np.concatenate([survival.cox_values(one[np.newaxis], **given, backend=backend) for one in points])
    assert np.array_equal(survival.cox_values(points, **given, backend=backend), alone)
    points[7, 1], points[8, 0] = np.inf, 1e308
    value = survival.cox_values(points, **given, backend=backend)
    assert np.isnan(value[7:9]).all()
    assert np.array_equal(np.delete(value, [7, 8]), np.delete(alone, [7, 8]))


def test_no_event_is_no_likelihood():
    value, gradient, curved = survival.cox_curvature(np.ones((2, 2)), **arguments(TIME, EVENT & False, COLUMNS))
    assert not value.any()
    assert not gradient.any()
    assert not curved.any()


def test_all_at_one_time_is_the_product_of_falling_shares():
    """Efron's rule by hand: four rows that all have their event at once, at beta = 0."""
    (value,) = survival.cox_values(np.zeros((1, 1)), **arguments(np.ones(4), np.ones(4, bool), np.zeros((4, 1))))
    assert value == pytest.approx(-np.log(reduce(mul, [4, 3, 2, 1])), rel=1e-15)


def test_an_entry_that_is_not_before_the_time_is_refused():
    with pytest.raises(ValueError, match="entry before time"):
        survival.arranged(TIME, EVENT, entry=TIME)
    with pytest.raises(ValueError, match="finite"):
        survival.arranged(np.where(TIME > 5, np.nan, TIME), EVENT)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("first", [0, 0, 4]),
        ("ends", [4, 3, 9]),
        ("deaths", [1, 9, 1]),
        ("deaths", [0, 1, 1]),
        ("ends", [2, 5, 99]),
        ("ends", [-(2**63), 5, 9]),
    ],
)
def test_sets_that_are_none_are_refused(name, values):
    given = {"first": [0, 0, 0], "ends": [2, 5, 9], "deaths": [1, 2, 1]} | {name: values}
    given = {key: np.array(value, np.int64) for key, value in given.items()}
    X = np.zeros((10, 1))
    with pytest.raises(ValueError, match="first, ends and deaths"):
        survival.cox_values(np.zeros((1, 1)), X, None, None, **given, until=None)
    with pytest.raises(ValueError, match="sets must follow"):  # whoever calls the extension itself corrupts nothing
        _core.survival.cox_values(np.zeros((1, 1)), X, None, None, *given.values(), None, np.empty(1), 1)
    good = [np.array(one, np.int64) for one in ([0, 0, 0], [2, 5, 9], [1, 2, 1])]
    with pytest.raises(ValueError, match="until"):
        survival.cox_values(np.zeros((1, 1)), X, None, None, *good, until=np.full(10, -1))


@pytest.mark.parametrize("seed", range(5))
def test_weights_below_0_end_and_give_what_the_sums_say(seed):
    """Sums that have fallen since rows left them are recomputed: those below 0 were so for ever, until no memory was left."""
    random = np.random.default_rng(seed)
    n, points = 60, random.normal(size=(4, 2))
    time = random.integers(1, 12, n).astype(float)
    rows = survival.arranged(time, random.random(n) < 0.6, time - random.integers(1, 6, n), random.integers(0, 2, n))
    weights = random.exponential(size=n) * np.where(random.random(n) < 0.4, -1, 1)
    given = (points, random.normal(size=(n, 2)), weights, None, *rows[1:])
    for kernel in (survival.cox_values, survival.cox_curvature):
        found, wanted = (kernel(*given, backend=backend) for backend in ("cpp", "reference"))
        for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
            np.testing.assert_allclose(one, other, rtol=1e-9)
    assert np.isnan(found[0]).all()  # a logarithm of a sum below 0
