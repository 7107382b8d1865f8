"""The catalogue of findings: each has an example and a page, remedies are keys, and nothing of rows is in what all read."""

from __future__ import annotations

import ast
import json
import pickle
import re
import tomllib
import traceback
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern import finding, sections
from fedkern.errors import OwnFault
from fedkern.finding import Entry, Finding, Own, Refusal, Value, catalogue, fill, remedies
from fedkern.methods import METHODS, load_method
from fedkern.methods.sparse import publish
from fedkern.results.plain import plain

PACKAGE, TESTS = Path(fedkern.__file__).parent, Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PLACE = re.compile(r"\{(\w+)(?:!r)?(?::([^}]*))?\}")
KEYS = re.compile(r"\b(?:job|model|data|algorithm|output|privacy|disclosure)\.[a-z_]+(?:\.[a-z_]+)*")
POISON = "61.5 of Ada"


def texts(entry: Entry) -> list[str]:
    return [entry.public, entry.holder, *(remedies()[id] for id in entry.remedies)]


def places(*of: str) -> dict[str, str]:
    """Name -> how the value is shown."""
    return {name: how or "" for text in of for name, how in PLACE.findall(text) if name not in ("remedies", "facts")}


def value(name: str, how: str, text: str) -> Value:
    """Some value that can stand at a place."""
    kind = how.partition(" ")[0]
    if kind in ("pairs", "quotedpairs"):
        return [(text, 0.25)]
    if kind == "counted":
        return [(text, 7)]
    if kind in ("names", "all", "listed", "either", "quoted", "or", "and"):
        return [text]
    return text if kind in ("", "cell", "key") else 3.0


def chosen(text: str, entry: Entry) -> dict[str, Value]:
    """All remedies and facts of an entry, if its text has a place for them."""
    return {name: list(entry.remedies) for name, _ in PLACE.findall(text) if name in ("remedies", "facts")}


def made(id: str, text: str = "a") -> Finding:
    """A finding with some values, and all its remedies."""
    entry = catalogue()[id]
    named = chosen(entry.public, entry)
    values = {name: value(name, how, text) for name, how in places(entry.public, *(texts(entry)[2:] if named else ())).items()}
    return Finding.of(id, **values, **named)


def ids_and_texts() -> tuple[set[str], set[str]]:
    """The ids that the package gives to `Finding.of`, but for those that a value chooses; and all of its texts."""
    ids, all_texts = set[str](), set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                all_texts.add(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "of":
                first = node.args[0] if node.args and ast.unparse(node.func) == "Finding.of" else None
                chosen = (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,)
                ids |= {str(id.value) for id in chosen if isinstance(id, ast.Constant)}
    return ids, all_texts


def dotted(kind: Any, before: str = "") -> str:
    """All keys of a section and of the tables in it."""
    lines = []
    for name, field in kind.model_fields.items():
        lines.append(f"{before}{name}")
        lines += [dotted(table, f"{before}{name}.") for table in sections._tables(field.annotation)]
    return "\n".join(lines)


@cache
def keys_of_jobs() -> set[str]:
    return {key for method in METHODS for key in KEYS.findall(dotted(load_method(method).keys.Config))}


@cache
def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("id", catalogue())
def test_an_entry_has_an_example_a_page_and_remedies_that_are_keys(id: str) -> None:
    entry = catalogue()[id]
    file, _, name = entry.example.partition("::")
    assert re.search(rf"^ *def {name.partition('[')[0]}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), (
        entry.example
    )
    page, _, anchor = entry.page.partition("#")
    assert (DOCS / page).is_file()
    assert not anchor or anchor in anchors(DOCS / page), entry.page
    for text in texts(entry):
        assert {*KEYS.findall(text)} <= keys_of_jobs()
    assert {name for name in PLACE.findall(entry.public + entry.holder) if name[0] == "remedies"} or not entry.remedies


def test_ids_of_the_package_are_those_of_the_catalogue() -> None:
    ids, all_texts = ids_and_texts()
    assert ids
    assert ids <= {*catalogue()}
    of_entries = {id for entry in catalogue().values() for id in entry.remedies}
    assert of_entries == {*remedies()} <= all_texts
    assert {*catalogue()} <= all_texts


def test_a_wheel_has_the_catalogue_as_it_was_written() -> None:
    made = PACKAGE / "findings.json"
    if not made.is_file():
        pytest.skip("this is a checkout: the catalogue is read as it was written")
    assert json.loads(made.read_text(encoding="utf-8")) == tomllib.loads((TESTS.parent / "fedkern/findings.toml").read_text())


@pytest.mark.parametrize("id", catalogue())
def test_a_finding_is_its_text_and_is_read_again(id: str) -> None:
    one = made(id, text="a column")
    assert "a column" in one or not any(isinstance(v, str | list) for name, v in one.values.items() if name != "remedies")
    stored = json.loads(json.dumps(plain(one.content)))
    for again in (pickle.loads(pickle.dumps(one)), Finding.read(stored)):
        assert (again, again.id, plain(again.values)) == (str(one), id, plain(one.values))
    assert "{" not in one
    unknown = Finding.read({"id": "of-another-version", "values": {"rows": 3}})
    assert (unknown, unknown.id, unknown.routine) == ("of-another-version", "of-another-version", False)


@pytest.mark.parametrize("id", [id for id, entry in catalogue().items() if entry.holder])
def test_nothing_of_a_holder_is_in_what_others_read(id: str) -> None:
    entry = catalogue()[id]
    of_all = places(entry.public)
    own = {name: value(name, how, POISON) for name, how in places(entry.holder, *texts(entry)[2:]).items() if name not in of_all}
    assert own, "the holder reads more than others"
    error = Refusal(made(id), Own(**own, **chosen(entry.holder, entry)))
    assert POISON in error.own
    assert isinstance(error, OwnFault)
    try:
        raise error
    except Refusal as caught:
        shown = "".join(traceback.format_exception(caught))
    for text in (str(error), repr(error), repr(error.values), repr(vars(error)), shown, json.dumps(plain(error.finding.content))):
        assert POISON not in text
    for leaks in (str, pickle.dumps, lambda values: f"{values}", lambda values: json.dumps({"values": values})):
        with pytest.raises(TypeError):
            leaks(error.values)  # type: ignore[operator]


def test_values_are_shown_as_their_places_say() -> None:
    names = list("abcdefgh")
    assert fill("{x:names}", {"x": names}) == "a, b, c, d, e, f and 2 more"
    assert fill("{x:all}; {x:listed}", {"x": names[:2]}) == "a, b; a; b"
    assert fill("{x:quoted}; {x:or}", {"x": names[:2]}) == "'a', 'b'; 'a' or 'b'"
    assert fill("{x:pairs .2f}; {x:pairs p = .1g}", {"x": [("a", 0.123)]}) == "a (0.12); a (p = 0.1)"
    assert fill("{x:counted rows}", {"x": [("a", 1200)]}) == "'a' (1,200 rows)"
    cell = fill("{x:cell}", {"x": "\x1b[31m{y}\u202e" + "z" * 99})
    assert cell.startswith(r"'\\x1b[31m{y}\\u202ez")
    assert cell.endswith("...'")
    assert len(cell) < finding.CELL + 6
    with pytest.raises(KeyError):
        Finding.of("chains-not-mixed")


def test_events_of_a_sampler() -> None:
    """What chains say of their draws, and of a client that was lost."""
    server: Any = SimpleNamespace(events=np.array([2, 3, 0]), lost={1}, since=40)
    settings = SimpleNamespace(aggregate="sums")
    model: Any = SimpleNamespace(names=("a", "b"), advice=None, imputes=False, settings=settings)
    said = publish._notes(model, server)
    assert all(isinstance(one, Finding) for one in said)
    found = [(one.id, one.values) for one in said if isinstance(one, Finding)]
    assert found == [
        ("scales-clipped", {"n": 2}),
        ("columns-nearly-copies", {"n": 3}),
        ("lost-in-sampling", {"clients": ["b"], "round": 40}),
        ("sums-alone", {}),
    ]


def test_a_result_lists_its_findings_by_id(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 40)
    data = {
        name: (np.column_stack([x, np.sin(9 * x + k)]), np.zeros(40) if k == 1 else (x > 0) * 1.0) for k, name in enumerate("abc")
    }
    job = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"positive": "1"}}
    result = fedkern.run(job, data=data, out=tmp_path / "out")
    assert "no-event-at" in [one.id for one in result.findings]
    (found,) = (one for one in result.findings if one.id == "no-event-at")
    assert found in result.notes
    assert found.values["clients"] == [["b", 40]]
    loaded = fedkern.load(tmp_path / "out")
    assert [(one, one.id) for one in loaded.findings] == [(one, one.id) for one in result.findings]
    assert loaded.notes == result.notes
