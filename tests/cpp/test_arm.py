"""64-bit ARM on an emulator of its processor: the headers by themselves, and kernels of four families.

Needs `qemu-aarch64` (qemu-user) and `aarch64-linux-gnu-g++` (g++-aarch64-linux-gnu); the kernels also a folder that
`arm64.sh` here makes, named by FEDKERN_ARM64.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.headers import BOUNDS, FLAGS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"  # the cross compiler's
missing = [name for name in (COMPILER, EMULATOR) if not shutil.which(name)]
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(missing), reason=f"64-bit ARM: no {' and no '.join(missing)}")]


def run_program(tmp_path, *arguments):
    """Compiles for ARM, runs it, and returns its output."""
    command = [COMPILER, *FLAGS, *map(str, arguments), "-o", str(tmp_path / "program"), "-pthread"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    run = subprocess.run([EMULATOR, "-L", LIBRARIES, tmp_path / "program"], capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_program_without_python(tmp_path):
    assert run_program(tmp_path, HERE / "program.cpp") == ""


@pytest.mark.parametrize("pool", [["-DFEDKERN_POOL", ROOT / "csrc/units/pool.cpp"], []], ids=["pool", "without"])
def test_exceptions_on_threads(pool, tmp_path):
    """The emulator takes a limit of memory and does not hold to it: memory that ends is tested on a real processor alone."""
    assert set(run_program(tmp_path, HERE / "threads.cpp", *pool).splitlines()) <= {"no limit of memory here"}


def test_errors_of_elementary_functions(tmp_path):
    lines = run_program(tmp_path, "-std=gnu++20", HERE / "math.cpp").splitlines()
    functions = [re.match(r"[a-z]+(1p?)?(_pdf|_cdf)?", line)[0] for line in lines]
    assert set(functions) == set(BOUNDS)
    for line, function in zip(lines, functions):
        _, error, where = line.split()
        assert 0.4 < float(error) <= BOUNDS[function], f"{line.split()[0]} is off by {error} ulp at {where}"


CONFORMANCE = """
from fedkern import _core, testing
from fedkern.kernels._record import KERNELS
n = 0
for name, kernel in KERNELS.items():
    if name.partition(".")[0] in ("glm", "privacy", "rng", "shrinkage") and "cpp" in kernel.backends:
        for seed in range(4):
            testing.assert_conforms(name, "cpp", testing.case(name, seed, sizes=(7, 33)), once=seed > 0)
        n += 1
print(_core.isa(), n)
"""


@pytest.mark.timeout(3600)  # an emulator imports SciPy for half a minute, and two cores compile for two
@pytest.mark.skipif("FEDKERN_ARM64" not in os.environ, reason="64-bit ARM: FEDKERN_ARM64 names no folder (arm64.sh makes one)")
def test_kernels_conform(tmp_path):
    arm = Path(os.environ["FEDKERN_ARM64"]).absolute()
    (header,) = arm.glob("usr/include/python3.*/Python.h")
    python = header.parent.name
    # The machine's part of Python's headers, without the C library's that stand beside it.
    (tmp_path / "include/aarch64-linux-gnu").mkdir(parents=True)
    (tmp_path / "include/aarch64-linux-gnu" / python).symlink_to(arm / "usr/include/aarch64-linux-gnu" / python)
    link = f"{COMPILER} -shared"
    env = {**os.environ, "CC": COMPILER.replace("g++", "gcc"), "CXX": COMPILER, "LDSHARED": link, "LDCXXSHARED": link}
    env |= {"SETUPTOOLS_EXT_SUFFIX": ".so", "FEDKERN_LEVELS": "all"}
    lib, folders = tmp_path / "lib", f"{header.parent}:{tmp_path / 'include'}"
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", lib, "build_ext", "--build-lib", lib]
    command += ["--build-temp", tmp_path / "temp", "--include-dirs", folders]
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    blas = ":".join(f"/usr/lib/aarch64-linux-gnu/{name}" for name in ("blas", "lapack"))
    command = [EMULATOR, "-L", arm, "-E", f"LD_LIBRARY_PATH={blas}", "-E", f"PYTHONPATH={lib}", arm / "usr/bin" / python]
    run = subprocess.run([*command, "-P", "-c", CONFORMANCE], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    level, n = run.stdout.split()
    assert level == "neon"
    assert int(n) > 20
