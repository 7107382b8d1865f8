"""Defines what is said of a job, its data and its result: findings, whose words stand once, in `findings.toml`.

A place in `{}` of an entry's text is a value, and what is written behind its name says how it is shown:

| place | value |
| --- | --- |
| `{client}` | a name |
| `{columns:names}` | names: the first six, and how many others there are; `all` of them; `quoted`; `or`, `and`: quoted |
| `{errors:pairs .2f}` | names, each with a number, and what stands before that; `quotedpairs` |
| `{clients:counted rows}` | names, each with a count of something |
| `{owner:key}` | a name, in quotes where TOML asks for them |
| `{share:.2f}` | a number with its digits |
| `{label:cell}` | a text of a file: in quotes, cut, and without what cannot be seen |
| `{remedies}`, `{remedies:, }` | texts of `[remedies]` by their ids, and what stands between them |
| `{facts}` | texts of `[remedies]` by their ids, with nothing between them |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Literal, NoReturn

from .errors import OwnFault
from .printing import listed, printable, toml_key

Value = str | int | float | None | Sequence[str] | Sequence[tuple[str, float]]
NAMES = 6  # of a list are shown
CELL = 40  # characters of a file's text
LOOK = "`fedkern check --local` shows the holder why"


@dataclass(frozen=True)
class Entry:
    """Describes one finding in the catalogue."""

    public: str  # the text that all parties may read
    page: str  # of the documents, with its anchor
    example: str  # a test that triggers it
    # whether a reader has to know it, no result can stand, a job is refused, something failed, or a result was judged by it
    severity: Literal["note", "doubt", "refusal", "fault", "check"] = "note"
    holder: str = ""  # the text that only the holder of rows reads, with values of its own
    remedies: tuple[str, ...] = ()  # the ids of those that may be named, and of facts
    # whether it tells what was done, or what a reader does not have, and so comes after those on data and model
    routine: bool = False


class Finding(str):
    """Is the text of a finding, which knows its id and the values that stand in it; those of rows are `Own`.

    Attributes
    ----------
    id : its entry's name in the catalogue
    values : name -> what stands in the text; all parties may read them

    Examples
    --------
    >>> from fedkern.finding import Finding
    >>> finding = Finding.of("sums-alone")
    >>> finding.id
    'sums-alone'
    >>> finding == "the server kept the sums of all sites alone: there is no average over sites"
    True
    """

    __slots__ = ("id", "values")
    id: str
    values: Mapping[str, Value]

    def __new__(cls, text: str, id: str, values: Mapping[str, Value]) -> Finding:
        finding = super().__new__(cls, text)
        finding.id, finding.values = id, values
        return finding

    @classmethod
    def of(cls, id: str, **values: Value) -> Finding:
        """Returns a finding of the catalogue."""
        return cls(fill(catalogue()[id].public, values), id, values)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Finding:
        """Returns a finding of `summary.json`; one of another version that is not known here has its id for a text."""
        id, values = str(content["id"]), dict(content["values"])
        try:
            return cls.of(id, **values)
        except (KeyError, TypeError, ValueError):
            return cls(id, id, values)

    def __reduce__(self) -> tuple[type[Finding], tuple[str, str, Mapping[str, Value]]]:
        return Finding, (str(self), self.id, self.values)

    @property
    def routine(self) -> bool:
        """Whether it comes after findings on data and model."""
        entry = catalogue().get(self.id)
        return entry is not None and entry.routine

    @property
    def severity(self) -> str:
        """What it means for a result (`Entry.severity`); "" of one of another version."""
        entry = catalogue().get(self.id)
        return "" if entry is None else entry.severity

    @property
    def doubt(self) -> bool:
        """Whether no result can stand with it."""
        return self.severity == "doubt"

    @property
    def content(self) -> dict[str, Any]:
        """Its entry of `summary.json`."""
        return {"id": self.id, "values": dict(self.values)}


class Own:
    """Holds values of a holder's rows. They have no text but that of a `Refusal`, where the holder reads it.

    Examples
    --------
    >>> from fedkern.finding import Own
    >>> Own(rows=3)
    <values of a holder's rows>
    """

    __slots__ = ("_values",)

    def __init__(self, **values: Value) -> None:
        self._values = values

    def __repr__(self) -> str:
        return "<values of a holder's rows>"

    def __str__(self) -> NoReturn:
        raise TypeError("values of a holder's rows have no text for others")

    def __reduce__(self) -> NoReturn:
        raise TypeError("values of a holder's rows stay where they are")

    def fill(self, text: str, values: Mapping[str, Value]) -> str:
        """Returns the holder's text of a finding with its public `values`."""
        return fill(text, {**values, **self._values})


class Refusal(OwnFault):
    """Refuses a party's rows: all read the finding, and the party itself its text for the holder.

    Parameters
    ----------
    finding : all may read
    values : of the party's rows, which its own text has beside those of the finding

    Examples
    --------
    >>> from fedkern.finding import Finding, Own, Refusal
    >>> error = Refusal(Finding.of("few-usable-rows", client="north", least=2), Own(rows=1))
    >>> error.finding.id, "needs, 2: 1;" in error.own
    ('few-usable-rows', True)
    """

    def __init__(self, finding: Finding, values: Own) -> None:
        super().__init__(finding, "")
        self.finding, self.values = finding, values

    @property
    def brief(self) -> str:
        """The text for the holder."""
        return self.values.fill(catalogue()[self.finding.id].holder, self.finding.values)


class RuleRefusal(Refusal):
    """Refuses a party's rows by a rule of disclosure control. Others read no more than that it does.

    Parameters
    ----------
    id : of the entry, whose text for the holder has all values
    client, rule : its name, and the key whose number the rule is; others may read these

    Examples
    --------
    >>> from fedkern.finding import RuleRefusal
    >>> values = {"where": "b.csv", "rows": 7, "wanted": 10, "facts": [], "remedies": ["private-jobs"]}
    >>> error = RuleRefusal("few-rows", "b", "disclosure.rows", **values)
    >>> str(error), "7 rows that count; 10 are asked for" in error.own
    ("client 'b': refused by a disclosure rule; `fedkern check --local` shows the holder why", True)
    """

    def __init__(self, id: str, client: str, rule: str, **values: Value) -> None:
        super().__init__(Finding.of(id, client=client, rule=rule), Own(**values))
        self.args, self.look = (Finding.of("refused-by-a-rule", client=client),), LOOK


def fill(text: str, values: Mapping[str, Value]) -> str:
    """Returns a text of the catalogue with its values.

    Examples
    --------
    >>> from fedkern.finding import fill
    >>> fill("{columns:names} of {client}", {"client": "north", "columns": list("abcdefgh")})
    'a, b, c, d, e, f and 2 more of north'
    """
    return _WORDS.vformat(text, (), values)


def catalogue() -> Mapping[str, Entry]:
    """Returns id -> what stands in the catalogue."""
    return _read()[0]


def remedies() -> Mapping[str, str]:
    """Returns id -> the text of a remedy."""
    return _read()[1]


@cache
def _read() -> tuple[Mapping[str, Entry], Mapping[str, str]]:
    """Reads the catalogue: in a checkout as it was written, else as JSON, which the wheel has of it."""
    written, made = (Path(__file__).with_name(f"findings.{kind}") for kind in ("toml", "json"))
    if made.is_file():
        content = json.loads(made.read_text(encoding="utf-8"))
    else:
        import tomllib

        content = tomllib.loads(written.read_text(encoding="utf-8"))
    ways = content.pop("remedies")
    return {id: _entry(**entry) for id, entry in content.items()}, ways


def _entry(rule: str = "", **entry: Any) -> Entry:
    """Returns an entry; of a `rule` that refuses rows, all but what its holder reads of it is as of all others."""
    if not rule:
        return Entry(**entry)
    holder = f"client {{client!r}}, {{where}}: {rule}: {{remedies:; }}"
    return Entry("client {client!r}: refused by {rule}", severity="refusal", holder=holder, **entry)


class _Words(Formatter):
    """Shows values as the places of a text say."""

    def format_field(self, value: Any, format_spec: str) -> str:
        kind, _, rest = format_spec.partition(" ")
        if kind in _LISTS:
            return _LISTS[kind](value, rest)
        if isinstance(value, str):  # also a number of JSON that is not finite
            return value
        return format(value, format_spec)

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if key == "remedies":
            return _Remedies(fill(remedies()[id], kwargs) for id in kwargs[key])
        if key == "facts":
            return "".join(fill(remedies()[id], kwargs) for id in kwargs[key])
        return kwargs[str(key)]


class _Remedies(tuple[str, ...]):
    """Texts of remedies, shown with what stands between them."""

    def __format__(self, between: str) -> str:
        return (between or "; ").join(self)


def _numbered(pairs: Sequence[tuple[str, float]], how: str) -> str:
    """Returns names with their numbers; `how`: what stands before a number, and its digits."""
    before, _, digits = how.rpartition(" ")
    return listed([f"{name} ({before}{' ' if before else ''}{number:{digits}})" for name, number in pairs], NAMES)


def _cell(value: object, _: str) -> str:
    """Returns a text of a file in quotes, cut, and without what cannot be seen."""
    text = printable(str(value))
    return repr(text if len(text) <= CELL else text[: CELL - 3] + "...")


_LISTS: Mapping[str, Callable[[Any, str], str]] = {
    "key": lambda name, _: toml_key(name),
    "names": lambda names, _: listed(names, NAMES),
    "all": lambda names, _: ", ".join(names),
    "listed": lambda names, _: "; ".join(names),
    "either": lambda names, _: " or ".join(names),
    "quoted": lambda names, _: ", ".join(map(repr, names)),
    "or": lambda names, _: " or ".join(map(repr, names)),
    "and": lambda names, _: " and ".join(map(repr, names)),
    "pairs": _numbered,
    "quotedpairs": lambda pairs, how: _numbered([(repr(name), number) for name, number in pairs], how),
    "counted": lambda pairs, what: ", ".join(f"{name!r} ({count:,} {what})" for name, count in pairs),
    "cell": _cell,
}
_WORDS = _Words()
