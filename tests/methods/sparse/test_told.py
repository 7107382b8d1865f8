"""Sites that tell nothing of a covariate, or are far away from the others: what averages, contrasts and graphs make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import values
from fedkern.errors import JobError
from fedkern.results.samples import Samples
from support.wires import checked_and_run

SHORT: dict[str, Any] = {"job": {"rounds": 400, "seed": 3}, "algorithm": {"burn_in": 100, "chains": 2}}


def written(folder: Path, names: str, sites: list[Any]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"s{k + 1}.csv" for k in range(len(sites))]
    for path, rows in zip(paths, sites):
        path.write_text("\n".join([names, *(",".join(repr(float(x)) for x in row) for row in rows)]) + "\n")
    return [str(path) for path in paths]


def job(folder: Path, names: str, sites: list[Any], **sections: Any) -> dict[str, Any]:
    data = {"clients": written(folder, names, sites), "least_rows": 1}
    data |= {"response": "y"} if "y" in names.split(",") else {}
    out: dict[str, Any] = {"job": {"method": "sparse", **SHORT["job"]}, "data": data, "model": {}}
    out["algorithm"] = SHORT["algorithm"]
    return {**out, **{name: out.get(name, {}) | keys for name, keys in sections.items()}}


def federation(*, silent: tuple[int, ...] = (3,), rows: int = 80, effect: float = 0.5) -> list[Any]:
    random, sites = np.random.default_rng(11), []
    for k in range(4):
        X = random.normal(size=(rows + 10 * k, 2))
        X[:, 0] = 7.0 if k in silent else X[:, 0]
        sites.append(np.column_stack([X, effect * (X[:, 0] - 7.0 * (k in silent)) + random.normal(size=len(X))]))
    return sites


def row(result: Any, name: str, standard: bool = True) -> Any:
    every, stem = result.parameters, name.replace("[", "_std[", 1)
    return every[stem] if standard and stem in every else every[name]


VARIANTS: dict[str, dict[str, Any]] = {
    "pooled": {},
    "none": {"model": {"scale": "none"}},
    "allgather": {"algorithm": {"topology": "allgather"}},
    "statistics": {"algorithm": {"statistics": "pooled"}},
    "imputed": {"model": {"missing": "impute"}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_average_is_over_the_sites_that_have_the_covariate(tmp_path: Path, variant: str) -> None:
    found = checked_and_run(job(tmp_path, "a,b,y", federation(), **_with(VARIANTS[variant])), tmp_path / "out")
    for name in ("average[a]", "between_sd[a]"):
        one = row(found, name)
        assert one["sites"] == 3
        assert one["sd"] < 0.5
        assert one["q05"] < one["mean"] < one["q95"]
    average = row(found, "average[a]")
    assert abs(average["mean"] - 0.5) < 0.25
    assert average["p_positive"] > 0.99
    assert "sites" not in row(found, "average[b]")
    assert found.summary["tells_nothing"] == {"s4": ["a"]}
    (note,) = (text for text in found.summary["notes"] if text.startswith("s4 has one value"))
    assert "of a:" in note
    if variant != "allgather":
        weighted = row(found, "average_by_rows[a]") if "average_by_rows[a]" in found.parameters else average
        assert weighted["sites"] == 3
    if variant != "statistics":
        own = json.loads((tmp_path / "out" / "client-s4" / "posterior.json").read_text())
        assert own["parameters"]["theta[a]"].keys() == {"q05", "q50", "q95", "p_deviates"}
        assert "mean" in own["parameters"]["theta[b]"]
        assert "mean" not in own["parameters"]["intercept"]
        assert "rows tell nothing of a" in own["notes"][0]


def _with(sections: dict[str, Any]) -> dict[str, Any]:
    return {name: keys if name != "algorithm" else SHORT["algorithm"] | keys for name, keys in sections.items()}


def test_what_only_one_site_has(tmp_path: Path) -> None:
    shared = {"algorithm": SHORT["algorithm"] | {"share_local": True}}
    found = fedkern.run(job(tmp_path, "a,b,y", federation(silent=(1, 2, 3)), **shared))
    assert row(found, "average[a]")["sites"] == 1
    assert row(found, "average[a]")["mean"] == pytest.approx(row(found, "theta[a]@s1")["mean"])
    assert not [name for name in found.parameters if name.startswith("between_sd") and "[a]" in name]
    assert not [name for name in found.parameters if "[a]@s" in name and not name.endswith("@s1")]
    assert "p_differs" not in row(found, "theta[a]@s1")
    assert "p_differs" in row(found, "theta[b]@s1")
    assert all(isinstance(value, float | int) for one in found.parameters.values() for value in one.values())


def test_a_graph_s_edges_of_a_column_that_is_constant_somewhere(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    sites = [random.normal(size=(60, 3)) @ [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]] for _ in range(3)]
    sites[2][:, 2] = 1.0
    found = fedkern.run(job(tmp_path, "a,b,c", sites, model={"kind": "mrf"}))
    assert row(found, "average[c -> a]")["sites"] == row(found, "average[a -> c]")["sites"] == 2
    assert "sites" not in row(found, "average[a -> b]")
    assert row(found, "average[c -> a]")["sd"] < 0.5
    with pytest.raises(JobError, match="client 's3': column 'c' has one value there, and structural equations with it"):
        fedkern.run(job(tmp_path, "a,b,c", sites, model={"kind": "sem"}))


def test_a_site_is_compared_with_the_median_of_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    for n in (3, 4, 5):
        sites = {f"s{k}": random.normal(size=(2, 50, 1)) for k in range(n)}
        sites["s0"] = sites["s0"] + 100.0
        one = np.zeros((2, 50, 1))
        kept = Samples(("a",), one, one + 1, one, one, one + 1, one + 0.5, scale=np.ones(1), sites=sites)
        own = kept.parameters()
        for name, draws in sites.items():
            contrast = draws - np.median([other for label, other in sites.items() if label != name], axis=0)
            assert own[f"theta[a]@{name}"]["contrast"] == pytest.approx(contrast.mean())
            assert own[f"theta[a]@{name}"]["p_differs"] == np.mean(np.abs(contrast) > 0.2)


def test_different_values_are_counted_and_no_more_is_told() -> None:
    columns = np.array([[1.0, 0.1, 5.0, np.nan, 1e15 + 0.3], [1.0, 0.1, 6.0, np.nan, 1e15 + 0.3], [2.0, 0.1, 7.0, np.nan, np.nan]])
    assert values.counted(columns).tolist() == [2, 1, 3, 0, 1]
    state, questions = values.start(("a", "b"), tell=True)
    for k, own in ((1, [2.0, 1.0]), (0, [3.0, 0.0])):
        _, (answer,) = values.client_receive(values.Client(np.array(own)), questions[k][1])
        with pytest.raises(RemoteFault, match=f"client {k}: ColumnValues"):
            values.server_receive(state, k, values.ColumnValues(0, np.array([4.0, 1.0])))
        state, told = values.server_receive(state, k, answer)
    assert state.every is not None
    assert state.every.tolist() == [[3, 0], [2, 1]]
    client, _ = values.client_receive(values.Client(np.array([2.0, 1.0])), told[0][1])
    assert client.every is not None
    with pytest.raises(RemoteFault, match="with this client's own among them"):
        values.client_receive(values.Client(np.array([2.0, 2.0])), told[0][1])
