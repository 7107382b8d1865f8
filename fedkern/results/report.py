"""One HTML page about a run of any method: everything inside, nothing fetched from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..privacy.certificate import WITH_NOISE
from . import plots
from .page import document, escape, figure, number, table
from .plain import Record, real

Tile = tuple[str, str]  # words, and the number above them
Areas = Mapping[str, Sequence[Mapping[str, str]]]  # client -> rows of its areas.csv
Shapes = Mapping[str, Mapping[str, Sequence[plots.Part]]]  # client -> area -> its parts, as in areas.geojson

STOPS = {
    "rounds": ("finished", "good"),
    "updates": ("finished", "good"),
    "converged": ("converged", "good"),
    "budget": ("privacy budget spent", "good"),
    "lost": ("clients lost", "bad"),
    None: ("interrupted", "bad"),
}
# The columns of the certificate table, where a certificate has them.
CERTIFICATE = {
    "epsilon": "ε spent",
    "epsilon_cap": "ε cap",
    "delta": "δ",
    "neighbours": "neighbours",
    "sampling": "sampling",
    "noise_multiplier": "noise / clip",
    "clip": "clip",
    "steps": "noisy steps",
    "noise_source": "noise",
    "accountant": "accountant",
}
HONEST = (
    "The posterior q describes what the rows say about the coefficients, as the noisy optimisation found it. It does <b>not</b> "
    "contain the privacy noise itself: its means may be off by more than its standard deviations tell."
)
UNCLAIMED = (
    "This run makes no privacy claim. It is federated: rows stayed with their holders, but what was sent has no noise in it."
)


@dataclass(frozen=True)
class RunFiles:
    """What is known of a run, finished or not.

    Attributes
    ----------
    name : of its folder
    summary : summary.json; empty if the run did not finish
    job : the job's tables
    lines : of metrics.jsonl
    ledgers : client -> lines of its ledger, where they lie in this folder
    areas : client -> rows of its areas.csv, where they lie in this folder
    shapes : client -> area -> its borders, where there is an areas.geojson
    fits : client -> its fit.json, where it lies in this folder
    own : the client whose own folder this is; "": it is a run's
    notes : on what could not be read
    """

    name: str
    summary: Record = field(default_factory=dict)
    job: Record = field(default_factory=dict)
    lines: Sequence[Record] = ()
    ledgers: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    areas: Areas = field(default_factory=dict)
    shapes: Shapes = field(default_factory=dict)
    fits: Mapping[str, Record] = field(default_factory=dict)
    own: str = ""
    notes: Sequence[str] = ()


class Report(Protocol):
    """What a method says of a finished run."""

    def tiles(self, run: RunFiles) -> list[Tile]:
        """At the top of the page."""

    def sections(self, run: RunFiles) -> list[str]:
        """What was found."""


def page(run: RunFiles, method: Report | None = None) -> str:
    """The whole page as text. A run that did not finish has what the server measured on the way."""
    tiles = measured(run) if method is None else method.tiles(run)
    sections = [learning(run)] if method is None else method.sections(run)
    if run.own:
        return document(run.own, _head(run, tiles), [*sections, _record(run)])
    return document(run.name, _head(run, tiles), [*sections, _privacy(run), _wire(run), _ledger(run), _record(run)])


def measured(run: RunFiles) -> list[Tile]:
    """The last metrics on the test rows."""
    last = run.lines[-1] if run.lines else {}
    metrics = run.summary.get("metrics") or last.get("metrics") or {}
    return [(plots.WORDS.get(name, name), number(value)) for name, value in metrics.items()]


def learning(run: RunFiles) -> str:
    """How they went."""
    return figure("Learning curves", plots.learning_curves(run.lines), "Measured by the server on its own test rows.")


def _head(run: RunFiles, tiles: Sequence[Tile]) -> str:
    word, mood = (
        ("a client's own areas", "good") if run.own else STOPS.get(run.summary.get("stop"), (str(run.summary.get("stop")), "bad"))
    )
    algorithm, model = run.job.get("algorithm", {}), run.job.get("model", {})
    kinds = [model.get(key) for key in ("kind", "family", "covariance")]
    labels = [algorithm.get("variant"), *kinds, algorithm.get("schedule")]
    last = run.lines[-1] if run.lines else {}
    tiles = [*tiles]
    spent = [real(c["epsilon"]) for c in run.summary.get("privacy", {}).values()]
    by_client = any(c.get("unit") == "client" for c in run.summary.get("privacy", {}).values())
    tiles += [("ε of every client" if by_client else "Largest ε of a client", number(max(spent)))] if spent else []
    clients = run.summary.get("clients", {})
    tiles += [("Clients", str(len(clients)))] if clients else []
    rounds = run.summary.get("rounds", last.get("round"))
    tiles += [("Rounds", number(rounds))] if rounds is not None else []
    sent = sum(way["to_server"]["bytes"] for way in run.summary.get("wire", {}).values())
    tiles += [("Sent by clients", _bytes(sent))] if sent else []
    boxes = "".join(f"<div class=tile><b>{escape(value)}</b><span>{escape(label)}</span></div>" for label, value in tiles)
    return (
        f"<header><h1>{escape(run.own or run.name)} <i class={mood}>{escape(word)}</i></h1>{_verdict(run.summary)}"
        f"<p class=muted>{escape(' · '.join(str(w) for w in labels if w))}</p><div class=tiles>{boxes}</div></header>"
    )


def _verdict(summary: Record) -> str:
    """Whether the result has converged: what is read first."""
    text = summary.get("verdict")
    return f"<p{' class=note' if summary['converged'] is False else ''}><b>{escape(text)}</b></p>" if text else ""


def _privacy(run: RunFiles) -> str:
    certificates = run.summary.get("privacy", {})
    if not certificates:
        claimed = bool(run.job.get("privacy")) and not run.summary
        whose = "the server's" if (run.job.get("privacy") or {}).get("unit") == "client" else "each client's own"
        text = f"The run did not finish: {whose} ledger and budget say what was spent." if claimed else UNCLAIMED
        return f"<section><h2>Privacy</h2><p>{text}</p></section>"
    keys = [key for key in CERTIFICATE if any(key in c for c in certificates.values())]
    rows = [[client, *(_cell(key, c) for key in keys)] for client, c in certificates.items()]
    head = ["client", *(CERTIFICATE[key] for key in keys)]
    delta = max(real(c["delta"]) for c in certificates.values())
    worst = max(real(c["epsilon"]) for c in certificates.values())
    claim = f"{_protected(certificates)} protected by (ε, δ)-differential privacy with ε ≤ {number(worst)}, δ ≤ {number(delta)}"
    if math.isinf(worst):
        claim = "The noise of this run was keyed, hence predictable: it protects nobody, and ε is infinite"
    trusted = dict.fromkeys(str(c["trust"]) for c in certificates.values() if "trust" in c)
    trust = "".join(f"<p>The claim trusts {escape(text)}.</p>" for text in trusted)
    note = _honest(certificates)
    return f"<section><h2>Privacy</h2><p>{claim}.</p>{trust}{table(head, rows)}<p class=note>{note}</p></section>"


def _honest(certificates: Mapping[str, Record]) -> str:
    """What the intervals contain."""
    return escape(f"{WITH_NOISE}.") if all(c.get("posterior") == WITH_NOISE for c in certificates.values()) else HONEST


def _protected(certificates: Mapping[str, Record]) -> str:
    """Whom or what the claim is about: clients, values in columns, or rows."""
    if any(c.get("unit") == "client" for c in certificates.values()):
        return "Each client, with all its rows, is"
    if any(c.get("sampling") == "aligned" for c in certificates.values()):
        return "The values of each row in every client's own columns are"
    return "Each client's rows are"


def _cell(key: str, certificate: Record) -> str:
    value = certificate.get(key, "")
    return number(real(value)) if key in ("epsilon", "epsilon_cap", "delta") else number(value)


def _wire(run: RunFiles) -> str:
    wire = run.summary.get("wire", {})
    if not wire:
        return ""
    rows = []
    for client, ways in wire.items():
        up, down = ways["to_server"], ways["to_client"]
        status = run.summary.get("clients", {}).get(client, {})
        rows.append(
            [client, *(str(status.get(k, "")) for k in ("updates", "status")), f"{up['messages']:,}", _bytes(up["bytes"])]
        )
        rows[-1] += [f"{down['messages']:,}", _bytes(down["bytes"])]
    head = ["client", "updates", "status", "messages sent", "bytes sent", "messages received", "bytes received"]
    return f"<section><h2>On the wire</h2>{table(head, rows)}</section>"


def _ledger(run: RunFiles) -> str:
    if not run.ledgers:
        return ""
    rows = []
    for client, lines in run.ledgers.items():
        kinds: dict[str, list[Record]] = {}
        for line in lines:
            kinds.setdefault(str(line.get("kind", "?")), []).append(line)
        for kind, those in kinds.items():
            shapes = those[0].get("shapes", {})
            fields = ", ".join(f"{name} {_shape(shapes.get(name))}".strip() for name in those[0].get("fields", {}))
            rows.append([client, kind, f"{len(those):,}", fields, _bytes(sum(int(line.get("bytes", 0)) for line in those))])
    text = "What left each client, from the ledgers that were written before it was sent."
    return f"<section><h2>Ledger</h2><p>{text}</p>{table(['client', 'message', 'times', 'fields', 'bytes'], rows)}</section>"


def _shape(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})" if isinstance(shape, list | tuple) and shape else ""


def _record(run: RunFiles) -> str:
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in [*run.notes, *run.summary.get("notes", [])])
    versions = " · ".join(f"{k} {v}" for k, v in run.summary.get("versions", {}).items())
    parts = [f"<ul>{notes}</ul>" if notes else ""]
    parts += [f"<p>Digest <code>{escape(str(run.summary['digest']))}</code></p>"] if run.summary.get("digest") else []
    parts += [f"<p class=muted>{escape(versions)}</p>"] if versions else []
    if run.job:
        parts.append(f"<details><summary>The job</summary><pre>{escape(json.dumps(run.job, indent=2))}</pre></details>")
    return f"<section><h2>Record</h2>{''.join(parts)}</section>"


def _bytes(n: int) -> str:
    size, unit = float(n), "B"
    for bigger in ("kB", "MB", "GB"):
        if size >= 1000:
            size, unit = size / 1000, bigger
    return f"{n} B" if unit == "B" else f"{size:.3g} {unit}"
