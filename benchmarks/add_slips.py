"""Which newcomers are refused: `python benchmarks/add_slips.py [--only N]`.

The sixty federations of `add_drop.py`, with the newcomer's rows as they are, with its outcome of 0 and 1 the other way round,
with its counts or measurements a thousand times as large, and with the rows of the first client in their place. Beside the
outcome the other way round stands what a job of all clients says. Writes `results/add-slips.txt`, five minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

from add_drop import COLUMNS, FAMILIES, KINDS, ROOT, ROWS, SHARES, Case

import fedkern
from fedkern.errors import JobError

REVERSED = "the outcome the other way round"


def look(case: Case, folder: Path) -> list[tuple[str, bool]]:
    """Returns what was done to the newcomer's rows, and whether it was refused."""
    new = round(case.share * ROWS)
    data = {name: case.rows((ROWS - new) // 4, k) for k, name in enumerate("abcd")}
    right = case.rows(new, 4, newcomer=True)
    first = fedkern.run(case.job(), data=data, output={"extendable": True}, out=folder / "first")
    newcomers = {"as they are": right, "the first client's rows": data["a"].sample(frac=1, random_state=1)}
    if case.family == "bernoulli":
        newcomers[REVERSED] = right.assign(y=1 - right["y"])
    else:
        newcomers["in another unit"] = right.assign(y=1000 * right["y"])
    found = []
    for what, rows in newcomers.items():
        try:
            fedkern.add(first, {"e": rows})
            found.append((what, False))
        except JobError:
            found.append((what, True))
    if REVERSED in newcomers:
        whole = fedkern.run(case.job(), data={**data, "e": newcomers[REVERSED]})
        found.append((f"{REVERSED}, in a job of all", "the other way round" in whole.summary["verdict"]))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=int, metavar="N", help="the first federations alone; nothing is written")
    only = options.parse_args().only
    counts = Counter[tuple[str, bool]]()
    for k, (share, columns, kind) in [*enumerate(product(SHARES, COLUMNS, KINDS))][:only]:
        case = Case(share, columns, kind, FAMILIES[(k + k // len(KINDS)) % len(FAMILIES)], k + 101)
        with tempfile.TemporaryDirectory() as folder:
            found = look(case, Path(folder))
        counts.update(found)
        print(share, columns, kind, case.family, [what for what, refused in found if refused], flush=True)
    lines = []
    for what in dict.fromkeys(what for what, _ in counts):
        refused, taken = counts[what, True], counts[what, False]
        lines.append(f"{what}: {refused} of {refused + taken} refused")
    print("\n".join(lines))
    if only is None:
        (ROOT / "benchmarks" / "results" / "add-slips.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
