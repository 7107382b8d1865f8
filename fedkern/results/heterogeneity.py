"""Tests whether sites differ by more than chance: Cochran's Q, from the sites of a partitioned fit with full covariance.

A site N(h, P) is the information of its rows about the coefficients, near the pooled posterior. About a combination that its rows
do not determine (a column that is constant there) it has none: P has no rank in it, and Q no degree of freedom. With shifts
h_k and precisions P_k of the sites

    Q = sum_k h_k' P_k^- h_k - (sum_k h_k)' (sum_k P_k)^- (sum_k h_k),    df = sum_k rank P_k - rank sum_k P_k .

Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

Array = NDArray[np.float64]

ALPHA = 0.01
NOTHING = 1e-8  # of a correlation matrix's largest eigenvalue: what is below is no rank
SHOWN = 5  # coefficients in the note


class Test(NamedTuple):
    """Holds one comparison of sites: Cochran's Q and its degrees of freedom."""

    Q: float
    df: int

    @property
    def p(self) -> float:
        """The probability of a Q at least as large where sites do not differ; 1 where sites determine nothing in common."""
        return float(chdtrc(self.df, max(self.Q, 0.0))) if self.df > 0 else 1.0

    @property
    def i2(self) -> float:
        """The part of the differences between sites that is not chance."""
        return max(0.0, 1 - self.df / self.Q) if self.Q > 0 else 0.0

    @property
    def content(self) -> dict[str, float]:
        """The entry of summary.json."""
        return {"Q": self.Q, "df": self.df, "p": self.p, "I2": self.i2}


@dataclass(frozen=True)
class Heterogeneity:
    """Holds all tests of a fit.

    Attributes
    ----------
    slopes : of all slopes together, each site with its intercept
    intercept : of the intercepts, given common slopes; None without an intercept
    single : name of a slope -> its test, given all other coefficients of the sites
    differ : names of the slopes that differ by Holm's rule
    """

    slopes: Test
    intercept: Test | None
    single: dict[str, Test]
    differ: tuple[str, ...]

    @property
    def content(self) -> dict[str, object]:
        """The entries of summary.json."""
        intercept: dict[str, object] = {} if self.intercept is None else {"intercept": self.intercept.content}
        single = {name: test.content for name, test in self.single.items()}
        return {**intercept, "slopes": self.slopes.content, "coefficients": single, "differ": list(self.differ)}

    def notes(self, remedy_of_intercepts: str, remedy_of_slopes: str) -> Iterator[str]:
        """Yields one note that names the coefficients that differ, and the remedies."""
        said, remedies = list[str](), list[str]()
        if self.intercept is not None and self.intercept.p < ALPHA:
            said.append(f"in their intercepts ({_words(self.intercept)})")
            remedies.append(remedy_of_intercepts)
        if self.slopes.p < ALPHA or self.differ:
            said.append(f"in their slopes ({_words(self.slopes)})")
            remedies.append(remedy_of_slopes)
        if self.differ:
            first = ", ".join(f"{name} ({_words(self.single[name])})" for name in self.differ[:SHOWN])
            more = len(self.differ) - SHOWN
            said.append(f"most in {first}" + (f" and {more} more" if more > 0 else ""))
        if said:
            yield (
                f"sites differ by more than chance {', '.join(said)}: one coefficient for all is no site's, and its interval "
                f"says nothing of how they differ; {'; '.join(remedies)}"
            )


def _words(test: Test) -> str:
    """Says I^2 and p of a test."""
    return f"I^2 {test.i2:.0%}, p {f'= {test.p:.1g}' if test.p > 1e-12 else '< 1e-12'}"


def compare_sites(names: Sequence[str], intercept: bool, h: Array, P: Array, ratio: float = 1.0) -> Heterogeneity | None:
    """Tests sites against each other.

    Parameters
    ----------
    names : of the d coefficients, that of an intercept first
    intercept : whether the first is one
    h, P : (M, d) and (M, d, d) of each site
    ratio : by which responses vary more than the model says; Q is divided by it

    Returns
    -------
    the tests; None with fewer than two sites, or where one of them is no likelihood
    """
    scale = np.sqrt(np.einsum("kii->i", P))
    if len(h) < 2 or not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    h, P = h / scale, P / np.outer(scale, scale)  # as if all columns had the same information
    try:
        # Slopes are tested with an intercept for each site; the rest of Q is that of the intercepts.
        if intercept:
            every, slopes = _q(h, P), _q(*_own_intercepts(h, P))
            own = Test((every.Q - slopes.Q) / ratio, every.df - slopes.df)
        else:
            slopes, own = _q(h, P), None
        single = {name: Test(test.Q / ratio, test.df) for name, test in _single(names, intercept, h, P)}
    except np.linalg.LinAlgError:
        return None
    return Heterogeneity(Test(slopes.Q / ratio, slopes.df), own, single, _holm(single))


def _own_intercepts(h: Array, P: Array) -> tuple[Array, Array]:
    """Returns the sites' information about the slopes, whatever their intercepts are."""
    there = P[:, 0, 0] > 0
    by = np.where(there[:, None], P[:, 0, 1:] / np.where(there, P[:, 0, 0], 1.0)[:, None], 0.0)
    return h[:, 1:] - by * h[:, :1], P[:, 1:, 1:] - by[:, :, None] * P[:, :1, 1:]


def generalised_inverse(P: Array) -> tuple[Array, int, Array]:
    """Returns a generalised inverse, the rank, and (d,) whether a coefficient alone is determined.

    Raises
    ------
    LinAlgError
        An eigenvalue is below 0.
    """
    own = np.diag(P)
    if own.min(initial=0.0) < -(NOTHING**0.5) * own.max(initial=0.0):
        raise np.linalg.LinAlgError("no likelihood")
    size = np.sqrt(np.maximum(own, 0.0))
    there = size > NOTHING**0.5 * max(size.max(initial=0.0), 1e-300)
    inverse = np.zeros_like(P)
    determined = np.zeros(len(P), bool)
    if not there.any():
        return inverse, 0, determined
    size = size[there]
    values, vectors = np.linalg.eigh(P[np.ix_(there, there)] / np.outer(size, size))
    if values[0] < -(NOTHING**0.5) * values[-1]:
        raise np.linalg.LinAlgError("no likelihood")
    kept = values > NOTHING * values[-1]
    V = vectors[:, kept]
    inverse[np.ix_(there, there)] = (V / values[kept]) @ V.T / np.outer(size, size)
    determined[there] = (V**2).sum(axis=1) > 1 - 1e-6
    return inverse, int(kept.sum()), determined


def _q(h: Array, P: Array) -> Test:
    """Tests all coefficients together."""
    parts = [generalised_inverse(one) for one in P]
    inverse, rank, _ = generalised_inverse(P.sum(axis=0))
    total = h.sum(axis=0)
    Q = sum(float(own @ part[0] @ own) for own, part in zip(h, parts)) - float(total @ inverse @ total)
    return Test(Q, sum(part[1] for part in parts) - rank)


def _single(names: Sequence[str], intercept: bool, h: Array, P: Array) -> Iterator[tuple[str, Test]]:
    """Yields the test of each slope that two sites or more determine."""
    parts = [generalised_inverse(one) for one in P]
    means = np.array([part[0] @ own for own, part in zip(h, parts)])
    variances = np.array([np.diag(part[0]) for part in parts])
    for j in range(int(intercept), len(names)):
        told = np.array([part[2][j] for part in parts])
        if told.sum() > 1:
            w, mean = 1 / variances[told, j], means[told, j]
            yield names[j], Test(float((w * (mean - (w * mean).sum() / w.sum()) ** 2).sum()), int(told.sum()) - 1)


def _holm(single: dict[str, Test]) -> tuple[str, ...]:
    """Returns the names of those that differ, the clearest first (Holm, 1979)."""
    names = list[str]()
    for i, name in enumerate(sorted(single, key=lambda name: single[name].p)):
        if single[name].p > ALPHA / (len(single) - i):
            break
        names.append(name)
    return tuple(names)
