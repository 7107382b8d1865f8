"""Prints what the package needs with some extras, and what its build imports, by pyproject.toml: python needs.py mpi,dp"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
PROJECT, BUILD = PYPROJECT["project"], PYPROJECT["build-system"]["requires"]


def needs(extra: str) -> list[str]:
    """Of an extra, with those of the extras that it names."""
    found = []
    for need in PROJECT["optional-dependencies"][extra]:
        own = re.fullmatch(rf"{PROJECT['name']}\[(.+)\]", need)
        found += [each for name in own[1].split(",") for each in needs(name)] if own else [need]
    return found


if __name__ == "__main__":
    print(*BUILD, *PROJECT["dependencies"], *(need for extra in sys.argv[1].split(",") for need in needs(extra)), sep="\n")
