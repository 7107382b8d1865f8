"""Jobs of method "likelihood" without files or columns: the machines of its server and clients, on rows of a family of models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedkern.algorithms.core.messages import Message
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import AskCurvature, AskValues
from fedkern.arrays import Array
from fedkern.kernels.families import FAMILIES
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.mixed.layout import INTERCEPT_SD, PRIOR_SD


class Played(NamedTuple):
    """The server's last state; the first client's points on the way to the mode, with the prior beside which it rounded each
    answer; and its draws."""

    server: importance.Server
    at: Array
    priors: tuple[Prior, ...]
    draws: Array
    settings: importance.Settings


def played(layout: Layout, rows: list[Rows], *, wider: tuple[int, ...] = (1,), **sections: Any) -> Played:
    """Runs a job of these clients, by default with one round of at most 4,096 draws; `effective` says how many are asked for.

    `wider`: how many times as wide the default prior may be, as rows decide.
    """
    usual = {"points": 4096, "effective": 1.0, "rounds": 1, "told": 0, "seed": 0}
    nodes = {"starts": 1, "nodes": layout.nodes, "most_nodes": layout.most_nodes, "clients": len(rows)}
    settings = importance.Settings(**{**usual, **nodes, **sections})
    names = tuple(f"c{k}" for k in range(len(rows)))
    each = tuple(Prior.usual(layout, prior_sd=times * PRIOR_SD, intercept_sd=times * INTERCEPT_SD) for times in wider)
    priors = importance.Priors(each, np.eye(layout.p, layout.size), bent=not layout.measured)
    coordinates = importance.Coordinates(layout.names, layout.fold, layout.columns, layout.loose, None, layout.exponents)
    server, effects = importance.start(settings, priors, names, coordinates, layout.start[np.newaxis])
    clients = [importance.client(name, k, settings, own, priors) for k, (name, own) in enumerate(zip(names, rows, strict=True))]
    at, beside, draws = list[Array](), list[Prior](), [np.zeros((0, layout.size))]
    while effects:
        answers: list[tuple[int, Message]] = []
        for k, question in effects:
            if k == 0 and isinstance(question, AskCurvature):
                at.append(question.points)
                beside.append(each[question.prior])
            if k == 0 and isinstance(question, AskValues):
                draws.append(question.points)
            assert isinstance(question, Message)
            clients[k], said = importance.client_receive(clients[k], question)
            answers += [(k, one) for one in said if isinstance(one, Message)]
        effects = []
        for k, answer in answers:
            server, more = importance.server_receive(server, k, answer)
            effects += more
    return Played(server, np.concatenate(at), tuple(beside), np.concatenate(draws), settings)


class Source:
    """Random numbers as families draw responses by them."""

    def __init__(self, random: np.random.Generator) -> None:
        self.uniform, self.normal = random.random, random.standard_normal


SCALES: dict[str, Any] = {
    "gaussian": 0.7,
    "negative-binomial": 2.0,
    "student": np.array([0.7, 4.0]),
    "gamma": 3.0,
    "beta": 6.0,
    "zero-inflated-poisson": 0.3,
    "zero-inflated-negative-binomial": np.array([2.0, 0.3]),
    "hurdle-poisson": 0.3,
    "hurdle-negative-binomial": np.array([2.0, 0.3]),
    "poisson-lognormal": 0.7,
    "beta-binomial": 6.0,
    "lognormal": 0.7,
    "inverse-gaussian": 3.0,
}


def drawn(random: np.random.Generator, family: str, eta: Array, trials: Array | None = None) -> Array:
    """Responses (n,) of a family at predictors."""
    record = FAMILIES[family]
    y = np.asarray(record.draw(Source(random), record.mean(eta), SCALES.get(family, 1.0), trials), np.float64)
    return np.clip(y, 1e-6, 1 - 1e-6) if family == "beta" else y
