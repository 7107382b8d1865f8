"""Maps whose server gets sums of all clients' gradients: the same fit, and no client's own gradient on the wire."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core import masked
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.core.tells import Tells
from fedkern.algorithms.core.until import Moving
from fedkern.algorithms.exchanges.answers import Settled
from fedkern.algorithms.sfvi import machine as sfvi_machine
from fedkern.errors import JobError, LostPeer
from fedkern.methods.sigma import run as sigma_run
from methods.sigma.test_weights import job as gaussian
from support import sigma_artifacts as artifacts
from support.interrupted import run
from support.mask_streams import tell_one_another_thing
from support.transcripts import number_of, of_run
from support.wires import checked_and_run, ledgers, of_one_client

SFVI = {"inference": "sfvi"}
HMC = {"inference": "hmc", "leapfrog_steps": 2, "burn_in": 20}


def job(folder: Path, algorithm: dict[str, Any], *, secure: bool = True, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    artifacts.written(folder / "prior")
    artifacts.counts(folder / "rows")
    tables: dict[str, dict[str, Any]] = {
        "job": {"method": "sigma", "rounds": 60, "seed": 3} | ({"sums": "secure"} if secure else {}),
        "data": {"clients": "rows/*.csv", "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": "prior"},
        "algorithm": algorithm,
    }
    tables = {name: {**tables.get(name, {}), **more.get(name, {})} for name in {**tables, **more}}
    lines = []
    for name, table in tables.items():
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
        for below in table.keys() - plain.keys():
            lines += [f"[{name}.{below}]", *(f"{key} = {json.dumps(value)}" for key, value in table[below].items())]
    (folder / "job.toml").write_text("\n".join(lines))
    return folder / "job.toml"


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives clients the random numbers of the job's seed, as without masks, so that results can be compared."""
    monkeypatch.setattr(sigma_run, "_seed", lambda run, model, client: model.seed)


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize(
    ("algorithm", "more", "wanted"),
    [
        (SFVI, {}, {"MaskedGradientMore"}),
        (SFVI, {"output": {"bound": False, "reweigh": False}}, {"MaskedGradient"}),
        (HMC, {}, {"MaskedGradient", "MaskedGradientMore"}),
    ],
    ids=["bound", "without", "chains"],
)
def test_the_fit_is_that_of_a_job_without_masks(
    algorithm: dict[str, Any], more: dict[str, Any], wanted: set[str], tmp_path: Path
) -> None:
    plain = fedkern.run(job(tmp_path / "plain", algorithm, secure=False, **more))
    hidden = checked_and_run(job(tmp_path / "masked", algorithm, **more), tmp_path / "out", wanted=tuple(wanted))
    assert plain.parameters.keys() == hidden.parameters.keys()
    for name, numbers in plain.parameters.items():
        for figure in ("mean", "sd"):
            assert hidden.parameters[name][figure] == pytest.approx(numbers[figure], rel=1e-6, abs=1e-7), (name, figure)
    assert hidden.summary["clients"] == plain.summary["clients"]
    kinds = {kind for _, kind in ledgers(tmp_path / "out")}
    assert {"MaskedLevelSums", *wanted} <= kinds
    assert of_one_client(tmp_path / "out") == set()


@pytest.mark.parametrize("algorithm", [SFVI, HMC], ids=["fit", "chains"])
def test_no_other_party_can_make_a_client_s_random_numbers(algorithm: dict[str, Any], tmp_path: Path) -> None:
    first, second = (fedkern.run(job(tmp_path / name, algorithm)) for name in ("one", "two"))
    assert first.parameters != second.parameters
    plain = [fedkern.run(job(tmp_path / name, algorithm, secure=False)).parameters for name in ("three", "four")]
    assert plain[0] == plain[1]


@pytest.mark.usefixtures("keyed")
def test_sums_over_areas_are_those_of_a_job_without_masks(tmp_path: Path) -> None:
    fit = {"output": {"fit": True}}
    plain = fedkern.run(job(tmp_path / "plain", SFVI, secure=False, **fit)).summary["sigma"]["fit"]
    hidden = checked_and_run(job(tmp_path / "masked", SFVI, **fit), tmp_path / "out", wanted=("MaskedFitSums",)).summary
    assert hidden["sigma"]["fit"] == pytest.approx(plain, rel=1e-6)
    assert "FitSums" not in {kind for _, kind in ledgers(tmp_path / "out")}
    assert any("which, the server cannot know" in note for note in hidden["notes"])


def test_clients_that_were_told_other_units_give_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_one_another_thing(monkeypatch)
    with pytest.raises(RemoteFault, match=r"masks do not cancel: clients were told different things"):
        fedkern.run(job(tmp_path, SFVI))


def test_a_stopped_fit_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = cycle(range(1, 4))  # one for each client of each run that begins; a resumed one has kept its own
    monkeypatch.setattr("fedkern.jobs.run.Run.secret_key", lambda *about: next(numbers))
    path = job(tmp_path / "job", SFVI)
    with pytest.raises(LostPeer, match="stopped by SIGTERM"):
        run(path, tmp_path / "out", stop=80)
    resumed, whole = run(path, tmp_path / "out", resume=True), run(path, None)
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("keyed")
def test_a_fit_that_asks_whether_all_has_settled_asks_for_a_sum(tmp_path: Path) -> None:
    algorithm, more = SFVI | {"until": {"max_rounds": 1700}}, {"job": {"rounds": "until"}}
    plain = fedkern.run(job(tmp_path / "plain", algorithm, secure=False, **more))
    hidden = fedkern.run(job(tmp_path / "masked", algorithm, **more), out=tmp_path / "out")
    assert hidden.summary["rounds"] == plain.summary["rounds"]
    assert of_one_client(tmp_path / "out") == set()


def test_federations_whose_sums_agree_give_the_server_one_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients with one prior, in another order: which of them has which rows is in nothing that the server gets."""
    client = sfvi_machine.client
    monkeypatch.setattr(sigma_run, "_seed", lambda *about: 7)

    def by_rows(name: str, index: int, settings: Any, site: Any, *more: Any) -> Any:
        return client(name, number_of(site), settings, site, *more)

    monkeypatch.setattr("fedkern.methods.sigma.run.sfvi.client", by_rows)
    told = []
    for order in ((0, 1, 2), (2, 0, 1)):
        path = job(tmp_path / f"{order}", SFVI, output={"fit": True})
        first, *others = artifacts.written(path.parent / "prior", sizes=(5, 5, 5))
        alike = [replace(one, parts=first.parts, tau2=first.tau2, true_variance=first.true_variance) for one in others]
        artifacts.artifact.write(path.parent / "prior", first.common, [first, *alike])
        random = np.random.default_rng(3)
        rows = [[(f"{i}", int(random.poisson(n)), n * random.uniform(0.5, 2)) for i in range(5)] for n in (2, 60, 900)]
        for name, k in zip(artifacts.NAMES, order):
            lines = ["district,cases,expected", *(f"{name}-{i},{cases},{expected}" for i, cases, expected in rows[k])]
            (path.parent / "rows" / f"{name}.csv").write_text("\n".join(lines) + "\n")
        with of_run() as lines:
            fedkern.run(path)
        told.append(lines)
    assert told[0] == told[1]
    kinds = {line[0] for line in told[0]}
    assert {"MaskedLevelSums", "MaskedGradientMore", "MaskedSettled", "MaskedFitSums"} <= kinds
    assert {line[1] for line in told[0] if isinstance(line[0], int)} <= {"SchemaReply", "ColumnNotes", "Holds", "VerdictHeard"}


@pytest.mark.parametrize("bits", [(1, 1, 1), (1, 0, 1), (0, 0, 0)])
def test_all_have_settled_where_each_has(bits: tuple[int, ...]) -> None:
    for kind in (Moving, Settled):
        numbers = np.sum([kind(7, bit).numbers() for bit in bits], axis=0)
        assert kind.of_sum(7, numbers, {}) == kind(7, int(all(bits)))


@pytest.mark.parametrize(
    ("algorithm", "more", "told"),
    [
        ({}, {}, 'algorithm.inference must be "sfvi", "hmc" or "mala"'),
        ({"inference": "nested"}, {}, 'algorithm.inference = "nested" must be'),
        ({"inference": "sfvi-avg"}, {}, 'algorithm.inference = "sfvi-avg" must be'),
        (SFVI, {"privacy": {"epsilon": 1.0, "delta": 0.0, "table": "t"}}, "under masks that nobody has by then"),
    ],
)
def test_jobs_that_cannot_have_it_are_refused(algorithm: dict[str, Any], more: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(JobError) as fault:
        fedkern.run(job(tmp_path, algorithm, **more))
    assert told in str(fault.value)


def test_the_sum_of_a_map_is_said_to_tell_its_counts() -> None:
    tells = masked.MaskedGradient.tells
    assert isinstance(tells, Tells)
    assert "it hides whose number it was, not what the sum says" in tells.what
    assert "the response of every area" in tells.computed


@pytest.mark.nightly
@pytest.mark.usefixtures("keyed")
def test_weights_are_those_of_a_job_without_masks(tmp_path: Path) -> None:
    """Of a Gaussian response with known scales, whose fit settles soon: the server asks for log-likelihoods at its draws."""
    path, fitted = gaussian(tmp_path), {"algorithm": {"inference": "sfvi"}}
    plain = fedkern.run(path, **fitted)
    hidden = fedkern.run(path, job={"sums": "secure"}, out=tmp_path / "out", **fitted)
    assert hidden.summary["converged"] is plain.summary["converged"] is True
    for name, value in plain.summary["sigma"]["weights"].items():
        if isinstance(value, float):
            assert hidden.summary["sigma"]["weights"][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    kinds = {kind for _, kind in ledgers(tmp_path / "out")}
    assert "MaskedLogTerms" in kinds
    assert "LogTerms" not in kinds
