"""Tests whether sites differ by more than chance: Cochran's Q, from the sites of a partitioned fit with full covariance.

A site N(h, P) is the information of its rows about the coefficients, near the pooled posterior. About a combination that its rows
do not determine (a column that is constant there) it has none: P has no rank in it, and Q no degree of freedom. With shifts
h_k and precisions P_k of the sites

    Q = sum_k h_k' P_k^- h_k - (sum_k h_k)' (sum_k P_k)^- (sum_k h_k),    df = sum_k rank P_k - rank sum_k P_k .

By chance Q is chi-squared where the model is right. Of real data it is not quite: errors vary more where a column is large, a
long tail of a column has few rows, groups of rows have slopes of their own, and Q is up to twice as large by lot. So what is
said of sites asks that they differ by more than chance even if rows say half as much as the model thinks (`DOUBLE`).

Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ..arrays import Array
from ..finding import Finding

ALPHA = 0.01
SAID = 0.001  # of all that a note looks at: slopes together, the intercept, and each slope
DOUBLE = 2.0  # times the variance that the model gives rows, of which differences may be chance
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
    def sure(self) -> float:
        """The same where rows vary twice as much as the model says, of the three kinds of tests that are made."""
        return min(1.0, 3 * Test(self.Q / DOUBLE, self.df).p)

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
    """Holds all tests of a fit."""

    slopes: Test  # of all slopes together, each site with its intercept
    intercept: Test | None  # of the intercepts, given common slopes; None without an intercept
    single: dict[str, Test]  # name of a slope -> its test, given all other coefficients of the sites
    differ: tuple[str, ...]  # names of the slopes that differ by Holm's rule

    @property
    def content(self) -> dict[str, object]:
        """The entries of summary.json."""
        intercept: dict[str, object] = {} if self.intercept is None else {"intercept": self.intercept.content}
        single = {name: test.content for name, test in self.single.items()}
        return {**intercept, "slopes": self.slopes.content, "coefficients": single, "differ": list(self.differ)}

    def notes(self, remedy_of_intercepts: str, free: Collection[str] = ()) -> Iterator[str]:
        """Yields one note that names the coefficients that differ. `remedy_of_intercepts`: of the catalogue; `free`: the
        coefficients that the model could let differ between clients."""
        where, remedies, slope = list[str](), list[str](), ""
        if self.intercept is not None and self.intercept.sure < SAID:
            where.append(f"in their intercepts ({_words(self.intercept)})")
            remedies.append(remedy_of_intercepts)
        if self.slopes.sure < SAID or self.differ:
            where.append(f"in their slopes ({_words(self.slopes)})")
            # Of slopes that differ together, and none by itself, the likeliest one.
            of_all = sorted(self.differ or self.single, key=lambda name: self.single[name].p)
            slope = next((name for name in of_all if name in free), "")
            remedies.append("client-slopes" if slope else "sites-apart")
        if self.differ:
            first = ", ".join(f"{name} ({_words(self.single[name])})" for name in self.differ[:SHOWN])
            more = len(self.differ) - SHOWN
            others = f" and {more} more" if more > 0 else ""
            where.append(f"most in {first}{others}")
        if where:
            yield Finding.of("sites-differ", of=where, remedies=remedies, slope=slope)


REVERSED = 1e-4  # p of the slopes, divided by the number of sites, from which on a site is looked for that is the other way round
LEFT = 0.1  # of Q of the slopes, which may be left where that site's have the other sign: sites differ, too
LEFT_OF_OTHERS = 0.25  # the same of shares and of ordered levels, whose curvature where slopes are 0 is not that of their site
LESS = 0.25  # of Q of the intercepts, which is left at most where these say that a site is the other way round
OPPOSED = 3.0  # standard errors by which a slope is another one where two slopes of different signs say it
FAR, MIRRORED = (
    3.0,
    1.0,
)  # log odds of the outcome: at a site that seems turned they are so far from the others', and so near to minus
CHANCE, BEYOND = 1.5, 3.5  # standard errors within which a slope is 0, and beyond which it is another one
BETTER = 4.0  # by which Q of the slopes is less where that site's have the other sign


def find_reversed(chance: float, g: Array, P: Array) -> tuple[int, ...]:
    """Finds the site whose outcome of 0 and 1 seems to be coded the other way round, from sums where all slopes are 0.

    There every row has one chance, so that a site's gradient and curvature tell its number of rows, how often its outcome is 1,
    and means and covariances of outcome and columns. Slopes from these (covariances by the variance of the outcome) have the
    right sign however often the outcome is 1. Those from the curvature at the mode of all sites do not: at a site with twice as
    many events as that mode foresees they may have the other one.

    Of two sites either may be, and both are returned; of more than two one, or none. All of these hold:

    * Slopes contradict each other. Sites that differ in how often the event is have one slope.
    * If this site's have the other sign the slopes of all sites agree, but for chance or a small part of the contradiction.
    * Something else says so, too: then the sites differ far less in how often the event is, or two slopes at least are opposed,
      each beyond doubt, and the sites do not differ far more in that. One slope may well be another one at one site.

    Or the outcome is about as often 1 at this site as it is 0 at all others together, and rare on one side (`mirrored`), and
    slopes agree better if this site's have the other sign: few events tell little of slopes. `chance`: of the outcome 1, where
    slopes are 0, by the intercept there; `g`, `P`: (M, d) and (M, d, d) gradient and minus second derivatives of each site's
    log-likelihood there, an intercept's first.
    """
    try:
        informed, h, of_slopes = _informed(g, P, 1)
        if len(informed) < 2:
            return ()
        each, (n, seen) = chance * (1 - chance), _rates(chance, g[informed], P[informed])
        information = (n * seen * (1 - seen))[:, np.newaxis, np.newaxis]
        intercepts = np.log(seen / (1 - seen))[:, np.newaxis] * information[:, 0], information
        slopes = h, of_slopes * (seen * (1 - seen) / each)[:, np.newaxis, np.newaxis]
        found = _reversed(intercepts, slopes)
        if not found:
            rates = mirrored_rates(n, seen)
            found = tuple(k for k in rates if _q(*slopes).Q - _q(_turned(slopes[0], k), slopes[1]).Q > BETTER)
    except np.linalg.LinAlgError:
        return ()
    return _named(found, informed)


def find_opposed(g: Array, P: Array, n_own: int = 1, left: float = LEFT) -> tuple[int, ...]:
    """Finds the same site by slopes alone, of which two at least have to be opposed.

    That is in a model with effects of groups or clients, which hide how often the outcome is, and with responses that are no
    outcome of 0 and 1: levels of a scale that runs the other way round at one site, shares of the complement.

    Parameters
    ----------
    g, P : of the coefficients, an intercept's first, where all slopes are 0 and effects are integrated out
    n_own : how many of them are each site's own: the intercept, or all thresholds of ordered levels; 0: none is among them
    left : of Q of the slopes, which may be left where that site's have the other sign
    """
    try:
        informed, h, of_slopes = _informed(g, P, n_own)
        found = _reversed(None, (h, of_slopes), left) if len(informed) > 1 else ()
    except np.linalg.LinAlgError:
        return ()
    return _named(found, informed)


def mirrored(chance: float, g: Array, P: Array) -> tuple[int, ...]:
    """Finds the site where the outcome is about as often 1 as it is 0 at all others together, and rare on one side.

    Of two sites both are returned. Hospitals may differ so much: that alone is worth a note. Arguments are as in `find_reversed`.
    """
    with_rows = np.flatnonzero(P[:, 0, 0] > 0)
    if len(with_rows) < 2 or not 0 < chance < 1:
        return ()
    return tuple(with_rows[list(mirrored_rates(*_rates(chance, g[with_rows], P[with_rows])))].tolist())


def mirrored_rates(n: Array, seen: Array, far: float = FAR) -> tuple[int, ...]:
    """Finds the same site from numbers of rows (M,), and how often the outcome is 1 there (neither 0 nor 1)."""
    odds, other, error = _odds(n, seen)
    apart = np.abs(odds - other) > np.maximum(far, OPPOSED * error)
    found = np.flatnonzero(apart & (np.abs(odds + other) < MIRRORED + 2 * error)).tolist()
    return _named(found, np.arange(len(n)))


def _odds(n: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Returns (M,) log odds of the outcome at each site and at all others together, and standard errors of their difference."""
    rest = (n.sum() - n, (n * seen).sum() - n * seen)
    theirs = (rest[1] + 0.5) / (rest[0] + 1)
    odds, other = (np.log(p / (1 - p)) for p in (seen, theirs))
    return odds, other, np.sqrt(1 / (n * seen * (1 - seen)) + 1 / ((rest[0] + 1) * theirs * (1 - theirs)))


def find_reversed_events(n: Array, seen: Array, h: Array, P: Array, n_own: int, right: int = 0) -> tuple[int, ...]:
    """Finds the site of survival times where an event means what its absence means elsewhere; none or one.

    Rows without event were seen longest at every site, so that slopes do not turn: the times at which rows are lost know nothing
    of their columns, or little. So all of these hold of one site alone:

    * Its share of events is another than that of all others together, and about that of their rows without event.
    * Its rows at higher risk by the slopes of all others do not have the event earlier: the slope on that risk, which is 1 where
      slopes are the same, is 0 or below but for chance, and the difference is beyond doubt. What the noise in the others' slopes
      takes from it (a part d / Q of d coefficients whose test against 0 is Q) is no difference.

    Parameters
    ----------
    n, seen : (M,) numbers of rows, and shares of events (neither 0 nor 1)
    h, P : (M, d) and (M, d, d) of each site
    n_own : how many of the first coefficients are each site's own, as an intercept
    right : how many of the first sites are known to be right, and not looked at
    """
    odds, other, error = _odds(n, seen)
    try:
        h, P = _own_numbers(h, P, n_own)
    except np.linalg.LinAlgError:
        return ()
    apart = (np.abs(odds - other) > OPPOSED * error) & (np.abs(odds + other) < MIRRORED + 2 * error)
    found = list[int]()
    for k in (right + np.flatnonzero(apart[right:])).tolist():
        rest = np.arange(len(n)) != k
        total, information = h[rest].sum(axis=0), P[rest].sum(axis=0)
        try:
            b = generalised_inverse(information)[0] @ total
        except np.linalg.LinAlgError:
            return ()
        theirs, alone = float(b @ information @ b), float(b @ P[k] @ b)
        expected = 1 - len(b) / theirs if theirs > len(b) else 0.0
        if not alone > 0:
            continue
        slope, error_of_0, error_of_both = float(b @ h[k]) / alone, alone**-0.5, (1 / alone + 1 / theirs) ** 0.5
        if slope < CHANCE * error_of_0 and expected - slope > BEYOND * error_of_both:
            found.append(k)
    return tuple(found) if len(found) == 1 else ()


def _rates(chance: float, g: Array, P: Array) -> tuple[Array, Array]:
    """Returns (M,) each site's number of rows, and how often its outcome is 1: not 0 or 1, whose logit is none.

    Where the sums are approximate a site without an event may seem to have less than none.
    """
    n = P[:, 0, 0] / (chance * (1 - chance))
    return n, (np.clip(n * chance + g[:, 0], 0.0, n) + 0.5) / (n + 1)


def _scaled(h: Array, P: Array) -> tuple[Array, Array]:
    """Returns the sites' sums as if all columns had the same information; a column of which no site knows keeps its 0. Raises
    FloatingPointError: a sum is no number: then sites are not compared, and nobody may read that they agree. Raises LinAlgError:
    the information of all sites is below 0."""
    diagonal = np.einsum("kii->i", P)
    if not (np.isfinite(h).all() and np.isfinite(P).all()):
        raise FloatingPointError("sums of sites that are compared are no numbers")
    if (diagonal < 0).any():
        raise np.linalg.LinAlgError("no likelihood")
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return h / scale, P / np.outer(scale, scale)


def _informed(g: Array, P: Array, n_own: int) -> tuple[NDArray[np.int64], Array, Array]:
    """Returns which sites know of slopes, and what these know: all others would be one more site that does not contradict."""
    h, P = _own_numbers(*_scaled(g, P), n_own)
    known = np.einsum("kii->k", P)
    informed = np.flatnonzero(known > NOTHING * known.max(initial=0.0))
    return informed, h[informed], P[informed]


def _named(found: Sequence[int], sites: NDArray[np.int64]) -> tuple[int, ...]:
    """Returns those of the compared sites that were found: of two either may be, of more than two one is, or none."""
    n_found = 2 if len(sites) == 2 else 1
    return tuple(sites[list(found)].tolist()) if len(found) == n_found else ()


def _turned(h: Array, k: int) -> Array:
    """Returns vectors (M, d) of which one site's has the other sign."""
    return np.where(np.arange(len(h)) == k, -1.0, 1.0)[:, np.newaxis] * h


def _reversed(intercepts: tuple[Array, Array] | None, slopes: tuple[Array, Array], most: float = LEFT) -> tuple[int, ...]:
    """Returns the sites of which all that is true; both arguments: (M, d) and (M, d, d) of sites. No intercepts: not known."""
    sites = np.arange(len(slopes[0]))
    whole = _q(*slopes)
    if whole.p > REVERSED / len(sites):
        return ()
    found = list[int]()
    for k in sites.tolist():
        left = _q(_turned(slopes[0], k), slopes[1])
        if left.p < ALPHA and left.Q > most * whole.Q:
            continue
        if intercepts is not None:
            of_intercepts, left_of_intercepts = _q(*intercepts), _q(_turned(intercepts[0], k), intercepts[1])
            if left_of_intercepts.p < ALPHA and LESS * left_of_intercepts.Q > of_intercepts.Q:
                continue
            if of_intercepts.p < ALPHA and left_of_intercepts.Q < LESS * of_intercepts.Q:
                found.append(k)
                continue
        if _opposed(*slopes, k) > 1:
            found.append(k)
    return tuple(found)


def _opposed(h: Array, P: Array, k: int) -> int:
    """Returns how many slopes have another sign at this site than at all others, each by itself beyond doubt."""
    others = np.arange(len(h)) != k
    parts = [generalised_inverse(precision) for precision in (P[k], P[others].sum(axis=0))]
    slope, other = parts[0][0] @ h[k], parts[1][0] @ h[others].sum(axis=0)
    errors = np.diag(parts[0][0]) + np.diag(parts[1][0])
    determined = np.logical_and(parts[0][2], parts[1][2])
    return int((determined & (slope * other < 0) & (np.abs(slope - other) > OPPOSED * np.sqrt(errors))).sum())


def _words(test: Test) -> str:
    """Says I^2 and p of a test."""
    p = f"= {test.p:.1g}" if test.p > 1e-12 else "< 1e-12"
    return f"I^2 {test.i2:.0%}, p {p}"


def compare_sites(names: Sequence[str], intercept: bool, h: Array, P: Array) -> Heterogeneity | None:
    """Tests sites against each other.

    Parameters
    ----------
    names : of the d coefficients, that of an intercept first
    intercept : whether the first is one
    h, P : (M, d) and (M, d, d) of each site

    Returns
    -------
    the tests; None with fewer than two sites, or where one of them is no likelihood
    """
    if len(h) < 2:
        return None
    try:
        h, P = _scaled(h, P)
        # Slopes are tested with an intercept for each site; the rest of Q is that of the intercepts.
        if intercept:
            of_all, slopes = _q(h, P), _q(*_own_intercepts(h, P))
            of_intercepts = Test(of_all.Q - slopes.Q, of_all.df - slopes.df)
        else:
            slopes, of_intercepts = _q(h, P), None
        single = dict(_single(names, intercept, h, P))
    except np.linalg.LinAlgError:
        return None
    return Heterogeneity(slopes, of_intercepts, single, _holm(single))


def _own_intercepts(h: Array, P: Array) -> tuple[Array, Array]:
    """Returns the sites' information about the slopes, whatever their intercepts are."""
    known = P[:, 0, 0] > 0
    by = np.where(known[:, None], P[:, 0, 1:] / np.where(known, P[:, 0, 0], 1.0)[:, None], 0.0)
    return h[:, 1:] - by * h[:, :1], P[:, 1:, 1:] - by[:, :, None] * P[:, :1, 1:]


def _own_numbers(h: Array, P: Array, n_own: int) -> tuple[Array, Array]:
    """Returns the sites' information about what is not among the first numbers, whatever each site's own of these are."""
    if n_own == 0:
        return h, P
    if n_own == 1:
        return _own_intercepts(h, P)
    left = [generalised_inverse(P_k[:n_own, :n_own])[0] @ P_k[:n_own, n_own:] for P_k in P]
    slopes = np.stack([h_k[n_own:] - by.T @ h_k[:n_own] for h_k, by in zip(h, left)])
    return slopes, np.stack([P_k[n_own:, n_own:] - by.T @ P_k[:n_own, n_own:] for P_k, by in zip(P, left)])


def generalised_inverse(P: Array) -> tuple[Array, int, Array]:
    """Returns a generalised inverse, the rank, and (d,) whether a coefficient alone is determined. Raises LinAlgError: an
    eigenvalue is below 0."""
    diagonal = np.diag(P)
    if diagonal.min(initial=0.0) < -(NOTHING**0.5) * diagonal.max(initial=0.0):
        raise np.linalg.LinAlgError("no likelihood")
    size = np.sqrt(np.maximum(diagonal, 0.0))
    informed = size > NOTHING**0.5 * max(size.max(initial=0.0), 1e-300)
    inverse = np.zeros_like(P)
    determined = np.zeros(len(P), bool)
    if not informed.any():
        return inverse, 0, determined
    size = size[informed]
    values, vectors = np.linalg.eigh(P[np.ix_(informed, informed)] / np.outer(size, size))
    if values[0] < -(NOTHING**0.5) * values[-1]:
        raise np.linalg.LinAlgError("no likelihood")
    kept = values > NOTHING * values[-1]
    V = vectors[:, kept]
    inverse[np.ix_(informed, informed)] = (V / values[kept]) @ V.T / np.outer(size, size)
    determined[informed] = (V**2).sum(axis=1) > 1 - 1e-6
    return inverse, int(kept.sum()), determined


def _q(h: Array, P: Array) -> Test:
    """Tests all coefficients together."""
    parts = [generalised_inverse(P_k) for P_k in P]
    inverse, rank, _ = generalised_inverse(P.sum(axis=0))
    total = h.sum(axis=0)
    Q = sum(float(h_k @ part[0] @ h_k) for h_k, part in zip(h, parts)) - float(total @ inverse @ total)
    return Test(Q, sum(part[1] for part in parts) - rank)


def _single(names: Sequence[str], intercept: bool, h: Array, P: Array) -> Iterator[tuple[str, Test]]:
    """Yields the test of each slope that two sites or more determine."""
    parts = [generalised_inverse(P_k) for P_k in P]
    means = np.array([part[0] @ h_k for h_k, part in zip(h, parts)])
    variances = np.array([np.diag(part[0]) for part in parts])
    for j in range(int(intercept), len(names)):
        determined = np.array([part[2][j] for part in parts])
        if determined.sum() > 1:
            w, mean = 1 / variances[determined, j], means[determined, j]
            yield names[j], Test(float((w * (mean - (w * mean).sum() / w.sum()) ** 2).sum()), int(determined.sum()) - 1)


def _holm(single: dict[str, Test]) -> tuple[str, ...]:
    """Returns the names of those that differ, the clearest first (Holm, 1979)."""
    names = list[str]()
    for i, name in enumerate(sorted(single, key=lambda name: single[name].sure)):
        if single[name].sure > SAID / (len(single) - i):
            break
        names.append(name)
    return tuple(names)
