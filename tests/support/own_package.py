"""Packages with factories of models, as a holder would have installed them: a module, and a distribution that says it is its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedkern.errors import FedkernError  # noqa: F401  # the package under test is imported before sys.path changes

SCHOOLS = {  # Rubin (1981): effect and standard error of coaching
    "a": (28.0, 15.0), "b": (8.0, 10.0), "c": (-3.0, 16.0), "d": (7.0, 11.0),
    "e": (-1.0, 9.0), "f": (1.0, 11.0), "g": (18.0, 10.0), "h": (12.0, 18.0),
}  # fmt: skip


def installed(folder: Path, module: str, source: str, version: str = "1.0", name: str = "") -> Path:
    """A folder like site-packages, which has one module and its distribution; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    name = name or module.replace("_", "-")
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return folder


def found_first(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: str) -> None:
    """This process finds modules in the folder, as if they had never been loaded."""
    monkeypatch.syspath_prepend(str(folder))
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)


def schools(folder: Path) -> None:
    """One school a file."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for school, (effect, error) in SCHOOLS.items():
        (folder / "rows" / f"{school}.csv").write_text(f"effect,error\n{effect},{error}\n")
