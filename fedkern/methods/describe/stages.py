"""Lists the exchanges of a job that describes columns, and makes the text of `fedkern check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...algorithms.core.exchange import Added, Answer
from ...algorithms.exchanges import columns as agreement
from ...algorithms.exchanges import described
from ...algorithms.exchanges.answers import Certificate
from ...algorithms.exchanges.described import Cells, FewValues, Moments, OwnParts
from ...data.design import describe
from ...jobs import holders, joining, secure, tables
from ...jobs.check import Check, OwnFile, Said
from ...jobs.holding.binding import bind
from ...jobs.parties import data_set
from ...jobs.said import Line
from ...jobs.stage import Stage
from ...privacy.certificate import describe_trust
from ...privacy.plan import Plan
from . import budget
from .keys import PUBLIC, Config
from .model import DescribeModel

# All that a client of such a job may send, as docs/concepts/disclosure.md lists it.
MAY_SEND = (
    *agreement.PROTOCOL.to_server,
    *joining.MAY_SEND,
    *described.MAY_SEND,
    *secure.MAY_SEND,
    *Certificate.may_send,
)


def opening(config: Config) -> list[Stage]:
    """Returns the exchange before the model is known, in which parties agree on columns."""
    return [Stage.of(agreement)]


def stages(model: DescribeModel) -> list[Stage]:
    """Returns the exchanges once the columns are agreed."""
    if model.config.private:
        return [asking(model, Cells), Stage.asking(Certificate)]
    return [asking(model, answer) for answer in (FewValues, OwnParts, Cells, *[Moments] * model.tells_sums)]


def asking(model: DescribeModel, answer: type[Answer]) -> Stage:
    """Returns the stage in which clients are asked a question; sums of numbers are masked, and where sums are secure counts."""
    masked = issubclass(answer, Added) and (model.secure or (answer is Moments and not model.here))
    return Stage.asking(answer, model.dims, secure=masked)


def check_job(check: Check[Config]) -> Said | None:
    """Returns the text of `check` and the numbers behind it, at the server's place; None elsewhere."""
    encoding = check.agreed()
    if encoding is None:
        return None
    model = DescribeModel(check.config, check.names, encoding=encoding)
    masked = secure.masks(check.config, len(check.names))
    sums = [*secure.describe(check.place, check.names, units=not model.secure)] if masked or model.secure else []
    plans = {} if check.config.privacy is None else {name: budget.plan(check.config.privacy, model) for name in check.names}
    return Said(model, [*_lines(model), *sums, "", *_privacy(model)], check.unknown(encoding), plans)


def look_through(file: OwnFile[Config]) -> None:
    """Raises JobError for anything else in this file that would end a run."""
    if not file.spec.private:
        describe(file.table, file.spec)


def own_plan(file: OwnFile[Config], client: str, names: Sequence[str]) -> Plan | None:
    """Returns the plan of one client's budget; None where its noisy counts exist already, and cost nothing."""
    privacy = file.config.privacy
    if privacy is None:
        return None
    model, where = (
        DescribeModel(file.config, (client,), encoding=file.encoding),
        holders.standing(bind(client, data_set(file.path)), client),
    )
    return None if where is not None and tables.find(where, budget.key(privacy, model, client)) else budget.plan(privacy, model)


def _lines(model: DescribeModel) -> Iterator[str]:
    """Yields job, columns and clients."""
    times = f"; Kaplan-Meier curves of {model.config.model.time}" if model.config.model.time else ""
    group = f", in all rows and by {model.group}" if model.group else ""
    yield f"job      describe: {len(model.columns)} columns{group}{times}"
    pairs = f", {len(model.pairs)} correlations" if model.pairs else ""
    yield f"counts   {len(model.tables)} tables of {model.dims['cells']:,} cells at most{pairs}"
    if not model.config.private and len(model.names) == 2:
        two = "two clients: what all have together, less its own, tells each of them the other's numbers"
        yield Line("warning", two)
    yield f"clients  {len(model.names)}: {', '.join(model.names)}"


def _privacy(model: DescribeModel) -> Iterator[str]:
    """Yields the plan of each client's noise, or that none is claimed."""
    privacy = model.config.privacy
    if privacy is None:
        yield "privacy  none is claimed: the job is federated, and what clients send has no noise in it"
        return
    plan = budget.plan(privacy, model)
    yield f"privacy  each client: epsilon {plan.spent:.4g} at delta {plan.delta:g}, spent once, when noise is added to its counts"
    yield f"         {privacy.table!r}; the same job again has these, and spends nothing more"
    yield f"         noise two-sided geometric, sd {plan.mechanism.sigma * plan.mechanism.clip:.4g} rows in each cell"
    yield f"         trusts {describe_trust(plan.mechanism)}; public are {PUBLIC}"
