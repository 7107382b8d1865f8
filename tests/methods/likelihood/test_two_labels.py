"""A response of two labels is a binary one: all clients' labels decide which counts as 1, and the first line names it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.labels import event_of, in_order
from support.refusal import refusal

LOGISTIC: Any = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli", "formula": "y ~ x + z"}}
WHOLE_FILE = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}
PVI = {"job": {"rounds": 2}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}
COX = {"job": {"method": "likelihood"}, "model": {"family": "cox", "formula": "Surv(time, y) ~ x + z"}}
PRIVACY = {"epsilon": 20.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 5.0, "sampling_rate": 0.5}
JOBS: dict[str, Any] = {"formula": LOGISTIC, "file": WHOLE_FILE, "pvi": PVI, "cox": COX}
NUMBERS = [(0, 1)] * 3


def dealt(labels: Sequence[tuple[Any, ...]], *, times: bool = False) -> dict[str, pd.DataFrame]:
    """Rows of as many clients as there are pairs of labels; each writes its response by its own pair."""
    rng, data = np.random.default_rng(3), {}
    for client, pair in zip("abc", labels):
        x, z = rng.normal(size=(2, 100))
        y = rng.random(100) < 1 / (1 + np.exp(-0.3 - x))
        data[client] = pd.DataFrame({"x": x, "z": z, "y": np.where(y, pair[1], pair[0])})
        if times:
            data[client]["time"] = rng.exponential(np.exp(-x)).round(6)
    return data


@pytest.mark.parametrize(("labels", "event"), [
    ([("no", "yes")] * 3, "yes"),
    ([("alive", "dead")] * 3, "dead"),
    ([("bad", "good")] * 3, "good"),
    ([(1, 2)] * 3, "2"),
    ([("no", "yes"), ("no", "no"), ("yes", "yes")], "yes"),
    ([(1, 2), (1, 1), (2, 2)], "2"),
    ([(1, 1), (2, 2), (2, 2)], "2"),
    ([(1, 1), (-1, -1), (1, 1)], "1"),
])  # fmt: skip
@pytest.mark.parametrize("job", ["formula", "file"])
def test_two_labels_are_as_0_and_1(labels: list[Any], event: str, job: str) -> None:
    coded = [tuple(int(str(one) == event) for one in pair) for pair in labels]
    result, wanted = (fedkern.run(JOBS[job], data=dealt(pairs)) for pairs in (labels, coded))
    assert result.digest == wanted.digest
    assert result.summary["encoding"]["positive"] == event
    assert repr(result).splitlines()[0].endswith(f"; event: y = {event}")
    assert wanted.summary["encoding"]["positive"] is None
    assert "event" not in repr(wanted).splitlines()[0]


@pytest.mark.parametrize(("order", "event"), [(["normal", "low"], "low"), (["low", "normal"], "normal"), (None, "normal")])
def test_the_last_in_the_order_of_a_category_type_is_the_event(order: list[str] | None, event: str) -> None:
    data = dealt([("normal", "low")] * 3)
    if order:
        for frame in data.values():
            frame["y"] = pd.Categorical(frame["y"], order, ordered=True)
    assert fedkern.run(LOGISTIC, data=data).summary["encoding"]["positive"] == event


@pytest.mark.parametrize("job", ["pvi", "cox"])
def test_other_methods_and_survival_take_them_too(job: str) -> None:
    pairs = [[(1, 2)] * 3, NUMBERS]
    result, wanted = (fedkern.run(JOBS[job], data=dealt(labels, times=job == "cox")) for labels in pairs)
    assert result.digest == wanted.digest
    assert result.summary["encoding"]["positive"] == "2"


def test_truth_values_are_numbers_however_they_are_written() -> None:
    result = fedkern.run(LOGISTIC, data=dealt([(False, True), ("FALSE", "TRUE"), (0, 1)]))
    assert result.digest == fedkern.run(LOGISTIC, data=dealt(NUMBERS)).digest


def test_rows_without_a_label_are_left_out() -> None:
    data = dealt([("no", "yes")] * 3)
    data["a"].loc[:4, "y"] = None
    dropped = {**data, "a": data["a"].loc[5:]}
    job = {**LOGISTIC, "model": {**LOGISTIC["model"], "missing": "drop"}}
    assert fedkern.run(job, data=data).digest == fedkern.run(LOGISTIC, data=dropped).digest


def test_secure_sums_tell_labels_alone() -> None:
    job: Any = {**LOGISTIC, "job": {"method": "likelihood", "sums": "secure"}}
    assert fedkern.run(job, data=dealt([("no", "yes")] * 3)).digest == fedkern.run(job, data=dealt(NUMBERS)).digest


@pytest.mark.parametrize(("labels", "said"), [
    ([(2, 2), (2, 2), (0, 1)], "client 'c'.*'0' is not a label; the labels are 1, 2; correct the cell, or the file that differs"),
    ([("no", "yes"), ("no", "yess"), ("no", "yes")], "client 'b': 'y' has a label too many: all clients together have 3 labels"),
    ([("no", "yes"), ("no", "yes"), (0, 1)], "client 'a': 'y' has labels, and 0 and 1 at client 'c'; write the same two labels"),
    ([(1, 2), (1, 2), (0, 1)], "client 'c'.*'0' is not a label; the labels are 1, 2; correct the cell, or the file that differs"),
    ([("yes", "yes")] * 3, "'y' has one label at all clients, 'yes', and a binary response has two"),
])  # fmt: skip
def test_labels_that_are_not_the_same_two_are_refused(labels: list[Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        fedkern.run(LOGISTIC, data=dealt(labels))


def test_a_file_of_three_labels_is_refused_before_labels_leave() -> None:
    data = dealt([("no", "yes")] * 3)
    data["b"].loc[7, "y"] = "ye"
    with refusal(JobError, "b", "y", "3"):
        fedkern.run(LOGISTIC, data=data)
    data = dealt(NUMBERS)
    data["b"].loc[7, "y"] = 2
    with refusal(JobError, "b", "8", "y", "2", "0"):
        fedkern.run(LOGISTIC, data=data)


def test_a_private_job_takes_its_event_from_the_job_file_alone() -> None:
    columns: Any = {name: {"center": 0.0, "scale": 1.0} for name in "xz"}
    for said, event in (({}, None), ({"y": {"levels": ["no", "yes"]}}, "yes")):
        job: Any = {**PVI, "privacy": PRIVACY, "data": {"response": "y", "columns": {**columns, **said}}}
        result = fedkern.run(job, data=dealt([("no", "yes")] * 3))
        assert result.summary["encoding"]["positive"] == event


def test_a_private_job_of_numbers_names_the_key_of_its_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No message may tell of a faulty row, so that its holder alone reads what is to be done."""
    for name, frame in dealt([(1, 2)] * 3).items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    columns = "".join(f"{name} = {{center = 0.0, scale = 1.0}}\n" for name in "xz")
    privacy = "".join(f"{key} = {value}\n" for key, value in PRIVACY.items())

    def checked(more: str) -> str:
        data = f'[data]\nclients = ["*.csv"]\nresponse = "y"\n{more}\n[data.columns]\n{columns}'
        (tmp_path / "job.toml").write_text(f"[job]\nrounds = 2\n{data}[privacy]\n{privacy}")
        main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "a.csv")])
        return capsys.readouterr().out

    advised = checked("")
    assert "is not 0 or 1" in advised
    assert "name the label that counts as 1 (data.positive)" in advised
    done = checked('positive = "2"')
    assert "data.positive" not in done
    assert "100 rows, 0 with faults" in done


@pytest.mark.parametrize(("labels", "event"), [
    (["No", "Yes"], "Yes"), (["case", "control"], "case"), (["Dead", "Alive"], "Dead"), (["1", "2"], "2"), (["9", "10"], "10"),
    (["female", "male"], "male"), (["none", "some"], "some"), (["event", "censored"], "event"), (["yes", "case"], "yes"),
])  # fmt: skip
def test_which_label_counts_as_1(labels: list[str], event: str) -> None:
    assert event_of(in_order(labels)) == event == event_of(in_order(labels[::-1]))


@pytest.mark.parametrize("pair", [("No", "Yes"), (1, 2)])
def test_a_response_that_one_file_has_is_decided_by_it(pair: tuple[Any, Any]) -> None:
    """`vertical`: the server's file has all labels that there are."""
    rng = np.random.default_rng(3)
    X, ids = rng.normal(size=(200, 2)), np.arange(200)
    y = (rng.random(200) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    frames = {name: pd.DataFrame({"id": ids, f"x{name}": X[:, k]}) for k, name in enumerate("ab")}
    job: Any = {
        "job": {"method": "vertical", "rounds": 20},
        "data": {"id": "id", "response": "y"},
        "model": {"family": "bernoulli"},
    }
    coded = np.array([*pair], object)[y]
    result, wanted = (fedkern.run(job, data=frames, server=pd.DataFrame({"id": ids, "y": own})) for own in (coded, y))
    assert result.digest == wanted.digest
    with pytest.raises(JobError, match=r"3 different labels|not 0 or 1"):
        fedkern.run(job, data=frames, server=pd.DataFrame({"id": ids, "y": np.where(ids == 7, "maybe", coded.astype(str))}))
