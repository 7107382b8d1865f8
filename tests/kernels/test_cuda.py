"""The cuda backend without a card: its kernels on the grid emulator, and what is said where there is no device.

`test_conformance.py` compares each of its kernels with the reference. Here: equal bits in any order of threads and blocks, all
instances, planted faults, sanitizers, and machine code for real cards.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fedkern import kernels, testing
from fedkern.errors import DeviceError
from fedkern.kernels._cuda import device, mixed, mlp, sem, spatial
from fedkern.kernels._layers import VARIANTS
from fedkern.kernels._record import KERNELS
from fedkern.kernels.mlp import Architecture
from fedkern.testing import mixed as of_mixed
from fedkern.testing import mlp as of_vae
from fedkern.testing import sem as of_sem
from support import emulated, faults_of_cuda

NAMES = sorted(name for name, kernel in KERNELS.items() if "cuda" in kernel.backends)
# Sizes beyond those of random cases, so that every instance runs: wide rows, several blocks.
WIDE: dict[str, tuple[tuple[int, ...], ...]] = {
    "privacy.clip_sum": ((70, 600), (17,), (70, 100), (300,)),
    **{f"glm.{name}": ((20,), (100,), (200,), (300,), (20, 600)) for name in ("loglik_grad", "elbo_grad", "clipped_grad_sum")},
    **{name: ((9, 33),) for name in NAMES if name in ("glm.expectations", "glm.predict") or name.endswith("_full")},
    **dict.fromkeys(("mlp.forward", "mlp.backward"), ((1100,), (512,), (700,))),  # several chunks of rows, whole and not
    "mlp.vae_gradient": ((130,),),
    **{name: ((1000, 4097),) for name in NAMES if name.startswith("rng.")},
}

SEEDS = {"sem.sweeps": 24, "spatial.table_sample": 16, "mixed.values": 42}  # as many as their switches need


@cache
def cases(name: str) -> tuple[testing.Case, ...]:
    return (*_cases(name),)


def _cases(name: str) -> Iterator[testing.Case]:
    with patch.object(of_mixed, "FAMILIES", [f for f in of_mixed.FAMILIES if f not in KERNELS["mixed.values"].lacks["cuda"]]):
        yield from _of_all_families(name)


def _of_all_families(name: str) -> Iterator[testing.Case]:
    for seed in range(SEEDS.get(name, 4)):
        yield testing.case(name, seed)
    for sizes in WIDE.get(name, ()):
        yield from of_each_kind(name, sizes) if name.startswith("glm.") else (testing.case(name, s, sizes) for s in range(8))
    yield from MORE.get(name, lambda: ())()


def of_each_kind(name: str, sizes: tuple[int, ...]) -> Iterator[testing.Case]:
    """A case of everything that an instance depends on."""
    kinds: set[object] = set()
    newest = 0
    for seed in range(600):
        if seed - newest > 200:  # most kinds are found by then, and large cases cost more to make than to run
            break
        case = testing.case(name, seed, sizes)
        a = case.arguments
        family = a["family"] if max(sizes) < 64 else ""  # all where cheap
        estimator = a.get("estimator")
        several = a.get("draws", 1) > 1 and estimator not in (None, "analytic")
        kind = (a["X"].shape[1], str(a["X"].dtype), family, estimator, several, a.get("grid") is None)
        if kind not in kinds:
            kinds.add(kind)
            newest = seed
            yield case


def wide_autoencoders() -> Iterator[testing.Case]:
    """More numbers and units than a warp has lanes."""
    for seed, (variant, dtype) in enumerate(itertools.product(VARIANTS, ("float64", "float32"))):
        random = np.random.default_rng(seed)
        source = testing.Source(lambda options: options[0], random)
        a = Architecture(variant, (70, 3), n_conditions=2, n_local=(40, 2), hidden=40, local_hidden=33, rank=3)
        arrays = of_vae.inputs(source, a, 9, dtype)
        arguments = dict(zip(("parameters", "theta", "t", "noise"), (source.array(array, dtype) for array in arrays)))
        magnitude = of_vae.most(arrays, a, 0.5, 0.3, dtype, random)
        more = {"architecture": a, "gamma": 0.5, "kl_weight": 0.3}
        yield testing.Case(arguments | more, precision=dtype, magnitude=magnitude)


def with_many_variables(name: str) -> Callable[[], Iterable[testing.Case]]:
    """More than a warp has lanes."""

    def made() -> Iterator[testing.Case]:
        for seed in range(6):
            with patch.object(of_sem, "VARIABLES", (35,)), patch.object(of_sem, "ROWS", (40, 65)):
                case = testing.case(name, seed)
                if case.arguments.get("stable") and case.arguments["n_sweeps"] > 1:  # p^4 products for each element that moves
                    case = of_sem.of_sweeps(case.arguments | {"n_sweeps": 1})
                yield case

    return made


def wide_steps() -> Iterator[testing.Case]:
    """Draws of more numbers than a block has threads, of factors of more columns than a warp has lanes. Of four stored draws, of
    entries 0, 1, 0 and 1, the second is not finite."""
    a = Architecture("amended", (270,), n_local=(3,), hidden=5, local_hidden=4)
    k, d, rank = a.n_parameters, a.n_values, 40
    columns = [np.r_[i, np.arange(i + 1, d, 7)] for i in range(d)]
    indptr = np.cumsum([0, *map(len, columns)])
    for seed, (kind, dtype) in enumerate(itertools.product(("stored", "dense", "sparse"), ("float64", "float32"))):
        random = np.random.default_rng(seed)
        draw = random.standard_normal
        n_steps, batch, rows = (4, 1, 2) if kind == "stored" else (2, 5, 3)
        values = draw((rows, {"stored": d, "dense": d * rank, "sparse": indptr[-1]}[kind]))
        if kind == "stored":
            values[1, 7] = np.nan
        if kind == "sparse":
            values *= 0.05
            values[:, indptr[:-1]] = random.uniform(1, 2, (3, d))
        pattern = (
            {"indptr": indptr, "indices": np.concatenate(columns), "order": random.permutation(d)} if kind == "sparse" else {}
        )
        arguments = {
            "parameters": (a.initial(seed) + 0.1 * draw(k)).astype(dtype),
            "moments": np.stack([draw(k), 1 + random.exponential(size=k)]).astype(dtype),
            "values": values,
            "scale": random.uniform(0.5, 2, d),
            **(pattern if kind == "sparse" else {}),
            "phi": draw((rows, 1)),
            "rates": np.full(n_steps, 1e-3),
            "kl_weights": np.ones(n_steps),
            "architecture": a,
            "kind": kind,
            "rank": rank if kind == "dense" else 0,
            "group": 2,
            "batch": batch,
            "gamma": 0.5,
            "seed": 5,
        }
        found = kernels.mlp.vae_step(**arguments, backend="reference")  # type: ignore[arg-type]
        largest = abs(np.nan_to_num(found[2])).max(axis=0, initial=1.0)
        assert np.isnan(found[2]).sum() == (15 if kind == "stored" else 0)
        most = [1 + abs(found[0]), (1 + 1e-3 * largest[4]) * (1 + abs(found[1])), largest]
        yield testing.Case(arguments, "chain", dtype, most)


MORE: dict[str, Callable[[], Iterable[testing.Case]]] = {
    "mlp.vae_gradient": wide_autoencoders,
    "mlp.vae_step": wide_steps,
    **{name: with_many_variables(name) for name in NAMES if name.startswith("sem.")},
}


@pytest.fixture(scope="module")
def library() -> Path:
    return emulated.built(emulated.FOLDER)


@pytest.fixture(scope="module")
def by_order(library: Path) -> dict[int, emulated.Emulator]:
    return {order: emulated.Emulator(library, order) for order in emulated.ORDERS}


def bits_of(name: str, emulator: emulated.Emulator, first: int | None = None) -> list[bytes]:
    """A digest of what each case gives, or each of so many."""
    with emulated.instead_of_a_card(emulator):
        some = itertools.islice(_cases(name), first) if first else cases(name)
        found = (testing.results_of(name, case, backend="cuda") for case in some)
        return [blake2b(b"".join(np.asarray(r).tobytes() for r in results)).digest() for results in found]


@pytest.fixture(scope="module")
def usual(by_order: dict[int, emulated.Emulator]) -> Callable[[str], list[bytes]]:
    """The bits of a kernel's cases on an ordinary card in the numbered order."""
    return cache(lambda name: bits_of(name, by_order[0]))


RAN: set[str] = set()  # kernels whose cases have all run in the numbered order
# By day in one order, and others of their families in all. Each with the first words of the instances that others do not run.
LONG = {
    "glm.clipped_grad_sum": ("example_", "finish_examples"),
    "glm.elbo_grad": ("loglik_", "finish_analytic", "finish_sampled"),
    "sem.sweeps": ("sweeps_of_chains",),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LONG)) for name in NAMES])
def test_the_same_bits_in_a_random_order_of_threads_and_blocks(
    name: str, by_order: dict[int, emulated.Emulator], usual: Callable[[str], list[bytes]]
) -> None:
    """And in the opposite one at night (`test_conforms_in_other_orders`)."""
    assert bits_of(name, by_order[emulated.ORDERS[-1]]) == usual(name)
    with emulated.instead_of_a_card(by_order[0]):
        for case in cases(name):
            testing.assert_conforms(name, "cuda", case, once=True)
    RAN.add(name)


def test_every_instance_runs(by_order: dict[int, emulated.Emulator]) -> None:
    """Random sizes alone leave instances out. What is long runs until each of its own has run."""
    emulator = by_order[0]
    with emulated.instead_of_a_card(emulator):
        for name in sorted({*NAMES} - RAN):
            own = {one for one in emulator.kernels() if name in LONG and one.startswith(LONG[name])}
            for case in _cases(name):
                testing.results_of(name, case, backend="cuda")
                if own and own <= set(emulator.seen):
                    break
    assert set(emulator.kernels()) == set(emulator.seen)


def test_rows_beyond_the_workspace_come_piece_by_piece(
    by_order: dict[int, emulated.Emulator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlp, "MOST", 1)
    with emulated.instead_of_a_card(by_order[0]):
        for name in ("mlp.forward", "mlp.backward"):
            for seed in range(6):
                testing.assert_conforms(name, "cuda", testing.case(name, seed, (1100,)))


def test_a_sparse_draw_beyond_shared_memory(library: Path) -> None:
    """The same bits from a card with less of it."""
    bits = set()
    for shared in (2100, 227 * 1024):
        with emulated.instead_of_a_card(emulated.Emulator(library, shared=shared)):
            for case in wide_steps():
                if case.arguments["kind"] == "sparse":
                    found = testing.results_of("mlp.vae_step", case, backend="cuda")
                    bits.add((case.precision, *(np.asarray(r).tobytes() for r in found)))
    assert len(bits) == 2  # one for each type


@pytest.mark.parametrize(
    ("kind", "shape", "said"),
    [
        (0, (2, 4), r"values must have a row, and 3 columns, got \(2, 4\)"),
        (0, (0, 3), r"values must have a row, and 3 columns, got \(0, 3\)"),
        (1, (2, 5), r"values must have a row, and 6 columns, got \(2, 5\)"),
        (2, (2, 4), r"values must have a row, and 5 columns, got \(2, 4\)"),
        (2, (2, 5), r"indptr and order must have 4 and 3 numbers, got 3 and 3"),
    ],
)
def test_a_table_of_a_wrong_shape_is_refused(
    kind: int, shape: tuple[int, ...], said: str, by_order: dict[int, emulated.Emulator]
) -> None:
    """Of arrays on a device nothing else was looked at."""
    arrays = (np.zeros(shape), np.zeros((2, 1)), np.zeros(3), np.zeros(3, np.int64), np.zeros(5, np.int64), np.zeros(3, np.int64))
    with emulated.instead_of_a_card(by_order[0]), pytest.raises(ValueError, match=said):
        mlp.Draws(arrays, kind, 2, 1, 0, 0, np.float64, 0, np.zeros(1, np.int64))


def test_products_are_what_blas_is_asked_for(by_order: dict[int, emulated.Emulator]) -> None:
    """In every layout that has neighbours along rows or columns: cuBLAS is asked in the same words."""
    random = np.random.default_rng(1)
    for m, n, k in itertools.product((1, 3, 8), repeat=3):
        for turned_a, turned_b, add, count, dtype in itertools.product((0, 1), (0, 1), (False, True), (0, 1, 4), ("f8", "f4")):
            head = (count,) if count else ()
            a, b, out = (random.standard_normal((*head, r, c + 2)).astype(dtype) for r, c in ((m, k), (k, n), (m, n)))
            a, b, out = a[..., :k], b[..., :n], out[..., :n]
            a, b = (np.swapaxes(np.array(np.swapaxes(x, -1, -2)), -1, -2) if t else x for x, t in ((a, turned_a), (b, turned_b)))
            want = a.astype(np.float64) @ b + (out if add else 0)
            with emulated.instead_of_a_card(by_order[0]):
                device.multiply(a, b, out, add)
            np.testing.assert_allclose(out, want, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-5 if dtype == "f4" else 1e-12)


class Cublas:
    """CuPy's signatures of two routines, and what they do."""

    def __init__(self, emulator: emulated.Emulator) -> None:
        self.emulator = emulator

    def sgemm(self, *arguments: int) -> None:
        self._gemm(np.dtype("f4"), *arguments)

    def dgemm(self, *arguments: int) -> None:
        self._gemm(np.dtype("f8"), *arguments)

    def _gemm(self, dtype: Any, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, *rest: int) -> None:
        a, lda, b, ldb, beta, c, ldc = rest
        self._strided(dtype, handle, transa, transb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1)

    def sgemmStridedBatched(self, *arguments: int) -> None:
        self._strided(np.dtype("f4"), *arguments)

    def dgemmStridedBatched(self, *arguments: int) -> None:
        self._strided(np.dtype("f8"), *arguments)

    def _strided(self, dtype: Any, *x: int) -> None:
        handle, transa, transb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, times = x
        number = ctypes.c_double if dtype == np.float64 else ctypes.c_float
        assert (handle, number.from_address(alpha).value) == (7, 1)
        factor = number.from_address(beta).value
        operations = bool(transa), bool(transb)
        of_b, of_c = (b, ldb, step_b), (c, ldc, step_c)
        self.emulator.gemm(device.Gemm(dtype, *operations, m, n, k, a, lda, step_a, *of_b, factor, *of_c, times))


def test_a_card_asks_cublas_in_the_order_of_its_arguments(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = object.__new__(device.Card)
    cublas, handle = Cublas(emulated.Emulator(library)), SimpleNamespace(get_cublas_handle=lambda: 7)
    card.xp = SimpleNamespace(cuda=SimpleNamespace(cublas=cublas, device=handle))
    monkeypatch.setattr(device, "_CURRENT", [card])
    random = np.random.default_rng(1)
    for dtype, head, add in itertools.product(("f8", "f4"), ((), (3,)), (False, True)):
        a, b, out = (random.standard_normal((*head, *shape)).astype(dtype) for shape in ((4, 5), (6, 5), (4, 6)))
        want = a @ np.swapaxes(b, -1, -2) + (out if add else 0)
        device.multiply(a, np.swapaxes(b, -1, -2), out, add)
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-5 if dtype == "f4" else 1e-13)


def test_partial_sums_of_many_blocks_are_all_added(by_order: dict[int, emulated.Emulator]) -> None:
    """Each of eight warps reads sixteen at a time, and then those that are left. Every block has a number of its own."""
    for blocks in (127, 128, 129, 255, 300):
        n = 64 * blocks  # a block takes 64 rows of one column
        rows = np.zeros((n, 1))
        rows[::64, 0] = np.arange(1, blocks + 1)
        with emulated.instead_of_a_card(by_order[0]):
            total = kernels.privacy.clip_sum(rows, 1e9, backend="cuda")
        assert total.tolist() == [blocks * (blocks + 1) / 2]


@pytest.mark.nightly
@pytest.mark.parametrize("order", emulated.ORDERS[1:])
@pytest.mark.parametrize("name", NAMES)
def test_conforms_in_other_orders(name: str, order: int, by_order: dict[int, emulated.Emulator]) -> None:
    with emulated.instead_of_a_card(by_order[order]):
        for seed in range(60):
            testing.assert_conforms(name, "cuda", testing.case(name, seed))
        for case in cases(name):
            testing.assert_conforms(name, "cuda", case)


# ---- Planted faults, and sanitizers.

ALONE = """
import sys
from pathlib import Path
from fedkern import testing
from support import emulated
import kernels.test_cuda as own
name, library, order = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
with emulated.instead_of_a_card(emulated.Emulator(library, order)):
    for case in own.cases(name):
        if sys.argv[4]:  # a sanitizer looks at one run
            testing.results_of(name, case, backend="cuda")
        else:
            testing.assert_conforms(name, "cuda", case)
"""


def alone(name: str, library: Path, order: int = 0, sanitizer: str = "") -> subprocess.CompletedProcess[str]:
    """The cases of a kernel in a process of their own: a fault may end it, and a sanitizer has to be there from its start."""
    environment = dict(os.environ)
    if sanitizer:
        runtime = f"lib{sanitizer[0]}san.so" if sanitizer != "undefined" else "libubsan.so"
        found = subprocess.run(["g++", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True).stdout.strip()
        options = {
            "TSAN_OPTIONS": "exitcode=66",
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1:exitcode=66",
        }
        environment |= {"LD_PRELOAD": found, **options}
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{ALONE}"]
    command += [name, str(library), str(order), sanitizer]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


def modules(family: str) -> list[str]:
    """What a family's kernels are launched from."""
    return [family] if family == "rng" else [family, "rng"]


@pytest.mark.nightly
@pytest.mark.parametrize("family", sorted({name.partition(".")[0] for name in NAMES}))
@pytest.mark.parametrize("sanitizer", ["thread", "address", "undefined"])
def test_no_sanitizer_has_anything_to_say(sanitizer: str, family: str, tmp_path: Path) -> None:
    library = emulated.built(tmp_path, sanitizer=sanitizer, modules=modules(family))
    for name in NAMES:
        if not name.startswith(f"{family}."):
            continue
        ended = alone(name, library, sanitizer=sanitizer)
        assert ended.returncode == 0, f"{name}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"


@pytest.mark.nightly
@pytest.mark.parametrize("title", faults_of_cuda.FAULTS)
def test_a_planted_fault_is_noticed_by_the_check_beside_it(title: str, tmp_path: Path) -> None:
    fault = faults_of_cuda.FAULTS[title]
    sources = faults_of_cuda.planted(fault, device.sources(), tmp_path / "cuda")
    sanitizer = fault.by if fault.by in ("thread", "address") else ""
    library = emulated.built(tmp_path / "built", sources, sanitizer, modules(fault.kernel.partition(".")[0]))
    ended = alone(fault.kernel, library, fault.order, sanitizer)
    assert ended.returncode != 0, f"{title}: not noticed"
    assert fault.said in ended.stdout + ended.stderr, (ended.stdout + ended.stderr)[-3000:]


# ---- Machine code for real cards.


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--arch", "sm_90", "--changed"), id="what has changed"),
        pytest.param((), marks=pytest.mark.nightly, id="everything"),
    ],
)
def test_nvrtc_makes_of_every_instance_what_is_stored(options: tuple[str, ...]) -> None:
    """No spill, no local memory; registers and instructions as `benchmarks/results/cuda-compiled.txt` has them."""
    pytest.importorskip("nvidia", reason="NVRTC is not installed: pip install 'fedkern[cuda-check]'")
    script = Path(__file__).parents[2] / "benchmarks" / "cuda_compiled.py"
    ended = subprocess.run([sys.executable, str(script), "--check", *options], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.nightly  # by day the instructions of what has changed are counted as a whole, above
def test_a_warp_issues_for_a_row_what_is_stored() -> None:
    """Instructions of the main loops as `benchmarks/results/cuda-issued.txt` has them."""
    pytest.importorskip("nvidia", reason="NVRTC is not installed: pip install 'fedkern[cuda-check]'")
    script = Path(__file__).parents[2] / "benchmarks" / "cuda_compiled.py"
    ended = subprocess.run([sys.executable, str(script), "--issued", "--check"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_nvrtc_compiles_each_header_alone() -> None:
    pytest.importorskip("nvidia", reason="NVRTC is not installed: pip install 'fedkern[cuda-check]'")
    script = Path(__file__).parents[2] / "benchmarks" / "cuda_compiled.py"
    ended = subprocess.run([sys.executable, str(script), "--headers"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert {"fedkern/rng.hpp", "fedkern/glm/scalar.hpp", "grid.hpp"} <= set(ended.stdout.split())


@pytest.mark.nightly
def test_the_check_of_a_card_runs_on_the_emulator() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"
    ended = subprocess.run([sys.executable, str(script), "--emulate"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("conforms, ") == len(NAMES)
    assert "the host's bits" in ended.stdout
    assert "nothing ran on a card" in ended.stdout


# ---- Where there is no device.


def test_without_cupy_the_extra_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"needs CuPy.*pip install 'fedkern\[cuda12\]' or 'fedkern\[cuda13\]'"):
        kernels.rng.normal(3, key=1, backend="cuda")
    with pytest.raises(DeviceError, match="needs CuPy"):
        kernels.privacy.clip_sum(np.ones((2, 2)), 1.0, backend="cuda")


def test_arrays_of_other_libraries_come_in_without_a_copy(by_order: dict[int, emulated.Emulator]) -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.numpy.arange(3.0, dtype=jax.numpy.float32)
    with emulated.instead_of_a_card(by_order[0]):
        ours = kernels.from_dlpack(theirs)
    assert ours.tolist() == [0, 1, 2]
    assert ours.ctypes.data == theirs.unsafe_buffer_pointer()


def test_a_kernel_that_stays_on_the_host_says_why() -> None:
    words = np.zeros(40, np.uint32)
    with pytest.raises(ValueError, match="secret words are used one after the other"):
        kernels.privacy.discrete_gaussian(words, 3, 1, backend="cuda")


def test_numpy_arrays_are_refused_by_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        class xp:
            class ndarray:
                pass

    monkeypatch.setattr(device, "_CURRENT", [Elsewhere()])
    with pytest.raises(TypeError, match=r"privacy.clip_sum: backend 'cuda' takes CuPy arrays, got NumPy arrays"):
        kernels.privacy.clip_sum(np.ones((2, 2)), 1.0, backend="cuda", out=np.ones(2))


@pytest.mark.parametrize(
    ("grid", "threads", "arguments", "said"),
    [
        ((1,), 256, (), "takes 3 arguments, got 0"),
        ((1,), 256, (1, 2, 3), "argument 0 has 40 bytes, got 8"),
        ((1,), 100, None, "whole warps"),
        ((1, 70000), 256, None, "a grid that no card has"),
    ],
)
def test_the_emulator_refuses_what_a_card_would_take(
    grid: tuple[int, ...], threads: int, arguments: tuple[int, ...] | None, said: str, library: Path
) -> None:
    emulator, out = emulated.Emulator(library), np.empty((4, 4), np.uint32)
    good = (device.matrix(out), np.uint64(1), device.counter(0, 0))
    with pytest.raises(RuntimeError, match=said):
        emulator.launch("rng", "words", grid, threads, good if arguments is None else arguments)
    with pytest.raises(RuntimeError, match="KiB of shared memory"):
        emulator.launch("rng", "words", (1,), 256, good, shared=300 * 1024)
    with pytest.raises(RuntimeError, match="no such kernel"):
        emulator.launch("rng", "wrods", (1,), 256, good)


# ---- More chains, or factors, than are made at a time.


@pytest.mark.parametrize(
    ("name", "module", "limit"),
    [
        ("sem.sweeps", sem, "MOST_CHAINS"),
        ("sem.log_density", sem, "MOST_CHAINS"),
        ("spatial.gp_factor", spatial, "WORKSPACE"),
        ("spatial.gp_sample", spatial, "WORKSPACE"),
        ("mixed.values", mixed, "WORKSPACE"),
    ],
)
def test_what_waits_for_its_turn_has_the_same_bits(
    name: str, module: ModuleType, limit: str, library: Path, usual: Callable[[str], list[bytes]]
) -> None:
    emulator, first = emulated.Emulator(library), (8 if name in LONG else None)
    with patch.object(module, limit, 1):
        found = bits_of(name, emulator, first)
    assert found == (bits_of(name, emulator, first) if first else usual(name))


# ---- Systems of the sparse models.


@pytest.mark.parametrize(
    "name", ["shrinkage.local_sweeps", "shrinkage.local_sweeps_batched", "shrinkage.gaussian_posterior_draw"]
)
def test_systems_that_do_not_fit_into_shared_memory_have_the_same_bits(
    name: str, library: Path, usual: Callable[[str], list[bytes]]
) -> None:
    assert bits_of(name, emulated.Emulator(library, shared=1024)) == usual(name)


def test_a_pivot_that_fails_is_done_again_by_orthogonal_factors(by_order: dict[int, emulated.Emulator]) -> None:
    random, p = np.random.default_rng(3), 9
    same = random.standard_normal((20, 1))
    R = np.asarray(np.linalg.qr(same + 1e-9 * random.standard_normal((20, p)), mode="r"))
    state = {
        "theta": np.zeros((2, p)),
        "tau_sq": np.full((2, p), 1e22),
        "deviation": np.ones((2, p)),
        "lambda_sq": np.ones((2, p)),
    }
    call = dict(q=np.ones(p), rss=1.0, n=20.0, sigma_sq=np.ones(2), seed=1, draw="gram", n_sweeps=3, **state)
    want = kernels.shrinkage.local_sweeps(R, **call, backend="reference")
    with emulated.instead_of_a_card(by_order[0]):
        got = kernels.shrinkage.local_sweeps(R, **call, backend="cuda")
    assert want[3][:, 1].min() > 0
    np.testing.assert_array_equal(got[3], want[3])
    np.testing.assert_allclose(got[2], want[2], rtol=1e-3)
