"""How rows are dealt: every scheme deals each row at most once, and always the same way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkern.data import split
from fedkern.errors import JobError

LABELS = np.random.default_rng(5).random(1000) < 0.3


def test_train_and_test():
    train, test = split.train_test(11, 0.2)
    assert (len(train), len(test)) == (9, 2)
    assert sorted([*train, *test]) == list(range(11))
    np.testing.assert_array_equal(np.r_[train, test], np.random.RandomState(0).permutation(11))
    assert len(split.train_test(11, 0.0)[1]) == 0


@given(
    n_clients=st.integers(1, 12),
    rho=st.sampled_from([0.0, 0.3, 0.7]),
    kappa=st.sampled_from([-0.5, 0.0, 0.5]),
    rest=st.booleans(),
)
def test_imbalanced_deals_each_row_at_most_once(n_clients, rho, kappa, rest):
    if rho and n_clients % 2:
        with pytest.raises(
            JobError, match=r"1000 rows can't be dealt to \d+ clients with rho = 0\..; use fewer, or an even number"
        ):
            split.imbalanced(LABELS, n_clients, rho=rho, kappa=kappa)
        return
    parts = split.imbalanced(LABELS, n_clients, rho=rho, kappa=kappa, deal_rest=rest)
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) == 1000 if rest else 0 <= 1000 - len(rows) < 2 * n_clients
    small = parts[: n_clients // 2]
    assert {len(part) for part in small} <= {int((1 - rho) * 1000 / n_clients)}
    share = 1 - LABELS.mean() + LABELS.mean() * kappa
    assert all(abs((~LABELS[part]).sum() - share * len(part)) <= 1 for part in small)


def test_imbalanced_depends_on_the_seed_alone():
    one, same, other = (split.imbalanced(LABELS, 4, rho=0.5, seed=seed) for seed in (3, 3, 4))
    assert all((a == b).all() for a, b in zip(one, same))
    assert not all((a == b).all() for a, b in zip(one, other))


@pytest.mark.parametrize(
    ("labels", "n_clients", "change", "message"),
    [
        (LABELS, 4, {"kappa": -3.0}, "2 small clients of 250 rows need 618 positive rows, there are"),
        (np.r_[True, np.zeros(9, bool)], 20, {}, "10 rows can't be dealt to 20 clients"),
        (np.zeros(0, bool), 2, {}, "0 rows can't be dealt to 2 clients"),
    ],
)
def test_splits_that_the_rows_do_not_allow(labels, n_clients, change, message):
    with pytest.raises(JobError, match=message):
        split.imbalanced(labels, n_clients, **change)


@given(n=st.integers(1, 60), n_clients=st.integers(1, 60), seed=st.integers(0, 9))
def test_equal(n, n_clients, seed):
    if n_clients > n:
        with pytest.raises(JobError, match=f"{n} rows can't be dealt to {n_clients} clients; use 1 to {n}"):
            split.equal(n, n_clients, seed)
        return
    parts = split.equal(n, n_clients, seed)
    assert sorted(np.concatenate(parts)) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_by_column():
    parts = split.by_column(["b", "a", "b", "c"])
    assert {name: rows.tolist() for name, rows in parts.items()} == {"a": [1], "b": [0, 2], "c": [3]}
    assert list(parts) == ["a", "b", "c"]


def test_dirichlet_deals_every_row_and_skews_with_the_concentration():
    labels = np.repeat([0, 1, 2], 400)
    spread = {}
    for concentration in (0.05, 1000.0):
        parts = split.dirichlet(labels, 5, concentration, seed=1)
        assert sorted(np.concatenate(parts)) == list(range(1200))
        shares = np.array([np.bincount(labels[part], minlength=3) / 400 for part in parts])
        spread[concentration] = shares.std()
    assert spread[0.05] > 0.2 > 0.05 > spread[1000.0]
    with pytest.raises(ValueError, match=r"concentration must be > 0, got 0\.0"):
        split.dirichlet(labels, 5, 0.0)
