"""Each remedy that a message names, done to its end: what it says is gone, and the answer is that of another program.

`FOLLOWED` has for each key of a job that messages advise to change the test in which that is done, here or beside the message. A
new key of advice wants its line. References are of R 4.2.2 with lme4 1.1-31, survival 3.5-3, ordinal 2022.11-16, MASS 7.3-58.2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError
from fedkern.finding import catalogue, remedies
from support.found import ids

Frames = dict[str, pd.DataFrame]
Numbers = dict[str, tuple[float, float]]

# The data --------------------


def dealt(rows: pd.DataFrame) -> Frames:
    """The rows of each site."""
    return {str(site): own.drop(columns="site").reset_index(drop=True) for site, own in rows.groupby("site")}


def counts() -> pd.DataFrame:
    """Counts, and successes of 20 trials, that vary more by an effect of each row with an sd of .6."""
    rng, n = np.random.default_rng(52), 240
    x, effect = rng.normal(size=n).round(3), rng.normal(0, 0.6, n)
    rows = pd.DataFrame({"site": np.repeat(list("abc"), 80), "row": [f"r{k}" for k in range(n)], "x": x, "n": 20})
    rows["y"] = rng.poisson(np.exp(1 + 0.5 * x + effect))
    rows["s"] = rng.binomial(20, 1 / (1 + np.exp(0.5 - 0.5 * x - effect)))
    return rows


def nested() -> pd.DataFrame:
    """Eight regions at each of three sites, in each three wards of eight rows; x is of the region."""
    rng = np.random.default_rng(7)
    regions, wards = rng.normal(0, 0.8, 24), rng.normal(0, 0.4, 72)
    x = rng.normal(size=24).round(3)
    ward = np.repeat(np.arange(72), 8)
    region = ward // 3
    y = 1 + 0.5 * x[region] + regions[region] + wards[ward] + rng.normal(size=len(ward))
    labels = {"region": [f"g{k}" for k in region], "ward": [f"w{k % 3}" for k in ward]}
    return pd.DataFrame({"site": np.array(list("abc"))[region // 8], **labels, "x": x[region], "y": y.round(4)})


def days() -> pd.DataFrame:
    """Times in whole days, rounded down, of a constant hazard: one event in seven is on day 0."""
    rng, n = np.random.default_rng(11), 720
    x = rng.normal(size=n).round(4)
    t, end = rng.exponential(6 * np.exp(-0.4 * x)), rng.uniform(3, 30, n)
    event = (t < end).astype(int)
    return pd.DataFrame({"site": np.repeat(list("abc"), 240), "days": np.floor(np.minimum(t, end)), "died": event, "x": x})


def grades() -> pd.DataFrame:
    """Three ordered grades; nobody has the one below them."""
    rng, n = np.random.default_rng(5), 360
    x = rng.normal(size=n).round(3)
    grade = np.digitize(x + rng.logistic(size=n), [-0.5, 1.0])
    return pd.DataFrame({"site": np.repeat(list("abc"), 120), "x": x, "grade": np.array(["mild", "bad", "worst"])[grade]})


def half_days(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(days=rows["days"].replace(0.0, 0.5))


def ends_of_days(rows: pd.DataFrame) -> pd.DataFrame:
    """Events on day 0 are between its begin and its end; rows that were last seen on it count as half a day."""
    first = rows["days"] == 0
    until = rows["days"].where(~first, 1.0).where(rows["died"] == 1)
    return rows.assign(days=rows["days"].where(~(first & (rows["died"] == 0)), 0.5), until=until)


# The remedies --------------------


@dataclass(frozen=True)
class Remedy:
    """Is a job of which a message names a remedy, and the job in which that is done."""

    # rows, job: as they come, and the message is said
    rows: Callable[[], pd.DataFrame]
    job: dict[str, Any]
    says: str  # a pattern of it: of an error, the first line or a note
    # mended, then: rows and sections of the job after it
    then: dict[str, Any]
    wanted: Numbers  # parameter -> mean and sd by another program
    mended: Callable[[pd.DataFrame], pd.DataFrame] = field(default=lambda rows: rows)
    off: tuple[float, float] = (0.15, 0.1)  # sds by which a mean may be another, and the part by which an sd may: priors are ours


def of(family: str, data: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    return {"job": {"method": "likelihood"}, "data": data or {}, "model": {"family": family, **model}}


TIMES, LEVELS = {"time": "days", "event": "died"}, ["mild", "bad", "worst"]
COUNTS, OWN_COUNTS = ({"response": "y", "ignore": ["n", "s", *more]} for more in (["row"], []))
TRIALS, OWN_TRIALS = ({"response": "s", "trials": "n", "ignore": ["y", *more]} for more in (["row"], []))
GRADES = {"response": "grade", "levels": LEVELS}
CLM = {"theta[x]": (1.0440, 0.1253), "threshold[mild|bad]": (-0.3406, 0.1159), "threshold[bad|worst]": (1.0834, 0.1296)}
SHORT_STEPS: dict[str, Any] = {"job": {"method": "pvi", "rounds": 3}, "algorithm": {"optimiser": "adagrad"}}
ROW = {"random": {"group": "row"}}
EACH_ROW = r"each row an effect of its own \(\[model.random\] group: a column with another label in every row\)"

REMEDIES = {
    "(1 | region / ward): taken": Remedy(
        nested,
        of("gaussian", formula="y ~ x + (1 | region / ward)"),
        "",
        {},
        {"theta[x]": (0.8189, 0.1388)},  # lmer(y ~ x + (1 | region/ward)); of (1 | region:ward) the sd is .093
    ),
    "day 0, Cox: taken": Remedy(
        days,
        of("cox", TIMES),
        "",
        {},
        {"theta[x]": (0.3710, 0.0431)},  # coxph with Efron's ties and strata(site)
    ),
    "day 0, Weibull: half of the unit": Remedy(
        days,
        of("weibull", TIMES),
        "column 'days': '0' is not above 0.*write half of the unit",
        {},
        {"theta[x]": (0.3938, 0.0418), "shape": (1.0308, 0.0325)},  # survreg; 1.264 without these rows
        half_days,
    ),
    "day 0, Weibull: time_upper": Remedy(
        days,
        of("weibull", TIMES),
        "or 0 with the end of the day \\(1\\) in a column data.time_upper",
        {"data": {"time_upper": "until"}},
        {"theta[x]": (0.3813, 0.0418), "shape": (0.9854, 0.0340)},  # survreg(Surv(.., type = "interval2"))
        ends_of_days,
    ),
    "counts that vary more: each row": Remedy(
        counts,
        of("poisson", COUNTS),
        f'set model.family = "negative-binomial", or {EACH_ROW}',
        {"data": OWN_COUNTS, "model": ROW},
        {"theta[x]": (0.4723, 0.0599), "intercept": (0.8854, 0.0622), "group_sd[intercept]": (0.5949, 0.057)},  # glmer, nAGQ = 9
        off=(0.2, 0.1),
    ),
    "counts that vary more: negative binomial": Remedy(
        counts,
        of("poisson", COUNTS),
        'set model.family = "negative-binomial"',
        {"model": {"family": "negative-binomial"}},
        {"theta[x]": (0.4755, 0.0585)},  # MASS::glm.nb
    ),
    "trials that vary more: each row": Remedy(
        counts,
        of("binomial", TRIALS),
        EACH_ROW,
        {"data": OWN_TRIALS, "model": ROW},
        {"theta[x]": (0.4690, 0.0542), "intercept": (-0.5475, 0.0513), "group_sd[intercept]": (0.6131, 0.050)},  # glmer, nAGQ = 9
        off=(0.2, 0.1),
    ),
    "trials that vary more: beta-binomial": Remedy(
        counts,
        of("binomial", TRIALS),
        'trials of a row are alike: set model.family = "beta-binomial"',
        {"model": {"family": "beta-binomial"}},
        {"theta[x]": (0.4297, 0.0506), "intercept": (-0.5024, 0.0473)},  # glmmTMB, family = betabinomial
        off=(0.2, 0.1),
    ),
    "draws that are too few: more of them": Remedy(
        grades,
        {**of("ordinal", GRADES), "job": {"method": "likelihood", "rounds": 1}, "algorithm": {"points": 256}},
        "take .*more draws \\(algorithm.points, job.rounds\\)",
        {"job": {"rounds": 8}, "algorithm": {"points": 4096}},
        CLM,
    ),
    "draws that are too few: chains": Remedy(
        grades,
        {**of("ordinal", GRADES), "job": {"method": "likelihood", "rounds": 1}, "algorithm": {"points": 256}},
        'take chains \\(algorithm.sampler = "hmc"\\)',
        {"job": {"rounds": 800}, "algorithm": {"sampler": "hmc"}},
        CLM,
    ),
    "steps that are too short: exact ones": Remedy(
        nested,
        {
            **SHORT_STEPS,
            "data": {"response": "y", "ignore": ["region", "ward"]},
            "model": {"family": "gaussian", "covariance": "full"},
        },
        'give it more job.rounds, or algorithm.optimiser = "exact"$',
        {"algorithm": {"optimiser": "exact"}},
        {"theta[x]": (0.8189, 0.0518), "intercept": (0.6263, 0.0484)},  # lm
    ),
    "a level that nobody has": Remedy(
        grades,
        of("ordinal", GRADES | {"levels": ["none", *LEVELS]}),
        "level 'none' is in no client's rows.*leave it out of data.levels if it cannot be$",
        {"data": {"levels": LEVELS}},
        CLM,
    ),
}


def said(job: dict[str, Any], rows: pd.DataFrame) -> tuple[str, Any]:
    """What a job says: its error, or its first line and notes and the result."""
    try:
        result = fedkern.run(job, data=dealt(rows))
    except FedkernError as error:
        return str(error), None
    return "\n".join([str(result.summary["verdict"]), *result.notes]), result


LONG = "draws that are too few: chains"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name == LONG)) for name in REMEDIES])
def test_a_remedy_that_is_done_ends_in_the_answer_of_another_program(name: str) -> None:
    remedy = REMEDIES[name]
    rows = remedy.rows()
    if remedy.says:
        before, _ = said(remedy.job, rows)
        assert re.search(remedy.says, before, re.MULTILINE | re.DOTALL), before
    job = {section: {**remedy.job.get(section, {}), **remedy.then.get(section, {})} for section in remedy.job}
    after, result = said(job, remedy.mended(rows))
    assert result is not None, after
    assert result.converged in (True, "settled"), after
    assert not (remedy.says and re.search(remedy.says, after))
    for parameter, (mean, sd) in remedy.wanted.items():
        found = result.parameters[parameter]
        assert found["mean"] == pytest.approx(mean, abs=remedy.off[0] * sd), parameter
        assert found["sd"] == pytest.approx(sd, rel=remedy.off[1]), parameter


def test_clients_that_were_left_out_are_in_the_first_line_and_one_client_is_no_federation() -> None:
    rng = np.random.default_rng(3)
    sizes = {"a": 60, "b": 8, "c": 55, "d": 7}
    data = {name: pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n)}) for name, n in sizes.items()}
    for method in ("likelihood", "pvi"):
        job = {"job": {"method": method}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
        job["disclosure"] = {"level": "strict", "small": "leave-out"}
        some = fedkern.run(job, data=data)
        assert ": of 2 of 4 clients, 115 rows" in some.summary["verdict"]
        assert some.converged in (True, "settled")
        assert fedkern.run(job, data={name: data[name] for name in "ac"}).summary["digest"] == some.summary["digest"]
        one = fedkern.run(job, data={name: data[name] for name in "abd"})
        assert one.converged is False
        assert one.summary["verdict"].startswith("not converged: of 1 of 3 clients, 60 rows")
        assert "one client is no federation" in one.summary["verdict"]


def test_shares_of_a_graph_become_log_ratios() -> None:
    """Two of four parts go together, beside a fifth that hardly varies: by the inverse of the covariances one edge."""
    rng, shares, ratios = np.random.default_rng(1), {}, {}
    for name in "abcd":
        z = rng.normal(size=(150, 4))
        z[:, 1] = 0.7 * z[:, 0] + 0.7 * z[:, 1]
        parts = np.exp(np.column_stack([0.6 * z, 1 + 0.1 * rng.normal(size=150)]))
        parts /= parts.sum(axis=1, keepdims=True)
        shares[name] = pd.DataFrame(parts, columns=[f"p{j}" for j in range(5)])
        ratios[name] = pd.DataFrame(np.log(parts[:, :4] / parts[:, 4:]), columns=[f"p{j}" for j in range(4)])
    short: dict[str, Any] = {
        "job": {"method": "sparse", "rounds": 400}, "model": {"kind": "mrf"}, "algorithm": {"burn_in": 100, "chains": 2}
    }  # fmt: skip
    first = fedkern.run(short, data=shares)
    assert "nodes-collinear" in ids(first)
    found = fedkern.run(short, data=ratios).summary["graph"]["edges"]
    precision = np.linalg.inv(pd.concat([*ratios.values()]).corr())
    partial = np.abs(precision) / np.sqrt(np.outer(np.diag(precision), np.diag(precision)))
    wanted = {frozenset((f"p{i}", f"p{j}")) for i in range(4) for j in range(i) if partial[i, j] > 0.2}
    assert {frozenset((edge["to"], edge["source"])) for edge in found} == wanted == {frozenset(("p0", "p1"))}


# All of them --------------------

PACKAGE = Path(fedkern.__file__).parent
ADVISE = re.compile(r"\b(set|take|give|leave|make|name|write|put)\b")
KEY = re.compile(r"\b(?:job|data|model|algorithm|disclosure)\.[a-z_]+|\[(?:data|model)\.[a-z_]+\]")
OF_RESULTS = ("algorithms/exchanges", "algorithms/importance", "methods/likelihood", "methods/pvi", "results", "data")

HERE, BESIDE = "methods/test_followed.py", "methods/test_remedies.py"
FOLLOWED = {
    "algorithm.approximate": "methods/likelihood/test_summaries.py::test_a_job_of_summaries_alone_goes_on_unless_it_forbids_that",
    "algorithm.optimiser": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "algorithm.points": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "algorithm.sampler": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "algorithm.variant": "methods/pvi/test_arrival.py::test_what_short_steps_leave_undone_another_variant_does",
    "data.clients": f"{HERE}::test_clients_that_were_left_out_are_in_the_first_line_and_one_client_is_no_federation",
    "data.columns": f"{BESIDE}::test_a_column_that_is_right_as_it_is_has_center_and_scale",
    "data.dialect": f"{BESIDE}::test_a_code_for_a_missing_value_counts_as_one",
    "data.ignore": f"{BESIDE}::test_a_column_that_the_response_was_computed_from_is_ignored",
    "data.levels": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "data.positive": "methods/likelihood/test_two_labels.py::test_a_private_job_of_numbers_names_the_key_of_its_event",
    "data.time_upper": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "data.psu": "methods/likelihood/test_survey.py::test_a_client_of_few_clusters_tells_no_products",
    "data.trials": "methods/likelihood/test_weights.py::test_rows_that_stand_for_millions_are_successes_of_trials",
    "data.weight": "methods/pvi/test_case_weights.py::test_rows_that_count_many_times_are_a_doubt_whose_remedy_ends_well",
    "data.weight_kind": "methods/pvi/test_case_weights.py::test_weights_that_are_counts_may_sum_to_more_than_the_rows",
    "disclosure.rare": "jobs/test_joining.py::test_a_refusal_proposes_the_key",
    "disclosure.small": "jobs/test_few.py::test_the_others_messages_are_the_same_whatever_a_left_out_client_has",
    "job.extends": "methods/likelihood/test_extended.py::test_newcomers_that_do_not_fit_the_run",
    "job.rounds": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "job.sums": "methods/likelihood/test_summaries.py::"
    "test_small_clients_whose_rows_do_for_more_questions_end_in_the_posterior_as_signed_sums_do",
    "model.covariance": "methods/pvi/test_arrival.py::test_a_diagonal_q_of_correlated_columns_says_so_and_names_the_remedy",
    "model.family": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "model.formula": f"{HERE}::test_a_remedy_that_is_done_ends_in_the_answer_of_another_program",
    "model.intercept_sd": "methods/likelihood/test_default_priors.py::test_evidence_is_compared_at_the_same_priors",
    "model.missing": f"{BESIDE}::test_a_code_for_a_missing_value_counts_as_one",
    "model.prior_sd": "methods/pvi/test_units.py::test_what_a_note_on_the_prior_advises_ends_in_the_answer_of_the_rows",
    "model.slab": "methods/sparse/test_told.py::test_separation_at_one_site",
    "model.splines": "jobs/test_few.py::test_one_row_beyond_a_splines_knots_is_few_rows",
    "model.random": "methods/likelihood/test_differently.py::test_sites_that_differ_are_said_and_the_advice_is_right",
    "model.scale": "methods/pvi/test_private_linear.py::"
    "test_the_cause_is_the_unit_and_not_the_columns_and_the_remedy_ends_in_a_right_result",
}
UNFOLLOWED = {  # with the reason
    "algorithm.batch": "says what a choice tells of rows; with none the answer is that of all other jobs",
    "algorithm.client_weights": "says what a power likelihood has not; with none the answer is that of all other jobs",
    "algorithm.inference": "of maps: its answer is compared in methods/sigma, from another message",
    "algorithm.moves": "says what a choice tells of rows; what chains with and without it say is compared in statistics",
    "algorithm.tempering": "says what a choice tells of rows; with none the answer is that of all other jobs",
    "data.frame": "is a function of R in a line that writes a list of neighbours",
    "data.entry": "names what two results may differ in",
    "data.event": "names what two results may differ in",
    "data.offset": "names what two results may differ in",
    "data.row_id": "asks the holder whether rows are one patient's",
    "data.strata": "an average over times has no other answer to compare",
    "data.time": "names what two results may differ in",
    "model.cuts": "a refusal for few rows: other cuts are another model",
    "model.factory": "asks for another function of the reader's own",
    "model.sigma": "its terms are to be terms of the model, which is another one then",
    "model.intercept_centre": "says what was not compared",
    "model.kind": "says what an own model cannot do",
    "model.priors": "asks for priors of the reader's own function",
}


def advised() -> set[str]:
    """The keys that texts of results, notes and refusals advise to change."""
    found = set[str]()
    for text in (*remedies().values(), *(text for one in catalogue().values() for text in (one.public, one.holder))):
        found |= {key.strip("[]") for key in KEY.findall(text)} if ADVISE.search(text) else set()
    for path in (path for part in OF_RESULTS for path in (PACKAGE / part).rglob("*.py") if "keys" not in path.name):
        tree = ast.parse(path.read_text())
        parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | documents:
                text = node.value
            else:
                continue
            found |= {key.strip("[]") for key in KEY.findall(text)} if ADVISE.search(text) else set()
    return found


def test_every_key_that_a_message_advises_to_change_has_its_test() -> None:
    assert advised() == FOLLOWED.keys() | UNFOLLOWED.keys()
    assert not FOLLOWED.keys() & UNFOLLOWED.keys()
    root = Path(__file__).parents[1]
    for where in FOLLOWED.values():
        path, name = where.split("::")
        assert f"def {name}(" in (root / path).read_text(), where
