"""What is said of new rows: nothing where a rate is cut."""

import numpy as np
import pytest

from fedkern.kernels.families import FAMILIES, MOST
from fedkern.results.prediction import BEYOND, SDS, WHOLE, Prediction, within


def of(eta: np.ndarray, family: str, **more: np.ndarray) -> Prediction:
    mean = np.asarray(FAMILIES[family].mean(eta))
    return within(Prediction(mean, {"q975": mean}, eta, np.full(len(eta), 0.5), used={"a": ["b"] * len(eta)}, more=more), family)


def test_rows_whose_rate_is_cut_have_no_numbers() -> None:
    eta = np.array([1.0, MOST - 0.5 * SDS - 0.01, MOST - 0.5 * SDS + 0.01, 40.0, np.nan])
    found = of(eta, "poisson", rate=np.exp(eta))
    assert found.beyond == [2, 3]
    assert found.used[BEYOND] == ["", "", "rate above e^30", "rate above e^30", ""]
    assert found.used["a"] == ["b"] * 5
    for values in (found.mean, found.quantiles["q975"], found.more["rate"]):
        assert np.isnan(values).tolist() == [False, False, True, True, True]
    assert np.array_equal(found.linear_mean, eta, equal_nan=True)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_other_families_have_no_rate(family: str) -> None:
    assert of(np.array([1.0, 1e6]), family).beyond == []
    assert BEYOND not in of(np.array([1.0, 50.0]), family).columns


def test_ends_of_counts_are_where_the_distribution_function_is() -> None:
    """Of 0, 0, 1, 1, .., 9, 9: the least count with at least 2.5, or 97.5, of a hundred at or below it."""
    counts = np.repeat(np.arange(10.0), 2)
    assert np.quantile(counts, [0.025, 0.5, 0.951, 0.975], method=WHOLE).tolist() == [0.0, 4.0, 9.0, 9.0]
