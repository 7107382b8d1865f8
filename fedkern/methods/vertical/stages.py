"""What `fedkern check` prints of a vertical job: the model, what is disclosed, and every message that may leave a party."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...algorithms.exchanges import certificates, column_notes, response
from ...algorithms.exchanges import predictions as vertical_predict
from ...algorithms.exchanges import rows as alignment
from ...algorithms.soul import machine as soul
from ...algorithms.split import machine as vertical
from ...data.design import check_header
from ...data.faults import who
from ...data.table import Table
from ...jobs import memory, wire
from ...jobs.check import Check
from ...jobs.parties import Parties
from ...models.encoding import Encoding, Spec
from ...privacy.certificate import trust
from ...transports.codec import Codec
from ...transports.place import Place
from . import budget as private
from .keys import Config
from .model import VerticalModel
from .rows import aligned, columns, held_out, needed, server_spec, spec_of, unknown


def checked(at: Check[Config]) -> list[str] | None:
    """Headers at every party; then digests of ids, so that it can be said how many rows there are. No other cell is used."""
    config = at.config
    rows = counted(at.place, config, at.parties)
    notes = at.notes(lambda own: spec_of_file(config, at.parties.spec, own.names), split=True)
    if rows is None:
        return None
    train, test = held_out(config, *rows)
    model = VerticalModel(config, at.names, len(train), len(test) + len(rows[1]))
    told = wire.lines(len(at.names), protocols(model))
    return [*lines(model), *_memory(config.algorithm.covariance), *notes, "", *told]


def look_through(config: Config, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None:
    """What else would end a run with this file; JobError."""
    rows, _ = aligned(own, config, "the file")
    if spec.covariates(own.names):
        columns(rows, config, np.arange(own.n_rows), path.stem, response=spec.response is not None)


def spec_of_file(config: Config, spec: Spec, names: tuple[str, ...]) -> Spec:
    """What is known of a file's columns: a client's, or the server's, which has no covariate."""
    client = spec_of(config, response=config.algorithm.response == "shared" and config.data.response in names, names=names)
    return client if client.covariates(names) else server_spec(config)


def counted(place: Place, config: Config, found: Parties) -> tuple[int, tuple[int, ...]] | None:
    """The number of rows and those without a response, once all headers are right and all have the same ids; at the server."""
    clients, names, shared = {}, found.names, config.algorithm.response == "shared"
    for k in place.mine(found.n_clients):
        source, header = found.header(k)
        spec = spec_of(config, response=shared, names=header)
        check_header(header, spec, source, names[k])
        needed(config, spec, header, who(names[k], source))
        ids = aligned(found.rows(k), config, f"client {names[k]!r}")[1]
        has, counted = config.data.response in header, config.privacy is None
        clients[k] = alignment.Client(names[k], ids, config.job.seed, has, counted=counted)
    table = found.server() if place.is_server else None
    own, new = None, tuple[int, ...]()
    if table is not None:
        table, own = aligned(table, config, "data.server")
        new = unknown(table, config)
    start = alignment.start(names, config.job.seed, own, new, counted=config.privacy is None) if place.is_server else None
    ended = place.run(alignment.PROTOCOL, start, clients, Codec(alignment.DIMS, found.n_clients))
    server = ended[0]
    return None if server is None else (int(server.n_rows), new)


def lines(model: VerticalModel) -> Iterator[str]:
    """Job, model, inference, and what is disclosed."""
    c, m, a = model.config, model.config.model, model.config.algorithm
    yield f"job      vertical, {m.kind}, rounds = {c.job.rounds}, seed {c.job.seed}"
    if model.network:
        yield f"model    {m.family}, split network {'-'.join(map(str, m.hidden))}-{m.features}, point estimates"
    else:
        intercept = "an intercept at the server" if m.intercept else "no intercept"
        yield f"model    {m.family}, {m.augmentation} model, rho {m.rho:g}, {intercept}"
        q = f"{a.auxiliary} auxiliary variables, {a.covariance} covariance" if a.inference == "sfvi" else "Langevin, a mode of z"
        yield f"fit      {a.inference}: {q}, {a.optimiser}, learning rate {a.learning_rate:g}"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield f"rows     {model.n_rows} train, {model.n_test} are predicted (kept for testing, or without a response)"
    yield f"response {c.data.response}, " + ("used at every client" if model.shared else "used at the server alone")
    if not model.network:
        J = len(model.names)
        family = model.likelihood.record
        factor = f"{(J - 1) ** 2 / J:g}" if model.power else f"{J}"
        yield (
            f"information  of a row that is kept: v / (v + {factor} rho^2) = v / (v + {float(factor) * m.rho**2:.4g}), "
            f"v = {family.variance_words}"
        )
        if family.least_variance:
            yield f"             at least {family.least_variance / (family.least_variance + float(factor) * m.rho**2):.1%}"
    yield ""
    yield from _privacy(model)
    yield f"disclosure  {disclosure(model)}"


def _privacy(model: VerticalModel) -> Iterator[str]:
    if model.config.privacy is None:
        yield "privacy  none is claimed: the job is federated, and rho is no protection (z is drawn anew in every round, so its"
        yield "         average shows the client's part of the predictor)"
        return
    own = private.plan(model, "each", 1)
    m = own.mechanism
    epsilon = f"{own.spent:.4g}" if m.secure else f"inf (secure: {own.spent:.4g})"
    yield f"privacy  each client, for its own columns: epsilon {epsilon} after {own.steps} releases, delta {own.delta:g},"
    if own.steps < (own.planned or 0):
        yield f"         which is after {own.steps // own.update} of {own.updates} rounds: the budget ends the job"
    yield f"         noise {m.sigma:.4g} times the clip; neighbours: {m.neighbours}"
    yield f"         trusts {trust(m)}"


def disclosure(model: VerticalModel) -> str:
    """In words, what the parties learn of each other (docs/methods/vertical.md, section 11)."""
    data = model.config.data
    texts = ["digests of row ids, a draw of each client's part of every training row's predictor in every round"]
    if model.network:
        texts = ["digests of row ids, each client's part of every training row's predictor in every round"]
    if data.server is None and not data.builtin:
        texts.append(f"{data.response} of all rows from the first client that has it, once")
    if model.n_test:
        texts.append("mean and variance of each client's part at the rows that are predicted, once")
    down = f"; clients see slopes {model.likelihood.record.slope_words}"
    return f"the server sees {', '.join(texts)}" + ("" if model.shared else down)


def protocols(model: VerticalModel) -> list[tuple[Any, Mapping[str, int]]]:
    """All protocols of the job with the sizes of their messages, in order."""
    found: list[tuple[Any, Mapping[str, int]]] = [(alignment.PROTOCOL, alignment.DIMS)]
    if model.config.data.server is None and not model.config.data.builtin:
        found.append((response.PROTOCOL, {"n": model.n_rows + model.n_test}))
    if model.config.privacy is None:
        found.append((column_notes.PROTOCOL, column_notes.DIMS))
    if model.config.algorithm.inference == "soul":
        found.append((soul.protocol(model.soul), model.soul.dims()))
    else:
        found.append((vertical.protocol(model.settings), model.settings.dims()))
    if model.config.privacy is not None:
        found.append((certificates.PROTOCOL, certificates.DIMS))
    if model.n_test:
        sizes = {"t": model.n_test, "n": model.n_rows}
        found.append((vertical_predict.protocol(model.config.output.missing_party), sizes))
    return found


def _memory(covariance: str) -> Iterator[str]:
    """Of full covariances: only a client knows how many columns it has."""
    if covariance == "full":
        about = memory.size(memory.NUMBER * 8 * 1000**2)
        yield f"memory   each client: about {about} for every (1,000 coefficients)^2, for their covariances"
