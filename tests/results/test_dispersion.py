"""Clients' Pearson sums, and the ratio that they make: whether counts vary more than their model says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.exchanges.sums import PearsonSums
from fedkern.models.glm import Rows, pearson_sums
from fedkern.results import dispersion


def test_limits_let_true_poisson_jobs_pass() -> None:
    """Of 400 with 50 to 200 events each; fixed limits of .7 and 1.3 would refuse many of them."""
    random, off, outside = np.random.default_rng(0), 0, 0
    for _ in range(400):
        n = 2000
        mean = np.exp(random.normal(size=n) * 0.7)
        mean *= random.uniform(50, 200) / mean.sum()
        rows = Rows(np.log(mean)[:, None], random.poisson(mean).astype(np.float64))
        found = dispersion.pool("poisson", 1.0, [PearsonSums(0, *pearson_sums(rows, np.ones(1), "poisson"))], 0.0)
        assert found is not None
        off += found.off
        outside += not 0.7 < found.ratio < 1.3
    assert off <= 8
    assert outside > 4 * off


def test_sums_of_clients_are_those_of_all_rows() -> None:
    random = np.random.default_rng(5)
    X, theta = random.normal(size=(90, 3)), np.array([0.3, -0.2, 0.1])
    offset, weights = random.normal(size=90) * 0.3, random.uniform(0.001, 0.004, size=90)
    weights[::7] = 0.0
    mu = np.exp(X @ theta + offset)
    y, r, used = random.poisson(mu) * 1.0, 2.5, 3.0
    told: list[Any] = []
    for part in (slice(0, 20), slice(20, 90)):
        sums = pearson_sums(Rows(X[part], y[part], offset[part], weights[part]), theta, "negative-binomial", r)
        told.append(PearsonSums(0, *sums).leaving())
    found = dispersion.pool("negative-binomial", r, told, used)
    V = mu + mu**2 / r
    left = weights.sum() * (1 - used / (weights > 0).sum())
    assert found is not None
    misfit = (weights * (y - mu) ** 2 / V).sum()
    assert found.ratio == pytest.approx(misfit / left, rel=1e-4)
    assert found.error == pytest.approx(np.sqrt((weights**2 * (2 + 6 / r + 1 / V)).sum()) / left, rel=1e-4)
    assert found.excess == pytest.approx(1 / r + (misfit - left) / (weights * mu**2 / V).sum(), abs=1e-3)
    assert found.events == y[weights > 0].sum()


@pytest.mark.parametrize(("family", "r"), [("poisson", 1e9), ("negative-binomial", 0.7)])
def test_the_error_is_that_of_the_ratio(family: str, r: float) -> None:
    random, ratios, errors = np.random.default_rng(1), list[float](), list[float]()
    for _ in range(300):
        mean = np.exp(random.normal(size=200) * 0.5)
        y = random.poisson(mean * random.gamma(r, 1 / r, 200)).astype(np.float64)
        sums = pearson_sums(Rows(np.log(mean)[:, None], y), np.ones(1), family, r)
        found = dispersion.pool(family, r, [PearsonSums(0, *sums)], 0.0)
        assert found is not None
        ratios.append(found.ratio)
        errors.append(found.error)
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)
    assert np.std(ratios) == pytest.approx(np.mean(errors), rel=0.15)


HONEST = PearsonSums(0, 9, 1.0, 12.0, 8.5, 20.0, 11.0)
NOBODY = PearsonSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_client_with_few_rows_answers_with_zeros() -> None:
    for few in (replace(HONEST, rows=n) for n in (0, 1, 4)):
        assert few.leaving() == NOBODY
        large = replace(few, rows=20, misfit=47492843029.327, noise=1234.5678, slope=1e-5)
        assert (large.leaving().misfit, large.leaving().noise, large.leaving().slope) == (4.74928e10, 1234.57, 0.0)
    assert dispersion.pool("poisson", 1.0, [NOBODY, NOBODY], 1.0) is None


def test_large_sums_make_no_number_that_is_none() -> None:
    large = replace(HONEST, rows=10**15, weight=1e100, events=1e100, misfit=1e100, noise=1e100, slope=1e100)
    for told in ([large] * 3, [HONEST, replace(large, weight=1e-300)], [replace(HONEST, misfit=0.0, noise=0.0, slope=0.0)]):
        found = dispersion.pool("poisson", 1.0, told, 3.0)
        assert found is None or np.isfinite([found.ratio, found.error, found.excess]).all()


def test_few_events_are_no_proof_and_a_note_says_so() -> None:
    few = dispersion.pool("poisson", 1.0, [replace(HONEST, events=20.0, misfit=40.0)], 1.0)
    assert few is not None
    assert (few.few, few.off) == (True, False)
    (note,) = dispersion.notes(few)
    assert note.startswith("20 events are too few (below 50) to tell whether counts vary more")


def test_a_ratio_that_is_off_decides_and_names_what_mends_it() -> None:
    told = replace(HONEST, events=2e5, misfit=3 * HONEST.misfit)
    for family, remedy in (("poisson", "negative-binomial"), ("negative-binomial", "scale-of-counts")):
        found = dispersion.pool(family, 1.0, [told], 1.0)
        assert found is not None
        (check,) = found.checks
        assert (check.found.id, check.word, check.found.values["remedies"]) == ("counts-vary-otherwise", False, [remedy])
    right = dispersion.pool("poisson", 1.0, [replace(HONEST, events=2e5)], 1.0)
    assert right is not None
    assert [(check.found.id, check.word) for check in right.checks] == [("counts-vary-so-much", True)]
