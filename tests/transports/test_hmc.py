"""Real `mpirun` jobs of Hamiltonian Monte Carlo: every party ends with the bits that it has in one process."""

import json
from pathlib import Path

import pytest

from support import mpirun

pytest.importorskip("mpi4py")
from fedkern.transports.inprocess import InProcess
from support import hmc_mpi

SCRIPT = Path(hmc_mpi.__file__)


@pytest.mark.parametrize(("n_ranks", "job"), [(3, {}), pytest.param(5, {"leapfrog": 1}, marks=pytest.mark.nightly)])
def test_the_same_bits_as_in_one_process(n_ranks, job):
    code, out, err, _ = mpirun.mpirun(n_ranks, script=SCRIPT, **job)
    assert (code, err) == (0, "")
    found = {name: bits for line in out.splitlines() for name, bits in json.loads(line).items()}
    assert found == hmc_mpi.perform(InProcess(), **job)
    assert set(found) == {"server", "c0", "c1", "c2", "c3"}
