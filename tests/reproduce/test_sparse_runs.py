"""Whole reproductions of the sparse models, with few rounds: real runs, real tables, real figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from papers import sparse_mrf, sparse_regression, sparse_sem

needs_data = pytest.mark.skipif("FEDKERN_DATA" not in os.environ, reason="set FEDKERN_DATA to the folder of the published data")


def drawn(path: Path) -> bool:
    return path.stat().st_size > 10_000


@pytest.mark.nightly  # by day methods/sparse/test_jobs.py runs small ones
@needs_data
def test_four_hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_regression, "FAST", 200)
    text = sparse_regression.run(tmp_path, fast=True, printed=True).read_text()
    for words in ("## Heart disease, four hospitals", "| cp=non-anginal |", "Selection: ", "| S_pO2 | 0.673 |", "printed: PIP"):
        assert words in text, words
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    age = numbers["hospitals"]["average_std[age]"]
    assert -0.42 < age["mean"] < -0.2  # older people reach lower rates, whatever the rounds
    assert age["p_positive"] < 0.01
    assert numbers["simulated"]["theta_std[S_pO2]"]["pip"] > 0.5
    assert drawn(tmp_path / "effects.png")
    before = (tmp_path / "hospitals" / "summary.json").stat().st_mtime_ns
    sparse_regression.run(tmp_path, fast=True)
    assert (tmp_path / "hospitals" / "summary.json").stat().st_mtime_ns == before


@needs_data
def test_eleven_proteins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_mrf, "FAST", 30)
    text = sparse_mrf.run(tmp_path, fast=True).read_text()
    assert "11 regressions; 4 chains of 24 kept draws" in text
    assert "of 55 pairs" in text
    assert drawn(tmp_path / "eleven-pip.png")
    assert drawn(tmp_path / "eleven-graph.png")


@pytest.mark.nightly
@needs_data
def test_signalling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_sem, "FAST", 20)
    monkeypatch.setattr(sparse_sem, "CELLS", 40)
    text = sparse_sem.run(tmp_path, fast=True).read_text()
    # 20 rounds cannot converge: every run bears the mark
    for words in ("the learned network, 17 arcs", "| federated* |", "| pooled cells, by abs average* |", "| cd3cd28 alone* |"):
        assert words in text, words
    assert all(drawn(tmp_path / name) for name in ("pip.png", "graph.png", "pairs.png", "average.png"))
