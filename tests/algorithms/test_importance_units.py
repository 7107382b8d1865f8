"""What clients of importance sampling round, and that the answer needs no more: units, modes, draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.core.messages import Message
from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance.settings import (
    OF_DRAWS,
    OF_QUADRATICS,
    OF_WORDS,
    excess,
    of_derivatives,
    of_draws,
    power,
    told,
)
from fedkern.arrays import Array
from fedkern.models.expfam import unpacked
from fedkern.models.mixed import Layout, Prior, Rows
from support import chosen
from support.rounded_jobs import drawn, played


def federation(
    seed: int, family: str = "bernoulli", sizes: tuple[int, ...] = (60, 150, 90), p: int = 3
) -> tuple[Layout, list[Rows]]:
    """Clients whose columns go together."""
    random, layout = np.random.default_rng(seed), Layout(("intercept", *(f"x{k}" for k in range(p))), family)
    mix, rows = np.eye(p) + 0.5 * random.standard_normal((p, p)), []
    for n in sizes:
        X = np.column_stack([np.ones(n), random.standard_normal((n, p)) @ mix])
        rows.append(Rows(layout, X, drawn(random, family, 0.5 * X[:, 1] + 0.2), np.array([0, n])))
    return layout, rows


def asked(layout: Layout, own: Rows, question: Message, clients: int, *, rounds: bool = True) -> Any:
    """A client's answer."""
    settings = chosen.importance(points=4096, rounds=1, clients=clients, rounds_messages=rounds)
    state = importance.client("a", 0, settings, own, Prior.usual(layout))
    return importance.client_receive(state, question)[1][0]


def multiples(numbers: Array, units: Array | float) -> bool:
    """Whether numbers are whole numbers of units."""
    return bool((np.asarray(numbers) / units == np.rint(np.asarray(numbers) / units)).all())


@pytest.mark.parametrize("clients", [1, 3, 40])
def test_values_are_whole_numbers_of_a_unit_that_the_question_says(clients: int) -> None:
    layout, (own, *_) = federation(0)
    random = np.random.default_rng(1)
    steps = (0.3 * random.standard_t(5, (1024, layout.size))).astype(np.float32).astype(np.float64)
    question = importance.AskValues.of(0, 1, np.zeros(layout.size), steps)
    answer = asked(layout, own, question, clients)
    unit = OF_DRAWS * 0.05 / np.sqrt(clients)
    alike = clients * own.values(question.points, 1) + Prior.usual(layout).values(question.points)
    units = power(unit * of_draws(question.points, alike))
    assert (units >= unit).all()
    rounded = answer.values + excess(units)
    assert multiples(rounded, power(unit))
    assert multiples(rounded, units)
    assert (units == power(5 * unit)).any()
    assert (units == power(unit)).mean() > 0.5
    off = np.abs(rounded - own.values(question.points, 1))
    assert (off <= units / 2).all()
    assert off.max() > unit / 4
    exact = asked(layout, own, question, clients, rounds=False)
    np.testing.assert_allclose(exact.values, own.values(question.points, 1), atol=OF_WORDS / 2 * 1.001)


@pytest.mark.parametrize("unit", [0.125, 1.0, 2.0])
def test_weights_of_rounded_values_are_right_in_the_mean(unit: float) -> None:
    """Draws far out, whose units are largest, had up to a sixth too much weight from each client."""
    values = np.random.default_rng(2).uniform(-50, 0, 200_000)
    weights = np.exp(told(values, unit) - excess(np.array(unit)) - values)
    assert weights.mean() == pytest.approx(1, abs=4 * weights.std() / np.sqrt(len(values)) + OF_WORDS)


def test_gradients_and_curvatures_are_whole_numbers_of_units_of_the_client_s_own() -> None:
    layout, (own, *_) = federation(2)
    question = importance.AskCurvature(0, 1, np.array([[0.2, 0.4, 0.0, -0.1]]))
    _, gradient, hessian = own.curvature(question.points, 1)
    prior = Prior.usual(layout).curvature(question.points[0])[2]
    of_gradient, of_hessian = of_derivatives(hessian[0], prior, 3)
    covariance = np.linalg.inv(prior + 3 * hessian[0])
    sd = np.sqrt(np.diag(covariance))
    together = ((covariance / np.outer(sd, sd)) ** 2).sum(axis=1).max()
    assert (of_gradient >= 0.005 / np.sqrt(3 * together) / sd).all()
    assert (of_gradient < 0.01 / np.sqrt(3 * together) / sd).all()
    assert (of_hessian >= 0.01 / np.sqrt(3) / together / np.outer(sd, sd)).all()
    answer = asked(layout, own, question, 3)
    assert multiples(answer.value, power(0.05 / np.sqrt(3)))
    assert multiples(answer.gradient[0], of_gradient)
    assert multiples(unpacked(answer.hessian, layout.size)[0], of_hessian)
    assert (np.abs(answer.gradient - gradient) <= of_gradient / 2).all()
    assert np.abs(answer.gradient - gradient).max() > 1e-4
    assert asked(layout, own, question, 3).gradient.tolist() == answer.gradient.tolist()  # and so it is again
    whole = asked(layout, own, question, 3, rounds=False)
    np.testing.assert_array_equal(whole.gradient, gradient)
    np.testing.assert_array_equal(unpacked(whole.hessian, layout.size), hessian)


def test_the_mode_is_found_where_many_coefficients_go_together() -> None:
    """Levels of ten columns beside an intercept: errors of all of them are in the way of each."""
    random = np.random.default_rng(0)

    def rows(n: int) -> pd.DataFrame:
        columns = {f"c{j}": random.integers(0, k, n).astype(str) for j, k in enumerate((5, 6, 8, 10, 12, 14, 16, 18, 19, 20))}
        frame = pd.DataFrame(columns).map(lambda level: f"level {level}")
        return frame.assign(y=random.integers(0, 2, n))

    job = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}
    result = fedkern.run({**job, "algorithm": {"points": 256, "effective": 50}}, data={name: rows(1500) for name in "abc"})
    assert result.summary["rounds_to_mode"] <= 12


def test_a_sum_of_what_clients_tell_is_exact_in_any_order() -> None:
    """So masked sums lose nothing: each number has few bits."""
    layout, rows = federation(3, sizes=(40, 55, 70, 85, 300, 20, 31))
    question = importance.AskCurvature(0, 1, np.full((1, layout.size), 0.1))
    answers = [asked(layout, own, question, len(rows)) for own in rows]
    one = sum(answer.gradient for answer in answers)
    np.testing.assert_array_equal(one, sum(answer.gradient for answer in reversed(answers)))
    np.testing.assert_array_equal(np.ldexp(one, 64) % 1, np.zeros_like(one))


def test_a_client_without_information_is_told_beside_the_prior() -> None:
    of_gradient, _ = of_derivatives(np.zeros((2, 2)), np.eye(2) / 6.25, 4)
    assert (of_gradient >= 0.005 / 2 / 2.5).all()
    assert told([1e-9], of_gradient[:1]).tolist() == [0.0]


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian", "negative-binomial", "student"])
def test_the_mode_of_rounded_numbers_is_that_of_all_digits(family: str) -> None:
    for seed in range(3):
        layout, rows = federation(seed, family, p=4)
        told, exact = (played(layout, rows, rounds=0, rounds_messages=which).server for which in (True, False))
        one, other = importance.read_result(told), importance.read_result(exact)
        sd = np.sqrt(np.diag(np.linalg.inv(other.precision)))
        both = [layout.folded(found.mode[np.newaxis])[0] for found in (one, other)]
        assert (np.abs(both[0] - both[1]) < 0.01 * sd).all()
        assert (both[0] != both[1]).any()
        assert told.newton <= exact.newton + 2


def test_draws_of_another_mode_have_all_digits_and_far_ones_in_a_heavy_tail() -> None:
    """They have weight: by the density that a client reckons, not by where they lie alone."""
    random = np.random.default_rng(0)
    points = np.where(np.arange(400) % 4 == 0, -8.0, 8.0)[:, np.newaxis] + random.standard_normal((400, 1))
    two = np.logaddexp(np.log(0.75) - (points[:, 0] - 8) ** 2 / 2, np.log(0.25) - (points[:, 0] + 8) ** 2 / 2)
    assert np.median(of_draws(points, two)[::4]) < 2
    assert np.median(of_draws(points, -((points[:, 0] - 8) ** 2) / 2)[::4]) == 5
    tail = random.standard_cauchy((4001, 1))
    assert of_draws(tail, -np.log1p(tail[:, 0] ** 2)).max() == 5
    assert of_draws(tail, -0.5 * np.log1p(tail[:, 0] ** 2)).mean() < 1.5


def test_weights_of_rounded_values_are_worth_as_many_draws() -> None:
    layout, rows = federation(5, sizes=(49, 106, 216), p=4)
    one, other = (importance.read_result(played(layout, rows, rounds_messages=which).server) for which in (True, False))
    assert one.posterior is not None
    assert other.posterior is not None
    assert one.posterior.effective > 0.99 * other.posterior.effective
    assert (np.abs(one.posterior.mean - other.posterior.mean) < 0.01 * other.posterior.sd).all()
    np.testing.assert_allclose(one.posterior.sd, other.posterior.sd, rtol=0.01)


def test_settings_without_rounding_have_the_unit_of_the_words() -> None:
    settings = chosen.importance(rounds_messages=True, clients=4)
    assert settings.needed() == 0.025
    assert settings.units_of_chains(1) == (2.0**-5, 0.125)
    assert settings.units_of_chains(32_000) == (2.0**-4, 0.25)
    # What all draws of a job say together counts, in however many rounds they are asked.
    assert [replace(settings, points=n, rounds=k).needed_at_draws() for n, k in ((4096, 1), (1024, 64), (65_536, 1))] == [
        0.05, 0.2, 0.2,
    ]  # fmt: skip
    assert replace(settings, clients=10**8).needed() == OF_WORDS
    assert replace(settings, rounds_messages=False).needed() == OF_WORDS
    assert replace(settings, rounds_messages=False).units_of_chains(1) is None


def test_a_client_that_takes_part_by_a_summary_tells_less_finely() -> None:
    layout, (own, *_) = federation(3)
    question = importance.AskCurvature(0, 1, np.zeros((1, layout.size)))
    told_by = {}
    for summaries in ((), (0,)):
        settings = chosen.importance(points=4096, rounds=1, clients=3, summaries=summaries, rounds_messages=True)
        state = importance.client("a", 0, settings, own, Prior.usual(layout))
        told_by[summaries] = importance.client_receive(state, question)[1][0]
    _, gradient, hessian = own.curvature(np.zeros((1, layout.size)), 1)
    of_gradient, of_hessian = of_derivatives(hessian[0], Prior.usual(layout).curvature(np.zeros(layout.size))[2], 3)
    np.testing.assert_array_equal(told_by[()].gradient[0], told(gradient[0], of_gradient))
    np.testing.assert_array_equal(told_by[(0,)].gradient[0], told(gradient[0], OF_QUADRATICS * of_gradient))
    np.testing.assert_array_equal(unpacked(told_by[(0,)].hessian, layout.size)[0], told(hessian[0], OF_QUADRATICS * of_hessian))
