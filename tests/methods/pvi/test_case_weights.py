"""Case weights that make many rows of each are named, with the remedy: intervals would be those of so many more rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from fedkern.results import case_weights
from support.refusal import refusal

NAMES = ("a", "b", "c")


def fitted(data: Any, weight: str | None = None, **model: Any) -> Any:
    tables: dict[str, Any] = {"job": {"method": "pvi", "rounds": 8, "seed": 1}, "data": {"response": "y"}}
    tables["data"] |= {"weight": weight} if weight else {}
    tables["model"] = {"covariance": "full", **model}
    return fedkern.run(tables, data=data)


def linear(sd: float = 1.0, seed: int = 2) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(seed)
    frames = {}
    for name in NAMES:
        x = random.normal(size=100)
        frames[name] = pd.DataFrame({"x": x, "y": 2 * x + sd * random.normal(size=100), "w": 1.0, "label": (x > 0.3) * 1})
    return frames


def labelled() -> dict[str, pd.DataFrame]:
    return {name: frame.assign(y=frame["label"]) for name, frame in linear().items()}


def test_weights_that_make_many_rows_of_each_are_named() -> None:
    data = labelled()
    data["b"]["w"] = np.linspace(1.5, 3.5, 100)
    data["a"]["w"] = data["c"]["w"] = 0.25
    note = "weights of column 'w' sum to far more than the rows: b 2.5 times"
    result = fitted(data, "w", family="bernoulli")
    assert result.converged == "settled"
    said = [line for line in result.summary["notes"] if note in line]
    assert len(said) == 1
    assert "divide 'w' by its mean, about 2.5" in said[0]
    for frame in data.values():
        frame["w"] = 1.0
    assert not any("weights of column" in line for line in fitted(data, "w", family="bernoulli").summary["notes"])


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("by", [40.0, 0.2])
def test_rows_that_count_many_times_are_a_doubt_whose_remedy_ends_well(family: str, by: float) -> None:
    data = linear() if family == "gaussian" else labelled()
    random = np.random.default_rng(4)
    drawn = {name: frame.assign(w=by * random.choice([0.5, 1.0, 1.5], 100)) for name, frame in data.items()}
    result = fitted(drawn, "w", family=family)
    assert result.converged is False
    (mean,) = re.findall(r"rows count .* divide 'w' by its mean, (\S+), at all clients", result.summary["verdict"])
    again = fitted({name: frame.assign(w=frame["w"] / float(mean)) for name, frame in drawn.items()}, "w", family=family)
    assert again.converged == "settled", again.summary["verdict"]
    assert not any("weights of column" in line for line in again.summary["notes"])
    wider = again.parameters["theta[x]"]["sd"] / result.parameters["theta[x]"]["sd"]
    if family == "gaussian":  # of the other the column separates the labels, and the prior decides
        assert wider == pytest.approx(by**0.5, rel=0.05)


def test_weights_that_are_counts_may_sum_to_more_than_the_rows() -> None:
    data = {name: frame.assign(w=3.0) for name, frame in labelled().items()}
    assert fitted(data, "w", family="bernoulli").converged is False
    tables = {
        "job": {"method": "pvi", "rounds": 8, "seed": 1},
        "data": {"response": "y", "weight": "w", "weight_kind": "frequency"},
    }
    counted = fedkern.run({**tables, "model": {"family": "bernoulli", "covariance": "full"}}, data=data)
    assert counted.converged == "settled"
    assert not any("weights of column" in line for line in counted.summary["notes"])
    # It is the posterior of a file in which each row stands three times, but for scales of the columns.
    repeated = {name: pd.concat([frame] * 3, ignore_index=True) for name, frame in labelled().items()}
    of_rows = fitted(repeated, family="bernoulli").parameters["theta[x]"]
    assert counted.parameters["theta[x]"]["sd"] == pytest.approx(of_rows["sd"], rel=0.01)
    data["b"]["w"] = 2.5
    with refusal(JobError, "w", "2.5"):
        fedkern.run({**tables, "model": {"family": "bernoulli"}}, data=data)
    with pytest.raises(JobError, match="weight_kind says what"):
        fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y", "weight_kind": "frequency"}}, data=data)


def test_of_two_clients_and_of_all_together_weights_are_compared() -> None:
    weighed = case_weights.Weighed
    assert (
        "1e+03 at b, and 1 at the others" in case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 1e3)}).doubts[0]
    )
    assert (
        "0.05 at b, and 1.2 at the others"
        in case_weights.compare("w", {"a": weighed(50, 1.0), "c": weighed(50, 1.4), "b": weighed(50, 0.05)}).doubts[0]
    )
    assert case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 8.0)}, precisions=True).doubts
    assert case_weights.compare("w", {"all": weighed(100, 2.5)}).doubts
    assert case_weights.compare("w", {"a": weighed(50, 0.2), "b": weighed(50, 1.8)}, precisions=True) == case_weights.Said()
    assert case_weights.compare("w", {"a": weighed(50, 0.0), "b": weighed(0, 0.0)}) == case_weights.Said()
    counted = case_weights.compare("w", {"a": weighed(50, 1.0), "b": weighed(50, 1e3)}, counts=True)
    assert "by data.weight_kind: their mean is 1e+03 at b" in counted.notes[0]
    assert not counted.doubts


def test_weights_that_are_no_counts_are_told_to_their_holder_in_a_private_job(tmp_path: Path) -> None:
    """No cell ends such a job, and nobody else reads it."""
    data = {name: frame.assign(w=1.0 + k) for k, (name, frame) in enumerate(labelled().items())}
    data["b"].loc[3, "w"] = 2.5
    job = {
        "job": {"method": "pvi", "rounds": 3, "seed": 1},
        "data": {
            "response": "y",
            "weight": "w",
            "weight_kind": "frequency",
            "standardise": "none",
            "columns": {name: {"kind": "numeric"} for name in data["a"].columns if name not in ("y", "w")},
        },
        "model": {"family": "bernoulli"},
        "privacy": {"epsilon": 8.0, "delta": 1e-5, "clip": 2.0, "noise_multiplier": 2.0, "sampling_rate": 0.5},
    }
    result = fedkern.run(job, data=data, out=tmp_path / "out")
    told = {name: (tmp_path / "out" / f"client-{name}" / "rows.json").read_text() for name in data}
    assert "rows with a weight that is no number of rows, which data.weight_kind says it is: 1, the first in row 4" in told["b"]
    assert not any("no number of rows" in told[name] for name in data if name != "b")
    assert "no number of rows" not in str(result.summary)


def test_sums_are_asked_for_where_rows_have_weights() -> None:
    job: dict[str, Any] = {"data": {"response": "y"}}
    weighed = {"data": {"response": "y", "weight": "w"}}
    for tables, asked in ((job, False), (weighed, True)):
        said = "\n".join(fedkern.check({"job": {"method": "pvi"}, **tables}, data=labelled(), verbose=True))
        assert ("PearsonSums" in said) is asked
