"""Jobs with a formula: federated as pooled, labels that holders have or not, new rows, and what such a job refuses."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.data.design import encode
from fedkern.data.memory import table
from fedkern.errors import FedkernError, JobError
from fedkern.jobs.formula import laid, reading
from fedkern.jobs.load import config_of
from fedkern.methods.likelihood import keys
from fedkern.models.encoding import Encoding
from support.refusal import refusal

formulaic = pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

SMALL = {"algorithm": {"points": 256, "effective": 100}, "output": {"draws": 50, "chains": 2}}
STRICT: dict[str, Any] = {"disclosure": {"level": "strict"}}
FIXED = "age * sex + cs(bmi, df = 3) + drug"


def federation(rows: int = 240, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Three hospitals; nobody of the first got drug c."""
    rng, found = np.random.default_rng(seed), {}
    for k, name in enumerate(("ada", "bo", "cy")):
        n = rows + 10 * k
        frame = pd.DataFrame({"age": rng.normal(50 + 3 * k, 10, n), "bmi": np.exp(rng.normal(3.2, 0.2, n))})
        frame["sex"], frame["drug"] = rng.choice(["f", "m"], n), rng.choice(["a", "b", "c"][: 2 + (k > 0)], n)
        frame["ward"] = [f"{name}-{ward}" for ward in rng.integers(0, 8, n)]
        eta = 0.04 * (frame.age - 50) * (frame.sex == "m") - 0.3 * (frame.drug == "b") + np.sin(frame.bmi / 5)
        frame["died"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
        frame["dose"] = eta + rng.normal(size=n)
        frame["note"], frame["kind"] = np.arange(n), "in"
        found[name] = frame
    return found


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return federation()


def run(frames: Mapping[str, pd.DataFrame], formula: str, method: str = "likelihood", **tables: Any) -> fedkern.Result:
    job: dict[str, Any] = {"job": {"method": method, "seed": 3}, **(SMALL if method == "likelihood" else {}), **tables}
    job["model"] = {"formula": formula, **job.get("model", {})}
    return fedkern.run(job, data=dict(frames))


def pooled(frames: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {"all": pd.concat(frames.values(), ignore_index=True)}


def test_a_slope_of_groups_may_be_calculated(frames: dict[str, pd.DataFrame]) -> None:
    """The slope of I(age - 50) is that of a column from which 50 was taken before."""
    moved = {name: frame.assign(age=frame.age - 50) for name, frame in frames.items()}
    model = {"model": {"family": "gaussian"}}
    found = run(frames, "dose ~ I(age-50)*sex + (1 + I(age-50) | ward)", **model).parameters
    wanted = run(moved, "dose ~ age*sex + (1 + age | ward)", **model).parameters
    for name, row in wanted.items():
        own = found[name.replace("age", "I(age - 50)")]
        assert (own["mean"], own["sd"]) == pytest.approx((row["mean"], row["sd"]), rel=1e-6, abs=1e-8), name


def test_a_federated_job_is_the_pooled_one(frames: dict[str, pd.DataFrame]) -> None:
    gaussian = {"model": {"family": "gaussian", "scale": 1.0}}
    found, wanted = (run(rows, f"dose ~ {FIXED}", "pvi", **gaussian).summary for rows in (frames, pooled(frames)))
    assert [*found["parameters"]][:4] == ["intercept", "theta[age]", "theta[sex[T.m]]", "theta[cs(bmi, df=3)[1]]"]
    for name, row in wanted["parameters"].items():
        assert found["parameters"][name]["mean"] == pytest.approx(row["mean"], rel=1e-10, abs=1e-10), name
        assert found["parameters"][name]["sd"] == pytest.approx(row["sd"], rel=1e-10), name


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_without_an_intercept_columns_are_not_centred(method: str, frames: dict[str, pd.DataFrame]) -> None:
    """The line goes through 0, and levels are those at covariates of 0, as in R: least squares of the pooled columns."""
    whole = pooled(frames)["all"]
    y = whole.dose + 0.1 * whole.age
    frames = {name: frame.assign(dose=frame.dose + 0.1 * frame.age) for name, frame in frames.items()}
    scale = {"scale": float(y.std())} if method == "pvi" else {}
    for formula, X in (
        ("dose ~ 0 + age", whole[["age"]].to_numpy()),
        ("dose ~ age + sex - 1", np.column_stack([whole.sex == "f", whole.sex == "m", whole.age]).astype(float)),
    ):
        found = run(frames, formula, method, model={"family": "gaussian", "prior_sd": 1e3, **scale}).parameters
        best = np.linalg.lstsq(X, y, rcond=None)[0]
        names = ["theta[age]"] if X.shape[1] == 1 else ["theta[sex[f]]", "theta[sex[m]]", "theta[age]"]
        for name, value in zip(names, best):
            assert found[name]["mean"] == pytest.approx(value, abs=0.1 * found[name]["sd"]), (formula, name)


def test_the_example_of_the_page_works_with_the_slope_as_a_term() -> None:
    """`time` alone in the brackets is refused; the remedy, which is the page's own example, runs to its end."""
    rng, example = np.random.default_rng(9), "died ~ age * sex + {}cs(bmi, df = 4) + (1 + time | ward)"
    timed = {name: frame.assign(time=rng.normal(size=len(frame))) for name, frame in federation(300).items()}
    with pytest.raises(JobError, match=r'"time" is no term .* lie about its coefficient; add it: \.\. \+ time \+ \.\.'):
        run(timed, example.format(""))
    pages = Path(__file__).parents[2] / "docs"
    for page, text in (("methods/likelihood.md", example.format("time + ")), ("how-to/formula.md", "(1 + age | ward)")):
        assert text in (pages / page).read_text(), page
    found = run(timed, example.format("time + ")).parameters
    assert {"theta[time]", "group_sd[intercept]", "group_sd[time]", "theta[age:sex[T.m]]"} <= {*found}


def test_factor_of_r_is_the_column_of_labels(frames: dict[str, pd.DataFrame]) -> None:
    found, wanted = (run(frames, f"died ~ age + {call}(drug)").summary["parameters"] for call in ("factor", "C"))
    assert found == wanted
    assert "theta[C(drug)[T.b]]" in found


@pytest.mark.parametrize(("column", "cell"), [("drug", ""), ("sex", None)])
def test_an_empty_cell_of_labels_is_named_with_what_leaves_it_out(
    column: str, cell: str | None, frames: dict[str, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others read the column, the holder the line; both read the key, which works."""
    for name, frame in frames.items():
        gap = frame.copy()
        if name == "bo":
            gap.loc[3, column] = cell
        gap.to_csv(tmp_path / f"{name}.csv", index=False)
    job = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\n[algorithm]\npoints = 256\neffective = 100\n'
    job += f'[model]\nformula = "died ~ age + {column}"\n'
    (tmp_path / "job.toml").write_text(job + 'missing = "error"\n')
    assert main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"column '{column}' is empty" in said
    assert 'or set model.missing = "drop"' in said
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "bo.csv")]) == 2
    assert f"line 5, column '{column}'" in "".join(capsys.readouterr())
    (tmp_path / "job.toml").write_text(job)
    assert main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    assert fedkern.load(tmp_path / "again").summary["incomplete"]


def test_a_check_takes_knots_that_only_rows_could_judge(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    text = '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\n[model]\nformula = "died ~ bs(age, knots = [45, 55])"\n'
    (tmp_path / "job.toml").write_text(text)
    assert main(["check", str(tmp_path / "job.toml")]) == 0


def test_groups_and_a_posterior_by_weights(frames: dict[str, pd.DataFrame]) -> None:
    # One prior for both: rounding goes by the number of clients, and may leave no questions for wider ones. Wards have no effects
    # here: near an sd of 0 curvatures are mostly rounding, and draws about two of these differ by more than weights of one do.
    of_wards = {"group_sd[intercept]": {"kind": "half-normal", "sd": 1.0, "unit": "sd"}}
    prior = {"model": {"prior_sd": 5.0, "intercept_sd": 10.0, "priors": of_wards}}
    found, wanted = (run(rows, f"died ~ {FIXED} + (1 | ward)", **prior).summary for rows in (frames, pooled(frames)))
    assert "group_sd[intercept]" in found["parameters"]
    for name, row in wanted["parameters"].items():
        # Rounding goes by the number of clients, and moves weights of some hundred draws.
        assert abs(found["parameters"][name]["mean"] - row["mean"]) < 2e-2 * row["sd"], name


def test_its_columns_are_standardised_as_all_rows_together(frames: dict[str, pd.DataFrame]) -> None:
    whole = pooled(frames)["all"]
    result = run(frames, "died ~ age * sex + log(bmi) + scale(age):drug")
    state = {"scale(age)": {"ddof": 0, "center": whole.age.mean(), "scale": whole.age.std(ddof=0)}}
    spec = formulaic.ModelSpec(formula=formulaic.Formula("age * sex + log(bmi) + scale(age):drug"), transform_state=state)
    X = spec.get_model_matrix(whole)
    columns = result.summary["encoding"]["columns"]
    assert [one["name"] for one in columns] == [*X.columns][1:]
    for one in columns:
        values = X[one["name"]].to_numpy(np.float64)
        labels = set(np.unique(values)) <= {0.0, 1.0}
        wanted = (0.0, 1.0) if labels else (values.mean(), values.std())
        assert (one["center"], one["scale"]) == pytest.approx(wanted, rel=1e-10, abs=1e-12), one["name"]


@pytest.mark.filterwarnings("ignore:column .* more than 10 times")
def test_new_rows_have_the_columns_of_the_run(
    frames: dict[str, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    job = '[job]\nmethod = "pvi"\n[data]\nclients = ["ada.csv", "bo.csv", "cy.csv"]\n'
    job += '[model]\nfamily = "gaussian"\nscale = 1.0\nformula = "dose ~ bs(age, df = 4) + sex * drug + log(bmi)"\n'
    (tmp_path / "job.toml").write_text(job)
    assert main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    capsys.readouterr()
    result = fedkern.load(tmp_path / "out")
    some = frames["ada"].drop(columns=["dose", "ward", "note"]).head(7).assign(drug="c", age=[20, 30, 40, 50, 60, 70, 200.0])
    found = result.predict(some)
    encoding = result.summary["encoding"]
    theta = {name: row["mean"] for name, row in result.summary["parameters"].items()}

    whole = Encoding.from_dict(encoding)
    X = encode(table(some, "rows", text=whole.texts, response="dose"), replace(whole, response=None)).X
    standard = np.array(
        [
            theta["intercept_std"],
            *(theta.get(f"theta_std[{c['name']}]", theta[f"theta[{c['name']}]"]) for c in encoding["columns"]),
        ]
    )
    np.testing.assert_allclose(found["mean"], X @ standard, rtol=1e-10)
    with refusal(JobError, "drug", "z"):
        result.predict(some.assign(drug="z"))
    with pytest.raises(JobError, match="column 'bmi' is missing"):
        result.predict(some.drop(columns="bmi"))
    # Nothing of formulaic is needed to foresee rows: terms are stored as they were read.
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] == "formulaic"}
    reading.read.cache_clear()
    try:
        fedkern.load(tmp_path / "out").predict(some)
        assert "formulaic" not in sys.modules
    finally:
        sys.modules.update(hidden)


def test_a_label_that_only_test_rows_have(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    test = frames["ada"].head(30).assign(drug=["z", *["a"] * 29])
    test.to_csv(tmp_path / "test.csv", index=False)
    with refusal(JobError, "drug", "z"):
        run(
            frames,
            "dose ~ age + drug",
            "pvi",
            model={"family": "gaussian", "scale": 1.0},
            data={"test": str(tmp_path / "test.csv")},
        )


COLUMN_OF_AGE = "data.columns.age"
# A formula, what the job has beside it -> the keys and columns that the error names.
REFUSALS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    # what the rows do not have
    ("died ~ agee", STRICT, ("agee", "age")),
    ("died ~ log(sex)", STRICT, ("sex", "model.formula")),
    ("died ~ log(bmi - 25)", STRICT, ("bmi", "25")),
    ("died ~ scale(log(bmi - 25))", STRICT, ("bmi", "25")),
    ("died ~ bs(bmi, df=4, lower_bound=20, upper_bound=30)", STRICT, ("bmi", "20", "30", "clip", "extend")),
    ("died ~ age + ward:sex", STRICT, ("26", "disclosure.rows_per_coefficient")),
    # keys that contradict it
    ("died ~ age", {"data": {"response": "dose"}}, ("data.response", "died", "dose")),
    ("died ~ age", {"model": {"intercept": False}}, ("model.intercept", "0")),
    ("died ~ 0 + age", {"model": {"intercept": True}}, ("model.intercept",)),
    ("died ~ age", {"data": {"ignore": ["age"]}}, ("age", "data.ignore")),
    ("died ~ age + died", {}, ("died", "data.response")),
    ("died ~ sex + (1 | ward)", {"model": {"random": {"group": "sex"}}}, ("model.random.group", "ward", "sex")),
    ("died ~ sex + (1 + age | ward)", {}, ("model.random.slopes", "age")),
    ("died ~ age", {"model": {"missing": "indicator"}}, ("model.missing", "indicator", "drop")),
    ("died ~ log(age)", {"data": {"columns": {"age": {"levels": ["1"]}}}}, ("age", COLUMN_OF_AGE)),
    ("died ~ C(age)", {"data": {"columns": {"age": {"kind": "numeric"}}}}, ("age", COLUMN_OF_AGE)),
    ("died ~ sex", {"data": {"columns": {"sex": {"reference": "w"}}}}, ("data.columns.sex.reference", "w", "2")),
    ("died ~ sex + scale(age)", {"data": {"standardise": "none"}}, (COLUMN_OF_AGE,)),
    ("died ~ age + (1 | ward)", {"method": "pvi"}, ("model.formula", "likelihood")),
    ("Surv(age, died) ~ 0 + sex", {"model": {"family": "cox"}}, ("cox", "0")),
    # what no formula may have
    ("died ~ C(age) + log(age)", {}, ("age", "model.formula")),
    ("died ~ drug:(1 | ward)", {}, ("model.formula",)),
    ("dose ~ drug:poly(age, 2)", {"model": {"family": "gaussian"}}, ("model.formula", "2")),
    ("dose ~ cs(age, df = 3) + (1 + cs(age, df = 3) | ward)", {"model": {"family": "gaussian"}}, ("model.formula", "3")),
]


@pytest.mark.parametrize(("formula", "tables", "names"), REFUSALS)
def test_a_formula_is_refused(
    formula: str, tables: dict[str, Any], names: tuple[str, ...], frames: dict[str, pd.DataFrame]
) -> None:
    with refusal(JobError, *names):
        run(frames, formula, **tables)


def test_a_term_of_one_label_adds_nothing_and_is_noted(frames: dict[str, pd.DataFrame]) -> None:
    flat, without = (run(frames, formula) for formula in ("died ~ bmi * kind + kind:age + age", "died ~ bmi + age"))
    assert flat.parameters == without.parameters
    assert [*flat.notes] == [*without.notes, next(note for note in flat.notes if "'kind' has one value at every client" in note)]


def test_a_rare_cell_of_an_interaction_is_a_rare_label(frames: dict[str, pd.DataFrame]) -> None:
    """Two labels that each many rows have, and one row both: as today's rare level, before anything leaves."""
    rare = {name: frame.copy() for name, frame in frames.items()}
    both = rare["bo"].index[(rare["bo"].sex == "m") & (rare["bo"].drug == "c")]
    rare["bo"].loc[both[1:], "drug"] = "a"
    for formula in ("died ~ sex * drug + age", "died ~ sex:drug + age - 1", "died ~ sex + drug + age"):
        with refusal(JobError, "bo", "1"):
            run(rare, formula, **STRICT)
    with refusal(JobError, "bo", "6", "1"):
        run(rare, "died ~ sex * drug", **STRICT)


def test_a_rare_cell_of_three_columns_is_one_where_a_term_has_it(frames: dict[str, pd.DataFrame]) -> None:
    """Each two of the columns have many rows together: without the term no sum is of the one row that has all three."""
    rare = {name: frame.assign(old=np.where(np.arange(len(frame)) % 2, "no", "yes")) for name, frame in frames.items()}
    bo = rare["bo"]
    all_three = bo.index[(bo.sex == "m") & (bo.drug == "b") & (bo.old == "yes")]
    bo.loc[all_three[1:], "old"] = "no"
    run(rare, "died ~ sex + drug + old + bmi", **STRICT)
    for terms in ("sex * drug * old", "(sex + drug + old)**2"):  # the product of two interactions is this cell too
        with refusal(JobError, "bo", "1"):
            run(rare, f"died ~ {terms} + bmi", **STRICT)


def test_ages_through_a_spline_are_still_few_different_values(frames: dict[str, pd.DataFrame]) -> None:
    whole = {name: frame.assign(age=frame.age.round()) for name, frame in frames.items()}
    with pytest.raises(JobError, match=r"its covariates can take .* combinations of values, and .* in fewer than 3 rows"):
        run(whole, "died ~ cs(age, df = 3)", **STRICT)


def test_agreed_knots_that_single_out_rows(frames: dict[str, pd.DataFrame]) -> None:
    """A client's own knots would not: the others' columns are far away."""
    far = {
        "ada": frames["ada"],
        "bo": frames["bo"].assign(bmi=frames["bo"].bmi + 40),
        "cy": frames["cy"].assign(bmi=frames["cy"].bmi + 40),
    }
    with pytest.raises(JobError, match=r"give knots, lower_bound and upper_bound of the spline"):
        run(far, "died ~ bs(bmi, df = 6)", **STRICT)


COLUMNS = {"age": {"lower": 0, "upper": 120}, "bmi": {"lower": 5, "upper": 80}, "sex": {"levels": ["f", "m"]}}
PRIVACY = {"epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "sampling_rate": 0.05, "noise_multiplier": 4.0, "noise_source": "keyed"}


def private(
    frames: Mapping[str, pd.DataFrame], formula: str, columns: Mapping[str, Any] = COLUMNS, **data: Any
) -> fedkern.Result:
    job = {"job": {"method": "pvi", "rounds": 1}, "data": {"columns": {**columns}, **data}}
    return fedkern.run({**job, "model": {"formula": formula}, "privacy": PRIVACY}, data=dict(frames))


def test_a_private_job_has_its_constants_from_the_job_file(frames: dict[str, pd.DataFrame]) -> None:
    found = private(frames, "died ~ age * sex + cs(bmi, df = 3) + log(bmi)").summary["encoding"]
    at = {one["name"]: (one["center"], one["scale"]) for one in found["columns"]}
    assert at["age"] == (60, 60)
    assert at["age:sex[T.m]"] == (60, 60)
    assert at["sex[T.m]"] == (0, 1)
    assert at["log(bmi)"] == pytest.approx((np.log(400) / 2, np.log(16) / 2))
    assert found["formula"]["known"]["bmi"] == {"center": 42.5, "scale": 37.5, "ends": [5.0, 80.0]}
    # A cell out of a B-spline's bounds ends no private job, for that would tell of it: the row weighs nothing.
    private(frames, "died ~ age + bs(bmi, df = 4, lower_bound = 20, upper_bound = 30)")


@pytest.mark.parametrize(
    ("formula", "columns", "told"),
    [
        ("died ~ age + cs(bmi, df = 3)", {"bmi": None}, r"needs the centre and scale of bmi.*\[data\.columns\.bmi\]"),
        ("died ~ age + log(bmi - 25)", {}, r'no bounds where .*\[data\.columns\."log\(bmi - 25\)"\]'),
        ("died ~ age + drug", {}, "what it says of 'drug' is not complete"),
        (
            "died ~ age + sex",
            {"log(aeg)": {"center": 1, "scale": 1}},
            r"'log\(aeg\)': model.formula makes no such column; it makes 'sex\[T.m\]'",
        ),
    ],
)
def test_what_a_private_job_must_be_given(
    formula: str, columns: dict[str, Any], told: str, frames: dict[str, pd.DataFrame]
) -> None:
    given = {name: said for name, said in {**COLUMNS, **columns}.items() if said is not None}
    with pytest.raises(JobError, match=told):
        private(frames, formula, given)


def test_survival_as_r_has_it(frames: dict[str, pd.DataFrame]) -> None:
    """Treatment contrasts, though a Cox model has no intercept; the same as by keys and columns of its own, but for the prior:
    each of two levels has one, and a column of 0 and 1 has one."""
    rng = np.random.default_rng(5)
    timed = {name: frame.assign(months=rng.exponential(10, len(frame)).round(2) + 0.01) for name, frame in frames.items()}
    found = run(timed, "Surv(months, died) ~ age + sex + strata(ward)", model={"family": "cox"})
    plain = {
        name: frame[["age", "months", "died", "ward"]].assign(male=(frame.sex == "m").astype(float))
        for name, frame in timed.items()
    }
    data = {
        "clients": [*plain],
        "time": "months",
        "event": "died",
        "strata": "ward",
        "columns": {"male": {"center": 0, "scale": 1}},
    }
    wanted = fedkern.run(
        {"job": {"method": "likelihood", "seed": 3}, **SMALL, "data": data, "model": {"family": "cox"}}, data=plain
    )
    assert [*found.summary["parameters"]] == ["theta[age]", "theta[sex[T.m]]", "theta_std[age]"]
    for one, other in (("theta[age]", "theta[age]"), ("theta[sex[T.m]]", "theta[male]")):
        assert found.summary["parameters"][one]["mean"] == pytest.approx(wanted.summary["parameters"][other]["mean"], rel=3e-3)


def test_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, frames: dict[str, pd.DataFrame]) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "formulaic":
            raise ImportError(name)
        return real(name, *rest, **named)

    reading.read.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(JobError, match=r'formulaic, which is not installed here: pip install "fedkern\[formula\]"'):
        run(frames, "died ~ age")


def test_all_parties_read_the_same(frames: dict[str, pd.DataFrame]) -> None:
    mine, other = ({"formula": {"terms": "1 + age", "formulaic": version}} for version in ("1.1.0", "1.2.2"))
    told = [json.dumps(one).encode() for one in (mine, mine, other)]
    assert laid.alike(told[:2]) == told[0]
    with refusal(JobError, "2", "model.formula", "1", "1.2.2", "0"):
        laid.alike(told)
    raw = {"job": {"method": "likelihood"}, "data": {"clients": ["a.csv"]}}
    one, two = (config_of(keys, {**raw, "model": {"formula": text}}) for text in ("died ~ age", "died ~ age + sex"))
    assert one.digest != two.digest
    assert "1 + age + sex" in two.canonical
    assert "formulaic" in two.canonical


@pytest.fixture(scope="module")
def files(frames: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job file beside the clients' files."""
    folder = tmp_path_factory.mktemp("files")
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    job = '[job]\nmethod = "likelihood"\nseed = 3\n[data]\nclients = ["ada.csv", "bo.csv", "cy.csv"]\n'
    job += f'[model]\nformula = "died ~ {FIXED}"\n[algorithm]\npoints = 256\neffective = 100\n'
    (folder / "job.toml").write_text(job + "[output]\ndraws = 50\nchains = 2\n")
    return folder / "job.toml"


def test_a_check_and_a_holder_before_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--verbose", str(files)]) == 0
    said = capsys.readouterr().out
    assert "formula  1 + age + sex + cs(bmi, df=3) + drug + age:sex, by formulaic" in said
    assert "terms of model.formula, and the version of formulaic" in said
    assert main(["check", str(files), "--local", str(files.parent / "bo.csv")]) == 0
    assert "0 with faults" in capsys.readouterr().out


MARGINAL = {"output": {"marginal": True}, "algorithm": {}}


def test_marginal_effects_are_those_of_plain_columns(frames: dict[str, pd.DataFrame]) -> None:
    """Of the same model without a formula."""
    found = run(frames, "died ~ age + bmi", **MARGINAL).summary["marginal"]
    plain = {name: frame[["age", "bmi", "died"]] for name, frame in frames.items()}
    job = {"job": {"method": "likelihood", "seed": 3}, "data": {"response": "died"}, "output": {"marginal": True}}
    assert found == fedkern.run(job, data=plain).summary["marginal"]


def test_a_marginal_effect_moves_every_term_of_a_column(frames: dict[str, pd.DataFrame]) -> None:
    """Of a linear model it is a mean of coefficients, times what their columns change."""
    gaussian = {"model": {"family": "gaussian"}, **MARGINAL}
    zero = {name: frame.assign(male=(frame.sex == "m").astype(int)) for name, frame in frames.items()}
    result = run(zero, "dose ~ age * male + I(bmi**2) + age:drug + scale(age)", **gaussian)
    theta = {name: row["mean"] for name, row in result.summary["parameters"].items()}
    assert result.summary["not_estimated"] == ["theta[scale(age)]"]
    theta["theta[scale(age)]"] = 0.0
    effects, whole = result.summary["marginal"]["effects"], pooled(zero)["all"]
    assert [*effects] == ["age", "male", "bmi", "drug=b", "drug=c"]
    b, c = (float((whole.drug == drug).mean()) for drug in "bc")
    at = theta["theta[age]"] + theta["theta[age:male]"] * whole.male.mean() + theta["theta[scale(age)]"] / whole.age.std(ddof=0)
    wanted = {
        "age": at + theta["theta[age:drug[T.b]]"] * b + theta["theta[age:drug[T.c]]"] * c,
        "male": theta["theta[male]"] + theta["theta[age:male]"] * whole.age.mean(),
        "bmi": 2 * theta["theta[I(bmi ** 2)]"] * whole.bmi.mean(),
        "drug=b": theta["theta[age:drug[T.b]]"] * whole.age.mean(),
        "drug=c": theta["theta[age:drug[T.c]]"] * whole.age.mean(),
    }
    for name, value in wanted.items():  # the means are over 200 draws of them
        assert abs(effects[name]["mean"] - value) < 0.3 * effects[name]["sd"], name
    assert effects["male"]["change"] == "1 against 0"


def test_an_offset_may_be_calculated_from_a_column(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    """The job, and predictions, are those with a column of the logarithm; a cell without one is a fault of its row."""
    rng = np.random.default_rng(4)
    timed = {name: frame.assign(years=rng.uniform(0.5, 4, len(frame))) for name, frame in frames.items()}
    timed = {name: frame.assign(falls=rng.poisson(frame.years)) for name, frame in timed.items()}
    both = {name: frame.assign(log_years=np.log(frame.years)) for name, frame in timed.items()}
    poisson = {"model": {"family": "poisson"}}
    found = run(timed, "falls ~ age + sex + offset(log(years))", **poisson)
    wanted = run(both, "falls ~ age + sex + offset(log_years)", **poisson)
    assert found.parameters == wanted.parameters
    np.testing.assert_array_equal(found.predict(timed["bo"])["mean"], wanted.predict(both["bo"])["mean"])
    timed["bo"].loc[3, "years"] = 0.0
    with pytest.raises(FedkernError, match=r"log\(years\)"):
        run(timed, "falls ~ age + sex + offset(log(years))", **poisson)
    timed["bo"].loc[3, "years"] = np.nan
    left_out = run(timed, "falls ~ age + sex + offset(log(years))", model={"family": "poisson", "missing": "drop"})
    assert {*left_out.parameters} == {*found.parameters}


def test_successes_and_failures_are_successes_of_trials(frames: dict[str, pd.DataFrame]) -> None:
    """As R's cbind: the job and its predictions are those of a column of trials; a cell that lacks leaves its row out."""
    rng = np.random.default_rng(6)
    tried = {name: frame.assign(well=rng.integers(1, 9, len(frame))) for name, frame in frames.items()}
    tried = {name: frame.assign(ill=rng.binomial(5, 0.4, len(frame)) * (frame.well > 2)) for name, frame in tried.items()}
    tried = {name: frame.assign(all=frame.well + frame.ill) for name, frame in tried.items()}
    tried["bo"] = tried["bo"].assign(
        ill=tried["bo"].ill.where(tried["bo"].index != 3), all=lambda d: d["all"].where(d.index != 3)
    )
    for method, model in (("likelihood", {"family": "binomial"}), ("pvi", {})):
        model = {**model, "missing": "drop"}
        found = run(tried, "cbind(well, ill) ~ age + sex", method, model=model)
        wanted = run(tried, "cbind(well, all - well) ~ age + sex", method, model=model)
        assert found.parameters == wanted.parameters, method
        new = tried["cy"].drop(columns="all")
        np.testing.assert_array_equal(found.predict(new)["mean"], wanted.predict(tried["cy"])["mean"])
    tried["bo"].loc[5, "ill"] = -1
    with pytest.raises(FedkernError, match=r"number of successes of 'well \+ ill' trials"):
        run(tried, "cbind(well, ill) ~ age + sex", model={"family": "binomial", "missing": "drop"})


def test_numbers_as_labels_are_sorted_as_numbers(frames: dict[str, pd.DataFrame]) -> None:
    """As R's `factor`: the reference is 2, whether the job file gives the levels or the files have them."""
    rng = np.random.default_rng(5)
    given = {name: frame.assign(grams=rng.choice([2, 10, 30], len(frame))) for name, frame in frames.items()}
    for data in ({}, {"columns": {"grams": {"levels": ["10", "2", "30"]}}}):
        names = [*run(given, "dose ~ factor(grams)", model={"family": "gaussian"}, data=data).parameters]
        assert {"theta[C(grams)[T.10]]", "theta[C(grams)[T.30]]"} <= {*names}


@pytest.mark.parametrize("formula", ["y ~ x", "y ~ x + diet"])
def test_a_client_of_no_complete_row_is_named_whatever_the_columns_are(formula: str) -> None:
    random = np.random.default_rng(3)
    rows = pd.DataFrame({"x": random.normal(size=60), "y": random.normal(size=60), "diet": ["a", "b"] * 30})
    data = {"1": rows[:20].assign(x=np.nan, diet=None), "2": rows[20:40], "3": rows[40:]}
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": "gaussian", "formula": formula}}
    found = fedkern.run(job, data=data)
    assert "client '1' is left out: each of its rows lacks a cell" in found.notes
    assert found.summary["predictive"]["rows"] == 40
