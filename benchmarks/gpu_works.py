"""What `gpu_check.py` times: kernels at sizes that fill a card, what each must cost at least, and peers of the same work.

A floor is the largest of three: bytes that must be read and written, over the bandwidth of a copy in the same run; instructions
that warps issue (`results/cuda-issued.txt`), over the card's slots; additions and products in the type of the work, over what its
pipes could do. Chains of draws are bound by none of them: they wait for themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedkern import kernels

LARGE = 2**20  # numbers: fewer are for the emulator


class Work(NamedTuple):
    """A call that is timed.

    Attributes
    ----------
    bytes : that it reads and writes at least
    issued : instructions of warps
    flops : additions and products, and in which type
    peers : the same work by others, as an expert would write it: name -> call
    """

    kernel: str
    words: str
    call: Callable[[], Any]
    bytes: float
    issued: float = 0.0
    flops: float = 0.0
    dtype: str = "float64"
    peers: Mapping[str, Callable[[], Any]] = MappingProxyType({})


class Ceilings(NamedTuple):
    """What a card could do, a second."""

    bytes: float
    issued: float
    flops: dict[str, float]

    @classmethod
    def of(cls, xp: Any, bandwidth: float) -> Ceilings:
        """Of this card: four slots for an instruction of a warp each cycle; the pipes of float64 take 64 products and sums a
        multiprocessor and cycle (capability 8.0: 32), of float32 twice as many."""
        card = xp.cuda.Device()
        cycles = 1e3 * card.attributes["ClockRate"] * card.attributes["MultiProcessorCount"]
        wide = 64 if card.compute_capability == "90" else 32
        return cls(bandwidth, 4 * cycles, {"float64": 2 * wide * cycles, "float32": 4 * wide * cycles})

    def floor(self, work: Work) -> tuple[float, str]:
        """Seconds, and which of the three they are."""
        every = (
            (work.bytes / self.bytes, "bytes"),
            (work.issued / self.issued, "issued"),
            (work.flops / self.flops[work.dtype], "flops"),
        )
        return max(every)


def torch_of(xp: Any) -> Any:
    """torch with CUDA, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if xp is not np and torch.cuda.is_available() else None


def works(xp: Any, n: int) -> Iterator[Work]:
    """For a card of n = 2^27 numbers, or for the emulator."""
    torch, large = torch_of(xp), n >= LARGE
    out, other = xp.empty(n), xp.empty(n)
    yield Work("copy", "floor of all", lambda: xp.copyto(other, out), 16.0 * n)
    yield from of_numbers(xp, torch, n, out, other)
    for dtype in ("float64", "float32"):
        yield of_clipping(xp, torch, n // 100, dtype)
    yield of_adam(xp, torch, n // 8)
    rows = 10**6 if large else 40
    for dtype in ("float64", "float32"):
        yield of_bound(xp, torch, rows, dtype)
    yield of_private(xp, torch, 32768 if large else 40)
    yield of_site(xp, *((4096, 11, 100) if large else (3, 4, 1)))
    yield of_field(xp, *((8, 217, 5) if large else (1, 5, 1)))
    yield of_network(xp, *((4096, 11, 227, 10) if large else (2, 3, 9, 1)))
    yield of_process(xp, *((132, 5000, 100) if large else (2, 20, 3)))
    yield of_groups(xp, *((4096, 537) if large else (9, 3)))
    yield training(xp, *((2221, 1500) if large else (9, 8)))


def of_numbers(xp: Any, torch: Any, n: int, out: Any, other: Any) -> Iterator[Work]:
    """Random numbers, a pair of normals 258 instructions of a thread (`results/cuda-issued.txt`); noise."""
    key, theirs = kernels.rng.key(1), {}
    if torch:
        there = torch.empty(n, dtype=torch.float64, device="cuda")
        theirs = {"uniform": there.uniform_, "normal": there.normal_, "exponential": there.exponential_}
    for name, issued in (("uniform", 0), ("normal", 258), ("exponential", 0)):
        draw, peers = getattr(kernels.rng, name), {"torch": theirs[name]} if torch else {}
        call: Callable[[], Any] = lambda draw=draw: draw(n, key=key, out=out, backend="cuda")  # noqa: E731
        yield Work(f"rng.{name}", f"n = {n:,}", call, 8.0 * n, issued * n / 64, peers=peers)
    noise = lambda: kernels.privacy.add_noise(out, sigma=1.0, seed=1, out=other)  # noqa: E731
    yield Work("privacy.add_noise", f"d = {n:,}", noise, 16.0 * n, 258 * n / 64)


def of_clipping(xp: Any, torch: Any, n: int, dtype: str) -> Work:
    """70 instructions of a warp a row, 75 in float32."""
    x = xp.asarray(np.random.default_rng(1).standard_normal((min(n, 4096), 100)).astype(dtype))
    x = xp.tile(x, (-(-n // len(x)), 1))[:n].copy()
    peers = {}
    if torch:
        t = torch.from_dlpack(x)

        def clipped() -> Any:
            w = (3.0 / torch.linalg.vector_norm(t, dim=1)).clamp(max=1.0)
            return (w @ t).double()

        peers["torch"] = clipped
    issued = (70.0 if dtype == "float64" else 75.2) * n
    return Work(
        "privacy.clip_sum",
        f"{n:,} x 100, {dtype}",
        lambda: kernels.privacy.clip_sum(x, 3.0),
        float(x.nbytes),
        issued,
        peers=peers,
    )


def of_adam(xp: Any, torch: Any, k: int) -> Work:
    """Parameters and two moments are read and written, the gradient is read."""
    state, gradient, new, peers = xp.zeros((3, k)), xp.ones(k), (xp.empty((3, k)), xp.empty(k)), {}
    if torch:
        parameters = torch.zeros(k, dtype=torch.float64, device="cuda")
        parameters.grad = torch.ones_like(parameters)
        peers["torch, fused"] = torch.optim.Adam([parameters], lr=0.1, fused=True).step
    call = lambda: kernels.optim.adam(state, gradient, learning_rate=0.1, out=new)  # noqa: E731
    return Work("optim.adam", f"k = {k:,}", call, 64.0 * k, peers=peers)


def regression(xp: Any, n: int, d: int, dtype: str) -> tuple[Any, ...]:
    """X, y in {0, 1}, mu, log_sigma."""
    random = np.random.default_rng(1)
    X = random.standard_normal((n, d)).astype(dtype)
    return tuple(
        map(
            xp.asarray, (X, (X[:, 0] > random.standard_normal(n)).astype("f8"), 0.1 * random.standard_normal(d), np.full(d, -2.0))
        )
    )


def of_bound(xp: Any, torch: Any, n: int, dtype: str) -> Work:
    """One draw: X and y are read once. 117.8 instructions a row in float64, 95.8 in float32."""
    X, y, mu, omega = regression(xp, n, 100, dtype)
    call = lambda: kernels.glm.elbo_grad(X, y, mu, omega, family="bernoulli", seed=1, estimator="stl")  # noqa: E731
    peers = {}
    if torch:
        F = torch.nn.functional
        X_, y_, mu_, omega_ = (torch.from_dlpack(a) for a in (X, y, mu, omega))
        y_ = y_.to(X_.dtype)

        def gradient() -> Any:
            e = torch.randn(100, dtype=torch.float64, device="cuda")
            theta = mu_ + omega_.exp() * e
            eta = X_ @ theta.to(X_.dtype)
            value = (y_ * eta - F.softplus(eta)).sum(dtype=torch.float64)
            slope = ((y_ - torch.sigmoid(eta)) @ X_).double() - theta + e / omega_.exp()
            return value, slope, slope * e * omega_.exp()

        peers["torch"] = gradient
        peers |= in_jax(X_, y_, mu_, omega_)
    issued = (117.8 if dtype == "float64" else 95.8) * n
    return Work("glm.elbo_grad", f"bernoulli, {n:,} x 100, {dtype}", call, X.nbytes + 8.0 * n, issued, peers=peers)


def in_jax(X: Any, y: Any, mu: Any, omega: Any) -> dict[str, Callable[[], Any]]:
    """The gradient that JAX makes of the bound; it has a stream of its own, and is waited for."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    arrays = [jnp.from_dlpack(a) for a in (X, y, mu, omega)]

    @jax.jit
    def both(X: Any, y: Any, mu: Any, omega: Any, key: Any) -> Any:
        e = jax.random.normal(key, mu.shape, mu.dtype)

        def bound(mu: Any, omega: Any) -> Any:
            theta = mu + jnp.exp(omega) * e
            eta = X @ theta.astype(X.dtype)
            value = jnp.sum((y * eta - jax.nn.softplus(eta)).astype(mu.dtype))
            return value - 0.5 * theta @ theta + omega.sum()

        return jax.value_and_grad(bound, (0, 1))(mu, omega)

    key = jax.random.key(1)
    return {"jax": lambda: jax.block_until_ready(both(*arrays, key))}


def of_private(xp: Any, torch: Any, n: int) -> Work:
    """Gradients of a batch, each clipped, one draw: 160.2 instructions a row."""
    X, y, mu, omega = regression(xp, n, 108, "float32")
    options: dict[str, Any] = {"clip": 1.0, "family": "bernoulli", "estimator": "weight-mc", "seed": 1}
    peers = {}
    if torch:
        X_, y_, mu_, omega_ = (torch.from_dlpack(a) for a in (X, y, mu, omega))
        y_ = y_.float()

        def clipped() -> Any:
            s = omega_.exp() * torch.randn(108, dtype=torch.float64, device="cuda")
            theta, also = (mu_ + s).float(), (1 + s * s).float()
            r = y_ - torch.sigmoid(X_ @ theta)
            w = r * (1.0 / (r.abs() * ((X_ * X_) @ also).sqrt())).clamp(max=1.0)
            total = (w @ X_).double()
            return torch.cat([total, total * s])

        peers["torch"] = clipped
    call = lambda: kernels.glm.clipped_grad_sum(X, y, mu, omega, **options)  # noqa: E731
    return Work("glm.clipped_grad_sum", f"bernoulli, {n:,} x 108, float32", call, X.nbytes + 8.0 * n, 160.2 * n, peers=peers)


def of_site(xp: Any, chains: int, p: int, sweeps: int) -> Work:
    """A regression a chain: a Cholesky factor and three solutions a sweep."""
    random = np.random.default_rng(1)
    R = np.linalg.qr(random.standard_normal((200, p)), mode="r")
    state = [np.zeros((chains, p)), np.ones((chains, p)), np.zeros((chains, p)), np.ones((chains, p)), np.ones(chains)]
    R, q, *state = map(xp.asarray, (R, random.standard_normal(p), *state))
    call = lambda: kernels.shrinkage.local_sweeps(R, q, 100.0, 199.0, *state, seed=1, n_sweeps=sweeps)  # noqa: E731
    flops = chains * sweeps * (p**3 / 3 + 3 * p * p)
    return Work("shrinkage.local_sweeps", f"{chains:,} chains, p = {p}, {sweeps} sweeps", call, 0.0, flops=flops)


def of_field(xp: Any, chains: int, p: int, sweeps: int) -> Work:
    """p regressions a chain and sweep, each with a factor of its own."""
    random = np.random.default_rng(1)
    R, shape = np.linalg.qr(random.standard_normal((800, p)), mode="r"), (chains, p, p)
    R, *state = map(xp.asarray, (R, np.zeros(shape), np.ones(shape), np.zeros(shape), np.ones(shape), np.ones(shape[:2])))
    call = lambda: kernels.shrinkage.local_sweeps_batched(R, 799.0, *state, seed=1, n_sweeps=sweeps)  # noqa: E731
    flops = chains * sweeps * p * (p**3 / 3 + 3 * p * p)
    return Work("shrinkage.local_sweeps_batched", f"{chains} chains, p = {p}, {sweeps} sweeps", call, 0.0, flops=flops)


def of_network(xp: Any, chains: int, p: int, n: int, sweeps: int) -> Work:
    """p (p - 1) moves of an element a chain and sweep: each reads a row of residuals twice, and writes it."""
    random = np.random.default_rng(1)
    shape = (chains, p, p)
    of_prior, of_site = (np.zeros(shape), np.full(shape, 0.1)), (0.1 * random.standard_normal(shape), np.ones(shape))
    of_rows = np.ones((chains, p)), np.full(shape, -1.0), np.ones(chains)
    arrays = tuple(map(xp.asarray, (random.standard_normal((p, n)), *of_prior, *of_site, *of_rows)))
    call = lambda: kernels.sem.sweeps(*arrays, seed=1, n_sweeps=sweeps, update="element")  # noqa: E731
    moves = chains * sweeps * p * (p - 1)
    return Work("sem.sweeps", f"{chains:,} chains, p = {p}, n = {n}, {sweeps} sweeps", call, 0.0, flops=5.0 * n * moves)


def of_process(xp: Any, count: int, n: int, rank: int) -> Work:
    """Pivoted factors: column after column of each, n rank products."""
    random = np.random.default_rng(1)
    x, lengths = xp.asarray(random.uniform(size=(n, 2))), xp.asarray(np.linspace(0.02, 0.05, count))
    call = lambda: kernels.spatial.gp_factor(x, lengths, rank=rank, tolerance=1e-10)  # noqa: E731
    return Work(
        "spatial.gp_factor",
        f"{count} factors, n = {n:,}, rank {rank}",
        call,
        8.0 * count * n * rank,
        flops=float(count) * n * rank**2,
    )


def of_groups(xp: Any, points: int, groups: int) -> Work:
    """Logistic intercepts of groups of four rows, by 15 nodes: arithmetic. Predictors are written and read once."""
    n = 4 * groups
    rows = xp.ones((n, 1)), xp.ones((n, 1)), (xp.arange(n) % 3 == 0).astype("f8"), None, None, xp.arange(0, n + 1, 4)
    at = xp.asarray(np.random.default_rng(1).standard_normal((points, 2)))
    words, options = f"{points:,} points, {groups:,} groups", {"family": "bernoulli", "nodes": 15, "backend": "cuda"}
    return Work("mixed.values", words, lambda: kernels.mixed.values(at, *rows, **options), 16.0 * n * points)


def training(xp: Any, d: int, hidden: int) -> Work:
    """Steps of the autoencoder at the size of the paper's maps. Parameters are read twice for the gradient, which is written once
    and read twice; then they and Adam's moments are read and written. Six products and sums a parameter and draw."""
    a, steps, batch = (
        kernels.mlp.Architecture("amended", (d,), n_local=(5,), hidden=hidden, local_hidden=hidden),
        100 if d > 99 else 2,
        128,
    )
    k = a.n_parameters
    parameters, moments = xp.asarray(a.initial(1).astype("f4")), xp.zeros((2, k), "f4")
    table = xp.ones((4, d)), xp.ones((4, 1)), xp.ones(d)
    rates = {"rates": xp.full(steps, 1e-3), "kl_weights": xp.ones(steps)}
    options = {"architecture": a, "kind": "stored", "batch": batch, "gamma": 0.5, "seed": 1, "backend": "cuda"}
    call = lambda: kernels.mlp.vae_step(parameters, moments, *table, **rates, **options)  # noqa: E731
    words = f"{k:,} parameters, {steps} steps"
    return Work("mlp.vae_step", words, call, 44.0 * k * steps, flops=6.0 * batch * k * steps, dtype="float32")
