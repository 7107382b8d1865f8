"""Training steps of the hierarchical autoencoder: fedkern beside JAX, torch and Pyro.

`python -m benchmarks.bench_vae [case ..]`, from the folder above, prints the rows of a table; asv runs the same cases. A step is:
a batch of draws from a table of priors, the networks, both KLs, the gradient, its norm, Adam; in float32, draws in float64. Peers
make the same gradient (checked before they are timed) on draws of their own generators. BLAS and torch have one thread; JAX is
not told how many to use, so its times may be those of all cores: there is a column of two threads of ours too. JAX runs all steps
of a call in one `lax.scan`; torch and Pyro step in Python, as their users do. Results are new arrays, whose pages the system
clears; "kept": a call goes on from the results of the last and its own stand where those before it stood (ours by `out`, JAX's
donated). For the large networks the products that BLAS makes in the same time are printed too, of large matrices (`floors.py`).

================ ============== ============================= ======= ===== ============ ================
case             variant        sizes (d; latents; hidden)    batch   draws parameters   flops of a step
================ ============== ============================= ======= ===== ============ ================
gp printed       printed        100; 5 + 3 x 5; 16            32      F e   6,420        1.2e6
gp               amended        the same                      32      F e   10,186       2.0e6
gp stored        amended        the same                      32      rows  10,186       2.0e6
gp multiplied    multiplicative the same, width 32, rank 6    32      F e   13,114       2.5e6
map              amended        2,192; 40 + 8 x 20; 256, 128  128     rows  1,987,312    1.5e9
car              printed        2,221; 100 + 8 x 50; 2024,    128     rows  28,407,980   2.2e10
                                1048
================ ============== ============================= ======= ===== ============ ================

"F e": 512 entries with factors of rank 16; "rows": stored draws.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedkern import _core
from fedkern.kernels import mlp

from . import common, floors

LOWEST, HIGHEST = -12.0, 6.0
EAGER = 20  # steps of a call that are made from Python
PAPER = {"groups": (34, 33, 33)}
STATES = (620, 510, 540, 170, 240, 100, 7, 5)
CAR = (629, 520, 540, 170, 250, 100, 7, 5)


@dataclass(frozen=True)
class Case:
    """An architecture, its table and how many steps one call makes."""

    architecture: mlp.Architecture
    batch: int
    steps: int
    rank: int = 16  # 0: stored draws
    entries: int = 512
    gamma: float = 0.5
    rate: float = 1e-3

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """values, and phi (entries, 1)."""
        return _table(self.architecture.n_values, self.rank, self.entries)

    def batch_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """theta, t, noise, on which peers are compared."""
        draw, a = np.random.default_rng(1).standard_normal, self.architecture
        shapes = ((self.batch, a.n_values), (self.batch, a.n_conditions), (self.batch, a.n_latents))
        return tuple(draw(shape).astype("f4") for shape in shapes)  # type: ignore[return-value]


@lru_cache(maxsize=8)
def _table(n: int, rank: int, entries: int) -> tuple[np.ndarray, np.ndarray]:
    phi = 0.2 + 0.8 * (np.arange(entries) + 0.5) / entries
    if not rank:
        return np.random.default_rng(2).standard_normal((entries, n)), phi[:, None]
    x, values = np.linspace(0, 1, n), np.empty((entries, n, rank))
    for i, scale in enumerate(phi):
        lengths, vectors = np.linalg.eigh(np.exp(-((x[:, None] - x) ** 2) / (2 * scale**2)))
        values[i] = vectors[:, -rank:] * np.sqrt(np.maximum(lengths[-rank:], 0))
    return values.reshape(entries, -1), phi[:, None]


CASES = {
    "gp printed": Case(mlp.Architecture("printed", **PAPER), 32, 500),
    "gp": Case(mlp.Architecture("amended", **PAPER), 32, 500),
    "gp stored": Case(mlp.Architecture("amended", **PAPER), 32, 500, 0, 10_000),
    "gp multiplied": Case(mlp.Architecture("multiplicative", **PAPER), 32, 500),
    "map": Case(mlp.Architecture("amended", STATES, 1, 40, (20,) * 6 + (7, 5), 256, 128), 128, 10, 0, 1000),
    "car": Case(mlp.Architecture("printed", CAR, 1, 100, (50,) * 8, 2024, 1048), 128, 4, 0, 256, 0.03, 1e-4),
}


# The objective, once for JAX and torch --------------------------------------------------------------------------------------


class Ops(NamedTuple):
    """What the two call differently."""

    cat: Callable[..., Any]
    relu: Callable[..., Any]
    tanh: Callable[..., Any]
    exp: Callable[..., Any]
    clip: Callable[..., Any]
    linear: Callable[..., Any]


def kl(ops: Ops, m: Any, log_v: Any, m0: Any, log_v0: Any) -> Any:
    return 0.5 * (log_v0 - log_v + (ops.exp(log_v) + (m - m0) ** 2) * ops.exp(-log_v0) - 1).sum()


def heads(ops: Ops, layers: Any, x: Any, q: int) -> tuple[Any, Any]:
    (W1, b1), (W2, b2), (W3, b3) = layers
    out = ops.linear(ops.linear(ops.relu(ops.linear(x, W1, b1)), W2, b2), W3, b3)
    return out[:, :q], ops.clip(out[:, q:], LOWEST, HIGHEST)


def kron(ops: Ops, M: Any, s: Any, x: Any) -> Any:
    return (s[:, :, None] * x[:, None, :]).reshape(x.shape[0], -1) @ M.T


def blocks(a: mlp.Architecture, theta: Any, noise: Any) -> Any:
    begin, latent = 0, a.n_global
    for j, (n, q) in enumerate(zip(a.groups, a.n_local)):
        yield j, q, theta[:, begin : begin + n], noise[:, latent : latent + q]
        begin, latent = begin + n, latent + q


def elbo(ops: Ops, a: mlp.Architecture, net: Any, theta: Any, t: Any, noise: Any, gamma: float) -> Any:
    """Mean over the batch; `net` has the layers of every part."""
    p, e_G = a.n_global, noise[:, : a.n_global]
    squares, divergence = 0.0, 0.0
    if a.variant == "multiplicative":
        s_E, s_D = (
            ops.linear(ops.tanh(ops.linear(t, W1, b1)), W2, b2)
            for (W1, b1), (W2, b2) in (net["encoder_weights"], net["decoder_weights"])
        )
        (M, _), (W, b) = net["global_encoder"]
        mu_G, log_G = kron(ops, M, s_E, theta), ops.clip(ops.linear(s_E, W, b), LOWEST, HIGHEST)
    else:
        mu_G, log_G = heads(ops, net["global_encoder"], ops.cat([theta, t]), p)
    z_G = mu_G + ops.exp(0.5 * log_G) * e_G
    if a.variant != "multiplicative":
        (W1, b1), (W2, b2) = net["global_decoder"]
        h = ops.linear(ops.relu(ops.linear(ops.cat([z_G, t]), W1, b1)), W2, b2)
    for j, q, theta_j, e_j in blocks(a, theta, noise):
        if a.variant == "multiplicative":
            (M, _), (W, b) = net[f"posterior[{j}]"]
            m, log_v = kron(ops, M, s_E, ops.cat([theta_j, z_G])), ops.clip(ops.linear(s_E, W, b), LOWEST, HIGHEST)
            m0, log_v0 = 0.0 * m, 0.0 * log_v
        else:
            m0, log_v0 = heads(ops, net[f"prior[{j}]"], ops.cat([z_G, t]), q)
            m, log_v = m0, log_v0
            if a.variant == "amended":
                m, log_v = heads(ops, net[f"posterior[{j}]"], ops.cat([theta_j, z_G, t]), q)
            else:
                m0, log_v0 = 0.0 * m, 0.0 * log_v
        z = m + ops.exp(0.5 * log_v) * e_j
        if a.variant == "multiplicative":
            mu = kron(ops, net[f"decoder[{j}]"][0][0], s_D, ops.cat([z_G, z]))
        else:
            mu = ops.cat([h, z, t])
            for i, (W, b) in enumerate(net[f"decoder[{j}]"]):
                mu = ops.linear(ops.relu(mu) if i else mu, W, b)
        squares = squares + ((theta_j - mu) ** 2).sum()
        divergence = divergence + kl(ops, m, log_v, m0, log_v0)
    divergence = divergence + kl(ops, mu_G, log_G, 0.0 * mu_G, 0.0 * log_G)
    constant = a.n_values * (math.log(gamma) + 0.5 * math.log(2 * math.pi))
    return (-squares / (2 * gamma**2) - divergence) / theta.shape[0] - constant


def layers_of(a: mlp.Architecture, flat: Any) -> dict[str, Any]:
    return {part: a.layers(flat, part) for part in a.parts}


# Peers: a gradient on given arrays, and a call that makes all steps ---------------------------------------------------------


class Peer(NamedTuple):
    gradient: Callable[[], Any]
    train: Callable[[], Any]
    steps: int  # that `train` makes


def fedkern(case: Case, backend: str | None = None, n_threads: int = 1, kept: bool = False) -> Peer:
    a, (values, phi) = case.architecture, case.table
    parameters, moments = a.initial(0).astype("f4"), np.zeros((2, a.n_parameters), "f4")
    given = (values, phi, np.ones(a.n_values))
    schedule = {"rates": np.full(case.steps, case.rate), "kl_weights": np.ones(case.steps)}
    options = {"architecture": a, "gamma": case.gamma, "n_threads": n_threads, "backend": backend}
    table = {"kind": "dense" if case.rank else "stored", "rank": case.rank, "batch": case.batch, "clip": 1e3, "seed": 1}
    states = [(parameters, moments), (parameters.copy(), moments.copy())][: 1 + kept]

    def train() -> None:
        out = (*states[1], np.empty((case.steps, 5))) if kept else None
        mlp.vae_step(*states[0], *given, **schedule, **options, **table, out=out)
        states.reverse()

    return Peer(lambda: mlp.vae_gradient(parameters, *case.batch_arrays(), **options)[0], train, case.steps)


def by_jax(case: Case, kept: bool = False) -> Peer:
    jax = common.jax()
    jnp, a, (values, phi) = jax.numpy, case.architecture, case.table
    values, phi = jnp.asarray(values), jnp.asarray(phi, "f4")
    ops = Ops(
        lambda x: jnp.concatenate(x, axis=1), jax.nn.relu, jnp.tanh, jnp.exp, jnp.clip, lambda x, W, b: x @ W.T + b
    )  # fmt: skip
    net = jax.tree.map(jnp.asarray, layers_of(a, a.initial(0).astype("f4")))
    value = jax.value_and_grad(lambda net, *arrays: elbo(ops, a, net, *arrays, case.gamma))

    def step(state: Any, count: Any) -> Any:
        net, m, v, key = state
        key, one, two, three = jax.random.split(key, 4)
        entry = jax.random.randint(one, (case.batch,), 0, case.entries)
        theta = values[entry]
        if case.rank:
            e = jax.random.normal(two, (case.batch, case.rank), "f8")
            theta = jnp.einsum("bnr,br->bn", theta.reshape(case.batch, a.n_values, case.rank), e)
        noise = jax.random.normal(three, (case.batch, a.n_latents), "f4")
        bound, g = value(net, theta.astype("f4"), phi[entry], noise)
        norm = jnp.sqrt(sum((x * x).sum() for x in jax.tree.leaves(g)))
        shrink = jnp.where(norm > 1e3, 1e3 / norm, 1.0).astype("f4")
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * shrink * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * (shrink * g) ** 2, v, g)
        first, second = (1 / (1 - jnp.float32(beta) ** (count + 1)) for beta in (0.9, 0.999))
        move = lambda p, m, v: p + jnp.float32(case.rate) * first * m / (jnp.sqrt(second * v) + 1e-8)  # noqa: E731
        return (jax.tree.map(move, net, m, v), m, v, key), (bound, norm)

    zeros = jax.tree.map(jnp.zeros_like, net)
    call = jax.jit(
        lambda state: jax.lax.scan(step, state, jnp.arange(case.steps, dtype="f4")), donate_argnums=(0,) if kept else ()
    )
    states = [(*jax.tree.map(jnp.array, (net, zeros, zeros)), jax.random.key(1))]

    def train() -> None:
        after = jax.block_until_ready(call(states[0]))[0]
        if kept:
            states[0] = after

    gradient = jax.jit(jax.grad(lambda net, *arrays: elbo(ops, a, net, *arrays, case.gamma)))
    return Peer(lambda: jax.tree.map(np.asarray, gradient(net, *case.batch_arrays())), train, case.steps)


def torch_parts(case: Case) -> tuple[Any, Ops, dict[str, Any], list[Any]]:
    torch, a = common.need("torch"), case.architecture
    torch.set_num_threads(1)
    net = {
        part: [tuple(None if x is None else torch.tensor(x).requires_grad_() for x in layer) for layer in layers]
        for part, layers in layers_of(a, a.initial(0).astype("f4")).items()
    }
    leaves = [x for layers in net.values() for layer in layers for x in layer if x is not None]
    ops = Ops(
        lambda x: torch.cat(x, dim=1), torch.relu, torch.tanh, torch.exp, torch.clip, torch.nn.functional.linear
    )  # fmt: skip
    return torch, ops, net, leaves


def torch_draws(torch: Any, case: Case) -> Callable[[], tuple[Any, Any, Any]]:
    a, (values, phi) = case.architecture, (torch.tensor(x) for x in case.table)
    single = phi.float()

    def draw() -> tuple[Any, Any, Any]:
        entry = torch.randint(case.entries, (case.batch,))
        theta = values[entry]
        if case.rank:
            e = torch.randn(case.batch, case.rank, 1, dtype=torch.float64)
            theta = (theta.view(case.batch, a.n_values, case.rank) @ e)[:, :, 0]
        return theta.float(), single[entry], torch.randn(case.batch, a.n_latents)

    return draw


def by_torch(case: Case) -> Peer:
    torch, ops, net, leaves = torch_parts(case)
    draw, a = torch_draws(torch, case), case.architecture
    adam, steps = torch.optim.Adam(leaves, lr=case.rate, fused=True), min(case.steps, EAGER)

    def train() -> None:
        for _ in range(steps):
            adam.zero_grad()
            (-elbo(ops, a, net, *draw(), case.gamma)).backward()
            torch.nn.utils.clip_grad_norm_(leaves, 1e3)
            adam.step()

    arrays = [torch.tensor(x) for x in case.batch_arrays()]
    return Peer(lambda: torch.autograd.grad(elbo(ops, a, net, *arrays, case.gamma), leaves), train, steps)


def by_pyro(case: Case) -> Peer:
    """SVI with the mean-field ELBO, in which the KLs are analytic; the reparameterised likelihood stands in a factor."""
    pyro = common.need("pyro")
    torch, ops, net, leaves = torch_parts(case)
    if case.architecture.variant == "multiplicative":
        raise common.absent("model of this variant for pyro")
    dist, a, draw = pyro.distributions, case.architecture, torch_draws(torch, case)
    flat = {f"p{i}": leaf for i, leaf in enumerate(leaves)}

    def parts() -> dict[str, Any]:
        parameters = {name: pyro.param(name, value) for name, value in flat.items()}
        values = iter(parameters.values())
        return {part: [tuple(next(values) for _ in layer) for layer in layers] for part, layers in net.items()}

    def normal(m: Any, log_v: Any) -> Any:
        return dist.Normal(m, torch.exp(0.5 * log_v)).to_event(1)

    def model(theta: Any, t: Any) -> None:
        net = parts()
        zeros = torch.zeros(case.batch, a.n_global)
        with pyro.plate("rows", case.batch):
            z_G = pyro.sample("z_G", normal(zeros, zeros))
            (W1, b1), (W2, b2) = net["global_decoder"]
            h = ops.linear(ops.relu(ops.linear(ops.cat([z_G, t]), W1, b1)), W2, b2)
            begin = 0
            for j, (n, q) in enumerate(zip(a.groups, a.n_local)):
                prior = heads(ops, net[f"prior[{j}]"], ops.cat([z_G, t]), q) if a.variant == "amended" else (zeros[:, :1],) * 2
                prior = prior if a.variant == "amended" else (torch.zeros(case.batch, q),) * 2
                x = ops.cat([h, pyro.sample(f"z_{j}", normal(*prior)), t])
                for i, (W, b) in enumerate(net[f"decoder[{j}]"]):
                    x = ops.linear(ops.relu(x) if i else x, W, b)
                pyro.sample(f"theta_{j}", dist.Normal(x, case.gamma).to_event(1), obs=theta[:, begin : begin + n])
                begin += n

    def guide(theta: Any, t: Any) -> None:
        net, begin = parts(), 0
        with pyro.plate("rows", case.batch):
            z_G = pyro.sample("z_G", normal(*heads(ops, net["global_encoder"], ops.cat([theta, t]), a.n_global)))
            for j, (n, q) in enumerate(zip(a.groups, a.n_local)):
                own = [theta[:, begin : begin + n]] if a.variant == "amended" else []
                layers = net[f"{'posterior' if a.variant == 'amended' else 'prior'}[{j}]"]
                pyro.sample(f"z_{j}", normal(*heads(ops, layers, ops.cat([*own, z_G, t]), q)))
                begin += n

    pyro.clear_param_store()
    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": case.rate}), pyro.infer.TraceMeanField_ELBO())

    steps = min(case.steps, EAGER)

    def train() -> None:
        for _ in range(steps):
            svi.step(*draw()[:2])

    return Peer(by_torch(case).gradient, train, steps)


PEERS: dict[str, Callable[[Case], Peer]] = {
    "fedkern": fedkern,
    "fedkern, 2 threads": lambda case: fedkern(case, n_threads=2),
    "fedkern, 2 threads, kept": lambda case: fedkern(case, n_threads=2, kept=True),
    "jax": by_jax,
    "jax, kept": lambda case: by_jax(case, kept=True),
    "torch": by_torch,
    "pyro": by_pyro,
}
LARGE = {"map", "car"}


def flattened(a: mlp.Architecture, gradient: Any) -> np.ndarray:
    if isinstance(gradient, dict):  # sorted by JAX
        gradient = [x for part in a.parts for layer in gradient[part] for x in layer if x is not None]
    parts = gradient if isinstance(gradient, list | tuple) else [gradient]
    return np.concatenate([np.asarray(x).ravel() for x in parts]).astype("f8")


def available(case: Case) -> dict[str, Peer]:
    """The peers that are installed; all make the same gradient."""
    peers = common.available(PEERS, case)
    want = flattened(case.architecture, peers["fedkern"].gradient())
    for name, peer in peers.items():
        difference = np.linalg.norm(flattened(case.architecture, peer.gradient()) - want)
        assert difference <= 1e-3 * np.linalg.norm(want), name
    return peers


class Training:
    """Time of a step."""

    params = (list(CASES), list(PEERS))
    param_names = ("case", "peer")
    timeout = 600

    def setup(self, case: str, peer: str) -> None:
        self.limits = common.alone()
        self.peer = PEERS[peer](CASES[case])
        self.peer.train()

    def track_step(self, case: str, peer: str) -> float:
        return common.medians(self.peer.train, seconds=1, rounds=5)[0] / self.peer.steps

    track_step.unit = "s"


class TrainingRatios:
    params = (list(CASES),)
    param_names = ("case",)
    timeout = 600

    def track_jax(self, case: str) -> float:
        with common.alone():
            return common.ratio(fedkern(CASES[case]).train, by_jax(CASES[case]).train)

    track_jax.unit = "times as fast"


def operations(a: mlp.Architecture, batch: int) -> float:
    """Of the products of a step: forth, back to the inputs (but for the encoder's first layer), and back to the weights."""
    flat = np.zeros(a.n_parameters, "f4")
    weights = {part: [W.size for W, _ in layers] for part, layers in layers_of(a, flat).items()}
    return 2.0 * batch * (3 * sum(map(sum, weights.values())) - weights["global_encoder"][0])


def row(name: str, case: Case) -> None:
    large = name in LARGE
    peers = available(case)
    if large:
        peers = {peer: made for peer, made in peers.items() if peer not in ("torch", "pyro")}
    calls = {peer: made.train for peer, made in peers.items()}
    if large:
        calls["BLAS"] = floors.multiply(2048, "f4")
    whole = common.times(calls, seconds=4, rounds=7)
    step = {peer: t / peers[peer].steps for peer, t in whole.items() if peer in peers}
    print(f"{name}, us a step: {common.cells(step, '.1f', 1e6)}")
    others = {peer: t / step["fedkern"] for peer, t in step.items() if "fedkern" not in peer}
    print(f"    over ours: {common.cells(others, '.2f', 1)}")
    if large:
        peak, work = 2 * 2 * 2048**3 / whole["BLAS"], operations(case.architecture, case.batch)
        both = [step["jax" + kept] / step["fedkern, 2 threads" + kept] for kept in ("", ", kept")]
        print(f"    over ours with two threads: {both[0]:.2f}; kept {both[1]:.2f}")
        shares = {peer: work / t / peak for peer, t in step.items() if peer != "fedkern"}
        print(f"    BLAS, 2048 x 2048 on each of two cores: {peak / 1e9:.0f} GF/s; operations of a step's products over that:")
        print(f"    {common.cells(shares, '.2f', 1)}", flush=True)


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        for name in sys.argv[1:] or CASES:
            row(name, CASES[name])
