"""Whole jobs with `unit = "client"`: who took part in a round shows nowhere but in the server's own files."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.messages import KINDS, Released, RemoteFault
from fedkern.algorithms.pvi import client_level
from fedkern.algorithms.pvi import machine as pvi
from fedkern.api import perform
from fedkern.cli.report import write
from fedkern.cli.show import describe_result
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import publish
from fedkern.jobs.hooks import RunHooks
from fedkern.jobs.releases import Releases
from fedkern.jobs.run import Output
from fedkern.methods import parse
from fedkern.privacy.accountant import Mechanism
from fedkern.transports.codec import HEADER, Codec, Frame
from fedkern.transports.driver import ServerSide
from fedkern.transports.inprocess import InProcess
from support.command import StopsAt
from support.refusal import refusal

M = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(3)
    for k in range(M):
        x = generator.normal(size=(12, 2))
        rows = [f"{a},{b},{int(a + generator.logistic() > 0)}" for a, b in x]
        (folder / f"c{k}.csv").write_text("\n".join(["x,z,y", *rows]) + "\n")
    columns = {name: {"kind": "numeric"} for name in ("x", "z")}
    return {"clients": [str(folder / "*.csv")], "response": "y", "standardise": "none", "columns": columns}


def job(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tables: dict[str, Any] = {
        "data": data,
        "job": {"rounds": 5},
        "algorithm": {"local_steps": 3},
        "privacy": {
            "unit": "client", "epsilon": 9.0, "delta": 1e-2, "clip": 3.0, "noise_multiplier": 2.0, "client_rate": 0.4
        },
    }  # fmt: skip
    return tables | {name: tables.get(name, {}) | change for name, change in changes.items()}


def run(tables: dict[str, Any], out: Path, **options: Any) -> Any:
    return perform(InProcess(), parse(tables), out.parent, Output(out, quiet=True, **options))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that passes between the server and the clients, in its order: who, what, how long, and all but floats."""
    seen: list[Any] = []

    def note(codec: Codec, way: str, frame: Frame) -> None:
        kind = KINDS[HEADER.unpack_from(frame)[2]]
        client, message = codec.decode(frame, (kind,))
        whole = {name: value for name, value in vars(message).items() if isinstance(value, int | bytes)}
        seen.append((way, client, kind.__name__, len(frame), whole))

    ask, arrive = ServerSide._ask, ServerSide.arrive

    def _ask(self: ServerSide, client: int, frame: Frame) -> tuple[int, Frame]:
        note(self.codec, "to", frame)
        return ask(self, client, frame)

    def _arrive(self: ServerSide, frame: Frame, here: Any) -> None:
        note(self.codec, "from", frame)
        arrive(self, frame, here)

    monkeypatch.setattr(ServerSide, "_ask", _ask)
    monkeypatch.setattr(ServerSide, "arrive", _arrive)
    return seen


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The coins that fell."""
    seen: list[Any] = []
    real = Mechanism.draw

    def draw(self: Mechanism, *arguments: Any) -> Any:
        seen.append(real(self, *arguments).tolist())
        return np.array(seen[-1], np.int64)

    monkeypatch.setattr(Mechanism, "draw", draw)
    return seen


def masked(text: str) -> str:
    """Without numbers that are not whole, and the name that has the most noise: they are functions of the noisy sums."""
    text = re.sub(r"the noise in \w+ has a standard deviation of about \S+ posterior|below about [^\s,;]+", "", text)
    return re.sub(r" *-?\d+\.\d+(e[-+]\d+)?", " #", re.sub(r"[0-9a-f]{64}", "digest", text))


def visible(result: Any, wire: list[Any]) -> dict[str, Any]:
    """Everything about a run that others than its server can see, but for what is a function of the noisy sums."""
    out = result.folder
    # How wide columns are, and where a long note is cut, depends on the digits of numbers; the summary has all notes whole.
    of_numbers = ("note: ", "intercept", "theta")
    printed = [" ".join(line.split()) for line in describe_result(result) if not line.startswith(of_numbers)]
    seen: dict[str, Any] = {"transcript": list(wire), "printed": masked("\n".join(printed))}
    wire.clear()
    public = [p for p in out.rglob("*") if p.is_file() and not {"checkpoint"} & set(p.parts) and "client-" not in str(p)]
    seen["files"] = {str(p.relative_to(out)) for p in public}
    seen |= {ledger.name: ledger.read_text() for ledger in out.glob("ledger/*.jsonl")}
    seen["metrics"] = masked((out / "metrics.jsonl").read_text())
    summary = {k: v for k, v in result.summary.items() if k not in ("parameters", "digest", "metrics", "worst", "checks")}
    summary["verdict"] = masked(str(summary["verdict"]))
    assert json.loads((out / "summary.json").read_text())["clients"] == summary["clients"]
    report = [part for part in write(out).read_text().split("<section>") if re.match("<h2>(Privacy|On the wire|Ledger)", part)]
    return seen | summary | {"names": sorted(result.parameters), "report": masked("".join(report))}


def pair(data: dict[str, Any], folder: Path, wire: list[Any], drawn: list[Any], **changes: Any) -> tuple[Any, Any]:
    """What can be seen of two runs of one job, whose coins fell differently."""
    first = visible(run(job(data, **changes), folder / "a" / "out"), wire)
    coins = list(drawn)
    second = visible(run(job(data, **changes), folder / "b" / "out"), wire)
    assert coins != drawn[len(coins) :]
    return first, second


@pytest.mark.parametrize(
    "algorithm", [{"sites": "own"}, {"sites": "averaged"}, {"optimiser": "exact"}, {"checkpoint_every": 1e-6}], ids=str
)
def test_two_runs_of_one_job_look_the_same(
    data: dict[str, Any], tmp_path: Path, wire: list[Any], drawn: list[Any], algorithm: dict[str, Any]
) -> None:
    first, second = pair(data, tmp_path, wire, drawn, algorithm={"local_steps": 3} | algorithm)
    assert first == second
    assert {client["updates"] for client in first["clients"].values()} == {5}  # the public number of rounds
    assert "On the wire" in first["report"]
    assert len(first["transcript"]) > 5 * M * 4


def test_a_budget_ends_the_job_for_all(data: dict[str, Any], tmp_path: Path, wire: list[Any], drawn: list[Any]) -> None:
    changes = {"job": {"rounds": "budget"}, "privacy": {"epsilon": 2.0}}
    first, second = pair(data, tmp_path, wire, drawn, **changes)
    assert first == second
    assert first["stop"] == "budget"
    assert first["rounds"] > 2


@pytest.mark.parametrize("fault", ["updates", "answers", "metrics"])
def test_planted_faults_are_seen(
    data: dict[str, Any], tmp_path: Path, wire: list[Any], drawn: list[Any], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The coins in a count, in what is sent, and in a line of metrics.jsonl."""
    from fedkern.jobs.watch import Watch

    real = client_level.PROTOCOL.server_receive

    def receive(state: Any, sender: int, event: Any) -> Any:
        after, effects = real(state, sender, event)
        left_out = [k for k, e in effects if isinstance(e, pvi.SiteApplied) and not e.alpha]
        if fault == "updates":
            after.updates[left_out] -= 1
        if fault == "answers":
            effects = [(k, replace(e, delta_id=9) if k in left_out and isinstance(e, pvi.SiteApplied) else e) for k, e in effects]
        return after, effects

    monkeypatch.setattr(client_level, "PROTOCOL", replace(client_level.PROTOCOL, server_receive=receive))
    if fault == "metrics":
        monkeypatch.setattr(Watch, "__call__", lambda self, state: drawn and self.write({"took part": len(drawn[-1])}))
        first, second = pair(data, tmp_path, wire, drawn)
        assert first != second
        return
    with pytest.raises(RemoteFault):  # a client counts its deltas, too
        pair(data, tmp_path, wire, drawn)


def test_only_the_server_may_read_who_took_part(data: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(job(data, algorithm={"checkpoint_every": 1e-6}), out)
    kept = list((out / "checkpoint").iterdir())
    assert kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert stat.S_IMODE((out / "checkpoint").stat().st_mode) == 0o700


def test_a_public_cap_on_updates_is_a_number_of_rounds(fedkern: Any, data: dict[str, Any], tmp_path: Path) -> None:
    tables = job(data, algorithm={"updates_per_client": 3})
    result = run(tables, tmp_path / "out")
    assert (result.stop, result.summary["rounds"]) == ("updates", 3)
    assert {c["steps"] for c in result.privacy.values()} == {3}


@pytest.mark.parametrize("schedule", ["sequential", "random", "asynchronous", "synchronous"])
def test_check_plans_the_rounds_that_run_and_says_what_they_cost(data: dict[str, Any], tmp_path: Path, schedule: str) -> None:
    from fedkern.api import check_job

    tables = job(data, algorithm={"schedule": schedule})
    said = "\n".join(check_job(InProcess(), parse(tables), tmp_path) or [])
    assert re.search(r"\(all\) +poisson 0\.4 .* 5 +5 +[\d.]+\n", said), said
    assert "every client works in every round, so that nobody sees whose work counts: 2.5 times the work" in said
    assert "pvi, synchronous, rounds = 5" in said
    full = "\n".join(check_job(InProcess(), parse(job(data, privacy={"client_rate": 1.0})), tmp_path) or [])
    assert "whose work counts" not in full


# --- kills


class Killed(BaseException):
    """What a process that was killed does not notice."""


class Disk:
    """Counts what is done to the disk, and kills at one of these acts: in a write after half of it. The dead do nothing more."""

    ACTS = ("write", "fsync", "replace", "unlink", "ftruncate")

    def __init__(self, patch: pytest.MonkeyPatch, at: float = float("inf")) -> None:
        self.at, self.acts, self.what = at, 0, ""
        for name in self.ACTS:
            patch.setattr(os, name, self.watched(name, getattr(os, name)))

    def watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            self.acts += 1
            if self.acts < self.at:
                return real(*arguments, **options)
            if self.acts == self.at:
                path = os.readlink(f"/proc/self/fd/{arguments[0]}") if isinstance(arguments[0], int) else str(arguments[0])
                self.what = f"{name} {path}"
                if name == "write" and not path.endswith("budget.jsonl"):  # one short line: all of it or nothing
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                if name == "fsync" and path.endswith(".part"):
                    os.truncate(path, os.path.getsize(path) // 2)
            raise Killed

        return act


class Left:
    """What has left the server, over all runs of a job, round by round; and what was charged."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: dict[Any, set[Any]] = {}
        ask, metric, drawn = ServerSide._ask, RunHooks.metric, publish.netcdf

        def _ask(server: ServerSide, client: int, frame: Frame) -> tuple[int, Frame]:
            message = server.codec.decode(frame, (KINDS[HEADER.unpack_from(frame)[2]],))[1]
            if isinstance(message, pvi.QUpdate | client_level.SiteShare):
                about = "q" if isinstance(message, pvi.QUpdate) else "share"
                self.note(about, message.round, b"".join(v.tobytes() for v in vars(message).values() if hasattr(v, "tobytes")))
            if isinstance(message, pvi.SiteApplied):
                self.note("weight", (client, message.delta_id), message.alpha)
            return ask(server, client, frame)

        def _metric(hooks: RunHooks, record: Any) -> None:
            self.note("metrics", record["round"], json.dumps(record))
            metric(hooks, record)

        def _drawn(posterior: Any, **options: int) -> memoryview:
            self.note("result", 0, posterior.q.h.tobytes() + posterior.q.P.tobytes())
            return drawn(posterior, **options)

        patch.setattr(ServerSide, "_ask", _ask)
        patch.setattr(RunHooks, "metric", _metric)
        patch.setattr(publish, "netcdf", _drawn)

    def note(self, *what: Any) -> None:
        *key, value = what
        self.seen.setdefault(tuple(key), set()).add(value)


def charged(out: Path) -> int:
    path = out / "budget.jsonl"
    return sum(json.loads(line).get("steps", 0) for line in path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def tested(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With test rows at the server, so that metrics.jsonl is a function of the noisy sums too."""
    path = tmp_path_factory.mktemp("test") / "test.csv"
    path.write_text((Path(data["clients"][0]).parent / "c0.csv").read_text())
    return data | {"test": str(path)}


def killed_and_resumed(tables: dict[str, Any], out: Path, kills: list[float]) -> tuple[Left, list[str]]:
    """Runs a job, kills each run of it at its act and resumes it, to the end; what left, and where it was killed."""
    with pytest.MonkeyPatch.context() as watching:
        left, where = Left(watching), []
        for at in [*kills, float("inf")]:
            with pytest.MonkeyPatch.context() as patch:
                disk = Disk(patch, at)
                try:
                    if run(tables, out, resume=(out / "job.json").exists()):
                        where.append(f"after {disk.acts} acts")
                        return left, where
                except BaseException:  # also what stumbles over files that the dead did not close
                    if disk.acts < disk.at:
                        raise
                    where.append(disk.what)
            if (out / "summary.json").exists():
                return left, where
        raise AssertionError("the last run was not killed and did not finish")


def check_released_once(tables: dict[str, Any], out: Path, kills: list[float]) -> list[str]:
    left, where = killed_and_resumed(tables, out, kills)
    rounds = tables["job"]["rounds"]
    assert {key: len(values) for key, values in left.seen.items() if len(values) > 1} == {}, where
    assert {key[1] for key in left.seen if key[0] == "q"} == set(range(rounds))
    assert ("metrics", rounds) in left.seen
    assert rounds <= charged(out) <= rounds + len(kills), where  # a charge at most is lost with each kill
    return where


def few(data: dict[str, Any], sites: str, every: float) -> dict[str, Any]:
    """Three rounds of two clients."""
    two = data | {"clients": [str(Path(data["clients"][0]).parent / f"c{k}.csv") for k in range(2)]}
    return job(two, job={"rounds": 3}, algorithm={"local_steps": 2, "sites": sites, "checkpoint_every": every})


@pytest.mark.parametrize(("sites", "every"), [("own", 1e-6), ("averaged", 60.0)])
def test_a_round_is_released_once_however_often_the_run_is_killed(
    tested: dict[str, Any], tmp_path: Path, sites: str, every: float, seed: int
) -> None:
    """Single kills over the whole run, and pairs of them."""
    tables = few(tested, sites, every)
    (end,) = check_released_once(tables, tmp_path / "whole" / "out", [])
    acts = int(end.split()[1])
    chosen = np.random.default_rng(seed)
    singles = [[float(at)] for at in chosen.choice(np.arange(1, acts), 12, replace=False)]
    pairs = [list(map(float, chosen.integers(1, acts, size=2))) for _ in range(6)]
    for i, kills in enumerate([*singles, *pairs]):
        check_released_once(tables, tmp_path / str(i) / "out", kills)


@pytest.mark.parametrize("lines", [1, 3])
def test_a_run_that_was_stopped_goes_on_without_another_charge(data: dict[str, Any], tmp_path: Path, lines: int) -> None:
    tables, out = job(data), tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", lines)), parse(tables), tmp_path, Output(out, quiet=True))
    assert charged(out) == lines + 1  # the next round is paid for
    run(tables, out, resume=True)
    assert charged(out) == tables["job"]["rounds"]


def test_noise_drawn_anew_is_noticed(tested: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a server that does not look for what it released. (Were it only that nothing is stored, the charges of
    later rounds would tell.)"""
    tables = few(tested, "own", 60.0)
    (end,) = check_released_once(tables, tmp_path / "whole" / "out", [])
    monkeypatch.setattr(Releases, "__contains__", lambda self, round: False)
    monkeypatch.setattr(RunHooks, "release", lambda self, asked: Released(asked.round, asked.content))
    with pytest.raises(AssertionError):
        check_released_once(tables, tmp_path / "killed" / "out", [int(end.split()[1]) * 3 // 4])


@pytest.mark.nightly
@pytest.mark.parametrize("sites", ["own", "averaged"])
@pytest.mark.parametrize("every", [1e-6, 60.0])
def test_a_round_is_released_once_wherever_the_run_is_killed(
    tested: dict[str, Any], tmp_path: Path, sites: str, every: float
) -> None:
    tables = few(tested, sites, every)
    (end,) = check_released_once(tables, tmp_path / "whole" / "out", [])
    where = [check_released_once(tables, tmp_path / str(at) / "out", [at])[0] for at in range(1, int(end.split()[1]))]
    assert any("release" in act and act.startswith("fsync") for act in where)  # inside the write of the release itself
    assert any("budget" in act for act in where)


class Told(Exception):
    """Ends a run in the middle."""


@pytest.mark.parametrize("gone", ["one", "all", "altered"])
def test_a_release_that_cannot_be_sent_again_is_not_drawn_again(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    out, tables = tmp_path / "out", job(data, job={"rounds": 6})
    left = Left(monkeypatch)

    def metric(hooks: RunHooks, record: Any) -> None:
        if record["round"] == 4:  # before the charge of the next round
            raise Told

    with monkeypatch.context() as patch:
        patch.setattr(RunHooks, "metric", metric)
        with pytest.raises(Told):
            run(tables, out)
    stored = sorted((out / "checkpoint").glob("*-release-*"))
    assert len(stored) == charged(out) == 4
    if gone == "altered":
        stored[1].write_bytes(stored[1].read_bytes()[:-1] + b"!")
    for path in {"one": stored[1:2], "all": stored}.get(gone, []):
        path.unlink()
    with pytest.raises(JobError, match=r"the noisy sum of round [01] was released before, and what was stored of it is gone"):
        run(tables, out, resume=True)
    assert max(map(len, left.seen.values())) == 1
    assert not (out / "summary.json").exists()
