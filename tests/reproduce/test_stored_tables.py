"""The gallery's page says what the stored tables say, each table says which version has made it, and `--fast` makes it again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedkern.cli.papers import PAPERS
from support.command import python

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FAST = RESULTS / "fast"
STORED = [name for name in PAPERS if (FAST / f"{name}.md").exists()]
PAGE = (ROOT / "docs" / "reference" / "reproductions.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
MADE = re.compile(r"Made by `fedkern reproduce [^`]*`, fedkern \d+\.\d+\.\d+ \(commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d\)")


def numbers(text: str) -> list[str]:
    return [number.replace(",", "") for number in NUMBER.findall(text)]


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def tables(name: str) -> list[Path]:
    """The files that a section names."""
    return [RESULTS / file for file in re.findall(r"`(?:benchmarks/results/)?([\w/-]+\.md)`", section(name))]


@pytest.mark.parametrize("name", PAPERS)
def test_the_page_has_the_numbers_of_the_stored_tables(name: str) -> None:
    """Each number of what came out is one of the tables', rounded to its digits; a share may be in per cent."""
    came_out = section(name).partition("*What came out.*")[2].partition("Tables:")[0]
    known = [float(number) for path in tables(name) for number in numbers(path.read_text(encoding="utf-8"))]
    for number in numbers(came_out):
        digits = len(number.partition(".")[2])
        shown = {round(scale * value, digits) for value in known for scale in (1, 100)}
        assert float(number) in shown, f"{name}: {number} is in none of {[path.name for path in tables(name)]}"


@pytest.mark.parametrize("name", PAPERS)
def test_each_table_says_which_version_has_made_it(name: str) -> None:
    assert tables(name)
    fast = [FAST / f"{name}.md"] if name in STORED else []
    for path in (*tables(name), *fast):
        assert MADE.search(path.read_text(encoding="utf-8").splitlines()[-1]), path


def test_a_number_that_is_not_in_the_tables_is_found() -> None:
    assert numbers("R-hat 1.56, in 1,000 rounds of -0.264 (-0.406, x2)") == ["1.56", "1000", "-0.264", "-0.406"]


def compared(text: str, *, of_noise: bool) -> tuple[list[str], list[float]]:
    """Words and numbers of a table: not the version, nor how long something took; of private runs not the verdicts either."""
    lines: list[str] = []
    columns: list[int] = []  # of the present table that are times
    for line in text.splitlines():
        cells = line.split("|")
        if "---" not in line and not (lines and lines[-1].startswith("|")):
            columns = [k for k, cell in enumerate(cells) if cell.strip() == "seconds"]
        if line.startswith("Made by") or (of_noise and line.startswith("* ")):
            continue
        kept = "|".join(cell for k, cell in enumerate(cells) if k not in columns)
        lines.append(re.sub(r"[\d.,]+ (s|minutes|MiB)\b", r"\1", kept))
    told = "\n".join(lines)
    return NUMBER.sub("#", told).split(), [float(number) for number in numbers(told)]


def test_what_is_compared() -> None:
    table = "| a | seconds |\n| --- | --- |\n| 1.5 | 20.1 |\n\nIn 3 s: 7 of 9.\n\nMade by `x`, fedkern 0.1.0.\n"
    words, values = compared(table, of_noise=False)
    assert values == [1.5, 7, 9]
    assert words == ["|", "a", "|", "|", "---", "|", "|", "#", "|", "In", "s:", "#", "of", "#."]


@pytest.mark.nightly
@pytest.mark.parametrize("name", STORED)
def test_the_fast_form_makes_the_stored_table_again(name: str, tmp_path: Path) -> None:
    """The same bits on the machine that has made it; another one's last digits differ, and a private run has other noise."""
    printed = ["--printed"] if name == "sparse-regression" else []
    ended = python("-P", "-m", "fedkern", "reproduce", name, "--fast", *printed, "--out", tmp_path, folder=ROOT, timeout=3600)
    if "FEDKERN_DATA" in ended.err:
        pytest.skip(ended.err)
    assert ended.code == 0, ended.err
    of_noise = name == "dp-pvi-adult"
    words, values = compared((tmp_path / "table.md").read_text(encoding="utf-8"), of_noise=of_noise)
    stored_words, stored = compared((FAST / f"{name}.md").read_text(encoding="utf-8"), of_noise=of_noise)
    assert words == stored_words
    assert values == pytest.approx(stored, rel=0.1 if of_noise else 0.02, abs=0.02 if of_noise else 0.005)
