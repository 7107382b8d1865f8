"""The chain of a budget: what was altered, cut off, deleted or put back is found; what a crash tore is no tampering."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from fedkern.errors import JobError
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Holder
from fedkern.jobs.holding.chain import START, Mark, seal, unseal
from fedkern.privacy.accountant import Mechanism

Charge = namedtuple("Charge", "steps round")
M = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)


def holder(home, job="j1", marks=()):
    return Holder("clinic-b", Account(home, "survey"), job=job, mechanism=M, epsilon=1.0, delta=1e-5, marks=marks)


@pytest.fixture
def spent(tmp_path):
    """A budget with an opening and three charges, and its mark after each charge."""
    h, marks = holder(tmp_path), []
    for round in range(3):
        h.charge(Charge(5, round))
        marks.append(h.ledger.mark)
    return tmp_path / "budget.jsonl", marks


def test_a_line_and_its_hash():
    line, head = seal({"job": "a", "steps": 3}, START)
    assert json.loads(line) == {"job": "a", "steps": 3, "chain": head.hex()}
    assert unseal(line) == (b'{"job": "a", "steps": 3}', head.hex())
    assert unseal(b'{"job": "a", "steps": 3}\n') == (b'{"job": "a", "steps": 3}', None)
    other = seal({"job": "a", "steps": 4}, START)[1]
    assert len({head, other, seal({"job": "a", "steps": 3}, other)[1]}) == 3


def test_marks_of_an_honest_budget_hold(spent):
    path, marks = spent
    assert [mark.length for mark in marks] == [2, 3, 4]
    other = holder(path.parent, job="j2", marks=[Mark(), *marks])  # and other jobs may have added lines
    other.charge(Charge(1, 0))
    assert holder(path.parent, marks=[*marks, other.ledger.mark]).spent == 15


def edited(lines):
    return [lines[0], lines[1].replace(b'"steps": 5', b'"steps": 1'), *lines[2:]]


def resealed(lines):
    """An edit by somebody who knows the chain."""
    entries = [json.loads(unseal(line)[0]) for line in lines]
    entries[1]["steps"] = 1
    out, head = [], START
    for entry in entries:
        line, head = seal(entry, head)
        out.append(line)
    return out


# What was done, whether the file alone shows it, and what is said to a run that has seen it.
ATTACKS = {
    "a number edited": (edited, True, "line 2 was altered"),
    "a line removed": (lambda lines: [*lines[:1], *lines[2:]], True, "line 2 was altered, or one before it"),
    "two lines swapped": (lambda lines: [*lines[:1], lines[2], lines[1], lines[3]], True, "line 2 was altered"),
    "a line twice": (lambda lines: [*lines[:3], *lines[2:]], True, "line 4 was altered"),
    "edited and sealed anew": (resealed, False, "one of its first 2 lines was altered"),
    "the tail cut": (lambda lines: lines[:3], False, r"has 3 lines, and this run has seen 4 in it: it was cut off"),
    "an older copy": (lambda lines: lines[:1], False, "an older copy put back"),
    "deleted": (None, False, "has 0 lines, and this run has seen 2 in it: it was cut off, deleted"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_done_to_a_budget_is_found(spent, attack):
    path, marks = spent
    act, shows, says = ATTACKS[attack]
    if act is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(act(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(JobError, match=says) as caught:
        holder(path.parent, marks=marks)
    assert "nothing is charged" in str(caught.value)
    assert caught.value.exit_code == 2
    if shows:
        with pytest.raises(JobError, match=says):
            holder(path.parent, job="j2")  # also by a job that has no mark
    else:
        assert holder(path.parent, job="j2").spent == 0  # the negative control: without the marks nothing would be found


def test_a_file_that_was_replaced_while_a_job_uses_it(tmp_path):
    h = holder(tmp_path)
    h.charge(Charge(5, 0))
    other = holder(tmp_path / "other", job="j2")
    for round in range(5):
        other.charge(Charge(1, round))
    (tmp_path / "budget.jsonl").write_bytes((tmp_path / "other" / "budget.jsonl").read_bytes())
    with pytest.raises(JobError, match="nothing"):
        h.charge(Charge(5, 1))


@pytest.mark.parametrize("kept", [1, 20, 60, -2])
def test_a_line_that_a_crash_tore_is_no_tampering(spent, kept):
    """It was not on the disk: nothing was granted for it. What it said stays in the file."""
    path, marks = spent
    whole, last = path.read_bytes().splitlines(keepends=True)[:-1], path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(b"".join(whole) + last[:kept])
    h = holder(path.parent, marks=marks[:-1])
    assert h.spent == 10
    h.charge(Charge(2, 2))
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert entries[3]["torn"] == last[:kept].decode()
    assert holder(path.parent, marks=[*marks[:-1], h.ledger.mark]).spent == 12


def test_a_torn_line_that_was_granted_is_a_cut_tail(spent):
    path, marks = spent
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(JobError, match=r"has 4 lines|one of its first 4 lines was altered"):
        holder(path.parent, marks=marks)


def test_a_whole_line_without_its_end_counts(spent):
    path, marks = spent
    path.write_bytes(path.read_bytes()[:-1])
    assert holder(path.parent, marks=marks).spent == 15
    assert path.read_bytes().endswith(b'"}\n')


def old_budget(path):
    """The same budget as an older version wrote it."""
    entries = [json.loads(unseal(line)[0]) for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.mark.parametrize("end", ["\n", ""])
def test_an_older_file_counts_once_its_holder_says_so(spent, end):
    path, _ = spent
    old_budget(path)
    with pytest.raises(JobError, match=r"line 1 has no chain: .*older version of fedkern.*nothing is charged") as caught:
        holder(path.parent)
    assert '4 lines are all that was spent, add the line {"adopt": 4} at its end' in str(caught.value)
    with path.open("a") as file:
        file.write('{"adopt": 4}' + end)
    h = holder(path.parent)
    assert h.spent == 15
    assert h.ledger.adopted == 5
    h.charge(Charge(3, 3))
    assert holder(path.parent, marks=[h.ledger.mark]).spent == 18
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b": 5", b": 1"), *lines[2:]]))
    with pytest.raises(JobError, match="altered"):
        holder(path.parent)


@pytest.mark.parametrize("number", ["3", "5", "0", "true", '"4"', "[4]"])
def test_an_adoption_must_name_the_lines_before_it(spent, number):
    path, _ = spent
    old_budget(path)
    with path.open("a") as file:
        file.write('{"adopt": ' + number + "}\n")
    with pytest.raises(JobError, match="line 1 has no chain"):
        holder(path.parent)


def test_an_adoption_does_not_hide_an_edit_from_a_run_that_saw_the_lines(spent):
    path, marks = spent
    path.write_bytes(b"".join(edited(path.read_bytes().splitlines(keepends=True))) + b'{"adopt": 4}\n')
    assert holder(path.parent, job="j2").ledger.spent["survey", "j1", M] == 11
    with pytest.raises(JobError, match="one of its first 2 lines was altered"):
        holder(path.parent, marks=marks)


TORN = """
import os, signal, sys
from collections import namedtuple
from pathlib import Path
from fedkern.privacy.accountant import Mechanism
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Holder
m = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)
h = Holder("c", Account(Path(sys.argv[1]), "survey"), job="j1", mechanism=m, epsilon=1.0, delta=1e-5)
Charge = namedtuple("Charge", "steps round")
h.charge(Charge(5, 0))
real = os.write
def killed(file, data):
    real(file, data[: int(sys.argv[2])])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = killed
h.charge(Charge(5, 1))
"""


@pytest.mark.parametrize("kept", [0, 7, 60])
def test_killed_inside_a_line(tmp_path, kept):
    done = subprocess.run([sys.executable, "-c", TORN, tmp_path, str(kept)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert holder(tmp_path).spent == 5
    assert holder(tmp_path).charge(Charge(1, 1)).spent == 5
    assert Path(tmp_path / "budget.jsonl").read_text().count("torn") == (kept > 0)
