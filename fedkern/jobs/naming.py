"""Checks the names of clients: a name is a folder's, a file's and a table's, on whatever disk a party has."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

LONGEST = 100  # bytes; "client-" and ".jsonl" must fit beside it
RESERVED = re.compile(r"rank-\d+|server|federation", re.IGNORECASE)  # ledgers of ranks; the server, and its account
REMEDY = "use letters, digits, - and _"


def faults(names: Sequence[str], where: str) -> Iterator[str]:
    """Yields each name that cannot be a client's, and each that a disk could take for another; `where` the names come from."""
    if len(set(names)) < len(names):
        yield f"{where}: wanted different names"
    seen: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if reason := _fault(name):
            yield f"{where}: {name!r} cannot be the name of a client: {reason}; {REMEDY}"
        elif (other := seen.setdefault(_on_a_disk(name), name)) != name:
            yield f"{where}: {other!r} and {name!r} would share a file on some disks; rename one"


def _fault(name: str) -> str | None:
    if not name or name != name.strip():
        return "it is empty, or begins or ends with a space"
    if any(unicodedata.category(letter)[0] == "C" or letter in "\u2028\u2029" for letter in name):
        return "it has characters that are not printed"
    if set(name) & set("/\\"):
        return "it is a path"
    if name[0] in ".-" or name[-1] == ".":
        return "it begins with . or -, or ends with ."
    if len(name.encode()) > LONGEST:
        return f"it has more than {LONGEST} bytes"
    if RESERVED.fullmatch(name):
        return "files of ranks and of the server have such names"
    return None


def _on_a_disk(name: str) -> str:
    """Returns a name without the differences that some disk ignores: case, ways to write a letter, letters that are replaced."""
    return re.sub(r"[^\w.-]", "_", unicodedata.normalize("NFKC", name).casefold())
