"""The public functions of the kernels inside other people's nopython code."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from fedkern import testing
from fedkern.errors import NumericalError
from fedkern.kernels import KERNELS, glm, privacy, rng, sem, shrinkage
from support.command import python

numba = pytest.importorskip("numba")
from fedkern.kernels import numba as pieces  # noqa: E402
from fedkern.kernels._numba import _overloads  # noqa: E402

FAMILIES = ("rng", "glm", "privacy", "sem", "shrinkage")
NAMES = sorted(name for name, kernel in KERNELS.items() if name.split(".")[0] in FAMILIES and "numba" in kernel.backends)
BY_DAY = {"rng.words", "rng.normal", "privacy.clip_sum"}  # glm.loglik_grad is in two tests below
SCOPE = {"rng": rng, "glm": glm, "privacy": privacy, "sem": sem, "shrinkage": shrinkage, "np": np}
ROWS = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]])
Y = np.array([1.0, 0.0, 1.0])


@pytest.fixture(autouse=True)
def registered():
    """Installed packages are asked by Numba itself."""
    _overloads.init()


def compiled(code, *names):
    scope = dict(SCOPE)
    exec(f"def caller({', '.join(names)}):\n    return {code}", scope)
    return numba.njit(scope["caller"])


def case_of(name, seed):
    """A case whose arrays are not empty; patterns of missing values are made in Python."""
    for s in range(seed, seed + 60):
        case = testing.case(name, s, sizes=(5, 8), layouts=("strided",) if seed else ("C",))
        if all(v.size for v in case.arguments.values() if isinstance(v, np.ndarray)):
            return case
    raise AssertionError(f"{name}: no case has rows")


def conforms(name, seed):
    case = case_of(name, seed)
    constant = {k: v for k, v in case.arguments.items() if v is None or isinstance(v, (str, bool))}
    given = {k: v for k, v in case.arguments.items() if k not in constant}
    arguments = ", ".join(f"{k}={constant[k]!r}" if k in constant else f"{k}={k}" for k in case.arguments)
    got = compiled(f"{KERNELS[name].public}({arguments})", *given)(*given.values())
    want = testing.results_of(name, case)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        testing._assert_close(f"{name}, result {i}", g, w, case, None if case.magnitude is None else case.magnitude[i])


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in BY_DAY else pytest.mark.nightly) for n in NAMES])
def test_each_kernel_is_compiled_in_a_caller_and_gives_the_ordinary_result(name):
    conforms(name, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_another_layout(name):
    conforms(name, 100)


def test_every_kernel_of_these_families_is_registered():
    assert sorted(name for public in _overloads.PUBLIC for name in public.kernels) == NAMES


def test_the_package_names_the_entry_point_and_numba_finds_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["numba_extensions"].items()
    assert (name, EntryPoint(name, value, "numba_extensions").load()) == ("init", _overloads.init)


def test_a_caller_needs_no_word_beside_the_import():
    """In a process of its own, in which nobody but Numba registers anything."""
    code = "import numba; from fedkern.kernels import rng; "
    code += "print(numba.njit(lambda seed: rng.key(seed, 'draws'))(7) == rng.key(7, 'draws'))"
    run = python("-P", "-c", code)
    assert run.out.split() == ["True"], run.err


def test_import_of_the_package_imports_no_numba():
    run = python("-P", "-c", "import sys, fedkern.kernels; print('numba' in sys.modules)")
    assert run.out.split() == ["False"], run.err


LOGLIK = "glm.loglik_grad(X, y, theta, family=family, weights=weights, scale=scale, out=out)"
GOOD = {"X": ROWS, "y": Y, "theta": np.zeros(2), "family": "poisson", "weights": Y, "scale": 1.0, "out": np.zeros(2)}


@pytest.fixture(scope="module")
def loglik():
    """Compiled once, for arguments that are all known at run time only."""
    return compiled(LOGLIK, *GOOD)


def test_a_choice_may_be_known_only_at_run_time_and_results_may_be_given(loglik):
    out, ones = np.empty(2), np.ones(3)
    for family in ("bernoulli", "poisson"):
        value, grad = loglik(ROWS, Y, np.zeros(2), family, ones, 1.0, out)
        want = glm.loglik_grad(ROWS, Y, np.zeros(2), family=family)
        assert value == pytest.approx(want[0], rel=1e-12)
        np.testing.assert_allclose(grad, want[1], rtol=1e-12)
        assert np.shares_memory(grad, out)
    with pytest.raises(ValueError, match=r"glm.loglik_grad: family must be 'bernoulli' or"):
        loglik(ROWS, Y, np.zeros(2), "weibull", ones, 1.0, out)


def test_the_example_of_the_documents_runs():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "numba.md"
    scope = {}
    exec(page.read_text().split("```python")[1].split("```")[0], scope)
    theta, X, y = np.zeros(2), scope["X"], scope["y"]
    for step in range(20):
        noise = rng.normal(2, key=rng.key(7), step=step)
        theta += 0.1 * glm.loglik_grad(X, y, theta, family="bernoulli")[1] + 0.01 * noise
    np.testing.assert_allclose(scope["theta"], theta, rtol=1e-10)


def test_keys_are_those_of_python():
    assert compiled('rng.key(seed, "draws", chain=3)', "seed")(7) == rng.key(7, "draws", 3)
    rng.register("mine.nopython")
    assert compiled('rng.key(seed, "mine.nopython")', "seed")(7) == rng.key(7, "mine.nopython")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"theta": np.zeros(3)}, r"theta must have shape \(d\)"),
        ({"y": Y[:2]}, r"y must have shape \(n\)"),
        ({"weights": Y[:2]}, r"weights must have shape \(n\)"),
        ({"out": np.zeros(3)}, r"grad must have shape \(d\)"),
        ({"scale": -1.0}, "scale must be 1 for a family|positive and finite"),
        ({"family": "weibull"}, "family must be 'bernoulli' or"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_what_would_corrupt_memory_is_refused_at_run_time(loglik, given, message):
    loglik(*GOOD.values())
    with pytest.raises(ValueError, match=message):
        loglik(*(GOOD | given).values())


@pytest.mark.parametrize(
    ("code", "given", "message"),
    [
        ("glm.loglik_grad(X, y, theta, family='poisson')", {"theta": np.zeros(3)}, r"theta must have shape \(d\)"),
        ("privacy.clip_sum(X, -1.0)", {}, "clip must be >= 1e-150"),
        ("rng.normal(4, key=1, first_item=2**32 - 1)", {}, "the counter is exhausted"),
    ],
)
def test_what_would_corrupt_memory_or_repeat_numbers_is_refused_at_run_time(code, given, message):
    arguments = {"X": ROWS, "y": Y, "theta": np.zeros(2), **given}
    with pytest.raises(ValueError, match=message):
        compiled(code, *arguments)(*arguments.values())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("glm.loglik_grad(X, y, y[0], family='poisson')", "theta must be an array"),
        ("glm.loglik_grad(X, y, X, family='poisson')", r"theta must have shape \(d\), got 2 dimensions"),
        ("glm.loglik_grad(X, y, theta.astype(np.float32), family='poisson')", "theta must be float64, got float32"),
        ("rng.normal(4, key=1.5)", "key must be a whole number"),
        ("privacy.clip_sum(X, 1.0, backend='cpp')", "backend must be None or 'numba'"),
        ("rng.key(7, 'drawz')", "no stream 'drawz'"),
    ],
)
def test_wrong_types_are_refused_when_the_caller_is_compiled(code, message):
    with pytest.raises(numba.TypingError, match=message):
        compiled(code, "X", "y", "theta")(ROWS, Y, np.zeros(2))


@pytest.mark.nightly
def test_a_draw_that_is_not_finite_is_an_error():
    R, q, ones = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, np.nan]), np.ones((1, 2))
    draw = compiled("shrinkage.gaussian_posterior_draw(R, q, mean, scale, noise, seed=7)", "R", "q", "mean", "scale", "noise")
    with pytest.raises(NumericalError, match="not finite"):
        draw(R, q, 0 * ones, ones, np.ones(1))


def test_the_functions_below_are_called_in_the_records_order():
    raw = pieces.glm.loglik_grad

    @numba.njit
    def caller(X, y, theta):
        grad = np.empty(2)
        return raw(X, y, theta, None, None, pieces.glm.POISSON, 1.0, grad, 1), grad

    value, grad = caller(ROWS, Y, np.zeros(2))
    want = glm.loglik_grad(ROWS, Y, np.zeros(2), family="poisson")
    assert value == pytest.approx(want[0], rel=1e-12)
    np.testing.assert_allclose(grad, want[1], rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_modules_below_list_their_names(family):
    module = getattr(pieces, family)
    kernels = {name.partition(".")[2] for name in NAMES if name.startswith(family)}
    assert kernels <= set(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


FAST = """
import numpy as np
from numba import njit
from fedkern.kernels import privacy
from fedkern.kernels._numba import _overloads

_overloads.init()
rows = np.array([[1e6, np.nan], [1.0, 1.0], [np.inf, 0.0]])


@njit(fastmath=True)
def fast(rows):
    return privacy.clip_sum(rows, 1.0)


@njit(fastmath=True)
def noisy(total, sigma):
    return privacy.add_noise(total, sigma=sigma, seed=1)


print(abs(fast(rows) - 0.5**0.5).max() < 1e-8, abs(privacy.clip_sum(rows, 1.0, backend="numba") - 0.5**0.5).max() < 1e-8)
try:
    noisy(np.zeros(2), np.inf)
except ValueError as error:
    print(error)
"""


def test_fastmath_of_a_caller_is_its_own():
    """In a process of its own, where that caller is the first: what it has compiled stays for all."""
    optimised = os.environ | {"NUMBA_OPT": "3"}
    done = subprocess.run([sys.executable, "-c", FAST], env=optimised, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True", "privacy.add_noise: sigma must be >= 0 and finite"]
