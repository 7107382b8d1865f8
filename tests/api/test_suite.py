"""The suite itself: what goes together, whose turn it is at night, and that a cut is seen."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as losses

from fedkern.privacy import accountant
from fedkern.privacy.accountant import Mechanism
from support import command, forked, one_step, suite_cases, suite_minima, suite_order, suite_shards, suite_share
from support.command import mpirun, python
from support.mpirun import launcher_removed

PAIRS = [f"tests/kernels/test_conformance.py::test_conforms_to_the_reference[glm.{name}-numba]" for name in "abc"]


def test_a_family_of_kernels_is_compiled_on_one_worker():
    assert {suite_order.group(name) for name in PAIRS} == {"kernels: glm"}
    assert suite_order.group("tests/kernels/test_conformance.py::test_a[scaled-shrinkage.move]") == "kernels: shrinkage"
    assert suite_order.group("kernels/test_shrinkage_local.py::test_a[1]") == "kernels: shrinkage"
    assert suite_order.group("tests/kernels/test_vae_compiled.py::test_a") == "kernels: mlp"
    assert suite_order.group("tests/jobs/test_files.py::test_a[glm.b]") == "jobs/test_files.py"


def test_every_name_of_the_order_is_a_file_or_a_family():
    files = {str(path.relative_to(suite_minima.TESTS)) for path in suite_minima.TESTS.rglob("test_*.py")}
    assert {name for name in suite_order.LONGEST if "kernels: " not in name} <= files
    assert {suite_order.group(name) for name in files} >= set(suite_order.LONGEST)


def test_what_passes_is_counted_by_kinds():
    names = [*PAIRS, "cli/test_a.py::test_a_run_is_killed", "data/test_b.py::test_negative_control_b", "data/test_b.py::test_c"]
    found = suite_minima.counted(names)
    assert +found == Counter({"tests": 6, "kernel-backend pairs": 3, "planted faults": 1, "kills": 1})


def test_negative_control_a_test_that_is_left_out_is_seen():
    minima = dict(suite_minima.counted(PAIRS))
    assert suite_minima.fallen(suite_minima.counted(PAIRS), minima) == []
    assert "kernel-backend pairs: 2, not 3" in suite_minima.fallen(suite_minima.counted(PAIRS[1:]), minima)


@pytest.mark.nightly
def test_losses_of_one_step_that_are_kept_give_the_epsilon_of_fresh_ones() -> None:
    """In a process without `one_step`, where each account computes its own."""
    asked = [("poisson", {"sampling_rate": 0.1}), ("full", {}), ("aligned", {"dataset_size": 9})]
    mechanisms = [Mechanism(sampling=sampling, clip=1.0, dimension=4, noise_multiplier=2.0, **more) for sampling, more in asked]
    parts = [((m, 2),) for m in mechanisms] + [((mechanisms[0], 9), (mechanisms[1], 2))]
    code = "from fedkern.privacy.accountant import Mechanism, _composed\n"
    fresh = python("-c", f"{code}print([_composed.__wrapped__(parts, 1e-5) for parts in {parts}])")
    assert fresh.out.strip() == str([accountant._composed.__wrapped__(one, 1e-5) for one in parts]), fresh.err
    kept = getattr(losses, one_step.FUNCTIONS[0])
    before = kept.cache_info().hits
    assert accountant._composed.__wrapped__(parts[0], 1e-5) == accountant._composed.__wrapped__(parts[0], 1e-5)
    assert kept.cache_info().hits > before


def test_negative_control_kept_losses_cannot_be_changed() -> None:
    epsilon = accountant.epsilon(((Mechanism(sampling="full", clip=1.0, dimension=4, noise_multiplier=3.0), 2),), 1e-5)
    one = losses.from_gaussian_mechanism(3.0)
    with pytest.raises(ValueError, match="read-only"):
        one._pmf_remove._probs[0] += 1.0
    assert epsilon > 0


def test_other_commits_have_other_turns():
    orders = {tuple(sorted(PAIRS, key=lambda name: suite_share.turn(commit, name))) for commit in map(str, range(50))}
    assert len(orders) == 6


def test_a_commit_has_some_cases_of_each_test_and_others_have_the_others() -> None:
    many = [f"tests/models/test_b.py::test_c[{k}]" for k in range(5)]
    pages, planted = (
        [f"{name}[{k}]" for k in range(3)] for name in ("jobs/test_config.py::test_e", "methods/f.py::test_negative_control")
    )
    always = {*pages, *planted, "tests/data/test_b.py::test_alone"}
    commits = [suite_cases.chosen([*always, *many], 2, commit) for commit in map(str, range(50))]
    assert all(one >= always and len(one) == len(always) + 2 for one in commits)
    assert set.union(*commits) == {*always, *many}
    assert suite_cases.chosen(many, 9, "") == {*many}


NIGHT = """
import time, pytest
pytestmark = pytest.mark.nightly

@pytest.mark.parametrize("n", range(9))
def test_slow(n):
    time.sleep(0.2)

@pytest.mark.parametrize("n", range(BROKEN))
def test_broken(n):
    assert False

@pytest.mark.timeout(1800)
def test_long():
    assert False
"""


@pytest.mark.parametrize(("seconds", "broken", "code"), [(0.3, 0, 0), (60, 0, 0), (60, 1, 1), (0, 1, 5)])
def test_a_share_ends_in_time_and_may_fail(tmp_path: Path, seconds: float, broken: int, code: int):
    """Also where nothing ran; what takes longer than other tests is left to the whole night."""
    (tmp_path / "test_night.py").write_text(NIGHT.replace("BROKEN", str(broken)))
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "support.suite_share", "-p", "no:cacheprovider", "-W", "ignore"]
    ended = subprocess.run(
        [*command, "-c", os.devnull, f"--rootdir={tmp_path}", f"--nightly-share={seconds}", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(suite_minima.TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ("left to other commits" in ended.stdout) == (seconds < 60)
    assert "1 deselected" in ended.stdout


@pytest.mark.parametrize("n", [1, 3, 4])
def test_shards_are_the_suite_in_parts(n: int):
    """Every test is in one part, and groups that run on one worker stay together."""
    files = {str(path.relative_to(suite_minima.TESTS)) for path in suite_minima.TESTS.rglob("test_*.py")}

    class Item:
        def __init__(self, nodeid: str):
            self.nodeid = nodeid

    names = [f"{file}::test_{k}" for file in sorted(files) for k in range(3)]
    parts = []
    for k in range(1, n + 1):
        hook = SimpleNamespace(pytest_deselected=lambda items: None)
        config: Any = SimpleNamespace(option=SimpleNamespace(shard=f"{k}/{n}"), hook=hook)
        items: Any = [Item(name) for name in names]
        suite_shards.pytest_collection_modifyitems(config, items)
        parts.append([item.nodeid for item in items])
    assert sorted(name for part in parts for name in part) == sorted(names)
    groups = [{suite_order.group(name) for name in part} for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert max(map(len, groups)) <= min(map(len, groups)) + 1


@pytest.mark.parametrize("text", ["", "4", "0/4", "5/4", "1/4/4", "a/b"])
def test_a_shard_that_is_none_is_refused(text: str):
    with pytest.raises(pytest.UsageError, match="K/N"):
        suite_shards.parsed(text)


@pytest.mark.nightly
def test_a_forked_command_ends_as_a_fresh_process_does(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('[data]\nbuiltin = "breast-cancer"\nsplit = {clients = 3}\n')
    for words in (("check", "job.toml"), ("check", "nothing.toml"), ("chek",), ("run", "job.toml", "--set", "job.rounds=0")):
        before = command.seconds()
        assert forked.fedkern(*words, folder=tmp_path) == python("-P", "-m", "fedkern", *words, folder=tmp_path)
        assert command.seconds() > before


@pytest.mark.nightly
def test_forked_ranks_end_as_fresh_ones_do(tmp_path: Path) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "out"
    job.write_text('[data]\nbuiltin = "breast-cancer"\nsplit = {clients = 2}\n')
    for rounds in (0, 1):
        words = ("run", job, "--out", out, "--quiet", "--set", f"job.rounds={rounds}")
        before = command.seconds()
        forks = mpirun(2, *words)
        assert command.seconds() > before
        files = {path.relative_to(out) for path in out.rglob("*")}
        shutil.rmtree(out, ignore_errors=True)
        fresh = mpirun(2, *words, before=tmp_path / "empty")
        assert (forks.code, forks.out, launcher_removed(forks.err)) == (fresh.code, fresh.out, launcher_removed(fresh.err))
        assert files == {path.relative_to(out) for path in out.rglob("*")}


def test_a_forked_rank_ends_by_the_signal_and_with_its_process(tmp_path: Path) -> None:
    """Both ways between the process that mpirun knows and the fork; and nothing comes of one that was killed as it asked."""
    words = command.forking()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.connect(command._server())
    ends = {"import os; os.kill(os.getpid(), 9)": -9, "raise SystemExit(7)": 7, "import time; time.sleep(60)": -signal.SIGTERM}
    for code, end in ends.items():
        program = tmp_path / "program.py"
        program.write_text(f"import os, signal; print(os.getpid(), flush=True); {code}")
        with subprocess.Popen([*words, str(program)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            if end == -signal.SIGTERM:
                process.terminate()
            assert process.wait(30) == end
    with subprocess.Popen([*words, str(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        process.kill()
        deadline = time.monotonic() + 30
        while Path(f"/proc/{fork}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not Path(f"/proc/{fork}").exists()
