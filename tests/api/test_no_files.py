"""What computes opens no file and prints nothing. (import-linter holds its imports to the same list, in `make lint`.)"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedkern

PACKAGE = Path(fedkern.__file__).parent
CONTRACTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
(CONTRACT,) = (contract for contract in CONTRACTS if contract["name"] == "machines do no I/O")
FORBIDDEN = frozenset(CONTRACT["forbidden_modules"])
LAYERS = ("disclosure", "algorithms", "privacy", "models", "kernels")
OF_THE_SYSTEM = {"os", "io", "fcntl", "secrets", "shutil", "tempfile", "pathlib"}


def reached(module: str, source: str) -> Iterator[str]:
    """What a module's source imports of the forbidden, and which of `open` and `print` it calls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Name) and node.id in {"open", "print", "input"}:
            yield f"{module}, line {node.lineno}: {node.id}()"
            continue
        else:
            continue
        yield from (f"{module} -> {name.partition('.')[0]}" for name in names if name.partition(".")[0] in FORBIDDEN)


def test_what_computes_opens_nothing_and_prints_nothing() -> None:
    assert set(CONTRACT["source_modules"]) == {f"fedkern.{layer}" for layer in LAYERS}
    assert FORBIDDEN >= OF_THE_SYSTEM
    found: set[str] = set()
    for layer in LAYERS:
        files = sorted((PACKAGE / layer).rglob("*.py"))
        assert files
        for file in files:
            module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            found.update(reached(module, file.read_text()))
    assert found == set(CONTRACT["ignore_imports"])


def test_no_machine_and_no_mathematics_of_privacy_reaches_the_system_but_for_entropy() -> None:
    named = [line.split(" -> ") for line in CONTRACT["ignore_imports"]]
    ours = {(module, what) for module, what in named if what in OF_THE_SYSTEM and not module.startswith("fedkern.kernels._cuda")}
    assert ours == {("fedkern.privacy.noise", "os")}


@pytest.mark.parametrize(
    "line",
    ["import os", "from io import StringIO", "def f():\n    import tempfile", "x = open('rows')", "y = print", "import secrets"],
)
def test_negative_control_a_planted_line_is_found(line: str) -> None:
    assert list(reached("fedkern.privacy.accountant", line))


def test_a_method_of_that_name_is_no_file() -> None:
    assert not list(reached("fedkern.algorithms.pvi.machine", "door.open()\nfrom .io import keep\nnames = ['os']"))
