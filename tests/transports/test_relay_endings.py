"""Whatever a site, the server or the wire of a relay does wrong, the job ends by a name and a code: docs/how-to/packages.md."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.algorithms.core import once
from fedkern.api import perform
from fedkern.errors import JobError, LostPeer
from fedkern.jobs.keeping import Keeper
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports import tags
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from fedkern.transports.relay import Hub, Letter, Lost, Spoke
from fedkern.transports.relay_hub import HubLink
from fedkern.transports.relay_letters import VERSION
from support import toy as toy_machine
from support.golden_jobs import golden_jobs
from support.outside import threads
from support.relayed import Threads
from support.toy_job import DEFAULTS, NAMES, in_one_process, protocols, result

SHORT = Timeouts(lost=2.0, grace=1.0)
GOLDEN = golden_jobs()


def toy(place, site, **more):
    place.names = NAMES
    place.agree(b"job")
    servers = protocols(place, DEFAULTS | {"rank": None} | more, Keeper(NAMES))
    return result(*servers) if place.is_server else None


def ending(main, wire=Threads, timeouts=SHORT, unstarted=(), names=NAMES, busy=0.2, **kinds):
    """Runs a job; returns the exit code of every party, what the operator reads, and what sites print."""
    said = {name: [] for name in (None, *names)}
    spokes = {name: Spoke(k, len(names), kinds.get(name, timeouts), busy) for k, name in enumerate(names)}
    hub = Hub(wire(spokes), names, timeouts, again=0.3)

    def running(end, name):
        return lambda: end.run(lambda place: (main(place, name) and 0) or 0, said[name].append)

    codes = threads.run_all(
        running(hub, None), {name: running(spoke, name) for name, spoke in spokes.items() if name not in unstarted}
    )
    return codes, said.pop(None), said


def test_a_site_whose_job_never_begins_ends_the_job_by_its_name():
    codes, said, _ = ending(toy, unstarted=["site-3"])
    assert set(codes.values()) == {3}
    assert said == [
        "site 'site-3' answers, and its job has not begun there within 2 s; --resume goes on where a checkpoint was kept"
    ]


@pytest.mark.parametrize("error", ["client 'site-2': no column", "no column"])
def test_the_operator_reads_once_which_client_an_error_is_of(error):
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if site == "site-2":
            raise JobError(error)
        place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main)
    assert set(codes.values()) == {2}
    assert said == ["client 'site-2': no column"]


def test_a_fault_that_comes_beside_the_goodbyes_of_others_is_heard():
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        place.settle(b"", lambda told: b"")
        if place.is_server:
            place.link.take(0.0)  # sites hear the answer now, and what each says last is there when the server looks next
            time.sleep(0.5)
        if site == "site-3":
            raise JobError("a full disk")

    codes, said, _ = ending(main)
    assert said == ["client 'site-3': a full disk"]
    assert set(codes.values()) == {2}


def test_a_site_that_computes_for_longer_than_it_may_be_silent_is_lost_as_over_mpi():
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if site == "site-3":
            time.sleep(4.0)
        place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main)
    assert codes[None] == 3
    assert len(said) == 1
    assert "site 'site-3' answers that it computes, and has said nothing else for 2 s" in said[0]
    assert set(codes.values()) == {3}  # nobody takes a server for gone that waits for another site


def test_others_wait_for_a_site_that_computes_for_as_long_as_it_may():
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        for _ in range(3):
            if site == "site-3":
                time.sleep(0.6)
            place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main, timeouts=Timeouts(lost=5.0, grace=1.0), **{"site-0": Timeouts(lost=5.0, grace=1.0)})
    assert (set(codes.values()), said) == ({0}, [])


def test_the_time_that_the_server_computes_is_no_silence_of_a_site():
    link = HubLink(Threads({}), ["north"], every=5.0)
    link._looked -= 1000.0
    link.clock[1] -= 1003.0
    link.wire.asked["north"] = threads.queue.Queue()
    link.take(0.0)
    assert 2.9 < time.monotonic() - link.clock[1] < 100.0


def test_a_server_that_computes_long_after_the_result_ends_the_job_in_order():
    def main(place, site):
        toy(place, site)
        if site is None:
            time.sleep(4.0)  # its figures, say

    codes, said, others = ending(main, timeouts=Timeouts(lost=2.0, grace=1.0))
    assert (set(codes.values()), said) == ({0}, [])
    assert not any(others.values())


def test_a_server_that_computes_long_between_two_exchanges_is_not_gone_and_nobody_is_lost():
    def main(place, site):
        toy(place, site)
        if site is None:
            time.sleep(3.0)
        place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main, timeouts=Timeouts(lost=2.0, grace=1.0))
    assert (set(codes.values()), said) == ({0}, [])


def test_a_server_that_hangs_in_an_exchange_is_gone_for_its_sites():
    def main(place, site):
        if site is None:
            place.hooks = None
            place.names = NAMES
            place.agree(b"job")
            time.sleep(4.0)  # before any exchange has ended
        toy(place, site)

    codes, _, others = ending(main, timeouts=Timeouts(lost=1.0, grace=0.5))
    assert {codes[name] for name in NAMES} == {3}
    assert all(others.values())


def test_what_is_wrong_while_the_server_computes_is_raised_where_it_looks_next():
    spokes = {"a": Spoke(0, 1, SHORT, busy=0.1)}

    class Broken(Threads):
        def receive(self, seconds):
            if self.broken:
                raise OSError("no route")
            return super().receive(seconds)

        broken = False

    link = HubLink(Broken(spokes), ["a"], every=0.0)
    link.over = link.run
    link.wire.broken = True
    link.sign()
    with pytest.raises(LostPeer, match="brings no replies any more"):
        link.receive(0)


ASKED = once.Question("toy-question", toy_machine.Question, toy_machine.Answer)


def test_a_site_may_be_ahead_of_a_question_that_another_has_not_answered():
    """It knows with the question that no other follows, and says what comes next in the same reply."""
    told = []

    def answer(asked):
        return toy_machine.Answer(asked.round, b"", asked.h, asked.P)

    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if site == "site-2":
            time.sleep(1.0)
        clients = {k: once.Client(answer) for k in place.mine(len(NAMES))}
        question = toy_machine.Question(0, 1.0, np.ones(toy_machine.D), np.ones(toy_machine.D))
        start = ASKED.start(len(NAMES), question) if place.is_server else None
        codec = toy_machine.codec(len(NAMES))
        server, _ = place.run_protocol(ASKED.protocol, start, clients, codec)
        told.append(place.settle(str(place.rank).encode(), b" ".join))
        if place.is_server:
            assert sorted(server.replies) == list(range(len(NAMES)))
            server, _ = place.run_protocol(ASKED.protocol, ASKED.start(len(NAMES), question), {}, codec)
        else:
            place.run_protocol(ASKED.protocol, None, clients, codec)

    wires = []
    codes, said, _ = ending(
        main, lambda spokes: wires.append(Threads(spokes)) or wires[0], Timeouts(lost=20.0, grace=3.0), busy=5.0
    )
    assert (set(codes.values()), said) == ({0}, [])
    assert set(told) == {" ".join(map(str, range(1 + len(NAMES)))).encode()}
    # A hello; the question, and what all tell then; the second question with the goodbye; the exit code.
    assert [site for site, _ in wires[0].sent].count("site-0") == 4


def test_a_hub_and_spokes_without_timeouts_heed_the_deadline_of_the_job():
    data = {name: (np.linspace(-1, 1, 30)[:, None], np.linspace(0, 1, 30)) for name in NAMES[:2]}
    said = []

    def main(place):
        fedkern.run(JOB, data=data, place=place, job={"deadline": 1.0})
        return 0

    spokes = {name: Spoke(k, 2) for k, name in enumerate(NAMES[:2])}
    hub = Hub(Threads(spokes), NAMES[:2])
    began = time.monotonic()
    codes = threads.run_all(lambda: hub.run(main, said.append), {NAMES[0]: lambda: spokes[NAMES[0]].run(main, said.append)})
    assert set(codes.values()) == {3}
    assert said[0].startswith("site 'site-1' has been silent for 1 s")
    assert time.monotonic() - began < 60.0  # and not the ten minutes of a place without a job
    given = Hub(Threads(spokes), NAMES[:2], Timeouts(lost=7.0))
    given.ranks.heed_deadline(1.0)
    assert given.ranks.timeouts.lost == 7.0  # what the caller says comes first
    assert Spoke(0, 2).link.busy == 10.0
    spokes[NAMES[0]].ranks.heed_deadline(1.0)
    assert spokes[NAMES[0]].link.busy == 0.25


JOB = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}


def test_the_fault_of_a_site_that_waits_is_fetched():
    """One site finds the server silent before the server has anything to tell it, and while another site computes."""
    over = threading.Event()

    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if site == "site-2":
            over.wait(20.0)
        try:
            place.settle(b"", lambda told: b"")
        finally:
            if place.is_server:
                over.set()

    codes, said, _ = ending(main, timeouts=Timeouts(lost=6.0, grace=1.0), **{"site-1": Timeouts(lost=0.5, grace=8.0)})
    assert codes[None] == codes["site-1"] == 3
    assert len(said) == 1
    assert "client 'site-1': the server has been silent" in said[0]


def test_a_site_that_computes_when_a_job_fails_is_told_although_its_reply_is_awaited():
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if site == "site-1":
            raise JobError("column 'age' is missing")
        if site == "site-2":
            time.sleep(2.0)
        place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main, timeouts=Timeouts(lost=10.0, grace=0.3), busy=1.5)
    assert said == ["client 'site-1': column 'age' is missing"]
    assert set(codes.values()) == {2}


def test_a_site_whose_thread_is_dead_has_left():
    spoke = Spoke(0, 1, busy=0.1)
    dead = threading.Thread(target=spoke.link.begin)
    dead.start()
    dead.join()
    codes, said, _ = ending(lambda place, site: place.agree(b"job"), wire=lambda _: Threads({"a": spoke}), names=("a",))
    assert codes[None] == 3
    assert "site 'a' has died" in said[-1]


def changing(change, at=3):
    """A wire that changes a reply of site-1: `change(wire, site, reply, spoke)` gives what is brought instead."""

    class Changing(Threads):
        def reply(self, site, spoke, request):
            if site == "site-1" and Letter.unpack(request).number >= at and not getattr(self, "changed", False):
                self.changed = True
                self.replies.put(change(site, spoke.answer(request)))
            else:
                super().reply(site, spoke, request)

    return Changing


def rewritten(reply, **change):
    return Letter.unpack(reply)._replace(**change).pack()


WRONG = {
    "empty": (lambda site, reply: (site, b""), "site 'site-1': a relayed message of 0 bytes is none of fedkern's"),
    "cut": (lambda site, reply: (site, reply[:-1]), "site 'site-1': a relayed message is cut short"),
    "corrupt": (lambda site, reply: (site, bytes(len(reply))), "site 'site-1': a relayed message of"),
    "text": (lambda site, reply: (site, "reply"), "site 'site-1': the wire brings a str as its reply, wanted bytes"),
    "nothing": (lambda site, reply: (site, None), "site 'site-1': the wire brings a NoneType as its reply"),
    "no pair": (lambda site, reply: reply, "the wire Changing brings a bytes: wanted (site, bytes), Lost or None"),
    "version": (
        lambda site, reply: (site, reply[:4] + b"\x63" + reply[5:]),
        f"site 'site-1': a relayed message is of version 99, wanted {VERSION}",
    ),
    "state": (
        lambda site, reply: (site, reply[:6] + b"\x63" + reply[7:]),
        "site 'site-1': a relayed message tells the unknown state",
    ),
    "another's": (lambda site, reply: ("site-2", reply), "site 'site-2': the wire brings as its reply one of site 'site-1'"),
    "no site's": (
        lambda site, reply: (site, rewritten(reply, site=77)),
        "site 'site-1': the wire brings as its reply one of no site",
    ),
    "two": (lambda site, reply: (site, rewritten(reply, mark=b"anothers")), "site 'site-1': two sites answer to this name"),
    "unknown": (lambda site, reply: ("nobody", reply), "site 'nobody' is not in this job; its sites are site-0, site-1"),
    "lost": (lambda site, reply: Lost("nobody", "gone"), "site 'nobody' is not in this job"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_reply_that_is_none_ends_the_job_by_the_name_of_its_site(what):
    change, text = WRONG[what]
    codes, said, others = ending(toy, changing(change))
    assert set(codes.values()) == {2}
    assert len(said) == 1
    assert said[0].startswith(text)
    assert not any(others.values())


def hello(**change):
    """A wire on which the hello of site-1 says something else."""

    def changed(site, reply):
        letter = Letter.unpack(reply)
        fields = dict(zip(("version", "levels", "host", "cores", "n", "digest"), tags.HELLO.unpack(letter.items[0][1])))
        told = tags.HELLO.pack(*(fields | change).values())
        return site, letter._replace(items=[(letter.items[0][0], told)]).pack()

    return changing(changed, at=1)


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (hello(version=b"0.0.1"), "site 'site-1' has fedkern 0.0.1, and the server has fedkern"),
        (hello(levels=8), "site 'site-1' would compute with neon and the server with"),
        (hello(levels=0), "site 'site-1' tells no level of instructions that is known (0)"),
        (hello(levels=16), "site 'site-1' tells no level of instructions that is known (16)"),
        (hello(digest=bytes(32)), "site 'site-1' has another configuration than the server"),
    ],
)
def test_a_site_of_another_version_level_or_job_is_refused_by_name(wire, text):
    codes, said, _ = ending(toy, wire)
    assert set(codes.values()) == {2}
    assert said[0].startswith(text)


def test_a_hello_that_comes_after_all_have_agreed_is_refused_by_name():
    def main(place, site):
        if site == "site-1":
            place.names = NAMES
            place.agree(b"job")
            place.tell("hello", tags.GATHER, b"late")
            time.sleep(0.5)
        return toy(place, site) if site != "site-1" else place.settle(b"", lambda told: b"")

    codes, said, _ = ending(main)
    assert set(codes.values()) == {2}
    assert said == ["site 'site-1': GATHER, expected FRAME"]


class Failing(Threads):
    """A wire that fails in one of its calls for good, once the job is under way."""

    call = ""

    def send(self, site, data):
        if self.call == "send" and site == "site-1" and len(self.sent) > 12:
            raise OSError("no route to 10.1.2.3, see /srv/keys/private.pem")
        super().send(site, data)

    def receive(self, seconds):
        if self.call == "receive" and len(self.sent) > 12:
            raise ValueError("no route to 10.1.2.3,\nsee /srv/keys/private.pem")
        return super().receive(seconds)


class FailingSend(Failing):
    call = "send"


class FailingReceive(Failing):
    call = "receive"


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (FailingSend, "the wire FailingSend cannot send to site 'site-1' (OSError: no route to 10.1.2.3, see private.pem)"),
        (FailingReceive, "the wire FailingReceive brings no replies any more (awaited: site '"),
    ],
)
def test_a_wire_that_fails_ends_the_job_by_one_line_and_the_sites_that_it_reaches(wire, text):
    codes, said, others = ending(toy, wire, timeouts=Timeouts(lost=4.0, grace=1.0))
    assert set(codes.values()) == {3}
    assert len(said) == 1
    assert said[0].startswith(text)
    assert "\n" not in said[0]
    assert not any(lines for name, lines in others.items() if name != "site-1")  # told by an exit code
    assert "10.1.2.3" not in str(others)


class Restarting(Threads):
    """A wire that has another spoke for site-1 after some requests: the site was started again."""

    def reply(self, site, spoke, request):
        if site == "site-1" and Letter.unpack(request).number > 3:
            spoke = self.new = getattr(self, "new", None) or Spoke(1, len(NAMES), SHORT, busy=0.2)
        super().reply(site, spoke, request)


def test_a_site_that_was_started_again_is_lost_and_the_job_goes_on_without_it_where_it_can():
    digests = []

    def main(place, site):
        digests.append(toy(place, site))

    codes, said, _ = ending(main, Restarting)
    assert codes[None] == 4
    assert said[0] == "site 'site-1': it was started anew, and knows nothing of this run"
    codes, said, _ = ending(lambda place, site: toy(place, site, stubborn=True), Restarting)
    assert codes[None] == 3
    assert "this method cannot go on without it" in said[-1]


def test_a_server_that_was_started_again_is_refused_by_sites_that_were_not():
    spokes = {name: Spoke(k, 2, SHORT, busy=0.2) for k, name in enumerate(NAMES[:2])}
    for spoke in spokes.values():
        spoke.answer(Letter(1, b"of the first run", 1, []).pack())
    codes, said, _ = ending(
        lambda place, site: place.agree(b"job"), lambda _: Threads(spokes), names=NAMES[:2], unstarted=NAMES[:2]
    )
    assert codes == {None: 2}
    assert len(said) == 1
    assert said[0].endswith("takes no part: an earlier run of the server has not been ended there; start the site again")


def test_a_site_that_is_told_that_the_server_is_gone_ends_at_once():
    said, codes = [], []
    spoke = Spoke(0, 1, Timeouts(lost=600.0, grace=0.1))
    job = threading.Thread(target=lambda: codes.append(spoke.run(lambda place: place.agree(b"job") or 0, said.append)))
    job.start()
    spoke.lose()
    job.join(20.0)
    assert codes == [3]
    assert said == ["client number 1: the server has died; --resume goes on where a checkpoint was kept"]


def test_a_clock_that_is_off_by_a_day_changes_nothing(monkeypatch):
    real = time.time
    days = {}
    monkeypatch.setattr(time, "time", lambda: real() + 86400.0 * days.setdefault(threading.get_ident(), len(days) - 2))
    digests = []

    def main(place, site):
        time.time()
        digests.append(toy(place, site))

    codes, said, _ = ending(main, timeouts=Timeouts(lost=20.0, grace=3.0))
    assert (set(codes.values()), said) == ({0}, [])
    assert in_one_process() in digests
    assert len(set(days.values())) > len(NAMES)


@pytest.mark.parametrize(("job", "at"), [("sparse-sums", 24)])
def test_a_job_that_ended_by_a_restarted_site_goes_on_to_the_same_bits(job, at, tmp_path):
    GOLDEN.write(tmp_path)
    base, *sets = GOLDEN.JOBS[job]
    config, where = load(str(tmp_path / f"{base}.toml"), [*sets, "algorithm.checkpoint_every=1e-6"])
    digests = []

    class Again(Threads):
        def reply(self, site, spoke, request):
            if site == "bo" and Letter.unpack(request).number > at:
                spoke = self.new = getattr(self, "new", None) or Spoke(1, 3, SHORT, busy=0.2)
            super().reply(site, spoke, request)

    def main(place, site, resume):
        done = perform(place, config, where, Output(tmp_path / (site or "server"), resume=resume, quiet=True))
        digests.extend([done.digest] if place.is_server else [])

    with threadpool_limits(1, user_api="blas"):
        want = perform(InProcess(), config, where, Output(tmp_path / "one", quiet=True))
        names = tuple(want.summary["clients"])
        codes, said, _ = ending(lambda place, site: main(place, site, False), Again, names=names)
        assert set(codes.values()) == {3}, said
        assert said[0] == "site 'bo': it was started anew, and knows nothing of this run"
        assert not digests
        codes, said, _ = ending(lambda place, site: main(place, site, True), timeouts=Timeouts(lost=20.0, grace=3.0), names=names)
    assert (set(codes.values()), said) == ({0}, [])
    assert digests == [want.digest]


@pytest.mark.parametrize("said", [b"", b"x", b"\xff" * 70, b"\xff" * 47], ids=len)
@pytest.mark.parametrize(
    "asks", [lambda place: place.agree(b"job"), lambda place: place.choose({place.rank - 1: [0]}, lambda offers: 0)]
)
def test_bytes_of_the_server_that_are_none_are_one_clear_error(said, asks):
    def main(place, site):
        place.names = NAMES
        if place.is_server:
            place.exchange("hello", b"", lambda told: [said] * len(told))
            place.exchange("offers", b"", lambda told: told)
        else:
            asks(place)

    codes, heard, _ = ending(main)
    assert set(codes.values()) == {2}
    assert any("cannot be read" in line for line in heard), heard
    assert not any("internal error" in line or "Traceback" in line for line in heard)


@pytest.mark.parametrize("tag", [tags.EXIT, tags.FAULT])
@pytest.mark.parametrize("data", [b"", b"x", b"xxxxx"])
def test_an_exit_code_that_is_none_ends_a_site_in_order(tag, data):
    """Of FAULT any text may follow the code."""
    if (tag, data) == (tags.FAULT, b"xxxxx"):
        return
    spoke, said = Spoke(0, 2, SHORT, 0.2), []
    done = threads.run_all(
        lambda: spoke.answer(Letter(0, b"j" * 16, 1, [(tag, data)]).pack()),
        {"site": lambda: spoke.run(lambda place: place.agree(b"job"), said.append)},
    )
    assert done["site"] == 2
    assert any("an exit code cannot be read (error)" in line for line in said), said


@pytest.mark.parametrize("told", [b"x", b"[[]]", b"\xff" * 17])
def test_bytes_of_a_site_that_are_none_are_one_clear_error(told):
    def main(place, site):
        place.names = NAMES
        place.agree(b"job")
        if place.is_server:
            place.choose({-1: [0]}, lambda offers: 0)
        else:
            place.exchange("offers", told, lambda told: told)

    codes, heard, _ = ending(main)
    assert set(codes.values()) == {2}
    assert heard == ["what ranks tell (offers) cannot be read (error)"]
