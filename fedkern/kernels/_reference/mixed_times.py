"""Rows of mixed models that are times: events, censored on the right, or in an interval."""

import numpy as np

from .._rows import MOST_ETA
from .mixed_families import Family, log_1m_exp


class Weibull(Family):
    """w = log k; the cumulative hazard is t^k e^eta. From entry to y, and from y to upper, at eta = 0, it is a row's `clock`."""

    counted = True

    def __init__(self, *rows):
        super().__init__(*rows)
        self.upper = self.y if self.upper is None else self.upper
        with np.errstate(invalid="ignore"):
            self.event, self.within = self.y == self.upper, (self.y < self.upper) & np.isfinite(self.upper)
        self.until = np.where(self.within, self.upper, np.nan)
        self.entry = np.zeros(self.n) if self.entry is None else self.entry
        self.begun, self.late = self.y > self.entry, self.entry > 0
        with np.errstate(all="ignore"):
            grown = (self.y - self.entry) / self.entry  # where it is small, a difference of logarithms cancels
            since = np.where(grown < 1, np.log1p(grown), np.log(self.y) - np.log(self.entry))
        self.since = np.where(self.begun & self.late, since, np.inf)  # log(y / entry)

    def good(self, m):
        seen = (self.entry >= 0) & (self.y >= self.entry)
        return np.isfinite(self.y) & seen & (self.upper >= self.y) & ~(self.event & ~self.begun)

    def clock(self, w):
        """log A and log D (S, n): the cumulative hazards from entry to y, y^k (1 - (entry / y)^k), and from y to upper."""
        k = self.k(w)
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.log(self.y), np.log(self.until)
        early = np.where(self.y > 0, k * log_y, -np.inf)
        ratio = k * (log_upper - np.where(self.y > 0, log_y, log_upper))
        more = np.where(self.y > 0, early + np.log(np.expm1(np.minimum(ratio, 700.0))), k * log_upper)
        seen = np.where(self.begun, early + self.log_share(k), -np.inf)
        return seen, np.where(ratio > 700, k * log_upper, more)

    def log_share(self, k):
        """log(1 - (entry / y)^k)."""
        return np.log(-np.expm1(-k * self.since))

    def clock_slopes(self, w):
        """A_j / A, A_jk / A, and those of D, of one point: (m, n), (m, m, n)."""
        k = np.exp(w[0])
        with np.errstate(divide="ignore"):
            log_y, log_upper = np.where(self.y > 0, np.log(self.y), 0.0), np.log(self.until)
        rest = np.where(self.begun & self.late, 1 / np.expm1(np.minimum(k * self.since, 700.0)), 0.0)  # entry^k / A
        gone = np.where(self.late & self.begun, self.since, 0.0)
        of_a = np.where(self.begun, k * (log_y + rest * gone), 0.0)
        of_aa = np.where(gone > 0, of_a + k**2 * (log_y**2 + rest * gone * (2 * log_y - gone)), of_a + of_a**2)
        share = np.where(self.y > 0, 1 / np.expm1(np.minimum(k * (log_upper - log_y), 700.0)), 0.0)  # A / D
        of_d = k * (log_upper + share * (log_upper - log_y))
        of_dd = of_d + k**2 * (log_upper**2 + share * (log_upper**2 - log_y**2))
        return of_a[None], of_aa[None, None], of_d[None], of_dd[None, None]

    def k(self, w):
        return np.exp(w[:, :1])

    def parts(self, w):
        early, within = self.clock(w)
        return self.event, self.within, early, within

    @staticmethod
    def row(eta, event, within, early, gap):
        x = np.minimum(eta + early, MOST_ETA)
        mean = np.exp(x)
        value, slope, curve = np.where(event, x, 0.0) - mean, event - mean, mean
        x = np.where(within, eta + np.where(within, gap, 0.0), 0.0)
        extra, first, second = log_1m_exp(x)
        return value + within * extra, slope + within * first, curve - within * second

    def log_hazard(self, w):
        """Returns log hazards of events less the logarithm of A (S, n): derivatives are those of `hazard_slopes`."""
        own = w[:, :1] - np.log(np.where(self.event, self.y, 1.0)) - self.log_share(self.k(w))
        return np.where(self.event, own, 0.0)

    def constant(self, w):
        return self.log_hazard(w).sum(axis=1)

    def hazard_slopes(self, w):
        """Returns derivatives of the events' log hazards: (m, n) and (m, m, n)."""
        of = np.where(self.event, np.exp(w[0]) * np.log(np.where(self.event, self.y, 1.0)), 0.0)
        return (of + self.event)[None], of[None, None]

    def own(self, eta, w):
        early, gap = (one[0] for one in self.clock(w[None]))
        of_a, of_aa, of_d, of_dd = self.clock_slopes(w)
        first, second = self.hazard_slopes(w)
        mean = np.exp(np.minimum(eta + early, MOST_ETA))
        x = np.where(self.within, eta + np.where(self.within, gap, 0.0), 0.0)
        _, t, tt = log_1m_exp(x)
        t, tt = np.where(self.within, t, 0.0), np.where(self.within, tt, 0.0)
        of_d, of_dd = np.where(self.within, of_d, 0.0), np.where(self.within, of_dd, 0.0)
        outer = of_d[:, None] * of_d[None]
        return first - mean * of_a + t * of_d, tt * of_d - mean * of_a, second - mean * of_aa + tt * outer + t * (of_dd - outer)

    def start(self, w):
        early, gap = self.clock(w)
        count = self.event + self.within + 0.5
        known = self.begun | self.within
        last = np.where(self.within, np.logaddexp(early, np.where(self.within, gap, 0.0)), early)
        return np.where(known, count, 0.0) + np.zeros((len(w), 1)), np.log(count) - np.where(known, last, 0.0), np.ones(self.n)


class Exponential(Weibull):
    """k = 1."""

    def k(self, w):
        return np.ones((len(w), 1))

    def clock_slopes(self, w):
        none = np.zeros((0, self.n))
        return none, np.zeros((0, 0, self.n)), none, np.zeros((0, 0, self.n))

    def log_hazard(self, w):
        own = -np.log(np.where(self.event, self.y, 1.0)) - self.log_share(self.k(w))
        return np.where(self.event, own, 0.0)

    def hazard_slopes(self, w):
        return np.zeros((0, self.n)), np.zeros((0, 0, self.n))


class Piecewise(Weibull):
    """w = log hazards of the pieces; an event at a cut belongs to the piece that ends there."""

    def __init__(self, *rows):
        super().__init__(*rows)
        edges, y = np.concatenate([[0.0], self.cuts, [np.inf]]), np.where(np.isfinite(self.y), self.y, 0.0)
        self.spent = self.time_in(edges, self.entry, y)
        self.later = self.time_in(edges, y, np.where(self.within, self.upper, y))
        self.piece = np.searchsorted(self.cuts, self.y, side="left")

    @staticmethod
    def time_in(edges, since, until):
        """(m, n) the time between the two in each piece."""
        return np.maximum(0.0, np.minimum(until, edges[1:, None]) - np.maximum(since, edges[:-1, None]))

    def clock(self, w):
        with np.errstate(divide="ignore"):
            return log_sums(w, np.log(self.spent)), log_sums(w, np.log(self.later))

    def clock_slopes(self, w):
        results = []
        with np.errstate(divide="ignore"):
            for time in (self.spent, self.later):
                total = log_sums(w[None], np.log(time))[0]
                share = np.exp(w[:, None] + np.log(time) - np.where(np.isfinite(total), total, 0.0))
                results += [share, np.einsum("ij,in->ijn", np.eye(len(w)), share)]
        return results

    def log_hazard(self, w):
        early, _ = self.clock(w)
        return np.where(self.event, w[:, self.piece] - np.where(self.event, early, 0.0), 0.0)

    def hazard_slopes(self, w):
        m = len(w)
        return (np.arange(m)[:, None] == self.piece) * self.event.astype(float), np.zeros((m, m, self.n))


def log_sums(w, log_time):
    """log sum_j e^(w_j) time_j: w (S, m), log_time (m, n)."""
    terms = w[:, :, None] + log_time
    most = terms.max(axis=1, initial=-np.inf)
    least = np.where(np.isfinite(most), most, 0.0)
    return least + np.log(np.exp(terms - least[:, None]).sum(axis=1))
