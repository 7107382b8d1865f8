"""The bridge to Flower: its wire over a grid of this process, the app that it writes, the ClientApp's way to the resident."""

import queue
import threading
import time
import tomllib
from functools import partial
from types import SimpleNamespace

import pytest

from fedkern.api import load as load_result
from fedkern.bridges import flower
from fedkern.bridges.digest import digest_of
from fedkern.bridges.server import run_hub
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.keeping import Keeper
from fedkern.methods import load
from fedkern.transports.driver import Timeouts
from fedkern.transports.relay import Hub, Letter, Lost, Spoke
from fedkern.transports.relay_letters import ENDED
from support.organisations import digest_of_run, found, residents, write_job
from support.organisations import in_one_process as pooled
from support.outside import threads
from support.refusal import refusal
from support.relayed import careless
from support.toy_job import DEFAULTS, NAMES, in_one_process, protocols, result

BRIEF = Timeouts(lost=20.0, grace=3.0)


class Grid:
    """A grid whose SuperNodes answer in threads of this process; with `faults` it loses and doubles messages."""

    def __init__(self, nodes, registered=True, faults=None):
        self.nodes = nodes  # number -> (name, what answers bytes)
        self.here, self.registered, self.faults = set(nodes), registered, faults
        self.asked, self.replies, self.number = [], {}, 0
        self.lock = threading.Lock()
        self.inboxes = {node: queue.SimpleQueue() for node in nodes}
        for node in nodes:
            threading.Thread(target=self.work, args=[node], daemon=True).start()

    def get_nodes(self):
        return [SimpleNamespace(node_id=node, name=self.nodes[node][0] if self.registered else "") for node in sorted(self.here)]

    def push_messages(self, messages):
        numbers = []
        for node, kind, record in messages:
            self.number += 1
            numbers.append(f"message-{self.number}")
            self.asked.append((node, kind))
            luck = self.faults.random() if self.faults else 1.0
            if luck > 0.1:
                self.inboxes[node].put((numbers[-1], kind, record))
            if luck < 0.3:  # once more: as after the restart of a SuperNode
                self.inboxes[node].put((numbers[-1], kind, record))
        return numbers

    def work(self, node):
        name, answer = self.nodes[node]
        while True:
            number, kind, record = self.inboxes[node].get()
            said = {"site": name} if kind == "query.name" else answer(record)
            said = said if isinstance(said, dict) else {"letter": said}
            with self.lock:
                self.reply(node, number, said)

    def reply(self, node, number, said):
        self.replies[number] = self.message(number, said)

    def message(self, number, said):
        error = said.get("error")
        return SimpleNamespace(
            metadata=SimpleNamespace(reply_to_message_id=number),
            has_error=lambda: error is not None,
            error=SimpleNamespace(reason=error),
            content={"fedkern": said},
        )

    def pull_messages(self, numbers):
        with self.lock:
            return [self.replies.pop(number) for number in list(self.replies) if number in numbers]


def wire_over(grid, said=None, **more):
    return flower.FlowerWire(
        grid,
        (said if said is not None else []).append,
        pause=0.01,
        compose=lambda node, kind, record: (node, kind, record),
        **more,
    )


def over_grid(registered=True, faults=None, again=30.0, every=60.0, kind=Grid, **more):
    """Runs the toy job; returns the codes, the digests, and the grid."""
    spokes = {site: Spoke(k, len(NAMES), BRIEF, busy=0.3) for k, site in enumerate(NAMES)}
    nodes = {
        100 + k: (site, lambda record, end=end: end.answer(record["letter"])) for k, (site, end) in enumerate(spokes.items())
    }
    grid, digests = kind(nodes, registered, faults), []

    def part(place):
        place.agree(b"job")
        servers = protocols(place, DEFAULTS | more, Keeper(NAMES))
        if place.is_server:
            digests.append(result(*servers))
        return 0

    wire = wire_over(grid)
    wire.every = every
    hub = Hub(wire, NAMES, BRIEF, again)
    codes = threads.run_all(
        lambda: hub.run(part, print), {site: lambda end=end: end.run(part, print) for site, end in spokes.items()}
    )
    return codes, digests, grid


@pytest.mark.parametrize("registered", [True, False])
def test_a_job_over_a_grid_has_the_bits_of_one_process(registered):
    codes, digests, grid = over_grid(registered)
    assert set(codes.values()) == {0}
    assert digests == [in_one_process()]
    asked = [kind for _, kind in grid.asked]
    assert asked.count("query.name") == (0 if registered else len(NAMES))


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_lost_or_come_twice_change_nothing(seed):
    codes, digests, _ = over_grid(faults=careless(seed), again=0.2)
    assert set(codes.values()) == {0}
    assert digests == [in_one_process()]


class Behind(Grid):
    """A grid whose SuperNodes send each reply when the next message comes.

    Flower's do so once they have had a message of a run that was over: its reply, which nobody takes, stands before all others.
    """

    def __init__(self, *more):
        self.held, self.letters = {}, []
        super().__init__(*more)

    def push_messages(self, messages):
        self.letters += [(node, record["letter"]) for node, kind, record in messages if kind == "query"]
        return super().push_messages(messages)

    def reply(self, node, number, said):
        if node in self.held:
            super().reply(node, *self.held[node])
        self.held[node] = number, said


def test_a_supernode_that_is_a_message_behind_is_asked_for_its_name_and_not_once_more():
    codes, digests, grid = over_grid(kind=Behind, again=2.0)
    assert set(codes.values()) == {0}
    assert digests == [in_one_process()]
    again = len(grid.letters) - len(set(grid.letters))
    assert again == len(NAMES)  # the first question alone: nothing has shown yet that they are behind


class Losing(Grid):
    """A grid that loses the second question to each SuperNode."""

    def push_messages(self, messages):
        ((node, kind, _),) = messages
        self.asked += [(node, kind)] if (lost := self.asked.count((node, kind)) == 1) else []
        return ["lost"] if lost else super().push_messages(messages)


def test_a_question_that_is_lost_for_good_is_no_sign_of_that():
    codes, digests, grid = over_grid(kind=Losing, again=0.2)
    assert set(codes.values()) == {0}
    assert digests == [in_one_process()]
    assert "query.name" not in [kind for _, kind in grid.asked]


class Replaying(Grid):
    """A grid that brings every third message to its SuperNode a second time, and one that is much older."""

    def push_messages(self, messages):
        numbers = super().push_messages(messages)
        self.old = [*getattr(self, "old", []), *messages]
        if len(self.old) % 3 == 0:
            for node, kind, record in (self.old[-1], self.old[len(self.old) // 2]):
                self.inboxes[node].put(("old", kind, record))
        return numbers


def test_residents_answer_over_a_grid_that_replays_messages(tmp_path):
    server = found(tmp_path, method="pvi", rounds="rounds = 2\n", more='[algorithm]\nschedule = "synchronous"\n')
    said, sites = [], residents(tmp_path)
    nodes = {
        number: (site, lambda record, end=end: end.answer(record["letter"])) for number, (site, end) in enumerate(sites.items())
    }
    wire = wire_over(Replaying(nodes), said)
    assert run_hub(server / "job.toml", wire, server / "out", quiet=True, timeouts=BRIEF, say=said.append) == 0
    assert all(site.join(30.0) for site in sites.values())
    assert said == []
    want = pooled(tmp_path, method="pvi", rounds="rounds = 2\n", more='[algorithm]\nschedule = "synchronous"\n')
    assert digest_of_run(tmp_path) == want


@pytest.mark.parametrize(("grace", "heard"), [(flower.GRACE, True), (0.1, False)])
def test_the_server_ends_when_every_site_has_heard_that_it_does(grace, heard, tmp_path, monkeypatch):
    server, sites, wires = found(tmp_path), residents(tmp_path), []

    def answer(end, record):
        reply = end.answer(record["letter"])
        time.sleep(1.0 if Letter.unpack(reply).state == ENDED else 0.0)  # its last words are slow
        return reply

    def wire(grid, kind=flower.FlowerWire):
        wires.append(kind(grid, pause=0.01, compose=lambda node, kind, record: (node, kind, record)))
        return wires[-1]

    monkeypatch.setenv("FEDKERN_FOLDER", str(server))
    monkeypatch.setattr(flower, "version", lambda package: "1.42.0")
    monkeypatch.setattr(flower, "FlowerWire", wire)
    monkeypatch.setattr(flower, "GRACE", grace)
    nodes = {number: (site, lambda record, end=end: answer(end, record)) for number, (site, end) in enumerate(sites.items())}
    run_config = {"job": "job", "digest": digest_of(load(server / "job.toml")[0]).hex(), "resume": False, "replay": False}
    flower.serve(Grid(nodes), run_config, tmp_path / "none.toml")
    assert load_result(server / "runs" / "job").digest == pooled(tmp_path)
    assert (not wires[0]._asked) is heard


def test_an_asynchronous_run_is_replayed_from_the_sites_rows(tmp_path, monkeypatch):
    server = found(tmp_path, method="pvi", more='[algorithm]\nschedule = "asynchronous"\n')
    wire = partial(flower.FlowerWire, pause=0.01, compose=lambda node, kind, record: (node, kind, record))
    monkeypatch.setenv("FEDKERN_FOLDER", str(server))
    monkeypatch.setattr(flower, "version", lambda package: "1.42.0")
    monkeypatch.setattr(flower, "FlowerWire", wire)
    run_config = {"job": "job", "digest": digest_of(load(server / "job.toml")[0]).hex(), "resume": False, "replay": False}
    for replay in (False, True):
        ends = residents(tmp_path).items()
        nodes = {k: (site, lambda record, end=end: end.answer(record["letter"])) for k, (site, end) in enumerate(ends)}
        flower.serve(Grid(nodes), run_config | {"replay": replay}, tmp_path / "none.toml")
    first, second = (load_result(server / "runs" / name) for name in ("job", "job-2"))
    assert (second.digest, "answers" in first.summary, "answers" in second.summary) == (first.digest, True, False)


def test_a_site_whose_resident_was_started_anew_is_lost(tmp_path):
    server = found(tmp_path, method="pvi", rounds="rounds = 10\n", more='[algorithm]\nschedule = "synchronous"\n')
    brief = Timeouts(lost=4.0, grace=1.0)
    sites = residents(tmp_path, timeouts=brief)
    said, asked, before = [], [], dict(sites)

    def answer(site, record):
        asked.append(site)
        if site == "bo" and asked.count("bo") == 13:  # in a round; nothing of its process is left
            sites[site] = residents(tmp_path)[site]
        return sites[site].answer(record["letter"])

    nodes = {number: (site, lambda record, site=site: answer(site, record)) for number, site in enumerate(sites)}
    wire = wire_over(Grid(nodes), said)
    code = run_hub(server / "job.toml", wire, server / "out", quiet=True, timeouts=brief, say=said.append)
    assert code == 4  # as over MPI: this method goes on without it
    summary = load_result(server / "out").summary
    assert sorted(client["status"] for client in summary["clients"].values()) == ["finished", "finished", "lost"]
    assert all(site.join(30.0) for site in before.values())


def test_a_site_that_waits_is_not_asked_for_signs_of_life_where_a_request_is_dear():
    asked = []
    for every in (60.0, 0.05):
        codes, digests, grid = over_grid(every=every, nap=0.6, nappers=[1])
        assert (set(codes.values()), digests) == ({0}, [in_one_process()])
        asked.append(sum(node == 103 for node, _ in grid.asked))
    assert asked[0] <= 9 < asked[1]  # its frames alone, as without a site that takes long


def test_the_app_names_the_job_and_no_path(tmp_path, capsys):
    job = write_job(
        tmp_path / "trial.toml", [f"/secret/{name}.csv" for name in ("ada", "bo")], test='test = "/secret/test.csv"\n'
    )
    assert main(["bridge", "flower", str(job), "--out", str(tmp_path / "app"), "--resume"]) == 0
    said = capsys.readouterr().out
    texts = {path.name: path.read_text() for path in (tmp_path / "app").iterdir()}
    assert sorted(texts) == ["client_app.py", "job.toml", "pyproject.toml", "server_app.py"]
    assert "secret" not in "".join(texts.values())
    config = tomllib.loads(texts["pyproject.toml"])["tool"]["flwr"]["app"]["config"]
    assert config == {"job": "trial", "digest": digest_of(load(job)[0]).hex(), "resume": True, "replay": False}
    assert config["digest"] in said
    assert "put trial.toml into the server's folder, too: data.test names a file of its own" in said
    for name in ("server_app.py", "client_app.py"):
        compile(texts[name], name, "exec")
    assert main(["bridge", "flower", str(job), "--out", str(tmp_path / "app")]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_job_whose_name_is_no_name_of_an_app_is_refused(tmp_path, capsys):
    job = write_job(tmp_path / "a job.toml", ["ada.csv", "bo.csv"])
    assert main(["bridge", "flower", str(job), "--out", str(tmp_path / "app")]) == 2
    assert "the job's name 'a job' is no name of an app" in capsys.readouterr().err
    assert not (tmp_path / "app").exists()


def drain(wire):
    while wire.receive(1.0):
        pass


@pytest.mark.parametrize("registered", [True, False])
def test_two_supernodes_of_one_name_are_refused_by_name(registered):
    wire = wire_over(Grid({7: ("berlin", lambda record: b"7"), 8: ("berlin", lambda record: b"8")}, registered))
    wire.send("berlin", b"x")
    with refusal(JobError, "SuperNodes", "berlin"):
        drain(wire)


def test_the_registered_name_counts_and_nobody_is_asked_for_it():
    grid = Grid({7: ("berlin", lambda record: record["letter"][::-1]), 8: ("oslo", None)})
    wire = wire_over(grid)
    wire.send("berlin", b"abc")
    assert wire.receive(5.0) == ("berlin", b"cba")
    assert grid.asked == [(7, "query")]


def test_a_supernode_that_has_left_for_too_long_is_lost_and_one_that_comes_back_is_not():
    grid = Grid({7: ("berlin", lambda record: b"yes"), 8: ("oslo", lambda record: b"no")})
    wire = wire_over(grid, away=0.1)
    wire.send("berlin", b"x")
    assert wire.receive(5.0) == ("berlin", b"yes")
    grid.here.discard(8)
    wire._count(10.0, grid.get_nodes())
    grid.here.add(8)
    wire._count(10.5, grid.get_nodes())
    grid.here.discard(8)
    wire._count(11.0, grid.get_nodes())
    assert wire.receive(0.0) is None
    wire._count(11.2, grid.get_nodes())
    assert wire.receive(0.0) == Lost("oslo", "its SuperNode has left the SuperLink")
    wire._count(12.0, grid.get_nodes())
    assert wire.receive(0.0) is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"error": "<class 'OSError'>"}, "site 'berlin': Flower says: <class 'OSError'>"),
        ({"fault": "nobody answers at its socket"}, "site 'berlin': nobody answers at its socket"),
        ({"letter": 7}, "site 'berlin': a reply that is none"),
        ({"fault": "a\x1b[2Jb"}, "site 'berlin': a\\x1b[2Jb"),
    ],
)
def test_a_reply_without_bytes_is_none_and_is_said_once(reply, text):
    said = []
    wire = wire_over(Grid({7: ("berlin", lambda record: reply)}), said)
    for _ in range(2):
        wire.send("berlin", b"x")
        assert wire.receive(0.3) is None
    assert said == [text]


def test_an_empty_reply_is_none():
    said = []
    wire = wire_over(Grid({7: ("berlin", lambda record: b"")}), said)
    wire.send("berlin", b"x")
    assert wire.receive(0.3) is None
    assert not said


def test_a_supernode_that_names_no_site_is_none():
    said = []
    wire = wire_over(Grid({7: ("", None), 8: ("", None)}, registered=False), said)
    assert wire.receive(0.3) is None
    assert sorted(said) == [f"site 'SuperNode {node}': its --node-config names no site" for node in (7, 8)]
