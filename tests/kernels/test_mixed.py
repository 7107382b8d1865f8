"""Kernels of mixed models: against quadrature on grids, closed forms, differences and the numbers of a real data set."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm

from fedkern.kernels import mixed
from fedkern.kernels._record import KERNELS
from oracles.mixed_rows import by_grid, differences, example, factor_of, of_rows

BACKENDS = [b for b in KERNELS["mixed.values"].backends if b != "cuda"]
FAMILIES = list(mixed.CODES)


def cells(d, backends=BACKENDS):
    """(family, backend) that have d effects; of three, families that go the same way wait for the night, and of two or three the
    slow reference, which conforms."""
    by_day = {"bernoulli", "poisson", "gaussian", "ordinal"}
    for family in FAMILIES:
        for backend in backends:
            later = (d == 3 and family not in by_day) or (d > 1 and backend == "reference")
            lacking = family in KERNELS["mixed.values"].lacks.get(backend, ())
            if not lacking and (d < 2 or family not in mixed.SEVERAL_MODES):
                yield pytest.param(family, backend, d, marks=[pytest.mark.nightly] * later)


WHEEZE = Path(os.environ.get("FEDKERN_DATA", "")) / "six-cities-wheeze" / "ohio.csv"


@pytest.mark.parametrize(("family", "backend", "d"), [cell for d in (1, 2, 3) for cell in cells(d)])
def test_the_value_is_the_integral(family, backend, d):
    # Rows that are seen from a time on are divided by what a group survives until then, which polynomials follow more slowly.
    nodes = {1: 40, 2: 30, 3: 30 if family in mixed.TIMES else 14}[d]
    case = example(family, d, n=12, groups=4, points=2)
    np.testing.assert_allclose(mixed.values(**case, nodes=nodes, backend=backend), by_grid(case), atol=2e-6)


@pytest.mark.parametrize(("family", "backend", "d"), [*cells(0)])
def test_without_effects_it_is_the_sum_over_rows(family, backend, d):
    case = example(family, d)
    eta = case["points"][:, :2] @ case["X"].T + case["offset"]
    want = [of_rows(xi, e, slice(None), case).sum() for e, xi in zip(eta, case["points"])]
    np.testing.assert_allclose(mixed.values(**case, nodes=3, backend=backend), want, rtol=1e-12)


@pytest.mark.parametrize("p", [10, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_rows_without_effects(family, p):
    """Several blocks of rows and of points, whole vectors of columns and others, read in place or copied."""
    case, rng = example(family, 0, n=2100, groups=1, points=19), np.random.default_rng(p)
    case["points"] = np.hstack([0.3 * rng.standard_normal((19, p)), case["points"][:, 2:]])
    wide = np.full((2100, p + 3), np.nan)
    wide[:, :p] = rng.standard_normal((2100, p)) / np.sqrt(p)
    for X in (wide[:, :p].copy(), wide[:, :p]):
        case["X"] = X
        value = mixed.values(**case, nodes=1)
        np.testing.assert_allclose(value, mixed.values(**case, nodes=1, backend="reference"), rtol=1e-12)
        assert np.array_equal(value, mixed.values(**case, nodes=1, n_threads=2))
        at = case | {"points": case["points"][:3]}
        assert np.array_equal(value[:3], mixed.values(**at, nodes=1))
        found = mixed.curvature(**at, nodes=1)
        for mine, want in zip(found, mixed.curvature(**at, nodes=1, backend="reference"), strict=True):
            np.testing.assert_allclose(mine, want, atol=1e-12 * np.abs(want).max(axis=-1, keepdims=True, initial=1.0).max())
        for mine, again in zip(found, mixed.curvature(**at, nodes=1, n_threads=2), strict=True):
            assert np.array_equal(mine, again)


@pytest.mark.parametrize(("family", "backend", "d"), [cell for d in (0, 1, 2, 3) for cell in cells(d)])
def test_derivatives_are_those_of_the_value(family, backend, d):
    nodes = {0: 1, 1: 40, 2: 20, 3: 8}[d]
    n, groups = (8, 2) if backend == "reference" else (16, 4)  # it takes a hundred times as long, and adds up the same formulas
    case = example(family, d, n, groups, points=1, tau={3: 0.2}.get(d, 0.5))
    value, gradient, minus_hessian = mixed.curvature(**case, nodes=nodes, backend=backend)
    np.testing.assert_allclose(value, mixed.values(**case, nodes=nodes, backend=backend), rtol=1e-11)
    want, hessian = differences(case, nodes, backend)
    np.testing.assert_allclose(gradient[0], want, atol=5e-6)
    np.testing.assert_allclose(minus_hessian[0], -hessian[np.tril_indices(len(want))], atol=1e-3 if d == 3 else 5e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_gaussian_rows_are_normal_together(d, backend):
    """Woodbury: y is normal with covariance sd^2 I + Z T T' Z' in each group."""
    case = example("gaussian", d)
    want = []
    for xi in case["points"]:
        T, total = factor_of(xi[2:-1], d), 0.0
        for begin, end in pairwise(case["starts"]):
            Z = case["Z"][begin:end] @ T
            mean = case["X"][begin:end] @ xi[:2] + case["offset"][begin:end]
            total += multivariate_normal.logpdf(case["y"][begin:end], mean, np.exp(2 * xi[-1]) * np.eye(end - begin) + Z @ Z.T)
        want.append(total)
    np.testing.assert_allclose(mixed.values(**case, nodes=15, backend=backend), want, atol=1e-8)
    np.testing.assert_allclose(mixed.curvature(**case, nodes=15, backend=backend)[0], want, atol=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nodes", [15, 61])
def test_wheeze(nodes, backend):
    """The six cities' children: values, gradient and Hessian from an independent quadrature."""
    if not WHEEZE.exists():
        pytest.skip("no FEDKERN_DATA")
    d = np.genfromtxt(WHEEZE, delimiter=",", names=True)
    X = np.column_stack([np.ones(len(d)), d["age"], d["smoke"], d["age"] * d["smoke"]])
    starts = np.concatenate([[0], np.flatnonzero(np.diff(d["id"])) + 1, [len(d)]])
    case = {
        "points": np.array([[-3, -0.2, 0.4, 0.1, np.log(2)]]), "X": X, "Z": np.ones((len(d), 1)), "y": d["resp"].copy(),
        "trials": None, "offset": None, "starts": starts, "family": "bernoulli", "nodes": nodes,
    }  # fmt: skip
    value, gradient, minus_hessian = mixed.curvature(**case, backend=backend)
    if nodes == 15:
        np.testing.assert_allclose(value, -797.84110, atol=1e-5)
        return
    np.testing.assert_allclose(value, -797.83178084, atol=1e-7)
    np.testing.assert_allclose(gradient[0], [1.22018887, -2.68234372, 1.12527405, -1.2886839, 12.39002004], atol=1e-7)
    want = [65.2532, -39.5594, 250.6316, 23.9829, -13.4092, 23.9829, -13.4093, 94.9858, -13.4092, 94.9858]
    want += [92.1102, -41.2534, 32.4881, -14.5702, 264.8755]
    np.testing.assert_allclose(minus_hessian[0], want, atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_negative_binomial_of_little_dispersion_is_poisson(backend):
    """Value and derivatives are smooth at phi = 0, and even in phi."""
    case = example("negative-binomial", 1, points=1)
    at = {phi: case["points"][0].copy() for phi in (0.0, 1e-9, 1e-4, -1e-4, 0.3, -0.3)}
    for phi, xi in at.items():
        xi[-1] = phi
    case["points"] = np.array(list(at.values()))
    results = mixed.curvature(**case, nodes=15, backend=backend)
    none, least, small, minus_small, some, minus = zip(*results)
    of_poisson = case | {"family": "poisson", "points": case["points"][:1, :-1]}
    value, gradient, minus_hessian = mixed.curvature(**of_poisson, nodes=15, backend=backend)
    np.testing.assert_allclose(none[0], value[0], rtol=3e-14)
    np.testing.assert_allclose(none[1], [*gradient[0], 0.0], atol=1e-12)
    np.testing.assert_allclose(none[2][: minus_hessian.shape[1]], minus_hessian[0], atol=1e-10)
    np.testing.assert_allclose(least[2], none[2], rtol=1e-8, atol=1e-6)
    np.testing.assert_allclose(small[0] - none[0], -0.5 * none[2][-1] * 1e-8, rtol=1e-3)
    assert small[0] == minus_small[0]
    assert some[0] == minus[0]
    assert some[1][-1] == -minus[1][-1] != 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("phi", [1e-8, 1e-3, 0.5, 3.0])
def test_large_counts_of_a_negative_binomial(phi, backend):
    """log Gamma(y + r) - log Gamma(r) - y log r, where the two are not 120 nats off."""
    y = np.array([0.0, 3, 99, 100, 101, 1e3, 1e5])
    n = len(y)
    case = {
        "X": np.ones((n, 1)), "Z": np.ones((n, 0)), "y": y, "trials": None, "offset": np.log(y + 1), "starts": np.array([0, n]),
    }  # fmt: skip
    a = np.longdouble(phi) ** 2
    mean = (y + 1).astype(np.longdouble)
    k = np.arange(int(y.max()), dtype=np.longdouble)
    below = np.concatenate([[0], np.cumsum(np.log1p(k * a))])[y.astype(int)]
    want = below - gammaln(y + 1) + y * np.log(mean) - (y + 1 / a) * np.log1p(a * mean)
    got = mixed.values(np.array([[0.0, phi]]), **case, family="negative-binomial", nodes=1, backend=backend)
    np.testing.assert_allclose(got, want.sum().astype(float), rtol=1e-12, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "negative-binomial"])
@pytest.mark.parametrize("far", [30.0, -60.0, 300.0, -700.0])
def test_far_predictors_and_modes(family, far, backend):
    """Effects have to make up for a predictor that is far away, and the rows of a group agree."""
    n, tau = 6, 25.0
    y = np.array([1.0, 1, 1, 0, 0, 0])
    case = {
        "X": np.ones((n, 1)), "Z": np.ones((n, 1)), "y": y, "trials": None, "offset": None, "starts": np.array([0, 3, 6]),
        "points": np.array([[far, np.log(tau), *([0.5] if family == "negative-binomial" else [])]]),
    }  # fmt: skip
    got = mixed.values(**case, family=family, nodes=60, backend=backend)
    u = np.arange(-45, 45, 1e-4)
    want = 0.0
    for of_group in (y[:3], y[3:]):
        eta = far + tau * u
        mean = np.exp(np.minimum(eta, 600))
        if family == "bernoulli":
            rows = of_group.sum() * eta - 3 * np.logaddexp(0, eta)
        elif family == "poisson":
            rows = of_group.sum() * eta - 3 * mean
        else:
            rows = of_group.sum() * eta - (of_group.sum() + 12) * np.log1p(0.25 * mean)
        level = rows + norm.logpdf(u)
        want += level.max() + np.log(np.exp(level - level.max()).sum() * 1e-4)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=0.3)  # 60 nodes, tau = 25
    assert np.isfinite(mixed.curvature(**case, family=family, nodes=15, backend=backend)[2]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [0, 1])
def test_counts_never_rise_with_a_mean_that_is_far_too_large(d, backend):
    """A point far out must not get all the weight."""
    case = example("negative-binomial", d)
    points = np.repeat(case["points"][:1], 5, axis=0)
    points[:, 0] = [100.0, 680.0, 700.0, 1e3, 1e5]
    for family, own in (("negative-binomial", points), ("poisson", points[:, :-1])):
        values = mixed.values(**(case | {"points": own, "family": family}), nodes=5, backend=backend)
        found = values[np.isfinite(values)]
        assert len(found) >= 2
        assert (np.diff(found) <= 0).all()
        assert found.max() < -1e3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_point_that_has_no_value_is_none_for_itself_alone(backend):
    case = example("poisson", 1, points=5)
    alone = mixed.values(**case, nodes=5, backend=backend)
    case["points"] = case["points"].copy()
    case["points"][1, 0], case["points"][3, 2] = np.nan, np.inf
    results = mixed.curvature(**case, nodes=5, backend=backend)
    assert [*map(int, np.flatnonzero(np.isnan(results[0])))] == [1, 3]
    assert all(np.isnan(r[[1, 3]]).all() and np.isfinite(r[[0, 2, 4]]).all() for r in results)
    got = mixed.values(**case, nodes=5, backend=backend)
    np.testing.assert_array_equal(got[[0, 2, 4]], alone[[0, 2, 4]])
    assert np.isnan(got[[1, 3]]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [0, 1])
def test_groups_without_rows_and_no_rows_at_all(d, backend):
    case = example("bernoulli", d)
    with_empty = case | {"starts": np.sort(np.concatenate([case["starts"], case["starts"][[0, 2, 2, -1]]]))}
    want = mixed.curvature(**case, nodes=5, backend=backend)
    for one, other in zip(mixed.curvature(**with_empty, nodes=5, backend=backend), want):
        np.testing.assert_array_equal(one, other)
    nothing = case | {name: case[name][:0] for name in ("X", "Z", "y", "offset")}
    for starts in ([0], [0, 0, 0]):
        for result in mixed.curvature(**nothing | {"starts": np.array(starts)}, nodes=5, backend=backend):
            np.testing.assert_array_equal(result, 0)


ERRORS = [
    ({"Z": np.ones((4, 4))}, "Z must have at most 3 columns, got 4"),
    (
        {"points": np.zeros((1, 3))},
        r"points must have 2 columns \(1 coefficients, 1 of T and 0 of the bernoulli rows' own\), got 3",
    ),
    ({"family": "gaussian"}, "points must have 3 columns"),
    ({"starts": np.array([0, 3])}, "starts must rise from 0 to the number of rows, 4"),
    ({"starts": np.array([1, 4])}, "starts must rise from 0"),
    ({"starts": np.array([0, 3, 2, 4])}, "starts must rise from 0"),
    ({"starts": np.array([], int)}, "starts must rise from 0"),
    ({"nodes": 0}, r"nodes must be in \[1, 128\], got 0"),
    ({"family": "normal"}, "family must be one of bernoulli, binomial, poisson, .*, loglogistic-aft, got 'normal'"),
]


@pytest.mark.parametrize(("change", "message"), ERRORS)
def test_refuses_by_name(change, message):
    call = {
        "points": np.zeros((1, 2)), "X": np.ones((4, 1)), "Z": np.ones((4, 1)), "y": np.zeros(4), "trials": None, "offset": None,
        "starts": np.array([0, 2, 4]), "family": "bernoulli", "nodes": 3,
    }  # fmt: skip
    for function in (mixed.values, mixed.curvature):
        with pytest.raises(ValueError, match=f"mixed.{function.__name__}: {message}"):
            function(**call | change)


@pytest.mark.parametrize("backend", ["cpp", "cuda", "numba"])
@pytest.mark.parametrize("code", [-1, max(mixed.CODES.values()) + 1])
def test_a_number_that_no_family_has_is_refused(code, backend):
    arrays = np.zeros((1, 2)), np.ones((4, 1)), np.ones((4, 1)), np.zeros(4), None, None, np.array([0, 2, 4]), None, None, None
    outputs = np.empty(1), np.empty((1, 2)), np.empty((1, 3))
    with pytest.raises(ValueError, match="family: no likelihood"):
        mixed.VALUES.implementation(backend)(*arrays, code, 3, outputs[0], 1)
    if backend in mixed.CURVATURE.backends:
        with pytest.raises(ValueError, match="family: no likelihood"):
            mixed.CURVATURE.implementation(backend)(*arrays, code, 3, *outputs, 1)


def test_the_mode_is_needed(monkeypatch):
    """Negative control: with modes a little off, five nodes give another value."""
    from fedkern.kernels._reference import mixed as reference

    case, found = example("poisson", 1), reference.modes
    want = mixed.values(**case, nodes=5, backend="reference")
    monkeypatch.setattr(reference, "modes", lambda *a: (found(*a)[0] + 0.5, found(*a)[1]))
    assert np.abs(mixed.values(**case, nodes=5, backend="reference") - want).max() > 1e-4
