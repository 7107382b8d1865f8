"""Numbers that are what they may be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from fedkern.kernels.ranges import finite, within

FLOATS = arrays(np.float64, array_shapes(max_dims=3, max_side=40, min_side=0), elements=st.floats(width=64))


@given(FLOATS)
def test_finite(a: NDArray[np.float64]) -> None:
    assert finite(a) == np.isfinite(a).all()


@given(FLOATS, st.floats(), st.floats())
def test_within(a: NDArray[np.float64], least: float, most: float) -> None:
    assert within(a, least, most) == ((a >= least) & (a <= most)).all()


@pytest.mark.parametrize("at", [0, 7, 8, 1002])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_of_many(at: int, bad: float) -> None:
    a = np.full(1003, 1.7976931348623157e308)
    assert finite(a)
    assert within(a, -np.inf, np.inf)
    a[at] = bad
    assert not finite(a)
    assert within(a, -np.inf, np.inf) == (bad == bad)
    assert not within(a, 0.0, 1.8e308 if bad != np.inf else 1e308)


def test_the_smallest_number_is_more_than_nothing() -> None:
    a = np.array([5e-324, 1.0])
    assert within(a, float(np.nextafter(0.0, 1.0)), np.inf)
    assert not within(np.zeros(1), float(np.nextafter(0.0, 1.0)), np.inf)


@pytest.mark.parametrize("a", [np.ones(4, np.float32), np.ones((3, 3))[:, ::2], [1.0], None])
def test_refused(a: object) -> None:
    for call in (lambda: finite(a), lambda: within(a, 0.0, 1.0)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"float64 in C order"):
            call()
