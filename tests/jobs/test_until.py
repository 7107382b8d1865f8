"""rounds = "until": a variational fit ends when all has settled, with the bits of a job that was told how long it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core import until
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.core.windows import STRETCHES
from fedkern.api import check_job, perform
from fedkern.cli import report, show
from fedkern.data.columns import Columns
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import keeping
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from papers import vertical
from support import chosen
from support import sigma_artifacts as artifacts
from support.refusal import refusal
from support.wires import compare, ledgers

SECTIONS: dict[str, dict[str, Any]] = {
    "augmented": {"model": {"family": "negative-binomial", "rho": 0.5, "scale": 3.0}, "algorithm": {"learning_rate": 0.01}},
    "power": {
        "model": {"family": "negative-binomial", "rho": 0.5, "scale": 3.0, "augmentation": "power"},
        "algorithm": {"learning_rate": 0.004},
    },
    "never": {
        "model": {"family": "negative-binomial", "rho": 0.05, "scale": 3.0},
        "algorithm": {"auxiliary": "mean-field", "until": {"max_rounds": 3000}},
    },
}
SIGMA = """
[job]
method = "sigma"
rounds = "until"
seed = 3
[data]
clients = ["rows/*.csv"]
area = "district"
response = "cases"
exposure = "expected"
[model]
prior = "prior"
phi = 0.5
spatial_scale = 0.5
[output]
reweigh = false  # whether it is right is another question: tests/methods/sigma/test_weights.py
"""


def job(folder: Path, kind: str) -> Path:
    """The job file of a fit that is to go on until all has settled."""
    path = folder / "job.toml"
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "sigma":
        artifacts.written(folder / "prior")
        artifacts.counts(folder / "rows", covariate=False)
        path.write_text(SIGMA)
        return path
    random = np.random.default_rng(5)
    X = (random.normal(size=(60, 3)), random.normal(size=(60, 2)))
    mean = np.exp(0.7 + np.hstack(X) @ np.array([0.5, -0.4, 0.3, 0.6, -0.5]))
    counts = Columns(X, (("a", "b", "c"), ("d", "e")), random.negative_binomial(3, 3 / (3 + mean)).astype(float))
    tables = vertical.job(folder, counts, 1, "until", **SECTIONS[kind])  # type: ignore[arg-type]
    path.write_text("\n".join(f"[{name}]\n" + "\n".join(lines(table)) for name, table in tables.items()))
    return path


def lines(table: dict[str, Any]) -> list[str]:
    """Of TOML."""
    return [f"{key} = {json.dumps(value) if not isinstance(value, dict) else inline(value)}" for key, value in table.items()]


def inline(table: dict[str, Any]) -> str:
    return "{" + ", ".join(lines(table)) + "}"


def run(path: Path, out: Path, *sets: str, resume: bool = False) -> Any:
    config, folder = load(path, sets)
    return perform(InProcess(), config, folder, Output(out, resume=resume, quiet=True))


def ledger(out: Path) -> list[str]:
    """The kinds of the messages of the first client."""
    file = sorted((out / "ledger").glob("*.jsonl"))[0]
    return [json.loads(line)["kind"] for line in file.read_text().splitlines()]


# Of a map the fit that settles, and what it sends, is in methods/sigma/test_weights.py at every push.
KINDS = [pytest.param("augmented", marks=pytest.mark.nightly), "power", pytest.param("sigma", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path, Any]]:
    """A job of a kind that has run to its end, once: its file, its folder, its result."""

    @cache
    def ran(kind: str) -> tuple[Path, Path, Any]:
        path = job(tmp_path_factory.mktemp(kind), kind)
        return path, path.parent / "run", run(path, path.parent / "run")

    return ran


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_early_and_its_bits_are_those_of_a_job_of_that_length(settled, tmp_path, kind):
    path, out, result = settled(kind)
    assert "settled" in [check["is"] for check in result.summary["checks"] if check.get("id") == "movement"]
    assert result.summary["stop"] == "settled"
    assert "<i class=good>settled</i>" in report.write(out).read_text(encoding="utf-8")
    assert any(line.startswith("all unknowns have settled: ") for line in show.describe_result(result))
    assert result.summary["rounds"] in until.lengths(50_000)[:5]
    sent = ledger(out)
    assert 1 <= sent.count("Moving") <= 5
    assert sent.count("Settled") == 1
    rounds = result.summary["rounds"]
    again = run(path, tmp_path / "again", f"job.rounds={rounds}")  # no algorithm.until in the file: a given length
    assert again.summary["digest"] == result.summary["digest"]
    assert again.summary["verdict"] == result.summary["verdict"]
    assert "Moving" not in ledger(tmp_path / "again")


def test_what_never_settles_ends_at_the_cap_and_has_not_converged(tmp_path):
    path = job(tmp_path, "never")
    result = run(path, tmp_path / "run")
    assert result.summary["rounds"] == 3000
    assert result.summary["stop"] == "rounds"
    assert result.converged is False
    fixed = run(path, tmp_path / "fixed", "job.rounds=1200")  # beside `until`: the most
    assert (fixed.summary["rounds"], fixed.converged) == (1200, False)


class Stop:
    """Asks a run to stop when a client has sent its n-th message of a kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, n: int) -> None:
        self.place, seen, sending = InProcess(), 0, keeping.Keeper.sending

        def counted(keeper: Any, client: int, message: Any, *rest: Any) -> None:
            nonlocal seen
            sending(keeper, client, message, *rest)
            seen += type(message).__name__ == kind
            if seen == n and type(message).__name__ == kind:
                self.place.signals.pending = "SIGTERM"

        monkeypatch.setattr(keeping.Keeper, "sending", counted)


ROUNDS = {"augmented": "ZShare", "power": "LikelihoodShare", "sigma": "GlobalGradientBound"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_resumed_again_and_again_is_the_uninterrupted_one(settled, tmp_path, monkeypatch, kind):
    """Stopped in the middle, where of one question it is to come, after the first answer, and in the cool-down."""
    path, first, whole = settled(kind)
    rounds, clients = whole.summary["rounds"], len(whole.summary["clients"])
    middle, asked, out = clients * (rounds // 2), whole_asked(first), tmp_path / "out"
    stops = [(ROUNDS[kind], middle), ("Moving", 1), (ROUNDS[kind], middle + 20)]
    for what, n in stops if asked == 1 else [stops[1], stops[0], stops[2]]:
        before = sum(file.read_text().count(f'"{what}"') for file in (out / "ledger").glob("*.jsonl"))
        with monkeypatch.context() as patched:
            stop = Stop(patched, what, n - before)
            config, folder = load(path, ())
            with pytest.raises(LostPeer, match="--resume"):
                perform(stop.place, config, folder, Output(out, resume=out.exists(), quiet=True))
        assert ("Moving" in ledger(out)) == ((what, n) != stops[0] or asked > 1)
    again = run(path, out, resume=True)
    assert again.summary["digest"] == whole.summary["digest"]
    assert again.summary["verdict"] == whole.summary["verdict"]
    assert ledger(out).count("Moving") == asked


def whole_asked(out: Path) -> int:
    return ledger(out).count("Moving")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_is_what_check_said(settled, kind):
    path, out, _ = settled(kind)
    compare("\n".join(check_job(InProcess(), *load(path)) or []), ledgers(out))


PRIVATE = {"epsilon": 5.0, "delta": 1e-5, "noise_multiplier": 5.0}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privacy": PRIVATE}, r"\[privacy\]: rounds = \"until\".* give job.rounds a number"),
        ({"privacy": PRIVATE, "job": {"rounds": 50}, "algorithm": {"until": {}}}, r"\[privacy\]: rounds = \"until\""),
        ({"algorithm": {"inference": "soul"}}, r"nothing says when algorithm.inference = \"soul\" has settled"),
        ({"model": {"kind": "network"}}, r"nothing says when model.kind = \"network\" has settled"),
        ({"algorithm": {"cool_down": 0.0}}, "cool_down = 0: .*take one above 0 and below 1"),
    ],
)
def test_where_nothing_can_be_asked_it_is_refused(tmp_path, changes, match):
    tables = {"job": {"method": "vertical", "rounds": "until"}, "data": {"clients": ["*.csv"], "id": "id", "response": "y"}}
    for name, table in changes.items():
        tables[name] = {**tables.get(name, {}), **table}
    with pytest.raises(JobError, match=match):
        fedkern.run(tables)


def test_chains_of_a_map_are_refused():
    tables = {"job": {"method": "sigma", "rounds": "until"}, "data": {"clients": ["*.csv"], "area": "a", "response": "y"}}
    with refusal(JobError, "sfvi", "sfvi-avg", "hmc"):
        fedkern.run({**tables, "model": {"prior": "p"}, "algorithm": {"inference": "hmc"}})


def test_a_sampler_has_the_same_word(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('[job]\nmethod = "sparse"\nrounds = "until"\n[data]\nbuiltin = "rppa"\n[model]\nkind = "mrf"\n')
    config, _ = load(path, ())
    assert config.job.rounds == config.algorithm.until.max_rounds == 20_000
    assert load(path, ("algorithm.until.max_rounds=700",))[0].job.rounds == 700


# --- lengths


@pytest.mark.parametrize("most", [1, 999, 1000, 1599, 1601, 12_345, 50_000])
def test_the_stretches_of_two_lengths_are_apart(most):
    found = until.lengths(most)
    assert found[-1] == most
    assert list(found) == sorted(found)
    assert len(found) == 1 or found[0] >= until.FIRST
    for shorter, longer in pairwise(found):
        for cool_down in (0.1, 0.5, 0.9):
            first, second = (round((1 - cool_down) * rounds) for rounds in (shorter, longer))
            assert int(STRETCHES[0][0] * second) >= first


def test_a_client_believes_no_other_length():
    at = chosen.sfvi(rounds=1171, most=3000)
    assert until.with_length(at, until.Length(at.steady, 1171), at.steady).most == 0
    assert until.with_length(at, until.Length(at.steady, 1875), at.steady).rounds == 1875
    for length, round in ((1900, at.steady), (3000, at.steady), (1171, at.steady + 1)):
        with pytest.raises(RemoteFault, match="Length"):
            until.with_length(at, until.Length(round, length), round)
    with pytest.raises(RemoteFault, match="wanted 0 or 1"):
        until.bit(0, until.Moving(585, 2))
