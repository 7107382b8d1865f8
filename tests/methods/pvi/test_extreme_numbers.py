"""Numbers that a double has and no rate, unit or step can mean: the right answer, or one error that names it and the remedy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.data.cells import LEAST, MOST_OFF
from fedkern.errors import FedkernError, JobError, NumericalError
from support import built_priors, few
from support import sigma_artifacts as artifacts
from support.refusal import refusal


def client(seed: int, *, count: float | None = None, unit: float = 1.0, offset: float | None = None) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    x = random.standard_normal(100)
    y = random.poisson(np.exp(0.3 * x)).astype(float)
    y[0] = y[0] if count is None else count
    frame = pd.DataFrame({"x": unit * x, "y": y})
    return frame if offset is None else frame.assign(off=np.where(np.arange(100) == 3, offset, 0.0))


def ran(a: pd.DataFrame, b: pd.DataFrame, **sections: Any) -> Any:
    tables: dict[str, Any] = {"job": {"method": "pvi", "rounds": 20}, "model": {"family": "poisson"}}
    tables["data"] = {"response": "y", **few.ANY}
    tables = {**tables, **{name: {**tables.get(name, {}), **keys} for name, keys in sections.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fedkern.run(tables, data={"a": a, "b": b})


@pytest.mark.parametrize("count", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("algorithm", [{"optimiser": "sgd"}, {"optimiser": "sgd", "variant": "global-vi"}], ids=["pvi", "global"])
def test_steps_that_diverge_are_no_result(count: float, algorithm: dict[str, Any]) -> None:
    with pytest.raises(NumericalError) as caught:
        ran(client(1, count=count), client(2), algorithm=algorithm)
    text = str(caught.value)
    assert text.startswith(f"client 'a': round {int('variant' in algorithm)}: ")
    assert "the optimiser diverges (lower algorithm.learning_rate = 0.0" in text
    assert ('or take optimiser = "exact"' in text) is ("variant" not in algorithm)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("count", [1e6, 1e9])
def test_with_a_full_covariance_too(count: float) -> None:
    with refusal(NumericalError, "a", "0"):
        ran(client(1, count=count), client(2), algorithm={"optimiser": "sgd"}, model={"covariance": "full"})


def test_what_is_left_of_a_leap_is_seen_where_all_numbers_are_finite() -> None:
    """A Gaussian fit whose steps double their error: nothing overflows in one update."""
    rows = client(1), client(2)
    with refusal(NumericalError, "a", "0"):
        ran(*rows, algorithm={"optimiser": "sgd", "learning_rate": 0.025, "local_steps": 12}, model={"family": "gaussian"})


def test_steps_that_fit_are_taken() -> None:
    """Also of mini-batches, and a count of 1e9 has an exact fit."""
    for batch in (1.0, 0.2):
        keyed = {"random_source": "keyed"} if batch < 1 else {}
        result = ran(client(1), client(2), algorithm={"optimiser": "sgd", "batch": batch} | keyed)
        assert abs(result.summary["parameters"]["theta[x]"]["mean"] - 0.28) < 0.1
    result = ran(client(1, count=1e9), client(2))
    assert result.summary["verdict"].startswith("settled")
    assert result.summary["parameters"]["intercept"]["mean"] == pytest.approx(15.35, abs=0.01)


@pytest.mark.parametrize("offset", [1e150, -1e150, 800.0, -800.0, 1.01 * MOST_OFF])
@pytest.mark.parametrize("optimiser", ["exact", "adagrad"])
def test_an_offset_that_is_no_logarithm_is_named(offset: float, optimiser: str) -> None:
    """Adagrad's steps left its row out without a word."""
    rows = client(1, offset=offset), client(2, offset=0.0)
    with refusal(JobError, "a", "4", "off"):
        ran(*rows, algorithm={"optimiser": optimiser}, data={"offset": "off"})


def test_offsets_within_bounds_and_those_of_an_identity_link_are_taken() -> None:
    ran(client(1, offset=-MOST_OFF), client(2, offset=0.0), data={"offset": "off"})
    ran(client(1, offset=1e4), client(2, offset=0.0), data={"offset": "off"}, model={"family": "gaussian", "scale": 1e3})


@pytest.mark.parametrize("exposure", [1e150, 1e-150])
def test_an_exposure_of_a_map_is_named(exposure: float, tmp_path: Path) -> None:
    built_priors.written(tmp_path)
    rows = artifacts.counts(tmp_path / "rows", covariate=False)
    path = tmp_path / "rows" / f"{artifacts.NAMES[0]}.csv"
    table = pd.read_csv(path).astype({"expected": float})
    table.loc[2, "expected"] = exposure
    table.to_csv(path, index=False)
    tables = {"data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"}}
    with pytest.raises(JobError, match=rf"client '{artifacts.NAMES[0]}'.*column 'expected' is too far from 1 for an exposure"):
        fedkern.run({"job": {"method": "sigma", "rounds": 5}, "model": {"prior": str(tmp_path / "prior"), "phi": 0.8}, **tables})


TINY = "are too close together; give the column in another unit: values must differ by at least 1e-150"


@pytest.mark.parametrize("unit", [1e-160, 1e-170, 1e-300])
@pytest.mark.parametrize("data", [{}, {"standardise": "none"}], ids=["exchange", "none"])
def test_a_column_of_tiny_numbers_is_not_said_to_be_constant(unit: float, data: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=rf"client 'a'.*{TINY}") as caught:
        ran(client(1, unit=unit), client(2, unit=unit), data=data)
    assert "constant" not in str(caught.value)


def test_the_other_methods_say_the_same() -> None:
    a, b = client(1, unit=1e-170), client(2, unit=1e-170)
    with pytest.raises(JobError, match=TINY):
        fedkern.run({"job": {"method": "sparse"}, "data": {"response": "y"}}, data={"a": a, "b": b})
    ids, linear = np.arange(100), {"model": {"family": "gaussian"}}
    parts = {"a": a[["x"]].assign(id=ids), "b": b[["y"]].assign(id=ids, z=np.cos(ids))}
    with pytest.raises(JobError, match=TINY):
        fedkern.run({"job": {"method": "vertical", "rounds": 5}, "data": {"response": "y", "id": "id"}, **linear}, data=parts)
    with pytest.raises(JobError, match=TINY):  # the response of a linear model
        fedkern.run(
            {"job": {"method": "sparse"}, "data": {"response": "y"}},
            data={k: frame.assign(x=frame["y"], y=1e-170 * np.cos(ids)) for k, frame in (("a", a), ("b", b))},
        )


def test_small_and_constant_columns_are_what_they_were() -> None:
    small, plain = (ran(client(1, unit=u), client(2, unit=u)).summary["parameters"] for u in (10 * LEAST, 1.0))
    for key in ("mean", "sd"):
        assert 10 * LEAST * small["theta[x]"][key] == pytest.approx(plain["theta[x]"][key], rel=1e-6)
    same = client(1).assign(x=1e-170), client(2).assign(x=1e-170)
    assert any("constant" in note or "one value" in note for note in ran(*same).summary["notes"])


def test_a_declared_scale_must_have_a_square() -> None:
    with pytest.raises(FedkernError, match=r"scale: needs at least 1e-150, got 1e-170; give the column in another unit"):
        ran(client(1), client(2), data={"columns": {"x": {"center": 0.0, "scale": 1e-170}}})


def test_counts_whose_sum_is_no_number_of_a_message_are_told_what_to_be() -> None:
    """Means above e^20: the remedy has the right slope."""
    pd, random, clients = pytest.importorskip("pandas"), np.random.default_rng(3), {}
    for name, n in {"a": 200, "b": 150, "c": 300}.items():
        age = random.normal(60, 12, n)
        clients[name] = pd.DataFrame({"age": age, "y": random.poisson(np.exp(21 + 0.025 * (age - 60)))})
    job: dict[str, Any] = {"job": {"method": "pvi"}, "data": {"response": "y"}}
    with pytest.raises(NumericalError, match="counts that are so many and right are measurements: write their logarithms"):
        fedkern.run({**job, "model": {"family": "poisson"}}, data=clients)
    logs = {name: one.assign(y=np.log(one["y"])) for name, one in clients.items()}
    found = fedkern.run({**job, "model": {"family": "gaussian"}}, data=logs)
    assert found.summary["converged"] == "settled"
    assert found.parameters["theta[age]"]["mean"] == pytest.approx(0.025, abs=1e-6)
