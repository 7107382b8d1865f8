"""Builds fedkern._core: the bindings once, the kernels once for each instruction-set level.

FEDKERN_LEVELS in the environment says which levels: all of the processor's architecture (`all`, the default), those that this
machine can run (`usable`), the highest of these (`native`, about half of the work), or a list (`avx2,baseline`).
"""

import hashlib
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import pybind11
from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, OptionError

HEADERS, DEVICE = Path("csrc/include/fedkern"), Path("csrc/cuda")
CATALOGUE = Path("fedkern/findings.toml")
UNITS, BINDINGS = sorted(Path("csrc/units").glob("*.cpp")), sorted(Path("csrc/bindings").glob("*.cpp"))
POOL, CHOOSE = Path("csrc/units/pool.cpp"), Path("csrc/units/choose.cpp")

# The levels of an architecture, from the highest, with their flags; those of csrc/units/levels.hpp. The compiler says what it
# compiles for: not always the machine that it runs on.
LEVELS = {
    "x86_64": {"avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"], "avx2": ["-march=x86-64-v3"], "baseline": []},
    "aarch64": {"neon": []},
}
OTHER = {"baseline": []}
# Never -ffast-math: with it isnan(NaN) is false. Never -march=native by default: a wheel must run where it was not built.
FLAGS = ["-std=c++20", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
FLAGS += ["-MMD", "-DFEDKERN_POOL", "-Icsrc", "-Icsrc/include"]
# Kernels include no Python, so that every Python of a machine takes the same objects, and has the same bits. What CPython itself
# was compiled with is taken out of their commands. -fwrapv, which each had in one form or another, stands for it.
PYTHONS = {"-fwrapv", "-fno-strict-overflow", "-g", "-Wsign-compare", "-Wunreachable-code", "-Wstrict-prototypes"}
KERNEL_FLAGS = [*FLAGS, "-fwrapv"]
# pybind11's headers take a quarter of what the bindings take to compile: in so many pieces, not once for each file.
PIECES = 2
# Seconds of one core for a unit at the highest level (gcc 12, AMD EPYC 9005). The longest come first, so that no core has one
# left at the end; the time of a build is said from them, too.
SECONDS = {"bindings-0": 15, "bindings-1": 14, "mlp_vae_f32": 12, "mlp_vae_f64": 12, "mixed": 12, "mixed_general": 8, "glm": 7}
SECONDS |= {"mlp": 4, "augmented": 3}
OTHERS = 2  # seconds of any other unit


@cache
def version_of(compiler):
    """What the compiler says of itself."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


class Unit(NamedTuple):
    """A source, its object, and the compiler's command without files and without the folders of pybind11 and Python, which pip
    renames."""

    source: Path
    made: Path
    command: list
    includes_python: bool


class Bar:
    """Says by a bar how far the units are: in one line of a terminal, elsewhere by a new line every few seconds."""

    def __init__(self, units):
        self.units, self.began, self.said = units, time.monotonic(), time.monotonic()
        self.is_terminal = sys.stdout.isatty()
        self.pause = 0.5 if self.is_terminal else 4.0  # seconds

    def until_next(self):
        """The seconds until something is to be shown."""
        return max(0.0, self.said + self.pause - time.monotonic())

    def show(self, done, working):
        """Shows the number of units that are done, and the names of those at work, if it is time to."""
        if self.until_next() > 0:
            return
        self.said = time.monotonic()
        full = 30 * done // self.units
        bar = f"  [{'#' * full}{'.' * (30 - full)}]"
        text = f"{bar} {done} of {self.units} units, {self.said - self.began:.0f} s: {', '.join(working)}"
        if self.is_terminal:
            text = "\r" + text[: shutil.get_terminal_size().columns - 1] + "\033[K"
        print(text, end="" if self.is_terminal else "\n", flush=True)

    def end(self):
        """Leaves the line."""
        print("\r\033[K" if self.is_terminal else "", end="", flush=True)
        print(f"Compiled in {time.monotonic() - self.began:.0f} s.", flush=True)


def wanted_levels():
    """FEDKERN_LEVELS of the environment."""
    return "".join(os.environ.get("FEDKERN_LEVELS", "").split()) or "all"


def usable_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BuildKernels(build_ext):
    """All units in one queue. What the same command has made of the same files before is not compiled again."""

    def build_extension(self, ext):
        self.contents = {str(path): path.read_bytes() for path in Path("csrc").rglob("*.*")}
        levels = self.levels()
        # Beside the folders of each Python, so that another one finds them. There each choice of levels has a folder of its own.
        self.shared = Path(self.get_finalized_command("build").build_base, f"kernels.{self.plat_name}")
        chosen = "".join(f"FEDKERN_LEVEL({level})" for level in levels)
        choose = self.kernel(CHOOSE, "-".join(("of", *levels)), f"-DFEDKERN_LEVELS={chosen}")
        units = [*self.pieces(), self.kernel(POOL, "once"), choose]
        for level, flags in levels.items():
            units += [self.kernel(s, level, f"-DFEDKERN_ISA={level}", *flags) for s in UNITS if s not in (POOL, CHOOSE)]
        stale = sorted((unit for unit in units if not self.is_fresh(unit)), key=lambda unit: -self.seconds(unit))
        if stale:
            self.compile_units(stale, len(units), levels)
        objects = [str(unit.made) for unit in units]
        # What the module is linked of, which is newer than a module that was linked of other objects: those may be older than it.
        linked, module = Path(self.build_temp, "linked.txt"), Path(self.get_ext_fullpath(ext.name))
        if not linked.exists() or linked.read_text() != "\n".join(objects):
            linked.write_text("\n".join(objects))
        if module.exists() and module.stat().st_mtime_ns <= linked.stat().st_mtime_ns:
            module.unlink()
        ext.extra_objects = objects
        ext.depends = [*ext.depends, *objects]
        super().build_extension(ext)

    def architecture(self):
        """The processor that the compiler compiles for."""
        compiler = self.compiler.compiler_so_cxx
        try:
            macros = subprocess.run([*compiler, "-E", "-dM", "-x", "c++", os.devnull], capture_output=True, text=True)
        except OSError as error:
            raise CompileError(
                f"cannot run the compiler {compiler[0]} ({error.strerror}): install a C++20 compiler (Debian and Ubuntu: apt "
                "install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), or install a wheel"
            ) from None
        if macros.returncode:
            raise CompileError(f"{compiler[0]} failed: {macros.stderr.strip()}")
        return next((name for name in LEVELS if f"#define __{name}__ " in macros.stdout), None)

    def levels(self):
        """The levels to build, by FEDKERN_LEVELS, from the highest, with their flags."""
        known = LEVELS.get(self.architecture(), OTHER)
        wanted = wanted_levels()
        names = list(known) if wanted == "all" else [name.strip() for name in wanted.split(",")]
        if wanted in ("native", "usable"):
            usable = self.usable_levels(known)
            names = usable[:1] if wanted == "native" else usable
        if wrong := [name for name in names if name not in known]:
            raise OptionError(
                f"FEDKERN_LEVELS={wanted}: there is no level {wrong[0] or 'without a name'} of this processor's instructions; "
                f"give all, usable, native, or some of {', '.join(known)}, with commas between them"
            )
        return {name: flags for name, flags in known.items() if name in names}

    def usable_levels(self, known):
        """The levels that fedkern could choose on this machine, the highest first, by a program of csrc/units/levels.hpp."""
        if len(known) == 1:
            return list(known)
        source, program = Path(self.build_temp, "native.cpp"), Path(self.build_temp, "native").absolute()
        source.parent.mkdir(parents=True, exist_ok=True)
        tests = "".join(f'    if (fedkern::has_{name}()) std::puts("{name}");\n' for name in known)
        source.write_text(f'#include <cstdio>\n\n#include "units/levels.hpp"\n\nint main() {{\n{tests}}}\n')
        subprocess.run([*self.compiler.compiler_so_cxx, "-std=c++20", "-Icsrc", str(source), "-o", str(program)], check=False)
        try:
            return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError) as error:
            raise OptionError(
                f"FEDKERN_LEVELS={wanted_levels()}: cannot find out which instructions this machine has ({error}); "
                f"give one of {', '.join(known)} instead"
            ) from None

    def compile_units(self, stale, of, levels):
        """Compiles these units on all cores, the first of them first, and says how far they are."""
        cores = usable_cores()
        took = max(max(map(self.seconds, stale)), sum(map(self.seconds, stale)) / cores)
        print(
            f"Compiling {len(stale)} of {of} units ({', '.join(levels)}) on {cores} core{'s' * (cores > 1)}: "
            f"about {took:.0f} s on a fast machine ..",
            flush=True,
        )
        self.working, bar = [], Bar(len(stale))
        with ThreadPoolExecutor(cores) as pool:
            left = {pool.submit(self.compile_unit, unit) for unit in stale}
            try:
                while left:
                    done, left = wait(left, bar.until_next(), FIRST_COMPLETED)
                    for unit in done:
                        unit.result()
                    bar.show(len(stale) - len(left), list(self.working))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        bar.end()

    @staticmethod
    def seconds(unit):
        """About what a unit takes."""
        return SECONDS.get(unit.source.stem, OTHERS)

    def kernel(self, source, folder, *flags):
        """A unit that includes neither Python nor pybind11, and is not given their folders."""
        compiler = [word for word in self.compiler.compiler_so_cxx if word not in PYTHONS]
        return Unit(source, self.shared / folder / f"{source.stem}.o", [*compiler, *KERNEL_FLAGS, *flags], includes_python=False)

    def pieces(self):
        """The bindings in files of about the same length, each of which includes its own."""
        pieces = [[] for _ in range(PIECES)]
        for source in sorted(BINDINGS, key=lambda path: -path.stat().st_size):
            min(pieces, key=lambda piece: sum(path.stat().st_size for path in piece)).append(source)
        for i, piece in enumerate(pieces):
            made = Path(self.build_temp, f"bindings-{i}.cpp")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text("".join(f'#include "bindings/{source.name}"\n' for source in sorted(piece)))
            command = [*self.compiler.compiler_so_cxx, *FLAGS]
            yield Unit(made, Path(self.build_temp, "once", f"{made.stem}.o"), command, includes_python=True)

    def compile_unit(self, unit):
        made = unit.made
        made.parent.mkdir(parents=True, exist_ok=True)
        made.with_suffix(".key").unlink(missing_ok=True)
        system = [f"-isystem{folder}" for folder in (pybind11.get_include(), *self.include_dirs)] if unit.includes_python else []
        name = unit.source.stem if made.parent.name in ("once", ".") else f"{unit.source.stem} ({made.parent.name})"
        # Under another name, then renamed: a build of another Python may read the object just now, or make it, too.
        part = made.with_suffix(f".{os.getpid()}")
        self.working.append(name)
        try:
            output = ["-c", str(unit.source), "-o", str(part), "-MF", str(made.with_suffix(".d"))]
            if subprocess.run([*unit.command, *output, *system]).returncode:
                raise CompileError(f"{unit.command[0]} failed on {unit.source}")
            part.replace(made)
        finally:
            self.working.remove(name)
            part.unlink(missing_ok=True)
        made.with_suffix(".key").write_text(self.key(unit))

    def is_fresh(self, unit):
        made, key = unit.made, unit.made.with_suffix(".key")
        return made.exists() and key.exists() and key.read_text() == self.key(unit)

    def key(self, unit):
        """A digest of what an object depends on. The compiler lists the files that it reads (-MMD), but for system headers.

        Sources count as they were when the build began: what is edited while it runs is compiled again by the next.
        """
        python = [pybind11.__version__, platform.python_version()] if unit.includes_python else []
        digest = hashlib.sha256(repr([str(unit.source), unit.command, version_of(unit.command[0]), *python]).encode())
        listed = unit.made.with_suffix(".d").read_text().replace("\\\n", " ").partition(":")[2].split()
        for name in listed:
            digest.update(self.contents.get(name) or (Path(name).read_bytes() if Path(name).exists() else b""))
        return digest.hexdigest()


class BuildPython(build_py):
    """Puts the headers and the kernels of devices into the package too, so that fedkern.get_include() works from a wheel; the
    digest of the sources with the choice of levels, by which `make demo` knows a wheel of this checkout (`tools/wheel.py`); and
    the catalogue of findings."""

    def run(self):
        package = Path(self.build_lib, "fedkern")
        if not self.editable_mode:
            shutil.rmtree(package, ignore_errors=True)  # a file that has moved since the last build would go into the wheel
        super().run()
        if not self.editable_mode:
            shutil.copytree(HEADERS, package / "include" / "fedkern")
            shutil.copytree(DEVICE, package / "cuda")  # compiled on the machine that has the device
            # TOML of hundreds of entries takes a tenth of a second to read, JSON a thousandth.
            catalogue = tomllib.loads(CATALOGUE.read_text())
            Path(package, "findings.json").write_text(json.dumps(catalogue, ensure_ascii=False, separators=(",", ":")))
            wheel = runpy.run_path("tools/wheel.py")
            Path(self.build_lib, wheel["RECORDED"]).write_text(f"{wheel['digest_of_sources'](Path())} {wanted_levels()}\n")


class BuildStubs(Command):
    """Has the package that was built write its stubs and completions (`tools/stubs.py`)."""

    description = "write stubs and completions"
    user_options: ClassVar = []
    editable_mode = False

    def initialize_options(self):
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        root = Path() if self.editable_mode else Path(self.build_lib)
        command = [sys.executable, "-P", "tools/stubs.py", *["--sources"] * self.editable_mode, str(root / "fedkern")]
        if subprocess.run(command, env=os.environ | {"PYTHONPATH": str(root.absolute())}, check=False).returncode:
            # A module for another processor does not run here.
            print("The package is built without stubs and completions: it could not be imported.", file=sys.stderr)

    def get_source_files(self):
        return ["tools/stubs.py"]

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class Build(build):
    sub_commands = (*build.sub_commands, ("build_stubs", None))


if sys.platform == "win32":
    sys.exit(
        "fedkern does not run on Windows: its locks of run folders (fcntl), files opened below a folder (dir_fd) and signals "
        "need Linux or macOS. Use the Windows Subsystem for Linux: `wsl --install`, then install fedkern there."
    )

if __name__ == "__main__":  # also when pip runs this file; not in its tests
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
        cmdclass={"build": Build, "build_ext": BuildKernels, "build_py": BuildPython, "build_stubs": BuildStubs},
    )
