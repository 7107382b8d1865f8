"""What NVRTC makes of every CUDA kernel, on a machine without a card: registers, spills, shared memory, instructions.

    pip install 'fedkern[cuda-check]'
    python benchmarks/cuda_compiled.py [--arch sm_90 ..] [--check] [--changed] [--headers]

prints a table and writes it to results/cuda-compiled.txt; `--check` writes nothing, `--changed` leaves out files whose sources
are those of that table, `--headers` compiles each header that a .cu file includes alone, and nothing else. The exit code is 1
where an instance spills or uses local memory, and with `--check` where the same compiler makes something else of it than that
file says. Another NVRTC is taken where its wheel comes first on the path (CUDA 12 and 13 both compile everything).
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fedkern.kernels._cuda import device

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# Threads, registers, and KiB of shared memory of a multiprocessor.
LIMITS = {"sm_80": (2048, 65536, 164), "sm_90": (2048, 65536, 228), "sm_100": (2048, 65536, 228)}
THREADS = 256
RESULTS = Path(__file__).parent / "results" / "cuda-compiled.txt"
HOSTS = {"fedkern/blocks.hpp"}  # which headers include for a host alone
# Groups of instructions, by how they begin.
GROUPS = {
    "load": "LDG",
    "store": "STG",
    "local": "LDL|STL",
    "f64": "DFMA|DADD|DMUL",
    "f32": "FFMA|FADD|FMUL",
    "shuffle": "SHFL",
    "barrier": "BAR",
}


class Nvrtc:
    """NVIDIA's run-time compiler, from PyPI's wheel or the system; it needs neither a driver nor a card."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_found("libnvrtc.so", "builtins|alt"))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._checked(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def _checked(self, code: int) -> None:
        if code:
            raise RuntimeError(self._library.nvrtcGetErrorString(code).decode())

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._checked(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._checked(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.raw[: size.value]

    def compile(self, module: str, names: Sequence[str], arch: str) -> tuple[bytes, str, dict[str, str]]:
        """The binary of these instances of a .cu file (or of a header), what ptxas said, and instance -> symbol.

        Raises
        ------
        RuntimeError
            What the compiler says.
        """
        program = ctypes.c_void_p()
        text = (f'#include "{module}"\n' if module.endswith(".hpp") else device.text(module)).encode()
        self._checked(self._library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None))
        for name in names:
            self._checked(self._library.nvrtcAddNameExpression(program, name.encode()))
        options = [f"--gpu-architecture={arch}", *device.options(), "--ptxas-options=-v"]
        code = self._library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        )
        log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode()
        if code:
            raise RuntimeError(log)
        symbols = {}
        for name in names:
            symbol = ctypes.c_char_p()
            self._checked(self._library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(symbol)))
            assert symbol.value is not None
            symbols[name] = symbol.value.decode()
        binary = self._bytes(program, "CUBIN")
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return binary, log, symbols


def _found(name: str, but: str = "(?!)") -> str:
    """A file of one of NVIDIA's wheels; else its name, for the system to find."""
    files = (path for folder in sys.path for path in sorted(Path(folder or ".").glob(f"nvidia/*/*/{name}*")))
    return next((str(path) for path in files if not re.search(but, path.name)), name)


class Instance(NamedTuple):
    """One kernel for one card."""

    arch: str
    name: str
    registers: int
    stack: int
    spilled: int
    shared: int
    warps: int
    instructions: dict[str, int]

    @property
    def faulty(self) -> bool:
        return bool(self.stack or self.spilled or self.instructions.get("local", 0))


def instances(module: str) -> list[str]:
    """Those that the file lists; macros that list several are expanded by the preprocessor."""
    folder, include = device.sources(), Path(device.sources()).parent / "include"
    command = ["g++", "-E", "-P", "-std=c++20", "-DFEDKERN_LIST", f"-I{folder}", f"-I{include}", "-x", "c++"]
    macros = ("FEDKERN_INSTANCE(...) <<<__VA_ARGS__>>>", "FEDKERN_KERNEL", "FEDKERN_LARGE_KERNEL", "__CUDACC__")
    stub = "".join(f"#define {macro}\n" for macro in macros)
    text = (folder / f"{module}.cu").read_text()
    own = "\n".join(line for line in text.splitlines() if not line.startswith("#include"))
    ran = subprocess.run([*command, "-"], input=stub + own, capture_output=True, text=True, check=True)
    return list(dict.fromkeys(re.sub(r"\s*,\s*", ", ", one.strip()) for one in re.findall(r"<<<(.*?)>>>", ran.stdout, re.DOTALL)))


def compiled(nvrtc: Nvrtc, module: str, arch: str) -> Iterator[Instance]:
    """All instances of a file, for one architecture."""
    names = instances(module)
    binary, log, symbols = nvrtc.compile(module, names, arch)
    code = _disassembled(binary)
    for name in names:
        symbol = symbols[name]
        own = log[log.index(f"Function properties for {symbol}") :]
        stack, stores, loads = (int(n) for n in re.findall(r"(\d+) bytes (?:stack|spill)", own)[:3])
        used = re.search(r"Used (\d+) registers([^\n]*)", own)
        assert used is not None
        shared = re.search(r"(\d+) bytes smem", used[2])
        numbers = int(used[1]), stack, stores + loads, int(shared[1]) if shared else 0
        yield Instance(arch, name, *numbers, _warps(arch, numbers[0], numbers[3]), _counted(code[symbol]))


def _warps(arch: str, registers: int, shared: int) -> int:
    """That a multiprocessor holds at once."""
    threads, file, kib = LIMITS[arch]
    of_warp = -(-registers * 32 // 256) * 256
    return min(threads // THREADS, file // (of_warp * THREADS // 32), kib * 1024 // (shared + 1024)) * THREADS // 32


def _disassembled(binary: bytes) -> dict[str, str]:
    """Symbol -> its instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([_found("nvdisasm"), "-c", file.name], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\s*\.section\s+\.text\.(\S+?),.*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def _counted(code: str) -> dict[str, int]:
    operations = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", code, re.MULTILINE)
    counts = {name: sum(bool(re.match(pattern, one)) for one in operations) for name, pattern in GROUPS.items()}
    return {"all": len(operations), **counts}


def included(module: str) -> list[Path]:
    """A file, and all that it includes."""
    folder = device.sources()
    found, todo = set[Path](), [folder / f"{module}.cu"]
    while todo:
        path = todo.pop().resolve()
        if path not in found:
            found.add(path)
            names = re.findall(r'#include "([^"]+)"', path.read_text())
            places = [place / name for name in names for place in (path.parent, folder, folder.parent / "include")]
            todo += [place for place in places if place.is_file()]
    return sorted(found)


def sources(module: str) -> str:
    """What a file's table was made of: its name, and a digest of it and of all that it includes."""
    digest = blake2b(digest_size=6)
    for path in included(module):
        digest.update(path.read_bytes())
    return f"{module} {digest.hexdigest()}"


def headers() -> list[str]:
    """All that .cu files include, as they would include it; without what only a host includes."""
    folder = device.sources()
    found = {path for file in folder.glob("*.cu") for path in included(file.stem) if path.suffix == ".hpp"}
    own = {path.name for path in found if path.parent == folder} - {"emulator.hpp"}
    return sorted({str(path.relative_to(folder.parent / "include")) for path in found if "include" in path.parts} - HOSTS | own)


def table(found: Sequence[Instance], version: str) -> Iterator[str]:
    """In columns, the same for the same compiler."""
    yield f"NVRTC {version}. Registers; bytes of stack, of spills, and of a block's static shared memory; warps that a"
    yield f"multiprocessor holds at {THREADS} threads a block; instructions of the kernel by their kind. Nothing ran on a card."
    yield f"Sources: {', '.join(sources(path.stem) for path in sorted(device.sources().glob('*.cu')))}."
    yield ""
    width = max((len(one.name) for one in found), default=0)
    head = ["regs", "stack", "spill", "shared", "warps", "all", *GROUPS]
    for arch in dict.fromkeys(one.arch for one in found):
        yield f"{arch:<{width}}" + "".join(f"{word:>9}" for word in head)
        for one in (one for one in found if one.arch == arch):
            numbers = (one.registers, one.stack, one.spilled, one.shared, one.warps, *one.instructions.values())
            yield f"{one.name:<{width}}" + "".join(f"{n:>9}" for n in numbers)
        yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--headers", action="store_true")
    options = parser.parse_args()
    nvrtc, found = Nvrtc(), []
    if options.headers:
        for name in headers():
            nvrtc.compile(name, (), options.arch[-1])
            print(name)
        return 0
    for arch in options.arch:
        for path in sorted(device.sources().glob("*.cu")):
            if options.changed and sources(path.stem) in RESULTS.read_text():
                continue
            began = time.process_time()
            found += compiled(nvrtc, path.stem, arch)
            print(f"{arch} {path.stem}: {time.process_time() - began:.1f} s of processor", file=sys.stderr)
    text = "\n".join(line.rstrip() for line in table(found, nvrtc.version)).rstrip() + "\n"
    print(text, end="")
    faulty = [f"{one.arch} {one.name}: stack {one.stack}, spilled {one.spilled} bytes" for one in found if one.faulty]
    if options.check:
        known = RESULTS.read_text()
        if f"NVRTC {nvrtc.version}." in known:
            faulty += [f"not in {RESULTS.name}: {line}" for line in text.splitlines() if line not in known.splitlines()]
    else:
        RESULTS.write_text(text)
    print("\n".join(faulty) or "no spill, no local memory", file=sys.stderr)
    return int(bool(faulty))


if __name__ == "__main__":
    sys.exit(main())
