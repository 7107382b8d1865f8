"""UCI Adult, with the numbers of the published experiments (docs/spec/pvi.md, section 13)."""

import gzip

import numpy as np
import pytest

from fedkern.data import split
from fedkern.data.design import Spec, describe, encode
from fedkern.data.sets import adult, builtin
from fedkern.errors import JobError
from support.refusal import refusal


@pytest.fixture(scope="module")
def rows(adult_folder):
    return adult.read(adult_folder)


@pytest.fixture(scope="module")
def whole(rows):
    """All rows in the files' order, as the paper preprocesses them."""
    spec = Spec("income", positive=">50K", intercept=False, columns=adult.columns("paper"))
    covariates = tuple(spec.columns[name] for name in adult.COVARIATES)
    return encode(rows.table(np.arange(rows.n_rows)), spec.encoding(covariates)), spec.encoding(covariates)


def test_the_paper_s_design(whole):
    design, encoding = whole
    assert design.X.shape == (48_842, 108)
    assert encoding.names[:7] == (*adult.PUBLIC, "workclass=?")
    assert [len(levels.split()) for levels in adult.LEVELS.values()] == [9, 16, 7, 15, 6, 5, 2, 42]
    np.testing.assert_allclose(design.X[:, :6].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(design.X[:, :6].std(axis=0), 1, rtol=1e-12)
    np.testing.assert_array_equal(design.X[:, 6:].sum(axis=1), 8)
    assert design.X[:, 6:].any(axis=0).all()  # no level of the code book is missing from the data
    assert round(100 * design.y.mean(), 2) == 23.93
    norms = np.linalg.norm(design.X, axis=1)
    measured = norms.min(), np.median(norms), np.quantile(norms, 0.95), norms.max()
    assert [round(x, 2) for x in measured[:3]] == [2.84, 3.33, 5.26]
    assert round(measured[3], 1) == 14.5


def test_the_stored_constants_are_those_of_all_rows(rows):
    table = rows.table(np.arange(rows.n_rows))
    for name, (center, scale) in adult.PAPER.items():
        np.testing.assert_allclose([center, scale], [table.columns[name].mean(), table.columns[name].std()], rtol=1e-12)
        public_center, public_scale = adult.PUBLIC[name]
        assert abs(public_center - center) < 0.15 * scale
        assert 0.9 < public_scale / scale < 1.1


def test_levels_are_sorted_and_those_of_the_files(rows):
    table = rows.table(np.arange(rows.n_rows))
    for name, levels in adult.LEVELS.items():
        assert levels.split() == sorted(table.columns[name].levels)


SPLITS = {
    "homogeneous": (0.0, 0.0, [3907] * 10, (0.2398, 0.2398), (0.23, 0.25)),
    "A": (0.9, 0.95, [390] * 5 + [7424] * 5, (0.0128, 0.0128), (0.245, 0.2573)),
    "B": (0.7, -3.0, [1172] * 5 + [6642] * 5, (0.959, 0.959), (0.1046, 0.1186)),
}


@pytest.mark.parametrize("name", SPLITS)
def test_the_three_splits(rows, name):
    rho, kappa, sizes, small, large = SPLITS[name]
    label = rows.positive()
    train, test = split.train_test(len(label), 0.2)
    assert (len(train), len(test)) == (39_074, 9_768)
    assert round(1 - label[test].mean(), 4) == 0.7621  # what always saying "no" reaches
    parts = split.imbalanced(label[train], 10, rho=rho, kappa=kappa)
    assert [len(part) for part in parts] == sizes
    assert len(np.unique(np.concatenate(parts))) == 39_070  # four rows are left over, as published
    shares = [label[train][part].mean() for part in parts]
    for found, (low, high) in ((shares[:5], small), (shares[5:], large)):
        assert round(min(found), 4) >= low
        assert round(max(found), 4) <= high
    if name == "A":
        assert [round(min(shares[5:]), 3), round(max(shares[5:]), 3)] == [0.245, 0.257]
    if name == "B":
        assert [round(min(shares[5:]), 3), round(max(shares[5:]), 3)] == [0.105, 0.118]


def test_the_built_in_federation(rows, adult_folder, monkeypatch):
    monkeypatch.setenv("FEDKERN_DATA", str(adult_folder.parent))
    federation = builtin.load("adult", rho=0.7, kappa=-3.0, preprocess="paper")
    assert federation.clients[0] == "client-01"
    spec = Spec("income", positive=">50K", intercept=False, columns=federation.columns, private=True, standardise="public")
    part = federation.client(9)
    summary = describe(part, spec)
    assert summary.names == adult.COVARIATES == federation.names()[:-1]
    encoding = spec.encoding(tuple(federation.columns[name] for name in summary.names))
    made, test = encode(part, encoding, private=True), encode(federation.test(), encoding)
    assert (made.X.shape, test.X.shape) == ((6642, 108), (9768, 108))
    order = np.random.RandomState(0).permutation(rows.n_rows)
    whole = encode(rows.table(order[39_074:]), encoding)
    np.testing.assert_array_equal(test.X, whole.X)
    assert federation.columns["age"].constants == adult.PAPER["age"]
    assert builtin.load("adult").columns["age"].constants == (40.0, 14.0)


def test_missing_and_altered_files(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match=r"builtin = \"adult\": set FEDKERN_DATA to the folder that holds uci-adult"):
        adult.read()
    with refusal(JobError, "adult.data", "adult.data.gz", "Adult"):
        adult.read(tmp_path)
    with gzip.open(tmp_path / "adult.data.gz", "wb") as file:
        file.write(b"39, State-gov, 77516\n")
    with refusal(JobError, "adult.data", "1", "32561", "15"):
        adult.read(tmp_path)
