"""Prints what only a finished sparse job has: effects with inclusion probabilities, sites, and how well chains have mixed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ...printing import align_numbers
from ...results import chains, loo
from ...results.plain import Record, real
from ...results.verdict import LEGEND, MARK, is_doubtful, marked

SHOWN = 20  # effects; all are in summary.json
SHOWN_MODES = 4


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, effects, selection, deviating sites, and mixing."""
    sampler = content["sampler"]
    present = [client["status"] != "lost" for client in content["clients"].values()]
    clients = f"{sum(present)} clients" if all(present) else f"{sum(present)} of {len(present)} clients"
    yield f"{why}: {content['rounds']} rounds of {sampler['chains']} chains, {sampler['kept']} of them kept, {clients}"
    yield ""
    if "by_mode" in content:
        yield from _by_mode(content["by_mode"])
    else:
        yield from _found(content)
        yield from _modes(content.get("modes", []))
    yield ""
    if "ess" in sampler and not {"rhat", "ess"} & {
        check.get("id") for check in content.get("checks", []) if check["is"] == content["converged"]
    }:  # the first line has said it
        yield f"R-hat at most {sampler['rhat']:.4f}, ESS at least {sampler['ess']:.0f} ({sampler['slowest']})"
    if "loo" in content:
        yield loo.line(content["loo"])
    if "selection" in content.get("meta", {}):
        chosen = content["meta"]["selection"]
        yield (
            f"meta-analysis of the clients' own fits (Benjamini and Hochberg, {chosen['fdr']:g}): "
            f"{', '.join(chosen['members'][:SHOWN]) or 'none'}"
        )
    yield from _imputed(content.get("imputed", {}))


def _imputed(clients: Mapping[str, Record]) -> Iterator[str]:
    """Yields how much of each client was missing; cells of each column are in summary.json."""
    rows = [(name, row, sum(row["cells_imputed"].values())) for name, row in clients.items()]
    lacking = [f"{name} {cells} in {row['rows_imputed']} of {row['rows']} rows" for name, row, cells in rows if cells]
    if lacking:
        more = f" and {len(lacking) - SHOWN} more clients" if len(lacking) > SHOWN else ""
        yield f"imputed cells: {'; '.join(lacking[:SHOWN])}{more}"


def _found(content: Record) -> Iterator[str]:
    """Yields effects, selection and deviating sites, of all chains or of those in one mode."""
    unsure = content.get("unsettled", [])
    yield from _effects(content["parameters"], unsure)
    yield ""
    chosen = content["selection"]
    members = [marked(name, unsure) for name in chosen["members"][:SHOWN]]
    yield f"in the slab, larger than what counts as zero (false discovery rate {chosen['fdr']:g}): {', '.join(members) or 'none'}"
    yield f"  {chosen['text']}"
    for group in content.get("groups", [])[:SHOWN]:
        yield (
            f"  hardly told apart: {', '.join(group['names'])}: P(one of them at least in the slab) = {group['p_any']:.2f}, "
            f"of one alone at most {group['largest']:.2f}"
        )
    yield from _deviating(content.get("deviating", []), chosen["delta"])
    if unsure:
        yield LEGEND


def _by_mode(modes: list[Record]) -> Iterator[str]:
    """Yields the numbers of each mode, where chains disagree."""
    n_chains = sum(len(mode["chains"]) for mode in modes)
    yield "the chains disagree: no numbers over all of them, but those of each mode"
    for k, mode in enumerate(modes[:SHOWN_MODES], start=1):
        which = ", ".join(map(str, mode["chains"]))
        label = "moved between modes" if mode["moved"] else f"mode {k}"
        yield ""
        yield f"{label}: {len(mode['chains'])} of {n_chains} chains, a share of {mode['share']:.2f} (chain {which})"
        yield f"  modes differ in {', '.join(f'{name} {value:+.2f}' for name, value in _differing(mode))}"
        yield from _found(mode)
    if len(modes) > SHOWN_MODES:
        yield f"({SHOWN_MODES} of {len(modes)}, those of most chains; all are in summary.json)"


def _differing(mode: Record) -> Iterator[tuple[str, float]]:
    """Yields the coefficients in which modes differ, with this one's means: sizes may differ where signs do not."""
    for name in list(mode["signs"])[:SHOWN]:
        yield name, chains.effect(mode["parameters"], name)["mean"]


def _effects(parameters: Mapping[str, Mapping[str, float]], unsure: Collection[str]) -> Iterator[str]:
    """Yields standardised effects with PIPs, their errors and, where it is known, the site average; the largest PIPs first."""
    rows = {}
    for name, row in parameters.items():
        if "pip" in row and "@" not in name:
            label = name.partition("[")[2][:-1]
            rows[label] = (row, parameters.get(f"average_std[{label}]", parameters.get(f"average[{label}]", {})))
    chosen = sorted(rows, key=lambda label: -rows[label][0]["pip"])[:SHOWN]
    width = max(len("standardised"), *(len(marked(label, unsure)) for label in chosen))
    yield f"{'standardised':<{width}}    PIP  error     mean       sd      5 %     95 %    site average (5 %, 95 %)"
    for label in chosen:
        row, average = rows[label]
        error = f"{real(row['pip_mcse']):>6.3f}" if "pip_mcse" in row else f"{'':>6}"
        numbers = " ".join(align_numbers(*(row[key] for key in ("mean", "sd", "q05", "q95"))))
        line = f"{marked(label, unsure):<{width}} {row['pip']:>6.3f} {error} {numbers}"
        if average:
            line += f"    {average['mean']:>7.3f} ({average['q05']:.3f}, {average['q95']:.3f})"
        yield line
    if len(rows) > SHOWN:
        yield f"({SHOWN} of {len(rows)}, those with the largest PIPs)"
    for name in ("negligible",):
        if name in parameters:
            row = parameters[name]
            yield f"effects below {row['mean']:.3f} ({row['q05']:.3f} to {row['q95']:.3f}) count as zero"


def _deviating(rows: list[Record], delta: float) -> Iterator[str]:
    """Yields the sites that differ from the others."""
    if rows:
        whom = "the other sites' median" if "p_differs" in rows[0] else "the global value"
        yield f"sites that differ from {whom} by more than {delta:g} (standardised):"
    for row in rows[:SHOWN]:
        mark = MARK if is_doubtful(real(row.get("rhat"))) else ""
        yield (
            f"  {row['client']}: {row['coefficient']}{mark} {row['mean']:.3f} ({row['q05']:.3f}, {row['q95']:.3f}), "
            f"globally {row['global']:.3f}; P = {row.get('p_differs', row['p_deviates']):.2f}"
        )


def _modes(modes: list[Record]) -> Iterator[str]:
    """Yields the shares of the modes."""
    if len(modes) > 1:
        shares = ", ".join(f"{mode['share']:.2f}" for mode in modes)
        yield f"{len(modes)} modes by the signs of the strong coefficients, with shares {shares} of the draws: see summary.json"
