"""What a card, its driver or CuPy answers when something is amiss, and what is said then.

There is no card here: `CuPy` stands in for the library, with the answers (and the exceptions) that its sources have in each case.
Nothing else of it is imitated.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedkern.errors import DeviceError, DeviceMemoryError
from fedkern.kernels._cuda import device


class CUDARuntimeError(RuntimeError):
    """As CuPy has it: the name of the code comes first."""


class OutOfMemoryError(MemoryError):
    """CuPy's, of cupy.cuda.memory."""

    __module__ = "cupy.cuda.memory"

    def __init__(self, size: int) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes")
        self._size = size


def raising(error: Exception) -> Any:
    def call(*arguments: Any) -> Any:
        raise error

    return call


class Device:
    """A card, and which is used."""

    used = 0
    capabilities: tuple[str, ...] = ("90",)

    def __init__(self, number: int | None = None) -> None:
        self.id = Device.used if number is None else number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None  # type: ignore[assignment]

    @property
    def compute_capability(self) -> str:
        return Device.capabilities[self.id]

    @property
    def mem_info(self) -> tuple[int, int]:
        return 300_000_000, 80_000_000_000

    def use(self) -> None:
        Device.used = self.id


class Pool:
    """The memory pool of a process."""

    fraction = 0.0

    def set_limit(self, *, fraction: float) -> None:
        self.fraction = fraction

    def get_limit(self) -> int:
        return int(self.fraction * 80_000_000_000)

    def used_bytes(self) -> int:
        return 1_000_000_000

    def free_bytes(self) -> int:
        return 200_000_000


def answers(
    *, cards: Any = 1, driver: int = 13000, runtime: int = 13000, compiler: Any = (13, 0), module: Any = None
) -> tuple[ModuleType, Pool]:
    """CuPy that answers so; a function is called."""
    cupy, pool = ModuleType("cupy"), Pool()
    own = SimpleNamespace(
        getDeviceCount=cards if callable(cards) else lambda: cards,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: runtime,
    )
    nvrtc = SimpleNamespace(getVersion=compiler if callable(compiler) else lambda: compiler)
    cupy.cuda = SimpleNamespace(runtime=own, nvrtc=nvrtc, Device=Device)  # type: ignore[attr-defined]
    cupy.get_default_memory_pool = lambda: pool  # type: ignore[attr-defined]
    cupy.RawModule = module  # type: ignore[attr-defined]
    return cupy, pool


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_CURRENT", [])
    monkeypatch.setattr(Device, "used", 0)
    monkeypatch.setattr(Device, "capabilities", ("90",))
    monkeypatch.setenv(device.IN_MEMORY, "0")


class Placed:
    """An array, as far as it is asked where it lives."""

    def __init__(self, number: int) -> None:
        self.device = Device(number)


def test_arrays_of_one_device_are_seen_to_be_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of CuPy's `Device` are equal where their numbers are, and have no hash."""
    cupy, _ = answers(cards=2)
    cupy.ndarray = Placed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    device.check_home("a kernel", [Placed(1), None, Placed(1)])
    with pytest.raises(TypeError, match="a kernel: arrays of two devices in one call"):
        device.check_home("a kernel", [Placed(0), None, Placed(1)])


INSUFFICIENT = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"


@pytest.mark.parametrize(
    ("amiss", "said"),
    [
        (
            {"cards": raising(CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device"))},
            r"no driver of a CUDA card \(cudaErrorNoDevice",
        ),
        ({"cards": 0}, "CuPy finds no CUDA card; use another backend"),
        (
            {"cards": raising(CUDARuntimeError(INSUFFICIENT)), "driver": 12040},
            r"of this machine knows CUDA 12\.4, and CuPy was built for CUDA 13\.0: .* driver of CUDA 13, .*fedkern\[cuda12\]",
        ),
        ({"driver": 12090}, r"knows CUDA 12\.9, and CuPy was built for CUDA 13\.0"),
        (
            {"compiler": raising(RuntimeError("CuPy failed to load libnvrtc.so.13: OSError: cannot open shared object file"))},
            r"built for CUDA 13 and finds no compiler \(NVRTC\) of it \(CuPy failed to load libnvrtc.so.13.*fedkern\[cuda12\]'",
        ),
        ({"compiler": (12, 9)}, r"built for CUDA 13 and finds the compiler \(NVRTC\) of CUDA 12; install the one of this"),
    ],
)
def test_what_is_amiss_with_a_machine_is_one_error(amiss: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", answers(**amiss)[0])
    with pytest.raises(DeviceError, match=said):
        device.current()


def test_a_cupy_that_cannot_be_loaded_is_not_one_that_is_missing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy puts the error of the loader into a frame of advice."""
    text = "=====\\nFailed to import CuPy.\\n\\nOriginal error:\\n  ImportError: libcudart.so.12: cannot open\\n====="
    (tmp_path / "cupy.py").write_text(f"raise ImportError('''\n{text}\n''')\n")
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=r"cannot be loaded \(ImportError: libcudart.so.12: cannot open\); install the one"):
        device.current()


def test_an_old_card_is_refused_before_anything_is_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", answers()[0])
    monkeypatch.setattr(Device, "capabilities", ("75",))
    with pytest.raises(DeviceError, match=r"device 0 has compute capability 7\.5, and kernels need 8\.0; use another backend"):
        device.current().take(0, 1)


@pytest.mark.parametrize(
    ("cards", "ranks", "local", "own", "share"),
    [(1, 1, 0, 0, 0.9), (4, 4, 2, 2, 0.9), (2, 5, 2, 0, 0.3), (2, 5, 3, 1, 0.45), (1, 8, 7, 0, 0.9 / 8)],
)
def test_ranks_of_a_machine_share_its_cards_and_their_memory(
    cards: int, ranks: int, local: int, own: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy, pool = answers(cards=cards)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(Device, "capabilities", ("90",) * cards)
    device.current().take(local, ranks)
    assert Device.used == own
    assert pool.fraction == pytest.approx(share)


def test_too_little_memory_says_what_was_asked_what_is_free_and_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", answers()[0])
    device.current().take(0, 2)
    said = r"asked for 40 GB, free are 0\.5 GB of the 36 GB that this process may take; lower algorithm\.chains"
    with pytest.raises(DeviceMemoryError, match=said), device.said_of_memory("algorithm.chains"):
        raise OutOfMemoryError(40_000_000_000)
    with pytest.raises(MemoryError, match="of the host"), device.said_of_memory("algorithm.chains"):
        raise MemoryError("of the host")


def test_a_cache_that_cannot_be_written_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy compiles and then fails to write; without its cache it keeps what it has compiled in memory."""
    compiled = []

    class RawModule:
        def __init__(self, *, name_expressions: tuple[str, ...], **more: Any) -> None:
            self.names = name_expressions

        def get_function(self, name: str) -> Any:
            if os.environ[device.IN_MEMORY] != "1":
                raise PermissionError(13, "Permission denied", "/cache/kernel.cubin")
            compiled.append(name)
            return lambda *arguments, **keywords: None

    monkeypatch.setitem(sys.modules, "cupy", answers(module=RawModule)[0])
    with pytest.warns(RuntimeWarning, match="cannot be written .*Permission denied.*set CUPY_CACHE_DIR to a folder that can be"):
        device.current().launch("rng", "words", (1,), 32, ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.current().launch("rng", "other", (1,), 32, ())
        device.current().launch("rng", "words", (1,), 32, ())
    assert compiled == ["words", "other"]
