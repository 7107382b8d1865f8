"""What a sparse job says of sites: which one differs, how far apart they are, where a new one may lie, what they counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedkern
from fedkern.algorithms.core.messages import ClientLost
from fedkern.algorithms.core.once import ready_client
from fedkern.algorithms.exchanges.sums import Counts
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.methods.sparse import publish
from fedkern.methods.sparse import report as own_sections
from fedkern.results import report
from fedkern.results.result import Result
from fedkern.results.samples import Samples
from support import chosen, few
from support.wires import checked_and_run

EFFECTS = (0.35, 0.45, 0.4, 0.0)  # of `a`, the last site's own: theta is then in the spike and in the slab by turns
ROWS = (60, 90, 120, 60)


def written(folder: Path, names: str, sites: list[Any]) -> list[str]:
    folder.mkdir(exist_ok=True)
    for k, rows in enumerate(sites):
        lines = [",".join(repr(float(x)) for x in row) for row in rows]
        (folder / f"site-{k}.csv").write_text("\n".join([names, *lines]) + "\n")
    return [str(folder / f"site-{k}.csv") for k in range(len(sites))]


def regression(folder: Path, **sections: Any) -> dict[str, Any]:
    random, sites = np.random.default_rng(8), []
    for effect, n in zip(EFFECTS, ROWS):
        X = random.normal(size=(n, 2))
        sites.append(np.column_stack([X, X @ [effect, 0.0] + 0.6 * random.normal(size=n)]))
    job: dict[str, Any] = {"job": {"method": "sparse", "rounds": 400, "seed": 1}, "model": {"scale": "pooled"}}
    job |= {"data": {"clients": written(folder, "a,b,y", sites), "response": "y"}, "algorithm": {"burn_in": 100, "chains": 2}}
    return {**job, **{name: job.get(name, {}) | keys for name, keys in sections.items()}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("shared")
    return fedkern.run(regression(folder, algorithm={"share_local": True}, output={"delta": 0.3}), out=folder / "out")


def draws(result: Result) -> Samples:
    assert isinstance(result.posterior, Samples)
    return result.posterior


def own(result: Result, name: str) -> Any:
    every = result.parameters
    return every[name.replace("[", "_std[", 1)] if name.replace("[", "_std[", 1) in every else every[name]


def test_a_site_is_compared_with_the_others_and_not_with_a_theta_that_is_in_two_places(shared: Result) -> None:
    sites = np.stack(list(draws(shared).sites.values()))
    contrast = sites[3] - np.median(sites[:3], axis=0)
    row = own(shared, "theta[a]@site-3")
    assert row["p_differs"] == np.mean(np.abs(contrast[..., 0]) > 0.3)
    assert row["contrast"] == pytest.approx(np.mean(contrast[..., 0]))
    assert row["p_deviates"] == np.mean(np.abs(sites[3] - draws(shared).theta)[..., 0] > 0.3)
    assert row["p_differs"] > 0.95
    assert row["p_deviates"] < row["p_differs"] - 0.1
    first = shared.summary["deviating"][0]
    assert (first["client"], first["coefficient"], first["p_differs"]) == ("site-3", "a", row["p_differs"])


def test_the_job_s_delta_counts_everywhere(shared: Result) -> None:
    average = draws(shared).average
    assert average is not None
    assert own(shared, "average[a]")["p_large"] == np.mean(np.abs(average[..., 0]) > 0.3)
    assert own(shared, "average[a]")["p_large"] != np.mean(np.abs(average[..., 0]) > 0.2)
    assert shared.summary["selection"]["delta"] == 0.3


def test_how_far_sites_are_apart_and_the_average_by_rows(shared: Result) -> None:
    kept = draws(shared)
    sites = np.stack(list(kept.sites.values()))
    assert kept.between is not None
    assert kept.by_rows is not None
    np.testing.assert_allclose(kept.between, sites.std(axis=0, ddof=1), atol=1e-12)
    np.testing.assert_allclose(kept.by_rows, np.average(sites, axis=0, weights=ROWS), atol=1e-12)
    assert own(shared, "between_sd[a]")["mean"] == pytest.approx(kept.between[..., 0].mean())
    assert own(shared, "average_by_rows[a]")["mean"] > own(shared, "average[a]")["mean"] + 0.02  # the odd site is a small one
    page = report.page(report.RunFiles("a run", shared.summary), own_sections)
    assert "<h2>Sites</h2>" in page
    assert f"{own(shared, 'between_sd[a]')['mean']:.4g} (" in page
    posterior = shared.to_arviz()["posterior"]
    assert {"between_sd_std", "average_by_rows_std", "new_site_std"} <= set(posterior)


def test_without_a_site_s_number_of_rows_there_is_no_average_by_rows(tmp_path: Path) -> None:
    short = {"job": {"rounds": 30}, "algorithm": {"burn_in": 10}}
    found = fedkern.run(regression(tmp_path, **short, model={"scale": "none"}))
    assert not [name for name in found.parameters if name.startswith("average_by_rows")]
    assert "between_sd[a]" in found.parameters


def test_a_new_site_has_its_law(shared: Result) -> None:
    """Given theta and tau a new site's deviation has the horseshoe's density; with a slab the product's, by quadrature."""
    kept, rows = draws(shared), shared.summary["new_site"]
    row = rows.get("theta_std[a]", rows["theta[a]"])
    assert row.keys() == {"centre", "q05", "q50", "q95", "p_positive"}
    assert row["centre"] == own(shared, "theta[a]")["mean"]
    assert row["q05"] < own(shared, "average[a]")["q05"] < own(shared, "average[a]")["q95"] < row["q95"]
    assert kept.new_site is not None
    lam = np.exp(np.linspace(-20, 20, 2001))
    for slab in (np.inf, 0.5):
        section = {} if np.isinf(slab) else {"slab": slab}
        model = publish.SparseModel.__new__(publish.SparseModel)
        config = parse({"job": {"method": "sparse"}, "data": {"clients": ["x"], "response": "y"}, "model": section})
        for name, value in (("config", config), ("names", ("a",)), ("settings", _Settings(slab))):
            model.__dict__[name] = value
        fixed = Samples(("a",), *(np.full((2, 10_000, 1), x) for x in (0.3, 0.49, 1.0, 0.3, 1.0, 0.5)), scale=np.ones(1))
        drawn = publish.new_site(model, fixed)[..., 0].ravel() - 0.3
        width = 0.7 * lam
        weight = lam / (1 + lam**2) / np.hypot(1, width / slab)
        sd = width / np.hypot(1, width / slab)
        at = np.sort(drawn)[:: len(drawn) // 100]
        law = np.array([np.sum(weight * stats.norm.cdf(x / sd)) for x in at]) / weight.sum()
        assert np.abs(law - np.searchsorted(np.sort(drawn), at) / len(drawn)).max() < 2 / np.sqrt(len(drawn))
        wrong = np.array([np.sum(lam / (1 + lam**2) * stats.norm.cdf(x / sd)) for x in at]) / np.sum(lam / (1 + lam**2))
        assert np.isinf(slab) or np.abs(wrong - law).max() > 4 / np.sqrt(len(drawn))  # without the slab's share of lambda's law


class _Settings:
    def __init__(self, slab: float) -> None:
        self.prior = chosen.prior(slab=slab)


def test_what_clients_count_reaches_the_summary(tmp_path: Path) -> None:
    """More columns than rows are drawn in data space, at the clients: the server knows it as if it had made the draws itself."""
    random, sites = np.random.default_rng(3), []
    for n in (6, 7):
        X = random.normal(size=(n, 40))
        sites.append(np.column_stack([X, X[:, 0] + random.normal(size=n)]))
    names = ",".join([*(f"x{j}" for j in range(40)), "y"])
    job: dict[str, Any] = {"job": {"method": "sparse", "rounds": 20}, "data": {"response": "y"}, "model": {"scale": "none"}}
    job["data"] |= {"clients": written(tmp_path, names, sites), **few.ANY}
    job["algorithm"] = {"burn_in": 5, "chains": 2}
    told = [checked_and_run(job, tmp_path / "out").summary]
    told.append(fedkern.run({**job, "algorithm": job["algorithm"] | {"statistics": "pooled"}}).summary)
    keys = ("scales_clipped", "qr_fallbacks", "data_space_draws")
    both = [[summary["sampler"][key] for key in keys] for summary in told]
    assert both[0] == both[1]
    assert both[0][2] >= 2 * 15
    ledger = [json.loads(line) for line in (tmp_path / "out" / "ledger" / "site-0.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in ledger].count("Counts") == 1


def test_counts_are_added_and_a_lost_client_has_none() -> None:
    state, questions = Counts.question.start(3, Counts.ask(0))
    assert [k for k, _ in questions] == [0, 1, 2]
    for k, numbers in ((2, (1, 0, 5)), (0, (2, 3, 0))):
        _, (answer,) = Counts.question.client_receive(ready_client(Counts(0, *numbers)), questions[k][1])
        state, _ = Counts.question.server_receive(state, k, answer)
        assert not Counts.question.finished(state)
    state, _ = Counts.question.server_receive(state, 1, ClientLost(1))
    assert Counts.question.finished(state)
    assert Counts.total(state.replies).each == (3, 3, 5)


def graph(folder: Path, kind: str, shift: float, **sections: Any) -> dict[str, Any]:
    random = np.random.default_rng(4)
    sites = [np.round(random.laplace(size=(40, 3)) @ [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]], 3) + shift for _ in range(2)]
    job: dict[str, Any] = {"job": {"method": "sparse", "rounds": 40, "seed": 1}, "model": {"kind": kind}}
    job |= {"data": {"clients": written(folder, "a,b,c", sites)}}
    job |= {"algorithm": {"burn_in": 10, "chains": 2, "random_source": "keyed"}}
    return {**job, **{name: job.get(name, {}) | keys for name, keys in sections.items()}}


@pytest.mark.parametrize("kind", ["mrf", "sem"])
def test_locations_are_drawn_at_the_client_and_stay_there(tmp_path: Path, kind: str) -> None:
    plain = fedkern.run(graph(tmp_path, kind, 8.0))
    found = checked_and_run(graph(tmp_path, kind, 8.0, model={"centre": "sample"}), tmp_path / "out")
    assert (found.digest == plain.digest) == (kind == "mrf")  # where a flat intercept is integrated out already
    text = (tmp_path / "out" / "client-site-0" / "posterior.json").read_text()
    numbers = json.loads(text)["parameters"]
    name = {"mrf": "intercept", "sem": "location"}[kind]
    rows = [numbers[f"{name}[{node}]"] for node in "abc"]
    assert all(row["sd"] > 0 for row in rows)
    if kind == "sem":
        assert all(abs(row["mean"] - 8) < 1 for row in rows)
        few = graph(tmp_path, kind, 8.0, model={"centre": "sample"}, output={"largest": 3})
        fedkern.run(few, out=tmp_path / "streamed")
        streamed = json.loads((tmp_path / "streamed" / "client-site-0" / "posterior.json").read_text())["parameters"]
        assert [streamed[f"location[{node}]"]["mean"] for node in "abc"] == pytest.approx([row["mean"] for row in rows])
    assert f"{name}[" not in (tmp_path / "out" / "summary.json").read_text()


@pytest.mark.parametrize("kind", ["mrf", "sem"])
def test_a_graph_without_intercepts_knows_where_zero_is(tmp_path: Path, kind: str) -> None:
    here, there = (fedkern.run(graph(tmp_path / str(shift), kind, shift, model={"intercept": False})) for shift in (0.0, 8.0))
    pairs = [[np.abs(run.parameters[f"{s}[b -> a]"]["mean"]) for s in ("average",)] for run in (here, there)]
    assert abs(pairs[0][0] - pairs[1][0]) > 0.02
    assert here.digest != fedkern.run(graph(tmp_path / "0.0", kind, 0.0)).digest


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"model": {"centre": "sample"}}, 'model.centre = "sample" is for kind = "mrf" or "sem"'),
        ({"model": {"kind": "sem", "centre": "sample", "intercept": False}}, "contradict each other"),
        ({"model": {"kind": "mrf", "centre": "sample"}, "algorithm": {"statistics": "pooled"}}, "draws at clients"),
    ],
)
def test_locations_that_cannot_be_drawn_are_refused(sections: dict[str, Any], text: str) -> None:
    response = {} if "kind" in sections["model"] else {"response": "y"}
    with pytest.raises(JobError) as caught:
        parse({"job": {"method": "sparse"}, "data": {"clients": ["x.csv"], **response}, **sections})
    assert text in str(caught.value)
