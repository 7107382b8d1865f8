"""Sparse jobs whose server gets sums of all clients' draws: the draws of a job whose server adds exactly, and no client's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs import machine as gibbs_machine
from fedkern.algorithms.gibbs import sites, sweeps
from fedkern.algorithms.gibbs.settings import Layout, Settings, Sums
from fedkern.errors import FedkernError, JobError
from fedkern.privacy.masks import ONCE, ROUND, holds
from methods.sparse.test_jobs import job
from support import chosen, wires
from support.interrupted import run
from support.mask_streams import tell_one_another_thing, watched_streams
from support.transcripts import number_of, of_run

CASES = {
    "regression": ("sparse", {}),
    "slab": ("sparse", {"model": {"slab": 1.5}, "algorithm": {"scales": "expanded"}}),
    "graph": ("mrf", {}),
}
OPEN = {"algorithm": {"aggregate": "sums", "random_source": "secure"}}
swept_sums = sweeps.swept_sums


def same_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the next run begin with the same secret numbers as the last one before it."""
    numbers = itertools.count(1)
    monkeypatch.setattr("fedkern.jobs.run.Run.secret_key", lambda *about: next(numbers) * 0x9E3779B97F4A7C15 % 2**64)


def sections(more: Mapping[str, Any] | None = None, *, secure: bool = True) -> dict[str, dict[str, Any]]:
    """Keys beside those of the job file, of a short job."""
    tables: dict[str, dict[str, Any]] = {"job": {"rounds": 100}, "algorithm": {"burn_in": 30}}
    for one in (more or {}, {"job": {"sums": "secure"}} if secure else OPEN):
        for name, table in one.items():
            tables[name] = tables.get(name, {}) | table
    return tables


def added_exactly(settings: Settings, values: Any, sums: Mapping[int, np.ndarray], n_clients: int, step: int) -> Any:
    """The sweep of an open job whose server rounds each sum over clients once."""
    total = np.array([math.fsum(column) for column in zip(*(one.ravel().tolist() for one in sums.values()))])
    return swept_sums(settings, values, {0: total.reshape(next(iter(sums.values())).shape)}, n_clients, step)


@pytest.mark.parametrize("case", CASES)
def test_draws_are_those_of_an_open_job_that_adds_exactly(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, more = CASES[case]
    wanted = ("SumKey", "MaskedSums")
    path = job(tmp_path, kind)
    same_secrets(monkeypatch)
    secure = wires.checked_and_run(path, tmp_path / "out", wanted=wanted, **sections(more))
    monkeypatch.setattr(gibbs.sweeps, "swept_sums", added_exactly)
    same_secrets(monkeypatch)
    plain = fedkern.run(path, **sections(more, secure=False))
    assert secure.summary["parameters"] == plain.summary["parameters"]
    assert secure.summary["clients"] == plain.summary["clients"]
    # What a sparse model needs by site.
    assert wires.of_one_client(tmp_path / "out") <= {"Counts", "ColumnValues", "ColumnMeans", "ColumnMoments"}


def test_no_other_party_can_make_a_client_s_random_numbers(tmp_path: Path) -> None:
    """Two runs have other draws: numbers that follow from the seed would make each sum an equation in the moments."""
    path = job(tmp_path)
    first, second = (fedkern.run(path, **sections()).summary["parameters"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("fault", ["one client", "a sum"])
def test_a_wrong_number_of_clients_or_sum_is_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    path = job(tmp_path)
    same_secrets(monkeypatch)
    first = fedkern.run(path, **sections()).summary["parameters"]

    def wrong(settings: Settings, values: Any, sums: Mapping[int, np.ndarray], n_clients: int, step: int) -> Any:
        if fault == "one client":
            return swept_sums(settings, values, sums, 1, step)
        return swept_sums(settings, values, {k: (1 - 1e-9) * one for k, one in sums.items()}, n_clients, step)

    monkeypatch.setattr(gibbs.sweeps, "swept_sums", wrong)
    same_secrets(monkeypatch)
    assert fedkern.run(path, **sections()).summary["parameters"] != first


def test_wide_words_hold_all_scales_that_can_be_drawn() -> None:
    """1 / lambda^2 is within 1e-60 and 1e60 (docs/spec/sparse.md, section 5): its word loses less than a float's last digit."""
    precision = 10.0 ** np.linspace(-60, 60, 121)
    unit, below = 2.0**-ONCE.fraction, precision * 2.0**-53
    assert (unit / 2 < below).all()
    assert (precision < ONCE.each(1000)).all()
    assert not holds(precision, ROUND, 3).all()  # as words of rounds do not


def test_a_stopped_job_goes_on_with_new_keys_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, streams = job(tmp_path), watched_streams(monkeypatch)
    same_secrets(monkeypatch)
    sets = ("job.sums=secure", "job.rounds=100", "algorithm.burn_in=30", "algorithm.checkpoint_every=1e-6")
    with pytest.raises(FedkernError):
        run(path, tmp_path / "out", *sets, stop=150)
    resumed = run(path, tmp_path / "out", *sets, resume=True)  # the seeds are in the clients' own checkpoints
    same_secrets(monkeypatch)
    whole = run(path, None, *sets)
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    streams.check(starts=3)


def test_further_runs_of_the_sampler_use_no_mask_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs begin with the same question: the count of masked messages goes on from one to the next."""
    streams = watched_streams(monkeypatch)
    fedkern.run(job(tmp_path), **sections({"output": {"sensitivity": True}}))
    streams.check(starts=1)


def test_clients_that_were_told_other_scales_give_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_one_another_thing(monkeypatch)
    with pytest.raises(RemoteFault, match="masks do not cancel: clients were told different things"):
        fedkern.run(job(tmp_path), **sections())


def test_rows_without_themselves_are_added_under_masks(tmp_path: Path) -> None:
    loo = {"output": {"loo": True}}
    secure = fedkern.run(job(tmp_path), out=tmp_path / "out", **sections(loo)).summary
    assert secure["loo"]["rows"] == 180
    kinds = {kind for _, kind in wires.ledgers(tmp_path / "out")}
    assert "MaskedLooSums" in kinds
    assert "LooSums" not in kinds


@pytest.mark.parametrize("law", ["laplace", "uniform"])
def test_the_shape_of_errors_is_that_of_all_clients_together(law: str, tmp_path: Path) -> None:
    random, B = np.random.default_rng(6), np.array([[1.0, 0.0, 0.0], [-0.6, 1.0, 0.0], [0.0, 0.4, 1.0]])
    paths = []
    for name in "abc":
        rows = getattr(random, law)(size=(300, 3)) @ np.linalg.inv(B).T + 5.0
        paths.append(tmp_path / f"{name}.csv")
        np.savetxt(paths[-1], rows, delimiter=",", header="a,b,c", comments="")
    keys = {"data": {"clients": [*map(str, paths)]}, "model": {"kind": "sem"}}
    job = {"job": {"method": "sparse", "rounds": 150, "sums": "secure"}, "algorithm": {"burn_in": 50, "chains": 2}} | keys
    found = fedkern.run(job, out=tmp_path / "out")
    assert sum("not Laplace" in text for text in found.summary["notes"]) == (law != "laplace")
    assert {"MaskedErrorShape", "ErrorShape"} & {kind for _, kind in wires.ledgers(tmp_path / "out")} == {"MaskedErrorShape"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"algorithm": {"aggregate": "locals"}}, 'algorithm.aggregate = "locals" sends each client\'s coefficients'),
        ({"algorithm": {"statistics": "pooled"}}, 'statistics = "pooled", which sends each client\'s statistics'),
        ({"algorithm": {"on_loss": "drop"}}, "would be the lost client's"),
        ({"algorithm": {"participation": 0.5}}, "participation < 1"),
        ({"algorithm": {"random_source": "keyed"}}, "random numbers takes the sums apart"),
        ({"data": {"small": "leave-out"}}, "the server tells who takes part"),
        ({"model": {"missing": "impute"}}, "fill or leave out the rows that lack a cell in the files"),
        ({"model": {"splines": {"x1": [-1.0, 0.0, 1.0]}}}, 'take model.scale = "given", which needs none'),
        ({"output": {"site_fits": True}}, "output.site_fits is made of them"),
        ({"output": {"leave_one_out": True}}, "output.leave_one_out is made of them"),
    ],
)
def test_jobs_that_cannot_have_it_are_refused(more: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(JobError) as fault:
        fedkern.run(job(tmp_path), **sections(more))
    assert told in str(fault.value)


@pytest.mark.parametrize("kind", ["regression", "mrf", "sem"])
def test_federations_whose_sums_agree_give_the_server_one_transcript(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same clients in another order: which of them has which rows is in nothing that the server gets, in jobs in a row."""
    client = gibbs_machine.client
    monkeypatch.setattr("fedkern.methods.sparse.run._seed", lambda *about: 7)

    def by_rows(name: str, index: int, settings: Settings, site: Any, *more: Any) -> Any:
        return client(name, number_of(site), settings, site, *more)

    monkeypatch.setattr("fedkern.methods.sparse.run.gibbs.client", by_rows)
    random, names = np.random.default_rng(4), ["a", "b", "c"]
    rows = [random.normal(size=(n, 3)) * size for n, size in ((30, 1.0), (70, 30.0), (45, 0.01))]
    told = []
    for order in ((0, 1, 2), (2, 0, 1)):
        for name, k in zip(names, order):
            np.savetxt(tmp_path / f"{name}.csv", rows[k], delimiter=",", header="x1,x2,y", comments="")
        data = {"clients": [str(tmp_path / f"{name}.csv") for name in names]} | (
            {"response": "y"} if kind == "regression" else {}
        )
        tables = {"job": {"method": "sparse", "rounds": 40, "sums": "secure"}, "data": data}
        tables |= {"model": {"kind": kind, "scale": "none"}, "algorithm": {"burn_in": 10, "chains": 2}}
        tables |= {"output": {"loo": True, "sensitivity": True}} if kind == "regression" else {}
        with of_run() as lines:
            fedkern.run(tables)
        told.append(lines)
    assert told[0] == told[1]
    kinds = {line[0] for line in told[0]}
    assert {"MaskedSums"} | ({"MaskedErrorShape"} if kind == "sem" else set()) <= kinds
    assert {line[1] for line in told[0] if isinstance(line[0], int)} <= {
        "SchemaReply",
        "ColumnNotes",
        "ColumnValues",
        "VerdictHeard",
    }


@pytest.mark.nightly
def test_a_server_that_chooses_its_questions_tells_clients_coefficients_apart_without_names() -> None:
    """The page says so: a known limit, and no fault. The precisions' sum has a peak at each client's own slope."""
    random, slopes, clients = np.random.default_rng(0), list[float](), []
    settings = chosen.gibbs(layout=Layout(np.zeros((1, 1), int)), rounds=10_000, burn_in=1, aggregate="sums", masked=True)
    for k, (slope, n) in enumerate(((0.2, 80), (0.5, 200), (0.9, 120))):
        X = random.normal(size=(n, 1))
        y = slope * X[:, 0] + 0.5 * random.normal(size=n)
        slopes.append(float(np.polyfit(X[:, 0], y, 1)[0]))
        clients.append(gibbs_machine.client(f"{k}", k, settings, sites.Regression(sites.Factor.of(X, y)), None, 7 + k))
    rounds = itertools.count()

    def precision(theta: float, tau_sq: float) -> float:
        question = gibbs_machine.Globals(next(rounds), 0, np.full((4, 1), theta), np.full((4, 1), tau_sq))
        total = np.zeros((3, 4, 1))
        for k, client in enumerate(clients):
            clients[k], (told,) = gibbs_machine.client_receive(client, question)
            assert isinstance(told, Sums)
            total += told.sums
        return float(np.log(total[0]).mean())

    grid = np.linspace(-0.2, 1.3, 151)
    seen = np.zeros(len(grid))
    for _ in range(12):
        for i, theta in enumerate(grid):
            for _ in range(3):  # rounds without a prior, in which every client comes back to its own rows
                precision(theta, 1e6)
            seen[i] += precision(theta, 1e-4)
    smooth = np.convolve(seen, np.ones(7) / 7, "same")
    peaks = [grid[i] for i in range(4, len(grid) - 4) if smooth[i] == smooth[i - 4 : i + 5].max()]
    assert np.abs(np.array(peaks) - slopes).max() < 0.03
