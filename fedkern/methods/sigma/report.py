"""Makes the report's sections on a spatial model: the global unknowns, and the areas of clients whose folders are here.

An area's posterior has no message: the page shows those that lie in the run's folder; a job over several machines has none there.
A glossary explains the numbers of a map in plain words, for a reader who does not know the model.
Source: docs/methods/sigma.md, "The table of areas"; docs/spec/sigma.md, sections 1 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...results import guard
from ...results.page import details, figure, number, paragraph, piece, section, table
from ...results.plain import Record
from ...results.plots import BLUE, GRID, INK, MUTED, ORANGE, Figure, Part, areas_drawn, canvas, tidy
from ...results.report import RunFiles, Shapes, Tile
from . import maps
from .rows import SHOWN

PHI = (
    "how alike neighbours are, from 0 (an area says nothing of its neighbours) to 1 (a smooth map: what the map adds to an area "
    "is expected at the mean of its neighbours)"
)
HYPER = {
    "car": f"{PHI}. Values far below 0.9 still mean little likeness: half-way is not at 0.5",
    "leroux": PHI,
    "bym2": "the share of what the map adds that is spatial, from 0 (noise, each area for itself) to 1 (a smooth map)",
    "gp": "the distance, in the unit of the coordinates, within which places are alike; at three times as far little is left",
}
EXCEEDED = (
    "the probability, given all clients' data, that the area's {level} is above {limit}. From 0.95 on the data "
    "leave little doubt that it is, from 0.8 on it probably is; below 0.2 it probably is not, below 0.05 hardly; in between they "
    "do not tell"
)
INTERVALS = (
    "all are of 95 %. Beside what was seen stands the exact interval of that area alone, without any model; beside a {level} the "
    "interval in which it lies with a probability of 95 %, given the data, the model and its priors"
)
SDS = ("sigma_theta", "sigma_period", "sigma", "sigma_extra", "dispersion")
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)  # of an axis
LISTED = 40  # areas of the open table: a map that has more has the highest there, and all of them in one that unfolds
SEEN = "as seen"  # above the panel of what was counted
WORDS = {"rate": "rate", "probability": "probability", "mean": "mean"}


def of(run: RunFiles, level: str, above: str, exposures: str) -> dict[str, str]:
    """Returns word -> meaning, for the numbers of this page. `level`, `above`: columns of areas, or empty without any."""
    meanings = dict(_unknowns(run))
    if level:
        limit = above.rpartition("_above_")[2]
        meanings[level] = _level(level, exposures)
        meanings[f"P({level} > {limit})"] = EXCEEDED.format(level=level, limit=_limit(level, limit))
        meanings["Intervals"] = INTERVALS.format(level=level)
    return {word: f"{meaning}." for word, meaning in meanings.items()}


def _limit(level: str, limit: str) -> str:
    """Names the limit in words."""
    return f"the {level} of all clients together" if limit == "overall" else limit


def _level(level: str, exposures: str) -> str:
    """Explains the level."""
    if level == "rate":
        few = "expected cases" if exposures == "expected" else "cases"
        what = f"what observed / {exposures} would be without chance, as the model has it: an area with few {few} leans on "
        what += "its neighbours and covariates"
        if exposures == "exposure":
            return f"{what}. It is cases for one unit of the exposure"
        return f"{what}. 1 is as many cases as expected, 1.2 a fifth more, 0.8 a fifth less"
    what = f"what the {level} would be without chance, as the model has it"
    return f"{what}: an area of which little is known leans on its neighbours and covariates"


def _unknowns(run: RunFiles) -> Iterator[tuple[str, str]]:
    """Yields the hyperparameters, with their posteriors."""
    about, parameters = run.summary.get("sigma", {}), run.summary.get("parameters", {})
    kind = str(about.get("prior", {}).get("kind", ""))
    if run.own:
        kind, parameters = str(run.said.get("prior", "")), run.said.get("parameters", {})
    for name in ("phi", "rho", "lengthscale"):
        if name in parameters:
            prior = "bym2" if name == "rho" else kind
            yield name, f"{_posterior(parameters[name])}: {HYPER[prior]}"
    if "sigma_theta" in parameters:
        row = parameters["sigma_theta"]
        yield "sigma_theta", f"{_posterior(row)}: {_scale(run, kind, float(row['mean']))}"


def _scale(run: RunFiles, kind: str, mean: float) -> str:
    """Explains the size of differences between areas."""
    family = str(run.job.get("model", {}).get("family", "poisson"))
    what = {"gaussian": "mean", "binomial": "odds", "bernoulli": "odds"}.get(family, "rate")
    log = "" if what == "mean" else "the logarithm of "
    text = f"how much areas differ beyond what intercept and covariates say, on {log}the {what}; 0 is a map without differences"
    if kind not in ("car", "bym2", "gp") or mean > 20:
        return text
    by = mean / 2 if kind == "car" else mean  # of an area with four neighbours; of any
    whom = "four neighbours lead one to expect for the area between them" if kind == "car" else "these say"
    within = f"{by:.3g}" if what == "mean" else f"a factor of {math.exp(by):.3g}"
    return f"{text}. Two times in three an area's {what} is within {within} of what {whom}"


def _posterior(row: Record) -> str:
    """Formats a mean with its 95 % interval."""
    ends = f" ({float(row['q025']):.3g} to {float(row['q975']):.3g})" if "q025" in row else ""
    return f"{float(row['mean']):.3g}{ends}"


def ratios(about: Record) -> list[tuple[str, Record]]:
    """Returns the ratios of summary.json, each with its name: of a level against another, of a number for a unit and for an
    sd."""
    of_levels = [*about.get("a level", {}).items()]
    return of_levels + [(f"{name}, {unit}", row) for unit in ("a unit", "an sd") for name, row in about.get(unit, {}).items()]


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run; maps of the clients whose areas.csv lies in this folder."""
    rows = [{**row, "client": client} for client, areas in run.areas.items() for row in areas]
    names = _columns(rows)
    meant = section("What the numbers mean", piece("glossary", of(run, *names, maps.exposures(rows))))
    of_areas = [_map(rows, names, _shapes(rows, run.shapes)), _areas(rows, names, run), meant]
    of_areas += [_smoothing(rows, names), _fits(run.fits)]
    if run.own:
        return of_areas
    fit = [_totals(run.summary), _chains(run.summary), _weights(run.summary)]
    return [_parameters(run.summary), _periods(run.summary), *of_areas, *fit, _progress(run.lines)]


@guard.figure("maps for print", {})
def pictures(run: RunFiles) -> dict[str, bytes]:
    """Returns maps/*.png and *.svg, where the folder has polygons and matplotlib is installed."""
    return maps.files(run)


@guard.figure("the page's tiles", [])
def tiles(run: RunFiles) -> list[Tile]:
    """Returns the tiles at the top of the page."""
    if run.own:
        return [("Areas", number(sum(map(len, run.areas.values()))))]
    about, parameters = run.summary["sigma"], run.summary.get("parameters", {})
    known = [name for name in ("phi", "lengthscale", "rho", "sigma_theta") if name in parameters]
    shown = [(name, three(parameters[name]["mean"])) for name in known]
    return [*shown, ("Areas", number(about["areas"]))]


def _columns(rows: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """Returns the name of the level ("rate", "probability" or "mean") and of the column with the chance that it is high."""
    if not rows:
        return "", ""
    above = next(name for name in rows[0] if name.startswith("p_") and "_above_" in name)
    return next(word for word in WORDS if f"{word}_mean" in rows[0] and word in above), above


def _words(above: str) -> str:
    """Returns "p_rate_above_1" as people write it."""
    name, _, threshold = above.removeprefix("p_").partition("_above_")
    return f"P({name} > {threshold})"


@guard.figure("the page's section parameters", "")
def _parameters(summary: Record) -> str:
    """Makes the table of the server's unknowns."""
    shown = {name: v for name, v in summary.get("parameters", {}).items() if "_std" not in name and "period[" not in name}
    keys = ["mean", "sd", "q025", "q975"]
    if any("rhat" in v for v in shown.values()):
        keys += ["rhat", "ess"]
    about = summary["sigma"]
    prior = about.get("prior_of", {})
    rows = [[name, *(three(v.get(key, "")) for key in keys), _ends(prior.get(name, {}))] for name, v in shown.items()]
    head = {"q025": "2.5 %", "q975": "97.5 %", "rhat": "R-hat", "ess": "ESS"}
    prior, latents = about["prior"]["kind"], about["latents"]
    if about["kind"] == "within":
        words = f"{about['areas']} areas, their {prior} prior exact inside each client: {latents['global']} numbers tie them"
    else:
        words = f"{about['kind'].capitalize()} model of {about['areas']} areas with a trained {prior} prior: {latents['global']} "
        words += f"global and {latents['local']} local latent variables stand for the map"
    columns = ["name", *(head.get(key, key) for key in keys), "prior, 2.5 % to 97.5 %"]
    closing = paragraph(f"{words}. The areas' posteriors stay with their clients.")
    return section("Coefficients", table(columns, rows), _ratios(about.get("ratios", {})), closing)


@guard.figure("the page's section periods", "")
def _periods(summary: Record) -> str:
    """Draws each period's ratio to the level of all, with its 95 % interval."""
    periods = summary["sigma"].get("periods")
    if not periods:
        return ""
    names, of_periods = list(periods["of"]), list(periods["of"].values())
    low, middle, high = ([row[what] for row in of_periods] for what in ("q025", "q50", "q975"))
    drawn, positions = canvas(7.2, 2.6), range(len(names))
    axes = drawn.subplots()
    ratio = periods["is"] != "difference"
    level = 1.0 if ratio else 0.0
    axes.axhline(level, color=ORANGE, linewidth=1, linestyle="--", zorder=1)
    axes.vlines(positions, low, high, color=MUTED, linewidth=1.2, zorder=2)
    axes.plot(positions, middle, color=BLUE, linewidth=1.2, marker="o", markersize=4.5, zorder=3)
    if ratio:
        axes.set_yscale("log")
        ticks = [value for value in RATIOS if min(low) <= value <= max(high)] or [1.0]
        axes.set_yticks(ticks, [number(value) for value in ticks])
        axes.minorticks_off()
    step = -(-len(names) // LISTED)
    axes.set_xticks(list(positions)[::step], names[::step])
    tidy(axes, "y")
    words = "1 is the level of all periods (their geometric mean)" if ratio else "0 is the level of all periods"
    text = f"The {periods['is']} of each period, posterior median and 95 % interval: {words}. Areas' rates are at that level."
    rows = [[name, *(number(row[what]) for what in ("q50", "q025", "q975"))] for name, row in periods["of"].items()]
    shown = table(["period", periods["is"], "2.5 %", "97.5 %"], rows)
    return figure("Periods", drawn, text, shown)


def _ends(prior: Mapping[str, float]) -> str:
    """Returns where 95 % of a prior lie: a posterior that fills it has learnt nothing."""
    return f"{three(prior['q025'])} to {three(prior['q975'])}" if "q025" in prior else ""


def _ratios(about: Record) -> str:
    """Makes the table of ratios."""
    if not about:
        return ""
    rows = [[name, *(three(row[what]) for what in ("q50", "q025", "q975"))] for name, row in ratios(about)]
    return table([about["is"], "median", "2.5 %", "97.5 %"], rows)


@guard.figure("the page's section chains", "")
def _chains(summary: Record) -> str:
    """Makes the table of the chains."""
    chains = summary["sigma"].get("chains")
    if not chains:
        return ""
    rows = [[str(c + 1), number(a), number(h)] for c, (a, h) in enumerate(zip(chains["acceptance"], chains["step_size"]))]
    text = f"{chains['divergences']} divergences after {chains['warmup']} rounds of warm-up."
    return section("Chains", table(["chain", "acceptance", "step"], rows), paragraph(text))


@guard.figure("the page's section weights", "")
def _weights(summary: Record) -> str:
    """Makes the table of a nested Laplace approximation."""
    nested = summary["sigma"].get("nested")
    if not nested:
        return ""
    error, evidence = nested["monte_carlo_error"], nested["log_evidence"]
    border = number(nested["border"]) if nested["border"] else ""
    rows = [
        ["values of the hyperparameters", str(nested["places"])],
        ["density at the border of these, nats below the mode", border],
        ["draws, and of equal weight", f"{nested['draws']}, {nested['ess']:.0f}"],
        ["k-hat", number(nested["k_hat"])],
        ["a mean may be off by, in sds", number(error["mean"])],
        ["an sd may be off by", f"{error['sd']:.1%}"],
        ["integrating areas out, nats", number(nested["integration"])],
        ["log evidence", f"{number(evidence['value'])} ± {number(evidence['error'])}"],
    ]
    return section("Nested Laplace", table(["", ""], rows))


@guard.figure("the page's section progress", "")
def _progress(lines: Sequence[Record]) -> str:
    """Draws the server's numbers over the rounds."""
    names = [name for name in ("elbo", "phi", "lengthscale", "rho", *SDS) if _points(lines, name)]
    if not names:
        return ""
    drawn = canvas(7.2, 2.4)
    for axes, name in zip(drawn.subplots(1, len(names), squeeze=False)[0], names):
        x, y = zip(*_points(lines, name))
        axes.plot(x, y, color=BLUE, linewidth=1.4)
        if name == "elbo":
            axes.set_ylim(bottom=sorted(y)[len(y) // 10])
        title = "ELBO" if name == "elbo" else name
        axes.set_title(title, loc="left", color=INK, fontsize=9.5, fontweight="bold")
        axes.set_xlabel("rounds")
        tidy(axes, "y")
    return figure(
        "Progress", drawn, "What the server knew after each stretch of rounds (of chains: the mean of their present states)."
    )


def _points(lines: Sequence[Record], name: str) -> list[tuple[int, float]]:
    """Returns the values of a metric by round."""
    points = [(line["round"], line["metrics"][name]) for line in lines if name in line.get("metrics", {})]
    return points if len(points) > 1 else []


def _shapes(rows: Sequence[Mapping[str, str]], shapes: Shapes) -> list[Sequence[Part]]:
    """Returns, for each row, the parts of its area; empty where any of them is not known."""
    parts = [shapes.get(row["client"], {}).get(row["area"], ()) for row in rows]
    return parts if all(parts) else []


def picture(folder: Path) -> Figure | None:
    """Draws the map of the clients' areas that lie in a run's folder; None where none are there."""
    areas, shapes = maps.areas_of(folder)
    rows = [{**row, "client": client} for client, of_client in areas.items() for row in of_client]
    return _drawn(rows, _columns(rows), _shapes(rows, shapes))


@guard.figure("the page's section map", "")
def _map(rows: Sequence[Mapping[str, str]], names: tuple[str, str], shapes: Sequence[Sequence[Part]]) -> str:
    """Draws the level and the probability that it is high on a map."""
    drawn = _drawn(rows, names, shapes)
    text = "Areas of the clients whose folders are here." if shapes else "Each area at its centre."
    if drawn is not None and any(axes.get_title(loc="left") == SEEN for axes in drawn.axes):
        text += " What was seen has the colours of the smoothed map."
    return figure("Map", drawn, text)


def _drawn(rows: Sequence[Mapping[str, str]], names: tuple[str, str], shapes: Sequence[Sequence[Part]]) -> Figure | None:
    centred = all(row.get("x") and row.get("y") for row in rows)
    if not rows or not (shapes or centred):
        return None
    level, above = names
    panels = [(f"{level}_mean", f"{level}, posterior mean"), (above, _words(above))]
    if any(row.get("crude") for row in rows) and shapes:
        panels = [("crude", SEEN), *panels]
    height = 3.3 if len(panels) == 2 else 2.9
    drawn = canvas(7.2, height)
    scale = [float(row[f"{level}_mean"]) for row in rows if row[f"{level}_mean"]]
    if not scale:  # all of them are hidden
        return None
    ends = _quantile(scale, 0.02), _quantile(scale, 0.98)
    for axes, (name, words) in zip(drawn.subplots(1, len(panels)), panels):
        values = [float(row[name] or "nan") for row in rows]
        if shapes:
            points = areas_drawn(axes, shapes, values)
        else:
            x, y = ([float(row[axis]) for row in rows] for axis in ("x", "y"))
            points = axes.scatter(x, y, c=values, s=max(4.0, min(90.0, 26000 / len(rows))), linewidths=0)
            axes.set_aspect("equal", adjustable="datalim")
        if name == above:
            colours, norm = maps.classes()
            points.set_cmap(colours)
            points.set_norm(norm)
        else:
            points.set_cmap("viridis")
            points.set_clim(*ends)
        axes.set_title(words, loc="left", color=INK, fontsize=9.5, fontweight="bold")
        axes.set_axis_off()
        bar = drawn.colorbar(points, ax=axes, shrink=0.75, aspect=18)
        bar.ax.spines["outline"].set_visible(False)
        bar.ax.tick_params(labelsize=7.5, color=MUTED)
    return drawn


def _quantile(values: Sequence[float], share: float) -> float:
    """Returns a quantile of values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@guard.figure("the page's section smoothing", "")
def _smoothing(rows: Sequence[Mapping[str, str]], names: tuple[str, str]) -> str:
    """Draws raw against smoothed rates of Poisson counts."""
    level, _ = names
    seen = [row for row in rows if row.get("crude")]
    if level != "rate" or not seen:
        return ""
    drawn = _shrinkage(seen)
    text = (
        f"Observed over {maps.exposures(seen)} against the posterior mean with its 95 % interval; areas with little exposure are "
        "drawn smaller, and are drawn to their neighbours most."
    )
    return figure("Smoothing", drawn, text)


def _shrinkage(rows: Sequence[Mapping[str, str]]) -> Figure:
    """Draws this figure."""
    drawn = canvas(7.2, 3.4)
    axes = drawn.subplots()
    exposure = [float(row["exposure"]) for row in rows]
    raw = [float(row["observed"]) / e for row, e in zip(rows, exposure)]
    mean, low, high = ([float(row[f"rate_{what}"]) for row in rows] for what in ("mean", "q025", "q975"))
    largest = max(exposure)
    colour = GRID if len(rows) > 200 else MUTED
    axes.vlines(raw, low, high, color=colour, linewidth=0.6, alpha=0.7, zorder=1)
    axes.scatter(raw, mean, s=[5 + 60 * e / largest for e in exposure], color=BLUE, edgecolor="white", linewidth=0.4, zorder=3)
    top = max(_quantile(raw, 0.99), max(mean))
    axes.plot([0, top], [0, top], color=ORANGE, linewidth=1, linestyle="--", zorder=2)
    axes.set(xlim=(-0.03 * top, 1.05 * top), ylim=(0, 1.1 * max(_quantile(high, 0.98), max(mean))))
    axes.set(xlabel=f"observed / {maps.exposures(rows)}", ylabel="rate")
    tidy(axes, "y")
    axes.yaxis.label.set(color=MUTED, fontsize=8.5)
    return drawn


@guard.figure("the page's section fits", "")
def _fits(fits: Mapping[str, Record]) -> str:
    """Makes a line for each client: leave-one-out density, Pearson's chi-square, PIT and Moran's I of its areas."""
    rows = []
    for client, fit in fits.items():
        pearson, pit, moran = fit["pearson"], fit.get("pit"), fit.get("moran")
        waic = three(fit["waic"]["waic"]) if "waic" in fit else ""
        cells = [client, str(fit["areas"]), three(fit["elpd"]), str(fit["unreliable"]), waic]
        chi_square = three(pearson["chi_square"]) if pearson["areas"] else ""
        ends = f"{pit['below_0.05']:.0%} / {pit['above_0.95']:.0%}" if pit else ""
        agreement = f"{three(moran['i'])} ({three(moran['z'])} sd)" if moran else ""
        rows.append([*cells, chi_square, ends, agreement])
    if not rows:
        return ""
    head = ["client", "areas with rows", "elpd", "not reliable", "WAIC", "chi-square", "PIT below .05 / above .95", "Moran's I"]
    text = (
        "Each area foreseen without its own rows (elpd by PSIS-LOO, WAIC = -2 elpd by another route: of two models of the same "
        "rows the one with the larger elpd or the smaller WAIC foresees better; PIT: 5 % should be at each end), and how far "
        "its rows are from what is fitted: the sum of squares of Pearson's residuals, and whether residuals of neighbours inside "
        "the client agree (Moran's I, in sds from what independent numbers would give)."
    )
    return section("Fit", table(head, rows), paragraph(text))


@guard.figure("the page's section totals", "")
def _totals(summary: Record) -> str:
    """Makes the table of the clients' sums of how well areas are predicted, where the job asked for them."""
    fit = summary["sigma"].get("fit")
    if not fit:
        return ""
    row = [three(fit[what]) for what in ("elpd", "se", "p_loo")] + [str(fit["areas"]), str(fit["unreliable"])]
    text = (
        "Over the areas of all clients, by PSIS-LOO. Two jobs with the same rows are compared by their elpd: the larger one "
        "foresees better; a difference that is not several times the standard error says little."
    )
    head = ["elpd", "standard error", "p_loo", "areas", "not reliable"]
    if "waic" in fit:  # runs of before it was sent have none
        row, head = [*row, three(fit["waic"]), three(fit["p_waic"])], [*head, "WAIC", "p_waic"]
        text += " WAIC is -2 elpd by another route: the smaller one foresees better."
    return section("Areas without themselves", table(head, [row]), paragraph(text))


@guard.figure("the page's section areas", "")
def _areas(rows: Sequence[Mapping[str, str]], names: tuple[str, str], run: RunFiles) -> str:
    """Makes the table for print: observed numbers, the model's, and whether they are high; the highest first."""
    if not rows:
        return ""
    level, above = names
    shown = [row for row in rows if row[above]]
    ordered = sorted(shown, key=lambda row: (-float(row[above]), -float(row[f"{level}_mean"])))
    ordered += [row for row in rows if not row[above]]
    seen = [("observed", "observed")] if level != "mean" else []
    exposure = maps.exposures(rows) if level == "rate" else "expected"
    if "exposure" in rows[0]:
        seen.append(("exposure", exposure))
    elif "trials" in rows[0]:
        seen.append(("trials", "trials"))
    crude = {"rate": f"observed / {exposure}", "probability": "observed / trials", "mean": "mean as seen"}[level]
    crude += _together(" (95 %)") if "crude_low" in rows[0] else ""
    identity = ["area"] if run.own else ["client", "area"]
    head = [*identity, *(words for _, words in seen), crude]
    head += [_together(f"{level} (95 %)"), _together(_words(above))]
    body = []
    for row in ordered:
        cells = [*(row[column] for column in identity), *(_cell(row, column) for column, _ in seen)]
        cells += [_with_ends(row, "crude", "crude_low", "crude_high")]
        cells += [_with_ends(row, *(f"{level}_{what}" for what in ("mean", "q025", "q975"))), chance(row[above])]
        body.append(cells)
    where = "areas.csv" if run.own else "client-NAME/areas.csv"
    text = f"{len(rows)} areas are in this folder; {where} has all columns."
    if run.job.get("privacy"):
        text = f"Observed counts have noise, and all numbers are of these. {text}"
    if unread := run.said.get("unread"):
        more = [".."] if len(unread) > SHOWN else []
        some = ", ".join([*map(str, unread[:SHOWN]), *more])
        text = (
            f"Nothing was read of {len(unread)} of these areas ({some}): no line of the file that names them can be read "
            f"(rows.json), and they are predicted. {text}"
        )
    if how := run.said.get("given_the_rest"):
        text += f" {str(how)[:1].upper()}{str(how)[1:]}."
    if hidden := len(rows) - len(shown):
        text += f" Of {hidden} with a count that is an interval nothing is shown (output.suppressed)."
    all_areas = details(f"All {len(body):,} areas", table(head, body)) if len(body) > LISTED else ""
    return section("Areas, the highest first", table(head, body[:LISTED]), all_areas, paragraph(text))


def _cell(row: Mapping[str, str], column: str) -> str:
    """Formats a number of the table; a text such as "0 to 4" stays unchanged."""
    try:
        value = float(row[column])
    except ValueError:
        return row[column]
    return f"{value:,.0f}" if column != "exposure" else three(value)


def _with_ends(row: Mapping[str, str], middle: str, low: str, high: str) -> str:
    """Formats "1.2 (0.9 to 1.6)"; empty where there is no number."""
    if not row.get(middle):
        return ""
    ends = f" ({three(float(row[low]))} to {three(float(row[high]))})" if row.get(low) else ""
    return _together(three(float(row[middle])) + ends)


def _together(text: str) -> str:
    """Returns a text that no line end parts."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def three(value: object) -> str:
    """Formats three significant digits, all of them written; thousands apart and whole."""
    if not isinstance(value, float) or not math.isfinite(value):
        return number(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def chance(cell: str) -> str:
    """Formats a probability; draws do not know how near to 0 or 1 it is."""
    if not cell:
        return ""
    p = float(cell)
    if p < 0.001:
        return "< 0.001"
    if p > 0.999:
        return "> 0.999"
    return f"{p:.3f}"
