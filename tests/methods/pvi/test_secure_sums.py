"""Jobs of `pvi` whose server gets sums of all clients' updates: the same posterior, and nothing of one client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.algorithms.core.masked import Hider
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.api import check_job, perform
from fedkern.errors import FedkernError, JobError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.privacy.masks import Pairs
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support import wires
from support.interrupted import Crash, run
from support.mask_streams import Streams, many_starts, watched_streams
from support.relayed import Threads, over_threads

CLIENTS = ("ada", "bo", "cy")
AT_ONCE = {"schedule": "synchronous"}
DAMPED = AT_ONCE | {"optimiser": "adagrad", "local_steps": 3, "average": "half"}


def write_rows(folder: Path) -> None:
    """Writes rows/NAME.csv of each client: two covariates, a binary response, a count and a measurement."""
    rng = np.random.default_rng(5)
    (folder / "rows").mkdir()
    for k, name in enumerate(CLIENTS):
        n = 50 + 20 * k
        x = rng.normal(size=(n, 2)) + 0.3 * k
        eta = 0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.2
        binary, count = rng.random(n) < 1 / (1 + np.exp(-eta)), rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n))
        table = pd.DataFrame(
            {"a": x[:, 0], "b": x[:, 1], "yes": binary.astype(int), "count": count, "y": eta + rng.normal(size=n)}
        )
        table.to_csv(folder / "rows" / f"{name}.csv", index=False)


def job(folder: Path, response: str, family: str, algorithm: dict[str, Any], *, secure: bool = True, **more: Any) -> Path:
    """The job file beside the rows."""
    tables = {
        "job": {"method": "pvi", "seed": 2} | ({"sums": "secure"} if secure else {}),
        "data": {"clients": ["rows/*.csv"], "response": response, "ignore": sorted({"yes", "count", "y"} - {response})},
        "model": {"family": family},
        "algorithm": {"checkpoint_every": 1e-6} | algorithm,
        "output": {"draws": 50, "chains": 2},
        "disclosure": {"level": "strict"},  # more draws are weighed, which have a tail
    }
    tables = {name: tables.get(name, {}) | more.get(name, {}) for name in {**tables, **more}}
    lines = [[f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())] for name, table in tables.items()]
    path = folder / f"job-{len(list(folder.glob('job-*.toml')))}.toml"
    path.write_text("\n".join(line for part in lines for line in part))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pvi-secure")
    write_rows(made)
    return made


CASES = {
    "logistic": ("yes", "bernoulli", AT_ONCE, {}, "MaskedSiteDelta"),
    "scale": ("y", "gaussian", AT_ONCE, {}, "MaskedScaledSiteDelta"),
    "r": ("count", "negative-binomial", AT_ONCE, {"model": {"scale": 2.0}}, "MaskedSiteDelta"),
    "damped": ("count", "poisson", DAMPED, {"job": {"rounds": 12}, "model": {"covariance": "diagonal"}}, "MaskedSiteDelta"),
    "split": ("count", "poisson", {"variant": "bcm-split"}, {}, "MaskedSiteDelta"),
    "global": ("yes", "bernoulli", {"variant": "global-vi"}, {"job": {"rounds": 20}}, "MaskedGradientOfQ"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_that_of_a_job_without_masks(case: str, folder: Path, tmp_path: Path) -> None:
    response, family, algorithm, more, wanted = CASES[case]
    open_job = fedkern.run(job(folder, response, family, algorithm, secure=False, **more))
    path = job(folder, response, family, algorithm, **more)
    kinds = ("SumKey", "MaskedColumnSums", "MaskedLevelSums", wanted, "MaskedArrival")
    secure = wires.checked_and_run(path, tmp_path / "out", wanted=kinds)
    assert secure.parameters.keys() == open_job.parameters.keys()
    for name, numbers in open_job.parameters.items():
        for figure, value in numbers.items():
            assert secure.parameters[name][figure] == pytest.approx(value, rel=1e-9, abs=1e-10), (name, figure)
    for figure in ("rounds", "converged", "clients", "stop"):
        assert secure.summary[figure] == open_job.summary[figure], figure
    assert wires.of_one_client(tmp_path / "out") == set()


def test_a_linear_posterior_is_that_of_all_rows_at_one_place(folder: Path) -> None:
    secure = fedkern.run(job(folder, "y", "gaussian", AT_ONCE, model={"scale": 1.1}))
    rows = pd.concat([pd.read_csv(folder / "rows" / f"{name}.csv") for name in CLIENTS])
    pooled = fedkern.run(
        {
            "job": {"method": "pvi"},
            "data": {"response": "y", "ignore": ["yes", "count"]},
            "model": {"family": "gaussian", "scale": 1.1},
        },
        data={"all": rows},
    )
    for name, numbers in pooled.parameters.items():
        for figure, value in numbers.items():
            assert secure.parameters[name][figure] == pytest.approx(value, rel=1e-9, abs=1e-10), (name, figure)


def test_a_client_with_few_rows_is_in_the_verdict_and_nobody_knows_that_it_has_few() -> None:
    """Its X'WX alone would be its rows up to a rotation; the sum is that of all rows."""
    rng, data = np.random.default_rng(6), {}
    for name, rows in zip(CLIENTS, (60, 21, 70)):
        X = rng.normal(size=(rows, 11))
        data[name] = X, X[:, 0] + rng.normal(size=rows)
    tables = {"job": {"method": "pvi", "rounds": 9}, "model": {"family": "gaussian", "covariance": "diagonal"}}
    tables["disclosure"] = {"level": "strict"}
    said = {}
    for secure in (True, False):
        own = {"job": tables["job"] | ({"sums": "secure"} if secure else {}), "algorithm": AT_ONCE}
        said[secure] = str(fedkern.run(tables | own, data=data).summary["verdict"])
    assert said[True].startswith("settled: ")
    assert "client 'bo' has too few rows to tell X'WX of 12 coefficients" in said[False]


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_a_response_decides_nothing(unit: float) -> None:
    """What a row may add has a limit in the response's agreed scale, and not in the data's unit."""
    rng, data, other = np.random.default_rng(7), {}, {}
    for name in CLIENTS:
        X = rng.normal(size=(60, 2))
        y = 3.0 + X[:, 0] + rng.normal(size=60)
        data[name], other[name] = (X, y), (X, unit * y)
    tables = {"job": {"method": "pvi", "sums": "secure"}, "model": {"family": "gaussian"}}
    plain, scaled = (fedkern.run(tables, data=one) for one in (data, other))
    assert plain.summary["verdict"].startswith("settled")
    assert scaled.summary["verdict"].startswith("settled")
    for name, numbers in plain.parameters.items():
        for figure, value in numbers.items():
            assert scaled.parameters[name][figure] == pytest.approx(unit * value, rel=1e-6), (name, figure)


# What it wants, and what it says --------------------


@pytest.mark.parametrize(
    ("algorithm", "more", "told"),
    [
        (
            {"schedule": "sequential"},
            {},
            'algorithm.schedule = "sequential" takes one client\'s answer at a time; take "synchronous"',
        ),
        ({"schedule": "asynchronous"}, {"job": {"rounds": 9}}, 'take "synchronous", or leave it out'),
        ({"schedule": "random"}, {}, 'take "synchronous", or leave it out'),
        ({"estimator": "stl"}, {}, 'algorithm.estimator = "stl" a server knows each client\'s random numbers'),
        (
            {"batch": 0.5, "random_source": "keyed"},
            {},
            'could compute by regression how each part of a sum depends on its own; take "secure"',
        ),
        ({}, {"data": {"small": "leave-out"}}, "the server tells who takes part"),
        ({}, {"data": {"clients": ["rows/ada.csv", "rows/bo.csv"]}}, "needs 3 clients, and there are 2 (ada, bo)"),
        ({}, {"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}}, "under masks that nobody has by then; remove it"),
    ],
)
def test_jobs_that_cannot_have_it_are_refused_before_anything_leaves(
    algorithm: dict[str, Any], more: dict[str, Any], told: str, folder: Path, tmp_path: Path
) -> None:
    path = job(folder, "yes", "bernoulli", algorithm, **more)
    for ask in (lambda: fedkern.run(path, out=tmp_path / "out"), lambda: check_job(InProcess(), *load(path))):
        with pytest.raises(JobError) as fault:
            ask()
        assert told in str(fault.value)
    assert not wires.ledgers(tmp_path / "out")


def test_clients_that_nobody_told_when_to_work_work_at_once(folder: Path) -> None:
    assert load(job(folder, "yes", "bernoulli", {}))[0].algorithm.schedule == "synchronous"
    assert load(job(folder, "yes", "bernoulli", {}, secure=False))[0].algorithm.schedule == "sequential"


# Masks --------------------


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return watched_streams(monkeypatch)


@pytest.mark.parametrize(("how", "after"), [("stop", 15), ("crash", 17), ("crash", 24)])
def test_a_job_that_goes_on_has_new_keys_and_the_same_bits(
    how: str, after: int, folder: Path, tmp_path: Path, streams: Streams
) -> None:
    path = job(folder, "count", "poisson", {})
    with pytest.raises((FedkernError, Crash)):
        run(path, tmp_path / "out", **{how: after})
    resumed, whole = run(path, tmp_path / "out", resume=True), run(path, None)
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    streams.check(starts=3)


@pytest.mark.parametrize("runs", [2, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_no_stream_meets_two_plaintexts(runs: int, folder: Path, tmp_path: Path, streams: Streams) -> None:
    """Clients keep their sites, optimisers and open changes: these go on with the server's sum, wherever it was stopped."""
    path = job(folder, "count", "poisson", DAMPED, job={"rounds": 6}, model={"covariance": "diagonal"})
    whole = fedkern.run(path)
    for seed in range(runs):
        assert many_starts(path, tmp_path / str(seed), seed).digest == whole.digest
    streams.check()


def test_no_stream_hides_two_messages_though_one_question_is_asked_twice(folder: Path, streams: Streams) -> None:
    """A job asks how far q is during its rounds and after them; all its exchanges count as one."""
    fedkern.run(job(folder, "yes", "bernoulli", {}))
    streams.check(starts=1)


def test_a_client_that_forgets_its_mask_ends_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide = Pairs.hide
    monkeypatch.setattr(Pairs, "hide", lambda own, *about: None if own.client == 1 else hide(own, *about))
    with pytest.raises(RemoteFault, match="masks do not cancel") as fault:
        fedkern.run(job(folder, "yes", "bernoulli", {}))
    assert "'bo'" not in str(fault.value)


def test_a_lost_client_ends_the_job_and_it_goes_on_when_it_is_back(folder: Path, tmp_path: Path, streams: Streams) -> None:
    path, results = job(folder, "count", "poisson", {}), list[Any]()
    short = Timeouts(lost=3.0, grace=1.0)

    class Losing(Threads):
        """A wire that loses one site once it has improved q three times."""

        def send(self, site: str, data: bytes) -> None:
            super().send(site, data)
            ledger = tmp_path / "bo" / "ledger" / "bo.jsonl"
            if site == "bo" and ledger.exists() and ledger.read_text().count("MaskedSiteDelta") == 3:
                self.lose(site, "its connection has ended")

    def main(resume: bool) -> Any:
        def run_place(place: Any, site: str | None) -> int:
            config, at = load(path)
            done = perform(place, config, at, Output(tmp_path / (site or "server"), resume=resume, quiet=True))
            results.extend([done] if place.is_server else [])
            return 0

        return run_place

    with threadpool_limits(1, user_api="blas"):
        codes, said, _ = over_threads(main(False), CLIENTS, timeouts=short, wire=Losing)
        assert codes[None] == 3
        assert "the sum of all less that of the others would be its number; --resume" in " ".join(text for _, text in said)
        codes, said, _ = over_threads(main(True), CLIENTS, timeouts=short)
    assert (set(codes.values()), said) == ({0}, [])
    assert results[0].digest == fedkern.run(path).digest
    streams.check(starts=3)


def test_a_client_that_was_told_other_columns_ends_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are agreed without masks: with one in another unit at all clients but one, a sum would be that one's."""
    known, know = list[bytes](), Hider.know

    def differently(own: Hider, told: bytes) -> None:
        known.append(told)
        know(own, told + bytes([own.pairs.client == 1]))

    monkeypatch.setattr(Hider, "know", differently)
    with pytest.raises(RemoteFault, match="do not cancel: clients were told different things"):
        fedkern.run(job(folder, "y", "gaussian", {}))
    assert b'"center":' in known[-1]
