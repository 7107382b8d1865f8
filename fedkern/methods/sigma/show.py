"""Prints what only a finished spatial job has: how its unknowns were found."""

from __future__ import annotations

from collections.abc import Iterator

from ...results.bounds import elbo_line
from ...results.plain import Record


def describe_run(content: Record, why: str) -> Iterator[str]:
    """Yields the stop reason, chains, weights, and the fit of areas."""
    about, n_clients = content["sigma"], len(content["clients"])
    yield f"{why}: {content['rounds']} rounds, {n_clients} clients, {about['areas']} areas, {about['kind']} model"
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
