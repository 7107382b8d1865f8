"""Real `mpirun` jobs: the same bits as one process, and one exit code with one message whatever happens on a rank."""

import json
import random
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("mpi4py")
from fedkern import __version__
from fedkern.errors import JobError
from fedkern.transports import tags
from fedkern.transports.launch import cannot_join, foreign_launcher
from fedkern.transports.ranks import _welcome
from support import toy_job
from support.mpirun import JOB, ULFM, environment, mpirun

# The launcher of Open MPI 5.0.11 now and then dies of its own fault while it kills a stopped rank; run.sh makes 3 of that.
CRASHES = {-signal.SIGSEGV, -signal.SIGABRT}

VERSION = re.escape(__version__)


@pytest.fixture(scope="module")
def want():
    digests = {toy_job.in_one_process(order) for order in (None, *map(random.Random, range(5)))}
    assert len(digests) == 1
    return digests.pop()


def digest(out):
    return json.loads(out)["digest"]


def ended_well(want, code, out, err):
    """The code and what was said first: without them a job that said nothing cannot be understood."""
    assert (code, err) == (0, ""), out
    assert digest(out) == want


@pytest.mark.parametrize("n_ranks", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4))])
def test_the_same_bits_as_one_process_and_one_quiet_line(n_ranks, want):
    code, out, err, _ = mpirun(n_ranks)
    ended_well(want, code, out, err)
    assert len(out.splitlines()) == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out)


@pytest.mark.nightly
@pytest.mark.parametrize("n_ranks", [3, 5, 6, 9])
@pytest.mark.parametrize("options", [(), ULFM])
def test_the_same_bits_on_more_ranks(n_ranks, options, want):
    code, out, *_ = mpirun(n_ranks, options)
    assert (code, digest(out)) == (0, want)


LONG = """
import mmap
from mpi4py import MPI
from fedkern.errors import JobError
from fedkern.transports import tags
from fedkern.transports.mpi import LONGEST, MpiLink

try:
    MpiLink(MPI.COMM_SELF).send(0, tags.FRAME, memoryview(mmap.mmap(-1, LONGEST + 1)))
except JobError as error:
    print(f"{LONGEST + 1:,} bytes" in str(error))
"""


def test_a_message_that_mpi_cannot_count_is_refused_by_its_size():
    """By itself Open MPI 5.0.11 says MPI_ERR_ARG."""
    ended = subprocess.run([sys.executable, "-c", LONG], env=environment(), capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True\n", ended.stderr


FAULTS = {
    "raise": (1, r"fedkern: rank 1: internal error\nTraceback (.|\n)*\nZeroDivisionError\n"),
    "data": (2, r"fedkern: rank 1: client 0: column 'age' is missing\n"),
    "garbage": (2, r"fedkern: rank 1: not a version 1 fedkern frame\n"),
    "long": (2, r"fedkern: rank 1: a message of 4194304 bytes, at most \d+ expected\n"),
    "foreign": (2, r"fedkern: rank 1: client 'site-1': Answer came from a rank where it does not live\n"),
    "configuration": (2, r"fedkern: rank 1 has another configuration than rank 0 \(.*\): give all ranks the same job file.*\n"),
    "level": (
        2,
        r"fedkern: fedkern of rank 1 was built without the instructions baseline, the highest that rank 0 can use: build it "
        r"there with FEDKERN_LEVELS=all\n",
    ),
    "version": (
        2,
        rf"fedkern: rank 1 has fedkern 0\.0\.9, and rank 0 has fedkern {VERSION}: install the same version for all ranks\n",
    ),
    "older": (
        2,
        r"fedkern: rank 1 has a version of fedkern that does not say which \(its hello has 69 bytes\), and rank 0 has fedkern "
        rf"{VERSION}: install the same version for all ranks\n",
    ),
    "usr1": (3, r"fedkern: stopped by SIGUSR1 at rank 1; this run keeps no checkpoints\n"),
    "term": (3, r"fedkern: stopped by SIGTERM at rank 1; this run keeps no checkpoints\n"),
}


@pytest.mark.parametrize("kind", ["raise", "garbage", "configuration", "level", "version"])
def test_a_fault_of_one_rank_ends_all_with_its_code_and_one_message(kind):
    code, text = FAULTS[kind]
    got, out, err, seconds = mpirun(3, mishap=kind, nap=0.02, rounds=20)
    assert (got, out) == (code, "")
    assert re.fullmatch(text, err), err
    assert seconds < 30


def hello(version=b"1.2", more=b"", digest=b"job"):
    return tags.HELLO.pack(version, 0, b"host", b"cores", 2, digest) + more


@pytest.mark.parametrize(
    ("hellos", "says"),
    [
        ([hello(), hello(b"1.3.dev1+g12")], "rank 1 has fedkern 1.3.dev1+g12, and rank 0 has fedkern 1.2: install the same"),
        ([hello(), hello(b"1.3", b"more"), hello()], f"rank 1 has fedkern 1.3 with a hello of {tags.HELLO.size + 4} bytes, and"),
        (
            [hello(), hello(b"1.3", digest=b"another"), hello(b"1.4")],
            "rank 1 has fedkern 1.3, rank 2 has fedkern 1.4, and rank 0",
        ),
        ([hello(), b""], "rank 1 has a version of fedkern that does not say which (its hello has 0 bytes), and"),
        ([hello(), hello(b"\x1b[2J")], "rank 1 has a version of fedkern that does not say which"),
        (
            [hello(b"1.3"), bytes(69)],
            "rank 1 has a version of fedkern that does not say which (its hello has 69 bytes), and rank 0 has",
        ),
        ([hello(), hello(digest=b"another")], "rank 1 has another configuration than rank 0"),
    ],
)
def test_ranks_of_other_versions_are_named_before_anything_else_is_compared(hellos, says):
    with pytest.raises(JobError) as caught:
        _welcome(hellos)
    assert str(caught.value).startswith(says)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ULFM])
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("rank", [0, 1])
def test_every_fault_on_either_side(kind, rank, options):
    code, text = FAULTS[kind]
    got, _, err, seconds = mpirun(3, options, mishap=kind, rank=rank, nap=0.02, rounds=20)
    if rank == 1:
        assert got == code
        assert re.fullmatch(text, err), err
    elif kind in ("raise", "data", "usr1", "term"):
        assert got == code
        assert err.count("fedkern: ") == 1
    assert seconds < 30


def test_the_job_goes_on_without_a_killed_rank():
    code, out, err, seconds = mpirun(3, ULFM, mishap="kill")
    assert code == 4
    assert json.loads(out)["lost"] == [0, 2, 4]
    assert err == ""
    assert seconds < 30


def test_a_stopped_rank_is_noticed_by_its_silence():
    code, out, err, seconds = mpirun(3, mishap="stop", lost=1.0, stubborn=True)
    assert code == 3 or code in CRASHES
    assert out == ""
    assert re.search(r"rank 1 has been silent for \d s, and with it client 'site-0', client 'site-2', client 'site-4': ", err)
    assert seconds < 1 + 10 + 10  # deadline, what M2 allows, and the start on a busy machine


@pytest.mark.nightly
@pytest.mark.parametrize("mishap", ["kill", "stop"])
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("options", [(), ULFM])
def test_nothing_hangs(mishap, rank, stubborn, options):
    code, _, err, seconds = mpirun(3, options, mishap=mishap, rank=rank, lost=2.0, stubborn=stubborn)
    if mishap == "kill" and not options:
        assert code == 128 + signal.SIGKILL  # without --with-ft ulfm the launcher ends the job before the ranks can
    else:
        want = 3 if stubborn or rank == 0 else 4
        assert code == want or code in CRASHES
        assert err.count("fedkern: ") == (1 if want == 3 else 0)
    assert seconds < 2 + 10 + 10


def ledger_bytes(folder, rank):
    names = [f"rank-{rank}", *(toy_job.NAMES[k] for k in range(toy_job.N_CLIENTS) if 1 + k % 2 == rank)]
    lines = [line for name in names for line in (folder / "ledger" / f"{name}.jsonl").read_text().splitlines()]
    return sum(json.loads(line)["bytes"] for line in lines)


def test_a_stopped_job_goes_on_to_the_same_bits_and_the_ledger_has_every_byte(tmp_path, want):
    code, out, err, _ = mpirun(3, mishap="usr1", nap=0.02, folder=str(tmp_path))
    assert (code, out) == (3, "")
    assert re.fullmatch(r"fedkern: stopped by SIGUSR1 at rank 1; --resume goes on from checkpoint \d+\n", err)
    for path in (tmp_path / "ledger").iterdir():
        path.unlink()
    code, out, err, _ = mpirun(3, folder=str(tmp_path), resume=True, count=True)
    ended_well(want, code, out, err)
    for rank in (1, 2):
        assert ledger_bytes(tmp_path, rank) == json.loads((tmp_path / f"rank-{rank}.json").read_text())["left"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(16))
def test_a_killed_job_goes_on_to_the_same_bits(seed, tmp_path, want):
    chance = random.Random(seed)
    ask = {"rank": chance.randrange(3), "round": chance.randrange(toy_job.ROUNDS), "mishap": chance.choice(["kill", "term"])}
    mpirun(3, chance.choice([(), ULFM]), folder=str(tmp_path), nap=0.02, stubborn=True, **ask)
    code, out, err, _ = mpirun(3, folder=str(tmp_path), resume=True)
    ended_well(want, code, out, err)


def idle_cpu(n_ranks, seconds, folder):
    """Cores that all ranks use together while they wait for one client, which naps."""
    _, out, *_ = mpirun(n_ranks, nap=seconds / 2, nappers=[0], rounds=1, folder=str(folder))
    used = [json.loads((folder / f"rank-{rank}.json").read_text())["cpu"] for rank in range(n_ranks)]
    return sum(used) / json.loads(out)["seconds"]


def test_waiting_ranks_sleep(tmp_path):
    """Twice the share of the next test: here starting and keeping files weigh more."""
    assert idle_cpu(5, 3.0, tmp_path) < 5 * 0.02


@pytest.mark.nightly
def test_ten_waiting_ranks_use_less_than_a_tenth_of_a_core(tmp_path):
    assert idle_cpu(11, 10.0, tmp_path) < 0.1


def alone(**env):
    return subprocess.run([sys.executable, str(JOB)], env=environment() | env, capture_output=True, text=True, timeout=30)


def test_one_rank_is_too_few():
    done = alone()
    assert done.returncode == 2
    assert done.stderr == "fedkern: an MPI job needs a server and at least one client rank: start it with mpirun -n 2 or more\n"


def test_a_foreign_launcher_is_noticed_and_both_libraries_are_named():
    before = time.monotonic()
    alone()  # what starting Python and MPI takes on this machine
    usual, before = time.monotonic() - before, time.monotonic()
    done = alone(PMI_SIZE="4", PMI_RANK="0")
    assert time.monotonic() - before < usual + 1
    assert done.returncode == 2
    assert re.match(
        r"fedkern: an mpiexec of MPICH's family \(PMI\) started 4 processes, but mpi4py uses Open MPI v\d", done.stderr
    )


@pytest.mark.parametrize(
    ("env", "size", "library", "says"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 1, "MPICH Version:      5.0.1\nMPICH", "MPICH 5.0.1"),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 1, "MPICH Version: 5.0.1", "Open MPI's mpirun started 3 processes"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, 1, "Open MPI v5.0.11, package", "Slurm's srun"),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3, "Open MPI v5.0.11", None),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, 1, "Open MPI v5.0.11", None),
        ({}, 1, "Open MPI v5.0.11", None),
    ],
)
def test_what_is_said_of_launchers_and_libraries(env, size, library, says):
    problem = foreign_launcher(env, size, library)
    assert (problem is None) if says is None else says in problem


@pytest.mark.parametrize(
    ("env", "vendor", "version", "surely"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, "MPICH", (5, 0, 2), True),
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, "Open MPI", (5, 0, 11), False),
        ({"PMI_SIZE": "3"}, "Open MPI", (5, 0, 11), True),
        ({"PMI_SIZE": "3"}, "Open MPI", (4, 1, 6), False),
        ({"PMI_SIZE": "3", "PMIX_RANK": "0"}, "Open MPI", (5, 0, 11), False),
        ({"PMI_SIZE": "3"}, "MPICH", (5, 0, 2), False),
        ({}, "MPICH", (5, 0, 2), False),
    ],
)
def test_what_is_known_before_the_library_starts(env, vendor, version, surely):
    assert cannot_join(env, vendor, version) is surely
