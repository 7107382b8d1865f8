"""Writes the stubs of the compiled module from the signatures that it carries itself: `python tools/stubs.py`."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import fedkern
from fedkern import _core

FOLDER = Path(fedkern.__file__).parent / "_core"
TYPES = (
    ("typing.SupportsInt | typing.SupportsIndex", "int"),
    ("typing.SupportsFloat | typing.SupportsIndex", "float"),
    ("numpy.ndarray", "NDArray[Any]"),
    ("object", "Any"),
)


def public(module):
    """Modules first."""
    members = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return dict(sorted(members.items(), key=lambda item: (not isinstance(item[1], ModuleType), item[0])))


def submodules():
    return [name for name, value in public(_core).items() if isinstance(value, ModuleType)]


def stub(module):
    """The text of a module's stub."""
    lines = []
    for name, value in public(module).items():
        if isinstance(value, ModuleType):
            lines.append(f"from . import {name} as {name}")
            continue
        signature = value.__doc__.splitlines()[0]
        for theirs, ours in TYPES:
            signature = re.sub(rf"\b{re.escape(theirs)}(?!\w)", ours, signature)
        lines.append(f"def {signature}: ...")
    text = "\n".join(lines)
    imports = ["from typing import Any\n"] * ("Any" in text) + ["from numpy.typing import NDArray"] * ("NDArray" in text)
    return (
        "\n".join([f'"""{module.__doc__ or "Signatures: fedkern.kernels says what the arguments mean."}"""', *imports, text])
        + "\n"
    )


def stubs():
    """File -> text."""
    return {FOLDER / "__init__.pyi": stub(_core)} | {FOLDER / f"{name}.pyi": stub(getattr(_core, name)) for name in submodules()}


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", FOLDER], check=True)
