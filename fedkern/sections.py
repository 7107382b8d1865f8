"""Describes tables of TOML files, and turns a fault of a key into one sentence that says how to mend it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .errors import JobError

Model = type[BaseModel]

COMPARED = {  # pydantic's name of the fault -> words, the limit's name
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("of at most", "le"),
}
WANTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list in [ ]",
    "model_type": "a table",
    "string_too_short": "a text that is not empty",
    "string_type": "a text in quotes",
    "too_long": "fewer of them",
    "too_short": "at least one",
}


NONE: Mapping[str, str] = MappingProxyType({})
ELSEWHERE = 0.8  # how alike a key of another section must be to be suggested


class Section(BaseModel):
    """Describes a table of a file. Unknown keys are errors, and no value is converted except a whole number to a real one.

    Examples
    --------
    >>> from fedkern.sections import Section, key, validate_file
    >>> class Fruit(Section):
    ...     apples: int = key(3, help="how many apples", ge=0)
    ...
    >>> class File(Section):
    ...     fruit: Fruit = key(Fruit(), help="what is on the table")
    ...
    >>> validate_file(File, {"fruit": {"apples": 5}}, lambda file: iter(()), "lunch.toml").fruit.apples
    5
    >>> try:
    ...     validate_file(File, {"fruit": {"aples": 5}}, lambda file: iter(()), "lunch.toml")
    ... except Exception as error:
    ...     print(error)
    ...
    lunch.toml: unknown key fruit.aples; did you mean fruit.apples?
    """

    # A file's validator is made when it reads one, with those of its sections: most kinds of files read none.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=(), defer_build=True)


File = TypeVar("File", bound=Section)


def key(
    default: Any = ...,
    *,
    help: str,
    remedy: str = "",
    meant: Mapping[str, str] = NONE,
    path: bool = False,
    resumable: bool | str = False,
    expert: bool = False,
    **limits: Any,
) -> Any:
    """Declares a key of a section.

    Parameters
    ----------
    default : the default; without one the key must be given, or be filled in
    help, remedy : the meaning of the key; the advice when it is wrong
    meant : other people's word for a value -> the value, and what else is to be set (`describe_choice`)
    path : whether it is a path, or names clients, whose names come from paths: its letters stay as they are written
    resumable : whether a resumed run may have another value; or the property of the file that says so
    expert : whether only experiments want it, such as a paper's table: it stands on a page of its own
    limits : gt, ge, lt, le
    """
    extra: dict[str, Any] = {"remedy": remedy, "meant": dict(meant), "path": path, "resumable": resumable, "expert": expert}
    return Field(default, description=help, json_schema_extra=extra, **limits)


def validate_file(kind: type[File], tables: Mapping[str, object], refused: Callable[[Any], Iterator[str]], name: str) -> File:
    """Returns the tables as a file of this kind. Raises JobError with all faults, or with all contradictions that `refused`
    names."""
    try:
        file = kind.model_validate(tables)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        refusal = JobError(f"{name}: {explain(faults, kind)}")
        refusal.unknown = tuple(".".join(map(str, fault["loc"])) for fault in faults if fault["type"] == "extra_forbidden")
        raise refusal from None
    contradictions = list(refused(file))
    if contradictions:
        raise JobError(f"{name}: " + "; also ".join(contradictions))
    return file


def explain(faults: Sequence[ErrorDetails], root: Model) -> str:
    """Returns all faults of a file as sentences, unknown keys first, since they often cause the others.

    Parameters
    ----------
    faults : the faults that pydantic found
    root : the model of the whole file

    Returns
    -------
    one line: for each fault section.key, the value that came, the value that was wanted, and the remedy
    """
    ordered = sorted(_one_fault_a_key(faults, root), key=lambda f: f["type"] != "extra_forbidden")
    return "; also ".join(dict.fromkeys(_sentence(fault, root) for fault in ordered))


def remedy(field: FieldInfo) -> str:
    """Returns what to do when the key is wrong; where no remedy is given, the key's description."""
    extra = field.json_schema_extra
    return str((extra.get("remedy") if isinstance(extra, dict) else "") or field.description or "")


@cache  # each party and file asks it several times of the same few kinds
def marked_keys(root: Model, mark: Literal["path", "resumable", "expert"]) -> Mapping[str, bool | str]:
    """Returns the keys of a file that bear a mark: dotted name -> the mark's value. A table whose names the user chose has
    none."""
    marks = dict[str, bool | str]()
    for name, field in root.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and isinstance(value := extra.get(mark), bool | str) and value:
            marks[name] = value
        for table in () if _of_names(field) else _tables(field.annotation):
            marks |= {f"{name}.{inner}": value for inner, value in marked_keys(table, mark).items()}
    return MappingProxyType(marks)


def _of_names(field: FieldInfo) -> bool:
    """Tells whether the next level of a table holds names that the user chose, and not keys."""
    return str(field.annotation).startswith("dict")


def _meanings(field: FieldInfo | None) -> Mapping[str, str]:
    extra = None if field is None else field.json_schema_extra
    meanings = extra.get("meant") if isinstance(extra, dict) else None
    return {str(name): str(meaning) for name, meaning in meanings.items()} if isinstance(meanings, Mapping) else NONE


def _one_fault_a_key(faults: Sequence[ErrorDetails], root: Model) -> list[ErrorDetails]:
    """Returns one fault a key. For a key with several types it is the fault of the type that looked deepest into the value,
    and for a text the fault of the allowed words."""

    def depth(fault: ErrorDetails) -> tuple[int, bool]:
        return len(fault["loc"]), fault["type"] == "literal_error" and isinstance(fault["input"], str)

    # One fault for each place; of several the one that looked deepest.
    best: dict[tuple[int | str, ...], ErrorDetails] = {}
    for number, fault in enumerate(faults):
        place = _of_several_types(root, fault["loc"])
        name = (number,) if place is None else fault["loc"][:place]
        if name not in best or depth(fault) > depth(best[name]):
            best[name] = fault
    return list(best.values())


def _of_several_types(root: Model, location: Sequence[int | str]) -> int | None:
    """Returns where in a location the type stands that was tried; None where the key has one type."""
    for number in range(1, len(location)):
        section, field = _walk(root, location[:number])
        if section is None and field is not None and not isinstance(location[number], int):
            union = isinstance(field.annotation, UnionType) or get_origin(field.annotation) is Union
            several = [kind for kind in get_args(field.annotation) if kind is not NoneType]
            if union and len(several) > 1:
                return number
    return None


def _sentence(fault: ErrorDetails, root: Model) -> str:
    location, kind, context = fault["loc"], fault["type"], fault.get("ctx", {})
    if (place := _of_several_types(root, location)) is not None:  # then pydantic names each type that it tried
        location = (*location[:place], *location[place + 1 :])
    where = ".".join(map(str, location))
    _, field = _walk(root, location)
    if kind == "extra_forbidden":
        return _unknown(root, location)
    if kind == "missing":
        return f"{where} is missing" + (f": {field.description}" if field is not None else "")
    if kind == "literal_error":
        return describe_choice(where, fault["input"], re.findall(r"'(.*?)'", context["expected"]), _meanings(field))
    if kind in COMPARED:
        words, limit = COMPARED[kind]
        bound = context[limit]
        wanted = f"a number {words} {bound:g}" if float(f"{bound:g}") == bound else f"a number {words} {bound:.20g}"
    else:
        wanted = WANTED.get(kind, fault["msg"])
    hint = remedy(field) if field is not None and wanted != fault["msg"] else ""
    return f"{where} = {format_value(fault['input'])}: wanted {wanted}" + (f" ({hint})" if hint else "")


def describe_choice(where: str, value: object, choices: Sequence[str], meant: Mapping[str, str] = NONE) -> str:
    """Returns the sentence for a value that is none of the choices. `meant` maps other people's words to the choices, or to one
    of these and what else is to be set: 'choice with section.key = "value"'."""
    *others, last = (json.dumps(choice) for choice in choices)
    wanted = f"{', '.join(others)} or {last}" if others else last
    known = {name: text for name, text in meant.items() if text.partition(" ")[0] in choices}
    near = [known[name]] if (name := str(value).casefold()) in known else get_close_matches(str(value), choices, 1)
    choice, _, more = near[0].partition(" ") if near else ("", "", "")
    hint = f'; did you mean "{choice}"{f" {more}" if more else ""}?' if near else ""
    return f"{where} = {format_value(value)}: wanted {wanted}{hint}"


def format_value(value: object) -> str:
    """Returns a value about as the job file has it, cut where it is long."""
    text = f"{value:g}" if isinstance(value, float) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown(root: Model, location: Sequence[int | str]) -> str:
    """Returns the sentence for an unknown key, with the nearest known one: in the same section, or the same name in another."""
    *path, last = map(str, location)
    # A section, not a key of one.
    if not path:
        near = get_close_matches(last, root.model_fields, 1)
        hint = f"did you mean [{near[0]}]?" if near else f"there are {', '.join(root.model_fields)}"
        if near and not any(_tables(root.model_fields[near[0]].annotation)):  # a file with keys outside of sections
            return f"unknown key {last}; did you mean {near[0]}?"
        return f"unknown section [{last}]; {hint}"
    section, _ = _walk(root, path)
    names = list(section.model_fields) if section is not None else []
    tables = [(name, table) for name, field in root.model_fields.items() for table in _tables(field.annotation)]
    # A key is often right and stands in the wrong section.
    everywhere = {key: name for name, table in tables for key in table.model_fields}
    near = get_close_matches(last, names, 1)
    if last in everywhere or not near:
        near = [f"{everywhere[k]}.{k}" for k in get_close_matches(last, everywhere, 1, ELSEWHERE)]
    else:
        near = [".".join([*path, near[0]])]
    return f"unknown key {'.'.join([*path, last])}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}")


def _walk(root: Model, location: Sequence[int | str]) -> tuple[Model | None, FieldInfo | None]:
    """Returns the section that a location ends in, and the last key that is declared on the way."""
    section: Model | None = root
    field: FieldInfo | None = None
    # A table of names that the user chose is skipped: its keys are one level below.
    for part in location:
        if section is not None and str(part) in section.model_fields:
            field = section.model_fields[str(part)]
            inner = next(_tables(field.annotation), None)
            section = None if _of_names(field) else inner
        elif section is None and field is not None:
            section = next(_tables(field.annotation), None)
    return section, field


def _tables(annotation: object) -> Iterator[Model]:
    """Yields the models inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables(argument)
