"""Kernels take arrays that refuse what CuPy's do (`support.hosted`): to become NumPy arrays unasked, or to stand beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern import kernels, testing
from fedkern.kernels import homes
from fedkern.kernels._record import KERNELS
from fedkern.testing import shrinkage as of_local
from support import hosted

NAMES = sorted(name for name, kernel in KERNELS.items() if "cuda" in kernel.backends)
FROM_PARAMETERS = {"gamma": 1, "inverse_gaussian": 2, "polya_gamma": 1}  # variates -> parameters


@pytest.fixture(autouse=True)
def card() -> Iterator[hosted.Card | hosted.Real]:
    with hosted.instead_of_a_card() as card, np.errstate(all="ignore"):
        yield card


@pytest.mark.parametrize("name", NAMES)
def test_conforms_with_arrays_that_never_become_those_of_the_host(name: str) -> None:
    for seed in range(4):
        testing.assert_conforms(name, "cuda", testing.case(name, seed))


@pytest.mark.parametrize(("name", "count"), FROM_PARAMETERS.items())
def test_numbers_go_where_the_variates_are_made(name: str, count: int, card: Any) -> None:
    """Where an array lives, where `out` does, or where the backend runs."""
    draw, n = getattr(kernels.rng, name), 5
    want = draw(*(1.5,) * count, size=n, key=1)
    array, out = card.xp.asarray(np.full(n, 1.5)), card.xp.asarray(np.empty(n))
    found = [
        draw(*(1.5,) * count, size=n, key=1, backend="cuda"),
        draw(*(1.5,) * count, size=n, key=1, out=out),
        draw(array, *(1.5,) * (count - 1), key=1),
        draw(*(1.5,) * (count - 1), array, key=1),
    ]
    assert found[1] is out
    for one in found:
        np.testing.assert_allclose(one.get(), want, rtol=1e-12)
    with pytest.raises(TypeError, match=rf"rng\.{name}: backend 'cuda' takes CuPy arrays, got NumPy arrays"):
        draw(*(1.5,) * (count - 1), np.full(n, 1.5), key=1, backend="cuda")


@pytest.mark.parametrize(("name", "count"), FROM_PARAMETERS.items())
def test_no_word_is_used_twice_on_a_device(name: str, count: int, card: Any) -> None:
    """The length of an array on a device counts as that of another."""
    parameters = [card.xp.asarray(np.ones(3))] * count
    with pytest.raises(ValueError, match=rf"rng\.{name}: the counter is exhausted: .* the 3 items from first_item = 4294967294"):
        getattr(kernels.rng, name)(*parameters, key=1, first_item=2**32 - 2)


def test_a_residual_sum_of_squares_may_be_a_number(card: Any) -> None:
    """Of several chains on a device, as of as many on the host."""
    random = np.random.default_rng(1)
    source = testing.Source(lambda options: options[0], random)
    state = of_local.state(source, 3, p=4)
    R = np.asarray(np.linalg.qr(random.standard_normal((9, 4)), mode="r"))
    data = {"R": R, "q": random.standard_normal(4)}
    want = kernels.shrinkage.local_sweeps(**data, rss=2.0, n=9.0, seed=1, **state)
    there = {name: card.xp.asarray(array) for name, array in (data | state).items()}
    for a, b in zip(kernels.shrinkage.local_sweeps(**there, rss=2.0, n=9.0, seed=1), want):
        np.testing.assert_allclose(a.get(), b, rtol=1e-10)


@pytest.mark.parametrize("index", [-1, 5, -(2**63)])
def test_an_index_that_is_no_row_is_refused(index: int, card: Any) -> None:
    X, y, mu = (card.xp.asarray(array) for array in (np.ones((5, 2)), np.ones(5), np.zeros(2)))
    call = {"clip": 1.0, "family": "bernoulli", "estimator": "weight-mc", "seed": 1}
    with pytest.raises(IndexError, match="an index is no row of X"):
        kernels.glm.clipped_grad_sum(X, y, mu, mu, rows=card.xp.asarray(np.array([0, index, 4])), **call)
    for good in ([], [0, 4]):
        total, skipped = kernels.glm.clipped_grad_sum(X, y, mu, mu, rows=card.xp.asarray(np.array(good, np.int64)), **call)
        assert (total.shape, int(skipped)) == ((4,), 0)


@pytest.mark.nightly
def test_the_script_of_where_a_card_pays_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but its jobs, at small sizes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import gpu_worth

    small = {"BATCHES": (16, 64), "CHAINS": (2,), "ROWS": 256, "AREAS": (5, 4)}
    paper = {"n_global": 3, "n_local": (2, 2), "hidden": 4, "local_hidden": 3}
    for name, value in (small | {"PAPER": paper, "of_jobs": lambda: iter(())}).items():
        monkeypatch.setattr(gpu_worth, name, value)
    monkeypatch.setattr(gpu_worth, "field", lambda p, made=gpu_worth.field: made(min(p, 5)))
    found = [*gpu_worth.lines(homes.device_home())]
    assert sum(line.startswith("  ") for line in found) == 4 + 2 + 3 + 1
    assert sum(line.startswith("card, ") for line in found) == 2
    del sys.modules["gpu_worth"]
