"""All arrays of a call are checked, and its outputs allocated, in one generated function: a fifth of the time of one array after
the other. It only says whether all is well; where it is not, `Array.check` says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._registry import Array

_SYMBOL = re.compile(r"[a-z]\w*")


def sizes_of(inputs: Sequence[Array]) -> Callable[..., Any]:
    """(inputs by name, further sizes) -> all sizes, or None."""
    source, bound, known = _checks(inputs, by_name=True)
    return _compiled("inputs, sizes", [*source, f"return {{**sizes, {', '.join(f'{s!r}: {s}' for s in bound)}}}"], known)


def arrays_of(inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[..., Any]:
    """(inputs by name, further sizes) -> the list of inputs and newly allocated outputs, or None."""
    source, bound, known = _checks(inputs, by_name=True)
    allocate, arrays = _allocations(outputs, bound, known)
    result = ", ".join([f"a{i}" for i in range(len(inputs))] + arrays)
    return _compiled("inputs, sizes", [*source, *allocate, f"return [{result}]"], known)


def call_of(inputs: Sequence[Array], outputs: Sequence[Array], function: Callable[..., Any]) -> Callable[..., Any]:
    """(inputs in their order, scalars, further sizes, threads) -> the tuple of newly allocated outputs, filled; or None."""
    source, bound, known = _checks(inputs, by_name=False)
    known["function"] = function
    allocate, arrays = _allocations(outputs, bound, known)
    given = "".join(f"a{i}, " for i in range(len(inputs)))
    filled = "".join(f"{name}, " for name in arrays)
    lines = [*source, *allocate, f"function({given}*scalars, {filled}n_threads)", f"return ({filled})"]
    return _compiled("inputs, scalars, sizes, n_threads", lines, known)


def _checks(inputs: Sequence[Array], by_name: bool) -> tuple[list[str], list[str], dict[str, Any]]:
    """Statements that bind all symbols or return None; the symbols; what the statements name."""
    known: dict[str, Any] = {"ndarray": np.ndarray, "empty": np.empty}
    bound: list[str] = []
    lines = [f"a{i} = inputs[{a.name!r}]" for i, a in enumerate(inputs)]
    if inputs and not by_name:
        lines = [f"{''.join(f'a{i}, ' for i in range(len(inputs)))}= inputs"]
    for i, a in enumerate(inputs):
        wrong = [f"type(a{i}) is not ndarray", f"a{i}.dtype is not t{i}" if len(a.dtypes) == 1 else f"a{i}.dtype not in t{i}"]
        known[f"t{i}"] = a.dtypes[0] if len(a.dtypes) == 1 else a.dtypes
        if a.like:
            wrong.append(f"a{i}.dtype is not a0.dtype")
        fresh = [s for s in dict.fromkeys(a.shape) if s not in bound and s.isidentifier()]
        if (a.optional and fresh) or not set(_SYMBOL.findall(" ".join(a.shape))) <= {*bound, *fresh}:
            return ["return None"], [], known  # one after the other
        shape = [s.replace("/", "//") for s in a.shape]
        if not fresh:
            wrong.append(f"a{i}.shape != ({', '.join(shape)},)")
        if a.optional:
            lines.append(f"if a{i} is not None and ({' or '.join(wrong)}): return None")
            continue
        lines.append(f"if {' or '.join(wrong)}: return None")
        if fresh:
            names = [s if s in fresh and s not in shape[:k] else f"s{k}" for k, s in enumerate(shape)]
            lines += [f"if a{i}.ndim != {len(a.shape)}: return None", f"{', '.join(names)}, = a{i}.shape"]
            lines += [f"if {name} != {s}: return None" for name, s in zip(names, shape) if name != s]
            bound += fresh
    if bound:
        lines.append(f"if sizes and ({' or '.join(f'sizes.get({s!r}, {s}) != {s}' for s in bound)}): return None")
    return lines, bound, known


def _allocations(outputs: Sequence[Array], bound: Sequence[str], known: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Statements that allocate, and the names of the arrays; adds to `known`."""
    lines = []
    for i, a in enumerate(outputs):
        known[f"u{i}"] = a.dtypes[0]
        lengths = (_SYMBOL.sub(lambda m: m[0] if m[0] in bound else f"sizes[{m[0]!r}]", s).replace("/", "//") for s in a.shape)
        shape = ", ".join(lengths)
        if len(a.shape) == 1 and a.dtypes[0] == np.float64 and not a.like:
            lines.append(f"o{i} = empty({shape})")  # the fastest way
        else:
            lines.append(f"o{i} = empty(({shape},), {'a0.dtype' if a.like else f'u{i}'})")
    return lines, [f"o{i}" for i in range(len(outputs))]


def _compiled(arguments: str, lines: Sequence[str], known: dict[str, Any]) -> Callable[..., Any]:
    exec("\n    ".join([f"def together({arguments}):", *lines]), known)
    return known["together"]  # type: ignore[no-any-return]
