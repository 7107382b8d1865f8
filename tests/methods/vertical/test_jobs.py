"""Vertical jobs from files to a result: what people read, what is refused, and what the wire carries."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.split import machine as vertical
from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.data.sets import heart_failure
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError, LostPeer, NumericalError, OwnFault
from fedkern.jobs.run import Output
from fedkern.methods import load, parse
from fedkern.models.split.site import Auxiliary, Linear, Site
from fedkern.transports.inprocess import InProcess
from support import chosen
from support.command import StopsAt, mpirun
from support.refusal import refusal
from support.wires import checked_and_run

FAST = {"rounds": 60}
BASE: dict[str, Any] = {"job": {"method": "vertical"}, "data": {"clients": ["x.csv"], "id": "id", "response": "y"}}


def job(tmp_path: Path, **size: int) -> Path:
    default = {"clients": 3, "rows": 120, "columns": 2, "seed": 2}
    return simulate("vertical", tmp_path / "vertical", Settings(**(default | size)))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {"rho": 0.0}}, "model.rho = 0: wanted a number greater than 0"),
        ({"model": {"rho": -1.0}}, "model.rho = -1: wanted a number greater than 0"),
        ({"model": {"rho": 1e7}}, "wanted above 1e-6 and below 1e6"),
        ({"model": {"augmentation": "power"}, "algorithm": {"response": "server"}}, "needs the response at every client"),
        ({"model": {"kind": "network", "augmentation": "power"}}, "has no auxiliary variables"),
        ({"model": {"kind": "multilevel"}}, 'data.group and model.kind = "multilevel" go together'),
        ({"model": {"family": "poisson"}, "algorithm": {"local_steps": 2}}, "a bounded curvature"),
        ({"algorithm": {"inference": "soul"}, "output": {"bound": True}}, "do not exist with"),
        ({"data": BASE["data"] | {"folds": 5, "fold": 5}}, "fold from 0 to folds - 1"),
        ({"data": BASE["data"] | {"folds": 5, "holdout": 0.1}}, "both keep rows for testing"),
        ({"data": BASE["data"] | {"offset": "o"}}, "data.offset is a column of the server's file"),
        ({"data": BASE["data"] | {"response": "id"}}, "must be different columns"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5}, "model": {"kind": "network"}}, "the private form is for kind"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5}, "algorithm": {"draws": 2}}, "have no private form; remove them"),
        (
            {"privacy": {"epsilon": 1.0, "delta": 1e-5}, "data": BASE["data"] | {"holdout": 0.1}},
            "would leave a client without noise",
        ),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5}, "data": BASE["data"] | {"standardise": "own"}}, "statistics of all rows"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5}}, "the server needs a file with the response"),
        ({"privacy": {"epsilon": 1.0}}, "privacy.delta is missing"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip_z": 1e-4}}, "privacy.clip_z = 0.0001: wanted at least 0.001"),
        ({"data": BASE["data"] | {"standardise": "exchange"}}, 'wanted "own"'),
        ({"model": {"kind": "lineal"}}, 'did you mean "linear"?'),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse({**BASE, **changes})
    assert text in str(caught.value)


def test_a_logistic_job_finds_what_was_simulated(tmp_path: Path) -> None:
    path = job(tmp_path, rows=600)
    result = fedkern.run(path, out=tmp_path / "out", job={"rounds": 2000}, algorithm={"cool_down": 0.5})
    truth = json.loads((path.parent / "truth.json").read_text())["parameters"]
    assert result.parameters.keys() == {"intercept"}
    assert result.metrics["accuracy"] > 0.6
    own: dict[str, Any] = {}
    for name in ("client-01", "client-02", "client-03"):
        own |= json.loads((tmp_path / "out" / f"client-{name}" / "posterior.json").read_text())["parameters"]
    slopes = {name: row for name, row in own.items() if name.startswith("theta[")}
    assert slopes.keys() == truth.keys() - {"intercept"}
    away = [(row["mean"] - truth[name]) / row["sd"] for name, row in slopes.items()]
    assert np.abs(away).max() < 6
    assert np.corrcoef([row["mean"] for row in slopes.values()], [truth[name] for name in slopes])[0, 1] > 0.8


VARIANTS: list[dict[str, Any]] = [
    {},
    {"algorithm": {"auxiliary": "mean-field", "covariance": "full"}},
    {"algorithm": {"local_steps": 3, "average": "none", "inputs": "complete", "memory": 0.99}},
    {"algorithm": {"batch_size": 20, "auxiliary": "mean-field"}},
    {"algorithm": {"draws": 2, "estimator": "entropy", "inputs": "paper"}},
    {"model": {"kind": "bayes-network", "rho": 1.0}},
    {"model": {"kind": "network"}},
    {"algorithm": {"inference": "soul", "auxiliary": "mean-field"}},
]


SENT = {"Ids", "ColumnNotes", "ZShare", "BoundShare", "Settled", "Predicted", "Prediction", "Received", "Kept", "VerdictHeard"}


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_variants_run_and_send_only_what_the_specification_names(tmp_path: Path, changes: dict[str, Any]) -> None:
    result = checked_and_run(job(tmp_path), tmp_path / "out", **({"job": FAST} | changes))
    assert np.isfinite(result.metrics["log_likelihood"])
    for name in ("client-01", "client-02", "client-03"):
        sent = [json.loads(line) for line in lines_of(tmp_path / "out" / "ledger" / f"{name}.jsonl")]
        assert {message["kind"] for message in sent} <= SENT
        assert sum(m["bytes"] for m in sent) == result.summary["wire"][name]["to_server"]["bytes"]


def with_response(path: Path, names: tuple[str, ...] = ("client-01", "client-02", "client-03")) -> None:
    """The server's response as one more column of the clients' files."""
    y = dict(line.split(",") for line in lines_of(path.parent / "server.csv"))
    for name in names:
        file = path.parent / "clients" / f"{name}.csv"
        write(file, [f"{line},{y[line.split(',')[0]]}" for line in lines_of(file)])


def test_power_likelihoods_take_two_exchanges_and_the_response_at_every_client(tmp_path: Path) -> None:
    path = job(tmp_path)
    with refusal(JobError, "client-01", "y"):
        fedkern.run(path, job=FAST, model={"augmentation": "power"})
    with_response(path)
    result = checked_and_run(path, tmp_path / "out", job=FAST, model={"augmentation": "power"}, output={"bound": True})
    assert np.isfinite(result.summary["elbo"])
    sent = [json.loads(line)["kind"] for line in lines_of(tmp_path / "out" / "ledger" / "client-02.jsonl")]
    assert sent.count("ZShare") == sent.count("LikelihoodShare") == FAST["rounds"]


def test_where_the_response_is_used_changes_no_bit(tmp_path: Path) -> None:
    path = job(tmp_path)
    at_server = fedkern.run(path, job=FAST)
    with_response(path)
    shared = checked_and_run(path, tmp_path / "out", job=FAST, algorithm={"response": "shared"})
    assert shared.digest == at_server.digest
    file = path.parent / "clients" / "client-02.csv"
    whole = lines_of(file)
    write(file, [*whole[:5], whole[5][:-1] + ("0" if whole[5][-1] == "1" else "1"), *whole[6:]])
    with pytest.raises(JobError, match="the response at the server and at 'client-02' is not the same"):
        fedkern.run(path, job=FAST, algorithm={"response": "shared"})


def test_a_client_tells_the_response_only_where_the_server_has_no_file(tmp_path: Path) -> None:
    path = job(tmp_path)
    at_server = fedkern.run(path, job=FAST)
    with refusal(JobError, "data.server", "y"):
        fedkern.run(_without_server(path), job=FAST)
    with_response(path, ("client-02",))
    told = checked_and_run(_without_server(path), tmp_path / "told", job=FAST)
    kinds = {
        name: {json.loads(line)["kind"] for line in lines_of(tmp_path / "told" / "ledger" / f"{name}.jsonl")}
        for name in ("client-01", "client-02")
    }
    assert "Response" in kinds["client-02"]
    assert "Response" not in kinds["client-01"]
    assert told.digest == at_server.digest


def _without_server(path: Path) -> Path:
    """The same job without a file of the server's."""
    other = path.with_name("told.toml")
    other.write_text(path.read_text().replace('server = "server.csv"\n', ""))
    return other


def test_rows_that_do_not_agree_are_named(tmp_path: Path) -> None:
    path = job(tmp_path)
    file = path.parent / "clients" / "client-02.csv"
    whole = lines_of(file)
    gone = whole[5].split(",")[0]
    write(file, whole[:5] + whole[6:])
    with pytest.raises(OwnFault) as caught:
        fedkern.run(path, job=FAST)
    assert "1 of its 120 rows are not at 'client-02'" in str(caught.value)
    assert gone not in str(caught.value)
    assert repr(gone) in caught.value.own
    write(file, [*whole, whole[3]])
    with refusal(OwnFault, "client-02", "1") as caught:
        fedkern.run(path, job=FAST)
    assert f"id '{whole[3].split(',')[0]}' stands in line 4 and in line 122" in caught.value.own
    write(file, [*whole[:3], "," + whole[3].partition(",")[2], *whole[4:]])
    with refusal(OwnFault, "client-02", "1") as caught:
        fedkern.run(path, job=FAST)
    assert "line 4: the row has no id" in caught.value.own
    write(file, [whole[0], whole[1].replace(whole[1].split(",")[0], "99"), *whole[2:]])
    with pytest.raises(JobError, match="all parties of a vertical job need the same rows"):
        fedkern.run(path, job=FAST)


def test_columns_that_are_missing_or_constant_are_named(tmp_path: Path) -> None:
    path = job(tmp_path)
    file = path.parent / "clients" / "client-03.csv"
    whole = lines_of(file)
    write(file, [line.split(",")[0] for line in whole])
    with pytest.raises(JobError, match=r"client 'client-03'.*no column is left beside id"):
        fedkern.run(path, job=FAST)
    write(file, [whole[0], *(",".join([*line.split(",")[:-1], "7"]) for line in whole[1:])])
    with pytest.raises(OwnFault, match=r"column no\. 3 has one value in all training rows") as caught:
        fedkern.run(path, job=FAST)
    assert "column 'x3_2' has one value" in caught.value.own
    write(file, [whole[0].replace("id", "key"), *whole[1:]])
    with pytest.raises(JobError, match=r"column 'id' \(data.id\) is missing"):
        fedkern.run(path, job=FAST)


def test_a_response_outside_its_domain_is_named(tmp_path: Path) -> None:
    path = job(tmp_path)
    server = path.parent / "server.csv"
    whole = lines_of(server)
    write(server, [*whole[:4], whole[4].split(",")[0] + ",2", *whole[5:]])
    with refusal(OwnFault, "server.csv", "y", "0", "1") as caught:
        fedkern.run(path, job=FAST)
    assert "line 5, column 'y': '2' is not 0 or 1" in caught.value.own
    write(server, [*whole[:4], whole[4].split(",")[0] + ",0.5", *whole[5:]])
    with pytest.raises(JobError, match="is not a count"):
        fedkern.run(path, job=FAST, model={"family": "poisson"})


def test_a_gaussian_response_in_a_small_unit_is_warned_of(tmp_path: Path) -> None:
    """Its coefficients' priors are N(0, 1) in whatever unit it has, the intercept's N(level, 5)."""
    path = job(tmp_path)
    said = []
    for factor, unit, sd in ((1.0, 1.0, {}), (100.0, 100.0, {}), (1.0, 100.0, {"prior": {"sd": 100.0}})):
        head, *rows = lines_of(path.parent / "server.csv")
        cells = [row.split(",") for row in rows]
        write(path.parent / "server.csv", [head, *(",".join([one[0], repr(factor * float(one[1]))]) for one in cells)])
        sizes = {"scale": 0.5 * unit, "rho": 0.5 * unit}
        notes = fedkern.run(path, job=FAST, model={"family": "gaussian", **sizes, **sd}).summary["notes"]
        said.append([note for note in notes if "in the response's unit" in note])
    assert [*map(len, said)] == [0, 1, 1]  # the intercept's is left, at the last


def test_a_step_that_leaves_the_finite_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(NumericalError, match=r"client 'client-0\d', round \d+: .* is not finite"):
        fedkern.run(
            job(tmp_path),
            job={"rounds": 2000},
            algorithm={"optimiser": "sgd", "learning_rate": 1e6, "auxiliary": "mean-field"},
            model={"family": "gaussian", "scale": 1e-3, "rho": 1e-3},
        )


def test_the_layer_of_a_gradient_that_is_not_finite_is_named() -> None:
    settings = chosen.split(seed=1, rounds=3, n_rows=4, n_clients=1)
    site = Site(Linear(np.eye(4)), Auxiliary("amortised", inputs=("residual",)))
    state, _ = vertical.client_receive(vertical.client("a", 0, settings, site), vertical.Begin(0))
    broken = site.initial(np.full(site.n_uniforms, 0.7))
    broken[site.parts["psi"]][-34:] = 1e200  # of the last layer
    with refusal(NumericalError, "a", "0", "1"), np.errstate(all="ignore"):
        vertical.client_receive(replace(state, parameters=broken), vertical.Residual(0, np.full((1, 4), 1e200)))


def test_rows_that_lack_a_party_are_scored(tmp_path: Path) -> None:
    result = checked_and_run(job(tmp_path, rows=300), tmp_path / "out", job={"rounds": 400}, output={"missing_party": True})
    prediction = result.summary["prediction"]
    assert prediction["without"].keys() == {"client-01", "client-02", "client-03"}
    for ways in prediction["without"].values():
        assert ways.keys() == {"conditional", "mean"}
    assert sum(row["rows"] for row in prediction["reliability"]) == prediction["rows"] == 60


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4))])
def test_ranks_do_not_change_a_bit(tmp_path: Path, ranks: int) -> None:
    path = job(tmp_path)
    ended = mpirun(ranks, "run", path, "--set", "job.rounds=40", "--out", tmp_path / "out", "--quiet")
    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["digest"] == fedkern.run(path, job={"rounds": 40}).digest


def test_rows_without_a_response_are_predicted(tmp_path: Path) -> None:
    path = job(tmp_path, rows=200)
    server = path.parent / "server.csv"
    whole = lines_of(server)
    ids = [line.split(",")[0] for line in whole[3:8]]
    write(server, [*whole[:3], *(f"{name}," for name in ids), *whole[8:]])
    result = checked_and_run(path, tmp_path / "out", job=FAST, output={"missing_party": True})
    assert result.summary["encoding"]["rows"] + result.summary["prediction"]["rows"] == 195
    head, *rows = [line.split(",") for line in lines_of(tmp_path / "out" / "predictions.csv")]
    assert head[:5] == ["id", "y", "predicted", "predictor_mean", "predictor_sd"]
    assert head[5:] == [f"predicted_without_client-0{k}" for k in (1, 2, 3)]
    assert {row[0] for row in rows if row[1] == ""} == set(ids)
    assert all(0 < float(row[2]) < 1 for row in rows)
    write(server, [whole[0], *(f"{line.split(',')[0]}," for line in whole[1:])])
    with pytest.raises(JobError, match="no row has a response"):
        fedkern.run(path, job=FAST)


PRIVATE = (
    "[privacy]\nepsilon = {}\ndelta = 1e-5\n{}\n"
    + "\n".join(f"[data.columns.x{k}_{j}]\ncenter = 0.0\nscale = 2.0" for k in (1, 2, 3) for j in (1, 2))
    + "\n"
)


def private(path: Path, epsilon: float, noise: str = "") -> Path:
    """The same job with noise on what clients send."""
    text = path.read_text().replace("holdout = 0.2\n", "").replace('auxiliary = "amortised"\n', "")
    other = path.with_name("private.toml")
    other.write_text(text + PRIVATE.format(epsilon, noise))
    return other


def test_a_private_job_spends_its_budget_and_says_so(tmp_path: Path) -> None:
    path = private(job(tmp_path), 3.0)
    result = checked_and_run(path, tmp_path / "out", job={"rounds": 5})
    assert result.summary["claim"] == "private"
    for certificate in result.privacy.values():
        assert 2.9 < certificate["epsilon"] <= 3.0
        assert certificate["steps"] == 10
    sent = [json.loads(line) for line in lines_of(tmp_path / "out" / "ledger" / "client-01.jsonl")]
    assert sum(message["charge"] for message in sent) == 10
    assert all("seconds" not in json.loads(line) for line in lines_of(tmp_path / "out" / "metrics.jsonl"))  # of clients' work
    assert not [path for path in (tmp_path / "out").rglob("posterior.json") if "client-" not in str(path)]


def test_plan_and_certificate_of_a_private_job_name_the_same_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = private(job(tmp_path), 3.0)
    certificate = next(iter(fedkern.run(path, job={"rounds": 2}).privacy.values()))
    assert certificate["neighbours"] == "replace the values of one example in the client's own columns, under the same id"
    assert main(["check", "--verbose", str(path), "--set", "job.rounds=2"]) == 0
    plan = capsys.readouterr().out
    assert f"neighbours: {certificate['neighbours']}\n" in plan
    assert f"trusts {certificate['trust']}\n" in plan


def test_a_spent_budget_ends_the_job_before_the_step_that_would_exceed_it(tmp_path: Path) -> None:
    path = private(job(tmp_path), 3.0, "noise_multiplier = 8.0")
    result = checked_and_run(path, tmp_path / "out", job={"rounds": 50}, wanted=("Refused",))
    assert result.stop == "budget"
    assert 0 < result.summary["rounds"] < 50
    assert all(certificate["epsilon"] <= 3.0 for certificate in result.privacy.values())


@pytest.mark.parametrize("noise", [8.0, 7.4, 6.8])
def test_check_says_what_a_spent_budget_comes_to(tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: float) -> None:
    """z is released once before the first round, so that the steps paid for are odd unless the job ends by itself."""
    path = private(job(tmp_path), 3.0, f"noise_multiplier = {noise}")
    certificate = next(iter(fedkern.run(path, job={"rounds": 50}).privacy.values()))
    assert main(["check", "--verbose", str(path), "--set", "job.rounds=50"]) == 0
    said = capsys.readouterr().out
    assert f"epsilon {certificate['epsilon']:.4g} after {certificate['steps']} releases" in said
    assert f"after {certificate['steps'] // 2} of 50 rounds: the budget ends the job" in said


def test_keyed_noise_claims_nothing(tmp_path: Path) -> None:
    result = fedkern.run(private(job(tmp_path), 3.0, 'noise_source = "keyed"'), job={"rounds": 5})
    assert result.summary["claim"] == "federated"
    assert {certificate["epsilon"] for certificate in result.privacy.values()} == {"inf"}


def test_a_bad_row_of_a_private_job_weighs_nothing_and_changes_nothing_that_others_see(tmp_path: Path) -> None:
    path = private(job(tmp_path), 3.0)
    file = path.parent / "clients" / "client-02.csv"
    whole = lines_of(file)
    write(file, [*whole[:7], whole[7].split(",")[0] + ",nan,1e300", *whole[8:]])
    result = fedkern.run(path, out=tmp_path / "out", job={"rounds": 5})
    assert result.stop == "rounds"
    assert json.loads((tmp_path / "out" / "client-client-02" / "rows.json").read_text())["faults"]["rows"] == 1


def test_a_line_that_cannot_be_read_ends_no_private_job(tmp_path: Path) -> None:
    """Its id, which is public and stands at an end of the line, is read nevertheless."""
    path = private(job(tmp_path), 3.0)
    file = path.parent / "clients" / "client-02.csv"
    whole = lines_of(file)
    cells = [line.split(",") for line in whole]
    odd = [",1,234.5,2", ",1", ',"1,2', ",1,2,", ',1,"2"3', ",1\0,2", ",1\udcff,2"]
    lines = [*whole[:3], *(cells[3 + k][0] + text for k, text in enumerate(odd)), *whole[3 + len(odd) :]]
    for n, order in enumerate(([0, 1, 2], [2, 1, 0])):
        ends = [lines[0], *lines[1:3]] if not n else [",".join(cells[k][j] for j in order) for k in range(3)]
        rest = lines[3:] if not n else [
            *(f"{text[1:]},{cells[3 + k][0]}" for k, text in enumerate(odd)),
            *(",".join(one[j] for j in order) for one in cells[3 + len(odd) :]),
        ]  # fmt: skip
        file.write_bytes("\n".join([*ends, *rest, ""]).encode(errors="surrogateescape"))
        result = fedkern.run(path, out=tmp_path / str(n), job={"rounds": 5})
        assert result.stop == "rounds"
        faults = json.loads((tmp_path / str(n) / "client-client-02" / "rows.json").read_text())["faults"]
        assert faults["rows"] == len(odd)


def rank_of(job: Path, rank: int) -> int | None:
    """The process of a rank of the mpirun job with this file."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            mine = str(job).encode() in words and b"--mpi" in words
            if mine and f"OMPI_COMM_WORLD_RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except (OSError, ValueError):
            continue
    return None


def test_a_party_that_stops_answering_is_named(tmp_path: Path) -> None:
    path = job(tmp_path, clients=2)

    def stop() -> None:
        while not list(tmp_path.glob("out/checkpoint/vertical-*")):
            sleep(0.05)
        process = rank_of(path, 2)
        assert process is not None
        os.kill(process, signal.SIGSTOP)

    stopper = Thread(target=stop, daemon=True)
    stopper.start()
    ended = mpirun(
        3, "run", path, "--set", "job.rounds=1000000", "--set", "job.deadline=2.0", "--set", "algorithm.checkpoint_every=0.5",
        "--set", "output.metrics_every=20", "--out", tmp_path / "out", "--quiet", beside=True,
    )  # fmt: skip
    assert ended.code == 3, ended.err
    assert "client 'client-02' is gone in round" in ended.err
    assert list((tmp_path / "out" / "checkpoint").glob("vertical-*"))


@pytest.mark.parametrize("augmentation", ["augmented", "power"])
def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path, augmentation: str) -> None:
    path, out = job(tmp_path), tmp_path / "out"
    if augmentation == "power":
        with_response(path)
    config, folder = load(
        path, sections={"job": {"rounds": 50}, "output": {"metrics_every": 10}, "model": {"augmentation": augmentation}}
    )
    want = perform(InProcess(), config, folder, Output(None, quiet=True))
    assert want is not None
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 2)), config, folder, Output(out, quiet=True))
    result = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert result is not None
    assert result.digest == want.digest


def test_two_files_that_share_only_patient_ids(tmp_path: Path) -> None:
    if "FEDKERN_DATA" not in os.environ:
        pytest.skip("FEDKERN_DATA is not set: the heart data are not here")
    heart_failure.read().write(tmp_path)
    headers = [set(lines_of(tmp_path / f"{name}.csv")[0].split(",")) for name in ("client-1", "client-2", "server")]
    assert headers[0] & headers[1] == headers[0] & headers[2] == {"id"}
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "vertical"\nrounds = 1500\n[data]\nclients = ["client-1.csv", "client-2.csv"]\nid = "id"\n'
        'response = "HeartDisease"\nserver = "server.csv"\nholdout = 0.2\n[model]\nkind = "bayes-network"\nrho = 1.0\n'
        "weight_sd = 1.0\n[algorithm]\nlearning_rate = 0.003\n"
    )
    ended = mpirun(3, "run", tmp_path / "job.toml", "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert "calibration error" in ended.out
    scores = json.loads((tmp_path / "out" / "summary.json").read_text())["prediction"]["rules"]["posterior"]
    assert scores["accuracy"] > 0.78
    assert scores["log_likelihood"] > -0.55
