"""From a TOML file, or tables, to a checked configuration: read, merged, overridden, laid over the defaults, validated."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from ..data.plain_text import canonical, is_there
from ..errors import JobError
from ..sections import validated as validated
from .keys import C, JobConfig, Keys, Raw, Tables

TOML_FAULTS = (ValueError, RecursionError)  # beside TOMLDecodeError: thousands of digits, or of brackets
# Keys of paths, and of clients, whose names come from paths: a disk tells apart what readers don't.
PATHS = {"clients", "names", "client_weights", "priors", "test", "server", "prior", "client_folder", "areas", "adjacency"}


def tables_of(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; JobError where it is none, `what` it should have been."""
    if not is_there(path):
        raise JobError(f"{path}: cannot be read (No such file or directory); give the path of a {what} file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); give the path of a {what} file") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: is no UTF-8 text; give the path of a TOML {what} file, saved as UTF-8") from None
    try:
        return written_once(tomllib.loads(text))
    except TOML_FAULTS as error:
        raise JobError(f"{path}: is no TOML: {error}") from None


def written_once(tables: Raw) -> dict[str, Any]:
    """The tables with each letter of their texts written in the one way that cells have (NFC); paths stay as they are."""
    once = {canonical(key): value if key in PATHS else _written_once(value) for key, value in tables.items()}
    if len(once) < len(tables):
        raise ValueError(f"two of the keys {', '.join(map(repr, tables))} are one but for blanks or the way letters are written")
    return once


def _written_once(value: Any) -> Any:
    if isinstance(value, Mapping):
        return written_once(value)
    if isinstance(value, list):
        return [_written_once(one) for one in value]
    return value if not isinstance(value, str) or value.isascii() else normalize("NFC", value)


def merged(raw: Raw, over: Raw) -> dict[str, Any]:
    """Tables with those of `over` laid over them, key by key."""
    both = {k: merged(raw[k], v) for k, v in over.items() if isinstance(v, Mapping) and isinstance(raw.get(k), Mapping)}
    return {**raw, **over, **both}


def table(raw: Raw, section: str) -> Raw:
    """A section of the file as it came; what is no table is left to validation."""
    value = raw.get(section, {})
    return value if isinstance(value, Mapping) else {}


def layered(raw: Raw, layers: Sequence[Tables]) -> dict[str, Any]:
    """The file over layers of defaults, the later ones stronger, section by section."""
    out: dict[str, Any] = {**raw}
    for section in JobConfig.model_fields:
        if section == "privacy" and "privacy" not in raw:
            continue
        if section in raw and not isinstance(raw[section], Mapping):
            continue
        out[section] = {k: v for layer in layers for k, v in layer.get(section, {}).items()} | dict(table(raw, section))
    return out


def config_of(keys: Keys[C], raw: Raw, *, name: str = "job") -> C:
    """The tables of a job as its method's configuration; JobError, which begins with `name`, with all faults."""
    if faults := list(keys.refused(raw)):
        raise JobError(f"{name}: " + "; also ".join(faults))
    return validated(keys.Config, keys.filled(raw), keys.conflicts, name)


def override(raw: Raw, text: str) -> dict[str, Any]:
    """The tables with one "section.key=value" applied."""
    if "\n" in text or "\r" in text:  # what comes after it would be another key, and be lost
        raise JobError(f"--set {text!r}: has a line break; give one --set for each key")
    path, equals, value = text.partition("=")
    *sections, last = path.strip().split(".")
    if not equals or not sections or not all([*sections, last]):
        raise JobError(f"--set {text}: wanted section.key=value, such as job.rounds=10")
    inside = out = dict(raw)
    for section in sections:
        inner = inside.get(section, {})
        if not isinstance(inner, Mapping):
            raise JobError(f"--set {text}: {section} is no section of the job file")
        inside[section] = inside = dict(inner)
    try:
        inside[last] = _written_once(tomllib.loads(f"value = {value.strip()}")["value"])
    except TOML_FAULTS:
        inside[last] = _written_once(value.strip())
    return out
