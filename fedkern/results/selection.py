"""Chooses sets, graphs and tables from inclusion probabilities (docs/spec/sparse.md, sections 8 and 12)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from ..errors import JobError
from ..printing import listed
from .diagnostics import MARKED
from .plain import Record, real
from .verdict import doubtful, is_doubtful, marked

Rule = Literal["or", "and"]
LARGE = 0.2  # standardised units: from here an average is large, and a site differs, unless a job says another
DEVIATING = ("p_differs", "contrast", "p_deviates", "mean", "q05", "q95", "rhat")  # of a client that differs
ARROW = " -> "  # between the node that an edge comes from and the one that it points to
MORE_POWER = "output.site_fits = true adds a meta-analysis, whose set asks only whether the average is 0"
GAP = 0.15  # standardised units: medians farther apart may be in different modes
HEAD = ("to", "source", "mean", "pip", "mcse", "rhat")  # of an edge: its ends, standardised effect, PIP, the PIP's error, R-hat
NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that no XML may hold

Row = list[str | float]


class Graphical(Protocol):
    """Is implemented by summaries of a graph from which edges are chosen."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def pip(self) -> Array: ...
    @property
    def pip_error(self) -> Array | None: ...
    @property
    def mean(self) -> Array: ...
    @property
    def rhat(self) -> Array | None: ...


class Draws(Protocol):
    """Is implemented by kept draws (c, t, P), as `Samples`."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def pip(self) -> Array: ...
    @property
    def theta(self) -> Array: ...
    @property
    def average(self) -> Array | None: ...
    @property
    def inclusion(self) -> Array: ...


def fdr_set(pip: ArrayLike, alpha: float = 0.1, rhat: Array | None = None) -> NDArray[np.bool_]:
    """Returns the Bayesian FDR set of Mueller, Parmigiani and Rice: by falling PIP, while the mean of 1 - PIP is <= alpha.

    Parameters
    ----------
    pip : any shape; NaN (for a coefficient that is always included) is in no set. The first of equal PIPs goes in first
    alpha : in (0, 1), the bound on the posterior expected share of false discoveries
    rhat : of the coefficients, of the shape of `pip`. While a member's is above 1.05 there is no set: chains that do not agree
        about a member do not know how many members are false

    Returns
    -------
    members, of the shape of `pip`
    """
    if not 0 < alpha < 1:
        raise ValueError(f"selection.fdr_set: alpha must be in (0, 1), got {alpha}")
    probabilities = np.asarray(pip, dtype=np.float64)
    flat = probabilities.ravel()
    order = np.argsort(-np.where(np.isnan(flat), -1.0, flat), kind="stable")[: np.count_nonzero(~np.isnan(flat))]
    false = np.cumsum(1 - flat[order]) / np.arange(1, len(order) + 1)  # never falls, so that all below alpha is a prefix
    chosen = np.zeros(flat.shape, dtype=bool)
    chosen[order[false <= alpha]] = True
    if rhat is not None and any(map(is_doubtful, rhat.ravel()[chosen].tolist())):
        chosen[:] = False
    return chosen.reshape(probabilities.shape)


def benjamini_hochberg(p_values: ArrayLike, alpha: float = 0.1) -> NDArray[np.bool_]:
    """Returns the set of Benjamini and Hochberg (1995): all up to the largest k whose k-th smallest p-value is <= alpha k / m.

    Parameters
    ----------
    p_values : (m,) in [0, 1]; NaN is in no set, and not counted in m
    alpha : in (0, 1), the bound on the expected share of false discoveries

    Returns
    -------
    members (m,)
    """
    if not 0 < alpha < 1:
        raise ValueError(f"selection.benjamini_hochberg: alpha must be in (0, 1), got {alpha}")
    p = np.asarray(p_values, dtype=np.float64)
    known = np.sort(p[~np.isnan(p)])
    below = np.flatnonzero(known <= alpha * np.arange(1, len(known) + 1) / max(len(known), 1))
    within = p <= known[below[-1]] if len(below) else np.zeros(p.shape, dtype=bool)
    return np.asarray(within)


def groups(names: Sequence[str], effects: ArrayLike, inclusion: ArrayLike, least: float = 0.5) -> list[dict[str, Any]]:
    """Groups coefficients that the rows can hardly tell apart, with the probability that at least one of a group is in the slab.

    Where columns are collinear each PIP is small, though something among them surely has an effect. Draws of their coefficients
    are correlated then. Given theta, eta and rho the indicators are independent: 1 - prod_j (1 - q_j), averaged over draws.

    Parameters
    ----------
    names : of P coefficients
    effects : (c, t, P) draws of site averages, or of theta where these are not known
    inclusion : (c, t, P) q = P(gamma = 1 | rest); NaN for a coefficient that is always included, which is in no group
    least : smallest size of a correlation that joins two

    Returns
    -------
    of each group `names`, `p_any`, and `largest`, the largest PIP of one alone; the surest first
    """
    flat = np.asarray(effects, dtype=np.float64).reshape(-1, len(names))
    q = np.asarray(inclusion, dtype=np.float64).reshape(-1, len(names))
    centred = flat - flat.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    free = np.flatnonzero((size > 0) & ~np.isnan(q).any(axis=0))
    scaled = centred[:, free] / size[free]
    joined = np.abs(scaled.T @ scaled) >= least
    for _ in range(len(free).bit_length()):  # whatever a chain of pairs connects is one group
        joined = joined @ joined
    every_group = []
    for first, row in enumerate(joined):
        members = free[row]
        if len(members) > 1 and row.argmax() == first:
            inclusion_of_members, any_of = q[:, members], 1 - np.prod(1 - q[:, members], axis=1)
            every_group.append(
                {
                    "names": [names[j] for j in members],
                    "p_any": float(any_of.mean()),
                    "largest": float(inclusion_of_members.mean(axis=0).max()),
                }
            )
    return sorted(every_group, key=lambda group: -group["p_any"])


def explain(
    names: Sequence[str],
    pip: ArrayLike,
    average_large: ArrayLike,
    alpha: float = 0.1,
    rhat: Array | None = None,
    delta: float = LARGE,
    site_fits: bool | None = None,
) -> str:
    """Says in a sentence which coefficients are in the FDR set, or why an empty set does not mean that nothing has an effect.

    A discovery means that a global effect is in the slab, and a false discovery is one that belongs to the spike.

    Parameters
    ----------
    names, pip : (P,)
    average_large : (P,) P(|site average| > delta)
    alpha : the false discovery rate
    rhat : (P,) of the coefficients: there is no set while that of a member is above 1.05
    delta : size from which an average is large
    site_fits : whether a meta-analysis was made beside; None for a model that has none
    """
    unsure = doubtful(names, rhat)
    pips, large = np.asarray(pip, dtype=np.float64), np.asarray(average_large, dtype=np.float64)
    chosen = np.flatnonzero(fdr_set(pips, alpha))
    rate = f"at a false discovery rate of {alpha:g}"
    if apart := [j for j in chosen.tolist() if names[j] in unsure]:
        assert rhat is not None
        which = listed([names[j] for j in apart], 6)
        return (
            f"no set {rate}: chains do not agree about {which}, which would be in it (R-hat {rhat[apart].max():.2f}, wanted "
            f"{MARKED:g} at most); more rounds tell"
        )
    if len(chosen):
        expected = float(np.mean(1 - pips[chosen]))
        return f"{len(chosen)} of {len(pips)} in the slab {rate} (expected of them in the spike: {expected:.3f})"
    if not len(pips) or np.isnan(pips).all():
        return "there is no coefficient to select"
    best: int = int(np.nanargmax(pips))
    largest, name = pips[best], marked(names[best], unsure)
    text = (
        f"empty {rate}: the largest PIP is {largest:.2f} ({name}), and even it alone "
        f"would be false with probability {1 - largest:.2f}: in the spike, and not in the slab. "
        "PIPs of this prior are conservative: they ask whether the global "
        "value is clearly larger than the spike, and few sites leave that uncertain even where their own values are sure"
    )
    sure = [name for name, probability in zip(names, large) if probability > 0.95]
    text += f". The site average is larger than {delta:g} with probability > 0.95 for {', '.join(sure)}" if sure else ""
    return f"{text}. {MORE_POWER}" if site_fits is False else text


def edge_names(nodes: Sequence[str]) -> tuple[str, ...]:
    """Returns the names "from -> to" of all ordered pairs: row by row (of the target node) of the (p, p) array without its
    diagonal."""
    return tuple(f"{source}{ARROW}{to}" for to in nodes for source in nodes if to != source)


def matrix(values: ArrayLike, p: int) -> Array:
    """Returns (..., p, p) with [to, from], zero diagonal, from (..., p (p - 1)) values in the order of `edge_names`."""
    of_edges = np.asarray(values, dtype=np.float64)
    if of_edges.shape[-1] != p * (p - 1):
        raise ValueError(f"selection.matrix: {p} nodes have {p * (p - 1)} edges, got {of_edges.shape[-1]}")
    out = np.zeros((*of_edges.shape[:-1], p, p))
    out[..., ~np.eye(p, dtype=bool)] = of_edges
    return out


def symmetrise(values: ArrayLike, rule: Rule = "or") -> Array:
    """Returns (..., p, p) the larger ("or": union) or the smaller ("and": intersection) of each pair of directions."""
    directed = np.asarray(values, dtype=np.float64)
    larger = np.maximum if rule == "or" else np.minimum
    return larger(directed, np.swapaxes(directed, -1, -2))


def partial_correlations(theta: ArrayLike) -> tuple[Array, int]:
    """Returns sign(theta_jh) sqrt(theta_jh theta_hj) where the two signs agree, else 0 (docs/spec/sparse.md, section 8).

    Parameters
    ----------
    theta : (..., p, p) regression coefficients [response, covariate], of each draw

    Returns
    -------
    symmetric correlations (..., p, p) in [-1, 1] with zero diagonal, and how many pairs had to be clipped: separate regressions
    can exceed 1
    """
    coefficients = np.asarray(theta, dtype=np.float64)
    product = coefficients * np.swapaxes(coefficients, -1, -2)
    out = np.sign(coefficients) * np.sqrt(np.maximum(product, 0.0))
    out[..., np.eye(coefficients.shape[-1], dtype=bool)] = 0.0
    clipped = int(np.count_nonzero(np.abs(out) > 1)) // 2
    return np.clip(out, -1.0, 1.0), clipped


@dataclass(frozen=True)
class Edge:
    """Holds a chosen edge: its posterior mean (standardised) and PIP, the PIP's Monte-Carlo error, and its R-hat."""

    to: str
    source: str
    mean: float
    pip: float
    mcse: float | None = None
    rhat: float | None = None

    @property
    def name(self) -> str:
        """The name "from -> to", as of coefficients."""
        return f"{self.source}{ARROW}{self.to}"

    @classmethod
    def of(cls, row: Record) -> Edge:
        """Makes an edge of a row of summary.json."""
        mcse, rhat = (None if row.get(key) is None else real(row[key]) for key in ("mcse", "rhat"))
        return cls(row["to"], row["source"], real(row["mean"]), real(row["pip"]), mcse, rhat)

    @property
    def is_doubtful(self) -> bool:
        """Whether its chains do not agree: it bears a mark wherever it is shown."""
        return is_doubtful(self.rhat)


def graph(samples: Graphical, alpha: float = 0.1) -> list[Edge]:
    """Returns the directed edges of the Bayesian FDR set, by falling PIP; none while chains do not agree about one of them."""
    pip, mean, rhat, error = samples.pip, samples.mean, samples.rhat, samples.pip_error
    unknown = np.full(len(pip), np.nan)
    errors, rhats = (unknown if numbers is None else numbers for numbers in (error, rhat))
    judged = list(zip(errors, rhats))
    chosen = sorted(np.flatnonzero(fdr_set(pip, alpha, rhat)), key=lambda e: -pip[e])
    ends = [_ends(samples.names[e], samples.nodes) for e in chosen]
    return [Edge(*pair, float(mean[e]), float(pip[e]), *map(known, judged[e])) for e, pair in zip(chosen, ends)]


def known(value: float) -> float | None:
    """Returns the number, or None for NaN."""
    return None if np.isnan(value) else float(value)


def _ends(name: str, nodes: Sequence[str]) -> tuple[str, str]:
    """Returns to and from of "from -> to", where names of nodes may hold an arrow."""
    starts = ((name[len(source) + len(ARROW) :], source) for source in nodes if name.startswith(source + ARROW))
    return next((to, source) for to, source in starts if to in nodes)


def deviating(parameters: Mapping[str, Mapping[str, float]], least: float = 0.5) -> list[dict[str, str | float]]:
    """Lists clients whose value differs from the other clients' (of one or two: from the global one), the surest first.

    A global value that is now in the spike and now in the slab is no fixed place to be far from; the other clients' average is.

    Parameters
    ----------
    parameters : of summary.json, with the clients' coefficients: a job with `share_local`
    least : smallest `p_differs` (of one or two clients: `p_deviates`) that is listed

    Returns
    -------
    rows with `coefficient`, `client`, `p_differs`, `contrast`, `p_deviates`, the client's `mean`, `q05`, `q95`, `rhat` and the
    `global` mean, standardised
    """
    rows: list[dict[str, str | float]] = []
    for name, value in parameters.items():
        if _differs(value) >= least:
            label, _, client = name.partition("]@")
            row: dict[str, str | float] = {"coefficient": label.partition("[")[2], "client": client}
            row |= {key: value[key] for key in DEVIATING if key in value}
            rows.append(row | {"global": parameters[f"{label}]"]["mean"]})
    return sorted(rows, key=lambda row: -_differs(row))


def _differs(row: Mapping[str, object]) -> float:
    """Returns the probability that a client differs; 0 for a row that is not a client's."""
    return real(row.get("p_differs", row.get("p_deviates", 0.0)))


@dataclass(frozen=True)
class Mode:
    """Holds draws in which the strong coefficients have one pattern of signs: its share of all draws, and of each chain's."""

    signs: dict[str, int]
    share: float
    of_chains: tuple[float, ...]


def modes(samples: Draws, gap: float = GAP) -> list[Mode]:
    """Finds the modes of a multimodal posterior, the largest first (docs/spec/sparse.md, section 10).

    Chains are cut into tenths. A coefficient tells modes from each other if the tenths' medians, in order, jump by more than
    `gap` between them: each side is a mode's. Signs are those of the modes' medians, 0 below a tenth; no other coefficient has
    an entry.
    """
    values = samples.theta if samples.average is None else samples.average
    c, t = values.shape[:2]
    pieces = np.array_split(np.arange(t), min(10, t))
    medians = np.concatenate([np.median(values[:, piece], axis=1) for piece in pieces])  # (pieces x c, P)
    order = np.argsort(medians, axis=0, kind="stable")
    jumps = np.diff(np.take_along_axis(medians, order, axis=0), axis=0, prepend=np.nan) > gap
    groups = np.empty(medians.shape, dtype=np.int64)
    np.put_along_axis(groups, order, np.cumsum(jumps, axis=0), axis=0)
    jumping = np.flatnonzero(jumps.any(axis=0))
    patterns, label = np.unique(groups[:, jumping], axis=0, return_inverse=True)
    weight, chain = np.repeat([len(piece) / t for piece in pieces], c), np.tile(np.arange(c), len(pieces))
    found = []
    for k in range(len(patterns)):
        inside = label.ravel() == k
        centre = np.median(medians[np.ix_(inside, jumping)], axis=0)
        sign = np.where(np.abs(centre) > 0.1, np.sign(centre), 0).astype(int)
        shares = np.bincount(chain[inside], weight[inside], minlength=c)
        signs = {samples.names[j]: int(s) for j, s in zip(jumping, sign)}
        found.append(Mode(signs, float(shares.mean()), tuple(shares.tolist())))
    return sorted(found, key=lambda mode: -mode.share)


def either(samples: Draws) -> Array:
    """Returns (p, p) probabilities that two nodes have an edge in at least one direction: the mean of 1 - (1 - q_jh)(1 - q_hj).

    Where chains agree about the pair but not about its direction, this is large and both PIPs are not.
    """
    p = len(samples.nodes)
    mean = np.zeros((p, p))
    for chain in samples.inclusion:  # one at a time: memory of a chain, not of all
        absent = 1 - matrix(chain, p)
        mean += np.mean(1 - absent * np.swapaxes(absent, -1, -2), axis=0) / len(samples.inclusion)
    return mean


# Files for other programs --------------------


def edges(summary: Record) -> list[Row]:
    """Returns the edges of the false discovery rate's set, as summary.json has them, in the order of `HEAD`; NaN if unknown.
    Raises JobError: the result is no graph, or its chains disagree, so that there is no graph over all of them."""
    if "graph" not in summary:
        raise JobError('the result has no graph: model.kind = "mrf" or "sem" gives one')
    if "by_mode" in summary:
        raise JobError(
            "the chains disagree, and there is no graph over all of them: by_mode in summary.json has one of each mode"
        )
    return [[str(row["to"]), str(row["source"]), *(real(row.get(key)) for key in HEAD[2:])] for row in summary["graph"]["edges"]]


def graphml(summary: Record) -> bytes:
    """Returns all nodes and the chosen edges, directed, as GraphML; names of nodes are their `label`."""
    chosen = edges(summary)
    root = ElementTree.Element("graphml", xmlns=NAMESPACE)
    keys = [("node", "label", "string"), *(("edge", name, "double") for name in HEAD[2:])]
    for about, name, kind in keys:
        ElementTree.SubElement(root, "key", {"id": name, "for": about, "attr.name": name, "attr.type": kind})
    graph = ElementTree.SubElement(root, "graph", edgedefault="directed")
    place = {str(name): f"n{i}" for i, name in enumerate(summary["graph"]["nodes"])}
    for name, label in place.items():
        node = ElementTree.SubElement(graph, "node", id=label)
        ElementTree.SubElement(node, "data", key="label").text = NO_XML.sub("\ufffd", name)
    for to, source, *numbers in chosen:
        edge = ElementTree.SubElement(graph, "edge", source=place[str(source)], target=place[str(to)])
        for name, value in zip(HEAD[2:], numbers):
            if value == value:
                ElementTree.SubElement(edge, "data", key=name).text = repr(value)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
