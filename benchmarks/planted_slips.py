"""How many slips in clients' files are found: forty that people make, each planted into one client's file of a public data set.

    python benchmarks/planted_slips.py DATA [--only NUMBER ..] [--out benchmarks/results/planted-slips.txt]
    python benchmarks/planted_slips.py DATA --honest   # how often columns of honest deals have a word: without a fit, in seconds

Rows of data sets of `false_alarms.py` are dealt by lot as there, so that without the slip clients differ by chance alone, and the
job is the one there. A slip is found where a line of the result, or the refusal, names the column (of one file twice the
clients): "doubt" where no result stands, "note" where the reader is told, "refused" where the job ends. DATA is a folder,
as there.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import false_alarms
import numpy as np
import pandas as pd
import public_sets

import fedkern
from fedkern.algorithms.exchanges import compare
from fedkern.data.isolated import judge
from fedkern.errors import FedkernError
from fedkern.models.encoding import Column

Frames = dict[str, pd.DataFrame]
AT = "north"  # the client whose file has the slip


class Slip(NamedTuple):
    """Names a slip, the data set and column that it is planted in, and what it does to the clients' files."""

    what: str
    data: str
    column: str
    plant: Callable[[Frames, str], object]


def times(factor: float, add: float = 0.0) -> Callable[[Frames, str], object]:
    """Multiplies a column, and adds to it."""
    return cells(lambda x: x * factor + add)


def cells(change: Callable[[pd.Series], object]) -> Callable[[Frames, str], object]:
    """Changes a column at one client."""

    def plant(files: Frames, column: str) -> None:
        files[AT][column] = change(files[AT][column])

    return plant


def code(value: float, part: float) -> Callable[[Frames, str], object]:
    """Writes a code for a missing value into a part of the cells, at least three."""

    def plant(files: Frames, column: str) -> None:
        own, rng = files[AT], np.random.default_rng(1)
        at = rng.choice(len(own), max(3, int(part * len(own))), replace=False)
        own[column] = own[column].astype(float)
        own.loc[own.index[at], column] = value

    return plant


def one_cell(factor: float) -> Callable[[Frames, str], object]:
    """Loses the point of one cell."""

    def plant(files: Frames, column: str) -> None:
        own = files[AT]
        own[column] = own[column].astype(float)
        own.loc[own.index[1], column] *= factor

    return plant


def everywhere(change: Callable[[pd.DataFrame], object]) -> Callable[[Frames, str], object]:
    """Changes a column at all clients."""

    def plant(files: Frames, column: str) -> None:
        for own in files.values():
            own[column] = change(own)

    return plant


def swap(other: str) -> Callable[[Frames, str], object]:
    """Exchanges two columns at one client."""

    def plant(files: Frames, column: str) -> None:
        own = files[AT]
        own[column], own[other] = own[other].to_numpy().copy(), own[column].to_numpy().copy()

    return plant


def twice(*, shuffled: bool = False) -> Callable[[Frames, str], object]:
    """Gives one client the file of another."""

    def plant(files: Frames, column: str) -> None:
        files[AT] = files["east"].sample(frac=1, random_state=1) if shuffled else files["east"].copy()

    return plant


SLIPS = (
    Slip("x 5", "AER::CASchools", "income", times(5)),
    Slip("x 5, far from 0", "MASS::birthwt", "age", times(5)),
    Slip("/ 10", "MASS::Boston", "nox", times(0.1)),
    Slip("x 100 (share, percent)", "AER::HMDA", "lvrat", times(100)),
    Slip("percent, share", "MASS::Boston", "lstat", times(0.01)),
    Slip("x 1000", "AER::CreditCard", "income", times(1000)),
    Slip("kg, g", "MASS::cats", "Bwt", times(1000)),
    Slip("lb, kg", "MASS::birthwt", "lwt", times(1 / 2.2046)),
    Slip("mg/dl, mmol/l", "MASS::Pima.te", "glu", times(1 / 18)),
    Slip("mmHg, kPa", "sklearn::diabetes", "bp", cells(lambda x: (x * 290 + 94.6) / 7.5)),
    Slip("cm, inches", "MASS::survey", "Wr_Hnd", times(1 / 2.54)),
    Slip("cm, m (response)", "MASS::survey", "Height", times(0.01)),
    Slip("mg/dl, umol/l", "survival::pbc", "bili", times(17.1)),
    Slip("g/dl, g/l", "survival::mgus2", "hgb", times(10)),
    Slip("mg/dl, umol/l", "survival::mgus2", "creat", times(88.4)),
    Slip("Fahrenheit, Celsius", "datasets::airquality", "Temp", times(5 / 9, -160 / 9)),
    Slip("Celsius, Kelvin", "lme4::cake", "temp", times(1, 273.15)),
    Slip("years, days", "survival::pbc", "age", times(365.25)),
    Slip("years, months", "survival::cancer", "age", times(12)),
    Slip("mph, km/h", "datasets::airquality", "Wind", times(1.609)),
    Slip("log for raw", "AER::CASchools", "expenditure", cells(np.log)),
    Slip("log10 for raw", "survival::mgus", "hgb", cells(np.log10)),
    Slip("raw for standardised", "sklearn::diabetes", "bmi", cells(lambda x: x * 93 + 26.4)),
    Slip("two columns exchanged", "MASS::Pima.te", "glu", swap("bmi")),
    Slip("two columns exchanged", "sklearn::wine", "ash", swap("magnesium")),
    Slip("-9 in a tenth", "survival::colon", "nodes", code(-9, 0.1)),
    Slip("99 in 2 %", "AER::CPS1985", "education", code(99, 0.02)),
    Slip("999 in 5 %", "MASS::Pima.te", "bmi", code(999, 0.05)),
    Slip("0 in a fifth", "MASS::Pima.te", "glu", code(0, 0.2)),
    Slip("0 in all", "survival::flchain", "creatinine", times(0)),
    Slip("a point lost in one cell", "sklearn::breast_cancer", "mean_texture", one_cell(100)),
    Slip("decimal commas", "MASS::Pima.te", "bmi", cells(lambda x: x.map("{:.1f}".format).str.replace(".", ",", regex=False))),
    Slip("capitals of a level", "MASS::survey", "Sex", cells(lambda x: x.str.lower())),
    Slip("a blank in a level", "AER::TeachingRatings", "gender", cells(lambda x: x.replace("female", "fe male"))),
    Slip("another word for a level", "AER::PhDPublications", "gender", cells(lambda x: x.map({"male": "M", "female": "F"}))),
    Slip("1 and 2 for 0 and 1", "survival::rotterdam", "meno", times(1, 1)),
    Slip("one file twice", "survival::gbsg", "age", twice()),
    Slip("one file twice, sorted otherwise", "survival::rotterdam", "age", twice(shuffled=True)),
    Slip("one value at all", "MASS::Boston", "indus", everywhere(lambda d: 1.0)),
    Slip("follows from another", "AER::CASchools", "english", everywhere(lambda d: 100 - 2 * d["lunch"])),
)


def look(slip: Slip, folder: Path) -> tuple[str, str]:
    """Returns how a slip is found, and the first line that says so."""
    one = next(one for one in false_alarms.sets() if f"{one.package}::{one.name}" == slip.data)
    files = false_alarms.deal(false_alarms.read(one, folder), one.group, 0)
    slip.plant(files, slip.column)
    of_column = (f"column {slip.column!r}", f"theta[{slip.column}]: not estimated")
    names = ("have as many rows, and the same sums",) if "twice" in slip.what else of_column
    try:
        result = fedkern.run(one.job, data=files)
    except FedkernError as fault:
        return ("refused" if any(name in str(fault) for name in names) else "not found"), str(fault)
    for how, lines in (("doubt", [str(result.summary["verdict"])]), ("note", result.notes)):
        for line in lines:
            if any(name in line for name in names):
                return how, line
    return "not found", ""


def words_on(files: Frames, columns: Sequence[str], response: str) -> list[str]:
    """Returns what clients' facts of columns say: the findings of a job's server, and columns in which cells decide."""
    clients, rows = tuple(files), pd.concat(files.values())
    numeric = [name for name in columns if pd.api.types.is_numeric_dtype(rows[name])]
    values = [own[numeric].to_numpy(float) for own in files.values()]
    centre, sizes = rows[numeric].to_numpy(float).mean(axis=0), np.array([float(len(own)) for own in values])
    sums, squares = (np.array([((own - centre) ** power).sum(axis=0) for own in values]) for power in (1, 2))
    told = [tuple(tuple(sorted(set(map(str, own[name])))) for own in files.values()) for name in columns if name not in numeric]
    texts = [Column(name, "categorical", tuple(sorted({*rows[name].astype(str)}))) for name in columns if name not in numeric]
    levels = tuple(zip(texts, told))
    facts = compare.Facts(clients, tuple(map(Column, numeric)), sizes, centre, sums, squares, levels=levels)
    answers = [(float(len(own)), float(pd.to_numeric(own[response], errors="coerce").sum())) for own in files.values()]
    twins = [one for group in compare.find_twins(facts) for one in compare.with_one_response(group, answers)]
    found = [*compare.compare(facts), *("one file twice" for _ in twins)]
    shares = [judge(dict(zip(numeric, own.T))) for own in values]
    return [*map(str, found), *(f"far cells in {name}" for far, _ in shares for name in far)]


def honest(folder: Path) -> str:
    """Returns the number of deals of honest data in which a word on columns is said."""
    n, said = 0, list[str]()
    chosen = [one for one in false_alarms.sets() if public_sets.installed(one.package)]
    public_sets.write([f"{one.package}::{one.name}" for one in chosen], folder)
    for one in chosen:
        d, response = false_alarms.read(one, folder), one.formula.split(" ~ ")[0].split()
        columns = [name for name in one.names if name not in (*response, one.group)]
        for seed in range(false_alarms.DEALS):
            words = words_on(false_alarms.deal(d, one.group, seed), columns, response[0])
            n, said = n + 1, [*said, *(f"{one.package}::{one.name} {seed}: {word}" for word in words[:1])]
    return "\n".join([f"{n} deals of {len(chosen)} data sets: {len(said)} with a word", *said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", type=int, default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--honest", action="store_true")
    options = parser.parse_args()
    if options.honest:
        print(honest(options.data))
        return
    public_sets.write(sorted({slip.data for slip in SLIPS}), options.data)
    counts, rows = Counter[str](), list[str]()
    for number, slip in enumerate(SLIPS, 1):
        if options.only and number not in options.only:
            continue
        how, line = look(slip, options.data)
        counts[how] += 1
        rows.append(f"{number:2d}  {how:9}  {slip.what:33}  {slip.data} {slip.column}")
        print(rows[-1], "|", line[:300], file=sys.stderr, flush=True)
    said = ", ".join(f"{how} {n}" for how, n in sorted(counts.items()))
    text = (
        "\n".join([f"fedkern {fedkern.__version__}, Python {platform.python_version()}: {len(rows)} slips: {said}", *rows]) + "\n"
    )
    print(text, end="")
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
