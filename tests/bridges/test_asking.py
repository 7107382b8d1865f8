"""A wire made of a blocking call: the bits of one process, whatever the call loses, and one request of a site at a time."""

import random
import threading
import time

import pytest

from fedkern.bridges.server import AskingWire
from fedkern.jobs.keeping import Keeper
from fedkern.transports.driver import Timeouts
from fedkern.transports.relay import Hub, Lost, Spoke
from support.outside import threads
from support.toy_job import DEFAULTS, NAMES, in_one_process, protocols, result

BRIEF = Timeouts(lost=20.0, grace=3.0)


def over(ask_of, pause=0.01, again=30.0, made=lambda wire: None):
    """Runs the toy job over a wire whose call is ask_of(spokes); returns the exit codes and the digests."""
    digests, spokes = [], {site: Spoke(k, len(NAMES), BRIEF) for k, site in enumerate(NAMES)}

    def main(place):
        place.agree(b"job")
        servers = protocols(place, DEFAULTS, Keeper(NAMES))
        digests.extend([(result(*servers), sorted(servers[-1].lost))] if place.is_server else [])
        return 0

    wire = AskingWire(ask_of(spokes), NAMES, pause)
    made(wire)
    hub = Hub(wire, NAMES, BRIEF, again)
    sites = {site: lambda spoke=spoke: spoke.run(main, print) for site, spoke in spokes.items()}

    def server():
        code = hub.run(main, print)
        wire.close()  # as soon as the job has ended, as engines do
        return code

    return threads.run_all(server, sites), digests


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_bits_of_one_process_and_one_request_at_a_time(seed):
    luck, under_way = random.Random(seed), dict.fromkeys(NAMES, 0)

    def ask_of(spokes):
        def ask(site, data):
            under_way[site] += 1
            assert under_way[site] == 1
            lost = luck.random() if seed is not None else 1.0
            reply = None if lost < 0.15 else spokes[site].answer(data)  # it has not come there
            under_way[site] -= 1
            return None if lost < 0.3 else reply  # or its reply has not come here

        return ask

    codes, digests = over(ask_of, again=0.05 if seed else 30.0)
    assert set(codes.values()) == {0}
    assert digests == [(in_one_process(), [])]


def test_a_site_that_starts_late_is_asked_until_it_is_there():
    since = time.monotonic()

    def ask_of(spokes):
        return lambda site, data: spokes[site].answer(data) if time.monotonic() - since > 0.3 else None

    codes, digests = over(ask_of)
    assert set(codes.values()) == {0}
    assert digests == [(in_one_process(), [])]


def test_a_newer_request_takes_the_place_of_one_that_nobody_answers():
    asked = []
    wire = AskingWire(lambda site, data: asked.append(data) or (b"yes" if data == b"two" else None), ["a"], 0.01)
    wire.send("a", b"one")
    time.sleep(0.1)
    wire.send("a", b"two")
    assert wire.receive(5.0) == ("a", b"yes")
    assert set(asked) == {b"one", b"two"}
    wire.close()


def test_sites_hear_that_a_job_has_ended_without_one_of_them():
    wires = []

    def ask_of(spokes):
        asked = dict.fromkeys(NAMES, 0)

        def ask(site, data):
            asked[site] += 1
            if site == NAMES[-1] and asked[site] > 6:
                wires[0].lose(site, "gone")
                return None
            time.sleep(0.02)
            return spokes[site].answer(data)

        return ask

    codes, _ = over(ask_of, made=wires.append)
    assert codes[None] == 4
    assert {codes[name] for name in NAMES[:-1]} == {0}


def test_losses_are_told_and_threads_end():
    wire = AskingWire(lambda site, data: None, ["one", "two"], 5.0)
    wire.send("one", b"question")
    wire.lose("two", "gone")
    assert wire.receive(1.0) == Lost("two", "gone")
    assert wire.receive(0.0) is None
    wire.close()
    until = time.monotonic() + 5
    while (left := [thread for thread in threading.enumerate() if thread.name in ("fedkern-one", "fedkern-two")]) and (
        time.monotonic() < until
    ):
        time.sleep(0.01)
    assert not left
