"""Checks after the rounds of a job with secure sums: the figures of the job without masks, and no client's own."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.report import write as write_report
from fedkern.errors import JobError
from fedkern.methods.likelihood.keys import Config
from support import wires
from support.refusal import refusal

CLIENTS, N = ("ada", "bo", "cy"), 200
HEAD = """
[job]
method = "likelihood"
seed = 2
sums = "secure"
[data]
clients = ["rows/*.csv"]
"""
TAIL = """
[output]
draws = 50
"""
JOBS = {
    "counts": 'response = "y"\n[model]\nfamily = "poisson"' + TAIL + "marginal = true\nloo = true\n",
    "zeros and ones": 'response = "z"\n[model]\nfamily = "bernoulli"' + TAIL + "marginal = true\n",
    "levels": 'response = "grade"\nlevels = ["low", "mid", "high"]\n[model]\nfamily = "ordinal"' + TAIL + "marginal = true\n",
    "kinds": 'response = "grade"\nlevels = ["low", "mid", "high"]\n[model]\nfamily = "multinomial"' + TAIL,
    "times": 'time = "t"\nevent = "d"\n[model]\nfamily = "weibull"' + TAIL,
    "pieces": 'time = "t"\nevent = "d"\n[model]\nfamily = "piecewise"\ncuts = [0.5, 1.5]' + TAIL + "survival_at = [1.0]\n",
    "cox": 'time = "t"\nevent = "d"\n[model]\nfamily = "cox"' + TAIL,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of three clients: all responses of one covariate, and a label with two levels."""
    made, random = tmp_path_factory.mktemp("checks"), np.random.default_rng(5)
    (made / "rows").mkdir()
    for k, name in enumerate(CLIENTS):
        x, b = random.normal(k / 3, 1.0, N), random.integers(0, 2, N)
        eta = 0.4 * x - 0.3 * b
        y, z = random.poisson(np.exp(eta)), random.random(N) < 1 / (1 + np.exp(-eta))
        grade = np.array(["low", "mid", "high"])[np.digitize(eta + random.logistic(size=N), [-0.5, 0.7])]
        t, d = random.exponential(np.exp(-eta)) + 0.01, random.random(N) < 0.8
        lines = [",".join(map(str, row)) for row in zip(x, b, y, 1 * z, grade, t, 1 * d)]
        (made / "rows" / f"{name}.csv").write_text("\n".join(["x,b,y,z,grade,t,d", *lines]) + "\n")
    return made


@cache
def fitted(folder: Path, name: str, *, secure: bool) -> tuple[fedkern.Result, set[str]]:
    text = HEAD + JOBS[name]
    used = {"y", "z", "grade", "t", "d"} - {one for one in ("y", "z", "grade", "t", "d") if f'"{one}"' in JOBS[name]}
    text = text.replace("[model]", f"ignore = {sorted(used)}\n[model]")
    path = folder / f"{name}-{secure}.toml"
    path.write_text(text if secure else text.replace('sums = "secure"\n', ""))
    out = folder / f"out {name} {secure}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "rounds_messages", False)  # masked sums are of exact numbers
        return fedkern.run(path, out=out), {kind for _, kind in wires.ledgers(out)}


def numbers(content: Any, drawn: tuple[str, ...] = ("p", "model", "columns")) -> dict[str, float]:
    """All numbers of a nested summary by their paths; those that come from responses drawn anew are left out."""
    if isinstance(content, dict):
        return {f"{k}/{at}": v for k, one in content.items() if k not in drawn for at, v in numbers(one, drawn).items()}
    if isinstance(content, list):
        return {f"{k}/{at}": v for k, one in enumerate(content) for at, v in numbers(one, drawn).items()}
    return {"": float(content)} if isinstance(content, int | float) else {}


@pytest.mark.parametrize("name", JOBS)
def test_figures_are_those_of_a_job_without_masks(name: str, folder: Path) -> None:
    (masked, kinds), (plain, plain_kinds) = (fitted(folder, name, secure=one) for one in (True, False))
    assert masked.summary["converged"] is plain.summary["converged"]
    assert wires.of_one_client(folder / f"out {name} True") == set()
    assert {f"Masked{kind}" for kind in plain_kinds - wires.OF_ONE} <= kinds
    keys = ("predictive", "marginal", "loo", "events", "exact_events", "proportional_hazards", "concordance", "survival")
    there = [key for key in keys if key in plain.summary]
    assert there
    for key in there:
        ours, theirs = numbers(masked.summary[key]), numbers(plain.summary[key])
        theirs = {at: value for at, value in theirs.items() if "p_of_clients" not in at}
        assert ours.keys() == theirs.keys(), key
        for at, value in theirs.items():
            assert ours[at] == pytest.approx(value, rel=0.03, abs=5e-3), (key, at)


def test_curves_that_are_made_of_the_clients_own_are_refused(folder: Path) -> None:
    path = folder / "curves.toml"
    path.write_text(HEAD + JOBS["cox"] + "survival_at = [1.0]\n")
    with refusal(JobError, "output.survival_at"):
        fedkern.run(path)


def test_a_column_is_of_zeros_and_ones_where_it_is_so_at_each_client(folder: Path, tmp_path: Path) -> None:
    """The sum of all says whether it is so at each, and not at how many it is not."""
    (tmp_path / "rows").mkdir()
    for name in CLIENTS:
        head, *rows = (folder / "rows" / f"{name}.csv").read_text().splitlines()
        if name == "bo":  # half of its zeros are twos
            rows[: N // 2] = [
                ",".join([x, "2" if b == "0" else b, *rest]) for x, b, *rest in (row.split(",") for row in rows[: N // 2])
            ]
        (tmp_path / "rows" / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "job.toml").write_text((HEAD + JOBS["counts"]).replace("[model]", 'ignore = ["z", "grade", "t", "d"]\n[model]'))
    effects = fedkern.run(tmp_path / "job.toml").summary["marginal"]["effects"]
    assert effects["b"]["change"] == "slope per unit"
    whole = fitted(folder, "counts", secure=True)[0].summary["marginal"]["effects"]
    assert whole["b"]["change"] == "1 against 0"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("chains", [False, True], ids=["weights", "chains"])
@pytest.mark.parametrize("slip", ["turned", "twice"])
def test_a_result_says_that_nobody_has_looked_for_contradictions(
    folder: Path, slip: str, *, chains: bool, tmp_path: Path
) -> None:
    """An outcome the other way round at one client, or one file twice: masks hide it, and silence would pass for agreement."""
    (tmp_path / "rows").mkdir()
    for name in CLIENTS:
        table = pd.read_csv(folder / "rows" / f"{'ada' if slip == 'twice' and name == 'bo' else name}.csv")[["x", "b", "z"]]
        if slip == "turned" and name == "bo":
            table["z"] = 1 - table["z"]
        table.to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
    text = HEAD + 'response = "z"\n' + TAIL
    if chains:
        text = text.replace("[data]", "rounds = 60\n[data]") + '[algorithm]\nsampler = "hmc"\n'
    for secure in (True, False):
        (tmp_path / "job.toml").write_text(text if secure else text.replace('sums = "secure"\n', ""))
        result = fedkern.run(tmp_path / "job.toml", out=tmp_path / str(secure))
        said = [note for note in result.summary["notes"] if note.startswith("nobody has looked")]
        assert len(said) == secure
    page = html.unescape(write_report(tmp_path / "True").read_text())
    (note,) = [one for one in fedkern.load(tmp_path / "True").summary["notes"] if one.startswith("nobody has looked")]
    for words in ("secure sums hide", "differ by more than chance", "the other way round", "one file"):
        assert words in note
    assert note in page
    assert note in fedkern.load(tmp_path / "True").notes
