"""One regression of a random field, sampled with all the others by the machines of pooled statistics, for geweke.joint_test.

The regressions of a field are no joint model of its columns: data of one column are drawn given the others, which stay. Each
chain has data of its own, and so machines of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import pooled
from fedkern.algorithms.gibbs import pooled as exchange
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor, MarkovRandomField
from fedkern.models.sparse import graph
from oracles.sparse_joint import Regression, State
from support import chosen
from support.sparse_protocol import ENDLESS, PRIOR

NODE, OTHERS = 1, (0, 2)


class Field(Regression):
    """Column 1 of three on the others, whose correlation is about .95."""

    n, q = (6, 8, 5), 3
    site = MarkovRandomField

    def __init__(self, *, exchanges=True, **options):
        self.layout, self.pairs = Layout(graph(self.q, one_group=False)), [OTHERS] if exchanges else []
        random = np.random.default_rng(4)
        X = [random.standard_normal((n, self.q)) for n in self.n]
        for X_k in X:
            X_k[:, OTHERS[1]] = 0.95 * X_k[:, OTHERS[0]] + 0.3 * X_k[:, OTHERS[1]]
            X_k[:, NODE] = 0.0
        super().__init__(X=X, indicators=self.layout.indicators[NODE], **options)

    def settings(self, chain):
        prior = {name: self.options[name] for name in PRIOR} | self.prior_options
        return chosen.gibbs(
            self.layout, chosen.prior(**prior, shape_sigma=self.shape, rate_sigma=self.rate),
            seed=self.seed + 1000 * chain, chains=1, rounds=ENDLESS, burn_in=ENDLESS, moves=self.moves, block=self.block,
        )  # fmt: skip

    def sites(self, data, chain):
        """Of one chain's data."""
        rows = [X.copy() for X in self.X]
        for Y, own in zip(rows, data):
            Y[:, NODE] = own.y[chain]
        return [self.site(Factor.of(Y)) for Y in rows]

    def begin(self, state, data):
        """The machines of every chain in a state that was drawn from the prior; other regressions are where chains start."""
        self.machines = []
        for chain in range(len(state.theta)):
            settings = self.settings(chain)
            server, questions = gibbs.start(settings, self.m)
            values = server.values
            for name in ("theta", "tau_sq", "gamma", "eta", "rho"):
                full = getattr(values, name).copy()
                full[0, NODE] = np.squeeze(getattr(state, name)[chain])
                values = values._replace(**{name: full})
            told = {name: self.layout.flat(getattr(values, name)) for name in ("theta", "tau_sq")}
            clients = {}
            for k, site in enumerate(self.sites(data, chain)):
                client = gibbs.client(str(k), k, settings, site)
                for name, drawn in (("deviation", state.deviation), ("lambda_sq", state.lambda_sq), ("sigma_sq", state.local[0])):
                    client.state[name][0, NODE] = drawn[k, chain]
                clients[k] = replace(client, theta=values.theta, tau_sq=values.tau_sq)
            self.machines.append((replace(server, values=values), clients, [(k, replace(q, **told)) for k, q in questions]))

    def round(self, state, data, number):
        if number == 0:
            self.begin(state, data)
        for chain, (server, clients, questions) in enumerate(self.machines):
            sites = self.sites(data, chain)
            here = {k: replace(client, site=site) for (k, client), site in zip(clients.items(), sites)}
            held = exchange.Held.of([site.factor for site in sites], self.layout)
            self.machines[chain] = self.advanced(server, here, held, questions)
        return self.state()

    def advanced(self, server, clients, held, questions):
        server, questions = pooled.advanced(server, clients, held, self.pairs, questions)
        return server, clients, questions

    def state(self):
        values = [server.values for server, _, _ in self.machines]
        drawn = (np.stack([getattr(v, name)[0, NODE] for v in values]) for name in ("theta", "tau_sq", "gamma", "eta"))
        deviation, lambda_sq = (
            np.stack([getattr(server, name)[:, 0, NODE] for server, _, _ in self.machines], axis=1)
            for name in ("deviation", "lambda_sq")
        )
        each = [[clients[k].state["sigma_sq"][0, NODE] for _, clients, _ in self.machines] for k in range(self.m)]
        return State(*drawn, np.stack([v.rho[0, NODE : NODE + 1] for v in values]), deviation, lambda_sq, (np.array(each),))


class Backwards(MarkovRandomField):
    """A site whose moves go down the gradient."""

    def score(self, at, state):
        return -super().score(at, state)


class MovedBackwards(Field):
    site = Backwards
