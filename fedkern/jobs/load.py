"""Makes a checked configuration from a TOML file, or tables: read, merged, overridden, laid over the defaults, validated."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import normalize

from ..data.plain_text import canonical, is_there
from ..disclosure.rules import OLD_KEYS, of_old_keys
from ..errors import JobError
from ..sections import Model, marked_keys
from ..sections import validate_file as validate_file
from . import retired
from .keys import OLD_KEYS_OF_DATA, C, JobConfig, Keys, Raw, Tables, counts_nobody

TOML_FAULTS = (ValueError, RecursionError)  # beside TOMLDecodeError: thousands of digits, or of brackets


def tables_of(path: Path, what: str) -> dict[str, Any]:
    """Reads the tables of a TOML file; JobError where it is none, with `what` it should have been."""
    if not is_there(path):
        raise JobError(f"{path}: cannot be read (No such file or directory); give the path of a {what} file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); give the path of a {what} file") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: is no UTF-8 text; give the path of a TOML {what} file, saved as UTF-8") from None
    try:
        return tomllib.loads(text)
    except TOML_FAULTS as error:
        raise JobError(f"{path}: is no TOML: {error}") from None


def written_once(tables: Raw, kind: Model | None, name: str) -> dict[str, Any]:
    """Writes each letter of the tables' texts in the one way that cells have (NFC).

    Keys with `path` stay as they are: a disk tells apart what readers don't. Raises JobError: two keys are one.

    Parameters
    ----------
    tables : those of the file
    kind : the model of the file, which knows its keys; None where all of them are the user's
    name : begins the error's text
    """
    paths = {} if kind is None else marked_keys(kind, "path")

    def once(value: object, path: str) -> Any:
        if isinstance(value, list):
            return [once(item, path) for item in value]
        if not isinstance(value, Mapping):
            return value if not isinstance(value, str) or value.isascii() else normalize("NFC", value)
        out = dict[str, Any]()
        for given, inner in value.items():
            name_once = canonical(given)
            out[name_once] = inner if path + name_once in paths else once(inner, f"{path}{name_once}.")
        if len(out) < len(value):
            both = f"two of the keys {', '.join(map(repr, value))} are one but for blanks or the way letters are written"
            raise JobError(f"{name}: {both}; leave one of them out")
        return out

    written: dict[str, object] = once(tables, "")
    return written


def merged(raw: Raw, over: Raw) -> dict[str, Any]:
    """Returns tables with those of `over` laid over them, key by key."""
    both = {k: merged(raw[k], v) for k, v in over.items() if isinstance(v, Mapping) and isinstance(raw.get(k), Mapping)}
    return {**raw, **over, **both}


def table(raw: Raw, section: str) -> Raw:
    """Returns a section of the file as it came; a value that is no table is left to validation."""
    value = raw.get(section, {})
    return value if isinstance(value, Mapping) else {}


def layered(raw: Raw, layers: Sequence[Tables]) -> dict[str, Any]:
    """Lays the file over layers of defaults, the later ones stronger, section by section."""
    out: dict[str, object] = {**raw}
    for section in JobConfig.model_fields:
        if section == "privacy" and "privacy" not in raw:
            continue
        if section in raw and not isinstance(raw[section], Mapping):
            continue
        out[section] = {k: v for layer in layers for k, v in layer.get(section, {}).items()} | dict(table(raw, section))
    return out


def config_of(keys: Keys[C], raw: Raw, *, name: str = "job") -> C:
    """Checks the tables of a job and returns its method's configuration; JobError, which begins with `name`, with all faults."""
    raw, old = _with_new_keys(raw)
    faults = [*retired.faults(raw), *keys.refused(raw)]
    declared = getattr(keys.Config.model_fields["model"].annotation, "model_fields", {})
    if "priors" in table(raw, "model") and "priors" not in declared:
        faults.append('model.priors: priors of single numbers are of method = "likelihood"; take that, or remove the table')
    if faults:
        raise JobError(f"{name}: " + "; also ".join(faults))
    config = validate_file(
        keys.Config, keys.fill_defaults(raw), lambda config: chain(keys.conflicts(config), counts_nobody(config)), name
    )
    config._old_keys = old
    config._given = {**raw}
    return config


def _with_new_keys(raw: Raw) -> tuple[Raw, tuple[str, ...]]:
    """Returns a job's tables with new keys in the place of those of [data] that earlier versions had, and these."""
    data, renamed = dict(table(raw, "data")), []
    for name in OLD_KEYS_OF_DATA.keys() & data.keys():
        new, values = OLD_KEYS_OF_DATA[name]
        value = data.pop(name)
        if new in data:
            raise JobError(f"data.{name} is the old name of data.{new}; give one of them")
        data |= {new: values.get(value)} if isinstance(value, bool) else {name: value}
        renamed.append(name)
        raw = {**raw, "data": data}
    raw, old = _with_disclosure(raw)
    return raw, (*old, *renamed)


def _with_disclosure(raw: Raw) -> tuple[Raw, tuple[str, ...]]:
    """Returns the tables with keys of [disclosure] in the place of those of [data]."""
    data = table(raw, "data")
    old = {name: data[name] for name in OLD_KEYS if name in data}
    if not old or not isinstance(raw.get("disclosure", {}), Mapping):
        return raw, ()
    kept = {name: value for name, value in data.items() if name not in old}
    return {**raw, "data": kept, "disclosure": {**of_old_keys(old), **table(raw, "disclosure")}}, tuple(old)


def overridden(raw: Raw, sets: Sequence[str], kind: Model | None = None) -> Raw:
    """Returns the tables of such a file with each "section.key=value" applied."""
    for text in sets:
        raw = _override(raw, text, kind)
    return raw


def _override(raw: Raw, text: str, kind: Model | None) -> dict[str, Any]:
    if "\n" in text or "\r" in text:  # what comes after it would be another key, and be lost
        raise JobError(f"--set {text!r}: has a line break; give one --set for each key")
    path, equals, value = text.partition("=")
    *sections, last = path.strip().split(".")
    if not equals or not sections or not all([*sections, last]):
        raise JobError(f"--set {text}: wanted section.key=value, such as job.rounds=10")
    given: Any
    try:
        given = tomllib.loads(f"value = {value.strip()}")["value"]
    except TOML_FAULTS:
        given = value.strip()
    for name in reversed([*sections, last]):
        given = {name: given}
    given = written_once(given, kind, f"--set {text}")
    inside = out = dict(raw)
    for _ in sections:
        ((section, given),) = given.items()
        inner = inside.get(section, {})
        if not isinstance(inner, Mapping):
            raise JobError(f"--set {text}: {section} is no section of the job file")
        inside[section] = inside = dict(inner)
    inside.update(given)
    return out
