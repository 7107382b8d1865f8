"""A type checker knows the columns of `table()`, `rows()` and `predict()`: mypy reads a user's lines."""

import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from fedkern.kernels.families import FAMILIES, HAZARDS
from fedkern.results import frames, table

ROOT = Path(__file__).parents[2]

USER = """\
import pandas as pd

import fedkern
from fedkern.kernels import rng

result = fedkern.load("runs/first")
row = result.rows()[0]
name: str = row["parameter"]
half: float = result.rows(exp=True)[0]["odds_ratio"] / 2
result.rows()["mean"].sum()
wrong: int = row["parameter"]  # E
row["maen"]  # E
table = result.table()
names: list[str] = table["parameter"].tolist()
means: list[float] = table["mean"].tolist()
table["men"]  # E
numbers: list[int] = table["parameter"].tolist()  # E
frame: pd.DataFrame = table
indexed = table.set_index("parameter").loc["theta[age]"]
large = table[table["mean"] > 0][["parameter", "mean"]]
predicted = result.predict("new.csv")
rates: list[float] = predicted["mean"].tolist()
patients = predicted["patient"].tolist()
texts: list[str] = predicted["linear_sd"].tolist()  # E
prediction = result.prediction("new.csv")
prediction.rows().to_pandas()
prediction.maen  # E
draws: list[int] = [rng.key(7), rng.register("mine.draws")]
state: dict[str, object] = rng.bit_generator(7).jumped(2).state
"""


def errors(tmp_path: Path, text: str) -> tuple[list[int], str]:
    """Lines of a user's module that `mypy --strict` finds wrong, against the checkout's sources."""
    (tmp_path / "user.py").write_text(text)
    check = [sys.executable, "-P", "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    check += ["--cache-dir", str(tmp_path / "cache"), "user.py"]
    env = os.environ | {"MYPYPATH": str(ROOT)}
    run = subprocess.run(check, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode in (0, 1), run.stderr
    return [int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error: " in line], run.stdout


@pytest.mark.nightly
def test_mypy_knows_the_columns(tmp_path: Path) -> None:
    found, printed = errors(tmp_path, USER)
    assert found == [i for i, line in enumerate(USER.splitlines(), 1) if line.endswith("# E")], printed


def test_the_types_have_every_column() -> None:
    numbers = {*table.NUMBERS, *table.ENDS, *table.MORE, *filter(None, map(table.ratio_of, [*FAMILIES, *HAZARDS]))}
    assert set(typing.get_args(frames.NumberColumn)) == numbers
    assert set(typing.get_args(frames.TextColumn)) | numbers == set(frames.TableRow.__annotations__)
    assert set(typing.get_args(frames.PredictedColumn)) == {"mean", "linear_mean", "linear_sd", *table.ENDS}


def test_rows_are_a_list_of_which_a_text_gives_a_column() -> None:
    rows = frames.Rows([{"parameter": f"theta[{i}]", "mean": i / 2} for i in range(60)])
    assert rows[3:5] == [rows[3], rows[4]]
    assert isinstance(rows[3:5], frames.Rows)
    assert rows["mean"].dtype == float
    assert rows["parameter"].tolist() == [f"theta[{i}]" for i in range(60)]
    with pytest.raises(KeyError, match="sd"):
        rows["sd"]
    assert rows.columns == ["parameter", "mean"]
    assert frames.Rows([]).columns == []
    assert rows.to_pandas()["mean"].tolist() == rows["mean"].tolist()
    shown = rows._repr_html_()
    assert "theta[49]" in shown
    assert "theta[50]" not in shown
    assert "50 of 60 rows" in shown
    assert "&lt;b&gt;" in frames.Rows([{"<b>": 1.0}])._repr_html_()  # names come from files
