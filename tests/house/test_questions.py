"""Ten questions that everybody asks are answered at once, on a page that the front page links."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "start/questions.md"
WORDS = 300


def anchors(page: Path) -> set[str]:
    """Returns the names by which a page's headings are linked."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_ten_questions_have_an_answer_each() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "(start/questions.md)" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(sections) == 10
    for section in sections:
        question, answer = section.strip().split("\n\n")
        assert question.endswith("?")
        links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", answer)
        assert links, question
        for path, anchor in links:
            target = (PAGE.parent / path).resolve()
            if target.exists():  # pages that the build makes are looked at there
                assert not anchor or anchor in anchors(target), (path, anchor)
