"""Where arrays of the cuda backend live and how a kernel is started: on a card by CuPy, or in tests by the grid emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

import fedkern
from fedkern.errors import DeviceError

Launched: TypeAlias = tuple[Any, ...]  # arguments of a kernel: arrays, structures, numbers

LEAST_CAPABILITY = 80  # of the first card with asynchronous copies and 163 KiB of shared memory a block
MOST_BLOCKS = 2048


class Gemm(NamedTuple):
    """What BLAS calls by this name, of matrices by columns: C = op(A) op(B) + beta C, so many `times`.

    Attributes
    ----------
    turned_a, turned_b : whether op is the transpose
    m, n, k : op(A) is (m, k), op(B) (k, n)
    a, b, c : where they begin
    lda, ldb, ldc : numbers from one column to the next
    step_a, step_b, step_c : numbers from one matrix to the next
    """

    dtype: Any
    turned_a: bool
    turned_b: bool
    m: int
    n: int
    k: int
    a: int
    lda: int
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
    """One side of the seam.

    Attributes
    ----------
    xp : the namespace of its arrays
    """

    @property
    def xp(self) -> Any: ...

    def shared_memory(self) -> int:
        """Bytes that a block may have."""
        ...

    def launch(self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0) -> None:
        """Starts `kernel` of csrc/cuda/`module`.cu on the caller's stream; nobody waits for it."""
        ...

    def gemm(self, product: Gemm) -> None:
        """Starts a product on the same stream."""
        ...


def sources() -> Path:
    """The folder of the .cu files."""
    return Path(fedkern.get_include()).parent / "cuda"


def text(module: str) -> str:
    """What is compiled: names of instances are then those of the file itself."""
    return f'#include "{module}.cu"\nusing namespace fedkern;\nusing namespace fedkern::cuda;\n'


@cache
def options() -> tuple[str, ...]:
    """Of the compiler. CuPy's cache does not look into included files, so their digest is among them.

    Lambdas are a device's functions: CUDA 13 sees that by itself, CUDA 12 must be told.
    """
    include, cuda = Path(fedkern.get_include()), sources()
    digest = blake2b(digest_size=16)
    for path in sorted([*include.rglob("*.hpp"), *include.rglob("*.def"), *cuda.glob("*")]):
        digest.update(path.name.encode() + path.read_bytes())
    language = ("--std=c++20", "--device-as-default-execution-space")
    return (*language, f"-I{include}", f"-I{cuda}", f"-DFEDKERN_SOURCES={digest.hexdigest()}")


class Card:
    """A GPU, through CuPy. An instance is compiled when it is first needed; CuPy keeps it on disk.

    Raises
    ------
    DeviceError
        No CuPy, no driver, no card, or one that is too old.
    """

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError:
            raise DeviceError(
                "backend 'cuda' needs CuPy, and it is not installed: pip install 'fedkern[cuda12]' or 'fedkern[cuda13]'"
            ) from None
        self.xp = cupy
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy has an exception of its own for each library that is missing
            raise DeviceError(f"CuPy finds no driver of a CUDA card ({error}); install one, or use another backend") from None
        if not count:
            raise DeviceError("CuPy finds no CUDA card; use another backend")
        self._kernels: dict[tuple[int, str, str], Any] = {}
        self._good: set[int] = set()

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
        device = self.xp.cuda.Device()
        if device.id not in self._good:
            self._check(device)
        function = self._kernels.get((device.id, module, kernel))
        if function is None:
            raw = self.xp.RawModule(code=text(module), options=options(), name_expressions=(kernel,))
            function = self._kernels[device.id, module, kernel] = raw.get_function(kernel)
        if shared > 48 * 1024:
            function.max_dynamic_shared_size_bytes = shared
        function(grid, (threads,), tuple(plain(a) for a in arguments), shared_mem=shared)

    def gemm(self, product: Gemm) -> None:
        cublas, x = self.xp.cuda.cublas, product
        one, beta = np.array(1, x.dtype), np.array(x.beta, x.dtype)
        head = (self.xp.cuda.device.get_cublas_handle(), int(x.turned_a), int(x.turned_b), x.m, x.n, x.k, one.ctypes.data)
        letter = "d" if x.dtype == np.float64 else "s"
        if x.times == 1:
            tail = (x.a, x.lda, x.b, x.ldb, beta.ctypes.data, x.c, x.ldc)
            getattr(cublas, f"{letter}gemm")(*head, *tail)
        else:
            a, b, c = (x.a, x.lda, x.step_a), (x.b, x.ldb, x.step_b), (x.c, x.ldc, x.step_c)
            getattr(cublas, f"{letter}gemmStridedBatched")(*head, *a, *b, beta.ctypes.data, *c, x.times)


class Tape:
    """Stands before a device, and keeps what it is asked: `again` asks the same with the same arrays, without the time that
    Python takes to find them. All that is done under it is launches and products: of its namespace there is `empty` alone."""

    def __init__(self, device: Device) -> None:
        self._device, self._calls, self._kept = device, list[Callable[[], None]](), list[Any]()

    @property
    def xp(self) -> Any:
        return self

    def empty(self, shape: Any, dtype: Any = np.float64) -> Any:
        self._kept.append(self._device.xp.empty(shape, dtype))
        return self._kept[-1]

    def shared_memory(self) -> int:
        return self._device.shared_memory()

    def launch(self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: Launched, shared: int = 0) -> None:
        self._do(partial(self._device.launch, module, kernel, grid, threads, tuple(plain(a) for a in arguments), shared))

    def gemm(self, product: Gemm) -> None:
        self._do(partial(self._device.gemm, product))

    def _do(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        call()

    def again(self) -> None:
        for call in self._calls:
            call()


_CURRENT: list[Device] = []
_RECORDING: ContextVar[Tape | None] = ContextVar("_RECORDING", default=None)  # of each thread


def current() -> Device:
    """The device of this process, found when it is first needed."""
    if tape := _RECORDING.get():
        return tape
    if not _CURRENT:
        _CURRENT.append(Card())
    return _CURRENT[-1]


@contextmanager
def recorded() -> Iterator[Tape]:
    """What this thread asks of the device goes through a tape."""
    tape = Tape(current())
    before = _RECORDING.set(tape)
    try:
        yield tape
    finally:
        _RECORDING.reset(before)


def check_home(kernel: str, arrays: Iterable[Any]) -> None:
    """That all arrays live on one device, where the backend's kernels run.

    Raises
    ------
    TypeError
    """
    here = current()
    found = [a for a in arrays if a is not None]
    for array in found:
        if not isinstance(array, here.xp.ndarray):
            raise TypeError(f"{kernel}: backend 'cuda' takes CuPy arrays, got NumPy arrays; move them by cupy.asarray")
    if len({getattr(a, "device", None) for a in found}) > 1:
        raise TypeError(f"{kernel}: arrays of two devices in one call; move them to one of the two")


# ---- Arguments as bytes of a known size.


def pointer(array: Any) -> np.uintp:
    """Where an array begins; 0 for None."""
    if array is None:
        return np.uintp(0)
    return np.uintp(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def plain(value: Any) -> Any:
    """An array becomes its pointer, a Python int an Index, a float a double."""
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


def structure(dtype: np.dtype[Any], *values: Any) -> Any:
    """By value, as a kernel takes it."""
    return np.array(tuple(values), dtype)[()]


def strides(array: Any) -> list[int]:
    """In elements."""
    return [s // array.itemsize for s in array.strides]


def matrix(array: Any) -> Any:
    """Matrix<T> of view.hpp."""
    return structure(MATRIX, pointer(array), *array.shape, *strides(array))


def vector(array: Any) -> Any:
    """Vector<T> of view.hpp."""
    return structure(VECTOR, pointer(array), *array.shape, *strides(array))


def counter(client: int, step: int, draw: int = 0, item: int = 0) -> Any:
    """Counter of rng.hpp."""
    return structure(_COUNTER, item, draw, client, step)


def key(value: int) -> np.uint64:
    """U64."""
    return np.uint64(value)


def blocks(work: int, each: int, most: int = MOST_BLOCKS) -> int:
    """How many blocks, of which one does `each` of the work: from its size alone, so that no card changes a sum's order."""
    return max(1, min(-(-work // each), most))


# ---- Products of matrices.


def multiply(a: Any, b: Any, out: Any, add: bool = False) -> None:
    """out = a b, or out += a b; of three dimensions, for each index of the first.

    Parameters
    ----------
    a, b : (.., m, k), (.., k, n) arrays
        Numbers are neighbours along rows or along columns.
    out : (.., m, n) array
        Neighbours along rows.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    (turned_a, lda), (turned_b, ldb), (_, ldc) = map(_leading, (a, b, out))
    step_a, step_b, step_c = (strides(x)[0] if x.ndim == 3 else 0 for x in (a, b, out))
    at_a, at_b, at_c = (int(pointer(x)) for x in (a, b, out))
    times = out.shape[0] if out.ndim == 3 else 1
    # By columns, memory holds the transposed matrices: out' = b' a'.
    second, first = (at_a, lda, step_a), (at_b, ldb, step_b)
    current().gemm(Gemm(out.dtype, turned_b, turned_a, n, m, k, *first, *second, float(add), at_c, ldc, step_c, times))


def _leading(x: Any) -> tuple[bool, int]:
    """Whether neighbours stand along columns, and the numbers from one row (or column) to the next."""
    rows, columns = x.shape[-2:]
    down, right = strides(x)[-2:]
    if right == 1 or columns == 1:
        return False, down if rows > 1 else columns
    assert down == 1 or rows == 1
    return True, right


def neighbours(array: Any) -> Any:
    """The array if its numbers stand one behind the other from a multiple of 16 bytes on, else its copy: what cuBLAS does depends
    on that, and its bits with it."""
    xp = current().xp
    return xp.ascontiguousarray(array) if int(pointer(array)) % 16 == 0 else xp.array(array, order="C")
