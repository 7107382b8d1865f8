"""Other people's code on top of the low-level API: C++ through the headers, Numba inside nopython functions."""

import ctypes
import pkgutil
import subprocess

import numba
import numpy as np

import fedkern
from fedkern.kernels import _numba, rng
from fedkern.kernels import numba as public
from support.command import python


def test_cpp_through_the_headers(tmp_path):
    library = tmp_path / "outsider.so"
    source = __file__.replace("test_outsiders.py", "outsider.cpp")
    subprocess.run(
        ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{fedkern.get_include()}", source, "-o", library], check=True
    )
    outsider = ctypes.CDLL(str(library))
    outsider.outsider_key.restype = ctypes.c_uint64
    outsider.outsider_key.argtypes = [ctypes.c_uint64]
    outsider.outsider_walk.argtypes = [ctypes.c_uint64, ctypes.c_long, ctypes.c_void_p]
    key = outsider.outsider_key(12)
    assert key == rng.key(12, "simulate")
    position = np.empty(501)
    outsider.outsider_walk(key, 501, position.ctypes.data)
    np.testing.assert_allclose(position, np.cumsum(rng.normal(501, key=key)), rtol=1e-13, atol=1e-13)


@numba.njit(cache=False)
def walk(seed, n):
    key = public.rng.stream_key(seed, 6, 0)
    position, steps = np.empty(n), 0.0
    for i in range(n):
        pair = public.rng.normal_pair(i // 2, 0, 0, 0, key)
        steps += pair[i % 2]
        position[i] = steps
    return position


def test_numba_inside_nopython_code():
    assert rng.streams()["simulate"] == 6
    np.testing.assert_allclose(walk(12, 501), np.cumsum(rng.normal(501, key=rng.key(12, "simulate"))), rtol=1e-13, atol=1e-13)


def test_without_numba_the_extra_is_named():
    code = "import sys; sys.modules['numba'] = None; import numpy as np; from fedkern.kernels import privacy; "
    for call in ("privacy.clip_sum(x, 1.0, backend='numba')", "import fedkern.kernels.numba"):
        said = python("-c", f"{code}x = np.ones((2, 2)); privacy.clip_sum(x, 1.0); {call}").err
        assert 'pip install "fedkern[numba]"' in said


def test_every_numba_family_is_public():
    assert set(public.__all__) == {m.name for m in pkgutil.iter_modules(_numba.__path__) if not m.name.startswith("_")}
