"""What `help` and editors say of kernels: every argument's meaning, shape and domain, from the records."""

import inspect
import re
import warnings

import numpy as np
import pytest

from fedkern import kernels, testing
from fedkern.kernels._checks import MADE, SWITCH
from fedkern.kernels._record import KERNELS

NAMES = sorted(KERNELS)
ROWS = np.array([[3.0, 4.0], [0.3, -0.4]])
TWINS = {  # what binds calls -> what they are calls of
    getattr(family, name): getattr(family, name.removeprefix("bind_"))
    for family in map(vars(kernels).get, kernels.__all__)
    for name in dir(family)
    if name.startswith("bind_")
}


def entries(function, section):
    """Name -> the heading of its entry and what it says."""
    text = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[^\n]*\n-+$|^Source: |\Z)", inspect.getdoc(function), re.S | re.M)[1]
    found = (re.match(r"(\w+) : (.*)\n?([^\0]*)", entry) for entry in re.split(r"\n(?=\S)", text.strip()))
    return {entry[1]: (entry[2], " ".join(entry[3].split())) for entry in found}


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_every_argument_and_result_is(name):
    kernel = KERNELS[name]
    function = testing.public_function(kernel)
    said, returned = entries(function, "Parameters"), entries(function, "Returns")
    assert list(said) == list(inspect.signature(function).parameters)
    assert all(words for _, words in (*said.values(), *returned.values()))
    for array in kernel.inputs:
        assert set(re.findall(r"\(.*?,.*?\)", said[array.name][0])) >= {array.written[0]}, array.name
        assert array.optional <= ("optional" in said[array.name][0]), array.name
    for scalar in kernel.scalars:
        if scalar.domain not in (MADE, SWITCH):
            assert scalar.domain.may_be in said[scalar.keyword][0], scalar.name
    for array in kernel.outputs:
        name = "result" if array.name == "out" else array.name
        assert name == "result" or array.written[0] in returned[name][0], name


@pytest.mark.parametrize("name", NAMES)
def test_no_words_of_a_record_are_left_over(name):
    """Words of a whole family are those of one of its kernels at least."""
    kernel, family = KERNELS[name], name.partition(".")[0]
    shared = set().union(*(used(k) for k in KERNELS.values() if k.name.startswith(f"{family}.")))
    assert not set(kernel.words) - shared
    assert not used(kernel) - set(kernel.words) - {"out", "n_threads", "backend"}


def used(kernel):
    names = {result.partition(" : ")[0] for result in kernel.results or [a.name for a in kernel.outputs]}
    return {"result" if name == "out" else name for name in names} | set(
        inspect.signature(testing.public_function(kernel)).parameters
    )


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_what_binds_calls_takes_what_they_take(twin):
    """By the same names, in the same order, with the same defaults, and says the same of them."""
    ours, theirs = inspect.signature(twin).parameters, inspect.signature(TWINS[twin]).parameters
    assert list(ours) == [name for name in theirs if name in ours]
    left_out = {"step", "learning_rate", "out", "n_threads", "backend", "first_item", "noise_multiplier"}
    assert set(theirs) - set(ours) <= left_out
    assert {name: p.default for name, p in ours.items()} == {name: theirs[name].default for name in ours}
    said, originally = entries(twin, "Parameters"), entries(TWINS[twin], "Parameters")
    assert list(said) == list(ours)
    assert {name: heading for name, (heading, _) in said.items()} == {name: originally[name][0] for name in ours}
    assert all(words.startswith(("Of any call: ", originally[name][1])) for name, (_, words) in said.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_family_lists_what_computes(name):
    family, function = KERNELS[name].public.split(".")
    assert function in getattr(kernels, family).__all__


def test_a_family_lists_its_own_names_alone():
    for family in map(vars(kernels).get, kernels.__all__):
        if inspect.ismodule(family):
            assert all(hasattr(family, name) for name in family.__all__)
            assert [name for name in dir(family) if not name.startswith("__")] == sorted(family.__all__)
            assert "np" not in family.__all__


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lambda: kernels.privacy.clip_sum(ROWS, bound=1.0), lambda: kernels.privacy.clip_sum(ROWS, clip=1.0)),
        (lambda: kernels.rng.normal(n=3, key=7), lambda: kernels.rng.normal(size=3, key=7)),
        (lambda: kernels.rng.gamma(2.0, n=3, key=7), lambda: kernels.rng.gamma(2.0, size=3, key=7)),
        (
            lambda: kernels.privacy.add_noise(ROWS[0], sigma=1.0, key=kernels.rng.key(7, "noise")),
            lambda: kernels.privacy.add_noise(ROWS[0], sigma=1.0, seed=7),
        ),
        (lambda: elbo(key=kernels.rng.key(7, "draws")), lambda: elbo(seed=7)),
        (lambda: elbo(key=kernels.rng.key(7, "draws", 3)), lambda: elbo(seed=7, chain=3)),
        (lambda: elbo(bind=True, key=kernels.rng.key(7, "draws")), lambda: elbo(seed=7)),
    ],
)
def test_old_names_give_the_same_bits_and_name_the_new_one(old, new):
    with pytest.warns(DeprecationWarning, match=r": (bound|n|key)= is now (clip|size|seed)=.*; the old name ends in version 0.3"):
        found = old()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(found, new())


def elbo(bind=False, **random):
    """The gradient in mu of an ELBO by draws."""
    at = {"X": ROWS, "y": np.array([1.0, 0.0]), "mu": np.zeros(2), "log_sigma": np.zeros(2)}
    options = {"family": "bernoulli", "estimator": "total", **random}
    if bind:
        return kernels.bind("glm.elbo_grad", at, ("step",), **options)(0)[1]
    return kernels.glm.elbo_grad(**at, **options)[1]
