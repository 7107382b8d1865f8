"""Real `mpirun` jobs of Hamiltonian Monte Carlo: every party ends with the bits that it has in one process."""

import json
from pathlib import Path

import mpirun
import pytest

pytest.importorskip("mpi4py")
import hmc_mpi

from fedkern.transports.inprocess import InProcess

SCRIPT = Path(hmc_mpi.__file__)


@pytest.mark.parametrize(("n_ranks", "job"), [(3, {}), pytest.param(5, {"leapfrog": 1}, marks=pytest.mark.nightly)])
def test_the_same_bits_as_in_one_process(n_ranks, job):
    code, out, err, _ = mpirun.mpirun(n_ranks, script=SCRIPT, **job)
    assert (code, err) == (0, "")
    found = {name: bits for line in out.splitlines() for name, bits in json.loads(line).items()}
    assert found == hmc_mpi.perform(InProcess(), **job)
    assert set(found) == {"server", "c0", "c1", "c2", "c3"}
