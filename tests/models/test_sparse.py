"""Columns of the sparse models: dummies, splines, indicators, and scales that all clients share."""

import numpy as np
import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import scales as scaling
from fedkern.errors import JobError
from fedkern.models.encoding import Column, Encoding
from fedkern.models.sparse import Coefficients, Spline, edges, graph
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol
from support.refusal import refusal

COLUMNS = (Column("age", center=0.0, scale=1.0), Column("sex", "categorical", ("f", "m")), Column("bmi", center=0.0, scale=1.0))
ENCODING = Encoding(COLUMNS, "y", "gaussian", intercept=False)


def test_a_reference_level_has_no_coefficient():
    c = Coefficients.of(ENCODING, references={})
    assert c.names == ("age", "sex=m", "bmi")
    X = np.array([[50.0, 1, 0, 20], [60, 0, 1, 30]])
    np.testing.assert_array_equal(c.columns(X), [[50, 0, 20], [60, 1, 30]])
    assert Coefficients.of(ENCODING, references={"sex": "m"}).names == ("age", "sex=f", "bmi")
    with refusal(JobError, "x", "2"):
        Coefficients.of(ENCODING, references={"sex": "x"})


def test_adjusters_have_no_indicator():
    c = Coefficients.of(ENCODING, references={}, always=["sex", "bmi"])
    assert c.indicators.tolist() == [[0, -1, -1]]
    with refusal(JobError, "model.always", "weight", "3"):
        Coefficients.of(ENCODING, references={}, always=["weight"])


def test_the_columns_of_a_spline_share_one_indicator():
    c = Coefficients.of(ENCODING, references={}, splines={"age": [40, 50, 60, 70]})
    assert c.names == ("age", "sex=m", "bmi", "age~1", "age~2")
    assert c.indicators.tolist() == [[0, 1, 2, 3, 3]]
    with pytest.raises(JobError, match=r"model\.splines.sex: no such column among the 2 numeric ones"):
        Coefficients.of(ENCODING, references={}, splines={"sex": [1, 2, 3]})


def test_a_natural_spline_is_straight_outside_its_knots_and_nowhere_linear_inside():
    spline = Spline.at([40, 50, 60, 75])
    outside = np.array([10.0, 20, 30, 90, 100, 110])
    second = np.diff(spline.columns(outside).reshape(2, 3, -1), n=2, axis=1)
    np.testing.assert_allclose(second, 0, atol=1e-12)
    knots = spline.columns(np.array([40.0, 50, 60, 75]))
    np.testing.assert_allclose(knots.T @ knots, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(np.vstack([np.ones(4), [40, 50, 60, 75]]) @ knots, 0, atol=1e-11)
    x = np.linspace(40, 75, 400)
    second = np.abs(np.diff(spline.columns(x), n=2, axis=0))
    assert second[[0, -1]].max() < 0.05 * second.max()  # natural: no curvature at the ends
    assert np.isnan(spline.columns(np.array([np.nan]))).all()


def test_spline_columns_are_orthogonal_to_the_linear_one():
    c = Coefficients.of(ENCODING, references={}, splines={"age": [40, 50, 60, 70]})
    random = np.random.default_rng(1)
    drawn = [random.normal(55, 8, 500), np.zeros(500), random.integers(0, 2, 500), random.normal(25, 3, 500)]
    X = c.columns(np.column_stack(drawn))
    X = scaling.centred(X) / X.std(axis=0)
    psi = X.T @ X / len(X)
    Z = c.orthogonal(X, psi)
    np.testing.assert_allclose(Z[:, 3:].T @ Z[:, 0], 0, atol=1e-9)
    np.testing.assert_allclose((Z[:, 3:] ** 2).mean(axis=0), 1)


def test_a_graph_has_an_indicator_for_each_edge():
    assert graph(3, one_group=False).tolist() == [[-2, 0, 1], [0, -2, 1], [0, 1, -2]]
    assert graph(3, one_group=True).tolist() == [[-2, 0, 1, 2, -2, 3, 4, 5, -2]]
    assert edges(("a", "b", "c")) == ("b -> a", "c -> a", "a -> b", "c -> b", "a -> c", "b -> c")


# ---- scales without rows


def agreed(parts, second=False, names=("a", "b")):
    names = tuple(f"column {name!r}" for name in names[: parts[0].shape[1]])
    start = scaling.start(names, tuple(f"c{k}" for k in range(len(parts))), second)
    here = {k: scaling.Client(part, second) for k, part in enumerate(parts)}
    server, here = run_protocol(scaling.PROTOCOL, start, here, Codec({"w": len(names)}, len(parts)))
    return server, here


def test_scales_are_the_standard_deviations_within_sites():
    random = np.random.default_rng(0)
    parts = [random.normal(size=(n, 2)) * [2, 5] + 100 * k for k, n in enumerate((20, 3, 41))]
    server, here = agreed(parts)
    np.testing.assert_allclose(server.scales, parts[2].std(axis=0, ddof=1), rtol=1e-14)  # more than half of all degrees are its
    for client in here.values():
        np.testing.assert_array_equal(client.scales, server.scales)


def test_missing_values_have_counts_of_their_own():
    random = np.random.default_rng(0)
    parts = [random.normal(size=(30, 2)), random.normal(size=(20, 2))]
    parts[0][:10, 1] = np.nan
    parts[1][:, 0] = np.nan
    server, here = agreed(parts, second=True)
    np.testing.assert_allclose(server.scales[0], parts[0][:, 0].std(ddof=1), rtol=1e-14)
    both = parts[0][10:, 1], parts[1][:, 1]
    pooled = sum(((b - b.mean()) ** 2).sum() for b in both) / (19 + 19)
    np.testing.assert_allclose(server.scales[1], np.sqrt(pooled), rtol=1e-14)
    np.testing.assert_allclose(np.diag(server.psi), 1, rtol=1e-12)
    np.testing.assert_array_equal(here[1].psi, server.psi)


def test_a_column_that_is_constant_at_one_site_is_allowed_and_at_all_sites_refused():
    random = np.random.default_rng(0)
    parts = [random.normal(size=(30, 2)), random.normal(size=(20, 2))]
    parts[0][:, 1] = 7.1
    server, _ = agreed(parts)
    np.testing.assert_allclose(server.scales[1], parts[1][:, 1].std(ddof=1), rtol=1e-14)
    parts[1][:, 1] = 0.1
    with pytest.raises(JobError, match="column 'b' is constant at every client"):
        agreed(parts)


def test_columns_that_nobody_has_together_are_refused_by_name():
    random = np.random.default_rng(0)
    parts = [random.normal(size=(30, 2)), random.normal(size=(20, 2))]
    parts[0][:, 0] = np.nan
    parts[1][:, 1] = np.nan
    with refusal(JobError, "a", "b"):
        agreed(parts, second=True)


@pytest.mark.parametrize("second", [False, True])
def test_a_client_tells_no_more_than_its_own_job_file_says(second):
    client = scaling.Client(np.random.default_rng(0).normal(size=(9, 2)), second)
    with pytest.raises(RemoteFault, match=rf"Scaling\.more is {int(not second)}"):
        scaling.client_receive(client, scaling.Scaling(0, int(not second), np.ones(2)))
    with refusal(RemoteFault, "Scaling"):
        scaling.client_receive(client, scaling.Scaling(0, int(second), np.array([1.0, 0.0])))
    with refusal(RemoteFault, "Psi"):
        scaling.client_receive(client, scaling.Psi(1, np.eye(2)))
    client, answers = scaling.client_receive(client, scaling.Scaling(0, int(second), np.ones(2)))
    assert len(answers) == second
    with refusal(RemoteFault, "AskMoments"):
        scaling.client_receive(client, scaling.AskMoments(0))
    for psi in ([[1.0, 0.5], [0.4, 1.0]], [[0.0, 0.0], [0.0, 1.0]]) if second else ():
        with refusal(RemoteFault, "Psi"):
            scaling.client_receive(client, scaling.Psi(1, np.array(psi)))


def test_a_singular_pooled_matrix_is_refused_by_name():
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 1))
    with pytest.raises(JobError, match=r"second moments of column '[ab]', column '[ab]' are singular"):
        agreed([np.hstack([x, 2 * x])], second=True)
