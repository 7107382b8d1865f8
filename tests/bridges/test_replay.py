"""The answers of an asynchronous run between organisations, computed again from the holders' rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedkern.bridges.consent import Consent
from fedkern.errors import JobError
from fedkern.jobs.answers import FILE
from support.organisations import NAMES, PRIVATE_JOB, PRIVATE_POLICY, audit, digest_of_run, found, residents, run
from support.relayed import careless

pytestmark = pytest.mark.usefixtures("one_thread_of_blas")
JOB: dict[str, Any] = {"method": "pvi", "more": '[algorithm]\nschedule = "asynchronous"\n'}


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """The folder of all parties after a run."""
    found(tmp_path, **JOB)
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert (code, heard) == (0, [])
    return tmp_path


def again(folder: Path, out: str = "again", faults: Any = None, said: Any = None) -> tuple[int, list[str]]:
    code, heard, _ = run(folder, residents(folder, said), faults, out=out, replays=folder / "server" / "out")
    return code, heard


@pytest.mark.parametrize("seed", [None, 1])
def test_the_rows_of_all_sites_give_the_posterior_again(done: Path, seed: int | None) -> None:
    assert again(done, faults=careless(seed) if seed else None) == (0, [])
    assert digest_of_run(done, "again") == digest_of_run(done)
    assert not (done / "server" / "again" / FILE).exists()
    for name in NAMES:  # it is a run as any other: in the holder's log, with a ledger of its own
        lines = audit(done, name)
        assert [line["event"] for line in lines] == ["started", "ended"] * 2
        assert lines[3]["sent"]["SiteDelta"] == lines[1]["sent"]["SiteDelta"]
        assert (done / name / lines[2]["folder"] / "ledger").exists() or [*(done / name / lines[2]["folder"]).glob("*/ledger*")]


def test_other_rows_are_refused_at_their_holder(done: Path) -> None:
    rows = done / "bo" / "private" / "bo.csv"
    rows.write_text(rows.read_text().replace(",1\n", ",0\n", 1))
    said: list[tuple[str, str]] = []
    code, heard = again(done, said=said)
    assert code == 2
    assert "client 'bo': the log is of other rows" in "".join(heard)
    assert any("the log is of other rows" in line.get("why", "") for line in audit(done, "bo"))


def test_a_log_that_was_altered_is_refused_before_a_site_is_asked(done: Path) -> None:
    log = done / "server" / "out" / FILE
    lines = log.read_text().splitlines()
    log.write_text("".join(f"{line}\n" for line in [*lines[:4], *lines[5:]]))
    with pytest.raises(JobError, match="line 5 is not as the run wrote it"):
        again(done)
    assert [line["event"] for line in audit(done, "ada")] == ["started", "ended"]


def test_a_run_that_a_site_does_not_know_is_no_accepted_job(done: Path) -> None:
    (record,) = (done / "cy" / "runs").glob("*/client-cy/job.json")
    content = json.loads(record.read_text())
    content["run"]["id"] = "00" * 16
    record.write_text(json.dumps(content))
    code, heard = again(done)
    assert code == 2
    assert "site 'cy' takes no part: this job is not accepted here" in "".join(heard)


def test_it_counts_among_the_runs_that_were_accepted(done: Path) -> None:
    consent = done / "ada" / "consent.toml"
    consent.write_text(consent.read_text() + "runs = 1\n")
    assert Consent(done / "ada").read().job[0].runs == 1
    code, heard = again(done)
    assert code == 2
    assert "site 'ada' takes no part" in "".join(heard)


def test_a_private_run_is_refused_at_the_server_and_at_each_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = {**PRIVATE_JOB, "more": PRIVATE_JOB["more"].replace("[algorithm]\n", '[algorithm]\nschedule = "asynchronous"\n')}
    found(tmp_path, PRIVATE_POLICY, **private)
    code, heard, _ = run(tmp_path, residents(tmp_path))
    assert (code, heard) == (0, [])
    with pytest.raises(JobError, match="would be a second release"):
        again(tmp_path)
    # A server that asks all the same.
    from fedkern import api
    from fedkern.bridges import server

    monkeypatch.setattr(server, "to_replay", lambda folder, **which: api.opened.opened(folder, api.of_record))
    before = [(tmp_path / name / "runs").glob("**/budget.jsonl") for name in NAMES]
    spent = [path.read_bytes() for paths in before for path in paths]
    code, heard = again(tmp_path, "other")
    assert code == 2
    assert "takes no part: this job is not accepted here" in "".join(heard)
    for name in NAMES:
        assert any("would be a second release" in line.get("why", "") for line in audit(tmp_path, name))
    after = [path.read_bytes() for name in NAMES for path in (tmp_path / name / "runs").glob("**/budget.jsonl")]
    assert after == spent
