"""The library author's kit: CMake, pkg-config, pybind11 and Cython find the headers and give the kernels' numbers."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pybind11
import pytest

import fedkern
from fedkern.kernels import rng

KIT, ROOT = Path(__file__).parent / "kit", Path(__file__).parents[2]
WANT = rng.normal(5, key=rng.key(7))
PACKAGED = (Path(fedkern.__file__).parent / "include").is_dir()


def run(*words, cwd, **more):
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ, **more}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need(tool):
    path = shutil.which(tool, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if path is None:
        pytest.skip(f"{tool} is not here")
    return path


def printed(text):
    """The second of three columns; the others were not written."""
    numbers = np.array([[float(cell) for cell in line.split()] for line in text.splitlines()])
    assert not numbers[:, [0, 2]].any()
    return numbers[:, 1]


def test_cmake_finds_the_headers(tmp_path):
    cmake = need("cmake")
    run(cmake, "-S", KIT, "-B", tmp_path, f"-Dfedkern_DIR={fedkern.get_cmake_dir()}", cwd=tmp_path)
    run(cmake, "--build", tmp_path, cwd=tmp_path)
    np.testing.assert_allclose(printed(run(tmp_path / "columns", cwd=tmp_path)), WANT, rtol=1e-13)


def test_cmake_finds_the_headers_by_the_entry_point(tmp_path):
    """As scikit-build-core does: the folder of the entry point's module is a prefix."""
    cmake = need("cmake")
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["cmake.prefix"]
    assert table == {"fedkern": "fedkern"}
    installed = [one.value for one in entry_points(group="cmake.prefix", name="fedkern")]
    assert installed in ([], ["fedkern"])
    prefix = Path(fedkern.__file__).parent
    said = run(cmake, "-S", KIT, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", cwd=tmp_path)
    assert "Generating done" in said


def test_cmake_refuses_another_version(tmp_path):
    cmake = need("cmake")
    for version, good in (("0.1", True), ("0.1.0", True), ("0.2", False), ("1.0", False), ("0.0.9", False), ("0.1.7", False)):
        (tmp_path / version).mkdir()
        text = (KIT / "CMakeLists.txt").read_text().replace("fedkern 0.1 REQUIRED", f"fedkern {version} REQUIRED")
        (tmp_path / version / "CMakeLists.txt").write_text(text)
        shutil.copy(KIT / "columns.cpp", tmp_path / version)
        words = [cmake, "-S", tmp_path / version, "-B", tmp_path / f"b{version}", f"-Dfedkern_DIR={fedkern.get_cmake_dir()}"]
        assert (subprocess.run(words, capture_output=True).returncode == 0) == good, version


def test_pkg_config_gives_the_flags(tmp_path):
    tool = need("pkg-config")
    path = {"PKG_CONFIG_PATH": fedkern.get_pkgconfig_dir()}
    assert run(tool, "--modversion", "fedkern", cwd=tmp_path, **path).strip() == fedkern.__version__
    flags = run(tool, "--cflags", "fedkern", cwd=tmp_path, **path).split()
    if not PACKAGED:
        pytest.skip("a checkout has its headers elsewhere")
    run("g++", "-O2", "-Wall", "-Wextra", "-Werror", *flags, KIT / "columns.cpp", "-o", "columns", cwd=tmp_path)
    np.testing.assert_allclose(printed(run(tmp_path / "columns", cwd=tmp_path)), WANT, rtol=1e-13)


FILL = """
import numpy as np, {module} as module
X = np.zeros((5, 3))
module.fill(X[::-1, 1], {key})  # a negative stride
X = X[::-1].copy()
for row in X: print(*(repr(float(x)) for x in row))
packed = np.zeros(4, np.dtype([("a", "i4"), ("x", "f8")]))["x"]  # 12 bytes apart
try:
    module.fill(packed, {key})
except (ValueError, TypeError):  # Cython may refuse such a buffer by itself
    pass
else:
    raise SystemExit("a stride that does not divide was taken")
assert not packed.any()
"""


def load(tmp_path, module):
    """What the module writes into the second column, in a process of its own; other strides are refused there."""
    return printed(run(sys.executable, "-c", FILL.format(module=module, key=rng.key(7)), cwd=tmp_path))


def suffix():
    import sysconfig

    return sysconfig.get_config_var("EXT_SUFFIX")


def python_include():
    import sysconfig

    return sysconfig.get_paths()["include"]


def test_a_pybind11_module_fills_any_array(tmp_path):
    folders = [f"-I{fedkern.get_include()}", f"-isystem{pybind11.get_include()}", f"-isystem{python_include()}"]
    flags = ["-std=c++20", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    run("g++", *flags, *folders, KIT / "strides.cpp", "-o", f"strides{suffix()}", cwd=tmp_path)
    np.testing.assert_allclose(load(tmp_path, "strides"), WANT, rtol=1e-13)


@pytest.mark.nightly
def test_a_cython_module_fills_any_view(tmp_path):
    pytest.importorskip("Cython", reason="Cython is not here")
    run(sys.executable, "-m", "cython", "--cplus", KIT / "draws.pyx", "-o", tmp_path / "draws.cpp", cwd=tmp_path)
    folders = [f"-I{fedkern.get_include()}", f"-isystem{python_include()}"]
    run("g++", "-std=c++20", "-O2", "-shared", "-fPIC", *folders, "draws.cpp", "-o", f"draws{suffix()}", cwd=tmp_path)
    np.testing.assert_allclose(load(tmp_path, "draws"), WANT, rtol=1e-13)


def test_the_version_stands_alike_everywhere():
    want = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    header = (Path(fedkern.get_include()) / "fedkern" / "version.hpp").read_text()
    parts = [re.search(rf"FEDKERN_VERSION_{name} (\d+)", header).group(1) for name in ("MAJOR", "MINOR", "PATCH")]
    config = (Path(fedkern.get_cmake_dir()) / "fedkernConfigVersion.cmake").read_text()
    assert fedkern.__version__ == want == ".".join(parts)
    assert f"PACKAGE_VERSION {want})" in config
    assert f"MAJOR EQUAL {parts[0]} AND PACKAGE_FIND_VERSION_MINOR EQUAL {parts[1]})" in config
    assert f"\nVersion: {want}\n" in (Path(fedkern.get_pkgconfig_dir()) / "fedkern.pc").read_text()


def test_the_page_has_the_code_that_is_built():
    page = (ROOT / "docs" / "how-to" / "cpp.md").read_text()
    blocks = re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)
    for name in ("CMakeLists.txt", "columns.cpp", "strides.cpp", "draws.pyx"):
        assert (KIT / name).read_text() in blocks, name
