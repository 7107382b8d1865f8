"""A run's folder: whole files, logs, checkpoints that survive cuts, and runs that go on as if nothing had happened."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkern import _core
from fedkern.algorithms.core.messages import SERVER, Charged
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import files
from fedkern.jobs.files import Lines, RunFolder, unwritable, write_atomically
from fedkern.jobs.keeping import Exchange, Keeper
from fedkern.jobs.outbox import Outbox
from fedkern.results.summary import digest
from fedkern.transports.inprocess import InProcess
from support import toy
from support.refusal import refusal

NAMES, ROUNDS = ("ward a", "b/b", "c"), 6
N = len(NAMES)


def result(server):
    return digest(dict(zip("hP", server.q)))


class Crash(BaseException):
    """What a SIGKILL is to the code: nothing after it runs."""


class Run(Keeper):
    """A run that checkpoints after every event, and dies before its `fatal`-th message leaves a client (a private one has stored
    it)."""

    def __init__(self, path, *, fatal=None, private=False, job=b"job", every=0.0):
        super().__init__(NAMES, RunFolder(path, NAMES, job), private=private, every=every)
        self.fatal, self.sent, self.left, self.charged = fatal, 0, [], 0

    def charge(self, client, charge):
        self.charged += charge.steps
        return Charged(charge.steps)

    def observe(self, state, event):
        if not state.waiting or len(state.waiting) == N:
            self.metric({"round": state.round})

    def sending(self, client, message, n_bytes, charged):
        super().sending(client, message, n_bytes, charged)
        self.sent += 1
        if self.sent == self.fatal and not (self.remembers and isinstance(message, toy.Answer)):
            raise Crash
        if isinstance(message, toy.Answer):
            self.left.append((client, message.round, message.dh.tobytes()))

    def remember(self, client, *answer):
        super().remember(client, *answer)
        if self.sent == self.fatal:
            raise Crash

    def go(self, *, resume=False, noisy=False, place=None):
        self.folder.claim([SERVER, *range(N)], resume=resume)
        clients = {k: toy.client(k, noise=np.random.default_rng() if noisy else None) for k in range(N)}
        exchange = Exchange(toy.PROTOCOL, toy.start(N, ROUNDS), clients, toy.codec(N))
        server, _ = self.run_exchange(place or InProcess(), exchange, resume=resume)
        self.close()
        return server


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The digest of a run that nothing interrupts, and how many messages leave its clients."""
    run = Run(tmp_path_factory.mktemp("whole"))
    return result(run.go()), run.sent


def test_a_run_killed_anywhere_goes_on_to_the_same_digest(tmp_path, whole):
    want, n_messages = whole
    for fatal in range(2, n_messages + 1, 6):
        folder = tmp_path / str(fatal)
        with pytest.raises(Crash):
            Run(folder, fatal=fatal).go()
        again = Run(folder, fatal=5)  # and killed once more, soon after
        with pytest.raises(Crash):
            again.go(resume=True)
        last = Run(folder)
        assert result(last.go(resume=True)) == want, fatal
        rounds = [json.loads(line)["round"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert rounds == list(range(1, ROUNDS + 1)), fatal


def test_at_most_one_round_is_done_again(tmp_path, whole):
    with pytest.raises(Crash):
        Run(tmp_path, fatal=whole[1] - 1).go()
    last = Run(tmp_path)
    last.go(resume=True)
    assert {round for _, round, _ in last.left} <= {ROUNDS - 2, ROUNDS - 1}


def test_without_resume_nothing_is_read(tmp_path, whole):
    """Negative control: a run that starts anew instead of going on is not mistaken for a resumed one."""
    with pytest.raises(Crash):
        Run(tmp_path, fatal=whole[1] - 1).go()
    last = Run(tmp_path)
    last.run_exchange(
        InProcess(), Exchange(toy.PROTOCOL, toy.start(N, ROUNDS), {k: toy.client(k) for k in range(N)}, toy.codec(N))
    )
    assert {round for _, round, _ in last.left} == set(range(ROUNDS))


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_a_private_client_never_draws_noise_twice_for_one_release(tmp_path, every):
    """Whatever left before the crash leaves again byte for byte, and is not charged again."""
    for fatal in (2, 8, 17):
        folder = tmp_path / str(fatal)
        first = Run(folder, fatal=fatal, private=True, every=every)
        with pytest.raises(Crash):
            first.go(noisy=True)
        second = Run(folder, private=True, every=every)
        second.go(resume=True, noisy=True)
        sent = {key[:2]: key[2] for key in first.left}
        again = {key[:2]: key[2] for key in second.left}
        assert all(again[key] == noisy for key, noisy in sent.items() if key in again), fatal
        assert len(sent | again) == N * ROUNDS
        # One message may have been stored and not have left: it was charged, and it is not charged again.
        assert first.charged + second.charged == 3 * N * ROUNDS
    assert len({bytes(noisy) for *_, noisy in first.left + second.left}) == N * ROUNDS


def test_without_an_outbox_noise_is_drawn_twice(tmp_path):
    """Negative control of the test above."""
    first = Run(tmp_path, fatal=8, every=1e9)
    with pytest.raises(Crash):
        first.go(noisy=True)
    second = Run(tmp_path, every=1e9)
    second.go(resume=True, noisy=True)
    sent, again = ({key[:2]: key[2] for key in run.left} for run in (first, second))
    assert any(again[key] != noisy for key, noisy in sent.items())


def test_a_signal_ends_a_run_with_a_checkpoint(tmp_path, whole):
    class Stopped(Run):
        def should_stop(self):
            return "SIGTERM" if self.sent >= 7 else None

    with refusal(LostPeer, "--resume") as caught:
        Stopped(tmp_path, every=1e9).go()
    assert caught.value.exit_code == 3
    assert result(Run(tmp_path).go(resume=True)) == whole[0]


def interrupted(path):
    with pytest.raises(Crash):
        Run(path, fatal=25).go()
    return RunFolder(path, NAMES, b"job")


def test_the_server_keeps_two_and_every_client_has_both(tmp_path):
    folder = interrupted(tmp_path)
    last, newest = folder.numbers(SERVER, "toy")
    assert newest == last + 1
    for client in range(N):
        assert {last, newest} <= set(folder.numbers(client, "toy"))
        assert len(folder.numbers(client, "toy")) == 3
    assert (tmp_path / "client-ward_a" / "checkpoint").is_dir()
    assert (tmp_path / "client-b_b" / "checkpoint").is_dir()


def damage(path, how):
    data = path.read_bytes()
    match how:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "altered":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        case "empty":
            path.write_bytes(b"")


@pytest.mark.parametrize("how", ["cut", "altered", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_older_one(tmp_path, whole, how):
    folder = interrupted(tmp_path)
    newest = folder.numbers(SERVER, "toy")[-1]
    damage(folder._checkpoint(1, "toy", newest), how)
    run = Run(tmp_path)
    assert result(run.go(resume=True)) == whole[0]
    assert len(run.notes) == 1
    assert "cut short or altered; an older checkpoint is used" in run.notes[0]


@pytest.mark.parametrize(
    ("what", "private", "every"),
    [("", False, 0.0), ("", True, 60.0), ("ledger", False, 60.0), ("metrics.jsonl", False, 60.0), ("client-c", True, 60.0)],
)
def test_what_is_deleted_during_a_run_is_missed_at_the_next_write(tmp_path, what, private, every):
    """An open file can be written to long after nobody can read it; a folder made anew would lack all the rest."""

    class Deleted(Run):
        def sending(self, *arguments):
            super().sending(*arguments)
            if self.sent == 3 * N:
                gone = tmp_path / what
                shutil.rmtree(gone) if gone.is_dir() else gone.unlink()

    run = Deleted(tmp_path, private=private, every=every)
    with pytest.raises(JobError, match=rf"{what}.* was deleted while the job ran"):
        run.go()
    assert run.sent <= 4 * N


def test_two_damaged_checkpoints_are_an_error(tmp_path):
    folder = interrupted(tmp_path)
    for number in folder.numbers(SERVER, "toy"):
        damage(folder._checkpoint(SERVER, "toy", number), "altered")
    run = Run(tmp_path)
    run.notes.append("column 'age' has one value")  # of an earlier stage: it is no reason
    with pytest.raises(JobError) as caught:
        run.go(resume=True)
    reason = rf"{re.escape(str(tmp_path))}/checkpoint/toy-\d+\.ckpt was cut short or altered"
    assert re.fullmatch(
        rf"{reason}; {reason}: none can be read, so the run can't go on; start it anew \(--out\)", str(caught.value)
    )


def test_a_damaged_checkpoint_that_is_not_the_newest_changes_nothing(tmp_path, whole):
    folder = interrupted(tmp_path)
    damage(folder._checkpoint(1, "toy", folder.numbers(1, "toy")[0]), "altered")
    run = Run(tmp_path)
    assert result(run.go(resume=True)) == whole[0]
    assert len(run.notes) == 1
    assert run.notes[0].endswith("was cut short or altered")


def test_without_a_whole_checkpoint_the_first_rounds_start_anew(tmp_path, whole):
    folder = RunFolder(tmp_path, NAMES, b"job")
    with pytest.raises(Crash):
        Run(tmp_path, fatal=2 * N).go()
    assert folder.numbers(SERVER, "toy") == [1]
    damage(folder._checkpoint(SERVER, "toy", 1), "cut")
    run = Run(tmp_path)
    assert result(run.go(resume=True)) == whole[0]
    assert [note.partition("; ")[2] for note in run.notes] == ["the rounds start anew"]


def test_a_checkpoint_that_only_one_party_has_is_not_used(tmp_path):
    folder = interrupted(tmp_path)
    for number in folder.numbers(2, "toy"):
        folder._checkpoint(2, "toy", number).unlink()
    with pytest.raises(JobError, match="no checkpoint of toy in common"):
        Run(tmp_path).go(resume=True)


def test_a_checkpoint_of_another_job_is_refused(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(JobError, match="belongs to another job"):
        Run(tmp_path, job=b"another").go(resume=True)


def test_runs_are_not_overwritten(tmp_path):
    folder = interrupted(tmp_path)
    with refusal(JobError, "--resume"):
        folder.claim([SERVER], resume=False)
    with pytest.raises(JobError, match=r"client-ward_a/checkpoint holds an interrupted run"):
        folder.claim([0], resume=False)
    folder.write_json("summary.json", {"epsilon": np.inf, "mean": np.float64(1.5)})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"epsilon": "inf", "mean": 1.5}
    for resume in (False, True):
        with refusal(JobError, "summary.json"):
            folder.claim([SERVER], resume=resume)
        with pytest.raises(JobError, match=r"has finished"):  # whose checkpoint a kill has left: nothing goes on with it
            folder.claim([0, SERVER], resume=resume)


def test_a_client_that_was_asked_nothing_has_nothing_to_resume(tmp_path):
    """Its outbox may come before the server's job.json: a kill in between must leave a way to start."""
    folder = RunFolder(tmp_path, NAMES)
    Outbox(folder.home(0) / "outbox", "toy", 0).close()
    folder.claim([0], resume=False)


def test_names_become_different_safe_folders():
    folder = RunFolder("x", ["a/b", "a b", "../up", ""])
    homes = [folder.home(k) for k in range(4)]
    assert len(set(homes)) == 4
    assert all(home.parent == Path("x") and home.name.startswith("client-") for home in homes)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_a_job_error_and_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(JobError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert caught.value.exit_code == 2
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["summary.json"]


def test_a_log_on_a_full_disk_is_a_job_error(tmp_path):
    log = Lines(tmp_path / "full.jsonl")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._handle.file)
    os.close(full)
    with pytest.raises(JobError, match="No space left"):
        log.append({"round": 1})


def test_a_write_that_a_signal_ends_early_is_gone_on_with():
    ours, theirs = os.pipe()
    data = os.urandom(1 << 20)  # more than a pipe holds: the first call waits, and the signal ends it with a part of it written
    found, interrupted = [], threading.Event()

    def read():
        interrupted.wait(20)
        with open(ours, "rb") as file:
            found.append(file.read())

    reader = threading.Thread(target=read)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    ringing = threading.Timer(0.2, lambda: (os.kill(os.getpid(), signal.SIGALRM), time.sleep(0.1), interrupted.set()))
    try:
        reader.start()
        ringing.start()
        _core.files.append(theirs, data)
    finally:
        os.close(theirs)
        reader.join()
        ringing.join()
        signal.signal(signal.SIGALRM, before)
    assert found == [data]


LIMITED = """
import os, resource, sys
from pathlib import Path
from fedkern.errors import JobError
from fedkern.jobs.files import Lines, unwritable, write_atomically
from fedkern.jobs.ledger import Ledger
from fedkern.jobs.outbox import Outbox
from fedkern.jobs.holding.budget import Ledger as Budget

budget = Budget(Path("budget.jsonl"))
with budget.locked() as file:
    budget.append(file, {"job": "a", "data": "b", "unaccounted": "open"})
whole = Path("budget.jsonl").read_bytes()
outbox = Outbox(Path("outbox"), "toy", 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 50, len(whole) + 50))

def charge():
    with budget.locked() as file:
        budget.append(file, {"job": "a", "data": "b", "unaccounted": "open"})

for write in (
    lambda: Lines(Path("log.jsonl")).write("x" * 500),
    lambda: Ledger(Path("ledger.jsonl")).write("x" * 500),
    lambda: outbox.remember(b"q" * 32, [b"f" * 500], {}),
    lambda: write_atomically(Path("whole"), b"x" * 500),
    charge,
):
    try:
        write()
    except JobError as error:
        print(error)
assert Path("budget.jsonl").read_bytes() == whole
"""


def test_a_limit_of_file_sizes_is_not_called_a_full_disk(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60, env=os.environ
    )
    lines = done.stdout.splitlines()
    assert [Path(line.split(": ")[0].split()[-1]).name for line in lines] == [
        "log.jsonl", "ledger.jsonl", "toy-000000.log", "whole", "budget.jsonl",
    ]  # fmt: skip
    assert all("File too large" in line for line in lines)
    assert all("ulimit -f" in line for line in lines[:-1])


def refuse_to_remove(monkeypatch, number):
    """No file is removed any more but the temporary ones, whose names are gone already once they are in their place."""
    real = os.unlink

    def unlink(path, *, dir_fd=None):
        if not os.fspath(path).endswith(".part"):
            raise OSError(number, os.strerror(number), path)
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("private", [False, True])
def test_old_files_that_cannot_be_removed_are_said_once_and_the_run_goes_on(
    tmp_path, monkeypatch, capsys, whole, number, private
):
    refuse_to_remove(monkeypatch, number)
    assert result(Run(tmp_path, private=private).go()) == whole[0]
    told = capsys.readouterr().err.splitlines()
    folders = [Path(line.split()[1]).parent for line in told]
    assert len(folders) == len(set(folders)) == (1 + N) + (N if private else 0)  # checkpoints, and what was stored of answers
    assert all(os.strerror(number) in line and "the job goes on" in line for line in told)
    assert len(RunFolder(tmp_path, NAMES).numbers(SERVER, toy.PROTOCOL.name)) > 3


def test_what_must_be_gone_before_a_run_goes_on_is_an_error_with_its_file(tmp_path, monkeypatch):
    with pytest.raises(Crash):
        Run(tmp_path, fatal=12).go()
    newer = tmp_path / "checkpoint" / f"{toy.PROTOCOL.name}-000099.ckpt"
    newer.write_bytes(b"")
    refuse_to_remove(monkeypatch, errno.EIO)
    with pytest.raises(JobError, match="Input/output error"):
        Run(tmp_path).go(resume=True)


def test_a_run_on_a_full_disk_ends_and_goes_on_when_there_is_space(tmp_path, monkeypatch, whole):
    real, calls = os.fsync, []

    def filling(number):
        calls.append(number)
        if len(calls) == 40:
            no_space()
        real(number)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", filling)
        with pytest.raises(JobError, match="No space left"):
            Run(tmp_path).go()
    assert result(Run(tmp_path).go(resume=True)) == whole[0]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"cannot write .*file/x: /.*/file is a file, and no folder; choose another folder"):
        write_atomically(tmp_path / "file" / "x", b"")


def test_what_was_written_before_is_spoken_of_where_a_run_has_begun(tmp_path):
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    paths = [tmp_path / name for name in ("job.json", "ledger/a.jsonl", "client-a/checkpoint/pvi-000001.ckpt")]
    for path in paths:
        assert str(unwritable(path, error)) == (
            f"cannot write {path}: Permission denied; make it writable or choose another folder with --out"
        )
    (tmp_path / "job.json").write_text("{}")
    for path in paths:
        assert str(unwritable(path, error)).endswith("are whole; --resume goes on from the last checkpoint")


def test_a_line_that_a_crash_cut_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"round": 1}\n{"rou')
    log = Lines(path)
    log.append({"round": 2})
    assert path.read_text() == '{"round": 1}\n{"rou\n{"round": 2}\n'
    log.cut(13)
    log.append({"round": 3})
    assert path.read_text() == '{"round": 1}\n{"round": 3}\n'


def test_the_ledger_says_what_left(tmp_path):
    run = Run(tmp_path, every=1e9)
    run.go()
    lines = [json.loads(line) for line in run.folder.ledger(0).read_text().splitlines()]
    assert len(lines) == ROUNDS
    assert lines[2] == {
        "protocol": "toy",
        "round": 2,
        "kind": "Answer",
        "fields": {"round": "int", "note": "note", "dh": "d", "dP": "d"},
        "shapes": {"dh": [6], "dP": [6]},
        "bytes": toy.codec(N).layout(toy.Answer).total,
        "charge": 3,
    }


def test_before_the_first_protocol_too_a_fault_stays_with_the_client(tmp_path):
    keeper = Run(tmp_path, private=True)
    keeper.clients = (2,)
    assert "47" not in keeper.public(ValueError("could not convert 'age 47'"))
    assert "age 47" in (tmp_path / "client-c" / "holder.txt").read_text()


def test_the_fault_of_a_private_client_stays_with_it(tmp_path):
    secret = "age 47"

    def client_receive(state, event):
        if isinstance(event, Charged):
            raise ZeroDivisionError(secret)
        return toy.client_receive(state, event)

    for private in (True, False):
        keeper = Run(tmp_path / str(private), private=private)
        protocol = replace(toy.PROTOCOL, client_receive=client_receive)
        clients = {0: toy.client(0), 1: toy.client(1), 2: toy.client(2)}
        with pytest.raises(ZeroDivisionError) as caught:
            keeper.run_exchange(InProcess(), Exchange(protocol, toy.start(N, 1), clients, toy.codec(N)))
        text = keeper.public(caught.value)
        assert secret not in text
        assert ("internal error\nTraceback" in text) is not private
        found = {path.parent.name for path in (tmp_path / str(private)).rglob("holder.txt") if secret in path.read_text()}
        assert found == {"client-ward_a"}
        assert (tmp_path / str(private) / "client-ward_a" / "holder.txt").stat().st_mode & 0o777 == 0o600
    assert keeper.public(JobError("client c: no column 'age'")) == "client c: no column 'age'"
