"""Makes one HTML page about a run of any method, with everything inside and nothing fetched from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..privacy.certificate import OF_CLIENTS, OF_COUNTS, WITH_NOISE
from . import guard, plots, shown
from .gaussian import comparable
from .page import details, document, figure, markup, number, numbers_of, paragraph, piece, section, table
from .plain import Record, real
from .verdict import ending

Tile = tuple[str, str]  # words, and the number above them
Areas = Mapping[str, Sequence[Mapping[str, str]]]  # client -> rows of its areas.csv
Shapes = Mapping[str, Mapping[str, Sequence[plots.Part]]]  # client -> area -> its parts, as in areas.geojson

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
HEADS = {"q025": "2.5 %", "q05": "5 %", "q95": "95 %", "q975": "97.5 %"}
HONEST = (
    "The posterior describes what the rows say about the coefficients, as the noisy optimisation found it. It does <b>not</b> "
    "contain the privacy noise itself: its means may be off by more than its standard deviations tell."
)
UNCLAIMED = (
    "This run makes no privacy claim. It is federated: rows stayed with their holders, but what was sent has no noise in it, and "
    "can tell the rows of a client that has few, and the counts of a map."
)


@dataclass(frozen=True)
class RunFiles:
    """Holds the files of a run, finished or not."""

    name: str  # of its folder
    summary: Record = field(default_factory=dict)  # summary.json; empty if the run did not finish
    job: Record = field(default_factory=dict)  # the job's tables
    lines: Sequence[Record] = ()  # of metrics.jsonl
    # client -> lines of its ledger, where they lie in this folder
    ledgers: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    areas: Areas = field(default_factory=dict)  # client -> rows of its areas.csv, where they lie in this folder
    shapes: Shapes = field(default_factory=dict)  # client -> area -> its borders, of clients with an areas.geojson
    fits: Mapping[str, Record] = field(default_factory=dict)  # client -> its fit.json, where it lies in this folder
    own: str = ""  # the client whose folder this is; "" for a run's folder
    said: Record = field(default_factory=dict)  # the server's verdict, in a client's folder; empty where the client was not told
    day: str = ""  # when the result was written, as 2026-01-31
    # returns the rows of the result's table, of ratios for True; empty where the result has no table
    rows: Callable[[bool], Sequence[Record]] = lambda ratios: ()
    notes: Sequence[str] = ()  # on files that could not be read
    # summary.json of the same model on the pooled rows, without privacy; empty where the folder has none
    pooled: Record = field(default_factory=dict)


class Report(Protocol):
    """Is implemented by a method's `report`: its part of the page of a finished run."""

    def tiles(self, run: RunFiles) -> list[Tile]:
        """Returns the numbers at the top of the page."""

    def sections(self, run: RunFiles) -> list[str]:
        """Returns the sections about the result."""


def page(run: RunFiles, method: Report | None = None) -> str:
    """Returns the whole page as text; for a run that did not finish it shows the server's measurements on the way."""
    with guard.collecting() as faults:
        tiles = measured(run) if method is None else method.tiles(run)
        sections = [learning(run)] if method is None else _sections(run, method)
        more = [_record(run)] if run.own else [_columns(run), _privacy(run), _wire(run), _ledger(run), _record(run)]
        head = _head(run, tiles)
    failed = [f"failed, and left out of this page: {', '.join(faults.names())}"] if faults.found else []
    return document(run.own or run.name, [*sections, *more], **{**head, "notes": [*failed, *head["notes"]]})


@guard.figure("the page's sections", [])
def _sections(run: RunFiles, method: Report) -> list[str]:
    """Returns a method's own sections."""
    return method.sections(run)


@guard.figure("the columns by client", "")
def _columns(run: RunFiles) -> str:
    """Returns each client's numeric columns; the flagged ones first."""
    rows = sorted(run.summary.get("columns", ()), key=lambda row: not row["flag"])
    head = ["column", "client", "rows", "mean", "sd", "flag"]
    cells = []
    for row in rows:
        numbers_of_it = ["" if row[key] is None else number(row[key]) for key in head[2:5]]
        cells.append([str(row["column"]), str(row["client"]), *numbers_of_it, str(row["flag"])])
    text = "A flag is the id of a finding, which the notes above say in words."
    return section("Columns by client", paragraph(text), details("All columns", table(head, cells))) if cells else ""


@guard.figure("the page's tiles", [])
def measured(run: RunFiles) -> list[Tile]:
    """Returns the last metrics on the test rows as tiles."""
    last = run.lines[-1] if run.lines else {}
    metrics = run.summary.get("metrics") or last.get("metrics") or {}
    return [(plots.WORDS.get(name, name), number(value)) for name, value in metrics.items()]


@guard.figure("the learning curves", "")
def learning(run: RunFiles) -> str:
    """Draws the metrics over the rounds."""
    return figure("Learning curves", plots.learning_curves(run.lines), "Measured by the server on its own test rows.")


@guard.figure("tables of all numbers", [])
def numbers(run: RunFiles) -> list[str]:
    """Returns tables that unfold: all parameters with intervals and contrasts between levels, and odds or rate ratios."""
    parts = []
    for ratios, title in ((False, "All numbers"), (True, "Ratios")):
        if rows := run.rows(ratios):
            keys = [key for key in rows[0] if key != "site"]
            cells = [[str(row["parameter"]), *_cells(run, row, keys[1:])] for row in rows if not row["site"]]
            parts.append(details(title, table([HEADS.get(key, key.replace("_", " ")) for key in keys], cells)))
    return parts


def _cells(run: RunFiles, row: Mapping[str, object], keys: Sequence[str]) -> list[str]:
    """Returns the numbers of a row as texts."""
    return [shown.NOT_ESTIMATED] if shown.not_estimated(run.summary, row) else numbers_of(row, keys)


@guard.figure("the page's section coefficients", "")
def coefficients(run: RunFiles, title: str = "Coefficients", begin: tuple[str, ...] = ("",)) -> str:
    """Draws the coefficients, whose names begin so, with a table of all numbers."""
    parameters = run.summary.get("parameters", {})
    compared = shown.beside_each_other(run.summary) if parameters else {}
    if "not_estimated" in run.summary:
        compared = {name: row for name, row in compared.items() if not math.isnan(real(row["mean"]))}
    if not (drawn := {name: row for name, row in compared.items() if name.startswith(begin)}):
        return ""
    n = len(drawn)
    note = f"The {plots.MOST_ROWS} of {n} with the largest absolute means. " if n > plots.MOST_ROWS else ""
    tables = numbers(run)
    if not tables:  # without a posterior.nc
        rows = [[name, *numbers_of(row, ("mean", "sd", "q05", "q95"))] for name, row in parameters.items()]
        tables = [details("All numbers", table(["name", "mean", "sd", "5 %", "95 %"], rows))]
    pooled = shown.beside_each_other(run.pooled) if run.pooled else {}
    orange = f" Orange: all rows pooled, without privacy. {cost_of_privacy(run.summary, run.pooled)}" if pooled else ""
    return figure(title, plots.forest(drawn, pooled), f"{note}Grey intervals hold zero.{orange}", *tables)


@guard.figure("the page's section guessing", "")
def guessing(run: RunFiles) -> str:
    """Compares the test rows' score with that of guessing."""
    metrics, guess = run.summary.get("metrics", {}), run.summary.get("test", {}).get("guess")
    worse = against_guessing(metrics["log_likelihood"], guess) if "log_likelihood" in metrics else ""
    return section("Test rows", paragraph(worse, "note")) if worse else ""


@guard.figure("the page's section calibration", "")
def calibration(run: RunFiles) -> str:
    """Draws predicted probabilities of test rows against frequencies."""
    bins = run.summary.get("test", {}).get("reliability", [])
    rows = sum(b["rows"] for b in bins)
    text = f"{rows:,} test rows in tenths of the predicted probability. On the line prediction and frequency agree."
    return figure("Calibration", plots.reliability(bins), text)


def against_guessing(log_likelihood: float, guess: float | None) -> str:
    """Returns a sentence where test rows are predicted worse than by their average; else ""."""
    if guess is None or not log_likelihood < guess:
        return ""
    return f"Worse than guessing: always to say the test rows' own mean has a log-likelihood of {number(guess)} a row."


def cost_of_privacy(private: Record, pooled: Record) -> str:
    """Returns a sentence on how much wider the intervals of two summary.json are in the first, by comparable coefficients."""
    of_private, other = (comparable(summary["parameters"]) for summary in (private, pooled))
    ratios = [values["sd"] / other[name]["sd"] for name, values in of_private.items()]
    return f"What privacy cost: intervals {number(min(ratios), 2)} to {number(max(ratios), 2)} times as wide as without it."


def _head(run: RunFiles, tiles: Sequence[Tile]) -> Record:
    """Returns the head of the page: title words, verdict, labels, tiles and notes."""
    summary = run.summary
    last = run.lines[-1] if run.lines else {}
    ended = ending(summary.get("stop"))
    verdict, word, mood = summary, ended.label, ended.mood
    if run.own:
        verdict, word, mood = run.said, "a client's own areas", "good"
    algorithm, model = run.job.get("algorithm", {}), run.job.get("model", {})
    kinds = ("kind", "covariance") if model.get("kind") == "own" else ("kind", "family", "covariance")
    labels = [algorithm.get("variant"), *(model.get(key) for key in kinds), algorithm.get("schedule")]
    certificates = summary.get("privacy", {}).values()
    by_client = any(c.get("unit") == "client" for c in certificates)
    tiles = [*tiles]
    if certificates:
        worst = max(real(c["epsilon"]) for c in certificates)
        label = "ε of every client" if by_client else "Largest ε of a client"
        tiles.append((label, number(worst)))
    if clients := summary.get("clients"):
        tiles.append(("Clients", str(len(clients))))
    if (rounds := summary.get("rounds", last.get("round"))) is not None:
        tiles.append(("Rounds", number(rounds)))
    if sent := sum(way["to_server"]["bytes"] for way in summary.get("wire", {}).values()):
        tiles.append(("Sent by clients", _bytes(sent)))
    notes, more = shown.first_notes(summary)
    if more:
        notes = [*notes, f"{more} more notes: under Record"]
    return {
        "word": word,
        "mood": mood,
        "verdict": verdict.get("verdict"),
        "doubt": verdict.get("converged") is False,
        "labels": [word for word in labels if word],
        "tiles": tiles,
        "notes": notes,
    }


@guard.figure("the page's section on privacy", "")
def _privacy(run: RunFiles) -> str:
    """Makes the section on privacy: the claim, the certificates, and whether the posterior contains the noise."""
    certificates = run.summary.get("privacy", {})
    if not certificates:
        claimed = bool(run.job.get("privacy")) and not run.summary
        whose = "the server's" if (run.job.get("privacy") or {}).get("unit") == "client" else "each client's own"
        text = f"The run did not finish: {whose} ledger and budget say what was spent." if claimed else UNCLAIMED
        return section("Privacy", markup(f"<p>{text}</p>"))
    delta = max(real(c["delta"]) for c in certificates.values())
    worst = max(real(c["epsilon"]) for c in certificates.values())
    claim = f"{_protected(certificates)} protected by (ε, δ)-differential privacy with ε ≤ {number(worst)}, δ ≤ {number(delta)}"
    if math.isinf(worst):
        claim = "The noise of this run was keyed, hence predictable: it protects nobody, and ε is infinite"
    trusted = dict.fromkeys(str(c["trust"]) for c in certificates.values() if "trust" in c)
    texts = {c.get("posterior") for c in certificates.values()}
    contained = next((text for text in (WITH_NOISE, OF_COUNTS, OF_CLIENTS) if texts == {text}), None)
    claim_of_noise = markup(HONEST) if contained is None else f"{contained}."
    note = paragraph(claim_of_noise, "note")
    claims = [markup(f"<p>{claim}.</p>"), *(f"The claim trusts {text}." for text in trusted)]
    return section("Privacy", *claims, *_certificates(certificates), note)


def _certificates(certificates: Mapping[str, Record]) -> list[str]:
    """Makes two tables: of entries that all certificates share, and of the others, with clients that are alike in one row."""
    keys = [key for key in CERTIFICATE if any(key in c for c in certificates.values())]
    differ = [key for key in keys if len({_cell(key, c) for c in certificates.values()}) > 1]
    first = next(iter(certificates.values()))
    common = [[CERTIFICATE[key], _cell(key, first)] for key in keys if key not in differ]
    if not differ:
        return [table(["clients", ", ".join(certificates)], common)]
    rows = joined([client, *(_cell(key, c) for key in differ)] for client, c in certificates.items())
    differing = table(["client", *(CERTIFICATE[key] for key in differ)], rows)
    return [differing, table(["every client", ""], common)] if common else [differing]


def joined(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Joins rows that are equal but for the name in front."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        alike.setdefault(tuple(rest), []).append(name)
    return [[", ".join(names), *rest] for rest, names in alike.items()]


def _protected(certificates: Mapping[str, Record]) -> str:
    """Names whom or what the claim protects: clients, values in columns, or rows."""
    if any(c.get("unit") == "client" for c in certificates.values()):
        return "Each client, with all its rows, is"
    if any(c.get("sampling") == "aligned" for c in certificates.values()):
        return "The values of each row in every client's own columns are"
    if any(c.get("unit") == "case" for c in certificates.values()):
        return "Each case in a client's counts is"
    return "Each client's rows are"


def _cell(key: str, certificate: Record) -> str:
    """Formats an entry of a certificate."""
    value = certificate.get(key, "")
    return number(real(value)) if key in ("epsilon", "epsilon_cap", "delta") else number(value)


@guard.figure("the page's section on the wire", "")
def _wire(run: RunFiles) -> str:
    """Makes the table of messages and bytes for each client."""
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
    return section("On the wire", table(head, joined(rows)))


@guard.figure("the page's section of ledgers", "")
def _ledger(run: RunFiles) -> str:
    """Makes the table of the ledgers: each kind of message, its fields, and how often it was sent."""
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
    return section("Ledger", text, table(["client", "message", "times", "fields", "bytes"], joined(rows)))


def _shape(shape: object) -> str:
    """Formats the shape of a field."""
    return f"({', '.join(map(str, shape))})" if isinstance(shape, list | tuple) and shape else ""


@guard.figure("the page's record", "")
def _record(run: RunFiles) -> str:
    """Makes the section with notes that are not at the head, digest, versions and the job."""
    summary, parts = run.summary, []
    if notes := [str(note) for note in [*run.notes, *shown.notes(summary)[shown.NOTES :]]]:
        parts.append(piece("bullets", notes))
    if summary.get("digest"):
        parts.append(piece("code", "Digest", str(summary["digest"])))
    if versions := summary.get("versions"):
        parts.append(paragraph(" · ".join(f"{k} {v}" for k, v in versions.items())))
    if run.job:
        parts.append(details("The job", piece("source", json.dumps(run.job, indent=2))))
    return section("Record", *parts)


def _bytes(n: int) -> str:
    """Formats a number of bytes."""
    size, unit = float(n), "B"
    for bigger in ("kB", "MB", "GB"):
        if size >= 1000:
            size, unit = size / 1000, bigger
    return f"{n} B" if unit == "B" else f"{size:.3g} {unit}"
