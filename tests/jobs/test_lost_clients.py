"""A client that is lost is named, with its rank, in every protocol; and what the job says then is true."""

import json
import sys
from types import SimpleNamespace

import pytest

import fedkern
from fedkern.api import find_ending, perform
from fedkern.cli.__main__ import main
from fedkern.errors import LostPeer
from fedkern.jobs import progress
from fedkern.jobs.run import Output
from fedkern.jobs.watch import Line, Watch
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.command import OPEN, PRIVATE
from support.kills import make_job
from support.losing import WHY, Losing


def lose(protocol, path, tmp_path, sections, after=0):
    place = Losing(protocol, after)
    config, folder = load(path, sections=sections)
    try:
        return perform(place, config, folder, Output(tmp_path / "out", quiet=True))
    finally:
        assert place.came, f"there is no protocol {protocol}"


def at_a_client(path):
    """The response of a vertical job moves from the server to its first client."""
    server = dict(line.split(",") for line in (path.parent / "server.csv").read_text().splitlines())
    first = sorted(path.parent.glob("clients/*.csv"))[0]
    lines = [line.split(",") for line in first.read_text().splitlines()]
    at = lines[0].index("id")
    first.write_text("\n".join(",".join([*line, server[line[at]]]) for line in lines) + "\n")
    path.write_text(path.read_text().replace('server = "server.csv"\n', ""))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Method -> a job file; each made once."""
    made = {}

    def get(method):
        if method not in made:
            made[method] = make_job(method.removesuffix("-response"), tmp_path_factory.mktemp(method))
            if method.endswith("-response"):
                at_a_client(made[method])
        return made[method]

    return get


SHORT = {"job": {"rounds": 4}}
POOLED = {"algorithm": {"statistics": "pooled", "chains": 2, "burn_in": 1}}
STOPPING = [  # method, protocol, sections that change the job
    ("pvi", "agreement", {}),
    ("sparse", "agreement", {}),
    ("sparse", "scaling", {}),
    ("sparse", "gibbs", {}),
    ("sparse", "gibbs-pooled", POOLED),
    ("sparse", "site-fits", {"output": {"site_fits": True}}),
    ("vertical", "alignment", {}),
    ("vertical", "vertical", {}),
    ("vertical", "prediction", {}),
    ("vertical", "soul", {"algorithm": {"inference": "soul", "auxiliary": "mean-field"}}),
    ("vertical-response", "response", {}),
    ("sigma", "prior", {}),
    ("sigma", "sfvi", {}),
    ("sigma", "hmc", {"algorithm": {"inference": "hmc", "burn_in": 1}}),
]


@pytest.mark.parametrize(("method", "protocol", "sections"), STOPPING)
def test_a_job_that_cannot_go_on_names_the_client_and_its_rank(method, protocol, sections, jobs, tmp_path):
    name = {"pvi": "client-2", "sigma": "north"}.get(method, "client-02")
    with pytest.raises(LostPeer, match=rf"^{WHY}.*client '{name}'.*(resume goes on|start the job again)"):
        lose(protocol, jobs(method), tmp_path, SHORT | sections)


@pytest.mark.parametrize("private", [False, True])
def test_a_lost_client_comes_back_where_the_run_is_resumed_with_its_rank(private, tmp_path):
    """Of a private job its updates are paid for, and it stays lost."""
    (tmp_path / "job.toml").write_text(PRIVATE if private else OPEN.replace("rounds = 3", "rounds = 20"))
    whole = fedkern.run(tmp_path / "job.toml", out=tmp_path / "whole")
    config, folder = load(tmp_path / "job.toml")
    with pytest.raises(LostPeer, match="stopped by SIGTERM"):
        perform(Losing("pvi", after=2, stop=3), config, folder, Output(tmp_path / "out", quiet=True))
    result = perform(InProcess(), config, folder, Output(tmp_path / "out", resume=True, quiet=True))
    assert result.summary["clients"]["client-2"]["status"] == ("lost" if private else "finished")
    assert (find_ending(result, 0)[0] == 4) is private
    back = [note for note in result.summary["notes"] if "which had been lost, is back" in note]
    assert len(back) == (not private)
    if not private:
        for name, one in whole.parameters.items():
            assert result.parameters[name]["mean"] == pytest.approx(one["mean"], abs=0.1 * one["sd"]), name


GOING_ON = {
    "pvi": OPEN,
    "global-vi": OPEN + '[algorithm]\nvariant = "global-vi"\n',
    "pvi-client-level": PRIVATE.replace("sampling_rate = 0.1", 'unit = "client"').replace("local_steps = 5\n", ""),
}


@pytest.mark.parametrize("protocol", GOING_ON)
def test_a_job_that_goes_on_names_the_client_and_its_rank_at_the_end(protocol, tmp_path, capsys):
    (tmp_path / "job.toml").write_text(GOING_ON[protocol])
    result = lose(protocol, tmp_path / "job.toml", tmp_path, {})
    assert result.summary["clients"]["client-2"]["status"] == "lost"
    assert result.summary["clients"]["client-2"]["lost"] == WHY
    assert find_ending(result, 0) == (4, "finished without client 'client-2' (rank 2 has died)")
    assert "finished" not in capsys.readouterr().err  # who asks for the words says them


@pytest.mark.parametrize("private", [False, True])
def test_updates_of_a_client_that_was_lost_later_are_said_to_be_in_the_result(private, tmp_path, capsys):
    (tmp_path / "job.toml").write_text(PRIVATE if private else OPEN)
    result = lose("pvi", tmp_path / "job.toml", tmp_path, {}, after=7)
    client = result.summary["clients"]["client-2"]
    assert (client["status"], client["in_result"]) == ("lost", True)
    (said,) = (note for note in result.summary["notes"] if "client-2" in note and "lost" in note)
    assert f"was lost after {client['updates']} updates: they are in this result" in said
    assert ("it has told no certificate" in said) == private
    code, said = find_ending(result, 0)
    assert (code, said) == (4, "finished without client 'client-2' (rank 2 has died, but its updates are in it)")


def test_rounds_that_begin_anew_are_counted_to_their_own_end(jobs, tmp_path, capsys):
    """Of a sampler that goes on as another model: its rounds begin again with the loss."""
    # `Losing` counts turns of the exchange, and a checkpoint takes a turn of its own: after 0.01 s, as these jobs have it, a slow
    # machine came to the loss some rounds earlier. Without one each turn is a round.
    sections = {"job": {"rounds": 12}, "algorithm": {"on_loss": "drop", "burn_in": 3, "chains": 2, "checkpoint_every": 3600}}
    sections |= {"output": {"metrics_every": 2}}
    config, folder = load(jobs("sparse"), sections=sections)
    out = tmp_path / "out"
    perform(Losing("gibbs", after=7), config, folder, Output(out, quiet=True))
    assert main(["status", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "finished, round 19 of 19 (12 since round 7, when they began anew without a client that was lost)"
    )
    assert main(["status", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["round"], said["rounds"], said["since"]) == (19, 19, 7)
    (out / "summary.json").unlink()  # as while it goes
    lines = (out / "metrics.jsonl").read_text().splitlines()
    for n, wanted in ((3, "interrupted, round 6 of 12"), (5, "interrupted, round 10 of 19 (12 since round 7, ")):
        (out / "metrics.jsonl").write_text("\n".join(lines[:n]) + "\n")
        assert main(["status", str(out)]) == 0
        assert capsys.readouterr().out.startswith(wanted)


def test_the_progress_goes_to_the_end_of_the_rounds_that_began_anew(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    state = SimpleNamespace(round=7, since=0, stop=None)
    written = []
    with progress.Progress(12, stream=sys.stderr) as shown:
        watch = Watch(lambda state, due: Line({}, ""), 1, written.append, shown, timed=False)
        watch(state)
        watch(SimpleNamespace(round=8, since=7, stop=None))
    assert [line.split("round ")[1] for line in capsys.readouterr().err.splitlines()] == ["7 of 12", "8 of 19"]
    assert written == [{"round": 7}, {"round": 8, "since": 7}]
