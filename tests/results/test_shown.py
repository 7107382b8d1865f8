"""What a person sees of a result: the same rows, numbers and notes in Python, on the terminal, and on pages."""

from __future__ import annotations

import json
import re
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern as package
from fedkern import Result
from fedkern.cli.report import write
from fedkern.cli.show import describe_result
from fedkern.finding import Finding
from fedkern.results import shown

N = 300


@pytest.fixture(scope="module")
def differing(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Three sites with slopes 1, -1 and 1, a categorical column, and more slopes than are shown."""
    folder: Path = tmp_path_factory.mktemp("differing") / "out"
    random, data = np.random.default_rng(9), {}
    for name, slope in {"ay": 1.0, "bo": -1.0, "cy": 1.0}.items():
        X = random.normal(size=(N, 15))
        stage = random.choice(["I", "II", "III"], N)
        eta = slope * X[:, 0] + 1.2 * (stage == "III") - 0.8 * (stage == "II")
        columns = {f"x{j}": X[:, j] for j in range(15)}
        data[name] = pd.DataFrame({**columns, "stage": stage, "y": (random.random(N) < 1 / (1 + np.exp(-eta))).astype(int)})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
    return package.run(job, data=data, out=folder)


def test_notes_are_seen_in_python_and_at_the_head_of_the_page(differing: Result) -> None:
    (note,) = [note for note in differing.notes if "sites differ by more than chance" in note]
    assert differing.notes[0] == note
    assert sorted(differing.notes) == sorted(differing.summary["notes"])
    (line,) = [line for line in str(differing).splitlines() if line.startswith("note: ")]
    assert line.startswith(f"note: {note[:100]}")
    assert line.endswith(" .. (.notes)")
    assert len(line) <= len("note: ") + 160
    assert line in unescape(differing._repr_html_())
    assert differing.folder is not None
    head, _, rest = unescape(write(differing.folder).read_text(encoding="utf-8")).partition("</header>")
    assert note in head
    assert note not in rest


def test_of_many_notes_the_first_on_data_are_shown_with_the_number_of_others(differing: Result) -> None:
    routine = [Finding.of("sensitive-to-the-prior", why=str(k), names=["age"]) for k in range(3)]
    said = [*map(str, routine), *(f"{k}: the mean of column 'age' is far" for k in range(5))]
    found = json.loads(json.dumps([one.content for one in routine]))
    many = Result({**differing.summary, "notes": said, "findings": found}, differing.posterior, job=differing.job)
    lines = str(many).splitlines()
    assert [line for line in lines if line.startswith("note: ")] == [f"note: {note}" for note in said[3:6]]
    assert lines[-1] == "(5 more notes: .notes)"
    assert many.notes == [*said[3:], *said[:3]]
    assert [one.id for one in many.findings] == ["sensitive-to-the-prior"] * 3
    old = Result({**differing.summary, "notes": said, "findings": []}, differing.posterior, job=differing.job)
    assert old.notes == said, "texts of old runs stand as they are"
    assert "5 more notes: .notes" in many._repr_html_()


def test_the_rows_of_the_first_lines_are_those_of_the_fit() -> None:
    """Clients of fewer than five rows tell the checks of the model nothing, and are in the fit."""
    random = np.random.default_rng(3)
    sizes = {"a": 40, "b": 30, "c": 3}
    data = {name: pd.DataFrame({"x": random.normal(size=n), "y": random.poisson(3, n)}) for name, n in sizes.items()}
    job = {"job": {"method": "likelihood"}, "model": {"family": "poisson", "formula": "y ~ x"}}
    assert "\n73 rows, 3 clients" in str(package.run(job, data=data))
    few = {name: frame.head(4) for name, frame in data.items()}
    assert "\n11 rows, 3 clients" in str(package.run(job, data=few))


def test_a_table_of_a_calculated_column_is_one_that_toml_can_read() -> None:
    values = {"column": "x", "clients": ["a"], "remedies": ["declare-column", "as-category"]}
    for owner in ("age", "I(start - 13000)"):
        said = Finding.of("column-with-far-cells", **values, owner=owner)
        for header in re.findall(r"\[data\.columns\.[^]]*\]", said):
            assert tomllib.loads(header) == {"data": {"columns": {owner: {}}}}
        assert "ward" not in said


def test_a_result_is_said_in_few_words_and_in_the_same_at_the_terminal() -> None:
    random, data = np.random.default_rng(3), {}
    for name in ("ay", "bo", "cy"):
        x = random.normal(size=N)
        data[name] = pd.DataFrame({"x": x, "y": (random.random(N) < 1 / (1 + np.exp(-x))).astype(int)})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
    result = package.run(job, data=data)
    lines = str(result).splitlines()
    beside = [line for line in lines if not line.startswith((" ", "intercept", "theta["))]
    assert beside[0] == "likelihood: bernoulli (logit): y ~ x"
    assert beside[1].startswith(f"{3 * N} rows, ")
    assert beside[-1] == "converged"
    assert len("\n".join(beside)) <= 400
    assert [*describe_result(result)][: len(lines)] == lines


def test_rows_are_the_same_in_python_on_the_terminal_and_in_the_table(differing: Result, fedkern: Any) -> None:
    contrasts = ["stage[II vs I]", "stage[III vs I]"]
    parameters = [name for name in differing.parameters if "_std" not in name]
    kept = [*(name for name in parameters if "stage=" not in name), *contrasts]
    names = [line.split("  ")[0] for line in str(differing).splitlines()]
    seen = [name for name in kept if any(line.startswith(name + " ") for line in str(differing).splitlines())]
    assert set(contrasts) <= set(seen)
    assert len(seen) == shown.SLOPES + 1, "and the intercept"
    assert "intercept" in seen
    assert not [name for name in names if "stage=" in name]
    assert f"({len(seen)} of {len(kept)} rows: .table())" in str(differing)
    terminal = list(describe_result(differing))
    assert [name for name in kept if any(line.startswith(name + " ") for line in terminal)] == seen
    page = differing._repr_html_()
    assert [name for name in kept if f"<td>{name}</td>" in page] == seen
    printed = fedkern("report", str(differing.folder), "--table", "text").out.splitlines()
    assert [line.split("  ")[0] for line in printed[1:]] == kept
    every = fedkern("report", str(differing.folder), "--table", "csv").out
    assert "stage=" not in every
    assert [row["parameter"] for row in differing.rows(levels=False)] == kept
    assert [row["parameter"] for row in differing.rows()] == kept, "a level is one row"


def test_one_run_has_one_number(differing: Result) -> None:
    """Contrasts are those of all weighted draws, as the terminal has them, and not of some of equal weight."""
    published = differing.summary["contrasts"]
    rows = {row["parameter"]: row for row in differing.rows()}
    ratios = {row["parameter"]: row for row in differing.rows(exp=True)}
    for name, one in published.items():
        level = name.partition("[")[2].partition(" vs ")[0]
        assert one == differing.parameters[f"theta[stage={level}]"]
        assert {key: rows[name][key] for key in ("mean", "sd", "q025", "q05", "q95", "q975")} == {
            key: value for key, value in one.items() if key != "q50"
        }
        assert ratios[name]["odds_ratio"] == pytest.approx(np.exp(one["q50"]), rel=1e-12)
        ends = (np.exp(one["q025"]), np.exp(one["q975"]))
        assert (ratios[name]["q025"], ratios[name]["q975"]) == pytest.approx(ends, rel=1e-12)
    turned = {row["parameter"]: row for row in differing.rows(reference={"stage": "III"})}
    assert turned["stage[I vs III]"]["mean"] == -published["stage[III vs I]"]["mean"]
    assert turned["stage[I vs III]"]["q025"] == -published["stage[III vs I]"]["q975"]
    from_draws = turned["stage[II vs III]"]
    assert from_draws["mean"] == pytest.approx(
        published["stage[II vs I]"]["mean"] - published["stage[III vs I]"]["mean"], abs=0.02
    )
