"""What a finished run prints: a few lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..methods.sigma import show as sigma
from ..methods.sparse import show as sparse
from ..methods.vertical import show as vertical
from ..privacy.certificate import text
from ..results.gaussian import comparable
from ..results.result import Result

SHOWN = 12  # coefficients; all of them are in summary.json
WHY = {
    "rounds": "all rounds are done",
    "converged": "R-hat and ESS are as wanted",
    "budget": "the privacy budgets are spent",
    "updates": "all clients have made their updates",
    "lost": "no client is left",
}


def lines(result: Result) -> Iterator[str]:
    """Stop reason, metrics, the clearest coefficients, what was sent, and the certificates."""
    content = result.summary
    if content["method"] == "sparse":
        yield from sparse.lines(content, WHY[result.stop])
        return
    if content["method"] == "sigma":
        yield from sigma.lines(content, WHY[result.stop])
        return
    if content["method"] == "vertical":
        yield from vertical.lines(content, WHY[result.stop])
        if result.privacy:
            yield from _certificates(result.privacy)
        return
    updates = sum(client["updates"] for client in content["clients"].values())
    yield f"{WHY[result.stop]}: {content['rounds']} rounds, {updates} updates of {len(content['clients'])} clients"
    if result.metrics:
        yield "test rows: " + ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in result.metrics.items())
    yield ""
    yield from _coefficients(result)
    yield ""
    sent = sum(ways["to_server"]["bytes"] for ways in content["wire"].values())
    yield f"clients sent {sent:,} bytes in all, and no row"
    if result.privacy:
        yield from _certificates(result.privacy)
    else:
        yield "no privacy is claimed: the job is federated, and what clients sent has no noise in it"
    for note in content["notes"]:
        yield f"note: {note}"
    yield f"digest {result.digest}"


def _coefficients(result: Result) -> Iterator[str]:
    """The coefficients that are furthest from zero, in posterior standard deviations."""
    standard = comparable(result.parameters)
    clearest = sorted(standard, key=lambda name: -abs(standard[name]["mean"]) / standard[name]["sd"])[:SHOWN]
    width = max(map(len, clearest), default=0)
    yield f"{'coefficient':<{width}}     mean       sd       5 %      95 %"
    for name in (name for name in standard if name in clearest):
        v = standard[name]
        yield f"{name:<{width}} {v['mean']:>8.3f} {v['sd']:>8.3f}  {v['q05']:>8.3f}  {v['q95']:>8.3f}"
    if len(standard) > SHOWN:
        yield f"({SHOWN} of {len(standard)}, those furthest from zero in standard deviations)"


def _certificates(certificates: dict[str, dict[str, Any]]) -> Iterator[str]:
    """One certificate where all clients have the same, else each of them."""
    distinct: dict[str, list[str]] = {}
    for client, content in certificates.items():
        distinct.setdefault(text("", content), []).append(client)
    yield "privacy certificate" + ("s" if len(distinct) > 1 else "")
    for certificate, clients in distinct.items():
        all_of_many = len(clients) == len(certificates) > 5
        name = f"each of the {len(clients)} clients" if all_of_many else ", ".join(clients)
        first, *rest = certificate.split("\n")
        yield from (f"  {name}{first}", *(f"  {line}" for line in rest))
