"""Compiled kernels for federated Bayesian inference, and the methods built on them."""

from __future__ import annotations

from ._imports import imported

__version__ = "0.1.0"
__all__ = [
    "Result", "add", "check", "describe", "drop", "fit", "get_cmake_dir", "get_include", "get_pkgconfig_dir", "kernels", "ledger",
    "load", "run",
]  # fmt: skip

# Loaded when first asked for: a client rank that only needs kernels must not pay for configuration or plots. Their types stand in
# `__init__.pyi`: each `from .. import _core` counts as an import of this module, and would be one of all that it imports.
_LAZY = dict.fromkeys(("run", "add", "check", "drop", "ledger", "load"), "fedkern.api") | {
    "describe": "fedkern.front",
    "fit": "fedkern.front",
    "Result": "fedkern.results.result",
}


def __getattr__(name: str) -> object:
    if name == "kernels":
        return imported("fedkern.kernels")
    if name in _LAZY:
        return getattr(imported(_LAZY[name]), name)
    raise AttributeError(f"module 'fedkern' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def get_include() -> str:
    """Returns the folder of the C++ headers: compile with `-I$(python -c 'import fedkern; print(fedkern.get_include())')`.

    Examples
    --------
    >>> import fedkern
    >>> from pathlib import Path
    >>> (Path(fedkern.get_include()) / "fedkern" / "rng.hpp").is_file()
    True
    """
    from pathlib import Path  # here, for a command's first handlers wait for this module (`cli/early.py`)

    here = Path(__file__).parent
    packaged = here / "include"
    return str(packaged if packaged.is_dir() else here.parent / "csrc" / "include")


def get_cmake_dir() -> str:
    """Returns the folder of `fedkernConfig.cmake`, which `cmake -Dfedkern_DIR=..` takes.

    Examples
    --------
    >>> import fedkern
    >>> from pathlib import Path
    >>> (Path(fedkern.get_cmake_dir()) / "fedkernConfig.cmake").is_file()
    True
    """
    return _shared("cmake/fedkern")


def get_pkgconfig_dir() -> str:
    """Returns the folder of `fedkern.pc`, for PKG_CONFIG_PATH; it is that of an installed package.

    Examples
    --------
    >>> import fedkern
    >>> from pathlib import Path
    >>> (Path(fedkern.get_pkgconfig_dir()) / "fedkern.pc").is_file()
    True
    """
    return _shared("pkgconfig")


def _shared(name: str) -> str:
    from pathlib import Path

    return str(Path(__file__).parent / "share" / name)
