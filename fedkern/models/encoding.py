"""Maps a data holder's columns to the coefficients of a model, as all parties agree on it before the first round.

A numeric column becomes one coefficient, of `(value - center) / scale`; a categorical column becomes one for each of its levels
(no level is left out: the prior keeps the redundant direction proper). No function here reads a row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..kernels.families import FAMILIES, quoted
from ..labels import event_of, in_order, label
from ..plain import Record
from .formula.expansion import Formula

Kind = Literal["numeric", "categorical"]
Standardise = Literal["public", "exchange", "none"]

INTERCEPT = "intercept"

LEAST_SCALE = 1e-150  # of a column: the square of a coefficient on its scale is a number


@dataclass(frozen=True)
class Column:
    """Holds one column of the covariates; a field that is None is not known yet.

    `flat`: whether all clients together have one value of it. Its coefficient is then in no row, nor in an intercept on the
    data's scale, which is that of this value.
    """

    name: str
    kind: Kind = "numeric"
    levels: tuple[str, ...] | None = None
    center: float | None = None
    scale: float | None = None
    flat: bool = False

    @classmethod
    def declared(cls, name: str, table: Mapping[str, object]) -> Column:
        """Makes a column from `[data.columns.<name>]`: kind, levels, center and scale, or lower and upper.

        Bounds map the column to [-1, 1]: center is their middle, scale half their distance. Levels are sorted. A key whose value
        is None counts as absent. Raises JobError: an unknown key, an unknown kind, a scale that is not > 0, bounds in the wrong
        order, repeated levels.
        """
        where = f"[data.columns.{name}]"
        known = {"kind", "levels", "center", "scale", "lower", "upper"}
        for key in table.keys() - known:
            raise JobError(f"{where} {key}: unknown key; there are {', '.join(sorted(known))}")
        levels = table.get("levels")
        usual = "numeric" if levels is None else "categorical"
        kind = table.get("kind") or usual
        if kind not in ("numeric", "categorical"):
            raise JobError(f'{where} kind: needs "numeric" or "categorical", got {kind!r}')
        # Either constants or bounds say how a numeric column is scaled.
        given = [key for key in ("center", "scale", "lower", "upper") if table.get(key) is not None]
        numbers = {key: _number(where, key, table[key]) for key in given}
        if kind == "categorical":
            if numbers:
                raise JobError(f"{where} {min(numbers)}: a categorical column is not standardised; remove the key, or the levels")
            return cls(name, "categorical", None if levels is None else _levels(where, levels))
        if levels is not None:
            raise JobError(f'{where} levels: a numeric column has none; remove them, or set kind = "categorical"')
        if numbers.keys() & {"lower", "upper"}:
            if numbers.keys() != {"lower", "upper"} or not numbers["lower"] < numbers["upper"]:
                raise JobError(f"{where}: needs lower < upper, both, and neither center nor scale beside them; got {numbers}")
            lower, upper = numbers["lower"], numbers["upper"]
            numbers = {"center": lower / 2 + upper / 2, "scale": upper / 2 - lower / 2}
        elif numbers and numbers.keys() != {"center", "scale"}:
            raise JobError(f"{where}: needs both center and scale, got {numbers}")
        if numbers and not numbers["scale"] > 0:
            raise JobError(f"{where} scale: needs > 0, got {numbers['scale']}")
        if numbers and numbers["scale"] < LEAST_SCALE:
            needs = f"needs at least {LEAST_SCALE:g}, got {numbers['scale']}"
            raise JobError(f"{where} scale: {needs}; give the column in another unit")
        return cls(name, "numeric", None, numbers.get("center"), numbers.get("scale"))

    def with_blank(self) -> Column:
        """Returns the column with an empty cell as its last level."""
        return replace(self, levels=(*(self.levels or ()), ""))

    def scaled(self, mean: float, sd: float) -> Column:
        """Returns the column with the mean and the standard deviation of all rows; where that is 0 it is centred alone."""
        return replace(self, center=mean, scale=sd or 1.0, flat=not sd)

    @property
    def constants(self) -> tuple[float, float]:
        """The center and the scale of a complete numeric column."""
        if self.center is None or self.scale is None:
            raise ValueError(f"column {self.name!r} has no center and scale")
        return self.center, self.scale


def _number(where: str, key: str, value: object) -> float:
    """Returns a finite number of the job file."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise JobError(f"{where} {key}: needs a finite number, got {value!r}")
    return float(value)


def _levels(where: str, levels: Any) -> tuple[str, ...]:
    """Returns sorted levels of the job file."""
    if isinstance(levels, str) or not all(isinstance(level, str | int) and not isinstance(level, bool) for level in levels):
        raise JobError(f"{where} levels: needs a list of texts, got {levels!r}")
    texts = tuple(in_order(label(str(level).strip(), text=True) for level in levels))
    if not texts or len(set(texts)) < len(texts) or "" in texts:
        raise JobError(f"{where} levels: needs at least one level, none empty, none twice; got {levels!r}")
    return texts


def read_as(formula: Formula, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Returns columns as they are declared, and a formula's others by their use in it.

    A column with which the formula calculates is numeric; one inside C(..) is categorical.
    """
    used = {name: Column(name, "numeric") for name in formula.numeric}
    used |= {name: Column(name, "categorical") for name in formula.labelled}
    return {**used, **columns}


@dataclass(frozen=True)
class Spec:
    """Holds the job file's statements about the data, known to every party before any file is opened.

    In a private job everything that the encoding needs must be public: no number computed from rows leaves a client.

    Attributes
    ----------
    response : None where all columns are alike (a graph's nodes)
    positive : the response's text that counts as 1; None if the response is 0/1 already, or its labels are to be agreed on
    columns : the public knowledge of some columns; with a `formula` it may have constants of its terms
    missing : whether a numeric cell may be empty
    blank : whether a cell of labels may be empty, too
    trials : a column; the response is then a number of successes in this number of trials
    groups : columns whose labels stay at home; of a Cox model with strata theirs is the first
    with_effects : those of `groups` whose groups have effects and are each client's own
    times : columns of a survival time, and of the time when a row enters; the response is then whether it ends with the event
    upper : the column with the end of the interval in which the event is
    exposed : whether rows without event have terms of their own
    levels : the names of the levels that the response may have, in their order
    formula : the covariates are then the columns that it reads
    coefficients : their number in the model, where the covariates do not tell it
    derived : columns that a formula's terms make of several, or of splines: clients' means of these are not compared
    repeats : a column that says as how many rows each is taken (`data.repeated`); it is no covariate
    strata : the column of a survey's strata, of which `groups` has the clusters
    """

    response: str | None  # None where all columns are alike (a graph's nodes)
    family: str = "bernoulli"
    # the response's text that counts as 1; None if the response is 0/1 already, or its labels are to be agreed on
    positive: str | None = None
    offset: str | None = None
    weight: str | None = None
    row_id: str | None = None
    ignore: tuple[str, ...] = ()
    intercept: bool = True
    standardise: Standardise = "exchange"
    private: bool = False
    missing: bool = False  # whether a numeric cell may be empty
    blank: bool = False  # whether a cell of labels may be empty, too
    # the public knowledge of some columns; with a `formula` it may have constants of its terms
    columns: Mapping[str, Column] = field(default_factory=dict)
    trials: str | None = None
    groups: tuple[str, ...] = ()
    with_effects: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    upper: str | None = None
    exposed: bool = False
    levels: tuple[str, ...] = ()
    formula: Formula | None = None
    coefficients: int | None = None
    derived: frozenset[str] = frozenset()
    repeats: str | None = None  # a column that says as how many rows each is taken (`data.repeated`); it is no covariate
    strata: str | None = None  # the column of a survey's strata, of which `groups` has the clusters

    def __post_init__(self) -> None:
        declared = self.declared_labels or ()
        if self.positive is None and len(declared) == 2 and FAMILIES[self.family].binary and self.trials is None:
            object.__setattr__(self, "positive", event_of(in_order(declared)))
        if self.positive is not None:
            object.__setattr__(self, "positive", label(self.positive, text=True))
        if self.private and self.standardise == "exchange":
            raise JobError(
                '[data] standardise = "exchange": in a private job sums of rows would leave the clients uncharged; set '
                'standardise = "public" and give center and scale (or lower and upper) in [data.columns.<name>], or set "none"'
            )
        roles = [name for name in (self.response, self.offset, self.weight, self.row_id, self.trials) if name is not None]
        if len(set(roles)) < len(roles):
            named = "response, offset, weight, row_id and trials" if self.trials else "response, offset, weight and row_id"
            raise JobError(f"[data] {named} must be different columns, got {roles}")
        if self.positive is not None and not FAMILIES[self.family].binary:
            binary = quoted(tuple(f.name for f in FAMILIES.values() if f.binary and f.methods))
            raise JobError(f"[data] positive: only family = {binary} has a positive label, not {self.family!r}; remove it")
        terms = {*self.formula.variables, *self.formula.arguments} if self.formula is not None else set()
        for name in set(roles[1:]) & self.columns.keys() - terms:
            raise JobError(f"[data.columns.{name}]: this column is not a covariate; remove the table")
        if self.private and not all(self.complete(name) for name in self.declared):
            raise JobError(self.undeclared)

    @property
    def _single(self) -> tuple[str | None, ...]:
        first = (self.response, self.offset, self.weight, self.row_id, self.trials, *self.groups)
        return (*first, self.upper, self.repeats, self.strata)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the columns that a file must have: with a role, or declared, unless a covariate may be missing."""
        roles = (*self._single, *self.times)
        declared = () if self.missing else self.columns if self.formula is None else self.formula.variables
        return tuple(dict.fromkeys([*(name for name in roles if name is not None), *declared]))

    @property
    def known(self) -> frozenset[str]:
        """All names of columns that the job file has, and so every party."""
        made = frozenset() if self.formula is None else frozenset(self.formula.arguments)
        return frozenset(self.needed) | frozenset(self.columns) | frozenset(self.ignore) | made

    def may_read(self, name: str) -> bool:
        """Tells whether a job reads a column of this name, or may calculate with it: `log(py)` of a role names "py"."""
        if self.formula is None:
            return name not in self.ignore
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return any(whole.search(text) for text in (*self.needed, *self.columns))

    @property
    def declared_labels(self) -> tuple[str, ...] | None:
        """The response's texts, where the job file gives them."""
        if self.levels:
            return self.levels
        declared = self.columns.get(self.response or "")
        return None if declared is None else declared.levels

    def complete(self, name: str) -> bool:
        """Returns whether all constants are public that the encoding of a covariate needs."""
        column = self.columns.get(name)
        if column is None:
            return False
        if column.kind == "categorical":
            return column.levels is not None
        return self.standardise == "none" or column.center is not None

    @property
    def declared(self) -> tuple[str, ...]:
        """The covariates that the job file names."""
        return self.covariates(tuple(self.columns)) if self.formula is None else self.formula.variables

    @property
    def undeclared(self) -> str:
        """The text, made from the job file alone, on what a private job must say of all covariates, and for which it does."""
        constants = "" if self.standardise == "none" else ", with center and scale (or lower and upper)"
        covariates = self.declared
        declared = [name for name in covariates if self.complete(name)]
        lacking = [name for name in covariates if not self.complete(name)]
        listed = f"it does for {', '.join(map(repr, declared))}" if declared else "it does for none yet"
        if lacking:
            listed += f", but what it says of {', '.join(map(repr, lacking))} is not complete"
        return (
            "a private job asks no row what a column is: for every covariate [data.columns.NAME] must give "
            f'kind = "categorical", levels = [..] or kind = "numeric"{constants}; {listed}; '
            "what is no covariate belongs into [data] ignore"
        )

    @property
    def texts(self) -> frozenset[str]:
        """The columns that are read as text although their cells may look like numbers."""
        texts = {name for name, column in self.columns.items() if column.kind == "categorical"}
        texts |= {name for name in (self.row_id, *self.groups, self.strata) if name}
        if self.response and self.labelled:
            texts.add(self.response)
        return frozenset(texts)

    @property
    def undecided(self) -> bool:
        """Whether all clients' labels of a binary response decide which one counts as 1: where the job file does not say."""
        silent = not self.private and self.positive is None and self.declared_labels is None and self.trials is None
        return silent and self.response is not None and FAMILIES[self.family].binary

    @property
    def labelled(self) -> bool:
        """Whether the response is a text, such as "none", which is then no empty cell."""
        return self.positive is not None or bool(self.levels)

    @property
    def of_groups(self) -> frozenset[str]:
        """The columns whose labels name groups, those of "region:ward" each by itself, too."""
        return frozenset(part for name in self.groups for part in (name, *name.split(":")))

    @property
    def roles(self) -> frozenset[str]:
        """The columns of a file that are no covariates, and that a job reads; of a time "end - start" both are, too."""
        names = {*self._single, *self.times, *self.of_groups}
        parts = {part for name in (*self.times, self.upper) if name is not None for part in name.split(" - ")}
        return frozenset(name for name in names | parts if name is not None)

    def apart(self, covariates: Collection[str]) -> tuple[Spec, dict[str, str]]:
        """Returns the same of columns of which none of these has another role, and whose copy each new column is."""
        copies = dict[str, str]()

        def of(role: str, name: str) -> str:
            if name not in covariates:
                return name
            copies[new := f"{name} (data.{role})"] = name
            return new

        single = {role: getattr(self, role) for role in ("offset", "weight", "row_id", "trials", "upper")}
        apart: dict[str, Any] = {role: of(role, name) for role, name in single.items() if name is not None}
        groups, with_effects = (tuple(of("group", name) for name in names) for names in (self.groups, self.with_effects))
        times = tuple(of("entry", name) for name in self.times)
        return replace(self, times=times, groups=groups, with_effects=with_effects, **apart), copies

    def covariates(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Returns those of a file's columns that are covariates, in the file's order."""
        if self.formula is not None:
            variables = {*self.formula.variables, *self.formula.arguments}
            return tuple(name for name in names if name in variables)
        others = {*self.roles, *self.ignore}
        return tuple(name for name in names if name not in others)

    def encoding(self, columns: tuple[Column, ...]) -> Encoding:
        """Returns the agreed encoding with these complete columns."""
        labels = self.declared_labels or ()
        roles = (self.offset, self.weight, self.row_id, self.intercept)
        return Encoding(columns, self.response, self.family, self.positive, labels, *roles, trials=self.trials)


@dataclass(frozen=True)
class Encoding:
    """Holds the agreed map from columns to coefficients; every column is complete."""

    columns: tuple[Column, ...]
    response: str | None
    family: str = "bernoulli"
    positive: str | None = None
    # the response's texts; () for any; if the response is one of several levels these, in their order
    labels: tuple[str, ...] = ()
    offset: str | None = None
    weight: str | None = None
    row_id: str | None = None
    intercept: bool = True
    trials: str | None = None  # see `Spec`
    formula: Formula | None = None  # makes these columns of others, with all that is agreed about them
    # column -> levels that joined `OTHER`, as all parties know them; other labels of such a column count as it, too
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.positive is not None:
            object.__setattr__(self, "positive", label(self.positive, text=True))
            object.__setattr__(self, "labels", tuple(label(text, text=True) for text in self.labels))
        for column in self.columns:
            known = column.levels if column.kind == "categorical" else (column.center is not None and column.scale)
            if not known:
                wanted = "levels = [...]" if column.kind == "categorical" else "center and scale, or lower and upper"
                raise JobError(f"column {column.name!r}: not complete; give {wanted} in [data.columns.{column.name}]")
        if len(set(self.names)) < len(self.names):
            if self.names.count(INTERCEPT) > 1:
                raise JobError(f"two coefficients would be called {INTERCEPT!r}; rename the column")
            raise JobError("two coefficients would have one name, of a column and of another one's level; rename a column")
        if self.labels and self.positive is not None and self.positive not in self.labels:
            labels = f"the {len(self.labels)} labels of {self.response!r}"
            raise JobError(f"[data] positive = {self.positive!r} is none of {labels}; name one of them")

    @property
    def uncentred(self) -> Encoding:
        """The encoding with columns that are scaled alone.

        A model without an intercept is one of the uncentred columns; of centred ones it would be another model.
        """
        columns = tuple(column if column.center is None else replace(column, center=0.0) for column in self.columns)
        return replace(self, columns=columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the d coefficients: "intercept", "age", "workclass=Private"."""
        names = [INTERCEPT] if self.intercept else []
        for column in self.columns:
            names += [column.name] if column.levels is None else [f"{column.name}={level}" for level in column.levels]
        return tuple(names)

    @property
    def levels_joined(self) -> dict[str, tuple[str, ...]]:
        """The levels, `OTHER` among them, of each column of the file whose rare ones have joined."""
        levels = {column.name: column.levels for column in self.columns}
        levels |= {} if self.formula is None else {name: variable.levels for name, variable in self.formula.known.items()}
        return {name: levels[name] or () for name in self.joined}

    def check_references(self, references: Mapping[str, str | None]) -> None:
        """Raises JobError unless each reference is a level of its column, where that has some. `references`: column -> level;
        None is no reference."""
        levels = {column.name: column.levels for column in self.columns if column.levels is not None}
        for name, level in references.items():
            if level is not None and level not in levels.get(name, (level,)):
                what = f"none of the {len(levels[name])} levels that were found"
                what += ", for rare ones joined" if name in self.joined else ""
                raise JobError(f"data.columns.{name}.reference = {level!r}: {what}")

    @property
    def spread(self) -> NDArray[np.float64]:
        """The (d,) mean squares of the coefficients' columns if numeric ones are standardised, and levels equally frequent."""
        squares = [1.0] if self.intercept else []
        squares += [] if self.formula is None else [made.spread for made in self.formula.made]
        for column in self.columns if self.formula is None else ():
            squares += [1.0] if column.levels is None else [1 / len(column.levels)] * len(column.levels)
        return np.array(squares)

    @property
    def size(self) -> int:
        """The number d of coefficients."""
        n_columns = sum(1 if column.levels is None else len(column.levels) for column in self.columns)
        return self.intercept + n_columns

    @property
    def texts(self) -> frozenset[str]:
        """The columns that are read as text although their cells may look like numbers."""
        texts = {column.name for column in self.columns if column.kind == "categorical"}
        texts |= (
            set()
            if self.formula is None
            else {name for name, variable in self.formula.known.items() if variable.levels is not None}
        )
        texts |= {self.row_id} if self.row_id else set()
        if self.response and (self.positive is not None or self.labels):
            texts.add(self.response)
        return frozenset(texts)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the columns that a file must have."""
        roles = (self.response, self.offset, self.weight, self.row_id, self.trials)
        names = tuple(column.name for column in self.columns) if self.formula is None else self.formula.variables
        return names + tuple(name for name in roles if name is not None)

    def affine(self) -> NDArray[np.float64]:
        """Returns A (d, d) with theta = A theta_std: from the standardised scale to the data's.

        theta_j = theta_std_j / scale_j, and intercept = intercept_std - sum_j theta_std_j center_j / scale_j, over columns of
        more than one value. Without an intercept the constant has no coefficient to go to: the slopes are then those of centred
        columns.
        """
        a = np.eye(self.size)
        place = int(self.intercept)
        for column in self.columns:
            if column.levels is not None:
                place += len(column.levels)
                continue
            center, scale = column.constants
            a[place, place] = 1 / scale
            if self.intercept and not column.flat:
                a[0, place] = -center / scale
            place += 1
        return a

    @property
    def standardised(self) -> bool:
        """Whether the two scales differ anywhere."""
        return any(column.levels is None and (column.center, column.scale) != (0.0, 1.0) for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, texts and numbers, for JSON."""
        plain = {key: getattr(self, key) for key in ("response", "family", "positive", "offset", "weight", "row_id", "intercept")}
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            rest = {"center": column.center, "scale": column.scale} if column.levels is None else {"levels": list(column.levels)}
            columns.append({"name": column.name} | rest | ({"flat": True} if column.flat else {}))
        more = dict[str, Any]()
        more |= {"trials": self.trials} if self.trials else {}
        more |= {"formula": self.formula.to_dict()} if self.formula is not None else {}
        more |= {"joined": {name: list(levels) for name, levels in self.joined.items()}} if self.joined else {}
        return plain | {"labels": list(self.labels), "columns": columns} | more

    def to_json(self) -> bytes:
        """Returns exact JSON: `Encoding.from_json(e.to_json()) == e`."""
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True, allow_nan=False).encode()

    @classmethod
    def from_dict(cls, plain: Record) -> Encoding:
        """Restores the result of `to_dict`. Raises ValueError: an entry is missing, or of another type."""
        try:
            columns = tuple(
                Column(str(c["name"]), "categorical", tuple(map(str, c["levels"])))
                if "levels" in c
                else Column(str(c["name"]), "numeric", None, float(c["center"]), float(c["scale"]), c.get("flat") is True)
                for c in plain["columns"]
            )
            roles = {key: plain[key] for key in ("response", "family", "positive", "offset", "weight", "row_id", "intercept")}
            roles |= {"trials": plain["trials"]} if "trials" in plain else {}
            if not all(isinstance(value, bool if key == "intercept" else str | None) for key, value in roles.items()):
                raise TypeError(f"a text has another type in {roles}")
            if not all(math.isfinite(c.center) and c.scale > 0 for c in columns if c.center is not None and c.scale is not None):
                raise TypeError("center must be finite and scale > 0")
            formula = Formula.from_dict(plain["formula"]) if "formula" in plain else None
            if formula is not None and [column.name for column in columns] != [made.name for made in formula.made]:
                raise TypeError("its columns are not those of its formula")
            joined = {str(name): tuple(map(str, levels)) for name, levels in plain.get("joined", {}).items()}
            if not joined.keys() <= {*(column.name for column in columns), *(formula.variables if formula else ())}:
                raise TypeError("its joined levels are not of its columns")
            texts = tuple(map(str, plain["labels"]))
            return cls(columns, labels=texts, formula=formula, joined=joined, **roles)
        except (KeyError, TypeError, JobError) as fault:
            raise ValueError(f"not an encoding: {fault}") from fault

    @classmethod
    def from_json(cls, text: bytes) -> Encoding:
        """Restores the result of `to_json`."""
        return cls.from_dict(json.loads(text))
