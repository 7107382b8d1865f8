"""Names of columns, levels and clients may hold anything; what is printed or drawn of them cannot."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.printing import printable, printable_lines

FORMULA, ESCAPE, TURNED = r"$\frac{1}{$", "a\x1b[2J\x07", "pa\u202eyab\u2066"
NAMES = [FORMULA, ESCAPE, TURNED, "_low", "$x$", "年齢", "\u2028line"]
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("age", "age"),
        ("Größe 年齢 العمر", "Größe 年齢 العمر"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("a\u202eb\u200f", r"a\u202eb\u200f"),
        ("\ufeffa\u2028", r"\ufeffa\u2028"),
        ("a\udce9", r"a\udce9"),
        ("a\xa0b", "a\xa0b"),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_that_turns_controls_or_breaks_is_escaped() -> None:
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in (
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"
        ):  # fmt: skip
            assert printable(character).isascii(), hex(code)


def test_a_text_of_several_lines_keeps_them() -> None:
    assert printable_lines("a\nb\r\x1b") == "a\nb\\r\\x1b"


def clean(text: str) -> None:
    assert not UNSEEN.search(text), UNSEEN.search(text)


JOB = {
    "pvi": '[job]\nrounds = 2\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[model]\nfamily = "gaussian"\n[output]\ndraws = 10\n',
    "sparse": '[job]\nmethod = "sparse"\nrounds = 6\n[data]\nclients = ["*.csv"]\nresponse = "y"\n[algorithm]\nburn_in = 1\n'
    "share_local = true\n",
    "graph": '[job]\nmethod = "sparse"\nrounds = 6\n[data]\nclients = ["*.csv"]\n[model]\nkind = "mrf"\n'
    "[algorithm]\nburn_in = 1\n",
}


def federation(folder: Path, method: str, header: list[str]) -> Path:
    for k, name in enumerate(("_first", "b$x{$")):
        values = np.random.default_rng(k).normal(size=(30, len(header)))
        lines = [",".join(f"{x:.3f}" for x in row) for row in values]
        (folder / f"{name}.csv").write_text("\n".join([",".join(header), *lines]) + "\n", "utf-8", newline="\n")
    (folder / "job.toml").write_text(JOB[method])
    return folder / "job.toml"


@pytest.mark.parametrize("method", JOB)
def test_a_job_and_its_report(fedkern: Any, tmp_path: Path, method: str) -> None:
    path = federation(tmp_path, method, [*NAMES, "y"])
    for command in (["check", path], ["run", path, "--out", "out"], ["report", "out"]):
        ended = fedkern(*command)
        assert ended.code == 0, ended.err
        clean(ended.out + ended.err)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    clean(page)
    for shown in (r"$\frac{1}{$", r"a\x1b[2J\x07", r"pa\u202eyab\u2066"):
        assert shown in page


def test_faults_that_name_them(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, "pvi", [*NAMES, "y"])
    bad = tmp_path / "_first.csv"
    bad.write_text(bad.read_text("utf-8").replace(".", "\x1b]0;x\u202e", 3), "utf-8", newline="\n")
    for command in (["run", path, "--out", "out"], ["check", path, "--local", bad], ["run", f"{ESCAPE}.toml"]):
        ended = fedkern(*command)
        assert ended.code == 2
        clean(ended.out + ended.err)
    (tmp_path / f"c{ESCAPE}.csv").write_text("x\n1\n")
    ended = fedkern("run", path, "--out", "other")
    assert ended.code == 2
    clean(ended.out + ended.err)
    assert ended.err.count("\n") == 1


def test_a_private_job_prints_its_clients(fedkern: Any, tmp_path: Path) -> None:
    path = federation(tmp_path, "pvi", ["x", "y"])
    privacy = "[privacy]\nepsilon = 8.0\ndelta = 1e-3\nclip = 2.0\nnoise_multiplier = 3.0\nsampling_rate = 0.2\n"
    path.write_text(path.read_text().replace("[output]", "[data.columns]\nx = {center = 0, scale = 1}\n[output]") + privacy)
    for command in (["check", path], ["run", path, "--out", "out"], ["report", "out"]):
        ended = fedkern(*command)
        assert ended.code == 0, ended.err
        clean(ended.out + ended.err)
    clean((tmp_path / "out" / "report.html").read_text("utf-8"))
