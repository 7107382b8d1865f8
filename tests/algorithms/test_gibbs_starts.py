"""Where chains start: apart from each other, and never at a deviation of exactly zero."""

import numpy as np
import pytest

from fedkern.algorithms.gibbs.covariates import Covariates
from fedkern.algorithms.gibbs.settings import ALWAYS, NONE, Layout
from fedkern.algorithms.gibbs.sites import (
    Factor,
    Imputed,
    ImputedField,
    Logistic,
    MarkovRandomField,
    Regression,
    StructuralEquations,
)
from fedkern.algorithms.gibbs.sweeps import first
from fedkern.models.sparse import graph
from support import chosen

P, N = 4, 40


def sites():
    """One of each kind, each with a column of which the site knows nothing."""
    random = np.random.default_rng(2)
    X = random.normal(size=(N, P))
    y = X @ np.linspace(-0.6, 0.8, P) + random.normal(size=N)
    X[:, 1] = 0.0  # constant here, and centred
    gaps = X.copy()
    gaps[:, 1] = np.nan
    return {
        "regression": Regression(Factor.of(X, y)),
        "imputed": Imputed(Covariates(gaps, np.eye(P), 5.0), y - y.mean()),
        "logistic": Logistic(X, (y > 0).astype(float)),
        "mrf": MarkovRandomField(Factor.of(X)),
        "mrf, gaps": ImputedField(
            tuple(Imputed(Covariates(np.delete(gaps, j, axis=1), np.eye(P - 1), 5.0), gaps[:, j]) for j in range(P))
        ),
        "sem": StructuralEquations(np.ascontiguousarray(random.laplace(size=(P, N)))),
    }


@pytest.mark.parametrize("kind", ["regression", "imputed", "logistic", "mrf", "mrf, gaps", "sem"])
def test_no_deviation_starts_at_zero(kind):
    """Scales are drawn first: those of a zero would be clipped at 1e-60, and the chain would stay there."""
    is_graph = kind[:3] in ("mrf", "sem")
    layout = Layout(graph(P, one_group=kind == "sem") if is_graph else np.arange(P)[None])
    d = sites()[kind].start(chosen.gibbs(layout=layout, chains=4, rounds=10, burn_in=2))["deviation"]
    assert d.shape == (4, *layout.shape)
    there = np.broadcast_to(layout.has_coefficient, d.shape)
    assert np.abs(d[there]).min() > 1e-4
    assert not d[~there].any()
    if kind != "logistic":
        assert not np.array_equal(d[0], d[1])


def test_with_both_starts_every_second_chain_begins_with_nothing_but_what_is_always_in():
    layout = Layout(np.array([[0, 1, ALWAYS, NONE]]))
    settings = [chosen.gibbs(layout, chains=4, rounds=10, burn_in=2, starts=starts) for starts in ("included", "both")]
    one, both = map(first, settings)
    assert (one.gamma == [1, 1, 1, 0]).all()
    assert (both.gamma[::2] == [1, 1, 1, 0]).all()
    assert (both.gamma[1::2] == [0, 0, 1, 0]).all()
    np.testing.assert_array_equal(one.eta, both.eta)
