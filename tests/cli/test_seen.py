"""A job of several organisations, as one of them can see it before it accepts: also where another has the response."""

import shutil

import pytest

from fedkern.bridges.consent import Consent
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from support.organisations import audit, found

PARTS = ("each client may send", "the server may send")


@pytest.fixture
def command(capsys):
    """Returns a function that runs a command and returns what it prints."""

    def run(*arguments):
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def vertical(tmp_path, command):
    """Makes a vertical federation, and the folder of its first client with a policy that asks to be named; returns both."""
    whole, site = tmp_path / "whole", tmp_path / "client-01"
    command("simulate", "vertical", "--out", str(whole), "--rows", "60", "--clients", "3")
    names = [f"client-{k:02}" for k in (1, 2, 3)]
    files = ", ".join(f'"clients/{name}.csv"' for name in names)
    job = (whole / "job.toml").read_text().replace('"clients/*.csv"', files)
    (whole / "job.toml").write_text(job)
    site.mkdir()
    shutil.copy(whole / "clients" / "client-01.csv", site)
    (site / "job.toml").write_text(job)
    (site / "site.toml").write_text('client = "client-01"\npath = "client-01.csv"\npolicy = "policy.toml"\n')
    policy = 'require = true\nopen = true\nplaces = ["fedkern.places:Spoke"]\n[data.ours]\npaths = ["client-01.csv"]\n'
    (site / "policy.toml").write_text(policy)
    return whole, site


def parts(text):
    """Returns the lines of a check that name messages, their fields and sizes."""
    lines = text.splitlines()
    at = [lines.index(part) for part in PARTS]
    return [line for start in at for line in lines[start : start + 12] if line] + [one for one in lines if "disclosure" in one]


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize("positive", [False, True])
def test_a_site_sees_a_vertical_job_whose_response_another_has(vertical, command, where, positive):
    whole, site = vertical
    if positive:
        rows = (whole / "server.csv").read_text().splitlines()
        (whole / "server.csv").write_text("\n".join([rows[0], *(f"{row[:-1]}{'ny'[int(row[-1])]}" for row in rows[1:])]) + "\n")
    for folder in vertical:
        text = (folder / "job.toml").read_text()
        text = text.replace('response = "y"\n', 'response = "y"\npositive = "y"\n') if positive else text
        (folder / "job.toml").write_text(text if where == "server" else text.replace('server = "server.csv"\n', ""))
    if where == "client":
        ours = (whole / "clients" / "client-03.csv").read_text().splitlines()
        y = dict(row.split(",") for row in (whole / "server.csv").read_text().splitlines())
        (whole / "clients" / "client-03.csv").write_text("\n".join(f"{row},{y[row.split(',')[0]]}" for row in ours) + "\n")
    shown = command("site", "accept", str(site / "job.toml"), "--yes")
    assert parts(shown) == parts(command("check", "--verbose", str(whole / "job.toml"), "--apart"))
    assert "zeros and ones stand for it" in shown
    assert "this job, as client 'client-01', is allowed" in shown
    assert len(Consent(site).read().job) == 1
    assert "unseen" not in audit(site.parent, "client-01")[-1]


def test_what_could_not_be_shown_is_named_and_accepted_by_a_yes_alone(tmp_path, monkeypatch, capsys):
    found(tmp_path, accepted=())
    job = str(tmp_path / "ada" / "job.toml")

    def unseen(*given):
        raise JobError("another party has it")

    monkeypatch.setattr("fedkern.cli.seen.check_job", unseen)
    monkeypatch.setattr("fedkern.cli.site._agreed", lambda: True)
    assert main(["site", "accept", job]) == 2
    told = capsys.readouterr()
    what = "the model, each kind of message, and what can be told of rows"
    assert f"Not shown: {what}. They cannot be had without the other parties (another party has it)." in told.out
    assert f"job.toml is not accepted: {what} could not be shown, see above; --yes accepts it all the same" in told.err
    assert Consent(tmp_path / "ada").read().job == []
    assert main(["site", "accept", job, "--yes"]) == 0
    assert audit(tmp_path, "ada")[-1]["unseen"] == "another party has it"
