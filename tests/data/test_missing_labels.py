"""A label that programs write as missing is missing, and so is a word that the job names, whatever file it stands in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from support.refusal import refusal

SITES = ("a", "b")


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(3)

    def rows(n):
        arm, x = rng.choice(["low", "mid", "top"], n).astype(object), rng.normal(size=n)
        y = 0.5 * x + 0.7 * (arm == "mid") + rng.normal(size=n)
        arm[rng.random(n) < 0.1] = None
        return pd.DataFrame({"y": y, "x": x, "arm": arm, "code": np.where(rng.random(n) < 0.1, 9.0, np.round(x, 3))})

    return {site: rows(150) for site in SITES}


def run(folder, tables, form, *, word="NA", used=("y", "x", "arm"), **data):
    """The digest of a job on tables that are written in a form; `word`: how a missing label is written."""
    told = {site: table[[*used]].fillna({"arm": word}) for site, table in tables.items()}
    job = {
        "job": {"method": "likelihood"},
        "data": {"response": "y", "clients": [str(folder / f"*.{form}")]} | data,
        "model": {"family": "gaussian", "missing": "drop"},
    }
    if form == "frame":
        del job["data"]["clients"]
        return fedkern.run(job, data=told).summary["digest"]
    for site, table in told.items():
        table.to_csv(folder / f"{site}.csv", index=False) if form == "csv" else table.to_parquet(folder / f"{site}.parquet")
    return fedkern.run(job).summary["digest"]


def test_a_label_that_programs_write_as_missing_is_missing(tmp_path, tables):
    wanted = run(tmp_path, tables, "csv", word="")
    for form, word in (("csv", "NA"), ("csv", "nan"), ("parquet", "NA"), ("frame", "<NA>")):
        assert run(tmp_path, tables, form, word=word) == wanted, (form, word)


def test_a_level_that_the_job_declares_is_one_whatever_its_name(tmp_path, tables):
    levels, renamed = ({"arm": {"levels": [word, "low", "mid", "top"]}} for word in ("NA", "NZ"))
    assert run(tmp_path, tables, "csv", columns=levels) == run(tmp_path, tables, "csv", word="NZ", columns=renamed)


def test_a_missing_label_is_a_fault_where_the_job_drops_no_rows(tmp_path, tables):
    tables["a"][["y", "arm"]].fillna({"arm": "NA"}).to_csv(tmp_path / "a.csv", index=False)
    tables["b"][["y", "arm"]].fillna({"arm": "NA"}).to_csv(tmp_path / "b.csv", index=False)
    job = {"job": {"method": "likelihood"}, "data": {"response": "y", "clients": [str(tmp_path / "*.csv")]}}
    with refusal(JobError, "model.missing", "drop"):
        fedkern.run({**job, "model": {"family": "gaussian", "missing": "error"}})


def test_words_of_the_job_are_empty_cells_in_tables_with_types(tmp_path, tables):
    words = {"used": ("y", "x", "code"), "dialect": {"missing": ["9"]}}
    wanted = run(tmp_path, tables, "csv", **words)
    assert run(tmp_path, tables, "parquet", **words) == wanted
    assert run(tmp_path, tables, "frame", **words) == wanted
