"""A client with few rows alike reads the number of [disclosure] that would do for its file, and it is below the wanted one."""

from __future__ import annotations

import numpy as np

from fedkern.data.rare import Rare
from fedkern.data.table import Table
from fedkern.disclosure.look import BY_FIT, Look, weights
from fedkern.disclosure.requirement import Requirement
from fedkern.disclosure.rules import Rules
from fedkern.models.encoding import Spec


def test_a_number_that_is_rounded_up_to_the_wanted_one_is_said_and_lowered_below_it() -> None:
    table = Table("b.csv", ("sex", "y"), {"sex": np.zeros(3), "y": np.zeros(3)}, 3)
    look = Look.at(Requirement(Rules(rows_per_value=2)), table, Spec("y"), np.ones(3))
    found = look.singled_out((Rare(("sex",), 2),), BY_FIT)
    assert (found.id, found.facts, found.values["rows"], found.enough) == ("rare-values", (BY_FIT,), 1, 1)


def test_trials_count_once_in_what_rows_weigh() -> None:
    trials = np.array([2.0, 4.0, 8.0, 16.0] * 8)
    y, x = trials / 2, np.tile([-1.0, 1.0, 1.0, -1.0], 8)
    table = Table("b.csv", ("x", "y", "n"), {"x": x, "y": y, "n": trials}, 32)
    spec = Spec("y", family="binomial", trials="n")
    weighed = Look.at(Requirement(Rules(rows_per_value=2)), table, spec, weights(table, spec))
    (at_fit,) = weighed.by_fit()
    for found in (at_fit, weighed._at_no_slopes):
        np.testing.assert_allclose(found, trials / 4, rtol=1e-3)  # n p (1 - p)
