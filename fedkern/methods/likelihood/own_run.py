"""A job whose log-likelihoods are computed by the holders' own packages, from their tables to its result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from ...algorithms.core.messages import SERVER, ServerEffects
from ...algorithms.exchanges import site_modes
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...errors import owned
from ...jobs.publish import Fit
from ...jobs.run import Run
from ...models.mixed import mode
from ...models.own.priors import Priors
from ...models.own.supplied import Own
from . import lines, own_publish, own_variational
from .keys import Config
from .own import answers
from .own_factory import Factory
from .own_model import OwnModel, Terms
from .own_parties import agreed, of_client, of_server
from .sites import of_parameters
from .stages import own_modes, sampled, walked

QUANTILES = (0.025, 0.5, 0.975)


def fit(run: Run[Config], terms: Terms) -> Fit | None:
    """The part of one place; what comes of it at the server's, None elsewhere."""
    folder, factories = run.part.folder, dict[int, Factory]()
    tables = run.tables()
    for k in tables:
        with owned(k):
            factories[k] = of_client(terms, folder, run.names[k])
            _bind(run, k, factories[k])
    server = of_server(terms, folder) if run.place.is_server else None
    if server is not None:
        _bind(run, SERVER, server.factory)
    names, notes = agreed(run, terms, factories, server)
    run.hooks.notes += notes
    model = OwnModel(run.config, run.names, names, None if server is None else server.prior)
    run = run.knowing(model)
    owns: dict[int, Own] = {}
    for k in list(tables):
        with owned(k):
            who, local = terms.who(f"client {run.names[k]!r}"), model.local
            made = factories[k].made(who, tables.pop(k), terms.ignored, terms.options)
            owns[k] = Own.of(made, who, names, terms.priors, local=local, apart=factories[k].apart)
    return _sampled(run, model, owns)


def _sampled(run: Run[Config], model: OwnModel, owns: Mapping[int, Own]) -> Fit | None:
    """The mode and the draws, or chains, or a variational fit."""
    if model.variational:
        return own_variational.fit(run, model, owns)
    at_mode, clients = None, dict[int, importance.Client]()
    if not model.local:
        machines = {k: model.client(k, own) for k, own in owns.items()}
        at_mode, clients = run.saying(lines.to_mode_and_draws()).exchange(sampled(model), model.start, machines)
    if not model.chains:
        alone = _sites(run, model, owns, clients)
        return None if at_mode is None else own_publish.fit(model, at_mode, run.hooks.doubts, alone)

    def start() -> tuple[hmc.Server, ServerEffects]:
        return model.walk(at_mode)

    walkers = {k: model.walker(k, own) for k, own in owns.items()}
    server, ended = run.saying(lines.of_chains()).exchange(walked(model), start, walkers)
    for k, client in ended.items():
        with owned(k):
            _write(run, model, k, client)
    return None if server is None else own_publish.of_chains(model, at_mode, server, run.hooks.doubts)


def _bind(run: Run[Config], party: int, factory: Factory) -> None:
    """A run that goes on has the same package as when it began."""
    said = f"{factory.distribution} {factory.version}"
    fault = f"the package of {factory.name} is now {said}, and another version when the run began"
    run.hooks.bind(party, factory=(hashlib.blake2b(said.encode(), digest_size=16).hexdigest(), fault))


def _sites(
    run: Run[Config], model: OwnModel, owns: Mapping[int, Own], clients: Mapping[int, importance.Client]
) -> tuple[dict[str, object], list[str]]:
    """What each client's rows say alone, at the server's place, where the job asks for it."""
    for stage in own_modes(model):
        asked = site_modes.AskSiteMode(0) if run.place.is_server else None
        both = {k: (own, clients[k]) for k, own in owns.items()}
        server = answers(run, stage, site_modes.QUESTION, asked, both, lambda one: _alone(model, *one))
        if server is not None:
            return of_parameters(model.parameters, server, run.names)
    return {}, []


def _alone(model: OwnModel, own: Own, client: importance.Client) -> site_modes.SiteMode:
    """A client's own mode in the coordinates, and what it is in the parameters: standard deviations by the delta method."""
    priors, P = model.terms.priors, model.size
    assert isinstance(priors, Priors)
    assert client.told is not None
    found = mode.found(own, priors, client.told.mean(axis=0), 1)
    if found is None:
        return site_modes.told(np.full((2, P), np.nan), np.full((2, P), np.nan))
    xi, covariance = found
    J = priors.jacobian(xi)
    natural = np.asarray(priors.natural(xi[np.newaxis]), np.float64)[0]
    sds = np.sqrt(np.diagonal(J @ covariance @ J.T)), np.sqrt(np.diagonal(covariance))
    return site_modes.told(np.stack([natural, xi]), np.stack(sds))


def _write(run: Run[Config], model: OwnModel, client: int, ended: hmc.Client) -> None:
    """local.csv into the client's own folder: its own unknowns, which nobody else has."""
    folder = run.hooks.folder
    if folder is None or not model.local:
        return
    draws = hmc.local_draws(ended)
    u = draws.reshape(-1, draws.shape[2])
    columns = {"unknown": list(range(1, u.shape[1] + 1)), "mean": u.mean(axis=0).tolist(), "sd": u.std(axis=0).tolist()}
    columns |= {f"q{round(1000 * q):03d}": np.quantile(u, q, axis=0).tolist() for q in QUANTILES}
    folder.write_csv("local.csv", columns, client=client)
