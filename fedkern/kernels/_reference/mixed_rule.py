"""Defines the rule for integrands that may have several modes, of one effect a group: panels of Gauss and Legendre.

l(u) = sum_i l_i(eta_i(u)) - u^2 / 2, where each l_i rises to one mode and falls beyond it. So on a panel l is at most `bound`:
of each row its mode's value if that is inside, else the larger of the ends', less the least u^2 / 2. Beyond |u| = `reach` l is 50
below l(0). The panels are halved until l is smooth on each (`rough`) and a row's mode stands out nowhere unseen at the ends or
in the middle; those whose bound is 50 below the largest value seen are left out: less than e^-50 of the integrand's top is there.
"""

import numpy as np

FIRST = 8  # panels
DEPTH, MOST = 50, 4096  # halvings; panels of one integral: with more it is NaN
BELOW = 50.0
BENT, TILTED, MISFIT, HIDDEN = 3.0, 8.0, 0.03, 0.3


class Integrands:
    """Lays out the rows of all groups at all points one after the other, for any list of (point, group, u)."""

    def __init__(self, rows, fixed, T, parts):
        S, n = fixed.shape
        self.sizes = np.diff(np.append(rows.starts, n))
        self.rows, self.fixed, self.by = rows, fixed, T * rows.Z[:, 0]
        self.parts = [np.broadcast_to(part, (S, n)) for part in parts]

    def layout(self, s, g):
        """Returns for each row of each integrand which it is, the point, the row; and where each begins."""
        sizes = self.sizes[g]
        first = np.cumsum(sizes) - sizes
        one = np.repeat(np.arange(len(g)), sizes)
        return one, s[one], self.rows.starts[g][one] + np.arange(len(one)) - first[one], first

    def at(self, layout, u):
        """Returns values and slopes in u of the rows."""
        one, s, i, _ = layout
        by = self.by[s, i]
        value, slope, _ = self.rows.family.row(self.fixed[s, i] + by * u[one], *(part[s, i] for part in self.parts))
        return value, slope * by


def panels(integrands, tops):
    """Returns points, groups, lower and upper ends of all panels, and whether each integral (S, G) has too many or is not finite.

    `tops` (S, n) are the rows' largest values.
    """
    S, G = len(tops), len(integrands.sizes)
    s, g = (index.ravel() for index in np.indices((S, G)))
    layout = integrands.layout(s, g)
    # No likelihood can be above that at 0 by more than `gain`: beyond `reach` the integrand is at most e^-50 of its value at 0.
    gain = np.add.reduceat(tops[layout[1], layout[2]] - integrands.at(layout, np.zeros(S * G))[0], layout[3])
    bad = ~np.isfinite(gain)
    reach = np.sqrt(2 * (np.maximum(np.where(bad, 0, gain), 0) + BELOW))
    edges = np.linspace(-1, 1, FIRST + 1)
    s, g, reach = (np.repeat(one, FIRST) for one in (s, g, reach))
    low, high = reach * np.tile(edges[:-1], S * G), reach * np.tile(edges[1:], S * G)
    best, count = np.full(S * G, -np.inf), np.zeros(S * G, int)
    done = []
    for depth in range(DEPTH + 1):
        keep = ~bad[s * G + g]
        s, g, low, high = s[keep], g[keep], low[keep], high[keep]
        if not len(s):
            break
        owner, middle = s * G + g, 0.5 * (low + high)
        layout = integrands.layout(s, g)
        first, top = layout[3], tops[layout[1], layout[2]]
        (a, slope_a), (m, _), (b, slope_b) = (integrands.at(layout, u) for u in (low, middle, high))
        seen = np.maximum(np.maximum(a, m), b)
        # A row rises at the left end and falls at the right one: its top, which was not seen, is inside.
        inside = (slope_a > 0) & (slope_b < 0)
        hidden = np.maximum.reduceat(np.where(inside, top - seen, 0.0), first)
        bound = np.add.reduceat(np.where(inside, np.maximum(top, seen), seen), first)
        bound -= np.where(low * high < 0, 0, 0.5 * np.minimum(low**2, high**2))
        at_low, at_middle, at_high = (np.add.reduceat(x, first) - 0.5 * u**2 for x, u in ((a, low), (m, middle), (b, high)))
        tilt = np.add.reduceat(slope_a, first) - low - np.add.reduceat(slope_b, first) + high
        np.maximum.at(best, owner, np.maximum(np.maximum(at_low, at_middle), at_high))
        bend = at_middle - 0.5 * (at_low + at_high)
        # Panels on which the logarithm is not nearly a parabola are halved, but for the last depth.
        rough = (np.abs(2 * bend) > BENT) | (np.abs(at_high - at_low) > TILTED) | (hidden > HIDDEN)
        rough |= np.abs(bend - 0.125 * (high - low) * tilt) > MISFIT
        bad[owner[~np.isfinite(bound + bend)]] = True
        # A panel whose bound is far below the best value adds nothing.
        left = bound > best[owner] - BELOW
        ready = left & (~rough | (depth == DEPTH))
        done.append([one[ready] for one in (s, g, low, high)])
        np.add.at(count, owner[ready], 1)
        again = left & ~ready
        np.add.at(count, owner[again], 2)
        bad |= count > MOST
        count -= np.bincount(owner[again], minlength=S * G) * 2
        s, g = np.repeat(s[again], 2), np.repeat(g[again], 2)
        low, high = (
            np.column_stack([low[again], middle[again]]).ravel(),
            np.column_stack([middle[again], high[again]]).ravel(),
        )
    none = np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0)
    return *(np.concatenate(one) for one in zip(none, *done)), bad.reshape(S, G)


def nodes_of(integrands, tops, nodes):
    """Returns points, groups, places u and logarithms of the terms that add up to the integrals of exp(l); and which are bad (S,
    G).

    Nodes are sorted by integral.
    """
    s, g, low, high, bad = panels(integrands, tops)
    t, w = np.polynomial.legendre.leggauss(nodes)
    order = np.lexsort((low, g, s))
    s, g, low, high = s[order], g[order], low[order], high[order]
    u = (0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * t).ravel()
    weight = (np.log(0.5 * (high - low))[:, None] + np.log(w)).ravel()
    s, g = np.repeat(s, nodes), np.repeat(g, nodes)
    layout = integrands.layout(s, g)
    value = np.add.reduceat(integrands.at(layout, u)[0], layout[3]) if len(s) else np.zeros(0)
    return s, g, u, weight + value - 0.5 * u**2, bad
