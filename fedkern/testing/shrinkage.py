"""Makes cases of the sparse models' kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern.kernels import shrinkage

from . import Arguments, Case, Floats, Results, Source

# Makes cases of the local kernels --------------------

BELOW = 77.0  # stands below the diagonal of R, where nothing may be read
LARGEST, BATCHED = 80, 48  # columns at most, and where the reference takes regression after regression


def names(source: Source) -> Arguments:
    """Returns names of random numbers, up to their limits."""
    return {
        "seed": source.choose([0, 5, 2**64 - 1]),
        "chain": source.choose([0, 7, 2**64 - 2]),
        "client": source.choose([0, 3, 2**32 - 1]),
        "step": source.choose([0, 70_000, 2**32 - 3]),
    }


def triangle(source: Source, p: int) -> tuple[int, Floats, Floats | None]:
    """Returns the number of rows, the factor of standard normal ones, and perhaps its square."""
    rows = min(source.size(), LARGEST)
    r = min(rows, p)
    R = np.asarray(np.linalg.qr(source.random.standard_normal((rows, p)), mode="r")) if r else np.zeros((r, p))
    gram = source.array(R.T @ R) if source.choose([True, False]) else None
    return rows, source.array(np.where(np.arange(r)[:, None] <= np.arange(p), R, BELOW)), gram


def positive(source: Source, *shape: int, extremes: tuple[float, ...] = ()) -> Floats:
    return source.array(np.exp(source.random.standard_normal(shape)), extremes=extremes)


def state(source: Source, *batch: int, p: int) -> Arguments:
    return {
        "theta": source.array(0.3 * source.random.standard_normal((*batch, p))),
        "tau_sq": positive(source, *batch, p, extremes=(1.0, 1e-12, 1e-60)),
        "deviation": source.normal(*batch, p, extremes=(1.0, 0.0, 1e-200, 30.0)),
        "lambda_sq": positive(source, *batch, p, extremes=(1.0, 1e-60, 1e60)),
        "sigma_sq": positive(source, *batch),
    }


def options(source: Source) -> Arguments:
    return {
        "n_sweeps": source.choose([1, 2, 3]),
        "scales": source.choose(["exact", "expanded"]),
        "draw": source.choose(["auto", "gram", "data"]),
        "scale_lambda": source.choose([1.0, 0.3]),
        "shape": source.choose([2.0, 0.4]),
        "rate": source.choose([1.0, 0.1]),
        "slab": source.choose([np.inf, 2.0, 0.1]),
    }


def response(source: Source, chains: int, r: int) -> Floats:
    """Returns q of each chain, or of all alike."""
    return source.normal(r) if chains > 1 and source.choose([True, False]) else source.normal(chains, r)


def of_chain(function: Callable[..., Any], arguments: Arguments) -> Case:
    """Returns a case whose errors are judged beside the largest deviation of a chain's regression, elsewhere beside the number
    itself."""
    want = function(**arguments, backend="reference")
    largest = np.abs(want[0]).max(axis=-1, keepdims=True, initial=0)
    return Case(arguments, kind="chain", magnitude=[largest, *map(np.abs, want[1:])], wanted=want)


def local_sweeps(source: Source) -> Case:
    c, p = source.choose([0, 1, 2, 3]), min(source.size(), LARGEST)
    rows, R, gram = triangle(source, p)
    rss = source.choose([0.0, 3.0]) if source.choose([True, False]) else positive(source, c)
    data = {"R": R, "q": response(source, c, len(R)), "rss": rss, "n": float(rows), "gram": gram}
    return of_chain(shrinkage.local_sweeps, {**data, **state(source, c, p=p), **options(source), **names(source)})


def local_sweeps_batched(source: Source) -> Case:
    c, p = source.choose([0, 1, 2]), source.size() % BATCHED
    rows, R, gram = triangle(source, p)
    data = {"R": R, "n": float(rows), "gram": gram}
    return of_chain(shrinkage.local_sweeps_batched, {**data, **state(source, c, p, p=p), **options(source), **names(source)})


def gaussian_posterior_draw(source: Source) -> Case:
    c, p = source.choose([0, 1, 2, 3]), min(source.size(), LARGEST)
    _, R, gram = triangle(source, p)
    arguments = {
        "R": R,
        "q": response(source, c, len(R)),
        "mean": source.normal(c, p),
        "scale": positive(source, c, p, extremes=(1.0, 0.0, 1e-60)),
        "sigma_sq": positive(source, c),
        "draw": source.choose(["auto", "gram", "data"]),
        "slab": source.choose([np.inf, 0.3]),
        "gram": gram,
        **names(source),
    }
    want = shrinkage.gaussian_posterior_draw(**arguments, backend="reference")
    return Case(arguments, kind="chain", magnitude=[np.abs(want).max(axis=1, keepdims=True, initial=0)], wanted=(want,))


# Makes cases of the moves of the sparse models --------------------

MOVE_CHAINS = (0, 1, 2)
MOVE_SIZES = (1, 2, 3, 8, 17)


def block(source: Source, p: int) -> Floats:
    size = source.choose([p, 2 * p, min(3, 2 * p)])
    return source.array(np.arange(p) if size == p else source.random.permutation(2 * p)[:size], np.int64)


def move_terms(source: Source) -> Case:
    c, p, r = source.choose(MOVE_CHAINS), source.choose(MOVE_SIZES), source.choose(MOVE_SIZES)
    random, r = source.random, min(r, p)
    R, q, theta, d = np.triu(random.standard_normal((r, p))), *(random.standard_normal((c, n)) for n in (r, p, p))
    tau_sq, sigma_sq = np.exp(random.standard_normal((c, p))), np.exp(random.standard_normal(c))
    slab, drawn = source.choose([np.inf, 0.6]), block(source, p)
    w = np.where(drawn >= p, (abs(d) / np.sqrt(tau_sq))[:, drawn % p], 1.0)
    V = abs(R)[:, drawn % p] * w[:, None, :]
    slab_gradient = w * abs(d)[:, drawn % p] / slab**2
    gradient = np.einsum("cra,cr->ca", V, abs(q) + (abs(theta) + abs(d)) @ abs(R).T) / sigma_sq[:, None] + slab_gradient
    precision = np.einsum("cra,crb->cab", V, V) / sigma_sq[:, None, None]
    precision += (w / slab)[:, :, None] * (w / slab)[:, None, :]
    arrays = {"R": R, "q": q, "theta": theta, "deviation": d, "tau_sq": tau_sq, "sigma_sq": sigma_sq}
    arguments = {name: source.array(a) for name, a in arrays.items()} | {"block": drawn, "slab": slab}
    return Case(arguments, magnitude=[gradient, precision])


def move(source: Source) -> Case:
    c, p, random = source.choose(MOVE_CHAINS), source.choose(MOVE_SIZES), source.random
    drawn = block(source, p)
    A = random.standard_normal((c, len(drawn), len(drawn) + 3))
    arrays = {
        "gradient": 5 * random.standard_normal((c, len(drawn))),
        "precision": A @ A.transpose(0, 2, 1),
        "theta": random.standard_normal((c, p)),
        "tau_sq": np.exp(random.standard_normal((c, p))),
        "gamma": random.integers(0, 2, (c, p)),
        "eta": np.exp(random.standard_normal((c, p))),
    }
    options = {
        "spike_variance": source.choose([0.0, 0.02]),
        "scale_tau": source.choose([1.0, 0.3]),
        "c0": source.choose([0.01, 0.2]),
    }
    counter = {"seed": source.choose([3, 2**64 - 1]), "chain": source.choose([0, 9]), "step": source.choose([0, 2**32 - 1])}
    arguments: Arguments = {name: source.array(a) for name, a in arrays.items()}
    return Case(arguments | {"block": drawn} | options | counter, magnitude=[np.full((c, p), 30.0)] * 2)


# Makes cases of the kernels of the sparse models that touch rows --------------------

CHAINS, COLUMNS, ROWS = (1, 2, 3), (1, 2, 3, 8), (1, 2, 7, 33)


def state_of_rows(source: Source, c: int, p: int) -> Arguments:
    return {
        "theta": source.array(0.3 * source.random.standard_normal((c, p))),
        "tau_sq": positive(source, c, p, extremes=(1.0, 1e-12)),
        "deviation": source.normal(c, p, extremes=(1.0, 0.0, 1e-200)),
        "lambda_sq": positive(source, c, p),
        "alpha": source.normal(c),
    }


def options_of_rows(source: Source) -> Arguments:
    return names(source) | {
        "n_sweeps": source.choose([1, 3]),
        "scales": source.choose(["exact", "expanded"]),
        "scale_lambda": source.choose([1.0, 0.3]),
        "slab": source.choose([np.inf, 0.5]),
    }


def of_rows(function: Callable[..., Results], arguments: Arguments) -> Case:
    """Returns a case whose errors are judged beside the largest number of a result."""
    results = function(**arguments, backend="reference")
    magnitude = [np.broadcast_to(np.max(abs(r), initial=0), r.shape) for r in results]
    magnitude[1] = abs(results[1])  # lambda^2 has a scale for each coefficient
    return Case(arguments, kind="chain", magnitude=magnitude, wanted=results)


def response_of_rows(source: Source, c: int, n: int) -> Floats:
    """Returns 0 and 1 of each chain, or of all alike."""
    return source.array(source.random.integers(0, 2, (n,) if c > 1 and source.choose([True, False]) else (c, n)))


def logistic_sweeps(source: Source) -> Case:
    n, p, c = source.choose((0, *ROWS)), source.choose((0, *COLUMNS)), source.choose(CHAINS)
    arguments = {"X": source.normal(n, p), "y": response_of_rows(source, c, n)} | state_of_rows(source, c, p)
    how = {"intercept": source.choose([True, False]), "scale_intercept": source.choose([10.0, 1.0])}
    return of_rows(shrinkage.logistic_sweeps, arguments | options_of_rows(source) | how)


def imputed_sweeps(source: Source) -> Case:
    n, p, c, random = source.choose(ROWS), source.choose(COLUMNS), source.choose(CHAINS), source.random
    A = random.standard_normal((p + 4, p))
    X = random.standard_normal((n, p)) @ np.linalg.cholesky(A.T @ A / 4).T
    gaps = random.random((n, p)) < source.choose([0.0, 0.1, 0.5])
    if source.choose([True, False]):
        gaps[:, 0] = True  # never measured here
    filled = np.where(gaps, random.standard_normal((c, n, p)), X)
    arguments = {
        "X": source.array(np.where(gaps, np.nan, X)),
        "y": response_of_rows(source, c, n),
        "psi": source.array(A.T @ A / 4),
        "sigma_sq": positive(source, c),
        "completed": source.array(filled),
    }
    mean = random.standard_normal(p)
    how = {
        "shape": source.choose([2.0, 0.4]),
        "rate": source.choose([1.0, 0.1]),
        "intercept": source.choose([True, False]),
        "patterns": source.choose([None, shrinkage.missing_patterns(arguments["X"], arguments["psi"], mean)]),
    }
    return of_rows(shrinkage.imputed_sweeps, arguments | state_of_rows(source, c, p) | options_of_rows(source) | how)


# Makes cases of the server's kernels of the sparse models --------------------

SERVER_SIZES = (0, 1, 2)
SERVER = {"seed": 2**64 - 5, "step": 2**32 - 9}


def kinds(source: Source, g: int, p: int) -> Floats:
    """Returns indicators of each kind: one for a coefficient alone, one for a group, always included, absent."""
    index = np.tile(np.arange(p, dtype=np.int64), (g, 1))
    shape = source.choose(["plain", "diagonal", "groups", "mixed"])
    if shape == "diagonal":
        for r in range(min(g, p)):
            index[r, r] = -2
    if shape in ("groups", "mixed"):
        index //= 3
    if shape == "mixed":
        index[source.random.random(index.shape) < 0.2] = -1
        index[source.random.random(index.shape) < 0.2] = -2
    return source.array(index, np.int64)


def state_of_server(source: Source, c: int, g: int, p: int) -> Arguments:
    random, shape = source.random, (c, g, p)
    eta = source.array(np.exp(random.standard_normal((c, g, 1))) * np.ones(shape))
    return {
        "indicators": kinds(source, g, p),
        "theta": source.array(0.5 * random.standard_normal(shape)),
        "tau_sq": source.array(np.exp(source.choose([1.0, 6.0]) * random.standard_normal(shape) - 3)),
        "gamma": source.array(random.integers(0, 2, shape)),
        "eta": eta,
        "rho": source.array(random.choice([0.03, 0.5, 0.9, 1e-12], (c, g))),
    }


def options_of_server(source: Source) -> Arguments:
    return {
        "scales": source.choose(["exact", "expanded"]),
        "order": source.choose(["blocked", "printed"]),
        "eta_form": source.choose(["common", "coordinate"]),
        "c0": source.choose([0.01, 0.3]),
        "spike_variance": source.choose([0.0, 0.01]),
        "scale_tau": source.choose([1.0, 0.1]),
        "shape_eta": source.choose([2.0, 0.4]),
        "rho_b": source.choose([1.0, 5.0]),
        "shared_rho": source.choose([False, True]),
        "slab": source.choose([np.inf, 2.0]),
        "chain": source.choose([0, 2**64 - 7]),
    }


def clients(source: Source, *shape: int) -> Arguments:
    deviation = 10.0 ** source.choose([0, -3]) * source.random.standard_normal(shape)
    scales = np.exp(source.choose([1.0, 9.0]) * source.random.standard_normal(shape))
    return {"deviation": source.array(deviation, extremes=(1.0, 0.0, 1e-140)), "lambda_sq": source.array(scales)}


def case(function: Callable[..., Results], arguments: Arguments) -> Case:
    """Returns a case. Rounding errors of theta and of the deviations are relative to the largest theta, those of the other
    results to themselves. A second pass draws scales about deviations that theta has left with fewer digits."""
    loss = 1e4 if arguments.get("n_passes", 1) > 1 else 10
    results = function(**arguments, backend="reference")
    magnitude = [np.abs(result) for result in results]
    for i in (0, 6):
        if magnitude[i].dtype == np.float64:
            magnitude[i] = magnitude[i] + max(np.max(abs(a), initial=0) for a in (results[0], arguments["theta"]))
    return Case(arguments, kind="variate", magnitude=[loss * m for m in magnitude], wanted=results)


def local_sums(source: Source) -> Case:
    c, g = source.choose(SERVER_SIZES), source.choose(SERVER_SIZES)
    return Case(clients(source, c, g, source.size()) | {"slab": source.choose([np.inf, 2.0])}, kind="exact")


def global_sweep(source: Source) -> Case:
    c, g, p = source.choose(SERVER_SIZES), source.choose(SERVER_SIZES), source.size()
    how = options_of_server(source) | {"scale_lambda": source.choose([1.0, 0.2])}
    how["n_passes"] = 1 if how["scales"] == "expanded" else source.choose([1, 3])
    locals_ = clients(source, source.choose([1, 2, 3, 7]), c, g, p)
    return case(shrinkage.global_sweep, locals_ | state_of_server(source, c, g, p) | how | SERVER)


def global_sweep_sums(source: Source) -> Case:
    c, g, p, m = source.choose(SERVER_SIZES), source.choose(SERVER_SIZES), source.size(), source.choose([1, 2, 5])
    how = options_of_server(source)
    each = clients(source, m, c, g, p)
    terms = [shrinkage.local_sums(d, s, slab=how["slab"]) for d, s in zip(each["deviation"], each["lambda_sq"])]
    sums = {"sums": source.array(sum(terms)), "n_clients": m}
    return case(shrinkage.global_sweep_sums, sums | state_of_server(source, c, g, p) | how | SERVER)
