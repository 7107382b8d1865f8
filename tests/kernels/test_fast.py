"""The generated checks: plain calls take them, and what they refuse goes the slow way, to a message."""

import numpy as np
import pytest

from fedkern import testing
from fedkern.kernels import _fast, mlp, privacy, rng
from fedkern.kernels._checks import POSITIVE, choice_of
from fedkern.kernels._record import KERNELS, Array, Kernel, Scalar

F64 = (np.dtype("float64"),)
FAMILIES = ("mlp", "augmented", "optim")
TAKEN = ("spatial.car_logdensity",)


@pytest.mark.parametrize("name", [n for n in sorted(KERNELS) if n.partition(".")[0] in FAMILIES or n in TAKEN])
def test_plain_calls_never_go_one_array_after_the_other(name, monkeypatch):
    cases = [testing.case(name, seed, sizes=(1, 33)) for seed in range(10)]
    monkeypatch.setattr(Kernel, "prepare", lambda *arguments: pytest.fail("the slow way"))
    for case in cases:
        assert len(testing.results_of(name, case)) == len(KERNELS[name].outputs)


def test_random_numbers_too(monkeypatch):
    monkeypatch.setattr(Kernel, "prepare", lambda *arguments: pytest.fail("the slow way"))
    assert rng.normal(5, key=1).shape == (5,)


def test_a_given_output_that_is_plainly_right_takes_them(monkeypatch):
    rows, out = np.ones((9, 5)), np.zeros(5)
    with pytest.raises(ValueError, match="overlaps another argument"):
        privacy.clip_sum(np.ones((5, 5)), 1.0, out=np.zeros(5)[::-1]), privacy.clip_sum(rows[:5], 1.0, out=rows[0])
    monkeypatch.setattr(Kernel, "prepare", lambda *arguments: pytest.fail("the slow way"))
    assert privacy.clip_sum(rows, 1.0, out=out) is out
    assert np.array_equal(out, privacy.clip_sum(rows, 1.0))


def test_what_is_returned_by_the_generated_functions():
    inputs = (Array("a", ("n", "p"), F64), Array("b", ("p",), F64), Array("c", ("n",), F64, optional=True))
    outputs = (Array("x", ("2*n", "p"), F64), Array("y", ("q",), F64))
    a, b, c = np.ones((3, 2)), np.ones(2), np.ones(3)
    sizes = _fast.sizes_of(inputs)
    assert sizes({"a": a, "b": b, "c": None}, {"q": 4}) == {"n": 3, "p": 2, "q": 4}
    arrays = _fast.arrays_of(inputs, outputs)({"a": a, "b": b, "c": c}, {"q": 4})
    assert [x.shape for x in arrays] == [(3, 2), (2,), (3,), (6, 2), (4,)]
    seen = []
    scalars = (Scalar("rate", POSITIVE), Scalar("form", choice_of({"a": 7, "b": 8}), of="shape"))
    run = _fast.compute_of(
        inputs, scalars, (), outputs, (), False, lambda *arguments: seen.extend(arguments), refuse, never, never, never
    )
    x, y = run((a, b, None), None, 2, None, {"q": 4}, rate=7, shape="b")
    assert (seen[0] is a, seen[1] is b, seen[2:5], seen[5] is x, seen[6] is y, seen[7]) == (
        True,
        True,
        [None, 7, 8],
        True,
        True,
        2,
    )
    assert type(seen[3]) is float
    with pytest.raises(ZeroDivisionError):
        run((a, b, None), None, 2, None, {"q": 4}, rate=7, shape="c")


def refuse(values):
    raise ZeroDivisionError


def never(*arguments):
    pytest.fail("was called")


def test_arguments_in_an_order_of_their_own():
    inputs, outputs = (Array("a", ("n",), F64), Array("b", ("n",), F64)), (Array("x", ("n",), F64),)
    scalars, a, seen = (Scalar("k", POSITIVE), Scalar("c0", POSITIVE)), np.ones(3), []
    run = _fast.compute_of(
        inputs,
        scalars,
        (),
        outputs,
        ("b", "c0", "x", "k"),
        True,
        lambda *given: [seen.extend(given), 5][1],
        refuse,
        never,
        never,
        never,
    )
    five, x = run((np.zeros(3), a), None, 1, None, k=2, c0=0.5)
    assert (five, seen[0] is a, seen[1], seen[2] is x, seen[3], len(seen)) == (5, True, 0.5, True, 2.0, 4)


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({"a": [[1.0]]}, {}),
        ({"a": np.ones((3, 2), "f4")}, {}),
        ({"a": np.ones(3)}, {}),
        ({"a": np.ones((3, 2)).view(np.matrix)}, {}),
        ({"b": np.ones(3)}, {}),
        ({"b": np.ones((2, 1))}, {}),
        ({"b": None}, {}),
        ({"c": np.ones(2)}, {}),
        ({}, {"n": 4}),
    ],
)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_what_is_not_as_it_should_be_gives_nothing(change, sizes):
    inputs = (Array("a", ("n", "p"), F64), Array("b", ("p",), F64), Array("c", ("n",), F64, optional=True))
    given = {"a": np.ones((3, 2)), "b": np.ones(2), "c": np.ones(3)}
    outputs = (Array("x", ("n",), F64),)
    assert _fast.arrays_of(inputs, outputs)(given, {}) is not None
    assert _fast.arrays_of(inputs, outputs)(given | change, sizes) is None
    assert _fast.sizes_of(inputs)(given | change, sizes) is None
    run = _fast.compute_of(inputs, (), (), outputs, (), False, never, refuse, never, lambda *arguments: None, never)
    assert run(tuple((given | change).values()), None, 1, None, sizes) is None


def test_symbols_that_repeat_and_numbers_in_a_shape():
    inputs = (Array("a", ("3", "k", "k"), F64),)
    sizes = _fast.sizes_of(inputs)
    assert sizes({"a": np.ones((3, 5, 5))}, {}) == {"k": 5}
    for shape in ((3, 5, 4), (2, 5, 5), (3, 5)):
        assert sizes({"a": np.ones(shape)}, {}) is None


def test_types_must_be_alike_where_they_must():
    X, parameters = np.ones((2, 1), "f4"), np.ones(2, "f4")
    assert mlp.forward(X, parameters, sizes=(1, 1)).dtype == np.float32
    with pytest.raises(TypeError, match="parameters must be float32 as X is, got float64"):
        mlp.forward(X, parameters.astype("f8"), sizes=(1, 1))
