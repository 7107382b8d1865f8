"""Responses that are not evenly in the tenths of their predictive distributions get a note; those of a right model do not."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.exchanges.sums import Replicated
from fedkern.arrays import Array
from fedkern.kernels.families import FAMILIES
from fedkern.methods.likelihood import checks
from fedkern.models.mixed import Layout, Prior, Rows, predictive
from fedkern.models.mixed.rows import find_mode

FAST: dict[str, Any] = {"algorithm": {"points": 1024, "effective": 300.0}}
FAMILIES_OF_NUMBERS = ("gaussian", "student", "poisson", "negative-binomial", "gamma", "beta", "zero-inflated-poisson")


class Of:
    """The properties of a model that the note depends on."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.family, self.coarse = layout, layout.family, False


def drawn(layout: Layout, rng: np.random.Generator, xi: Array, n: int) -> Rows:
    """A client's rows, drawn from the model at xi."""
    X = np.column_stack([np.ones(n), rng.normal(size=(n, layout.p - 1))])
    record = FAMILIES[layout.family]
    scale = layout.scale(xi[np.newaxis])[..., 0]
    return Rows(layout, X, record.draw(Source(rng), record.mean(X @ xi[: layout.p]), scale, None), np.array([0, n]))


class Source:
    """A generator as the families' records take it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def uniform(self, n: int) -> Array:
        return self.rng.uniform(size=n)

    def normal(self, n: int) -> Array:
        return self.rng.normal(size=n)


def layout_of(family: str, p: int) -> Layout:
    return Layout(("intercept", *(f"x{j}" for j in range(1, p))), family)


def noted(clients: list[Rows], rng: np.random.Generator, start: Array) -> list[str]:
    """What is said of clients' rows, with draws of the normal distribution about the posterior's mode."""
    layout = clients[0].layout
    X, y = np.concatenate([one.X for one in clients]), np.concatenate([one.y for one in clients])
    pooled = Rows(layout, X, y, np.array([0, len(y)]))
    found = find_mode(pooled, Prior.usual(layout, prior_sd=2.5, intercept_sd=5.0), start, layout.nodes)
    assert found is not None
    draws = rng.multivariate_normal(*found, size=200)
    told = []
    for k, one in enumerate(clients):
        reply = Replicated.made(*predictive.sums(one, draws, int(rng.integers(2**60)) + k).arrays, of_rows=False).leaving()
        told.append(predictive.Sums(reply.observed, reply.replicated, reply.tenths, reply.misfits))
    return checks.uneven(reduce(add, told), Of(layout), len(clients))  # type: ignore[arg-type]  # of what it asks


def of_a_right_model(family: str, seed: int, m: int, n: int, p: int) -> list[str]:
    rng, layout = np.random.default_rng(seed), layout_of(family, p)
    xi = np.concatenate([[0.3], rng.normal(0, 0.3, p - 1), rng.normal(0.3, 0.2, layout.size - p)])
    return noted([drawn(layout, rng, xi, n) for _ in range(m)], rng, xi)


@pytest.mark.parametrize(("m", "n", "p"), [(3, 20, 2), (3, 60, 4), (10, 20, 10), (2, 400, 20)])
@pytest.mark.parametrize("family", FAMILIES_OF_NUMBERS)
def test_nothing_is_said_of_a_right_model(family: str, m: int, n: int, p: int) -> None:
    assert [said for seed in range(5) for said in of_a_right_model(family, seed, m, n, p)] == []


def test_a_linear_model_of_two_heaps_is_said() -> None:
    """Sigma adapts to both, so that the spread fits and the shape does not."""
    rng, layout = np.random.default_rng(4), layout_of("gaussian", 3)
    rows = [drawn(layout, rng, np.array([0.0, 0.2, 0.1, 0.0]), 100) for _ in range(3)]
    rows[1].y[:] += 12
    (said,) = noted(rows, rng, np.zeros(layout.size))
    assert "of the rows are in the tenth from" in said
    assert "sigma is that of all errors together" in said


def scored(step: float) -> str:
    """What a linear job says of tenths, of a score of 1 to 5, or of what is between its numbers."""
    rng, clients = np.random.default_rng(4), {}
    for name in "abc":
        x = rng.normal(size=200)
        score = (3 + 0.05 * x + 0.8 * rng.normal(size=200)).clip(0.6, 5.4).round()
        clients[name] = pd.DataFrame({"x": x.round(3), "y": score + step * (np.arange(200) % 7 == 0)})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": "gaussian"}} | FAST
    notes = fedkern.run(job, data=clients).summary["notes"]
    return " ".join(note for note in notes if "in the tenth from" in note)


def test_nothing_is_said_of_scores() -> None:
    """Numbers of 1 to 5 are uneven in tenths, as any few values are; where they are no whole numbers it is said."""
    assert scored(0.0) == ""
    assert "of the rows are in the tenth from" in scored(0.01)
