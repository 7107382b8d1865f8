"""Says in a few lines what a result is of: its model as R writes it, rows and clients, priors, and the verdict in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..kernels.families import ACCELERATED, FAMILIES, HAZARDS, NOMINAL
from ..labels import OTHER
from ..models.encoding import Encoding
from ..models.formula_effects import coefficients_of_effects
from ..models.mixed.grouping import groupings
from ..models.mixed.layout import INTERCEPT_SD, PRIOR_SD
from ..printing import listed
from . import shown
from .plain import Record, real
from .verdict import HEADS

MOST = 160  # characters of a note
TERMS = 6  # covariates that are named
WORDS = {"mrf": "Markov random field", "sem": "cyclic structural equations", "own": "own model"}
UNITS = {"exchange": "sd", "public": "declared scale", "none": "unit"}  # data.standardise -> of a column


def lines(summary: Record, job: Record) -> Iterator[str]:
    """Yields the lines above the table of a result, the verdict last.

    Parameters
    ----------
    summary : the content of `summary.json`
    job : the job's tables with all defaults; empty where they are not known
    """
    model, data = job.get("model", {}), job.get("data", {})
    first, method = model_of(summary, job), f"{summary['method']}: "
    yield method + first.removeprefix(method) + shown.event(summary) + shown.family(summary)
    yield ", ".join(_counts(summary, model))
    yield from _by_summary(summary)
    if powers := summary.get("power_likelihood"):
        yield f"power likelihood, wider than that of all rows: {', '.join(f'{name}^{real(w):g}' for name, w in powers.items())}"
    if joined := summary["encoding"].get("joined"):
        # The levels of an undeclared column that no client keeps have names that their holders alone know.
        known = [name for name, column in data.get("columns", {}).items() if column.get("levels")]
        others = {name: () if name in known else ("any that no client keeps",) for name in joined}
        joined_by_column = (f"{name} ({', '.join((*levels, *others[name]))})" for name, levels in joined.items())
        yield f'rare levels are "{OTHER}": {"; ".join(joined_by_column)}'
    if priors := _priors(summary, model, data):
        yield f"priors: {priors}"
    if summary["privacy"]:
        worst = max(real(certificate.get("epsilon")) for certificate in summary["privacy"].values())
        yield f"largest epsilon of a client {worst:.4g}"
    if summary["metrics"]:
        scores = [f"{name.replace('_', '-')} {real(value):.4f}" for name, value in summary["metrics"].items()]
        yield f"test rows: {', '.join(scores)}"
    yield verdict(summary)


def _by_summary(summary: Record) -> list[str]:
    """Returns the line that names clients which take part by a summary; none without any."""
    clients = summary.get("summaries", {}).get("clients", {})
    named = [f"{name} ({about['rows']} rows)" if "rows" in about else str(name) for name, about in clients.items()]
    seen = " but differences between clients" if "heterogeneity" in summary else ""
    return [f"by a summary, and in no check of the model{seen}: {', '.join(named)}"] if named else []


def verdict(summary: Record) -> str:
    """Returns the verdict in words; of one that is not good also the reason. `summary["verdict"]` has all numbers."""
    word = summary["converged"]
    return HEADS[word] if word in (True, "settled") else str(summary["verdict"])


def model_of(summary: Record, job: Record) -> str:
    """Returns family, link and formula of a result; or of a job, of which `method`, `encoding` and `clients` are known."""
    model, data = job.get("model", {}), job.get("data", {})
    if summary["method"] == "describe":
        named = [str(column["name"]) for column in summary["encoding"].get("columns", ())]
        return f"describe: {listed(named, TERMS)}" + (f" by {model['group']}" if model.get("group") else "")
    family = str(model.get("family") or summary["encoding"].get("family") or "")
    if (kind := WORDS.get(str(model.get("kind")))) is not None:
        return f"{summary['method']}: {kind}"
    of = FAMILIES.get(family)
    link = model.get("link")
    if not link and family in HAZARDS:
        link = "log time" if family in ACCELERATED else "log hazard"
    elif not link:
        link = "logit" if of is None else of.link
    formula = model.get("formula") or _formula(summary, model, data)
    formula += "".join(f" + {grouping.text}" for grouping in groupings(model.get("random") or {}, shared=True))
    if len(summary["clients"]) > 1:  # what R would have of the pooled rows is another model
        formula += " + strata(client)" if family == "cox" else ""
        if groups := groupings(model.get("random") or {}):
            formula += f", {' and '.join(grouping.column for grouping in groups)} within clients"
    formula += f", sigma {model['sigma']}" if model.get("sigma") else ""
    return f"{family} ({link}): {formula}" if family else f"{summary['method']}: {formula}"


def _formula(summary: Record, model: Record, data: Record) -> str:
    """Returns response and covariates as a formula has them."""
    encoding = summary["encoding"]
    times = [data.get(name) for name in ("entry", "time", "time_upper", "event") if data.get(name)]
    response = f"Surv({', '.join(map(str, times))})" if data.get("time") else encoding.get("response") or data.get("response")
    named = [str(column["name"]) for column in encoding.get("columns", ())]
    terms = named[:TERMS]
    if len(named) > TERMS:
        terms.append(f".. ({len(named)} columns)")
    if not terms:
        terms = [f"columns of {len(summary['clients'])} clients"] if summary["method"] == "vertical" else ["1"]
    absorbed = model.get("intercept", True) or data.get("time") or model.get("family") == "ordinal"
    terms = terms if absorbed else ["0", *terms]
    random: Mapping[str, Any] = model.get("random") or {}
    terms += [grouping.text for grouping in groupings(random)]
    terms += [f"({' + '.join(['1', *random.get('client_slopes', ())])} | client)"] if random.get("client") else []
    terms += [f"{name}({data[name]})" for name in ("strata", "offset") if data.get(name)]
    return f"{response} ~ {' + '.join(terms)}"


def _counts(summary: Record, model: Record) -> Iterator[str]:
    """Yields numbers of rows, events, areas, groups and clients, as far as the server knows them."""
    checked: Record = summary.get("predictive") or {}
    inference = (summary.get("inference") or {}) if summary["method"] == "vertical" else {}
    rows = checked.get("rows", inference.get("rows"))
    events = summary.get("events")
    # Rows of clients that take part by a summary are told apart, where each tells its own, and their events are not.
    summed = [about.get("rows") for about in summary.get("summaries", {}).get("clients", {}).values()]
    if summed:
        events, summed = None, [rows, *summed]
        rows = None if None in summed else sum(summed)
    elif events is None and model.get("family") == "bernoulli" and "zeros" in checked.get("response", {}):
        events = checked["rows"] - checked["response"]["zeros"]
    fewer = summary.get("uncounted", 0)  # clients of few rows, or events, which tell the checks nothing
    areas = (summary.get("sigma") or {}).get("areas")
    counts = (summary.get("rows", rows) if fewer else rows, "rows", fewer and "rows" not in summary), (events, "events", fewer)
    for n, word, at_least in (*counts, (areas, "areas", False)):
        if n is not None:
            yield f"{'at least ' if at_least else ''}{int(n):,} {word}"
    present = sum(client["status"] != "lost" for client in summary["clients"].values())
    of = "" if present == len(summary["clients"]) else f" of {len(summary['clients'])}"
    yield f"{present}{of} clients, {summary['claim']}"
    if summary["method"] == "pvi" and not summary["privacy"]:
        family = FAMILIES.get(str(model.get("family")))
        # Intervals are too narrow where counts vary more than their mean tells, and pvi does not look.
        asks = ", and looks whether counts vary more" if family and family.counted and not family.dispersion else ""
        yield f'method = "likelihood" has the exact posterior{asks}'


def _priors(summary: Record, model: Record, data: Record) -> str:
    """Returns the priors of coefficients and intercept; "" where the job says them otherwise."""
    if "s_lambda" in model:
        return "spike and slab" if model.get("kind") == "regression" else ""
    prior: Mapping[str, Any] = model["prior"] if isinstance(model.get("prior"), Mapping) else {}
    used = used_priors(summary, model)
    sd = used.get("prior_sd") or prior.get("sd") or model.get("coefficient_sd")
    if sd is None or model.get("kind") == "own":
        return ""
    family = FAMILIES.get(str(model.get("family")))
    by = " x the response's" if family is not None and family.measured and summary["method"] in ("likelihood", "sigma") else ""
    effects = "effects at the means of columns and levels" if _of_effects(summary, model) else "coefficients"
    words = f"{effects} N({prior.get('mean', 0):g}, {sd:g}^2) per {UNITS.get(str(data.get('standardise')), 'sd')}{by}"
    words += _widened(summary, "prior_sd", PRIOR_SD)
    single = model.get("priors", {}) if summary["method"] == "likelihood" else {}
    named = "".join(f", {of_number(name, single_prior)}" for name, single_prior in single.items())
    spread, centre = used.get("intercept_sd") or model.get("coefficient_sd"), model.get("intercept_centre")
    if spread is None or not (model.get("intercept") or model.get("family") == "ordinal") or model.get("family") in NOMINAL:
        return words + named
    of = "intercept" if model["family"] != "ordinal" else "mean of thresholds"
    level = "pooled level" if centre is None else f"{centre:g}"
    return f"{words}, {of} N({level}, {spread:g}^2){_widened(summary, 'intercept_sd', INTERCEPT_SD)}{named}"


def of_number(name: str, prior: Record) -> str:
    """Returns the prior of a single number, in words.

    Examples
    --------
    >>> from fedkern.results.head import of_number
    >>> of_number("age", {"kind": "normal", "mean": 0.1, "sd": 0.5, "unit": "sd"})
    'age normal(0.1, 0.5) in sds'
    """
    numbers = [0.0] if prior.get("mean") is None and prior["kind"] in ("normal", "student") else []
    numbers += [real(prior[key]) for key in ("mean", "df", "sd", "scale", "shape", "rate") if prior.get(key) is not None]
    return f"{name} {prior['kind']}({', '.join(f'{number:g}' for number in numbers)}){' in sds' * (prior.get('unit') == 'sd')}"


def _of_effects(summary: Record, model: Record) -> bool:
    """Tells whether a formula has products or levels, so that a default prior is of other effects than its coefficients."""
    if summary["method"] != "likelihood" or "formula" not in summary["encoding"]:
        return False
    encoding = Encoding.from_dict(summary["encoding"])
    return coefficients_of_effects(encoding, of_constant=bool(model.get("intercept"))) is not None


def used_priors(summary: Record, model: Record) -> dict[str, Any]:
    """Returns the standard deviations of the priors that a result has been made with, by their keys."""
    given = {name: model[name] for name in ("prior_sd", "intercept_sd") if model.get(name) is not None}
    usual = {"prior_sd": PRIOR_SD, "intercept_sd": INTERCEPT_SD} if summary["method"] == "likelihood" else {}
    return {**usual, **given, **summary.get("priors", {})}


def _widened(summary: Record, name: str, usual: float) -> str:
    """Returns what is said of a default prior that would have decided what rows decide; "" where it was not widened."""
    return f" (widened from {usual:g}, which rows contradict)" if name in summary.get("priors", {}) else ""


def notes(texts: Sequence[str], most: int, where: str) -> list[str]:
    """Returns the first notes, cut, and a line on the others; `where`: these are."""
    rest = f" .. ({where})"
    shown = []
    for note in texts[:most]:
        if len(note) > MOST:
            note = note[: MOST - len(rest)].rsplit(" ", 1)[0] + rest
        shown.append(f"note: {note}")
    more = len(texts) - most
    return [*shown, f"({more} more note{'s' * (more > 1)}: {where})"] if more > 0 else shown
