"""A job between residents: each holder has a folder, a copy of the job, paths and a policy of its own."""

import pytest

from fedkern.bridges.digest import digest_of
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.holders import SPENT
from fedkern.jobs.holding.budget import Books, Near
from fedkern.jobs.ledger import write_early
from fedkern.methods import load
from fedkern.transports import tags
from fedkern.transports.relay_letters import Letter
from support.organisations import (
    NAMES,
    POLICY,
    PRIVATE_JOB,
    PRIVATE_POLICY,
    audit,
    digest_of_run,
    found,
    in_one_process,
    residents,
    run,
    write_rows,
)
from support.own_package import found_first, installed
from support.relayed import careless

pytestmark = pytest.mark.usefixtures("one_thread_of_blas")


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
        assert all(of_kind["bytes"] > 0 for kind, of_kind in ended["sent"].items() if kind not in ("run", "bye"))
        assert {"hello", "run", "bye"} <= ended["sent"].keys()  # beside the rounds


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


def near_jobs(folder, differencing):
    """Makes sites of which one has two jobs: of all clients, and of all with a fourth."""
    found(folder, POLICY + f'[data.{{name}}.disclosure]\ndifferencing = "{differencing}"\n')
    for name in NAMES:
        own = folder / name / "job.toml"
        more = own.read_text().replace("clients = [", 'clients = ["dee.csv", ').replace("of-", "")
        own.with_name("four.toml").write_text(more)


def test_a_warning_reaches_the_residents_output_and_the_audit_log(tmp_path, monkeypatch):
    """A job whose clients are those of an earlier one but for one; the policy lets it run, and says so."""
    near_jobs(tmp_path, "say")
    earlier = Near("2026-11-01", frozenset({"dee"}))
    monkeypatch.setattr(Books, "near", lambda self, *about: [earlier])
    said = []
    code, _, _ = run(tmp_path, residents(tmp_path, said))
    assert code == 0
    text = "the clients of an earlier job on these data (2026-11-01) were those of this one but for 'dee'"
    assert sum(text in line for name, line in said if name == "ada") == 1
    lines = audit(tmp_path, "ada")
    assert [line["event"] for line in lines] == ["started", "warned", "ended"]
    assert text in lines[1]["why"]
    assert main(["site", "log", str(tmp_path / "ada")]) == 0


def test_accepting_compares_with_the_jobs_that_were_accepted_before(tmp_path, capsys):
    near_jobs(tmp_path, "say")
    assert main(["site", "accept", str(tmp_path / "ada" / "four.toml"), "--yes"]) == 0
    note = "note: the clients of job.toml, accepted 2026-11-27T18:20:00Z, are those of this job but for 'dee'"
    assert note in capsys.readouterr().out
    site = tmp_path / "ada" / "site.toml"
    (tmp_path / "ada" / "pharmacy").mkdir()
    other = tmp_path / "ada" / "pharmacy"
    write_rows(other / "rows.csv", 7)
    (other / "site.toml").write_text(
        site.read_text().replace("private/ada.csv", "rows.csv").replace("policy.toml", "../policy.toml")
    )
    (other / "job.toml").write_text((tmp_path / "ada" / "four.toml").read_text().replace("seed = 5", "seed = 6"))
    policy = tmp_path / "ada" / "policy.toml"
    policy.write_text(policy.read_text().replace('["private/ada.csv"]', '["private/ada.csv", "pharmacy"]'))
    assert main(["site", "accept", str(other / "job.toml"), "--folder", str(tmp_path / "ada"), "--yes"]) == 0
    assert "note: the clients of" not in capsys.readouterr().out  # other rows


def test_a_budget_that_a_policy_has_spent_is_named_on_both_sides(tmp_path):
    """The server reads whose epsilon it is not; the site's own log says that its budget has refused."""
    found(tmp_path, PRIVATE_POLICY.replace("epsilon = 100.0", "epsilon = 0.01"), **PRIVATE_JOB)
    said = []
    code, heard, _ = run(tmp_path, residents(tmp_path, said))
    assert code == 5
    assert (
        "at 'ada', 'bo', 'cy' the job's own epsilon pays for an update, and what the holder allows over all jobs does not"
        in heard[0]
    )
    assert "raise epsilon" not in heard[0]
    assert "0.01" not in heard[0]
    ends = {name: audit(tmp_path, name)[-1]["why"] for name in NAMES}
    assert set(ends.values()) == {SPENT}
    assert sum(SPENT in line for name, line in said if name == "ada") == 1


@pytest.mark.parametrize("fault", ["a-wrong-cell", "few-rows", "policy"])
def test_what_leaves_before_a_job_begins_is_in_the_log_and_in_a_ledger(tmp_path, capsys, monkeypatch, fault):
    """A fault's text leaves, and that it comes tells of rows: "nothing" would be false. The wire is the judge."""
    found(tmp_path)
    home = tmp_path / "ada"
    rows = home / "private" / "ada.csv"
    lines = rows.read_text().splitlines()
    if fault == "few-rows":
        rows.write_text("\n".join(lines[:16]) + "\n")
    elif fault == "a-wrong-cell":
        rows.write_text("\n".join([*lines[:-1], lines[-1][:-1] + "7"]) + "\n")
    else:
        (home / "policy.toml").write_text("open = false\n" + (home / "policy.toml").read_text().replace("open = true\n", ""))
    sites, left = residents(tmp_path), []
    answer = sites["ada"].answer

    def listened(request, *who):
        reply = answer(request, *who)
        left.extend(Letter.unpack(reply).items)
        return reply

    monkeypatch.setattr(sites["ada"], "answer", listened)
    code, _, _ = run(tmp_path, sites)
    assert code == JobError.exit_code
    ended = next(line for line in audit(tmp_path, "ada") if line["event"] == "ended")
    # A letter may come twice; a kind of `GATHER` has its own name in the log.
    names = {tags.GATHER: ("hello", "run", "offers"), tags.FAULT: ("fault",), tags.BYE: ("bye",)}
    once = dict.fromkeys((number % tags.RUN, bytes(data)) for number, data in left)
    for tag, kinds in names.items():
        sent = [ended["sent"][kind] for kind in kinds if kind in ended["sent"]]
        assert sum(one["bytes"] for one in sent) == sum(len(data) for number, data in once if number == tag), tag
    assert ended["sent"]["fault"]["messages"] == 1
    assert main(["site", "log", str(home)]) == 0
    assert "left: hello 1 (101 bytes)" in capsys.readouterr().out
    for folder in (home / "runs" / "job", home / "runs" / "job" / "client-ada"):
        assert main(["ledger", str(folder)]) == 0
        said = capsys.readouterr().out
        for kind, sums in ended["sent"].items():
            if kind != "bye":  # the last word of all, after the ledger is sealed
                assert any(line.split()[3:6] == [kind, str(sums["messages"]), str(sums["bytes"])] for line in said.splitlines())


def test_a_start_that_fails_adds_nothing_to_the_ledgers_of_an_earlier_one(tmp_path):
    """These may be sealed: the log alone says what has left of this start."""
    (tmp_path / "run" / "ledger").mkdir(parents=True)
    path = tmp_path / "run" / "ledger" / "rank-1.jsonl"
    assert not write_early(path, [("hello", 101)])
    assert not path.exists()
    assert not write_early(tmp_path / "none" / "ledger" / "rank-1.jsonl", [("hello", 101)])


def test_accepting_compares_with_the_rows_of_jobs_that_have_not_run(tmp_path, capsys):
    """One patient's cell is "empty" by one job's rule and not by the other's: several such jobs are one line."""
    found(tmp_path)
    home = tmp_path / "ada"
    text = (home / "job.toml").read_text()
    first = (home / "private" / "ada.csv").read_text().splitlines()[1].split(",")[0]
    for seed, name in enumerate(("one", "two")):
        (home / f"{name}.toml").write_text(text.replace("seed = 5", f"seed = {7 + seed}"))
        assert main(["site", "accept", str(home / f"{name}.toml"), "--yes"]) == 0
        said = capsys.readouterr().out
        assert "note: the rows here" not in said  # the same rows
    less = text.replace("seed = 5", "seed = 9").replace(
        "[output]", f'[model]\nmissing = "drop"\n[data.dialect]\nmissing = ["{first}"]\n[output]'
    )
    (home / "less.toml").write_text(less)
    assert main(["site", "accept", str(home / "less.toml"), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "\nnote: the rows here that count in job.toml and of 2 more are those of this job but for fewer than 20" in said
    assert "\\n" not in said
    assert digest_of(load(home / "less.toml")[0]).hex() in said


def test_a_function_of_a_job_is_not_run_where_no_policy_lists_it(tmp_path, capsys, monkeypatch):
    """To show the job is to run its code on the rows, and nobody has said yes to that."""
    monkeypatch.setenv("FEDKERN_SITE", "")  # --site sets it for the process
    monkeypatch.delenv("FEDKERN_SITE")
    found(tmp_path, accepted=())
    home, mark = tmp_path / "ada", tmp_path / "ran"
    installed(
        tmp_path / "packages",
        "models_of_nobody",
        f"open({str(mark)!r}, 'w')\ndef make(table, options):\n    open({str(mark)!r}, 'w')\n",
    )
    found_first(monkeypatch, tmp_path / "packages", "models_of_nobody")
    (home / "site.toml").write_text('client = "ada"\npath = "private/ada.csv"\n')
    job = (home / "job.toml").read_text().replace(
        'response = "died"\n', ""
    ) + '[model]\nkind = "own"\nfactory = "models_of_nobody:make"\n[model.priors]\na = {kind = "normal", sd = 1.0}\n'
    (home / "job.toml").write_text(job)
    assert main(["site", "accept", str(home / "job.toml"), "--yes"]) == JobError.exit_code
    assert "no policy names these data: nothing of it was run" in capsys.readouterr().err
    assert not mark.exists()


def test_the_log_has_the_sites_own_exit_code_beside_the_servers_word(tmp_path, monkeypatch, capsys):
    """A server may say that a job has ended well in which a site refused to take part."""
    found(tmp_path)
    monkeypatch.setattr("fedkern.bridges.site.perform", lambda *given: (_ for _ in ()).throw(JobError("it was only to begin")))
    monkeypatch.setattr("fedkern.transports.relay.end", lambda ranks, code, text, say: 0)
    sites = residents(tmp_path)
    sites["ada"].answer(Letter(0, b"j" * 16, 1, [], digest_of(load(tmp_path / "ada" / "job.toml")[0])).pack())
    assert sites["ada"].join(30.0)
    ended = audit(tmp_path, "ada")[-1]
    assert (ended["event"], ended["exit"], ended["own"], ended["why"]) == ("ended", 0, 2, "it was only to begin")
    assert main(["site", "log", str(tmp_path / "ada")]) == 0
    assert "code 0 (here 2); left" in capsys.readouterr().out


def test_accepting_compares_with_the_columns_of_jobs_that_have_not_run(tmp_path, capsys):
    found(tmp_path)
    home = tmp_path / "ada"
    text = (home / "job.toml").read_text()
    name = (home / "private" / "ada.csv").read_text().split(",")[0]
    ages = sorted(float(line.split(",")[0]) for line in (home / "private" / "ada.csv").read_text().splitlines()[1:])
    said = []
    for number, age in enumerate(((ages[30] + ages[31]) / 2, (ages[31] + ages[32]) / 2)):
        formula = f'[model]\nformula = "died ~ dose + exp(-exp(-1e6 * ({name} - {age})))"\n[output]'
        (home / f"step-{number}.toml").write_text(text.replace("[output]", formula))
        assert main(["site", "accept", str(home / f"step-{number}.toml"), "--yes"]) == 0
        said.append(" but in fewer than 20 rows here: what is told once in both tells" in capsys.readouterr().out)
    assert said == [False, True]
