"""Prints figures of the code that are to fall: python tools/house.py. It states, and enforces nothing.

`--keys` lists the keys of jobs, each with where it is used.
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

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "fedkern", ROOT / "tests"
ROLES = {"one", "own", "at", "told", "said", "asked", "there", "every"}  # names of a place in a sentence, and not of a thing
PLACES = {  # a place of keys -> its folders, endings of files, and folders that are no part of it
    "paper": (("benchmarks/papers",), (".py",), ()),
    "golden": (("tests/golden",), (".py",), ()),
    "benchmark": (("benchmarks", "mpi"), (".py", ".toml"), ("benchmarks/papers",)),
    "page": (("docs", "README.md"), (".md", ".py"), ("docs/reference", "docs/spec")),
    "specification": (("docs/spec",), (".md",), ()),
    "test": (("tests",), (".py",), ("tests/golden",)),
}


def files(folder: Path, *endings: str) -> list[Path]:
    return sorted(path for ending in endings for path in folder.rglob(f"*{ending}"))


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def is_sentence(node: ast.AST) -> bool:
    """Tells whether a literal is a text of four words or more. An id, a path or a name has no blank, and is none."""
    if isinstance(node, ast.JoinedStr):
        text = " ".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        return False
    return len(text.split()) > 1 and len(re.findall(r"[A-Za-z']{2,}", text)) >= 4


def without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def says(function: ast.FunctionDef) -> bool:
    """Tells whether a function that gives texts holds a sentence outside `raise`."""
    raised = {id(part) for node in ast.walk(function) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    gives = function.returns is not None and "str" in re.findall(r"\w+", ast.unparse(function.returns))
    return gives and any(is_sentence(node) for node in ast.walk(function) if id(node) not in raised)


def asserts_on_sentences(function: ast.FunctionDef) -> bool:
    """Tells whether a test compares with a sentence: in an assertion, or as the `match` of an error."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and any(map(is_sentence, ast.walk(node))):
            return True
        if isinstance(node, ast.keyword) and node.arg == "match" and any(map(is_sentence, ast.walk(node.value))):
            return True
    return False


def folded(tree: ast.AST) -> int:
    """Returns how many conditional expressions stand inside another expression, a call or an f-string."""
    plain = ast.stmt | ast.comprehension | ast.arguments | ast.Lambda | ast.NamedExpr
    return sum(
        isinstance(child, ast.IfExp)
        for node in ast.walk(tree)
        if not isinstance(node, plain)
        for child in ast.iter_child_nodes(node)
    )


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def of_package() -> list[tuple[str, object]]:
    paths = files(PACKAGE, ".py")
    held = [path for path in files(PACKAGE, ".py", ".pyi", ".toml") if path.parent.name != "_core"]  # what a build has made
    comments = code = 0
    counts: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        kinds = {}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            comments += token.type == tokenize.COMMENT
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                kinds.update(dict.fromkeys(range(token.start[0], token.end[0] + 1)))
        tree = ast.parse(text)
        documented = sum(
            node.body[0].end_lineno - node.body[0].lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
        )
        code += len(kinds) - documented
        tree = without_docstrings(tree)
        counts["sentences"] += sum(map(says, functions(tree)))
        counts["folded"] += folded(tree)
        counts["any"] += sum(bool(re.search(r"\bAny\b", line)) and "import" not in line for line in text.splitlines())
        if path.name not in ("keys.py", "model.py"):
            counts["config"] += len(re.findall(r"\bconfig\.\w+\.\w+", text))
        roles.update(name for name in names(tree) if name in ROLES)
    return [
        ("lines of the package (.py, .pyi, .toml)", lines(held)),
        ("its files", len(held)),
        ("its lines of code", code),
        ("functions that hold a text of four words or more and return text", counts["sentences"]),
        ("conditional expressions inside another expression", counts["folded"]),
        ("comments in 100 lines of code", round(100 * comments / code, 1)),
        ("variables named " + ", ".join(sorted(ROLES)), sum(roles.values())),
        ("config.x.y read outside keys and model", counts["config"]),
        ("lines with Any", counts["any"]),
    ]


def of_tests() -> list[tuple[str, object]]:
    paths = files(TESTS, ".py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    asserting = sum(map(asserts_on_sentences, (f for tree in trees for f in functions(tree) if f.name.startswith("test"))))
    return [("lines of the tests", lines(paths)), ("tests that compare with a text of four words or more", asserting)]


def texts(place: str) -> str:
    """Returns all files of one of `PLACES`."""
    folders, endings, but = PLACES[place]
    paths = [path for name in folders for path in ([ROOT / name] if (ROOT / name).is_file() else files(ROOT / name, *endings))]
    own = [path for path in paths if not any(path.is_relative_to(ROOT / name) for name in but)]
    return "\n".join(path.read_text(encoding="utf-8") for path in own)


def named(text: str) -> set[str]:
    """Returns the keys that a text may name, each with its section, and those that stand alone: behind a quote, or at the begin
    of a line."""
    found: set[str] = set()
    for match in re.finditer(r"""((?:["'`]|^[ #]*)?)([A-Za-z_]\w*(?:\.\w+)*)""", text, re.MULTILINE):
        parts = match[2].split(".")
        found.update(".".join(parts[a : b + 1]) for b in range(1, len(parts)) for a in range(b))
        if match[1] or match.start() == 0 or text[match.start() - 1] == "\n":
            found.add(parts[0])
    return found


def keys() -> dict[str, tuple[list[str], list[str]]]:
    """Returns section.key -> the methods that have it, an expert's in parentheses, and the places that name it as a key: behind
    its section, a quote, or at the begin of a line."""
    of: dict[str, list[str]] = {}
    for line in (TESTS / "api/api.txt").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"job (\S+) ([\w.]+):", line):
            of.setdefault(match[2], []).append(f"({match[1]})" if line.endswith(" expert") else match[1])
    by_place = {place: named(texts(place)) for place in PLACES}

    def places(key: str) -> list[str]:
        return [place for place, found in by_place.items() if key in found or key.rpartition(".")[2] in found]

    return {key: (methods, places(key)) for key, methods in sorted(of.items())}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", action="store_true")
    if arguments.parse_args().keys:
        for key, (methods, places) in keys().items():
            print(f"{key:36} {', '.join(methods):44} {', '.join(places) or 'nowhere'}")
    else:
        for what, number in [
            *of_package(),
            *of_tests(),
            ("keys of jobs, of all methods", sum("(" not in one for methods, _ in keys().values() for one in methods)),
            ("their keys for experts", sum("(" in one for methods, _ in keys().values() for one in methods)),
        ]:
            print(f"{number!s:>9}  {what}")
