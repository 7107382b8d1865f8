"""Spatial jobs whose counts have noise: it is added once and paid for once, and all else is computed of the noisy table."""

from __future__ import annotations

import csv
import json
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import gammaln, logsumexp

import fedkern
from fedkern.algorithms.nested.machine import Settings
from fedkern.api import check_job, perform
from fedkern.cli.__main__ import main
from fedkern.cli.report import write as write_report
from fedkern.errors import HolderError, JobError, LostPeer
from fedkern.jobs import tables
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.sigma import model, own
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse as parse_prior
from fedkern.privacy.noise import SecureSource
from fedkern.transports.driver import ServerSide
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.command import StopsAt
from support.refusal import refusal
from support.wires import checked_and_run

HOME = "FEDKERN_CLIENT_HOME"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the holders' accounts lie, for all jobs of a test. How exact a fit is is not what is looked at."""
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    monkeypatch.setattr(own, "DRAWS", 20)
    monkeypatch.setattr(model, "NestedSettings", partial(Settings, points=40, questions=1, most=2, told=20))
    shutil.copytree(built, tmp_path / "prior")
    return tmp_path / "home"


def job(folder: Path, **more: Any) -> dict[str, Any]:
    """A variational fit of four rounds; `"nested"`, the default of such a prior, takes as many as it needs."""
    artifacts.counts(folder / "rows", covariate=False)
    made: dict[str, Any] = {
        "job": {"method": "sigma", "rounds": 4, "seed": 3},
        "algorithm": {"inference": "sfvi"},
        "data": {"clients": [str(folder / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(folder / "prior")},
        "privacy": {"epsilon": 1.0},
    }
    for name, table in more.items():
        made[name] = {**made.get(name, {}), **table}
    return made


def kept(home: Path, client: str = "east") -> dict[str, dict[str, Any]]:
    """The noisy tables of a client, by name."""
    found = [json.loads(path.read_text()) for path in (home / client).glob("noisy-*.json")]
    return {one["name"]: one for one in found}


def charges(home: Path, client: str = "east") -> int:
    """Accounted steps in a client's budget."""
    lines = (home / client / "budget.jsonl").read_text().splitlines()
    return sum(json.loads(line).get("steps", 0) for line in lines)


def recount(folder: Path, change: Callable[[int, str], str]) -> None:
    """Other counts in all files: row number, cell -> cell."""
    for path in sorted((folder / "rows").glob("*.csv")):
        head, *rows = path.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        for k, row in enumerate(cells):
            row[1] = change(k, row[1])
        path.write_text("\n".join([head, *map(",".join, cells)]) + "\n")


def frames(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> list[bytes]:
    """All that a job's clients send, in order."""
    sent: list[bytes] = []
    arrive = ServerSide.arrive

    def noted(server: ServerSide, frame: bytes, here: Any) -> None:
        sent.append(bytes(frame))
        arrive(server, frame, here)

    with monkeypatch.context() as patch:
        patch.setattr(ServerSide, "arrive", noted)
        fedkern.run(made)
    return sent


@pytest.mark.usefixtures("undrawn")
def test_noise_is_drawn_and_paid_for_once(tmp_path: Path, home: Path) -> None:
    tables_of = job(tmp_path)
    first = fedkern.run(tables_of, out=tmp_path / "run")
    table = kept(home)["counts"]
    (path,) = (home / "east").glob("noisy-*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(table["counts"]) == len(table["places"]) == artifacts.SIZES[artifacts.NAMES.index("east")]
    later = fedkern.run({**tables_of, "algorithm": {"inference": "nested"}}, out=tmp_path / "later")
    for result in (first, later):
        one = result.privacy["east"]
        assert (one["epsilon"], one["delta"], one["steps"], one["unit"]) == (pytest.approx(1.0, abs=2e-4), 0.0, 1, "case")
        assert one["neighbours"] == "add or remove one case in one count"
        assert result.summary["claim"] == "private"
    assert kept(home)["counts"] == table
    assert charges(home) == 1
    for name in ("run", "later"):
        with (tmp_path / name / "client-east" / "areas.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["observed"]) for row in rows] == table["counts"]  # not the counts themselves, nor anything of them
        assert {row["crude"] + row["crude_low"] + row["pit"] + row["pearson"] for row in rows} == {""}
        assert all(float(row["rate_mean"]) > 0 for row in rows)
        assert main(["audit", str(tmp_path / name)]) == 0
    assert "Each case in a client&#x27;s counts is protected" in write_report(tmp_path / "run").read_text().replace("'", "&#x27;")
    another = fedkern.run({**tables_of, "privacy": {"epsilon": 0.5, "table": "again"}})
    assert another.privacy["east"]["epsilon"] == pytest.approx(0.5, abs=2e-4)
    assert charges(home) == 2
    assert {*kept(home)} == {"counts", "again"}


def test_what_is_sent_is_what_check_says(tmp_path: Path) -> None:
    inference = {"inference": "nested"}
    tables_of = job(tmp_path, algorithm=inference, output={"fit": True}, privacy={"epsilon": 2.0, "cases_per_person": 2})
    said = "\n".join(check_job(InProcess(), *load(tables_of)) or [])
    assert "epsilon 2 at delta 0, spent once" in said
    assert "neighbours: add or remove one person with at most 2 cases" in said
    assert "areas, exposures or trials, offsets and covariates have no noise" in said
    checked_and_run(tables_of, tmp_path / "out")


@pytest.mark.parametrize("inference", ["sfvi", "hmc", "nested"])
def test_messages_depend_on_counts_through_the_noisy_table_alone(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, inference: str
) -> None:
    """Other counts, with the noisy table as it was: the same bytes in every message. A new table: others."""
    few = {"leapfrog_steps": 2, "burn_in": 2} if inference == "hmc" else {}
    tables_of = job(tmp_path, algorithm={"inference": inference, **few}, model={"phi": 0.9}, output={"fit": True})
    want = frames(monkeypatch, tables_of)
    assert charges(home) == 1
    assert frames(monkeypatch, {**tables_of, "privacy": {"epsilon": 1.0, "table": "new"}}) != want  # the test can fail
    recount(tmp_path, lambda k, cell: ["900", "", "-4", "<5", "nan"][k % 5])
    assert frames(monkeypatch, tables_of) == want
    assert charges(home) == 2


def test_cells_that_are_no_counts_tell_nothing(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as 0, and too many cases as the most that there can be; only the holder reads of it."""
    tables_of = job(tmp_path, model={"family": "binomial"})
    tables_of["data"]["trials"] = tables_of["data"].pop("exposure")
    for path in (tmp_path / "rows").glob("*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *(row.rsplit(",", 1)[0] + ",60" for row in rows)]) + "\n")
    odd = ["7", "", "-4", "2.5", "61", "inf", "<5"]
    recount(tmp_path, lambda k, cell: odd[k % len(odd)])
    monkeypatch.setattr(SecureSource, "add_geometric", lambda source, total, decay: total)
    fedkern.run(tables_of, out=tmp_path / "run")
    want = [7, 0, 0, 0, 60, 0, 0]
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        assert kept(home, name)["counts"]["counts"] == (want * 2)[:size]
        notes = " ".join(json.loads((tmp_path / "run" / f"client-{name}" / "rows.json").read_text())["notes"])
        assert "cells are no counts" in notes
    assert "no counts" not in (tmp_path / "run" / "summary.json").read_text()


def test_a_place_without_exposure_is_predicted_whatever_its_count(tmp_path: Path, home: Path) -> None:
    tables_of = job(tmp_path)
    path = tmp_path / "rows" / "east.csv"
    head, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, first.rsplit(",", 1)[0] + ",0", *rows]) + "\n")
    fedkern.run(tables_of, out=tmp_path / "run")
    with (tmp_path / "run" / "client-east" / "areas.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["rows"], row["observed"]) == ("0", "")
    assert float(row["rate_mean"]) > 0
    assert len(kept(home)["counts"]["counts"]) == len(rows) + 1  # it has noise like the others


def policy(home: Path, epsilon: float, unit: str = '["case"]') -> None:
    for name in artifacts.NAMES:
        (home / name).mkdir(parents=True)
        text = f"unit = {unit}\n[data.{name}]\nepsilon = {epsilon}\ndelta = 1e-6\n"
        (home / name / "policy.toml").write_text(text)


def test_a_budget_that_is_spent_ends_the_job_before_noise_is_drawn(tmp_path: Path, home: Path) -> None:
    policy(home, 1.5)
    tables_of = job(tmp_path)
    fedkern.run(tables_of)
    before = (home / "east" / "budget.jsonl").read_text()
    with pytest.raises(HolderError, match="does not pay for a noisy table at epsilon = 1"):
        fedkern.run({**tables_of, "privacy": {"epsilon": 1.0, "table": "new"}}, out=tmp_path / "run")
    assert {*kept(home)} == {"counts"}
    assert charges(home) == 1
    assert (home / "east" / "budget.jsonl").read_text().startswith(before)
    fedkern.run(tables_of)  # the table that is there costs nothing
    fedkern.run({**tables_of, "privacy": {"epsilon": 0.4, "table": "new"}})
    assert charges(home) == 2


def test_a_policy_names_the_unit(tmp_path: Path, home: Path) -> None:
    policy(home, 5.0, '"example"')
    with refusal(HolderError, "privacy.unit", "case"):
        fedkern.run(job(tmp_path))
    assert not kept(home)


def test_the_holder_is_told_what_a_job_would_spend(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy(home, 1.5)
    tables_of = job(tmp_path)
    sections = (
        f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) for name, table in tables_of.items()
    )
    (tmp_path / "job.toml").write_text("\n".join(sections))
    look = ["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "rows" / "east.csv")]
    assert main(look) == 0
    assert "is allowed" in capsys.readouterr().out
    assert not kept(home)
    fedkern.run(tables_of)
    assert main([*look, "--set", "privacy.table=other"]) == 0
    assert "not one update fits" in capsys.readouterr().out
    assert main(look) == 0
    assert "noisy table 'counts' is there: this job spends nothing more" in capsys.readouterr().out


def test_a_crash_between_charge_and_table_costs_the_charge(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables_of = job(tmp_path)

    def crash(*arguments: object) -> None:
        assert charges(home, artifacts.NAMES[0]) == 1  # on the disk before the noise is kept
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(tables, "keep", crash)
        with pytest.raises(RuntimeError):
            fedkern.run(tables_of)
    assert not kept(home, artifacts.NAMES[0])
    result = fedkern.run(tables_of)
    assert charges(home, artifacts.NAMES[0]) == 2
    assert result.privacy[artifacts.NAMES[0]]["steps"] == 1  # of what was released


def test_a_resumed_run_draws_nothing(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = load(job(tmp_path, job={"rounds": 20}, output={"metrics_every": 5}))
    out = tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 2)), config, folder, Output(out, quiet=True))
    table = kept(home)["counts"]
    monkeypatch.delattr(SecureSource, "add_geometric")
    resumed = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    whole = perform(InProcess(), config, folder, Output(tmp_path / "whole", quiet=True))
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    assert kept(home)["counts"] == table
    assert charges(home) == 1
    assert main(["audit", str(out)]) == 0


def test_without_a_home_a_run_keeps_its_own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME)
    fedkern.run(job(tmp_path), out=tmp_path / "run")
    assert len([*(tmp_path / "run" / "client-east").glob("noisy-*.json")]) == 1
    assert main(["audit", str(tmp_path / "run")]) == 0


def test_a_table_whose_charge_is_gone_is_not_used(tmp_path: Path, home: Path) -> None:
    tables_of = job(tmp_path)
    fedkern.run(tables_of)
    os.remove(home / "east" / "budget.jsonl")
    with pytest.raises(HolderError, match=r"the account of its data cannot be used: .*deleted"):
        fedkern.run(tables_of)


def test_a_holder_is_told_that_counts_have_changed(tmp_path: Path, home: Path) -> None:
    tables_of = job(tmp_path)
    fedkern.run(tables_of)
    recount(tmp_path, lambda k, cell: "3")
    fedkern.run(tables_of, out=tmp_path / "run")
    said = json.loads((tmp_path / "run" / "client-east" / "account.json").read_text())
    assert any("the counts are not those to which noise was added" in warning for warning in said["warnings"])
    assert "noise was added" not in (tmp_path / "run" / "summary.json").read_text()


@pytest.mark.parametrize(
    ("privacy", "text"),
    [({"epsilon": 0.5}, "which is more than the job's, 0.5"), ({"epsilon": 9.0, "cases_per_person": 2}, "cases")],
)
def test_a_table_that_a_job_may_not_use(tmp_path: Path, home: Path, privacy: dict[str, Any], text: str) -> None:
    tables_of = job(tmp_path)
    fedkern.run(tables_of)
    with pytest.raises(HolderError, match=text):
        fedkern.run({**tables_of, "privacy": privacy})
    assert charges(home) == 1


BAD: list[tuple[dict[str, dict[str, Any]], str]] = [
    ({"privacy": {"epsilon": None}}, "privacy.epsilon is missing"),
    ({"privacy": {"epsilon": 0.1, "cases_per_person": 9}}, "wanted at least 0.05 for each case"),
    ({"privacy": {"unit": "example"}}, "privacy.unit"),
    ({"data": {"rows_per_area": "any"}}, "one count for each area"),
    ({"data": {"censored": {"<5": [0, 4]}}}, "remove data.censored"),
    ({"model": {"family": "gaussian"}, "data": {"exposure": None, "ignore": ["expected"]}}, "noise is added to counts"),
]


@pytest.mark.parametrize(("changes", "text"), BAD, ids=[text for _, text in BAD])
def test_jobs_that_cannot_be_private(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError, match=text):
        fedkern.run(job(tmp_path, **changes))


@pytest.mark.parametrize("kind", ["within", "auxiliary"])
@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
def test_other_priors_and_families(tmp_path: Path, home: Path, family: str, kind: str) -> None:
    """A table without any case in all: noise alone, whose sum is below 0 at some clients."""
    scale = {"scale": 2.0} if family == "negative-binomial" else {}
    tables_of = job(tmp_path, model={"family": family, "phi": 0.9, **scale}, privacy={"epsilon": 0.5})
    if kind == "within":
        tables_of["algorithm"]["inference"] = "nested"
    else:
        artifacts.written(tmp_path / "trained")
        tables_of["model"]["prior"] = str(tmp_path / "trained")
    recount(tmp_path, lambda k, cell: "0")
    result = fedkern.run(tables_of)
    assert all(np.isfinite(row["mean"]) for row in result.summary["parameters"].values())


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_posterior_is_the_exact_one_given_the_noisy_counts(tmp_path: Path, home: Path) -> None:
    """A map of 4 x 4 areas in two clients; the posterior given the noisy counts by importance sampling, written out here."""
    side, phi, scale = 4, 0.8, 0.7
    names = [f"{i}-{j}" for i in range(side) for j in range(side)]
    d = len(names)
    pairs = [(k, k + 1) for k in range(d) if (k + 1) % side] + [(k, k + side) for k in range(d - side)]
    (tmp_path / "areas.csv").write_text("area,client\n" + "".join(f"{n},{'ab'[k // 8]}\n" for k, n in enumerate(names)))
    (tmp_path / "edges.csv").write_text("one,other\n" + "".join(f"{names[i]},{names[j]}\n" for i, j in pairs))
    map_of = {"areas": "areas.csv", "area": "area", "client": "client", "adjacency": "edges.csv"}
    build.perform(parse_prior({"prior": {"kind": "leroux"}, "data": map_of}), tmp_path, Output(tmp_path / "exact", quiet=True))
    random = np.random.default_rng(3)
    expected, y = random.uniform(2, 8, d), random.poisson(random.uniform(1, 9, d))
    (tmp_path / "rows").mkdir()
    for client, own_areas in (("a", range(8)), ("b", range(8, 16))):
        lines = [f"{names[k]},{y[k]},{float(expected[k])!r}" for k in own_areas]
        (tmp_path / "rows" / f"{client}.csv").write_text("\n".join(["area,cases,expected", *lines]) + "\n")
    result = fedkern.run(
        {
            "job": {"method": "sigma", "seed": 5, "rounds": 2000},
            "data": {"clients": str(tmp_path / "rows" / "*.csv"), "area": "area", "response": "cases", "exposure": "expected"},
            "model": {"prior": str(tmp_path / "exact"), "phi": phi, "spatial_scale": scale},
            "algorithm": {"inference": "hmc", "burn_in": 500},
            "privacy": {"epsilon": 0.7},
        },
        out=tmp_path / "run",
    )
    noisy = np.array([n for client in "ab" for n in kept(home, client)["counts"]["counts"]], float)
    decay = kept(home, "a")["counts"]["mechanism"]["noise_multiplier"]
    decay = 2 * np.arcsinh(1 / (np.sqrt(2) * decay))
    W = np.zeros((d, d))
    for i, j in pairs:
        W[i, j] = W[j, i] = 1
    Q = (1 - phi) * np.eye(d) + phi * (np.diag(W.sum(axis=1)) - W)
    level, k = np.log(noisy.sum() / expected.sum()), np.arange(120.0)

    def log_density(at: np.ndarray) -> np.ndarray:
        """Of (b, theta), (m, 1 + d)."""
        eta = np.log(expected) + at[:, :1] + scale * at[:, 1:]
        terms = k[:, None, None] * eta - np.exp(eta) - gammaln(k + 1)[:, None, None] - decay * np.abs(noisy - k[:, None])[:, None]
        theta = at[:, 1:]
        prior = -0.5 * ((at[:, 0] - level) / 5) ** 2 - 0.5 * ((theta @ Q) * theta).sum(axis=1)
        return np.asarray(prior + logsumexp(terms, axis=0).sum(axis=1))

    start = np.concatenate([[level], np.zeros(d)])
    mode = optimize.minimize(lambda x: -log_density(x[None])[0], start, method="BFGS")
    root, nu, n = np.linalg.cholesky(mode.hess_inv), 6, 40_000
    t = stats.multivariate_t(np.zeros(d + 1), 1.2 * np.eye(d + 1), nu, seed=1)
    z = t.rvs(n)
    at = mode.x + z @ root.T
    weight = np.concatenate([log_density(part) for part in np.array_split(at, 40)]) - t.logpdf(z)
    weight = np.exp(weight - logsumexp(weight))
    assert 1 / (weight**2).sum() > 1000
    log_rate = at[:, :1] + scale * at[:, 1:]
    mean = weight @ np.exp(log_rate)
    sd = np.sqrt(weight @ (np.exp(log_rate) - mean) ** 2)
    found: list[dict[str, str]] = []
    for client in "ab":
        with (tmp_path / "run" / f"client-{client}" / "areas.csv").open(newline="") as file:
            found += csv.DictReader(file)
    assert [row["area"] for row in found] == names
    off = (np.array([float(row["rate_mean"]) for row in found]) - mean) / sd
    ratio = np.array([float(row["rate_sd"]) for row in found]) / sd
    assert np.abs(off).max() < 0.2, off
    assert abs(off.mean()) < 0.06
    assert abs(ratio.mean() - 1) < 0.06, ratio
    assert result.summary["parameters"]["intercept"]["mean"] == pytest.approx(weight @ at[:, 0], abs=0.06)
