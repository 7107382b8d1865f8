"""Fixed-point words of any number of limbs, by whole numbers of any length; arguments that would corrupt memory are refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedkern._core import words as compiled

Words = NDArray[np.uint64]


def whole(words: Words, i: int) -> int:
    return sum(int(limb) << (64 * k) for k, limb in enumerate(words[:, i]))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_words_are_the_nearest_whole_units_and_numbers_the_nearest_to_words(data: st.DataObject) -> None:
    limbs = data.draw(st.sampled_from([1, 2, 3, 8, 16]))
    fraction = data.draw(st.integers(0, 64 * limbs))
    largest = 2.0 ** (64 * limbs - 1 - fraction) if 64 * limbs - 1 - fraction < 1024 else 1.7e308
    sizes = st.one_of(
        st.floats(allow_nan=True), st.floats(-largest, largest), st.sampled_from([largest, -largest, 0.5, 1.5, 5e-324])
    )
    values = np.array(data.draw(st.lists(sizes, min_size=1, max_size=4)))
    words, outside = np.full((limbs, len(values)), 7, np.uint64), np.empty(len(values), np.bool_)
    count = compiled.from_values(values, fraction, largest, words, outside)
    np.testing.assert_array_equal(outside, ~(np.abs(values) < largest))
    assert count == outside.sum()
    modulus = 1 << (64 * limbs)
    for i, value in enumerate(values):
        units = 0 if outside[i] else round(Fraction(value) * (1 << fraction))
        assert whole(words, i) == units % modulus
    edge = st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1, 2**53 + 1, 2**62])
    limb = st.lists(st.one_of(edge, st.integers(0, 2**64 - 1)), min_size=limbs, max_size=limbs)
    words[:, 0] = data.draw(limb)
    told = np.empty(len(values))
    compiled.to_values(words, fraction, told)
    for i in range(len(values)):
        units = whole(words, i)
        units -= modulus * (units >= modulus // 2)
        try:
            assert told[i] == units / (1 << fraction)  # Python rounds a quotient of whole numbers once
        except OverflowError:
            assert np.isinf(told[i])


def made(shape: tuple[int, ...], kind: type[np.generic] = np.uint64) -> np.ndarray:
    return np.zeros(shape, kind)


FIVE = made((5,), np.float64)
REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "of other numbers": ("dtype", lambda: compiled.from_values(FIVE, 64, 1.0, made((2, 5), np.int64), made((5,), np.bool_))),
    "of another length": ("length 4", lambda: compiled.from_values(FIVE, 64, 1.0, made((2, 4)), made((5,), np.bool_))),
    "marks of another length": ("length 5", lambda: compiled.from_values(FIVE, 64, 1.0, made((2, 5)), made((4,), np.bool_))),
    "strided": ("C order", lambda: compiled.from_values(FIVE, 64, 1.0, made((2, 10))[:, ::2], made((5,), np.bool_))),
    "parts of rows": ("C order", lambda: compiled.add(made((2, 10))[:, :5], bytes(80), 0)),
    "turned": ("C order", lambda: compiled.to_values(made((5, 2)).T, 64, FIVE)),
    "without a limb": ("limbs", lambda: compiled.to_values(made((0, 5)), 64, FIVE)),
    "of too many limbs": ("limbs", lambda: compiled.to_values(made((17, 5)), 64, FIVE)),
    "too large": ("largest", lambda: compiled.from_values(FIVE, 64, 2.0**64, made((2, 5)), made((5,), np.bool_))),
    "of no size": ("largest", lambda: compiled.from_values(FIVE, 64, np.nan, made((2, 5)), made((5,), np.bool_))),
    "before the point": ("fraction", lambda: compiled.to_values(made((2, 5)), -1, FIVE)),
    "behind all limbs": ("fraction", lambda: compiled.to_values(made((2, 5)), 129, FIVE)),
    "half a part": ("whole arrays", lambda: compiled.add(made((2, 5)), bytes(120), 0)),
    "parts of nothing": ("whole arrays", lambda: compiled.add(made((2, 0)), bytes(8), 0)),
    "between words": ("aligned", lambda: compiled.add(made((2, 5)), memoryview(bytes(81))[1:], 0)),
    "read only": ("read-only", lambda: compiled.add(np.frombuffer(bytes(80), np.uint64).reshape(2, 5), bytes(80), 0)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    says, call = REFUSED[case]
    with pytest.raises(ValueError, match=says):
        call()


def test_nothing_is_added_to_nothing() -> None:
    empty = made((2, 0))
    compiled.add(empty, b"", 0)
    compiled.to_values(empty, 64, np.empty(0))
    assert compiled.from_values(np.empty(0), 64, 1.0, empty, np.empty(0, np.bool_)) == 0
    with pytest.raises(TypeError):
        compiled.add(made((2, 5)), 3, 0)
