"""The process beside mpirun, with small programs in mpirun's place."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from fedkern.transports import mpirun as launcher
from fedkern.transports.mpirun import Job, Screen
from support.kills import MARK, processes
from support.mpirun import MPIRUN, environment

EDGE = b"-" * 74 + b"\n"
ABORT = EDGE + b"MPI_ABORT was invoked on rank 0 in communicator fedkern\n  Proc: [[1,1],0]\n" + EDGE + b"\0"
SLOTS = EDGE + b"There are not enough slots available in the system\n" + EDGE
SPEAK = "import time\nfrom fedkern.transports.parent import BEGUN, ENDED, tell\n"
BEGUN, ENDED = "assert tell(BEGUN)\n", "assert tell(ENDED + b'%d')\n"


@pytest.fixture
def beside(tmp_path):
    """Starts it beside a shell command, or a Python program that speaks as rank 0 does."""
    started = []

    def start(program, shell=False, ranks=1, **more):
        words = ["sh", "-c", program] if shell else [sys.executable, "-c", SPEAK + program]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), MARK: tmp_path.name}
        run = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedkern.transports.mpirun", str(ranks), *words],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip
        started.append(run)
        return run

    yield start
    for run in started:
        run.wait()
        run.stdout.close()
        run.stderr.close()
    until = time.monotonic() + 3  # what looks by itself looks every half second
    while (left := processes(tmp_path.name)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        os.kill(process.pid, signal.SIGKILL)
    assert not left


def ended(run):
    out, err = run.communicate(timeout=30)
    return run.returncode, out, err


def test_what_a_killed_mpirun_of_the_same_process_id_has_left_stops_no_job(beside, tmp_path, monkeypatch):
    """Open MPI names the files of a job after mpirun's process id, and does not start where they are there."""
    start = 'mkdir $TMPDIR/ompi.$$ && touch $TMPDIR/ompi.$$/pmix.$(hostname).tool && exec "$MPIRUN" --oversubscribe -n 1 echo up'
    for name, value in (environment() | {"TMPDIR": str(tmp_path), "MPIRUN": str(MPIRUN)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(launcher.FOLDER)
    alone = subprocess.run(["sh", "-c", start], capture_output=True, check=False)
    assert (alone.returncode > 0, alone.stdout) == (True, b"")
    assert ended(beside(start, shell=True))[1] == "up\n"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("fedkern-mpirun-")]


@pytest.mark.parametrize("code", range(6))
def test_the_code_is_what_rank_0_says_whatever_mpirun_says(beside, code):
    program = BEGUN + "print('posterior')\n" + ENDED % code + f"raise SystemExit({(code + 1) % 4})"
    assert ended(beside(program)) == (code, "posterior\n", "")


@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("exit 0", 3, "rank 0 (the server) did not say how the job ended; start it again"),
        ("exit 2", 2, None),  # the ranks have said why
        ("exit 213", 1, "mpirun ended with code 213"),
        (
            "echo fedkern: no peer >&2; exit 213",
            3,
            "no peer\nfedkern: mpirun ended with code 213 before the job had begun; start it again",
        ),
        ("exit 137", 3, "a rank died before it had said which it is (mpirun ended with code 137); start it again"),
        ("kill -9 $$", 3, "mpirun was ended by SIGKILL; start it again"),
    ],
)
def test_there_is_no_success_without_a_word(beside, program, code, says):
    assert ended(beside(program, shell=True)) == (code, "", f"fedkern: {says}\n" if says else "")


def test_words_of_a_rank_stand_alone(beside):
    """What Open MPI says of the same is left out."""
    program = "echo 'NBC_Progress: an error 75' >&2; echo 'fedkern: a rank died' >&2; exit %d"
    assert ended(beside(program % 3, shell=True)) == (3, "", "fedkern: a rank died\n")
    assert "an error 75" in ended(beside(program % 1, shell=True))[2]


def test_code_3_never_comes_without_a_word(beside):
    assert ended(beside("raise SystemExit(3)")) == (3, "", "fedkern: stopped; start it again\n")


def test_a_job_that_had_begun_can_go_on(beside):
    code, _, err = ended(beside(BEGUN + "raise SystemExit(0)"))
    assert (code, err[-40:]) == (3, "--resume goes on from the last checkpoint\n"[-40:])


def test_a_program_that_is_not_there():
    words = [sys.executable, "-P", "-m", "fedkern.transports.mpirun", "1", "/no/mpirun"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (2, "fedkern: cannot start /no/mpirun: No such file or directory\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
@pytest.mark.parametrize("whom", ["beside", "mpirun"])
def test_a_signal_before_the_job_has_begun_ends_it_at_once(beside, name, whom, tmp_path):
    run = beside("print('here', flush=True)\ntime.sleep(30)")
    assert run.stdout.readline() == "here\n"
    pid = min(p.pid for p in processes(tmp_path.name) if p.pid != run.pid) if whom == "mpirun" else run.pid
    before = time.monotonic()
    os.kill(pid, getattr(signal, name))
    code, _, err = ended(run)
    assert (code, time.monotonic() - before < 2) == (3, True)
    if name in ("SIGTERM", "SIGINT") or whom == "beside":
        assert err == f"fedkern: stopped by {name} before the job had begun; start it again\n"


def test_a_signal_that_the_script_has_passed_on_is_not_named(beside, monkeypatch):
    """It makes TERM of all: whoever pressed Ctrl-C has sent none."""
    monkeypatch.setenv("FEDKERN_SH", str(os.getpid()))
    run = beside("print('here', flush=True)\ntime.sleep(30)")
    assert run.stdout.readline() == "here\n"
    run.send_signal(signal.SIGTERM)
    assert ended(run) == (3, "", "fedkern: stopped before the job had begun; start it again\n")


BEGINS_LATE = """
import signal
def stop(number, frame):
    assert tell(BEGUN) and tell(ENDED + b"3")
    raise SystemExit(1)
signal.signal(signal.SIGHUP, stop)
print("here", flush=True)
time.sleep(30)
"""


def test_a_job_that_begins_while_it_is_ended_does_not_end_without_a_word(beside):
    """Rank 0 then says how the job ends and why, and an mpirun that ends does not pass its text on."""
    run = beside(BEGINS_LATE)
    assert run.stdout.readline() == "here\n"
    run.send_signal(signal.SIGTERM)
    assert ended(run) == (3, "", "fedkern: stopped by SIGTERM before the job had begun; start it again\n")


def test_a_signal_that_comes_while_mpirun_is_looked_at_is_not_lost(monkeypatch):
    job = object.__new__(Job)
    job.asked, job.begun, job.hurry, job.code, job.mpirun = None, False, False, None, SimpleNamespace(pid=0)
    ended = []
    monkeypatch.setattr(Job, "_end", lambda self, now, why: ended.append(why))
    monkeypatch.setattr(launcher, "_waiting", lambda pid: job._ask(signal.SIGTERM, None))
    job._look(1.0)
    assert [fault.text for fault in ended] == ["stopped by SIGTERM before the job had begun; start it again"]


HEEDS = """
import signal
def stop(number, frame):
    assert tell(ENDED + b"3")
    raise SystemExit(3)
signal.signal(signal.SIGUSR1, stop)
assert tell(BEGUN)
print("begun", flush=True)
time.sleep(30)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_a_signal_then_becomes_usr1_for_the_ranks(beside, name):
    run = beside(HEEDS)
    assert run.stdout.readline() == "begun\n"
    run.send_signal(getattr(signal, name))
    assert ended(run) == (3, "", "")


def test_a_signal_to_mpirun_is_seen(beside, tmp_path):
    run = beside(HEEDS)
    assert run.stdout.readline() == "begun\n"
    (pid,) = {p.pid for p in processes(tmp_path.name)} - {run.pid}
    os.kill(pid, signal.SIGTERM)
    assert ended(run) == (3, "", "")


def test_two_interrupts_end_a_job_that_does_not_listen(beside):
    deaf = "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
    run = beside(deaf + BEGUN + "print(1, flush=True)\ntime.sleep(30)")
    assert run.stdout.readline() == "1\n"
    run.send_signal(signal.SIGINT)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    code, _, err = ended(run)
    assert (code, err) == (3, "fedkern: interrupted; --resume goes on from the last checkpoint\n")


def test_what_mpirun_leaves_is_killed(beside):
    """Also what is stopped, and what has left its session."""
    run = beside("sleep 60 & setsid sleep 60 & kill -STOP $!; echo; exit 2", shell=True)
    assert run.wait(timeout=20) == 2


RANK = "from fedkern.transports.parent import follow; follow(); print(1, flush=True); import time; time.sleep(60)"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_ends_when_all_who_watch_were_killed(beside, tmp_path, stopped):
    run = beside(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {RANK!r}])")
    assert run.stdout.readline() == "1\n"
    if stopped:
        os.kill(max(p.pid for p in processes(tmp_path.name)), signal.SIGSTOP)
    run.kill()


PROXY = """
import os, subprocess, sys
def rank(number, program):
    told = {"PMI_RANK": str(number), "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}
    return subprocess.Popen([sys.executable, "-c", "from fedkern.transports.parent import *; " + program], env=os.environ | told)
ranks = [rank(number, program) for number, program in enumerate(sys.argv[1:])]
codes = [rank.wait() for rank in ranks]
"""
WAITS = "hello(); time.sleep(60)"
LATE = "time.sleep(3); hello(); time.sleep(1)"


def proxied(*programs):
    """Ranks that are no children of what stands in mpirun's place, as those of MPICH."""
    return f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {PROXY!r}, *{programs!r}])"


def test_ranks_that_start_slowly_below_a_proxy_have_not_died(beside):
    first = "hello(); time.sleep(5); tell(BEGUN); tell(ENDED + b'0')"
    assert ended(beside(proxied(first, LATE, LATE), ranks=3)) == (0, "", "")


@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("hello(); os.kill(os.getpid(), 9)", 3, "rank 1 died while the job was starting; start it again"),
        ("time.sleep(2); os.kill(os.getpid(), 9)", 3, "rank 1 died while the job was starting; start it again"),
        ("hello(); leave(2)", 2, "rank 1 ended before the job had begun"),
        ("hello(); leave(2, 'no library')", 2, "rank 1 ended before the job had begun: no library"),
    ],
)
def test_a_rank_that_dies_or_leaves_while_the_others_wait_is_named(beside, program, code, says):
    before = time.monotonic()
    assert ended(beside(proxied(WAITS, program, WAITS), ranks=3)) == (code, "", f"fedkern: {says}\n")
    assert time.monotonic() - before < 30


def test_what_a_dying_rank_said_is_shown_and_what_comes_after_is_not(beside):
    dies = "hello(); os.write(2, b'no more threads\\n'); os.kill(os.getpid(), 11)"
    complains = "import signal; signal.signal(1, lambda *_: (os.write(2, b'a peer?\\n'), os._exit(1))); hello(); time.sleep(60)"
    _, _, err = ended(beside(proxied(complains, dies, complains), ranks=3))
    assert err == "no more threads\nfedkern: rank 1 died while the job was starting; start it again\n"


def test_what_other_users_say_is_not_heard(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    job = object.__new__(Job)
    job.words, name = launcher._words()
    job._lines, job.roll = {}, launcher.RollCall(1)
    with job.words, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(f"\0{name}")
        line.send(b"hello 0 1 1")
        job._hear()
    assert not job._lines
    assert not job.roll.here


@pytest.mark.parametrize("program", ["time.sleep(1.5); hello(); follow()", "hello(); print(1); time.sleep(1.5); follow()"])
def test_a_rank_that_looks_late_ends_too_when_all_who_watch_were_killed(beside, program, tmp_path):
    """While Python starts and imports, nobody looks; then the parent is another process already."""
    rank = "print(0, flush=True); " + program.replace("print(1)", "print(1, flush=True)") + "; time.sleep(60)"
    run = beside(proxied(rank), ranks=1)
    for _ in range(1 + ("print(1)" in program)):
        run.stdout.readline()
    run.kill()
    *parts, _ = sorted(process.pid for process in processes(tmp_path.name))
    for pid in parts:  # in mpirun's place
        with contextlib.suppress(ProcessLookupError):  # it has gone with the process beside it
            os.kill(pid, signal.SIGKILL)
    run.wait()
    until = time.monotonic() + 20
    while processes(tmp_path.name) and time.monotonic() < until:
        time.sleep(0.05)
    assert time.monotonic() < until


def shown(*parts, begun=True, ours=False):
    screen = Screen()
    out = screen.begin() if begun else b""
    for part in parts:
        out += screen.more(part)
    return out + screen.end(ours=ours)


def test_words_of_an_abort_are_not_shown_and_all_others_are():
    text = b"fedkern: lost client 'a'\n" + ABORT + b"a warning\n" + SLOTS + b"no end"
    want = b"fedkern: lost client 'a'\na warning\n" + SLOTS + b"no end"
    assert shown(text) == want
    assert shown(*(text[i : i + 1] for i in range(len(text)))) == want
    assert shown(EDGE + b"cut") == EDGE + b"cut"
    assert shown(b"[warn] Epoll MOD(1) on fd 28 failed.\n") == b""


STATE = b"[vm:31] [prterun-vm-31@0,0] errmgr:dvm: for proc [prterun-vm-31@1,%d] state %s\n"


def test_what_mpirun_tells_of_deaths_is_heard_and_not_shown():
    text = b"a warning\n" + STATE % (12, b"ABORTED BY SIGNAL") + STATE % (3, b"NORMALLY TERMINATED") + b"for proc [1,4] state\n"
    text += STATE % (0, b"EXITED WITH NON-ZERO STATUS")
    for size in (1, 7, 1000):
        screen = Screen()
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert [rank for part in parts for rank in screen.deaths(part)] == [12, 0]
        assert shown(*parts) == b"a warning\nfor proc [1,4] state\n"


def test_before_the_job_has_begun_its_own_lines_are_enough_if_the_end_is_explained():
    text = SLOTS + b"fedkern: job.toml: no such file\n[host:1] *** An error occurred in MPI_Init\n"
    assert shown(text, begun=False, ours=True) == b"fedkern: job.toml: no such file\n"
    assert shown(text, begun=False) == text
    screen = Screen()
    assert screen.more(text) == b""
    assert screen.begin() == text
