"""The vertical machines: equal to one centralised computation, what travels, what is refused, and bits that must not change."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.core.messages import SERVER, RemoteFault
from fedkern.algorithms.core.optim import OPTIMISERS
from fedkern.algorithms.split import client as vertical_client
from fedkern.algorithms.split import machine as vertical
from fedkern.errors import NumericalError
from fedkern.kernels import rng
from fedkern.models.split.site import Auxiliary, Likelihood, Linear, Shared, Site
from fedkern.transports.codec import HEADER, Codec, pack, unpack
from fedkern.transports.inprocess import run_protocol as in_process
from support import chosen
from support import vertical_cases as cases
from support.federations import play
from support.refusal import refusal

NAMES = ("north", "east", "south")
MODELS = {"av": "augmented", "pl": "power"}
FORMS = {"av": {}, "av-shared": {"response": "shared"}, "pl": {"response": "shared"}}
VARIANTS = {
    "plain": {},
    "batches": {"batch": 6},
    "draws": {"draws": 3, "average": "half"},
    "bound": {"bound": True, "cool_down": 0.5, "optimiser": "adagrad"},
    "memory": {"memory": 0.5},
}


def model(form, auxiliary="amortised", likelihood="dispersed", **options):
    return cases.case(form[:2], auxiliary, True, ("linear", "multilevel", "network"), likelihood, **options)


def settings(c, form, rounds=9, **changes):
    given = {"seed": 5, "rounds": rounds, "n_rows": c.n, "n_clients": c.J, "dispersed": c.likelihood.dispersed}
    return chosen.split(**(given | {"model": MODELS[c.kind]} | FORMS[form] | changes))


def machines(c, s):
    held = (c.y, c.likelihood) if s.model == "power" or s.response == "shared" else (None, None)
    y = None if s.model == "power" else c.y
    here = {k: vertical.client(NAMES[k], k, s, site, *held) for k, site in enumerate(c.sites)}
    return vertical.start(s, c.shared, NAMES[: c.J], y, c.offset), here


def run(c, s, order=None):
    started, here = machines(c, s)
    return in_process(vertical.protocol(s), started, here, Codec(s.dims(), c.J), order=order)


def everything(server, clients):
    out = {"server": server.parameters, "server.optimiser": server.optimiser, "server.Z": server.Z}
    for k, client in clients.items():
        out |= {f"{k}.{name}": getattr(client, name) for name in ("parameters", "optimiser", "residual", "released")}
    return out


def same(one, other):
    one, other = everything(*one), everything(*other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


# ---- one centralised computation


def centralised(c, s):
    """All parties' steps in one loop of plain arithmetic, with the draws that the streams give: parameters after each round."""
    optimiser = OPTIMISERS[s.optimiser](s.learning_rate)
    sites = c.sites
    key = rng.key(s.seed, "initial")
    parameters = [site.initial(rng.uniform(site.n_uniforms, key=key, client=k), 0.1) for k, site in enumerate(sites)]
    server = c.shared.block.initial(0.0, 0.1)
    states, server_state = [optimiser.init(len(p)) for p in parameters], optimiser.init(len(server))
    heard, n = np.zeros((c.J, c.n)), s.batch or c.n
    for k in range(s.rounds):
        index = vertical.batch_of(s, k)
        rows = slice(None) if index is None else index
        centre = [site.mean_g(p) for site, p in zip(sites, parameters)]
        columns = {"response": [c.y] * c.J, "residual": heard, "centre": centre}
        extra = [
            np.array([columns[name][j] for name in site.auxiliary.inputs]).reshape(-1, c.n).T for j, site in enumerate(sites)
        ]
        totals, total = [0.0] * c.J, 0.0
        said = []
        for i in range(s.draws):
            eps, tau = [], []
            for j, site in enumerate(sites):
                d = site.predictor.n_theta
                normals = rng.normal(d + n, key=rng.key(s.seed, "draws"), client=j, step=k * s.draws + i)
                spread = np.zeros(c.n)
                spread[rows] = normals[d:]
                eps.append(normals[:d])
                tau.append(spread)
            d = c.shared.block.size
            eps_server = rng.normal(s.draws * d, key=rng.key(s.seed, "draws"), client=SERVER, step=k)[i * d : (i + 1) * d]
            now = replace(c, parameters=parameters, server=server, extra=extra, eps=eps, tau=tau, eps_server=eps_server)
            gradients, server_gradient = cases.federated(now, index)
            totals = [a + g / s.draws for a, g in zip(totals, gradients)]
            total = total + server_gradient / s.draws
            said.append(messages(now, index))
        heard[:, rows] = s.memory * heard[:, rows] + (1 - s.memory) * np.mean(said, axis=0)
        moved = []
        for j, site in enumerate(sites):
            touched = site.columns(index)
            touched = np.arange(site.n_parameters) if touched is None else touched
            states[j] = states[j].copy()
            states[j][:, touched], step = optimiser.update(states[j][:, touched], totals[j])
            moved.append(parameters[j].copy())
            moved[j][touched] += step
        server_state, step = optimiser.update(server_state, total)
        parameters, server = moved, server + step
    return parameters, server


def messages(c, index):
    """(J, n): what the others say of dL/dz_j."""
    rows = slice(None) if index is None else index
    drawn, values = cases.draws(c, index)
    b, w = c.shared.split(values)
    y, base, Z = c.y[rows], b + c.offset[rows], sum(d.z for d in drawn)
    if c.kind == "av":
        return np.array([c.likelihood.slope(y, base + Z, w)] * c.J)
    own = np.array([c.likelihood.slope(y, base + d.g + Z - d.z, w) / c.J for d in drawn])
    return own.sum(axis=0) - own


@pytest.mark.parametrize("variant", ["plain", "batches", "draws"])
@pytest.mark.parametrize("auxiliary", cases.AUXILIARIES)
@pytest.mark.parametrize("form", FORMS)
def test_federated_is_one_centralised_computation(form, auxiliary, variant):
    c = model(form, auxiliary)
    check(c, settings(c, form, **VARIANTS[variant]))


def check(c, s):
    server, clients = run(c, s)
    parameters, of_server = centralised(c, s)
    np.testing.assert_allclose(server.parameters, of_server, rtol=1e-9, atol=1e-11)
    for k, want in enumerate(parameters):
        np.testing.assert_allclose(clients[k].parameters, want, rtol=1e-9, atol=1e-11)


def told_the_centre(c):
    """The same with one more input: g at the mean of theta."""
    sites = [replace(s, auxiliary=replace(s.auxiliary, inputs=(*s.auxiliary.inputs, "centre"))) for s in c.sites]
    return replace(c, sites=sites)


@pytest.mark.parametrize("variant", ["plain", "batches"])
@pytest.mark.parametrize("form", FORMS)
def test_networks_that_are_told_the_mean_of_their_own_part(form, variant):
    c = told_the_centre(model(form))
    check(c, settings(c, form, **VARIANTS[variant]))


def fresh_theta(state, *rest, **named):
    """Section 12, item 3."""
    random = np.random.default_rng(state.round)
    drawn = tuple(cases.redrawn(state.site, state.parameters, d, random) for d in state.drawn)
    return GRADIENT(replace(state, drawn=drawn), *rest, **named)


def own_z_stays(state, parameters, parts, own, **named):
    """PL: what is said of dL/dz_j holds rho_j too."""
    return GRADIENT(state, parameters, tuple(p + o for p, o in zip(parts, own)), own, **named)


def no_factor(state, *rest, **named):
    """A batch that counts as itself."""
    return GRADIENT(replace(state, settings=replace(state.settings, batch=None)), *rest, **named)


GRADIENT = vertical_client._gradient


@pytest.mark.parametrize(
    ("planted", "form", "variant"), [(fresh_theta, "av", "plain"), (own_z_stays, "pl", "plain"), (no_factor, "av", "batches")]
)
def test_negative_control_of_the_machines(planted, form, variant, monkeypatch):
    c = model(form)
    s = settings(c, form, rounds=2, **VARIANTS[variant])
    check(c, s)
    monkeypatch.setattr(vertical_client, "_gradient", planted)
    with pytest.raises(AssertionError):
        check(c, s)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("auxiliary", cases.AUXILIARIES)
def test_the_response_at_the_server_or_shared_gives_the_same_bits(auxiliary, variant):
    c = model("av", auxiliary)
    same(run(c, settings(c, "av", **VARIANTS[variant])), run(c, settings(c, "av-shared", **VARIANTS[variant])))


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_arrival_does_not_change_a_bit(form):
    c = model(form)
    s = settings(c, form, bound=True)
    want = run(c, s)
    for seed in range(4):
        same(want, run(c, s, random.Random(seed)))


# ---- rows of a batch


def test_an_epoch_takes_every_row_once_and_nobody_sends_an_index():
    c = model("av")
    s = settings(c, "av", batch=5, rounds=40)
    per_epoch = c.n // 5
    epochs = [[vertical.batch_of(s, e * per_epoch + k) for k in range(per_epoch)] for e in range(8)]
    for epoch in epochs:
        assert len(set(np.concatenate(epoch).tolist())) == 5 * per_epoch
    assert not np.array_equal(epochs[0][0], epochs[1][0])
    chances = np.bincount(np.concatenate([i for e in range(400) for i in [vertical.batch_of(s, e * per_epoch)]]), minlength=c.n)
    assert chances.min() > 0
    assert abs(chances - 400 * 5 / c.n).max() < 5 * np.sqrt(400 * 5 / c.n)


def test_rows_that_were_not_in_a_batch_keep_their_optimisers_state():
    c = model("av", "mean-field")
    s = settings(c, "av", batch=6, rounds=2)
    _, clients = run(c, s)
    seen = np.union1d(*(vertical.batch_of(s, k) for k in range(2)))
    unseen = np.setdiff1d(np.arange(c.n), seen)
    assert len(unseen)
    for client in clients.values():
        for part, start in (("mean", 0.0), ("log_sd", np.log(cases.RHO))):
            at = client.site.parts[part]
            assert (client.parameters[at][unseen] == start).all()
            assert (client.optimiser[:, at][:, unseen] == 0).all()
            assert (client.optimiser[2, at][seen] == 1).all()
            assert (client.parameters[at][seen] != start).all()


def test_no_counter_is_used_twice(monkeypatch):
    """`docs/concepts/bits.md`: (stream, client, step) of every draw of a job is its own."""
    used, normal = [], rng.normal

    def recorded(n, *, key, client, step, **rest):
        used.append((key, client, step))
        return normal(n, key=key, client=client, step=step, **rest)

    monkeypatch.setattr(rng, "normal", recorded)
    c = model("av")
    run(c, settings(c, "av", draws=2, rounds=7))
    assert len(used) == len({repr(u) for u in used}) == 7 * (3 * 2 + 1)


# ---- the wire


def captured(c, s):
    """(direction, kind, frame) of everything that travels."""
    frames = []
    codec = Codec(s.dims(), c.J)
    encode, readdress = codec.encode, codec.readdress

    def remembered(client, message, *rest, **named):
        frame = encode(client, message, *rest, **named)
        frames.append((type(message), bytes(frame)))
        return frame

    def again(frame, client):
        copy = readdress(frame, client)
        frames.append((frames[-1][0], bytes(copy)))
        return copy

    codec.encode, codec.readdress = remembered, again
    started, here = machines(c, s)
    result = in_process(vertical.protocol(s), started, here, codec)
    return frames, result


@pytest.mark.parametrize("auxiliary", cases.AUXILIARIES)
@pytest.mark.parametrize("form", FORMS)
def test_no_number_of_a_row_a_response_or_a_parameter_travels(form, auxiliary):
    """Every 8 bytes of every frame against all that stays at home, as it was in every round."""
    c = model(form, auxiliary, "gaussian")
    c = replace(c, y=c.y + 1e-3)
    frames, _ = captured(c, settings(c, form))
    kept = [c.y, *(p.X if hasattr(p, "X") else p.H for p in (site.predictor for site in c.sites))]
    secret = secrets_of(c, settings(c, form)) | set(np.concatenate([np.ravel(a) for a in kept]).tolist())
    secret -= {0.0, 1.0}
    for kind, frame in frames:
        travelled = set(np.frombuffer(frame[HEADER.size :], "<f8").tolist())
        assert not travelled & secret, kind
    # The check sees what it should: z does travel, and it is in no other party's message.
    assert any(np.isin(list(z_of(c, settings(c, form)))[:5], np.frombuffer(f[HEADER.size :], "<f8")).any() for _, f in frames)


def secrets_of(c, s):
    """All that clients hold in any round: parameters, draws of theta, coefficients, noise."""
    found = set()

    def note(client):
        for array in (client.parameters, *(a for d in client.drawn for a in (d.theta, d.w, d.eps, d.tau, d.g, d.H))):
            found.update(np.ravel(array).tolist())

    watched(c, s, note)
    return found


def z_of(c, s):
    found = []
    watched(c, s, lambda client: found.extend(z for d in client.drawn for z in d.z.tolist()))
    return found


def watched(c, s, note):
    (server, effects), here = machines(c, s)
    while effects:
        asked, effects = effects, []
        for k, question in asked:
            here[k], answers = vertical.client_receive(here[k], question)
            note(here[k])
            for answer in answers:
                server, more = vertical.server_receive(server, k, answer)
                effects += more


def test_a_client_gets_no_response_that_it_does_not_need():
    c = model("av")
    _, here = machines(c, settings(c, "av"))
    assert all(client.y is None and client.likelihood is None for client in here.values())
    with refusal(ValueError, "north", "shared"):
        vertical.client("north", 0, settings(replace(c, kind="pl"), "pl"), c.sites[0])
    with pytest.raises(ValueError, match="the server needs y"):
        vertical.start(settings(c, "av"), c.shared, NAMES, None)
    told = Site(Linear(np.eye(c.n)), Auxiliary("amortised", inputs=("response",)))
    with pytest.raises(ValueError, match="needs y here"):
        vertical.client("north", 0, settings(c, "av"), told)


# ---- what is refused


def questions(form):
    c = model(form)
    s = settings(c, form)
    (server, asked), here = machines(c, s)
    return c, s, server, asked, here


def test_stale_and_repeated_messages_are_refused_by_name():
    _, _, server, asked, here = questions("av")
    here[0], (answer,) = vertical.client_receive(here[0], asked[0][1])
    with pytest.raises(RemoteFault, match="client 0: ZShare of round 4, expected round 0"):
        vertical.server_receive(server, 0, replace(answer, round=4))
    server, _ = vertical.server_receive(server, 0, answer)
    with pytest.raises(RemoteFault, match="client 0: ZShare was not expected in round 0"):
        vertical.server_receive(server, 0, answer)
    with refusal(RemoteFault, "1", "LikelihoodShare"):
        vertical.server_receive(server, 1, vertical.LikelihoodShare(0, answer.z, np.zeros(1), np.zeros((1, 1))))
    with refusal(RemoteFault, "1", "BoundShare"):
        vertical.server_receive(server, 1, vertical.BoundShare(0, 1.0))
    with refusal(RemoteFault, "Residual", "3"):
        vertical.client_receive(here[0], vertical.Residual(3, answer.z))
    with refusal(RemoteFault, "Begin"):
        vertical.client_receive(here[0], vertical.Begin(0))
    with refusal(RemoteFault, "Residual", "0"):
        vertical.client_receive(here[1], vertical.Residual(0, answer.z))
    with refusal(RemoteFault, "LikelihoodSum"):
        vertical.client_receive(here[0], vertical.LikelihoodSum(0, answer.z))
    with refusal(RemoteFault, "PredictorSum"):
        vertical.client_receive(here[0], vertical.PredictorSum(0, answer.z, np.zeros(1), np.zeros((1, 1))))


@pytest.mark.parametrize("message", ["PredictorSum", "LikelihoodSum"])
def test_a_frame_that_is_not_finite_is_refused(message):
    c = model("pl")
    s = settings(c, "pl")
    codec = Codec(s.dims(), c.J)
    bad = np.full((1, c.n), np.inf)
    sent = vertical.LikelihoodSum(0, bad)
    if message == "PredictorSum":
        sent = vertical.PredictorSum(0, bad, np.zeros(1), np.zeros((1, 1)))
    with pytest.raises((ValueError, RemoteFault), match="finite"):
        codec.decode(codec.encode(1, sent), vertical.protocol(s).to_client)


# ---- an iteration in one compiled call


def plain(auxiliary, path=True, inputs=None, full=False, **options):
    """Linear predictors, diagonal or full q(theta), a normal prior with a mean."""
    c = cases.case("av", auxiliary, full, "linear", path=path, **options)
    if inputs is None:
        return c
    return replace(c, sites=[replace(site, auxiliary=replace(site.auxiliary, inputs=inputs)) for site in c.sites])


def composed(client):
    return vertical_client.evolve(client, fused=False)


@pytest.mark.parametrize("response", ["server", "shared"])
@pytest.mark.parametrize("path", [True, False])
@pytest.mark.parametrize(
    ("auxiliary", "inputs"),
    [("mean-field", None), ("amortised", ()), ("amortised", ("residual",)), ("amortised", ("centre", "residual"))],
)
@pytest.mark.parametrize("full", [False, True])
def test_compiled_iterations_are_the_composed_ones(full, auxiliary, inputs, path, response, monkeypatch):
    c = plain(auxiliary, path, inputs, full)
    s = settings(c, "av", rounds=50, response=response, average="half", bound=True, cool_down=0.3, memory=0.7)
    calls = []
    step = vertical_client._iterated
    monkeypatch.setattr(vertical_client, "_iterated", lambda *a: calls.append(1) or step(*a))
    started, here = machines(c, s)
    fast = in_process(vertical.protocol(s), started, here, Codec(s.dims(), c.J))
    assert len(calls) == c.J * 50
    started, here = machines(c, s)
    slow = in_process(vertical.protocol(s), started, {k: composed(x) for k, x in here.items()}, Codec(s.dims(), c.J))
    assert len(calls) == c.J * 50
    one, other = everything(*fast), everything(*slow)
    assert one.keys() == other.keys()
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=1e-10, atol=1e-10 * np.abs(value).max(initial=0), err_msg=name)
    np.testing.assert_allclose(fast[0].bound, slow[0].bound, rtol=1e-10)
    assert np.abs(fast[1][0].parameters - here[0].parameters).max() > 0.1  # negative control: it has moved


@pytest.mark.parametrize(
    ("changes", "site"),
    [
        ({"draws": 2}, {}),
        ({"batch": 6}, {}),
        ({"local_steps": 2, "curvature": 0.25}, {}),
        ({"optimiser": "adagrad"}, {}),
        ({"model": "power", "response": "shared"}, {}),
        ({}, {"predictor": cases.predictor("multilevel", np.random.default_rng(0), cases.N, 2)}),
    ],
)
def test_what_the_compiled_iteration_does_not_know_is_composed(changes, site):
    c = plain("mean-field")
    s = settings(c, "av", **changes)
    assert vertical_client.client("north", 0, settings(c, "av"), c.sites[0]).fused  # negative control
    assert not vertical_client.client("north", 0, s, replace(c.sites[0], **site), c.y, c.likelihood).fused


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e160])
@pytest.mark.parametrize("auxiliary", ["mean-field", "amortised"])
def test_a_compiled_iteration_that_is_not_finite_names_what_is_not(auxiliary, value):
    c = plain(auxiliary)
    s = settings(c, "av")
    messages = np.zeros((1, c.n))
    messages[0, 4] = value
    found = []
    for change in (lambda x: x, composed):
        client = change(vertical_client.client("north", 0, s, c.sites[0]))
        client, _ = vertical_client.client_receive(client, vertical.Begin(0))
        with refusal(NumericalError, "north", "0") as error:
            vertical_client.client_receive(client, vertical.Residual(0, messages))
        found.append(str(error.value))
    assert found[0] == found[1]
    assert auxiliary == "amortised" or "z of row 4" in found[0]


# ---- checkpoints


@pytest.mark.parametrize("stop", [1, 4, 8])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_resumed_run_has_the_same_bits(form, variant, stop):
    c = told_the_centre(model(form)) if variant == "plain" else model(form)
    s = settings(c, form, **VARIANTS[variant])
    want = run(c, s)
    for phase in ("z", "likelihood") if form == "pl" else ("z",):
        started, here = machines(c, s)
        server, here, inbox = play(vertical, started, here, pause=lambda x: x.round == stop and x.phase == phase)  # noqa: B023
        (fresh, _), again = machines(c, s)
        server = vertical.load(fresh, unpack(pack(vertical.save(server))))
        again = {k: vertical.load(client, unpack(pack(vertical.save(here[k])))) for k, client in again.items()}
        end = in_process(vertical.protocol(s), (server, list(inbox)), again, Codec(s.dims(), c.J))
        same(want, end)


@pytest.mark.parametrize("auxiliary", ["mean-field", "amortised"])
def test_a_resumed_run_in_compiled_iterations_has_the_same_bits(auxiliary):
    c = plain(auxiliary)
    s = settings(c, "av", average="half", bound=True)
    want = run(c, s)
    started, here = machines(c, s)
    server, here, inbox = play(vertical, started, here, pause=lambda x: x.round == 5 and x.phase == "z")
    (fresh, _), again = machines(c, s)
    server = vertical.load(fresh, unpack(pack(vertical.save(server))))
    again = {k: vertical.load(client, unpack(pack(vertical.save(here[k])))) for k, client in again.items()}
    assert all(client.fused for client in again.values())
    same(want, in_process(vertical.protocol(s), (server, list(inbox)), again, Codec(s.dims(), c.J)))


@pytest.mark.parametrize("form", FORMS)
def test_no_row_is_in_a_checkpoint(form):
    c = model(form, likelihood="gaussian")
    server, here = run(c, settings(c, form))
    rows = np.concatenate([c.y, *(np.ravel(p.X if hasattr(p, "X") else p.H) for p in (site.predictor for site in c.sites))])
    for state in (server, *here.values()):
        saved = vertical.save(state)
        held = np.concatenate([np.ravel(v) for v in saved.values() if isinstance(v, np.ndarray)])
        assert not np.isin(rows, held).any()


# ---- the bound, and the plain split network


@pytest.mark.parametrize("form", FORMS)
def test_the_traced_bound_is_the_elbo_at_the_rounds_draws(form):
    c = model(form)
    s = settings(c, form, rounds=1, bound=True)
    server, _ = run(c, s)
    _, here = machines(c, s)
    drawn = {k: vertical.client_receive(client, vertical.Begin(0))[0] for k, client in here.items()}
    case = replace(
        c,
        parameters=[drawn[k].parameters for k in range(c.J)],
        server=c.shared.block.initial(0.0, 0.1),
        extra=[drawn[k].drawn[0].extra for k in range(c.J)],
        eps=[drawn[k].drawn[0].eps for k in range(c.J)],
        tau=[drawn[k].drawn[0].tau for k in range(c.J)],
        eps_server=server.eps[0],
    )
    np.testing.assert_allclose(server.bound, cases.value(case), rtol=1e-12)


def test_the_split_network_is_a_pooled_network():
    """z = g, no prior, no noise: gradient ascent of the likelihood, checked by differences of the pooled likelihood."""
    random = np.random.default_rng(2)
    sites = [Site(cases.predictor("network", random, 20, p), Auxiliary("none")) for p in (2, 3)]
    y = random.integers(0, 2, 20).astype(float)
    likelihood = Likelihood("bernoulli")
    s = chosen.split(seed=1, rounds=1, n_rows=20, n_clients=2, model="none", optimiser="sgd", learning_rate=1.0)
    shared = Shared(likelihood, 20, 2, intercept=False)
    here = {k: vertical.client(NAMES[k], k, s, site) for k, site in enumerate(sites)}
    before = [here[k].parameters for k in range(2)]
    _, after = in_process(vertical.protocol(s), vertical.start(s, shared, NAMES[:2], y), here, Codec(s.dims(), 2))

    def pooled(parameters):
        return likelihood.value(y, sum(site.mean_g(p) for site, p in zip(sites, parameters))).sum()

    for k in range(2):
        step = after[k].parameters - before[k]
        for i in range(0, len(step), 3):
            h = np.zeros(len(step))
            h[i] = 1e-5
            up, down = ([*before[:k], before[k] + side * h, *before[k + 1 :]] for side in (1, -1))
            np.testing.assert_allclose(step[i], (pooled(up) - pooled(down)) / 2e-5, rtol=1e-5, atol=1e-7)
