"""The mark that a holder keeps of its budget elsewhere: every job finds what is gone; no crash and no job looks like that."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedkern.errors import JobError
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Books, Holder
from fedkern.jobs.holding.remembered import _check
from fedkern.privacy.accountant import Mechanism
from support import apart

Charge = namedtuple("Charge", "steps round")
M = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)


class World:
    """A budget, and its mark elsewhere."""

    def __init__(self, root: Path) -> None:
        self.folder, self.marks = root / "accounts", root / "state"
        self.path = self.folder / "budget.jsonl"

    @property
    def account(self) -> Account:
        return Account(self.folder, "survey", marks=(self.marks,))

    def holder(self, job: str) -> Holder:
        return Holder("clinic", self.account, job=job, mechanism=M, epsilon=9.0, delta=1e-5)

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def refused(self, says: str, job: str = "new") -> JobError:
        with pytest.raises(JobError, match=says) as caught:
            self.holder(job)
        assert "nothing is charged" in str(caught.value)
        with pytest.raises(JobError, match=says):
            Books(self.account).look(own=True)
        with pytest.raises(JobError, match=says):
            Books(self.account).note("open job", "open")
        return caught.value


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two jobs of three charges each; the files of the first alone are in `before`."""
    world = World(tmp_path)
    for job in ("one", "two"):
        holder = world.holder(job)
        for round in range(3):
            holder.charge(Charge(5, round))
        if job == "one":
            (tmp_path / "before").write_bytes(world.path.read_bytes())
    return world


# What was done, and what every later job says.
GONE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "an older copy": (
        lambda lines: lines[:4],
        r"has 4 lines, and .*state.* has seen 8 in it: it was cut off, deleted, or an older",
    ),
    "the last line": (lambda lines: lines[:-1], "has 7 lines, and"),
    "the torn last line": (lambda lines: [*lines[:-1], lines[-1][:30]], "has 7 lines, and"),
    "all but one": (lambda lines: lines[:1], "has 1 lines, and"),
    "all": (lambda lines: [], "has 0 lines, and"),
}


@pytest.mark.parametrize("what", GONE)
def test_what_is_gone_is_found_by_every_job(world: World, what: str) -> None:
    act, says = GONE[what]
    world.path.write_bytes(b"".join(act(world.lines())))
    left = world.path.read_bytes()
    for job in ("new", "one"):
        world.refused(says, job)
    assert world.path.read_bytes() == left, "nothing is written into a file that does not count"


def test_a_budget_that_was_deleted_or_is_another_file(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    for round in range(9):
        other.holder("else").charge(Charge(1, round))
    world.path.unlink()
    world.refused("has 0 lines")
    world.path.unlink(missing_ok=True)
    world.path.write_bytes(other.path.read_bytes())
    world.refused("one of its first 8 lines was altered, or it is another file")


def adopted(world: World, error: JobError) -> None:
    """The holder adds the line that it was told."""
    (line,) = re.findall(r"\{\"adopt\".*?\}", str(error))
    with world.path.open("a") as file:
        file.write(line + "\n")


def test_a_holder_may_accept_a_copy_each_time_anew(world: World, tmp_path: Path) -> None:
    copy = (tmp_path / "before").read_bytes()
    world.path.write_bytes(copy)
    adopted(world, world.refused("has 4 lines"))
    holder = world.holder("three")
    assert holder.ledger.adopted == 5
    assert sum(holder.ledger.spent.values()) == 15
    holder.charge(Charge(5, 0))
    once = b"".join(world.lines()[:5])  # with the adoption
    world.holder("four").charge(Charge(5, 0))
    for older in (copy, once):
        world.path.write_bytes(older)
        error = world.refused("an older copy put back")
    adopted(world, error)
    assert world.holder("five").charge(Charge(1, 0)).granted == 1
    world.path.unlink()
    error = world.refused("has 0 lines")
    world.path.unlink(missing_ok=True)
    adopted(world, error)
    assert world.holder("six").charge(Charge(1, 0)).granted == 1
    assert world.holder("seven").charge(Charge(1, 0)).granted == 1


def test_a_plain_adoption_of_a_copy_counts(world: World) -> None:
    """Without a time, as policies say it of files of an older version."""
    world.path.write_bytes(b"".join([*world.lines()[:4], b'{"adopt": 4}\n']))
    assert world.holder("three").charge(Charge(1, 0)).granted == 1


def test_marks_that_are_older_unreadable_or_gone_are_no_fault(world: World) -> None:
    (mark,) = world.marks.glob("*.json")
    old = mark.read_bytes()
    world.holder("three").charge(Charge(1, 0))
    assert mark.read_bytes() != old
    for content in (old, b"", b"\0" * len(old), old[:-9], old.replace(b'"length": 8', b'"length": 9'), b"[]\n\n", b"\xff\n"):
        mark.write_bytes(content)
        assert world.holder("four").ledger.mark.length >= 10
    mark.unlink()
    world.holder("five").charge(Charge(1, 0))
    assert mark.stat().st_mode & 0o777 == 0o600
    assert world.marks.stat().st_mode & 0o777 == 0o700


def test_marks_are_of_one_file(world: World, tmp_path: Path) -> None:
    """A copy elsewhere is another file, and so is a file of this path on another machine."""
    elsewhere = World(tmp_path / "elsewhere")
    elsewhere.folder.mkdir(parents=True)
    elsewhere.path.write_bytes(b"".join(world.lines()[:3]))
    elsewhere.marks = world.marks
    elsewhere.holder("three").charge(Charge(1, 0))
    world.holder("four").charge(Charge(1, 0))
    assert len(list(world.marks.glob("*.json"))) == 2
    world.path.unlink()
    for mark in world.marks.glob("*.json"):
        text, _, _ = mark.read_bytes().split(b"\n")
        said = json.loads(text) | {"host": "another"}
        text = json.dumps(said).encode()
        mark.write_bytes(text + b"\n" + _check(text) + b"\n")
    assert world.holder("five").charge(Charge(1, 0)).granted == 1


def test_where_no_mark_can_be_kept(tmp_path: Path) -> None:
    """The charge stands, and the holder can be told why."""
    world = World(tmp_path)
    world.marks.write_text("a file")
    holder = world.holder("one")
    assert holder.charge(Charge(5, 0)).granted == 5
    assert holder.ledger.unmarked is not None
    assert str(world.marks) in holder.ledger.unmarked
    spare = Account(world.folder, "survey", marks=(world.marks, tmp_path / "spare"))
    again = Holder("clinic", spare, job="one", mechanism=M, epsilon=9.0, delta=1e-5)
    again.charge(Charge(5, 1))
    assert again.ledger.unmarked is None
    assert len(list((tmp_path / "spare").glob("*.json"))) == 1


def child(world: World, job: str, charges: int, calls: int, told: Path) -> int:
    """A process that charges, and is killed before a call of the operating system; it says in a file what was granted to it."""
    if pid := apart.fork():
        return pid
    left = [calls]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    code = 1
    try:
        with told.open("a", buffering=1) as file:
            for name in ("write", "fsync", "replace", "open", "mkdir"):
                setattr(os, name, counted(getattr(os, name)))
            holder = world.holder(job)
            for round in range(charges):
                file.write(f"{holder.charge(Charge(5, round)).granted}\n")
        code = 0
    finally:
        os._exit(code)


def granted(told: Path) -> int:
    return sum(map(int, told.read_text().split())) if told.exists() else 0


def test_a_kill_between_any_two_calls_refuses_no_later_job(tmp_path: Path) -> None:
    """And no charge that was granted is forgotten."""
    world, told, ends = World(tmp_path), tmp_path / "told", set()
    for calls in range(60):
        _, status = os.waitpid(child(world, f"j{calls}", 3, calls, told), 0)
        ends.add(os.waitstatus_to_exitcode(status))
        assert sum(world.holder("look").ledger.spent.values()) >= granted(told)
    assert ends == {0, -signal.SIGKILL}


def test_jobs_at_once(tmp_path: Path) -> None:
    """Each adds its charges under the lock; the mark is the last one's, and what each grants is in the file."""
    world, told, look = World(tmp_path), tmp_path / "told", []
    jobs = {child(world, f"j{k}", 12, 10**9, told) for k in range(3)}
    ends = []
    while jobs:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            jobs.discard(pid)
            ends.append(status)
        books = Books(world.account)
        books.look(own=True)  # without the lock: a mark that is newer than what was read is no fault
        look.append(sum(books.ledger.spent.values()))
    assert ends == [0, 0, 0]
    assert sum(world.holder("look").ledger.spent.values()) == granted(told) == 3 * 12 * 5
    assert look == sorted(look)
    (mark,) = world.marks.glob("*.json")
    assert json.loads(mark.read_bytes().split(b"\n")[0])["length"] == len(world.lines())
