"""Mean-field inference in one call: differences of its own bound, the known optimum for a fixed phi, resumption, stops."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import spatial
from fedkern.kernels._record import KERNELS
from support import maps

BACKENDS = KERNELS["spatial.car_meanfield"].backends


def problem(n=30, form="car", lo=0.0, hi=0.99):
    graph = maps.planar(n, seed=3)
    series = spatial.logdet_table(spatial.car_eigen(*graph, form=form).values, graph[0], form=form, lo=lo, hi=hi)
    random = np.random.default_rng(3)
    y, weight = random.standard_normal(n), np.where(np.arange(n) % 5 == 0, 0.0, 4.0)
    options = {name: value for name, value in series.options.items() if name != "rank"}
    return (y, weight, *graph, series.coefficients), options


def start(n):
    return np.stack([np.linspace(-0.5, 0.5, n + 1), np.full(n + 1, -1.0)]), np.zeros((2, 2, n + 1))


def run(case, options, parameters, moments, rates, **more):
    return spatial.car_meanfield(*case, parameters, moments, np.asarray(rates, float), **options, **({"seed": 1} | more))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["car", "leroux"])
@pytest.mark.parametrize("range_", [(0.0, 0.99), (0.2, 0.6)])
def test_the_gradient_is_that_of_the_bound(backend, form, range_):
    """After one step from zero moments the first moment is a tenth of the gradient; four-point differences of the trace."""
    case, options = problem(form=form, lo=range_[0], hi=range_[1])
    parameters, moments = start(30)
    more = {"prior_mean": 0.7, "prior_variance": 1.5, "backend": backend}
    gradient = 10 * run(case, options, parameters, moments, [0.0], **more)[1][0]
    direction = np.random.default_rng(4).standard_normal((3, 2, 31))
    direction[2] = 0
    direction[2][0, 30] = 1  # of phi alone

    for d in direction:

        def bound(h, d=d):
            return run(case, options, parameters + h * d, moments, [0.0], **more)[2][0]

        h = 1e-3
        difference = (8 * (bound(h) - bound(-h)) - (bound(2 * h) - bound(-2 * h))) / (12 * h)
        assert difference == pytest.approx((gradient * d).sum(), rel=5e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_calls_of_half_the_steps_are_one(backend):
    case, options = problem()
    parameters, moments = start(30)
    rates = np.linspace(0.01, 0.001, 10)
    whole = run(case, options, parameters, moments, rates, first=7, backend=backend)
    half = run(case, options, parameters, moments, rates[:4], first=7, backend=backend)
    rest = run(case, options, *half[:2], rates[4:], first=11, backend=backend)
    for a, b in zip(whole, (*rest[:2], np.concatenate([half[2], rest[2]]))):
        np.testing.assert_array_equal(a, b)
    wrong = run(case, options, *half[:2], rates[4:], first=12, backend=backend)
    assert (wrong[0] != whole[0]).all()


def test_the_optimum_for_a_known_phi():
    """Means of the posterior, and sds 1 / sqrt of the diagonal of its precision."""
    case, options = problem(lo=0.8, hi=0.8 + 1e-9)
    y, weight, indptr, indices, _ = case
    A = spatial.car_precision(indptr, indices, 0.8).toarray() + np.diag(weight)
    parameters, moments = start(30)
    rates = 0.03 * np.minimum(1, 2 * (1 - np.arange(20_000) / 20_000))
    (mean, log_sd), _, trace = run(case, options, parameters, moments, rates)
    want, sd = np.linalg.solve(A, weight * y), 1 / np.sqrt(np.diag(A))
    assert np.sqrt(((mean[:30] - want) ** 2).mean()) < 0.02
    np.testing.assert_allclose(np.exp(log_sd[:30]), sd, rtol=0.05)
    assert trace[-1000:].mean() > trace[:1000].mean()
    assert abs(np.exp(log_sd[:30]) / np.sqrt(np.diag(np.linalg.inv(A))) - 1).max() > 0.05  # not the marginal sds


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bound_that_is_not_finite_ends_the_call(backend):
    case, options = problem()
    parameters, moments = start(30)
    rates = np.full(6, 0.01)
    rates[2] = 1e200  # the step after it cannot be evaluated
    reached, seen, trace = run(case, options, parameters, moments, rates, backend=backend)
    assert np.isfinite(trace[:3]).all()
    assert np.isnan(trace[3:]).all()
    want = run(case, options, parameters, moments, rates[:3], backend=backend)
    np.testing.assert_array_equal(reached, want[0])
    np.testing.assert_array_equal(seen, want[1])


def test_an_intrinsic_form_and_an_empty_range_are_refused():
    case, options = problem()
    with pytest.raises(ValueError, match="form must be 'car' or 'leroux', got 'icar'"):
        run(case, options | {"form": "icar"}, *start(30), [0.1])
    with pytest.raises(ValueError, match="lo < hi must be in"):
        run(case, options | {"lo": 0.5, "hi": 0.5}, *start(30), [0.1])
