"""Describes the keys of a job whose log-likelihoods the holders' own packages compute, and their contradictions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ...jobs.keys import LARGEST, Positive, Section, key
from ...models.own.priors import Block, Priors
from ...printing import toml_key

WANTED = {  # of each prior: keys that must be there, and those that may be
    "normal": (("sd",), ("mean",)),
    "student": (("df", "scale"), ("mean",)),
    "half-normal": (("sd",), ()),
    "half-student": (("df", "scale"), ()),
    "gamma": (("shape", "rate"), ()),
    "lkj": (("eta", "size"), ()),
}
SAID = ("mean", "sd", "df", "scale", "shape", "rate", "eta")
MOST = 400  # parameters
STARTS = 4
FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
BARE = ("clients", "names", "ignore", "dialect")  # keys of [data] that such a job reads
OWN = ("kind", "factory", "options", "priors", "local")  # and of [model]


class PriorSection(Section):
    """The prior of a parameter, or of several: its name is that of the table."""

    kind: Literal["normal", "student", "half-normal", "half-student", "gamma", "lkj"] = key(
        help="lkj: of a correlation matrix, det(R)^(eta - 1)"
    )
    mean: float | None = key(None, ge=-LARGEST, le=LARGEST, help="normal, student; default 0")
    sd: Positive | None = key(None, help="normal, half-normal")
    df: Positive | None = key(None, help="student, half-student: degrees of freedom")
    scale: Positive | None = key(None, help="student, half-student")
    shape: Positive | None = key(None, help="gamma, whose mean is shape / rate")
    rate: Positive | None = key(None, help="gamma")
    eta: Positive | None = key(None, help="lkj: 1 is uniform, more is nearer to no correlation")
    unit: Literal["own", "sd"] | None = key(
        None,
        help="of a regression's number; own (default): as it is printed; sd: columns, and a gaussian or student response, in "
        "their standard deviations",
    )
    size: int | None = key(
        None, ge=1, le=MOST, help="how many parameters NAME[1], NAME[2], .. have this prior; lkj: rows of the matrix"
    )

    @property
    def block(self) -> dict[str, float]:
        """The numbers that the job file gives."""
        return {name: value for name in SAID if (value := getattr(self, name)) is not None}


def priors(tables: Mapping[str, PriorSection]) -> Priors:
    """Returns the prior of all parameters, in the job file's order."""
    return Priors(
        tuple(Block(name, prior.kind, prior.size or 1, prior.size is not None, **prior.block) for name, prior in tables.items())
    )


def conflicts(data: Any, model: Any, algorithm: Any, output: Any) -> Iterator[str]:
    """Yields every fault of such a job, from its tables."""
    if not data.clients:
        yield 'data.clients is missing: model.kind = "own" is of files, whose columns the factory reads'
    if model.factory is None:
        yield 'model.factory is missing: which function makes the model, as "package.module:function"'
    elif not FACTORY.fullmatch(model.factory):
        yield f'model.factory = "{model.factory}": wanted "package.module:function"'
    for name, table, other in (("data", data, BARE), ("model", model, OWN)):
        for field, description in type(table).model_fields.items():
            if field not in other and getattr(table, field) != description.get_default():
                yield (
                    f'{name}.{field} is not for model.kind = "own", whose factory reads the columns itself, as they are, and '
                    "foresees no rows; remove it, or say it in [model.options]"
                )
    yield from _options(model.options)
    for name, prior in model.priors.items():
        yield from _prior(name, prior)
        if prior.unit is not None:
            yield f'model.priors.{toml_key(name)}.unit is of a regression\'s numbers, not of model.kind = "own"; remove it'
    yield from _counted(model.priors)
    if model.local and algorithm.sampler == "importance":
        yield (
            'model.local = true: unknowns of each client are sampled with all else, or fitted; set algorithm.sampler = "hmc" '
            '(chains), or "sfvi" (a variational fit, about which draws are weighted)'
        )
    if algorithm.sampler == "sfvi" and not model.local:
        yield 'algorithm.sampler = "sfvi" is for unknowns of each client (model.local = true); take "importance"'
    if algorithm.sampler == "sfvi" and output.without:
        yield 'output.without with algorithm.sampler = "sfvi" is not there; remove it, or run the job without that client'
    if model.local and algorithm.starts is not None:
        yield "algorithm.starts is of the way to the mode, and with model.local = true there is none; remove it"
    for name, why in (
        ("loo", "the factory says what all rows of a client say together, and not one of them"),
        ("marginal", "the factory names no response, and no mean of it"),
        ("survival_at", "the factory names no times"),
        ("restricted_mean", "the factory names no times"),
    ):
        if getattr(output, name):
            yield f'output.{name} with model.kind = "own": {why}; remove it'
    if output.sites and model.local:
        yield "output.sites with model.local = true: a client's own mode is not known where its unknowns are sampled; remove it"
    if output.sites and not model.priors:
        yield "output.sites needs [model.priors]: a client that looks for its own mode must know the prior"


def not_own(model: Any, algorithm: Any) -> Iterator[str]:
    """Yields the faults of a job without own models whose keys only such a job has."""
    for name in ("factory", "options", "local"):
        if getattr(model, name):
            yield f'model.{name} is for model.kind = "own"; set it, or remove the key'
    for name, prior in model.priors.items():
        yield from _prior(name, prior)
    if algorithm.sampler == "sfvi":
        yield 'algorithm.sampler = "sfvi" is for model.kind = "own" with model.local = true; take "importance", or "hmc"'
    if algorithm.starts is not None:
        yield 'algorithm.starts is for model.kind = "own": the mode of other models is looked for from one start; remove it'


def _counted(tables: Mapping[str, PriorSection]) -> Iterator[str]:
    """Names that are two parameters', or too many of them."""
    names = [name for name, prior in tables.items() if prior.kind != "lkj" for name in _names(name, prior)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"model.priors: {', '.join(map(repr, twice))} would be two parameters; rename one"
    n_numbers = sum(
        1 if prior.size is None else prior.size * (prior.size - 1) // 2 if prior.kind == "lkj" else prior.size
        for prior in tables.values()
    )
    if n_numbers > MOST:
        yield f"model.priors: {n_numbers} parameters, and at most {MOST} can be shared; have fewer"


def _names(name: str, prior: PriorSection) -> list[str]:
    return [name] if prior.size is None else [f"{name}[{i + 1}]" for i in range(prior.size)]


def _prior(name: str, prior: PriorSection) -> Iterator[str]:
    """Keys that a prior lacks, or has no use for."""
    needed, may = WANTED[prior.kind]
    for lacks in needed:
        if getattr(prior, lacks) is None:
            yield f'model.priors.{toml_key(name)}.{lacks} is missing: kind = "{prior.kind}" needs {" and ".join(needed)}'
    for more in SAID:
        if getattr(prior, more) is not None and more not in (*needed, *may):
            yield f'model.priors.{toml_key(name)}.{more}: kind = "{prior.kind}" has none; it has {", ".join((*needed, *may))}'
    if prior.kind == "lkj" and prior.size == 1:
        yield f"model.priors.{toml_key(name)}.size = 1: a correlation matrix has at least 2 rows"


def _options(value: object, where: str = "model.options") -> Iterator[str]:
    """Values that are no numbers, texts, lists or tables."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _options(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _options(inner, where)
    elif not isinstance(value, str | int | float | bool) or value != value or value in (float("inf"), -float("inf")):
        yield f"{where} = {value}: wanted a finite number, a text, true or false, a list or a table"
