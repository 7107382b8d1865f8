"""Iteration of a client of the split heart model: a network in its predictor, another for its auxiliary variables.

`python -m benchmarks.bench_augmented_network`, from the folder above, prints the last lines of benchmarks/results/augmented.txt.
A gradient of all parameters, a step of Adam and the next draw: in one call, by single kernels, and by peers. The bound is that of
`bench_augmented` and two passes forward and one back through the predictor's network (8 flops a weight and row).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import augmented, mlp, optim, rng

from . import bench_augmented as linear
from . import common, floors

N, SIZES, HIDDEN, EXTRA, RHO, RATE, SEED = 826, (9, 8, 8, 2), (16, 16), 2, 1.0, 1e-3, 5
OF_F = {"sizes": SIZES, "activation": "relu"}
F, PSI = mlp.n_parameters(SIZES), (1 + EXTRA, *HIDDEN, 2)
P = SIZES[-1]


class Client:
    """Rows, and a state in the middle of a run."""

    @cached_property
    def state(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        X, phi = random.standard_normal((N, SIZES[0])), 0.5 * random.standard_normal(F)
        psi = 0.3 * random.standard_normal(mlp.n_parameters(PSI))
        scale = np.full(P, -1.0)
        parameters = np.concatenate([random.standard_normal(P), scale, phi, psi])
        eps, tau, extra = random.standard_normal(P), random.standard_normal(N), random.standard_normal((N, EXTRA))
        H = mlp.forward(X, phi, **OF_F)
        theta = augmented.coefficients(parameters[:P], scale, eps)
        g, z = augmented.amortised_draw(H, theta, tau, extra, psi, rho=RHO, hidden=HIDDEN)
        k = len(parameters)
        moments = np.stack([0.1 * random.standard_normal(k), 1 + random.exponential(size=k), np.full(k, 7.0)])
        state = {"X": X, "precision": np.ones(F), "H": H, "parameters": parameters, "moments": moments, "eps": eps, "tau": tau}
        state |= {"theta": theta, "g": g, "z": z, "message": 0.3 * random.standard_normal(N)}
        return state | {"extra": extra, "extra_next": extra}

    def one_call(self, backend: str | None = None) -> Callable[[], np.ndarray]:
        """`network_iteration`."""
        X, precision, *now = self.state.values()
        step = 0

        def call() -> np.ndarray:
            nonlocal step, now
            step += 1
            H, *found, _ = augmented.network_iteration(
                X, precision, *now, rho=RHO, hidden=HIDDEN, **OF_F, learning_rate=RATE, seed=SEED, step=step, backend=backend
            )
            now = [H, *found, *now[8:]]
            return np.asarray(found[0])

        return call

    def by_parts(self) -> Callable[[], np.ndarray]:
        """The same by single kernels, as NumPy would call them."""
        s = dict(self.state)
        phi, psi, step = slice(2 * P, 2 * P + F), slice(2 * P + F, None), 0

        def call() -> np.ndarray:
            nonlocal step
            step += 1
            at, theta, eps = s["parameters"], s["theta"], s["eps"]
            grad_w, cotangent, grad_psi = augmented.amortised_gradient(
                s["H"], s["g"], s["z"], s["tau"], s["extra"], at[psi], s["message"], rho=RHO, hidden=HIDDEN
            )
            sd = np.exp(at[P : 2 * P])
            c = grad_w - theta + eps / sd
            grad_phi, _ = mlp.backward(s["X"], at[phi], cotangent[:, None] * theta, **OF_F)
            gradient = np.concatenate([c, c * eps * sd, grad_phi - s["precision"] * at[phi], grad_psi])
            s["moments"], change = optim.adam(s["moments"], gradient, learning_rate=RATE)
            s["parameters"] = at = at + change
            normals = rng.normal(P + N, key=rng.key(SEED, "draws"), step=step)
            s["eps"], s["tau"] = normals[:P], normals[P:]
            s["theta"] = augmented.coefficients(at[:P], at[P : 2 * P], s["eps"])
            s["H"] = mlp.forward(s["X"], at[phi], **OF_F)
            s["g"], s["z"] = augmented.amortised_draw(s["H"], s["theta"], s["tau"], s["extra"], at[psi], rho=RHO, hidden=HIDDEN)
            return at

        return call

    def by_jax(self) -> Callable[[], np.ndarray]:
        """Jitted, with a gradient by automatic differentiation."""
        jax = common.jax()
        xp, s = jax.numpy, {name: jax.numpy.asarray(value) for name, value in self.state.items()}

        def network(h: Any, parameters: Any, sizes: tuple[int, ...], activation: Any) -> Any:
            at = 0
            for i, (n_in, n_out) in enumerate(pairwise(sizes)):
                W = parameters[at : at + n_in * n_out].reshape(n_out, n_in)
                h = h @ W.T + parameters[at + n_in * n_out : at + (n_in + 1) * n_out]
                h = activation(h) if i < len(sizes) - 2 else h
                at += (n_in + 1) * n_out
            return h

        def conditional(q: Any, theta: Any) -> tuple[Any, Any, Any]:
            g = network(s["X"], q[2 * P : 2 * P + F], SIZES, jax.nn.relu) @ theta
            return g, *of_z(q, g)

        def of_z(q: Any, g: Any) -> tuple[Any, Any]:
            o = network(xp.concatenate([g[:, None], s["extra"]], 1), q[2 * P + F :], PSI, xp.tanh)
            return g + o[:, 0], np.log(RHO) + xp.clip(o[:, 1], -8.0, 4.0)

        def elbo(q: Any, frozen: Any, eps: Any, tau: Any) -> Any:
            theta = q[:P] + xp.exp(q[P : 2 * P]) * eps
            g, m, log_s = conditional(q, theta)
            z = m + xp.exp(log_s) * tau
            m, log_s = of_z(frozen, g)
            log_q = (-0.5 * ((z - m) * xp.exp(-log_s)) ** 2 - log_s).sum()
            log_q = log_q - 0.5 * (((theta - frozen[:P]) * xp.exp(-frozen[P : 2 * P])) ** 2).sum()
            prior = 0.5 * (theta**2).sum() + 0.5 * (s["precision"] * q[2 * P : 2 * P + F] ** 2).sum()
            return (s["message"] * z - 0.5 * ((z - g) / RHO) ** 2).sum() - prior - log_q

        @jax.jit
        def update(q: Any, m: Any, v: Any, eps: Any, tau: Any, count: Any) -> Any:
            g = jax.grad(lambda q: elbo(q, jax.lax.stop_gradient(q), eps, tau))(q)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            q = q + RATE / (1 - 0.9**count) * m / (xp.sqrt(v / (1 - 0.999**count)) + 1e-8)
            normals = jax.random.normal(jax.random.fold_in(jax.random.PRNGKey(0), count), (P + N,))
            _, mean, log_s = conditional(q, q[:P] + xp.exp(q[P : 2 * P]) * normals[:P])
            return q, m, v, normals[:P], normals[P:], mean + xp.exp(log_s) * normals[P:]

        state, count = (s["parameters"], s["moments"][0], s["moments"][1], s["eps"], s["tau"]), 7.0

        def call() -> np.ndarray:
            nonlocal state, count
            count += 1
            *new, _ = jax.block_until_ready(update(*state, count))
            state = tuple(new)
            return np.asarray(new[0])

        return call

    def bound(self) -> float:
        """Seconds."""
        size = 512
        product = common.medians(floors.multiply(size))[0]
        weights = sum(a * b for a, b in pairwise(SIZES))
        return linear.Case(N, P, EXTRA).bound() + N * 8 * weights / (2 * size**3) * product


PEERS: dict[str, Callable[[], Callable[[], np.ndarray]]] = {
    "fedkern": lambda: Client().one_call(),
    "fedkern, by parts": lambda: Client().by_parts(),
    "jax": lambda: Client().by_jax(),
}


class Iteration(common.Timed):
    """Time of an iteration of one client."""

    params = (list(PEERS),)
    param_names = ("peer",)

    def make(self, peer: str) -> common.Call:
        return PEERS[peer]()

    def time_iteration(self, peer: str) -> None:
        self.call()


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        first = {peer: make()() for peer, make in PEERS.items()}
        for peer, parameters in first.items():
            assert np.abs(parameters - first["fedkern, by parts"]).max() <= 1e-9, peer
        common.row("network iteration, heart 9-8-8-2 n=826", {peer: make() for peer, make in PEERS.items()}, Client().bound())
