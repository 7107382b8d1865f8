"""Prints a finished spatial job: the server's unknowns, how they were found, and how much was sent."""

from __future__ import annotations

from collections.abc import Iterator

from ...printing import align_numbers
from ...privacy.certificate import format_certificates
from ...results import shown
from ...results.bounds import elbo_line
from ...results.plain import Record, real
from . import meanings


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, parameters, chains, and bytes."""
    about, n_clients = content["sigma"], len(content["clients"])
    yield f"{why}: {content['rounds']} rounds, {n_clients} clients, {about['areas']} areas, {about['kind']} model"
    yield ""
    rows = {name: row for name, row in content["parameters"].items() if "_std" not in name}
    width = max((len(name) for name in rows), default=0)
    sampled = any("rhat" in row for row in rows.values())
    yield f"{'':<{width}}     mean       sd     2.5 %    97.5 %" + ("   R-hat      ESS" if sampled else "")
    for name, row in rows.items():
        mixing = f"  {real(row['rhat']):>6.3f} {real(row['ess']):>8.0f}" if "rhat" in row else ""  # nan of fewer than 4 draws
        mean, sd, low, high = align_numbers(*(row[what] for what in ("mean", "sd", "q025", "q975")))
        yield f"{name:<{width}} {mean} {sd}  {low}  {high}" + mixing
    yield from _ratios(about.get("ratios", {}))
    if chains := about.get("chains"):
        rate = sum(chains["acceptance"]) / len(chains["acceptance"])
        yield f"acceptance {rate:.2f}, {chains['divergences']} divergences after {chains['warmup']} rounds of warm-up"
    if nested := about.get("nested"):
        where = (
            f"{nested['places']} values of the hyperparameters, {nested['draws']} draws worth {nested['ess']:.0f} of equal weight"
        )
        yield f"nested: {where}, k-hat {nested['k_hat']:.2f}"
    if "elbo" in about:
        yield elbo_line(about)
    if fit := about.get("fit"):
        sums = f"elpd {fit['elpd']:.1f} (se {fit['se']:.1f}), {fit['p_loo']:.1f} effective parameters"
        yield f"leave-one-out (PSIS): {sums}, {fit['areas']} areas, {fit['unreliable']} of them not reliable"
        if "waic" in fit:
            yield f"WAIC {fit['waic']:.1f}, {fit['p_waic']:.1f} effective parameters, of the same areas"
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    claim = "counts have noise" if content["privacy"] else "no privacy is claimed, and a map's counts count as told"
    yield f"clients sent {sent:,} bytes in all; {claim}"
    if content["privacy"]:
        yield from format_certificates(content["privacy"])
    for note in shown.notes(content):
        yield f"note: {note}"
    yield f"digest {content['digest']}"


def _ratios(ratios: Record) -> Iterator[str]:
    """Yields e^coefficient as people read it, where the link has such ratios."""
    if not ratios:
        return
    rows = meanings.ratios(ratios)
    width = max(len(name) for name in (ratios["is"], *(name for name, _ in rows)))
    yield ""
    yield f"{ratios['is']:<{width}}   median     2.5 %    97.5 %"
    for name, row in rows:
        yield f"{name:<{width}} {'  '.join(align_numbers(*(row[what] for what in ('q50', 'q025', 'q975'))))}"
