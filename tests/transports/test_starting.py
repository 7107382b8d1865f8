"""Ranks that do not come, under `fedkern launch` with real ranks: found soon, named, and with a documented code."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
from support.command import OPEN
from support.mpirun import environment

MPICH = os.environ.get("FEDKERN_TEST_MPICH", "")  # a Python with MPICH's mpirun beside it
HERE = Path(sys.executable)
PYTHONS = [
    HERE,
    pytest.param(
        Path(MPICH), marks=[pytest.mark.nightly, pytest.mark.skipif(not MPICH, reason="FEDKERN_TEST_MPICH names no Python")]
    ),
]

# Python's own module of its start: what befalls rank 1, and when it imports what.
BEFALLS = """
import os, signal, sys
from importlib.abc import MetaPathFinder
how, _, when = os.environ["FEDKERN_TEST_BEFALLS"].partition(" ")
class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == when:
            if how == "fails":
                raise ImportError("libnone.so: cannot open shared object file")
            if how == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            os.write(2, b"not enough threads here\\n")
            os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    sys.meta_path.insert(0, Finder())
    if when == "at once":
        Finder().find_spec(when, None)
"""
DIED, LEFT = "fedkern: rank 1 died while the job was starting; start it again", "fedkern: rank 1 ended before the job had begun"


def launched(python, folder, ranks, befalls, *options, job=OPEN):
    (folder / "sitecustomize.py").write_text(BEFALLS)
    (folder / "job.toml").write_text(job.replace("clients = 3", f"clients = {ranks - 1}"))
    env = environment() | {"FEDKERN_TEST_BEFALLS": befalls, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    env["PYTHONPATH"] = f"{folder}{os.pathsep}{env['PYTHONPATH']}"
    if python != HERE:  # its own mpi4py goes before that of these tests
        env["PYTHONPATH"] = os.pathsep.join(path for path in env["PYTHONPATH"].split(os.pathsep) if "site-packages" not in path)
    words = [python, "-P", "-m", "fedkern", "launch", "-n", str(ranks), folder / "job.toml", "--out", folder / "out", *options]
    before = time.monotonic()
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=250, check=False)
    return done.returncode, done.stderr, time.monotonic() - before


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("befalls", "code", "said"),
    [
        ("killed at once", 3, ["not enough threads here", "died"]),
        pytest.param("killed fedkern.errors", 3, ["not enough threads here", DIED], marks=pytest.mark.nightly),
        pytest.param("killed numpy", 3, ["not enough threads here", DIED], marks=pytest.mark.nightly),
        pytest.param("killed mpi4py.MPI", 3, [DIED], marks=pytest.mark.nightly),
        pytest.param("fails fedkern.errors", 3, ["ImportError: libnone.so", DIED], marks=pytest.mark.nightly),
        ("fails numpy", 1, ["ImportError: libnone.so", LEFT]),
        pytest.param(
            "fails mpi4py.MPI", 2, [f"{LEFT}: a job over MPI needs mpi4py and an MPI library"], marks=pytest.mark.nightly
        ),
        pytest.param("stops numpy", 3, ["fedkern: rank 1 did not come as far as MPI within"], marks=pytest.mark.nightly),
    ],
)
def test_a_rank_that_does_not_come_is_named(python, befalls, code, said, tmp_path):
    got, err, seconds = launched(python, tmp_path, 3, befalls)
    assert got == code, err
    for words in said:
        assert words in err
    if python == HERE and befalls.startswith("killed"):
        assert DIED in err, "Open MPI tells which it was, also where nobody had seen it"
    assert seconds < 120
    assert not (tmp_path / "out" / "summary.json").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_many_ranks_on_few_cores_come_up(python, ranks, tmp_path):
    (tmp_path / "rows").mkdir()
    for k in range(1, ranks):
        lines = "".join(f"{i % 2},{(7 * i + k) % 11}\n" for i in range(60))
        (tmp_path / "rows" / f"client-{k:02}.csv").write_text(f"y,x\n{lines}")
    job = '[job]\nrounds = 3\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\n'
    code, err, _ = launched(python, tmp_path, ranks, "nothing", "--quiet", job=job)
    assert code == 0, err


def test_wrong_options_are_told_with_their_code(tmp_path):
    """All ranks leave before the job has begun: nobody has died."""
    code, err, _ = launched(HERE, tmp_path, 3, "nothing", "--nonsense")
    assert code == 2
    assert "unrecognized arguments: --nonsense" in err
    assert "died" not in err
