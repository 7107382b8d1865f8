"""The table of a paper: its numbers are those of `Result.rows`, and names are no markup."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.printing import align_numbers
from fedkern.results.manuscript import Manuscript, docx, latex, manuscript, markdown

ODD = Manuscript(("Parameter", "Mean"), (("theta[a_b|50%<c>]", "1.000"), (r"x\y^2~$z#{&}", "–")), ("I² is 3 % *here*.",))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    rng = np.random.default_rng(5)

    def rows() -> dict[str, Any]:
        X = rng.normal(size=(200, 2))
        return {"age": X[:, 0], "sex": X[:, 1], "y": (rng.random(200) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)}

    pandas = pytest.importorskip("pandas")
    data = {"north": pandas.DataFrame(rows()), "south": pandas.DataFrame(rows())}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
    folder = tmp_path_factory.mktemp("paper") / "run"
    return fedkern.run(job, data=data, out=folder), folder


@pytest.mark.parametrize("exp", [False, True])
def test_numbers_are_those_of_the_table(run: tuple[Any, Path], exp: bool) -> None:
    result, _ = run
    rows = result.rows(exp=exp)
    made = manuscript(rows, result.summary)
    assert made.head == (["Parameter", "Odds ratio"] if exp else ["Parameter", "Mean", "SD"]) + ["95 % interval"]
    keys = ["odds_ratio", "q025", "q975"] if exp else ["mean", "sd", "q025", "q975"]
    for row, cells in zip(rows, made.body, strict=True):
        numbers = [float(text) for text in " to ".join(cells[1:]).split(" to ")]
        assert numbers == pytest.approx([row[key] for key in keys], abs=5.01e-4)
    assert "400 rows" in " ".join(made.notes)
    assert "2 sites (north, south)" in " ".join(made.notes)
    assert result.summary["verdict"][1:] in made.notes[-1]


def test_counts_of_one_site_are_told_only_where_the_result_has_them(run: tuple[Any, Path]) -> None:
    result, _ = run
    assert "site_counts" not in result.summary  # the job did not ask
    notes = " ".join(manuscript(result.rows(), result.summary).notes)
    assert "Counts are of all sites together" in notes
    assert "200 rows" not in notes
    told = {"north": {"rows": 1200, "events": 31}}  # the other has fewer than sums are of
    notes = manuscript(result.rows(), result.summary | {"site_counts": told, "events": 33}).notes
    assert "2 sites (north, south), 400 rows, 33 events." in notes
    assert "By site: north, 1,200 rows, 31 events; south, not told." in notes
    assert "together" not in " ".join(notes)


def test_latex_of_odd_names() -> None:
    text = latex(ODD)
    assert r"theta[a\_b\textbar{}50\%\textless{}c\textgreater{}] & 1.000 \\" in text
    assert r"x\textbackslash{}y\textasciicircum{}2\textasciitilde{}\$z\#\{\&\} & -- \\" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_takes_it(tmp_path: Path) -> None:
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + latex(ODD) + "\\end{document}"
    (tmp_path / "a.tex").write_text(page)
    subprocess.run(["pdflatex", "-halt-on-error", "a.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_markdown_of_odd_names() -> None:
    text = markdown(ODD)
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [2, 2, 2, 2]
    assert [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in rows[2]] == list(ODD.body[0])
    assert r"\*here\*" in text


def test_word_opens_it() -> None:
    document = pytest.importorskip("docx").Document(io.BytesIO(docx(ODD)))
    assert [[cell.text for cell in row.cells] for row in document.tables[0].rows] == [list(row) for row in (ODD.head, *ODD.body)]
    assert ODD.notes[0] in [paragraph.text for paragraph in document.paragraphs]


def test_report_prints_them(run: tuple[Any, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = run
    for form, word in (("latex", "\\toprule"), ("markdown", "| --- |"), ("docx", "table.docx")):
        assert main(["report", str(folder), "--table", form]) == 0
        assert word in capsys.readouterr().out
    assert (folder / "table.docx").is_file()
    assert main(["report", str(folder), "--table", "latex", "--tidy"]) == 2
    assert "leave them out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ((1.00003, 1e-6, 1.000026, 1.000034), ["1.0000300", "0.0000010", "1.0000260", "1.0000340"]),
        ((0.05, 0.00011, 0.0498, 0.0502), ["0.05000", "0.00011", "0.04980", "0.05020"]),
        ((0.5, 0.02, 0.46, 0.54), ["0.500", "0.020", "0.460", "0.540"]),
        ((12000.0, 90.0, 11800.0, 12200.0), ["12000.000", "90.000", "11800.000", "12200.000"]),
        ((1.0, 0.0, 1.0, 1.0), ["1.000", "0.000", "1.000", "1.000"]),
    ],
)
def test_numbers_have_as_many_decimals_as_their_interval_needs(row, shown):
    assert align_numbers(*row, width=0) == shown


def test_a_name_in_brackets_is_no_argument_of_latex():
    made = Manuscript(["Parameter", "Mean"], [["[grade][II vs I]", "1"], ["*arm", "2"]], [])
    assert [line for line in latex(made).splitlines() if "&" in line][1:] == [
        r"{}[grade][II vs I] & 1 \\",
        r"{}*arm & 2 \\",
    ]
