"""A server or an engine that means harm: no file is read that the holder did not name, and no budget is charged twice."""

import contextlib
import errno
import os
import struct
import sys
import time

import numpy as np
import pytest

from fedkern.bridges import site as sites
from fedkern.bridges.consent import NAME
from fedkern.bridges.digest import digest_of
from fedkern.errors import JobError
from fedkern.ground import Ground
from fedkern.jobs.files import Lines
from fedkern.methods import load
from fedkern.transports import tags
from fedkern.transports.relay import Letter
from fedkern.transports.relay_letters import ANEW, ASIDE, BUSY, REFUSED, WAITING
from support.organisations import (
    BRIEF,
    NAMES,
    POLICY,
    PRIVATE_JOB,
    PRIVATE_POLICY,
    Recorded,
    accept,
    audit,
    digest_of_run,
    found,
    in_one_process,
    residents,
    run,
    write_job,
)

OPENED = []  # paths, while a test looks

pytestmark = pytest.mark.usefixtures("one_thread_of_blas")


@contextlib.contextmanager
def watched():
    """Yields the paths that this process opens inside."""
    if not OPENED:
        OPENED.append(None)
        sys.addaudithook(lambda event, said: OPENED[0] is not None and event == "open" and OPENED[0].append(str(said[0])))
    OPENED[0] = seen = []
    try:
        yield seen
    finally:
        OPENED[0] = None


def asking(digest, items=(), number=1, job=b"j" * 16, state=WAITING):
    return Letter(state, job, number, list(items), digest).pack()


def reasons(folder, name="ada"):
    return [line["why"] for line in audit(folder, name) if line["event"] == "refused"]


@pytest.fixture
def ada(tmp_path):
    found(tmp_path)
    return residents(tmp_path, busy=0.1)["ada"]


def test_what_is_not_accepted_is_refused_and_the_server_reads_no_path(ada, tmp_path):
    reply = Letter.unpack(ada.answer(asking(b"x" * 32)))
    assert (reply.state, reply.items) == (REFUSED, [(tags.FAULT, b"this job is not accepted here")])
    assert "has this digest" in reasons(tmp_path)[0]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda site: (site / "site.toml").unlink(), "site.toml is not there"),
        (lambda site: (site / NAME).unlink(), "no job of"),
        (lambda site: (site / NAME).chmod(0o666), "other users may write"),
        (lambda site: (site / NAME).write_text("[[job]\n"), "no TOML"),
        (lambda site: (site / "job.toml").unlink(), "cannot be read"),
        (lambda site: (site / "job.toml").write_text((site / "job.toml").read_text() + "seed = 3\n"), "job.toml"),
        (lambda site: write_job(site / "job.toml", [f"{name}.csv" for name in NAMES], rounds="rounds = 7\n"), "other keys"),
        (
            lambda site: (site / NAME).write_text((site / NAME).read_text().replace('"job.toml"', '"../bo/job.toml"')),
            "not in this",
        ),
        (lambda site: (site / NAME).write_text((site / NAME).read_text().replace('"job.toml"', '"/etc/passwd"')), "not in this"),
    ],
)
def test_a_site_that_is_not_ready_refuses_and_tells_its_holder_alone(tmp_path, fault, text):
    found(tmp_path)
    fault(tmp_path / "ada")
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert said == ["site 'ada' takes no part: this job is not accepted here"]
    assert text in reasons(tmp_path)[0]
    assert not (tmp_path / "ada" / "runs").exists()


def test_requests_choose_no_file(ada, tmp_path):
    """Paths as digests, as items of every kind, and any bit turned: only the consent and the log are opened."""
    random = np.random.default_rng(1)
    secret = str(tmp_path / "ada" / "private" / "ada.csv").encode()
    hostile = [b"", b"x", secret, asking(secret[-32:]), asking(secret[:32], number=2), asking(bytes(32))]
    hostile += [
        asking(b"x" * 32, [(tag, secret)], number, state=state) for tag in range(16) for number in (1, 2) for state in (0, 1)
    ]
    whole = asking(b"x" * 32, [(tags.GATHER, secret)])
    for _ in range(200):
        cut = bytearray(whole[: random.integers(1, len(whole) + 1)])
        cut[random.integers(len(cut))] ^= 1 << random.integers(8)
        hostile.append(bytes(cut))
    with watched() as seen:
        for request in hostile:
            assert isinstance(ada.answer(request), bytes)
    own = {NAME, "audit.jsonl", ".audit.jsonl.lock"}
    assert {path for path in seen if os.path.basename(path) not in own and not path.endswith((".py", ".pyc", "ada"))} == set()
    assert not (tmp_path / "ada" / "runs").exists()
    assert len(reasons(tmp_path)) <= sites.OFTEN  # a flood fills no disk


def test_a_flood_of_questions_fills_no_disk(ada, tmp_path):
    (tmp_path / "ada" / NAME).write_text('open = "ask"\n')
    for number in range(100):
        asked = asking(bytes([number]) * 32, job=number.to_bytes(16, "big"))
        assert Letter.unpack(ada.answer(asked)).state == ASIDE
        assert Letter.unpack(ada.answer(asking(b"x" * 32, job=number.to_bytes(16, "big")))).state == ASIDE
    assert len(audit(tmp_path, "ada")) == sites.OFTEN


@pytest.mark.parametrize(
    ("request_of", "why"),
    [
        (lambda digest: asking(digest, [(12, b"")]), "unknown kind (12)"),
        (lambda digest: asking(digest, state=BUSY), "unknown kind (state 1)"),
        (lambda digest: asking(digest, [(tags.GATHER, b"x" * sites.LONGEST_FIRST)]), "a first request of"),
        (lambda digest: asking(digest)[:-1], "relayed message"),
        (lambda digest: asking(digest, [(tags.PING, b"")])[:-8] + struct.pack("<Q", 1 << 60), "cut short"),
    ],
)
def test_a_request_of_unknown_kind_or_size_begins_nothing(ada, tmp_path, request_of, why):
    ada.answer(request_of(digest_of(load(tmp_path / "ada" / "job.toml")[0])))
    assert why in reasons(tmp_path)[0]
    assert not (tmp_path / "ada" / "runs").exists()


def test_a_request_that_is_too_long_is_not_even_read(ada, tmp_path, monkeypatch):
    monkeypatch.setattr(sites, "LONGEST", 100)
    assert ada.answer(bytes(101)) == b""
    assert "a request of 101 bytes, at most 100" in reasons(tmp_path)[0]


def test_a_second_hub_gets_nothing_of_a_job_that_runs(ada, tmp_path):
    site = tmp_path / "ada"
    write_job(site / "second.toml", [f"{name}.csv" for name in NAMES], rounds="rounds = 9\n")
    accept(site / "second.toml")
    first, second = (digest_of(load(site / name)[0]) for name in ("job.toml", "second.toml"))
    begun = Letter.unpack(ada.answer(asking(first)))
    assert begun.state == WAITING
    assert [tag for tag, _ in begun.items] == [tags.GATHER]  # its hello
    other = Letter.unpack(ada.answer(asking(second, job=b"k" * 16)))
    assert (other.state, other.items[0][1]) == (REFUSED, b"another job runs here")
    # The same job of another run waits: the server may have been started anew. Frames of it reach nobody.
    assert Letter.unpack(ada.answer(asking(first, job=b"l" * 16))).state == ASIDE
    late = ada.answer(asking(first, [(tags.EXIT, struct.pack("<i", 0))], number=2, job=b"l" * 16))
    assert Letter.unpack(late).state == ANEW
    assert not ada.join(0.2)
    ada.lost("the test ends")
    assert ada.join(20.0)
    assert [line["event"] for line in audit(tmp_path, "ada")] == ["started", "refused", "refused", "ended"]
    assert audit(tmp_path, "ada")[-1]["exit"] == 3


def test_yesterdays_letters_after_a_restart_do_nothing_and_cost_nothing(tmp_path):
    found(tmp_path, PRIVATE_POLICY, **PRIVATE_JOB)
    code, said, wire = run(tmp_path, residents(tmp_path), wire=Recorded)
    assert (code, said) == (0, [])
    assert digest_of_run(tmp_path) == in_one_process(tmp_path, **PRIVATE_JOB)
    budgets = {name: (tmp_path / name / "budget.jsonl").read_bytes() for name in NAMES}
    assert all(budgets.values())
    anew = residents(tmp_path, busy=0.1)
    for name in NAMES:
        assert len(wire.requests[name]) > 3
        for request in [*wire.requests[name], *wire.requests[name][::-1]]:
            assert Letter.unpack(anew[name].answer(request)).state == ANEW
        assert (tmp_path / name / "budget.jsonl").read_bytes() == budgets[name]
        assert [path.name for path in (tmp_path / name / "runs").iterdir()] == ["job"]


def test_a_holder_that_claims_another_clients_name_takes_no_part(tmp_path):
    found(tmp_path)
    (tmp_path / "bo" / "site.toml").write_text('client = "ada"\npath = "private/bo.csv"\npolicy = "policy.toml"\n')
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert said == ["site 'bo' takes no part: this job is not accepted here"]
    assert "site.toml says 'ada', client number 1 of 3, and the server asks for number 2" in reasons(tmp_path, "bo")[0]


def test_a_policy_has_the_last_word_over_the_consent(tmp_path):
    found(tmp_path, POLICY.replace('places = ["fedkern.places:Spoke"]\n', ""))
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "refused by the holder's policy" in said[0]
    assert str(tmp_path) not in said[0]


def test_a_site_that_cannot_write_its_log_takes_no_part(tmp_path, monkeypatch):
    found(tmp_path)
    sites = residents(tmp_path)

    def full(*args, **facts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sites["bo"].audit, "write", full)
    code, said, _ = run(tmp_path, sites)
    assert code == 2
    assert said == ["site 'bo' takes no part: this site cannot write its audit log"]
    assert not (tmp_path / "bo" / "runs").exists()


def test_a_disk_that_fills_while_a_job_runs_ends_it_as_documented(tmp_path, monkeypatch):
    found(tmp_path)
    write = Lines.write

    def full(self, line):
        if "/bo/" in str(self.path) and '"Curvature"' in line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        write(self, line)

    monkeypatch.setattr(Lines, "write", full)
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "No space left on device; free some space there" in said[0]
    assert "--out" not in said[0]  # which nobody gives at a site
    assert str(tmp_path) not in said[0]
    assert [audit(tmp_path, name)[-1]["exit"] for name in NAMES] == [2, 2, 2]
    why = audit(tmp_path, "bo")[-1]["why"]
    assert "No space left on device" in why
    assert str(tmp_path) not in why


@pytest.mark.parametrize("refused", [["job.json"], ["secret", "rank-2.jsonl"]])
def test_a_disk_that_takes_no_file_any_more_ends_a_job_as_documented(tmp_path, monkeypatch, refused):
    found(tmp_path)
    begun = []  # files that find no place, from the first one on: also the ledger, once it is to have a line of the fault

    def full(name, writes):
        real = getattr(Ground, name)

        def write(self, path, what, *given, **more):
            if "/bo/" in str(path) and writes(what) and (begun or path.name == refused[0]):
                begun.append(path.name)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return real(self, path, what, *given, **more)

        monkeypatch.setattr(Ground, name, write)

    full("open", lambda flags: flags & os.O_CREAT)
    full("put", lambda data: True)
    full("first", lambda data: True)
    code, said, _ = run(tmp_path, residents(tmp_path))
    # Once more after the end, where it is to say what has left: the audit log has it all the same.
    assert [*dict.fromkeys(begun)] == [*dict.fromkeys([*refused, "rank-2.jsonl"])]
    assert (code, len(said)) == (2, 1)
    assert said[0].startswith("client 'bo': cannot write ")
    assert "No space left on device; free some space there" in said[0]
    assert str(tmp_path) not in said[0]
    assert [audit(tmp_path, name)[-1]["exit"] for name in NAMES] == [2, 2, 2]
    assert "No space left on device" in audit(tmp_path, "bo")[-1]["why"]
    assert {"hello", "fault"} <= audit(tmp_path, "bo")[-1]["sent"].keys()


def test_the_log_says_whose_fault_has_ended_a_job_and_nothing_of_what_others_say_of_it(tmp_path):
    found(tmp_path)
    rows = tmp_path / "bo" / "private" / "bo.csv"
    rows.write_text(rows.read_text().replace("age", "agé", 1))
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert code == 2
    assert "'bo'" in said[0]
    ends = {name: audit(tmp_path, name)[-1] for name in NAMES}
    assert [end["exit"] for end in ends.values()] == [2, 2, 2]
    # The server finds it, among the columns of all: also to `bo` it is a fault that others have found.
    assert {end["why"] for end in ends.values()} == {"the server, or another site, has ended the job"}


def test_a_site_that_has_done_its_part_says_in_its_log_why_the_job_failed(tmp_path, monkeypatch):
    found(tmp_path)
    done = sites.perform

    def failing(place, config, folder, output):
        done(place, config, folder, output)
        if "/bo/" in str(output.folder):
            raise JobError("bo has a reason of its own")

    monkeypatch.setattr(sites, "perform", failing)
    code, said, _ = run(tmp_path, residents(tmp_path))
    assert (code, said) == (2, ["client 'bo': bo has a reason of its own"])
    whys = [audit(tmp_path, name)[-1]["why"] for name in NAMES]
    others = "the server, or another site, has ended the job"
    assert whys == [others, "bo has a reason of its own", others]


def test_a_job_that_waits_begins_once_somebody_has_accepted_it(tmp_path):
    found(tmp_path, accepted=("ada", "cy"))
    (tmp_path / "bo" / NAME).write_text('open = "ask"\n')
    (tmp_path / "bo" / NAME).chmod(0o600)
    heard = []
    sites = residents(tmp_path, heard)
    answer, times = sites["bo"].answer, []

    def late(request):
        times.append(time.monotonic())
        if len(times) == 3:
            accept(tmp_path / "bo" / "job.toml")
        return answer(request)

    sites["bo"].answer = late
    code, said, _ = run(tmp_path, sites)
    assert (code, said) == (0, [])
    assert [line["event"] for line in audit(tmp_path, "bo")] == ["aside", "started", "ended"]
    asked = [text for name, text in heard if name == "bo" and "fedkern site accept" in text]
    assert len(asked) == 1
    assert digest_of_run(tmp_path) == in_one_process(tmp_path)


def test_a_stopped_resident_keeps_a_checkpoint_and_the_job_goes_on(tmp_path):
    job = {**PRIVATE_JOB, "more": PRIVATE_JOB["more"].replace("local_steps = 3", "local_steps = 3\ncheckpoint_every = 1e-6")}
    found(tmp_path, PRIVATE_POLICY, **job)
    sites = residents(tmp_path)
    answer, count = sites["bo"].answer, []

    def stopping(request):
        count.append(request)
        if len(count) == 6:
            sites["bo"].stop("SIGTERM")
        return answer(request)

    sites["bo"].answer = stopping
    code, said, _ = run(tmp_path, sites)
    assert code == 3
    assert "--resume" in said[0]
    code, said, _ = run(tmp_path, residents(tmp_path), resume=True)
    assert (code, said) == (0, [])
    assert digest_of_run(tmp_path) == in_one_process(tmp_path, **job)
    for name in NAMES:
        assert [path.name for path in (tmp_path / name / "runs").iterdir()] == ["job"]
        assert [line.get("exit") for line in audit(tmp_path, name) if line["event"] == "ended"] == [3, 0]


def test_a_resident_that_was_started_anew_has_lost_the_run_and_pays_for_nothing_more(tmp_path):
    job = {**PRIVATE_JOB, "more": PRIVATE_JOB["more"].replace("local_steps = 3", "local_steps = 3\ncheckpoint_every = 1e-6")}
    found(tmp_path, PRIVATE_POLICY, **job)
    sites = residents(tmp_path)
    old, budget = sites["bo"], tmp_path / "bo" / "budget.jsonl"

    class Restarted:
        join, new, charged = old.join, None, b""

        def answer(self, request):
            if self.new is None and budget.exists():
                old.lost("its process ends")
                assert old.join(20.0)
                self.new, self.charged = residents(tmp_path)["bo"], budget.read_bytes()
            return (self.new or old).answer(request)

    sites["bo"] = restarted = Restarted()
    code, said, _ = run(tmp_path, sites)
    assert code == 4, said  # pvi goes on without a lost client
    assert said == [
        "site 'bo': it was started anew, and knows nothing of this run",
        "finished without client 'bo' (site 'bo' has died)",
    ]
    assert "the run has begun here before" in reasons(tmp_path, "bo")[0]
    assert [line["event"] for line in audit(tmp_path, "bo")] == ["started", "ended", "refused"]
    assert restarted.charged == budget.read_bytes() != b""


def test_a_server_that_is_lost_ends_the_job_here(ada, tmp_path):
    assert BRIEF.lost > 10
    ada.answer(asking(digest_of(load(tmp_path / "ada" / "job.toml")[0])))
    ada.lost("its connection has ended")
    assert ada.join(10.0)
    assert audit(tmp_path, "ada")[-1]["exit"] == 3
