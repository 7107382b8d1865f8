"""Makes the documentation that `help` shows of a public function: its first lines, and sections from its kernel's record."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeAlias, TypeVar

from ._checks import MADE
from ._record import Array, Kernel, Scalar

Function = TypeVar("Function", bound=Callable[..., Any])
Bound = TypeVar("Bound")
Given: TypeAlias = dict[str, Any]  # all arguments of a public function

WIDTH = 120
COMMON = {  # to all kernels, where a record has no words of its own
    "out": "Filled and returned; never converted.",
    "n_threads": "The result does not depend on it.",
    "backend": "By default the one at home where the arrays live.",
}
REFUSED = "Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input."
REFUSED_BOUND = "Here, what `{}` refuses; in a call, an array of another type or shape, or a bound array that has changed."
OF_ANY_CALL = "Of any call: all have its sizes."
STAYS = " It is read in every call, and must stay where it is."
HELPERS = re.compile(r"(?<![\w.])(mlp|rng)\.\w+\(")  # families whose functions make arguments of other families' examples


def documented(*kernels: Kernel) -> Callable[[Function], Function]:
    """Adds to a public function's docstring the sections of its arguments and results, from one record or from several that it
    chooses from."""

    def complete(function: Function) -> Function:
        code: Any = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        sections = (
            format_arguments(names, function.__annotations__, kernels),
            format_results(kernels),
            REFUSED,
            example_of(*kernels),
        )
        _complete(function, kernels, *sections)
        return function

    return complete


def binds(
    of: Callable[..., Any], *kernels: Kernel, varying: Collection[str], without: Collection[str], **start: Any
) -> Callable[[Callable[[Given], Bound]], Callable[..., Bound]]:
    """Makes the public function that binds calls: from a function that takes all arguments by name.

    Parameters
    ----------
    of : the public function whose calls are bound; its arguments and defaults are taken over
    kernels : its records
    varying : the arguments that each call is given, for the documentation
    without : the other arguments that are left out, beside `out`
    start : values of arguments that vary and have no default
    """
    parameters = {p.name: p for p in signature(of).parameters.values()}
    defaults = {name: p.default for name, p in parameters.items() if p.default is not Parameter.empty} | start
    arrays = {a.name for kernel in kernels for a in kernel.inputs}
    # Arrays that vary are still given once, for their types and shapes; scalars that vary are not.
    kept = [p for p in parameters.values() if p.name in arrays or p.name not in {*varying, *without, "out"}]

    def complete(function: Callable[[Given], Bound]) -> Callable[..., Bound]:
        taken = signature(function).replace(parameters=kept)

        def bind(*positional: Any, **options: Any) -> Bound:
            # Said here by name: the error of `bind` would not name the kernel.
            if unknown := options.keys() - taken.parameters.keys():
                raise TypeError(f"{kernels[0].public}: no option {min(unknown)!r}")
            try:
                given = taken.bind(*positional, **options).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}: {error}") from None
            return function({**defaults, **given})

        # `help` and editors show the arguments and the name of the function that was written.
        named: Any = bind
        named.__name__, named.__qualname__, named.__module__ = function.__name__, function.__qualname__, function.__module__
        named.__signature__, named.__doc__ = taken, function.__doc__
        refused = REFUSED_BOUND.format(of.__name__)
        _complete(bind, kernels, format_arguments(taken.parameters, of.__annotations__, kernels, varying), "", refused, "")
        return bind

    return complete


def _complete(function: object, kernels: Sequence[Kernel], parameters: str, returns: str, refused: str, example: str) -> None:
    """Replaces a docstring by its first lines and the given sections; errors and an example that it has itself are kept."""
    if function.__doc__ is None:  # python -OO
        return
    headed, _, own_example = cleandoc(function.__doc__).partition("\n\nExamples\n--------\n")
    head, _, raises = headed.partition("\n\nRaises\n------\n")  # beside the usual
    # A function that says itself which errors it raises for wrong arguments keeps its words.
    if not raises.startswith("TypeError, ValueError"):
        raises = f"TypeError, ValueError\n    {refused}\n{raises}".rstrip()
    sections = {"Parameters": parameters, "Returns": returns, "Raises": raises}
    written = [f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items() if text]
    source = "; ".join(dict.fromkeys(kernel.source for kernel in kernels))
    examples = f"Examples\n--------\n{own_example or example}"
    function.__doc__ = "\n\n".join([head, *written, f"Source: {source}.", examples])


def example_of(*kernels: Kernel) -> str:
    """Returns the examples of records as one doctest, which begins with its imports. Raises TypeError: a record has no example of
    its public function."""
    for kernel in kernels:
        if f"{kernel.public}(" not in kernel.example:
            raise TypeError(f"{kernel.name}: its record has no example of {kernel.public}; write one in `example`")
    text = "\n\n".join(cleandoc(kernel.example) for kernel in kernels)
    families = sorted({kernels[0].public.partition(".")[0], *HELPERS.findall(text)})
    imports = [">>> import numpy as np"] * ("np." in text) + [f">>> from fedkern.kernels import {', '.join(families)}"]
    return "\n".join([*imports, text])


def format_arguments(
    names: Iterable[str], annotations: Mapping[str, str], kernels: Sequence[Kernel], varying: Collection[str] | None = None
) -> str:
    """Returns the entries of a public function's arguments; `varying` is given for a function that binds calls."""
    first, entries = kernels[0], []
    arrays = {same[0].name: same for same in zip(*(kernel.inputs for kernel in kernels))}
    scalars = {s.keyword: s for s in first.scalars if s.domain is not MADE}
    # The kind comes from the record where it has one, else from the annotation.
    for name in names:
        kind, _, rest = annotations[name].partition(" | ")
        words = words_of(first, name)
        if name in arrays:
            or_float = ", or float" if kind == "float" or rest == "float" else ""
            kind = describe_array(arrays[name]) + or_float
            words = words if varying is None else OF_ANY_CALL if name in varying else words + STAYS
        elif name in scalars:
            kind = describe_scalar(scalars[name], kind)
        elif name == "out":
            kinds = [describe_array(outputs) for outputs in zip(*(kernel.outputs for kernel in kernels))]
            kind = kinds[0] if len(kinds) == 1 else f"tuple of {len(kinds)} arrays"
        elif name == "backend":
            kind = " or ".join(f'"{b}"' for b in first.backends)
        written = f"{kind}, optional" if rest.endswith("None") else kind
        entries.append(format_entry(name, written, words))
    return "\n".join(entries)


def format_results(kernels: Sequence[Kernel]) -> str:
    """Returns the entries of a public function's results."""
    first, entries = kernels[0], []
    for result in first.results or [a.name for a in first.outputs]:
        name, _, kind = result.partition(" : ")
        kind = kind or describe_array([a for kernel in kernels for a in kernel.outputs if a.name == name])
        name = "result" if name == "out" else name
        entries.append(format_entry(name, kind, words_of(first, name)))
    return "\n".join(entries)


def words_of(kernel: Kernel, name: str) -> str:
    """Returns the meaning of an argument or a result, in the record's words."""
    words = kernel.words.get(name) or COMMON.get(name)
    if not words:
        raise TypeError(f"{kernel.name}: its record has no words for {name!r}; say in `words` what it means")
    return words


def describe_array(arrays: Sequence[Array]) -> str:
    """Returns shape and type of an array, of one record or of several."""
    shapes = [a.written[0] for a in arrays]
    shape = " or ".join(dict.fromkeys(shapes)) if len(shapes) > 1 else shapes[0]
    return f"{shape} {arrays[0].written[1]}"


def describe_scalar(scalar: Scalar, annotation: str) -> str:
    """Returns type and domain of a scalar."""
    kind = "str" if scalar.domain.codes else annotation
    domain = scalar.domain.may_be
    return kind if not domain or kind == "bool" else f"{kind}, {domain}"


def format_entry(name: str, kind: str, words: str) -> str:
    """Returns one argument in NumPy's style. It wraps lines itself, so that an import need not wait for textwrap."""
    lines = [f"{name} : {kind}"]
    while len(words) > WIDTH:
        end = words.rfind(" ", 0, WIDTH)
        lines.append(words[:end])
        words = words[end + 1 :]
    return "\n    ".join([*lines, words])
