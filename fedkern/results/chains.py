"""Groups chains by their modes, so that no mean depends on how many chains each mode has caught."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from .mixing import Stream
from .plain import Record
from .selection import GAP

LEAST = 20  # draws of a chain: with fewer none lies in a 5 % tail
NORMAL = 1.6448536269514722  # its quantile at 95 %
KEPT = ("rhat", "ess", "pip_rhat", "pip_ess")  # they judge all chains together, and say that these disagree


@dataclass(frozen=True)
class Group:
    """Holds the chains in one mode."""

    chains: tuple[int, ...]  # their numbers, as posterior.nc has them
    moved: bool  # whether these have been in several modes, so that their means belong to none
    # index of each coefficient in which chains are apart -> sign of this group's median, 0 below a tenth
    signs: Mapping[int, int]


def groups(draws: Array | Stream) -> list[Group]:
    """Groups chains by the modes that they are in; chains that agree are one group.

    Two chains are apart if in some coefficient their central 90 % intervals, made twice as wide, do not overlap and
    their medians differ by more than `selection.GAP`. Normal draws are then 6.6 standard deviations apart, so that neither chain
    has been where the other one is, and R-hat of that coefficient is far above 1.01. A large R-hat alone would not do: slow
    chains in one mode have it too, and their common mean is the best there is. Where each is worth but two draws their intervals
    may miss each other, seldom the doubled ones.

    Chains that are apart from the same others make a group. One that overlaps two chains which are apart from each other has
    moved between modes; it is in neither of their groups.

    Parameters
    ----------
    draws : (c, t, P) standardised; or their stream, whose intervals are those of normal distributions

    Returns
    -------
    groups that stay in one mode first, the largest first; a single group where chains have fewer than 20 draws, which tell
    nothing about tails
    """
    low, middle, high = _doubled(draws)
    c = len(middle)
    length = draws.n if isinstance(draws, Stream) else draws.shape[1]
    if c < 2 or length < LEAST:
        return [Group(tuple(range(c)), moved=False, signs={})]
    apart, differ = np.zeros((c, c), dtype=bool), np.zeros(middle.shape[1], dtype=bool)
    for i in range(c):
        # Two chains are apart only if both their intervals and their medians are.
        here = ((low[i] > high) | (low > high[i])) & (np.abs(middle - middle[i]) > GAP)
        apart[i], differ = here.any(axis=1), differ | here.any(axis=0)
    # Chains with the same row of `apart` are in one mode.
    _, label = np.unique(apart, axis=0, return_inverse=True)
    by_mode = []
    for k in range(int(label.max()) + 1):
        inside = np.flatnonzero(label.ravel() == k)
        near = ~apart[inside[0]]
        centre = np.median(middle[inside], axis=0)
        signs = {int(j): int(np.sign(centre[j])) * bool(abs(centre[j]) > 0.1) for j in np.flatnonzero(differ)}
        by_mode.append(Group(tuple(inside.tolist()), bool(apart[np.ix_(near, near)].any()), signs))
    return sorted(by_mode, key=lambda group: (group.moved, -len(group.chains), group.chains))


def _doubled(draws: Array | Stream) -> tuple[Array, Array, Array]:
    """Returns the (c, P) ends of each chain's central 90 % interval, made twice as wide, and its median between them."""
    if isinstance(draws, Stream):
        width = 2 * NORMAL * np.sqrt(draws.square / max(draws.n - 1, 1))
        return draws.centre - width, draws.centre, draws.centre + width
    one_by_one = [np.quantile(chain, (0.05, 0.5, 0.95), axis=0) for chain in draws]  # memory of a chain, not of all
    low, middle, high = np.stack(one_by_one, axis=1)
    more = (high - low) / 2
    return low - more, middle, high + more


def blank(parameters: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Replaces every average over chains that disagree by NaN; R-hat and ESS remain."""
    return {name: {key: value if key in KEPT else np.nan for key, value in row.items()} for name, row in parameters.items()}


def effect(parameters: Mapping[str, Mapping[str, float]], name: str) -> Mapping[str, float]:
    """Returns the row by which a coefficient's modes are told: its site average, or the global effect where no average is
    known."""
    kinds = ("average_std", "average", "theta_std", "theta")
    return next((parameters[f"{kind}[{name}]"] for kind in kinds if f"{kind}[{name}]" in parameters), {})


def largest(summary: Record) -> dict[str, Any]:
    """Returns a summary in which the mode of most chains stands for all, where chains disagree; else the summary itself."""
    return {**summary, **summary["by_mode"][0]} if "by_mode" in summary else dict(summary)


def describe_groups(groups: list[Group]) -> str:
    """Says how chains are divided, such as "2 modes, of 7 and 1 of 8 chains"."""
    sizes = [len(group.chains) for group in groups if not group.moved]
    moved = sum(len(group.chains) for group in groups if group.moved)
    n = sum(sizes) + moved
    if not sizes:
        return f"all {n} chains have moved between modes"
    *most, last = map(str, sizes)
    listed = f"{', '.join(most)} and {last}" if most else last
    modes = f"{len(sizes)} modes" if most else "1 mode"
    text = f"{modes}, of {listed} of {n} chains"
    return f"{text}; {moved} moved between modes" if moved else text
