"""The kernels of csrc/cuda on the host: built by g++ with the grid emulator of tests/cpp."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from hashlib import blake2b
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

import fedkern
from fedkern.kernels._cuda import device

HERE = Path(__file__).parents[1] / "cpp"
FOLDER = Path(__file__).parents[2] / "build" / "emulated"
ORDERS = (0, 1, 2)  # of threads, warps and blocks: as numbered, backwards, random
FLAGS = ("-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Wno-unknown-pragmas")


def built(folder: Path, sources: Path | None = None, sanitizer: str = "", modules: Sequence[str] = ()) -> Path:
    """The library of all .cu files in `sources` (by default the package's), in `folder`; what is there is not built again.

    sanitizer : "", "thread", "address" or "undefined", of the kernels; the emulator itself has none
    """
    sources = sources or device.sources()
    # -O1 compiles in two thirds of the time, and the kernels run as fast; at night -O2 warns of more. Lines for a debugger, which
    # cost a sixth more, are for sanitizers.
    flags = (*FLAGS, *(("-O2", "-g1", f"-fsanitize={sanitizer}") if sanitizer else ("-O1",)))
    include = Path(fedkern.get_include())
    files = [path for path in sorted(sources.glob("*.cu")) if not modules or path.stem in modules]
    digest = blake2b(repr([flags, [p.name for p in files]]).encode(), digest_size=12)
    for path in sorted([*include.rglob("*.hpp"), *include.rglob("*.def"), *sources.glob("*"), *HERE.glob("emulator.*")]):
        digest.update(path.read_bytes())
    library = folder / f"emulated-{digest.hexdigest()}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:  # tests that run at the same time wait for the one that builds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _build(library, flags, include, sources, files)
    return library


def _build(library: Path, flags: Sequence[str], include: Path, sources: Path, files: Sequence[Path]) -> None:
    made = library.parent / f"{library.stem}-{os.getpid()}"
    made.mkdir()
    with_sanitizer = [flag for flag in flags if flag.startswith("-fsanitize")]

    def compile_(source: Path) -> str:
        out = made / f"{source.stem}.o"
        own = [flag for flag in flags if source.suffix == ".cu" or flag not in with_sanitizer]
        command = ["g++", *own, f"-I{include}", f"-I{sources}", f"-I{HERE}", "-x", "c++", "-c", str(source), "-o", str(out)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert not ran.stderr, ran.stderr
        return str(out)

    with ThreadPool(len(os.sched_getaffinity(0))) as pool:
        objects = pool.map(compile_, [HERE / "emulator.cpp", *files], chunksize=1)
    fresh = made / library.name
    subprocess.run(["g++", "-shared", *with_sanitizer, "-o", str(fresh), *objects], check=True)
    fresh.rename(library)


class Emulator:
    """Runs kernels on the host, in a chosen order of threads and blocks.

    Attributes
    ----------
    seen : instance -> how often it was launched
    """

    xp = np

    def __init__(self, library: Path, order: int = 0, shared: int = 227 * 1024) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.emulate.restype = self._library.emulated_kernels.restype = ctypes.c_char_p
        self.order, self._shared = order, shared
        self.seen: dict[str, int] = {}

    def kernels(self) -> list[str]:
        """All instances."""
        return [*self._library.emulated_kernels().decode().split("\n")[:-1]]

    def shared_memory(self) -> int:
        return self._shared

    def launch(
        self, module: str, kernel: str, grid: tuple[int, ...], threads: int, arguments: tuple[Any, ...], shared: int = 0
    ) -> None:
        self._library.emulated_shared_memory(ctypes.c_size_t(self._shared))  # emulators of one library may have different cards
        values = [np.atleast_1d(device.plain(a)) for a in arguments]
        sizes = (ctypes.c_size_t * len(values))(*(v.itemsize for v in values))
        parameters = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
        extent = (ctypes.c_uint * 3)(*grid, *(1,) * (3 - len(grid)))
        count = ctypes.c_size_t(len(values))
        call = (kernel.encode(), extent, threads, ctypes.c_size_t(shared), parameters, sizes, count, self.order)
        fault = self._library.emulate(*call)
        self.seen[kernel] = self.seen.get(kernel, 0) + 1
        if fault:
            raise RuntimeError(f"{module}: {fault.decode()}")

    def ready(self, module: str, kernel: str, grid: Any, threads: int, arguments: Any, shared: int = 0) -> Callable[[], None]:
        return partial(self.launch, module, kernel, grid, threads, tuple(map(device.plain, arguments)), shared)

    def ready_gemm(self, product: device.Gemm) -> Callable[[], None]:
        return partial(self.gemm, product)

    def gemm(self, product: device.Gemm) -> None:
        x, letter = product, "d" if product.dtype == np.float64 else "s"
        one, beta = np.array(1, x.dtype), np.array(x.beta, x.dtype)
        turned = [ctypes.c_char(b"T" if t else b"N") for t in (x.turned_a, x.turned_b)]
        sizes = {name: ctypes.c_int(getattr(x, name)) for name in ("m", "n", "k", "lda", "ldb", "ldc")}
        m, n, k, lda, ldb, ldc = map(ctypes.byref, sizes.values())
        for i in range(x.times):
            steps = (x.a, x.step_a), (x.b, x.step_b), (x.c, x.step_c)
            a, b, c = (ctypes.c_void_p(at + i * step * x.dtype.itemsize) for at, step in steps)
            _blas(f"{letter}gemm")(*map(ctypes.byref, turned), m, n, k, one.ctypes, a, lda, b, ldb, beta.ctypes, c, ldc)


@cache
def _blas(name: str) -> Any:
    """A routine of SciPy's, by its C signature."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    return ctypes.CFUNCTYPE(None)(api.PyCapsule_GetPointer(capsule, signature))


@contextmanager
def instead_of_a_card(emulator: Emulator) -> Iterator[Emulator]:
    """The cuda backend takes NumPy arrays, and its kernels run on the emulator."""
    device._CURRENT.append(emulator)
    try:
        with np.errstate(all="ignore"):  # a card warns of nothing
            yield emulator
    finally:
        device._CURRENT.remove(emulator)
