"""Effects of rows whose likelihood is not concave in the predictor, which may have several modes: against fine grids."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from fedkern.kernels import rng
from fedkern.models.mixed import Layout, Rows, effects
from fedkern.models.mixed.conditional import Located, Spread, locate
from support.mixed_rows import log_density, point, rows

FAMILIES = ("student", "beta", "zero-inflated-poisson", "zero-inflated-negative-binomial")
KEY = rng.key(1, "posterior")
U = np.linspace(-12, 12, 8_001)


def two_modes(sd=0.05, tau=2.0):
    """A group whose rows stand at two places, one as often as the other, another that prefers one of two, and a group of one row;
    in the predictor's unit these are 40 and more of the rows' sds apart."""
    y = np.array([-1.1, -1.12, 1.1, 1.12, -2.0, 2.0, 2.05, 2.02, 0.3])
    layout = Layout(("intercept",), "student", ("intercept",))
    mine = Rows(layout, np.ones((len(y), 1)), y, np.array([0, 4, 8, 9]))
    return mine, np.array([0.0, np.log(tau), np.log(sd), np.log(3.0)])


def on_grid(mine, xi):
    """(3, U) joint log-densities of each group on the grid, and of each row there (U, n)."""
    T = np.exp(xi[mine.layout.group_at])[0]
    eta = mine.X @ xi[: mine.layout.p] + (0 if mine.offset is None else mine.offset) + T * U[:, np.newaxis]
    of_rows = np.maximum(log_density(mine, eta, xi), -1e4)
    return stats.norm.logpdf(U) + np.add.reduceat(of_rows, mine.starts[:-1], axis=1).T, of_rows


def integral(log):
    return logsumexp(log, axis=-1) + np.log(U[1] - U[0])


def cases():
    return list(_cases())


def _cases():
    yield pytest.param(*two_modes(), id="two modes")
    yield pytest.param(*two_modes(sd=0.5), id="two modes that meet")
    for family in FAMILIES:
        mine = rows(family, ("intercept",), sizes=(6, 1, 3, 40))
        for tau in (0.05, 1.0, 4.0):
            xi = point(mine.layout)
            xi[3] = np.log(tau)
            yield pytest.param(mine, xi, id=f"{family} {tau:g}")


@pytest.mark.parametrize(("mine", "xi"), cases())
def test_integrals_and_rows_left_out_are_those_of_grids(mine, xi):
    joint, of_rows = on_grid(mine, xi)
    whole = integral(joint)
    near = 0.01 if mine.layout.p == 1 else 1e-5  # of peaks that are apart
    assert Spread.of(mine, xi[np.newaxis]).integrals(0)[0] == pytest.approx(whole, abs=near)
    found = np.concatenate(list(effects.row_densities(mine, np.stack([xi, xi]), 15)), axis=1)[1]
    group = np.repeat(np.arange(mine.n_groups), np.diff(mine.starts))
    rest = np.array([integral(joint[g] - of_rows[:, i]) for i, g in enumerate(group)])
    np.testing.assert_allclose(found, whole[group] - rest, atol=max(near, 1e-3))


@pytest.mark.parametrize(("mine", "xi"), cases())
def test_effects_are_those_of_grids(mine, xi):
    joint, _ = on_grid(mine, xi)
    tau = np.exp(xi[mine.layout.group_at])[0]
    found = effects.of_groups(mine, np.tile(xi, (400, 1)), KEY)
    for g in range(mine.n_groups):
        weight = np.exp(joint[g] - logsumexp(joint[g]))
        mean = weight @ U
        sd = np.sqrt(weight @ (U - mean) ** 2)
        assert found.mean[g, 0] == pytest.approx(tau * mean, abs=2e-3 * tau * sd)
        assert found.sd[g, 0] == pytest.approx(tau * sd, rel=2e-3)
        assert found.above[g, 0] == pytest.approx(weight[U > 0].sum(), abs=0.05)
        drawn = found.drawn[:, :, g, 0].ravel() / tau
        share = np.interp(drawn, U, np.cumsum(weight))
        assert abs(np.sort(share) - (0.5 + np.arange(len(share))) / len(share)).max() < 0.1  # of a rule's few nodes


@pytest.mark.parametrize("family", ["poisson", "student", "zero-inflated-poisson"])
def test_one_effect_of_each_draw_has_the_distribution_of_a_grid(family):
    """Also of rows that are concave: a candidate is taken by its weight."""
    mine = rows(family, ("intercept",), sizes=(6, 1, 3, 40))
    xi = point(mine.layout)
    xi[3] = 0.0
    uniform = np.stack([rng.uniform(4, key=KEY, step=s) for s in range(2000)])
    found = effects.draw_effects(mine, np.tile(xi, (2000, 1)), uniform)[:, :, 0]
    joint, _ = on_grid(mine, xi)
    for g in range(4):
        weight = np.exp(joint[g] - logsumexp(joint[g]))
        mean = weight @ U
        sd = np.sqrt(weight @ (U - mean) ** 2)
        assert found[:, g].mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(2000))
        assert found[:, g].std() == pytest.approx(sd, rel=0.07)


def test_one_mode_would_be_wrong_of_two():
    mine, xi = two_modes()
    exact = integral(on_grid(mine, xi)[0])
    around = Located.of(mine, xi[np.newaxis]).integrals(60)[0]
    assert isinstance(locate(mine, xi[np.newaxis]), Spread)
    assert abs(around - exact).max() > 0.5


@pytest.mark.parametrize("family", FAMILIES)
def test_an_effect_of_the_client_is_that_of_one_group(family):
    mine = rows(family, (), ("intercept",), sizes=(30,))
    one = replace(mine, layout=replace(mine.layout, group=("intercept",), client=()), starts=np.array([0, 30]))
    xi = point(mine.layout)
    inner, found = effects.complete_draws(mine, np.tile(xi, (400, 1)), 15, KEY)
    wanted = effects.of_groups(one, np.tile(xi, (400, 1)), KEY)
    assert found.mean == pytest.approx(wanted.mean)
    assert found.sd == pytest.approx(wanted.sd)
    assert inner[:, 0].mean() == pytest.approx(xi[0] + wanted.mean[0, 0], abs=0.2 * wanted.sd[0, 0])
    assert inner[:, 0].std() == pytest.approx(wanted.sd[0, 0], rel=0.15)
    assert (inner[:, 1:] == np.delete(xi, 3)[1:]).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("group", "client", "said"),
    [
        (("intercept", "a"), (), "effects of a .* response are intercepts"),
        ((), ("intercept", "a"), "effects of a .* response are intercepts"),
        (("intercept",), ("intercept",), "effects of groups or of clients, not of both"),
    ],
)
def test_more_than_one_intercept_is_refused(family, group, client, said):
    with pytest.raises(ValueError, match=said):
        Layout(("intercept", "a"), family, group, client)
