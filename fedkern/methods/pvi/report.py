"""One HTML page about a run: everything inside, nothing fetched from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...results import plots
from ...results.gaussian import comparable
from ...results.page import escape, figure, number, table
from ...results.plain import real
from ..sigma import report as report_sigma
from ..sparse import report as report_sparse
from ..vertical import report as report_vertical

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
class Run:
    """What is known of a run, finished or not.

    Attributes
    ----------
    name : of its folder
    summary : summary.json; empty if the run did not finish
    job : the job's tables
    lines : of metrics.jsonl
    ledgers : client -> lines of its ledger, where they lie in this folder
    areas : client -> rows of its areas.csv, where they lie in this folder
    notes : on what could not be read
    """

    name: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[Mapping[str, Any]] = ()
    ledgers: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    areas: report_sigma.Areas = field(default_factory=dict)
    notes: Sequence[str] = ()


def page(run: Run) -> str:
    """The whole page as text."""
    sections = [*_found(run), _privacy(run), _wire(run), _ledger(run), _record(run)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(run.name)}</title><style>{STYLE}</style></head><body><main>\n"
        + _head(run)
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def _found(run: Run) -> list[str]:
    """What this method found."""
    if "sampler" in run.summary:
        return report_sparse.sections(run.summary)
    if "sigma" in run.summary:
        return report_sigma.sections(run.summary, run.lines, run.areas)
    if "inference" in run.summary:
        return report_vertical.sections(run.summary, run.lines)
    return [_learning(run), _coefficients(run)]


def _head(run: Run) -> str:
    word, mood = STOPS.get(run.summary.get("stop"), (str(run.summary.get("stop")), "bad"))
    algorithm, model = run.job.get("algorithm", {}), run.job.get("model", {})
    what = [algorithm.get("variant"), model.get("kind"), model.get("family"), model.get("covariance"), algorithm.get("schedule")]
    last = run.lines[-1] if run.lines else {}
    metrics = run.summary.get("metrics") or last.get("metrics") or {}
    tiles = [(plots.WORDS.get(name, name), number(value)) for name, value in metrics.items()]
    if "sampler" in run.summary:
        tiles = report_sparse.tiles(run.summary)
    elif "sigma" in run.summary:
        tiles = report_sigma.tiles(run.summary)
    elif "inference" in run.summary:
        tiles = report_vertical.tiles(run.summary)
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
        f"<header><h1>{escape(run.name)} <i class={mood}>{escape(word)}</i></h1>{_verdict(run.summary)}"
        f"<p class=muted>{escape(' · '.join(str(w) for w in what if w))}</p><div class=tiles>{boxes}</div></header>"
    )


def _verdict(summary: Mapping[str, Any]) -> str:
    """Whether the result has converged: what is read first."""
    text = summary.get("verdict")
    return f"<p{' class=note' if summary['converged'] is False else ''}><b>{escape(text)}</b></p>" if text else ""


def _learning(run: Run) -> str:
    return figure("Learning curves", plots.learning_curves(run.lines), "Measured by the server on its own test rows.")


def _coefficients(run: Run) -> str:
    parameters = run.summary.get("parameters", {})
    if not parameters:
        return ""
    n = len(comparable(parameters))
    note = f"The {plots.MOST_ROWS} of {n} with the largest absolute means. " if n > plots.MOST_ROWS else ""
    rows = [[name, *(number(v[k]) for k in ("mean", "sd", "q05", "q95"))] for name, v in parameters.items()]
    numbers = table(["name", "mean", "sd", "5 %", "95 %"], rows)
    text = f"{note}Grey intervals hold zero."
    more = f"<details><summary>All numbers</summary>{numbers}</details>"
    return figure("Coefficients", plots.forest(comparable(parameters)), text, more)


def _privacy(run: Run) -> str:
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
    return f"<section><h2>Privacy</h2><p>{claim}.</p>{trust}{table(head, rows)}<p class=note>{HONEST}</p></section>"


def _protected(certificates: Mapping[str, Mapping[str, Any]]) -> str:
    """Whom or what the claim is about: clients, values in columns, or rows."""
    if any(c.get("unit") == "client" for c in certificates.values()):
        return "Each client, with all its rows, is"
    if any(c.get("sampling") == "aligned" for c in certificates.values()):
        return "The values of each row in every client's own columns are"
    return "Each client's rows are"


def _cell(key: str, certificate: Mapping[str, Any]) -> str:
    value = certificate.get(key, "")
    return number(real(value)) if key in ("epsilon", "epsilon_cap", "delta") else number(value)


def _wire(run: Run) -> str:
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


def _ledger(run: Run) -> str:
    if not run.ledgers:
        return ""
    rows = []
    for client, lines in run.ledgers.items():
        kinds: dict[str, list[Mapping[str, Any]]] = {}
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


def _record(run: Run) -> str:
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


STYLE = """
:root{color-scheme:light;--ink:#1f2933;--muted:#6b7785;--line:#e4e7eb;--blue:#2364aa}
body{margin:0;background:#f5f6f8;color:var(--ink);font:15px/1.55 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:880px;margin:0 auto;padding:2.2rem 1.2rem 4rem}
h1{font-size:1.65rem;margin:0;letter-spacing:-.01em}h2{font-size:1.05rem;margin:0 0 .7rem}
h1 i{font:600 .8rem/1 system-ui,sans-serif;vertical-align:middle;padding:.32em .7em;border-radius:2em;letter-spacing:0}
.good{background:#dff3e4;color:#1c6b36}.bad{background:#fbe3dd;color:#9a3412}
section{background:#fff;border:1px solid var(--line);border-radius:10px;padding:1.2rem 1.4rem;margin-top:1.1rem}
p{margin:.4rem 0}.muted{color:var(--muted);font-size:.9rem}
.note{border-left:3px solid var(--blue);background:#f2f6fb;padding:.55rem .9rem;margin-top:.9rem;font-size:.93rem}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin-top:1rem}
.tile{background:#fff;border:1px solid var(--line);border-radius:10px;padding:.65rem 1rem;min-width:7.2rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}.tile span{color:var(--muted);font-size:.82rem}
.figure svg{width:100%;height:auto;display:block}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--muted);text-align:left;white-space:nowrap}
th,td{padding:.36rem .9rem .36rem 0;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}
details{margin-top:.8rem}summary{cursor:pointer;color:var(--blue)}pre{overflow-x:auto;font-size:.8rem}
code{font-size:.8rem;word-break:break-all}
@media print{body{background:#fff}section{break-inside:avoid;border:0;padding:0}}
"""
