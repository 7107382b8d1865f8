"""Structure of a client that the job does not know: groups or weights of its site file, the pooled model with them, and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import OwnFault
from fedkern.kernels.families import BERNOULLI
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.mixed.secret import Secret

GROUPS = 12


def frame(seed: int, sd: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ward = rng.integers(0, GROUPS, 150)
    x = rng.normal(size=150)
    eta = 0.3 + 0.6 * x + sd * rng.normal(size=GROUPS)[ward]
    y = (rng.random(150) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame({"x": x, "y": y, "ward": [f"w{k}" for k in ward], "weight": rng.choice([0.0, 1.0, 2.0], 150)}).assign(
        row=[f"r{k}" for k in range(150)]
    )


A, B = frame(1), frame(2, sd=1.2)


def run(folder: Path, site: str = "", more: str = "", columns: tuple[str, ...] = ("ward", "weight")) -> Any:
    """Runs a job of two files; only the second client's has wards and weights, of which its site file may speak."""
    folder.mkdir(parents=True, exist_ok=True)
    A[["x", "y"]].to_csv(folder / "a.csv", index=False)
    B[["x", "y", *columns]].to_csv(folder / "b.csv", index=False)
    if site:
        (folder / "sites").mkdir(exist_ok=True)
        (folder / "sites" / "b.toml").write_text(f"[structure]\n{site}\n")
    (folder / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\nstandardise = "none"\n'
        f"[model]\nprior_sd = 2.0\nintercept_sd = 2.0\nintercept_centre = 0.0\n{more}"
    )
    return fedkern.run(folder / "job.toml", out=folder / "run")


def test_bytes_are_those_of_a_job_without_structure_and_the_numbers_are_not(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", columns=())
    grouped = run(tmp_path / "groups", 'group = "ward"', columns=("ward",))
    weighted = run(tmp_path / "weights", 'weight = "weight"', columns=("weight",))

    def lengths(result: Any) -> dict[str, list[tuple[str, int, Any]]]:
        """Of each kind of message of each client the protocol, bytes and shapes."""
        found: dict[str, list[tuple[str, int, Any]]] = {}
        for path in sorted((result.folder / "ledger").glob("*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[path.stem] = sorted({(line["kind"], line["bytes"], json.dumps(line["shapes"])) for line in lines})
        return found

    assert lengths(grouped) == lengths(plain) == lengths(weighted)
    assert "b" in lengths(plain), "the ledger of the client with a structure"
    means = [result.parameters["theta[x]"]["mean"] for result in (plain, grouped, weighted)]
    assert len({round(mean, 2) for mean in means}) == 3
    for result in (grouped, weighted):
        assert "ward" not in json.dumps(result.summary), "nobody else reads a name of the structure"
        assert "weight = " not in (result.folder / "job.json").read_text()


def on_a_grid(of_b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds of intercept and slope of the pooled model, by a sum over a grid."""
    b, w = (axis.ravel() for axis in np.meshgrid(np.linspace(-0.7, 2.0, 31), np.linspace(0.1, 1.7, 31), indexing="ij"))
    value = -0.5 * (b**2 + w**2) / 4 + of_b(b, w)
    for x, y in zip(A["x"], A["y"]):
        value += y * (b + w * x) - np.logaddexp(0, b + w * x)
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    means = np.array([weight @ b, weight @ w])
    return means, np.sqrt([weight @ (b - means[0]) ** 2, weight @ (w - means[1]) ** 2])


def with_groups(b: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The log-likelihood of B with an intercept of each ward, whose sd is half-student(3, 2.5): sums of 40 nodes by 40."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    sds = np.linspace(0.02, 5, 40)
    log_prior = -2 * np.log1p((sds / 2.5) ** 2 / 3)
    total = []
    for sd in sds:
        value = np.zeros(len(b))
        for _, rows in B.groupby("ward"):
            eta = b[:, None, None] + w[:, None, None] * rows["x"].to_numpy() + sd * nodes[:, None]
            inner = (rows["y"].to_numpy() * eta - np.logaddexp(0, eta)).sum(axis=2)
            value += logsumexp(inner + np.log(weights / weights.sum()), axis=1)
        total.append(value)
    return np.asarray(logsumexp(np.array(total) + log_prior[:, None], axis=0))


def with_weights(b: np.ndarray, w: np.ndarray) -> np.ndarray:
    value = np.zeros(len(b))
    for x, y, weight in zip(B["x"], B["y"], B["weight"]):
        value += weight * (y * (b + w * x) - np.logaddexp(0, b + w * x))
    return value


@pytest.mark.digits
@pytest.mark.parametrize(("site", "of_b"), [('group = "ward"', with_groups), ('weight = "weight"', with_weights)])
def test_the_result_is_that_of_the_pooled_model_with_the_structure(tmp_path: Path, site: str, of_b: Any) -> None:
    result = run(tmp_path, site, columns=("ward",) if "ward" in site else ("weight",))
    mean, sd = on_a_grid(of_b)
    found = [result.parameters[name] for name in ("intercept", "theta[x]")]
    np.testing.assert_allclose([row["mean"] for row in found], mean, atol=0.06 * sd.min())
    np.testing.assert_allclose([row["sd"] for row in found], sd, rtol=0.05)
    assert result.converged is True


def likelihood(rows: pd.DataFrame) -> Secret:
    layout = Layout(("intercept", "x"), BERNOULLI.name)
    X = np.column_stack([np.ones(len(rows)), rows["x"]])
    plain = Rows(layout, X, rows["y"].to_numpy(float), np.array([0, len(rows)]))
    codes = np.unique(rows["ward"], return_inverse=True)[1]
    return Secret.of(plain, codes, Prior.usual(Layout(layout.coefficients, layout.family, ("intercept",))))


def test_values_are_integrals_over_effects_and_their_standard_deviation() -> None:
    """Of few rows, of which the prior of the standard deviation decides much."""
    some = B[B["ward"].isin(["w0", "w1", "w2"])]
    z, logs = np.linspace(-8, 8, 801), np.linspace(-9, 5, 700)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    points = np.array([[0.2, 0.5], [1.5, -0.3]])
    wanted = []
    for b, w in points:
        total = np.zeros(len(logs))
        for _, rows in some.groupby("ward"):
            x, y = (rows[name].to_numpy()[:, None, None] for name in ("x", "y"))
            eta = b + w * x + np.exp(logs)[:, None] * z
            total += np.log(np.exp((y * eta - np.logaddexp(0, eta)).sum(axis=0)) @ weights)
        log_prior = np.log(2 * stats.t.pdf(np.exp(logs) / 2.5, 3) / 2.5) + logs
        wanted.append(logsumexp(total + log_prior) + np.log(logs[1] - logs[0]))
    np.testing.assert_allclose(likelihood(some).values(points, 1), wanted, atol=5e-3)


def test_derivatives_are_those_of_the_values() -> None:
    secret = likelihood(B)
    xi, h = np.array([[0.2, 0.5]]), 1e-4
    _, gradient, hessian = secret.curvature(xi, 1)
    steps = h * np.eye(2)
    values = [secret.values(xi + s, 1)[0] - secret.values(xi - s, 1)[0] for s in steps]
    slopes = [secret.curvature(xi + s, 1)[1][0] - secret.curvature(xi - s, 1)[1][0] for s in steps]
    np.testing.assert_allclose(gradient[0], np.array(values) / (2 * h), rtol=1e-4)
    np.testing.assert_allclose(hessian[0], -np.array(slopes) / (2 * h), rtol=1e-3)
    assert not secret.rule(xi, 1).any(), "a rule above 0 would say that there are groups"


@pytest.mark.parametrize(
    ("site", "column", "more", "why"),
    [
        ('group = "ward"\nweight = "weight"', "ward", "", "give one of them"),
        ('group = "none"', "ward", "", "no column of"),
        ('group = "row"', "row", "", "150 groups of 150 rows"),
        ('weight = "ward"', "ward", "", "wanted finite numbers"),
        ('group = "ward"', "ward", '[model.random]\ngroup = "x"\n', "is not for a job with"),
    ],
)
def test_a_structure_that_cannot_be_is_told_to_its_holder_alone(
    tmp_path: Path, site: str, column: str, more: str, why: str
) -> None:
    with pytest.raises(OwnFault) as caught:
        run(tmp_path, site, more, columns=(column,))
    assert why in caught.value.own
    assert "structure" not in str(caught.value), "nobody else reads that there is one"


def test_the_holder_and_rows_in_memory_have_the_same_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_files = run(tmp_path, 'group = "ward"', columns=("ward",))
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "b.csv")]) == 0
    assert "ward" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    data = {"a": A[["x", "y"]], "b": B[["x", "y", "ward"]]}
    job = {name: dict(of_files.job[name]) for name in ("job", "model")}
    in_memory = fedkern.run({**job, "data": {"response": "y", "standardise": "none"}}, data=data)
    assert in_memory.digest == of_files.digest
