"""Own models: priors by name and their coordinates, derivatives by differences, and what is checked of a holder's code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from fedkern.errors import JobError, OwnFault
from fedkern.models.own import differences
from fedkern.models.own.priors import Block, Priors
from fedkern.models.own.supplied import Given, Own
from support.refusal import refusal

Array = np.ndarray

BLOCKS = {
    "normal": (Block("m", "normal", mean=1.5, sd=0.7), stats.norm(1.5, 0.7)),
    "student": (Block("m", "student", df=3.0, mean=-1.0, scale=2.0), stats.t(3.0, -1.0, 2.0)),
    "half-normal": (Block("s", "half-normal", sd=1.3), stats.halfnorm(scale=1.3)),
    "half-student": (Block("s", "half-student", df=1.0, scale=5.0), stats.halfcauchy(scale=5.0)),
    "gamma": (Block("s", "gamma", shape=2.5, rate=0.4), stats.gamma(2.5, scale=1 / 0.4)),
}


def slopes(f: Callable[[float], float], y: float) -> tuple[float, float]:
    """First and second derivative, independent of the package's."""
    h = 1e-4
    return (f(y + h) - f(y - h)) / (2 * h), (f(y + h) - 2 * f(y) + f(y - h)) / h**2


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_prior_is_that_of_scipy_in_its_coordinate(kind: str) -> None:
    block, known = BLOCKS[kind]
    priors = Priors((block,))
    for y in (-2.3, -0.4, 0.1, 1.7):
        x = float(priors.natural(np.array([[y]]))[0, 0])
        jacobian = x if kind in ("half-normal", "half-student", "gamma") else 1.0
        value, gradient, curved = priors.curvature(np.array([y]))
        assert value == pytest.approx(known.logpdf(x) + np.log(jacobian), rel=1e-12)
        assert priors.without_jacobian(np.array([[y]]))[0] == pytest.approx(known.logpdf(x), rel=1e-12)
        first, second = slopes(lambda t: float(priors.values(np.array([[t]]))[0]), y)
        assert gradient[0] == pytest.approx(first, rel=1e-6, abs=1e-7)
        assert curved[0, 0] == pytest.approx(-second, rel=1e-5, abs=1e-5)
    u = np.array([[0.1], [0.5], [0.93]])
    np.testing.assert_allclose(priors.natural(priors.drawn(u)), known.ppf(u), rtol=1e-9)


def test_a_correlation_matrix_has_the_prior_of_its_determinant() -> None:
    """The density of three correlations: det(R)^(eta - 1), times the Jacobian of what they are made of, but for a constant."""
    priors = Priors((Block("R", "lkj", 3, True, eta=2.5),))
    assert priors.names == ("R[2,1]", "R[3,1]", "R[3,2]")
    points = 0.7 * np.random.default_rng(0).standard_normal((5, 3))

    def made(y: Array) -> Array:
        a, b, c = priors.natural(y[np.newaxis])[0]
        return np.array([[1, a, b], [a, 1, c], [b, c, 1]])

    wanted = []
    for y in points:
        J = np.stack([(priors.natural(y[None] + h)[0] - priors.natural(y[None] - h)[0]) / 2e-6 for h in 1e-6 * np.eye(3)], axis=1)
        np.testing.assert_allclose(priors.jacobian(y), J, atol=1e-8)
        wanted.append(1.5 * np.log(np.linalg.det(made(y))) + np.log(abs(np.linalg.det(J))))
        assert np.linalg.eigvalsh(made(y))[0] > 0
    differ = priors.values(points) - wanted
    np.testing.assert_allclose(differ, differ[0], atol=1e-7)
    bare = priors.without_jacobian(points) - [1.5 * np.log(np.linalg.det(made(y))) for y in points]
    np.testing.assert_allclose(bare, bare[0], atol=1e-10)


def test_a_correlation_prior_adds_up_to_one_and_its_draws_are_its() -> None:
    for eta in (0.7, 1.0, 4.0):
        priors = Priors((Block("R", "lkj", 2, True, eta=eta),))
        area = integrate.quad(lambda y, own=priors: np.exp(own.values(np.array([[y]]))[0]), -20, 20)[0]
        assert area == pytest.approx(1, abs=1e-8)
        known = stats.beta(eta, eta)
        u = np.array([[0.05], [0.5], [0.8]])
        np.testing.assert_allclose((priors.natural(priors.drawn(u)) + 1) / 2, known.ppf(u), rtol=1e-9)
    assert Priors((Block("R", "lkj", 4, True, eta=1.0),)).size == 6


BOTH = Priors((Block("b", "normal", 2, True), Block("s", "half-normal"), Block("R", "lkj", 3, True, eta=2.0)))


class Smooth:
    """A function of all parameters with its derivatives, by complex steps of nothing but itself."""

    names = BOTH.names

    def __init__(self, n: int = 3) -> None:
        self.asked: list[int] = []
        if n < 3:
            del self.names

    def one(self, x: Any) -> Any:
        return -0.5 * (x[0] - 1) ** 2 * x[2] + np.sin(x[1] * x[2]) + x[3] * x[4] - np.exp(x[5] * x[0]) + 0.3 * x[2] ** 3

    def values(self, points: Array) -> Array:
        self.asked.append(len(points))
        return self.one(points.T)


class WithGradient(Smooth):
    def gradient(self, points: Array) -> Array:
        return np.array([[np.imag(self.one(x + 1e-30j * e)) / 1e-30 for e in np.eye(6)] for x in points])


class WithAll(WithGradient):
    def curvature(self, points: Array) -> Array:
        def slope(x: Array) -> Array:
            return self.gradient(x[np.newaxis])[0]

        h = 1e-5
        return -np.array([[(slope(x + h * e) - slope(x - h * e)) / (2 * h) for e in np.eye(6)] for x in points])


def wrapped(supplied: object, priors: Priors | None = BOTH, local: bool = False) -> Own:
    names = BOTH.names if priors is None else priors.names
    return Own.of(supplied, "client 'a': the model of factory \"p:f\"", names, priors, local=local)


def test_derivatives_in_the_coordinates_are_the_same_whatever_a_model_has() -> None:
    """By differences of values, of gradients, and by its own Hessian: each against steps in the coordinates themselves."""
    points = 0.5 * np.random.default_rng(3).standard_normal((3, 6))
    plain, exact = wrapped(Smooth()), wrapped(WithGradient())
    h = 1e-4
    for own in (plain, exact, wrapped(WithAll())):
        value, gradient, curved = own.curvature(points)
        np.testing.assert_allclose(value, own.values(points), rtol=1e-14)
        np.testing.assert_allclose(own.gradients(points)[1], gradient, atol=1e-8)
        for k, e in enumerate(np.eye(6)):
            first = (plain.values(points + h * e) - plain.values(points - h * e)) / (2 * h)
            np.testing.assert_allclose(gradient[:, k], first, atol=5e-5 if own is plain else 2e-7)
            second = (exact.gradients(points + h * e)[1] - exact.gradients(points - h * e)[1]) / (2 * h)
            np.testing.assert_allclose(-curved[:, k], second, atol=5e-4 if own is plain else 1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize("height", [0.0, 1e4])
def test_differences_find_their_steps(scale: float, height: float) -> None:
    """A log-density whose width is that of a coordinate, far from 0 and on a hill: derivatives that are known."""
    A = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]]) / scale**2
    centre = scale * np.array([30.0, -5.0, 0.0])

    def values(points: Array) -> Array:
        d = points - centre
        return height - 0.5 * np.einsum("ni,ij,nj->n", d, A, d) - 0.02 * np.sin(d / scale).sum(axis=1)

    points = centre + scale * np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [20.0, 4.0, -9.0]])
    d = points - centre
    wanted = -d @ A - 0.02 * np.cos(d / scale) / scale
    bent = A - 0.02 * np.sin(d / scale)[:, :, np.newaxis] * np.eye(3) / scale**2
    value, gradient, curved = differences.curvature(values, points)
    np.testing.assert_allclose(gradient, wanted, atol=3e-6 / scale)
    np.testing.assert_allclose(curved, bent, atol=2e-5 / scale**2)
    assert value[0] == height


def test_a_step_stays_where_there_is_a_density() -> None:
    def values(points: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(points[:, 0] > 0, 3 * np.log(np.maximum(points[:, 0], 1e-300)) - points[:, 0], -np.inf)

    _, gradient, curved = differences.curvature(values, np.array([[1e-3], [3.0]]))
    np.testing.assert_allclose(gradient[:, 0], [3e3 - 1, 0], atol=1e-4 * 3e3)
    np.testing.assert_allclose(curved[:, 0, 0], [3e6, 1 / 3], rtol=1e-3)


def test_parameters_come_in_the_order_of_the_model() -> None:
    class Turned(Smooth):
        names = tuple(reversed(BOTH.names))

        def values(self, points: Array) -> Array:
            return self.one(points[:, ::-1].T)

    points = 0.5 * np.random.default_rng(5).standard_normal((4, 6))
    for one, other in zip(wrapped(Turned()).curvature(points), wrapped(Smooth()).curvature(points)):
        np.testing.assert_allclose(one, other, atol=1e-12)


class Faulty(WithGradient):
    """Whose answers are what they are made to be."""

    def __init__(self, answer: Callable[[Array], object]) -> None:
        super().__init__()
        self.answer = answer

    def values(self, points: Array) -> Any:
        return self.answer(points)


def secret(points: Array) -> object:
    raise ValueError("cell 4711 of patient Ada")


FAULTS: dict[str, tuple[Callable[[Array], object], str, str]] = {
    "raises": (secret, r"values failed \(ValueError\); mend the package", "cell 4711 of patient Ada"),
    "wrong size": (lambda p: np.zeros(7), r"values must return float64 numbers of the shape \(200,\)", r"of the shape \(7,\)"),
    "float32": (lambda p: np.zeros(len(p), np.float32), "values must return float64", "float32"),
    "no array": (lambda p: None, "values must return float64", "object"),
    "not a number": (
        lambda p: np.where(np.arange(len(p)) % 10 == 0, np.nan, 0.0),
        "no numbers at more than 1 %",
        "10.0 %, first at",
    ),
    "infinite": (lambda p: np.full(len(p), np.inf), "no numbers at more than 1 %", "100.0 %"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_goes_wrong_is_named_and_cells_are_for_the_holder(kind: str) -> None:
    answer, told, own = FAULTS[kind]
    with pytest.raises(OwnFault, match=told) as fault:
        wrapped(Faulty(answer)).values(np.zeros((200, 6)))
    assert str(fault.value).startswith("client 'a': the model of factory \"p:f\"")
    assert "4711" not in str(fault.value)
    assert "shape (7,)" not in str(fault.value)
    assert own.replace("\\", "") in fault.value.own


class Forgetful(Smooth):
    def values(self, points: Array) -> Array:
        return super().values(points) + len(self.asked)


class Uphill(WithGradient):
    def gradient(self, points: Array) -> Array:
        return -super().gradient(points)


class Hessian(WithAll):
    def curvature(self, points: Array) -> Array:
        return -super().curvature(points)


class Leaving(Smooth):
    def values(self, points: Array) -> Array:
        raise SystemExit(0)


class Talking(Smooth):
    def values(self, points: Array) -> Array:
        print("a cell", points)
        print("a cell", file=sys.stderr)
        return super().values(points)


def test_what_a_package_prints_goes_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    """A launcher shows what a rank prints to whoever started the job."""
    wrapped(Talking()).curvature(np.full((1, 6), 0.2))
    print("a line of its own")
    assert capsys.readouterr() == ("a line of its own\n", "")


INCONSISTENT: dict[str, tuple[type[Smooth], str]] = {
    "a memory": (Forgetful, "values are not the same when they are asked twice"),
    "a gradient of the wrong sign": (Uphill, "gradient is not that of values"),
    "a Hessian in the place of minus the Hessian": (Hessian, "curvature is not that of gradient"),
    "an exit": (Leaving, r"values failed \(SystemExit\)"),
}


@pytest.mark.parametrize("kind", INCONSISTENT)
def test_answers_are_held_against_each_other_at_the_first_question(kind: str) -> None:
    """For a search ends at no mode with them, and its words would lead nowhere."""
    supplied, told = INCONSISTENT[kind]
    point = np.array([[0.3, 0.2, -0.1, 0.4, 0.2, 0.1]])
    with pytest.raises(OwnFault, match=told):
        wrapped(supplied()).curvature(point)
    for right in (Smooth, WithGradient, WithAll):
        wrapped(right()).curvature(point)


def test_minus_infinity_and_few_that_are_no_number_are_weights_of_nothing() -> None:
    found = wrapped(Faulty(lambda p: np.where(np.arange(len(p)) == 3, np.nan, -np.inf))).values(np.zeros((200, 6)))
    assert np.isnan(found[3])
    assert (found[4:] == -np.inf).all()


def test_a_model_without_what_is_needed_is_refused() -> None:
    class Nothing:
        names = BOTH.names

    class Other(Smooth):
        names = ("b[1]", "b[2]", "x")

    class Twice(Smooth):
        names = (*BOTH.names[:5], "b[1]")

    class Prior(Smooth):
        def log_prior(self, points: Array) -> Array:
            return np.zeros(len(points))

    class Local(Smooth):
        local_size = 3

    with pytest.raises(JobError, match="has no names, a list"):
        wrapped(object())
    with pytest.raises(JobError, match="has no method values"):
        wrapped(Nothing())
    with refusal(JobError, "x", "s"):
        wrapped(Other())
    with pytest.raises(JobError, match=r"it lacks 'R\[3,2\]'"):
        wrapped(Twice())
    with pytest.raises(JobError, match=r"has a prior of its own \(log_prior\), and the job has \[model.priors\]"):
        wrapped(Prior())
    with refusal(JobError, "model.local"):
        wrapped(Local())
    with pytest.raises(JobError, match="has no method log_joint_grad"):
        wrapped(Local(), local=True)


def test_a_prior_of_the_model_itself() -> None:
    class Mine:
        names = ("a", "s")
        starts = np.array([[3.0, 4.0]])

        def values(self, points: Array) -> Array:
            return np.zeros(len(points))

        def log_prior(self, points: Array) -> Array:
            return stats.norm.logpdf(points[:, 0], 1, 2) + stats.halfnorm.logpdf(np.exp(points[:, 1])) + points[:, 1]

        def natural(self, points: Array) -> Array:
            return np.column_stack([points[:, 0], np.exp(points[:, 1])])

    names = ("a", "s")
    given = Given(Own(Mine(), "the server", np.arange(2), None), names)
    same = Priors((Block("a", "normal", mean=1.0, sd=2.0), Block("s", "half-normal")))
    xi = np.array([0.3, -0.6])
    for one, other in zip(given.curvature(xi), same.curvature(xi)):
        np.testing.assert_allclose(one, other, atol=1e-8)
    np.testing.assert_allclose(given.natural(xi[np.newaxis]), same.natural(xi[np.newaxis]))
    u = np.array([[0.5, 0.5], [0.75, 0.0]])
    np.testing.assert_allclose(given.drawn(u), [[3.0, 4.0], [1.0, -2.0]])
