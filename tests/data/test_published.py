"""Public data sets with clients of their own: what their READMEs and papers say of them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from fedkern.data.sets import builtin, heart_disease, published, rppa, sachs
from fedkern.errors import JobError
from support.refusal import refusal

FILES = {
    "heart-disease": "uci-heart-disease/processed.va.data",
    "rppa": "tcga-brca-rppa/brca_rppa.csv.gz",
    "rppa-217": "tcga-brca-rppa/brca_rppa.csv.gz",
    "sachs": "sachs-2005/sachs_all14.csv.gz",
}


def needs(name):
    there = (Path(os.environ.get("FEDKERN_DATA", ".")) / FILES[name]).exists()
    return pytest.mark.skipif(not there, reason=f"needs {FILES[name]} in the folder FEDKERN_DATA")


@needs("heart-disease")
def test_the_hospitals_and_what_they_did_not_measure():
    sites = heart_disease.read()
    assert {site: len(columns["age"]) for site, columns in sites.items()} == heart_disease.SITES
    missing = {site: {c: int(np.isnan(v).sum()) for c, v in columns.items()} for site, columns in sites.items()}
    assert {site: {c: n for c, n in counts.items() if n} for site, counts in missing.items()} == {
        "cleveland": {},
        "hungarian": {"trestbps": 1, "chol": 23, "fbs": 8, "exang": 1, "thalach": 1},
        "switzerland": {"trestbps": 2, "chol": 123, "fbs": 75, "exang": 1, "oldpeak": 6, "thalach": 1},
        "va": {"trestbps": 57, "chol": 56, "fbs": 7, "exang": 53, "oldpeak": 56, "thalach": 53},  # zeros: 1 and 49 of these
    }
    first = {column: values[0] for column, values in sites["cleveland"].items()}
    assert first["age"] == 63
    assert (first["male"], first["trestbps"], first["chol"], first["oldpeak"], first["thalach"]) == (1, 145, 233, 2.3, 150)
    assert (first["cp=typical"], first["cp=atypical"], first["cp=non-anginal"]) == (1, 0, 0)
    assert sum(sites["cleveland"][name].sum() for name in heart_disease.CHEST_PAIN) == 303 - 144  # the others: no symptoms


@needs("rppa")
def test_the_sites_with_at_least_fifty_tumours():
    few, whole = rppa.read(), rppa.read(whole=True)
    assert [len(columns["HER2"]) for columns in few.values()] == [120, 91, 74, 69, 66, 61, 53]
    assert tuple(few["mayo"]) == rppa.PAPER
    assert len(rppa.PAPER) == 11
    assert len(whole["mayo"]) == 217
    together = np.concatenate([np.stack([*columns.values()], axis=1) for columns in whole.values()])
    assert together.shape == (534, 217)
    assert np.isfinite(together).all()
    assert 0.7 < together.std() < 1.2
    np.testing.assert_array_equal(whole["asterand"]["P53"], few["asterand"]["P53"])


@needs("sachs")
def test_the_main_set_of_the_signalling_experiment():
    conditions = sachs.read()
    assert {name: len(columns["Raf"]) for name, columns in conditions.items()} == dict(sachs.CONDITIONS.values())
    assert sum(len(columns["Raf"]) for columns in conditions.values()) == 7466
    assert tuple(conditions["pma"]) == sachs.NODES
    assert conditions["cd3cd28"]["Raf"][0] == pytest.approx(np.log(26.4))
    assert conditions["cd3cd28"]["Jnk"][0] == pytest.approx(np.log(40.0))
    raf, mek = conditions["cd3cd28"]["Raf"], conditions["cd3cd28"]["Mek"]
    assert np.corrcoef(raf, mek)[0, 1] > 0.5


@needs("sachs")
def test_the_two_networks_are_those_of_the_file():
    lines = (Path(os.environ["FEDKERN_DATA"]) / "sachs-2005" / "edges.csv").read_text().split()[1:]
    cells = [line.split(",") for line in lines]
    assert {(c[0], c[1]) for c in cells if c[4] == "1"} == sachs.LEARNED
    assert {(c[0], c[1]) for c in cells if c[5] == "1"} == sachs.CONSENSUS
    assert {c[0]: c[2] for c in cells}.items() <= dict(zip(sachs.NODES, sachs.COLUMNS)).items()


def test_adjacency_is_to_from():
    found = sachs.adjacency(sachs.LEARNED)
    assert found.sum() == 17
    assert sachs.adjacency(sachs.CONSENSUS).sum() == 18
    assert found[sachs.NODES.index("Mek"), sachs.NODES.index("Raf")] == 1
    assert found[sachs.NODES.index("Raf"), sachs.NODES.index("Mek")] == 0
    assert len(sachs.LEARNED & sachs.CONSENSUS) == 13


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in FILES])
def test_a_built_in_federation_has_its_own_clients(name):
    read, response = builtin.NATURAL[name]
    sites = read()
    found = builtin.load(name)
    assert found.clients == tuple(sites)
    assert found.test() is None
    assert found.positive is None
    assert (found.names()[-1] == response) if response else (found.names() == tuple(sites[found.clients[0]]))
    for k, client in enumerate(found.clients):
        table = found.client(k)
        assert table.source == f"{name}, {client}"
        for column, values in sites[client].items():
            np.testing.assert_array_equal(table.columns[column], values)
    with refusal(JobError, "paper", "adult"):
        builtin.load(name, preprocess="paper")


PARTS = [(heart_disease, "uci-heart-disease"), (rppa, "tcga-brca-rppa"), (sachs, "sachs-2005")]


@pytest.mark.parametrize(("module", "part"), PARTS)
def test_missing_files(module, part, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match=f"set FEDKERN_DATA to the folder that holds {part}/"):
        module.read()
    with pytest.raises(JobError, match=r"neither .* nor .*\.gz; get .*doi"):
        module.read(tmp_path)


def test_altered_files(tmp_path):
    with gzip.open(tmp_path / "processed.cleveland.data.gz", "wb") as file:
        file.write(b"63.0,1.0\n")
    with pytest.raises(JobError, match="1 rows, needs the 303 of the published file with 14 cells each"):
        heart_disease.read(tmp_path)
    (tmp_path / "sachs_all14.csv").write_text("condition,a\n1,2\n")
    with pytest.raises(JobError, match="columns condition,a; needs condition, praf"):
        sachs.read(tmp_path)
    (tmp_path / "brca_rppa.csv").write_text("patient,a\nTCGA-BH-1,2\n")
    with pytest.raises(JobError, match="1 rows, needs the 873 of the published file with 241 cells each"):
        rppa.read(tmp_path)


def test_cells_that_are_no_numbers_are_missing():
    found = published.numbers(["1", "?", "", "-.5"])
    np.testing.assert_array_equal(found, [1, np.nan, np.nan, -0.5])
