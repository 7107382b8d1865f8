"""Makes cases for kernels and compares backends with the reference: for fedkern's tests and for those of other libraries.

A kernel's cases stand in the module of its family: a function that takes a `Source` and returns a `Case`.

    from fedkern import testing
    testing.assert_conforms("privacy.clip_sum", "numba", testing.case("privacy.clip_sum", seed=1))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedkern.kernels._record import KERNELS, Kernel

Arguments: TypeAlias = dict[str, Any]  # of a public function, by name
Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Results: TypeAlias = tuple[Any, ...]  # of a public function: arrays and numbers

# The largest difference to the reference. "exact": bits. "elementwise": relative to the number itself (a few elementary
# functions); "variate": the same, where the error of a logarithm is multiplied. "reduction": relative to the sum of the absolute
# terms. "chain": draws of a Markov chain, each of which multiplies the rounding errors of those before.
TOLERANCES: dict[tuple[str, str], float] = {
    ("float64", "exact"): 0.0,
    ("float64", "elementwise"): 1e-14,
    ("float64", "variate"): 1e-12,
    ("float64", "reduction"): 1e-12,
    ("float64", "chain"): 1e-8,
    ("float32", "exact"): 0.0,
    ("float32", "elementwise"): 1e-6,
    ("float32", "variate"): 1e-6,
    ("float32", "reduction"): 1e-6,
    ("float32", "chain"): 1e-4,
}
TINY = 1e-300  # below it only the order of magnitude counts

LAYOUTS = ("C", "F", "strided", "reversed", "read-only")
SIZES = (0, 1, 2, 7, 8, 9, 33, 200)
THREADS = (2, 3, 8)


@dataclass(frozen=True)
class Case:
    """Holds one call of a public function.

    Attributes
    ----------
    arguments : keyword arguments, without `out`, `n_threads` and `backend`
    kind : of operation, see TOLERANCES
    precision : "float64", or "float32" where the kernel computes in it
    magnitude : sums of the absolute terms, one for each result, for a reduction whose terms cancel; None: the largest result
    wanted : the reference's results of these arguments, where `magnitude` needed them; None: they are computed when asked

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import testing
    >>> case = testing.Case({"rows": np.ones((3, 2)), "bound": 1.0})
    >>> case.kind, case.tolerance
    ('reduction', 1e-12)
    """

    arguments: Arguments
    kind: str = "reduction"
    precision: str = "float64"
    magnitude: Sequence[ArrayLike] | None = None
    wanted: Results | None = None

    @property
    def tolerance(self) -> float:
        """The largest difference to the reference, in the units of `kind`."""
        return TOLERANCES[self.precision, self.kind]


@dataclass
class Source:
    """Makes the numbers of a case. `choose(options)` picks one of several; the numbers themselves come from `random`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import testing
    >>> source = testing.Source(choose=lambda options: options[0], random=np.random.default_rng(7))
    >>> source.size(), source.normal(2, 3).shape
    (0, (2, 3))
    """

    choose: Callable[[Sequence[Any]], Any]
    random: np.random.Generator
    sizes: Sequence[int] = SIZES
    layouts: Sequence[str] = LAYOUTS
    layout: str = field(init=False)  # one for all arrays of a case: each combination costs Numba a compilation

    def __post_init__(self) -> None:
        self.layout = self.choose(self.layouts)

    def size(self) -> int:
        """Returns one of the sizes."""
        return int(self.choose(self.sizes))

    def array(self, values: ArrayLike, dtype: DTypeLike = np.float64, extremes: Sequence[float] = ()) -> np.ndarray:
        """Returns `values` in the case's layout, one of them replaced by one of `extremes`."""
        with np.errstate(over="ignore", under="ignore"):
            content = np.array(values, dtype)
            if extremes and content.size:
                content.flat[self.random.integers(content.size)] = self.choose(extremes)
        return laid_out(content, self.layout)

    def normal(self, *shape: int, dtype: DTypeLike = np.float64, extremes: Sequence[float] = ()) -> np.ndarray:
        """Returns standard normal numbers in the case's layout."""
        return self.array(self.random.standard_normal(shape), dtype, extremes)


def laid_out(content: np.ndarray, layout: str) -> np.ndarray:
    """Returns the same numbers in another layout of memory.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import testing
    >>> a = testing.laid_out(np.array([1.0, 2.0, 3.0]), "reversed")
    >>> a, a.strides
    (array([1., 2., 3.]), (-8,))
    """
    if layout == "F":
        return np.asfortranarray(content)
    if layout == "strided":
        whole = np.full([2 * n for n in content.shape], 77, content.dtype)
        view = whole[tuple(slice(0, 2 * n, 2) for n in content.shape)]
        view[...] = content
        return view
    if layout == "reversed":
        return np.ascontiguousarray(content[(slice(None, None, -1),) * content.ndim])[(slice(None, None, -1),) * content.ndim]
    fresh = np.array(content, order="C")
    fresh.flags.writeable = layout != "read-only"
    return fresh


def maker(kernel: str) -> Callable[[Source], Case]:
    """Returns the function that makes the cases of a kernel.

    Examples
    --------
    >>> from fedkern import testing
    >>> testing.maker("privacy.clip_sum").__name__
    'clip_sum'
    """
    family, _, name = kernel.partition(".")
    try:
        make: Callable[[Source], Case] = getattr(import_module(f"fedkern.testing.{family}"), name)
    except (ModuleNotFoundError, AttributeError):
        raise LookupError(f"{kernel}: no test cases; write {name}(source) in fedkern/testing/{family}.py") from None
    return make


def case(kernel: str, seed: int, sizes: Sequence[int] = SIZES, layouts: Sequence[str] = LAYOUTS) -> Case:
    """Returns the case of a seed.

    Examples
    --------
    >>> from fedkern import testing
    >>> sorted(testing.case("privacy.clip_sum", seed=1).arguments)
    ['clip', 'rows']
    """
    random = np.random.default_rng(seed)
    return maker(kernel)(Source(lambda options: options[int(random.integers(len(options)))], random, sizes, layouts))


def cases(kernel: str, layouts: Sequence[str] = LAYOUTS) -> Any:
    """Returns the Hypothesis strategy of a kernel's cases.

    Examples
    --------
    >>> from fedkern import testing
    >>> strategy = testing.cases("privacy.clip_sum")  # doctest: +SKIP
    """
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Any) -> Case:
        random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        return maker(kernel)(Source(lambda options: draw(st.sampled_from(options)), random, layouts=layouts))

    return strategy()


def public_function(kernel: Kernel) -> Callable[..., Any]:
    """Returns the function that callers have of a kernel; two records may share one.

    Examples
    --------
    >>> from fedkern import testing
    >>> from fedkern.kernels import KERNELS
    >>> testing.public_function(KERNELS["glm.elbo_grad_full"]).__name__
    'elbo_grad'
    """
    function: Callable[..., Any] = getattr(import_module(kernel.module), kernel.public.partition(".")[2])
    return function


def results_of(kernel: str, case: Case, **options: object) -> Results:
    """Returns all results of the public function, as a tuple.

    Examples
    --------
    >>> from fedkern import testing
    >>> case = testing.case("optim.adam", seed=1)
    >>> new_state, step = testing.results_of("optim.adam", case, backend="reference")
    >>> new_state.shape == case.arguments["state"].shape
    True
    """
    returned = public_function(KERNELS[kernel])(**case.arguments, **options)
    return returned if isinstance(returned, tuple) else (returned,)


def at_home(backend: str, value: object) -> Any:
    """Returns an array where the backend's arrays live, in the same layout; any other object unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import testing
    >>> testing.at_home("cpp", np.ones(2))
    array([1., 1.])
    """
    if backend != "cuda" or not isinstance(value, np.ndarray):
        return value
    from fedkern.kernels._cuda import device

    xp = device.current().xp
    if xp is np:  # the emulator
        return value
    if any(stride < 0 for stride in value.strides):
        back = (slice(None, None, -1),) * value.ndim
        return xp.asarray(np.ascontiguousarray(value[back]))[back]
    if value.flags.c_contiguous or value.flags.f_contiguous:
        return xp.asarray(value, order="K")
    view = xp.full([2 * n for n in value.shape], 77, value.dtype)[tuple(slice(0, 2 * n, 2) for n in value.shape)]
    view[...] = xp.asarray(value)
    return view


def on_host(value: object) -> Any:
    """Returns a backend's result as NumPy has it.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern import testing
    >>> testing.on_host(np.ones(2))
    array([1., 1.])
    """
    return value.get() if hasattr(value, "get") and hasattr(value, "device") else value


def assert_conforms(kernel: str, backend: str, case: Case, once: bool = False) -> None:
    """Asserts that the backend gives the results of the reference. Results must stand where `out` says and not depend on threads,
    and no input may change.

    Parameters
    ----------
    once : bool
        Only the first: one call.

    Raises
    ------
    AssertionError

    Examples
    --------
    >>> from fedkern import testing
    >>> testing.assert_conforms("privacy.clip_sum", "cpp", testing.case("privacy.clip_sum", seed=1))
    """
    if (family := case.arguments.get("family")) in KERNELS[kernel].lacks.get(backend, ()):
        _assert_refused(kernel, backend, case, f"has no family {family!r}")
        return
    before = {name: np.array(value) for name, value in case.arguments.items() if isinstance(value, np.ndarray)}
    want = case.wanted or results_of(kernel, case, backend="reference")
    here = replace(case, arguments={name: at_home(backend, value) for name, value in case.arguments.items()})
    got = results_of(kernel, here, backend=backend)
    assert len(got) == len(want), f"{kernel} on {backend}: {len(got)} results, not {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        magnitude = None if case.magnitude is None else case.magnitude[i]
        _assert_close(f"{kernel} on {backend}, result {i}", on_host(g), w, case, magnitude)
    if once:
        return

    arrays = [on_host(g) for g in got if np.ndim(on_host(g))]  # numbers beside them may be arrays without dimensions
    given = tuple(at_home(backend, laid_out(np.full_like(a, 77), "strided")) for a in arrays)
    filled = results_of(kernel, here, backend=backend, out=given if len(given) > 1 else given[0])
    _assert_same_bits(f"{kernel} on {backend} with out", filled, got)
    returned = (f for f in filled if np.ndim(on_host(f)))
    assert all(f is g for f, g in zip(returned, given)), f"{kernel}: another out was returned"
    for n_threads in THREADS if backend != "cuda" else THREADS[:1]:  # a card has its own threads, whatever is asked for
        again = results_of(kernel, here, backend=backend, n_threads=n_threads)
        _assert_same_bits(f"{kernel} on {backend} with {n_threads} threads", again, got)
    for name, value in before.items():
        np.testing.assert_array_equal(on_host(here.arguments[name]), value, err_msg=f"{kernel} on {backend} changed {name}")


def _assert_refused(kernel: str, backend: str, case: Case, why: str) -> None:
    here = {name: at_home(backend, value) for name, value in case.arguments.items()}
    refusal = ""
    try:
        results_of(kernel, replace(case, arguments=here), backend=backend)
    except ValueError as error:
        refusal = str(error)
    assert why in refusal, f"{kernel} on {backend}: its record says that it {why}, and it says: {refusal or 'nothing'}"


def _assert_close(what: str, got: Any, want: Any, case: Case, magnitude: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, not {want.dtype}"
    if case.kind == "exact" or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=f"{what}: where it is not finite")
    if magnitude is None:
        magnitude = abs(want) if case.kind != "reduction" else np.max(abs(want), initial=0, where=finite)
    with np.errstate(invalid="ignore", over="ignore"):
        bound = np.broadcast_to(case.tolerance * magnitude + TINY, want.shape)
        good = abs(got - want)[finite] <= bound[finite]
    assert good.all(), f"{what}: {got[finite][~good][:3]}, not {want[finite][~good][:3]}, bound {bound[finite][~good][:3]}"


def _assert_same_bits(what: str, got: Sequence[object], want: Sequence[object]) -> None:
    for g, w in zip(got, want):
        assert np.asarray(on_host(g)).tobytes() == np.asarray(on_host(w)).tobytes(), f"{what}: other bits"
