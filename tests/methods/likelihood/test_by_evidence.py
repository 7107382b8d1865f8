"""`family = "auto"` of counts: the family of the higher evidence, whose result is that of a job which names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, logsumexp

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges.answers import TellFamily, family_heard
from fedkern.errors import FedkernError, JobError
from fedkern.methods.likelihood.keys import COUNTS
from support.interrupted import run
from support.mask_streams import Streams, watched_streams

SECURE = {"sums": "secure"}
Frames = dict[str, pd.DataFrame]


def counts(excess: float, seed: int = 1, n: int = 90) -> Frames:
    """Three clients; `excess`: the a of a variance m + a m^2."""
    rng, found = np.random.default_rng([seed, round(1000 * excess)]), {}
    for name in ("ada", "bo", "cy"):
        x = rng.normal(size=n).round(3)
        mean = np.exp(0.8 + 0.4 * x) * (rng.gamma(1 / excess, excess, n) if excess else 1.0)
        found[name] = pd.DataFrame({"x": x, "y": rng.poisson(mean)})
    return found


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return watched_streams(monkeypatch)


def job(of: str, **job_section: Any) -> dict[str, Any]:
    algorithm = {"points": 1024, "effective": 300.0}
    return {
        "job": {"method": "likelihood", "seed": 3, **job_section},
        "data": {"response": "y"},
        "model": {"family": of},
        "algorithm": algorithm,
        "output": {"draws": 50, "chains": 2},
    }


def exact(frames: Frames, *, dispersed: bool) -> float:
    """The log evidence of all rows by a sum over a grid, which shares no code with the package."""
    rows = pd.concat(frames.values())
    x, y = ((rows.x - rows.x.mean()) / rows.x.std(ddof=0)).to_numpy(), rows.y.to_numpy(float)
    level, sd = np.log(y.mean()), y.std() / y.mean() / np.sqrt(len(y))
    a, b = level - 0.08 + np.linspace(-6, 6, 25) * max(sd, 0.03), np.linspace(-0.1, 1.0, 45)
    phi = np.linspace(1e-4, 1.5, 50) if dispersed else np.array([0.0])
    prior_a, prior_b = -0.5 * ((a - level) / 5) ** 2 - np.log(5), -0.5 * (b / 2.5) ** 2 - np.log(2.5)
    prior_phi = np.log(2 / np.pi) - np.log1p(phi**2) if dispersed else np.zeros(1)
    total = np.empty((len(a), len(b), len(phi)))
    for i, at in enumerate(a):
        eta = at + np.outer(b, x)
        for k, one in enumerate(phi):
            r = one**-2.0 if dispersed else 1.0
            like = y * eta - np.exp(eta) - gammaln(y + 1)
            if dispersed:
                like = gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * (eta - np.logaddexp(eta, np.log(r)))
                like = like - r * np.log1p(np.exp(eta) / r)
            total[i, :, k] = like.sum(axis=1) + prior_a[i] + prior_b + prior_phi[k]
    step = (a[1] - a[0]) * (b[1] - b[0]) * (phi[1] - phi[0] if dispersed else 1.0)
    return float(logsumexp(total) + np.log(step) - np.log(2 * np.pi))


@pytest.mark.parametrize("of_job", [{}, SECURE], ids=["open", "secure"])
@pytest.mark.parametrize(("excess", "chosen"), [(0.0, "poisson"), (0.5, "negative-binomial")])
def test_the_result_is_that_of_a_job_which_names_the_family(
    excess: float, chosen: str, of_job: dict[str, Any], tmp_path: Path
) -> None:
    frames = counts(excess)
    named = {of: fedkern.run(job(of, **of_job), data=frames) for of in COUNTS}
    result = fedkern.run(job("auto", **of_job), data=frames, out=tmp_path / "out")
    assert result.digest == named[chosen].digest
    assert result.parameters == named[chosen].parameters
    assert result.job == named[chosen].job
    nats = [named[of].summary["log_evidence"]["value"] for of in COUNTS]
    assert [result.summary["families"][of]["log_evidence"] for of in COUNTS] == nats
    said = f"; family: {chosen}, by {abs(nats[0] - nats[1]):.1f} nats of evidence"
    assert str(result).splitlines()[0].endswith(said)
    assert str(result).startswith(f"likelihood: {chosen} (log): y ~ x")
    again = fedkern.load(tmp_path / "out")
    assert again.job == named[chosen].job
    new = frames["bo"].drop(columns="y")
    np.testing.assert_array_equal(again.predict(new)["mean"], named[chosen].predict(new)["mean"])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("excess", [0.0, 0.1, 0.5])
def test_the_evidence_of_both_is_that_of_a_sum_over_a_grid(excess: float, seed: int) -> None:
    frames = counts(excess, seed)
    told = fedkern.run(job("auto"), data=frames).summary["families"]
    for of in COUNTS:
        assert told[of]["log_evidence"] == pytest.approx(exact(frames, dispersed=of != "poisson"), abs=0.15), of


def chosen_right(seeds: range) -> None:
    """Right wherever the exact evidences differ by three nats, and nearly always so where the data are clear."""
    sure = 0
    for excess in (0.0, 0.6):
        for seed in seeds:
            frames = counts(excess, 100 + seed)
            result = fedkern.run(job("auto"), data=frames)
            difference = exact(frames, dispersed=True) - exact(frames, dispersed=False)
            chosen = result.job["model"]["family"]
            if abs(difference) > 3:
                sure += 1
                assert chosen == ("negative-binomial" if difference > 0 else "poisson"), (excess, seed)
            if excess:
                assert difference > 3, seed
    assert sure >= len(seeds)


def test_the_chosen_family_is_right() -> None:
    chosen_right(range(1))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_chosen_family_is_right_in_fifty_data_sets_of_each_kind() -> None:
    chosen_right(range(50))


@pytest.mark.nightly
def test_effects_of_groups_take_the_same_choice(tmp_path: Path) -> None:
    """The holder's own folder has the chosen family's effects."""
    frames = {name: frame.assign(ward=[f"w{i % 6}" for i in range(len(frame))]) for name, frame in counts(0.6, 5).items()}
    results = {}
    for of in ("negative-binomial", "auto"):
        asked = job(of)
        asked["model"]["random"] = {"group": "ward"}
        results[of] = fedkern.run(asked, data=frames, out=tmp_path / of)
    assert results["auto"].digest == results["negative-binomial"].digest
    own = [(tmp_path / of / "client-bo" / "groups.csv").read_text() for of in results]
    assert own[0] == own[1]


def write(folder: Path, frames: Frames, of_job: dict[str, Any]) -> None:
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    secure = "".join(f'{key} = "{value}"\n' for key, value in of_job.items())
    text = f'[job]\nmethod = "likelihood"\nseed = 3\n{secure}[data]\nclients = ["*.csv"]\nresponse = "y"\n'
    (folder / "job.toml").write_text(f'{text}[model]\nfamily = "auto"\n[algorithm]\ncheckpoint_every = 1e-6\n')


def test_jobs_that_have_no_evidence_or_no_counts_are_refused() -> None:
    frames = counts(0.0)
    with pytest.raises(JobError, match="no evidence with algorithm"):
        fedkern.run({**job("auto"), "algorithm": {"sampler": "hmc"}}, data=frames)
    other = job("negative-binomial")
    other["model"]["by_evidence"] = True
    with pytest.raises(JobError, match=r'model\.by_evidence is of counts, and the family is "negative-binomial"'):
        fedkern.run(other, data=frames)
    private = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 5.0}
    for method in ("likelihood", "pvi"):
        with pytest.raises(JobError, match=r'\[privacy\]: method = "likelihood" has no private form|model.family = "auto"'):
            fedkern.run({"job": {"method": method}, "data": {"response": "y"}, "model": {"family": "auto"}, "privacy": private})
    with pytest.raises(RemoteFault, match="TellFamily has the number 2, wanted 0 to 1"):
        family_heard(TellFamily(0, 2), 2)
    with pytest.raises(FedkernError):
        fedkern.run(job("auto"), data={name: frame.assign(y=frame.y - 0.5) for name, frame in frames.items()})


# What is said before any draw --------------------


def test_a_refusal_of_the_negative_binomials_number_names_the_family_without_it() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=120), "y": rng.poisson(2, 120)})
    files = {"a": frame[::2], "b": frame[1::2]}
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "disclosure": {"level": "standard"}}
    with pytest.raises(JobError, match='1 number of a negative binomial, which family = "poisson" has not; more than 75 rows'):
        fedkern.run({**job, "model": {"formula": "y ~ x", "family": "auto"}}, data=files)
    assert fedkern.run({**job, "model": {"formula": "y ~ x", "family": "poisson"}}, data=files).converged


@pytest.mark.parametrize("of_job", [{}, SECURE], ids=["open", "secure"])
def test_counts_that_vary_more_are_said_before_any_draw_is_asked(
    of_job: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fedkern.run(job("poisson", **of_job), data=counts(0.6), out=tmp_path / "out", progress=True)
    note = result.notes[0]
    assert "as a poisson model says, at the mode: intervals are about" in note
    assert 'set model.family = "auto"' in note
    assert f"fedkern: {note}" in capsys.readouterr().err
    kinds = [line.get("kind", "") for line in map(json.loads, (tmp_path / "out/ledger/bo.jsonl").read_text().splitlines())]
    order = [next(i for i, kind in enumerate(kinds) if kind.endswith(name)) for name in ("Curvature", "PearsonSums", "Values")]
    assert order == sorted(order)
    assert result.summary["rounds_of_draws"]  # the job goes on
    quiet = fedkern.run(job("poisson", **of_job), data=counts(0.0), progress=True)
    assert "at the mode" not in str(quiet.notes)
    assert "at the mode" not in capsys.readouterr().err


def test_the_remedy_of_that_note_ends_it() -> None:
    frames = counts(0.6)
    followed = job(fedkern.run(job("poisson"), data=frames).notes[0].split('model.family = "')[1].split('"')[0])
    result = fedkern.run(followed, data=frames)
    assert result.converged is True
    assert "at the mode" not in str(result.notes)


@pytest.mark.parametrize("of_job", [{}, SECURE], ids=["open", "secure"])
@pytest.mark.parametrize("after", [10, 20, 35, 45])
def test_a_job_that_goes_on_has_the_same_family_and_bits(
    after: int, of_job: dict[str, Any], tmp_path: Path, streams: Streams
) -> None:
    """Stopped on the way to either mode, at the question between mode and draws, and at the draws of the second family."""
    write(tmp_path, counts(0.5), of_job)
    with pytest.raises(FedkernError):
        run(tmp_path / "job.toml", tmp_path / "out", stop=after)
    resumed, whole = (run(tmp_path / "job.toml", out, resume=out is not None) for out in (tmp_path / "out", None))
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    assert resumed.job["model"]["family"] == "negative-binomial"
    if of_job:
        streams.check(starts=3)
