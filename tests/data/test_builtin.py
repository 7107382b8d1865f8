"""Data that come with a dependency, dealt inside the job."""

import importlib.util
import sys

import numpy as np
import pytest

from fedkern.data.design import Spec, encode
from fedkern.data.sets import breast_cancer, builtin
from fedkern.errors import JobError


def designs(federation):
    spec = Spec(federation.response, positive=federation.positive, columns=federation.columns, standardise="public")
    encoding = spec.encoding(tuple(federation.columns[name] for name in federation.names()[:-1]))
    parts = [encode(federation.client(k), encoding, client=name) for k, name in enumerate(federation.clients)]
    return parts, federation.test() and encode(federation.test(), encoding)


def test_breast_cancer_is_what_scikit_learn_has():
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    table = breast_cancer.table(np.arange(569), "all")
    assert table.names[:-1] == tuple(data.feature_names)
    np.testing.assert_array_equal(np.column_stack([table.columns[name] for name in table.names[:-1]]), data.data)
    np.testing.assert_array_equal(breast_cancer.positive(), data.target == 0)  # there 0 is malignant
    assert table.text("diagnosis", 0) == "malignant"
    for j, (center, scale) in enumerate(breast_cancer.PUBLIC.values()):
        assert abs(center - data.data[:, j].mean()) < 0.06 * data.data[:, j].std() + 0.05 * abs(center)
        assert 0.9 < scale / data.data[:, j].std() < 1.1


def test_all_rows_are_dealt_once():
    federation = builtin.load("breast-cancer")
    parts, test = designs(federation)
    assert federation.clients[0] == "client-01"
    assert [len(part.y) for part in parts] == [45] * 5 + [47] + [46] * 4
    assert test.X.shape == (113, 31)
    together = np.vstack([part.X for part in parts] + [test.X])
    np.testing.assert_allclose(
        np.sort(together, axis=0), np.sort(designs(builtin.load("breast-cancer", n_clients=1, test=0.0))[0][0].X, axis=0)
    )
    assert abs(together[:, 1:].mean(axis=0)).max() < 0.2
    assert [fault for part in parts for fault in part.faults.first] == []


def test_a_client_s_part_depends_on_the_job_alone():
    one, same, other = (builtin.load("breast-cancer", n_clients=3, seed=seed).client(1) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.columns["mean radius"], same.columns["mean radius"])
    assert not np.array_equal(one.columns["mean radius"], other.columns["mean radius"])


def test_no_test_rows():
    assert builtin.load("breast-cancer", test=0.0).test() is None


def test_scikit_learn_is_not_imported_for_its_file(monkeypatch):
    breast_cancer._cells.cache_clear()
    for name in [name for name in sys.modules if name == "sklearn" or name.startswith("sklearn.")]:
        monkeypatch.delitem(sys.modules, name)
    builtin.load("breast-cancer").client(0)
    assert "sklearn" not in sys.modules


def test_without_scikit_learn(monkeypatch):
    breast_cancer._cells.cache_clear()
    monkeypatch.setattr(breast_cancer, "find_spec", lambda name: None)
    with pytest.raises(JobError, match=r"comes with scikit-learn; pip install 'fedkern\[demo\]'"):
        builtin.load("breast-cancer")
    assert importlib.util.find_spec("sklearn") is not None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("iris", {}, "builtin = 'iris': no such data; there are breast-cancer, adult, heart-disease, rppa, rppa-217, sachs"),
        ("breast-cancer", {"preprocess": "paper"}, 'preprocess = "paper": only builtin = "adult" has it'),
        ("breast-cancer", {"n_clients": 600}, "456 rows can't be dealt to 600 clients"),
    ],
)
def test_faults(name, change, message):
    with pytest.raises(JobError, match=message):
        builtin.load(name, **change)
