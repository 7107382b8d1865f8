"""A vector whose prior has a scale that is learnt: no mode, and a posterior that is known by quadrature over the scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from fedkern.algorithms.importance import machine as importance
from fedkern.algorithms.importance import proposals as learnt_scale
from fedkern.algorithms.importance.proposals import Grid, Scaled
from fedkern.models.mixed import Layout, Prior
from fedkern.models.survival_parametric import Walk, shapes_of
from support.likelihoods import found

FULL = {"points": 4096, "effective": 2000}


class Seen:
    """y ~ N(a + b, sd^2) of each piece, b_0 = 0; of log s rows know nothing."""

    def __init__(self, y: np.ndarray, sd: float) -> None:
        m = len(y)
        self.size, self.y, self.sd = m + 1, y, sd
        self.A = np.hstack([np.ones((m, 1)), np.eye(m)[:, 1:], np.zeros((m, 1))])

    def values(self, points: np.ndarray, nodes: int) -> np.ndarray:
        off = (self.y - points @ self.A.T) / self.sd
        return -0.5 * (off**2).sum(axis=1) - len(self.y) * np.log(self.sd * np.sqrt(2 * np.pi))

    def curvature(self, points: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        H = self.A.T @ self.A / self.sd**2
        gradient = (self.y - points @ self.A.T) @ self.A / self.sd**2
        return self.values(points, nodes), gradient, np.broadcast_to(H, (len(points), *H.shape)).copy()

    def rule(self, points: np.ndarray, nodes: int) -> np.ndarray:
        return np.zeros(len(points))


def model(pieces: int) -> tuple[Layout, Walk]:
    layout = Layout(("intercept",), "piecewise", own=shapes_of("piecewise", tuple(range(1, pieces))))
    return layout, Walk(Prior.usual(layout))


def exact(models: list[Seen], m: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and sds of (a, b, log s), and the log evidence: given s all is normal."""
    grid = np.linspace(-10, 4, 4001)
    D = np.eye(m) - np.eye(m, k=-1)
    D[0, 0] = 1.0
    log, means, covariances = np.empty(len(grid)), np.empty((len(grid), m)), np.empty((len(grid), m, m))
    A = models[0].A[:, :m]
    for g, log_s in enumerate(grid):
        # (a, b_1 ..): a ~ N(0, 25), b_1 ~ N(0, s^2), b_j - b_(j-1) ~ N(0, s^2)
        B = np.eye(m)
        B[1:, 1:] = np.eye(m - 1) - np.eye(m - 1, k=-1)
        precision = B.T @ np.diag([1 / 25, *[np.exp(-2 * log_s)] * (m - 1)]) @ B
        n = sum(1 / one.sd**2 for one in models)
        H, g0 = precision + n * A.T @ A, sum(A.T @ one.y / one.sd**2 for one in models)
        mean = np.linalg.solve(H, g0)
        log[g] = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.linalg.slogdet(H)[1] + 0.5 * mean @ H @ mean
        log[g] += 0.5 * np.log(2 / np.pi) - 0.5 * np.exp(2 * log_s) + log_s
        log[g] -= sum(0.5 * (one.y**2).sum() / one.sd**2 + m * np.log(one.sd * np.sqrt(2 * np.pi)) for one in models)
        means[g], covariances[g] = mean, np.linalg.inv(H)
    evidence = float(logsumexp(log) + np.log(grid[1] - grid[0]))
    w = np.exp(log - logsumexp(log))
    mean = w @ means
    second = np.einsum("g,gi->i", w, means**2) + np.einsum("g,gii->i", w, covariances)
    log_s = w @ grid
    sds = np.sqrt([*(second - mean**2), w @ (grid - log_s) ** 2])
    return np.array([*mean, log_s]), sds, evidence


@pytest.mark.parametrize(("steps", "sd"), [((0.0, 0.1, -0.1, 0.0), 0.3), ((0.0, 1.0, -0.5, 1.5, 2.0), 0.2), ((0.0, 0.4), 0.5)])
def test_the_posterior_is_that_of_quadrature_over_the_scale(steps: tuple[float, ...], sd: float) -> None:
    y = np.array(steps) - 0.3
    layout, prior = model(len(y))
    models = [Seen(y + 0.1, sd), Seen(y - 0.2, 2 * sd)]
    result = found(models, prior, coordinates=coordinates(layout), start=layout.start, **FULL)
    mean, sds, evidence = exact(models, len(y))
    assert result.converged, result.reason
    assert result.rounds <= 3
    posterior = result.posterior
    np.testing.assert_allclose(posterior.mean, mean, atol=0.03 * sds.max())
    assert (np.abs(posterior.mean - mean) < 0.03 * sds).all(), (posterior.mean - mean) / sds
    assert (np.abs(posterior.sd / sds - 1) < 0.03).all(), posterior.sd / sds
    assert abs(result.log_evidence[0] - evidence) < max(4 * result.log_evidence[1], 0.01)


def coordinates(layout: Layout) -> importance.Coordinates:
    return importance.Coordinates(layout.names, loose=(), learnt=layout.size - 1)


def test_the_mode_of_the_rest_is_found_with_the_scale_where_it_was() -> None:
    y = np.array([0.0, 0.5, 0.2])
    layout, prior = model(3)
    result = found([Seen(y, 0.3)], prior, coordinates=coordinates(layout), start=layout.start, **FULL)
    assert result.mode[-1] == np.log(0.5)
    _, gradient, _ = prior.curvature(result.mode)
    assert np.abs((Seen(y, 0.3).curvature(result.mode[np.newaxis], 1)[1][0] + gradient)[:-1]).max() < 1e-6


def test_the_density_of_draws_is_that_which_they_are_made_by() -> None:
    """The mean of a normal density over it is 1."""
    y = np.array([0.0, 0.5, 0.2])
    layout, prior = model(3)
    seen, xi = Seen(y, 0.3), layout.start
    for _ in range(20):
        _, gradient, H = (one[0] for one in seen.curvature(xi[np.newaxis], 1))
        _, slope, curved = prior.curvature(xi)
        step = np.linalg.solve((H + curved)[:-1, :-1], (gradient + slope)[:-1])
        xi = xi + np.append(step, 0.0)

    def at(log_s: float) -> tuple[float, np.ndarray, np.ndarray]:
        return prior.curvature(np.append(xi[:-1], log_s))

    q = Scaled.around(Grid.about(xi, np.zeros(4), H + curved, at, 3, (1,)), 8192)
    first = q.points((), 3, 0)
    moved = q.adapted(first, np.full(len(first), 1 / len(first)), (1,))
    for one, z in ((q, first), (moved, moved.points((), 4, 1))):
        normal = -0.5 * (((z - xi) / 0.4) ** 2).sum(axis=1) - 4 * np.log(0.4 * np.sqrt(2 * np.pi))
        ratio = np.exp(normal - one.log_density(z, ()))
        error = ratio.std() / len(z) ** 0.5
        assert error < 0.08
        assert abs(ratio.mean() - 1) < 3 * error
    assert moved.log_density(z + np.array([0, 0, 0, 1e3]), ()).max() == -np.inf
    assert learnt_scale.LOW < z[:, 3].min() < z[:, 3].max() < learnt_scale.HIGH


def test_the_prior_of_the_walk_has_its_derivatives() -> None:
    _, prior = model(4)
    xi = np.array([0.3, 0.2, -0.4, 0.5, -0.7])
    value, gradient, curved = prior.curvature(xi)
    step = 1e-5
    for k in range(5):
        up, down = xi + step * np.eye(5)[k], xi - step * np.eye(5)[k]
        (high, high_slope, _), (low, low_slope, _) = prior.curvature(up), prior.curvature(down)
        assert (high - low) / (2 * step) == pytest.approx(gradient[k], abs=1e-7)
        np.testing.assert_allclose(-(high_slope - low_slope) / (2 * step), curved[k], atol=1e-6)
    assert prior.values(xi[np.newaxis])[0] == value
