"""Where vertical inference ends: the exact optima of Gaussian models, bounds, and steps that never lower the objective.

Source: docs/spec/vertical.md, sections 3, 8 and 13.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedkern.algorithms.split import machine as vertical
from fedkern.models.split.site import Likelihood
from oracles import vertical_expected as expected
from oracles.vertical_oracle import Model, logistic_log_normaliser
from support import vertical_cases as cases
from support import vertical_runs as runs

KINDS = ("av", "pl")


# ---- expected gradients, exactly


@pytest.mark.parametrize("rho", [0.5, *(pytest.param(rho, marks=pytest.mark.nightly) for rho in (0.1, 2.0))])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_mean_field_ends_at_its_exact_optimum(kind, full, rho):
    m = runs.gaussian(kind, n=8, rho=rho)
    joint = m.joint()
    root = joint.optimum("mean-field", full)
    sites, shared = runs.parties(m, "mean-field", full)
    c, elbo = expected.maximised(runs.as_case(m, sites, shared))
    np.testing.assert_allclose(elbo, joint.elbo(joint.mean, root), atol=1e-8)
    block = root[joint.server, joint.server]
    np.testing.assert_allclose(shared.block.moments(c.server), [joint.mean[joint.server], np.diag(block)], atol=1e-6)
    for site, p, theta, z in zip(sites, c.parameters, joint.theta, joint.z):
        part, L = p[site.parts["theta"]], root[theta, theta]
        np.testing.assert_allclose(part[: site.block.size], joint.mean[theta], atol=1e-6)
        np.testing.assert_allclose(site.block.scale(part), L if full else np.diag(L), atol=1e-6)
        np.testing.assert_allclose(p[site.parts["mean"]], joint.mean[z], atol=1e-6)
        np.testing.assert_allclose(np.exp(p[site.parts["log_sd"]]), np.diag(root[z, z]), atol=1e-6)


@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_both_estimators_expect_the_closed_form_gradient(kind, full, path):
    """At parameters that are nowhere near the optimum: of means b - K m, of square roots R^-T - K R."""
    m = runs.gaussian(kind, n=8)
    joint = m.joint()
    sites, shared = runs.parties(m, "mean-field", full, path=path)
    random = np.random.default_rng(1)
    parameters = [0.5 * random.standard_normal(site.n_parameters) for site in sites]
    server = 0.5 * random.standard_normal(shared.block.n_parameters)
    c = runs.as_case(m, sites, shared, parameters=parameters, server=server)
    _, found = expected.expected(c, expected.signs(c))

    mean = np.zeros(len(joint.mean))
    mean[joint.server] = server[:1]
    for site, p, theta, z in zip(sites, parameters, joint.theta, joint.z):
        mean[theta], mean[z] = p[: site.block.size], p[site.parts["mean"]]
    pull, want = joint.shift - joint.K @ mean, []
    for site, p, theta, z in zip(sites, parameters, joint.theta, joint.z):
        L, s = site.block.scale(p[site.parts["theta"]]), np.exp(p[site.parts["log_sd"]])
        L = L if full else np.diag(L)
        G = np.linalg.inv(L).T - joint.K[theta, theta] @ L
        if full:  # rows relative to their diagonal elements, which are given by their logarithms
            whole = np.tril(G * L).sum(axis=1)
            G *= np.diag(L)[:, None]
            np.fill_diagonal(G, whole)
        else:
            np.fill_diagonal(G, np.diag(G) * np.diag(L))
        spread = G[np.tril_indices(len(G))] if full else np.diag(G)
        want += [pull[theta], spread, pull[z], 1 - np.diag(joint.K[z, z]) * s**2]
    want += [pull[joint.server], 1 - np.diag(joint.K[joint.server, joint.server]) * np.exp(2 * server[1:])]
    want = np.concatenate(want)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def told(m, joint, inputs):
    """What networks hear of others and of themselves, at its expectation."""
    out = []
    g = [x @ joint.mean[theta] for x, theta in zip(m.X, joint.theta)]
    z = [joint.mean[at] for at in joint.z]
    for j in range(m.J):
        # at a stationary point the message is what holds z_j away from g_j
        columns = {"centre": g[j], "residual": (z[j] - g[j]) / m.rho**2}
        out.append(np.column_stack([columns[name] for name in inputs]))
    return out


@pytest.mark.parametrize("rho", [0.5, pytest.param(0.1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_amortised_family_contains_the_best_structured_one(kind, rho):
    """Told the message and the mean of g, one linear function of three numbers serves all rows; not told the mean, it cannot."""
    m = runs.gaussian(kind, n=8, rho=rho)
    joint = m.joint()
    best = joint.elbo(joint.mean, joint.optimum("structured"))
    gaps = {}
    for inputs in (("centre", "residual"), ("residual",)):
        sites, shared = runs.parties(m, "amortised", True, inputs, hidden=())
        _, elbo = expected.maximised(*linear_only(runs.as_case(m, sites, shared, told(m, joint, inputs)), len(inputs)))
        gaps[inputs] = best - elbo
    assert abs(gaps["centre", "residual"]) < 1e-6
    assert gaps["residual",] > (0.2 if rho > 0.1 else 0.01)


def linear_only(c, e):
    """Networks without a hidden layer at 0; and the weights of log s, which stay there so that z is linear in the noise."""
    parameters = [np.where(np.arange(len(p)) < s.parts["psi"].start, p, 0.0) for s, p in zip(c.sites, c.parameters)]
    held = [np.zeros(len(p)) for p in [*parameters, c.server]]
    for site, flags in zip(c.sites, held):
        first = site.parts["psi"].start + 1 + e
        flags[first : first + 1 + e] = 1
    return replace(c, parameters=parameters), np.concatenate(held)


# ---- the protocols, with noisy gradients


def judged(m, server, clients, family):
    """Errors of all means in sd, ratios of the spreads of coefficients, ELBO gap to the family's optimum."""
    joint, mean, root = runs.fitted(m, server, clients)
    best = joint.optimum(family)
    p = joint.z[0].start
    sd, found = (np.sqrt((r[:p] ** 2).sum(axis=1)) for r in (best, root))
    error = np.abs(mean - joint.mean)[:p] / np.sqrt(np.diag(joint.covariance)[:p])
    return error.max(), np.abs(found / sd - 1).max(), joint.elbo(joint.mean, best) - joint.elbo(mean, root)


STRUCTURED = ("amortised", True, ("centre", "residual"))


# Sticking the landing knows spreads well; far from the exact posterior the closed-form entropy knows means better.
BARS = {True: (0.15, 0.03, 0.03), False: (0.04, 0.06, 0.03)}
LONG = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("kind", "path", "rounds", "bars"), [
    ("av", True, 6000, BARS[True]),
    *(pytest.param(kind, False, 6000, BARS[False], marks=pytest.mark.nightly) for kind in KINDS),
    pytest.param("pl", True, 6000, BARS[True], marks=pytest.mark.nightly),
    *(pytest.param(kind, False, 100_000, (6e-3, 0.01, 4e-3), marks=LONG) for kind in KINDS),
])  # fmt: skip
def test_noisy_gradients_end_near_the_mean_field_optimum(kind, path, rounds, bars):
    m = runs.gaussian(kind)
    s = runs.settings(m, rounds, learning_rate=0.02, cool_down=0.5, average="half")
    error, spread, gap = judged(m, *runs.run(m, s, *runs.parties(m, path=path)), "mean-field")
    assert error < bars[0]
    assert spread < bars[1]
    assert 0 <= gap < bars[2]


@pytest.mark.parametrize(("kind", "rounds", "memory", "bars"), [
    # on push: the networks of tanh, and the exact optimum of a linear one
    *(pytest.param(kind, 8000, 0.998, (0.06, 0.02, 0.05), marks=pytest.mark.nightly) for kind in KINDS),
    *(pytest.param(kind, 60_000, 0.9998, (0.04, 0.01, 5e-3), marks=LONG) for kind in KINDS),
])  # fmt: skip
def test_noisy_gradients_end_near_the_structured_optimum(kind, rounds, memory, bars):
    m = runs.gaussian(kind)
    s = runs.settings(m, rounds, learning_rate=0.01, cool_down=0.7, average="half", memory=memory)
    error, spread, gap = judged(m, *runs.run(m, s, *runs.parties(m, *STRUCTURED, hidden=())), "structured")
    assert error < bars[0]
    assert spread < bars[1]
    assert 0 <= gap < bars[2]


@pytest.mark.parametrize("kind", ["av", pytest.param("pl", marks=pytest.mark.nightly)])
def test_networks_of_tanh_end_near_the_structured_optimum(kind):
    m = runs.gaussian(kind, n=12)
    s = runs.settings(m, 8000, learning_rate=0.006, cool_down=0.7, average="half", memory=0.9985)
    server, clients = runs.run(m, s, *runs.parties(m, *STRUCTURED))
    joint = m.joint()
    best = joint.elbo(joint.mean, joint.optimum("structured"))
    gap = best - expected.estimated(runs.ended(m, server, clients))
    assert gap < 0.05
    assert gap > -0.03  # quasi-random noise


def of_defaults(kind, memory):
    """At the default rounds, networks of tanh: errors of means in exact sds, errors of spreads, nats below the optimum."""
    m = runs.gaussian(kind, n=120)
    s = runs.settings(m, 10_000, learning_rate=0.01, cool_down=0.5, average="half", memory=memory)
    told_of = ("response", "centre", "residual") if kind == "pl" else STRUCTURED[2]
    server, clients = runs.run(m, s, *runs.parties(m, "amortised", True, told_of))
    joint = m.joint()
    best = joint.optimum("structured")
    mean, sd = (list(part) for part in server.shared.block.moments(server.released))
    for client in clients.values():
        part = client.released[client.site.parts["theta"]]
        mean, sd = [*mean, *part[: client.site.block.size]], [*sd, *client.site.block.sd(part)]
    p = joint.z[0].start
    away = np.abs(np.array(mean) - joint.mean[:p]) / np.sqrt(np.diag(joint.covariance)[:p])
    ratio = np.array(sd) / np.sqrt((best[:p] ** 2).sum(axis=1))
    random, ended = np.random.default_rng(0), runs.ended(m, server, clients)
    bound = np.mean([cases.value(ended.with_noise(random)) for _ in range(6000)])
    return away.max(), np.abs(ratio - 1).max(), joint.elbo(joint.mean, best) - bound


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_end_at_the_structured_optimum(kind):
    error, spread, gap = of_defaults(kind, "rising")
    assert error < 0.05
    assert spread < 0.02
    assert gap < 0.5


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_negative_control_a_short_memory_does_not():
    assert of_defaults("av", 0.9)[2] > 1


def test_the_memory_of_messages_rises_with_the_rounds_of_a_row():
    s = runs.settings(runs.gaussian("av", n=20), 10_000, memory="rising")
    assert [s.memory_weight(0), s.memory_weight(180)] == [0.9, 0.9]
    assert s.memory_weight(9980) == pytest.approx(0.998)
    assert replace(s, batch=5).memory_weight(4 * 9980) == pytest.approx(0.998)
    assert replace(s, memory=0.3).memory_weight(9980) == 0.3


# ---- bounds


@pytest.mark.parametrize(("kind", "auxiliary"), [
    ("pl", "amortised"),
    *(pytest.param(*pair, marks=pytest.mark.nightly) for pair in (("av", "amortised"), *((k, "mean-field") for k in KINDS))),
])  # fmt: skip
def test_the_elbo_is_below_the_log_normaliser(kind, auxiliary):
    """Logistic, 10 rows, two clients of one column: quadrature. The bound is not idle: it comes within 3 nats."""
    random = np.random.default_rng(4)
    X, y = [random.standard_normal((10, 1)) for _ in range(2)], random.integers(0, 2, 10).astype(float)
    m = Model(kind, X, y, 1.0, 0.7)
    sites, shared = runs.parties(m, auxiliary, True, ("residual",) if auxiliary == "amortised" else ())
    shared = replace(shared, likelihood=Likelihood("bernoulli"), intercept=False)
    exact, values = logistic_log_normaliser(kind, X, y, 0.7), []
    for rounds in (5, 100, 1000):
        s = runs.settings(m, rounds, learning_rate=0.03, cool_down=0.5)
        values.append(expected.estimated(runs.ended(m, *runs.run(m, s, sites, shared))))
    assert values[0] < values[1] < values[2] < exact
    assert exact - values[2] < 3


# ---- several local steps


@pytest.mark.parametrize("likelihood", [Likelihood("bernoulli"), Likelihood("gaussian", 0.4)], ids=["bernoulli", "gaussian"])
def test_the_surrogate_is_a_minorant(likelihood, seed):
    """20,000 random moves of J clients, and of J clients and the server: the number of movers counts."""
    J, n, kappa = 3, 4, likelihood.curvature_bound
    random = np.random.default_rng(seed)
    for movers in (J, J + 1):
        least, violations = np.inf, 0
        for _ in range(20_000 // 40):
            y = random.integers(0, 2, (40, n)).astype(float)
            eta = random.standard_normal((40, n)) * 3
            d = random.standard_normal((movers, 40, n)) * np.exp(random.uniform(-3, 2, (1, 40, 1)))
            if random.random() < 0.5:
                d[:] = d[0]  # all in one direction: where the bound is nearest
            r = likelihood.slope(y, eta)
            change = (likelihood.value(y, eta + d.sum(axis=0)) - likelihood.value(y, eta)).sum(axis=1)
            linear = (r * d).sum(axis=(0, 2))
            gap = change - linear + movers * kappa / 2 * (d**2).sum(axis=(0, 2))
            least = min(least, gap.min())
            fewer = change - linear + (movers - 1) * kappa / 2 * (d**2).sum(axis=(0, 2))
            violations += (fewer < -1e-9).sum()
        assert least > -1e-9
        assert violations > 0  # with one mover too few it is none


def objectives(m, s, sites, shared):
    """The objective before and after each round at the same noise, from the machines' own states."""
    names = tuple(f"c{k}" for k in range(m.J))
    here = {k: vertical.client(names[k], k, s, site) for k, site in enumerate(sites)}
    server, effects = vertical.start(s, shared, names, m.y)
    pairs, previous = [], server.parameters
    while effects:
        old, was = [here[k] for k in range(m.J)], server
        asked, effects = effects, []
        for k, question in asked:
            here[k], answers = vertical.client_receive(here[k], question)
            for answer in answers:
                server, more = vertical.server_receive(server, k, answer)
                effects += more
        if old[0].drawn:
            # `was` has already moved on this round's messages: its parameters are those after, its noise that of the round
            c = runs.as_case(m, sites, shared, [x.drawn[0].extra for x in old], [x.parameters for x in old], previous)
            c = replace(c, eps=[x.drawn[0].eps for x in old], tau=[x.drawn[0].tau for x in old], eps_server=was.eps[0])
            after = replace(c, parameters=[here[k].parameters for k in range(m.J)], server=was.parameters)
            pairs.append((cases.value(c), cases.value(after)))
        previous = was.parameters
    return np.array(pairs)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("auxiliary", ["mean-field", "amortised"])
def test_local_steps_never_lower_the_objective(auxiliary, family):
    m = runs.gaussian("av", n=12, sizes=(2, 1, 1, 2))
    likelihood = Likelihood("gaussian", 0.7)
    if family == "bernoulli":
        m, likelihood = replace(m, y=(m.y > 0).astype(float)), Likelihood("bernoulli")
    sites, shared = runs.parties(m, auxiliary, True, ("residual",) if auxiliary == "amortised" else (), (4,), path=False)
    shared = replace(shared, likelihood=likelihood)
    steps = {"optimiser": "sgd", "learning_rate": 0.001}
    s = runs.settings(m, 60, local_steps=6, curvature=likelihood.curvature_bound, **steps)
    pairs = objectives(m, s, sites, shared)
    assert len(pairs) == 60
    assert (np.diff(pairs) > 0).all()
    gains = [np.diff(objectives(m, replace(s, local_steps=k), sites, shared)).sum() for k in (1, 6)]
    assert gains[1] > 1.2 * gains[0]


def test_negative_control_frozen_messages_lower_the_objective():
    """Without the curvature term many local steps overshoot (section 8)."""
    m = runs.gaussian("av", n=12, sizes=(2, 1, 1, 2), sigma=0.3)
    sites, shared = runs.parties(m, path=False)
    s = runs.settings(m, 3, local_steps=40, curvature=0.0, optimiser="sgd", learning_rate=0.001)
    assert (np.diff(objectives(m, s, sites, shared)) < 0).any()
