"""Whatever is killed, stopped or asked to end, whenever: a documented exit code, no process left, and a job that can go on.

`cd tests && python -m support.kills` prints a table of the same.
"""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("mpi4py")
import fedkern
from fedkern.cli.__main__ import main
from support.command import python
from support.kills import KINDS, METHODS, MOMENTS, Story, make_job, reference


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Method -> its job file, and the digest of an undisturbed run (None where noise is secret); each made once."""
    made = {}

    def get(method):
        if method not in made:
            job = make_job(method, tmp_path_factory.mktemp(method))
            made[method] = job, None if method == "pvi-secure" else reference(job)
        return made[method]

    return get


@pytest.fixture
def story(jobs, tmp_path):
    def begin(method, seed):
        env = {"FEDKERN_CLIENT_HOME": str(tmp_path / "homes"), "HOME": str(tmp_path)}
        return Story(method, jobs(method)[0], tmp_path / "out", random.Random(seed), env=env)

    return begin


def told(story, digest):
    """Ends a story, and what it comes to."""
    story.conclude(digest)
    print(f"{story.method}: kills {dict(story.done)}, faults {len(story.faults)}")
    assert not story.faults, "\n".join(story.faults)


RUNS = {  # of one job, each with what befalls it and when
    "pvi-secure": [
        [("batch", "start")],
        [("stop", "rounds"), ("client", "rounds")],  # the job goes on without it
        [("launcher", "start")],
        [("server", "rounds")],
        [("ctrl-c", "rounds")],
    ],
    "sparse": [
        [("server", "start")],
        [("launcher", "rounds")],
        [("ctrl-c", "start")],
        [("client", "start")],
        [("batch", "rounds")],
        [("stop", "rounds")],
    ],
}


BY_DAY = {  # each kind once, in as few runs as that takes
    "pvi-secure": [[("batch", "start")], [("stop", "rounds"), ("ctrl-c", "rounds")], [("client", "rounds")]],
    "sparse": [[("server", "start")], [("launcher", "rounds")]],
}


@pytest.mark.parametrize(
    ("method", "runs"),
    [
        *(pytest.param(method, runs, id=method) for method, runs in BY_DAY.items()),
        *(pytest.param(method, runs, id=f"{method}, all", marks=pytest.mark.nightly) for method, runs in RUNS.items()),
    ],
)
def test_one_of_each(method, runs, story, jobs, seed):
    """All that befalls a job."""
    tale = story(method, seed)
    for kills in runs:
        tale.kill(*kills)
    told(tale, jobs(method)[1])
    assert dict(tale.done) == {kind: 1 for kills in runs for kind, _ in kills}


AT_A_CALL = """
import os, signal, sys
left = int(sys.argv.pop(1))
def killing(call):
    def counted(*arguments, **more):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **more)
    return counted
os.fsync, os.replace = killing(os.fsync), killing(os.replace)
from fedkern.cli.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("method", ["pvi-secure", "sparse"])
@pytest.mark.parametrize("calls", [40, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 80, 7))])
def test_a_kill_before_any_system_call_of_a_write(method, calls, story, jobs, monkeypatch):
    """One process, in which every write is synced and renamed: whichever of these it does not live to see."""
    tale, changes = story(method, calls), ["--set", "algorithm.checkpoint_every=1e-9", "--set", "job.rounds=12", "--quiet"]
    for name, value in tale.env.items():
        monkeypatch.setenv(name, value)
    if method == "sparse":
        changes += ["--set", "algorithm.burn_in=2"]
    command = ["run", str(jobs(method)[0]), "--out", str(tale.out), *changes]
    assert python("-c", AT_A_CALL, str(calls), *command).code == -signal.SIGKILL
    assert main([*command, *tale.options()]) == 0
    if method == "pvi-secure":
        tale.accounted()
        assert not tale.faults
    else:
        config = {"job": {"rounds": 12}, "algorithm": {"burn_in": 2}}
        assert tale.summary()["digest"] == fedkern.run(jobs(method)[0], **config).digest


EVERY = 0.5


def killed_after(seconds, command, metrics, old=b""):
    """Lines of metrics of a run that was killed so long after it had begun to add to the old ones."""
    with subprocess.Popen([sys.executable, "-m", "fedkern.cli", *command]) as run:
        until = time.monotonic() + 60
        while time.monotonic() < until and (not metrics.exists() or metrics.read_bytes().startswith(old or b"?")):
            time.sleep(0.005)
        time.sleep(seconds)
        run.kill()
    return metrics.read_bytes()


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(4))
def test_a_kill_loses_no_more_than_the_time_between_checkpoints(number, jobs, tmp_path):
    """M3: a run goes on from a checkpoint that is `checkpoint_every` old at most, and what it takes to write the next."""
    endless = ["--set", "job.rounds=10000000", "--set", f"algorithm.checkpoint_every={EVERY}", "--quiet"]
    command, metrics = ["run", str(jobs("pvi")[0]), "--out", str(tmp_path), *endless], tmp_path / "metrics.jsonl"
    before = killed_after(random.Random(number).uniform(1.0, 3.0) * EVERY, command, metrics)
    after = killed_after(0.1, [*command, "--resume"], metrics, before)
    lines = [line for line in before.splitlines(keepends=True) if line.endswith(b"\n")]
    kept = [old for old, new in zip(lines, after.splitlines(keepends=True)) if old == new]
    lost = json.loads(lines[-1])["seconds"] - (json.loads(kept[-1])["seconds"] if kept else 0.0)
    print(f"lost {lost:.2f} s")
    assert 0.0 <= lost <= EVERY + 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(MOMENTS)))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_every_kind_in_every_moment(method, kind, number, story, jobs):
    tale = story(method, f"{method} {kind} {number}")
    tale.kill((kind, MOMENTS[number % len(MOMENTS)]))
    told(tale, jobs(method)[1])
