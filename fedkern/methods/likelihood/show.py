"""Prints what only a finished job of this method has: evidence, effects, survival curves."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...results import loo, shown
from ...results.plain import Record, real
from .patient import describe_values


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the lines that only such a job has: stop reason, evidence, effects and curves."""
    mode, draws = content.get("rounds_to_mode"), content.get("rounds_of_draws", content["rounds"])
    to_mode = "" if mode is None else f"{mode} rounds to the mode and "  # of unknowns of clients no mode is looked for
    yield f"{why}: {to_mode}{draws} of draws, {len(content['clients'])} clients"
    evidence = content.get("log_evidence")
    if evidence is not None and not math.isnan(real(evidence["value"])):
        yield (
            f"log evidence {real(evidence['value']):.3f} (standard error {real(evidence['error']):.2g}), which depends on the "
            "priors"
        )
    if "loo" in content:
        yield loo.line(content["loo"])
    if content.get("marginal"):
        yield ""
        yield from _marginal(content["marginal"]["effects"])
    yield from _hazards(content)


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
    named = [f"{cause}: {of_cause['events']}" for cause, of_cause in content.get("of_causes", {}).items()]
    of = f" ({', '.join(named)})" if named else ""
    yield f"{content['events']} events{of}{concordance}{proportional}"
    if words := describe_values(content.get("patient", {})):
        yield f"curves of a patient with {words}:"
    for row in content.get("survival", ()):
        low, high = (real(row[key]) for key in ("q025", "q975"))
        yield f"without event at {real(row['time']):g}: {real(row['mean']):.3f} ({low:.3f}, {high:.3f})"
    for cause, rows in content.get("incidence", {}).items():
        for row in rows:
            low, high = (real(row[key]) for key in ("q025", "q975"))
            yield f"{cause} by {real(row['time']):g}: {real(row['mean']):.3f} ({low:.3f}, {high:.3f})"
    if (row := content.get("restricted_mean")) is not None:
        mean, low, high = (real(row[key]) for key in ("mean", "q025", "q975"))
        yield f"mean time without event until {real(row['until']):g}: {mean:.4g} ({low:.4g}, {high:.4g})"


def _marginal(effects: Record) -> Iterator[str]:
    """Slopes and changes of the response's mean, averaged over rows."""
    clearest = sorted(effects, key=lambda name: -abs(effects[name]["mean"]) / max(effects[name]["sd"], 1e-300))[: shown.SLOPES]
    rows = [{**row, "parameter": f"{name} ({row['change']})", "site": ""} for name, row in effects.items() if name in clearest]
    yield from shown.table_lines(rows, {}, "", "marginal effects")
    if len(effects) > shown.SLOPES:
        yield f"({shown.SLOPES} of {len(effects)}, those furthest from zero in standard deviations)"
