"""Scalars of a wrong type are refused in one sentence that names the argument, and no error shows what an array holds."""

import inspect

import numpy as np
import pytest

from fedkern import testing
from fedkern.kernels import glm, mixed, privacy, rng
from fedkern.kernels._checks import MADE
from fedkern.kernels._record import KERNELS

SECRET = np.array([0.8414709848078965, -1.9092974268256817])
# None of these is a number, nor a name that a choice has.
WORDS = {"a word": "a", "an array": SECRET, "a matrix": SECRET[None], "a list": SECRET.tolist(), "an object": object()}
NO_INTEGERS = {"a fraction": 1.5, "too large": 2**70}
PAIRS = [(name, backend) for name, kernel in sorted(KERNELS.items()) for backend in kernel.backends if backend != "cuda"]
PAIRS = [(name, backend) for name, backend in PAIRS if not KERNELS[name].lacks.get(backend)]  # it says so first


def scalars_of(kernel):
    """The scalar arguments of the public function, and the kind of each."""
    public = inspect.signature(testing.public_function(kernel)).parameters
    kinds = {s.keyword: s.domain.kind for s in kernel.scalars if s.domain is not MADE}
    arrays = {a.name for a in (*kernel.inputs, *kernel.outputs)} | {"out", "backend"}
    return {name: "an integer" if name == "n_threads" else kinds.get(name, "") for name in public if name not in arrays}


def digits_of(case):
    """How texts would begin that show what the arrays of a case hold."""
    yield from ("84147", "90929", "Invoked with")
    for value in case.arguments.values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            shown = np.array2string(value.ravel()[:3], precision=4)[1:-1].split()
            yield from (text for text in shown if len(text.strip("-0.")) >= 4)


@pytest.mark.parametrize(("name", "backend"), PAIRS)
def test_a_scalar_of_a_wrong_type_is_named_and_no_array_is_shown(name, backend):
    kernel, case = KERNELS[name], testing.case(name, seed=3, sizes=(7,), layouts=("C",))
    function, secrets = testing.public_function(kernel), list(digits_of(case))
    for scalar, wanted in scalars_of(kernel).items():
        for kind, value in (WORDS | (NO_INTEGERS if wanted == "an integer" else {})).items():
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**case.arguments | {scalar: value}, backend=backend)
            text = str(caught.value)
            assert scalar in text, (scalar, kind, text)
            assert not [s for s in secrets if s in text], (scalar, kind, text)
            # What a choice does not have is a wrong value, and so may a number be.
            is_value = kind in NO_INTEGERS or wanted not in ("a number", "an integer")
            assert caught.type is TypeError or is_value, (scalar, kind, text)


@pytest.mark.parametrize("n_threads", [0, -1, 2**31])
def test_a_number_of_threads_that_can_not_be(n_threads):
    with pytest.raises(ValueError, match=r"privacy.clip_sum: n_threads must be in \[1, 2\^31\), got"):
        privacy.clip_sum(np.ones((2, 3)), 1.0, n_threads=n_threads)


def test_numbers_of_numpy_are_numbers():
    x = np.ones((2, 3))
    want = privacy.clip_sum(x, 0.5)
    for bound, n_threads in ((np.float32(0.5), np.int64(2)), (np.array(0.5), np.array(2))):
        np.testing.assert_array_equal(privacy.clip_sum(x, bound, n_threads=n_threads), want)
    np.testing.assert_array_equal(rng.normal(3, key=np.uint64(2**63)), rng.normal(3, key=2**63))


BOUND = {"X": np.ones((2, 2)), "y": np.zeros(2), "mu": np.zeros(2), "log_sigma": np.zeros(2), "family": "bernoulli", "clip": 1.0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rng.key("a"), "rng.key: seed must be an integer, got 'a'"),
        (lambda: rng.key(1.5), "rng.key: seed must be an integer, got 1.5"),
        (lambda: rng.key(SECRET), r"rng.key: seed must be an integer, got an array of shape \(2,\)"),
        (lambda: rng.key(1, "user", 0.9), "rng.key: chain must be an integer, got 0.9"),
        (lambda: rng.key(1, SECRET), r"rng.key: stream must be a name, got an array of shape \(2,\)"),
        (lambda: rng.normal(2, key=SECRET), r"rng.normal: key must be an integer, got an array of shape \(2,\)"),
        (lambda: rng.bit_generator(SECRET), r"rng.bit_generator: key must be an integer, got an array of shape \(2,\)"),
        (lambda: rng.bit_generator(1, client=0.9), "rng.bit_generator: client must be an integer, got 0.9"),
        (lambda: privacy.clip_sum(np.ones((2, 2)), SECRET), r"clip must be a number, got an array of shape \(2,\)"),
        (lambda: glm.bind_clipped_grad_sum(**BOUND, n_threads=1.5), "clipped_grad_sum: n_threads must be an integer, got 1.5"),
        (lambda: rng.bind_words(2, key=1)(1.5), "rng.words: step must be an integer, got 1.5"),
        (
            lambda: mixed.values(
                np.zeros((1, 1)), np.ones((2, 1)), np.zeros((2, 0)), np.zeros(2), None, None, np.array([0, 2]), None, SECRET,
                family="bernoulli", nodes=1,
            ),
            r"cuts must be given of piecewise rows, and of no others; got an array of shape \(2,\) of bernoulli rows",
        ),
    ],
)  # fmt: skip
def test_an_error_says_what_came(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
