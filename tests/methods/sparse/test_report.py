"""The report of a sparse model, from the content of summary.json."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fedkern.methods.sparse import report
from fedkern.results import selection
from fedkern.results.plain import plain
from fedkern.results.report import RunFiles, page
from fedkern.results.samples import Samples

NODES = ("Raf", "<b>Mek</b>", "Erk")


def summary(kind: str, **changes: Any) -> dict[str, Any]:
    """As a run writes it: its shape, with draws that come from nowhere."""
    random = np.random.default_rng(1)
    names = ("age", "<b>sex</b>", "bp") if kind == "regression" else selection.edge_names(NODES)
    p = len(names)
    theta = np.linspace(-0.5, 0.5, p) + 0.05 * random.normal(size=(2, 40, p))
    q = np.tile(np.linspace(0.99, 0.1, p), (2, 40, 1))
    one = np.exp(random.normal(size=(2, 40, 1)))
    sites = {"clinic-a": theta + 0.5, "clinic-b": theta - 0.01} if kind == "regression" else {}
    scale, nodes = np.full(p, 2.0), () if kind == "regression" else NODES
    draws = Samples(names, theta, one * np.ones(p), q, theta, one, one / 99, scale, sites, kind, nodes)
    parameters = draws.parameters()
    pips = dict(zip(names, draws.pip.tolist()))
    level = {"fdr": 0.1, "delta": 0.2, "members": [], "text": selection.explain(names, draws.pip, np.ones(p))}
    mixed = {"chains": 2, "kept": 40, "burn_in": 10, "rhat": 1.2, "ess": 55.0, "slowest": "theta[age]", "scales_clipped": 3}
    content: dict[str, Any] = {"stop": "converged", "rounds": 50, "parameters": parameters, "sampler": mixed, "selection": level}
    content["verdict"] = "not converged: R-hat at most 1.2000 (wanted 1.01)"
    content |= {"metrics": {}, "privacy": {}, "deviating": selection.deviating(parameters)}
    if kind != "regression":
        pip = selection.matrix(draws.pip, len(nodes)).tolist()
        content["graph"] = {"nodes": list(nodes), "pip": pip, "edges": [vars(edge) for edge in selection.graph(draws)]}
        content["modes"] = [
            {"share": 0.6, "of_chains": [1.0, 0.2], "signs": {"Erk -> Raf": 1}},
            {"share": 0.4, "of_chains": [0.0, 0.8], "signs": {"Erk -> Raf": -1}},
        ]
    left = {"pip": pips, "theta_std": dict(zip(names, theta.mean((0, 1)).tolist()))}
    content["leave_one_out"] = {"clinic-a": left}
    content["sensitivity"] = [{"s_tau": 1.0, "c0": 0.01, "pip": pips}, {"s_tau": 0.1, "c0": 0.01, "pip": pips}]
    row = {"mean": 0.123, "se": 0.1, "q05": 0.0, "q95": 0.2, "between_sd": 0.3, "i_sq": 0.4, "sites": 2}
    content["meta"] = {"pooled": dict.fromkeys(names, row)}
    return dict(plain(content | changes))


def test_a_regression_s_report() -> None:
    text = page(RunFiles("a run", summary("regression"), {"model": {"kind": "regression"}}), report)
    for words in (
        "converged",
        "<h2>Effects</h2>",
        "Selection: 1 of 3 in the slab at a false discovery rate of 0.1",
        "Largest R-hat 1.200, smallest effective sample size 55 (theta[age])",
        "The verdict: not converged: R-hat at most 1.2000 (wanted 1.01).",
        "3 scales clipped",
        "<b>1.200</b><span>Largest R-hat</span>",
        "<b>55</b><span>Smallest ESS</span>",
        "<h2>Clients that differ</h2>",
        "clinic-a",
        "<h2>Separate fits</h2>",
        "0.123",
        "s_tau 0.1, c0 0.01",
        "without clinic-a",
        "theta_std[age]@clinic-b",
    ):
        assert words in text, words
    assert "<b>sex</b>" not in text
    assert "Learning curves" not in text
    assert "clinic-b</td><td>age" not in text  # it does not differ
    assert not re.search(r"https?:|url\((?!#)", text)


def test_a_graph_s_report() -> None:
    text = page(RunFiles("a run", summary("sem")), report)
    words_of_all = ("Graph at a false discovery rate of 0.1", "Inclusion probabilities", "<h2>Modes</h2>")
    for words in (*words_of_all, "Erk -&gt; Raf −", "0.60"):
        assert words in text, words
    assert text.count("<svg") == 2
    assert "<b>Mek</b>" not in text
    assert "<td>&lt;b&gt;Mek&lt;/b&gt; -&gt; Raf</td>" in text


@pytest.mark.parametrize("missing", ["leave_one_out", "sensitivity", "meta", "deviating"])
def test_what_a_run_did_not_ask_for_has_no_section(missing: str) -> None:
    content = summary("regression")
    titles = {"leave_one_out": "Without one", "sensitivity": "Under other", "meta": "Separate fits", "deviating": "Clients that"}
    assert titles[missing] in page(RunFiles("a run", content), report)
    del content[missing]
    assert titles[missing] not in page(RunFiles("a run", content), report)


def test_chains_that_agree_and_runs_too_short_to_be_judged() -> None:
    content = summary("regression")
    content["verdict"] = "converged: R-hat at most 1.0090 (wanted 1.01), ESS at least 55 (wanted 50; tau)"
    assert f"The verdict: {content['verdict']}." in page(RunFiles("a run", content), report)
    for key in ("rhat", "ess", "slowest"):
        del content["sampler"][key]
    assert "No R-hat: draws are too few" in page(RunFiles("a run", content), report)


def test_marks_stand_where_chains_do_not_agree() -> None:
    content = summary("regression", unsettled=["age"])
    for run in content["sensitivity"]:
        run |= {"rhat": 1.2, "ess": 20.0, "converged": False, "unsettled": ["bp"]}
    text = page(RunFiles("a run", content), report)
    assert "age*" in text
    assert "<td>not converged</td>" in text
    assert "*</td>" in text[text.index("Under other priors") :]
    assert "R-hat above 1.05: chains do not agree about it yet" in text
    graph = summary("mrf")
    graph["graph"]["edges"][0] |= {"rhat": 1.3, "mcse": 0.01}
    text = page(RunFiles("a run", graph), report)
    assert "-&gt; Raf*</td>" in text
    assert "<td>0.01</td><td>1.3</td>" in text
