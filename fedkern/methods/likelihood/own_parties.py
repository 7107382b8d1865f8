"""Compares the packages of all holders, and of a server that needs its prior, before anything is computed by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...algorithms.core import once
from ...algorithms.core.messages import SERVER
from ...algorithms.exchanges.answers import OwnModel, own_model_question
from ...errors import JobError, OwnFault, mark_party, owned
from ...jobs.run import At
from ...jobs.stage import Stage
from ...models.own.supplied import Given, Own
from . import own_factory
from .keys import Config
from .own_factory import Factory
from .own_model import Terms

CALLED = 3  # points at which two priors are held against each other


class AtServer(NamedTuple):
    """Holds the factory and its model's prior, at a server of a job that has no priors."""

    factory: Factory
    prior: Given


def of_client(terms: Terms, folder: Path, client: str) -> Factory:
    """Returns the factory of a client that lives here. Raises JobError: it is not installed; the client is named."""
    try:
        return own_factory.load_factory(terms.factory, folder)
    except JobError as error:
        raise JobError(f"client {client!r}: {error}") from None


def of_server(terms: Terms, folder: Path) -> AtServer | None:
    """Returns the model without rows, for its prior; None where the job has all priors itself. Raises JobError: the model has no
    prior either."""
    if terms.priors is not None:
        return None
    with owned(SERVER):
        who = terms.who("the server")
        try:
            factory = own_factory.load_factory(terms.factory, folder)
        except JobError as error:
            raise JobError(f"the server: {error}; or give [model.priors], with which the server needs no package") from None
        try:
            made = factory.made(who, None, (), terms.options)
        except OwnFault as fault:
            hint = "the job has no [model.priors], so that the server calls it with None, for its log_prior; give them"
            raise OwnFault(f"{who}: the factory failed without rows; {hint}", fault.own) from None
        names = tuple(map(str, getattr(made, "names", ())))
        if not names or not callable(getattr(made, "log_prior", None)):
            raise JobError(f"{who} has no log_prior, and the job has no [model.priors]; give one of them")
        _refuse_observed(who, made)
        model: Any = made
        return AtServer(factory, Given(Own(model, who, np.arange(len(names), dtype=np.int64), apart=factory.apart), names))


def check_prior(terms: Terms, who: str, factory: Factory, machine: Own) -> None:
    """Refuses a client's model whose prior is not that of the model without rows: the server has that one, and it counts once.
    Raises JobError: they differ, or the model has a density of its own without any rows."""
    if terms.priors is not None or not machine.has("log_prior"):
        return
    made: Any = factory.made(f"{who}, called without rows", None, (), terms.options)
    _refuse_observed(who, made)
    without = Own(made, f"{who}, called without rows", np.arange(machine.size, dtype=np.int64), apart=factory.apart)
    points = np.random.default_rng(0).normal(size=(CALLED, machine.size))
    mine, servers = (called.answer("log_prior", called.taken(points), (CALLED,)) for called in (machine, without))
    if not np.allclose(mine, servers, rtol=1e-6, atol=1e-6, equal_nan=True):
        raise JobError(
            f"{who}: its log_prior depends on rows, or is not that of the model without any, which the server takes: a prior "
            "is the same for all holders; give it constants"
        )


def _refuse_observed(who: str, made: object) -> None:
    """Refuses a program that has observed sites or factors without rows: each client would count them again."""
    if observed := getattr(made, "observed", ()):
        raise JobError(
            f"{who}: called without rows the program still has {', '.join(map(repr, observed))} (a factor, or an observed site), "
            "which counts once for each client, also where the program has it with rows alone: make it the prior of a shared site"
        )


def agree_on_package(
    at: At[Config], terms: Terms, factories: Mapping[int, Factory], server: AtServer | None
) -> tuple[tuple[str, ...], list[str]]:
    """Returns the parameters' names in the order in which they travel, the same at every place; and notes, at the server's.
    Raises JobError: holders have different packages, or other versions of one."""
    names = terms.priors.names if terms.priors is not None else () if server is None else server.prior.names
    answers = {
        k: OwnModel.of(factory.distribution, factory.version, editable=factory.editable) for k, factory in factories.items()
    }
    question = own_model_question(names) if at.place.is_server else None
    clients = {k: once.ready_client(answer) for k, answer in answers.items()}
    server_after, after = at.ask(Stage.asking(OwnModel), OwnModel.question, question, clients)
    if server_after is None:
        return next(client.asked.parameters for client in after.values() if client.asked is not None), []
    replies = sorted(server_after.replies.items())
    packages = {} if server is None else {"": (server.factory.distribution, server.factory.version)}
    packages |= {at.names[k]: reply.said for k, reply in replies}
    if len(set(packages.values())) > 1:
        error = JobError(_differ(terms.factory, packages))
        mark_party(error, SERVER)
        raise error
    editable = [repr(at.names[k]) for k, reply in replies if reply.editable]
    if not editable:
        return names, []
    what = "is installed from a folder that may change (editable), and its version says nothing of its code"
    return names, [f"client {', '.join(editable)}: the package of the model {what}"]


def _differ(factory: str, packages: Mapping[str, tuple[str, str]]) -> str:
    """The sentence that names the parties with another package than most."""
    (usual, _), *_ = Counter(packages.values()).most_common(1)
    others = [f"{_who(name)} has {' '.join(package)}" for name, package in packages.items() if package != usual]
    those = [_who(name) for name, package in packages.items() if package == usual]
    return (
        f'model.factory = "{factory}": {", ".join(others)}, and {", ".join(those)} {" ".join(usual)}: install the same version '
        f"everywhere (pip install {usual[0]}=={usual[1]})"
    )


def _who(name: str) -> str:
    return f"client {name!r}" if name else "the server"
