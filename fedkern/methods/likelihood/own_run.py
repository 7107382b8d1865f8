"""Runs the steps of a job whose log-likelihoods are computed by the holders' own packages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...algorithms.core.messages import SERVER
from ...algorithms.exchanges.answers import SiteMode
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...errors import owned
from ...jobs.run import Run
from ...models.mixed.rows import find_mode
from ...models.own.priors import Priors
from ...models.own.supplied import Own
from .keys import Config
from .own_factory import Factory
from .own_model import OwnModel, terms_of
from .own_parties import agree_on_package, check_prior, of_client, of_server
from .publish import Checked
from .sites import of_parameters
from .stages import stages_of_sites
from .steps import Machine, Read, Tables

QUANTILES = (0.025, 0.5, 0.975)


class Ended(NamedTuple):
    """Holds a client's model and its machine at the end."""

    own: Own
    machine: Machine


def agree(run: Run[Config], tables: Tables) -> Packages:
    """Lets the holders agree on the package that computes their likelihoods, before any row is given to it."""
    terms = terms_of(run.config)
    assert terms is not None
    folder, factories = run.part.folder, dict[int, Factory]()
    for k in tables:
        with owned(k):
            factories[k] = of_client(terms, folder, run.names[k])
            _bind(run, k, factories[k])
    server = of_server(terms, folder) if run.place.is_server else None
    if server is not None:
        _bind(run, SERVER, server.factory)
    names, notes = agree_on_package(run, terms, factories, server)
    run.hooks.notes += notes
    return Packages(OwnModel(run.config, run.names, names, None if server is None else server.prior), factories)


@dataclass(frozen=True)
class Packages:
    """Holds the model of the agreed parameters, and the factories of the clients that live here."""

    model: OwnModel
    factories: Mapping[int, Factory]

    def read_rows(self, run: Run[Config], tables: Tables) -> Read:
        """Has each client's model made of its rows; empties `tables`."""
        model, terms = self.model, self.model.terms
        owns: dict[int, Own] = {}
        for k in list(tables):
            with owned(k):
                who, local = terms.who(f"client {run.names[k]!r}"), model.local
                made = self.factories[k].made(who, tables.pop(k), terms.ignored, terms.options)
                owns[k] = Own.of(made, who, model.parameters, terms.priors, local=local, apart=self.factories[k].apart)
                check_prior(terms, who, self.factories[k], owns[k])
        return Read(model, owns, owns, None, {})


def complete(run: Run[Config], model: OwnModel, index: int, rows: Own, likelihood: Own, machine: Machine) -> Ended:
    """Returns a client's model and machine; writes its own unknowns into its folder, where it has some."""
    if isinstance(machine, hmc.Client):
        _write(run, model, index, machine)
    return Ended(likelihood, machine)


def _bind(run: Run[Config], party: int, factory: Factory) -> None:
    """Refuses to go on with another package, or another version, than the run began with."""
    package = f"{factory.distribution} {factory.version}"
    fault = f"the package of {factory.name} is now {package}, and another version when the run began"
    run.hooks.bind(party, factory=(hashlib.blake2b(package.encode(), digest_size=16).hexdigest(), fault))


def exchange_checks(run: Run[Config], model: OwnModel, ended: Mapping[int, Ended]) -> Checked:
    """Asks clients for the modes of their rows alone, where the job asks for them; returns `sites`, and nothing of chains."""
    for stage in stages_of_sites(model) if not model.chains else ():
        server = run.collect(stage, SiteMode, ended, lambda client: _alone(model, *client))
        if server is not None:
            return of_parameters(model.parameters, server, run.names)
    return Checked()


def _alone(model: OwnModel, drawn: Own, client: Machine) -> SiteMode:
    """A client's own mode in the coordinates and in the parameters, with standard deviations by the delta method; NaN without."""
    priors, P = model.terms.priors, model.size
    assert isinstance(priors, Priors)
    assert isinstance(client, importance.Client)
    assert client.told is not None
    at_mode = find_mode(drawn, priors, client.told.mean(axis=0), 1)
    if at_mode is None:
        return SiteMode(0, np.full((2, P), np.nan), np.full((2, P), np.nan))
    xi, covariance = at_mode
    J = priors.jacobian(xi)
    natural = np.asarray(priors.natural(xi[np.newaxis]), np.float64)[0]
    sds = np.sqrt(np.diagonal(J @ covariance @ J.T)), np.sqrt(np.diagonal(covariance))
    return SiteMode(0, np.stack([natural, xi]), np.stack(sds))


def _write(run: Run[Config], model: OwnModel, client: int, ended: hmc.Client) -> None:
    """Writes local.csv into the client's own folder: its own unknowns, which nobody else has."""
    folder = run.hooks.folder
    if folder is None or not model.local:
        return
    draws = hmc.local_draws(ended)
    u = draws.reshape(-1, draws.shape[2])
    columns = {"unknown": list(range(1, u.shape[1] + 1)), "mean": u.mean(axis=0).tolist(), "sd": u.std(axis=0).tolist()}
    columns |= {f"q{round(1000 * q):03d}": np.quantile(u, q, axis=0).tolist() for q in QUANTILES}
    folder.write_csv("local.csv", columns, client=client)
