"""Measures how plainly docstrings, names and pages are written: one line a directory.

    python -P tools/prose.py [--where PATTERN]

`--where` lists each place of a habit to be left: `python -P tools/prose.py --where found`. The figures are for people to look at:
no test holds them, since a sentence that pleases a counter need not be plain.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGES = ROOT / "fedkern", ROOT / "docs"
VAGUE = ("run", "lines", "named", "exchanged", "checked", "filled", "posterior", "there", "laid", "said", "told")
LONG = 25  # words of a docstring's first sentence
Node = ast.Module | ast.ClassDef | ast.FunctionDef
Place = tuple[str, int, str]  # of one habit: its name, line, the text there


def words(text: str) -> list[str]:
    """Returns the words of a text."""
    return re.findall(r"[A-Za-z']+", text)


def first_sentence(docstring: str) -> str:
    """Returns a docstring up to its first full stop, colon or empty line."""
    return re.split(r"[.:](?:\s|$)|\n\n", docstring, maxsplit=1)[0]


def habits(path: Path) -> Iterator[Place]:
    """Yields each place of a file that a plain writer would look at again."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in VAGUE:
            yield f"def {node.name}", node.lineno, node.name
        if not isinstance(node, Node) or not (docstring := ast.get_docstring(node)):
            continue
        line = getattr(node, "lineno", 1)
        for word in words(docstring):
            yield "words", line, word
            if word.lower() == "what":
                yield "what", line, first_sentence(docstring)
        for match in re.finditer(r"(?:^|[.:]\s+)(Of [a-z][^.]*)", docstring):
            yield "Of", line, match[1]
        if len(words(first_sentence(docstring))) > LONG:
            yield "long", line, first_sentence(docstring)
        if ">>>" in docstring:
            yield "examples", line, ""
    for number, content in enumerate(text.splitlines(), 1):
        yield "lines", number, ""
        if content.strip().startswith("#"):
            yield "whole", number, content.strip()
        if re.search(r"\bfound\b", re.sub(r'"[^"]*"|#.*', "", content)):
            yield "found", number, content.strip()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string


def directories() -> dict[str, list[Path]]:
    """Returns the package's files by directory."""
    by: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        by.setdefault(str(path.parent.relative_to(ROOT)), []).append(path)
    return by


def report() -> None:
    """Prints the figures of each directory, of the package, and of the pages."""
    names = ("lines", "words", "what", "Of", "long", "examples", "comments", "found")
    print(f"{'':36}{''.join(f'{name:>10}' for name in names)}")
    total: Counter[str] = Counter()
    for directory, files in directories().items():
        count = Counter(name for path in files for name, *_ in habits(path))
        total += count
        print(f"{directory:36}{''.join(f'{count[name]:10}' for name in names)}")
    print(f"{'all':36}{''.join(f'{total[name]:10}' for name in names)}")
    print(f"what: {1000 * total['what'] / total['words']:.2f} of 1,000 words of docstrings")
    print(f"comments: {100 * total['comments'] / total['lines']:.2f} of 100 lines, of which alone on a line {total['whole']}")
    print("functions called", ", ".join(f"{name}: {total[f'def {name}']}" for name in VAGUE))
    said = [word.lower() for page in PAGES.rglob("*.md") for word in words(page.read_text())]
    print(f"pages: {1000 * sum(word in {'you', 'your'} for word in said) / len(said):.2f} 'you' or 'your' of 1,000 words")


def main() -> None:
    """Prints the figures, or each place of one habit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--where", metavar="HABIT", help="what, Of, long, found, or 'def NAME'")
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories to look in (all)")
    args = parser.parse_args()
    if args.where is None:
        report()
        return
    given = [file for path in args.paths or [PACKAGE] for file in (path.rglob("*.py") if path.is_dir() else [path])]
    for path in sorted(given):
        for name, line, text in habits(path.resolve()):
            if name == args.where:
                print(f"{path}:{line}: {' '.join(text.split())[:100]}")


if __name__ == "__main__":
    main()
