"""Real `mpirun` jobs of the vertical protocols: every party ends with the bits that it has in one process."""

import json
from pathlib import Path

import pytest

from support import mpirun

pytest.importorskip("mpi4py")
from fedkern.transports.inprocess import InProcess
from support import vertical_mpi

SCRIPT = Path(vertical_mpi.__file__)
JOBS = [
    {"kind": "av"},
    {"kind": "av", "auxiliary": "mean-field", "batch": 6},
    {"kind": "av", "response": "shared"},
    {"kind": "pl"},
    {"kind": "pl", "auxiliary": "mean-field", "batch": 6},
]


@pytest.mark.parametrize(("job", "n_ranks"), [(0, 3), (3, 3), (4, 3)])
def test_the_same_bits_as_in_one_process(job, n_ranks):
    agree(job, n_ranks)


@pytest.mark.nightly
@pytest.mark.parametrize("n_ranks", [2, 3, 5, 6])
@pytest.mark.parametrize("job", range(len(JOBS)))
def test_the_same_bits_on_any_number_of_ranks(job, n_ranks):
    agree(job, n_ranks)


def agree(job, n_ranks):
    code, out, err, _ = mpirun.mpirun(n_ranks, script=SCRIPT, **JOBS[job])
    assert (code, err) == (0, "")
    found = {name: bits for line in out.splitlines() for name, bits in json.loads(line).items()}
    assert found == vertical_mpi.perform(InProcess(), **JOBS[job])
    assert set(found) == {"server", "c0", "c1", "c2", "c3"}
