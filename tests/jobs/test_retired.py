"""A key that jobs no longer have: one error says what to do instead."""

from __future__ import annotations

import pytest

from fedkern.errors import JobError
from fedkern.jobs import retired
from fedkern.methods import load

KEYS = [(method, key) for method, keys in retired.KEYS.items() for key in keys]


@pytest.mark.parametrize(("method", "key"), KEYS)
def test_it_is_named_with_what_to_do_instead(method: str, key: str) -> None:
    section, _, name = key.partition(".")
    job: dict[str, dict[str, object]] = {"job": {"method": method}}
    job.setdefault(section, {})[name] = 1
    with pytest.raises(JobError, match=f"{key} is no longer a key of {method}; ") as error:
        load(job)
    assert retired.KEYS[method][key] in str(error.value)
    assert "unknown" not in str(error.value)
