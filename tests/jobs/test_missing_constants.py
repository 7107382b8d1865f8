"""What a private job lacks is said all at once, by `check` and `run` alike, and from the job file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkern.cli.__main__ import main
from fedkern.data.simulate import federations

PVI = '[job]\nmethod = "pvi"\n[data]\nclients = ["clients/*.csv"]\nresponse = "y"\n'
VERTICAL = PVI.replace("pvi", "vertical") + 'id = "id"\nserver = "server.csv"\n'
TERMS = "epsilon = 1.0\ndelta = 1e-5\nclip = 2.5\nnoise_multiplier = 5.0\nsampling_rate = 0.1\n"
EVERY = "for every covariate [data.columns.NAME] must give"


def said(folder: Path, kind: str, text: str, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    if not (folder / "clients").exists():
        federations.simulate(kind, folder, federations.Settings(clients=3, rows=40, columns=2))
    (folder / "lacking.toml").write_text(text)
    capsys.readouterr()
    assert main([command, str(folder / "lacking.toml"), *(["--out", str(folder / "run")] if command == "run" else [])]) == 2
    return capsys.readouterr().err


def declared(*names: str, constants: str = "") -> str:
    return "".join(f"[data.columns.{name}]\n{constants}" for name in names)


@pytest.mark.parametrize("command", ["check", "run"])
def test_terms_and_columns_at_once(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(tmp_path, "logistic", PVI + "[privacy]\n", command, capsys)
    for name in ("epsilon", "delta", "clip", "noise_multiplier", "sampling_rate"):
        assert f"privacy.{name} is missing" in text
    assert f"{EVERY}" in text
    assert "it does for none yet;" in text
    text = said(tmp_path, "logistic", PVI + declared("x1", "x2") + "[privacy]\nepsilon = 1.0\n", command, capsys)
    assert "privacy.epsilon" not in text
    assert "privacy.delta is missing" in text
    assert "but what it says of 'x1', 'x2' is not complete" in text


def test_what_is_there_is_not_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = declared("x1", "x2", constants="center = 0.0\nscale = 1.0\n")
    text = said(tmp_path, "logistic", PVI + known + "[privacy]\nepsilon = 1.0\n", "check", capsys)
    assert "privacy.delta is missing" in text
    assert EVERY not in text
    wrong = declared("x1", constants="center = 0.0\n")
    text = said(tmp_path, "logistic", PVI + wrong + "[privacy]\nepsilon = 1.0\n", "check", capsys)
    assert "privacy.delta is missing" in text
    assert "[data.columns.x1]: needs both center and scale" in text


def test_all_terms_of_all_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = declared("x1", "x2", constants="center = 0.0\nscale = 1.0\n")
    terms = TERMS.replace("clip = 2.5\n", "").replace("epsilon = 1.0\n", "")
    own = "[privacy.clients.client-02]\nclip = 1.0\nepsilon = 1.0\n"
    text = said(tmp_path, "logistic", PVI + known + "[privacy]\n" + terms + own, "check", capsys)
    for client in ("client-01", "client-03"):
        assert f"privacy.epsilon, clip are missing for client {client!r}; give them in [privacy]" in text
    assert "client-02" not in text


@pytest.mark.parametrize("command", ["check", "run"])
def test_vertical_columns_of_all_clients_at_once(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(tmp_path, "vertical", VERTICAL + "[privacy]\n", command, capsys)
    for words in ("privacy.epsilon is missing", "privacy.delta is missing", EVERY):
        assert words in text
    one = declared("x1_1", "x1_2", constants="center = 0.0\nscale = 1.0\n")
    text = said(tmp_path, "vertical", VERTICAL + one + "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n", command, capsys)
    assert f"clients 'client-02', 'client-03': a private job asks no row what a column is: {EVERY}" in text
    assert "it does for 'x1_1', 'x1_2'" in text
    assert "x2_1" not in text  # a header may be a row
