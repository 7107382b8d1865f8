"""The headers by themselves: without Python, without a library, at every instruction-set level."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedkern import _core
from support.headers import BOUNDS, FLAGS, INCLUDE

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HEADERS = sorted(str(p.relative_to(INCLUDE / "fedkern")) for p in (INCLUDE / "fedkern").rglob("*.hpp"))
LEVELS = {"avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"], "avx2": ["-march=x86-64-v3"], "baseline": []}
HERE_LEVELS = list(LEVELS)[list(LEVELS).index(_core.isa()) :]


def compile_(*arguments, stdin=None):
    run = subprocess.run(["g++", *map(str, arguments)], input=stdin, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stderr


def compile_headers(*headers):
    text = "".join(f'#include "fedkern/{header}"\n' for header in headers)
    compile_(*FLAGS, "-fsyntax-only", "-x", "c++", "-", stdin=text + "int main() {}\n")


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.nightly), -1], ids=["in order", "in reverse"])
def test_headers_compile_together(step):
    """A header that leans on the one before it fails in one of the two orders, unless both neighbours help it: at night alone."""
    compile_headers(*HEADERS[::step], *HEADERS[::step])


@pytest.mark.nightly
@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header):
    compile_headers(header, header)


def test_headers_know_no_python_no_mpi_and_no_file():
    forbidden = r"Python|pybind|numpy|mpi|iostream|fstream|stdio|filesystem|omp\.h"
    for header in HEADERS:
        included = re.findall(r"#\s*include\s*[<\"]([^>\"]+)", (INCLUDE / "fedkern" / header).read_text())
        assert not [name for name in included if re.search(forbidden, name)], header


def test_sources_use_no_part_of_the_library_that_macos_12_or_xcode_15_lack():
    """libc++ had no std::jthread and no stop tokens before version 20; texts of floating-point numbers need macOS 13.3."""
    lacking = re.compile(r"std::(jthread|stop_\w+|format\w*|to_chars|from_chars|print\w*|expected|barrier)\b")
    found = [(path.name, name) for path in sorted((ROOT / "csrc").rglob("*.?pp")) for name in lacking.findall(path.read_text())]
    assert found == []


@pytest.mark.nightly
@pytest.mark.parametrize("pool", [["-DFEDKERN_POOL"], []], ids=["pool", "without"])
def test_headers_compile_with_the_library_of_clang(pool):
    """As on macOS, where some of GCC's pragmas mean nothing."""
    compiler = shutil.which("clang++") or next((c for v in range(22, 14, -1) if (c := shutil.which(f"clang++-{v}"))), None)
    if compiler is None:
        pytest.skip("no clang++ 15 or newer")
    command = [compiler, *FLAGS, "-Wno-error", "-stdlib=libc++", *pool, "-fsyntax-only", "-x", "c++", "-"]
    if subprocess.run(command, input="#include <vector>\n", capture_output=True, text=True).returncode:
        pytest.skip("no libc++")
    text = "".join(f'#include "fedkern/{header}"\n' for header in HEADERS)
    run = subprocess.run(command, input=text + "int main() {}\n", capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_no_table_of_the_package_is_among_the_headers():
    files = sorted((ROOT / "csrc/units/tables").glob("*.hpp"))
    tables = [name for p in files for name in re.findall(r"^(?:template <class T> )?struct (\w+)", p.read_text(), re.MULTILINE)]
    assert len(tables) == len(files)
    assert not [h for h in HEADERS if re.search(rf"\b({'|'.join(tables)})\b", (INCLUDE / "fedkern" / h).read_text())]


# The compiled package is held against the reference at every level: kernels/test_conformance.py.
LOWER = [pytest.param(level, marks=pytest.mark.nightly) for level in HERE_LEVELS[1:]]


@pytest.mark.parametrize("level", [HERE_LEVELS[0], *LOWER])
def test_program_without_python(level, tmp_path):
    compile_(*FLAGS, *LEVELS[level], HERE / "program.cpp", "-o", tmp_path / "program", "-pthread")
    run = subprocess.run([tmp_path / "program"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    "pool",
    [["-DFEDKERN_POOL", ROOT / "csrc/units/pool.cpp"], pytest.param([], marks=pytest.mark.nightly)],
    ids=["pool", "without"],
)
def test_exceptions_on_threads(pool, tmp_path):
    compile_(*FLAGS, HERE / "threads.cpp", *pool, "-o", tmp_path / "program", "-pthread")
    run = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "", "this system does not hold to a limit of memory"


@pytest.mark.parametrize("level", [HERE_LEVELS[0], *LOWER])
def test_errors_of_elementary_functions(level, tmp_path):
    compile_(*FLAGS, "-std=gnu++20", *LEVELS[level], HERE / "math.cpp", "-o", tmp_path / "math", "-lquadmath")
    lines = subprocess.run([tmp_path / "math"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {re.match(r"[a-z]+(1p?)?(_pdf|_cdf)?", line)[0] for line in lines} == set(BOUNDS)
    for line in lines:
        name, error, where = line.split()
        function = re.match(r"[a-z]+(1p?)?(_pdf|_cdf)?", name)[0]
        assert float(error) <= BOUNDS[function], f"{name} is off by {error} ulp at {where}"
        assert float(error) > 0.4, f"{name}: an error this small means that nothing was compared"


FUNCTIONS = ("exp", "expm1", "log", "log1p", "sigmoid", "softplus", "tanh", "normal_pdf", "normal_cdf", "sincos_turns")


@pytest.mark.parametrize("level", HERE_LEVELS)
def test_loops_over_elementary_functions_are_vectorised(level, tmp_path):
    loop = "void {0}(const double* x, double* y) {{\n    for (int i = 0; i < 1024; ++i) y[i] = fedkern::math::{0}(x[i]){1};\n}}\n"
    loops = [loop.format(f, ".sin" if f == "sincos_turns" else "") for f in FUNCTIONS]
    source = '#include "fedkern/math.hpp"\n' + "".join(loops)
    said = compile_(*FLAGS, *LEVELS[level], "-O3", "-fopt-info-vec", "-c", "-o", tmp_path / "o", "-x", "c++", "-", stdin=source)
    lines = {int(n) for n in re.findall(r"<stdin>:(\d+):\d+: optimized: loop vectorized", said)}
    assert lines == {3 + 3 * i for i in range(len(FUNCTIONS))}, said


def test_no_fast_math_and_no_native_build():
    """With -ffast-math isnan(NaN) is false, and a wheel made with -march=native runs nowhere else."""
    build = (ROOT / "setup.py").read_text()
    flags = re.findall(r'"(-[mf][^"]*)"', build)
    assert "-fno-math-errno" in flags
    assert not [f for f in flags if re.search(r"fast-math|march=native|finite-math|associative|reciprocal|signed-zeros", f)]


def device_headers():
    """All that the .cu files include of fedkern's own, whether they say so or another header does."""
    found, todo = set(), [*(ROOT / "csrc" / "cuda").glob("*.*")]
    while todo:
        path = todo.pop()
        for name in re.findall(r'#include "([^"]+)"', path.read_text()):
            for header in ((path.parent / name).resolve(), OWN_HEADERS.parent / name):
                if header.is_file() and OWN_HEADERS in header.parents and header.suffix == ".hpp" and header not in found:
                    found.add(header)
                    todo.append(header)
    hosts = {"blocks.hpp", "pack.hpp"}  # which only a host includes
    return sorted({str(header.relative_to(OWN_HEADERS)) for header in found} - hosts)


OWN_HEADERS = ROOT / "csrc" / "include" / "fedkern"
DEVICE_HEADERS = device_headers()


def test_a_device_reads_the_headers_that_it_should():
    families = ("glm", "mlp", "privacy", "sem", "shrinkage", "spatial")
    assert {"math.hpp", "rng.hpp", "view.hpp", *(f"{family}/scalar.hpp" for family in families)} <= set(DEVICE_HEADERS)


@pytest.mark.parametrize("header", DEVICE_HEADERS)
def test_headers_of_a_device_need_no_standard_library(header):
    """As a CUDA compiler sees them, each alone: nothing of the host, and no header but fedkern's own."""
    device = ["-D__CUDACC__", "-D__host__=", "-D__device__=", "-D__forceinline__=inline", "-nostdinc", "-nostdinc++"]
    text = f'extern "C" double sqrt(double);\n#include "fedkern/{header}"\nint main() {{}}\n'
    compile_(*FLAGS, *device, "-Wno-unknown-pragmas", "-fsyntax-only", "-x", "c++", "-", stdin=text)
