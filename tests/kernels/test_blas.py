"""BLAS and LAPACK come from SciPy's capsules, and only with the C signature for which fedkern was compiled."""

import ctypes

import numpy as np
import pytest
from scipy.linalg import cython_blas, cython_lapack

from fedkern import _core
from fedkern.kernels._record import load_blas

BLAS, LAPACK = cython_blas.__pyx_capi__, cython_lapack.__pyx_capi__


def capsule(pointer, name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(pointer, name, None)


def test_every_routine_is_loaded_and_works():
    load_blas()
    addresses = _core.blas.addresses()
    assert all(addresses.values())
    a = np.array([[4.0, 2.0], [2.0, 5.0]], order="F")
    n, info = ctypes.c_int(2), ctypes.c_int(-1)
    dpotrf = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(addresses["dpotrf"])
    dpotrf(b"L", ctypes.addressof(n), a.ctypes.data, ctypes.addressof(n), ctypes.addressof(info))
    assert info.value == 0
    np.testing.assert_array_equal(np.tril(a), [[2.0, 0.0], [1.0, 2.0]])


NAME = b"void (char *, long *, double *)"  # what a SciPy with 64-bit integers might say


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        (
            lambda: capsule(1, NAME),
            r"cython_lapack.dpotrf: has the C signature void \(char \*, long \*.*, fedkern calls void \(char \*, int \*",
        ),
        (lambda: capsule(1, None), r"has the C signature \(none\)"),
        (lambda: 17, "is no capsule"),
    ],
)
def test_a_forged_capsule_is_refused_and_nothing_is_changed(forged, message):
    load_blas()
    before = _core.blas.addresses()
    with pytest.raises(ImportError, match=message):
        _core.blas.load(BLAS, LAPACK | {"dpotrf": forged()})
    assert _core.blas.addresses() == before


def test_a_missing_routine_is_named():
    with pytest.raises(ImportError, match=r"cython_blas.dgemm: SciPy does not have it; install scipy"):
        _core.blas.load({}, LAPACK)
