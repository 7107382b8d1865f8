"""Data of the vertical reproductions: US counties, and the simulated examples."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.errors import JobError
from papers import county_homicide, vertical_examples
from support.published import needs


@needs("us-county-homicide/counties.csv.gz")
def test_counties_have_states_counts_and_an_offset_that_centres_the_intercept():
    found = county_homicide.read()
    assert [x.shape for x in found.X] == [(3085, 2), (3085, 3)]
    assert found.names == (("RD90", "UE90"), ("PS90", "DV90", "MA90"))
    assert len(found.groups) == 49
    assert np.bincount(found.group).max() == 254  # Texas
    assert found.groups[np.bincount(found.group).argmax()] == "Texas"
    assert (found.y == 0).sum() == 636
    np.testing.assert_array_equal(found.y, np.round(found.y))
    assert np.exp(found.offset).sum() == pytest.approx(found.y.sum())
    earlier = county_homicide.read(year=60)
    assert earlier.y.sum() < found.y.sum()
    rates = 1e5 * earlier.y / np.exp(earlier.offset) * (earlier.y.sum() / np.exp(earlier.offset).sum())
    assert np.isfinite(rates).all()
    with pytest.raises(JobError, match="year 75; there are 60, 70, 80, 90"):
        county_homicide.read(year=75)


def test_the_logistic_example_deals_the_same_rows_to_more_or_fewer_clients():
    two, ten = vertical_examples.logistic(2), vertical_examples.logistic(10)
    assert [x.shape for x in two.X] == [(500, 10)] * 2
    assert [x.shape for x in ten.X] == [(500, 2)] * 10
    np.testing.assert_array_equal(two.pooled(), ten.pooled())
    np.testing.assert_array_equal(two.y, ten.y)
    assert two.truth == ten.truth
    assert ten.names[9] == ("x19", "x20")
    other = vertical_examples.logistic(2, seed=2)
    assert abs(np.corrcoef(other.X[0][:, 0], two.X[0][:, 0])[0, 1]) < 0.2
    with pytest.raises(ValueError, match="20 columns can't be dealt evenly to 3 clients"):
        vertical_examples.logistic(3)


def test_the_logistic_example_follows_its_truth():
    parts = [vertical_examples.logistic(2, seed=seed) for seed in range(1, 21)]
    excess = []
    for data in parts:
        b, beta = data.truth["intercept"], np.array([data.truth[f"theta[x{j + 1}]"] for j in range(20)])
        a = b + data.pooled() @ beta
        excess.append([np.mean((data.y - 0.5) * np.sign(a)), np.mean((1 / (1 + np.exp(-a)) - 0.5) * np.sign(a))])
    seen, without_noise = np.mean(excess, axis=0)
    assert seen > 0.3
    assert seen < without_noise - 0.003  # the noise in the truth makes responses less certain


def test_the_areas_follow_their_truth():
    data = vertical_examples.areas()
    assert [x.shape for x in data.X] == [(2000, 2)] * 2
    population = np.exp(data.offset)
    assert (population.round().min(), population.round().max()) == (250, 350)
    np.testing.assert_allclose(population, population.round())
    assert np.bincount(data.group).min() > 300
    beta = np.array([[data.truth[f"beta[x{k + 1},{level}]"] for k in range(4)] for level in data.groups])
    mean = np.exp(data.offset + np.sum(data.pooled() * beta[data.group], axis=1))
    z = (data.y - mean) / np.sqrt(mean)
    assert abs(np.mean(z**2) - 1) < 5 * np.sqrt(2.1 / 2000)  # Poisson about the truth
    shuffled = np.exp(data.offset + np.sum(data.pooled() * beta[(data.group + 1) % 5], axis=1))
    assert np.mean((data.y - shuffled) ** 2 / shuffled) > 3
    rows = np.array([5, 2])
    part = data.rows(rows)
    np.testing.assert_array_equal(part.group, data.group[rows])
    np.testing.assert_array_equal(part.offset, data.offset[rows])
    np.testing.assert_array_equal(part.pooled(), data.pooled()[rows])


def test_missing_and_altered_files(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match="set FEDKERN_DATA to the folder that holds us-county-homicide/"):
        county_homicide.read()
    with pytest.raises(JobError, match=r"neither .* nor .*\.gz; get .*"):
        county_homicide.read(tmp_path)
    (tmp_path / "counties.csv").write_text("i,NAME\n0,x\n")
    with pytest.raises(JobError, match=r"1 rows, needs the 3085 .* with 70 cells each"):
        county_homicide.read(tmp_path)
