"""Says where arrays of the cuda backend live and starts kernels: on a card by CuPy, or in tests by the grid emulator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

import fedkern
from fedkern.errors import DeviceError, DeviceMemoryError

Array: TypeAlias = Any  # of the device's namespace: CuPy has no types
Launched: TypeAlias = tuple[object, ...]  # arguments of a kernel: arrays, structures, numbers

LEAST_CAPABILITY = 80  # of the first card with asynchronous copies and 163 KiB of shared memory a block
MOST_BLOCKS = 2048
SHARE = 0.9  # of a card's memory that all processes on it may take: the rest is the driver's, cuBLAS's and the contexts'
IN_MEMORY = "CUPY_CACHE_IN_MEMORY"


class Gemm(NamedTuple):
    """Describes a call of BLAS's gemm, for matrices by columns: C = op(A) op(B) + beta C, `times` times."""

    dtype: Any
    # turned_a, turned_b: whether op is the transpose
    turned_a: bool
    turned_b: bool
    # m, n, k: op(A) is (m, k), op(B) (k, n)
    m: int
    n: int
    k: int
    # a, b, c: where they begin
    a: int
    # lda, ldb, ldc: numbers from one column to the next
    lda: int
    # step_a, step_b, step_c: numbers from one matrix to the next
    step_a: int
    b: int
    ldb: int
    step_b: int
    beta: float
    c: int
    ldc: int
    step_c: int
    times: int


class Device(Protocol):
    """Describes one side of the seam between the backend and a device.

    Attributes
    ----------
    xp : the namespace of its arrays
    """

    @property
    def xp(self) -> Any: ...

    def shared_memory(self) -> int:
        """The bytes of shared memory that a block may have."""
        ...

    def ready(
        self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0
    ) -> Callable[[], object]:
        """Returns the call that `launch` makes, for as many starts as wanted: all is found but the stream."""
        ...

    def launch(self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0) -> None:
        """Starts `kernel` of csrc/cuda/`module`.cu on the caller's stream; nobody waits for it."""
        ...

    def ready_gemm(self, product: Gemm) -> Callable[[], object]:
        """Returns the call that `gemm` makes."""
        ...

    def gemm(self, product: Gemm) -> None:
        """Starts a product on the same stream."""
        ...

    def take(self, local: int, ranks: int) -> None:
        """Makes this process one of several on this machine that share its cards: it uses one, and its share of the memory."""
        ...

    def about(self) -> dict[str, str]:
        """Returns the versions and the card that its bits depend on."""
        ...


def sources() -> Path:
    """Returns the folder of the .cu files."""
    return Path(fedkern.get_include()).parent / "cuda"


def text(module: str) -> str:
    """Returns the text that is compiled: names of instances are then those of the file itself."""
    return f'#include "{module}.cu"\nusing namespace fedkern;\nusing namespace fedkern::cuda;\n'


@cache
def options() -> tuple[str, ...]:
    """Returns the options of the compiler. CuPy's cache does not look into included files, so their digest is among them.

    Lambdas are a device's functions: CUDA 13 sees that by itself, CUDA 12 must be told.
    """
    include, cuda = Path(fedkern.get_include()), sources()
    digest = blake2b(digest_size=16)
    for path in sorted([*include.rglob("*.hpp"), *include.rglob("*.def"), *cuda.glob("*")]):
        digest.update(path.name.encode() + path.read_bytes())
    language = ("--std=c++20", "--device-as-default-execution-space")
    return (*language, f"-I{include}", f"-I{cuda}", f"-DFEDKERN_SOURCES={digest.hexdigest()}")


class Card:
    """Drives a GPU through CuPy. An instance is compiled when it is first needed; CuPy keeps it on disk.

    Raises
    ------
    DeviceError
        No CuPy, no driver, no card, or one that is too old.
    """

    def __init__(self) -> None:
        try:
            import cupy
        except Exception as error:  # also a library of another CUDA, or two CuPys at once
            if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
                raise DeviceError(
                    "backend 'cuda' needs CuPy, and it is not installed: pip install 'fedkern[cuda12]' or 'fedkern[cuda13]'"
                ) from None
            raise DeviceError(f"CuPy is installed and cannot be loaded ({_first_line(error)}); {_MAJOR}") from None
        self.xp = cupy
        try:
            self._count = int(cupy.cuda.runtime.getDeviceCount())
        except Exception as error:  # CuPy has an exception of its own for each library that is missing
            if "insufficient" in str(error).lower():  # cudaErrorInsufficientDriver
                raise DeviceError(_too_old(cupy)) from None
            raise DeviceError(f"CuPy finds no driver of a CUDA card ({error}); install one, or use another backend") from None
        if not self._count:
            raise DeviceError("CuPy finds no CUDA card; use another backend")
        _check_versions(cupy)
        self._kernels: dict[tuple[int, str, str], Any] = {}
        self._good: set[int] = set()

    def take(self, local: int, ranks: int) -> None:
        slot = local % self._count
        sharing = sum(rank % self._count == slot for rank in range(ranks))
        device = self.xp.cuda.Device(slot)
        self._check(device)
        device.use()
        self.xp.get_default_memory_pool().set_limit(fraction=SHARE / sharing)

    def about(self) -> dict[str, str]:
        cuda = self.xp.cuda
        card, nvrtc = cuda.Device(), ".".join(map(str, cuda.nvrtc.getVersion()))
        blas = cuda.cublas.getVersion(cuda.device.get_cublas_handle())
        return {"device": f"sm_{card.compute_capability}", "nvrtc": nvrtc, "cublas": str(blas)}

    def _check(self, device: Any) -> None:
        capability = int(device.compute_capability)
        if capability < LEAST_CAPABILITY:
            raise DeviceError(
                f"device {device.id} has compute capability {capability / 10}, and kernels need "
                f"{LEAST_CAPABILITY / 10}; use another backend"
            )
        self._good.add(device.id)

    def shared_memory(self) -> int:
        return int(self.xp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])

    def launch(self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0) -> None:
        self.ready(module, kernel, grid, threads, arguments, shared)()

    def ready(
        self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0
    ) -> Callable[[], object]:
        device = self.xp.cuda.Device()
        if device.id not in self._good:
            self._check(device)
        function = self._kernels.get((device.id, module, kernel))
        if function is None:
            function = self._kernels[device.id, module, kernel] = self._compiled(module, kernel)
        if shared > 48 * 1024:
            function.max_dynamic_shared_size_bytes = shared
        return partial(function, grid, (threads,), tuple(plain(a) for a in arguments), shared_mem=shared)

    def _compiled(self, module: str, kernel: str) -> Any:
        def compiled() -> object:
            raw = self.xp.RawModule(code=text(module), options=options(), name_expressions=(kernel,))
            return raw.get_function(kernel)

        try:
            return compiled()
        except OSError as error:
            if os.environ.get(IN_MEMORY) == "1":
                raise
            os.environ[IN_MEMORY] = "1"  # CuPy reads it at each compilation
            why = f"CuPy's cache of compiled kernels cannot be written ({error})"
            more = "they are compiled in every process; set CUPY_CACHE_DIR to a folder that can be"
            warnings.warn(f"{why}: {more}", RuntimeWarning, stacklevel=2)
            return compiled()

    def gemm(self, product: Gemm) -> None:
        self.ready_gemm(product)()

    def ready_gemm(self, product: Gemm) -> Callable[[], object]:
        cublas, x = self.xp.cuda.cublas, product
        alpha, beta = (_factor(value, x.dtype).ctypes.data for value in (1.0, x.beta))
        head = (self.xp.cuda.device.get_cublas_handle(), int(x.turned_a), int(x.turned_b), x.m, x.n, x.k, alpha)
        letter = "d" if x.dtype == np.float64 else "s"
        if x.times == 1:
            return partial(getattr(cublas, f"{letter}gemm"), *head, x.a, x.lda, x.b, x.ldb, beta, x.c, x.ldc)
        a, b, c = (x.a, x.lda, x.step_a), (x.b, x.ldb, x.step_b), (x.c, x.ldc, x.step_c)
        return partial(getattr(cublas, f"{letter}gemmStridedBatched"), *head, *a, *b, beta, *c, x.times)


@cache
def _factor(value: float, dtype: Any) -> Any:
    """Returns the factor of a product. cuBLAS reads it where it stands, whenever it runs, so it is kept."""
    return np.array(value, dtype)


_MAJOR = "install the one of this machine's CUDA, and no other: pip install 'fedkern[cuda12]' or 'fedkern[cuda13]'"


def _first_line(error: BaseException) -> str:
    """Returns the original error of CuPy's long explanation, else its first line with a content."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip().strip("=")]
    after = [lines[i + 1] for i, line in enumerate(lines[:-1]) if line.startswith("Original error")]
    return (after or lines or [type(error).__name__])[0]


def _dotted(version: int) -> str:
    """Returns 12090 as people write it."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _too_old(cupy: Any) -> str:
    runtime = cupy.cuda.runtime
    has, needs = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    major = needs // 1000
    return (
        f"the driver of this machine knows CUDA {_dotted(has)}, and CuPy was built for CUDA {_dotted(needs)}: install a driver "
        f"of CUDA {major}, or a CuPy that is as old as the driver: pip install 'fedkern[cuda{has // 1000}]'"
    )


def _check_versions(cupy: Any) -> None:
    """Checks that driver, runtime and compiler are of one CUDA, or the driver newer."""
    runtime = cupy.cuda.runtime
    built = runtime.runtimeGetVersion() // 1000
    try:
        compiler = cupy.cuda.nvrtc.getVersion()[0]
    except Exception as error:  # of another major version there is no library by this name
        why = f"CuPy was built for CUDA {built} and finds no compiler (NVRTC) of it ({_first_line(error)})"
        raise DeviceError(f"{why}; {_MAJOR}") from None
    if compiler != built:
        raise DeviceError(f"CuPy was built for CUDA {built} and finds the compiler (NVRTC) of CUDA {compiler}; {_MAJOR}")
    if runtime.driverGetVersion() // 1000 < compiler:
        raise DeviceError(_too_old(cupy))


@contextmanager
def said_of_memory(lower: str) -> Iterator[None]:
    """Gives the error of a card's memory a text that says the amount asked, the amount free, and which setting to lower. Raises
    DeviceMemoryError."""
    try:
        yield
    except MemoryError as error:
        if not type(error).__module__.startswith("cupy"):
            raise
        free, total = current().xp.cuda.Device().mem_info
        pool = current().xp.get_default_memory_pool()
        limit = pool.get_limit() or total
        left = max(0, min(free + pool.free_bytes(), limit - pool.used_bytes()))
        size = getattr(error, "_size", None)  # CuPy has it nowhere else but in its text
        wanted = str(error) if size is None else f"asked for {size / 1e9:,.3g} GB"
        raise DeviceMemoryError(
            f"the card has too little memory: {wanted}, free are {left / 1e9:,.3g} GB of the {limit / 1e9:,.3g} GB that this "
            f"process may take; lower {lower}"
        ) from None


class Tape:
    """Stands before a device and keeps its calls: `again` makes the same calls with the same arrays, without the time that Python
    takes to find them. The calls under it are launches and products only; of its namespace only `empty` exists."""

    def __init__(self, device: Device) -> None:
        self._device, self._calls, self._kept = device, list[Callable[[], object]](), list[Any]()

    @property
    def xp(self) -> Any:
        return self

    def empty(self, shape: object, dtype: object = np.float64) -> Any:
        self._kept.append(self._device.xp.empty(shape, dtype))
        return self._kept[-1]

    def shared_memory(self) -> int:
        return self._device.shared_memory()

    def launch(self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0) -> None:
        self._do(self.ready(module, kernel, grid, threads, arguments, shared))

    def ready(
        self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0
    ) -> Callable[[], object]:
        return self._device.ready(module, kernel, grid, threads, arguments, shared)

    def gemm(self, product: Gemm) -> None:
        self._do(self.ready_gemm(product))

    def ready_gemm(self, product: Gemm) -> Callable[[], object]:
        return self._device.ready_gemm(product)

    def take(self, local: int, ranks: int) -> None:
        self._device.take(local, ranks)

    def about(self) -> dict[str, str]:
        return self._device.about()

    def _do(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        call()

    def again(self) -> None:
        for call in self._calls:
            call()


_CURRENT: list[Device] = []
_RECORDING: ContextVar[Tape | None] = ContextVar("_RECORDING", default=None)  # of each thread


def current() -> Device:
    """Returns the device of this process, found when it is first needed."""
    if tape := _RECORDING.get():
        return tape
    if not _CURRENT:
        _CURRENT.append(Card())
    return _CURRENT[-1]


@contextmanager
def recorded() -> Iterator[Tape]:
    """Sends this thread's calls of the device through a tape."""
    tape = Tape(current())
    before = _RECORDING.set(tape)
    try:
        yield tape
    finally:
        _RECORDING.reset(before)


def check_home(kernel: str, arrays: Iterable[Array]) -> None:
    """Refuses arrays that do not all live on the one device where the backend's kernels run. Raises TypeError."""
    here = current()
    given = [a for a in arrays if a is not None]
    for array in given:
        if not isinstance(array, here.xp.ndarray):
            raise TypeError(f"{kernel}: backend 'cuda' takes CuPy arrays, got NumPy arrays; move them by cupy.asarray")
    if len({getattr(getattr(a, "device", None), "id", None) for a in given}) > 1:
        raise TypeError(f"{kernel}: arrays of two devices in one call; move them to one of the two")


named = cache(str)  # of types of numbers: NumPy takes some microseconds for a name


# ---- Arguments as bytes of a known size.


def pointer(array: Array) -> np.uintp:
    """Returns where an array begins; 0 for None."""
    if array is None:
        return np.uintp(0)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return np.uintp(address)


def plain(value: object) -> Any:
    """Returns an array as its pointer, a Python int as an Index, a float as a double."""
    if value is None or getattr(value, "shape", ()) != ():
        return pointer(value)
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    return np.float64(value) if isinstance(value, float) else value


# ---- Structures, as the headers have them.

MATRIX = np.dtype([(f, "i8") for f in ("data", "rows", "cols", "row_stride", "col_stride")], align=True)
VECTOR = np.dtype([(f, "i8") for f in ("data", "size", "stride")], align=True)
_COUNTER = np.dtype([(f, "u4") for f in ("item", "draw", "client", "step")], align=True)


def structure(dtype: np.dtype[np.void], *values: object) -> np.void:
    """Returns a structure by value, as a kernel takes it."""
    return cast(np.void, np.array(tuple(values), dtype)[()])


def strides(array: Array) -> list[int]:
    """Returns strides in elements."""
    return [s // array.itemsize for s in array.strides]


def matrix(array: Array) -> np.void:
    """Returns a Matrix<T> of view.hpp."""
    return structure(MATRIX, pointer(array), *array.shape, *strides(array))


def vector(array: Array) -> np.void:
    """Returns a Vector<T> of view.hpp."""
    return structure(VECTOR, pointer(array), *array.shape, *strides(array))


def counter(client: int, step: int, draw: int = 0, item: int = 0) -> np.void:
    """Returns a Counter of rng.hpp."""
    return structure(_COUNTER, item, draw, client, step)


def key(value: int) -> np.uint64:
    """Returns a U64."""
    return np.uint64(value)


def blocks(work: int, each: int, most: int = MOST_BLOCKS) -> int:
    """Returns the number of blocks, each of which does `each` of the work. It follows from the size alone, so that no card
    changes a sum's order."""
    return max(1, min(-(-work // each), most))


# ---- Products of matrices.


def multiply(a: Array, b: Array, out: Array, add: bool = False) -> None:
    """Computes out = a b, or out += a b; with three dimensions, for each index of the first. `a`, `b`: (.., m, k), (.., k, n)
    arrays Numbers are neighbours along rows or along columns; `out`: (.., m, n) array Neighbours along rows."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    (turned_a, lda), (turned_b, ldb), (_, ldc) = map(_leading, (a, b, out))
    step_a, step_b, step_c = (strides(x)[0] if x.ndim == 3 else 0 for x in (a, b, out))
    at_a, at_b, at_c = (int(pointer(x)) for x in (a, b, out))
    times = out.shape[0] if out.ndim == 3 else 1
    # By columns, memory holds the transposed matrices: out' = b' a'.
    second, first = (at_a, lda, step_a), (at_b, ldb, step_b)
    current().gemm(Gemm(out.dtype, turned_b, turned_a, n, m, k, *first, *second, float(add), at_c, ldc, step_c, times))


def _leading(x: Array) -> tuple[bool, int]:
    """Returns whether neighbours stand along columns, and the distance in numbers from one row (or column) to the next."""
    rows, columns = x.shape[-2:]
    down, right = strides(x)[-2:]
    if right == 1 or columns == 1:
        step = down if rows > 1 else columns
        return False, step
    assert down == 1 or rows == 1
    return True, right


def neighbours(array: Array) -> Array:
    """Returns the array if its numbers stand one behind the other from a multiple of 16 bytes on, else its copy. The algorithm
    that cuBLAS takes depends on that, and its bits with it."""
    xp = current().xp
    return xp.ascontiguousarray(array) if int(pointer(array)) % 16 == 0 else xp.array(array, order="C")
