"""Whole reproductions of the sparse models, with few rounds: real runs, real tables, real figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from papers import sparse_mrf, sparse_regression, sparse_sem, sparse_simulation
from papers.sparse_simulation import Design

needs_data = pytest.mark.skipif("FEDKERN_DATA" not in os.environ, reason="set FEDKERN_DATA to the folder of the published data")


def drawn(path: Path) -> bool:
    return path.stat().st_size > 10_000


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


@needs_data
def test_signalling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_sem, "FAST", 20)
    monkeypatch.setattr(sparse_sem, "CELLS", 40)
    text = sparse_sem.run(tmp_path, fast=True).read_text()
    # 20 rounds cannot converge: every run bears the mark
    for words in ("the learned network, 17 arcs", "| federated* |", "| pooled cells, by abs average* |", "| cd3cd28 alone* |"):
        assert words in text, words
    assert all(drawn(tmp_path / name) for name in ("pip.png", "graph.png", "pairs.png", "average.png"))


def test_a_simulation_study_finds_strong_effects_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strong = Design("two effects", clients=2, columns=4, rows=100, effects=(1.0, -1.0))
    off = Design("one client off", clients=3, columns=5, rows=100, effects=(1.0, -0.7), apart=True)
    made: list[Any] = []
    real = sparse_simulation.run_one

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        map = staticmethod(map)

    monkeypatch.setattr(sparse_simulation, "designs", lambda: [(strong, 1), (off, 1)])
    monkeypatch.setattr(sparse_simulation, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(sparse_simulation, "run_one", lambda task: made.append(task) or real(task))
    monkeypatch.setattr(sparse_simulation, "FAST", 200)
    text = sparse_simulation.run(tmp_path, fast=True).read_text()
    assert len(made) == 2
    outcomes = list(sparse_simulation._read(tmp_path / "results-fast.jsonl"))
    first, second = outcomes
    assert min(first.pips[:2]) > 0.5 > max(first.pips[2:])
    assert first.rmse < 1.2 * first.rmse_site
    assert min(second.shares[:2]) > 0.5
    assert second.shares[2] < 0.3
    lines = (tmp_path / "results-fast.jsonl").read_text().splitlines()
    (tmp_path / "results-fast.jsonl").write_text(lines[0] + "\n")
    assert sparse_simulation.run(tmp_path, fast=True).read_text() == text
    assert len(made) == 3
    assert made[-1][0] == off
    assert drawn(tmp_path / "power.png")
