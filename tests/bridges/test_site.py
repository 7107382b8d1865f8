"""A job between residents: each holder has a folder, a copy of the job, paths and a policy of its own."""

import pytest
from threadpoolctl import threadpool_limits

from fedkern.errors import JobError
from support.organisations import NAMES, audit, digest_of_run, found, in_one_process, residents, run
from support.relayed import careless


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with threadpool_limits(1, user_api="blas"):  # threads of one process share it; sites of a real job have a process each
        yield


@pytest.mark.parametrize("seed", [None, 1])
def test_a_job_between_residents_has_the_digest_of_one_process(tmp_path, seed):
    found(tmp_path)
    said = []
    code, heard, _ = run(tmp_path, residents(tmp_path, said), careless(seed) if seed else None)
    assert (code, heard) == (0, []), said
    assert digest_of_run(tmp_path) == in_one_process(tmp_path)
    for name in NAMES:
        started, ended = audit(tmp_path, name)
        assert (started["event"], started["identity"], started["client"]) == ("started", "server@example", name)
        assert (ended["event"], ended["exit"]) == ("ended", 0)
        assert ended["sent"]["Curvature"]["messages"] >= 1
        assert all(of_kind["bytes"] > 0 for of_kind in ended["sent"].values())


def test_a_resident_refuses_a_folder_outside_the_sites(tmp_path):
    found(tmp_path)
    job = tmp_path / "ada" / "job.toml"
    job.write_text(job.read_text().replace("[output]\n", f'[output]\nclient_folder = "{tmp_path}/evil"\n'))
    said = []
    code, _, _ = run(tmp_path, residents(tmp_path, said))
    assert code != 0
    assert any(name == "ada" and "is outside the site's folder" in text for name, text in said)
    assert not (tmp_path / "evil").exists()


def test_a_folder_that_was_not_made_is_not_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedkern.bridges.site.perform", lambda *given: (_ for _ in ()).throw(JobError("it was only to begin")))
    found(tmp_path)
    said = []
    run(tmp_path, residents(tmp_path, said))
    assert ("ada", "job.toml has ended with code 2; it has written no file") in said
    assert not (tmp_path / "ada" / "runs").exists()
