"""All that leaves a private client is a function of releases that were paid for.

Rows are read after the charge is on the disk, messages and states know the releases alone, and no noise comes twice: not in a job
that was killed and resumed, either.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.messages import Charged, ChargeFailed
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.local import Local
from fedkern.algorithms.pvi.messages import SHARDED
from fedkern.algorithms.pvi.noise_aware import Design
from fedkern.api import perform
from fedkern.jobs.hooks import RunHooks
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.pvi import model
from fedkern.models.glm import Rows, prior
from fedkern.privacy.accountant import Mechanism
from fedkern.transports.codec import Codec, pack
from fedkern.transports.driver import ClientSide, Hooks, Kept, Received, ServerSide
from fedkern.transports.inprocess import InProcess
from support import chosen
from support.federations import client_of
from support.sources import Scripted, Silent

D, N, STEPS, DELTA = 3, 40, 3, 1e-5


@dataclass(frozen=True)
class Machine:
    """A way to be a private client."""

    settings: dict[str, Any] = field(default_factory=dict)
    mechanism: dict[str, Any] = field(default_factory=dict)
    algorithm: Any = pvi
    design: Design | None = None

    def side(self, rows, source, hooks=None):
        s = chosen.pvi(**({"family": "bernoulli", "local_steps": STEPS, "learning_rate": 0.1} | self.settings))
        own = {"sampling": "full", "clip": 1.5, "dimension": 2 * D, "noise_multiplier": 2.0}
        ids = np.random.default_rng(len(rows)).integers(2**63, size=len(rows)).astype(np.uint64)
        local = Local(rows, s, 0, Mechanism(**(own | self.mechanism)), source, ids, design=self.design)
        client = client_of(self.algorithm, "c", local, prior(D))
        return ClientSide(self.algorithm.PROTOCOL, {0: client}, Codec(s.sizes(D), 1), hooks or Hooks())

    @property
    def knows_n(self):
        return "dataset_size" in self.mechanism

    def questions(self):
        """What a server asks and says, whatever it hears."""
        for round in range(3):
            h, P = np.linspace(-1, 1, D) * round, np.linspace(0.7, 2, D) + round
            if self.algorithm is global_vi:
                yield global_vi.Parameters(round, h / P, -np.log(P) / 2)
            else:
                yield pvi.QUpdate(round, round, h, P)
                yield pvi.SiteApplied(round, (1.0, 0.25, 0.0)[round])

    def answers(self, rows, source, hooks=None):
        """The frames that leave, and the client's last state."""
        side = self.side(rows, source, hooks)
        frames = [frame for question in self.questions() for frame in side.receive(side.codec.encode(0, question))[1]]
        return frames, side.clients[0]


POISSON = {"sampling": "poisson", "sampling_rate": 0.3}
MACHINES = {
    "adagrad": Machine({"optimiser": "adagrad", "damping": 0.2, "damping_form": "moment"}, POISSON),
    "adam": Machine({"optimiser": "adam"}, POISSON),
    "sgd": Machine({"optimiser": "sgd", "learning_rate": 0.01}),
    "rare rows": Machine({"optimiser": "adagrad"}, POISSON | {"sampling_rate": 0.01}),  # most batches are empty
    "weight-mc": Machine({"estimator": "weight-mc", "draws": 2}, POISSON),
    "activation-mc": Machine({"estimator": "activation-mc", "draws": 2}, POISSON),
    "without replacement": Machine(
        {}, {"sampling": "without-replacement", "batch_size": 7, "dataset_size": N, "accountant": "rdp"}
    ),
    "cut batches": Machine({}, POISSON | {"sampling": "poisson-truncated", "max_batch": 12, "dataset_size": N}),
    "local averaging": Machine({"variant": "local-averaging", "shards": 4}, {"sampling": "shards"}),
    "virtual clients": Machine({"variant": "virtual-clients", "shards": 4, "damping": 0.5}, {"sampling": "shards"}),
    "noise-aware": Machine({"optimiser": "adagrad"}, POISSON, design=Design("bernoulli", np.ones(D), 4)),
    "global": Machine({"variant": "global-vi"}, POISSON, global_vi),
}


def data(n, seed=0, scale=2.0):
    generator = np.random.default_rng(seed)
    return Rows(scale * generator.standard_normal((n, D)), (generator.random(n) < 0.4).astype(float))


def data_sets(n=None):
    """Of any number of rows, or of n: usual ones, none, all alike, and such as hold numbers that may not show."""
    yield from (data(k, seed=k) for k in ((0, 1, 2, 17, N, N + 1, 300) if n is None else (n, n)))
    yield replace(data(N, seed=5), weights=np.geomspace(1e-3, 1e3, N))
    yield Rows(np.zeros((N, D)), np.zeros(N))
    for number in (np.nan, np.inf, 1e200, -1e308, 50.0):
        rows = data(N, seed=6)
        rows.X[3] = number
        yield rows


def check_messages_are_functions_of_the_releases(names=tuple(MACHINES)):
    """A source that releases the same numbers whatever the sums are: then no data set changes a bit of what leaves, or of the
    state that later messages are made of. (Shards have states of their own, by design.)"""
    for name in names:
        machine, seen = MACHINES[name], set()
        for rows in data_sets(N if machine.knows_n else None):
            frames, state = machine.answers(rows, Scripted())
            seen.add(
                (b"".join(frames), b"" if machine.settings.get("variant") in SHARDED else pack(machine.algorithm.save(state)))
            )
        assert len(seen) == 1, f"{name}: {len(seen)} transcripts of {len(list(data_sets()))} data sets"


def test_messages_are_functions_of_the_releases():
    check_messages_are_functions_of_the_releases()


@pytest.mark.parametrize("name", MACHINES)
def test_other_releases_are_other_messages(name):
    """Negative control of the test above: it is not the script that says nothing."""
    (one, _), (other, _) = (MACHINES[name].answers(data(N), Scripted(seed)) for seed in (0, 1))
    assert one[0] != other[0]


# --- charges


class Replacing(Hooks):
    """While the charge is made, all rows become others."""

    def __init__(self, rows, later):
        self.rows, self.later = rows, later

    def charge(self, client, charge):
        self.rows.X[:], self.rows.y[:] = self.later.X, self.later.y
        return Charged(charge.steps)


WHOLE = [name for name, machine in MACHINES.items() if machine.mechanism.get("sampling", "full") in ("full", "shards")]


def check_rows_are_read_after_the_charge(names=(*WHOLE, "global")):
    """Until a charge is made the rows could be anything: what is sent is computed from those that are there afterwards."""
    for name in names:
        machine = replace(MACHINES[name], mechanism={"sampling": MACHINES[name].mechanism.get("sampling", "full")})
        if machine.algorithm is global_vi:
            machine = replace(machine, mechanism={})
        rows, later = data(N, seed=1), data(N, seed=2)
        (before, _), (after, _) = (machine.answers(data(N, seed=seed), Silent()) for seed in (1, 2))
        sent, _ = machine.answers(rows, Silent(), Replacing(rows, later))
        assert before != after
        assert sent == after, f"{name}: computed from rows that were read before the charge"


def test_rows_are_read_after_the_charge():
    check_rows_are_read_after_the_charge()


@pytest.mark.parametrize("name", MACHINES)
def test_as_many_releases_as_were_charged(name):
    """Not one step more: a shorter last update takes those that were granted."""
    charged, source = [], Silent()

    class Granting(Hooks):
        def charge(self, client, charge):
            charged.append(max(1, charge.steps - len(charged)))  # fewer each time
            return Charged(charged[-1])

    MACHINES[name].answers(data(N), source, Granting())
    assert len(charged) == 3
    assert len(source.sums) == sum(charged)


def test_virtual_clients_keep_no_noise_in_their_sites():
    """Their later answers depend on noise through q alone, which was released (docs/spec/pvi.md, section 12 c)."""
    kept = []
    for seed in (0, 1):
        machine = MACHINES["virtual clients"]
        side = machine.side(data(N), Scripted(seed))
        side.receive(side.codec.encode(0, next(machine.questions())))
        _, _, sites = side.clients[0].outstanding
        kept.append(sites)
    np.testing.assert_array_equal(*kept)
    assert np.abs(kept[0]).max() > 0


class Poor(Hooks):
    def charge(self, client, charge):
        return ChargeFailed(charge.steps, 5, 5)


@pytest.mark.parametrize("name", MACHINES)
def test_a_refused_charge_releases_nothing(name):
    source = Silent()
    side = MACHINES[name].side(data(N), source, Poor())
    question = next(MACHINES[name].questions())
    _, (frame,) = side.receive(side.codec.encode(0, question))
    assert isinstance(side.codec.decode(frame, side.protocol.to_server)[1], pvi.Refused)
    assert source.sums == []


# --- whole jobs


CLIENTS = ("a", "b", "c")


def job_of_zeros(folder, variant="global-vi", rounds=4, **privacy):
    """A job whose messages are noise alone."""
    rows, shards = folder / "rows", variant == "virtual-clients"
    rows.mkdir(parents=True)
    for name in CLIENTS:
        (rows / f"{name}.csv").write_text("u,v,y,id\n" + "".join(f"0,0,1,{name}{i}\n" for i in range(9)))
    public = {"kind": "numeric", "center": 0, "scale": 1}
    data = {"clients": [str(rows / "*.csv")], "response": "y", "positive": "1"} | (
        {"row_id": "id"} if shards else {"ignore": ["id"]}
    )
    return load(
        {
            "job": {"rounds": rounds},
            "data": data | {"columns": {"u": public, "v": public, "y": {"levels": ["0", "1"]}}},
            "model": {"intercept": False},
            "algorithm": {"variant": variant, "optimiser": "sgd", "learning_rate": 1e-3, "local_steps": STEPS}
            | ({"shards": 2} if shards else {}),
            "privacy": {"delta": DELTA, "clip": 1.0} | privacy,
        }
    )


def at_home(patch, folder):
    for variable in ("HOME", "FEDKERN_CLIENT_HOME"):
        patch.setenv(variable, str(folder / "home"))


def on_budget(home):
    """Steps that are charged."""
    return sum(json.loads(line).get("steps", 0) for line in (home / "budget.jsonl").read_text().splitlines())


class Crash(Exception):
    pass


def crashed_and_resumed(folder, after=8):
    """Runs a job of zeros until so many answers have arrived; and then to its end.

    Returns
    -------
    (client, round) -> the gradients that have left; and the steps on each client's budget and in its certificate
    """
    config, base = job_of_zeros(folder, epsilon=8.0, noise_multiplier=2.0, sampling_rate=0.5)
    left: dict[tuple[int, int], list[bytes]] = {}
    with pytest.MonkeyPatch.context() as patch:
        at_home(patch, folder)
        receive, arrive, arrived = ClientSide.receive, ServerSide.arrive, itertools.count()

        def noted(self, frame):
            client, frames = receive(self, frame)
            for answer in frames:
                message = self.codec.decode(answer, (*self.protocol.to_server, Received, Kept))[1]
                if isinstance(message, global_vi.Gradient):
                    left.setdefault((client, message.round), []).append(np.concatenate([message.mu, message.omega]).tobytes())
            return client, frames

        def fatal(self, frame, here):
            if self.protocol.name == "global-vi" and next(arrived) == after:
                raise Crash
            return arrive(self, frame, here)

        patch.setattr(ClientSide, "receive", noted)
        with patch.context() as crashing:
            crashing.setattr(ServerSide, "arrive", fatal)
            with pytest.raises(Crash):
                perform(InProcess(), config, base, Output(folder / "out", quiet=True))
        assert sum(map(len, left.values())) > after
        result = perform(InProcess(), config, base, Output(folder / "out", resume=True, quiet=True))
    return left, [(on_budget(folder / "home" / name), result.summary["privacy"][name]["steps"]) for name in CLIENTS]


def check_a_resumed_job_sends_again_what_it_had_sent(tmp_path):
    """One release for each charge: what had left before a crash leaves again byte for byte, is charged once, and stands in the
    certificate."""
    left, spent = crashed_and_resumed(tmp_path)
    assert left.keys() == set(itertools.product(range(len(CLIENTS)), range(4)))
    assert sum(map(len, left.values())) > len(left)  # something has left twice
    twice = [key for key, releases in left.items() if len(set(releases)) > 1]
    assert not twice, f"more than one release of (client, round) {twice}"
    assert spent == [(4, 4)] * len(CLIENTS)


def check_no_noise_comes_twice(tmp_path):
    """Neither at two clients, nor in two rounds, nor before a crash and after it. (A single number may, by chance.)"""
    left, _ = crashed_and_resumed(tmp_path)
    noise = [(key, np.frombuffer(release)) for key, releases in left.items() for release in set(releases)]
    for (key, a), (other, b) in itertools.combinations(noise, 2):
        assert (a == b).sum() < 2, f"(client, round) {key} and {other} have the same noise"


def test_a_resumed_job_sends_again_what_it_had_sent(tmp_path):
    check_a_resumed_job_sends_again_what_it_had_sent(tmp_path)


def test_no_noise_comes_twice(tmp_path):
    check_no_noise_comes_twice(tmp_path)


def check_what_leaves_is_on_the_disk_before(tmp_path, variants=("pvi", "virtual-clients", "global-vi")):
    """When a message leaves, the holder's budget file holds its charge."""
    for variant in variants:
        folder, sent = tmp_path / variant, dict.fromkeys(CLIENTS, 0)
        sampling = "shards" if variant == "virtual-clients" else "full"
        config, base = job_of_zeros(folder, variant, epsilon=8.0, noise_multiplier=20.0, sampling=sampling)
        with pytest.MonkeyPatch.context() as patch:
            at_home(patch, folder)
            real = RunHooks.sending

            def sending(self, client, message, n_bytes, charged, real=real, folder=folder, sent=sent):
                name = CLIENTS[client]
                if isinstance(message, pvi.SiteDelta | global_vi.Gradient):
                    sent[name] += charged
                    written = on_budget(folder / "home" / name)
                    assert charged > 0
                    assert written >= sent[name], f"{sent[name]} steps have been sent, {written} are on the disk"
                return real(self, client, message, n_bytes, charged)

            patch.setattr(RunHooks, "sending", sending)
            perform(InProcess(), config, base, Output(quiet=True))
        assert sent == dict.fromkeys(CLIENTS, 4 * (STEPS if variant == "pvi" else 1))


def test_what_leaves_is_on_the_disk_before(tmp_path):
    check_what_leaves_is_on_the_disk_before(tmp_path)


@pytest.mark.parametrize("last_update", ["refuse", "shorten"])
@pytest.mark.parametrize("variant", ["pvi", "virtual-clients", "global-vi"])
def test_a_job_releases_what_its_budgets_hold(tmp_path, monkeypatch, variant, last_update):
    """Budgets of 7 steps, updates of 3, or of 1: as many noisy sums as there are steps on the budgets when the job ends."""
    at_home(monkeypatch, tmp_path)
    sources = []
    monkeypatch.setattr(model, "SecureSource", lambda: sources.append(Silent()) or sources[-1])
    m = Mechanism(sampling="shards" if variant == "virtual-clients" else "full", clip=1.0, dimension=4, noise_multiplier=20.0)
    terms = {"sampling": m.sampling, "noise_multiplier": m.sigma, "epsilon": m.epsilon(7, DELTA) * (1 + 1e-9)}
    config, base = job_of_zeros(tmp_path, variant, rounds=20, **terms, last_update=last_update)
    result = perform(InProcess(), config, base, Output(quiet=True))
    want = 6 if (variant, last_update) == ("pvi", "refuse") else 7
    assert result.stop == "budget"
    assert [len(source.sums) for source in sources] == [want] * len(CLIENTS)
    assert [on_budget(tmp_path / "home" / name) for name in CLIENTS] == [want] * len(CLIENTS)
    assert [result.summary["privacy"][name]["steps"] for name in CLIENTS] == [want] * len(CLIENTS)
