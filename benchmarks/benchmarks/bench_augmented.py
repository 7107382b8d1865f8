"""One client's step of the augmented models, and a whole iteration: fedkern beside NumPy, Numba, JAX and torch, and the bound.

`python -m benchmarks.bench_augmented`, from the folder above, prints the rows of a table; asv runs the same cases. A step is: the
gradient at the last draw from the message that has come, Adam on the flat vector of all variational parameters, new normal
numbers, and the next draw, whose z is sent. Peers do the same algebra (their gradients are checked before they are timed): NumPy
by hand, Numba as fedkern's own plain loops, JAX and torch by automatic differentiation of the sticking-the-landing objective. An
iteration is J steps, the sum of the z, and slopes at the server; JAX does all J clients in one compiled call (`vmap`).

A row with p columns and, amortised, e inputs beside g and a network with M weights (320 for two inputs, 336 for three):

========== =============== ========================= =====================================
family     flops           functions                 numbers read and written
========== =============== ========================= =====================================
mean-field 4 p + 46        2 exp, a normal           2 p + 14, and 16 by Adam
amortised  4 p + 10 M      64 tanh, 2 exp, a normal  2 p + 2 e + 10
========== =============== ========================= =====================================

10 M: the network's values for the draw and again for the gradient (2 M each), the gradient in its weights (2 M), and two products
with the transposed weights (2 M each), for psi and for g. The bound is the flops at the rate of a large matrix product, an
exponential for each function (two for a normal number), and a copy of the numbers in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit

from fedkern import _core
from fedkern.kernels import augmented, mlp, optim, rng

from . import common, floors
from .bench_mlp import layers

RHO, RATE = 1.0, 1e-3
SEED = 1
KEY = rng.key(SEED, "draws")


@dataclass(frozen=True)
class Case:
    """One client: rows, columns, inputs of the network beside g (None: mean-field)."""

    n: int
    p: int
    extra: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1 + (self.extra or 0), 16, 16, 2)

    @property
    def n_parameters(self) -> int:
        """mean and log sd of theta; then those of z, or psi."""
        return 2 * self.p + (2 * self.n if self.extra is None else mlp.n_parameters(self.sizes))

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        draw = random.standard_normal
        network = [part for a, b in pairwise(self.sizes) for part in (draw(a * b) / np.sqrt(a), 0.1 * draw(b))]
        rows = [draw(self.n), 0.3 * draw(self.n)] if self.extra is None else [0.5 * np.concatenate(network)]
        k = self.n_parameters
        return {
            "H": draw((self.n, self.p)),
            "extra": draw((self.n, self.extra or 0)),
            "message": draw(self.n),
            "normals": draw(self.p + self.n),
            "parameters": np.concatenate([draw(self.p), np.full(self.p, -2.0), *rows]),
            "state": np.stack([0.1 * draw(k), random.exponential(size=k), np.full(k, 7.0)]),
        }

    def bound(self) -> float:
        """Seconds, see the module."""
        n, p, size = self.n, self.p, 1024
        if self.extra is None:
            flops, functions, numbers = n * (4 * p + 46), 4 * n, n * (2 * p + 30)
        else:
            weights = sum(a * b for a, b in pairwise(self.sizes))
            flops, functions, numbers = n * (4 * p + 10 * weights), 68 * n, n * (2 * p + 2 * self.extra + 10)
        calls = floors.multiply(size), floors.exponentials(functions), floors.copy(np.ones(numbers // 2))
        product, exponentials, copy = common.medians(*calls)
        return flops / (2 * size**3) * product + exponentials + copy


CASES = {
    "logistic n=500 p=2 mean-field": Case(500, 2),
    "logistic n=500 p=2 amortised": Case(500, 2, 1),
    "heart n=826 p=2 amortised, 3 inputs": Case(826, 2, 2),
}

# One client's step: (parameters, state, normals, draw, message) -> the same for the next. --------------------


@dataclass(frozen=True)
class ByFedkern:
    """The kernels, and NumPy for the p coefficients."""

    case: Case
    backend: str | None = None

    def split(self, parameters: np.ndarray) -> tuple[np.ndarray, ...]:
        p, n = self.case.p, self.case.n
        theta = parameters[:p], np.exp(parameters[p : 2 * p])
        return (
            (*theta, parameters[2 * p : 2 * p + n], parameters[2 * p + n :])
            if self.case.extra is None
            else (*theta, parameters[2 * p :])
        )

    def draw(self, parameters: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, ...]:
        """theta, g, z."""
        mu, sd, *rest = self.split(parameters)
        theta, tau, a = mu + sd * normals[: self.case.p], normals[self.case.p :], self.case.arrays
        if self.case.extra is None:
            return theta, *augmented.mean_field_draw(a["H"], theta, tau, *rest, backend=self.backend)
        return theta, *augmented.amortised_draw(a["H"], theta, tau, a["extra"], *rest, rho=RHO, backend=self.backend)

    def gradient(
        self, parameters: np.ndarray, normals: np.ndarray, drawn: tuple[np.ndarray, ...], message: np.ndarray
    ) -> np.ndarray:
        _, sd, *rest = self.split(parameters)
        (theta, g, z), eps, tau, a = drawn, normals[: self.case.p], normals[self.case.p :], self.case.arrays
        if self.case.extra is None:
            grad_w, _, *rows = augmented.mean_field_gradient(a["H"], g, z, tau, rest[1], message, rho=RHO, backend=self.backend)
        else:
            grad_w, _, *rows = augmented.amortised_gradient(
                a["H"], g, z, tau, a["extra"], rest[0], message, rho=RHO, backend=self.backend
            )
        c = grad_w - theta + eps / sd
        return np.concatenate([c, c * eps * sd, *rows])

    def normals(self, step: int) -> np.ndarray:
        return rng.normal(self.case.p + self.case.n, key=KEY, step=step, backend=self.backend)

    def step(self) -> Callable[..., Any]:
        a = self.case.arrays
        parameters, state, normals = a["parameters"], a["state"], a["normals"]
        drawn, count = self.draw(parameters, normals), 0

        def call(message: np.ndarray = a["message"]) -> np.ndarray:
            nonlocal parameters, state, normals, drawn, count
            count += 1
            state, change = optim.adam(
                state, self.gradient(parameters, normals, drawn, message), learning_rate=RATE, backend=self.backend
            )
            parameters = parameters + change
            normals = self.normals(count)
            drawn = self.draw(parameters, normals)
            return drawn[2]

        return call

    def one_call(self) -> Callable[..., Any]:
        """The same step as one compiled call."""
        a, p, more = self.case.arrays, self.case.p, ()
        kernel: Callable[..., Any] = augmented.mean_field_iteration
        if self.case.extra is not None:
            kernel, more = augmented.amortised_iteration, (a["extra"], a["extra"])
        eps, tau = a["normals"][:p], a["normals"][p:]
        state = (a["parameters"], a["state"], eps, tau, *self.draw(a["parameters"], a["normals"]))
        count = 0

        def call(message: np.ndarray = a["message"]) -> np.ndarray:
            nonlocal state, count
            count += 1
            found = kernel(
                a["H"], *state, message, *more, rho=RHO, learning_rate=RATE, seed=SEED, step=count, backend=self.backend
            )
            state = found[:7]
            return state[-1]

        return call

    def kernels(self) -> Callable[[], Any]:
        """The kernels of a step alone."""
        case, a = self.case, self.case.arrays
        mu, _, *rest = self.split(a["parameters"])
        tau, step = a["normals"][case.p :], np.zeros(case.n_parameters)
        _, g, z = self.draw(a["parameters"], a["normals"])

        def call() -> None:
            if case.extra is None:
                augmented.mean_field_gradient(a["H"], g, z, tau, rest[1], a["message"], rho=RHO, backend=self.backend)
            else:
                augmented.amortised_gradient(a["H"], g, z, tau, a["extra"], rest[0], a["message"], rho=RHO, backend=self.backend)
            optim.adam(a["state"], step, learning_rate=RATE, backend=self.backend)
            self.normals(1)
            if case.extra is None:
                augmented.mean_field_draw(a["H"], mu, tau, *rest, backend=self.backend)
            else:
                augmented.amortised_draw(a["H"], mu, tau, a["extra"], *rest, rho=RHO, backend=self.backend)

        return call


class ByNumpy(ByFedkern):
    """Vectorised by hand."""

    def forward(self, g: np.ndarray, psi: np.ndarray) -> list[np.ndarray]:
        parts = layers(psi, self.case.sizes)
        h = [np.column_stack([g, self.case.arrays["extra"]])]
        for i, (W, b) in enumerate(parts):
            a = h[-1] @ W.T
            a += b
            h.append(np.tanh(a, out=a) if i < len(parts) - 1 else a)
        return h

    def draw(self, parameters: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, ...]:
        mu, sd, *rest = self.split(parameters)
        theta, tau = mu + sd * normals[: self.case.p], normals[self.case.p :]
        g = self.case.arrays["H"] @ theta
        if self.case.extra is None:
            return theta, g, rest[0] + np.exp(rest[1]) * tau
        o = self.forward(g, rest[0])[-1]
        return theta, g, g + o[:, 0] + RHO * np.exp(np.clip(o[:, 1], -8, 4)) * tau

    def gradient(
        self, parameters: np.ndarray, normals: np.ndarray, drawn: tuple[np.ndarray, ...], message: np.ndarray
    ) -> np.ndarray:
        _, sd, *rest = self.split(parameters)
        (theta, g, z), eps, tau = drawn, normals[: self.case.p], normals[self.case.p :]
        pull = (z - g) / RHO**2
        outside, rows = message - pull, list[np.ndarray]()
        if self.case.extra is None:
            s = np.exp(rest[1])
            a = outside + tau / s
            rows, cotangent = [a, a * tau * s], pull
        else:
            h, parts = self.forward(g, rest[0]), layers(rest[0], self.case.sizes)
            o2 = h[-1][:, 1]
            s, moves = RHO * np.exp(np.clip(o2, -8, 4)), (o2 >= -8) & (o2 <= 4)
            a = outside + tau / s
            delta, grad = np.column_stack([a, a * tau * s * moves]), np.empty_like(rest[0])
            other = np.column_stack([outside, (outside * tau * s + 1) * moves])
            for i in range(len(parts) - 1, -1, -1):
                W, b = layers(grad, self.case.sizes)[i]
                np.matmul(delta.T, h[i], out=W)
                delta.sum(axis=0, out=b)
                other = other @ parts[i][0]
                if i:
                    slope = 1 - h[i] ** 2
                    other *= slope
                    delta = delta @ parts[i][0] * slope
            rows, cotangent = [grad], pull + outside + other[:, 0]
        c = self.case.arrays["H"].T @ cotangent - theta + eps / sd
        return np.concatenate([c, c * eps * sd, *rows])

    @cached_property
    def generator(self) -> np.random.Generator:
        return np.random.default_rng(1)

    def normals(self, step: int) -> np.ndarray:
        return self.generator.standard_normal(self.case.p + self.case.n)

    def step(self) -> Callable[..., Any]:
        a = self.case.arrays
        parameters, (m, v, _), normals = a["parameters"], a["state"], a["normals"]
        drawn, count = self.draw(parameters, normals), 7

        def call(message: np.ndarray = a["message"]) -> np.ndarray:
            nonlocal parameters, m, v, normals, drawn, count
            count += 1
            g = self.gradient(parameters, normals, drawn, message)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            parameters = parameters + RATE / (1 - 0.9**count) * m / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
            normals = self.normals(count)
            drawn = self.draw(parameters, normals)
            return drawn[2]

        return call


def conditional(case: Case, parameters: Any, theta: Any, xp: Any, H: Any, extra: Any) -> tuple[Any, Any, Any]:
    """g, and mean and log sd of z, for JAX and torch."""
    g, p = H @ theta, case.p
    if case.extra is None:
        return g, parameters[2 * p : 2 * p + case.n], parameters[2 * p + case.n :]
    h, parts = xp.concatenate([g[:, None], extra], 1), layers(parameters[2 * p :], case.sizes)
    for W, b in parts[:-1]:
        h = xp.tanh(h @ W.T + b)
    o = h @ parts[-1][0].T + parts[-1][1]
    return g, g + o[:, 0], np.log(RHO) + xp.clip(o[:, 1], -8.0, 4.0)


def objective(case: Case, parameters: Any, frozen: Any, normals: Any, message: Any, xp: Any, H: Any, extra: Any) -> Any:
    """The ELBO at one draw as far as its gradient goes; log q has the parameters `frozen`."""
    p = case.p
    theta = parameters[:p] + xp.exp(parameters[p : 2 * p]) * normals[:p]
    g, m, log_s = conditional(case, parameters, theta, xp, H, extra)
    z = m + xp.exp(log_s) * normals[p:]
    _, m, log_s = conditional(case, frozen, theta, xp, H, extra)
    log_q = -0.5 * ((z - m) * xp.exp(-log_s)) ** 2 - log_s
    log_q_theta = -0.5 * ((theta - frozen[:p]) * xp.exp(-frozen[p : 2 * p])) ** 2
    value = (message * z - 0.5 * ((z - g) / RHO) ** 2 - log_q).sum() - 0.5 * (theta**2).sum()
    return value - log_q_theta.sum()


@dataclass(frozen=True)
class ByJax:
    case: Case

    def update(
        self, parameters: Any, m: Any, v: Any, count: Any, normals: Any, message: Any, key: Any, H: Any, extra: Any
    ) -> Any:
        """Of one client, to be compiled; also its next draw."""
        jax, case = common.jax(), self.case
        xp = jax.numpy
        g = jax.grad(lambda q: objective(case, q, jax.lax.stop_gradient(q), normals, message, xp, H, extra))(parameters)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        parameters = parameters + RATE / (1 - 0.9**count) * m / (xp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        normals = jax.random.normal(key, normals.shape)
        p = case.p
        theta = parameters[:p] + xp.exp(parameters[p : 2 * p]) * normals[:p]
        _, mean, log_s = conditional(case, parameters, theta, xp, H, extra)
        return parameters, m, v, normals, mean + xp.exp(log_s) * normals[p:], g

    def step(self) -> Callable[[], Any]:
        jax, a = common.jax(), self.case.arrays
        H, extra, message = (jax.numpy.asarray(a[name]) for name in ("H", "extra", "message"))
        first = tuple(map(jax.numpy.asarray, (a["parameters"], *a["state"][:2], a["normals"])))
        key, count, state = jax.random.PRNGKey(0), 7.0, first
        compiled = jax.jit(
            lambda state, count, message, key: self.update(
                *state[:3], count, state[3], message, jax.random.fold_in(key, count), H, extra
            )
        )

        def call() -> Any:
            nonlocal state, count
            count += 1
            *new, z, g = jax.block_until_ready(compiled(state, count, message, key))
            state = tuple(new)
            return z, g

        return call

    def iteration(self, clients: int) -> Callable[[], Any]:
        jax, a = common.jax(), self.case.arrays
        xp = jax.numpy
        many = lambda x: xp.broadcast_to(xp.asarray(x), (clients, *x.shape)) + 0.0  # noqa: E731
        H, extra, y = many(a["H"]), many(a["extra"]), xp.asarray(response(self.case))
        state = (*map(many, (a["parameters"], *a["state"][:2], a["normals"])), xp.asarray(a["message"]))
        update = jax.vmap(self.update, in_axes=(0, 0, 0, None, 0, None, 0, 0, 0))

        @jax.jit
        def compiled(state: Any, count: Any, key: Any) -> Any:
            parameters, m, v, normals, message = state
            keys = jax.random.split(jax.random.fold_in(key, count), clients)
            *new, z, _ = update(parameters, m, v, count, normals, message, keys, H, extra)
            return *new, y - jax.nn.sigmoid(z.sum(axis=0))

        key, count = jax.random.PRNGKey(0), 7.0

        def call() -> Any:
            nonlocal state, count
            count += 1
            state = jax.block_until_ready(compiled(state, count, key))
            return state

        return call


@dataclass(frozen=True)
class ByTorch:
    case: Case

    def step(self) -> Callable[[], Any]:
        torch = common.need("torch")
        torch.set_num_threads(1)
        case, p, a = self.case, self.case.p, {name: torch.tensor(x) for name, x in self.case.arrays.items()}
        q, H, extra, message = a["parameters"].clone().requires_grad_(), a["H"], a["extra"], a["message"]
        adam, normals = torch.optim.Adam([q], lr=RATE, fused=True, maximize=True), a["normals"]

        def call() -> Any:
            nonlocal normals
            (q.grad,) = torch.autograd.grad(objective(case, q, q.detach(), normals, message, torch, H, extra), [q])
            adam.step()
            normals = torch.randn(p + case.n, dtype=torch.float64)
            with torch.no_grad():
                theta = q[:p] + torch.exp(q[p : 2 * p]) * normals[:p]
                _, m, log_s = conditional(case, q, theta, torch, H, extra)
                return m + torch.exp(log_s) * normals[p:], q.grad

        return call


PEERS: dict[str, Callable[[Case], Callable[[], Any]]] = {
    "fedkern": lambda case: ByFedkern(case).step(),
    "fedkern, one call": lambda case: ByFedkern(case).one_call(),
    "numpy": lambda case: ByNumpy(case).step(),
    "jax": lambda case: ByJax(case).step(),
    "torch": lambda case: ByTorch(case).step(),
}


def agree(case: Case) -> None:
    """The first gradient of all peers is the same."""
    a = case.arrays
    by = {"fedkern": ByFedkern(case), "reference": ByFedkern(case, "reference"), "numpy": ByNumpy(case)}
    gradients = {
        name: p.gradient(a["parameters"], a["normals"], p.draw(a["parameters"], a["normals"]), a["message"])
        for name, p in by.items()
    }
    others = common.available({peer: PEERS[peer] for peer in ("jax", "torch")}, case)
    gradients |= {peer: np.asarray(call()[1]) for peer, call in others.items()}
    both = ByFedkern(case).step()(), ByFedkern(case).one_call()()
    assert np.linalg.norm(both[0] - both[1]) <= 1e-9 * np.linalg.norm(both[0]), "one call"
    for peer, got in gradients.items():
        assert np.linalg.norm(got - gradients["reference"]) <= 1e-9 * np.linalg.norm(got), peer


# A whole iteration in one process --------------------

CLIENTS = 10


def response(case: Case) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 2, case.n).astype(float)


def loop(make: Callable[[Case], Callable[..., Any]]) -> Callable[[Case], Callable[[], Any]]:
    """J clients after each other."""

    def iteration(case: Case) -> Callable[[], Any]:
        steps, y, message = [make(case) for _ in range(CLIENTS)], response(case), case.arrays["message"]

        def call() -> None:
            nonlocal message
            message = y - expit(sum(step(message) for step in steps))

        return call

    return iteration


ITERATIONS: dict[str, Callable[[Case], Callable[[], Any]]] = {
    "fedkern, one call": loop(PEERS["fedkern, one call"]),
    "fedkern": loop(PEERS["fedkern"]),
    "numpy": loop(PEERS["numpy"]),
    "jax": lambda case: ByJax(case).iteration(CLIENTS),
}


class Step(common.Timed):
    """Time of one client's step."""

    params = (list(CASES), list(PEERS))
    param_names = ("case", "peer")

    def make(self, case: str, peer: str) -> common.Call:
        return PEERS[peer](CASES[case])

    def time_step(self, case: str, peer: str) -> None:
        self.call()


class Kernels(common.Timed):
    """Time of the kernels of a step: gradient, Adam, normals, draw."""

    params = (list(CASES),)
    param_names = ("case",)

    def make(self, case: str) -> common.Call:
        return ByFedkern(CASES[case]).kernels()

    def time_kernels(self, case: str) -> None:
        self.call()


class Iteration(common.Timed):
    """Time of an iteration of ten clients and the server."""

    params = (list(CASES)[:2], list(ITERATIONS))
    param_names = ("case", "peer")

    def make(self, case: str, peer: str) -> common.Call:
        return ITERATIONS[peer](CASES[case])

    def time_iteration(self, case: str, peer: str) -> None:
        self.call()


class Ratios:
    params = (list(CASES),)
    param_names = ("case",)
    timeout = 300

    def track_bound(self, case: str) -> float:
        return common.medians(ByFedkern(CASES[case]).kernels())[0] / CASES[case].bound()

    def track_jax(self, case: str) -> float:
        return common.ratio(PEERS["fedkern"](CASES[case]), PEERS["jax"](CASES[case]))

    track_bound.unit = "x floor"
    track_jax.unit = "times as fast"


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        for name, case in CASES.items():
            agree(case)
            calls = common.available(PEERS, case) | {"fedkern, kernels alone": ByFedkern(case).kernels()}
            common.row(f"step, {name}", calls, case.bound())
        for name in list(CASES)[:2]:
            calls = common.available(ITERATIONS, CASES[name])
            common.row(f"iteration of {CLIENTS} clients, {name}", calls, CLIENTS * CASES[name].bound())
