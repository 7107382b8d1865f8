"""What a holder accepts: the digest of a job, the list, and the command that adds to it."""

import errno
import os
import shutil
import subprocess
import threading

import pytest

from fedkern.bridges.audit import Audit
from fedkern.bridges.consent import MOST_RUNS, NAME, UNLIMITED, AcceptedSection, Consent
from fedkern.bridges.digest import as_asked, digest_of
from fedkern.bridges.engines import own_files
from fedkern.bridges.site import check_limits
from fedkern.cli.__main__ import main
from fedkern.cli.seen import as_seen_here
from fedkern.errors import JobError
from fedkern.jobs.keys import OWN_PATHS
from fedkern.methods import METHODS, load, load_method
from fedkern.sections import marked_keys
from support.command import forking
from support.organisations import NAMES, accept, audit, found, residents, run, write_job
from support.refusal import refusal

# Keys that are marked as paths because their letters are not the user's to write otherwise: names, which parties compare.
NO_FILES = {"data.names", "algorithm.client_weights", "privacy.clients", "model.priors"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    found(tmp_path, accepted=())
    monkeypatch.chdir(tmp_path / "ada")
    return tmp_path / "ada"


def test_paths_of_files_are_not_in_the_digest(tmp_path):
    ours = load(write_job(tmp_path / "a.toml", ["x/ada.csv", "bo.csv"], test='test = "t.csv"\n'))[0]
    theirs = load(write_job(tmp_path / "b.toml", ["ada.csv", "/data/bo.csv"], test='test = "/other/t.csv"\n'))[0]
    named = load(write_job(tmp_path / "c.toml", ["1.csv", "2.csv"], test='names = ["ada", "bo"]\ntest = "t"\n'))[0]
    assert digest_of(ours) == digest_of(theirs) == digest_of(named)
    assert ours.keys_alone == theirs.keys_alone == named.keys_alone


@pytest.mark.parametrize(
    "key",
    [
        "job.seed=6",
        "job.rounds=31",
        "output.draws=21",
        'data.names=["ada","bob","cy"]',
        'data.test="t.csv"',
        "data.response=age",
        'data.ignore=["dose"]',
        "disclosure.rows=10",
        'data.columns.age.kind="numeric"',
        "model.prior_sd=3.0",
        'data.clients=["bo.csv","ada.csv","cy.csv"]',
    ],
)
def test_another_value_of_one_key_is_another_job(site, key):
    accept(site / "job.toml")
    config = load(site / "job.toml", [key])[0]
    assert Consent(site).find(digest_of(load(site / "job.toml")[0])) is not None
    assert Consent(site).find(digest_of(config)) is None


def test_a_column_that_only_another_sites_file_has_may_be_ignored(site):
    """A site looks at the job with its own file in the place of all others."""
    seen = as_seen_here(*load(site / "job.toml", ['data.ignore=["dose", "elsewhere"]']))
    assert seen.config.data.ignore == ["dose"]


def test_a_prior_that_is_a_table_is_of_the_job_and_names_no_file():
    job = {"job": {"method": "vertical"}, "data": {"clients": ["a.csv", "b.csv"], "id": "id", "response": "y"}}
    ours, theirs = (load(job | {"model": {"prior": {"sd": sd}}})[0] for sd in (1.0, 3.0))
    assert digest_of(ours) != digest_of(theirs)
    assert ours.keys_alone != theirs.keys_alone
    assert own_files(ours) == []
    maps = {
        "job": {"method": "sigma"},
        "data": {"clients": ["a.csv"], "area": "d", "response": "n"},
        "model": {"kind": "auxiliary"},
    }
    ours, theirs = (load({**maps, "model": {**maps["model"], "prior": path}})[0] for path in ("car", "/elsewhere/car"))
    assert digest_of(ours) == digest_of(theirs)
    assert own_files(ours) == ["model.prior"]


def test_every_key_that_is_a_path_is_a_file_or_a_name():
    marked = {key for name in METHODS for key in marked_keys(load_method(name).keys.Config, "path")}
    assert marked == {*OWN_PATHS, *NO_FILES}


def test_a_pattern_names_no_clients(tmp_path):
    with pytest.raises(JobError, match=r"data.clients: 'rows/\*.csv' is a pattern.*names every client"):
        digest_of(load(write_job(tmp_path / "a.toml", ["rows/*.csv"]))[0])
    with pytest.raises(JobError, match=r"data.clients is empty"):
        digest_of(load({"data": {"builtin": "breast-cancer"}})[0])


def test_a_job_that_goes_on_is_asked_for_by_other_bytes(site):
    accept(site / "job.toml")
    digest = digest_of(load(site / "job.toml")[0])
    assert [Consent(site).find(as_asked(digest, resume=resume)).resume for resume in (False, True)] == [False, True]


def test_accepting_shows_the_job_and_adds_it(site, capsys):
    assert main(["site", "accept", "job.toml", "--yes", "--who", "Ola", "--name", 'a "trial"\x7f']) == 0
    shown = capsys.readouterr().out
    assert "each client may send" in shown
    assert "this job, as client 'ada', is allowed" in shown
    (said,) = Consent(site).read().job
    assert (said.file, said.name, said.who) == ("job.toml", 'a "trial"\x7f', "Ola")
    assert bytes.fromhex(said.digest) == digest_of(load("job.toml")[0])
    assert os.stat(NAME).st_mode & 0o777 == 0o600
    assert [line["event"] for line in audit(site.parent, "ada")] == ["accepted"]
    assert main(["site", "accept", "job.toml"]) == 0
    assert "accepted already" in capsys.readouterr().out
    assert main(["site", "list"]) == 0
    assert "as accepted" in capsys.readouterr().out


def test_a_site_with_other_data_for_another_job_has_it_in_a_folder_below(site, tmp_path, capsys):
    below = site / "other"
    shutil.copytree(site, below, ignore=shutil.ignore_patterns("other"))
    assert main(["site", "accept", "other/job.toml", "--folder", ".", "--yes"]) == 0
    (said,) = Consent(site).read().job
    assert said.file == "other/job.toml"
    assert Consent(site).load(said)[1] == below  # with the site.toml there
    assert [line["file"] for line in audit(site.parent, "ada")] == ["other/job.toml"]
    assert not (below / NAME).exists()
    assert main(["site", "accept", "job.toml", "--folder", "other", "--yes"]) == 2
    assert "is not below" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["{out}/evil", "../evil", "link/evil", "~/evil"])
def test_a_job_chooses_no_folder_outside_the_sites(site, tmp_path, capsys, monkeypatch, where):
    """The path is no part of the digest: a copy of the job that was accepted may have it, too."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "out").mkdir()
    (site / "link").symlink_to(tmp_path / "out")
    accept(site / "job.toml")
    (said,) = Consent(site).read().job
    text = (site / "job.toml").read_text()
    line = f'client_folder = "{where.format(out=tmp_path / "out")}"\n'
    (site / "job.toml").write_text(text.replace("[output]\n", f"[output]\n{line}"))
    with refusal(JobError, "output.client_folder"):
        Consent(site).load(said)
    assert main(["site", "accept", "job.toml", "--yes", "--runs", "3"]) == 2
    assert "a job chooses no other place on this machine; remove the key" in capsys.readouterr().err


def test_a_folder_of_the_site_that_a_job_chooses_is_shown(site, capsys):
    text = (site / "job.toml").read_text()
    (site / "job.toml").write_text(text.replace("[output]\n", '[output]\nclient_folder = "own"\n'))
    assert main(["site", "accept", "job.toml", "--yes"]) == 0
    assert f"writes this site's own folder into {site / 'own'} (output.client_folder)" in capsys.readouterr().out


def test_nothing_is_accepted_without_a_yes(site, capsys, monkeypatch):
    assert main(["site", "accept", "job.toml"]) == 2  # nobody is there
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("fedkern.cli.site._agreed", lambda: False)
    assert main(["site", "accept", "job.toml"]) == 2
    assert not (site / NAME).exists()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda site: (site / "site.toml").unlink(), 'site.toml is not there: write client = "NAME"'),
        (lambda site: (site / "site.toml").write_text('path = "private/ada.csv"\n'), "client is missing"),
        (lambda site: (site / "site.toml").write_text('client = "eve"\n'), "'eve' is not in this job"),
        (lambda site: (site / "policy.toml").write_text('[data.ada]\nopen = true\nplaces = []\npaths = ["private"]\n'), "places"),
        (
            lambda site: (site / "policy.toml").write_text('[data.ada]\nepsilon = 1.0\ndelta = 1e-5\npaths = ["private"]\n'),
            "open",
        ),
        (lambda site: (site / "private" / "ada.csv").write_text("age,dose,died\n1,x,1\n"), "not accepted"),
        (lambda site: (site / "consent.toml").write_text("jobs = 3\n"), "jobs"),
    ],
)
def test_a_job_that_could_not_run_here_is_not_accepted(site, capsys, fault, text):
    fault(site)
    before = (site / NAME).read_bytes() if (site / NAME).exists() else None
    assert main(["site", "accept", "job.toml", "--yes"]) == 2
    told = capsys.readouterr()
    assert text in told.out + told.err
    assert before == ((site / NAME).read_bytes() if before is not None else None)


def test_a_revoked_job_is_listed_no_more_and_what_people_wrote_stays(site, capsys):
    (site / NAME).write_text('# ours\nopen = "ask"\n')
    (site / NAME).chmod(0o600)
    accept(site / "job.toml")
    write_job(site / "second.toml", [f"{name}.csv" for name in NAMES], rounds="rounds = 9\n")
    accept(site / "second.toml")
    assert main(["site", "revoke", "third.toml"]) == 2
    assert main(["site", "revoke", Consent(site).read().job[0].digest[:8]]) == 0
    assert [said.file for said in Consent(site).read().job] == ["second.toml"]
    assert (site / NAME).read_text().startswith('# ours\nopen = "ask"\n')
    assert main(["site", "list"]) == 0
    assert "waits for `fedkern site accept`" in capsys.readouterr().out


def test_a_list_that_others_may_write_to_accepts_nothing(site):
    accept(site / "job.toml")
    (site / NAME).chmod(0o620)
    with pytest.raises(JobError, match=r"other users may write to it \(mode 620\); chmod go-w"):
        Consent(site).find(bytes(32))


def test_a_list_of_another_user_accepts_nothing(site, monkeypatch):
    accept(site / "job.toml")
    own = os.stat(site / NAME).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    if own:
        with pytest.raises(JobError, match="belongs to another user"):
            Consent(site).find(bytes(32))
    else:
        assert Consent(site).find(bytes(32)) is None  # root could write to it anyhow
        os.chown(site / NAME, 12345, -1)
        with pytest.raises(JobError, match=r"belongs to another user \(number 12345\)"):
            Consent(site).find(bytes(32))


def run_once(folder):
    """Runs the job; returns the server's code and what ada's log says last."""
    code, _, _ = run(folder, residents(folder), out=f"out-{len(list((folder / 'server').iterdir()))}")
    return code, audit(folder, "ada")[-1]


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """A site that has accepted a job for two runs, beside others without a limit; its runs end at once."""
    monkeypatch.setattr("fedkern.bridges.site.perform", lambda *given: (_ for _ in ()).throw(JobError("it was only to begin")))
    found(tmp_path, accepted=("bo", "cy"))
    assert main(["site", "accept", str(tmp_path / "ada" / "job.toml"), "--yes", "--runs", "2", "--until", "2999-01-31"]) == 0
    return tmp_path


def test_a_consent_is_for_so_many_runs_and_no_more(limited, capsys):
    site = limited / "ada"
    assert Consent(site).read().job[0].limits == "2 runs, until 2999-01-31"
    for begun in (1, 2):
        assert run_once(limited)[1]["event"] == "ended"
        assert main(["site", "list", str(site)]) == 0
        told = capsys.readouterr().out
        assert ("as accepted, 1 begun" if begun == 1 else "refused: it was accepted for 2 runs, until 2999-01-31") in told
    code, said = run_once(limited)
    assert (code, said["event"]) == (2, "refused")
    assert "job.toml: it was accepted for 2 runs, until 2999-01-31, and has begun 2 times" in said["why"]
    assert main(["site", "accept", str(site / "job.toml"), "--yes", "--runs", "1"]) == 0  # and is asked anew
    assert len(Consent(site).read().job) == 1
    assert [run_once(limited)[1]["event"] for _ in range(2)] == ["ended", "refused"]
    assert main(["site", "list", str(limited / "bo")]) == 0
    assert "unlimited  as accepted" in capsys.readouterr().out


def test_a_consent_that_says_no_number_is_for_a_few_runs(tmp_path, capsys):
    found(tmp_path, accepted=())
    job, site = str(tmp_path / "ada" / "job.toml"), tmp_path / "ada"
    assert main(["site", "accept", job, "--yes"]) == 0
    assert "on these rows, for 10 runs." in capsys.readouterr().out
    assert Consent(site).read().job[0].runs == MOST_RUNS == 10
    assert main(["site", "accept", job, "--yes", "--runs", "unlimited"]) == 0
    assert "on these rows, as often as the policy allows." in capsys.readouterr().out
    assert Consent(site).read().job[0].runs is None
    assert main(["site", "accept", job, "--yes"]) == 0  # it says nothing else, and changes nothing
    assert "accepted already" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["site", "accept", "--help"])
    assert f'or "{UNLIMITED}" (default: {MOST_RUNS})' in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "why"), [("audit.jsonl", "the log does not have the line of the acceptance"), (".audit.jsonl.lock", "")]
)
def test_no_file_that_is_gone_gives_a_job_more_runs(limited, name, why):
    for _ in range(2):
        run_once(limited)
    (limited / "ada" / name).unlink()
    code, said = run_once(limited)
    assert (code, said["event"]) == (2, "refused")
    assert (why or "has begun 2 times") in said["why"]


def test_a_consent_ends_with_its_last_day(limited, monkeypatch):
    monkeypatch.setattr("fedkern.bridges.consent.now", lambda: "2999-01-31T23:59:59Z")
    assert run_once(limited)[1]["event"] == "ended"
    monkeypatch.setattr("fedkern.bridges.consent.now", lambda: "2999-02-01T00:00:00Z")
    code, said = run_once(limited)
    assert (code, said["event"]) == (2, "refused")
    assert "it was accepted until 2999-01-31" in said["why"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--runs", "0"], "wanted a number of at least 1"),
        (["--until", "tomorrow"], "wanted a day, such as 2027-01-31"),
        (["--until", "2020-01-31"], "this day is over"),
    ],
)
def test_limits_that_are_none_are_refused(site, capsys, options, why):
    assert main(["site", "accept", "job.toml", "--yes", *options]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("runs = 0", "runs"),
        ("until = 2027-01-31T00:00:00Z", "until"),
        ('until = "2027-01-31"', "until"),
        ('peers = {bo = "SHA256:12"}', "peers"),
        ('line = "12"', "line"),
    ],
)
def test_a_list_with_limits_that_are_none_accepts_nothing(site, line, why):
    accept(site / "job.toml")
    with (site / NAME).open("a") as file:
        file.write(f"{line}\n" if line.split()[0] not in (site / NAME).read_text() else "")
    if line.startswith("line"):
        (site / NAME).write_text((site / NAME).read_text().replace('line = ""', line))
    with pytest.raises(JobError, match=why):
        Consent(site).find(bytes(32))


CHANGES = """
import sys
from pathlib import Path
from fedkern.bridges.consent import AcceptedSection, Consent
folder, number = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
for job in range(10):
    said = AcceptedSection(digest=f"{100 * number + job:064x}", file=f"{number}-{job}.toml")
    Consent(folder).add(said)
    if job % 2:
        Consent(folder).remove(lambda one: one.file == said.file)
"""


def test_processes_that_change_the_list_at_once_lose_nothing(tmp_path):
    (tmp_path / "changes.py").write_text(CHANGES)
    words = [*forking(), str(tmp_path / "changes.py"), str(tmp_path)]
    processes = [
        subprocess.Popen([*words, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for number in range(4)
    ]
    try:
        for one in processes:
            assert one.stdout.readline() == "ready\n"
        for one in processes:
            one.stdin.close()
        assert [one.wait(60.0) for one in processes] == [0] * 4
    finally:
        for one in processes:
            one.kill()
            one.wait()
            one.stdout.close()
    files = {said.file for said in Consent(tmp_path).read().job}
    assert files == {f"{number}-{job}.toml" for number in range(4) for job in range(0, 10, 2)}


def test_processes_that_begin_at_once_share_one_count(tmp_path):
    """Engines with several jobs have a process for each: the count and the line of the start are one step."""
    audit = Audit(tmp_path)
    said = AcceptedSection(digest="ab" * 32, file="job.toml", runs=3, line=audit.write("accepted", job="ab" * 32))
    refused = []

    def begin():
        try:
            Audit(tmp_path).write("started", lambda: check_limits(said, Audit(tmp_path)), job=said.digest)
        except JobError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert audit.starts(said.digest, said.line) == 3
    assert len(refused) == 5
    assert all("accepted for 3 runs, and has begun 3 times; fedkern site accept lets it begin again" in one for one in refused)


@pytest.fixture
def began(tmp_path, monkeypatch):
    """A federation whose sites have accepted the job; its runs end as soon as all have begun."""
    monkeypatch.setattr("fedkern.bridges.site.perform", lambda *given: (_ for _ in ()).throw(JobError("it was only to begin")))
    found(tmp_path)
    return tmp_path


def inline(text):
    """Writes the only job of a list as a table in a line."""
    head, _, job = text.partition("[[job]]")
    return f"{head}job = [{{{', '.join(line for line in job.splitlines() if line)}}}]\n"


# Each is TOML, and none is what the command writes.
WRITTEN = {
    "as the command does": lambda text: text,
    "blanks in the header": lambda text: text.replace("[[job]]", "[[ job ]]"),
    "a quoted key": lambda text: text.replace("[[job]]", '[["job"]]'),
    "a table in a line": inline,
    "a byte order mark": lambda text: f"\ufeff{text}",
    "a header in a text": lambda text: text.replace('who = "ada"', "who = '''ada\n[[job]]\n'''"),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_however_a_list_is_written_a_revoked_job_begins_no_more(began, capsys, way):
    site = began / "ada"
    (site / NAME).write_text(WRITTEN[way]((site / NAME).read_text()))
    assert main(["site", "list", str(site)]) == 0
    assert "as accepted" in capsys.readouterr().out
    assert run_once(began)[1]["event"] == "ended"
    assert main(["site", "revoke", "job.toml", str(site)]) == 0
    assert "revoked job.toml" in capsys.readouterr().out
    assert Consent(site).read().job == []
    assert (site / NAME).read_text().startswith("# Jobs in which")  # comments stay
    code, said = run_once(began)
    assert (code, said["event"]) == (2, "refused")
    assert main(["site", "accept", str(site / "job.toml"), "--yes"]) == 0
    assert run_once(began)[1]["event"] == "ended"


@pytest.mark.parametrize("way", WRITTEN)
def test_however_a_list_is_written_jobs_can_be_added(site, way):
    accept(site / "job.toml")
    (site / NAME).write_text('open = "ask"  # ours\n' + WRITTEN[way]((site / NAME).read_text()).lstrip("\ufeff"))
    second = write_job(site / "second.toml", [f"{name}.csv" for name in NAMES], rounds="rounds = 9\n")
    assert main(["site", "accept", str(second), "--yes", "--who", "Ola"]) == 0
    said = Consent(site).read()
    assert (said.open, [(job.file, job.who.strip()) for job in said.job]) == (
        "ask",
        [("job.toml", "ada" if way != "a header in a text" else "ada\n[[job]]"), ("second.toml", "Ola")],
    )


def test_a_revoked_job_begins_by_no_copy_of_it(began, capsys):
    site = began / "ada"
    copy = shutil.copy(site / "job.toml", site / "job-v2.toml")
    text = (site / NAME).read_text()
    accept(site / "job-v2.toml")  # it takes the place of the first
    assert [said.file for said in Consent(site).read().job] == ["job-v2.toml"]
    (site / NAME).write_text((site / NAME).read_text() + text[text.index("[[job]]") :])  # somebody writes both
    assert main(["site", "list", str(site)]) == 0
    assert capsys.readouterr().out.count("names this job more than once (job-v2.toml, job.toml)") == 2
    code, said = run_once(began)
    assert (code, said["event"]) == (2, "refused")
    assert "`fedkern site accept` of the file that you mean leaves that one alone" in said["why"]
    assert main(["site", "accept", str(copy), "--yes"]) == 0  # which is what was advised
    assert "It takes the place of job.toml" in capsys.readouterr().out
    assert run_once(began)[1]["event"] == "ended"
    (site / NAME).write_text((site / NAME).read_text() + text[text.index("[[job]]") :])
    assert main(["site", "revoke", "job-v2.toml", str(site)]) == 0
    told = capsys.readouterr().out
    assert "revoked job-v2.toml" in told
    assert "revoked job.toml" in told
    assert [line["file"] for line in audit(began, "ada")[-2:]] == ["job-v2.toml", "job.toml"]
    assert run_once(began)[1]["event"] == "refused"


def test_a_job_file_that_was_renamed_is_accepted_anew(began, capsys):
    site = began / "ada"
    (site / "job.toml").rename(site / "stroke.toml")
    assert main(["site", "list", str(site)]) == 0
    assert "refused:" in capsys.readouterr().out
    assert run_once(began)[1]["event"] == "refused"
    assert main(["site", "accept", str(site / "stroke.toml"), "--yes"]) == 0
    assert main(["site", "list", str(site)]) == 0
    told = capsys.readouterr().out
    assert "as accepted" in told
    assert "refused:" not in told
    assert run_once(began)[1]["event"] == "ended"


def test_a_list_that_another_program_puts_back_is_not_called_revoked(site, capsys, monkeypatch):
    accept(site / "job.toml")
    monkeypatch.setattr(Consent, "_put", lambda self, text: None)
    assert main(["site", "revoke", "job.toml"]) == 2
    told = capsys.readouterr()
    assert "consent.toml: still accepts job.toml" in told.err
    assert "revoked" not in told.out
    assert audit(site.parent, "ada") == []


def test_a_list_that_cannot_be_written_stays_as_it_was_and_the_log_says_so(site, capsys, monkeypatch):
    accept(site / "job.toml")

    def full(*given, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedkern.ground.Ground.put", full)
    assert main(["site", "revoke", "job.toml"]) == 2
    assert "consent.toml: cannot be written (No space left on device), and stays as it was" in capsys.readouterr().err
    assert audit(site.parent, "ada") == []
    second = write_job(site / "second.toml", [f"{name}.csv" for name in NAMES], rounds="rounds = 9\n")
    assert main(["site", "accept", str(second), "--yes"]) == 2
    assert [line["event"] for line in audit(site.parent, "ada")] == ["accepted", "failed"]


@pytest.mark.parametrize("step", [["accept", "job.toml", "--yes"], ["revoke", "job.toml"]])
def test_a_log_that_cannot_be_written_is_named(site, capsys, monkeypatch, step):
    if step[0] == "revoke":
        accept(site / "job.toml")
    write = os.write

    def full(file, data):
        if data.startswith(b'{"time"'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    assert main(["site", *step]) == 2
    told = capsys.readouterr().err
    assert f"{site / 'audit.jsonl'}" in told
    assert "No space left on device" in told
    assert "standard output" not in told
    assert not Consent(site).read().job


@pytest.mark.parametrize("step", [["list"], ["revoke", "job.toml"]])
def test_a_folder_that_is_no_sites_is_no_all_clear(tmp_path, capsys, step):
    assert main(["site", *step, str(tmp_path / "stie")]) == 2
    assert "stie: no such folder; give the one of the site" in capsys.readouterr().err
    assert main(["site", *step, str(tmp_path)]) == 2
    assert "neither consent.toml nor site.toml is here" in capsys.readouterr().err
