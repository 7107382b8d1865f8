"""Predictions at a holder, from its own folder: rows of its groups by these groups' posteriors, other rows as of a new group."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from scipy.stats import t as student

import fedkern
from fedkern.cli.__main__ import main

CLIENTS, GROUPS, EACH = ("ada", "bo", "cy"), 8, 6
FAST = {"points": 1024, "effective": 400.0}


def job(family: str, **random: Any) -> dict[str, Any]:
    model = {"family": family, "random": {"group": "ward", **random}}
    data = {"response": "y", "least_rows": 10}
    return {"job": {"method": "likelihood", "seed": 3}, "data": data, "model": model, "algorithm": dict(FAST)}


def predict(folder: Path, rows: pd.DataFrame, capsys: pytest.CaptureFixture[str]) -> tuple[pd.DataFrame, str]:
    """What `fedkern predict` says of rows, and its line on scores."""
    path, out = folder / "new.csv", folder / "predicted.csv"
    rows.to_csv(path, index=False)
    capsys.readouterr()
    assert main(["predict", str(folder), str(path), "--out", str(out)]) == 0
    return pd.read_csv(out), capsys.readouterr().out


def test_a_known_group_is_that_of_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(8)
    held = {}
    for name in CLIENTS:
        effects = np.repeat(0.8 * rng.normal(size=GROUPS), EACH)
        y = rng.poisson(np.exp(0.6 + effects)).astype(float)
        held[name] = pd.DataFrame({"y": y, "ward": np.repeat([f"w{g}" for g in range(GROUPS)], EACH)})
    fedkern.run(job("poisson"), data=held, out=tmp_path / "out")
    pooled = np.concatenate([one.y for one in held.values()])
    level, u = float(np.log(pooled.mean())), np.linspace(-6, 6, 161)
    points = np.array([(b, t) for b in np.linspace(level - 1.2, level + 0.8, 25) for t in np.linspace(-1.6, 0.9, 25)])
    log = norm.logpdf(points[:, 0], level, 5) + student.logpdf(np.exp(points[:, 1]), 3, 0, 2.5) + points[:, 1]
    eta = points[:, :1] + np.exp(points[:, 1:]) * u
    inner = {}
    for name, one in held.items():
        for ward, own in one.groupby("ward"):
            of_u = own.y.sum() * eta - EACH * np.exp(eta) - gammaln(own.y + 1).sum() + norm.logpdf(u)
            log += logsumexp(of_u, axis=1)
            inner[name, ward] = of_u - logsumexp(of_u, axis=1, keepdims=True)
    weights = np.exp(log - logsumexp(log))
    rows = pd.DataFrame({"ward": ["w0", "w3", "elsewhere", "w5", ""]})
    found, _ = predict(tmp_path / "out" / "client-bo", rows, capsys)
    assert list(found.group_effect) == ["known", "known", "new", "known", "new"]
    of_new = weights @ np.exp(points[:, 0] + np.exp(2 * points[:, 1]) / 2)
    assert found["mean"][[2, 4]].to_numpy() == pytest.approx(of_new, rel=0.05)
    far = 0.0
    for k in (0, 1, 3):
        of_row = weights[:, np.newaxis] * np.exp(inner["bo", rows.ward[k]])
        mean = float((of_row * np.exp(eta)).sum())
        sd = float(np.sqrt((of_row * (np.exp(eta) - mean) ** 2).sum()))
        at = np.argsort(np.exp(eta), axis=None)
        low, high = np.interp([0.025, 0.975], np.cumsum(of_row.ravel()[at]), np.exp(eta).ravel()[at])
        assert found["mean"][k] == pytest.approx(mean, abs=0.05 * sd)
        assert (found.q025[k], found.q975[k]) == pytest.approx((low, high), abs=0.2 * sd)
        linear = float((of_row * eta).sum())
        assert found.linear_mean[k] == pytest.approx(linear, abs=0.05 * np.sqrt((of_row * (eta - linear) ** 2).sum()))
        far = max(far, abs(mean - of_new) / sd)
    assert far > 1  # or a prediction of new groups would do
    for name in CLIENTS:
        mode = (tmp_path / "out" / f"client-{name}" / "effects.bin").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    assert not [path for path in (tmp_path / "out").iterdir() if path.name == "effects.bin"]
    shutil.copytree(tmp_path / "out" / "client-bo", tmp_path / "kept")  # a holder may keep it where it likes
    again, _ = predict(tmp_path / "kept", rows, capsys)
    pd.testing.assert_frame_equal(again, found)
    said = rows.assign(y=[2.0, np.nan, 1.0, np.nan, np.nan])  # scores are of rows with a response
    _, line = predict(tmp_path / "out" / "client-bo", said, capsys)
    of_row = weights[:, np.newaxis] * np.exp(inner["bo", "w0"] + 2 * eta - np.exp(eta) - gammaln(3))
    of_other = weights[:, np.newaxis] * np.exp(eta - np.exp(eta) + norm.logpdf(u)) * (u[1] - u[0])
    exact = (np.log(of_row.sum()) + np.log(of_other.sum())) / 2
    assert float(line.split("log-likelihood ")[1].split(",")[0]) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("client", [False, True])
@pytest.mark.nightly
def test_effects_with_slopes_are_conditional_normals(client: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given each draw that the server released, effects of a linear model are normal with known moments."""
    rng = np.random.default_rng(5)
    held = {}
    for name in CLIENTS:
        T = np.linalg.cholesky([[9.0, -1.0], [-1.0, 1.0]])
        x = np.round(rng.normal(10, 3, (GROUPS, EACH)), 2)
        a, b = T @ rng.normal(size=(2, GROUPS))
        y = 50 + 4 * rng.normal() + a[:, np.newaxis] + (2 + b[:, np.newaxis]) * x + 2 * rng.normal(size=x.shape)
        wards = np.repeat([f"w{g}" for g in range(GROUPS)], EACH)
        held[name] = pd.DataFrame({"x": x.ravel(), "y": np.round(y.ravel(), 2), "ward": wards})
    made = fedkern.run(job("gaussian", slopes=["x"], client=client), data=held, out=tmp_path / "out")
    draws = made.posterior.groups(None)["posterior"].variables
    flat = {name: np.asarray(values).reshape(-1)[::8] for name, (_, values) in draws.items()}
    own = held["cy"]
    rows = pd.DataFrame({"x": [8.0, 14.0, 11.0], "ward": ["w1", "w6", "unheard of"]})
    x, n = own.x.to_numpy(), len(own)
    means, spread = [], []
    for s in range(len(flat["sigma"])):
        sds = np.array([flat["group_sd[intercept]"][s], flat["group_sd[x]"][s]])
        r = flat["group_correlation[intercept,x]"][s]
        G = np.outer(sds, sds) * np.array([[1, r], [r, 1]])
        C = flat["client_sd[intercept]"][s] ** 2 if client else 0.0

        def covariance(left: pd.DataFrame, right: pd.DataFrame, G: Any = G, C: float = C) -> Any:
            A, B = (np.column_stack([np.ones(len(one)), one.x]) for one in (left, right))
            return C + (A @ G @ B.T) * (left.ward.to_numpy()[:, np.newaxis] == right.ward.to_numpy())

        V = covariance(own, own) + flat["sigma"][s] ** 2 * np.eye(n)
        across = covariance(rows, own)
        gain = np.linalg.solve(V, across.T).T
        at = flat["intercept"][s] + flat["theta"][s] * rows.x.to_numpy()
        means.append(at + gain @ (own.y.to_numpy() - flat["intercept"][s] - flat["theta"][s] * x))
        spread.append(np.diag(covariance(rows, rows) - gain @ across.T))
    mean, sd = np.mean(means, axis=0), np.sqrt(np.var(means, axis=0) + np.mean(spread, axis=0))
    found, _ = predict(tmp_path / "out" / "client-cy", rows, capsys)
    assert list(found.group_effect) == ["known", "known", "new"]
    assert (np.abs(found["mean"] - mean) < 0.2 * sd).all(), (found["mean"], mean, sd)
    assert found.linear_sd.to_numpy() == pytest.approx(sd, rel=0.1)


def test_what_cannot_be_predicted_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    held = {name: pd.DataFrame({"x": rng.normal(size=40).round(3)}) for name in CLIENTS}
    for one in held.values():
        one["y"], one["ward"] = rng.poisson(2.0, 40).astype(float), np.repeat([f"w{g}" for g in range(8)], 5)
    tables = job("poisson") | {"algorithm": {"points": 256, "effective": 100.0}}
    fedkern.run(tables, data=held, out=tmp_path / "out")
    folder, rows = tmp_path / "out" / "client-ada", tmp_path / "rows.csv"
    held["ada"].drop(columns=["y", "ward"]).to_csv(rows, index=False)
    assert main(["predict", str(folder), str(rows)]) == 2
    assert "column 'ward' (model.random.group) is missing; add it" in capsys.readouterr().err
    held["ada"].to_csv(rows, index=False)
    (folder / "effects.bin").write_bytes((tmp_path / "out" / "client-bo" / "effects.bin").read_bytes())
    assert main(["predict", str(folder), str(rows)]) == 2
    assert "is of another run, or of another client" in capsys.readouterr().err
    (folder / "effects.bin").write_bytes((folder / "effects.bin").read_bytes()[:-8])
    assert main(["predict", str(folder), str(rows)]) == 2
    assert "was altered" in capsys.readouterr().err
    (folder / "effects.bin").unlink()
    assert main(["predict", str(folder), str(rows)]) == 2
    assert "holds no effects.bin" in capsys.readouterr().err


def test_a_label_is_known_however_a_number_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ward 1.0 is ward 1, as a column with an empty cell is often written; 01 may be another, which is said."""
    rng = np.random.default_rng(3)
    held = {}
    for name in CLIENTS:
        wards = np.repeat(np.arange(1, GROUPS + 1), EACH)
        y = rng.poisson(np.exp(0.6 + rng.normal(size=GROUPS)[wards - 1])).astype(float)
        held[name] = pd.DataFrame({"y": y, "ward": wards})
    fedkern.run(job("poisson"), data=held, out=tmp_path / "out")
    own = tmp_path / "out" / "client-bo"

    def said(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
        rows.to_csv(own / "new.csv", index=False)
        capsys.readouterr()
        assert main(["predict", str(own), str(own / "new.csv"), "--out", str(own / "out.csv")]) == 0
        return pd.read_csv(own / "out.csv"), "".join(capsys.readouterr())

    as_whole, lines = said(pd.DataFrame({"ward": ["1", "2", "3"]}))
    assert list(as_whole.group_effect) == ["known"] * 3
    assert "none of its labels is known" not in lines
    as_floats, _ = said(pd.DataFrame({"ward": ["1.0", "2.0", "3.0"]}))
    pd.testing.assert_frame_equal(as_floats, as_whole)
    others, lines = said(pd.DataFrame({"ward": ["01", "02", "03"]}))
    assert list(others.group_effect) == ["new"] * 3
    assert "column 'ward': none of its labels is known to this client" in lines
    _, lines = said(pd.DataFrame({"ward": ["", ""], "y": [1, 2]}))
    assert "none of its labels is known" not in lines


def test_labels_of_two_columns_together_are_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """(1 | region:ward), as lmer has it, is the group of a column that joins both."""
    rng, held = np.random.default_rng(3), {}
    for name in CLIENTS:
        ward, region = np.tile(np.repeat([1, 2, 3, 4], EACH), 2), np.repeat(["n", "s"], 4 * EACH)
        effects = np.repeat(rng.normal(size=8), EACH)
        x = rng.normal(size=len(ward))
        joined = [f"{r}:{w}" for r, w in zip(region, ward)]
        held[name] = pd.DataFrame(
            {"x": x, "ward": ward, "region": region, "both": joined, "y": x + effects + rng.normal(size=len(x))}
        )
    formulas = ("y ~ x + (1 | region:ward)", "y ~ x + (1 | both)")
    common = {"job": {"method": "likelihood"}, "algorithm": dict(FAST)}
    two, one = (
        fedkern.run({**common, "model": {"family": "gaussian", "formula": formula}}, data=held, out=tmp_path / f"out{k}")
        for k, formula in enumerate(formulas)
    )
    assert two.parameters == one.parameters
    found, _ = predict(
        tmp_path / "out0" / "client-bo", held["bo"].drop(columns="both").assign(ward=[9] * EACH + [2] * 42), capsys
    )
    assert list(found.group_effect) == ["new"] * EACH + ["known"] * 42


def test_a_group_at_several_clients_is_noted() -> None:
    """As where a patient's visits are dealt by lot: where rows are in one process it is seen."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"ward": np.repeat([f"w{k}" for k in range(8)], 12), "y": rng.normal(size=96)})
    tables = {**job("gaussian"), "data": {"response": "y"}}
    by_lot = fedkern.run(tables, data={"a": frame[::2], "b": frame[1::2]})
    assert [one.values["groups"] for one in by_lot.findings if one.id == "groups-at-several-clients"] == [8]
    by_ward = fedkern.run(tables, data={"a": frame[:48], "b": frame[48:]})
    assert not [one for one in by_ward.findings if one.id == "groups-at-several-clients"]
