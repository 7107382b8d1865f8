"""Sets, graphs and tables from inclusion probabilities: examples worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedkern.results import selection
from fedkern.results.samples import Samples

NODES = ("A", "B", "C")


def samples(theta: Any, inclusion: Any) -> Samples:
    """Draws (c, t, 6) of a graph of three nodes."""
    theta, one = np.asarray(theta, float), np.ones((*np.shape(theta)[:2], 1))
    names = selection.edge_names(NODES)
    q = np.asarray(inclusion, float)
    return Samples(names, theta, np.ones(theta.shape), q, theta, one, one, np.ones(6), {}, "sem", NODES)


def test_the_fdr_set_by_hand() -> None:
    """Falling PIPs 0.99, 0.9, 0.85, 0.6: means of 1 - PIP are 0.01, 0.055, 0.0867, 0.165."""
    pip = [0.6, 0.99, 0.85, 0.9, 0.1]
    assert selection.fdr_set(pip, 0.1).tolist() == [False, True, True, True, False]
    assert selection.fdr_set(pip, 0.08).tolist() == [False, True, False, True, False]
    assert selection.fdr_set(pip, 0.17).tolist() == [True, True, True, True, False]
    assert not selection.fdr_set(pip, 0.005).any()
    assert selection.fdr_set([np.nan, 0.95, 0.5], 0.1).tolist() == [False, True, False]
    assert selection.fdr_set([[0.95, 0.2], [0.3, 0.97]], 0.1).tolist() == [[True, False], [False, True]]
    assert selection.fdr_set([], 0.1).shape == (0,)
    for alpha in (0, 1, 1.5):
        with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\)"):
            selection.fdr_set(pip, alpha)


def test_the_fdr_set_holds_what_it_promises_and_no_larger_prefix_does() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        pip, alpha = random.beta(0.4, 0.4, size=30), random.uniform(0.01, 0.5)
        chosen = selection.fdr_set(pip, alpha)
        k = int(chosen.sum())
        order = np.sort(pip)[::-1]
        assert set(pip[chosen]) == set(order[:k])
        assert k == 0 or np.mean(1 - order[:k]) <= alpha
        assert k == 30 or np.mean(1 - order[: k + 1]) > alpha


def test_the_set_of_benjamini_and_hochberg_is_that_of_scipy() -> None:
    random = np.random.default_rng(2)
    for _ in range(50):
        p, alpha = random.beta(0.3, 1.0, size=20), random.uniform(0.02, 0.4)
        assert selection.benjamini_hochberg(p, alpha).tolist() == (stats.false_discovery_control(p) <= alpha).tolist()
    assert selection.benjamini_hochberg([0.04, np.nan, 0.6], 0.1).tolist() == [True, False, False]  # of two, not of three
    assert selection.benjamini_hochberg([np.nan], 0.1).tolist() == [False]
    assert selection.benjamini_hochberg([], 0.1).tolist() == []


def test_one_of_several_collinear_columns_is_sure() -> None:
    """Exactly one of a and b is in the slab in each draw, now this one and now that: P(a or b) is 1; c stands alone."""
    random = np.random.default_rng(3)
    which = random.random((2, 500)) < 0.5
    effects = np.stack([1.0 * which, 1.0 * ~which, random.normal(size=which.shape), 2 * random.normal(size=which.shape)], axis=-1)
    q = np.stack([1.0 * which, 1.0 * ~which, np.full(which.shape, 0.2), np.full(which.shape, 0.3)], axis=-1)
    (only,) = selection.groups(["a", "b", "c", "d"], effects, q)
    assert only["names"] == ["a", "b"]
    assert only["p_any"] == 1
    assert only["largest"] == pytest.approx(max(which.mean(), 1 - which.mean()))
    assert selection.groups(["a", "b", "c", "d"], effects, np.where(np.arange(4) == 1, np.nan, q)) == []  # b is always included
    chain = random.normal(size=(1, 4000, 3)) @ [[1, 0.8, 0.2], [0, 0.6, 1.0], [0, 0, 0.6]]  # a with b, b with c
    assert [one["names"] for one in selection.groups(["a", "b", "c"], chain, np.zeros(chain.shape))] == [["a", "b", "c"]]


def test_there_is_no_set_while_chains_do_not_agree_about_a_member() -> None:
    names, rhat = ["age", "sex", "bp"], np.array([1.0, 2.81, 1.3])
    assert not selection.fdr_set([0.98, 0.95, 0.2], 0.1, rhat).any()
    text = selection.explain(names, [0.98, 0.95, 0.2], [1, 1, 0], rhat=rhat)
    told = "chains do not agree about sex, which would be in it (R-hat 2.81, wanted 1.05 at most); more rounds tell"
    assert text == f"no set at a false discovery rate of 0.1: {told}"
    # Chains that disagree about what would not be a member are none of the set's.
    assert selection.fdr_set([0.98, 0.2, 0.1], 0.1, rhat).tolist() == [True, False, False]
    assert selection.explain(names, [0.98, 0.2, 0.1], [1, 0, 0], rhat=rhat).startswith("1 of 3 in the slab")
    assert "the largest PIP is 0.65 (sex*)" in selection.explain(names, [0.1, 0.65, 0.2], [0, 0, 0], rhat=rhat)


def test_an_empty_set_is_explained() -> None:
    text = selection.explain(["age", "sex"], [0.65, 0.2], [1.0, 0.3])
    assert "empty at a false discovery rate of 0.1: the largest PIP is 0.65 (age)" in text
    assert "false with probability 0.35" in text
    assert text.endswith("larger than 0.2 with probability > 0.95 for age")
    assert "site average" not in selection.explain(["age", "sex"], [0.65, 0.2], [0.5, 0.3])
    words = "1 of 2 in the slab at a false discovery rate of 0.1 (expected of them in the spike: 0.020)"
    assert selection.explain(["age", "sex"], [0.98, 0.2], [1, 0]) == words
    assert "larger than 0.3 with" in selection.explain(["age", "sex"], [0.65, 0.2], [1.0, 0.3], delta=0.3)
    assert selection.explain([], [], []) == "there is no coefficient to select"
    assert selection.explain(["age"], [0.65], [0.0], site_fits=False).endswith(selection.MORE_POWER)
    assert selection.MORE_POWER not in selection.explain(["age"], [0.65], [0.0], site_fits=True)


def test_edges_and_matrices_agree_about_their_order() -> None:
    assert selection.edge_names(NODES) == ("B -> A", "C -> A", "A -> B", "C -> B", "A -> C", "B -> C")
    found = selection.matrix([1, 2, 3, 4, 5, 6], 3)
    assert found.tolist() == [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
    assert selection.matrix(np.zeros((4, 2, 6)), 3).shape == (4, 2, 3, 3)
    assert selection.symmetrise(found).tolist() == [[0, 3, 5], [3, 0, 6], [5, 6, 0]]
    assert selection.symmetrise(found, "and").tolist() == [[0, 1, 2], [1, 0, 4], [2, 4, 0]]
    with pytest.raises(ValueError, match="3 nodes have 6 edges, got 5"):
        selection.matrix(np.zeros(5), 3)


def test_partial_correlations_of_a_precision_matrix_and_what_can_go_wrong() -> None:
    root = np.random.default_rng(2).normal(size=(5, 4, 4))
    omega = root @ np.swapaxes(root, 1, 2) + np.eye(4)
    diagonal = np.einsum("ijj->ij", omega)
    theta = -omega / diagonal[:, :, None]
    theta[:, np.eye(4, dtype=bool)] = 0
    found, clipped = selection.partial_correlations(theta)
    expected = -omega / np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
    expected[:, np.eye(4, dtype=bool)] = 0
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert clipped == 0
    found, clipped = selection.partial_correlations([[0, -2.0, 0.5], [-0.8, 0, 0.3], [-0.5, 0.2, 0]])
    assert found[0, 1] == found[1, 0] == -1  # sqrt(1.6) is too much for a correlation
    assert found[0, 2] == found[2, 0] == 0  # the two equations disagree about the sign
    assert found[1, 2] == pytest.approx(np.sqrt(0.06))
    assert clipped == 1


def test_the_graph_has_the_surest_edges_with_their_signs() -> None:
    inclusion = np.tile([0.2, 0.99, 0.1, 0.92, 0.3, 0.0], (2, 5, 1))
    theta = np.tile([0.1, -0.5, 0, 0.4, 0, 0], (2, 5, 1))
    draws = samples(theta, inclusion)
    edges = selection.graph(draws)
    assert [(e.to, e.source, round(e.mean, 6), round(e.pip, 6)) for e in edges] == [("A", "C", -0.5, 0.99), ("B", "C", 0.4, 0.92)]
    assert selection.matrix(draws.pip, 3)[1].tolist() == pytest.approx([0.1, 0, 0.92])
    arrows = ("HLA -> 1", "x")
    assert selection._ends("x -> HLA -> 1", arrows) == ("HLA -> 1", "x")
    assert selection._ends("HLA -> 1 -> x", arrows) == ("x", "HLA -> 1")


def test_there_are_no_edges_while_chains_do_not_agree_about_one() -> None:
    """Two chains in which an effect has opposite signs."""
    random = np.random.default_rng(3)
    theta = 0.05 * random.normal(size=(2, 200, 6)) + [0, -0.5, 0, 0.4, 0, 0]
    inclusion = np.tile([0.2, 0.99, 0.1, 0.92, 0.3, 0.0], (2, 200, 1))
    assert len(selection.graph(samples(theta, inclusion))) == 2
    theta[1, :, 3] *= -1
    assert selection.graph(samples(theta, inclusion)) == []


def test_a_pair_is_sure_where_chains_disagree_about_its_direction_alone() -> None:
    inclusion = np.zeros((2, 10, 6))
    inclusion[0, :, 0] = inclusion[1, :, 2] = 0.98  # A,B in one chain and B,A in the other
    inclusion[..., 1] = 0.3
    inclusion[:, ::2, 4] = 0.5
    found = selection.either(samples(np.zeros((2, 10, 6)), inclusion))
    np.testing.assert_allclose(found, found.T)
    assert found[0, 1] == pytest.approx(0.98)
    assert found[0, 2] == pytest.approx(0.5 * 0.3 + 0.5 * (1 - 0.7 * 0.5))
    assert (found[1, 2], found[0, 0]) == (0, 0)


def test_the_table_of_sites_that_differ() -> None:
    numbers = {"mean": 0.5, "q05": 0.1, "q95": 0.9}
    parameters = {
        "theta[a]": {"mean": 9.0},
        "theta_std[a]": {"mean": 0.1},
        "theta[a]@one": numbers,
        "theta_std[a]@one": numbers | {"p_deviates": 0.7},
        "theta_std[a]@two": numbers | {"p_deviates": 0.2},
        "theta[b]": {"mean": 0.2},
        "theta[b]@two": numbers | {"p_deviates": 0.9},
    }
    rows = selection.deviating(parameters)
    assert [(r["coefficient"], r["client"], r["p_deviates"], r["global"]) for r in rows] == [
        ("b", "two", 0.9, 0.2),
        ("a", "one", 0.7, 0.1),
    ]
    assert len(selection.deviating(parameters, least=0.1)) == 3
    parameters["theta_std[a]@one"] |= {"p_differs": 0.4, "contrast": 0.1}  # what decides, where it is known
    parameters["theta_std[a]@two"] |= {"p_differs": 0.98, "contrast": -0.6}
    rows = selection.deviating(parameters)
    assert [(r["coefficient"], r["client"], r.get("contrast")) for r in rows] == [("a", "two", -0.6), ("b", "two", None)]


def test_modes_are_sign_patterns_of_the_strong_coefficients() -> None:
    random = np.random.default_rng(4)
    theta = 0.02 * random.normal(size=(4, 200, 6))
    theta[:3, :, 0] += 0.6
    theta[3, :, 1] -= 0.5
    theta[2, 100:, 0] -= 1.2  # one chain changes its mind half-way
    found = selection.modes(samples(theta, np.ones(theta.shape)))
    signs = [(1, 0), (0, -1), (-1, 0)]
    assert [mode.signs for mode in found] == [{"B -> A": first, "C -> A": second} for first, second in signs]
    assert [mode.share for mode in found] == pytest.approx([0.625, 0.25, 0.125])
    assert found[0].of_chains == pytest.approx((1.0, 1.0, 0.5, 0.0))
    drifting = 0.1 * np.cumsum(random.normal(size=(2, 200, 6)), axis=1) / np.sqrt(200)
    assert len(selection.modes(samples(0.5 + drifting, np.ones(theta.shape)))) == 1  # no jump, no mode
    assert [mode.share for mode in selection.modes(samples(np.zeros((2, 5, 6)), np.ones((2, 5, 6))))] == [1.0]
