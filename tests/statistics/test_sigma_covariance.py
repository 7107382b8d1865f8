"""Trained priors of a Gaussian process against its kernel: the published settings, the amended networks, those that multiply.

docs/spec/sigma.md, section 8: medians over five seeds of the relative Frobenius error at lengthscales 0.2, 0.5 and 0.8.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkern.algorithms.training import fit as prior_fit
from fedkern.algorithms.training import training as sigma_training
from fedkern.algorithms.training.fit import Federation
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.methods.sigma.prior import train
from fedkern.methods.sigma.prior.keys import load, parse
from fedkern.methods.sigma.prior.source import read

PHI = (0.2, 0.5, 0.8)
PAPER = {"prior": {"kind": "gp", "preset": "paper"}, "training": {"draws": "none"}}
OURS = {"prior": {"kind": "gp", "lengthscale": [0.2, 1.0], "grid": {}}}
BOUNDS = {"printed": (0.8, 0.12, 0.3), "amended": (0.65, 0.08, 0.2), "multiplicative": (0.15, 0.15, 0.15)}


def measured(variant: str, seed: int, draws: int = 20_000) -> dict[str, object]:
    """Errors, the largest error of a correlation between clients, the share of local latents at 0.2, and the ELBO."""
    sets = [f"network.variant={variant}", f"training.seed={seed}", "training.threads=1"]
    config = parse(OURS if variant == "multiplicative" else PAPER, sets=sets)
    source = read(config, Path())
    architecture = source.architecture(config)
    settings = train.settings_of(config, architecture, train.gamma_of(config, source))
    table = train.tables(source, config)(0)
    state = sigma_training.train(architecture, lambda k: table, settings, state=train.start(config, source, settings))
    federation = Federation(architecture, state.parameters.astype(np.float64), source.prior.condition, source.sd(config))
    found = [prior_fit.compare(source.prior, federation, phi, draws=draws, seed=seed) for phi in PHI]
    common = train.tables(source, config)(99)  # the same draws for both variants
    elbo = sigma_training.objective(architecture, replace(state, gamma=0.5), common, draws=10_000)["elbo"]
    cross = max(one.largest_cross_correlation for one in found)
    return {"errors": [one.error for one in found], "cross": cross, "share": found[0].local_share, "elbo": elbo}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_covariances_of_three_variants() -> None:
    runs = {variant: [measured(variant, seed) for seed in range(5)] for variant in BOUNDS}
    for variant, bounds in BOUNDS.items():
        errors = np.median([run["errors"] for run in runs[variant]], axis=0)
        print(variant, errors, [run["elbo"] for run in runs[variant]], [run["share"] for run in runs[variant]])
        assert (errors <= bounds).all(), (variant, errors)
    assert np.median([run["cross"] for run in runs["multiplicative"]]) <= 0.2
    assert np.median([run["share"] for run in runs["printed"]]) < 1e-3
    assert np.median([run["share"] for run in runs["amended"]]) > 0.1
    gains = [a["elbo"] - p["elbo"] for a, p in zip(runs["amended"], runs["printed"])]
    assert np.median(gains) > 0.2
    assert np.median([run["errors"][0] for run in runs["printed"]]) > 0.3  # the bars can fail: other networks do not meet 0.15


def test_networks_that_multiply_meet_their_bars_soon() -> None:
    """A tenth of the steps, from the best linear factors."""
    sets = ["training.steps=2000", "training.threads=1"]
    config = parse(OURS, sets=sets)
    source = read(config, Path())
    architecture = source.architecture(config)
    settings = train.settings_of(config, architecture, train.gamma_of(config, source))
    table = train.tables(source, config)(0)
    state = sigma_training.train(architecture, lambda k: table, settings, state=train.start(config, source, settings))
    federation = Federation(architecture, state.parameters.astype(np.float64), source.prior.condition, source.sd(config))
    found = [prior_fit.compare(source.prior, federation, phi, draws=4000) for phi in PHI]
    assert max(one.error for one in found) <= 0.15
    assert max(one.largest_cross_correlation for one in found) <= 0.2
    wrong = [prior_fit.compare(source.prior, federation, phi + 0.15, draws=4000) for phi in PHI]
    gaps = [np.linalg.norm(w.sigma - f.true) / np.linalg.norm(f.true) for w, f in zip(wrong, found)]
    assert max(gaps) > 0.15  # another lengthscale is noticed


def test_a_small_map_is_held_by_its_factors(tmp_path: Path) -> None:
    """36 areas have fewer directions than there are latents: gamma follows; with that of large maps most of theta is noise."""
    path = simulate("sigma", tmp_path, Settings(clients=4, rows=9, columns=1)).parent / "prior.toml"
    errors = []
    for gamma in ("auto", 0.8):
        config, folder = load(path, [f'network.gamma="{gamma}"' if gamma == "auto" else f"network.gamma={gamma}"])
        source = read(config, folder)
        settings = replace(train.settings_of(config, source.architecture(config), train.gamma_of(config, source)), steps=1)
        state = train.start(config, source, settings)
        parts = source.architecture(config), state.parameters.astype(np.float64), source.prior.condition, source.sd(config)
        found = [prior_fit.compare(source.prior, Federation(*parts), phi, draws=4000) for phi in (0.5, 0.9)]
        errors.append([one.error for one in found])
        assert settings.gamma == (0.2 if gamma == "auto" else gamma)
    assert max(errors[0]) <= 0.2
    assert errors[1][0] > 0.5
