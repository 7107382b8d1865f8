"""`--resume` goes on with the run, the job, the rows and the logs that it left, and with no others; nothing else is trusted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import Saved
from fedkern.algorithms.exchanges.answers import Certificate
from fedkern.algorithms.pvi import machine
from fedkern.algorithms.pvi.machine import Client, Server
from fedkern.data.table import load as load_table
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import ledger, stamp
from fedkern.jobs.files import RunFolder
from fedkern.jobs.holding.chain import Mark
from fedkern.jobs.hooks import RunHooks
from fedkern.jobs.identity import Identity
from fedkern.jobs.secret import fingerprint, secret
from fedkern.methods import load
from support import few, interrupted, sigma_artifacts
from support.command import Ended, forking, mpirun
from support.interrupted import KINDS, Crash, run
from support.refusal import refusal


def job(folder: Path, kind: str) -> Path:
    """Of any number of rows: some are cut away."""
    path = interrupted.job(folder, kind)
    if kind == "pvi":
        path.write_text(few.lowered(path.read_text()))
    return path


def crashed(folder: Path, kind: str = "private", *sets: str, after: int = 20) -> tuple[Path, Path]:
    """A job that died before its first checkpoint: the job file, and its folder."""
    path, out = job(folder, kind), folder / "out"
    with pytest.raises(Crash):
        run(path, out, *sets, crash=after)
    return path, out


def stopped(folder: Path, kind: str = "private", *sets: str, after: int = 20) -> tuple[Path, Path]:
    """A job that was stopped with a checkpoint."""
    path, out = job(folder, kind), folder / "out"
    with refusal(LostPeer, "--resume", "1"):
        run(path, out, *sets, stop=after)
    return path, out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(path: Path, out: Path, *sets: str, names: tuple[str, ...] = ()) -> str:
    """A resume is refused with an error that names these, and changes nothing."""
    before = contents(out)
    with refusal(JobError, *names) as caught:
        run(path, out, *sets, resume=True)
    assert isinstance(caught.value, JobError)
    assert caught.value.exit_code == 2
    after = contents(out)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not {name for name in changed if not name.endswith(".lock")}
    return str(caught.value)


# --- the job


CHANGES = {  # a setting -> what the run had
    "privacy.clip=3.0": "2.5",
    "privacy.noise_multiplier=9.0": "3.0",
    'privacy.noise_source="keyed"': "secure",
    "privacy.sampling_rate=0.01": "0.2",
    "algorithm.local_steps=4": "3",
    "model.prior_sd=2.0": "1.0",
    "job.seed=4": "0",
    'data.names=["x", "b"]': "a",  # the client's name
    'data.ignore=["sex"]': "",
    "output.metrics_every=2": "1",
}


def changed(setting: str) -> tuple[str, ...]:
    """The key of a setting, its value and that of before."""
    key, _, now = setting.partition("=")
    return key, *re.findall(r"[\w.]+", now), *filter(None, [CHANGES[setting]])


def test_a_run_that_died_early_goes_on_with_its_own_job_only(tmp_path: Path) -> None:
    path, out = crashed(tmp_path)
    for setting in CHANGES:
        refused(path, out, setting, names=changed(setting))
    said = refused(path, out, *list(CHANGES)[:7])
    assert said.count(" was ") == 6
    assert "; also job.seed. Resume" in said or "; also privacy." in said
    result = run(path, out, resume=True)
    assert {c["steps"] for c in result.privacy.values()} == {36}


def test_after_a_checkpoint_too(tmp_path: Path) -> None:
    path, out = stopped(tmp_path)
    for setting in list(CHANGES)[:3]:
        refused(path, out, setting, names=changed(setting))
    assert run(path, out, resume=True).stop == "rounds"


def test_a_private_run_is_not_resumed_as_an_open_one(tmp_path: Path) -> None:
    path, out = crashed(tmp_path)
    path.write_text(interrupted.PVI)
    refused(path, out, names=("privacy.clip", "privacy.noise_multiplier"))


def test_a_keyed_run_is_not_resumed_as_a_secure_one(tmp_path: Path) -> None:
    """It would claim epsilon 0 for a posterior that is made of keyed noise."""
    path, out = crashed(tmp_path, "private", "privacy.noise_source=keyed")
    refused(path, out, names=("privacy.noise_source", "keyed", "secure"))
    assert {c["epsilon"] for c in run(path, out, "privacy.noise_source=keyed", resume=True).privacy.values()} == {"inf"}


def test_whoever_edits_the_servers_job_file_still_has_the_clients_against_it(tmp_path: Path) -> None:
    path, out = crashed(tmp_path)
    for name in ("job.json", "client-a/job.json"):
        kept = (out / name).read_text()
        (out / name).write_text(kept.replace('"clip": 2.5', '"clip": 3.0'))
        refused(path, out, names=("privacy.clip", "3.0", "2.5"))
        (out / name).write_text(kept)
    for name in ("job.json", "client-a/job.json", "client-b/job.json"):
        (out / name).write_text((out / name).read_text().replace('"clip": 2.5', '"clip": 3.0'))
    # and if all were edited, their stored answers
    assert "client-a/outbox/" in refused(path, out, "privacy.clip=3.0")


@pytest.mark.parametrize("name", ["job.json", "client-a/job.json"])
def test_a_record_that_is_missing_or_no_record(tmp_path: Path, name: str) -> None:
    path, out = crashed(tmp_path)
    kept = (out / name).read_bytes()
    for content in (b"", b"[]", b"{", kept[:-40], b"\xff"):
        (out / name).write_bytes(content)
        assert name in refused(path, out)
    (out / name).unlink()
    assert name in refused(path, out)
    (out / name).write_bytes(kept)
    assert run(path, out, resume=True).stop == "rounds"


def test_a_folder_of_an_older_version_is_named(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi")
    record = json.loads((out / "job.json").read_text())
    (out / "job.json").write_text(json.dumps({key: value for key, value in record.items() if key != "run"}))
    refused(path, out, names=("job.json",))
    (out / "job.json").write_text(json.dumps(record))
    (checkpoint,) = (out / "checkpoint").iterdir()
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"checkpoint 3\n", b"checkpoint 1\n"))
    refused(path, out, names=(checkpoint.name, "1"))


@dataclass(frozen=True)
class Another:
    """A protocol's way to keep states, as another version may have it."""

    save: Callable[[Any], Saved]
    party: type

    def __call__(self, state: Any) -> Saved:
        saved = dict(self.save(state))
        return self.changed(saved) if isinstance(state, self.party) else saved

    @staticmethod
    def changed(saved: Saved) -> Saved:
        return saved | {"one field more": 1}


class OfAnotherType(Another):
    @staticmethod
    def changed(saved: Saved) -> Saved:
        name = next(name for name in saved if name.endswith("round"))
        return saved | {name: float(saved[name])}  # type: ignore[arg-type]


class OfAnotherShape(Another):
    @staticmethod
    def changed(saved: Saved) -> Saved:
        name = next(name for name, value in saved.items() if isinstance(value, np.ndarray) and value.size)
        return saved | {name: np.append(saved[name], 0.0)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "party", "file"),
    [
        (Another, Client, "client-a/checkpoint/pvi-000001.ckpt"),
        (OfAnotherShape, Client, "client-a/checkpoint/pvi-000001.ckpt"),
        (OfAnotherType, Server, "out/checkpoint/pvi-000001.ckpt"),
        (OfAnotherShape, Server, "out/checkpoint/pvi-000001.ckpt"),
    ],
)
def test_a_checkpoint_of_another_layout_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: type[Another], party: type, file: str
) -> None:
    """What a state keeps has changed meanwhile, and nobody thought of the format's number."""
    path, out = stopped(tmp_path, "pvi")
    real = machine.PROTOCOL
    with monkeypatch.context() as other:
        other.setattr(machine, "PROTOCOL", replace(real, save=kept(real.save, party)))
        with pytest.raises(JobError) as caught:
            run(path, out, resume=True)
        assert file in str(caught.value)
        assert caught.value.exit_code == 2
    assert run(path, out, resume=True).stop == "rounds"


def test_a_stored_answer_of_another_layout_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise in it would be drawn again if it were left out."""
    path, out = crashed(tmp_path)
    real = machine.PROTOCOL
    with monkeypatch.context() as other:
        other.setattr(machine, "PROTOCOL", replace(real, save=Another(real.save, Client)))
        with refusal(JobError, "pvi-000000.log", "a"):
            run(path, out, resume=True)
    assert {c["steps"] for c in run(path, out, resume=True).privacy.values()} == {36}


# --- what may change


def test_which_keys_may_change() -> None:
    private = interrupted.PVI + interrupted.TERMS

    def free(kind: str, *sets: str) -> set[str]:
        config, _ = load(tomllib.loads({"pvi": interrupted.PVI, "private": private, "sigma": interrupted.SIGMA}[kind]), sets)
        return set(config.resumable) - {"job.deadline", "algorithm.checkpoint_every"}

    drawn = {"output.draws", "output.chains"}  # from what is fitted, and not before
    assert free("pvi") == free("private") == {"job.rounds"} | drawn
    private = private.replace("noise_multiplier = 3.0", "calibrate = true")
    assert free("private") == drawn  # the noise depends on the number of rounds
    assert free("sigma") == drawn | {"output.polygons"}  # its learning rate may fall with the rounds that are left
    assert free("sigma", "algorithm.inference=hmc", "algorithm.burn_in=5") == {"job.rounds", "output.polygons"}


@pytest.mark.parametrize(("kind", "rounds"), [("pvi", (12, 20)), ("sparse", (60, 80)), ("hmc", (30, 40))])
def test_more_rounds_give_what_a_longer_run_gives(tmp_path: Path, kind: str, rounds: tuple[int, int]) -> None:
    short, long = (f"job.rounds={n}" for n in rounds)
    path, out = stopped(tmp_path, kind, short)
    other = ("job.deadline=50.0", "algorithm.checkpoint_every=30.0")
    result = run(path, out, long, *other, resume=True)
    assert result.digest == run(path, None, long).digest != run(path, None, short).digest
    job_file = json.loads((out / "job.json").read_text())
    assert (f"job.rounds={job_file['job']['rounds']}", job_file["algorithm"]["checkpoint_every"]) == (long, 30.0)


def test_fewer_rounds_end_the_run(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi")
    done = len((out / "metrics.jsonl").read_text().splitlines())
    result = run(path, out, "job.rounds=2", resume=True)
    assert 2 < done == result.summary["rounds"]
    assert result.stop == "rounds"


@pytest.mark.parametrize(("kind", "key"), [("vertical", "job.rounds"), ("sigma", "job.rounds")])
def test_where_the_number_of_rounds_decides_more_than_the_end(tmp_path: Path, kind: str, key: str) -> None:
    path, out = stopped(tmp_path, kind)
    refused(path, out, "job.rounds=50", names=("job.rounds", "30", "50"))


def test_a_certificate_from_before_a_crash_is_not_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run had come to its certificates when it died, and was then given more rounds."""
    path, out = job(tmp_path, "private"), tmp_path / "out"
    real = Certificate.protocol.server_receive

    def dying(state: Any, sender: int, event: Any) -> Any:
        if sender == 1:
            raise Crash
        return real(state, sender, event)

    with monkeypatch.context() as patch:
        patch.setattr(Certificate, "protocol", replace(Certificate.protocol, server_receive=dying))
        with pytest.raises(Crash):
            run(path, out)
    assert list((out / "client-a" / "outbox").glob("certificates-*.log"))
    result = run(path, out, "job.rounds=20", resume=True)
    assert {c["steps"] for c in result.privacy.values()} == {60}


# --- the rows


def cut(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: 1 + (len(lines) - 1) // 4]) + "\n")


def reorder(path: Path) -> None:
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *reversed(rows)]) + "\n")


def change(path: Path) -> None:
    text = path.read_text()
    at = max(text.rindex(digit) for digit in "123456789" if digit in text)
    path.write_text(text[:at] + str(int(text[at]) % 9 + 1) + text[at + 1 :])


EDITS: dict[str, Callable[[Path], None]] = {"cut": cut, "reordered": reorder, "changed": change}


@pytest.mark.parametrize("interrupt", [crashed, stopped])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_others_than_before(tmp_path: Path, kind: str, interrupt: Callable[..., tuple[Path, Path]]) -> None:
    """Of one client: 150 of 200 rows deleted, and lesser things. (In an open job the others' columns are scaled anew, too.)"""
    path, out = interrupt(tmp_path, kind)
    file = sorted((tmp_path / "clients").iterdir())[1]
    name, kept = file.stem, file.read_bytes()
    for edit in EDITS.values() if interrupt is stopped else [cut]:
        edit(file)
        assert file.read_bytes() != kept
        refused(path, out, names=(name,))
        file.write_bytes(kept)
    assert run(path, out, resume=True).stop in ("rounds", "budget")


def test_without_the_binding_a_mixture_would_be_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: what happened before rows were bound."""
    monkeypatch.setattr(Identity, "rows", lambda self, party, table: table)
    path, out = stopped(tmp_path, "pvi")
    whole = run(path, None).digest
    cut(tmp_path / "clients" / "a.csv")
    assert run(path, out, resume=True).digest not in (whole, run(path, None).digest)


def test_the_servers_own_rows_are_bound_too(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "vertical")
    change(tmp_path / "server.csv")
    assert refused(path, out).startswith("the server:")


def test_what_does_not_change_the_rows_may_change(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi", 'data.ignore=["sex"]')
    file = tmp_path / "clients" / "a.csv"
    head, *rows = file.read_text().splitlines()
    file.write_text("\r\n".join([head, *(row.replace(",", " ,") for row in rows)]) + "\r\n")
    assert run(path, out, 'data.ignore=["sex"]', resume=True).stop == "rounds"


def test_a_prior_of_another_training(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "sigma")
    shutil.rmtree(tmp_path / "prior")
    sigma_artifacts.written(tmp_path / "prior", seed=5)
    with pytest.raises(JobError, match="its file of the prior is not the one with which this run began"):
        run(path, out, resume=True)


def test_a_fingerprint_needs_the_secret(tmp_path: Path) -> None:
    """The rows of a small table could be guessed from a plain hash; this one cannot be tested without the key."""
    path = job(tmp_path, "pvi")
    table = load_table(path.parent / "clients" / "a.csv", text={"sex", "income"})
    marks = {fingerprint(table, bytes([k] * 32)) for k in range(3)}
    assert len(marks) == 3
    assert fingerprint(table, bytes(32)) == fingerprint(table, bytes(32))
    kept = secret(tmp_path / "home")
    assert kept == secret(tmp_path / "home") != secret(tmp_path / "other")
    about = (tmp_path / "home" / "secret").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_size) == (0o600, 32)
    assert os.listdir(tmp_path / "home") == ["secret"]


def test_another_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKERN_CLIENT_HOME", raising=False)
    path, out = stopped(tmp_path)
    file = out / "client-a" / "secret"
    kept = file.read_bytes()
    for content, names in ((bytes(32), ("a",)), (b"short", ("5", "32"))):
        file.write_bytes(content)
        refused(path, out, names=names)
    file.write_bytes(kept)
    with monkeypatch.context() as patch:
        patch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
        assert "FEDKERN_CLIENT_HOME" in refused(path, out)
    assert run(path, out, resume=True).stop == "rounds"


# --- other runs, other clients


def test_checkpoints_and_answers_of_others(tmp_path: Path) -> None:
    often, other = "algorithm.checkpoint_every=1e-9", tmp_path / "other"
    path, out = job(tmp_path, "private"), tmp_path / "out"
    for folder in (out, other):
        with pytest.raises(LostPeer):
            run(path, folder, often, stop=20)
    name = max(file.stem for file in (out / "client-a" / "checkpoint").glob("pvi-*"))  # of the newest checkpoint
    before = f"pvi-{int(name[-6:]) - 1:06d}"
    own, server = out / "client-a" / "checkpoint" / f"{name}.ckpt", out / "checkpoint" / f"{name}.ckpt"
    log = out / "client-a" / "outbox" / f"{name}.log"
    answers = f"outbox/{before}.log"
    assert (out / "client-a" / answers).stat().st_size
    for target, source, names in (
        (own, out / "client-b" / "checkpoint" / own.name, ("b", "a")),
        (own, other / "client-a" / "checkpoint" / own.name, ()),
        (own, server, ("a",)),
        (own, other / "client-b" / "checkpoint" / own.name, ("b", "a")),
        (own, own.with_name(f"{before}.ckpt"), ()),
        (own, own.with_name("agreement-000001.ckpt"), ()),
        (log, out / "client-a" / answers, ()),
        (log, out / "client-b" / answers, ("b", "a")),
        (log, other / "client-a" / answers, ()),
        (server, other / "checkpoint" / server.name, ()),
    ):
        kept = target.read_bytes()
        shutil.copy(source, target)
        assert target.name in refused(path, out, names=names)
        target.write_bytes(kept)
    assert run(path, out, resume=True).stop == "rounds"


def test_a_whole_folder_of_another(tmp_path: Path) -> None:
    path, out = stopped(tmp_path)
    with pytest.raises(LostPeer):
        run(path, tmp_path / "other", stop=20)
    shutil.move(out / "client-a", tmp_path / "a")
    for source, names in ((out / "client-b", ("b", "a")), (tmp_path / "other" / "client-a", ("a",))):
        shutil.copytree(source, out / "client-a")
        assert "client-a/job.json" in refused(path, out, names=names)
        shutil.rmtree(out / "client-a")
    assert "client-a/job.json" in refused(path, out, names=("a",))
    shutil.move(tmp_path / "a", out / "client-a")
    assert run(path, out, resume=True).stop == "rounds"


def test_a_checkpoint_made_from_other_rows_is_refused_by_itself(tmp_path: Path) -> None:
    """Whatever the records say: the stamp of every file has the rows."""
    path, out = stopped(tmp_path)
    cut(tmp_path / "clients" / "a.csv")
    record = json.loads((out / "client-a" / "job.json").read_text())
    table = load_table(tmp_path / "clients" / "a.csv", text={"sex", "income"})
    record["run"]["rows"] = fingerprint(table, secret(out / "client-a"))
    (out / "client-a" / "job.json").write_text(json.dumps(record))
    with refusal(JobError, "a") as caught:
        run(path, out, resume=True)
    assert "client-a/outbox/" in str(caught.value)


def test_an_answer_that_was_altered(tmp_path: Path) -> None:
    """In the middle of the file; the end may be what a crash has left of a record that did not leave the client."""
    path, out = crashed(tmp_path)
    log = out / "client-a" / "outbox" / "pvi-000000.log"
    kept = log.read_bytes()
    log.write_bytes(kept[:600] + bytes([kept[600] ^ 1]) + kept[601:])
    with refusal(JobError, "pvi-000000.log"):
        run(path, out, resume=True)
    log.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert run(path, out, resume=True).privacy["a"]["steps"] in (36, 39)


def test_a_run_may_move(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "private", "privacy.noise_source=keyed")
    want = run(path, None, "privacy.noise_source=keyed").digest
    shutil.copytree(out, tmp_path / "copied")
    shutil.move(out, tmp_path / "moved" / "elsewhere")
    for place in (tmp_path / "moved" / "elsewhere", tmp_path / "copied"):
        assert run(path, place, "privacy.noise_source=keyed", resume=True).digest == want


# --- the logs


def edit_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"bytes": ', b'"bytes": 1'), *lines[1:]]


LOGS: list[Callable[[list[bytes]], list[bytes]] | None] = [
    edit_line,
    lambda lines: [*lines[:-1], lines[-1].replace(b'"charge": ', b'"charge": 1')],
    lambda lines: lines[:-1],
    lambda lines: lines[:4],  # an older copy
    lambda lines: [],
    None,  # deleted
]


@pytest.mark.parametrize("kind", ["crash", "stop", "open"])
def test_a_ledger_that_is_not_what_the_run_left(tmp_path: Path, kind: str) -> None:
    """Of a private job with stored answers and no checkpoint, and of jobs that were stopped."""
    path, out = (crashed if kind == "crash" else stopped)(tmp_path, "pvi" if kind == "open" else "private")
    log = out / "ledger" / "a.jsonl"
    kept = log.read_bytes()
    for act in LOGS:
        if act is None:
            log.unlink()
        else:
            log.write_bytes(b"".join(act(kept.splitlines(keepends=True))))
        assert "ledger/a.jsonl" in refused(path, out)
    log.write_bytes(kept + b'{"torn by a cra')  # no tampering
    assert run(path, out, resume=True).stop == "rounds"
    assert log.read_bytes().startswith(kept + b'{"torn by a cra\n')


def test_what_was_lost_when_the_machine_went_down_is_no_tampering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines were with the operating system, not yet on the disk."""
    monkeypatch.setattr(ledger, "SHARE", 1e-9)  # one sync, at the first answer
    path, out = crashed(tmp_path)
    log = out / "ledger" / "a.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for kept, lost in ((lines[:-2], True), (lines[:0], False)):
        log.write_bytes(b"".join(kept))
        assert log.name in refused(path, out)
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "boot", lambda: bytes(range(16)))
            if not lost:
                assert log.name in refused(path, out)
    log.write_bytes(b"".join(lines[:-2]))
    monkeypatch.setattr(ledger, "boot", lambda: bytes(range(16)))
    result = run(path, out, resume=True)
    own = json.loads((out / "client-a" / "ledger.json").read_text())["note"]
    assert "its last lines were lost when a machine went down" in own
    assert own in result.summary["notes"]


BUDGETS: list[Callable[[list[bytes]], list[bytes]] | None] = [
    lambda lines: [lines[0], lines[1].replace(b'"steps": ', b'"steps": 1'), *lines[2:]],
    lambda lines: lines[:-1],
    lambda lines: lines[:1],  # an older copy
    None,  # deleted
]


@pytest.mark.parametrize(
    ("kind", "interrupt", "home"), [("private", crashed, False), ("private", stopped, True), ("vertical-private", crashed, True)]
)
def test_a_budget_that_is_not_what_the_run_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, interrupt: Callable[..., tuple[Path, Path]], home: bool
) -> None:
    if home:
        monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    path, out = interrupt(tmp_path, kind)
    name = sorted((tmp_path / "clients").iterdir())[0].stem
    log = (tmp_path / "homes" / name if home else out / f"client-{name}") / "budget.jsonl"
    kept = log.read_bytes()
    for act in BUDGETS:
        if act is None:
            log.unlink()
        else:
            log.write_bytes(b"".join(act(kept.splitlines(keepends=True))))
            assert log.read_bytes() != kept
        with pytest.raises(JobError, match=r"budget\.jsonl: "):
            run(path, out, resume=True)
        assert log.exists() is (act is not None)
        log.write_bytes(kept)
    log.write_bytes(kept + b'{"job": "torn')
    assert run(path, out, resume=True).stop == "rounds"


@pytest.mark.parametrize(("how", "error"), [("stop", LostPeer), ("crash", Crash)])
def test_the_federations_budget_too(tmp_path: Path, how: str, error: type[Exception]) -> None:
    """After a checkpoint, and from the first noisy sum on that was stored."""
    by_client = ('privacy.unit="client"', "privacy.noise_multiplier=20.0", "privacy.delta=0.1")
    path = job(tmp_path, "private")
    path.write_text(path.read_text().replace("sampling_rate = 0.2\n", ""))
    with pytest.raises(error):
        run(path, tmp_path / "out", *by_client, **{how: 20})
    log = tmp_path / "out" / "budget.jsonl"
    if not log.exists():
        (log,) = tmp_path.rglob("budget.jsonl")
    kept = log.read_bytes()
    log.write_bytes(b"".join(kept.splitlines(keepends=True)[:3]))
    with refusal(JobError, "3"):
        run(path, tmp_path / "out", *by_client, resume=True)
    log.write_bytes(kept)
    assert run(path, tmp_path / "out", *by_client, resume=True).stop == "rounds"


def test_without_its_marks_a_cut_budget_would_not_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control, and what a certificate would then leave out. (Of its messages the ledger tells, too.)"""
    monkeypatch.setattr(RunHooks, "budget", lambda self, party: Mark())
    path, out = crashed(tmp_path)
    log = out / "client-a" / "budget.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
    with refusal(JobError, "3"):
        run(path, out, resume=True)
    monkeypatch.setattr(ledger, "charged", lambda *log: 0)
    assert run(path, out, resume=True).privacy["a"]["steps"] < 36


@pytest.mark.parametrize("interrupt", [crashed, stopped])
def test_a_client_whose_folder_went_back_in_time(tmp_path: Path, interrupt: Callable[..., tuple[Path, Path]]) -> None:
    """Budget, answers and checkpoints fit each other then; but the ledger says for how many steps messages have left."""
    path, out = interrupt(tmp_path)
    home, kept = out / "client-a", tmp_path / "kept"
    shutil.copytree(home, kept)
    for name in ("outbox", "checkpoint"):
        shutil.rmtree(home / name, ignore_errors=True)
    (home / "budget.jsonl").unlink()
    with refusal(JobError, "0"):
        run(path, out, resume=True)
    assert not (home / "budget.jsonl").exists()
    shutil.rmtree(home)
    shutil.copytree(kept, home)
    assert run(path, out, resume=True).privacy["a"]["steps"] == 36


def test_what_an_earlier_start_left_in_the_ledger_is_no_matter(tmp_path: Path) -> None:
    path, out = crashed(tmp_path)
    for folder in ("client-a", "client-b"):
        shutil.rmtree(out / folder)
    with pytest.raises(Crash):
        run(path, out, crash=5)
    assert run(path, out, resume=True).privacy["a"]["steps"] == 36


# --- killed for good


def kill(what: str, n: int, *arguments: str | Path) -> None:
    """`fedkern ARGUMENTS` in a process that dies by SIGKILL."""
    path = os.pathsep.join([str(Path(fedkern.__file__).parents[1]), str(Path(interrupted.__file__).parents[1])])
    command = [*forking(), interrupted.__file__, what, str(n), *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


ALWAYS = "algorithm.checkpoint_every=1e-9"


@pytest.mark.parametrize(("what", "n"), [("record", 3), ("message", 9), ("checkpoint", 3), ("checkpoint", 9)])
def test_killed_and_resumed(tmp_path: Path, what: str, n: int) -> None:
    """Before the records are complete, before the first checkpoint, inside a checkpoint's write, and after it."""
    sets = ("privacy.noise_source=keyed", *([ALWAYS] if what == "checkpoint" else []))
    path, out = job(tmp_path, "private"), tmp_path / "out"
    kill(what, n, "run", path, "--out", out, "--quiet", *(part for text in sets for part in ("--set", text)))
    if what == "record":  # the server's is written last: the run has not begun, and may begin anew
        with pytest.raises(JobError, match="no run to resume"):
            run(path, out, *sets, resume=True)
        result = run(path, out, *sets)
    else:
        for record in (out / "job.json", out / "client-a" / "job.json", out / "client-b" / "job.json"):
            assert record.exists()
        result = run(path, out, *sets, resume=True)
    assert result.digest == run(path, None, *sets).digest
    sent = [json.loads(line) for line in (out / "ledger" / "a.jsonl").read_text().splitlines()]
    assert sum(line["charge"] for line in sent) <= result.privacy["a"]["steps"] <= 36 + 3


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["message", "checkpoint"])
@pytest.mark.parametrize("n", [1, 2, 5, 11, 20])
def test_killed_anywhere_and_resumed(tmp_path: Path, kind: str, what: str, n: int) -> None:
    path, out = job(tmp_path, kind), tmp_path / "out"
    sets = ((ALWAYS,) if what == "checkpoint" else ()) + (("privacy.noise_source=keyed",) if "private" in kind else ())
    kill(what, n, "run", path, "--out", out, "--quiet", *(part for text in sets for part in ("--set", text)))
    assert run(path, out, *sets, resume=True).digest == run(path, None, *sets).digest


# --- over MPI


@pytest.mark.nightly
def test_clients_compare_their_own_folders(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi")
    with pytest.raises(LostPeer):
        run(path, tmp_path / "other", stop=20)
    shutil.rmtree(out / "client-b")
    shutil.copytree(tmp_path / "other" / "client-b", out / "client-b")
    ended = mpirun(3, "run", path, "--out", out, "--resume", "--quiet")
    assert ended.code == 2, ended.err
    assert "rank 2: " in ended.err
    assert "client 'b' took part in another run of this job than the server" in ended.err


def test_fewer_ranks_may_go_on(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi")
    ended = mpirun(2, "run", path, "--out", out, "--resume", "--quiet")
    assert ended.code == 0, ended.err
    assert json.loads((out / "summary.json").read_text())["digest"] == run(path, None).digest


def some_with_resume(path: Path, out: Path) -> Ended:
    """Rank 0 with --resume, rank 1 without."""
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env["PYTHONPATH"] = str(Path(fedkern.__file__).parents[1])
    rank = [*forking(), "-m", "fedkern.cli", "run", str(path), "--out", str(out), "--mpi", "--quiet"]
    launcher = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe"]
    command = [*launcher, "-n", "1", *rank, "--resume", ":", "-n", "1", *rank]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def test_resume_on_some_ranks_only(tmp_path: Path) -> None:
    path, out = stopped(tmp_path, "pvi")
    ended = some_with_resume(path, out)
    assert ended.code == 2, ended.err
    assert "rank 1 was started without --resume, rank 0 with" in ended.err


# --- the stamp


def test_a_stamp_and_its_bytes() -> None:
    marks = (Mark(1, b"b" * 16), Mark(2, b"l" * 16), Mark(3, b"s" * 16))
    whole = stamp.Stamp(b"j" * 32, b"r" * 16, b"p" * 16, b"w" * 32, b"f" * 16, *marks, b"m" * 16, b"y" * 16)
    data = whole.pack()
    assert len(data) == stamp.LENGTH
    assert stamp.Stamp.read(data + b"more") == whole
    for at in range(0, len(data), 7):
        with pytest.raises(ValueError, match="no stamp"):
            stamp.Stamp.read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ValueError, match="no stamp"):
        stamp.Stamp.read(data[:-1])
    folder = RunFolder("x", ["a", "b"], b"job")
    assert len({folder.stamp(party).party for party in (0, 1, 2**32 - 1)}) == 3
