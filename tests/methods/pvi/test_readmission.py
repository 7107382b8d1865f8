"""A lost client of an open job comes back where the run is resumed: the site that the server has of it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.messages import ClientBack, ClientLost, RemoteFault
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import QUpdate, Readmitted, SiteApplied, Stored
from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.errors import HolderError, LostPeer
from fedkern.jobs import answers
from fedkern.jobs.hooks import RunHooks
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.models.glm import prior
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support import losing
from support.federations import deal, make_rows, settings
from support.losing import Losing
from support.mpirun import MPIRUN, environment
from support.relayed import over_threads

JOB = """
[job]
method = "pvi"
rounds = 12
[data]
clients = ["clients/*.csv"]
response = "y"
[model]
family = "gaussian"
[algorithm]
schedule = "{schedule}"
checkpoint_every = 1e-9
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    (tmp_path / "clients").mkdir()
    for name in "abc":
        x = rng.normal(size=90)
        pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=90)}).to_csv(tmp_path / "clients" / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(JOB.format(schedule="asynchronous"))
    return tmp_path / "job.toml"


def lost_and_resumed(path: Path, after: int, between: Any = lambda folder: None) -> Any:
    """The result of a job that has lost its second client after so many turns, was stopped, and went on with it."""
    config, folder = load(path)
    out = folder / "out"
    with pytest.raises(LostPeer, match="stopped by SIGTERM"):
        perform(Losing("pvi", after=after, stop=after + 4), config, folder, Output(out, quiet=True))
    between(out)
    return perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))


def same(result: Any, whole: Any) -> None:
    for name, one in whole.parameters.items():
        assert result.parameters[name]["mean"] == pytest.approx(one["mean"], abs=0.02 * one["sd"]), name
        assert result.parameters[name]["sd"] == pytest.approx(one["sd"], rel=0.01), name


@pytest.mark.parametrize("schedule", ["asynchronous", "synchronous", "sequential"])
def test_a_client_that_was_lost_takes_part_again_with_the_site_that_stands(schedule: str, job: Path) -> None:
    job.write_text(JOB.format(schedule=schedule))
    result = lost_and_resumed(job, after=6)
    same(result, fedkern.run(job))
    told = result.summary["clients"]["b"]
    assert told["status"] == "finished"
    assert told["came_back"].startswith("with ")
    assert any("which had been lost, is back" in note for note in result.summary["notes"])


def test_a_client_that_joins_late_has_the_site_1(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = lost_and_resumed(job, after=0)
    same(result, fedkern.run(job))
    told = result.summary["clients"]["b"]
    assert told["came_back"] == "with its site"
    assert told["updates"] >= 12
    assert main(["replay", str(job.parent / "out")]) == 0
    assert "the same posterior" in capsys.readouterr().out


def test_a_damaged_site_is_the_servers_again(job: Path) -> None:
    def damage(out: Path) -> None:
        files = [*(out / "client-b" / "checkpoint").glob("pvi-*.ckpt")]
        assert files
        for file in files:
            file.write_bytes(file.read_bytes()[:-3])

    result = lost_and_resumed(job, 7, damage)
    same(result, fedkern.run(job))
    assert result.summary["clients"]["b"]["came_back"] == "with another site; the server's stands"
    assert main(["replay", str(job.parent / "out")]) == 0


def test_policies_are_asked_again(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HolderError, match="client 'b': refused by the holder's policy"):
        lost_and_resumed(job, 6, lambda out: forbid(out, monkeypatch))


# While the job goes on --------------------


def forbid(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Client b's holder allows open jobs no more."""
    home = out.parent / "home"
    (home / "b").mkdir(parents=True)
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    (home / "policy.toml").write_text("open = true\n[data.a]\n[data.c]\n[data.b]\nopen = false\nepsilon = 1.0\ndelta = 1e-5\n")


def is_back(out: Path, result: Any, whole: Any) -> None:
    """A client was lost and came back, and the log says so, and gives the posterior."""
    words = [word for line in answers.read(out / answers.FILE) for word in ("lost", "back") if line.get(word) == "b"]
    assert words == ["lost", "back"]
    told = result.summary["clients"]["b"]
    assert told["status"] == "finished"
    assert told["came_back"].startswith("with ")
    assert told["updates"] >= result.summary["rounds"]
    assert any("which had been lost, is back" in note for note in result.summary["notes"])
    same(result, whole)
    assert main(["replay", str(out)]) == 0


@pytest.mark.parametrize(
    ("schedule", "after"), [("asynchronous", 5), ("asynchronous", 0), ("synchronous", 5), ("sequential", 5), ("random", 5)]
)
def test_a_client_that_was_silent_for_too_long_comes_back(schedule: str, after: int, job: Path) -> None:
    job.write_text(JOB.format(schedule=schedule))
    config, folder = load(job)
    result = perform(Losing("pvi", after=after, back=9), config, folder, Output(folder / "out", quiet=True))
    whole = fedkern.run(job)
    if schedule != "asynchronous":
        assert result.summary["clients"]["b"]["came_back"] == "with its site"
        same(result, whole)
        return
    is_back(folder / "out", result, whole)
    assert main(["replay", str(folder / "out"), "--rows", str(folder)]) == 0


def test_its_policy_is_asked_when_it_comes_back(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = load(job)
    lost = RunHooks.lost

    def then(self: RunHooks, client: int, why: str) -> None:
        lost(self, client, why)
        forbid(folder / "out", monkeypatch)

    monkeypatch.setattr(RunHooks, "lost", then)
    with pytest.raises(HolderError, match="client 'b': refused by the holder's policy"):
        perform(Losing("pvi", after=5, back=9), config, folder, Output(folder / "out", quiet=True))


DEADLINE, ROUNDS = 3.0, 150


@pytest.mark.nightly
def test_a_rank_that_was_silent_for_too_long_comes_back(job: Path) -> None:
    out = job.parent / "out"
    words = [str(MPIRUN), "--oversubscribe", "-n", "4", sys.executable, losing.__file__, "run", str(job), "--mpi"]
    ended = subprocess.run(
        [*words, "--out", str(out), "--set", f"job.deadline={DEADLINE}", "--set", f"job.rounds={ROUNDS}"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    whole = fedkern.run(job)
    is_back(out, fedkern.load(out), whole)


@pytest.mark.nightly
def test_a_site_of_a_relay_that_was_silent_for_too_long_comes_back(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losing.with_clocks(monkeypatch.setattr)
    job.write_text(job.read_text().replace("clients/*.csv", '", "'.join(f"clients/{name}.csv" for name in "abc")))
    config, folder = load(job, [f"job.rounds={ROUNDS}"])
    results = []

    def work(place: Any, name: str | None) -> int:
        results.append(perform(place, config, folder, Output(folder / (name or "out"), quiet=True)))
        return 0

    codes, said, _ = over_threads(work, tuple("abc"), None, Timeouts(lost=DEADLINE, grace=5.0), again=0.2, busy=0.1)
    assert set(codes.values()) == {0}, said
    (result,) = filter(None, results)
    is_back(folder / "out", result, fedkern.run(job))


# Machines --------------------


def begun(n: int = 3) -> tuple[Any, dict[int, Any], Any]:
    """A server and its clients, and how a run begins."""
    s, parts = settings(covariance="full", schedule="asynchronous", rounds=9), deal(make_rows("bernoulli"), n)
    p = prior(4, 1.0, "full")
    clients = {k: pvi.client(f"c{k}", Local(part, s, k), p) for k, part in enumerate(parts)}
    return pvi.start(s, p, n), clients, lambda: pvi.start(s, p, n)[0]


def test_a_change_of_which_the_client_was_not_told_is_in_its_site() -> None:
    """It was killed between its answer and SiteApplied."""
    (server, questions), clients, fresh = begun()
    asked = dict(questions)
    clients[1], (delta,) = pvi.client_receive(clients[1], asked[1])
    server, (applied, _) = pvi.server_receive(server, 1, delta)
    assert isinstance(applied[1], SiteApplied)  # and does not arrive
    server, _ = pvi.server_receive(server, 1, ClientLost(1))
    server = pvi.load(fresh(), pvi.save(server))
    assert 1 in server.schedule.active
    # Its next question comes with the next answer of anybody.
    clients[0], (other,) = pvi.client_receive(clients[0], asked[0])
    server, effects = pvi.server_receive(server, 0, other)
    first, second = [message for k, message in effects if k == 1]
    assert isinstance(first, Readmitted)
    assert isinstance(second, QUpdate)
    with pytest.raises(RemoteFault, match="waits for SiteApplied"):
        pvi.client_receive(clients[1], second)
    clients[1], (stored,) = pvi.client_receive(clients[1], first)
    assert stored == Stored(0)
    server, nothing = pvi.server_receive(server, 1, stored)
    assert (nothing, server.back[1]) == ([], pvi.OTHER)
    np.testing.assert_array_equal(clients[1].site_h, server.site_h[1])
    assert np.abs(server.site_h[1]).max() > 0.1
    # It goes on, and its answers are numbered as the server counts them.
    clients[1], (delta,) = pvi.client_receive(clients[1], second)
    server, effects = pvi.server_receive(server, 1, delta)
    clients[1], _ = pvi.client_receive(clients[1], effects[0][1])
    np.testing.assert_allclose(clients[1].site_h, server.site_h[1])


def test_a_client_that_comes_back_is_asked_at_once_and_others_are_not_asked_again() -> None:
    (server, _), _, _ = begun()
    server, _ = pvi.server_receive(server, 1, ClientLost(1))
    server, effects = pvi.server_receive(server, 1, ClientBack(1))
    assert [(k, type(message)) for k, message in effects] == [(1, Readmitted), (1, QUpdate)]
    assert set(server.schedule.waiting) == {0, 1, 2}
    assert server.schedule.n_active == 3
    assert not server.lost


def test_what_a_client_had_stored_is_asked_once_and_of_those_that_were_lost() -> None:
    (server, _), clients, fresh = begun()
    with pytest.raises(RemoteFault, match="Stored is no answer"):
        pvi.server_receive(server, 1, Stored(1))
    server, _ = pvi.server_receive(server, 1, ClientLost(1))
    server = pvi.load(fresh(), pvi.save(server))
    server, effects = pvi.server_receive(server, 2, ClientLost(2))
    assert [(k, type(message)) for k, message in effects] == [(1, Readmitted), (1, QUpdate)]
    _, (stored,) = pvi.client_receive(clients[1], effects[0][1])
    assert stored == Stored(1)  # both have the site 1
    server, _ = pvi.server_receive(server, 1, stored)
    with pytest.raises(RemoteFault, match="Stored is no answer"):
        pvi.server_receive(server, 1, stored)
