"""Drafts a first job file, or a holder's policy, from headers and the types of cells, for `fedkern init`.

No value of a cell is written or said: not a level, not a label, not a mean, and not the first line of a file where that looks
like a row (one of nothing but words cannot be told from a header). A key that only a person knows becomes a line to fill in,
and is listed once more for the terminal; a guess from a name says so.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..data.cells import MISSING, Text, number
from ..data.dialect import SEPARATORS, Dialect, has_decimal_comma, stem, suffix
from ..data.header import IDS
from ..data.plain_text import SEPARATORS as KNOWN
from ..data.plain_text import UTF16
from ..data.table import Table, Uneven, header, load
from ..errors import JobError
from ..printing import toml_key, toml_text
from . import METHODS
from .seen import Seen, has_code, look_at, slips

RESPONSES = ("y", "response", "outcome", "target", "label", "cases", "case", "count", "events", "event", "status", "died")
# Of a 0/1 response beside them: how long a row was seen, and no covariate.
TIMES = re.compile(
    r"(time|months?|days?|weeks?|years?)|(follow_?up|fu|surv(ival)?|os|pfs|dfs|event|death)(_?(time|months?|days?|weeks?|years?))?"
    r"|(time|months?|days?|weeks?|years?)_?(to|of|until)_?\w+|f(ollow)?_?u(p)?_?time|([dprs]|rfs)time|t?stop(_?(time|months?|days?))?"
)
# Columns of a survival study that are no covariates: each is left out of the job, and the key that it may be of is said.
OTHERS = (
    (re.compile(r"(\w+_)?(entry|since|from|t?start|left_trunc\w*)(_?(time|months?|days?|weeks?|years?|age))?"), "data.entry"),
    (re.compile(r"(\w+_)?(left|right|lower|upper|until)(_?(time|months?|days?|weeks?|years?))?"), "data.time_upper"),
    (re.compile(r"(case_?)?(weights?|wt)"), "data.weight"),
    (re.compile(r"strat(um|a)"), "data.strata"),
)
WORDS = {
    "data.entry": "when a row came under observation",
    "data.time_upper": 'an end of the interval in which the event was (with data.time its begin, and family = "weibull")',
    "data.weight": "how much a row counts",
    "data.strata": "groups with a baseline hazard each",
}
STATUS = re.compile(r"(\w+_)?((fu)?stat(us)?|event|death|died|dead|progress(ion|ed)?|relapse[d]?|cens(or(s|ed|ing)?)?)")
AREAS = ("area", "district", "county", "region", "municipality", "ward", "zip", "postcode", "fips")
EXPOSURES = ("expected", "exposure", "population", "person_years", "pop", "offset")
GRAPH_LEAST = 3  # columns
GAPS = "some rows lack a cell"


@dataclass(frozen=True)
class Wanted:
    """Holds the arguments of `fedkern init`."""

    files: Sequence[Path]  # of the clients
    method: str | None = None  # None: by the headers
    private: bool = False  # whether the job is to have [privacy]
    response: str | None = None  # None: by its name
    # test, server: files of the server's
    test: Path | None = None
    server: Path | None = None
    folder: Path = field(default_factory=Path)  # where the job file will lie: its paths are relative to it


class Draft(NamedTuple):
    """Holds a drafted file, and a line, with its key, for each choice that a person has to make."""

    text: str
    open: tuple[str, ...]


def job(wanted: Wanted) -> Draft:
    """Drafts a commented job file.

    Raises
    ------
    JobError
        A file cannot be read or has no header or no rows, the headers do not fit the method, or nothing tells the response: the
        text names candidates.
    """
    # Look at the files first: the method, and every line of the job, follow from their headers and kinds.
    dialect = _dialect(wanted.files[0])
    _distinct(wanted.files)
    tables = [_table(path, dialect) for path in wanted.files]
    servers = [_table(path, dialect) for path in (wanted.server,) if path is not None]
    common = [name for name in tables[0].names if all(name in table.names for table in tables)]
    seen = look_at(tables)
    method = wanted.method or _method(tables, common, wanted.private)
    if method not in METHODS:
        raise JobError(f"init --method {method}: there are {', '.join(METHODS)}")
    if wanted.private and method not in ("pvi", "vertical"):
        raise JobError(f'init --private: method = "{method}" makes no privacy claim; take pvi or vertical')
    odd = [path.name for path, table in zip(wanted.files, tables) if set(table.names) != set(common)]
    if method != "vertical" and odd:
        raise JobError(
            f"init: {odd[-1]} has other columns than the rest; give files with the same columns, or --method "
            "vertical where each client has columns of its own"
        )
    many = "file" if len(tables) == 1 else "files"
    lines = [f"# Drafted from the headers of {len(tables)} {many} and the types of their cells. Look at every line, then"]
    lines += ["# `fedkern check` this file; `fedkern schema` has all keys.", ""]
    lines += ["[job]", f'method = "{method}"', "seed = 1", *_rounds(method, wanted.private), "", "[data]"]
    lines += [f"clients = {_patterns(wanted)}{_note('the file name is the client')}"]
    sections = {
        "likelihood": _likelihood,
        "pvi": _pvi,
        "sparse": _sparse,
        "vertical": _vertical,
        "sigma": _sigma,
        "describe": _describe,
    }[method]
    part = sections(wanted, seen, [look_at([table]) for table in servers], common)
    lines += part.lines
    hints = _missing_lines(tables, seen, part)
    if dialect != Dialect():
        lines += ["", "[data.dialect]", "# what the first file seems to need", *_dialect_lines(dialect), *hints]
    elif hints:
        lines += ["", "[data.dialect]", *hints]
    if wanted.private:
        lines += _private(method, seen, part)
    constants = _constants(seen, part) if wanted.private else ()
    return Draft("\n".join(lines) + "\n", (*part.open, *slips(tables, seen), *constants))


def policy(files: Sequence[Path]) -> str:
    """Drafts a commented policy of the holder of these files (docs/how-to/policy.md)."""
    lines = ["# What jobs may do with these data, over all of them together: ~/.fedkern/policy.toml (docs/how-to/policy.md).", ""]
    lines += ["require = true   # data that no policy names are in no job", ""]
    lines += [
        "[disclosure]     # of open jobs",
        "# none with nearly the clients, or nearly the rows, of an earlier one: the difference",
    ]
    lines += ["# is those few; then your site file says which cells are empty, and no job does", 'differencing = "refuse"']
    lines += ['# tell = "rules"  # in the place of that line: who runs a job reads which rules refuse these rows']
    for path in files:
        lines += ["", f"[data.{_text(stem(path))}]", f"paths = [{_text(str(path.resolve()))}]"]
        lines += ["epsilon = 1.0    # of all jobs together; set it before the first one", "delta = 1e-5"]
        lines += ["open = false     # true: jobs without [privacy], too", "client_level = false"]
    return "\n".join(lines) + "\n"


def sites(files: Sequence[Path], policy: Path) -> dict[Path, str]:
    """Drafts a commented site file for each of a holder's files, by its place beside the policy (docs/how-to/files.md).

    Raises
    ------
    JobError
        A file cannot be read or has no header, or two would be one client.
    """
    _distinct(files)
    texts = {}
    for path in files:
        dialect = _dialect(path)
        _header(path, dialect)
        home = policy.parent / "sites" / f"{stem(path)}.toml"
        lines = ["# Of this client alone, and no part of the job: beside the job file as sites/NAME.toml, or where"]
        lines += ["# `fedkern run --site` says (docs/how-to/files.md). Leave out what the job file says already.", ""]
        lines += [f"path = {_text(str(path.resolve()))}{_note('in the place of data.clients')}"]
        lines += [f"policy = {_text(_relative(policy, home.parent))}{_note('binds these data beside all other policies')}"]
        lines += ["# threads = 4   # at most; by default those of the machine", ""]
        plain = ["# [dialect]", '# delimiter = ";"', '# decimal = ","', '# encoding = "latin-1"']
        lines += ["[dialect]", *_dialect_lines(dialect)] if dialect != Dialect() else plain
        texts[home] = "\n".join(lines) + "\n"
    return texts


def schema(method: str) -> str:
    """Returns the JSON Schema of a method's job files."""
    from . import load_method

    content = load_method(method).keys.Config.model_json_schema()
    for section in (content, *content["$defs"].values()):
        # a key that a file leaves out may follow from the rest; `fedkern check` says what is missing
        section.pop("required", None)
        keys = section.get("properties", {})
        for name, about in keys.items():
            for extra in ("remedy", "meant"):
                about.pop(extra, None)
            if name in ("clients", "location") and about.get("type") == "array":  # one path needs no brackets
                keys[name] = {"description": about["description"], "anyOf": [about, {"type": "string"}]}
        if "rounds" in keys:
            words = {"enum": ["budget", "until"]}
            keys["rounds"] = {"description": keys["rounds"]["description"], "anyOf": [{"type": "integer", "minimum": 1}, words]}
        if "method" in keys:
            keys["method"]["enum"] = [method]
    content |= {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"fedkern job, method = {json.dumps(method)}"}
    return json.dumps(content, indent=1) + "\n"


class Part(NamedTuple):
    """Holds a method's tables: lines, open choices, the columns that are no covariates, and those in data.ignore."""

    lines: list[str]
    open: list[str]
    roles: frozenset[str]
    ignored: Sequence[str] = ()


def _method(tables: Sequence[Table], common: Sequence[str], private: bool) -> str:
    """Guesses the method from the headers."""
    if len(tables) > 1 and len(common) == 1 and IDS.fullmatch(common[0].lower()):
        return "vertical"
    names = {name.lower() for name in common}
    return "sigma" if names & {*AREAS} and names & {*EXPOSURES} else "pvi" if private else "likelihood"


def _rounds(method: str, private: bool) -> list[str]:
    """Drafts job.rounds."""
    if private and method == "pvi":
        return ['rounds = "budget"   # until every client has spent its epsilon']
    if private or method in ("pvi", "likelihood", "describe"):
        return []
    return ['rounds = "until"    # until it has converged, or `check` says so']


def _pvi(wanted: Wanted, seen: Seen, servers: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a partitioned job."""
    response = _response(wanted, seen)
    data_lines, choices = _response_lines(response, seen, asks=wanted.private)
    ignored = _ignored(seen, {response})
    lines = [*data_lines, *_ignore_lines(ignored, seen), *_code_lines(seen, {response, *ignored}, groups=False)]
    lines += ['standardise = "public"   # by [data.columns] below'] if wanted.private else []
    lines += [f"test = {_path(wanted, wanted.test)}"] if wanted.test is not None else []
    lines += ["", "[model]", *_family(response, seen), *(scale := _scale(seen.family(response), wanted.private))]
    choices += ["model.scale: the standard deviation of the response's noise"] if scale else []
    if seen.gaps - {*ignored} and not wanted.private:
        lines += [f'missing = "drop"        # {GAPS}: these rows are left out, and counted']
    return Part(lines, choices, frozenset({response, *ignored}), ignored)


def _likelihood(wanted: Wanted, seen: Seen, servers: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a job of method "likelihood"."""
    response = _response(wanted, seen)
    event = _event(response, seen)
    ignored = _ignored(seen, {event})
    if (time := response if event != response else _time(event, seen, ignored)) is not None:
        return _survival(time, event, seen)
    data_lines, choices = _response_lines(response, seen, asks=False, levels=True)
    lines = [*data_lines, *_ignore_lines(ignored, seen), *_code_lines(seen, {response, *ignored}, groups=True)]
    lines += [f"test = {_path(wanted, wanted.test)}"] if wanted.test is not None else []
    lines += ["", "[model]", *_family(response, seen, levels=True)]
    if seen.gaps - {*ignored}:
        lines += [f'missing = "drop"        # {GAPS}: these rows are left out, and counted']
    lines += ["", "# [model.random]          # effects that are normal over groups of rows, or over clients"]
    group = next((name for name in seen.names if name in seen.numbered and name not in {response, *ignored}), None)
    if group is None:
        lines += ['# group = ".."            # a column, such as a ward, whose rows are alike; its labels stay home']
    else:
        lines += [f"# group = {_text(group)}{_note('if it is a code: its rows are alike, and its labels stay home')}"]
    lines += ["# client = true           # an effect of each client as a whole"]
    return Part(lines, choices, frozenset({response, *ignored}), ignored)


def _event(response: str, seen: Seen) -> str:
    """Returns the event of a response that is a time to it, by their names; the response itself where it is none."""
    if not TIMES.fullmatch(response.lower()) or seen.kinds[response] not in ("real", "count"):
        return response
    return next((name for name in seen.names if STATUS.fullmatch(name.lower()) and _tells(name, seen)), response)


def _tells(name: str, seen: Seen) -> bool:
    """Returns whether a column may say which event a row ended with."""
    several = name in seen.several or (seen.kinds[name] == "count" and name not in seen.two)
    if several:
        return STATUS.fullmatch(name.lower()) is not None
    return seen.kinds[name] in ("binary", "text") or name in seen.two


def _time(response: str, seen: Seen, ignored: Sequence[str]) -> str | None:
    """Returns the column that seems to say how long a row was seen, where the response may be whether it ended with an event."""
    if not _tells(response, seen):
        return None
    numeric = [name for name in seen.names if name not in {response, *ignored} and seen.kinds[name] in ("real", "count")]
    times = [name for name in numeric if TIMES.fullmatch(name.lower())]
    if not times and any(re.fullmatch("right|upper", name.lower()) for name in numeric):
        times = [name for name in numeric if re.fullmatch("left|lower", name.lower())]  # an interval begins there
    head = response.lower().split("_")[0]
    # Of several times the one that has the event's own name in it, as os_months beside os_status.
    return next((name for name in times if head in name.lower().split("_")), next(iter(times), None))


def _survival(time: str, event: str, seen: Seen) -> Part:
    """Drafts a job of survival times.

    Other times and events, entries, ends of intervals, weights and strata are no covariates: they are left out, and named.
    """
    ignored = _ignored(seen, {event, time})
    rest = [name for name in seen.names if name not in {event, time, *ignored}]
    keys = {name: key for name in rest for pattern, key in OTHERS if pattern.fullmatch(name.lower())}
    after = [
        name
        for name in rest
        if name not in keys
        and ((TIMES.fullmatch(name.lower()) and seen.kinds[name] in ("real", "count")) or STATUS.fullmatch(name.lower()))
    ]
    ignored += [*keys, *after]
    (_, *labels), choices = _response_lines(event, seen, asks=False)
    if event in seen.several or (seen.kinds[event] == "count" and event not in seen.two):
        choices = [
            f"data.event: {event} has more than two values; add a column to the files that says of one event whether it was seen"
        ]
    if re.search("cens", event.lower()):
        choices = [
            *choices,
            f'data.event: 1 must say that the event was seen; where 1 in {event} says censored, give positive = "0"',
        ]
    lines = [
        f"time = {_text(time)}{_note('by its name: how long a row was seen, till its event or without one')}",
        f"event = {_text(event)}{_note('whether it ended with the event')}",
        *labels,
        *_ignore_lines(ignored, seen),
        *_code_lines(seen, {event, time, *ignored}, groups=False),
        "",
        "[model]",
        f'family = "cox"{_note("hazard ratios, with a baseline hazard of each client that stays there")}',
    ]
    if seen.gaps - {*ignored}:
        lines += [f'missing = "drop"        # {GAPS}: these rows are left out, and counted']
    choice = (
        f"{event} is explained with {time} as time to the event, by its name; where it is a covariate that was known before: "
    )
    choices = [
        *choices,
        *(f"{key}: {name} seems to be {WORDS[key]}; it is left out until you name it" for name, key in keys.items()),
    ]
    if after:
        choices += [
            f"data.ignore: {_texts(after)} seem to be other times or events, which are known afterwards; they are left out"
        ]
    choices = [*choices, f'data.time: {choice}response = {_text(event)}, and no time, event and family = "cox"']
    return Part(lines, choices, frozenset({event, time, *ignored}), ignored)


def _sparse(wanted: Wanted, seen: Seen, servers: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a sparse job."""
    if wanted.response is None and not _named(seen.names, RESPONSES):
        if len(seen.names) < GRAPH_LEAST or not all(kind in ("binary", "count", "real") for kind in seen.kinds.values()):
            _response(wanted, seen)  # says what is missing
        lines = ["", "[model]", 'kind = "mrf"      # a graph of all columns; "sem": with directions']
        lines += [f'missing = "impute"      # {GAPS}: they are drawn by the model (kind = "mrf")'] if seen.gaps else []
        return Part(lines, [], frozenset())
    response = _response(wanted, seen)
    data_lines, choices = _response_lines(response, seen, asks=False)
    ignored = _ignored(seen, {response})
    binary = seen.family(response) == "bernoulli"
    lines = [*data_lines, *_ignore_lines(ignored, seen), "", "[model]", 'kind = "regression"']
    lines += _family(response, seen) if binary else []
    gaps = seen.gaps - {*ignored}
    if gaps:
        drawn = response not in gaps
        lines += [f'missing = "impute"      # {GAPS}: they are drawn by the model'] if drawn else []
        choices += [] if drawn else [f"rows: {GAPS}; remove them: only covariates are imputed"]
    return Part(lines, choices, frozenset({response, *ignored}), ignored)


def _describe(wanted: Wanted, seen: Seen, own: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a description."""
    ignored = _ignored(seen, set())
    lines = [*_ignore_lines(ignored, seen), "", "[model]", '# group = "COLUMN"   # a Table 1 by its levels']
    return Part(lines, [], frozenset(ignored), ignored)


def _vertical(wanted: Wanted, seen: Seen, servers: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a vertical job."""
    ids = next((name for name in common if IDS.fullmatch(name.lower())), None) or next(iter(common), None)
    if ids is None:
        raise JobError('init --method vertical: the files have no column in common; each needs the same "id" that names its rows')
    if wanted.private and wanted.server is None:
        raise JobError("init --private: the server of a private vertical job needs a file with the response; give --server FILE")
    holder = servers[0] if servers else seen
    response = _response(wanted, holder, without={ids})
    data_lines, choices = _response_lines(response, holder)
    ignored = _ignored(seen, {ids, response})
    lines = [f"id = {_text(ids)}{_note('names the row at every party')}", *data_lines, *_ignore_lines(ignored, seen)]
    lines += [f"server = {_path(wanted, wanted.server)}"] if wanted.server is not None else []
    public, kept = 'standardise = "public"   # by [data.columns] below', "holdout = 0.2           # of the rows, for testing"
    lines.append(public if wanted.private else kept)
    if seen.gaps - {ids, response, *ignored}:
        ways = '"indicator", with kind, center and scale of these columns in [data.columns.NAME]'
        ways += "" if wanted.private else ', or "drop", which leaves them out at all parties (docs/how-to/files.md)'
        choices += [f"model.missing: {GAPS}; {ways}"]
    return Part([*lines, "", "[model]", *_family(response, holder)], choices, frozenset({ids, response, *ignored}), ignored)


def _sigma(wanted: Wanted, seen: Seen, servers: Sequence[Seen], common: Sequence[str]) -> Part:
    """Drafts the tables of a spatial job."""
    area = next(iter(_named(seen.names, AREAS)), None)
    if area is None:
        raise JobError(f"init --method sigma: no column is called as areas are ({', '.join(AREAS)}); rename it")
    exposure = next(iter(_named(seen.names, EXPOSURES)), None)
    roles = {area, exposure or area}
    response = _response(wanted, seen, without=roles)
    data_lines, choices = _response_lines(response, seen)
    ignored = _ignored(seen, {*roles, response})
    lines = [f"area = {_text(area)}", *data_lines]
    lines += [f"exposure = {_text(exposure)}{_note('expected counts, or persons at risk')}"] if exposure else []
    lines += [*_ignore_lines(ignored, seen), "", "[model]", 'prior = "prior"   # the --out of `fedkern sigma build prior.toml`']
    choices += ['model.prior: the folder of a prior that has these areas ("prior" stands there)']
    if seen.gaps - {response, *ignored}:
        choices += [f"rows: {GAPS} beside the response; remove the columns, or fill them"]
    return Part([*lines, *_family(response, seen)], choices, frozenset({*roles, response, *ignored}), ignored)


def _private(method: str, seen: Seen, part: Part) -> Iterator[str]:
    """Yields [privacy], and a table for each covariate, whose constants no row may be asked for."""
    yield from ("", "[privacy]", "epsilon = 1.0            # of each client, over the whole job: an example, choose it")
    yield "delta = 1e-5             # below 1 / rows"
    if method == "pvi":
        yield from ("clip = 2.5               # bound on a row's gradient", "noise_multiplier = 5.0", "sampling_rate = 0.02", "")
    else:
        yield from ("clip_z = 3.0             # bound on a row's part of the predictor", "clip_gradient = 1.0", "")
    yield "# Publicly known constants of every covariate, from another source than these rows: fill in all of them."
    for name in _covariates(seen, part):
        yield from ("", f"[data.columns.{toml_key(name)}]")
        numeric = "# center = .., scale = ..   (or lower = .., upper = ..)"
        yield '# levels = ["..", ".."]' if seen.kinds[name] == "text" else numeric


def _constants(seen: Seen, part: Part) -> Iterator[str]:
    """Yields the missing entries of a private job's file, key by key."""
    yield "privacy: epsilon, delta, clips and noise are examples; choose them"
    for name in _covariates(seen, part):
        wanted = "levels" if seen.kinds[name] == "text" else "center and scale, or lower and upper"
        yield f"data.columns.{toml_key(name)}: {wanted}"


def _covariates(seen: Seen, part: Part) -> list[str]:
    """Returns the columns that are covariates."""
    return [name for name in seen.names if name not in part.roles]


def _response(wanted: Wanted, seen: Seen, without: Collection[str] = ()) -> str:
    """Returns the response: the given one, or the only column that may be it."""
    if wanted.response is not None:
        if wanted.response not in seen.names:
            raise JobError(f"init --response {wanted.response}: there is no such column; there are {', '.join(seen.names)}")
        return wanted.response
    candidates = [name for name in _named(seen.names, RESPONSES) if name not in without]
    if not candidates:
        candidates = [name for name in seen.names if name not in without and seen.kinds[name] != "names"]
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(candidates[:12]) or ", ".join(seen.names[:12])
    raise JobError(f"init: which column is to be explained? give --response, one of {names}")


def _response_lines(response: str, seen: Seen, *, asks: bool = True, levels: bool = False) -> tuple[list[str], list[str]]:
    """Returns lines of [data], and open choices.

    Parameters
    ----------
    asks : whether the job must say which of two labels counts as 1; else all files' labels decide
    levels : whether the method takes a response of several levels
    """
    lines = [f"response = {_text(response)}"]
    if levels and seen.family(response, levels=True) == "multinomial":
        lines.append('# levels = ["..", ".."]   # fill in: all labels of the response, the reference first')
        return lines, [f'data.levels: the labels of {response}, the reference first; of family = "ordinal" in their order']
    if seen.kinds[response] not in ("text", "names") and response not in seen.two:
        return lines, []
    if not asks:
        lines.append('# positive = ".."   # the label that counts as 1; else all files\' labels decide, and the result says it')
        return lines, []
    lines.append('# positive = ".."   # fill in: the label that counts as 1, all others as 0')
    return lines, [f"data.positive: the label of {response} that counts as 1"]


def _ignored(seen: Seen, roles: set[str]) -> list[str]:
    """Returns the columns that name their rows."""
    names = [name for name in seen.names if name not in roles and seen.kinds[name] == "names"]
    others = {*seen.dates, *seen.crowded}
    return names + [
        name for name in seen.names if name not in {*roles, *names} and (name in others or IDS.fullmatch(name.lower()))
    ]


def _ignore_lines(names: Sequence[str], seen: Seen) -> list[str]:
    """Returns data.ignore, and the reason."""
    if not names:
        return []
    dates, crowded = ([name for name in names if name in those] for those in (seen.dates, seen.crowded))
    lines = []
    if dates:
        lines += [f"# {_texts(dates)}: dates. Written as YYYY-MM-DD one is a number of days, with a slope: take it out of"]
        lines += ["# ignore if you mean that, or write another number of it (the year, an age) into the files."]
    if crowded:
        lines += [f"# {_texts(crowded)}: nearly as many levels as rows, too many for coefficients. To use one, join"]
        lines += ["# its levels in the files, and remove it here."]
    others = "the others seem" if lines else "seem"
    why = (
        _note(f"{others} to name rows, to be codes, to be empty, or to be no covariates")
        if set(names) - {*dates, *crowded}
        else ""
    )
    return [*lines, f"ignore = [{_texts(names)}]{why}"]


def _code_lines(seen: Seen, roles: Collection[str], *, groups: bool) -> list[str]:
    """Returns lines of [data] about covariates that are taken for numbers, and may be codes."""
    names = [name for name in seen.names if name in seen.numbered and name not in roles]
    if not names:
        return []
    where = "as the group of [model.random], or with" if groups else "with"
    return [
        f"# {_texts(names)}: taken for a number, with a slope. Where it is a code (of a ward, say), have it {where}",
        f'# kind = "categorical" in [data.columns.{toml_key(names[0])}].',
    ]


def _family(response: str, seen: Seen, *, levels: bool = False) -> list[str]:
    """Drafts model.family."""
    family, kind = seen.family(response, levels=levels), seen.kinds[response]
    note = ""
    if family == "bernoulli" and response in seen.two:
        note = _note('two values; "gaussian" if they are measurements')
    if family == "gaussian" and kind == "count":
        note = _note('whole numbers, none of them 0; "poisson" if they count something')
    if family == "poisson":
        note = _note('whole numbers, with zeros; "gaussian" if they are measurements, "multinomial" if they number classes')
    if family == "multinomial":
        note = _note('or "ordinal", where the labels have an order')
    return [f'family = "{family}"{note}']


def _scale(family: str, private: bool) -> list[str]:
    """Drafts model.scale of a response of real numbers."""
    if family != "gaussian":
        return []
    if private:  # a number that nobody has chosen would pass for one that is known
        return ["# scale = ..            # standard deviation of the response's noise, from public knowledge: fill in"]
    return ["scale = 1.0             # standard deviation of the response's noise: fill in"]


def _named(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Returns those of the names that are known, in the order of the known ones."""
    return [name for word in known for name in names if name.lower() == word]


def _distinct(files: Sequence[Path]) -> None:
    """Raises JobError where two files would be one client."""
    twice = [name for name, count in Counter(map(stem, files)).items() if count > 1]
    if twice:
        raise JobError(f"init: two of the files would both be client {twice[0]!r}; rename one")


def _header(path: Path, dialect: Dialect) -> tuple[str, ...]:
    """Reads the names of a file's columns.

    Raises
    ------
    JobError
        There are none, or they look like the cells of a row; they are not shown then.
    """
    names = header(path, dialect=dialect)
    cells = [name for name in names if number(name) == number(name) or has_decimal_comma(name) or not any(map(str.isalpha, name))]
    if cells and suffix(path).removesuffix(".gz") in SEPARATORS:
        raise JobError(_no_header(path, f"{len(cells)} of {len(names)} names in it are numbers or have no letter"))
    return names


def _no_header(path: Path, why: str) -> str:
    """Returns the error text about a first line that looks like a row."""
    remedy = "write a header above it (names with letters), or remove it if it is a title; or write the job file by hand"
    return f"init: {path.name}: the first line looks like a row, not like a header: {why}; {remedy}"


def _table(path: Path, dialect: Dialect) -> Table:
    """Reads a file, once its first line is known to be a header."""
    names = _header(path, dialect)
    table = load(path, dialect=dialect)
    if table.n_rows and len(table.broken) == table.n_rows and len({*table.broken.values()}) == 1:
        reason = next(iter(table.broken.values()))
        if isinstance(reason, Uneven):
            raise JobError(
                f"init: {path.name}: the number of cells in the first line is {reason.header}, and in every line below it "
                f"{reason.cells}: is it a title? Remove what stands above the header"
            )
    among = [name for name in names if isinstance(column := table.columns[name], Text) and name in column.levels]
    words = [name for name in names if not isinstance(table.columns[name], Text) and name.strip().lower() not in MISSING]
    if among and not (len(words) > 1 and len(among) == 1):  # a level "ward" of a column "ward", where words stand above numbers
        raise JobError(_no_header(path, "a name in it stands among the cells of its column, too"))
    if not table.n_rows:
        raise JobError(f"init: {path.name}: no rows, so that nothing tells what its columns hold; give files with rows")
    return table


def _missing_lines(tables: Sequence[Table], seen: Seen, part: Part) -> list[str]:
    """Returns a line of [data.dialect], to be filled in, about covariates that have a few cells with a code."""
    those = [name for name in seen.names if name not in part.ignored and has_code(tables, seen, name)]
    if not those:
        return []
    names = ", ".join(map(_text, those))
    return [
        f"# Some cells of {names} have one value as programs write for a missing one, far from all others: give",
        "# those that are one (they count as empty then, in all columns: make cells empty in the files where another column has",
        "# such values in earnest), and say what becomes of the rows: model.missing.",
        '# missing = ["-9", "999"]',
    ]


def _dialect(path: Path) -> Dialect:
    """Guesses the dialect that a text file needs; a person looks at it next."""
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


def _dialect_lines(dialect: Dialect) -> list[str]:
    """Returns the keys that differ from a plain file's."""
    keys = ("delimiter", "decimal", "encoding")
    return [f"{key} = {_text(value)}" for key in keys if (value := getattr(dialect, key)) not in (None, getattr(Dialect(), key))]


def _patterns(wanted: Wanted) -> str:
    """Returns the files, by one pattern where it matches just these."""
    folders, suffixes = {path.parent.resolve() for path in wanted.files}, {"".join(path.suffixes[-1:]) for path in wanted.files}
    if len(folders) == len(suffixes) == 1 and len(wanted.files) > 1:
        folder, suffix = folders.pop(), suffixes.pop()
        if {*folder.glob(f"*{suffix}")} == {path.resolve() for path in wanted.files}:
            return f"[{_text(f'{glob.escape(_relative(folder, wanted.folder))}/*{suffix}')}]"
    return f"[{', '.join(_text(glob.escape(_relative(path, wanted.folder))) for path in wanted.files)}]"


def _path(wanted: Wanted, path: Path | None) -> str:
    """Returns a path relative to the job file."""
    assert path is not None
    return _text(_relative(path, wanted.folder))


def _relative(path: Path, folder: Path) -> str:
    """Returns a path relative to a folder."""
    return os.path.relpath(path.resolve(), folder.resolve())


def _texts(names: Sequence[str]) -> str:
    """Lists names in TOML's quotes."""
    return ", ".join(map(_text, names))


def _note(text: str) -> str:
    """Returns a comment at the end of a line."""
    return f"   # {text}"


def _text(text: str) -> str:
    """Quotes a text for TOML: as JSON does, but for characters beyond 16 bits and DEL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JobError(f"init: {text!r} cannot be written into a TOML file, which is UTF-8; rename it") from None
    return toml_text(text)
