"""Data that are split by column: the heart patients."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.data import split, table
from fedkern.data.sets import heart_failure
from fedkern.errors import JobError
from support.published import ROOT, needs
from support.refusal import refusal

HEART = "heart-failure-prediction/heart.csv"


@needs(HEART)
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


@needs(HEART)
def test_the_scaler_sees_training_rows_only():
    patients = heart_failure.read()
    train = np.arange(100, 700)
    found = patients.columns(train).X[0]
    assert found[train, 0].mean() == pytest.approx(0, abs=1e-12)
    assert found[train, 0].std() == pytest.approx(1)
    assert abs(found[:, 0].mean()) > 0.01  # and all rows' mean is another
    with refusal(JobError, "Age", "1"):
        patients.columns(np.array([3]))


@needs(HEART)
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


@needs(HEART)
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


def test_missing_and_altered_files(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match="set FEDKERN_DATA to the folder that holds heart-failure-prediction/"):
        heart_failure.read()
    with pytest.raises(JobError, match=r"neither .* nor .*\.gz; get .*"):
        heart_failure.read(tmp_path)
    (tmp_path / "heart.csv").write_text("Age,Sex\n1,M\n")
    with refusal(JobError, "Age", "Sex"):
        heart_failure.read(tmp_path)


@needs(HEART)
def test_an_unknown_level_is_named(tmp_path):
    text = (ROOT / HEART).read_text().replace(",Up,", ",Steep,", 1)
    (tmp_path / "heart.csv").write_text(text)
    with refusal(JobError, "Steep", "Down", "Flat", "Up"):
        heart_failure.read(tmp_path)
