"""What `fedkern check` prints of a job with a trained prior: the model, what is disclosed, and every message of a party."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...algorithms.exchanges import column_notes, level
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import prior as prior_agreement
from ...algorithms.hmc import machine as hmc
from ...algorithms.sfvi import machine as sfvi
from ...data.artifact import read_client
from ...data.design import describe
from ...data.table import Table
from ...errors import JobError
from ...jobs import memory, wire
from ...jobs.check import Check
from ...models.encoding import Encoding, Spec
from ...printing import printable
from .keys import Config
from .model import SigmaModel
from .points import extended
from .rows import needed, rows
from .run import agreed


def checked(at: Check[Config]) -> list[str] | None:
    """All that is printed, at the server's place; None elsewhere."""
    encoding = at.agreed(partial(needed, at.config))
    prior = agreed(at.place, at.config, at.folder, at.names)[0]
    notes = at.notes()
    if encoding is None:
        return None
    assert prior is not None
    model = SigmaModel(at.config, at.names, encoding, prior.common)
    told = wire.lines(len(at.names), protocols(model), at.parties.spec, at.unknown(encoding))
    used = memory.lines(*_memory(model.layout.size, "diagonal" if model.chains else at.config.algorithm.covariance))
    return [*lines(model), *used, *notes, "", *told]


def spec_of_file(config: Config, spec: Spec, names: tuple[str, ...]) -> Spec:
    """What is known of the columns of one client's file."""
    return spec


def look_through(config: Config, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None:
    """What else would end a run with this file; JobError. Where the prior's file is not here, that is said."""
    describe(own, spec)
    try:
        prior = read_client(folder / config.model.prior, path.stem)
    except JobError as error:
        print(printable(f"  note: not compared with the prior: {error}"))
        return
    rows(own, config, encoding, extended(prior, own, config, "the file"), path.stem)


def lines(model: SigmaModel) -> Iterator[str]:
    """Job, model, inference, and what is disclosed."""
    c, m, a, common = model.config, model.config.model, model.config.algorithm, model.common
    yield f"job      sigma, {m.kind} model, rounds = {c.job.rounds}, seed {c.job.seed}"
    name = common.condition.name
    about = f"{name} in [{model.condition.lo:g}, {model.condition.hi:g}]" if model.layout.free else "no free hyperparameter"
    yield f"prior    {common.kind}, {common.variant} networks, {common.n_global} global latents, {about}; id {common.id[:12]}"
    intercept = "an intercept about the pooled level" if m.intercept else "no intercept"
    yield f"model    {m.family}, {intercept}, {model.encoding.size - 1} coefficients"
    if model.chains:
        s = model.hmc
        yield f"fit      {a.inference}: {s.chains} chains, {s.leapfrog} leapfrog steps a round, {s.warmup} rounds of warm-up"
    else:
        q = f"{a.covariance} covariance, clients' latents {'given' if a.structured else 'independent of'} the global ones"
        yield f"fit      {a.inference}: {q}, {a.optimiser}, learning rate {a.learning_rate:g}"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    yield ""
    yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
    yield f"disclosure  {disclosure(model)}"


def disclosure(model: SigmaModel) -> str:
    """In words, what the server learns (docs/methods/sigma.md, section 6)."""
    text = "the server sees two sums of each client's responses and offsets (gaussian: and two of their deviations), once, and "
    text += "the gradient of each client's log-likelihood in the global unknowns, in every round"
    if model.chains:
        text += ", and one change of log-density a trajectory"
    if model.config.output.bound:
        text += ", and each client's term of the ELBO"
    return text + "; responses, areas' effects, rates and local latents have no message"


def protocols(model: SigmaModel) -> list[tuple[Any, Mapping[str, int]]]:
    """All protocols of the job with the sizes of their messages, in order."""
    fit: tuple[Any, Mapping[str, int]]
    if model.chains:
        fit = (hmc.protocol(model.hmc), model.hmc.sizes(model.layout.size))
    else:
        fit = (sfvi.protocol(model.sfvi), model.sfvi.sizes(model.layout.size))
    first = (agreement, prior_agreement, column_notes, level)
    return [*((one.PROTOCOL, one.DIMS) for one in first), fit]


def _memory(d: int, covariance: str) -> tuple[float, float]:
    """Bytes at the server and at a client, of the global unknowns' covariance."""
    return (memory.NUMBER * 8.0 * d * d, memory.NUMBER * 4.0 * d * d) if covariance == "full" else (0.0, 0.0)
