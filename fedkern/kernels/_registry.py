"""What a kernel is: one record that the checks, the allocation, the documentation and the tests all read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._together import arrays_of, call_of, sizes_of

BACKENDS = ("cpp", "numba", "cuda", "reference")
FLOATS = (np.dtype("float64"), np.dtype("float32"))
F64 = (np.dtype("float64"),)

KERNELS: dict[str, Kernel] = {}  # filled by the records themselves


def home(value: Any) -> str | None:
    """The backend that lives where the array does; None for what is no array."""
    if isinstance(value, np.ndarray):
        return "cpp"
    return "cuda" if type(value).__module__.partition(".")[0] == "cupy" else None


@dataclass(frozen=True)
class Array:
    """An array argument.

    Attributes
    ----------
    name : as in the public function
    shape : one symbol a dimension; "2*d" in an output is twice what d is
    dtypes : the types that it may have; an output that is allocated has the first
    optional : may be None
    like : the first input, where the type must be the same; then an output that is allocated has it
    """

    name: str
    shape: tuple[str, ...]
    dtypes: tuple[np.dtype[Any], ...] = FLOATS
    optional: bool = False
    like: str = ""

    def check(self, kernel: str, value: Any, sizes: dict[str, int]) -> Any:
        """The array itself, or an error that names the argument, what it must be, and what came."""
        if value is None and self.optional:
            return None
        if type(value) is not np.ndarray and home(value) is None:
            raise TypeError(f"{kernel}: {self.name} must be a NumPy array, got {type(value).__name__}")
        if value.dtype not in self.dtypes:
            raise TypeError(f"{kernel}: {self.name} must be {' or '.join(map(str, self.dtypes))}, got {value.dtype}")
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
            known = ", ".join(
                f"{s} = {sizes[s]}"
                for s in dict.fromkeys(t for d in self.shape for t in re.findall(r"[a-z]\w*", d))
                if s in sizes
            )
            raise ValueError(f"{kernel}: {self.name} must have shape ({', '.join(self.shape)}) with {known}, got {value.shape}")
        return value


@cache
def load_blas() -> None:
    """Gives SciPy's BLAS and LAPACK to the compiled kernels.

    Raises
    ------
    ImportError
        A routine has not the C signature for which fedkern was built.
    """
    from scipy.linalg import cython_blas, cython_lapack

    from fedkern import _core

    _core.blas.load(dict(cython_blas.__pyx_capi__.items()), dict(cython_lapack.__pyx_capi__.items()))


@cache
def _formula(dimension: str) -> Any:
    return compile(dimension.replace("/", "//"), dimension, "eval")


def with_unsigned_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba takes a Python int for an int64: a key beyond that must say that it is unsigned."""
    return lambda *arguments: function(*(np.uint64(a) if type(a) is int and a >= 2**63 else a for a in arguments))


def size(dimension: str, sizes: Mapping[str, int]) -> int:
    """The length of a dimension: "d", "2*d", "d*(d+3)/2" or "4"."""
    return sizes[dimension] if dimension in sizes else int(eval(_formula(dimension), {}, dict(sizes)))


@dataclass(frozen=True)
class Kernel:
    """The contract of one kernel.

    Attributes
    ----------
    name : "family.function"
    purpose, source : one line; the equation that it computes
    inputs, outputs : the arrays, in the order in which every backend takes them
    streams : the random streams that it draws from; empty for a deterministic kernel
    backends : those that exist; the others are listed as missing
    function : the public function, where it has not the kernel's own name
    blas : whether the C++ version calls BLAS or LAPACK; they are loaded when first needed, because SciPy takes its time
    """

    name: str
    purpose: str
    source: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    streams: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("cpp", "numba", "reference")
    function: str = ""
    blas: bool = False
    _loaded: dict[str, Callable[..., Any]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        KERNELS[self.name] = self

    def implementation(self, backend: str | None, arrays: Sequence[Any] = ()) -> Callable[..., Any]:
        """The function of one backend, by default of the one at home where the arrays live (the first that there is)."""
        if backend is None:
            backend = self.backends[0]
            for array in arrays:
                if array is not None and type(array) is not np.ndarray:
                    backend = self._home(arrays)
                    break
        if backend not in self._loaded:
            if backend not in self.backends:
                raise ValueError(f"{self.name}: no backend {backend!r}; there are {', '.join(self.backends)}")
            family, function = self.name.split(".")
            if backend == "cpp":
                if self.blas:
                    load_blas()
                self._loaded[backend] = getattr(getattr(import_module("fedkern._core"), family), function)
            else:
                loaded = getattr(import_module(f"fedkern.kernels._{backend}.{family}"), function)
                self._loaded[backend] = with_unsigned_keys(loaded) if backend == "numba" else loaded
        return self._loaded[backend]

    @cached_property
    def _sizes_together(self) -> Callable[..., dict[str, int] | None]:
        return sizes_of(self.inputs)

    @cached_property
    def _arrays_together(self) -> Callable[..., list[Any] | None]:
        return arrays_of(self.inputs, self.outputs)

    @cached_property
    def _call_together(self) -> Callable[..., tuple[Any, ...] | None]:
        return call_of(self.inputs, self.outputs, self.implementation(self.backends[0]))

    def run(
        self, inputs: Sequence[Any], scalars: Sequence[Any], out: Any, n_threads: int, backend: str | None, sizes: Any = None
    ) -> tuple[Any, ...]:
        """Checks, allocates and calls: for backends that take (inputs, scalars, outputs, n_threads).

        Parameters
        ----------
        inputs, scalars : in the backends' order
        out, n_threads, backend : as the public function has them
        sizes : symbols that no input binds, or that an input must have

        Returns
        -------
        the outputs
        """
        if out is None and backend is None:
            filled = self._call_together(inputs, scalars, sizes, n_threads)
            if filled is not None:
                return filled
        arrays = self.prepare({a.name: value for a, value in zip(self.inputs, inputs)}, out, sizes)
        k = len(self.inputs)
        self.implementation(backend, arrays)(*arrays[:k], *scalars, *arrays[k:], n_threads)
        return tuple(arrays[k:])

    def _home(self, arrays: Sequence[Any]) -> str:
        """The one backend where all arrays live."""
        homes = {h for h in map(home, arrays) if h} or {"cpp"}
        if len(homes) > 1:
            raise TypeError(f"{self.name}: arrays of the host and of a device in one call; move them to one of the two")
        return homes.pop()

    def prepare(self, inputs: Mapping[str, Any], out: Any = None, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """Checks the inputs, and checks or allocates the outputs; a given `out` is used as it is or refused.

        Parameters
        ----------
        inputs : name -> array (or None for an optional one)
        out : None, the one output, or a tuple of all
        sizes : symbols that no input binds

        Returns
        -------
        inputs and outputs, in the record's order
        """
        sizes = sizes or {}
        if out is None and (prepared := self._arrays_together(inputs, sizes)) is not None:
            return prepared
        arrays = [inputs[a.name] for a in self.inputs]
        bound = self._sizes_together(inputs, sizes)
        if bound is None:
            bound = dict(sizes)
            arrays = [self._same_type(a, a.check(self.name, value, bound), arrays) for a, value in zip(self.inputs, arrays)]
        if out is None:
            return arrays + [self._allocate(spec, bound, arrays) for spec in self.outputs]
        given = out if isinstance(out, tuple) else (out,)
        if len(given) != len(self.outputs):
            raise TypeError(f"{self.name}: out must be a tuple of {', '.join(o.name for o in self.outputs)}")
        results = []
        for spec, value in zip(self.outputs, given):
            if value is None:
                results.append(self._allocate(spec, bound, arrays))
                continue
            if not self._same_type(spec, spec.check(self.name, value, bound), arrays).flags.writeable:
                raise ValueError(f"{self.name}: {spec.name} is read-only")
            if any(a is not None and np.may_share_memory(value, a) for a in (*arrays, *results)):
                raise ValueError(f"{self.name}: {spec.name} overlaps another argument")
            results.append(value)
        return arrays + results

    def _allocate(self, spec: Array, sizes: Mapping[str, int], inputs: Sequence[Any]) -> NDArray[Any]:
        return np.empty([size(s, sizes) for s in spec.shape], inputs[0].dtype if spec.like else spec.dtypes[0])

    def _same_type(self, spec: Array, value: Any, inputs: Sequence[Any]) -> Any:
        if spec.like and value.dtype != inputs[0].dtype:
            raise TypeError(f"{self.name}: {spec.name} must be {inputs[0].dtype} as {spec.like} is, got {value.dtype}")
        return value
