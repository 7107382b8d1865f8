"""Makes the page on a trained prior: how its covariances and marginals compare with those of the prior it stands for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....algorithms.training.fit import Comparison, Tau
from ....algorithms.training.training import COLUMNS, State
from ....arrays import Indices
from ....results.page import details, document, figure, number, piece, section, table
from ....results.plain import Record, plain
from ....results.plots import BLUE, GRID, INK, MUTED, ORANGE, Axes, Figure, canvas, caption, tidy

MOST_POINTS = 200  # of a covariance that is drawn as a matrix
MOST_PAIRS = 4000  # of a scatter
MOST_DRAWN = 500  # points that are shapes; more of them are a picture


@dataclass(frozen=True, eq=False)
class Fit:
    """Holds the measures of a trained prior."""

    # kind, condition: of the prior, and the name of its hyperparameter
    kind: str
    condition: str
    # clients, sizes: names, and numbers of areas or points
    clients: tuple[str, ...]
    sizes: tuple[int, ...]
    # comparisons, variograms: one for each phi
    comparisons: Sequence[Comparison]
    variograms: Sequence[Mapping[str, list[float]]]
    correlations: Sequence[float]  # for each phi, the largest error of a correlation between clients with tau^2
    coverage: Mapping[str, Mapping[str, float]]  # see `algorithms.training.fit.coverage`
    tau: Tau  # variances about the decoder
    state: State  # of the training, at its end
    objective: Mapping[str, float]  # means of the ELBO's terms over draws that no step has seen
    neighbours: Indices | None  # (m, 2) of a map
    notes: tuple[str, ...]  # for people

    def as_dict(self) -> Record:
        """Returns the content of fit.json."""
        tau = self.tau
        return {
            "kind": self.kind,
            "condition": self.condition,
            "clients": dict(zip(self.clients, self.sizes)),
            "covariance": [
                comparison.as_dict() | {"largest_cross_correlation_auxiliary": with_tau}
                for comparison, with_tau in zip(self.comparisons, self.correlations)
            ],
            "variogram": [{"phi": comparison.phi, **v} for comparison, v in zip(self.comparisons, self.variograms)],
            "coverage": self.coverage,
            "tau2": {
                "unclipped": tau.unclipped,
                "at_floor": tau.low,
                "at_ceiling": tau.high,
                "median": float(np.median(tau.tau2)),
                "largest": float(tau.tau2.max()),
                "share_of_prior_variance": float(np.mean(tau.tau2) / np.mean(tau.prior)),
            },
            "gamma": self.state.gamma,
            "steps": self.state.step,
            "objective": self.objective,
            "notes": list(self.notes),
        }

    @property
    def client(self) -> Indices:
        """The (n,) number of the client of each area."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def page(fit: Fit, config: Record) -> str:
    """Returns the whole page as text."""
    body = [_covariances(fit), _borders(fit), _marginals(fit), _tau(fit), _training(fit), _record(fit, config)]
    return document("Trained prior", body, **_head(fit, config))


def _head(fit: Fit, config: Record) -> Record:
    """Returns the head of the page."""
    worst = max(comparison.error for comparison in fit.comparisons)
    tiles = [("Largest covariance error", number(worst)), ("tau² unclipped", f"{fit.tau.unclipped:.1%}")]
    tiles += [("Marginals inside 90 %", f"{fit.coverage['auxiliary']['0.9']:.1%}"), ("Clients", str(len(fit.clients)))]
    places = "Areas" if fit.neighbours is not None else "Points"
    tiles += [(places, f"{sum(fit.sizes):,}"), ("Steps", f"{fit.state.step:,}")]
    lo_hi = config["prior"]["lengthscale"] or config["prior"]["phi"]
    interval = f"{fit.condition} in {lo_hi}" if lo_hi else ""
    words = [fit.kind, str(config["network"]["variant"]), interval]
    labels = [word for word in words if word]
    return {"word": fit.kind, "mood": "good", "verdict": "", "doubt": False, "labels": labels, "tiles": tiles, "notes": fit.notes}


def _covariances(fit: Fit) -> str:
    """Makes the section on covariances."""
    heads = [
        fit.condition,
        "error",
        "without noise of draws",
        "and between clients",
        "largest correlation error between clients",
        "with tau²",
    ]
    heads += ["variance / true", "share of local latents"]
    rows = []
    for comparison, with_tau in zip(fit.comparisons, fit.correlations):
        cross = "–" if comparison.cross_split is None else f"{comparison.cross_split:.3f}"
        rows.append(
            [
                f"{comparison.phi:g}",
                f"{comparison.error:.3f}",
                f"{comparison.error_split:.3f}",
                cross,
                f"{comparison.largest_cross_correlation:.3f}",
            ]
        )
        rows[-1] += [f"{with_tau:.3f}", f"{comparison.variance_ratio:.3f}", f"{comparison.local_share:.2g}"]
    drawn = matrices(fit) if fit.neighbours is None and sum(fit.sizes) <= MOST_POINTS else neighbour_scatter(fit)
    text = (
        "Of the decoder alone, without tau² where nothing else is said. The error is the Frobenius norm of the difference over "
        "that of the prior's covariance; between clients it is left out where the prior has almost no covariance there."
    )
    return figure("Covariance", drawn, text, table(heads, rows))


def matrices(fit: Fit) -> Figure:
    """Draws covariances of the prior, of SIGMA and their difference, a row for each phi; lines are the clients' borders."""
    rows = len(fit.comparisons)
    drawn = canvas(7.4, 0.35 + 2.25 * rows)
    all_axes = drawn.subplots(rows, 3, squeeze=False)
    borders = np.cumsum(fit.sizes)[:-1] - 0.5
    for axes_row, comparison in zip(all_axes, fit.comparisons):
        top = float(np.diag(comparison.true).max())
        gap = comparison.sigma - comparison.true
        for axes, values, title in zip(axes_row, (comparison.true, comparison.sigma, gap), ("prior", "SIGMA", "difference")):
            image = axes.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
            for border in borders:
                axes.axvline(border, color=INK, linewidth=0.6, alpha=0.6)
                axes.axhline(border, color=INK, linewidth=0.6, alpha=0.6)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(title, loc="left", fontsize=9, color=INK)
        axes_row[0].set_ylabel(f"{fit.condition} {comparison.phi:g}", fontsize=9, color=INK)
        axes_row[2].set_title(f"difference, error {comparison.error:.3f}", loc="left", fontsize=9, color=INK)
        bar = drawn.colorbar(image, ax=list(axes_row), shrink=0.85, pad=0.015)
        bar.ax.tick_params(labelsize=7.5, colors=INK)
        bar.ax.spines["outline"].set_visible(False)
    return drawn


def neighbour_scatter(fit: Fit) -> Figure:
    """Draws covariances of neighbouring areas under SIGMA against those under the prior, one panel for each phi."""
    panels = len(fit.comparisons)
    drawn = canvas(max(2.6 * panels, 3.4), 3.0)
    drawn.dpi = 160
    client = fit.client
    pairs = np.argwhere(np.triu(np.ones((sum(fit.sizes),) * 2), 1)) if fit.neighbours is None else fit.neighbours
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    pairs = pairs[:: max(1, len(pairs) // MOST_PAIRS)]
    i, k = pairs.T
    same = client[i] == client[k]
    for axes, comparison in zip(drawn.subplots(1, panels, squeeze=False)[0], fit.comparisons):
        for part, colour, label in ((same, BLUE, "one client"), (~same, ORANGE, "across a border")):
            values = comparison.true[i, k][part], comparison.sigma[i, k][part]
            axes.plot(*values, ".", color=colour, markersize=3, alpha=0.55, label=label, rasterized=len(i) > MOST_DRAWN)
        ends = [min(0.0, float(comparison.true[i, k].min())), float(comparison.true[i, k].max()) * 1.05]
        axes.plot(ends, ends, color=INK, linewidth=0.8, zorder=1)
        title = "" if fit.condition == "none" else f"{fit.condition} {comparison.phi:g}"
        axes.set_title(title, loc="left", fontsize=9, color=INK)
        axes.set_xlabel("covariance of neighbours, prior")
        _both(axes)
    first = drawn.axes[0]
    first.set_ylabel("SIGMA", fontsize=8.5, color=MUTED)
    first.legend(frameon=False, fontsize=8, loc="upper left", handletextpad=0.2, markerscale=2)
    return drawn


def _borders(fit: Fit) -> str:
    """Makes the section on variograms inside clients and across borders."""
    unit = "steps from neighbour to neighbour" if fit.neighbours is not None else "distance"
    text = (
        "Half the variance of differences between two places, by distance. Across a border the two belong to different clients: "
        "what they share there goes through the global latents alone. Dashed: with tau², independent from place to place."
    )
    return figure("Variogram", variograms(fit, unit), text)


def variograms(fit: Fit, unit: str) -> Figure:
    """Draws variograms of pairs inside clients and across their borders, a column for each phi."""
    panels = len(fit.comparisons)
    drawn = canvas(max(2.6 * panels, 3.4), 4.7)
    all_axes = drawn.subplots(2, panels, squeeze=False, sharex=True, sharey="col")
    for column, (comparison, v) in enumerate(zip(fit.comparisons, fit.variograms)):
        for row, (where, title) in enumerate((("within", "one client"), ("across", "across borders"))):
            axes = all_axes[row][column]
            x = v["distance"]
            axes.plot(x, v[f"true_{where}"], "o-", color=INK, linewidth=1.3, markersize=3, label="prior")
            axes.plot(x, v[f"sigma_{where}"], "o-", color=BLUE, linewidth=1.3, markersize=3, label="SIGMA")
            axes.plot(x, v[f"auxiliary_{where}"], "--", color=BLUE, linewidth=1.1, label="with tau²")
            value = "" if fit.condition == "none" else f"{fit.condition} {comparison.phi:g}, "
            axes.set_title(f"{value}{title}", loc="left", fontsize=9, color=INK)
            tidy(axes, "y")
        all_axes[1][column].set_xlabel(unit)
        all_axes[1][column].set_ylim(bottom=0)
    drawn.legend(*all_axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, fontsize=8.5)
    return drawn


def _marginals(fit: Fit) -> str:
    """Makes the table of the marginals' coverage."""
    levels = list(fit.coverage["auxiliary"])
    rows = [[kind, *(f"{values[level]:.1%}" for level in levels)] for kind, values in fit.coverage.items()]
    text = "Share of SIGMA's prior inside the central intervals of the prior it stands for, at the same phi."
    return section("Marginals", text, table(["model", *(f"{float(level):.0%}" for level in levels)], rows))


def _tau(fit: Fit) -> str:
    """Makes the section on tau^2."""
    tau = fit.tau
    clipped = f"{tau.low:,} of {tau.tau2.size:,} are at the floor, {tau.high:,} at the ceiling. " if tau.low + tau.high else ""
    text = (
        f"Variance that the decoder lacks, coordinate by coordinate. {clipped}On average tau² is "
        f"{np.mean(tau.tau2) / np.mean(tau.prior):.1%} of the prior's variance."
    )
    return figure("tau²", tau_figure(fit), text)


def tau_figure(fit: Fit) -> Figure:
    """Draws tau^2 over the prior's variance: of each client; or over phi, where it depends on phi."""
    tau = fit.tau
    share = tau.tau2 / tau.prior
    if len(tau.grid) > 1:
        drawn = canvas(7.2, 2.6)
        axes = drawn.subplots()
        low, middle, high = np.quantile(share, [0.05, 0.5, 0.95], axis=1)
        axes.fill_between(tau.grid, low, high, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(tau.grid, middle, color=BLUE, linewidth=1.6)
        axes.set_xlabel(f"{fit.condition}; median and 90 % of the coordinates of tau² / variance of the prior")
        axes.set_ylim(bottom=0)
        tidy(axes, "y")
        return drawn
    shown = fit.clients[:30]
    drawn = canvas(7.2, 0.8 + 0.22 * len(shown))
    drawn.dpi = 160
    axes = drawn.subplots()
    ends = np.concatenate([[0], np.cumsum(fit.sizes)])
    for row in range(len(shown)):
        values = share[0, ends[row] : ends[row + 1]]
        jitter = (np.arange(len(values)) * 0.618034 % 1 - 0.5) * 0.5
        axes.plot(values, row + jitter, ".", color=BLUE, markersize=2.5, alpha=0.45, rasterized=sum(fit.sizes) > MOST_DRAWN)
        axes.plot([np.median(values)] * 2, [row - 0.35, row + 0.35], color=INK, linewidth=1.4)
    axes.set_yticks(range(len(shown)), list(map(caption, shown)))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("tau² / variance of the prior, of every area or point; bar: median")
    tidy(axes, "x")
    return drawn


def _training(fit: Fit) -> str:
    """Makes the section on the training."""
    if not len(fit.state.curve):
        return ""
    terms = fit.objective
    kl = f"the KL of the global latents {number(terms['kl_global'])} and of the local ones {number(terms['kl_local'])} nats"
    text = (
        f"Means over every {int(fit.state.curve[0, 0]):,} steps. On draws that no step has seen the ELBO is "
        f"{number(terms['elbo'])}, {kl}; gamma is {number(fit.state.gamma)}."
    )
    return figure("Training", training_figure(fit.state), text)


def training_figure(state: State) -> Figure:
    """Draws the ELBO, and the KLs, over the steps."""
    drawn = canvas(7.2, 2.7)
    left, right = drawn.subplots(1, 2)
    x = state.curve[:, 0]
    elbo = state.curve[:, COLUMNS.index("elbo")]
    left.plot(x, elbo, color=BLUE, linewidth=1.1)
    settled = elbo[len(elbo) // 20 :]  # the first steps would hide all others
    low, high = float(settled.min()), float(settled.max())
    left.set_ylim(low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1))
    left.set_title("ELBO", loc="left", color=INK, fontsize=10, fontweight="bold")
    for name, colour, label in (("kl_global", BLUE, "global latents"), ("kl_local", ORANGE, "local latents")):
        right.plot(x, state.curve[:, COLUMNS.index(name)], color=colour, linewidth=1.1, label=label)
    right.set_title("KL, nats", loc="left", color=INK, fontsize=10, fontweight="bold")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("steps")
        tidy(axes, "y")
    return drawn


def _record(fit: Fit, config: Record) -> str:
    """Makes the section with the clients and the prior file."""
    rows = [[client, f"{size:,}"] for client, size in zip(fit.clients, fit.sizes)]
    kind = "areas" if fit.neighbours is not None else "points"
    places = table(["client", kind], rows)
    prior = piece("source", json.dumps(plain(config), indent=2))
    return section("Record", details("Clients", places), details("The prior file", prior))


def _both(axes: Axes) -> None:
    """Draws a light grid in both directions, and no frame."""
    tidy(axes, "y")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
