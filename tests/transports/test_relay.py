"""A job over a relay: the bits of one process, over a wire that loses, doubles and delays; and one end whatever a site does."""

import contextlib
import struct

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.api import perform
from fedkern.cli.__main__ import main as main_of_commands
from fedkern.errors import JobError
from fedkern.jobs.keeping import Keeper
from fedkern.jobs.opened import sent
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports import tags
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from fedkern.transports.relay import Hub, Letter, Spoke, put_aside, refuse
from fedkern.transports.relay_letters import ANEW, ENVELOPE, REFUSED, WAITING
from support.golden_jobs import golden_jobs
from support.outside import threads
from support.relayed import Threads, careless, over_threads
from support.toy_job import DEFAULTS, NAMES, in_one_process, protocols, result

BRIEF = Timeouts(lost=20.0, grace=3.0)
GOLDEN = golden_jobs()


def toy_job(mishap="", at="site-1", **more):
    """A main of the toy job, and where the server's digest goes."""
    digests = []

    def main(place, site):
        ask = DEFAULTS | {"mishap": mishap, "rank": 1 + NAMES.index(at)} | more
        place.agree(b"another job" if mishap == "configuration" and site == at else b"job")
        servers = protocols(place, ask, Keeper(NAMES))
        if place.is_server:
            digests.append((result(*servers), sorted(servers[-1].lost)))
            return 4 if servers[-1].lost else 0
        return 0

    return main, digests


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_the_same_bits_as_one_process_over_a_careless_wire(seed):
    main, digests = toy_job()
    codes, said, wire = over_threads(main, NAMES, careless(seed) if seed is not None else None, BRIEF, again=0.05, busy=0.5)
    assert (set(codes.values()), said) == ({0}, [])
    assert digests == [(in_one_process(), [])]
    # A hello, a round of the first protocol, four of the second, and the end: all that is to be said goes in one request.
    rounds = sum(site == "site-2" for site, _ in wire.sent)
    assert rounds <= 9 if seed is None else rounds > 5


def test_a_site_that_computes_long_is_asked_until_it_answers():
    main, digests = toy_job(nap=0.6, nappers=[1])
    codes, _, wire = over_threads(main, NAMES, None, BRIEF, busy=0.1)
    assert set(codes.values()) == {0}
    assert digests == [(in_one_process(), [])]
    asked = [sum(site == name for site, _ in wire.sent) for name in NAMES]
    assert asked[1] > asked[0]


FAULTS = {
    "raise": (1, "internal error"),
    "data": (2, "client 0: column 'age' is missing"),
    "garbage": (2, "not a version 1 fedkern frame"),
    "long": (2, "a message of 4194304 bytes"),
    "foreign": (2, "came from a rank where it does not live"),
    "configuration": (2, "site 'site-1' has another configuration than the server"),
}


@pytest.mark.parametrize("mishap", FAULTS)
def test_a_fault_of_a_site_ends_the_job_at_all_with_one_code(mishap):
    main, digests = toy_job(mishap)
    codes, said, _ = over_threads(main, NAMES, None, BRIEF)
    code, text = FAULTS[mishap]
    assert set(codes.values()) == {code}
    assert not digests
    assert [site for site, _ in said] == [None]  # the coordinator alone reads it
    assert text in said[0][1]


def test_a_fault_of_the_server_ends_the_job_at_all():
    main, digests = toy_job("raise")
    codes, _, _ = over_threads(lambda place, site: main(place, site) if site else 1 // 0, NAMES, None, BRIEF)
    assert set(codes.values()) == {1}
    assert not digests


class Losing(Threads):
    """A wire that loses one site after some requests to it."""

    def send(self, site, data):
        super().send(site, data)
        if site == "site-1" and sum(name == site for name, _ in self.sent) == 3:
            self.lose(site, "its connection has ended")


def test_a_lost_site_is_told_to_the_method_and_the_job_goes_on():
    main, digests = toy_job()
    codes, said, _ = over_threads(main, NAMES, None, Timeouts(lost=2.0, grace=1.0), wire=Losing)
    assert next(text for site, text in said if site is None) == (
        "site 'site-1': the wire has lost it: its connection has ended"  # the operator alone reads why
    )
    assert not any("connection" in text for site, text in said if site is not None)
    assert codes.pop("site-1") == 3  # nobody speaks to it any more
    assert set(codes.values()) == {4}
    assert digests[0][1] == [1]


class Deaf(Threads):
    """A wire whose site never answers."""

    def send(self, site, data):
        if site != "site-3":
            super().send(site, data)


def test_a_site_that_never_comes_ends_the_job():
    main, digests = toy_job()
    codes, said, _ = over_threads(main, NAMES, None, Timeouts(lost=1.0, grace=0.5), wire=Deaf)
    assert codes[None] == 3
    assert not digests
    assert "silent" in " ".join(text for _, text in said)


class Recorded(Threads):
    """A wire that keeps all replies."""

    def __init__(self, spokes, faults=None):
        self.seen = []
        super().__init__(spokes, faults)

    def receive(self, seconds):
        came = super().receive(seconds)
        if came:
            self.seen.append(came)
        return came


def test_an_older_request_gets_the_same_bytes_and_is_not_heard_twice():
    spoke, request = Spoke(0, 1, busy=0.05), Letter(WAITING, b"j" * 16, 1, [(tags.PING, b"")]).pack()
    first = spoke.answer(request)
    assert spoke.answer(request) == first
    assert len(spoke.link._inbox) == 1
    assert Letter.unpack(spoke.answer(Letter(WAITING, b"j" * 16, 3, []).pack())).state == ANEW  # one was missed
    late = Letter.unpack(spoke.answer(Letter(WAITING, b"j" * 16, 0, []).pack()))
    assert (late.number, late.items) == (0, [])  # no hub takes it for a reply to a later request
    other = Letter.unpack(spoke.answer(Letter(WAITING, b"k" * 16, 2, []).pack()))
    assert (other.job, other.state) == (b"k" * 16, REFUSED)
    assert b"an earlier run" in other.items[0][1]
    wrong = Letter.unpack(spoke.answer(Letter(WAITING, b"j" * 16, 2, [], site=2).pack()))
    assert wrong.state == REFUSED
    assert wrong.items[0][1] == b"it is client number 1 of its job, and was asked for number 2"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"fdrm" + data[4:],
        lambda data: data[:-9] + struct.pack("<Q", 1 << 60) + data[-1:],
        lambda data: data[:6] + b"\xff\xff" + data[8:],
        lambda data: data[:76] + struct.pack("<I", 1 << 31) + data[80:],
    ],
)
def test_what_is_no_letter_is_refused(change):
    data = Letter(WAITING, b"j" * 16, 1, [(tags.PING, b"x")]).pack()
    assert Letter.unpack(data).items == [(tags.PING, b"x")]
    assert ENVELOPE.size == 80  # the last item says how many follow
    with pytest.raises(RemoteFault, match="relayed message"):
        Letter.unpack(change(data))


def test_every_other_bit_of_a_letter_is_read_or_refused():
    data = Letter(WAITING, b"j" * 16, 1, [(tags.PING, b"x"), (tags.STOP, b"")]).pack()
    generator = np.random.default_rng(3)
    for _ in range(500):
        cut = bytearray(data[: generator.integers(1, len(data) + 1)])
        cut[generator.integers(len(cut))] ^= 1 << generator.integers(8)
        with contextlib.suppress(RemoteFault):
            Letter.unpack(bytes(cut))


class Foreign(Threads):
    """A wire that brings a reply of a site that is not in the job."""

    def receive(self, seconds):
        return "nobody", Letter(WAITING, b"j" * 16, 1, []).pack()


def test_a_reply_of_an_unknown_site_is_refused_by_name():
    main, _ = toy_job()
    codes, said, _ = over_threads(main, NAMES, None, Timeouts(lost=1.0, grace=0.2), wire=Foreign)
    assert codes[None] == 2
    assert "site 'nobody' is not in this job" in said[0][1]


class Deciding(Threads):
    """A wire at whose second site somebody decides first: a function of the request says how."""

    decide = None

    def reply(self, site, spoke, request):
        decided = type(self).decide(request) if site == NAMES[1] else None
        if decided is None:
            super().reply(site, spoke, request)
        else:
            self.replies.put((site, decided))


def test_a_site_that_takes_no_part_ends_the_job_by_its_reason():
    main, digests = toy_job()

    class Refusing(Deciding):
        decide = staticmethod(lambda request: refuse(request, "no such job is accepted here"))

    codes, said, _ = over_threads(main, NAMES, None, Timeouts(lost=1.0, grace=0.2), wire=Refusing)
    assert codes[None] == 2
    assert f"site {NAMES[1]!r} takes no part: no such job is accepted here" in said[0][1]
    assert not digests


def test_a_site_at_which_somebody_decides_first_is_asked_again():
    main, digests = toy_job()
    times = []

    class Slow(Deciding):
        @staticmethod
        def decide(request):
            times.append(Letter.unpack(request).number)
            return put_aside(request) if len(times) < 4 else None

    codes, said, _ = over_threads(main, NAMES, None, BRIEF, again=0.05, wire=Slow)
    assert (set(codes.values()), said) == ({0}, [])
    assert times[:4] == [1] * 4
    assert digests == [(in_one_process(), [])]


def test_a_request_says_which_job_it_is_of():
    seen = []

    class Looking(Deciding):
        decide = staticmethod(lambda request: seen.append(Letter.unpack(request).digest))

    main, _ = toy_job()
    spokes = {site: Spoke(k, len(NAMES), BRIEF) for k, site in enumerate(NAMES)}
    hub = Hub(Looking(spokes), NAMES, BRIEF, digest=b"d" * 32)
    threads.run_all(
        lambda: hub.run(lambda place: main(place, None), print),
        {
            site: lambda spoke=spoke, site=site: spoke.run(lambda place: main(place, site), print)
            for site, spoke in spokes.items()
        },
    )
    assert set(seen) == {b"d" * 32}


def test_two_sites_with_one_name_are_refused():
    with pytest.raises(JobError, match="one name: a, a, b"):
        Hub(Threads({}), ["a", "b", "a"])


class Replaying(Recorded):
    """A wire that brings old replies of a site again, between the new ones."""

    def receive(self, seconds):
        if self.seen and len(self.seen) % 3 == 0:
            self.seen.append(self.seen[0])
            return self.seen[-2]
        return super().receive(seconds)


def test_old_replies_change_nothing():
    main, digests = toy_job()
    codes, said, _ = over_threads(main, NAMES, None, BRIEF, wire=Replaying)
    assert (set(codes.values()), said) == ({0}, [])
    assert digests == [(in_one_process(), [])]


def test_nothing_of_a_machine_leaves_a_site():
    spoke = Spoke(0, 2)
    assert spoke.ranks.machine() != spoke.ranks.machine()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden")
    GOLDEN.write(path)
    return path


# Open jobs with levels, which have one question more where parties are apart: whether rare ones join.
WITH_LEVELS = ("likelihood-formula", "pvi-sequential")


def finished(place, folder, job, out):
    base, *sets = GOLDEN.JOBS[job]
    sets += ['disclosure.rare="refuse"'] * (job in WITH_LEVELS)
    config, where = load(str(folder / f"{base}.toml"), sets)
    return perform(place, config, where, Output(out, quiet=True))


def test_a_logistic_job_with_effects_of_groups_asks_three_sites_seventeen_times(monkeypatch):
    """Thirteen questions of the method: columns (3), empty cells, notes, level, the way to the mode (5, the last with draws), a
    second round of draws, since 1,200 are to count of a first one's 1,024, and the fit."""
    monkeypatch.setattr("fedkern.transports.relay.EVERY", 600.0)
    rng, data = np.random.default_rng(1), {}
    for name in ("ada", "bo", "cy"):
        ward = np.repeat(np.arange(20), 15)
        X = np.column_stack([50 + 10 * rng.standard_normal(300), rng.standard_normal(300)])
        eta = 0.05 * (X[:, 0] - 50) + 0.3 * X[:, 1] + 0.7 * rng.standard_normal(20)[ward]
        data[name] = pd.DataFrame(X, columns=["age", "dose"]).assign(ward=ward, y=(rng.random(300) < 1 / (1 + np.exp(-eta))) * 1)
    model = {"family": "bernoulli", "random": {"group": "ward"}}
    results = []

    def main(place, site):
        result = fedkern.run({"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": model}, data=data, place=place)
        results.extend([result] if place.is_server else [])
        return 0

    with threadpool_limits(1, user_api="blas"):
        codes, said, wire = over_threads(main, tuple(data), None, Timeouts(lost=600.0, grace=3.0), busy=600.0)
    assert (set(codes.values()), said) == ({0}, [])
    assert results[0].converged
    asked = [sum(site == name for site, _ in wire.sent) for name in data]
    assert asked == [15] * 3  # no folder, whose two requests a run with files has besides


ON_PUSH = (
    "likelihood-formula",
    "pvi-sequential",
    "pvi-private-budget",
    "vertical-mean-field",
    "sparse-sums",
    "pvi-asynchronous-adam",
)
AS_THEY_COME = ("pvi-asynchronous-adam", "pvi-private-poisson")  # schedules that take answers as they come
# To each site. A protocol's last words and its end travel with the next one's first question, the end of one question with it.
REQUESTS = {"likelihood-formula": [24] * 3, "sparse-sums": [52] * 3, "pvi-private-budget": [146, 148, 148]}
WITH_MORE = ("sigma-hmc", "sigma-nested", "sigma-private", "sigma-resumed", "sigma-sfvi")  # need a prior that is built before


@pytest.mark.parametrize(
    "job",
    [job if job in ON_PUSH else pytest.param(job, marks=pytest.mark.nightly) for job in GOLDEN.JOBS if job not in WITH_MORE],
)
def test_whole_jobs_have_the_bits_and_the_ledger_of_one_process(job, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("fedkern.transports.relay.EVERY", 600.0)  # on a slow machine, too, requests are those of the job
    # Threads of one process share the BLAS's number of threads; sites of a real job have a process each.
    with threadpool_limits(1, user_api="blas"):
        want = finished(InProcess(), folder, job, tmp_path / "one")
        results = []
        names = tuple(want.summary["clients"])

        def main(place, site):
            done = finished(place, folder, job, tmp_path / (site or "server"))
            results.extend([done] if place.is_server else [])
            return 0

        codes, said, wire = over_threads(main, names, None, Timeouts(lost=2400.0, grace=3.0), busy=600.0)
    assert (set(codes.values()), said) == ({0}, [])
    if job in AS_THEY_COME:
        assert main_of_commands(["replay", str(tmp_path / "server")]) == 0
        return
    assert results[0].digest == want.digest
    assert results[0].summary["wire"] == want.summary["wire"]
    if job in REQUESTS:
        assert [sum(site == name for site, _ in wire.sent) for name in names] == REQUESTS[job]
    for name in names:
        ledgers = [sent(tmp_path / run / "ledger" / f"{name}.jsonl") for run in ("one", name)]
        one, own = ([(line.kind, line.round, line.bytes, line.charge, line.fields) for line in ledger] for ledger in ledgers)
        assert len(one) > 3
        assert one == own


@pytest.mark.parametrize("job", ["pvi-sequential", "pvi-private-budget", "sparse-sums"])
def test_a_job_that_was_stopped_goes_on_to_the_same_bits_and_pays_nothing_twice(job, folder, tmp_path):
    """Stopped in a round whose answers have left the sites, and gone on with by spokes that know nothing of the earlier ones."""
    with threadpool_limits(1, user_api="blas"):
        want = finished(InProcess(), folder, job, tmp_path / "one")
        names = tuple(want.summary["clients"])

        def main(place, site, resume, digests):
            base, *sets = GOLDEN.JOBS[job]
            config, where = load(str(folder / f"{base}.toml"), [*sets, "algorithm.checkpoint_every=1e-6"])
            if place.is_server and not resume:
                stop_after_forty_messages(place)
            done = perform(place, config, where, Output(tmp_path / (site or "server"), resume=resume, quiet=True))
            digests.extend([done.digest] if place.is_server else [])
            return 0

        first, then = [], []
        codes, said, _ = over_threads(lambda place, site: main(place, site, False, first), names, None, BRIEF)
        assert set(codes.values()) == {3}, said
        assert "--resume" in said[0][1]
        assert not first
        codes, said, _ = over_threads(
            lambda place, site: main(place, site, True, then), names, careless(1), BRIEF, again=0.05, busy=0.5
        )
    assert (set(codes.values()), said) == ({0}, [])
    assert then == [want.digest]


def stop_after_forty_messages(place):
    """Asks a place to stop once its link has received forty messages."""
    receive, count = place.link.receive, 0

    def counting(longest, only=None):
        nonlocal count
        item = receive(longest, only)
        count += item is not None
        if count == 40:
            place.signals.pending = "SIGTERM"
        return item

    place.link.receive = counting


def test_a_spoke_is_of_one_client_of_the_job_and_of_one_job():
    with pytest.raises(JobError, match="client = 3: wanted a number from 0 to 1"):
        Spoke(3, 2)
    spokes = [Spoke(k, len(NAMES), BRIEF) for k in range(len(NAMES))]
    main, _ = toy_job()
    wire = Threads(dict(zip(NAMES, spokes)))
    sites = {
        name: lambda spoke=spoke, name=name: spoke.run(lambda place: main(place, name), print)
        for name, spoke in zip(NAMES, spokes)
    }
    assert set(threads.run_all(lambda: Hub(wire, NAMES, BRIEF).run(lambda place: main(place, None), print), sites).values()) == {
        0
    }
    with pytest.raises(JobError, match="make one for each job"):
        spokes[0].run(lambda place: 0, print)
    assert Spoke(0, 1, Timeouts(lost=4.0), busy=10.0).link.busy == 1.0
