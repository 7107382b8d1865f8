"""Builds fedkern._core: the bindings once, the kernels once for each instruction-set level."""

import os
import shutil
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
COMPILED_ONCE = ("choose.cpp", "pool.cpp")
HEADERS = ROOT / "csrc" / "include" / "fedkern"

LEVELS = {"baseline": [], "avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}
# Never -ffast-math: with it isnan(NaN) is false. Never -march=native by default: a wheel must run where it was not built.
FLAGS = ["-MMD", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]


def stale(object_file, source):
    """Whether an object is older than its source or a header that the compiler found in it (-MMD lists them beside it)."""
    listed = Path(object_file).with_suffix(".d")
    if not listed.exists():
        return True
    made = os.stat(object_file).st_mtime
    read = listed.read_text().replace("\\\n", " ").partition(":")[2].split()
    return any(not os.path.exists(name) or os.stat(name).st_mtime > made for name in [source, *read, __file__])


class BuildKernels(build_ext):
    def build_extension(self, ext):
        units = [str(path) for path in sorted(Path("csrc/units").glob("*.cpp")) if path.name not in COMPILED_ONCE]
        with ParallelCompile(needs_recompile=stale):
            for level, flags in LEVELS.items():
                ext.extra_objects += self.compiler.compile(
                    units,
                    output_dir=str(Path(self.build_temp) / level),
                    include_dirs=ext.include_dirs,
                    macros=[("FEDKERN_ISA", level), ("FEDKERN_POOL", None)],
                    extra_postargs=["-std=c++20", "-fPIC", "-fvisibility=hidden", *FLAGS, *flags],
                )
            super().build_extension(ext)


class CopyHeaders(build_py):
    """Puts the headers into the package, so that fedkern.get_include() works from a wheel too."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copytree(HEADERS, Path(self.build_lib) / "fedkern" / "include" / "fedkern", dirs_exist_ok=True)


setup(
    ext_modules=[
        Pybind11Extension(
            "fedkern._core",
            [*(f"csrc/units/{name}" for name in COMPILED_ONCE), *(str(p) for p in sorted(Path("csrc/bindings").glob("*.cpp")))],
            include_dirs=["csrc", "csrc/include"],
            define_macros=[("FEDKERN_POOL", None)],
            depends=[str(p) for p in sorted(Path("csrc").rglob("*.?pp"))] + ["csrc/include/fedkern/streams.def"],
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            cxx_std=20,
        )
    ],
    cmdclass={"build_ext": BuildKernels, "build_py": CopyHeaders},
)
