"""Breast cancer protein levels by hospital: The Cancer Genome Atlas, 2012; reverse-phase protein arrays of TCPA, Li et al., 2013.

873 tumours, 224 proteins, scaled to mean 0 and standard deviation 1 over all. The seven sites with at least 50 samples are the
clients (534 tumours), the 217 proteins without gaps the columns.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ...arrays import Array
from .published import cells_of, folder_of, numbers, text_of

N_ROWS, N_FIELDS, FIRST = 873, 241, 17  # FIRST: of the proteins among the columns
SITES = {
    "BH": ("pittsburgh", 120),
    "A2": ("walter-reed", 91),
    "D8": ("greater-poland", 74),
    "E2": ("roswell-park", 69),
    "AR": ("mayo", 66),
    "E9": ("asterand", 61),
    "A8": ("indivumed", 53),
}
GAPS = ("AXL", "ENY2", "GATA6", "GCN5L2", "MYOSINIIA", "PARP1", "SLC1A5")  # proteins that not all rows have
# The eleven of the paper's network: LKB1 is its STK11, P27 its CDKN1B.
PAPER = (*("LKB1", "P27", "P27_pT157", "P27_pT198", "ECADHERIN", "GATA3", "PTEN", "P53", "RB", "PI3KP110ALPHA", "HER2"),)


def read(folder: str | Path | None = None, *, whole: bool = False) -> dict[str, dict[str, Array]]:
    """Reads the seven sites. Raises JobError: no folder, no file, or another table than published.

    Parameters
    ----------
    folder : where brca_rppa.csv lies (.gz or not); by default `$FEDKERN_DATA/tcga-brca-rppa`
    whole : all 217 proteins without gaps rather than the paper's eleven

    Returns
    -------
    site -> protein -> levels
    """
    sites = _read(folder_of("rppa", "tcga-brca-rppa", "brca_rppa.csv") if folder is None else Path(folder))
    return sites if whole else {site: {name: columns[name] for name in PAPER} for site, columns in sites.items()}


@cache
def _read(folder: Path) -> dict[str, dict[str, Array]]:
    text = text_of(folder, "brca_rppa.csv", "the table of breast tumours of TRGAted (doi 10.12688/f1000research.15789)")
    head, _, body = text.partition("\n")
    names = head.split(",")
    rows = cells_of(body, folder / "brca_rppa.csv", N_ROWS, len(names) if len(names) == N_FIELDS else N_FIELDS)
    out: dict[str, dict[str, Array]] = {}
    for code, (site, _) in SITES.items():
        columns = list(zip(*(row for row in rows if row[0].split("-")[1] == code)))
        out[site] = {name: numbers(columns[j]) for j, name in enumerate(names) if j >= FIRST and name not in GAPS}
    return out
