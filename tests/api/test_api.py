"""What others build on stays: `api.txt` has every public name, and old names go on to work with a warning."""

import inspect
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedkern
from fedkern import _deprecate
from support.refusal import refusal

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import api  # noqa: E402


def test_the_public_names_are_those_of_the_list() -> None:
    kept, now = (text.removeprefix(api.HEAD).splitlines() for text in (api.FILE.read_text(encoding="utf-8"), api.text()))
    assert not (problem := api.compare(kept, now)), problem
    assert kept == now, "the same lines in another order: run `python tools/api.py`"


def test_the_list_has_some_of_each() -> None:
    lines = set(api.FILE.read_text(encoding="utf-8").splitlines())
    assert lines >= {
        "def fedkern.load(folder: str | Path) -> Result",
        "class fedkern.errors.JobError(FedkernError)",
        "value fedkern.errors.JobError.exit_code = 2",
        "field fedkern.Result.folder: Path | None = ..",
        "property fedkern.Result.converged -> Word",
        "def fedkern.kernels.rng.streams() -> dict[str, int]",
        "stream user = 0",
        "job pvi data.columns.*.lower: float | None = None",
        "job sparse job.rounds: int = 100",
    }
    assert not any(" at 0x" in line or "ForwardRef" in line for line in lines), "a line of one process"


def test_what_is_gone_changed_and_new_is_named() -> None:
    kept = ["def fedkern.load(folder: str) -> Result", "stream user = 0"]
    assert api.compare(kept, kept) == ""
    gone = api.compare(kept, ["stream user = 1", kept[0]])
    assert "gone or changed:\n  - stream user = 0\n" in gone
    assert "docs/reference/versions.md" in gone
    assert "these are new:\n  + stream user = 1" in gone
    new = api.compare(kept, [*kept, "stream mine = 7"])
    assert "gone" not in new
    assert "run `python tools/api.py`" in new


class Sample:
    """A public class."""

    def draw(self, n: int = 3, *, key: "int | None" = None) -> list[float]: ...

    @property
    def size(self) -> int: ...

    def _own(self) -> None: ...


def test_a_class_is_told_by_its_members() -> None:
    assert api.of_value("mine.Sample", Sample) == [
        "class mine.Sample()",
        "def mine.Sample.draw(self, n: int = 3, *, key: int | None = None) -> list[float]",
        "property mine.Sample.size -> int",
    ]


@pytest.fixture
def old_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose function was called `sample`, and its argument `size`."""
    module: Any = ModuleType("mine_of_the_test")

    @_deprecate.arguments(size=_deprecate.Renamed("n", until="9.0"))
    def draw(start: int, *, n: int = 1) -> list[int]:
        """Draws."""
        return list(range(start, start + n))

    module.draw = draw
    module.__getattr__ = _deprecate.names(module.__name__, sample=_deprecate.Renamed("draw", until="9.0"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module  # type: ignore[no-any-return]


def test_an_old_name_works_and_warns_where_it_is_used(old_module: Any) -> None:
    match = r"mine_of_the_test.sample is now mine_of_the_test.draw: write that; the old name ends in version 9\.0"
    with pytest.warns(DeprecationWarning, match=match) as caught:
        assert old_module.sample is old_module.draw
    assert [Path(one.filename).name for one in caught] == ["test_api.py"]
    with refusal(AttributeError, "mine_of_the_test", "samples"):
        old_module.samples  # noqa: B018


def test_an_old_argument_works_and_warns_where_it_is_used(old_module: Any) -> None:
    match = r"draw: size= is now n=: write that; the old name ends in version 9\.0"
    with pytest.warns(DeprecationWarning, match=match) as caught:
        assert old_module.draw(5, size=2) == [5, 6]
    assert [Path(one.filename).name for one in caught] == ["test_api.py"]
    with pytest.raises(TypeError, match="size= is the old name of n=; give one of them"):
        old_module.draw(5, size=2, n=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old_module.draw(5, n=2) == [5, 6]
    assert str(inspect.signature(old_module.draw)) == "(start: int, *, n: int = 1) -> list[int]"
    assert old_module.draw.__doc__ == "Draws."


def overdue(text: str, version: str) -> list[str]:
    """Versions in which an old name ends, and that have come."""

    def numbers(one: str) -> list[int]:
        return [int(part) for part in (one + ".0.0").split(".")[:3]]

    return [one for one in re.findall(r'Renamed\("\w+", until="([\d.]+)"\)', text) if numbers(one) <= numbers(version)]


def test_no_old_name_is_kept_longer_than_was_said() -> None:
    assert overdue('names(__name__, a=Renamed("b", until="0.3"), c=Renamed("d", until="0.4"))', "0.3.1") == ["0.3"]
    for path in (ROOT / "fedkern").rglob("*.py"):
        assert not overdue(path.read_text(encoding="utf-8"), fedkern.__version__), f"{path}: take the old name out"
