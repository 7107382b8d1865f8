"""Builds fedkern._core: the bindings once, the kernels once for each instruction-set level."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

HEADERS, DEVICE, STUBS = Path("csrc/include/fedkern"), Path("csrc/cuda"), Path("stubs/fedkern")
UNITS, BINDINGS = sorted(Path("csrc/units").glob("*.cpp")), sorted(Path("csrc/bindings").glob("*.cpp"))
COMPILED_ONCE = ("choose.cpp", "pool.cpp")

LEVELS = {"baseline": [], "avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}
# Never -ffast-math: with it isnan(NaN) is false. Never -march=native by default: a wheel must run where it was not built.
FLAGS = ["-std=c++20", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
FLAGS += ["-MMD", "-DFEDKERN_POOL", "-Icsrc", "-Icsrc/include"]
# pybind11's headers take twice as long to compile as the bindings: in so many pieces, not once for each file.
PIECES = 2
SECONDS = 150  # of one core, for everything; only to say how long it will take


def usable_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BuildKernels(build_ext):
    """All units in one queue. What the same command has made of the same files before is not compiled again."""

    def build_extension(self, ext):
        self.contents = {str(path): path.read_bytes() for path in Path("csrc").rglob("*.*")}
        units = [*self.pieces(), *(self.unit(s, "once") for s in UNITS if s.name in COMPILED_ONCE)]
        for level, flags in LEVELS.items():
            units += [self.unit(s, level, f"-DFEDKERN_ISA={level}", *flags) for s in UNITS if s.name not in COMPILED_ONCE]
        stale = [unit for unit in units if not self.is_fresh(unit)]
        if stale:
            cores, began = usable_cores(), time.perf_counter()
            wait = SECONDS * len(stale) / len(units) / cores
            print(f"Compiling {len(stale)} of {len(units)} units on {cores} cores (about {wait:.0f} s) ..", flush=True)
            with ThreadPool(cores) as pool:
                pool.map(self.compile_unit, stale, chunksize=1)
            print(f"Compiled in {time.perf_counter() - began:.0f} s.", flush=True)
        ext.extra_objects = [str(made) for _, made, _ in units]
        ext.depends = [*ext.depends, *ext.extra_objects]
        super().build_extension(ext)

    def unit(self, source, folder, *flags):
        """A source, its object, and the compiler's command without the folders of pybind11 and Python, which pip renames."""
        made = Path(self.build_temp, folder, source.stem + ".o")
        return source, made, [*self.compiler.compiler_so_cxx, *FLAGS, *flags, "-c", str(source), "-o", str(made)]

    def pieces(self):
        """The bindings in files of about the same length, each of which includes its own."""
        pieces = [[] for _ in range(PIECES)]
        for source in sorted(BINDINGS, key=lambda path: -path.stat().st_size):
            min(pieces, key=lambda piece: sum(path.stat().st_size for path in piece)).append(source)
        for i, piece in enumerate(pieces):
            made = Path(self.build_temp, f"bindings-{i}.cpp")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text("".join(f'#include "bindings/{source.name}"\n' for source in sorted(piece)))
            yield self.unit(made, "once")

    def compile_unit(self, unit):
        _, made, command = unit
        made.parent.mkdir(parents=True, exist_ok=True)
        made.with_suffix(".key").unlink(missing_ok=True)
        system = [f"-isystem{folder}" for folder in (pybind11.get_include(), *self.include_dirs)]
        if subprocess.run([*command, *system]).returncode:
            raise CompileError(f"{command[0]} failed")
        made.with_suffix(".key").write_text(self.key(unit))

    def is_fresh(self, unit):
        made, key = unit[1], unit[1].with_suffix(".key")
        return made.exists() and key.exists() and key.read_text() == self.key(unit)

    def key(self, unit):
        """A digest of what an object depends on. The compiler lists the files that it reads (-MMD), but for system headers.

        Sources count as they were when the build began: what is edited while it runs is compiled again by the next.
        """
        _, made, command = unit
        version = subprocess.run([command[0], "--version"], capture_output=True, text=True).stdout
        digest = hashlib.sha256(repr([command, version, pybind11.__version__, platform.python_version()]).encode())
        listed = made.with_suffix(".d").read_text().replace("\\\n", " ").partition(":")[2].split()
        for name in listed:
            digest.update(self.contents.get(name) or (Path(name).read_bytes() if Path(name).exists() else b""))
        return digest.hexdigest()


class BuildPython(build_py):
    """Puts the headers and the kernels of devices into the package too, so that fedkern.get_include() works from a wheel; and
    beside modules of kernels their stubs (`tools/stubs.py`), from which editors take documentation."""

    def run(self):
        package = Path(self.build_lib, "fedkern")
        if not self.editable_mode:
            shutil.rmtree(package, ignore_errors=True)  # a file that has moved since the last build would go into the wheel
        super().run()
        if not self.editable_mode:
            shutil.copytree(HEADERS, package / "include" / "fedkern")
            shutil.copytree(DEVICE, package / "cuda")  # compiled on the machine that has the device
            shutil.copytree(STUBS, package, dirs_exist_ok=True)


if sys.platform == "win32":
    sys.exit(
        "fedkern does not run on Windows: its locks of run folders (fcntl), files opened below a folder (dir_fd) and signals "
        "need Linux or macOS. Use the Windows Subsystem for Linux: `wsl --install`, then `pip install fedkern` there."
    )

setup(
    ext_modules=[
        Extension(
            "fedkern._core",
            [],
            depends=[str(path) for path in sorted(Path("csrc").rglob("*.*"))],
            extra_link_args=["-pthread"],
            language="c++",
        )
    ],
    cmdclass={"build_ext": BuildKernels, "build_py": BuildPython},
)
