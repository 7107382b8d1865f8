"""Kept draws that wait for other rounds are those that do not wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedkern.algorithms.core import trace
from fedkern.algorithms.core.trace import Trace
from fedkern.algorithms.gibbs import machine as server
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.methods.sparse.streams import Streams
from support import chosen

Draws = dict[str, NDArray[np.float64]]


def draws(number: int) -> Draws:
    """Of a round."""
    random = np.random.default_rng(number)
    return {"a": random.normal(size=(2, 3)), "b": random.normal(size=(2,))}


def kept(several: Mapping[str, NDArray[np.float64]]) -> Draws:
    """Of several rounds: (t, ...) -> (t, ...)."""
    return {"twice": 2 * several["a"], "b": several["b"], "sum": several["a"].sum(axis=-1)}


def same(found: Trace, rounds: list[int]) -> None:
    assert found.count == len(rounds)
    assert found.names() == (("twice", "b", "sum") if rounds else ())
    for name in found.names():
        wanted = np.stack([kept({k: v[None] for k, v in draws(i).items()})[name][0] for i in rounds], axis=1)
        np.testing.assert_array_equal(found[name], wanted)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["add", "add", "add", "many", "read", "save", "clear"]), max_size=40))
def test_whatever_happens_between_rounds(steps: list[str]) -> None:
    held, rounds, number = Trace(), list[int](), 0
    for step in steps:
        if step in ("add", "many"):
            for _ in range(1 if step == "add" else 70):
                one = draws(number)
                held.add(one, kept)
                for value in one.values():
                    value.fill(np.nan)  # what was added is a copy
                rounds.append(number)
                number += 1
        elif step == "read":
            same(held, rounds)
        elif step == "save":
            held = Trace.load(held.save())
        else:
            held.clear()
            rounds = []
    same(held, rounds)


def test_large_draws_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def counted(several: Mapping[str, NDArray[np.float64]]) -> Draws:
        calls.append(len(several["b"]))
        return kept(several)

    def rounds(n: int) -> Trace:
        held = Trace()
        for number in range(n):
            held.add(draws(number), counted)
        return held

    rounds(2 * trace.WAITING)
    assert calls == [trace.WAITING] * 2
    calls.clear()
    size = sum(value.nbytes for value in draws(0).values())
    monkeypatch.setattr(trace, "BYTES", 5 * size + 1)
    rounds(15)
    assert calls == [5, 5, 5]
    calls.clear()
    monkeypatch.setattr(trace, "BYTES", size - 1)
    rounds(3)
    assert calls == [1, 1, 1]


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 1, 11), (2, 3, 3)])
@pytest.mark.parametrize("sites", [1, 2, 9, 40])
@pytest.mark.parametrize("eta_form", ["common", "coordinate"])
def test_the_server_keeps_of_several_rounds_what_it_keeps_of_each(shape: tuple[int, int, int], sites: int, eta_form: str) -> None:
    """To the last bit, whatever the order in which NumPy adds."""
    chains, g, p = shape
    layout = Layout(np.zeros((g, p), np.int64) if g == 1 else np.where(np.eye(p, dtype=bool), -2, np.arange(p * p).reshape(p, p)))
    settings = chosen.gibbs(layout, chosen.prior(eta_form=eta_form), chains=chains, share_local=True)
    state, _ = server.start(settings, sites)
    object.__setattr__(state, "rows", tuple(range(1, sites + 1)))
    random = np.random.default_rng(sites)
    each: list[dict[str, Any]] = [
        {name: random.normal(size=shape) for name in ("theta", "tau_sq", "inclusion", "eta")}
        | {"rho": random.random((chains, g)), "deviation": random.normal(size=(sites, *shape))}
        for _ in range(7)
    ]
    together = server._kept(state, {name: np.stack([one[name] for one in each]) for name in each[0]})
    for t, one in enumerate(each):
        alone = server._kept(state, {name: value[None] for name, value in one.items()})
        assert alone.keys() == together.keys()
        for name, value in alone.items():
            np.testing.assert_array_equal(together[name][t], value[0], err_msg=name)
    here = np.stack([one["deviation"] for one in each])
    theta = np.stack([one["theta"] for one in each])
    np.testing.assert_allclose(together["average"], layout.flat(theta + here.mean(axis=1)), rtol=1e-12, atol=1e-12)
    if sites > 1:
        np.testing.assert_allclose(together["between"], layout.flat(here.std(axis=1, ddof=1)), rtol=1e-10)
    weights = np.arange(1, sites + 1) / np.arange(1, sites + 1).sum()
    np.testing.assert_allclose(
        together["by_rows"], layout.flat(theta + np.tensordot(here, weights, (1, 0))), rtol=1e-12, atol=1e-12
    )


def test_streams_take_what_is_kept_of_a_round() -> None:
    now, before = Streams({}), Streams({})
    for number in range(30):
        now.add(draws(number), kept)
        before.add({name: value[0] for name, value in kept({k: v[None] for k, v in draws(number).items()}).items()})
    left, right = now.save("trace."), before.save("trace.")
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(right[name]))
