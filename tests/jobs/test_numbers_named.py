"""A client with few rows alike reads the number of [disclosure] that would do for its file, and it is below the wanted one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data.rare import Rare
from fedkern.data.table import Table
from fedkern.disclosure.alike import BY_FIT, _words
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
    numbers = re.search(r"that (\d+) rows", said)
    wanted = re.search(r"lack; (\d+) are asked for", said)
    assert numbers
    assert wanted
    assert int(numbers[1]) < int(wanted[1])


def test_a_number_that_is_rounded_up_to_the_wanted_one_is_said_otherwise() -> None:
    table = Table("b.csv", ("sex", "y"), {"sex": np.zeros(3), "y": np.zeros(3)}, 3)
    own = _words((Rare(("sex",), 2),), table, Spec("y"), 2, (), BY_FIT).own
    assert "has a value that fewer than 2 rows, as the fit lets them weigh, have and all others lack; 2 are asked for" in own
