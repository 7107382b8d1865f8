"""A notebook: a real kernel shows the bar, errors of one line, and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fedkern.errors
from fedkern.errors import JobError
from fedkern.printing import Lines

CELLS = (
    """import os, numpy as np, fedkern
x = np.linspace(-1, 1, 60)
rows = lambda shift: (np.column_stack([x, np.sin(7 * x + shift)]), 1 + 2 * x + 0.1 * np.cos(31 * x + shift))
data = {"north": rows(0), "south": rows(1)}
job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
result = fedkern.run(job, data=data, out="first")""",
    "fedkern.check(job, data=data)",
    'fedkern.ledger("first")',
    "from fedkern.cli.__main__ import main; code = main(['report', 'first', '--open'])",
    "!python -P -m fedkern report first --open",
    "fedkern.run(job | {'model': {'family': 'gausian'}}, data=data)",
    "fedkern.errors.print_traceback()",
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The outputs of the cells, which a kernel has run one after the other."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("notebook")
    spec = folder / "kernels" / "here"
    spec.mkdir(parents=True)
    # This interpreter, whatever kernels the machine knows.
    argv = f'["{sys.executable}", "-P", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (spec / "kernel.json").write_text(f'{{"argv": {argv}, "display_name": "here", "language": "python"}}')
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
        client = nbclient.NotebookClient(
            book, kernel_name="here", allow_errors=True, timeout=120, resources={"metadata": {"path": folder}}
        )
        client.execute()
    return [cell["outputs"] for cell in book["cells"]]


def texts(outputs: Any, kind: str) -> str:
    """All that the outputs of a cell have in one form."""
    return "".join(one["data"].get(kind, "") for one in outputs if "data" in one)


def streams(outputs: Any) -> str:
    return "".join(one["text"] for one in outputs if one["output_type"] == "stream")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.nightly
def test_what_a_notebook_shows(cells: list[Any]) -> None:
    ran, checked, ledger, inline, shell, failed, behind = cells
    assert not [one for one in ran if one["output_type"] == "error"], ran
    assert "warn" not in streams(ran)
    for shown, word in ((checked, "clients  2 by likelihood: north (60 rows), south (60 rows)"), (ledger, "Curvature")):
        assert texts(shown, "text/html").startswith("<pre")
        assert word in texts(shown, "text/html")
        assert word in texts(shown, "text/plain")
    assert "<iframe sandbox srcdoc=" in texts(inline, "text/html")
    assert "IFrame('first/report.html', '100%', 640)" in streams(shell)
    (error,) = failed
    assert error["ename"] == "JobError"
    assert 'did you mean "gaussian"?' in error["traceback"][0]
    assert len(error["traceback"]) == 2
    assert "Traceback (most recent call last)" in streams(behind)
    assert "api.py" in streams(behind)


def test_an_error_at_a_prompt_is_its_text() -> None:
    lines = JobError("age: wanted a number\x1b[2J")._render_traceback_()
    assert lines[0] == "JobError: age: wanted a number\\x1b[2J"


def test_without_an_error_there_is_nothing_behind(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    fedkern.errors.print_traceback()
    assert "no error" in capsys.readouterr().err


def test_names_are_no_markup_in_a_notebook() -> None:
    assert Lines(["<b>north</b>"])._repr_html_().count("<") == 2  # those of <pre> and </pre>
