"""What the server of a sparse model pays for a round, and Polya-Gamma numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern.kernels import rng, shrinkage

from . import common, peers

# clients, chains, regressions, coefficients: an 11-covariate regression of four sites, the networks of 11 and of 217 proteins
SHAPES = {"regression": (4, 4, 1, 11), "network of 11": (7, 4, 11, 11), "network of 217": (7, 1, 217, 217)}
Call = Callable[[], Any]


def state(shape: str) -> dict[str, Any]:
    m, c, g, p = SHAPES[shape]
    random = np.random.default_rng(0)
    indicators = np.tile(np.arange(p), (g, 1))
    if g > 1:
        np.fill_diagonal(indicators, -2)
    return {
        "deviation": 0.1 * random.standard_normal((m, c, g, p)),
        "lambda_sq": np.exp(random.standard_normal((m, c, g, p))),
        "indicators": indicators,
        "theta": 0.1 * random.standard_normal((c, g, p)),
        "tau_sq": np.full((c, g, p), 0.1),
        "gamma": np.zeros((c, g, p)),
        "eta": np.ones((c, g, p)),
        "rho": np.full((c, g), 0.2),
    }


def sweep(shape: str, **options: Any) -> Call:
    arguments = state(shape)
    return lambda: shrinkage.global_sweep(**arguments, seed=1, **options)


def bound_sweep(shape: str, **options: Any) -> Call:
    """The same as a job does it: what does not change was checked once."""
    arguments = state(shape)
    call = shrinkage.bind_global_sweep(**arguments, seed=1, **options)
    now = [value for name, value in arguments.items() if name != "indicators"]
    return lambda: call(*now, 0)


def by_numpy(shape: str) -> Call:
    """One pass over all chains and regressions at once; tau by parameter expansion, which needs no rejection."""
    s, random = state(shape), np.random.default_rng(0)
    m, p = len(s["deviation"]), s["theta"].shape[-1]

    def call() -> Any:
        precision = 1 / s["lambda_sq"]
        S0, S1 = precision.sum(axis=0), (s["deviation"] * precision).sum(axis=0)
        S2 = (s["deviation"] ** 2 * precision).sum(axis=0)
        xi = (1 + 1 / s["tau_sq"]) / random.standard_exponential(S0.shape)
        tau_sq = (1 / xi + S2 / 2) / random.standard_gamma((m + 1) / 2, S0.shape)
        W, mhat = S0 / tau_sq, s["theta"] + S1 / S0
        wide, narrow = s["eta"] + 1 / W, 0.01 * s["eta"] + 1 / W
        rho = s["rho"][..., None]
        logit = np.log(rho / (1 - rho)) + 0.5 * (np.log(narrow / wide) + mhat**2 * (1 / narrow - 1 / wide))
        gamma = random.logistic(size=S0.shape) < logit
        v = np.where(gamma, s["eta"], 0.01 * s["eta"])
        theta = mhat * (W * v / (1 + W * v)) + np.sqrt(v / (1 + W * v)) * random.standard_normal(S0.shape)
        rate = 1 + 0.5 * (theta**2 * s["eta"] / v).sum(axis=-1)
        eta = rate / random.standard_gamma(2 + p / 2, rate.shape)
        included = gamma.sum(axis=-1)
        rho = random.beta(1 + included, 1 + p - included)
        return theta, tau_sq, gamma, eta, rho, s["deviation"] + (s["theta"] - theta)

    return call


def by_numba(shape: str) -> Call:
    """The same pass by hand in Numba; each call begins with the same state, as ours does."""
    first = {name: value for name, value in state(shape).items() if name != "indicators"}
    own = {name: value.copy() for name, value in first.items()}

    def call() -> Any:
        for name, value in own.items():
            value[:] = first[name]
        peers.global_sweep()(**own)
        return own

    return call


PEERS: dict[str, Callable[[str], Call]] = {
    "fedkern": sweep,
    "fedkern, bound": bound_sweep,
    "fedkern, 5 passes": lambda shape: sweep(shape, n_passes=5),
    "fedkern, 5 passes, 2 threads": lambda shape: sweep(shape, n_passes=5, n_threads=2),
    "numba": by_numba,
    "numpy": by_numpy,
}


class GlobalSweep(common.Timed):
    """Seconds of the server in a round."""

    params = (list(PEERS), list(SHAPES))
    param_names = ("peer", "shape")

    def make(self, peer: str, shape: str) -> common.Call:
        return PEERS[peer](shape)

    def time_round(self, peer: str, shape: str) -> None:
        self.call()


class GlobalSweepRatios:
    params = (list(SHAPES),)
    param_names = ("shape",)
    unit = "times as fast"

    def track_numpy(self, shape: str) -> float:
        return common.ratio(PEERS["fedkern"](shape), PEERS["numpy"](shape))

    def track_numba(self, shape: str) -> float:
        return common.ratio(PEERS["fedkern"](shape), PEERS["numba"](shape))

    def track_numba_bound(self, shape: str) -> float:
        return common.ratio(PEERS["fedkern, bound"](shape), PEERS["numba"](shape))

    def track_numba_expanded(self, shape: str) -> float:
        """Like with like: the peer's scales are the expanded ones, too."""
        return common.ratio(bound_sweep(shape, scales="expanded"), PEERS["numba"](shape))


class Moves(common.Brief):
    """Seconds of a whole interweaving move, one chain: a client's terms, and the server's draw."""

    params = ([11, 217],)
    param_names = ("p",)

    def setup(self, p: int) -> None:
        random = np.random.default_rng(0)
        self.R, self.q = np.linalg.qr(random.standard_normal((2 * p, p)), mode="r"), random.standard_normal((1, p))
        self.block = np.arange(2 * p)
        self.state = {"theta": 0.1 * random.standard_normal((1, p)), "tau_sq": np.full((1, p), 0.1)}
        self.deviation = 0.1 * random.standard_normal((1, p))
        self.terms = self.time_terms(p)
        self.time_draw(p)

    def time_terms(self, p: int) -> Any:
        return shrinkage.move_terms(self.R, self.q, self.block, **self.state, deviation=self.deviation, sigma_sq=np.ones(1))

    def time_draw(self, p: int) -> None:
        shrinkage.move(*self.terms, self.block, **self.state, gamma=np.zeros((1, p)), eta=np.ones((1, p)), seed=1)


TILTS = {"0": 0.0, "2": 2.0, "mixed": None}


class PolyaGamma(common.Brief):
    """Seconds for 100,000 numbers."""

    params = (["cpp", "numba", "polyagamma"], list(TILTS))
    param_names = ("peer", "z")

    def setup(self, peer: str, tilt: str) -> None:
        z = 3 * np.random.default_rng(0).standard_normal(100_000) if TILTS[tilt] is None else np.full(100_000, TILTS[tilt])
        if peer == "polyagamma":
            package = common.need("polyagamma")
            self.call = lambda: package.random_polyagamma(z=z, method="devroye")
        else:
            self.call = lambda: rng.polya_gamma(z, key=1, backend=peer)
        self.call()

    def time_100_000_numbers(self, peer: str, tilt: str) -> None:
        self.call()


class RowSweeps(common.Brief):
    """Seconds for ten sweeps of one site, n = 150, p = 11, one chain."""

    def setup(self) -> None:
        random, (n, p) = np.random.default_rng(0), (150, 11)
        self.X = random.standard_normal((n, p))
        one = {
            name: np.full((1, p), value)
            for name, value in (("theta", 0.1), ("tau_sq", 0.1), ("deviation", 0.1), ("lambda_sq", 1.0))
        }
        self.state = one | {"alpha": np.zeros(1)}
        self.y = random.integers(0, 2, n).astype(float)
        gaps = random.random((n, p)) < 0.1
        self.gaps = np.where(gaps, np.nan, self.X)
        self.time_logistic()
        self.time_imputed()

    def time_logistic(self) -> None:
        shrinkage.logistic_sweeps(self.X, self.y, **self.state, seed=1, n_sweeps=10)

    def time_imputed(self) -> None:
        shrinkage.imputed_sweeps(
            self.gaps, self.y, np.eye(11), **self.state, sigma_sq=np.ones(1), completed=self.X[None], seed=1, n_sweeps=10
        )
