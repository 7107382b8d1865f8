"""A job whose rows are all in this process needs no `data.levels`: labels that have an order of their own are in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from support.refusal import refusal


def rows(labels: list[Any], seed: int, n: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame({"x": random.normal(size=n), "y": random.choice(np.array(labels, dtype=object), n)})


def job(family: str, **data: Any) -> dict[str, Any]:
    return {"job": {"method": "likelihood"}, "model": {"family": family, "formula": "y ~ x"}, "data": data}


def levels(family: str, data: dict[str, pd.DataFrame], **keys: Any) -> Any:
    return fedkern.run(job(family, **keys), data=data).job["data"]["levels"]


def test_labels_are_sorted_and_numbers_stand_in_their_order() -> None:
    words = {"a": rows(["wait", "no", "yes"], 1), "b": rows(["yes", "no"], 2)}
    assert levels("multinomial", words) == ["no", "wait", "yes"]
    assert levels("multinomial", words, levels=["yes", "no", "wait"]) == ["yes", "no", "wait"]
    scores = {"a": rows([2, 10, 1], 1), "b": rows([2, 3], 2)}
    assert levels("ordinal", scores) == ["1", "2", "3", "10"]


def test_categories_that_have_an_order_keep_it_and_words_have_none() -> None:
    data = {"a": rows(["none", "mild", "severe"], 1), "b": rows(["none", "mild", "severe"], 2)}
    with refusal(JobError, "data.levels"):
        levels("ordinal", data)
    grades = pd.CategoricalDtype(["none", "mild", "severe"], ordered=True)
    ordered = {name: frame.astype({"y": grades}) for name, frame in data.items()}
    assert levels("ordinal", ordered) == ["none", "mild", "severe"]
    ordered["b"] = ordered["b"].assign(y=ordered["b"]["y"].cat.reorder_categories(["severe", "mild", "none"]))
    with refusal(JobError, "data.levels"):
        levels("ordinal", ordered)


def test_levels_of_files_that_this_process_reads_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = {"a": rows(["wait", "no", "yes"], 1), "b": rows(["yes", "no"], 2)}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    text = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[model]\nfamily = "multinomial"\n'
    (tmp_path / "job.toml").write_text(text)
    job = str(tmp_path / "job.toml")
    found = fedkern.run(job)
    assert found.job["data"]["levels"] == ["no", "wait", "yes"]
    assert found.digest == fedkern.run(job, data={"levels": ["no", "wait", "yes"]}).digest
    assert main(["run", job, "--quiet", "--out", str(tmp_path / "out")]) == 0
    assert fedkern.load(tmp_path / "out").digest == found.digest
    # Where parties are to be apart the job names them, and a policy that binds rows is asked before any is read.
    with refusal(JobError, "data.levels"):
        fedkern.check(job, apart=True)
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "a.toml").write_text('policy = "../policy.toml"\n')
    (tmp_path / "policy.toml").write_text("open = true\n[data.a]\n")
    with refusal(JobError, "data.levels"):
        fedkern.run(job)
