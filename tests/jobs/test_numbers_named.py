"""A client with few rows alike reads the number of [disclosure] that would do for its file, and it is below the wanted one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data.rare import Rare
from fedkern.data.table import Table
from fedkern.disclosure.look import BY_FIT, Look
from fedkern.disclosure.requirement import Requirement
from fedkern.disclosure.rules import Rules
from fedkern.errors import JobError
from fedkern.models.encoding import Spec


def sites(n: int, rare: int) -> dict[str, Any]:
    pd, found = pytest.importorskip("pandas"), {}
    for k, name in enumerate("ab"):
        random = np.random.default_rng(k)
        sex = (np.arange(n) < (rare if name == "b" else n // 2)).astype(float)
        age = random.normal(60, 12, n).round(2)
        found[name] = pd.DataFrame({"age": age, "sex": sex, "died": (random.random(n) < 0.4).astype(int)})
    return found


def ran(clients: dict[str, Any], **keys: int) -> Any:
    job = {"job": {"method": "likelihood"}, "data": {"response": "died"}, "algorithm": {"points": 256, "effective": 50}}
    return fedkern.run({**job, "disclosure": {"level": "strict", **keys}}, data=clients)


def test_the_named_value_does() -> None:
    clients = sites(120, 6)
    with pytest.raises(JobError, match=r"lower disclosure.rows_per_value to \d+") as refused:
        ran(clients)
    said = str(refused.value)
    assert 'go on without this client (disclosure.small = "leave-out")' in said
    (value,) = re.findall(r"lower disclosure.rows_per_value to (\d+)", said)
    assert ran(clients, rows_per_value=int(value)).summary["converged"] is not None
    assert (int(value), f"rows that values of 'sex' have to themselves: {value}; 10 are asked for" in said) == (6, True)


def test_a_number_that_is_rounded_up_to_the_wanted_one_is_lowered_below_it() -> None:
    table = Table("b.csv", ("sex", "y"), {"sex": np.zeros(3), "y": np.zeros(3)}, 3)
    look = Look.at(Requirement(Rules(rows_per_value=2)), table, Spec("y"), np.ones(3))
    found = look.singled_out((Rare(("sex",), 2),), BY_FIT)
    assert (found.id, found.facts, found.values["rows"], found.enough) == ("rare-values", (BY_FIT,), 2, 1)
