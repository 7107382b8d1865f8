"""The report: one page with everything inside, for finished, interrupted and empty runs."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fedkern.methods.pvi import report
from fedkern.results import plots
from fedkern.results.report import HONEST, RunFiles, page
from fedkern.results.summary import Wire

CLIENTS = ("clinic-a", "<b>clinic</b>")


def parameters(n: int, standardised: bool = True) -> dict[str, dict[str, float]]:
    out = {}
    for j in range(n):
        value = {"mean": 0.1 * j - 0.5, "sd": 0.2, "q05": 0.1 * j - 0.8, "q95": 0.1 * j - 0.2}
        out |= {f"theta[x{j}]": value} | ({f"theta_std[x{j}]": value} if standardised else {})
    return out


def finished(**changes: Any) -> RunFiles:
    wire = Wire(CLIENTS)
    for k in range(2):
        wire.add("to_server", k, 1200)
        wire.add("to_client", k, 2400)
    certificate = {"epsilon": 0.98, "epsilon_cap": 1.0, "delta": 1e-5, "neighbours": "add or remove one example", "steps": 500}
    summary = {
        "stop": "budget",
        "rounds": 20,
        "parameters": parameters(5),
        "metrics": {"accuracy": 0.91, "log_likelihood": -0.25},
        "privacy": dict.fromkeys(CLIENTS, certificate),
        "wire": wire.as_dict(),
        "clients": {name: {"updates": 20, "status": "budget spent"} for name in CLIENTS},
        "versions": {"fedkern": "0.1.0"},
        "digest": "ab" * 32,
        "notes": ["a note"],
    }
    lines = [{"round": r, "metrics": {"accuracy": 0.5 + 0.02 * r, "log_likelihood": -1 / (r + 1)}} for r in range(1, 21)]
    sent = {"kind": "SiteDelta", "fields": {"dh": "d", "round": "int"}, "shapes": {"dh": [5]}, "bytes": 120}
    ledger = [{"round": r, **sent} for r in range(20)]
    content = {"summary": summary, "job": {"algorithm": {"variant": "pvi"}, "privacy": {"unit": "example"}}, "lines": lines}
    return RunFiles("a run", **(content | {"ledgers": {CLIENTS[0]: ledger}} | changes))


class Structure(HTMLParser):
    """Addresses that a page would fetch, and whether its elements close."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attributes if k in ("src", "href", "xlink:href", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass


def read(text: str) -> Structure:
    structure = Structure()
    structure.feed(text)
    structure.close()
    return structure


def test_everything_is_inside_the_page() -> None:
    text = page(finished(), report)
    structure = read(text)
    assert structure.addresses, "the figures refer to their own marks"
    assert all(address.startswith("#") for address in structure.addresses)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", text)
    assert structure.open == []


def test_a_browser_is_told_to_run_nothing_and_to_fetch_nothing() -> None:
    text = page(finished(), report)
    said = html.unescape(re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)[0])
    policy = dict(part.strip().split(" ", 1) for part in said.split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy.keys() & {"script-src", "script-src-elem", "connect-src", "font-src", "frame-src", "object-src"} == set()
    assert policy["img-src"] == "data:"
    sheets = re.findall(r"<style[^>]*>(.*?)</style>", text, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode() for sheet in sheets]
    assert policy["style-src-elem"] == " ".join(f"'sha256-{one}'" for one in hashes)
    assert text.index("Content-Security-Policy") < text.index("<title>") < text.index("<style>")
    assert "stroke-linejoin:round" in sheets[0]  # of Matplotlib's own style sheet
    assert not re.search(r"<script|\son\w+=|javascript:", text)


def test_what_a_report_must_say() -> None:
    text = page(finished(), report)
    assert HONEST in text
    assert "does <b>not</b> contain the privacy noise" in text
    assert text.count("<svg") == 2
    for words in (
        "ε ≤ 0.98",
        "privacy budget spent",
        "clinic-a",
        "add or remove one example",
        "SiteDelta",
        "2.4 kB",
        "ab" * 32,
        "a note",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ({"unit": "example", "sampling": "poisson"}, "Each client's rows are protected by"),
        ({"unit": "example", "sampling": "aligned"}, "The values of each row in every client's own columns are protected by"),
        ({"unit": "client", "sampling": "full"}, "Each client, with all its rows, is protected by"),
    ],
)
def test_a_report_names_what_is_protected_and_who_is_trusted(certificate: dict[str, str], words: str) -> None:
    run = finished()
    own = run.summary["privacy"][CLIENTS[0]] | certificate | {"trust": "nobody, <i>for</i> once"}
    text = page(finished(summary=run.summary | {"privacy": dict.fromkeys(CLIENTS, own)}), report)
    assert words in text
    assert text.count("The claim trusts nobody, &lt;i&gt;for&lt;/i&gt; once.") == 1


def test_names_cannot_become_markup() -> None:
    text = page(finished(), report)
    assert "<b>clinic</b>" not in text
    assert "&lt;b&gt;clinic&lt;/b&gt;" in text


ODD = ("<script>alert(1)</script>", 'a"b', "a'b", "</title><img src=x>", "{{ 7 * 7 }}", "<!--", "&lt;")


@pytest.mark.parametrize("name", ODD)
def test_no_name_of_anybody_s_becomes_markup(name: str) -> None:
    """Of a column, a client, a run, a message and its fields, a note, a version and a key of the job."""
    own = finished()
    certificate = own.summary["privacy"][CLIENTS[0]]
    wire = {name: own.summary["wire"][CLIENTS[0]]}
    row = parameters(1)["theta[x0]"]
    said = {"verdict": name, "converged": False, "notes": [name], "versions": {name: name}, "digest": name}
    said |= {"parameters": {f"theta[{name}]": row}, "privacy": {name: certificate | {"neighbours": name, "trust": name}}}
    said |= {"wire": wire, "clients": {name: {"updates": 1, "status": name}}, "stop": name}
    ledger = {name: [{"kind": name, "fields": {name: "d"}, "shapes": {}, "bytes": 1}]}
    run = RunFiles(name, own.summary | said, {"algorithm": {"variant": name}, name: name}, own.lines, ledger, notes=[name])
    text = page(run, report)
    marks = [tag for tag in re.findall(r"<(\w+)", text) if tag in ("script", "img")]
    assert marks == []
    assert text.count("<title>") == 1 + text.count("<svg")
    assert "<!--" not in re.sub("<!--[^<>]*-->", "", text)  # a figure's remarks: what it has written, escaped
    assert read(text).open == []
    shown = Seen(text).text
    assert shown.count(name) >= 15, "and each of them is shown as it is"


class Seen(HTMLParser):
    """The text of a page as its reader sees it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data


def alike(n: int, **own: float) -> dict[str, Any]:
    certificate = {"epsilon": 0.98, "epsilon_cap": 1.0, "delta": 1e-5, "neighbours": "add or remove one example", "steps": 500}
    return {f"clinic-{k}": certificate | ({key: value + k for key, value in own.items()}) for k in range(n)}


def privacy(certificates: dict[str, Any]) -> str:
    text = page(finished(summary=finished().summary | {"privacy": certificates}), report)
    return text[text.index("<h2>Privacy") : text.index("<h2>On the wire")]


def test_equal_certificates_are_one_column_and_unequal_ones_differ_in_what_differs() -> None:
    same = privacy(alike(4))
    assert "<th>clinic-0, clinic-1, clinic-2, clinic-3</th>" in same
    assert same.count("add or remove one example") == 1
    differ = privacy(alike(3, steps=500) | {"clinic-z": alike(1, steps=500)["clinic-0"]})
    assert differ.count("add or remove one example") == 1
    assert "<tr><th>client</th><th>noisy steps</th></tr>" in differ
    assert "<tr><td>clinic-0, clinic-z</td><td>500</td></tr>" in differ
    assert "<tr><td>clinic-2</td><td>502</td></tr>" in differ


def test_worse_than_guessing_is_said_and_only_then() -> None:
    bins = [{"rows": 7, "probability": 0.2, "frequency": 0.1}, {"rows": 3, "probability": 0.8, "frequency": 1.0}]
    for guess, worse in ((-0.2, True), (-0.3, False), (-0.25, False)):
        summary = finished().summary | {"test": {"rows": 10, "guess": guess, "reliability": bins}}
        text = page(finished(summary=summary), report)
        assert ("Worse than guessing" in text) is worse
        assert "<h2>Calibration</h2>" in text
        assert "10 test rows" in text
        assert text.index("<h2>Coefficients") < text.index("<h2>Calibration") < text.index("<h2>Learning curves")
    assert "Calibration" not in page(finished(), report)
    drawn = plots.reliability(bins)
    assert drawn is not None
    assert [text.get_text() for text in drawn.axes[0].texts] == ["7", "3"]


def test_words_are_explained_where_they_stand_and_nowhere_else() -> None:
    plain = page(finished(), report)
    assert "<dt>ELBO</dt>" not in plain
    told = page(finished(summary=finished().summary | {"notes": ["k-hat of the ELBO"]}), report)
    assert "<dt>ELBO</dt>" in told
    assert "<dt>k-hat</dt>" in told


def test_keyed_noise_is_not_called_private() -> None:
    run = finished()
    keyed = {**run.summary, "privacy": {"a": {"epsilon": "inf", "delta": 1e-5}}}
    text = page(finished(summary=keyed), report)
    assert "protects nobody" in text
    assert "is protected by" not in text


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RunFiles("empty"), ["interrupted", "makes no privacy claim"]),
        (finished(summary={}), ["interrupted", "each client's own ledger", "Learning curves"]),
        (finished(summary={}, job={}, ledgers={}), ["interrupted", "makes no privacy claim", "0.9"]),
    ],
    ids=["nothing", "interrupted", "not private"],
)
def test_runs_that_did_not_finish(run: RunFiles, words: list[str]) -> None:
    text = page(run)
    for word in words:
        assert word in text
    assert read(text).open == []


def test_the_forest_shows_the_standardised_scale_and_at_most_sixty_rows() -> None:
    text = page(finished(summary={**finished().summary, "parameters": parameters(70)}), report)
    assert "The 60 of 70 with the largest absolute means" in text
    figure = plots.forest({k: v for k, v in parameters(70).items() if "_std" in k})
    assert figure is not None
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == 60
    assert labels[-1] == "x69"
    assert "standardised" in figure.axes[0].get_xlabel()


def test_the_same_figure_gives_the_same_text() -> None:
    lines = finished().lines
    first, second = plots.learning_curves(lines), plots.learning_curves(lines)
    assert plots.svg(first) == plots.svg(second)  # type: ignore[arg-type]
    assert plots.learning_curves([{"round": 1}]) is None
    assert plots.forest({}) is None
