"""Every command and every exit code, on small jobs in one process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fedkern as package
from fedkern.cli import job as job_module
from fedkern.cli.__main__ import parser
from fedkern.errors import BudgetSpent, JobError
from fedkern.jobs.files import Lines
from fedkern.kernels import list as kernels
from support import few
from support.command import OPEN, PRIVATE, python

KEYS = {
    "test",
    "method",
    "claim",
    "stop",
    "rounds",
    "converged",
    "verdict",
    "worst",
    "checks",
    "clients",
    "parameters",
    "metrics",
    "privacy",
    "wire",
    "encoding",
    "versions",
    "digest",
    "disclosure",
    "notes",
    "findings",
}


def test_a_run_leaves_what_the_interface_promises(fedkern: Any, job: Any) -> None:
    ended = fedkern("run", job(OPEN), "--out", "out")
    assert (ended.code, ended.err) == (0, "")
    folder = Path("out")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.keys() == KEYS
    assert (summary["method"], summary["claim"], summary["stop"], summary["rounds"]) == ("pvi", "federated", "rounds", 3)
    judged = (summary["converged"], summary["verdict"], summary["worst"])
    assert judged[0] in ("settled", False)  # three rounds of an exact optimiser, each client once in each
    assert judged[1].startswith(f"{'settled' if judged[0] else 'not converged'}: {judged[2]} is ")
    first, *said = ended.out.splitlines()
    assert first.startswith("pvi: bernoulli (logit): diagnosis ~ mean radius + ")
    assert first.endswith("; event: diagnosis = malignant")
    assert {"settled", summary["verdict"]} & {*said}
    assert set(summary["parameters"]["theta[mean radius]"]) == {"mean", "sd", "q05", "q95"}
    assert {"intercept", "intercept_std", "theta_std[mean radius]"} <= summary["parameters"].keys()
    assert set(summary["metrics"]) == {"accuracy", "log_likelihood"}
    assert summary["clients"] == {f"client-{k}": {"updates": 3, "status": "finished"} for k in (1, 2, 3)}
    assert summary["versions"].keys() == {"fedkern", "python", "numpy", "scipy", "isa"}
    assert summary["privacy"] == {}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines[-1]["metrics"] == pytest.approx(summary["metrics"])
    assert (folder / "posterior.nc").stat().st_size > 10_000
    for name, ways in summary["wire"].items():
        ledger = [json.loads(line) for line in (folder / "ledger" / f"{name}.jsonl").read_text().splitlines()]
        assert ways["to_server"]["messages"] == len(ledger)
        assert ways["to_server"]["bytes"] == sum(line["bytes"] for line in ledger)
    assert "no privacy is claimed" in ended.out
    assert f"digest {summary['digest']}" in ended.out


def test_a_private_run_prints_and_keeps_its_certificates(fedkern: Any, job: Any) -> None:
    ended = fedkern("run", job(PRIVATE), "--out", "out")
    assert ended.code == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["claim"] == "private"
    for name, certificate in summary["privacy"].items():
        assert 0 < certificate["epsilon"] <= 8.0
        assert certificate["steps"] == 4 * 5
        assert (certificate["noise_source"], certificate["neighbours"]) == ("secure", "add or remove one example")
        assert not [key for key in certificate if "total" in key], "what was spent in other jobs is the holder's own affair"
        own = json.loads((Path("out") / f"client-{name}" / "account.json").read_text())
        assert own["total"]["epsilon"] == pytest.approx(certificate["epsilon"])
        assert json.loads((Path("out") / f"client-{name}" / "certificate.json").read_text()) == certificate
        ledger = [json.loads(line) for line in (Path("out/ledger") / f"{name}.jsonl").read_text().splitlines()]
        assert sum(line["charge"] for line in ledger) == certificate["steps"]
    assert "privacy certificate" in ended.out
    assert "add or remove one example" in ended.out
    assert all("seconds" not in json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines())


def test_keyed_noise_is_never_called_private(fedkern: Any, job: Any) -> None:
    digests = []
    for out in ("one", "two"):
        ended = fedkern("run", job(PRIVATE), "--out", out, "--set", "privacy.noise_source=keyed")
        summary = json.loads((Path(out) / "summary.json").read_text())
        assert (ended.code, summary["claim"]) == (0, "federated")
        assert {certificate["epsilon"] for certificate in summary["privacy"].values()} == {"inf"}
        digests.append(summary["digest"])
    assert digests[0] == digests[1]


def test_a_budget_is_a_normal_end_unless_it_comes_too_early(fedkern: Any, job: Any) -> None:
    tight = ["--set", "job.rounds=budget", "--set", "privacy.epsilon=0.9"]
    ended = fedkern("run", job(PRIVATE), "--out", "one", *tight)
    summary = json.loads(Path("one/summary.json").read_text())
    assert (ended.code, summary["stop"]) == (0, "budget")
    assert {client["status"] for client in summary["clients"].values()} == {"budget spent"}
    assert all(certificate["epsilon"] <= 0.9 for certificate in summary["privacy"].values())
    ended = fedkern("run", job(PRIVATE), "--out", "two", *tight, "--set", "algorithm.min_updates=1000")
    assert ended.code == 5
    assert "the privacy budgets were spent after" in ended.err
    assert "algorithm.min_updates = 1000" in ended.err
    assert Path("two/summary.json").exists(), "what was finished is kept"


def test_a_budget_that_pays_for_nothing_leaves_no_result(
    fedkern: Any, job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's own cap does, but what is left of the holders' does not: the prior would be published as a posterior."""
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "homes"))
    names = [f"client-{k}" for k in (1, 2, 3, 4, 5)]
    for name in names:
        (tmp_path / "homes" / name).mkdir(parents=True)
        (tmp_path / "homes" / name / "policy.toml").write_text("[data.breast-cancer]\nepsilon = 0.01\ndelta = 1e-3\n")
    ended = fedkern("run", job(PRIVATE), "--out", "out", "--quiet")
    assert ended.code == 5
    assert "the privacy budgets were spent after 0 updates, so there is no result" in ended.err
    notes = json.loads(Path("out/summary.json").read_text())["notes"]
    assert any(note.endswith("not in the result, for no update of theirs fits their budgets") for note in notes)


def test_a_coefficient_far_from_its_prior_is_named(fedkern: Any, tmp_path: Path) -> None:
    rows = [f"{x},{1e5 + x}" for x in (-1.0, 0.0, 1.0, 2.0)]
    for name in ("far", "near"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows]) + "\n")
        data = {"clients": [str(tmp_path / f"{name}.csv")], "response": "y", **few.ANY}
        tables: dict[str, Any] = {"data": data, "model": {"family": "gaussian"}}
        tables["model"] |= {"scale": 1.0, "prior_sd": 1.0 if name == "far" else 1e5}
        notes = package.run(tables, job={"rounds": 2}).summary["notes"]
        assert (name == "far") == any("the prior moves these by so many" in note for note in notes)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "nothing.toml"], "nothing.toml: cannot be read (No such file or directory)"),
        (["run", "job.toml", "--set", "job.sede=1"], "job.toml: unknown key job.sede; did you mean job.seed?"),
        (["run", "job.toml", "--device", "cuda"], "backend 'cuda' needs CuPy, and it is not installed"),
        (["run", "job.toml", "--set", "data.split.clients=1000"], "[data] split"),
        (
            ["run", "job.toml", "--set", "algorithm.schedule=random", "--set", "algorithm.client_weights.x=1"],
            "algorithm.client_weights.x",
        ),
        (["run", "job.toml", "--set", 'data.names=["a", "b"]'], "data.names: 2 names for 3 clients"),
        (["run", "job.toml", "--resume", "--out", "nowhere"], "nowhere: there is no run to resume"),
        (["report", "nowhere"], "nowhere: holds no run of fedkern"),
        (["simulate", "weather", "--out", "x"], "simulate weather: no such kind"),
        (["simulate", "logistic", "--out", "x", "--rows", "0"], "--rows: needs at least 1, got 0"),
        (["reproduce", "cold-fusion"], "reproduce cold-fusion: no such reproduction; there are dp-pvi-adult"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_bad_job_is_one_line_and_code_2(fedkern: Any, job: Any, arguments: list[str], text: str) -> None:
    job(OPEN)
    ended = fedkern(*arguments)
    assert ended.code == 2
    assert text in ended.err
    assert ended.err.startswith("fedkern: ")
    assert ended.err.count("\n") == 1
    assert ended.out == ""


def test_a_finished_run_is_not_overwritten(fedkern: Any, job: Any, finished: Any) -> None:
    path = job(OPEN)
    finished(OPEN)
    before = Path("out/summary.json").read_bytes()
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 2
    assert "choose another --out" in ended.err
    assert Path("out/summary.json").read_bytes() == before


def test_an_internal_error_is_code_1_with_its_traceback(fedkern: Any, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "perform", lambda *arguments: 1 / 0)
    ended = fedkern("run", job(OPEN))
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err
    assert "internal error" in ended.err


def test_lost_clients_are_code_4_and_named(fedkern: Any, job: Any, finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result = package.load(finished(OPEN))
    clients = {"a": {"updates": 1, "status": "lost"}, "b": {"updates": 3, "status": "finished"}}
    lost = type(result)({**result.summary, "clients": clients}, result.posterior)
    monkeypatch.setattr(job_module, "perform", lambda *arguments: lost)
    ended = fedkern("run", job(OPEN), "--quiet")
    assert (ended.code, ended.err) == (4, "fedkern: finished without client 'a' (lost)\n")


def test_the_python_interface(job: Any) -> None:
    path = job(OPEN)
    result = package.run(path, job={"rounds": 1})
    assert result.folder is None
    assert result.summary["rounds"] == 1
    assert result.parameters.keys() == package.run(path).parameters.keys()
    assert result.to_arviz()["posterior"]["theta"].shape == (4, 1000, 30)
    assert (
        package.run({"data": {"builtin": "breast-cancer"}, "job": {"rounds": 1}}, data={"split": {"clients": 2}}).stop == "rounds"
    )
    with pytest.raises(JobError, match=r"unknown key job\.roundz; did you mean job\.rounds\?"):
        package.run(path, job={"roundz": 1})
    tight = {"epsilon": 0.9, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 3.0, "sampling_rate": 0.1}
    with pytest.raises(BudgetSpent, match="the privacy budgets were spent after"):
        package.run(
            path, job={"rounds": "budget"}, algorithm={"min_updates": 10_000}, privacy=tight, data={"standardise": "public"}
        )


def test_info_lists_every_kernel_and_what_is_missing(fedkern: Any) -> None:
    text = fedkern("info").out
    found = json.loads(fedkern("info", "--json").out)
    assert found["kernels"] == kernels()
    assert found["versions"]["fedkern"] == package.__version__
    for name, exists in found["kernels"].items():
        (line,) = [line for line in text.splitlines() if line.startswith(name + " ")]
        assert line.split()[1:] == list(exists.values())


def test_info_says_that_a_level_does_not_exist(fedkern: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKERN_ISA", "foo")
    run = python("-P", "-m", "fedkern", "info")
    assert run.code == 0, run.err
    (line,) = [line for line in run.out.splitlines() if line.startswith("instruction set")]
    assert "none: FEDKERN_ISA=foo: there is no such instruction-set level" in line
    assert "glm.clipped_grad_sum" in run.out


@pytest.mark.parametrize("kind", ["logistic", "poisson", "regression"])
def test_a_simulated_federation_runs_as_it_is(fedkern: Any, kind: str) -> None:
    assert fedkern("simulate", kind, "--out", "sim", "--clients", "2", "--rows", "150", "--columns", "3").code == 0
    assert fedkern("check", "sim/job.toml").code == 0
    assert fedkern("run", "sim/job.toml", "--out", "out", "--quiet").code == 0
    truth = json.loads(Path("sim/truth.json").read_text())["parameters"]
    found = json.loads(Path("out/summary.json").read_text())["parameters"]
    for name, value in truth.items():
        assert abs(found[name]["mean"] - value) < 4.5 * found[name]["sd"], name


def test_a_report_of_a_finished_and_of_an_interrupted_run(fedkern: Any, finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(PRIVATE)
    ended = fedkern("report", "out")
    assert (ended.code, ended.out.strip()) == (0, "out/report.html")
    page = Path("out/report.html").read_text()
    for words in (
        "SiteDelta",
        "Certificate",
        "add or remove one example",
        "mean radius",
        "does <b>not</b> contain the privacy noise",
    ):
        assert words in page
    asked: list[str] = []
    for known, words in ((True, ""), (False, "no browser is known here")):
        monkeypatch.setattr("webbrowser.open", lambda address, known=known: bool(asked.append(address)) or known)
        ended = fedkern("report", "out", "--open")
        assert (ended.code, ended.out.strip()) == (0, "out/report.html")
        assert words in ended.err
    assert asked == [Path("out/report.html").resolve().as_uri()] * 2
    Path("out/summary.json").unlink()
    with Path("out/metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "upd')  # a crash while a line was written
    assert fedkern("report", "out").code == 0
    assert "interrupted" in Path("out/report.html").read_text()


@pytest.mark.parametrize("torn", [b'{"protocol": "pv', b"\0" * 40, b"\xff\xfe\n\n7", b"[]"])
def test_a_report_of_a_run_that_went_on_after_a_torn_line(torn: bytes, fedkern: Any, finished: Any) -> None:
    """What a crash leaves at the end of a ledger does not keep a run from going on, nor a report from being written."""
    finished(PRIVATE)
    whole = Path("out/ledger/client-1.jsonl").read_bytes()
    with Path("out/ledger/client-1.jsonl").open("ab") as file:
        file.write(torn)
    log = Lines(Path("out/ledger/client-1.jsonl"))  # as a resumed run opens it
    log.write(whole.splitlines()[-1].decode())
    log.close()
    assert fedkern("report", "out").code == 0
    page = Path("out/report.html").read_text()
    number = whole.count(b"\n") + 1 + torn.count(b"\n")
    assert re.search(rf"ledger/client-1.jsonl: line .*\b{number}.* cannot be read and is not counted", page)


def test_every_command_has_help() -> None:
    for action in parser()._subparsers._group_actions:  # type: ignore[union-attr]
        known = {"run", "fit", "check", "launch", "demo", "info", "init", "schema", "simulate", "sigma"}
        known |= {
            "add",
            "drop",
            "report",
            "predict",
            "reproduce",
            "status",
            "ledger",
            "audit",
            "replay",
            "budget",
            "plan",
            "site",
            "bridge",
            "describe",
        }
        assert {c.dest for c in action._choices_actions} == known  # type: ignore[attr-defined]
        assert all(c.help for c in action._choices_actions)  # type: ignore[attr-defined]
