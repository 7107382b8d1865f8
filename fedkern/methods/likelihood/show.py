"""Prints a finished job: evidence and weights, coefficients with their ratios, effects, and the bytes that were sent."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...models.encoding import INTERCEPT
from ...printing import align_numbers
from ...results import loo, shown
from ...results.plain import Record, real
from ...results.report import against_guessing
from ...results.table import ratio_of
from . import changes
from .patient import describe_values


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the lines of a finished job: stop reason, evidence, metrics, coefficients, effects, and the bytes that were sent."""
    mode, draws = content.get("rounds_to_mode"), content.get("rounds_of_draws", content["rounds"])
    to_mode = "" if mode is None else f"{mode} rounds to the mode and "  # of unknowns of clients no mode is looked for
    yield f"{why}: {to_mode}{draws} of draws, {len(content['clients'])} clients"
    evidence = content.get("log_evidence")
    if evidence is not None and not math.isnan(real(evidence["value"])):
        yield (
            f"log evidence {real(evidence['value']):.3f} (standard error {real(evidence['error']):.2g}), which depends on the "
            "priors"
        )
    if content["metrics"]:
        yield "test rows: " + ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in content["metrics"].items())
        if worse := against_guessing(content["metrics"]["log_likelihood"], content.get("test", {}).get("guess")):
            yield worse
    if "loo" in content:
        yield loo.line(content["loo"])
    yield ""
    yield from _coefficients(content)
    if content.get("marginal"):
        yield ""
        yield from _marginal(content["marginal"]["effects"])
    yield from _hazards(content)
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    yield f"clients sent {sent:,} bytes in all"
    yield "no privacy is claimed: what clients sent has no noise in it, and can tell rows where they are few"
    for note in shown.notes(content):
        yield f"note: {note}"
    yield f"digest {content['digest']}"


def _hazards(content: Record) -> Iterator[str]:
    """Survival times: events, concordance, the smallest p-value of proportional hazards, and curves."""
    if "events" not in content:
        return
    slopes, proportional = content.get("proportional_hazards", {}), ""
    concordance = f", concordance {real(content['concordance']):.3f}" if "concordance" in content else ""
    if slopes:
        least = min(slopes, key=lambda name: real(slopes[name]["p"]))
        which = f"the smallest p-value of {len(slopes)} is" if len(slopes) > 1 else "p-value"
        proportional = f"; proportional hazards: {which} {real(slopes[least]['p']):.2g} ({least})"
    yield ""
    yield f"{content['events']} events{concordance}{proportional}"
    if words := describe_values(content.get("patient", {})):
        yield f"curves of a patient with {words}:"
    for row in content.get("survival", ()):
        low, high = (real(row[key]) for key in ("q025", "q975"))
        yield f"without event at {real(row['time']):g}: {real(row['mean']):.3f} ({low:.3f}, {high:.3f})"
    if (row := content.get("restricted_mean")) is not None:
        mean, low, high = (real(row[key]) for key in ("mean", "q025", "q975"))
        yield f"mean time without event until {real(row['until']):g}: {mean:.4g} ({low:.4g}, {high:.4g})"


def _coefficients(content: Record) -> Iterator[str]:
    """On the data's scale; of a slope also its ratio, where the link has one."""
    every = shown.of_summary(content)
    named = shown.choose(every, content)
    slopes = shown.slopes_begin(content)
    intercepts = {f"theta[{before}{INTERCEPT}]" for before in shown.blocks(content)}
    encoding = content["encoding"]
    word, ratios = ratio_of(content.get("hazards", encoding.get("family", ""))), dict[tuple[str, str], list[float]]()
    for row in named if word else ():
        if row["parameter"].startswith(slopes) and row["parameter"] not in intercepts:
            ratios[row["parameter"], ""] = [math.exp(min(row[key], 700.0)) for key in ("q50", "q025", "q975")]
    yield from shown.table_lines(named, ratios, word.replace("_", " "))
    if len(named) < len(every):
        yield f"({len(named)} of {len(every)} rows, of slopes those furthest from zero in standard deviations)"


def _marginal(effects: Record) -> Iterator[str]:
    """Slopes and changes of the response's mean, averaged over rows."""
    clearest = sorted(effects, key=lambda name: -abs(effects[name]["mean"]) / max(effects[name]["sd"], 1e-300))[: shown.SLOPES]
    words = {name: f"{name} ({effects[name]['change']})" for name in effects if name in clearest}
    head = "marginal effects"
    width = max(map(len, (head, *words.values())))
    yield f"{head:<{width}}     mean       sd     2.5 %    97.5 %"
    for name, said in words.items():
        mean, sd, low, high = align_numbers(*(real(effects[name][key]) for key in changes.SHOWN))
        yield f"{said:<{width}} {mean} {sd}  {low}  {high}"
    if len(effects) > shown.SLOPES:
        yield f"({shown.SLOPES} of {len(effects)}, those furthest from zero in standard deviations)"
