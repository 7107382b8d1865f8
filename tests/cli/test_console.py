"""What a data holder asks: `fedkern status`, `ledger`, `audit`, `budget` and `plan`, on real private runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting")
import fedkern as package
from fedkern.cli.__main__ import main
from fedkern.jobs.locks import Locks
from support.command import Ended

PRIVATE = """
[job]
method = "pvi"
rounds = {rounds}
seed = 1
[data]
clients = "rows/*.csv"
response = "y"
standardise = "none"
[data.columns]
x = {{kind = "numeric"}}
[privacy]
epsilon = 2.0
delta = 1e-4
clip = 2.0
noise_multiplier = 3.0
{privacy}
[algorithm]
local_steps = 5
{algorithm}
"""
EXAMPLE, CLIENT = "sampling_rate = 0.1", 'unit = "client"\nepsilon = 50.0'
VERTICAL = """
[job]
method = "vertical"
rounds = 3
[data]
clients = "parts/*.csv"
server = "y.csv"
id = "id"
response = "y"
standardise = "none"
[data.columns]
a1 = {kind = "numeric"}
b1 = {kind = "numeric"}
[model]
family = "bernoulli"
[privacy]
epsilon = 5.0
delta = 1e-4
noise_multiplier = 4.0
"""


def private(folder: Path, *, privacy: str = EXAMPLE, rounds: int = 3, algorithm: str = "") -> Path:
    """The job file of a federation of two."""
    chance = np.random.default_rng(3)
    (folder / "rows").mkdir(parents=True)
    for name in ("ada", "bea"):
        lines = [f"{x:.3f},{int(chance.random() < 1 / (1 + np.exp(-x)))}" for x in chance.standard_normal(60)]
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["x,y", *lines, ""]))
    text = PRIVATE
    if "epsilon" in privacy:
        text = text.replace("epsilon = 2.0\n", "").replace("delta = 1e-4", "delta = 1e-2")
    path = folder / "job.toml"
    path.write_text(text.format(privacy=privacy, rounds=rounds, algorithm=algorithm))
    return path


def vertical(folder: Path) -> Path:
    chance = np.random.default_rng(3)
    (folder / "parts").mkdir(parents=True)
    for name in ("a", "b"):
        rows = [f"r{i},{x:.3f}" for i, x in enumerate(chance.standard_normal(40))]
        (folder / "parts" / f"{name}.csv").write_text("\n".join([f"id,{name}1", *rows, ""]))
    (folder / "y.csv").write_text("\n".join(["id,y", *(f"r{i},{chance.integers(2)}" for i in range(40)), ""]))
    path = folder / "job.toml"
    path.write_text(VERTICAL)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs: of a private job, of one that protects whole clients, of a vertical one, and of an open one."""
    root = tmp_path_factory.mktemp("console")
    jobs = {"example": private(root / "example"), "client": private(root / "client", privacy=CLIENT)}
    jobs["vertical"] = vertical(root / "vertical")
    jobs["open"] = private(root / "open")
    text = jobs["open"].read_text()
    jobs["open"].write_text(text[: text.index("[privacy]")] + text[text.index("[algorithm]") :])
    for name, job in jobs.items():
        os.environ.pop("FEDKERN_CLIENT_HOME", None)
        assert main(["run", str(job), "--out", str(root / name / "run"), "--quiet"]) == 0, name
    return {name: root / name / "run" for name in jobs}


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(made[name], tmp_path / name))


@pytest.mark.parametrize("name", ["example", "client", "vertical", "open"])
def test_an_untouched_run_is_as_it_says(name: str, made: dict[str, Path], fedkern: Callable[..., Ended]) -> None:
    ended = fedkern("audit", made[name])
    assert (ended.code, ended.err) == (0, "")
    assert "DIFFERENCE" not in ended.out
    assert ("nothing is claimed" if name == "open" else "every certificate is what its ledger and its budget say") in ended.out


def test_both_accountants_agree_on_what_was_claimed(made: dict[str, Path], fedkern: Callable[..., Ended]) -> None:
    for party in json.loads(fedkern("audit", made["example"], "--json").out)["parties"]:
        assert party["steps"] == party["charged"] == 15
        assert party["low"] <= party["claimed"] <= 1.01 * party["high"]


def digits(path: Path, many: int, seed: int) -> Iterator[int]:
    """Where some digits of a file stand."""
    places = [i for i, letter in enumerate(path.read_bytes()) if chr(letter).isdigit()]
    yield from random.Random(seed).sample(places, min(many, len(places)))


EDITED = [
    ("example", "client-ada/certificate.json"),
    ("example", "client-bea/budget.jsonl"),
    ("example", "ledger/ada.jsonl"),
    ("vertical", "client-a/certificate.json"),
    ("vertical", "client-b/budget.jsonl"),
    ("vertical", "ledger/a.jsonl"),
    ("client", "budget.jsonl"),
    ("client", "ledger/bea.jsonl"),
    ("open", "ledger/ada.jsonl"),
]


@pytest.mark.parametrize(("name", "file"), EDITED)
def test_one_digit_that_was_edited_is_found(
    name: str, file: str, copy: Callable[[str], Path], fedkern: Callable[..., Ended]
) -> None:
    folder = copy(name)
    path = folder / file
    before = path.read_bytes()
    for place in digits(path, 8, seed=len(file)):
        edited = bytearray(before)
        edited[place] = ord("0") + (before[place] - ord("0") + 1) % 10
        path.write_bytes(edited)
        ended = fedkern("audit", folder)
        line = bytes(edited[max(0, place - 30) : place + 10])
        assert ended.code == 2, f"{file}, byte {place}, {line!r}: not noticed"
        assert "DIFFERENCE" in ended.out or file.rpartition("/")[2] in ended.err
    path.write_bytes(before)
    assert fedkern("audit", folder).code == 0


@pytest.mark.parametrize("file", ["client-ada/budget.jsonl", "ledger/ada.jsonl"])
def test_a_last_line_that_is_gone_is_found(file: str, copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    folder = copy("example")
    lines = (folder / file).read_bytes().splitlines(keepends=True)
    (folder / file).write_bytes(b"".join(lines[:-1]))
    ended = fedkern("audit", folder)
    assert ended.code == 2
    assert file.rpartition("/")[2] in ended.out


def test_what_the_holder_has_adopted_is_named(copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    """The budget says nothing against the certificate: but that its lines count is the holder's word."""
    path = copy("example") / "client-ada" / "budget.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, b'{"adopt": %d}\n' % len(lines)]))
    ended = fedkern("audit", path.parents[1])
    assert ended.code == 0
    last = ended.out.splitlines()[-1]
    named = f"; the first {len(lines)} lines of {path} count because the holder has adopted them, and not because they fit"
    assert last == f"every certificate is what its ledger and its budget say{named}"
    shutil.rmtree(path.parent)
    last = fedkern("audit", path.parents[1]).out.splitlines()[-1]
    assert last.endswith("; that of ada is judged by its own numbers, for its budget is not here")


@pytest.mark.parametrize("again", [b'{"half', None])
def test_a_line_that_was_added_is_found(again: bytes | None, copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    path = copy("example") / "ledger" / "ada.jsonl"
    path.write_bytes(path.read_bytes() + (again or path.read_bytes().splitlines(keepends=True)[-1]))
    ended = fedkern("audit", path.parents[1])
    assert ended.code == 2
    assert "added after the run had ended" in ended.out


@pytest.mark.parametrize("file", ["client-ada/budget.jsonl", "client-ada/certificate.json", "ledger/ada.jsonl"])
def test_a_file_that_is_gone_is_found(file: str, copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    folder = copy("example")
    (folder / file).unlink()
    ended = fedkern("audit", folder)
    assert (ended.code, file.rpartition("/")[2] in ended.out) == (2, True), ended.out


def test_a_certificate_of_another_run_is_found(
    copy: Callable[[str], Path], fedkern: Callable[..., Ended], tmp_path: Path
) -> None:
    folder = copy("example")
    job = private(tmp_path / "other", privacy="sampling_rate = 0.05")
    assert fedkern("run", job, "--out", tmp_path / "other" / "run", "--quiet").code == 0
    shutil.copy(tmp_path / "other" / "run" / "client-ada" / "certificate.json", folder / "client-ada" / "certificate.json")
    ended = fedkern("audit", folder)
    assert ended.code == 2
    assert "ada: epsilon" in ended.out


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=1))


@pytest.mark.parametrize(
    ("key", "value"),
    [("noise_multiplier", 6.0), ("clip", 1.0), ("sampling_rate", 0.05), ("sampling", "full"), ("unit", "client")],
)
def test_a_certificate_is_held_against_the_job_where_the_client_s_folder_is_elsewhere(
    key: str, value: object, copy: Callable[[str], Path], fedkern: Callable[..., Ended]
) -> None:
    """A lie that is consistent in itself: of noise 6 with the epsilon of noise 6."""
    folder = copy("example")
    shutil.rmtree(folder / "client-ada")
    assert fedkern("audit", folder).code == 0
    lie = {key: value, **({"epsilon": 0.1818, "claim": "(0.1818, 0.0001)-differential"} if key == "noise_multiplier" else {})}
    edited(folder / "summary.json", lambda summary: summary["privacy"]["ada"].update(lie))
    ended = fedkern("audit", folder)
    assert ended.code == 2
    assert f"{key} of its certificate, by job.json" in ended.out


def test_a_policy_that_there_was_not_and_a_claim_that_is_none(copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    folder = copy("example")
    for path, own in ((folder / "summary.json", ("privacy", "ada")), (folder / "client-ada" / "certificate.json", ())):

        def change(content: dict[str, Any], own: tuple[str, ...] = own) -> None:
            for key in own:
                content = content[key]
            content["caps"] = "the holder's policy and the job's"

        edited(path, change)
    assert "ada: summary.json: caps" in fedkern("audit", folder).out
    folder = Path(shutil.copytree(copy("vertical"), folder.parent / "again"))
    edited(folder / "summary.json", lambda summary: summary.update(claim="(0.1, 1e-9)-differential privacy"))
    assert "claim of summary.json" in fedkern("audit", folder).out


def started(job: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "fedkern", "run", str(job), "--out", str(out), "--quiet", *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_run_that_goes_on_is_killed_and_resumed(tmp_path: Path, fedkern: Callable[..., Ended]) -> None:
    job, out = private(tmp_path / "long", rounds=400, algorithm="checkpoint_every = 0.05"), tmp_path / "run"
    job.write_text(job.read_text().replace("epsilon = 2.0", "epsilon = 60.0"))
    with started(job, out) as running:
        until = time.monotonic() + 60
        while not list(out.glob("**/*.ckpt")) and time.monotonic() < until:
            time.sleep(0.02)
        running.send_signal(signal.SIGSTOP)  # on a busy machine it might be at its end before `status` has looked
        status = fedkern("status", out)
        assert status.code == 0
        assert status.out.startswith("running, round ")
        running.kill()
    status = fedkern("status", out)
    assert status.out.startswith("interrupted, round ")
    assert "--resume goes on from it" in status.out
    assert fedkern("audit", out).code == 0
    rounds = int(status.out.removeprefix("interrupted, round ").split()[0]) + 20
    with started(job, out, "--resume", "--set", f"job.rounds={rounds}") as running:
        assert running.wait(timeout=120) == 0
    status = fedkern("status", out)
    assert status.out.startswith(f"finished, round {rounds} of {rounds}")
    ended = fedkern("audit", out)
    assert ended.code == 0, ended.out


def test_who_has_not_answered_is_waited_for(copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    folder = copy("example")
    (folder / "summary.json").unlink()
    ledger = folder / "ledger" / "bea.jsonl"
    lines, ago = ledger.read_text().splitlines(keepends=True), ledger.stat().st_mtime - 1.0
    ledger.write_text("".join(lines[:-1]))
    os.utime(ledger, (ago, ago))
    locks = Locks()
    locks.take(folder, "the server")
    try:
        status = fedkern("status", folder)
    finally:
        locks.release()
    assert status.code == 0
    assert status.out.startswith("running, round 3 of 3")
    said = {line.split()[0]: line for line in status.out.splitlines() if line.startswith(("ada", "bea"))}
    assert "waits" in said["ada"]
    assert "is waited for" in said["bea"]


def test_the_ledger_in_words_and_line_by_line(made: dict[str, Path], fedkern: Callable[..., Ended]) -> None:
    lines = json.loads(fedkern("ledger", made["example"], "--json").out)
    logged = [json.loads(line) for line in (made["example"] / "ledger" / "ada.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["bytes"], line["charge"]) for line in lines if line["who"] == "ada"] == [
        (line["kind"], line["bytes"], line["charge"]) for line in logged
    ]
    table = fedkern("ledger", made["example"]).out
    (deltas,) = [line for line in table.splitlines() if line.startswith("ada") and "SiteDelta" in line]
    assert deltas.split()[:6] == ["ada", "server", "SiteDelta", "3", str(3 * logged[2]["bytes"]), "0"]
    assert "dh (2)" in deltas
    assert fedkern("ledger", made["example"] / "client-ada").code == 0


def test_what_may_still_be_spent(tmp_path: Path, fedkern: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert fedkern("budget").code == 2
    job = private(tmp_path / "job", rounds=2)
    rows = tmp_path / "job" / "rows" / "ada.csv"
    policy = tmp_path / "home" / ".fedkern" / "policy.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text(f'[data.ada]\npaths = ["{rows}"]\nepsilon = 1.0\ndelta = 1e-4\nopen = true\n')
    assert fedkern("run", job, "--out", tmp_path / "one", "--quiet").code == 0
    text = fedkern("budget", rows).out
    assert text == fedkern("budget").out
    (one,) = json.loads(fedkern("budget", "--json").out)
    assert (one["data"], one["total"]["cap"], one["jobs"][0]["steps"]) == ("ada", 1.0, 10)
    assert f"{one['left']} more steps" in text
    assert "poisson, rate 0.1, noise 3" in text

    # As many steps as are said to be left may be run, and not one update more.
    left = one["left"]
    assert 0 < left < 100
    assert not one["more"]
    full = ("--set", "job.rounds=1000", "--set", "algorithm.local_steps=1", "--set", "algorithm.schedule=sequential")
    assert fedkern("run", job, "--out", tmp_path / "two", "--quiet", *full).code == 0
    (after,) = json.loads(fedkern("budget", rows, "--json").out)
    assert after["left"] == 0
    assert sum(job["steps"] for job in after["jobs"]) == 10 + left
    assert after["total"]["epsilon"] <= 1.0


def test_a_jobs_epsilon_is_told_at_its_own_delta(
    tmp_path: Path, fedkern: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = private(tmp_path / "job", rounds=2)
    assert fedkern("run", job, "--out", tmp_path / "one", "--quiet").code == 0
    home = tmp_path / "one" / "client-ada"
    claim = json.loads((home / "certificate.json").read_text())
    # Without a policy the job's own delta is that of the sum, too.
    (alone,) = json.loads(fedkern("budget", home, "--json").out)
    assert alone["total"]["delta"] == alone["jobs"][0]["delta"] == claim["delta"] == 1e-4
    assert alone["total"]["epsilon"] == alone["jobs"][0]["epsilon"] == pytest.approx(claim["epsilon"], rel=1e-12)
    assert "\n  delta    the job's\n" in fedkern("budget", home).out
    # A policy has a delta of its own, at which its cap is compared; the job's claim stands beside it as the job has it.
    (home / "policy.toml").write_text("[data.ada]\nepsilon = 9.0\ndelta = 1e-7\n")
    (bound,) = json.loads(fedkern("budget", home, "--json").out)
    assert (bound["total"]["delta"], bound["jobs"][0]["delta"]) == (1e-7, 1e-4)
    assert bound["jobs"][0]["epsilon"] == alone["jobs"][0]["epsilon"] < bound["total"]["epsilon"]
    text = fedkern("budget", home).out
    assert "of 9 at delta = 1e-07" in text
    assert "\n  delta    the policy's; that of a job stands beside the job's epsilon\n" in text
    assert text.splitlines()[-1].split()[-2:] == [f"{claim['epsilon']:.4g}", "0.0001"]


def test_the_budget_of_a_policy_that_a_site_file_names(
    tmp_path: Path, fedkern: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = private(tmp_path / "site", rounds=2)
    rows = job.parent / "rows" / "ada.csv"
    (job.parent / "site.toml").write_text('client = "ada"\npolicy = "policy.toml"\n')
    (job.parent / "policy.toml").write_text('[data.stroke]\npaths = ["rows/ada.csv"]\nepsilon = 1.0\ndelta = 1e-4\nopen = true\n')
    monkeypatch.chdir(job.parent)
    assert "stroke: all 0 jobs on these data: epsilon = 0 of 1" in fedkern("budget", rows).out
    assert fedkern("run", job, "--out", tmp_path / "one", "--quiet").code == 0
    text = fedkern("budget", "rows/ada.csv").out
    assert "stroke: all 1 jobs on these data: epsilon = " in text
    assert "more steps like the last job's" in text
    assert text == fedkern("budget").out
    monkeypatch.chdir(tmp_path)  # elsewhere the site file, or the folder with the budget, has to be given
    assert fedkern("budget", rows).code == 2
    for given in ((rows, "--site", job.parent / "site.toml"), ("--site", job.parent / "site.toml"), (job.parent,)):
        monkeypatch.setenv("FEDKERN_SITE", "")  # and put back what --site sets
        assert fedkern("budget", *given).out == text
    ended = fedkern("budget", "--site", "nowhere.toml")
    assert (ended.code, ended.err) == (2, "fedkern: --site nowhere.toml: no such file or folder; correct it\n")


def test_a_plan_says_what_the_job_would_spend(tmp_path: Path, fedkern: Callable[..., Ended], made: dict[str, Path]) -> None:
    job = private(tmp_path / "job")
    ended = fedkern("plan", job, "--epsilon", "0.3,2", "--noise", "2,3")
    assert (ended.code, ended.err) == (0, "")
    assert not list(tmp_path.glob("**/budget.jsonl"))  # nothing is spent
    rows = [line.split() for line in ended.out.splitlines()[-2:]]
    assert [row[0] for row in rows] == ["2", "3"]
    certificate = json.loads((made["example"] / "client-ada" / "certificate.json").read_text())
    assert float(rows[1][3]) == pytest.approx(certificate["epsilon"], rel=1e-3)
    assert rows[1][-1] == "3"
    assert float(rows[1][2]) == pytest.approx(3 * np.sqrt(np.pi / 2) * 1.5, rel=1e-2)  # of four numbers: sqrt(2) G(5/2) / G(2)
    assert int(rows[0][-2]) < 3


def test_a_plan_of_a_job_that_only_its_budget_ends(fedkern: Callable[..., Ended]) -> None:
    """As the job of `fedkern demo`."""
    demo = Path(package.__file__).parent / "demo.toml"
    ended = fedkern("plan", demo, "--epsilon", "1,4", "--noise", "3")
    assert (ended.code, ended.err) == (0, "")
    assert "only the budget ends the job" in ended.out
    assert ended.out.splitlines()[-1].split()[-1] == "90"  # updates of each client


@pytest.mark.nightly  # by day privacy/test_accountant.py calibrates
def test_a_plan_that_calibrates(tmp_path: Path, fedkern: Callable[..., Ended]) -> None:
    job = private(tmp_path / "job", privacy="sampling_rate = 0.1\ncalibrate = true")
    job.write_text(job.read_text().replace("noise_multiplier = 3.0\n", ""))
    ended = fedkern("plan", job, "--epsilon", "2")
    assert ended.code == 0, ended.err
    *_, spent, updates = ended.out.splitlines()[-1].split()
    assert 1.98 <= float(spent) <= 2
    assert updates == "3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "job.toml", "--noise", "x"), "--noise x: wanted numbers above 0"),
        (("plan", "job.toml", "--noise", "1e9"), "noise_multiplier must be in"),
        (("plan", "job.toml", "--epsilon", "-1"), "--epsilon -1: wanted numbers above 0"),
        (("status", "nowhere"), "nowhere: holds no run of fedkern"),
        (("audit", "."), "holds no run of fedkern"),
        (("ledger", "job.toml"), "holds no run of fedkern"),
        (("budget", "nowhere.csv"), "nowhere.csv: is not there"),
        (("budget", "rows/ada.csv"), "rows/ada.csv: no policy names it"),
        (("budget", "run"), "run: has no account. These lie with policies"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path, fedkern: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    private(tmp_path / "job")
    monkeypatch.chdir(tmp_path / "job")
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("run").mkdir()
    Path("run", "job.json").write_text("{}")
    ended = fedkern(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "damage", ["job.json", "summary.json", "client-ada/job.json", "client-ada/budget.jsonl", "ledger/ada.jsonl"]
)
def test_a_file_that_is_no_longer_one_is_named(damage: str, copy: Callable[[str], Path], fedkern: Callable[..., Ended]) -> None:
    folder = copy("example")
    (folder / damage).write_bytes(b'{"half')
    ended = fedkern("audit", folder)
    assert ended.code == 2
    assert damage.rpartition("/")[2] in ended.out + ended.err
    assert "Traceback" not in ended.err


def test_a_client_s_own_folder_and_ledger_are_enough_for_its_part(
    made: dict[str, Path], tmp_path: Path, fedkern: Callable[..., Ended]
) -> None:
    own = tmp_path / "run" / "client-ada"
    shutil.copytree(made["example"] / "client-ada", own)
    assert "ada.jsonl is gone" in fedkern("audit", own).out
    (own.parent / "ledger").mkdir()
    shutil.copy(made["example"] / "ledger" / "ada.jsonl", own.parent / "ledger" / "ada.jsonl")
    ended = fedkern("audit", own)
    assert ended.code == 0, ended.out + ended.err
    assert "ada" in ended.out
    assert "the server's folder is not here" in ended.out
