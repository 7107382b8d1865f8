"""Makes the public functions of the kernels callable inside other people's nopython code, from their records.

Numba calls `init` the first time that it compiles anything (the entry point `numba_extensions` of the package), so that nothing
of fedkern imports Numba by itself. Each function of `PUBLIC` then has its arguments inside `@njit`, all of them by name or in
their order. Two functions are generated for each: the first (`_public_of`) has the public signature, converts arguments as the
public function does, and checks conditions that tie several together; it calls the second (`_compute_of`), which does for typed
arguments what `Kernel.compute` does: types when it is compiled, shapes and numbers when it runs, allocation, the call of the
Numba backend.

An error about a value that is known only at run time is a fixed text: it names the kernel, the argument and its domain, and not
the value that came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload
from numba.np.numpy_support import as_dtype

from .. import glm, privacy, rng, sem, shrinkage
from .._record import HERE, KERNELS, Array, Kernel, Scalar
from ._jit import EXACT

_SYMBOL = re.compile(r"[a-z]\w*")


class Public(NamedTuple):
    """Says what a public function does beside its record. Lines are nopython code, in which the arguments and the functions of
    `_adapters` have their names."""

    function: Callable[..., Any]  # the public function
    kernels: tuple[str, ...]  # its record; or two, of which the arrays' dimensions choose one
    before: tuple[str, ...] = ()  # lines that convert arguments, or raise; "name = .." replaces an argument
    # symbol of a shape -> expression, where no input binds it
    sizes: dict[str, str] = {}  # noqa: RUF012 (never changed)
    # scalars that are no arguments -> expression
    made: dict[str, str] = {}  # noqa: RUF012
    after: tuple[str, ...] = ()  # lines that raise, when `results` has what the backend returned and the outputs
    result: str = ""  # expression, if it is not the outputs in their order, after the value that the backend returns
    returns: bool | None = None  # whether `results` begins with that value, if not as the record says


_STEPS = "check_steps(step, n_sweeps)"
_FACTOR = "check_factor(R)"
_OWN_BLOCKS = "check_counter(size, key, client, step, 0, first_item, 1)"
_SCALE = "check_scale(family, scale)"
_FAULT = "raise_fault(results[{}])"
_SERVER = "check_server(deviation.shape[0], deviation.shape[2], deviation.shape[3], indicators, step, n_passes)"

PUBLIC = (
    *(
        Public(
            getattr(rng, name),
            (f"rng.{name}",),
            before=(f"check_counter(size, key, client, step, draw, first_item, {per_block})",),
            sizes={"size": "size"},
        )
        for name, per_block in (("words", 1), ("uniform", 2), ("normal", 2), ("exponential", 2))
    ),
    *(
        Public(
            getattr(rng, name),
            (f"rng.{name}",),
            before=(
                f"size = length_of(size, {given[0]}, {given[-1]})",
                *(f"{a} = spread(size, {a})" for a in given),
                _OWN_BLOCKS,
            ),
        )
        for name, given in (("gamma", ("shape",)), ("inverse_gaussian", ("mean", "shape")), ("polya_gamma", ("z",)))
    ),
    Public(glm.loglik_grad, ("glm.loglik_grad",), before=(_SCALE,)),
    Public(
        glm.elbo_grad,
        ("glm.elbo_grad", "glm.elbo_grad_full"),
        before=(
            _SCALE,
            "prior_shift = spread_out(prior_shift, mu)",
            "prior_precision = precision_of(prior_precision, mu, log_sigma)",
        ),
        made={
            "key": 'draws_key(estimator != "analytic", seed, chain)',
            "normaliser": "log_normaliser(prior_shift, prior_precision, log_sigma)",
        },
    ),
    Public(glm.expectations, ("glm.expectations", "glm.expectations_full"), before=(_SCALE,)),
    Public(
        glm.clipped_grad_sum,
        ("glm.clipped_grad_sum", "glm.clipped_grad_sum_full"),
        before=(_SCALE, "check_clipped(clip, noise_multiplier, grid)", "check_estimator(estimator, log_sigma)"),
        made={"key": 'draws_key(estimator != "analytic" or noise_multiplier > 0, seed, chain)'},
        result="results[1], results[0]",
    ),
    Public(glm.predict, ("glm.predict", "glm.predict_full"), before=(_SCALE,)),
    Public(privacy.clip_sum, ("privacy.clip_sum",)),
    Public(privacy.add_noise, ("privacy.add_noise",), made={"key": "key_of(seed, chain, NOISE)"}),
    Public(
        privacy.discrete_gaussian,
        ("privacy.discrete_gaussian",),
        sizes={"size": "size"},
        result="results[1][: results[0][0]], results[0][1]",
        returns=True,
    ),
    Public(sem.log_density, ("sem.log_density",), before=("Y = by_chain(Y, coefficients)",)),
    Public(
        sem.sweeps,
        ("sem.sweeps",),
        before=("Y = by_chain(Y, deviation)", "check_model(Y, temperature)", "update = update_of(update, Y)"),
        after=(_FAULT.format(5),),
    ),
    Public(
        shrinkage.local_sweeps,
        ("shrinkage.local_sweeps",),
        before=(_STEPS, _FACTOR, "q = per_chain(q, theta)", "rss = spread(theta.shape[0], rss)"),
        after=(_FAULT.format(3),),
    ),
    Public(shrinkage.local_sweeps_batched, ("shrinkage.local_sweeps_batched",), (_STEPS, _FACTOR), after=(_FAULT.format(3),)),
    Public(
        shrinkage.gaussian_posterior_draw,
        ("shrinkage.gaussian_posterior_draw",),
        before=(_FACTOR, "q = per_chain(q, mean)"),
        after=("raise_unless_finite(results[0])",),
    ),
    Public(
        shrinkage.global_sweep,
        ("shrinkage.global_sweep",),
        before=(_SERVER, "check_passes(n_passes, scales)"),
        after=(_FAULT.format(8),),
    ),
    Public(
        shrinkage.global_sweep_sums,
        ("shrinkage.global_sweep_sums",),
        before=("check_server(n_clients, sums.shape[2], sums.shape[3], indicators, step, 1)", "check_sums(sums, slab)"),
        made={"scale_lambda": "1.0"},
        after=(_FAULT.format(6),),
    ),
    Public(shrinkage.local_sums, ("shrinkage.local_sums",), sizes={"s": "4 if slab < inf else 3"}),
    Public(shrinkage.move_terms, ("shrinkage.move_terms",), before=("check_block(block, theta)", "q = per_chain(q, theta)")),
    Public(
        shrinkage.move,
        ("shrinkage.move",),
        before=("check_block(block, theta)",),
        after=("raise_unless_finite(results[0])", "raise_unless_finite(results[1])"),
    ),
    Public(
        shrinkage.logistic_sweeps,
        ("shrinkage.logistic_sweeps",),
        before=(_STEPS, "y = per_chain(y, theta)", "check_binary(y)"),
        after=(_FAULT.format(3),),
    ),
    Public(
        shrinkage.imputed_sweeps,
        ("shrinkage.imputed_sweeps",),
        before=(_STEPS, "check_patterns(patterns, X)", "y = per_chain(y, theta)"),
        after=(_FAULT.format(5),),
    ),
)


@cache
def init() -> None:
    """Tells Numba of the public functions, once."""
    from . import _adapters

    for public in PUBLIC:
        _register(public, vars(_adapters))
    overload(rng.key, prefer_literal=True, jit_options=EXACT)(_adapters.key)


def _register(public: Public, known: dict[str, Any]) -> None:
    text = _parameters(public.function)
    defaults = {f"default_{p.name}": p.default for p in signature(public.function).parameters.values()}
    scope: dict[str, Any] = {**defaults, "make": _public_of, "public": public, "known": {**known, **defaults}}
    exec(f"def typed({text}):\n    return make(public, locals(), known)", scope)
    # A name that Numba's errors show.
    scope["typed"].__name__ = scope["typed"].__qualname__ = public.function.__name__
    overload(public.function, prefer_literal=True, jit_options=EXACT)(scope["typed"])


def _parameters(function: Callable[..., Any]) -> str:
    """Returns the public arguments as ordinary ones. Numba binds no keyword-only argument of an overload; those without a default
    come before the others, as they do in the public functions."""
    given = list(signature(function).parameters.values())
    needed, others = [p for p in given if p.default is Parameter.empty], [p for p in given if p.default is not Parameter.empty]
    return ", ".join([p.name for p in needed] + [f"{p.name}=default_{p.name}" for p in others])


def _value(given: Any) -> Any:
    """Returns the Python value of an argument that is known when it is compiled (a default, None, a text), else its type."""
    if isinstance(given, types.Omitted):
        given = given.value
    if isinstance(given, types.NoneType):
        return None
    return given.literal_value if isinstance(given, types.StringLiteral) else given


def _public_of(public: Public, given: dict[str, Any], known: dict[str, Any]) -> Callable[..., Any]:
    """Returns the nopython version of a public function for arguments of these types."""
    values = {name: _value(value) for name, value in given.items()}
    kernel = _chosen(public, values)
    if values["backend"] not in (None, "numba"):
        raise TypingError(f"{kernel.public}: inside nopython code backend must be None or 'numba'")
    # What is known now stands in the code as a constant, so that Numba compiles no branch that is not taken.
    constants = {name: repr(v) for name, v in values.items() if v is None or isinstance(v, (str, bool))}
    lines, variables = [], {name: constants.get(name, name) for name in values}
    for line in public.before:
        name, is_assignment, expression = line.partition(" = ")
        if is_assignment and _SYMBOL.fullmatch(name.lower()):
            lines.append(f"new_{name} = {_named(expression, variables)}")
            variables[name] = f"new_{name}"
        else:
            lines.append(_named(line, variables))
    scalars = {s.keyword: _named(public.made.get(s.keyword, s.keyword), variables) for s in kernel.scalars}
    arguments = [variables[a.name] for a in kernel.inputs] + [*scalars.values()]
    arguments += [_named(expression, variables) for expression in public.sizes.values()]
    returns = kernel.returns if public.returns is None else public.returns
    lines += [f"results = compute({', '.join([*arguments, variables['out']])})", *public.after]
    alone = len(kernel.outputs) == 1 and not returns
    whole = "results[0]" if alone else "results"
    lines.append(f"return {public.result or whole}")
    scope = {**known, "compute": _compute_of(kernel.name, tuple(public.sizes), returns), "inf": np.inf}
    return _compiled(public.function.__name__, _parameters(public.function), lines, scope)


def _named(expression: str, variables: dict[str, str]) -> str:
    """Returns an expression in which the arguments are the variables that hold them."""
    return re.sub(r"(?<![\w.\"'])[A-Za-z_]\w*(?!\w*[\"'(])", lambda m: variables.get(m[0], m[0]), expression)


def _chosen(public: Public, values: dict[str, Any]) -> Kernel:
    """Returns the record whose arrays have as many dimensions as the given ones; the last, which refuses them, if none has."""
    for name in public.kernels:
        kernel = KERNELS[name]
        arrays = [(len(a.shape), values[a.name]) for a in kernel.inputs if a.name == "log_sigma"]
        if all(getattr(given, "ndim", None) == ndim for ndim, given in arrays):
            break
    return kernel


@cache
def _compute_of(name: str, sizes: tuple[str, ...], returns: bool) -> Callable[..., Any]:
    """Returns the function that nopython code calls with (inputs, scalars by keyword, sizes, out) -> tuple of results."""
    kernel = KERNELS[name]
    keywords = list(dict.fromkeys(s.keyword for s in kernel.scalars))
    text = ", ".join([f"a_{a.name}" for a in kernel.inputs] + keywords + [f"z_{s}" for s in sizes] + ["out"])
    scope: dict[str, Any] = {}
    exec(f"def compute({text}):\n    raise NotImplementedError", scope)
    scope |= {"make": _typed_compute, "kernel": kernel, "sizes": sizes, "returns": returns, "text": text}
    exec(f"def typed({text}):\n    return make(kernel, sizes, returns, text, locals())", scope)
    compute: Callable[..., Any] = scope["compute"]
    compute.__name__ = kernel.name.replace(".", "_")
    overload(compute, prefer_literal=True, jit_options=EXACT)(scope["typed"])
    return compute


def _typed_compute(
    kernel: Kernel, sizes: Sequence[str], returns: bool, parameters: str, given: dict[str, Any]
) -> Callable[..., Any]:
    values = {name: _value(value) for name, value in given.items()}
    # Numbers first, as in `Kernel.compute`, then arrays: all is checked before anything is allocated or written.
    lines, variables = _scalar_lines(kernel, values)
    bound, checks = list(sizes), []
    for a in kernel.inputs:
        _check_type(kernel, a, values[f"a_{a.name}"], values)
        if values[f"a_{a.name}"] is not None:
            checks += _shape_lines(kernel, a, f"a_{a.name}", bound)
    places, allocated = _output_lines(kernel, values, bound)
    names = {a.name: f"a_{a.name}" for a in kernel.inputs} | variables
    if kernel.order:
        names |= {a.name: place for a, place in zip(kernel.outputs, places)} | {"n_threads": "1"}
        arguments = [names[name] for name in kernel.order]
    else:
        arguments = [*(names[a.name] for a in kernel.inputs), *variables.values(), *places, "1"]
    lines += [*checks, *allocated, f"returned = backend({', '.join(arguments)})"]
    of_call = "returned, " if returns else ""
    lines.append(f"return ({of_call}{''.join(f'{place}, ' for place in places)})")
    family, function = kernel.name.split(".")
    backend = getattr(import_module(f"{HERE}._numba.{family}"), function)
    scope = {"backend": backend, "empty": np.empty, "inf": np.inf, "int64": np.int64}
    scope |= {"uint64": np.uint64, **{f"t_{t}": t for a in kernel.outputs for t in map(np.dtype, a.dtypes)}}
    return _compiled(kernel.name.replace(".", "_"), parameters, lines, scope)


def _compiled(name: str, parameters: str, lines: Sequence[str], scope: dict[str, Any]) -> Callable[..., Any]:
    exec("\n    ".join([f"def {name}({parameters}):", *lines]), scope)
    function: Callable[..., Any] = scope[name]
    return function


def _raise(what: str) -> str:
    return f"raise ValueError({what!r})"


def _scalar_lines(kernel: Kernel, values: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Returns lines that refuse scalars or make the values for the backend, and name -> the variable of each."""
    lines, variables, tests = [], {}, []
    for number, s in enumerate(kernel.scalars):
        value, variable, domain = values[s.keyword], f"value_{number}", s.domain
        variables[s.name] = variable
        if domain.codes is not None:
            lines += _code_lines(kernel, s, value, variable)
            continue
        where = f"{kernel.public}: {s.keyword}"
        passed = domain.passed
        if value is None:
            if "None" not in domain.test and "or 0.0" not in passed:
                raise TypingError(f"{where} must not be None")
            zero = "0.0" if "float" in passed else "uint64(0)"
            lines.append(f"{variable} = {zero}")
            continue
        if isinstance(value, types.Optional):
            raise TypingError(f"{where} may be None at run time; branch on it, and call once with None and once with a number")
        if domain.test:
            test = re.sub(r"\bx\b", s.keyword, domain.test.replace("x is None or ", ""))
            tests.append(((f"if not ({_within(test)}):", f"    {_raise(f'{where} {domain.words}')}"), s.keyword))
        lines.append(f"{variable} = {_conversion(where, s, value)}")
    together = {name: t for t in kernel.together for name in t.names}
    checks: list[str] = []
    for (condition, refusal), keyword in tests:
        if keyword in together:
            refusal = f"    {_raise(f'{kernel.public}: needs {together[keyword].words}')}"
        checks += [condition, refusal]
    for t in kernel.together:
        if t.test:
            checks += [f"if not ({t.test}):", f"    {_raise(f'{kernel.public}: needs {t.words}')}"]
    return checks + lines, variables


def _within(test: str) -> str:
    """Returns a test whose bounds are numbers that Numba has: below 2^64 is at most 2^64 - 1."""
    for power in ("64", "63"):
        test = test.replace(f"< 2**{power}", f"<= {2 ** int(power) - 1}")
    return test


def _conversion(where: str, s: Scalar, value: Any) -> str:
    """Returns the expression of the value that the backend gets. Mixed whole numbers would become floats in Numba's arithmetic:
    keys and seeds are uint64, other whole numbers int64."""
    passed, words = s.domain.passed, s.domain.words
    if passed.startswith("x."):
        return re.sub(r"\bx\b", s.keyword, passed)
    is_type = isinstance(value, types.Type)
    if passed.startswith("float"):
        if is_type and not isinstance(value, (types.Float, types.Integer, types.Boolean)):
            raise TypingError(f"{where} must be a number, got {value}")
        return f"float({s.keyword})"
    if passed.startswith("bool"):
        return f"bool({s.keyword})"
    if "index" in passed or "int(" in passed or "2^" in words:
        if is_type and not isinstance(value, types.Integer):
            raise TypingError(f"{where} must be a whole number, got {value}")
        type_name = "uint64" if "2^64" in words else "int64"
        return f"{type_name}({s.keyword})"
    return s.keyword


def _code_lines(kernel: Kernel, s: Scalar, value: Any, variable: str) -> list[str]:
    """Returns the lines that make the code of a choice, which is a constant where the text is."""
    codes, words = s.domain.codes or {}, f"{kernel.public}: {s.keyword} {s.domain.words}"
    if isinstance(value, str):
        if value not in codes:
            raise TypingError(f"{words}, got {value!r}")
        return [f"{variable} = {codes[value]!r}"]
    if not isinstance(value, types.UnicodeType):
        raise TypingError(f"{words}, got {value}")
    lines = []
    for i, (text, code) in enumerate(codes.items()):
        lines += [f"{'el' if i else ''}if {s.keyword} == {text!r}:", f"    {variable} = {code!r}"]
    return [*lines, "else:", f"    {_raise(words)}"]


def _check_type(kernel: Kernel, a: Array, value: Any, values: dict[str, Any]) -> None:
    """Refuses an argument whose type is no array that the record allows."""
    if value is None and a.optional:
        return
    where = f"{kernel.public}: {a.name}"
    if isinstance(value, types.Optional):
        raise TypingError(f"{where} may be None at run time; branch on it, and call once with None and once with an array")
    if not isinstance(value, types.Array):
        raise TypingError(f"{where} must be an array, got {value}")
    if value.ndim != len(a.shape):
        raise TypingError(f"{where} must have shape ({', '.join(a.shape)}), got {value.ndim} dimensions")
    if as_dtype(value.dtype) not in a.dtypes:
        raise TypingError(f"{where} must be {' or '.join(map(str, a.dtypes))}, got {value.dtype}")
    if a.like and value.dtype != (first := values[f"a_{kernel.inputs[0].name}"].dtype):
        raise TypingError(f"{where} must be {first} as {a.like} is, got {value.dtype}")


def _shape_lines(kernel: Kernel, a: Array, variable: str, bound: list[str]) -> list[str]:
    """Returns lines that bind the symbols that this array is the first to have, and compare the others."""
    lines, wrong = [], []
    for k, symbol in enumerate(a.shape):
        if symbol.isidentifier() and symbol not in bound:
            bound.append(symbol)
            lines.append(f"z_{symbol} = {variable}.shape[{k}]")
        else:
            wrong.append(f"{variable}.shape[{k}] != {_length(symbol)}")
    if wrong:
        shape = f"({', '.join(a.shape)})"
        lines += [f"if {' or '.join(wrong)}:", f"    {_raise(f'{kernel.public}: {a.name} must have shape {shape}')}"]
    return lines


def _length(symbol: str) -> str:
    return _SYMBOL.sub(lambda m: f"z_{m[0]}", symbol).replace("/", "//")


def _output_lines(kernel: Kernel, values: dict[str, Any], bound: list[str]) -> tuple[list[str], list[str]]:
    """Returns the variables of the outputs, and lines that allocate them or check the given ones."""
    places, lines, out, number = [], [], values["out"], len(kernel.outputs)
    given: Sequence[Any] = [None] * number if out is None else [out]
    if isinstance(out, types.BaseTuple):
        given = [_value(t) for t in values["out"]]
    if len(given) != number:
        raise TypingError(f"{kernel.public}: out must be a tuple of {', '.join(a.name for a in kernel.outputs)}")
    for i, (a, value) in enumerate(zip(kernel.outputs, given)):
        place = f"output_{i}"
        places.append(place)
        which = int(bool(a.second) and values[a.second] is not None)
        if value is None:
            like = f"a_{kernel.inputs[0].name}.dtype" if a.like else f"t_{a.dtypes[which]}"
            lines.append(f"{place} = empty(({', '.join(map(_length, a.shape))},), {like})")
            continue
        _check_type(kernel, a, value, values)
        if not value.mutable:
            raise TypingError(f"{kernel.public}: {a.name} is read-only")
        if a.second and as_dtype(value.dtype) != a.dtypes[which]:
            raise TypingError(f"{kernel.public}: {a.name} must be {a.dtypes[which]} here, got {value.dtype}")
        variable = "out" if number == 1 else f"out[{i}]"
        lines += [f"{place} = {variable}", *_shape_lines(kernel, a, place, bound)]
    return places, lines
