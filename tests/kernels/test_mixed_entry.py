"""Times of groups whose rows are seen late: one integral of the rows' densities, each given no event until its entry."""

from itertools import product

import numpy as np
import pytest

from fedkern.kernels import families, mixed
from fedkern.kernels._record import KERNELS
from oracles.mixed_rows import by_grid, differences, example

BACKENDS = [b for b in ("cpp", "reference") if "weibull" not in KERNELS["mixed.values"].lacks.get(b, ())]

GROUPED = [family for family in mixed.TIMES if family not in families.ACCELERATED]  # the others have no effects then


def late(family, d, seed=0, **more):
    """Rows of which some were seen from 0 on, others later, and one of an interval from its begin on."""
    case, rng = example(family, d, seed=seed, **more), np.random.default_rng(seed)
    entry = np.where(rng.random(24) < 0.7, case["y"] * rng.random(24), 0.0)
    entry[2] = case["y"][2]
    return case | {"entry": entry}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("family", GROUPED)
def test_an_integral_of_ratios(family, d, backend):
    """Against the trapezoid rule. The ratio of two integrals, of which the second has the rows until their entries, is another
    number."""
    case = late(family, d)
    found = mixed.values(**case, nodes=40 if d == 1 else 25, backend=backend)
    np.testing.assert_allclose(found, by_grid(case), atol=1e-6)
    whole = case | {"entry": None}
    before = whole | {"y": case["entry"], "upper": np.full(24, np.inf)}
    ratio = mixed.values(**whole, nodes=25, backend=backend) - mixed.values(**before, nodes=25, backend=backend)
    assert (np.abs(ratio - found) > 1e-2).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("family", "d"), [*product(GROUPED, [0, 1, 2]), *product(families.ACCELERATED, [0])])
def test_derivatives_are_those_of_the_value(family, d, backend):
    case = late(family, d, points=1)
    nodes = 30 if d == 1 else 20
    _, gradient, minus_hessian = mixed.curvature(**case, nodes=nodes, backend=backend)
    slopes, curves = differences(case, nodes, backend)
    np.testing.assert_allclose(gradient[0], slopes, atol=5e-6)
    np.testing.assert_allclose(minus_hessian[0], -curves[np.tril_indices(len(curves))], atol=5e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", mixed.TIMES)
def test_without_effects_it_is_the_difference_of_two_sums(family, backend):
    case = late(family, 0)
    before = case | {"entry": None, "y": case["entry"], "upper": np.full(24, np.inf)}
    both = [mixed.curvature(**one, nodes=1, backend=backend) for one in (case | {"entry": None}, before)]
    for found, whole, less in zip(mixed.curvature(**case, nodes=1, backend=backend), *both):
        np.testing.assert_allclose(found, whole - less, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", mixed.TIMES)
def test_entries_at_0_are_none(family, backend):
    case = example(family, int(family in GROUPED))
    both = [mixed.curvature(**case | {"entry": entry}, nodes=9, backend=backend) for entry in (None, np.zeros(24))]
    for found, same in zip(*both):
        np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", mixed.TIMES)
def test_rows_that_were_not_seen_say_nothing(family, backend):
    case = example(family, int(family in GROUPED))
    case |= {"y": case["y"] + 1, "upper": np.full(24, np.inf), "entry": case["y"] + 1}
    for result in mixed.curvature(**case, nodes=9, backend=backend):
        np.testing.assert_allclose(result, 0, atol=1e-13)


BAD = [(1.0, np.inf, 1.1), (1.0, 1.0, 1.0), (1.0, np.inf, -0.1), (1.0, np.inf, np.nan), (1.0, np.inf, np.inf)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", mixed.TIMES)
@pytest.mark.parametrize(("y", "upper", "entry"), BAD)
def test_an_entry_that_is_none_makes_all_results_nan(family, y, upper, entry, backend):
    case = late(family, int(family in GROUPED))
    case["y"][5], case["upper"][5], case["entry"][5] = y, upper, entry
    for result in mixed.curvature(**case, nodes=3, backend=backend):
        assert np.isnan(result).all()
    assert np.isnan(mixed.values(**case, nodes=3, backend=backend)).all()
