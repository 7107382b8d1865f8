"""A data holder's policy is not walked round by a job file: every method and unit asks it; others learn only that it refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedkern as package
from fedkern.api import perform
from fedkern.errors import HolderError, LostPeer
from fedkern.jobs import holders
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import interrupted
from support.command import forking
from support.two_clients import JOBS, TwoClients

CAP = "0.7312"  # no other number has these digits


class Place(TwoClients):
    """And with homes of the holders."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.home, self.homes = root / "home", root / "homes"
        self.home.mkdir()
        self.homes.mkdir()

    def policy(self, path: Path | None = None, head: str = "", table: str = "", data: str = "a") -> Path:
        path = path or self.home / ".fedkern" / "policy.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        paths = f"paths = [{str(self.root / 'data' / 'a.csv')!r}]\n" if data == "a" else ""
        path.write_text(f"{head}\n[data.{data}]\nepsilon = {CAP}\ndelta = 1.7e-4\n{paths}{table}\n")
        return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("FEDKERN_REQUIRE_POLICY", raising=False)
    return made


def refuses(ended: Any, place: Place, asked: str) -> None:
    """Code 2 with a sentence that says what to ask for, and nothing of what the holder's files say."""
    assert ended.code == 2, ended.err
    assert "client 'a': refused by the holder's policy: " in ended.err
    assert "ask the holder" in ended.err
    assert asked in ended.err
    assert ended.err.count("\n") == 1
    said = ended.out + ended.err
    for secret in (CAP, "1.7e-4", str(place.home), str(place.homes), "policy.toml"):
        assert secret not in said
    assert not [*place.root.rglob("summary.json"), *place.root.rglob("ledger")]


@pytest.mark.parametrize("kind", [kind for kind in JOBS if "private" not in kind and "level" not in kind])
def test_a_job_without_privacy(fedkern: Any, place: Place, kind: str) -> None:
    path = place.job(kind)
    policy = place.policy()
    for command in (["check", path], ["run", path, "--out", "out"]):
        refuses(fedkern(*command), place, "open = true")
    assert str(policy) in (place.root / "out" / "client-a" / "holder.txt").read_text(), "the holder finds the reason"


def test_another_unit(fedkern: Any, place: Place) -> None:
    place.policy()
    for command in ("check", "run"):
        refuses(fedkern(command, place.job("pvi, client-level")), place, "client_level = true")


@pytest.mark.parametrize("kind", JOBS)
def test_another_name_for_the_client(fedkern: Any, place: Place, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(place.homes))
    for name in "ab":
        place.policy(place.homes / name / "policy.toml", table="open = true\nclient_level = true", data=name)
    ended = fedkern("run", place.job(kind), "--out", "out", "--quiet", "--set", 'data.names=["zz", "b"]')
    assert ended.code == 2
    assert "client 'zz': refused by the holder's policy: its data belong to a client of another name; ask the holder" in ended.err
    ended = fedkern("run", place.job(kind), "--out", "out2", "--quiet", "--set", 'data.names=["b", "a"]')
    assert ended.code == 2
    assert "client 'b': refused by the holder's policy" in ended.err


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("client_home", [None, "", "nowhere"])
def test_no_client_home_on_a_rank(
    fedkern: Any, place: Place, kind: str, client_home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if client_home is not None:
        monkeypatch.setenv("FEDKERN_CLIENT_HOME", client_home)
    monkeypatch.setenv("FEDKERN_REQUIRE_POLICY", "1")
    refuses(fedkern("run", place.job(kind), "--out", "out"), place, "name them in one (a table [data.NAME]")
    monkeypatch.delenv("FEDKERN_REQUIRE_POLICY")
    place.policy(place.home / ".fedkern" / "policy.toml", head="require = true", data="else")
    refuses(fedkern("run", place.job(kind), "--out", "out"), place, "name them in one (a table [data.NAME]")


@pytest.mark.parametrize("kind", [kind for kind in JOBS if kind != "sigma"])
def test_what_the_policy_allows_runs(fedkern: Any, place: Place, kind: str) -> None:
    """And without any policy, as ever."""
    path = place.job(kind)
    assert fedkern("run", path, "--out", "none", "--quiet").code == 0
    assert not [*place.root.rglob("holder.txt")]
    policy = place.policy(table="open = true\nclient_level = true")
    ended = fedkern("run", path, "--out", "out", "--quiet")
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in (policy.parent / "budget.jsonl").read_text().splitlines()]
    if "private" in kind:
        assert "the account" not in ended.err
        assert "client 'a': no earlier job has an account of these data" in ended.err
        assert "client 'b'" not in ended.err
        assert sum(line.get("steps", 0) for line in lines) > 0
    else:
        assert [line["unaccounted"] for line in lines] == ["client-level" if "client" in kind else "open"]
        assert ended.err == ""
    if "client" in kind:
        (caps,) = {content["caps"] for content in json.loads(Path("out/summary.json").read_text())["privacy"].values()}
        assert caps.startswith("the job's alone: the server has no policy.toml")
    account = json.loads((place.root / "out" / "client-a" / "account.json").read_text())
    assert account["budget"] == str(policy.parent / "budget.jsonl")


def test_the_plan_of_a_check_is_refused_too(fedkern: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the question the job runs."""
    place.policy()
    path = place.job("pvi, open")
    assert fedkern("check", path).code == 2
    monkeypatch.setattr(holders.Binding, "refusal", lambda *arguments: None)
    assert fedkern("check", path).code == 0
    assert fedkern("run", path, "--out", "out", "--quiet").code == 0


@pytest.mark.parametrize("kind", ["pvi, open", "pvi, private", "vertical, open", "vertical, private"])
def test_the_servers_own_file_has_a_holder_too(fedkern: Any, place: Place, kind: str) -> None:
    path = place.job(kind)
    store = place.root / "store"
    store.mkdir()
    name = "test" if "pvi" in kind else "server"
    source = place.root / ("server.csv" if name == "server" else "data/b.csv")
    (store / "rows.csv").write_text(source.read_text())
    (place.root / "link.csv").symlink_to(store / "rows.csv")
    arguments = ("run", path, "--quiet", "--set", f"data.{name}=link.csv")
    assert fedkern(*arguments, "--out", "one").code == 0
    policy = place.policy(store / "fedkern-policy.toml", data="rows")
    ended = fedkern(*arguments, "--out", "two")
    assert ended.code == 2
    assert ended.err.startswith("fedkern: the server: refused by the holder's policy: what leaves this job has no noise")
    place.policy(policy, data="rows", table="open = true")
    assert fedkern(*arguments, "--out", "three").code == 0


def test_a_faulty_policy_is_shown_to_its_holder_alone(fedkern: Any, place: Place) -> None:
    policy = place.policy(table="opne = true")
    path = place.job("pvi, private")
    refuses(fedkern("run", path, "--out", "out"), place, "one of its policy files cannot be used; ask the holder to mend it")
    assert "unknown key data.a.opne; did you mean data.a.open?" in (place.root / "out" / "client-a" / "holder.txt").read_text()
    shown = fedkern("check", path, "--local", place.root / "data" / "a.csv").out
    assert "unknown key data.a.opne; did you mean data.a.open?" in shown
    with pytest.raises(HolderError) as caught:
        package.run(path)
    assert str(policy) in caught.value.detail


def test_the_account_is_kept_by_the_data(fedkern: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name, another folder, another environment: one budget. What it says of other jobs is the holder's alone."""
    place.policy(head="least_noise_multiplier = 2")
    steps = []
    for k, name in enumerate(("a", "zz", "y y")):
        if k == 1:
            monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(place.homes))
        names = f'data.names=["{name}", "b"]'
        ended = fedkern("run", place.job("pvi, private"), "--out", f"out{k}", "--set", names, "--set", f"job.rounds={1 + 3 * k}")
        assert ended.code == 0
        summary = json.loads((place.root / f"out{k}" / "summary.json").read_text())
        steps.append(summary["privacy"][name]["steps"])
        assert "policy and the job's" in summary["privacy"][name]["caps"]
        assert "the holder has no policy.toml" in summary["privacy"]["b"]["caps"]
        own = json.loads((place.root / f"out{k}" / f"client-{name.replace(' ', '_')}" / "account.json").read_text())
        assert own["new"] == (k == 0) == ("no earlier job has an account" in ended.err)
        assert own["total"]["cap"] == float(CAP)
        assert f"client {name!r}: all {own['total']['jobs']} jobs on these data: epsilon = " in ended.err
        public = [p for p in (place.root / f"out{k}").rglob("*") if p.is_file() and "client-" not in str(p) and p.suffix != ".nc"]
        for path in public:
            assert not [word for word in (CAP, "total", "no earlier job", str(place.home)) if word in path.read_text()], path
        certificate = (place.root / f"out{k}" / f"client-{name.replace(' ', '_')}" / "certificate.json").read_text()
        assert "total" not in certificate
        assert CAP not in ended.out
    assert steps == [3, 6, 0], "what one job leaves is the next one's"


def test_what_check_tells_the_holder(fedkern: Any, place: Place) -> None:
    path, own = place.job("pvi, private"), place.root / "data" / "a.csv"
    said = fedkern("check", path, "--local", own).out
    assert "policy  none names this file" in said
    assert "this job, as client 'a', is allowed" in said
    policy = place.policy(table="paths = ['/nowhere/a.csv']".replace("paths", "fingerprint = 'x'\n#"))
    fedkern("run", path, "--out", "out", "--quiet")
    said = fedkern("check", path, "--local", own).out
    assert f"policy  {policy}, [data.a]: epsilon {CAP} at delta 0.00017; noise secure; open jobs no, client-level jobs no" in said
    assert f"budget  {policy.parent / 'budget.jsonl'}: all 1 jobs on these data: epsilon = " in said
    said = fedkern("check", place.job("pvi, open"), "--local", own).out
    assert f"is refused: {policy}: does not allow the job: open is not true for [data.a]" in said


def test_what_was_said_to_the_holder_is_not_said_again_when_a_run_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = place.job("pvi, private"), place.root / "out"
    place.policy()
    told, account = [], []
    for resume, stop in ((False, 1), (True, 1), (True, 0)):
        if stop:
            with pytest.raises(LostPeer):
                interrupted.run(path, out, "job.rounds=4", resume=resume, stop=stop)
        else:
            interrupted.run(path, out, "job.rounds=4", resume=resume)
        told.append(capsys.readouterr().err.count("no earlier job has an account"))
        account.append(json.loads((out / "client-a" / "account.json").read_text())["new"])
    assert told == [1, 0, 0]
    assert account == [True] * 3


def own_answer(fedkern: Any, place: Place, path: Path, *sets: str) -> str:
    """What `check --local` says of the job to client a's holder."""
    more = [word for one in sets for word in ("--set", one)]
    said = fedkern("check", path, "--local", place.root / "data" / "a.csv", *more).out
    (line,) = [line.strip() for line in said.splitlines() if "this job, as client 'a', is" in line]
    return line.partition(" is ")[2]


def test_check_tells_the_holder_what_still_fits(fedkern: Any, place: Place) -> None:
    """As the run will find it: the whole job, some of its updates, none."""
    path = place.job("pvi, private")
    place.policy()
    assert own_answer(fedkern, place, path) == "allowed"
    some = r"allowed, and what is left of the budget pays for (\d+) of the 9 updates"
    some = re.fullmatch(some, own_answer(fedkern, place, path, "job.rounds=9"))
    assert some is not None
    assert fedkern("run", path, "--out", "most", "--quiet", "--set", "job.rounds=9").code == 0
    assert json.loads(Path("most/summary.json").read_text())["clients"]["a"]["updates"] == int(some[1]) > 0
    none = r"allowed, but not one update fits what is left of the budget: the first takes 3 steps, and [012] are left"
    assert re.fullmatch(none, own_answer(fedkern, place, path))
    assert fedkern("run", path, "--out", "none", "--quiet").code == 0
    assert json.loads(Path("none/summary.json").read_text())["clients"]["a"]["updates"] == 0
    place.policy(head="least_noise_multiplier = 73.12")
    assert "refused: " in (said := own_answer(fedkern, place, path))
    assert said.endswith("does not allow privacy.noise_multiplier = 3, the smallest allowed: 73.12")


def test_check_tells_the_holder_of_columns_what_still_fits(fedkern: Any, place: Place) -> None:
    path = place.job("vertical, private")
    place.policy()
    assert own_answer(fedkern, place, path) == "allowed"
    little = "privacy.noise_multiplier=9"
    none = r"allowed, but not one update fits what is left of the budget: the first takes 3 steps, and ([012]) are left"
    assert (found := re.fullmatch(none, own_answer(fedkern, place, path, little))) is not None
    assert fedkern("run", path, "--out", "little", "--quiet", "--set", little).code == 0
    summary = json.loads(Path("little/summary.json").read_text())
    assert summary["stop"] == "budget"
    assert summary["privacy"]["a"]["steps"] == int(found[1])  # the first release, before any round


def test_a_file_under_two_names_has_one_budget(fedkern: Any, place: Place) -> None:
    """A job may list one file twice; what both clients spend is added."""
    policy = place.policy()
    sets = ("--set", 'data.clients=["data/a.csv", "data/a.csv"]', "--set", 'data.names=["a", "again"]', "--set", "job.rounds=9")
    ended = fedkern("run", place.job("pvi, private"), "--out", "out", "--quiet", *sets)
    assert ended.code == 0
    steps = {name: c["steps"] for name, c in json.loads(Path("out/summary.json").read_text())["privacy"].items()}
    assert sum(steps.values()) == 9
    charges = [json.loads(line) for line in (policy.parent / "budget.jsonl").read_text().splitlines()]
    assert sum(charge.get("steps", 0) for charge in charges) == 9


def test_what_is_no_path(fedkern: Any, place: Place) -> None:
    sets = ("--set", 'data.clients=["data/\\u0000.csv", "data/b.csv"]', "--set", 'data.names=["a", "b"]')
    ended = fedkern("run", place.job("pvi, open"), "--out", "out", *sets)
    assert (ended.code, "is no path" in ended.err) == (2, True)


def test_a_damaged_budget_is_the_holders_affair(fedkern: Any, place: Place) -> None:
    policy = place.policy()
    (policy.parent / "budget.jsonl").write_text('{"job": "secret-job", "steps": 73}\n')
    ended = fedkern("run", place.job("pvi, private"), "--out", "out", "--quiet")
    assert ended.code == 2
    assert "client 'a': the account of its data cannot be used" in ended.err
    assert str(policy.parent) in ended.err
    config, folder = load(place.root / "job.toml")
    with pytest.raises(HolderError) as caught:  # where others hear: as at a rank of several
        perform(InProcess(size=2), config, folder, Output(place.root / "two", quiet=True))
    assert str(caught.value) == f"{caught.value.told}; why: {place.root / 'two' / 'client-a' / 'holder.txt'}"
    assert "line 1 has no chain" in (place.root / "two" / "client-a" / "holder.txt").read_text()


def rank(place: Place, n: int, home: Path, *arguments: str | Path) -> list[str]:
    """One rank of an mpirun, whose words go to files of its own."""
    words = " ".join(f"'{word}'" for word in (*forking(), "-m", "fedkern.cli", *arguments, "--mpi"))
    return ["-n", "1", "env", f"HOME={home}", "sh", "-c", f"exec {words} >'{place.root}/{n}.out' 2>'{place.root}/{n}.err'"]


def over_mpi(place: Place, homes: list[Path], *arguments: str | Path) -> tuple[int, list[str]]:
    """The exit code, and what each rank said."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe"]
    for n, home in enumerate(homes):
        command += [*([":"] if n else []), *rank(place, n, home, *arguments)]
    environment = {**os.environ, **allowed, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=place.root)
    said = [(place.root / f"{n}.out").read_text() + (place.root / f"{n}.err").read_text() for n in range(len(homes))]
    return done.returncode, said


def test_over_mpi_others_read_only_that_it_refused(place: Place) -> None:
    place.policy()
    (place.root / "nobody").mkdir()
    homes = [place.root / "nobody", place.home, place.root / "nobody"]
    code, said = over_mpi(place, homes, "run", place.job("pvi, open"), "--out", place.root / "out")
    assert code == 2
    assert said[0].splitlines() == ["fedkern: rank 1: client 'a': refused by the holder's policy"]
    assert "ask the holder to allow open jobs on these data (open = true)" in said[1]
    assert said[2] == ""
    assert not [text for text in said for secret in (CAP, str(place.home), "policy.toml") if secret in text]
    assert CAP not in (place.root / "out" / "client-a" / "holder.txt").read_text()


def test_over_mpi_numbers_of_other_jobs_stay_in_the_folder(place: Place) -> None:
    place.policy()
    (place.root / "nobody").mkdir()
    homes = [place.root / "nobody", place.home, place.root / "nobody"]
    code, said = over_mpi(place, homes, "run", place.job("pvi, private"), "--out", place.root / "out")
    assert code == 0
    assert said[1:] == ["", ""]  # whether there was a job before is the holder's own, too
    assert not [text for text in said for secret in (CAP, str(place.home), "jobs on these data: epsilon") if secret in text]
    total = json.loads((place.root / "out" / "client-a" / "account.json").read_text())["total"]
    assert (total["jobs"], total["cap"]) == (1, float(CAP))
