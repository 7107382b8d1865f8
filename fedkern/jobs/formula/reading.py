"""Reads a formula's text: which keys of a job it sets, and its terms.

The left side, effects of groups, `offset(..)` and `strata(..)` are read here. Terms are read by formulaic's parser, which
evaluates nothing, and expanded as R's `terms.formula` does; their factors are read by `models.formula`. Before any of these see
the text, its length, its letters and its number of terms are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from keyword import iskeyword
from typing import Any

from ...data.formula import of_both, since
from ...errors import JobError
from ...models.formula import factors
from ...models.formula.expansion import Formula
from ...models.mixed.grouping import Grouping, groupings

LONGEST, DEEPEST = 4000, 20  # letters of a formula; brackets in each other
MOST_TERMS, MOST_DEGREE = 500, 6  # of a formula; factors of a term
EXTRA = 'model.formula needs formulaic, which is not installed here: pip install "fedkern[formula]"'
NEVER = re.compile(r"[{}%@;$!&?\\\x00-\x08\x0b\x0c\x0e-\x1f]")
IN_NAMES = re.compile(r"[{}\\\x00-\x08\x0b\x0c\x0e-\x1f]")
NAME = r"[^\W\d][\w.]*|`[^`]+`"
COLUMN = re.compile(rf"\s*({NAME})\s*")
EVERY = (
    "a point for all other columns is not there: name the columns (or leave model.formula out, and give [data] response, "
    "which takes all other columns that are not in data.ignore)"
)
ARGUMENTS = "arguments are as in cs(bmi, df=4) and bs(age, knots=[40, 60], lower_bound=20, upper_bound=90)"
WORD = "fedkern_word_"  # before a name that is a word of Python's grammar
TYPE = re.compile(r"""\s*type\s*=\s*(['"])(\w+)\1\s*""")
SURV = {  # types of R's Surv: its arguments, and the keys of [data] that they set
    "right": (("time", "event"), ("time", "event")),
    "counting": (("time", "time2", "event"), ("entry", "time", "event")),
    "interval2": (("time", "time2"), ("time", "time_upper")),
}
CALL = re.compile(r"\s*(offset|strata)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Said:
    """Holds the content of a formula."""

    formula: Formula  # its terms
    # data, random: keys of [data] and [model.random], with their values
    data: dict[str, str] = field(default_factory=dict)
    random: dict[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of its groups."""
        return tuple(grouping.column for grouping in groupings(self.random))


@lru_cache(maxsize=64)
def read(text: str) -> Said:
    """Reads a formula. Raises JobError: the text is no formula, or formulaic is not installed."""
    # Length, letters and brackets are bounded before any parser sees the text.
    _check(text)
    if re.search(r"`\s*[01]\s*`", text):
        raise _no(text, "a column whose name is 0 or 1 would be the intercept: give it another name in the files")
    text = _powers(text)
    sides = [*_split(text, "~")]
    if len(sides) != 2 or not all(side.strip() for _, side in sides):
        raise _no(text, "wanted RESPONSE ~ TERMS, such as died ~ age + sex")
    (_, left), (_, right) = sides
    right = factors.translated(right, "".join(_outside(right)))
    if (call_of_r := factors.pointed_call("".join(_outside(right)))) is not None:
        raise _no(right, f"there is no function {call_of_r[0]!r} here: {call_of_r[1]}")
    data, random, terms = _left(left), list[Grouping](), list[tuple[str, str]]()
    # Bars and calls such as offset(..) set keys of the job; all other parts are terms.
    for sign, part in _split(right, "+-"):
        call, bar = CALL.fullmatch(part), _bar(part)
        if bar is None and not (call and _balanced(call.group(2))):
            terms.append((sign, part))
            continue
        if sign == "-":
            raise _no(part, "cannot be taken away; leave it out")
        if bar is not None:
            for grouping in _random(part, *bar):
                if grouping.column in [other.column for other in random]:
                    raise _no(part, f"is a second effect of {grouping.column!r}; write all terms of one in it")
                random.append(grouping)
            continue
        assert call is not None
        name, column = call.groups()
        if name in data:
            raise _no(part, f"is a second {name}; a job has one")
        data[name] = _expression(column) if name == "offset" else _column(column, _WHY[name])
    return Said(
        _terms("".join(f" {sign} {part.strip()}" for sign, part in terms).strip().removeprefix("+ ") or "1"),
        data,
        _keys_of(random),
    )


_WHY = {
    "offset": "an offset is a column, or is calculated from one: offset(log(time))",
    "strata": "strata is of one column, whose labels have baseline hazards of their own; of several make one that joins them",
}


_GROUP = (
    "a group is a column, the labels of several together, or columns whose groups lie in each other: (1 | ward), (1 | ward:bed), "
    "(1 | ward/bed)"
)


def _no(text: str, why: str) -> JobError:
    return factors.refused(text.strip(), why)


def _check(text: str) -> None:
    """Refuses texts that no parser should see."""
    if len(text) > LONGEST:
        raise _no(text, f"has {len(text):,} letters; a formula has at most {LONGEST:,}")
    if match := NEVER.search("".join(_outside(text))) or IN_NAMES.search(text):
        way = "; write a:b in the place of a %in% b" if "%in%" in text else ""
        raise _no(text, f"{match.group()!r} is no part of a formula{way}")
    depth = deepest = 0
    for letter in _outside(text):
        depth += (letter in "([") - (letter in ")]")
        deepest = max(deepest, depth)
        if depth < 0:
            break
    if depth:
        raise _no(text, "a bracket is not closed, or closes nothing")
    if deepest > DEEPEST:
        raise _no(text, "is nested too deeply")


def _outside(text: str) -> Iterator[str]:
    """Yields the text's letters, with blanks in the place of all that is quoted."""
    quote = ""
    for letter in text:
        yield " " if quote or letter in "'\"`" else letter
        quote = "" if letter == quote else quote or (letter if letter in "'\"`" else "")
    if quote:
        raise _no(text, f"a quotation mark ({quote}) is not closed")


def _powers(text: str) -> str:
    """Returns the text with R's sign of powers as Python's, which binds as tightly."""
    return "".join("**" if outside == "^" else letter for letter, outside in zip(text, _outside(text)))


def _split(text: str, signs: str) -> Iterator[tuple[str, str]]:
    """Yields the parts between signs outside brackets, each with the sign before it ("+" for the first)."""
    depth, begin, sign = 0, 0, "+"
    for k, letter in enumerate(_outside(text)):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in signs:
            if text[begin:k].strip() or letter == "~":
                yield sign, text[begin:k]
            elif begin:
                continue  # a second sign, which belongs to the part behind it
            sign, begin = letter, k + 1
    yield sign, text[begin:]


def _balanced(text: str) -> bool:
    """Tells whether every bracket that closes was opened here."""
    depth = 0
    for letter in _outside(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


def _bar(part: str) -> tuple[str, str, bool] | None:
    """Returns the texts before and after the bar of an effect of groups, and whether it is one; None for another term."""
    if "|" not in "".join(_outside(part)):
        return None
    inner = part.strip()
    if not (inner.startswith("(") and inner.endswith(")") and _balanced(inner[1:-1])):
        raise _no(part, "a bar is for effects of groups, in brackets: (1 | ward), (1 + time | ward)")
    before, _, after = inner[1:-1].partition("|")
    correlated = not after.startswith("|")
    after = after.removeprefix("|")
    if "|" in after:
        raise _no(part, "has several bars: (1 + time | ward), or (1 + time || ward) of effects that are not correlated")
    return before, after, correlated


def _random(part: str, before: str, after: str, correlated: bool) -> list[Grouping]:
    """Returns the groups of one bar, of a/b those of a and those of b in each."""
    tiers = [[_column(word, _GROUP) for _, word in _split(tier, ":")] for _, tier in _split(after, "/")]
    columns = [tuple(name for tier in tiers[: k + 1] for name in tier) for k in range(len(tiers))]
    if ("client",) in columns:
        raise _no(
            part,
            "is it the effect of each client ([model.random] client = true), or a column of this name (group = "
            '"client")? Give the key in the place of this term',
        )
    slopes: list[str] = []
    for sign, term in _split(before, "+-"):
        word = term.strip()
        if sign == "-" or word == "0":
            raise _no(
                part,
                "slopes without an intercept of each group are not there: (1 + time | ward); (1 | ward) + (0 + time | ward) is "
                "(1 + time || ward)",
            )
        if word != "1":
            slopes.append(word.strip("`") if COLUMN.fullmatch(word) else _number(word))
    return [Grouping(by, tuple(slopes), correlated or not slopes) for by in columns]


def _keys_of(random: Sequence[Grouping]) -> dict[str, Any]:
    """Returns the keys of [model.random]."""
    if len(random) == 1 and random[0].correlated:
        return {"group": random[0].column, "slopes": [*random[0].slopes]}
    entries = [{"by": [*grouping.by], "slopes": [*grouping.slopes], "correlated": grouping.correlated} for grouping in random]
    return {"groups": entries} if entries else {}


def _number(text: str) -> str:
    """Returns the name of a column of numbers that is calculated from one, as terms of the formula have it."""
    terms = _terms(text).terms
    if len(terms) != 1 or len(terms[0]) != 1 or factors.read(terms[0][0]).call:
        raise _no(text, "a slope of groups is that of a numeric column: (1 + time | ward), (1 + log(time) | ward)")
    return terms[0][0]


def _column(text: str, why: str) -> str:
    match = COLUMN.fullmatch(text)
    if match is None:
        raise _no(text, why)
    return match.group(1).strip("`")


def _expression(text: str) -> str:
    """Returns an offset's column, or the text of an expression of one column."""
    if COLUMN.fullmatch(text):
        return _column(text, _WHY["offset"])
    factor = factors.read(text.strip())
    if factor.call or len(factor.variables) != 1 or factor.arguments:
        raise _no(text, _WHY["offset"])
    return factor.node.text


_LEFT = (
    "on the left stands a column, Surv(time, event), cbind(successes, failures) or cbind(successes, trials - successes): what is "
    "calculated from a column is another one, which all files have (a label that counts as 1 is "
    'positive = ".." in [data], and needs no call)'
)
_SURV = (
    "Surv is of columns: Surv(time, event), Surv(end - start, event); a time in another unit is a column of its own in all files "
    '(which of two labels is the event says positive = ".." in [data], and which are causes of one events = [".."])'
)
_SURVS = (
    "wanted Surv(time, event), Surv(entry, time, event) with late entry, or Surv(lower, upper, type = 'interval2') of events in "
    "intervals: lower is empty where the event was before upper, upper where there was none, and both are one where it was seen"
)


def _left(text: str) -> dict[str, str]:
    """Returns the keys of [data] that the left side sets."""
    call = re.fullmatch(r"\s*(Surv|cbind)\s*\((.*)\)\s*", text, re.DOTALL)
    if call is None:
        return {"response": _column(text, _LEFT)}
    name, inner = call.groups()
    parts = inner.split(",")
    if name == "Surv":
        return _of_surv(text, parts)
    match = re.fullmatch(rf"\s*({NAME})\s*,\s*({NAME})\s*(?:-\s*({NAME})\s*)?", inner)
    if match is None or match.group(3) not in (None, match.group(1)) or match.group(1) == match.group(2):
        raise _no(
            text,
            "wanted cbind(successes, failures) or cbind(successes, trials - successes), of two columns; make a column of what is "
            "calculated otherwise",
        )
    response, other = match.group(1).strip("`"), match.group(2).strip("`")
    return {"response": response, "trials": other if match.group(3) else of_both(response, other)}


def _of_surv(text: str, parts: Sequence[str]) -> dict[str, str]:
    """Returns the keys of [data] that the arguments of Surv set, by their names in R where they have them."""
    types = [match.group(2) for part in parts if (match := TYPE.fullmatch(part))]
    parts = [part for part in parts if not TYPE.fullmatch(part)]
    kinds = [kind for kind, (arguments, _) in SURV.items() if len(arguments) == len(parts) and types in ([], [kind])]
    if not kinds:
        raise _no(text, _SURVS)
    arguments, keys = SURV[kinds[0]]
    given, left = dict[str, str](), list[str]()
    for part in parts:
        name, named, column = part.partition("=")
        if named and name.strip() in arguments and name.strip() not in given:
            given[name.strip()] = column
        else:
            left.append(part)
    others = [name for name in arguments if name not in given]
    given |= dict(zip(others, left))
    columns = {key: _time(given[name]) for key, name in zip(keys, arguments) if key != "event"}
    if "event" in keys:
        columns["event"] = _column(given["event"], _SURV)
    return columns


def _time(text: str) -> str:
    """Returns a column of Surv, or the difference of two."""
    match = re.fullmatch(rf"\s*({NAME})\s*-\s*({NAME})\s*", text)
    return _column(text, _SURV) if match is None else since(*(part.strip("`") for part in match.groups()))


def _terms(text: str) -> Formula:
    """Parses the rest of a formula, its terms, by formulaic."""
    try:
        import formulaic
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise JobError(EXTRA) from None
    if re.search(r"(?<![\w.`])\.(?![\w.])", "".join(_outside(text))):
        raise _no(text, EVERY)
    # Its parser calls Python's on what stands in a call.
    text = factors.WORDS.sub(_mark_word, text)
    none = DefaultFormulaParser.FeatureFlags.NONE
    parser = DefaultFormulaParser(feature_flags=none)
    try:
        tokens = [*DefaultFormulaParser(include_intercept=False, feature_flags=none).get_tokens(text)]
        tree = parser.get_ast(text)
        many = _count(tree)
    except Exception as fault:  # whatever a parser of texts says of one that is none
        why = ARGUMENTS if isinstance(fault, SyntaxError) else _first(fault)
        raise _no(text.replace(WORD, ""), f"cannot be read ({why})") from None
    if many > MOST_TERMS:
        raise _no(text, f"makes more than {MOST_TERMS} terms; leave some out")
    if any(len(str(token)) > 1 and not str(token).strip("+-") and str(after) != "1" for token, after in pairwise(tokens)):
        raise _no(text, "has two signs one after another; write one of them")
    terms, intercept = _Expansion(text).of(tree)
    for term in terms:
        if len(term) > MOST_DEGREE:
            raise _no(":".join(term), f"is of {len(term)} factors; at most {MOST_DEGREE} are taken")
    return Formula(tuple(sorted(terms, key=len)), intercept, str(formulaic.__version__))


def _mark_word(match: re.Match[str]) -> str:
    name = match[2] or match[3]
    return f"{WORD}{name}" if name and iskeyword(name) else match[0]


class _Expansion:
    """Expands a tree of formulaic into terms as R's `terms.formula` does.

    A 1 or 0 anywhere, inside of brackets too, puts the intercept in or takes it out for the whole formula; the last one counts. A
    minus sign takes terms out of those to its left alone.
    """

    def __init__(self, text: str) -> None:
        self.text, self.intercept, self.taken = text, True, False

    def of(self, tree: Any) -> tuple[list[tuple[str, ...]], bool]:  # a node of a library without types
        """Returns the terms, each with its factors in their order, and whether there is an intercept."""
        terms = self._terms(tree)
        return terms, self.intercept

    def _terms(self, tree: Any) -> list[tuple[str, ...]]:
        if getattr(tree, "args", None) is None:
            return self._factor(tree)
        symbol, (first, *more) = str(tree.operator.symbol), tree.args
        if symbol == ":" and any(str(argument) in ("0", "1") for argument in tree.args):
            raise _no(self.text, "1 and 0 stand for the intercept, which is in no product of columns")
        left = [] if symbol == "-" and not more else self._terms(first)
        if symbol == "-":
            self.taken = not self.taken
            right = self._terms(more[0] if more else first)
            self.taken = not self.taken
            out = {frozenset(term) for term in right}
            return [term for term in left if frozenset(term) not in out]
        if symbol in ("**", "^"):
            once = left
            for _ in range(int(str(more[0])) - 1):
                left = _products(left, once)
            return left
        right = self._terms(more[0]) if more else []
        if symbol == ":":
            return _products(left, right)
        if symbol == "/":
            whole = [tuple(text for term in left for text in term)] if left else []
            return _once([*left, *_products(whole, right)])
        return _once([*left, *right, *(_products(left, right) if symbol == "*" else ())])

    def _factor(self, token: Any) -> list[tuple[str, ...]]:
        text = str(token).replace(WORD, "")
        if token.kind is not token.Kind.VALUE:
            return [(factors.read(text, plain=token.kind is token.Kind.NAME).text,)]
        if text not in ("0", "1"):
            raise _no(self.text, f"{text}: a number does not stand for a column; I(2 * age) is one")
        self.intercept = (text == "1") is not self.taken
        return []


def _products(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return _once([tuple(dict.fromkeys((*a, *b))) for a in left for b in right])


def _once(terms: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns the terms without those that were there before, in whatever order of factors."""
    kept: dict[frozenset[str], tuple[str, ...]] = {}
    for term in terms:
        kept.setdefault(frozenset(term), term)
    return [*kept.values()]


def _first(fault: Exception) -> str:
    """Returns the beginning of a library's message."""
    words = re.split(r"[^ -~]", " ".join(str(fault).split()))[0].strip()  # what follows marks a place, in colours
    return factors.shortened(words or type(fault).__name__, 120)


def _count(tree: Any) -> int:  # a node of a library without types
    """Returns how many terms a tree of formulaic makes at most; counts no further than needed to refuse too many."""
    args, most = getattr(tree, "args", None), MOST_TERMS + 1
    if args is None:
        return 1
    symbol, below = str(tree.operator.symbol), [_count(node) for node in args]
    if len(below) == 1:
        return below[0]
    if symbol in ("**", "^"):
        power = str(tree.args[1])
        if not power.isdigit() or not 1 <= int(power[:4]) <= MOST_DEGREE:
            raise JobError(f"a power of terms is a whole number from 1 to {MOST_DEGREE}; of a column take I(age**2)")
        return int(min(most, below[0] ** int(power)))
    a, b = below
    return min(most, a + b + a * b if symbol == "*" else a * b if symbol == ":" else a + b)
