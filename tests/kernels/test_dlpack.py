"""Arrays of other libraries go into kernels by `__dlpack__`, without a copy; the recipes of docs/how-to/arrays.md run."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedkern import testing
from fedkern.data import memory
from fedkern.kernels import KERNELS, _record, from_dlpack, glm, mlp, privacy, rng, shrinkage

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "arrays.md"


class Elsewhere:
    """An array that has nothing but the protocol."""

    def __init__(self, values, device=1):
        self.values, self.device = values, device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device, 0


class Negated(Elsewhere):
    """An array as torch's conjugate has it: the memory holds minus the values, and the protocol does not say so."""

    def is_neg(self):
        return True

    def resolve_neg(self):
        return -self.values


@pytest.fixture
def wide():
    """JAX with float64, as it was afterwards."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def moved(arguments, convert):
    return {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def same(ours, theirs):
    for one, other in zip(*(value if isinstance(value, tuple) else (value,) for value in (ours, theirs)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernels_take_whatever_has_the_protocol(name):
    function = testing.public_function(KERNELS[name])
    for seed in (1, 2, 3):
        case = testing.case(name, seed, layouts=("C", "F", "strided", "read-only"))
        same(function(**case.arguments), function(**moved(case.arguments, Elsewhere)))


def test_nothing_is_copied(monkeypatch):
    seen, call = [], _record.Kernel.call

    def watched(self, backend, arrays, numbers, n_threads):
        seen.extend(array.__array_interface__["data"][0] for array in arrays)
        return call(self, backend, arrays, numbers, n_threads)

    monkeypatch.setattr(_record.Kernel, "call", watched)
    rows, total = np.ones((5, 3)), np.empty(3)
    result = privacy.clip_sum(Elsewhere(rows), 1.0, out=Elsewhere(total))
    assert seen == [rows.ctypes.data, total.ctypes.data]
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(total, privacy.clip_sum(rows, 1.0))
    theirs = jnp.ones((5, 3), jnp.float32)
    privacy.clip_sum(theirs, 1.0)
    assert seen[2] == theirs.unsafe_buffer_pointer() == from_dlpack(theirs).ctypes.data


def wrong_indices():
    """Calls whose arrays of indices point beyond other arrays."""
    order = np.array([[0, 2**40]])
    state = np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
    clients = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))
    yield lambda of: shrinkage.global_sweep(*map(of, (*clients, order, *state)), seed=7)
    yield lambda of: shrinkage.bind_global_sweep(*map(of, (*clients, order, *state)), seed=7)
    sums = np.ones((2, 1, 1, 2))
    yield lambda of: shrinkage.global_sweep_sums(of(sums), 2, *map(of, (order, *state)), seed=7)
    block, beside = np.array([0, 2**40]), (np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 2)))
    yield lambda of: shrinkage.move(*map(of, (np.ones((1, 2)), np.ones((1, 2, 2)), block, *beside)), seed=7)
    case = testing.case("mlp.vae_step", 1, layouts=("C",)).arguments
    assert case["kind"] == "sparse"
    yield lambda of: mlp.vae_step(**moved(case | {"indices": case["indices"] + 2**40}, of))
    for centre in ("augmented.amortised_iteration", "augmented.network_iteration"):
        case = testing.case(centre, 1, layouts=("C",)).arguments | {"centre": 2**40}
        yield lambda of, centre=centre, case=case: testing.public_function(KERNELS[centre])(**moved(case, of))


def test_what_points_beyond_an_array_is_refused_in_theirs_too(wide):
    n = 0
    for call in wrong_indices():
        n += 1
        with pytest.raises(ValueError, match="must") as ours:
            call(lambda array: array)
        for of in (Elsewhere, jnp.asarray):
            with pytest.raises(ValueError, match="must") as theirs:
                call(of)
            assert str(theirs.value) == str(ours.value)
    assert n == 7


def test_a_bound_call_takes_them():
    mu, sigma, data = np.zeros(2), np.zeros(2), (np.ones((4, 2)), np.ones(4))
    step = glm.bind_clipped_grad_sum(*map(Elsewhere, data), mu, sigma, family="gaussian", clip=1.0, seed=1)
    same(step(mu, sigma, 0), step(Elsewhere(mu), Elsewhere(sigma), 0))


def test_wrong_ones_are_refused_by_name():
    for device, remedy in ((2, "kernels.from_dlpack makes a CuPy array"), (12, "copy it to this machine's memory")):
        with pytest.raises(TypeError, match=rf"privacy.clip_sum: rows lies on another device than the CPU .*{remedy}"):
            privacy.clip_sum(Elsewhere(np.ones((2, 2)), device), 1.0)
    with pytest.raises(TypeError, match="rows must be float64 or float32, got int32"):
        privacy.clip_sum(jnp.ones((2, 2), jnp.int32), 1.0)
    with pytest.raises(TypeError, match=r"rows: .*gives no array"):
        privacy.clip_sum(jnp.ones((2, 2), jnp.bfloat16), 1.0)
    with pytest.raises(ValueError, match="is read-only"):
        rng.normal(3, key=1, out=Elsewhere(testing.laid_out(np.empty(3), "read-only")))
    rows = np.ones((2, 2))
    with pytest.raises(ValueError, match="overlaps another argument"):
        privacy.clip_sum(Elsewhere(rows), 1.0, out=Elsewhere(rows[0]))
    for call in (from_dlpack, lambda value: privacy.clip_sum(value, 1.0)):
        with pytest.raises(TypeError, match="list"):
            call([[1.0]])


def recipe(first):
    """The names that the page's block with this first line makes."""
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if b.startswith(first))
    names = {}
    exec(block, names)
    return names


def test_the_first_lines_of_the_page():
    made = recipe("import jax.numpy")
    np.testing.assert_array_equal(made["total"], privacy.clip_sum(np.ones((3, 2), made["rows"].dtype), 1.0))


def logistic(theta):
    random = np.random.default_rng(1)
    X, y = random.normal(size=(30, 3)), (random.random(30) < 0.5).astype(float)
    return X, y, glm.loglik_grad(X, y, theta, family="bernoulli")


def test_the_recipe_for_jax(wide):
    theta = np.array([0.3, -0.2, 0.1])
    X, y, (value, grad) = logistic(theta)
    loglik = recipe("import jax\n")["loglik"]
    ours = jax.jit(jax.value_and_grad(lambda t: 2 * loglik(X, y, t) + t[0]))(jnp.asarray(theta))
    np.testing.assert_allclose(ours[0], 2 * value + theta[0], rtol=1e-14)
    np.testing.assert_allclose(ours[1], 2 * grad + [1, 0, 0], rtol=1e-14)
    several = jax.vmap(jax.grad(loglik, argnums=2), (None, None, 0))(X, y, jnp.stack([theta, 2 * theta]))
    np.testing.assert_allclose(several, [grad, logistic(2 * theta)[2][1]], rtol=1e-14)
    # An independent gradient: JAX's own of the formula.
    formula = lambda t: jnp.sum(y * (X @ t) - jnp.logaddexp(0.0, X @ t))  # noqa: E731
    np.testing.assert_allclose(grad, jax.grad(formula)(jnp.asarray(theta)), rtol=1e-12, atol=1e-12)


@pytest.mark.nightly
def test_the_recipe_for_torch():
    torch = pytest.importorskip("torch")
    theta = np.array([0.3, -0.2, 0.1])
    X, y, (value, grad) = logistic(theta)
    at = torch.tensor(theta, requires_grad=True)
    result = recipe("import torch\n")["LogLik"].apply(torch.from_numpy(X), torch.from_numpy(y), at)
    (2 * result).backward()
    assert result.item() == value
    np.testing.assert_allclose(at.grad.numpy(), 2 * grad, rtol=1e-15)
    total = torch.empty(3, dtype=torch.float64)
    privacy.clip_sum(torch.from_numpy(X), 1.0, out=total)
    np.testing.assert_array_equal(total.numpy(), privacy.clip_sum(X, 1.0))
    with pytest.raises(TypeError, match="gradient"):
        glm.loglik_grad(X, y, at, family="bernoulli")


def test_an_array_that_holds_minus_its_values_is_refused():
    with pytest.raises(TypeError):
        from_dlpack(Negated(np.ones(3)))


def test_a_client_of_such_an_array_has_its_values():
    given = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(memory._array(Negated(-given), "client a"), given)
