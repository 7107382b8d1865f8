"""What a first look at rows tells: no cell with few rows, and no difference, sum or curve that gives one back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from fedkern.algorithms.exchanges.described import AskCells, AskParts, AskSums
from fedkern.disclosure import cells, curves, measures
from fedkern.disclosure.rules import LEVELS, Rules
from fedkern.models import life_table
from fedkern.privacy import binned
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import GRID, SecureSource
from support import first_looks

NONE, STANDARD, STRICT = LEVELS["none"], LEVELS["standard"], LEVELS["strict"]


def some_counts(rng: np.random.Generator, views: int, size: int) -> np.ndarray:
    """Counts of which many are few and some are none."""
    return rng.poisson(rng.choice([0, 1, 4, 30], size), (views, size))


# Cells --------------------


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("views", [1, 3])
def test_each_part_has_enough_rows_and_bins_join_their_neighbours(seed: int, views: int) -> None:
    rng = np.random.default_rng([seed, views])
    size, least = int(rng.integers(2, 12)), int(rng.integers(2, 12))
    counts = some_counts(rng, views, size)
    for parts in (cells.join(counts, least), cells.bins(counts, least, range(size - 1), size // 2)):
        assert sorted(cell for part in parts for cell in part) == list(range(size))
        assert cells.enough(counts, parts, least) or len([part for part in parts if counts[:, list(part)].any()]) <= 2
    for part in parts:
        own = [cell for cell in part if cell < size - 1]
        assert not own or own == list(range(own[0], own[-1] + 1))
    parts = cells.join(counts, least)
    for part in parts if views == 1 and len(parts) > 1 and cells.enough(counts, parts, least) else ():
        if (known := np.count_nonzero(counts[0, list(part)])) > 1:
            # Whoever knows that no joined cell is empty is left with as many values as rows are asked for.
            assert counts[0, list(part)].sum() - known >= least or len([p for p in parts if counts[:, list(p)].any()]) == 1


def test_bins_of_clients_have_much_in_common() -> None:
    rng = np.random.default_rng(1)
    clients = [np.append(rng.poisson(6, 20), 2) for _ in range(5)]
    assert len(cells.common(*(cells.bins(own, 5, range(20), 10) for own in clients))) >= 4
    assert len(cells.bins(clients[0], 3, range(20), 10, most=6)) == 6


def test_cells_that_have_enough_rows_or_none_stay_as_they_are() -> None:
    assert cells.join([9, 0, 5, 6], 5) == ((0,), (1,), (2,), (3,))
    assert cells.join([0, 0], 5) == ((0,), (1,))
    assert cells.join([4, 9, 0], 5) == ((0, 1), (2,))


@pytest.mark.parametrize("seed", range(30))
def test_parts_that_all_clients_have_add_up_and_keep_enough_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [some_counts(rng, 1, 8)[0] for _ in range(4)]
    own = [cells.bins(counts, 5, range(7), 3) for counts in clients]
    shared = cells.common(*own)
    for counts, parts in zip(clients, own, strict=True):
        assert all(any(set(part) <= set(whole) for whole in shared) for part in parts)
        assert cells.enough(counts, shared, 5) or not cells.enough(counts, parts, 5)


def width(table: np.ndarray, told: list[tuple[np.ndarray, int]], at: tuple[int, int]) -> float:
    """How many values a cell of a table may have, by sums that are told of it."""
    one = np.zeros(table.shape)
    one[at] = 1
    A, b = np.array([which.ravel() for which, _ in told]), [n for _, n in told]
    low, high = (sign * linprog(sign * one.ravel(), A_eq=A, b_eq=b).fun for sign in (1, -1))
    return float(high - low)


def sums_told(table: np.ndarray, both: tuple[cells.Parts, cells.Parts] | None) -> list[tuple[np.ndarray, int]]:
    margins = [(np.arange(table.shape[0])[:, None] == k) & np.ones(table.shape, bool) for k in range(table.shape[0])]
    margins += [(np.arange(table.shape[1]) == k) & np.ones(table.shape, bool) for k in range(table.shape[1])]
    for rows in both[0] if both else ():
        for columns in both[1] if both else ():
            which = np.zeros(table.shape, bool)
            which[np.ix_(rows, columns)] = True
            margins.append(which)
    return [(which, int(table[which].sum())) for which in margins]


def random_table(seed: int, least: int) -> np.ndarray:
    """A table whose rows and columns have enough rows each, and many cells few."""
    rng = np.random.default_rng(seed)
    while True:
        table = some_counts(rng, int(rng.integers(2, 5)), int(rng.integers(2, 6)))
        if min(table.sum(axis=0).min(), table.sum(axis=1).min()) >= least:
            return table


@pytest.mark.parametrize("seed", range(40))
def test_a_cell_of_a_cross_table_may_have_as_many_values_as_rows_are_asked_for(seed: int) -> None:
    table = random_table(seed, 5)
    told = sums_told(table, cells.cross(table, 5))
    for at in zip(*np.nonzero(table < 5), strict=True):
        assert width(table, told, at) >= 5 - 1e-6


def test_cells_left_out_alone_come_back() -> None:
    narrow = 0
    for seed in range(10):
        table = random_table(seed, 5)
        each = [(np.arange(table.size).reshape(table.shape) == k, int(n)) for k, n in enumerate(table.ravel()) if n >= 5]
        told = sums_told(table, None) + each
        narrow += any(width(table, told, at) < 5 for at in zip(*np.nonzero((table > 0) & (table < 5)), strict=True))
    assert narrow >= 8


def test_a_table_that_says_something_of_all_rows_of_a_group_is_not_told() -> None:
    assert cells.cross([[20, 30], [8, 0]], 5) is None
    assert cells.cross([[20, 30, 0], [8, 9, 0]], 5) == (((0,), (1,)), ((0,), (1,), (2,)))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_told_again_has_changed_by_enough_rows_in_each_part(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = some_counts(rng, 1, 6)[0] + rng.integers(0, 9)
    now = before + rng.poisson(rng.choice([0, 0, 2, 9], 6))
    parts = cells.coarsened(cells.join(before, 5), lambda own: cells.again(cells.added(now, own), cells.added(before, own), 5))
    if parts is None:
        assert 0 < (now - before).sum() < 5
        return
    assert sorted(cell for part in parts for cell in part) == list(range(6))
    change, there = cells.added(now - before, parts), cells.added(now + before, parts) > 0
    assert (change[there] >= 5).all() or not change.any()


def test_a_cell_to_which_no_new_row_comes_is_not_told_again_beside_others() -> None:
    assert cells.again([5, 60, 0], [5, 40, 0], 5).tolist() == [False, True, True]
    assert cells.again([5, 40, 0], [5, 40, 0], 5).all()


def test_other_cells_are_compared_where_both_have_their_ends_or_levels() -> None:
    assert cells.in_cells([5, 10, 12], [5, 11, 20], ((0,), (1,), (2,), (3,), (4,))) == {
        (0,): [0],
        (1, 2, 3): [1, 2, 3],
        (4,): [4],
    }
    assert cells.in_cells([5, 11, 20], [5, 11, 20], ((0, 1), (2,), (3, 4))) == {(0, 1): [0], (2,): [1], (3, 4): [2]}
    assert cells.in_cells(["a", "c"], ["a", "b"], ((0, 2), (1,))) == {(0, 2): [0], (1,): []}
    assert cells.in_cells([1.0], ["1", "2"], ((0,), (1,), (2,))) == {(0, 1): [0, 1, 2]}


def test_three_tables_of_three_factors_close_a_ring() -> None:
    pairs = [("a", "b"), ("c", "d"), ("b", "c")]
    assert cells.ring(pairs) is None
    assert cells.ring([*pairs, ("a", "d")]) == ("a", "d")
    assert cells.ring([("a", "a")]) == ("a", "a")


@pytest.mark.parametrize(("apart", "may"), [(0, True), (1, False), (8, False), (9, True)])
def test_a_part_that_has_few_rows_beside_those_of_a_job_is_found(apart: int, may: bool) -> None:
    assert cells.beside(((0, 2), (1,)), [30, 9], [([0], 30 - apart), ([1], 8)], 5).tolist() == [may, True]
    assert cells.beside(((0, 2), (1,)), [30, 9], [([0, 1], 39 - apart)], 5).tolist() == [may or apart > 0] * 2  # all that count


def test_a_job_with_few_rows_of_a_value_tells_the_others_of_its_part() -> None:
    assert cells.beside(((0,), (1, 2), (3,)), [30, 12, 6], [([0], 30), ([1], 9), ([2], 3)], 5).tolist() == [True, False, True]


# Numbers --------------------


def test_of_few_values_and_of_one_row_that_leads_no_sum_is_told() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    assert measures.measured(x, STANDARD)
    assert not measures.measured(x > 0, STANDARD)
    assert not measures.measured(x[:9], STANDARD)
    assert not measures.measured(np.append(x, 1e4), STANDARD)
    assert measures.measured(x > 0, NONE)


@pytest.mark.parametrize("seed", range(5))
def test_the_scale_of_numbers_says_little_beside_a_bin(seed: int) -> None:
    """Mean and sd are told to half an sd at most, whatever the rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(0, 50), rng.lognormal(0, 2), 80)
    sign, mean, sd = measures.scale(x)
    unit = measures.step(x.std(ddof=1) / 2)
    assert sign == (-1 if x.min() < 0 else 1)
    assert 0.2 <= unit / x.std(ddof=1) <= 0.5
    for told, exact in ((mean, x.mean()), (sd, x.std(ddof=1))):
        assert abs(told - exact) <= unit / 2 * (1 + 1e-9)
        assert abs(told / unit - round(told / unit)) < 1e-6
    assert measures.scale(np.ones(5)) == (1, 1, 0)


def test_products_are_those_of_the_rows_with_both() -> None:
    rng = np.random.default_rng(4)
    table = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))
    table[rng.random(table.shape) < 0.1] = np.nan
    found = measures.products([*table.T])
    for (i, j), told in zip(((0, 1), (0, 2), (1, 2)), found, strict=True):
        x, y = table[~np.isnan(table[:, i] + table[:, j])][:, [i, j]].T
        np.testing.assert_allclose(told, [len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])


# Curves --------------------


def lifetimes(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    time, limit = rng.exponential(600 - 200 * group), rng.uniform(0, 1500, n)
    return np.minimum(time, limit).round() + 1, (time <= limit).astype(float), group


def cells_of_times(
    time: np.ndarray, event: np.ndarray, group: np.ndarray, grid: np.ndarray, entry: np.ndarray | None = None
) -> np.ndarray:
    """Counts of events, of censored rows, of rows that enter where some do so late, and of rows without a time, of groups."""
    bins, lacking = len(grid) + 1, np.isnan(time) | np.isnan(event)
    last = 2 * bins if entry is None else 3 * bins + 1
    cell = np.where(lacking, last, np.searchsorted(grid, time) + bins * (event == 0))
    counts = np.array([np.bincount(cell[group == g], minlength=last + 1) for g in range(max(group) + 1)])
    if entry is not None:
        enters = np.where(entry > 0, 1 + np.searchsorted(grid, entry, side="right"), 0)
        counts[:, 2 * bins : -1] = [
            np.bincount(enters[(group == g) & ~lacking], minlength=bins + 1) for g in range(max(group) + 1)
        ]
    return counts


def told_of(counts: np.ndarray, grid: np.ndarray, rules: Rules) -> tuple[cells.Parts, life_table.Counts] | None:
    bins = len(grid) + 1
    parts = curves.parts(counts, bins, range(len(grid)), rules)
    return None if parts is None else (parts, curves.counts_of(parts, counts, grid))


@pytest.mark.parametrize("rules", [STANDARD, STRICT])
@pytest.mark.parametrize("seed", range(8))
def test_each_interval_has_enough_events_and_censored_rows_of_each_group(rules: Rules, seed: int) -> None:
    time, event, group = lifetimes(seed)
    time[:2] = np.nan
    grid = np.arange(30, 1500, 30.0)
    counts = cells_of_times(time, event, group, grid)
    found = told_of(counts, grid, rules)
    assert found is not None
    parts, told = found
    assert sorted(cell for part in parts for cell in part) == list(range(counts.shape[1]))
    rows = cells.added(counts, parts)
    assert ((rows == 0) | (rows >= rules.rows_per_value)).all()
    assert told.at_risk.min() >= rules.rows
    assert told.rows.tolist() == np.bincount(group).tolist()  # nobody sees that two rows have no time
    for g in (0, 1):
        for j, end in enumerate(told.ends):  # those that are not told yet count as at risk
            assert told.at_risk[g, j + 1] >= ((group == g) & (time > end)).sum()
            assert told.events[g, : j + 1].sum() == event[(group == g) & (time <= end)].sum()


def test_of_few_events_nothing_is_told_and_rows_without_times_are_left_out_where_they_are_many() -> None:
    time, event, group = lifetimes(1)
    grid = np.array([100.0, 200.0])
    assert told_of(cells_of_times(time, np.arange(400) < 4, group, grid), grid, STANDARD) is None
    time[::7] = np.nan
    found = told_of(cells_of_times(time, event, group, grid), grid, STANDARD)
    assert found is not None
    assert found[1].rows.tolist() == np.bincount(group[np.isfinite(time)]).tolist()


@pytest.mark.parametrize("rules", [STANDARD, STRICT])
@pytest.mark.parametrize("seed", range(8))
def test_where_rows_enter_late_each_interval_has_enough_of_them_and_enough_at_risk(rules: Rules, seed: int) -> None:
    time, event, group = lifetimes(seed, 800)
    entry = np.where(np.arange(800) % 3, (time * np.random.default_rng(seed).random(800)).round() - 1, 0)
    grid = np.arange(30, 1500, 30.0)
    counts = cells_of_times(time, event, group, grid, entry)
    bins = len(grid) + 1
    parts = curves.parts(counts, bins, range(len(grid)), rules)
    assert parts is not None
    assert sorted(cell for part in parts for cell in part) == list(range(counts.shape[1]))
    rows = cells.added(counts, parts)
    assert ((rows == 0) | (rows >= rules.rows_per_value)).all()
    told = curves.counts_of(parts, counts, grid)
    assert told.entered is not None
    for g in (0, 1):
        for j, end in enumerate(told.ends[:-1]):  # censored rows that are not told yet count as at risk
            assert told.at_risk[g, j + 1] >= ((group == g) & (time > end) & (entry < end)).sum() >= rules.rows
            assert told.entered[g, : j + 1].sum() == ((group == g) & (entry < end) & (entry > 0)).sum()


@pytest.mark.parametrize("late", [False, True])
def test_curve_and_test_are_those_of_statsmodels(late: bool) -> None:
    time, event, group = (np.concatenate(own) for own in zip(*map(lifetimes, range(4))))
    grid, entry = np.unique(time), (time * np.random.default_rng(2).random(len(time))).round() - 1 if late else None
    # With an interval for each time, the curve is Kaplan and Meier's.
    counts = cells_of_times(time, event, group, grid, entry)
    exact = curves.counts_of(tuple((k,) for k in range(counts.shape[1])), counts, grid, exact=True)
    found = life_table.curve(exact)
    for g in (0, 1):
        of_group = None if entry is None else entry[group == g]
        reference = SurvfuncRight(time[group == g], event[group == g], entry=of_group)
        at = np.searchsorted(exact.ends, reference.surv_times)
        some = reference.surv_prob > 0
        np.testing.assert_allclose(found.survival[g, at][some], reference.surv_prob[some], rtol=1e-9)
    chi2, _ = survdiff(time, event, group, entry=entry)
    np.testing.assert_allclose(life_table.log_rank(exact).chi2, chi2, rtol=1e-9)
    if late:
        return
    grid = np.arange(60, 1500, 60.0)
    joined = told_of(cells_of_times(time, event, group, grid), grid, STANDARD)
    assert joined is not None
    assert abs(life_table.log_rank(joined[1]).chi2 - chi2) < 0.1 * chi2


def test_a_curve_that_ends_at_0_has_limits() -> None:
    counts = life_table.Counts(np.array([1.0, 2.0, 3.0]), np.array([9]), np.array([[3, 6, 0]]), np.zeros((1, 3), np.int64))
    found = life_table.curve(counts)
    assert found.survival.tolist() == [[pytest.approx(2 / 3), 0.0, 0.0]]
    assert found.lower[0, 1:].tolist() == [0.0, 0.0]
    assert (found.upper[0, 1:] == found.upper[0, 0]).all()


# Noisy counts --------------------


def test_the_variance_is_that_of_the_noise() -> None:
    mechanism = Mechanism(sampling="counts", clip=1.0, dimension=40_000, unit="case", noise_multiplier=1.5)
    noise = mechanism.count(SecureSource(), np.zeros(40_000, np.int64))
    assert binned.Noise(mechanism.decay * GRID).variance == pytest.approx(noise.var(), rel=0.06)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_intervals_contain_what_rows_would_say_without_noise(epsilon: float) -> None:
    rng = np.random.default_rng(5)
    noise, ends, inside = binned.Noise(epsilon, clients=5), np.arange(0, 101, 5.0), []
    p = -np.expm1(-epsilon)
    for _ in range(400):
        x = np.clip(rng.normal(50, 14, 2000), 0, 99.9)
        counts = np.histogram(x, ends)[0]
        noisy = counts + (rng.geometric(p, (5, 20)) - rng.geometric(p, (5, 20))).sum(axis=0)
        yes = np.array([900.0, 1100.0]) + (rng.geometric(p, (5, 2)) - rng.geometric(p, (5, 2))).sum(axis=0)
        mean, share = binned.mean(noisy, noise, ends), binned.share(yes, noise, 0)
        median = binned.quantile(noisy, noise, ends, 0.5)
        sd = binned.sd(noisy, noise, ends)
        inside.append(
            [
                mean.lower <= x.mean() <= mean.upper,
                share.lower <= 0.45 <= share.upper,
                median.lower <= np.median(x) <= median.upper,
                sd.lower - 0.05 <= x.std() <= sd.upper + 0.05,
            ]
        )
    covered = np.mean(inside, axis=0)
    assert (covered > 0.85).all()
    assert covered[1] < 0.95


def test_counts_of_values_have_exact_means_and_those_of_bins_their_limits() -> None:
    x, exact = np.repeat([1.0, 2, 3, 7], [5, 9, 6, 4]), binned.Noise(math.inf)
    values = np.stack([[1, 2, 3, 7]] * 2, axis=-1)
    mean, sd = binned.mean([5, 9, 6, 4], exact, values), binned.sd([5, 9, 6, 4], exact, values)
    np.testing.assert_allclose([*mean, *sd], [x.mean()] * 3 + [x.std(ddof=1)] * 3)
    bins = binned.mean([14, 10], exact, [[1, 2], [3, 7]])
    assert (bins.lower, bins.upper) == pytest.approx(((14 * 1 + 10 * 3) / 24, (14 * 2 + 10 * 7) / 24))  # all at one end


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.999])
def test_intervals_hold_means_wherever_in_their_bins_rows_lie(shift: float) -> None:
    rng, ends, noise = np.random.default_rng(7), np.arange(0.0, 9.0), binned.Noise(0.3, clients=4)
    x, p = rng.binomial(7, 0.3, 1500), -np.expm1(-0.3)
    held = []
    for _ in range(200):
        noisy = np.bincount(x, minlength=8) + (rng.geometric(p, (4, 8)) - rng.geometric(p, (4, 8))).sum(axis=0)
        mean, sd = binned.mean(noisy, noise, ends), binned.sd(noisy, noise, ends)
        held.append([mean.lower <= x.mean() + shift <= mean.upper, sd.lower <= x.std() <= sd.upper])
    assert (np.mean(held, axis=0) > 0.88).all()


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_of_noisy_counts_are_in_order(seed: int) -> None:
    rng, ends, noise = np.random.default_rng(seed), np.arange(0.0, 9.0), binned.Noise(0.05)
    for _ in range(100):
        noisy = np.array([9, 0, 80, 0, 0, 40, 1, 2]) + rng.normal(0, noise.variance**0.5, 8)
        found = np.array([binned.quantile(noisy, noise, ends, share) for share in (0.25, 0.5, 0.75)])
        assert (np.diff(found[:, 0]) >= 0).all()
        assert (found[:, 1] <= found[:, 0]).all()
        assert (found[:, 0] <= found[:, 2]).all()


def test_an_interval_without_the_noise_would_miss() -> None:
    rng = np.random.default_rng(6)
    noisy = [300 + rng.normal(0, 5), 700 + rng.normal(0, 5)]
    narrow, wide = (binned.share(noisy, binned.Noise(decay), 0) for decay in (50.0, 0.2))
    assert narrow.upper - narrow.lower < 1e-6 < wide.upper - wide.lower
    assert binned.share([-3, 2], binned.Noise(0.5), 0)[1:] == (0.0, 1.0)


def test_noisy_survival_without_noise_is_the_curve_of_the_counts() -> None:
    counts = life_table.Counts(np.array([1.0, 2.0]), np.array([100]), np.array([[20, 15]]), np.array([[5, 10]]))
    for table in (counts, counts._replace(entered=np.array([[10, 20, 10]]))):
        value, lower, upper = binned.survival(table, binned.Noise(60.0))[0].T
        np.testing.assert_allclose(value, life_table.curve(table).survival[0])
        assert lower[1] <= value[1] <= upper[1]


# Sums --------------------


def test_a_client_rounds_its_sums_before_they_are_masked() -> None:
    """To a tenth of their standard errors: of whole numbers in which few missing cells count as the mean, too."""
    data = [first_looks.simulated(seed) for seed in range(3)]
    look = first_looks.Look(data, ["visits", "age"], STANDARD, [first_looks.Account() for _ in data], {})
    own = [client.parts(AskParts(0, look.agreed.ends, look.agreed.scale)) for client in look.clients]
    told = look.model.common([one.first for one in own])
    wanted = look.model.common_sums(told, [one.sums for one in own])
    look.clients[0].cells(AskCells(0, look.model.numbers(told)))
    moments = look.clients[0].moments(AskSums(0, wanted))
    for (j, name), (n, *sums) in zip(look.model.summed, moments.each[:, -1]):
        sd = look.agreed.scale[j, 1]
        values = first_looks.numbers_of(data[0].columns[name]) - look.agreed.scale[j, 0]
        exact = [n * np.nanmean(values**power) for power in (1, 2)]
        for total, unrounded, error in zip(sums, exact, (sd * n**0.5, (2 * n) ** 0.5 * sd**2)):
            unit = measures.step(0.1 * error)
            assert total / unit == pytest.approx(round(total / unit), abs=1e-6)
            assert 0 < abs(total - unrounded) <= unit / 2
    assert (moments.pairs[:, 0] > 0).all()


# The attacker --------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_attacker_with_two_looks_and_a_job_leaves_each_hidden_cell_wide(seed: int) -> None:
    found = first_looks.attack(seed, STANDARD)
    assert found.hidden > 50
    assert not found.narrow


def test_the_attacker_finds_cells_of_a_look_that_leaves_out_few_rows_alone() -> None:
    assert first_looks.attack_naive(0, STANDARD).narrow


@pytest.mark.parametrize("seed", range(4))
def test_when_few_rows_that_enter_late_end_is_not_known(seed: int) -> None:
    found = first_looks.attack_late(seed, STANDARD)
    assert found.hidden > 5
    assert not found.narrow


def test_when_few_rows_end_would_be_known_if_parts_had_few() -> None:
    assert first_looks.attack_late(3, STANDARD, Rules(rows=1, rows_per_value=2)).narrow
