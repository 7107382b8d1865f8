"""Writes tests/api/api.txt, every public name: `python tools/api.py`. A line that goes or changes wants a deprecation before
(docs/reference/versions.md)."""

import dataclasses
import functools
import importlib
import inspect
import re
import sys
import types
import typing
from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel

import fedkern
from fedkern import kernels
from fedkern.methods import METHODS, load_method
from fedkern.results.frames import Rows, TableRow
from fedkern.results.prediction import OfLevels, Prediction

FILE = Path(__file__).parents[1] / "tests" / "api" / "api.txt"
HEAD = """\
# What others build on, as `python tools/api.py` writes it. A new line is an addition. A line that goes or changes breaks
# somebody: docs/reference/versions.md says what must come first.
"""
MODULES = ("fedkern", "fedkern.errors", "fedkern.kernels", "fedkern.places", "fedkern.testing", "fedkern.testing.places")
BESIDE = ("bound", "families", "homes", "ordered", "ranges")  # modules of kernels that `fedkern.kernels` does not name
REMEDY = (
    "  Others may use them: let the old one go on to work, and say what to write now (docs/reference/versions.md,",
    "  fedkern/_deprecate.py). If that was done, or if only an argument with a default was added:",
)
BOUNDS = (Ge, Gt, Le, Lt, MinLen, MaxLen)
FOREIGN = ("model_", "__")  # pydantic's, Python's


def modules():
    """Names of the modules whose public names are promised."""
    families = [name for name in kernels.__all__ if inspect.ismodule(getattr(kernels, name))]
    return [*MODULES, *(f"fedkern.kernels.{name}" for name in sorted({*families, *BESIDE}))]


def names(module):
    """Its `__all__`, or the classes and functions that it or a module of it defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = re.escape(module.__name__)
    return sorted(n for n, v in vars(module).items() if not n.startswith("_") and re.match(rf"{own}(\.|$)", home(v)))


def home(value):
    is_code = inspect.isclass(value) or inspect.isroutine(value)
    return value.__module__ if is_code and isinstance(value.__module__, str) else ""


def lines():
    """The lines of the file."""
    made = []
    for path in modules():
        module = importlib.import_module(path)
        for name in names(module):
            made += of_value(f"{path}.{name}", getattr(module, name))
    for kind in (Prediction, OfLevels, Rows, TableRow):  # what methods of a result return
        made += of_class(f"{kind.__module__}.{kind.__name__}", kind)
    made += [f"stream {name} = {number}" for name, number in kernels.rng.streams().items() if number < kernels.rng.REGISTERED]
    for method in METHODS:
        config = load_method(method).keys.Config
        made += [f"job {method} {line}" for line in of_keys(config, "")]
    return made


def of_value(path, value):
    """The lines of one public name."""
    if inspect.ismodule(value):
        return [f"module {path}"]
    if inspect.isclass(value):
        return of_class(path, value)
    if inspect.isroutine(value):
        return [f"def {path}{signature(value)}"]
    return [f"value {path}: {type(value).__name__}"]


def of_class(path, kind):
    """A class with its bases, how it is made, and its public members."""
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    made = [f"class {path}({bases})"]
    if dataclasses.is_dataclass(kind):
        fields = [field for field in dataclasses.fields(kind) if not field.name.startswith("_")]
        made += [f"field {path}.{one.name}: {plain(one.type)}{' = ..' if has_default(one) else ''}" for one in fields]
    elif "__init__" in vars(kind):
        made.append(f"def {path}{signature(kind)}")
    for name, member in sorted(vars(kind).items()):
        if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ()):
            continue
        if isinstance(member, (property, functools.cached_property)):
            made.append(f"property {path}.{name}{returned(member.fget if isinstance(member, property) else member.func)}")
        elif isinstance(member, (staticmethod, classmethod)) or inspect.isroutine(member):
            made.append(f"def {path}.{name}{signature(getattr(kind, name))}")
        elif name == "exit_code":
            made.append(f"value {path}.{name} = {member}")
    if not dataclasses.is_dataclass(kind):  # of a TypedDict or a NamedTuple
        fields = {name: kind_of for name, kind_of in inspect.get_annotations(kind).items() if not name.startswith("_")}
        made += [f"field {path}.{name}: {plain(kind_of)}" for name, kind_of in fields.items()]
    return made


def has_default(field):
    return dataclasses.MISSING is not field.default or dataclasses.MISSING is not field.default_factory


def signature(function):
    """Arguments with types and defaults, as they are written: no version of Python prints them otherwise."""
    found = inspect.signature(function)
    parts, star = [], False
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        star = star or one.kind is one.VAR_POSITIONAL
        before = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {plain(one.annotation)}"
        default = "" if one.default is one.empty else f" = {shown(one.default)}"
        parts.append(f"{before}{one.name}{kind}{default}")
    positional = [one.kind is one.POSITIONAL_ONLY for one in found.parameters.values()]
    if any(positional):
        parts.insert(sum(positional), "/")
    return f"({', '.join(parts)}){returned_of(found)}"


def returned(function):
    return returned_of(inspect.signature(function))


def returned_of(found):
    return "" if found.return_annotation is found.empty else f" -> {plain(found.return_annotation)}"


def shown(value):
    """A default; of an object of ours or of another package only its type."""
    return repr(value) if isinstance(value, (str, int, float, tuple, list, dict, types.NoneType)) else f"<{type(value).__name__}>"


def plain(kind):
    """A type as a text that does not depend on the version of Python."""
    if isinstance(kind, typing.ForwardRef):
        kind = kind.__forward_arg__
    if isinstance(kind, str):
        return kind.replace("'", '"')
    if kind is None or kind is types.NoneType:
        return "None"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(plain(one) for one in arguments)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is typing.Annotated:
        first, *more = arguments
        return " ".join([plain(first), *bounds(one for two in more for one in (two, *getattr(two, "metadata", ())))])
    if origin is not None:
        inner = ", ".join("..." if one is ... else plain(one) if not isinstance(one, list) else repr(one) for one in arguments)
        return f"{plain(origin)}[{inner}]"
    return getattr(kind, "__name__", repr(kind))


def bounds(metadata):
    """What a number may be: ">=0"."""
    signs = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<", MinLen: "length >= ", MaxLen: "length <= "}
    return [f"{signs[type(one)]}{next(iter(dataclasses.asdict(one).values()))}" for one in metadata if isinstance(one, BOUNDS)]


def of_keys(section, path):
    """A line for each key of a section of a job file: its type, bounds and default."""
    made = []
    for name, field in section.model_fields.items():
        dotted = f"{path}{name}"
        tables = sections_of(field.annotation)
        for table in tables:
            star = ".*" if typing.get_origin(without_none(field.annotation)) is dict else ""
            made += of_keys(table, f"{dotted}{star}.")
        if not tables:
            default = "" if field.is_required() else f" = {field.get_default(call_default_factory=True)!r}"
            kind = " ".join([plain(field.annotation), *bounds(field.metadata)])
            expert = " expert" if (field.json_schema_extra or {}).get("expert") else ""
            made.append(f"{dotted}: {kind}{default}{expert}")
    return made


def without_none(kind):
    rest = [one for one in typing.get_args(kind) if one is not types.NoneType]
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return rest[0] if union and len(rest) == 1 else kind


def sections_of(kind):
    """The tables that a key holds, or none."""
    if inspect.isclass(kind) and not isinstance(kind, types.GenericAlias) and issubclass(kind, BaseModel):
        return [kind]
    return [table for one in typing.get_args(kind) for table in sections_of(one)]


def text():
    """The whole file."""
    return HEAD + "".join(f"{line}\n" for line in lines())


def compare(kept, now):
    """Says what differs between the lines of then and now; "" where nothing does."""
    gone = [line for line in kept if line not in set(now)]
    new = [line for line in now if line not in set(kept)]
    problems = []
    if gone:
        problems += ["these are gone or changed:", *(f"  - {line}" for line in gone)]
        problems += [
            "  Others may use them: let the old one go on to work, and say what to write now (docs/reference/versions.md,"
        ]
        problems += ["  fedkern/_deprecate.py). If that was done, or if an argument with a default was added:"]
    if new:
        problems += ["these are new:", *(f"  + {line}" for line in new)]
    return "\n".join([*problems, "  run `python tools/api.py`, and commit tests/api/api.txt."]) if problems else ""


if __name__ == "__main__":
    assert fedkern.__version__
    sys.exit(0 if FILE.write_text(text(), encoding="utf-8") else 1)
