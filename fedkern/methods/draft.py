"""A first job file, or a holder's policy, from headers and the types of cells: what `fedkern init` writes.

No value of a cell is written or said: not a level, not a label, not a mean. What only a person knows stands there as a line to
fill in; what was guessed from a name says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data import table
from ..data.cells import Text
from ..data.dialect import Dialect, has_decimal_comma, stem
from ..data.plain_text import SEPARATORS as KNOWN
from ..data.plain_text import UTF16
from ..data.table import Table
from ..errors import JobError
from . import METHODS

RESPONSES = ("y", "response", "outcome", "target", "label", "cases", "case", "count", "events", "event", "status", "died")
IDS = re.compile(r"(.*_)?(id|ids|pid|mrn|patient|key)")
AREAS = ("area", "district", "county", "region", "municipality", "ward", "zip", "postcode", "fips")
EXPOSURES = ("expected", "exposure", "population", "person_years", "pop", "offset")
GRAPH_LEAST = 3  # columns


@dataclass(frozen=True)
class Wanted:
    """What `fedkern init` was told.

    Attributes
    ----------
    files : of the clients
    method : None: by the headers
    private : whether the job is to have [privacy]
    response : None: by its name
    test, server : files of the server's
    folder : where the job file will lie: its paths are relative to it
    """

    files: Sequence[Path]
    method: str | None = None
    private: bool = False
    response: str | None = None
    test: Path | None = None
    server: Path | None = None
    folder: Path = field(default_factory=Path)


@dataclass(frozen=True)
class Seen:
    """What the files look like: names in order, name -> "binary", "count", "real", "text" or "names" (each cell another text)."""

    names: tuple[str, ...]
    kinds: dict[str, str]


def job(wanted: Wanted) -> str:
    """A commented job file.

    Raises
    ------
    JobError
        A file cannot be read, the headers do not fit the method, or nothing tells the response: the text names candidates.
    """
    dialect = _dialect(wanted.files[0])
    tables = [table.load(path, dialect=dialect) for path in wanted.files]
    own = [table.load(path, dialect=dialect) for path in (wanted.server,) if path is not None]
    seen = [_seen([one]) for one in tables]
    common = [name for name in seen[0].names if all(name in one.names for one in seen)]
    method = wanted.method or _method(seen, common)
    if method not in METHODS:
        raise JobError(f"init --method {method}: there are {', '.join(METHODS)}")
    if wanted.private and method not in ("pvi", "vertical"):
        raise JobError(f'init --private: method = "{method}" makes no privacy claim; take pvi or vertical')
    odd = [path.name for path, one in zip(wanted.files, seen) if set(one.names) != set(common)]
    if method != "vertical" and odd:
        raise JobError(
            f"init: {odd[-1]} has other columns than the rest; give files with the same columns, or --method "
            "vertical where each client has columns of its own"
        )
    every = _seen(tables) if method != "vertical" else Seen(tuple(common), seen[0].kinds)
    lines = [f"# Drafted from the headers of {len(tables)} files and the types of their cells. Look at every line, then"]
    lines += ["# `fedkern check` this file; docs/reference/jobs.md has all keys.", ""]
    lines += ["[job]", f'method = "{method}"', "seed = 1", *_rounds(method, wanted.private), "", "[data]"]
    lines += [f"clients = {_patterns(wanted)}{_note('the file name is the client')}"]
    sections = {"pvi": _pvi, "sparse": _sparse, "vertical": _vertical, "sigma": _sigma}[method]
    lines += sections(wanted, every, [_seen([one]) for one in own])
    if dialect != Dialect():
        lines += ["", "[data.dialect]", "# what the first file seems to need"]
        keys = ("delimiter", "decimal", "encoding")
        lines += [f"{key} = {json.dumps(value)}" for key in keys if (value := getattr(dialect, key))]
    lines += [*_private(method, every)] if wanted.private else []
    return "\n".join(lines) + "\n"


def policy(files: Sequence[Path]) -> str:
    """A commented policy of the holder of these files (docs/how-to/policy.md)."""
    lines = ["# What jobs may do with these data, over all of them together: ~/.fedkern/policy.toml (docs/how-to/policy.md).", ""]
    lines += ["require = true   # data that no policy names are in no job"]
    for path in files:
        lines += ["", f"[data.{json.dumps(stem(path))}]", f"paths = [{json.dumps(str(path.resolve()))}]"]
        lines += ["epsilon = 1.0    # of all jobs together; set it before the first one", "delta = 1e-5"]
        lines += ["open = false     # true: jobs without [privacy], too", "client_level = false"]
    return "\n".join(lines) + "\n"


def schema(method: str) -> str:
    """JSON Schema of a method's job files."""
    from . import named

    content = named(method).keys.Config.model_json_schema()
    for section in (content, *content["$defs"].values()):
        section.pop("required", None)  # what a file leaves out may follow from the rest; `fedkern check` says what is missing
        if "rounds" in (keys := section.get("properties", {})):
            keys["rounds"] = {"anyOf": [keys["rounds"], {"enum": ["budget", "until"]}]}
    content |= {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"fedkern job, method = {json.dumps(method)}"}
    return json.dumps(content, indent=1) + "\n"


def _method(seen: Sequence[Seen], common: Sequence[str]) -> str:
    if len(seen) > 1 and len(common) == 1 and IDS.fullmatch(common[0].lower()):
        return "vertical"
    names = {name.lower() for name in common}
    return "sigma" if names & {*AREAS} and names & {*EXPOSURES} else "pvi"


def _rounds(method: str, private: bool) -> list[str]:
    if private and method == "pvi":
        return ['rounds = "budget"   # until every client has spent its epsilon']
    return [] if method == "pvi" else [] if private else ['rounds = "until"    # until it has converged, or `check` says so']


def _pvi(wanted: Wanted, seen: Seen, own: Sequence[Seen]) -> list[str]:
    response = _response(wanted, seen)
    lines = [*_response_lines(response, seen), *_ignored(seen, {response})]
    lines += ['standardise = "public"   # by [data.columns] below'] if wanted.private else []
    lines += [f"test = {_path(wanted, wanted.test)}"] if wanted.test is not None else []
    return [*lines, "", "[model]", *_family(seen.kinds[response]), *_scale(seen.kinds[response])]


def _sparse(wanted: Wanted, seen: Seen, own: Sequence[Seen]) -> list[str]:
    found = wanted.response or _named(seen.names, RESPONSES)
    if found is None:
        if len(seen.names) < GRAPH_LEAST or not all(kind in ("binary", "count", "real") for kind in seen.kinds.values()):
            _response(wanted, seen)  # says what is missing
        return ["", "[model]", 'kind = "mrf"      # a graph of all columns; "sem": with directions']
    response = _response(wanted, seen)
    family = [] if seen.kinds[response] != "binary" else _family("binary")
    return [*_response_lines(response, seen), *_ignored(seen, {response}), "", "[model]", 'kind = "regression"', *family]


def _vertical(wanted: Wanted, seen: Seen, own: Sequence[Seen]) -> list[str]:
    ids = next((name for name in seen.names if IDS.fullmatch(name.lower())), None) or next(iter(seen.names), None)
    if ids is None:
        raise JobError('init --method vertical: the files have no column in common; each needs the same "id" that names its rows')
    holders = own or [seen]
    response = _response(wanted, holders[0], without={ids})
    lines = [f"id = {json.dumps(ids)}{_note('names the row at every party')}", *_response_lines(response, holders[0])]
    lines += [f"server = {_path(wanted, wanted.server)}"] if wanted.server is not None else []
    lines += ["holdout = 0.2           # of the rows, for testing", *(['standardise = "public"'] if wanted.private else [])]
    return [*lines, "", "[model]", *_family(holders[0].kinds[response])]


def _sigma(wanted: Wanted, seen: Seen, own: Sequence[Seen]) -> list[str]:
    area = _named(seen.names, AREAS)
    if area is None:
        raise JobError(f"init --method sigma: no column is called as areas are ({', '.join(AREAS)}); rename it")
    exposure = _named(seen.names, EXPOSURES)
    response = _response(wanted, seen, without={area, exposure or area})
    lines = [f"area = {json.dumps(area)}", *_response_lines(response, seen)]
    lines += [f"exposure = {json.dumps(exposure)}{_note('expected counts, or persons at risk')}"] if exposure else []
    lines += _ignored(seen, {area, response, exposure or area})
    lines += ["", "[model]", 'prior = "prior"   # the --out of `fedkern sigma build prior.toml`']
    return [*lines, *_family(seen.kinds[response])]


def _private(method: str, seen: Seen) -> Iterator[str]:
    """[privacy], and a table for each covariate, whose constants no row may be asked for."""
    yield from ("", "[privacy]", "epsilon = 1.0            # of each client, over the whole job")
    yield from ("delta = 1e-5             # below 1 / rows", "clip = 2.5", "noise_multiplier = 5.0", "sampling_rate = 0.02", "")
    yield "# Publicly known constants of every covariate, from another source than these rows: fill in all of them."
    response = _named(seen.names, RESPONSES)
    for name in seen.names:
        if name != response and seen.kinds[name] != "names":
            yield from ("", f"[data.columns.{json.dumps(name)}]")
            numeric = "# center = .., scale = ..   (or lower = .., upper = ..)"
            yield '# levels = ["..", ".."]' if seen.kinds[name] == "text" else numeric


def _response(wanted: Wanted, seen: Seen, without: Collection[str] = ()) -> str:
    if wanted.response is not None:
        if wanted.response not in seen.names:
            raise JobError(f"init --response {wanted.response}: there is no such column; there are {', '.join(seen.names)}")
        return wanted.response
    found = _named(seen.names, RESPONSES)
    if found is None:
        rest = [name for name in seen.names if name not in without and seen.kinds[name] != "names"]
        if len(rest) == 1:
            return rest[0]
        raise JobError(f"init: which column is to be explained? give --response, one of {', '.join(rest[:12])}")
    return found


def _response_lines(response: str, seen: Seen) -> list[str]:
    lines = [f"response = {json.dumps(response)}"]
    if seen.kinds[response] == "text":
        lines.append('# positive = ".."   # fill in: the label that counts as 1')
    return lines


def _ignored(seen: Seen, roles: set[str]) -> list[str]:
    """Columns that name their rows."""
    names = [name for name in seen.names if name not in roles and seen.kinds[name] == "names"]
    names += [name for name in seen.names if name not in {*roles, *names} and IDS.fullmatch(name.lower())]
    return [f"ignore = {json.dumps(names, ensure_ascii=False)}{_note('seem to name rows')}"] if names else []


def _family(kind: str) -> list[str]:
    if kind == "real":
        return ['family = "gaussian"']
    if kind == "count":
        return ['family = "poisson"     # whole numbers; "gaussian" if they are measurements']
    return ['family = "bernoulli"']


def _scale(kind: str) -> list[str]:
    return ["scale = 1.0             # standard deviation of the response's noise: fill in"] if kind == "real" else []


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in names}
    return next((lower[word] for word in known if word in lower), None)


def _seen(tables: Sequence[Table]) -> Seen:
    """The widest kind of each column over the files."""
    order = ("binary", "count", "real", "text")
    kinds: dict[str, str] = {}
    for name in tables[0].names:
        found = [_kind(one, name) for one in tables if name in one.names]
        kinds[name] = "names" if all(kind == "names" for kind in found) else max(
            ("text" if kind == "names" else kind for kind in found), key=order.index
        )
    return Seen(tables[0].names, kinds)


def _kind(one: Table, name: str) -> str:
    column = one.columns[name]
    if isinstance(column, Text):
        if column.kind() == "categorical":
            return "names" if len(column.levels) == one.n_rows > 2 else "text"
        values = column.numbers()
    else:
        values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)]
    if not values.size or not (values >= 0).all() or not (values == np.floor(values)).all():
        return "real"
    return "binary" if (values <= 1).all() else "count"


def _dialect(path: Path) -> Dialect:
    """What a text file seems to need; what it says of itself is looked at by a person next."""
    if not path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")) or not path.is_file():
        return Dialect()
    with Dialect().reader(path) as file:
        head: bytes = file.read(1 << 16)
    encoding = "utf-16" if head.startswith(UTF16) else None
    if encoding is None:
        try:
            head.rpartition(b"\n")[0].decode("utf-8")
        except UnicodeDecodeError:
            encoding = "cp1252"
    lines = head.decode(encoding or "utf-8", errors="replace").splitlines()[:200]
    between = Dialect().between(path)
    other = max(KNOWN, key=(lines or [""])[0].count)
    delimiter = other if between not in (lines or [""])[0] and other in (lines or [""])[0] else None
    cells = [cell for line in lines[1:] for cell in line.split(delimiter)] if delimiter not in (None, ",") else []
    commas = any(map(has_decimal_comma, cells))
    return Dialect(delimiter, "," if commas else ".", encoding)


def _patterns(wanted: Wanted) -> str:
    """The files, by one pattern where it finds just these."""
    folders, suffixes = {path.parent.resolve() for path in wanted.files}, {"".join(path.suffixes[-1:]) for path in wanted.files}
    if len(folders) == len(suffixes) == 1 and len(wanted.files) > 1:
        folder, suffix = folders.pop(), suffixes.pop()
        if {*folder.glob(f"*{suffix}")} == {path.resolve() for path in wanted.files}:
            return json.dumps([f"{_relative(folder, wanted.folder)}/*{suffix}"])
    return json.dumps([_relative(path, wanted.folder) for path in wanted.files])


def _path(wanted: Wanted, path: Path | None) -> str:
    assert path is not None
    return json.dumps(_relative(path, wanted.folder))


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())


def _note(text: str) -> str:
    return f"   # {text}"
