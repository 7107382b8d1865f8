"""Parts of importance sampling: steps to a mode, the coordinates that they are taken in, and what draws come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkern.algorithms.importance import proposals
from fedkern.algorithms.importance.newton import Climb, Metric, spelled
from fedkern.algorithms.importance.proposals import Coordinates, Derivatives, Proposal
from support.likelihoods import Function, Normal

# Steps --------------------


def climbed(function: Function | Normal, start: list[float], most: int = 40) -> tuple[Climb, list[Climb]]:
    climb, path = Climb.begin(np.array([start])), []
    while not climb.ended and len(path) < most:
        climb = climb.climbed(*function.curvature(climb.trial))
        path.append(climb)
    return climb, path


def test_of_a_quadratic_one_step_is_enough_within_the_radius_and_a_cut_one_doubles_it() -> None:
    near, path = climbed(Normal(np.array([0.5, -0.5]), np.eye(2)), [0.0, 0.0])
    assert near.done.all()
    assert len(path) == 2
    _, path = climbed(Normal(np.array([100.0, 0.0]), np.eye(2)), [0.0, 0.0])
    lengths = [float(step.length[0]) for step in path]
    assert lengths[:4] == pytest.approx([2, 4, 8, 16])  # the radius is max(2, sqrt 2) at first
    assert path[0].cut[0]
    assert path[-1].at[0] == pytest.approx([100, 0])


def test_units_decide_nothing() -> None:
    """The same quadratic, a coordinate in millionths: the same lengths of steps, nothing at the floor."""
    rng = np.random.default_rng(0)
    X, unit = rng.standard_normal((9, 3)), np.array([1.0, 1e6, 1e-6])
    A, mean = X.T @ X, np.array([3.0, -4.0, 5.0])
    plain, path = climbed(Normal(mean, A), [0.0, 0.0, 0.0])
    other, others = climbed(Normal(mean * unit, A / np.outer(unit, unit)), [0.0, 0.0, 0.0])
    np.testing.assert_allclose(other.at[0] / unit, plain.at[0], rtol=1e-9)
    np.testing.assert_allclose([one.length[0] for one in others], [one.length[0] for one in path], rtol=1e-8)


def test_near_is_near_in_every_direction_and_not_in_every_coordinate_alone() -> None:
    """Of two columns that nearly say the same each has the sd of a vague prior; what is known is their sum."""
    A = 25 * np.ones((2, 2)) + 1e-8 * np.eye(2)
    found, _ = climbed(Normal(np.array([3.0, 3.0]), A), [0.0, 0.0])
    assert found.done.all()
    assert found.at[0].sum() == pytest.approx(6.0, abs=1e-3)


def test_an_even_density_that_is_flat_at_its_mode_has_one() -> None:
    """Each step is a third of the way, so that the curvature never settles, which tells of separation in other coordinates."""
    flat = Function(1, lambda x: -300 * x[:, 0] ** 4)

    def ended(even: tuple[int, ...]) -> Climb:
        climb = Climb.begin(np.array([[1.0]]))
        for _ in range(20):
            climb = climb.climbed(*flat.curvature(climb.trial), even=even)
        return climb

    assert not ended(()).ended
    assert ended((0,)).done.all()
    assert abs(ended((0,)).at[0, 0]) < 0.03


def test_a_saddle_is_left_and_a_plateau_is_none() -> None:
    two = Function(2, lambda x: -((x[:, 0] ** 2 - 1) ** 2) - 0.5 * x[:, 1] ** 2)
    climb, _ = climbed(two, [0.0, 0.0])
    assert climb.done.all()
    assert abs(climb.at[0, 0]) == pytest.approx(1.0, abs=1e-3)
    flat, _ = climbed(Normal(np.zeros(2), np.diag([1.0, 0.0])), [1.0, 1.0])
    assert flat.flat.all()
    assert not flat.done.any()
    assert spelled(Metric.of(flat.hessian[0]).flattest, ("a", "b")) == "'b'"


def test_several_climbs_do_not_know_each_other() -> None:
    two = Function(1, lambda x: -((x[:, 0] ** 2 - 1) ** 2))
    both = Climb.begin(np.array([[0.4], [-3.0]]))
    while not both.ended:
        both = both.climbed(*two.curvature(both.trial))
    for i, start in enumerate(([0.4], [-3.0])):
        alone, _ = climbed(two, start)
        np.testing.assert_array_equal(both.at[i], alone.at[0])


# Coordinates --------------------

NAMES = ("beta", "log t00", "t10", "log t11", "phi")
OF_T = Coordinates(NAMES, fold=((4,),), scales=((1, 2), (3,)))
UNITS = np.array([1.0, 2.0])


def smooth(x: np.ndarray) -> np.ndarray:
    """Of T T' and phi^2 alone, as a likelihood with effects T u is."""
    a, b, c = np.exp(x[:, 1]), x[:, 2], np.exp(x[:, 3])
    return (
        -0.5 * (x[:, 0] - 0.3) ** 2 * (1 + a**2)
        - (a * a - 0.5) ** 2
        - 0.3 * (a * b - 0.2) ** 2
        - (b * b + c * c - 1) ** 2
        - x[:, 4] ** 2
    )


XI = Function(5, lambda x: smooth(x) + x[:, 1] + x[:, 3], step=1e-4)  # the density of xi has the Jacobian
Z = Function(5, lambda z: smooth(OF_T.sent(z, UNITS)), step=1e-4)


@pytest.mark.parametrize("z", [[0.1, 0.7, -0.4, 1.1, 0.2], [0.1, -0.7, 0.4, 1.1, -0.2], [0.0, 3e-2, 0.3, -0.5, 0.0]])
def test_derivatives_are_those_of_the_signed_columns(z: list[float]) -> None:
    at = np.array([z])
    found = OF_T.derivatives(at, UNITS, Derivatives(*XI.curvature(OF_T.sent(OF_T.safe(at, UNITS), UNITS))))
    for got, want in zip(found, Z.curvature(at), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("t", [0.0, 3e-4, -3e-4])
def test_near_zero_they_are_those_of_an_even_function(t: float) -> None:
    """Where those in the logarithm are rounded away."""
    at = np.array([[0.1, 0.8, 0.0, t, 0.2]])
    found = OF_T.derivatives(at, UNITS, Derivatives(*XI.curvature(OF_T.sent(OF_T.safe(at, UNITS), UNITS))))
    want = Z.curvature(np.array([[0.1, 0.8, 0.0, 0.05, 0.2]]))  # a little away the differences in t can be taken
    assert found.gradient[0, 3] == pytest.approx(want[1][0, 3] * t / 0.05, abs=2e-4)
    assert found.hessian[0, 3, 3] == pytest.approx(want[2][0, 3, 3], rel=0.02)
    np.testing.assert_allclose(found.gradient[0, :3], want[1][0, :3], atol=0.02)


def test_a_column_and_its_mirror_image_are_sent_as_one() -> None:
    z = np.array([[0.1, 0.7, -0.4, 1.1, 0.2]])
    for group in OF_T.scales:
        mirrored = z.copy()
        mirrored[:, list(group)] *= -1
        np.testing.assert_array_equal(OF_T.sent(mirrored, UNITS), OF_T.sent(z, UNITS))
    np.testing.assert_allclose(OF_T.of(OF_T.sent(z, UNITS)), z)
    assert OF_T.mirrored == ((4,), (1, 2), (3,))


# What draws come from --------------------


def example(n: int = 4096) -> Proposal:
    mean, scale = np.array([[0.5, -1.0], [3.0, 1.0]]), np.array([[[1.0, 0.6], [0.6, 2.0]], [[0.2, 0.0], [0.0, 0.1]]])
    return Proposal.of(mean, scale, np.array([0.75, 0.25]), n)


def test_the_density_is_that_of_the_mixture() -> None:
    q, x = example(), np.random.default_rng(0).standard_normal((50, 2)) * 3
    each = [stats.multivariate_t.logpdf(x, m, S, df=q.df) for m, S in zip(q.mean, q.scale, strict=True)]
    want = np.logaddexp(np.log(0.75) + each[0], np.log(0.25) + each[1])
    np.testing.assert_allclose(q.log_density(x, ()), want, rtol=1e-10)
    folded = proposals.folded(x, ((0, 1),))
    images = [np.exp(q.log_density(sign * folded, ())) for sign in (1, -1)]
    np.testing.assert_allclose(np.exp(q.log_density(folded, ((0, 1),))), sum(images), rtol=1e-10)


def test_points_have_the_distribution() -> None:
    q = example(2**14)
    x = q.points((), 3, 0)
    assert len(x) == 2**14
    np.testing.assert_allclose(x.mean(axis=0), 0.75 * q.mean[0] + 0.25 * q.mean[1], atol=0.01)
    first = x[: int(q.counts[0])]
    share = ((first - q.mean[0]) @ np.linalg.inv(np.linalg.cholesky(q.scale[0])).T)[:, 0]
    assert stats.kstest(share, stats.t(q.df).cdf).statistic < 0.01
    assert stats.kstest(q.points(((0,),), 3, 0)[:, 0], np.abs(x[:, 0])).statistic == 0


def test_wide_components_leave_the_others_as_they_are_given_these() -> None:
    """Of the wider one the regression of all others on the loose coordinates is that of the first."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((9, 5))
    q = Proposal.of(np.zeros((1, 5)), np.linalg.inv(X.T @ X)[np.newaxis], np.ones(1), 1000)
    wide = q.with_wide((1, 3))
    assert (wide.cores, wide.counts.tolist()) == (1, [800, 200])
    A, B = wide.scale
    loose, rest = [1, 3], [0, 2, 4]
    np.testing.assert_allclose(B[np.ix_(loose, loose)], proposals.WIDER**2 * A[np.ix_(loose, loose)])
    for one in (A, B):
        regression = one[np.ix_(rest, loose)] @ np.linalg.inv(one[np.ix_(loose, loose)])
        left = one[np.ix_(rest, rest)] - regression @ one[np.ix_(loose, rest)]
        np.testing.assert_allclose(regression, A[np.ix_(rest, loose)] @ np.linalg.inv(A[np.ix_(loose, loose)]), atol=1e-10)
        np.testing.assert_allclose(left, np.linalg.inv((X.T @ X)[np.ix_(rest, rest)]), rtol=1e-8)
    assert q.with_wide(()) is q


def test_a_proposal_follows_many_draws_and_hardly_few() -> None:
    rng = np.random.default_rng(2)
    S = np.array([[1.0, 0.8], [0.8, 2.0]])
    q = Proposal.of(np.zeros((1, 2)), np.eye(2)[np.newaxis], np.ones(1), 1000)
    x = rng.multivariate_normal([1.0, -1.0], S, 100_000)
    many = q.adapted(x, np.full(len(x), 1 / len(x)), ())
    np.testing.assert_allclose(many.mean[0], [1, -1], atol=0.02)
    np.testing.assert_allclose(many.scale[0], S, atol=0.03)
    one = np.zeros(len(x))
    one[0] = 1.0
    few = q.adapted(x, one, (0, 1))
    np.testing.assert_allclose(few.mean[0], x[0] / 3)  # worth 1 of 1 + P
    assert (np.linalg.eigvalsh(few.scale[0]) > 0.9).all()
    assert few.cores == 1


def test_components_follow_their_own_draws() -> None:
    q, rng = example(), np.random.default_rng(3)
    x = np.concatenate(
        [rng.multivariate_normal([0.0, -1.0], np.eye(2), 4000), rng.multivariate_normal([3.2, 1.2], 0.1 * np.eye(2), 1000)]
    )
    after = q.adapted(x, np.full(5000, 1 / 5000), ())
    np.testing.assert_allclose(after.mean, [[0.0, -1.0], [3.2, 1.2]], atol=0.1)
    np.testing.assert_allclose(after.counts / 4096, [0.8, 0.2], atol=0.02)
    assert replace(after, counts=q.counts).counts.sum() == 4096


def test_where_something_is_known_to_be_loose_only_that_is_wide() -> None:
    names = tuple("abcdefgh")
    assert Coordinates(names[:3]).wide == (0, 1, 2)
    assert Coordinates(names).wide == ()
    assert Coordinates(names[:3], loose=(2,)).wide == Coordinates(names, loose=(2,)).wide == (2,)
