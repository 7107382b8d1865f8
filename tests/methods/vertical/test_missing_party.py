"""Rows that lack a party: its part of the predictor regressed on the columns of all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import missing
from fedkern.cli.__main__ import main
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol as in_process
from support.wires import checked_and_run

N, NEW = 90, 7


def clients(sizes: tuple[int, ...], seed: int = 1) -> list[missing.Client]:
    """Parties whose columns have a common cause, so that they say something of each other."""
    random = np.random.default_rng(seed)
    cause = random.standard_normal((N + NEW, 1))
    out = []
    for p in sizes:
        X = 0.8 * cause + random.standard_normal((N + NEW, p))
        X -= X[:N].mean(axis=0)
        out.append(missing.Client(X[:N], X[N:], 0.3 + X[:N] @ random.standard_normal(p), 0.02))
    return out


def ended(parties: list[missing.Client]) -> missing.Server:
    J = len(parties)
    codec = Codec({"n": N, "t": NEW, "others": J - 1}, J)
    server, _ = in_process(missing.PROTOCOL, missing.start(J), dict(enumerate(parties)), codec)
    return server


def regressed(parties: list[missing.Client], m: int) -> tuple[np.ndarray, float]:
    """The ridge regression of the part of m on all other columns at once."""
    others = [k for k in range(len(parties)) if k != m]
    X, new = (np.hstack([getattr(parties[k], name) for k in others]) for name in ("X", "new"))
    g = parties[m].g
    slope = np.linalg.solve(X.T @ X + np.eye(X.shape[1]), X.T @ (g - g.mean()))
    return g.mean() + new @ slope, float(np.mean((g - g.mean() - X @ slope) ** 2))


def test_of_two_parties_it_is_the_regression_on_the_other_s_columns() -> None:
    parties = clients((3, 2))
    server = ended(parties)
    assert server.passes == 1
    for m in range(2):
        mean, left = regressed(parties, m)
        found, variance = server.missing(m)
        np.testing.assert_allclose(found, mean, rtol=1e-12)
        np.testing.assert_allclose(variance, left + 0.02, rtol=1e-12)


def test_of_more_parties_backfitting_ends_at_the_regression_on_all_columns() -> None:
    parties = clients((3, 2, 4))
    server = ended(parties)
    assert 1 < server.passes <= missing.PASSES
    for m in range(3):
        mean, left = regressed(parties, m)
        found, variance = server.missing(m)
        np.testing.assert_allclose(found, mean, atol=0.01 * parties[m].g.std())
        np.testing.assert_allclose(variance, left + 0.02, rtol=1e-3)


def test_negative_control_one_pass_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "PASSES", 1)
    parties = clients((3, 2, 4))
    server = ended(parties)
    away = [np.abs(server.missing(m)[0] - regressed(parties, m)[0]).max() / parties[m].g.std() for m in range(3)]
    assert max(away) > 0.02


def test_one_party_alone_is_replaced_by_its_mean() -> None:
    parties = clients((2,))
    np.testing.assert_allclose(ended(parties).missing(0)[0], parties[0].g.mean())


def test_what_was_not_asked_is_refused() -> None:
    server, _ = missing.start(2)
    new, rows = np.zeros((1, NEW)), np.zeros((1, N))
    for message in (missing.FittedPart(0, rows[0], -1.0), missing.Filled(1, new), missing.Explained(1, rows)):
        with pytest.raises(RemoteFault, match="was not expected"):
            missing.server_receive(server, 0, message)


def related(tmp_path: Path) -> Path:
    """A job whose second client's columns follow, but for noise, from the first's."""
    path = simulate("vertical", tmp_path / "vertical", Settings(clients=2, rows=200, columns=2, seed=2))
    lines = [(path.parent / "clients" / f"client-0{k}.csv").read_text().splitlines() for k in (1, 2)]
    cells = {line.split(",")[0]: [float(cell) for cell in line.split(",")[1:]] for line in lines[0][1:]}
    random = np.random.default_rng(3)
    moved = [lines[1][0]]
    for line in lines[1][1:]:
        name = line.split(",")[0]
        moved.append(",".join([name, *(str(c + 0.3 * e) for c, e in zip(cells[name], random.standard_normal(2)))]))
    (path.parent / "clients" / "client-02.csv").write_text("\n".join(moved) + "\n")
    return path


def test_both_rules_are_scored_and_each_message_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = related(tmp_path)
    wanted: dict[str, Any] = {"job": {"rounds": 60}, "output": {"missing_party": "columns"}}
    result = checked_and_run(path, tmp_path / "out", **wanted)
    for ways in result.summary["prediction"]["without"].values():
        assert ways.keys() == {"conditional", "mean", "columns"}
    for name in ("client-01", "client-02"):
        sent = [json.loads(line) for line in (tmp_path / "out" / "ledger" / f"{name}.jsonl").read_text().splitlines()]
        kinds = [message["kind"] for message in sent]
        assert kinds.count("FittedPart") == kinds.count("Explained") == kinds.count("Filled") == 1
    assert main(["check", "--verbose", str(path), "--set", "output.missing_party=columns"]) == 0
    said = capsys.readouterr().out
    assert "each client learns the others' fitted part of every training row" in " ".join(said.split())
    assert main(["check", "--verbose", str(path), "--set", "output.missing_party=true"]) == 0
    assert "others' fitted part" not in capsys.readouterr().out  # nor does it leave
    plain = fedkern.run(path, job={"rounds": 60}, output={"missing_party": True})
    assert "missing-party" not in json.dumps(plain.summary["wire"])


def test_without_a_row_to_predict_it_is_said_that_it_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = related(tmp_path)
    wanted: dict[str, Any] = {"data": {"holdout": 0.0}, "output": {"missing_party": "columns"}}
    result = fedkern.run(path, job={"rounds": 60}, **wanted)
    assert any("output.missing_party: no row is predicted" in note for note in result.summary["notes"])
    assert main(["check", "--verbose", str(path), "--set", "output.missing_party=columns", "--set", "data.holdout=0"]) == 0
    assert "no row is predicted" in " ".join(capsys.readouterr().out.split())


def test_a_private_job_has_no_such_rule() -> None:
    tables = {"job": {"method": "vertical"}, "data": {"clients": ["x.csv"], "id": "id", "response": "y", "server": "y.csv"}}
    with pytest.raises(JobError, match=r"\[privacy\]: output.missing_party would tell fitted parts"):
        parse({**tables, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "output": {"missing_party": "columns"}})
