"""The sparse regression with rounds of the sampler's own state machines (algorithms.gibbs), for geweke.joint_test.

What is tested is what a job runs: who takes part, in which order messages are used, what a client keeps between rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor
from fedkern.algorithms.gibbs.sites import Regression as Site
from oracles.sparse_joint import Regression, State
from support import chosen

PRIOR = ("c0", "spike_variance", "eta_form", "shape_eta", "rate_eta", "rho_a", "rho_b", "scale_tau", "shared_rho")
ENDLESS = 10**9


class Federated(Regression):
    def __init__(self, *, aggregate="locals", **options):
        super().__init__(**options)
        self.aggregate = aggregate

    def settings(self, chains):
        prior = {name: self.options[name] for name in PRIOR} | self.prior_options
        return chosen.gibbs(
            Layout(self.indicators[None]), chosen.prior(**prior, shape_sigma=self.shape, rate_sigma=self.rate), seed=self.seed,
            chains=chains, rounds=ENDLESS, burn_in=ENDLESS, local_sweeps=self.n_sweeps, server_sweeps=self.n_passes,
            scales=self.options["scales"], order=self.options["order"], draw=self.draw,
            moves=(self.moves,) if isinstance(self.moves, str) else self.moves or (), block=(self.block, self.block),
            participation=self.participation, aggregate=self.aggregate,
        )  # fmt: skip

    def site(self, k, data):
        R = self.R[k]
        return Site(Factor(R, data[k].q, data[k].rss, len(self.X[k]) - 1.0, R.T @ R))

    def begin(self, state, data):
        """The machines in a state that was drawn from the prior."""
        settings = self.settings(len(state.theta))
        theta, tau_sq, gamma, eta = (a[:, None] for a in (state.theta, state.tau_sq, state.gamma, state.eta))
        server, questions = gibbs.start(settings, self.m)
        values = server.values._replace(theta=theta, tau_sq=tau_sq, gamma=gamma, eta=eta, rho=state.rho)
        self.machine = replace(server, values=values)
        self.questions = [(k, replace(q, theta=state.theta, tau_sq=state.tau_sq)) for k, q in questions]
        self.clients_ = {}
        for k in range(self.m):
            local = {"deviation": state.deviation[k][:, None], "lambda_sq": state.lambda_sq[k][:, None]}
            local["sigma_sq"] = state.local[0][k][:, None]
            self.clients_[k] = gibbs.Client(f"c{k}", k, settings, self.site(k, data), local, theta, tau_sq, None, settings.seed)

    def round(self, state, data, number):
        if number == 0:
            self.begin(state, data)
        questions, self.questions = self.questions, []
        for k, question in questions:
            mine, answers = gibbs.client_receive(replace(self.clients_[k], site=self.site(k, data)), question)
            self.clients_[k] = mine
            for answer in answers:
                self.machine, more = gibbs.server_receive(self.machine, k, answer)
                self.questions += more
        return self.state()

    def state(self):
        server, clients = self.machine, self.clients_.values()
        values = server.values
        if server.deviation is not None:
            deviation, lambda_sq = server.deviation[:, :, 0], server.lambda_sq[:, :, 0]
        else:
            deviation = np.stack([(c.theta + c.state["deviation"] - values.theta)[:, 0] for c in clients])
            lambda_sq = np.stack([c.state["lambda_sq"][:, 0] for c in clients])
        sigma_sq = np.stack([c.state["sigma_sq"][:, 0] for c in clients])
        drawn = (a[:, 0] for a in (values.theta, values.tau_sq, values.gamma, values.eta))
        return State(*drawn, values.rho, deviation, lambda_sq, (sigma_sq,))
