"""The sampler's machines: bits that must not depend on arrival, pooling, sums; what is sent; participation; loss; checkpoints."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import pooled as gibbs_pooled
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor, MarkovRandomField, Regression, StructuralEquations
from fedkern.errors import LostPeer
from fedkern.models.sparse import graph
from fedkern.transports.codec import Codec, pack, unpack
from fedkern.transports.inprocess import run_protocol as in_process
from support import chosen
from support.refusal import refusal

SIZES = (30, 41, 25)
P = 4


def rows(k, n, p=P):
    random = np.random.default_rng(k)
    X = random.normal(size=(n, p))
    return X, X @ np.linspace(-0.6, 0.8, p) + random.normal(size=n)


def settings(p=P, **changes):
    default = {"layout": Layout(np.arange(p)[None]), "seed": 3, "chains": 2, "rounds": 12, "burn_in": 4}
    return chosen.gibbs(**(default | changes))


def regressions(sizes=SIZES):
    return [Regression(Factor.of(*rows(k, n))) for k, n in enumerate(sizes)]


def clients(s, sites):
    return {k: gibbs.client(f"c{k}", k, s, site) for k, site in enumerate(sites)}


def run(s, sites=None, order=None, **start):
    sites = regressions() if sites is None else sites
    codec = Codec(s.dims(), len(sites))
    return in_process(gibbs.protocol(s), gibbs.start(s, len(sites), **start), clients(s, sites), codec, order=order)


def kept(server):
    return {name: server.trace[name] for name in server.trace.names()}


def same(one, other, names=None):
    for name in names or one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_the_order_of_arrival_does_not_change_a_bit():
    s = settings()
    first = kept(run(s)[0])
    assert first["theta"].shape == (2, 8, P)
    for seed in range(4):
        same(first, kept(run(s, order=random.Random(seed))[0]))


def test_chains_do_not_depend_on_how_many_travel_together():
    two, one = kept(run(settings())[0]), kept(run(settings(chains=1))[0])
    np.testing.assert_array_equal(two["theta"][:1], one["theta"])


@pytest.mark.parametrize("slab", [np.inf, 2.0])
def test_sums_give_the_bits_of_locals(slab):
    """Section 15, test 9: the server works from the sums, added in client order, in both."""
    s = settings(server_sweeps=1, prior=chosen.prior(slab=slab))
    same(kept(run(s)[0]), kept(run(replace(s, aggregate="sums"))[0]), ("theta", "tau_sq", "inclusion", "eta", "rho"))


@pytest.mark.parametrize("moves", [(), ("translate", "interweave")])
@pytest.mark.parametrize("kind", ["regression", "mrf"])
def test_pooled_statistics_give_the_bits_of_the_federated_run(kind, moves):
    s, sites = settings(moves=moves, block=(None, 3)), regressions()
    if kind == "mrf":
        s = replace(s, layout=Layout(graph(P, one_group=False)))
        sites = [MarkovRandomField(Factor.of(rows(k, n)[0])) for k, n in enumerate(SIZES)]
    asked = gibbs_pooled.start(gibbs_pooled.Server(s, kind, len(sites)))
    here = {k: gibbs_pooled.Client(site.factor, n) for k, (site, n) in enumerate(zip(sites, SIZES))}
    pooled, _ = in_process(gibbs_pooled.PROTOCOL, asked, here, Codec(s.dims(), len(sites)))
    same(kept(run(s, sites)[0]), kept(pooled.sampled))


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"moves": ("translate",), "block": (3,)}, {"moves": ("interweave",)}, {"server_sweeps": 1},
        {"moves": ("translate", "interweave"), "block": (None, 3)},
    ],
)  # fmt: skip
def test_the_servers_copy_of_a_deviation_is_the_clients(changes):
    s = settings(**changes)
    seen = []

    class Spy(Regression):
        def sweeps(self, settings, state, theta, tau_sq, **counter):
            seen.append((counter["client"], counter["step"], state["deviation"].copy()))
            return super().sweeps(settings, state, theta, tau_sq, **counter)

    sites = [Spy(site.factor) for site in regressions()]
    server, effects = gibbs.start(s, 3)
    here = clients(s, sites)
    while effects:
        asked, effects = effects, []
        for k, question in asked:
            before = server.deviation
            here[k], answers = gibbs.client_receive(here[k], question)
            if before is not None:
                np.testing.assert_allclose(seen[-1][2], before[k], rtol=1e-9, atol=1e-12)
            for answer in answers:
                server, more = gibbs.server_receive(server, k, answer)
                effects += more
    assert len(seen) == 3 * s.rounds


def test_no_counter_is_used_twice_where_a_client_takes_part_now_and_then():
    """`docs/concepts/bits.md`: every party counts its own sweeps. Who takes part follows from the seed alone."""
    s = settings(participation=0.5, rounds=30, local_sweeps=2)
    server, here = run(s)
    taken = [s.takes_part(r, 3) for r in range(30)]
    for k, client in here.items():
        assert client.step == 2 * server.updates[k]
    assert 0 < sum(map(sum, taken)) < 90
    assert server.step == 30 * s.server_sweeps


def test_an_absent_client_stays_in_the_sums():
    s = settings(participation=0.4, rounds=20)
    server, _ = run(s)
    assert server.deviation.shape[0] == 3
    assert np.abs(server.deviation).min() > 0


def test_a_lost_client_stops_the_job_by_default():
    server, _ = gibbs.start(settings(), 3)
    with pytest.raises(LostPeer, match=r"needs all its clients in round 0.*on_loss"):
        gibbs.server_receive(server, 1, ClientLost(1))


def test_a_dropped_client_makes_another_model_with_its_own_burn_in():
    s = settings(on_loss="drop")
    codec_sites = regressions()
    here = clients(s, codec_sites)
    server, effects = gibbs.start(s, 3)
    rounds = 0
    while effects:
        asked, effects = effects, []
        lost = rounds == 7
        for k, question in asked:
            if lost and k == 2:
                continue
            here[k], answers = gibbs.client_receive(here[k], question)
            for answer in answers:
                server, more = gibbs.server_receive(server, k, answer)
                effects += more
        if lost:
            server, more = gibbs.server_receive(server, 2, ClientLost(2))
            effects += more
        rounds += 1
    assert (server.since, server.round, server.lost) == (7, 7 + s.rounds, frozenset({2}))
    assert server.trace.count == here[0].trace.count == s.rounds - s.burn_in
    assert gibbs.finished(server)


def test_where_all_are_lost_the_job_stops():
    server, _ = gibbs.start(settings(on_loss="drop"), 3)
    for k in (1, 0):
        server, _ = gibbs.server_receive(server, k, ClientLost(k))
    with refusal(LostPeer, "0", "--resume"):
        gibbs.server_receive(server, 2, ClientLost(2))


def test_a_model_without_a_client_is_that_of_the_others():
    """Leave-one-out: the sums have M - 1 terms."""
    s = settings()
    server, _ = run(s, without=frozenset({1}))
    assert server.updates.tolist() == [12, 0, 12]
    two = kept(run(s, [regressions()[0], regressions()[2]])[0])
    assert kept(server)["theta"].shape == two["theta"].shape


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"moves": ("interweave",)}, {"moves": ("translate", "interweave"), "block": (2, 3)},
        {"aggregate": "sums", "server_sweeps": 1}, {"participation": 0.5},
    ],
)  # fmt: skip
def test_a_resumed_run_equals_the_uninterrupted_one(changes):
    s = settings(**changes)
    whole = kept(run(s)[0])
    here = clients(s, regressions())
    server, effects = gibbs.start(s, 3)
    for _ in range(7):
        asked, effects = effects, []
        for k, question in asked:
            here[k], answers = gibbs.client_receive(here[k], question)
            for answer in answers:
                server, more = gibbs.server_receive(server, k, answer)
                effects += more
    fresh, _ = gibbs.start(s, 3)
    server = gibbs.load(fresh, unpack(pack(gibbs.save(server))))
    here = {k: gibbs.load(c, unpack(pack(gibbs.save(here[k])))) for k, c in clients(s, regressions()).items()}
    again, _ = in_process(gibbs.protocol(s), (server, effects), here, Codec(s.dims(), 3))
    same(whole, kept(again))


def test_no_row_is_in_a_checkpoint():
    s = settings()
    _, here = run(s)
    X = rows(0, SIZES[0])[0]
    saved = gibbs.save(here[0])
    held = np.concatenate([np.ravel(v) for v in saved.values() if isinstance(v, np.ndarray)])
    assert not np.isin(X.ravel(), held).any()
    assert "factor" not in json.dumps(sorted(saved))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"round": 3}, "Locals of round 3 is no answer to round 0"),
        ({"deviation": np.full((2, P), 1e13)}, "size 1e[+]13, allowed 1e[+]12"),
        ({"lambda_sq": np.zeros((2, P))}, "lambda_sq must be > 0"),
    ],
)
def test_a_wrong_answer_is_refused_by_name(change, text):
    s = settings()
    server, asked = gibbs.start(s, 3)
    answers = {k: gibbs.client_receive(client, asked[k][1])[1][0] for k, client in clients(s, regressions()).items()}
    for k in (1, 2):
        server, _ = gibbs.server_receive(server, k, answers[k])
    with pytest.raises(RemoteFault, match=f"client 0: .*{text}"):
        gibbs.server_receive(server, 0, replace(answers[0], **change))


def test_an_answer_that_nobody_asked_for_is_refused():
    s = settings()
    server, asked = gibbs.start(s, 3)
    _, (answer,) = gibbs.client_receive(clients(s, regressions())[0], asked[0][1])
    server, _ = gibbs.server_receive(server, 0, answer)
    with pytest.raises(RemoteFault, match="client 0"):
        gibbs.server_receive(server, 0, answer)


def test_a_judge_ends_the_run_when_the_kept_rounds_have_doubled():
    counts = []

    def judge(trace):
        counts.append(trace.count)
        return trace.count >= 1000

    server, _ = run(settings(rounds=5000, burn_in=10, chains=1), judge=judge)
    assert counts == [250, 500, 1000]
    assert (server.stop, server.trace.count) == ("converged", 1000)


def test_structural_equations_run_through_the_same_machines():
    s = settings(layout=Layout(graph(3, one_group=True)), rounds=10)
    sites = []
    for k, n in enumerate(SIZES):
        Y = np.random.default_rng(k).laplace(size=(3, n))
        sites.append(StructuralEquations(Y - Y.mean(axis=1, keepdims=True)))
    server, here = run(s, sites)
    assert kept(server)["theta"].shape == (2, 6, 6)
    assert here[0].trace["b"].shape == (2, 6, 3)
    same(kept(server), kept(run(s, sites, order=random.Random(1))[0]))
