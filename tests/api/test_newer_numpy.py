"""Since NumPy 2.5 `NDArray` is an alias with a name (PEP 695): neither a class nor the alias of one. Python 3.12 has such ones;
a stand-in has what is asked of them."""

from support.command import python

ALIAS = """
import pkgutil, types
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar, Union
import numpy as np
import numpy.typing


class Alias:
    __value__ = np.ndarray[tuple[Any, ...], np.dtype[TypeVar("S")]]

    def __getitem__(self, scalar):
        return types.GenericAlias(self, (scalar,))

    def __or__(self, other):
        return Union[self, other]


numpy.typing.NDArray = Alias()
"""
IMPORTED = """
import fedkern
for module in pkgutil.walk_packages(fedkern.__path__, "fedkern."):
    of_others = ("numba", "bridges.flower_", "bridges.nvflare")  # packages that need not be installed
    if not any(part in module.name for part in of_others) and not module.name.endswith("__main__"):
        import_module(module.name)
print("all")
"""
KEPT = """
from fedkern.algorithms.core import kept


@dataclass(frozen=True)
class Inner:
    steps: int
    found: numpy.typing.NDArray[np.float64]


@dataclass(frozen=True)
class State:
    values: numpy.typing.NDArray[np.float64]
    maybe: numpy.typing.NDArray[np.float64] | None
    inner: Inner | None


for state in (State(np.arange(3.0), np.ones((2, 2)), Inner(4, np.ones(2))), State(np.arange(2.0), None, None)):
    again = kept.load(State(np.zeros(1), None, None), kept.save(state))
    assert np.array_equal(again.values, state.values)
    assert (again.maybe is None) == (state.maybe is None)
    assert state.inner is None or np.array_equal(again.inner.found, state.inner.found)
print("kept")
"""


def test_all_of_the_package_is_imported_where_ndarray_is_an_alias():
    run = python("-P", "-c", ALIAS + IMPORTED)
    assert (run.code, run.out.split()) == (0, ["all"]), run.err


def test_states_are_kept_where_ndarray_is_an_alias():
    run = python("-P", "-c", ALIAS + KEPT)
    assert (run.code, run.out.split()) == (0, ["kept"]), run.err
