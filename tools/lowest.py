"""Prints the lowest versions that pyproject.toml allows, of what the package and its extras need: python lowest.py

What has no lowest version is left as it is installed. Only what users install is asked for: tools of the tests may be new.
"""

import re

from needs import PROJECT, needs

EXTRAS = ("mpi", "dp", "results", "parquet", "demo", "spatial", "numba")


def lowest(requirement: str) -> str | None:
    """``NAME==VERSION`` with the environment's marker; None where no version is the lowest."""
    need, _, marker = requirement.partition(";")
    found = re.match(r"\s*([\w.-]+)\s*(?:\[.*\])?\s*>=\s*([\w.]+)", need)
    if found is None:
        return None
    return f"{found[1]}=={found[2]}" + (f"; {marker.strip()}" if marker else "")


if __name__ == "__main__":
    asked = [*PROJECT["dependencies"], *(need for extra in EXTRAS for need in needs(extra))]
    print(*dict.fromkeys(filter(None, map(lowest, asked))), sep="\n")
