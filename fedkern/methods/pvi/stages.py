"""What `fedkern check` prints of a partitioned job: the model, what it will spend, and every message that may leave a party."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...algorithms.exchanges import certificates, column_notes
from ...algorithms.exchanges import columns as agreement
from ...data.design import describe
from ...data.table import Table
from ...jobs import memory, wire
from ...jobs.check import Check
from ...models.encoding import Encoding, Spec
from ...privacy.certificate import trust
from .keys import Config
from .model import Model


def checked(at: Check[Config]) -> list[str] | None:
    """All that is printed, at the server's place; None elsewhere."""
    encoding = at.agreed()
    notes = at.notes(intercept=at.config.model.intercept)
    if encoding is None:
        return None
    return list(lines(Model(at.config, at.names, encoding), at.parties.spec, at.unknown(encoding), notes))


def spec_of_file(config: Config, spec: Spec, names: tuple[str, ...]) -> Spec:
    """What is known of the columns of one client's file."""
    return spec


def look_through(config: Config, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None:
    """What else would end a run with this file; JobError."""
    if not spec.private:
        describe(own, spec)


def lines(model: Model, spec: Spec, unknown: list[str], notes: list[str]) -> Iterator[str]:
    """Job, model, clients, what is spent, and every message."""
    config = model.config
    a, m, d = config.algorithm, config.model, model.encoding.size
    schedule = "synchronous" if model.by_client else a.schedule
    yield f"job      {config.job.method}, variant {a.variant}, {schedule}, rounds = {config.job.rounds}, seed {config.job.seed}"
    yield f"model    {m.family}, {m.covariance} covariance, prior precision {m.prior_precision:g}"
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"
    more = "; more if columns turn out to be categorical" if unknown else ""
    yield f"columns  {d} coefficients{more}; response {spec.response}"
    yield from memory.lines(*_memory(model))
    yield from notes
    yield ""
    yield from _privacy(config, model)
    yield ""
    settings = model.settings
    protocols = [(agreement.PROTOCOL, agreement.DIMS), (model.protocol, settings.sizes(model.encoding.size))]
    if config.privacy is None:
        protocols.insert(1, (column_notes.PROTOCOL, column_notes.DIMS))
    protocols += [(certificates.PROTOCOL, certificates.DIMS)] if config.privacy is not None and not model.by_client else []
    yield from wire.lines(len(model.names), protocols, spec, unknown)


def _memory(model: Model) -> tuple[float, float]:
    """Bytes at the server and at a client, of a model's precision matrices."""
    if model.config.model.covariance != "full":
        return 0.0, 0.0
    d2 = float(model.encoding.size) ** 2
    return memory.NUMBER * d2 * (8 + 2 * len(model.names)), memory.NUMBER * d2 * 8


def _privacy(config: Config, model: Model) -> Iterator[str]:
    if config.privacy is None:
        yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
        return
    source = config.privacy.noise_source
    yield f"privacy  plan, {source} noise" + ("" if source == "secure" else ": for experiments, epsilon is infinite")
    head = ("client", "sampling", "noise/clip", "clip", "delta", "cap", "updates", "steps", "epsilon")
    names = ["(all)"] if model.by_client else model.names
    rows = []
    for name in names:
        plan = model.plan(name)
        m = plan.mechanism
        rate = f"{m.sampling} {m.rate:.4g}" if m.rate < 1 else m.sampling
        epsilon = f"{plan.spent:.4g}" if m.secure else f"inf (secure: {plan.spent:.4g})"
        steps = plan.steps
        values = (
            name,
            rate,
            f"{m.sigma:.4g}",
            f"{m.clip:g}",
            f"{plan.delta:g}",
            f"{plan.epsilon:g}",
            steps // plan.update,
            steps,
            epsilon,
        )
        rows.append([str(v) for v in values])
    yield from wire.laid_out(head, rows)
    yield f"         neighbours: {plan.mechanism.neighbours}; by the {plan.mechanism.accountant} accountant"
    yield f"         trusts {trust(plan.mechanism)}"
    if model.by_client and plan.mechanism.rate < 1:
        more = f"{1 / plan.mechanism.rate:.3g}"
        yield f"         every client works in every round, so that nobody sees whose work counts: {more} times the work"
