"""Protein signalling in single human T cells: Sachs, Perez, Pe'er, Lauffenburger and Nolan, 2005, doi 10.1126/science.1105809.

Levels of eleven phosphorylated proteins and phospholipids under different stimulations and inhibitors; the nine conditions of the
paper's main set (7,466 cells) are the clients. Values have heavy tails and a floor at 1: their logarithms are used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from ...arrays import Array
from ...errors import JobError
from .published import cells_of, folder_of, numbers, text_of

NODES = ("Raf", "Mek", "Plcg", "PIP2", "PIP3", "Erk", "Akt", "PKA", "PKC", "P38", "Jnk")
COLUMNS = ("praf", "pmek", "plcg", "PIP2", "PIP3", "p44/42", "pakts473", "PKA", "PKC", "P38", "pjnk")
N_ROWS = 11_672
CONDITIONS = {  # number in the file -> name, cells
    1: ("cd3cd28", 853),
    2: ("icam2", 902),
    3: ("akt-inhibitor", 911),
    4: ("g0076", 723),
    5: ("psitectorigenin", 810),
    6: ("u0126", 799),
    7: ("ly294002", 848),
    8: ("pma", 913),
    9: ("b2camp", 707),
}

# Arcs (from, to). LEARNED: the network of the paper; CONSENSUS: what it and others take as established. They share 13.
_BOTH = (
    *(("Mek", "Erk"), ("PKA", "Akt"), ("PKA", "Erk"), ("PKA", "Jnk"), ("PKA", "Mek"), ("PKA", "P38"), ("PKA", "Raf")),
    *(("PKC", "Jnk"), ("PKC", "Mek"), ("PKC", "P38"), ("PKC", "Raf"), ("Plcg", "PIP2"), ("Raf", "Mek")),
)
LEARNED = frozenset([*_BOTH, ("Erk", "Akt"), ("PIP3", "PIP2"), ("PKC", "PKA"), ("Plcg", "PIP3")])
CONSENSUS = frozenset([*_BOTH, ("PIP2", "PIP3"), ("PIP2", "PKC"), ("PIP3", "Akt"), ("PIP3", "Plcg"), ("Plcg", "PKC")])
NETWORKS = {"learned": LEARNED, "consensus": CONSENSUS}


def read(folder: str | Path | None = None) -> dict[str, dict[str, Array]]:
    """Reads the nine conditions. Raises JobError: no folder, no file, or another table than published.

    Parameters
    ----------
    folder : where sachs_all14.csv lies (.gz or not); by default `$FEDKERN_DATA/sachs-2005`

    Returns
    -------
    condition -> protein -> natural logarithms of the levels
    """
    return _read(folder_of("sachs", "sachs-2005", "sachs_all14.csv") if folder is None else Path(folder))


@cache
def _read(folder: Path) -> dict[str, dict[str, Array]]:
    where = folder / "sachs_all14.csv"
    text = text_of(folder, where.name, "the fourteen conditions of Sachs et al. (doi 10.1126/science.1105809)")
    head, _, body = text.partition("\n")
    if tuple(head.split(",")) != ("condition", *COLUMNS):
        raise JobError(f"{where}: columns {head}; needs condition, {', '.join(COLUMNS)}")
    values = np.stack([numbers(column) for column in zip(*cells_of(body, where, N_ROWS, len(COLUMNS) + 1))])
    logs = np.log(values[1:])
    return {
        name: {node: logs[j, values[0] == number] for j, node in enumerate(NODES)} for number, (name, _) in CONDITIONS.items()
    }


def adjacency(network: frozenset[tuple[str, str]]) -> Array:
    """Returns 1 at [to, from] (11, 11) for each arc, in the order of `NODES`."""
    out = np.zeros((len(NODES), len(NODES)))
    for source, to in network:
        out[NODES.index(to), NODES.index(source)] = 1
    return out
