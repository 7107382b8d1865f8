"""Checks a job whose log-likelihoods are computed by the holders' own packages, for `fedkern check`."""

from __future__ import annotations

from collections.abc import Iterator

from ...algorithms.importance import machine as importance
from ...errors import owned, show_own_faults
from ...jobs.check import Check, OwnFile, Said
from ...jobs.said import Line
from . import own_factory
from .keys import Config
from .own_model import OwnModel, Terms
from .own_parties import agree_on_package, of_client, of_server


def checked(at: Check[Config], terms: Terms) -> Said | None:
    """Returns the words on the job, at the server's place; None elsewhere.

    Factories are looked up and their versions compared; none is called with rows.
    """
    server = of_server(terms, at.part.folder) if at.place.is_server else None
    factories = {}
    for k in at.mine:
        with owned(k):
            factories[k] = of_client(terms, at.part.folder, at.names[k])
    names, notes = agree_on_package(at, terms, factories, server)
    if not at.place.is_server:
        return None
    model = OwnModel(at.config, at.names, names, None if server is None else server.prior)
    return Said(model, [*_lines(model), *(Line("note", note) for note in notes), "", *_privacy(model)])


def look_through(file: OwnFile[Config], terms: Terms) -> list[str]:
    """Returns lines on a holder's own file, of which the factory makes a model. Raises JobError: it makes none."""
    factory, who = own_factory.load_factory(terms.factory, file.folder), terms.who()
    with show_own_faults():
        made = factory.made(who, file.table, terms.ignored, terms.options)
    names = getattr(made, "names", ())
    return [f"  {who} ({factory.distribution} {factory.version}) has the parameters {', '.join(map(str, names))}"]


def _lines(model: OwnModel) -> Iterator[str]:
    settings, P = model.settings, model.size
    if model.variational:
        how = f"{model.rounds_of_fit} rounds of a variational fit, and draws about it{model.schedule_in_words}"
    elif model.local:
        how = f"{model.walks.chains} chains of {model.walks.rounds} rounds"
    elif model.chains:
        how = f"the mode and {model.walks.chains} chains of {model.walks.rounds} rounds"
    else:
        how = f"the mode from {settings.starts} starts and rounds of draws"
    yield f"job      likelihood, {how}, seed {model.seed}"
    yield f'model    own: the log-likelihood that "{model.terms.factory}" computes, of a package that each holder has installed'
    yield f"         {P} parameters: {', '.join(model.parameters)}"
    yield f"prior    {'of [model.priors]' if model.terms.priors is not None else 'of the model itself (log_prior)'}"
    changed = [parameter for parameter, name in zip(model.prior.coordinates, model.parameters) if parameter != name]
    if changed:
        yield f"         points travel as {', '.join(changed)}"
    if model.local:
        yield f"local    unknowns of each client are {'fitted' if model.variational else 'sampled'} by it, and stay there"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    if model.variational:
        rounds = model.rounds_of_fit
        sent = P * 8 * rounds / 1e6
        yield f"rounds   {rounds:,} exchanges, about {sent:.1f} MB to each client and from it, and up to 10 of draws"
        return
    if model.chains:
        s = model.walks
        each = s.rounds * s.leapfrog
        yield f"rounds   {each:,} exchanges, about {s.chains * P * 8 * each / 1e6:.1f} MB to each client and from it"
        return
    answer, values = settings.starts * (1 + P + P * (P + 1) // 2) * 8, settings.per_question * importance.WIDTH
    yield (
        f"rounds   about 10 to the mode (at most {settings.newton}), of {answer / 1e3:.1f} kB from each client, and 2 to 8 "
        f"questions of {settings.per_question:,} draws (at most {settings.most_questions}), of {values / 1e3:.1f} kB"
    )


def _privacy(model: OwnModel) -> Iterator[str]:
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield "         each client sends what the factory's author decided, at thousands of points that the server chooses:"
    yield "         whether that tells its rows nobody but the holder can judge; rows are counted, and nothing else is looked at"
    yield "         any function of any package that a holder has installed can be named by such a job: a holder's policy"
    yield '         (require = true, and factories = ["package.module:function"]) says which are run, and all others are refused'
