"""Reproductions of the vertical paper: pauses, scores, tables, and the stored references."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges import rows as alignment
from fedkern.data.columns import Columns
from fedkern.methods import parse
from fedkern.methods.vertical.keys import Config as VerticalConfig
from fedkern.methods.vertical.model import VerticalModel
from fedkern.methods.vertical.rows import Columns as Held
from fedkern.models.encoding import Encoding
from fedkern.models.split.site import Site
from papers import common, vertical, vertical_heart, vertical_logistic, vertical_poisson
from papers.vertical_heart import FOLDS, MODELS, Cell, Fits
from support import few

STORED = common.references("vertical")
heart = pytest.mark.skipif(
    not (Path(os.environ.get("FEDKERN_DATA", ".")) / "heart-failure-prediction").is_dir(),
    reason="needs heart-failure-prediction in the folder FEDKERN_DATA",
)


def columns() -> Columns:
    random = np.random.default_rng(2)
    x = tuple(random.normal(size=(12, 2)) for _ in range(2))
    return Columns(x, (("a", "b"), ("c", "d")), (x[0][:, 0] > 0).astype(float))


def tables(kind: str, **algorithm: Any) -> dict[str, Any]:
    model = {"kind": "network" if kind == "none" else "bayes-network", "hidden": [3], "weight_sd": math.inf}
    model |= {} if kind == "none" else {"rho": 0.5}
    algorithm = {"average": "none", "cool_down": 0.0} | algorithm | ({} if kind == "none" else {"auxiliary": kind})
    return {"model": model, "algorithm": algorithm}


def small(kind: str, **algorithm: Any) -> tuple[VerticalModel, list[Site], Any]:
    data, job = columns(), {"method": "vertical", "seed": 4, "rounds": 9}
    where = {"clients": ["a.csv", "b.csv"], "server": "server.csv", "id": "id", "response": "y", **few.ANY}
    config = parse({"job": job, "data": where, **tables(kind, **algorithm)})
    assert isinstance(config, VerticalConfig)
    model = VerticalModel(config, tuple(vertical.names(data)), data.n_rows)
    held = [Held(Encoding((), None), x, None) for x in data.X]
    return model, [model.site(k, own, np.arange(data.n_rows)) for k, own in enumerate(held)], data


def last(case: tuple[VerticalModel, list[Site], Columns], **more: Any) -> Any:
    model, sites, data = case
    *_, found = vertical.fit(model, sites, data.y, **more)
    return found


@pytest.mark.parametrize("kind", ["mean-field", "amortised", "none"])
def test_looking_at_a_run_on_the_way_changes_no_bit(kind: str) -> None:
    model, sites, data = small(kind)
    _, whole = last((model, sites, data))
    found = list(vertical.fit(model, sites, data.y, marks=(2, 3, 9, 20)))
    assert [server.round for server, _ in found] == [2, 3, 9]
    for k, client in found[-1][1].items():
        np.testing.assert_array_equal(client.parameters, whole[k].parameters)
        assert (found[0][1][k].parameters != client.parameters).any()


@pytest.mark.parametrize("kind", ["mean-field", "amortised", "none"])
def test_a_fit_that_is_looked_at_is_the_job_that_runs(kind: str, tmp_path: Path) -> None:
    """The rows in the order that the parties of a job agree on."""
    model, _, data = small(kind)
    order = alignment.order([*map(str, range(data.n_rows))], 4, "", [""] * data.n_rows)
    same = data.rows(order)
    sites = [model.site(k, Held(Encoding((), None), x, None), np.arange(data.n_rows)) for k, x in enumerate(same.X)]
    _, clients = last((model, sites, same), marks=(3,))
    fedkern.run(vertical.job(tmp_path, data, 4, 9, **tables(kind)), out=tmp_path / "run", data=few.ANY)
    for k, name in enumerate(model.names):
        own = json.loads((tmp_path / "run" / f"client-{name}" / "posterior.json").read_text())
        part = clients[k].parameters[sites[k].parts["phi"]]
        np.testing.assert_array_equal(own["network"]["weights"], part)
    _, other = last((*small(kind)[:2], data))  # and rows in another order are another fit
    assert (other[0].parameters != clients[0].parameters).any()


def test_a_cooling_run_is_not_looked_at_on_the_way() -> None:
    with pytest.raises(ValueError, match="no marks"):
        last(small("amortised", cool_down=0.5), marks=(2,))


def lines(best: int) -> dict[str, Any]:
    """Fits of one fold seed that predict well after the mark number `best` and badly after the others."""
    y, out = vertical_heart.heart_failure.read().response(), {}
    for k, fold in enumerate(vertical_heart.folds(0)):
        for model in MODELS:
            mean = [np.where(y[fold] == 1, 1.0, -1.0) * (2.0 if m == best else -0.1) for m in range(3)]
            mean[best][0] *= -1  # one wrong prediction a fold
            variance = [np.full(len(fold), 3.0)] * 3
            line = {"key": Cell(model, 0, k).key, "marks": [10, 20, 30], "mean": np.array(mean).tolist()}
            out[line["key"]] = line | {"variance": np.array(variance).tolist()}
    return out


@heart
def test_rounds_are_chosen_by_the_other_folds_and_scores_are_of_their_rule() -> None:
    found = Fits.of(lines(best=1), [0])
    model = "rho = 5"
    those, rounds = found.chosen(model, "plug-in")
    assert rounds == [20] * FOLDS
    n = np.array([len(fold) for fold in vertical_heart.folds(0)])
    assert [one.accuracy for one in those] == pytest.approx(100 * (n - 1) / n)
    right, wrong = those[0].density[those[0].right], those[0].density[~those[0].right]
    assert right == pytest.approx(np.full(n[0] - 1, -np.log1p(np.exp(-2.0))))
    assert wrong == pytest.approx([-np.log1p(np.exp(2.0))])
    averaged, _ = found.chosen(model, "posterior")
    assert averaged[0].density[~averaged[0].right] > wrong  # less sure, and less wrong
    assert found.at(model, "plug-in", 10)[0].accuracy < 5
    assert 80 < np.mean([one.accuracy for one in found.pooled.values()]) < 90


@heart
def test_a_fold_has_no_say_in_its_own_rounds() -> None:
    """Fold 0 alone would be better off after the last mark."""
    made = lines(best=1)
    for model in MODELS:
        line = made[Cell(model, 0, 0).key]
        line["mean"][2] = [3 * value for value in line["mean"][1]]
    those, rounds = Fits.of(made, [0]).chosen("rho = 5", "plug-in")
    assert rounds == [20] * FOLDS
    assert len(those) == FOLDS


@heart
def test_one_fit_is_of_its_fold_and_the_test_rows_are_not_learnt_from() -> None:
    cell = Cell("rho = 5", 1, 3)
    found = vertical_heart.run_cell((cell, 200))
    fold = vertical_heart.folds(1)[3]
    assert found["key"] == "rho = 5 / 1 / 3"
    assert found["marks"] == [100, 200]
    assert np.shape(found["mean"]) == np.shape(found["variance"]) == (2, len(fold))
    assert np.min(found["variance"]) > 0
    assert not set(fold) & set(vertical_heart.train_of(fold))


def test_the_fast_runs_are_a_part_of_the_whole() -> None:
    for module in (vertical_logistic, vertical_poisson):
        fast, whole = module.cells(True), module.cells(False)
        assert set(fast) < set(whole)
        assert len({cell.key for cell in whole}) == len(whole)
    assert len({cell.key for cell in vertical_heart.cells()}) == 5 * FOLDS * len(MODELS)
    assert len(vertical_logistic.cells(False)) == 1 + 2 * 3 * 2 * 2


@pytest.mark.parametrize("name", [name for name in STORED if "another way" in name])
def test_two_ways_to_a_reference_agree(name: str) -> None:
    """Different programs, or with and without the auxiliary variables."""
    one, other = STORED[name]["posterior"], STORED[name.removesuffix(", another way")]["posterior"]
    for key, rows in one.items():
        for part in ("mean", "sd"):
            error = np.hypot(rows[f"{part}_error"], other[key][f"{part}_error"])
            z = (np.array(rows[part]) - np.array(other[key][part])) / error
            assert np.abs(z).max() < 4.5, (key, part)
    if "rho" not in name:  # and another model would be noticed
        false = STORED["AV, J = 10, rho = 2"]["posterior"]["theta"]
        z = (np.array(one["theta"]["mean"]) - np.array(false["mean"])) / np.hypot(one["theta"]["mean_error"], false["mean_error"])
        assert np.abs(z).max() > 10


def test_the_references_have_mixed_and_are_of_all_that_is_fitted() -> None:
    for name, run in STORED.items():
        assert run["rhat"] < 1.03, name
        assert vertical.references()[name].items() >= run["posterior"].items()
    wanted = {cell.reference for cell in vertical_logistic.cells(False)} | set(vertical_poisson.RHOS)
    assert wanted == {name for name in STORED if "another way" not in name}


def test_what_rho_leaves_of_the_counts() -> None:
    """With counts of some hundreds, rho = 1 leaves a thousandth of a row's information (vertical.md, section 9.2)."""
    assert vertical_poisson.information("areas", 1.0) == pytest.approx(1 / 439.1 / (1 / 439.1 + 2), rel=1e-3)
    assert vertical_poisson.information("areas", 0.02) > 0.7


def test_a_fit_of_the_areas_has_the_references_shapes() -> None:
    found = vertical_poisson.run_cell(vertical_poisson.Cell("areas", 1.0), 5)
    exact = vertical.references()["areas"]
    for name in ("mu", "sigma", "beta"):
        assert np.shape(found[name]["mean"]) == np.shape(exact[name]["mean"])
    line = vertical_logistic.run_cell(vertical_logistic.Cell("PL", 10, 0.5, "mean-field"), 6)
    assert (len(line["mean"]), len(line["elbo"])) == (20, 6)
    assert np.isfinite(line["elbo"]).all()
