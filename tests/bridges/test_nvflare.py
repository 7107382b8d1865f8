"""NVFlare: its job folder, the wire over its messages, and at night the digest of one process from the engine itself."""

import json
import re
import tomllib

import pytest

from fedkern.bridges.digest import digest_of
from fedkern.bridges.engines import ALLOWED, TRIED, check_engine, replayed_folder, run_folder, servers_copy
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.load import tables_of
from fedkern.methods import load
from fedkern.plain import to_toml
from support.flare import ENGINE, ROOT, over_tls, write_parties
from support.organisations import audit, found, in_one_process
from support.parties import GOLDEN

JOB = """
[job]
method = "likelihood"
[data]
clients = ["secret/of-{name}/ada.csv", "secret/bo.csv"]
test = "secret/test.csv"
response = "died"
[model.random]
group = "ward"
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "stroke.toml"
    path.write_text(JOB.format(name="server"))
    return path


def bridge(job, out, *more):
    return main(["bridge", "nvflare", str(job), "--out", str(out), *more])


def test_the_engines_folder_has_names_and_a_digest_and_no_path(job, tmp_path, capsys):
    assert bridge(job, tmp_path / "flare") == 0
    digest = digest_of(load(job)[0]).hex()
    files = {path.relative_to(tmp_path / "flare"): path.read_text() for path in (tmp_path / "flare").rglob("*.*")}
    assert {str(path) for path in files} == {
        "meta.json",
        "app/config/config_fed_server.json",
        "app/config/config_fed_client.json",
        "app/config/job.toml",
    }
    assert "secret" not in "".join(files.values())
    assert str(tmp_path) not in "".join(files.values())
    server = json.loads((tmp_path / "flare/app/config/config_fed_server.json").read_text())["workflows"][0]
    assert server["args"] == {"names": ["ada", "bo"], "digest": digest, "resume": False, "job": "stroke", "replay": False}
    meta = json.loads((tmp_path / "flare/meta.json").read_text())
    assert meta["mandatory_clients"] == ["ada", "bo"]
    assert meta["deploy_map"] == {"app": ["server", "ada", "bo"]}
    assert digest_of(load(tmp_path / "flare/app/config/job.toml")[0]).hex() == digest
    said = capsys.readouterr().out
    assert digest in said
    assert "data.test names a file of its own" in said


def test_a_folder_that_is_there_stays(job, tmp_path, capsys):
    (tmp_path / "flare").mkdir()
    assert bridge(job, tmp_path / "flare") == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.b", "å", "ada ada"])
def test_a_name_that_no_site_can_have_is_refused(name, job, tmp_path, capsys):
    job.write_text(JOB.format(name="x").replace("bo.csv", f"{name}.csv"))
    assert bridge(job, tmp_path / "flare") == 2
    assert "NVFlare's sites have" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted({base for base, *_ in GOLDEN.JOBS.values()}))
def test_every_jobs_tables_are_written_and_read_again(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "golden-of-nvflare"
    if not folder.exists():
        GOLDEN.write(folder)
    tables = tables_of(folder / f"{name}.toml", "job")
    tables["extra"] = {"a b": {"c.d": [{"e": 1.5}, {"f": float("inf")}], "quoted": 'a"\\\n\x7fä'}, "last": True}
    assert tomllib.loads(to_toml(tables)) == tables


def test_a_brought_job_may_name_no_file_of_the_server(job, tmp_path):
    digest = digest_of(load(job)[0]).hex()
    assert servers_copy(tmp_path, tmp_path / "no.toml", digest) == job  # its own copy is taken
    (tmp_path / "empty").mkdir()
    with pytest.raises(JobError, match=r"data\.test names a file of the server"):
        servers_copy(tmp_path / "empty", job, digest)
    with pytest.raises(JobError, match="another digest"):
        servers_copy(tmp_path / "empty", job, "0" * 64)
    job.write_text(JOB.replace('test = "secret/test.csv"\n', ""))
    assert servers_copy(tmp_path / "empty", job, digest_of(load(job)[0]).hex()) == job


def test_of_two_copies_that_differ_in_a_servers_file_the_submitted_one_is_taken(job, tmp_path):
    brought, digest = tmp_path / "no.toml", digest_of(load(job)[0]).hex()
    folder = tmp_path / "server"
    folder.mkdir()
    for year in (2024, 2025):
        (folder / f"death-{year}.toml").write_text(job.read_text().replace("secret/test.csv", f"test-{year}.csv"))
        assert digest_of(load(folder / f"death-{year}.toml")[0]).hex() == digest
    for year in (2024, 2025):
        assert servers_copy(folder, brought, digest, f"death-{year}") == folder / f"death-{year}.toml"
    wanted = r"death-2024.toml, death-2025.toml have the digest of the job that was submitted, death-2026.toml, and data.test may"
    with pytest.raises(JobError, match=f"{wanted} name another file in each copy; call the one that is meant death-2026.toml"):
        servers_copy(folder, brought, digest, "death-2026")
    with pytest.raises(JobError, match="leave the one that is meant in the folder"):
        servers_copy(folder, brought, digest)
    (folder / "death-2025.toml").unlink()
    with pytest.raises(JobError, match=r"death-2024.toml has the digest of the job that was submitted, death-2025.toml"):
        servers_copy(folder, brought, digest, "death-2025")
    (folder / "death-2024.toml").rename(folder / "death-2025.toml")  # which is what was advised
    assert servers_copy(folder, brought, digest, "death-2025") == folder / "death-2025.toml"
    (tmp_path / "empty").mkdir()
    with pytest.raises(JobError, match=r"data.test names a file of the server: put .* as death-2025.toml"):
        servers_copy(tmp_path / "empty", folder / "death-2025.toml", digest, "death-2025")


def test_copies_that_differ_in_clients_paths_alone_are_one_job(job, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(JOB.replace('test = "secret/test.csv"\n', "").replace("bo.csv", f"{name}/bo.csv"))
    digest = digest_of(load(tmp_path / "a.toml")[0]).hex()
    assert servers_copy(tmp_path, tmp_path / "no.toml", digest, "c") == tmp_path / "a.toml"


def test_an_untested_version_is_named_and_allowed_by_its_number(monkeypatch):
    check_engine("nvflare", "2.9.7")
    with pytest.raises(JobError, match=r"nvflare 2\.10\.0 was not tried with this fedkern, only 2\.9"):
        check_engine("nvflare", "2.10.0")
    monkeypatch.setenv(ALLOWED, "2.10.0")
    check_engine("nvflare", "2.10.0")
    with pytest.raises(JobError, match=r"3\.0"):
        check_engine("nvflare", "3.0")


@pytest.mark.parametrize(("engine", "package"), [("nvflare", "nvflare"), ("flower", "flwr")])
def test_an_engines_extra_asks_for_a_version_that_was_tried(engine, package):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (text,) = [one for one in extras[engine] if one.startswith(package)]
    lowest, above = re.fullmatch(package + r">=(\d+\.\d+),<(\d+\.\d+)", text).groups()
    assert (lowest in TRIED[engine], above in TRIED[engine]) == (True, False)
    assert "fedkern[dp]" in extras[engine]  # a site of a private job counts its epsilon


def test_a_run_has_a_folder_of_its_own_and_goes_on_in_the_last(tmp_path):
    for name in ("a", "a-2"):
        assert run_folder(tmp_path, "a", resume=False).name == name
        (tmp_path / name).mkdir()
        assert run_folder(tmp_path, "a", resume=True).name == name
    assert run_folder(tmp_path, "a", resume=False).name == "a-3"


def test_the_last_run_that_has_kept_its_answers_is_replayed(tmp_path):
    with pytest.raises(JobError, match="no run of this job has kept its answers here"):
        replayed_folder(tmp_path, "a")
    for name in ("a", "a-2", "a-3"):
        (tmp_path / name).mkdir()
    for name in ("a", "a-2"):  # a replay keeps none
        (tmp_path / name / "answers.jsonl").write_text("")
    assert replayed_folder(tmp_path, "a").name == "a-2"


def test_a_run_goes_on_in_the_last_folder_that_has_a_checkpoint(tmp_path):
    for name in ("a", "a-2", "a-3"):
        (tmp_path / name / "client-ada").mkdir(parents=True)
    (tmp_path / "a-3" / "client-ada" / "holder.txt").write_text("a start that failed")
    assert run_folder(tmp_path, "a", resume=True).name == "a-3"
    (tmp_path / "a-2" / "client-ada" / "checkpoint").mkdir()
    (tmp_path / "a-2" / "client-ada" / "checkpoint" / "pvi-000003.ckpt").write_bytes(b"state")
    assert run_folder(tmp_path, "a", resume=True).name == "a-2"
    assert run_folder(tmp_path, "a", resume=False).name == "a-4"


# What goes wrong (FAULTS of benchmarks/nvflare_tls.py) -> words of the server and of the site; is there the digest at last?
# Of 300 MB, which a busy machine carries for longer than the deadline, test_gate.py has what a resident does.
ENDS = {
    "none": ("", "has ended with code 0", True),
    "killed-site": ("--resume goes on from the last checkpoint", "has ended with code 0", True),
    "other-site-asks": ("", "asked ada: TIMEOUT None", True),
    "other-job": ("site 'bo' takes no part: this job is not accepted here", "has this digest", False),
    "other-version": ("site 'bo' has fedkern 0.0.9, and the server has", "has ended with code 2", False),
    "other-engine": ("", "nvflare 2.10.0 was not tried", False),
    "expired-certificate": ("", "", False),
    "stranger": ("", "", False),
    "borrowed-name": ("", "", False),
    "stopped-site": ("", "has ended with code 0", True),
    "aborted": ("", "has ended with code 0", True),
    "silent-site": ("--resume goes on from the last checkpoint", "has ended with code 3", True),
    "impostor": ("", "", False),
    "impostor-site": ("", "", False),
    "impostor-server": ("", "", False),
    "long-question": ("client 'bo': the server: a message of 4194344 bytes, at most 40 expected", "has ended with code 2", False),
    "long-reply": ("site 'bo': a message of 4210752 bytes, at most 16448 expected", "has ended with code 2", False),
    "server-restart": ("", "has ended with code 0", True),
}


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.skipif(not ENGINE, reason="FEDKERN_NVFLARE names no Python that has NVFlare")
@pytest.mark.parametrize("fault", ENDS)
def test_over_tls_a_job_has_the_digest_of_one_process_or_the_documented_end(fault, tmp_path):
    _, digest = write_parties("sparse-sums", tmp_path, "job.rounds=300", "job.deadline=20", "algorithm.checkpoint_every=1")
    said = over_tls(tmp_path, fault)
    server, site, ends = ENDS[fault]
    outside = ("expired-certificate", "stranger", "borrowed-name", "impostor", "impostor-site", "impostor-server")
    assert said["ended"] == (fault not in (*outside, "server-restart"))
    if fault.startswith("impostor"):  # the site has called, and said something only to who has the server's own key
        assert said["calls"] > 0
        assert (said["believed"] > 0, said["heard"] > 0) == (fault == "impostor-server",) * 2
    assert server in " ".join(said["server"])
    assert site in " ".join(said["bo"])
    assert said["digests"] == ([digest] if ends else [])


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.skipif(not ENGINE, reason="FEDKERN_NVFLARE names no Python that has NVFlare")
@pytest.mark.parametrize("fault", ["none", "other-key"])
def test_over_tls_sites_sign_by_keys_of_their_own(fault, tmp_path):
    secure = {"rounds": 'sums = "secure"\n'}
    server = found(tmp_path / "parties", accepted=(), **secure)
    digest = in_one_process(tmp_path / "parties", **secure)
    assert main(["bridge", "nvflare", str(server / "job.toml"), "--out", str(tmp_path / "flare")]) == 0
    said = over_tls(tmp_path, fault, "--sign")
    assert said["digests"] == ([digest] if fault == "none" else [])
    told = " ".join(said["server"])
    assert ("client 'bo': the key of client 'ada' is not signed by it: its fingerprint is SHA256:" in told) is (fault != "none")
    left = audit(tmp_path / "parties", "bo")[-1]["sent"]
    assert left["SumSignature"]["messages"] == 1
    assert ("MaskedValues" in left) is (fault == "none")
