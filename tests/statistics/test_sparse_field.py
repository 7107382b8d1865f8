"""Joint tests (Geweke) of a random field with its moves, as pooled statistics have them (docs/spec/sparse.md, section 6).

At night alone: in less time than twenty seconds the fault below is not seen. By day pooled statistics have the bits of the
federated run (`algorithms/test_gibbs.py`), whose moves keep their target (`test_sparse_moves.py`, `test_sparse_protocol.py`).
"""

from __future__ import annotations

import pytest

from oracles.geweke import BOUND, joint_test, worst
from support.sparse_field import Field, MovedBackwards

ALL = {"moves": ("translate", "interweave"), "block": (None, 3)}
FULL = {"chains": 600, "steps": 60, "draws": 200_000}
SCHEDULES = {
    "translate, interweave three of four, exchange": ALL,
    "interweave": {"moves": ("interweave",), "block": (None,), "exchanges": False},
    "one of two translated, slab": {"moves": ("translate",), "block": (1,), "slab": 0.7},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_field_with_moves_keeps_the_target_closely(name, seed):
    z = joint_test(Field(**SCHEDULES[name]), seed, rounds=2, **FULL)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly  # 20 s: with 100 chains z is 3, and machines run one by one
def test_negative_control_moves_down_the_gradient_are_seen(seed):
    z = joint_test(MovedBackwards(**SCHEDULES["interweave"]), seed, rounds=2, chains=250, steps=20, draws=50_000)
    assert worst(z)[0] > BOUND, z
