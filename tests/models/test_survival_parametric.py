"""What a client of a Weibull, exponential or piecewise model computes of its rows, against sums and brute quadrature."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import logistic, norm, weibull_min

from fedkern.kernels.families import ACCELERATED, LIFETIMES
from fedkern.models import survival_parametric
from fedkern.models.mixed import Layout, conditional, effects
from fedkern.models.survival_parametric import Baseline, Lifetimes, shapes_of

FAMILIES = LIFETIMES
GROUPED = [family for family in FAMILIES if family not in ACCELERATED]  # rows of others that are seen late have no effects
LAWS = {"lognormal-aft": norm, "loglogistic-aft": logistic}
CUTS = (0.4, 1.0, 2.5)


def layout(family: str, group: tuple[str, ...] = (), client: tuple[str, ...] = ()) -> Layout:
    own = shapes_of(family, CUTS if family == "piecewise" else ())
    return Layout(("intercept", "x"), family, group, client, own)


def table(n: int = 24, groups: int = 6, seed: int = 0, *, entry: bool = True) -> dict[str, Any]:
    """Events, rows that are censored on the right, and events in intervals, one of which begins at 0 and one ends at a cut."""
    rng = np.random.default_rng(seed)
    time, kind = np.round(rng.exponential(size=n), 3) + 0.01, np.arange(n) % 3
    upper = np.where(kind == 0, time, np.where(kind == 1, np.inf, time + rng.random(n)))
    time[2], time[0], upper[0], upper[5] = 0.0, CUTS[0], CUTS[0], time[5] + 1e-4
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    starts = np.linspace(0, n, groups + 1).astype(np.int64)
    late = np.where(rng.random(n) < 0.6, 0.6 * time, -1.0) if entry else None
    return {"X": X, "time": time, "upper": upper, "starts": starts, "entry": late, "offset": 0.2 * rng.standard_normal(n)}


def lived(one: Layout, given: dict[str, Any], **more: Any) -> Lifetimes:
    return Lifetimes.of(one, **given, cuts=np.array(CUTS), **more)


def points(one: Layout, count: int = 3, seed: int = 1) -> np.ndarray:
    return 0.4 * np.random.default_rng(seed).standard_normal((count, one.size))


def hazard(family: str, own: np.ndarray, t: float) -> float:
    """By its definition."""
    if family == "weibull":
        k = np.exp(own[0])
        return k * t ** (k - 1)
    return 1.0 if family == "exponential" else float(np.exp(np.append(0.0, own)[np.searchsorted(CUTS, t)]))


def cumulative(family: str, own: np.ndarray, t: float) -> float:
    """By integrating the hazard, piece by piece."""
    if family == "weibull":
        return float(t ** np.exp(own[0]))
    ends = [0.0, *(c for c in CUTS if c < t), t] if t > 0 else [0.0, 0.0]
    return sum((b - a) * hazard(family, own, (a + b) / 2) for a, b in pairwise(ends))


def gone(family: str, own: np.ndarray, t: float, eta: float) -> float:
    """The cumulative hazard of a row."""
    if family in LAWS:
        with np.errstate(divide="ignore"):
            return float(-LAWS[family].logsf((np.log(t) - eta) / np.exp(own[0])))
    return float(cumulative(family, own, t) * np.exp(eta))


def of_row(family: str, own: np.ndarray, y: float, upper: float, eta: float) -> float:
    """Its log-likelihood, without entry."""
    H = gone(family, own, y, eta)
    if np.isinf(upper):
        return -H
    if upper == y and family in LAWS:
        return float(LAWS[family].logpdf((np.log(y) - eta) / np.exp(own[0])) - own[0] - np.log(y))
    if upper == y:
        return float(np.log(hazard(family, own, y)) + eta - H)
    return float(np.log(-np.expm1(H - gone(family, own, upper, eta))) - H)


def own_of(one: Layout, xi: np.ndarray) -> np.ndarray:
    own = xi[one.shapes_at]
    return own[: len(CUTS)] if one.family == "piecewise" else own


def plain(one: Layout, given: dict[str, Any], xi: np.ndarray, effect: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) log-likelihoods of rows, and of being without event until their entry, with effects that are added to eta."""
    own, eta = own_of(one, xi), given["X"] @ xi[:2] + given["offset"] + effect
    rows = np.array([of_row(one.family, own, y, u, e) for y, u, e in zip(given["time"], given["upper"], eta)])
    entry = np.zeros(len(eta)) if given["entry"] is None else np.maximum(given["entry"], 0.0)
    return rows, np.array([-gone(one.family, own, t, e) for t, e in zip(entry, eta)])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_effects_the_value_is_the_sum_of_rows_given_their_entry(family: str, together: bool) -> None:
    """However they came."""
    one, given = layout(family), table()
    for xi, value in zip(points(one), lived(one, given, together=together).values(points(one), 1)):
        rows, before = plain(one, given, xi)
        assert value == pytest.approx((rows - before).sum(), rel=1e-11)


@pytest.mark.parametrize(("family", "entry"), [*product(GROUPED, [True]), ("weibull", False), *product(LAWS, [False])])
def test_frailty_of_groups_is_a_ratio_of_two_integrals(family: str, entry: bool) -> None:
    one, given = layout(family, ("intercept",)), table(12, 4, entry=entry)
    (xi,) = points(one, 1)
    tau = np.exp(xi[one.group_at][0])
    found = 0.0
    for a, b in zip(given["starts"][:-1], given["starts"][1:]):

        def at(u: float, k: int, a: int = a, b: int = b) -> float:
            return float(np.exp(plain(one, given, xi, tau * u)[k][a:b].sum()) * norm.pdf(u))

        integrals = [quad(at, -9, 9, (k,), epsabs=1e-13, epsrel=1e-11, limit=200)[0] for k in range(2)]
        found += float(np.log(integrals[0] / integrals[1]))
    assert lived(one, given, together=True).values(xi[np.newaxis], 40)[0] == pytest.approx(found, abs=2e-7)
    of_ratios = lived(one, given).values(xi[np.newaxis], 40)[0]  # another number: the control of this test
    assert not entry or abs(of_ratios - found) > 1e-3


@pytest.mark.parametrize("family", GROUPED)
def test_of_rows_that_came_one_by_one_it_is_an_integral_of_ratios(family: str) -> None:
    one, given = layout(family, ("intercept",)), table(12, 4)
    (xi,), found = points(one, 1), 0.0
    tau = np.exp(xi[one.group_at][0])
    for a, b in zip(given["starts"][:-1], given["starts"][1:]):

        def at(u: float, a: int = a, b: int = b) -> float:
            rows, before = plain(one, given, xi, tau * u)
            return float(np.exp((rows - before)[a:b].sum()) * norm.pdf(u))

        found += float(np.log(quad(at, -9, 9, epsabs=1e-13, epsrel=1e-11, limit=200)[0]))
    assert lived(one, given).values(xi[np.newaxis], 40)[0] == pytest.approx(found, abs=2e-7)


@pytest.mark.parametrize("family", GROUPED)
def test_an_effect_of_the_client_around_those_of_its_groups(family: str) -> None:
    """All rows are seen from their entries on: an integral over the client's effect of products of those over the groups'
    effects; of groups that entered together a ratio of two such ones."""
    one, given = layout(family, ("intercept",), ("intercept",)), table(12, 3)
    (xi,) = points(one, 1)
    tau, own = np.exp(xi[one.group_at][0]), np.exp(xi[one.client_at][0])
    z, w = np.polynomial.hermite_e.hermegauss(40)
    log_w = np.log(w / w.sum())
    logs = np.empty((3, 40))
    for k, v in enumerate(z):
        each = np.array([plain(one, given, xi, own * v + tau * u) for u in z])  # (nodes, 2, n)
        each = np.concatenate([each, each[:, :1] - each[:, 1:]], axis=1)
        for part in range(3):
            sums = np.add.reduceat(each[:, part], given["starts"][:-1], axis=1)
            logs[part, k] = logsumexp(sums + log_w[:, np.newaxis], axis=0).sum()
    found = logsumexp(logs + log_w, axis=1)
    assert lived(one, given, together=True).values(xi[np.newaxis], 30)[0] == pytest.approx(found[0] - found[1], abs=2e-5)
    assert lived(one, given).values(xi[np.newaxis], 30)[0] == pytest.approx(found[2], abs=2e-5)


EFFECTS = [((), ()), (("intercept", "x"), ()), (("intercept",), ("intercept",))]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("family", "effects"), [*product(GROUPED, EFFECTS), *product(LAWS, EFFECTS[:1])])
def test_derivatives_are_those_of_the_value(
    family: str, effects: tuple[tuple[str, ...], tuple[str, ...]], together: bool
) -> None:
    one = layout(family, *effects)
    rows, (xi,) = lived(one, table(12, 3), together=together), points(one, 1)
    # Nodes of a client's effect are around a mode that is found to a tenth: values jump by the rule's error.
    nodes, h = (40, 1e-3) if effects[1] else (15, 1e-4)
    value, gradient, curved = (part[0] for part in rows.curvature(xi[np.newaxis], nodes))
    steps = h * np.eye(one.size)
    assert value == pytest.approx(rows.values(xi[np.newaxis], nodes)[0], abs=1e-9)
    slope = (rows.values(xi + steps, nodes) - rows.values(xi - steps, nodes)) / (2 * h)
    np.testing.assert_allclose(gradient, slope, atol=1e-4)
    high, low = rows.curvature(xi + steps, nodes)[1], rows.curvature(xi - steps, nodes)[1]
    np.testing.assert_allclose(curved, (low - high) / (2 * h), atol=1e-3)
    if family == "piecewise":
        assert gradient[-1] == 0
        assert (curved[-1] == 0).all()


@pytest.mark.parametrize("together", [False, True])
def test_clients_add_up_to_the_pooled_rows(together: bool) -> None:
    one, xi = layout("weibull", ("intercept",)), points(layout("weibull", ("intercept",)), 5)
    parts = [table(seed=k) for k in range(3)]
    starts = np.concatenate([parts[0]["starts"], *(24 * k + part["starts"][1:] for k, part in enumerate(parts[1:], start=1))])
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | {"starts": starts}
    each = [lived(one, part, together=together).curvature(xi, 15) for part in parts]
    for found, several in zip(lived(one, whole, together=together).curvature(xi, 15), zip(*each)):
        np.testing.assert_allclose(sum(several), found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_unit_of_time_changes_the_density_of_events_and_nothing_else(family: str) -> None:
    """In days, in a model of years: an exact event has a density 365.25 times as small."""
    one, given = layout(family), table()
    days = {name: 365.25 * given[name] for name in ("time", "upper", "entry")}
    years = lived(one, given)
    own = Lifetimes.of(one, **{**given, **days}, cuts=365.25 * np.array(CUTS), unit=365.25)
    events = int((given["upper"] == given["time"]).sum())
    np.testing.assert_allclose(own.values(points(one), 1), years.values(points(one), 1) - events * np.log(365.25), rtol=1e-11)


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_densities_of_single_rows_and_their_slopes(family: str, entry: bool) -> None:
    one, given = layout(family, ("intercept",) if family in GROUPED or not entry else ()), table(entry=entry)
    rows, xi = lived(one, given).rows, points(one)
    inner = lived(one, given).inner(xi)
    eta = conditional.predictor(rows, inner)
    for found, point in zip(conditional.density(rows, eta, inner), xi):
        np.testing.assert_allclose(found, np.subtract(*plain(one, given, point)), rtol=1e-9, atol=1e-9)
    slope, curved = conditional.slopes(rows, eta, inner)
    h = 1e-5
    up, down = conditional.density(rows, eta + h, inner), conditional.density(rows, eta - h, inner)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), atol=1e-6)
    up, down = conditional.slopes(rows, eta + h, inner)[0], conditional.slopes(rows, eta - h, inner)[0]
    np.testing.assert_allclose(curved, (down - up) / (2 * h), atol=1e-6)


@pytest.mark.parametrize("family", GROUPED)
def test_the_hazard_between_two_times(family: str) -> None:
    """The difference of two cumulative ones; of times that are near it is the hazard times their difference."""
    one, since = layout(family), np.array([0.0, 0.0, 0.3, 0.4, 0.2, 1.2])
    base = Baseline.of(one, points(one), np.array(CUTS))
    time = np.array([0.0, 0.7, 0.35, 3.0, 0.2, 5.0])
    np.testing.assert_allclose(
        base.between(since, time, np.zeros((3, 6))), base.at(time)[1] - base.at(since)[1], rtol=1e-12, atol=1e-14
    )
    near = time * (1 - 1e-13)
    found, hazard = base.between(near, time, np.zeros((3, 6)))[:, 1:], np.exp(base.at(time)[0][:, 1:])
    np.testing.assert_allclose(found, hazard * (time - near)[1:], rtol=1e-9)


def test_a_row_that_begins_alone_in_a_piece_is_read_off_what_is_sent() -> None:
    """Why none or ten of a client's rows may begin in each: who was there before and after counts as much in two neighbours."""
    rng, n, cuts = np.random.default_rng(5), 60, np.array([1.0, 2.0, 3.0])
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    time, entry = 3 + rng.exponential(size=n), np.zeros(n)
    entry[7] = 2.4
    one = Layout(("intercept", "x"), "piecewise", (), (), shapes_of("piecewise", tuple(cuts)))
    rows = Lifetimes.of(one, X, time, time, np.array([0, n]), entry, cuts=cuts)
    _, _, curved = rows.curvature(np.zeros((1, one.size)), 1)
    told = curved[0, 3, :2] - curved[0, 2, :2]  # of the hazards from 2 to 3 and from 1 to 2, with the columns: one row's
    np.testing.assert_allclose(told, (3 - 2.4) * X[7], rtol=1e-9)


@pytest.mark.parametrize("level", ["group", "client"])
def test_effects_of_rows_that_were_seen_late_are_given_their_entries(level: str) -> None:
    """What a holder reads of its wards, and of itself: means and sds at one point, against quadrature."""
    terms = (("intercept",), ()) if level == "group" else ((), ("intercept",))
    one, given = layout("weibull", *terms), table(12, 1)
    (xi,) = points(one, 1)
    sd = np.exp(xi[one.group_at if level == "group" else one.client_at][0])
    z, w = np.polynomial.hermite_e.hermegauss(60)
    found = np.array([np.subtract(*plain(one, given, xi, sd * v)).sum() for v in z]) + np.log(w)
    share = np.exp(found - logsumexp(found))
    mean = share @ (sd * z)
    rows, draws = lived(one, given).rows, np.tile(lived(one, given).inner(xi[np.newaxis]), (400, 1))
    inner, own = effects.complete_draws(rows, draws, 15, 7)
    seen = effects.of_groups(rows, inner, 7) if level == "group" else own
    assert seen is not None
    assert seen.mean[0, 0] == pytest.approx(mean, abs=0.005)
    assert seen.sd[0, 0] == pytest.approx((share @ (sd * z - mean) ** 2) ** 0.5, abs=0.005)
    if level == "client":
        drawn = inner[:, 0] - xi[0]
        assert drawn.mean() == pytest.approx(mean, abs=0.1)
    without = np.array([plain(one, given, xi, sd * v)[0].sum() for v in z]) + np.log(w)  # the control: as if seen from 0 on
    assert abs(np.exp(without - logsumexp(without)) @ (sd * z) - mean) > 0.05


def test_curves_and_restricted_means() -> None:
    """Of a Weibull hazard by scipy's distribution, of frailty and a piecewise hazard by quadrature."""
    k, eta = np.array([[0.6], [2.2]]), np.array([[0.3], [-0.5]])
    base, none = Baseline("weibull", np.log(k)), np.zeros((2, 1))
    t = np.array([0.2, 1.0, 3.0])
    for s in range(2):
        law = weibull_min(k[s, 0], scale=np.exp(-eta[s, 0] / k[s, 0]))
        np.testing.assert_allclose(survival_parametric.survival(base, eta, none, t)[s, :, 0], law.sf(t), rtol=1e-12)
        mean = quad(law.sf, 0, 2.0, epsrel=1e-11)[0]
        assert survival_parametric.restricted_mean(base, eta, none, 2.0)[s, 0] == pytest.approx(mean, rel=1e-5)
    base = Baseline("piecewise", np.array([[0.4, -1.0, 0.2]]), np.array(CUTS))
    eta, variance = np.array([[0.1]]), np.array([[0.7]])

    def at(time: float) -> float:
        H = cumulative("piecewise", base.own[0], time)
        return quad(lambda z: np.exp(-H * np.exp(0.1 + 0.7**0.5 * z)) * norm.pdf(z), -9, 9, epsabs=1e-12)[0]

    assert survival_parametric.survival(base, eta, variance, np.array([1.7]))[0, 0, 0] == pytest.approx(at(1.7), abs=1e-9)
    mean = quad(at, 0, 2.0, points=CUTS[:2], epsabs=1e-8)[0]
    assert survival_parametric.restricted_mean(base, eta, variance, 2.0)[0, 0] == pytest.approx(mean, abs=1e-7)


@pytest.mark.parametrize("sd", [0.4, 2.0, 5.0])
def test_survival_over_effects_is_the_integral(sd: float) -> None:
    """However wide the effects of groups and clients are."""
    z = np.linspace(-10, 10, 20_001)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    eta, time = np.array([[-1.0, 0.0, 2.0]]), np.array([0.2, 1.0, 4.0])
    base = Baseline("exponential", np.zeros((1, 0)))
    found = survival_parametric.survival(base, eta, np.full((1, 3), sd**2), time)[0]
    hazards = base.at(time)[1][0]
    for t, H in enumerate(hazards):
        for i, at in enumerate(eta[0]):
            assert found[t, i] == pytest.approx(w @ np.exp(-H * np.exp(at + sd * z)), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cumulative_hazard_is_reached_when_it_is(family: str) -> None:
    cuts = np.array([1.0, 2.5, 7.0]) if family == "piecewise" else np.zeros(0)
    some = [[-0.4], [0.7]]
    own = {"exponential": np.zeros((2, 0)), "piecewise": [[0.5, -1.0, 2.0], [-0.3, 0.1, -2.0]]}.get(family, some)
    base = Baseline.of_family(family, np.array(own, np.float64), cuts)
    time, eta = np.array([0.3, 1.0, 1.7, 2.5, 6.0, 7.5, 40.0]), np.array([[0.3], [-0.6]])
    reached = base.between(np.zeros(7), time, eta)
    np.testing.assert_allclose(base.when(reached, eta), np.tile(time, (2, 1)), rtol=1e-9)
    found = survival_parametric.survival(base, np.tile(eta, (1, 7)), np.zeros((2, 7)), time[np.newaxis])[:, 0]
    np.testing.assert_allclose(found, np.exp(-reached), rtol=1e-12)


@pytest.mark.parametrize("family", LAWS)
@pytest.mark.parametrize("sd", [0.05, 0.4, 2.0])
def test_curves_of_accelerated_times(family: str, sd: float) -> None:
    """Probabilities over an effect, and restricted means, by quadrature."""
    base, eta, variance = Baseline.of_family(family, np.log([[sd]]), np.zeros(0)), np.array([[0.4]]), np.array([[0.7]])

    def at(time: float) -> float:
        def of(z: float) -> float:
            return float(LAWS[family].sf((np.log(time) - 0.4 - 0.7**0.5 * z) / sd) * norm.pdf(z))

        return quad(of, -9, 9, epsabs=1e-12, limit=400, points=[(np.log(time) - 0.4) / 0.7**0.5])[0]

    assert survival_parametric.survival(base, eta, variance, np.array([1.7]))[0, 0, 0] == pytest.approx(at(1.7), abs=1e-7)
    mean = quad(at, 0, 2.0, epsabs=1e-8)[0]
    assert survival_parametric.restricted_mean(base, eta, variance, 2.0)[0, 0] == pytest.approx(mean, abs=1e-5)
