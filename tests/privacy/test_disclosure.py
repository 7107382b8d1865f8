"""What a curious server can compute of open jobs' rows, from the messages of real jobs, the job file, and nothing else.

The attacks (`support.curious`) must find rows where they are few, or else they show nothing; and none where a client has as many
as a job asks for by default. How far each of them goes is measured by `benchmarks/disclosure.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

import fedkern
from fedkern.algorithms.core.messages import Message
from fedkern.algorithms.exchanges.arrival import Slope
from fedkern.algorithms.exchanges.columns import Agreed, SchemaReply
from fedkern.algorithms.exchanges.level import Level, LevelSums
from fedkern.algorithms.exchanges.scales import STEP, ColumnMeans, column_moments, count_values, means_of, means_reply
from fedkern.algorithms.gibbs.settings import MoveTerms, SecondMoveTerms, Statistics
from fedkern.algorithms.pvi.messages import Gradient, ScaledSiteDelta, SiteDelta
from fedkern.arrays import Array
from fedkern.disclosure.rules import COARSE_ROWS, LEAST_ROWS
from fedkern.errors import JobError
from fedkern.kernels import rng
from fedkern.models.expfam import unpack
from support import curious, curious_jobs, curious_sums, curious_values


def only(messages: list[Message]) -> Message:
    (message,) = messages
    return message


def up_to_sign(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, atol=1e-8) or np.allclose(one, -other, atol=1e-8))


# --- one row, two rows: sums are rows, or their difference


def test_sums_over_one_row_are_the_row() -> None:
    row, y = np.array([[1.25, -0.5]]), np.array([3.0])
    random = np.random.default_rng(0)
    more = {"b": (random.normal(size=(30, 2)), random.normal(size=30))}
    job = {"job": {"method": "pvi", "rounds": 2}, "data": {"response": "y"}}
    job["model"] = {"family": "gaussian", "covariance": "full"}
    with curious.Tape() as tape:
        fedkern.run(job, data={"a": (row, y), **more})
    first, centred = tape.texts(0, SchemaReply)[1:]
    assert first["rows"] == 1
    np.testing.assert_allclose(first["sums"], row[0])
    assert centred["squares"] == pytest.approx(np.square(centred["sums"]))
    delta = tape.of(0, SiteDelta)[0]
    assert isinstance(delta, SiteDelta)
    seen = curious.logistic(tape, 0)
    np.testing.assert_allclose(delta.dh / delta.dh[0], [1, *((row - seen.centre) / seen.scale)[0]])  # dh = y x
    pooled = np.concatenate([y, more["b"][1]])
    assert delta.dh[0] == pytest.approx((y[0] - pooled.mean()) / pooled.std())  # in the response's units, which all are told
    n, total = (getattr(tape.of(0, LevelSums)[0], name) for name in ("first", "second"))
    assert (n, total) == (1, pytest.approx(y[0]))


class TestOneRowAmongMany:
    """What a column, or the response, singles out is told as if its client had no other row."""

    def clients(self, family: str) -> dict[str, tuple[Array, Array]]:
        random, data = np.random.default_rng(1), {}
        for name in "ab":
            X = np.column_stack([random.normal(size=(500, 2)), random.random(500) < 0.2])
            data[name] = (X, (random.random(500) < 0.3).astype(float))
        X, y = data["a"]
        if family == "bernoulli":
            X[:, 2] = np.arange(500) == 137
        else:
            y[:] = np.arange(500) == 137
        return data

    def lowered(self, job: dict[str, Any], data: dict[str, tuple[Array, Array]], why: str) -> tuple[curious.Tape, Array, Array]:
        """What a job sends that is refused unless it lowers the least number of rows; and the columns' constants."""
        with pytest.raises(JobError, match=f"client 'a'.*{why}"):
            fedkern.run({**job, **curious_jobs.AT_STRICT}, data=data)
        with curious.Tape() as tape:
            fedkern.run(job, data=data)
        agreed = tape.texts(0, Agreed)[-1]["columns"]
        centre, scale = (np.array([column[key] for column in agreed]) for key in ("center", "scale"))
        return tape, centre, scale

    def tape(self, family: str) -> tuple[curious.Tape, Array, Array]:
        data = self.clients(family)
        job: dict[str, Any] = {"job": {"method": "pvi"}, "data": {"response": "y"}, "model": {"family": family}}
        tape, centre, scale = self.lowered(job, data, "values of .* have to themselves: 1;")
        row = np.array([1, *((data["a"][0][137] - centre) / scale)])
        return tape, np.array([centre[2], 0, 0, scale[2]]), row

    def test_by_its_own_value_of_a_column(self) -> None:
        tape, flag, row = self.tape("bernoulli")
        (first, *_), last = tape.of(0, SiteDelta), tape.of(0, Slope)[-1]
        for packed in (first.dP, last.curvature):  # type: ignore[attr-defined]
            seen = unpack(packed, 4) @ flag
            np.testing.assert_allclose(seen / seen[0], row, atol=1e-6)

    def test_by_its_response(self) -> None:
        tape, _, row = self.tape("poisson")
        last = tape.of(0, Slope)[-1]
        seen = last.gradient + unpack(last.curvature, 4)[0]  # type: ignore[attr-defined]
        np.testing.assert_allclose(seen / seen[0], row, atol=1e-6)

    def test_by_two_doses_that_differ_in_one_row_of_a_small_client(self) -> None:
        random, data = np.random.default_rng(0), {}
        for name, n in (("a", 35), ("b", 300)):
            planned = random.normal(80, 12, n).round()
            given = planned - (np.arange(n) % 4 == 1 if name == "b" else np.arange(n) == 7) * random.integers(5, 30, n)
            X = np.column_stack([random.normal(60, 9, n).round(1), np.arange(n) % 2, planned, given])
            data[name] = (X, (random.random(n) < 0.4).astype(float))
        job: dict[str, Any] = {"job": {"method": "pvi"}, "data": {"response": "y"}}
        tape, centre, scale = self.lowered(job, data, "values of '.*' and '.*' have to themselves: 1;")
        last = tape.of(0, Slope)[-1]
        unlike = np.array([centre[2] - centre[3], 0, 0, scale[2], -scale[3]])
        seen = unpack(last.curvature, 5) @ unlike  # type: ignore[attr-defined]
        np.testing.assert_allclose(seen[1:] / seen[0] * scale + centre, data["a"][0][7], atol=1e-4)

    def test_by_a_cell_far_from_all_others(self) -> None:
        """Yes and no in three columns, to the nearest."""
        random, data = np.random.default_rng(3), {}
        for name in "ab":
            X = np.column_stack([random.normal(120, 40, 100), *(random.random((3, 100)) < 0.4)])
            data[name] = (X, random.normal(size=100))
        X, row = data["a"][0], np.array([1.0, 0, 1])
        X[7] = [1500, *row]
        job: dict[str, Any] = {"job": {"method": "pvi"}, "data": {"response": "y"}, "model": {"family": "gaussian"}}
        tape, centre, scale = self.lowered(job, data, "so far from all others that what is sent tells their row")
        last = tape.of(0, Slope)[-1]
        seen = unpack(last.curvature, 5)[1]  # type: ignore[attr-defined]
        others = seen[2:] / seen[1] * (1500 - centre[0]) / scale[0]
        np.testing.assert_array_equal(np.rint(others * scale[1:] + centre[1:]), row)
        counts = {name: (X[:, 1:], random.poisson(1.5, 100) * 1.0) for name, (X, _) in data.items()}
        counts["a"][1][7] = 60
        with pytest.raises(JobError, match=r"client 'a'.* so far from all others that what is sent tells their row"):
            fedkern.run({**job, "model": {"family": "poisson"}, **curious_jobs.AT_STRICT}, data=counts)


JOB: dict[str, Any] = {"job": {"method": "pvi"}, "data": {"response": "y"}}


class TestSomeRowsAmongMany:
    """Rows that a column of yes or no singles out are a client of their own; and so is the one of these in which a number is not
    what it is in the others."""

    def data(self, n: int, yes: int) -> dict[str, tuple[Array, Array]]:
        random, data = np.random.default_rng(0), {}
        for name in "abc":
            X = np.column_stack([np.zeros(n), random.normal(size=(n, 2)), np.where(random.random(n) < 0.3, 1.0, 0.0)])
            X[:, 3] *= random.integers(1, 40, n)
            X[random.choice(n, yes if name == "a" else n // 10, replace=False), 0] = 1
            at = 0.8 * X[:, 0] + X[:, 1:3] @ [0.7, -0.5] + 0.02 * X[:, 3] - 0.3
            data[name] = (X, (random.random(n) < 1 / (1 + np.exp(-at))).astype(float))
        return data

    @pytest.mark.parametrize("n", [3, pytest.param(5, marks=pytest.mark.nightly)])
    def test_few_rows_come_back(self, n: int) -> None:
        data = {name: (X[:, :3], y) for name, (X, y) in self.data(500, n).items()}
        with pytest.raises(JobError, match=f"values of .* have to themselves: {n};"):
            fedkern.run({**JOB, **curious_jobs.AT_STRICT}, data=data)
        with curious.Tape() as tape:
            fedkern.run(JOB, data=data)
        seen = curious.singled(curious.logistic(tape, 0), 0, 0.0, n)
        guess = curious.solve(seen, 60.0, np.random.default_rng(1), wanted=1)
        X = data["a"][0]
        truth = (X[X[:, 0] == 1, 1:] - seen.centre) / seen.scale
        assert guess.claimed
        assert curious.matched(truth, guess.x).all()

    def test_ten_rows_are_not_determined(self) -> None:
        data = {name: (X[:, :3], y) for name, (X, y) in self.data(500, 10).items()}
        with curious.Tape() as tape:
            fedkern.run({**JOB, **curious_jobs.AT_STRICT}, data=data)
        seen = curious.singled(curious.logistic(tape, 0), 0, 0.0, 10)
        X, y = data["a"]
        truth = (X[X[:, 0] == 1, 1:] - seen.centre) / seen.scale
        assert (curious.known(seen, truth, 2 * y[X[:, 0] == 1] - 1) > curious.WITHIN).all()

    def test_the_one_with_yes_and_a_number(self) -> None:
        """All its cells but the label, by least squares."""
        data = self.data(300, 15)
        X = data["a"][0]
        X[X[:, 0] == 1, 3] = 0
        row = int(np.flatnonzero(X[:, 0])[4])
        X[row, 3] = 17
        with pytest.raises(JobError, match=r"values of '.*' and '.*' have to themselves: 1;"):
            fedkern.run({**JOB, **curious_jobs.AT_STRICT}, data=data)
        with curious.Tape() as tape:
            fedkern.run(JOB, data=data)
        seen = curious.logistic(tape, 0)
        found = curious_sums.one_with_both(seen, 0, 3, np.arange(10, 25), np.random.default_rng(0))
        np.testing.assert_allclose(found, X[row], atol=1e-2)


def test_the_count_of_a_client_with_one_area_is_in_its_sums(tmp_path: Path) -> None:
    job = curious_jobs.spatial(tmp_path, side=3, rounds=2, lone=True)
    told = only(job.tape.of(0, LevelSums))
    assert isinstance(told, LevelSums)
    assert told.first == job.counts[0][0]


def test_statistics_of_two_rows_are_their_difference() -> None:
    tape, rows = curious_jobs.sparse(2, algorithm={"statistics": "pooled"})
    told = only(tape.of(0, Statistics))
    assert isinstance(told, Statistics)
    scales = curious.scales(tape, 0)
    assert up_to_sign(np.sqrt(2) * np.append(told.R[0], told.q[0]), (rows[0] - rows[1]) / scales)


@pytest.mark.parametrize("kind", [MoveTerms, SecondMoveTerms])
def test_the_terms_of_one_move_are_second_moments(kind: type[MoveTerms]) -> None:
    """Of two rows their difference; of as many as a job asks for a rotation of them, but none of them."""
    for n in (2, LEAST_ROWS):
        tape, rows = curious_jobs.sparse(n, rounds=6, algorithm={"moves": ["translate", "interweave"]})
        centred = (rows - rows.mean(axis=0)) / curious.scales(tape, 0)
        found = curious_sums.of_moves(tape, 0, kind)
        np.testing.assert_allclose(found, (centred.T @ centred)[:, :-1], atol=1e-10)
        if n == 2:
            away = np.sqrt(2) * found[:, 0] / np.sqrt(found[0, 0])
            assert up_to_sign(away, centred[0] - centred[1])


def test_means_of_a_sparse_job_add_where_rows_are_and_none_of_them() -> None:
    """Rows that are turned about the told means have all that was told: cross-products, and the same steps."""
    tape, rows = curious_jobs.sparse(LEAST_ROWS, algorithm={"statistics": "pooled"})
    told, steps = only(tape.of(0, Statistics)), only(tape.of(0, ColumnMeans)).steps  # type: ignore[attr-defined]
    assert isinstance(told, Statistics)
    truth = rows / curious.scales(tape, 0)
    root = np.column_stack([np.vstack([told.R, np.zeros(told.R.shape[1])]), np.append(told.q, np.sqrt(told.rss))])
    gram, n = root.T @ root, LEAST_ROWS
    centred = truth - truth.mean(axis=0)
    np.testing.assert_allclose(gram, centred.T @ centred, atol=1e-10)
    at = means_of(steps, np.diag(gram) / (n - 1))
    assert (np.abs(at - truth.mean(axis=0)) <= STEP / 2 * truth.std(axis=0, ddof=1) + 1e-12).all()
    products = np.block([[np.full((1, 1), n), n * at[None]], [n * at[:, None], gram + n * np.outer(at, at)]])
    other = curious_sums.turned(products, n, np.random.default_rng(0))
    about = other - other.mean(axis=0)
    np.testing.assert_allclose(about.T @ about, gram, atol=1e-10)
    again = means_reply(other.mean(axis=0), np.full(3, n - 1.0), np.diag(gram), np.full(3, 3.0))
    np.testing.assert_array_equal(again.steps, steps)
    assert not curious.matched(truth, other).any()


def test_of_few_rows_and_values_a_sparse_job_tells_no_mean() -> None:
    """A constant column's mean is everybody's value, that of two values a count, and of two rows both would be known."""
    tape, _ = curious_jobs.sparse(2, algorithm={"statistics": "pooled"}, rounds=6)
    assert not only(tape.of(0, ColumnMeans)).steps.any()  # type: ignore[attr-defined]
    values = np.column_stack([np.full(30, 7.0), np.arange(30) % 2 + 5.0, np.arange(30) % 3 + 5.0, np.arange(30.0) + 5])
    values[11:, 3] = np.nan
    degrees, squares = column_moments(values)
    steps = means_reply(np.nanmean(values, axis=0), degrees, squares, count_values(values)).steps
    assert steps[2] == np.rint(4 * 6.0 / values[:, 2].std(ddof=1))
    assert not steps[[0, 1, 3]].any()


@pytest.mark.parametrize(("n", "told"), [(LEAST_ROWS, 0.6), (300, 0.1)])
def test_two_means_of_rows_that_differ_by_one_do_not_tell_it(n: int, told: float) -> None:
    """EM beside complete rows, or a job before and after a patient came: exact means are the row, steps are hardly anything."""
    random, found = np.random.default_rng(4), []
    for _ in range(600):
        x = 80 + 14 * random.normal(size=n + 1)
        sums, exact = [], []
        for own in (x, x[:-1]):
            degrees, squares = column_moments(own[:, None])
            steps = means_reply(own.mean()[None], degrees, squares, np.array([3.0])).steps
            sums.append(len(own) * means_of(steps, squares / degrees)[0])
            exact.append(own.sum())
        found.append([x[-1], exact[0] - exact[1], sums[0] - sums[1]])
    alike = np.corrcoef(np.array(found).T)[0]
    assert alike[1] > 0.999
    assert alike[2] < told


# --- a linear client: sums of squares


def linear(n: int, p: int = 2, **sections: Any) -> tuple[Array, Array]:
    """What a client of a linear job with learnt scale tells, and its rows [x, y] in the agreed units."""
    random = np.random.default_rng(0)

    def rows(n: int) -> tuple[Array, Array]:
        X = random.normal(size=(n, p))
        return X, X @ np.linspace(1, -0.5, p) + 0.3 + 0.7 * random.normal(size=n)

    own = rows(n)
    job: dict[str, Any] = {"job": {"method": "pvi"}, "model": {"family": "gaussian"}, "data": {"response": "y"}}
    with curious.Tape() as tape:
        fedkern.run({**curious_jobs.AT_STRICT, **job, **sections}, data={"a": own, "b": rows(60), "c": rows(60)})
    assert tape.of(0, ScaledSiteDelta)
    agreed, level = tape.texts(0, Agreed)[-1]["columns"], tape.of(0, Level)[-1]
    centre, scale = (np.array([column[key] for column in agreed]) for key in ("center", "scale"))
    truth = np.column_stack([(own[0] - centre) / scale, (own[1] - level.level) / level.scale])  # type: ignore[attr-defined]
    return curious_sums.linear(tape, 0), truth


def test_sites_of_two_linear_rows_are_these_rows() -> None:
    told, truth = linear(2, **curious_jobs.FEW)
    found = curious_sums.two_rows(told)
    assert any(np.allclose(found[order], truth, atol=1e-9) for order in ([0, 1], [1, 0]))


def test_sites_of_a_linear_client_are_its_cross_products_and_no_more() -> None:
    """To the last digits; but rows that are turned about their mean explain them as well."""
    told, truth = linear(LEAST_ROWS)
    one = np.column_stack([np.ones(LEAST_ROWS), truth])
    np.testing.assert_allclose(told, one.T @ one, atol=1e-10)
    other = curious_sums.turned(told, LEAST_ROWS, np.random.default_rng(0))
    two = np.column_stack([np.ones(LEAST_ROWS), other])
    np.testing.assert_allclose(told, two.T @ two, atol=1e-10)
    assert not curious.matched(truth, other).any()


# --- batches


@pytest.mark.parametrize(("source", "told"), [("keyed", True), ("secure", False)])
def test_sums_over_batches_tell_labels_if_their_rows_are_known(source: str, told: bool) -> None:
    """Many sums over known batches are equations for what each row adds: its residual first, whose sign is its label."""
    n, rate, algorithm = 60, 0.5, {"variant": "global-vi", "batch": 0.5, "random_source": source}
    tape, rows = curious_jobs.logistic(n, 2, algorithm=algorithm, job={"rounds": 200, "seed": 4}, **curious_jobs.FEW)
    sums = np.stack([m.mu for m in tape.of(0, Gradient) if isinstance(m, Gradient)])
    key = rng.key(4, "batch")
    inside = np.stack([rng.uniform(n, key=key, client=0, step=k) < rate for k in range(len(sums))]).astype(float)
    added = np.linalg.solve(inside.T @ inside + 3 * np.eye(n), inside.T @ sums)
    alike = float(np.corrcoef(added[:, 0], rows.y)[0, 1])
    assert alike > 0.9 if told else abs(alike) < 0.5


# --- draws whose random numbers everybody knows


@pytest.mark.parametrize("n", [2, 6])
def test_draws_of_a_site_are_its_second_moments(n: int) -> None:
    """statistics = "local" tells what "pooled" sends: a rotation of the centred rows, or the difference of two."""
    tape, rows = curious_jobs.sparse(n)
    found = curious.moments(tape, 0, seed=curious_jobs.SEED, rows=n, rounds=12, random=np.random.default_rng(0))
    centred = (rows - rows.mean(axis=0)) / curious.scales(tape, 0)
    np.testing.assert_allclose(found.gram, centred.T @ centred, atol=1e-8)
    assert n > 2 or up_to_sign(found.difference, centred[0] - centred[1])
    # negative control: with the random numbers of another seed nothing is explained
    other = curious.moments(tape, 0, seed=curious_jobs.SEED + 1, rows=n, rounds=12, random=np.random.default_rng(0), starts=1)
    assert other.misfit > 1e-3


def test_draws_of_a_logistic_site_are_equations_in_its_rows() -> None:
    """With random numbers of the seed rows explain its draws to the last digits, and others do not. With its own none do."""
    model = {"family": "bernoulli", "slab": float("inf")}
    tape, rows = curious_jobs.sparse(6, model=model, algorithm={"random_source": "keyed"})
    X, y = rows[:, :-1], rows[:, -1]
    X = (X - X.mean(axis=0)) / curious.scales(tape, 0)[: X.shape[1]]
    other = y.copy()
    other[2] = 1 - other[2]
    true, false = (curious.logistic_draws(tape, 0, X, one, seed=curious_jobs.SEED, rounds=10) for one in (y, other))
    assert np.abs(true).max() < 1e-10
    assert np.abs(false).max() > 1e-3
    tape, rows = curious_jobs.sparse(6, model=model)
    assert np.median(np.abs(curious.logistic_draws(tape, 0, X, y, seed=curious_jobs.SEED, rounds=10))) > 0.1


@pytest.mark.parametrize("n", [5, pytest.param(20, marks=pytest.mark.nightly)])
def test_log_likelihoods_of_tempered_chains_are_rows(n: int) -> None:
    """Up to the columns' means, which no message has, and the sign of each row."""
    tape, rows = curious_jobs.equations(n, 3, rounds=200 if n > 10 else 60)
    found, misfit, _ = curious.loglik_rows(
        tape, 0, seed=curious_jobs.SEED, rows=n, p=3, random=np.random.default_rng(0), seconds=60.0
    )
    assert misfit < 1e-8
    assert curious.matched_up_to_sign((rows - rows.mean(axis=0)) / curious.scales(tape, 0), found) == n


# --- a logistic client


SMALL = [1, 3, 5]
LARGER = [pytest.param(n, marks=[pytest.mark.nightly, pytest.mark.timeout(3000)]) for n in (7, 10)]


@pytest.mark.parametrize("n", [*SMALL, *LARGER])
def test_log_likelihoods_at_full_precision_are_rows_and_labels(n: int) -> None:
    """Control: as they were sent when every client answered at 400 draws and with all digits."""
    tape, rows = curious_jobs.logistic(n, 2, **curious_jobs.FEW)
    seen = curious.logistic(tape, 0)
    told = curious.as_it_was(tape, 0, curious_jobs.encoded(rows, seen), seen).only(curious.Values, curious.Sums)
    guess = curious.solve(told, 120.0, np.random.default_rng(1))
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == n


@pytest.mark.parametrize("sections", [{}, {"model": {"covariance": "full"}}], ids=["diagonal", "full"])
@pytest.mark.parametrize("n", [*SMALL, LARGER[0]])
def test_sites_of_few_rows_are_rows_and_labels(n: int, sections: dict[str, Any]) -> None:
    tape, rows = curious_jobs.logistic(n, 2, **curious_jobs.FEW, **sections)
    seen = curious.logistic(tape, 0)
    guess = curious.solve(seen.only(curious.Sites, curious.Sums), 120.0, np.random.default_rng(1))
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == n


def test_sites_of_many_synchronous_rounds_are_rows_and_labels() -> None:
    sections: dict[str, Any] = {"algorithm": {"schedule": "synchronous", "damping": 1 / 3}, "model": {"covariance": "full"}}
    tape, rows = curious_jobs.logistic(5, 2, **curious_jobs.FEW, **sections)
    seen = curious.logistic(tape, 0, damping=1 / 3, rounds=30)
    guess = curious.solve(seen.only(curious.Sites, curious.Sums), 120.0, np.random.default_rng(1))
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == 5


def test_no_least_number_helps_a_full_covariance_of_as_many_coefficients() -> None:
    """Where a client has no more rows than the model has coefficients, its first two sites are its rows: such a job is refused,
    unless it lowers the number."""
    job: dict[str, Any] = {"others": (100, 100), "model": {"covariance": "full"}, "job": {"rounds": 3}}
    with pytest.raises(JobError, match=r"20 rows that count and 21 coefficients .* rows are asked for"):
        curious_jobs.logistic(LEAST_ROWS, LEAST_ROWS, **job)
    tape, rows = curious_jobs.logistic(LEAST_ROWS, LEAST_ROWS, **job, **curious_jobs.FEW)
    seen = curious.logistic(tape, 0)
    guess = curious.by_eigenvectors(seen)
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == LEAST_ROWS


def test_leave_one_out_sums_are_three_equations() -> None:
    """To thousandths: who knows all rows but one reads that one."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(6, 1)), np.array([0.0, 1, 1, 0, 1, 0])
    theta = random.normal(size=(4000, 2)) * [0.6, 0.8] + [0.0, 0.5]
    told = curious_sums.LeaveOneOut(theta, np.zeros(3))
    told = replace(told, values=np.round(told.of(curious.z_of(x, 2 * y - 1)), 3))
    fits = []
    for label in (-1.0, 1.0):
        for start in (-1.0, 0.0, 1.0):

            def off(cell: Array, label: float = label) -> Array:
                all_rows, sign = np.vstack([x[:5], cell]), np.append(2 * y[:5] - 1, label)
                return (told.of(curious.z_of(all_rows, sign)) - told.values) / told.noise

            fit = scipy.optimize.least_squares(off, np.array([start]), diff_step=1e-4, max_nfev=30)
            fits.append((fit.cost, *fit.x, label))
    np.testing.assert_allclose(min(fits)[1:], [*x[5], 2 * y[5] - 1], atol=0.1)


def test_what_is_seen_is_what_was_computed() -> None:
    """The equations hold at the truth, to rounding: the attacks below fail for want of equations and not for wrong ones."""
    tape, rows = curious_jobs.logistic(curious_jobs.least(3), 3)
    seen = curious.logistic(tape, 0)
    assert {type(term) for term in seen.terms} == {curious.Sums, curious.Sites, curious.AtTheEnd}
    x, y = curious_jobs.standardised(rows, seen)
    sign = 2 * y[None] - 1
    residuals, _ = seen.system(curious.z_of(x[None], sign), sign)
    assert np.abs(residuals).max() < 5


NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(3000)]


@pytest.mark.parametrize(("p", "seconds"), [(2, 0.5), *(pytest.param(p, 30.0, marks=NIGHTLY) for p in (2, 3, 6, 8))])
def test_default_jobs_at_the_least_number_give_no_row_away(p: int, seconds: float) -> None:
    """The same as finds all rows of a few in as much time, and in half of it all 20 of 8 columns where a job lowers the number.
    (Of 8 columns a first batch of starts takes as long. Whole hours are for the benchmark.)"""
    tape, rows = curious_jobs.logistic(curious_jobs.least(p), p)
    seen = curious.logistic(tape, 0)
    parts = [(seen.only(curious.Sites, curious.Sums), 1 / 3)] if seconds > 1 else []
    for told, share in ((seen, 1.0), *parts):
        guess = curious.solve(told, share * seconds, np.random.default_rng(1), batch=8)
        assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == 0


@pytest.mark.parametrize(("n", "p", "covariance"), [(12, 6, "full"), pytest.param(20, 8, "full", marks=NIGHTLY)])
def test_rows_of_many_columns_come_back(n: int, p: int, covariance: str) -> None:
    """What counts is how many rows there are a coefficient: with two or three all come back, however many they are."""
    model = {"model": {"covariance": covariance}}
    with pytest.raises(JobError, match="rows that count"):
        curious_jobs.logistic(n, p, **model)
    tape, rows = curious_jobs.logistic(n, p, **model, **curious_jobs.FEW)
    seen = curious.logistic(tape, 0)
    guess = curious.solve(seen, 120.0, np.random.default_rng(1), wanted=1)
    assert curious.recovered(guess, *curious_jobs.standardised(rows, seen)) == n


def test_only_what_the_equations_determine_is_named() -> None:
    """One row said and one left open: the server does not take its guess for knowledge."""
    tape, _ = curious_jobs.logistic(2, 2, **curious_jobs.FEW)
    seen = curious.logistic(tape, 0)
    guess = curious.solve(replace(seen, terms=seen.only(curious.Sums).terms), 5.0, np.random.default_rng(1))
    assert guess.misfit < curious.BELIEVED
    assert not guess.named.any()


# --- covariates of few values


@pytest.mark.parametrize(
    ("ages", "yes_no", "n", "sections"),
    [
        (True, 0, 100, {}),
        (False, 6, 300, {}),
        pytest.param(True, 1, 200, {}, marks=pytest.mark.nightly),
        pytest.param(True, 0, 200, {}, marks=pytest.mark.nightly),
        pytest.param(True, 0, 20, {"model": {"family": "poisson"}}, marks=pytest.mark.nightly),
        pytest.param(True, 0, 100, {"model": {"covariance": "diagonal"}}, marks=pytest.mark.nightly),
    ],
)
def test_how_often_each_of_few_combinations_occurs_is_told(ages: bool, yes_no: int, n: int, sections: dict[str, Any]) -> None:
    """Of any number of rows where sums outnumber combinations: so a job at the defaults refuses clients with rare ones."""
    pytest.importorskip("flint", reason=curious_values.NEEDS)
    tape, rows = curious_jobs.few_values(n, ages, yes_no, **sections)
    possible = curious_jobs.possible_values(ages, yes_no)
    told = curious_values.told(tape, 0, possible, sections.get("model", {}).get("family", "bernoulli"))
    found = curious_values.frequencies(told)
    np.testing.assert_array_equal(found.frequencies, curious_values.of_rows(rows.X, possible))
    with pytest.raises(JobError, match=r"its covariates can take [0-9]+ combinations of values"):
        curious_jobs.few_values(n, ages, yes_no, **sections, **curious_jobs.AT_STRICT)


@pytest.mark.nightly
@pytest.mark.parametrize("yes_no", [0, 1])
def test_rows_enough_have_other_frequencies_too(yes_no: int) -> None:
    """Which explain what is told: the truth is none that this attack finds."""
    pytest.importorskip("flint", reason=curious_values.NEEDS)
    tape, rows = curious_jobs.few_values(COARSE_ROWS, True, yes_no, **curious_jobs.AT_STRICT)
    possible = curious_jobs.possible_values(True, yes_no)
    found = curious_values.frequencies(curious_values.told(tape, 0, possible))
    assert found.shortest < 4
    assert np.abs(found.frequencies - curious_values.of_rows(rows.X, possible)).sum() > 100


# --- a map


def test_gradients_of_two_rounds_are_the_counts_of_a_map(tmp_path: Path) -> None:
    job = curious_jobs.spatial(tmp_path)
    for k, truth in enumerate(job.counts):
        found, left = curious.told_counts(job.tape, job.map, [k], 2, np.random.default_rng(0))
        assert left < curious.SAME
        np.testing.assert_array_equal(found, truth)


def test_the_sum_of_all_gradients_is_the_counts_of_a_map(tmp_path: Path) -> None:
    """So a secure sum is no remedy for a map."""
    job = curious_jobs.spatial(tmp_path)
    found, left = curious.told_counts(job.tape, job.map, range(4), 6, np.random.default_rng(0))
    assert left < curious.SAME
    np.testing.assert_array_equal(found, np.concatenate(job.counts))
