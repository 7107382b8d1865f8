"""Data that are split by column: the heart patients, the counties, and the simulated examples."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedkern.data import split, table
from fedkern.data.sets import county_homicide, heart_failure
from fedkern.data.simulate import vertical
from fedkern.errors import JobError

FILES = {"heart": "heart-failure-prediction/heart.csv", "county": "us-county-homicide/counties.csv.gz"}


def needs(name):
    there = (Path(os.environ.get("FEDKERN_DATA", ".")) / FILES[name]).exists()
    return pytest.mark.skipif(not there, reason=f"needs {FILES[name]} in the folder FEDKERN_DATA")


@needs("heart")
def test_the_patients_are_split_into_nine_and_eleven_columns():
    patients = heart_failure.read()
    everybody = np.arange(918)
    found = patients.columns(everybody)
    assert [x.shape for x in found.X] == [(918, 9), (918, 11)]
    assert [len(names) for names in found.names] == [9, 11]
    assert (found.y.sum(), found.n_rows) == (508, 918)
    at = {name: x[:, j] for x, names in zip(found.X, found.names) for j, name in enumerate(names)}
    for covariate, levels in heart_failure.LEVELS.items():
        np.testing.assert_array_equal(sum(at[f"{covariate}={level}"] for level in levels), np.ones(918))
    assert at["Sex=M"].sum() == 725
    assert set(at["FastingBS"]) == {0.0, 1.0}
    for name in ("Age", "RestingBP", "Cholesterol", "MaxHR", "Oldpeak"):
        assert (at[name].mean(), at[name].std()) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    assert (at["Cholesterol"] == at["Cholesterol"].min()).sum() == 172  # not measured


@needs("heart")
def test_the_scaler_sees_training_rows_only():
    patients = heart_failure.read()
    train = np.arange(100, 700)
    found = patients.columns(train).X[0]
    assert found[train, 0].mean() == pytest.approx(0, abs=1e-12)
    assert found[train, 0].std() == pytest.approx(1)
    assert abs(found[:, 0].mean()) > 0.01  # and all rows' mean is another
    with pytest.raises(JobError, match="Age is the same in all 1 training rows"):
        patients.columns(np.array([3]))


@needs("heart")
def test_pooled_logistic_regression_has_the_published_scores():
    from sklearn.linear_model import LogisticRegression

    patients, right, found = heart_failure.read(), [], []
    for fold in split.folds(918, 10, seed=1):
        train = np.setdiff1d(np.arange(918), fold)
        data = patients.columns(train)
        p = LogisticRegression(max_iter=1000).fit(data.pooled()[train], data.y[train]).predict_proba(data.pooled()[fold])[:, 1]
        right.append(np.mean((p > 0.5) == data.y[fold]))
        found += np.log(np.where(data.y[fold] == 1, p, 1 - p)).tolist()
    assert 100 * np.mean(right) == pytest.approx(86.28, abs=1.0)  # +- 0.28 over fold seeds (vertical.md, section 9.3)
    assert np.mean(found) == pytest.approx(-0.342, abs=0.005)


@needs("heart")
def test_the_patients_files_share_nothing_but_ids(tmp_path):
    patients = heart_failure.read()
    paths = patients.write(tmp_path / "heart")
    assert [path.name for path in paths] == ["client-1.csv", "client-2.csv", "server.csv"]
    files = [table.load(path, text=("id",)) for path in paths]
    assert sum(len(file.names) for file in files) == 11 + 1 + 3
    order = []
    for file in files:
        ids = [file.text("id", row) for row in range(918)]
        assert len(set(ids)) == 918
        order.append(np.array([int(one.removeprefix("patient-")) - 1 for one in ids]))
    assert all((a != b).mean() > 0.9 for a, b in zip(order, [np.arange(918), *order[:-1]]))
    np.testing.assert_array_equal(files[2].columns["HeartDisease"], patients.response()[order[2]])
    assert [files[1].text("ST_Slope", row) for row in range(918)] == [patients.cells["ST_Slope"][row] for row in order[1]]
    assert [path.read_bytes() for path in patients.write(tmp_path / "again")] == [path.read_bytes() for path in paths]


def test_folds_are_of_92_and_91_rows():
    found = split.folds(918, 10, seed=3)
    assert sorted(map(len, found)) == [91, 91, *[92] * 8]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(918))
    assert all((np.diff(fold) > 0).all() for fold in found)
    assert any((a != b).any() for a, b in zip(found[:8], split.folds(918, 10, seed=4)))


@needs("county")
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
    two, ten = vertical.logistic(2), vertical.logistic(10)
    assert [x.shape for x in two.X] == [(500, 10)] * 2
    assert [x.shape for x in ten.X] == [(500, 2)] * 10
    np.testing.assert_array_equal(two.pooled(), ten.pooled())
    np.testing.assert_array_equal(two.y, ten.y)
    assert two.truth == ten.truth
    assert ten.names[9] == ("x19", "x20")
    other = vertical.logistic(2, seed=2)
    assert abs(np.corrcoef(other.X[0][:, 0], two.X[0][:, 0])[0, 1]) < 0.2
    with pytest.raises(ValueError, match="20 columns can't be dealt evenly to 3 clients"):
        vertical.logistic(3)


def test_the_logistic_example_follows_its_truth():
    parts = [vertical.logistic(2, seed=seed) for seed in range(1, 21)]
    excess = []
    for data in parts:
        b, beta = data.truth["intercept"], np.array([data.truth[f"theta[x{j + 1}]"] for j in range(20)])
        a = b + data.pooled() @ beta
        excess.append([np.mean((data.y - 0.5) * np.sign(a)), np.mean((1 / (1 + np.exp(-a)) - 0.5) * np.sign(a))])
    seen, without_noise = np.mean(excess, axis=0)
    assert seen > 0.3
    assert seen < without_noise - 0.003  # the noise in the truth makes responses less certain


def test_the_areas_follow_their_truth():
    data = vertical.areas()
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


@pytest.mark.parametrize(
    ("module", "part"), [(heart_failure, "heart-failure-prediction"), (county_homicide, "us-county-homicide")]
)
def test_missing_and_altered_files(module, part, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match=f"set FEDKERN_DATA to the folder that holds {part}/"):
        module.read()
    with pytest.raises(JobError, match=r"neither .* nor .*\.gz; get .*"):
        module.read(tmp_path)
    (tmp_path / "heart.csv").write_text("Age,Sex\n1,M\n")
    (tmp_path / "counties.csv").write_text("i,NAME\n0,x\n")
    message = "columns Age,Sex; needs Age, Sex" if module is heart_failure else "1 rows, needs the 3085 .* with 70 cells each"
    with pytest.raises(JobError, match=message):
        module.read(tmp_path)


@needs("heart")
def test_an_unknown_level_is_named(tmp_path):
    text = (Path(os.environ["FEDKERN_DATA"]) / FILES["heart"]).read_text().replace(",Up,", ",Steep,", 1)
    (tmp_path / "heart.csv").write_text(text)
    with pytest.raises(JobError, match="ST_Slope has Steep; needs Down, Flat, Up"):
        heart_failure.read(tmp_path)
