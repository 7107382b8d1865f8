"""The page on a trained prior: everything is inside, names are escaped, and maps, points and priors without phi all have one."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.training import fit as prior_fit
from fedkern.algorithms.training import training as sigma_training
from fedkern.algorithms.training.fit import Federation
from fedkern.data.graph import grid
from fedkern.kernels.mlp import Architecture
from fedkern.methods.sigma.prior import fit as measured
from fedkern.methods.sigma.prior.keys import parse
from fedkern.methods.sigma.prior.report import Fit, page
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.prior import AreaPrior, GpPrior
from support import chosen

NAMES = ("<b>north</b>", "south")
MAP = {"areas": "a.csv", "area": "a", "client": "c", "adjacency": "e.csv"}
SETS = {"auxiliary": {"draws": 200}, "fit": {"draws": 200}}
CONFIGS = {
    "car": parse({"prior": {"kind": "car"}, "data": MAP, **SETS}),
    "bym2": parse({"prior": {"kind": "bym2"}, "data": MAP, **SETS}),
    "gp": parse({"prior": {"kind": "gp", "lengthscale": [0.2, 1.0], "grid": {}}, **SETS}),
}


def prior(kind):
    if kind == "gp":
        return GpPrior(np.linspace(0, 1, 12)[:, None], Condition("lengthscale", 0.2, 1.0, "unit"))
    graph = grid(4, 3)
    condition = Condition("none", 0.0, 0.0) if kind == "bym2" else Condition("phi", 0.0, 0.95, "unit", Hyperprior("logit-normal"))
    return AreaPrior(graph.indptr, graph.indices, condition, kind)


def made(kind, by="mean") -> Fit:
    """The fit of untrained networks."""
    source, architecture = prior(kind), Architecture("multiplicative", (6, 6), 1, 3, (2, 2), rank=2, width=4)
    settings = chosen.training(steps=20, chunk=5, batch=4)
    sd = source.training_sd()
    made_table = source.table(4, 1)
    table = replace(made_table, phi=source.condition.network(made_table.phi), scale=made_table.scale / sd)
    state = sigma_training.train(architecture, lambda k: table, settings)
    federation = Federation(architecture, state.parameters.astype(float), source.condition, sd)
    tau = prior_fit.match_variances(source, federation, by=by, draws=200)
    comparisons = [prior_fit.compare(source, federation, phi, draws=200) for phi in prior_fit.phi_shown(source.condition)]
    distances, edges = measured.distances_of(source)
    graph = None if kind == "gp" else np.column_stack([grid(4, 3).rows, grid(4, 3).indices])
    return Fit(
        kind=kind,
        condition=source.condition.name,
        clients=NAMES,
        sizes=(6, 6),
        comparisons=comparisons,
        variograms=[
            prior_fit.variogram(c, federation.client, distances, tau.at(np.array([c.phi]))[0], edges) for c in comparisons
        ],
        correlations=[0.1] * len(comparisons),
        coverage=prior_fit.coverage(source, federation, tau, draws=200),
        tau=tau,
        state=state,
        objective=sigma_training.objective(architecture, state, table, draws=20),
        neighbours=graph,
        notes=("a note on <i>islands</i>",),
    )


@pytest.mark.parametrize(("kind", "by"), [("car", "mean"), ("car", "phi"), ("bym2", "mean"), ("gp", "mean")])
def test_a_page(kind, by):
    fit = made(kind, by)
    text = page(fit, CONFIGS[kind].model_dump())
    assert text.count("<svg") == 4
    for title in ("Covariance", "Variogram", "Marginals", "tau²", "Training", "Record"):
        assert f"<h2>{title}</h2>" in text
    assert "<b>north</b>" not in text
    assert "<i>islands</i>" not in text
    assert not re.search(r"(src|href)=\"(?!#|data:)", text)
    assert "none 0" not in text  # a prior without phi names none
    assert ("across a border" in text) == (kind != "gp")


def test_the_numbers_are_those_of_the_fit():
    fit = made("gp")
    found = fit.as_dict()
    assert [one["phi"] for one in found["covariance"]] == [0.2, 0.5, 0.8]
    assert found["clients"] == {NAMES[0]: 6, NAMES[1]: 6}
    assert found["steps"] == 20
    assert "true" not in found["covariance"][0]  # no matrices
    assert f"{fit.comparisons[1].error:.3f}" in page(fit, CONFIGS["gp"].model_dump())


def test_the_text_names_what_was_measured():
    text = measured.text(made("bym2"))
    assert text.startswith("covariance error: ")
    assert "note: a note on" in text
    assert "covariance error at lengthscale 0.2: " in measured.text(made("gp"))


def test_distances():
    steps, edges = measured.distances_of(prior("car"))
    assert steps[0, 11] == 5
    assert edges[0] == 0.5
    apart, edges = measured.distances_of(prior("gp"))
    assert apart[0, 11] == pytest.approx(1.0)
    assert edges[-1] > 1.0


def test_without_matplotlib_there_is_no_page(monkeypatch):
    monkeypatch.setattr(measured.importlib.util, "find_spec", lambda name: None)
    assert measured.page(made("bym2"), CONFIGS["bym2"]) is None
