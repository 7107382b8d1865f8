"""Writes what is generated from the program in docs: the pages of keys and kernels, the keys as TOML files, what messages tell.

    python tools/pages.py

`make docs` calls it first. But for the tables of docs/concepts/disclosure.md, which a test compares, none of it is kept in git.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from fedkern import kernels
from fedkern.algorithms.core.messages import Message
from fedkern.algorithms.core.tells import HIDES
from fedkern.disclosure.describe import RULES
from fedkern.disclosure.rules import LEVELS
from fedkern.finding import catalogue, remedies
from fedkern.jobs.wire import ALSO
from fedkern.kernels._checks import MADE
from fedkern.kernels._docs import COMMON, example_of
from fedkern.kernels._record import Array, Kernel
from fedkern.methods import load_method, reference
from fedkern.methods.sigma.prior import reference as prior_reference

ROOT = Path(__file__).parents[1]
METHODS = ("likelihood", "pvi", "sparse", "vertical", "sigma", "describe")  # in the order of the documents
DISCLOSURE = "docs/concepts/disclosure.md"
BEGIN, END = "<!-- what messages tell: written by `make pages` -->", "<!-- so far -->"
NUMBERS, OF_NUMBERS = "<!-- numbers of the levels: written by `make pages` -->", "<!-- so far the numbers -->"
MASKED = f", masked: {HIDES}"
CODE = re.compile(r'`[^`]*`|"[^"\s]*"')
KEY = re.compile(r"# (?P<key>\S+) = (?P<default>.*?) +# (?P<type>.+?): (?P<help>.*)")

JOBS = """\
# Keys of a job file

Written by `make docs` from the sections that check a job file. The same as commented TOML files, to copy from:
[likelihood.toml](likelihood.toml), [pvi.toml](pvi.toml), [sparse.toml](sparse.toml), [vertical.toml](vertical.toml),
[sigma.toml](sigma.toml), [describe.toml](describe.toml), [prior.toml](prior.toml).

A job is one TOML file, which every party reads. An unknown key is an error that names the nearest; any key can be overridden
on the command line: `--set privacy.epsilon=0.5`. Keys that only experiments want stand on [a page of their own](expert.md).
Types are not converted, save whole numbers to real ones. A default is what a job of that method has without the key; `...`
stands where there is none. Variants and presets have defaults of their own: `fedkern check` tells what a job will do.
"""
EXPERT = """\
# Keys for experts

Written by `make docs` from the sections that check a job file. What a paper's table or a benchmark
needs beside the [keys of a job file](jobs.md): priors of priors, steps of optimisers and samplers, data that come with a
dependency. They stand in a job file as the others do; without them a job has their defaults.
"""
PRIORS = """\
## Prior files

What `fedkern sigma build` and `train` read: `build` the sections `[prior]`, `[data]` and `[within]`.
Defaults are those of a map; the preset `"paper"` and the variants have their own.
"""
FINDINGS = """\
# Findings

Written by `make docs` from the catalogue of findings. What a result says of model, data and run
has an id, by which a program finds it (`result.findings`, `findings` of `summary.json`), and a page that explains it. In `{}`
stand values, which `values` of a finding has by the same names. So far these have an id; other notes are texts alone.
"""
CONVENTIONS = """\
# Beside other programs

Do you compare a number of fedkern with one of another program? Look here first which convention each has. All numbers are of 60
rows of `lung` of R's survival, or of draws and a small map (`tests/references`); each was printed by the program and version in
parentheses. Written by `make docs`; a test holds fedkern's numbers and these to each other, and a nightly one runs the programs
that are installed. A posterior has priors besides; `model.prior_sd = 1e3` leaves next to nothing of them.
"""
MODELS = """
## Models

Jobs beside the program that fits the same model (`tests/references/models.toml`): log-likelihoods at three points within 1e-8 of
them, modes within 1e-4 of a posterior's standard deviation, with the program's own estimates where nothing beside coefficients
has a prior. The columns `family` and `formula` are the job's.
"""
KERNELS = """\
# Kernels

Written by `make docs` from the kernels' records. A kernel is a function of arrays, scalars and a
random key: it knows no client, no round and no file. `help(fedkern.kernels.FAMILY)` tells what a family computes and `help`
of a function every argument; `fedkern.kernels.list()` and `fedkern info` give the table of kernels and backends.

* `out=None` allocates; a given `out` is used as it is or refused with a reason, never converted.
* `n_threads`, where work is split, changes no bit of the result.
* `backend=None` takes the one at home where the arrays live; `"cpp"`, `"numba"` and `"reference"` (NumPy, plain and slow:
  what the kernel means) can be named. A pair that does not exist is an error, and not silently replaced.
* Shapes are given in symbols; one symbol has one value in a call. Arrays may be float64 or float32, any strides, where
  nothing else is said. Elements must be aligned: a field of a packed structured array is refused by name; give a copy of it.
* `fedkern.kernels.bind` takes the arguments of any kernel's function, checks them once for many calls with equal sizes, and
  refuses in a call what the function refuses: a call of a microsecond's work then costs half. Where more varies than arrays,
  positive numbers, and words and keys of random numbers, or where the function looks into arrays or at what was computed, a call
  is one of the function.
* Functions of `fedkern.kernels.numba` can be called inside other people's nopython code.
"""


def jobs() -> str:
    """docs/reference/jobs.md"""
    parts = [JOBS]
    for method in METHODS:
        parts += [
            f"## `{method}`\n",
            f'Jobs with `method = "{method}"`; what they mean is said on [its page]({page(method)}).\n',
        ]
        parts += tables(reference.text(method))
    return "\n".join([*parts, PRIORS, *tables(prior_reference.text())])


def expert() -> str:
    """docs/reference/expert.md"""
    parts = [EXPERT]
    for method in METHODS:
        parts += [f"## `{method}`\n", *tables(reference.text(method, expert=True))]
    return "\n".join(parts)


def page(method: str) -> str:
    """The page of a method: of one without a model it is a how-to."""
    return "../how-to/describe.md" if method == "describe" else f"../methods/{method}.md"


def tables(toml: str) -> Iterator[str]:
    """A table for each table of a commented reference."""
    for table in re.split(r"\n(?=\[)", toml)[1:]:
        name, *lines = table.strip().splitlines()
        rows = []
        for line in lines:
            key = KEY.fullmatch(line)
            assert key is not None, line
            default = "..." if key["default"] == "..." else f"`{key['default']}`"
            rows.append(f"| `{key['key']}` | {default} | {cell(key['type'])} | {cell(key['help'])} |")
        yield "\n".join([f"### `{name}`\n", "| key | default | may be | |", "| --- | --- | --- | --- |", *rows]) + "\n"


def cell(text: str) -> str:
    """Text of a table's cell: choices are code, and no sign of it is Markdown."""
    text = re.sub(CODE, lambda m: m[0] if m[0][0] == "`" else f"`{m[0]}`", text.replace('" | "', '", "'))
    return re.sub(r"`[^`]*`|[*_<>|\[\]]", lambda m: m[0] if m[0][0] == "`" else f"\\{m[0]}", text)


def kernel_pages() -> str:
    """docs/reference/kernels.md"""
    parts = [KERNELS]
    names = sorted(kernels.KERNELS)
    for family in dict.fromkeys(name.partition(".")[0] for name in names):
        module = getattr(kernels, family)
        head = (inspect.getdoc(module) or "").partition("\n")[0]
        parts.append(f"## `{family}`\n\n{linked(cell(head))}\n")
        parts += [entry(kernels.KERNELS[name], module) for name in names if name.startswith(f"{family}.")]
    return "\n".join(parts)


def lacking(kernel: Kernel) -> list[str]:
    """Which backends lack families."""
    of = {what: [b for b in kernel.backends if kernel.lacks.get(b) == what] for what in dict.fromkeys(kernel.lacks.values())}
    return [f"Not in {' and '.join(backends)}: {', '.join(what)}." for what, backends in of.items() if backends]


def entry(kernel: Kernel, module: object) -> str:
    """Returns the section of a kernel: its purpose, the call, a table of arrays, a table of scalars, an example."""
    family, _, own = kernel.name.partition(".")
    function = kernel.function or own
    arguments = []
    kind = None
    for name, parameter in inspect.signature(getattr(module, function)).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and kind is not parameter.KEYWORD_ONLY:
            arguments.append("*")
        kind = parameter.kind
        arguments.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    source = f"Specified in {linked(kernel.source)}." if kernel.source else ""
    about = [cell(kernel.purpose), source, f"Backends: {', '.join(kernel.backends)}.", *lacking(kernel)]
    if kernel.streams:
        about.append(f"Draws from the streams {', '.join(f'`{stream}`' for stream in kernel.streams)}.")
    rows = [row(array, "in", kernel.words) for array in kernel.inputs]
    rows += [row(array, "out", kernel.words) for array in kernel.outputs]
    return "\n".join(
        [
            f"### `{kernel.name}`\n",
            " ".join(filter(None, about)) + "\n",
            f"```\n{call(f'{family}.{function}', arguments)}\n```\n",
            "| array | | shape | type | |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            *scalars(kernel, inspect.signature(getattr(module, function)).parameters),
            f"```pycon\n{example_of(kernel)}\n```\n",
        ]
    )


def scalars(kernel: Kernel, parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    """A table of what is no array, in the order of the public function, and of numbers that it returns."""
    public = {scalar.keyword: scalar for scalar in kernel.scalars if scalar.domain is not MADE}
    names = [name for name in parameters if name not in {*COMMON, *(a.name for a in kernel.inputs)}]
    numbers = [result.partition(" : ")[::2] for result in kernel.results if " : " in result]
    if names or numbers:
        yield "| scalar | default | may be | |\n| --- | --- | --- | --- |"
        for name in names:
            default = parameters[name].default
            written = "" if default is inspect.Parameter.empty else f"`{default!r}`"
            kind = public[name].domain.may_be.removeprefix("one of ") if name in public else parameters[name].annotation
            yield f"| `{name}` | {written} | {cell(kind)} | {cell(kernel.words[name])} |"
        for name, kind in numbers:
            yield f"| `{name}` | returned | {cell(kind)} | {cell(kernel.words[name])} |"
        yield ""


def linked(text: str) -> str:
    """Text that names a method's page, with a link to it."""
    return re.sub(r"(?:docs/methods/)?\b(pvi|sparse|vertical|sigma)\.md", r"[`\1`](../methods/\1.md)", text)


def call(name: str, arguments: Iterable[str]) -> str:
    """name(a, b, ..) in lines of at most 96 characters."""
    lines, indent = [f"{name}("], " " * 4
    for argument in arguments:
        if len(lines) == 1 or len(lines[-1]) + len(argument) > 94:
            lines.append(indent + argument)
        else:
            lines[-1] += f" {argument}"
        lines[-1] += ","
    whole = lines[0] + " ".join(line.strip() for line in lines[1:]).removesuffix(",") + ")"
    return whole if len(whole) <= 96 else "\n".join([*lines[:-1], lines[-1].removesuffix(","), ")"])


def row(array: Array, direction: str, words: Mapping[str, str]) -> str:
    types = " or ".join(map(str, array.dtypes))
    notes = [f"as `{array.like}`"] if array.like else [] if types == "float64 or float32" else [types]
    if array.optional:
        notes.append("may be None")
    shape = ", ".join(array.shape) + ("," if len(array.shape) == 1 else "")
    means = words.get("result" if array.name == "out" else array.name, "")
    return f"| `{array.name}` | {direction} | `({shape})` | {'; '.join(notes)} | {cell(means)} |"


def disclosure() -> str:
    """docs/concepts/disclosure.md, whose tables are of what each message tells (`Message.tells`); the rest is written by hand."""
    sent = {method: list(dict.fromkeys(load_method(method).stages.MAY_SEND)) for method in METHODS}
    often = Counter(kind for kinds in sent.values() for kind in kinds)
    lists = {"### Of several methods": [*(kind for kind in often if often[kind] > 1), *ALSO["to_server"]]}
    lists |= {f"### `{method}`": [kind for kind in kinds if often[kind] == 1] for method, kinds in sent.items()}
    parts = []
    for title, kinds in lists.items():
        parts += [title, "", *told(kinds), ""]
    parts += ["### In private jobs", "", *private(kind for kinds in lists.values() for kind in kinds), ""]
    begin, _, rest = (ROOT / DISCLOSURE).read_text(encoding="utf-8").partition(BEGIN)
    page = "\n".join([begin + BEGIN, "", *parts, ""]).rstrip("\n") + "\n\n" + END + rest.partition(END)[2]
    begin, _, rest = page.partition(NUMBERS)
    return "\n".join([begin + NUMBERS, "", *numbers(), ""]) + "\n" + OF_NUMBERS + rest.partition(OF_NUMBERS)[2]


def numbers() -> Iterator[str]:
    """The table of what each level asks for: the numbers of `LEVELS`."""
    yield "| rule, and its key in `[disclosure]` | `none` | `standard` | `strict` |"
    yield "| --- | --- | --- | --- |"
    yield (
        "| by default | where all rows are in one process, and no policy binds them | where parties are apart, or a policy binds "
        "| never: by job or policy |"
    )
    for rule in RULES:
        numbers_of = (rule.number(LEVELS[level]) for level in ("standard", "strict"))
        yield f"| {f'`{rule.key}`: ' * bool(rule.key)}{rule.what} | - | {' | '.join(numbers_of)} |"


def told(kinds: Iterable[type[Message]]) -> Iterator[str]:
    """A table of what open jobs send: messages that tell the same have one row, also masked."""
    rows: dict[tuple[str, str, str], list[tuple[str, bool]]] = {}
    for kind in kinds:
        if kind.tells is None:
            raise TypeError(f"{kind.__name__} is in MAY_SEND, and says nothing of what it tells")
        if what := kind.tells.what.replace(MASKED, ""):
            computed = re.sub(r", not whose .*|^its ", "", kind.tells.computed)
            where = kind.tells.where or ("all" if computed else "")
            rows.setdefault((what, computed, where), []).append((kind.__name__, MASKED in kind.tells.what))
    yield "| message | what it is | what can be computed | of which clients |\n| --- | --- | --- | --- |"
    for (what, *others), named in rows.items():
        cells = [f"{what}, masked" if all(masked for _, masked in named) else what, *others]
        yield f"| {', '.join(f'`{name}`' for name, _ in named)} | {' | '.join(cell(text) for text in cells)} |"


def private(kinds: Iterable[type[Message]]) -> Iterator[str]:
    """A table of what private jobs send."""
    rows: dict[str, list[str]] = {}
    for kind in kinds:
        if kind.tells is not None and kind.tells.private:
            rows.setdefault(kind.tells.private, []).append(f"`{kind.__name__}`")
    yield "| message | what it is |\n| --- | --- |"
    for what, names in rows.items():
        yield f"| {', '.join(names)} | {cell(what)} |"


def findings() -> str:
    """docs/reference/findings.md"""
    parts = [FINDINGS, "| id | | text | what can be done |", "| --- | --- | --- | --- |"]
    for id, entry in sorted(catalogue().items()):
        ways = "; ".join(remedies()[way] for way in entry.remedies)
        text = re.sub(r"\{(\w+)[^}]*\}", r"{\1}", entry.public)
        parts.append(f"| [`{id}`](../{entry.page}) | {entry.severity} | {cell(text)} | {cell(ways)} |")
    return "\n".join([*parts, ""])


def conventions() -> str:
    """docs/reference/conventions.md"""
    folder = ROOT / "tests/references"
    rows = tomllib.loads((folder / "conventions.toml").read_text(encoding="utf-8"))
    stored = json.loads((folder / "stored.json").read_text(encoding="utf-8"))
    parts = [CONVENTIONS, "| what | fedkern | the same number | another number | compare |", "| --- | --- | --- | --- | --- |"]
    for name, entry in rows.items():
        programs = {p: v for p, v in stored[name].items() if p != "fedkern"}
        alike = [f"{p} ({v['version']})" for p, v in programs.items() if p in entry["same"]]
        others = [f"{p} ({v['version']}) {v['number']:.6g}" for p, v in programs.items() if p not in entry["same"]]
        cells = (
            entry["quantity"],
            f"{stored[name]['fedkern']['number']:.6g}",
            "; ".join(alike),
            "; ".join(others),
            entry["compare"],
        )
        parts.append("| " + " | ".join(cell(text) for text in cells) + " |")
    models = tomllib.loads((folder / "models.toml").read_text(encoding="utf-8"))
    numbers = json.loads((folder / "stored_models.json").read_text(encoding="utf-8"))
    parts += [MODELS, "| job | family | formula | programs |", "| --- | --- | --- | --- |"]
    for name, row in models.items():
        programs = "; ".join(f"{program} ({content['version']})" for program, content in numbers[name].items())
        said = f"{programs}. {row['differs']}" if "differs" in row else programs
        family = row["family"] + (f", {row['model']['link']}" if "link" in row.get("model", {}) else "")
        parts.append("| " + " | ".join(cell(text) for text in (name, family, f"`{row['formula']}`", said)) + " |")
    return "\n".join([*parts, ""])


def marked(text: Callable[[], str]) -> str:
    """Commented TOML that says where it comes from."""
    return f"# Written by `make docs` from the sections that check a file.\n{text()}"


FILES = {
    DISCLOSURE: disclosure,
    "docs/reference/jobs.md": jobs,
    "docs/reference/expert.md": expert,
    "docs/reference/kernels.md": kernel_pages,
    "docs/reference/findings.md": findings,
    "docs/reference/conventions.md": conventions,
    **{f"docs/reference/{method}.toml": partial(marked, partial(reference.text, method)) for method in METHODS},
    "docs/reference/prior.toml": partial(marked, prior_reference.text),
}

if __name__ == "__main__":
    for name, text in FILES.items():
        written = text()
        if name.endswith(".toml"):
            tomllib.loads(written)
        (ROOT / name).write_text(written, encoding="utf-8")
