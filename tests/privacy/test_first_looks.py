"""What a first look at rows tells: no cell with few rows, and no difference, sum or curve that gives one back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from fedkern.disclosure import cells, curves, measures
from fedkern.disclosure.rules import LEVELS
from fedkern.privacy import binned
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import GRID, SecureSource
from fedkern.privacy.sketch import Sketch
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
    counts, ordered = some_counts(rng, views, size), int(rng.choice([0, size - 1, size]))
    into = int(rng.integers(0, max(ordered, 1)))
    parts = cells.join(counts, least, ordered=ordered, into=into)
    assert sorted(cell for part in parts for cell in part) == list(range(size))
    assert cells.enough(counts, parts, least) or len([part for part in parts if counts[:, list(part)].any()]) == 1
    for part in parts:
        own = [cell for cell in part if cell < ordered]
        assert not own or own == list(range(own[0], own[-1] + 1))
        if views == 1 and np.count_nonzero(counts[0, list(part)]) > 1 and len(parts) > 1 and cells.enough(counts, parts, least):
            # Whoever knows that no joined cell is empty is left with as many values as rows are asked for.
            known = np.count_nonzero(counts[0, list(part)])
            assert counts[0, list(part)].sum() - known >= least or len([p for p in parts if counts[:, list(p)].any()]) == 1


def test_cells_that_have_enough_rows_or_none_stay_as_they_are() -> None:
    assert cells.join([9, 0, 5, 6], 5) == ((0,), (1,), (2,), (3,))
    assert cells.join([0, 0], 5) == ((0,), (1,))
    assert cells.join([4, 9, 0], 5) == ((0, 1), (2,))


@pytest.mark.parametrize("seed", range(30))
def test_parts_that_all_clients_have_add_up_and_keep_enough_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [some_counts(rng, 1, 8)[0] for _ in range(4)]
    own = [cells.join(counts, 5, ordered=7, into=3) for counts in clients]
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
def test_told_once_a_column_is_told_no_finer_and_rows_that_were_added_are_enough_in_each_part(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = some_counts(rng, 1, 6)[0] + rng.integers(0, 9)
    now = before + rng.poisson(rng.choice([0, 0, 2, 9], 6))
    earlier = cells.join(before, 5)
    told = cells.added(before, earlier)
    parts = cells.once(cells.join(now, 5), now, earlier, told, 5)
    if parts is None:
        assert 0 < (now - before).sum() < 5
        return
    for part in parts:
        owns = [one for one in earlier if set(one) <= set(part)]
        assert {cell for one in owns for cell in one} == set(part)
        change = int((now - before)[list(part)].sum())
        assert change == 0 or change >= 5
    assert cells.once(cells.join(before, 5), before, earlier, told, 5) == earlier  # asked again, the same


def test_other_bins_tell_counts_between_ends_that_were_told_alone() -> None:
    earlier, told = cells.in_bins([5, 10, 12], [5, 11, 20], ((0,), (1,), (2,), (3,), (4,)), [9, 8, 7, 6, 5])
    assert earlier == ((0,), (1, 2, 3), (4,))
    assert told.tolist() == [9, 21, 5]
    assert cells.in_bins([5, 11, 20], [5, 11, 20], ((0, 1), (2,), (3, 4)), [9, 8, 7])[0] == ((0, 1), (2,), (3, 4))


def test_three_tables_of_three_factors_close_a_ring() -> None:
    pairs = [("a", "b"), ("c", "d"), ("b", "c")]
    assert cells.ring(pairs) is None
    assert cells.ring([*pairs, ("a", "d")]) == ("a", "d")
    assert cells.ring([("a", "a")]) == ("a", "a")


@pytest.mark.parametrize(("apart", "found"), [(0, False), (1, True), (8, True), (9, False)])
def test_a_job_whose_level_is_a_part_but_for_few_rows_is_found(apart: int, found: bool) -> None:
    members = np.arange(60, dtype=np.uint64) << np.uint64(57)
    members += np.random.default_rng(1).integers(0, 2**57, 60, np.uint64)
    part, level = (Sketch.of("key", own, np.ones(len(own), np.uint64)) for own in (members, members[: 60 - apart]))
    assert bool(cells.few_apart({"no or missing": part}, {"no": level}, 5)) is found
    assert not cells.few_apart({"no": part}, {"no": level}, 5)


# Numbers --------------------


def test_of_few_values_and_of_one_row_that_leads_no_sum_is_told() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    assert measures.measured(x, STANDARD)
    assert not measures.measured(x > 0, STANDARD)
    assert not measures.measured(x[:9], STANDARD)
    assert not measures.measured(np.append(x, 1e4), STANDARD)
    assert not measures.measured(np.arange(12).repeat(9), STANDARD, parts=12)  # each value is a cell
    assert measures.correlation(x, np.roll(x, 1), STANDARD) is not None
    assert measures.correlation(x, x > 0, STANDARD) is None
    assert measures.correlation(x[:50], x[:50], STANDARD) is None  # fewer than ten cells of five rows each
    assert measures.moments(x > 0, NONE) is not None


@pytest.mark.parametrize("seed", range(10))
def test_pooled_mean_sd_and_correlation_are_those_of_all_rows_to_a_tenth_of_an_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [rng.gamma(3, 2, (2, int(rng.integers(60, 900)))) + rng.normal() for _ in range(5)]
    for own in clients:
        own[1] += own[0]
    every = np.hstack(clients)
    told = [[measures.moments(own[k], STANDARD) for own in clients] for k in (0, 1)]
    rs = [measures.correlation(*own, STANDARD) for own in clients]
    n = every.shape[1]
    for k in (0, 1):
        found = measures.pooled([one for one in told[k] if one is not None])
        sd = every[k].std(ddof=1)
        assert found.rows == n
        assert abs(found.mean - every[k].mean()) <= 0.1 * sd / math.sqrt(n)
        assert abs(found.sd - sd) <= 0.1 * sd / math.sqrt(2 * n)
    r = measures.pooled_correlation(*[[one for one in column if one] for column in told], [one for one in rs if one is not None])
    assert abs(r - np.corrcoef(every)[0, 1]) <= 0.1 / math.sqrt(n)


def test_a_quantile_lies_between_the_ends_that_are_told() -> None:
    rng = np.random.default_rng(2)
    x = np.append(rng.normal(60, 9, 300), [np.nan] * 3)
    inner = measures.ends(60, 9)
    counts = measures.binned(x, inner)
    assert counts.sum() == 303
    assert counts[-1] == 3
    parts = cells.join(counts, 5, ordered=len(inner) + 1, into=len(inner) // 2)
    for share in (0.1, 0.25, 0.5, 0.9):
        low, high = measures.quantile(cells.added(counts, parts), parts, inner, share)
        assert low - np.diff(inner)[0] <= np.nanquantile(x, share) <= high + np.diff(inner)[0]
        assert {low, high} <= {*inner.tolist(), -math.inf, math.inf}


# Curves --------------------


def lifetimes(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    time, limit = rng.exponential(600 - 200 * group), rng.uniform(0, 1500, n)
    return np.minimum(time, limit).round() + 1, (time <= limit).astype(float), group


@pytest.mark.parametrize("rules", [STANDARD, STRICT])
@pytest.mark.parametrize("seed", range(8))
def test_each_interval_has_enough_events_and_censored_rows_of_each_group(rules: object, seed: int) -> None:
    assert isinstance(rules, type(STANDARD))
    time, event, group = lifetimes(seed)
    time[:2] = np.nan
    told = curves.curve_counts(time, event, group, np.arange(30, 1500, 30.0), rules, 2)
    assert told is not None
    least = rules.rows_per_value
    assert ((told.events == 0) | (told.events >= least)).all()
    assert ((told.censored == 0) | (told.censored >= least)).all()
    assert told.at_risk[:, :-1].min() >= rules.rows
    assert told.rows.tolist() == np.bincount(group).tolist()  # nobody sees that two rows have no time
    for g in (0, 1):  # what comes after the last end is a difference
        rest = (group == g) & (time > told.ends[-1])
        assert event[rest].sum() == 0 or event[rest].sum() >= least
        unsaid = ((group == g) & ((event == 0) | np.isnan(time))).sum() - told.censored[g].sum()
        assert unsaid == 0 or unsaid >= least
        for j, end in enumerate(told.ends):  # those that are not told yet count as at risk
            assert told.at_risk[g, j + 1] >= ((group == g) & (time > end)).sum()


def test_of_few_events_nothing_is_told_and_rows_without_times_are_left_out_where_they_are_many() -> None:
    time, event, group = lifetimes(1)
    assert curves.curve_counts(time, np.arange(400) < 4, group, [100, 200], STANDARD, 2) is None
    few = curves.curve_counts(time, np.arange(400) > 3, group, [100, 200], STANDARD, 2)
    assert few is not None
    assert not few.censored.any()
    time[::7] = np.nan
    told = curves.curve_counts(time, event, group, np.arange(100, 1500, 100.0), STANDARD, 3)
    assert told is not None
    assert told.rows.tolist() == np.bincount(group[np.isfinite(time)], minlength=3).tolist()


def test_pooled_counts_are_those_of_all_rows_and_curve_and_test_are_those_of_statsmodels() -> None:
    parts = [lifetimes(seed) for seed in range(4)]
    grid = np.array([120.0, 240, 420])
    told = [one for part in parts if (one := curves.curve_counts(*part, grid, STANDARD, 2)) is not None and len(one.ends) == 3]
    assert len(told) == len(parts)
    pooled = curves.Counts(grid, *(np.sum([one[k] for one in told], axis=0) for k in (1, 2, 3)))
    time, event, group = (np.concatenate([one[k] for one in parts]) for k in range(3))
    for g in (0, 1):
        reference = SurvfuncRight(time[group == g], event[group == g])
        for j, end in enumerate(pooled.ends):
            assert pooled.at_risk[g, j + 1] >= ((group == g) & (time > end)).sum()
            assert pooled.events[g, : j + 1].sum() == event[(group == g) & (time <= end)].sum()
            before = 1.0 if j == 0 else curves.curve(pooled).survival[g, j - 1]
            assert before >= np.interp(end, reference.surv_times, reference.surv_prob) - 0.01
    # With an interval for each time, the curve is Kaplan and Meier's but for rows that are censored at it.
    exact = curves.curve_counts(time, event, group, np.unique(time), NONE, 2)
    assert exact is not None
    found = curves.curve(exact)
    for g in (0, 1):
        reference = SurvfuncRight(time[group == g], event[group == g])
        at = np.searchsorted(exact.ends, reference.surv_times)
        keep = at < len(exact.ends)
        np.testing.assert_allclose(found.survival[g, at[keep]][:300], reference.surv_prob[keep][:300], atol=3e-3)
    chi2, _ = survdiff(time, event, group)
    assert abs(curves.log_rank(exact).chi2 - chi2) < 0.02 * chi2
    joined = curves.curve_counts(time, event, group, np.arange(60, 1500, 60.0), STANDARD, 2)
    assert joined is not None
    assert abs(curves.log_rank(joined).chi2 - chi2) < 0.1 * chi2


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
    assert (covered[:2] > 0.85).all()
    assert (covered[:2] < 0.95).all()
    assert (covered[2:] > 0.85).all()


def test_an_interval_without_the_noise_would_miss() -> None:
    rng = np.random.default_rng(6)
    noisy = [300 + rng.normal(0, 5), 700 + rng.normal(0, 5)]
    narrow, wide = (binned.share(noisy, binned.Noise(decay), 0) for decay in (50.0, 0.2))
    assert narrow.upper - narrow.lower < 1e-6 < wide.upper - wide.lower
    assert binned.share([-3, 2], binned.Noise(0.5), 0)[1:] == (0.0, 1.0)


def test_noisy_survival_without_noise_is_the_curve_of_the_counts() -> None:
    counts = curves.Counts(np.array([1.0, 2.0]), np.array([100]), np.array([[20, 15]]), np.array([[5, 10]]))
    found = binned.survival([20, 15], [5, 10], 50, binned.Noise(60.0))
    np.testing.assert_allclose([one.value for one in found], curves.curve(counts).survival[0])
    assert found[1].lower <= found[1].value <= found[1].upper


# The attacker --------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_attacker_with_two_looks_and_a_job_leaves_each_hidden_cell_wide(seed: int) -> None:
    found = first_looks.attack(seed, STANDARD)
    assert found.hidden > 50
    assert not found.narrow


def test_the_attacker_finds_cells_of_a_look_that_leaves_out_few_rows_alone() -> None:
    assert first_looks.attack_naive(0, STANDARD).narrow
