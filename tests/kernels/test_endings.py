"""Calls that used to end the interpreter, or never end: extreme arguments, memory and threads that are not given."""

import json
import os
import signal
import subprocess
import sys
from math import isnan
from pathlib import Path

import pytest

from fedkern.kernels import rng
from fedkern.kernels._record import KERNELS
from support import apart, kernel_calls

SCRIPT = Path(kernel_calls.__file__)
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # BLAS's own allocations are not what is tested


def lines(*arguments, timeout):
    """What the script of calls says of each kernel."""
    tests = str(SCRIPT.parents[1])
    path = os.pathsep.join(p for p in (tests, os.environ.get("PYTHONPATH")) if p)
    environment = {**os.environ, "PYTHONPATH": path, **ONE_THREAD}
    run = subprocess.run(
        [sys.executable, "-P", SCRIPT, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=timeout
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_extremes(found):
    bad = [call for line in found for call in line["bad"]]
    assert not bad, f"{len(bad)} of {sum(line['calls'] for line in found)} calls: {bad[:5]}"
    assert not [line for line in found if "SystemError" in line["ends"]], found


def test_no_extreme_call_ends_the_interpreter_or_hangs():
    """A share of them."""
    found = lines("extremes", "cpp", 1, 11, timeout=240)
    assert len(found) == len(KERNELS)
    check_extremes(found)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_no_extreme_call_of_the_compiled_kernels_ends_the_interpreter_or_hangs():
    found = lines("extremes", "cpp", 4, "all", timeout=1700)
    assert sum(line["calls"] for line in found) > 3000
    check_extremes(found)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_no_extreme_call_of_another_backend_ends_the_interpreter_or_hangs(backend):
    check_extremes(lines("extremes", backend, 1, "all", timeout=1700))


def check_memory(found):
    refused = threaded = 0
    for line in found:
        assert not line["bad"], line["bad"]
        for what, how in line["found"]:
            assert how.startswith("returned"), (what, how)
            ends = json.loads(how.removeprefix("returned "))
            assert ends["other bits"] == 0, (what, ends)
            refused += ends.get("refused", 0)
            threaded += ends["threads"] > 1
    return refused, threaded


def test_memory_that_ends_is_a_memory_error():
    found = lines("memory", "cpp", 1, "all", "glm.elbo_grad", "shrinkage.local_sweeps_batched", timeout=240)
    refused, threaded = check_memory(found)
    assert refused
    assert threaded


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_memory_that_ends_is_a_memory_error_in_every_kernel():
    found = lines("memory", "cpp", 2, "all", timeout=1700)
    assert len(found) == len(KERNELS)
    refused, threaded = check_memory(found)
    assert refused > 100
    assert threaded > 20


def test_negative_control_bad_ends_are_noticed():
    calls = [
        ("fine", lambda: 1),
        ("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)),
        ("hang", lambda: [None for _ in iter(int, 1)]),
        ("error", lambda: [][0]),
    ]
    ended = [(e.what, e.how.split(":")[0]) for e in apart.each_apart(calls, 1)]
    assert ended == [("fine", "returned 1"), ("killed", "signal 9"), ("hang", "hung"), ("error", "raised IndexError")]


ROWS = """
import threading
import numpy as np
from fedkern.kernels import glm

n, d = 40_000, 4
X, y, z = np.ones((n, d)), np.ones(n), np.zeros(d)
good, rows, over = np.arange(n), np.arange(n), threading.Event()

def write():
    while not over.is_set():
        rows[:] = 2**40
        rows[:] = good

other = threading.Thread(target=write)
other.start()
refused = 0
for _ in range(200):
    try:
        glm.clipped_grad_sum(X, y, z, z, clip=1.0, family="bernoulli", rows=rows)
    except IndexError:
        refused += 1
over.set()
other.join()
"""


def test_rows_that_another_thread_changes_are_rows_of_X_or_refused():
    run = subprocess.run([sys.executable, "-P", "-c", ROWS], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("backend", ["cpp", "reference"])
def test_a_gamma_number_beyond_its_domain_is_not_a_number(backend):
    draws = rng.gamma(1e300, key=1, size=3, backend=backend)
    assert (abs(draws / 1e300 - 1) < 1e-12).all()
    assert all(isnan(x) for x in rng.gamma(1.1e300, key=1, size=3, backend=backend))
