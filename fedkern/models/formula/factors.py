"""Reads one factor of a formula's term: `age`, `log(bmi)`, `C(ward, contr.sum)`, `cs(bmi, df=4)`.

Its text is read by `ast` into a `Node`: names of columns, numbers, arithmetic, and calls of the functions here. Whatever else
Python knows (attributes, subscripts, lambda, comprehensions, other names that are called) is refused.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ...arrays import Array
from ...errors import JobError

Constants = Callable[[str], tuple[float, float]]  # a column, or an expression -> its agreed centre and scale
Ends = tuple[float, float]

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "I": lambda x: x,
}
CENTRED = ("center", "scale")
NATURAL = ("cs", "cr", "ns")  # the natural cubic spline, as formulaic, mgcv and R's splines call it
SEVERAL = ("bs", *NATURAL, "poly")  # of which a factor is several columns
KNOWN = (*FUNCTIONS, *CENTRED, *SEVERAL, "C")
OPTIONS = {
    "C": ("contrasts", "base"),
    "bs": ("df", "knots", "degree", "include_intercept", "lower_bound", "upper_bound", "extrapolation"),
    "poly": ("degree", "raw"),
} | dict.fromkeys(NATURAL, ("df", "knots", "lower_bound", "upper_bound", "constraints", "extrapolation"))
TRUTHS = {"TRUE": True, "FALSE": False}  # of R, whose T and F are names that a column may have
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
MOST_NODES, DEEPEST, LONGEST = 100, 20, 500  # of one factor; its letters
HIDDEN = re.compile(r"(^|\W)__")  # names that Python has for itself
MOST_POWER, MOST_NUMBER = 10.0, 1e100
MOST_KNOTS, MOST_DEGREE = 30, 6

Option = float | bool | str | tuple[float, ...]


@dataclass(frozen=True)
class Node:
    """Describes a part of an expression."""

    what: str  # "name" of a column, "number", an operator ("neg": minus one thing), or a function
    text: str  # as it is written; of a name the column's
    of: tuple[Node, ...] = ()
    number: float = 0.0

    def walk(self) -> Iterator[Node]:
        """Yields the node, and all below it."""
        yield self
        for part in self.of:
            yield from part.walk()

    @property
    def powers(self) -> Counter[str]:
        """The expressions whose product it is, with their powers: of `I(x ** 2 * z)` x twice and z once."""
        if self.what == "I":
            return self.of[0].powers
        if self.what == "*" and not any(factor.what == "number" for factor in self.of):
            return self.of[0].powers + self.of[1].powers
        if self.what == "**" and self.of[1].number in range(2, int(MOST_POWER) + 1):
            return Counter({text: int(self.of[1].number) * k for text, k in self.of[0].powers.items()})
        return Counter({self.text: 1})


@dataclass(frozen=True)
class Factor:
    """Describes a factor that was read."""

    # text, label: as it stands in a term, and how names of columns begin
    text: str
    label: str
    call: str  # "C", or a function that makes several columns; "" for an expression
    node: Node  # the expression, or the argument of the call
    options: tuple[tuple[str, Option], ...] = ()  # of the call

    @property
    def plain(self) -> bool:
        """Whether it is a column without any function, which may hold numbers or labels."""
        return not self.call and self.node.what == "name"

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of the file that it reads."""
        return tuple(dict.fromkeys(node.text for node in self.node.walk() if node.what == "name"))

    @property
    def option(self) -> dict[str, Option]:
        """The options by their names."""
        return dict(self.options)

    def number(self, name: str, default: float) -> float:
        """Returns an option that is a number, as was checked."""
        return real(self.option, name, default)

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The expressions that must have an agreed centre and scale, such as `log(bmi)` for `center(log(bmi))`."""
        nodes = [node.of[0] for node in self.node.walk() if node.what in CENTRED]
        option = self.option
        given = {"lower_bound", "upper_bound"} <= option.keys()
        if (self.call == "poly" and not option.get("raw")) or (self.call in ("bs", *NATURAL) and not given):
            nodes.append(self.node)
        return tuple(dict.fromkeys(nodes))


def real(options: Mapping[str, Option], name: str, default: float) -> float:
    """Returns an option that is a number, or the default."""
    value = options.get(name, default)
    assert isinstance(value, float)
    return value


def refused(text: str, why: str) -> JobError:
    """Returns the error of a part of a formula that cannot be one."""
    return JobError(f"model.formula: {shortened(text)}: {why}")


def shortened(text: str, most: int = 60) -> str:
    """Returns the text in quotes; only the beginning of a long one."""
    return repr(text if len(text) <= most else text[: most - 2] + "..")


# A text in quotes; a name in backquotes; a name that is a word of Python's grammar: columns are called lambda, or class.
_OPERATORS = {"and", "or", "not", "in", "is", "if", "else", "True", "False", "None"}
WORDS = re.compile(rf"""("[^"]*"|'[^']*')|`([^`]*)`|\b({"|".join(sorted({*keyword.kwlist} - _OPERATORS))})\b""")


@lru_cache(maxsize=4096)
def read(text: str, plain: bool = False) -> Factor:
    """Returns the factor of a text. `text`: as a formula has it, or with `plain` a column's name. Raises JobError: the text is no
    factor, or has something that no formula may have."""
    if plain:
        if HIDDEN.search(text) or "`" in text:
            raise refused(text, "is no column")
        return Factor(quoted(text), text, "", Node("name", text))
    if len(text) > LONGEST:
        raise refused(text, f"has {len(text)} letters; one factor has at most {LONGEST}")
    names: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        stand_in = f"fedkern_quoted_{len(names)}"
        names[stand_in] = match[2] or match[3]
        return stand_in

    source = WORDS.sub(lambda match: match[1] or named(match), text)
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refused(text, "cannot be read; see whether a bracket or a quotation mark is missing") from None
    if sum(1 for _ in ast.walk(tree)) > 3 * MOST_NODES or _depth(tree) > 2 * DEEPEST:
        raise refused(text, "is nested too deeply; make a column of it in all files")
    return _Reader(text, names).factor(tree)


def quoted(name: str) -> str:
    """Returns a column's name as formulas have it."""
    return name if name.isidentifier() else f"`{name}`"


def _depth(tree: ast.AST) -> int:
    deepest, level = 0, [tree]
    while level:
        deepest, level = deepest + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return deepest


@dataclass(frozen=True)
class _Reader:
    """Reads one factor; `names`: the columns for which names in backquotes stand."""

    text: str
    names: dict[str, str]

    def factor(self, tree: ast.expr) -> Factor:
        function = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""
        if not isinstance(tree, ast.Call) or function not in OPTIONS:
            node = self.node(tree)
            if node.what == "number" or not any(part.what == "name" for part in node.walk()):
                raise refused(self.text, "has no column in it")
            return Factor(self.text, node.text if node.what == "name" else self.text, "", node)
        return Factor(self.text, self.text, function, *self._call(function, tree))

    def _call(self, function: str, tree: ast.Call) -> tuple[Node, tuple[tuple[str, Option], ...]]:
        names = OPTIONS[function]
        given: dict[str, ast.expr] = {}
        args = list(tree.args)
        if not args or len(args) > 1 + len(names):
            raise self._no(f"{function} is of a column: {function}(NAME, ..)")
        for name, value in [*zip(names, args[1:]), *((keyed.arg or "**", keyed.value) for keyed in tree.keywords)]:
            if name == "reference":
                name = "base"
            if function == "C" and name in ("levels", "labels", "ref"):
                raise self._no(TEXTS.format(self._written(args[0])))
            if name not in names or name in given:
                raise self._no(f"{function} has no option {name!r} here (or twice); there are {', '.join(names)}")
            given[name] = value
        node = self.node(args[0])
        if function == "C":
            if node.what != "name":
                raise self._no("C is of a column of labels: C(NAME)")
            return node, self._contrasts(given)
        if not any(part.what == "name" for part in node.walk()):
            raise self._no("has no column in it")
        options = {name: self._option(name, value) for name, value in given.items()}
        check = self._poly if function == "poly" else self._spline
        return node, tuple(sorted(check(function, {name: value for name, value in options.items() if value is not None}).items()))

    def _contrasts(self, given: dict[str, ast.expr]) -> tuple[tuple[str, Option], ...]:
        out: dict[str, Option] = {"contrasts": "treatment"}
        how = given.get("contrasts")
        if isinstance(how, ast.Call):
            if len(how.args) + len(how.keywords) > 1 or any(keyed.arg not in ("base", "reference") for keyed in how.keywords):
                raise self._no('contrasts are contr.treatment, contr.treatment("LEVEL") or contr.sum')
            for value in (*how.args, *(keyed.value for keyed in how.keywords)):
                given = {**given, "base": value}
            how = how.func
        if how is not None:
            word = ast.unparse(how).removeprefix("contr.")
            words = {"treatment": "treatment", "Treatment": "treatment", "sum": "sum", "Sum": "sum"}
            if word not in words:
                raise self._no("contrasts are contr.treatment or contr.sum: others give the same fit, with other coefficients")
            out["contrasts"] = words[word]
        if (base := given.get("base")) is not None:
            if not isinstance(base, ast.Constant) or not isinstance(base.value, str) or out["contrasts"] == "sum":
                raise self._no('the level that others are compared with is a text, and of treatment contrasts: base = "LEVEL"')
            out["base"] = base.value
        return tuple(sorted(out.items()))

    def _option(self, name: str, value: ast.expr) -> Option | None:
        """Returns a number, True or False (or R's), a text, or a list of numbers ([..] or R's c(..)); None for None."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "c" and not value.keywords:
            value = ast.List(list(value.args))
        if isinstance(value, ast.List | ast.Tuple):
            if len(value.elts) > MOST_KNOTS:
                raise self._no(f"{name} has {len(value.elts)} numbers; at most {MOST_KNOTS} are taken")
            return tuple(self._number(name, element) for element in value.elts)
        if isinstance(value, ast.Name) and value.id in TRUTHS:
            return TRUTHS[value.id]
        if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool | str)):
            return value.value
        return self._number(name, value)

    def _number(self, name: str, value: ast.expr) -> float:
        sign = 1.0
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            sign, value = -1.0, value.operand
        number = value.value if isinstance(value, ast.Constant) else None
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= MOST_NUMBER:
            raise self._no(f"{name} is a number, or a list of numbers")
        return sign * float(number)

    def _whole(self, function: str, option: dict[str, Option], name: str, least: int, most: int) -> None:
        value = option.get(name, least)
        if isinstance(value, bool) or not isinstance(value, float | int) or value != int(value) or not least <= value <= most:
            raise self._no(f"{name} of {function} is a whole number from {least} to {most}")

    def _poly(self, function: str, option: dict[str, Option]) -> dict[str, Option]:
        self._whole(function, option, "degree", 1, MOST_DEGREE)
        if not isinstance(option.get("raw", False), bool):
            raise self._no("raw of poly is True or False")
        return {"degree": 1.0, "raw": False, **option}

    def _spline(self, function: str, option: dict[str, Option]) -> dict[str, Option]:
        natural = function in NATURAL
        self._whole(function, option, "degree", 1, MOST_DEGREE)
        least = 2 if natural else int(real(option, "degree", 3.0)) + bool(option.get("include_intercept"))
        self._whole(function, option, "df", least, MOST_KNOTS)
        if option.get("constraints", "center") != "center":
            raise self._no(f'{function} is centred, which is constraints = "center"')
        if not isinstance(option.get("include_intercept", False), bool):
            raise self._no("include_intercept is True or False")
        if option.get("extrapolation", "clip") not in ("raise", "clip", "extend"):
            raise self._no('extrapolation is "raise", "clip" or "extend"')
        for name in ("lower_bound", "upper_bound"):
            if isinstance(option.get(name, 0.0), bool | str | tuple):
                raise self._no(f"{name} is a number")
        knots = option.get("knots")
        if "df" in option and knots is not None:
            raise self._no("df and knots say the same; give one of them")
        if natural and "df" not in option and knots is None:
            raise self._no(f"{function} needs df = .. or knots = [..]")
        if isinstance(knots, float):
            option["knots"] = knots = (knots,)
        if knots is not None and not isinstance(knots, tuple):
            raise self._no("knots are a list of numbers")
        ends = [real(option, "lower_bound", -math.inf), *(knots or ()), real(option, "upper_bound", math.inf)]
        if any(not a < b for a, b in pairwise(ends)):
            raise self._no("knots rise, and lie between lower_bound and upper_bound")
        return option

    def node(self, tree: ast.expr) -> Node:
        """Returns the node of an expression of columns and numbers."""
        text = self._written(tree)
        if isinstance(tree, ast.Name):
            name = self.names.get(tree.id, tree.id)
            if HIDDEN.search(name) or not name:
                raise self._no(f"{name!r} is no column")
            return Node("name", name)
        if isinstance(tree, ast.Constant):
            return Node("number", text, (), self._number("what is not a column", tree))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
            of = self.node(tree.operand)
            return Node("neg", text, (of,)) if isinstance(tree.op, ast.USub) else of
        if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
            sign, both = OPERATORS[type(tree.op)], (self.node(tree.left), self.node(tree.right))
            return Node(sign, text, (both[0], self._power(both[1])) if sign == "**" else both)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            name = tree.func.id
            if name in OPTIONS:
                raise self._no(f"{name}(..) makes columns of its own, and cannot stand inside of another call")
            if name not in KNOWN:
                first = self._written(tree.args[0]) if tree.args else ""
                message = f"there is no function {name!r} here: {remedy(name, first)}"
                raise self._no(f"{message}; there are {', '.join(KNOWN)}")
            if len(tree.args) != 1 or tree.keywords:
                bases = "; of other bases there are log2(..) and log10(..)" if name == "log" else ""
                raise self._no(f"{name} is of one expression{bases}")
            return Node(name, text, (self.node(tree.args[0]),))
        if isinstance(tree, ast.Attribute):
            raise self._no("a point is no part of a name inside of a call: quote the column's name (`a.b`); of functions log")
        what = "is nothing that a formula may have: columns, numbers, + - * / **, and the functions "
        made = f" (of a comparison, or a condition, {MAKE})" if isinstance(tree, ast.Compare | ast.IfExp | ast.BoolOp) else ""
        raise self._no(what + ", ".join(KNOWN) + made)

    def _power(self, node: Node) -> Node:
        """Returns the number that a power is, which may be an expression of numbers, such as 1/3."""
        number = math.nan
        if not any(part.what == "name" for part in node.walk()):
            with np.errstate(all="ignore"):
                number = float(evaluated(node, lambda _: np.empty(0), lambda _: (0.0, 1.0)))
        if not abs(number) <= MOST_POWER:
            raise self._no(f"a power is a number of at most {MOST_POWER:g}")
        return Node("number", node.text, (), number)

    def _written(self, tree: ast.AST) -> str:
        text = ast.unparse(tree)
        for stand_in, name in self.names.items():
            text = re.sub(rf"\b{stand_in}\b", lambda _, name=name: quoted(name), text)  # type: ignore[misc]  # a default, in a loop
        return text

    def _no(self, why: str) -> JobError:
        return refused(self.text, why)


def evaluated(node: Node, values: Callable[[str], Array], constants: Constants) -> Array:
    """Returns (n,) values of an expression of columns; not finite where it has none."""
    if node.what == "name":
        return values(node.text)
    if node.what == "number":
        return np.float64(node.number)  # type: ignore[return-value]  # which broadcasts
    of = [evaluated(part, values, constants) for part in node.of]
    if node.what in FUNCTIONS:
        return FUNCTIONS[node.what](of[0])
    if node.what in CENTRED:
        center, scale = constants(node.of[0].text)
        return of[0] - center if node.what == "center" else (of[0] - center) / scale
    if node.what == "neg":
        return -of[0]
    a, b = of
    if node.what == "+":
        return a + b
    if node.what == "-":
        return a - b
    if node.what == "*":
        return a * b
    return a / b if node.what == "/" else np.asarray(np.power(a, b), np.float64)


def ends(node: Node, of_column: Callable[[str], Ends], constants: Constants) -> Ends | None:
    """Returns the bounds of an expression where its columns lie between theirs; None where it has none."""
    if node.what == "name":
        return of_column(node.text)
    if node.what == "number":
        return node.number, node.number
    below = [ends(part, of_column, constants) for part in node.of]
    if any(part is None for part in below):
        return None
    (low, high), *more = (part for part in below if part is not None)
    if node.what in ("log", "log2", "log10", "sqrt") and low <= 0:
        return None
    corners = [(low,), (high,)]
    if more:
        corners = [(a, b) for a in (low, high) for b in more[0]]  # type: ignore[misc]
        if node.what == "/" and more[0][0] <= 0 <= more[0][1]:
            return None
        power = more[0][0]
        if node.what == "**" and low <= 0 and (power < 0 or power != int(power)):
            return None
        if node.what == "**" and low < 0 < high:
            corners.append((0.0, power))  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        leaves = [tuple(Node("number", "", (), value) for value in corner) for corner in corners]
        shifted = (lambda _: constants(node.of[0].text)) if node.what in CENTRED else constants
        values = [float(evaluated(Node(node.what, node.text, leaf), lambda _: np.zeros(0), shifted)) for leaf in leaves]
    return (min(values), max(values)) if all(map(math.isfinite, values)) else None


# Reads words of R that have another name here, and gives the remedy where no other name exists --------------------
#
# Source of the list: docs/how-to/formula.md, the table from R's words to these.

MAKE = "make a column of it in all files, and name that"
LABELS = "write C({0}), whose levels are texts in the files"
NUMBERS = "write {0}: a column of numbers is taken as such, and of labels write their numbers into the files"
CURVE = "write cs({0}, df = 4), a natural cubic spline"

# A call of R -> the remedy; {0} is its first argument, or a name that stands for it.
REMEDIES: dict[str, str] = {
    "as.numeric": NUMBERS,
    "as.integer": NUMBERS,
    "as.double": NUMBERS,
    "as.character": LABELS,
    "as.logical": "write C({0})",
    "ordered": LABELS,
    "mo": LABELS,
    "relevel": 'write C({0}, contr.treatment("LEVEL")), or reference = "LEVEL" in [data.columns.{0}]',
    "log1p": "write log(1 + {0})",
    "expm1": "write I(exp({0}) - 1)",
    "interaction": "write a:b, or a * b with the effects of each",
    "s": CURVE,
    "te": CURVE,
    "ti": CURVE,
    "lo": CURVE,
    "rcs": CURVE,
    "pspline": CURVE,
    "frailty": "write (1 | {0}), which weibull, exponential and piecewise take, and in a Cox model strata({0})",
    "cluster": "robust errors are not there: leave it out, and errors are the model's; an effect of each group is (1 | {0})",
    "strata": "it stands by itself, + strata({0}): write a:{0} for coefficients that differ between strata",
    "weights": "give [data] weight = the column's name",
    "tt": "effects that change with time are not there: write strata({0}) of a column of labels",
}
TEXTS = (
    'the levels of labels, and which one others are compared with, are levels = [..] and reference = ".." in [data.columns.{0}]'
)

_PACKAGES = re.compile(r"\b(?:base|stats|splines|survival|lme4)::(?=[A-Za-z])")
_FACTOR = re.compile(r"(?<![\w.])(?:as\.)?factor\s*(?=\()")
_POINTED = re.compile(r"(?<![\w.`])((?:as|is)\.\w+)\s*\(\s*([\w.]*)")


def translated(text: str, outside: str) -> str:
    """Returns a formula with `factor(x)` and `as.factor(x)` as `C(x)`, and without names of R's packages.

    Parameters
    ----------
    text : the formula
    outside : the same, with blanks where something is quoted

    Returns
    -------
    str
        The formula; quoted texts are unchanged.
    """
    edits = [(match.span(), "") for match in _PACKAGES.finditer(outside)]
    edits += [(match.span(), "C") for match in _FACTOR.finditer(outside)]
    for (begin, end), instead in sorted(edits, reverse=True):
        text = text[:begin] + instead + text[end:]
    return text


def pointed_call(outside: str) -> tuple[str, str] | None:
    """Returns the name of a call such as `as.numeric(x)`, which Python's grammar cannot read, and its remedy; None without one.

    `outside` is the formula, with blanks where something is quoted.
    """
    match = _POINTED.search(outside)
    return None if match is None else (match.group(1), remedy(match.group(1), match.group(2)))


def remedy(function: str, argument: str) -> str:
    """Returns the words to write in the place of a call that is not taken.

    Parameters
    ----------
    function : its name in R
    argument : the text of its first argument; "" where it has none
    """
    argument = argument.removeprefix("C(").removesuffix(")") if argument.startswith("C(") else argument
    return REMEDIES.get(function, MAKE).format(argument if re.fullmatch(r"[\w.]+|`[^`]+`", argument) else "NAME")


# Computes bases of splines and polynomials, by given knots, bounds and constants --------------------
#
# Source: docs/how-to/formula.md, "What a name means".


FAR = 3.0  # of a bound from the agreed centre, in agreed standard deviations


def quantiles(many: int, center: float, scale: float, ends: tuple[float, float] | None) -> tuple[float, ...]:
    """Returns inner knots: quantiles of a normal distribution with this centre and scale, or evenly spaced between given ends."""
    shares = np.arange(1, many + 1) / (many + 1)
    from scipy.special import ndtri  # a job without splines loads none of SciPy for them

    knots = center + scale * ndtri(shares) if ends is None else ends[0] + (ends[1] - ends[0]) * shares
    return tuple(knots.tolist())


def b_spline(x: Array, knots: tuple[float, ...], ends: tuple[float, float], degree: int, *, whole: bool) -> Array:
    """Returns (n, k) a B-spline basis; beyond the ends the outer polynomials go on.

    Its columns add up to 1; unless it is `whole` the first is left out.
    """
    from scipy.interpolate import BSpline

    low, high = ends
    t = np.array([low] * (degree + 1) + [*knots] + [high] * (degree + 1))
    basis = BSpline(t, np.eye(len(t) - degree - 1), degree, extrapolate=True)
    columns: Array = np.asarray(basis(x), np.float64)
    return columns if whole else columns[:, 1:]


def natural(x: Array, knots: tuple[float, ...], ends: tuple[float, float], *, anchored: bool) -> Array:
    """Returns (n, k) the basis of a natural cubic spline, linear beyond its ends.

    It has one column fewer than there are knots and ends. Values at knots and ends add up to 0 in each column, or with
    `anchored` all columns are 0 at the lower end.
    """
    from scipy.interpolate import CubicSpline

    sites = np.array([ends[0], *knots, ends[1]])
    cardinal = CubicSpline(sites, np.eye(len(sites)), bc_type="natural")
    inside = np.clip(x, *ends)
    values = np.asarray(cardinal(inside) + (x - inside)[:, np.newaxis] * cardinal(inside, 1), np.float64)
    if anchored:
        values[:, 0] -= 1.0  # the cardinal basis is (1, 0, .., 0) there
    return values @ _without_mean(len(sites))


def _without_mean(k: int) -> Array:
    """Returns (k, k - 1) orthonormal columns that add up to 0.

    They are LAPACK's Householder reflection of a column of ones, without its first column.
    """
    v = np.ones(k)
    v[0] += math.sqrt(k)
    q = np.eye(k) - 2 * np.outer(v, v) / (v @ v)
    return q[:, 1:]


def polynomial(x: Array, degree: int, center: float, scale: float) -> Array:
    """Returns (n, degree) Hermite's polynomials of the standardised column, of mean square 1 where it is normal."""
    z, polynomials = (x - center) / scale, [np.ones_like(x)]
    for k in range(degree):
        before = k * polynomials[-2] if k else 0.0
        polynomials.append(z * polynomials[-1] - before)
    return np.column_stack([column / math.sqrt(math.factorial(k)) for k, column in enumerate(polynomials)][1:])
