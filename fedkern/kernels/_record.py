"""Defines the record of a kernel, which the checks, the call, the documentation and the tests all read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property, partial
from importlib import import_module
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from . import _checks
from ._checks import MADE, POSITIVE, Domain, Together, as_numpy, exports, require
from ._fast import arrays_of, compute_of, numbers_of, sizes_of

Function: TypeAlias = Callable[..., Any]  # of a backend
Out: TypeAlias = np.ndarray | tuple[np.ndarray | None, ...] | None  # one output, or all; None: it is allocated

BACKENDS = ("cpp", "numba", "cuda", "reference")
WITHOUT_CUDA = ("cpp", "numba", "reference")
WITHOUT_NUMBA = ("cpp", "cuda", "reference")
COMPILED = ("cpp", "reference")
HERE = "fedkern.kernels"
FLOATS = (np.dtype("float64"), np.dtype("float32"))
F64 = (np.dtype("float64"),)

KERNELS: dict[str, Kernel] = {}  # filled by the records themselves


def home(value: object) -> str | None:
    """Returns the backend that lives where the array does; None for any other object."""
    if isinstance(value, np.ndarray):
        return "cpp"
    return "cuda" if type(value).__module__.partition(".")[0] == "cupy" else None


def masked(value: object) -> bool:
    """Tells whether a value is an array whose masked cells a kernel would take for data."""
    return isinstance(value, np.ma.MaskedArray)


def here(array: Any) -> Any:
    """Returns an array of another library as a NumPy array in the same memory; any other object unchanged.

    For functions that look at an array before the record checks it, which names the objects that NumPy can't take.
    """
    if type(array) is np.ndarray or home(array) is not None or not exports(array):
        return array
    try:
        return as_numpy(array, "")
    except TypeError:
        return array


def on_host(array: Any) -> Any:
    """Returns an array of a device as a NumPy array, which is waited for; any other object unchanged."""
    return array.get() if home(array) == "cuda" else array


_named = cache(str)  # a type, whose name takes NumPy some microseconds


@dataclass(frozen=True)
class Array:
    """Describes an array argument."""

    name: str  # as in the public function
    shape: tuple[str, ...]  # one symbol a dimension; "2*d" in an output is twice the size d
    dtypes: tuple[np.dtype[Any], ...] = FLOATS  # the types that it may have; an output that is allocated has the first
    optional: bool = False  # may be None
    like: str = ""  # the first input, where the type must be the same; then an output that is allocated has it
    second: str = ""  # a scalar; where it is not 0, an output that is allocated has the second of its types

    @cached_property
    def written(self) -> tuple[str, str]:
        """Shape and type, as documents have them."""
        comma = "," if len(self.shape) == 1 else ""
        shape = f"({', '.join(self.shape)}{comma})"
        if self.like:
            return shape, f"array of the type of {self.like}"
        if len(self.dtypes) == 1:
            return shape, f"{_named(self.dtypes[0])} array"
        types_first = reversed(FLOATS) if self.dtypes == FLOATS else self.dtypes
        *types, last = map(_named, types_first)
        return shape, f"array, {', '.join(types)} or {last}"

    def check(self, kernel: str, value: Any, sizes: dict[str, int]) -> Any:
        """Returns the array itself, or raises an error that names the argument, its domain, and the value that came.

        For an array of another library (`__dlpack__`) it returns a NumPy array in the same memory.
        """
        if value is None and self.optional:
            return None
        if type(value) is not np.ndarray and home(value) is None:
            if not exports(value):
                raise TypeError(f"{kernel}: {self.name} must be a NumPy or CuPy array, got {type(value).__name__}")
            value = as_numpy(value, f"{kernel}: {self.name}")
        # NumPy would hand over the numbers below the mask.
        if masked(value):
            raise TypeError(f"{kernel}: {self.name} is a masked array, whose masked cells would be data; leave those rows out")
        if value.dtype not in self.dtypes:
            raise TypeError(f"{kernel}: {self.name} must be {' or '.join(map(str, self.dtypes))}, got {value.dtype}")
        # The first array with a symbol says its size; the others must agree.
        shape = value.shape
        fits = len(shape) == len(self.shape)
        for symbol, n in zip(self.shape, shape):
            if symbol in sizes:
                fits &= sizes[symbol] == n
            elif symbol.isidentifier():
                sizes[symbol] = n
            else:
                fits &= size(symbol, sizes) == n
        if not fits:
            given = ", ".join(
                f"{s} = {sizes[s]}"
                for s in dict.fromkeys(t for d in self.shape for t in re.findall(r"[a-z]\w*", d))
                if s in sizes
            )
            known = f" with {given}" if given else ""
            raise ValueError(f"{kernel}: {self.name} must have shape ({', '.join(self.shape)}){known}, got {value.shape}")
        return value


def require_numba() -> None:
    """Raises ImportError, which names the extra, where Numba is not installed."""
    try:
        import_module("numba")
    except ImportError as error:
        raise ImportError('backend = "numba" needs Numba; pip install "fedkern[numba]"') from error


@cache
def load_blas() -> None:
    """Gives SciPy's BLAS and LAPACK to the compiled kernels. Raises ImportError: a routine has not the C signature for which
    fedkern was built."""
    from scipy.linalg import cython_blas, cython_lapack

    from fedkern import _core

    _core.blas.load(dict(cython_blas.__pyx_capi__.items()), dict(cython_lapack.__pyx_capi__.items()))


@cache
def _formula(dimension: str) -> Callable[[Mapping[str, int]], int]:
    """Returns a formula of sizes as a function, compiled once."""
    formula: Callable[[Mapping[str, int]], int] = eval(
        "lambda sizes: " + re.sub(r"[a-z]\w*", lambda m: f"sizes[{m[0]!r}]", dimension).replace("/", "//")
    )
    return formula


def with_unsigned_keys(function: Function) -> Function:
    """Returns the function with large keys made unsigned: Numba takes a Python int for an int64."""
    return lambda *arguments: function(*(np.uint64(a) if type(a) is int and a >= 2**63 else a for a in arguments))


def size(dimension: str, sizes: Mapping[str, int]) -> int:
    """Returns the length of a dimension: "d", "2*d", "d*(d+3)/2" or "4"."""
    return sizes[dimension] if dimension in sizes else _formula(dimension)(sizes)


@dataclass(frozen=True)
class Scalar:
    """Describes a number, a choice or a switch that a kernel takes beside its arrays."""

    name: str  # the name that backends give it
    domain: Domain = MADE  # the values that it may have
    default: float | str | bool | tuple[int, ...] | EllipsisType | None = ...  # as in the public function; ...: it has none
    of: str = ""  # the public argument that it comes from, where that has another name
    binds: tuple[str, ...] = ()  # symbols of shapes that follow from it

    @property
    def keyword(self) -> str:
        """The name that the public function gives it."""
        return self.of or self.name


class _Ask:
    """Stands in the place of a backend: a public function that is given it checks its arguments, and computes nothing."""


ASK: Any = _Ask()


class Asked(Exception):
    """Is raised where a public function that was given `ASK` would compute; holds what it would give to backends.

    Attributes
    ----------
    kernel : the record
    inputs : the arrays in the record's order
    numbers : the values of the scalars
    symbols : sizes that no input binds
    last : whether the function does nothing else with the results
    """

    def __init__(
        self, kernel: Kernel, inputs: Sequence[Any], numbers: Sequence[object], symbols: Mapping[str, int] | None, *, last: bool
    ) -> None:
        super().__init__(kernel.name)
        self.kernel, self.inputs, self.numbers, self.symbols, self.last = kernel, inputs, numbers, symbols, last


def _overlaps_itself(array: np.ndarray) -> bool:
    """Tells whether elements of an array share memory, as those of a stride of 0."""
    reach = array.itemsize
    for step, n in sorted((abs(step), n) for step, n in zip(array.strides, array.shape) if n > 1):
        if step < reach:
            return array.size > 0
        reach = step * (n - 1) + reach
    return False


def names(*arguments: Array | Scalar) -> tuple[str, ...]:
    """Returns the names that backends give to arguments."""
    return tuple(a.name for a in arguments)


@dataclass(frozen=True)
class Kernel:
    """Holds the contract of one kernel."""

    name: str  # "family.function"
    module: str  # the public function's module; a backend's function stands in the file of the family in its folder
    # purpose, source: one line; where the equation that it computes is written
    purpose: str
    source: str
    # inputs, outputs: the arrays, in the order in which every backend takes them
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    scalars: tuple[Scalar, ...] = ()  # the numbers, choices and switches that backends take between the two
    together: tuple[Together, ...] = ()  # scalars that are refused in one sentence
    order: tuple[str, ...] = ()  # the arguments of backends by name, where it is not inputs, scalars, outputs, n_threads
    streams: tuple[str, ...] = ()  # the random streams that it draws from; empty for a deterministic kernel
    returns: bool = False  # whether `compute` gives back the value that backends return, before the outputs
    backends: tuple[str, ...] = WITHOUT_CUDA  # those that exist; the others are listed as missing
    function: str = ""  # the public function, where it has not the kernel's own name
    # whether the C++ version calls BLAS or LAPACK; they are loaded when first needed, because SciPy takes its time
    blas: bool = False
    host: str = ""  # why it has no cuda backend and shall have none
    # backend -> the values of the scalar `family` that it refuses
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    # arguments whose values the public function compares with others, or makes others of: where one varies in a bound call, that
    # function is called
    tied: tuple[str, ...] = ()
    # name in the public function -> the meaning of the argument or result; "result" stands for an output called `out`
    words: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    # the results of the public function, where they are not the outputs: "name", or "name : type" where it is no output
    results: tuple[str, ...] = ()
    # a call of the public function as a doctest, without imports; `_docs.example_of` adds these
    example: str = field(default="", compare=False, repr=False)
    _loaded: dict[str, Function] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        KERNELS[self.name] = self

    @property
    def public(self) -> str:
        """The public function, with its family."""
        family, function = self.name.split(".")
        return f"{family}.{self.function or function}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that every backend takes, in order."""
        return self.order or (*names(*self.inputs, *self.scalars, *self.outputs), "n_threads")

    def implementation(self, backend: str | None) -> Function:
        """Returns the function of one backend, by default of the first that the kernel has."""
        if backend is None:
            backend = self.backends[0]
        if backend not in self._loaded:
            if backend not in self.backends:
                raise ValueError(f"{self.name}: no backend {backend!r}; there are {', '.join(self.backends)}")
            family, function = self.name.split(".")
            # Modules are imported on first use: a caller of one backend does not wait for the others.
            if backend == "cpp":
                if self.blas:
                    load_blas()
                self._loaded[backend] = getattr(getattr(import_module("fedkern._core"), family), function)
            else:
                if backend == "numba":
                    require_numba()
                loaded = getattr(import_module(f"{HERE}._{backend}.{family}"), function)
                self._loaded[backend] = with_unsigned_keys(loaded) if backend == "numba" else loaded
        return self._loaded[backend]

    @cached_property
    def _sizes_together(self) -> Callable[..., dict[str, int] | None]:
        return sizes_of(self.inputs)

    @cached_property
    def _arrays_together(self) -> Callable[..., list[Any] | None]:
        return arrays_of(self.inputs, self.outputs)

    @cached_property
    def numbers(self) -> Callable[..., tuple[Any, ...]]:
        """A function: (scalars by keyword) -> the values that backends get, in the record's order. Raises ValueError: one that is
        not in its domain."""
        return numbers_of(self.scalars, self.together, self._refuse)

    @cached_property
    def compute(self) -> Callable[..., tuple[Any, ...]]:
        """A function that checks, allocates and calls: (inputs, out, n_threads, backend, symbols=None, *, scalars by keyword) ->
        outputs.

        `inputs` are in the record's order; `symbols` as in `prepare`.
        """
        function = self.implementation(self.backends[0])
        return compute_of(
            self.inputs,
            self.scalars,
            self.together,
            self.outputs,
            self.order,
            self.returns,
            function,
            self._refuse,
            self._threads,
            self._slowly,
            self._unaligned,
        )

    def bind(
        self,
        inputs: Sequence[Any],
        varying: Sequence[str],
        n_threads: int = 1,
        backend: str | None = None,
        symbols: Mapping[str, int] | None = None,
        last: int = 2**32 - 1,
        **scalars: Any,
    ) -> Callable[..., tuple[Any, ...]]:
        """Returns a call that does the work of `compute` many times with equal sizes and types.

        All arguments are checked here once; each call checks only those that may have changed.

        Parameters
        ----------
        inputs, n_threads, backend, symbols, scalars : the arguments of `compute`, of any call
        varying : the arguments of each call, in this order: names of inputs and scalars
        last : the largest `step`, where it varies

        Returns
        -------
        (arguments that vary) -> the results of `compute`, newly allocated. It raises ValueError if a bound array has changed its
        memory, shape or type since, or if an argument has another type or shape than here. A length that no other array has may
        be another.
        """
        here = names(*self.inputs)
        self.check_varying(varying, (*here, *scalars))
        numbers = self.numbers(**scalars)
        sizes = self.sizes_of(inputs, varying, symbols)

        # A call whose types or shapes differ is refused there in the usual words.
        def slowly(*given: Any) -> tuple[object, ...]:
            now = {**dict(zip(here, inputs)), **scalars, **self.now(varying, given)}
            if "step" in varying and last < 2**32:
                _checks.WORD.check_kind(self.public, "step", now["step"])
                require(self.name, 0 <= now["step"] <= last, "step", f"must be in [0, {last}]", now["step"])
            keywords = {name: now[name] for name in scalars}
            return self.compute([now[name] for name in here], None, n_threads, backend, sizes, **keywords)

        return self.bind_checked(inputs, numbers, varying, n_threads, backend, symbols, slowly, last)

    def bind_checked(
        self,
        inputs: Sequence[Any],
        numbers: Sequence[object],
        varying: Sequence[str],
        n_threads: int,
        backend: str | None,
        symbols: Mapping[str, int] | None,
        slowly: Callable[..., tuple[Any, ...]],
        last: int = 2**32 - 1,
    ) -> Callable[..., tuple[Any, ...]]:
        """Returns the compiled call of arguments that have been checked; what does not fit, and all where nothing of it is
        compiled, is given to `slowly`. `numbers`: the values that backends get; `the others`: as in `bind`."""
        here, k = names(*self.inputs), len(self.inputs)
        n_threads = self._threads(n_threads)
        arrays = self.prepare(dict(zip(here, inputs)), None, symbols, backend, self._second(numbers))
        of, free = {s.keyword: s for s in self.scalars}, self._free(varying)
        # Only where a range tells all values that may be is a number compared with it, and goes on.
        limits = {n: self._limits(of[n], last) for n in varying if n in of}
        if self._backend(backend, arrays) not in (None, "cpp") or None in limits.values():
            return slowly
        from fedkern._core import bound

        # Places of all arguments in the order in which the backend takes them, for the compiled call.
        listed = (*here, *names(*self.scalars), *names(*self.outputs), "n_threads")
        values = (*arrays[:k], *numbers, *arrays[k:], n_threads)
        order = [listed.index(name) for name in self.order] or range(len(listed))  # an output may be called what an input is
        place = {number: position for position, number in enumerate(order)}
        # The compiled call takes arrays first: given in another order, they do not fit there, and `slowly` takes them.
        those = [place[here.index(name)] for name in varying if name in here]
        ranges = [
            (place[listed.index(of[name].name, k)], None if limit == "positive" else limit) for name, limit in limits.items()
        ]
        lengths = [(place[i], axis) for i, a in enumerate(self.inputs) for axis, symbol in enumerate(a.shape) if symbol in free]
        outputs = [place[k + len(self.scalars) + i] for i in range(len(self.outputs))]
        function, arguments = self.implementation(self.backends[0]), [values[number] for number in order]
        labels = [f"{self.public}: {listed[number]}" for number in order]
        every_call: Callable[..., tuple[Any, ...]]
        every_call = bound.bind(function, arguments, labels, those, ranges, lengths, outputs, self.returns, slowly)
        return every_call

    @staticmethod
    def _limits(scalar: Scalar, last: int) -> tuple[int, int] | str | None:
        if scalar.domain is POSITIVE:
            return "positive"
        whole = scalar.domain.whole
        return (whole[0], min(last, whole[1])) if whole and scalar.keyword == "step" else whole

    def check_varying(self, varying: Sequence[str], known: Sequence[str]) -> None:
        """Refuses names of no argument, and one that is named twice."""
        if isinstance(varying, str):
            raise TypeError(
                f"{self.public}: varying must be a sequence of names, got the string {varying!r}; write ({varying!r},)"
            )
        for i, name in enumerate(varying):
            if name not in known:
                near = get_close_matches(str(name), known, 3) or known
                raise TypeError(f"{self.public}: no argument {name!r} can vary; do you mean {' or '.join(map(repr, near))}?")
            if name in varying[:i]:
                raise TypeError(f"{self.public}: varying names {name!r} twice")

    def now(self, varying: Sequence[str], given: Sequence[Any]) -> dict[str, Any]:
        """Returns the arguments of one bound call by name; refuses another number of them."""
        if len(given) != len(varying):
            raise TypeError(f"{self.public}: this bound call takes {', '.join(varying)}; {len(given)} were given")
        return dict(zip(varying, given))

    def sizes_of(self, inputs: Sequence[Any], varying: Sequence[str], symbols: Mapping[str, int] | None) -> dict[str, int]:
        """Returns the sizes that bound calls are compared with: all but lengths that one varying input alone has."""
        sizes, free = dict(symbols or {}), self._free(varying)
        for a, value in zip(self.inputs, inputs):
            a.check(self.public, value, sizes)
        return {symbol: n for symbol, n in sizes.items() if symbol not in free}

    def bind_given(
        self, given: Mapping[str, Any], varying: Sequence[str], symbols: Mapping[str, int] | None = None, last: int = 2**32 - 1
    ) -> Callable[..., tuple[Any, ...]]:
        """Does the same as `bind` for all arguments of the public function, by name."""
        inputs, scalars = [given[a.name] for a in self.inputs], {s.keyword: given[s.keyword] for s in self.scalars}
        return self.bind(inputs, varying, given["n_threads"], given["backend"], symbols, last, **scalars)

    def _free(self, varying: Sequence[str]) -> set[str]:
        """Returns symbols that one dimension of one varying input has, and no other array: the number of rows in a batch, for
        example."""
        shapes = [a.shape for a in (*self.inputs, *self.outputs)]
        named = [symbol for shape in shapes for length in shape for symbol in re.findall(r"[a-z]\w*", length)]
        mine = [length for a in self.inputs if a.name in varying for length in a.shape]
        return {symbol for symbol in mine if symbol.isidentifier() and named.count(symbol) == 1}

    def _unaligned(self, arrays: Sequence[Any]) -> None:
        """Raises the error for the first array whose elements lie where compiled code can't read them, as those of a packed
        structured array."""
        for spec, value in zip((*self.inputs, *self.outputs), arrays):
            if isinstance(value, np.ndarray) and not value.flags.aligned:
                remedy = "give an array of its own" if spec in self.outputs else "give a copy"
                raise ValueError(f"{self.public}: {spec.name} is not aligned to its elements; {remedy}") from None

    def call(self, backend: str | None, arrays: Sequence[object], numbers: Sequence[object], n_threads: int) -> Any:
        """Calls the backend with the arrays of `prepare` and the scalars of `numbers`, and returns its value."""
        if backend is ASK:
            self._threads(n_threads)
            raise Asked(self, arrays[: len(self.inputs)], numbers, None, last=False)
        function, k = self.implementation(self._backend(backend, arrays)), len(self.inputs)
        n_threads = self._threads(n_threads)
        given = [*arrays[:k], *numbers, *arrays[k:], n_threads]
        if self.order:
            known = (*names(*self.inputs, *self.outputs, *self.scalars), "n_threads")
            values = dict(zip(known, (*arrays, *numbers, n_threads)))
            given = [values[name] for name in self.order]
        try:
            return function(*given)
        except ValueError:
            self._unaligned(arrays)
            raise

    def backend_of(self, family: str, wanted: str | None, arrays: Sequence[object]) -> str | None:
        """Returns the backend to ask for where some backends lack families. Raises ValueError where the wanted one lacks this
        family."""
        having = [b for b in self.backends if family not in self.lacks.get(b, ())]
        chosen = self._backend(wanted, arrays)
        if chosen is None:
            return next(b for b in having if b != "cuda")
        if chosen in self.backends and chosen not in having:
            raise ValueError(f"{self.name}: backend {chosen!r} has no family {family!r}; {', '.join(having)} have it")
        return chosen

    def _slowly(
        self,
        inputs: Sequence[object],
        numbers: Sequence[object],
        out: Out,
        n_threads: int,
        backend: str | None,
        symbols: Mapping[str, int] | None,
    ) -> tuple[object, ...]:
        second = self._second(numbers)
        arrays = self.prepare({a.name: value for a, value in zip(self.inputs, inputs)}, out, symbols, backend, second)
        if backend is ASK:
            raise Asked(self, inputs, numbers, symbols, last=True)
        returned = self.call(backend, arrays, numbers, n_threads)
        outputs = tuple(arrays[len(self.inputs) :])
        return (returned, *outputs) if self.returns else outputs

    def _second(self, numbers: Sequence[object]) -> set[str]:
        """Returns the names of outputs that have the second of their types."""
        given = dict(zip(names(*self.scalars), numbers))
        return {o.name for o in self.outputs if given.get(o.second)}

    def _refuse(self, values: Mapping[str, object]) -> NoReturn:
        _checks.refuse(self.public, {s.keyword: s.domain for s in self.scalars}, self.together, values)
        raise TypeError(f"{self.public}: one of {', '.join(values)} is of a wrong type")

    def check_kinds(self, **values: object) -> None:
        """Raises TypeError for the first scalar, by keyword, that is of a wrong type: for functions that compare scalars before
        `compute` checks them."""
        for s in self.scalars:
            if s.keyword in values:
                s.domain.check_kind(self.public, s.keyword, values[s.keyword])

    def _threads(self, n_threads: object) -> int:
        return _checks.check_threads(self.public, n_threads)

    def _backend(self, wanted: str | None, arrays: Sequence[object]) -> str | None:
        """Returns the backend that is called: the wanted one, if the arrays live where it runs."""
        homes = {h for h in map(home, arrays) if h}
        # Nothing is copied between host and device unasked: it would be slow, and hard to see.
        if len(homes) > 1:
            raise TypeError(f"{self.name}: arrays of the host and of a device in one call; move them to one of the two")
        if (homes <= {"cpp"} and wanted != "cuda") or wanted is ASK:
            return wanted
        if wanted not in (None, "cuda"):
            raise TypeError(f"{self.name}: backend {wanted!r} takes NumPy arrays, got CuPy arrays; copy them by cupy.asnumpy")
        if "cuda" not in self.backends:
            remedy = "copy the arrays by cupy.asnumpy" if "cuda" in homes else f"there are {', '.join(self.backends)}"
            raise ValueError(f"{self.name}: no backend 'cuda' ({self.host or 'it is not written'}); {remedy}")
        from ._cuda import device

        device.check_home(self.name, arrays)
        return "cuda"

    def _space(self, backend: str | None, arrays: Iterable[object]) -> Any:
        """Returns the namespace in which outputs are allocated."""
        homes = {home(a) for a in arrays}
        if "cpp" in homes or not (backend == "cuda" or "cuda" in homes):
            return np
        from ._cuda import device

        return device.current().xp

    def prepare(
        self,
        inputs: Mapping[str, Any],
        out: Out = None,
        symbols: Mapping[str, int] | None = None,
        backend: str | None = None,
        second: Collection[str] = (),
    ) -> list[Any]:
        """Checks the inputs, and checks or allocates the outputs; a given `out` is used as it is or refused.

        Parameters
        ----------
        inputs : name -> array (or None for an optional one)
        out : None, the one output, or a tuple of all
        symbols : sizes that no input binds, or that an input must have
        backend : the one that was asked for: outputs are allocated where it runs
        second : outputs that have the second of their types, if they are allocated

        Returns
        -------
        inputs and outputs, in the record's order
        """
        symbols = symbols or {}
        # The usual call: all is checked and allocated by one generated function.
        if out is None and backend != "cuda" and not second and (prepared := self._arrays_together(inputs, symbols)) is not None:
            return prepared
        # Else one array after the other, so that an error can name the first that is wrong.
        arrays = [inputs[a.name] for a in self.inputs]
        bound = self._sizes_together(inputs, symbols)
        if bound is None:
            bound = dict(symbols)
            for i, a in enumerate(self.inputs):
                arrays[i] = a.check(self.public, arrays[i], bound)
                self._same_type(a, arrays[i], arrays)
        if isinstance(out, tuple):
            given = out
        elif out is None:
            given = (out,) * len(self.outputs)
        else:
            given = (out,)
        space = self._space(backend, (*arrays, *given))
        if len(given) != len(self.outputs):
            raise TypeError(f"{self.public}: out must be a tuple of {', '.join(o.name for o in self.outputs)}")
        results = []
        for spec, value in zip(self.outputs, given):
            if value is None:
                results.append(self._allocate(space, spec, bound, arrays, int(spec.name in second)))
                continue
            value = self._same_type(spec, spec.check(self.public, value, bound), arrays)
            if home(value) == "cpp" and not value.flags.writeable:  # all arrays of a device can be written
                raise ValueError(f"{self.public}: {spec.name} is read-only")
            if home(value) == "cpp" and _overlaps_itself(value):
                raise ValueError(f"{self.public}: elements of {spec.name} overlap each other")
            # A kernel that wrote into an array that it still reads would give other numbers.
            others = (a for a in (*arrays, *results) if a is not None and home(a) == home(value))
            if any(map(partial((space if home(value) == "cuda" else np).may_share_memory, value), others)):
                raise ValueError(f"{self.public}: {spec.name} overlaps another argument")
            results.append(value)
        return arrays + results

    def _allocate(self, space: Any, spec: Array, sizes: Mapping[str, int], inputs: Sequence[Any], which: int) -> object:
        dtype = inputs[0].dtype if spec.like else spec.dtypes[which]
        return space.empty([size(s, sizes) for s in spec.shape], dtype)

    def _same_type(self, spec: Array, value: Any, inputs: Sequence[Any]) -> Any:
        if spec.like and value.dtype != inputs[0].dtype:
            raise TypeError(f"{self.public}: {spec.name} must be {inputs[0].dtype} as {spec.like} is, got {value.dtype}")
        return value


def table() -> dict[str, dict[str, str]]:
    """Returns which (kernel, backend) pairs exist, as kernel -> backend -> word.

    The words are "yes", "partly" (the kernel's record says what the backend `lacks`), "missing", or "host" where a device would
    gain nothing.

    Examples
    --------
    >>> from fedkern import kernels
    >>> kernels.list()["optim.adam"]
    {'cpp': 'yes', 'numba': 'missing', 'cuda': 'yes', 'reference': 'yes'}
    """

    def pair(kernel: Kernel, backend: str) -> str:
        if backend in kernel.backends:
            return "partly" if kernel.lacks.get(backend) else "yes"
        return "host" if backend == "cuda" and kernel.host else "missing"

    return {name: {b: pair(kernel, b) for b in BACKENDS} for name, kernel in sorted(KERNELS.items())}
