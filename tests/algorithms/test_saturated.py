"""What a server that chooses its points gets of clients that answer with sums over rows: nothing that hangs on one client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedkern.algorithms.core.box import LOG_SCALE, Box, reach
from fedkern.algorithms.core.masked import Client, Hider, Sums
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.hmc import machine as hmc
from fedkern.algorithms.hmc.machine import Launch, Place
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import AskCurvature, AskValues
from fedkern.arrays import Array
from fedkern.models import levels, survival_parametric
from fedkern.models.encoding import INTERCEPT
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.models.saturated import AT_ONCE, HIGHEST, LIMIT, Saturated
from fedkern.models.survival_parametric import Lifetimes
from fedkern.privacy.masks import WIDE, Pairs, from_words, public_key, total

NAMES = ("ada", "bo", "cy", "di")
MOST_ROWS = 2.0**31
COLUMNS = (INTERCEPT, "x")
OF_ROWS = (
    "bernoulli", "binomial", "poisson", "gaussian", "negative-binomial", "student", "gamma", "beta", "zero-inflated-poisson",
    "zero-inflated-negative-binomial", "ordinal", "ordinal-probit", "multinomial", "weibull", "exponential", "piecewise",
    "bernoulli-probit", "binomial-probit", "bernoulli-cloglog", "binomial-cloglog", "beta-binomial", "lognormal",
    "inverse-gaussian", "hurdle-poisson", "hurdle-negative-binomial", "poisson-lognormal",
)  # fmt: skip
POSITIVE = ("gamma", "lognormal", "inverse-gaussian", "weibull", "exponential", "piecewise")
OF_GROUPS = ("poisson", "gaussian", "bernoulli", "student", "weibull")
CUTS = np.array([1.0, 2.0])
LEVELS = ("a", "b", "c")


def layout_of(family: str, group: bool) -> Layout:
    columns, effect = COLUMNS, (INTERCEPT,) if group else ()
    if family == "multinomial":
        return Layout(levels.block_names(LEVELS, columns), family)
    own = None
    if family.startswith("ordinal"):
        columns, own = ("x",), levels.prior_of_thresholds(LEVELS, np.full(3, 1 / 3), "logit", 0.0, 5.0)
    elif family in ("weibull", "exponential", "piecewise"):
        own = survival_parametric.shapes_of(family, tuple(CUTS))
    return Layout(columns, family, effect, (), own)


def responses(family: str, n: int, rng: np.random.Generator) -> Array:
    if family.startswith("bernoulli"):
        return rng.integers(0, 2, n).astype(float)
    if family in ("multinomial", "ordinal", "ordinal-probit"):
        return rng.integers(0, 3, n).astype(float)
    if family in ("gaussian", "student"):
        return rng.normal(size=n)
    if family == "beta":
        return rng.uniform(0.05, 0.95, n)
    if family in POSITIVE:
        return rng.exponential(2.0, n) + 1e-3
    return rng.poisson(3.0, n).astype(float)


def rows_of(layout: Layout, X: Array, y: Array, starts: NDArray[np.int64]) -> Any:
    """A client's rows; X has an intercept and one column."""
    X = np.ascontiguousarray(X[:, 1:] if layout.family.startswith("ordinal") else X)
    if layout.family == "multinomial":
        return levels.Rows(layout, X, y, 3)
    if layout.family in ("weibull", "exponential", "piecewise"):
        upper = np.where(np.arange(len(y)) % 3 == 0, np.inf, y)
        upper = np.where(np.modf(1e6 * y)[0] < 0.3, np.inf, y)  # a fact of the row, wherever it is
        return Lifetimes.of(layout, X, y, upper, starts, cuts=CUTS if layout.family == "piecewise" else None)
    return Rows(layout, X, y, starts, np.full(len(y), 9.0) if layout.family.startswith("binomial") else None)


def box_of(layout: Layout) -> Box:
    """As jobs have it whose priors are the usual ones."""
    prior = Prior.usual(layout)
    centre, far = layout.start, np.full(layout.size, LOG_SCALE)
    far[: layout.p] = reach(prior.sd)
    far[layout.shapes_at] = [shape.reach for shape in layout.shapes]
    return Box.about(centre, far)


def federation(layout: Layout, whose: NDArray[np.int64], X: Array, y: Array, size: int) -> list[Saturated]:
    """The clients' rows; `whose`: the client of each group of `size` rows."""
    out = []
    for k in range(len(NAMES)):
        own = np.concatenate([np.arange(size) + size * g for g in np.flatnonzero(whose == k)])
        out.append(Saturated(rows_of(layout, X[own], y[own], np.arange(0, len(own) + 1, size))))
    return out


def points_of(box: Box, n: int, rng: np.random.Generator) -> Array:
    """(n, P) points of a search: anywhere in the box, at its corners, in the middle but for one unknown, and beyond."""
    low, high, P = np.array(box.low), np.array(box.high), len(box.low)
    points = rng.uniform(low, high, (n, P))
    kind = rng.integers(0, 4, n)
    points[kind == 1] = np.where(rng.random((n, P)) < 0.5, low, high)[kind == 1]
    one = np.zeros((n, P), bool)
    one[np.arange(n), rng.integers(0, P, n)] = True
    points[kind == 2] = np.where(one, points, (low + high) / 2)[kind == 2]
    far = np.where(one, rng.choice([-1.0, 1.0], (n, P)) * 2.0 ** rng.uniform(4, 41, (n, P)), (low + high) / 2)
    points[kind == 3] = far[kind == 3]
    return points


class Asked:
    """The clients of one federation behind their masks, and what the server gets of them."""

    def __init__(self, protocol: Any, sums: Any, dims: dict[str, int], machines: Sequence[Any]) -> None:
        self.sums = Sums(protocol, sums, dims, dict.fromkeys(protocol.to_client, 10**6))
        secrets = [hashlib.sha256(bytes([k])).digest() for k in range(len(NAMES))]
        keys = [public_key(secret) for secret in secrets]
        pairs = [Pairs.agree(k, secret, NAMES, keys, b"job") for k, secret in enumerate(secrets)]
        self.clients = [Client(one, Hider(own)) for one, own in zip(machines, pairs)]

    def get(self, question: Any) -> Array | str:
        """The sums that the server gets, or why the job ends."""
        answers: dict[int, Any] = {}
        try:
            for k, client in enumerate(self.clients):
                self.clients[k], said = self.sums.masked.client_receive(client, question)
                answers |= {k: said[0]} if said else {}
            one = next(one for one in self.sums.used if one.masked is type(answers[0]))
        except RemoteFault as fault:
            return str(fault)
        words = [np.frombuffer(answer.words, "<u8").reshape(one.form.limbs, -1) for answer in answers.values()]
        sums = from_words(total(words), one.form)
        assert sums[-1] == 0  # masks have cancelled
        return sums[:-1]


def asked_of(layout: Layout, rows: Sequence[Saturated]) -> Asked:
    settings = importance.Settings(64, 10.0, 2, 1, layout.nodes, layout.most_nodes, 0, 1, box=box_of(layout))
    dims = settings.sizes(layout.size)
    machines = [importance.client(name, k, settings, one) for k, (name, one) in enumerate(zip(NAMES, rows))]
    return Asked(importance.protocol(settings), importance.SUMS, dims, machines)


def assert_same(first: Array | str, second: Array | str, off: float = 0.0) -> None:
    """The same numbers, but for the rounding of sums of floats, or the same end."""
    assert isinstance(first, str) == isinstance(second, str), (first, second)
    if isinstance(first, str):
        assert first == second
    else:
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=off + 1e-12 * np.abs(first).max())


def two(family: str, group: bool, rng: np.random.Generator) -> tuple[Layout, Callable[[int], list[list[Saturated]]]]:
    """Two federations of the same groups of rows, of which each has another deal among its clients, in the jobs of one rows.

    The first job has the column itself, and each other one a step of it, as a server may ask for.
    """
    layout, size, n_groups = layout_of(family, group), 4 if group else 1, 12 if group else 40
    n = n_groups * size
    X = np.column_stack([np.ones(n), rng.normal(size=n) * np.where(rng.random(n) < 0.1, 20.0, 1.0)])
    y = responses(family, n, rng)
    if family in ("poisson", "negative-binomial"):
        y[rng.random(n) < 0.1] *= 10 ** float(rng.integers(1, 6))
    deals = [np.concatenate([np.arange(4), rng.integers(0, 4, n_groups - 4)]) for _ in range(2)]

    def in_job(job: int) -> list[list[Saturated]]:
        columns = np.column_stack([np.ones(n), X[:, 1] > np.sort(X[:, 1])[job]]) if job else X
        return [federation(layout, deal, columns, y, size) for deal in deals]

    return layout, in_job


LONG = (pytest.mark.nightly, pytest.mark.timeout(3600))
CASES = [*((family, False) for family in OF_ROWS), *((family, True) for family in OF_GROUPS)]


@pytest.mark.parametrize(("family", "group"), CASES, ids=[f"{family}{'-groups' * group}" for family, group in CASES])
@pytest.mark.parametrize(("pairs", "jobs"), [(1, 2), pytest.param(100, 1, marks=LONG), pytest.param(1, 20, marks=LONG)])
def test_the_server_gets_the_same_of_two_federations_whose_sums_agree(family: str, group: bool, pairs: int, jobs: int) -> None:
    rng = np.random.default_rng(len(family) + 100 * group)
    ended = 0
    for _ in range(pairs):
        layout, in_job = two(family, group, rng)
        ended += sum(asked_the_same(layout, in_job(job), rng) for job in range(jobs))
    assert ended  # points beyond the box were among them


def asked_the_same(layout: Layout, both: list[list[Saturated]], rng: np.random.Generator) -> int:
    """Asks two federations the same, compares what the server gets, and returns how many questions ended the job."""
    first, second = (asked_of(layout, rows) for rows in both)
    # The search for a group's mode begins at that of the last one like it: the kernel's integrals differ by so much.
    off = 5e-6 if layout.group else 0.0
    box, round, ended = box_of(layout), 0, 0
    for point in points_of(box, 12, rng):
        question = AskCurvature(round, layout.nodes, point[np.newaxis])
        got = first.get(question)
        assert_same(got, second.get(question), off)
        if isinstance(got, str):
            ended += 1
            continue
        low, high = (np.array(end) - point for end in (box.low, box.high))
        steps = (1 - 1e-6) * np.clip(rng.normal(size=(64, layout.size)), low, high)
        draws = AskValues.of(round + 1, layout.nodes, point, steps)
        got = first.get(draws)
        assert not isinstance(got, str), got
        assert_same(got, second.get(draws), off)
        round += 2
    return ended


def test_chains_get_the_same_of_two_federations_whose_sums_agree() -> None:
    rng = np.random.default_rng(3)
    for family, group in (("poisson", False), ("gaussian", True), ("weibull", False)):
        layout, both = two(family, group, rng)
        box, chains = box_of(layout), 4
        s = hmc.Settings(5, 0, chains, 1, 0.1, 1, whole=True, box=box)
        dims = s.sizes(layout.size)
        several = []
        for rows in both(0):
            walkers = [importance.WithoutLocal(one, layout.nodes) for one in rows]
            machines = [hmc.client(name, k, s, one) for k, (name, one) in enumerate(zip(NAMES, walkers))]
            several.append(Asked(hmc.protocol(s), hmc.SUMS, dims, machines))
        inside = [one for one in points_of(box, 400, rng) if box.holds(one)]
        questions: list[Any] = [Place(np.array(inside[:chains]))]
        step, none = np.full(chains, 0.1), np.zeros(chains)
        for round in range(8):
            questions.append(Launch(round, none, step, np.array(inside[chains * (round + 1) : chains * (round + 2)])))
        for question in questions:
            first, second = (one.get(question) for one in several)
            assert not isinstance(first, str), first
            assert_same(first, second)
        outside = np.array(inside[:chains])
        outside[0, 0] = 2.0**31
        ends = [one.get(Launch(9, none, step, outside)) for one in several]
        assert ends[0] == ends[1]
        assert isinstance(ends[0], str)


# The two attacks --------------------


def gaussians(sizes: Sequence[int], rng: np.random.Generator) -> tuple[Layout, list[Saturated]]:
    layout, out = layout_of("gaussian", group=False), []
    for n in sizes:
        X = np.column_stack([np.ones(n), rng.normal(size=n)])
        out.append(Saturated(rows_of(layout, X, rng.normal(size=n), np.array([0, n]))))
    return layout, out


def test_a_residual_scale_at_which_words_end_tells_no_client_from_the_others() -> None:
    """exp(36.5) times the rows of the smallest client alone had a word: n and X'X of it, with all digits."""
    layout, rows = gaussians((70, 90, 110, 130), np.random.default_rng(1))
    asked = asked_of(layout, rows)
    for log_sigma in (-18.25, -18.0, -17.0, -9.5):
        got = asked.get(AskCurvature(0, 1, np.array([[0.0, 0.0, log_sigma]])))
        assert isinstance(got, str)
        assert "asks where no client with secure sums answers" in got
    got = asked.get(AskCurvature(0, 1, np.array([[0.0, 0.0, -9.0]])))
    assert not isinstance(got, str)
    assert got[6] == pytest.approx(400 * np.exp(18.0))  # the rows of all: after value, rule, cut and a gradient of three


def test_far_intercepts_tell_the_cases_of_all_together() -> None:
    """A row's log-likelihood at an intercept of -2^k is -2^k for a case: a client was beyond -2^40 by its number of cases."""
    rng, layout = np.random.default_rng(2), layout_of("bernoulli", group=False)
    rows = []
    for n in (60, 80, 100, 120):
        X = np.column_stack([np.ones(n), rng.normal(size=n)])
        rows.append(Saturated(rows_of(layout, X, responses("bernoulli", n, rng), np.array([0, n]))))
    asked = asked_of(layout, rows)
    for k in range(6, 42):
        got = asked.get(AskCurvature(0, 1, np.array([[-(2.0**k), 0.0]])))
        assert isinstance(got, str)
    got = asked.get(AskCurvature(0, 1, np.array([[-50.0, 0.0]])))
    assert not isinstance(got, str)
    cases = sum(one.rows.y.sum() for one in rows)  # type: ignore[attr-defined]
    assert got[0] == pytest.approx(-50 * cases)


# What a word has room for --------------------


@pytest.mark.parametrize("family", OF_ROWS)
def test_no_question_inside_the_box_has_a_row_for_which_words_have_no_room(family: str) -> None:
    rng, layout = np.random.default_rng(4), layout_of(family, group=False)
    n = 60
    X = np.column_stack([np.ones(n), rng.choice([1e4, -1e4, 1.0, 0.0, 0.1], n)])
    y = responses(family, n, rng)
    if family.endswith(("poisson", "negative-binomial")):
        y[::3] = np.floor(10.0 ** rng.uniform(0, 9 if family.endswith("poisson") else 6, len(y[::3])))
    if family in POSITIVE:
        y[::3] = 10.0 ** rng.uniform(-30, 30, len(y[::3]))
    if family in ("gaussian", "student"):
        y[::3] *= 10.0 ** rng.uniform(0, 6, len(y[::3]))
    rows, box = rows_of(layout, X, y, np.array([0, n])), box_of(layout)
    points = points_of(box, 60, rng)
    points = points[box.holds(points)]
    for i in range(n):
        told = Saturated(rows.of_units(slice(i, i + 1))).curved(points, 1)
        assert (np.abs(told.value) <= LIMIT).all()
        for numbers in (told.gradient, told.hessian):
            assert np.isfinite(numbers).all()
            assert np.abs(numbers).max() * MOST_ROWS < WIDE.bound
    assert LIMIT * MOST_ROWS < WIDE.bound


# How rows are cut off --------------------


def test_a_row_counts_for_no_less_than_the_limit_and_adds_no_derivative_then() -> None:
    layout = layout_of("poisson", group=False)
    X = np.column_stack([np.ones(4), [0.0, 1.0, 1.0, 2.0]])
    whole = Saturated(rows_of(layout, X, np.array([1.0, 2.0, 0.0, 3.0]), np.array([0, 4])))
    points = np.array([[0.5, 0.1], [0.0, 15.0], [0.0, 800.0], [np.log(LIMIT) + 0.1, 0.0]])
    value, gradient, hessian, cut = whole.curved(points, 1)
    np.testing.assert_array_equal(cut, [0, 1, 3, 4])
    open_value, open_gradient, open_hessian = whole.rows.curvature(points[:1], 1)
    # An open client may have added equal rows up.
    np.testing.assert_allclose(value[0], open_value[0], rtol=1e-13)
    np.testing.assert_allclose(gradient[0], open_gradient[0], rtol=1e-12)
    np.testing.assert_allclose(hessian[0], open_hessian[0], rtol=1e-12)
    assert value[3] == -4 * LIMIT
    assert not gradient[3].any()
    three = whole.rows.of_units(slice(0, 3)).curvature(points[1:2], 1)
    assert value[1] == pytest.approx(three[0][0] - LIMIT)
    np.testing.assert_allclose(gradient[1], three[1][0])
    np.testing.assert_allclose(whole.counted(points, 1)[0], value, rtol=1e-14)


def test_groups_are_cut_off_as_a_whole_by_their_number_of_rows() -> None:
    layout = layout_of("poisson", group=True)
    X, y = np.column_stack([np.ones(8), [0.0] * 4 + [1.0] * 4]), np.array([1.0, 2.0, 0.0, 3.0] * 2)
    whole = Saturated(rows_of(layout, X, y, np.array([0, 4, 8])))
    value, cut = whole.counted(np.array([[0.0, 0.0, -12.0], [0.0, 700.0, -12.0]]), 15)
    np.testing.assert_array_equal(cut, [0, 1])
    first = whole.rows.of_units(slice(0, 1)).values(np.array([[0.0, 700.0, -12.0]]), 15)
    assert value[1] == first[0] - 4 * LIMIT


def test_large_honest_rows_are_not_cut_off() -> None:
    """Counts of a million, a factor of ten about their mean, where a search begins."""
    layout, rng = layout_of("poisson", group=False), np.random.default_rng(5)
    n = 500
    X, y = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.poisson(10.0 ** rng.uniform(5, 7, n)).astype(float)
    rows = rows_of(layout, X, y, np.array([0, n]))
    points = np.array([[np.log(y.mean()), 0.0]])
    value, cut = Saturated(rows).counted(points, 1)
    assert (value[0], cut[0]) == (pytest.approx(rows.values(points, 1)[0], rel=1e-12), 0)
    assert value[0] / n < -(2.0**20)  # many rows are below a limit that would be cheaper
    assert AT_ONCE * HIGHEST <= LIMIT / 2


def test_a_client_with_an_effect_of_its_own_is_cut_off_nowhere_as_long_as_there_is_a_number() -> None:
    """A limit on its whole sum would be an event of this client: asked along a line, where it is told a square of its rows."""
    layout = Layout(COLUMNS, "gaussian", (), (INTERCEPT,))
    rng = np.random.default_rng(6)
    X = np.column_stack([np.ones(20), rng.normal(size=20)])
    rows, box = Rows(layout, X, responses("gaussian", 20, rng), np.array([0, 20])), box_of(layout)
    points = points_of(box, 200, rng)
    value, cut = Saturated(rows).counted(points[box.holds(points)], 1)
    assert value.min() < -20 * LIMIT
    assert not cut.any()


def test_a_box_of_sums_moves_places_to_its_border_and_holds_them_there() -> None:
    """As of a cube of years: sums of large numbers are bounded, of which a place itself has no bound."""
    rng = np.random.default_rng(11)
    basis = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    basis[3] /= 1e5
    box = Box.about(np.ones(4), np.array([10.0, 20.0, 20.0, 20.0]), basis)
    points = np.linalg.solve(basis, rng.uniform(-40, 40, (500, 4)).T).T
    inside = (np.abs(points @ basis.T - basis @ np.ones(4)) <= [10, 20, 20, 20]).all(axis=1)
    assert (box.holds(points) == inside).all()
    moved = box.nearest(points)
    assert box.holds(moved).all()
    assert (moved[inside] == points[inside]).all()
    assert np.allclose(box.sums(moved)[~inside], np.clip(box.sums(points), *box.ends())[~inside])
    steps = (box.nearest(points, box.border) - 1).astype(np.float32).astype(np.float64)
    assert box.holds(1 + steps).all()
