"""How many public data sets one call answers: `fedkern.fit` of a formula and frames, with the defaults for all else.

    python benchmarks/one_call.py DATA [--sets NAME ..] [--out benchmarks/results/one-call.txt]

The data sets and formulas are those of `false_alarms.py`, dealt by its first seed to two to four clients, and neither family nor
method nor key is given. A line for each: the model that was chosen, whether it converged, and the family that its analyst took,
where that is another one; or why the call was refused. DATA is a folder as in `false_alarms.py`.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import false_alarms
import public_sets

import fedkern
from fedkern.errors import FedkernError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [one for one in false_alarms.sets() if not options.sets or one.name in options.sets]
    public_sets.write([f"{one.package}::{one.name}" for one in chosen], options.data)
    lines, answered, converged, alike = [], 0, 0, 0
    for one in chosen:
        clients = false_alarms.deal(false_alarms.read(one, options.data), one.group, seed=0)
        name, begin = f"{one.package}::{one.name}", time.monotonic()
        try:
            result = fedkern.fit(str(one.job["model"]["formula"]), clients)
        except FedkernError as error:
            lines.append(f"{name}: refused: {error}")
        else:
            family = str(result.job["model"]["family"])
            answered, converged = answered + 1, converged + (result.converged is True)
            alike += family == one.family
            other = "" if family == one.family else f"; its analyst takes {one.family}"
            lines.append(f"{name}: {re.split(' ~', str(result), maxsplit=1)[0]}; converged {result.converged}{other}")
        print(f"{lines[-1]} ({time.monotonic() - begin:.1f} s)", flush=True)
    head = f"one call answers {answered} of {len(chosen)} data sets; {converged} converged, {alike} have the analyst's family"
    text = "\n".join([head, *lines]) + "\n"
    print(head)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
