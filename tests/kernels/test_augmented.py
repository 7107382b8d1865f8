"""The client's side of the augmented models: docs/spec/vertical.md, sections 4 and 5.

Gradients are compared with differences of the ELBO at frozen normals (message and own likelihood are linear there), with and
without the parameters of q held fixed. (All kernels are also in the conformance test of all kernels.)
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import augmented, mlp, optim, rng
from fedkern.kernels._record import KERNELS
from fedkern.kernels._reference import augmented as reference
from oracles.differences import four_point, relative

BACKENDS = KERNELS["augmented.mean_field_draw"].backends
DIFFERENCES = 5e-6  # of four-point central differences
RHO = 0.7


def problem(n=31, p=3, e=1, hidden=(16, 16), seed=0):
    """Design, coefficients, normals, both families' parameters, messages."""
    draw = np.random.default_rng(seed).standard_normal
    return {
        "H": draw((n, p)),
        "w": draw(p),
        "tau": draw(n),
        "mean": draw(n),
        "log_sd": 0.4 * draw(n) - 0.5,
        "extra": draw((n, e)),
        "psi": 0.4 * draw(mlp.n_parameters((1 + e, *hidden, 2))),
        "message": draw(n),
        "own": draw(n),
        "hidden": hidden,
    }


def names(a, *wanted):
    return {name: a[name] for name in wanted}


# Mean-field --------------------------------------------------------------------------------------------------------------------


def mean_field_elbo(a, w, mean, log_sd, frozen=None):
    """At frozen normals; with `frozen` = (mean, log_sd), log q has these parameters."""
    g, z = a["H"] @ w, mean + np.exp(log_sd) * a["tau"]
    value = a["message"] @ z + a["own"] @ g - ((z - g) ** 2).sum() / (2 * RHO**2)
    if frozen is None:
        return value + log_sd.sum()
    return value + ((z - frozen[0]) ** 2 / (2 * np.exp(2 * frozen[1]))).sum()


def mean_field_gradient(a, backend, path):
    g, z = augmented.mean_field_draw(**names(a, "H", "w", "tau", "mean", "log_sd"), backend=backend)
    call = names(a, "H", "tau", "log_sd", "message", "own")
    return augmented.mean_field_gradient(g=g, z=z, rho=RHO, path=path, backend=backend, **call)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [False, True])
def test_mean_field_gradients_are_differences_of_the_elbo(backend, path):
    a = problem()
    w, mean, log_sd = a["w"], a["mean"], a["log_sd"]
    frozen = (mean, log_sd) if path else None
    grad_w, cotangent, grad_mean, grad_log_sd = mean_field_gradient(a, backend, path)
    assert relative(grad_w, four_point(lambda x: mean_field_elbo(a, x, mean, log_sd, frozen), w)) <= DIFFERENCES
    assert relative(grad_mean, four_point(lambda x: mean_field_elbo(a, w, x, log_sd, frozen), mean)) <= DIFFERENCES
    assert relative(grad_log_sd, four_point(lambda x: mean_field_elbo(a, w, mean, x, frozen), log_sd)) <= DIFFERENCES
    np.testing.assert_allclose(grad_w, a["H"].T @ cotangent, rtol=1e-12)
    other = mean_field_gradient(a, backend, not path)
    assert relative(grad_log_sd, other[3]) > 1e-2  # negative control: the two estimators are not one


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_path_gradient_is_zero_where_mean_field_is_exact(backend):
    """Gaussian likelihood of one row each, at fixed w: z | w, y is normal, and q can be just that."""
    a, sigma = problem(), 0.9
    y, g = np.random.default_rng(1).standard_normal(31), a["H"] @ a["w"]
    variance = 1 / (1 / RHO**2 + 1 / sigma**2)
    a["mean"], a["log_sd"] = variance * (g / RHO**2 + y / sigma**2), np.full(31, 0.5 * np.log(variance))
    z = a["mean"] + np.exp(a["log_sd"]) * a["tau"]
    a["message"] = (y - z) / sigma**2
    *_, grad_mean, grad_log_sd = mean_field_gradient(a, backend, True)
    assert max(abs(grad_mean).max(), abs(grad_log_sd).max()) < 1e-13
    *_, grad_mean, grad_log_sd = mean_field_gradient(a, backend, False)
    assert min(abs(grad_mean).max(), abs(grad_log_sd).max()) > 0.1  # negative control


# Amortised ---------------------------------------------------------------------------------------------------------------------


def conditional(a, g, psi):
    """Mean and standard deviation of q(z | w)."""
    _, _, o1, o2 = reference.network(g, a["extra"], psi, a["hidden"])
    return g + o1, RHO * np.exp(np.clip(o2, -8, 4))


def amortised_elbo(a, w, psi, frozen=None):
    """At frozen normals; with `frozen` = psi, log q(z | w) has these parameters."""
    g = a["H"] @ w
    m, s = conditional(a, g, psi)
    z = m + s * a["tau"]
    value = a["message"] @ z + a["own"] @ g - ((z - g) ** 2).sum() / (2 * RHO**2)
    m, s = conditional(a, g, psi if frozen is None else frozen)
    return value + ((z - m) ** 2 / (2 * s**2) + np.log(s)).sum()


def amortised_gradient(a, backend, path):
    drawn = augmented.amortised_draw(**names(a, "H", "w", "tau", "extra", "psi", "hidden"), rho=RHO, backend=backend)
    call = names(a, "H", "tau", "extra", "psi", "message", "own", "hidden")
    return augmented.amortised_gradient(g=drawn[0], z=drawn[1], rho=RHO, path=path, backend=backend, **call)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize(("e", "hidden"), [(0, (16, 16)), (1, (16, 16)), (2, (16, 16)), (2, ()), (3, (5, 9, 4))])
def test_amortised_gradients_are_differences_of_the_elbo(e, hidden, path, backend):
    a = problem(e=e, hidden=hidden)
    w, psi = a["w"], a["psi"]
    frozen = psi if path else None
    grad_w, cotangent, grad_psi = amortised_gradient(a, backend, path)
    assert relative(grad_w, four_point(lambda x: amortised_elbo(a, x, psi, frozen), w)) <= DIFFERENCES
    assert relative(grad_psi, four_point(lambda x: amortised_elbo(a, w, x, frozen), psi)) <= DIFFERENCES
    np.testing.assert_allclose(grad_w, a["H"].T @ cotangent, rtol=1e-10, atol=1e-12)
    assert relative(grad_psi, amortised_gradient(a, backend, not path)[2]) > 1e-2  # negative control


def by_formula(a, path):
    """Section 5 with the derivatives of m and log s by differences: nothing is simplified."""
    g, step = a["H"] @ a["w"], 1e-4
    at = [conditional(a, g + k * step, a["psi"]) for k in (1, -1, 2, -2)]
    slope = [
        (8 * (p - q) - (r - u)) / (12 * step)
        for p, q, r, u in zip(*([f(c) for f in (lambda c: c[0], lambda c: np.log(c[1]))] for c in at))
    ]
    (m, s), (m_slope, log_s_slope) = conditional(a, g, a["psi"]), slope
    z, tau = m + s * a["tau"], a["tau"]
    a_ = a["message"] - (z - g) / RHO**2 + (tau / s if path else 0)
    c = a["own"] + (z - g) / RHO**2
    c = c + (-tau * m_slope / s - tau**2 * log_s_slope + log_s_slope if path else log_s_slope)
    c = c + (m_slope + s * log_s_slope * tau) * a_
    return a_, c


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [False, True])
def test_the_amortised_gradient_is_the_formula(path, backend):
    a = problem(e=1)
    _, cotangent, grad_psi = amortised_gradient(a, backend, path)
    a_, want = by_formula(a, path)
    assert relative(cotangent, want) <= DIFFERENCES
    s = conditional(a, a["H"] @ a["w"], a["psi"])[1]
    upstream = np.column_stack([a_, a_ * a["tau"] * s + (0 if path else 1)])
    inputs = np.column_stack([a["H"] @ a["w"], a["extra"]])
    chain, _ = mlp.backward(inputs, a["psi"], upstream, sizes=(2, 16, 16, 2), backend="reference")
    np.testing.assert_allclose(grad_psi, chain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_last_layer_of_zeros_is_the_prior_conditional(backend):
    a = problem()
    a["psi"][-34:] = 0
    g, z = augmented.amortised_draw(**names(a, "H", "w", "tau", "extra", "psi"), rho=RHO, backend=backend)
    np.testing.assert_allclose(g, a["H"] @ a["w"], rtol=1e-13)
    np.testing.assert_allclose(z, g + RHO * a["tau"], rtol=1e-13)
    a["message"], a["own"] = np.zeros(31), None
    grad_w, cotangent, grad_psi = amortised_gradient(a, backend, True)
    assert max(abs(grad_w).max(), abs(cotangent).max(), abs(grad_psi).max()) < 1e-12  # q is exact
    assert abs(amortised_gradient(a, backend, False)[2]).max() > 0.1  # negative control


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shift", "log_s"), [(-30.0, -8.0), (30.0, 4.0)])
def test_a_clamped_log_sd_does_not_move(shift, log_s, backend):
    a = problem()
    a["psi"][-1] += shift
    g, z = augmented.amortised_draw(**names(a, "H", "w", "tau", "extra", "psi"), rho=RHO, backend=backend)
    m, s = conditional(a, g, a["psi"])
    np.testing.assert_allclose(s, RHO * np.exp(log_s), rtol=1e-13)
    np.testing.assert_allclose(z, m + s * a["tau"], rtol=1e-12, atol=1e-12)
    for path in (False, True):
        grad_psi = amortised_gradient(a, backend, path)[2]
        assert grad_psi[-1] == 0
        assert abs(grad_psi[-2]) > 1e-3
        np.testing.assert_array_equal(grad_psi[-18:-2], 0)  # weights of o2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("o2", [-8.0, 4.0])
def test_at_the_bounds_themselves_log_s_follows(o2, backend):
    a = problem()
    a["psi"][-34:] = 0
    a["psi"][-1] = o2
    assert abs(amortised_gradient(a, backend, False)[2][-1]) > 1e-3


# Shapes, threads, what is not a number -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_own_part_is_an_own_part_of_zero(backend):
    a = problem()
    for gradient in (mean_field_gradient, amortised_gradient):
        zero, none = gradient(a | {"own": np.zeros(31)}, backend, True), gradient(a | {"own": None}, backend, True)
        assert all(x.tobytes() == y.tobytes() for x, y in zip(zero, none))
        assert relative(gradient(a, backend, True)[0], none[0]) > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_may_overlap_and_repeat(backend):
    """Windows of one column, a design of one row, a message that is the draw itself."""
    memory = np.random.default_rng(0).standard_normal(40)
    H = np.broadcast_to(memory[:3], (31, 3))
    g, z, tau = (memory[k : k + 31] for k in range(3))
    extra = np.lib.stride_tricks.sliding_window_view(memory, 2)[:31]
    psi = problem(e=2)["psi"]
    call = {"H": H, "g": g, "z": z, "tau": tau, "message": z, "own": g}
    for function, more in (
        (augmented.mean_field_gradient, {"log_sd": tau}),
        (augmented.amortised_gradient, {"extra": extra, "psi": psi}),
    ):
        found = function(**call, **more, rho=RHO, backend=backend)
        copies = {name: np.array(value) for name, value in (call | more).items()}
        want = function(**copies, rho=RHO, backend=backend)
        for a, b in zip(found, want):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_message_that_is_not_a_number_is_not_lost(backend):
    a = problem()
    a["message"][4] = np.nan
    grad_w, cotangent, grad_psi = amortised_gradient(a, backend, True)
    assert np.isnan(cotangent[4])
    assert np.isfinite(np.delete(cotangent, 4)).all()
    assert np.isnan(grad_w).all()
    assert np.isnan(grad_psi[-1])
    assert np.isnan(mean_field_gradient(a, backend, True)[2][4])


# A whole iteration -------------------------------------------------------------------------------------------------------------


def state_of(a, family, backend, e=1):
    """Parameters in the middle of a run, and the draw that was made with them."""
    random, p, n = np.random.default_rng(5), 3, 31
    tail = np.concatenate([a["mean"], a["log_sd"]]) if family == "mean_field" else a["psi"]
    parameters = np.concatenate([random.standard_normal(p), [-1.0, -30.0, 0.2], tail])
    eps = random.standard_normal(p)
    theta = augmented.coefficients(parameters[:p], parameters[p : 2 * p], eps, backend=backend)
    if family == "mean_field":
        g, z = augmented.mean_field_draw(a["H"], theta, a["tau"], a["mean"], a["log_sd"], backend=backend)
    else:
        g, z = augmented.amortised_draw(a["H"], theta, a["tau"], a["extra"], a["psi"], rho=RHO, backend=backend)
    moments = np.stack(
        [random.standard_normal(len(parameters)), random.exponential(size=len(parameters)), np.full(len(parameters), 4.0)]
    )
    state = {"parameters": parameters, "moments": moments, "eps": eps, "tau": a["tau"], "theta": theta, "g": g, "z": z}
    more = {} if family == "mean_field" else {"extra": a["extra"], "extra_next": random.standard_normal((n, e))}
    return names(a, "H", "message") | state | more


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize("family", ["mean_field", "amortised"])
def test_an_iteration_is_a_gradient_a_step_and_a_draw(family, path, backend):
    """With the gradient of the coefficients by the formulas of section 4, and a standard deviation that is below the least."""
    a, p, n = problem() | {"own": None}, 3, 31
    state = state_of(a, family, backend)
    options = {"rho": RHO, "prior_mean": 0.4, "prior_sd": 0.6, "learning_rate": 0.05, "path": path, "backend": backend}
    random = {"seed": 3, "client": 2, "step": 9}
    found = getattr(augmented, family + "_iteration")(**state, **options, **random)
    call = names(state, "H", "g", "z", "tau", "message") | {"rho": RHO, "path": path, "backend": backend}
    if family == "mean_field":
        grad_w, _, *rest = augmented.mean_field_gradient(log_sd=a["log_sd"], **call)
    else:
        grad_w, _, *rest = augmented.amortised_gradient(extra=a["extra"], psi=a["psi"], **call)
    eps, theta, sd = state["eps"], state["theta"], np.maximum(np.exp(state["parameters"][p : 2 * p]), 1e-8)
    total = grad_w + (0.4 - theta) / 0.36 + (eps / sd if path else 0)
    gradient = np.concatenate([total, total * eps * sd + (0 if path else 1), *rest])
    moments, step = optim.adam(state["moments"], gradient, learning_rate=0.05, backend=backend)
    parameters = state["parameters"] + step
    normals = rng.normal(p + n, key=rng.key(3, "draws"), client=2, step=9, backend=backend)
    eps, tau = normals[:p], normals[p:]
    theta = parameters[:p] + np.maximum(np.exp(parameters[p : 2 * p]), 1e-8) * eps
    if family == "mean_field":
        mean, log_sd = parameters[2 * p :].reshape(2, n)
        g, z = augmented.mean_field_draw(a["H"], theta, tau, mean, log_sd, backend=backend)
    else:
        psi = parameters[2 * p :]
        g, z = augmented.amortised_draw(a["H"], theta, tau, state["extra_next"], psi, rho=RHO, backend=backend)
    told = () if family == "mean_field" else (state["extra_next"],)
    for value, want in zip(found, (parameters, moments, eps, tau, theta, g, z, *told), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-11, atol=1e-12)
    other = getattr(augmented, family + "_iteration")(**state, **(options | {"path": not path}), **random)
    assert relative(other[0], found[0]) > 1e-4  # negative control


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", [True, False])
def test_a_full_triangle_s_gradient_is_that_of_the_density(path, backend):
    """Of what a step of Adam saw: with moments of 0 the first moment is a tenth of the gradient."""
    a, p = problem() | {"own": None}, 3
    state = state_of(a, "mean_field", backend)
    random = np.random.default_rng(6)
    flat = np.array([0.3, 0.4, -0.2, -0.7, 0.1, 0.5])  # rows (0.3), (0.4, -0.2), (-0.7, 0.1, 0.5)
    eps, mu, rest = random.standard_normal(p), random.standard_normal(p), state["parameters"][2 * p :]

    def factor(flat):
        L = np.zeros((p, p))
        L[np.tril_indices(p)] = flat
        sizes = np.exp(np.diag(L))
        return np.tril(L, -1) * sizes[:, None] + np.diag(sizes)

    theta = augmented.coefficients(mu, flat, eps, full=True, backend=backend)
    np.testing.assert_allclose(theta, mu + factor(flat) @ eps, rtol=1e-13)
    parameters = np.concatenate([mu, flat, rest])
    state |= {"parameters": parameters, "moments": np.zeros((3, len(parameters))), "eps": eps, "theta": theta}
    state["g"] = a["H"] @ theta
    options = {"rho": RHO, "prior_mean": 0.4, "prior_sd": 0.6, "learning_rate": 0.05, "path": path, "full": True, "seed": 1}
    found = augmented.mean_field_iteration(**state, **options, backend=backend)
    call = names(state, "H", "g", "z", "tau", "message") | {"rho": RHO, "path": path, "log_sd": a["log_sd"]}
    grad_w = augmented.mean_field_gradient(**call)[0]
    c = grad_w + (0.4 - theta) / 0.36

    def objective(values):
        """c theta - log q(theta), whose own parameters are frozen on the path; otherwise with the entropy in closed form."""
        L, at = factor(values[p:]), values[:p] + factor(values[p:]) @ eps
        if not path:
            return c @ at + np.log(np.diag(L)).sum()
        r = np.linalg.solve(factor(flat), at - mu)
        return c @ at + 0.5 * r @ r

    head = parameters[: p + len(flat)]
    want = four_point(objective, head)
    np.testing.assert_allclose(10 * found[1][0][: len(head)], want, rtol=5e-6, atol=5e-6 * np.abs(want).max())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("full", [False, True])
def test_the_network_is_told_the_centre_of_the_new_parameters(full, backend):
    a = problem() | {"own": None}
    state, p = state_of(a, "amortised", backend), 3
    if full:
        flat = np.array([0.3, 0.4, -0.2, -0.7, 0.1, 0.5])
        parameters = np.concatenate([state["parameters"][:p], flat, state["parameters"][2 * p :]])
        state |= {"parameters": parameters, "moments": np.ones((3, len(parameters)))}
    options = {"rho": RHO, "learning_rate": 0.05, "seed": 1, "full": full, "backend": backend}
    found = augmented.amortised_iteration(**state, **options, centre=0)
    want = state["extra_next"].copy()
    want[:, 0] = a["H"] @ found[0][:p]
    np.testing.assert_allclose(found[7], want, rtol=1e-12, atol=1e-12)
    told = augmented.amortised_iteration(**(state | {"extra_next": want}), **options)
    np.testing.assert_allclose(found[6], told[6], rtol=1e-10, atol=1e-12)
    assert relative(augmented.amortised_iteration(**state, **options)[6], found[6]) > 1e-4  # negative control
    with pytest.raises(ValueError, match="centre must be a column of extra"):
        augmented.amortised_iteration(**state, **options, centre=state["extra"].shape[1])


# With a network in the predictor ------------------------------------------------------------------------------------------------

SIZES = (4, 6, 3)


def network_state(backend, activation="tanh", *, full=False):
    """Of a client in the middle of a run, whose design is the values of a network."""
    random, n, p = np.random.default_rng(8), 31, 3
    X, phi = random.standard_normal((n, SIZES[0])), random.standard_normal(mlp.n_parameters(SIZES))
    psi = 0.3 * random.standard_normal(mlp.n_parameters((2, 16, 16, 2)))
    scale = np.array([0.3, 0.4, -0.2, -0.7, 0.1, 0.5]) if full else np.array([-1.0, 0.3, 0.2])
    parameters = np.concatenate([random.standard_normal(p), scale, phi, psi])
    eps, tau, extra = random.standard_normal(p), random.standard_normal(n), random.standard_normal((n, 1))
    H = mlp.forward(X, phi, sizes=SIZES, activation=activation, backend=backend)
    theta = augmented.coefficients(parameters[:p], scale, eps, full=full, backend=backend)
    g, z = augmented.amortised_draw(H, theta, tau, extra, psi, rho=RHO, backend=backend)
    k = len(parameters)
    moments = np.stack([random.standard_normal(k), random.exponential(size=k), np.full(k, 4.0)])
    state = {"X": X, "precision": random.exponential(size=len(phi)), "H": H, "parameters": parameters, "moments": moments}
    state |= {"eps": eps, "tau": tau, "theta": theta, "g": g, "z": z, "message": random.standard_normal(n)}
    return state | {"extra": extra, "extra_next": random.standard_normal((n, 1))}, phi, psi


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_iteration_with_a_network_is_its_parts(activation, full, backend):
    """The gradient of phi is that of mlp.backward; without it, all is `amortised_iteration`'s with the new design."""
    state, phi, psi = network_state(backend, activation, full=full)
    random = {"seed": 3, "client": 2, "step": 9}
    options = {"rho": RHO, "learning_rate": 0.05, "full": full, "backend": backend} | random
    of_f = {"sizes": SIZES, "activation": activation}
    H, parameters, moments, *drawn, seen = augmented.network_iteration(**state, **of_f, **options, centre=0)
    head, f = len(parameters) - len(psi) - len(phi), len(phi)
    kept = np.r_[0:head, head + f : len(parameters)]
    linear = {name: state[name] for name in ("H", "eps", "tau", "theta", "g", "z", "message", "extra", "extra_next")}
    linear |= {"parameters": state["parameters"][kept], "moments": state["moments"][:, kept]}
    want = augmented.amortised_iteration(**linear, **options)
    np.testing.assert_allclose(parameters[kept], want[0], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(moments[:, kept], want[1], rtol=1e-11, atol=1e-13)
    call = {name: state[name] for name in ("H", "g", "z", "tau", "extra", "message")}
    cotangent = augmented.amortised_gradient(**call, psi=psi, rho=RHO, backend=backend)[1]
    grad, _ = mlp.backward(state["X"], phi, np.outer(cotangent, state["theta"]), **of_f, backend=backend)
    grad = grad - state["precision"] * phi
    there, step = optim.adam(state["moments"][:, head : head + f], grad, learning_rate=0.05, backend=backend)
    np.testing.assert_allclose(parameters[head : head + f], phi + step, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(moments[:, head : head + f], there, rtol=1e-11, atol=1e-13)
    design = mlp.forward(state["X"], parameters[head : head + f], **of_f, backend=backend)
    np.testing.assert_array_equal(H, design)
    assert relative(H, state["H"]) > 1e-3
    told = state["extra_next"].copy()
    told[:, 0] = design @ parameters[:3]
    np.testing.assert_allclose(seen, told, rtol=1e-12, atol=1e-12)
    eps, tau, theta, g, z = drawn
    np.testing.assert_array_equal(
        np.concatenate([eps, tau]), rng.normal(3 + 31, key=rng.key(3, "draws"), client=2, step=9, backend=backend)
    )
    there = augmented.coefficients(parameters[:3], parameters[3:head], eps, full=full, backend=backend)
    np.testing.assert_allclose(theta, there, rtol=1e-13)
    draw = augmented.amortised_draw(H, theta, tau, seen, parameters[head + f :], rho=RHO, backend=backend)
    for value, want in zip((g, z), draw):
        np.testing.assert_allclose(value, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_the_predictor_s_network_is_that_of_the_elbo(backend):
    """By what Adam saw (with moments of 0 the first moment is a tenth of the gradient) and differences of the whole objective."""
    state, phi, psi = network_state(backend)
    state["moments"] = np.zeros_like(state["moments"])
    options = {"rho": RHO, "learning_rate": 0.05, "path": False, "sizes": SIZES, "activation": "tanh", "seed": 1}
    seen = 10 * augmented.network_iteration(**state, **options, backend=backend)[2][0][6 : 6 + len(phi)]
    sizes = (2, 16, 16, 2)

    def objective(phi):
        g = mlp.forward(state["X"], phi, sizes=SIZES, activation="tanh") @ state["theta"]
        o = mlp.forward(np.column_stack([g, state["extra"]]), psi, sizes=sizes)
        z = g + o[:, 0] + RHO * np.exp(o[:, 1]) * state["tau"]
        prior = 0.5 * (state["precision"] * phi) @ phi
        return state["message"] @ z - 0.5 * ((z - g) @ (z - g)) / RHO**2 + o[:, 1].sum() - prior

    want = four_point(objective, phi)
    np.testing.assert_allclose(seen, want, rtol=DIFFERENCES, atol=DIFFERENCES * np.abs(want).max())
    without = 10 * augmented.network_iteration(**(state | {"precision": np.zeros(len(phi))}), **options)[2][0][6 : 6 + len(phi)]
    assert relative(without, want) > 1e-3  # negative control


def test_a_bound_iteration_with_a_network_has_the_bits_of_a_call():
    state, *_ = network_state("cpp", "relu", full=True)
    options = {"rho": RHO, "sizes": SIZES, "full": True, "centre": 0, "seed": 5, "client": 3}
    X, precision, *rest = state.values()
    bound = augmented.bind_network_iteration(X, precision, *rest, **options)
    for step in (7, 8):
        wanted = augmented.network_iteration(**state, **options, learning_rate=0.02, step=step)
        for value, want in zip(bound(*rest, 0.02, step), wanted, strict=True):
            np.testing.assert_array_equal(value, want)
    with pytest.raises(ValueError, match=r"augmented\.network_iteration: z must have shape"):
        bound(*rest[:7], rest[7][:-1], *rest[8:], 0.02, 9)
