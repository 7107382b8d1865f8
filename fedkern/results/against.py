"""Compares a posterior with another one of the same model: that of Stan, PyMC or NumPyro on pooled rows, as ArviZ stores it.

The distance of a parameter is the first Wasserstein distance of the two marginals, over the reference's sd: the number of sds by
which, on average over quantiles, the reference's mass has to move. A shift of a by itself is a distance of a.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ..arrays import Array
from ..errors import JobError
from ..printing import listed
from . import mixing, page, plots
from .released import Drawing, Drawn, Group, Marginal, Released

NAMED = 4  # names in an error
PLOTTED = 60  # parameters
GRID = 2000  # quantiles that a distance is made of
REMEDY = 'give --names FILE, a TOML file with a line "OURS" = "THEIRS" for each parameter, or for a whole array'


@dataclass(frozen=True)
class Compared:
    """Holds the comparison of one parameter."""

    # name, other: as the run and as the reference call it
    name: str
    other: str
    # mean, sd, other_mean, other_sd: of the run's posterior, and of the reference
    mean: float
    sd: float
    other_mean: float
    other_sd: float
    shift: float  # difference of the means in the reference's sds
    error: float  # its Monte-Carlo standard error
    sd_ratio: float  # the run's sd over the reference's
    distance: float  # Wasserstein distance in the reference's sds
    # ours, theirs: the two marginals
    ours: Marginal
    theirs: Drawn


def compare(
    posterior: Released, drawing: Drawing, reference: Group, names: Mapping[str, str] | None, path: str
) -> list[Compared]:
    """Compares the parameters that both posteriors have, and returns them with the farthest apart first. Raises JobError: no name
    matches, a name does not exist, or two arrays have other shapes.

    Parameters
    ----------
    posterior, drawing : of the run
    reference : group `posterior` of another library
    names : ours -> theirs, of parameters ("theta[age]", "beta[0]") or of whole arrays ("theta", "beta"), whose elements are then
        taken in their order; parameters that are not in it are matched by equal names
    path : of the reference, for errors
    """
    groups = posterior.groups(drawing)
    ours, theirs = arrays(groups["posterior"], "the run"), arrays(reference, path)
    if names is None:
        pairs = _equal(ours, theirs, path)
    else:
        pairs = [pair for name, other in names.items() for pair in _paired(ours, theirs, name, other, path)]
        named = {name for pair in pairs for name in pair}
        pairs += [(name, name) for name in _flat(ours) if name in _flat(theirs) and name not in named]
    flat_ours, flat_theirs = _flat(ours), _flat(theirs)
    compared = []
    for name, other in pairs:
        exact = posterior.marginal(name) if name in posterior.parameters() else None
        compared.append(_compared(name, other, exact or Drawn(flat_ours[name]), Drawn(flat_theirs[other])))
    return sorted(
        compared, key=lambda comparison: -comparison.distance if comparison.distance == comparison.distance else -math.inf
    )


Arrays = Mapping[str, Mapping[str, Array]]  # variable -> label ("" of a number) -> (c, t) draws


def arrays(group: Group, whose: str) -> Arrays:
    """Returns all variables of a group, element by element. Raises JobError: a variable has no chains and draws."""
    variables = {}
    for name, (dims, values) in group.variables.items():
        if np.asarray(values).dtype.kind not in "fiub":
            continue  # texts and times are no parameters
        if tuple(dims[:2]) != ("chain", "draw"):
            raise JobError(f"{whose}: {name} has dimensions ({', '.join(dims)}); wanted chain and draw first, as ArviZ has them")
        axes = [
            [str(entry) for entry in group.coordinates.get(dim, range(size))] for dim, size in zip(dims[2:], values.shape[2:])
        ]
        flat = np.asarray(values, np.float64).reshape(*values.shape[:2], -1)
        variables[name] = {",".join(label): flat[:, :, k] for k, label in enumerate(product(*axes))}
    return variables


def _flat(variables: Arrays) -> dict[str, Array]:
    """Returns the draws of every element by its whole name, such as "theta[age]"."""
    return {_label(name, label): draws for name, those in variables.items() for label, draws in those.items()}


def _label(name: str, label: str) -> str:
    return f"{name}[{label}]" if label else name


def _equal(ours: Arrays, theirs: Arrays, path: str) -> list[tuple[str, str]]:
    """Pairs parameters whose names are equal. Raises JobError: no two are equal; where a whole array has an equal name, it says
    how the elements differ."""
    both = [name for name in _flat(ours) if name in _flat(theirs)]
    if both:
        return [(name, name) for name in both]
    for name in ours:
        if name in theirs:
            n, m = len(ours[name]), len(theirs[name])
            what = f"{m} elements there, {n} in the run" if n != m else f"elements with other names ({_some(theirs[name])})"
            raise JobError(f"{path}: {name} has {what}; {REMEDY}")
    raise JobError(f"{path}: has {_some(_flat(theirs))}, and the run {_some(_flat(ours))}: no name is the same; {REMEDY}")


def _paired(ours: Arrays, theirs: Arrays, name: str, other: str, path: str) -> list[tuple[str, str]]:
    """Pairs the parameters, or the elements of the arrays, that one line of the file of names says are the same."""
    if name in _flat(ours) and other in _flat(theirs):
        return [(name, other)]
    for whose, wanted, arrays_of in (("the run", name, ours), (path, other, theirs)):
        if wanted not in arrays_of and wanted not in _flat(arrays_of):
            raise JobError(
                f"{whose}: has no parameter {wanted!r} (there are {_some(_flat(arrays_of))}); correct the file of names"
            )
    first, second = ours.get(name), theirs.get(other)
    if first is None or second is None or len(first) != len(second):
        n, m = (1 if x is None else len(x) for x in (first, second))
        raise JobError(
            f"{path}: {other!r} has {m} elements, and {name!r} of the run {n}; name them one by one in the file of names"
        )
    return [(_label(name, a), _label(other, b)) for a, b in zip(first, second)]


def _some(names: Sequence[str] | Mapping[str, object]) -> str:
    """Lists the first few names, and how many more there are."""
    return listed(list(names), NAMED)


def _compared(name: str, other: str, ours: Marginal, theirs: Drawn) -> Compared:
    """Compares two marginals; shifts and ratios are infinite where the reference is a constant."""
    levels = ((np.arange(GRID) + 0.5) / GRID).tolist()
    apart = float(np.mean(np.abs(np.array(ours.quantiles(levels)) - np.array(theirs.quantiles(levels)))))
    with np.errstate(divide="ignore", invalid="ignore"):
        shift, ratio, distance = (float(np.divide(x, theirs.sd)) for x in (ours.mean - theirs.mean, ours.sd, apart))
        error = float(np.divide(np.hypot(_error(ours), _error(theirs)), theirs.sd))
    return Compared(name, other, ours.mean, ours.sd, theirs.mean, theirs.sd, shift, error, ratio, distance, ours, theirs)


def _error(marginal: Marginal) -> float:
    """Returns the Monte-Carlo error of a mean; 0 where the mean is exact."""
    if not isinstance(marginal, Drawn):
        return 0.0
    return float(mixing.published_mean_error(marginal.draws[..., np.newaxis])[0])


HEAD = ("parameter", "distance", "shift", "error", "sd_ratio", "mean", "sd", "other_mean", "other_sd")


def rows(compared: Sequence[Compared]) -> list[dict[str, str | float]]:
    """Returns a row for each parameter, in the given order."""
    return [{"parameter": comparison.name, **{key: getattr(comparison, key) for key in HEAD[1:]}} for comparison in compared]


def document(title: str, verdict: str, compared: Sequence[Compared], reference: str) -> str:
    """Makes a page of the comparison: an explanation, the table, and a plot for each parameter."""
    words = (
        "distance: first Wasserstein distance of the two marginals, in the reference's sds; shift: difference of means in these "
        "sds, with its Monte-Carlo standard error; sd ratio: the run's over the reference's."
    )
    table = page.table(HEAD, [[page.number(value) for value in row.values()] for row in rows(compared)])
    sections = [page.section("Differences", page.paragraph(words), table)]
    note = f"The {PLOTTED} of {len(compared)} that are farthest apart. " if len(compared) > PLOTTED else ""
    for k, comparison in enumerate(compared[:PLOTTED]):
        numbers = f"distance {comparison.distance:.3f}, shift {comparison.shift:+.3f}, sd ratio {comparison.sd_ratio:.3f}"
        caption = numbers if k else note + numbers
        sections.append(page.figure(comparison.name, drawn(comparison), caption))
    head = {"word": "compared", "mood": "good", "verdict": verdict, "doubt": False, "tiles": [], "notes": []}
    return page.document(title, sections, labels=[f"against {reference}; the worst first"], **head)


def drawn(comparison: Compared) -> plots.Figure:
    """Draws both marginals' densities."""
    figure = plots.canvas(7.2, 1.7)
    axes = figure.subplots()
    flat = comparison.theirs.draws.ravel()
    ends = [0.001, 0.999]
    both = [*comparison.ours.quantiles(ends), *comparison.theirs.quantiles(ends)]
    bins = np.linspace(min(both), max(both), 60).tolist() if max(both) > min(both) else 10
    axes.hist(flat, bins=bins, density=True, color=plots.GRID, label="reference")
    if isinstance(comparison.ours, Drawn):
        draws = comparison.ours.draws.ravel()
        axes.hist(draws, bins=bins, density=True, histtype="step", color=plots.BLUE, linewidth=1.4, label="run")
    else:
        x = np.linspace(min(both), max(both), 200)
        density = np.exp(-0.5 * ((x - comparison.ours.mean) / comparison.ours.sd) ** 2) / (
            comparison.ours.sd * math.sqrt(2 * math.pi)
        )
        axes.plot(x, density, color=plots.BLUE, linewidth=1.4, label="run")
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    plots.tidy(axes, "x")
    return figure
