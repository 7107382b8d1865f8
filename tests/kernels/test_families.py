"""Every record of a likelihood family says one thing: its slope is its value's, its bounds hold, its mean is its density's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtri, pdtr

from fedkern.kernels import families, glm
from fedkern.kernels._cuda import glm as on_device
from fedkern.kernels.families import CODES, FAMILIES, RECORDS, Family
from oracles.differences import four_point
from support import emulated

SCALE = 0.7
SCALES: dict[str, Any] = {  # of what its number has a range, or several
    "student": np.array([0.7, 6.0]),
    "gamma": 2.5,
    "beta": 6.0,
    "zero-inflated-poisson": 0.3,
    "zero-inflated-negative-binomial": np.array([0.7, 0.3]),
    "hurdle-poisson": 0.3,
    "hurdle-negative-binomial": np.array([3.0, 0.3]),
    "beta-binomial": 6.0,
    "lognormal": 0.4,
    "inverse-gaussian": 6.0,
}
ETA = np.linspace(-6, 6, 49)
TRIALS = 5.0


def responses(record: Family) -> tuple[np.ndarray, float]:
    """All values with a weight that matters, and the step of their sum."""
    if record.name == "student":  # with tails
        return np.linspace(-700, 700, 1_400_001), 1e-3
    if record.domain is families.POSITIVE:
        return (np.arange(400_000) + 0.5) * 2e-4, 2e-4
    if record.domain is families.SHARES:
        return (np.arange(200_000) + 0.5) / 200_000, 1 / 200_000
    if not (record.binary or record.counted):
        return np.linspace(-14, 14, 8001), 28 / 8000
    if record.trials:
        return np.arange(TRIALS + 1), 1.0
    return np.arange(2.0) if record.binary else np.arange(4000.0), 1.0


def scale_of(record: Family) -> Any:
    return SCALES.get(record.name, SCALE)


def of(record: Family, function: str, y: np.ndarray, eta: np.ndarray) -> np.ndarray:
    trials = np.full(np.broadcast(y, eta).shape, TRIALS) if record.trials else None
    return np.asarray(getattr(record, function)(y, eta, scale_of(record), trials))


def expected(record: Family, eta: float, values: np.ndarray) -> float:
    """E over y of the values at all responses."""
    y, step = responses(record)
    return float(np.exp(of(record, "value", y, np.full(len(y), eta))) @ values * step)


OF_NUMBERS = [record for record in RECORDS if not record.leveled]  # levels: test_ordered.py
each = pytest.mark.parametrize("record", OF_NUMBERS, ids=lambda record: record.name)
bounded = pytest.mark.parametrize("record", [r for r in RECORDS if r.curvature is not None], ids=lambda record: record.name)
vertical = pytest.mark.parametrize("record", [r for r in RECORDS if "vertical" in r.methods], ids=lambda record: record.name)


def second(record: Family, y: float, eta: np.ndarray) -> np.ndarray:
    """-l'' by differences of the slope."""
    h = 1e-5
    up, down = (of(record, "slope", np.full(len(eta), y), eta + sign * h) for sign in (1, -1))
    return (down - up) / (2 * h)


def some(record: Family) -> list[float]:
    if record.domain in (families.POSITIVE, families.SHARES):
        return [0.03, 0.5, 0.9]
    return [0.0, 1.0] if record.binary else [0.0, 1.0, 5.0] if record.counted else [-3.0, 0.2, 4.0]


@each
def test_the_slope_is_that_of_the_value(record: Family) -> None:
    for y in some(record):
        for eta in (-4.0, -0.3, 0.9, 3.0):
            slope = of(record, "slope", np.array([y]), np.array([eta]))[0]
            number = four_point(lambda x, y=y: float(of(record, "value", np.array([y]), x)[0]), np.array([eta]))[0]
            assert slope == pytest.approx(number, rel=5e-6, abs=1e-8)


@each
def test_the_density_sums_to_one_and_has_the_mean_that_is_said(record: Family) -> None:
    y, _ = responses(record)
    near = 1e-8 if record.linear or record.counted or record.binary else 1e-4  # sums stand for integrals
    for eta in (-1.5, 0.0, 1.2):
        assert expected(record, eta, np.ones(len(y))) == pytest.approx(1, rel=near)
        per_trial = TRIALS if record.trials else 1.0
        mean = float(record.expected(record.mean(np.array(eta)), scale_of(record)))
        assert expected(record, eta, y) / per_trial == pytest.approx(mean, rel=near, abs=near)


@each
def test_the_distribution_function_and_the_variance_are_the_density_s(record: Family) -> None:
    (y, step), scale = responses(record), scale_of(record)
    for eta in (-1.5, 0.0, 1.2):
        mean, trials = np.full(len(y), float(record.mean(np.array(eta)))), TRIALS if record.trials else None
        below = np.cumsum(np.exp(of(record, "value", y, np.full(len(y), eta)))) * step
        np.testing.assert_allclose(record.cdf(y, mean, scale, trials), below, atol=1e-9 if step == 1 else 1e-2)
        about = (y - record.expected(mean, scale) * (trials or 1)) ** 2
        near = 1e-7 if record.linear or record.counted or record.binary else 1e-4
        assert record.spread(mean, scale, trials)[0] == pytest.approx(expected(record, eta, about), rel=near)


@each
def test_draws_have_the_distribution(record: Family) -> None:
    """By Kolmogorov's distance, which is beyond the bound once in 100,000 times; draws about another mean are farther off."""
    random = np.random.default_rng(3)
    source = SimpleNamespace(uniform=random.random, normal=random.standard_normal)
    n, trials, most = 20_000, np.full(20_000, TRIALS) if record.trials else None, 2.47 / np.sqrt(20_000)
    for eta in (-1.5, 0.0, 1.2):
        mean = np.full(n, float(record.mean(np.array(eta))))
        y = np.sort(record.draw(source, mean, scale_of(record), trials))
        assert record.domain.has(y).all()
        share = np.searchsorted(y, y, side="right") / n
        assert abs(record.cdf(y, mean, scale_of(record), trials) - share).max() < most
        assert abs(record.cdf(y, 0.9 * mean - 0.05, scale_of(record), trials) - share).max() > most


@pytest.mark.parametrize("typical", [0.0, 1e-300, 1e-3, 0.3, 2.0, 20.0, 1e3, 1e7])
def test_counts_are_the_smallest_whose_distribution_function_reaches_u(typical: float) -> None:
    random = np.random.default_rng(3)
    u = np.concatenate([[0.0, 1e-300, 1e-17, 1 - 2**-53], random.random(2000)])
    mean = typical * random.lognormal(size=len(u))
    y = FAMILIES["poisson"].draw(SimpleNamespace(uniform=lambda n: u), mean, 1.0, None)
    assert (pdtr(y, mean) >= u).all()
    assert ((y == 0) | (pdtr(np.maximum(y - 1, 0), mean) < u)).all()


def test_large_counts_are_drawn_by_the_same_quantiles() -> None:
    """Where both ways can be had they agree; beyond, counts have the moments of a Poisson distribution."""
    u = np.random.default_rng(3).random(2000)
    source = SimpleNamespace(uniform=lambda n: u[:n])
    for mean in (1e4, 1e6, families.MANY):  # whose draws are still looked for
        np.testing.assert_array_equal(
            families._expanded(u, np.full(2000, mean)), FAMILIES["poisson"].draw(source, np.full(2000, mean), 1.0, None)
        )
    for mean in (1e9, 1e11, 1e15):
        z = (FAMILIES["poisson"].draw(source, np.full(2000, mean), 1.0, None) - mean) / np.sqrt(mean)
        np.testing.assert_allclose(z, ndtri(u), atol=2 / np.sqrt(mean) * (1 + ndtri(u) ** 2).max())


@bounded
def test_the_curvature_of_a_row_is_below_its_bound_and_comes_near_it(record: Family) -> None:
    assert record.curvature is not None
    eta = np.linspace(-12, 12, 4801)
    for y in some(record):
        most = second(record, y, eta).max()
        assert most <= float(record.curvature(y, SCALE)) * (1 + 1e-6)
        assert most > float(record.curvature(y, SCALE)) * (1 - 1e-3)


@vertical
def test_without_a_bound_there_is_one_for_moves_by_one(record: Family) -> None:
    assert (record.curvature is None) == (record.local_curvature is not None)
    if record.local_curvature is not None:
        for move in (-1.0, 0.0, 1.0):
            assert (second(record, 3.0, ETA + move) <= record.local_curvature(ETA, SCALE) * (1 + 1e-6)).all()


@vertical
def test_a_rows_variance_on_the_link_scale_is_what_a_row_of_that_mean_tells(record: Family) -> None:
    assert record.variance is not None
    assert record.variance_words
    assert record.slope_words
    y, _ = responses(record)
    for eta in (0.0, 0.8):
        told = expected(record, eta, np.array([second(record, value, np.array([eta]))[0] for value in y]))
        mean = np.full(3, float(record.mean(np.array(eta))))
        wanted = record.variance(mean, SCALE)
        assert 1 / told >= record.least_variance * (1 - 1e-6)
        assert wanted == pytest.approx(1 / told, rel=1e-4) if not record.least_variance else wanted == record.least_variance


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("poisson", {"predictive": None}),
        ("bernoulli", {"code": None}),
        ("poisson", {"variance": None}),
        ("gaussian", {"variance_words": ""}),
        ("gaussian", {"slope_words": ""}),
        ("poisson", {"local_curvature": None}),
        ("bernoulli", {"curvature": None}),
    ],
)
def test_a_record_without_what_its_methods_need_is_refused(name: str, without: dict[str, str | None]) -> None:
    field = next(iter(without))
    with pytest.raises(ValueError, match=f'family "{name}": .* takes it, so its record must have .*`{field}`'):
        replace(FAMILIES[name], **without)


@each
def test_information_is_above_zero_and_right_where_eta_fits(record: Family) -> None:
    y = np.array(some(record))
    assert (of(record, "information", y, np.zeros(len(y))) > 0).all()
    full = 40.0 if record.link == "log" else 0.5
    eta = np.array([np.log(full) if record.link == "log" else 0.0])
    at = full if record.link == "log" else float(record.mean(eta)[0]) * (TRIALS if record.trials else 1)
    assert of(record, "information", np.array([at]), eta)[0] == pytest.approx(second(record, at, eta)[0], rel=0.02)


def test_codes_are_the_places_of_the_kernels_branches() -> None:
    assert list(CODES.values()) == list(range(len(CODES)))


@pytest.fixture(scope="module", params=["reference", "cpp", "numba", "cuda"])
def backend(request: pytest.FixtureRequest) -> Any:
    """Each, the device emulated."""
    on_card = request.param == "cuda"
    with emulated.instead_of_a_card(emulated.Emulator(emulated.built(emulated.FOLDER))) if on_card else nullcontext():
        yield request.param


@pytest.mark.parametrize("name", CODES)
def test_every_code_gives_its_family_s_value_slope_mean_and_domain(name: str, backend: str) -> None:
    record, scale = FAMILIES[name], 1.0 if FAMILIES[name].dispersion is None else SCALE
    common: dict[str, Any] = {"family": name, "scale": scale, "backend": backend}
    one, narrow = np.ones((1, 1)), np.array([-40.0])
    for y, eta in ((np.array([y]), np.array([eta])) for y in some(record) for eta in (-4.0, 0.3, 3.0)):
        value, slope = (f(y, eta, scale, None) for f in (record.value, record.slope))
        about: Callable[[np.ndarray], Any] = lambda number: pytest.approx(number, rel=1e-9, abs=1e-9)  # noqa: E731
        found = glm.loglik_grad(one, y, eta, **common)
        assert (float(found[0]), found[1]) == (about(value[0]), about(slope))
        found = glm.expectations(one, y, eta, narrow, **common)
        assert (found[0], found[1]) == (about(value), about(slope))
        assert glm.predict(one, eta, narrow, **common) == about(record.mean(eta))
    odd = np.array([-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 1e300, np.inf, np.nan])
    with np.errstate(invalid="ignore"):
        slopes = glm.expectations(np.zeros((len(odd), 1)), odd, np.zeros(1), narrow, **common)[1]
        np.testing.assert_array_equal(np.isfinite(slopes), record.domain.has(odd))


@pytest.mark.parametrize("code", [-1, len(CODES)])
def test_a_number_that_no_family_has_is_refused(code: int, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, mu, log_sigma, out = np.ones((1, 1)), np.ones(1), np.ones(1), np.zeros(1), np.empty(1)
    with pytest.raises(ValueError, match="family: no likelihood"):
        glm.PREDICT.implementation(backend)(X, mu, log_sigma, None, code, 0, out, 1)
    with pytest.raises(ValueError, match="family: no likelihood"):
        glm.LOGLIK_GRAD.implementation(backend)(X, y, mu, None, None, code, 1.0, out, 1)
    if backend == "cuda":  # and if a host did not ask, a device would compute nothing
        monkeypatch.setattr(on_device, "_known", lambda family: family)
        glm.PREDICT.implementation(backend)(X, mu, log_sigma, None, code, 0, out, 1)
        assert np.isnan(out).all()
        assert np.isnan(glm.LOGLIK_GRAD.implementation(backend)(X, y, mu, None, None, code, 1.0, out, 1))
        assert np.isnan(out).all()


def test_each_methods_default_stands_first() -> None:
    for method, first in (("pvi", "bernoulli"), ("sparse", "gaussian"), ("vertical", "bernoulli"), ("sigma", "poisson")):
        taken = families.taken_by(method, first)
        assert taken[0] == first
        assert set(taken) == {record.name for record in RECORDS if method in record.methods}


def test_a_bound_for_every_response_is_told_from_one_of_a_row() -> None:
    assert {record.name for record in RECORDS if record.bounded} == {"bernoulli", "gaussian"}


def test_logistic_means_are_probabilities() -> None:
    for record in OF_NUMBERS:
        if record.link == "logit":
            np.testing.assert_array_equal(record.mean(ETA), expit(ETA))
