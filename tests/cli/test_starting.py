"""How quickly things start, and how little they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedkern
from support.command import python
from support.mpirun import MPIRUN, environment

HEAVY = (
    "pydantic",
    "rich",
    "numba",
    "scipy.stats",
    "dp_accounting",
    "cryptography",
    "arviz",
    "matplotlib",
    "pandas",
    "mpi4py",
    "xarray",
)


def test_the_first_kernel_call_compiles_nothing() -> None:
    code = """
import sys, numpy as np
from fedkern.kernels import glm
X, y = np.ones((100, 3)), np.zeros(100)
glm.loglik_grad(X, y, np.zeros(3), family="bernoulli")
print([m for m in ("numba", "cupy") if m in sys.modules])
"""
    assert python("-c", code).out.strip() == "[]"


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = f"import sys, fedkern; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert python("-c", code).out.strip() == "[]"
    code = "import sys; from fedkern.cli.__main__ import parser; parser(); "
    code += f"print([m for m in {(*HEAVY, 'numpy')!r} if m in sys.modules])"
    assert python("-c", code).out.strip() == "[]"


def test_no_method_imports_what_only_some_of_its_jobs_need() -> None:
    heavy = ("scipy.stats", "scipy.signal", "dp_accounting", "cryptography", "h5py", "rich", *NEVER)
    code = f"""
import sys
from fedkern.methods import METHODS, load_method
for name in sorted(METHODS, key="sigma".__eq__):
    load_method(name)
    optimize = () if name == "sigma" else ("scipy.optimize",)  # which scipy.interpolate imports
    assert not (there := [m for m in {heavy!r} + optimize if m in sys.modules]), (name, there)
"""
    assert python("-c", code).code == 0


NEVER = (
    "shtab",
    "arviz",
    "arviz_stats",
    "scipy.stats",
    "scipy.signal",
    "xarray",
    "pandas",
    "matplotlib",
    "numba",
    "jinja2",
    "polars",
    "jax",
    "torch",
    "cupy",
)
SPARSE = """
[job]
method = "sparse"
rounds = 12
[data]
clients = "*.csv"
response = "y"
[model]
kind = "regression"
[algorithm]
burn_in = 4
"""
PVI = """
[job]
rounds = 2
[data]
builtin = "breast-cancer"
split = {clients = 2}
"""


def two_sites(folder: Path, job: str) -> None:
    """The job's file and those of its clients."""
    chance = np.random.default_rng(1)
    for name in ("a", "b"):
        rows = "".join(f"{x:.3f},{x + e:.3f}\n" for x, e in chance.standard_normal((30, 2)))
        (folder / f"{name}.csv").write_text("x,y\n" + rows)
    (folder / "job.toml").write_text(job)


@pytest.mark.parametrize(
    ("job", "none"), [(PVI, (*NEVER, "scipy.sparse", "dp_accounting", "cryptography")), (SPARSE, NEVER)], ids=["pvi", "sparse"]
)
def test_a_run_imports_what_it_needs(job: str, none: tuple[str, ...], tmp_path: Path) -> None:
    """With its files: draws are written without data frames, and chains are judged without ArviZ."""
    two_sites(tmp_path, job)
    code = f"""
import sys
from fedkern.cli.__main__ import main
assert main(["run", "job.toml", "--out", "run", "--quiet"]) == 0
print([m for m in {none!r} if m in sys.modules])
"""
    ended = python("-c", code, folder=tmp_path)
    assert ended.out.splitlines()[-1:] == ["[]"], ended.err
    assert (tmp_path / "run" / "posterior.nc").exists()


SERVERS = ("scipy.interpolate", "scipy.optimize", "h5py", "h5netcdf", "dp_accounting", "cryptography", "rich")


def test_a_client_of_a_sampler_imports_less_than_the_server(tmp_path: Path) -> None:
    """Nothing that judges chains or writes draws, on a rank of its own."""
    pytest.importorskip("mpi4py")
    if not MPIRUN.exists():
        pytest.skip("no mpirun")
    two_sites(tmp_path, SPARSE)
    code = f"""
import os, sys
from fedkern.cli.__main__ import main
assert main(["run", "job.toml", "--out", "run", "--quiet", "--mpi"]) == 0
open("modules-" + os.environ["OMPI_COMM_WORLD_RANK"], "w").write(repr([m for m in {(*NEVER, *SERVERS)!r} if m in sys.modules]))
"""
    command = [str(MPIRUN), "--oversubscribe", "-n", "3", sys.executable, "-P", "-c", code]
    subprocess.run(command, env=environment(), cwd=tmp_path, check=True, timeout=60)
    assert [(tmp_path / f"modules-{rank}").read_text() for rank in (1, 2)] == ["[]", "[]"]
    assert "h5py" in (tmp_path / "modules-0").read_text()


LATER = [pytest.param(name, marks=pytest.mark.nightly) for name in ("cryptography", "arviz", "matplotlib", "mpi4py")]


@pytest.mark.parametrize("module", ["dp_accounting", "h5py", *LATER])
def test_an_optional_part_that_is_missing_is_named_with_its_remedy(module: str, tmp_path: Path) -> None:
    """Each is taken away; what does not need it works, and what needs it says what to install."""
    private = '{"epsilon": 8.0, "delta": 1e-3, "clip": 2.5, "noise_multiplier": 3.0, "sampling_rate": 0.1}'
    code = f"""
import sys
sys.modules["{module}"] = None
import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError
job = {{"data": {{"builtin": "breast-cancer", "split": {{"clients": 2}}}}, "job": {{"rounds": 1}}}}
fedkern.run(job)
try:
    if "{module}" in ("dp_accounting", "cryptography"):
        fedkern.run(job, privacy={private}, data={{"standardise": "public"}})
    elif "{module}" == "arviz":
        fedkern.run(job).to_arviz()
    elif "{module}" == "mpi4py":
        open("job.toml", "w").write('[data]\\nbuiltin = "breast-cancer"')
        sys.exit(main(["run", "job.toml", "--mpi"]))
    elif "{module}" == "matplotlib":
        from fedkern.results.plots import forest
        forest({{"theta[a]": {{"mean": 0.0, "sd": 1.0, "q05": -1.0, "q95": 1.0}}}})
    else:
        print(fedkern.run(job, out="out").summary["notes"], file=sys.stderr)
        sys.exit(2)
except FedkernError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
    extra = {"dp_accounting": "dp", "cryptography": "dp", "mpi4py": "mpi"}.get(module, "results")
    ended = python("-c", code, folder=tmp_path)
    assert ended.code == 2, ended.err
    assert f"pip install 'fedkern[{extra}]'" in ended.err


SWALLOWS = """
import os, signal, sys

class Swallows:
    '''Sends a signal when a module is asked for, and goes on whatever comes of it: as imports of what is optional do.'''

    def find_spec(self, name, path=None, target=None):
        if name == "argparse":
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
                for _ in range(10):
                    pass
            except BaseException:
                pass

sys.meta_path.insert(0, Swallows())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_before_the_command_has_read_its_arguments(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SWALLOWS)
    root = str(Path(fedkern.__file__).parents[1])
    path = os.pathsep.join([str(tmp_path), root])
    for module in ("fedkern", "fedkern.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            env={**os.environ, "PYTHONPATH": path, "SIGNAL": name},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "", f"fedkern: stopped by {name}\n")


def test_who_imports_the_command_keeps_its_signals() -> None:
    code = "import signal, fedkern.cli.__main__; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert python("-c", code).out.strip() == "True"
