"""Jobs whose local optimisers see rows without a clip: shards of rows, and whole clients. No row ends them, or shows; and how far
a row moves the sum of the shards' answers, against what is accounted for."""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.pvi import local
from fedkern.algorithms.pvi import scale as shards
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import GRID_BITS, SecureSource

SHARDS = """
[privacy]
epsilon = 50.0
delta = 1e-3
clip = 2.0
noise_multiplier = 16.0
"""
CLIENTS = SHARDS + 'unit = "client"\n'


def federation(folder: Path, family: str, algorithm: str, privacy: str, more: tuple[str, ...] = ()) -> Path:
    """A job with two clients; the first has these rows as well."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for name, extra in (("a", more), ("b", ())):
        x = generator.standard_normal((20, 2))
        y = generator.poisson(1.0, 20)
        lines = [f"{name}{i},{u},{v},{c}" for i, ((u, v), c) in enumerate(zip(x, y))]
        (folder / f"{name}.csv").write_text("\n".join(["id,x,z,y", *lines, *extra]) + "\n")
    path = folder / "job.toml"
    path.write_text(
        f"[job]\nrounds = 2\n[data]\nclients = ['{folder}/*.csv']\nresponse = 'y'\nrow_id = 'id'\nstandardise = 'none'\n"
        "[data.columns]\nx = {kind = 'numeric'}\nz = {kind = 'numeric'}\n"
        f"[model]\nfamily = '{family}'\n[algorithm]\n{algorithm}\nlocal_steps = 3\n{privacy}"
    )
    return path


def visible(out: Path) -> dict[str, Any]:
    """What others than the clients see, but for what the noise decides."""
    summary = json.loads((out / "summary.json").read_text())
    seen = {key: summary[key] for key in ("stop", "rounds", "clients", "wire", "privacy", "notes")}
    return seen | {path.name: path.read_text() for path in out.glob("ledger/*.jsonl")}


# Covariates of 10, whose E exp(x'theta) overflows; amounts of money, whose squares drown the prior's precision; the largest
# number that is read at all
ROWS = {"poisson": "new,10,10,2", "gaussian": "new,1e10,1e10,3", "gaussian, a huge response": "new,1,1,1e150"}
FORMS = {
    "local averaging": ("variant = 'local-averaging'\nshards = 4", SHARDS),
    "virtual clients": ("variant = 'virtual-clients'\nshards = 4", SHARDS),
    "clients": ("", CLIENTS),
}


@pytest.mark.parametrize("row", ["poisson", "gaussian", pytest.param("gaussian, a huge response", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_row_neither_ends_a_private_job_nor_shows(
    fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, row: str
) -> None:
    # Secret noise of these sizes may itself make an optimiser fail, with or without the row
    monkeypatch.setattr(SecureSource, "add_noise", lambda self, total, sigma, step=0: np.zeros(len(total)))
    algorithm, privacy = FORMS[form]
    algorithm += "\noptimiser = 'exact'"
    seen = []
    for name, more in (("without", ()), ("with", (ROWS[row],))):
        path = federation(tmp_path / name, row.partition(",")[0], algorithm, privacy, more)
        ended = fedkern("run", path, "--out", name + "-out")
        assert (ended.code, ended.err) == (0, "")
        seen.append(visible(tmp_path / (name + "-out")))
    assert seen[0] == seen[1]
    own = json.loads((tmp_path / "with-out" / "client-a" / "optimiser.json").read_text())
    assert own["updates"] == 2
    assert own["failed"] > 0  # so the row is one that would have ended the job
    whole = json.loads((tmp_path / "without-out" / "client-a" / "optimiser.json").read_text())
    assert whole == {"updates": 2, "optimisers": 2 if form == "clients" else 8, "failed": 0}


@pytest.mark.parametrize("form", [pytest.param(form, marks=[] if form == "clients" else pytest.mark.nightly) for form in FORMS])
def test_a_cell_beyond_what_is_read_weighs_nothing(
    fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Its square is no number: it is a fault, which no optimiser sees, and which the holder alone reads."""
    monkeypatch.setattr(SecureSource, "add_noise", lambda self, total, sigma, step=0: np.zeros(len(total)))
    algorithm, privacy = FORMS[form]
    seen, means = [], []
    for name, more in (("without", ()), ("with", ("new,1,1,1e300",))):
        path = federation(tmp_path / name, "gaussian", algorithm + "\noptimiser = 'exact'", privacy, more)
        ended = fedkern("run", path, "--out", name + "-out")
        assert (ended.code, ended.err) == (0, "")
        seen.append(visible(tmp_path / (name + "-out")))
        means.append(json.loads((tmp_path / (name + "-out") / "summary.json").read_text())["parameters"])
    assert (seen[0], means[0]) == (seen[1], means[1])
    own = json.loads((tmp_path / "with-out" / "client-a" / "optimiser.json").read_text())
    assert (own["updates"], own["failed"]) == (2, 0)
    faults = json.loads((tmp_path / "with-out" / "client-a" / "rows.json").read_text())["faults"]
    assert faults["counts"] == [["y: is too large", 1]]


@pytest.mark.parametrize("form", FORMS)
def test_negative_control_an_optimiser_whose_failure_shows(
    fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    algorithm, privacy = FORMS[form]
    for module in (local, shards):
        monkeypatch.setattr(module, "attempt", local.optimise)
    path = federation(tmp_path / "with", "gaussian", algorithm + "\noptimiser = 'exact'", privacy, (ROWS["gaussian"],))
    with np.errstate(all="ignore"):
        assert fedkern("run", path, "--out", "out").code == 2


# --- how far neighbours move the sum

N_SHARDS, UPDATES = 4, 3
GRID_OF_A_CLIP = 1 << GRID_BITS


def names_in(shard: int) -> list[str]:
    """Row ids that the hash puts in this shard."""
    digests = {name: blake2b(name.encode(), digest_size=8).digest() for name in (f"id{i}" for i in range(60))}
    return [name for name, digest in digests.items() if int.from_bytes(digest, "little") % N_SHARDS == shard]


def row(name: str, response: float, x: float = 1.0) -> str:
    return f"{name},{x},{0.1 * x},{response}"


ONE, TWO = names_in(0), names_in(1)
BASE = [row(ONE[0], 300.0), row(ONE[1], -100.0), row(TWO[0], 100.0)]
BASE += [row(name, 1.0) for shard in (2, 3) for name in names_in(shard)[:5]]
# What stands in place of the first row
CHANGES: dict[str, list[str]] = {
    "removed": [],
    "the same id, opposite": [row(ONE[0], -300.0)],
    "the same id, huge": [row(ONE[0], -1e300)],
    "the same id, damaged": [row(ONE[0], -300.0).replace("1.0", "nan")],
    "one more, in its shard": [BASE[0], row(ONE[2], -1000.0)],
    "one more, in another shard": [BASE[0], row(TWO[1], -1000.0)],
    "another id in the same shard": [row(ONE[3], -300.0)],
}
ELSEWHERE = [row(TWO[1], -300.0)]


def totals(fedkern: Any, folder: Path, algorithm: str, rows: list[str], patch: pytest.MonkeyPatch) -> list[list[int]]:
    """The integer sums of all updates of a job with one client, whose releases are the same whatever its sums are."""
    found: list[list[int]] = []
    random = np.random.default_rng(5)

    def released(self: SecureSource, total: Any, sigma: float, step: int = 0) -> Any:
        found.append([int(number) for number in total])
        return np.rint(random.standard_normal(len(total)) * GRID_OF_A_CLIP)

    folder.mkdir()
    (folder / "a.csv").write_text("\n".join(["id,x,z,y", *rows]) + "\n")
    (folder / "job.toml").write_text(
        f"[job]\nrounds = {UPDATES}\n[data]\nclients = 'a.csv'\nresponse = 'y'\nrow_id = 'id'\nstandardise = 'none'\n"
        "[data.columns]\nx = {kind = 'numeric'}\nz = {kind = 'numeric'}\n"
        f"[model]\nfamily = 'gaussian'\n[algorithm]\nshards = {N_SHARDS}\nlocal_steps = 4\n{algorithm}\n{SHARDS}"
    )
    with patch.context() as here:
        here.setattr(SecureSource, "add_noise", released)
        ended = fedkern("run", folder / "job.toml", "--out", folder / "out")
    assert (ended.code, ended.err, len(found)) == (0, "", UPDATES)
    return found


def farthest(one: list[list[int]], other: list[list[int]]) -> float:
    """The longest way, in clips, that an update moved; exact up to the root, for these are sums of integers."""
    squares = [sum((u - v) ** 2 for u, v in zip(a, b)) for a, b in zip(one, other)]
    assert all(type(square) is int for square in squares)
    return math.sqrt(max(squares)) / GRID_OF_A_CLIP


@pytest.mark.parametrize("optimiser", ["exact", pytest.param("adagrad", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("variant", ["local-averaging", "virtual-clients"])
def test_neighbours_move_the_sum_of_shards_as_far_as_is_accounted(
    fedkern: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, optimiser: str
) -> None:
    algorithm = f"variant = '{variant}'\noptimiser = '{optimiser}'"
    rest = BASE[1:]

    def sums(name: str, rows: list[str]) -> list[list[int]]:
        return totals(fedkern, tmp_path / name, algorithm, rows, monkeypatch)

    base = sums("base", BASE)
    certificate = json.loads((tmp_path / "base" / "out" / "summary.json").read_text())["privacy"]["a"]
    accounted = Mechanism(sampling="shards", clip=2.0, dimension=6, noise_multiplier=16.0)
    assert certificate["neighbours"] == accounted.neighbours
    assert certificate["neighbours"] == "add or remove one example, or replace its values under the same id"
    assert certificate["epsilon"] == accounted.epsilon(UPDATES, 1e-3)
    reached = {name: farthest(base, sums(str(k), [*rows, *rest])) for k, (name, rows) in enumerate(CHANGES.items())}
    assert max(reached.values()) <= accounted.sensitivity_factor, reached
    assert max(reached.values()) > (1.9 if optimiser == "exact" else 1.7)  # so the bound is that of these neighbours
    # What is no neighbour: a row that is replaced by one with another id moves two shards
    assert 3.3 < farthest(base, sums("elsewhere", [*ELSEWHERE, *rest])) <= 2 * accounted.sensitivity_factor
