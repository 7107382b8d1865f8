"""Sparse jobs from a file to a result: what people read, what is refused, and what the wire carries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import perform
from fedkern.cli.report import write as write_report
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError, LostPeer, OwnFault
from fedkern.jobs import opened
from fedkern.jobs.run import Output
from fedkern.methods import load, parse
from fedkern.methods.sparse.show import describe_run
from fedkern.results import selection
from fedkern.transports.driver import Signals
from fedkern.transports.inprocess import InProcess
from support import few
from support.command import Ended, mpirun
from support.refusal import refusal
from support.wires import checked_and_run

FAST = {"rounds": 150}
BASE: dict[str, Any] = {"job": {"method": "sparse"}, "data": {"clients": ["x.csv"], "response": "y"}}


def job(tmp_path: Path, kind: str = "sparse", **size: int) -> Path:
    default = {"clients": 3, "rows": 60, "columns": 4, "seed": 2}
    return simulate(kind, tmp_path / kind, Settings(**(default | size)))


def sent(tmp_path: Path, client: str) -> set[str]:
    """Kinds of all messages that have left a client (`Received` says that there is nothing to answer)."""
    lines = (tmp_path / "out" / "ledger" / f"{client}.jsonl").read_text().splitlines()
    return {json.loads(line)["kind"] for line in lines}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithm": {"local_sweeps": 0}}, "algorithm.local_sweeps = 0: wanted a number of at least 1"),
        ({"model": {"c0": 1.5}}, "model.c0 = 1.5: wanted a number less than 1"),
        ({"model": {"scale": "given"}}, "needs the scale of every column, and no [data.columns.NAME] has one"),
        ({"model": {"c0": 0.01, "negligible": 0.1}}, "model.c0 and model.negligible contradict each other"),
        ({"model": {"a_sigma": 0.0}}, "model.a_sigma = 0: wanted a number greater than 0"),
        ({"algorithm": {"participation": 0.5, "aggregate": "sums"}}, 'participation < 1 with aggregate = "sums"'),
        ({"algorithm": {"participation": 0.5, "moves": ["translate"]}}, "participation < 1 with moves"),
        ({"algorithm": {"participation": 0.5, "statistics": "pooled"}}, 'participation < 1 with statistics = "pooled"'),
        ({"algorithm": {"share_local": True, "aggregate": "sums"}}, 'share_local with aggregate = "sums"'),
        ({"algorithm": {"aggregate": "sums", "server_sweeps": 3}}, "server_sweeps > 1 needs aggregate"),
        ({"algorithm": {"burn_in": 2500}}, "burn_in = 2500 leaves nothing of job.rounds = 2500"),
        ({"model": {"kind": "sem"}, "algorithm": {"moves": ["translate"]}}, "moves do not exist with"),
        ({"model": {"kind": "sem"}, "algorithm": {"moves": "auto"}}, "moves do not exist with"),
        ({"algorithm": {"participation": 0.5, "moves": "auto"}}, "participation < 1 with moves"),
        ({"algorithm": {"moves": ["translate", "translate"]}}, "each at most once"),
        ({"algorithm": {"moves": ["translate"], "second_every": 3}}, "algorithm.second_every is for two moves"),
        ({"algorithm": {"moves": ["translate"], "block": [2, 3]}}, "algorithm.block has 2 numbers for 1 moves"),
        ({"algorithm": {"moves": ["exchange"]}}, 'it needs statistics = "pooled"'),
        ({"algorithm": {"moves": "auto", "block": 2}}, "algorithm.block is for moves that are named"),
        ({"model": {"kind": "mrf"}}, 'data.response: model.kind = "mrf" explains every column by the others'),
        ({"model": {"family": "bernoulli"}, "output": {"site_fits": True}}, "output.site_fits are least-squares fits"),
        ({"model": {"kind": "mrv"}}, 'did you mean "mrf"?'),
        ({"model": {"splines": {"x": [1.0, 0.0, 2.0]}}}, "at least 3 knots in increasing order"),
        ({"privacy": {"epsilon": 1.0}}, 'method = "sparse" has no private form'),
        ({"algorithm": {"schedule": "random"}}, "unknown key algorithm.schedule"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_breaks_the_target_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse({**BASE, **changes})
    assert text in str(caught.value)


def test_a_regression_says_what_people_ask(tmp_path: Path) -> None:
    path = job(tmp_path)
    result = fedkern.run(path, out=tmp_path / "out", job=FAST, algorithm={"burn_in": 50, "share_local": True})
    truth = json.loads((path.parent / "truth.json").read_text())["parameters"]
    named = result.parameters
    for name in ("x1", "x2", "x3", "x4"):
        row = named[f"theta_std[{name}]"] if f"theta_std[{name}]" in named else named[f"theta[{name}]"]
        assert 0 <= row["pip"] <= 1
        assert {"mean", "sd", "q05", "q50", "q95", "rhat", "ess"} <= row.keys()
        average = named[f"average[{name}]"]
        assert abs(average["mean"] - np.mean([truth[f"theta[{name}]"]])) < 5 * average["sd"] + 0.5 * abs(truth[f"theta[{name}]"])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["sampler"]["chains"] == 4
    assert summary["selection"]["fdr"] == 0.1
    assert {"eta", "rho", "negligible"} <= named.keys()
    draws = result.to_arviz()
    assert draws["posterior"]["theta"].shape == (4, 100, 4)
    assert draws["posterior"]["theta_std_at"].shape == (4, 100, 3, 4)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", ["regression", "mrf"])
def test_there_is_no_set_where_chains_do_not_agree_about_a_member(tmp_path: Path, kind: str) -> None:
    """In the result, on the terminal and on the page: a dozen draws of two chains are too few to agree."""
    path = job(tmp_path, "sparse" if kind == "regression" else kind)
    few_draws = {"job": {"rounds": 16}, "algorithm": {"burn_in": 4, "chains": 2}}
    result = fedkern.run(path, out=tmp_path / "out", output={"fdr": 0.3}, **few_draws)
    summary = result.summary
    named = {row.partition("[")[2][:-1]: numbers for row, numbers in result.parameters.items() if "pip" in numbers}
    pips, unsure = [numbers["pip"] for numbers in named.values()], set(summary["unsettled"])
    members = {name for name, member in zip(named, selection.fdr_set(pips, 0.3)) if member}
    assert members & unsure  # what was printed as a set
    chosen = summary["selection"]
    assert (chosen["members"], summary.get("graph", {}).get("edges", [])) == ([], [])
    assert chosen["text"].startswith("no set at a false discovery rate of 0.3: chains do not agree about")
    (shown,) = [line for line in describe_run(summary, "done") if "in the slab, larger" in line]
    assert shown.endswith(": none")
    page = write_report(tmp_path / "out").read_text()
    assert "Selection: no set at a false discovery rate of 0.3" in page


FIRST = {"SchemaReply", "ColumnNotes", "ColumnValues", "ColumnMoments", "ColumnMeans"}


def test_a_clients_own_results_are_its_own(tmp_path: Path) -> None:
    """sigma_k, alpha_k and theta_k have no message: they are in the client's folder, and nowhere at the server."""
    fedkern.run(job(tmp_path), out=tmp_path / "out", job=FAST, algorithm={"burn_in": 50})
    kept = json.loads((tmp_path / "out" / "client-client-01" / "posterior.json").read_text())
    said = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(kept)[:3] == ["converged", "verdict", "worst"]
    assert all(kept[name] == said[name] for name in list(kept)[:3])
    own = kept["parameters"]
    assert {"sigma", "intercept", "theta[x1]"} <= own.keys()
    assert "p_deviates" in own["theta[x1]"]
    summary = (tmp_path / "out" / "summary.json").read_text()
    assert "sigma" not in json.loads(summary)["parameters"]
    assert "@client" not in summary
    assert sent(tmp_path, "client-01") == FIRST | {"Locals", "Counts", "VerdictHeard", "Received"}


@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [
        ({"aggregate": "sums", "server_sweeps": 1}, {"Sums"}),
        ({"moves": ["interweave"]}, {"Locals", "MoveTerms"}),
        ({"statistics": "pooled"}, {"Statistics"}),
        ({"participation": 0.6}, {"Locals"}),
    ],
)
def test_the_ledger_holds_what_the_setting_sends(tmp_path: Path, algorithm: dict[str, Any], kinds: set[str]) -> None:
    result = checked_and_run(job(tmp_path), tmp_path / "out", job=FAST, algorithm={"burn_in": 50, **algorithm})
    kinds = kinds if "statistics" in algorithm else kinds | {"Counts"}
    assert sent(tmp_path, "client-02") == kinds | FIRST | {"VerdictHeard", "Received"}
    assert result.stop == "rounds"


TWO = {"moves": ["translate", "interweave"], "block": [2, 3], "second_every": 3}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mrf", {"algorithm": TWO}),
        ("logistic", {"algorithm": TWO, "job": {"method": "sparse"}, "model": {"family": "bernoulli"}}),
        ("sparse", {"algorithm": TWO, "model": {"missing": "impute"}}),
    ],
)
def test_moves_exist_in_every_model_of_regressions(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    path = job(tmp_path, kind)
    if kind == "logistic":
        path.write_text(f'[job]\nmethod = "sparse"\n[data]\nclients = ["{path.parent}/clients/*.csv"]\nresponse = "y"\n')
    algorithm = {"burn_in": 10, **changes["algorithm"]}
    rest = {name: table for name, table in changes.items() if name not in ("algorithm", "job")}
    result = checked_and_run(path, tmp_path / "out", job={"rounds": 20}, algorithm=algorithm, **rest)
    assert {"Locals", "MoveTerms", "SecondMoveTerms"} < sent(tmp_path, "client-01")
    assert result.stop == "rounds"


def test_large_jobs_are_told_of_moves_and_what_they_send(fedkern: Callable[..., Ended], tmp_path: Path) -> None:
    path = job(tmp_path, clients=8, rows=12)
    words = "algorithm.moves = \"auto\" would take interweave, and send X'y / sigma^2 and X'X / sigma^2 of every client"
    assert words in fedkern("check", "--verbose", path).out
    assert fedkern("run", path, "--set", "job.rounds=5", "--out", "few-rounds").code == 0
    assert any(words in note for note in json.loads(Path("few-rounds/summary.json").read_text())["notes"])
    for given in ("moves=[]", "moves=auto", "statistics=pooled", "aggregate=sums", "participation=0.5"):
        assert "would take" not in fedkern("check", "--verbose", path, "--set", f"algorithm.{given}").out
    assert "would take" not in fedkern("check", "--verbose", job(tmp_path / "few")).out


def test_the_moves_that_are_advised_run_and_send_as_much_as_was_said(fedkern: Callable[..., Ended], tmp_path: Path) -> None:
    path = job(tmp_path, clients=8, rows=12)
    (said,) = set(re.findall(r"\(([\d,]+) bytes a round\)", fedkern("check", "--verbose", path).out))
    out = tmp_path / "out"
    assert fedkern("run", path, "--set", "algorithm.moves=auto", "--set", "job.rounds=6", "--out", out).code == 0
    for ledger in sorted((out / "ledger").glob("*.jsonl")):
        terms = [line for line in opened.sent(ledger) if "MoveTerms" in line.kind]
        assert len(terms) >= 3
        assert max(line.bytes for line in terms) == int(said.replace(",", ""))
        assert sum(line.bytes for line in terms if line.round == terms[0].round) == max(line.bytes for line in terms)


def test_pooled_statistics_choose_moves_that_send_nothing_more(fedkern: Callable[..., Ended], tmp_path: Path) -> None:
    path = job(tmp_path)
    pooled = fedkern("check", "--verbose", path, "--set", "algorithm.statistics=pooled").out
    assert "moves: interweave, exchange of collinear pairs" in pooled
    assert "MoveTerms" not in pooled
    assert (
        "no moves"
        in fedkern("check", "--verbose", path, "--set", "algorithm.statistics=pooled", "--set", "algorithm.moves=[]").out
    )


@pytest.mark.parametrize("kind", ["mrf", "sem"])
def test_a_graph_is_named_by_its_edges(tmp_path: Path, kind: str) -> None:
    # With this seed the chains of structural equations agree.
    algorithm = {"burn_in": 50} | ({"random_source": "keyed"} if kind == "sem" else {})
    result = checked_and_run(job(tmp_path, kind), tmp_path / "out", job=FAST | {"seed": 1}, algorithm=algorithm)
    found = result.summary["graph"]
    assert found["nodes"] == ["x1", "x2", "x3", "x4"]
    assert np.shape(found["pip"]) == np.shape(found["or"]) == (4, 4)
    assert "theta[x2 -> x1]" in result.parameters
    assert (np.array(found["or"]) >= np.array(found["and"])).all()
    assert ("partial_correlation" in found) == (kind == "mrf")
    assert ("modes" in result.summary) == (kind == "sem")
    assert {name: result.summary["sampler"][name] for name in ("qr_fallbacks", "data_space_draws")} == {
        "qr_fallbacks": 0, "data_space_draws": 0,
    }  # fmt: skip
    assert not [note for note in result.summary["notes"] if "QR" in note]  # moves that were accepted are no failures


def test_streams_take_over_where_there_are_too_many_coefficients(tmp_path: Path) -> None:
    path = job(tmp_path, "mrf", columns=6)
    whole = fedkern.run(path, job=FAST, algorithm={"burn_in": 50})
    streamed = fedkern.run(path, out=tmp_path / "out", job=FAST, algorithm={"burn_in": 50}, output={"largest": 10})
    for name in ("theta_std[x2 -> x1]", "theta[x3 -> x1]"):
        if name in streamed.parameters:
            assert streamed.parameters[name]["mean"] == pytest.approx(whole.parameters[name]["mean"], rel=1e-9)
            assert streamed.parameters[name]["sd"] == pytest.approx(whole.parameters[name]["sd"], rel=1e-2)
    np.testing.assert_allclose(streamed.summary["graph"]["pip"], whole.summary["graph"]["pip"], rtol=1e-9)
    np.testing.assert_allclose(
        streamed.summary["graph"]["partial_correlation"], whole.summary["graph"]["partial_correlation"], atol=1e-12
    )
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["sampler"]["kept"] == 100


def test_other_priors_and_leaving_a_site_out(tmp_path: Path) -> None:
    wanted = {"sensitivity": True, "leave_one_out": True, "site_fits": True}
    result = checked_and_run(job(tmp_path), tmp_path / "out", job=FAST, algorithm={"burn_in": 50}, output=wanted)
    table = result.summary["sensitivity"]
    assert (table[0]["s_tau"], table[0]["c0"]) == (1.0, 0.01)
    assert len(table) == 6
    main = {n.partition("[")[2][:-1]: row["pip"] for n, row in result.parameters.items() if "pip" in row}
    assert table[0]["pip"] == pytest.approx(main)  # the same prior, the same seed
    assert result.summary["leave_one_out"].keys() == {"client-01", "client-02", "client-03"}
    meta = result.summary["meta"]
    assert meta["pooled"]["x1"]["sites"] == 3
    assert meta["sites"]["client-01"]["x1"]["se"] > 0
    strongest = min(meta["pooled"], key=lambda name: meta["pooled"][name]["p"])
    assert meta["selection"]["fdr"] == 0.1
    assert set(meta["selection"]["members"]) >= ({strongest} if meta["pooled"][strongest]["p"] < 0.01 else set())


def csv(path: Path, names: str, rows: Any) -> None:
    text = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in rows]
    path.write_text("\n".join([names, *text]) + "\n")


def federation(tmp_path: Path, *parts: Any, names: str = "a,b,y") -> dict[str, Any]:
    for k, part in enumerate(parts):
        csv(tmp_path / f"site-{k}.csv", names, part)
    return {
        "job": {"method": "sparse", "rounds": 60},
        "data": {"clients": [str(tmp_path / f"site-{k}.csv") for k in range(len(parts))], "response": "y"},
        "algorithm": {"burn_in": 20, "chains": 2},
    }  # fmt: skip


def rows(n: int, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2))
    return np.column_stack([X, X @ [0.8, 0.0] + random.normal(size=n)])


def test_a_column_constant_at_one_site_is_allowed_and_the_client_is_told(tmp_path: Path) -> None:
    first = rows(30)
    first[:, 1] = 3.0
    fedkern.run(federation(tmp_path, first, rows(30, 1)), out=tmp_path / "out")
    notes = json.loads((tmp_path / "out" / "client-site-0" / "rows.json").read_text())["notes"]
    assert any("b is constant here" in note for note in notes)


def test_a_column_constant_everywhere_is_refused(tmp_path: Path) -> None:
    first, second = rows(30), rows(30, 1)
    first[:, 1], second[:, 1] = 3.0, 4.0
    with pytest.raises(JobError, match="column 'b' is constant at every client"):
        fedkern.run(federation(tmp_path, first, second))


def test_a_duplicated_column_is_allowed_and_said(tmp_path: Path) -> None:
    parts = [rows(30, k) for k in range(2)]
    for part in parts:
        part[:, 1] = 2 * part[:, 0]
    result = fedkern.run(federation(tmp_path, *parts), out=tmp_path / "out")
    assert all(np.isfinite(row["mean"]) for row in result.parameters.values())
    notes = json.loads((tmp_path / "out" / "client-site-1" / "rows.json").read_text())["notes"]
    assert any("a and b are the same here" in note for note in notes)


def test_one_row_needs_a_model_without_intercept(tmp_path: Path) -> None:
    tables = federation(tmp_path, rows(30), rows(1, 1))
    tables["data"] |= few.ANY
    with pytest.raises(OwnFault, match="client 'site-1' has fewer usable rows than the model needs, 2"):
        fedkern.run(tables)
    assert fedkern.run({**tables, "model": {"intercept": False}}).stop == "rounds"


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with refusal(JobError, "site-1", "disclosure.rows"):
        fedkern.run({**federation(tmp_path, rows(30), rows(0)), "disclosure": {"level": "standard"}})


def test_empty_cells_are_a_fault_or_are_imputed(tmp_path: Path) -> None:
    first, second = rows(40), rows(40, 1)
    first[:5, 0], second[:, 1] = np.nan, np.nan
    second[3, 2] = np.nan
    tables = federation(tmp_path, first, second, rows(40, 2))
    with refusal(OwnFault, "1", "model.missing") as fault:
        fedkern.run(tables)
    assert "column 'a'" in fault.value.own
    result = checked_and_run({**tables, "model": {"missing": "impute"}}, tmp_path / "out")
    assert any("drawn as Gaussian" in note for note in result.summary["notes"])
    notes = json.loads((tmp_path / "out" / "client-site-1" / "rows.json").read_text())["notes"]
    assert any("1 rows without a response" in note for note in notes)
    assert "CompletedMoments" in sent(tmp_path, "site-0")


def without(tables: dict[str, Any], tmp_path: Path, site: int, *lacking: str) -> None:
    """Takes columns out of a site's file."""
    path = tmp_path / tables["data"]["clients"][site]
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    kept = [j for j, name in enumerate(names) if name not in lacking]
    path.write_text("\n".join(",".join(line[j] for j in kept) for line in [names, *lines]) + "\n")


def test_a_site_may_lack_a_covariate(tmp_path: Path) -> None:
    """A column that is not in a file is the same as one that has no value in it, wherever it stands."""
    second = rows(40, 1)
    second[:, 1] = np.nan
    model = {"model": {"missing": "impute", "always": ["a"]}}
    tables = federation(tmp_path, rows(40), second, rows(40, 2))
    tables["algorithm"]["random_source"] = "keyed"
    empty = fedkern.run({**tables, **model})
    without(tables, tmp_path, 1, "b")
    with pytest.raises(JobError, match=r"client 'site-1'.*missing|is missing"):
        fedkern.run(tables)
    result = checked_and_run({**tables, **model}, tmp_path / "out")
    assert result.digest == empty.digest
    notes = json.loads((tmp_path / "out" / "client-site-1" / "rows.json").read_text())["notes"]
    assert "b is not in this file: every value of it is drawn by the model" in notes


def test_a_site_may_lack_what_others_declare_but_no_categories(tmp_path: Path) -> None:
    tables = federation(tmp_path, rows(40), rows(40, 1), rows(40, 2))
    without(tables, tmp_path, 0, "b")
    tables["data"]["columns"] = {"b": {"kind": "numeric"}}
    assert fedkern.run({**tables, "model": {"missing": "impute"}}).stop == "rounds"
    without(tables, tmp_path, 0, "y")
    with pytest.raises(JobError, match="column 'y' is missing"):
        fedkern.run({**tables, "model": {"missing": "impute"}})


def test_columns_never_measured_together_are_named(tmp_path: Path) -> None:
    first, second = rows(40), rows(40, 1)
    first[:, 0], second[:, 1] = np.nan, np.nan
    with refusal(JobError, "a", "b"):
        fedkern.run({**federation(tmp_path, first, second), "model": {"missing": "impute"}})


def test_a_binary_response_and_a_spline(tmp_path: Path) -> None:
    parts = [rows(80, k) for k in range(2)]
    for part in parts:
        part[:, 2] = part[:, 2] > 0
    tables = federation(tmp_path, *parts)
    result = checked_and_run({**tables, "model": {"family": "bernoulli"}}, tmp_path / "out")
    assert result.parameters["average[a]"]["mean"] > 0
    tables = federation(tmp_path, rows(80), rows(80, 1))
    splines = checked_and_run({**tables, "model": {"splines": {"a": [-1.0, 0.0, 1.0]}}}, tmp_path / "splines")
    assert "theta[a~1]" in splines.parameters or "theta_std[a~1]" in splines.parameters


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_a_covariate_far_from_zero_moves_the_intercept_and_nothing_else(tmp_path: Path, family: str) -> None:
    """Calendar years. The numbers are multiples of 2^-10, and every site has a power of two of rows: all means are exact."""
    random, sites = np.random.default_rng(0), []
    for _ in range(2):
        x = np.rint(1024 * random.standard_normal((128, 2))) / 1024
        y = (random.random(128) < 1 / (1 + np.exp(-2 * x[:, 0]))) if family == "bernoulli" else np.rint(4 * x[:, 0])
        sites.append(np.column_stack([x, y]).astype(float))
    digests, own = [], []
    shift = 2047 + 1 / 1024
    for far in (0.0, shift):
        path = tmp_path / str(far)
        path.mkdir()
        tables = federation(path, *[site + np.array([far, 0.0, 0.0]) for site in sites])
        tables["algorithm"]["random_source"] = "keyed"
        result = perform(InProcess(), parse({**tables, "model": {"family": family}}), path, Output(path / "out", quiet=True))
        digests.append(result.digest)
        own.append(json.loads((path / "out" / "client-site-0" / "posterior.json").read_text())["parameters"])
    assert digests[0] == digests[1]
    moved = own[0]["intercept"]["mean"] - shift * own[0]["theta[a]"]["mean"]
    assert own[1]["intercept"]["mean"] == pytest.approx(moved, rel=1e-9)


def test_a_covariate_far_from_zero_leaves_a_logistic_chain_where_it_was(tmp_path: Path) -> None:
    """Any number of rows, so that means are rounded. A chain makes the last digit's difference about three times as large in each
    round, some chains more: the first round agrees in all, and the median chain for 20 rounds."""
    off: list[float] = []
    for seed in (4, 5, 6):
        random, draws = np.random.default_rng(seed), []
        sites = [np.rint(1024 * random.standard_normal((n, 3))) / 1024 for n in (60, 77)]
        for site in sites:
            site[:, 2] = random.random(len(site)) < 1 / (1 + np.exp(-site[:, 0]))
        for far in (0.0, 1987 + 3 / 1024):
            path = tmp_path / f"{seed}-{far}"
            path.mkdir()
            tables = federation(path, *[site + np.array([far, 0.0, 0.0]) for site in sites])
            job = {**tables, "model": {"family": "bernoulli"}, "algorithm": {"burn_in": 0, "random_source": "keyed"}}
            job["job"] = {**tables["job"], "rounds": 20}
            draws.append(fedkern.run(job).posterior.theta)
        np.testing.assert_allclose(draws[1][:, 0], draws[0][:, 0], rtol=0, atol=1e-15)
        off += abs(draws[1] - draws[0]).max(axis=(1, 2)).tolist()
    assert np.median(off) < 1e-8, off


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4))])
def test_ranks_do_not_change_a_bit(tmp_path: Path, ranks: int) -> None:
    path = job(tmp_path)
    sets = ["--set", "job.rounds=60", "--set", "algorithm.burn_in=20"]
    ended = mpirun(ranks, "run", path, "--out", tmp_path / "out", *sets)
    assert ended.code == 0, ended.err
    want = fedkern.run(path, job={"rounds": 60}, algorithm={"burn_in": 20})
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert found["digest"] == want.digest
    assert found["parameters"].keys() == want.parameters.keys()


class Later(Signals):
    """A signal that comes in the middle of the sampler: it is asked for once a round."""

    reads = 0

    @property
    def pending(self) -> str | None:
        self.reads += 1
        return "SIGTERM" if self.reads > 150 else None

    @pending.setter
    def pending(self, value: str | None) -> None:
        assert value is None


IMPUTE = ('model.missing="impute"',)


GRAPH = pytest.param("mrf", IMPUTE, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("kind", "sets"), [("sparse", ()), ("sparse", IMPUTE), GRAPH, ("sem", ('model.centre="sample"',))])
def test_an_interrupted_run_goes_on_with_the_same_bits(
    tmp_path: Path, kind: str, sets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a client's random numbers are its own, its checkpoint keeps their seed: the seeds of the resumed run are others."""
    path = job(tmp_path, kind)
    at_hand: list[int] = []
    monkeypatch.setattr("fedkern.jobs.run.Run.secret_key", lambda *about: 2**64 - 1 - at_hand.pop())
    if sets == IMPUTE:
        for file in sorted((path.parent / "clients").glob("*.csv")):
            header, *lines = file.read_text().splitlines()
            gaps = ["," + line.partition(",")[2] if i % 4 == 0 else line for i, line in enumerate(lines)]
            file.write_text("\n".join([header, *gaps]) + "\n")
    config, folder = load(path, ["job.rounds=300", "algorithm.burn_in=100", "algorithm.checkpoint_every=0.01", *sets])
    place = InProcess(signals=Later())
    at_hand[:] = range(20)
    with refusal(LostPeer, "--resume"):
        perform(place, config, folder, Output(tmp_path / "out", quiet=True))
    assert list((tmp_path / "out" / "checkpoint").glob("gibbs-*"))
    at_hand[:] = range(40, 60)
    resumed = perform(InProcess(), config, folder, Output(tmp_path / "out", resume=True, quiet=True))
    at_hand[:] = range(20)
    whole = perform(InProcess(), config, folder, Output(tmp_path / "whole", quiet=True))
    assert resumed is not None
    assert whole is not None
    assert resumed.digest == whole.digest
    assert resumed.parameters == whole.parameters
    own = [(tmp_path / run / "client-client-01" / "posterior.json").read_text() for run in ("out", "whole")]
    assert own[0] == own[1]


def test_a_run_prints_its_effects(fedkern: Any, tmp_path: Path) -> None:
    ended = fedkern("run", job(tmp_path), "--out", tmp_path / "out", "--set", "job.rounds=200")
    assert ended.code == 0, ended.err
    for words in ("PIP", "site average", "false discovery rate 0.1", "count as zero", "R-hat at most", "digest"):
        assert words in ended.out
