"""The makers of cases make what they promise."""

import subprocess
import sys

import numpy as np
import pytest

from fedkern import testing
from fedkern.kernels._record import KERNELS


def test_layouts_hold_the_same_numbers_differently():
    content = np.arange(12.0).reshape(3, 4)
    made = {name: testing.laid_out(content, name) for name in testing.LAYOUTS}
    assert all((a == content).all() for a in made.values())
    assert made["F"].flags.f_contiguous
    assert not made["strided"].flags.c_contiguous
    assert min(made["reversed"].strides) < 0
    assert not made["read-only"].flags.writeable
    assert len({(a.strides, a.flags.writeable) for a in made.values()}) == len(made)


def test_a_seed_makes_one_case_and_seeds_make_many():
    one, again = (testing.case("privacy.clip_sum", 3).arguments for _ in range(2))
    np.testing.assert_array_equal(one["rows"], again["rows"])
    shapes = {testing.case("privacy.clip_sum", seed).arguments["rows"].shape for seed in range(30)}
    assert len(shapes) > 10


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_results_of_cases_are_spread_out(name):
    """A case whose results are all zero or NaN would let anything pass."""
    spread = [
        np.ptp(result[np.isfinite(result)])
        for seed in range(12)
        for result in testing.results_of(name, testing.case(name, seed, sizes=(33,)))
        if isinstance(result, np.ndarray) and np.isfinite(result).sum() > 1
    ]
    assert np.count_nonzero(spread) >= 3


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_results_that_come_with_a_case_are_those_of_the_reference(name):
    """`assert_conforms` does not compute them again, nor sees whether the reference changes its arguments."""
    for seed in range(3):
        case = testing.case(name, seed, sizes=(7,))
        if case.wanted is None:
            continue
        before = {key: np.copy(value) for key, value in case.arguments.items() if isinstance(value, np.ndarray)}
        again = testing.results_of(name, case, backend="reference")
        assert len(case.wanted) == len(again)
        for wanted, result in zip(case.wanted, again):
            np.testing.assert_array_equal(wanted, result, strict=True)
        for key, value in before.items():
            np.testing.assert_array_equal(case.arguments[key], value)


def test_a_kernel_without_cases_is_an_error():
    with pytest.raises(LookupError, match=r"rng.dice: no test cases; write dice\(source\) in fedkern/testing/rng.py"):
        testing.case("rng.dice", 1)


def test_tolerances_are_ordered():
    for precision in ("float64", "float32"):
        values = [testing.TOLERANCES[precision, kind] for kind in ("exact", "elementwise", "variate", "reduction")]
        assert values == sorted(values)
        assert values[0] == 0


def test_hypothesis_is_only_imported_for_strategies():
    code = "import sys, fedkern.testing; fedkern.testing.case('rng.normal', 1); assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
