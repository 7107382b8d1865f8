"""Describes the hyperparameter that a SIGMA prior is trained over: its range, its prior there, and its form as input of the
networks.

phi has one coordinate (a CAR parameter in [0, 1), or a lengthscale). Training draws it over [lo, hi]; inference must stay in that
range, for a network says nothing outside of the range that it was trained on (docs/spec/sigma.md, sections 3, 4 and 10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit, ndtr, ndtri

from ...arrays import Array

Transform = Literal["identity", "unit", "log-unit", "log-rest"]
Name = Literal["phi", "lengthscale", "rho", "none"]
SHARES = ("phi", "rho")  # in [0, 1)

WIDTH = 8.5  # standard deviations of a logit-normal that quadrature covers: 2e-17 lies beyond


@dataclass(frozen=True)
class Hyperprior:
    """Is the prior of phi in inference, truncated to the training range."""

    kind: Literal["uniform", "logit-normal"] = "uniform"  # "uniform", or "logit-normal": logit phi ~ N(mean, variance)
    # mean, variance: of logit phi. `variance` is a variance: the paper's N(0, 2) is variance = 2.
    mean: float = 0.0
    variance: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "logit-normal"):
            raise ValueError(f"Hyperprior: kind is {self.kind!r}; wanted 'uniform' or 'logit-normal'")
        if not (math.isfinite(self.mean) and 0 < self.variance < math.inf):
            raise ValueError(f"Hyperprior: mean {self.mean:g}, variance {self.variance:g}; wanted finite, variance > 0")


@dataclass(frozen=True)
class Condition:
    """Describes phi, on which the networks are conditioned."""

    name: Name  # "phi", "lengthscale", "rho" of BYM2 as a whole, or "none" for a prior without (BYM2's u* alone: phi is 0)
    # lo, hi: the training range; both 0 for "none"
    lo: float
    hi: float
    # the networks' input: "identity" phi itself, "unit" 2 (phi - lo)/(hi - lo) - 1, "log-unit" the same of log phi, "log-rest"
    # the same of -log(1 - phi), for a CAR parameter near 1
    transform: Transform = "identity"
    hyperprior: Hyperprior = Hyperprior()  # of phi in inference
    fixed: float | None = None  # the one value that a job uses instead of a prior; inside the range

    def __post_init__(self) -> None:
        if self.fixed is not None:
            self.check(np.array([self.fixed]))
        if self.name not in get_args(Name) or self.transform not in get_args(Transform):
            raise ValueError(f"Condition: name {self.name!r}, transform {self.transform!r} are not both known")
        if self.name == "none":
            if (self.lo, self.hi, self.transform) != (0.0, 0.0, "identity"):
                raise ValueError("Condition 'none': lo and hi are 0 and the transform is 'identity'")
            return
        if not (math.isfinite(self.lo) and math.isfinite(self.hi) and 0 <= self.lo < self.hi):
            raise ValueError(f"Condition: training range [{self.lo:g}, {self.hi:g}]; wanted 0 <= lo < hi, finite")
        if self.name in SHARES and self.hi >= 1:
            what = "a CAR prior is proper" if self.name == "phi" else "BYM2 has a density"
            raise ValueError(f"Condition: {self.name} up to {self.hi:g}; {what} below 1 only; 0.99 is the usual end")
        if self.lo == 0 and (self.name == "lengthscale" or self.transform == "log-unit"):
            raise ValueError(f"Condition: {self.name} from 0 with transform {self.transform!r}; wanted lo > 0")
        if self.transform == "log-rest" and self.name not in SHARES:
            raise ValueError(f"Condition: transform 'log-rest' is for phi in (0, 1), not for {self.name}")
        if self.hyperprior.kind == "logit-normal" and self.name not in SHARES:
            raise ValueError(f"Condition: a logit-normal prior is for phi in (0, 1), not for {self.name}")
        if self.hyperprior.kind == "logit-normal" and not self.inside > 1e-6:
            raise ValueError(
                f"Condition: the prior has mass {self.inside:.3g} in the training range "
                f"[{self.lo:g}, {self.hi:g}]; widen one of them"
            )

    @property
    def free(self) -> bool:
        """Whether phi is unknown."""
        return self.name != "none" and self.fixed is None

    @property
    def inside(self) -> float:
        """The mass that the untruncated prior has in the training range."""
        if self.name == "none" or self.hyperprior.kind == "uniform":
            return 1.0
        a, b = self._bounds()
        return float(ndtr(b) - ndtr(a)) if a < 0 else float(ndtr(-a) - ndtr(-b))

    def check(self, phi: Array) -> None:
        """Raises ValueError that names the range if a value of phi is outside of it (rounding apart) or not finite."""
        slack = 1e-9 * max(self.hi, 1e-3)
        wrong = ~((phi >= self.lo - slack) & (phi <= self.hi + slack))
        if wrong.any():
            value = float(phi[wrong].ravel()[0])
            raise ValueError(
                f"{self.name} = {value:g} is outside of [{self.lo:g}, {self.hi:g}], the range of this prior; "
                "keep it inside, or train a prior over a wider range"
            )

    def network(self, phi: Array) -> Array:
        """Returns the networks' input for phi, elementwise."""
        if self.transform == "identity":
            return np.asarray(phi, dtype=np.float64)
        if self.transform == "unit":
            return np.asarray(2 * (phi - self.lo) / (self.hi - self.lo) - 1)
        if self.transform == "log-rest":
            return np.asarray(2 * np.log((1 - phi) / (1 - self.lo)) / self._rest - 1)
        return np.asarray(2 * np.log(phi / self.lo) / math.log(self.hi / self.lo) - 1)

    def along(self, share: Array) -> Array:
        """Returns phi at these shares in [0, 1] of the range of the networks' input, elementwise: equal steps there, not of
        phi."""
        if self.transform == "log-unit":
            return np.asarray(self.lo * (self.hi / self.lo) ** share)
        if self.transform == "log-rest":
            return np.asarray(1 - (1 - self.lo) * ((1 - self.hi) / (1 - self.lo)) ** share)
        return np.asarray(self.lo + (self.hi - self.lo) * share)

    def slope(self, phi: Array) -> Array:
        """Returns the derivative of `network` in phi, elementwise."""
        if self.transform == "identity":
            return np.ones_like(phi, dtype=np.float64)
        if self.transform == "unit":
            return np.full_like(phi, 2 / (self.hi - self.lo), dtype=np.float64)
        if self.transform == "log-rest":
            return np.asarray(-2 / ((1 - phi) * self._rest))
        return np.asarray(2 / (phi * math.log(self.hi / self.lo)))

    def at(self, x: Any) -> tuple[Any, Any]:
        """Returns phi = lo + (hi - lo) sigmoid(x), which can't leave the range, and its derivative, of numbers or arrays.

        If phi is fixed, it returns that value and 0.
        """
        if not self.free:
            return np.full_like(x, self.fixed or 0.0), np.zeros_like(x)
        s = expit(x)
        return self.lo + (self.hi - self.lo) * s, (self.hi - self.lo) * s * (1 - s)

    def log_prior_grad(self, x: float) -> tuple[float, float]:
        """Returns the log-density of x and its derivative, if phi = lo + (hi - lo) sigmoid(x) has the truncated prior.

        The Jacobian is counted once (docs/spec/sigma.md, section 6).
        """
        log_s, log_rest = -_softplus(-x), -_softplus(x)
        slope = math.exp(log_rest) - math.exp(log_s)
        if self.hyperprior.kind == "uniform":
            return log_s + log_rest, slope
        width, phi = math.log(self.hi - self.lo), self.lo + (self.hi - self.lo) * math.exp(log_s)
        log_phi = log_s + width if self.lo == 0 else math.log(phi)
        logit, sd = log_phi - math.log1p(-phi), math.sqrt(self.hyperprior.variance)
        log_change = log_s + log_rest + width - log_phi - math.log1p(-phi)  # of d logit phi / dx
        r, change = (logit - self.hyperprior.mean) / sd, math.exp(log_change)
        value = -0.5 * r * r - 0.5 * math.log(2 * math.pi) - math.log(sd * self.inside) + log_change
        return value, -r / sd * change + slope - (1 - 2 * phi) * change

    def quadrature(self, n: int = 64) -> tuple[Array, Array]:
        """Returns nodes (n,) of phi and weights (n,) that sum to 1: averages over the truncated prior, by Gauss-Legendre.

        A logit-normal is integrated over logit phi, where its density and the variances of a CAR prior are both smooth.
        """
        if not self.free:
            return np.full(1, self.fixed or 0.0), np.ones(1)
        x, w = np.polynomial.legendre.leggauss(n)
        if self.hyperprior.kind == "uniform":
            return self.lo + (self.hi - self.lo) * (x + 1) / 2, w / 2
        a, b = (max(min(end, WIDTH), -WIDTH) for end in self._bounds())
        z = a + (b - a) * (x + 1) / 2
        w = w * np.exp(-(z**2) / 2)
        return self._phi(z), w / w.sum()

    def quantile(self, u: Array) -> Array:
        """Returns phi at these probabilities under the truncated prior, elementwise, which turns uniform numbers into draws."""
        if not self.free:
            return np.full_like(u, self.fixed or 0.0)
        if self.hyperprior.kind == "uniform":
            return np.asarray(self.lo + (self.hi - self.lo) * u)
        a, b = self._bounds()
        z = ndtri(ndtr(a) + u * (ndtr(b) - ndtr(a)))
        return np.asarray(np.clip(self._phi(z), self.lo, self.hi))

    @property
    def _rest(self) -> float:
        return math.log((1 - self.hi) / (1 - self.lo))

    def _bounds(self) -> tuple[float, float]:
        """Returns the training range as standard normal deviates of the logit-normal."""

        def deviate(phi: float) -> float:
            logit = math.log(phi / (1 - phi)) if phi > 0 else -math.inf
            return (logit - self.hyperprior.mean) / math.sqrt(self.hyperprior.variance)

        return deviate(self.lo), deviate(self.hi)

    def _phi(self, z: Array) -> Array:
        return np.asarray(expit(self.hyperprior.mean + math.sqrt(self.hyperprior.variance) * z))


def _softplus(x: float) -> float:
    """Returns log(1 + exp x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
