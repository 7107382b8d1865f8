"""What NVRTC makes of every CUDA kernel, on a machine without a card: registers, spills, shared memory, instructions.

    pip install 'fedkern[cuda-check]'
    python benchmarks/cuda_compiled.py [--arch sm_90 ..] [--check] [--changed] [--headers] [--issued]

prints a table and writes it to results/cuda-compiled.txt; `--check` writes nothing, `--changed` leaves out files whose sources
are those of that table, `--headers` compiles each header that a .cu file includes alone, and nothing else; `--issued` counts
what a warp issues for a row, in results/cuda-issued.txt, and nothing else. The exit code is 1 where an instance spills or uses
local memory, and with `--check` where the same compiler makes something else of it than those files say. Another NVRTC is taken
where its wheel comes first on the path (CUDA 12 and 13 both compile everything).
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

import cuda_issued as issued

from fedkern.kernels._cuda import device

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# Threads, registers, and KiB of shared memory of a multiprocessor.
LIMITS = {"sm_80": (2048, 65536, 164), "sm_90": (2048, 65536, 228), "sm_100": (2048, 65536, 228)}
THREADS = 256
RESULTS = Path(__file__).parent / "results" / "cuda-compiled.txt"
ISSUED = RESULTS.with_name("cuda-issued.txt")
HOSTS = {"fedkern/blocks.hpp", "fedkern/pack.hpp"}  # which headers include for a host alone
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

    def compile(self, module: str, names: Sequence[str], arch: str, *more: str) -> tuple[bytes, str, dict[str, str]]:
        """The binary of these instances of a .cu file (or of a header, or of the text of a probe), what ptxas said, and
        instance -> symbol.

        Parameters
        ----------
        more
            Options of the compiler.

        Raises
        ------
        RuntimeError
            What the compiler says.
        """
        program = ctypes.c_void_p()
        text = f'#include "{module}"\n' if module.endswith(".hpp") else module if "\n" in module else device.text(module)
        self._checked(self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
        for name in names:
            self._checked(self._library.nvrtcAddNameExpression(program, name.encode()))
        options = [f"--gpu-architecture={arch}", *device.options(), "--ptxas-options=-v", *more]
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
        yield Instance(arch, name, *_needs(arch, symbol, log), _counted(code[symbol]))


def _needs(arch: str, symbol: str, log: str) -> tuple[int, int, int, int, int]:
    """Registers, stack, spills, shared memory, and warps of a multiprocessor."""
    own = log[log.index(f"Function properties for {symbol}") :]
    stack, stores, loads = (int(n) for n in re.findall(r"(\d+) bytes (?:stack|spill)", own)[:3])
    used = re.search(r"Used (\d+) registers([^\n]*)", own)
    assert used is not None
    found = re.search(r"(\d+) bytes smem", used[2])
    shared = int(found[1]) if found else 0
    return int(used[1]), stack, stores + loads, shared, _warps(arch, int(used[1]), shared)


def _warps(arch: str, registers: int, shared: int) -> int:
    """That a multiprocessor holds at once."""
    threads, file, kib = LIMITS[arch]
    of_warp = -(-registers * 32 // 256) * 256
    return min(threads // THREADS, file // (of_warp * THREADS // 32), kib * 1024 // (shared + 1024)) * THREADS // 32


def _disassembled(binary: bytes, option: str = "-c") -> dict[str, str]:
    """Symbol -> its instructions; with `-gi` the lines of source that they come from."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([_found("nvdisasm"), option, file.name], capture_output=True, text=True, check=True).stdout
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


# ---- What a warp issues for a row.

# The bodies of glm.cu as functions of kernels, bounded as they are, that know some of their arguments.
PROBE = """
#include "grid.hpp"
#undef FEDKERN_KERNEL
#define FEDKERN_KERNEL __device__ __forceinline__ void
#include "glm.cu"
#undef FEDKERN_KERNEL
#define FEDKERN_KERNEL __global__ void __launch_bounds__(::fedkern::cuda::most_threads, 2)

namespace fedkern {
namespace cuda {

FEDKERN_INLINE void know(bool plain, Regression& data, Likelihood& likelihood) {
    likelihood.family = 0;
    if (plain) data.y.type = Column::Type::f64, data.offset.data = data.weight.data = nullptr, data.picked = nullptr;
}

template <class T, int C, int R, bool plain>
FEDKERN_KERNEL logliks(Regression data, Likelihood likelihood, const double* theta, Index draws, Index first, double* partial) {
    know(plain, data, likelihood);
    loglik_rows<T, C, R, 1>(data, likelihood, theta, draws, first, partial);
}

template <By by, class T, int C, int R, bool plain>
FEDKERN_KERNEL examples(Regression data, Likelihood likelihood, Clipping clip, Shared shared, double* partial) {
    know(plain, data, likelihood);
    clip.grid = 0;
    if (by == By::expectation) shared.draws = 0;
    example_rows<by, T, C, R, double>(data, likelihood, clip, 1, 0, shared, partial);
}

} // namespace cuda
} // namespace fedkern
using namespace fedkern;
using namespace fedkern::cuda;
"""


class Counted(NamedTuple):
    """A line of the table: a call, the text and the instance that do it, and what its loop makes at once."""

    call: str
    module: str
    name: str
    rows: int


def _of_types(call: str, module: str, name: str, rows: int) -> list[Counted]:
    return [Counted(f"{call}, {short}", module, name.replace("T", c_type), rows) for short, c_type in TYPES.items()]


TYPES = {"f64": "double", "f32": "float"}
EIGHT = "  8 rows, no instance of ours"
PLAIN = "  float64 y, no offset, no weights"
COUNTED = [
    *_of_types("elbo_grad, one draw", PROBE, "logliks<T, 4, 4, false>", 4),
    *_of_types(PLAIN, PROBE, "logliks<T, 4, 4, true>", 4),
    *_of_types(EIGHT, PROBE, "logliks<T, 4, 8, false>", 8),
    *_of_types("clipped_grad_sum, one draw", PROBE, "examples<By::weights, T, 4, 4, false>", 4),
    *_of_types(PLAIN, PROBE, "examples<By::weights, T, 4, 4, true>", 4),
    *_of_types("clipped_grad_sum, analytic", PROBE, "examples<By::expectation, T, 4, 2, false>", 2),
    *_of_types(PLAIN, PROBE, "examples<By::expectation, T, 4, 2, true>", 2),
    *_of_types("clip_sum", "privacy", "clip_rows<T, 4, 4>", 4),
    *_of_types(EIGHT, "privacy", "clip_rows<T, 4, 8>", 8),
    Counted("rng.normal, a pair", "rng", "pairs<Kind::normal>", 1),
]
# Operations by the unit that does them: a multiprocessor's scheduler has 16 lanes for float64, so that a warp takes two cycles.
KINDS = {
    "f64": "D(FMA|ADD|MUL|SETP|MNMX)",
    "f32": "F(FMA|ADD|MUL)",
    "convert": "F2F|I2F|F2I|MUFU",
    "load": "LD[^C]",
    "shuffle": "SHFL",
}
# Parts by the functions, or the lines of a kernel, that an instruction comes from; the last takes what is left.
PARTS = {
    "columns": "^(Response|number)$",
    "x": "^(load_rows?|place)$",
    "sums": "^warp_sums$",
    "scalar": "^(weigh|slope|base|expected|clipped|clip_weight|philox|philox_bits|normal_pair)$",
    "products": r"\ba \+=|\ba\[r\] \+=|squares\[r\] \+=|m\[r\] \+=|const double xj = x\[r\]\[c\], square|dot\[r\] =|shared\.",
    "spread": r"__shfl_sync|add\[c\]|sum\[c\]|sum\[s\]\[c\]|[gh]\[c\]|const double xj",
    "rest": "",
}
RARE = "slowpath|_full|_rn_f64"  # routines for operands out of the common range
WIDE = "mixture_weight"  # the quadrature of wide posteriors
ABOUT = """\
NVRTC {version}, {arch}, d = 100, the logistic family: instructions that a warp issues for a row. Nothing ran on a card.
Sources: {sources}.

`issued` and what follows: the longest way through the main loop that calls no routine for operands out of the common range, over
the rows of a pass; where a response, an offset and weights may be of any type, the dearest of each. `cycles`: of the float64
pipe, two an instruction. `convert`: between types, and first guesses of quotients and roots. `all`: all blocks of the loop, also
those that exclude each other, and routines each time they are called: an upper bound that no row reaches. Copies of the shuffles
for a warp whose lanes have parted are left out: none have. glm: families are chosen at run time, but here the compiler knows
which it is, so that the jumps to it are missing. The analytic estimator is that of narrow posteriors, s <= 5.
"""
ABOUT_PARTS = """
The same by parts: what stands beside a row (response, offset, weight); x's numbers read; products with vectors that all rows
share; sums over lanes; the mathematics of a family or of random numbers; spreading over lanes and adding; the rest.
"""


def issued_table(nvrtc: Nvrtc) -> Iterator[str]:
    """What a warp issues for a row of 100 columns, in columns."""
    arch = "sm_90"
    own_sources = ", ".join(sources(module) for module in ("glm", "privacy", "rng"))
    yield ABOUT.format(version=nvrtc.version, arch=arch, sources=own_sources)
    width = max(len(one.call) for one in COUNTED)
    first, second = ["rows", "regs", "warps", "issued", "cycles", *KINDS, "all"], ["issued", *PARTS]
    lines = [[f"{'':<{width}}" + "".join(f"{word:>9}" for word in head)] for head in (first, second)]
    for module in dict.fromkeys(one.module for one in COUNTED):
        own = [one for one in COUNTED if one.module == module]
        binary, log, symbols = nvrtc.compile(module, [one.name for one in own], arch, "-lineinfo")
        code = _disassembled(binary, "-gi")
        for one in own:
            registers, _, spilled, _, warps = _needs(arch, symbols[one.name], log)
            loop = issued.Loop(issued.read(code[symbols[one.name]]), RARE, WIDE)
            way = loop.longest()
            kinds = {kind: issued.count(way, pattern) / one.rows for kind, pattern in KINDS.items()}
            ends = [len(way) / one.rows, 2 * kinds["f64"], *kinds.values(), len(loop.whole()) / one.rows]
            head = f"{one.call:<{width}}{one.rows:>9}{registers:>9}{warps:>9}"
            lines[0].append(head + "".join(f"{n:>9.1f}" for n in ends) + (f"  spills {spilled} bytes" if spilled else ""))
            of_parts = [n / one.rows for n in issued.parts(way, PARTS).values()]
            lines[1].append(f"{one.call:<{width}}" + "".join(f"{n:>9.1f}" for n in (ends[0], *of_parts)))
    yield from lines[0]
    yield ABOUT_PARTS
    yield from lines[1]


def _write_or_compare(text: str, path: Path, check: bool, version: str) -> list[str]:
    """Lines that are not in the file, if it is of the same compiler; without `check` it is written."""
    print(text, end="")
    if not check:
        path.write_text(text)
        return []
    known = path.read_text()
    lines = text.splitlines() if f"NVRTC {version}" in known else []
    return [f"not in {path.name}: {line}" for line in lines if line not in known.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--headers", action="store_true")
    parser.add_argument("--issued", action="store_true")
    options = parser.parse_args()
    nvrtc, found = Nvrtc(), []
    if options.headers:
        for name in headers():
            nvrtc.compile(name, (), options.arch[-1])
            print(name)
        return 0
    if options.issued:
        text = "\n".join(issued_table(nvrtc)) + "\n"
        missing = _write_or_compare(text, ISSUED, options.check, nvrtc.version)
        print("\n".join(missing), file=sys.stderr)
        return int(bool(missing))
    for arch in options.arch:
        for path in sorted(device.sources().glob("*.cu")):
            if options.changed and sources(path.stem) in RESULTS.read_text():
                continue
            began = time.process_time()
            found += compiled(nvrtc, path.stem, arch)
            print(f"{arch} {path.stem}: {time.process_time() - began:.1f} s of processor", file=sys.stderr)
    text = "\n".join(line.rstrip() for line in table(found, nvrtc.version)).rstrip() + "\n"
    faulty = [f"{one.arch} {one.name}: stack {one.stack}, spilled {one.spilled} bytes" for one in found if one.faulty]
    faulty += _write_or_compare(text, RESULTS, options.check, nvrtc.version)
    print("\n".join(faulty) or "no spill, no local memory", file=sys.stderr)
    return int(bool(faulty))


if __name__ == "__main__":
    sys.exit(main())
