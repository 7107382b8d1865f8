"""A client whose response is one of ordered levels, with effects of its own and of groups: against integrals that are written
down; priors of thresholds and blocks, and thresholds on the data's scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, ndtr

from fedkern.kernels.families import FAMILIES
from fedkern.models import levels
from fedkern.models.encoding import Column, Encoding
from fedkern.models.mixed import Layout, Prior, Rows, conditional
from oracles.differences import four_point

LEVELS = ("none", "mild", "severe", "fatal")
SHARES = np.array([0.4, 0.3, 0.2, 0.1])


def layout(link: str = "logit", **effects: tuple[str, ...]) -> Layout:
    own = levels.prior_of_thresholds(LEVELS, SHARES, link, levels.level_of(SHARES, link), 5.0)
    return Layout(("age", "dose"), "ordinal-probit" if link == "probit" else "ordinal", own=own, **effects)


def data(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.standard_normal((n, 2)), rng.integers(0, 4, n).astype(float)


def log_rows(link: str, X: np.ndarray, y: np.ndarray, xi: np.ndarray, shift: np.ndarray | float) -> np.ndarray:
    """(n,) by differences of the distribution function; `shift` of the predictor."""
    cuts = np.concatenate([[-np.inf], xi[-3] + np.concatenate([[0.0], np.cumsum(np.exp(xi[-2:]))]), [np.inf]])
    eta, k = X @ xi[:2] + shift, y.astype(int)
    F = ndtr if link == "probit" else lambda x: 1 / (1 + np.exp(-x))
    with np.errstate(divide="ignore"):  # far out, where normal tails have no digits left
        return np.asarray(np.log(F(cuts[k + 1] - eta) - F(cuts[k] - eta)))


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_an_effect_of_the_client_raises_the_predictor_of_all_its_rows(link: str) -> None:
    """As a sum over a fine grid; a coefficient of age differs between clients, too."""
    X, y = data()
    rows = Rows(layout(link, client=("intercept", "age")), X, y, np.array([0, len(y)]))
    xi = np.array([0.4, -0.3, np.log(0.7), -0.4, np.log(0.5), -0.5, 0.1, -0.2])
    u, v = (one.ravel()[:, np.newaxis] for one in np.meshgrid(*[np.arange(-6.0, 6.0, 0.1)] * 2))
    log_w = np.log(0.01 / (2 * np.pi)) - 0.5 * (u**2 + v**2)[:, 0]
    terms = log_w + log_rows(link, X, y, xi, 0.7 * u + X[:, 0] * (-0.4 * u + 0.5 * v)).sum(axis=1)
    assert rows.values(xi[np.newaxis], 15)[0] == pytest.approx(logsumexp(terms), abs=2e-5)
    value, gradient, curved = (one[0] for one in rows.curvature(xi[np.newaxis], 15))
    assert value == pytest.approx(logsumexp(terms), abs=2e-5)
    np.testing.assert_allclose(gradient, four_point(lambda x: float(rows.values(x[np.newaxis], 15)[0]), xi), atol=2e-4)
    if link == "logit":  # of the other the kernels are what differs
        h = 1e-3
        steps = np.concatenate([xi + k * h * np.eye(8) for k in (-2, -1, 1, 2)])
        two_down, down, up, two_up = rows.curvature(steps, 15)[1].reshape(4, 8, 8)
        np.testing.assert_allclose(curved, -(two_down - 8 * down + 8 * up - two_up) / (12 * h), atol=5e-3)


def test_a_client_s_draws_are_completed_on_the_scale_of_the_predictor() -> None:
    """Its own effect, once it is known, is in the first threshold, with the other sign."""
    X, y = data()
    rows = Rows(layout(client=("intercept",)), X, y, np.array([0, len(y)]))
    xi = np.array([[0.4, -0.3, np.log(0.7), -0.5, 0.1, -0.2]])
    inner = rows.shifted(xi, np.array([[[1.5]]]))[0]
    np.testing.assert_allclose(inner, [[0.4, -0.3, -0.5 - 0.7 * 1.5, 0.1, -0.2]])
    density = conditional.density(rows, conditional.predictor(rows, inner), inner)[0]
    np.testing.assert_allclose(density, log_rows("logit", X, y, xi[0], 0.7 * 1.5), rtol=1e-12)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_groups_of_a_client_are_found_where_their_integrals_say(link: str) -> None:
    X, y = data()
    starts = np.array([0, 5, 17, 40])
    rows = Rows(layout(link, group=("intercept", "dose")), X, y, starts)
    xi = np.array([[0.4, -0.3, np.log(0.7), 0.2, np.log(0.5), -0.5, 0.1, -0.2]])
    located = conditional.Located.of(rows, xi)
    assert located.integrals(15).sum() == pytest.approx(rows.values(xi, 15)[0], abs=1e-6)


def test_priors_of_thresholds_are_those_that_are_said() -> None:
    of = layout(client=("intercept",))
    prior = Prior.usual(of, prior_sd=2.5, intercept_sd=5.0)
    rng = np.random.default_rng(0)
    xi = rng.standard_normal((5, of.size))
    normal = lambda x, mean, sd: -0.5 * ((x - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))  # noqa: E731
    wanted = normal(xi[:, :2], 0, 2.5).sum(axis=1) + stats.t.logpdf(np.exp(xi[:, 2]), 3, 0, 2.5) + np.log(2) + xi[:, 2]
    at_shares = np.log(np.cumsum(SHARES)[:-1] / (1 - np.cumsum(SHARES)[:-1]))
    wanted += normal(levels.thresholds(xi, 4).mean(axis=1), at_shares.mean(), 5) + normal(xi[:, 4:], 0, 1.5).sum(axis=1)
    np.testing.assert_allclose(prior.values(xi), wanted, rtol=1e-12)
    value, gradient, hessian = prior.curvature(xi[0])
    assert value == pytest.approx(wanted[0], rel=1e-12)
    steps = 1e-5 * np.eye(of.size)
    np.testing.assert_allclose(gradient, (prior.values(xi[0] + steps) - prior.values(xi[0] - steps)) / 2e-5, atol=1e-7)
    slopes = np.array([prior.curvature(xi[0] + step)[1] - prior.curvature(xi[0] - step)[1] for step in steps]) / 2e-5
    np.testing.assert_allclose(hessian, -slopes, atol=1e-7)
    np.testing.assert_allclose(levels.thresholds(of.start[np.newaxis], 4)[0], at_shares)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_priors_are_the_same_whichever_end_levels_are_counted_from(link: str) -> None:
    names, shares = LEVELS[::-1], SHARES[::-1]
    own = levels.prior_of_thresholds(names, shares, link, levels.level_of(shares, link), 5.0)
    here, there = layout(link), replace(layout(link), own=own)
    xi = np.random.default_rng(0).standard_normal((5, here.size))
    mirrored = np.column_stack([-xi[:, :2], -levels.thresholds(xi, 4)[:, -1], xi[:, :2:-1]])
    np.testing.assert_allclose(levels.thresholds(mirrored, 4), -levels.thresholds(xi, 4)[:, ::-1])
    np.testing.assert_allclose(Prior.usual(here).values(xi), Prior.usual(there).values(mirrored), rtol=1e-12)


def test_the_prior_of_blocks_has_its_intercepts_at_the_shares() -> None:
    names = ("intercept", "age")
    of = Layout(levels.block_names(LEVELS, names), "multinomial")
    prior = levels.prior_of_blocks(of, names, SHARES, None, 2.5, 5.0)
    np.testing.assert_allclose(prior.mean, [np.log(0.75), 0, np.log(0.5), 0, np.log(0.25), 0])
    np.testing.assert_allclose(prior.sd, [5, 2.5] * 3)
    assert of.coefficients[:3] == ("mild:intercept", "mild:age", "severe:intercept")


def test_thresholds_of_standardised_columns_say_the_same_as_those_on_the_data_s_scale() -> None:
    columns = (
        Column("age", "numeric", None, 60.0, 12.0),
        Column("sex", "categorical", ("f", "m")),
        Column("dose", "numeric", None, -2.0, 0.5),
    )
    encoding = Encoding(columns, "state", "ordinal", labels=LEVELS, intercept=False)
    raw = np.array([71.0, 1.0, 0.0, -1.7])
    standard = np.array([(71 - 60) / 12, 1.0, 0.0, (-1.7 + 2) / 0.5])
    beta = np.array([0.5, -0.2, 0.1, 0.7])
    cuts = np.array([-1.0, 0.3, 2.0])
    shifted, theta = cuts + beta @ levels.centres(encoding), encoding.affine() @ beta
    np.testing.assert_allclose(shifted - raw @ theta, cuts - standard @ beta, rtol=1e-12)


def test_two_levels_have_one_threshold_that_is_minus_the_intercept() -> None:
    own = levels.prior_of_thresholds(LEVELS[:2], np.array([0.3, 0.7]), "logit", 0.0, 5.0)
    of = Layout(("x",), "ordinal", own=own)
    X, y = np.random.default_rng(1).standard_normal((30, 1)), np.random.default_rng(2).integers(0, 2, 30).astype(float)
    points = np.array([[0.3, -0.6], [0.1, 0.9]])
    value = Rows(of, X, y, np.array([0, 30])).values(points, 1)
    logistic = FAMILIES["bernoulli"].value(y, points[:, :1] @ X.T - points[:, 1:], 1.0, None).sum(axis=1)
    np.testing.assert_allclose(value, logistic, rtol=1e-12)
    assert of.scale(points).shape == (1, 2)
