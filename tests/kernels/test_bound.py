"""Calls that were bound: the bits of the others, and what is noticed."""

import inspect

import numpy as np
import pytest

from fedkern import kernels, testing
from fedkern.errors import NumericalError
from fedkern.kernels import glm, rng, shrinkage
from fedkern.kernels._record import KERNELS


def problem():
    rng = np.random.default_rng(0)
    R = np.triu(rng.normal(size=(5, 5))) + 5 * np.eye(5)
    state = [np.zeros((3, 5)), np.ones((3, 5)), rng.normal(size=(3, 5)), np.ones((3, 5)), np.ones(3)]
    return R, rng.normal(size=(3, 5)), np.ones(3), state


def sweeps(R, q, rss, state, **options):
    return shrinkage.bind_local_sweeps(R, q, rss, 40.0, *state, seed=3, client=2, **options)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda s: s.__setitem__(0, np.zeros((3, 4))), ValueError, r"theta must have shape \(c, p\) with c = 3, p = 5, got"),
        (lambda s: s.__setitem__(1, np.ones((3, 5), np.float32)), TypeError, "tau_sq must be float64, got float32"),
        (lambda s: s.__setitem__(2, [[0.0] * 5] * 3), TypeError, "deviation must be a NumPy or CuPy array, got list"),
        (lambda s: s.__setitem__(5, -1), ValueError, r"step must be in \[0, 4294967295\], got -1"),
        (lambda s: s.__setitem__(5, 2**70), ValueError, "step must be in"),
        (lambda s: s.pop(), TypeError, "this bound call takes theta, tau_sq, deviation, lambda_sq, sigma_sq, step; 5 were given"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, words):
    R, q, rss, state = problem()
    bound, now = sweeps(R, q, rss, state), [*state, 0]
    change(now)
    with pytest.raises(error, match=words):
        bound(*now)


def moved(R):
    R.resize((6, 6), refcheck=False)


def shrunk(R):
    R.shape = (25, 1)


def of_another_type(R):
    R.dtype = np.int64


in_place = pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")  # NumPy 2.5 will take it away, and has not yet


@in_place
@pytest.mark.parametrize("change", [moved, shrunk, of_another_type])
def test_a_bound_array_that_has_changed_is_noticed(change):
    R, q, rss, state = problem()
    R = R.copy()
    bound = sweeps(R, q, rss, state)
    bound(*state, 0)
    change(R)
    with pytest.raises(ValueError, match="local_sweeps: R has changed its memory, shape or type since it was bound; bind anew"):
        bound(*state, 0)


def rows_and_response(tmp_path):
    rng = np.random.default_rng(2)
    X = np.memmap(tmp_path / "rows", np.float64, "w+", shape=(6, 3))
    X[:] = rng.normal(size=(6, 3))
    return X, rng.integers(0, 2, 6).astype(float), rng.normal(size=3), np.zeros(3)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("backend", ["cpp", "numba"])
def test_a_length_that_no_other_array_has_may_vary(backend, mapped, tmp_path):
    X, y, mu, log_sigma = rows_and_response(tmp_path)
    X = X if mapped else np.array(X)
    given = {"family": "bernoulli", "scale": 1.0, "clip": 0.5, "estimator": "analytic", "draws": 1, "client": 0}
    given |= {"noise_multiplier": 0.0, "grid": 2.0**-20}
    inputs, varying = (X, y, mu, log_sigma, np.arange(2), None, None), ("mu", "log_sigma", "rows", "step")
    bound = KERNELS["glm.clipped_grad_sum"].bind(inputs, varying, 1, backend, step=0, key=0, **given)
    for rows in (np.array([4, 1, 1]), np.arange(6), np.arange(12)[::2] // 2, np.empty(0, np.int64)):
        skipped, total = bound(mu + 1, log_sigma, rows, 3)
        want, without = kernels.glm.clipped_grad_sum(X, y, mu + 1, log_sigma, rows=rows, step=3, backend=backend, **given)
        assert skipped == without
        np.testing.assert_array_equal(total, want, strict=True)
    with pytest.raises(IndexError):
        bound(mu, log_sigma, np.array([0, 6]), 3)
    for rows in (np.arange(2.0), np.arange(2)[None], np.arange(2, dtype=np.int32)):
        with pytest.raises((TypeError, ValueError), match="rows must"):
            bound(mu, log_sigma, rows, 3)
    with pytest.raises(ValueError, match="mu must have shape"):
        bound(np.zeros(4), log_sigma, np.arange(2), 3)


@pytest.mark.parametrize("rows", [None, np.array([3, 0])])
def test_clipped_sums_are_bound_with_their_checks(rows, tmp_path):
    X, y, mu, log_sigma = rows_and_response(tmp_path)
    options = {"clip": 0.5, "family": "bernoulli", "estimator": "weight-mc", "draws": 2, "seed": 4, "client": 1}
    bound = glm.bind_clipped_grad_sum(X, y, mu, log_sigma, rows=rows, weights=np.arange(6.0), **options)
    for step in (0, 7):
        total, skipped = bound(mu + 1, log_sigma, *([] if rows is None else [rows]), step)
        want = glm.clipped_grad_sum(X, y, mu + 1, log_sigma, rows=rows, weights=np.arange(6.0), step=step, **options)
        assert skipped == want[1]
        np.testing.assert_array_equal(total, want[0], strict=True)
    for wrong in ({"seed": None}, {"scale": 2.0}, {"grid": 0.5 * 2.0**-41}, {"clip": 0.0}):
        with pytest.raises(ValueError, match="clipped_grad_sum: "):
            glm.bind_clipped_grad_sum(X, y, mu, log_sigma, rows=rows, **(options | wrong))


def test_words_of_many_steps():
    of = {"key": 2**64 - 1, "client": 3, "draw": 1}
    bound = rng.bind_words(5, **of)
    for step in (0, 2**32 - 1):
        (words,) = bound(step)
        np.testing.assert_array_equal(words, rng.words(5, step=step, **of), strict=True)
    for step in (-1, 2**32):
        with pytest.raises(ValueError, match="step must be in"):
            bound(step)
    for wrong in ({"key": -1}, {"client": 2**32}, {"draw": -1}):
        with pytest.raises(ValueError, match="words: "):
            rng.bind_words(5, **(of | wrong))


def test_every_call_has_outputs_of_its_own():
    R, q, rss, state = problem()
    bound = sweeps(R, q, rss, state)
    first = bound(*state, 0)
    kept = [a.copy() for a in first]
    bound(*state, 1)
    for a, b in zip(first, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unknown_option_is_refused():
    R, q, rss, state = problem()
    with pytest.raises(TypeError, match="no option 'slap'"):
        sweeps(R, q, rss, state, slap=2.0)
    with pytest.raises(TypeError, match="bind_local_sweeps: missing a required argument: 'rss'"):
        shrinkage.bind_local_sweeps(R, q, n=40.0, seed=3)


@in_place
def test_the_server_s_sweeps():
    rng = np.random.default_rng(1)
    shape = (3, 2, 1, 4)
    d, lambda_sq, ids = rng.normal(size=shape), np.ones(shape), np.arange(4)[None]
    now = [np.zeros(shape[1:]), np.ones(shape[1:]), np.ones(shape[1:]), np.ones(shape[1:]), np.full(shape[1:3], 0.5)]
    bound = shrinkage.bind_global_sweep(d, lambda_sq, ids, *now, seed=1, n_passes=2, c0=0.02)
    want = kernels.shrinkage.global_sweep(d, lambda_sq, ids, *now, seed=1, n_passes=2, c0=0.02, step=5)
    for a, b in zip(bound(d, lambda_sq, *now, 5), want, strict=True):
        np.testing.assert_array_equal(a, b)
    ids.shape = (4, 1)
    with pytest.raises(ValueError, match="indicators has changed"):
        bound(d, lambda_sq, *now, 5)


@pytest.mark.parametrize(
    ("name", "inputs", "options", "error", "words"),
    [
        ("glm.clip", {}, {}, ValueError, "no kernel 'glm.clip'"),
        ("privacy.clip_sum", {"Rows": np.ones((2, 2))}, {"clip": 1.0}, TypeError, "no argument 'Rows'; do you mean 'rows'?"),
        ("privacy.clip_sum", {"x": np.ones((2, 2))}, {"clip": 1.0}, TypeError, "no argument 'x'; there are rows, clip"),
        (
            "glm.elbo_grad",
            {a: np.eye(2) for a in ("X", "log_sigma")} | {a: np.zeros(2) for a in ("y", "mu")},
            {"family": "bernoulli", "estimator": "analytic"},
            ValueError,
            "glm.elbo_grad is the kernel glm.elbo_grad_full",
        ),
        ("privacy.clip_sum", {"rows": np.ones((2, 2))}, {}, TypeError, "clip is missing"),
        ("privacy.clip_sum", {"rows": np.ones((2, 2))}, {"clip": -1.0}, ValueError, "clip must be >= 1e-150"),
    ],
)
def test_what_cannot_be_bound(name, inputs, options, error, words):
    with pytest.raises(error, match=words):
        kernels.bind(name, inputs, (), **options)


# --- Bound calls are those of the public function: what they give, and what they refuse.


def parts_of(name, seed, layouts=("C",)):
    """The arrays and the other arguments of a case that has no error."""
    arguments = testing.case(name, seed, (3, 5), layouts).arguments
    arrays = {n: value for n, value in arguments.items() if isinstance(value, np.ndarray)}
    return arrays, {n: value for n, value in arguments.items() if n not in arrays}


def told(call, *given, **named):
    """The bits of all results, or the error."""
    try:
        results = call(*given, **named)
    except Exception as error:
        return type(error), str(error)
    return sorted(
        str((np.asarray(r).dtype, np.asarray(r).tolist())) for r in (results if isinstance(results, tuple) else [results])
    )


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_kernel_is_bound_by_the_arguments_of_its_function(name):
    public, compared = testing.public_function(KERNELS[name]), 0
    for seed in range(4):
        arrays, others = parts_of(name, seed, ("C", "strided"))
        want = told(public, **arrays, **others)
        if isinstance(want, tuple):  # a case whose numbers end badly
            continue
        for varying in (list(arrays), [], *([a] for a in arrays)):
            bound = kernels.bind(name, arrays, varying, **others)
            assert told(bound, *(arrays[a] for a in varying)) == want, (seed, varying)
        # Other numbers, which may be wrong: the bound call reads those that it is given, and says the same of them.
        for a, value in arrays.items():
            if value.dtype.kind == "i" and a != "indicators":  # of patterns and counts, which a wrong number makes huge
                continue
            bound = kernels.bind(name, arrays, [a], **others)
            for other in (value + value.dtype.type(1), -value):
                assert told(bound, other) == told(public, **(arrays | {a: other}), **others), (seed, a)
        compared += 1
    assert compared


# so large a number takes its time
MANY = ("n_sweeps", "n_passes", "draws", "nodes", "batch", "n", "size", "rank", "group", "levels")
NUMBERS = (
    0,
    1,
    2,
    -1,
    2**31,
    2**32 - 1,
    2**32,
    2**63,
    2**64,
    0.0,
    -0.0,
    0.5,
    1.0,
    1e-100,
    1e10,
    5e-324,
    np.inf,
    np.nan,
    None,
    "a",
    True,
)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_number_that_varies_is_refused_where_the_function_refuses_it(name):
    public, compared = testing.public_function(KERNELS[name]), 0
    for seed in range(3):
        arrays, others = parts_of(name, seed)
        if isinstance(told(public, **arrays, **others), tuple):
            continue
        defaults = {
            p.name: p.default
            for p in inspect.signature(public).parameters.values()
            if p.default is not p.empty and p.name not in (*arrays, *others, "out", "n_threads", "backend")
        }
        others = defaults | others
        for one, value in others.items():
            if not isinstance(value, bool | int | float | str | None) or one in ("patterns",):
                continue
            bound = kernels.bind(name, arrays, [one], **others)
            for number in (value, *NUMBERS):
                if one in MANY and isinstance(number, int | float) and 10 < number < 2**32:
                    continue
                want = told(public, **arrays, **(others | {one: number}))
                assert told(bound, number) == want, (seed, one, number)
                compared += 1
    assert compared or not others


def rows_of_bernoulli():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), (rng.random(50) < 0.5) * 1.0
    return {"X": X, "y": y, "mu": np.zeros(3), "log_sigma": np.zeros(3)}


CLIPPED = {"family": "bernoulli", "clip": 1.0, "seed": 1}


@pytest.mark.parametrize(
    ("name", "varying", "options", "now", "words"),
    [
        ("glm.clipped_grad_sum", ["draws"], {**CLIPPED, "estimator": "weight-mc"}, [0], "needs 1 <= draws < 2"),
        ("glm.clipped_grad_sum", ["draws"], {**CLIPPED, "estimator": "weight-mc"}, [2**31], "needs 1 <= draws < 2"),
        ("glm.elbo_grad", ["draws"], {"family": "bernoulli", "seed": 1}, [0], "needs 1 <= draws < 2"),
        ("glm.clipped_grad_sum", ["grid"], {**CLIPPED, "grid": 2.0**-30}, [1e-100], "at least clip / 2"),
        ("glm.clipped_grad_sum", ["clip"], {**CLIPPED, "grid": 2.0**-30}, [2.0**11], "at least clip / 2"),
        ("glm.clipped_grad_sum", ["clip", "grid"], {**CLIPPED, "grid": 2.0**-30}, [2.0**11, 2.0**-30], "at least clip / 2"),
        ("glm.clipped_grad_sum", ["noise_multiplier"], {**CLIPPED, "clip": np.inf}, [2.0], "needs a finite clip"),
        ("glm.clipped_grad_sum", ["clip"], {**CLIPPED, "noise_multiplier": 2.0}, [np.inf], "needs a finite clip"),
        ("glm.clipped_grad_sum", ["seed"], {**CLIPPED, "noise_multiplier": 2.0}, [None], "needs a seed"),
        ("glm.expectations", ["scale"], {"family": "bernoulli"}, [2.0], "bernoulli has none"),
        ("glm.expectations", ["scale"], {"family": "gaussian"}, [0], "scale must be positive"),
    ],
)
def test_rules_between_arguments_hold_in_bound_calls(name, varying, options, now, words):
    data = rows_of_bernoulli()
    public = testing.public_function(KERNELS[name])
    with pytest.raises(ValueError, match=words) as refused:
        public(**data, **(options | dict(zip(varying, now))))
    more = {a: np.zeros(3) for a in ("prior_shift", "prior_precision")} if name == "glm.elbo_grad" else {}
    with pytest.raises(ValueError) as bound:
        kernels.bind(name, data | more, varying, **options)(*now)
    assert str(bound.value) == str(refused.value)


def test_a_bound_sweep_takes_no_number_of_its_counter_twice():
    R, q, rss, state = problem()
    names = ("theta", "tau_sq", "deviation", "lambda_sq", "sigma_sq")
    arrays = {"R": R, "q": q, "rss": rss, **dict(zip(names, state))}
    bound = kernels.bind("shrinkage.local_sweeps", arrays, ["step"], n=40.0, seed=3, n_sweeps=4)
    assert len(bound(2**32 - 4)) == 4
    both = kernels.bind("shrinkage.local_sweeps", arrays, ["step", "n_sweeps"], n=40.0, seed=3)
    for call in (lambda: bound(2**32 - 3), lambda: both(2**32 - 3, 4)):
        with pytest.raises(ValueError, match=r"step \+ n_sweeps must be at most 2\^32, got 4294967297"):
            call()


def test_a_bound_sweep_that_is_not_finite_is_named():
    R, q, rss, state = problem()
    names = ("theta", "tau_sq", "deviation", "lambda_sq", "sigma_sq")
    bound = kernels.bind(
        "shrinkage.local_sweeps", {"R": R, "q": q, "rss": rss, **dict(zip(names, state))}, ["theta", "step"], n=40.0, seed=3
    )
    with pytest.raises(NumericalError, match="local_sweeps: chain 0, client 0, sweep 9"):
        bound(np.full((3, 5), np.nan), 9)


@pytest.mark.parametrize("chain", [2**63, 2**64 - 1])
def test_a_fault_of_the_server_s_sweeps_names_a_large_chain(chain):
    shape = (2, 1, 1, 2)
    state = np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
    with pytest.raises(NumericalError, match=f"chain {chain}, regression 0"):
        shrinkage.global_sweep(np.full(shape, np.nan), np.ones(shape), np.array([[0, 1]]), *state, seed=1, chain=chain)


@pytest.mark.parametrize(
    ("varying", "words"),
    [
        (("mu", "log_sigm"), "no argument 'log_sigm' can vary; do you mean 'log_sigma'"),
        (("mu", "mu"), "varying names 'mu' twice"),
        ("mu", r"varying must be a sequence of names, got the string 'mu'; write \('mu',\)"),
        (("mu", "out"), "no argument 'out' can vary"),
    ],
)
def test_names_of_what_varies_are_checked(varying, words):
    with pytest.raises(TypeError, match=f"clipped_grad_sum: {words}"):
        kernels.bind("glm.clipped_grad_sum", rows_of_bernoulli(), varying, **CLIPPED)
    with pytest.raises(TypeError, match=r"varying|can vary"):
        KERNELS["optim.adam"].bind((np.zeros((3, 2)), np.zeros(2)), varying, learning_rate=0.1, beta1=0.9, beta2=0.9, epsilon=0.0)
