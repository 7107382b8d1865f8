"""Computes every certificate of a run again from its ledgers and budgets, by two accountants.

The first is the one that the certificate names: each field must come out the same. The second (`privacy.losses`) shares nothing
with it and has bounds: a claim below the lower one is false, whatever the first says. Ledgers and budgets are compared with the
marks of them in checkpoints, stored answers and job.json. docs/how-to/console.md lists the faults that this cannot see.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..algorithms.core.messages import SERVER
from ..errors import JobError
from ..printing import align_columns
from ..privacy.accountant import Mechanism, Parts
from ..privacy.certificate import ALONE, certificate, describe_claim, find_problem
from ..privacy.losses import epsilon_bounds
from ..results.plain import plain
from ..results.summary import claim_of
from . import ledger as ledgers_of
from . import outbox
from .holding.budget import Ledger
from .holding.chain import Mark
from .opened import Opened, ledgers, read, sent, torn
from .stamp import Stamp

BITS = 1e-9  # relative: what other versions of NumPy, or other processors, may change in a number
SLACK = 1.01  # of the first accountant above the second's upper bound, where that is of the worst neighbours
EXACT = ("poisson", "full", "shards", "aligned", "counts")  # sampling of which the worst neighbours are known


@dataclass
class Party:
    """Holds the audited numbers of a client, or of the federation."""

    name: str
    # messages, bytes: in its ledger; None where that is not here
    messages: int | None = None
    bytes: int | None = None
    # charged, steps: steps that its messages took by the ledger, and those that its budget was charged; None where it is not here
    charged: int | None = None
    steps: int | None = None
    claimed: float | None = None  # epsilon of its certificate; None without one
    # low, high: bounds of epsilon by the second accountant
    low: float | None = None
    high: float | None = None


@dataclass
class Audit:
    """Holds the outcome: a run's files agree where `differences` is empty; `notes` name files that could not be looked at."""

    parties: list[Party] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)  # how many lines of which budgets count because their holders say so
    alone: list[str] = field(default_factory=list)  # whose certificates were judged by their own numbers, for no budget is here

    def describe(self) -> Iterator[str]:
        """Yields the outcome in words, line by line."""
        head = ["", "messages", "bytes", "steps paid", "steps charged", "epsilon claimed", "at least", "at most"]
        rows = [head]
        for p in self.parties:
            counts = ["" if n is None else f"{n:,}" for n in (p.messages, p.bytes, p.charged, p.steps)]
            rows.append([p.name, *counts, *("" if e is None else f"{e:.6g}" for e in (p.claimed, p.low, p.high))])
        yield from align_columns(rows)
        yield ""
        yield from (f"note        {note}" for note in self.notes)
        yield from (f"DIFFERENCE  {difference}" for difference in self.differences)
        many = len(self.differences)
        claims = any(p.claimed is not None for p in self.parties)
        good = "every certificate is what its ledger and its budget say" if claims else "what is here agrees; nothing is claimed"
        if claims and self.alone:
            good += f"; that of {', '.join(self.alone)} is judged by its own numbers, for its budget is not here"
        if self.adopted:
            good += f"; {' and '.join(self.adopted)} count because the holder has adopted them, and not because they fit"
        yield f"{many} difference{'s' if many > 1 else ''}: do not rely on this run's claims" if many else good

    def compare(self, what: str, here: object, expected: object) -> None:
        """Adds a difference where two values are not the same."""
        if here != expected:
            self.differences.append(f"{what}: is {_shown(here)}, and should be {_shown(expected)}")


def audit(run: Opened) -> Audit:
    """Looks at all files of a run that can be read here. Raises JobError: a file differs from those that runs write by more than
    a changed number."""
    try:
        return _audit(run)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise JobError(f"{run.path}: a file of the run is not as runs write it ({fault!r}); put it back") from None


def _audit(run: Opened) -> Audit:
    outcome = Audit()
    for name, path in ledgers(run).items():
        if name not in run.names:  # of a rank
            list(sent(path))
            outcome.notes += [f"{name}: {note}"] if (note := torn(path)) else []
    for party in (*range(len(run.names)), *([SERVER] if run.by_client else [])):
        with_budget = run.privacy is not None and run.by_client == (party == SERVER)
        outcome.parties.append(_party(outcome, run, party, with_budget=with_budget))
    if run.summary is not None:
        wrong = ({*run.names} ^ {*run.summary["wire"]}) | ({*run.summary["privacy"]} - {*run.names})
        outcome.differences += [f"summary.json: its clients are not those of the run: {name!r}" for name in sorted(wrong)]
    else:
        outcome.notes.append(f"{run.path}: no summary.json: the run has not ended, or the server's folder is not here")
    if run.summary is not None:
        outcome.compare("claim of summary.json", run.summary["claim"], claim_of(run.summary["privacy"]))
    if run.privacy is None:
        outcome.notes.append("the job has no [privacy]: nothing is claimed, and only its ledgers are compared")
    return outcome


def _party(outcome: Audit, run: Opened, party: int, *, with_budget: bool) -> Party:
    name, record = run.who(party), run.records.get(party)
    out = Party(name)
    stamps = list(_stamps(outcome, run, party))
    ended = {} if record is None else {log: _mark(end) for log, end in record["run"].get("end", {}).items()}
    if record is None:
        outcome.notes.append(f"{name}: its own folder is not here, or cannot be read; what others keep of it is compared")
    elif record["run"]["id"] != run.files.run.hex():
        outcome.differences.append(f"{name}: its job.json is of another run than the folder; put it back as the run left it")
    elif party != SERVER:
        _same_job(outcome, run, party)
        if not ended:
            outcome.notes.append(f"{name}: its part of the run has not ended; what it sent last is not sealed")
    # The ledger is read first: certificates are compared with its number of paid steps.
    if party != SERVER:
        _ledger(outcome, run, party, out, stamps, ended)
    if with_budget:
        budget = None
        try:
            budget = run.budget(party)
            if budget is not None:
                budget.require([stamp.budget for stamp in stamps] + ([ended["budget"]] if "budget" in ended else []))
                if budget.adopted:
                    outcome.adopted.append(f"the first {budget.adopted - 1} lines of {budget.path}")
        except (JobError, ValueError) as fault:
            outcome.differences.append(f"{name}: {fault}")
        else:
            _certificates(outcome, run, party, out, budget)
    return out


def _stamps(outcome: Audit, run: Opened, party: int) -> Iterator[Stamp]:
    """Yields the stamps of the checkpoints and stored answers that a party still has; each must be this run's."""
    home = run.files.home(party)
    try:
        left = [*run.files.stamps(party), *(outbox.stamps(home / "outbox") if party != SERVER else ())]
    except OSError:
        return
    for path, stamp in left:
        try:
            run.files.check(path, party, stamp)
            yield stamp
        except JobError as fault:
            outcome.differences.append(f"{run.who(party)}: {fault}")
            return


def _same_job(outcome: Audit, run: Opened, party: int) -> None:
    """Checks that all job.json of a run hold one job."""
    record = {key: value for key, value in run.records[party].items() if key != "run"}
    other = next(iter(run.records.values()))
    for section, tables in other.items():
        if section != "run":
            outcome.compare(f"{run.who(party)}: [{section}] of its job.json", record.get(section), tables)


def _ledger(outcome: Audit, run: Opened, party: int, out: Party, stamps: list[Stamp], ended: dict[str, Mark]) -> None:
    """Checks a client's ledger against the marks of it in other files."""
    path, name = run.files.ledger(party), run.who(party)
    present = bool(ledgers_of.parts(path))
    if not present and (stamps or ended):
        outcome.differences.append(f"{name}: {path} is gone; put it back as the run left it")
    if not present:
        return
    try:
        if note := ledgers_of.check(path, stamps):
            outcome.notes.append(f"{name}: {note}")
        # A log that was sealed at its end may have no line after that.
        for log, mark in ended.items():
            if log == "budget":
                continue
            log_path = path if log == "ledger" else path.with_name(f"{log}.jsonl")
            ledgers_of.check(log_path, [Stamp(ledger=mark, synced=mark)])
            if ledgers_of.size(log_path) > mark.length:
                raise JobError(f"{log_path}: has lines that were added after the run had ended; put it back as the run left it")
        lines = list(sent(path))
        outcome.notes += [f"{name}: {note}"] if (note := torn(path)) else []
    except JobError as fault:
        outcome.differences.append(f"{name}: {fault}")
        return
    before = run.records[party]["run"].get("ledger", 0) if party in run.records else 0  # bytes that an earlier start has left
    out.messages, out.bytes = len(lines), sum(line.bytes for line in lines)
    out.charged = ledgers_of.charged(path, before)
    # The server counts once what arrived; a resumed run may have sent more, and never less.
    wire = (run.summary or {}).get("wire", {}).get(name, {}).get("to_server")
    if wire is None or before or (out.messages, out.bytes) == (wire["messages"], wire["bytes"]):
        return
    text = f"{name}: its ledger has {out.messages} messages of {out.bytes} bytes, and the server got "
    text += f"{wire['messages']} of {wire['bytes']}"
    if out.messages > wire["messages"] and out.bytes > wire["bytes"]:
        outcome.notes.append(f"{text} (a resumed run sends some again)")
    else:
        outcome.differences.append(text)


def _certificates(outcome: Audit, run: Opened, party: int, out: Party, budget: Ledger | None) -> None:
    """Checks a party's certificates against its budget, its ledger and each other."""
    name = run.who(party)
    certificates = _found(run, party)
    if run.summary is not None and "certificate.json" in certificates and "summary.json" not in certificates:
        outcome.differences.append(f"{name}: summary.json has no certificate of it, and its own folder has one")
    if (
        "certificate.json" not in certificates
        and "summary.json" in certificates
        and party != SERVER
        and run.ended(party, "ledger")
    ):
        outcome.differences.append(f"{name}: certificate.json is gone from its own folder; put it back as the run left it")
    # A certificate that is not well formed cannot be compared any further.
    for file, content_of in certificates.items():
        if fault := find_problem(content_of):
            outcome.differences.append(f"{name}: {file}{fault}")
            return
    certificates = {file: _completed(content_of) for file, content_of in certificates.items()}
    first = next(iter(certificates), "")
    content = certificates.get(first)
    for file, other in certificates.items():
        for key in dict.fromkeys([*certificates[first], *other]):
            outcome.compare(f"{name}: {key} of {file}, which {first} has too", other.get(key), certificates[first].get(key))
    if content is not None:
        out.claimed = _real(content["epsilon"])
    elif run.summary is not None:
        outcome.notes.append(f"{name}: has no certificate")
    if budget is None:
        if content is not None:
            outcome.notes.append(f"{name}: its budget is not here; its certificate is judged by its own numbers")
            outcome.alone.append(name)
            _alone(outcome, run, party, out, content)
        return
    # More paid steps than charges are a fault; fewer may be a crash, which costs its charge.
    parts = budget.of_job(run.job(party))
    out.steps = sum(steps for _, steps in parts)
    by_messages = party != SERVER and not run.account(party).get("table")  # a table is charged when it is drawn
    if out.charged is not None and by_messages and out.charged != out.steps:
        text = f"its messages took {out.charged} steps by its ledger, and its budget was charged {out.steps}"
        more = out.charged > out.steps
        (outcome.differences if more else outcome.notes).append(
            f"{name}: {text}" + ("" if more else " (a crash costs its charge)")
        )
    assert run.privacy is not None
    # The second accountant judges by the budget, whatever the certificate says.
    out.low, out.high = epsilon_bounds(parts, run.privacy.cap(name)[1])
    for file, other in certificates.items():
        _again(outcome, run, party, f"{name}: {file}", other, parts, out)


def _found(run: Opened, party: int) -> dict[str, dict[str, Any]]:
    """Returns a party's certificates, each by its place; the federation's certificate stands at each client's name."""
    published = (run.summary or {}).get("privacy", {})
    if party == SERVER:
        return {f"summary.json ({client})": content for client, content in published.items()}
    contents = {
        "certificate.json": read(run.files.home(party) / "certificate.json"),
        "summary.json": published.get(run.who(party)),
    }
    return {file: content for file, content in contents.items() if content is not None}


def _again(outcome: Audit, run: Opened, party: int, what: str, content: dict[str, Any], parts: Parts, out: Party) -> None:
    """Computes one certificate again by both accountants."""
    privacy = run.privacy
    assert privacy is not None
    cap, delta = privacy.cap(run.who(party))
    (mechanism, steps), *before = parts
    made = certificate(
        mechanism,
        steps=steps,
        before=tuple(before),
        epsilon_cap=cap,
        delta=delta,
        policy=bool(account["policies"]) if (account := run.account(party)) else content["caps"] not in ALONE.values(),
        rows_per_person=privacy.rows_per_person,
    )
    wanted: dict[str, object] = plain(made | run.of_posterior(int(made["steps"])))
    by, ours = (str(record["accountant"]).rpartition(" ") for record in (content, wanted))
    elsewhere = by[0] == ours[0] and by[2] != ours[2]  # by another version of dp-accounting
    if elsewhere:
        outcome.notes.append(f"{what}: was made by dp-accounting {by[2]}, and {ours[2]} is here: compared to nine digits")
        wanted["accountant"] = content["accountant"]
    for key in dict.fromkeys([*wanted, *content]):
        here, wanted_value = content.get(key), wanted.get(key)
        close = isinstance(here, float) and isinstance(wanted_value, float) and math.isclose(here, wanted_value, rel_tol=BITS)
        if not (close and elsewhere):
            why = " (only its last digits: edited, or computed on another processor)" if close else ""
            outcome.compare(f"{what}: {key}{why}", here, wanted_value)
    _bounded(outcome, what, _real(content["epsilon"]), parts, out)


def _bounded(outcome: Audit, what: str, claimed: float, parts: Parts, out: Party) -> None:
    """Checks whether the second accountant lets a claim stand."""
    if out.low is None or out.high is None or claimed == math.inf:
        return
    if claimed < out.low * (1 - BITS):
        outcome.differences.append(f"{what}: claims epsilon = {claimed:.6g}, and what was done spends at least {out.low:.6g}")
    tight = all(m.sampling in EXACT and m.accountant == "pld" for m, _ in parts)
    if tight and claimed > max(out.high * SLACK, out.high + 1e-3):
        outcome.differences.append(f"{what}: claims epsilon = {claimed:.6g}, and what was done spends at most {out.high:.6g}")


def _alone(outcome: Audit, run: Opened, party: int, out: Party, content: dict[str, Any]) -> None:
    """Checks a certificate whose budget is elsewhere: by the second accountant, where its own numbers suffice."""
    if out.charged is not None and out.charged > content["steps"]:
        text = f"its messages took {out.charged} steps by its ledger, and its certificate has {content['steps']}"
        outcome.differences.append(f"{run.who(party)}: {text}")
    # Only an exact mechanism without earlier steps can be recomputed from the certificate's own numbers.
    if content["sampling"] not in EXACT or content["mechanisms"] > 1:
        return
    privacy = run.privacy
    assert privacy is not None
    cap, delta = privacy.cap(out.name)
    of_job = {"epsilon_cap": cap, "delta": delta, "rows_per_person": privacy.rows_per_person} | privacy.promised(out.name)
    for key, value in plain(of_job).items():
        outcome.compare(f"{out.name}: {key} of its certificate, by job.json", content[key], value)
    if content["noise_source"] == "secure":
        claim = describe_claim(_real(content["epsilon"]), content["delta"], content["neighbours"], 1)
        outcome.compare(f"{out.name}: claim of its certificate, by its numbers", content["claim"], claim)
    mechanism = Mechanism(
        sampling=content["sampling"],
        clip=content["clip"],
        dimension=0,
        noise_multiplier=content["noise_multiplier"],
        sampling_rate=content["sampling_rate"] if content["sampling"] == "poisson" else None,
        dataset_size=content.get("rows") if content["sampling"] == "aligned" else None,
        unit=content["unit"],
        accountant=content["accountant"].partition(",")[0],
    )
    parts = ((mechanism, content["steps"]),)
    out.low, out.high = epsilon_bounds(parts, content["delta"])
    _bounded(outcome, run.who(party), _real(content["epsilon"]), parts, out)


def _completed(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a certificate with the numbers of mechanisms and of rows, which earlier ones have in sentences alone."""
    if "mechanisms" in content:
        return content
    several, rows = re.search(r"composition of (\d+)", content["claim"]), re.search(r"\d+", content.get("public", ""))
    return {**content, "mechanisms": int(several[1]) if several else 1, **({"rows": int(rows[0])} if rows else {})}


def _mark(end: Sequence[Any]) -> Mark:
    """Returns a mark from its form in job.json."""
    return Mark(int(end[0]), bytes.fromhex(end[1]))


def _real(value: str | float) -> float:
    """Returns a number of a certificate, whose infinite numbers are texts."""
    return float(value)


def _shown(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 80 else text[:76] + " ..."
