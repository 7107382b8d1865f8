"""The holder's budget: refusal exactly at the limit, caps that outlive the job, and a ledger that no crash can cheat."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from dataclasses import replace

import pytest

from fedkern.errors import JobError
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Decision, Holder
from fedkern.jobs.holding.policy import read_policies
from fedkern.privacy.accountant import Mechanism, calibrate, epsilon, neighbours_of
from fedkern.privacy.certificate import certificate, find_problem, format_certificate
from support.command import forking

Charge = namedtuple("Charge", "steps round")
M = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)
CAP, DELTA = 0.8, 1e-5
ALLOWED = M.max_steps(CAP, DELTA)


def account(home, data="survey"):
    """Of a holder whose policy, if it has one, lies in the same folder as its budget."""
    path = home / "policy.toml"
    policies = read_policies(path).policies if path.exists() else ()
    return Account(home, data, tuple(policy for policy in policies if policy.data == data))


def holder(home, *, job="j1", data="survey", mechanism=M, cap=CAP, delta=DELTA, **more):
    return Holder("clinic-b", account(home, data), job=job, mechanism=mechanism, epsilon=cap, delta=delta, **more)


def policy(home, *, cap=1.2, delta=DELTA, data="survey", head="", tail=""):
    home.mkdir(parents=True, exist_ok=True)
    (home / "policy.toml").write_text(f"{head}\n[data.{data}]\nepsilon = {cap}\ndelta = {delta}\n{tail}")


def lines(home):
    return [json.loads(line) for line in (home / "budget.jsonl").read_text().splitlines()]


def charged(home):
    return sum(line.get("steps", 0) for line in lines(home))


# --- the limit


def test_refusal_is_exactly_at_the_limit(tmp_path):
    h = holder(tmp_path)
    whole, rest = divmod(ALLOWED, 10)
    for round in range(whole):
        assert h.charge(Charge(10, round)) == Decision(10, 10 * round, ALLOWED)
    before = (tmp_path / "budget.jsonl").read_bytes()
    assert h.charge(Charge(rest + 1, whole)) == Decision(0, 10 * whole, ALLOWED)
    assert (tmp_path / "budget.jsonl").read_bytes() == before  # a refusal changes nothing
    if rest:
        assert h.charge(Charge(rest, whole)).granted == rest
    assert h.charge(Charge(1, whole + 1)).granted == 0
    assert M.epsilon(h.spent, DELTA) <= CAP < M.epsilon(h.spent + 1, DELTA)


def test_a_planned_number_of_steps_limits_nothing(tmp_path):
    """It only saves a search: whoever asks for more, as after a crash, gets what the cap pays for."""
    h = holder(tmp_path, planned=20)
    assert (h.charge(Charge(20, 0)).granted, h.allowed) == (20, 20)
    assert (h.charge(Charge(10, 1)).granted, h.allowed) == (10, ALLOWED)
    assert h.charge(Charge(ALLOWED - 29, 2)) == Decision(0, 30, ALLOWED)
    assert holder(tmp_path / "other", planned=ALLOWED + 1).allowed == ALLOWED


def test_the_budget_is_tested_before_the_step_not_after(tmp_path):
    """Negative control: a test after the update would let the last one through."""
    h, spent = holder(tmp_path), 0
    while h.charge(Charge(10, spent)).granted:
        spent += 10
    assert M.epsilon(spent, DELTA) <= CAP
    assert M.epsilon(spent + 10, DELTA) > CAP


def test_a_last_update_may_be_shortened(tmp_path):
    h = holder(tmp_path, last_update="shorten")
    assert h.charge(Charge(ALLOWED - 3, 0)).granted == ALLOWED - 3
    assert h.charge(Charge(25, 1)) == Decision(3, ALLOWED - 3, ALLOWED)
    assert h.charge(Charge(25, 2)).granted == 0
    assert charged(tmp_path) == ALLOWED


@pytest.mark.parametrize("steps", [0, -5, 2.0, True])
def test_a_charge_is_a_positive_whole_number(tmp_path, steps):
    with pytest.raises(ValueError, match="positive whole number of steps"):
        holder(tmp_path).charge(Charge(steps, 0))


def test_no_cap_in_an_experiment_with_keyed_noise(tmp_path):
    keyed = Mechanism.from_dict(M.as_dict() | {"secure": False})
    h = holder(tmp_path, mechanism=keyed, cap=math.inf)
    assert h.charge(Charge(10**6, 0)).granted == 10**6
    assert h.certificate()["epsilon"] == "inf"


def counts_of(cases):
    bare = Mechanism(sampling="counts", clip=float(cases), dimension=6, unit="case")
    return replace(bare, noise_multiplier=calibrate(bare, 1.0, 0.0, 1))


def test_a_table_for_more_cases_lifts_the_tables_before_it(tmp_path):
    """Epsilon 1 for one case, and 1 for three: 4 for who has three, which a cap of 2 doesn't allow, in either order."""
    for first, then in ((1, 3), (3, 1)):
        home = tmp_path / str(first)
        policy(home, cap=2.01)
        same = {"mechanism": counts_of(first), "cap": 1.0, "delta": 0.0}
        assert holder(home, job="table-1", **same).charge(Charge(1, 0)).granted == 1
        before = lines(home)
        later = holder(home, job="table-2", **same | {"mechanism": counts_of(then)})
        assert later.charge(Charge(1, 0)).granted == 0
        assert [line for line in lines(home)[len(before) :] if "steps" in line] == []
        again = holder(home, job="table-3", **same)
        assert again.charge(Charge(1, 0)).granted == 1
        assert again.total().epsilon == pytest.approx(2, abs=1e-3)


def test_the_sum_of_tables_is_that_of_who_has_the_most_cases(tmp_path):
    for n, cases in enumerate((1, 3)):
        one = holder(tmp_path, job=f"table-{n}", mechanism=counts_of(cases), cap=1.0, delta=0.0)
        assert one.charge(Charge(1, 0)).granted == 1
        assert one.certificate()["cases_per_person"] == cases
        assert one.certificate()["epsilon"] == pytest.approx(1, abs=1e-3)
    total = one.total()
    assert total.epsilon == pytest.approx(4, abs=1e-3)
    assert total.neighbours == "add or remove one person with at most 3 cases"


@pytest.mark.parametrize("bound", [False, True])
def test_an_account_of_rows_takes_no_table(tmp_path, bound):
    """Nor the other way round: no two data sets are neighbours for both, so that there is no sum."""
    if bound:
        policy(tmp_path)
    assert holder(tmp_path, job="rows").charge(Charge(3, 0)).granted == 3
    with pytest.raises(JobError, match="one data set cannot have charges by example and by case in one account"):
        holder(tmp_path, job="table-1", mechanism=counts_of(1), cap=1.0, delta=0.0)
    assert charged(tmp_path) == 3
    assert holder(tmp_path, job="later").total().epsilon == pytest.approx(M.epsilon(3, DELTA))


def test_a_certificate_of_several_tables_is_for_the_most_cases():
    made = certificate(counts_of(1), steps=1, epsilon_cap=9.0, delta=0.0, policy=True, before=((counts_of(3), 1),))
    assert (made["cases_per_person"], made["neighbours"]) == (3, "add or remove one person with at most 3 cases")
    assert made["epsilon"] == pytest.approx(4, abs=1e-3)
    assert find_problem(made) is None


# --- the ledger is written ahead, and holds public numbers alone


def test_the_charge_is_on_the_disk_before_the_answer(tmp_path, monkeypatch):
    done = []
    real_write, real_sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda f, b: done.append("write") or real_write(f, b))
    monkeypatch.setattr(os, "fsync", lambda f: done.append("fsync") or real_sync(f))
    h = holder(tmp_path)
    done.clear()
    h.charge(Charge(5, 0))
    assert done == ["write", "fsync"]


def test_what_the_ledger_says(tmp_path):
    h = holder(tmp_path)
    h.charge(Charge(5, 17))
    opened, entry = lines(tmp_path)
    assert set(opened) == {"job", "data", "mechanism", "delta", "time", "chain"}
    assert opened["delta"] == h.delta
    assert set(entry) == {"job", "round", "steps", "time", "chain"}
    assert (entry["job"], entry["round"], entry["steps"]) == ("j1", 17, 5)
    assert "dataset_size" not in opened["mechanism"]
    assert Mechanism.from_dict(opened["mechanism"]) == M
    assert (tmp_path / "budget.jsonl").stat().st_mode & 0o077 == 0


def test_a_resumed_job_goes_on_where_it_was(tmp_path):
    holder(tmp_path).charge(Charge(30, 0))
    again = holder(tmp_path)
    assert again.spent == 30
    assert again.charge(Charge(ALLOWED - 29, 1)).granted == 0
    assert again.charge(Charge(ALLOWED - 30, 1)).granted == ALLOWED - 30
    assert sum("mechanism" in line for line in lines(tmp_path)) == 1


def test_a_crash_after_the_entry_costs_the_entry(tmp_path):
    holder(tmp_path).charge(Charge(30, 0))
    assert holder(tmp_path).charge(Charge(30, 0)) == Decision(30, 30, ALLOWED)  # asked again, charged again
    assert charged(tmp_path) == 60


def test_a_job_whose_noise_changed_keeps_its_own_cap(tmp_path):
    """--resume with another mechanism: what was spent with the first one counts against the same cap."""
    holder(tmp_path).charge(Charge(ALLOWED // 2, 0))
    other = Mechanism.from_dict(M.as_dict() | {"noise_multiplier": 4.0})
    h = holder(tmp_path, mechanism=other)
    assert 0 < h.allowed < other.max_steps(CAP, DELTA)
    assert epsilon(((M, ALLOWED // 2), (other, h.allowed)), DELTA) <= CAP


def test_a_full_disk_charges_nothing(tmp_path, monkeypatch):
    h = holder(tmp_path)
    h.charge(Charge(5, 0))
    before = (tmp_path / "budget.jsonl").read_bytes()
    real, calls = os.write, []

    def half(file, content):
        calls.append(content)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, content[: len(content) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(JobError, match="No space left"):
            h.charge(Charge(5, 1))
    assert (tmp_path / "budget.jsonl").read_bytes() == before
    assert h.charge(Charge(5, 1)) == Decision(5, 5, ALLOWED)


def test_a_write_that_ends_early_is_gone_on_with(tmp_path, monkeypatch):
    h = holder(tmp_path)
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, content: real(file, content[:7]))
        assert h.charge(Charge(5, 0)) == Decision(5, 0, ALLOWED)
    assert charged(tmp_path) == 5
    assert holder(tmp_path).spent == 5


def test_a_disk_that_does_not_sync_is_an_error_and_the_line_counts(tmp_path, monkeypatch):
    h = holder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda f: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(JobError, match="Input/output error"):
            h.charge(Charge(5, 0))
    assert h.charge(Charge(5, 0)).spent == 5


@pytest.mark.parametrize(
    "line", ['{"job": "j1", "round": 1, "steps": -30}', '{"job": "j1", "round": 1}', '{"job": "new", "steps": 1}', "[]", "7"]
)
def test_a_line_that_makes_no_sense_stops_everything(tmp_path, line):
    holder(tmp_path).charge(Charge(30, 0))
    with (tmp_path / "budget.jsonl").open("a") as file:
        file.write(line + "\n" + '{"adopt": 3}\n')  # whatever its holder says of it
    with pytest.raises(JobError, match="can't read the line"):
        holder(tmp_path)


def test_a_ledger_that_became_shorter_stops_everything(tmp_path):
    h = holder(tmp_path)
    h.charge(Charge(30, 0))
    (tmp_path / "budget.jsonl").write_text("")
    with pytest.raises(JobError, match="became shorter"):
        h.charge(Charge(1, 1))


# --- the policy


def test_the_smaller_cap_holds_and_outlives_the_job(tmp_path):
    policy(tmp_path, cap=1.0)
    first = holder(tmp_path)
    assert first.allowed == ALLOWED  # the job's cap is the smaller
    first.charge(Charge(ALLOWED, 0))
    second = holder(tmp_path, job="j2")
    assert second.allowed < ALLOWED  # now the policy's is
    assert second.allowed == M.max_steps(1.0, DELTA) - ALLOWED
    second.charge(Charge(second.allowed, 0))
    assert holder(tmp_path, job="j3").charge(Charge(1, 0)).granted == 0
    total = second.total()
    assert total.jobs == 2
    assert total.epsilon <= 1.0 < epsilon(((M, M.max_steps(1.0, DELTA) + 1),), DELTA)
    # Another data set has its own account.
    policy(tmp_path, cap=1.0, tail="[data.other]\nepsilon = 1\ndelta = 1e-5\n")
    assert holder(tmp_path, job="j4", data="other").allowed == ALLOWED


def test_jobs_with_other_mechanisms_are_composed(tmp_path):
    policy(tmp_path, cap=1.0)
    shards = Mechanism(sampling="shards", noise_multiplier=20.0, clip=1.0, dimension=20)
    holder(tmp_path, mechanism=shards).charge(Charge(4, 0))
    h = holder(tmp_path, job="j2", cap=5.0)
    assert epsilon(((shards, 4), (M, h.allowed)), DELTA) <= 1.0 < epsilon(((shards, 4), (M, h.allowed + 1)), DELTA)


def test_without_a_policy_the_jobs_cap_holds_and_the_certificate_says_so(tmp_path):
    holder(tmp_path).charge(Charge(ALLOWED, 0))
    second = holder(tmp_path, job="j2")
    assert second.allowed == ALLOWED
    assert "the holder has no policy.toml" in second.certificate()["caps"]
    policy(tmp_path)
    assert "the holder's policy" in holder(tmp_path, job="j3").certificate()["caps"]


def test_keyed_results_were_not_private_and_a_policy_knows(tmp_path):
    keyed = Mechanism.from_dict(M.as_dict() | {"secure": False})
    holder(tmp_path, mechanism=keyed).charge(Charge(1, 0))
    policy(tmp_path)
    assert holder(tmp_path, job="j2").charge(Charge(1, 0)).granted == 0


def test_units_are_not_mixed_in_one_account(tmp_path):
    holder(tmp_path).charge(Charge(1, 0))
    policy(tmp_path, head='unit = ["example", "client"]')
    by_client = Mechanism.from_dict(M.as_dict() | {"unit": "client"})
    with pytest.raises(JobError, match=r"clinic-b.*budget.jsonl.*by example and by client"):
        holder(tmp_path, job="j2", mechanism=by_client)


# --- the certificate


def test_the_certificate(tmp_path):
    policy(tmp_path, cap=1.2)
    h = holder(tmp_path)
    assert h.certificate()["epsilon"] == 0.0
    h.charge(Charge(20, 0))
    content = h.certificate(rows_per_person=3)
    assert content["epsilon"] == M.epsilon(20, DELTA)
    assert content["steps"] == 20
    assert content["person_epsilon"] == 3 * content["epsilon"]
    assert content["person_delta"] == pytest.approx(3 * math.exp(2 * content["epsilon"]) * DELTA)
    assert not [key for key in content if "total" in key], "what other jobs have spent is the holder's own affair"
    spent = f"all 1 jobs on these data: epsilon = {content['epsilon']:.4g} of 1.2 at delta = 1e-05"
    assert h.total().text() == f"{spent}, {M.neighbours}"
    assert "does not contain the privacy noise" in content["posterior"]
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    printed = format_certificate("clinic-b", content)
    for part in (
        "clinic-b: (0.",
        "add or remove one example",
        "20 steps",
        "noise 3 x clip 1 (secure)",
        "a person with 3 rows",
        "pld, dp-accounting",
        "trusts nobody",
    ):
        assert part in printed
    assert len(printed.splitlines()) <= 8


SIZED = {"dataset_size": 100, "clip": 1.0, "dimension": 4, "noise_multiplier": 3.0}
TRUSTS = [
    (M, "nobody, for each client adds its own noise; the number of rows is not public, row ids are not public"),
    (
        Mechanism(sampling="without-replacement", batch_size=9, **SIZED),
        "nobody, for each client adds its own noise; the number of rows is public, row ids are not public",
    ),
    (
        Mechanism(sampling="aligned", **SIZED),
        "nobody, for each client adds its own noise; the number of rows is public, row ids are public; "
        "the response is not protected",
    ),
    (
        Mechanism.from_dict(M.as_dict() | {"unit": "client"}),
        "the server, which gets every client's change without noise; the number and the names of the clients are public",
    ),
    (Mechanism.from_dict(M.as_dict() | {"secure": False}), "everybody who has the job file, for its seed predicts the noise"),
]


@pytest.mark.parametrize(("mechanism", "words"), TRUSTS, ids=["rows", "fixed batches", "aligned", "clients", "keyed"])
def test_a_certificate_says_whom_it_trusts_and_what_is_public(tmp_path, mechanism, words):
    h = holder(tmp_path, mechanism=mechanism, cap=20.0)
    h.charge(Charge(1, 0))
    content = h.certificate()
    assert content["trust"] == words
    assert f"  trusts {words}\n" in format_certificate("x", content)
    assert h.total().neighbours == content["neighbours"] == mechanism.neighbours
    assert ("public" in content) == (mechanism.dataset_size is not None)


def test_the_total_over_jobs_is_about_the_neighbours_of_all_of_them(tmp_path):
    fixed = Mechanism(sampling="without-replacement", batch_size=9, **SIZED)
    assert holder(tmp_path, mechanism=fixed, cap=20.0).charge(Charge(1, 0)).granted == 1
    h = holder(tmp_path, job="j2")
    content = h.certificate()
    assert content["neighbours"] == "add or remove one example"
    assert h.total().neighbours == "replace one example by any other"
    assert "replace one example by any other" in h.total().text()


def test_a_run_is_certified_for_all_that_it_spent(tmp_path):
    """Whatever mechanism a part of a run had, and under whatever name of its data."""
    strong = Mechanism.from_dict(M.as_dict() | {"accountant": "rdp"})
    weak = Mechanism.from_dict(strong.as_dict() | {"noise_multiplier": 2.0})
    holder(tmp_path, mechanism=weak, cap=100.0).charge(Charge(200, 0))
    h = holder(tmp_path, mechanism=strong, cap=100.0)
    h.charge(Charge(20, 1))
    content = h.certificate()
    assert content["epsilon"] == pytest.approx(epsilon(((strong, 20), (weak, 200)), DELTA), rel=1e-9)
    assert content["epsilon"] > 3 * strong.epsilon(20, DELTA)
    assert content["steps"] == 220
    assert content["claim"].endswith("neighbours: add or remove one example, composition of 2 mechanisms")
    renamed = holder(tmp_path, mechanism=strong, cap=100.0, data="survey-2")
    assert renamed.certificate()["epsilon"] == pytest.approx(content["epsilon"], rel=1e-9)
    shards = Mechanism(sampling="shards", noise_multiplier=20.0, clip=1.0, dimension=20, accountant="rdp")
    holder(tmp_path, mechanism=shards, cap=100.0).charge(Charge(1, 0))
    content = holder(tmp_path, mechanism=shards, cap=100.0).certificate()
    assert content["neighbours"] == neighbours_of([shards, weak, strong])
    assert content["epsilon"] == pytest.approx(epsilon(((shards, 1), (weak, 200), (strong, 20)), DELTA), rel=1e-9)


def test_a_run_that_was_keyed_for_a_while_makes_no_claim(tmp_path):
    keyed = Mechanism.from_dict(M.as_dict() | {"secure": False})
    holder(tmp_path, mechanism=keyed).charge(Charge(5, 0))
    for spent in (0, 1):
        h = holder(tmp_path)
        content = h.certificate()
        assert (content["epsilon"], content["noise_source"], content["steps"]) == ("inf", "keyed", 5 + spent)
        assert content["claim"].startswith("none: the noise was keyed")
        h.charge(Charge(1, 1))


def test_keyed_noise_makes_no_claim(tmp_path):
    keyed = Mechanism.from_dict(M.as_dict() | {"secure": False})
    h = holder(tmp_path, mechanism=keyed)
    for _ in range(2):
        content = h.certificate()
        assert content["epsilon"] == "inf"
        assert content["claim"].startswith("none: the noise was keyed")
        assert "differential" not in format_certificate("x", content)
        h.charge(Charge(5, 0))
    json.dumps(content, allow_nan=False)


# --- at once, and killed


SPENDER = """
import sys
from collections import namedtuple
from pathlib import Path
from fedkern.privacy.accountant import Mechanism
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Holder
from fedkern.jobs.holding.policy import read_policies
home, job, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
m = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)
account = Account(home, "survey", read_policies(home / "policy.toml").policies)
h = Holder("clinic-b", account, job=job, mechanism=m, epsilon=0.8, delta=1e-5)
for round in range(5):
    h.charge(namedtuple("Charge", "steps round")(steps, round))
"""


def test_two_jobs_at_once_share_one_budget(tmp_path):
    policy(tmp_path, cap=1.0)
    program = tmp_path / "spender.py"
    program.write_text(SPENDER)
    jobs = [subprocess.Popen([*forking(), program, tmp_path, f"j{k}", str(ALLOWED // 4)]) for k in range(2)]
    for job in jobs:
        assert job.wait(120) == 0
    spent = charged(tmp_path)
    assert M.epsilon(spent, DELTA) <= 1.0
    assert spent > M.max_steps(1.0, DELTA) - ALLOWED // 4  # and hardly anything is lost
    assert len({line["job"] for line in lines(tmp_path) if line.get("steps")}) == 2


def test_a_charge_waits_while_another_is_decided(tmp_path, monkeypatch):
    """The last step of a budget, and two jobs that ask for it: one of them while the other is about to write."""
    policy(tmp_path, cap=CAP)
    first, second = holder(tmp_path), holder(tmp_path, job="j2")
    assert first.charge(Charge(ALLOWED - 1, 0)).granted == ALLOWED - 1
    answers, real = [], os.write
    other = threading.Thread(target=lambda: answers.append(second.charge(Charge(1, 0)).granted))

    def write(file, content):
        if threading.current_thread() is threading.main_thread() and not other.ident:
            other.start()
            other.join(0.5)  # time enough to read the budget, if nothing holds it back
        return real(file, content)

    monkeypatch.setattr(os, "write", write)
    answers.append(first.charge(Charge(1, 1)).granted)
    other.join(60)
    assert sorted(answers) == [0, 1]
    assert charged(tmp_path) == ALLOWED


WORKER = """
import math, sys
from collections import namedtuple
from pathlib import Path
from fedkern.privacy.accountant import Mechanism
from fedkern.jobs.holding.binding import Account
from fedkern.jobs.holding.budget import Holder
m = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)
h = Holder("c", Account(Path(sys.argv[1]), "survey"), job="j1", mechanism=m, epsilon=math.inf, delta=1e-5)
Charge = namedtuple("Charge", "steps round")
print("ready", flush=True)
for round in range(100_000):
    granted = h.charge(Charge(3, round)).granted
    print(granted, flush=True)  # the wire: what was released after the charge
"""


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.nightly)])
def test_killed_at_any_instant_the_ledger_has_at_least_what_was_released(tmp_path, kills):
    pause, released = random.Random(1), 0
    log = tmp_path / "wire"
    for _ in range(kills):
        with log.open("wb") as wire:
            worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "home")], stdout=wire, env=os.environ)
            while not log.stat().st_size:
                assert worker.poll() is None
                time.sleep(0.005)
            time.sleep(pause.uniform(0, 0.08))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        seen = log.read_bytes().split(b"\n")[1:]
        released += sum(int(n) for n in seen[:-1] if n)
        again = holder(tmp_path / "home", cap=math.inf)  # the ledger can be read
        assert released <= again.spent <= released + 3 * kills
    assert released > 0
