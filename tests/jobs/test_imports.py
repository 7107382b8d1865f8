"""What a job imports: its own method, and of SciPy what it calls. Modules are counted, since seconds differ by machine."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from fedkern._imports import imported
from support.input_cases import METHODS

COMMAND = """
import sys
from fedkern.cli.__main__ import main
assert main(["run", "job.toml", "--out", "out", "--quiet"]) == 0
print(*sys.modules)
"""
CALL = """
import sys
import fedkern
rows = {"x": [0.1, 0.7, 1.3, 0.2, 0.9, 1.8] * 20, "y": [0, 1, 0, 0, 1, 1] * 20}
fedkern.run({"job": {"method": "likelihood"}, "data": {"response": "y"}}, data={"a": rows, "b": rows})
print(*sys.modules)
"""
ARRAYS = CALL.replace("import sys\n", "import numpy as np, sys\n").replace('"a": rows, "b": rows', '"a": arrays, "b": arrays')
ARRAYS = ARRAYS.replace("fedkern.run", "arrays = {name: np.array(cells) for name, cells in rows.items()}\nfedkern.run")
LITTLE = {"linalg", "special", "version"}
OF_MAPS = {"constants", "fft", "interpolate", "optimize", "sparse", "spatial"}
MOST = 400  # modules of this package, of 620


def _modules(code: str, folder: Path) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def _of(modules: set[str], package: str) -> set[str]:
    """Public parts of a package."""
    parts = {name.removeprefix(f"{package}.").partition(".")[0] for name in modules if name.startswith(f"{package}.")}
    return {part for part in parts if not part.startswith("_")}


@pytest.mark.parametrize("method", ["likelihood", "pvi", "sigma", "sparse", "vertical", "describe"])
def test_a_job_imports_its_own_method_and_little_of_scipy(method: str, tmp_path: Path) -> None:
    METHODS[method](tmp_path)
    modules = _modules(COMMAND, tmp_path)
    assert _of(modules, "fedkern.methods") - {"installed"} == {method}
    assert _of(modules, "scipy") <= LITTLE | (OF_MAPS if method == "sigma" else set())
    assert len([name for name in modules if name.startswith("fedkern")]) < MOST
    assert not modules & {"pandas", "narwhals", "numba", "matplotlib", "arviz", "xarray"}


def test_a_call_asks_of_other_methods_their_keys_alone(tmp_path: Path) -> None:
    modules = _modules(CALL, tmp_path)
    others = {"pvi", "sparse", "vertical", "sigma", "describe"}
    assert not {f"fedkern.methods.{name}.doors" for name in others} & modules
    assert _of(modules, "scipy") <= LITTLE


def test_rows_in_arrays_need_no_other_methods_keys_and_no_data_frames(tmp_path: Path) -> None:
    modules = _modules(ARRAYS, tmp_path)
    assert _of(modules, "fedkern.methods") - {"installed"} == {"likelihood"}
    assert "narwhals" not in modules


def test_nothing_looks_for_garbage_while_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "looked_at.py").write_text("import gc\ncollects = gc.isenabled()\n")
    (tmp_path / "broken.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert gc.isenabled()
    assert not imported("looked_at").collects
    with pytest.raises(ImportError):
        imported("broken")
    assert gc.isenabled()
    monkeypatch.setattr(gc, "enable", lambda: pytest.fail("it was off before"))
    monkeypatch.setattr(gc, "isenabled", lambda: False)
    imported("looked_at")
