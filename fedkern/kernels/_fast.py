"""Generates one function that checks all arguments of a call and allocates its outputs.

It takes a fifth of the time of one array after the other. It only tells whether all is well; where it is not, `Array.check` and
`Domain.check` say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np

from ._checks import NAMES, Domain, Together

_SYMBOL = re.compile(r"[a-z]\w*")
Named: TypeAlias = dict[str, Any]  # what generated statements name
Function: TypeAlias = Callable[..., Any]
Compute: TypeAlias = Callable[..., tuple[Any, ...]]


class ArrayLike(Protocol):
    """Lists the attributes that this module reads of the record of an array."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[str, ...]: ...
    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]: ...
    @property
    def optional(self) -> bool: ...
    @property
    def like(self) -> str: ...
    @property
    def second(self) -> str: ...


class ScalarLike(Protocol):
    """Lists the attributes that this module reads of the record of a scalar."""

    @property
    def name(self) -> str: ...
    @property
    def keyword(self) -> str: ...
    @property
    def domain(self) -> Domain: ...


Refuse = Callable[[Mapping[str, Any]], None]  # by keyword; raises


def sizes_of(inputs: Sequence[ArrayLike]) -> Callable[..., dict[str, int] | None]:
    """Returns a function: (inputs by name, further symbols) -> all sizes, or None where an input is not plainly right."""
    source, bound, known = _check_statements(inputs, _unpack_by_name, "None")
    return _compile("inputs, symbols", [*source, f"return {{**symbols, {', '.join(f'{s!r}: {s}' for s in bound)}}}"], known)


def arrays_of(inputs: Sequence[ArrayLike], outputs: Sequence[ArrayLike]) -> Callable[..., list[Any] | None]:
    """Returns a function: (inputs by name, further sizes) -> the list of inputs and newly allocated outputs, or None."""
    source, bound, known = _check_statements(inputs, _unpack_by_name, "None")
    arrays = [f"a{i}" for i in range(len(inputs))] + [f"o{i}" for i in range(len(outputs))]
    lines = [*source, *_allocation_statements(outputs, bound, known), f"return [{', '.join(arrays)}]"]
    return _compile("inputs, symbols", lines, known)


def numbers_of(scalars: Sequence[ScalarLike], together: Sequence[Together], refuse: Refuse) -> Compute:
    """Returns a function: (scalars by keyword) -> the values that backends get, in their order. It raises the error of
    `refuse`."""
    source, keywords, known = _scalar_statements(scalars, together, refuse)
    return _compile(keywords.lstrip(", "), [*source, f"return ({''.join(f'_c{i}, ' for i in range(len(scalars)))})"], known)


def compute_of(
    inputs: Sequence[ArrayLike],
    scalars: Sequence[ScalarLike],
    together: Sequence[Together],
    outputs: Sequence[ArrayLike],
    order: Sequence[str],
    returns: bool,
    function: Function,
    refuse: Refuse,
    threads: Callable[[object], int],
    slowly: Compute,
    refused: Callable[[Sequence[Any]], None],
) -> Compute:
    """Returns a function that checks, allocates and calls: (inputs in their order, out, threads, backend, further symbols,
    scalars by keyword) -> the outputs, filled by `function`. The value that `function` returns comes before them, if it is
    wanted.

    Where a backend or one of several outputs is given, or an array is not plainly right, `slowly` is called instead with (inputs,
    values of the scalars for backends, out, threads, backend, further symbols). `threads` refuses a wrong number of threads;
    `refused` looks at the arrays of which `function` has refused one, and may have better words.
    """
    # Scalars are refused first: a wrong number is then told before a wrong array, on both ways.
    numbers, keywords, known = _scalar_statements(scalars, together, refuse)
    otherwise = f"slowly(inputs, ({''.join(f'_c{i}, ' for i in range(len(scalars)))}), out, n_threads, backend, symbols)"
    checks, bound, named = _check_statements(inputs, _unpack_in_order, otherwise)
    known |= named | {"function": function, "threads": threads, "slowly": slowly, "refused": refused}
    # Backends may take their arguments in another order than inputs, scalars, outputs.
    variables = {a.name: f"a{i}" for i, a in enumerate(inputs)} | {s.name: f"_c{i}" for i, s in enumerate(scalars)}
    variables |= {a.name: f"o{i}" for i, a in enumerate(outputs)} if order else {}
    arguments = [variables.get(name, name) for name in order] or [
        *(f"a{i}" for i in range(len(inputs))),
        *(f"_c{i}" for i in range(len(scalars))),
        *(f"o{i}" for i in range(len(outputs))),
        "n_threads",
    ]
    # A given backend is rare, and goes the long way.
    lines = [
        *numbers,
        "if type(n_threads) is not int or not 0 < n_threads < 2147483648: n_threads = threads(n_threads)",
        f"if backend is not None: return {otherwise}",
        *checks,
        "if out is None:",
        *(f"    {line}" for line in _allocation_statements(outputs, bound, known, variables) or ["pass"]),
        f"elif not ({_is_usable(inputs, outputs, bound, known)}): return {otherwise}",
        "else: o0 = out",
        f"try: {'returned = ' if returns else ''}function({', '.join(arguments)})",
        f"except ValueError: refused(({''.join(f'a{i}, ' for i in range(len(inputs)))})); raise",
        f"return ({'returned, ' if returns else ''}{''.join(f'o{i}, ' for i in range(len(outputs)))})",
    ]
    return _compile(f"inputs, out, n_threads, backend, symbols=None{keywords}", lines, known)


def _unpack_by_name(inputs: Sequence[ArrayLike]) -> list[str]:
    return [f"a{i} = inputs[{a.name!r}]" for i, a in enumerate(inputs)]


def _unpack_in_order(inputs: Sequence[ArrayLike]) -> list[str]:
    return [f"{''.join(f'a{i}, ' for i in range(len(inputs)))}= inputs"] if inputs else []


def _scalar_statements(
    scalars: Sequence[ScalarLike], together: Sequence[Together], refuse: Refuse
) -> tuple[list[str], str, Named]:
    """Returns statements that refuse scalars or bind the values for backends, the keywords as parameters, and the names that the
    statements use."""
    known: Named = {**NAMES, "refuse": refuse}
    keywords = list(dict.fromkeys(s.keyword for s in scalars))
    tests, lines = [f"({t.test})" for t in together if t.test], []
    names = f"{{{', '.join(f'{k!r}: {k}' for k in keywords)}}}"
    for i, s in enumerate(scalars):
        known[f"codes{i}"] = s.domain.codes
        if s.domain.test:
            tests.append(f"({_of_scalar(s.domain.test, s.keyword, i)})")
        lines.append(f"_c{i} = {_of_scalar(s.domain.passed, s.keyword, i)}")
    # A value of a wrong type may raise anything in a test, or where it is passed on: `refuse` says which it is.
    if lines:
        passed = [f"        {line}" for line in lines]
        lines = ["try:", f"    _fits = {' and '.join(tests) or True}", "    if _fits:", *passed]
        lines += ["except Exception: _fits = False", f"if not _fits: refuse({names})"]
    named = f", *, {', '.join(keywords)}" if keywords else ""
    return lines, named, known


def _of_scalar(expression: str, keyword: str, number: int) -> str:
    """Returns a domain's expression for one scalar of several."""
    return re.sub(r"\bx\b", keyword, re.sub(r"\bcodes\b", f"codes{number}", expression))


def _check_statements(
    inputs: Sequence[ArrayLike], unpack: Callable[[Sequence[ArrayLike]], list[str]], otherwise: str
) -> tuple[list[str], list[str], Named]:
    """Returns statements that bind all symbols or return `otherwise`, the symbols, and the names that the statements use."""
    known: Named = {"ndarray": np.ndarray, "empty": np.empty}
    bound: list[str] = []
    lines = unpack(inputs)
    for i, a in enumerate(inputs):
        test = f"a{i}.dtype is not t{i}" if len(a.dtypes) == 1 else f"a{i}.dtype not in t{i}"
        wrong = [f"type(a{i}) is not ndarray", test]
        known[f"t{i}"] = a.dtypes[0] if len(a.dtypes) == 1 else a.dtypes
        if a.like:
            wrong.append(f"a{i}.dtype is not a0.dtype")
        # Symbols that this array is the first to have; those bound by earlier arrays are compared below.
        fresh = [s for s in dict.fromkeys(a.shape) if s not in bound and s.isidentifier()]
        # A vector of a length that no other array has needs no symbol: it may be any length, unless one is asked for.
        if a.optional and fresh and len(a.shape) == 1 and not _named_again(fresh[0], inputs[i + 1 :]):
            wrong = [*wrong, f"a{i}.ndim != 1", f"{fresh[0]!r} in (symbols or ())"]
            lines.append(f"if a{i} is not None and ({' or '.join(wrong)}): return {otherwise}")
            continue
        # An optional array that would bind sizes, or a formula of unbound sizes: the slow check knows what to do.
        if (a.optional and fresh) or not set(_SYMBOL.findall(" ".join(a.shape))) <= {*bound, *fresh}:
            return [f"return {otherwise}"], [], known  # one after the other
        shape = [s.replace("/", "//") for s in a.shape]
        if not fresh:
            wrong.append(f"a{i}.shape != ({', '.join(shape)},)")
        if a.optional:
            lines.append(f"if a{i} is not None and ({' or '.join(wrong)}): return {otherwise}")
            continue
        lines.append(f"if {' or '.join(wrong)}: return {otherwise}")
        if fresh:
            names = [s if s in fresh and s not in shape[:k] else f"s{k}" for k, s in enumerate(shape)]
            lines += [f"if a{i}.ndim != {len(a.shape)}: return {otherwise}", f"{', '.join(names)}, = a{i}.shape"]
            lines += [f"if {name} != {s}: return {otherwise}" for name, s in zip(names, shape) if name != s]
            bound += fresh
    # Sizes that the caller gave besides must agree with those of the arrays.
    if bound:
        lines.append(f"if symbols and ({' or '.join(f'symbols.get({s!r}, {s}) != {s}' for s in bound)}): return {otherwise}")
    return lines, bound, known


def _named_again(symbol: str, arrays: Sequence[ArrayLike]) -> bool:
    return any(symbol in _SYMBOL.findall(" ".join(a.shape)) for a in arrays)


def _allocation_statements(
    outputs: Sequence[ArrayLike], bound: Sequence[str], known: Named, variables: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Returns statements that allocate o0, o1, .., and adds to `known`. `variables` maps scalars to their variables."""
    lines = []
    for i, a in enumerate(outputs):
        known[f"u{i}"] = a.dtypes[0]
        lengths = (_SYMBOL.sub(lambda m: m[0] if m[0] in bound else f"symbols[{m[0]!r}]", s).replace("/", "//") for s in a.shape)
        shape = ", ".join(lengths)
        if a.second in variables:
            known[f"v{i}"] = a.dtypes[1]
            lines.append(f"o{i} = empty(({shape},), v{i} if {variables[a.second]} else u{i})")
        elif len(a.shape) == 1 and a.dtypes[0] == np.float64 and not a.like:
            lines.append(f"o{i} = empty({shape})")  # the fastest way
        else:
            lines.append(f"o{i} = empty(({shape},), {'a0.dtype' if a.like else f'u{i}'})")
    return lines


def _is_usable(inputs: Sequence[ArrayLike], outputs: Sequence[ArrayLike], bound: Sequence[str], known: Named) -> str:
    """Returns the expression for whether `out` is plainly right as the one output; it stands behind the inputs' checks."""
    if len(outputs) != 1 or outputs[0].second:
        return "False"
    known |= {"may_share_memory": np.may_share_memory}
    (output,) = outputs
    lengths = (_SYMBOL.sub(lambda m: m[0] if m[0] in bound else f"symbols[{m[0]!r}]", s).replace("/", "//") for s in output.shape)
    dtype = "a0.dtype" if output.like else "u0"
    tests = ["type(out) is ndarray", f"out.dtype is {dtype}", f"out.shape == ({', '.join(lengths)},)", "out.flags.carray"]
    for i, a in enumerate(inputs):
        tests.append(f"{f'a{i} is None or ' if a.optional else ''}not may_share_memory(out, a{i})")
    return " and ".join(f"({test})" for test in tests)


def _compile(parameters: str, lines: Sequence[str], known: Named) -> Function:
    exec("\n    ".join([f"def together({parameters}):", *lines]), known)
    function: Function = known["together"]
    return function
